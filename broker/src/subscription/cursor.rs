//! What one subscription has acknowledged: everything below the mark, single entries above it, and single messages of
//! batches. Counts in offsets of the topic's log; knows no consumers.

use std::collections::BTreeMap;

use geminga_core::wire::AckSet;

/// Acknowledged entries of one subscription.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// Every offset below is acknowledged.
    mark: u64,
    /// Acknowledged ranges above the mark: start to end (exclusive), never touching each other or the mark.
    ranges: BTreeMap<u64, u64>,
    /// Offsets in `ranges`.
    acked: u64,
    /// Batches of which some messages are acknowledged: what is still to be.
    partial: BTreeMap<u64, AckSet>,
}

impl Cursor {
    pub(crate) fn new(mark: u64) -> Self {
        Cursor { mark, ranges: BTreeMap::new(), acked: 0, partial: BTreeMap::new() }
    }

    /// The first offset that is not acknowledged.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn is_acked(&self, offset: u64) -> bool {
        offset < self.mark || self.ranges.range(..=offset).next_back().is_some_and(|(_, end)| offset < *end)
    }

    /// The first offset from `offset` on that is not acknowledged.
    pub(crate) fn next_unacked(&self, offset: u64) -> u64 {
        let offset = offset.max(self.mark);
        match self.ranges.range(..=offset).next_back() {
            Some((_, end)) if offset < *end => *end,
            _ => offset,
        }
    }

    /// Unacknowledged entries of a log that ends at `end`.
    pub(crate) fn backlog(&self, end: u64) -> u64 {
        end.saturating_sub(self.mark) - self.acked
    }

    /// Which messages of a batch are still unacknowledged; `None` when all are.
    pub(crate) fn remaining(&self, offset: u64) -> Option<&AckSet> {
        self.partial.get(&offset)
    }

    /// Acknowledges one entry; false when it was already.
    pub(crate) fn ack(&mut self, offset: u64) -> bool {
        if self.is_acked(offset) {
            return false;
        }
        self.partial.remove(&offset);
        let mut start = offset;
        let mut end = offset + 1;
        if let Some((before, before_end)) = self.ranges.range(..offset).next_back()
            && *before_end == offset
        {
            start = *before;
        }
        if let Some(after_end) = self.ranges.remove(&end) {
            end = after_end;
        }
        self.ranges.insert(start, end);
        self.acked += 1;
        self.absorb();
        true
    }

    /// Acknowledges everything below `end`.
    pub(crate) fn ack_below(&mut self, end: u64) {
        if end <= self.mark {
            return;
        }
        self.mark = end;
        self.partial = self.partial.split_off(&end);
        while let Some((start, range_end)) = self.ranges.pop_first() {
            if start >= end {
                self.ranges.insert(start, range_end);
                break;
            }
            self.acked -= range_end - start;
            self.mark = self.mark.max(range_end);
        }
        self.absorb();
    }

    /// Keeps only the messages in `remaining` unacknowledged; true when that was the last of them.
    pub(crate) fn ack_batch(&mut self, offset: u64, remaining: AckSet) -> bool {
        if self.is_acked(offset) {
            return false;
        }
        let mut remaining = remaining;
        if let Some(earlier) = self.partial.remove(&offset) {
            remaining.merge(&earlier);
        }
        if remaining.is_empty() {
            return self.ack(offset);
        }
        self.partial.insert(offset, remaining);
        false
    }

    /// Forgets everything and starts at `mark`.
    pub(crate) fn reset(&mut self, mark: u64) {
        *self = Cursor::new(mark);
    }

    /// Leaves only the messages in `remaining` of an entry unacknowledged, whatever was before: a seek into a batch.
    pub(crate) fn set_remaining(&mut self, offset: u64, remaining: AckSet) {
        if !remaining.is_empty() {
            self.partial.insert(offset, remaining);
        }
    }

    fn absorb(&mut self) {
        if let Some(end) = self.ranges.remove(&self.mark) {
            self.acked -= end - self.mark;
            self.mark = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_acks_in_any_order_move_the_mark_over_whole_runs() {
        let mut cursor = Cursor::new(0);
        for offset in [1, 3, 2, 5] {
            assert!(cursor.ack(offset));
        }
        assert_eq!((cursor.mark(), cursor.backlog(6)), (0, 2));
        assert_eq!(cursor.next_unacked(1), 4);
        assert!(!cursor.ack(2));
        assert!(cursor.ack(0));
        assert_eq!((cursor.mark(), cursor.backlog(6)), (4, 1));
        assert!(cursor.ack(4));
        assert_eq!((cursor.mark(), cursor.backlog(6)), (6, 0));
    }

    #[test]
    fn a_cumulative_ack_swallows_the_ranges_it_reaches() {
        let mut cursor = Cursor::new(0);
        for offset in [2, 3, 6, 8] {
            cursor.ack(offset);
        }
        cursor.ack_below(3);
        assert_eq!((cursor.mark(), cursor.backlog(9)), (4, 3));
        cursor.ack_below(6);
        assert_eq!((cursor.mark(), cursor.backlog(9)), (7, 1));
        cursor.ack_below(1);
        assert_eq!(cursor.mark(), 7);
    }

    #[test]
    fn an_entry_is_acknowledged_with_the_last_message_of_its_batch() {
        let mut cursor = Cursor::new(0);
        let without = |indexes: &[u32]| {
            let mut set = AckSet::full(3);
            for index in indexes {
                set.clear(*index);
            }
            set
        };
        assert!(!cursor.ack_batch(0, without(&[1])));
        assert!(!cursor.ack_batch(0, without(&[1])));
        assert!(!cursor.ack_batch(0, without(&[0])));
        assert_eq!(cursor.remaining(0), Some(&without(&[0, 1])));
        assert!(cursor.ack_batch(0, without(&[2])));
        assert_eq!((cursor.mark(), cursor.remaining(0)), (1, None));
    }
}
