//! Entries that are to be delivered before the subscription reads on: redeliveries, delayed ones that are due, and
//! those that Key_Shared had to pass over. Counts redeliveries. Knows offsets and slots only.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Offset to Key_Shared slot (`None` until somebody asks for it).
    waiting: BTreeMap<u64, Option<u16>>,
    /// How many waiting entries each known slot has.
    slots: BTreeMap<u16, u32>,
    /// Deliveries that were asked for again, by entry.
    counts: BTreeMap<u64, u32>,
    /// Due time in milliseconds since the epoch, and offset.
    delayed: BTreeSet<(u64, u64)>,
}

impl Replay {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn insert(&mut self, offset: u64, slot: Option<u16>) {
        if let Some(Some(old)) = self.waiting.insert(offset, slot) {
            self.uncount(old);
        }
        if let Some(slot) = slot {
            *self.slots.entry(slot).or_default() += 1;
        }
    }

    /// As [`insert`](Self::insert), and the entry's redelivery count rises.
    pub(crate) fn redeliver(&mut self, offset: u64, slot: Option<u16>) {
        *self.counts.entry(offset).or_default() += 1;
        self.insert(offset, slot);
    }

    pub(crate) fn remove(&mut self, offset: u64) {
        if let Some(Some(slot)) = self.waiting.remove(&offset) {
            self.uncount(slot);
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<u64> {
        let (offset, slot) = self.waiting.pop_first()?;
        if let Some(slot) = slot {
            self.uncount(slot);
        }
        Some(offset)
    }

    /// The first waiting entry at or after `offset`.
    pub(crate) fn next_from(&self, offset: u64) -> Option<(u64, Option<u16>)> {
        self.waiting.range(offset..).next().map(|(offset, slot)| (*offset, *slot))
    }

    /// Whether an earlier entry of this slot waits.
    pub(crate) fn has_slot(&self, slot: u16) -> bool {
        self.slots.contains_key(&slot)
    }

    pub(crate) fn count(&self, offset: u64) -> u32 {
        self.counts.get(&offset).copied().unwrap_or(0)
    }

    /// An entry was acknowledged: it is neither waiting nor counted any more.
    pub(crate) fn forget(&mut self, offset: u64) {
        self.counts.remove(&offset);
        self.remove(offset);
    }

    pub(crate) fn delay(&mut self, due_ms: u64, offset: u64) {
        self.delayed.insert((due_ms, offset));
    }

    /// When the first delayed entry is due, in milliseconds since the epoch.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.delayed.first().map(|(due, _)| *due)
    }

    /// Lets the delayed entries that are due wait for delivery; returns whether there were any.
    pub(crate) fn release_due(&mut self, now_ms: u64) -> bool {
        let mut any = false;
        while let Some((due, offset)) = self.delayed.first().copied()
            && due <= now_ms
        {
            self.delayed.pop_first();
            self.insert(offset, None);
            any = true;
        }
        any
    }

    pub(crate) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Replay::default();
    }

    fn uncount(&mut self, slot: u16) {
        if let Some(count) = self.slots.get_mut(&slot) {
            *count -= 1;
            if *count == 0 {
                self.slots.remove(&slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_in_order_and_slots_are_counted() {
        let mut replay = Replay::default();
        replay.redeliver(5, Some(1));
        replay.redeliver(3, Some(1));
        replay.insert(5, Some(1));
        assert_eq!((replay.count(5), replay.count(3), replay.count(4)), (1, 1, 0));
        assert_eq!(replay.pop_first(), Some(3));
        assert!(replay.has_slot(1));
        replay.forget(5);
        assert!(!replay.has_slot(1));
        assert_eq!((replay.pop_first(), replay.count(5)), (None, 0));
    }

    #[test]
    fn delayed_entries_wait_until_they_are_due() {
        let mut replay = Replay::default();
        replay.delay(20, 1);
        replay.delay(10, 2);
        assert!(!replay.release_due(9));
        assert_eq!(replay.next_due(), Some(10));
        assert!(replay.release_due(10));
        assert_eq!((replay.pop_first(), replay.pop_first()), (Some(2), None));
    }
}
