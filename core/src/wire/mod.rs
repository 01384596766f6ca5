//! Bytes <-> commands, stateless.
//!
//! Decides how frames, commands, metadata and batches look on the wire. Refuses to know connections, producers,
//! consumers and time: a function here sees one frame, or one payload, and nothing before it.
pub mod ack_set;
pub mod batch;
pub mod command;
pub mod error;
pub(crate) mod fields;
pub mod frame;
pub mod metadata;

/// The protobuf messages of `proto/pulsar.proto`, as `cargo xtask proto` writes them.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated; its comments are those of the .proto file"
)]
pub mod proto;

pub use ack_set::AckSet;
pub use batch::{BatchWriter, Record, SingleMetadata, next_record};
pub use command::Command;
pub use error::WireError;
pub use frame::{Checksum, Frame, Payload};
pub use metadata::{Metadata, SendFrame, SendHeader, encode_send};

/// Properties as a command carries them.
pub(crate) fn key_values(pairs: &[(String, String)]) -> Vec<proto::KeyValue> {
    pairs.iter().map(|(k, v)| proto::KeyValue { key: k.clone(), value: v.clone() }).collect()
}
