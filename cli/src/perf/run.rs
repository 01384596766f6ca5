//! The measured loops. Lean on purpose: per message no copy, no allocation and no clock, except for every 128th.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use geminga::{Batching, Consumer, InitialPosition, OutgoingMessage, Producer, SendReceipt};

use super::meter::{Cost, Meter};
use super::{AckMode, Settings};
use crate::progress::{Progress, group};
use crate::stats::Latencies;

/// One message in so many has its latency taken in the batched modes.
const SAMPLE: u64 = 128;
/// Messages between two cumulative acknowledgements.
const CUMULATIVE: u64 = 100;
/// A consumer that got nothing for so long will not get the rest either.
const STARVED: Duration = Duration::from_secs(30);

/// One measurement under way.
pub(super) struct Run<'a> {
    pub(super) client: &'a geminga::Client,
    pub(super) settings: &'a Settings,
    pub(super) warmup: u64,
    /// Shown to people, not to programs.
    pub(super) progress: Option<RefCell<Progress>>,
}

/// What it cost, the latencies, and those of receipts where they are told apart.
type Measured = (Cost, Latencies, Option<Latencies>);

impl Run<'_> {
    pub(super) async fn produce(&self) -> Result<Measured> {
        let producer = self.producer(self.settings.batching).await?;
        let messages = Messages::new(self.settings);
        let mut pending = Pending::new(self.settings.pending as usize);
        self.fill(&producer, &messages, &mut pending, self.warmup, None).await?;
        let mut latencies = Latencies::with_capacity((self.settings.count / SAMPLE) as usize + 1);
        let meter = Meter::start()?;
        self.fill(&producer, &messages, &mut pending, self.settings.count, Some(&mut latencies)).await?;
        let cost = meter.stop()?;
        producer.close().await?;
        Ok((cost, latencies, None))
    }

    /// Sends `count` messages and waits for every receipt.
    async fn fill(
        &self,
        producer: &Producer,
        messages: &Messages,
        pending: &mut Pending,
        count: u64,
        mut latencies: Option<&mut Latencies>,
    ) -> Result<()> {
        for i in 0..count {
            if pending.is_full() {
                pending.settle_oldest(&mut latencies).await?;
            }
            let sampled = i % SAMPLE == 0;
            if sampled {
                pending.settle_ready(&mut latencies)?;
                self.step(SAMPLE);
            }
            let sent = (sampled && latencies.is_some()).then(Instant::now);
            let receipt = producer.enqueue(messages.get(i)).await.map_err(|refused| refused.error)?;
            pending.push(sent, receipt);
        }
        producer.flush().await?;
        while !pending.is_empty() {
            pending.settle_oldest(&mut latencies).await?;
        }
        Ok(())
    }

    pub(super) async fn produce_sync(&self) -> Result<Measured> {
        let producer = self.producer(Batching::off()).await?;
        let messages = Messages::new(self.settings);
        for i in 0..self.warmup {
            producer.send(messages.get(i)).await?;
            self.step(1);
        }
        let mut latencies = Latencies::with_capacity(self.settings.count as usize);
        let meter = Meter::start()?;
        for i in 0..self.settings.count {
            let start = Instant::now();
            producer.send(messages.get(i)).await?;
            latencies.push(start.elapsed());
            self.step(1);
        }
        let cost = meter.stop()?;
        producer.close().await?;
        Ok((cost, latencies, None))
    }

    pub(super) async fn consume(&self, ack: AckMode) -> Result<Measured> {
        let consumer = self.consumer(InitialPosition::Earliest).await?;
        let taken = Cell::new(0);
        self.unless_starved(&taken, self.take(&consumer, self.warmup, ack, &taken)).await?;
        let meter = Meter::start()?;
        let bytes =
            self.unless_starved(&taken, self.take(&consumer, self.settings.count, ack, &taken)).await?;
        // Acknowledgements that wait for company are part of the work.
        consumer.close().await?;
        let cost = meter.stop()?;
        let expected = self.settings.count * self.settings.size as u64;
        if bytes != expected {
            bail!("the messages had {} bytes, not {}: see --size", group(bytes), group(expected));
        }
        Ok((cost, Latencies::default(), None))
    }

    pub(super) async fn latency(&self, ack: AckMode) -> Result<Measured> {
        let consumer = self.consumer(InitialPosition::Latest).await?;
        let producer = self.producer(Batching::off()).await?;
        let messages = Messages::new(self.settings);
        // A non-persistent topic drops what comes before the first permits.
        tokio::time::sleep(Duration::from_millis(500)).await;
        for i in 0..self.warmup {
            round_trip(&producer, &consumer, messages.get(i), ack).await?;
            self.step(1);
        }
        let count = self.settings.count as usize;
        let (mut latencies, mut receipts) =
            (Latencies::with_capacity(count), Latencies::with_capacity(count));
        let meter = Meter::start()?;
        for i in 0..self.settings.count {
            let (received, receipt) = round_trip(&producer, &consumer, messages.get(i), ack).await?;
            latencies.push(received);
            receipts.push(receipt);
            self.step(1);
        }
        let cost = meter.stop()?;
        consumer.close().await?;
        producer.close().await?;
        Ok((cost, latencies, Some(receipts)))
    }

    /// Takes and acknowledges `count` messages; returns their bytes.
    async fn take(&self, consumer: &Consumer, count: u64, ack: AckMode, taken: &Cell<u64>) -> Result<u64> {
        let mut bytes = 0;
        for i in 0..count {
            let message = consumer.receive().await?;
            bytes += message.payload().len() as u64;
            taken.set(taken.get() + 1);
            if i % SAMPLE == 0 {
                self.step(SAMPLE);
            }
            match ack {
                AckMode::Individual => consumer.acknowledge(&message)?,
                AckMode::Cumulative if i % CUMULATIVE == CUMULATIVE - 1 || i == count - 1 => {
                    consumer.acknowledge_cumulative(&message)?;
                }
                AckMode::Cumulative | AckMode::None => {}
            }
        }
        Ok(bytes)
    }

    /// `n` more messages are done, or nearly.
    fn step(&self, n: u64) {
        if let Some(progress) = &self.progress {
            progress.borrow_mut().add(n);
        }
    }

    async fn producer(&self, batching: Batching) -> Result<Producer> {
        let producer = self.client.producer(self.settings.topic.as_str());
        let producer = producer
            .batching(batching)
            .compression(self.settings.compression.into())
            .send_timeout(None)
            .max_pending_messages(self.settings.pending as usize)
            .block_if_queue_full(true);
        Ok(producer.create().await?)
    }

    async fn consumer(&self, from: InitialPosition) -> Result<Consumer> {
        let subscription = match &self.settings.subscription {
            Some(name) => name.clone(),
            None => format!("bench-geminga-{}", std::process::id()),
        };
        let consumer = self.client.consumer(self.settings.topic.as_str(), subscription);
        let consumer = consumer
            .subscription_type(self.settings.subscription_type.into())
            .initial_position(from)
            .receiver_queue_size(self.settings.receiver_queue);
        Ok(consumer.subscribe().await?)
    }

    /// Runs `work`, which counts in `taken`, unless it stops getting messages.
    async fn unless_starved<T>(&self, taken: &Cell<u64>, work: impl Future<Output = Result<T>>) -> Result<T> {
        let watchdog = async {
            loop {
                let before = taken.get();
                tokio::time::sleep(STARVED).await;
                if taken.get() == before {
                    return before;
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            n = watchdog => bail!(
                "{} messages came, then none for {} s: the topic must hold {} for the warm-up and {} to measure",
                group(n), STARVED.as_secs(), group(self.warmup), group(self.settings.count)
            ),
        }
    }
}

/// Sends one message; returns the time until it was received and the time until its receipt.
async fn round_trip(
    producer: &Producer,
    consumer: &Consumer,
    message: OutgoingMessage,
    ack: AckMode,
) -> Result<(Duration, Duration)> {
    let start = Instant::now();
    let send = async {
        producer.send(message).await?;
        anyhow::Ok(start.elapsed())
    };
    let receive = async {
        let message = consumer.receive().await?;
        let elapsed = start.elapsed();
        match ack {
            AckMode::Individual => consumer.acknowledge(&message)?,
            AckMode::Cumulative => consumer.acknowledge_cumulative(&message)?,
            AckMode::None => {}
        }
        anyhow::Ok(elapsed)
    };
    let (receipt, received) = tokio::try_join!(send, receive)?;
    Ok((received, receipt))
}

/// The messages to send: one payload that all share, and keys in turn.
struct Messages {
    payload: Bytes,
    keys: Vec<String>,
}

impl Messages {
    fn new(settings: &Settings) -> Self {
        let payload = (0..settings.size).map(|i| b'a' + (i % 26) as u8).collect();
        Messages { payload, keys: (0..settings.keys).map(|k| format!("key-{k}")).collect() }
    }

    fn get(&self, i: u64) -> OutgoingMessage {
        let message = OutgoingMessage::new(self.payload.clone());
        match self.keys.len() as u64 {
            0 => message,
            n => message.with_key(self.keys[(i % n) as usize].as_str()),
        }
    }
}

/// Receipts under way, oldest first, with the time of sending where it is sampled.
struct Pending {
    receipts: VecDeque<(Option<Instant>, SendReceipt)>,
    limit: usize,
}

impl Pending {
    fn new(limit: usize) -> Self {
        Pending { receipts: VecDeque::with_capacity(limit), limit }
    }

    fn is_full(&self) -> bool {
        self.receipts.len() >= self.limit
    }

    fn is_empty(&self) -> bool {
        self.receipts.is_empty()
    }

    fn push(&mut self, sent: Option<Instant>, receipt: SendReceipt) {
        self.receipts.push_back((sent, receipt));
    }

    /// Waits for the oldest receipt.
    async fn settle_oldest(&mut self, latencies: &mut Option<&mut Latencies>) -> Result<()> {
        let Some((sent, receipt)) = self.receipts.pop_front() else { return Ok(()) };
        receipt.await?;
        note(sent, latencies);
        Ok(())
    }

    /// Takes the receipts that are there, so that the time of a sample is not the time of a full queue.
    fn settle_ready(&mut self, latencies: &mut Option<&mut Latencies>) -> Result<()> {
        while let Some(result) = self.receipts.front().and_then(|(_, receipt)| receipt.try_result()) {
            result?;
            if let Some((sent, _)) = self.receipts.pop_front() {
                note(sent, latencies);
            }
        }
        Ok(())
    }
}

fn note(sent: Option<Instant>, latencies: &mut Option<&mut Latencies>) {
    if let (Some(sent), Some(latencies)) = (sent, latencies) {
        latencies.push(sent.elapsed());
    }
}
