//! Seeks, readers, and whether there is more.

use std::time::Duration;

use super::broker::*;
use crate::wire::command::Command;
use crate::wire::proto::{self, ServerError};
use crate::*;

fn expect_seek(s: &mut Script) -> proto::CommandSeek {
    match s.next() {
        Command::Seek(seek) => seek,
        other => panic!("{other:?} instead of SEEK"),
    }
}

fn expect_last_id(s: &mut Script) -> u64 {
    match s.next() {
        Command::GetLastMessageId(ask) => ask.request_id,
        other => panic!("{other:?} instead of GET_LAST_MESSAGE_ID"),
    }
}

fn available(s: &mut Script, op: OpId) -> bool {
    match s.completed(op) {
        Ok(Reply::Available(more)) => more,
        other => panic!("{other:?}"),
    }
}

fn ask_available(s: &mut Script, consumer: ConsumerId) -> OpId {
    s.on(consumer, |mut c, now| c.has_message_available(now))
}

/// A reader behind the last message, which is `last`.
fn latest_reader(last: MessageId) -> (Script, ConsumerId, u64) {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::Latest));
    let request = expect_last_id(&mut s);
    assert_eq!(s.flow(), 1000);
    s.say(last_id(request, last, Some(last)));
    s.silent();
    (s, reader, wire)
}

/// A consumer with two messages queued and one acknowledgement gathered, in the middle of a seek.
fn seeking(to: Position) -> (Script, ConsumerId, u64, OpId, proto::CommandSeek) {
    let mut s = Script::new();
    let (consumer, wire) = s.open(config());
    s.send(&[5, 6, 7].map(|e| Delivery::new(wire, e, &e.to_string()).frame()));
    let first = s.receive(consumer).unwrap().message_id();
    s.on(consumer, |mut c, now| c.acknowledge(now, &first)).unwrap();
    let op = s.on(consumer, |mut c, now| c.seek(now, to));
    assert_eq!(s.ack(), (false, vec![(5, vec![])]), "told before, in case the seek fails");
    let seek = expect_seek(&mut s);
    s.events.clear();
    (s, consumer, wire, op, seek)
}

#[test]
fn a_seek_discards_everything_older_and_ends_when_the_subscription_is_there_again() {
    let (mut s, consumer, wire, op, seek) = seeking(Position::Id(id(2)));
    assert_eq!(seek.message_id.unwrap().entry_id, 2);
    assert!(s.receive(consumer).is_none(), "nothing of before is handed out");
    // Acknowledged in between: of before, so it never leaves.
    s.on(consumer, |mut c, now| c.acknowledge(now, &id(6))).unwrap();
    s.send(&[Delivery::new(wire, 8, "old").frame()]);
    s.say(close_consumer(wire));
    s.send(&[Delivery::new(wire, 9, "old").frame()]);
    s.say(success(seek.request_id));
    assert!(s.is_pending(op));
    s.ms(1000);
    s.accept();
    assert_eq!(s.flow(), 1000);
    assert!(matches!(s.completed(op), Ok(Reply::Done)));
    s.send(&[2, 3].map(|e| Delivery::new(wire, e, &e.to_string()).frame()));
    assert_eq!(s.drain(consumer), ["3"], "exclusive: behind the id");
    s.ms(1000);
    assert_eq!(s.ack(), (false, vec![(2, vec![])]), "what the start skipped is done");
    s.silent();
    assert!(!s.has_event(|e| matches!(e, Event::State(..))), "a seek is no loss");
}

#[test]
fn an_inclusive_seek_into_a_batch_begins_with_that_member() {
    for inclusive in [false, true] {
        let mut s = Script::new();
        let (consumer, wire) = s.open(ConsumerConfig { start_message_id_inclusive: inclusive, ..config() });
        let op = s.on(consumer, |mut c, now| c.seek(now, Position::Id(id(4).in_batch(1, 4))));
        let seek = expect_seek(&mut s);
        assert_eq!(seek.message_id.unwrap().ack_set, [if inclusive { 0b1110 } else { 0b1100 }]);
        s.say(close_consumer(wire));
        s.say(success(seek.request_id));
        s.ms(1000);
        s.accept();
        s.flow();
        assert!(s.completed(op).is_ok());
        s.send(&[Delivery::batch(wire, 4, &["a", "b", "c", "d"]).frame()]);
        let expected = if inclusive { &["b", "c", "d"][..] } else { &["c", "d"] };
        assert_eq!(s.drain(consumer), expected);
        // The rest of the batch completes it.
        for index in 1..4 {
            s.on(consumer, |mut c, now| c.acknowledge(now, &id(4).in_batch(index, 4))).unwrap();
        }
        s.ms(100);
        assert_eq!(s.ack(), (false, vec![(4, vec![])]));
    }
}

