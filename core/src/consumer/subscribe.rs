//! The SUBSCRIBE command: which field says what, and when it is left out.

use crate::config::{ConsumerConfig, InitialPosition, KeySharedPolicy, SubscriptionType};
use crate::message_id::MessageId;
use crate::wire::{key_values, proto};
use proto::command_subscribe::{InitialPosition as WirePosition, SubType};

/// What a SUBSCRIBE says beside the configuration.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) topic: &'a str,
    pub(crate) consumer_id: u64,
    /// Where a subscription that the broker does not remember starts.
    pub(crate) start: Option<MessageId>,
    /// The partition joined later: nothing in it was seen.
    pub(crate) late: bool,
    pub(crate) epoch: u64,
    pub(crate) persistent: bool,
}

/// The command, but for its request id.
pub(crate) fn command(config: &ConsumerConfig, place: &Place<'_>) -> proto::CommandSubscribe {
    let initial_position = match config.initial_position {
        InitialPosition::Latest if !place.late => WirePosition::Latest,
        _ => WirePosition::Earliest,
    };
    proto::CommandSubscribe {
        topic: place.topic.to_owned(),
        subscription: config.subscription.clone(),
        sub_type: match config.subscription_type {
            SubscriptionType::Exclusive => SubType::Exclusive,
            SubscriptionType::Shared => SubType::Shared,
            SubscriptionType::Failover => SubType::Failover,
            SubscriptionType::KeyShared => SubType::KeyShared,
        } as i32,
        consumer_id: place.consumer_id,
        consumer_name: config.consumer_name.clone(),
        priority_level: Some(config.priority_level),
        durable: Some(place.start.is_none()),
        start_message_id: place.start.map(MessageId::to_proto),
        metadata: key_values(&config.properties),
        // Brokers refuse it on topics that have nothing to compact.
        read_compacted: (config.read_compacted && place.persistent).then_some(true),
        initial_position: Some(initial_position as i32),
        force_topic_creation: Some(config.force_topic_creation),
        key_shared_meta: key_shared_meta(config),
        subscription_properties: key_values(&config.subscription_properties),
        consumer_epoch: Some(place.epoch),
        ..proto::CommandSubscribe::default()
    }
}

fn key_shared_meta(config: &ConsumerConfig) -> Option<proto::KeySharedMeta> {
    if config.subscription_type != SubscriptionType::KeyShared {
        return None;
    }
    let (mode, ranges) = match &config.key_shared_policy {
        KeySharedPolicy::AutoSplit => (proto::KeySharedMode::AutoSplit, &[][..]),
        KeySharedPolicy::Sticky(ranges) => (proto::KeySharedMode::Sticky, &ranges[..]),
    };
    Some(proto::KeySharedMeta {
        key_shared_mode: mode as i32,
        hash_ranges: ranges
            .iter()
            .map(|r| proto::IntRange { start: i32::from(*r.start()), end: i32::from(*r.end()) })
            .collect(),
        ..proto::KeySharedMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(start: Option<MessageId>) -> Place<'static> {
        Place { topic: "t", consumer_id: 3, start, late: false, epoch: 2, persistent: true }
    }

    #[test]
    fn only_a_subscription_that_is_not_remembered_says_where_it_starts() {
        let config = ConsumerConfig::new("t", "s");
        let durable = command(&config, &place(None));
        assert_eq!((durable.durable, durable.start_message_id), (Some(true), None));
        let id = MessageId::new(1, 2, -1).in_batch(3, 5);
        let reader = command(&config, &place(Some(id)));
        assert_eq!((reader.durable, reader.start_message_id), (Some(false), Some(id.to_proto())));
        assert_eq!(reader.consumer_epoch, Some(2));
        assert!(reader.schema.is_none() && reader.key_shared_meta.is_none());
    }

    #[test]
    fn a_partition_that_joins_later_is_read_from_its_start() {
        let config = ConsumerConfig::new("t", "s");
        assert_eq!(command(&config, &place(None)).initial_position(), WirePosition::Latest);
        let late = Place { late: true, ..place(None) };
        assert_eq!(command(&config, &late).initial_position(), WirePosition::Earliest);
    }

    #[test]
    fn sticky_ranges_travel_with_both_ends() {
        let config = ConsumerConfig {
            subscription_type: SubscriptionType::KeyShared,
            key_shared_policy: KeySharedPolicy::Sticky(vec![0..=9, 100..=65535]),
            ..ConsumerConfig::new("t", "s")
        };
        let meta = command(&config, &place(None)).key_shared_meta.unwrap();
        assert_eq!(meta.key_shared_mode(), proto::KeySharedMode::Sticky);
        let ranges: Vec<_> = meta.hash_ranges.iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(ranges, [(0, 9), (100, 65535)]);
    }
}
