//! What every mode of a subscription works on: where it reads, what waits to be sent again, and who is there. Decides how
//! an entry becomes a MESSAGE; refuses to know who is to get it.

use std::collections::BTreeMap;

use bytes::Bytes;
use geminga_core::wire::proto;

use super::consumer::{Consumer, Pending};
use super::cursor::Cursor;
use super::replay::Replay;
use crate::context::Context;
use crate::log::{Entry, Log};
use crate::topic::TopicInfo;

/// What every mode works on.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cursor: Cursor,
    /// The next offset to read for the first time.
    pub(crate) read: u64,
    pub(crate) replay: Replay,
    /// By key, so in order of arrival.
    pub(crate) consumers: BTreeMap<u64, Consumer>,
}

impl State {
    /// Without consumers; everything below `mark` is acknowledged.
    pub(super) fn new(mark: u64) -> Self {
        State { cursor: Cursor::new(mark), read: mark, replay: Replay::default(), consumers: BTreeMap::new() }
    }

    /// The next delivery begins at the first unacknowledged entry.
    pub(super) fn rewind(&mut self) {
        self.read = self.cursor.mark();
    }

    pub(super) fn has_more(&self, log: &Log) -> bool {
        self.replay.len() > 0 || self.read < log.end()
    }

    /// Reads the next unacknowledged entry; one that is to be delivered after `now_ms` is put aside until then.
    pub(super) fn next_read(&mut self, log: &Log, now_ms: u64) -> Option<u64> {
        loop {
            let offset = self.cursor.next_unacked(self.read.max(log.base()));
            let Some(entry) = log.get(offset) else {
                self.read = offset;
                return None;
            };
            self.read = offset + 1;
            if entry.deliver_at <= now_ms {
                return Some(offset);
            }
            self.replay.delay(entry.deliver_at, offset);
        }
    }

    /// Sends an entry to a consumer. With a `slot` the consumer holds it until it is acknowledged.
    pub(super) fn deliver(
        &mut self,
        consumer: u64,
        offset: u64,
        slot: Option<u16>,
        topic: &TopicInfo,
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        let (Some(entry), Some(consumer)) = (log.get(offset), self.consumers.get_mut(&consumer)) else {
            return;
        };
        let remaining = self.cursor.remaining(offset);
        let messages = remaining.map_or(entry.messages, |set| set.len() as u32);
        consumer.permits -= i64::from(messages);
        consumer.sent_messages += u64::from(messages);
        let mut count = 0;
        if let Some(slot) = slot {
            consumer.hold(offset, Pending { messages, slot });
            count = self.replay.count(offset);
        }
        send(consumer, entry, count, remaining.map_or(&[], |set| set.words()), topic, ctx);
    }
}

/// Writes an entry to a consumer.
pub(super) fn send(
    consumer: &Consumer,
    entry: &Entry,
    redelivery_count: u32,
    ack_set: &[i64],
    topic: &TopicInfo,
    ctx: &mut Context<'_>,
) {
    let message = proto::CommandMessage {
        consumer_id: consumer.id,
        message_id: topic.message_id(entry.position),
        redelivery_count: (redelivery_count > 0).then_some(redelivery_count),
        ack_set: ack_set.to_vec(),
        consumer_epoch: consumer.epoch,
    };
    let corrupted = topic.corrupted(consumer.link, &entry.raw, ctx);
    let raw: &Bytes = corrupted.as_ref().unwrap_or(&entry.raw);
    let exposes = ctx.config.broker_entry_metadata;
    let metadata = |session: &crate::session::Session| {
        (exposes && session.entry_metadata).then_some(proto::BrokerEntryMetadata {
            broker_timestamp: Some(entry.broker_time),
            index: Some(entry.last_index),
        })
    };
    ctx.links.message(consumer.link, &message, metadata, raw);
}
