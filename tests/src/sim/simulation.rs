//! One run: the world, the applications, the faults, and the checks at their times.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use geminga_core::{ClientConfig, Event, Mono, OperationRetries, StateChange, SubscriptionType};

use super::Report;
use super::chaos::Chaos;
use super::consuming::{Consuming, Role, is_ordered};
use super::history::{Consumed, History};
use super::plan::Plan;
use super::producing::Producing;
use crate::checkers;
use crate::world::{Lines, World};

/// How long everything may take to come to rest once faults have stopped, in virtual time.
const CONVERGENCE: Duration = Duration::from_secs(900);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Steps between two looks at what must hold at all times.
const CHECK_EVERY: u64 = 400;
/// The same with poison in the run: a dead letter is on its way for a moment only.
const CHECK_POISON_EVERY: u64 = 40;

pub(super) struct Simulation {
    world: World,
    plan: Plan,
    history: History,
    producers: Vec<Producing>,
    consumers: Vec<Consuming>,
    chaos: Chaos,
    queues: BTreeMap<String, u32>,
    events_seen: usize,
    check_every: u64,
    closing: bool,
}

impl Simulation {
    pub(super) fn new(seed: u64, plan: Plan, mut rng: Rng, traced: usize, lines: Lines) -> Self {
        let mut world = World::configured(seed, |setup| {
            setup.brokers(plan.brokers);
            setup.cluster.bundles = plan.bundles;
            setup.cluster.lookup_answer = plan.lookup_answer;
            setup.cluster.deduplication = plan.deduplication;
            setup.cluster.broker_entry_metadata = plan.entry_metadata;
            setup.conditions = plan.conditions.clone();
            setup.client = client_config(setup.client.clone(), &plan, 0);
            setup.trace = traced;
            setup.lines = Some(lines);
        });
        for client in 1..plan.clients.len() {
            let config = client_config(world.client_config(), &plan, client);
            world.client(config);
        }
        let now = world.now();
        for topic in plan.topics.iter().filter(|t| t.partitions > 0) {
            let created = world.broker.create_partitioned_topic(now, &topic.name, topic.partitions);
            created.expect("a new topic");
        }
        // Subscriptions first, so that each is owed every message.
        for subscription in &plan.subscriptions {
            let topic = &plan.topics[subscription.topic].name;
            let created = world.broker.create_subscription(now, topic, &subscription.name, true);
            created.expect("a new subscription");
        }
        let history = History::new(plan.producers.len(), plan.subscriptions.len(), plan.readers.len());
        let mut consumers = Vec::new();
        for (s, subscription) in plan.subscriptions.iter().enumerate() {
            for number in 0..subscription.consumers.len() {
                let index = consumers.len();
                let role = Role::Subscription(s);
                consumers.push(Consuming::new(&world, &plan, role, number, index, rng.fork()));
            }
        }
        for r in 0..plan.readers.len() {
            let index = consumers.len();
            consumers.push(Consuming::new(&world, &plan, Role::Reader(r), 0, index, rng.fork()));
        }
        let producers = (0..plan.producers.len())
            .map(|index| Producing::start(&mut world, &plan, index, rng.fork()))
            .collect();
        Simulation {
            chaos: Chaos::new(&world, &plan, rng.fork()),
            check_every: match plan.subscriptions.iter().any(|s| s.poison.is_some()) {
                true => CHECK_POISON_EVERY,
                false => CHECK_EVERY,
            },
            queues: consumers.iter().map(|c| (c.name(), c.plan.queue)).collect(),
            world,
            plan,
            history,
            producers,
            consumers,
            events_seen: 0,
            closing: false,
        }
    }

    pub(super) fn run(&mut self) -> Result<Report, String> {
        self.run_for(self.plan.calm_at)?;
        self.chaos.stop(&mut self.world, &self.plan);
        let now = self.world.now().mono;
        self.consumers.iter_mut().for_each(|c| c.calm_down(now));
        self.converge("all sends settled, all messages delivered and acknowledged", Self::is_settled)?;
        self.check_all()?;
        for consumer in &mut self.consumers {
            consumer.let_go(&mut self.world, &mut self.history)?;
        }
        self.converge("the backlog at zero", Self::is_empty)?;
        self.check_all()?;
        self.check_at_rest()?;
        self.close()?;
        Ok(Report {
            seed: self.world.seed(),
            steps: self.world.steps(),
            took: self.world.elapsed(),
            events: self.world.events().len(),
            sent: self.history.sends.iter().map(Vec::len).sum(),
            delivered: self.consumed().map(|c| c.delivered.len()).sum(),
        })
    }

