//! A table whose keys cannot be confused: a key is a slot and a generation, so a stale key finds nothing.

/// A key into a `Slots` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    index: u32,
    generation: u32,
}

impl Slot {
    /// The key as one number, unique in its table for ever; small while few objects were replaced.
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key behind a number that [`as_u64`](Self::as_u64) gave. Any number is accepted; most find nothing.
    pub const fn from_u64(number: u64) -> Self {
        Slot { index: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Values named by [`Slot`]s, iterated in slot order.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Slots { entries: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Slot) -> T) -> Slot {
        self.len += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        let slot = Slot { index, generation: entry.0 };
        entry.1 = Some(make(slot));
        slot
    }

    pub(crate) fn insert(&mut self, value: T) -> Slot {
        self.insert_with(|_| value)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.entries.get(slot.index as usize).filter(|e| e.0 == slot.generation).and_then(|e| e.1.as_ref())
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.entries
            .get_mut(slot.index as usize)
            .filter(|e| e.0 == slot.generation)
            .and_then(|e| e.1.as_mut())
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let entry = self.entries.get_mut(slot.index as usize).filter(|e| e.0 == slot.generation)?;
        let value = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(slot.index);
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, (generation, value))| {
            value.as_ref().map(|v| (Slot { index: index as u32, generation: *generation }, v))
        })
    }

    /// The keys in use, collected so that the table can change while they are visited.
    pub(crate) fn keys(&self) -> Vec<Slot> {
        self.iter().map(|(slot, _)| slot).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slots = Slots::new();
        let a = slots.insert("a");
        assert_eq!(slots.remove(a), Some("a"));
        let b = slots.insert("b");
        assert_eq!(slots.get(a), None);
        assert_eq!(slots.remove(a), None);
        assert_eq!(slots.get(b), Some(&"b"));
        assert_eq!(Slot::from_u64(b.as_u64()), b);
        assert_eq!(slots.len(), 1);
    }
}
