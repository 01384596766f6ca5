//! Scenarios of consumers: what arrives early, reconnection triggered twice, permits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use geminga_broker::{Fault, FaultKind, Request};
use geminga_core::wire::Command;
use geminga_core::wire::proto::ServerError;
use geminga_core::{
    Batching, ErrorKind, Event, HandleId, InitialPosition, Message, MessageId, OutgoingMessage, StateChange,
    SubscriptionType,
};
use geminga_tests::network::Direction;
use geminga_tests::world::script::{Heard, close_consumer, encode, encode_message, success};
use geminga_tests::world::{ConsumerAt, World, text};

fn subscribed(heard: &Heard) -> (u64, u64) {
    match &heard.command {
        Command::Subscribe(c) => (c.request_id, c.consumer_id),
        other => panic!("{} is no SUBSCRIBE", other.name()),
    }
}

fn permits(heard: &Heard) -> u32 {
    match &heard.command {
        Command::Flow(c) => c.message_permits,
        other => panic!("{} is no FLOW", other.name()),
    }
}

#[test]
fn what_is_produced_is_consumed_in_order_and_acknowledged() {
    let mut w = World::new(1);
    let consumer = w.consumer("t", "s", |_| {});
    let producer = w.producer("t", |_| {});
    for n in 0..10 {
        w.send(producer, format!("{n}"));
    }
    for n in 0..10 {
        let message = w.receive(consumer);
        assert_eq!(text(&message), n.to_string());
        w.ack(consumer, message.message_id());
    }
    w.advance(Duration::from_secs(1));
    assert_eq!(w.unacked("t", "s"), [""; 0]);
    w.close_client(0);
    assert!(w.broker.subscription("t", "s").unwrap().consumers.is_empty());
}

