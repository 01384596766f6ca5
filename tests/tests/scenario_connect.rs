//! Scenarios of connections: peers that only seem alive, handshakes that break off, hostile bytes, reconnection.

use std::time::Duration;

use geminga_core::wire::proto::command_topic_migrated::ResourceType;
use geminga_core::wire::{Command, proto};
use geminga_core::{
    Batching, ConsumerConfig, ConsumerId, HandleId, InitialPosition, OpId, ServiceUrl, StateChange,
};
use geminga_tests::world::script::{close_consumer, close_producer, connected, encode};
use geminga_tests::world::{At, World};

const SECOND: Duration = Duration::from_secs(1);

/// The peer finishes CONNECT and then only sends PINGs of its own: that is no sign of life.
#[test]
fn pb001_pings_of_the_peer_alone_do_not_keep_a_connection() {
    let mut w = World::scripted(1);
    w.script.by_hand(&["LOOKUP", "PING"]);
    let producer = w.create_producer(0, "t", |_| {});
    let first = w.hear("LOOKUP");
    for _ in 0..9 {
        w.say(first.link, Command::Ping);
        w.advance(Duration::from_secs(10));
    }
    assert!(!w.script.open_links().contains(&first.link), "dead within two keep-alive periods");
    let second = w.hear("LOOKUP");
    assert_ne!(second.link, first.link, "the request is tried elsewhere");
    assert!(second.at.since(first.at) <= Duration::from_secs(60));
    // The new connection answers as brokers do.
    w.script.by_hand(&[]);
    w.answer(&second);
    w.await_producer(producer).unwrap();
}

/// The peer closes at every stage of opening a link; creation goes on until somebody is there.
#[test]
fn pb002_a_peer_that_hangs_up_in_the_handshake_is_tried_again() {
    for round in 0..200 {
        let mut w = World::scripted(round);
        w.script.by_hand(&["CONNECT"]);
        let producer = w.create_producer(0, "t", |_| {});
        let heard = w.hear("CONNECT");
        match round % 3 {
            0 => {}
            1 => {
                let whole = encode(&connected(21));
                let part = whole.slice(..1 + round as usize % (whole.len() - 1));
                w.say_bytes(heard.link, part);
            }
            _ => w.cut_link(heard.link),
        }
        if round % 3 != 2 {
            w.hang_up(heard.link);
        }
        w.script.by_hand(&[]);
        w.await_producer(producer).unwrap();
        assert_eq!(w.script.open_links().len(), 1, "one link, none left over");
    }
}

/// A leaves PRODUCER and SUBSCRIBE unanswered and says that the cluster moved to B: they are cancelled at once.
#[test]
fn pb005_a_migration_cancels_the_request_that_the_old_cluster_left_unanswered() {
    let mut w = World::scripted(5);
    w.script.by_hand(&["PRODUCER", "SUBSCRIBE"]);
    let moved = |resource_id, kind: ResourceType| {
        Command::TopicMigrated(proto::CommandTopicMigrated {
            resource_id,
            resource_type: kind as i32,
            broker_service_url: Some("pulsar://b:6650".to_owned()),
            broker_service_url_tls: None,
        })
    };
    let producer = w.create_producer(0, "t", |_| {});
    let asked = w.hear("PRODUCER");
    let id = asked.as_producer().producer_id;
    w.say_all(asked.link, &[moved(id, ResourceType::Producer), close_producer(id)]);
    let again = w.hear("PRODUCER");
    assert_eq!(again.endpoint, "b:6650");
    assert!(again.at.since(asked.at) < SECOND, "{:?}", again.at.since(asked.at));
    w.answer(&again);
    w.await_producer(producer).unwrap();

    let consumer = subscribe(&mut w, "t", |_| {});
    let asked = w.hear("SUBSCRIBE");
    assert_ne!(asked.endpoint, "b:6650", "a new consumer asks where it was told to");
    let id = asked.as_subscribe().consumer_id;
    w.say_all(asked.link, &[moved(id, ResourceType::Consumer), close_consumer(id)]);
    let again = w.hear("SUBSCRIBE");
    assert_eq!(again.endpoint, "b:6650");
    assert!(again.at.since(asked.at) < SECOND, "{:?}", again.at.since(asked.at));
    w.answer(&again);
    w.await_open(0, HandleId::Consumer(consumer.id)).unwrap();
}

