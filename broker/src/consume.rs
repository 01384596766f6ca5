//! The commands of consumers: finds the subscription that is meant and answers. What they do is in `subscription`.

use geminga_core::wire::{AckSet, Command, proto};
use proto::ServerError;
use proto::command_ack::AckType;
use proto::command_subscribe::{InitialPosition, SubType};

use crate::LinkId;
use crate::cluster::Cluster;
use crate::log::Position;
use crate::publish::pairs;
use crate::session::ConsumerAt;
use crate::subscription::{AttachError, Consumer, KeySharedPolicy};
use crate::time::Now;
use crate::topic::Topic;

impl Cluster {
    /// `taken_is_alive`: the exclusive consumer in the way has just proved to be alive.
    pub(crate) fn subscribe(
        &mut self,
        now: Now,
        link: LinkId,
        request: proto::CommandSubscribe,
        taken_is_alive: bool,
    ) {
        let Some(session) = self.links.get(link) else { return };
        let (node, request_id, id) = (session.node, request.request_id, request.consumer_id);
        // Asking again for what the link already has succeeds again, as observed.
        if session.consumers.contains_key(&id) {
            return self.links.success(link, request_id);
        }
        let refuse = |cluster: &mut Self, error, message: &str| {
            cluster.links.error(link, request_id, error, message);
        };
        if self.is_waiting(link, |c| matches!(c, Command::Subscribe(s) if s.consumer_id == id)) {
            let message = "Consumer is already present on the connection";
            return refuse(self, ServerError::ServiceNotReady, message);
        }
        if request.subscription.is_empty() {
            // An oddity of the real broker, kept as observed.
            return refuse(self, ServerError::ProducerBusy, "Empty subscription name");
        }
        let Ok(kind) = SubType::try_from(request.sub_type) else {
            return refuse(self, ServerError::NotAllowedError, "Unknown subscription type");
        };
        let single = matches!(kind, SubType::Exclusive | SubType::Failover);
        let key = match self.topic_for(&request.topic, node, request.force_topic_creation()) {
            Ok(key) => key,
            Err((error, message)) => return refuse(self, error, &message),
        };
        let persistent = self.store.topic(key).is_some_and(|t| t.info.persistent);
        if request.read_compacted() && !(single && persistent) {
            let message = "readCompacted only allowed on failover or exclusive subscriptions";
            return refuse(self, ServerError::NotAllowedError, message);
        }
        let name = self.store.topic(key).expect("topic_for found it").info.name.clone();
        self.schema_version(&name, request.schema.clone());
        let consumer_key = self.next_key();
        let meta = request.key_shared_meta.clone().unwrap_or_default();
        let policy = KeySharedPolicy {
            sticky: meta.key_shared_mode() == proto::KeySharedMode::Sticky,
            out_of_order: meta.allow_out_of_order_delivery(),
        };
        let range = |r: &proto::IntRange| Some((u16::try_from(r.start).ok()?, u16::try_from(r.end).ok()?));
        let Some(ranges) = meta.hash_ranges.iter().map(range).collect() else {
            let message = "A hash range must lie within 0 and 65535";
            return refuse(self, ServerError::ConsumerAssignError, message);
        };
        let consumer = Consumer {
            key: consumer_key,
            link,
            id,
            name: request.consumer_name.clone().unwrap_or_default(),
            priority: request.priority_level(),
            permits: 0,
            epoch: request.consumer_epoch,
            ranges,
            pending: Default::default(),
            unacked: 0,
            told_end: false,
            connected_ms: now.unix_ms,
            sent_messages: 0,
            properties: pairs(&request.metadata),
        };
        let (store, mut ctx) = self.parts(now);
        let topic = store.topic_mut(key).expect("found above");
        let mark = start_of(&request, topic, now);
        let (subscription, created) =
            topic.subscription_or_create(&request.subscription, request.durable(), mark);
        let Topic { info, log, subscriptions, .. } = topic;
        let found = subscriptions.get_mut(&subscription).expect("just found or created");
        if created {
            found.properties = pairs(&request.subscription_properties);
        }
        match found.attach(consumer, kind, policy, taken_is_alive) {
            Ok(()) => {
                let at = ConsumerAt { topic: key, subscription, key: consumer_key };
                if let Some(session) = ctx.links.get_mut(link) {
                    session.consumers.insert(id, at);
                }
                found.place(consumer_key, info, &mut ctx);
                ctx.links.success(link, request_id);
                found.dispatch(info, log, &mut ctx);
                self.topics_changed(now);
            }
            Err(AttachError::Taken(holder)) => {
                self.ask_if_alive(now, holder, link, Command::Subscribe(Box::new(request)));
            }
            Err(AttachError::Busy(message)) => refuse(self, ServerError::ConsumerBusy, &message),
            Err(AttachError::Ranges(message)) => refuse(self, ServerError::ConsumerAssignError, &message),
        }
    }

