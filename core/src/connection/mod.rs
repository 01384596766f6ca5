//! One broker connection: its handshake, its requests, its proof of life, and what waits to be written.
//!
//! Decides nothing about topics, producers or consumers; it knows them only as owners to be told.

mod handshake;
pub(crate) mod keepalive;
mod requests;

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

pub(crate) use requests::{Request, RequestKind, Requests};

use crate::hub::{Owner, Ticket};
use crate::io::{AskId, Endpoint};
use crate::slots::Slot;
use crate::time::Mono;
use crate::wire::command::Command;
use crate::wire::proto::FeatureFlags;
use keepalive::KeepAlive;

/// The protocol version this core speaks.
const PROTOCOL_VERSION: i32 = 21;
/// What a frame may have beyond the largest message.
pub(crate) const FRAME_PADDING: usize = 10 * 1024;
/// The largest message until a broker says otherwise.
pub(crate) const DEFAULT_MAX_MESSAGE_SIZE: usize = 5 * 1024 * 1024;
/// "Too many requests" answers within a minute that end a connection, as in the Java client.
const MAX_REJECTED: u32 = 50;

/// What this core really supports, announced in CONNECT.
fn feature_flags() -> FeatureFlags {
    FeatureFlags {
        supports_auth_refresh: Some(true),
        supports_broker_entry_metadata: Some(true),
        supports_partial_producer: Some(true),
        supports_get_partitioned_metadata_without_auto_creation: Some(true),
        ..FeatureFlags::default()
    }
}

/// A broker, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    /// What is dialled.
    pub(crate) endpoint: Endpoint,
    /// The broker behind the proxy that is dialled, as `host:port`.
    pub(crate) proxy_to: Option<String>,
}

/// How far the handshake is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The adapter opens the link.
    Linking,
    /// The adapter fetches credentials.
    Asking(AskId),
    /// CONNECT is sent; challenges are answered until CONNECTED comes.
    Greeting,
    /// In use.
    Ready,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) address: Address,
    pub(crate) stage: Stage,
    pub(crate) requests: Requests,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) max_message_size: usize,
    /// The protocol version that both sides speak.
    pub(crate) version: i32,
    /// Who waits for the handshake to end.
    pub(crate) waiting: Vec<Ticket>,
    /// Who is told when the connection is lost.
    pub(crate) owners: BTreeSet<Owner>,
    /// A refresh of the credentials that is under way.
    pub(crate) refresh: Option<AskId>,
    /// Encoded commands.
    control: BytesMut,
    /// Producer parts with SENDs to write, one entry a frame. The frames stay with the part until the socket takes them.
    sends: VecDeque<Slot>,
    /// SENDs written and not answered.
    unanswered_sends: u64,
    /// Whether the adapter knows that bytes wait.
    announced: bool,
    rejected: (Mono, u32),
}

impl Connection {
    pub(crate) fn new(address: Address, keep_alive: KeepAlive) -> Self {
        Connection {
            address,
            stage: Stage::Linking,
            requests: Requests::default(),
            keep_alive,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            version: 0,
            waiting: Vec::new(),
            owners: BTreeSet::new(),
            refresh: None,
            control: BytesMut::new(),
            sends: VecDeque::new(),
            unanswered_sends: 0,
            announced: false,
            rejected: (Mono::default(), 0),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// The largest frame either side may send.
    pub(crate) fn max_frame(&self) -> usize {
        self.max_message_size + FRAME_PADDING
    }

    /// Queues a command. Returns whether the adapter must be told.
    pub(crate) fn write(&mut self, command: &Command) -> bool {
        command.encode(&mut self.control);
        !std::mem::replace(&mut self.announced, true)
    }

    /// Queues one SEND of a producer part. Returns whether the adapter must be told.
    pub(crate) fn write_send(&mut self, part: Slot) -> bool {
        self.sends.push_back(part);
        !std::mem::replace(&mut self.announced, true)
    }

    pub(crate) fn take_control(&mut self) -> Option<Bytes> {
        (!self.control.is_empty()).then(|| self.control.split().freeze())
    }

    pub(crate) fn next_send(&mut self) -> Option<Slot> {
        self.sends.pop_front()
    }

    /// Forgets queued SENDs of a part that no longer uses this connection.
    pub(crate) fn forget_sends(&mut self, part: Slot, unanswered: u64) {
        self.sends.retain(|p| *p != part);
        self.unanswered_sends = self.unanswered_sends.saturating_sub(unanswered);
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.control.is_empty() || !self.sends.is_empty()
    }

    /// Everything was taken: the next write is news again.
    pub(crate) fn drained(&mut self) {
        self.announced = false;
    }

    pub(crate) fn send_written(&mut self) {
        self.unanswered_sends += 1;
    }

    pub(crate) fn send_answered(&mut self) {
        self.unanswered_sends = self.unanswered_sends.saturating_sub(1);
    }

    /// Whether an answer is owed to us.
    pub(crate) fn is_busy(&self) -> bool {
        self.unanswered_sends > 0 || self.requests.waits()
    }

    /// Counts a "too many requests". Returns whether the connection should end.
    pub(crate) fn rejected(&mut self, now: Mono) -> bool {
        if now.since(self.rejected.0).as_secs() >= 60 {
            self.rejected = (now, 0);
        }
        self.rejected.1 += 1;
        self.rejected.1 >= MAX_REJECTED
    }
}
