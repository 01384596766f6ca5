//! The two clocks that core is told of. Decides how they are read: one reading of the monotonic clock a command.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use geminga_core::{Mono, Now};

/// Both clocks, the wall clock as an offset to the monotonic one.
///
/// The driver sets the offset anew at each of its wake-ups, so that a command reads a single clock.
pub(crate) struct Clock {
    origin: Instant,
    /// Nanoseconds from 1970-01-01 UTC to `origin`.
    unix_at_origin: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let mut clock = Clock { origin: Instant::now(), unix_at_origin: 0 };
        clock.resync();
        clock
    }

    pub(crate) fn now(&self) -> Now {
        let nanos = self.elapsed();
        Now { mono: Mono::from_nanos(nanos), unix_ms: self.unix_at_origin.saturating_add(nanos) / 1_000_000 }
    }

    /// Reads the wall clock too: it may have been set.
    pub(crate) fn resync(&mut self) -> Now {
        let nanos = self.elapsed();
        // A wall clock before 1970 has no publish time; zero is as good as any.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        self.unix_at_origin = unix.saturating_sub(nanos);
        Now { mono: Mono::from_nanos(nanos), unix_ms: unix / 1_000_000 }
    }

    /// Nanoseconds since the clock was made; 64 bits of them are 584 years.
    fn elapsed(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// The moment so much from now, for tokio's timers. They may not reach as far as a `Duration` does: thirty years are
/// for ever too.
pub(crate) fn in_time(wait: Duration) -> tokio::time::Instant {
    const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);
    tokio::time::Instant::now() + wait.min(FOR_EVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_a_moment_too() {
        assert!(in_time(Duration::MAX) > in_time(Duration::from_secs(86_400)));
    }

    #[test]
    fn the_wall_clock_is_right_and_the_monotonic_one_never_goes_back() {
        let mut clock = Clock::new();
        let (a, b) = (clock.now(), clock.now());
        assert!(a.mono <= b.mono);
        let c = clock.resync();
        assert!(b.mono <= c.mono);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        assert!(unix.abs_diff(c.unix_ms) < 60_000);
    }
}
