//! Scenarios of seeks.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind, Request};
use geminga_core::wire::proto::ServerError;
use geminga_core::{Batching, ErrorKind, Message, MessageId, Position, SubscriptionType};
use geminga_tests::world::{ConsumerAt, World, text};

/// 100 messages, 10 read, a seek to number 50: the next message is never an older one.
#[test]
fn pb113_the_first_message_after_a_seek_is_not_an_old_one() {
    for seed in 0..200 {
        let mut w = World::new(seed);
        let producer = w.producer("t", |c| {
            if seed % 2 == 0 {
                c.batching = Batching::off();
            }
        });
        let sent: Vec<_> = (0..100).map(|n| w.send(producer, format!("{n}"))).collect();
        let ids: Vec<MessageId> = sent.into_iter().map(|s| w.expect_published(s)).collect();
        let inclusive = seed % 4 < 2;
        let consumer = w.consumer("t", "s", |c| {
            c.receiver_queue_size = 1000;
            c.start_message_id_inclusive = inclusive;
        });
        for round in 0..5 {
            for _ in 0..10 {
                w.receive(consumer);
            }
            // A receive is pending while the seek runs.
            let seek = w.start_seek(consumer, Position::Id(ids[50]));
            let message = w.receive(consumer);
            w.complete(seek).unwrap();
            let first = if inclusive { "50" } else { "51" };
            assert_eq!(text(&message), first, "seed {seed}, round {round}");
        }
    }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn unbatched(c: &mut geminga_core::ProducerConfig) {
    c.batching = Batching::off();
}

/// Takes messages until none comes for a while.
fn drain(w: &mut World, consumer: ConsumerAt) -> Vec<Message> {
    std::iter::from_fn(|| w.receive_within(consumer, Duration::from_secs(2))).collect()
}

fn drain_texts(w: &mut World, consumer: ConsumerAt) -> Vec<String> {
    drain(w, consumer).iter().map(text).collect()
}

/// Four partitions, full queues, a seek to a time: nothing older comes afterwards.
#[test]
fn pb114_a_seek_by_time_of_all_partitions_hands_out_nothing_older() {
    for seed in 0..20 {
        let mut w = World::with_brokers(seed, 2);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", 4).unwrap();
        let producer = w.producer("t", |c| c.batching.max_messages = 3);
        w.publish(producer, numbers(0..60));
        w.advance(Duration::from_secs(5));
        let time = w.now().unix_ms;
        w.publish(producer, numbers(60..120));
        let consumer = w.consumer("t", "s", |c| {
            c.receiver_queue_size = 20;
            c.max_total_receiver_queue_size = 40;
        });
        w.receive_texts(consumer, 7);
        w.advance(Duration::from_secs(1));
        let seek = w.start_seek(consumer, Position::PublishTime(time));
        // One that waits while the seek runs.
        let first = w.receive(consumer);
        w.complete(seek).unwrap();
        let mut seen = vec![first];
        seen.extend(drain(&mut w, consumer));
        assert!(seen.iter().all(|m| m.publish_time() >= time), "seed {seed}");
        let mut numbers_seen: Vec<usize> = seen.iter().map(|m| text(m).parse().unwrap()).collect();
        numbers_seen.sort_unstable();
        assert_eq!(numbers_seen, (60..120).collect::<Vec<_>>(), "seed {seed}");
        // And one partition by an id of it: the others stay where they are.
        let back = seen[0].message_id();
        w.seek(consumer, Position::Id(back));
        let again = drain(&mut w, consumer);
        assert!(again.iter().all(|m| m.message_id().partition == back.partition && m.message_id() > back));
    }
}

/// The broker refuses, or closes the consumer before it answers; two seeks at once.
#[test]
fn pb116_a_refused_seek_is_an_error_and_changes_nothing() {
    let mut w = World::new(116);
    let producer = w.producer("t", unbatched);
    let consumer = w.consumer("t", "s", |_| {});
    let ids = w.publish(producer, numbers(0..10));
    assert_eq!(w.receive_texts(consumer, 3), numbers(0..3));
    let refusal = FaultKind::Refuse(Request::Seek, ServerError::MetadataError, "not now".to_owned());
    w.broker.inject(Fault::new(refusal));
    let seek = w.start_seek(consumer, Position::Id(ids[8]));
    let error = w.complete(seek).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokerMetadataError);
    assert!(error.to_string().contains("persistent://public/default/t"), "{error}");
    assert_eq!(w.on(consumer, |c, _| c.queued_messages()), 7, "the queue is as it was");
    assert_eq!(w.receive_texts(consumer, 2), numbers(3..5));

    let first = w.start_seek(consumer, Position::Id(ids[6]));
    let second = w.start_seek(consumer, Position::Earliest);
    assert_eq!(w.complete(second).unwrap_err().kind(), ErrorKind::NotAllowedError);
    w.complete(first).unwrap();
    assert_eq!(drain_texts(&mut w, consumer), numbers(7..10));
}