    pub(crate) fn flow(&mut self, now: Now, link: LinkId, flow: &proto::CommandFlow) {
        let Some(at) = self.consumer_at(link, flow.consumer_id) else { return };
        if flow.message_permits == 0 {
            // As observed: a grant of nothing is a broken client.
            return self.close(now, link);
        }
        let (store, mut ctx) = self.parts(now);
        let Some(topic) = store.topic_mut(at.topic) else { return };
        let Topic { info, log, subscriptions, terminated, .. } = topic;
        if let Some(subscription) = subscriptions.get_mut(&at.subscription) {
            subscription.flow(at.key, flow.message_permits, info, log, &mut ctx);
            // It would read on, and finds that there is nothing to come.
            if *terminated {
                subscription.tell_end(log, &mut ctx);
            }
        }
    }

    pub(crate) fn ack(&mut self, now: Now, link: LinkId, ack: &proto::CommandAck) {
        // Nobody there: no answer either, as observed.
        let Some(at) = self.consumer_at(link, ack.consumer_id) else { return };
        let (store, mut ctx) = self.parts(now);
        let Some(topic) = store.topic_mut(at.topic) else { return };
        if let Some(subscription) = topic.subscriptions.get_mut(&at.subscription) {
            for id in &ack.message_id {
                let position = position(id);
                match ack.ack_type() {
                    AckType::Individual => {
                        subscription.ack(at.key, position, &id.ack_set, &topic.log, &mut ctx)
                    }
                    AckType::Cumulative => {
                        subscription.ack_cumulative(position, &id.ack_set, &topic.log, &mut ctx);
                    }
                }
            }
        }
        if let Some(request_id) = ack.request_id {
            let answer = proto::CommandAckResponse {
                consumer_id: ack.consumer_id,
                request_id: Some(request_id),
                ..Default::default()
            };
            ctx.links.send(link, &Command::AckResponse(answer));
        }
        topic.after_ack(at.subscription, &mut ctx);
    }

    pub(crate) fn redeliver(
        &mut self,
        now: Now,
        link: LinkId,
        request: &proto::CommandRedeliverUnacknowledgedMessages,
    ) {
        let Some(at) = self.consumer_at(link, request.consumer_id) else { return };
        let (store, mut ctx) = self.parts(now);
        let Some(Topic { info, log, subscriptions, .. }) = store.topic_mut(at.topic) else { return };
        let positions: Vec<Position> = request.message_ids.iter().map(position).collect();
        if let Some(subscription) = subscriptions.get_mut(&at.subscription) {
            subscription.redeliver(at.key, &positions, request.consumer_epoch, info, log, &mut ctx);
        }
    }

    pub(crate) fn seek(&mut self, now: Now, link: LinkId, seek: &proto::CommandSeek) {
        let Some(at) = self.consumer_at(link, seek.consumer_id) else {
            return self.links.error(link, seek.request_id, ServerError::MetadataError, "Consumer not found");
        };
        let (store, mut ctx) = self.parts(now);
        let Some(topic) = store.topic_mut(at.topic) else { return };
        if !topic.info.persistent {
            // As observed: there is nowhere to go, and that is fine.
            return ctx.links.success(link, seek.request_id);
        }
        let (offset, remaining) = match (&seek.message_id, seek.message_publish_time) {
            (Some(id), _) => {
                let remaining = (!id.ack_set.is_empty()).then(|| AckSet::from_words(&id.ack_set));
                (topic.log.offset_at_or_after(position(id)), remaining)
            }
            (None, Some(time)) => (topic.log.offset_at_time(time), None),
            (None, None) => {
                let message = "Message id and message publish time were not present";
                return ctx.links.error(link, seek.request_id, ServerError::MetadataError, message);
            }
        };
        if let Some(subscription) = topic.subscriptions.get_mut(&at.subscription) {
            // The consumers are closed before the answer, as observed; they come back by themselves.
            subscription.detach_all(None, &topic.info, &mut ctx);
            subscription.reset(offset, remaining);
        }
        ctx.links.success(link, seek.request_id);
    }

    pub(crate) fn last_message_id(&mut self, link: LinkId, request: &proto::CommandGetLastMessageId) {
        let topic = self
            .consumer_at(link, request.consumer_id)
            .and_then(|at| Some((at, self.store.topic(at.topic)?)));
        let Some((at, topic)) = topic else {
            let message = "Consumer not found";
            return self.links.error(link, request.request_id, ServerError::MetadataError, message);
        };
        if !topic.info.persistent {
            let message = "getLastMessageId is not supported on non-persistent topic";
            return self.links.error(link, request.request_id, ServerError::UnknownError, message);
        }
        let (last, messages, batched) =
            topic.log.last().unwrap_or((Position { ledger: -1, entry: -1 }, 0, false));
        let mut last_message_id = topic.info.message_id(last);
        last_message_id.batch_index = Some(if batched { messages as i32 - 1 } else { -1 });
        let mark = topic.subscriptions.get(&at.subscription).map(|s| topic.log.position_before(s.mark()));
        let answer = proto::CommandGetLastMessageIdResponse {
            last_message_id,
            request_id: request.request_id,
            consumer_mark_delete_position: mark.map(|mark| proto::MessageIdData {
                ledger_id: mark.ledger as u64,
                entry_id: mark.entry as u64,
                ..Default::default()
            }),
        };
        self.links.send(link, &Command::GetLastMessageIdResponse(Box::new(answer)));
    }

