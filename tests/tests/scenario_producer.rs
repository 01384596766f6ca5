//! Scenarios of producers: receipts lost, late, repeated and wrong. Those of the catalogue are named after their ids.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind, Request};
use geminga_core::wire::proto::ServerError;
use geminga_core::wire::{Checksum, Command};
use geminga_core::{
    AccessMode, Batching, Error, ErrorKind, Event, HandleId, MessageId, Mono, OperationRetries,
    OutgoingMessage, StateChange,
};
use geminga_tests::network::Direction;
use geminga_tests::world::script::{Heard, close_producer, error, partitions, producer_success, receipt};
use geminga_tests::world::{ProducerAt, Sent, World};

const SECOND: Duration = Duration::from_secs(1);

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
    let Command::Send(send) = &heard.command else { unreachable!() };
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
    let body = |heard: &Heard| heard.payload.as_ref().unwrap().body.clone();
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

/// Five sends without receipt; the broker closes the producer and then says that the topic is terminated.
#[test]
fn pb029_a_terminated_topic_fails_what_is_pending_and_ends_the_producer() {
    let mut w = World::scripted(29);
    w.script.by_hand(&["SEND", "PRODUCER"]);
    let producer = opened_by_hand(&mut w, |c| {
        c.batching = Batching::off();
        c.send_timeout = None;
    });
    let sent: Vec<Sent> = (0..5).map(|n| w.send(producer, format!("{n}"))).collect();
    let heard = w.hear("SEND");
    w.say(heard.link, close_producer(heard.as_send().producer_id));
    let asked = w.hear("PRODUCER");
    w.say(asked.link, error(asked.request_id(), ServerError::TopicTerminatedError, "terminated"));
    let told = w.elapsed();
    for s in sent {
        assert_eq!(w.await_outcome(s).unwrap_err().kind(), ErrorKind::TopicTerminated);
    }
    assert!(w.elapsed() - told < Duration::from_millis(10), "at once");
    let end = w.await_closed(0, HandleId::Producer(producer.id));
    assert_eq!(end.unwrap().kind(), ErrorKind::TopicTerminated);
    let asked = w.script.count("PRODUCER");
    w.advance(120 * SECOND);
    assert_eq!(w.script.count("PRODUCER"), asked, "no more attempts");
    assert_eq!((w.stats(0).producers, w.stats(0).pending_messages, w.stats(0).memory_used), (0, 0, 0));
}

#[test]
fn pb029_a_topic_terminated_at_the_broker_ends_its_producer() {
    let mut w = World::new(29);
    let producer = w.producer("t", |c| c.batching = Batching::off());
    let first = w.send(producer, "stored");
    w.expect_published(first);
    w.broker.inject(Fault::new(FaultKind::Ignore(Request::Send)).times(5));
    let sent: Vec<Sent> = (0..5).map(|n| w.send(producer, format!("{n}"))).collect();
    w.advance(SECOND);
    let now = w.now();
    w.broker.terminate_topic(now, "t").unwrap();
    for s in sent {
        assert_eq!(w.await_outcome(s).unwrap_err().kind(), ErrorKind::TopicTerminated);
    }
    w.await_closed(0, HandleId::Producer(producer.id));
    assert_eq!(w.stored("t"), ["stored"]);
}

/// Sequence ids come from what the broker said at the first attachment, once; not from what it says later.
#[test]
fn pb031_sequence_ids_are_assigned_once_the_broker_said_where_to_start() {
    for (last, expected) in [(-1, [0, 1, 2]), (41, [42, 43, 44])] {
        let mut w = World::scripted(31);
        w.script.by_hand(&["SEND", "PRODUCER"]);
        let producer = w.create_producer(0, "t", |c| c.batching = Batching::off());
        let asked = w.hear("PRODUCER");
        let early = w.try_send(producer, "early").unwrap_err();
        assert_eq!(early.error.kind(), ErrorKind::ProducerNotInitialized);
        assert_eq!(&early.message.payload[..], b"early", "the message comes back");
        w.say(asked.link, producer_success(asked.request_id(), "n", last));
        w.await_producer(producer).unwrap();
        let mut sent = vec![w.send(producer, "a"), w.send(producer, "b")];
        let heard = [w.hear("SEND"), w.hear("SEND")];
        w.hang_up(heard[0].link);
        sent.push(w.send(producer, "c"));
        // The broker has stored the first by now, and nothing moves for it.
        let asked = w.hear("PRODUCER");
        w.say(asked.link, producer_success(asked.request_id(), "n", expected[0]));
        let heard = [w.hear("SEND"), w.hear("SEND"), w.hear("SEND")];
        assert_eq!(heard.each_ref().map(|h| h.as_send().sequence_id as i64), expected);
        for (h, s) in heard.iter().zip(sent) {
            w.say(h.link, h.receipt(7));
            w.expect_published(s);
        }
    }
}