/// SUCCESS and ten messages come in one segment.
#[test]
fn pb060_messages_in_the_same_segment_as_success_are_delivered() {
    for seed in 0..1000 {
        let mut w = World::scripted(seed);
        w.script.by_hand(&["SUBSCRIBE"]);
        let consumer = w.create_consumer(0, "t", "s", |_| {});
        let heard = w.hear("SUBSCRIBE");
        let (request, id) = subscribed(&heard);
        let mut segment = encode(&success(request)).to_vec();
        for n in 0..10 {
            segment.extend(encode_message(id, MessageId::new(1, n, -1), n as u64, n.to_string().as_bytes()));
        }
        w.say_bytes(heard.link, segment);
        w.await_consumer(consumer).unwrap();
        let texts = w.receive_texts(consumer, 10);
        assert_eq!(texts, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    }
}

fn shared(c: &mut geminga_core::ConsumerConfig) {
    c.subscription_type = SubscriptionType::Shared;
}

fn state_changes(w: &World, consumer: ConsumerAt) -> Vec<StateChange> {
    w.state_changes(consumer.client, HandleId::Consumer(consumer.id))
}

/// Takes messages until none comes for a while.
fn drain(w: &mut World, consumer: ConsumerAt) -> Vec<Message> {
    std::iter::from_fn(|| w.receive_within(consumer, Duration::from_secs(2))).collect()
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(text).collect()
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

/// The account of permits when nothing is under way: what the broker may still send and what waits here make up the
/// queue, less what is owed until the next FLOW.
fn assert_permits(w: &mut World, topic: &str, consumer: ConsumerAt, size: i64) {
    let view = w.broker.subscription(topic, "s").unwrap();
    let at_broker: i64 = view.consumers.iter().map(|c| c.permits).sum();
    let here = w.on(consumer, |c, _| c.queued_messages()) as i64;
    let sum = at_broker + here;
    assert!(sum <= size && sum > size - (size / 2).max(1), "{at_broker} there and {here} here of {size}");
}

/// SUBSCRIBE is answered so late that it was given up: its answer and what is pushed with it belong to nobody; the second
/// SUBSCRIBE finds itself subscribed already, and everything is delivered once.
#[test]
fn pb059_a_subscribe_that_was_given_up_neither_loses_nor_doubles_messages() {
    let mut w = World::configured(59, |s| {
        s.scripted = true;
        s.client.operation_timeout = Duration::from_secs(5);
    });
    w.script.by_hand(&["SUBSCRIBE", "CLOSE_CONSUMER", "FLOW"]);
    let consumer = w.create_consumer(0, "t", "s", shared);
    let first = w.hear("SUBSCRIBE");
    let (request, id) = subscribed(&first);
    let close = w.hear("CLOSE_CONSUMER");
    let push = |w: &mut World| {
        for n in 0..700 {
            w.say_message(first.link, id, MessageId::new(1, n, -1), &n.to_string());
        }
    };
    // Answered too late, with messages behind it.
    w.say(first.link, success(request));
    push(&mut w);
    w.answer(&close);
    let second = w.hear("SUBSCRIBE");
    assert_eq!(second.link, first.link);
    assert!(w.heard("FLOW").is_none(), "the answer to a request that was given up opens nothing");
    w.answer(&second);
    assert_eq!(permits(&w.hear("FLOW")), 1000);
    push(&mut w);
    w.await_consumer(consumer).unwrap();
    assert_eq!(w.receive_texts(consumer, 700), numbers(0..700));
    assert_eq!(permits(&w.hear("FLOW")), 500);
    w.advance(Duration::from_secs(120));
    assert!(w.try_receive(consumer).is_none());
    assert!(w.heard("FLOW").is_none() && w.heard("SUBSCRIBE").is_none(), "nothing more is asked for");
}

/// The same by two triggers at once: only one subscription is made, and what is pushed right behind it stays.
#[test]
fn pb059_two_reconnections_at_once_clear_the_queue_once() {
    for seed in 0..50 {
        let mut w = World::scripted(seed);
        w.script.by_hand(&["SUBSCRIBE"]);
        let consumer = w.create_consumer(0, "t", "s", shared);
        let first = w.hear("SUBSCRIBE");
        let (_, id) = subscribed(&first);
        w.answer(&first);
        w.await_consumer(consumer).unwrap();
        w.say(first.link, close_consumer(id));
        let wait = w.rng.u64(0..200);
        w.advance(Duration::from_millis(wait));
        w.cut_link(first.link);
        let mut again = w.hear("SUBSCRIBE");
        if again.link == first.link {
            // It had gone out before the cut.
            again = w.hear("SUBSCRIBE");
        }
        let mut segment = encode(&success(subscribed(&again).0)).to_vec();
        for n in 0..700i64 {
            segment.extend(encode_message(id, MessageId::new(1, n, -1), n as u64, n.to_string().as_bytes()));
        }
        w.say_bytes(again.link, segment);
        w.advance(Duration::from_secs(60));
        assert!(w.heard("SUBSCRIBE").is_none(), "seed {seed}");
        assert_eq!(w.receive_texts(consumer, 700), numbers(0..700));
        assert!(w.try_receive(consumer).is_none());
    }
}

/// The broker closes links on which a FLOW of 0 comes.
#[test]
fn pb063_pause_and_resume_of_a_queue_of_zero_grant_no_zero() {
    let mut w = World::new(63);
    let producer = w.producer("t", |c| c.batching = Batching::off());
    let consumer = w.consumer("t", "s", |c| c.receiver_queue_size = 0);
    w.publish(producer, numbers(0..300));
    let mut seen = Vec::new();
    for round in 0..1000 {
        w.on(consumer, |mut c, now| c.pause(now));
        if round % 3 == 0 {
            seen.extend(w.try_receive(consumer));
        }
        if round % 5 == 0 {
            w.advance(Duration::from_micros(700));
        }
        w.on(consumer, |mut c, now| c.resume(now));
        if round % 2 == 0 {
            seen.extend(w.receive_within(consumer, Duration::from_millis(2)));
        }
    }
    seen.extend(drain(&mut w, consumer));
    assert_eq!(texts(&seen), numbers(0..300));
    assert!(state_changes(&w, consumer).is_empty(), "the link stayed");
}

/// A receive waits on an empty topic while it is unloaded.
#[test]
fn pb064_a_queue_of_zero_gets_its_message_after_an_unload() {
    for partitions in [0, 3] {
        let mut w = World::new(64);
        let now = w.now();
        if partitions > 0 {
            w.broker.create_partitioned_topic(now, "t", partitions).unwrap();
        }
        let consumer = w.consumer("t", "s", |c| c.receiver_queue_size = 0);
        assert!(w.try_receive(consumer).is_none());
        w.advance(Duration::from_secs(1));
        for round in 0..3 {
            let now = w.now();
            w.broker.unload_topic(now, "t").unwrap();
            w.advance(Duration::from_secs(3));
            let producer = w.producer("t", |_| {});
            let seen = w.events().len();
            w.publish(producer, [format!("{round}")]);
            w.expect("the news of a message", |w| {
                w.events()[seen..].iter().any(|o| matches!(o.event, Event::Readable(_)))
            });
            let message = w.try_receive(consumer).expect("one is here");
            assert_eq!(text(&message), round.to_string());
            w.ack(consumer, message.message_id());
            w.close_producer(producer);
            assert!(w.try_receive(consumer).is_none());
            w.advance(Duration::from_secs(1));
        }
    }
}

/// The variant: the permit was used by a message that was lost with its link.
#[test]
fn pb064_a_queue_of_zero_asks_again_when_its_message_was_lost_with_the_link() {
    let mut w = World::new(64);
    let producer = w.producer("t", |_| {});
    let consumer = w.consumer("t", "s", |c| c.receiver_queue_size = 0);
    assert!(w.try_receive(consumer).is_none());
    w.advance(Duration::from_secs(1));
    w.stall(Direction::Down);
    w.send(producer, "a");
    w.advance(Duration::from_secs(1));
    assert_eq!(w.stored("t"), ["a"]);
    w.cut_links();
    let seen = w.events().len();
    w.expect("the news of a message", |w| {
        w.events()[seen..].iter().any(|o| matches!(o.event, Event::Readable(_)))
    });
    assert_eq!(text(&w.receive(consumer)), "a");
}

#[test]
fn a_receive_before_the_consumer_is_open_asks_when_it_is() {
    for queue in [0, 1] {
        let mut w = World::new(queue.into());
        let producer = w.producer("t", |_| {});
        w.publish(producer, ["a"]);
        let consumer = w.create_consumer(0, "t", "s", |c| c.receiver_queue_size = queue);
        assert!(w.try_receive(consumer).is_none());
        w.expect("the news of a message", |w| {
            w.events().iter().any(|o| matches!(o.event, Event::Readable(_)))
        });
        assert_eq!(text(&w.receive(consumer)), "a");
    }
}

#[test]
fn a_queue_of_zero_that_waits_asks_partitions_that_are_added_as_well() {
    let mut w = World::configured(3, |s| s.client.partitions_update_interval = Duration::from_secs(5));
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 1).unwrap();
    let consumer = w.consumer("t", "s", |c| c.receiver_queue_size = 0);
    assert!(w.try_receive(consumer).is_none());
    let now = w.now();
    w.broker.grow_partitioned_topic(now, "t", 2).unwrap();
    let producer = w.producer("t-partition-1", |_| {});
    w.publish(producer, ["a"]);
    w.expect("the news of a message", |w| w.events().iter().any(|o| matches!(o.event, Event::Readable(_))));
    assert_eq!(text(&w.try_receive(consumer).unwrap()), "a");
}

/// Four partitions on two brokers, full queues, the links of one broker are cut: the children go on when there is room.
#[test]
fn pb065_partitions_that_reconnected_go_on_when_the_application_drains() {
    for seed in 0..20 {
        let mut w = World::with_brokers(seed, 2);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", 4).unwrap();
        let consumer = w.consumer("t", "s", |c| {
            c.receiver_queue_size = 10;
            c.max_total_receiver_queue_size = 16;
        });
        let producer = w.producer("t", |c| c.batching = Batching::off());
        w.publish(producer, numbers(0..400));
        w.advance(Duration::from_secs(1));
        let queued = w.on(consumer, |c, _| c.queued_messages());
        assert_eq!(queued, 16, "each has its share");
        for node in 0..2 {
            for link in w.links_to(node) {
                w.cut_link(link);
            }
            let wait = w.rng.u64(0..300);
            w.advance(Duration::from_millis(wait));
        }
        let mut seen = BTreeSet::new();
        for message in drain(&mut w, consumer) {
            seen.insert(text(&message));
            w.ack(consumer, message.message_id());
            assert!(w.on(consumer, |c, _| c.queued_messages()) <= 16);
        }
        assert_eq!(seen.len(), 400);
        w.advance(Duration::from_secs(1));
        for partition in 0..4 {
            assert!(w.unacked(&format!("t-partition-{partition}"), "s").is_empty());
        }
    }
}

#[test]
fn pb066_a_consumer_that_nobody_reads_does_not_stall_another_on_its_link() {
    let mut w = World::new(66);
    let (a, b) = (w.producer("a", |_| {}), w.producer("b", |_| {}));
    let idle = w.consumer("a", "s", |_| {});
    let busy = w.consumer("b", "s", |_| {});
    w.publish(a, (0..3000).map(|_| vec![7; 1000]));
    for round in 0..60 {
        w.publish(b, [format!("{round}")]);
        let message = w.receive_within(busy, Duration::from_millis(100));
        assert_eq!(text(&message.expect("at once")), round.to_string());
        w.advance(Duration::from_secs(1));
    }
    let queued = w.on(idle, |c, _| c.queued_messages());
    assert!((1000..1200).contains(&queued), "the queue, and what the last batch had more: {queued}");
    assert_eq!(w.links().len(), 1);
}

/// Sizes from 1 byte to 9 KB and one of 50 KB; batches are asked for before anything is there, and between single receives.
#[test]
fn pb067_receive_batch_hands_out_each_message_once_and_in_order() {
    for seed in 0..20 {
        let mut w = World::new(seed);
        let consumer = w.consumer("t", "s", |c| c.receiver_queue_size = 50);
        let mut out = Vec::new();
        assert_eq!(w.on(consumer, |mut c, now| c.receive_batch(now, 10, &mut out)), 0);
        let producer = w.producer("t", |c| c.batching.max_messages = 7);
        let mut expected = Vec::new();
        for n in 0..200 {
            let size = if n == 77 { 50_000 } else { w.rng.usize(1..9000) };
            expected.push(format!("{n:0>size$}"));
            w.send(producer, expected[n].clone());
        }
        while out.len() < 200 {
            let max = w.rng.usize(0..12);
            let got = w.on(consumer, |mut c, now| c.receive_batch(now, max, &mut out));
            assert!(got <= max);
            if w.rng.bool() {
                out.extend(w.try_receive(consumer));
            }
            if got < max && out.len() < 200 {
                out.push(w.receive(consumer));
            }
        }
        assert_eq!(texts(&out), expected, "seed {seed}");
        w.advance(Duration::from_secs(1));
        assert!(w.try_receive(consumer).is_none());
    }
}

/// Core's part of it: a receive that found nothing leaves nothing behind.
#[test]
fn pb068_receives_that_found_nothing_cost_nothing_and_lose_nothing() {
    for queue in [0, 1, 1000] {
        let mut w = World::new(68);
        let consumer = w.consumer("t", "s", |c| c.receiver_queue_size = queue);
        assert!(w.try_receive(consumer).is_none());
        w.advance(Duration::from_secs(1));
        let (stats, events) = (w.stats(0), w.events().len());
        w.on(consumer, |mut c, now| assert!((0..100_000).all(|_| c.receive(now).is_none())));
        assert_eq!(w.stats(0), stats);
        assert_eq!(w.events().len(), events);
        let producer = w.producer("t", |_| {});
        w.publish(producer, ["a"]);
        w.advance(Duration::from_secs(1));
        let told = w.events()[events..].iter().filter(|o| matches!(o.event, Event::Readable(_))).count();
        assert_eq!(told, 1);
        assert_eq!(text(&w.try_receive(consumer).unwrap()), "a");
    }
}

/// Partitions grow from 2 to 10 under full queues, while the application acknowledges, unsubscribes and closes.
#[test]
fn pb073_partitions_are_added_while_queues_are_full_and_every_call_returns() {
    for ending in 0..3 {
        let mut w = World::configured(73, |s| s.client.partitions_update_interval = Duration::from_secs(2));
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", 2).unwrap();
        let consumer = w.consumer("t", "s", |c| {
            c.receiver_queue_size = 3;
            c.max_total_receiver_queue_size = 10;
        });
        let producer = w.producer("t", |c| c.batching = Batching::off());
        w.publish(producer, numbers(0..100));
        let now = w.now();
        w.broker.grow_partitioned_topic(now, "t", 10).unwrap();
        let mut seen = BTreeSet::new();
        for _ in 0..50 {
            let message = w.receive(consumer);
            w.ack(consumer, message.message_id());
            seen.insert(text(&message));
            w.advance(Duration::from_millis(90));
        }
        assert_eq!(w.on(consumer, |c, _| c.partitions()), 10);
        match ending {
            0 => {
                w.publish(producer, numbers(100..200));
                for message in drain(&mut w, consumer) {
                    w.ack(consumer, message.message_id());
                    seen.insert(text(&message));
                }
                assert_eq!(seen.len(), 200, "those of new partitions, too");
                assert!((0..10).any(|p| !w.stored(&format!("t-partition-{p}")).is_empty() && p >= 2));
                w.close_consumer(consumer);
            }
            1 => {
                w.unsubscribe(consumer);
                for partition in 0..10 {
                    let topic = format!("t-partition-{partition}");
                    assert!(w.broker.subscription(&topic, "s").is_none(), "{topic}");
                }
            }
            _ => w.close_consumer(consumer),
        }
        w.close_client(0);
    }
}

/// Consumers of many partitions are closed, and the client with them, at any moment of their lives.
#[test]
fn pb075_a_close_at_any_moment_ends_once() {
    for seed in 0..150 {
        let mut w = World::with_brokers(seed, 2);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", 3).unwrap();
        let consumer = w.create_consumer(0, "t", "s", |_| {});
        let other = w.create_consumer(0, "u", "s", |_| {});
        let wait = w.rng.u64(0..12_000);
        w.advance(Duration::from_micros(wait));
        if seed % 3 > 0 {
            w.on(consumer, |c, now| c.close(now));
            let wait = w.rng.u64(0..3000);
            w.advance(Duration::from_micros(wait));
        }
        if seed % 5 == 0 {
            w.cut_links();
        }
        let now = w.now();
        let first = w.machine(0).close(now);
        let second = w.machine(0).close(now);
        for id in [first, second] {
            w.complete(geminga_tests::world::At { client: 0, id }).unwrap();
        }
        for handle in [consumer, other] {
            // The book objects to a second one.
            w.await_closed(0, HandleId::Consumer(handle.id));
        }
        assert_eq!(w.stats(0), geminga_core::ClientStats::default(), "seed {seed}");
        w.advance(Duration::from_secs(60));
    }
}

/// Reconnection has no limit: ten refusals are a pause. What is final ends the consumer, and calls say so.
#[test]
fn pb077_a_consumer_comes_back_after_many_refusals_or_says_that_it_is_over() {
    for error in [ServerError::ServiceNotReady, ServerError::ConsumerBusy, ServerError::TopicNotFound] {
        let mut w = World::new(77);
        let producer = w.producer("t", |_| {});
        let consumer = w.consumer("t", "s", |_| {});
        assert!(w.try_receive(consumer).is_none());
        let fault = FaultKind::Refuse(Request::Subscribe, error, "not now".into());
        w.broker.inject(Fault::new(fault).times(10));
        w.cut_links();
        w.advance(Duration::from_secs(1));
        let changes = state_changes(&w, consumer);
        assert!(matches!(changes[0], StateChange::Reconnecting { .. }), "{changes:?}");
        match error {
            ServerError::TopicNotFound => {
                let error = w.await_closed(0, HandleId::Consumer(consumer.id)).expect("an error");
                assert_eq!(error.kind(), ErrorKind::TopicNotFound);
                let gone = w.machine(0).consumer(consumer.id).unwrap_err();
                assert_eq!(gone.kind(), ErrorKind::AlreadyClosed);
            }
            _ => {
                assert!(w.try_receive(consumer).is_none());
                w.publish(producer, ["a"]);
                assert_eq!(text(&w.receive(consumer)), "a");
                assert!(w.broker.faults().is_empty(), "it was refused ten times");
                let changes = state_changes(&w, consumer);
                assert!(matches!(changes.last(), Some(StateChange::Connected { .. })), "{changes:?}");
            }
        }
    }
}

/// Two workers share a partitioned topic with queues of one: neither holds more than its share beside what it works on.
#[test]
fn pb080_a_total_queue_of_one_holds_one_message_for_each_partition() {
    for partitions in [1, 4] {
        let mut w = World::new(80);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", partitions).unwrap();
        let producer = w.producer("t", |c| c.batching = Batching::off());
        w.publish(producer, numbers(0..40));
        let one = |c: &mut geminga_core::ConsumerConfig| {
            shared(c);
            c.receiver_queue_size = 1;
            c.max_total_receiver_queue_size = 1;
        };
        let workers = [w.consumer("t", "s", one), w.consumer("t", "s", one)];
        let mut seen = BTreeSet::new();
        while seen.len() < 40 {
            for worker in workers {
                let Some(message) = w.receive_within(worker, Duration::from_secs(1)) else { continue };
                // Five seconds of work.
                for _ in 0..5 {
                    w.advance(Duration::from_secs(1));
                    for worker in workers {
                        assert!(w.on(worker, |c, _| c.queued_messages()) <= partitions as usize);
                    }
                }
                w.ack(worker, message.message_id());
                assert!(seen.insert(text(&message)));
            }
            for partition in 0..partitions {
                let view = w.broker.subscription(&format!("t-partition-{partition}"), "s").unwrap();
                assert!(view.consumers.iter().all(|c| c.unacked_messages <= 2), "{view:?}");
            }
        }
    }
}

/// Created by hand, deleted by force, and there again half a minute later with as many, fewer and more partitions.
#[test]
fn pb081_a_partitioned_topic_that_is_deleted_and_created_again_is_read_again() {
    for recreated in [3, 2, 5] {
        let mut w = World::configured(81, |s| s.cluster.auto_create_topics = false);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", 3).unwrap();
        let consumer = w.consumer("t", "s", |_| {});
        let producer = w.producer("t", |c| c.batching = Batching::off());
        w.publish(producer, numbers(0..6));
        for _ in 0..6 {
            let message = w.receive(consumer);
            w.ack(consumer, message.message_id());
        }
        w.close_producer(producer);
        let now = w.now();
        w.broker.delete_topic(now, "t", true).unwrap();
        w.advance(Duration::from_secs(30));
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", recreated).unwrap();
        let producer = w.producer("t", |c| c.batching = Batching::off());
        w.publish(producer, numbers(0..20));
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            let message = w.receive(consumer);
            w.ack(consumer, message.message_id());
            seen.insert(text(&message));
        }
        assert_eq!(seen.len(), 20, "{recreated} partitions");
        assert!(w.book.closed(0, HandleId::Consumer(consumer.id)).is_none());
        w.close_client(0);
    }
}

