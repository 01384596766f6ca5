//! Scenarios of batches, and the limits at which one leaves.

use std::time::Duration;

use geminga_core::{
    Batching, Compression, ConsumerConfig, ErrorKind, Event, HandleId, InitialPosition, OutgoingMessage,
};
use geminga_tests::world::script::Heard;
use geminga_tests::world::{ProducerAt, Sent, World};

const SECOND: Duration = Duration::from_secs(1);

/// Empty values with properties: by themselves, alone in a batch and among others, with every codec.
#[test]
fn pb141_an_empty_value_with_properties_is_a_message_like_any_other() {
    let codecs =
        [Compression::None, Compression::Lz4, Compression::Zlib, Compression::Zstd, Compression::Snappy];
    for codec in codecs {
        for (batching, around) in [(Batching::off(), 0), (Batching::default(), 0), (Batching::default(), 3)] {
            let mut w = World::new(141);
            let mut config = ConsumerConfig::new("t", "s");
            config.initial_position = InitialPosition::Earliest;
            let now = w.now();
            let consumer = w.machine(0).subscribe(now, config).unwrap();
            w.await_open(0, HandleId::Consumer(consumer)).unwrap();
            let producer = w.producer("t", |c| {
                c.batching = batching;
                c.compression = codec;
            });
            let mut sent: Vec<Sent> = (0..around).map(|n| w.send(producer, format!("before {n}"))).collect();
            sent.push(w.send(producer, OutgoingMessage::new("").with_property("k", "v")));
            sent.extend((0..around).map(|n| w.send(producer, format!("after {n}"))));
            let total = sent.len();
            w.expect_all_published(sent);
            let mut got = Vec::new();
            w.expect("every message", |w| {
                let now = w.now();
                got.extend(w.machine(0).consumer(consumer).unwrap().receive(now));
                got.len() == total
            });
            let empty = &got[around];
            assert_eq!(empty.payload(), b"", "{codec:?} with {around} around");
            assert_eq!(empty.properties(), [("k".to_owned(), "v".to_owned())]);
            w.advance(SECOND);
            let subscription = w.broker.subscription("t", "s").unwrap();
            assert_eq!(subscription.backlog_messages, total as u64, "none was acknowledged on its own");
        }
    }
}

/// A batch is filled to the edge of the largest frame: it is split so that each frame fits.
#[test]
fn pb143_a_batch_never_outgrows_the_largest_message_of_the_broker() {
    let limit = 1 << 20;
    let mut w = World::configured(143, |s| s.cluster.max_message_size = limit);
    let producer = w.producer("t", |c| {
        c.batching = Batching {
            max_bytes: limit,
            max_messages: 100_000,
            max_publish_delay: SECOND,
            ..Batching::default()
        };
    });
    // Much metadata and little payload; then the edge, byte by byte.
    let mut sent = Vec::new();
    for n in 0..3000 {
        let message = OutgoingMessage::new(vec![n as u8; 100]).with_property("p", "x".repeat(500));
        sent.push(w.send(producer, message));
    }
    for edge in (limit - 700..limit - 300).step_by(16) {
        sent.push(w.send(producer, vec![7; edge / 2]));
        sent.push(w.send(producer, vec![8; edge - edge / 2]));
    }
    let count = sent.len();
    w.expect_all_published(sent);
    assert_eq!(w.broker.topic("t").unwrap().messages, count as u64);
    let states = w.state_changes(0, HandleId::Producer(producer.id));
    assert!(states.is_empty(), "no frame cost the connection: {states:?}");
}

/// Compression makes a message fit that does not fit by itself, batching or not.
#[test]
fn what_compression_makes_small_enough_is_sent() {
    for batching in [Batching::off(), Batching::default()] {
        let mut w = World::configured(1, |s| s.cluster.max_message_size = 1 << 20);
        let producer = w.producer("t", |c| {
            c.batching = batching;
            c.compression = Compression::Zstd;
        });
        let sent = w.send(producer, vec![0; 3 << 20]);
        w.expect_published(sent);
        let mut noise = vec![0; 3 << 20];
        w.rng.fill(&mut noise);
        let refused = w.try_send(producer, noise).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::MessageTooBig);
        assert_eq!(w.stats(0).memory_used, 0);
        assert_eq!(w.broker.stored("t").unwrap()[0].payload.len(), 3 << 20);
    }
}