/// The receipt of a batch of ten: with the first id, with the first and the highest, with the last.
#[test]
fn pb033_the_last_sequence_id_is_the_highest_of_a_batch() {
    let send_ten = |w: &mut World, producer, ids: &[Option<u64>]| -> (Vec<Sent>, Heard) {
        let message = |id: &Option<u64>| OutgoingMessage { sequence_id: *id, ..OutgoingMessage::new("m") };
        let sent = ids.iter().map(|id| w.send(producer, message(id))).collect();
        w.flush(producer);
        (sent, w.hear("SEND"))
    };
    let counted = [None; 10];
    let user = [Some(5), Some(6), Some(9)];
    for (ids, named, highest) in [
        (&counted[..], 0, None),
        (&counted[..], 0, Some(9)),
        (&counted[..], 9, None),
        (&user[..], 5, Some(9)),
    ] {
        let mut w = World::scripted(33);
        w.script.by_hand(&["SEND"]);
        let producer = w.producer("t", |_| {});
        let (sent, heard) = send_ten(&mut w, producer, ids);
        assert_eq!(heard.as_send().highest_sequence_id, Some(9));
        assert_eq!(last_sequence_id(&mut w, producer), -1);
        let mut answer = receipt(heard.as_send().producer_id, named, MessageId::new(1, 0, -1));
        if let Command::SendReceipt(r) = &mut answer {
            r.highest_sequence_id = highest;
        }
        w.say(heard.link, answer);
        for (n, s) in sent.into_iter().enumerate() {
            assert_eq!(w.expect_published(s).batch_index, n as i32);
        }
        assert_eq!(last_sequence_id(&mut w, producer), 9, "receipt {named} {highest:?}");
    }
}

/// Thirty messages too large, then ten good ones, then one more than there is room for.
#[test]
fn pb035_a_message_too_large_takes_no_place() {
    for batching in [Batching::off(), Batching::default()] {
        let mut w = World::scripted(35);
        w.script.by_hand(&["SEND"]);
        let producer = w.producer("t", |c| {
            c.batching = batching;
            c.max_pending_messages = 10;
        });
        let large = bytes::Bytes::from(vec![0; 5 << 20]);
        for _ in 0..30 {
            let refused = w.try_send(producer, large.clone()).unwrap_err();
            assert_eq!(refused.error.kind(), ErrorKind::MessageTooBig);
            assert!(!refused.error.is_retryable());
            assert_eq!(refused.message.payload.len(), large.len());
        }
        assert_eq!((w.stats(0).pending_messages, w.stats(0).memory_used), (0, 0));
        let sent: Vec<Sent> = (0..10).map(|n| w.send(producer, format!("{n}"))).collect();
        let refused = w.try_send(producer, "eleventh").unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::ProducerQueueIsFull);
        w.advance(SECOND);
        assert!(w.script.log().iter().all(|h| h.payload.as_ref().is_none_or(|p| p.raw.len() < 1000)));
        while let Some(heard) = w.heard("SEND") {
            w.say(heard.link, heard.receipt(0));
        }
        w.expect_all_published(sent);
        assert_eq!(w.stats(0).pending_messages, 0);
    }
}

