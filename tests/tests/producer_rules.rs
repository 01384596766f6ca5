//! Rules of producers that no scenario names: what is sent again, room, answers that come too late, refusals.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind, NodeId, Request};
use geminga_core::wire::proto::ServerError;
use geminga_core::wire::{Command, proto};
use geminga_core::{
    Batching, ErrorKind, Event, HandleId, OperationRetries, OutgoingMessage, ProducerConfig, StateChange,
};
use geminga_tests::world::script::{Heard, close_producer, connected, error, producer_success};
use geminga_tests::world::{ProducerAt, Sent, World};

const SECOND: Duration = Duration::from_secs(1);

fn unbatched(config: &mut ProducerConfig) {
    config.batching = Batching::off();
    config.send_timeout = None;
}

// What is sent again.

#[test]
fn after_each_reconnection_the_same_bytes_go_in_the_same_order() {
    let mut w = World::scripted(1);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", |c| {
        c.send_timeout = None;
        c.batching.max_messages = 3;
    });
    let mut sent: Vec<Sent> = (0..7).map(|n| w.send(producer, format!("{n}"))).collect();
    sent.push(w.send(producer, OutgoingMessage::new("alone").with_deliver_at(1)));
    w.advance(SECOND);
    let frames = |w: &mut World| -> Vec<(Vec<u8>, proto::CommandSend)> {
        let mut frames = Vec::new();
        while let Some(heard) = w.heard("SEND") {
            frames.push((heard.payload.as_ref().unwrap().raw.to_vec(), heard.as_send().clone()));
        }
        frames
    };
    let first = frames(&mut w);
    assert_eq!(first.iter().map(|f| f.1.num_messages()).collect::<Vec<_>>(), [3, 3, 1, 1]);
    for round in 0..4 {
        let link = w.script.open_links()[0];
        match round % 2 {
            0 => w.hang_up(link),
            _ => w.say(link, close_producer(first[0].1.producer_id)),
        }
        w.advance(10 * SECOND);
        assert_eq!(frames(&mut w), first, "round {round}");
    }
    // What is given without a connection goes behind, and what has its receipt does not go again.
    let link = w.script.open_links()[0];
    w.say(link, receipt_for(&first[0].1));
    w.advance(SECOND);
    w.hang_up(link);
    sent.push(w.send(producer, "last"));
    w.advance(10 * SECOND);
    let again = frames(&mut w);
    assert_eq!(again[..3], first[1..]);
    assert_eq!(again.len(), 4);
    let link = w.script.open_links()[0];
    again.iter().for_each(|f| w.say(link, receipt_for(&f.1)));
    w.expect_all_published(sent);
}

#[test]
fn a_checksum_error_of_an_intact_frame_sends_everything_again_on_the_same_link() {
    let mut w = World::scripted(2);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", unbatched);
    let sent = ["a", "b"].map(|m| w.send(producer, m));
    let (a, _) = (w.hear("SEND"), w.hear("SEND"));
    w.say(a.link, send_error(&a, ServerError::ChecksumError));
    let again = [w.hear("SEND"), w.hear("SEND")];
    assert_eq!(
        again.each_ref().map(|h| (h.link, h.texts())),
        [(a.link, vec!["a".to_owned()]), (a.link, vec!["b".to_owned()])]
    );
    again.iter().for_each(|h| w.say(h.link, h.receipt(0)));
    w.expect_all_published(sent);
    assert_eq!(w.script.count("PRODUCER"), 1);
}

#[test]
fn a_message_that_is_not_allowed_fails_alone() {
    let mut w = World::scripted(3);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", unbatched);
    let sent = ["a", "b", "c"].map(|m| w.send(producer, m));
    let heard = [w.hear("SEND"), w.hear("SEND"), w.hear("SEND")];
    w.say(heard[0].link, heard[0].receipt(0));
    w.say(heard[1].link, send_error(&heard[1], ServerError::NotAllowedError));
    w.say(heard[2].link, heard[2].receipt(1));
    w.expect_published(sent[0]);
    assert_eq!(w.await_outcome(sent[1]).unwrap_err().kind(), ErrorKind::NotAllowedError);
    w.expect_published(sent[2]);
    assert_eq!((w.script.count("PRODUCER"), w.script.count("SEND")), (1, 3));
}

