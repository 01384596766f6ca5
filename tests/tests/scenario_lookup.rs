//! Scenarios of lookups: refused, unanswered, redirected.

use std::time::Duration;

use geminga_core::wire::Command;
use geminga_core::wire::proto::ServerError;
use geminga_core::{ErrorKind, OperationRetries};
use geminga_tests::world::World;
use geminga_tests::world::script::{Heard, lookup_failed};

fn lookup_id(heard: &Heard) -> u64 {
    match &heard.command {
        Command::Lookup(c) => c.request_id,
        other => panic!("{} is no LOOKUP", other.name()),
    }
}

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
        w.say(heard.link, lookup_failed(lookup_id(&heard), error, "starting"));
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