/// The budget is filled, everything times out, and then the broker answers again.
#[test]
fn pb036_timed_out_sends_give_their_memory_and_places_back() {
    let mut w = World::configured(36, |s| {
        s.scripted = true;
        s.client.memory_limit = 1 << 20;
    });
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", |c| c.send_timeout = Some(SECOND));
    let mut sent = Vec::new();
    let refused = loop {
        match w.try_send(producer, vec![0; 10_000]) {
            Ok(s) => sent.push(s),
            Err(refused) => break refused.error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::MemoryBufferIsFull);
    assert_eq!(sent.len(), (1 << 20) / 10_000 + 1);
    for s in &sent {
        assert_eq!(w.await_outcome(*s).unwrap_err().kind(), ErrorKind::Timeout);
    }
    assert_eq!((w.stats(0).memory_used, w.stats(0).pending_messages), (0, 0));
    assert_eq!(writable(&w, producer), 1, "one Writable for one refusal");
    while w.heard("SEND").is_some() {}
    let again = w.send(producer, "again");
    let heard = w.hear("SEND");
    w.say(heard.link, heard.receipt(0));
    w.expect_published(again);
}

/// Two flushes overlap, one has nothing gathered but sends without receipt, one has nothing to wait for.
#[test]
fn pb037_each_flush_completes_once_and_after_all_that_was_sent_before_it() {
    let mut w = World::scripted(37);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", |_| {});
    let batch: Vec<Sent> = ["a", "b", "c"].map(|m| w.send(producer, m)).into();
    let (one, two) = (w.flush(producer), w.flush(producer));
    let first = w.hear("SEND");
    let later = w.send(producer, "d");
    let three = w.flush(producer);
    let second = w.hear("SEND");
    let four = w.flush(producer);
    w.advance(SECOND);
    assert!([one, two, three, four].iter().all(|op| w.book.completed(*op).is_none()));
    w.say(first.link, first.receipt(0));
    w.complete(one).unwrap();
    w.complete(two).unwrap();
    batch.into_iter().for_each(|s| assert!(w.outcome(s).unwrap().is_ok()));
    assert!([three, four].iter().all(|op| w.book.completed(*op).is_none()));
    w.say(second.link, second.receipt(1));
    w.complete(three).unwrap();
    w.complete(four).unwrap();
    w.expect_published(later);
    let idle = w.flush(producer);
    w.settle();
    assert!(w.book.completed(idle).is_some(), "nothing to wait for");
}

/// A hundred sends with late receipts, a flush and a close: nothing is lost by the close.
#[test]
fn pb038_a_flush_waits_for_receipts_so_that_a_close_after_it_loses_nothing() {
    for batching in
        [Batching::default(), Batching::off(), Batching { max_messages: 7, ..Batching::default() }]
    {
        let mut w = World::new(38);
        let producer = w.producer("t", |c| c.batching = batching);
        let late = FaultKind::Delay(Request::Send, Duration::from_millis(500));
        w.broker.inject(Fault::new(late).times(u32::MAX));
        let sent: Vec<Sent> = (0..100).map(|n| w.send(producer, format!("{n}"))).collect();
        let op = w.flush(producer);
        let start = w.elapsed();
        w.complete(op).unwrap();
        assert!(w.elapsed() - start >= Duration::from_millis(500), "{:?}", w.elapsed() - start);
        assert!(sent.iter().all(|s| matches!(w.outcome(*s), Some(Ok(_)))));
        w.close_producer(producer);
        assert_eq!(w.stored("t").len(), 100);
    }
}

/// The network is cut without a word; the broker holds the name for 20 s more.
#[test]
fn pb041_a_named_producer_comes_back_once_the_broker_lets_go_of_its_name() {
    for retries in [OperationRetries::default(), OperationRetries::within_operation_timeout()] {
        let mut w = World::configured(41, |s| {
            s.scripted = true;
            s.client.operation_retries = retries;
        });
        w.script.by_hand(&["SEND", "PRODUCER"]);
        let producer = opened_by_hand(&mut w, |c| {
            c.name = Some("n".to_owned());
            c.batching = Batching::off();
            c.send_timeout = Some(60 * SECOND);
        });
        let sent = ["a", "b", "c"].map(|m| w.send(producer, m));
        for _ in 0..3 {
            w.hear("SEND");
        }
        w.silence_links();
        let mut asked = w.hear("PRODUCER");
        let (start, mut epoch) = (asked.at, 0);
        while asked.at.since(start) < 20 * SECOND {
            let request = asked.as_producer();
            assert!(request.epoch() > epoch, "the epoch rises");
            epoch = request.epoch();
            assert_eq!((request.producer_name(), request.user_provided_producer_name()), ("n", true));
            w.say(asked.link, error(asked.request_id(), ServerError::ProducerBusy, "n is connected"));
            asked = w.hear("PRODUCER");
        }
        w.answer(&asked);
        let again: Vec<Heard> = (0..3).map(|_| w.hear("SEND")).collect();
        let texts: Vec<String> = again.iter().flat_map(Heard::texts).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        again.iter().for_each(|h| w.say(h.link, h.receipt(0)));
        w.expect_all_published(sent);
        assert!(w.heard("SEND").is_none(), "each once");
    }
}

/// The same with a broker that finds out by itself that the old link is dead.
#[test]
fn pb041_a_named_producer_takes_its_name_back_from_its_dead_link() {
    let mut w = World::configured(41, |s| s.cluster.deduplication = true);
    let producer = w.producer("t", |c| c.name = Some("n".to_owned()));
    w.broker.inject(Fault::new(FaultKind::LoseReceipt));
    let sent = ["a", "b", "c"].map(|m| {
        let s = w.send(producer, m);
        w.advance(Duration::from_millis(5));
        s
    });
    w.silence_links();
    w.expect_all_published(sent);
    assert_eq!(w.stored("t"), ["a", "b", "c"]);
    assert!(w.elapsed() < 30 * SECOND, "{:?}", w.elapsed());
}

/// One property of 100 KB, then 5,000 small ones, then metadata beyond the largest frame.
#[test]
fn pb042_metadata_of_any_size_travels_or_is_refused_before_it_is_sent() {
    for batching in [Batching::off(), Batching::default()] {
        let mut w = World::new(42);
        let producer = w.producer("t", |c| c.batching = batching);
        let large = OutgoingMessage::new("large").with_property("p", "x".repeat(100_000));
        let mut many = OutgoingMessage::new("many");
        for n in 0..5000 {
            many = many.with_property(format!("key-{n}"), format!("{n:040}"));
        }
        let expected = [large.properties.clone(), many.properties.clone()];
        let too_large = OutgoingMessage::new("too large").with_property("p", "x".repeat(6 << 20));
        let sent = [w.send(producer, large), w.send(producer, many)];
        let refused = w.try_send(producer, too_large).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::MessageTooBig);
        assert!(refused.error.to_string().contains("5242880"), "{}", refused.error);
        w.expect_all_published(sent);
        let stored = w.broker.stored("t").unwrap();
        assert_eq!(stored.iter().map(|m| &m.properties[..]).collect::<Vec<_>>(), expected);
    }
}

