//! Faults on demand.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind, NodeId, Request};
use geminga_core::wire::proto::command_lookup_topic_response::LookupType;
use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::proto::{self, ServerError};
use geminga_core::wire::{Checksum, Command};

use crate::world::{TOPIC, World, error_of, lookup};

fn busy(request: Request) -> Fault {
    Fault::new(FaultKind::Refuse(request, ServerError::ServiceNotReady, "not now".to_owned()))
}

#[test]
fn receipts_are_lost_and_repeated() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.cluster.lose_next_receipt();
    w.cluster.inject(Fault::new(FaultKind::RepeatReceipt).after(1));
    w.publish(link, 1, 0, "a");
    w.publish(link, 1, 1, "b");
    w.publish(link, 1, 2, "c");
    let got: Vec<_> = std::iter::from_fn(|| {
        let mut frames = w.frames(link);
        frames.sort_by_key(|f| if let Command::SendReceipt(r) = &f.command { r.sequence_id } else { 99 });
        (!frames.is_empty()).then_some(frames)
    })
    .flatten()
    .map(|f| if let Command::SendReceipt(r) = f.command { r.sequence_id } else { panic!("no receipt") })
    .collect();
    assert_eq!(got, [1, 2, 2]);
    assert_eq!(w.cluster.stored(TOPIC).unwrap().len(), 3);
    assert!(w.cluster.faults().is_empty());
}

#[test]
fn a_delayed_receipt_holds_up_the_later_ones() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.cluster.inject(Fault::new(FaultKind::Delay(Request::Send, Duration::from_secs(2))));
    w.publish(link, 1, 0, "a");
    w.publish(link, 1, 1, "b");
    w.advance(Duration::from_millis(1999));
    assert!(w.commands(link).is_empty());
    w.advance(Duration::from_millis(1));
    assert_eq!([w.receipt(link).sequence_id, w.receipt(link).sequence_id], [0, 1]);
    w.publish(link, 1, 2, "c");
    assert_eq!(w.receipt(link).sequence_id, 2);
}

#[test]
fn requests_are_refused_in_the_form_of_their_answer() {
    let mut w = World::new();
    let link = w.link();
    w.own(link, TOPIC);
    w.cluster.inject(busy(Request::Lookup));
    w.send(link, lookup(TOPIC, 5, false));
    let Command::LookupResponse(response) = w.next(link) else { panic!("no answer") };
    assert_eq!((response.response(), response.error()), (LookupType::Failed, ServerError::ServiceNotReady));
    w.cluster.inject(busy(Request::Producer).times(2));
    for _ in 0..2 {
        assert_eq!(error_of(&w.try_producer(link, 1, |_| {})), ServerError::ServiceNotReady);
    }
    w.producer(link, 1);
    w.cluster.inject(busy(Request::Subscribe).on_topic("persistent://public/default/other"));
    w.subscribe(link, 2, SubType::Shared);
    w.cluster.clear_faults();
    w.cluster.inject(busy(Request::Send));
    w.publish(link, 1, 0, "a");
    assert!(matches!(w.next(link), Command::SendError(e) if e.error() == ServerError::ServiceNotReady));
    assert!(w.cluster.stored(TOPIC).unwrap().is_empty());
    w.cluster.inject(busy(Request::Connect));
    let refused = w.raw_link(0);
    w.send(refused, crate::world::connect(21));
    assert_eq!(error_of(&w.commands(refused)), ServerError::ServiceNotReady);
    assert!(w.is_closed(refused));
}

#[test]
fn a_request_is_ignored_or_answered_late() {
    let mut w = World::new();
    let link = w.link();
    w.own(link, TOPIC);
    w.cluster.inject(Fault::new(FaultKind::Ignore(Request::Subscribe)));
    assert!(w.try_subscribe(link, 1, SubType::Shared, |_| {}).is_empty());
    assert!(w.cluster.topic(TOPIC).is_none());
    w.cluster.inject(Fault::new(FaultKind::Delay(Request::Subscribe, Duration::from_secs(3))));
    assert!(w.try_subscribe(link, 1, SubType::Shared, |_| {}).is_empty());
    w.send(link, Command::Ping);
    assert_eq!(w.commands(link), [Command::Pong]);
    w.advance(Duration::from_secs(3));
    assert!(matches!(w.next(link), Command::Success(_)));
}

