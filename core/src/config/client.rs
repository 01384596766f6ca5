//! Settings of a client.

use std::fmt;
use std::time::Duration;

use super::invalid;
use crate::error::{Error, ErrorKind};
use crate::service_url::ServiceUrl;

/// Settings of a client. Start from [`ClientConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// One or several brokers or proxies, tried in turn.
    pub service_url: ServiceUrl,
    /// How the client proves who it is.
    pub authentication: Authentication,
    /// How long one request may take, and how long an address that never connected is tried. Default 30 s.
    pub operation_timeout: Duration,
    /// What to do when a broker says "not now" to a creation or lookup.
    pub operation_retries: OperationRetries,
    /// Limit for TCP, TLS and the Pulsar handshake together. Default 10 s.
    pub connection_timeout: Duration,
    /// First delay before a reconnection; doubles up to `max_backoff`. Default 100 ms.
    pub initial_backoff: Duration,
    /// Longest delay between reconnections. Default 60 s.
    pub max_backoff: Duration,
    /// Silence on an idle connection before a PING is sent. Default 30 s.
    pub keep_alive_interval: Duration,
    /// Silence before a PING while a request or a send waits for its answer; where it is longer than `keep_alive_interval`,
    /// that one holds. Default 10 s.
    pub busy_keep_alive_interval: Duration,
    /// How long a PING may stay unanswered while something waits; when idle it is `keep_alive_interval`. Default 5 s.
    pub ping_timeout: Duration,
    /// Redirects followed in one lookup. Default 20.
    pub max_lookup_redirects: u32,
    /// Lookups in flight per client; further ones wait. Default 5000.
    pub concurrent_lookups: usize,
    /// Bytes that unacknowledged messages may hold in this client, 0 for no limit. Default 64 MiB.
    pub memory_limit: usize,
    /// Largest value that a compressed message may declare. Default 256 MiB.
    pub max_uncompressed_size: usize,
    /// How often the partition count of a topic is asked again, zero for never. Default 60 s.
    pub partitions_update_interval: Duration,
    /// Name of the advertised listener to look up, for brokers with several.
    pub listener_name: Option<String>,
    /// Free text that brokers see after the client version, at most 64 characters.
    pub description: Option<String>,
}

impl ClientConfig {
    /// The defaults for a service URL such as `pulsar://host:6650` or `pulsar+ssl://a:6651,b:6651`.
    pub fn new(service_url: &str) -> Result<Self, Error> {
        let url = ServiceUrl::parse(service_url)
            .map_err(|e| Error::new(ErrorKind::InvalidUrl, "opening a client", e.to_string()))?;
        Ok(ClientConfig {
            service_url: url,
            authentication: Authentication::None,
            operation_timeout: Duration::from_secs(30),
            operation_retries: OperationRetries::default(),
            connection_timeout: Duration::from_secs(10),
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(60),
            keep_alive_interval: Duration::from_secs(30),
            busy_keep_alive_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
            max_lookup_redirects: 20,
            concurrent_lookups: 5000,
            memory_limit: 64 << 20,
            max_uncompressed_size: 256 << 20,
            partitions_update_interval: Duration::from_secs(60),
            listener_name: None,
            description: None,
        })
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let bad = |why: &str| Err(invalid("opening a client", why));
        for (name, value) in [
            ("operation_timeout", self.operation_timeout),
            ("connection_timeout", self.connection_timeout),
            ("initial_backoff", self.initial_backoff),
            ("keep_alive_interval", self.keep_alive_interval),
            ("busy_keep_alive_interval", self.busy_keep_alive_interval),
            ("ping_timeout", self.ping_timeout),
            ("operation_retries.timeout", self.operation_retries.timeout),
        ] {
            if value.is_zero() {
                return bad(&format!("{name} must be longer than zero"));
            }
        }
        if self.max_backoff < self.initial_backoff {
            return bad(&format!(
                "max_backoff ({:?}) must not be shorter than initial_backoff ({:?})",
                self.max_backoff, self.initial_backoff
            ));
        }
        if self.concurrent_lookups == 0 {
            return bad("concurrent_lookups must be at least 1");
        }
        if self.description.as_ref().is_some_and(|d| d.chars().count() > 64) {
            return bad("description must have at most 64 characters");
        }
        Ok(())
    }
}

/// What happens when a broker answers a creation or a lookup with "not now": while it restarts, while another consumer
/// holds an Exclusive subscription, while a quota is exceeded. One value for the whole client.
///
/// The default is what users of the existing Rust client know: without limit, 5 s apart, 30 s a try.
/// [`OperationRetries::within_operation_timeout`] is what the Java, C++ and Python clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRetries {
    /// Tries after the first, `None` without limit.
    pub max_retries: Option<u32>,
    /// Pause before a further try; `None` for the reconnection back-off (100 ms, doubling).
    pub delay: Option<Duration>,
    /// How long one try may take; where the operation timeout is shorter, that one holds.
    pub timeout: Duration,
    /// Whether all tries together must end within the operation timeout.
    pub within_operation_timeout: bool,
    /// Whether "in use by another" (ConsumerBusy, ProducerBusy) is tried again too.
    pub retry_busy: bool,
}

impl Default for OperationRetries {
    fn default() -> Self {
        OperationRetries {
            max_retries: None,
            delay: Some(Duration::from_secs(5)),
            timeout: Duration::from_secs(30),
            within_operation_timeout: false,
            retry_busy: true,
        }
    }
}

impl OperationRetries {
    /// As the Java, C++ and Python clients: busy fails at once, everything else is tried within the operation timeout.
    pub fn within_operation_timeout() -> Self {
        OperationRetries { delay: None, within_operation_timeout: true, retry_busy: false, ..Self::default() }
    }
}

/// How the client proves who it is.
#[derive(Clone, Debug, Default)]
pub enum Authentication {
    /// Not at all.
    #[default]
    None,
    /// A token that never changes.
    Token(Secret),
    /// The adapter is asked ([`Ask::Credentials`](crate::Ask)) for `auth_data` at each connection and refresh.
    Ask {
        /// The wire's `auth_method_name`, such as `token`.
        method: String,
    },
    /// The TLS client certificate is the identity.
    Tls,
}

/// Text that never shows: it prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_print() {
        let config = ClientConfig {
            authentication: Authentication::Token(Secret::new("hunter2")),
            ..ClientConfig::new("pulsar://localhost").unwrap()
        };
        assert!(!format!("{config:?}").contains("hunter2"));
        config.validate().unwrap();
    }

    #[test]
    fn a_zero_timeout_is_refused_by_name() {
        let config =
            ClientConfig { ping_timeout: Duration::ZERO, ..ClientConfig::new("pulsar://localhost").unwrap() };
        assert!(config.validate().unwrap_err().to_string().contains("ping_timeout"));
        let mut config = ClientConfig::new("pulsar://localhost").unwrap();
        config.operation_retries.timeout = Duration::ZERO;
        assert!(config.validate().unwrap_err().to_string().contains("operation_retries.timeout"));
    }

    #[test]
    fn a_back_off_that_ends_below_its_start_is_refused_with_both_values() {
        let config = ClientConfig {
            max_backoff: Duration::from_millis(50),
            ..ClientConfig::new("pulsar://localhost").unwrap()
        };
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains("max_backoff (50ms)") && error.contains("initial_backoff (100ms)"), "{error}");
    }
}
