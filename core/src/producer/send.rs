//! The way of messages through a producer: in by `send`, out by receipts, errors and deadlines.

use std::fmt;

use super::batch::Closed;
use super::handle::Stage;
use super::pending::{Op, Receipt};
use super::{Producers, part};
use crate::attach::{Attached as _, Stage as AttachStage};
use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::io::{ConnId, Event, OpId, ProducerId, Published, SendId};
use crate::message::OutgoingMessage;
use crate::message_id::MessageId;
use crate::slots::Slot;
use crate::time::Timer;
use crate::wire::proto;

/// A message that was not taken, and why.
#[derive(Debug)]
pub struct SendError {
    /// Why.
    pub error: Error,
    /// The message as it was given, boxed to keep results small.
    pub message: Box<OutgoingMessage>,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl From<SendError> for Error {
    fn from(refused: SendError) -> Self {
        refused.error
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl Producers {
    pub(crate) fn send(
        &mut self,
        hub: &mut Hub,
        id: ProducerId,
        message: OutgoingMessage,
    ) -> Result<SendId, SendError> {
        match self.take(hub, id, &message) {
            Ok(sent) => Ok(sent),
            Err(error) => Err(SendError { error, message: Box::new(message) }),
        }
    }

    #[inline]
    fn take(&mut self, hub: &mut Hub, id: ProducerId, message: &OutgoingMessage) -> Result<SendId, Error> {
        let handle = self.handles.get_mut(id.0).expect("the caller holds a view of it");
        let doing = || format!("sending to {}", handle.topic.as_str());
        match handle.stage {
            Stage::Open => {}
            Stage::Opening => {
                return Err(Error::new(ErrorKind::ProducerNotInitialized, doing(), "wait until it is open"));
            }
            Stage::Closing(_) => return Err(Error::new(ErrorKind::AlreadyClosed, doing(), "")),
        }
        if message.null_value && !message.payload.is_empty() {
            return Err(Error::new(ErrorKind::InvalidMessage, doing(), "a null value has no payload"));
        }
        if message.sequence_id.is_some_and(|s| s >= i64::MAX as u64) {
            return Err(Error::new(
                ErrorKind::InvalidMessage,
                doing(),
                "a sequence id must be below 2^63 - 1",
            ));
        }
        if !handle.has_room() {
            handle.refused = true;
            let error = Error::new(
                ErrorKind::ProducerQueueIsFull,
                format!("sending to {}", handle.topic.as_str()),
                format!("{} messages wait for their receipts", handle.pending),
            );
            // What is gathered would otherwise wait for its delay while the caller waits for room.
            self.close_batches(hub, id);
            return Err(error);
        }
        let memory = size(message);
        if !hub.memory.has_room() {
            let error = Error::new(
                ErrorKind::MemoryBufferIsFull,
                format!("sending to {}", handle.topic.as_str()),
                format!("{} bytes wait for their receipts", hub.memory.used()),
            );
            hub.memory_waiters.insert(id);
            self.close_batches(hub, id);
            return Err(error);
        }
        if handle.usable > 1 && handle.router.takes_turns(message) {
            self.make_room_in_turn(hub, id, message);
        }
        let handle = self.handles.get_mut(id.0).expect("the caller holds a view of it");
        let (usable, config) = (handle.usable, &handle.config);
        // Nothing is reserved before the message is taken: a routing function is the application's, and may panic.
        let partition = handle.router.route(message, usable)?;
        let slot = handle.parts[partition as usize];
        let part = self.parts.get_mut(slot).expect("a handle's parts live as long as it");
        let pushed = part.push(hub, message, memory, config, &mut handle.next_number)?;
        hub.memory.reserve(memory);
        handle.pending += 1;
        if pushed.left {
            handle.router.advance(partition, usable);
        }
        let sent = SendId { batch: pushed.number, index: pushed.index };
        for (closed, error) in pushed.broken {
            self.settle_broken(hub, slot, closed, error);
        }
        Ok(sent)
    }

    /// When the batch of the partition in turn has no room for `message`, it leaves, and the turn passes on with it.
    fn make_room_in_turn(&mut self, hub: &mut Hub, id: ProducerId, message: &OutgoingMessage) {
        let handle = self.handles.get(id.0).expect("the caller holds a view of it");
        let Ok(partition) = handle.router.route(message, handle.usable) else { return };
        let slot = handle.parts[partition as usize];
        if self.parts.get(slot).is_some_and(|p| p.is_full_for(message, &handle.config)) {
            self.close_batch(hub, slot);
        }
    }

    pub(crate) fn flush(&mut self, hub: &mut Hub, id: ProducerId) -> OpId {
        let handle = self.handles.get(id.0).expect("the caller holds a view of it");
        if handle.is_closing() {
            // What was sent before has failed with the close, so this cannot say that it is stored.
            let (op, doing) = (hub.operation(), format!("flushing {}", handle.topic.as_str()));
            hub.event(Event::Completed(op, Err(Error::new(ErrorKind::AlreadyClosed, doing, ""))));
            return op;
        }
        self.close_batches(hub, id);
        let oldest = self.oldest_number(id);
        let handle = self.handles.get_mut(id.0).expect("the caller holds a view of it");
        handle.flush(hub, oldest)
    }

    fn oldest_number(&self, id: ProducerId) -> Option<u64> {
        let handle = self.handles.get(id.0)?;
        handle.parts.iter().filter_map(|s| self.parts.get(*s)?.oldest_number()).min()
    }

    fn close_batches(&mut self, hub: &mut Hub, id: ProducerId) {
        let slots = self.handles.get(id.0).map(|h| h.parts.clone()).unwrap_or_default();
        for slot in slots {
            self.close_batch(hub, slot);
        }
    }

    /// Sends what a part has gathered; the turn of keyless messages moves on.
    pub(super) fn close_batch(&mut self, hub: &mut Hub, slot: Slot) {
        let Some(p) = self.parts.get_mut(slot) else { return };
        let Some(handle) = self.handles.get_mut(p.parent.0) else { return };
        if p.batch.is_empty() {
            return;
        }
        let broken = p.close_batch(hub, &handle.config);
        handle.router.advance(p.index, handle.usable.max(1));
        if let Some((closed, error)) = broken {
            self.settle_broken(hub, slot, closed, error);
        }
    }

    // Outcomes.

    pub(super) fn on_receipt(&mut self, hub: &mut Hub, id: ConnId, receipt: &proto::CommandSendReceipt) {
        let slot = Slot::from_u64(receipt.producer_id);
        let Some(p) = self.parts.get_mut(slot).filter(|p| p.attach.connection() == Some(id)) else { return };
        let written = p.pending.written() > 0;
        match p.pending.receipt(receipt.sequence_id) {
            Receipt::Head(op) => {
                // Otherwise it answers the same SEND of an earlier attachment to this connection.
                if written {
                    hub.send_answered(id);
                }
                p.last_sequence = p.last_sequence.max(op.highest_sequence as i64);
                let published = published(&op, receipt.message_id.as_ref(), p.partition);
                self.settle_op(hub, slot, op, Ok(published));
            }
            Receipt::Late => {}
            Receipt::Ahead => {
                let doing = format!("producing to {}", p.identity.topic);
                let why = format!(
                    "the receipt for sequence id {} came too early; everything is sent again",
                    receipt.sequence_id
                );
                hub.close_connection(id, &Error::new(ErrorKind::Disconnected, doing, why), true);
            }
        }
    }

    pub(crate) fn send_error(&mut self, hub: &mut Hub, id: ConnId, e: &proto::CommandSendError) {
        let slot = Slot::from_u64(e.producer_id);
        let Some(p) = self.parts.get_mut(slot).filter(|p| p.attach.connection() == Some(id)) else { return };
        let doing = format!("sending to {}", p.identity.topic);
        let error = Error::from_server(e.error, Some(&e.message), doing);
        let parent = p.parent;
        let is_head = |op: &Op| (op.first_sequence..=op.highest_sequence).contains(&e.sequence_id);
        match error.kind() {
            ErrorKind::ChecksumError => match p.pending.head() {
                Some(op) if is_head(op) && !op.frame.recompute_checksum() => {
                    hub.send_answered(id);
                    let op = p.pending.pop().expect("it has a head");
                    self.settle_op(hub, slot, op, Err(error));
                }
                // The bytes were broken on the way: the same again.
                Some(_) => {
                    p.unwrite(hub, id);
                    p.rewrite(hub, id);
                }
                None => {}
            },
            ErrorKind::NotAllowedError => {
                if p.pending.head().is_some_and(is_head) {
                    hub.send_answered(id);
                    let op = p.pending.pop().expect("it has a head");
                    self.settle_op(hub, slot, op, Err(error));
                }
            }
            ErrorKind::TopicTerminated | ErrorKind::ProducerFenced => self.close(hub, parent, Some(error)),
            _ => {
                p.unwrite(hub, id);
                let step = p.attach.failed(hub, error);
                self.step(hub, slot, step);
            }
        }
    }

    pub(crate) fn send_timeout(&mut self, hub: &mut Hub, slot: Slot) {
        let Some(p) = self.parts.get_mut(slot) else { return };
        let Some(config) = self.handles.get(p.parent.0).map(|h| h.config.clone()) else { return };
        let Some(timeout) = config.send_timeout else { return };
        let due = |at: crate::time::Mono, hub: &Hub| at + timeout <= hub.now.mono;
        let error = Error::new(
            ErrorKind::Timeout,
            format!("sending to {}", p.identity.topic),
            format!("no receipt within {timeout:?}"),
        );
        let written = p.pending.written();
        let mut given_up = Vec::new();
        while p.pending.head().is_some_and(|op| due(op.created, hub)) {
            given_up.extend(p.pending.pop());
        }
        if let AttachStage::Open(id) = p.attach.stage {
            // Their receipts are no longer waited for.
            for _ in 0..written.min(given_up.len()) {
                hub.send_answered(id);
            }
        }
        for op in given_up {
            self.settle_op(hub, slot, op, Err(error.clone()));
        }
        let Some(p) = self.parts.get_mut(slot) else { return };
        if p.pending.len() == 0 && !p.batch.is_empty() && due(p.batch.opened().mono, hub) {
            self.close_batch(hub, slot);
            return self.send_timeout(hub, slot);
        }
        p.arm_send_timeout(hub, &config);
    }

    /// Fails everything that a part holds.
    pub(super) fn fail_pending(&mut self, hub: &mut Hub, slot: Slot, error: &Error) {
        let Some(p) = self.parts.get_mut(slot) else { return };
        let ops = p.pending.take();
        let batch = (!p.batch.is_empty()).then(|| p.batch.discard());
        hub.timers.cancel(Timer::BatchDelay(slot.as_u64()));
        hub.timers.cancel(Timer::SendTimeout(slot.as_u64()));
        for op in ops {
            self.settle_op(hub, slot, op, Err(error.clone()));
        }
        if let Some(closed) = batch {
            self.settle_broken(hub, slot, closed, error.clone());
        }
    }

    /// The one place where a SEND gets its outcome and gives its room back.
    pub(super) fn settle_op(&mut self, hub: &mut Hub, slot: Slot, op: Op, result: Result<Published, Error>) {
        let closed = Closed { number: op.number, count: op.count, memory: op.memory };
        self.settle(hub, slot, closed, result);
    }

    fn settle_broken(&mut self, hub: &mut Hub, slot: Slot, closed: Closed, error: Error) {
        self.settle(hub, slot, closed, Err(error));
    }

    fn settle(&mut self, hub: &mut Hub, slot: Slot, closed: Closed, result: Result<Published, Error>) {
        hub.memory.release(closed.memory);
        let Some(parent) = self.parts.get(slot).map(|p: &part::Part| p.parent) else { return };
        let Some(handle) = self.handles.get_mut(parent.0) else { return };
        handle.pending -= closed.count as usize;
        if let Err(error) = &result {
            handle.note_failure(closed.number, error);
        }
        hub.event(Event::Published { producer: parent, batch: closed.number, count: closed.count, result });
        if handle.refused && handle.has_room() {
            handle.refused = false;
            hub.event(Event::Writable(parent));
        }
        if handle.has_flushes() {
            let oldest = self.oldest_number(parent);
            if let Some(handle) = self.handles.get_mut(parent.0) {
                handle.settle_flushes(hub, oldest);
            }
        }
        if hub.memory.has_room() && !hub.memory_waiters.is_empty() {
            for id in std::mem::take(&mut hub.memory_waiters) {
                hub.event(Event::Writable(id));
            }
        }
    }
}

/// What a message costs of the client's memory: everything the application gave.
#[inline]
fn size(message: &OutgoingMessage) -> usize {
    let mut size = message.payload.len();
    if let Some(key) = &message.key {
        size += key.len();
    }
    if let Some(key) = &message.ordering_key {
        size += key.len();
    }
    size + message.properties.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>()
}

fn published(op: &Op, id: Option<&proto::MessageIdData>, partition: i32) -> Published {
    // Brokers leave the partition out of receipts; a dropped duplicate has ledger and entry -1.
    let id =
        id.map_or(MessageId { ledger_id: -1, entry_id: -1, ..MessageId::EARLIEST }, MessageId::from_proto);
    let (batch_index, batch_size) = if op.batch { (0, op.count as i32) } else { (-1, 0) };
    Published {
        id: MessageId { partition, batch_index, batch_size, ..id },
        batch_size: if op.batch { op.count } else { 0 },
    }
}
