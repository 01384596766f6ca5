//! Subscriptions: who gets what, permits, acknowledgements, redelivery, seek.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use geminga_broker::LinkId;
use geminga_core::hash::sticky_slot;
use geminga_core::wire::proto::command_ack::AckType;
use geminga_core::wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_core::wire::proto::{self, KeySharedMode, ServerError};
use geminga_core::wire::{AckSet, Command};

use crate::world::{Got, TOPIC, World, error_of, message_id};

/// A link with producer 1, and `texts` published before anybody subscribes.
fn published(w: &mut World, texts: &[&str]) -> LinkId {
    let link = w.link();
    w.producer(link, 1);
    for (sequence_id, text) in texts.iter().enumerate() {
        w.publish(link, 1, sequence_id as u64, text);
    }
    w.commands(link);
    link
}

fn earliest(request: &mut proto::CommandSubscribe) {
    request.initial_position = Some(InitialPosition::Earliest as i32);
}

fn all_texts(messages: &[Got]) -> Vec<&str> {
    messages.iter().flat_map(|m| m.texts.iter().map(String::as_str)).collect()
}

fn permits(w: &World, subscription: &str) -> Vec<i64> {
    w.cluster.subscription(TOPIC, subscription).unwrap().consumers.iter().map(|c| c.permits).collect()
}

#[test]
fn the_initial_position_counts_only_when_the_subscription_is_made() {
    let mut w = World::new();
    published(&mut w, &["a", "b"]);
    let (late, early) = (w.link(), w.link());
    w.subscribe(late, 1, SubType::Exclusive);
    w.subscribe_with(early, 1, SubType::Exclusive, |request| {
        earliest(request);
        request.subscription = "early".to_owned();
    });
    w.flow(late, 1, 10);
    w.flow(early, 1, 10);
    assert_eq!(w.texts(early), ["a", "b"]);
    assert!(w.texts(late).is_empty());
    w.drop_link(late);
    let again = w.link();
    w.subscribe_with(again, 1, SubType::Exclusive, earliest);
    w.flow(again, 1, 10);
    assert!(w.texts(again).is_empty());
}

#[test]
fn permits_count_messages_and_a_batch_is_never_split() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.publish_batch(link, 1, 0, &["a", "b", "c", "d", "e"]);
    w.publish(link, 1, 5, "f");
    w.commands(link);
    w.flow(link, 2, 3);
    assert_eq!(w.texts(link), ["a", "b", "c", "d", "e"]);
    assert_eq!(permits(&w, "s"), [-2]);
    w.flow(link, 2, 2);
    assert!(w.texts(link).is_empty());
    w.flow(link, 2, 1);
    assert_eq!(w.texts(link), ["f"]);
}

#[test]
fn a_grant_of_no_permits_closes_the_link() {
    let mut w = World::new();
    let link = w.link();
    w.flow(link, 2, 0);
    assert!(!w.is_closed(link), "a consumer that is not there grants nothing either way");
    w.subscribe(link, 2, SubType::Shared);
    w.flow(link, 2, 0);
    assert!(w.is_closed(link));
}

#[test]
fn a_second_exclusive_consumer_is_refused_unless_the_first_is_silent() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.subscribe(a, 1, SubType::Exclusive);
    assert_eq!(error_of(&w.try_subscribe(b, 1, SubType::Exclusive, |_| {})), ServerError::ConsumerBusy);
    assert_eq!(error_of(&w.try_subscribe(b, 1, SubType::Shared, |_| {})), ServerError::ConsumerBusy);
    assert_eq!(error_of(&w.try_subscribe(a, 2, SubType::Exclusive, |_| {})), ServerError::ConsumerBusy);
    w.subscribe(a, 1, SubType::Exclusive);
    w.mute(a);
    assert!(w.try_subscribe(b, 1, SubType::Exclusive, |_| {}).is_empty());
    w.advance(Duration::from_secs(5));
    assert!(matches!(w.next(b), Command::Success(_)));
    assert!(w.is_closed(a));
}

