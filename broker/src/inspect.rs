//! What a test sees of a cluster: copies, taken at one moment. Changes nothing.

use bytes::Bytes;
use geminga_core::compression::{Compression, decompress};
use geminga_core::topic_name::TopicName;
use geminga_core::wire::proto::{MessageMetadata, ProducerAccessMode, command_subscribe::SubType};
use geminga_core::wire::{WireError, next_record};
use prost::Message as _;

use crate::cluster::Cluster;
use crate::log::{Entry, Position, metadata_of};
use crate::subscription::Subscription;
use crate::topic::Topic;
use crate::{LinkId, NodeId};

/// Larger values than this are not decompressed for inspection.
const LARGEST_VALUE: usize = 1 << 30;

/// A topic.
#[derive(Clone, Debug)]
pub struct TopicView {
    /// Full name.
    pub name: String,
    /// The broker that serves it.
    pub owner: Option<NodeId>,
    /// Entries held, acknowledged ones included.
    pub entries: u64,
    /// Bytes held.
    pub bytes: usize,
    /// Messages ever published.
    pub messages: u64,
    /// Position of the last entry ever published.
    pub last: Option<Position>,
    /// No more messages are taken.
    pub terminated: bool,
    /// Rises with each change of exclusive access.
    pub topic_epoch: Option<u64>,
    /// Those that may publish, by name.
    pub producers: Vec<ProducerView>,
    /// Producers that wait for exclusive access, in order.
    pub waiting: Vec<ProducerView>,
    /// In order of creation.
    pub subscriptions: Vec<SubscriptionView>,
}

/// A producer.
#[derive(Clone, Debug)]
pub struct ProducerView {
    /// Its connection.
    pub link: LinkId,
    /// The client's number for it.
    pub producer_id: u64,
    /// Its name, generated or not.
    pub name: String,
    /// The client's count of its connections.
    pub epoch: u64,
    /// How it shares the topic.
    pub access_mode: ProducerAccessMode,
    /// Milliseconds since the epoch.
    pub connected_ms: u64,
    /// As the client gave them.
    pub properties: Vec<(String, String)>,
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionView {
    /// Its name.
    pub name: String,
    /// The type that its consumers last agreed on.
    pub kind: SubType,
    /// It outlives its consumers.
    pub durable: bool,
    /// Unacknowledged entries, which Pulsar calls `msgBacklog`.
    pub backlog_entries: u64,
    /// Unacknowledged messages.
    pub backlog_messages: u64,
    /// Messages that consumers of Shared and Key_Shared hold.
    pub unacked_messages: u64,
    /// Entries that wait for their delivery time.
    pub delayed_entries: usize,
    /// Everything up to here is acknowledged.
    pub mark_delete: Position,
    /// In order of arrival.
    pub consumers: Vec<ConsumerView>,
    /// As the client gave them when it was created.
    pub properties: Vec<(String, String)>,
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct ConsumerView {
    /// Its connection.
    pub link: LinkId,
    /// The client's number for it.
    pub consumer_id: u64,
    /// Its name, maybe empty.
    pub name: String,
    /// Messages it may be sent; below zero after a batch that was larger.
    pub permits: i64,
    /// Messages it holds, of Shared and Key_Shared.
    pub unacked_messages: u64,
    /// It is the one that gets messages. Always true of Shared and Key_Shared.
    pub active: bool,
    /// 0 is served first.
    pub priority: i32,
    /// Messages sent to it.
    pub sent_messages: u64,
    /// Milliseconds since the epoch.
    pub connected_ms: u64,
    /// As the client gave them.
    pub properties: Vec<(String, String)>,
}

/// One message as it is stored, out of its batch and decompressed. A chunk is a message of its own; encrypted bytes stay so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Of its entry.
    pub position: Position,
    /// In its batch.
    pub batch_index: Option<u32>,
    /// By the entry's producer.
    pub producer_name: String,
    /// Its own, or its entry's.
    pub sequence_id: u64,
    /// Text, or base64 text of a bytes key.
    pub key: Option<String>,
    /// Before the key for Key_Shared.
    pub ordering_key: Option<Bytes>,
    /// In their order.
    pub properties: Vec<(String, String)>,
    /// Milliseconds since the epoch, by the producer's clock.
    pub publish_time: u64,
    /// Milliseconds since the epoch; 0 is none.
    pub event_time: u64,
    /// The value.
    pub payload: Bytes,
}

impl Cluster {
    /// Full names of all topics, partitions included, in order.
    pub fn topics(&self) -> Vec<String> {
        self.store.topics().map(|t| t.info.name.to_string()).collect()
    }

    /// Full names of all partitioned topics, in order.
    pub fn partitioned_topics(&self) -> Vec<String> {
        self.store.partitioned.keys().map(TopicName::to_string).collect()
    }

    /// Tenants, in order.
    pub fn tenants(&self) -> Vec<String> {
        self.store.tenants.iter().cloned().collect()
    }

    /// Namespaces, in order.
    pub fn namespaces(&self) -> Vec<String> {
        self.store.namespaces.keys().cloned().collect()
    }

    /// A topic, or partition; `None` when there is none of that name.
    pub fn topic(&self, topic: &str) -> Option<TopicView> {
        let topic = self.find(topic)?;
        let producer = |p: &crate::producer::Producer| ProducerView {
            link: p.link,
            producer_id: p.id,
            name: p.name.clone(),
            epoch: p.epoch,
            access_mode: p.mode,
            connected_ms: p.connected_ms,
            properties: p.properties.clone(),
        };
        Some(TopicView {
            name: topic.info.name.to_string(),
            owner: self.store.owner(&topic.info.name),
            entries: topic.log.end() - topic.log.base(),
            bytes: topic.log.bytes(),
            messages: topic.log.messages(),
            last: topic.log.last().map(|(position, ..)| position),
            terminated: topic.terminated,
            topic_epoch: topic.producers.topic_epoch(),
            producers: topic.producers.iter().map(producer).collect(),
            waiting: topic.producers.waiting().map(producer).collect(),
            subscriptions: topic.subscriptions.values().map(|s| subscription_view(topic, s)).collect(),
        })
    }

