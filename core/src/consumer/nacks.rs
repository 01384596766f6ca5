//! Negative acknowledgements that wait: which messages are asked for again, and when.
//!
//! A leaf: knows ids and times, not how redelivery is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::EntryId;
use crate::time::Mono;

/// Messages to ask for again, in buckets of time.
///
/// Shape: a message is in at most one bucket; a later negative acknowledgement of it changes nothing, an acknowledgement
/// takes it out. A bucket is due at or after the delay, never before it, and at most a sixteenth of it (256 ms at most)
/// late, so that many messages share one command.
/// Source: `NegativeAcksTracker` in the Java client, which rounds down.
#[derive(Debug)]
pub(crate) struct Nacks {
    delay: Duration,
    buckets: BTreeMap<Mono, BTreeSet<(EntryId, i32)>>,
    due: BTreeMap<(EntryId, i32), Mono>,
}

impl Nacks {
    pub(crate) fn new(delay: Duration) -> Self {
        Nacks { delay, buckets: BTreeMap::new(), due: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Adds message `index` of an entry, -1 for a single one.
    pub(crate) fn add(&mut self, entry: EntryId, index: i32, now: Mono) {
        self.add_after(entry, index, now, self.delay);
    }

    /// The same with a delay of its own.
    pub(crate) fn add_after(&mut self, entry: EntryId, index: i32, now: Mono, delay: Duration) {
        if self.due.contains_key(&(entry, index)) {
            return;
        }
        let tick = (delay / 16).clamp(Duration::from_millis(1), Duration::from_millis(256));
        let tick = tick.as_nanos() as u64;
        let at = match delay.is_zero() {
            true => now,
            false => Mono::from_nanos((now + delay).as_nanos().div_ceil(tick).saturating_mul(tick)),
        };
        self.due.insert((entry, index), at);
        self.buckets.entry(at).or_default().insert((entry, index));
    }

    /// The message was acknowledged after all.
    pub(crate) fn remove(&mut self, entry: EntryId, index: i32) {
        if let Some(at) = self.due.remove(&(entry, index))
            && let Some(bucket) = self.buckets.get_mut(&at)
        {
            bucket.remove(&(entry, index));
            if bucket.is_empty() {
                self.buckets.remove(&at);
            }
        }
    }

    /// Everything up to here was acknowledged after all.
    pub(crate) fn remove_through(&mut self, entry: EntryId, index: i32) {
        let acknowledged: Vec<_> = self.due.range(..=(entry, index)).map(|(key, _)| *key).collect();
        for (entry, index) in acknowledged {
            self.remove(entry, index);
        }
    }

    /// The whole entry is asked for.
    pub(crate) fn remove_entry(&mut self, entry: EntryId) {
        let members: Vec<_> =
            self.due.range((entry, i32::MIN)..=(entry, i32::MAX)).map(|(key, _)| key.1).collect();
        for index in members {
            self.remove(entry, index);
        }
    }

    /// When the next bucket is due.
    pub(crate) fn next(&self) -> Option<Mono> {
        self.buckets.first_key_value().map(|(at, _)| *at)
    }

    /// Takes the messages that are due.
    pub(crate) fn take_due(&mut self, now: Mono) -> BTreeSet<(EntryId, i32)> {
        let mut messages = BTreeSet::new();
        while let Some(bucket) = self.buckets.first_entry().filter(|b| *b.key() <= now) {
            for key in bucket.remove() {
                self.due.remove(&key);
                messages.insert(key);
            }
        }
        messages
    }

    /// Takes all messages, due or not.
    pub(crate) fn take_all(&mut self) -> BTreeSet<(EntryId, i32)> {
        self.buckets.clear();
        std::mem::take(&mut self.due).into_keys().collect()
    }

    /// All messages are asked for anyway.
    pub(crate) fn clear(&mut self) {
        self.buckets.clear();
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * MS)
    }

    #[test]
    fn a_message_is_due_never_early_and_at_most_one_tick_late() {
        for (delay, tick) in [(60_000, 256), (10_000, 256), (1000, 63), (100, 7), (10, 1)] {
            for start in [0, 1, 77, 1000, 123_457] {
                let mut nacks = Nacks::new(Duration::from_millis(delay));
                nacks.add((1, 1), -1, at(start));
                let due = nacks.next().unwrap();
                assert!(due >= at(start + delay), "{delay} from {start}");
                assert!(due <= at(start + delay + tick), "{delay} from {start}");
                assert!(nacks.take_due(Mono::from_nanos(due.as_nanos() - 1)).is_empty());
                assert_eq!(nacks.take_due(due), BTreeSet::from([((1, 1), -1)]));
                assert!(nacks.is_empty() && nacks.next().is_none());
            }
        }
    }

    #[test]
    fn messages_of_one_time_share_a_bucket() {
        let mut nacks = Nacks::new(Duration::from_secs(60));
        nacks.add((1, 1), 0, at(1));
        nacks.add((1, 1), 3, at(2));
        nacks.add((1, 2), -1, at(3));
        let due = nacks.next().unwrap();
        assert_eq!(nacks.take_due(due), BTreeSet::from([((1, 1), 0), ((1, 1), 3), ((1, 2), -1)]));
    }

    #[test]
    fn an_acknowledgement_takes_its_message_out_and_no_other() {
        let mut nacks = Nacks::new(Duration::ZERO);
        nacks.add((1, 1), 0, at(5));
        nacks.add((1, 1), 1, at(5));
        nacks.add((1, 3), -1, at(5));
        nacks.remove((1, 1), 0);
        nacks.remove((7, 7), 0);
        assert_eq!(nacks.take_due(at(5)), BTreeSet::from([((1, 1), 1), ((1, 3), -1)]));
        nacks.add((1, 1), 1, at(6));
        nacks.add((1, 3), -1, at(6));
        nacks.remove_through((1, 2), -1);
        assert_eq!(nacks.take_due(at(6)), BTreeSet::from([((1, 3), -1)]));
    }

    #[test]
    fn a_second_one_does_not_put_it_off() {
        let mut nacks = Nacks::new(Duration::from_secs(1));
        nacks.add((1, 1), -1, at(0));
        let due = nacks.next();
        nacks.add((1, 1), -1, at(500));
        assert_eq!(nacks.next(), due);
    }
}
