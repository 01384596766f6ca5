//! Rules of connections that no scenario names: proof of life, credentials, addresses that never connect, retries.

use std::time::Duration;

use geminga_core::wire::proto::ServerError;
use geminga_core::wire::{Command, proto};
use geminga_core::{
    Authentication, Batching, ConsumerConfig, ErrorKind, Event, HandleId, Mono, OperationRetries, Reply,
    Secret, ServiceUrl,
};
use geminga_tests::world::script::{Heard, error, lookup_failed, partitions};
use geminga_tests::world::{At, Occurrence, World};

const SECOND: Duration = Duration::from_secs(1);
/// What the way of a command and its answer may take here.
const TRAVEL: Duration = Duration::from_millis(5);

fn about(time: Duration, expected: Duration) -> bool {
    time <= expected + TRAVEL && time + TRAVEL >= expected
}

fn within() -> OperationRetries {
    OperationRetries::within_operation_timeout()
}

// Proof of life.

#[test]
fn a_request_without_answer_is_asked_about_after_10_s_and_given_up_5_s_later() {
    let mut w = World::scripted(1);
    w.script.by_hand(&["LOOKUP", "PING"]);
    w.create_producer(0, "t", |_| {});
    let lookup = w.hear("LOOKUP");
    let ping = w.hear("PING");
    assert!(about(ping.at.since(lookup.at), 10 * SECOND), "{:?}", ping.at.since(lookup.at));
    w.expect("the end of the link", |w| !w.script.open_links().contains(&lookup.link));
    assert!(about(w.now().mono.since(ping.at), 5 * SECOND), "{:?}", w.now().mono.since(ping.at));
}

#[test]
fn a_send_without_receipt_is_asked_about_after_10_s_and_waits_on_when_the_peer_lives() {
    let mut w = World::scripted(2);
    w.script.by_hand(&["SEND"]);
    let producer = w.producer("t", |c| {
        c.send_timeout = None;
        c.batching = Batching::off();
    });
    let link = w.script.open_links()[0];
    w.advance(25 * SECOND);
    let sent = w.send(producer, "a");
    let send = w.hear("SEND");
    w.expect("a PING", |w| w.script.count("PING") == 1);
    assert!(about(w.now().mono.since(send.at), 10 * SECOND), "{:?}", w.now().mono.since(send.at));
    // PONG comes by itself: the peer lives, and the receipt may take as long as it takes.
    w.advance(60 * SECOND);
    assert_eq!(w.script.open_links(), [link]);
    assert!((6..=7).contains(&w.script.count("PING")), "{} PINGs in 70 s", w.script.count("PING"));
    w.say(link, send.receipt(0));
    w.expect_published(sent);
}

#[test]
fn an_idle_connection_is_asked_every_30_s_and_given_up_30_s_later() {
    let mut w = World::scripted(3);
    let producer = w.producer("t", |_| {});
    let link = w.script.open_links()[0];
    w.advance(60 * 10 * SECOND);
    assert!((18..=20).contains(&w.script.count("PING")), "{} in 10 minutes", w.script.count("PING"));
    assert_eq!(w.script.open_links(), [link]);
    w.script.by_hand(&["PING"]);
    let ping = w.hear("PING");
    w.expect("the end of the link", |w| !w.script.open_links().contains(&link));
    assert!(about(w.now().mono.since(ping.at), 30 * SECOND), "{:?}", w.now().mono.since(ping.at));
    w.expect("the way back", |w| w.script.count("PRODUCER") == 2);
    assert!(w.book.closed(0, HandleId::Producer(producer.id)).is_none());
}

#[test]
fn the_brokers_ping_is_answered_at_once() {
    let mut w = World::scripted(4);
    w.producer("t", |_| {});
    let link = w.script.open_links()[0];
    let asked = w.now().mono;
    w.say(link, Command::Ping);
    w.expect("a PONG", |w| w.script.count("PONG") == 1);
    assert!(w.now().mono.since(asked) < TRAVEL);
}

#[test]
fn a_peer_that_accepts_and_stays_silent_is_given_up_at_the_connection_timeout() {
    let mut w = World::scripted(5);
    w.script.by_hand(&["CONNECT"]);
    let producer = w.create_producer(0, "t", |_| {});
    let first = w.hear("CONNECT");
    let second = w.hear("CONNECT");
    assert!(second.at.since(first.at) < Duration::from_millis(10_200), "{:?}", second.at.since(first.at));
    assert_ne!(first.link, second.link);
    w.answer(&second);
    w.await_producer(producer).unwrap();
}

