//! Producers: from a message to its receipt.
//!
//! Decides how messages become SENDs, which of them are written when, and what each receipt, error, loss or deadline means
//! for them. Refuses to know how a broker is found (`attach.rs`) or bytes are written (`connection/`).

mod batch;
mod handle;
mod part;
mod pending;
mod routing;
mod send;
mod view;

use bytes::Bytes;

use crate::attach::{Attach, Attached, Step, Urls, unconfirmed};
use crate::client::topic_name;
use crate::config::ProducerConfig;
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner, Ticket};
use crate::io::{ConnId, ConsumerId, Event, HandleId, ProducerId, StateChange};
use crate::lookup::{Found, Lookups};
use crate::slots::{Slot, Slots};
use crate::time::Timer;
use crate::wire::command::Command;
use crate::wire::proto;
use handle::{Handle, Stage};
use part::Part;

pub use send::SendError;
pub use view::Producer;

/// All producers of a client, and their parts.
#[derive(Debug)]
pub(crate) struct Producers {
    handles: Slots<Handle>,
    parts: Slots<Part>,
}

impl Producers {
    pub(crate) fn new() -> Self {
        Producers { handles: Slots::new(), parts: Slots::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    pub(crate) fn contains(&self, id: ProducerId) -> bool {
        self.handles.get(id.0).is_some()
    }

    pub(crate) fn pending_messages(&self) -> usize {
        self.handles.iter().map(|(_, h)| h.pending).sum()
    }

    pub(crate) fn check_invariants(&self, hub: &Hub) {
        let held: usize = self
            .parts
            .iter()
            .map(|(_, p)| p.pending.iter().map(|op| op.memory).sum::<usize>() + p.batch.memory())
            .sum();
        assert_eq!(held, hub.memory.used(), "memory reserved is memory held");
        for (_, handle) in self.handles.iter() {
            let messages =
                |p: &Part| p.pending.iter().map(|op| op.count as usize).sum::<usize>() + p.batch.count();
            let held: usize = handle.parts.iter().filter_map(|s| self.parts.get(*s)).map(messages).sum();
            assert_eq!(
                held,
                handle.pending,
                "messages counted are messages held by {}",
                handle.topic.as_str()
            );
        }
    }

    // Opening.

    pub(crate) fn create(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ProducerConfig,
    ) -> Result<ProducerId, Error> {
        self.create_for(hub, lookups, config, None)
    }

    /// Creates a producer for the application, or one that a consumer has for itself.
    pub(crate) fn create_for(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ProducerConfig,
        owner: Option<ConsumerId>,
    ) -> Result<ProducerId, Error> {
        config.validate()?;
        let topic = topic_name(&config.topic, "creating a producer")?;
        let slot = self.handles.insert_with(|slot| Handle::new(hub, ProducerId(slot), config, topic));
        let id = ProducerId(slot);
        if let Some(owner) = owner {
            hub.own_producers.insert(id, owner);
        }
        self.ask_partitions(hub, lookups, id);
        Ok(id)
    }

    /// Asks how many partitions there are: at the start, and again from time to time.
    pub(crate) fn ask_partitions(&mut self, hub: &mut Hub, lookups: &mut Lookups, id: ProducerId) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        match lookups.ask_partitions(hub, HandleId::Producer(id), &handle.topic, &handle.tries) {
            None => {}
            Some(Err(error)) => self.close(hub, id, Some(error)),
            Some(found) => self.partitions_found(hub, lookups, id, found),
        }
    }

    pub(crate) fn partitions_found(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        id: ProducerId,
        result: Result<Found, Error>,
    ) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        if handle.is_closing() {
            return;
        }
        let count = match result {
            Ok(Found::Partitions(count)) => count,
            Ok(_) => return,
            Err(error) => match handle.tries.again(hub, &error) {
                Some(delay) => {
                    return hub.set_timer(Timer::Retry(Owner::Handle(HandleId::Producer(id))), delay);
                }
                // An open producer lives on with the partitions it has.
                None if handle.is_open() => return hub.plan_partitions_update(HandleId::Producer(id)),
                None => {
                    let error = handle.tries.verdict(error);
                    return self.close(hub, id, Some(error));
                }
            },
        };
        handle.tries.success();
        let (have, want) = (handle.parts.len() as u32, count.max(1));
        // A smaller count never takes producers away, as in every client: it means that a topic is being recreated.
        for index in have..want {
            let topic = &handle.topic;
            let slot = self.parts.insert_with(|slot| Part::new(hub, slot, id, index, topic, count > 0));
            handle.parts.push(slot);
            let attach = &mut self.parts.get_mut(slot).expect("just inserted").attach;
            if !handle.is_open() {
                attach.tries.end_with(&handle.tries);
            }
            attach.start(hub, lookups);
        }
        if count > 0 {
            hub.plan_partitions_update(HandleId::Producer(id));
        }
    }

