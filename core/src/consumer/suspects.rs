//! Entries that arrived with a wrong checksum: whether to ask for one again, or to believe that it is stored so.
//!
//! A leaf: counts, and knows nothing else.

use std::collections::VecDeque;

use super::EntryId;

/// Arrivals of one entry with a wrong checksum before it counts as damaged for every reader.
const PROOF: u32 = 3;
/// Entries remembered; an older one starts again from one.
const REMEMBERED: usize = 16;

/// How often the last few suspicious entries arrived.
#[derive(Debug, Default)]
pub(crate) struct Suspects(VecDeque<(EntryId, u32)>);

impl Suspects {
    /// The entry arrived with a wrong checksum. Whether it should be asked for again: its bytes may be sound where they
    /// are stored, and what is not proven damaged must not be acknowledged.
    pub(crate) fn may_be_sound(&mut self, entry: EntryId) -> bool {
        if let Some((_, times)) = self.0.iter_mut().find(|(e, _)| *e == entry) {
            *times += 1;
            let proven = *times >= PROOF;
            if proven {
                self.0.retain(|(e, _)| *e != entry);
            }
            return !proven;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((entry, 1));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_wrong_checksum_is_proof_and_the_count_starts_again() {
        let mut suspects = Suspects::default();
        for _ in 0..2 {
            assert!(suspects.may_be_sound((1, 1)));
            assert!(suspects.may_be_sound((1, 1)));
            assert!(!suspects.may_be_sound((1, 1)));
        }
    }

    #[test]
    fn only_a_few_are_remembered() {
        let mut suspects = Suspects::default();
        (0..100).for_each(|n| assert!(suspects.may_be_sound((1, n))));
        assert_eq!(suspects.0.len(), REMEMBERED);
    }
}