#[test]
fn a_refused_seek_leaves_everything_as_it_was() {
    let (mut s, consumer, _, op, seek) = seeking(Position::Earliest);
    assert!(s.receive(consumer).is_none());
    s.on(consumer, |mut c, now| c.acknowledge(now, &id(6))).unwrap();
    s.say(error(seek.request_id, ServerError::MetadataError));
    assert_eq!(s.completed(op).unwrap_err().kind(), ErrorKind::BrokerMetadataError);
    assert!(s.has_event(|e| matches!(e, Event::Readable(_))), "the queue is there again");
    assert_eq!(s.drain(consumer), ["6", "7"]);
    assert_eq!(s.ack(), (false, vec![(6, vec![])]));
    s.advance(Duration::from_secs(60));
    s.silent();
}

#[test]
fn a_second_seek_is_refused_while_one_is_under_way() {
    let (mut s, consumer, ..) = seeking(Position::Earliest);
    let second = s.on(consumer, |mut c, now| c.seek(now, Position::Latest));
    assert_eq!(s.completed(second).unwrap_err().kind(), ErrorKind::NotAllowedError);
    s.silent();
}

#[test]
fn a_seek_whose_connection_breaks_is_asked_again() {
    let (mut s, _, _, op, _) = seeking(Position::PublishTime(77));
    s.cut();
    s.advance(Duration::from_secs(1));
    let wire = s.accept();
    let seek = expect_seek(&mut s);
    assert_eq!(seek.message_publish_time, Some(77));
    s.silent();
    s.say(close_consumer(wire));
    s.say(success(seek.request_id));
    s.advance(Duration::from_secs(1));
    s.accept();
    assert_eq!(s.flow(), 1000);
    assert!(s.completed(op).is_ok());
}

#[test]
fn the_new_subscription_waits_for_the_answer_to_the_seek() {
    let (mut s, _, wire, op, seek) = seeking(Position::Earliest);
    s.say(close_consumer(wire));
    s.advance(Duration::from_secs(5));
    s.silent();
    s.say(success(seek.request_id));
    s.ms(0);
    s.accept();
    assert_eq!(s.flow(), 1000);
    assert!(s.completed(op).is_ok());
}

#[test]
fn a_seek_without_connection_waits_and_times_out() {
    let mut s = Script::new();
    let (consumer, _) = s.open(config());
    s.cut();
    let op = s.on(consumer, |mut c, now| c.seek(now, Position::Earliest));
    s.advance(Duration::from_secs(29));
    assert!(s.is_pending(op));
    s.advance(Duration::from_secs(1));
    assert_eq!(s.completed(op).unwrap_err().kind(), ErrorKind::Timeout);
    // It does not happen later either.
    s.written.clear();
    s.cut();
    s.advance(Duration::from_secs(10));
    s.accept();
    assert_eq!(s.flow(), 1000);
    s.silent();
}

#[test]
fn a_seek_to_a_foreign_id_is_refused() {
    let mut s = Script::new();
    let (consumer, _) = s.open(config());
    for wrong in [MessageId::new(1, 1, 4), id(1).in_batch(7, 7), id(1).in_batch(i32::MAX - 1, i32::MAX)] {
        let op = s.on(consumer, |mut c, now| c.seek(now, Position::Id(wrong)));
        assert_eq!(s.completed(op).unwrap_err().kind(), ErrorKind::InvalidMessage);
    }
    s.silent();
}

#[test]
fn a_seek_that_makes_no_broker_close_the_consumer_ends_all_the_same() {
    let (mut s, consumer, wire, op, seek) = seeking(Position::Earliest);
    s.say(success(seek.request_id));
    assert!(s.completed(op).is_ok());
    s.send(&[Delivery::new(wire, 0, "first").frame()]);
    assert_eq!(s.drain(consumer), ["first"]);
}

