//! The end of a consumer: what has to reach the brokers before it, and what to say when it did not.
//!
//! Decides how long a close waits. Acknowledgements that the application gave while a partition had no connection are
//! told first, so a close may have to reconnect; everything together ends within the operation timeout.

use super::Consumers;
use super::handle::{Handle, Stage};
use super::part::Part;
use crate::attach::unconfirmed;
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner, Ticket};
use crate::io::{ConnId, ConsumerId, Event, HandleId};
use crate::slots::Slot;
use crate::time::{Mono, Timer};
use crate::wire::command::Command;
use crate::wire::proto;

/// How far a part's close is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// Acknowledgements wait for the connection, until this time.
    Telling(Mono),
    /// CLOSE_CONSUMER waits for its answer.
    Asked,
    Done,
}

impl Part {
    /// Asks the broker to forget this consumer, once it knows what is acknowledged. Without a connection it has forgotten
    /// the consumer, or will.
    pub(crate) fn close(&mut self, hub: &mut Hub) {
        if self.closing != Closing::No {
            return;
        }
        let until = hub.now.mono + hub.config.operation_timeout;
        self.flush_acks(hub);
        if self.untold_acks() > 0 && !self.attach.is_ended() {
            self.closing = Closing::Telling(until);
            hub.timers.set(Timer::Closing(self.wire_id()), until);
            self.attach.hurry(hub);
        } else {
            self.ask_close(hub, until);
        }
    }

    /// The subscription is there again, and the acknowledgements that a close waits with can be told.
    /// Returns whether there is a close.
    pub(super) fn close_told(&mut self, hub: &mut Hub) -> bool {
        let Closing::Telling(until) = self.closing else { return false };
        self.ask_close(hub, until);
        true
    }

    fn ask_close(&mut self, hub: &mut Hub, until: Mono) {
        let (connection, ticket) = (self.attach.registered(), self.attach.ticket());
        self.end(hub);
        if let Some(id) = connection {
            self.closing = Closing::Asked;
            self.write_close(hub, id, ticket, until);
        }
    }

    /// Acknowledgements that the broker does not know and would remember.
    pub(super) fn untold_acks(&self) -> usize {
        if self.durable { self.acks.pending() } else { 0 }
    }

    /// Stops without a word to the broker, which knows.
    pub(crate) fn end(&mut self, hub: &mut Hub) {
        self.attach.end(hub);
        hub.timers.cancel(Timer::AckGroup(self.wire_id()));
        hub.timers.cancel(Timer::NegativeAck(self.wire_id()));
        hub.timers.cancel(Timer::Closing(self.wire_id()));
        let queued = self.queue.clear();
        self.permits.settled(queued);
        if let Some(letters) = &mut self.dead_letters {
            letters.clear();
        }
        self.closing = Closing::Done;
    }

    /// Undoes a SUBSCRIBE whose answer nobody waits for any more.
    pub(crate) fn undo(&self, hub: &mut Hub, id: ConnId) {
        let until = hub.now.mono + hub.config.operation_timeout;
        self.write_close(hub, id, Ticket { owner: Owner::Nobody, attempt: 0 }, until);
    }

    fn write_close(&self, hub: &mut Hub, id: ConnId, ticket: Ticket, until: Mono) {
        let (consumer_id, timeout) = (self.wire_id(), until.since(hub.now.mono));
        hub.request(id, ticket, RequestKind::CloseConsumer, timeout, |request_id| {
            Command::CloseConsumer(proto::CommandCloseConsumer {
                consumer_id,
                request_id,
                ..proto::CommandCloseConsumer::default()
            })
        });
    }
}

impl Handle {
    /// A close did not go as it should: its first error is what the application hears, unless it has another already.
    fn close_failed(&mut self, error: Error) {
        if let Stage::Closing(outcome @ None) = &mut self.stage {
            *outcome = Some(error);
        }
    }

