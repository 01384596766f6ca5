//! `pulsar+ssl://` through a TLS proxy in front of the embedded broker.

mod support;
#[path = "support/tls.rs"]
mod tls_support;

use std::time::Duration;

use geminga::{Client, ClientBuilder, Error, Pem};
use support::stored;
use tls_support::{Authority, tls_broker};

const TOPIC: &str = "persistent://public/default/t";

async fn send_one(builder: ClientBuilder) -> Result<(), Error> {
    let client = builder.operation_timeout(Duration::from_secs(2)).build()?;
    let producer = client.producer(TOPIC).create().await?;
    producer.send("a").await?;
    client.close().await
}

#[tokio::test]
async fn a_certificate_of_the_own_authority_for_the_right_name_is_accepted() {
    let authority = Authority::new();
    let (broker, url) = tls_broker(&authority, "localhost", false).await;
    let client = Client::builder(&url).tls_authorities(authority.pem()).build().unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    let big = "x".repeat(3 << 20);
    let receipts = [producer.enqueue("a").await.unwrap(), producer.enqueue(big.clone()).await.unwrap()];
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(stored(&broker, TOPIC), ["a", &big]);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_unless_names_do_not_matter() {
    let authority = Authority::new();
    let (broker, url) = tls_broker(&authority, "elsewhere.example", false).await;
    let trusting = || Client::builder(&url).tls_authorities(authority.pem());
    let error = send_one(trusting()).await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    assert!(stored(&broker, TOPIC).is_empty());
    send_one(trusting().tls_verify_hostname(false)).await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_unless_anything_goes() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (broker, url) = tls_broker(&authority, "localhost", false).await;
    let distrusting = || Client::builder(&url).tls_authorities(other.pem());
    let error = send_one(distrusting()).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = send_one(distrusting().tls_verify_hostname(false)).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    send_one(distrusting().tls_allow_insecure(true)).await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

#[tokio::test]
async fn a_broker_that_asks_for_a_client_certificate_gets_it() {
    let authority = Authority::new();
    let (broker, url) = tls_broker(&authority, "localhost", true).await;
    let without = || Client::builder(&url).tls_authorities(authority.pem());
    let error = send_one(without()).await.unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    let (certificate, key) = authority.issue("client");
    let directory = tempfile::tempdir().unwrap();
    let (chain_file, key_file) = (directory.path().join("client.pem"), directory.path().join("client.key"));
    std::fs::write(&chain_file, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let with = without().tls_certificate(Pem::File(chain_file), Pem::File(key_file));
    send_one(with).await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

#[tokio::test]
async fn certificates_replaced_in_their_files_serve_the_next_connection() {
    let (old, new) = (Authority::new(), Authority::new());
    let (broker, url) = tls_broker(&new, "localhost", false).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, old.text()).unwrap();
    let client = Client::builder(&url)
        .tls_authorities(Pem::File(file.clone()))
        .operation_timeout(Duration::from_secs(2))
        .build()
        .unwrap();
    let error = client.producer(TOPIC).create().await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    std::fs::write(&file, new.text()).unwrap();
    client.producer(TOPIC).create().await.unwrap().send("a").await.unwrap();
    // One that is being written is no reason to give up what works.
    std::fs::write(&file, "").unwrap();
    broker.with(|cluster, now| {
        for link in cluster.links_of(geminga_broker::NodeId(0)) {
            cluster.cut_link(now, link);
        }
    });
    client.producer(TOPIC).create().await.unwrap().send("b").await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["a", "b"]);
}