#[test]
fn what_this_client_supports_is_announced_and_nothing_else() {
    let mut w = World::configured(6, |s| {
        s.scripted = true;
        s.client.description = Some("shop".to_owned());
    });
    w.producer("t", |_| {});
    let connect = w.script.log()[0].as_connect();
    assert_eq!(connect.protocol_version, Some(21));
    assert!(connect.client_version.starts_with("Geminga-v") && connect.client_version.ends_with("-shop"));
    assert_eq!((&connect.auth_method_name, &connect.auth_data), (&None, &None));
    let flags = connect.feature_flags.unwrap();
    assert_eq!(flags.supports_auth_refresh, Some(true));
    assert_eq!(flags.supports_broker_entry_metadata, Some(true));
    assert_eq!(flags.supports_topic_watchers, None);
}

// Credentials.

#[test]
fn a_token_is_shown_at_connect_and_again_at_each_challenge() {
    let ask = Authentication::Ask { method: "token".to_owned() };
    for authentication in [Authentication::Token(Secret::new("sesame")), ask] {
        let mut w = World::configured(7, |s| {
            s.scripted = true;
            s.client.authentication = authentication;
            s.credentials = Some(b"sesame".to_vec());
        });
        w.script.by_hand(&["CONNECT", "AUTH_RESPONSE"]);
        let producer = w.create_producer(0, "t", |_| {});
        let connect = w.hear("CONNECT");
        let body = connect.as_connect();
        assert_eq!(body.auth_method_name.as_deref(), Some("token"));
        assert_eq!(body.auth_data.as_deref(), Some(&b"sesame"[..]));
        let shown = |heard: &Heard| {
            let response = heard.as_auth_response().response.clone().unwrap();
            assert_eq!(response.auth_method_name.as_deref(), Some("token"));
            assert_eq!(response.auth_data.as_deref(), Some(&b"sesame"[..]));
        };
        // Once within the handshake, then twice in the midst of the connection's life.
        w.say(connect.link, challenge());
        shown(&w.hear("AUTH_RESPONSE"));
        w.answer(&connect);
        w.await_producer(producer).unwrap();
        for _ in 0..2 {
            w.say(connect.link, challenge());
            shown(&w.hear("AUTH_RESPONSE"));
        }
        assert_eq!(w.script.open_links(), [connect.link]);
    }
}

#[test]
fn a_refused_token_ends_the_creation_at_once_and_does_not_show_in_the_error() {
    let mut w = World::configured(8, |s| {
        s.cluster.tokens = vec!["right".to_owned()];
        s.client.authentication = Authentication::Token(Secret::new("wrong-secret"));
    });
    let producer = w.create_producer(0, "t", |_| {});
    let error = w.await_producer(producer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthenticationError, "{error}");
    assert!(!error.to_string().contains("wrong-secret"), "{error}");
    assert!(w.elapsed() < SECOND);
}

#[test]
fn credentials_that_cannot_be_read_are_asked_for_again() {
    let mut w = World::configured(9, |s| {
        s.client.authentication = Authentication::Ask { method: "token".to_owned() };
        s.client.operation_timeout = 3 * SECOND;
    });
    let producer = w.create_producer(0, "t", |_| {});
    let error = w.await_producer(producer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ErrorGettingAuthenticationData, "{error}");
    assert!(error.to_string().contains("the world has no credentials"), "{error}");
}

// Addresses that never connect, and retries.

