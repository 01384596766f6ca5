//! Producers: names, access modes, receipts, deduplication, and what a broker refuses.

use std::time::Duration;

use bytes::BytesMut;
use geminga_core::wire::Command;
use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::proto::{self, ProducerAccessMode, ServerError};

use crate::world::{TOPIC, World, access, error_of};

fn named(name: &str) -> impl FnOnce(&mut proto::CommandProducer) {
    let name = name.to_owned();
    |request| request.producer_name = Some(name)
}

#[test]
fn a_receipt_has_the_values_of_the_real_broker() {
    let mut w = World::new();
    let link = w.link();
    let success = w.producer(link, 3);
    assert_eq!((success.last_sequence_id(), success.producer_ready(), success.topic_epoch), (-1, true, None));
    assert!(success.producer_name.starts_with("standalone-0-"));
    w.publish(link, 3, 0, "a");
    w.publish(link, 3, 1, "b");
    w.publish_batch(link, 3, 2, &["c", "d", "e"]);
    let receipts = [w.receipt(link), w.receipt(link), w.receipt(link)];
    let highest = receipts.each_ref().map(|r| r.highest_sequence_id());
    assert_eq!(highest, [0, u64::MAX, 4]);
    let ids = receipts.map(|r| r.message_id.expect("an id"));
    assert_eq!(ids.each_ref().map(|id| id.entry_id), [0, 1, 2]);
    assert!(ids.iter().all(|id| id.partition.is_none() && id.batch_index.is_none()));
    let stored = w.cluster.stored(TOPIC).unwrap();
    let texts: Vec<_> = stored.iter().map(|m| (&m.payload[..], m.batch_index)).collect();
    assert_eq!(texts, [(&b"a"[..], None), (b"b", None), (b"c", Some(0)), (b"d", Some(1)), (b"e", Some(2))]);
}

#[test]
fn a_checksum_that_does_not_fit_is_a_send_error_and_no_more() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    let header = geminga_core::wire::metadata::SendHeader { producer_id: 1, ..Default::default() };
    let metadata = geminga_core::wire::Metadata { producer_name: "p", ..Default::default() };
    let frame = geminga_core::wire::encode_send(&header, &metadata, "body".into(), true);
    let mut bytes = BytesMut::from(&frame.head[..]);
    *bytes.last_mut().unwrap() ^= 1;
    w.send_bytes(link, bytes);
    let Command::SendError(error) = w.next(link) else { panic!("no send error") };
    assert_eq!(
        (error.error(), &*error.message),
        (ServerError::ChecksumError, "Checksum failed on the broker")
    );
    w.publish(link, 1, 0, "good");
    w.receipt(link);
}

#[test]
fn a_send_with_an_unknown_producer_closes_the_link() {
    let mut w = World::new();
    let link = w.link();
    w.publish(link, 1, 0, "x");
    assert!(w.is_closed(link));
}

#[test]
fn a_taken_name_is_refused_while_its_holder_lives() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.producer_with(a, 1, named("n"));
    let answer = w.try_producer(b, 1, named("n"));
    assert_eq!(error_of(&answer), ServerError::ProducerBusy);
    // Asked again by its own link, it is still there.
    assert_eq!(w.producer_with(a, 1, named("n")).producer_name, "n");
    assert_eq!(error_of(&w.try_producer(a, 2, named("n"))), ServerError::ProducerBusy);
}

#[test]
fn a_silent_holder_of_a_name_is_dropped_after_five_seconds() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.producer_with(a, 1, named("n"));
    w.mute(a);
    assert!(w.try_producer(b, 1, named("n")).is_empty());
    w.advance(Duration::from_millis(4999));
    assert!(w.commands(b).is_empty());
    w.advance(Duration::from_millis(1));
    assert!(matches!(w.next(b), Command::ProducerSuccess(_)));
    assert!(w.is_closed(a));
}

#[test]
fn a_name_is_free_again_after_close_and_after_disconnect() {
    let mut w = World::new();
    let (a, b, c) = (w.link(), w.link(), w.link());
    w.producer_with(a, 1, named("n"));
    let close = proto::CommandCloseProducer { producer_id: 1, request_id: 77, ..Default::default() };
    w.send(a, Command::CloseProducer(close));
    assert!(matches!(w.next(a), Command::Success(s) if s.request_id == 77));
    w.producer_with(b, 1, named("n"));
    w.drop_link(b);
    w.producer_with(c, 1, named("n"));
    // An unknown id is closed successfully too.
    let close = proto::CommandCloseProducer { producer_id: 9, request_id: 78, ..Default::default() };
    w.send(a, Command::CloseProducer(close));
    assert!(matches!(w.next(a), Command::Success(s) if s.request_id == 78));
}

#[test]
fn wait_for_exclusive_answers_twice() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    let first = w.producer_with(a, 1, access(ProducerAccessMode::Exclusive));
    assert_eq!(first.topic_epoch, Some(0));
    let waiting = w.producer_with(b, 1, access(ProducerAccessMode::WaitForExclusive));
    assert!(!waiting.producer_ready());
    let shared = w.link();
    assert_eq!(error_of(&w.try_producer(shared, 1, |_| {})), ServerError::ProducerBusy);
    w.drop_link(a);
    let Command::ProducerSuccess(ready) = w.next(b) else { panic!("not ready") };
    assert_eq!(
        (ready.request_id, ready.producer_ready(), ready.topic_epoch),
        (waiting.request_id, true, Some(1))
    );
    w.publish(b, 1, 0, "mine");
    w.receipt(b);
}

