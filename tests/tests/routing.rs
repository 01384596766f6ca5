//! Partitions: which one a message goes to, and what happens when there are more of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use geminga_broker::{Fault, FaultKind, Request};
use geminga_core::wire::proto::ServerError;
use geminga_core::{
    Batching, ErrorKind, HandleId, HashingScheme, MessageRouter, OutgoingMessage, ProducerConfig, Routing,
};
use geminga_tests::world::{ProducerAt, Sent, World};

const SECOND: Duration = Duration::from_secs(1);

fn parted(seed: u64, partitions: u32, change: impl FnOnce(&mut ProducerConfig)) -> (World, ProducerAt) {
    let mut w = World::new(seed);
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", partitions).unwrap();
    let producer = w.producer("t", change);
    (w, producer)
}

/// The partition of each message, and how many went to each.
fn partitions_of(w: &mut World, sent: &[Sent]) -> (Vec<i32>, BTreeMap<i32, usize>) {
    let partitions: Vec<i32> = sent.iter().map(|s| w.expect_published(*s).partition).collect();
    let mut counts = BTreeMap::new();
    partitions.iter().for_each(|p| *counts.entry(*p).or_default() += 1);
    (partitions, counts)
}

/// The application's function is called in the midst of a send.
#[test]
fn a_routing_function_that_panics_leaves_nothing_reserved() {
    let choose = |m: &OutgoingMessage, _| if m.payload.is_empty() { panic!("as planned") } else { 0 };
    let routing = Routing::Custom(MessageRouter(Arc::new(choose)));
    let (mut w, producer) = parted(0, 2, |c| c.routing = routing);
    let now = w.now();
    let send = std::panic::AssertUnwindSafe(|| {
        let mut view = w.machine(0).producer(producer.id).unwrap();
        view.send(now, OutgoingMessage::new("").with_key("a key has its size"))
    });
    std::panic::catch_unwind(send).unwrap_err();
    assert_eq!((w.stats(0).memory_used, w.stats(0).pending_messages), (0, 0));
    let sent = w.send(producer, "m");
    w.expect_published(sent);
}

/// Messages without key, batched and not: spread evenly.
#[test]
fn pb055_messages_without_key_spread_evenly() {
    for batching in [Batching::off(), Batching { max_messages: 10, ..Batching::default() }] {
        for seed in 0..5 {
            let (mut w, producer) = parted(seed, 4, |c| c.batching = batching);
            let sent: Vec<Sent> = (0..400).map(|n| w.send(producer, format!("{n}"))).collect();
            let (_, counts) = partitions_of(&mut w, &sent);
            assert_eq!(counts, BTreeMap::from([(0, 100), (1, 100), (2, 100), (3, 100)]));
            for partition in 0..4 {
                assert_eq!(w.stored(&format!("t-partition-{partition}")).len(), 100);
            }
        }
    }
}

/// Every key of the captured table goes where the Java client sends it, batched and not.
#[test]
fn pb055_a_key_goes_to_the_same_partition_as_from_the_java_client() {
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/hash.tsv")).unwrap();
    let rows: Vec<(String, [i32; 2])> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let key = serde_json::from_str(columns[0]).unwrap();
            (key, [columns[7], columns[8]].map(|n| n.parse().unwrap()))
        })
        .collect();
    assert!(rows.len() > 20);
    for batching in [Batching::off(), Batching::default()] {
        for (column, scheme) in
            [HashingScheme::Murmur3_32Hash, HashingScheme::JavaStringHash].into_iter().enumerate()
        {
            let (mut w, producer) = parted(55, 5, |c| {
                c.batching = batching;
                c.hashing_scheme = scheme;
            });
            let sent: Vec<Sent> = rows
                .iter()
                .map(|(key, _)| w.send(producer, OutgoingMessage::new("m").with_key(key)))
                .collect();
            let (partitions, _) = partitions_of(&mut w, &sent);
            let expected: Vec<i32> = rows.iter().map(|(_, by)| by[column]).collect();
            assert_eq!(partitions, expected, "{scheme:?}");
        }
    }
}

#[test]
fn pb055_a_binary_key_goes_by_its_base64_text() {
    let (mut w, producer) = parted(55, 5, |_| {});
    let bytes = w.send(producer, OutgoingMessage::new("m").with_key_bytes([0xff, 0x00, 0x7f]));
    let text = w.send(producer, OutgoingMessage::new("m").with_key("/wB/"));
    let (partitions, _) = partitions_of(&mut w, &[bytes, text]);
    assert_eq!(partitions[0], partitions[1]);
}