/// Both retry settings, a refusing and a silent address; a producer, a consumer and a lookup.
#[test]
fn an_address_that_never_connected_is_an_error_at_the_operation_timeout() {
    for retries in [OperationRetries::default(), within()] {
        for silent in [false, true] {
            let mut w = World::configured(10, |s| {
                s.client.operation_retries = retries;
                match silent {
                    true => s.blackholes.insert("broker-0:6650".to_owned()),
                    false => s.refusing.insert("broker-0:6650".to_owned()),
                };
            });
            let producer = w.create_producer(0, "t", |_| {});
            let now = w.now();
            let consumer = w.machine(0).subscribe(now, ConsumerConfig::new("t", "s")).unwrap();
            let op = At { client: 0, id: w.machine(0).partitions(now, "u").unwrap() };
            let errors = [
                w.await_producer(producer).unwrap_err(),
                w.await_open(0, HandleId::Consumer(consumer)).unwrap_err(),
                w.complete(op).unwrap_err(),
            ];
            let took = w.elapsed();
            assert!(
                (30 * SECOND..Duration::from_millis(30_100)).contains(&took),
                "{retries:?} silent {silent}: {took:?}"
            );
            for error in errors {
                let kinds = [ErrorKind::ConnectError, ErrorKind::Timeout];
                assert!(kinds.contains(&error.kind()), "{error}");
                assert!(error.to_string().contains("broker-0:6650"), "{error}");
            }
            w.close_client(0);
        }
    }
}

/// The service URL works, and lookups name a broker that cannot be reached from here.
#[test]
fn a_broker_that_never_connected_is_an_error_at_the_operation_timeout() {
    for retries in [OperationRetries::default(), within()] {
        for silent in [false, true] {
            let mut w = World::configured(11, |s| {
                s.scripted = true;
                s.client.operation_retries = retries;
                match silent {
                    true => s.blackholes.insert("inside:6650".to_owned()),
                    false => s.refusing.insert("inside:6650".to_owned()),
                };
            });
            w.script.by_hand(&["LOOKUP"]);
            let producer = w.create_producer(0, "t", |_| {});
            while w.book.closed(0, HandleId::Producer(producer.id)).is_none() {
                if let Some(heard) = w.heard("LOOKUP") {
                    let to =
                        geminga_tests::world::script::connect_to(heard.request_id(), "pulsar://inside:6650");
                    w.say(heard.link, to);
                }
                w.advance(Duration::from_millis(5));
                assert!(w.elapsed() < 60 * SECOND, "{retries:?} silent {silent}: no end");
            }
            let error = w.await_producer(producer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectError, "{error}");
            assert!(w.elapsed() < Duration::from_millis(30_300), "{:?}", w.elapsed());
            w.close_client(0);
        }
    }
}

#[test]
fn an_address_that_connected_once_is_waited_for_unless_the_timeout_says_otherwise() {
    for (retries, bounded) in [(OperationRetries::default(), false), (within(), true)] {
        let mut w = World::configured(12, |s| s.client.operation_retries = retries);
        w.producer("t", |_| {});
        w.stop_broker(0);
        let start = w.now().mono;
        let late = w.create_producer(0, "u", |_| {});
        w.advance(300 * SECOND);
        assert_eq!(w.book.closed(0, HandleId::Producer(late.id)).is_some(), bounded);
        if bounded {
            let of_late =
                |o: &&Occurrence| matches!(o.event, Event::Closed(h, _) if h == HandleId::Producer(late.id));
            let took = w.events().iter().find(of_late).unwrap().at.since(start);
            assert!(about(took, 30 * SECOND), "{took:?}");
        } else {
            w.start_broker(0);
            w.await_producer(late).unwrap();
        }
    }
}

#[test]
fn not_now_is_asked_again_every_5_s_without_end_by_default() {
    let mut w = World::scripted(13);
    w.script.by_hand(&["LOOKUP", "PRODUCER"]);
    let producer = w.create_producer(0, "t", |_| {});
    let mut last: Option<Mono> = None;
    for _ in 0..30 {
        let heard = w.hear("LOOKUP");
        if let Some(last) = last {
            assert!(about(heard.at.since(last), 5 * SECOND), "{:?}", heard.at.since(last));
        }
        last = Some(heard.at);
        w.say(heard.link, lookup_failed(heard.request_id(), ServerError::ServiceNotReady, "starting"));
    }
    w.script.by_hand(&["PRODUCER"]);
    for _ in 0..10 {
        let heard = w.hear("PRODUCER");
        w.say(heard.link, error(heard.request_id(), ServerError::ProducerBusy, "taken"));
    }
    let heard = w.hear("PRODUCER");
    w.answer(&heard);
    w.await_producer(producer).unwrap();
    assert!(w.elapsed() > 195 * SECOND, "{:?}", w.elapsed());
    // So is a subscription that another consumer holds.
    w.script.by_hand(&["SUBSCRIBE"]);
    let now = w.now();
    let consumer = w.machine(0).subscribe(now, ConsumerConfig::new("t", "s")).unwrap();
    for _ in 0..10 {
        let heard = w.hear("SUBSCRIBE");
        w.say(heard.link, error(heard.request_id(), ServerError::ConsumerBusy, "taken"));
    }
    let heard = w.hear("SUBSCRIBE");
    w.answer(&heard);
    w.await_open(0, HandleId::Consumer(consumer)).unwrap();
}

