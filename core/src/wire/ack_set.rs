//! Acknowledge sets: which messages of a batch are still to be acknowledged.
//!
//! A leaf: knows bits and words, not entries or consumers.

/// A bit per message of a batch; 1 means *not* acknowledged.
///
/// Shape: words of 64 bits, message 0 in the lowest bit of the first word; trailing zero words are dropped, so an empty
/// set means that the whole batch is acknowledged.
/// Source: `MessageIdData.ack_set`; `BitSet.toLongArray` in Java.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckSet {
    words: Vec<i64>,
}

impl AckSet {
    /// A batch of `batch_size` messages, none of them acknowledged. Allocates a bit for each, so the size has to be
    /// that of a batch which was read, not one that a peer announces.
    pub fn full(batch_size: u32) -> Self {
        let mut words = vec![-1; batch_size as usize / 64];
        if !batch_size.is_multiple_of(64) {
            words.push(!(-1 << (batch_size % 64)));
        }
        Self { words }
    }

    /// The set that these words are; trailing zero words may be there or not.
    pub fn from_words(words: &[i64]) -> Self {
        let mut set = Self { words: words.to_vec() };
        set.trim();
        set
    }

    /// The words for the wire.
    pub fn words(&self) -> &[i64] {
        &self.words
    }

    /// The words for the wire, without copying them.
    pub fn into_words(self) -> Vec<i64> {
        self.words
    }

    /// Whether message `index` is not acknowledged; false past the end.
    pub fn contains(&self, index: u32) -> bool {
        self.words.get(index as usize / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Whether every message is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many messages are not acknowledged.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Acknowledges message `index`; returns whether it wasn't before.
    pub fn clear(&mut self, index: u32) -> bool {
        let was = self.contains(index);
        if was {
            self.words[index as usize / 64] &= !(1 << (index % 64));
            self.trim();
        }
        was
    }

    /// Acknowledges messages `0..=index`.
    pub fn clear_through(&mut self, index: u32) {
        let word = index as usize / 64;
        let whole = word.min(self.words.len());
        self.words[..whole].fill(0);
        if let Some(last) = self.words.get_mut(word) {
            // Bits 0..=index; for 63 that is all of them.
            *last &= !(u64::MAX >> (63 - index % 64)) as i64;
        }
        self.trim();
    }

    /// Acknowledges what either set has acknowledged.
    pub fn merge(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn indexes_past_the_end_are_acknowledged_already() {
        let mut set = AckSet::full(3);
        assert!(!set.clear(3) && !set.clear(u32::MAX));
        assert_eq!(set.len(), 3);
        set.clear_through(u32::MAX);
        assert!(set.is_empty());
        assert!(AckSet::full(0).is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Clear(u32),
        ClearThrough(u32),
        Merge(Vec<u32>),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..200u32).prop_map(Step::Clear),
            (0..200u32).prop_map(Step::ClearThrough),
            prop::collection::vec(0..200u32, 0..50).prop_map(Step::Merge),
        ]
    }

    proptest! {
        #[test]
        fn a_set_does_what_a_list_of_booleans_does(
            size in 0..150u32,
            steps in prop::collection::vec(steps(), 0..20),
        ) {
            let mut set = AckSet::full(size);
            let mut model = vec![true; size as usize];
            for step in steps {
                match step {
                    Step::Clear(i) => {
                        let was = model.get_mut(i as usize).is_some_and(std::mem::take);
                        prop_assert_eq!(set.clear(i), was);
                    }
                    Step::ClearThrough(i) => {
                        set.clear_through(i);
                        model.iter_mut().take(i as usize + 1).for_each(|bit| *bit = false);
                    }
                    Step::Merge(cleared) => {
                        let mut other = AckSet::full(size);
                        for i in cleared {
                            other.clear(i);
                            if let Some(bit) = model.get_mut(i as usize) {
                                *bit = false;
                            }
                        }
                        set.merge(&other);
                    }
                }
                let bits: Vec<bool> = (0..size).map(|i| set.contains(i)).collect();
                prop_assert_eq!(&bits, &model);
                prop_assert_eq!(set.len(), model.iter().filter(|bit| **bit).count());
                prop_assert_eq!(set.is_empty(), !model.contains(&true));
                prop_assert!(set.words().last() != Some(&0));
                prop_assert_eq!(&AckSet::from_words(set.words()), &set);
            }
        }
    }
}