#[test]
fn requests_that_make_no_sense_get_the_errors_of_the_real_broker() {
    let mut w = World::new();
    let link = w.link();
    let empty = w.try_subscribe(link, 1, SubType::Shared, |request| request.subscription = String::new());
    assert_eq!(error_of(&empty), ServerError::ProducerBusy);
    let compacted = w.try_subscribe(link, 1, SubType::Shared, |request| request.read_compacted = Some(true));
    assert_eq!(error_of(&compacted), ServerError::NotAllowedError);
    let other = format!("{TOPIC}-missing");
    w.own(link, &other);
    let missing = w.try_subscribe(link, 1, SubType::Shared, |request| {
        request.topic = other;
        request.force_topic_creation = Some(false);
    });
    assert_eq!(error_of(&missing), ServerError::TopicNotFound);
    let unknown = proto::CommandGetLastMessageId { consumer_id: 9, request_id: 1 };
    w.send(link, Command::GetLastMessageId(unknown));
    assert_eq!(error_of(&w.commands(link)), ServerError::MetadataError);
    w.ack_with(link, 9, (1, 1), |ack| ack.request_id = Some(3));
    assert!(w.commands(link).is_empty(), "an ack of an unknown consumer has no answer");
}

#[test]
fn exclusive_redelivery_starts_over_at_the_first_unacknowledged_message() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b", "c"]);
    w.subscribe_with(link, 2, SubType::Exclusive, earliest);
    w.flow(link, 2, 10);
    let first = w.messages(link);
    w.ack(link, 2, first[1].id);
    w.redeliver(link, 2, &[]);
    let again = w.messages(link);
    assert_eq!(all_texts(&again), ["a", "c"]);
    assert!(again.iter().all(|m| m.redelivery == 0), "counted for Shared and Key_Shared only");
    w.ack_with(link, 2, first[2].id, |ack| ack.ack_type = AckType::Cumulative as i32);
    assert_eq!(w.cluster.subscription(TOPIC, "s").unwrap().backlog_entries, 0);
}

#[test]
fn the_consumer_epoch_comes_back_with_each_message() {
    let mut w = World::new();
    let link = published(&mut w, &["a"]);
    w.subscribe_with(link, 2, SubType::Exclusive, |request| {
        earliest(request);
        request.consumer_epoch = Some(0);
    });
    w.flow(link, 2, 10);
    let redeliver = proto::CommandRedeliverUnacknowledgedMessages {
        consumer_id: 2,
        consumer_epoch: Some(1),
        ..Default::default()
    };
    w.send(link, Command::RedeliverUnacknowledgedMessages(redeliver));
    let epochs: Vec<_> = w
        .commands(link)
        .into_iter()
        .map(|c| if let Command::Message(m) = c { m.consumer_epoch } else { panic!("{c:?}") })
        .collect();
    assert_eq!(epochs, [Some(0), Some(1)]);
}

/// What a step of a Failover subscription says, in the words of the wire: SUCCESS, and who is told to be active.
fn notices(commands: Vec<Command>) -> Vec<String> {
    let notice = |command| match command {
        Command::Success(_) => Some("success".to_owned()),
        Command::ActiveConsumerChange(c) => Some(format!("{} {}", c.consumer_id, c.is_active())),
        _ => None,
    };
    commands.into_iter().filter_map(notice).collect()
}

#[test]
fn partitions_of_a_failover_subscription_take_turns_by_priority_then_name() {
    // As observed: consumers b, c and a come in this order, then b goes.
    let expected = [
        [
            vec!["success", "2 true"],
            vec!["3 false", "success"],
            vec!["success", "1 true", "2 false", "3 false"],
            vec!["success"],
        ],
        [
            vec!["success", "2 true"],
            vec!["success", "2 false", "3 true"],
            vec!["success", "1 false", "2 true", "3 false"],
            vec!["success", "1 false", "3 true"],
        ],
        [
            vec!["success", "2 true"],
            vec!["3 false", "success"],
            vec!["success", "1 false", "2 false", "3 true"],
            vec!["success", "1 true", "3 false"],
        ],
    ];
    let mut w = World::new();
    w.cluster.create_partitioned_topic(w.now, "parted", 3).unwrap();
    for (index, expected) in expected.into_iter().enumerate() {
        let link = w.link();
        let topic = format!("persistent://public/default/parted-partition-{index}");
        w.own(link, &topic);
        let mut steps = Vec::new();
        for (id, name) in [(2, "b"), (3, "c"), (1, "a")] {
            steps.push(notices(w.try_subscribe(link, id, SubType::Failover, |request| {
                request.topic = topic.clone();
                request.consumer_name = Some(name.to_owned());
            })));
        }
        steps.push(notices(w.close_consumer(link, 2)));
        assert_eq!(steps, expected, "partition {index}");
    }
}

