//! The failover drill: two real brokers lose, pause and hand over partitions under load, and the application notices nothing
//! but pauses.
//!
//! Two topics of eight partitions: one batched with Failover consumers, one unbatched with Key_Shared consumers (whose
//! order per key holds only where a batch has one key). A [`Book`] per topic knows what was acknowledged and delivered;
//! a key's messages are numbered, so that it sees any loss and any first delivery out of turn.

use anyhow::{Context, Result, ensure};
use geminga::{Batching, Client, Consumer, OutgoingMessage, Producer, SubscriptionType};
use geminga_tests::lab::{self, Admin, Lab};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, spawn_blocking};

const NAMESPACE: &str = "public/default";
const PARTITIONS: u32 = 8;
const PRODUCERS: usize = 3;
const KEYS: u32 = 8;
/// Between two messages of a producer.
const PACE: Duration = Duration::from_millis(10);
/// For everything that was acknowledged to be delivered once the faults have ended.
const DRAIN: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn brokers_come_and_go_and_nothing_acknowledged_is_lost_or_out_of_order() -> Result<()> {
    if !lab::is_enabled("brokers_come_and_go_and_nothing_acknowledged_is_lost_or_out_of_order") {
        return Ok(());
    }
    let kinds = [("failover", SubscriptionType::Failover), ("key-shared", SubscriptionType::KeyShared)];
    let topics: Vec<String> =
        kinds.iter().map(|(name, _)| format!("persistent://{NAMESPACE}/drill-{name}")).collect();
    let made = topics.clone();
    let (lab, urls) = spawn_blocking(move || set_up(&made)).await??;

    let client = Client::new(&urls)?;
    let (mut senders, mut receivers) = (JoinSet::new(), JoinSet::new());
    let (stop_sending, stop_receiving) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let books = [Arc::new(Book::default()), Arc::new(Book::default())];
    for ((topic, (_, kind)), book) in topics.iter().zip(kinds).zip(&books) {
        for _ in 0..2 {
            // A client each, as in two programs.
            let builder = Client::new(&urls)?.consumer(topic, "drill").subscription_type(kind);
            let consumer = builder.subscribe().await?;
            receivers.spawn(receive(consumer, book.clone(), stop_receiving.clone()));
        }
        let batching = match kind {
            SubscriptionType::KeyShared => Batching::off(),
            _ => Batching { max_publish_delay: Duration::from_millis(50), ..Batching::default() },
        };
        for number in 0..PRODUCERS {
            let builder = client.producer(topic).batching(batching);
            // No limit: then not even a slow take-over is an error.
            let producer = builder.send_timeout(None).block_if_queue_full(true).create().await?;
            senders.spawn(send(producer, number, book.clone(), stop_sending.clone()));
        }
    }

    let began = Instant::now();
    let lab = spawn_blocking(move || faults(lab)).await??;
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop_sending.store(true, Ordering::Relaxed);
    while let Some(ended) = senders.join_next().await {
        ended?;
    }
    let end = Instant::now() + DRAIN;
    while !books.iter().all(|book| book.is_settled()) && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop_receiving.store(true, Ordering::Relaxed);
    while let Some(ended) = receivers.join_next().await {
        ended?;
    }
    let figures: Vec<Figures> = books.iter().map(|book| book.figures()).collect();
    eprintln!("the drill took {:.0} s", began.elapsed().as_secs_f64());
    for (topic, figures) in topics.iter().zip(&figures) {
        eprintln!("{topic}: {figures:?}");
    }
    spawn_blocking(|| drop(lab)).await?;
    for figures in figures {
        ensure!(figures.errors.is_empty(), "errors: {:?}", figures.errors);
        ensure!(figures.out_of_order.is_empty(), "first deliveries out of order: {:?}", figures.out_of_order);
        ensure!(figures.lost == 0, "{} acknowledged messages are lost", figures.lost);
        ensure!(figures.acknowledged == figures.sent, "no error, so each has its receipt");
        ensure!(figures.sent > 1000, "too few messages to mean anything: {}", figures.sent);
    }
    Ok(())
}

