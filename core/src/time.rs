//! Time as the core sees it: an argument. Decides how deadlines are kept; refuses to know a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::time::Duration;

use crate::hub::Owner;
use crate::io::{ConnId, ConsumerId, HandleId, OpId};

/// A point on a monotonic clock of the adapter's choosing.
///
/// Shape: never goes back; zero is any moment. Units: nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The point `nanos` nanoseconds after the clock's zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Mono(nanos)
    }

    /// Nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here; zero when `earlier` is later.
    pub const fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, after: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Both clocks at one moment: deadlines need the first, `publish_time` the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock.
    pub mono: Mono,
    /// Milliseconds since 1970-01-01 UTC.
    pub unix_ms: u64,
}

/// Every deadline of the machine, each with its why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// Link and handshake must be done: a peer that accepts and stays silent is no broker.
    Connecting(ConnId),
    /// Time to look at a connection's silence.
    KeepAlive(ConnId),
    /// A request must be answered.
    Request(ConnId, u64),
    /// A lookup must have ended, over all its redirects.
    Lookup(u64),
    /// A part of a producer or a consumer tries again to reach its broker.
    Retry(Owner),
    /// The creation of a part must have ended, where creations are bounded.
    Opening(Owner),
    /// A client-level operation must have ended.
    Operation(OpId),
    /// The partition count is asked again.
    Partitions(HandleId),
    /// The first message of a batch has waited long enough for company.
    BatchDelay(u64),
    /// The oldest send without receipt fails.
    SendTimeout(u64),
    /// Gathered acknowledgements are sent.
    AckGroup(u64),
    /// Negatively acknowledged messages are asked for again.
    NegativeAck(u64),
    /// A close waits no longer for the dead letters under way.
    DeadLetters(ConsumerId),
    /// A close that reconnects to tell its acknowledgements must have told them.
    Closing(u64),
}

/// Named deadlines, each set at most once: setting again moves it.
///
/// Shape: ordered by time, then by name, so that equal times fire in a reproducible order.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    by_time: BTreeSet<(Mono, K)>,
    by_key: BTreeMap<K, Mono>,
}

impl<K: Ord + Copy> Timers<K> {
    pub(crate) fn new() -> Self {
        Timers { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }

    pub(crate) fn set(&mut self, key: K, at: Mono) {
        if let Some(old) = self.by_key.insert(key, at) {
            if old == at {
                return;
            }
            self.by_time.remove(&(old, key));
        }
        self.by_time.insert((at, key));
    }

    /// Sets `key` unless it is set for an earlier or equal time already.
    pub(crate) fn set_earlier(&mut self, key: K, at: Mono) {
        if self.by_key.get(&key).is_none_or(|old| at < *old) {
            self.set(key, at);
        }
    }

    pub(crate) fn cancel(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    pub(crate) fn is_set(&self, key: K) -> bool {
        self.by_key.contains_key(&key)
    }

    pub(crate) fn next(&self) -> Option<(Mono, K)> {
        self.by_time.first().copied()
    }

    /// Takes the earliest timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<K> {
        let (at, key) = self.next()?;
        if at > now {
            return None;
        }
        self.cancel(key);
        Some(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_set_twice_fires_once_at_the_later_setting() {
        let mut timers = Timers::new();
        timers.set('a', Mono(5));
        timers.set('a', Mono(9));
        timers.set('b', Mono(7));
        assert_eq!(timers.next(), Some((Mono(7), 'b')));
        assert_eq!(timers.pop_due(Mono(8)), Some('b'));
        assert_eq!(timers.pop_due(Mono(8)), None);
        assert_eq!(timers.pop_due(Mono(9)), Some('a'));
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn set_earlier_never_moves_a_timer_back() {
        let mut timers = Timers::new();
        timers.set_earlier('a', Mono(5));
        timers.set_earlier('a', Mono(9));
        assert_eq!(timers.next(), Some((Mono(5), 'a')));
        timers.set_earlier('a', Mono(2));
        assert_eq!(timers.next(), Some((Mono(2), 'a')));
    }
}