/// CLOSE_CONSUMER, and the end of the link while the pause before the reconnection lasts: one reconnection.
#[test]
fn pb006_two_reasons_to_reconnect_make_one_reconnection() {
    let mut w = World::scripted(6);
    let consumer = subscribe(&mut w, "t", |_| {});
    let producer = w.create_producer(0, "t", |_| {});
    w.await_open(0, HandleId::Consumer(consumer.id)).unwrap();
    w.await_producer(producer).unwrap();
    w.advance(SECOND);
    let counted = ["LOOKUP", "SUBSCRIBE", "PRODUCER", "FLOW"];
    let count = |w: &World| counted.map(|name| w.script.count(name));
    let before = count(&w);
    let link = w.script.open_links()[0];
    let heard = |name| w.script.log().iter().find(|h| h.command.name() == name).unwrap();
    let ids = (heard("SUBSCRIBE").as_subscribe().consumer_id, heard("PRODUCER").as_producer().producer_id);
    w.say_all(link, &[close_consumer(ids.0), close_producer(ids.1)]);
    w.advance(Duration::from_millis(50));
    w.cut_link(link);
    w.advance(20 * SECOND);
    // Producer and consumer ask for the same topic at about the same time: one lookup or two.
    let [lookups, subscribes, producers, flows] = count(&w);
    assert!((before[0] + 1..=before[0] + 2).contains(&lookups), "{lookups} after {}", before[0]);
    assert_eq!([subscribes, producers, flows], [before[1] + 1, before[2] + 1, before[3] + 1]);
    let flow = w.script.log().iter().rev().find(|h| h.command.name() == "FLOW").unwrap();
    assert_eq!(flow.as_flow().message_permits, 1000);
}

/// The broker closes only the handles and keeps its picture of the link: the handles come back on the same link.
#[test]
fn pb007_a_closed_handle_comes_back_on_its_own_connection() {
    let mut w = World::scripted(7);
    let producer = w.producer("t", |c| c.name = Some("n".to_owned()));
    let consumer = subscribe(&mut w, "t", |_| {});
    w.await_open(0, HandleId::Consumer(consumer.id)).unwrap();
    let heard = |name| w.script.log().iter().find(|h| h.command.name() == name).unwrap();
    let ids = (heard("SUBSCRIBE").as_subscribe().consumer_id, heard("PRODUCER").as_producer().producer_id);
    let link = w.script.open_links()[0];
    for _ in 0..50 {
        w.say_all(link, &[close_consumer(ids.0), close_producer(ids.1)]);
        w.advance(SECOND);
    }
    let commands = w.script.log().iter().filter(|h| ["PRODUCER", "SUBSCRIBE"].contains(&h.command.name()));
    let links: Vec<_> = commands.map(|h| h.link).collect();
    assert_eq!(links, vec![link; 102]);
    let last = w.state_changes(0, HandleId::Producer(producer.id)).pop();
    assert!(matches!(last, Some(StateChange::Connected { .. })), "{last:?}");
}

/// Minutes without a network and without a word about it; then it is back.
#[test]
fn pb013_a_consumer_survives_minutes_without_a_network() {
    let mut w = World::new(13);
    let consumer = subscribe(&mut w, "t", |_| {});
    w.await_open(0, HandleId::Consumer(consumer.id)).unwrap();
    w.blackhole("broker-0:6650");
    w.advance(Duration::from_secs(61));
    let states = w.state_changes(0, HandleId::Consumer(consumer.id));
    assert!(matches!(states[..], [.., StateChange::Reconnecting { .. }]), "noticed within the keep-alive");
    w.advance(Duration::from_secs(240 - 61));
    w.heal();
    let healed = w.elapsed();
    let config = w.client_config();
    let other = w.client(config);
    let producer = w.producer_of(other, "t", |_| {});
    let sent = w.send(producer, "after");
    w.expect_published(sent);
    let mut message = None;
    w.expect("the message", |w| {
        let now = w.now();
        message = w.machine(0).consumer(consumer.id).unwrap().receive(now);
        message.is_some()
    });
    assert_eq!(message.unwrap().payload(), b"after");
    // The longest pause, and the time that the broker takes to find the old link dead.
    assert!(w.elapsed() - healed < Duration::from_secs(60 + 10), "{:?}", w.elapsed() - healed);
}