#[test]
fn a_reader_starts_at_its_id_and_continues_behind_what_it_read() {
    let mut s = Script::new();
    let start = id(3).in_batch(1, 4);
    let reader = s.client.create_reader(s.now, ReaderConfig::new(TOPIC, Position::Id(start))).unwrap();
    s.pump();
    let subscribe = s.expect_subscribe();
    let wire = subscribe.consumer_id;
    assert!(subscribe.subscription.starts_with("reader-") && subscribe.subscription.len() == 17);
    assert_eq!(subscribe.durable, Some(false));
    assert_eq!(subscribe.start_message_id, Some(start.to_proto()));
    s.say(success(subscribe.request_id));
    assert_eq!(s.flow(), 1000);
    s.send(&[Delivery::batch(wire, 3, &["a", "b", "c", "d"]).frame(), Delivery::new(wire, 4, "e").frame()]);
    assert_eq!(text(&s.receive(reader).unwrap()), "c");
    s.cut();
    s.advance(Duration::from_secs(1));
    let subscribe = s.expect_subscribe();
    assert_eq!(subscribe.start_message_id, Some(id(3).in_batch(2, 4).to_proto()));
    s.say(success(subscribe.request_id));
    assert_eq!(s.flow(), 1000);
    s.send(&[Delivery::batch(wire, 3, &["a", "b", "c", "d"]).frame(), Delivery::new(wire, 4, "e").frame()]);
    assert_eq!(s.drain(reader), ["d", "e"]);
    s.ms(100);
    assert_eq!(s.ack(), (true, vec![(4, vec![])]), "a reader acknowledges what it handed out");
    s.silent();
}

#[test]
fn a_reading_loop_asks_for_the_last_id_once_and_at_its_end() {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::Earliest));
    s.flow();
    let op = ask_available(&mut s, reader);
    let request = expect_last_id(&mut s);
    s.say(last_id(request, id(99), None));
    assert!(available(&mut s, op));
    for entry in 0..99 {
        let op = ask_available(&mut s, reader);
        assert!(available(&mut s, op), "{entry}");
        s.send(&[Delivery::new(wire, entry, "x").frame()]);
        s.receive(reader).unwrap();
    }
    assert!(!s.written.iter().any(|c| matches!(c, Command::GetLastMessageId(_))));
    s.send(&[Delivery::new(wire, 99, "x").frame()]);
    s.receive(reader).unwrap();
    s.written.clear();
    let op = ask_available(&mut s, reader);
    let request = expect_last_id(&mut s);
    s.say(last_id(request, id(99), None));
    assert!(!available(&mut s, op));
}

#[test]
fn an_answer_that_was_asked_for_before_the_question_does_not_count() {
    let (mut s, reader, _) = latest_reader(id(4));
    let first = ask_available(&mut s, reader);
    let request = expect_last_id(&mut s);
    let second = ask_available(&mut s, reader);
    s.silent();
    s.say(last_id(request, id(4), Some(id(4))));
    assert!(!available(&mut s, first));
    assert!(s.is_pending(second));
    let request = expect_last_id(&mut s);
    s.say(last_id(request, id(5), Some(id(4))));
    assert!(available(&mut s, second));
}

#[test]
fn whether_there_is_more_ends_with_an_error_in_time_when_no_answer_comes() {
    let mut s = Script::new();
    let (reader, _) = s.open_reader(ReaderConfig::new(TOPIC, Position::Earliest));
    s.flow();
    let refused = ask_available(&mut s, reader);
    let request = expect_last_id(&mut s);
    s.say(error(request, ServerError::MetadataError));
    assert_eq!(s.completed(refused).unwrap_err().kind(), ErrorKind::BrokerMetadataError);
    let op = ask_available(&mut s, reader);
    expect_last_id(&mut s);
    s.cut();
    s.advance(Duration::from_secs(1));
    s.accept();
    s.flow();
    expect_last_id(&mut s);
    s.advance(Duration::from_secs(29));
    assert_eq!(s.completed(op).unwrap_err().kind(), ErrorKind::Timeout);
    let asked = s.written.iter().filter(|c| matches!(c, Command::GetLastMessageId(_))).count();
    assert!(asked <= 5, "{asked} requests");
}

