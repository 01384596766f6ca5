use std::ops::Add;
use std::time::Duration;

/// A point on a monotonic clock of the adapter's choosing, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The point `nanos` nanoseconds after the clock's zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Mono(nanos)
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

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock.
    pub mono: Mono,
    /// Milliseconds since 1970-01-01 UTC.
    pub unix_ms: u64,
}
