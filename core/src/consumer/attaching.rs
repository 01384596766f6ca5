//! What brokers answer to a consumer's parts, and what becomes of the whole when a part is served, lost or refused.
//!
//! Decides when a consumer counts as open, and whether it ends with a part or lives on without.

use super::Consumers;
use super::closing::Closing;
use super::handle::{Handle, Stage};
use super::part::Outcome;
use crate::attach::{Attach, Attached, Step, Urls};
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Ticket};
use crate::io::{ConnId, Event, HandleId, StateChange};
use crate::lookup::Lookups;
use crate::slots::Slot;
use crate::wire::command::Command;
use crate::wire::proto;

impl Consumers {
    pub(crate) fn retry(&mut self, hub: &mut Hub, lookups: &mut Lookups, part: Slot) {
        let Some(p) = self.parts.get_mut(part) else { return };
        match p.holds_attachment() {
            true => p.held = true,
            false => p.attach.retry(hub, lookups),
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
        let to = Urls::new(&close.assigned_broker_service_url, &close.assigned_broker_service_url_tls);
        let doing = format!("consuming from {}", p.topic.as_str());
        let error = Error::new(ErrorKind::Disconnected, doing, "the broker closed the consumer");
        let step = p.attach.moved(hub, to, error);
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
        hub.plan_partitions_update(HandleId::Consumer(id));
        let waiting: Vec<_> = self.operations.keys().copied().collect();
        for op in waiting {
            self.part_gone(hub, op, part, &error);
        }
    }
}

impl Attached for Consumers {
    fn attach_of(&mut self, part: Slot) -> Option<&mut Attach> {
        self.parts.get_mut(part).map(|p| &mut p.attach)
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

    fn undo(&mut self, hub: &mut Hub, part: Slot, id: ConnId) {
        if let Some(p) = self.parts.get(part) {
            p.undo(hub, id);
        }
    }
}
