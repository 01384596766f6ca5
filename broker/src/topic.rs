//! One topic: its log, its producers and its subscriptions. Decides what publishing means; leaves who may publish to
//! [`Producers`] and who gets what to each [`Subscription`].

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use geminga_core::topic_name::{Domain, TopicName};
use geminga_core::wire::{Checksum, Command, Payload, proto};
use proto::ServerError;

use crate::LinkId;
use crate::context::Context;
use crate::dedup::Dedup;
use crate::faults::{FaultKind, Place, Request};
use crate::log::{Entry, EntryHeader, Log, Position};
use crate::producer::Producers;
use crate::session::NO_REQUEST;
use crate::store::TopicKey;
use crate::subscription::Subscription;

/// What subscriptions need to know of their topic.
#[derive(Debug)]
pub(crate) struct TopicInfo {
    pub(crate) key: TopicKey,
    pub(crate) name: TopicName,
    /// −1 for a topic that is no partition.
    pub(crate) partition: i32,
    pub(crate) persistent: bool,
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) info: TopicInfo,
    pub(crate) log: Log,
    pub(crate) producers: Producers,
    pub(crate) subscriptions: BTreeMap<u32, Subscription>,
    pub(crate) dedup: Dedup,
    /// Entries are deduplicated.
    pub(crate) dedup_on: bool,
    /// No more messages, for ever.
    pub(crate) terminated: bool,
    next_subscription: u32,
}

/// The outcome of a SEND, as far as the connection is concerned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// Answered on the link, or not to be answered.
    Done,
    /// Not something a client may send: close the link.
    Close,
}

impl TopicInfo {
    pub(crate) fn message_id(&self, position: Position) -> proto::MessageIdData {
        proto::MessageIdData {
            ledger_id: position.ledger as u64,
            entry_id: position.entry as u64,
            partition: Some(self.partition),
            ..Default::default()
        }
    }

    /// The bytes with one bit flipped, when a fault asks for it.
    pub(crate) fn corrupted(&self, link: LinkId, raw: &Bytes, ctx: &mut Context<'_>) -> Option<Bytes> {
        if ctx.faults.is_empty() {
            return None;
        }
        let place = self.place(link, ctx)?;
        ctx.faults.take(place, |kind| *kind == FaultKind::CorruptMessage)?;
        let mut bytes = BytesMut::from(&raw[..]);
        *bytes.last_mut()? ^= 1;
        Some(bytes.freeze())
    }

    fn place(&self, link: LinkId, ctx: &Context<'_>) -> Option<Place<'_>> {
        let node = ctx.links.get(link)?.node;
        Some(Place { node, link, topic: self.name.as_str() })
    }
}

impl Topic {
    pub(crate) fn new(key: TopicKey, name: TopicName, ledger: i64, dedup_on: bool) -> Self {
        let partition = name.partition_index().and_then(|i| i32::try_from(i).ok()).unwrap_or(-1);
        let persistent = name.domain() == Domain::Persistent;
        Topic {
            info: TopicInfo { key, name, partition, persistent },
            log: Log::new(ledger),
            producers: Producers::default(),
            subscriptions: BTreeMap::new(),
            dedup: Dedup::default(),
            dedup_on,
            terminated: false,
            next_subscription: 0,
        }
    }

    pub(crate) fn subscription(&self, name: &str) -> Option<&Subscription> {
        self.subscriptions.values().find(|s| s.name == name)
    }

    /// The subscription of that name, made at `mark` if there is none; true when it was made.
    pub(crate) fn subscription_or_create(&mut self, name: &str, durable: bool, mark: u64) -> (u32, bool) {
        if let Some(found) = self.subscription(name) {
            return (found.key, false);
        }
        let key = self.next_subscription;
        self.next_subscription += 1;
        self.subscriptions.insert(key, Subscription::new(key, name, durable, mark));
        (key, true)
    }

