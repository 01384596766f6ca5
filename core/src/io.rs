//! What goes into the machine and what comes out of it. Everything here is data; the adapter gives it effect.

use std::ops::RangeInclusive;

use bytes::BytesMut;

use crate::error::Error;
use crate::message_id::MessageId;
use crate::slots::Slot;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) Slot);

        impl $name {
            /// This id as a number, unique within its client for ever.
            pub const fn as_u64(self) -> u64 {
                self.0.as_u64()
            }
        }
    )*};
}

ids! {
    /// One connection, or one attempt at one. A new attempt has a new id.
    ConnId;
    /// One producer, over all partitions of its topic. Not the wire's `producer_id`.
    ProducerId;
    /// One consumer or reader, over all partitions of its topic. Not the wire's `consumer_id`.
    ConsumerId;
    /// One question to the adapter.
    AskId;
}

/// One operation that ends in [`Event::Completed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub(crate) u64);

impl OpId {
    /// This id as a number, unique within its client for ever.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// A message on its way: batch `batch` of its producer, place `index` in it.
///
/// Shape: a batch is one SEND; its outcome arrives as one [`Event::Published`]. Batch numbers of a producer grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId {
    /// Which SEND, counted per producer.
    pub batch: u64,
    /// Which message of it, from 0.
    pub index: u32,
}

/// A producer or a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the variants say it")]
pub enum HandleId {
    Producer(ProducerId),
    Consumer(ConsumerId),
}

/// The world speaks.
#[derive(Debug)]
pub enum Input<'a> {
    /// The link asked for by [`Output::Connect`] is open (for `tls`, after its handshake).
    Connected(ConnId),
    /// Bytes arrived. Whole frames are split off the front; a tail stays, with room for its rest.
    Received(ConnId, &'a mut BytesMut),
    /// The link is gone, or could not be opened.
    Disconnected(ConnId, LinkError),
    /// The answer to an [`Output::Ask`].
    Answered(AskId, Result<Answer, String>),
    /// The deadline passed. Early and late are both fine.
    Tick,
}

/// Why a link ended, in the adapter's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// Whether the peer was reached, and how trust failed if it did.
    pub kind: LinkErrorKind,
    /// One sentence without secrets.
    pub message: String,
}

/// The kinds of link failure that a user would treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkErrorKind {
    /// Nothing answered: refused, unreachable, name not found, or too slow.
    Unreachable,
    /// The TLS handshake failed: an untrusted chain, a wrong host name, a missing client certificate.
    Tls,
    /// The link was open and ended.
    Closed,
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether to speak TLS; the certificate must be for `host`.
    pub tls: bool,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "pulsar+ssl" } else { "pulsar" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// The machine speaks.
#[derive(Debug)]
pub enum Output {
    /// Open a link. Its name resolves anew each time, and each of its addresses is tried.
    Connect(ConnId, Endpoint),
    /// Bytes wait where there were none: call `transmit` when the socket can take them.
    Transmit(ConnId),
    /// Close the link. Nothing more is said about this id.
    Disconnect(ConnId),
    /// Answer this with [`Input::Answered`].
    Ask(AskId, Ask),
    /// Something for the application.
    Event(Event),
}

/// What only the adapter can find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The credentials for a new connection or for the broker's refresh challenge; read anew each time.
    Credentials,
}

/// The adapter's answer to an [`Ask`].
#[derive(Clone)]
pub enum Answer {
    /// `auth_data` for the method that the configuration names.
    Credentials(Vec<u8>),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer(***)")
    }
}