#[test]
fn a_fenced_producer_learns_it_by_losing_its_link() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.producer_with(a, 1, access(ProducerAccessMode::Exclusive));
    let fencing = w.producer_with(b, 1, access(ProducerAccessMode::ExclusiveWithFencing));
    assert_eq!(fencing.topic_epoch, Some(1));
    assert!(w.commands(a).is_empty());
    w.publish(a, 1, 0, "late");
    assert!(w.is_closed(a));
    let again = w.link();
    let answer = w.try_producer(again, 1, |request| {
        access(ProducerAccessMode::Exclusive)(request);
        request.topic_epoch = Some(0);
    });
    assert_eq!(error_of(&answer), ServerError::ProducerFenced);
    assert!(w.cluster.stored(TOPIC).unwrap().is_empty());
}

#[test]
fn waiting_for_exclusive_access_with_an_old_topic_epoch_is_fenced() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.producer_with(a, 1, access(ProducerAccessMode::Exclusive));
    w.producer_with(b, 1, access(ProducerAccessMode::ExclusiveWithFencing));
    for (epoch, queued) in [(Some(0), false), (None, true)] {
        let link = w.link();
        let answer = w.try_producer(link, 1, |request| {
            access(ProducerAccessMode::WaitForExclusive)(request);
            request.topic_epoch = epoch;
        });
        assert_eq!(matches!(answer[..], [Command::ProducerSuccess(_)]), queued, "{answer:?}");
    }
}

#[test]
fn deduplication_drops_what_was_stored_and_tells_the_last_id() {
    let mut w = World::with(|config| config.deduplication = true);
    let link = w.link();
    w.producer_with(link, 1, named("p"));
    w.publish_batch(link, 1, 0, &["a", "b"]);
    w.publish_batch(link, 1, 0, &["a", "b"]);
    w.publish(link, 1, 2, "c");
    let ids = [w.receipt(link), w.receipt(link), w.receipt(link)].map(|r| r.message_id.unwrap());
    assert_eq!(ids.each_ref().map(|id| id.entry_id as i64), [0, -1, 1]);
    assert_eq!(ids[1].ledger_id as i64, -1);
    w.drop_link(link);
    w.cluster.unload_topic(w.now, TOPIC).unwrap();
    let again = w.link();
    assert_eq!(w.producer_with(again, 1, named("p")).last_sequence_id(), 2);
    let payloads: Vec<_> = w.cluster.stored(TOPIC).unwrap().into_iter().map(|m| m.payload).collect();
    assert_eq!(payloads, ["a", "b", "c"]);
}

#[test]
fn the_chunks_of_a_message_are_not_duplicates_of_each_other() {
    let mut w = World::with(|config| config.deduplication = true);
    let link = w.link();
    w.producer_with(link, 1, named("p"));
    for round in 0..2 {
        for chunk in 0..3 {
            w.publish_with(link, 1, 7, "chunk", |metadata| {
                metadata.num_chunks_from_msg = Some(3);
                metadata.chunk_id = Some(chunk);
            });
            let stored = w.receipt(link).message_id.unwrap().entry_id as i64;
            assert_eq!(stored, if round == 0 { i64::from(chunk) } else { -1 });
        }
    }
}

#[test]
fn a_terminated_topic_takes_no_more_and_says_when_it_has_ended() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Exclusive);
    w.flow(link, 2, 10);
    w.publish(link, 1, 0, "last");
    w.receipt(link);
    let message = w.messages(link).pop().unwrap();
    w.cluster.terminate_topic(w.now, TOPIC).unwrap();
    assert!(matches!(w.commands(link)[..], [Command::CloseProducer(_)]));
    assert_eq!(error_of(&w.try_producer(link, 1, |_| {})), ServerError::TopicTerminatedError);
    w.ack(link, 2, message.id);
    assert!(matches!(w.commands(link)[..], [Command::ReachedEndOfTopic(e)] if e.consumer_id == 2));
}

#[test]
fn a_non_persistent_topic_drops_what_nobody_can_take() {
    let mut w = World::new();
    let link = w.link();
    let topic = TOPIC.replace("persistent", "non-persistent");
    w.own(link, &topic);
    let to = topic.clone();
    w.producer_with(link, 1, |request| request.topic = to);
    w.publish(link, 1, 0, "nobody");
    w.receipt(link);
    let at = topic.clone();
    w.subscribe_with(link, 2, SubType::Exclusive, |request| request.topic = at);
    w.publish(link, 1, 1, "no permits");
    w.flow(link, 2, 1);
    w.publish(link, 1, 2, "heard");
    w.publish(link, 1, 3, "too late");
    let arrived: Vec<_> = w.frames(link).into_iter().filter(|f| f.payload.is_some()).collect();
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].payload.as_ref().unwrap().body, "heard");
}

#[test]
fn an_initial_subscription_is_made_before_the_first_message() {
    let mut w = World::new();
    let link = w.link();
    w.producer_with(link, 1, |request| request.initial_subscription_name = Some("keep".to_owned()));
    w.publish(link, 1, 0, "a");
    assert_eq!(w.cluster.subscription(TOPIC, "keep").unwrap().backlog_messages, 1);
}

#[test]
fn only_what_a_subscription_needs_outlives_the_retention_limit() {
    let mut w = World::with(|config| config.retention_bytes = 0);
    let link = w.link();
    w.producer(link, 1);
    w.publish(link, 1, 0, "unneeded");
    w.receipt(link);
    w.subscribe(link, 2, SubType::Exclusive);
    w.publish(link, 1, 1, "needed");
    let stored =
        |w: &World| w.cluster.stored(TOPIC).unwrap().into_iter().map(|m| m.payload).collect::<Vec<_>>();
    assert_eq!(stored(&w), ["needed"]);
    w.commands(link);
    w.flow(link, 2, 1);
    let message = w.messages(link).pop().unwrap();
    w.ack(link, 2, message.id);
    assert!(stored(&w).is_empty());
}