#[test]
fn a_lost_answer_leaves_what_was_made() {
    let mut w = World::new();
    let link = w.link();
    w.own(link, TOPIC);
    w.cluster.inject(Fault::new(FaultKind::LoseAnswer(Request::Producer)));
    assert!(w.try_producer(link, 1, |_| {}).is_empty());
    assert_eq!(w.cluster.topic(TOPIC).unwrap().producers.len(), 1);
    let close = proto::CommandCloseProducer { producer_id: 1, request_id: 9, ..Default::default() };
    w.send(link, Command::CloseProducer(close));
    assert!(matches!(w.next(link), Command::Success(_)));
    assert!(w.cluster.topic(TOPIC).unwrap().producers.is_empty());
}

#[test]
fn what_is_closed_while_it_is_created_is_never_created() {
    let mut w = World::new();
    let link = w.link();
    let delay = |request| Fault::new(FaultKind::Delay(request, Duration::from_secs(3)));
    w.cluster.inject(delay(Request::Subscribe));
    w.cluster.inject(delay(Request::Producer));
    w.try_subscribe(link, 1, SubType::Shared, |_| {});
    w.try_producer(link, 2, |_| {});
    assert_eq!(error_of(&w.try_subscribe(link, 1, SubType::Shared, |_| {})), ServerError::ServiceNotReady);
    assert_eq!(error_of(&w.try_producer(link, 2, |_| {})), ServerError::ServiceNotReady);
    assert!(matches!(w.close_consumer(link, 1)[..], [Command::Success(_)]));
    let close = proto::CommandCloseProducer { producer_id: 2, request_id: 9, ..Default::default() };
    w.send(link, Command::CloseProducer(close));
    assert!(matches!(w.commands(link)[..], [Command::Success(_)]));
    w.advance(Duration::from_secs(5));
    assert!(w.commands(link).is_empty());
    assert!(w.cluster.topic(TOPIC).is_none());
}

#[test]
fn a_redirect_loop_lasts_as_long_as_it_is_told() {
    let mut w = World::new();
    let link = w.link();
    w.cluster.inject(Fault::new(FaultKind::RedirectLoop).times(3));
    let mut answers = Vec::new();
    for _ in 0..4 {
        w.send(link, lookup(TOPIC, 1, false));
        let Command::LookupResponse(response) = w.next(link) else { panic!("no answer") };
        answers.push(response.response());
    }
    use LookupType::{Connect, Redirect};
    assert_eq!(answers, [Redirect, Redirect, Redirect, Connect]);
}

#[test]
fn a_message_is_corrupted_on_its_way_and_not_in_the_store() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.flow(link, 2, 10);
    w.cluster.inject(Fault::new(FaultKind::CorruptMessage).on_topic(TOPIC).on_node(NodeId(0)));
    w.publish(link, 1, 0, "a");
    w.receipt(link);
    let broken = w.frames(link).pop().unwrap().payload.unwrap();
    assert!(matches!(broken.checksum, Checksum::Mismatch { .. }));
    w.redeliver(link, 2, &[]);
    let good = w.frames(link).pop().unwrap().payload.unwrap();
    assert_eq!((good.checksum, &good.body[..]), (Checksum::Valid, &b"a"[..]));
}

#[test]
fn a_link_is_cut_before_or_after_a_request() {
    let mut w = World::new();
    let before = w.link();
    w.producer(before, 1);
    w.cluster.inject(Fault::new(FaultKind::Cut(Request::Send)));
    w.publish(before, 1, 0, "lost");
    assert!(w.is_closed(before) && w.commands(before).is_empty());
    assert!(w.cluster.stored(TOPIC).unwrap().is_empty());
    let after = w.link();
    w.producer(after, 1);
    w.cluster.inject(Fault::new(FaultKind::CutAfter(Request::Send)).on_link(after));
    w.publish(after, 1, 0, "kept");
    assert!(w.is_closed(after));
    w.receipt(after);
    assert_eq!(w.cluster.stored(TOPIC).unwrap().len(), 1);
    assert!(w.cluster.topic(TOPIC).unwrap().producers.is_empty());
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = || {
        let mut w = World::new();
        let link = w.link();
        w.producer(link, 1);
        for (i, kind) in [SubType::Shared, SubType::KeyShared].into_iter().enumerate() {
            w.subscribe_with(link, i as u64, kind, |request| request.subscription = format!("s{i}"));
            w.flow(link, i as u64, 100);
        }
        for i in 0..50 {
            w.publish_with(link, 1, i, "x", |m| m.partition_key = Some("k"));
        }
        w.redeliver(link, 0, &[]);
        w.frames(link).into_iter().map(|f| format!("{:?}", f.command)).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}
