//! Time as the broker sees it: an argument. The types are the core's; the table of named deadlines is the broker's own.

use std::collections::{BTreeMap, BTreeSet};

pub use geminga_core::{Mono, Now};

use crate::LinkId;
use crate::store::TopicKey;

/// Every deadline the broker can have, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A link has been silent for the keep-alive interval: ping it, or close it if it has been pinged already.
    KeepAlive(LinkId),
    /// The owner of a wanted producer name or exclusive subscription did not answer a liveness PING.
    Liveness(LinkId),
    /// A fault held a command back; handle it now.
    Deferred(u64),
    /// A fault held receipts back; write those that are due.
    Receipts(LinkId),
    /// The first delayed message of a subscription is due.
    Delayed(TopicKey, u32),
    /// A Failover subscription's new active consumer may start to read.
    Takeover(TopicKey, u32),
}

/// Named deadlines, each set at most once: setting again moves it. Equal times fire in the order of the names.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Mono, Timer)>,
    by_name: BTreeMap<Timer, Mono>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Mono) {
        if let Some(old) = self.by_name.insert(timer, at) {
            self.by_time.remove(&(old, timer));
        }
        self.by_time.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.by_name.remove(&timer) {
            self.by_time.remove(&(at, timer));
        }
    }

    pub(crate) fn next(&self) -> Option<Mono> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<Timer> {
        let (at, timer) = self.by_time.first().copied()?;
        if at > now {
            return None;
        }
        self.cancel(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_set_again_fires_once_at_the_later_setting() {
        let mut timers = Timers::default();
        let at = Mono::from_nanos;
        timers.set(Timer::Deferred(1), at(5));
        timers.set(Timer::Deferred(1), at(9));
        timers.set(Timer::Deferred(2), at(7));
        assert_eq!(timers.next(), Some(at(7)));
        assert_eq!(timers.pop_due(at(8)), Some(Timer::Deferred(2)));
        assert_eq!(timers.pop_due(at(8)), None);
        assert_eq!(timers.pop_due(at(9)), Some(Timer::Deferred(1)));
        assert_eq!(timers.next(), None);
    }
}
