//! The way of a message through one partition's consumer: in by MESSAGE, out by `take`, and what is left out between.
//!
//! Decides what becomes of an entry that cannot be read, is stale or was not asked for. Reading it is `intake.rs`, keeping
//! it `queue.rs`, paying for it `permits.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::intake::{self, Arrival, Refused, Why};
use super::part::Part;
use super::queue::Skipped;
use crate::hub::Hub;
use crate::io::ConnId;
use crate::message::Message;
use crate::message_id::MessageId;
use crate::wire::frame::Payload;
use crate::wire::proto;
use proto::command_ack::ValidationError;

impl Part {
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

    /// Takes the next message. Returns it, and whether its entry ends with it.
    #[inline]
    pub(crate) fn take(&mut self, hub: &mut Hub) -> Option<(Message, bool)> {
        let taken = self.queue.take()?;
        self.permits.settled(1);
        self.reading.advance(taken.message.message_id());
        if let Some(letters) = &mut self.dead_letters
            && !taken.stale
        {
            letters.delivered(&taken.message);
        }
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
    pub(super) fn prepare(&mut self, hub: &mut Hub) {
        while let Some(skipped) = self.queue.prepare() {
            self.pass(hub, skipped);
        }
        if self.dead_letters.is_some() {
            self.divert(hub);
        }
    }

    #[cold]
    pub(super) fn pass(&mut self, hub: &mut Hub, skipped: Skipped) {
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
}