    // What happens to parts.

    pub(crate) fn retry(&mut self, hub: &mut Hub, lookups: &mut Lookups, part: Slot) {
        if let Some(p) = self.parts.get_mut(part) {
            p.attach.retry(hub, lookups);
        }
    }

    /// The broker queued this producer behind the exclusive one: its turn has no deadline.
    pub(crate) fn queued(&mut self, hub: &mut Hub, part: Slot) {
        if let Some(p) = self.parts.get_mut(part) {
            p.attach.unbound(hub);
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
        if kind == RequestKind::CloseProducer {
            p.closed = true;
            let parent = p.parent;
            let unconfirmed = unconfirmed(result, || format!("closing the producer of {}", p.identity.topic));
            if let Some(Stage::Closing(outcome @ None)) = self.handles.get_mut(parent.0).map(|h| &mut h.stage)
            {
                *outcome = unconfirmed;
            }
            return self.finish_close(hub, parent);
        }
        if !p.attach.is_current(ticket) {
            return;
        }
        match result {
            Ok(Command::ProducerSuccess(success)) => self.opened(hub, part, id, &success),
            Ok(other) => {
                let why = format!("the broker answered PRODUCER with {}", other.name());
                let step = p.attach.failed(hub, Error::new(ErrorKind::UnknownError, "", why));
                self.step(hub, part, step);
            }
            Err(error) => {
                if error.kind() == ErrorKind::Timeout {
                    // The broker may have created it all the same.
                    p.undo(hub, id);
                }
                let error = error.while_doing(format!("creating a producer on {}", p.identity.topic));
                let quota = error.kind() == ErrorKind::ProducerBlockedQuotaExceededException;
                let step = p.attach.failed(hub, error.clone());
                if quota {
                    self.fail_pending(hub, part, &error);
                }
                self.step(hub, part, step);
            }
        }
    }

    fn opened(&mut self, hub: &mut Hub, part: Slot, id: ConnId, success: &proto::CommandProducerSuccess) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let Some(handle) = self.handles.get_mut(p.parent.0) else { return };
        let topic = p.identity.topic.to_string();
        let refused = p.opened(hub, id, success, &handle.config.clone());
        let identity = &p.identity;
        let errors: Vec<_> = refused.iter().map(|op| identity.check_size(op.frame.len()).err()).collect();
        if matches!(handle.stage, Stage::Open) {
            hub.event(Event::State(HandleId::Producer(handle.id), StateChange::Connected { topic }));
        }
        for (op, error) in refused.into_iter().zip(errors) {
            let error = error.unwrap_or_else(|| Error::new(ErrorKind::MessageTooBig, "sending", ""));
            self.settle_op(hub, part, op, Err(error));
        }
        self.count_usable(hub, part);
    }

    /// Lets messages go to new partitions once all of them are open, and opens the producer the first time.
    fn count_usable(&mut self, hub: &mut Hub, part: Slot) {
        let Some(handle) = self.parts.get(part).and_then(|p| self.handles.get_mut(p.parent.0)) else {
            return;
        };
        let all = handle.parts.iter().all(|s| self.parts.get(*s).is_some_and(|p| p.attach.tries.succeeded));
        if !all {
            return;
        }
        handle.usable = handle.parts.len() as u32;
        if matches!(handle.stage, Stage::Opening) {
            handle.stage = Stage::Open;
            hub.event(Event::Opened(HandleId::Producer(handle.id)));
        }
    }

    pub(crate) fn closed_by_broker(
        &mut self,
        hub: &mut Hub,
        id: ConnId,
        close: &proto::CommandCloseProducer,
    ) {
        let part = Slot::from_u64(close.producer_id);
        let Some(p) = self.parts.get_mut(part) else { return };
        if p.attach.registered() != Some(id) {
            return;
        }
        p.unwrite(hub, id);
        let to = Urls::new(&close.assigned_broker_service_url, &close.assigned_broker_service_url_tls);
        let doing = format!("producing to {}", p.identity.topic);
        let error = Error::new(ErrorKind::Disconnected, doing, "the broker closed the producer");
        let step = p.attach.moved(hub, to, error);
        self.step(hub, part, step);
    }