/// Receives of every kind mixed, on one and on many partitions.
#[test]
fn pb083_the_order_within_each_partition_is_exact() {
    for (partitions, count) in [(1, 3_000), (20, 6_000)] {
        let mut w = World::configured(83, |s| s.trace = 0);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", partitions).unwrap();
        let consumer = w.consumer("t", "s", |c| {
            c.receiver_queue_size = 100;
            c.max_total_receiver_queue_size = 400;
        });
        let producer = w.producer("t", |c| c.batching.max_messages = 13);
        let (mut sent, mut out) = (0, Vec::new());
        while out.len() < count {
            for _ in 0..w.rng.usize(0..200).min(count - sent) {
                w.send(producer, sent.to_string());
                sent += 1;
            }
            match w.rng.u8(0..4) {
                0 => out.extend(w.try_receive(consumer)),
                1 => out.extend(w.receive_within(consumer, Duration::from_micros(300))),
                2 => w.advance(Duration::from_micros(500)),
                _ => {
                    let max = w.rng.usize(0..300);
                    w.on(consumer, |mut c, now| c.receive_batch(now, max, &mut out));
                }
            }
        }
        let mut by_partition: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for message in &out {
            by_partition.entry(message.topic()).or_default().push(text(message).parse().unwrap());
        }
        assert_eq!(by_partition.len(), partitions as usize);
        assert!(by_partition.values().all(|numbers| numbers.is_sorted()));
        assert_eq!(out.iter().map(text).collect::<BTreeSet<_>>().len(), count, "each once");
    }
}

