//! What a seed stands for: who produces and consumes what, and what goes wrong when. Drawn whole before anything runs.

use std::time::Duration;

use fastrand::Rng;
use geminga_broker::{FaultKind, LookupAnswer, Request};
use geminga_core::wire::proto::ServerError;
use geminga_core::{Compression, SubscriptionType};

use crate::network::{Conditions, Direction};

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many brokers there are.
    pub brokers: u32,
    /// How many bundles topics are divided into.
    pub bundles: u32,
    /// Whether a wrong broker answers a lookup with a redirect.
    pub lookup_answer: LookupAnswer,
    /// Whether brokers drop what they have stored already.
    pub deduplication: bool,
    /// Whether brokers put their own metadata before each message.
    pub entry_metadata: bool,
    /// How the links behave.
    pub conditions: Conditions,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// The topics.
    pub topics: Vec<TopicPlan>,
    /// The producers.
    pub producers: Vec<ProducerPlan>,
    /// The subscriptions with their consumers.
    pub subscriptions: Vec<SubscriptionPlan>,
    /// The readers, each from the earliest message.
    pub readers: Vec<ReaderPlan>,
    /// What goes wrong, by time.
    pub faults: Vec<(Duration, Trouble)>,
    /// When faults stop.
    pub calm_at: Duration,
}

/// One client.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// Bytes without receipt that it may hold; 0 for no limit.
    pub memory_limit: usize,
    /// Whether creations are bounded by the operation timeout, which is then long.
    pub limited_retries: bool,
    /// How often partition counts are asked again.
    pub partitions_update: Duration,
}

/// One topic.
#[derive(Clone, Debug)]
pub struct TopicPlan {
    /// Its full name.
    pub name: String,
    /// Its partitions; 0 for a topic without.
    pub partitions: u32,
}

/// One producer.
#[derive(Clone, Debug)]
pub struct ProducerPlan {
    /// Whose.
    pub client: usize,
    /// Where to.
    pub topic: usize,
    /// Whether it has a name of its own.
    pub named: bool,
    /// Messages of a batch; 0 for none.
    pub batch: usize,
    /// How long a batch waits.
    pub delay: Duration,
    /// The codec.
    pub compression: Compression,
    /// How many keys there are; 0 for messages without.
    pub keys: u32,
    /// How many messages it sends.
    pub messages: u32,
    /// Messages at once.
    pub burst: u32,
    /// Longest pause between bursts.
    pub pause: Duration,
    /// Longest payload.
    pub size: usize,
    /// Messages without receipt that it may hold; 0 for no limit.
    pub max_pending: usize,
    /// How long a message may wait for its receipt.
    pub send_timeout: Option<Duration>,
    /// Whether messages without key stay on one partition.
    pub single_partition: bool,
    /// When it flushes and closes, to be created again a while later.
    pub reopens_at: Option<Duration>,
}

/// One subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionPlan {
    /// On which topic.
    pub topic: usize,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: SubscriptionType,
    /// Whether single messages of a batch are acknowledged to the broker.
    pub batch_index_ack: bool,
    /// Whether acknowledgements are cumulative.
    pub cumulative: bool,
    /// Messages out of 100 that are acknowledged negatively the first time.
    pub nacked: u8,
    /// Messages out of 100 that are not acknowledged before the end.
    pub held: u8,
    /// Its poison, if there is any.
    pub poison: Option<Poison>,
    /// When its consumer seeks back.
    pub seeks: Vec<Duration>,
    /// Its consumers.
    pub consumers: Vec<ConsumerPlan>,
}

/// Messages that no application ever acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct Poison {
    /// How many out of 100 they are.
    pub share: u8,
    /// Redeliveries before they go to the dead letter topic.
    pub max_redeliver_count: u32,
}

/// One consumer.
#[derive(Clone, Debug)]
pub struct ConsumerPlan {
    /// Whose.
    pub client: usize,
    /// Messages asked for ahead.
    pub queue: u32,
    /// How long acknowledgements are gathered.
    pub ack_group: Duration,
    /// Longest time that one message takes the application.
    pub think: Duration,
    /// How long the broker is not told about a negative acknowledgement.
    pub nack_delay: Duration,
    /// When it first subscribes.
    pub opens_at: Duration,
    /// When it closes, to subscribe again a while later.
    pub reopens_at: Option<Duration>,
    /// When it has everything unacknowledged delivered again.
    pub redelivers_at: Option<Duration>,
    /// When delivery is paused, and for how long.
    pub pause: Option<(Duration, Duration)>,
}

