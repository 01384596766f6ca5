//! `geminga produce`: one message for each argument, or for each line of a file or stdin.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use geminga::{Batching, ErrorKind, MessageId, OutgoingMessage, Producer, SendReceipt};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::args::{BatchArgs, ConnectionArgs, pair, seconds};
use crate::connect::connect;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::write_json;
use crate::pauses::patiently;
use crate::progress::{Progress, group, per_second};

/// How long receipts are waited for once somebody asked to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Failed lines that are reported one by one; more are counted.
const REPORTED_FAILURES: u64 = 20;

#[derive(Args, Debug)]
pub(crate) struct ProduceArgs {
    /// Topic, in short or full form
    topic: String,

    /// Messages; without any, each line of --file or of stdin is one
    #[arg(conflicts_with = "file")]
    messages: Vec<String>,

    /// Read the messages from this file, one a line
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Key of every message
    #[arg(short, long, conflicts_with = "key_separator")]
    key: Option<String>,

    /// The key is what stands before this text in each line, the message what stands behind
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key_separator: Option<String>,

    /// Property of every message; may be given again
    #[arg(short, long = "property", value_name = "NAME=VALUE", value_parser = pair)]
    properties: Vec<(String, String)>,

    /// Event time of every message, in milliseconds since 1970-01-01 UTC
    #[arg(long, value_name = "MS")]
    event_time: Option<u64>,

    /// Name of the producer, for deduplication
    #[arg(long, value_name = "NAME")]
    producer_name: Option<String>,

    /// Messages that may wait for their receipt
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pending: u32,

    /// Seconds after which a message without receipt has failed; without it, there is no limit
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    send_timeout: Option<Duration>,

    /// Write one JSON object for each stored message: its input line from 0, and its message id
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    batch: BatchArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// A stored message, as `--json` writes it.
#[derive(Serialize)]
struct Stored {
    line: u64,
    message_id: String,
}

pub(crate) async fn run(args: ProduceArgs, quiet: bool) -> Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let mut lines = Lines::open(&args).await?;
    let client = connect(&args.connection, quiet)?;
    let producer = interrupt.or(patiently(open(&client, &args), quiet)).await?;
    let mut receipts = Receipts::new(args.json, Progress::new("producing", args.total(), quiet));
    let started = Instant::now();
    let sent = send(&args, &producer, &mut lines, &mut receipts, &interrupt).await;
    // Whatever ended it: what was accepted until then has an outcome, and it is told.
    receipts.settle(&producer, &interrupt).await;
    client.close().await?;
    let taken = receipts.lines;
    let exit = receipts.finish(started, quiet)?;
    sent?;
    if interrupt.is_asked() {
        bail!("interrupted after {} lines", group(taken));
    }
    Ok(exit)
}

