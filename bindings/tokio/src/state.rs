//! The machine and the tables of those who wait for it. Decides who is told what core says; does no I/O, and only notes
//! whom to wake and what to tell, see [`Shared`](crate::shared::Shared).

use std::collections::{BTreeSet, VecDeque};
use std::task::{Context, Poll, Waker};

use geminga_core::{
    AskId, ConnId, ConsumerId, Error, ErrorKind, Event, HandleId, Message, Mono, Now, OpId, Output,
    ProducerId, Reply,
};

use crate::clock::Clock;
use crate::events::StateEvent;
use crate::receipt::Receipts;
use crate::waiters::{Alarms, IdMap, Line, Queue, wait_in};

/// The machine, and who waits for what.
pub(crate) struct State {
    pub(crate) core: geminga_core::Client,
    pub(crate) clock: Clock,
    pub(crate) producers: IdMap<ProducerState>,
    pub(crate) consumers: IdMap<ConsumerState>,
    pub(crate) alarms: Alarms,
    /// What core wants from the driver.
    pub(crate) work: Vec<Output>,
    /// What the driver will report on, so that another driver can take over.
    pub(crate) links: BTreeSet<ConnId>,
    pub(crate) asks: BTreeSet<AskId>,
    /// When the driver wakes by itself.
    pub(crate) armed: Option<Mono>,
    /// Whether the driver was told since it last looked.
    pub(crate) rung: bool,
    ops: IdMap<OpState>,
    /// Whom to wake once the lock is free.
    pub(crate) wakes: Vec<Waker>,
    /// What to log and to broadcast once the lock is free.
    pub(crate) news: Vec<News>,
    closing: Closing,
    /// What went wrong with the close of a handle when the client closed.
    unclean: Option<Error>,
    close_waiters: Vec<Waker>,
}

/// Something to tell others than those who wait.
pub(crate) enum News {
    State(StateEvent),
    Opened(HandleId),
    /// Its creation returns the error.
    Refused(HandleId, Error),
    Closed(HandleId, Option<Error>),
}

/// How far the client's end has come.
enum Closing {
    /// It is open.
    Not,
    /// Core is closing.
    Asked(OpId),
    /// Nothing is left: closed, or its driver died of this error.
    Ended(Result<(), Error>),
}

/// Where a handle is in its life.
#[derive(Default)]
pub(crate) struct Life {
    phase: Phase,
    waiters: Vec<Waker>,
    /// Nobody holds the handle: forget it when it has ended.
    abandoned: bool,
}

#[derive(Default)]
enum Phase {
    #[default]
    Opening,
    Open,
    Closed(Option<Error>),
}

#[derive(Default)]
pub(crate) struct ProducerState {
    pub(crate) life: Life,
    pub(crate) receipts: Receipts,
    /// Those who wait for room in the queue. Who sends while others wait goes behind them.
    pub(crate) room: Line,
}

#[derive(Default)]
pub(crate) struct ConsumerState {
    pub(crate) life: Life,
    /// Those who wait for messages.
    pub(crate) receivers: Queue,
    /// Messages that a cancelled `receive_batch` had taken, in order: they come before core's.
    pub(crate) returned: VecDeque<Message>,
    /// How often what was received was given up for what comes after a seek or a redelivery. A `receive_batch` under
    /// way drops what it has from before.
    pub(crate) fresh_starts: u64,
}

#[derive(Default)]
struct OpState {
    result: Option<Result<Reply, Error>>,
    waker: Option<Waker>,
}

impl State {
    pub(crate) fn new(core: geminga_core::Client, clock: Clock) -> Self {
        State {
            core,
            clock,
            producers: IdMap::default(),
            consumers: IdMap::default(),
            alarms: Alarms::default(),
            work: Vec::new(),
            links: BTreeSet::new(),
            asks: BTreeSet::new(),
            armed: None,
            rung: false,
            ops: IdMap::default(),
            wakes: Vec::new(),
            news: Vec::new(),
            closing: Closing::Not,
            unclean: None,
            close_waiters: Vec::new(),
        }
    }

    /// Takes everything core has to say: events to those who wait, the rest to the driver.
    #[inline]
    pub(crate) fn pump(&mut self) {
        while let Some(output) = self.core.poll() {
            match output {
                Output::Event(event) => self.tell(event),
                Output::Connect(conn, endpoint) => {
                    self.links.insert(conn);
                    self.work.push(Output::Connect(conn, endpoint));
                }
                Output::Disconnect(conn) => {
                    self.links.remove(&conn);
                    self.work.push(Output::Disconnect(conn));
                }
                Output::Ask(id, ask) => {
                    self.asks.insert(id);
                    self.work.push(Output::Ask(id, ask));
                }
                Output::Transmit(conn) => self.work.push(Output::Transmit(conn)),
            }
        }
    }

    /// When something is due next, in core or for a waiter.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        match (self.core.deadline(), self.alarms.deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Wakes those whose time has come.
    pub(crate) fn ring_alarms(&mut self, now: Mono) {
        while let Some(waker) = self.alarms.pop_due(now) {
            self.wakes.push(waker);
        }
    }