/// News for the application. Small: data is pulled, never pushed.
#[derive(Clone, Debug)]
pub enum Event {
    /// The handle is ready for use.
    Opened(HandleId),
    /// The handle ended: by a close (`None`), or with an error: a failed creation, what was final, or a close that left
    /// acknowledgements untold or that the broker did not confirm. Its id is dead.
    Closed(HandleId, Option<Error>),
    /// One SEND has its outcome. Message `i` of it has the id with `batch_index` `i`, for a batch.
    Published {
        /// The producer.
        producer: ProducerId,
        /// The SEND, as in [`SendId::batch`].
        batch: u64,
        /// How many messages it held.
        count: u32,
        /// The id of the SEND's entry, or why it failed.
        result: Result<Published, Error>,
    },
    /// A producer that refused a message for want of room has room again.
    Writable(ProducerId),
    /// A consumer whose queue was empty has messages.
    Readable(ConsumerId),
    /// An operation ended.
    Completed(OpId, Result<Reply, Error>),
    /// A part of the handle lost its connection or has it back.
    State(HandleId, StateChange),
}

impl Event {
    /// The producer that it is about.
    pub(crate) fn producer(&self) -> Option<ProducerId> {
        match self {
            Event::Opened(HandleId::Producer(id))
            | Event::Closed(HandleId::Producer(id), _)
            | Event::Published { producer: id, .. }
            | Event::Writable(id)
            | Event::State(HandleId::Producer(id), _) => Some(*id),
            _ => None,
        }
    }
}

/// Where a SEND was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The id of the first message: `batch_index` 0 for a batch, -1 otherwise.
    pub id: MessageId,
    /// Messages of the batch; 0 when the SEND was a single message.
    pub batch_size: u32,
}

impl Published {
    /// The id of message `index` of the SEND.
    pub fn message_id(&self, index: u32) -> MessageId {
        match self.batch_size {
            0 => self.id,
            n => MessageId { batch_index: index as i32, batch_size: n as i32, ..self.id },
        }
    }
}

/// How a handle's standing with a broker changed.
#[derive(Clone, Debug)]
pub enum StateChange {
    /// Lost its connection or was moved; it comes back by itself.
    Reconnecting {
        /// The topic or partition concerned.
        topic: String,
        /// Why.
        reason: Error,
    },
    /// Serving again.
    Connected {
        /// The topic or partition concerned.
        topic: String,
    },
    /// A Failover subscription made this consumer the active one of `topic`, or no longer.
    Active {
        /// The topic or partition concerned.
        topic: String,
        /// Whether this consumer is the one that is served.
        active: bool,
    },
    /// A message that was given back too often is stored in the dead letter topic and acknowledged.
    DeadLettered {
        /// The topic or partition that it is of.
        topic: String,
        /// Its id there.
        id: MessageId,
        /// The id of its copy in the dead letter topic.
        dead_letter: MessageId,
    },
    /// Such a message could not be sent to the dead letter topic. It is not acknowledged, and tried again by itself.
    DeadLetterFailed {
        /// The topic or partition that it is of.
        topic: String,
        /// Its id there.
        id: MessageId,
        /// Why.
        reason: Error,
    },
    /// The topic is terminated and everything in it is acknowledged.
    EndOfTopic {
        /// The topic or partition concerned.
        topic: String,
    },
}

/// What an operation gave.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// How many partitions the topic has; 0 when it is not partitioned.
    Partitions(u32),
    /// Topics of a namespace, full names, partitions listed one by one.
    Topics(Vec<String>),
    /// The service URL of the broker that owns a topic.
    Broker(String),
    /// The last message id of each partition asked, and the subscription's mark-delete position where known.
    LastMessageIds(Vec<MessageId>),
    /// Whether messages are there to read.
    Available(bool),
}

/// Which topics of a namespace to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicDomain {
    /// `persistent://` only.
    #[default]
    Persistent,
    /// `non-persistent://` only.
    NonPersistent,
    /// Both.
    All,
}

/// Where a seek or a reader starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before the first message.
    Earliest,
    /// After the last message.
    Latest,
    /// At this message; whether it is delivered too is the handle's `start_message_id_inclusive`.
    Id(MessageId),
    /// At the first message published at or after this time, in ms since 1970-01-01 UTC.
    PublishTime(u64),
}

/// Key hash slots, both ends included, within `0..=65535`.
pub type KeyRange = RangeInclusive<u16>;
