//! Random commands of several clients: nothing panics, the books balance, and in the end nothing is missing.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::BytesMut;
use fastrand::Rng;
use geminga_broker::LinkId;
use geminga_core::wire::proto::command_ack::AckType;
use geminga_core::wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_core::wire::proto::{self, ProducerAccessMode};
use geminga_core::wire::{AckSet, Command};

use crate::world::{TOPIC, World, message_id};

const LINKS: usize = 3;
const IDS: u64 = 3;

/// One random step of a client. Ids are few, so that most hit something.
fn step(w: &mut World, rng: &mut Rng, kind: SubType, links: &mut [LinkId], sequence_id: &mut u64) {
    let at = rng.usize(0..links.len());
    if w.is_closed(links[at]) {
        links[at] = w.link();
    }
    let (link, id) = (links[at], rng.u64(0..IDS));
    match rng.u8(0..100) {
        0..30 => {
            if w.try_producer(link, id, |_| {}).iter().any(|c| matches!(c, Command::ProducerSuccess(_))) {
                let count = rng.usize(1..4);
                let texts: Vec<String> = (0..count as u64).map(|i| format!("{}", *sequence_id + i)).collect();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                match texts[..] {
                    [text] => {
                        let key = format!("k{}", rng.u8(0..20));
                        w.publish_with(link, id, *sequence_id, text, |m| m.partition_key = Some(&key));
                    }
                    _ => w.publish_batch(link, id, *sequence_id, &texts),
                }
                *sequence_id += count as u64;
            }
        }
        30..45 => {
            let name = format!("c{}", rng.u8(0..4));
            w.try_subscribe(link, id, kind, |request| {
                request.consumer_name = Some(name);
                request.initial_position = Some(InitialPosition::Earliest as i32);
            });
        }
        45..60 => w.flow(link, id, rng.u32(1..20)),
        60..80 => {
            let view = w.cluster.topic(TOPIC).and_then(|t| t.last);
            let Some(last) = view else { return };
            let entry = rng.i64(-1..last.entry + 2);
            w.ack_with(link, id, (last.ledger, entry), |ack| {
                if rng.u8(0..10) == 0 {
                    ack.ack_type = AckType::Cumulative as i32;
                }
                if rng.bool() {
                    let mut set = AckSet::full(3);
                    set.clear(rng.u32(0..3));
                    ack.message_id[0].ack_set = set.into_words();
                }
            });
        }
        80..87 => {
            let ids = w
                .cluster
                .topic(TOPIC)
                .and_then(|t| t.last)
                .map(|last| (last.ledger, rng.i64(0..=last.entry)));
            w.redeliver(link, id, &ids.into_iter().filter(|_| rng.bool()).collect::<Vec<_>>());
        }
        87..92 => drop(w.close_consumer(link, id)),
        92..94 => {
            let close = proto::CommandCloseProducer { producer_id: id, ..Default::default() };
            w.send(link, Command::CloseProducer(close));
        }
        94 => {
            let to = w
                .cluster
                .topic(TOPIC)
                .and_then(|t| t.last)
                .map(|last| (last.ledger, rng.i64(0..=last.entry)));
            let seek =
                proto::CommandSeek { consumer_id: id, message_id: to.map(message_id), ..Default::default() };
            w.send(link, Command::Seek(seek));
        }
        95 => drop(w.cluster.unload_topic(w.now, TOPIC)),
        96 => w.drop_link(link),
        97 => w.mute(link),
        98 => {
            let mode = [ProducerAccessMode::Exclusive, ProducerAccessMode::WaitForExclusive][rng.usize(0..2)];
            w.try_producer(link, id, crate::world::access(mode));
        }
        _ => w.advance(Duration::from_millis(rng.u64(0..7000))),
    }
    w.frames(link);
}

fn assert_balanced(w: &World, seed: u64) {
    let Some(view) = w.cluster.subscription(TOPIC, "s") else { return };
    let held: u64 = view.consumers.iter().map(|c| c.unacked_messages).sum();
    assert_eq!(held, view.unacked_messages, "seed {seed}");
    assert!(view.unacked_messages <= view.backlog_messages, "seed {seed}: {view:?}");
    assert!(view.backlog_entries <= w.cluster.topic(TOPIC).unwrap().entries, "seed {seed}");
    let unacked = w.cluster.unacked(TOPIC, "s").unwrap();
    assert_eq!(unacked.len() as u64, view.backlog_messages, "seed {seed}");
}