    pub(crate) fn consumer_stats(&mut self, now: Now, link: LinkId, request: &proto::CommandConsumerStats) {
        let mut answer =
            proto::CommandConsumerStatsResponse { request_id: request.request_id, ..Default::default() };
        let found = self.consumer_at(link, request.consumer_id).and_then(|at| {
            let topic = self.store.topic(at.topic)?;
            let subscription = topic.subscriptions.get(&at.subscription)?;
            Some((topic, subscription, subscription.consumer(at.key)?))
        });
        match found {
            Some((topic, subscription, consumer)) => {
                answer.msg_rate_out = Some(0.0);
                answer.msg_throughput_out = Some(0.0);
                answer.msg_rate_redeliver = Some(0.0);
                answer.consumer_name = Some(consumer.name.clone());
                answer.available_permits = Some(consumer.permits as u64);
                answer.unacked_messages = Some(consumer.unacked);
                answer.blocked_consumer_on_unacked_msgs = Some(
                    consumer.permits > 0 && !consumer.is_available(self.config.max_unacked_per_consumer),
                );
                answer.r#type = Some(subscription.kind.as_str_name().to_owned());
                answer.msg_rate_expired = Some(0.0);
                answer.msg_backlog = Some(subscription.backlog(&topic.log));
                answer.message_ack_rate = Some(0.0);
            }
            // As observed: the real broker trips over an unknown consumer.
            None => return self.close(now, link),
        }
        self.links.send(link, &Command::ConsumerStatsResponse(Box::new(answer)));
    }

    pub(crate) fn unsubscribe(&mut self, now: Now, link: LinkId, request: &proto::CommandUnsubscribe) {
        let Some(at) = self.consumer_at(link, request.consumer_id) else {
            return self.links.error(
                link,
                request.request_id,
                ServerError::MetadataError,
                "Consumer not found",
            );
        };
        let (store, mut ctx) = self.parts(now);
        let Some(topic) = store.topic_mut(at.topic) else { return };
        let Some(subscription) = topic.subscriptions.get_mut(&at.subscription) else { return };
        if subscription.consumers().count() > 1 && !request.force() {
            let message = "Unconnected or shared consumer attempting to unsubscribe";
            return ctx.links.error(link, request.request_id, ServerError::MetadataError, message);
        }
        if let Some(session) = ctx.links.get_mut(link) {
            session.consumers.remove(&request.consumer_id);
        }
        subscription.detach(at.key, &topic.info, &topic.log, &mut ctx);
        subscription.detach_all(None, &topic.info, &mut ctx);
        topic.subscriptions.remove(&at.subscription);
        topic.trim(&ctx);
        ctx.links.success(link, request.request_id);
    }

    pub(crate) fn close_consumer(&mut self, now: Now, link: LinkId, request: &proto::CommandCloseConsumer) {
        let Some(session) = self.links.get_mut(link) else { return };
        let (id, at) = (request.consumer_id, session.consumers.remove(&request.consumer_id));
        // One that is still being created is not created any more.
        self.forget_waiting(link, |c| matches!(c, Command::Subscribe(s) if s.consumer_id == id));
        self.links.success(link, request.request_id);
        let (store, mut ctx) = self.parts(now);
        if let Some(at) = at
            && let Some(topic) = store.topic_mut(at.topic)
        {
            topic.detach_consumer(at.subscription, at.key, &mut ctx);
        }
    }

    fn consumer_at(&self, link: LinkId, consumer_id: u64) -> Option<ConsumerAt> {
        self.links.get(link)?.consumers.get(&consumer_id).copied()
    }
}

/// Where a subscription begins that SUBSCRIBE creates.
fn start_of(request: &proto::CommandSubscribe, topic: &Topic, now: Now) -> u64 {
    let log = &topic.log;
    if !request.durable() {
        let seconds = request.start_message_rollback_duration_sec();
        if seconds > 0 {
            return log.offset_at_time(now.unix_ms.saturating_sub(seconds.saturating_mul(1000)));
        }
        // The whole entry comes again, whatever the batch index: the client filters. Behind the entry that comes next
        // there is nothing to point at, and the initial position decides.
        let start = request.start_message_id.as_ref().map(position);
        if let Some(start) = start.filter(|id| id.before() <= log.position_before(log.end())) {
            return log.offset_at_or_after(start);
        }
    }
    match request.initial_position() {
        InitialPosition::Latest => log.end(),
        InitialPosition::Earliest => log.base(),
    }
}

pub(crate) fn position(id: &proto::MessageIdData) -> Position {
    Position { ledger: id.ledger_id as i64, entry: id.entry_id as i64 }
}
