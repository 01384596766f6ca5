//! The machine: brokers over one store. Decides which input goes where and when time is up; what a command means is in
//! the files beside this one.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use geminga_core::wire::{Command, Frame, frame};

use crate::config::{ClusterConfig, NodeConfig};
use crate::context::Context;
use crate::faults::{FaultKind, Faults, Place, Request};
use crate::session::{Links, Phase, Session};
use crate::store::Store;
use crate::time::{Mono, Now, Timer, Timers};
use crate::topic::{Published, Topic};

/// A frame may be so much longer than a message.
const FRAME_PADDING: usize = 10 * 1024;

/// One broker of a cluster, by its place in [`ClusterConfig::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A client connection. The adapter chooses the number and never uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// What the world tells a cluster.
#[derive(Debug)]
pub enum Input<'a> {
    /// A client has connected to a broker.
    Accepted(NodeId, LinkId),
    /// Bytes came. Whole frames are split off; a tail stays, with room for its rest.
    Received(LinkId, &'a mut BytesMut),
    /// The connection is gone. Links that are not known are ignored.
    Closed(LinkId),
    /// The deadline passed; early and late are both fine.
    Tick,
}

/// What a cluster tells the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes wait for this link where there were none: [`transmit`](Cluster::transmit) until it gives nothing.
    Transmit(LinkId),
    /// Close this link once `transmit` gives nothing more for it.
    Close(LinkId),
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) up: bool,
}

/// A PRODUCER or SUBSCRIBE that waits to learn whether the one in its way is alive.
type Waiting = (LinkId, Command);

/// One or more brokers over one in-memory store.
///
/// Shape: feed inputs with [`handle`](Self::handle), then [`poll`](Self::poll) to `None`, then arm a timer for
/// [`deadline`](Self::deadline). Methods that change something from outside (faults, unloads, restarts) have outputs too.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) config: ClusterConfig,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Store,
    pub(crate) links: Links,
    pub(crate) timers: Timers,
    pub(crate) faults: Faults,
    /// By the link whose liveness is in question.
    pub(crate) liveness: BTreeMap<LinkId, Vec<Waiting>>,
    deferred: BTreeMap<u64, Waiting>,
    next_key: u64,
}

impl Cluster {
    /// A cluster with nothing in it but `public/default`. The seed decides where ledger ids begin.
    pub fn new(mut config: ClusterConfig, seed: [u8; 32]) -> Self {
        if config.nodes.is_empty() {
            config.nodes = ClusterConfig::default().nodes;
        }
        let nodes = config.nodes.iter().map(|config| Node { config: config.clone(), up: true }).collect();
        let first_ledger = i64::from(u16::from_le_bytes([seed[0], seed[1]]));
        Cluster {
            store: Store::new(&config, first_ledger),
            config,
            nodes,
            links: Links::default(),
            timers: Timers::default(),
            faults: Faults::default(),
            liveness: BTreeMap::new(),
            deferred: BTreeMap::new(),
            next_key: 0,
        }
    }

