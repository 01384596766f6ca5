//! One suite of behaviours for every broker: what an application relies on, through the crate `geminga`.
//!
//! It is the Rust runner of `tests/surfaces/cases.tsv`, the list that every surface implements. A behaviour is a function that
//! takes a [`Place`] and fails where it does not hold. `suite_embedded` plays all of them on the embedded broker, `real_suite`
//! on a real Pulsar: where the two disagree, the real one is right. It decides nothing about how the shared broker is
//! started. Waits are for facts, 30 s at most; only proofs that nothing comes take their time.

pub mod acks;
pub mod dead_letters;
pub mod partitions;
pub mod pauses;
mod place;
pub mod produce;
pub mod reading;
pub mod refusals;
pub mod subscriptions;

use std::collections::BTreeSet;

pub use place::{Kind, OwnBroker, Place, Receives, eventually, next, nothing_more, play, take, text, texts};

/// What the list of cases and a surface's `(group, id)` pairs have of each other's lacking.
pub fn differences(surface: &str, ours: &[(&str, &str)]) -> Vec<String> {
    let mut listed = BTreeSet::new();
    for row in include_str!("../surfaces/cases.tsv").lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [group, id, _, without, _] = columns[..] else { return vec![format!("five columns: {row}")] };
        if !without.split(", ").any(|name| name == surface) {
            listed.insert((group, id));
        }
    }
    let ours: BTreeSet<_> = ours.iter().copied().collect();
    let name = |case: &(&str, &str), what| format!("{}::{} {what}", case.0, case.1);
    let lacking = listed.difference(&ours).map(|case| name(case, "has no test"));
    lacking.chain(ours.difference(&listed).map(|case| name(case, "is not in the list"))).collect()
}

/// Makes a test of every behaviour, in a module for each file. `$play` is called with the test's name and the behaviour.
///
/// One more test compares the names with the list of cases.
#[macro_export]
macro_rules! suite {
    ($play:path) => {
        $crate::suite! { @ $play;
            produce:
                every_way_of_sending_stores_in_order,
                a_batch_goes_when_its_first_limit_is_reached,
                every_codec_is_read_back,
                what_goes_with_a_message_comes_back,
                an_empty_payload_is_not_a_tombstone,
                names_and_texts_may_leave_ascii,
                a_non_persistent_topic_delivers_to_who_listens;
            partitions:
                a_key_stays_on_its_partition_and_in_order,
                each_hashing_scheme_picks_the_partition_of_other_clients,
                messages_without_key_reach_every_partition,
                partitions_added_while_running_are_used;
            subscriptions:
                exclusive_refuses_a_second_consumer_or_lets_it_wait,
                failover_serves_one_consumer_and_then_the_other,
                shared_gives_each_message_to_one_consumer,
                key_shared_gives_each_key_to_one_consumer_in_order,
                unsubscribing_forgets_the_position;
            acks:
                what_is_not_acknowledged_comes_again_after_a_restart,
                a_cumulative_acknowledgement_covers_all_before_it,
                batch_indexes_are_acknowledged_one_by_one,
                without_batch_indexes_one_acknowledgement_spares_the_batch,
                a_cumulative_acknowledgement_may_end_inside_a_batch,
                cumulative_is_refused_where_messages_are_shared,
                a_negative_acknowledgement_brings_only_that_message_back_after_its_delay;
            dead_letters:
                what_is_given_back_too_often_ends_in_the_dead_letter_topic,
                of_a_batch_only_what_is_given_back_becomes_dead_letters,
                what_came_too_often_already_goes_there_undelivered;
            reading:
                a_receive_that_times_out_loses_nothing,
                a_reader_starts_at_either_end,
                a_reader_starts_at_an_id_or_behind_it,
                a_reader_starts_inside_a_batch,
                whether_a_message_is_available_is_known_everywhere,
                a_reader_reads_a_partitioned_topic_to_its_end,
                a_seek_by_id_or_time_starts_there,
                last_message_ids_name_the_end_of_each_partition;
            refusals:
                a_full_queue_fails_or_waits,
                the_largest_payload_passes_and_a_byte_more_is_refused,
                a_message_too_large_is_refused_and_spares_the_others,
                a_producer_name_in_use_is_busy_or_waited_for,
                a_namespace_that_does_not_exist_is_a_clear_error,
                an_unreachable_broker_is_a_clear_error,
                closed_handles_say_so;
            pauses:
                an_unload_is_a_pause_without_an_error,
                a_partitioned_topic_survives_the_unload_of_its_namespace,
                a_broker_restart_is_a_pause_without_an_error,
                deduplication_continues_from_the_last_sequence_id;
        }
    };
    (@ $play:path; $($file:ident: $($name:ident),+;)+) => {
        #[test]
        fn every_case_of_the_list_has_its_test_and_every_test_its_case() {
            let ours = [$($((stringify!($file), stringify!($name))),+),+];
            assert_eq!($crate::suite::differences("rust", &ours), Vec::<String>::new());
        }

        $(mod $file {
            $(#[test]
            fn $name() -> ::anyhow::Result<()> {
                $play(stringify!($name), $crate::suite::$file::$name)
            })+
        })+
    };
}
