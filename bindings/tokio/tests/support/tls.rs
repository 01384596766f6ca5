//! A broker that speaks TLS, and certificates for it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io;
use std::sync::Arc;

use geminga::Pem;
use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_broker::{ClusterConfig, NodeConfig};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A certificate authority.
pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority { certificate: params.self_signed(&key).unwrap(), issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> Pem {
        Pem::Text(self.text().into_bytes())
    }

    pub(crate) fn text(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn issue(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// A broker behind a proxy that speaks TLS with a certificate for `name`; its URL says `localhost`.
pub(crate) async fn tls_broker(
    authority: &Authority,
    name: &str,
    ask_certificate: bool,
) -> (EmbeddedBroker, String) {
    stallable_tls_broker(authority, name, ask_certificate, watch::channel(false).1).await
}

/// The same; while `stalled` holds, the proxy reads nothing from clients.
pub(crate) async fn stallable_tls_broker(
    authority: &Authority,
    name: &str,
    ask_certificate: bool,
    stalled: watch::Receiver<bool>,
) -> (EmbeddedBroker, String) {
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
            let (acceptor, target, stalled) = (acceptor.clone(), target.clone(), stalled.clone());
            tokio::spawn(async move {
                // A refused handshake and an end of either side are what the tests are about.
                if let Ok(tls) = acceptor.accept(socket).await
                    && let Ok(mut plain) = TcpStream::connect(target).await
                {
                    let (from_client, mut to_client) = tokio::io::split(tls);
                    let (mut from_broker, to_broker) = plain.split();
                    tokio::select! {
                        _ = forward(from_client, to_broker, stalled) => {}
                        _ = tokio::io::copy(&mut from_broker, &mut to_client) => {}
                    }
                }
            });
        }
    });
    (broker, url)
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut stalled: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        // Once nobody can change it any more, nothing is stalled.
        stalled.wait_for(|stalled| !stalled).await.ok();
        match from.read(&mut buffer).await? {
            0 => return to.shutdown().await,
            n => to.write_all(&buffer[..n]).await?,
        }
    }
}
