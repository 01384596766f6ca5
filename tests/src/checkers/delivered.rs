//! What applications received, against what is stored.

use std::collections::BTreeMap;

use super::{label, parts, place, stored};
use crate::sim::history::History;
use crate::sim::plan::{Plan, SubscriptionPlan};
use crate::world::World;
use geminga_core::SubscriptionType;

/// Every stored message was delivered to each subscription at least once.
pub fn check_delivered(world: &World, plan: &Plan, history: &mut History) -> Result<(), String> {
    for (index, subscription) in plan.subscriptions.iter().enumerate() {
        for part in parts(&world.broker, &plan.topics[subscription.topic].name) {
            let partition = history.partition(&part);
            for message in stored(&world.broker, &part)? {
                let label = label(&message)?;
                if !history.subscriptions[index].seen.contains(&(partition, label)) {
                    return Err(format!("{label:?} in {part} never came to {}", subscription.name));
                }
            }
        }
    }
    Ok(())
}

/// First deliveries follow the store: per partition where one consumer is served at a time, per key on Key_Shared.
pub fn check_order(plan: &SubscriptionPlan, history: &History, index: usize) -> Result<(), String> {
    let by_key = plan.kind == SubscriptionType::KeyShared;
    let mut last: BTreeMap<_, (i64, i64, i32)> = BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    for delivered in &history.subscriptions[index].delivered {
        let (partition, ledger, entry, batch_index) = delivered.place;
        // A copy of a message that came before is no news, wherever it is stored.
        if !seen.insert((partition, delivered.label)) {
            continue;
        }
        let key = by_key.then(|| delivered.key.clone());
        let at = (ledger, entry, batch_index);
        if by_key && delivered.key.is_none() {
            continue;
        }
        if let Some(before) = last.insert((partition, key), at)
            && before > at
        {
            let part = history.partition_name(partition);
            return Err(format!(
                "{} of {part} got {before:?} before {at:?}, key {:?}",
                plan.name, delivered.key
            ));
        }
    }
    Ok(())
}

/// Nothing came twice; for runs and subscriptions in which nothing asks for it.
pub fn check_delivered_once(plan: &SubscriptionPlan, history: &History, index: usize) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    for delivered in &history.subscriptions[index].delivered {
        if !seen.insert(delivered.place) {
            return Err(format!("{:?} came to {} twice, and nothing went wrong", delivered.label, plan.name));
        }
    }
    Ok(())
}

/// A reader from the earliest message got everything once and in order.
pub fn check_reader(world: &World, topic: &str, history: &mut History, index: usize) -> Result<(), String> {
    for part in parts(&world.broker, topic) {
        let partition = history.partition(&part);
        let mut expected = Vec::new();
        for message in stored(&world.broker, &part)? {
            expected.push(place(partition, &message));
        }
        let delivered = &history.readers[index].delivered;
        let got: Vec<_> = delivered.iter().map(|d| d.place).filter(|place| place.0 == partition).collect();
        if got != expected {
            let at =
                got.iter().zip(&expected).position(|(g, e)| g != e).unwrap_or(got.len().min(expected.len()));
            return Err(format!(
                "a reader of {part} got {} messages of {}; the first difference is at {at}: {:?} instead of {:?}",
                got.len(),
                expected.len(),
                got.get(at),
                expected.get(at)
            ));
        }
    }
    Ok(())
}
