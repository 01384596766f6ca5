//! The Apache Pulsar client protocol as one sans-IO state machine.
#![forbid(unsafe_code)]

pub mod compression;
pub mod hash;
pub mod message_id;
pub mod service_url;
pub mod topic_name;
pub mod wire;
