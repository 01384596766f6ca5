//! Operations over all partitions of a consumer: seek, unsubscribe, last message ids, "is there more?".
//!
//! Decides when the answers of the parts make an answer. Each operation ends exactly once, by the operation timeout at the
//! latest.

use super::Consumers;
use super::closing::Closing;
use super::last_id::Ends;
use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::io::{ConsumerId, Event, OpId, Position, Reply};
use crate::message_id::MessageId;
use crate::slots::Slot;
use crate::time::Timer;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Seek(Position),
    Unsubscribe,
    LastMessageIds,
    Available,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Operation {
    handle: ConsumerId,
    kind: Kind,
    /// Parts without answer.
    waiting: Vec<Slot>,
    error: Option<Error>,
    ids: Vec<MessageId>,
}

impl Consumers {
    /// Starts an operation. It may end at once; its event comes with the next `poll` either way.
    pub(super) fn operate(&mut self, hub: &mut Hub, id: ConsumerId, kind: Kind) -> OpId {
        let op = hub.operation();
        let operation = Operation { handle: id, kind, waiting: Vec::new(), error: None, ids: Vec::new() };
        let is_seek = |kind: Kind| matches!(kind, Kind::Seek(_));
        let second = is_seek(kind) && self.operations.values().any(|o| o.handle == id && is_seek(o.kind));
        self.operations.insert(op, operation);
        hub.set_timer(Timer::Operation(op), hub.config.operation_timeout);
        if second {
            let error = Error::new(ErrorKind::NotAllowedError, "seeking", "another seek is under way");
            self.complete(hub, op, Err(error));
            return op;
        }
        match self.handles.get_mut(id.0) {
            Some(handle) if handle.is_open() => self.start(hub, op),
            Some(handle) => handle.parked.push((op, kind)),
            None => self.complete(hub, op, Err(Error::new(ErrorKind::AlreadyClosed, "", ""))),
        }
        op
    }

