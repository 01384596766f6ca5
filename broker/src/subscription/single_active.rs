//! Exclusive and Failover: one consumer at a time gets everything, in order, from the first unacknowledged entry.
//! Decides who that is, and when it takes over.

use std::collections::BTreeMap;

use geminga_core::hash::{sticky_hash, sticky_slot};
use geminga_core::wire::{Command, proto};

use super::key_shared::sticky_key;
use super::{Consumer, State};
use crate::context::Context;
use crate::log::Log;
use crate::time::{Mono, Timer};
use crate::topic::TopicInfo;

/// Points that each consumer has on the ring of a topic without partitions.
const POINTS: u32 = 100;

#[derive(Debug)]
pub(crate) struct SingleActive {
    failover: bool,
    active: Option<u64>,
    /// The active consumer is new: when it takes over.
    takeover: Option<Mono>,
}

impl SingleActive {
    pub(crate) fn new(failover: bool) -> Self {
        SingleActive { failover, active: None, takeover: None }
    }

    pub(crate) fn active(&self) -> Option<u64> {
        self.active
    }

    /// Elects the active consumer after one came (`newcomer`) or went. A newcomer that changes nothing is told so.
    pub(crate) fn elect(
        &mut self,
        state: &State,
        newcomer: Option<u64>,
        subscription: u32,
        topic: &TopicInfo,
        ctx: &mut Context<'_>,
    ) {
        let elected = best_of(&by_rank(state), topic);
        if elected != self.active {
            self.active = elected;
            let delay = if self.failover { ctx.config.failover_delay } else { Default::default() };
            // A takeover that is under way keeps its time, whoever it is for.
            let at = *self.takeover.get_or_insert(ctx.now.mono + delay);
            if !delay.is_zero() {
                ctx.timers.set(Timer::Takeover(topic.key, subscription), at);
            }
        } else if self.failover
            && let Some(consumer) = newcomer.and_then(|key| state.consumers.get(&key))
        {
            tell(consumer, elected == newcomer, ctx);
        }
    }

    pub(crate) fn dispatch(
        &mut self,
        state: &mut State,
        topic: &TopicInfo,
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        if let Some(at) = self.takeover {
            if ctx.now.mono < at {
                return;
            }
            self.takeover = None;
            state.rewind();
            if self.failover && self.active.is_some() {
                for consumer in by_rank(state) {
                    tell(consumer, self.active == Some(consumer.key), ctx);
                }
            }
        }
        let Some(active) = self.active else { return };
        while state.consumers.get(&active).is_some_and(|c| c.permits > 0) {
            // Delivery times are for Shared and Key_Shared only.
            let Some(offset) = state.next_read(log, u64::MAX) else { break };
            if wants(state, active, log, offset) {
                state.deliver(active, offset, None, topic, log, ctx);
            }
        }
    }
}

/// A consumer, or reader, may ask for the keys of some slots only; it passes over the others.
fn wants(state: &State, consumer: u64, log: &Log, offset: u64) -> bool {
    let Some(consumer) = state.consumers.get(&consumer).filter(|c| !c.ranges.is_empty()) else { return true };
    let Some(entry) = log.get(offset) else { return true };
    let slot = sticky_slot(&sticky_key(&entry.raw)) as u16;
    consumer.ranges.iter().any(|(start, end)| (*start..=*end).contains(&slot))
}

/// Consumers by priority, then name, then arrival.
fn by_rank(state: &State) -> Vec<&Consumer> {
    let mut consumers: Vec<&Consumer> = state.consumers.values().collect();
    consumers.sort_by(|a, b| (a.priority, &a.name, a.key).cmp(&(b.priority, &b.name, b.key)));
    consumers
}

/// Of the consumers of the best priority: partitions take turns, so that they spread; a topic without partitions has a
/// ring of consumer names, so that a newcomer rarely takes over.
fn best_of(by_rank: &[&Consumer], topic: &TopicInfo) -> Option<u64> {
    let priority = by_rank.first()?.priority;
    let best: Vec<&Consumer> = by_rank.iter().copied().take_while(|c| c.priority == priority).collect();
    if let Ok(partition) = usize::try_from(topic.partition) {
        return Some(best[partition % best.len()].key);
    }
    let mut ring = BTreeMap::new();
    for consumer in best {
        for point in 0..POINTS {
            ring.insert(sticky_hash(format!("{}{point}", consumer.name).as_bytes()), consumer.key);
        }
    }
    let hash = sticky_hash(topic.name.as_str().as_bytes());
    ring.range(hash..).next().or_else(|| ring.first_key_value()).map(|(_, key)| *key)
}

fn tell(consumer: &Consumer, is_active: bool, ctx: &mut Context<'_>) {
    let change = proto::CommandActiveConsumerChange { consumer_id: consumer.id, is_active: Some(is_active) };
    ctx.links.send(consumer.link, &Command::ActiveConsumerChange(change));
}
