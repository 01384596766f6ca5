//! Scenarios of acknowledgements: what the broker hears of them, and what it must never hear.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind};
use geminga_core::{
    Batching, ConsumerConfig, ErrorKind, InitialPosition, Message, MessageId, ProducerConfig,
    SubscriptionType,
};
use geminga_tests::network::Direction;
use geminga_tests::world::{ConsumerAt, Setup, World, text};

fn batches_of(n: usize) -> impl FnOnce(&mut ProducerConfig) {
    move |c| c.batching.max_messages = n
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn receive(w: &mut World, consumer: ConsumerAt, count: usize) -> Vec<Message> {
    (0..count).map(|_| w.receive(consumer)).collect()
}

/// Takes messages until none comes for a while.
fn drain(w: &mut World, consumer: ConsumerAt) -> Vec<String> {
    std::iter::from_fn(|| w.receive_within(consumer, Duration::from_secs(2))).map(|m| text(&m)).collect()
}

fn flushed(w: &mut World) {
    w.advance(Duration::from_secs(1));
}

fn unacked(w: &World) -> Vec<String> {
    w.unacked("t", "s")
}

/// Odd members of one batch acknowledged and even ones negatively, then the next batch cumulatively up to index 10; the
/// consumer dies; exactly the others come back.
#[test]
fn pb090_exactly_the_members_that_are_not_acknowledged_come_back() {
    for ordered in [true, false] {
        let mut w = World::new(90);
        let reborn = w.client(w.client_config());
        let config = move |c: &mut ConsumerConfig| {
            c.batch_index_ack = true;
            c.negative_ack_redelivery_delay = Duration::from_secs(3600);
            if !ordered {
                c.subscription_type = SubscriptionType::Shared;
            }
        };
        let producer = w.producer("t", batches_of(50));
        let consumer = w.consumer("t", "s", config);
        w.publish(producer, numbers(0..100));
        let messages = receive(&mut w, consumer, 100);
        for (n, message) in messages.iter().enumerate().take(50) {
            match n % 2 {
                1 => w.ack(consumer, message.message_id()),
                _ => w.nack(consumer, message.message_id()),
            }
        }
        flushed(&mut w);
        let even: Vec<String> = (0..50).step_by(2).map(|n| n.to_string()).collect();
        assert_eq!(unacked(&w), [even.clone(), numbers(50..100)].concat());
        let expected = if ordered {
            // A cumulative acknowledgement also covers everything before it.
            w.ack_cumulative(consumer, messages[60].message_id());
            numbers(61..100)
        } else {
            for message in &messages[50..=60] {
                w.ack(consumer, message.message_id());
            }
            [even, numbers(61..100)].concat()
        };
        flushed(&mut w);
        assert_eq!(unacked(&w), expected);
        w.freeze_client(0);
        w.cut_links();
        let consumer = w.consumer_of(reborn, "t", "s", config);
        assert_eq!(drain(&mut w, consumer), expected);
    }
}

/// With index acknowledgements off: id #3 of a batch of ten is stored as bytes, restored by another process, and acked.
#[test]
fn pb091_a_restored_id_of_a_batch_member_acknowledges_that_member_only() {
    for (index_ack, left) in [(false, numbers(0..10)), (true, [numbers(0..3), numbers(4..10)].concat())] {
        let mut w = World::new(91);
        let other = w.client(w.client_config());
        let producer = w.producer("t", batches_of(10));
        let consumer = w.consumer("t", "s", |c| c.batch_index_ack = index_ack);
        w.publish(producer, numbers(0..10));
        let bytes = receive(&mut w, consumer, 10)[3].message_id().to_bytes();
        w.close_consumer(consumer);

        let restored = MessageId::from_bytes(&bytes).unwrap();
        assert_eq!((restored.batch_index, restored.batch_size), (3, 10));
        let consumer = w.consumer_of(other, "t", "s", |c| c.batch_index_ack = index_ack);
        // Before anything of the batch has come.
        w.ack(consumer, restored);
        flushed(&mut w);
        assert_eq!(unacked(&w), left);
        w.close_consumer(consumer);
        let consumer = w.consumer("t", "s", |c| c.batch_index_ack = index_ack);
        assert_eq!(drain(&mut w, consumer), left);
    }
}

/// Ids that are no messages of this consumer are refused at once, and nothing is written.
#[test]
fn pb093_foreign_and_invalid_ids_are_refused_at_once() {
    let mut w = World::new(93);
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 3).unwrap();
    let producer = w.producer("u", |_| {});
    let elsewhere = w.consumer("u", "s", |_| {});
    w.publish(producer, ["other"]);
    let foreign = w.receive(elsewhere).message_id();
    let consumer = w.consumer("t", "s", |_| {});
    let producer = w.producer("t", |_| {});
    w.publish(producer, numbers(0..30));
    let good = w.receive(consumer).message_id();
    let wrong = [
        MessageId::EARLIEST,
        MessageId::LATEST,
        MessageId::new(0, 0, -1),
        MessageId::new(good.ledger_id, good.entry_id, 3),
        MessageId::new(good.ledger_id, good.entry_id, -1),
        MessageId::new(-1, -1, 0),
        MessageId { entry_id: -1, ..good },
        foreign,
    ];
    let before = w.now();
    for id in wrong {
        assert_eq!(w.try_ack(consumer, id).unwrap_err().kind(), ErrorKind::InvalidMessage, "{id}");
        let error = w.try_ack_cumulative(consumer, id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{id}");
        let error = w.on(consumer, |mut c, now| c.negative_acknowledge(now, &id)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{id}");
    }
    assert_eq!(w.now(), before);
    w.advance(Duration::from_secs(120));
    let acks = w.trace.lines().filter(|line| line.contains(" ACK ")).count();
    assert_eq!(acks, 0, "nothing was written");
}

#[test]
fn pb094_a_cumulative_ack_on_shared_and_key_shared_fails_at_once() {
    for kind in [SubscriptionType::Shared, SubscriptionType::KeyShared] {
        let mut w = World::new(94);
        let producer = w.producer("t", |c| c.batching = Batching::off());
        let consumer = w.consumer("t", "s", |c| c.subscription_type = kind);
        w.publish(producer, numbers(0..5));
        let last = receive(&mut w, consumer, 5)[4].message_id();
        let error = w.try_ack_cumulative(consumer, last).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CumulativeAcknowledgementNotAllowedError);
        assert!(error.to_string().contains("persistent://public/default/t"), "{error}");
        flushed(&mut w);
        assert_eq!(unacked(&w).len(), 5);
        let view = w.broker.subscription("t", "s").unwrap();
        assert_eq!(view.consumers[0].unacked_messages, 5);
    }
}

/// With a group time of 0, a hundred acknowledgements leave at once, members of batches included.
#[test]
fn pb095_without_grouping_acks_leave_at_once() {
    for index_ack in [false, true] {
        let mut w = World::new(95);
        let producer = w.producer("t", batches_of(7));
        let consumer = w.consumer("t", "s", |c| {
            c.ack_group_time = Duration::ZERO;
            c.batch_index_ack = index_ack;
        });
        w.publish(producer, numbers(0..100));
        for message in receive(&mut w, consumer, 100) {
            w.ack(consumer, message.message_id());
        }
        w.advance(Duration::from_millis(5));
        assert_eq!(unacked(&w), [""; 0]);
    }
}

#[test]
fn pb095_acks_on_a_non_persistent_topic_succeed() {
    let mut w = World::new(95);
    let topic = "non-persistent://public/default/t";
    let consumer = w.consumer(topic, "s", |c| c.ack_group_time = Duration::ZERO);
    let producer = w.producer(topic, |_| {});
    for n in 0..10 {
        w.publish(producer, [n.to_string()]);
        let message = w.receive(consumer);
        assert_eq!(text(&message), n.to_string());
        w.ack(consumer, message.message_id());
        w.ack_cumulative(consumer, message.message_id());
        w.nack(consumer, message.message_id());
    }
    w.close_client(0);
}

/// The part that needs no acknowledgement timeout: messages wait before SUBSCRIBE, and the first thing done with each is
/// to acknowledge it.
#[test]
fn pb097_an_ack_as_the_first_thing_done_with_a_message_counts() {
    let mut w = World::new(97);
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 4).unwrap();
    let producer = w.producer("t", batches_of(5));
    w.publish(producer, numbers(0..200));
    let consumer = w.consumer("t", "s", |c| c.subscription_type = SubscriptionType::Shared);
    for _ in 0..200 {
        let message = w.receive(consumer);
        w.ack(consumer, message.message_id());
    }
    assert!(w.receive_within(consumer, Duration::from_secs(60)).is_none());
    for partition in 0..4 {
        assert!(w.unacked(&format!("t-partition-{partition}"), "s").is_empty());
    }
}