/// Sends the lines until there are no more, somebody asks to end, or the producer takes none any more.
async fn send(
    args: &ProduceArgs,
    producer: &Producer,
    lines: &mut Lines,
    receipts: &mut Receipts,
    interrupt: &Interrupt,
) -> Result<()> {
    // Input without end may never leave the time to be asked.
    while !interrupt.is_asked() {
        let room = receipts.waiting.len() < args.pending as usize;
        let bytes = tokio::select! {
            biased;
            () = receipts.settle_next(), if !receipts.waiting.is_empty() => continue,
            next = lines.next(), if room => match next? {
                Some(bytes) => bytes,
                None => return Ok(()),
            },
            () = interrupt.asked() => return Ok(()),
        };
        let message = match args.message(bytes) {
            Ok(message) => message,
            Err(error) => {
                receipts.fail_next(error);
                continue;
            }
        };
        let sent = tokio::select! {
            biased;
            sent = producer.enqueue(message) => sent,
            () = interrupt.asked() => return Ok(()),
        };
        match sent.map_err(|refused| refused.error) {
            Ok(receipt) => receipts.push(receipt),
            // The next message may well be accepted.
            Err(error) if matches!(error.kind(), ErrorKind::MessageTooBig | ErrorKind::InvalidMessage) => {
                receipts.fail_next(error.into());
            }
            Err(error) => {
                receipts.fail_next(error.into());
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn open(client: &geminga::Client, args: &ProduceArgs) -> Result<Producer> {
    let mut producer = client
        .producer(args.topic.as_str())
        .batching(args.batch.batching(Batching::default()))
        .compression(args.batch.compression.into())
        .send_timeout(args.send_timeout)
        .max_pending_messages(args.pending as usize)
        .block_if_queue_full(true);
    if let Some(name) = &args.producer_name {
        producer = producer.name(name.as_str());
    }
    Ok(producer.create().await?)
}

impl ProduceArgs {
    fn total(&self) -> Option<u64> {
        (!self.messages.is_empty()).then_some(self.messages.len() as u64)
    }

    fn message(&self, bytes: Vec<u8>) -> Result<OutgoingMessage> {
        let (key, payload) = match &self.key_separator {
            None => (self.key.clone(), Bytes::from(bytes)),
            Some(separator) => {
                let (key, payload) = split_key(&bytes, separator.as_bytes())
                    .with_context(|| format!("there is no text key before {separator:?}"))?;
                (Some(key), payload)
            }
        };
        Ok(OutgoingMessage {
            payload,
            key,
            properties: self.properties.clone(),
            event_time: self.event_time,
            ..OutgoingMessage::default()
        })
    }
}

fn split_key(line: &[u8], separator: &[u8]) -> Option<(String, Bytes)> {
    let at = line.windows(separator.len()).position(|w| w == separator)?;
    let key = std::str::from_utf8(&line[..at]).ok()?.to_owned();
    Some((key, Bytes::copy_from_slice(&line[at + separator.len()..])))
}

/// Where the messages come from.
enum Lines {
    Arguments(std::vec::IntoIter<String>),
    Reader { reader: Box<dyn AsyncBufReadUnpin>, partial: Vec<u8> },
}

trait AsyncBufReadUnpin: tokio::io::AsyncBufRead + Unpin {}
impl<T: tokio::io::AsyncBufRead + Unpin> AsyncBufReadUnpin for T {}

impl Lines {
    async fn open(args: &ProduceArgs) -> Result<Self> {
        if !args.messages.is_empty() {
            return Ok(Lines::Arguments(args.messages.clone().into_iter()));
        }
        Ok(match &args.file {
            Some(path) => {
                let file = tokio::fs::File::open(path).await;
                Lines::read(file.with_context(|| format!("cannot open {}", path.display()))?)
            }
            None => Lines::read(tokio::io::stdin()),
        })
    }

    fn read(from: impl AsyncRead + Unpin + 'static) -> Self {
        let reader = BufReader::with_capacity(64 << 10, from);
        Lines::Reader { reader: Box::new(reader), partial: Vec::new() }
    }

    /// The next line without its end; `None` at the end of the input. Cancel safe.
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        match self {
            Lines::Arguments(messages) => Ok(messages.next().map(String::into_bytes)),
            Lines::Reader { reader, partial } => {
                // What was read before a cancellation stays in `partial`.
                let read = reader.read_until(b'\n', partial).await.context("cannot read the input")?;
                if read == 0 && partial.is_empty() {
                    return Ok(None);
                }
                Ok(Some(without_end(std::mem::take(partial))))
            }
        }
    }
}

fn without_end(mut line: Vec<u8>) -> Vec<u8> {
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    line
}

/// Receipts under way, in the order of lines, and what became of those before.
struct Receipts {
    waiting: VecDeque<(u64, SendReceipt)>,
    /// Lines taken from the input.
    lines: u64,
    json: bool,
    stored: u64,
    failed: u64,
    first_failure: Option<Exit>,
    progress: Progress,
    out: io::BufWriter<io::Stdout>,
    /// Whether stdout still takes what is written. Messages are stored all the same when it doesn't.
    written: io::Result<()>,
}

impl Receipts {
    fn new(json: bool, progress: Progress) -> Self {
        Receipts {
            waiting: VecDeque::new(),
            lines: 0,
            json,
            stored: 0,
            failed: 0,
            first_failure: None,
            progress,
            out: io::BufWriter::new(io::stdout()),
            written: Ok(()),
        }
    }

    /// The next line was accepted.
    fn push(&mut self, receipt: SendReceipt) {
        self.waiting.push_back((self.lines, receipt));
        self.lines += 1;
    }

    /// The next line was not.
    fn fail_next(&mut self, error: anyhow::Error) {
        self.fail(self.lines, error);
        self.lines += 1;
    }

    /// Waits for the oldest receipt, then takes it. Cancel safe.
    async fn settle_next(&mut self) {
        let Some((line, receipt)) = self.waiting.front_mut() else { return };
        let (line, result) = (*line, receipt.await);
        self.waiting.pop_front();
        match result {
            Ok(id) => self.store(line, id),
            Err(error) => self.fail(line, error.into()),
        }
        if self.waiting.is_empty() {
            self.write(|out| out.flush());
        }
    }

    /// Waits for all receipts; not much longer once somebody asks to end, and without one a line has failed.
    async fn settle(&mut self, producer: &Producer, interrupt: &Interrupt) {
        let settled = async {
            // The last batch does not wait for its time. What fails fails with its receipt.
            let (_, ()) = tokio::join!(producer.flush(), async {
                while !self.waiting.is_empty() {
                    self.settle_next().await;
                }
            });
        };
        let out_of_patience = async {
            interrupt.asked().await;
            tokio::time::sleep(PATIENCE).await;
        };
        tokio::select! {
            biased;
            () = settled => {}
            () = out_of_patience => {}
        }
        while let Some((line, _)) = self.waiting.pop_front() {
            self.fail(line, anyhow!("interrupted before its receipt came: it may be stored or not"));
        }
    }

    fn store(&mut self, line: u64, id: MessageId) {
        self.stored += 1;
        self.progress.add(1);
        if self.json {
            self.write(|out| write_json(out, &Stored { line, message_id: id.to_string() }));
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut io::BufWriter<io::Stdout>) -> io::Result<()>) {
        if self.written.is_ok() {
            self.written = write(&mut self.out);
        }
    }

    fn fail(&mut self, line: u64, error: anyhow::Error) {
        self.failed += 1;
        self.first_failure.get_or_insert(Exit::of(&error));
        if self.failed <= REPORTED_FAILURES {
            eprintln!("error: line {line}: {error:#}");
        } else if self.failed == REPORTED_FAILURES + 1 {
            eprintln!("error: further failed lines are only counted");
        }
    }

    /// The summary, and the exit. Errors: stdout's.
    fn finish(mut self, started: Instant, quiet: bool) -> Result<Exit> {
        self.write(|out| out.flush());
        self.progress.finish();
        let elapsed = started.elapsed();
        if !quiet || self.failed > 0 {
            let rate = group(per_second(self.stored, elapsed) as u64);
            let (stored, failed) = (group(self.stored), group(self.failed));
            eprintln!("{stored} stored, {failed} failed in {:.2} s ({rate} msg/s)", elapsed.as_secs_f64());
        }
        match self.first_failure {
            Some(exit) => Ok(exit),
            None => self.written.map(|()| Exit::Done).context("cannot write the message ids"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_loses_its_end_and_nothing_else() {
        let cases: [(&[u8], &[u8]); 5] =
            [(b"a\n", b"a"), (b"a\r\n", b"a"), (b"a\r", b"a\r"), (b" a \n", b" a "), (b"\n", b"")];
        for (line, expected) in cases {
            assert_eq!(without_end(line.to_vec()), expected);
        }
    }

    #[test]
    fn a_key_ends_at_the_first_separator() {
        let (key, payload) = split_key(b"k::v::w", b"::").unwrap();
        assert_eq!((key.as_str(), &payload[..]), ("k", &b"v::w"[..]));
        assert!(split_key(b"no key", b"::").is_none());
        assert!(split_key(b"\xff::v", b"::").is_none());
    }
}
