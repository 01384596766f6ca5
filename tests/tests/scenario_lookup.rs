//! Scenarios of lookups: refused, unanswered, redirected.

use std::time::Duration;

use geminga_broker::{Fault, FaultKind, Request};
use geminga_core::wire::proto::ServerError;
use geminga_core::wire::{Command, proto};
use geminga_core::{ErrorKind, OperationRetries, Position, Reply, ServiceUrl, TopicDomain};
use geminga_tests::world::script::{Heard, connect_to, lookup_failed, redirect_to};
use geminga_tests::world::{At, World};

/// MetadataError twice, ServiceNotReady once, then success: a broker that restarts is waited for.
#[test]
fn pb021_transient_errors_of_a_lookup_are_tried_again() {
    let mut w = World::configured(21, |s| {
        s.scripted = true;
        s.client.operation_timeout = Duration::from_secs(30);
        s.client.operation_retries = OperationRetries::within_operation_timeout();
    });
    w.script.by_hand(&["LOOKUP"]);
    let producer = w.create_producer(0, "t", |_| {});
    for error in [ServerError::MetadataError, ServerError::MetadataError, ServerError::ServiceNotReady] {
        let heard = w.hear("LOOKUP");
        w.say(heard.link, lookup_failed(heard.request_id(), error, "starting"));
    }
    let heard = w.hear("LOOKUP");
    w.answer(&heard);
    w.await_producer(producer).unwrap();
    assert!(w.elapsed() < Duration::from_secs(30));
    let pauses: Vec<_> =
        w.script.log().iter().filter(|h| h.command.name() == "LOOKUP").map(|h| h.at).collect();
    assert!(pauses.windows(2).all(|p| p[1].since(p[0]) >= Duration::from_millis(50)), "each after a pause");
}

/// A broker that takes LOOKUP and never answers: the creation ends at the operation timeout and names the topic.
#[test]
fn pb022_a_lookup_that_is_never_answered_ends_with_the_operation() {
    let mut w = World::configured(22, |s| {
        s.scripted = true;
        s.client.operation_timeout = Duration::from_secs(5);
        s.client.operation_retries = OperationRetries::within_operation_timeout();
    });
    w.script.by_hand(&["LOOKUP"]);
    let start = w.elapsed();
    let producer = w.create_producer(0, "silent", |_| {});
    let error = w.await_producer(producer).unwrap_err();
    let took = w.elapsed() - start;
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("persistent://public/default/silent"), "{error}");
    assert!((Duration::from_secs(4)..Duration::from_secs(6)).contains(&took), "{took:?}");
    assert_eq!((w.stats(0).lookups, w.stats(0).requests), (0, 0), "nothing is left behind");
}

/// The variant: the link that swallowed the first LOOKUP breaks, and the second one is answered.
#[test]
fn pb022_a_lookup_is_asked_again_on_a_new_connection() {
    let mut w = World::configured(22, |s| {
        s.scripted = true;
        s.client.operation_timeout = Duration::from_secs(5);
        s.client.operation_retries = OperationRetries::within_operation_timeout();
    });
    w.script.by_hand(&["LOOKUP"]);
    let producer = w.create_producer(0, "t", |_| {});
    let first = w.hear("LOOKUP");
    w.advance(Duration::from_millis(500));
    w.hang_up(first.link);
    let second = w.hear("LOOKUP");
    assert_ne!(first.link, second.link);
    w.answer(&second);
    w.await_producer(producer).unwrap();
}

/// Ten creations on one link; one lookup is refused and the link goes: all ten try again and succeed.
#[test]
fn pb024_one_refused_lookup_takes_nobody_else_down() {
    for retries in [OperationRetries::default(), OperationRetries::within_operation_timeout()] {
        let mut w = World::configured(24, |s| {
            s.scripted = true;
            s.client.operation_retries = retries;
        });
        w.script.by_hand(&["LOOKUP"]);
        let producers: Vec<_> = (0..10).map(|n| w.create_producer(0, &format!("t{n}"), |_| {})).collect();
        let heard: Vec<_> = (0..10).map(|_| w.hear("LOOKUP")).collect();
        let link = heard[0].link;
        assert!(heard.iter().all(|h| h.link == link), "one connection, shared");
        w.say(link, lookup_failed(heard[4].request_id(), ServerError::ServiceNotReady, "no"));
        w.advance(Duration::from_millis(1));
        w.hang_up(link);
        w.script.by_hand(&[]);
        for producer in producers {
            w.await_producer(producer).unwrap();
        }
        assert!(w.elapsed() < Duration::from_secs(10), "{:?}", w.elapsed());
    }
}