/// Batches that are still open when their producer closes: each message has an outcome, once.
#[test]
fn pb139_a_close_settles_the_open_batch_of_every_partition() {
    let mut w = World::new(139);
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 3).unwrap();
    let producer = w.producer("t", |c| c.batching.max_publish_delay = 20 * SECOND);
    let sent: Vec<Sent> = (0..30)
        .map(|n| w.send(producer, OutgoingMessage::new(format!("{n}")).with_key(format!("key-{}", n % 7))))
        .collect();
    let flush = w.flush(producer);
    let late: Vec<Sent> = (0..30)
        .map(|n| w.send(producer, OutgoingMessage::new(format!("{n}")).with_key(format!("key-{}", n % 7))))
        .collect();
    w.complete(flush).unwrap();
    let now = w.now();
    w.machine(0).producer(producer.id).unwrap().close(now);
    let nothing = w.flush(producer);
    assert_eq!(
        w.complete(nothing).unwrap_err().kind(),
        ErrorKind::AlreadyClosed,
        "what it would wait for was not stored"
    );
    w.await_closed(0, HandleId::Producer(producer.id));
    w.expect_all_published(sent);
    for s in late {
        assert_eq!(w.await_outcome(s).unwrap_err().kind(), ErrorKind::AlreadyClosed);
    }
    assert_eq!((w.stats(0).pending_messages, w.stats(0).memory_used), (0, 0));
}

// The limits.

#[test]
fn a_batch_leaves_with_its_thousandth_message() {
    let (mut w, producer) = slow_batches(|_| {});
    for n in 0..2500 {
        w.send(producer, format!("{n}"));
    }
    w.advance(SECOND);
    assert_eq!(counts(&w), [1000, 1000]);
    let texts: Vec<String> = sends(&w).iter().flat_map(|h| h.texts()).collect();
    assert!(texts.iter().enumerate().all(|(n, text)| *text == n.to_string()));
    w.advance(60 * SECOND);
    assert_eq!(counts(&w), [1000, 1000, 500]);
}

#[test]
fn a_batch_leaves_when_its_payload_bytes_are_128_kib_or_would_be_more() {
    let (mut w, producer) = slow_batches(|_| {});
    w.send(producer, vec![0; (128 << 10) - 1]);
    w.advance(SECOND);
    assert_eq!(counts(&w), [0; 0]);
    w.send(producer, vec![0; 1]);
    w.advance(SECOND);
    assert_eq!(counts(&w), [2], "full to the byte");
    w.send(producer, vec![0; 100 << 10]);
    w.send(producer, vec![0; 100 << 10]);
    w.advance(SECOND);
    assert_eq!(counts(&w), [2, 1], "the second would be too much");
    w.send(producer, vec![0; 1 << 20]);
    w.advance(SECOND);
    assert_eq!(counts(&w), [2, 1, 1, 1], "one larger than a batch leaves at once, behind those before it");
}

#[test]
fn a_batch_leaves_a_millisecond_after_its_first_message() {
    let mut w = World::scripted(4);
    let producer = w.producer("t", |c| assert_eq!(c.batching.max_publish_delay, Duration::from_millis(1)));
    let given = w.now().mono;
    w.send(producer, "a");
    w.advance(Duration::from_micros(900));
    w.send(producer, "b");
    w.expect("a SEND", |w| w.script.count("SEND") == 1);
    let took = sends(&w)[0].at.since(given);
    assert!((Duration::from_millis(1)..Duration::from_millis(2)).contains(&took), "{took:?}");
    assert_eq!(counts(&w), [2]);
}