    /// What the application hears in the end.
    fn outcome(self, untold: usize) -> Option<Error> {
        let Stage::Closing(error) = self.stage else { return None };
        let lost = |e: Error| {
            e.adding(format!(
                "{untold} acknowledgements did not reach the broker, and those messages come again"
            ))
        };
        match untold {
            0 => error,
            _ => error.map(lost),
        }
    }
}

impl Consumers {
    pub(crate) fn close_all(&mut self, hub: &mut Hub) {
        for slot in self.handles.keys() {
            self.close(hub, ConsumerId(slot), None);
        }
    }

    /// Ends a consumer: acknowledgements are written, brokers are told, and `Closed` follows when they answered.
    pub(super) fn close(&mut self, hub: &mut Hub, id: ConsumerId, error: Option<Error>) {
        let Some(handle) = self.handles.get_mut(id.0).filter(|h| !h.is_closing()) else { return };
        let closed = Error::new(ErrorKind::AlreadyClosed, "", "the consumer was closed");
        let cause = error.clone().unwrap_or(closed);
        handle.stage = Stage::Closing(error);
        hub.timers.cancel(Timer::Partitions(HandleId::Consumer(id)));
        hub.timers.cancel(Timer::Retry(Owner::Handle(HandleId::Consumer(id))));
        self.abandon_all(hub, id, &cause);
        if !self.waits_for_dead_letters(hub, id) {
            self.close_parts(hub, id);
        }
    }

    pub(super) fn close_parts(&mut self, hub: &mut Hub, id: ConsumerId) {
        let slots: Vec<_> = self.handles.get(id.0).into_iter().flat_map(Handle::slots).collect();
        for slot in slots {
            if let Some(part) = self.parts.get_mut(slot) {
                part.close(hub);
            }
        }
        self.finish_close(hub, id);
    }

    /// CLOSE_CONSUMER has its answer. With the connection the broker has lost the consumer as well.
    pub(super) fn close_answered(&mut self, hub: &mut Hub, part: Slot, result: Result<Command, Error>) {
        let Some(p) = self.parts.get_mut(part) else { return };
        p.closing = Closing::Done;
        let id = p.parent;
        let unconfirmed = unconfirmed(result, || format!("closing the consumer of {}", p.topic.as_str()));
        if let (Some(error), Some(handle)) = (unconfirmed, self.handles.get_mut(id.0)) {
            handle.close_failed(error);
        }
        self.finish_close(hub, id);
    }

    /// The connection is not to be had again in time for the acknowledgements that wait for it.
    pub(crate) fn close_timed_out(&mut self, hub: &mut Hub, part: Slot) {
        let Some(p) = self.parts.get_mut(part) else { return };
        if let Some(id) = p.attach.registered() {
            p.undo(hub, id);
        }
        let why = format!("not connected again within {:?}", hub.config.operation_timeout);
        let doing = format!("closing the consumer of {}", p.topic.as_str());
        self.close_given_up(hub, part, Error::new(ErrorKind::Timeout, doing, why));
    }

    /// A part that is to be closed will not be connected again.
    pub(super) fn close_given_up(&mut self, hub: &mut Hub, part: Slot, error: Error) {
        let Some(p) = self.parts.get_mut(part) else { return };
        p.end(hub);
        let id = p.parent;
        if let Some(handle) = self.handles.get_mut(id.0) {
            handle.close_failed(error);
        }
        self.finish_close(hub, id);
    }

    fn finish_close(&mut self, hub: &mut Hub, id: ConsumerId) {
        let Some(handle) = self.handles.get(id.0).filter(|h| h.is_closing()) else { return };
        let done = |slot: Slot| self.parts.get(slot).is_none_or(|p| p.closing == Closing::Done);
        let posting = handle.post.as_ref().is_some_and(|post| post.has_producer());
        if posting || !handle.slots().all(done) {
            return;
        }
        let handle = self.handles.remove(id.0).expect("found above");
        let untold = handle.slots().filter_map(|s| self.parts.remove(s)).map(|p| p.untold_acks()).sum();
        let error = handle.outcome(untold);
        hub.note_end(error.as_ref());
        hub.event(Event::Closed(HandleId::Consumer(id), error));
    }
}
