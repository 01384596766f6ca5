//! Subscriptions: who may join, who is active, permits, and what they tell of themselves.

use std::time::Duration;

use geminga_core::hash::sticky_slot;
use geminga_core::wire::Command;
use geminga_core::wire::proto::command_ack::AckType;
use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::proto::{self, KeySharedMode, ServerError};

use crate::world::{TOPIC, World, all_texts, earliest, error_of, permits, publish_keys, published};

#[test]
fn the_initial_position_counts_only_when_the_subscription_is_made() {
    let mut w = World::new();
    published(&mut w, &["a", "b"]);
    let (late, early) = (w.link(), w.link());
    w.subscribe(late, 1, SubType::Exclusive);
    w.subscribe_with(early, 1, SubType::Exclusive, |request| {
        earliest(request);
        request.subscription = "early".to_owned();
    });
    w.flow(late, 1, 10);
    w.flow(early, 1, 10);
    assert_eq!(w.texts(early), ["a", "b"]);
    assert!(w.texts(late).is_empty());
    w.drop_link(late);
    let again = w.link();
    w.subscribe_with(again, 1, SubType::Exclusive, earliest);
    w.flow(again, 1, 10);
    assert!(w.texts(again).is_empty());
}

#[test]
fn permits_count_messages_and_a_batch_is_never_split() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.publish_batch(link, 1, 0, &["a", "b", "c", "d", "e"]);
    w.publish(link, 1, 5, "f");
    w.commands(link);
    w.flow(link, 2, 3);
    assert_eq!(w.texts(link), ["a", "b", "c", "d", "e"]);
    assert_eq!(permits(&w, "s"), [-2]);
    w.flow(link, 2, 2);
    assert!(w.texts(link).is_empty());
    w.flow(link, 2, 1);
    assert_eq!(w.texts(link), ["f"]);
}

#[test]
fn a_grant_of_no_permits_closes_the_link() {
    let mut w = World::new();
    let link = w.link();
    w.flow(link, 2, 0);
    assert!(!w.is_closed(link), "a consumer that is not there grants nothing either way");
    w.subscribe(link, 2, SubType::Shared);
    w.flow(link, 2, 0);
    assert!(w.is_closed(link));
}

#[test]
fn a_second_exclusive_consumer_is_refused_unless_the_first_is_silent() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.subscribe(a, 1, SubType::Exclusive);
    assert_eq!(error_of(&w.try_subscribe(b, 1, SubType::Exclusive, |_| {})), ServerError::ConsumerBusy);
    assert_eq!(error_of(&w.try_subscribe(b, 1, SubType::Shared, |_| {})), ServerError::ConsumerBusy);
    assert_eq!(error_of(&w.try_subscribe(a, 2, SubType::Exclusive, |_| {})), ServerError::ConsumerBusy);
    w.subscribe(a, 1, SubType::Exclusive);
    w.mute(a);
    assert!(w.try_subscribe(b, 1, SubType::Exclusive, |_| {}).is_empty());
    w.advance(Duration::from_secs(5));
    assert!(matches!(w.next(b), Command::Success(_)));
    assert!(w.is_closed(a));
}

#[test]
fn requests_that_make_no_sense_get_the_errors_of_the_real_broker() {
    let mut w = World::new();
    let link = w.link();
    let empty = w.try_subscribe(link, 1, SubType::Shared, |request| request.subscription = String::new());
    assert_eq!(error_of(&empty), ServerError::ProducerBusy);
    let compacted = w.try_subscribe(link, 1, SubType::Shared, |request| request.read_compacted = Some(true));
    assert_eq!(error_of(&compacted), ServerError::NotAllowedError);
    let other = format!("{TOPIC}-missing");
    w.own(link, &other);
    let missing = w.try_subscribe(link, 1, SubType::Shared, |request| {
        request.topic = other;
        request.force_topic_creation = Some(false);
    });
    assert_eq!(error_of(&missing), ServerError::TopicNotFound);
    let unknown = proto::CommandGetLastMessageId { consumer_id: 9, request_id: 1 };
    w.send(link, Command::GetLastMessageId(unknown));
    assert_eq!(error_of(&w.commands(link)), ServerError::MetadataError);
    w.ack_with(link, 9, (1, 1), |ack| ack.request_id = Some(3));
    assert!(w.commands(link).is_empty(), "an ack of an unknown consumer has no answer");
}

