//! Scenarios of dead letter topics.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind, Request, StoredMessage};
use geminga_core::wire::proto::ServerError;
use geminga_core::{
    Batching, ClientStats, ConsumerConfig, DeadLetterPolicy, ErrorKind, HandleId, OutgoingMessage, Position,
    StateChange, SubscriptionType,
};
use geminga_tests::world::{ConsumerAt, World, text};

const DEAD: &str = "persistent://public/default/t-s-DLQ";
const SOON: Duration = Duration::from_secs(5);

fn policy(max: u32) -> impl Fn(&mut ConsumerConfig) + Copy {
    move |c| {
        c.subscription_type = SubscriptionType::Shared;
        c.negative_ack_redelivery_delay = Duration::from_millis(100);
        c.dead_letter_policy = Some(DeadLetterPolicy::new(max));
    }
}

/// Receives the one message that there is, and gives it back, until it does not come any more. Returns how often it came.
fn refuse_until_gone(w: &mut World, consumer: ConsumerAt) -> u32 {
    let mut times = 0;
    while let Some(message) = w.receive_within(consumer, SOON) {
        assert_eq!(message.redelivery_count(), times, "{}", text(&message));
        w.nack(consumer, message.message_id());
        times += 1;
    }
    times
}

/// Gives the one message back at both deliveries that `policy(1)` allows: it becomes a dead letter when the delay is over.
fn refuse_twice(w: &mut World, consumer: ConsumerAt) {
    for _ in 0..2 {
        let message = w.receive(consumer);
        w.nack(consumer, message.message_id());
    }
}

/// The part without acknowledgement timeout: as often as was said, counted, and then it is a dead letter.
#[test]
fn pb100_a_message_is_redelivered_up_to_the_threshold_on_plain_and_partitioned_topics() {
    for (partitions, kind) in
        [(0, SubscriptionType::Shared), (1, SubscriptionType::KeyShared), (3, SubscriptionType::Shared)]
    {
        let mut w = World::new(100);
        let now = w.now();
        if partitions > 0 {
            w.broker.create_partitioned_topic(now, "t", partitions).unwrap();
        }
        let producer = w.producer("t", |_| {});
        let consumer = w.consumer("t", "s", |c| {
            policy(10)(c);
            c.subscription_type = kind;
        });
        w.publish(producer, ["poison"]);
        assert_eq!(refuse_until_gone(&mut w, consumer), 11);
        assert_eq!(w.stored(DEAD), ["poison"], "one topic, whatever the partitions");
        let topics = if partitions == 0 {
            vec!["t".to_owned()]
        } else {
            (0..partitions).map(|p| format!("t-partition-{p}")).collect()
        };
        for topic in topics {
            assert_eq!(w.unacked(&topic, "s"), [""; 0]);
        }
        let states = w.state_changes(0, HandleId::Consumer(consumer.id));
        assert!(matches!(states[..], [StateChange::DeadLettered { .. }]), "{states:?}");
    }
}

/// Three consumers that never acknowledge ask for everything again and again: one dead letter, and nothing that another
/// holds comes again by it.
#[test]
fn pb105_asking_for_everything_makes_one_dead_letter_and_no_request_for_all() {
    let mut w = World::new(105);
    let producer = w.producer("t", |c| c.batching = Batching::off());
    let consumers: Vec<_> = (0..3).map(|_| w.consumer("t", "s", policy(3))).collect();
    w.publish(producer, ["poison"]);
    for count in 0..=3 {
        let found: Vec<_> = consumers.iter().filter_map(|c| w.receive_within(*c, SOON)).collect();
        let [message] = &found[..] else { panic!("{} came", found.len()) };
        assert_eq!(message.redelivery_count(), count);
        for consumer in &consumers {
            w.on(*consumer, |mut c, now| c.redeliver_unacknowledged(now));
        }
    }
    assert!(consumers.iter().all(|c| w.receive_within(*c, SOON).is_none()));
    assert_eq!(w.stored(DEAD), ["poison"]);
    assert_eq!(w.unacked("t", "s"), [""; 0]);
    w.publish(producer, ["held", "also held"]);
    let held: Vec<_> = consumers.iter().filter_map(|c| w.receive_within(*c, SOON).map(|m| (*c, m))).collect();
    for consumer in &consumers {
        w.on(*consumer, |mut c, now| c.redeliver_unacknowledged(now));
        w.on(*consumer, |mut c, now| c.redeliver_unacknowledged(now));
    }
    let again: Vec<_> = consumers.iter().filter_map(|c| w.receive_within(*c, SOON)).collect();
    assert_eq!(again.len(), held.len());
    assert!(
        again.iter().all(|m| m.redelivery_count() == 1),
        "asked for once: nothing was held the second time"
    );
}

