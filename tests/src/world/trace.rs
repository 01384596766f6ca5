//! What happened last, in words: commands as a client said and heard them, events, and what was done to the world.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use geminga_broker::LinkId;
use geminga_core::Mono;
use geminga_core::wire::{Command, Frame, frame};

use crate::network::Direction;

const LARGEST_FRAME: usize = 64 << 20;

/// Lines of a trace, shared with whoever outlives the world.
pub type Lines = Arc<Mutex<VecDeque<String>>>;

/// The last lines of a world's history.
///
/// Shape: off by default in long runs, because a run can be repeated with it switched on.
#[derive(Debug)]
pub struct Trace {
    lines: Lines,
    kept: usize,
    origin: Mono,
    taps: BTreeMap<(LinkId, Direction), BytesMut>,
}

impl Trace {
    /// Keeps the last `kept` lines in `lines`, none for 0. Times are written relative to `origin`.
    pub fn new(kept: usize, lines: Lines, origin: Mono) -> Self {
        Trace { lines, kept, origin, taps: BTreeMap::new() }
    }

    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.kept > 0
    }

    /// Adds a line.
    pub fn note(&mut self, now: Mono, line: impl FnOnce() -> String) {
        if self.kept == 0 {
            return;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == self.kept {
            lines.pop_front();
        }
        let at = now.since(self.origin).as_micros();
        lines.push_back(format!("{:>6}.{:06} {}", at / 1_000_000, at % 1_000_000, line()));
    }

    /// Adds a line for each command that ends in these bytes of a link.
    pub fn tap(&mut self, now: Mono, client: usize, link: LinkId, direction: Direction, bytes: &Bytes) {
        if self.kept == 0 {
            return;
        }
        let mut buffer = self.taps.remove(&(link, direction)).unwrap_or_default();
        buffer.extend_from_slice(bytes);
        let arrow = if direction == Direction::Up { "->" } else { "<-" };
        while let Ok(Some(whole)) = frame::split(&mut buffer, LARGEST_FRAME) {
            let len = whole.len();
            let what = match frame::decode(whole) {
                // Proof of life would push everything else out of the lines kept.
                Ok(Frame { command: Command::Ping | Command::Pong, .. }) => continue,
                Ok(frame) => describe(&frame.command),
                Err(error) => format!("undecodable frame of {len} bytes: {error}"),
            };
            self.note(now, || format!("client {client} {arrow} link {} {what}", link.0));
        }
        self.taps.insert((link, direction), buffer);
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        Vec::from_iter(lines.iter().cloned()).into_iter()
    }
}

/// A command in one short line.
pub fn describe(command: &Command) -> String {
    let mut out = command.name().to_owned();
    let body = match command {
        Command::Send(c) => {
            format!("producer {} sequence {} x{}", c.producer_id, c.sequence_id, c.num_messages())
        }
        Command::SendReceipt(c) => {
            let id = c.message_id.as_ref();
            let (ledger, entry) = id.map_or((-1, -1), |id| (id.ledger_id as i64, id.entry_id as i64));
            format!("producer {} sequence {} at {ledger}:{entry}", c.producer_id, c.sequence_id)
        }
        Command::Message(c) => format!(
            "consumer {} {}:{} redelivery {}",
            c.consumer_id,
            c.message_id.ledger_id,
            c.message_id.entry_id,
            c.redelivery_count()
        ),
        Command::Flow(c) => format!("consumer {} permits {}", c.consumer_id, c.message_permits),
        Command::Ack(c) => {
            let ids = c.message_id.iter().map(|id| match id.ack_set.is_empty() {
                true => format!("{}:{}", id.ledger_id, id.entry_id),
                false => format!("{}:{}{:?}", id.ledger_id, id.entry_id, id.ack_set),
            });
            let kind = if c.ack_type == 1 { "cumulative" } else { "individual" };
            format!("consumer {} {kind} {}", c.consumer_id, ids.collect::<Vec<_>>().join(" "))
        }
        Command::Connect(_) | Command::Connected(_) | Command::Ping | Command::Pong => String::new(),
        Command::Lookup(c) => format!("request {} {}", c.request_id, c.topic),
        Command::Producer(c) => format!("request {} producer {} {}", c.request_id, c.producer_id, c.topic),
        Command::Subscribe(c) => {
            format!("request {} consumer {} {} {}", c.request_id, c.consumer_id, c.topic, c.subscription)
        }
        other => {
            let mut text = format!("{other:?}");
            if let Some(at) = text.find('(') {
                text.drain(..at);
            }
            text
        }
    };
    let body: String = body.chars().take(160).collect();
    if !body.is_empty() {
        write!(out, " {body}").expect("a String takes all");
    }
    out
}
