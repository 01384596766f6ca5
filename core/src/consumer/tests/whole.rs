//! One consumer over several partitions, and its end.

use std::time::Duration;

use super::broker::*;
use crate::wire::command::Command;
use crate::wire::proto::{self, ServerError};
use crate::*;

fn expect_close(s: &mut Script) -> proto::CommandCloseConsumer {
    match s.next() {
        Command::CloseConsumer(close) => close,
        other => panic!("{other:?} instead of CLOSE_CONSUMER"),
    }
}

fn is_opened(event: &Event) -> bool {
    matches!(event, Event::Opened(_))
}

/// An open consumer of a topic with `n` partitions, and the wire ids by partition.
fn partitioned(n: u32, config: ConsumerConfig) -> (Script, ConsumerId, Vec<u64>) {
    let mut s = Script::new();
    s.partitions = n;
    let consumer = s.subscribe(config);
    let mut wires = Vec::new();
    for partition in 0..n {
        assert!(!s.has_event(is_opened));
        let subscribe = s.written.iter().position(|c| matches!(c, Command::Subscribe(_))).unwrap();
        let Some(Command::Subscribe(subscribe)) = s.written.remove(subscribe) else { unreachable!() };
        assert_eq!(subscribe.topic, format!("{TOPIC}-partition-{partition}"));
        wires.push(subscribe.consumer_id);
        s.say(success(subscribe.request_id));
    }
    assert!(s.has_event(is_opened));
    s.events.clear();
    (s, consumer, wires)
}

#[test]
fn partitions_share_the_total_queue_and_each_has_one_at_least() {
    for (queue, total, share) in [(1000, 50_000, 1000), (1000, 40, 10), (1000, 2, 1), (1, 1, 1)] {
        let (mut s, ..) = partitioned(
            4,
            ConsumerConfig { receiver_queue_size: queue, max_total_receiver_queue_size: total, ..config() },
        );
        assert_eq!([(); 4].map(|()| s.flow()), [share; 4]);
    }
}

#[test]
fn partitions_take_turns_and_acks_go_to_their_own() {
    let (mut s, consumer, wires) = partitioned(2, config());
    s.written.clear();
    for (partition, wire) in wires.iter().enumerate() {
        let name = |i: i64| format!("{partition}{i}");
        let frames = [0, 1].map(|i| Delivery::new(*wire, i, &name(i)).partition(partition as i32).frame());
        s.send(&frames);
    }
    let messages: Vec<_> = std::iter::from_fn(|| s.receive(consumer)).collect();
    assert_eq!(messages.iter().map(text).collect::<Vec<_>>(), ["00", "10", "01", "11"]);
    assert_eq!(messages[1].topic(), format!("{TOPIC}-partition-1"));
    s.on(consumer, |mut c, now| c.acknowledge(now, &messages[1].message_id())).unwrap();
    let bare = MessageId { partition: -1, ..messages[0].message_id() };
    assert!(s.on(consumer, |mut c, now| c.acknowledge(now, &bare)).is_err());
    s.ms(100);
    match s.next() {
        Command::Ack(ack) => assert_eq!((ack.consumer_id, ack.message_id.len()), (wires[1], 1)),
        other => panic!("{other:?}"),
    }
    s.silent();
}

#[test]
fn messages_of_one_partition_wait_until_all_are_open() {
    let mut s = Script::new();
    s.partitions = 2;
    let consumer = s.subscribe(config());
    let first = s.expect_subscribe();
    let second = s.expect_subscribe();
    s.say(success(first.request_id));
    s.send(&[Delivery::new(first.consumer_id, 0, "early").partition(0).frame()]);
    assert!(s.receive(consumer).is_none());
    assert!(s.events.is_empty());
    s.say(success(second.request_id));
    assert!(matches!(s.events.pop_front(), Some(Event::Opened(_))));
    assert!(matches!(s.events.pop_front(), Some(Event::Readable(_))));
    assert_eq!(s.drain(consumer), ["early"]);
}