#[test]
fn pb116_a_seek_whose_consumer_is_closed_before_the_answer_ends_well_or_says_why() {
    for fault in [FaultKind::Cut(Request::Seek), FaultKind::CutAfter(Request::Seek)] {
        for seed in 0..20 {
            let mut w = World::new(seed);
            let producer = w.producer("t", unbatched);
            let consumer = w.consumer("t", "s", |_| {});
            let ids = w.publish(producer, numbers(0..10));
            w.receive_texts(consumer, 3);
            w.broker.inject(Fault::new(fault.clone()));
            w.seek(consumer, Position::Id(ids[7]));
            assert_eq!(drain_texts(&mut w, consumer), numbers(8..10), "{fault:?}");
        }
    }
    // Never answered: an error at the operation timeout, and reading goes on.
    let mut w = World::configured(1, |s| s.client.operation_timeout = Duration::from_secs(5));
    let producer = w.producer("t", unbatched);
    let consumer = w.consumer("t", "s", |_| {});
    let ids = w.publish(producer, numbers(0..10));
    w.receive_texts(consumer, 3);
    w.broker.inject(Fault::new(FaultKind::Ignore(Request::Seek)));
    let start = w.elapsed();
    let seek = w.start_seek(consumer, Position::Id(ids[7]));
    assert_eq!(w.complete(seek).unwrap_err().kind(), ErrorKind::Timeout);
    assert!(w.elapsed() - start <= Duration::from_secs(5));
    assert_eq!(drain_texts(&mut w, consumer), numbers(3..10));
    w.seek(consumer, Position::Id(ids[7]));
    assert_eq!(drain_texts(&mut w, consumer), numbers(8..10));
}

/// A reader acknowledges by itself; gathered acknowledgements and permits of before must not move the cursor afterwards.
#[test]
fn pb118_acks_from_before_a_seek_do_not_move_the_cursor_after_it() {
    for seed in 0..30 {
        let mut w = World::new(seed);
        let batch = w.rng.usize(1..20);
        let producer = w.producer("t", |c| c.batching.max_messages = batch);
        w.publish(producer, numbers(0..500));
        let reads = seed % 2 == 0;
        let reader = match reads {
            true => w.reader("t", Position::Earliest, |c| c.receiver_queue_size = 100),
            false => w.consumer("t", "s", |c| c.receiver_queue_size = 100),
        };
        let count = w.rng.usize(1..500);
        let messages: Vec<_> = (0..count).map(|_| w.receive(reader)).collect();
        if !reads {
            w.ack_cumulative(reader, messages[count - 1].message_id());
        }
        let seek = w.start_seek(reader, Position::Earliest);
        if !reads {
            // While the seek runs: of before, so it is void.
            for message in &messages {
                w.ack(reader, message.message_id());
                let wait = w.rng.u64(0..3);
                w.advance(Duration::from_micros(wait));
                if w.book.completed(seek).is_some() {
                    break;
                }
            }
        }
        w.complete(seek).unwrap();
        let seen = drain_texts(&mut w, reader);
        if reads {
            assert_eq!(seen, numbers(0..500), "seed {seed}");
        } else {
            assert_eq!(seen.len(), 500, "seed {seed}");
        }
    }
}