    /// Takes in what has happened.
    pub fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Accepted(node, link) => {
                if self.nodes.get(node.0 as usize).is_some_and(|n| n.up) {
                    self.links.open(link, node, now);
                    self.timers.set(Timer::KeepAlive(link), now.mono + self.config.keep_alive);
                } else {
                    self.links.refuse(link);
                }
            }
            Input::Received(link, bytes) => self.receive(now, link, bytes),
            Input::Closed(link) => {
                if let Some(session) = self.links.forget(link) {
                    self.left(now, link, &session);
                }
            }
            Input::Tick => {
                while let Some(timer) = self.timers.pop_due(now.mono) {
                    self.expire(now, timer);
                }
            }
        }
    }

    /// The next thing for the adapter to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.links.poll()
    }

    /// Moves up to `budget` bytes for a link to `out`, as chunks to be written in order; returns how many.
    pub fn transmit(&mut self, link: LinkId, budget: usize, out: &mut Vec<Bytes>) -> usize {
        self.links.transmit(link, budget, out)
    }

    /// When [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Mono> {
        self.timers.next()
    }

    fn receive(&mut self, now: Now, link: LinkId, bytes: &mut BytesMut) {
        match self.links.get_mut(link) {
            Some(session) => {
                session.heard = now.mono;
                session.pinged = None;
            }
            None => return bytes.clear(),
        }
        self.proved_alive(now, link);
        let max = self.config.max_message_size.saturating_add(FRAME_PADDING);
        while self.links.get(link).is_some() {
            match frame::split(bytes, max).and_then(|whole| whole.map(frame::decode).transpose()) {
                Ok(Some(frame)) => self.frame(now, link, frame),
                Ok(None) => return,
                Err(_) => self.close(now, link),
            }
        }
        bytes.clear();
    }

    fn frame(&mut self, now: Now, link: LinkId, frame: Frame) {
        let Some(session) = self.links.get(link) else { return };
        match (session.phase, &frame.command) {
            (Phase::Connecting, Command::Connect(_) | Command::AuthResponse(_)) => {}
            (Phase::Connecting, _) | (Phase::Ready, Command::Connect(_)) => return self.close(now, link),
            (Phase::Ready, _) => {}
        }
        let Frame { command, payload } = frame;
        let request = Request::of(&command);
        let mut cut = false;
        if !self.faults.is_empty() {
            match self.fault_for(link, request, &command) {
                Some(FaultKind::Ignore(_)) => return,
                Some(FaultKind::Cut(_)) => return self.cut(now, link),
                Some(FaultKind::CutAfter(_)) => cut = true,
                Some(FaultKind::LoseAnswer(_)) => {
                    if let Some(session) = self.links.get_mut(link) {
                        session.loses_answer = true;
                    }
                }
                Some(FaultKind::Delay(_, time)) => {
                    let id = self.next_key();
                    self.deferred.insert(id, (link, command));
                    return self.timers.set(Timer::Deferred(id), now.mono + time);
                }
                Some(FaultKind::Refuse(_, error, message)) => {
                    self.refuse(link, &command, error, &message);
                    if request == Request::Connect {
                        self.close(now, link);
                    }
                    return;
                }
                _ => {}
            }
        }
        match (command, payload) {
            (Command::Send(send), Some(payload)) => {
                let Some(at) = self.links.get(link).and_then(|s| s.producers.get(&send.producer_id)).copied()
                else {
                    let closed = |s: &Session| s.closed_producers.contains(&send.producer_id);
                    if !self.links.get(link).is_some_and(closed) {
                        self.close(now, link);
                    }
                    return;
                };
                let (store, mut ctx) = self.parts(now);
                let done = match store.topic_mut(at.topic) {
                    Some(topic) if at.ready => topic.publish(link, &send, payload, &mut ctx),
                    _ => Published::Close,
                };
                if done == Published::Close {
                    self.close(now, link);
                }
            }
            (command, _) => {
                self.command(now, link, command);
                if let Some(session) = self.links.get_mut(link) {
                    session.loses_answer = false;
                }
            }
        }
        if cut {
            self.close(now, link);
        }
    }

    /// Handles a command without a payload.
    pub(crate) fn command(&mut self, now: Now, link: LinkId, command: Command) {
        match command {
            Command::Connect(connect) => self.connect(now, link, *connect),
            Command::AuthResponse(response) => self.auth_response(now, link, &response),
            Command::Ping => self.links.send(link, &Command::Pong),
            Command::Pong => {}
            Command::Lookup(lookup) => self.lookup(link, &lookup),
            Command::PartitionedMetadata(request) => self.partitioned_metadata(now, link, &request),
            Command::GetTopicsOfNamespace(request) => self.get_topics(link, &request),
            Command::WatchTopicList(request) => self.watch_topics(link, &request),
            Command::WatchTopicListClose(request) => self.unwatch_topics(link, &request),
            Command::GetSchema(request) => self.get_schema(link, &request),
            Command::GetOrCreateSchema(request) => self.get_or_create_schema(link, *request),
            Command::Producer(request) => self.create_producer(now, link, *request, false),
            Command::CloseProducer(request) => self.close_producer(now, link, &request),
            Command::Subscribe(request) => self.subscribe(now, link, *request, false),
            Command::Flow(flow) => self.flow(now, link, &flow),
            Command::Ack(ack) => self.ack(now, link, &ack),
            Command::RedeliverUnacknowledgedMessages(request) => self.redeliver(now, link, &request),
            Command::Seek(seek) => self.seek(now, link, &seek),
            Command::GetLastMessageId(request) => self.last_message_id(link, &request),
            Command::ConsumerStats(request) => self.consumer_stats(now, link, &request),
            Command::Unsubscribe(request) => self.unsubscribe(now, link, &request),
            Command::CloseConsumer(request) => self.close_consumer(now, link, &request),
            Command::NewTxn(_)
            | Command::TcClientConnectRequest(_)
            | Command::AddPartitionToTxn(_)
            | Command::AddSubscriptionToTxn(_)
            | Command::EndTxn(_) => self.no_transactions(link, &command),
            // Answers, and what only brokers say: no client sends them.
            _ => self.close(now, link),
        }
    }

    fn expire(&mut self, now: Now, timer: Timer) {
        match timer {
            Timer::KeepAlive(link) => self.keep_alive(now, link),
            Timer::Liveness(link) => self.proved_dead(now, link),
            Timer::Deferred(id) => {
                if let Some((link, command)) = self.deferred.remove(&id)
                    && self.links.get(link).is_some()
                {
                    self.command(now, link, command);
                }
            }
            Timer::Receipts(link) => self.links.release_receipts(link, now, &mut self.timers),
            Timer::Delayed(topic, subscription) | Timer::Takeover(topic, subscription) => {
                let (store, mut ctx) = self.parts(now);
                if let Some(Topic { info, log, subscriptions, .. }) = store.topic_mut(topic)
                    && let Some(subscription) = subscriptions.get_mut(&subscription)
                {
                    subscription.dispatch(info, log, &mut ctx);
                }
            }
        }
    }

    fn fault_for(&mut self, link: LinkId, request: Request, command: &Command) -> Option<FaultKind> {
        let session = self.links.get(link)?;
        let topic = self.topic_of(session, command).unwrap_or_default();
        let place = Place { node: session.node, link, topic: &topic };
        self.faults.take(place, |kind| kind.is_for(request))
    }

    /// The full name of the topic that a command is about.
    fn topic_of(&self, session: &Session, command: &Command) -> Option<String> {
        let named = |name: &str| geminga_core::topic_name::TopicName::parse(name).ok().map(|n| n.to_string());
        let key = match command {
            Command::Lookup(c) => return named(&c.topic),
            Command::PartitionedMetadata(c) => return named(&c.topic),
            Command::Producer(c) => return named(&c.topic),
            Command::Subscribe(c) => return named(&c.topic),
            Command::GetSchema(c) => return named(&c.topic),
            Command::GetOrCreateSchema(c) => return named(&c.topic),
            Command::Send(c) => session.producers.get(&c.producer_id)?.topic,
            Command::CloseProducer(c) => session.producers.get(&c.producer_id)?.topic,
            Command::Flow(c) => session.consumers.get(&c.consumer_id)?.topic,
            Command::Ack(c) => session.consumers.get(&c.consumer_id)?.topic,
            Command::RedeliverUnacknowledgedMessages(c) => session.consumers.get(&c.consumer_id)?.topic,
            Command::Seek(c) => session.consumers.get(&c.consumer_id)?.topic,
            Command::GetLastMessageId(c) => session.consumers.get(&c.consumer_id)?.topic,
            Command::ConsumerStats(c) => session.consumers.get(&c.consumer_id)?.topic,
            Command::Unsubscribe(c) => session.consumers.get(&c.consumer_id)?.topic,
            Command::CloseConsumer(c) => session.consumers.get(&c.consumer_id)?.topic,
            _ => return None,
        };
        Some(self.store.topic(key)?.info.name.to_string())
    }

    /// Whether a command that fits waits to be handled: held back by a fault, or until somebody proves to be alive.
    pub(crate) fn is_waiting(&self, link: LinkId, fits: impl Fn(&Command) -> bool) -> bool {
        let mut waiting = self.deferred.values().chain(self.liveness.values().flatten());
        waiting.any(|(from, command)| *from == link && fits(command))
    }

    /// Forgets the commands that fit and wait to be handled.
    pub(crate) fn forget_waiting(&mut self, link: LinkId, fits: impl Fn(&Command) -> bool) {
        self.deferred.retain(|_, (from, command)| *from != link || !fits(command));
        for waiting in self.liveness.values_mut() {
            waiting.retain(|(from, command)| *from != link || !fits(command));
        }
    }

    /// The store, and all else that a topic may touch.
    pub(crate) fn parts(&mut self, now: Now) -> (&mut Store, Context<'_>) {
        let context = Context {
            now,
            config: &self.config,
            links: &mut self.links,
            timers: &mut self.timers,
            faults: &mut self.faults,
        };
        (&mut self.store, context)
    }

    pub(crate) fn next_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Closes a link after what is queued for it was written.
    pub(crate) fn close(&mut self, now: Now, link: LinkId) {
        if let Some(session) = self.links.close(link) {
            self.left(now, link, &session);
        }
    }

    /// Closes a link and loses what is queued for it.
    pub(crate) fn cut(&mut self, now: Now, link: LinkId) {
        if let Some(session) = self.links.cut(link) {
            self.left(now, link, &session);
        }
    }

    /// A session has ended: its producers and consumers go, and whoever waited for them moves up.
    fn left(&mut self, now: Now, link: LinkId, session: &Session) {
        self.timers.cancel(Timer::KeepAlive(link));
        self.timers.cancel(Timer::Receipts(link));
        self.timers.cancel(Timer::Liveness(link));
        let (store, mut ctx) = self.parts(now);
        for at in session.producers.values() {
            if let Some(topic) = store.topic_mut(at.topic) {
                topic.detach_producer(at.key, &mut ctx);
            }
        }
        for at in session.consumers.values() {
            if let Some(topic) = store.topic_mut(at.topic) {
                topic.detach_consumer(at.subscription, at.key, &mut ctx);
            }
        }
        for (waiting, command) in self.liveness.remove(&link).unwrap_or_default() {
            self.command(now, waiting, command);
        }
    }
}