/// With index acknowledgements off, the entry is acknowledged exactly when its last member is, in whatever order.
#[test]
fn pb234_an_entry_is_acknowledged_exactly_when_its_last_member_is() {
    for seed in 0..30 {
        let mut w = World::new(seed);
        let producer = w.producer("t", batches_of(10));
        let consumer = w.consumer("t", "s", |c| {
            c.ack_group_time = Duration::from_millis(w_time(seed));
            if seed % 2 == 0 {
                c.subscription_type = SubscriptionType::Shared;
            }
        });
        w.publish(producer, numbers(0..30));
        let mut messages = receive(&mut w, consumer, 30);
        match seed % 3 {
            0 => {}
            1 => messages.reverse(),
            _ => {
                let mut rng = w.rng.fork();
                rng.shuffle(&mut messages);
            }
        }
        let mut open = [10; 3];
        for message in messages {
            let id = message.message_id();
            let batch = text(&message).parse::<usize>().unwrap() / 10;
            w.ack(consumer, id);
            // Twice is as good as once.
            w.ack(consumer, id);
            open[batch] -= 1;
            if w.rng.bool() {
                flushed(&mut w);
                let backlog = w.broker.subscription("t", "s").unwrap().backlog_entries;
                assert_eq!(backlog, open.iter().filter(|left| **left > 0).count() as u64, "seed {seed}");
            }
        }
        flushed(&mut w);
        assert_eq!(unacked(&w), [""; 0]);
        w.close_consumer(consumer);
        let consumer = w.consumer("t", "s", |_| {});
        assert_eq!(drain(&mut w, consumer), [""; 0]);
    }
}

