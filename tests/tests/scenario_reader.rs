//! Scenarios of readers: where they start, where they go on, and whether there is more.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind, Request};
use geminga_core::wire::proto::ServerError;
use geminga_core::{Batching, ErrorKind, MessageId, OutgoingMessage, Position, ProducerConfig, ReaderConfig};
use geminga_tests::world::{At, ConsumerAt, World, text};

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn batches_of(n: usize) -> impl FnOnce(&mut ProducerConfig) {
    move |c| c.batching.max_messages = n
}

fn inclusive(yes: bool) -> impl Fn(&mut ReaderConfig) + Copy {
    move |c| c.start_message_id_inclusive = yes
}

/// Takes messages until none comes for a while.
fn drain(w: &mut World, reader: ConsumerAt) -> Vec<String> {
    std::iter::from_fn(|| w.receive_within(reader, Duration::from_secs(2))).map(|m| text(&m)).collect()
}

/// Reads as a program does that wants everything there is and then ends.
fn read_to_end(w: &mut World, reader: ConsumerAt) -> Vec<String> {
    let mut out = Vec::new();
    while w.has_message_available(reader) {
        out.push(text(&w.receive(reader)));
        assert!(out.len() < 10_000, "it never ends");
    }
    out
}

/// Thirty messages, a seek an hour past the end: nothing is there until something is published.
#[test]
fn pb120_nothing_is_available_after_a_seek_past_the_end() {
    for batch in [1, 10] {
        for yes in [false, true] {
            let mut w = World::new(120);
            let producer = w.producer("t", batches_of(batch));
            w.publish(producer, numbers(0..30));
            let reader = w.reader("t", Position::Earliest, inclusive(yes));
            w.receive(reader);
            let later = w.now().unix_ms + 3_600_000;
            w.seek(reader, Position::PublishTime(later));
            assert!(!w.has_message_available(reader));
            w.publish(producer, ["30"]);
            assert!(w.has_message_available(reader));
            assert_eq!(read_to_end(&mut w, reader), ["30"]);
        }
    }
}

/// Ten messages, a seek to the latest: never a stale yes, also after a reconnection.
#[test]
fn pb122_after_a_seek_to_the_latest_nothing_is_available_until_a_publish() {
    for batch in [1, 10] {
        let mut w = World::new(122);
        let producer = w.producer("t", batches_of(batch));
        w.publish(producer, numbers(0..10));
        let reader = w.reader("t", Position::Earliest, |_| {});
        w.receive(reader);
        assert!(w.has_message_available(reader));
        w.seek(reader, Position::Latest);
        for round in 0..3 {
            for _ in 0..100 {
                assert!(!w.has_message_available(reader), "round {round}");
            }
            match round {
                0 => w.cut_links(),
                1 => w.restart_broker(0),
                _ => {}
            }
        }
        w.publish(producer, ["10"]);
        assert!(w.has_message_available(reader));
        assert_eq!(read_to_end(&mut w, reader), ["10"]);
    }
}

/// Latest with the inclusive flag: the very last message, and on an empty topic none until the first.
#[test]
fn pb123_a_reader_at_the_latest_message_inclusive_reads_the_very_last_one() {
    for (batch, before, expected) in [(1, 0, None), (1, 1, Some("0")), (5, 5, Some("4")), (5, 12, Some("11"))]
    {
        for seek in [false, true] {
            let mut w = World::new(123);
            let producer = w.producer("t", batches_of(batch));
            w.publish(producer, numbers(0..before));
            let start = if seek { Position::Earliest } else { Position::Latest };
            let reader = w.reader("t", start, inclusive(true));
            if seek {
                w.seek(reader, Position::Latest);
            }
            assert_eq!(w.has_message_available(reader), expected.is_some(), "{before} messages, {seek}");
            assert_eq!(read_to_end(&mut w, reader), expected.into_iter().collect::<Vec<_>>());
            assert!(!w.has_message_available(reader));
            w.publish(producer, ["next"]);
            assert_eq!(read_to_end(&mut w, reader), ["next"]);
        }
    }
}

/// A batch of ten, started at index 4: the first message is 4 or 5 exactly, and no message comes twice after a
/// reconnection in the middle of the batch.
#[test]
fn pb124_a_reader_that_starts_inside_a_batch_begins_with_the_right_member() {
    for (yes, first) in [(true, 4), (false, 5)] {
        for taken in [0, 1, 3] {
            for restart in [false, true] {
                let mut w = World::new(124);
                let producer = w.producer("t", batches_of(10));
                let ids = w.publish(producer, numbers(0..20));
                let reader = w.reader("t", Position::Id(ids[4]), inclusive(yes));
                assert_eq!(w.receive_texts(reader, taken), numbers(first..first + taken));
                match restart {
                    true => w.restart_broker(0),
                    false => w.cut_links(),
                }
                w.advance(Duration::from_secs(3));
                assert_eq!(drain(&mut w, reader), numbers(first + taken..20));
            }
        }
    }
}

