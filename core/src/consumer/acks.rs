//! Acknowledgements that are not written yet, and which messages of each batch are still open.
//!
//! A leaf: decides what an acknowledgement means for its entry and what the next ACK says; knows no connection and no
//! timer. The rule above all: no message is acknowledged to the broker that the application did not acknowledge.

use std::collections::BTreeMap;

use super::EntryId;
use crate::wire::AckSet;

/// The acknowledgements of one partition.
///
/// Shape: an entry is told whole when its last open message is acknowledged; before that only with `index_level`, as a
/// set. Sets of batches are kept per entry, the one in use apart from the others, so that acknowledgements in order find
/// theirs without a search. What is gathered stays until [`take`](Self::take) and survives a reconnection.
/// Units: entries, in the order of acknowledgement. Errors: a batch whose size nobody knows.
/// Source: `PersistentAcknowledgmentsGroupingTracker` in the Java client.
#[derive(Debug)]
pub(crate) struct Acks {
    index_level: bool,
    /// The set used last.
    hot: Option<(EntryId, AckSet)>,
    /// Whether `hot` is in `partial` already.
    hot_is_partial: bool,
    /// The other batches that are partly acknowledged.
    open: BTreeMap<EntryId, AckSet>,
    /// Whole entries to tell.
    whole: Vec<EntryId>,
    /// Entries whose set is to be told; doubles are possible.
    partial: Vec<EntryId>,
    /// The highest cumulative acknowledgement: its entry, and the last index covered (`i32::MAX` for all).
    cumulative: Option<(EntryId, i32)>,
    cumulative_due: bool,
}

/// What the next ACK commands say. An empty set means the whole entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Goes first: everything up to here.
    pub(crate) cumulative: Option<(EntryId, Vec<i64>)>,
    pub(crate) individual: Vec<(EntryId, Vec<i64>)>,
}

/// The id is of a batch, and neither says how large it is nor is the batch known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownBatchSize;

impl Acks {
    pub(crate) fn new(index_level: bool) -> Self {
        Acks {
            index_level,
            hot: None,
            hot_is_partial: false,
            open: BTreeMap::new(),
            whole: Vec::new(),
            partial: Vec::new(),
            cumulative: None,
            cumulative_due: false,
        }
    }