/// A thousand messages queued; the link is cut and everything asked for again at random moments, in the middle of batches.
#[test]
fn pb085_a_queue_that_is_cleared_under_the_reader_goes_on_with_fresh_messages() {
    for seed in 0..30 {
        let mut w = World::configured(seed, |s| s.trace = 100);
        let producer = w.producer("t", |c| c.batching.max_messages = 30);
        let subscription_type = match seed % 3 {
            0 => SubscriptionType::Exclusive,
            1 => SubscriptionType::Shared,
            _ => SubscriptionType::KeyShared,
        };
        let consumer = w.consumer("t", "s", |c| c.subscription_type = subscription_type);
        w.publish(producer, numbers(0..1000));
        let mut seen = BTreeSet::new();
        let mut disturbances = 10;
        while seen.len() < 1000 {
            let mut out = Vec::new();
            let max = w.rng.usize(1..80);
            let got = w.on(consumer, |mut c, now| c.receive_batch(now, max, &mut out));
            for message in &out {
                w.ack(consumer, message.message_id());
                seen.insert(text(message));
            }
            let wait = w.rng.u64(0..10_000);
            w.advance(Duration::from_micros(wait));
            if disturbances > 0 && w.rng.u8(0..4) == 0 {
                disturbances -= 1;
                match w.rng.bool() {
                    true => w.cut_links(),
                    false => w.on(consumer, |mut c, now| c.redeliver_unacknowledged(now)),
                }
            }
            if got < max && seen.len() < 1000 {
                let message = w.receive(consumer);
                w.ack(consumer, message.message_id());
                seen.insert(text(&message));
            }
        }
        w.advance(Duration::from_secs(2));
        for message in drain(&mut w, consumer) {
            w.ack(consumer, message.message_id());
        }
        w.advance(Duration::from_secs(1));
        assert_eq!(w.unacked("t", "s"), [""; 0], "seed {seed}");
        assert_permits(&mut w, "t", consumer, 1000);
    }
}