#[test]
fn in_use_by_another_fails_at_once_for_those_who_come_from_other_clients() {
    let mut w = World::configured(14, |s| {
        s.scripted = true;
        s.client.operation_retries = within();
    });
    w.script.by_hand(&["SUBSCRIBE", "PRODUCER"]);
    let producer = w.create_producer(0, "t", |_| {});
    let heard = w.hear("PRODUCER");
    w.say(heard.link, error(heard.request_id(), ServerError::ProducerBusy, "taken"));
    let refused = w.await_producer(producer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ProducerBusy);
    assert_eq!(refused.server_message(), Some("taken"));
    let now = w.now();
    let consumer = w.machine(0).subscribe(now, ConsumerConfig::new("t", "s")).unwrap();
    let heard = w.hear("SUBSCRIBE");
    w.say(heard.link, error(heard.request_id(), ServerError::ConsumerBusy, "taken"));
    let refused = w.await_open(0, HandleId::Consumer(consumer)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConsumerBusy);
    assert!(w.elapsed() < SECOND);
}

#[test]
fn a_limit_of_retries_is_counted_in_answers() {
    let mut w = World::configured(15, |s| {
        s.scripted = true;
        s.client.operation_retries = OperationRetries { max_retries: Some(2), ..OperationRetries::default() };
    });
    w.script.by_hand(&["LOOKUP"]);
    let producer = w.create_producer(0, "t", |_| {});
    for _ in 0..3 {
        let heard = w.hear("LOOKUP");
        w.say(heard.link, lookup_failed(heard.request_id(), ServerError::MetadataError, "starting"));
    }
    assert_eq!(w.await_producer(producer).unwrap_err().kind(), ErrorKind::BrokerMetadataError);
    assert_eq!(w.script.count("LOOKUP"), 3);
}

/// Half of the time is spent on the partition count, more than the other half on the lookup: one deadline for both.
#[test]
fn all_steps_of_a_creation_share_its_time() {
    let mut w = World::configured(16, |s| {
        s.scripted = true;
        s.client.operation_retries = within();
        s.client.operation_timeout = 8 * SECOND;
    });
    w.script.by_hand(&["LOOKUP", "PARTITIONED_METADATA"]);
    let producer = w.create_producer(0, "t", |_| {});
    let heard = w.hear("PARTITIONED_METADATA");
    w.advance(5 * SECOND);
    w.say(heard.link, partitions(heard.request_id(), 0));
    let error = w.await_producer(producer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(about(w.elapsed(), 8 * SECOND), "{:?}", w.elapsed());
}

#[test]
fn fifty_refusals_within_a_minute_end_the_connection_and_not_forty_nine() {
    let mut w = World::scripted(17);
    w.script.by_hand(&["LOOKUP", "PARTITIONED_METADATA"]);
    let now = w.now();
    let lookups: Vec<_> =
        (0..25).map(|n| w.machine(0).lookup_topic(now, &format!("t{n}")).unwrap()).collect();
    let counts: Vec<_> = (0..25).map(|n| w.machine(0).partitions(now, &format!("t{n}")).unwrap()).collect();
    let mut heard: Vec<_> = (0..25).map(|_| w.hear("LOOKUP")).collect();
    heard.extend((0..25).map(|_| w.hear("PARTITIONED_METADATA")));
    let link = heard[0].link;
    for (n, heard) in heard.iter().enumerate() {
        assert!(w.script.open_links().contains(&link), "still open after {n}");
        let refusal = match &heard.command {
            Command::Lookup(c) => lookup_failed(c.request_id, ServerError::TooManyRequests, "busy"),
            // Brokers refuse these in one way or the other.
            _ if n % 2 == 0 => error(heard.request_id(), ServerError::TooManyRequests, "busy"),
            _ => Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
                request_id: heard.request_id(),
                error: Some(ServerError::TooManyRequests as i32),
                response: Some(1),
                ..Default::default()
            }),
        };
        w.say(link, refusal);
        w.advance(Duration::from_millis(10));
    }
    assert!(!w.script.open_links().contains(&link), "closed after the fiftieth");
    w.script.by_hand(&[]);
    for id in lookups.into_iter().chain(counts) {
        w.complete(At { client: 0, id }).unwrap();
    }
}