#[test]
fn exclusive_redelivery_starts_over_at_the_first_unacknowledged_message() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b", "c"]);
    w.subscribe_with(link, 2, SubType::Exclusive, earliest);
    w.flow(link, 2, 10);
    let first = w.messages(link);
    w.ack(link, 2, first[1].id);
    w.redeliver(link, 2, &[]);
    let again = w.messages(link);
    assert_eq!(all_texts(&again), ["a", "c"]);
    assert!(again.iter().all(|m| m.redelivery == 0), "counted for Shared and Key_Shared only");
    w.ack_with(link, 2, first[2].id, |ack| ack.ack_type = AckType::Cumulative as i32);
    assert_eq!(w.cluster.subscription(TOPIC, "s").unwrap().backlog_entries, 0);
}

#[test]
fn the_consumer_epoch_comes_back_with_each_message() {
    let mut w = World::new();
    let link = published(&mut w, &["a"]);
    w.subscribe_with(link, 2, SubType::Exclusive, |request| {
        earliest(request);
        request.consumer_epoch = Some(0);
    });
    w.flow(link, 2, 10);
    let redeliver = proto::CommandRedeliverUnacknowledgedMessages {
        consumer_id: 2,
        consumer_epoch: Some(1),
        ..Default::default()
    };
    w.send(link, Command::RedeliverUnacknowledgedMessages(redeliver));
    let epochs: Vec<_> = w
        .commands(link)
        .into_iter()
        .map(|c| if let Command::Message(m) = c { m.consumer_epoch } else { panic!("{c:?}") })
        .collect();
    assert_eq!(epochs, [Some(0), Some(1)]);
}

/// What a step of a Failover subscription says, in the words of the wire: SUCCESS, and who is told to be active.
fn notices(commands: Vec<Command>) -> Vec<String> {
    let notice = |command| match command {
        Command::Success(_) => Some("success".to_owned()),
        Command::ActiveConsumerChange(c) => Some(format!("{} {}", c.consumer_id, c.is_active())),
        _ => None,
    };
    commands.into_iter().filter_map(notice).collect()
}

#[test]
fn partitions_of_a_failover_subscription_take_turns_by_priority_then_name() {
    // As observed: consumers b, c and a come in this order, then b goes.
    let expected = [
        [
            vec!["success", "2 true"],
            vec!["3 false", "success"],
            vec!["success", "1 true", "2 false", "3 false"],
            vec!["success"],
        ],
        [
            vec!["success", "2 true"],
            vec!["success", "2 false", "3 true"],
            vec!["success", "1 false", "2 true", "3 false"],
            vec!["success", "1 false", "3 true"],
        ],
        [
            vec!["success", "2 true"],
            vec!["3 false", "success"],
            vec!["success", "1 false", "2 false", "3 true"],
            vec!["success", "1 true", "3 false"],
        ],
    ];
    let mut w = World::new();
    w.cluster.create_partitioned_topic(w.now, "parted", 3).unwrap();
    for (index, expected) in expected.into_iter().enumerate() {
        let link = w.link();
        let topic = format!("persistent://public/default/parted-partition-{index}");
        w.own(link, &topic);
        let mut steps = Vec::new();
        for (id, name) in [(2, "b"), (3, "c"), (1, "a")] {
            steps.push(notices(w.try_subscribe(link, id, SubType::Failover, |request| {
                request.topic = topic.clone();
                request.consumer_name = Some(name.to_owned());
            })));
        }
        steps.push(notices(w.close_consumer(link, 2)));
        assert_eq!(steps, expected, "partition {index}");
    }
}