/// The socket stalls in the midst of a frame, the sends time out, others follow, and the socket goes on.
#[test]
fn pb043_what_is_being_written_stays_whole_after_a_send_timeout() {
    let mut w = World::configured(43, |s| {
        s.scripted = true;
        s.client.busy_keep_alive_interval = 60 * SECOND;
    });
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", |c| {
        c.batching = Batching { max_bytes: 200_000, ..Batching::default() };
        c.send_timeout = Some(SECOND);
    });
    w.stall(Direction::Up);
    let first: Vec<Sent> = (0..20u8).map(|n| w.send(producer, vec![n; 50_000])).collect();
    w.advance(2 * SECOND);
    for s in first {
        assert_eq!(w.await_outcome(s).unwrap_err().kind(), ErrorKind::Timeout);
    }
    let second: Vec<Sent> = (100..120u8).map(|n| w.send(producer, vec![n; 50_000])).collect();
    w.unstall(Direction::Up);
    let mut done = 0;
    while done < second.len() {
        let heard = w.hear("SEND");
        assert_eq!(heard.payload.as_ref().unwrap().checksum, Checksum::Valid);
        for text in heard.texts() {
            let bytes = text.as_bytes();
            assert!(bytes.len() == 50_000 && bytes.iter().all(|b| *b == bytes[0]), "torn");
        }
        w.say(heard.link, heard.receipt(0));
        w.advance(Duration::from_millis(10));
        done = second.iter().filter(|s| w.outcome(**s).is_some()).count();
    }
    w.expect_all_published(second);
}