#[test]
fn fifty_refusals_in_more_than_a_minute_are_borne() {
    let mut w = World::scripted(18);
    w.script.by_hand(&["LOOKUP"]);
    for n in 0..60 {
        let now = w.now();
        w.machine(0).lookup_topic(now, &format!("t{n}")).unwrap();
        let heard = w.hear("LOOKUP");
        w.say(heard.link, lookup_failed(heard.request_id(), ServerError::TooManyRequests, "busy"));
        w.script.by_hand(&["LOOKUP"]);
        w.advance(2 * SECOND);
        while let Some(heard) = w.heard("LOOKUP") {
            w.answer(&heard);
        }
    }
    assert_eq!(w.script.open_links().len(), 1);
    assert_eq!(w.script.count("CONNECT"), 1);
}

#[test]
fn several_hosts_are_tried_in_turn_and_quickly_when_they_refuse() {
    for seed in 0..8 {
        let mut w = World::configured(seed, |s| {
            s.scripted = true;
            s.client.service_url = ServiceUrl::parse("pulsar://a:1,b:2,c:3,d:4").unwrap();
            s.refusing.extend(["a:1", "b:2", "d:4"].map(str::to_owned));
        });
        w.producer("t", |_| {});
        assert!(w.elapsed() < Duration::from_millis(50), "{:?}", w.elapsed());
        assert!(w.script.log().iter().all(|h| h.endpoint == "c:3"));
    }
}

// The end of a client.

#[test]
fn a_client_closes_with_lookups_queued_and_in_flight_and_dials_no_more() {
    let mut w = World::configured(19, |s| {
        s.scripted = true;
        s.client.concurrent_lookups = 2;
    });
    w.script.by_hand(&["LOOKUP"]);
    let producers: Vec<_> = (0..6).map(|n| w.create_producer(0, &format!("t{n}"), |_| {})).collect();
    let now = w.now();
    let op = w.machine(0).lookup_topic(now, "u").unwrap();
    w.hear("LOOKUP");
    let now = w.now();
    let first = w.machine(0).close(now);
    let second = w.machine(0).close(now);
    for id in [first, second] {
        assert!(matches!(w.complete(At { client: 0, id }), Ok(Reply::Done)));
    }
    assert_eq!(w.stats(0), geminga_core::ClientStats::default());
    assert_eq!(w.complete(At { client: 0, id: op }).unwrap_err().kind(), ErrorKind::AlreadyClosed);
    for producer in producers {
        assert!(w.await_closed(0, HandleId::Producer(producer.id)).is_none());
    }
    w.advance(60 * SECOND);
    assert_eq!(w.script.count("CONNECT"), 1);
    assert_eq!(w.machine(0).deadline(), None, "nothing is left to wait for");
    let now = w.now();
    let refused = w.machine(0).lookup_topic(now, "u").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyClosed);
}

#[test]
fn a_second_close_ends_with_the_first() {
    let mut w = World::scripted(20);
    w.script.by_hand(&["CLOSE_PRODUCER"]);
    w.producer("t", |_| {});
    let now = w.now();
    let ops = [w.machine(0).close(now), w.machine(0).close(now)].map(|id| At { client: 0, id });
    let asked = w.hear("CLOSE_PRODUCER");
    assert!(ops.iter().all(|op| w.book.completed(*op).is_none()), "the broker has not answered");
    w.answer(&asked);
    for op in ops {
        w.complete(op).unwrap();
    }
    let now = w.now();
    let id = w.machine(0).close(now);
    w.complete(At { client: 0, id }).unwrap();
}

fn challenge() -> Command {
    Command::AuthChallenge(proto::CommandAuthChallenge {
        challenge: Some(proto::AuthData {
            auth_method_name: Some("token".to_owned()),
            auth_data: Some("PulsarAuthRefresh".into()),
        }),
        ..Default::default()
    })
}
