//! Settings of a client. Decides nothing itself: values go to core, to TLS and to the token source.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use geminga_core::{Authentication, ClientConfig, Error, OperationRetries, Secret};

use crate::auth::{TokenError, TokenSource};
use crate::blocking;
use crate::client::{Client, ClientRef};
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::tls::{Pem, Tls, TlsOptions};

/// Settings of a [`Client`]; [`build`](Self::build) ends it. Each has a default that works.
#[must_use = "nothing happens before `build`"]
#[derive(Clone)]
pub struct ClientBuilder {
    service_url: String,
    settings: Vec<Setting>,
    authentication: Authentication,
    tokens: Option<TokenSource>,
    tls: TlsOptions,
    runtime: Runtime,
}

/// A change to core's configuration, kept until the URL is known to be good.
type Setting = Arc<dyn Fn(&mut ClientConfig) + Send + Sync>;

impl ClientBuilder {
    pub(crate) fn new(service_url: String) -> Self {
        ClientBuilder {
            service_url,
            settings: Vec::new(),
            authentication: Authentication::None,
            tokens: None,
            tls: TlsOptions::default(),
            runtime: Runtime::default(),
        }
    }

    /// Proves who we are with a token that never changes.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.authentication = Authentication::Token(Secret::new(token.into().trim()));
        self.tokens = None;
        self
    }

    /// Proves who we are with the token in a file, read anew for each connection and whenever a broker asks again. White space
    /// around it doesn't count.
    pub fn token_file(self, path: impl Into<PathBuf>) -> Self {
        self.ask_token(TokenSource::File(path.into()))
    }

    /// Proves who we are with the token that a function gives for each connection and whenever a broker asks again.
    ///
    /// It runs in a task of its own; its error is the connection's, which is tried again.
    pub fn token_provider<F, T>(self, provider: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<String, TokenError>> + Send + 'static,
    {
        self.ask_token(TokenSource::Future(Arc::new(move || Box::pin(provider()))))
    }

    /// The same with a function that may block.
    pub fn token_provider_blocking<F>(self, provider: F) -> Self
    where
        F: Fn() -> Result<String, TokenError> + Send + Sync + 'static,
    {
        self.ask_token(TokenSource::Blocking(Arc::new(provider)))
    }

    /// The authorities to trust on `pulsar+ssl://`, in PEM. Default: those of the system.
    pub fn tls_authorities(mut self, pem: Pem) -> Self {
        self.tls.authorities = Some(pem);
        self
    }

    /// The client's certificate chain and its key, in PEM, for brokers that ask for one. Without a token it is also how the
    /// client proves who it is.
    pub fn tls_certificate(mut self, chain: Pem, key: Pem) -> Self {
        self.tls.certificate = Some((chain, key));
        self
    }

    /// Whether a broker's certificate must be for the host name connected to. Default true; without it, whoever has any
    /// certificate of a trusted authority can pose as a broker.
    pub fn tls_verify_hostname(mut self, verify: bool) -> Self {
        self.tls.verify_hostname = verify;
        self
    }

    /// Whether any certificate is good. Default false; for tests only.
    pub fn tls_allow_insecure(mut self, allow: bool) -> Self {
        self.tls.allow_insecure = allow;
        self
    }

    /// Where the client does its work. Default: the runtime it is built in, or a thread of its own without one.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// How long one request may take, and how long an address that never connected is tried. Default 30 s.
    pub fn operation_timeout(self, timeout: Duration) -> Self {
        self.set(move |c| c.operation_timeout = timeout)
    }

    /// What to do when a broker says "not now". Default: try again without limit, 5 s apart, 30 s a try.
    pub fn operation_retries(self, retries: OperationRetries) -> Self {
        self.set(move |c| c.operation_retries = retries)
    }

    /// Limit for name resolution, TCP, TLS and the Pulsar handshake together. Default 10 s.
    pub fn connection_timeout(self, timeout: Duration) -> Self {
        self.set(move |c| c.connection_timeout = timeout)
    }

    /// Delay before the first reconnection, and the longest, which doubling reaches. Default 100 ms and 60 s.
    pub fn backoff(self, initial: Duration, max: Duration) -> Self {
        self.set(move |c| (c.initial_backoff, c.max_backoff) = (initial, max))
    }

    /// Silence on an idle connection before a PING. Default 30 s.
    pub fn keep_alive_interval(self, interval: Duration) -> Self {
        self.set(move |c| c.keep_alive_interval = interval)
    }

    /// Silence before a PING while something waits for an answer, and how long that PING may go unanswered. Default 10 s and 5 s.
    pub fn busy_keep_alive(self, interval: Duration, ping_timeout: Duration) -> Self {
        self.set(move |c| (c.busy_keep_alive_interval, c.ping_timeout) = (interval, ping_timeout))
    }

    /// Redirects followed in one lookup. Default 20.
    pub fn max_lookup_redirects(self, redirects: u32) -> Self {
        self.set(move |c| c.max_lookup_redirects = redirects)
    }

    /// Lookups in flight; further ones wait. Default 5000.
    pub fn concurrent_lookups(self, lookups: usize) -> Self {
        self.set(move |c| c.concurrent_lookups = lookups)
    }

    /// Bytes that messages without receipt may hold, 0 for no limit. Default 64 MiB.
    pub fn memory_limit(self, bytes: usize) -> Self {
        self.set(move |c| c.memory_limit = bytes)
    }

    /// Largest value in bytes that a compressed message may declare. Default 256 MiB.
    pub fn max_uncompressed_size(self, bytes: usize) -> Self {
        self.set(move |c| c.max_uncompressed_size = bytes)
    }

    /// How often the partition count of a topic is asked again, zero for never. Default 60 s.
    pub fn partitions_update_interval(self, interval: Duration) -> Self {
        self.set(move |c| c.partitions_update_interval = interval)
    }

    /// Name of the advertised listener to look up, for brokers with several.
    pub fn listener_name(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.set(move |c| c.listener_name = Some(name.clone()))
    }

    /// Free text that brokers see after the client version, at most 64 characters.
    pub fn description(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.set(move |c| c.description = Some(text.clone()))
    }

    /// Any setting of core's configuration, the above included. Those made here last.
    pub fn configure(self, change: impl Fn(&mut ClientConfig) + Send + Sync + 'static) -> Self {
        self.set(change)
    }

    /// The client. Nothing is connected before it is used.
    ///
    /// Errors: InvalidUrl; InvalidConfiguration, certificates that cannot be read included; Interrupted when no thread
    /// could be started.
    pub fn build(self) -> Result<Client, Error> {
        let mut config = ClientConfig::new(&self.service_url)?;
        config.authentication = match (self.authentication, &self.tokens, &self.tls.certificate) {
            (Authentication::None, None, Some(_)) => Authentication::Tls,
            (authentication, ..) => authentication,
        };
        for setting in &self.settings {
            setting(&mut config);
        }
        let own_tls = self.tls.authorities.is_some() || self.tls.certificate.is_some();
        let tls = Tls::new(self.tls);
        if own_tls || self.service_url.starts_with("pulsar+ssl") {
            tls.check()?;
        }
        let shared = Arc::new(Shared::new(config, seed(), tls, self.tokens)?);
        let client = Client { inner: Arc::new(ClientRef { shared: shared.clone() }) };
        self.runtime.drive(shared)?;
        Ok(client)
    }

    /// The client for programs without async, on a thread of its own. Errors as for [`build`](Self::build).
    pub fn build_blocking(self) -> Result<blocking::Client, Error> {
        Ok(blocking::Client::new(self.runtime(Runtime::Own).build()?))
    }

    fn set(mut self, change: impl Fn(&mut ClientConfig) + Send + Sync + 'static) -> Self {
        self.settings.push(Arc::new(change));
        self
    }

    fn ask_token(mut self, source: TokenSource) -> Self {
        self.authentication = Authentication::Ask { method: "token".into() };
        self.tokens = Some(source);
        self
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("service_url", &self.service_url)
            .field("authentication", &self.authentication)
            .field("tokens", &self.tokens)
            .field("tls", &self.tls)
            .field("runtime", &self.runtime)
            .finish_non_exhaustive()
    }
}

/// Entropy for names and jitter: the standard library's keys for its hash maps come from the system.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for part in seed.chunks_exact_mut(8) {
        part.copy_from_slice(&RandomState::new().hash_one(0u8).to_le_bytes());
    }
    seed
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_core::ErrorKind;

    #[test]
    fn bad_settings_are_refused_by_name_when_the_client_is_built() {
        let build = |b: ClientBuilder| b.build().unwrap_err();
        assert_eq!(build(Client::builder("localhost")).kind(), ErrorKind::InvalidUrl);
        let error = build(Client::builder("pulsar://localhost").operation_timeout(Duration::ZERO));
        assert!(error.to_string().contains("operation_timeout"), "{error}");
        let missing = Pem::File("/nonexistent/ca.pem".into());
        let error = build(Client::builder("pulsar+ssl://localhost").tls_authorities(missing));
        assert!(error.to_string().contains("/nonexistent/ca.pem"), "{error}");
    }

    #[test]
    fn a_token_does_not_print() {
        let builder = Client::builder("pulsar://localhost").token("hunter2");
        assert!(!format!("{builder:?}").contains("hunter2"));
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed(), seed());
    }
}
