//! Which Key_Shared consumer a slot belongs to: a consistent hash ring, or ranges that the consumers bring along.

use std::collections::BTreeMap;

use geminga_core::hash::{sticky_hash, sticky_slot};

/// Points that each consumer has on the ring.
const POINTS: u32 = 100;
/// The ring has the slots 1 to this.
const RING_SLOTS: u32 = 65535;

#[derive(Debug)]
pub(crate) enum Selector {
    /// AUTO_SPLIT.
    Ring {
        /// Point on the ring to the consumers there, in order of arrival. The first one has it.
        points: BTreeMap<u16, Vec<u64>>,
        /// Consumers by name; those of the same name differ by their place in the list.
        names: BTreeMap<String, Vec<Option<u64>>>,
    },
    /// STICKY: end of a range (inclusive) to its start and consumer.
    Ranges(BTreeMap<u16, (u16, u64)>),
}

impl Selector {
    pub(crate) fn ring() -> Self {
        Selector::Ring { points: BTreeMap::new(), names: BTreeMap::new() }
    }

    pub(crate) fn ranges() -> Self {
        Selector::Ranges(BTreeMap::new())
    }

    /// Gives a consumer its slots. Errors, of ranges only: none given, one the wrong way round, or one that is taken.
    pub(crate) fn add(&mut self, key: u64, name: &str, wanted: &[(u16, u16)]) -> Result<(), String> {
        match self {
            Selector::Ring { points, names } => {
                let same = names.entry(name.to_owned()).or_default();
                let place = same.iter().position(Option::is_none).unwrap_or(same.len());
                if place == same.len() {
                    same.push(None);
                }
                same[place] = Some(key);
                for index in 0..POINTS {
                    let point = ring_slot(format!("{name}\0{place}\0{index}").as_bytes());
                    points.entry(point).or_default().push(key);
                }
                Ok(())
            }
            Selector::Ranges(ranges) => {
                if wanted.is_empty() {
                    return Err("Ranges for KeyShared policy must not be empty.".to_owned());
                }
                let mut taken = ranges.clone();
                for (start, end) in wanted {
                    if start > end {
                        return Err(format!("Fixed hash range [{start}, {end}] is the wrong way round"));
                    }
                    if taken.range(start..).next().is_some_and(|(_, (other, _))| other <= end) {
                        return Err(format!("Range conflict with [{start}, {end}]"));
                    }
                    taken.insert(*end, (*start, key));
                }
                *ranges = taken;
                Ok(())
            }
        }
    }

    pub(crate) fn remove(&mut self, key: u64) {
        match self {
            Selector::Ring { points, names } => {
                points.retain(|_, keys| {
                    keys.retain(|k| *k != key);
                    !keys.is_empty()
                });
                names.retain(|_, same| {
                    same.iter_mut().filter(|k| **k == Some(key)).for_each(|k| *k = None);
                    same.iter().any(Option::is_some)
                });
            }
            Selector::Ranges(ranges) => ranges.retain(|_, (_, k)| *k != key),
        }
    }

    /// The consumer of a slot; `None` when nobody has it.
    pub(crate) fn select(&self, slot: u16) -> Option<u64> {
        match self {
            Selector::Ring { points, .. } => {
                let next = points.range(slot..).next().or_else(|| points.first_key_value());
                next.and_then(|(_, keys)| keys.first().copied())
            }
            Selector::Ranges(ranges) => {
                let (_, (start, key)) = ranges.range(slot..).next()?;
                (*start <= slot).then_some(*key)
            }
        }
    }

    /// The slot of a sticky key. Ranges have 65536 of them as documented, the ring has no slot 0.
    pub(crate) fn slot(&self, key: &[u8]) -> u16 {
        match self {
            Selector::Ring { .. } => ring_slot(key),
            Selector::Ranges(_) => sticky_slot(key) as u16,
        }
    }

    pub(crate) fn is_sticky(&self) -> bool {
        matches!(self, Selector::Ranges(_))
    }
}

fn ring_slot(key: &[u8]) -> u16 {
    (sticky_hash(key) % RING_SLOTS + 1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_on_the_ring_only_takes_slots_and_gives_them_back() {
        let mut ring = Selector::ring();
        assert_eq!(ring.select(1), None);
        ring.add(1, "a", &[]).unwrap();
        ring.add(2, "b", &[]).unwrap();
        let owners = |ring: &Selector| (1..=u16::MAX).map(|s| ring.select(s).unwrap()).collect::<Vec<_>>();
        let two = owners(&ring);
        ring.add(3, "c", &[]).unwrap();
        let three = owners(&ring);
        assert!(two.iter().zip(&three).all(|(old, new)| old == new || *new == 3));
        for key in 1..=3 {
            let share = three.iter().filter(|k| **k == key).count();
            assert!((10_000..35_000).contains(&share), "consumer {key} has {share} slots");
        }
        ring.remove(3);
        assert_eq!(owners(&ring), two);
    }

    #[test]
    fn keys_go_to_the_same_consumer_as_on_the_real_broker() {
        let mut ring = Selector::ring();
        ring.add(1, "a", &[]).unwrap();
        ring.add(2, "b", &[]).unwrap();
        let of_a: Vec<u32> =
            (0..30).filter(|i| ring.select(ring.slot(format!("key-{i}").as_bytes())) == Some(1)).collect();
        assert_eq!(of_a, [1, 5, 6, 7, 11, 12, 13, 14, 17, 18, 20, 21, 22, 24, 26]);
    }

    #[test]
    fn consumers_of_one_name_share_the_ring() {
        let mut ring = Selector::ring();
        for key in 1..=3 {
            ring.add(key, "same", &[]).unwrap();
        }
        ring.remove(1);
        ring.add(4, "same", &[]).unwrap();
        for key in 2..=4 {
            let share = (1..=u16::MAX).filter(|slot| ring.select(*slot) == Some(key)).count();
            assert!(share > 10_000, "consumer {key} has {share} slots");
        }
    }

    #[test]
    fn sticky_ranges_are_inclusive_and_must_not_overlap() {
        let mut ranges = Selector::ranges();
        assert!(ranges.add(1, "a", &[]).is_err());
        ranges.add(1, "a", &[(0, 9), (20, 29)]).unwrap();
        assert!(ranges.add(2, "b", &[(9, 12)]).is_err());
        assert!(ranges.add(2, "b", &[(15, 40)]).is_err());
        ranges.add(2, "b", &[(10, 19)]).unwrap();
        let slots = [0, 9, 10, 20, 29, 30].map(|slot| ranges.select(slot));
        assert_eq!(slots, [Some(1), Some(1), Some(2), Some(1), Some(1), None]);
        ranges.remove(1);
        assert_eq!(ranges.select(5), None);
    }
}