    /// Stores the entry of a SEND, answers it, and delivers it.
    pub(crate) fn publish(
        &mut self,
        link: LinkId,
        send: &proto::CommandSend,
        payload: Payload,
        ctx: &mut Context<'_>,
    ) -> Published {
        if matches!(payload.checksum, Checksum::Mismatch { .. }) {
            let message = "Checksum failed on the broker";
            return send_error(link, send, ServerError::ChecksumError, message, ctx);
        }
        if self.terminated {
            return send_error(
                link,
                send,
                ServerError::TopicTerminatedError,
                "Topic was already terminated",
                ctx,
            );
        }
        if !ctx.faults.is_empty()
            && let Some(place) = self.info.place(link, ctx)
            && let Some(FaultKind::Refuse(_, error, message)) =
                ctx.faults.take(place, |k| matches!(k, FaultKind::Refuse(Request::Send | Request::Any, ..)))
        {
            let refused = send_error(link, send, error, &message, ctx);
            // Only these concern one message. After any other the topic is fenced: what follows must not overtake it.
            if !matches!(error, ServerError::ChecksumError | ServerError::NotAllowedError) {
                self.close_producers(None, ctx);
            }
            return refused;
        }
        let Some(header) = EntryHeader::read(payload.metadata) else { return Published::Close };
        let highest = send.highest_sequence_id().max(send.sequence_id);
        let name = std::str::from_utf8(&header.producer_name).unwrap_or_default();
        if self.dedup_on && self.dedup.is_duplicate(name, send.sequence_id) {
            self.receipt(link, send, Position { ledger: -1, entry: -1 }, ctx);
            return Published::Done;
        }
        let messages = header.messages();
        if !self.info.persistent {
            let position = Position { ledger: 0, entry: 0 };
            self.receipt(link, send, position, ctx);
            let entry = Entry {
                position,
                raw: payload.raw,
                messages,
                publish_time: header.publish_time,
                deliver_at: 0,
                broker_time: ctx.now.unix_ms,
                last_index: 0,
            };
            for subscription in self.subscriptions.values_mut() {
                subscription.offer(&entry, &self.info, ctx);
            }
            return Published::Done;
        }
        // The chunks of a message share a sequence id, so only the last one counts.
        if self.dedup_on && !header.is_leading_chunk() {
            self.dedup.record(name, highest);
        }
        let position = self.log.append(payload.raw, &header, messages, ctx.now.unix_ms);
        self.receipt(link, send, position, ctx);
        for subscription in self.subscriptions.values_mut() {
            subscription.dispatch(&self.info, &self.log, ctx);
        }
        self.trim(ctx);
        Published::Done
    }

    /// Drops what nobody needs and the topic need not keep.
    pub(crate) fn trim(&mut self, ctx: &Context<'_>) {
        if self.log.bytes() > ctx.config.retention_bytes {
            let needed = self.subscriptions.values().map(Subscription::mark).min().unwrap_or(self.log.end());
            self.log.trim(needed, ctx.config.retention_bytes);
        }
    }

    /// After acknowledgements on a subscription: deliver what they set free, and say so when the topic has ended.
    pub(crate) fn after_ack(&mut self, subscription: u32, ctx: &mut Context<'_>) {
        if let Some(subscription) = self.subscriptions.get_mut(&subscription) {
            subscription.dispatch(&self.info, &self.log, ctx);
            if self.terminated {
                subscription.tell_end(&self.log, ctx);
            }
        }
        self.trim(ctx);
    }

    /// Removes a consumer; a subscription that is not durable goes with its last one.
    pub(crate) fn detach_consumer(&mut self, subscription: u32, consumer: u64, ctx: &mut Context<'_>) {
        let Some(found) = self.subscriptions.get_mut(&subscription) else { return };
        found.detach(consumer, &self.info, &self.log, ctx);
        if !found.durable && found.consumers().next().is_none() {
            self.subscriptions.remove(&subscription);
        }
        self.trim(ctx);
    }

