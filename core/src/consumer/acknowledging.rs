//! What one partition's consumer tells its broker about messages that the application is done with.
//!
//! Decides when the gathered acknowledgements leave and how they are divided into commands. What they mean for their
//! entries is decided in `acks.rs`.

use super::EntryId;
use super::acks::UnknownBatchSize;
use super::part::Part;
use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::io::ConnId;
use crate::message_id::MessageId;
use crate::time::Timer;
use crate::wire::command::Command;
use crate::wire::proto;
use proto::command_ack::{AckType, ValidationError};

/// Ids in one ACK, unless more are gathered on purpose.
const MAX_ACKS: usize = 1000;
/// Words of sets in one ACK, beyond which the next begins: ten bytes each, so that no frame outgrows what brokers take.
const MAX_ACK_WORDS: usize = 100_000;
/// The largest batch that an id may claim: no producer comes near, and a set of it is 2 MiB.
const MAX_BATCH_SIZE: i32 = 1 << 24;

impl Part {
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
        if let Some(letters) = &mut self.dead_letters {
            letters.acknowledged(entry, id.batch_index);
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
    pub(super) fn plan_ack(&mut self, hub: &mut Hub) {
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

    /// Acknowledges an entry that is damaged for every reader, at once and with the reason.
    pub(super) fn discard(&mut self, hub: &mut Hub, id: MessageId, error: ValidationError) {
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
}