/// The last id is refused, never answered, and its link is closed: an error in time, and no busy loop.
#[test]
fn pb125_whether_there_is_more_ends_with_an_error_in_time() {
    for trouble in 0..3 {
        let mut w = World::configured(125, |s| s.client.operation_timeout = Duration::from_secs(5));
        let producer = w.producer("t", |_| {});
        let reader = w.reader("t", Position::Earliest, |_| {});
        w.advance(Duration::from_secs(1));
        let fault = match trouble {
            0 => {
                FaultKind::Refuse(Request::GetLastMessageId, ServerError::MetadataError, "not now".to_owned())
            }
            1 => FaultKind::Ignore(Request::GetLastMessageId),
            _ => FaultKind::Cut(Request::GetLastMessageId),
        };
        w.broker.inject(Fault::new(fault).times(u32::MAX));
        let (start, steps) = (w.elapsed(), w.steps());
        let id = w.on(reader, |mut c, now| c.has_message_available(now));
        let error = w.complete(At { client: 0, id }).unwrap_err();
        let expected = if trouble == 0 { ErrorKind::BrokerMetadataError } else { ErrorKind::Timeout };
        assert_eq!(error.kind(), expected);
        assert!(w.elapsed() - start <= Duration::from_secs(5));
        assert!(w.steps() - steps < 1000, "{} steps", w.steps() - steps);
        w.broker.clear_faults();
        w.publish(producer, ["a"]);
        w.advance(Duration::from_secs(60));
        assert!(w.has_message_available(reader));
        assert_eq!(read_to_end(&mut w, reader), ["a"]);
    }
}

/// A null value as the last message is delivered, marked as null, and the loop ends.
#[test]
fn pb126_null_values_are_delivered_and_the_loop_ends() {
    for batching in [Batching::default(), Batching::off()] {
        for compacted in [false, true] {
            let mut w = World::new(126);
            let producer = w.producer("t", |c| c.batching = batching);
            let keyed = |key: &str| OutgoingMessage::new("v").with_key(key);
            w.publish(
                producer,
                [keyed("k1"), OutgoingMessage::null("k1"), keyed("k2"), OutgoingMessage::null("k2")],
            );
            let reader = w.reader("t", Position::Earliest, |c| c.read_compacted = compacted);
            let mut seen = Vec::new();
            while w.has_message_available(reader) {
                let message = w.receive(reader);
                seen.push((message.key().unwrap().into_owned(), message.is_null()));
            }
            let expected = [("k1", false), ("k1", true), ("k2", false), ("k2", true)];
            assert_eq!(seen, expected.map(|(key, null)| (key.to_owned(), null)));
        }
    }
}

/// Every start, batched and not, inclusive and not.
#[test]
fn a_reader_begins_where_it_was_told_to() {
    for batch in [1, 5] {
        for yes in [false, true] {
            let behind = usize::from(!yes);
            let mut w = World::new(1);
            let producer = w.producer("t", batches_of(batch));
            let mut ids = w.publish(producer, numbers(0..10));
            w.advance(Duration::from_secs(10));
            let between = w.now().unix_ms;
            w.advance(Duration::from_secs(10));
            ids.extend(w.publish(producer, numbers(10..20)));
            let rows = [
                (Position::Earliest, 0),
                (Position::Id(MessageId::EARLIEST), 0),
                (Position::Latest, if yes { 19 } else { 20 }),
                (Position::Id(MessageId::LATEST), if yes { 19 } else { 20 }),
                (Position::Id(ids[0]), behind),
                (Position::Id(ids[7]), 7 + behind),
                (Position::Id(ids[9]), 9 + behind),
                (Position::Id(ids[10]), 10 + behind),
                (Position::Id(ids[19]), 19 + behind),
                (Position::PublishTime(0), 0),
                (Position::PublishTime(between), 10),
                (Position::PublishTime(w.now().unix_ms + 1), 20),
            ];
            for (start, first) in rows {
                let reader = w.reader("t", start, inclusive(yes));
                let more = w.has_message_available(reader);
                assert_eq!(more, first < 20, "{start:?}, inclusive {yes}, batches of {batch}");
                let read = read_to_end(&mut w, reader);
                assert_eq!(read, numbers(first..20), "{start:?}, inclusive {yes}, batches of {batch}");
                assert!(w.receive_within(reader, Duration::from_secs(1)).is_none());
                w.close_consumer(reader);
            }
        }
    }
}

