//! Scenarios of producers: receipts lost, late, repeated and wrong. Those of the catalogue are named after their ids.

use std::time::Duration;

use geminga_core::{Batching, ErrorKind, HandleId, MessageId, StateChange};
use geminga_tests::world::script::receipt;
use geminga_tests::world::{Sent, World};

#[test]
fn a_message_is_stored_and_its_id_is_that_of_the_stored_one() {
    let mut w = World::new(1);
    let producer = w.producer("t", |_| {});
    let sent = ["a", "b", "c"].map(|text| w.send(producer, text));
    let ids: Vec<MessageId> = sent.iter().map(|s| w.expect_published(*s)).collect();
    assert_eq!(w.stored("t"), ["a", "b", "c"]);
    let stored = w.broker.stored("t").unwrap();
    for (id, stored) in ids.iter().zip(stored) {
        assert_eq!(id.ledger_id, stored.position.ledger);
        assert_eq!(id.entry_id, stored.position.entry);
        assert_eq!(u32::try_from(id.batch_index).ok(), stored.batch_index);
    }
    w.close_client(0);
    assert!(w.broker.topic("t").unwrap().producers.is_empty());
}

#[test]
fn a_send_whose_receipt_is_lost_is_stored_once() {
    let mut w = World::configured(7, |s| s.cluster.deduplication = true);
    let producer = w.producer("persistent://public/default/t", |c| c.batching = Batching::off());
    w.broker.lose_next_receipt();
    let sent = w.send(producer, "a");
    w.advance(Duration::from_secs(1));
    assert!(w.outcome(sent).is_none());
    w.cut_links();
    w.expect_published(sent);
    assert_eq!(w.stored("t"), ["a"]);
}

#[test]
fn a_restart_of_the_broker_is_a_pause() {
    let mut w = World::new(3);
    let producer = w.producer("t", |c| c.batching = Batching::off());
    let mut sent: Vec<Sent> = Vec::new();
    for round in 0..5 {
        for n in 0..20 {
            sent.push(w.send(producer, format!("{round}/{n}")));
        }
        w.advance(Duration::from_micros(700));
        w.restart_broker(0);
    }
    for s in sent {
        w.expect_published(s);
    }
    let mut seen = Vec::new();
    w.stored("t").into_iter().for_each(|m| {
        if !seen.contains(&m) {
            seen.push(m);
        }
    });
    let expected: Vec<String> = (0..5).flat_map(|r| (0..20).map(move |n| format!("{r}/{n}"))).collect();
    assert_eq!(seen, expected, "everything is there, in the order it was sent");
    let states = w.state_changes(0, HandleId::Producer(producer.id));
    assert!(matches!(states.last(), Some(StateChange::Connected { .. })), "{states:?}");
}

/// Receipts: lower than expected, twice, higher than the head of the line, and with nothing in line.
#[test]
fn pb051_a_receipt_that_fits_no_send_resolves_no_send() {
    let mut w = World::scripted(51);
    w.script.by_hand(&["SEND", "PRODUCER"]);
    let producer = w.create_producer(0, "t", |c| {
        c.batching = Batching::off();
        c.send_timeout = None;
    });
    let asked = w.hear("PRODUCER");
    w.answer(&asked);
    w.await_producer(producer).unwrap();

    let first = w.send(producer, "a");
    let heard = w.hear("SEND");
    let geminga_core::wire::Command::Send(send) = &heard.command else { unreachable!() };
    let (wire_id, sequence) = (send.producer_id, send.sequence_id);
    let link = heard.link;
    let at = |entry| MessageId::new(1, entry, -1);
    w.say_all(link, &[receipt(wire_id, sequence, at(0)), receipt(wire_id, sequence, at(0))]);
    assert_eq!(w.expect_published(first), at(0));

    // With an empty line: twice the old one, then one from the future.
    w.say(link, receipt(wire_id, sequence, at(0)));
    w.advance(Duration::from_secs(1));

    let second = w.send(producer, "b");
    let third = w.send(producer, "c");
    w.hear("SEND");
    w.hear("SEND");
    // Lower than expected: late, ignored.
    w.say(link, receipt(wire_id, sequence, at(0)));
    w.advance(Duration::from_secs(1));
    assert!(w.outcome(second).is_none() && w.outcome(third).is_none());
    assert_eq!(w.script.open_links(), [link], "a late receipt does not hurt the connection");

    // Higher than the head: our picture is wrong. Nothing is resolved; everything is sent again on a new attempt.
    w.say(link, receipt(wire_id, sequence + 2, at(9)));
    let again = w.hear("PRODUCER");
    assert!(w.outcome(second).is_none() && w.outcome(third).is_none(), "no wrong send is resolved");
    w.answer(&again);
    let (b, c) = (w.hear("SEND"), w.hear("SEND"));
    let body = |heard: &geminga_tests::world::script::Heard| heard.payload.as_ref().unwrap().body.clone();
    assert_eq!((&body(&b)[..], &body(&c)[..]), (&b"b"[..], &b"c"[..]));
    w.say_all(b.link, &[receipt(wire_id, sequence + 1, at(1)), receipt(wire_id, sequence + 2, at(2))]);
    assert_eq!(w.expect_published(second), at(1));
    assert_eq!(w.expect_published(third), at(2));
    assert!(w.book.closed(0, HandleId::Producer(producer.id)).is_none());
}

#[test]
fn a_send_timeout_that_the_user_set_is_an_outcome_and_frees_its_slot() {
    let mut w = World::scripted(4);
    let producer = w.producer("t", |c| c.send_timeout = Some(Duration::from_secs(2)));
    let sent = w.send(producer, "a");
    assert_eq!(w.await_outcome(sent).unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(w.stats(0).pending_messages, 0);
    assert_eq!(w.stats(0).memory_used, 0);
}
