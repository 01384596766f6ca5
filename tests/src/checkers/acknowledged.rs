//! What brokers consider acknowledged, against what the applications said.

use std::collections::BTreeSet;

use super::{buried, label, parts, place, stored};
use crate::sim::consuming::{is_held, is_poison};
use crate::sim::history::History;
use crate::sim::plan::Plan;
use crate::world::World;

/// No message is acknowledged at a broker that no application acknowledged, or that is poison and no dead letter yet.
pub fn check_acknowledged(world: &World, plan: &Plan, history: &mut History) -> Result<(), String> {
    for (index, subscription) in plan.subscriptions.iter().enumerate() {
        for part in parts(&world.broker, &plan.topics[subscription.topic].name) {
            // A subscription that does not exist yet holds nothing back and acknowledges nothing.
            if world.broker.subscription(&part, &subscription.name).is_none() {
                continue;
            }
            let partition = history.partition(&part);
            let open: BTreeSet<_> = unacked(world, &part, &subscription.name)?
                .iter()
                .map(|message| place(partition, message))
                .collect();
            let buried = buried(world, plan, history, index)?;
            for message in stored(&world.broker, &part)? {
                let at = place(partition, &message);
                if is_poison(label(&message)?, subscription) {
                    if !open.contains(&at) && !buried.contains_key(&at) {
                        return Err(format!(
                            "{:?} at {at:?} of {part} is acknowledged on {}, and is no dead letter",
                            label(&message)?,
                            subscription.name
                        ));
                    }
                    continue;
                }
                if !open.contains(&at) && !history.subscriptions[index].is_acked(at) {
                    return Err(format!(
                        "{:?} at {at:?} of {part} is acknowledged on {} ({:?}), and no application did that",
                        label(&message)?,
                        subscription.name,
                        subscription.kind
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The first message that is still unacknowledged and has no reason to be, in words. Messages that applications hold are
/// a reason, for their whole entry where the broker is told of entries only.
pub fn backlog(
    world: &World,
    plan: &Plan,
    history: &mut History,
    holding: bool,
) -> Result<Option<String>, String> {
    for subscription in &plan.subscriptions {
        for part in parts(&world.broker, &plan.topics[subscription.topic].name) {
            if world.broker.subscription(&part, &subscription.name).is_none() {
                return Ok(Some(format!("{} has no {} yet", part, subscription.name)));
            }
            let partition = history.partition(&part);
            let mut held_entries = BTreeSet::new();
            let mut held = BTreeSet::new();
            if holding {
                for message in stored(&world.broker, &part)? {
                    if is_held(label(&message)?, subscription) {
                        held.insert(place(partition, &message));
                        held_entries.insert((message.position.ledger, message.position.entry));
                    }
                }
            }
            let open = unacked(world, &part, &subscription.name)?;
            for message in &open {
                let whole_entry = !subscription.batch_index_ack
                    && held_entries.contains(&(message.position.ledger, message.position.entry));
                if !whole_entry && !held.remove(&place(partition, message)) {
                    return Ok(Some(format!(
                        "{:?} at {:?} of {part} is open on {} ({:?})",
                        label(message)?,
                        place(partition, message),
                        subscription.name,
                        subscription.kind
                    )));
                }
            }
        }
    }
    Ok(None)
}

fn unacked(
    world: &World,
    part: &str,
    subscription: &str,
) -> Result<Vec<geminga_broker::StoredMessage>, String> {
    world.broker.unacked(part, subscription).map_err(|error| format!("{part}: {error}"))
}
