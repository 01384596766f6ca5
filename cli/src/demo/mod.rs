//! `geminga demo`: a keyed workload from end to end, on an embedded broker or a cluster.
//!
//! A producer sends keyed messages to a partitioned topic; three consumers share a Key_Shared subscription; one message
//! is poisoned, fails once, is negatively acknowledged and comes back. `board` keeps the score and checks it.

mod admin;
mod board;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use clap::Args;
use geminga::{Batching, Client, Consumer, OutgoingMessage, Producer, SendReceipt, SubscriptionType};
use geminga_broker::net::{Config, EmbeddedBroker};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::board::{Board, Verdict};
use crate::args::{AccessArgs, environment};
use crate::connect::connect_to;
use crate::exit::{Exit, UsageError};
use crate::interrupt::Interrupt;
use crate::progress::{Progress, group};

const WORKERS: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
const KEYS: u64 = 500;
const PARTITIONS: u32 = 4;
/// Messages without receipt: enough to keep the broker busy, few enough that latencies are not those of a queue.
const PENDING: usize = 1000;
const NACK_DELAY: Duration = Duration::from_secs(1);
/// Without a message for so long, the rest will not come.
const STALLED: Duration = Duration::from_secs(20);

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Run on this cluster instead of an embedded broker [env: GEMINGA_URL]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// HTTP address of the cluster's admin API, to create a partitioned topic there [env: GEMINGA_ADMIN_URL]
    #[arg(long, value_name = "URL")]
    admin_url: Option<String>,

    /// Topic to use; it stays when the demo ends
    #[arg(long, default_value = "persistent://public/default/geminga-demo", value_name = "TOPIC")]
    topic: String,

    /// Messages to send
    #[arg(short = 'n', long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    messages: u64,

    #[command(flatten)]
    access: AccessArgs,
}

pub(crate) async fn run(args: DemoArgs, quiet: bool) -> Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let site = interrupt.or(Site::open(&args)).await?;
    let client = connect_to(&site.url, &args.access, quiet)?;
    let run = Tag::new()?;
    let subscription = format!("demo-{:016x}", run.0);

    let (workers, producer) = interrupt.or(open(&client, &args.topic, &subscription)).await?;
    introduce(&site, &args, client.partitions(&args.topic).await?, &subscription);

    let progress = Progress::new("consuming", Some(args.messages), quiet);
    let board = Shared::new(Board::new(args.messages, KEYS, WORKERS.len(), progress));
    let mut tasks = JoinSet::new();
    for (at, consumer) in workers.iter().enumerate() {
        tasks.spawn(work(at, consumer.clone(), run, board.clone()));
    }
    let outcome = tokio::select! {
        outcome = drive(&producer, run, args.messages, &board) => outcome,
        Err(error) = join(&mut tasks) => Err(error),
        () = interrupt.asked() => Err(anyhow::anyhow!("interrupted")),
    };
    board.end();
    let outcome = outcome.and(join(&mut tasks).await);
    let closed = close(&client, producer, workers).await;
    let lines = board.lock().summary(&WORKERS);
    outcome?;
    closed?;
    lines.iter().for_each(|line| println!("{line}"));
    drop(site);
    match board.lock().complaints() {
        complaints if complaints.is_empty() => {
            println!("\n  ✓ everything sent was stored, received in order and acknowledged");
            Ok(Exit::Done)
        }
        complaints => bail!("the demo did not go as it should: {}", complaints.join("; ")),
    }
}

fn introduce(site: &Site, args: &DemoArgs, partitions: u32, subscription: &str) {
    let place = if site.broker.is_some() { "embedded in this process, in memory" } else { "a cluster" };
    let (partitions, keys) = match partitions {
        0 => ("not partitioned".to_owned(), ""),
        n => (format!("{n} partitions"), ", each key to its partition"),
    };
    println!("  broker    {} ({place})", site.url);
    println!("  topic     {} ({partitions})", args.topic);
    println!("  producer  {} messages, {KEYS} keys{keys}", group(args.messages));
    println!("  group     Key_Shared subscription {subscription}, {} consumers", WORKERS.len());
    println!("  poison    one message fails at the first try and is negatively acknowledged\n");
}

/// Where the demo takes place. The embedded broker ends with it.
struct Site {
    url: String,
    broker: Option<EmbeddedBroker>,
}

impl Site {
    async fn open(args: &DemoArgs) -> Result<Self> {
        let (url, admin_url, broker) = match args.url.clone().or_else(|| environment("GEMINGA_URL")) {
            Some(url) => {
                let admin_url = args.admin_url.clone().or_else(|| environment("GEMINGA_ADMIN_URL"));
                (url, admin_url, None)
            }
            None if args.admin_url.is_some() => {
                return Err(UsageError("--admin-url is of no use without --url".to_owned()).into());
            }
            None => {
                // On threads of its own, as a broker elsewhere would be.
                let start = || EmbeddedBroker::start_blocking(Config::default());
                let broker =
                    tokio::task::spawn_blocking(start).await.context("the embedded broker panicked")?;
                let broker = broker.context("cannot start the embedded broker")?;
                let admin_url = broker.admin_url().map(str::to_owned);
                (broker.service_url().to_owned(), admin_url, Some(broker))
            }
        };
        if let Some(admin_url) = admin_url {
            let token = args.access.read_token()?;
            admin::create_partitioned_topic(admin_url, &args.topic, PARTITIONS, token).await?;
        }
        Ok(Site { url, broker })
    }
}