    fn drop_unusable(&mut self, hub: &mut Hub, id: ProducerId) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        for slot in handle.parts.split_off(handle.usable as usize) {
            if let Some(mut p) = self.parts.remove(slot) {
                if let Some(conn) = p.attach.registered() {
                    p.undo(hub, conn);
                }
                p.attach.end(hub);
            }
        }
        hub.plan_partitions_update(HandleId::Producer(id));
    }

    // Receipts.

    pub(crate) fn receipt(&mut self, hub: &mut Hub, id: ConnId, receipt: &proto::CommandSendReceipt) {
        self.on_receipt(hub, id, receipt);
    }

    /// The next frame of a part for this connection.
    pub(crate) fn next_send(&mut self, id: ConnId, part: Slot) -> Option<(Bytes, Bytes)> {
        let p = self.parts.get_mut(part).filter(|p| p.attach.connection() == Some(id))?;
        p.pending.next_frame().map(|frame| (frame.head.clone(), frame.body.clone()))
    }

    // Deadlines.

    pub(crate) fn batch_delay(&mut self, hub: &mut Hub, part: Slot) {
        self.close_batch(hub, part);
    }

    // The end.

    /// Closes the application's producers. Those that consumers have for themselves end with them.
    pub(crate) fn close_all(&mut self, hub: &mut Hub) {
        for id in self.handles.keys().into_iter().map(ProducerId) {
            if !hub.own_producers.contains_key(&id) {
                self.close(hub, id, None);
            }
        }
    }

    /// Ends a producer: pending messages fail, brokers are told, and `Closed` follows when they answered.
    pub(crate) fn close(&mut self, hub: &mut Hub, id: ProducerId, error: Option<Error>) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        if handle.is_closing() {
            return;
        }
        let cause = error.clone().unwrap_or_else(|| {
            Error::new(
                ErrorKind::AlreadyClosed,
                format!("sending to {}", handle.topic.as_str()),
                "the producer was closed",
            )
        });
        handle.stage = Stage::Closing(error);
        handle.refused = false;
        hub.memory_waiters.remove(&id);
        hub.timers.cancel(Timer::Partitions(HandleId::Producer(id)));
        hub.timers.cancel(Timer::Retry(Owner::Handle(HandleId::Producer(id))));
        for slot in handle.parts.clone() {
            if let Some(p) = self.parts.get_mut(slot) {
                p.close(hub);
            }
            self.fail_pending(hub, slot, &cause);
        }
        self.finish_close(hub, id);
    }

    /// Ends a producer that takes too long to open, with what was in the way where that is known.
    pub(crate) fn give_up(&mut self, hub: &mut Hub, id: ProducerId, error: Error) {
        let Some(handle) = self.handles.get(id.0) else { return };
        let mut parts = handle.parts.iter().filter_map(|slot| self.parts.get(*slot));
        let error = match parts.find(|p| !p.attach.tries.succeeded) {
            Some(part) => part.attach.tries.verdict(error),
            None => handle.tries.verdict(error),
        };
        self.close(hub, id, Some(error));
    }

    fn finish_close(&mut self, hub: &mut Hub, id: ProducerId) {
        let Some(handle) = self.handles.get(id.0).filter(|h| h.is_closing()) else { return };
        let done = |s: &Slot| self.parts.get(*s).is_none_or(|p| p.closed);
        if !handle.parts.iter().all(done) {
            return;
        }
        let handle = self.handles.remove(id.0).expect("found above");
        for slot in handle.parts {
            self.parts.remove(slot);
        }
        let Stage::Closing(error) = handle.stage else { return };
        hub.note_end(error.as_ref());
        hub.event(Event::Closed(HandleId::Producer(id), error));
    }
}

impl Attached for Producers {
    fn attach_of(&mut self, part: Slot) -> Option<&mut Attach> {
        self.parts.get_mut(part).map(|p| &mut p.attach)
    }

    fn step(&mut self, hub: &mut Hub, part: Slot, step: Step) {
        let Some(p) = self.parts.get_mut(part) else { return };
        let Some(handle) = self.handles.get_mut(p.parent.0) else { return };
        match step {
            Step::Nothing => {}
            Step::Request(id) => p.request(hub, id, &handle.config.clone()),
            Step::Retrying(reason) => {
                if handle.is_open() && p.attach.tries.succeeded {
                    let topic = p.identity.topic.to_string();
                    hub.event(Event::State(
                        HandleId::Producer(handle.id),
                        StateChange::Reconnecting { topic, reason },
                    ));
                }
            }
            Step::Failed(error) => {
                let (id, index) = (handle.id, p.index);
                if handle.is_open() && index >= handle.usable {
                    // A new partition that cannot be had yet is no reason to lose the others: ask again later.
                    return self.drop_unusable(hub, id);
                }
                self.close(hub, id, Some(error));
            }
        }
    }

    fn undo(&mut self, hub: &mut Hub, part: Slot, id: ConnId) {
        if let Some(p) = self.parts.get(part) {
            p.undo(hub, id);
        }
    }
}