#[test]
fn a_failover_topic_without_partitions_sticks_to_its_ring_and_prefers_the_better_priority() {
    let mut w = World::new();
    let producer = published(&mut w, &["a"]);
    let links: Vec<_> = ["b", "c", "a", "d"]
        .into_iter()
        .map(|name| {
            let link = w.link();
            w.subscribe_with(link, 1, SubType::Failover, |request| {
                earliest(request);
                request.consumer_name = Some(name.to_owned());
                request.priority_level = Some(1);
            });
            w.flow(link, 1, 10);
            link
        })
        .collect();
    let active = |w: &World| {
        let view = w.cluster.subscription(TOPIC, "s").unwrap();
        let active: Vec<_> = view.consumers.into_iter().filter(|c| c.active).map(|c| c.link).collect();
        assert_eq!(active.len(), 1);
        active[0]
    };
    let before = active(&w);
    for link in links.iter().filter(|link| **link != before) {
        w.close_consumer(*link, 1);
        assert_eq!(active(&w), before, "those that go were not active");
    }
    let better = w.link();
    let answer = w.try_subscribe(better, 1, SubType::Failover, |request| {
        request.consumer_name = Some("z".to_owned());
    });
    assert_eq!(notices(answer), ["success", "1 true"]);
    assert_eq!(active(&w), better);
    w.flow(better, 1, 10);
    assert_eq!(w.texts(better), ["a"], "the unacknowledged message goes to the new active consumer");
    w.close_consumer(better, 1);
    w.publish(producer, 1, 1, "b");
    assert_eq!(active(&w), before);
}

#[test]
fn a_takeover_waits_if_the_broker_is_told_to() {
    let mut w = World::with(|config| config.failover_delay = Duration::from_secs(1));
    let link = published(&mut w, &["a"]);
    let answer = w.try_subscribe(link, 2, SubType::Failover, earliest);
    assert_eq!(notices(answer), ["success"]);
    w.flow(link, 2, 10);
    assert!(w.commands(link).is_empty());
    w.advance(Duration::from_secs(1));
    assert_eq!(notices(vec![w.next(link)]), ["2 true"]);
    assert_eq!(w.texts(link), ["a"]);
}

#[test]
fn an_exclusive_consumer_may_ask_for_some_slots_only() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let link = w.link();
    let slot = sticky_slot(b"mine") as i32;
    w.subscribe_with(link, 1, SubType::Exclusive, |request| {
        request.key_shared_meta = Some(proto::KeySharedMeta {
            key_shared_mode: KeySharedMode::Sticky as i32,
            hash_ranges: vec![proto::IntRange { start: slot, end: slot }],
            allow_out_of_order_delivery: None,
        });
    });
    w.flow(link, 1, 10);
    publish_keys(&mut w, producer, 0, 0..20);
    w.publish_with(producer, 1, 20, "mine", |m| m.partition_key = Some("mine"));
    assert_eq!(w.texts(link), ["mine"]);
}

#[test]
fn shared_goes_round_and_prefers_the_better_priority() {
    let mut w = World::with(|config| config.round_robin_entries = 1);
    let producer = published(&mut w, &[]);
    let links: Vec<_> = [0, 0, 1]
        .into_iter()
        .map(|priority| {
            let link = w.link();
            w.subscribe_with(link, 1, SubType::Shared, |request| request.priority_level = Some(priority));
            w.flow(link, 1, 2);
            link
        })
        .collect();
    for i in 0..6 {
        w.publish(producer, 1, i, &i.to_string());
    }
    let texts: Vec<_> = links.iter().map(|link| w.texts(*link)).collect();
    assert_eq!(texts, [["0", "2"], ["1", "3"], ["4", "5"]]);
}

