//! What the applications of a run did and saw, for the checkers. Knows nothing of the client's insides.

use std::collections::{BTreeMap, BTreeSet};

use geminga_core::{Message, MessageId, Mono};

use crate::world::Sent;

/// A message as the application names it: the producer and its count there. It is the beginning of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Which producer of the plan.
    pub producer: u32,
    /// Which of its messages, from 0.
    pub n: u32,
}

/// Where a message is stored: topic or partition by its number in the history, ledger, entry, index in the batch or -1.
pub type Place = (usize, i64, i64, i32);

/// A message handed to a producer.
#[derive(Clone, Debug)]
pub struct SendRecord {
    /// The client's name for it.
    pub sent: Sent,
    /// Its name.
    pub label: Label,
    /// When.
    pub at: Mono,
}

/// A message handed to the application.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Its name.
    pub label: Label,
    /// Where it is.
    pub place: Place,
    /// Its key.
    pub key: Option<String>,
}

/// What one subscription's applications, or one reader, saw and said.
#[derive(Debug, Default)]
pub struct Consumed {
    /// In the order of delivery.
    pub delivered: Vec<Delivered>,
    /// The messages seen so far, by partition.
    pub seen: BTreeSet<(usize, Label)>,
    /// Acknowledged one by one.
    pub acked: BTreeSet<Place>,
    /// Acknowledged with all before it, by partition.
    pub acked_up_to: BTreeMap<usize, MessageId>,
    /// Not acknowledged before the end: each copy by the consumer that has it, with its id there.
    pub held: BTreeMap<(Place, usize), MessageId>,
}

/// Everything.
#[derive(Debug)]
pub struct History {
    /// By producer.
    pub sends: Vec<Vec<SendRecord>>,
    /// By subscription.
    pub subscriptions: Vec<Consumed>,
    /// By reader.
    pub readers: Vec<Consumed>,
    partitions: Vec<String>,
}

impl Label {
    /// The payload: the name, padded to about `size` bytes.
    pub fn payload(self, size: usize) -> Vec<u8> {
        let mut payload = format!("{}.{};", self.producer, self.n).into_bytes();
        payload.resize(payload.len().max(size), b'.');
        payload
    }

    /// The name in a payload. Errors: it is none of ours.
    pub fn read(payload: &[u8]) -> Result<Self, String> {
        let read = || {
            let end = payload.iter().position(|b| *b == b';')?;
            let (producer, n) = std::str::from_utf8(&payload[..end]).ok()?.split_once('.')?;
            if payload[end + 1..].iter().any(|b| *b != b'.') {
                return None;
            }
            Some(Label { producer: producer.parse().ok()?, n: n.parse().ok()? })
        };
        read().ok_or_else(|| format!("a payload that nobody sent: {:?}", String::from_utf8_lossy(payload)))
    }
}

impl History {
    /// An empty history of so many producers, subscriptions and readers.
    pub fn new(producers: usize, subscriptions: usize, readers: usize) -> Self {
        History {
            sends: vec![Vec::new(); producers],
            subscriptions: (0..subscriptions).map(|_| Consumed::default()).collect(),
            readers: (0..readers).map(|_| Consumed::default()).collect(),
            partitions: Vec::new(),
        }
    }

    /// The number of a topic or partition.
    pub fn partition(&mut self, topic: &str) -> usize {
        self.partitions.iter().position(|name| name == topic).unwrap_or_else(|| {
            self.partitions.push(topic.to_owned());
            self.partitions.len() - 1
        })
    }

    /// The name of a numbered topic or partition.
    pub fn partition_name(&self, partition: usize) -> &str {
        &self.partitions[partition]
    }

    /// A message as the history keeps it. Errors: nobody sent it.
    pub fn delivered(&mut self, message: &Message) -> Result<Delivered, String> {
        let partition = self.partition(message.topic());
        Ok(Delivered {
            label: Label::read(message.payload())?,
            place: place(partition, message.message_id()),
            key: message.key().map(|key| key.into_owned()),
        })
    }
}

impl Consumed {
    /// Whether the application acknowledged what is at `place`.
    pub fn is_acked(&self, place: Place) -> bool {
        self.acked.contains(&place)
            || self.acked_up_to.get(&place.0).is_some_and(|id| {
                // The id of a whole entry covers all of it.
                let index = if id.batch_index < 0 { i32::MAX } else { id.batch_index };
                (place.1, place.2, place.3) <= (id.ledger_id, id.entry_id, index)
            })
    }

    /// Notes a cumulative acknowledgement.
    pub fn ack_up_to(&mut self, partition: usize, id: MessageId) {
        let known = self.acked_up_to.entry(partition).or_insert(id);
        *known = (*known).max(id);
    }
}

/// Where a message id points to.
pub fn place(partition: usize, id: MessageId) -> Place {
    (partition, id.ledger_id, id.entry_id, id.batch_index)
}