/// Flush, timer and close where only one partition has something gathered.
#[test]
fn pb045_no_send_without_a_message_is_ever_written() {
    let mut w = World::scripted(45);
    w.script.by_hand(&["SEND", "PARTITIONED_METADATA"]);
    let producer = w.create_producer(0, "t", |_| {});
    let asked = w.hear("PARTITIONED_METADATA");
    w.say(asked.link, partitions(asked.request_id(), 4));
    w.await_producer(producer).unwrap();
    w.flush(producer);
    w.advance(SECOND);
    assert_eq!(w.script.count("SEND"), 0);
    let sent = w.send(producer, "a");
    let op = w.flush(producer);
    let heard = w.hear("SEND");
    w.advance(SECOND);
    w.say(heard.link, heard.receipt(0));
    w.expect_published(sent);
    w.complete(op).unwrap();
    w.send(producer, "b");
    let now = w.now();
    w.machine(0).producer(producer.id).unwrap().close(now);
    w.await_closed(0, HandleId::Producer(producer.id));
    w.advance(SECOND);
    let sends: Vec<&Heard> = w.script.log().iter().filter(|h| h.command.name() == "SEND").collect();
    assert!(sends.iter().all(|h| h.as_send().num_messages() == h.texts().len() as i32));
    assert_eq!(sends.len(), 1, "what was gathered at the close was not sent");
}

/// A batching producer, closed by itself or with its client, whole or partitioned: the broker knows it no more.
#[test]
fn pb046_a_closed_producer_is_gone_at_the_broker() {
    for with_client in [false, true] {
        let mut w = World::new(46);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "parted", 3).unwrap();
        let topics = ["t", "parted-partition-0", "parted-partition-1", "parted-partition-2"];
        let producers = [w.producer("t", |_| {}), w.producer("parted", |_| {})];
        for producer in producers {
            for n in 0..3 {
                w.send(producer, format!("{n}"));
            }
        }
        assert!(topics.iter().all(|t| w.broker.topic(t).unwrap().producers.len() == 1));
        match with_client {
            true => w.close_client(0),
            false => producers.into_iter().for_each(|p| w.close_producer(p)),
        }
        assert!(topics.iter().all(|t| w.broker.topic(t).unwrap().producers.is_empty()));
    }
}

/// A silent broker, a hundred sends over five seconds, in batches and by themselves.
#[test]
fn pb050_each_send_times_out_three_seconds_after_it_was_given() {
    let mut w = World::scripted(50);
    w.script.by_hand(&["SEND"]);
    let timeout = 3 * SECOND;
    let producer = w.producer("t", |c| c.send_timeout = Some(timeout));
    let mut sent: Vec<(Sent, Mono)> = Vec::new();
    for n in 0..100u64 {
        let mut message = OutgoingMessage::new(format!("{n}"));
        if n % 3 == 0 {
            message = message.with_deliver_at(1); // travels by itself
        }
        sent.push((w.send(producer, message), w.now().mono));
        let pause = Duration::from_micros(w.rng.u64(0..100_000));
        w.advance(if n % 10 < 3 { Duration::ZERO } else { pause });
    }
    for (s, _) in &sent {
        assert_eq!(w.await_outcome(*s).unwrap_err().kind(), ErrorKind::Timeout);
    }
    for (s, given) in sent {
        let said = w.events().iter().find(|o| {
            matches!(&o.event, Event::Published { producer, batch, .. }
                if *producer == s.producer.id && *batch == s.id.batch)
        });
        let took = said.unwrap().at.since(given);
        // A member of a batch shares the time of the batch's first message, at most the batching delay older.
        let early = Duration::from_millis(1);
        assert!(took + early >= timeout && took <= timeout + Duration::from_millis(500), "{took:?}");
    }
    assert_eq!((w.stats(0).pending_messages, w.stats(0).memory_used), (0, 0));
}

/// The broker says "not yet", the operation timeout passes, the holder leaves, and then it says "now".
#[test]
fn pb056_a_producer_that_waits_for_exclusive_access_waits_without_a_deadline() {
    for retries in [OperationRetries::default(), OperationRetries::within_operation_timeout()] {
        let mut w = World::configured(56, |s| {
            s.client.operation_timeout = 2 * SECOND;
            s.client.operation_retries = retries;
        });
        let holder = w.producer("t", |c| c.access_mode = AccessMode::Exclusive);
        let waiting = w.create_producer(0, "t", |c| c.access_mode = AccessMode::WaitForExclusive);
        w.advance(10 * SECOND);
        assert_eq!(w.broker.topic("t").unwrap().waiting.len(), 1);
        assert!(w.book.closed(0, HandleId::Producer(waiting.id)).is_none());
        w.close_producer(holder);
        w.await_producer(waiting).unwrap();
        let sent = w.send(waiting, "mine");
        w.expect_published(sent);
    }
}