#[test]
fn shared_redelivery_counts_and_goes_to_whoever_has_permits() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b"]);
    w.subscribe_with(link, 2, SubType::Shared, earliest);
    w.flow(link, 2, 2);
    let first = w.messages(link);
    w.redeliver(link, 2, &[first[1].id]);
    assert!(w.messages(link).is_empty(), "no permits are left");
    w.flow(link, 2, 10);
    let again = w.messages(link);
    assert_eq!((all_texts(&again), again[0].redelivery), (vec!["b"], 1));
    let other = w.link();
    w.subscribe(other, 1, SubType::Shared);
    w.flow(other, 1, 10);
    w.redeliver(link, 2, &[]);
    let mut back: Vec<_> = w.messages(link).into_iter().chain(w.messages(other)).collect();
    back.sort_by_key(|m| m.id);
    assert_eq!(back.iter().map(|m| m.redelivery).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn what_a_lost_consumer_held_goes_to_the_others() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b", "c"]);
    let doomed = w.link();
    w.subscribe_with(doomed, 1, SubType::Shared, earliest);
    w.subscribe(link, 2, SubType::Shared);
    w.flow(doomed, 1, 10);
    let held = w.messages(doomed);
    assert_eq!(all_texts(&held), ["a", "b", "c"]);
    w.ack(doomed, 1, held[0].id);
    w.flow(link, 2, 10);
    w.drop_link(doomed);
    assert_eq!(w.texts(link), ["b", "c"]);
}

#[test]
fn batch_index_acks_are_kept_told_and_not_charged() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.flow(link, 2, 20);
    w.publish_batch(link, 1, 0, &["a", "b", "c", "d", "e"]);
    w.receipt(link);
    let batch = w.messages(link).pop().unwrap();
    assert_eq!(permits(&w, "s"), [15]);
    let mut left = AckSet::full(5);
    left.clear(1);
    left.clear(3);
    let words = left.words().to_vec();
    w.ack_with(link, 2, batch.id, |ack| ack.message_id[0].ack_set = words.clone());
    assert_eq!(w.cluster.subscription(TOPIC, "s").unwrap().unacked_messages, 3);
    let unacked: Vec<_> = w.cluster.unacked(TOPIC, "s").unwrap().into_iter().map(|m| m.payload).collect();
    assert_eq!(unacked, ["a", "c", "e"]);
    w.redeliver(link, 2, &[batch.id]);
    let again = w.messages(link).pop().unwrap();
    assert_eq!((again.ack_set, permits(&w, "s")), (words, vec![12]));
    let mut rest = AckSet::full(5);
    for index in [0, 2, 4] {
        rest.clear(index);
    }
    w.ack_with(link, 2, batch.id, |ack| ack.message_id[0].ack_set = rest.into_words());
    assert_eq!(w.cluster.subscription(TOPIC, "s").unwrap().backlog_entries, 0);
}

#[test]
fn without_batch_index_acks_only_whole_entries_count() {
    let mut w = World::with(|config| config.batch_index_acks = false);
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.flow(link, 2, 20);
    w.publish_batch(link, 1, 0, &["a", "b"]);
    w.receipt(link);
    let batch = w.messages(link).pop().unwrap();
    w.ack_with(link, 2, batch.id, |ack| ack.message_id[0].ack_set = vec![1]);
    assert_eq!(w.cluster.subscription(TOPIC, "s").unwrap().backlog_messages, 2);
}

#[test]
fn a_cumulative_ack_stops_within_a_batch_and_is_ignored_on_shared() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Exclusive);
    w.subscribe_with(link, 3, SubType::Shared, |request| request.subscription = "shared".to_owned());
    w.publish(link, 1, 0, "x");
    w.publish_batch(link, 1, 1, &["a", "b", "c"]);
    let ledger = w.receipt(link).message_id.unwrap().ledger_id as i64;
    w.receipt(link);
    for consumer in [2, 3] {
        w.ack_with(link, consumer, (ledger, 1), |ack| {
            ack.ack_type = AckType::Cumulative as i32;
            ack.message_id[0].ack_set = vec![0b100];
            ack.request_id = Some(9);
        });
        assert!(matches!(&w.commands(link)[..], [Command::AckResponse(r)] if r.error.is_none()));
    }
    let left: Vec<_> = w.cluster.unacked(TOPIC, "s").unwrap().into_iter().map(|m| m.payload).collect();
    assert_eq!(left, ["c"]);
    assert_eq!(w.cluster.subscription(TOPIC, "shared").unwrap().backlog_messages, 4);
}

