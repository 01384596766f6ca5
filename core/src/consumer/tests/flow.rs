//! What arrives, what it costs, and what is told to the broker about it.

use std::time::Duration;

use super::broker::*;
use crate::wire::command::Command;
use crate::wire::proto::ServerError;
use crate::*;

fn queue_of(size: u32) -> ConsumerConfig {
    ConsumerConfig { receiver_queue_size: size, ..config() }
}

#[test]
fn messages_in_the_same_packet_as_the_answer_to_subscribe_arrive_in_order() {
    let mut s = Script::new();
    let consumer = s.subscribe(config());
    let subscribe = s.expect_subscribe();
    let mut packet = vec![encoded(&success(subscribe.request_id))];
    packet.extend((0..10).map(|i| Delivery::new(subscribe.consumer_id, i, &i.to_string()).frame()));
    s.send(&packet);
    assert_eq!(s.flow(), 1000);
    let events: Vec<_> = s.events.drain(..).collect();
    assert!(matches!(events[..], [Event::Opened(_), Event::Readable(c)] if c == consumer), "{events:?}");
    assert_eq!(s.drain(consumer), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    s.silent();
}

#[test]
fn readable_follows_each_none_once() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(config());
    let readable = |s: &mut Script| s.events.drain(..).filter(|e| matches!(e, Event::Readable(_))).count();
    assert!(s.receive(consumer).is_none());
    s.send(&[Delivery::new(wire, 0, "a").frame(), Delivery::new(wire, 1, "b").frame()]);
    assert_eq!(readable(&mut s), 1);
    s.receive(consumer).unwrap();
    s.send(&[Delivery::new(wire, 2, "c").frame()]);
    assert_eq!(readable(&mut s), 0, "the application was not told that it was empty");
    assert_eq!(s.drain(consumer), ["b", "c"]);
    s.send(&[Delivery::new(wire, 3, "d").frame()]);
    assert_eq!(readable(&mut s), 1);
}

#[test]
fn flow_comes_at_half_the_queue_and_counts_messages_of_batches() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(queue_of(10));
    s.send(&[Delivery::batch(wire, 0, &["a", "b", "c", "d"]).frame(), Delivery::new(wire, 1, "e").frame()]);
    for _ in 0..4 {
        s.receive(consumer).unwrap();
    }
    s.silent();
    s.receive(consumer).unwrap();
    assert_eq!(s.flow(), 5);
}

#[test]
fn members_that_the_broker_did_not_charge_give_back_nothing() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(queue_of(4));
    s.send(&[Delivery::batch(wire, 0, &["a", "b", "c", "d"]).ack_set(&[0b1010]).frame()]);
    assert_eq!(s.receive(consumer).unwrap().message_id(), id(0).in_batch(1, 4));
    s.silent();
    let last = s.receive(consumer).unwrap();
    assert_eq!(text(&last), "d");
    assert_eq!(s.flow(), 2);
    // The members acknowledged before count as done.
    s.on(consumer, |mut c, now| c.acknowledge(now, &last.message_id())).unwrap();
    s.on(consumer, |mut c, now| c.acknowledge(now, &id(0).in_batch(1, 4))).unwrap();
    s.ms(100);
    assert_eq!(s.ack(), (false, vec![(0, vec![])]));
}

