//! One partition's consumer: SUBSCRIBE and FLOW, what the broker sends, what is told to it, and the way back after a loss.
//!
//! Decides when the queue is cleared (only when a subscription really is created anew) and what each message costs.
//! Refuses to know other partitions and the application's operations.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::EntryId;
use super::acks::{Acks, UnknownBatchSize};
use super::closing::Closing;
use super::intake::{self, Arrival, Refused, Why};
use super::last_id::LastId;
use super::nacks::Nacks;
use super::permits::Permits;
use super::position::{Filter, Reading};
use super::queue::{Queue, Skipped};
use super::seek::Seek;
use super::suspects::Suspects;
use crate::attach::{Attach, Step};
use crate::config::{ConsumerConfig, InitialPosition};
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner};
use crate::io::{ConnId, ConsumerId, OpId, Position};
use crate::message::Message;
use crate::message_id::MessageId;
use crate::slots::Slot;
use crate::time::Timer;
use crate::topic_name::{Domain, TopicName};
use crate::wire::command::Command;
use crate::wire::frame::Payload;
use crate::wire::proto;
use proto::command_ack::{AckType, ValidationError};

/// Ids in one REDELIVER_UNACKNOWLEDGED_MESSAGES, as in the Java client.
const MAX_REDELIVER: usize = 1000;
/// Ids in one ACK, unless more are gathered on purpose.
const MAX_ACKS: usize = 1000;
/// Words of sets in one ACK, beyond which the next begins: ten bytes each, so that no frame outgrows what brokers take.
const MAX_ACK_WORDS: usize = 100_000;
/// The largest batch that an id may claim: no producer comes near, and a set of it is 2 MiB.
const MAX_BATCH_SIZE: i32 = 1 << 24;

/// What something led to, for the parent.
#[derive(Debug)]
#[must_use]
pub(crate) struct Outcome {
    pub(crate) step: Step,
    /// The subscription is there and delivery begins.
    pub(crate) serving: bool,
    /// A seek ended.
    pub(crate) op: Option<(OpId, Result<(), Error>)>,
}

impl Default for Outcome {
    fn default() -> Self {
        Outcome { step: Step::Nothing, serving: false, op: None }
    }
}

/// What a part is made from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) parent: ConsumerId,
    pub(crate) topic: TopicName,
    pub(crate) config: Arc<ConsumerConfig>,
    /// A partition that was added while the consumer ran: it is read from its first message.
    pub(crate) late: bool,
    /// Whether each message handed out is acknowledged at once, cumulatively.
    pub(crate) auto_ack: bool,
    pub(crate) queue_size: u32,
}

/// One partition's consumer.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) parent: ConsumerId,
    pub(crate) topic: TopicName,
    /// The partition that ids carry: -1 on a topic without partitions.
    pub(crate) partition: i32,
    pub(crate) attach: Attach,
    pub(crate) closing: Closing,
    /// Whether it has been served once.
    pub(crate) opened: bool,
    /// Whether the application was told that it is not served.
    pub(crate) down: bool,
    /// Whether it is in its parent's list of parts with messages.
    pub(crate) listed: bool,
    pub(crate) unsubscribing: Option<OpId>,
    pub(super) permits: Permits,
    pub(super) queue: Queue,
    pub(super) acks: Acks,
    pub(super) nacks: Nacks,
    pub(super) reading: Reading,
    pub(super) filter: Option<Filter>,
    pub(super) seek: Option<Seek>,
    pub(super) next_seek: Option<(OpId, Position)>,
    /// On this connection the broker's cursor was put where `reading.start` says; the next SUBSCRIBE on it finds it there.
    pub(super) placed: Option<ConnId>,
    /// The next attempt to attach waits for the answer to a SEEK.
    pub(super) held: bool,
    /// The attempt in which it was asked where the end of the topic is.
    pub(super) pinning: Option<u32>,
    pub(super) last_id: LastId,
    /// The highest entry of this subscription: one not above it comes again.
    pub(super) newest: Option<EntryId>,
    pub(super) durable: bool,
    pub(super) persistent: bool,
    pub(super) config: Arc<ConsumerConfig>,
    slot: Slot,
    late: bool,
    auto_ack: bool,
    /// Counts requests to redeliver everything; deliveries of an older epoch are stale.
    epoch: u64,
    suspects: Suspects,
    ack_timer: bool,
}