#[test]
fn a_failover_topic_without_partitions_sticks_to_its_ring_and_prefers_the_better_priority() {
    let mut w = World::new();
    let producer = published(&mut w, &["a"]);
    let links: Vec<_> = ["b", "c", "a", "d"]
        .into_iter()
        .map(|name| {
            let link = w.link();
            w.subscribe_with(link, 1, SubType::Failover, |request| {
                earliest(request);
                request.consumer_name = Some(name.to_owned());
                request.priority_level = Some(1);
            });
            w.flow(link, 1, 10);
            link
        })
        .collect();
    let active = |w: &World| {
        let view = w.cluster.subscription(TOPIC, "s").unwrap();
        let active: Vec<_> = view.consumers.into_iter().filter(|c| c.active).map(|c| c.link).collect();
        assert_eq!(active.len(), 1);
        active[0]
    };
    let before = active(&w);
    for link in links.iter().filter(|link| **link != before) {
        w.close_consumer(*link, 1);
        assert_eq!(active(&w), before, "those that go were not active");
    }
    let better = w.link();
    let answer = w.try_subscribe(better, 1, SubType::Failover, |request| {
        request.consumer_name = Some("z".to_owned());
    });
    assert_eq!(notices(answer), ["success", "1 true"]);
    assert_eq!(active(&w), better);
    w.flow(better, 1, 10);
    assert_eq!(w.texts(better), ["a"], "the unacknowledged message goes to the new active consumer");
    w.close_consumer(better, 1);
    w.publish(producer, 1, 1, "b");
    assert_eq!(active(&w), before);
}

#[test]
fn a_takeover_waits_if_the_broker_is_told_to() {
    let mut w = World::with(|config| config.failover_delay = Duration::from_secs(1));
    let link = published(&mut w, &["a"]);
    let answer = w.try_subscribe(link, 2, SubType::Failover, earliest);
    assert_eq!(notices(answer), ["success"]);
    w.flow(link, 2, 10);
    assert!(w.commands(link).is_empty());
    w.advance(Duration::from_secs(1));
    assert_eq!(notices(vec![w.next(link)]), ["2 true"]);
    assert_eq!(w.texts(link), ["a"]);
}

#[test]
fn an_exclusive_consumer_may_ask_for_some_slots_only() {
    let mut w = World::new();
    let producer = published(&mut w, &[]);
    let link = w.link();
    let slot = sticky_slot(b"mine") as i32;
    w.subscribe_with(link, 1, SubType::Exclusive, |request| {
        request.key_shared_meta = Some(proto::KeySharedMeta {
            key_shared_mode: KeySharedMode::Sticky as i32,
            hash_ranges: vec![proto::IntRange { start: slot, end: slot }],
            allow_out_of_order_delivery: None,
        });
    });
    w.flow(link, 1, 10);
    publish_keys(&mut w, producer, 0, 0..20);
    w.publish_with(producer, 1, 20, "mine", |m| m.partition_key = Some("mine"));
    assert_eq!(w.texts(link), ["mine"]);
}

#[test]
fn the_last_message_id_is_as_observed() {
    let mut w = World::new();
    let link = w.link();
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Exclusive);
    let ask = |w: &mut World| {
        w.send(
            link,
            Command::GetLastMessageId(proto::CommandGetLastMessageId { consumer_id: 2, request_id: 1 }),
        );
        match w.commands(link).pop() {
            Some(Command::GetLastMessageIdResponse(r)) => {
                let mark = r.consumer_mark_delete_position.unwrap();
                let last = r.last_message_id;
                assert_eq!(last.partition, Some(-1));
                ((last.ledger_id as i64, last.entry_id as i64, last.batch_index()), mark.entry_id as i64)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut w), ((-1, -1, -1), -1));
    w.publish(link, 1, 0, "a");
    let ledger = w.receipt(link).message_id.unwrap().ledger_id as i64;
    assert_eq!(ask(&mut w), ((ledger, 0, -1), -1));
    w.publish_batch(link, 1, 1, &["b", "c", "d"]);
    w.ack(link, 2, (ledger, 0));
    assert_eq!(ask(&mut w), ((ledger, 1, 2), 0));
}

