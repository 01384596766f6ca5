//! A producer as the application sees it.

use super::handle::Handle;
use super::part::Part;
use super::{Producers, SendError};
use crate::config::ProducerConfig;
use crate::hub::Hub;
use crate::io::{OpId, ProducerId, SendId};
use crate::message::OutgoingMessage;
use crate::time::Now;

/// A producer to work with, borrowed from its client.
#[derive(Debug)]
pub struct Producer<'a> {
    pub(crate) producers: &'a mut Producers,
    pub(crate) hub: &'a mut Hub,
    pub(crate) id: ProducerId,
}

impl Producer<'_> {
    /// Takes a message; its outcome is an `Event::Published`. Returns at once.
    ///
    /// Errors: `ProducerQueueIsFull` and `MemoryBufferIsFull`, after which one `Event::Writable` says that there is room;
    /// `MessageTooBig`, `InvalidMessage`, `ProducerNotInitialized`. The message comes back with the error.
    #[inline]
    pub fn send(&mut self, now: Now, message: OutgoingMessage) -> Result<SendId, SendError> {
        self.hub.enter(now);
        self.producers.send(self.hub, self.id, message)
    }

    /// Sends what is gathered now; completes when everything sent before has its outcome. The first failure is its error.
    pub fn flush(&mut self, now: Now) -> OpId {
        self.hub.enter(now);
        self.producers.flush(self.hub, self.id)
    }

    /// Ends the producer: `Event::Closed` follows, within the operation timeout, and at once without a connection. Messages
    /// without receipt fail with `AlreadyClosed`: flush first to have them stored.
    /// Errors, in the event: `Timeout` when the broker did not answer.
    pub fn close(&mut self, now: Now) {
        self.hub.enter(now);
        self.producers.close(self.hub, self.id, None);
    }

    fn handle(&self) -> &Handle {
        self.producers
            .handles
            .get(self.id.0)
            .expect("a view exists only of a live producer, and borrows the table")
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.handle().parts.iter().filter_map(|s| self.producers.parts.get(*s))
    }

    /// The topic's full name.
    pub fn topic(&self) -> &str {
        self.handle().topic.as_str()
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &ProducerConfig {
        &self.handle().config
    }

    /// Its name: the configured one, or what the broker generated for the first partition; `None` before it is open.
    pub fn name(&self) -> Option<&str> {
        self.parts().next().map(|p| p.identity.name.as_str()).filter(|n| !n.is_empty())
    }

    /// The highest sequence id with a receipt over all partitions, or where the broker said to continue; -1 for none.
    pub fn last_sequence_id(&self) -> i64 {
        self.parts().map(|p| p.last_sequence).max().unwrap_or(-1)
    }

    /// Whether every partition is attached to its broker.
    pub fn is_connected(&self) -> bool {
        self.handle().is_open() && self.parts().all(|p| p.attach.connection().is_some())
    }

    /// Partitions in use, 1 for a topic without.
    pub fn partitions(&self) -> u32 {
        self.handle().usable
    }

    /// Messages without outcome.
    pub fn pending_messages(&self) -> usize {
        self.handle().pending
    }
}
