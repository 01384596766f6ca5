//! What can be set, one file per object: defaults, units, validation.

mod client;
mod consumer;
mod dead_letter;
mod producer;

pub use client::{Authentication, ClientConfig, OperationRetries, Secret};
pub use consumer::{ConsumerConfig, InitialPosition, KeySharedPolicy, ReaderConfig, SubscriptionType};
pub use dead_letter::DeadLetterPolicy;
pub use producer::{AccessMode, Batching, MessageRouter, ProducerConfig, Routing, RoutingFunction};

use crate::error::{Error, ErrorKind};

pub(crate) fn invalid(doing: &str, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfiguration, doing, why)
}