/// Milliseconds since 1970, before the first message, at one, between and behind the last.
#[test]
fn pb119_times_are_milliseconds_since_1970() {
    let mut w = World::new(119);
    let producer = w.producer("t", unbatched);
    let mut at = Vec::new();
    for n in 0..5 {
        w.advance(Duration::from_secs(10));
        at.push(w.now().unix_ms);
        w.publish(producer, [geminga_core::OutgoingMessage::new(n.to_string()).with_event_time(12_345 + n)]);
    }
    let consumer = w.consumer("t", "s", |_| {});
    for (n, message) in drain(&mut w, consumer).iter().enumerate() {
        assert!((at[n]..=at[n] + 5).contains(&message.publish_time()), "{}", message.publish_time());
        assert_eq!(message.event_time(), Some(12_345 + n as u64));
    }
    let rows = [
        (0, 0),
        (at[0] - 1, 0),
        (at[0], 0),
        (at[0] + 5000, 1),
        (at[2], 2),
        (at[2] + 5000, 3),
        (at[4] + 1000, 5),
        (at[4] + 3_600_000, 5),
    ];
    for (time, first) in rows {
        w.seek(consumer, Position::PublishTime(time));
        assert_eq!(drain_texts(&mut w, consumer), numbers(first..5), "to {time}");
    }
}

#[test]
fn a_seek_finds_every_position() {
    for batch in [1, 5] {
        for inclusive in [false, true] {
            let behind = usize::from(!inclusive);
            let mut w = World::new(1);
            let producer = w.producer("t", |c| c.batching.max_messages = batch);
            let ids = w.publish(producer, numbers(0..20));
            let consumer = w.consumer("t", "s", |c| c.start_message_id_inclusive = inclusive);
            for (to, first) in [
                (Position::Id(ids[13]), 13 + behind),
                (Position::Id(ids[0]), behind),
                (Position::Id(ids[5]), 5 + behind),
                (Position::Id(ids[19]), 19 + behind),
                (Position::Earliest, 0),
                (Position::Id(MessageId::EARLIEST), 0),
                (Position::PublishTime(0), 0),
                (Position::Id(ids[9]), 9 + behind),
            ] {
                w.seek(consumer, to);
                let messages = drain(&mut w, consumer);
                let texts: Vec<_> = messages.iter().map(text).collect();
                assert_eq!(texts, numbers(first..20), "{to:?}, inclusive {inclusive}, batches of {batch}");
            }
            w.seek(consumer, Position::Latest);
            assert!(w.receive_within(consumer, Duration::from_secs(1)).is_none());
            w.publish(producer, ["20"]);
            assert_eq!(drain_texts(&mut w, consumer), ["20"]);
        }
    }
}

/// What the seek left out is done: the backlog drains when the rest is acknowledged.
#[test]
fn after_a_seek_into_a_batch_acknowledging_the_rest_empties_the_backlog() {
    for inclusive in [false, true] {
        for index_ack in [false, true] {
            let mut w = World::new(2);
            let producer = w.producer("t", |c| c.batching.max_messages = 10);
            let ids = w.publish(producer, numbers(0..20));
            let consumer = w.consumer("t", "s", |c| {
                c.start_message_id_inclusive = inclusive;
                c.batch_index_ack = index_ack;
                c.subscription_type = SubscriptionType::Shared;
            });
            w.seek(consumer, Position::Id(ids[4]));
            let first = if inclusive { 4 } else { 5 };
            for n in first..20 {
                let message = w.receive(consumer);
                assert_eq!(text(&message), n.to_string());
                w.ack(consumer, message.message_id());
            }
            w.advance(Duration::from_secs(1));
            assert_eq!(w.unacked("t", "s"), [""; 0], "inclusive {inclusive}, index acks {index_ack}");
        }
    }
}

/// Members left out by a seek stay left out when the rest of their batch is delivered again.
#[test]
fn what_a_seek_left_out_does_not_come_with_a_redelivery() {
    for ending in 0..3 {
        let mut w = World::new(3);
        let producer = w.producer("t", |c| c.batching.max_messages = 10);
        let ids = w.publish(producer, numbers(0..20));
        let consumer = w.consumer("t", "s", |_| {});
        w.seek(consumer, Position::Id(ids[4]));
        assert_eq!(w.receive_texts(consumer, 3), numbers(5..8));
        match ending {
            0 => w.cut_links(),
            1 => w.on(consumer, |mut c, now| c.redeliver_unacknowledged(now)),
            _ => w.restart_broker(0),
        }
        w.advance(Duration::from_secs(3));
        assert_eq!(drain_texts(&mut w, consumer), numbers(5..20));
    }
}

