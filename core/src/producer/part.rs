//! One partition's producer: PRODUCER, its sends and their receipts, and the way back after a loss.

use std::sync::Arc;

use super::batch::{self, OpenBatch};
use super::pending::{Op, Pending};
use crate::attach::Attach;
use crate::config::{AccessMode, ProducerConfig};
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner, Ticket};
use crate::io::{ConnId, ProducerId};
use crate::message::OutgoingMessage;
use crate::slots::Slot;
use crate::time::Timer;
use crate::topic_name::TopicName;
use crate::wire::command::Command;
use crate::wire::{key_values, proto};

/// What every SEND of a part says about its producer, and what the broker accepts.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) topic: Arc<str>,
    pub(crate) wire_id: u64,
    pub(crate) name: String,
    pub(crate) schema_version: Vec<u8>,
    pub(crate) max_message_size: usize,
    /// Whether the broker checks CRC-32C.
    pub(crate) checksums: bool,
}

impl Identity {
    pub(crate) fn schema_version(&self) -> Option<&[u8]> {
        (!self.schema_version.is_empty()).then_some(&self.schema_version)
    }

    /// Brokers answer too large an entry by closing the producer, which would be resent for ever: refuse it here.
    pub(crate) fn check_size(&self, size: usize) -> Result<(), Error> {
        if size <= self.max_message_size {
            return Ok(());
        }
        let why = format!(
            "{size} bytes with metadata, and the broker takes {}; send less or compress it",
            self.max_message_size
        );
        Err(Error::new(ErrorKind::MessageTooBig, format!("sending to {}", self.topic), why))
    }
}

/// One partition's producer.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) parent: ProducerId,
    /// Position in the parent, which is the partition's number.
    pub(crate) index: u32,
    /// The partition that ids carry: -1 on a topic without partitions.
    pub(crate) partition: i32,
    pub(crate) attach: Attach,
    pub(crate) identity: Identity,
    pub(crate) pending: Pending,
    pub(crate) batch: OpenBatch,
    /// The broker no longer has it, or will find out by itself.
    pub(crate) closed: bool,
    slot: Slot,
    /// The next sequence id, once the broker has said where to start.
    next_sequence: Option<u64>,
    /// The highest sequence id with a receipt, or where the broker said to start.
    pub(crate) last_sequence: i64,
    topic_epoch: Option<u64>,
}

impl Part {
    pub(crate) fn new(
        hub: &Hub,
        slot: Slot,
        parent: ProducerId,
        index: u32,
        topic: &TopicName,
        partitioned: bool,
    ) -> Self {
        let topic = if partitioned { topic.partition(index) } else { topic.clone() };
        let identity = Identity {
            topic: topic.as_str().into(),
            wire_id: slot.as_u64(),
            name: String::new(),
            schema_version: Vec::new(),
            max_message_size: crate::connection::DEFAULT_MAX_MESSAGE_SIZE,
            checksums: true,
        };
        Part {
            parent,
            index,
            partition: topic.partition_index().map_or(-1, |p| p as i32),
            attach: Attach::new(hub, Owner::ProducerPart(slot), topic),
            identity,
            pending: Pending::default(),
            batch: OpenBatch::default(),
            closed: false,
            slot,
            next_sequence: None,
            last_sequence: -1,
            topic_epoch: None,
        }
    }

    /// Writes PRODUCER.
    pub(crate) fn request(&mut self, hub: &mut Hub, id: ConnId, config: &ProducerConfig) {
        // On this connection nothing is written yet.
        self.pending.rewind();
        let ticket = self.attach.ticket();
        let timeout = self.attach.tries.timeout(hub);
        let name = match self.identity.name.is_empty() {
            true => config.name.clone(),
            false => Some(self.identity.name.clone()),
        };
        let producer = proto::CommandProducer {
            topic: self.identity.topic.to_string(),
            producer_id: self.identity.wire_id,
            producer_name: name,
            encrypted: Some(false),
            metadata: key_values(&config.properties),
            // A higher epoch tells the broker that this is the same producer coming back, to replace the old one.
            epoch: Some(u64::from(self.attach.attempt() - 1)),
            user_provided_producer_name: Some(config.name.is_some()),
            producer_access_mode: Some(match config.access_mode {
                AccessMode::Shared => proto::ProducerAccessMode::Shared,
                AccessMode::Exclusive => proto::ProducerAccessMode::Exclusive,
                AccessMode::WaitForExclusive => proto::ProducerAccessMode::WaitForExclusive,
                AccessMode::ExclusiveWithFencing => proto::ProducerAccessMode::ExclusiveWithFencing,
            } as i32),
            topic_epoch: self.topic_epoch,
            initial_subscription_name: config.initial_subscription.clone(),
            ..proto::CommandProducer::default()
        };
        let request = hub.request(id, ticket, RequestKind::Producer, timeout, |request_id| {
            Command::Producer(Box::new(proto::CommandProducer { request_id, ..producer }))
        });
        self.attach.requested(id, request);
    }