fn w_time(seed: u64) -> u64 {
    [0, 100, 700][(seed / 3 % 3) as usize]
}

/// The link takes nothing for two seconds while thousands are acknowledged and redelivered ones arrive.
#[test]
fn pb235_receiving_goes_on_while_acks_cannot_be_written() {
    let mut w = World::new(235);
    let backup = w.client(w.client_config());
    let config = |c: &mut ConsumerConfig| {
        c.subscription_type = SubscriptionType::Shared;
        c.receiver_queue_size = 4000;
    };
    let producer = w.producer_of(backup, "t", |_| {});
    let consumer = w.consumer("t", "s", config);
    w.publish(producer, numbers(0..1000));
    let first = receive(&mut w, consumer, 1000);
    let link = w.links_of_client(0)[0];
    w.network.hold(link, Direction::Up, true);
    let start = w.elapsed();
    for n in 0..10 {
        w.publish(producer, numbers(1000 + n * 200..1200 + n * 200));
        for message in &first[n * 100..(n + 1) * 100] {
            w.ack(consumer, message.message_id());
        }
        let got = receive(&mut w, consumer, 200);
        assert_eq!(text(&got[0]), (1000 + n * 200).to_string());
        for message in got {
            w.ack(consumer, message.message_id());
        }
    }
    assert!(w.elapsed() - start < Duration::from_secs(2), "nothing waited for the link");
    w.advance(Duration::from_secs(2));
    assert_eq!(w.unacked("t", "s").len(), 3000, "and nothing could be told");
    w.network.hold(link, Direction::Up, false);
    flushed(&mut w);
    assert_eq!(unacked(&w), [""; 0]);
    assert!(w.try_receive(consumer).is_none());
}