#[test]
fn a_reader_at_the_latest_message_inclusive_begins_with_that_message() {
    let mut s = Script::new();
    let config =
        ReaderConfig { start_message_id_inclusive: true, ..ReaderConfig::new(TOPIC, Position::Latest) };
    let (reader, wire) = s.open_reader(config);
    let request = expect_last_id(&mut s);
    s.silent();
    s.say(last_id(request, id(8).in_batch(4, 5), None));
    let seek = expect_seek(&mut s);
    assert_eq!(seek.message_id.unwrap().entry_id, 8);
    assert!(s.events.is_empty(), "not open before it is where it should be");
    s.say(close_consumer(wire));
    s.say(success(seek.request_id));
    s.advance(Duration::from_secs(1));
    s.accept();
    assert_eq!(s.flow(), 1000);
    assert!(s.has_event(|e| matches!(e, Event::Opened(_))));
    s.send(&[Delivery::batch(wire, 8, &["a", "b", "c", "d", "last"]).frame()]);
    assert_eq!(s.drain(reader), ["last"]);
}

#[test]
fn a_reader_at_the_latest_message_of_an_empty_topic_waits_for_the_first() {
    let mut s = Script::new();
    let config =
        ReaderConfig { start_message_id_inclusive: true, ..ReaderConfig::new(TOPIC, Position::Latest) };
    let (reader, _) = s.open_reader(config);
    let request = expect_last_id(&mut s);
    s.say(last_id(request, MessageId::EARLIEST, Some(MessageId::new(3, -1, -1))));
    assert_eq!(s.flow(), 1000);
    s.silent();
    let op = ask_available(&mut s, reader);
    let request = expect_last_id(&mut s);
    s.say(last_id(request, MessageId::EARLIEST, None));
    assert!(!available(&mut s, op));
}

#[test]
fn a_reader_from_a_time_seeks_there_before_it_is_open() {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::PublishTime(1234)));
    let seek = expect_seek(&mut s);
    assert_eq!(seek.message_publish_time, Some(1234));
    s.say(close_consumer(wire));
    s.say(success(seek.request_id));
    s.advance(Duration::from_secs(1));
    s.accept();
    assert_eq!(s.flow(), 1000);
    assert!(s.has_event(|e| matches!(e, Event::Opened(HandleId::Consumer(c)) if *c == reader)));
    // Nothing read yet: a new subscription must be moved there again.
    s.cut();
    s.advance(Duration::from_secs(2));
    s.accept();
    assert_eq!(expect_seek(&mut s).message_publish_time, Some(1234));
}

#[test]
fn after_a_seek_to_the_end_nothing_is_available_until_something_is_published() {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::Earliest));
    s.flow();
    s.send(&[Delivery::new(wire, 0, "x").frame()]);
    s.receive(reader).unwrap();
    let op = s.on(reader, |mut c, now| c.seek(now, Position::Latest));
    s.ack();
    let seek = expect_seek(&mut s);
    s.say(close_consumer(wire));
    s.say(success(seek.request_id));
    s.advance(Duration::from_secs(1));
    s.accept();
    let request = expect_last_id(&mut s);
    s.flow();
    s.say(last_id(request, id(9), Some(id(9))));
    assert!(s.completed(op).is_ok());
    for (last, mark, expected) in [(9, 9, false), (9, 9, false), (10, 9, true)] {
        let op = ask_available(&mut s, reader);
        let request = expect_last_id(&mut s);
        s.say(last_id(request, id(last), Some(id(mark))));
        assert_eq!(available(&mut s, op), expected);
    }
}

#[test]
fn a_reader_behind_the_last_message_misses_nothing_that_is_published_while_it_is_disconnected() {
    let (mut s, reader, _) = latest_reader(id(4).in_batch(2, 3));
    s.cut();
    s.advance(Duration::from_secs(1));
    let subscribe = s.expect_subscribe();
    assert_eq!(subscribe.start_message_id.unwrap().entry_id, 4);
    s.say(success(subscribe.request_id));
    assert_eq!(s.flow(), 1000);
    let wire = subscribe.consumer_id;
    s.send(&[
        Delivery::batch(wire, 4, &["old", "old", "old"]).frame(),
        Delivery::new(wire, 5, "missed").frame(),
    ]);
    assert_eq!(s.drain(reader), ["missed"]);
}

#[test]
fn a_message_that_was_queued_behind_the_last_one_comes_again_after_a_loss() {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::Latest));
    s.written.clear();
    s.send(&[Delivery::batch(wire, 7, &["a", "b"]).frame()]);
    s.cut();
    s.advance(Duration::from_secs(1));
    let subscribe = s.expect_subscribe();
    assert_eq!(subscribe.start_message_id, Some(id(7).to_proto()));
    s.say(success(subscribe.request_id));
    s.send(&[Delivery::batch(wire, 7, &["a", "b"]).frame()]);
    assert_eq!(s.drain(reader), ["a", "b"]);
}