#[test]
fn a_seek_while_disconnected_is_done_after_the_reconnection() {
    for seed in 0..20 {
        let mut w = World::new(seed);
        let producer = w.producer("t", unbatched);
        let consumer = w.consumer("t", "s", |_| {});
        let ids = w.publish(producer, numbers(0..10));
        w.receive_texts(consumer, 5);
        w.stop_broker(0);
        w.advance(Duration::from_secs(1));
        assert!(!w.on(consumer, |c, _| c.is_connected()));
        let to = if seed % 2 == 0 { Position::Id(ids[2]) } else { Position::Earliest };
        let seek = w.start_seek(consumer, to);
        assert!(w.try_receive(consumer).is_none(), "nothing of before is handed out any more");
        w.advance(Duration::from_secs(3));
        assert!(w.book.completed(seek).is_none());
        w.start_broker(0);
        w.complete(seek).unwrap();
        let first = if seed % 2 == 0 { 3 } else { 0 };
        assert_eq!(drain_texts(&mut w, consumer), numbers(first..10));
    }
}

/// Links are cut and topics unloaded at every moment of a seek, of consumers and readers.
#[test]
fn a_seek_that_is_disturbed_arrives_all_the_same() {
    for seed in 0..120 {
        let mut w = World::with_brokers(seed, 2);
        let batch = w.rng.usize(1..8);
        let producer = w.producer("t", |c| c.batching.max_messages = batch);
        let mut ids = w.publish(producer, numbers(0..20));
        w.advance(Duration::from_secs(5));
        let time = w.now().unix_ms;
        ids.extend(w.publish(producer, numbers(20..40)));
        let consumer = match seed % 2 {
            0 => w.reader("t", Position::Earliest, |_| {}),
            _ => w.consumer("t", "s", |_| {}),
        };
        w.receive_texts(consumer, 30);
        let (to, first) = match seed % 4 {
            0 | 1 => (Position::PublishTime(time), 20),
            _ => (Position::Id(ids[11]), 12),
        };
        let seek = w.start_seek(consumer, to);
        for _ in 0..2 {
            let wait = w.rng.u64(0..120_000);
            w.advance(Duration::from_micros(wait));
            let now = w.now();
            match w.rng.u8(0..3) {
                0 => w.cut_links(),
                // An unload between the answer to SEEK and the next SUBSCRIBE forgets a reader's place, and no client learns
                // of it; a place by id is asked for anew, one by time is not.
                1 if seed % 4 != 0 => w.broker.unload_topic(now, "t").unwrap(),
                _ => w.restart_broker(0),
            }
        }
        w.complete(seek).unwrap();
        let seen = drain_texts(&mut w, consumer);
        assert_eq!(seen[..40 - first], numbers(first..40), "seed {seed}, to {to:?}");
        if seen.len() > 40 - first {
            // The link was cut once more behind it: a consumer, which has not acknowledged, gets the same again.
            assert_eq!(
                (seed % 2, &seen[40 - first..]),
                (1, &numbers(first..40)[..]),
                "seed {seed}, to {to:?}"
            );
        }
    }
}

#[test]
fn a_seek_of_one_consumer_of_a_shared_subscription_moves_all() {
    let mut w = World::new(5);
    let producer = w.producer("t", unbatched);
    w.publish(producer, numbers(0..20));
    let shared = |c: &mut geminga_core::ConsumerConfig| c.subscription_type = SubscriptionType::Shared;
    let consumers = [w.consumer("t", "s", shared), w.consumer("t", "s", shared)];
    for consumer in consumers {
        for message in drain(&mut w, consumer) {
            w.ack(consumer, message.message_id());
        }
    }
    w.advance(Duration::from_secs(1));
    assert_eq!(w.unacked("t", "s"), [""; 0]);
    w.seek(consumers[0], Position::Earliest);
    w.advance(Duration::from_secs(2));
    let mut seen = drain_texts(&mut w, consumers[0]);
    seen.extend(drain_texts(&mut w, consumers[1]));
    seen.sort_by_key(|n| n.parse::<usize>().unwrap());
    assert_eq!(seen, numbers(0..20));
}