fn key_shared(w: &mut World, name: &str) -> LinkId {
    let link = w.link();
    w.subscribe_with(link, 1, SubType::KeyShared, |request| request.consumer_name = Some(name.to_owned()));
    link
}

fn publish_keys(w: &mut World, link: LinkId, from: u64, keys: impl Iterator<Item = u32>) {
    for (i, key) in keys.enumerate() {
        let key = format!("key-{key}");
        w.publish_with(link, 1, from + i as u64, &key, |m| m.partition_key = Some(&key));
    }
    w.commands(link);
}

#[test]
fn a_key_stays_with_its_consumer() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let links = [key_shared(&mut w, "a"), key_shared(&mut w, "b"), key_shared(&mut w, "c")];
    for link in links {
        w.flow(link, 1, 1000);
    }
    publish_keys(&mut w, producer, 0, (0..60).map(|i| i % 20));
    let mut owners: BTreeMap<String, BTreeSet<LinkId>> = BTreeMap::new();
    for link in links {
        for text in w.texts(link) {
            owners.entry(text).or_default().insert(link);
        }
    }
    assert_eq!(owners.len(), 20);
    assert!(owners.values().all(|links| links.len() == 1));
}

#[test]
fn a_key_waits_until_its_former_consumer_has_acknowledged() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let old = key_shared(&mut w, "old");
    w.flow(old, 1, 1000);
    publish_keys(&mut w, producer, 0, 0..40);
    let held = w.messages(old);
    assert_eq!(held.len(), 40);
    let new = key_shared(&mut w, "new");
    w.flow(new, 1, 1000);
    publish_keys(&mut w, producer, 40, 0..40);
    assert!(w.messages(new).is_empty(), "all keys are held by the old consumer");
    let stayed = w.texts(old);
    assert!(!stayed.is_empty() && stayed.len() < 40);
    let moved: Vec<&Got> = held.iter().filter(|m| !stayed.contains(&m.texts[0])).collect();
    w.ack(old, 1, moved[0].id);
    assert_eq!(w.texts(new), moved[0].texts, "one key is free, and only that");
    w.drop_link(old);
    let rest = w.messages(new);
    let mut seen: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for message in &rest {
        let last = seen.insert(&message.texts[0], message.id);
        assert!(last.is_none_or(|last| last < message.id), "a key went backwards");
    }
    assert_eq!(rest.len(), 39 + 39);
}

#[test]
fn a_consumer_without_permits_does_not_stop_the_keys_of_others() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let (slow, fast) = (key_shared(&mut w, "slow"), key_shared(&mut w, "fast"));
    w.flow(slow, 1, 1);
    w.flow(fast, 1, 1000);
    publish_keys(&mut w, producer, 0, 0..40);
    let (first, others) = (w.texts(slow), w.texts(fast));
    assert_eq!(first.len(), 1);
    assert!(others.len() > 5);
    w.flow(slow, 1, 1000);
    assert_eq!(first.len() + others.len() + w.texts(slow).len(), 40);
}

#[test]
fn look_ahead_past_blocked_keys_is_limited() {
    let mut w = World::with(|config| config.look_ahead = 5);
    let producer = published(&mut w, &[]);
    let (slow, fast) = (key_shared(&mut w, "slow"), key_shared(&mut w, "fast"));
    w.flow(fast, 1, 1000);
    publish_keys(&mut w, producer, 0, 0..200);
    let got = w.texts(fast).len();
    assert!(got < 60, "read on although {got} were passed");
    w.flow(slow, 1, 1000);
    assert_eq!(got + w.texts(fast).len() + w.texts(slow).len(), 200);
}