    /// Removes a producer and lets the next one in line publish.
    pub(crate) fn detach_producer(&mut self, key: u64, ctx: &mut Context<'_>) {
        let Some((next, epoch)) = self.producers.remove(key) else { return };
        if let Some(at) = ctx.links.get_mut(next.link).and_then(|s| s.producers.get_mut(&next.id)) {
            at.ready = true;
        }
        let success = proto::CommandProducerSuccess {
            request_id: next.request_id,
            last_sequence_id: Some(self.dedup.last(&next.name)),
            producer_name: next.name,
            schema_version: Some(Bytes::new()),
            topic_epoch: Some(epoch),
            producer_ready: Some(true),
        };
        ctx.links.send(next.link, &Command::ProducerSuccess(success));
    }

    /// Closes all producers and consumers as an unload does. `assigned` is the address of the new owner, if it is told.
    pub(crate) fn disconnect_all(&mut self, assigned: Option<&str>, ctx: &mut Context<'_>) {
        self.close_producers(assigned, ctx);
        for subscription in self.subscriptions.values_mut() {
            subscription.detach_all(assigned, &self.info, ctx);
        }
        self.subscriptions.retain(|_, s| s.durable);
    }

    /// Ends the topic: no more messages. Returns the position of the last one.
    pub(crate) fn terminate(&mut self, ctx: &mut Context<'_>) -> Position {
        self.terminated = true;
        self.close_producers(None, ctx);
        for subscription in self.subscriptions.values_mut() {
            subscription.tell_end(&self.log, ctx);
        }
        self.log.last().map_or(Position { ledger: -1, entry: -1 }, |(position, ..)| position)
    }

    fn close_producers(&mut self, assigned: Option<&str>, ctx: &mut Context<'_>) {
        for producer in self.producers.clear() {
            let Some(session) = ctx.links.get_mut(producer.link) else { continue };
            session.producers.remove(&producer.id);
            session.closed_producers.insert(producer.id);
            let close = proto::CommandCloseProducer {
                producer_id: producer.id,
                request_id: NO_REQUEST,
                assigned_broker_service_url: assigned.map(str::to_owned),
                ..Default::default()
            };
            ctx.links.send(producer.link, &Command::CloseProducer(close));
        }
    }

    fn receipt(&self, link: LinkId, send: &proto::CommandSend, position: Position, ctx: &mut Context<'_>) {
        // As observed: what a client did not give comes back as −1, except that a plain 0 stays 0.
        let given = send.highest_sequence_id();
        let receipt = proto::CommandSendReceipt {
            producer_id: send.producer_id,
            sequence_id: send.sequence_id,
            message_id: Some(proto::MessageIdData {
                ledger_id: position.ledger as u64,
                entry_id: position.entry as u64,
                ..Default::default()
            }),
            highest_sequence_id: Some(if given >= send.sequence_id { given } else { u64::MAX }),
        };
        let command = Command::SendReceipt(receipt);
        let mut delay = std::time::Duration::ZERO;
        if !ctx.faults.is_empty()
            && let Some(place) = self.info.place(link, ctx)
        {
            if let Some(FaultKind::Delay(_, time)) =
                ctx.faults.take(place, |k| matches!(k, FaultKind::Delay(Request::Send | Request::Any, _)))
            {
                delay = time;
            }
            if ctx.faults.take(place, |k| *k == FaultKind::LoseReceipt).is_some() {
                return;
            }
            if ctx.faults.take(place, |k| *k == FaultKind::RepeatReceipt).is_some() {
                ctx.links.receipt(link, command.clone(), delay, ctx.now, ctx.timers);
            }
        }
        ctx.links.receipt(link, command, delay, ctx.now, ctx.timers);
    }
}

fn send_error(
    link: LinkId,
    send: &proto::CommandSend,
    error: ServerError,
    message: &str,
    ctx: &mut Context<'_>,
) -> Published {
    let command = proto::CommandSendError {
        producer_id: send.producer_id,
        sequence_id: send.sequence_id,
        error: error as i32,
        message: message.to_owned(),
    };
    ctx.links.send(link, &Command::SendError(command));
    Published::Done
}
