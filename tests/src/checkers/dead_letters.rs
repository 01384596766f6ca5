//! Dead letters, against the messages that they are copies of.

use std::collections::BTreeMap;

use super::{label, parts, place, stored};
use crate::sim::consuming::is_poison;
use crate::sim::history::{History, Place};
use crate::sim::plan::Plan;
use crate::world::World;
use geminga_broker::StoredMessage;
use geminga_core::DeadLetterPolicy;

/// The dead letters of a subscription, by the place of the message that each is of. Errors: one says of none what it is of.
pub fn buried(
    world: &World,
    plan: &Plan,
    history: &mut History,
    index: usize,
) -> Result<BTreeMap<Place, Vec<StoredMessage>>, String> {
    let subscription = &plan.subscriptions[index];
    let mut buried: BTreeMap<Place, Vec<StoredMessage>> = BTreeMap::new();
    if subscription.poison.is_none() {
        return Ok(buried);
    }
    let dead = subscription.dead_letter_topic(&plan.topics[subscription.topic].name);
    if world.broker.partitions(&dead).is_none() {
        return Ok(buried);
    }
    for letter in stored(&world.broker, &dead)? {
        let property =
            |name| letter.properties.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let origin =
            property(DeadLetterPolicy::REAL_TOPIC).zip(property(DeadLetterPolicy::ORIGIN_MESSAGE_ID));
        let found = origin.and_then(|(topic, id)| Some((topic, read(id)?)));
        let Some((topic, (ledger, entry, index))) = found else {
            return Err(format!(
                "a dead letter in {dead} does not say where it came from: {:?}",
                letter.properties
            ));
        };
        buried.entry((history.partition(topic), ledger, entry, index)).or_default().push(letter);
    }
    Ok(buried)
}

/// Ledger, entry and index of an id in the form `ledger:entry:partition[:index]`.
fn read(id: &str) -> Option<(i64, i64, i32)> {
    let mut parts = id.split(':');
    let (ledger, entry) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let _partition: i32 = parts.next()?.parse().ok()?;
    Some((ledger, entry, parts.next().map_or(Some(-1), |index| index.parse().ok())?))
}

/// Every dead letter is a whole copy of a poison message, and where nothing goes wrong it is the only one.
pub fn check_dead_letters(world: &World, plan: &Plan, history: &mut History) -> Result<(), String> {
    for (index, subscription) in plan.subscriptions.iter().enumerate() {
        let mut buried = buried(world, plan, history, index)?;
        for part in parts(&world.broker, &plan.topics[subscription.topic].name) {
            let partition = history.partition(&part);
            for message in stored(&world.broker, &part)? {
                let (at, label) = (place(partition, &message), label(&message)?);
                let letters = buried.remove(&at).unwrap_or_default();
                let name = &subscription.name;
                if !letters.is_empty() && !is_poison(label, subscription) {
                    return Err(format!(
                        "{label:?} at {at:?} of {part} is a dead letter of {name} without a reason"
                    ));
                }
                if plan.is_calm() && letters.len() > 1 {
                    return Err(format!(
                        "{label:?} at {at:?} of {part} is {} dead letters of {name}",
                        letters.len()
                    ));
                }
                for letter in &letters {
                    check_copy(&message, letter).map_err(|what| {
                        format!("the dead letter of {label:?} at {at:?} of {part} has another {what}")
                    })?;
                }
            }
        }
        if let Some((at, _)) = buried.first_key_value() {
            return Err(format!("a dead letter of {} is of {at:?}, where nothing is", subscription.name));
        }
    }
    Ok(())
}

/// Errors: what is not as it was.
fn check_copy(message: &StoredMessage, letter: &StoredMessage) -> Result<(), &'static str> {
    let same = [
        ("payload", message.payload == letter.payload),
        ("key", message.key == letter.key),
        ("ordering key", message.ordering_key == letter.ordering_key),
        ("event time", message.event_time == letter.event_time),
        ("list of properties", letter.properties.starts_with(&message.properties)),
    ];
    same.iter().find(|(_, same)| !same).map_or(Ok(()), |(what, _)| Err(what))
}
