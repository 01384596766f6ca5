//! `pulsar+ssl://` through a TLS proxy in front of the embedded broker.

mod support;

use std::sync::Arc;
use std::time::Duration;

use geminga::{Client, ClientBuilder, Error, Pem};
use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_broker::{ClusterConfig, NodeConfig};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use support::stored;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

const TOPIC: &str = "persistent://public/default/t";

/// A certificate authority.
struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority { certificate: params.self_signed(&key).unwrap(), issuer: Issuer::new(params, key) }
    }

    fn pem(&self) -> Pem {
        Pem::Text(self.certificate.pem().into_bytes())
    }

    fn issue(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// A broker behind a proxy that speaks TLS with a certificate for `name`; its URL says `localhost`.
async fn tls_broker(authority: &Authority, name: &str, ask_certificate: bool) -> (EmbeddedBroker, String) {
    let (certificate, key) = authority.issue(name);
    let provider = Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = if ask_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));

    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("pulsar+ssl://localhost:{}", proxy.local_addr().unwrap().port());
    let node = NodeConfig { service_url_tls: Some(url.clone()), ..NodeConfig::new("") };
    let cluster = ClusterConfig { nodes: vec![node], ..ClusterConfig::default() };
    let broker = EmbeddedBroker::start(Config { cluster, ..Config::default() }).await.unwrap();
    let target = broker.service_url().trim_start_matches("pulsar://").to_owned();
    tokio::spawn(async move {
        while let Ok((socket, _)) = proxy.accept().await {
            let (acceptor, target) = (acceptor.clone(), target.clone());
            tokio::spawn(async move {
                // A refused handshake and an end of either side are what the tests are about.
                if let Ok(mut tls) = acceptor.accept(socket).await
                    && let Ok(mut plain) = TcpStream::connect(target).await
                {
                    tokio::io::copy_bidirectional(&mut tls, &mut plain).await.ok();
                }
            });
        }
    });
    (broker, url)
}

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