    /// Wakes this one when the lock is free.
    pub(crate) fn wake(&mut self, waker: Waker) {
        self.wakes.push(waker);
    }

    /// Whether the driver must look again, which it is then taken to know.
    #[inline]
    pub(crate) fn needs_driver(&mut self) -> bool {
        if self.rung {
            return false;
        }
        let earlier = || self.deadline().is_some_and(|due| self.armed.is_none_or(|armed| due < armed));
        self.rung = !self.work.is_empty() || earlier() || matches!(self.closing, Closing::Ended(_));
        self.rung
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Opened(handle) => {
                self.news.push(News::Opened(handle));
                self.set_phase(handle, Phase::Open);
            }
            Event::Closed(handle, error) => {
                let opening = self.life(handle).is_some_and(|life| matches!(life.phase, Phase::Opening));
                self.news.push(match &error {
                    Some(error) if opening => News::Refused(handle, error.clone()),
                    _ => News::Closed(handle, error.clone()),
                });
                self.set_phase(handle, Phase::Closed(error));
            }
            Event::Published { producer, batch, result, .. } => {
                if let Some(state) = self.producers.get_mut(&producer.as_u64()) {
                    state.receipts.complete(batch, result, &mut self.wakes);
                }
            }
            Event::Writable(producer) => {
                if let Some(state) = self.producers.get_mut(&producer.as_u64()) {
                    self.wakes.extend(state.room.first());
                }
            }
            Event::Readable(consumer) => {
                if let Some(state) = self.consumers.get_mut(&consumer.as_u64()) {
                    self.wakes.extend(state.receivers.first());
                }
            }
            Event::Completed(op, result) => self.complete(op, result),
            Event::State(handle, change) => self.news.push(News::State(StateEvent { handle, change })),
        }
    }

    fn complete(&mut self, op: OpId, result: Result<Reply, Error>) {
        if matches!(self.closing, Closing::Asked(close) if close == op) {
            self.unclean = result.err();
            self.end(Ok(()));
            return;
        }
        // Whoever dropped the future took the entry away: the outcome has no taker then.
        if let Some(state) = self.ops.get_mut(&op.as_u64()) {
            state.result = Some(result);
            self.wakes.extend(state.waker.take());
        }
    }

    fn set_phase(&mut self, handle: HandleId, phase: Phase) {
        let closed = matches!(phase, Phase::Closed(_));
        let abandoned = match handle {
            HandleId::Producer(id) => {
                let Some(state) = self.producers.get_mut(&id.as_u64()) else { return };
                if closed {
                    self.wakes.extend(state.room.end());
                }
                state.life.turn(phase, &mut self.wakes)
            }
            HandleId::Consumer(id) => {
                let Some(state) = self.consumers.get_mut(&id.as_u64()) else { return };
                if closed {
                    self.wakes.extend(state.receivers.drain());
                }
                state.life.turn(phase, &mut self.wakes)
            }
        };
        if closed && abandoned {
            self.forget(handle);
        }
    }

    fn forget(&mut self, handle: HandleId) {
        match handle {
            HandleId::Producer(id) => drop(self.producers.remove(&id.as_u64())),
            HandleId::Consumer(id) => drop(self.consumers.remove(&id.as_u64())),
        }
    }

    fn life(&mut self, handle: HandleId) -> Option<&mut Life> {
        match handle {
            HandleId::Producer(id) => self.producers.get_mut(&id.as_u64()).map(|p| &mut p.life),
            HandleId::Consumer(id) => self.consumers.get_mut(&id.as_u64()).map(|c| &mut c.life),
        }
    }

    /// Nobody holds this handle any more: it is closed, and forgotten once that is done.
    pub(crate) fn abandon(&mut self, handle: HandleId, now: Now) {
        let Some(life) = self.life(handle) else { return };
        life.abandoned = true;
        if matches!(life.phase, Phase::Closed(_)) || self.has_ended() {
            self.forget(handle);
        } else {
            let _waits = self.close_handle(handle, now);
        }
    }

    /// Closes a handle. Returns whether there is an end to wait for: a dead id is closed already.
    pub(crate) fn close_handle(&mut self, handle: HandleId, now: Now) -> bool {
        match handle {
            HandleId::Producer(id) => drop(self.core.producer(id).map(|mut p| p.close(now))),
            HandleId::Consumer(id) => drop(self.core.consumer(id).map(|c| c.close(now))),
        }
        self.life(handle).is_some_and(|life| !matches!(life.phase, Phase::Closed(_)))
    }

    /// Ready when the handle is open, or when it will not open any more.
    pub(crate) fn poll_opened(&mut self, handle: HandleId, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let ended = self.why_ended();
        let Some(life) = self.life(handle) else { return Poll::Ready(Err(gone())) };
        match (&life.phase, ended) {
            (Phase::Open, _) => Poll::Ready(Ok(())),
            (Phase::Closed(error), _) => Poll::Ready(Err(error.clone().unwrap_or_else(gone))),
            (Phase::Opening, Some(error)) => Poll::Ready(Err(error)),
            (Phase::Opening, None) => {
                wait_in(&mut life.waiters, cx.waker());
                Poll::Pending
            }
        }
    }

    /// Ready when the handle has ended, with the error that it ended by.
    pub(crate) fn poll_closed(&mut self, handle: HandleId, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let ended = self.has_ended();
        match self.life(handle) {
            Some(Life { phase: Phase::Closed(Some(error)), .. }) => Poll::Ready(Err(error.clone())),
            Some(life) if !ended && !matches!(life.phase, Phase::Closed(_)) => {
                wait_in(&mut life.waiters, cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// The error of a call on a producer that core no longer knows: the reason of its end, where there was one.
    pub(crate) fn producer_end(&self, id: ProducerId, error: Error) -> Error {
        match self.producers.get(&id.as_u64()) {
            Some(ProducerState { life: Life { phase: Phase::Closed(Some(why)), .. }, .. }) => why.clone(),
            _ => error,
        }
    }

    /// The same for a consumer.
    pub(crate) fn consumer_end(&self, id: ConsumerId, error: Error) -> Error {
        match self.consumers.get(&id.as_u64()) {
            Some(ConsumerState { life: Life { phase: Phase::Closed(Some(why)), .. }, .. }) => why.clone(),
            _ => error,
        }
    }

    /// The producer in core, or why there is none.
    #[inline]
    pub(crate) fn producer(&mut self, id: ProducerId) -> Result<geminga_core::Producer<'_>, Error> {
        self.alive()?;
        // Two look-ups, because a borrow that is returned on one way lasts on all.
        if let Err(error) = self.core.producer(id) {
            return Err(self.producer_end(id, error));
        }
        self.core.producer(id)
    }

    /// The consumer in core, or why there is none.
    #[inline]
    pub(crate) fn consumer(&mut self, id: ConsumerId) -> Result<geminga_core::Consumer<'_>, Error> {
        self.alive()?;
        if let Err(error) = self.core.consumer(id) {
            return Err(self.consumer_end(id, error));
        }
        self.core.consumer(id)
    }

    /// An error when nothing drives this client any more.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), Error> {
        match &self.closing {
            Closing::Ended(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether the driver has nothing left to do, ever.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.closing, Closing::Ended(_))
    }

    /// Whether a close was asked for.
    pub(crate) fn is_closing(&self) -> bool {
        !matches!(self.closing, Closing::Not)
    }

    fn why_ended(&self) -> Option<Error> {
        match &self.closing {
            Closing::Ended(Err(error)) => Some(error.clone()),
            Closing::Ended(Ok(())) => Some(gone()),
            _ => None,
        }
    }

    /// Closes everything, once.
    pub(crate) fn close(&mut self, now: Now) {
        if matches!(self.closing, Closing::Not) {
            self.closing = Closing::Asked(self.core.close(now));
        }
    }

    /// Ready when nothing is left.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &self.closing {
            Closing::Ended(result) => {
                Poll::Ready(result.clone().and(self.unclean.clone().map_or(Ok(()), Err)))
            }
            _ => {
                wait_in(&mut self.close_waiters, cx.waker());
                Poll::Pending
            }
        }
    }

    /// The end: closed, or left without a driver. Nobody waits in vain.
    pub(crate) fn end(&mut self, result: Result<(), Error>) {
        if self.has_ended() {
            return;
        }
        let why = result.clone().err().unwrap_or_else(gone);
        for state in self.producers.values_mut() {
            state.receipts.fail_all(&why, &mut self.wakes);
            self.wakes.extend(state.room.end());
            self.wakes.append(&mut state.life.waiters);
        }
        for state in self.consumers.values_mut() {
            self.wakes.extend(state.receivers.drain());
            self.wakes.append(&mut state.life.waiters);
        }
        for op in self.ops.values_mut() {
            op.result.get_or_insert_with(|| Err(why.clone()));
            self.wakes.extend(op.waker.take());
        }
        self.wakes.append(&mut self.close_waiters);
        self.closing = Closing::Ended(result);
    }

    /// An operation has begun: its outcome is kept until taken.
    pub(crate) fn begin(&mut self, op: OpId) {
        let state = self.ops.entry(op.as_u64()).or_default();
        if let Closing::Ended(result) = &self.closing {
            state.result = Some(Err(result.clone().err().unwrap_or_else(gone)));
        }
    }

    /// Takes an operation's outcome when it is there.
    pub(crate) fn poll_op(&mut self, op: OpId, cx: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        let Some(state) = self.ops.get_mut(&op.as_u64()) else { return Poll::Ready(Err(gone())) };
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Nobody waits for this outcome any more.
    pub(crate) fn forget_op(&mut self, op: OpId) {
        self.ops.remove(&op.as_u64());
    }
}

impl Life {
    /// Enters a phase and wakes those who wait for it; returns whether the handle has no holder.
    fn turn(&mut self, phase: Phase, wakes: &mut Vec<Waker>) -> bool {
        self.phase = phase;
        wakes.append(&mut self.waiters);
        self.abandoned
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::AlreadyClosed, "", "")
}
