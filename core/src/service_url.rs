//! Service URLs: where a cluster can be reached.
//!
//! Knows texts; resolves no names and opens no sockets.
use std::{fmt, str::FromStr};

/// `pulsar://host[:port][,host[:port]]…`, or `pulsar+ssl://…`.
///
/// Shape: a scheme in any case; at least one host; a port that is left out is 6650, or 6651 with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceUrl {
    tls: bool,
    hosts: Vec<Host>,
}

/// A host of a service URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

/// Why a text is no service URL. `Display` says what to write instead, and shows no user or password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrlError {
    url: String,
    what: &'static str,
}

impl fmt::Display for ServiceUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid service URL {:?}: {}", self.url, self.what)
    }
}

impl std::error::Error for ServiceUrlError {}

impl ServiceUrl {
    /// Parses a URL.
    ///
    /// Errors: another scheme, no host, a port that is no number from 1 to 65535, a user or a path.
    pub fn parse(url: &str) -> Result<Self, ServiceUrlError> {
        parse(url).map_err(|what| ServiceUrlError { url: without_credentials(url), what })
    }

    /// Whether connections use TLS.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The hosts, in their order; never empty.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

impl FromStr for ServiceUrl {
    type Err = ServiceUrlError;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        Self::parse(url)
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "pulsar+ssl://" } else { "pulsar://" })?;
        for (i, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

fn parse(url: &str) -> Result<ServiceUrl, &'static str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err("it has no scheme; write pulsar://host:6650");
    };
    let (tls, default_port) = match scheme.to_ascii_lowercase().as_str() {
        "pulsar" => (false, 6650),
        "pulsar+ssl" => (true, 6651),
        "http" | "https" => {
            return Err(
                "lookup over HTTP is not supported; write pulsar:// or pulsar+ssl:// with the binary port",
            );
        }
        "ws" | "wss" => {
            return Err(
                "WebSocket is not supported here; write pulsar:// or pulsar+ssl:// with the binary port",
            );
        }
        _ => return Err("its scheme is unknown; write pulsar:// or pulsar+ssl://"),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let hosts = rest.split(',').map(|host| parse_host(host, default_port)).collect::<Result<_, _>>()?;
    Ok(ServiceUrl { tls, hosts })
}

/// The text with `***` for a user and password, which have no place in it and must not be shown.
fn without_credentials(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    match url[start..].rfind('@') {
        Some(at) => format!("{}***{}", &url[..start], &url[start + at..]),
        None => url.to_owned(),
    }
}

fn parse_host(host: &str, default_port: u16) -> Result<Host, &'static str> {
    if host.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it has spaces or control characters; remove them");
    }
    if host.contains(['/', '?', '#', '@']) {
        return Err(
            "it has more than hosts and ports; write pulsar://host:port and set credentials in the configuration",
        );
    }
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, after) =
                rest.split_once(']').ok_or("an IPv6 address has no closing bracket; write [::1]:6650")?;
            if name.parse::<core::net::Ipv6Addr>().is_err() {
                return Err("the brackets hold no IPv6 address; write [::1]:6650");
            }
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err("there is text behind an IPv6 address; write [::1]:6650"),
            };
            (name, port)
        }
        None => match host.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address needs brackets; write [::1]:6650");
            }
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    if name.is_empty() {
        return Err("a host is empty; write pulsar://host:6650");
    }
    let port = match port {
        None => default_port,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => port,
            _ => return Err("a port is no number from 1 to 65535"),
        },
    };
    Ok(Host { name: name.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(url: &str) -> Vec<(String, u16)> {
        let url = ServiceUrl::parse(url).expect("a valid URL");
        url.hosts().iter().map(|host| (host.name.clone(), host.port)).collect()
    }

    #[test]
    fn a_port_that_is_left_out_is_the_schemes() {
        assert_eq!(hosts("pulsar://a"), [("a".to_owned(), 6650)]);
        assert_eq!(hosts("pulsar+ssl://a/"), [("a".to_owned(), 6651)]);
        assert!(ServiceUrl::parse("pulsar+ssl://a").expect("valid").tls());
        assert!(!ServiceUrl::parse("pulsar://a").expect("valid").tls());
        assert_eq!(hosts("Pulsar+SSL://a"), [("a".to_owned(), 6651)]);
    }

    #[test]
    fn what_is_refused_is_shown_without_a_password() {
        for url in ["pulsar://bob:secret@a", "bob:secret@a", "pulsar://bob:secret@a,eve:secret@b:1/"] {
            let error = ServiceUrl::parse(url).expect_err(url);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("secret") && shown.contains("***@"), "{shown}");
        }
    }

    #[test]
    fn hosts_keep_their_order() {
        let expected =
            [("b".to_owned(), 1), ("::1".to_owned(), 6650), ("a".to_owned(), 6650), ("::2".to_owned(), 7)];
        assert_eq!(hosts("pulsar://b:1,[::1],a,[::2]:7"), expected);
    }

    #[test]
    fn what_is_no_url_is_refused_with_what_to_write() {
        for (url, hint) in [
            ("", "scheme"),
            ("localhost:6650", "pulsar://host:6650"),
            ("pulsar://", "host is empty"),
            ("pulsar://:6650", "host is empty"),
            ("pulsar://a,", "host is empty"),
            ("pulsar://a:0", "port"),
            ("pulsar://a:", "port"),
            ("pulsar://a:65536", "port"),
            ("pulsar://a:+1", "port"),
            ("pulsar://::1", "brackets"),
            ("pulsar://[::1", "closing bracket"),
            ("pulsar://[a]", "no IPv6"),
            ("pulsar://[::1]1", "behind"),
            ("pulsar://user@a", "credentials"),
            ("pulsar://a/path", "hosts and ports"),
            ("pulsar://a b", "spaces"),
            ("http://a:8080", "HTTP"),
            ("ws://a", "WebSocket"),
            ("amqp://a", "unknown"),
        ] {
            let error = ServiceUrl::parse(url).expect_err(url).to_string();
            assert!(error.contains(hint), "{url:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_url_prints_as_what_it_was_parsed_from(url in "pulsar(\\+ssl)?://[a1\\[\\]:,.]{0,12}") {
            if let Ok(parsed) = ServiceUrl::parse(&url) {
                prop_assert!(!parsed.hosts().is_empty());
                prop_assert_eq!(ServiceUrl::parse(&parsed.to_string()), Ok(parsed));
            }
        }
    }
}
