//! The driver: one task that owns the links of a client. Decides nothing of Pulsar: it carries bytes and time in, and
//! effects out.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use geminga_core::{AskId, ConnId, Error, ErrorKind, Input, LinkError, LinkErrorKind, Mono, Output};
use tokio::task::{self, JoinSet};
use tokio::time::Sleep;

use crate::auth::{Answered, TokenSource};
use crate::clock::in_time;
use crate::link::{Arrival, Link};
use crate::runtime;
use crate::shared::Shared;
use crate::state::State;
use crate::waiters::IdMap;

/// Bytes asked of core for one link at a time: what was not asked for can still be batched or overtaken by a pong.
const WRITE_BUDGET: usize = 256 << 10;
/// Rounds of reading and writing before other tasks of the runtime have their turn.
const ROUNDS: usize = 16;

/// The task. It can be dropped at any moment: everything that lasts is in [`Shared`], and a successor takes over.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    links: IdMap<Link>,
    asks: JoinSet<Answered>,
    /// Which task answers what.
    asked: Vec<(task::Id, AskId)>,
    /// The timer, and what it is set to. It isn't moved to a later time, only set anew when it went off.
    timer: Option<Pin<Box<Sleep>>>,
    timer_set: Option<Mono>,
    /// Links to look at in this round, and in the next.
    ready: Vec<u64>,
    again: Vec<u64>,
    arrived: Vec<(u64, Arrival)>,
    answered: Vec<(AskId, Answered)>,
    work: Vec<Output>,
    chunks: Vec<Bytes>,
    /// Links whose core has bytes to send.
    sending: Vec<u64>,
    /// Links that have ended.
    ended: Vec<u64>,
    /// Whether this driver has a thread of its own: nobody takes over from it.
    last: bool,
}

/// Why a round was the last for now.
enum Round {
    /// Something moved: look again.
    More,
    /// Everything waits for a waker.
    Idle,
    /// The client has ended.
    Ended,
}

impl Driver {
    /// A driver for `shared`. The `last` one fails its client when it ends; any other has a successor.
    pub(crate) fn new(shared: Arc<Shared>, last: bool) -> Self {
        Driver {
            shared,
            links: IdMap::default(),
            asks: JoinSet::new(),
            asked: Vec::new(),
            timer: None,
            timer_set: None,
            ready: Vec::new(),
            again: Vec::new(),
            arrived: Vec::new(),
            answered: Vec::new(),
            work: Vec::new(),
            chunks: Vec::new(),
            sending: Vec::new(),
            ended: Vec::new(),
            last,
        }
    }

    /// Looks at the links and, if something moved or `visit` says so, visits the machine.
    fn round(&mut self, visit: bool, cx: &mut Context<'_>) -> Round {
        self.look(cx);
        if !visit && self.arrived.is_empty() && self.answered.is_empty() && self.sending.is_empty() {
            return Round::Idle;
        }
        let ended = self.exchange();
        self.apply_work();
        if ended {
            return Round::Ended;
        }
        self.write();
        match self.again.is_empty() && self.sending.is_empty() && self.arrived.is_empty() {
            true => Round::Idle,
            false => Round::More,
        }
    }

    /// Finds out what happened on the links that woke, and which answers came.
    fn look(&mut self, cx: &mut Context<'_>) {
        mem::swap(&mut self.ready, &mut self.again);
        self.shared.bell.take_ready(&mut self.ready);
        for key in self.ready.drain(..) {
            let Some(link) = self.links.get_mut(&key) else { continue };
            match link.poll_arrival() {
                Poll::Pending => {}
                Poll::Ready(Arrival::Ended(error)) => self.arrived.push((key, Arrival::Ended(error))),
                Poll::Ready(arrival) => {
                    self.again.push(key);
                    self.arrived.push((key, arrival));
                }
            }
            if !link.outbox.is_empty()
                && let Some(arrival) = link.write()
            {
                self.arrived.push((key, arrival));
            }
            if link.takes_more() {
                self.sending.push(key);
            }
        }
        while let Poll::Ready(Some(result)) = self.asks.poll_join_next_with_id(cx) {
            let (task, answer) = match result {
                Ok((task, answer)) => (task, answer),
                Err(e) => (e.id(), Err("the token callback panicked".into())),
            };
            if let Some(at) = self.asked.iter().position(|(t, _)| *t == task) {
                self.answered.push((self.asked.swap_remove(at).1, answer));
            }
        }
    }

