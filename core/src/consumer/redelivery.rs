//! Messages that are to come again: what one partition's consumer asks its broker for, and what it forgets with that.

use std::collections::BTreeSet;

use super::EntryId;
use super::dead_letters::DeadLetters;
use super::part::Part;
use crate::config::SubscriptionType;
use crate::error::Error;
use crate::hub::Hub;
use crate::io::ConnId;
use crate::message_id::MessageId;
use crate::time::Timer;
use crate::wire::command::Command;
use crate::wire::proto;

/// Ids in one REDELIVER_UNACKNOWLEDGED_MESSAGES, as in the Java client.
const MAX_REDELIVER: usize = 1000;

impl Part {
    /// Has a message delivered again after the delay. Errors: `InvalidMessage`.
    pub(crate) fn negative_acknowledge(&mut self, hub: &mut Hub, id: &MessageId) -> Result<(), Error> {
        self.check_member(id, "negatively acknowledging")?;
        let comes_anyway =
            |letters: &DeadLetters| !letters.holds((id.ledger_id, id.entry_id), id.batch_index);
        if self.persistent && !self.dead_letters.as_deref().is_some_and(comes_anyway) {
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
        let messages = self.nacks.take_due(hub.now.mono);
        // The broker redelivers whole entries.
        let entries = self.sort_given_back(hub, messages);
        match entries.is_empty() {
            true => {}
            // A cursor that is read in order can only go back as a whole.
            false if self.is_ordered() => self.redeliver_all(hub),
            false => self.redeliver(hub, &entries),
        }
        self.arm_nacks(hub);
    }

    pub(super) fn redeliver(&mut self, hub: &mut Hub, entries: &BTreeSet<EntryId>) {
        let Some(id) = self.attach.connection() else { return };
        self.flush_acks(hub);
        // What is left of a batch that is being handed out would come behind later messages of its key.
        let by_key = self.config.subscription_type == SubscriptionType::KeyShared;
        let stale = self.queue.remove(entries, by_key);
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
        if let Some(letters) = &self.dead_letters {
            // What waits here was not delivered: it stays, so that it does not count as redelivered.
            let mut messages = self.nacks.take_all();
            messages.extend(letters.held());
            let entries = self.sort_given_back(hub, messages);
            if !entries.is_empty() {
                self.redeliver(hub, &entries);
            }
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
}
