//! Trying again: how often, how long, and with which pauses.
//!
//! Decides whether an error is followed by another try, and what to report when none follows. Refuses to know what is
//! tried: attaching, a lookup, the partition count.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::error::{Error, ErrorKind, Retry};
use crate::hub::Hub;
use crate::time::Mono;

/// How often and how long an undertaking is tried.
#[derive(Debug)]
pub(crate) struct Tries {
    /// It succeeded once: from then on it is tried for ever.
    pub(crate) succeeded: bool,
    /// The broker said that it takes as long as it takes, so nothing bounds it.
    pub(crate) unbounded: bool,
    pub(crate) since: Mono,
    /// Since when an address is being dialled that never connected.
    pub(crate) unreached_since: Option<Mono>,
    count: u32,
    pub(crate) backoff: Backoff,
    /// Why the tries failed so far, mere silence aside.
    pub(crate) cause: Option<Error>,
}

/// Less than this before the end there is no use in another try.
const LAST_MOMENT: Duration = Duration::from_millis(1);

impl Tries {
    pub(crate) fn new(hub: &Hub) -> Self {
        Tries {
            succeeded: false,
            unbounded: false,
            since: hub.now.mono,
            unreached_since: None,
            count: 0,
            backoff: Backoff::new(hub.config.initial_backoff, hub.config.max_backoff),
            cause: None,
        }
    }

    /// Makes these tries part of a larger undertaking: they end when it does.
    pub(crate) fn end_with(&mut self, whole: &Tries) {
        self.since = whole.since;
    }

    pub(crate) fn success(&mut self) {
        self.cause = None;
        self.succeeded = true;
        self.unreached_since = None;
        self.count = 0;
        self.backoff.reset();
    }

    /// When all tries together end without success, if ever.
    pub(crate) fn end(&self, hub: &Hub) -> Option<Mono> {
        if self.succeeded {
            return None;
        }
        let whole =
            !self.unbounded && (hub.config.operation_retries.within_operation_timeout || !hub.ever_connected);
        let starts = [whole.then_some(self.since), self.unreached_since];
        starts.into_iter().flatten().min().map(|start| start + hub.config.operation_timeout)
    }

    /// Whether no further try may start; the error that the undertaking ends with, then.
    pub(crate) fn expired(&self, hub: &Hub, doing: impl FnOnce() -> String) -> Option<Error> {
        if self.end(hub)? > hub.now.mono {
            return None;
        }
        let why = || format!("not done within {:?}", hub.config.operation_timeout);
        Some(self.verdict(Error::new(ErrorKind::Timeout, doing(), why())))
    }

    /// How long one try may take.
    pub(crate) fn timeout(&self, hub: &Hub) -> Duration {
        let one = match self.succeeded {
            true => hub.config.operation_timeout,
            false => hub.config.operation_retries.timeout.min(hub.config.operation_timeout),
        };
        match self.end(hub) {
            Some(end) => one.min(end.since(hub.now.mono)).max(LAST_MOMENT),
            None => one,
        }
    }

    /// The pause before another try, or none when `error` is final.
    pub(crate) fn again(&mut self, hub: &mut Hub, error: &Error) -> Option<Duration> {
        if error.kind() != ErrorKind::Timeout {
            self.cause = Some(error.clone());
        }
        let retries = hub.config.operation_retries;
        match error.retry() {
            // What was open comes back when the credentials or the broker's addresses are mended: a pause, not an end.
            Retry::Never if self.succeeded && error.kind() == ErrorKind::AuthenticationError => {}
            Retry::Never if self.succeeded && error.kind() == ErrorKind::InvalidUrl => {}
            Retry::Never => return None,
            Retry::Busy if !self.succeeded && !retries.retry_busy => return None,
            _ => {}
        }
        self.count += 1;
        // A broken link says nothing about the broker's willingness, so the reconnection back-off applies to it.
        let link = error.is_link();
        let delay = match retries.delay {
            Some(delay) if !self.succeeded && !link => delay,
            _ => self.backoff.next(&mut hub.rng),
        };
        if self.succeeded {
            return Some(delay);
        }
        if !link && retries.max_retries.is_some_and(|max| self.count > max) {
            return None;
        }
        let Some(end) = self.end(hub) else { return Some(delay) };
        // A pause beyond the end would only put the end off.
        match end.since(hub.now.mono) {
            left if left <= LAST_MOMENT => None,
            left => Some(delay.min((left / 2).max(hub.config.initial_backoff)).min(left)),
        }
    }

    /// What to report when `error` was the last. The time left for the last try may be nothing, so its timeout says less
    /// than what went wrong before.
    pub(crate) fn verdict(&self, error: Error) -> Error {
        match &self.cause {
            Some(cause) if error.kind() == ErrorKind::Timeout => cause.clone(),
            _ => error,
        }
    }
}
