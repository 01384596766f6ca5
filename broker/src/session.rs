//! One client connection as a broker sees it: its handshake, the ids it has registered, and what waits to be written.
//! [`Links`] holds them all and is the only way to write to one. Neither knows topics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use geminga_core::wire::{Command, proto};
use proto::ServerError;

use crate::outbox::Outbox;
use crate::store::TopicKey;
use crate::time::{Mono, Now, Timer, Timers};
use crate::{LinkId, NodeId, Output};

/// `request_id` of commands that the broker sends on its own.
pub(crate) const NO_REQUEST: u64 = u64::MAX;

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Only CONNECT is acceptable.
    Connecting,
    /// Everything but CONNECT is.
    Ready,
}

/// A producer that the link may SEND with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProducerAt {
    pub(crate) topic: TopicKey,
    /// Names the producer in its topic.
    pub(crate) key: u64,
    /// False while it waits for exclusive access.
    pub(crate) ready: bool,
}

/// A consumer that the link may FLOW and ACK with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerAt {
    pub(crate) topic: TopicKey,
    pub(crate) subscription: u32,
    pub(crate) key: u64,
}

/// A topic list that the link watches.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) namespace: String,
    pub(crate) pattern: regex::Regex,
    pub(crate) topics: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) node: NodeId,
    pub(crate) phase: Phase,
    pub(crate) client_version: String,
    pub(crate) protocol_version: i32,
    /// The client can read BrokerEntryMetadata.
    pub(crate) entry_metadata: bool,
    pub(crate) producers: BTreeMap<u64, ProducerAt>,
    /// Producers that the broker closed: what the client still sends for them is dropped without a word.
    pub(crate) closed_producers: BTreeSet<u64>,
    pub(crate) consumers: BTreeMap<u64, ConsumerAt>,
    pub(crate) watches: BTreeMap<u64, Watch>,
    /// When bytes last came.
    pub(crate) heard: Mono,
    /// When the pending keep-alive PING was written.
    pub(crate) pinged: Option<Mono>,
    /// A fault: the next answer is lost.
    pub(crate) loses_answer: bool,
    outbox: Outbox,
    signalled: bool,
    /// Receipts that a fault holds back, in order.
    held: VecDeque<(Mono, Command)>,
}

impl Session {
    fn new(node: NodeId, now: Now) -> Self {
        Session {
            node,
            phase: Phase::Connecting,
            client_version: String::new(),
            protocol_version: 0,
            entry_metadata: false,
            producers: BTreeMap::new(),
            closed_producers: BTreeSet::new(),
            consumers: BTreeMap::new(),
            watches: BTreeMap::new(),
            heard: now.mono,
            pinged: None,
            loses_answer: false,
            outbox: Outbox::default(),
            signalled: false,
            held: VecDeque::new(),
        }
    }
}

/// All links and what the adapter has to be told about them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    sessions: BTreeMap<LinkId, Session>,
    /// Links to close once these bytes are written.
    closing: BTreeMap<LinkId, Outbox>,
    outputs: VecDeque<Output>,
}

impl Links {
    pub(crate) fn open(&mut self, link: LinkId, node: NodeId, now: Now) {
        self.sessions.insert(link, Session::new(node, now));
    }

    pub(crate) fn get(&self, link: LinkId) -> Option<&Session> {
        self.sessions.get(&link)
    }

    pub(crate) fn get_mut(&mut self, link: LinkId) -> Option<&mut Session> {
        self.sessions.get_mut(&link)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &Session)> {
        self.sessions.iter().map(|(link, session)| (*link, session))
    }

    /// Writes a command. A link that is gone takes nothing.
    pub(crate) fn send(&mut self, link: LinkId, command: &Command) {
        let Some(session) = self.sessions.get_mut(&link) else { return };
        if session.loses_answer && is_answer(command) {
            session.loses_answer = false;
            return;
        }
        session.outbox.command(command);
        Self::signal(&mut self.outputs, link, session);
    }

    pub(crate) fn message(
        &mut self,
        link: LinkId,
        command: &proto::CommandMessage,
        entry: impl FnOnce(&Session) -> Option<proto::BrokerEntryMetadata>,
        raw: &Bytes,
    ) {
        let Some(session) = self.sessions.get_mut(&link) else { return };
        let entry = entry(session);
        session.outbox.message(command, entry.as_ref(), raw);
        Self::signal(&mut self.outputs, link, session);
    }