/// Two brokers, the topics, and partitions on both. Returns the service URL of both.
fn set_up(topics: &[String]) -> Result<(Lab, String)> {
    let mut lab = Lab::scratch("drill")?;
    let sites = lab.cluster(2)?;
    let admin = sites[0].admin();
    for topic in topics {
        admin.create_partitioned_topic(topic, PARTITIONS)?;
    }
    for _ in 0..20 {
        let mut owners = BTreeMap::<String, usize>::new();
        for topic in topics {
            for index in 0..PARTITIONS {
                *owners.entry(admin.owner(&format!("{topic}-partition-{index}"))?).or_default() += 1;
            }
        }
        eprintln!("partitions of each broker: {owners:?}");
        if owners.len() == 2 {
            let urls: Vec<_> =
                sites.iter().map(|site| site.service_url.trim_start_matches("pulsar://")).collect();
            return Ok((lab, format!("pulsar://{}", urls.join(","))));
        }
        // Where bundles go is for the brokers to decide; once more.
        admin.unload_namespace(NAMESPACE)?;
    }
    anyhow::bail!("one broker owns everything, again and again")
}

/// What happens to the brokers, about a minute of it.
fn faults(mut lab: Lab) -> Result<Lab> {
    let admin = |lab: &Lab, name: &str| -> Result<Admin> {
        let found = lab.processes().find(|(found, _, _)| *found == name);
        Ok(found.with_context(|| format!("no {name}"))?.1.admin())
    };
    let pause = |seconds| std::thread::sleep(Duration::from_secs(seconds));
    let step = |what: &str| eprintln!("  {what}");
    pause(3);
    step("every bundle is unloaded, one by one");
    unload_bundles(&admin(&lab, "broker1")?)?;
    pause(3);
    step("broker1 is paused for 4 s, shorter than anyone would notice");
    lab.pause("broker1")?;
    pause(4);
    lab.resume("broker1")?;
    pause(3);
    step("broker1 is paused for 20 s: its session ends, and so do our connections");
    lab.pause("broker1")?;
    pause(20);
    lab.resume("broker1")?;
    pause(5);
    step("broker2 is killed, and started again after 5 s");
    lab.kill("broker2")?;
    pause(5);
    lab.restart("broker2")?;
    pause(2);
    step("every bundle is unloaded again");
    unload_bundles(&admin(&lab, "broker2")?)?;
    pause(2);
    step("broker1 is killed, and started again at once");
    lab.kill("broker1")?;
    lab.restart("broker1")?;
    step("the faults have ended");
    Ok(lab)
}

fn unload_bundles(admin: &Admin) -> Result<()> {
    let bundles = admin.get(&format!("namespaces/{NAMESPACE}/bundles"))?;
    let boundaries: Vec<&str> = bundles["boundaries"]
        .as_array()
        .context("a namespace has bundles")?
        .iter()
        .filter_map(|boundary| boundary.as_str())
        .collect();
    for pair in boundaries.windows(2) {
        let bundle = format!("{}_{}", pair[0], pair[1]);
        // A bundle without topics has no owner and nothing to unload; while brokers change, neither has another.
        if let Err(error) = admin.unload_bundle(NAMESPACE, &bundle) {
            eprintln!("  {bundle} stayed: {error:#}");
        }
    }
    Ok(())
}

/// Sends numbered messages of its own keys until it is told to stop, and waits for every receipt.
async fn send(producer: Producer, number: usize, book: Arc<Book>, stop: Arc<AtomicBool>) {
    let mut receipts = JoinSet::new();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let (key, index) = (format!("{number}-{}", next % KEYS), next / KEYS);
        next += 1;
        match producer.enqueue(OutgoingMessage::new(index.to_string()).with_key(&key)).await {
            Ok(receipt) => {
                book.sent();
                let book = book.clone();
                receipts.spawn(async move { book.acknowledged(&key, index, receipt.await.map(drop)) });
            }
            Err(refused) => book.failed("enqueue", &refused.error),
        }
        tokio::time::sleep(PACE).await;
    }
    while receipts.join_next().await.is_some() {}
    if let Err(error) = producer.close().await {
        book.failed("close", &error);
    }
}