#[test]
fn random_commands_never_lose_what_was_not_acknowledged() {
    for seed in 0..120 {
        let mut rng = Rng::with_seed(seed);
        let kind =
            [SubType::Exclusive, SubType::Shared, SubType::Failover, SubType::KeyShared][seed as usize % 4];
        let mut w = World::new();
        let mut links: Vec<LinkId> = (0..LINKS).map(|_| w.link()).collect();
        let mut sequence_id = 0;
        for number in 0..150 {
            step(&mut w, &mut rng, kind, &mut links, &mut sequence_id);
            if number % 5 == 0 {
                assert_balanced(&w, seed);
            }
        }
        for link in links {
            w.drop_link(link);
        }
        let expected: BTreeSet<_> = match w.cluster.subscription(TOPIC, "s") {
            Some(_) => w.cluster.unacked(TOPIC, "s").unwrap().into_iter().map(|m| m.payload).collect(),
            None => continue,
        };
        // One fresh consumer gets exactly what is left, once.
        let link = w.link();
        w.subscribe(link, 1, kind);
        w.flow(link, 1, 1_000_000);
        let frames = w.frames(link);
        let mut got = Vec::new();
        for message in frames.into_iter().filter(|f| f.payload.is_some()).map(crate::world::got) {
            let set = AckSet::from_words(&message.ack_set);
            let left = |(index, _): &(usize, &String)| set.is_empty() || set.contains(*index as u32);
            got.extend(
                message.texts.iter().enumerate().filter(left).map(|(_, text)| text.clone().into_bytes()),
            );
            w.ack(link, 1, message.id);
        }
        let unique: BTreeSet<_> = got.iter().cloned().map(bytes::Bytes::from).collect();
        assert_eq!((unique.len(), &unique), (got.len(), &expected), "seed {seed} {kind:?}");
        assert_eq!(w.cluster.subscription(TOPIC, "s").unwrap().backlog_entries, 0, "seed {seed}");
    }
}

#[test]
fn random_bytes_behind_a_handshake_never_panic() {
    let mut rng = Rng::with_seed(1);
    let mut w = World::new();
    let mut samples = Vec::new();
    {
        let mut sample = |command: Command| {
            let mut bytes = BytesMut::new();
            command.encode(&mut bytes);
            samples.push(bytes);
        };
        sample(crate::world::lookup(TOPIC, 1, true));
        let named = proto::CommandProducer { topic: TOPIC.to_owned(), ..Default::default() };
        sample(Command::Producer(Box::new(named)));
        let subscribe = proto::CommandSubscribe {
            topic: TOPIC.to_owned(),
            subscription: "s".to_owned(),
            sub_type: SubType::KeyShared as i32,
            key_shared_meta: Some(proto::KeySharedMeta {
                key_shared_mode: 1,
                hash_ranges: vec![proto::IntRange { start: 0, end: 65535 }],
                allow_out_of_order_delivery: Some(true),
            }),
            ..Default::default()
        };
        sample(Command::Subscribe(Box::new(subscribe)));
        sample(Command::Flow(proto::CommandFlow { consumer_id: 0, message_permits: 9 }));
        let id = proto::MessageIdData { ack_set: vec![-1, 5], ..message_id((1801, 0)) };
        sample(Command::Ack(proto::CommandAck { message_id: vec![id.clone()], ..Default::default() }));
        sample(Command::Seek(proto::CommandSeek { message_id: Some(id), ..Default::default() }));
    }
    let mut link = w.link();
    for _ in 0..20_000 {
        if w.is_closed(link) {
            link = w.link();
        }
        let mut bytes = samples[rng.usize(0..samples.len())].clone();
        if rng.bool() {
            let at = rng.usize(8..bytes.len());
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff, rng.u8(..)][rng.usize(0..6)];
        }
        w.send_bytes(link, bytes);
        w.frames(link);
    }
}
