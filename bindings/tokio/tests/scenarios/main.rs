//! What broke in other Pulsar clients and only an adapter can show: sockets, tasks, threads, buffers. Named after the ids
//! of `docs/SCENARIOS.md`.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls_support;

mod client;
mod connect;
mod consumer;
mod producer;