async fn receive(consumer: Consumer, book: Arc<Book>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        match consumer.receive_timeout(Duration::from_millis(200)).await {
            Ok(None) => {}
            Ok(Some(message)) => {
                let key = message.key().unwrap_or_default();
                // Noted before it is acknowledged: what the other consumer gets after that is really later.
                match String::from_utf8_lossy(message.payload()).parse() {
                    Ok(index) => book.delivered(&key, index),
                    Err(_) => book.out_of_order(format!("{key}: not a number, {:?}", message.payload())),
                }
                if let Err(error) = consumer.acknowledge(&message) {
                    book.failed("acknowledge", &error);
                }
            }
            Err(error) => return book.failed("receive", &error),
        }
    }
    if let Err(error) = consumer.close().await {
        book.failed("close", &error);
    }
}

/// What became of the messages of one topic.
#[derive(Default)]
struct Book {
    inner: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    sent: usize,
    /// By key, the numbers that have their receipt.
    acknowledged: BTreeMap<String, BTreeSet<u32>>,
    /// By key, the number that comes next.
    next: BTreeMap<String, u32>,
    deliveries: usize,
    errors: Vec<String>,
    out_of_order: Vec<String>,
    last_receipt: Option<Instant>,
    last_delivery: Option<Instant>,
    longest_without_receipt: Duration,
    longest_without_delivery: Duration,
}

#[derive(Debug)]
#[expect(dead_code, reason = "printed")]
struct Figures {
    sent: usize,
    acknowledged: usize,
    delivered: usize,
    duplicates: usize,
    lost: usize,
    errors: Vec<String>,
    out_of_order: Vec<String>,
    longest_without_receipt: Duration,
    longest_without_delivery: Duration,
}

impl Book {
    fn sent(&self) {
        self.with(|entries| entries.sent += 1);
    }

    fn acknowledged(&self, key: &str, index: u32, receipt: Result<(), geminga::Error>) {
        match receipt {
            Ok(()) => self.with(|entries| {
                entries.acknowledged.entry(key.to_owned()).or_default().insert(index);
                gap(&mut entries.last_receipt, &mut entries.longest_without_receipt);
            }),
            Err(error) => self.failed("receipt", &error),
        }
    }

    fn delivered(&self, key: &str, index: u32) {
        self.with(|entries| {
            entries.deliveries += 1;
            gap(&mut entries.last_delivery, &mut entries.longest_without_delivery);
            let next = entries.next.entry(key.to_owned()).or_default();
            if index > *next {
                entries.out_of_order.push(format!("{key}: {index} came before {next}"));
            }
            *next = (*next).max(index + 1);
        });
    }

    fn out_of_order(&self, what: String) {
        self.with(|entries| entries.out_of_order.push(what));
    }

    fn failed(&self, what: &str, error: &geminga::Error) {
        self.with(|entries| entries.errors.push(format!("{what}: {error}")));
    }

    fn is_settled(&self) -> bool {
        self.with(|entries| entries.lost() == 0)
    }

    fn figures(&self) -> Figures {
        self.with(|entries| {
            let delivered = entries.next.values().map(|&next| next as usize).sum();
            Figures {
                sent: entries.sent,
                acknowledged: entries.acknowledged.values().map(BTreeSet::len).sum(),
                delivered,
                duplicates: entries.deliveries.saturating_sub(delivered),
                lost: entries.lost(),
                errors: entries.errors.clone(),
                out_of_order: entries.out_of_order.clone(),
                longest_without_receipt: entries.longest_without_receipt,
                longest_without_delivery: entries.longest_without_delivery,
            }
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Entries) -> R) -> R {
        act(&mut self.inner.lock().expect("no holder panics"))
    }
}

impl Entries {
    /// Acknowledged messages that have not been delivered. Those that were jumped over are told by `out_of_order`.
    fn lost(&self) -> usize {
        let missing = |(key, indexes): (&String, &BTreeSet<u32>)| {
            indexes.range(self.next.get(key).copied().unwrap_or(0)..).count()
        };
        self.acknowledged.iter().map(missing).sum()
    }
}

fn gap(last: &mut Option<Instant>, longest: &mut Duration) {
    let now = Instant::now();
    if let Some(last) = last.replace(now) {
        *longest = (*longest).max(now - last);
    }
}