/// A broker that advertises both addresses: a plain client stays plain, a TLS client stays with TLS.
#[test]
fn pb027_a_lookup_does_not_change_whether_a_client_speaks_tls() {
    for (service_url, expected) in
        [("pulsar://broker-0:6650", "plain:6650"), ("pulsar+ssl://broker-0:6651", "tls:6651")]
    {
        let mut w = World::configured(27, |s| {
            s.scripted = true;
            s.client.service_url = ServiceUrl::parse(service_url).unwrap();
        });
        w.script.by_hand(&["LOOKUP", "PRODUCER"]);
        w.create_producer(0, "t", |_| {});
        let heard = w.hear("LOOKUP");
        let answer = advertised(&heard, Some("pulsar://plain:6650"), Some("pulsar+ssl://tls:6651"));
        w.say(heard.link, answer);
        assert_eq!(w.hear("PRODUCER").endpoint, expected);
    }
}

/// An address of the other kind, or none of the own kind: the creation fails clearly, nothing is dialled.
#[test]
fn pb027_a_client_never_falls_back_to_the_other_kind_of_link() {
    let plain = Some("pulsar://other:6650");
    let tls = Some("pulsar+ssl://other:6651");
    for (service_url, answer) in [
        ("pulsar+ssl://broker-0:6651", (plain, None)),
        ("pulsar+ssl://broker-0:6651", (plain, plain)),
        ("pulsar://broker-0:6650", (None, tls)),
        ("pulsar://broker-0:6650", (tls, tls)),
    ] {
        let mut w = World::configured(27, |s| {
            s.scripted = true;
            s.client.service_url = ServiceUrl::parse(service_url).unwrap();
        });
        w.script.by_hand(&["LOOKUP"]);
        let producer = w.create_producer(0, "t", |_| {});
        let heard = w.hear("LOOKUP");
        w.say(heard.link, advertised(&heard, answer.0, answer.1));
        let error = w.await_producer(producer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
        assert!(error.to_string().contains("persistent://public/default/t"), "{error}");
        assert!(w.script.log().iter().all(|h| h.endpoint.starts_with("broker-0")));
    }
}

/// Through a proxy: the proxy is dialled and told which broker is meant; when the proxied link goes, the same again.
#[test]
fn pb028_a_broker_behind_a_proxy_is_reached_through_the_proxy() {
    let mut w = World::scripted(28);
    w.script.by_hand(&["LOOKUP"]);
    let producer = w.create_producer(0, "t", |_| {});
    let behind = |heard: &Heard, broker: &str| {
        let mut answer = advertised(heard, Some(broker), None);
        if let Command::LookupResponse(r) = &mut answer {
            r.proxy_through_service_url = Some(true);
        }
        answer
    };
    let heard = w.hear("LOOKUP");
    w.say(heard.link, behind(&heard, "pulsar://hidden-1:6650"));
    w.await_producer(producer).unwrap();
    let connects = |w: &World| -> Vec<(String, Option<String>)> {
        let log = w.script.log().iter().filter(|h| h.command.name() == "CONNECT");
        log.map(|h| (h.endpoint.clone(), h.as_connect().proxy_to_broker_url.clone())).collect()
    };
    let proxy = || "broker-0:6650".to_owned();
    let through = |broker: &str| (proxy(), Some(broker.to_owned()));
    assert_eq!(connects(&w), [(proxy(), None), through("hidden-1:6650")]);

    // The broker behind the proxy dies; the link for lookups lives on.
    let attached = w.script.log().iter().find(|h| h.command.name() == "PRODUCER").unwrap().link;
    assert_ne!(attached, heard.link, "a proxied link leads to one broker");
    w.hang_up(attached);
    let heard = w.hear("LOOKUP");
    w.say(heard.link, behind(&heard, "pulsar://hidden-2:6650"));
    w.expect("the producer's return", |w| w.script.count("PRODUCER") == 2);
    assert_eq!(connects(&w)[2..], [through("hidden-2:6650")]);

    // A close that names the new owner keeps to the proxy, too.
    let producer = w.script.log().iter().rfind(|h| h.command.name() == "PRODUCER").unwrap().clone();
    w.say(
        producer.link,
        Command::CloseProducer(proto::CommandCloseProducer {
            producer_id: producer.as_producer().producer_id,
            request_id: u64::MAX,
            assigned_broker_service_url: Some("pulsar://hidden-3:6650".to_owned()),
            assigned_broker_service_url_tls: None,
        }),
    );
    w.expect("the producer's return", |w| w.script.count("PRODUCER") == 3);
    assert_eq!(connects(&w)[3..], [through("hidden-3:6650")]);
    assert_eq!(w.script.count("LOOKUP"), 2, "no lookup when the owner is named");
}

#[test]
fn a_redirect_behind_a_proxy_stays_with_the_proxy() {
    let mut w = World::scripted(28);
    w.script.by_hand(&["LOOKUP"]);
    let producer = w.create_producer(0, "t", |_| {});
    let heard = w.hear("LOOKUP");
    let mut answer = redirect_to(heard.request_id(), "pulsar://hidden-1:6650");
    if let Command::LookupResponse(r) = &mut answer {
        r.proxy_through_service_url = Some(true);
    }
    w.say(heard.link, answer);
    let heard = w.hear("LOOKUP");
    assert_eq!(heard.endpoint, "broker-0:6650");
    assert_eq!(heard.as_lookup().authoritative, Some(true));
    let connect = w.script.log().iter().find(|h| h.link == heard.link).unwrap();
    assert_eq!(connect.as_connect().proxy_to_broker_url.as_deref(), Some("hidden-1:6650"));
    w.answer(&heard);
    w.await_producer(producer).unwrap();
}

#[test]
fn redirects_are_followed_with_the_authority_that_the_answer_gives() {
    let mut w = World::scripted(1);
    w.script.by_hand(&["LOOKUP"]);
    let producer = w.create_producer(0, "t", |_| {});
    let heard = w.hear("LOOKUP");
    assert_eq!(heard.as_lookup().authoritative, Some(false));
    w.say(heard.link, redirect_to(heard.request_id(), "pulsar://second:6650"));
    let heard = w.hear("LOOKUP");
    assert_eq!((heard.endpoint.as_str(), heard.as_lookup().authoritative), ("second:6650", Some(true)));
    w.say(heard.link, connect_to(heard.request_id(), "pulsar://third:6650"));
    w.await_producer(producer).unwrap();
    let asked = w.script.log().iter().find(|h| h.command.name() == "PRODUCER").unwrap();
    assert_eq!(asked.endpoint, "third:6650");
}

#[test]
fn redirects_without_end_are_an_error_that_says_so() {
    let mut w = World::configured(2, |s| {
        s.client.max_lookup_redirects = 5;
        s.client.operation_timeout = Duration::from_secs(5);
        s.client.operation_retries = OperationRetries::within_operation_timeout();
    });
    w.broker.inject(Fault::new(FaultKind::RedirectLoop).times(u32::MAX));
    let producer = w.create_producer(0, "t", |_| {});
    let error = w.await_producer(producer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LookupError, "{error}");
    assert!(error.to_string().contains("redirected more than 5 times"), "{error}");
    assert!(w.elapsed() <= Duration::from_millis(5_100), "{:?}", w.elapsed());
}

#[test]
fn equal_lookups_in_flight_are_asked_once_and_all_are_answered() {
    let mut w = World::scripted(3);
    w.script.by_hand(&["LOOKUP"]);
    let producers: Vec<_> = (0..10).map(|_| w.create_producer(0, "t", |_| {})).collect();
    let heard = w.hear("LOOKUP");
    w.advance(Duration::from_secs(1));
    assert_eq!(w.script.count("LOOKUP"), 1);
    w.answer(&heard);
    for producer in producers {
        w.await_producer(producer).unwrap();
    }
}

#[test]
fn no_more_lookups_than_configured_are_in_flight() {
    let mut w = World::configured(4, |s| {
        s.scripted = true;
        s.client.concurrent_lookups = 3;
    });
    w.script.by_hand(&["LOOKUP"]);
    let now = w.now();
    let ops: Vec<_> = (0..8).map(|n| w.machine(0).lookup_topic(now, &format!("t{n}")).unwrap()).collect();
    w.advance(Duration::from_secs(1));
    assert_eq!(w.script.count("LOOKUP"), 3);
    for answered in 0..8 {
        let heard = w.hear("LOOKUP");
        w.answer(&heard);
        w.advance(Duration::from_millis(10));
        assert_eq!(w.script.count("LOOKUP"), (answered + 4).min(8));
    }
    for id in ops {
        assert!(matches!(w.complete(At { client: 0, id }), Ok(Reply::Broker(_))));
    }
    assert_eq!(w.stats(0).lookups, 0);
}

#[test]
fn partitions_and_topics_are_answered_and_a_missing_namespace_is_an_error() {
    let mut w = World::new(5);
    let now = w.now();
    w.broker.create_partitioned_topic(now, "parted", 3).unwrap();
    w.broker.create_topic(now, "plain").unwrap();
    let ask = |w: &mut World, topic: &str| {
        let now = w.now();
        let id = w.machine(0).partitions(now, topic).unwrap();
        w.complete(At { client: 0, id })
    };
    assert!(matches!(ask(&mut w, "parted"), Ok(Reply::Partitions(3))));
    assert!(matches!(ask(&mut w, "plain"), Ok(Reply::Partitions(0))));
    let error = ask(&mut w, "persistent://public/nowhere/t").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TopicNotFound, "{error}");
    let id = w.machine(0).topics_of_namespace(now, "public/default", TopicDomain::Persistent).unwrap();
    let Ok(Reply::Topics(mut topics)) = w.complete(At { client: 0, id }) else { panic!("no topics") };
    topics.retain(|t| !t.contains("-partition-"));
    assert!(topics.iter().any(|t| t.ends_with("/plain")), "{topics:?}");
    let error = w.machine(0).partitions(now, "bad\nname").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTopicName);
}

