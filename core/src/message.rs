//! Messages on their way out and as received. Decides what a message is to the application; knows no connection.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;

use crate::message_id::MessageId;
use crate::topic_name::TopicName;
use crate::wire::batch::Record;
use crate::wire::proto::MessageMetadata;

/// A message to send: a payload, and what may go with it.
///
/// Shape: an empty payload is a value like any other; [`OutgoingMessage::null`] is the tombstone.
#[derive(Clone, Debug, Default)]
pub struct OutgoingMessage {
    /// The value.
    pub payload: Bytes,
    /// Decides the partition and, on Key_Shared, the consumer. Base64 text when `key_is_base64`.
    pub key: Option<String>,
    /// Whether `key` is the base64 form of a binary key.
    pub key_is_base64: bool,
    /// Decides the consumer on Key_Shared instead of `key`; never the partition.
    pub ordering_key: Option<Bytes>,
    /// Free pairs, in order.
    pub properties: Vec<(String, String)>,
    /// The application's own time, ms since 1970-01-01 UTC.
    pub event_time: Option<u64>,
    /// The sequence id, growing from message to message; the producer counts when `None`.
    pub sequence_id: Option<u64>,
    /// Not before this time, ms since 1970-01-01 UTC; Shared and Key_Shared subscriptions honour it.
    pub deliver_at_time: Option<i64>,
    /// Clusters to replicate to; empty for the namespace's own.
    pub replicate_to: Vec<String>,
    /// Version of the schema it is written with, in the registry of the topic; the producer's own when `None`.
    pub schema_version: Option<Bytes>,
    /// The value is null, which deletes its key on a compacted topic; the payload must be empty.
    pub null_value: bool,
}

impl OutgoingMessage {
    /// A message with this payload and nothing else.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        OutgoingMessage { payload: payload.into(), ..OutgoingMessage::default() }
    }

    /// A null value for `key`.
    pub fn null(key: impl Into<String>) -> Self {
        OutgoingMessage { null_value: true, ..OutgoingMessage::default() }.with_key(key)
    }

    /// Sets the key.
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self.key_is_base64 = false;
        self
    }

    /// Sets a binary key; it travels as base64.
    pub fn with_key_bytes(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(BASE64.encode(key));
        self.key_is_base64 = true;
        self
    }

    /// Sets the ordering key.
    pub fn with_ordering_key(mut self, key: impl Into<Bytes>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Adds a property.
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Sets the event time, ms since 1970-01-01 UTC.
    pub fn with_event_time(mut self, unix_ms: u64) -> Self {
        self.event_time = Some(unix_ms);
        self
    }

    /// Sets the sequence id.
    pub fn with_sequence_id(mut self, id: u64) -> Self {
        self.sequence_id = Some(id);
        self
    }

    /// Sets the earliest delivery, ms since 1970-01-01 UTC.
    pub fn with_deliver_at(mut self, unix_ms: i64) -> Self {
        self.deliver_at_time = Some(unix_ms);
        self
    }
}

impl<T: Into<Bytes>> From<T> for OutgoingMessage {
    fn from(payload: T) -> Self {
        OutgoingMessage::new(payload)
    }
}

/// One entry as received: what its messages share.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) topic: TopicName,
    pub(crate) ledger_id: i64,
    pub(crate) entry_id: i64,
    pub(crate) partition: i32,
    pub(crate) redelivery_count: u32,
    pub(crate) metadata: MessageMetadata,
    /// The payload, uncompressed: a value, or the records of a batch.
    pub(crate) body: Bytes,
    /// Messages in the batch, 0 for a single message.
    pub(crate) batch_size: u32,
    /// Index of the entry's last message in the topic, when the broker counts.
    pub(crate) last_index: Option<u64>,
}

/// A message received.
///
/// Shape: a view into the entry it came with. Keeping one message of a batch keeps the whole batch's bytes;
/// [`Message::detach`] copies what is needed and lets go of the rest.
#[derive(Clone)]
pub struct Message {
    pub(crate) entry: Arc<Entry>,
    /// The message's record in its batch, `None` for a single message.
    pub(crate) record: Option<Record>,
    pub(crate) batch_index: i32,
}

impl Message {
    /// The value.
    pub fn payload(&self) -> &[u8] {
        match &self.record {
            Some(r) => r.payload(&self.entry.body),
            None => &self.entry.body,
        }
    }

    /// The value, sharing the receive buffer.
    pub fn payload_bytes(&self) -> Bytes {
        match &self.record {
            Some(r) => r.payload_bytes(&self.entry.body),
            None => self.entry.body.clone(),
        }
    }

    /// Where the message is stored.
    pub fn message_id(&self) -> MessageId {
        MessageId {
            ledger_id: self.entry.ledger_id,
            entry_id: self.entry.entry_id,
            partition: self.entry.partition,
            batch_index: self.batch_index,
            batch_size: self.entry.batch_size as i32,
        }
    }

