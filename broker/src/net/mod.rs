//! Sockets and clocks around a [`Cluster`](crate::Cluster): the listeners of its brokers and the admin REST API.
//!
//! Knows no protocol rule. Everything that happens is an input under one lock, and no I/O is done while it is held.

mod admin;
mod broker;
mod connection;
mod hub;

pub use broker::{Config, EmbeddedBroker};