impl Part {
    pub(crate) fn new(hub: &Hub, slot: Slot, origin: Origin) -> Self {
        let Origin { parent, topic, config, late, auto_ack, queue_size } = origin;
        let persistent = topic.domain() == Domain::Persistent;
        let durable = persistent && config.durable;
        let start = match (durable, late, config.start_position) {
            (true, _, _) => None,
            (false, _, _) if !persistent => Some(Position::Latest),
            (false, true, _) => Some(Position::Earliest),
            (false, false, Some(start)) => Some(start),
            (false, false, None) => Some(match config.initial_position {
                InitialPosition::Latest => Position::Latest,
                InitialPosition::Earliest => Position::Earliest,
            }),
        };
        let mut attach = Attach::new(hub, Owner::ConsumerPart(slot), topic.clone());
        // A partition that joins later is tried for ever: the others work without it.
        attach.tries.succeeded = late;
        Part {
            parent,
            partition: topic.partition_index().map_or(-1, |p| p as i32),
            topic,
            attach,
            closing: Closing::No,
            opened: false,
            down: false,
            listed: false,
            unsubscribing: None,
            permits: Permits::new(queue_size),
            queue: Queue::default(),
            acks: Acks::new(config.batch_index_ack),
            nacks: Nacks::new(config.negative_ack_redelivery_delay),
            reading: Reading::new(start, config.start_message_id_inclusive),
            filter: None,
            seek: None,
            next_seek: None,
            placed: None,
            held: false,
            pinning: None,
            last_id: LastId::default(),
            newest: None,
            durable,
            persistent,
            slot,
            config,
            late,
            auto_ack,
            epoch: 0,
            suspects: Suspects::default(),
            ack_timer: false,
        }
    }

    pub(crate) fn wire_id(&self) -> u64 {
        self.slot.as_u64()
    }

    fn is_ordered(&self) -> bool {
        self.config.subscription_type.allows_cumulative()
    }

    // Subscribing.

    /// Writes SUBSCRIBE.
    pub(crate) fn request(&mut self, hub: &mut Hub, id: ConnId) {
        let (ticket, timeout) = (self.attach.ticket(), self.attach.tries.timeout(hub));
        let subscribe = super::subscribe::command(
            &self.config,
            &super::subscribe::Place {
                topic: self.topic.as_str(),
                consumer_id: self.wire_id(),
                start: (!self.durable).then(|| self.reading.start_message_id()),
                late: self.late,
                epoch: self.epoch,
                persistent: self.persistent,
            },
        );
        let request = hub.request(id, ticket, RequestKind::Subscribe, timeout, |request_id| {
            Command::Subscribe(Box::new(proto::CommandSubscribe { request_id, ..subscribe }))
        });
        self.attach.requested(id, request);
    }

