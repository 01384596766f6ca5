//! Settings of a producer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::invalid;
use crate::compression::Compression;
use crate::error::Error;
use crate::hash::HashingScheme;
use crate::message::OutgoingMessage;

/// Settings of a producer. Start from [`ProducerConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// The topic, in short or full form.
    pub topic: String,
    /// A name unique on the topic, the key of de-duplication; the broker generates one when `None`.
    pub name: Option<String>,
    /// Whether others may produce beside this one.
    pub access_mode: AccessMode,
    /// How long a message may wait for its receipt, `None` for ever. Default 30 s.
    pub send_timeout: Option<Duration>,
    /// Messages without receipt that a producer may hold, over all partitions; 0 for no limit. Default 0: the client's
    /// memory limit is the brake.
    pub max_pending_messages: usize,
    /// Whether `send` waits for room instead of failing; honoured by the adapters. Default false.
    pub block_if_queue_full: bool,
    /// How messages are gathered into batches.
    pub batching: Batching,
    /// Codec for payloads.
    pub compression: Compression,
    /// How a message without key finds its partition.
    pub routing: Routing,
    /// How a key finds its partition.
    pub hashing_scheme: HashingScheme,
    /// Last sequence id already used; the first message gets the next. `None` continues from the broker's value.
    pub initial_sequence_id: Option<i64>,
    /// A subscription made with the producer unless it exists, so that the topic keeps messages for it from the first on.
    pub initial_subscription: Option<String>,
    /// Shown in topic statistics.
    pub properties: Vec<(String, String)>,
}

impl ProducerConfig {
    /// The defaults for a topic.
    pub fn new(topic: impl Into<String>) -> Self {
        ProducerConfig {
            topic: topic.into(),
            name: None,
            access_mode: AccessMode::Shared,
            send_timeout: Some(Duration::from_secs(30)),
            max_pending_messages: 0,
            block_if_queue_full: false,
            batching: Batching::default(),
            compression: Compression::None,
            routing: Routing::RoundRobin,
            hashing_scheme: HashingScheme::default(),
            initial_sequence_id: None,
            initial_subscription: None,
            properties: Vec::new(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let bad = |why: &str| Err(invalid(&format!("creating a producer on {}", self.topic), why));
        if self.send_timeout.is_some_and(|t| t.is_zero()) {
            return bad("send_timeout must be longer than zero; use None for no limit");
        }
        if self.name.as_ref().is_some_and(|n| n.is_empty()) {
            return bad("the producer name must not be empty; leave it out to have one generated");
        }
        if self.batching.enabled && self.batching.max_messages == 0 {
            return bad("batching.max_messages must be at least 1");
        }
        if self.batching.enabled && self.batching.max_bytes == 0 {
            return bad("batching.max_bytes must be at least 1");
        }
        let delay = self.batching.max_publish_delay;
        if let Some(timeout) = self.send_timeout.filter(|timeout| self.batching.enabled && delay >= *timeout)
        {
            return bad(&format!(
                "batching.max_publish_delay ({delay:?}) must be shorter than send_timeout ({timeout:?}): messages would \
                 time out while their batch waits for company"
            ));
        }
        if self.initial_sequence_id.is_some_and(|id| !(-1..i64::MAX - 1).contains(&id)) {
            return bad("initial_sequence_id must be at least -1 and below 2^63 - 2");
        }
        Ok(())
    }
}

/// How messages are gathered into batches: a batch leaves when any limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Whether to batch at all. Default true.
    pub enabled: bool,
    /// Messages in one batch. Default 1000.
    pub max_messages: usize,
    /// Payload bytes in one batch, before compression. Default 128 KiB.
    pub max_bytes: usize,
    /// How long the first message of a batch waits for company; shorter than the send timeout. Default 1 ms.
    pub max_publish_delay: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Batching {
            enabled: true,
            max_messages: 1000,
            max_bytes: 128 << 10,
            max_publish_delay: Duration::from_millis(1),
        }
    }
}

impl Batching {
    /// Each message is sent by itself, at once.
    pub fn off() -> Self {
        Batching { enabled: false, ..Batching::default() }
    }
}

/// How many producers a topic takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessMode {
    /// Any number.
    #[default]
    Shared,
    /// This one only; creation fails if there is another.
    Exclusive,
    /// This one only; creation waits until there is no other.
    WaitForExclusive,
    /// This one only; others are thrown out.
    ExclusiveWithFencing,
}

/// How a message without key finds its partition. A key always goes by hash, unless the function decides.
#[derive(Clone, Debug, Default)]
pub enum Routing {
    /// In turn; with batching on, one partition is kept until its batch is full or due.
    #[default]
    RoundRobin,
    /// One partition, drawn at creation.
    SinglePartition,
    /// The function decides for every message, keyed ones included.
    Custom(MessageRouter),
}

/// A function from a message and the number of partitions (at least 1) to a partition. A result out of range is an
/// error of that send.
#[derive(Clone)]
pub struct MessageRouter(pub Arc<RoutingFunction>);

/// From a message and the number of partitions to a partition.
pub type RoutingFunction = dyn Fn(&OutgoingMessage, u32) -> u32 + Send + Sync;

impl fmt::Debug for MessageRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageRouter(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_outwaits_its_messages_is_refused_with_both_values() {
        let of = |delay, timeout, enabled| ProducerConfig {
            send_timeout: timeout,
            batching: Batching { enabled, max_publish_delay: delay, ..Batching::default() },
            ..ProducerConfig::new("t")
        };
        let second = Duration::from_secs(1);
        for delay in [2 * second, 3 * second] {
            let error = of(delay, Some(2 * second), true).validate().unwrap_err().to_string();
            assert!(error.contains(&format!("{delay:?}")) && error.contains("send_timeout (2s)"), "{error}");
        }
        of(second, Some(2 * second), true).validate().unwrap();
        of(3 * second, None, true).validate().unwrap();
        of(3 * second, Some(2 * second), false).validate().unwrap();
    }

    #[test]
    fn a_first_sequence_id_must_leave_room_for_the_next() {
        for (id, fine) in [(-2, false), (-1, true), (0, true), (i64::MAX - 2, true), (i64::MAX, false)] {
            let config = ProducerConfig { initial_sequence_id: Some(id), ..ProducerConfig::new("t") };
            assert_eq!(config.validate().is_ok(), fine, "{id}");
        }
    }
}