    /// The one visit to the machine: what arrived goes in, what it wants comes out. No I/O in here.
    fn exchange(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        state.rung = false;
        let now = state.clock.resync();
        for (key, arrival) in self.arrived.drain(..) {
            let Some(link) = self.links.get_mut(&key) else { continue };
            match arrival {
                Arrival::Connected => state.core.handle(now, Input::Connected(link.conn)),
                Arrival::Bytes => state.core.handle(now, Input::Received(link.conn, &mut link.inbox)),
                Arrival::Ended(error) => {
                    state.links.remove(&link.conn);
                    state.core.handle(now, Input::Disconnected(link.conn, error));
                    // Its socket is closed once the lock is free.
                    self.ended.push(key);
                }
            }
        }
        for (id, answer) in self.answered.drain(..) {
            state.asks.remove(&id);
            state.core.handle(now, Input::Answered(id, answer));
        }
        if state.core.deadline().is_some_and(|due| due <= now.mono) {
            state.core.handle(now, Input::Tick);
        }
        state.ring_alarms(now.mono);
        state.pump();
        self.take_work(&mut state);
        self.transmit(&mut state);
        // Taking bytes frees room, for instance.
        state.pump();
        self.take_work(&mut state);
        state.armed = state.deadline();
        let (armed, ended) = (state.armed, state.has_ended());
        shared.release(state);
        self.arm(armed, now.mono);
        ended
    }

    /// Takes what core wants done. Sending is only a mark on the link, so it needs no system call.
    fn take_work(&mut self, state: &mut State) {
        for output in state.work.drain(..) {
            match output {
                Output::Transmit(conn) => {
                    if let Some(link) = self.links.get_mut(&conn.as_u64()) {
                        link.more = true;
                        if link.takes_more() {
                            self.sending.push(conn.as_u64());
                        }
                    }
                }
                other => self.work.push(other),
            }
        }
    }

    /// Asks core for the bytes of the links that can take some.
    fn transmit(&mut self, state: &mut State) {
        for key in &self.sending {
            let Some(link) = self.links.get_mut(key).filter(|l| l.takes_more()) else { continue };
            let taken = state.core.transmit(link.conn, WRITE_BUDGET, &mut self.chunks);
            link.more = taken >= WRITE_BUDGET;
            link.outbox.extend(self.chunks.drain(..).filter(|chunk| !chunk.is_empty()));
        }
    }

    fn apply_work(&mut self) {
        for key in self.ended.drain(..) {
            self.links.remove(&key);
        }
        for output in mem::take(&mut self.work) {
            match output {
                Output::Connect(conn, endpoint) => {
                    tracing::debug!(%endpoint, "connecting");
                    let shared = &self.shared;
                    let limit = shared.connection_timeout;
                    let link = Link::open(conn, endpoint, shared.tls.clone(), limit, shared.bell.clone());
                    self.links.insert(conn.as_u64(), link);
                    self.again.push(conn.as_u64());
                }
                Output::Disconnect(conn) => self.disconnect(conn),
                Output::Ask(id, ask) => {
                    let task = TokenSource::ask(self.shared.tokens.as_ref(), &ask, &mut self.asks);
                    self.asked.push((task.id(), id));
                    // The set is polled for this task to be woken by the answer.
                    self.shared.bell.ring();
                }
                Output::Transmit(_) | Output::Event(_) => {}
            }
        }
    }

    fn disconnect(&mut self, conn: ConnId) {
        if let Some(mut link) = self.links.remove(&conn.as_u64()) {
            tracing::debug!(endpoint = %link.endpoint, "closing the link");
            // The last bytes, as far as the socket takes them at once; the link ends either way.
            drop(link.write());
            link.close();
        }
    }