    /// Acknowledgements that wait, all kinds together.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.whole.len() + self.partial.len() + usize::from(self.cumulative_due)
    }

    /// The entry is done.
    #[inline]
    pub(crate) fn whole(&mut self, entry: EntryId) {
        self.whole.push(entry);
    }

    /// Message `index` of a batch is done; `batch_size` is 0 when unknown.
    #[inline]
    pub(crate) fn member(
        &mut self,
        entry: EntryId,
        index: u32,
        batch_size: u32,
    ) -> Result<(), UnknownBatchSize> {
        let index_level = self.index_level;
        let set = self.set_of(entry, batch_size)?;
        if !set.clear(index) {
            return Ok(());
        }
        if set.is_empty() {
            self.whole.push(entry);
        } else if index_level && !std::mem::replace(&mut self.hot_is_partial, true) {
            self.partial.push(entry);
        }
        Ok(())
    }

    /// Message `index` of a batch will never reach the application: only the others count. When none is left, the entry
    /// is told if `tell` says so.
    pub(crate) fn skip(&mut self, entry: EntryId, index: u32, batch_size: u32, tell: bool) {
        if let Ok(set) = self.set_of(entry, batch_size)
            && set.clear(index)
            && set.is_empty()
            && tell
        {
            self.whole.push(entry);
        }
    }

    /// Everything up to here is done: a whole entry, or a batch up to `index` of `batch_size` (0 when unknown).
    #[inline]
    pub(crate) fn cumulative(&mut self, entry: EntryId, member: Option<(u32, u32)>) {
        let target = match member {
            None => (entry, i32::MAX),
            Some((index, batch_size)) => {
                let index_level = self.index_level;
                match self.set_of(entry, batch_size) {
                    // Of a batch of unknown size nothing can be said, but everything before it is done.
                    Err(UnknownBatchSize) => before(entry),
                    Ok(set) => {
                        set.clear_through(index);
                        match set.is_empty() {
                            true => (entry, i32::MAX),
                            false if index_level => (entry, index as i32),
                            false => before(entry),
                        }
                    }
                }
            }
        };
        if self.cumulative.is_some_and(|told| told >= target) {
            return;
        }
        self.cumulative = Some(target);
        self.cumulative_due = true;
        let covers = |e: &EntryId| (*e, i32::MAX) <= target;
        if self.open.first_key_value().is_some_and(|(e, _)| covers(e)) {
            self.open.retain(|e, _| !covers(e));
        }
        if self.hot.as_ref().is_some_and(|(hot, _)| *hot != entry && covers(hot)) {
            self.hot = None;
        }
    }

    /// An entry arrived again: what was known of it belonged to the delivery before. `set` says which messages of it are
    /// open, when those are not all.
    pub(crate) fn redelivered(&mut self, entry: EntryId, set: Option<AckSet>) {
        if self.hot.as_ref().is_some_and(|(hot, _)| *hot == entry) {
            self.hot = None;
            self.hot_is_partial = false;
        }
        self.open.remove(&entry);
        if let Some(set) = set {
            self.open.insert(entry, set);
        }
        // Without its set, what waits for a part of the entry would speak of the whole: it speaks of what is before it.
        if self.cumulative.is_some_and(|(e, index)| e == entry && index != i32::MAX) {
            self.cumulative = Some(before(entry));
        }
    }

    /// Takes everything that waits.
    pub(crate) fn take(&mut self) -> Due {
        let mut due = Due::default();
        let covered = if self.cumulative_due { self.cumulative } else { None };
        if let Some((entry, index)) = covered {
            let words = match index {
                i32::MAX => Vec::new(),
                // A set that became empty since then means the whole entry.
                _ => self.words(entry).unwrap_or_default(),
            };
            due.cumulative = Some((entry, words));
        }
        self.cumulative_due = false;
        let is_covered = |e: EntryId| covered.is_some_and(|c| (e, i32::MAX) <= c);
        due.individual.extend(self.whole.drain(..).filter(|e| !is_covered(*e)).map(|e| (e, Vec::new())));
        let mut partial = std::mem::take(&mut self.partial);
        partial.sort_unstable();
        partial.dedup();
        for entry in partial {
            // A set that is gone or empty was told whole, above.
            if let Some(words) = self.words(entry).filter(|w| !w.is_empty() && !is_covered(entry)) {
                due.individual.push((entry, words));
            }
        }
        self.hot_is_partial = false;
        due
    }

    /// The broker starts over and redelivers what is open, so what is told next may be told again.
    pub(crate) fn resubscribed(&mut self) {
        debug_assert_eq!(self.pending(), 0, "what waited is written before the broker redelivers");
        self.clear();
    }

    /// The position changed: acknowledgements of before must not leave any more.
    pub(crate) fn clear(&mut self) {
        *self = Acks::new(self.index_level);
    }

    fn words(&self, entry: EntryId) -> Option<Vec<i64>> {
        match &self.hot {
            Some((hot, set)) if *hot == entry => Some(set.words().to_vec()),
            _ => self.open.get(&entry).map(|set| set.words().to_vec()),
        }
    }

    #[inline]
    fn set_of(&mut self, entry: EntryId, batch_size: u32) -> Result<&mut AckSet, UnknownBatchSize> {
        if self.hot.as_ref().is_none_or(|(hot, _)| *hot != entry) {
            self.switch_to(entry, batch_size)?;
        }
        let (_, set) = self.hot.as_mut().expect("just made the entry the hot one");
        Ok(set)
    }

    fn switch_to(&mut self, entry: EntryId, batch_size: u32) -> Result<(), UnknownBatchSize> {
        let set = match self.open.remove(&entry) {
            Some(set) => set,
            None if batch_size > 0 => AckSet::full(batch_size),
            None => return Err(UnknownBatchSize),
        };
        if let Some((old, old_set)) = self.hot.replace((entry, set))
            && !old_set.is_empty()
        {
            self.open.insert(old, old_set);
        }
        self.hot_is_partial = false;
        Ok(())
    }
}