    /// The full name of the topic or partition it came from.
    pub fn topic(&self) -> &str {
        self.entry.topic.as_str()
    }

    /// The key as text; a binary key as its base64 form.
    pub fn key(&self) -> Option<Cow<'_, str>> {
        match &self.record {
            Some(r) => r.key(&self.entry.body),
            None => self.entry.metadata.partition_key.as_deref().map(Cow::Borrowed),
        }
    }

    /// Whether [`key`](Self::key) is the base64 form of a binary key.
    pub fn has_base64_key(&self) -> bool {
        match &self.record {
            Some(r) => r.partition_key_b64_encoded,
            None => self.entry.metadata.partition_key_b64_encoded.unwrap_or(false),
        }
    }

    /// The key as bytes: decoded when it was binary, the text's bytes otherwise.
    pub fn key_bytes(&self) -> Option<Vec<u8>> {
        let key = self.key()?;
        match self.has_base64_key() {
            true => BASE64.decode(key.as_bytes()).ok(),
            false => Some(key.as_bytes().to_vec()),
        }
    }

    /// The ordering key.
    pub fn ordering_key(&self) -> Option<&[u8]> {
        match &self.record {
            Some(r) => r.ordering_key(&self.entry.body),
            None => self.entry.metadata.ordering_key.as_deref(),
        }
    }

    /// The properties in order; a batch member's are decoded at each call.
    pub fn properties(&self) -> Vec<(String, String)> {
        match &self.record {
            Some(r) => r.properties(&self.entry.body),
            None => self.entry.metadata.properties.iter().map(|p| (p.key.clone(), p.value.clone())).collect(),
        }
    }

    /// The application's time, ms since 1970-01-01 UTC.
    pub fn event_time(&self) -> Option<u64> {
        let time = match &self.record {
            Some(r) => r.event_time,
            None => self.entry.metadata.event_time.unwrap_or(0),
        };
        (time != 0).then_some(time)
    }

    /// When the producer sent it, ms since 1970-01-01 UTC.
    pub fn publish_time(&self) -> u64 {
        self.entry.metadata.publish_time
    }

    /// Who sent it.
    pub fn producer_name(&self) -> &str {
        &self.entry.metadata.producer_name
    }

    /// Its sequence id at that producer.
    pub fn sequence_id(&self) -> u64 {
        match &self.record {
            Some(r) => {
                r.sequence_id.unwrap_or(self.entry.metadata.sequence_id + self.batch_index.max(0) as u64)
            }
            None => self.entry.metadata.sequence_id,
        }
    }

    /// How often the broker delivered it before. Shared and Key_Shared subscriptions count; on Exclusive and Failover it is
    /// always 0, however often a message comes again.
    pub fn redelivery_count(&self) -> u32 {
        self.entry.redelivery_count
    }

    /// Version of the schema it was written with; empty without one.
    pub fn schema_version(&self) -> &[u8] {
        self.entry.metadata.schema_version.as_deref().unwrap_or_default()
    }

    /// The cluster it was replicated from.
    pub fn replicated_from(&self) -> Option<&str> {
        self.entry.metadata.replicated_from.as_deref()
    }

    /// Its place in the topic, counted by brokers that are set to.
    pub fn index(&self) -> Option<u64> {
        let last = self.entry.last_index?;
        match self.entry.batch_size {
            0 => Some(last),
            n => (last + 1 + self.batch_index.max(0) as u64).checked_sub(u64::from(n)),
        }
    }

    /// Whether the value is null, which deletes its key on a compacted topic.
    pub fn is_null(&self) -> bool {
        match &self.record {
            Some(r) => r.null_value,
            None => self.entry.metadata.null_value.unwrap_or(false),
        }
    }

    /// The same message with a copy of its bytes, so that the receive buffer can go. For messages kept long.
    pub fn detach(&self) -> Message {
        let old = &self.entry;
        let (body, record) = match &self.record {
            Some(r) => {
                let (bytes, record) = r.detach(&old.body);
                (bytes, Some(record))
            }
            None => (Bytes::copy_from_slice(&old.body), None),
        };
        let entry = Entry {
            topic: old.topic.clone(),
            metadata: old.metadata.clone(),
            body,
            ledger_id: old.ledger_id,
            entry_id: old.entry_id,
            partition: old.partition,
            redelivery_count: old.redelivery_count,
            batch_size: old.batch_size,
            last_index: old.last_index,
        };
        Message { entry: Arc::new(entry), record, batch_index: self.batch_index }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.message_id())
            .field("topic", &self.topic())
            .field("key", &self.key())
            .field("payload_len", &self.payload().len())
            .finish()
    }
}