    /// A subscription of a topic, or partition.
    pub fn subscription(&self, topic: &str, subscription: &str) -> Option<SubscriptionView> {
        let topic = self.find(topic)?;
        Some(subscription_view(topic, topic.subscription(subscription)?))
    }

    /// The messages that a topic holds, in order; none for a topic that is not there. Partitions of a partitioned
    /// topic follow each other. Errors: an entry that does not decode.
    pub fn stored(&self, topic: &str) -> Result<Vec<StoredMessage>, WireError> {
        let mut messages = Vec::new();
        let Ok(name) = TopicName::parse(topic) else { return Ok(messages) };
        for name in self.with_partitions(&name) {
            let Some(topic) = self.store.find(&name).and_then(|key| self.store.topic(key)) else { continue };
            for entry in topic.log.entries() {
                read_entry(entry, &mut messages)?;
            }
        }
        Ok(messages)
    }

    /// The messages that a subscription has not acknowledged, in order. Errors: an entry that does not decode.
    pub fn unacked(&self, topic: &str, subscription: &str) -> Result<Vec<StoredMessage>, WireError> {
        let mut messages = Vec::new();
        let found = self.find(topic).and_then(|t| Some((t, t.subscription(subscription)?)));
        let Some((topic, subscription)) = found else { return Ok(messages) };
        for (entry, remaining) in subscription.unacked(&topic.log) {
            let from = messages.len();
            read_entry(entry, &mut messages)?;
            if let Some(remaining) = remaining {
                let mut index = 0;
                messages.retain(|_| {
                    index += 1;
                    index <= from || remaining.contains((index - from - 1) as u32)
                });
            }
        }
        Ok(messages)
    }

    fn find(&self, topic: &str) -> Option<&Topic> {
        self.store.topic(self.store.find(&TopicName::parse(topic).ok()?)?)
    }
}

fn subscription_view(topic: &Topic, subscription: &Subscription) -> SubscriptionView {
    let messages = |(entry, left): (&Entry, Option<&geminga_core::wire::AckSet>)| {
        left.map_or(u64::from(entry.messages), |set| set.len() as u64)
    };
    let active = subscription.active();
    let single = matches!(subscription.kind, SubType::Exclusive | SubType::Failover);
    SubscriptionView {
        name: subscription.name.clone(),
        kind: subscription.kind,
        durable: subscription.durable,
        backlog_entries: subscription.backlog(&topic.log),
        backlog_messages: subscription.unacked(&topic.log).map(messages).sum(),
        unacked_messages: subscription.consumers().map(|c| c.unacked).sum(),
        delayed_entries: subscription.delayed(),
        mark_delete: topic.log.position_before(subscription.mark()),
        consumers: subscription
            .consumers()
            .map(|c| ConsumerView {
                link: c.link,
                consumer_id: c.id,
                name: c.name.clone(),
                permits: c.permits,
                unacked_messages: c.unacked,
                active: !single || active == Some(c.key),
                priority: c.priority,
                sent_messages: c.sent_messages,
                connected_ms: c.connected_ms,
                properties: c.properties.clone(),
            })
            .collect(),
        properties: subscription.properties.clone(),
    }
}

fn read_entry(entry: &Entry, out: &mut Vec<StoredMessage>) -> Result<(), WireError> {
    let encoded = metadata_of(&entry.raw).ok_or(WireError::Truncated { what: "metadata" })?;
    let body = entry.raw.slice(entry.raw.len() - body_len(&entry.raw, encoded.len())..);
    let metadata = MessageMetadata::decode(encoded).map_err(WireError::BadMetadata)?;
    let single = StoredMessage {
        position: entry.position,
        batch_index: None,
        sequence_id: metadata.sequence_id,
        key: metadata.partition_key.clone(),
        ordering_key: metadata.ordering_key.clone(),
        properties: metadata.properties.iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect(),
        publish_time: metadata.publish_time,
        event_time: metadata.event_time(),
        payload: body.clone(),
        producer_name: metadata.producer_name.clone(),
    };
    let encrypted = !metadata.encryption_keys.is_empty();
    if encrypted || metadata.num_chunks_from_msg() > 1 {
        out.push(single);
        return Ok(());
    }
    let codec = Compression::from_number(metadata.compression.unwrap_or(0))?;
    let body = decompress(codec, &body, metadata.uncompressed_size(), LARGEST_VALUE)?;
    if metadata.num_messages_in_batch.is_none() {
        out.push(StoredMessage { payload: body, ..single });
        return Ok(());
    }
    let (mut at, mut index) = (0, 0);
    while let Some(record) = next_record(&body, &mut at)? {
        out.push(StoredMessage {
            batch_index: Some(index),
            sequence_id: record.sequence_id.unwrap_or(single.sequence_id),
            key: record.key(&body).map(|key| key.into_owned()),
            ordering_key: record.ordering_key(&body).map(Bytes::copy_from_slice),
            properties: record.properties(&body),
            event_time: record.event_time,
            payload: record.payload_bytes(&body),
            ..single.clone()
        });
        index += 1;
    }
    Ok(())
}

/// Bytes behind the metadata.
fn body_len(raw: &Bytes, metadata: usize) -> usize {
    let checksum = if raw.starts_with(&[0x0e, 0x01]) { 6 } else { 0 };
    raw.len() - checksum - 4 - metadata
}
