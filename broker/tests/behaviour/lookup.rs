//! Lookups over several brokers, partition counts, topic lists, schemas.

use bytes::Bytes;
use geminga_broker::{LookupAnswer, NodeConfig, NodeId};
use geminga_core::wire::Command;
use geminga_core::wire::proto::command_lookup_topic_response::LookupType;
use geminga_core::wire::proto::command_partitioned_topic_metadata_response::LookupType as Partitions;
use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::proto::{self, ServerError};

use crate::world::{TOPIC, World, error_of, lookup};

fn two_brokers(answer: LookupAnswer) -> World {
    World::with(|config| {
        config.nodes = vec![NodeConfig::new("pulsar://a:1"), NodeConfig::new("pulsar://b:2")];
        config.lookup_answer = answer;
    })
}

fn ask(
    w: &mut World,
    link: geminga_broker::LinkId,
    topic: &str,
    authoritative: bool,
) -> proto::CommandLookupTopicResponse {
    w.send(link, lookup(topic, 1, authoritative));
    match w.next(link) {
        Command::LookupResponse(response) => response,
        other => panic!("no answer to the lookup but {other:?}"),
    }
}

#[test]
fn lookups_end_at_the_owner_from_any_broker() {
    for answer in [LookupAnswer::Connect, LookupAnswer::Redirect] {
        let mut w = two_brokers(answer);
        let links = [w.link_to(0), w.link_to(1)];
        for topic in (0..8).map(|i| format!("{TOPIC}{i}")) {
            for start in 0..2 {
                let (mut at, mut authoritative, mut hops) = (start, false, 0);
                let url = loop {
                    let response = ask(&mut w, links[at], &topic, authoritative);
                    let url = response.broker_service_url().to_owned();
                    authoritative = response.authoritative();
                    at = usize::from(url == "pulsar://b:2");
                    if response.response() == LookupType::Connect {
                        break url;
                    }
                    hops += 1;
                    assert!(hops < 3);
                };
                let owner = w.cluster.owner(&topic).expect("somebody owns it now");
                assert_eq!(url, ["pulsar://a:1", "pulsar://b:2"][owner.0 as usize]);
            }
        }
    }
}

#[test]
fn a_broker_that_does_not_own_a_topic_refuses_its_clients() {
    let mut w = two_brokers(LookupAnswer::Connect);
    let (a, b) = (w.link_to(0), w.link_to(1));
    w.own(a, TOPIC);
    let request = proto::CommandProducer { topic: TOPIC.to_owned(), request_id: 3, ..Default::default() };
    w.send(b, Command::Producer(Box::new(request)));
    assert_eq!(error_of(&w.commands(b)), ServerError::ServiceNotReady);
}

#[test]
fn a_stopped_broker_loses_its_topics_to_the_others_and_keeps_the_store() {
    let mut w = two_brokers(LookupAnswer::Connect);
    let (a, b) = (w.link_to(0), w.link_to(1));
    w.producer(a, 1);
    w.subscribe(a, 1, SubType::Exclusive);
    w.publish(a, 1, 0, "kept");
    w.cluster.stop_node(w.now, NodeId(0));
    w.pump();
    assert!(w.is_closed(a));
    let refused = w.raw_link(0);
    assert!(w.is_closed(refused));
    assert_eq!(ask(&mut w, b, TOPIC, false).broker_service_url(), "pulsar://b:2");
    w.subscribe(b, 1, SubType::Exclusive);
    w.flow(b, 1, 10);
    assert_eq!(w.texts(b), ["kept"]);
    w.cluster.start_node(NodeId(0));
    assert_eq!(w.cluster.owner(TOPIC), Some(NodeId(1)));
    w.link_to(0);
}

#[test]
fn a_move_closes_clients_and_names_the_new_owner_if_asked() {
    for announce in [false, true] {
        let mut w = two_brokers(LookupAnswer::Connect);
        let a = w.link_to(0);
        w.producer(a, 1);
        w.subscribe(a, 2, SubType::Exclusive);
        w.cluster.move_topic(w.now, TOPIC, NodeId(1), announce).unwrap();
        let url = announce.then(|| "pulsar://b:2".to_owned());
        let commands = w.commands(a);
        let [Command::CloseProducer(producer), Command::CloseConsumer(consumer)] = &commands[..] else {
            panic!("not closed: {commands:?}");
        };
        assert_eq!((producer.request_id, &producer.assigned_broker_service_url), (u64::MAX, &url));
        assert_eq!((consumer.request_id, &consumer.assigned_broker_service_url), (u64::MAX, &url));
        assert_eq!(w.cluster.owner(TOPIC), Some(NodeId(1)));
        // What is still on its way from the client is dropped, and the link lives.
        w.publish(a, 1, 0, "late");
        assert!(!w.is_closed(a) && w.commands(a).is_empty());
    }
}

#[test]
fn an_unknown_namespace_or_listener_fails_the_lookup() {
    let mut w = World::new();
    let link = w.link();
    let response = ask(&mut w, link, "persistent://public/nowhere/t", false);
    assert_eq!((response.response(), response.error()), (LookupType::Failed, ServerError::TopicNotFound));
    assert_eq!(response.message(), "Namespace not found");
    let request = proto::CommandLookupTopic {
        topic: TOPIC.to_owned(),
        advertised_listener_name: Some("inside".to_owned()),
        ..Default::default()
    };
    w.send(link, Command::Lookup(request));
    let Command::LookupResponse(response) = w.next(link) else { panic!("no answer") };
    assert_eq!(response.error(), ServerError::ServiceNotReady);
    assert!(response.message().contains("do not have inside listener"));
}