#[test]
fn a_reader_does_not_acknowledge_what_its_start_skips() {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::Id(id(3).in_batch(1, 2))));
    s.flow();
    s.send(&[Delivery::batch(wire, 3, &["a", "b"]).frame(), Delivery::new(wire, 4, "c").frame()]);
    s.ms(1000);
    s.silent();
    assert_eq!(s.drain(reader), ["c"]);
    s.ms(1000);
    assert_eq!(s.ack(), (true, vec![(4, vec![])]));
}

#[test]
fn a_seek_by_time_is_repeated_when_the_link_broke_behind_its_answer() {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::Earliest));
    s.flow();
    let op = s.on(reader, |mut c, now| c.seek(now, Position::PublishTime(77)));
    let seek = expect_seek(&mut s);
    s.say(close_consumer(wire));
    s.say(success(seek.request_id));
    // The broker restarts: what it knew of the reader's cursor is gone.
    s.cut();
    s.advance(Duration::from_secs(2));
    s.accept();
    let seek = expect_seek(&mut s);
    assert_eq!(seek.message_publish_time, Some(77));
    assert!(s.is_pending(op));
    s.say(close_consumer(wire));
    s.say(success(seek.request_id));
    s.advance(Duration::from_secs(2));
    s.accept();
    assert_eq!(s.flow(), 1000);
    assert!(s.completed(op).is_ok());
}

#[test]
fn a_question_that_was_given_up_leaves_its_answer_to_nobody_else() {
    let mut s = Script::with(|c| c.operation_timeout = Duration::from_secs(2));
    let (reader, _) = s.open_reader(ReaderConfig::new(TOPIC, Position::Earliest));
    s.flow();
    let first = ask_available(&mut s, reader);
    expect_last_id(&mut s);
    s.ms(1900);
    let second = ask_available(&mut s, reader);
    s.ms(100);
    assert_eq!(s.completed(first).unwrap_err().kind(), ErrorKind::Timeout);
    assert!(s.is_pending(second));
    let request = expect_last_id(&mut s);
    s.say(last_id(request, id(3), None));
    assert!(available(&mut s, second));
}

#[test]
fn messages_taken_while_the_subscription_is_under_way_do_not_come_again() {
    let mut s = Script::new();
    let (reader, wire) = s.open_reader(ReaderConfig::new(TOPIC, Position::Earliest));
    s.flow();
    let frames = |from: i64| {
        let mut frames: Vec<_> = (from..6).map(|e| Delivery::new(wire, e, &e.to_string()).frame()).collect();
        frames.push(Delivery::batch(wire, 6, &["6a", "6b", "6c"]).frame());
        frames
    };
    s.send(&frames(0));
    for expected in ["0", "1"] {
        assert_eq!(text(&s.receive(reader).unwrap()), expected);
    }
    s.cut();
    s.advance(Duration::from_secs(1));
    let subscribe = s.expect_subscribe();
    assert_eq!(subscribe.start_message_id, Some(id(1).to_proto()));
    for expected in ["2", "3", "4", "5", "6a"] {
        assert_eq!(text(&s.receive(reader).unwrap()), expected);
    }
    s.say(success(subscribe.request_id));
    assert_eq!(s.ack(), (true, vec![(5, vec![])]));
    s.flow();
    s.send(&frames(1));
    assert_eq!(s.drain(reader), ["6b", "6c"]);
}

#[test]
fn a_durable_subscription_asks_its_cursor_whether_there_is_more() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(config());
    s.send(&[Delivery::new(wire, 0, "a").frame(), Delivery::new(wire, 1, "b").frame()]);
    assert_eq!(s.drain(consumer), ["a", "b"]);
    let op = ask_available(&mut s, consumer);
    let request = expect_last_id(&mut s);
    s.say(last_id(request, id(5), Some(id(1))));
    assert!(available(&mut s, op));
    // Everything was acknowledged by others, or by itself before a redelivery.
    let op = ask_available(&mut s, consumer);
    let request = expect_last_id(&mut s);
    s.say(last_id(request, id(5), Some(id(5))));
    assert!(!available(&mut s, op));
}

#[test]
fn a_reader_asks_for_as_many_messages_as_it_was_told() {
    let mut s = Script::new();
    s.open_reader(ReaderConfig {
        receiver_queue_size: 60_000,
        ..ReaderConfig::new(TOPIC, Position::Earliest)
    });
    assert_eq!(s.flow(), 60_000);
}