/// With and without batch index acknowledgements.
#[test]
fn pb106_only_the_members_given_back_are_dead_letters() {
    for index_ack in [true, false] {
        let mut w = World::new(106);
        let producer = w.producer("t", |c| c.batching.max_messages = 3);
        let consumer = w.consumer("t", "s", |c| {
            policy(1)(c);
            c.batch_index_ack = index_ack;
        });
        w.publish(producer, ["0", "1", "2"]);
        for _ in 0..3 {
            let message = w.receive(consumer);
            w.nack(consumer, message.message_id());
        }
        let last: Vec<_> = (0..3).map(|_| w.receive(consumer)).collect();
        assert!(last.iter().all(|m| m.redelivery_count() == 1));
        w.ack(consumer, last[0].message_id());
        w.nack(consumer, last[1].message_id());
        w.nack(consumer, last[2].message_id());
        assert!(w.receive_within(consumer, SOON).is_none());
        assert_eq!(w.stored(DEAD), ["1", "2"]);
        assert_eq!(w.unacked("t", "s"), [""; 0]);
    }
}

/// Two members are given back at different times, while the third waits: the entry is asked for once each time, so that the
/// third does not become a dead letter by the others' count.
#[test]
fn members_given_back_one_after_the_other_count_as_one_redelivery() {
    for kind in [SubscriptionType::Shared, SubscriptionType::KeyShared] {
        for pause in [0, 30, 90, 110] {
            let mut w = World::new(10);
            let producer = w.producer("t", |c| c.batching.max_messages = 4);
            let consumer = w.consumer("t", "s", |c| {
                policy(3)(c);
                c.subscription_type = kind;
            });
            w.publish(producer, ["poison", "poison", "good", "good"]);
            let mut good = 0;
            while let Some(message) = w.receive_within(consumer, SOON) {
                w.advance(Duration::from_millis(pause));
                match text(&message).as_str() {
                    "poison" => w.nack(consumer, message.message_id()),
                    _ if message.redelivery_count() < 2 => {}
                    _ => {
                        w.ack(consumer, message.message_id());
                        good += 1;
                    }
                }
            }
            assert!(good >= 2, "{kind:?}, {pause}: {good}");
            assert_eq!(w.stored(DEAD), ["poison", "poison"], "{kind:?}, {pause}");
            assert_eq!(w.unacked("t", "s"), [""; 0], "{kind:?}, {pause}");
        }
    }
}

/// What waits in the queue is not delivered yet, however often the application asks for everything again.
#[test]
fn pb108_no_message_is_a_dead_letter_that_the_application_has_not_seen() {
    let mut w = World::new(108);
    let producer = w.producer("t", |c| c.batching.max_messages = 2);
    let consumer = w.consumer("t", "s", policy(2));
    w.publish(producer, (0..6).map(|n| n.to_string()));
    for _ in 0..10 {
        w.advance(Duration::from_secs(1));
        w.on(consumer, |mut c, now| c.redeliver_unacknowledged(now));
    }
    for n in 0..6 {
        let message = w.receive(consumer);
        assert_eq!((text(&message), message.redelivery_count()), (n.to_string(), 0));
        w.ack(consumer, message.message_id());
    }
    assert_eq!(w.stored(DEAD), [""; 0]);
}