#[test]
fn pb056_a_cut_while_waiting_queues_again_and_a_close_gives_the_place_up() {
    let mut w = World::configured(56, |s| s.client.operation_timeout = 2 * SECOND);
    let other = w.client(w.client_config());
    let holder = w.producer_of(other, "t", |c| c.access_mode = AccessMode::Exclusive);
    let waiting = w.create_producer(0, "t", |c| c.access_mode = AccessMode::WaitForExclusive);
    w.expect("a place in the queue", |w| w.broker.topic("t").unwrap().waiting.len() == 1);
    let place = w.broker.topic("t").unwrap().waiting[0].link;
    w.advance(5 * SECOND);
    w.cut_link(place);
    w.expect("another place in the queue", |w| {
        w.broker.topic("t").unwrap().waiting.first().is_some_and(|p| p.link != place)
    });
    w.advance(5 * SECOND);

    // Closed before and after the client has heard that it waits.
    for heard in [false, true] {
        let given_up = w.create_producer(0, "t", |c| c.access_mode = AccessMode::WaitForExclusive);
        w.expect("two in the queue", |w| w.broker.topic("t").unwrap().waiting.len() == 2);
        if heard {
            w.advance(SECOND);
        }
        w.close_producer(given_up);
        assert_eq!(w.broker.topic("t").unwrap().waiting.len(), 1);
    }

    w.close_producer(holder);
    w.await_producer(waiting).unwrap();
    assert_eq!(w.stats(0).requests, 0);
}

/// A holds the topic, B takes it by force while A has sends under way and attaches again.
#[test]
fn pb057_a_fenced_producer_ends_and_never_writes_again() {
    let mut w = World::new(57);
    let a = w.producer("t", |c| {
        c.access_mode = AccessMode::Exclusive;
        c.batching = Batching::off();
    });
    let stored = w.send(a, "a0");
    w.expect_published(stored);
    let other = w.client(w.client_config());
    let b = w.create_producer(other, "t", |c| c.access_mode = AccessMode::ExclusiveWithFencing);
    let under_way: Vec<Sent> = (1..4).map(|n| w.send(a, format!("a{n}"))).collect();
    w.await_producer(b).unwrap();
    let late = w.send(a, "late");
    let end = w.await_closed(0, HandleId::Producer(a.id)).expect("an error");
    assert_eq!(end.kind(), ErrorKind::ProducerFenced);
    assert_eq!(w.await_outcome(late).unwrap_err().kind(), ErrorKind::ProducerFenced);
    let mine = w.send(b, "b0");
    w.expect_published(mine);
    let outcomes: Vec<Result<MessageId, Error>> = under_way.iter().map(|s| w.await_outcome(*s)).collect();
    let of_a = w.stored("t").iter().filter(|m| m.starts_with('a')).count();
    assert_eq!(
        of_a,
        1 + outcomes.iter().filter(|o| o.is_ok()).count(),
        "a success is stored, a failure is not"
    );
    w.advance(60 * SECOND);
    assert_eq!(w.broker.topic("t").unwrap().producers.len(), 1);
    assert_eq!(w.stored("t").last().unwrap(), "b0");
}

fn opened_by_hand(w: &mut World, change: impl FnOnce(&mut geminga_core::ProducerConfig)) -> ProducerAt {
    let producer = w.create_producer(0, "t", change);
    let asked = w.hear("PRODUCER");
    w.answer(&asked);
    w.await_producer(producer).unwrap();
    producer
}

fn last_sequence_id(w: &mut World, producer: ProducerAt) -> i64 {
    w.machine(producer.client).producer(producer.id).unwrap().last_sequence_id()
}

fn writable(w: &World, producer: ProducerAt) -> usize {
    w.events().iter().filter(|o| matches!(o.event, Event::Writable(id) if id == producer.id)).count()
}
