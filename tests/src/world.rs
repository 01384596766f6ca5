//! A world for tests: clients, a cluster of brokers, the network between them and the time, all from one seed.
//!
//! Decides what happens next and when; nothing in it sleeps, and no socket is opened. A scenario reads
//!
//! ```
//! use std::time::Duration;
//! use geminga_tests::world::World;
//! let mut w = World::configured(7, |s| s.cluster.deduplication = true);
//! let producer = w.producer("t", |_| {});
//! w.broker.lose_next_receipt();
//! let sent = w.send(producer, "a");
//! w.advance(Duration::from_secs(1)); // it is stored, and the receipt is lost
//! w.cut_links();
//! w.expect_published(sent);
//! assert_eq!(w.stored("t"), ["a"]);
//! ```
//!
//! Verbs wait in virtual time where they need an outcome, and fail with the seed and the last lines of the trace.
//! [`World::scripted`] has the test itself as the broker, see [`script`].

mod book;
mod clock;
mod consuming;
mod effects;
mod faults;
mod heard;
mod producing;
pub mod script;
mod scripted;
mod setup;
mod trace;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use geminga_broker::{Cluster, Input as BrokerInput, LinkId};
use geminga_core::{
    Answer, AskId, Client, ClientConfig, ConnId, ConsumerId, HandleId, Input, Mono, Now, OpId, ProducerId,
    Reply, SendId,
};

pub use book::{Book, Occurrence};
pub use consuming::text;
pub use setup::Setup;
pub use trace::{Lines, Trace, describe};

use crate::network::{Direction, Network};
use clock::Clock;
use script::Script;

/// How long a verb waits for its outcome, in virtual time.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Steps without any progress of time, or within one second of it, that mean a loop without a wait.
const MOST_STEPS_AT_ONCE: u32 = 20_000;
const MOST_STEPS_A_SECOND: u32 = 400_000;

/// Something of one client of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At<T> {
    /// The client, by its number.
    pub client: usize,
    /// Its name there.
    pub id: T,
}

/// A producer of a client.
pub type ProducerAt = At<ProducerId>;
/// A consumer or reader of a client.
pub type ConsumerAt = At<ConsumerId>;
/// An operation of a client.
pub type OpAt = At<OpId>;

/// A message that was handed to a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    /// The producer.
    pub producer: ProducerAt,
    /// Its name there.
    pub id: SendId,
}

/// One client and what the world keeps for it.
#[derive(Debug)]
struct Site {
    machine: Client,
    frozen: bool,
    links: BTreeMap<ConnId, LinkId>,
    answers: Vec<(AskId, Result<Answer, String>)>,
}

/// What the world keeps for a link.
#[derive(Debug, Default)]
struct Ends {
    client_buffer: BytesMut,
    broker_buffer: BytesMut,
    client_has_bytes: bool,
    broker_has_bytes: bool,
    broker_closes: bool,
}

/// Clients, brokers, network and time.
#[derive(Debug)]
pub struct World {
    /// The brokers: inspect them, inject faults, unload and move topics. Methods that need the time take [`World::now`].
    pub broker: Cluster,
    /// The links.
    pub network: Network,
    /// The test's own broker, in scripted worlds.
    pub script: Script,
    /// What happened last.
    pub trace: Trace,
    /// What the clients said so far.
    pub book: Book,
    /// Drawn from for whatever a test leaves open.
    pub rng: Rng,
    seed: u64,
    setup: Setup,
    clock: Clock,
    sites: Vec<Site>,
    ends: BTreeMap<LinkId, Ends>,
    outgoing: Vec<Bytes>,
    steps: Steps,
}

#[derive(Debug, Default)]
struct Steps {
    total: u64,
    at_once: u32,
    second: u64,
    in_second: u32,
}

impl World {
    /// One broker and one client, which connects when it needs to.
    pub fn new(seed: u64) -> Self {
        Self::configured(seed, |_| {})
    }

    /// The same with several brokers.
    pub fn with_brokers(seed: u64, brokers: u32) -> Self {
        Self::configured(seed, |setup| setup.brokers(brokers))
    }

