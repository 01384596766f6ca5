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
                // Keys grow from the front to the back.
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

/// Tasks served strictly in the order of their coming: the first keeps its place while it is woken, until it leaves.
#[derive(Default)]
pub(crate) struct Line {
    next: u64,
    /// Without a waker: woken, and not back yet.
    waiting: VecDeque<(u64, Option<Waker>)>,
}

impl Line {
    /// Whether nobody is before the one at `place`; without a place, whether nobody waits.
    #[inline]
    pub(crate) fn has_turn(&self, place: Option<u64>) -> bool {
        match self.waiting.front() {
            None => true,
            Some((first, _)) => place.is_some_and(|place| place <= *first),
        }
    }

    /// Waits, or goes on waiting, at `place`.
    pub(crate) fn wait(&mut self, place: &mut Option<u64>, waker: &Waker) {
        let place = *place.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        // Places grow from the front to the back.
        let at = self.waiting.partition_point(|(p, _)| *p < place);
        match self.waiting.get_mut(at).filter(|(p, _)| *p == place) {
            Some((_, Some(old))) => old.clone_from(waker),
            Some((_, woken)) => *woken = Some(waker.clone()),
            None => self.waiting.insert(at, (place, Some(waker.clone()))),
        }
    }

    /// Gives up a place. Returns whom to wake: who comes first now, if it was the first that left.
    pub(crate) fn leave(&mut self, place: u64) -> Option<Waker> {
        let was_first = self.has_turn(Some(place));
        self.waiting.retain(|(p, _)| *p != place);
        if was_first { self.first() } else { None }
    }

    /// Whom to wake when there is something for the first.
    pub(crate) fn first(&mut self) -> Option<Waker> {
        self.waiting.front_mut()?.1.take()
    }

    /// Ends the line: the wakers of all in it, whose turn it is now all at once.
    pub(crate) fn end(&mut self) -> impl Iterator<Item = Waker> {
        self.waiting.drain(..).filter_map(|(_, waker)| waker)
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
    fn in_a_line_the_first_keeps_its_turn_while_it_is_woken_and_newcomers_wait_behind() {
        let (mut line, waker) = (Line::default(), Waker::noop());
        assert!(line.has_turn(None), "nobody waits");
        let (mut a, mut b, mut c) = (None, None, None);
        line.wait(&mut a, waker);
        line.wait(&mut b, waker);
        assert!(line.first().is_some(), "a is woken");
        assert!(line.first().is_none(), "once");
        assert!(line.has_turn(a) && !line.has_turn(b) && !line.has_turn(None), "it is still a's turn");
        line.wait(&mut c, waker);
        line.wait(&mut a, waker);
        assert!(line.leave(c.unwrap()).is_none(), "the first is not concerned");
        assert!(line.leave(a.unwrap()).is_some(), "b is next");
        assert!(line.has_turn(b) && !line.has_turn(None));
        assert_eq!(line.end().count(), 0, "b is awake");
        assert!(line.has_turn(None));
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