/// Everything before an entry.
fn before(entry: EntryId) -> (EntryId, i32) {
    ((entry.0, entry.1 - 1), i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const E: EntryId = (7, 3);

    fn individual(acks: &mut Acks) -> Vec<(EntryId, Vec<i64>)> {
        let due = acks.take();
        assert_eq!(due.cumulative, None);
        due.individual
    }

    #[test]
    fn a_batch_is_told_when_its_last_member_is_done_and_once() {
        for order in [vec![0, 1, 2, 3], vec![3, 2, 1, 0], vec![2, 0, 3, 1]] {
            let mut acks = Acks::new(false);
            for (i, index) in order.iter().enumerate() {
                assert!(individual(&mut acks).is_empty(), "{order:?} before {i}");
                acks.member(E, *index, 4).unwrap();
                acks.member(E, *index, 4).unwrap();
            }
            assert_eq!(individual(&mut acks), [(E, vec![])]);
            acks.member(E, 0, 4).unwrap();
            assert_eq!(acks.pending(), 0);
        }
    }

    #[test]
    fn with_index_level_each_flush_tells_the_set_and_the_last_one_the_entry() {
        let mut acks = Acks::new(true);
        acks.member(E, 1, 3).unwrap();
        acks.member((7, 4), 0, 2).unwrap();
        acks.member(E, 0, 3).unwrap();
        assert_eq!(individual(&mut acks), [(E, vec![0b100]), ((7, 4), vec![0b10])]);
        assert!(individual(&mut acks).is_empty());
        acks.member(E, 2, 3).unwrap();
        assert_eq!(individual(&mut acks), [(E, vec![])]);
    }

    #[test]
    fn a_cumulative_ack_within_a_batch_tells_the_entry_before_it_once() {
        let mut acks = Acks::new(false);
        acks.cumulative(E, Some((0, 3)));
        acks.cumulative(E, Some((1, 3)));
        assert_eq!(acks.take().cumulative, Some(((7, 2), vec![])));
        acks.cumulative(E, Some((1, 3)));
        assert_eq!(acks.pending(), 0);
        acks.cumulative(E, Some((2, 3)));
        assert_eq!(acks.take().cumulative, Some((E, vec![])));
    }

    #[test]
    fn a_cumulative_ack_that_closes_the_last_gap_tells_the_entry() {
        let mut acks = Acks::new(false);
        acks.member(E, 2, 3).unwrap();
        acks.cumulative(E, Some((1, 3)));
        assert_eq!(acks.take().cumulative, Some((E, vec![])));
    }

    #[test]
    fn a_cumulative_ack_with_index_level_tells_the_set() {
        let mut acks = Acks::new(true);
        acks.cumulative(E, Some((1, 4)));
        assert_eq!(acks.take().cumulative, Some((E, vec![0b1100])));
        acks.cumulative(E, Some((0, 4)));
        assert_eq!(acks.pending(), 0, "a lower one is old news");
    }

    #[test]
    fn a_cumulative_ack_that_waits_never_grows_to_the_batch_when_it_comes_again() {
        for set in [None, Some(AckSet::from_words(&[0b1110]))] {
            let mut acks = Acks::new(true);
            acks.cumulative(E, Some((1, 4)));
            acks.redelivered(E, set);
            assert_eq!(acks.take().cumulative, Some(((7, 2), vec![])));
            acks.cumulative(E, Some((1, 4)));
            assert_eq!(acks.take().cumulative, Some((E, vec![0b1100])), "the application says it again");
        }
    }

    #[test]
    fn a_cumulative_ack_swallows_what_it_covers() {
        let mut acks = Acks::new(true);
        acks.whole((7, 1));
        acks.whole((7, 9));
        acks.member((7, 2), 0, 2).unwrap();
        acks.member((7, 8), 0, 2).unwrap();
        acks.cumulative(E, None);
        acks.cumulative((6, 99), None);
        assert_eq!(
            acks.take(),
            Due { cumulative: Some((E, vec![])), individual: vec![((7, 9), vec![]), ((7, 8), vec![0b10])] }
        );
    }

    #[test]
    fn an_id_without_batch_size_acknowledges_nothing_beyond_what_is_known() {
        let mut acks = Acks::new(false);
        assert_eq!(acks.member(E, 1, 0), Err(UnknownBatchSize));
        acks.cumulative(E, Some((1, 0)));
        assert_eq!(acks.take().cumulative, Some(((7, 2), vec![])));
        acks.member(E, 0, 2).unwrap();
        acks.member(E, 1, 0).unwrap();
        assert_eq!(individual(&mut acks), [(E, vec![])]);
    }

    #[test]
    fn a_redelivery_starts_with_what_the_broker_says_is_open() {
        let mut acks = Acks::new(false);
        acks.member(E, 0, 3).unwrap();
        acks.redelivered(E, None);
        acks.member(E, 1, 3).unwrap();
        acks.member(E, 2, 3).unwrap();
        assert!(individual(&mut acks).is_empty(), "message 0 came again and is open");
        acks.redelivered(E, Some(AckSet::from_words(&[0b110])));
        acks.member(E, 2, 3).unwrap();
        acks.skip(E, 1, 3, true);
        assert_eq!(individual(&mut acks), [(E, vec![])]);
    }

    proptest! {
        /// Against a model that remembers each acknowledged message.
        #[test]
        fn an_entry_is_told_when_and_only_when_all_its_messages_are_acknowledged(
            steps in proptest::collection::vec((0i64..4, 0u32..5, 0u8..8), 1..120),
        ) {
            let mut acks = Acks::new(false);
            let mut done: BTreeSet<(i64, u32)> = BTreeSet::new();
            let mut told: BTreeSet<i64> = BTreeSet::new();
            for (entry, index, kind) in steps {
                match kind {
                    0 => {
                        acks.cumulative((0, entry), Some((index, 5)));
                        done.extend((0..entry).flat_map(|e| (0..5).map(move |i| (e, i))));
                        done.extend((0..=index).map(|i| (entry, i)));
                    }
                    1 => {
                        let due = acks.take();
                        if let Some(((_, upto), _)) = due.cumulative {
                            told.extend(0..=upto);
                        }
                        told.extend(due.individual.iter().map(|((_, e), _)| *e));
                    }
                    _ => {
                        acks.member((0, entry), index, 5).unwrap();
                        done.insert((entry, index));
                    }
                }
                let whole = |e: i64| (0..5).all(|i| done.contains(&(e, i)));
                prop_assert!(told.iter().all(|e| whole(*e)), "told {told:?} of {done:?}");
            }
            let due = acks.take();
            told.extend(due.cumulative.iter().flat_map(|((_, upto), _)| 0..=*upto));
            told.extend(due.individual.iter().map(|((_, e), _)| *e));
            let complete: BTreeSet<i64> = (0..4).filter(|e| (0..5).all(|i| done.contains(&(*e, i)))).collect();
            prop_assert_eq!(told, complete);
        }
    }
}