    /// A client whose broker is the test: see [`script`] and [`World::hear`].
    pub fn scripted(seed: u64) -> Self {
        Self::configured(seed, |setup| setup.scripted = true)
    }

    /// A world with other settings.
    pub fn configured(seed: u64, change: impl FnOnce(&mut Setup)) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut setup = Setup::default();
        change(&mut setup);
        let origin = Mono::from_nanos(rng.u64(1_000_000_000..1_000_000_000_000));
        let clock = Clock::new(origin, 1_750_000_000_000 + rng.u64(0..1_000_000_000));
        let network = Network::new(setup.conditions.clone(), rng.fork());
        let broker = Cluster::new(setup.cluster.clone(), entropy(&mut rng));
        let mut world = World {
            broker,
            network,
            script: Script::default(),
            trace: Trace::new(setup.trace, setup.lines.clone().unwrap_or_default(), origin),
            book: Book::default(),
            rng,
            seed,
            clock,
            sites: Vec::new(),
            ends: BTreeMap::new(),
            outgoing: Vec::new(),
            steps: Steps::default(),
            setup,
        };
        let config = world.setup.client.clone();
        world.client(config);
        world
    }

    /// Adds a client; returns its number. The first is 0 and is there from the start.
    pub fn client(&mut self, config: ClientConfig) -> usize {
        let seed = entropy(&mut self.rng);
        let machine = match Client::new(config, seed, self.now()) {
            Ok(machine) => machine,
            Err(error) => self.fail(&format!("the client's configuration: {error}")),
        };
        self.sites.push(Site { machine, frozen: false, links: BTreeMap::new(), answers: Vec::new() });
        self.sites.len() - 1
    }

    /// The configuration that clients have unless they are given another.
    pub fn client_config(&self) -> ClientConfig {
        self.setup.client.clone()
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.sites.len()
    }

    /// A client's machine, to be called directly.
    pub fn machine(&mut self, client: usize) -> &mut Client {
        &mut self.sites[client].machine
    }

    /// A client's gauges.
    pub fn stats(&self, client: usize) -> geminga_core::ClientStats {
        self.sites[client].machine.stats()
    }

    /// What everything was drawn from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The time, on both clocks.
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// The time since the world began.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// How many things have happened.
    pub fn steps(&self) -> u64 {
        self.steps.total
    }

    // Time.

    /// Lets time pass, with everything that happens in it.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now().mono + time;
        while self.step(end) {}
    }

    /// Lets time pass until something is true; false if it is not within `limit`.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool, limit: Duration) -> bool {
        let end = self.now().mono + limit;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }

    /// As [`run_until`](Self::run_until), for what must come true: fails with `what` otherwise.
    pub fn expect(&mut self, what: &str, done: impl FnMut(&mut Self) -> bool) {
        if !self.run_until(done, PATIENCE) {
            self.fail(&format!("{what} did not happen within {PATIENCE:?}"));
        }
    }

    /// When something happens next, by itself.
    pub fn next_at(&mut self) -> Option<Mono> {
        self.settle();
        let clients = self.sites.iter().filter(|s| !s.frozen);
        let first = clients.filter_map(|s| s.machine.deadline()).min();
        [first, self.network.next(), self.broker.deadline()].into_iter().flatten().min()
    }

    /// Does the next thing that happens until `end`; when there is none, moves to `end` and returns false.
    pub fn step(&mut self, end: Mono) -> bool {
        let Some(at) = self.next_at().filter(|at| *at <= end) else {
            self.clock.jump(end);
            return false;
        };
        self.count_step(at);
        self.clock.jump(at);
        let now = self.now();
        if let Some(delivery) = self.network.deliver(now.mono) {
            self.deliver(delivery);
        } else if self.broker.deadline().is_some_and(|at| at <= now.mono) {
            self.broker.handle(now, BrokerInput::Tick);
        } else {
            for client in 0..self.sites.len() {
                let site = &mut self.sites[client];
                if !site.frozen && site.machine.deadline().is_some_and(|at| at <= now.mono) {
                    site.machine.handle(now, Input::Tick);
                    site.machine.check_invariants();
                }
            }
        }
        self.settle();
        true
    }

    /// Gives effect to what the machines want done now. No time passes.
    pub fn settle(&mut self) {
        let now = self.now();
        loop {
            let mut quiet = true;
            for client in 0..self.sites.len() {
                for (ask, answer) in std::mem::take(&mut self.sites[client].answers) {
                    self.sites[client].machine.handle(now, Input::Answered(ask, answer));
                    quiet = false;
                }
                while let Some(output) = self.sites[client].machine.poll() {
                    self.client_output(client, output);
                    quiet = false;
                }
            }
            while let Some(output) = self.broker.poll() {
                self.broker_output(output);
                quiet = false;
            }
            while let Some((link, bytes)) = self.script.next_write() {
                self.tap_down(link, &bytes);
                self.network.send(now.mono, link, Direction::Down, bytes);
                quiet = false;
            }
            if quiet && !self.pump() {
                return;
            }
        }
    }

    // What happened.

    /// Everything the clients said, oldest first.
    pub fn events(&self) -> &[Occurrence] {
        self.book.events()
    }

    /// Waits for an operation.
    pub fn complete(&mut self, op: OpAt) -> Result<Reply, geminga_core::Error> {
        self.expect("the end of an operation", |w| w.book.completed(op).is_some());
        self.book.completed(op).expect("just seen").clone()
    }

    /// Waits until a handle is open; its error if it ends instead.
    pub fn await_open(&mut self, client: usize, handle: HandleId) -> Result<(), geminga_core::Error> {
        self.expect("the opening of a handle", |w| {
            w.book.is_open(client, handle) || w.book.closed(client, handle).is_some()
        });
        match self.book.closed(client, handle) {
            Some(Some(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until a handle is gone; gives the error that ended it, if one did.
    pub fn await_closed(&mut self, client: usize, handle: HandleId) -> Option<geminga_core::Error> {
        self.expect("the end of a handle", |w| w.book.closed(client, handle).is_some());
        self.book.closed(client, handle).expect("just seen").clone()
    }

    /// Closes a client and waits until it is gone; fails if it leaves anything behind.
    pub fn close_client(&mut self, client: usize) {
        let now = self.now();
        let id = self.sites[client].machine.close(now);
        let result = self.complete(At { client, id });
        if let Err(error) = result {
            self.fail(&format!("closing the client: {error}"));
        }
        let stats = self.stats(client);
        if stats != geminga_core::ClientStats::default() {
            self.fail(&format!("the client is closed and still has {stats:?}"));
        }
    }

    /// Ends the test: what was wrong, the seed, and the last lines of the trace.
    pub fn fail(&self, what: &str) -> ! {
        panic!("{what} (world of seed {}, at {:?})", self.seed, self.elapsed())
    }

    fn count_step(&mut self, at: Mono) {
        let steps = &mut self.steps;
        steps.total += 1;
        steps.at_once = if at > self.clock.now().mono { 0 } else { steps.at_once + 1 };
        let second = self.clock.elapsed().as_secs();
        if second != steps.second {
            steps.second = second;
            steps.in_second = 0;
        }
        steps.in_second += 1;
        if steps.at_once > MOST_STEPS_AT_ONCE || steps.in_second > MOST_STEPS_A_SECOND {
            let reasons: Vec<_> = self.sites.iter().map(|s| s.machine.deadline_reason()).collect();
            self.fail(&format!(
                "time stands still: {} steps at one moment, {} within a second; the clients' next deadlines are {reasons:?}",
                self.steps.at_once, self.steps.in_second
            ));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && self.trace.is_on() && self.setup.lines.is_none() {
            eprintln!("--- the last of the world of seed {} (seconds since its start)", self.seed);
            for line in self.trace.lines() {
                eprintln!("{line}");
            }
        }
    }
}

fn entropy(rng: &mut Rng) -> [u8; 32] {
    let mut seed = [0; 32];
    rng.fill(&mut seed);
    seed
}