    /// SUBSCRIBE has its answer.
    pub(crate) fn subscribed(
        &mut self,
        hub: &mut Hub,
        id: ConnId,
        result: Result<Command, Error>,
    ) -> Outcome {
        let error = match result {
            Ok(Command::Success(_)) => {
                self.attach.opened(hub, id);
                // The broker starts over: it redelivers what is not acknowledged and has no permits. What the application
                // acknowledged meanwhile reaches it first.
                match self.holds_acks() {
                    true => self.acks.clear(),
                    false => self.flush_acks(hub),
                }
                if self.close_told(hub) {
                    return Outcome::default();
                }
                self.acks.resubscribed();
                self.nacks.clear();
                self.queue.clear();
                self.permits.reset();
                self.newest = None;
                self.filter = self.first_filter();
                if let Some(op) = self.unsubscribing {
                    self.unsubscribe(hub, op);
                }
                return self.position(hub, id);
            }
            Ok(other) => {
                let why = format!("the broker answered SUBSCRIBE with {}", other.name());
                Error::new(ErrorKind::UnknownError, "", why)
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Timeout {
            // The broker may have subscribed us all the same.
            self.undo(hub, id);
        }
        let error = error.while_doing(format!("subscribing to {}", self.topic.as_str()));
        Outcome { step: self.attach.failed(hub, error), ..Outcome::default() }
    }

    /// What to drop of the first entry that comes. Others may share a subscription that is not read in order: what comes
    /// there is unacknowledged, and so it is for the application.
    pub(super) fn first_filter(&self) -> Option<Filter> {
        self.reading.filter(self.durable || !self.is_ordered())
    }

    /// Takes a new share of the total queue.
    pub(crate) fn resize(&mut self, queue_size: u32) {
        self.permits.resize(queue_size);
    }

    pub(crate) fn set_paused(&mut self, hub: &mut Hub, paused: bool) {
        self.permits.set_paused(paused);
        self.grant(hub);
    }

    /// The application waits for a message, or no longer: a queue of size 0 asks for one.
    pub(crate) fn set_wanted(&mut self, hub: &mut Hub, wanted: bool) {
        self.permits.set_wanted(wanted);
        self.grant(hub);
    }

    /// Writes the FLOW that is due.
    #[inline]
    pub(super) fn grant(&mut self, hub: &mut Hub) {
        if let Some(id) = self.attach.connection()
            && self.seek.is_none()
            && let Some(message_permits) = self.permits.grant()
        {
            let consumer_id = self.wire_id();
            hub.write(id, &Command::Flow(proto::CommandFlow { consumer_id, message_permits }));
        }
    }

    // Receiving.

    /// Whether a message can be taken.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        !self.queue.is_empty() && self.seek.is_none()
    }

    pub(crate) fn queued(&self) -> u64 {
        self.queue.permits()
    }

    /// A MESSAGE arrived. One of a connection that does not serve this part is of a subscription that is gone.
    pub(crate) fn message(
        &mut self,
        hub: &mut Hub,
        conn: ConnId,
        message: &proto::CommandMessage,
        payload: Payload,
    ) {
        if self.attach.connection() != Some(conn) {
            return;
        }
        let limit = hub.config.max_uncompressed_size;
        match intake::read(message, payload, &self.topic, self.partition, limit) {
            Ok(arrival) => {
                self.permits.arrived(arrival.permits);
                let epoch = message.consumer_epoch.unwrap_or(u64::MAX);
                match self.is_ordered() && epoch < self.epoch {
                    true => self.permits.settled(u64::from(arrival.permits)),
                    false => self.admit(hub, arrival),
                }
            }
            Err(refused) => self.refuse(hub, &message.message_id, &refused),
        }
        self.prepare(hub);
        self.grant(hub);
    }

    fn admit(&mut self, hub: &mut Hub, arrival: Arrival) {
        let Arrival { entry, is_batch, open, permits } = arrival;
        let key = (entry.ledger_id, entry.entry_id);
        let again = self.newest.is_some_and(|newest| key <= newest);
        if !again {
            self.newest = Some(key);
        }
        let dropped = self.filter.and_then(|f| f.dropped(key, is_batch));
        if dropped.is_none() {
            self.filter = None;
        }
        if !self.durable {
            self.reading.pin_at(MessageId::new(key.0, key.1, self.partition));
        }
        if is_batch {
            if again || open.is_some() {
                self.acks.redelivered(key, open.clone());
            }
            let first = dropped.unwrap_or(0);
            self.queue.push_batch(Arc::new(entry), open, first, permits);
        } else if dropped.is_some_and(|n| n > 0) {
            self.permits.settled(1);
            self.queue.push_gap(MessageId::new(key.0, key.1, self.partition));
            // Whoever seeks behind a message is done with it.
            if self.durable {
                self.acks.whole(key);
                self.plan_ack(hub);
            }
        } else {
            self.queue.push_single(Arc::new(entry));
        }
    }

    /// An entry that cannot be read gives its permits back at once. One with a wrong checksum comes again: it may have been
    /// damaged on the way only.
    fn refuse(&mut self, hub: &mut Hub, id: &proto::MessageIdData, refused: &Refused) {
        self.permits.arrived(refused.permits);
        self.permits.settled(u64::from(refused.permits));
        let id = MessageId { partition: self.partition, ..MessageId::from(id) };
        let entry = (id.ledger_id, id.entry_id);
        if refused.why == Why::Corrupt(ValidationError::ChecksumMismatch)
            && self.persistent
            && self.suspects.may_be_sound(entry)
        {
            return match self.is_ordered() {
                true => self.redeliver_all(hub),
                false => self.redeliver(hub, &BTreeSet::from([entry])),
            };
        }
        if let Why::Corrupt(error) = refused.why {
            self.discard(hub, id, error);
        }
        // Behind all its members, so that reading gets past it.
        self.queue.push_gap(match refused.batch_size {
            0 => id.in_batch(i32::MAX, 0),
            n => id.in_batch(n as i32 - 1, n as i32),
        });
    }

    /// Acknowledges an entry that is damaged for every reader, at once and with the reason.
    fn discard(&mut self, hub: &mut Hub, id: MessageId, error: ValidationError) {
        if let Some(conn) = self.attach.connection()
            && self.persistent
        {
            let ack = proto::CommandAck {
                consumer_id: self.wire_id(),
                ack_type: AckType::Individual as i32,
                message_id: vec![id.entry().to_proto()],
                validation_error: Some(error as i32),
                ..proto::CommandAck::default()
            };
            hub.write(conn, &Command::Ack(ack));
        }
    }

    /// Takes the next message. Returns it, and whether its entry ends with it.
    #[inline]
    pub(crate) fn take(&mut self, hub: &mut Hub) -> Option<(Message, bool)> {
        let taken = self.queue.take()?;
        self.permits.settled(1);
        self.reading.advance(taken.message.message_id());
        if self.auto_ack && taken.ends_entry && self.persistent {
            self.acks.cumulative((taken.message.entry.ledger_id, taken.message.entry.entry_id), None);
            self.plan_ack(hub);
        }
        self.prepare(hub);
        self.grant(hub);
        Some((taken.message, taken.ends_entry))
    }

    /// Brings the next message to the front of the queue and accounts for what is left out before it.
    #[inline]
    fn prepare(&mut self, hub: &mut Hub) {
        while let Some(skipped) = self.queue.prepare() {
            self.pass(hub, skipped);
        }
    }

    #[cold]
    fn pass(&mut self, hub: &mut Hub, skipped: Skipped) {
        let entry = |id: MessageId| (id.ledger_id, id.entry_id);
        match skipped {
            Skipped::Member { id, permits } => {
                self.reading.advance(id);
                self.permits.settled(u64::from(permits));
                self.acks.skip(entry(id), id.batch_index as u32, id.batch_size as u32, self.durable);
            }
            Skipped::Broken { id, permits, untouched, .. } => {
                self.reading.advance(id.in_batch(id.batch_size - 1, id.batch_size));
                self.permits.settled(u64::from(permits));
                match untouched {
                    true => self.discard(hub, id, ValidationError::BatchDeSerializeError),
                    // Some members are with the application: the entry is done when they are.
                    false => {
                        for index in id.batch_index..id.batch_size {
                            self.acks.skip(entry(id), index as u32, id.batch_size as u32, true);
                        }
                    }
                }
            }
            Skipped::Gap(id) => self.reading.advance(id),
        }
        self.plan_ack(hub);
    }

    // Acknowledging.

    /// Acknowledges one message. Errors: `InvalidMessage`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, hub: &mut Hub, id: &MessageId) -> Result<(), Error> {
        self.check_member(id, "acknowledging")?;
        if !self.persistent {
            return Ok(());
        }
        let entry = (id.ledger_id, id.entry_id);
        match id.batch_index {
            index @ 0.. => {
                let size = id.batch_size.max(0) as u32;
                self.acks.member(entry, index as u32, size).map_err(|UnknownBatchSize| {
                    let why = "the id does not say how large its batch is, and the batch is not known";
                    self.invalid(id, "acknowledging", why)
                })?;
            }
            _ => self.acks.whole(entry),
        }
        if !self.nacks.is_empty() {
            self.nacks.remove(entry, id.batch_index);
        }
        self.plan_ack(hub);
        Ok(())
    }