    /// The broker accepted: everything pending is written again. Returns the SENDs that this broker would refuse.
    pub(crate) fn opened(
        &mut self,
        hub: &mut Hub,
        id: ConnId,
        success: &proto::CommandProducerSuccess,
        config: &ProducerConfig,
    ) -> Vec<Op> {
        self.attach.opened(hub, id);
        self.identity.name.clone_from(&success.producer_name);
        self.identity.schema_version = success.schema_version.as_deref().unwrap_or_default().to_vec();
        self.topic_epoch = success.topic_epoch.or(self.topic_epoch);
        if let Some(connection) = hub.connections.get(id.0) {
            self.identity.max_message_size = connection.max_message_size;
            self.identity.checksums = connection.version >= 6;
        }
        if self.next_sequence.is_none() {
            let last = config.initial_sequence_id.unwrap_or(success.last_sequence_id.unwrap_or(-1));
            self.last_sequence = last;
            self.next_sequence = Some(last.saturating_add(1).max(0) as u64);
        }
        let limit = self.identity.max_message_size + crate::connection::FRAME_PADDING;
        let mut refused = Vec::new();
        if self.pending.iter().any(|op| op.frame.len() > limit) {
            for op in self.pending.take() {
                match op.frame.len() > limit {
                    true => refused.push(op),
                    false => self.pending.push(op),
                }
            }
        }
        self.rewrite(hub, id);
        refused
    }

    /// Queues every pending SEND on the connection, from the first.
    pub(crate) fn rewrite(&mut self, hub: &mut Hub, id: ConnId) {
        self.pending.rewind();
        for _ in 0..self.pending.len() {
            hub.write_send(id, self.slot);
        }
    }

    /// The connection no longer serves this part: nothing counts as written.
    pub(crate) fn unwrite(&mut self, hub: &mut Hub, id: ConnId) {
        hub.forget_sends(id, self.slot, self.pending.written() as u64);
        self.pending.rewind();
    }

    /// Takes a message. Returns the place it got, and whether its SEND is complete.
    #[inline]
    pub(crate) fn push(
        &mut self,
        hub: &mut Hub,
        message: &OutgoingMessage,
        memory: usize,
        config: &ProducerConfig,
        next_number: &mut u64,
    ) -> Result<Pushed, Error> {
        let next = self.next_sequence.unwrap_or(0);
        let sequence = message.sequence_id.unwrap_or(next);
        let alone = !config.batching.enabled
            || message.deliver_at_time.is_some()
            || message.schema_version.is_some()
            || (memory >= config.batching.max_bytes.min(self.identity.max_message_size / 2)
                && !batch::fits_batch(message, sequence, &self.identity));
        if alone {
            let number = *next_number;
            let op = batch::single_send(
                message,
                sequence,
                memory,
                hub.now,
                number,
                &self.identity,
                config.compression,
            )?;
            // What was given before leaves before; its number was drawn when the batch opened.
            let broken = self.close_batch(hub, config).into_iter().collect();
            *next_number += 1;
            self.next_sequence = Some(next.max(sequence + 1));
            self.enqueue(hub, op, config);
            return Ok(Pushed { number, index: 0, left: true, broken });
        }
        let mut broken = Vec::new();
        if !self.batch.has_room(message, sequence, &config.batching, &self.identity) {
            broken.extend(self.close_batch(hub, config));
        }
        if self.batch.is_empty() {
            hub.set_timer(Timer::BatchDelay(self.slot.as_u64()), config.batching.max_publish_delay);
        }
        let index = self.batch.count() as u32;
        self.batch.push(message, sequence, memory, hub.now, next_number);
        self.next_sequence = Some(next.max(sequence + 1));
        let number = self.batch.number();
        if index == 0 {
            self.arm_send_timeout(hub, config);
        }
        let left = self.batch.is_full(&config.batching);
        if left {
            broken.extend(self.close_batch(hub, config));
        }
        Ok(Pushed { number, index, left, broken })
    }