/// The id of an entry, as programs have it that know nothing of batches: all of the batch comes.
#[test]
fn a_start_at_an_entry_without_index_delivers_its_whole_batch() {
    let mut w = World::new(2);
    let producer = w.producer("t", batches_of(5));
    let ids = w.publish(producer, numbers(0..10));
    for yes in [false, true] {
        let reader = w.reader("t", Position::Id(ids[7].entry()), inclusive(yes));
        assert_eq!(read_to_end(&mut w, reader), numbers(5..10));
    }
}

#[test]
fn whether_there_is_more_on_an_empty_topic_and_after_each_message() {
    for start in [Position::Earliest, Position::Latest, Position::PublishTime(0)] {
        for yes in [false, true] {
            for batch in [1, 3] {
                let mut w = World::new(3);
                let producer = w.producer("t", batches_of(batch));
                let reader = w.reader("t", start, inclusive(yes));
                assert!(!w.has_message_available(reader), "{start:?}");
                for round in 0..3 {
                    w.publish(producer, (0..batch).map(|n| format!("{round}/{n}")));
                    for n in 0..batch {
                        assert!(w.has_message_available(reader), "{start:?}, inclusive {yes}");
                        assert_eq!(text(&w.receive(reader)), format!("{round}/{n}"));
                    }
                    assert!(!w.has_message_available(reader), "{start:?}, inclusive {yes}");
                }
            }
        }
    }
}

/// A cut before, in and behind a batch, again and again: each message once, in order.
#[test]
fn a_reader_goes_on_in_the_middle_of_a_batch_after_each_reconnection() {
    for seed in 0..40 {
        let mut w = World::configured(seed, |s| s.cluster.broker_entry_metadata = seed % 2 == 0);
        let batch = w.rng.usize(1..12);
        let producer = w.producer("t", batches_of(batch));
        w.publish(producer, numbers(0..200));
        let reader = w.reader("t", Position::Earliest, |c| c.receiver_queue_size = 20);
        let mut seen = Vec::new();
        while seen.len() < 200 {
            let count = w.rng.usize(0..30).min(200 - seen.len());
            seen.extend(w.receive_texts(reader, count));
            match w.rng.u8(0..4) {
                0 => w.restart_broker(0),
                1 => {
                    let now = w.now();
                    w.broker.unload_topic(now, "t").unwrap();
                }
                _ => w.cut_links(),
            }
            let wait = w.rng.u64(0..300);
            w.advance(Duration::from_millis(wait));
        }
        assert_eq!(seen, numbers(0..200), "seed {seed}");
        assert!(w.receive_within(reader, Duration::from_secs(3)).is_none());
        assert!(!w.has_message_available(reader));
    }
}

/// From the latest message on, with everything that can happen before the first message is taken.
#[test]
fn a_reader_from_the_latest_message_loses_nothing_that_comes_after_it_opened() {
    for seed in 0..60 {
        let mut w = World::new(seed);
        let producer = w.producer("t", batches_of(1 + seed as usize % 3));
        w.publish(producer, numbers(0..(seed as usize % 4) * 3));
        let reader = w.reader("t", Position::Latest, inclusive(false));
        if seed % 2 == 0 {
            w.advance(Duration::from_secs(1));
        }
        let mut next = 100;
        for _ in 0..4 {
            match w.rng.u8(0..5) {
                0 => w.cut_links(),
                1 => w.restart_broker(0),
                2 => {
                    let now = w.now();
                    w.broker.unload_topic(now, "t").unwrap();
                }
                3 => {
                    w.publish(producer, numbers(next..next + 5));
                    next += 5;
                }
                _ => {}
            }
            let wait = w.rng.u64(0..500);
            w.advance(Duration::from_millis(wait));
        }
        w.publish(producer, numbers(next..next + 5));
        next += 5;
        assert_eq!(w.receive_texts(reader, next - 100), numbers(100..next), "seed {seed}");
        assert!(!w.has_message_available(reader));
    }
}

#[test]
fn a_reader_from_a_time_keeps_to_it_when_the_link_breaks_before_the_first_message() {
    for seed in 0..40 {
        let mut w = World::new(seed);
        let producer = w.producer("t", |c| c.batching = Batching::off());
        w.publish(producer, numbers(0..5));
        w.advance(Duration::from_secs(10));
        let time = w.now().unix_ms;
        w.publish(producer, numbers(5..10));
        let reader = w.create_reader(0, "t", Position::PublishTime(time), |_| {});
        for _ in 0..3 {
            let wait = w.rng.u64(0..150);
            w.advance(Duration::from_millis(wait));
            match w.rng.bool() {
                true => w.cut_links(),
                false => w.restart_broker(0),
            }
        }
        w.await_consumer(reader).unwrap();
        assert_eq!(drain(&mut w, reader), numbers(5..10), "seed {seed}");
    }
}