#[test]
fn the_broker_hears_of_single_members_only_when_asked_to_and_able_to() {
    for (client, broker, left) in
        [(true, true, numbers(5..10)), (true, false, numbers(0..10)), (false, true, numbers(0..10))]
    {
        let mut w = World::configured(1, |s: &mut Setup| s.cluster.batch_index_acks = broker);
        let producer = w.producer("t", batches_of(10));
        let config = |c: &mut ConsumerConfig| {
            c.subscription_type = SubscriptionType::Shared;
            c.batch_index_ack = client;
        };
        let consumer = w.consumer("t", "s", config);
        w.publish(producer, numbers(0..10));
        for message in &receive(&mut w, consumer, 10)[..5] {
            w.ack(consumer, message.message_id());
        }
        flushed(&mut w);
        assert_eq!(unacked(&w), left);
        w.cut_links();
        let again = receive(&mut w, consumer, left.len());
        assert_eq!(again.iter().map(text).collect::<Vec<_>>(), left);
        for message in again {
            w.ack(consumer, message.message_id());
        }
        flushed(&mut w);
        assert_eq!(unacked(&w), [""; 0], "client {client}, broker {broker}");
    }
}

#[test]
fn acks_that_wait_are_told_by_a_close_and_by_the_end_of_the_client() {
    for ending in 0..3 {
        let mut w = World::new(2);
        let producer = w.producer("t", |c| c.batching = Batching::off());
        let consumer = w.consumer("t", "s", |c| c.ack_group_time = Duration::from_secs(3600));
        w.publish(producer, numbers(0..5));
        let messages = receive(&mut w, consumer, 5);
        for message in &messages[1..3] {
            w.ack(consumer, message.message_id());
        }
        if ending == 1 {
            w.ack_cumulative(consumer, messages[3].message_id());
        }
        match ending {
            0 | 1 => w.close_consumer(consumer),
            _ => w.close_client(0),
        }
        assert_eq!(unacked(&w), if ending == 1 { vec!["4"] } else { vec!["0", "3", "4"] });
    }
}

/// Up to the middle of a batch: the entry before it is told, or the members themselves; never one that was not covered.
#[test]
fn a_cumulative_ack_in_the_middle_of_a_batch_covers_what_is_before_it() {
    for index_ack in [false, true] {
        let mut w = World::new(3);
        let producer = w.producer("t", batches_of(10));
        let consumer = w.consumer("t", "s", |c| c.batch_index_ack = index_ack);
        w.publish(producer, numbers(0..20));
        let messages = receive(&mut w, consumer, 20);
        for (upto, told) in [(3, 0), (12, 10), (14, 10), (13, 10), (18, 10), (19, 20)] {
            w.ack_cumulative(consumer, messages[upto].message_id());
            flushed(&mut w);
            let told = if index_ack { upto.max(if upto == 13 { 14 } else { 0 }) + 1 } else { told };
            assert_eq!(unacked(&w), numbers(told..20), "up to {upto}, index acks {index_ack}");
        }
    }
}

