//! A real broker that demands credentials: tokens, TLS with an authority of its own, and what is refused.

use anyhow::{Context, Result};
use geminga::{Client, ClientBuilder, Error, ErrorKind, Pem};
use geminga_tests::lab::{self, Lab};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

const TOPIC: &str = "persistent://public/default/secured";

/// One broker for all that is asked of it: starting one takes longer than everything else here.
#[tokio::test(flavor = "multi_thread")]
async fn only_who_shows_a_good_token_to_the_right_broker_is_served() -> Result<()> {
    if !lab::is_enabled("only_who_shows_a_good_token_to_the_right_broker_is_served") {
        return Ok(());
    }
    let (lab, site) = tokio::task::spawn_blocking(|| {
        let mut lab = Lab::scratch("secured")?;
        let site = lab.standalone_secure()?;
        anyhow::Ok((lab, site))
    })
    .await??;
    let credentials = lab.credentials()?;
    let tls = site.service_url_tls.as_deref().context("it has a TLS port")?;
    let (good, plain) = (credentials.token("admin", None), &site.service_url);
    let own = || Pem::File(credentials.authority());

    // Who is let in, with and without TLS.
    round_trip(Client::builder(plain).token(&good)).await?;
    round_trip(Client::builder(tls).tls_authorities(own()).token(&good)).await?;
    let certificate = Pem::File(credentials.client_certificate());
    let by_certificate = Client::builder(tls).tls_authorities(own());
    round_trip(by_certificate.tls_certificate(certificate, Pem::File(credentials.client_key()))).await?;

    // Who is not: no token, another's signature, an expired one, a role without rights.
    let forged = format!("{}x", &good[..good.len() - 1]);
    let expired = credentials.token("admin", Some(Duration::ZERO));
    refused(Client::builder(plain), ErrorKind::AuthenticationError).await;
    for token in [&forged, &expired] {
        let error = refused(Client::builder(plain).token(token), ErrorKind::AuthenticationError).await;
        assert!(!format!("{error} {error:?}").contains(token.as_str()), "a token does not print");
    }
    let nobody = credentials.token("nobody", None);
    refused(Client::builder(plain).token(nobody), ErrorKind::AuthorizationError).await;

    // Which broker is not trusted: one of an unknown authority, and one under a name that it has no certificate for.
    let fast = |builder: ClientBuilder| builder.token(&good).operation_timeout(Duration::from_secs(3));
    let error = refused(fast(Client::builder(tls)), ErrorKind::ConnectError).await;
    assert!(error.to_string().contains("ertificate"), "{error}");
    let port = tls.rsplit(':').next().context("a port")?.parse()?;
    let other_name = format!("pulsar+ssl://127.0.0.2:{}", forward(port).await?);
    let error =
        refused(fast(Client::builder(&other_name).tls_authorities(own())), ErrorKind::ConnectError).await;
    assert!(error.to_string().contains("127.0.0.2"), "{error}");
    let careless = Client::builder(&other_name).tls_authorities(own()).tls_verify_hostname(false);
    round_trip(careless.token(&good)).await?;
    tokio::task::spawn_blocking(|| drop(lab)).await?;
    Ok(())
}

async fn round_trip(builder: ClientBuilder) -> Result<(), Error> {
    let client = builder.build()?;
    let consumer = client.consumer(TOPIC, "s").subscribe().await?;
    let id = client.producer(TOPIC).create().await?.send("m").await?;
    let message = consumer.receive().await?;
    assert_eq!((message.payload(), message.message_id()), (&b"m"[..], id));
    consumer.acknowledge(&message)?;
    client.close().await
}

async fn refused(builder: ClientBuilder, kind: ErrorKind) -> Error {
    let client = builder.build().expect("the settings are fine");
    let error = client.producer(TOPIC).create().await.expect_err("it must not be let in");
    assert_eq!(error.kind(), kind, "{error}");
    error
}

/// Lets who connects to 127.0.0.2 through to a port of 127.0.0.1. Returns the port.
async fn forward(port: u16) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.2", 0)).await?;
    let here = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut broker = TcpStream::connect(("127.0.0.1", port)).await?;
                tokio::io::copy_bidirectional(&mut socket, &mut broker).await
            });
        }
    });
    Ok(here)
}