/// Not authorised, then a quota, then it works.
#[test]
fn pb109_the_original_is_acknowledged_only_after_the_receipt_and_tried_again_before() {
    for (batch, seed) in [(1, 109), (2, 1109)] {
        let mut w = World::new(seed);
        let refuse =
            |request, error| Fault::new(FaultKind::Refuse(request, error, "scripted".into())).on_topic(DEAD);
        let producer =
            w.producer("t", |c| c.batching = Batching { enabled: batch > 1, ..Batching::default() });
        let consumer = w.consumer("t", "s", policy(1));
        w.publish(producer, (0..batch).map(|n| n.to_string()));
        w.broker.inject(refuse(Request::Producer, ServerError::AuthorizationError));
        w.broker.inject(refuse(Request::Send, ServerError::NotAllowedError).after(0));
        let quota = ServerError::ProducerBlockedQuotaExceededException;
        w.broker.inject(refuse(Request::Producer, quota).after(1));
        let failed = |w: &World| {
            let states = w.state_changes(0, HandleId::Consumer(consumer.id));
            states.iter().filter(|s| matches!(s, StateChange::DeadLetterFailed { .. })).count()
        };
        for _ in 0..2 {
            for _ in 0..batch {
                let message = w.receive(consumer);
                match text(&message).as_str() {
                    "0" => w.nack(consumer, message.message_id()),
                    _ => w.ack(consumer, message.message_id()),
                }
            }
        }
        w.expect("a failure", |w| failed(w) == 1);
        assert_eq!(w.unacked("t", "s"), if batch == 1 { vec!["0"] } else { vec!["0", "1"] });
        assert_eq!(w.stored(DEAD), [""; 0]);
        assert!(w.receive_within(consumer, Duration::from_secs(60)).is_none());
        assert!(failed(&w) >= 2, "the refused SEND is told as well");
        assert_eq!(w.stored(DEAD), ["0"]);
        assert_eq!(w.unacked("t", "s"), [""; 0]);
        let states = w.state_changes(0, HandleId::Consumer(consumer.id));
        let first = states.iter().find_map(|s| match s {
            StateChange::DeadLetterFailed { reason, .. } => Some(reason.kind()),
            _ => None,
        });
        assert_eq!(first, Some(ErrorKind::AuthorizationError));
        assert!(matches!(states.last(), Some(StateChange::DeadLettered { .. })), "{states:?}");
    }
}

/// Of a single message and of a batch's members, compressed and not.
#[test]
fn pb111_a_dead_letter_has_all_that_the_message_had() {
    for batch in [false, true] {
        let mut w = World::new(111);
        let producer = w.producer("t", |c| {
            c.batching = if batch { Batching::default() } else { Batching::off() };
            c.compression = geminga_core::Compression::Lz4;
        });
        let consumer = w.consumer("t", "s", |c| {
            policy(1)(c);
            c.dead_letter_policy = Some(DeadLetterPolicy {
                dead_letter_topic: Some("dead".into()),
                initial_subscription: Some("keep".into()),
                ..DeadLetterPolicy::new(1)
            });
        });
        let full = OutgoingMessage::new("value")
            .with_key_bytes([0, 200])
            .with_ordering_key(vec![1, 0, 255])
            .with_property("b", "2")
            .with_property("a", "1")
            .with_event_time(1_700_000_000_001);
        let mut own = OutgoingMessage::new("own").with_property("REAL_TOPIC", "from before").with_key("text");
        own.schema_version = (!batch).then(|| vec![0, 0, 0, 7].into());
        let ids = w.publish(producer, [full, own, OutgoingMessage::null("gone")]);
        for _ in 0..6 {
            let message = w.receive(consumer);
            w.nack(consumer, message.message_id());
        }
        assert!(w.receive_within(consumer, SOON).is_none());
        let stored = w.broker.stored("dead").unwrap();
        let [value, own, null] = &stored[..] else { panic!("{stored:?}") };
        let properties = |m: &StoredMessage| m.properties.clone();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (topic, id) = ("persistent://public/default/t", |n: usize| ids[n].to_string());
        assert_eq!(value.payload, "value");
        assert_eq!(value.key.as_deref(), Some("AMg="));
        assert_eq!(value.ordering_key.as_deref(), Some(&[1, 0, 255][..]));
        assert_eq!(value.event_time, 1_700_000_000_001);
        assert_eq!(
            properties(value),
            [pair("b", "2"), pair("a", "1"), pair("REAL_TOPIC", topic), pair("ORIGIN_MESSAGE_ID", &id(0))]
        );
        assert_eq!(properties(own), [pair("REAL_TOPIC", "from before"), pair("ORIGIN_MESSAGE_ID", &id(1))]);
        assert_eq!((null.key.as_deref(), null.payload.len()), (Some("gone"), 0));
        let keeper =
            w.consumer("dead", "keep", |c| c.initial_position = geminga_core::InitialPosition::Latest);
        let letters: Vec<_> = (0..3).map(|_| w.receive(keeper)).collect();
        assert!(letters[0].has_base64_key() && !letters[1].has_base64_key());
        assert_eq!(letters[0].key_bytes().unwrap(), [0, 200]);
        assert_eq!(letters[1].schema_version(), if batch { &[][..] } else { &[0, 0, 0, 7] });
        assert!(letters[2].is_null());
    }
}