    /// Acknowledges everything up to a message. Errors: `InvalidMessage`.
    #[inline]
    pub(crate) fn acknowledge_cumulative(&mut self, hub: &mut Hub, id: &MessageId) -> Result<(), Error> {
        self.check_member(id, "acknowledging")?;
        if !self.persistent {
            return Ok(());
        }
        let entry = (id.ledger_id, id.entry_id);
        let (member, last) = match id.batch_index {
            index @ 0.. => (Some((index as u32, id.batch_size.max(0) as u32)), index),
            _ => (None, i32::MAX),
        };
        self.acks.cumulative(entry, member);
        if !self.nacks.is_empty() {
            self.nacks.remove_through(entry, last);
        }
        self.plan_ack(hub);
        Ok(())
    }

    #[inline]
    pub(super) fn check_member(&self, id: &MessageId, doing: &str) -> Result<(), Error> {
        let known = id.batch_size > 0 && id.batch_index >= 0;
        if !known || (id.batch_index < id.batch_size && id.batch_size <= MAX_BATCH_SIZE) {
            return Ok(());
        }
        Err(self.invalid(id, doing, "its batch index is outside of its batch"))
    }

    #[cold]
    fn invalid(&self, id: &MessageId, doing: &str, why: &str) -> Error {
        let doing = format!("{doing} {id} on {}", self.topic.as_str());
        Error::new(ErrorKind::InvalidMessage, doing, why)
    }