/// One reader.
#[derive(Clone, Debug)]
pub struct ReaderPlan {
    /// Whose.
    pub client: usize,
    /// Of which topic.
    pub topic: usize,
    /// Messages asked for ahead.
    pub queue: u32,
    /// Longest time that one message takes the application.
    pub think: Duration,
    /// When it opens.
    pub opens_at: Duration,
}

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Every link is reset.
    CutAll,
    /// One link is reset.
    CutOne,
    /// One link dies without a word.
    SilenceOne,
    /// A broker crashes and is back at once.
    Restart(u32),
    /// A broker crashes and is back later.
    Stop(u32, Duration),
    /// A broker is suspended for a while.
    Freeze(u32, Duration),
    /// A client's program is suspended for a while.
    FreezeClient(usize, Duration),
    /// One direction of all links is held for a while.
    Stall(Direction, Duration),
    /// Links are slow for a while.
    Slow(Duration, Duration),
    /// A topic is unloaded.
    Unload(usize),
    /// A topic moves to another broker, whose address is announced or not.
    Move(usize, u32, bool),
    /// A partitioned topic gets one partition more.
    Grow(usize),
    /// The same with the dead letter topic of a subscription only.
    InjectDeadLetters(usize, FaultKind, u32, u32),
    /// The broker does something wrong, so many times after so many occasions.
    Inject(FaultKind, u32, u32),
}

impl Trouble {
    /// Whether something is lost for good that a peer noticing no break has no reason to ask for again.
    fn needs_a_break(&self) -> bool {
        match self {
            Trouble::Inject(kind, ..) | Trouble::InjectDeadLetters(_, kind, ..) => matches!(
                kind,
                FaultKind::LoseReceipt
                    | FaultKind::Ignore(
                        Request::Flow
                            | Request::Ack
                            | Request::Redeliver
                            | Request::CloseConsumer
                            | Request::CloseProducer
                    )
            ),
            _ => false,
        }
    }
}

