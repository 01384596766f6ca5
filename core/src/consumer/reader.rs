//! Readers: a reader is a consumer on a subscription of its own that nobody remembers.

use crate::config::{ConsumerConfig, ReaderConfig, SubscriptionType};
use crate::hub::Hub;

/// The consumer behind a reader. Its subscription's name is drawn unless it is given: two readers must not share one.
///
/// Source: `ReaderImpl` in the Java client, which draws ten hexadecimal digits.
pub(crate) fn consumer_config(hub: &mut Hub, config: ReaderConfig) -> ConsumerConfig {
    let subscription = config.subscription.unwrap_or_else(|| format!("reader-{}", hub.rng.name(10)));
    let other = ConsumerConfig::new(config.topic, subscription);
    ConsumerConfig {
        // A reader has no such setting, so it is no limit.
        max_total_receiver_queue_size: other.max_total_receiver_queue_size.max(config.receiver_queue_size),
        subscription_type: SubscriptionType::Exclusive,
        durable: false,
        start_position: Some(config.start),
        start_message_id_inclusive: config.start_message_id_inclusive,
        receiver_queue_size: config.receiver_queue_size,
        consumer_name: config.reader_name,
        read_compacted: config.read_compacted,
        ..other
    }
}
