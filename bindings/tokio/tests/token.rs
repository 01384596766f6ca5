//! Tokens: text, file and callback, read anew for each connection.

mod support;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use geminga::{Client, ClientBuilder, Error, ErrorKind};
use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_broker::{ClusterConfig, NodeId};
use support::until;

async fn guarded() -> EmbeddedBroker {
    let cluster = ClusterConfig { tokens: vec!["first".into(), "second".into()], ..ClusterConfig::default() };
    EmbeddedBroker::start(Config { cluster, ..Config::default() }).await.unwrap()
}

async fn send_one(builder: ClientBuilder) -> Result<(), Error> {
    let client = builder.operation_timeout(Duration::from_secs(1)).build()?;
    let producer = client.producer("t").create().await?;
    producer.send("a").await?;
    client.close().await
}

#[tokio::test]
async fn the_right_token_is_accepted_and_a_wrong_one_is_refused_without_being_shown() {
    let broker = guarded().await;
    let url = broker.service_url();
    send_one(Client::builder(url).token("first")).await.unwrap();
    let error = send_one(Client::builder(url).token("wrong-secret")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthenticationError, "{error}");
    assert!(!error.to_string().contains("wrong-secret"), "{error}");
    assert!(!error.to_string().contains("given no token"), "{error}");
    let error = send_one(Client::builder(url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthenticationError, "{error}");
    assert!(error.to_string().contains("given no token"), "{error}");
}

#[tokio::test]
async fn a_token_file_is_read_anew_for_each_connection() {
    let broker = guarded().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let client = Client::builder(broker.service_url()).token_file(&file).build().unwrap();
    let producer = client.producer("t").create().await.unwrap();
    producer.send("a").await.unwrap();
    fs::write(&file, "  second").unwrap();
    broker.with(|cluster, now| {
        for link in cluster.links_of(NodeId(0)) {
            cluster.cut_link(now, link);
        }
    });
    producer.send("b").await.unwrap();
    fs::remove_file(&file).unwrap();
    let error = send_one(Client::builder(broker.service_url()).token_file(&file)).await.unwrap_err();
    assert!(error.to_string().contains("token file"), "{error}");
}

#[tokio::test]
async fn callbacks_of_both_kinds_give_the_token_when_it_is_needed() {
    let broker = guarded().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let asynchronous = Client::builder(broker.service_url()).token_provider(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::task::yield_now().await;
            Ok("first".to_owned())
        }
    });
    send_one(asynchronous).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1, "one connection, one token");
    let blocking = Client::builder(broker.service_url()).token_provider_blocking(|| Ok("second".to_owned()));
    send_one(blocking).await.unwrap();
}

#[tokio::test]
async fn a_callback_that_fails_or_panics_is_the_error_of_what_needed_it() {
    let broker = guarded().await;
    let url = broker.service_url();
    let error = send_one(Client::builder(url).token_provider_blocking(|| Err("the vault is sealed".into())));
    let error = error.await.unwrap_err();
    assert!(error.to_string().contains("the vault is sealed"), "{error}");
    let error = send_one(Client::builder(url).token_provider(|| async { panic!("a bug of the callback's") }));
    let error = error.await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    let error = send_one(Client::builder(url).token_provider_blocking(|| Ok(" ".into()))).await.unwrap_err();
    assert!(error.to_string().contains("empty"), "{error}");
}

#[tokio::test]
async fn a_broker_that_asks_again_gets_the_newest_token() {
    let broker = guarded().await;
    let token = Arc::new(Mutex::new("first".to_owned()));
    let (given, calls) = (token.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    let client = Client::builder(broker.service_url())
        .token_provider_blocking(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(given.lock().unwrap().clone())
        })
        .build()
        .unwrap();
    let producer = client.producer("t").create().await.unwrap();
    *token.lock().unwrap() = "second".to_owned();
    broker.with(|cluster, _| {
        for link in cluster.links_of(NodeId(0)) {
            cluster.challenge(link);
        }
    });
    until("the token is asked for again", || calls.load(Ordering::SeqCst) == 2).await;
    producer.send("a").await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 2, "the same connection served on");
}
