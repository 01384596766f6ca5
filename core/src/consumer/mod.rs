//! Consumers and readers: from a broker's MESSAGE to the application, and its acknowledgement back.
//!
//! Decides which message is next, what each one costs in permits, what an acknowledgement means for its entry and where
//! reading continues after a loss or a seek. Refuses to know how a broker is found (`attach.rs`) or bytes are written
//! (`connection/`).
//!
//! ```text
//! Consumers ─ Handle (a topic) ─┬─ Part (a partition) ─┬─ receiving: intake → queue     what arrives
//! opening, attaching, closing   │                      ├─ permits                       what may arrive
//! operation                     └─ Part …              ├─ acknowledging: acks           what is told
//!                                                      ├─ redelivery: nacks             what comes again
//!                                                      ├─ post: dead_letters            what comes no more
//!                                                      └─ position, seek, last_id       where it stands
//! ```

mod acknowledging;
mod acks;
mod attaching;
mod closing;
mod dead_letters;
mod handle;
mod intake;
mod last_id;
mod nacks;
mod opening;
mod operation;
mod part;
mod permits;
mod position;
mod post;
mod queue;
mod reader;
mod receiving;
mod redelivery;
mod seek;
mod subscribe;
mod suspects;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::io::{ConnId, ConsumerId, Event, HandleId, OpId, StateChange};
use crate::message::Message;
use crate::message_id::MessageId;
use crate::slots::{Slot, Slots};
use crate::wire::frame::Payload;
use crate::wire::proto;
use handle::Handle;
use operation::Operation;
use part::Part;

pub use view::Consumer;

/// An entry of one partition: ledger and entry, which order it.
pub(crate) type EntryId = (i64, i64);

/// All consumers and readers of a client, and their parts.
#[derive(Debug)]
pub(crate) struct Consumers {
    handles: Slots<Handle>,
    parts: Slots<Part>,
    operations: BTreeMap<OpId, Operation>,
}

impl Consumers {
    pub(crate) fn new() -> Self {
        Consumers { handles: Slots::new(), parts: Slots::new(), operations: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether the application may still use it.
    pub(crate) fn contains(&self, id: ConsumerId) -> bool {
        self.handles.get(id.0).is_some_and(|h| !h.is_closing())
    }

    pub(crate) fn check_invariants(&self) {
        for (_, part) in self.parts.iter() {
            part.check_invariants();
        }
    }

    // Receiving.

    pub(crate) fn message(
        &mut self,
        hub: &mut Hub,
        conn: ConnId,
        message: proto::CommandMessage,
        payload: Payload,
    ) {
        let part = Slot::from_u64(message.consumer_id);
        let Some(p) = self.parts.get_mut(part) else { return };
        p.message(hub, conn, &message, payload);
        self.list(hub, part);
    }

    /// Puts a part with messages in line, and tells an application that waits.
    fn list(&mut self, hub: &mut Hub, part: Slot) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let Some(handle) = self.handles.get_mut(p.parent.0) else { return };
        if !p.has_message() {
            return;
        }
        if !p.listed {
            p.listed = true;
            handle.ready.push_back(part);
        }
        if handle.armed && handle.delivers() {
            handle.armed = false;
            hub.event(Event::Readable(handle.id));
        }
    }

    #[inline]
    fn receive(&mut self, hub: &mut Hub, id: ConsumerId) -> Option<Message> {
        let handle = self.handles.get_mut(id.0)?;
        while let Some(slot) = handle.ready.front().copied().filter(|_| handle.delivers()) {
            let Some(part) = self.parts.get_mut(slot) else {
                handle.ready.pop_front();
                continue;
            };
            if part.has_message() {
                if handle.wanted {
                    return self.take_wanted(hub, id);
                }
                if let Some((message, ends_entry)) = part.take(hub) {
                    if !part.has_message() {
                        part.listed = false;
                        handle.ready.pop_front();
                    } else if ends_entry && handle.ready.len() > 1 {
                        handle.ready.rotate_left(1);
                    }
                    return Some(message);
                }
            }
            part.listed = false;
            handle.ready.pop_front();
        }
        handle.armed = true;
        if handle.config.receiver_queue_size == 0 {
            handle.wanted = true;
            for slot in handle.slots() {
                if let Some(part) = self.parts.get_mut(slot) {
                    part.set_wanted(hub, true);
                }
            }
        }
        None
    }

    /// Takes the message that a queue of size 0 had asked for: no part may ask for another.
    #[cold]
    fn take_wanted(&mut self, hub: &mut Hub, id: ConsumerId) -> Option<Message> {
        let handle = self.handles.get_mut(id.0)?;
        handle.wanted = false;
        for slot in handle.slots() {
            if let Some(part) = self.parts.get_mut(slot) {
                part.set_wanted(hub, false);
            }
        }
        self.receive(hub, id)
    }

    fn set_paused(&mut self, hub: &mut Hub, id: ConsumerId, paused: bool) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        handle.paused = paused;
        for slot in handle.slots() {
            if let Some(part) = self.parts.get_mut(slot) {
                part.set_paused(hub, paused);
            }
        }
    }

