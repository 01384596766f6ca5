//! Tables of those who wait. Decides who is woken and in which order; knows nothing of what they wait for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::task::Waker;

use geminga_core::Mono;

/// A table by core's ids, which are small numbers of our own making: no need of a keyed hash.
pub(crate) type IdMap<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// Spreads a number with one multiplication.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        // 2^64 / golden ratio; the fold brings the well mixed upper half down to where tables look.
        let mixed = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Tasks in the order of their coming, each woken by itself.
#[derive(Default)]
pub(crate) struct Queue {
    next: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl Queue {
    /// Waits, or goes on waiting, under `key`. Whoever was woken in vain has the old place again.
    pub(crate) fn wait(&mut self, key: &mut Option<u64>, waker: &Waker) {
        match *key {
            Some(key) => match self.waiting.iter_mut().find(|(k, _)| *k == key) {
                Some((_, old)) => old.clone_from(waker),
                // Keys grow, so those who were woken together are in the order of their coming again.
                None => {
                    let at = self.waiting.partition_point(|(k, _)| *k < key);
                    self.waiting.insert(at, (key, waker.clone()));
                }
            },
            None => {
                self.next += 1;
                *key = Some(self.next);
                self.waiting.push_back((self.next, waker.clone()));
            }
        }
    }

    /// Stops waiting. True when the task had been woken already: what it was woken for is somebody else's now.
    pub(crate) fn leave(&mut self, key: u64) -> bool {
        match self.waiting.iter().position(|(k, _)| *k == key) {
            Some(at) => self.waiting.remove(at).is_none(),
            None => true,
        }
    }

    /// The waker of the first in line, who is in line no longer.
    pub(crate) fn first(&mut self) -> Option<Waker> {
        self.waiting.pop_front().map(|(_, waker)| waker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Every waker, first come first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Waker> {
        self.waiting.drain(..).map(|(_, waker)| waker)
    }
}

/// Adds `waker` unless the same task waits already. For lists that are short.
pub(crate) fn wait_in(list: &mut Vec<Waker>, waker: &Waker) {
    if !list.iter().any(|w| w.will_wake(waker)) {
        list.push(waker.clone());
    }
}

/// Tasks that wait for a moment, such as the end of `receive_timeout`.
#[derive(Default)]
pub(crate) struct Alarms {
    next: u64,
    set: BTreeMap<(Mono, u64), Waker>,
}

/// One entry of [`Alarms`].
pub(crate) type AlarmKey = (Mono, u64);

impl Alarms {
    /// Wakes the task at `at`, or renews its waker.
    pub(crate) fn set(&mut self, key: &mut Option<AlarmKey>, at: Mono, waker: &Waker) {
        let key = *key.get_or_insert_with(|| {
            self.next += 1;
            (at, self.next)
        });
        match self.set.get_mut(&key) {
            Some(old) => old.clone_from(waker),
            None => {
                self.set.insert(key, waker.clone());
            }
        }
    }

    pub(crate) fn cancel(&mut self, key: AlarmKey) {
        self.set.remove(&key);
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.set.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the waker of an alarm that is due.
    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<Waker> {
        let entry = self.set.first_entry().filter(|e| e.key().0 <= now)?;
        Some(entry.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_woken_in_order_and_one_woken_in_vain_comes_first() {
        let (mut queue, waker) = (Queue::default(), Waker::noop());
        let (mut a, mut b, mut c) = (None, None, None);
        queue.wait(&mut a, waker);
        queue.wait(&mut b, waker);
        queue.wait(&mut a, waker);
        assert!(queue.first().is_some(), "a");
        queue.wait(&mut c, waker);
        queue.wait(&mut a, waker);
        let order: Vec<u64> = queue.waiting.iter().map(|(k, _)| *k).collect();
        assert_eq!(order, [a.unwrap(), b.unwrap(), c.unwrap()]);
        assert!(!queue.leave(b.unwrap()));
        queue.first();
        assert!(queue.leave(a.unwrap()), "it was woken");
        assert_eq!(queue.drain().count(), 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn those_who_were_woken_together_in_vain_keep_their_order() {
        let (mut queue, waker) = (Queue::default(), Waker::noop());
        let mut keys = [None; 4];
        keys.iter_mut().for_each(|key| queue.wait(key, waker));
        assert_eq!(queue.drain().count(), 4);
        keys[1..].iter_mut().for_each(|key| queue.wait(key, waker));
        let order: Vec<_> = queue.waiting.iter().map(|(k, _)| Some(*k)).collect();
        assert_eq!(order, keys[1..]);
    }

    #[test]
    fn an_alarm_is_due_at_its_time_and_not_after_it_was_cancelled() {
        let mut alarms = Alarms::default();
        let (mut a, mut b) = (None, None);
        alarms.set(&mut a, Mono::from_nanos(5), Waker::noop());
        alarms.set(&mut b, Mono::from_nanos(3), Waker::noop());
        alarms.set(&mut b, Mono::from_nanos(3), Waker::noop());
        assert_eq!(alarms.deadline(), Some(Mono::from_nanos(3)));
        assert!(alarms.pop_due(Mono::from_nanos(4)).is_some());
        assert!(alarms.pop_due(Mono::from_nanos(4)).is_none());
        alarms.cancel(a.unwrap());
        assert_eq!(alarms.deadline(), None);
    }
}