/// The topic moved between two batches, so that the second one begins a ledger: what is before it is covered all the same.
#[test]
fn a_cumulative_ack_in_the_first_batch_of_a_ledger_covers_the_ledger_before() {
    let mut w = World::new(4);
    let producer = w.producer("t", batches_of(5));
    let consumer = w.consumer("t", "s", |_| {});
    w.publish(producer, numbers(0..5));
    let now = w.now();
    w.broker.unload_topic(now, "t").unwrap();
    w.advance(Duration::from_secs(2));
    w.publish(producer, numbers(5..10));
    let messages = receive(&mut w, consumer, 10);
    let last = messages[7].message_id();
    assert_eq!((last.entry_id, text(&messages[7])), (0, "7".to_owned()));
    w.ack_cumulative(consumer, last);
    flushed(&mut w);
    assert_eq!(unacked(&w), numbers(5..10));
}

/// The batch comes again while a cumulative acknowledgement up to its middle is gathered: it must not grow to the batch.
#[test]
fn a_cumulative_ack_that_waits_covers_no_more_when_its_batch_comes_again() {
    let mut w = World::new(5);
    let second = w.client(w.client_config());
    let in_line = |place| {
        move |c: &mut ConsumerConfig| {
            c.subscription_type = SubscriptionType::Failover;
            c.priority_level = place;
            c.batch_index_ack = true;
            c.ack_group_time = Duration::from_secs(10);
        }
    };
    let producer = w.producer("t", batches_of(10));
    let b = w.consumer("t", "s", in_line(1));
    w.publish(producer, numbers(0..10));
    let messages = receive(&mut w, b, 10);
    w.ack_cumulative(b, messages[3].message_id());
    // One that goes before it comes and goes; the batch is delivered again.
    let a = w.consumer_of(second, "t", "s", in_line(0));
    w.advance(Duration::from_secs(1));
    w.close_consumer(a);
    assert_eq!(w.receive_texts(b, 10), numbers(0..10));
    w.advance(Duration::from_secs(20));
    let left = unacked(&w);
    assert!(left == numbers(4..10) || left == numbers(0..10), "{left:?}");
}

#[test]
fn acks_of_messages_from_before_a_reconnection_count() {
    for index_ack in [false, true] {
        let mut w = World::new(6);
        let producer = w.producer("t", batches_of(4));
        let consumer = w.consumer("t", "s", |c| c.batch_index_ack = index_ack);
        w.publish(producer, numbers(0..12));
        let old = receive(&mut w, consumer, 12);
        w.ack(consumer, old[0].message_id());
        w.cut_links();
        // While there is no connection, and after there is one again.
        for message in &old[1..5] {
            w.ack(consumer, message.message_id());
        }
        w.advance(Duration::from_secs(3));
        for message in &old[5..11] {
            w.ack(consumer, message.message_id());
        }
        flushed(&mut w);
        let left = unacked(&w);
        match index_ack {
            true => assert_eq!(left, ["11"]),
            // What was known of the second batch is forgotten with its delivery, which comes again.
            false => assert_eq!(left, numbers(4..12)),
        }
        let again = drain(&mut w, consumer);
        assert!(left.iter().all(|text| again.contains(text)), "{again:?}");
    }
}

#[test]
fn a_corrupt_message_takes_no_other_one_with_it() {
    let mut w = World::new(7);
    let producer = w.producer("t", |c| c.batching = Batching::off());
    let consumer = w.consumer("t", "s", |c| c.initial_position = InitialPosition::Earliest);
    w.broker.inject(Fault::new(FaultKind::CorruptMessage).after(2));
    w.publish(producer, numbers(0..5));
    let mut seen = drain(&mut w, consumer);
    seen.retain(|text| text != "2");
    seen.dedup();
    assert!(
        seen.ends_with(&["3".to_owned(), "4".to_owned()]) && seen.starts_with(&numbers(0..2)),
        "{seen:?}"
    );
    flushed(&mut w);
    let mut left = unacked(&w);
    left.retain(|text| text != "2");
    assert_eq!(left, ["0", "1", "3", "4"]);
}