    // Acknowledging.

    #[inline]
    fn part_of(&mut self, id: ConsumerId, message: &MessageId) -> Result<(&Handle, &mut Part), Error> {
        let gone = || Error::new(ErrorKind::AlreadyClosed, "acknowledging", "");
        let handle = self.handles.get(id.0).filter(|h| !h.is_closing()).ok_or_else(gone)?;
        let slot = handle.part_of(message)?;
        Ok((handle, self.parts.get_mut(slot).ok_or_else(gone)?))
    }

    #[inline]
    fn acknowledge(&mut self, hub: &mut Hub, id: ConsumerId, message: &MessageId) -> Result<(), Error> {
        let (_, part) = self.part_of(id, message)?;
        part.acknowledge(hub, message)
    }

    #[inline]
    fn acknowledge_cumulative(
        &mut self,
        hub: &mut Hub,
        id: ConsumerId,
        message: &MessageId,
    ) -> Result<(), Error> {
        let (handle, part) = self.part_of(id, message)?;
        if !handle.config.subscription_type.allows_cumulative() {
            let doing = format!("acknowledging {message} on {}", handle.topic.as_str());
            let why = format!(
                "the subscription {:?} is {:?}",
                handle.config.subscription, handle.config.subscription_type
            );
            return Err(Error::new(ErrorKind::CumulativeAcknowledgementNotAllowedError, doing, why));
        }
        part.acknowledge_cumulative(hub, message)
    }

    fn negative_acknowledge(
        &mut self,
        hub: &mut Hub,
        id: ConsumerId,
        message: &MessageId,
    ) -> Result<(), Error> {
        let (_, part) = self.part_of(id, message)?;
        part.negative_acknowledge(hub, message)
    }

    fn redeliver_unacknowledged(&mut self, hub: &mut Hub, id: ConsumerId) {
        let Some(handle) = self.handles.get(id.0) else { return };
        for slot in handle.slots() {
            if let Some(part) = self.parts.get_mut(slot) {
                part.redeliver_all(hub);
            }
        }
    }

    // News from brokers.

    /// The part that a connection speaks of, if it is the one that serves it.
    fn served(&self, conn: ConnId, wire_id: u64) -> Option<&Part> {
        self.parts.get(Slot::from_u64(wire_id)).filter(|p| p.attach.registered() == Some(conn))
    }

    pub(crate) fn active_change(
        &mut self,
        hub: &mut Hub,
        id: ConnId,
        change: &proto::CommandActiveConsumerChange,
    ) {
        if let Some(part) = self.served(id, change.consumer_id) {
            let (topic, active) = (part.topic.as_str().to_owned(), change.is_active.unwrap_or(false));
            let change = StateChange::Active { topic, active };
            hub.event(Event::State(HandleId::Consumer(part.parent), change));
        }
    }

    pub(crate) fn end_of_topic(&mut self, hub: &mut Hub, id: ConnId, end: &proto::CommandReachedEndOfTopic) {
        if let Some(part) = self.served(id, end.consumer_id) {
            let change = StateChange::EndOfTopic { topic: part.topic.as_str().to_owned() };
            hub.event(Event::State(HandleId::Consumer(part.parent), change));
        }
    }

    // Deadlines.

    pub(crate) fn ack_group(&mut self, hub: &mut Hub, part: Slot) {
        if let Some(p) = self.parts.get_mut(part) {
            p.ack_group(hub);
        }
    }

    pub(crate) fn negative_ack(&mut self, hub: &mut Hub, part: Slot) {
        if let Some(p) = self.parts.get_mut(part) {
            p.negative_ack_due(hub);
        }
    }
}