/// One of three addresses in use dies without a word.
#[test]
fn pb015_another_address_of_the_service_url_takes_over() {
    for seed in 0..6 {
        let mut w = World::configured(seed, |s| {
            s.scripted = true;
            s.client.service_url = ServiceUrl::parse("pulsar://a:1,b:2,c:3").unwrap();
        });
        w.script.by_hand(&["SEND"]);
        let producer = w.producer("t", |c| c.send_timeout = None);
        let first = w.script.log()[0].endpoint.clone();
        w.blackhole(&first);
        let start = w.elapsed();
        let sent = w.send(producer, "m");
        let heard = w.hear("SEND");
        assert_ne!(heard.endpoint, first);
        // 15 s until the silence is noticed, 10 s of dialling the dead address once more.
        assert!(w.elapsed() - start < Duration::from_millis(25_500), "{:?}", w.elapsed() - start);
        w.say(heard.link, heard.receipt(0));
        w.expect_published(sent);
    }
}

#[test]
fn pb015_dead_addresses_cost_one_connection_timeout_each() {
    for seed in 0..6 {
        let mut w = World::configured(seed, |s| {
            s.scripted = true;
            s.client.service_url = ServiceUrl::parse("pulsar://a:1,b:2,c:3").unwrap();
            s.blackholes.extend(["a:1".to_owned(), "b:2".to_owned()]);
        });
        w.producer("t", |_| {});
        assert!(w.elapsed() < Duration::from_millis(20_100), "{:?}", w.elapsed());
        assert!(w.script.log().iter().all(|h| h.endpoint == "c:3"));
        let again = w.elapsed();
        w.producer("u", |_| {});
        assert!(w.elapsed() - again < SECOND, "the address that works is remembered");
    }
}

/// Sends, flushes and lookups on a link that is closed at any moment: each ends once, and nothing is left.
#[test]
fn pb016_whatever_is_under_way_when_a_connection_closes_ends_once() {
    for seed in 0..1000 {
        let mut w = World::configured(seed, |s| s.client.max_backoff = SECOND);
        let producer = w.producer("t", |c| {
            c.send_timeout = None;
            c.batching.enabled = seed % 2 == 0;
        });
        let (mut sent, mut ops): (Vec<_>, Vec<OpId>) = (Vec::new(), Vec::new());
        let cut_at = w.rng.usize(0..50);
        for n in 0..50 {
            let now = w.now();
            match w.rng.u8(0..10) {
                0 => ops.push(w.flush(producer).id),
                1 => ops.push(w.machine(0).lookup_topic(now, &format!("u{n}")).unwrap()),
                2 => ops.push(w.machine(0).partitions(now, &format!("u{n}")).unwrap()),
                3 => {
                    let pause = Duration::from_micros(w.rng.u64(0..1000));
                    w.advance(pause);
                }
                _ => sent.push(w.send(producer, format!("{n}"))),
            }
            if n == cut_at {
                match seed % 3 {
                    0 => w.cut_links(),
                    1 => w.restart_broker(0),
                    _ => {
                        let now = w.now();
                        let links = w.broker.links_of(geminga_broker::NodeId(0));
                        links.into_iter().for_each(|link| w.broker.close_link(now, link));
                    }
                }
            }
        }
        for s in sent {
            w.expect_published(s);
        }
        for id in ops {
            w.complete(At { client: 0, id }).unwrap();
        }
        assert_eq!((w.stats(0).requests, w.stats(0).lookups, w.stats(0).pending_messages), (0, 0, 0));
        w.close_client(0);
    }
}