#[test]
fn a_batch_with_a_wrong_checksum_is_asked_for_again_and_at_last_discarded_with_the_reason() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(queue_of(10));
    for _ in 0..2 {
        s.send(&[Delivery::batch(wire, 0, &["a"; 5]).corrupt().frame()]);
        match s.next() {
            Command::RedeliverUnacknowledgedMessages(again) => assert!(again.message_ids.is_empty()),
            other => panic!("{other:?}"),
        }
        assert_eq!(s.flow(), 5);
    }
    s.send(&[Delivery::batch(wire, 0, &["a"; 5]).corrupt().frame()]);
    match s.next() {
        Command::Ack(ack) => {
            assert_eq!((ack.validation_error, ack.ack_type), (Some(2), 0));
            assert_eq!(ack.message_id[0].entry_id, 0);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(s.flow(), 5);
    s.send(&[Delivery::new(wire, 1, "fine").frame()]);
    assert_eq!(s.drain(consumer), ["fine"]);
}

#[test]
fn messages_for_nobody_or_from_an_older_connection_are_ignored() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(config());
    let old = s.conn.unwrap();
    s.send(&[Delivery::new(wire + 1, 0, "stray").frame()]);
    s.cut();
    s.advance(Duration::from_secs(1));
    s.accept();
    assert_eq!(s.flow(), 1000);
    let mut late = bytes::BytesMut::from(&Delivery::new(wire, 1, "late").frame()[..]);
    s.client.handle(s.now, Input::Received(old, &mut late));
    s.pump();
    assert_eq!(s.drain(consumer), [""; 0]);
}

#[test]
fn a_batch_is_acknowledged_when_its_last_member_is() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(config());
    s.send(&[Delivery::batch(wire, 0, &["a", "b", "c"]).frame(), Delivery::new(wire, 1, "d").frame()]);
    let ids: Vec<_> = std::iter::from_fn(|| s.receive(consumer)).map(|m| m.message_id()).collect();
    for i in [2, 0] {
        s.on(consumer, |mut c, now| c.acknowledge(now, &ids[i])).unwrap();
    }
    s.ms(500);
    s.silent();
    for i in [1, 3] {
        s.on(consumer, |mut c, now| c.acknowledge(now, &ids[i])).unwrap();
    }
    s.ms(99);
    s.silent();
    s.ms(1);
    assert_eq!(s.ack(), (false, vec![(0, vec![]), (1, vec![])]));
    s.silent();
}

#[test]
fn with_batch_index_acks_the_broker_hears_of_single_members() {
    let mut s = Script::new();
    let (consumer, wire) =
        s.open(ConsumerConfig { batch_index_ack: true, ack_group_time: Duration::ZERO, ..config() });
    s.send(&[Delivery::batch(wire, 0, &["a", "b", "c"]).frame()]);
    for (index, set) in [(1, vec![0b101]), (0, vec![0b100]), (2, vec![])] {
        s.on(consumer, |mut c, now| c.acknowledge(now, &id(0).in_batch(index, 3))).unwrap();
        assert_eq!(s.ack(), (false, vec![(0, set)]));
    }
}

#[test]
fn a_restored_id_acknowledges_its_own_message_only() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(ConsumerConfig { ack_group_time: Duration::ZERO, ..config() });
    let restored = MessageId::from_bytes(&id(4).in_batch(3, 10).to_bytes()).unwrap();
    s.on(consumer, |mut c, now| c.acknowledge(now, &restored)).unwrap();
    s.silent();
    s.send(&[Delivery::batch(wire, 5, &["a", "b"]).frame()]);
    let unknown = id(5).in_batch(1, 0);
    let error = s.on(consumer, |mut c, now| c.acknowledge(now, &unknown)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidMessage);
    s.silent();
}

#[test]
fn a_full_group_leaves_before_its_time() {
    let mut s = Script::new();
    let (consumer, _) = s.open(ConsumerConfig { ack_group_size: 3, ..shared() });
    for entry in 0..3 {
        s.silent();
        s.on(consumer, |mut c, now| c.acknowledge(now, &id(entry))).unwrap();
    }
    assert_eq!(s.ack().1.len(), 3);
}

#[test]
fn cumulative_acks_skip_a_batch_that_is_not_done() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(ConsumerConfig { ack_group_time: Duration::ZERO, ..config() });
    s.send(&[Delivery::batch(wire, 7, &["a", "b", "c"]).frame()]);
    s.on(consumer, |mut c, now| c.acknowledge_cumulative(now, &id(7).in_batch(0, 3))).unwrap();
    assert_eq!(s.ack(), (true, vec![(6, vec![])]));
    s.on(consumer, |mut c, now| c.acknowledge_cumulative(now, &id(7).in_batch(1, 3))).unwrap();
    s.silent();
    s.on(consumer, |mut c, now| c.acknowledge_cumulative(now, &id(7).in_batch(2, 3))).unwrap();
    assert_eq!(s.ack(), (true, vec![(7, vec![])]));
}

