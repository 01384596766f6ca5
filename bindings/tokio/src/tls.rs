//! TLS towards brokers. Decides whom to trust and how to show who we are; knows nothing of Pulsar.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use geminga_core::{Error, ErrorKind, LinkError, LinkErrorKind};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

/// Certificates or a key in PEM text, or the file they are in.
#[derive(Clone)]
pub enum Pem {
    /// The text itself.
    Text(Vec<u8>),
    /// A file, read when the client is built and anew for each connection, so that it can be replaced in time.
    File(PathBuf),
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pem::Text(_) => f.write_str("Pem(***)"),
            Pem::File(path) => write!(f, "Pem({})", path.display()),
        }
    }
}

impl Pem {
    fn read(&self, what: &str) -> Result<Vec<u8>, String> {
        match self {
            Pem::Text(text) => Ok(text.clone()),
            Pem::File(path) => fs::read(path).map_err(|e| format!("{what} {}: {e}", path.display())),
        }
    }
}

/// What the builder was told about TLS.
#[derive(Clone, Debug)]
pub(crate) struct TlsOptions {
    /// The authorities to trust; the system's when `None`.
    pub(crate) authorities: Option<Pem>,
    /// The client's certificate chain and its key.
    pub(crate) certificate: Option<(Pem, Pem)>,
    pub(crate) verify_hostname: bool,
    pub(crate) allow_insecure: bool,
}

impl Default for TlsOptions {
    fn default() -> Self {
        TlsOptions { authorities: None, certificate: None, verify_hostname: true, allow_insecure: false }
    }
}

/// What the options' certificates and keys were when they were read.
#[derive(PartialEq)]
struct Material {
    authorities: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// Opens TLS on a connected socket. The system's roots are read at the first use, since many clients never need them.
pub(crate) struct Tls {
    options: TlsOptions,
    /// The latest that worked. Sessions are resumed as long as it lasts, so it is made anew only for other certificates.
    latest: Mutex<Option<(Material, Arc<ClientConfig>)>>,
}

impl Tls {
    pub(crate) fn new(options: TlsOptions) -> Self {
        Tls { options, latest: Mutex::new(None) }
    }

    /// Reads the certificates, for errors at building time.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.config() {
            Ok(_) => Ok(()),
            Err(why) => Err(Error::new(ErrorKind::InvalidConfiguration, "setting up TLS", why)),
        }
    }

    /// The handshake; `host` is the name that the certificate must be for.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        host: &str,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, LinkError> {
        let failed = |message: String| LinkError { kind: LinkErrorKind::Tls, message };
        let tls = self.clone();
        // Files are read, the system's roots among them.
        let config = tokio::task::spawn_blocking(move || tls.config())
            .await
            .map_err(|e| failed(format!("setting up TLS: {e}")))?
            .map_err(failed)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| failed(format!("{host} is neither a host name nor an address")))?;
        TlsConnector::from(config).connect(name, tcp).await.map_err(|e| match tls_cause(&e) {
            Some(cause) => failed(format!("TLS handshake with {host}: {cause}")),
            None => {
                LinkError { kind: LinkErrorKind::Closed, message: format!("TLS handshake with {host}: {e}") }
            }
        })
    }

    /// The configuration for the certificates as they are now. Files that can't be used, since they are just being
    /// replaced, say, leave the one before in place.
    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = self.options.read().and_then(|material| match &*latest {
            Some((before, config)) if *before == material => Ok(config.clone()),
            _ => {
                let config = Arc::new(self.options.build(&material)?);
                *latest = Some((material, config.clone()));
                Ok(config)
            }
        });
        match (renewed, &*latest) {
            (Err(why), Some((_, config))) => {
                tracing::warn!(%why, "the certificates stay as they were");
                Ok(config.clone())
            }
            (renewed, _) => renewed,
        }
    }
}

/// The TLS error behind an I/O error: a server that refuses our certificate says so at the first read only.
pub(crate) fn tls_cause(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

impl TlsOptions {
    fn read(&self) -> Result<Material, String> {
        let authorities =
            self.authorities.as_ref().map(|pem| pem.read("trusted certificates")).transpose()?;
        let certificate = match &self.certificate {
            Some((chain, key)) => Some((chain.read("client certificate")?, key.read("client key")?)),
            None => None,
        };
        Ok(Material { authorities, certificate })
    }

    fn build(&self, material: &Material) -> Result<ClientConfig, String> {
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let builder = if self.allow_insecure {
            let verifier = Trusting { provider, inner: None };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        } else if self.verify_hostname {
            builder.with_root_certificates(roots(material)?)
        } else {
            let inner =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots(material)?), provider.clone())
                    .build()
                    .map_err(|e| e.to_string())?;
            let verifier = Trusting { provider, inner: Some(inner) };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        };
        let Some((chain, key)) = &material.certificate else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates(chain, "client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("client key: {e}"))?;
        builder.with_client_auth_cert(chain, key).map_err(|e| format!("client certificate: {e}"))
    }
}

fn roots(material: &Material) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match &material.authorities {
        Some(pem) => {
            for certificate in certificates(pem, "trusted certificates")? {
                roots.add(certificate).map_err(|e| format!("trusted certificates: {e}"))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            // A system has odd certificates among its many; those that work are enough.
            let (added, _odd) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                let why = found.errors.first().map_or(String::new(), |e| format!(": {e}"));
                return Err(format!("the system has no trusted certificates{why}"));
            }
        }
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| format!("{what}: {e}"))?;
    match found.is_empty() {
        true => Err(format!("{what}: no certificate in the PEM text")),
        false => Ok(found),
    }
}

/// Checks less than it should, as the user asked: any name with `inner`, any certificate without.
#[derive(Debug)]
struct Trusting {
    provider: Arc<CryptoProvider>,
    inner: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is checked last, after the chain and its dates.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: TlsOptions) -> String {
        Tls::new(options).check().unwrap_err().to_string()
    }

    #[test]
    fn certificates_that_cannot_be_read_are_named_when_the_client_is_built() {
        let missing = Pem::File("/nonexistent/ca.pem".into());
        let why = check(TlsOptions { authorities: Some(missing.clone()), ..TlsOptions::default() });
        assert!(why.contains("/nonexistent/ca.pem"), "{why}");
        let empty = Pem::Text(b"no pem here".to_vec());
        let why = check(TlsOptions { authorities: Some(empty.clone()), ..TlsOptions::default() });
        assert!(why.contains("no certificate"), "{why}");
        let pair = Some((empty, Pem::Text(b"secret".to_vec())));
        let why = check(TlsOptions { certificate: pair, allow_insecure: true, ..TlsOptions::default() });
        assert!(why.contains("client certificate") && !why.contains("secret"), "{why}");
    }

    #[test]
    fn pem_text_does_not_print() {
        assert!(!format!("{:?}", Pem::Text(b"BEGIN".to_vec())).contains("BEGIN"));
    }
}