#[test]
fn sticky_ranges_and_the_ordering_key_decide() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let slot = sticky_slot(b"key-1") as i32;
    assert_eq!(slot, 5536, "as observed on the real broker");
    let sticky = |ranges: Vec<(i32, i32)>| {
        move |request: &mut proto::CommandSubscribe| {
            request.key_shared_meta = Some(proto::KeySharedMeta {
                key_shared_mode: KeySharedMode::Sticky as i32,
                hash_ranges: ranges.into_iter().map(|(start, end)| proto::IntRange { start, end }).collect(),
                allow_out_of_order_delivery: None,
            });
        }
    };
    let (one, rest) = (w.link(), w.link());
    let none = w.try_subscribe(one, 1, SubType::KeyShared, sticky(vec![]));
    assert_eq!(error_of(&none), ServerError::ConsumerAssignError);
    w.subscribe_with(one, 1, SubType::KeyShared, sticky(vec![(slot, slot)]));
    let overlapping = w.try_subscribe(rest, 1, SubType::KeyShared, sticky(vec![(0, 65535)]));
    assert_eq!(error_of(&overlapping), ServerError::ConsumerAssignError);
    assert_eq!(error_of(&w.try_subscribe(rest, 1, SubType::KeyShared, |_| {})), ServerError::ConsumerBusy);
    w.subscribe_with(rest, 1, SubType::KeyShared, sticky(vec![(0, slot - 1), (slot + 1, 65535)]));
    w.flow(one, 1, 10);
    w.flow(rest, 1, 10);
    w.publish_with(producer, 1, 0, "by key", |m| m.partition_key = Some("key-1"));
    w.publish_with(producer, 1, 1, "by ordering key", |m| {
        m.partition_key = Some("other");
        m.ordering_key = Some(b"key-1");
    });
    w.publish_with(producer, 1, 2, "elsewhere", |m| {
        m.partition_key = Some("key-1");
        m.ordering_key = Some(b"other");
    });
    w.publish_with(producer, 1, 3, "by bytes", |m| {
        m.partition_key = Some("a2V5LTE=");
        m.partition_key_b64_encoded = true;
    });
    assert_eq!(w.texts(one), ["by key", "by ordering key", "by bytes"]);
    assert_eq!(w.texts(rest), ["elsewhere"]);
}

#[test]
fn a_delivery_time_counts_on_shared_subscriptions_only() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.subscribe_with(link, 3, SubType::Exclusive, |request| request.subscription = "exclusive".to_owned());
    w.flow(link, 2, 10);
    w.flow(link, 3, 10);
    let due = w.now.unix_ms as i64 + 2500;
    w.publish_with(link, 1, 0, "later", |m| m.deliver_at_time = Some(due));
    w.publish(link, 1, 1, "now");
    w.receipt(link);
    let rest = w.frames(link);
    let to_shared =
        rest.iter().filter(|f| matches!(&f.command, Command::Message(m) if m.consumer_id == 2)).count();
    let to_exclusive =
        rest.iter().filter(|f| matches!(&f.command, Command::Message(m) if m.consumer_id == 3)).count();
    assert_eq!((to_shared, to_exclusive), (1, 2));
    w.advance(Duration::from_millis(2499));
    assert!(w.texts(link).is_empty());
    w.advance(Duration::from_millis(1));
    assert_eq!(w.texts(link), ["later"]);
}

#[test]
fn a_seek_closes_the_consumer_first_and_includes_its_target() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b"]);
    w.advance(Duration::from_secs(10));
    w.publish(link, 1, 2, "c");
    w.receipt(link);
    w.subscribe_with(link, 2, SubType::Exclusive, earliest);
    w.flow(link, 2, 10);
    let messages = w.messages(link);
    w.ack_with(link, 2, messages[2].id, |ack| ack.ack_type = AckType::Cumulative as i32);
    let mut seek = |message_id: Option<proto::MessageIdData>, time: Option<u64>| {
        let seek =
            proto::CommandSeek { consumer_id: 2, request_id: 8, message_id, message_publish_time: time };
        w.send(link, Command::Seek(seek));
        let commands = w.commands(link);
        assert!(
            matches!(&commands[..], [Command::CloseConsumer(c), Command::Success(_)] if c.request_id == u64::MAX),
            "{commands:?}"
        );
        w.subscribe(link, 2, SubType::Exclusive);
        w.flow(link, 2, 10);
        w.texts(link)
    };
    assert_eq!(seek(Some(message_id(messages[1].id)), None), ["b", "c"]);
    assert_eq!(seek(None, Some(1_005_000)), ["c"]);
    assert_eq!(seek(Some(message_id((-1, -1))), None), ["a", "b", "c"]);
    assert!(seek(Some(message_id((i64::MAX, i64::MAX))), None).is_empty());
}