async fn open(client: &Client, topic: &str, subscription: &str) -> Result<(Vec<Consumer>, Producer)> {
    let mut workers = Vec::new();
    for name in WORKERS {
        workers.push(subscribe(client, topic, subscription, name).await?);
    }
    let producer = client
        .producer(topic)
        // A Key_Shared consumer gets whole entries: each message is one, so that its own key decides.
        .batching(Batching::off())
        .max_pending_messages(PENDING)
        .block_if_queue_full(true);
    Ok((workers, producer.create().await?))
}

async fn subscribe(client: &Client, topic: &str, subscription: &str, name: &str) -> Result<Consumer> {
    let consumer = client
        .consumer(topic, subscription)
        .subscription_type(SubscriptionType::KeyShared)
        .consumer_name(name)
        .negative_ack_redelivery_delay(NACK_DELAY);
    Ok(consumer.subscribe().await?)
}

/// Message numbers and their receipts, oldest first.
type Pending = VecDeque<(u64, SendReceipt)>;

/// Sends everything, then waits until everything was received, the poisoned message twice.
async fn drive(producer: &Producer, run: Tag, messages: u64, board: &Shared) -> Result<()> {
    let mut pending: Pending = VecDeque::with_capacity(PENDING);
    board.lock().start();
    for number in 0..messages {
        // Those that are there first, so that the time of a receipt is not that of our turning to it.
        while pending.front().is_some_and(|(_, receipt)| receipt.try_result().is_some()) {
            settle(&mut pending, board).await?;
        }
        if pending.len() >= PENDING {
            settle(&mut pending, board).await?;
        }
        let message = OutgoingMessage::new(run.payload(number)).with_key(format!("key-{}", number % KEYS));
        board.lock().sent(number, Instant::now());
        pending.push_back((number, producer.enqueue(message).await.map_err(|refused| refused.error)?));
    }
    while !pending.is_empty() {
        settle(&mut pending, board).await?;
    }
    let mut done = board.done.subscribe();
    loop {
        let before = board.lock().received_count();
        if tokio::time::timeout(STALLED, done.wait_for(|done| *done)).await.is_ok() {
            return Ok(());
        }
        if board.lock().received_count() == before {
            bail!("no message came for {} s: {}", STALLED.as_secs(), board.lock().complaints().join("; "));
        }
    }
}

async fn settle(pending: &mut Pending, board: &Shared) -> Result<()> {
    if let Some((number, receipt)) = pending.pop_front() {
        receipt.await.with_context(|| format!("message {number} was not stored"))?;
        board.lock().stored(number, Instant::now());
    }
    Ok(())
}

/// Waits for the workers; the first error ends it early.
async fn join(workers: &mut JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = workers.join_next().await {
        ended.context("a worker panicked")??;
    }
    Ok(())
}

/// One consumer of the group.
async fn work(at: usize, consumer: Consumer, run: Tag, board: Shared) -> Result<()> {
    let mut done = board.done.subscribe();
    loop {
        let message = tokio::select! {
            biased;
            message = consumer.receive() => message?,
            _ = done.wait_for(|done| *done) => return Ok(()),
        };
        let Some(number) = run.number(message.payload()) else {
            // Somebody else uses the same topic.
            consumer.acknowledge(&message)?;
            continue;
        };
        let verdict = board.lock().received(at, number, message.redelivery_count(), Instant::now());
        match verdict {
            Verdict::Done => consumer.acknowledge(&message)?,
            Verdict::Failed => consumer.negative_acknowledge(&message)?,
        }
        board.check();
    }
}

async fn close(client: &Client, producer: Producer, mut workers: Vec<Consumer>) -> Result<()> {
    producer.close().await?;
    let last = workers.pop().context("there are three workers")?;
    for consumer in workers {
        consumer.close().await?;
    }
    // The subscription was made for this run alone.
    last.unsubscribe().await?;
    client.close().await?;
    Ok(())
}

/// The board, and word that the game is over.
#[derive(Clone)]
struct Shared {
    board: Arc<Mutex<Board>>,
    done: watch::Sender<bool>,
}

impl Shared {
    fn new(board: Board) -> Self {
        Shared { board: Arc::new(Mutex::new(board)), done: watch::Sender::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) {
        if self.lock().is_complete() {
            self.end();
        }
    }

    fn end(&self) {
        self.done.send_replace(true);
    }
}

/// Tells this run's messages from those of others: a payload is the tag and the message's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag(u64);

impl Tag {
    fn new() -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
        Ok(Tag(now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(48)))
    }

    /// 100 bytes, as a small event has.
    fn payload(self, number: u64) -> Bytes {
        let mut payload = BytesMut::with_capacity(100);
        payload.put_u64(self.0);
        payload.put_u64(number);
        payload.put_bytes(b'.', 84);
        payload.freeze()
    }

    fn number(self, payload: &[u8]) -> Option<u64> {
        let (tag, rest) = payload.split_first_chunk::<8>()?;
        let (number, _) = rest.split_first_chunk::<8>()?;
        (u64::from_be_bytes(*tag) == self.0).then(|| u64::from_be_bytes(*number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_gives_its_number_to_its_own_run_only() {
        let run = Tag(7);
        assert_eq!(run.number(&run.payload(41)), Some(41));
        assert_eq!(Tag(8).number(&run.payload(41)), None);
        assert_eq!(run.number(b"short"), None);
        assert_eq!(run.payload(0).len(), 100);
    }
}