#[test]
fn permits_balance_over_batches_that_come_again_in_part() {
    for size in [1, 2, 7, 100] {
        let mut w = World::new(4);
        let producer = w.producer("t", |c| c.batching.max_messages = 10);
        let consumer = w.consumer("t", "s", |c| {
            shared(c);
            c.receiver_queue_size = size;
            c.batch_index_ack = true;
            c.negative_ack_redelivery_delay = Duration::from_millis(50);
        });
        w.publish(producer, numbers(0..200));
        let mut done = BTreeSet::new();
        while done.len() < 200 {
            let message = w.receive(consumer);
            let index = message.message_id().batch_index;
            match w.rng.u8(0..3) {
                0 if index % 2 == 0 => w.nack(consumer, message.message_id()),
                _ => {
                    w.ack(consumer, message.message_id());
                    done.insert(text(&message));
                }
            }
        }
        w.advance(Duration::from_secs(1));
        for message in drain(&mut w, consumer) {
            w.ack(consumer, message.message_id());
        }
        w.advance(Duration::from_secs(1));
        assert_eq!(w.unacked("t", "s"), [""; 0]);
        assert_permits(&mut w, "t", consumer, size.into());
    }
}

#[test]
fn a_corrupt_entry_costs_no_permits_and_holds_nothing_up() {
    for (size, batch) in [(1, 10), (5, 10), (1000, 10), (1, 1), (10, 1)] {
        let mut w = World::new(5);
        let producer = w.producer("t", |c| {
            c.batching.max_messages = batch;
            c.batching.enabled = batch > 1;
        });
        let consumer = w.consumer("t", "s", |c| {
            shared(c);
            c.receiver_queue_size = size;
        });
        for round in 0..20 {
            w.broker.inject(Fault::new(FaultKind::CorruptMessage).after(1));
            w.publish(producer, (0..3 * batch).map(|n| format!("{round}/{n}")));
            let seen = drain(&mut w, consumer);
            assert!(seen.len() >= 2 * batch, "queue {size}, batches of {batch}, round {round}");
            for message in seen {
                w.ack(consumer, message.message_id());
            }
            w.advance(Duration::from_secs(1));
            assert_eq!(w.unacked("t", "s"), [""; 0], "the corrupt one does not stay");
            assert_permits(&mut w, "t", consumer, size.into());
        }
    }
}