    /// Writes what waits when it is enough, or sets the timer.
    #[inline]
    fn plan_ack(&mut self, hub: &mut Hub) {
        let pending = self.acks.pending();
        if pending == 0 {
            return;
        }
        if pending >= self.config.ack_group_size || self.config.ack_group_time.is_zero() {
            self.flush_acks(hub);
        } else if !self.ack_timer {
            self.ack_timer = true;
            hub.set_timer(Timer::AckGroup(self.wire_id()), self.config.ack_group_time);
        }
    }

    /// The acknowledgements were gathered long enough.
    pub(crate) fn ack_group(&mut self, hub: &mut Hub) {
        self.ack_timer = false;
        self.flush_acks(hub);
    }

    /// Writes the acknowledgements that wait. Without a connection they stay, and are written after the next SUBSCRIBE.
    pub(super) fn flush_acks(&mut self, hub: &mut Hub) {
        let Some(id) = self.attach.connection() else { return };
        if self.acks.pending() == 0 || self.holds_acks() {
            return;
        }
        let due = self.acks.take();
        let partition = self.partition;
        let to_proto = |((ledger_id, entry_id), ack_set): (EntryId, Vec<i64>)| proto::MessageIdData {
            ack_set,
            ..MessageId::new(ledger_id, entry_id, partition).to_proto()
        };
        if let Some(upto) = due.cumulative {
            self.write_ack(hub, id, AckType::Cumulative, vec![to_proto(upto)]);
        }
        // Several ids in one command are for brokers of protocol version 12 and later.
        let many = hub.connections.get(id.0).is_some_and(|c| c.version >= 12);
        let most = if many { self.config.ack_group_size.clamp(MAX_ACKS, 50 * MAX_ACKS) } else { 1 };
        let mut rest = due.individual.into_iter().map(to_proto);
        while let Some(first) = rest.next() {
            let (mut words, mut ids) = (first.ack_set.len(), vec![first]);
            while ids.len() < most
                && words < MAX_ACK_WORDS
                && let Some(next) = rest.next()
            {
                words += next.ack_set.len();
                ids.push(next);
            }
            self.write_ack(hub, id, AckType::Individual, ids);
        }
    }

