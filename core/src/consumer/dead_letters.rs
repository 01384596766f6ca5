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
    /// What the application has and did not acknowledge, or could not be sent; with the message itself where it was the
    /// last delivery, and without it where it is to come again.
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

    /// Whether the application may give this back: what it got before a redelivery comes again, or came, without that, and
    /// asking once more would count twice.
    pub(crate) fn holds(&self, entry: EntryId, index: i32) -> bool {
        match index {
            0.. => self.held.contains_key(&(entry, index)),
            _ => self.held.range((entry, i32::MIN)..=(entry, i32::MAX)).next().is_some(),
        }
    }

    /// The application gave these back. Those whose last delivery it was become dead letters; returns the entries of the
    /// others, which are to come again, as a whole.
    pub(crate) fn given_back(&mut self, keys: impl IntoIterator<Item = Key>) -> BTreeSet<EntryId> {
        let mut again = BTreeSet::new();
        for (entry, index) in keys {
            let found = if index >= 0 { vec![(entry, index)] } else { self.of_entry(entry) };
            for key in found {
                match self.held.remove(&key) {
                    Some(Some(message)) => self.bury(message),
                    Some(None) => drop(again.insert(entry)),
                    None => {}
                }
            }
        }
        for entry in &again {
            for key in self.of_entry(*entry) {
                self.held.remove(&key);
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
        self.held.insert(key, (key.1 >= 0).then_some(message));
        true
    }

    /// It is to be asked for again later.
    pub(crate) fn put_off(&mut self, key: Key) {
        self.held.insert(key, None);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::Entry;
    use crate::topic_name::TopicName;
    use crate::wire::proto::MessageMetadata;

    const E: EntryId = (1, 7);

    fn message(index: i32, redelivery_count: u32) -> Message {
        let entry = Entry {
            topic: TopicName::parse("t").unwrap(),
            ledger_id: E.0,
            entry_id: E.1,
            partition: -1,
            redelivery_count,
            metadata: MessageMetadata::default(),
            body: bytes::Bytes::from_static(b"x"),
            batch_size: if index < 0 { 0 } else { 4 },
            last_index: None,
        };
        Message { entry: Arc::new(entry), record: None, batch_index: index }
    }

    #[test]
    fn a_message_is_delivered_up_to_the_count_and_once_more_only_as_a_dead_letter() {
        let mut letters = DeadLetters::new(2);
        for count in 0..2 {
            assert_eq!(letters.fate(&(E, -1), count), Fate::Deliver);
            letters.delivered(&message(-1, count));
            assert_eq!(letters.given_back([(E, -1)]), BTreeSet::from([E]));
            assert!(letters.next().is_none());
        }
        assert_eq!(letters.fate(&(E, -1), 2), Fate::Deliver);
        letters.delivered(&message(-1, 2));
        assert_eq!(letters.given_back([(E, -1)]), BTreeSet::new());
        assert_eq!(letters.next().map(|(key, _)| key), Some((E, -1)));
        assert_eq!(letters.fate(&(E, -1), 2), Fate::Drop);
        letters.sent((E, -1), 5);
        assert!(letters.next().is_none());
        assert!(letters.stored((E, -1), 4).is_none(), "the outcome of another");
        assert!(letters.stored((E, -1), 5).is_some());
        assert_eq!(letters.fate(&(E, -1), 3), Fate::Acknowledge);
        assert_eq!(letters.fate(&((1, 8), -1), 3), Fate::Bury);
    }

    #[test]
    fn a_copy_that_comes_again_anyway_is_not_asked_for_twice() {
        let mut letters = DeadLetters::new(5);
        for index in 0..3 {
            letters.delivered(&message(index, 1));
        }
        assert_eq!(letters.given_back([(E, 0), (E, 1)]), BTreeSet::from([E]), "one request for both");
        assert!(!letters.holds(E, 2), "it comes with them");
        assert!(!letters.holds(E, -1));
        assert_eq!(letters.given_back([(E, 2)]), BTreeSet::new());
        letters.delivered(&message(2, 2));
        assert!(letters.holds(E, 2) && letters.holds(E, -1));
    }

    #[test]
    fn an_acknowledgement_ends_it_wherever_the_message_is() {
        let mut letters = DeadLetters::new(1);
        for index in 0..3 {
            letters.delivered(&message(index, 1));
        }
        letters.acknowledged(E, 0);
        letters.given_back([(E, 0), (E, 1), (E, 2)]);
        letters.sent((E, 1), 9);
        letters.acknowledged(E, 1);
        assert!(letters.stored((E, 1), 9).is_none());
        assert_eq!(letters.next().map(|(key, _)| key), Some((E, 2)));
        letters.acknowledged(E, -1);
        assert!(letters.next().is_none());
        assert!(letters.away.is_empty() && letters.held.is_empty());
    }

    #[test]
    fn what_could_not_be_sent_is_given_back_once_more() {
        let mut letters = DeadLetters::new(1);
        letters.delivered(&message(3, 1));
        letters.delivered(&message(-1, 1));
        letters.given_back([(E, 3)]);
        letters.given_back([(E, -1)]);
        assert!(letters.failed((E, 3), None));
        letters.sent((E, -1), 1);
        assert!(!letters.failed((E, -1), None), "it has a SEND now");
        assert!(letters.failed((E, -1), Some(1)));
        assert_eq!(letters.given_back([(E, 3)]), BTreeSet::new());
        assert_eq!(letters.next().map(|(key, _)| key), Some((E, 3)), "a member is tried from here");
        letters.clear();
        letters.put_off((E, -1));
        assert_eq!(
            letters.given_back([(E, -1)]),
            BTreeSet::from([E]),
            "the broker is asked for a single message"
        );
    }

    #[test]
    fn too_many_at_once_are_put_off_and_the_oldest_memories_fade() {
        let mut letters = DeadLetters::new(1);
        for n in 0..MOST_AWAY as i64 {
            let mut other = message(-1, 2);
            Arc::get_mut(&mut other.entry).unwrap().entry_id = n;
            letters.bury(other);
        }
        assert_eq!(letters.fate(&((2, 0), -1), 2), Fate::PutOff);
        for n in 0..MOST_AWAY as i64 {
            letters.sent(((1, n), -1), n as u64);
            assert!(letters.stored(((1, n), -1), n as u64).is_some());
        }
        letters.bury(message(9, 2));
        letters.sent((E, 9), 1);
        letters.stored((E, 9), 1);
        assert_eq!(letters.done.len(), REMEMBERED);
        assert_eq!(letters.fate(&((1, 0), -1), 2), Fate::Bury, "it was the oldest");
        assert_eq!(letters.fate(&((1, 1), -1), 2), Fate::Acknowledge);
    }
}