#[test]
fn key_shared_keeps_the_order_of_each_key_over_two_consumers_one_of_which_leaves() {
    for seed in 0..20 {
        let mut w = World::new(seed);
        let producer = w.producer("t", |c| c.batching = Batching::off());
        let by_key = |c: &mut geminga_core::ConsumerConfig| {
            c.subscription_type = SubscriptionType::KeyShared;
            c.receiver_queue_size = 20;
        };
        let mut consumers = vec![w.consumer("t", "s", by_key), w.consumer("t", "s", by_key)];
        let mut sent: Vec<(String, usize)> = Vec::new();
        for n in 0..400 {
            let key = format!("k{}", w.rng.u8(0..10));
            w.send(producer, OutgoingMessage::new(n.to_string()).with_key(key.clone()));
            sent.push((key, n));
        }
        let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut owners: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        let mut count = 0;
        while count < 400 {
            if count == 200 && consumers.len() == 2 {
                let leaving = consumers.pop().unwrap();
                // It finishes what it has, and leaves with nothing in hand.
                w.advance(Duration::from_secs(1));
                w.close_consumer(leaving);
            }
            for consumer in consumers.clone() {
                let Some(message) = w.receive_within(consumer, Duration::from_millis(5)) else { continue };
                let key = message.key().unwrap().into_owned();
                seen.entry(key.clone()).or_default().push(text(&message).parse().unwrap());
                if count < 200 {
                    owners.entry(key).or_default().insert(consumer.id.as_u64());
                }
                w.ack(consumer, message.message_id());
                count += 1;
                if count == 200 {
                    break;
                }
            }
        }
        for (key, numbers) in &seen {
            assert!(numbers.is_sorted(), "{key}: {numbers:?} with seed {seed}");
        }
        assert!(owners.values().all(|o| o.len() == 1), "a key has one consumer");
        assert_eq!(owners.values().flatten().collect::<BTreeSet<_>>().len(), 2, "and both have keys");
        assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 400, "each once");
    }
}

