//! The Apache Pulsar client protocol as one sans-IO state machine.
//!
//! A [`Client`] is one Pulsar client: any number of connections, producers, consumers and readers. It opens no socket and
//! reads no clock. The world's news go in through [`Client::handle`], the application's wishes through the other methods,
//! each with the time; what is to be done comes out of [`Client::poll`], the bytes to write out of [`Client::transmit`],
//! and [`Client::deadline`] says when to call again at the latest. The same seed and the same calls give the same outputs.
//!
//! ```text
//! handle(input) ─┐                                     ┌─ poll()      Connect, Disconnect, Transmit, Ask, Event
//! send, receive ─┼─▶ Client ─ hub ─ connection/        ├─ transmit()  bytes for a socket
//! ack, seek …   ─┘        ├─ lookup/  producer/  consumer/  └─ deadline()
//! ```
//!
//! Where to find what: permits in `consumer/permits.rs`, batches in `producer/batch.rs`, unacknowledged sends in
//! `producer/pending.rs`, reconnection in `attach.rs`, keep-alive in `connection/keepalive.rs`, the error table in
//! `error.rs`, defaults in `config/`, bytes in `wire/`.
#![forbid(unsafe_code)]

mod attach;
mod backoff;
mod client;
pub mod compression;
mod config;
mod connection;
mod consumer;
mod dispatch;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod hash;
mod hub;
mod io;
mod lookup;
mod memory;
mod message;
pub mod message_id;
mod producer;
mod rng;
pub mod service_url;
mod slots;
pub mod time;
pub mod topic_name;
mod tries;
pub mod wire;

pub use client::{Client, ClientStats};
pub use compression::Compression;
pub use config::{
    AccessMode, Authentication, Batching, ClientConfig, ConsumerConfig, DeadLetterPolicy, InitialPosition,
    KeySharedPolicy, MessageRouter, OperationRetries, ProducerConfig, ReaderConfig, Routing, RoutingFunction,
    Secret, SubscriptionType,
};
pub use consumer::Consumer;
pub use error::{Error, ErrorKind};
pub use hash::HashingScheme;
pub use io::{
    Answer, Ask, AskId, ConnId, ConsumerId, Endpoint, Event, HandleId, Input, KeyRange, LinkError,
    LinkErrorKind, OpId, Output, Position, ProducerId, Published, Reply, SendId, StateChange, TopicDomain,
};
pub use message::{Message, OutgoingMessage};
pub use message_id::MessageId;
pub use producer::{Producer, SendError};
pub use service_url::ServiceUrl;
pub use slots::Slot;
pub use time::{Mono, Now};
pub use topic_name::TopicName;