    /// Begins what had to wait for the consumer to open.
    pub(super) fn start_parked(&mut self, hub: &mut Hub, id: ConsumerId) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        for (op, _) in std::mem::take(&mut handle.parked) {
            self.start(hub, op);
        }
    }

    fn start(&mut self, hub: &mut Hub, op: OpId) {
        let Consumers { handles, parts, operations } = self;
        let Some(operation) = operations.get_mut(&op) else { return };
        let Some(handle) = handles.get(operation.handle.0) else { return };
        let kind = operation.kind;
        operation.waiting = match kind {
            Kind::Seek(Position::Id(id)) => {
                let checked = handle.part_of(&id).and_then(|slot| {
                    parts.get(slot).map_or(Ok(()), |part| part.check_member(&id, "seeking to")).map(|()| slot)
                });
                match checked {
                    Ok(slot) => vec![slot],
                    Err(error) => return self.complete(hub, op, Err(error)),
                }
            }
            // A partition whose subscription is gone already was unsubscribed by an earlier try.
            Kind::Unsubscribe => {
                let is_there = |slot: &Slot| parts.get(*slot).is_some_and(|p| p.closing == Closing::No);
                handle.slots().filter(is_there).collect()
            }
            _ => handle.slots().collect(),
        };
        if kind == Kind::Available && self.is_known_available(op) {
            return self.complete(hub, op, Ok(Reply::Available(true)));
        }
        let Some(operation) = self.operations.get(&op) else { return };
        let waiting = operation.waiting.clone();
        if waiting.is_empty() {
            let error = Error::new(ErrorKind::NotConnected, "", "no partition is available");
            return self.complete(hub, op, Err(error));
        }
        if let (Kind::Seek(_), Some(handle)) = (kind, self.handles.get_mut(operation.handle.0)) {
            handle.seeking = Some(op);
        }
        for slot in waiting {
            let Some(part) = self.parts.get_mut(slot) else { continue };
            match kind {
                Kind::Seek(to) => part.begin_seek(hub, op, to),
                Kind::Unsubscribe => part.unsubscribe(hub, op),
                Kind::LastMessageIds | Kind::Available => part.want_last_id(hub, op),
            }
        }
    }

    /// Whether the queue or an earlier answer says that there is more.
    fn is_known_available(&self, op: OpId) -> bool {
        let Some(operation) = self.operations.get(&op) else { return false };
        operation.waiting.iter().filter_map(|slot| self.parts.get(*slot)).any(|part| {
            let known = part
                .last_id
                .cached
                .filter(|_| part.seek.is_none() && part.reading.is_comparable(part.durable));
            part.has_message() || known.is_some_and(|last| part.reading.has_more(last, None))
        })
    }

    /// A part has done its share, or failed.
    pub(super) fn part_answered(&mut self, hub: &mut Hub, op: OpId, slot: Slot, result: Result<(), Error>) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        operation.waiting.retain(|s| *s != slot);
        if let Err(error) = result {
            operation.error.get_or_insert(error);
        }
        if !operation.waiting.is_empty() {
            return;
        }
        if let Some(error) = operation.error.take() {
            return self.complete(hub, op, Err(error));
        }
        let reply = match operation.kind {
            Kind::Seek(_) | Kind::Unsubscribe => Reply::Done,
            Kind::LastMessageIds => {
                operation.ids.sort_by_key(|id| id.partition);
                Reply::LastMessageIds(std::mem::take(&mut operation.ids))
            }
            Kind::Available => Reply::Available(false),
        };
        let (kind, handle) = (operation.kind, operation.handle);
        self.complete(hub, op, Ok(reply));
        if kind == Kind::Unsubscribe {
            self.close(hub, handle, None);
        }
    }

    /// The last message id of a part came.
    pub(super) fn ends_found(&mut self, hub: &mut Hub, op: OpId, slot: Slot, ends: Result<Ends, Error>) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        let Some(part) = self.parts.get(slot) else { return };
        let result = match (ends, operation.kind) {
            (Ok(ends), Kind::Available) => {
                if part.has_message() || part.reading.has_more(ends.last, ends.mark_delete) {
                    return self.complete(hub, op, Ok(Reply::Available(true)));
                }
                Ok(())
            }
            (Ok(ends), _) => {
                operation.ids.push(ends.last);
                Ok(())
            }
            (Err(error), _) => {
                let doing = format!("asking for the last message of {}", part.topic.as_str());
                Err(error.while_doing(doing))
            }
        };
        self.part_answered(hub, op, slot, result);
    }

    /// A part is gone for now, and with it its answers.
    pub(super) fn part_gone(&mut self, hub: &mut Hub, op: OpId, slot: Slot, error: &Error) {
        if self.operations.get(&op).is_some_and(|o| o.waiting.contains(&slot)) {
            self.part_answered(hub, op, slot, Err(error.clone()));
        }
    }

    pub(crate) fn operation_timed_out(&mut self, hub: &mut Hub, op: OpId) {
        let why = format!("not done within {:?}", hub.config.operation_timeout);
        self.abandon(hub, op, Error::new(ErrorKind::Timeout, "", why));
    }

    /// Ends every operation of a consumer that ends.
    pub(super) fn abandon_all(&mut self, hub: &mut Hub, id: ConsumerId, error: &Error) {
        let ops: Vec<_> = self.operations.iter().filter(|(_, o)| o.handle == id).map(|(op, _)| *op).collect();
        for op in ops {
            self.abandon(hub, op, error.clone());
        }
    }

    fn abandon(&mut self, hub: &mut Hub, op: OpId, error: Error) {
        let Some(operation) = self.operations.get(&op) else { return };
        let doing = match operation.kind {
            Kind::Seek(_) => "seeking",
            Kind::Unsubscribe => "unsubscribing",
            Kind::LastMessageIds => "asking for the last message",
            Kind::Available => "asking whether there is a message",
        };
        self.complete(hub, op, Err(error.while_doing(doing)));
    }

    fn complete(&mut self, hub: &mut Hub, op: OpId, result: Result<Reply, Error>) {
        let Some(operation) = self.operations.remove(&op) else { return };
        hub.timers.cancel(Timer::Operation(op));
        for slot in operation.waiting {
            let Some(part) = self.parts.get_mut(slot) else { continue };
            match operation.kind {
                Kind::Seek(_) => part.cancel_seek(hub, op),
                Kind::Unsubscribe => {
                    part.unsubscribing.take_if(|o| *o == op);
                }
                Kind::LastMessageIds | Kind::Available => part.forget_last_id(op),
            }
            self.list(hub, slot);
        }
        if let Some(handle) = self.handles.get_mut(operation.handle.0) {
            handle.parked.retain(|(parked, _)| *parked != op);
            if handle.seeking.take_if(|o| *o == op).is_some() {
                for slot in handle.slots().collect::<Vec<_>>() {
                    self.list(hub, slot);
                }
            }
        }
        hub.event(Event::Completed(op, result));
    }
}