#[test]
fn what_was_delivered_too_often_elsewhere_goes_there_undelivered_and_costs_no_permit() {
    let mut w = World::new(1);
    let producer = w.producer("t", |c| c.batching.max_messages = 2);
    let without = w.consumer("t", "s", |c| {
        policy(1)(c);
        c.dead_letter_policy = None;
    });
    let other = w.consumer("other", "s", policy(1));
    w.publish(producer, ["0", "1"]);
    for _ in 0..6 {
        let message = w.receive(without);
        w.nack(without, message.message_id());
    }
    w.advance(Duration::from_millis(50));
    let with = w.consumer("t", "s", |c| {
        policy(1)(c);
        c.receiver_queue_size = 1;
    });
    w.close_consumer(without);
    assert!(w.receive_within(with, SOON).is_none(), "each came three times already");
    assert_eq!(w.stored(DEAD), ["0", "1"]);
    w.publish(producer, ["2", "3"]);
    assert_eq!(w.receive_texts(with, 2), ["2", "3"]);
    w.close_consumer(with);
    w.close_consumer(other);
    w.close_producer(producer);
    assert_eq!(ClientStats { connections: 0, timers: 0, ..w.stats(0) }, ClientStats::default());
}

#[test]
fn an_acknowledgement_meanwhile_keeps_a_message_out_of_the_dead_letter_topic() {
    let mut w = World::new(2);
    let producer = w.producer("t", |_| {});
    let consumer = w.consumer("t", "s", policy(1));
    w.publish(producer, ["saved"]);
    let message = w.receive(consumer);
    w.nack(consumer, message.message_id());
    let message = w.receive(consumer);
    w.nack(consumer, message.message_id());
    w.advance(Duration::from_millis(20));
    w.ack(consumer, message.message_id());
    w.advance(SOON);
    assert_eq!(w.stored(DEAD), [""; 0]);
    assert_eq!(w.unacked("t", "s"), [""; 0]);
}