#[test]
fn a_storage_failure_is_a_pause_with_a_higher_epoch() {
    let mut w = World::scripted(4);
    w.script.by_hand(&["SEND", "PRODUCER"]);
    let producer = w.create_producer(0, "t", unbatched);
    let asked = w.hear("PRODUCER");
    w.answer(&asked);
    w.await_producer(producer).unwrap();
    let sent = ["a", "b"].map(|m| w.send(producer, m));
    let heard = [w.hear("SEND"), w.hear("SEND")];
    w.say(heard[0].link, send_error(&heard[0], ServerError::PersistenceError));
    let again = w.hear("PRODUCER");
    assert_eq!(again.link, asked.link);
    let (was, is) = (asked.as_producer(), again.as_producer());
    assert!(is.epoch() > was.epoch());
    assert_eq!(is.producer_id, was.producer_id);
    // The name that the broker generated is kept, and still is no name of the user's.
    assert_eq!((was.producer_name.as_deref(), is.producer_name.as_deref()), (None, Some("script-1")));
    assert!(!is.user_provided_producer_name());
    w.answer(&again);
    let heard = [w.hear("SEND"), w.hear("SEND")];
    assert_eq!(heard.each_ref().map(Heard::texts), [["a"], ["b"]]);
    heard.iter().for_each(|h| w.say(h.link, h.receipt(0)));
    w.expect_all_published(sent);
}

/// The same with a broker, for named and unnamed producers.
#[test]
fn a_storage_failure_at_the_broker_is_survived() {
    for name in [None, Some("n".to_owned())] {
        let mut w = World::new(5);
        let producer = w.producer("t", |c| {
            unbatched(c);
            c.name = name.clone();
        });
        let failure =
            FaultKind::Refuse(Request::Send, ServerError::PersistenceError, "no bookies".to_owned());
        w.broker.inject(Fault::new(failure).after(1).times(2));
        let sent: Vec<Sent> = (0..5).map(|n| w.send(producer, format!("{n}"))).collect();
        w.expect_all_published(sent);
        // Those behind the refused ones were stored on the way; the repetition puts everything in order.
        let stored = w.stored("t");
        assert_eq!(stored[..1], ["0"]);
        assert_eq!(stored[stored.len() - 4..], ["1", "2", "3", "4"], "{stored:?}");
    }
}

#[test]
fn an_exceeded_quota_keeps_what_is_pending_or_fails_it_as_the_broker_says() {
    for (code, fails) in [
        (ServerError::ProducerBlockedQuotaExceededError, false),
        (ServerError::ProducerBlockedQuotaExceededException, true),
    ] {
        let mut w = World::scripted(6);
        w.script.by_hand(&["SEND"]);
        let producer = w.producer("t", unbatched);
        let sent = w.send(producer, "a");
        let heard = w.hear("SEND");
        w.script.by_hand(&["SEND", "PRODUCER"]);
        w.say(heard.link, close_producer(heard.as_send().producer_id));
        for _ in 0..3 {
            let asked = w.hear("PRODUCER");
            w.say(asked.link, error(asked.request_id(), code, "quota"));
            w.advance(Duration::from_millis(10));
        }
        assert_eq!(w.outcome(sent).is_some(), fails);
        let asked = w.hear("PRODUCER");
        w.answer(&asked);
        let later = w.send(producer, "b");
        let expected = if fails { vec!["b"] } else { vec!["a", "b"] };
        for text in expected {
            let heard = w.hear("SEND");
            assert_eq!(heard.texts(), [text]);
            w.say(heard.link, heard.receipt(0));
        }
        w.expect_published(later);
        match fails {
            true => assert_eq!(
                w.await_outcome(sent).unwrap_err().kind(),
                ErrorKind::ProducerBlockedQuotaExceededException
            ),
            false => w.expect_all_published([sent]),
        }
    }
}