#[test]
fn cumulative_acks_are_refused_on_shared_and_key_shared() {
    for subscription_type in [SubscriptionType::Shared, SubscriptionType::KeyShared] {
        let mut s = Script::new();
        let (consumer, _) = s.open(ConsumerConfig { subscription_type, ..config() });
        let error = s.on(consumer, |mut c, now| c.acknowledge_cumulative(now, &id(0))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CumulativeAcknowledgementNotAllowedError);
        s.ms(1000);
        s.silent();
    }
}

#[test]
fn ids_that_are_no_messages_of_the_consumer_are_refused_at_once() {
    let mut s = Script::new();
    let (consumer, _) = s.open(config());
    let foreign = [
        MessageId::EARLIEST,
        MessageId::LATEST,
        MessageId::new(1, -1, -1),
        MessageId::new(1, 1, 3),
        id(1).in_batch(5, 5),
        id(1).in_batch(0, i32::MAX),
    ];
    for wrong in foreign {
        for cumulative in [false, true] {
            let result = s.on(consumer, |mut c, now| match cumulative {
                true => c.acknowledge_cumulative(now, &wrong),
                false => c.acknowledge(now, &wrong),
            });
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidMessage, "{wrong}");
        }
        let result = s.on(consumer, |mut c, now| c.negative_acknowledge(now, &wrong));
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidMessage, "{wrong}");
    }
    s.ms(1000);
    s.silent();
}

#[test]
fn acks_on_a_non_persistent_topic_succeed_and_tell_nobody() {
    let mut s = Script::new();
    let topic = "non-persistent://public/default/t".to_owned();
    let (consumer, wire) = s.open(ConsumerConfig { topic, ..config() });
    s.send(&[Delivery::new(wire, 0, "a").frame()]);
    let id = s.receive(consumer).unwrap().message_id();
    s.on(consumer, |mut c, now| c.acknowledge(now, &id)).unwrap();
    s.on(consumer, |mut c, now| c.acknowledge_cumulative(now, &id)).unwrap();
    s.on(consumer, |mut c, now| c.negative_acknowledge(now, &id)).unwrap();
    s.ms(100_000);
    s.silent();
}

#[test]
fn a_negative_ack_on_shared_asks_for_its_entry_and_drops_queued_copies() {
    let mut s = Script::new();
    let delay = Duration::from_secs(1);
    let (consumer, wire) =
        s.open(ConsumerConfig { negative_ack_redelivery_delay: delay, receiver_queue_size: 6, ..shared() });
    s.send(&[
        Delivery::new(wire, 0, "a").frame(),
        Delivery::batch(wire, 1, &["b", "c", "d"]).frame(),
        Delivery::new(wire, 2, "e").frame(),
    ]);
    let a = s.receive(consumer).unwrap().message_id();
    let b = s.receive(consumer).unwrap().message_id();
    s.on(consumer, |mut c, now| c.negative_acknowledge(now, &a)).unwrap();
    s.on(consumer, |mut c, now| c.negative_acknowledge(now, &b)).unwrap();
    s.on(consumer, |mut c, now| c.acknowledge(now, &a)).unwrap();
    s.ms(100);
    assert_eq!(s.ack(), (false, vec![(0, vec![])]));
    s.ms(899);
    s.silent();
    s.ms(100);
    assert_eq!(s.redeliver(), (vec![1], None));
    assert_eq!(s.flow(), 4, "two taken, two queued copies dropped");
    assert_eq!(s.drain(consumer), ["e"]);
    s.ms(5000);
    s.silent();
}

