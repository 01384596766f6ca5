//! Virtual time: it moves when the world says so, and never by itself.

use std::time::Duration;

use geminga_core::{Mono, Now};

/// Both clocks of a world, advancing together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Mono,
    origin_ms: u64,
    now: Mono,
}

impl Clock {
    /// A clock whose monotonic side starts at `origin` and whose calendar at `unix_ms`.
    pub(super) fn new(origin: Mono, unix_ms: u64) -> Self {
        Clock { origin, origin_ms: unix_ms, now: origin }
    }

    /// The time.
    pub(super) fn now(&self) -> Now {
        let elapsed = self.now.since(self.origin);
        Now { mono: self.now, unix_ms: self.origin_ms + elapsed.as_millis() as u64 }
    }

    /// Moves to `at`, unless it is later already.
    pub(super) fn jump(&mut self, at: Mono) {
        self.now = self.now.max(at);
    }

    /// The time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.now.since(self.origin)
    }
}
