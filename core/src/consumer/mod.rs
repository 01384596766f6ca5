//! Consumers and readers: from a broker's MESSAGE to the application, and its acknowledgement back.
//!
//! Decides which message is next, what each one costs in permits, what an acknowledgement means for its entry and where
//! reading continues after a loss or a seek. Refuses to know how a broker is found (`attach.rs`) or bytes are written
//! (`connection/`).
//!
//! ```text
//! Consumers ─ Handle (a topic) ─┬─ Part (a partition) ─┬─ intake → queue → receive      what arrives
//!             operation         │                      ├─ permits                      what may arrive
//!                               └─ Part …              ├─ acks, nacks                  what is told
//!                                                      └─ position, seek, last_id      where it stands
//! ```

mod acks;
mod closing;
mod handle;
mod intake;
mod last_id;
mod nacks;
mod operation;
mod part;
mod permits;
mod position;
mod queue;
mod reader;
mod seek;
mod subscribe;
mod suspects;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use crate::attach::Step;
use crate::client::topic_name;
use crate::config::{ConsumerConfig, ReaderConfig};
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner, Ticket};
use crate::io::{ConnId, ConsumerId, Event, HandleId, OpId, Position, StateChange};
use crate::lookup::{Found, Lookups, Query};
use crate::message::Message;
use crate::message_id::MessageId;
use crate::slots::{Slot, Slots};
use crate::time::Timer;
use crate::wire::command::Command;
use crate::wire::frame::Payload;
use crate::wire::proto;
use closing::Closing;
use handle::{Handle, Stage};
use operation::Operation;
use part::{Origin, Outcome, Part};
use position::normal;

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

    // Opening.

    pub(crate) fn subscribe(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ConsumerConfig,
    ) -> Result<ConsumerId, Error> {
        self.open(hub, lookups, config, false)
    }

    pub(crate) fn create_reader(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ReaderConfig,
    ) -> Result<ConsumerId, Error> {
        let config = reader::consumer_config(hub, config);
        self.open(hub, lookups, config, true)
    }

    fn open(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ConsumerConfig,
        is_reader: bool,
    ) -> Result<ConsumerId, Error> {
        config.validate()?;
        let topic = topic_name(&config.topic, "subscribing")?;
        let new = |slot| Handle::new(hub, ConsumerId(slot), config, topic, is_reader);
        let id = ConsumerId(self.handles.insert_with(new));
        self.ask_partitions(hub, lookups, id);
        Ok(id)
    }

    /// Asks how many partitions there are: at the start, and again from time to time.
    pub(crate) fn ask_partitions(&mut self, hub: &mut Hub, lookups: &mut Lookups, id: ConsumerId) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        let topic = &handle.topic;
        let doing = || format!("asking for the partitions of {}", topic.as_str());
        if let Some(error) = handle.tries.expired(hub, doing) {
            return self.close(hub, id, Some(error));
        }
        if handle.topic.partition_index().is_some() {
            return self.partitions_found(hub, lookups, id, Ok(Found::Partitions(0)));
        }
        let ticket = Ticket { owner: Owner::Handle(HandleId::Consumer(id)), attempt: 0 };
        let query = Query::Partitions(handle.topic.as_str().to_owned());
        lookups.ask(hub, ticket, query, handle.tries.timeout(hub));
    }

    pub(crate) fn partitions_found(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        id: ConsumerId,
        result: Result<Found, Error>,
    ) {
        let Some(handle) = self.handles.get_mut(id.0).filter(|h| !h.is_closing()) else { return };
        let count = match result {
            Ok(Found::Partitions(count)) => count,
            Ok(_) => return,
            Err(error) => match handle.tries.again(hub, &error) {
                Some(delay) => {
                    return hub.set_timer(Timer::Retry(Owner::Handle(HandleId::Consumer(id))), delay);
                }
                // An open consumer lives on with the partitions it has.
                None if !handle.parts.is_empty() => return self.plan_partitions_update(hub, id),
                None => {
                    let error = handle.tries.verdict(error);
                    return self.close(hub, id, Some(error));
                }
            },
        };
        let late = !handle.parts.is_empty();
        handle.tries.success();
        handle.partitioned |= count > 0;
        let start = handle.config.start_position.map(normal);
        if count > 0 && matches!(start, Some(Position::Id(_))) {
            let doing = format!("reading {}", handle.topic.as_str());
            let why = "a message id is a start on one partition only: read that, or start elsewhere and seek";
            return self.close(hub, id, Some(Error::new(ErrorKind::InvalidConfiguration, doing, why)));
        }
        // A smaller count never takes parts away, as in every client: it means that the topic is being recreated.
        let want = if handle.partitioned { count } else { 1 };
        self.add_parts(hub, lookups, id, want, late);
        if count > 0 || late {
            self.plan_partitions_update(hub, id);
        }
    }

    /// Adds the parts that are missing up to `count`.
    fn add_parts(&mut self, hub: &mut Hub, lookups: &mut Lookups, id: ConsumerId, count: u32, late: bool) {
        let Consumers { handles, parts, .. } = self;
        let Some(handle) = handles.get_mut(id.0) else { return };
        if handle.parts.len() < count as usize {
            handle.parts.resize(count as usize, None);
        }
        let queue_size = handle.queue_size(handle.parts.len() as u32);
        for slot in handle.slots() {
            if let Some(part) = parts.get_mut(slot) {
                part.resize(queue_size);
            }
        }
        for index in 0..count {
            if handle.parts[index as usize].is_some() {
                continue;
            }
            let origin = Origin {
                parent: id,
                topic: if handle.partitioned { handle.topic.partition(index) } else { handle.topic.clone() },
                config: handle.config.clone(),
                late,
                auto_ack: handle.is_reader,
                queue_size,
            };
            let slot = parts.insert_with(|slot| Part::new(hub, slot, origin));
            handle.parts[index as usize] = Some(slot);
            let part = parts.get_mut(slot).expect("just inserted");
            part.set_paused(hub, handle.paused);
            part.set_wanted(hub, handle.wanted);
            if !late {
                part.attach.tries.end_with(&handle.tries);
            }
            part.attach.start(hub, lookups);
        }
    }

    fn plan_partitions_update(&self, hub: &mut Hub, id: ConsumerId) {
        let interval = hub.config.partitions_update_interval;
        if !interval.is_zero() {
            hub.set_timer(Timer::Partitions(HandleId::Consumer(id)), interval);
        }
    }

    // What happens to parts.

    pub(crate) fn looked_up(
        &mut self,
        hub: &mut Hub,
        part: Slot,
        ticket: Ticket,
        result: Result<Found, Error>,
    ) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let step = p.attach.looked_up(hub, ticket, result);
        self.step(hub, part, step);
    }

    pub(crate) fn connection(
        &mut self,
        hub: &mut Hub,
        part: Slot,
        ticket: Ticket,
        result: Result<ConnId, Error>,
    ) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let step = p.attach.connected(hub, ticket, result);
        self.step(hub, part, step);
    }

    pub(crate) fn lost(&mut self, hub: &mut Hub, part: Slot, id: ConnId, error: Error) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let step = p.attach.lost(hub, id, error);
        self.step(hub, part, step);
    }

    pub(crate) fn retry(&mut self, hub: &mut Hub, lookups: &mut Lookups, part: Slot) {
        let Some(p) = self.parts.get_mut(part) else { return };
        match p.holds_attachment() {
            true => p.held = true,
            false => p.attach.retry(hub, lookups),
        }
    }

    pub(crate) fn opening_timed_out(&mut self, hub: &mut Hub, part: Slot) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let registered = p.attach.registered();
        let step = p.attach.opening_timed_out(hub);
        if let (Some(id), Step::Failed(_)) = (registered, &step) {
            p.undo(hub, id);
        }
        self.step(hub, part, step);
    }

    pub(crate) fn migrated(&mut self, part: Slot, url: Option<&str>, tls: bool) {
        if let Some(p) = self.parts.get_mut(part) {
            p.attach.migrated(url, tls);
        }
    }

    pub(crate) fn answered(
        &mut self,
        hub: &mut Hub,
        part: Slot,
        ticket: Ticket,
        kind: RequestKind,
        id: ConnId,
        result: Result<Command, Error>,
    ) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let outcome = match kind {
            RequestKind::CloseConsumer => return self.close_answered(hub, part, result),
            RequestKind::Subscribe if p.attach.is_current(ticket) => p.subscribed(hub, id, result),
            RequestKind::Seek => p.seek_answered(hub, id, ticket, result),
            RequestKind::LastMessageId => return self.last_id_answered(hub, part, ticket, result),
            RequestKind::Unsubscribe => return self.unsubscribe_answered(hub, part, result),
            _ => return,
        };
        self.apply(hub, part, outcome);
    }

    fn last_id_answered(
        &mut self,
        hub: &mut Hub,
        part: Slot,
        ticket: Ticket,
        result: Result<Command, Error>,
    ) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let ends = p.read_last_id(result);
        if p.pinned(ticket, &ends) {
            return;
        }
        match p.located(hub, ticket, &ends) {
            Some(outcome) => self.apply(hub, part, outcome),
            None => {
                for op in p.last_id_answered(hub, &ends) {
                    self.ends_found(hub, op, part, ends.clone());
                }
            }
        }
    }

    fn unsubscribe_answered(&mut self, hub: &mut Hub, part: Slot, result: Result<Command, Error>) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let Some(op) = p.unsubscribing else { return };
        let result = match result {
            Ok(_) => {
                // The broker has dropped the consumer with the subscription.
                p.end(hub);
                Ok(())
            }
            // Asked again on the next connection.
            Err(error) if error.is_link() => return,
            Err(error) => Err(error.while_doing(format!("unsubscribing from {}", p.topic.as_str()))),
        };
        p.unsubscribing = None;
        self.part_answered(hub, op, part, result);
    }

    pub(crate) fn closed_by_broker(
        &mut self,
        hub: &mut Hub,
        id: ConnId,
        close: &proto::CommandCloseConsumer,
    ) {
        let part = Slot::from_u64(close.consumer_id);
        let Some(p) = self.parts.get_mut(part) else { return };
        if p.attach.registered() != Some(id) {
            return;
        }
        let tls = hub.config.service_url.tls();
        let url =
            if tls { &close.assigned_broker_service_url_tls } else { &close.assigned_broker_service_url };
        let doing = format!("consuming from {}", p.topic.as_str());
        let error = Error::new(ErrorKind::Disconnected, doing, "the broker closed the consumer");
        let step = p.attach.moved(hub, url.as_deref(), error);
        self.step(hub, part, step);
    }

    /// Gives what a part reports its effect.
    fn apply(&mut self, hub: &mut Hub, part: Slot, outcome: Outcome) {
        let Outcome { step, serving, op } = outcome;
        if serving {
            self.serving(hub, part);
        }
        self.step(hub, part, step);
        if let Some((op, result)) = op {
            self.part_answered(hub, op, part, result);
        }
        self.list(hub, part);
    }

    /// A part is served: opens the consumer when it was the last one to wait for.
    fn serving(&mut self, hub: &mut Hub, part: Slot) {
        let Consumers { handles, parts, .. } = self;
        let Some(p) = parts.get_mut(part) else { return };
        p.opened = true;
        let (was_down, topic, id) = (std::mem::take(&mut p.down), p.topic.clone(), p.parent);
        let Some(handle) = handles.get_mut(id.0) else { return };
        if was_down && handle.is_open() {
            let topic = topic.as_str().to_owned();
            hub.event(Event::State(HandleId::Consumer(id), StateChange::Connected { topic }));
        }
        let opened = |slot: Option<Slot>| slot.is_some_and(|s| parts.get(s).is_some_and(|p| p.opened));
        if matches!(handle.stage, Stage::Opening) && handle.parts.iter().all(|s| opened(*s)) {
            handle.stage = Stage::Open;
            hub.event(Event::Opened(HandleId::Consumer(id)));
            self.start_parked(hub, id);
            let slots: Vec<_> = self.handles.get(id.0).into_iter().flat_map(Handle::slots).collect();
            for slot in slots {
                self.list(hub, slot);
            }
        }
    }

    fn step(&mut self, hub: &mut Hub, part: Slot, step: Step) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let Some(handle) = self.handles.get_mut(p.parent.0) else { return };
        match step {
            Step::Nothing => {}
            Step::Request(id) => p.request(hub, id),
            Step::Retrying(reason) => {
                // A seek makes the broker close the consumer, which is no news.
                if handle.is_open() && p.opened && !p.expects_close() {
                    p.down = true;
                    let topic = p.topic.as_str().to_owned();
                    let change = StateChange::Reconnecting { topic, reason };
                    hub.event(Event::State(HandleId::Consumer(handle.id), change));
                }
            }
            Step::Failed(error) => self.part_failed(hub, part, error),
        }
    }

    /// A part gives up. While the consumer opens, that is its end; later a partition is one among others, and it is looked
    /// for again with the next update of the partition count.
    fn part_failed(&mut self, hub: &mut Hub, part: Slot, error: Error) {
        let Some(p) = self.parts.get(part) else { return };
        if matches!(p.closing, Closing::Telling(_)) {
            return self.close_given_up(hub, part, error);
        }
        let id = p.parent;
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        let others = handle.slots().any(|slot| slot != part);
        let recreated = error.kind() == ErrorKind::TopicNotFound;
        if !handle.is_open() || !handle.partitioned || !(others || recreated) {
            return self.close(hub, id, Some(error));
        }
        for slot in handle.parts.iter_mut().filter(|slot| **slot == Some(part)) {
            *slot = None;
        }
        let topic = p.topic.as_str().to_owned();
        let change = StateChange::Reconnecting { topic, reason: error.clone() };
        hub.event(Event::State(HandleId::Consumer(id), change));
        if let Some(mut p) = self.parts.remove(part) {
            p.end(hub);
        }
        self.plan_partitions_update(hub, id);
        let waiting: Vec<_> = self.operations.keys().copied().collect();
        for op in waiting {
            self.part_gone(hub, op, part, &error);
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
