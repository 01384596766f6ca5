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
    /// A batch of `batch_size` messages, none of them acknowledged.
    pub fn full(batch_size: u32) -> Self {
        let mut words = vec![-1; batch_size as usize / 64];
        if !batch_size.is_multiple_of(64) {
            words.push((1 << (batch_size % 64)) - 1);
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