fn hostile_frames() -> Vec<(&'static str, Vec<u8>, bool)> {
    let frame = |total: u32, command: u32, rest: &[u8]| {
        [&total.to_be_bytes()[..], &command.to_be_bytes()[..], rest].concat()
    };
    let unknown = encode(&Command::Unknown(99)).to_vec();
    // A MESSAGE for nobody: its command is whole, what follows is not.
    let message = |tail: &[u8]| {
        let command = Command::Message(proto::CommandMessage { consumer_id: 77, ..Default::default() });
        let mut bytes = encode(&command).to_vec();
        let total = u32::from_be_bytes(bytes[..4].try_into().unwrap()) + tail.len() as u32;
        bytes[..4].copy_from_slice(&total.to_be_bytes());
        bytes.extend_from_slice(tail);
        bytes
    };
    vec![
        ("length 0", vec![0; 4], true),
        ("length 3", vec![0, 0, 0, 3, 0, 0, 0], true),
        ("length 2^31", frame(1 << 31, 8, &[0; 16]), true),
        ("a command larger than its frame", frame(8, 100, &[0; 4]), true),
        ("a command that does not decode", frame(7, 3, &[0xff; 3]), true),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec(), true),
        ("a command of a later protocol", unknown, false),
        ("a command for brokers", encode(&Command::Lookup(Default::default())).to_vec(), true),
        ("a wrong checksum", message(&[0x0e, 0x01, 1, 2, 3, 4, 0, 0, 0, 0]), false),
    ]
}

/// Bytes that are no protocol cost their link at most, and what is optional is passed over.
#[test]
fn pb018_hostile_frames_cost_one_connection_at_most() {
    for (what, bytes, fatal) in hostile_frames() {
        let mut w = World::scripted(18);
        w.script.by_hand(&["SEND"]);
        let producer = w.producer("t", |c| c.batching = Batching::off());
        let link = w.script.open_links()[0];
        w.say_bytes(link, bytes.clone());
        w.advance(SECOND);
        assert_eq!(!w.script.open_links().contains(&link), fatal, "{what}");
        let sent = w.send(producer, "m");
        let heard = w.hear("SEND");
        w.say(heard.link, heard.receipt(0));
        w.expect_published(sent);

        // The same instead of CONNECTED.
        let mut w = World::scripted(18);
        w.script.by_hand(&["CONNECT"]);
        let producer = w.create_producer(0, "t", |_| {});
        let heard = w.hear("CONNECT");
        w.say_bytes(heard.link, bytes);
        w.script.by_hand(&[]);
        w.await_producer(producer).unwrap();
        assert!(!w.script.open_links().contains(&heard.link), "{what} instead of CONNECTED");
    }
}

/// A MESSAGE for a live consumer whose payload is cut short anywhere, or claims sizes beyond it.
#[test]
fn pb018_a_broken_message_neither_panics_nor_stops_the_consumer() {
    let whole =
        geminga_tests::world::script::encode_message(0, geminga_core::MessageId::new(1, 1, -1), 1, b"x");
    for cut in 0..whole.len() - 4 {
        let mut w = World::scripted(cut as u64);
        let consumer = subscribe(&mut w, "t", |_| {});
        w.await_open(0, HandleId::Consumer(consumer.id)).unwrap();
        w.advance(SECOND);
        let id = w.script.log().iter().find(|h| h.command.name() == "SUBSCRIBE").unwrap();
        assert_eq!(id.as_subscribe().consumer_id, 0, "the frame is for this consumer");
        let mut bytes = whole[..whole.len() - cut].to_vec();
        let total = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&total.to_be_bytes());
        if cut > 0 && bytes.len() > 30 {
            let at = 8 + cut % (bytes.len() - 8);
            bytes[at] ^= 0x55;
        }
        let link = w.script.open_links()[0];
        w.say_bytes(link, bytes);
        w.advance(5 * SECOND);
        // Whatever it cost, the consumer takes the next good message.
        let link = *w.script.open_links().last().expect("a link is there, or again");
        w.say_message(link, 0, geminga_core::MessageId::new(1, 2, -1), "good");
        let mut got = Vec::new();
        w.advance(SECOND);
        let now = w.now();
        while let Some(m) = w.machine(0).consumer(consumer.id).unwrap().receive(now) {
            got.push(String::from_utf8_lossy(m.payload()).into_owned());
        }
        assert_eq!(got.last().map(String::as_str), Some("good"), "cut by {cut}: {got:?}");
    }
}

fn subscribe(w: &mut World, topic: &str, change: impl FnOnce(&mut ConsumerConfig)) -> At<ConsumerId> {
    let mut config = ConsumerConfig::new(topic, "s");
    config.initial_position = InitialPosition::Earliest;
    change(&mut config);
    let now = w.now();
    At { client: 0, id: w.machine(0).subscribe(now, config).unwrap() }
}
