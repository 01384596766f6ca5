//! Messages of one partition that were given back too often: which are on their last delivery, and which are on their way
//! to the dead letter topic.
//!
//! A leaf: decides what becomes of a message that arrives or is given back, and remembers dead letters until their
//! outcome. Refuses to know a producer (`post.rs`) or what is told to the broker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::EntryId;
use crate::config::DeadLetterPolicy;
use crate::message::{Message, OutgoingMessage};

/// A message of one partition: its entry and its index there, -1 outside a batch.
pub(crate) type Key = (EntryId, i32);

/// Dead letters under way at once: what comes beyond is asked for again later, so that its bytes do not pile up here.
const MOST_AWAY: usize = 1000;
/// Dead letters remembered behind their receipt.
const REMEMBERED: usize = 1000;

/// What becomes of a message that is next in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Deliver,
    /// It was delivered often enough: it goes to the dead letter topic.
    Bury,
    /// The same, but too many are on their way.
    PutOff,
    /// It is on its way there already.
    Drop,
    /// It is there already, and the broker does not know that it is acknowledged.
    Acknowledge,
}

/// The dead letters of one partition's consumer.
///
/// Shape: a message is held by the application, away, done, or none of these; away means that its copy has no outcome yet,
/// and only what is away can become done. Members of a batch are messages of their own.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    max: u32,
    /// What the application has and did not acknowledge; with the message itself where it was the last delivery.
    held: BTreeMap<Key, Option<Message>>,
    /// Dead letters, with the SEND that each is in.
    away: BTreeMap<Key, (Option<u64>, Message)>,
    /// Those of them without SEND, oldest first; some may not be away any more.
    unsent: VecDeque<Key>,
    /// The latest that have their receipt: they may come again when the acknowledgement was lost with a connection.
    done: BTreeSet<Key>,
    done_in_order: VecDeque<Key>,
}

impl DeadLetters {
    pub(crate) fn new(max: u32) -> Self {
        DeadLetters {
            max,
            held: BTreeMap::new(),
            away: BTreeMap::new(),
            unsent: VecDeque::new(),
            done: BTreeSet::new(),
            done_in_order: VecDeque::new(),
        }
    }

    /// What to do with a message that arrived for the `count`th time again.
    pub(crate) fn fate(&self, key: &Key, count: u32) -> Fate {
        match () {
            () if self.away.contains_key(key) => Fate::Drop,
            () if self.done.contains(key) => Fate::Acknowledge,
            () if count <= self.max => Fate::Deliver,
            () if self.away.len() >= MOST_AWAY => Fate::PutOff,
            () => Fate::Bury,
        }
    }

    /// The application has it now.
    pub(crate) fn delivered(&mut self, message: &Message) {
        let last = message.redelivery_count() >= self.max;
        self.held.insert(key(message), last.then(|| message.clone()));
    }

    /// The application is done with it, or with its whole entry when it named that by an id without index.
    pub(crate) fn acknowledged(&mut self, entry: EntryId, index: i32) {
        if index >= 0 {
            self.held.remove(&(entry, index));
            self.away.remove(&(entry, index));
            return;
        }
        for key in self.of_entry(entry) {
            self.held.remove(&key);
            self.away.remove(&key);
        }
    }

    /// The application gave these back. Those whose last delivery it was become dead letters; returns the entries of the
    /// others, which are to come again.
    pub(crate) fn given_back(&mut self, keys: impl IntoIterator<Item = Key>) -> BTreeSet<EntryId> {
        let mut again = BTreeSet::new();
        for (entry, index) in keys {
            let found = if index >= 0 { vec![(entry, index)] } else { self.of_entry(entry) };
            let mut last = false;
            for key in found {
                match self.held.remove(&key) {
                    Some(Some(message)) => {
                        last = true;
                        self.bury(message);
                    }
                    _ => last |= self.away.contains_key(&key),
                }
            }
            if !last {
                again.insert(entry);
            }
        }
        again
    }

