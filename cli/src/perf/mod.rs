//! `geminga perf`: throughput, latency and the client's own CPU time, under the rules of the side-by-side bench.
//!
//! Decides what is measured and with which settings; `run` has the loops, `meter` the clocks, `report` the result.

mod meter;
mod report;
mod run;

use std::cell::RefCell;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use geminga::{Batching, Client, OperationRetries};
use serde::Serialize;

use self::report::Report;
use self::run::Run;
use crate::args::{BatchArgs, Codec, ConnectionArgs, TypeOfSubscription, environment};
use crate::connect::connect;
use crate::exit::{Exit, UsageError};
use crate::output::write_json;
use crate::progress::Progress;
use crate::stats::Latencies;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Pipelined, batched sends until the last receipt
    Produce,
    /// One send at a time, without batching
    ProduceSync,
    /// A subscription from the earliest message, each acknowledged by itself
    Consume,
    /// The same, with one cumulative acknowledgement every 100 messages
    ConsumeCum,
    /// One message in flight, from this producer to this consumer
    Latency,
}

impl Mode {
    /// Whether one message waits for the other, so that runs are shorter and nothing is batched.
    fn is_one_at_a_time(self) -> bool {
        matches!(self, Mode::ProduceSync | Mode::Latency)
    }
}

/// What is acknowledged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AckMode {
    /// Each message by itself
    Individual,
    /// Every 100th message, with all before it
    Cumulative,
    /// Nothing
    None,
}

/// A gibibyte: more than any broker takes, and little enough to have.
const MAX_SIZE: i64 = 1 << 30;

#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    /// What to measure
    #[arg(value_enum)]
    mode: Mode,

    /// Topic; for the consume modes it must hold the messages of the warm-up and the measurement
    #[arg(long, default_value = "persistent://public/default/geminga-perf", value_name = "TOPIC")]
    topic: String,

    /// Messages that are measured [default: 1000000, or 10000 one at a time]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Payload bytes of each message
    #[arg(long, default_value_t = 1024, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=MAX_SIZE))]
    size: u32,

    /// Messages before the measurement [default: 20000, or 2000 one at a time]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,

    /// Write the result as one line of JSON
    #[arg(long)]
    json: bool,

    /// Different keys, given to the messages in turn; 0 for none
    #[arg(long, default_value_t = 0, value_name = "N")]
    keys: u32,

    /// Messages that may wait for their receipt
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pending: u32,

    /// Subscription of the consume modes; a new one for each run by default
    /// [env: BENCH_SUB]
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,

    /// Type of that subscription
    #[arg(long, value_enum, default_value_t = TypeOfSubscription::Exclusive, value_name = "TYPE")]
    subscription_type: TypeOfSubscription,

    /// What is acknowledged, and how [default: as the mode says]
    #[arg(long, value_enum)]
    ack: Option<AckMode>,

    /// Messages asked for ahead
    #[arg(long, value_name = "N", default_value_t = 1000)]
    receiver_queue: u32,

    #[command(flatten)]
    batch: BatchArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The command line that every program of the side-by-side bench shares.
#[derive(Args, Debug)]
pub(crate) struct PeerArgs {
    #[arg(value_enum)]
    mode: Mode,
    url: String,
    topic: String,
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    n: u64,
    size: usize,
}

/// Measures, and writes the result.
pub(crate) async fn run(args: PerfArgs, quiet: bool) -> Result<Exit> {
    let client = connect(&args.connection, quiet)?;
    let one_at_a_time = args.mode.is_one_at_a_time();
    let settings = Settings {
        mode: args.mode,
        topic: args.topic,
        count: args.count.unwrap_or(if one_at_a_time { 10_000 } else { 1_000_000 }),
        size: args.size as usize,
        warmup: args.warmup,
        keys: args.keys,
        pending: args.pending,
        subscription: args.subscription.or_else(|| environment("BENCH_SUB")),
        subscription_type: args.subscription_type,
        ack: args.ack,
        receiver_queue: args.receiver_queue,
        batching: args.batch.batching(default_batching()?),
        compression: args.batch.compression,
        show: !quiet && !args.json,
    };
    let (report, mut latencies) = settings.measure(&client).await?;
    client.close().await?;
    if args.json {
        print(&report)?;
    } else {
        report.lines(&mut latencies).iter().for_each(|line| println!("{line}"));
    }
    Ok(Exit::Done)
}

