//! What the handles of a client and its driver share: the machine behind its lock. Decides what is done once the lock is
//! free: wakers, events and logs are others' code and never run under it.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use geminga_core::{ClientConfig, Error, ErrorKind, Now};
use tokio::sync::broadcast;

use crate::auth::TokenSource;
use crate::bell::Bell;
use crate::clock::Clock;
use crate::events::StateEvent;
use crate::state::{News, State};
use crate::tls::Tls;

/// What all handles of a client and its driver share.
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) tokens: Option<TokenSource>,
    pub(crate) connection_timeout: Duration,
    pub(crate) events: broadcast::Sender<StateEvent>,
    /// What the client logs is within it, so that a subscriber can tell clients apart.
    pub(crate) span: tracing::Span,
}

/// States that a lagging listener may fall behind before it misses the oldest.
const EVENTS_KEPT: usize = 256;

impl Shared {
    pub(crate) fn new(
        config: ClientConfig,
        seed: [u8; 32],
        tls: Tls,
        tokens: Option<TokenSource>,
    ) -> Result<Self, Error> {
        let clock = Clock::new();
        let connection_timeout = config.connection_timeout;
        let core = geminga_core::Client::new(config, seed, clock.now())?;
        let state = State::new(core, clock);
        Ok(Shared {
            state: Mutex::new(state),
            bell: Arc::new(Bell::new()),
            tls: Arc::new(tls),
            tokens,
            connection_timeout,
            events: broadcast::Sender::new(EVENTS_KEPT),
            span: tracing::error_span!(parent: None, "client"),
        })
    }

    /// Runs a command on the machine, then sees to what it caused.
    #[inline]
    pub(crate) fn with<R>(&self, command: impl FnOnce(&mut State, Now) -> R) -> R {
        let alarm = PanicAlarm(&self.bell);
        let mut state = self.lock();
        let now = state.clock.now();
        let result = command(&mut state, now);
        state.pump();
        let ring = state.needs_driver();
        mem::forget(alarm);
        self.release(state);
        if ring {
            self.bell.ring();
        }
        result
    }

    /// The lock alone, for the driver, which sees to the rest itself with [`release`](Self::release).
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            // Half a change may be in there, so nothing is built on it any more; whoever waits is told.
            state.end(Err(Error::new(ErrorKind::Interrupted, "", "the client panicked")));
            state
        })
    }

    /// Frees the lock, then wakes and tells everybody concerned.
    #[inline]
    pub(crate) fn release(&self, mut state: MutexGuard<'_, State>) {
        if state.wakes.is_empty() && state.news.is_empty() {
            return;
        }
        let wakes = mem::take(&mut state.wakes);
        let news = mem::take(&mut state.news);
        drop(state);
        for waker in wakes {
            // It is code of somebody's runtime: if it panics, the others are woken all the same.
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::error!(parent: &self.span, "a waker panicked");
            }
        }
        if news.is_empty() {
            return;
        }
        let _within = self.span.enter();
        for news in &news {
            if let News::State(event) = news {
                // Without listeners nobody misses it.
                drop(self.events.send(event.clone()));
            }
        }
        for news in news {
            match news {
                News::State(event) => event.log(),
                News::Opened(handle) => tracing::debug!(?handle, "open"),
                News::Refused(handle, error) => tracing::debug!(?handle, %error, "not opened"),
                News::Closed(handle, None) => tracing::debug!(?handle, "closed"),
                News::Closed(handle, Some(error)) => tracing::warn!(?handle, %error, "closed"),
            }
        }
    }
}

/// Has the driver look when a command panicked: the next to take the lock ends the client, and it must not be long.
struct PanicAlarm<'a>(&'a Bell);

impl Drop for PanicAlarm<'_> {
    fn drop(&mut self) {
        self.0.ring();
    }
}