    fn write(&mut self) {
        for key in mem::take(&mut self.sending) {
            let Some(link) = self.links.get_mut(&key) else { continue };
            if let Some(arrival) = link.write() {
                self.arrived.push((key, arrival));
            } else if link.takes_more() {
                self.sending.push(key);
            }
        }
    }

    /// Sets the timer when it would go off too late.
    fn arm(&mut self, due: Option<Mono>, now: Mono) {
        let Some(due) = due else { return };
        if self.timer_set.is_some_and(|set| set <= due) {
            return;
        }
        let at = in_time(due.since(now));
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        self.timer_set = Some(due);
    }

    /// Whether the timer went off.
    fn timer_rang(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(timer) = self.timer.as_mut().filter(|_| self.timer_set.is_some()) else { return false };
        let rang = timer.as_mut().poll(cx).is_ready();
        if rang {
            self.timer_set = None;
        }
        rang
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let shared = this.shared.clone();
        let _within = shared.span.enter();
        shared.bell.awake(cx.waker());
        // Whoever woke us may have left something in the shared state.
        let mut visit = true;
        for _ in 0..ROUNDS {
            match this.round(mem::replace(&mut visit, false), cx) {
                Round::Ended => {
                    this.links.clear();
                    return Poll::Ready(());
                }
                Round::More => continue,
                Round::Idle => {}
            }
            if this.timer_rang(cx) {
                visit = true;
            } else if shared.bell.may_sleep() {
                return Poll::Pending;
            } else {
                shared.bell.awake(cx.waker());
                visit = true;
            }
        }
        // Others have their turn now.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    /// The runtime is shutting down, the driver panicked, or all is done. Links die with the runtime; the client doesn't.
    fn drop(&mut self) {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if state.has_ended() {
            shared.release(state);
            return;
        }
        let orphaned = self.last || state.is_closing();
        if orphaned {
            let detail = match std::thread::panicking() {
                true => "the client's driver panicked",
                false => "the runtime that drove the client has shut down",
            };
            state.end(Err(Error::new(ErrorKind::Interrupted, "", detail)));
            shared.release(state);
            return;
        }
        let now = state.clock.now();
        // What core wanted and nobody did is reported as failed, like what was going on.
        state.work.clear();
        let lost = LinkError {
            kind: LinkErrorKind::Closed,
            message: "the runtime of the link has shut down".into(),
        };
        for conn in mem::take(&mut state.links) {
            state.core.handle(now, Input::Disconnected(conn, lost.clone()));
        }
        for id in mem::take(&mut state.asks) {
            state.core.handle(now, Input::Answered(id, Err(lost.message.clone())));
        }
        state.pump();
        state.rung = false;
        state.armed = None;
        shared.release(state);
        let _within = shared.span.enter();
        match std::thread::panicking() {
            true => tracing::error!("the client's driver panicked; a thread of its own takes over"),
            false => {
                tracing::info!("the runtime of the client has shut down; a thread of its own takes over")
            }
        }
        if let Err(error) = runtime::own_thread(shared.clone()) {
            let mut state = shared.lock();
            state.end(Err(error));
            shared.release(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::Client;

    use super::*;

    #[tokio::test]
    async fn a_panic_under_the_lock_is_the_error_of_all_who_wait() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("pulsar://{}", listener.local_addr().unwrap())).unwrap();
        let creation = tokio::spawn(client.producer("t").create());
        let (mut accepted, _) = listener.accept().await.unwrap();
        let shared = client.inner.shared.clone();
        let bug = || shared.with(|_, _| panic!("a bug in a command"));
        assert!(catch_unwind(AssertUnwindSafe(bug)).is_err());
        let error = creation.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
        assert_eq!(client.close().await.unwrap_err().kind(), ErrorKind::Interrupted);
        // And nothing stays: the socket is closed.
        tokio::io::copy(&mut accepted, &mut tokio::io::sink()).await.unwrap();
    }
}