#[test]
fn a_negative_ack_on_exclusive_asks_for_everything_in_a_new_epoch() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(ConsumerConfig {
        negative_ack_redelivery_delay: Duration::ZERO,
        receiver_queue_size: 4,
        ..config()
    });
    s.send(&[Delivery::new(wire, 0, "a").frame(), Delivery::new(wire, 1, "b").frame()]);
    let a = s.receive(consumer).unwrap().message_id();
    s.on(consumer, |mut c, now| c.negative_acknowledge(now, &a)).unwrap();
    s.ms(0);
    assert_eq!(s.redeliver(), (vec![], Some(1)));
    assert_eq!(s.flow(), 2);
    // Two that were on their way are stale, and their permits come back.
    s.send(&[Delivery::new(wire, 2, "c").epoch(0).frame(), Delivery::new(wire, 3, "d").epoch(0).frame()]);
    assert_eq!(s.flow(), 2);
    s.send(&[Delivery::new(wire, 0, "a").epoch(1).frame()]);
    assert_eq!(s.drain(consumer), ["a"]);
}

#[test]
fn a_queue_of_zero_asks_for_one_message_at_each_receive_and_again_after_a_reconnection() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(queue_of(0));
    s.silent();
    assert!(s.receive(consumer).is_none());
    assert_eq!(s.flow(), 1);
    assert!(s.receive(consumer).is_none());
    s.silent();
    s.cut();
    s.advance(Duration::from_secs(1));
    s.accept();
    assert_eq!(s.flow(), 1);
    s.send(&[Delivery::batch(wire, 0, &["a", "b"]).frame()]);
    assert_eq!(text(&s.receive(consumer).unwrap()), "a");
    assert_eq!(text(&s.receive(consumer).unwrap()), "b");
    s.silent();
    assert!(s.receive(consumer).is_none());
    assert_eq!(s.flow(), 2, "the broker stands at minus one");
}

#[test]
fn a_pause_grants_nothing_and_resume_grants_what_is_owed() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(queue_of(2));
    s.on(consumer, |mut c, now| c.pause(now));
    s.send(&[Delivery::new(wire, 0, "a").frame(), Delivery::new(wire, 1, "b").frame()]);
    assert_eq!(s.drain(consumer), ["a", "b"]);
    s.silent();
    s.on(consumer, |mut c, now| c.resume(now));
    assert_eq!(s.flow(), 2);
}

#[test]
fn a_lost_connection_clears_the_queue_when_the_subscription_is_there_again_and_acks_go_first() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(queue_of(10));
    s.send(&[Delivery::new(wire, 0, "a").frame(), Delivery::new(wire, 1, "b").frame()]);
    let a = s.receive(consumer).unwrap().message_id();
    s.cut();
    assert!(s.has_event(|e| matches!(e, Event::State(_, StateChange::Reconnecting { .. }))));
    s.on(consumer, |mut c, now| c.acknowledge(now, &a)).unwrap();
    assert_eq!(s.on(consumer, |c, _| c.queued_messages()), 1);
    s.advance(Duration::from_secs(1));
    assert_eq!(s.on(consumer, |c, _| c.queued_messages()), 1, "not before SUBSCRIBE is answered");
    assert_eq!(s.accept(), wire);
    assert_eq!(s.on(consumer, |c, _| c.queued_messages()), 0);
    assert_eq!(s.ack(), (false, vec![(0, vec![])]));
    assert_eq!(s.flow(), 10);
    s.silent();
    assert!(s.has_event(|e| matches!(e, Event::State(_, StateChange::Connected { .. }))));
}

#[test]
fn a_close_by_the_broker_and_a_cut_make_one_subscribe() {
    let mut s = Script::new();
    let (_, wire) = s.open(config());
    s.say(close_consumer(wire));
    s.ms(50);
    s.cut();
    s.advance(Duration::from_secs(2));
    assert_eq!(s.accept(), wire);
    assert_eq!(s.flow(), 1000);
    s.advance(Duration::from_secs(10));
    s.silent();
}

