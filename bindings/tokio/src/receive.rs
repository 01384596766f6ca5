//! Receiving: one who waits, its turn among others, and the stream. Decides who gets the next message when several tasks
//! receive, and what becomes of messages whose call is cancelled.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use geminga_core::{ConsumerId, Error, ErrorKind, Message, Mono, Now};
use tokio::task::coop::poll_proceed;

use crate::consumer::ConsumerRef;
use crate::state::State;
use crate::waiters::AlarmKey;

impl ConsumerRef {
    pub(crate) async fn receive(&self) -> Result<Message, Error> {
        let mut receive = Receive::new(self, Turn::default());
        poll_fn(|cx| receive.turn.poll_message(self, cx)).await
    }

    pub(crate) async fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        let mut receive = Receive::new(self, Turn::within(timeout));
        poll_fn(|cx| receive.turn.poll(self, cx, State::receive)).await
    }

    pub(crate) async fn receive_batch(&self, max: usize, timeout: Duration) -> Result<Vec<Message>, Error> {
        let mut receive = Receive::new(self, Turn::within(timeout));
        poll_fn(|cx| {
            let Receive { turn, batch, .. } = &mut receive;
            turn.poll(self, cx, |state, id, now| {
                batch.fill(state, id, now, max)?;
                Ok((batch.messages.len() >= max).then_some(()))
            })
        })
        .await?;
        Ok(mem::take(&mut receive.batch.messages))
    }

    pub(crate) async fn receive_many(&self, max: usize) -> Result<Vec<Message>, Error> {
        let mut receive = Receive::new(self, Turn::default());
        poll_fn(|cx| {
            let Receive { turn, batch, .. } = &mut receive;
            turn.poll(self, cx, |state, id, now| {
                batch.fill(state, id, now, max)?;
                Ok((!batch.messages.is_empty() || max == 0).then_some(()))
            })
        })
        .await?;
        Ok(mem::take(&mut receive.batch.messages))
    }

    pub(crate) fn try_receive(&self) -> Result<Option<Message>, Error> {
        self.client.shared.with(|state, now| state.receive(self.id, now))
    }

    /// Gives back a message that reached nobody.
    pub(crate) fn put_back(&self, message: Message) {
        self.client.shared.with(|state, _| {
            let Some(consumer) = state.consumers.get_mut(&self.id.as_u64()) else { return };
            consumer.returned.push_front(message);
            if let Some(waker) = consumer.receivers.first() {
                state.wake(waker);
            }
        });
    }
}

/// One who receives: its place in line, and how long it waits.
///
/// Shape: core says once that a queue has messages; the first in line is woken, and whoever takes a message wakes the next while there
/// are more. One who was woken and leaves without taking passes it on.
#[derive(Default)]
pub(crate) struct Turn {
    place: Option<u64>,
    limit: Limit,
    alarm: Option<AlarmKey>,
}

#[derive(Clone, Copy, Default)]
enum Limit {
    #[default]
    None,
    /// Counted from the first poll.
    For(Duration),
    At(Mono),
}

impl Turn {
    fn within(timeout: Duration) -> Self {
        Turn { limit: Limit::For(timeout), ..Turn::default() }
    }

