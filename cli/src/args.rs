//! What the user may write: the commands, and the flags that several of them share.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{broker, consume, demo, perf, produce, read};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  something else went wrong, such as a file that cannot be read
  2  wrong usage: an unknown flag, an invalid topic name or service URL
  3  not reachable: no broker answered in time
  4  refused: the broker said no (not authorized, subscription in use, topic not found, …)

Messages go to stdout; progress, errors and logs go to stderr.";

/// Work with Apache Pulsar: try it, produce, consume, read and measure.
#[derive(Parser, Debug)]
#[command(name = "geminga", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Arguments {
    /// Log more on stderr: once for information, twice for debugging, three times for everything (or RUST_LOG)
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = "Logging")]
    pub(crate) verbose: u8,

    /// No progress, no summary
    #[arg(short, long, global = true, help_heading = "Logging")]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show a keyed workload end to end, on an embedded broker or, with --url, on a cluster
    #[command(after_help = EXIT_CODES)]
    Demo(demo::DemoArgs),
    /// Run an embedded, in-memory broker for development and tests
    #[command(after_help = EXIT_CODES)]
    Broker(broker::BrokerArgs),
    /// Send messages: from the arguments, a file or stdin, one a line
    #[command(after_help = EXIT_CODES)]
    Produce(produce::ProduceArgs),
    /// Receive messages of a subscription and acknowledge them
    #[command(after_help = EXIT_CODES)]
    Consume(consume::ConsumeArgs),
    /// Read a topic without a subscription, from a position to its end
    #[command(after_help = EXIT_CODES)]
    Read(read::ReadArgs),
    /// Measure throughput, latency and the CPU time of this client
    #[command(after_help = EXIT_CODES)]
    Perf(perf::PerfArgs),
    /// Measure once, for the side-by-side bench: MODE SERVICE_URL TOPIC N SIZE
    #[command(hide = true)]
    PerfPeer(perf::PeerArgs),
}

/// How to reach the cluster and who to be there.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Service URL: pulsar:// or pulsar+ssl://, one host or several [env: GEMINGA_URL]
    /// [default: pulsar://127.0.0.1:6650]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

impl AccessArgs {
    /// The token of its flag, or of the environment where there is no file either.
    pub(crate) fn token(&self) -> Option<String> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.0.clone()),
            (None, Some(_)) => None,
            (None, None) => environment("GEMINGA_TOKEN"),
        }
    }
}

impl ConnectionArgs {
    /// The service URL, from wherever it is said.
    pub(crate) fn url(&self) -> String {
        let said = self.url.clone().or_else(|| environment("GEMINGA_URL"));
        said.unwrap_or_else(|| "pulsar://127.0.0.1:6650".to_owned())
    }
}

/// What an environment variable says where no flag does; an empty one says nothing.
///
/// Not clap's `env`: to clap a variable is as good as a flag, so that it conflicts with the flag that is to overrule it.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Credentials, trust and patience.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Connection")]
pub(crate) struct AccessArgs {
    /// Token (JWT) to authenticate with [env: GEMINGA_TOKEN]
    #[arg(long, conflicts_with = "token_file")]
    token: Option<Token>,

    /// File with the token; read again at each connection
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// PEM file of the certificate authorities to trust instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// PEM file of the client certificate chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// PEM file of the client certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Accept a broker certificate that is for another host name
    #[arg(long)]
    pub(crate) tls_no_verify_hostname: bool,

    /// Accept any broker certificate; for tests only
    #[arg(long)]
    pub(crate) tls_insecure: bool,

    /// Seconds that an operation, or reaching a broker at all, may take
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) operation_timeout: Duration,
}

/// A token that does not print.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.is_empty() {
            true => Err("a token is not empty"),
            false => Ok(Token(text.to_owned())),
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// How messages are gathered and packed on their way out.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Batching and compression")]
pub(crate) struct BatchArgs {
    /// Send each message by itself
    #[arg(long, conflicts_with_all = ["batch_messages", "batch_bytes", "batch_delay_ms"])]
    pub(crate) no_batching: bool,

    /// Most messages in a batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_messages: Option<u32>,

    /// Most payload bytes in a batch, before compression
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_bytes: Option<u32>,

    /// Milliseconds that the first message of a batch waits for others
    #[arg(long, value_name = "MS")]
    pub(crate) batch_delay_ms: Option<u32>,

    /// Codec for payloads
    #[arg(long, value_enum, default_value_t = Codec::None)]
    pub(crate) compression: Codec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Codec {
    None,
    Lz4,
    Zlib,
    Zstd,
    Snappy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypeOfSubscription {
    /// One consumer
    Exclusive,
    /// Each message to one of the consumers in turn
    Shared,
    /// One active consumer, the others stand by
    Failover,
    /// Each key to one consumer at a time
    KeyShared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Start {
    /// The oldest message that is kept
    Earliest,
    /// The next message that is published
    Latest,
}

/// Thirty years: longer than anybody waits, and no clock ends before.
const MOST_SECONDS: f64 = 1e9;

/// Reads a duration in seconds, `0.5` included.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= MOST_SECONDS => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!("expected a number of seconds above zero, at most {MOST_SECONDS}")),
    }
}

/// Reads `name=value`; the value may hold further equals signs.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_help_text_explains_the_exit_codes() {
        let mut program = Arguments::command();
        program.build();
        let visible = program.get_subcommands_mut().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        for command in visible {
            let help = command.render_help().to_string();
            assert!(help.contains("3  not reachable"), "{}", command.get_name());
        }
    }

    #[test]
    fn properties_keep_the_equals_signs_of_their_value() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(pair("=b").is_err());
        assert!(pair("ab").is_err());
    }

    #[test]
    fn seconds_may_be_a_fraction_but_not_nothing() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["0", "-1", "x", "inf", "NaN", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