/// Pending messages meet a broker that takes less: those too large fail, the others are stored.
#[test]
fn what_a_new_broker_would_refuse_fails_instead_of_being_sent_for_ever() {
    let mut w = World::scripted(7);
    w.script.by_hand(&["SEND", "CONNECT"]);
    let producer = w.create_producer(0, "t", unbatched);
    let connect = w.hear("CONNECT");
    w.answer(&connect);
    w.await_producer(producer).unwrap();
    let small = w.send(producer, "small");
    let large = w.send(producer, vec![b'x'; 1 << 20]);
    let last = w.send(producer, "last");
    for _ in 0..3 {
        w.hear("SEND");
    }
    w.hang_up(connect.link);
    let connect = w.hear("CONNECT");
    let mut answer = connected(21);
    if let Command::Connected(c) = &mut answer {
        c.max_message_size = Some(100 << 10);
    }
    w.say(connect.link, answer);
    let heard = [w.hear("SEND"), w.hear("SEND")];
    assert_eq!(heard.each_ref().map(Heard::texts), [["small"], ["last"]]);
    heard.iter().for_each(|h| w.say(h.link, h.receipt(0)));
    w.expect_all_published([small, last]);
    assert_eq!(w.await_outcome(large).unwrap_err().kind(), ErrorKind::MessageTooBig);
    let refused = w.try_send(producer, vec![b'x'; 101 << 10]).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::MessageTooBig, "the new limit holds from now on");
}

// Room.

#[test]
fn a_refusal_for_want_of_room_is_followed_by_one_writable() {
    let mut w = World::scripted(8);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", |c| {
        unbatched(c);
        c.max_pending_messages = 3;
    });
    for round in 1..4 {
        let sent = [0; 3].map(|_| w.send(producer, "m"));
        for _ in 0..5 {
            let refused = w.try_send(producer, "more").unwrap_err();
            assert_eq!(refused.error.kind(), ErrorKind::ProducerQueueIsFull);
        }
        w.advance(SECOND);
        assert_eq!(writable(&w, producer), round - 1, "not before there is room");
        for _ in 0..3 {
            let heard = w.hear("SEND");
            w.say(heard.link, heard.receipt(0));
        }
        w.expect_all_published(sent);
        assert_eq!(writable(&w, producer), round);
    }
}

#[test]
fn a_full_queue_sends_what_is_gathered_instead_of_waiting_for_company() {
    let mut w = World::scripted(9);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", |c| {
        c.max_pending_messages = 5;
        c.batching.max_publish_delay = 20 * SECOND;
    });
    let sent: Vec<Sent> = (0..5).map(|n| w.send(producer, format!("{n}"))).collect();
    w.try_send(producer, "more").unwrap_err();
    let start = w.elapsed();
    let heard = w.hear("SEND");
    assert!(w.elapsed() - start < SECOND);
    w.say(heard.link, heard.receipt(0));
    w.expect_all_published(sent);
}

#[test]
fn a_message_that_makes_no_sense_takes_no_place() {
    let mut w = World::scripted(10);
    let producer = w.producer("t", |c| c.max_pending_messages = 5);
    for _ in 0..10 {
        let null = OutgoingMessage { null_value: true, ..OutgoingMessage::new("not null") };
        assert_eq!(w.try_send(producer, null).unwrap_err().error.kind(), ErrorKind::InvalidMessage);
        let id = OutgoingMessage::new("m").with_sequence_id(u64::MAX);
        assert_eq!(w.try_send(producer, id).unwrap_err().error.kind(), ErrorKind::InvalidMessage);
    }
    assert_eq!((w.stats(0).pending_messages, w.stats(0).memory_used), (0, 0));
}