fn advertised(heard: &Heard, plain: Option<&str>, tls: Option<&str>) -> Command {
    let mut answer = connect_to(heard.request_id(), "");
    if let Command::LookupResponse(r) = &mut answer {
        r.broker_service_url = plain.map(str::to_owned);
        r.broker_service_url_tls = tls.map(str::to_owned);
    }
    answer
}

/// Found by seed 1949 of the simulation: a reader joined the question of a producer that looks for new partitions, whose
/// answer never came, and had no time left to ask itself.
#[test]
fn who_joins_a_question_waits_no_longer_than_it_would_alone() {
    let mut w = World::configured(1949, |s| {
        s.client.operation_timeout = Duration::from_secs(120);
        s.client.operation_retries = OperationRetries {
            timeout: Duration::from_secs(30),
            ..OperationRetries::within_operation_timeout()
        };
        s.client.partitions_update_interval = Duration::from_secs(1);
    });
    let now = w.now();
    w.broker.create_partitioned_topic(now, "persistent://public/default/t", 2).unwrap();
    w.producer("t", |_| {});
    w.broker.inject(Fault::new(FaultKind::Ignore(Request::PartitionedMetadata)));
    w.advance(Duration::from_millis(1_500));
    let start = w.now().mono;
    w.reader("t", Position::Earliest, |_| {});
    let took = w.now().mono.since(start);
    assert!(took > Duration::from_secs(20), "it joined: {took:?}");
    assert!(took < Duration::from_secs(40), "and asked again: {took:?}");
}
