//! Growing, jittered, capped delays: values in, values out.

use std::time::Duration;

use crate::rng::Rng;

/// The delay before each further try: doubles from `initial` to `max`, less up to 10 % drawn at random so that many
/// clients of one broker do not come back together.
///
/// Source: `Backoff` in the Java client.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    initial: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(initial: Duration, max: Duration) -> Self {
        Backoff { initial, max, next: initial }
    }

    pub(crate) fn next(&mut self, rng: &mut Rng) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        let tenth = u64::try_from(delay.as_nanos() / 10).unwrap_or(u64::MAX);
        (delay - Duration::from_nanos(rng.below(tenth))).max(self.initial.min(delay) * 9 / 10)
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.initial;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_the_cap_within_their_jitter_and_start_over() {
        let mut rng = Rng::new([3; 32]);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for expected in [100, 200, 400, 800, 1000, 1000] {
            let delay = backoff.next(&mut rng).as_micros() as u64;
            assert!((expected * 900..=expected * 1000).contains(&delay), "{delay} for {expected}");
        }
        backoff.reset();
        assert!(backoff.next(&mut rng) <= Duration::from_millis(100));
    }
}