#[test]
fn a_flush_reports_the_first_failure_among_what_it_waited_for() {
    let mut w = World::scripted(11);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", unbatched);
    let sent = ["a", "b", "c"].map(|m| w.send(producer, m));
    let op = w.flush(producer);
    let later = w.send(producer, "later");
    let heard = [w.hear("SEND"), w.hear("SEND"), w.hear("SEND"), w.hear("SEND")];
    w.say(heard[0].link, heard[0].receipt(0));
    w.say(heard[1].link, send_error(&heard[1], ServerError::NotAllowedError));
    w.advance(SECOND);
    assert!(w.book.completed(op).is_none(), "one is still under way");
    w.say(heard[2].link, heard[2].receipt(0));
    assert_eq!(w.complete(op).unwrap_err().kind(), ErrorKind::NotAllowedError);
    w.say(heard[3].link, heard[3].receipt(0));
    w.expect_all_published([sent[0], sent[2], later]);
    let op = w.flush(producer);
    w.complete(op).unwrap();
}

#[test]
fn a_flush_of_a_producer_that_is_closing_does_not_say_that_all_is_stored() {
    let mut w = World::scripted(12);
    w.script.by_hand(&["SEND", "CLOSE_PRODUCER"]);
    let producer = w.producer("t", unbatched);
    w.send(producer, "a");
    let now = w.now();
    w.machine(0).producer(producer.id).unwrap().close(now);
    let op = w.flush(producer);
    assert_eq!(w.complete(op).unwrap_err().kind(), ErrorKind::AlreadyClosed);
}

// Answers that come too late.

#[test]
fn a_creation_that_was_given_up_is_undone_at_the_broker() {
    let mut w = World::configured(12, |s| {
        s.client.operation_timeout = 2 * SECOND;
        s.client.operation_retries = OperationRetries::within_operation_timeout();
    });
    w.broker.inject(Fault::new(FaultKind::Delay(Request::Producer, 5 * SECOND)));
    let producer = w.create_producer(0, "t", |c| c.name = Some("n".to_owned()));
    let refused = w.await_producer(producer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused}");
    assert!(refused.to_string().contains("persistent://public/default/t"), "{refused}");
    w.advance(10 * SECOND);
    assert_eq!((w.stats(0).requests, w.stats(0).producers), (0, 0));
    // Nothing holds the name.
    w.producer("t", |c| c.name = Some("n".to_owned()));
}

#[test]
fn a_late_success_of_an_older_attempt_is_undone_and_not_taken_for_the_newer() {
    let mut w = World::scripted(13);
    w.script.by_hand(&["PRODUCER", "CLOSE_PRODUCER"]);
    let producer = w.create_producer(0, "t", |_| {});
    let first = w.hear("PRODUCER");
    let undone = w.hear("CLOSE_PRODUCER");
    assert_eq!(undone.as_close_producer().producer_id, first.as_producer().producer_id);
    let second = w.hear("PRODUCER");
    assert_ne!(first.request_id(), second.request_id());
    w.say(first.link, producer_success(first.request_id(), "late", 5));
    w.answer(&undone);
    w.advance(SECOND);
    assert!(!w.book.is_open(0, HandleId::Producer(producer.id)));
    w.say(second.link, producer_success(second.request_id(), "n", -1));
    w.await_producer(producer).unwrap();
    assert_eq!(w.machine(0).producer(producer.id).unwrap().name(), Some("n"));
}