/// Measures as one program of the side-by-side bench.
pub(crate) async fn run_peer(args: PeerArgs) -> Result<Exit> {
    let client = Client::builder(args.url.as_str())
        .memory_limit(0)
        .operation_retries(OperationRetries::within_operation_timeout())
        .build()?;
    let settings = Settings {
        mode: args.mode,
        topic: args.topic,
        count: args.n,
        size: args.size,
        warmup: None,
        keys: 0,
        pending: 10_000,
        subscription: environment("BENCH_SUB"),
        subscription_type: TypeOfSubscription::Exclusive,
        ack: None,
        receiver_queue: 1000,
        batching: default_batching()?,
        compression: Codec::None,
        show: false,
    };
    let (report, _) = settings.measure(&client).await?;
    client.close().await?;
    print(&report)?;
    Ok(Exit::Done)
}

/// One measurement, all questions answered.
struct Settings {
    mode: Mode,
    topic: String,
    count: u64,
    size: usize,
    warmup: Option<u64>,
    keys: u32,
    pending: u32,
    subscription: Option<String>,
    subscription_type: TypeOfSubscription,
    ack: Option<AckMode>,
    receiver_queue: u32,
    batching: Batching,
    compression: Codec,
    /// Whether progress is shown.
    show: bool,
}

impl Settings {
    async fn measure(&self, client: &Client) -> Result<(Report, Latencies)> {
        let (variable, default) = match self.mode.is_one_at_a_time() {
            true => ("BENCH_WARMUP_SYNC", 2000),
            false => ("BENCH_WARMUP", 20_000),
        };
        let warmup = match self.warmup {
            Some(n) => n,
            None => from_environment(variable)?.unwrap_or(default),
        };
        let progress = self.show.then(|| Progress::new("measuring", Some(warmup + self.count), false));
        let run = Run { client, settings: self, warmup, progress: progress.map(RefCell::new) };
        let (cost, mut latencies, mut receipts) = match self.mode {
            Mode::Produce => run.produce().await?,
            Mode::ProduceSync => run.produce_sync().await?,
            Mode::Consume => run.consume(self.ack.unwrap_or(AckMode::Individual)).await?,
            Mode::ConsumeCum => run.consume(self.ack.unwrap_or(AckMode::Cumulative)).await?,
            Mode::Latency => run.latency(self.ack.unwrap_or(AckMode::Individual)).await?,
        };
        if let Some(progress) = run.progress {
            progress.into_inner().finish();
        }
        let report = Report::new(self.mode, self.count, self.size, cost, &mut latencies, receipts.as_mut())?;
        Ok((report, latencies))
    }
}

/// The bench's batches: 1000 messages or 128 KiB, 5 ms.
fn default_batching() -> Result<Batching> {
    let delay = from_environment("BENCH_BATCH_DELAY_MS")?.unwrap_or(5);
    Ok(Batching {
        enabled: true,
        max_messages: 1000,
        max_bytes: 128 << 10,
        max_publish_delay: Duration::from_millis(delay),
    })
}

/// The number in an environment variable; an empty one counts as absent.
fn from_environment(name: &str) -> Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => match text.parse() {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(UsageError(format!("{name} is {text:?}, not a number")).into()),
        },
        Err(_) => Ok(None),
    }
}

fn print(report: &Report) -> Result<()> {
    let mut out = std::io::stdout().lock();
    write_json(&mut out, report).and_then(|()| out.flush()).context("cannot write the result")
}
