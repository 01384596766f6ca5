//! The cluster that all tasks share: one lock, one clock, and a wake-up for each link.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use crate::{Cluster, Input, LinkId, Mono, NodeId, Now, Output};

/// What a connection's task is woken by.
#[derive(Debug, Default)]
pub(super) struct Wake {
    pub(super) notify: Notify,
    /// The link is to be closed once everything is written.
    pub(super) closing: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Hub {
    started: Instant,
    state: Mutex<State>,
    /// The deadline has become earlier.
    rearm: Notify,
}

#[derive(Debug)]
struct State {
    cluster: Cluster,
    wakes: HashMap<LinkId, Arc<Wake>>,
    next_link: u64,
    /// What the ticker sleeps for.
    armed: Option<Mono>,
}

impl Hub {
    pub(super) fn new(cluster: Cluster) -> Self {
        Hub {
            started: Instant::now(),
            state: Mutex::new(State { cluster, wakes: HashMap::new(), next_link: 0, armed: None }),
            rearm: Notify::new(),
        }
    }

    pub(super) fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { mono: Mono::from_nanos(nanos), unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Does something to the cluster, and passes on what comes of it.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Cluster, Now) -> R) -> R {
        let mut state = self.lock();
        // Read under the lock, so that the cluster's time never goes back.
        let now = self.now();
        let result = act(&mut state.cluster, now);
        self.settle(&mut state);
        result
    }

    pub(super) fn accept(&self, node: NodeId) -> (LinkId, Arc<Wake>) {
        let mut state = self.lock();
        let link = LinkId(state.next_link);
        state.next_link += 1;
        let wake = Arc::new(Wake::default());
        state.wakes.insert(link, wake.clone());
        let now = self.now();
        state.cluster.handle(now, Input::Accepted(node, link));
        self.settle(&mut state);
        (link, wake)
    }

    pub(super) fn closed(&self, link: LinkId) {
        let mut state = self.lock();
        state.wakes.remove(&link);
        let now = self.now();
        state.cluster.handle(now, Input::Closed(link));
        self.settle(&mut state);
    }

    /// Sends a Tick whenever the deadline passes, for ever.
    pub(super) async fn tick(&self) {
        loop {
            let deadline = {
                let mut state = self.lock();
                state.armed = state.cluster.deadline();
                state.armed
            };
            match deadline {
                None => self.rearm.notified().await,
                Some(at) => {
                    // Rounded up: a tick that is too early would only be repeated.
                    let wait = at.since(self.now().mono) + Duration::from_millis(1);
                    tokio::select! {
                        () = self.rearm.notified() => {}
                        () = tokio::time::sleep(wait) => self.with(|cluster, now| cluster.handle(now, Input::Tick)),
                    }
                }
            }
        }
    }

    fn settle(&self, state: &mut State) {
        while let Some(output) = state.cluster.poll() {
            let (link, close) = match output {
                Output::Transmit(link) => (link, false),
                Output::Close(link) => (link, true),
            };
            if let Some(wake) = state.wakes.get(&link) {
                if close {
                    wake.closing.store(true, Ordering::Release);
                }
                wake.notify.notify_one();
            }
        }
        let deadline = state.cluster.deadline();
        if deadline.is_some() && (state.armed.is_none() || deadline < state.armed) {
            state.armed = deadline;
            self.rearm.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a test's closure must not take the whole broker with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
