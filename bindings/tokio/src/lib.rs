//! An Apache Pulsar client for Rust on tokio.
//!
//! ```no_run
//! # async fn example() -> Result<(), geminga::Error> {
//! use geminga::{Client, InitialPosition};
//!
//! let client = Client::new("pulsar://localhost:6650")?;
//! let consumer = client
//!     .consumer("greetings", "readers")
//!     .initial_position(InitialPosition::Earliest)
//!     .subscribe()
//!     .await?;
//! let producer = client.producer("greetings").create().await?;
//!
//! let id = producer.send("hello").await?; // stored
//! let receipt = producer.enqueue("world").await?; // on its way; more can follow at once
//! println!("stored as {id} and {}", receipt.await?);
//!
//! let message = consumer.receive().await?;
//! println!("{:?} from {}", message.payload(), message.topic());
//! consumer.acknowledge(&message)?;
//! # Ok(())
//! # }
//! ```
//!
//! - **Handles** ([`Client`], [`Producer`], [`Consumer`], [`Reader`]) are cheap clones with `&self` methods, for any number of tasks and
//!   threads. The last clone dropped closes what it stands for.
//! - **Futures** are cancel-safe and need no runtime of their own: one driver task per client does the work, see [`Runtime`].
//! - **Pauses are no errors**: after a broker restart, an unload or a network failure, handles come back by themselves and
//!   unacknowledged messages are sent again, in order. [`Client::events`] tells.
//! - **Programs without async** use [`blocking`].
//!
//! The protocol itself is in [`geminga_core`], a machine without sockets and clocks; its types are re-exported here.
#![forbid(unsafe_code)]

mod auth;
mod bell;
pub mod blocking;
mod builder;
mod client;
mod clock;
mod consumer;
mod driver;
mod events;
mod link;
mod op;
mod producer;
mod reader;
mod receipt;
mod receive;
mod runtime;
mod shared;
mod state;
mod tls;
mod waiters;

pub use auth::TokenError;
pub use builder::ClientBuilder;
pub use client::Client;
pub use consumer::{AsMessageId, Consumer, ConsumerBuilder};
pub use events::{StateEvent, StateEvents};
pub use producer::{Producer, ProducerBuilder};
pub use reader::{Reader, ReaderBuilder};
pub use receipt::SendReceipt;
pub use receive::Messages;
pub use runtime::Runtime;
pub use tls::Pem;

pub use geminga_core::{
    AccessMode, Batching, ClientConfig, ClientStats, Compression, ConsumerConfig, DeadLetterPolicy, Error,
    ErrorKind, HandleId, HashingScheme, InitialPosition, KeyRange, KeySharedPolicy, Message, MessageId,
    MessageRouter, OperationRetries, OutgoingMessage, Position, ProducerConfig, ReaderConfig, Routing,
    SendError, StateChange, SubscriptionType, TopicDomain,
};

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