#[test]
fn one_refused_partition_fails_the_creation_and_closes_the_others() {
    let mut s = Script::new();
    s.partitions = 2;
    s.subscribe(config());
    let first = s.expect_subscribe();
    let second = s.expect_subscribe();
    s.say(success(first.request_id));
    s.flow();
    s.say(error(second.request_id, ServerError::AuthorizationError));
    let close = expect_close(&mut s);
    assert_eq!(close.consumer_id, first.consumer_id);
    assert!(s.events.is_empty());
    s.say(success(close.request_id));
    match s.events.pop_front() {
        Some(Event::Closed(_, Some(error))) => {
            assert_eq!(error.kind(), ErrorKind::AuthorizationError);
            assert!(error.to_string().contains("partition-1"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(s.client.stats().consumers, 0);
}

#[test]
fn a_partition_that_is_added_is_read_from_its_start_and_its_failure_stays_its_own() {
    let (mut s, consumer, wires) = partitioned(1, config());
    s.partitions = 2;
    s.written.clear();
    s.advance(Duration::from_secs(60));
    let subscribe = s.expect_subscribe();
    assert_eq!(subscribe.topic, format!("{TOPIC}-partition-1"));
    assert_eq!(subscribe.initial_position, Some(1));
    s.say(error(subscribe.request_id, ServerError::AuthorizationError));
    s.send(&[Delivery::new(wires[0], 0, "still here").partition(0).frame()]);
    assert_eq!(s.drain(consumer), ["still here"]);
    s.silent();
    s.advance(Duration::from_secs(60));
    let subscribe = s.expect_subscribe();
    s.say(success(subscribe.request_id));
    assert_eq!(s.flow(), 1000);
    s.send(&[Delivery::new(subscribe.consumer_id, 0, "new").partition(1).frame()]);
    assert_eq!(s.drain(consumer), ["new"]);
    assert!(s.on(consumer, |c, _| c.is_connected()));
}

#[test]
fn a_seek_by_time_moves_every_partition_and_one_by_id_its_own() {
    let (mut s, consumer, wires) = partitioned(3, config());
    s.written.clear();
    let op = s.on(consumer, |mut c, now| c.seek(now, Position::PublishTime(5)));
    for _ in 0..3 {
        assert!(s.is_pending(op));
        match s.next() {
            Command::Seek(seek) => s.say(success(seek.request_id)),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(s.completed(op), Ok(Reply::Done)));
    s.on(consumer, |mut c, now| c.seek(now, Position::Id(MessageId::new(1, 2, 1))));
    match s.next() {
        Command::Seek(seek) => assert_eq!(seek.consumer_id, wires[1]),
        other => panic!("{other:?}"),
    }
    s.silent();
}

#[test]
fn a_partition_that_has_moved_hands_nothing_out_before_all_have() {
    for refused in [false, true] {
        let (mut s, consumer, wires) = partitioned(2, config());
        s.written.clear();
        s.send(&[Delivery::new(wires[1], 0, "old").partition(1).frame()]);
        let op = s.on(consumer, |mut c, now| c.seek(now, Position::Earliest));
        let asked = [s.next(), s.next()].map(|c| match c {
            Command::Seek(seek) => seek.request_id,
            other => panic!("{other:?}"),
        });
        assert!(s.receive(consumer).is_none());
        s.say(success(asked[0]));
        s.send(&[Delivery::new(wires[0], 0, "new").partition(0).frame()]);
        s.events.clear();
        s.ms(1000);
        assert!(s.receive(consumer).is_none());
        assert!(s.events.is_empty(), "{:?}", s.events);
        match refused {
            false => s.say(success(asked[1])),
            true => s.say(error(asked[1], ServerError::MetadataError)),
        }
        assert_eq!(s.completed(op).is_err(), refused);
        assert!(s.has_event(|e| matches!(e, Event::Readable(_))));
        let expected: &[&str] = if refused { &["old", "new"] } else { &["new"] };
        let mut texts = s.drain(consumer);
        texts.sort_by_key(|text| std::cmp::Reverse(text.clone()));
        assert_eq!(texts, expected);
    }
}

#[test]
fn last_message_ids_come_in_the_order_of_partitions() {
    let (mut s, consumer, _) = partitioned(2, config());
    s.written.clear();
    let op = s.on(consumer, |mut c, now| c.last_message_ids(now));
    let requests = [s.next(), s.next()].map(|c| match c {
        Command::GetLastMessageId(ask) => ask.request_id,
        other => panic!("{other:?}"),
    });
    s.say(last_id(requests[1], MessageId::new(9, 9, 1), None));
    s.say(last_id(requests[0], MessageId::EARLIEST, None));
    match s.completed(op) {
        Ok(Reply::LastMessageIds(ids)) => {
            assert_eq!(ids, [MessageId::new(-1, -1, 0), MessageId::new(9, 9, 1)]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_of_many_partitions_cannot_start_at_an_id() {
    let mut s = Script::new();
    s.partitions = 2;
    let start = Position::Id(MessageId::new(1, 2, 0));
    s.client.create_reader(s.now, ReaderConfig::new(TOPIC, start)).unwrap();
    s.pump();
    match s.events.pop_front() {
        Some(Event::Closed(_, Some(error))) => assert_eq!(error.kind(), ErrorKind::InvalidConfiguration),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_close_writes_the_acks_first_and_ends_with_the_answer_or_without() {
    for answers in [true, false] {
        let mut s = Script::new();
        let (consumer, wire) = s.open(shared());
        s.on(consumer, |mut c, now| c.acknowledge(now, &id(3))).unwrap();
        let op = s.on(consumer, |mut c, now| c.last_message_ids(now));
        s.next();
        s.on(consumer, |c, now| c.close(now));
        assert_eq!(s.completed(op).unwrap_err().kind(), ErrorKind::AlreadyClosed);
        assert_eq!(s.ack(), (false, vec![(3, vec![])]));
        let close = expect_close(&mut s);
        assert_eq!(close.consumer_id, wire);
        assert_eq!(s.client.consumer(consumer).unwrap_err().kind(), ErrorKind::AlreadyClosed);
        s.send(&[Delivery::new(wire, 4, "late").frame()]);
        assert!(s.events.is_empty());
        match answers {
            true => s.say(success(close.request_id)),
            false => s.cut(),
        }
        assert!(
            matches!(s.events.pop_front(), Some(Event::Closed(HandleId::Consumer(c), None)) if c == consumer)
        );
        assert_eq!(s.client.stats().consumers, 0);
        assert!(s.events.is_empty());
    }
}

#[test]
fn a_close_while_reconnecting_tells_the_acks_of_that_time_first() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(config());
    s.send(&[Delivery::new(wire, 0, "a").frame()]);
    let a = s.receive(consumer).unwrap().message_id();
    s.cut();
    s.on(consumer, |mut c, now| c.acknowledge(now, &a)).unwrap();
    s.events.clear();
    s.on(consumer, |c, now| c.close(now));
    assert_eq!(s.client.consumer(consumer).unwrap_err().kind(), ErrorKind::AlreadyClosed);
    s.ms(200);
    assert!(s.events.is_empty(), "{:?}", s.events);
    s.accept();
    assert_eq!(s.ack(), (false, vec![(0, vec![])]));
    let close = expect_close(&mut s);
    s.silent();
    s.say(success(close.request_id));
    assert!(
        matches!(s.events.pop_front(), Some(Event::Closed(HandleId::Consumer(c), None)) if c == consumer)
    );
    assert_eq!(s.client.stats().consumers, 0);
    s.advance(Duration::from_secs(100));
    s.silent();
}

#[test]
fn a_close_that_cannot_tell_its_acks_in_time_says_how_many_are_lost() {
    let mut s = Script::with(|c| c.operation_timeout = Duration::from_secs(5));
    let (consumer, wire) = s.open(shared());
    s.cut();
    for entry in 0..3 {
        s.on(consumer, |mut c, now| c.acknowledge(now, &id(entry))).unwrap();
    }
    s.events.clear();
    s.on(consumer, |c, now| c.close(now));
    s.ms(4_999);
    s.expect_subscribe();
    assert!(s.events.is_empty(), "{:?}", s.events);
    s.ms(1);
    match s.events.pop_front() {
        Some(Event::Closed(HandleId::Consumer(c), Some(error))) => {
            assert_eq!((c, error.kind()), (consumer, ErrorKind::Timeout));
            assert!(error.to_string().contains("3 acknowledgements"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(expect_close(&mut s).consumer_id, wire, "the SUBSCRIBE may still be heard");
    assert_eq!(s.client.stats().consumers, 0);
}

#[test]
fn a_close_while_reconnecting_with_nothing_to_tell_ends_at_once() {
    for (durable, acknowledged) in [(true, false), (false, true)] {
        let mut s = Script::new();
        let consumer = s.subscribe(ConsumerConfig { durable, ..shared() });
        s.accept();
        s.written.clear();
        s.cut();
        if acknowledged {
            // Nobody will remember: the subscription ended with its consumer.
            s.on(consumer, |mut c, now| c.acknowledge(now, &id(0))).unwrap();
        }
        s.events.clear();
        s.on(consumer, |c, now| c.close(now));
        assert!(matches!(s.events.pop_front(), Some(Event::Closed(_, None))));
        s.advance(Duration::from_secs(100));
        s.silent();
    }
}

#[test]
fn a_close_while_reconnecting_ends_with_what_is_final_and_with_what_was_lost() {
    let mut s = Script::new();
    let (consumer, _) = s.open(config());
    s.cut();
    s.on(consumer, |mut c, now| c.acknowledge(now, &id(0))).unwrap();
    s.events.clear();
    s.on(consumer, |c, now| c.close(now));
    s.ms(200);
    let subscribe = s.expect_subscribe();
    s.say(error(subscribe.request_id, ServerError::TopicNotFound));
    match s.events.pop_front() {
        Some(Event::Closed(_, Some(error))) => {
            assert_eq!(error.kind(), ErrorKind::TopicNotFound);
            assert!(error.to_string().contains("1 acknowledgements"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_closes_waits_for_acks_too_and_says_what_was_lost() {
    for back in [true, false] {
        let mut s = Script::new();
        let (consumer, _) = s.open(config());
        s.cut();
        s.on(consumer, |mut c, now| c.acknowledge(now, &id(0))).unwrap();
        let op = s.client.close(s.now);
        s.pump();
        s.ms(200);
        assert!(s.is_pending(op));
        let request = s.expect_subscribe().request_id;
        if back {
            s.say(success(request));
            assert_eq!(s.ack(), (false, vec![(0, vec![])]));
            let close = expect_close(&mut s).request_id;
            s.say(success(close));
            s.completed(op).unwrap();
        } else {
            s.advance(Duration::from_secs(30));
            assert_eq!(s.completed(op).unwrap_err().kind(), ErrorKind::Timeout);
        }
        assert_eq!(s.client.stats(), ClientStats::default());
    }
}

#[test]
fn a_close_that_the_broker_never_answers_ends_with_a_timeout_that_says_what_may_be_left() {
    let mut s = Script::new();
    let (consumer, _) = s.open(config());
    s.on(consumer, |c, now| c.close(now));
    expect_close(&mut s);
    s.events.clear();
    s.advance(Duration::from_secs(30));
    match s.events.pop_front() {
        Some(Event::Closed(HandleId::Consumer(c), Some(error))) => {
            assert_eq!((c, error.kind()), (consumer, ErrorKind::Timeout));
            assert!(error.to_string().contains("the broker did not answer"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_close_before_the_answer_to_subscribe_undoes_it() {
    let mut s = Script::new();
    let consumer = s.subscribe(config());
    let subscribe = s.expect_subscribe();
    s.on(consumer, |c, now| c.close(now));
    let close = expect_close(&mut s);
    s.say(success(subscribe.request_id));
    assert!(s.events.is_empty());
    s.say(success(close.request_id));
    assert!(matches!(s.events.pop_front(), Some(Event::Closed(_, None))));
    s.silent();
}

#[test]
fn unsubscribe_ends_the_consumer_and_a_refusal_leaves_it() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(config());
    for refused in [true, false] {
        let op = s.on(consumer, |mut c, now| c.unsubscribe(now));
        let request = match s.next() {
            Command::Unsubscribe(unsubscribe) => unsubscribe.request_id,
            other => panic!("{other:?}"),
        };
        match refused {
            true => {
                s.say(error(request, ServerError::MetadataError));
                assert_eq!(s.completed(op).unwrap_err().kind(), ErrorKind::BrokerMetadataError);
                s.send(&[Delivery::new(wire, 0, "a").frame()]);
                assert_eq!(s.drain(consumer), ["a"]);
            }
            false => {
                s.events.clear();
                s.say(success(request));
                assert!(
                    matches!(s.events.pop_front(), Some(Event::Completed(o, Ok(Reply::Done))) if o == op)
                );
                assert!(matches!(s.events.pop_front(), Some(Event::Closed(_, None))));
            }
        }
    }
    s.silent();
}

#[test]
fn operations_asked_for_while_opening_start_when_it_is_open() {
    let mut s = Script::new();
    let consumer = s.subscribe(config());
    let op = s.on(consumer, |mut c, now| c.seek(now, Position::Earliest));
    let second = s.on(consumer, |mut c, now| c.seek(now, Position::Earliest));
    assert_eq!(s.completed(second).unwrap_err().kind(), ErrorKind::NotAllowedError);
    s.accept();
    assert_eq!(s.flow(), 1000);
    match s.next() {
        Command::Seek(seek) => s.say(success(seek.request_id)),
        other => panic!("{other:?}"),
    }
    assert!(s.completed(op).is_ok());
}

#[test]
fn the_active_consumer_and_the_end_of_a_topic_are_news() {
    let mut s = Script::new();
    let (consumer, consumer_id) =
        s.open(ConsumerConfig { subscription_type: SubscriptionType::Failover, ..config() });
    s.say(Command::ActiveConsumerChange(proto::CommandActiveConsumerChange {
        consumer_id,
        is_active: Some(true),
    }));
    s.say(Command::ReachedEndOfTopic(proto::CommandReachedEndOfTopic { consumer_id }));
    let is_mine = |h: &HandleId| *h == HandleId::Consumer(consumer);
    assert!(
        s.has_event(|e| matches!(e, Event::State(h, StateChange::Active { active: true, .. }) if is_mine(h)))
    );
    assert!(s.has_event(|e| matches!(e, Event::State(h, StateChange::EndOfTopic { .. }) if is_mine(h))));
}