#[test]
fn last_message_ids_are_those_of_the_last_messages() {
    for batch in [1, 4] {
        let mut w = World::new(4);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", 3).unwrap();
        let reader = w.reader("t", Position::Latest, |_| {});
        let empty = w.last_message_ids(reader);
        assert_eq!(empty.iter().map(|id| id.partition).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(empty.iter().all(|id| id.entry_id == -1));
        let mut last = Vec::new();
        for partition in 0..3 {
            let producer = w.producer(&format!("t-partition-{partition}"), batches_of(batch));
            let ids = w.publish(producer, numbers(0..batch));
            last.push(*ids.last().unwrap());
        }
        assert_eq!(w.last_message_ids(reader), last);
        assert!(w.has_message_available(reader));
        // Each of them is where an exclusive start finds nothing, and an inclusive one that message.
        for (partition, id) in last.into_iter().enumerate() {
            for yes in [false, true] {
                let topic = format!("t-partition-{partition}");
                let one = w.reader(&topic, Position::Id(id), inclusive(yes));
                assert_eq!(w.has_message_available(one), yes);
                assert_eq!(read_to_end(&mut w, one).len(), usize::from(yes));
            }
        }
    }
}

#[test]
fn a_reader_of_many_partitions_reads_all_from_both_ends_and_knows_when_it_is_done() {
    let mut w = World::with_brokers(5, 2);
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 4).unwrap();
    let producer = w.producer("t", batches_of(3));
    w.publish(producer, numbers(0..60));
    let reader = w.reader("t", Position::Earliest, |_| {});
    let late = w.reader("t", Position::Latest, |_| {});
    let mut read = read_to_end(&mut w, reader);
    read.sort_by_key(|n| n.parse::<usize>().unwrap());
    assert_eq!(read, numbers(0..60));
    assert!(!w.has_message_available(late));
    w.publish(producer, ["60"]);
    assert_eq!(read_to_end(&mut w, late), ["60"]);
}

#[test]
fn two_readers_of_one_topic_do_not_disturb_each_other_and_leave_nothing_behind() {
    let mut w = World::new(6);
    let producer = w.producer("t", batches_of(4));
    w.publish(producer, numbers(0..40));
    let readers = [(); 2].map(|()| w.reader("t", Position::Earliest, |_| {}));
    for n in 0..40 {
        for reader in readers {
            assert_eq!(text(&w.receive(reader)), n.to_string());
        }
    }
    for reader in readers {
        w.close_consumer(reader);
    }
    w.advance(Duration::from_secs(1));
    assert!(w.broker.topic("t").unwrap().subscriptions.is_empty());
}

#[test]
fn a_reader_gets_past_a_corrupt_entry_and_to_its_end() {
    let mut w = World::new(7);
    let producer = w.producer("t", batches_of(5));
    w.publish(producer, numbers(0..20));
    for skip in 0..4 {
        w.broker.inject(Fault::new(FaultKind::CorruptMessage).after(skip));
        let reader = w.reader("t", Position::Earliest, |_| {});
        let read = read_to_end(&mut w, reader);
        let skip = skip as usize;
        let damaged = numbers(5 * skip..5 * skip + 5);
        let rest: Vec<_> = read.into_iter().filter(|text| !damaged.contains(text)).collect();
        assert_eq!(rest, [numbers(0..5 * skip), numbers(5 * skip + 5..20)].concat());
        w.close_consumer(reader);
    }
}

/// What is queued goes on being read while the link is down and comes up again.
#[test]
fn a_reader_that_reads_on_during_a_reconnection_reads_nothing_twice() {
    for seed in 0..60 {
        let mut w = World::new(seed);
        let batch = w.rng.usize(1..6);
        let producer = w.producer("t", batches_of(batch));
        w.publish(producer, numbers(0..300));
        let reader = w.reader("t", Position::Earliest, |c| c.receiver_queue_size = 200);
        w.advance(Duration::from_secs(1));
        let pace = w.rng.u64(100..2000);
        let mut seen = Vec::new();
        while seen.len() < 300 {
            if seen.len() % 100 == 20 {
                w.cut_links();
            }
            match w.try_receive(reader) {
                Some(message) => seen.push(text(&message)),
                None => seen.push(text(&w.receive(reader))),
            }
            w.advance(Duration::from_micros(pace));
        }
        assert_eq!(seen, numbers(0..300), "seed {seed}");
    }
}
