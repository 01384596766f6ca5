//! An embedded, in-memory Apache Pulsar broker, for development and tests. **Production uses a Pulsar cluster**: this
//! one keeps everything in memory and forgets it at exit.
//!
//! [`Cluster`] is a machine without sockets and clocks: one or more broker nodes over one store. Bytes and time go in,
//! bytes come out, and the same inputs give the same outputs, so a test can hold a client, a cluster and the network
//! between them in its hand. The feature `net` puts a listener and the admin REST API around it.
//!
//! | where | what |
//! |---|---|
//! | `cluster` | the machine: inputs, outputs, timers; routes commands to the files below |
//! | `connect`, `lookup`, `publish`, `consume` | what each group of commands means |
//! | `control`, `inspect`, `faults` | what a test does to a cluster, sees of it, and wants to go wrong |
//! | `session`, `outbox` | one link: its registered ids, and what waits to be written |
//! | `store` | topics, namespaces, partitions, schemas, ownership |
//! | `topic`, `log`, `producer`, `dedup` | one topic, its entries, who may publish, what is a duplicate |
//! | `subscription/` | cursor, consumers, redelivery, and a file for each way to dispatch |
#![forbid(unsafe_code)]

mod cluster;
mod config;
mod connect;
mod consume;
mod context;
mod control;
mod dedup;
mod faults;
mod inspect;
mod log;
mod lookup;
#[cfg(feature = "net")]
pub mod net;
mod outbox;
mod producer;
mod publish;
mod session;
mod store;
mod subscription;
mod time;
mod topic;

pub use cluster::{Cluster, Input, LinkId, NodeId, Output};
pub use config::{ClusterConfig, LookupAnswer, NodeConfig};
pub use control::ControlError;
pub use faults::{Fault, FaultKind, Request};
pub use inspect::{ConsumerView, ProducerView, StoredMessage, SubscriptionView, TopicView};
pub use log::Position;
pub use time::{Mono, Now};