#[test]
fn a_partition_keeps_its_turn_until_its_batch_is_full() {
    let (mut w, producer) = parted(1, 3, |c| {
        c.batching = Batching { max_messages: 10, max_publish_delay: 10 * SECOND, ..Batching::default() };
    });
    let sent: Vec<Sent> = (0..60).map(|n| w.send(producer, format!("{n}"))).collect();
    let (partitions, _) = partitions_of(&mut w, &sent);
    for (n, ten) in partitions.chunks(10).enumerate() {
        assert_eq!(ten, [(partitions[0] + n as i32) % 3; 10]);
    }
}

/// Sizes that never add up to the limit: each batch leaves when the next message does not fit, and the turn passes on.
#[test]
fn a_batch_that_has_no_room_for_the_next_message_passes_its_turn_on() {
    let (mut w, producer) = parted(2, 3, |c| {
        c.batching = Batching { max_bytes: 100, max_publish_delay: 10 * SECOND, ..Batching::default() };
    });
    let sent: Vec<Sent> = (0..30).map(|n| w.send(producer, vec![n; 40])).collect();
    w.flush(producer);
    let (partitions, counts) = partitions_of(&mut w, &sent);
    for (n, two) in partitions.chunks(2).enumerate() {
        assert_eq!(two, [(partitions[0] + n as i32) % 3; 2], "{partitions:?}");
    }
    assert!(counts.values().all(|count| *count == 10), "{counts:?}");
}

#[test]
fn a_batch_that_leaves_by_its_delay_passes_its_turn_on() {
    let (mut w, producer) = parted(3, 3, |_| {});
    let mut sent = Vec::new();
    for n in 0..9 {
        sent.push(w.send(producer, format!("{n}")));
        w.advance(Duration::from_millis(5));
    }
    let (partitions, _) = partitions_of(&mut w, &sent);
    assert!(partitions.windows(2).all(|p| p[1] == (p[0] + 1) % 3), "{partitions:?}");
}

#[test]
fn messages_with_a_key_take_no_turn() {
    let (mut w, producer) = parted(4, 3, |c| c.batching = Batching::off());
    let mut plain = Vec::new();
    for n in 0..9 {
        plain.push(w.send(producer, format!("{n}")));
        w.send(producer, OutgoingMessage::new("keyed").with_key(format!("{n}")));
    }
    let (partitions, _) = partitions_of(&mut w, &plain);
    assert!(partitions.windows(2).all(|p| p[1] == (p[0] + 1) % 3), "{partitions:?}");
}

#[test]
fn a_single_partition_is_drawn_once_and_keys_still_go_by_hash() {
    let mut drawn = Vec::new();
    for seed in 0..10 {
        let (mut w, producer) = parted(seed, 4, |c| c.routing = Routing::SinglePartition);
        let sent: Vec<Sent> = (0..50).map(|n| w.send(producer, format!("{n}"))).collect();
        let keyed: Vec<Sent> = (0..50)
            .map(|n| w.send(producer, OutgoingMessage::new("m").with_key(format!("key-{n}"))))
            .collect();
        let (partitions, counts) = partitions_of(&mut w, &sent);
        assert_eq!(counts.len(), 1);
        drawn.push(partitions[0]);
        assert_eq!(partitions_of(&mut w, &keyed).1.len(), 4);
    }
    drawn.sort_unstable();
    drawn.dedup();
    assert!(drawn.len() > 1, "not the same for every producer");
}