#[test]
fn all_three_limits_can_be_set_and_batching_switched_off() {
    let (mut w, producer) = slow_batches(|b| b.max_messages = 3);
    for n in 0..7 {
        w.send(producer, format!("{n}"));
    }
    w.advance(SECOND);
    assert_eq!(counts(&w), [3, 3]);

    let (mut w, producer) = slow_batches(|b| b.max_bytes = 10);
    for n in 0..7 {
        w.send(producer, format!("123{n}"));
    }
    w.advance(SECOND);
    assert_eq!(counts(&w), [2, 2, 2]);

    let (mut w, producer) = slow_batches(|b| b.max_publish_delay = 5 * SECOND);
    w.send(producer, "a");
    w.advance(4 * SECOND);
    assert_eq!(counts(&w), [0; 0]);
    w.advance(2 * SECOND);
    assert_eq!(counts(&w), [1]);

    let (mut w, producer) = slow_batches(|b| *b = Batching::off());
    for n in 0..3 {
        w.send(producer, format!("{n}"));
    }
    w.advance(SECOND);
    assert_eq!(counts(&w), [1, 1, 1]);
    assert!(sends(&w).iter().all(|h| h.metadata().num_messages_in_batch.is_none()));
}

#[test]
fn a_delayed_message_travels_by_itself_and_in_its_place() {
    let (mut w, producer) = slow_batches(|_| {});
    w.send(producer, "a");
    w.send(producer, "b");
    w.send(producer, OutgoingMessage::new("delayed").with_deliver_at(1));
    w.send(producer, "c");
    w.flush(producer);
    w.advance(SECOND);
    let texts: Vec<Vec<String>> = sends(&w).iter().map(|h| h.texts()).collect();
    assert_eq!(texts, [vec!["a", "b"], vec!["delayed"], vec!["c"]]);
    assert_eq!(sends(&w)[1].metadata().deliver_at_time, Some(1));
}

#[test]
fn sequence_ids_that_do_not_grow_start_another_batch() {
    let (mut w, producer) = slow_batches(|_| {});
    for id in [5, 6, 6, 9, 2] {
        w.send(producer, OutgoingMessage { sequence_id: Some(id), ..OutgoingMessage::new("m") });
    }
    w.send(producer, "counted");
    w.flush(producer);
    w.advance(SECOND);
    let ids: Vec<(u64, Option<u64>)> =
        sends(&w).iter().map(|h| (h.as_send().sequence_id, h.as_send().highest_sequence_id)).collect();
    assert_eq!(ids, [(5, Some(6)), (6, Some(9)), (2, Some(10))]);
}

#[test]
fn one_event_tells_the_outcome_of_a_whole_batch() {
    let mut w = World::new(8);
    let producer = w.producer("t", |_| {});
    let sent: Vec<Sent> = (0..100).map(|n| w.send(producer, format!("{n}"))).collect();
    let ids: Vec<_> = sent.iter().map(|s| w.expect_published(*s)).collect();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!((id.entry_id, id.batch_index, id.batch_size), (ids[0].entry_id, n as i32, 100));
    }
    let events = w.events().iter().filter(|o| matches!(o.event, Event::Published { .. })).count();
    assert_eq!(events, 1);
}

/// A scripted world whose batches wait a minute for company.
fn slow_batches(change: impl FnOnce(&mut Batching)) -> (World, ProducerAt) {
    let mut w = World::configured(3, |s| {
        s.scripted = true;
        s.client.busy_keep_alive_interval = 600 * SECOND;
        s.client.keep_alive_interval = 600 * SECOND;
    });
    let producer = w.producer("t", |c| {
        c.send_timeout = None;
        c.batching.max_publish_delay = 60 * SECOND;
        change(&mut c.batching);
    });
    (w, producer)
}

fn sends(w: &World) -> Vec<&Heard> {
    w.script.log().iter().filter(|h| h.command.name() == "SEND").collect()
}

fn counts(w: &World) -> Vec<i32> {
    sends(w).iter().map(|h| h.as_send().num_messages()).collect()
}