#[test]
fn the_partition_count_is_that_of_the_admin() {
    let mut w = World::new();
    let link = w.link();
    w.cluster.create_partitioned_topic(w.now, "parted", 3).unwrap();
    let mut ask = |topic: &str, create: bool| {
        let request = proto::CommandPartitionedTopicMetadata {
            topic: topic.to_owned(),
            metadata_auto_creation_enabled: Some(create),
            ..Default::default()
        };
        w.send(link, Command::PartitionedMetadata(request));
        match w.next(link) {
            Command::PartitionedMetadataResponse(r) if r.response() == Partitions::Success => {
                Ok(r.partitions())
            }
            Command::PartitionedMetadataResponse(r) => Err(r.error()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask("persistent://public/default/parted", true), Ok(3));
    assert_eq!(ask("persistent://public/default/parted-partition-1", true), Ok(0));
    assert_eq!(ask(TOPIC, true), Ok(0));
    assert_eq!(ask(TOPIC, false), Err(ServerError::TopicNotFound));
    assert_eq!(ask("persistent://public/nowhere/t", true), Err(ServerError::TopicNotFound));
    assert_eq!(ask("wrong://public/default/t", true), Err(ServerError::InvalidTopicName));
}

#[test]
fn a_partition_beyond_the_count_does_not_come_into_being() {
    let mut w = World::new();
    w.cluster.create_partitioned_topic(w.now, TOPIC, 2).unwrap();
    let link = w.link();
    let beyond = format!("{TOPIC}-partition-2");
    w.own(link, &beyond);
    let request = proto::CommandProducer { topic: beyond, ..Default::default() };
    w.send(link, Command::Producer(Box::new(request)));
    assert_eq!(error_of(&w.commands(link)), ServerError::TopicNotFound);
}

#[test]
fn a_topic_list_is_filtered_hashed_and_watched() {
    let mut w = World::new();
    let link = w.link();
    w.cluster.create_topic(w.now, "a1").unwrap();
    w.cluster.create_topic(w.now, "non-persistent://public/default/a2").unwrap();
    w.cluster.create_topic(w.now, "b").unwrap();
    let list = |w: &mut World, pattern: Option<&str>, hash: Option<String>| {
        let request = proto::CommandGetTopicsOfNamespace {
            namespace: "public/default".to_owned(),
            topics_pattern: pattern.map(str::to_owned),
            topics_hash: hash,
            ..Default::default()
        };
        w.send(link, Command::GetTopicsOfNamespace(Box::new(request)));
        match w.next(link) {
            Command::GetTopicsOfNamespaceResponse(response) => response,
            other => panic!("{other:?}"),
        }
    };
    let all = list(&mut w, None, None);
    assert_eq!(all.topics.len(), 2);
    assert!(!all.filtered() && all.changed());
    let some = list(&mut w, Some("public/default/a.*"), None);
    assert_eq!(some.topics, ["persistent://public/default/a1"]);
    assert!(some.filtered());
    let same = list(&mut w, Some("public/default/a.*"), some.topics_hash.clone());
    assert!(!same.changed() && same.topics.is_empty());

    let watch = proto::CommandWatchTopicList {
        request_id: 4,
        watcher_id: 9,
        namespace: "public/default".to_owned(),
        topics_pattern: "public/default/a.*".to_owned(),
        topics_hash: some.topics_hash.clone(),
    };
    w.send(link, Command::WatchTopicList(Box::new(watch)));
    assert!(
        matches!(w.next(link), Command::WatchTopicListSuccess(s) if s.topic.is_empty() && s.watcher_id == 9)
    );
    w.cluster.create_topic(w.now, "c").unwrap();
    assert!(w.commands(link).is_empty());
    w.cluster.create_topic(w.now, "a3").unwrap();
    w.cluster.delete_topic(w.now, "a1", false).unwrap();
    let updates: Vec<_> = w
        .commands(link)
        .into_iter()
        .map(|command| match command {
            Command::WatchTopicUpdate(update) => (update.new_topics, update.deleted_topics),
            other => panic!("{other:?}"),
        })
        .collect();
    let name = |n: &str| vec![format!("persistent://public/default/{n}")];
    assert_eq!(updates, [(name("a3"), vec![]), (vec![], name("a1"))]);
}

#[test]
fn a_schema_is_kept_by_version_and_asked_for() {
    let mut w = World::new();
    let link = w.link();
    let schema = |data: &'static str| proto::Schema {
        r#type: proto::schema::Type::Avro as i32,
        schema_data: Bytes::from_static(data.as_bytes()),
        ..Default::default()
    };
    let success = w.producer_with(link, 1, |p| p.schema = Some(schema("first")));
    assert_eq!(success.schema_version(), 0u64.to_be_bytes());
    let request = proto::CommandGetOrCreateSchema {
        topic: TOPIC.to_owned(),
        schema: schema("second"),
        ..Default::default()
    };
    w.send(link, Command::GetOrCreateSchema(Box::new(request)));
    let Command::GetOrCreateSchemaResponse(response) = w.next(link) else { panic!("no answer") };
    assert_eq!(response.schema_version(), 1u64.to_be_bytes());
    let ask = |w: &mut World, version: Option<u64>| {
        let request = proto::CommandGetSchema {
            topic: TOPIC.to_owned(),
            schema_version: version.map(|v| Bytes::copy_from_slice(&v.to_be_bytes())),
            ..Default::default()
        };
        w.send(link, Command::GetSchema(request));
        match w.next(link) {
            Command::GetSchemaResponse(r) => {
                r.schema.map(|s| s.schema_data).ok_or_else(|| r.error_code.unwrap())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut w, None).unwrap(), "second");
    assert_eq!(ask(&mut w, Some(0)).unwrap(), "first");
    assert_eq!(ask(&mut w, Some(7)), Err(ServerError::TopicNotFound as i32));
}