/// The connection breaks while the dead letter is on its way, again and again: it comes with the redelivered ones and is
/// not delivered, and there is one.
#[test]
fn a_reconnection_makes_no_second_dead_letter() {
    for seed in 0..40 {
        let mut w = World::new(seed);
        let producer = w.producer("t", |c| c.batching.max_messages = 3);
        let consumer = w.consumer("t", "s", policy(1));
        w.publish(producer, ["0", "1", "2"]);
        for _ in 0..6 {
            let message = w.receive(consumer);
            w.nack(consumer, message.message_id());
        }
        let wait = w.rng.u64(90..160);
        w.advance(Duration::from_millis(wait));
        w.cut_links();
        let mut seen = 0;
        while let Some(message) = w.receive_within(consumer, Duration::from_secs(30)) {
            assert_eq!(message.redelivery_count(), 1, "it was not asked for again");
            w.nack(consumer, message.message_id());
            seen += 1;
        }
        assert!(seen <= 3, "seed {seed}");
        let mut stored = w.stored(DEAD);
        stored.sort();
        stored.dedup();
        assert_eq!(stored, ["0", "1", "2"], "seed {seed}");
        assert_eq!(w.unacked("t", "s"), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_seek_forgets_what_was_on_its_last_delivery_or_on_its_way() {
    for wait in [0, 20, 150, 400] {
        let mut w = World::new(3);
        let producer = w.producer("t", |_| {});
        let consumer = w.consumer("t", "s", policy(1));
        w.publish(producer, ["poison"]);
        refuse_twice(&mut w, consumer);
        w.advance(Duration::from_millis(wait));
        w.seek(consumer, Position::Earliest);
        let message = w.receive(consumer);
        w.advance(SOON);
        assert_eq!(w.unacked("t", "s"), ["poison"], "the receipt of before acknowledges nothing");
        w.ack(consumer, message.message_id());
        w.advance(SOON);
        assert_eq!(w.unacked("t", "s"), [""; 0]);
        assert!(w.stored(DEAD).len() <= 1);
    }
}

/// Closing while a dead letter is on its way waits for it; what was not sent is left to the next consumer.
#[test]
fn a_close_waits_for_what_is_on_its_way_and_leaves_nothing_behind() {
    for wait in [0, 90, 101, 103, 105, 107, 110, 130] {
        let mut w = World::new(4);
        let producer = w.producer("t", |_| {});
        let consumer = w.consumer("t", "s", policy(1));
        w.publish(producer, ["poison"]);
        refuse_twice(&mut w, consumer);
        w.advance(Duration::from_millis(wait));
        w.close_consumer(consumer);
        let dead = w.stored(DEAD).len();
        assert_eq!(w.unacked("t", "s").len(), 1 - dead, "after {wait} ms: here or there, never both or none");
        w.close_client(0);
    }
}

/// The dead letter topic's receipt never comes: the close ends all the same, and the message is the next consumer's.
#[test]
fn a_close_does_not_wait_for_ever() {
    let mut w = World::new(5);
    let producer = w.producer("t", |_| {});
    let consumer = w.consumer("t", "s", policy(1));
    w.publish(producer, ["poison"]);
    w.broker.inject(Fault::new(FaultKind::LoseReceipt).on_topic(DEAD));
    refuse_twice(&mut w, consumer);
    w.expect("the copy", |w| w.stored(DEAD).len() == 1);
    let began = w.elapsed();
    w.close_consumer(consumer);
    assert!(w.elapsed() - began <= w.client_config().operation_timeout);
    assert_eq!(w.unacked("t", "s"), ["poison"]);
    w.close_client(0);
}

#[test]
fn a_client_that_closes_waits_for_its_dead_letters_too() {
    for wait in [100, 103, 106, 109, 112] {
        let mut w = World::new(6);
        let producer = w.producer("t", |_| {});
        let consumer = w.consumer("t", "s", policy(1));
        w.publish(producer, ["poison"]);
        refuse_twice(&mut w, consumer);
        w.advance(Duration::from_millis(wait));
        w.close_client(0);
        assert_eq!(w.unacked("t", "s").len() + w.stored(DEAD).len(), 1);
    }
}

#[test]
fn unsubscribing_ends_it_all() {
    for wait in [0, 101, 105, 109, 200] {
        let mut w = World::new(7);
        let producer = w.producer("t", |_| {});
        let consumer = w.consumer("t", "s", policy(1));
        w.publish(producer, ["poison"]);
        refuse_twice(&mut w, consumer);
        w.advance(Duration::from_millis(wait));
        w.unsubscribe(consumer);
        assert!(w.stored(DEAD).len() <= 1);
        w.close_client(0);
    }
}

/// A thousand of them share the client's memory with a producer that fills it: they wait for room.
#[test]
fn dead_letters_wait_for_room_in_the_clients_memory() {
    let mut w = World::configured(8, |s| s.client.memory_limit = 100);
    let producer = w.producer("t", |_| {});
    let consumer = w.consumer("t", "s", policy(1));
    for n in 0..20 {
        w.publish(producer, [format!("{n:050}")]);
    }
    for _ in 0..40 {
        let message = w.receive(consumer);
        w.nack(consumer, message.message_id());
    }
    assert!(w.receive_within(consumer, Duration::from_secs(30)).is_none());
    assert_eq!(w.stored(DEAD).len(), 20);
    assert_eq!(w.stats(0).memory_used, 0);
    assert_eq!(w.unacked("t", "s"), [""; 0]);
    w.close_client(0);
}

/// The dead letter topic takes nothing any more, and links break at any moment of it: every message stays with the broker,
/// and the application hears of it.
#[test]
fn a_topic_that_refuses_for_ever_loses_nothing() {
    for wait in 0..30 {
        let mut w = World::new(wait);
        let producer = w.producer("t", |c| c.batching = Batching::off());
        let consumer = w.consumer("t", "s", policy(1));
        let terminated = FaultKind::Refuse(Request::Send, ServerError::TopicTerminatedError, "it is".into());
        w.broker.inject(Fault::new(terminated).on_topic(DEAD).times(u32::MAX));
        w.publish(producer, ["0", "1", "2"]);
        for _ in 0..6 {
            let message = w.receive(consumer);
            w.nack(consumer, message.message_id());
        }
        w.advance(Duration::from_millis(100 + wait));
        w.cut_links();
        while let Some(message) = w.receive_within(consumer, Duration::from_secs(20)) {
            w.nack(consumer, message.message_id());
        }
        let states = w.state_changes(0, HandleId::Consumer(consumer.id));
        let failed = states.iter().filter(|s| matches!(s, StateChange::DeadLetterFailed { .. })).count();
        assert!(failed >= 3, "{states:?}");
        assert!(failed <= 100, "it is not asked in a loop: {failed} times");
        assert_eq!(w.unacked("t", "s"), ["0", "1", "2"]);
        w.close_client(0);
    }
}

/// A hundred messages, ten of them poison, three workers with a client each, and the broker restarts in between.
#[test]
fn ten_poison_messages_are_ten_dead_letters_whatever_the_broker_does() {
    for seed in 0..20 {
        let mut w = World::configured(seed, |s| s.cluster.deduplication = true);
        let producer = w.producer("t", |c| c.batching.max_messages = 7);
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let config = w.client_config();
                let client = w.client(config);
                w.consumer_of(client, "t", "s", |c| {
                    policy(2)(c);
                    c.receiver_queue_size = 10;
                    // Else a batch of which one message is a dead letter comes whole to another worker.
                    c.batch_index_ack = true;
                })
            })
            .collect();
        w.publish(
            producer,
            (0..100).map(|n| OutgoingMessage::new(n.to_string()).with_key(format!("key-{n}"))),
        );
        let mut done = std::collections::BTreeSet::new();
        for round in 0..120 {
            if round == 3 + seed {
                w.restart_broker(0);
            }
            for worker in &workers {
                for _ in 0..5 {
                    let Some(message) = w.try_receive(*worker) else { break };
                    match text(&message).parse::<u32>().unwrap() {
                        n if n % 10 == 3 => w.nack(*worker, message.message_id()),
                        n => {
                            w.ack(*worker, message.message_id());
                            done.insert(n);
                        }
                    }
                }
            }
            w.advance(Duration::from_millis(250));
        }
        assert_eq!(w.unacked("t", "s"), [""; 0], "seed {seed}");
        assert_eq!(done.len(), 90, "seed {seed}");
        let mut letters = w.broker.stored(DEAD).unwrap();
        letters.sort_by_key(|m| m.payload.len() as u64 * 100 + u64::from(m.payload[0]));
        let texts: Vec<_> =
            letters.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect();
        let poison: Vec<_> = (0..10).map(|n| (n * 10 + 3).to_string()).collect();
        assert_eq!(texts, poison, "seed {seed}");
        assert!(
            letters.iter().all(|m| m.key == Some(format!("key-{}", String::from_utf8_lossy(&m.payload))))
        );
    }
}

/// Nothing of the producer that a consumer has for itself is told to the application.
#[test]
fn the_consumers_own_producer_is_nobodys_news() {
    let mut w = World::new(9);
    let producer = w.producer("t", |_| {});
    let consumer = w.consumer("t", "s", policy(1));
    w.publish(producer, ["poison"]);
    refuse_until_gone(&mut w, consumer);
    w.cut_links();
    w.advance(SOON);
    w.close_consumer(consumer);
    let foreign = w.events().iter().filter(|o| {
        let text = format!("{:?}", o.event);
        text.contains("Producer(") && !text.contains(&format!("{:?}", producer.id))
    });
    assert_eq!(foreign.count(), 0);
    assert_eq!(w.stats(0).producers, 1, "it ended with the consumer");
}