/// The standby takes over what the active one did not acknowledge, in order, and both are told.
#[test]
fn failover_hands_over_what_is_not_acknowledged_and_tells_both() {
    for ending in 0..3 {
        let mut w = World::new(9);
        let backup = w.client(w.client_config());
        let producer = w.producer("t", |_| {});
        let in_line = |place| {
            move |c: &mut geminga_core::ConsumerConfig| {
                c.subscription_type = SubscriptionType::Failover;
                c.priority_level = place;
            }
        };
        let a = w.consumer_of(0, "t", "s", in_line(0));
        let b = w.consumer_of(backup, "t", "s", in_line(1));
        w.publish(producer, numbers(0..10));
        let first = (0..5).map(|_| w.receive(a)).collect::<Vec<_>>();
        assert_eq!(texts(&first), numbers(0..5));
        w.ack_cumulative(a, first[2].message_id());
        assert!(w.receive_within(b, Duration::from_secs(5)).is_none(), "one is active");
        let active = |w: &World, of: ConsumerAt| {
            let changes = state_changes(w, of).into_iter();
            changes
                .filter_map(|c| if let StateChange::Active { active, .. } = c { Some(active) } else { None })
                .next_back()
        };
        assert_eq!((active(&w, a), active(&w, b)), (Some(true), Some(false)));
        match ending {
            0 => w.close_consumer(a),
            1 => w.freeze_client(0),
            _ => {
                let now = w.now();
                w.machine(0).close(now);
            }
        }
        // Of a batch without index acknowledgements, all members come again.
        assert_eq!(w.receive_texts(b, 10), numbers(0..10));
        assert_eq!(active(&w, b), Some(true));
        if ending == 1 {
            // The old one comes back, and being the first in line it is the active one again.
            w.thaw_client(0);
            w.expect("the change back", |w| active(w, a) == Some(true) && active(w, b) == Some(false));
            let again: BTreeSet<String> = drain(&mut w, a).iter().map(text).collect();
            assert_eq!(again.len(), 10, "nobody acknowledged the batch");
        }
    }
}

#[test]
fn partitions_that_are_added_are_read_from_their_first_message() {
    let mut w = World::configured(8, |s| s.client.partitions_update_interval = Duration::from_secs(10));
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 2).unwrap();
    let consumer = w.consumer("t", "s", |c| c.initial_position = InitialPosition::Latest);
    let now = w.now();
    w.broker.grow_partitioned_topic(now, "t", 4).unwrap();
    let producer = w.producer("t", |c| c.batching = Batching::off());
    w.publish(producer, numbers(0..40));
    let seen = w.receive_texts(consumer, 40).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(seen.len(), 40);
    assert!(w.on(consumer, |c, _| c.is_connected()));
}

#[test]
fn unsubscribe_deletes_the_subscription_and_a_refusal_leaves_the_consumer() {
    let mut w = World::new(11);
    let producer = w.producer("t", |_| {});
    let a = w.consumer("t", "s", shared);
    let b = w.consumer("t", "s", shared);
    let id = w.on(a, |mut c, now| c.unsubscribe(now));
    let refused = w.complete(geminga_tests::world::At { client: 0, id });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokerMetadataError);
    w.publish(producer, numbers(0..10));
    w.close_consumer(b);
    let mut seen = BTreeSet::new();
    while seen.len() < 10 {
        let message = w.receive(a);
        seen.insert(text(&message));
    }
    w.unsubscribe(a);
    assert!(w.broker.subscription("t", "s").is_none());
    assert_eq!(w.stats(0).consumers, 0);
}