impl SubscriptionPlan {
    /// Where its dead letters go.
    pub fn dead_letter_topic(&self, topic: &str) -> String {
        format!("{topic}-{}-DLQ", self.name)
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(rng: &mut Rng) -> Self {
        let calm_at = Duration::from_millis(rng.u64(1_000..15_000));
        let clients = rng.usize(1..=3);
        let brokers = if rng.u8(0..3) == 0 { rng.u32(2..=3) } else { 1 };
        let topics: Vec<_> = (0..rng.usize(1..=4)).map(|n| topic(rng, n)).collect();
        let mut plan = Plan {
            brokers,
            bundles: [1, 2, 4, 16][rng.usize(0..4)],
            lookup_answer: if rng.bool() { LookupAnswer::Connect } else { LookupAnswer::Redirect },
            deduplication: rng.u8(0..3) == 0,
            entry_metadata: rng.u8(0..4) == 0,
            conditions: conditions(rng),
            clients: (0..clients).map(|_| client(rng)).collect(),
            producers: Vec::new(),
            subscriptions: Vec::new(),
            readers: Vec::new(),
            faults: Vec::new(),
            topics,
            calm_at,
        };
        for topic in 0..plan.topics.len() {
            for _ in 0..rng.usize(1..=2) {
                let producer = producer(rng, clients, topic, calm_at);
                plan.producers.push(producer);
            }
            for n in 0..rng.usize(1..=2) {
                let subscription = subscription(rng, clients, topic, n, calm_at);
                plan.subscriptions.push(subscription);
            }
            if rng.u8(0..3) == 0 {
                plan.readers.push(ReaderPlan {
                    client: rng.usize(0..clients),
                    topic,
                    queue: [1, 2, 10, 1000][rng.usize(0..4)],
                    think: think(rng),
                    opens_at: up_to(rng, calm_at),
                });
            }
        }
        // A broker deals out whole batches: where keys are dealt out, a batch must not mix them.
        for subscription in plan.subscriptions.iter().filter(|s| s.kind == SubscriptionType::KeyShared) {
            let producers = plan.producers.iter_mut().filter(|p| p.topic == subscription.topic);
            producers.filter(|p| p.keys > 1).for_each(|p| p.batch = 0);
        }
        // One in eight has no faults at all: then nothing may be repeated or reconnected.
        if rng.u8(0..8) > 0 {
            let mut faults: Vec<_> =
                (0..rng.usize(1..=12)).map(|_| (up_to(rng, calm_at), trouble(rng, &plan))).collect();
            // Three times the same entry would be proof that it is stored so.
            let mut corrupting = 0;
            faults.retain(|(_, trouble)| {
                let corrupts = matches!(trouble, Trouble::Inject(FaultKind::CorruptMessage, ..));
                corrupting += u32::from(corrupts);
                !corrupts || corrupting == 1
            });
            faults.sort_by_key(|(at, _)| *at);
            plan.faults = faults;
        }
        // Seeks are checked exactly, which is possible where nothing is delivered out of order.
        if plan.is_corrupting() {
            plan.subscriptions.iter_mut().for_each(|s| s.seeks.clear());
        }
        let mut own = rng.clone().fork();
        plan.draw_whims(rng);
        plan.draw_poison(&mut own);
        plan
    }

    /// What applications and administrators do now and then.
    fn draw_whims(&mut self, rng: &mut Rng) {
        let calm_at = self.calm_at;
        // Partitions that are added while messages flow are what updates of their count are for.
        let troubled = !self.is_calm();
        for topic in (0..self.topics.len()).filter(|t| troubled && self.topics[*t].partitions > 0) {
            if rng.bool() {
                self.faults.push((up_to(rng, calm_at), Trouble::Grow(topic)));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
        // What was given up unstored may still be on its way, and only a name keeps it from coming behind what is sent next.
        for producer in self.producers.iter_mut().filter(|p| p.named || p.send_timeout.is_none()) {
            producer.reopens_at = (rng.u8(0..4) == 0).then(|| up_to(rng, calm_at));
        }
        for subscription in &mut self.subscriptions {
            // Nothing tells what was on its way on Key_Shared when everything is asked for again: it comes first.
            let by_key = subscription.kind == SubscriptionType::KeyShared;
            for consumer in &mut subscription.consumers {
                let redelivers = (rng.u8(0..6) == 0).then(|| up_to(rng, calm_at));
                consumer.redelivers_at = redelivers.filter(|_| !by_key);
                consumer.pause = (rng.u8(0..6) == 0).then(|| (up_to(rng, calm_at), up_to(rng, calm_at)));
            }
        }
    }

    /// Poison, where messages are shared. A broken message counts as redelivered though no application gave it back.
    fn draw_poison(&mut self, rng: &mut Rng) {
        if self.is_corrupting() {
            return;
        }
        for subscription in self.subscriptions.iter_mut().filter(|s| !s.kind.allows_cumulative()) {
            if rng.bool() {
                continue;
            }
            let (share, max_redeliver_count) = ([5, 20, 60][rng.usize(0..3)], rng.u32(1..=3));
            subscription.poison = Some(Poison { share, max_redeliver_count });
            // Whatever an application has is given back then, and what it has for the last time is as good as poison.
            subscription.consumers.iter_mut().for_each(|c| c.redelivers_at = None);
        }
        let poisoned = (0..self.subscriptions.len()).filter(|s| self.subscriptions[*s].poison.is_some());
        for subscription in poisoned.filter(|_| !self.faults.is_empty()).collect::<Vec<_>>() {
            for _ in 0..rng.usize(0..=2) {
                let (kind, after, times) =
                    (injected_dead_letters(rng, self.deduplication), rng.u32(0..5), rng.u32(1..=3));
                let trouble = Trouble::InjectDeadLetters(subscription, kind, after, times);
                self.faults.push((up_to(rng, self.calm_at), trouble));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Whether links must break once more when faults stop, because something was lost that nobody missed yet.
    pub fn ends_with_a_break(&self) -> bool {
        self.faults.iter().any(|(_, t)| t.needs_a_break())
    }

    /// Whether messages are broken on the way, which changes the order of deliveries.
    pub fn is_corrupting(&self) -> bool {
        self.faults.iter().any(|(_, t)| matches!(t, Trouble::Inject(FaultKind::CorruptMessage, ..)))
    }

    /// Whether nothing goes wrong at all.
    pub fn is_calm(&self) -> bool {
        self.faults.is_empty()
    }
}

fn up_to(rng: &mut Rng, most: Duration) -> Duration {
    Duration::from_micros(rng.u64(0..=most.as_micros() as u64))
}

fn topic(rng: &mut Rng, n: usize) -> TopicPlan {
    TopicPlan {
        name: format!("persistent://public/default/topic-{n}"),
        partitions: if rng.u8(0..3) == 0 { rng.u32(1..=4) } else { 0 },
    }
}

fn conditions(rng: &mut Rng) -> Conditions {
    let slowest = [300, 2_000, 20_000][rng.usize(0..3)];
    Conditions {
        latency: Duration::from_micros(slowest / 10)..=Duration::from_micros(slowest),
        window: [600, 5_000, 64 << 10][rng.usize(0..3)],
        fragmented: [0, 20, 60][rng.usize(0..3)],
        bytes_per_second: None,
    }
}

fn client(rng: &mut Rng) -> ClientPlan {
    ClientPlan {
        memory_limit: [0, 64 << 20, 3_000][rng.usize(0..3)],
        limited_retries: rng.u8(0..3) == 0,
        partitions_update: Duration::from_secs([1, 5, 60][rng.usize(0..3)]),
    }
}

fn producer(rng: &mut Rng, clients: usize, topic: usize, calm_at: Duration) -> ProducerPlan {
    let messages = [5, 20, 60, 120][rng.usize(0..4)];
    let burst = [1, 3, 20][rng.usize(0..3)];
    // So that sending goes on until about the time when faults stop.
    let pause = calm_at * 2 / (messages / burst + 1);
    ProducerPlan {
        client: rng.usize(0..clients),
        topic,
        named: rng.bool(),
        batch: [0, 2, 10, 1000][rng.usize(0..4)],
        delay: Duration::from_millis([1, 10, 200][rng.usize(0..3)]),
        compression: [
            Compression::None,
            Compression::None,
            Compression::Lz4,
            Compression::Zlib,
            Compression::Zstd,
            Compression::Snappy,
        ][rng.usize(0..6)],
        keys: [0, 1, 7][rng.usize(0..3)],
        messages,
        burst,
        pause,
        size: [0, 100, 2_000][rng.usize(0..3)],
        max_pending: [0, 1, 5, 1000][rng.usize(0..4)],
        send_timeout: [None, None, Some(Duration::from_secs(30)), Some(Duration::from_secs(2))]
            [rng.usize(0..4)],
        single_partition: rng.bool(),
        reopens_at: None,
    }
}

fn subscription(
    rng: &mut Rng,
    clients: usize,
    topic: usize,
    n: usize,
    calm_at: Duration,
) -> SubscriptionPlan {
    let kind = [
        SubscriptionType::Exclusive,
        SubscriptionType::Shared,
        SubscriptionType::Failover,
        SubscriptionType::KeyShared,
    ][rng.usize(0..4)];
    let consumers = if kind == SubscriptionType::Exclusive { 1 } else { rng.usize(1..=3) };
    let cumulative = kind.allows_cumulative() && rng.bool();
    let seeks = if kind == SubscriptionType::Exclusive && rng.u8(0..4) == 0 { rng.usize(1..=2) } else { 0 };
    SubscriptionPlan {
        topic,
        name: format!("subscription-{n}"),
        kind,
        batch_index_ack: rng.bool(),
        cumulative,
        nacked: if cumulative { 0 } else { [0, 0, 5, 20][rng.usize(0..4)] },
        // Whoever keeps a message of a key keeps the key from its next consumer.
        held: match kind {
            SubscriptionType::KeyShared if consumers > 1 => 0,
            _ if cumulative || seeks > 0 => 0,
            _ => [0, 10, 30][rng.usize(0..3)],
        },
        poison: None,
        seeks: (0..seeks).map(|_| up_to(rng, calm_at)).collect(),
        consumers: (0..consumers).map(|_| consumer(rng, clients, calm_at)).collect(),
    }
}

fn consumer(rng: &mut Rng, clients: usize, calm_at: Duration) -> ConsumerPlan {
    ConsumerPlan {
        client: rng.usize(0..clients),
        queue: [0, 1, 2, 10, 1000][rng.usize(0..5)],
        ack_group: Duration::from_millis([0, 10, 100][rng.usize(0..3)]),
        think: think(rng),
        nack_delay: Duration::from_millis([10, 500, 3_000][rng.usize(0..3)]),
        opens_at: if rng.bool() { Duration::ZERO } else { up_to(rng, calm_at) },
        reopens_at: (rng.u8(0..4) == 0).then(|| up_to(rng, calm_at)),
        redelivers_at: None,
        pause: None,
    }
}

fn think(rng: &mut Rng) -> Duration {
    Duration::from_micros([0, 1_000, 50_000, 400_000][rng.usize(0..4)])
}

fn trouble(rng: &mut Rng, plan: &Plan) -> Trouble {
    let broker = rng.u32(0..plan.brokers);
    let topic = rng.usize(0..plan.topics.len());
    let a_while = Duration::from_millis([50, 2_000, 12_000][rng.usize(0..3)]);
    match rng.u8(0..24) {
        0 => Trouble::CutAll,
        1 | 2 => Trouble::CutOne,
        3 => Trouble::SilenceOne,
        4 => Trouble::Restart(broker),
        5 => Trouble::Stop(broker, a_while),
        6 => Trouble::Freeze(broker, a_while),
        7 => Trouble::FreezeClient(rng.usize(0..plan.clients.len()), a_while),
        8 => Trouble::Stall(if rng.bool() { Direction::Up } else { Direction::Down }, a_while),
        9 => Trouble::Slow(Duration::from_millis(rng.u64(50..500)), a_while),
        10 | 11 => Trouble::Unload(topic),
        12 | 13 => Trouble::Move(topic, broker, rng.bool()),
        14 => Trouble::Grow(topic),
        _ => {
            let (kind, after, times) = (injected(rng), rng.u32(0..5), rng.u32(1..=3));
            let most = if kind == FaultKind::CorruptMessage { 2 } else { 3 };
            Trouble::Inject(kind, after, times.min(most))
        }
    }
}

fn injected(rng: &mut Rng) -> FaultKind {
    let any = |rng: &mut Rng| {
        [
            Request::Connect,
            Request::Ping,
            Request::Lookup,
            Request::PartitionedMetadata,
            Request::Producer,
            Request::Subscribe,
            Request::Send,
            Request::Flow,
            Request::Ack,
            Request::Redeliver,
            Request::Seek,
            Request::CloseConsumer,
            Request::CloseProducer,
        ][rng.usize(0..13)]
    };
    match rng.u8(0..10) {
        0 => FaultKind::LoseReceipt,
        1 => FaultKind::RepeatReceipt,
        2 => {
            let time = Duration::from_millis([1, 100, 3_000][rng.usize(0..3)]);
            match any(rng) {
                // What has no answer is handled at once and in order; only its effect may take time.
                Request::Flow | Request::Ack | Request::Redeliver => FaultKind::Delay(Request::Send, time),
                request => FaultKind::Delay(request, time),
            }
        }
        3 | 4 => refusal(rng),
        // A broker never forgets one SEND and stores the next: what it has read, it answers or breaks off.
        5 => match any(rng) {
            Request::Send => FaultKind::Ignore(Request::Ack),
            request => FaultKind::Ignore(request),
        },
        6 => FaultKind::RedirectLoop,
        7 => FaultKind::CorruptMessage,
        8 => FaultKind::Cut(any(rng)),
        _ => FaultKind::CutAfter(any(rng)),
    }
}

fn injected_dead_letters(rng: &mut Rng, deduplication: bool) -> FaultKind {
    let refuse = |request, error| FaultKind::Refuse(request, error, "simulated".to_owned());
    match rng.u8(0..7) {
        0 => refuse(Request::Producer, ServerError::AuthorizationError),
        1 => refuse(Request::Producer, ServerError::ProducerBlockedQuotaExceededException),
        // Behind a lost connection the refused one would be a duplicate of those stored after it.
        2 if !deduplication => refuse(Request::Send, ServerError::NotAllowedError),
        3 => refuse(Request::Send, ServerError::TopicTerminatedError),
        4 => FaultKind::LoseReceipt,
        5 => FaultKind::Delay(Request::Send, Duration::from_millis([100, 3_000, 40_000][rng.usize(0..3)])),
        _ => FaultKind::CutAfter(Request::Send),
    }
}

fn refusal(rng: &mut Rng) -> FaultKind {
    let (request, errors): (Request, &[ServerError]) = match rng.u8(0..5) {
        0 => (
            Request::Lookup,
            &[ServerError::ServiceNotReady, ServerError::MetadataError, ServerError::TooManyRequests],
        ),
        1 => (Request::PartitionedMetadata, &[ServerError::ServiceNotReady, ServerError::MetadataError]),
        2 => (Request::Producer, &[ServerError::ServiceNotReady, ServerError::PersistenceError]),
        3 => (Request::Subscribe, &[ServerError::ServiceNotReady, ServerError::MetadataError]),
        _ => (Request::Send, &[ServerError::PersistenceError, ServerError::ServiceNotReady]),
    };
    FaultKind::Refuse(request, errors[rng.usize(0..errors.len())], "simulated".to_owned())
}
