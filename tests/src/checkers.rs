//! What must be true of a run, judged from outside the client: by the brokers' store and the applications' own notes.
//!
//! Each check says what is wrong in one sentence; none knows how the client works.

mod acknowledged;
mod bounds;
mod dead_letters;
mod delivered;
mod published;

pub use acknowledged::{backlog, check_acknowledged};
pub use bounds::{check_bounds, check_nothing_left, check_permits};
pub use dead_letters::{buried, check_dead_letters};
pub use delivered::{check_delivered, check_delivered_once, check_order, check_reader};
pub use published::check_published;

use geminga_broker::{Cluster, StoredMessage};

use crate::sim::history::{Label, Place};

/// What a topic or partition holds.
fn stored(broker: &Cluster, topic: &str) -> Result<Vec<StoredMessage>, String> {
    broker.stored(topic).map_err(|error| format!("{topic} holds what does not decode: {error}"))
}

/// The topic itself, or its partitions.
fn parts(broker: &Cluster, topic: &str) -> Vec<String> {
    match broker.partitions(topic) {
        Some(0) => vec![topic.to_owned()],
        Some(partitions) => (0..partitions).map(|n| format!("{topic}-partition-{n}")).collect(),
        None => Vec::new(),
    }
}

fn label(message: &StoredMessage) -> Result<Label, String> {
    Label::read(&message.payload)
}

fn place(partition: usize, message: &StoredMessage) -> Place {
    let index = message.batch_index.map_or(-1, |index| index as i32);
    (partition, message.position.ledger, message.position.entry, index)
}
