//! Seeks, and where readers start.

use std::time::Duration;

use geminga_core::wire::Command;
use geminga_core::wire::proto;
use geminga_core::wire::proto::command_ack::AckType;
use geminga_core::wire::proto::command_subscribe::{InitialPosition, SubType};

use crate::world::{TOPIC, World, earliest, message_id, permits, published};

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