#[test]
fn a_seek_into_a_batch_leaves_out_what_its_ack_set_says() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Exclusive);
    w.publish_batch(link, 1, 0, &["a", "b", "c"]);
    let id = w.receipt(link).message_id.unwrap();
    let target = proto::MessageIdData { ack_set: vec![0b110], batch_index: Some(1), ..id };
    let seek = proto::CommandSeek { consumer_id: 2, message_id: Some(target), ..Default::default() };
    w.send(link, Command::Seek(seek));
    w.commands(link);
    w.subscribe(link, 2, SubType::Exclusive);
    w.flow(link, 2, 10);
    assert_eq!(w.messages(link)[0].ack_set, [0b110]);
    assert_eq!(permits(&w, "s"), [8]);
}

#[test]
fn a_reader_gets_the_whole_entry_of_its_start_id_and_leaves_no_trace() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.publish(link, 1, 0, "before");
    w.publish_batch(link, 1, 1, &["a", "b"]);
    w.receipt(link);
    let batch = w.receipt(link).message_id.unwrap();
    let start = proto::MessageIdData { batch_index: Some(1), ..batch };
    w.subscribe_with(link, 2, SubType::Exclusive, |request| {
        request.durable = Some(false);
        request.start_message_id = Some(start);
    });
    w.flow(link, 2, 10);
    assert_eq!(w.texts(link), ["a", "b"]);
    w.close_consumer(link, 2);
    assert!(w.cluster.subscription(TOPIC, "s").is_none());
}

#[test]
fn a_reader_that_starts_behind_the_end_follows_its_initial_position() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b"]);
    let last = w.cluster.topic(TOPIC).unwrap().last.unwrap();
    let next = (last.ledger, last.entry + 1);
    let behind = (last.ledger, last.entry + 2);
    let latest = (i64::MAX, i64::MAX);
    let mut number = 1;
    for (start, position, expected) in [
        (next, InitialPosition::Earliest, 0),
        (behind, InitialPosition::Earliest, 2),
        (behind, InitialPosition::Latest, 0),
        (latest, InitialPosition::Earliest, 2),
        (latest, InitialPosition::Latest, 0),
        ((-1, -1), InitialPosition::Latest, 2),
    ] {
        number += 1;
        w.subscribe_with(link, number, SubType::Exclusive, |request| {
            request.subscription = format!("r{number}");
            request.durable = Some(false);
            request.start_message_id = Some(message_id(start));
            request.initial_position = Some(position as i32);
        });
        w.flow(link, number, 10);
        assert_eq!(w.texts(link).len(), expected, "{start:?} {position:?}");
    }
}

#[test]
fn the_last_message_id_is_as_observed() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Exclusive);
    let ask = |w: &mut World| {
        w.send(
            link,
            Command::GetLastMessageId(proto::CommandGetLastMessageId { consumer_id: 2, request_id: 1 }),
        );
        match w.commands(link).pop() {
            Some(Command::GetLastMessageIdResponse(r)) => {
                let mark = r.consumer_mark_delete_position.unwrap();
                let last = r.last_message_id;
                assert_eq!(last.partition, Some(-1));
                ((last.ledger_id as i64, last.entry_id as i64, last.batch_index()), mark.entry_id as i64)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut w), ((-1, -1, -1), -1));
    w.publish(link, 1, 0, "a");
    let ledger = w.receipt(link).message_id.unwrap().ledger_id as i64;
    assert_eq!(ask(&mut w), ((ledger, 0, -1), -1));
    w.publish_batch(link, 1, 1, &["b", "c", "d"]);
    w.ack(link, 2, (ledger, 0));
    assert_eq!(ask(&mut w), ((ledger, 1, 2), 0));
}