    pub(crate) fn success(&mut self, link: LinkId, request_id: u64) {
        self.send(link, &Command::Success(proto::CommandSuccess { request_id, ..Default::default() }));
    }

    pub(crate) fn error(&mut self, link: LinkId, request_id: u64, error: ServerError, message: &str) {
        let command = proto::CommandError { request_id, error: error as i32, message: message.to_owned() };
        self.send(link, &Command::Error(command));
    }

    /// Writes a receipt, `delay` late, and never before an earlier one.
    pub(crate) fn receipt(
        &mut self,
        link: LinkId,
        command: Command,
        delay: std::time::Duration,
        now: Now,
        timers: &mut Timers,
    ) {
        let Some(session) = self.sessions.get_mut(&link) else { return };
        if delay.is_zero() && session.held.is_empty() {
            return self.send(link, &command);
        }
        let due = (now.mono + delay).max(session.held.back().map_or(now.mono, |(due, _)| *due));
        session.held.push_back((due, command));
        timers.set(Timer::Receipts(link), session.held[0].0);
    }

    /// Writes the held receipts that are due.
    pub(crate) fn release_receipts(&mut self, link: LinkId, now: Now, timers: &mut Timers) {
        while let Some(session) = self.sessions.get_mut(&link) {
            match session.held.front() {
                Some((due, _)) if *due <= now.mono => {
                    let (_, command) = session.held.pop_front().expect("the front is there");
                    self.send(link, &command);
                }
                Some((due, _)) => return timers.set(Timer::Receipts(link), *due),
                None => return,
            }
        }
    }

    /// Forgets the session; what is queued is still written, and then the link is closed.
    pub(crate) fn close(&mut self, link: LinkId) -> Option<Session> {
        let mut session = self.sessions.remove(&link)?;
        self.closing.insert(link, std::mem::take(&mut session.outbox));
        self.outputs.push_back(Output::Close(link));
        Some(session)
    }

    /// Forgets the session and what was queued, and closes the link.
    pub(crate) fn cut(&mut self, link: LinkId) -> Option<Session> {
        let session = self.sessions.remove(&link)?;
        self.outputs.push_back(Output::Close(link));
        Some(session)
    }

    /// Forgets a link that the adapter says is gone.
    pub(crate) fn forget(&mut self, link: LinkId) -> Option<Session> {
        self.closing.remove(&link);
        self.sessions.remove(&link)
    }

    /// Refuses a link that was never a session.
    pub(crate) fn refuse(&mut self, link: LinkId) {
        self.outputs.push_back(Output::Close(link));
    }

    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(crate) fn transmit(&mut self, link: LinkId, budget: usize, out: &mut Vec<Bytes>) -> usize {
        if let Some(session) = self.sessions.get_mut(&link) {
            let pulled = session.outbox.pull(budget, out);
            if session.outbox.is_empty() {
                session.signalled = false;
            }
            return pulled;
        }
        let Some(outbox) = self.closing.get_mut(&link) else { return 0 };
        let pulled = outbox.pull(budget, out);
        if outbox.is_empty() {
            self.closing.remove(&link);
        }
        pulled
    }

    fn signal(outputs: &mut VecDeque<Output>, link: LinkId, session: &mut Session) {
        if !session.signalled {
            session.signalled = true;
            outputs.push_back(Output::Transmit(link));
        }
    }
}

/// Whether a command answers a request.
fn is_answer(command: &Command) -> bool {
    matches!(
        command,
        Command::Connected(_)
            | Command::Success(_)
            | Command::Error(_)
            | Command::ProducerSuccess(_)
            | Command::LookupResponse(_)
            | Command::PartitionedMetadataResponse(_)
            | Command::GetTopicsOfNamespaceResponse(_)
            | Command::GetSchemaResponse(_)
            | Command::GetOrCreateSchemaResponse(_)
            | Command::GetLastMessageIdResponse(_)
            | Command::ConsumerStatsResponse(_)
            | Command::AckResponse(_)
            | Command::WatchTopicListSuccess(_)
    )
}
