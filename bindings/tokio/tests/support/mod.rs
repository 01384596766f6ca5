//! What the tests share: a broker of their own, and waiting for a fact without depending on speed.
#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use geminga_broker::net::{Config, EmbeddedBroker};

/// A broker on a free port.
pub(crate) async fn broker() -> EmbeddedBroker {
    EmbeddedBroker::start(Config::default()).await.expect("a free port on this machine")
}

/// Waits until `fact` holds; a fact that never comes true fails the test.
pub(crate) async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if fact() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}: not within 10 s");
}

/// The payloads that a topic holds.
pub(crate) fn stored(broker: &EmbeddedBroker, topic: &str) -> Vec<String> {
    let messages = broker.with(|cluster, _| cluster.stored(topic)).expect("stored entries can be read");
    messages.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect()
}
