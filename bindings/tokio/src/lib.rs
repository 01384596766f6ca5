//! An Apache Pulsar client for Rust on tokio.
