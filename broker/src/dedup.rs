//! Deduplication on one topic: the highest sequence id that each producer name has stored.

use std::collections::BTreeMap;

/// Highest stored sequence id by producer name. Outlives producers, unloads and restarts.
#[derive(Debug, Default)]
pub(crate) struct Dedup {
    highest: BTreeMap<String, u64>,
}

impl Dedup {
    /// Whether an entry of these sequence ids was stored before.
    pub(crate) fn is_duplicate(&self, producer: &str, sequence_id: u64) -> bool {
        self.highest.get(producer).is_some_and(|highest| sequence_id <= *highest)
    }

    /// Remembers a stored entry by its last sequence id.
    pub(crate) fn record(&mut self, producer: &str, highest: u64) {
        match self.highest.get_mut(producer) {
            Some(known) => *known = highest.max(*known),
            None => {
                self.highest.insert(producer.to_owned(), highest);
            }
        }
    }

    /// What PRODUCER_SUCCESS tells: the last stored sequence id, −1 for none.
    pub(crate) fn last(&self, producer: &str) -> i64 {
        self.highest.get(producer).map_or(-1, |highest| *highest as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_up_to_the_highest_are_duplicates_per_name() {
        let mut dedup = Dedup::default();
        assert_eq!(dedup.last("a"), -1);
        assert!(!dedup.is_duplicate("a", 0));
        dedup.record("a", 9);
        assert!(dedup.is_duplicate("a", 9) && dedup.is_duplicate("a", 0));
        assert!(!dedup.is_duplicate("a", 10) && !dedup.is_duplicate("b", 5));
        assert_eq!(dedup.last("a"), 9);
    }
}
