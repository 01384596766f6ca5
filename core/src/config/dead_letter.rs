//! When messages are given up, and where they go then.

use super::{ConsumerConfig, invalid};
use crate::client::topic_name;
use crate::error::Error;
use crate::topic_name::TopicName;

/// What to do with messages that the application gives back again and again. Start from [`DeadLetterPolicy::new`].
///
/// Shape: a message is delivered `max_redeliver_count + 1` times. When the application gives it back after the last time
/// (a negative acknowledgement whose delay is over, or a request to redeliver), it is sent to the dead letter topic and,
/// with the receipt, acknowledged. One whose count is higher already goes there undelivered. The copy has the payload,
/// key, ordering key, event time, properties and schema version of the message, and the properties
/// [`REAL_TOPIC`](Self::REAL_TOPIC) and [`ORIGIN_MESSAGE_ID`](Self::ORIGIN_MESSAGE_ID).
/// A message has one dead letter while its consumer lives and stays connected; what the broker had not heard of before a
/// loss may be sent twice. `batch_index_ack` has it hear of single messages of a batch.
/// Units: redeliveries, as the broker counts them; it starts again from 0 when the last consumer of a subscription leaves.
/// Source: `DeadLetterPolicy` and `ConsumerImpl.processPossibleToDLQ` in the Java client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterPolicy {
    /// Redeliveries before a message is given up, at least 1.
    pub max_redeliver_count: u32,
    /// The topic they go to; `None` for the consumer's topic, of which all partitions share it, followed by
    /// `-<subscription>-DLQ`.
    pub dead_letter_topic: Option<String>,
    /// A subscription that is made with the dead letter topic, so that it keeps what nobody has subscribed to yet.
    pub initial_subscription: Option<String>,
}

impl DeadLetterPolicy {
    /// The property of a dead letter with the topic, or partition, that it came from. One that was there stays.
    pub const REAL_TOPIC: &'static str = "REAL_TOPIC";
    /// The property of a dead letter with its message id in that topic, as text. One that was there stays.
    pub const ORIGIN_MESSAGE_ID: &'static str = "ORIGIN_MESSAGE_ID";

    /// A policy with the usual topic and no subscription on it.
    pub fn new(max_redeliver_count: u32) -> Self {
        DeadLetterPolicy { max_redeliver_count, dead_letter_topic: None, initial_subscription: None }
    }

    /// Where the dead letters of a consumer on `topic` go. Errors: `InvalidTopicName`.
    pub(crate) fn topic(&self, topic: &TopicName, subscription: &str) -> Result<TopicName, Error> {
        let doing = "choosing a dead letter topic";
        match &self.dead_letter_topic {
            Some(name) => topic_name(name, doing),
            None => topic_name(&format!("{}-{subscription}-DLQ", topic.base()), doing),
        }
    }

    /// Errors: `InvalidConfiguration`, `InvalidTopicName`.
    pub(super) fn validate(&self, consumer: &ConsumerConfig) -> Result<(), Error> {
        let bad = |why: &str| Err(invalid(&format!("subscribing to {}", consumer.topic), why));
        if self.max_redeliver_count == 0 {
            return bad("max_redeliver_count must be at least 1; acknowledge what must not come again");
        }
        if consumer.subscription_type.allows_cumulative() {
            return bad(&format!(
                "a dead letter policy needs a Shared or Key_Shared subscription: on {:?} brokers do not count redeliveries",
                consumer.subscription_type
            ));
        }
        if self.initial_subscription.as_ref().is_some_and(String::is_empty) {
            return bad(
                "the initial subscription of a dead letter topic must have a name; leave it out for none",
            );
        }
        let topic = topic_name(&consumer.topic, "subscribing")?;
        let dead = self.topic(&topic, &consumer.subscription)?;
        if dead.base() == topic.base() {
            return bad("the dead letter topic must be another than the consumer's");
        }
        if self.dead_letter_topic.is_none() && dead.namespace() != topic.namespace() {
            return bad(&format!("{dead} would be in another namespace; name a dead letter topic"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SubscriptionType;
    use crate::error::ErrorKind;

    fn with(policy: DeadLetterPolicy) -> ConsumerConfig {
        ConsumerConfig {
            subscription_type: SubscriptionType::Shared,
            dead_letter_policy: Some(policy),
            ..ConsumerConfig::new("a/b/t", "s")
        }
    }

    #[test]
    fn the_usual_topic_is_one_for_all_partitions() {
        let policy = DeadLetterPolicy::new(3);
        for name in ["a/b/t", "persistent://a/b/t-partition-7"] {
            let topic = TopicName::parse(name).unwrap();
            assert_eq!(policy.topic(&topic, "s").unwrap().as_str(), "persistent://a/b/t-s-DLQ");
        }
        let named = DeadLetterPolicy { dead_letter_topic: Some("dead".into()), ..policy };
        let topic = named.topic(&TopicName::parse("a/b/t").unwrap(), "s").unwrap();
        assert_eq!(topic.as_str(), "persistent://public/default/dead");
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_to_do() {
        with(DeadLetterPolicy::new(1)).validate().unwrap();
        let kind = |subscription_type| ConsumerConfig { subscription_type, ..with(DeadLetterPolicy::new(1)) };
        let topic = |name: &str| {
            with(DeadLetterPolicy { dead_letter_topic: Some(name.into()), ..DeadLetterPolicy::new(1) })
        };
        let refused = [
            (with(DeadLetterPolicy::new(0)), "at least 1"),
            (kind(SubscriptionType::Exclusive), "needs a Shared or Key_Shared"),
            (kind(SubscriptionType::Failover), "not count"),
            (topic("a/b/t"), "another than the consumer's"),
            (topic("a/b/t-partition-1"), "another than the consumer's"),
            (
                ConsumerConfig { subscription: "x/s".into(), ..with(DeadLetterPolicy::new(1)) },
                "name a dead letter topic",
            ),
            (
                with(DeadLetterPolicy {
                    initial_subscription: Some(String::new()),
                    ..DeadLetterPolicy::new(1)
                }),
                "must have a name",
            ),
        ];
        for (config, hint) in refused {
            let error = config.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(hint), "{error}");
        }
        assert_eq!(topic("a//b").validate().unwrap_err().kind(), ErrorKind::InvalidTopicName);
    }
}