    /// Whether the open batch has to leave before `message` can be taken.
    pub(crate) fn is_full_for(&self, message: &OutgoingMessage, config: &ProducerConfig) -> bool {
        let sequence = message.sequence_id.or(self.next_sequence).unwrap_or(0);
        !self.batch.has_room(message, sequence, &config.batching, &self.identity)
    }

    /// Turns the open batch into a SEND. Returns the batch that could not become one.
    pub(crate) fn close_batch(
        &mut self,
        hub: &mut Hub,
        config: &ProducerConfig,
    ) -> Option<(batch::Closed, Error)> {
        if self.batch.is_empty() {
            return None;
        }
        hub.timers.cancel(Timer::BatchDelay(self.slot.as_u64()));
        match self.batch.close(&self.identity, config.compression) {
            Ok(op) => {
                self.enqueue(hub, op, config);
                None
            }
            Err(broken) => Some(broken),
        }
    }

    fn enqueue(&mut self, hub: &mut Hub, op: Op, config: &ProducerConfig) {
        self.pending.push(op);
        if let Some(id) = self.attach.connection() {
            hub.write_send(id, self.slot);
        }
        if self.pending.len() == 1 {
            self.arm_send_timeout(hub, config);
        }
    }

    /// Sets the timer to the oldest send, unless it is set: a timer that fires early looks again, which costs less than
    /// moving it at every receipt.
    pub(crate) fn arm_send_timeout(&mut self, hub: &mut Hub, config: &ProducerConfig) {
        let Some(timeout) = config.send_timeout else { return };
        let timer = Timer::SendTimeout(self.slot.as_u64());
        if hub.timers.is_set(timer) {
            return;
        }
        if let Some(oldest) = self.oldest() {
            hub.timers.set(timer, oldest + timeout);
        }
    }

    /// When the oldest message without receipt was given.
    pub(crate) fn oldest(&self) -> Option<crate::time::Mono> {
        let batch = (!self.batch.is_empty()).then(|| self.batch.opened().mono);
        self.pending.head().map(|op| op.created).or(batch)
    }

    /// The number of the oldest SEND without outcome.
    pub(crate) fn oldest_number(&self) -> Option<u64> {
        let batch = (!self.batch.is_empty()).then(|| self.batch.number());
        self.pending.head().map(|op| op.number).or(batch)
    }

    /// Asks the broker to forget this producer; without a connection it already has, or will.
    pub(crate) fn close(&mut self, hub: &mut Hub) {
        let connection = self.attach.registered();
        if let Some(id) = connection {
            self.unwrite(hub, id);
        }
        let ticket = self.attach.ticket();
        self.attach.end(hub);
        hub.timers.cancel(Timer::BatchDelay(self.slot.as_u64()));
        hub.timers.cancel(Timer::SendTimeout(self.slot.as_u64()));
        match connection {
            Some(id) => self.write_close(hub, id, ticket),
            None => self.closed = true,
        }
    }

    /// Undoes a PRODUCER whose answer nobody waits for any more.
    pub(crate) fn undo(&self, hub: &mut Hub, id: ConnId) {
        self.write_close(hub, id, Ticket { owner: Owner::Nobody, attempt: 0 });
    }

    fn write_close(&self, hub: &mut Hub, id: ConnId, ticket: Ticket) {
        let producer_id = self.identity.wire_id;
        let timeout = hub.config.operation_timeout;
        hub.request(id, ticket, RequestKind::CloseProducer, timeout, |request_id| {
            Command::CloseProducer(proto::CommandCloseProducer {
                producer_id,
                request_id,
                ..proto::CommandCloseProducer::default()
            })
        });
    }
}

/// What became of a message given to a part.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) number: u64,
    pub(crate) index: u32,
    /// Its SEND is complete: a further message goes into another.
    pub(crate) left: bool,
    /// Batches that could not become a SEND, perhaps the message's own.
    pub(crate) broken: Vec<(batch::Closed, Error)>,
}