#[test]
fn a_producer_closed_while_it_is_created_is_closed_at_the_broker() {
    let mut w = World::scripted(14);
    w.script.by_hand(&["PRODUCER", "CLOSE_PRODUCER"]);
    let producer = w.create_producer(0, "t", |_| {});
    let asked = w.hear("PRODUCER");
    let now = w.now();
    w.machine(0).producer(producer.id).unwrap().close(now);
    let close = w.hear("CLOSE_PRODUCER");
    assert_eq!(close.as_close_producer().producer_id, asked.as_producer().producer_id);
    w.answer(&asked);
    w.advance(SECOND);
    assert!(w.book.closed(0, HandleId::Producer(producer.id)).is_none(), "not before the broker said so");
    w.answer(&close);
    assert!(w.await_closed(0, HandleId::Producer(producer.id)).is_none());
    assert!(!w.events().iter().any(|o| matches!(o.event, Event::Opened(_))));
    assert_eq!(w.stats(0).requests, 0);
}

#[test]
fn an_unanswered_close_ends_at_the_operation_timeout() {
    let mut w = World::scripted(15);
    let producer = w.producer("t", |_| {});
    w.script.by_hand(&["CLOSE_PRODUCER"]);
    let start = w.elapsed();
    let now = w.now();
    w.machine(0).producer(producer.id).unwrap().close(now);
    let error = w.await_closed(0, HandleId::Producer(producer.id)).expect("an error");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("the broker did not answer"), "{error}");
    let took = w.elapsed() - start;
    assert!((30 * SECOND..31 * SECOND).contains(&took), "{took:?}");
}

#[test]
fn a_close_without_a_connection_ends_at_once() {
    let mut w = World::new(16);
    let producer = w.producer("t", |c| c.send_timeout = None);
    w.stop_broker(0);
    w.advance(5 * SECOND);
    let sent = w.send(producer, "m");
    let start = w.elapsed();
    w.close_producer(producer);
    assert_eq!(w.elapsed(), start);
    assert_eq!(w.await_outcome(sent).unwrap_err().kind(), ErrorKind::AlreadyClosed);
    let gone = w.try_send(producer, "late").unwrap_err();
    assert_eq!(gone.error.kind(), ErrorKind::AlreadyClosed);
}

// Moving.

#[test]
fn the_new_owner_named_by_a_close_is_used_at_once_and_the_pause_is_told() {
    for announce in [true, false] {
        let mut w = World::with_brokers(17, 2);
        let producer = w.producer("t", unbatched);
        let sent = w.send(producer, "a");
        w.expect_published(sent);
        let from = w.broker.owner("t").unwrap();
        let to = NodeId(1 - from.0);
        let now = w.now();
        let start = w.elapsed();
        w.broker.move_topic(now, "t", to, announce).unwrap();
        let during = w.send(producer, "b");
        w.expect_published(during);
        let took = w.elapsed() - start;
        assert_eq!(took < Duration::from_millis(50), announce, "{took:?}");
        assert_eq!(w.broker.owner("t"), Some(to));
        let states = w.state_changes(0, HandleId::Producer(producer.id));
        let [StateChange::Reconnecting { topic, reason }, StateChange::Connected { .. }] = &states[..] else {
            panic!("{states:?}")
        };
        assert_eq!(topic, "persistent://public/default/t");
        assert!(reason.to_string().contains("the broker closed the producer"), "{reason}");
        assert_eq!(w.stored("t"), ["a", "b"]);
    }
}

fn send_error(heard: &Heard, code: ServerError) -> Command {
    Command::SendError(proto::CommandSendError {
        producer_id: heard.as_send().producer_id,
        sequence_id: heard.as_send().sequence_id,
        error: code as i32,
        message: "no".to_owned(),
    })
}

fn receipt_for(send: &proto::CommandSend) -> Command {
    geminga_tests::world::script::receipt(
        send.producer_id,
        send.sequence_id,
        geminga_core::MessageId::new(1, send.sequence_id as i64, -1),
    )
}

fn writable(w: &World, producer: ProducerAt) -> usize {
    w.events().iter().filter(|o| matches!(o.event, Event::Writable(id) if id == producer.id)).count()
}
