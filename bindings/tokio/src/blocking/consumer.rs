//! The consumer handle without async.

use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use geminga_core::{Error, Message, MessageId, Position};

use super::wait;
use crate::AsMessageId;

/// [`Consumer`](crate::Consumer), each call returning when it is done.
#[derive(Clone, Debug)]
pub struct Consumer(pub(super) crate::Consumer);

/// The messages of a consumer or a reader, one after another; it ends when the handle is closed, and after an error.
#[must_use = "iterators do nothing unless asked"]
#[derive(Debug)]
pub struct Messages(pub(super) crate::Messages);

impl Iterator for Messages {
    type Item = Result<Message, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        wait(std::future::poll_fn(|cx| Pin::new(&mut self.0).poll_next(cx)))
    }
}

impl Consumer {
    /// The next message.
    pub fn receive(&self) -> Result<Message, Error> {
        wait(self.0.receive())
    }

    /// The next message within `timeout`, `None` when there is none by then.
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        wait(self.0.receive_timeout(timeout))
    }

    /// `max` messages, or those that came within `timeout`, which may be none.
    pub fn receive_batch(&self, max: usize, timeout: Duration) -> Result<Vec<Message>, Error> {
        wait(self.0.receive_batch(max, timeout))
    }

    /// A message if one is there.
    pub fn try_receive(&self) -> Result<Option<Message>, Error> {
        self.0.try_receive()
    }

    /// The messages one after another.
    pub fn iter(&self) -> Messages {
        Messages(self.0.stream())
    }

    /// Acknowledges one message.
    pub fn acknowledge(&self, message: &impl AsMessageId) -> Result<(), Error> {
        self.0.acknowledge(message)
    }

    /// Acknowledges a message and all before it in its partition.
    pub fn acknowledge_cumulative(&self, message: &impl AsMessageId) -> Result<(), Error> {
        self.0.acknowledge_cumulative(message)
    }

    /// Says that a message was not processed: it comes again after the redelivery delay.
    pub fn negative_acknowledge(&self, message: &impl AsMessageId) -> Result<(), Error> {
        self.0.negative_acknowledge(message)
    }

    /// Has everything that is not acknowledged delivered again, at once.
    pub fn redeliver_unacknowledged(&self) -> Result<(), Error> {
        self.0.redeliver_unacknowledged()
    }

    /// Moves the subscription to a position.
    pub fn seek(&self, to: Position) -> Result<(), Error> {
        wait(self.0.seek(to))
    }

    /// Removes the subscription at the broker and closes the consumer.
    pub fn unsubscribe(&self) -> Result<(), Error> {
        wait(self.0.unsubscribe())
    }

    /// The last message id of each partition.
    pub fn last_message_ids(&self) -> Result<Vec<MessageId>, Error> {
        wait(self.0.last_message_ids())
    }

    /// Closes the consumer, its acknowledgements sent.
    pub fn close(&self) -> Result<(), Error> {
        wait(self.0.close())
    }

    /// The same consumer for async code, and for everything that needs no waiting.
    pub fn asynchronous(&self) -> &crate::Consumer {
        &self.0
    }
}