    /// Who waits for what, in words.
    pub(super) fn status(&self) -> String {
        let producers = self.producers.iter().map(Producing::status);
        let consumers = self.consumers.iter().map(Consuming::status);
        let clients = (0..self.world.clients()).map(|c| format!("client {c}: {:?}", self.world.stats(c)));
        let at = format!("at {:?}, step {}", self.world.elapsed(), self.world.steps());
        let lines = std::iter::once(at).chain(producers).chain(consumers).chain(clients);
        lines.chain(self.broker_status()).collect::<Vec<_>>().join("\n")
    }

    /// How subscriptions stand at the brokers, in words.
    fn broker_status(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for name in self.world.broker.topics() {
            let Some(topic) = self.world.broker.topic(&name) else { continue };
            for s in &topic.subscriptions {
                lines.push(format!(
                    "{name}, {}: {:?}, backlog {} entries, {} messages, {} unacknowledged, {} producers",
                    s.name,
                    s.kind,
                    s.backlog_entries,
                    s.backlog_messages,
                    s.unacked_messages,
                    topic.producers.len()
                ));
                lines.extend(s.consumers.iter().map(|c| {
                    format!(
                        "    {} on link {}: permits {}, unacknowledged {}, active {}, sent {}",
                        c.name, c.link.0, c.permits, c.unacked_messages, c.active, c.sent_messages
                    )
                }));
            }
        }
        lines
    }

    fn consumed(&self) -> impl Iterator<Item = &Consumed> {
        self.history.subscriptions.iter().chain(&self.history.readers)
    }

    // Time.

    fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let end = self.world.now().mono + time;
        loop {
            self.world.settle();
            self.dispatch()?;
            let wake = self.wake();
            let stop = wake.map_or(end, |at| at.min(end));
            if self.world.step(stop) {
                if self.world.steps().is_multiple_of(self.check_every) {
                    self.check_always()?;
                }
                continue;
            }
            if wake.is_none_or(|at| at > end) {
                return Ok(());
            }
            self.act()?;
        }
    }

    /// Lets time pass until everything is as it should be in the end.
    fn converge(
        &mut self,
        what: &str,
        done: impl Fn(&mut Self) -> Result<Option<String>, String>,
    ) -> Result<(), String> {
        let limit = self.world.elapsed() + CONVERGENCE;
        loop {
            let Some(missing) = done(self)? else { return Ok(()) };
            if self.world.elapsed() >= limit {
                return Err(format!("{CONVERGENCE:?} after faults stopped there is not {what}: {missing}"));
            }
            self.run_for(LOOK)?;
        }
    }

    fn wake(&self) -> Option<Mono> {
        let producers = self.producers.iter().filter_map(|p| p.wake);
        let consumers = self.consumers.iter().filter_map(|c| c.wake);
        producers.chain(consumers).chain(self.chaos.wake()).min()
    }

    /// Lets everyone act whose time has come.
    fn act(&mut self) -> Result<(), String> {
        let now = self.world.now().mono;
        if self.chaos.wake().is_some_and(|at| at <= now) {
            self.chaos.act(&mut self.world, &self.plan);
        }
        for producer in &mut self.producers {
            if producer.wake.is_some_and(|at| at <= now) {
                producer.act(&mut self.world, &mut self.history)?;
            }
        }
        for consumer in &mut self.consumers {
            if consumer.wake.is_some_and(|at| at <= now) {
                consumer.act(&mut self.world, &mut self.history)?;
            }
        }
        Ok(())
    }

    /// Hands the clients' news to the applications.
    fn dispatch(&mut self) -> Result<(), String> {
        while let Some(occurrence) = self.world.events().get(self.events_seen).cloned() {
            self.events_seen += 1;
            let now = occurrence.at;
            if self.plan.is_calm()
                && !self.closing
                && let Event::State(handle, StateChange::Reconnecting { topic, reason }) = &occurrence.event
            {
                return Err(format!(
                    "{handle:?} reconnects to {topic} although nothing went wrong: {reason}"
                ));
            }
            for producer in &mut self.producers {
                if producer.is(occurrence.client, &occurrence.event) {
                    producer.on(&self.world, &self.history, now, &occurrence.event)?;
                }
            }
            for consumer in &mut self.consumers {
                if consumer.is(occurrence.client, &occurrence.event) {
                    consumer.on(now, &occurrence.event)?;
                }
            }
        }
        Ok(())
    }

    // Checks.

    fn check_always(&mut self) -> Result<(), String> {
        checkers::check_bounds(&self.world, &self.plan, &self.queues)?;
        checkers::check_acknowledged(&self.world, &self.plan, &mut self.history)
    }

    /// What is missing until producers and consumers have done all but what is held.
    fn is_settled(&mut self) -> Result<Option<String>, String> {
        if let Some(producer) = self.producers.iter().find(|p| !p.is_done(&self.world, &self.history)) {
            return Ok(Some(producer.status()));
        }
        self.is_delivered(true)
    }

    fn is_empty(&mut self) -> Result<Option<String>, String> {
        // A message that was held may have changed hands just now.
        for consumer in &mut self.consumers {
            consumer.let_go(&mut self.world, &mut self.history)?;
        }
        self.is_delivered(false)
    }

    fn is_delivered(&mut self, holding: bool) -> Result<Option<String>, String> {
        if let Err(missing) = checkers::check_delivered(&self.world, &self.plan, &mut self.history) {
            return Ok(Some(missing));
        }
        for (index, reader) in self.plan.readers.iter().enumerate() {
            let topic = &self.plan.topics[reader.topic].name;
            if let Err(missing) = checkers::check_reader(&self.world, topic, &mut self.history, index) {
                return Ok(Some(missing));
            }
        }
        checkers::backlog(&self.world, &self.plan, &mut self.history, holding)
    }

    fn check_all(&mut self) -> Result<(), String> {
        self.check_always()?;
        for producer in &self.producers {
            producer.check_outcomes(&self.world, &self.history)?;
        }
        checkers::check_published(&self.world, &self.plan, &mut self.history)?;
        checkers::check_dead_letters(&self.world, &self.plan, &mut self.history)?;
        for (index, subscription) in self.plan.subscriptions.iter().enumerate() {
            // Of a key only the broken message comes again; where one consumer is served, everything behind it, too.
            let by_key = subscription.kind == SubscriptionType::KeyShared;
            if is_ordered(subscription.kind) && !(by_key && self.plan.is_corrupting()) {
                checkers::check_order(subscription, &self.history, index)?;
            }
            let alone = subscription.consumers.len() == 1
                && subscription.consumers[0].reopens_at.is_none()
                && subscription.consumers[0].redelivers_at.is_none();
            let asked = subscription.nacked > 0 || subscription.poison.is_some();
            if self.plan.is_calm() && alone && !asked && subscription.seeks.is_empty() {
                checkers::check_delivered_once(subscription, &self.history, index)?;
            }
        }
        Ok(())
    }

    /// Nothing is under way any more.
    fn check_at_rest(&mut self) -> Result<(), String> {
        self.converge("rest", |s| {
            let busy = (0..s.world.clients()).map(|c| (c, s.world.stats(c))).find(|(_, stats)| {
                stats.requests + stats.lookups + stats.pending_messages + stats.memory_used > 0
            });
            Ok(busy.map(|(client, stats)| format!("client {client} has {stats:?}")))
        })?;
        self.converge("every consumer with its permits", |s| {
            Ok(checkers::check_permits(&s.world, &s.plan, &s.queues).err())
        })?;
        for consumer in self.consumers.iter().filter(|c| matches!(c.role, Role::Reader(_))) {
            if consumer.has_more(&mut self.world) {
                return Err(format!("{} read everything and is told that there is more", consumer.name()));
            }
        }
        Ok(())
    }

    /// Closes everything, some of it one by one, and looks for what is left.
    fn close(&mut self) -> Result<(), String> {
        self.closing = true;
        let one_by_one = self.world.rng.bool();
        if one_by_one {
            self.producers.iter_mut().for_each(|p| p.close(&mut self.world));
            self.consumers.iter_mut().for_each(|c| c.close(&mut self.world));
        }
        for client in 0..self.world.clients() {
            self.world.close_client(client);
        }
        self.producers.iter_mut().for_each(|p| p.wake = None);
        self.consumers.iter_mut().for_each(|c| c.wake = None);
        // Links that fell silent are found out by the broker's keep-alive.
        self.world.advance(Duration::from_secs(150));
        checkers::check_nothing_left(&self.world, &self.plan)
    }
}

fn client_config(mut config: ClientConfig, plan: &Plan, client: usize) -> ClientConfig {
    let plan = &plan.clients[client];
    config.memory_limit = plan.memory_limit;
    config.partitions_update_interval = plan.partitions_update;
    if plan.limited_retries {
        // Longer than all faults together, so that a creation has no reason to fail.
        config.operation_timeout = Duration::from_secs(120);
        config.operation_retries = OperationRetries {
            timeout: Duration::from_secs(30),
            retry_busy: true,
            ..OperationRetries::within_operation_timeout()
        };
    }
    config
}
