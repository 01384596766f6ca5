//! Settings of a consumer and of a reader.

use std::time::Duration;

use super::{DeadLetterPolicy, invalid};
use crate::error::Error;
use crate::io::{KeyRange, Position};

/// Settings of a consumer. Start from [`ConsumerConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The topic, in short or full form.
    pub topic: String,
    /// The subscription's name.
    pub subscription: String,
    /// How the subscription shares messages among its consumers.
    pub subscription_type: SubscriptionType,
    /// Where a subscription that does not exist yet starts.
    pub initial_position: InitialPosition,
    /// Whether the subscription outlives its consumers.
    pub durable: bool,
    /// Name shown in statistics, and the order of Failover; drawn when `None`.
    pub consumer_name: Option<String>,
    /// Dispatch preference in Shared and Failover, 0 first.
    pub priority_level: i32,
    /// Messages asked for ahead of the application, for each partition; 0 asks for one at each receive. Default 1000.
    pub receiver_queue_size: u32,
    /// The same over all partitions together, which share it evenly: the smaller limit holds. Default 50000.
    pub max_total_receiver_queue_size: u32,
    /// How long acknowledgements are gathered; zero sends each at once. Default 100 ms.
    pub ack_group_time: Duration,
    /// Acknowledgements gathered before they are sent early. Default 1000.
    pub ack_group_size: usize,
    /// Whether an acknowledgement of one message of a batch is told to the broker before the rest. Default false.
    pub batch_index_ack: bool,
    /// Pause before a negatively acknowledged message is asked for again. Default 60 s.
    pub negative_ack_redelivery_delay: Duration,
    /// Where messages go that are given back again and again (Shared and Key_Shared); `None` for redelivery without limit.
    pub dead_letter_policy: Option<DeadLetterPolicy>,
    /// Whether a start or seek id is delivered too. Default false: the message after it comes first.
    pub start_message_id_inclusive: bool,
    /// Read the compacted view (Exclusive and Failover, persistent topics).
    pub read_compacted: bool,
    /// How Key_Shared divides keys.
    pub key_shared_policy: KeySharedPolicy,
    /// Shown in topic statistics.
    pub properties: Vec<(String, String)>,
    /// Stored with the subscription when it is created.
    pub subscription_properties: Vec<(String, String)>,
    /// Whether the topic is created when it does not exist. Default true.
    pub force_topic_creation: bool,
    /// Where a non-durable subscription starts; readers set it.
    pub start_position: Option<Position>,
}

impl ConsumerConfig {
    /// The defaults for a topic and a subscription.
    pub fn new(topic: impl Into<String>, subscription: impl Into<String>) -> Self {
        ConsumerConfig {
            topic: topic.into(),
            subscription: subscription.into(),
            subscription_type: SubscriptionType::Exclusive,
            initial_position: InitialPosition::Latest,
            durable: true,
            consumer_name: None,
            priority_level: 0,
            receiver_queue_size: 1000,
            max_total_receiver_queue_size: 50_000,
            ack_group_time: Duration::from_millis(100),
            ack_group_size: 1000,
            batch_index_ack: false,
            negative_ack_redelivery_delay: Duration::from_secs(60),
            dead_letter_policy: None,
            start_message_id_inclusive: false,
            read_compacted: false,
            key_shared_policy: KeySharedPolicy::AutoSplit,
            properties: Vec::new(),
            subscription_properties: Vec::new(),
            force_topic_creation: true,
            start_position: None,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let bad = |why: &str| Err(invalid(&format!("subscribing to {}", self.topic), why));
        if self.subscription.is_empty() {
            return bad("the subscription name must not be empty");
        }
        if self.max_total_receiver_queue_size == 0 {
            return bad("max_total_receiver_queue_size must be at least 1");
        }
        if self.ack_group_size == 0 {
            return bad("ack_group_size must be at least 1");
        }
        if self.durable && self.start_position.is_some() {
            return bad("a durable subscription starts where it stopped; use seek, or a reader");
        }
        if self.read_compacted && !self.subscription_type.allows_cumulative() {
            return bad("read_compacted needs an Exclusive or Failover subscription");
        }
        if let Some(policy) = &self.dead_letter_policy {
            policy.validate(self)?;
        }
        if let KeySharedPolicy::Sticky(ranges) = &self.key_shared_policy {
            let kind = self.subscription_type;
            if kind != SubscriptionType::KeyShared {
                return bad(&format!(
                    "key_shared_policy (Sticky) needs subscription_type KeyShared, not {kind:?}"
                ));
            }
            if ranges.is_empty() {
                return bad("a sticky Key_Shared consumer needs at least one hash range");
            }
            let mut sorted = ranges.clone();
            sorted.sort_by_key(|r| *r.start());
            if sorted.iter().any(|r| r.start() > r.end()) {
                return bad("a hash range must not end before it starts");
            }
            if sorted.windows(2).any(|w| w[1].start() <= w[0].end()) {
                return bad("hash ranges must not overlap");
            }
        }
        Ok(())
    }
}

/// How a subscription shares messages among its consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubscriptionType {
    /// One consumer.
    #[default]
    Exclusive,
    /// In turn, no order.
    Shared,
    /// One active consumer, others stand by.
    Failover,
    /// Each key to one consumer at a time. The broker sends a batch as a whole, by the key of its first message: producers
    /// that mix keys have to send with batching off.
    KeyShared,
}

impl SubscriptionType {
    /// Whether a cumulative acknowledgement means anything here.
    pub const fn allows_cumulative(self) -> bool {
        matches!(self, SubscriptionType::Exclusive | SubscriptionType::Failover)
    }
}

/// Where a new subscription starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialPosition {
    /// With the next message published.
    #[default]
    Latest,
    /// With the oldest message kept.
    Earliest,
}

/// How Key_Shared divides keys among consumers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySharedPolicy {
    /// The broker divides the hash range.
    #[default]
    AutoSplit,
    /// This consumer takes these slots.
    Sticky(Vec<KeyRange>),
}

/// Settings of a reader. Start from [`ReaderConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// The topic, in short or full form.
    pub topic: String,
    /// Where to start.
    pub start: Position,
    /// Whether the start id is delivered too. Default false.
    pub start_message_id_inclusive: bool,
    /// Messages asked for ahead of the application. Default 1000.
    pub receiver_queue_size: u32,
    /// Name shown in statistics; drawn when `None`.
    pub reader_name: Option<String>,
    /// Name of the reader's subscription; `reader-` and ten characters when `None`.
    pub subscription: Option<String>,
    /// Read the compacted view.
    pub read_compacted: bool,
}

impl ReaderConfig {
    /// The defaults for a topic and a start.
    pub fn new(topic: impl Into<String>, start: Position) -> Self {
        ReaderConfig {
            topic: topic.into(),
            start,
            start_message_id_inclusive: false,
            receiver_queue_size: 1000,
            reader_name: None,
            subscription: None,
            read_compacted: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_ranges_are_refused_where_nobody_divides_keys() {
        let of = |subscription_type, key_shared_policy| ConsumerConfig {
            subscription_type,
            key_shared_policy,
            ..ConsumerConfig::new("t", "s")
        };
        let sticky = || KeySharedPolicy::Sticky(vec![0..=9]);
        let error = of(SubscriptionType::Shared, sticky()).validate().unwrap_err().to_string();
        assert!(error.contains("Sticky") && error.contains("not Shared"), "{error}");
        of(SubscriptionType::KeyShared, sticky()).validate().unwrap();
        of(SubscriptionType::Shared, KeySharedPolicy::AutoSplit).validate().unwrap();
    }
}
