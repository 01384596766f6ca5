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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use geminga_core::{Batching, ConsumerConfig, DeadLetterPolicy, SubscriptionType};

    use super::*;
    use crate::checkers::check_acknowledged;
    use crate::sim::history::Label;
    use crate::sim::plan::Poison;
    use crate::world::ConsumerAt;

    const TOPIC: &str = "persistent://public/default/topic-0";

    /// A run in which all is poison, and the one message in it.
    fn poisoned() -> (World, Plan, History, ConsumerAt) {
        let mut plan = (0..).map(|seed| Plan::draw(&mut fastrand::Rng::with_seed(seed)));
        let mut plan = plan
            .find(|p| p.topics.len() == 1 && p.topics[0].partitions == 0 && p.subscriptions.len() == 1)
            .expect("some seed draws it");
        plan.faults.clear();
        plan.subscriptions[0].kind = SubscriptionType::Shared;
        plan.subscriptions[0].poison = Some(Poison { share: 100, max_redeliver_count: 1 });
        let mut w = World::new(1);
        let producer = w.producer(TOPIC, |c| c.batching = Batching::off());
        let name = plan.subscriptions[0].name.clone();
        let consumer = w.consumer(TOPIC, &name, |c: &mut ConsumerConfig| {
            c.subscription_type = SubscriptionType::Shared;
            c.negative_ack_redelivery_delay = Duration::ZERO;
            c.dead_letter_policy = Some(DeadLetterPolicy::new(1));
        });
        w.publish(producer, [Label { producer: 0, n: 0 }.payload(0)]);
        (w, plan, History::new(1, 1, 0), consumer)
    }

    #[test]
    fn a_poison_message_that_is_a_dead_letter_and_acknowledged_is_as_it_should_be() {
        let (mut w, plan, mut history, consumer) = poisoned();
        while let Some(message) = w.receive_within(consumer, Duration::from_secs(1)) {
            w.nack(consumer, message.message_id());
        }
        assert_eq!(buried(&w, &plan, &mut history, 0).map(|buried| buried.len()), Ok(1));
        assert_eq!(check_acknowledged(&w, &plan, &mut history), Ok(()));
        assert_eq!(check_dead_letters(&w, &plan, &mut history), Ok(()));
    }

    #[test]
    fn an_acknowledgement_before_the_dead_letter_is_found() {
        let (mut w, plan, mut history, consumer) = poisoned();
        let message = w.receive(consumer);
        assert_eq!(check_acknowledged(&w, &plan, &mut history), Ok(()));
        w.ack(consumer, message.message_id());
        w.advance(Duration::from_secs(1));
        let wrong = check_acknowledged(&w, &plan, &mut history).unwrap_err();
        assert!(wrong.contains("is no dead letter"), "{wrong}");
    }

    #[test]
    fn a_dead_letter_without_a_reason_a_second_one_and_a_changed_one_are_found() {
        for (change, expected) in [(0, "without a reason"), (1, "2 dead letters"), (2, "another payload")] {
            let (mut w, mut plan, mut history, consumer) = poisoned();
            let id = w.receive(consumer).message_id();
            let dead = plan.subscriptions[0].dead_letter_topic(TOPIC);
            let producer = w.producer(&dead, |c| c.batching = Batching::off());
            let copies = if change == 1 { 2 } else { 1 };
            let label = Label { producer: 0, n: if change == 2 { 7 } else { 0 } };
            w.publish(
                producer,
                (0..copies).map(|_| {
                    geminga_core::OutgoingMessage::new(label.payload(0))
                        .with_property(DeadLetterPolicy::REAL_TOPIC, TOPIC)
                        .with_property(DeadLetterPolicy::ORIGIN_MESSAGE_ID, id.to_string())
                }),
            );
            if change == 0 {
                plan.subscriptions[0].poison = Some(Poison { share: 0, max_redeliver_count: 1 });
            }
            let wrong = check_dead_letters(&w, &plan, &mut history).unwrap_err();
            assert!(wrong.contains(expected), "{wrong}");
        }
    }
}