    fn write_ack(&self, hub: &mut Hub, id: ConnId, ack_type: AckType, message_id: Vec<proto::MessageIdData>) {
        let ack = proto::CommandAck {
            consumer_id: self.wire_id(),
            ack_type: ack_type as i32,
            message_id,
            ..proto::CommandAck::default()
        };
        hub.write(id, &Command::Ack(ack));
    }

    // Redelivery.

    /// Has a message delivered again after the delay. Errors: `InvalidMessage`.
    pub(crate) fn negative_acknowledge(&mut self, hub: &mut Hub, id: &MessageId) -> Result<(), Error> {
        self.check_member(id, "negatively acknowledging")?;
        if self.persistent {
            self.nacks.add((id.ledger_id, id.entry_id), id.batch_index.max(-1), hub.now.mono);
            self.arm_nacks(hub);
        }
        Ok(())
    }

    pub(super) fn arm_nacks(&self, hub: &mut Hub) {
        if let Some(at) = self.nacks.next() {
            hub.timers.set(Timer::NegativeAck(self.wire_id()), at);
        }
    }

    /// Negative acknowledgements are due. Without a connection there is nothing to ask: a new subscription redelivers all.
    pub(crate) fn negative_ack_due(&mut self, hub: &mut Hub) {
        if self.seek.is_some() {
            return;
        }
        let entries = self.nacks.take_due(hub.now.mono);
        match entries.is_empty() {
            true => {}
            // A cursor that is read in order can only go back as a whole.
            false if self.is_ordered() => self.redeliver_all(hub),
            false => self.redeliver(hub, &entries),
        }
        self.arm_nacks(hub);
    }

    fn redeliver(&mut self, hub: &mut Hub, entries: &BTreeSet<EntryId>) {
        let Some(id) = self.attach.connection() else { return };
        self.flush_acks(hub);
        let stale = self.queue.remove(entries);
        self.permits.settled(stale);
        let ids: Vec<_> =
            entries.iter().map(|(l, e)| MessageId::new(*l, *e, self.partition).to_proto()).collect();
        for ids in ids.chunks(MAX_REDELIVER) {
            self.write_redeliver(hub, id, ids.to_vec());
        }
        self.prepare(hub);
        self.grant(hub);
    }

    /// Has everything that is not acknowledged delivered again.
    pub(crate) fn redeliver_all(&mut self, hub: &mut Hub) {
        if !self.persistent || self.seek.is_some() {
            return;
        }
        let connection = self.attach.connection();
        if connection.is_some() {
            self.flush_acks(hub);
            self.acks.resubscribed();
        }
        let stale = self.queue.clear();
        self.permits.settled(stale);
        self.nacks.clear();
        self.newest = None;
        if !self.auto_ack {
            self.reading.last = None;
        }
        self.filter = self.first_filter();
        if let Some(id) = connection {
            self.epoch += u64::from(self.is_ordered());
            self.write_redeliver(hub, id, Vec::new());
        }
        self.grant(hub);
    }

    fn write_redeliver(&self, hub: &mut Hub, id: ConnId, message_ids: Vec<proto::MessageIdData>) {
        let redeliver = proto::CommandRedeliverUnacknowledgedMessages {
            consumer_id: self.wire_id(),
            message_ids,
            consumer_epoch: self.is_ordered().then_some(self.epoch),
        };
        hub.write(id, &Command::RedeliverUnacknowledgedMessages(redeliver));
    }

    /// Deletes the subscription, now or when there is a connection.
    pub(crate) fn unsubscribe(&mut self, hub: &mut Hub, op: OpId) {
        self.unsubscribing = Some(op);
        let Some(id) = self.attach.connection() else { return };
        let (consumer_id, ticket) = (self.wire_id(), self.attach.ticket());
        hub.request(id, ticket, RequestKind::Unsubscribe, hub.config.operation_timeout, |request_id| {
            Command::Unsubscribe(proto::CommandUnsubscribe {
                consumer_id,
                request_id,
                ..proto::CommandUnsubscribe::default()
            })
        });
    }

    pub(crate) fn check_invariants(&self) {
        self.permits.check(self.queue.permits());
    }
}