    /// Everything that the application has.
    pub(crate) fn held(&self) -> impl Iterator<Item = Key> {
        self.held.keys().copied()
    }

    /// Makes a message a dead letter.
    pub(crate) fn bury(&mut self, message: Message) {
        let key = key(&message);
        self.held.remove(&key);
        self.away.insert(key, (None, message));
        self.unsent.push_back(key);
    }

    /// The next dead letter to hand to the producer.
    pub(crate) fn next(&mut self) -> Option<(Key, &Message)> {
        while let Some(key) = self.unsent.front() {
            if matches!(self.away.get(key), Some((None, _))) {
                break;
            }
            self.unsent.pop_front();
        }
        let key = *self.unsent.front()?;
        self.away.get(&key).map(|(_, message)| (key, message))
    }

    /// The producer took it.
    pub(crate) fn sent(&mut self, key: Key, number: u64) {
        if let Some((send, _)) = self.away.get_mut(&key) {
            *send = Some(number);
        }
    }

    /// It is stored in the dead letter topic. Returns the message, unless it was acknowledged meanwhile.
    pub(crate) fn stored(&mut self, key: Key, number: u64) -> Option<Message> {
        let message = self.take(key, Some(number))?;
        if self.done.insert(key) {
            self.done_in_order.push_back(key);
        }
        if self.done_in_order.len() > REMEMBERED
            && let Some(oldest) = self.done_in_order.pop_front()
        {
            self.done.remove(&oldest);
        }
        Some(message)
    }

    /// It could not be sent. Returns whether it is to be tried again, as a message that the application gives back once
    /// more: a member of a batch stays here, so that its acknowledged siblings need not come again.
    pub(crate) fn failed(&mut self, key: Key, number: Option<u64>) -> bool {
        let Some(message) = self.take(key, number) else { return false };
        if key.1 >= 0 {
            self.held.insert(key, Some(message));
        }
        true
    }

    fn take(&mut self, key: Key, number: Option<u64>) -> Option<Message> {
        match self.away.get(&key) {
            Some((send, _)) if *send == number => self.away.remove(&key).map(|(_, message)| message),
            _ => None,
        }
    }

    /// The broker starts over: what the application has comes again. What is away comes too, and is dropped then.
    pub(crate) fn resubscribed(&mut self) {
        self.held.clear();
    }

    /// The position changed, or the end: outcomes that are still to come mean nothing any more.
    pub(crate) fn clear(&mut self) {
        *self = DeadLetters::new(self.max);
    }

    fn of_entry(&self, entry: EntryId) -> Vec<Key> {
        let all = (entry, i32::MIN)..=(entry, i32::MAX);
        let held = self.held.range(all.clone()).map(|(key, _)| *key);
        held.chain(self.away.range(all).map(|(key, _)| *key)).collect()
    }
}

pub(crate) fn key(message: &Message) -> Key {
    ((message.entry.ledger_id, message.entry.entry_id), message.batch_index)
}

/// The copy that goes to the dead letter topic.
pub(crate) fn copy_of(message: &Message) -> OutgoingMessage {
    let mut properties = message.properties();
    let mut add = |name: &str, value: String| {
        if properties.iter().all(|(other, _)| other != name) {
            properties.push((name.to_owned(), value));
        }
    };
    add(DeadLetterPolicy::REAL_TOPIC, message.topic().to_owned());
    add(DeadLetterPolicy::ORIGIN_MESSAGE_ID, message.message_id().to_string());
    OutgoingMessage {
        payload: message.payload_bytes(),
        key: message.key().map(|key| key.into_owned()),
        key_is_base64: message.has_base64_key(),
        ordering_key: message.ordering_key().map(<[u8]>::to_vec).map(Into::into),
        properties,
        event_time: message.event_time(),
        schema_version: (!message.schema_version().is_empty())
            .then(|| message.schema_version().to_vec().into()),
        null_value: message.is_null(),
        ..OutgoingMessage::default()
    }
}