#[test]
fn a_subscribe_whose_answer_is_late_is_undone() {
    let mut s = Script::with(|c| c.operation_timeout = Duration::from_secs(3));
    s.subscribe(config());
    let first = s.expect_subscribe();
    s.advance(Duration::from_secs(3));
    match s.next() {
        Command::CloseConsumer(close) => assert_eq!(close.consumer_id, first.consumer_id),
        other => panic!("{other:?}"),
    }
    s.say(success(first.request_id));
    assert!(s.events.is_empty(), "{:?}", s.events);
    s.advance(Duration::from_secs(6));
    s.accept();
    assert_eq!(s.flow(), 1000);
    assert!(s.has_event(|e| matches!(e, Event::Opened(_))));
}

#[test]
fn a_busy_subscription_fails_at_once_where_retries_are_limited() {
    let mut s = Script::with(|c| c.operation_retries = OperationRetries::within_operation_timeout());
    let consumer = s.subscribe(config());
    let request = s.expect_subscribe().request_id;
    s.say(error(request, ServerError::ConsumerBusy));
    match s.events.pop_front() {
        Some(Event::Closed(HandleId::Consumer(c), Some(error))) => {
            assert_eq!((c, error.kind()), (consumer, ErrorKind::ConsumerBusy));
            assert!(error.to_string().contains(TOPIC), "{error}");
        }
        other => panic!("{other:?}"),
    }
    s.advance(Duration::from_secs(60));
    s.silent();
    assert_eq!(s.client.stats().consumers, 0);
}

#[test]
fn a_batch_that_breaks_off_gives_back_its_permits_and_is_done_with_the_members_that_could_be_read() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(ConsumerConfig { ack_group_time: Duration::ZERO, ..queue_of(5) });
    let long = "a payload of some length";
    s.send(&[Delivery::batch(wire, 0, &[long; 3]).claims(5).frame()]);
    let ids = [(); 3].map(|()| s.receive(consumer).unwrap().message_id());
    assert_eq!((s.flow(), s.flow()), (2, 3), "two taken, and then all that is left of it");
    assert!(s.receive(consumer).is_none());
    for id in &ids {
        s.silent();
        s.on(consumer, |mut c, now| c.acknowledge(now, id)).unwrap();
    }
    assert_eq!(s.ack(), (false, vec![(0, vec![])]));
}

#[test]
fn a_batch_of_which_nothing_can_be_read_is_discarded_with_the_reason() {
    let mut s = Script::new();
    let (consumer, wire) = s.open(queue_of(5));
    s.send(&[Delivery::new(wire, 0, "").claims(5).body(&[0xff; 60]).frame()]);
    match s.next() {
        Command::Ack(ack) => assert_eq!((ack.validation_error, ack.message_id[0].entry_id), (Some(3), 0)),
        other => panic!("{other:?}"),
    }
    assert_eq!(s.flow(), 5);
    s.send(&[Delivery::new(wire, 1, "fine").frame()]);
    assert_eq!(s.drain(consumer), ["fine"]);
}

#[test]
fn one_ack_holds_a_thousand_ids_or_what_was_gathered_on_purpose_and_never_too_many_sets() {
    for (group, entries, size, expected) in [
        (5000, 2500, 1, vec![2500]),
        (1000, 1000, 1, vec![1000]),
        (1000, 999, 25_600, vec![250, 250, 250, 249]),
    ] {
        let mut s = Script::new();
        let (consumer, _) =
            s.open(ConsumerConfig { ack_group_size: group, batch_index_ack: true, ..shared() });
        for entry in 0..entries {
            let id = if size > 1 { id(entry).in_batch(0, size) } else { id(entry) };
            s.on(consumer, |mut c, now| c.acknowledge(now, &id)).unwrap();
        }
        s.ms(100);
        let acks: Vec<_> = expected.iter().map(|_| s.ack().1.len()).collect();
        assert_eq!(acks, expected);
        s.silent();
    }
}
