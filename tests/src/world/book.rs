//! What the clients of a world said, in order and by subject. Objects to what may be said only once.

use std::collections::{BTreeMap, BTreeSet};

use geminga_core::{Error, Event, HandleId, MessageId, Mono, OpId, ProducerId, Published, Reply};

use super::{OpAt, Sent};

/// An event, when and at whose.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// When it was said.
    pub at: Mono,
    /// The client, by its number.
    pub client: usize,
    /// The event.
    pub event: Event,
}

type Outcome = (u32, Result<Published, Error>);

/// All events of all clients.
#[derive(Debug, Default)]
pub struct Book {
    events: Vec<Occurrence>,
    published: BTreeMap<(usize, ProducerId, u64), Outcome>,
    completed: BTreeMap<(usize, OpId), Result<Reply, Error>>,
    open: BTreeSet<(usize, HandleId)>,
    closed: BTreeMap<(usize, HandleId), Option<Error>>,
}

impl Book {
    /// Takes an event. Errors: it contradicts an earlier one.
    pub(super) fn enter(&mut self, at: Mono, client: usize, event: Event) -> Result<(), String> {
        match &event {
            Event::Opened(handle) => {
                if self.closed.contains_key(&(client, *handle)) || !self.open.insert((client, *handle)) {
                    return Err(format!("{handle:?} opened twice, or after its end"));
                }
            }
            Event::Closed(handle, error) => {
                if self.closed.insert((client, *handle), error.clone()).is_some() {
                    return Err(format!("{handle:?} ended twice"));
                }
                self.open.remove(&(client, *handle));
            }
            Event::Published { producer, batch, count, result } => {
                let outcome = (*count, result.clone());
                if self.published.insert((client, *producer, *batch), outcome).is_some() {
                    return Err(format!("SEND {batch} of {producer:?} has two outcomes"));
                }
            }
            Event::Completed(op, result) => {
                if self.completed.insert((client, *op), result.clone()).is_some() {
                    return Err(format!("{op:?} completed twice"));
                }
            }
            Event::Writable(_) | Event::Readable(_) | Event::State(..) => {}
        }
        self.events.push(Occurrence { at, client, event });
        Ok(())
    }

    /// Everything, oldest first.
    pub fn events(&self) -> &[Occurrence] {
        &self.events
    }

    /// What became of a message, once it is known.
    pub fn outcome(&self, sent: Sent) -> Option<Result<MessageId, Error>> {
        let (count, result) = self.published.get(&(sent.producer.client, sent.producer.id, sent.id.batch))?;
        assert!(sent.id.index < *count, "{sent:?} is beyond the {count} messages of its SEND");
        Some(result.clone().map(|published| published.message_id(sent.id.index)))
    }

    /// What became of a whole SEND: how many messages it held, and where they are.
    pub fn published(&self, client: usize, producer: ProducerId, batch: u64) -> Option<&Outcome> {
        self.published.get(&(client, producer, batch))
    }

    /// The result of an operation, once it is known.
    pub fn completed(&self, op: OpAt) -> Option<&Result<Reply, Error>> {
        self.completed.get(&(op.client, op.id))
    }

    /// Whether a handle is open.
    pub fn is_open(&self, client: usize, handle: HandleId) -> bool {
        self.open.contains(&(client, handle))
    }

    /// Whether a handle is gone, and by which error.
    pub fn closed(&self, client: usize, handle: HandleId) -> Option<&Option<Error>> {
        self.closed.get(&(client, handle))
    }
}
