//! What must stay within limits, and what must not be left over.

use std::collections::BTreeMap;

use geminga_broker::NodeId;

use super::parts;
use crate::sim::plan::Plan;
use crate::world::World;

/// The largest message of a plan and what goes with it, in bytes.
const ONE_MESSAGE: usize = 8 << 10;

/// Permits never exceed what a consumer asked for, and clients hold no more than they may.
///
/// `queues` has the receiver queue of each consumer by name.
pub fn check_bounds(world: &World, plan: &Plan, queues: &BTreeMap<String, u32>) -> Result<(), String> {
    for topic in &plan.topics {
        for part in parts(&world.broker, &topic.name) {
            let Some(view) = world.broker.topic(&part) else { continue };
            for subscription in &view.subscriptions {
                for consumer in &subscription.consumers {
                    let Some(queue) = queues.get(&consumer.name) else { continue };
                    if consumer.permits > i64::from((*queue).max(1)) {
                        return Err(format!(
                            "{} has {} permits on {part} with a queue of {queue}",
                            consumer.name, consumer.permits
                        ));
                    }
                }
            }
        }
    }
    for (index, client) in plan.clients.iter().enumerate() {
        let used = world.stats(index).memory_used;
        if client.memory_limit > 0 && used > client.memory_limit + ONE_MESSAGE {
            return Err(format!("client {index} holds {used} bytes of {}", client.memory_limit));
        }
    }
    Ok(())
}

/// Nobody waits with fewer permits than make a client ask for more: with half of its queue owed.
///
/// For a time when there is nothing left to deliver. A queue of 0 asks anew for each message.
pub fn check_permits(world: &World, plan: &Plan, queues: &BTreeMap<String, u32>) -> Result<(), String> {
    for topic in &plan.topics {
        for part in parts(&world.broker, &topic.name) {
            let Some(view) = world.broker.topic(&part) else { continue };
            for consumer in view.subscriptions.iter().flat_map(|s| &s.consumers) {
                let Some(queue) = queues.get(&consumer.name).filter(|queue| **queue > 0) else { continue };
                let least = i64::from(queue - (queue / 2).max(1)) + 1;
                if consumer.permits < least {
                    return Err(format!(
                        "{} has {} permits on {part} with a queue of {queue}",
                        consumer.name, consumer.permits
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Brokers know no producer, no consumer and no link any more.
pub fn check_nothing_left(world: &World, plan: &Plan) -> Result<(), String> {
    for topic in &plan.topics {
        for part in parts(&world.broker, &topic.name) {
            let Some(view) = world.broker.topic(&part) else { continue };
            if let Some(producer) = view.producers.first() {
                return Err(format!("producer {} is left on {part}", producer.name));
            }
            for subscription in &view.subscriptions {
                if let Some(consumer) = subscription.consumers.first() {
                    return Err(format!(
                        "consumer {} is left on {} of {part}",
                        consumer.name, subscription.name
                    ));
                }
                if !subscription.durable {
                    return Err(format!("the reader's subscription {} is left on {part}", subscription.name));
                }
            }
        }
    }
    for node in 0..plan.brokers {
        let links = world.broker.links_of(NodeId(node));
        if !links.is_empty() {
            return Err(format!("broker {node} still has links {links:?}"));
        }
    }
    Ok(())
}
