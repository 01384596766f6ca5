//! Proof of life: decides when silence becomes a PING and when a PING becomes the end. Knows no connection.

use std::time::Duration;

use crate::time::Mono;

/// What the silence of a connection calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Look again at this time.
    Wait(Mono),
    /// Send a PING now, and look again at this time.
    Ping(Mono),
    /// The peer is dead.
    Dead,
}

/// The clock of one connection's silence.
///
/// Only what the peer says because of us counts as life: PONG, answers, receipts, messages. Its own PINGs do not, since a
/// peer whose request handling hangs still sends them.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    idle: Duration,
    busy: Duration,
    ping_timeout: Duration,
    last_life: Mono,
    busy_since: Option<Mono>,
    pinged: Option<Mono>,
    /// When the next look was planned, to tell a silent peer from a process that slept.
    due: Mono,
}

/// A look this much later than planned says that this process was asleep, so the peer gets one more chance.
const OVERSLEPT: Duration = Duration::from_secs(1);

impl KeepAlive {
    pub(crate) fn new(idle: Duration, busy: Duration, ping_timeout: Duration, now: Mono) -> Self {
        KeepAlive {
            idle,
            // Whoever waits for an answer is never more patient than one who does not.
            busy: busy.min(idle),
            ping_timeout,
            last_life: now,
            busy_since: None,
            pinged: None,
            due: now + idle,
        }
    }

    /// The peer reacted to us.
    pub(crate) fn life(&mut self, now: Mono) {
        self.last_life = now;
        self.pinged = None;
    }

    /// Something waits for the peer now. Returns when to look, if that is news.
    pub(crate) fn busy(&mut self, now: Mono) -> Option<Mono> {
        if self.busy_since.is_some() {
            return None;
        }
        self.busy_since = Some(now);
        let at = match self.pinged {
            Some(at) => at + self.ping_timeout,
            None => now + self.busy,
        };
        self.due = self.due.min(at);
        Some(at)
    }

    /// Nothing waits for the peer any more.
    pub(crate) fn idle(&mut self) {
        self.busy_since = None;
    }

    pub(crate) fn check(&mut self, now: Mono) -> Verdict {
        let (silence, patience, since) = match self.busy_since {
            Some(since) => (self.busy, self.ping_timeout, self.last_life.max(since)),
            None => (self.idle, self.idle, self.last_life),
        };
        let overslept = now.since(self.due) > OVERSLEPT;
        let verdict = match self.pinged {
            None if now >= since + silence => Verdict::Ping(now + patience),
            None => Verdict::Wait(since + silence),
            Some(at) if now < at + patience => Verdict::Wait(at + patience),
            Some(_) if overslept => Verdict::Ping(now + patience),
            Some(_) => Verdict::Dead,
        };
        if let Verdict::Ping(_) = verdict {
            self.pinged = Some(now);
        }
        if let Verdict::Ping(next) | Verdict::Wait(next) = verdict {
            self.due = next;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    fn keep_alive() -> KeepAlive {
        KeepAlive::new(Duration::from_secs(30), Duration::from_secs(10), Duration::from_secs(5), at(0))
    }

    #[test]
    fn an_idle_connection_gets_a_ping_after_30_s_and_ends_after_60_s_of_silence() {
        let mut k = keep_alive();
        assert_eq!(k.check(at(29)), Verdict::Wait(at(30)));
        assert_eq!(k.check(at(30)), Verdict::Ping(at(60)));
        assert_eq!(k.check(at(60)), Verdict::Dead);
    }

    #[test]
    fn a_waiting_request_shortens_it_to_10_s_and_5_s() {
        let mut k = keep_alive();
        assert_eq!(k.busy(at(20)), Some(at(30)));
        assert_eq!(k.busy(at(21)), None);
        assert_eq!(k.check(at(30)), Verdict::Ping(at(35)));
        assert_eq!(k.check(at(35)), Verdict::Dead);
    }

    #[test]
    fn a_short_idle_interval_holds_for_a_busy_connection_too() {
        let seconds = Duration::from_secs;
        let mut k = KeepAlive::new(seconds(3), seconds(10), seconds(5), at(0));
        assert_eq!(k.busy(at(1)), Some(at(4)));
        assert_eq!(k.check(at(4)), Verdict::Ping(at(9)));
    }

    #[test]
    fn any_life_starts_over() {
        let mut k = keep_alive();
        assert_eq!(k.check(at(30)), Verdict::Ping(at(60)));
        k.life(at(31));
        assert_eq!(k.check(at(60)), Verdict::Wait(at(61)));
        assert_eq!(k.check(at(61)), Verdict::Ping(at(91)));
    }

    #[test]
    fn a_process_that_slept_asks_once_more_before_it_judges() {
        let mut k = keep_alive();
        assert_eq!(k.check(at(30)), Verdict::Ping(at(60)));
        assert_eq!(k.check(at(600)), Verdict::Ping(at(630)));
        assert_eq!(k.check(at(630)), Verdict::Dead);
    }
}
