//! The producer handle without async.

use geminga_core::{Error, MessageId, OutgoingMessage, SendError};

use super::wait;
use crate::SendReceipt;

/// [`Producer`](crate::Producer), each call returning when it is done.
#[derive(Clone, Debug)]
pub struct Producer(pub(super) crate::Producer);

/// The outcome of one message, once the broker has stored it.
#[must_use = "a failed send is only told to whoever waits for its receipt"]
#[derive(Debug)]
pub struct Receipt(SendReceipt);

impl Receipt {
    /// Waits for the outcome.
    pub fn wait(self) -> Result<MessageId, Error> {
        wait(self.0)
    }

    /// The outcome, if it is known.
    pub fn try_result(&self) -> Option<Result<MessageId, Error>> {
        self.0.try_result()
    }
}

impl Producer {
    /// Sends a message and waits until it is stored.
    pub fn send(&self, message: impl Into<OutgoingMessage>) -> Result<MessageId, Error> {
        wait(self.0.send(message))
    }

    /// Puts a message in the queue, waiting for room with `block_if_queue_full`.
    pub fn enqueue(&self, message: impl Into<OutgoingMessage>) -> Result<Receipt, SendError> {
        wait(self.0.enqueue(message)).map(Receipt)
    }

    /// Puts a message in the queue if there is room, without waiting in any case.
    pub fn try_enqueue(&self, message: impl Into<OutgoingMessage>) -> Result<Receipt, SendError> {
        self.0.try_enqueue(message).map(Receipt)
    }

    /// Sends what waits for its batch and waits until everything sent before is settled.
    pub fn flush(&self) -> Result<(), Error> {
        wait(self.0.flush())
    }

    /// Closes the producer. Messages without receipt fail with AlreadyClosed.
    pub fn close(&self) -> Result<(), Error> {
        wait(self.0.close())
    }

    /// The same producer for async code, and for everything that needs no waiting.
    pub fn asynchronous(&self) -> &crate::Producer {
        &self.0
    }
}