    /// Something received, `None` when the time is up.
    fn poll<T>(
        &mut self,
        consumer: &ConsumerRef,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut State, ConsumerId, Now) -> Result<Option<T>, Error>,
    ) -> Poll<Result<Option<T>, Error>> {
        // A loop of receives must not keep the driver, which may share its thread, from running.
        let coop = ready!(poll_proceed(cx));
        let received = consumer.client.shared.with(|state, now| {
            let taken = match take(state, consumer.id, now) {
                Ok(taken) => taken,
                Err(error) => return Poll::Ready(Err(error)),
            };
            if taken.is_some() {
                self.done(consumer, state, true);
                return Poll::Ready(Ok(taken));
            }
            if let Limit::For(timeout) = self.limit {
                self.limit = Limit::At(now.mono + timeout);
            }
            match self.limit {
                Limit::At(end) if end <= now.mono => {
                    self.done(consumer, state, false);
                    return Poll::Ready(Ok(None));
                }
                Limit::At(end) => state.alarms.set(&mut self.alarm, end, cx.waker()),
                _ => {}
            }
            let line = &mut state.consumers.entry(consumer.id.as_u64()).or_default().receivers;
            line.wait(&mut self.place, cx.waker());
            Poll::Pending
        });
        if received.is_ready() {
            coop.made_progress();
        }
        received
    }

    /// A message; there is no end to the waiting.
    pub(crate) fn poll_message(
        &mut self,
        consumer: &ConsumerRef,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Message, Error>> {
        match ready!(self.poll(consumer, cx, State::receive)) {
            Ok(Some(message)) => Poll::Ready(Ok(message)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Leaves the line, and wakes the next one when there is something for it.
    fn done(&mut self, consumer: &ConsumerRef, state: &mut State, took: bool) {
        if let Some(alarm) = self.alarm.take() {
            state.alarms.cancel(alarm);
        }
        let Some(waiting) = state.consumers.get_mut(&consumer.id.as_u64()) else { return };
        let line = &mut waiting.receivers;
        let woken = self.place.take().is_some_and(|place| line.leave(place));
        if line.is_empty() || !(took || woken) {
            return;
        }
        // At request, the next one has to ask for its message itself.
        let more =
            consumer.on_demand || state.consumer(consumer.id).is_ok_and(|core| core.queued_messages() > 0);
        if more
            && let Some(waker) =
                state.consumers.get_mut(&consumer.id.as_u64()).and_then(|w| w.receivers.first())
        {
            state.wake(waker);
        }
    }

    pub(crate) fn leave(&mut self, consumer: &ConsumerRef) {
        if self.place.is_some() || self.alarm.is_some() {
            consumer.client.shared.with(|state, _| self.done(consumer, state, false));
        }
    }
}

/// A turn that is left when its future is dropped, what it had taken given back.
struct Receive<'a> {
    consumer: &'a ConsumerRef,
    turn: Turn,
    batch: Batch,
}

/// What one call has taken so far, all of it since the same fresh start.
#[derive(Default)]
struct Batch {
    messages: Vec<Message>,
    fresh_starts: u64,
}

impl<'a> Receive<'a> {
    fn new(consumer: &'a ConsumerRef, turn: Turn) -> Self {
        Receive { consumer, turn, batch: Batch::default() }
    }
}

impl Batch {
    /// Adds the messages that are there, up to `max` in all.
    fn fill(&mut self, state: &mut State, id: ConsumerId, now: Now, max: usize) -> Result<(), Error> {
        if let Some(consumer) = state.consumers.get_mut(&id.as_u64()) {
            if self.fresh_starts != consumer.fresh_starts {
                self.fresh_starts = consumer.fresh_starts;
                self.messages.clear();
            }
            let wanted = max.saturating_sub(self.messages.len()).min(consumer.returned.len());
            self.messages.extend(consumer.returned.drain(..wanted));
        }
        let wanted = max.saturating_sub(self.messages.len());
        state.consumer(id)?.receive_batch(now, wanted, &mut self.messages);
        Ok(())
    }
}

impl Drop for Receive<'_> {
    fn drop(&mut self) {
        if !self.batch.messages.is_empty() {
            let (id, batch) = (self.consumer.id.as_u64(), &mut self.batch);
            self.consumer.client.shared.with(|state, _| {
                let Some(consumer) = state.consumers.get_mut(&id) else { return };
                if batch.fresh_starts != consumer.fresh_starts {
                    return;
                }
                for message in batch.messages.drain(..).rev() {
                    consumer.returned.push_front(message);
                }
                if let Some(waker) = consumer.receivers.first() {
                    state.wake(waker);
                }
            });
        }
        self.turn.leave(self.consumer);
    }
}

impl State {
    /// A message if one is there.
    #[inline]
    fn receive(&mut self, id: ConsumerId, now: Now) -> Result<Option<Message>, Error> {
        let received = self.consumer(id)?.receive(now);
        match self.consumers.get_mut(&id.as_u64()).filter(|c| !c.returned.is_empty()) {
            None => Ok(received),
            // What was given back is older: it goes first, and what core gave last.
            Some(consumer) => {
                consumer.returned.extend(received);
                Ok(consumer.returned.pop_front())
            }
        }
    }
}

/// The messages of a consumer or a reader as a stream. It holds the handle open.
#[must_use = "streams do nothing unless polled"]
pub struct Messages {
    pub(crate) consumer: Arc<ConsumerRef>,
    pub(crate) turn: Turn,
    pub(crate) done: bool,
}

impl Stream for Messages {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        match ready!(this.turn.poll_message(&this.consumer, cx)) {
            Ok(message) => Poll::Ready(Some(Ok(message))),
            Err(error) => {
                this.done = true;
                // A close by the application is the stream's end, not an error.
                match error.kind() {
                    ErrorKind::AlreadyClosed => Poll::Ready(None),
                    _ => Poll::Ready(Some(Err(error))),
                }
            }
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.turn.leave(&self.consumer);
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("topic", &self.consumer.topic()).finish_non_exhaustive()
    }
}