#[test]
fn unsubscribe_can_be_tried_again_after_one_partition_refused_it() {
    let mut w = World::new(12);
    let now = w.now();
    w.broker.create_partitioned_topic(now, "t", 3).unwrap();
    let consumer = w.consumer("t", "s", |_| {});
    let fault = FaultKind::Refuse(Request::Unsubscribe, ServerError::MetadataError, "not now".into());
    w.broker.inject(Fault::new(fault).on_topic("persistent://public/default/t-partition-1"));
    let id = w.on(consumer, |mut c, now| c.unsubscribe(now));
    let refused = w.complete(geminga_tests::world::At { client: 0, id });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokerMetadataError);
    let start = w.elapsed();
    w.unsubscribe(consumer);
    assert!(w.elapsed() - start < Duration::from_secs(1));
    for partition in 0..3 {
        assert!(w.broker.subscription(&format!("t-partition-{partition}"), "s").is_none());
    }
}

/// Two consumers of one Exclusive subscription: the second waits for the first, or says at once that it is busy.
#[test]
fn a_second_exclusive_consumer_waits_its_turn_or_is_refused_as_configured() {
    let mut w = World::new(13);
    let first = w.consumer("t", "s", |_| {});
    let second = w.create_consumer(0, "t", "s", |_| {});
    w.advance(Duration::from_secs(60));
    assert!(!w.book.is_open(0, HandleId::Consumer(second.id)));
    w.close_consumer(first);
    w.await_consumer(second).unwrap();

    let config = w.client_config();
    let hasty = w.client(geminga_core::ClientConfig {
        operation_retries: geminga_core::OperationRetries::within_operation_timeout(),
        ..config
    });
    let start = w.elapsed();
    let third = w.create_consumer(hasty, "t", "s", |_| {});
    assert_eq!(w.await_consumer(third).unwrap_err().kind(), ErrorKind::ConsumerBusy);
    assert!(w.elapsed() - start < Duration::from_secs(1));
    assert!(w.on(second, |c, _| c.is_connected()), "the holder is not disturbed");
}

/// The link dies without a word: the subscription is still held by the consumer's former self until the broker notices.
#[test]
fn a_consumer_gets_its_subscription_back_from_its_own_former_self() {
    for kind in [SubscriptionType::Exclusive, SubscriptionType::Failover, SubscriptionType::Shared] {
        let mut w = World::new(14);
        let backup = w.client(w.client_config());
        let producer = w.producer_of(backup, "t", |c| c.batching = Batching::off());
        let consumer = w.consumer("t", "s", |c| c.subscription_type = kind);
        w.publish(producer, numbers(0..5));
        for _ in 0..5 {
            let message = w.receive(consumer);
            w.ack(consumer, message.message_id());
        }
        w.advance(Duration::from_secs(1));
        let link = w.links_of_client(0)[0];
        w.silence_link(link);
        w.publish(producer, numbers(5..10));
        let start = w.elapsed();
        let mut seen = BTreeSet::new();
        while seen.len() < 5 {
            seen.insert(text(&w.receive(consumer)));
        }
        assert!(w.elapsed() - start < Duration::from_secs(120), "{kind:?}: {:?}", w.elapsed() - start);
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), numbers(5..10));
        w.advance(Duration::from_secs(120));
        assert_eq!(w.broker.subscription("t", "s").unwrap().consumers.len(), 1);
    }
}

/// A topic moves to another broker under load, with and without the new owner's name: a pause, no error, no loss.
#[test]
fn a_topic_that_moves_between_brokers_is_read_on() {
    for seed in 0..20 {
        let mut w = World::with_brokers(seed, 3);
        let now = w.now();
        w.broker.create_partitioned_topic(now, "t", 3).unwrap();
        let producer = w.producer("t", |_| {});
        let consumer = w.consumer("t", "s", |c| {
            c.receiver_queue_size = 50;
            c.batch_index_ack = seed % 2 == 0;
        });
        let mut seen = BTreeSet::new();
        for round in 0..10 {
            w.publish(producer, numbers(round * 30..round * 30 + 30));
            let now = w.now();
            let node = w.rng.u32(0..3);
            w.broker.move_topic(now, "t", geminga_broker::NodeId(node), seed % 4 < 2).unwrap();
            while seen.len() < round * 30 + 20 {
                let message = w.receive(consumer);
                w.ack(consumer, message.message_id());
                seen.insert(text(&message));
            }
        }
        for message in drain(&mut w, consumer) {
            w.ack(consumer, message.message_id());
            seen.insert(text(&message));
        }
        assert_eq!(seen.len(), 300, "seed {seed}");
        for message in drain(&mut w, consumer) {
            w.ack(consumer, message.message_id());
        }
        w.advance(Duration::from_secs(1));
        for partition in 0..3 {
            assert!(w.unacked(&format!("t-partition-{partition}"), "s").is_empty(), "seed {seed}");
        }
        assert!(w.book.closed(0, HandleId::Consumer(consumer.id)).is_none());
    }
}
