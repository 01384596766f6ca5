//! What producers were told, against what is stored.

use std::collections::{BTreeMap, BTreeSet};

use super::{label, parts, place, stored};
use crate::sim::history::{History, Place};
use crate::sim::plan::Plan;
use crate::world::World;

/// Nothing acknowledged is lost, ids point to their messages, order per producer and partition holds, and under
/// deduplication nothing is there twice.
pub fn check_published(world: &World, plan: &Plan, history: &mut History) -> Result<(), String> {
    let mut stored_labels = BTreeSet::new();
    let mut at_place = BTreeMap::<Place, _>::new();
    for topic in &plan.topics {
        for part in parts(&world.broker, &topic.name) {
            let partition = history.partition(&part);
            let mut last: BTreeMap<u32, u32> = BTreeMap::new();
            let mut here = BTreeSet::new();
            for message in stored(&world.broker, &part)? {
                let label = label(&message)?;
                at_place.insert(place(partition, &message), label);
                stored_labels.insert(label);
                if label.n as usize >= history.sends[label.producer as usize].len() {
                    return Err(format!("{part} holds {label:?}, which was never sent"));
                }
                if !here.insert(label) {
                    if plan.deduplication {
                        return Err(format!("{part} holds {label:?} twice in spite of deduplication"));
                    }
                    continue;
                }
                if let Some(before) = last.insert(label.producer, label.n)
                    && before > label.n
                {
                    return Err(format!(
                        "{part} holds message {before} of a producer before its {}",
                        label.n
                    ));
                }
            }
        }
    }
    for (producer, sends) in history.sends.clone().iter().enumerate() {
        let topic = &plan.topics[plan.producers[producer].topic].name;
        for record in sends {
            let Some(Ok(id)) = world.outcome(record.sent) else { continue };
            if !stored_labels.contains(&record.label) {
                return Err(format!("{:?} was acknowledged as {id} and is not stored", record.label));
            }
            // Without a place: the broker had it already and does not say where.
            if id.ledger_id < 0 {
                continue;
            }
            let part = match id.partition {
                -1 => topic.clone(),
                n => format!("{topic}-partition-{n}"),
            };
            let at = (history.partition(&part), id.ledger_id, id.entry_id, id.batch_index);
            if at_place.get(&at) != Some(&record.label) {
                let there = at_place.get(&at);
                return Err(format!(
                    "{:?} was acknowledged as {id} of {part}, where {there:?} is",
                    record.label
                ));
            }
        }
    }
    Ok(())
}