#[test]
fn unsubscribing_needs_to_be_alone_and_forgets_the_position() {
    let mut w = World::new();
    let (a, b) = (w.link(), w.link());
    w.subscribe(a, 1, SubType::Shared);
    w.subscribe(b, 1, SubType::Shared);
    let unsubscribe = |request_id| {
        Command::Unsubscribe(proto::CommandUnsubscribe { consumer_id: 1, request_id, ..Default::default() })
    };
    w.send(a, unsubscribe(4));
    assert_eq!(error_of(&w.commands(a)), ServerError::MetadataError);
    w.close_consumer(b, 1);
    w.send(a, unsubscribe(5));
    assert!(matches!(w.commands(a)[..], [Command::Success(_)]));
    assert!(w.cluster.subscription(TOPIC, "s").is_none());
}

#[test]
fn consumer_stats_tell_permits_and_backlog() {
    let mut w = World::new();
    let link = published(&mut w, &["a", "b", "c"]);
    w.subscribe_with(link, 2, SubType::Shared, earliest);
    w.flow(link, 2, 10);
    w.messages(link);
    let ask =
        |consumer_id| Command::ConsumerStats(proto::CommandConsumerStats { consumer_id, request_id: 6 });
    w.send(link, ask(2));
    let Command::ConsumerStatsResponse(stats) = w.next(link) else { panic!("no stats") };
    assert_eq!((stats.available_permits(), stats.unacked_messages(), stats.msg_backlog()), (7, 3, 3));
    assert_eq!(stats.r#type(), "Shared");
    w.send(link, ask(3));
    assert!(w.is_closed(link), "as observed: the real broker trips over an unknown consumer");
}

#[test]
fn too_many_unacknowledged_messages_stop_dispatch_until_acks_come() {
    let mut w = World::with(|config| config.max_unacked_per_consumer = 2);
    let link = published(&mut w, &["a", "b", "c"]);
    w.subscribe_with(link, 2, SubType::Shared, earliest);
    w.flow(link, 2, 10);
    let held = w.messages(link);
    assert_eq!(all_texts(&held), ["a", "b"]);
    w.ack(link, 2, held[0].id);
    assert_eq!(w.texts(link), ["c"]);
}

#[test]
fn an_unload_starts_a_new_ledger_and_loses_nothing() {
    let mut w = World::new();
    let link = published(&mut w, &["a"]);
    w.subscribe_with(link, 2, SubType::Shared, earliest);
    w.cluster.unload_topic(w.now, TOPIC).unwrap();
    let closed = w.commands(link);
    assert!(matches!(closed[..], [Command::CloseProducer(_), Command::CloseConsumer(_)]), "{closed:?}");
    w.producer(link, 1);
    w.subscribe(link, 2, SubType::Shared);
    w.publish(link, 1, 1, "b");
    w.receipt(link);
    w.flow(link, 2, 10);
    let messages = w.messages(link);
    assert_eq!(all_texts(&messages), ["a", "b"]);
    assert!(messages[0].id.0 < messages[1].id.0 && messages[1].id.1 == 0);
}

#[test]
fn broker_entry_metadata_goes_to_those_who_can_read_it() {
    let mut w = World::with(|config| config.broker_entry_metadata = true);
    let plain = w.link();
    let able = w.raw_link(0);
    let flags = proto::FeatureFlags { supports_broker_entry_metadata: Some(true), ..Default::default() };
    let connect = proto::CommandConnect { feature_flags: Some(flags), ..Default::default() };
    w.send(able, Command::Connect(Box::new(connect)));
    w.next(able);
    w.producer(plain, 1);
    w.subscribe(plain, 2, SubType::Exclusive);
    w.subscribe_with(able, 2, SubType::Exclusive, |request| request.subscription = "able".to_owned());
    w.flow(plain, 2, 10);
    w.flow(able, 2, 10);
    w.publish(plain, 1, 0, "a");
    w.publish_batch(plain, 1, 1, &["b", "c"]);
    let entries = |frames: Vec<geminga_core::wire::Frame>| -> Vec<Option<u64>> {
        let payloads = frames.into_iter().filter_map(|f| f.payload);
        payloads.map(|p| p.broker_entry.map(|e| e.index())).collect()
    };
    assert_eq!(entries(w.frames(plain)), [None, None]);
    assert_eq!(entries(w.frames(able)), [Some(0), Some(2)]);
}
