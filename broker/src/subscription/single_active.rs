//! Exclusive and Failover: one consumer at a time gets everything, in order, from the first unacknowledged entry.
//! Decides who that is.

use geminga_core::wire::{Command, proto};

use super::State;
use crate::context::Context;
use crate::log::Log;
use crate::time::{Mono, Timer};
use crate::topic::TopicInfo;

#[derive(Debug)]
pub(crate) struct SingleActive {
    failover: bool,
    active: Option<u64>,
    /// The active consumer gets nothing before: acknowledgements of its predecessor may be under way.
    starts: Mono,
}

impl SingleActive {
    pub(crate) fn new(failover: bool) -> Self {
        SingleActive { failover, active: None, starts: Mono::default() }
    }

    pub(crate) fn active(&self) -> Option<u64> {
        self.active
    }

    /// Elects the active consumer after one came (`newcomer`) or went. A change rewinds the subscription.
    pub(crate) fn elect(
        &mut self,
        state: &mut State,
        newcomer: Option<u64>,
        subscription: u32,
        topic: &TopicInfo,
        ctx: &mut Context<'_>,
    ) {
        let mut by_rank: Vec<_> = state.consumers.values().map(|c| (c.priority, &*c.name, c.key)).collect();
        by_rank.sort_unstable();
        let best = by_rank.iter().take_while(|c| c.0 == by_rank[0].0).count();
        // Partitions spread over the consumers of the best priority; a topic without any takes the first.
        let turn = usize::try_from(topic.partition).unwrap_or(0);
        let elected = (best > 0).then(|| by_rank[turn % best].2);
        if elected != self.active {
            self.active = elected;
            state.rewind();
            if self.failover && elected.is_some() && !ctx.config.failover_delay.is_zero() {
                self.starts = ctx.now.mono + ctx.config.failover_delay;
                ctx.timers.set(Timer::Takeover(topic.key, subscription), self.starts);
            }
            if self.failover {
                for consumer in state.consumers.values() {
                    tell(consumer.link, consumer.id, elected == Some(consumer.key), ctx);
                }
            }
        } else if self.failover
            && let Some(consumer) = newcomer.and_then(|key| state.consumers.get(&key))
        {
            tell(consumer.link, consumer.id, elected == newcomer, ctx);
        }
    }

    pub(crate) fn dispatch(&self, state: &mut State, topic: &TopicInfo, log: &Log, ctx: &mut Context<'_>) {
        let Some(active) = self.active else { return };
        if ctx.now.mono < self.starts {
            return;
        }
        while state.consumers.get(&active).is_some_and(|c| c.permits > 0) {
            // Delivery times are for Shared and Key_Shared only.
            let Some(offset) = state.next_read(log, u64::MAX) else { break };
            state.deliver(active, offset, None, topic, log, ctx);
        }
    }
}

fn tell(link: crate::LinkId, consumer_id: u64, is_active: bool, ctx: &mut Context<'_>) {
    let change = proto::CommandActiveConsumerChange { consumer_id, is_active: Some(is_active) };
    ctx.links.send(link, &Command::ActiveConsumerChange(change));
}