#[test]
fn an_own_function_decides_for_every_message_and_its_mistakes_cost_one_send() {
    let by_size =
        MessageRouter(Arc::new(|m, n| if m.payload.is_empty() { n } else { m.payload.len() as u32 % n }));
    let (mut w, producer) = parted(5, 4, |c| {
        c.routing = Routing::Custom(by_size);
        c.max_pending_messages = 8;
    });
    for _ in 0..20 {
        let refused = w.try_send(producer, "").unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::InvalidConfiguration, "{}", refused.error);
    }
    let sent: Vec<Sent> = (1..8usize)
        .map(|n| w.send(producer, OutgoingMessage::new(vec![b'x'; n]).with_key("always the same")))
        .collect();
    assert_eq!(partitions_of(&mut w, &sent).0, [1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_partition_named_by_itself_is_one_topic() {
    let (mut w, _) = parted(6, 3, |_| {});
    let producer = w.producer("t-partition-1", |_| {});
    let sent: Vec<Sent> =
        (0..9).map(|n| w.send(producer, OutgoingMessage::new("m").with_key(format!("{n}")))).collect();
    assert_eq!(partitions_of(&mut w, &sent).0, [1; 9]);
    assert_eq!(w.machine(0).producer(producer.id).unwrap().partitions(), 1);
}

#[test]
fn partitions_that_are_added_get_messages_without_a_pause_for_the_others() {
    let (mut w, producer) = parted(7, 2, |c| c.batching = Batching::off());
    let now = w.now();
    w.broker.grow_partitioned_topic(now, "t", 5).unwrap();
    let mut sent: Vec<Sent> = Vec::new();
    while w.machine(0).producer(producer.id).unwrap().partitions() < 5 {
        sent.push(w.send(producer, "m"));
        w.advance(SECOND);
        assert!(w.elapsed() < 62 * SECOND, "asked every 60 s");
    }
    assert_eq!(partitions_of(&mut w, &sent).1.keys().copied().collect::<Vec<_>>(), [0, 1]);
    let sent: Vec<Sent> = (0..50).map(|n| w.send(producer, format!("{n}"))).collect();
    assert_eq!(partitions_of(&mut w, &sent).1, (0..5).map(|p| (p, 10)).collect());
    let keyed = w.send(producer, OutgoingMessage::new("m").with_key("ab"));
    assert_eq!(partitions_of(&mut w, &[keyed]).0, [3105 % 5]);
    w.close_client(0);
}

/// A partition that is added and cannot be had costs nothing; it is tried again.
#[test]
fn a_new_partition_that_is_refused_leaves_the_producer_as_it_was() {
    for code in [ServerError::AuthorizationError, ServerError::ServiceNotReady] {
        let (mut w, producer) = parted(8, 2, |c| c.batching = Batching::off());
        let refusal = FaultKind::Refuse(Request::Producer, code, "not yet".to_owned());
        w.broker.inject(Fault::new(refusal).on_topic("persistent://public/default/t-partition-2"));
        let now = w.now();
        w.broker.grow_partitioned_topic(now, "t", 4).unwrap();
        w.advance(61 * SECOND);
        let sent: Vec<Sent> = (0..10).map(|n| w.send(producer, format!("{n}"))).collect();
        assert_eq!(partitions_of(&mut w, &sent).1.len(), 2, "{code:?}");
        w.advance(125 * SECOND);
        assert_eq!(w.machine(0).producer(producer.id).unwrap().partitions(), 4, "{code:?}");
        let sent: Vec<Sent> = (0..8).map(|n| w.send(producer, format!("{n}"))).collect();
        assert_eq!(partitions_of(&mut w, &sent).1.len(), 4);
        assert!(w.book.closed(0, HandleId::Producer(producer.id)).is_none());
        w.close_client(0);
        for partition in 0..4 {
            let topic = w.broker.topic(&format!("t-partition-{partition}")).unwrap();
            assert!(topic.producers.is_empty(), "{partition}");
        }
    }
}

/// One partition's broker is away: the others go on, and what was routed there waits in its order.
#[test]
fn a_partition_without_its_broker_waits_alone() {
    let mut w = World::configured(9, |s| {
        s.brokers(2);
        s.cluster.bundles = 64;
    });
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 2).unwrap();
    let producer = w.producer("t", |c| {
        c.batching = Batching::off();
        c.send_timeout = None;
    });
    let now = w.now();
    for (partition, node) in [(0, 0), (1, 1)] {
        let topic = format!("t-partition-{partition}");
        w.broker.move_topic(now, &topic, geminga_broker::NodeId(node), true).unwrap();
    }
    w.expect("both", |w| w.machine(0).producer(producer.id).unwrap().is_connected());
    let owners: Vec<_> = (0..2).map(|p| w.broker.owner(&format!("t-partition-{p}")).unwrap()).collect();
    assert_ne!(owners[0], owners[1]);
    w.freeze_broker(1);
    let sent: Vec<Sent> = (0..10).map(|n| w.send(producer, format!("{n}"))).collect();
    w.advance(SECOND);
    let stuck = sent.iter().filter(|s| w.outcome(**s).is_none()).count();
    assert_eq!(stuck, 5, "those of the frozen broker");
    w.thaw_broker(1);
    w.expect_all_published(sent);
    for partition in 0..2 {
        let stored = w.stored(&format!("t-partition-{partition}"));
        assert!(stored.is_sorted(), "{stored:?}");
    }
}
