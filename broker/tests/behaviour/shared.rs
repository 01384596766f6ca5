//! Shared subscriptions: turns, redelivery, acknowledgements of single messages of a batch, delivery times.

use std::time::Duration;

use geminga_core::wire::proto::command_ack::AckType;
use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::{AckSet, Command};

use crate::world::{TOPIC, World, all_texts, earliest, permits, published};

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