#[test]
fn unsubscribing_needs_to_be_alone_and_forgets_the_position() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.subscribe(a, 1, SubType::Shared);
    w.subscribe(b, 1, SubType::Shared);
    let unsubscribe = |request_id| {
        Command::Unsubscribe(proto::CommandUnsubscribe { consumer_id: 1, request_id, ..Default::default() })
    };
    w.send(a, unsubscribe(4));
    assert_eq!(error_of(&w.commands(a)), ServerError::MetadataError);
    w.close_consumer(b, 1);
    w.send(a, unsubscribe(5));
    assert!(matches!(w.commands(a)[..], [Command::Success(_)]));
    assert!(w.cluster.subscription(TOPIC, "s").is_none());
}

#[test]
fn consumer_stats_tell_permits_and_backlog() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b", "c"]);
    w.subscribe_with(link, 2, SubType::Shared, earliest);
    w.flow(link, 2, 10);
    w.messages(link);
    let ask =
        |consumer_id| Command::ConsumerStats(proto::CommandConsumerStats { consumer_id, request_id: 6 });
    w.send(link, ask(2));
    let Command::ConsumerStatsResponse(stats) = w.next(link) else { panic!("no stats") };
    assert_eq!((stats.available_permits(), stats.unacked_messages(), stats.msg_backlog()), (7, 3, 3));
    assert_eq!(stats.r#type(), "Shared");
    w.send(link, ask(3));
    assert!(w.is_closed(link), "as observed: the real broker trips over an unknown consumer");
}

#[test]
fn too_many_unacknowledged_messages_stop_dispatch_until_acks_come() {
    let mut w = World::with(|config| config.max_unacked_per_consumer = 2);
    let link = published(&mut w, &["a", "b", "c"]);
    w.subscribe_with(link, 2, SubType::Shared, earliest);
    w.flow(link, 2, 10);
    let held = w.messages(link);
    assert_eq!(all_texts(&held), ["a", "b"]);
    w.ack(link, 2, held[0].id);
    assert_eq!(w.texts(link), ["c"]);
}

#[test]
fn an_unload_starts_a_new_ledger_and_loses_nothing() {
    let mut w = World::new();
    let link = published(&mut w, &["a"]);
    w.subscribe_with(link, 2, SubType::Shared, earliest);
    w.cluster.unload_topic(w.now, TOPIC).unwrap();
    let closed = w.commands(link);
    assert!(matches!(closed[..], [Command::CloseProducer(_), Command::CloseConsumer(_)]), "{closed:?}");
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.publish(link, 1, 1, "b");
    w.receipt(link);
    w.flow(link, 2, 10);
    let messages = w.messages(link);
    assert_eq!(all_texts(&messages), ["a", "b"]);
    assert!(messages[0].id.0 < messages[1].id.0 && messages[1].id.1 == 0);
}

#[test]
fn broker_entry_metadata_goes_to_those_who_can_read_it() {
    let mut w = World::with(|config| config.broker_entry_metadata = true);
    let plain = w.link();
    let able = w.raw_link(0);
    let flags = proto::FeatureFlags { supports_broker_entry_metadata: Some(true), ..Default::default() };
    let connect = proto::CommandConnect { feature_flags: Some(flags), ..Default::default() };
    w.send(able, Command::Connect(Box::new(connect)));
    w.next(able);
    w.producer(plain, 1);
    w.subscribe(plain, 2, SubType::Exclusive);
    w.subscribe_with(able, 2, SubType::Exclusive, |request| request.subscription = "able".to_owned());
    w.flow(plain, 2, 10);
    w.flow(able, 2, 10);
    w.publish(plain, 1, 0, "a");
    w.publish_batch(plain, 1, 1, &["b", "c"]);
    let entries = |frames: Vec<geminga_core::wire::Frame>| -> Vec<Option<u64>> {
        let payloads = frames.into_iter().filter_map(|f| f.payload);
        payloads.map(|p| p.broker_entry.map(|e| e.index())).collect()
    };
    assert_eq!(entries(w.frames(plain)), [None, None]);
    assert_eq!(entries(w.frames(able)), [Some(0), Some(2)]);
}
