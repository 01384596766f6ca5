//! Gives a plan's faults their effect, and ends them.

use fastrand::Rng;
use geminga_broker::{Fault, NodeId};
use geminga_core::Mono;

use super::plan::{Plan, Trouble};
use crate::network::Conditions;
use crate::world::World;

/// The faults of a run.
#[derive(Debug)]
pub(super) struct Chaos {
    /// By time, the next one last.
    coming: Vec<(Mono, Trouble)>,
    /// What ends when.
    ending: Vec<(Mono, Trouble)>,
    usual: Conditions,
    rng: Rng,
}

impl Chaos {
    pub(super) fn new(world: &World, plan: &Plan, rng: Rng) -> Self {
        let start = world.now().mono;
        let coming = plan.faults.iter().rev().map(|(at, trouble)| (start + *at, trouble.clone()));
        Chaos { coming: coming.collect(), ending: Vec::new(), usual: plan.conditions.clone(), rng }
    }

    /// When something begins or ends next.
    pub(super) fn wake(&self) -> Option<Mono> {
        let begins = self.coming.last().map(|(at, _)| *at);
        let ends = self.ending.iter().map(|(at, _)| *at).min();
        [begins, ends].into_iter().flatten().min()
    }

    /// Begins and ends what is due.
    pub(super) fn act(&mut self, world: &mut World, plan: &Plan) {
        let now = world.now().mono;
        while self.coming.last().is_some_and(|(at, _)| *at <= now) {
            let (_, trouble) = self.coming.pop().expect("just seen");
            self.begin(world, plan, trouble);
        }
        while let Some(due) = self.ending.iter().position(|(at, _)| *at <= now) {
            let (_, trouble) = self.ending.swap_remove(due);
            self.end(world, &trouble);
        }
    }

    /// Ends all faults.
    pub(super) fn stop(&mut self, world: &mut World, plan: &Plan) {
        self.coming.clear();
        for (_, trouble) in std::mem::take(&mut self.ending) {
            self.end(world, &trouble);
        }
        world.broker.clear_faults();
        if plan.ends_with_a_break() {
            world.cut_links();
        }
    }

    fn begin(&mut self, world: &mut World, plan: &Plan, trouble: Trouble) {
        let now = world.now();
        world.trace.note(now.mono, || format!("trouble: {trouble:?}"));
        let lasts = match &trouble {
            Trouble::CutAll => {
                world.cut_links();
                None
            }
            Trouble::CutOne | Trouble::SilenceOne => {
                let links = world.links();
                if let Some(link) = self.rng.choice(links) {
                    match trouble {
                        Trouble::CutOne => world.cut_link(link),
                        _ => world.silence_link(link),
                    }
                }
                None
            }
            Trouble::Restart(node) => {
                world.restart_broker(*node);
                None
            }
            Trouble::Stop(node, time) => {
                world.stop_broker(*node);
                Some(*time)
            }
            Trouble::Freeze(node, time) => {
                world.freeze_broker(*node);
                Some(*time)
            }
            Trouble::FreezeClient(client, time) => {
                world.freeze_client(*client);
                Some(*time)
            }
            Trouble::Stall(direction, time) => {
                world.stall(*direction);
                Some(*time)
            }
            Trouble::Slow(latency, time) => {
                world.network.conditions.latency = *latency / 5..=*latency;
                Some(*time)
            }
            Trouble::Unload(topic) => {
                self.note(world.broker.unload_topic(now, &plan.topics[*topic].name));
                None
            }
            Trouble::Move(topic, node, announce) => {
                if world.broker.is_up(NodeId(*node)) {
                    let name = &plan.topics[*topic].name;
                    self.note(world.broker.move_topic(now, name, NodeId(*node), *announce));
                }
                None
            }
            Trouble::Grow(topic) => {
                let name = &plan.topics[*topic].name;
                if let Some(partitions) = world.broker.partitions(name).filter(|n| *n > 0) {
                    self.note(world.broker.grow_partitioned_topic(now, name, partitions + 1));
                }
                None
            }
            Trouble::InjectDeadLetters(subscription, kind, skip, times) => {
                let subscription = &plan.subscriptions[*subscription];
                let dead = subscription.dead_letter_topic(&plan.topics[subscription.topic].name);
                world.broker.inject(Fault::new(kind.clone()).on_topic(dead).after(*skip).times(*times));
                None
            }
            Trouble::Inject(kind, skip, times) => {
                world.broker.inject(Fault::new(kind.clone()).after(*skip).times(*times));
                None
            }
        };
        world.settle();
        if let Some(time) = lasts {
            self.ending.push((now.mono + time, trouble));
        }
    }

    fn end(&mut self, world: &mut World, trouble: &Trouble) {
        match trouble {
            Trouble::Stop(node, _) => world.start_broker(*node),
            Trouble::Freeze(node, _) => world.thaw_broker(*node),
            Trouble::FreezeClient(client, _) => world.thaw_client(*client),
            Trouble::Stall(direction, _) => world.unstall(*direction),
            Trouble::Slow(..) => world.network.conditions.latency = self.usual.latency.clone(),
            _ => {}
        }
    }

    /// A topic that nobody created yet cannot be unloaded: no harm done.
    fn note<E>(&self, result: Result<(), E>) {
        drop(result);
    }
}
