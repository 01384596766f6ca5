//! The reader handle without async.

use std::time::Duration;

use geminga_core::{Error, Message, MessageId, Position};

use super::{Messages, wait};

/// [`Reader`](crate::Reader), each call returning when it is done.
#[derive(Clone, Debug)]
pub struct Reader(pub(super) crate::Reader);

impl Reader {
    /// The next message.
    pub fn next(&self) -> Result<Message, Error> {
        wait(self.0.next())
    }

    /// The next message within `timeout`, `None` when there is none by then.
    pub fn next_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        wait(self.0.next_timeout(timeout))
    }

    /// `max` messages, or those that came within `timeout`, which may be none.
    pub fn next_batch(&self, max: usize, timeout: Duration) -> Result<Vec<Message>, Error> {
        wait(self.0.next_batch(max, timeout))
    }

    /// Whether there is a message that this reader has not returned yet.
    pub fn has_message_available(&self) -> Result<bool, Error> {
        wait(self.0.has_message_available())
    }

    /// The messages one after another.
    pub fn iter(&self) -> Messages {
        Messages(self.0.stream())
    }

    /// Moves to a position.
    pub fn seek(&self, to: Position) -> Result<(), Error> {
        wait(self.0.seek(to))
    }

    /// The last message id of each partition.
    pub fn last_message_ids(&self) -> Result<Vec<MessageId>, Error> {
        wait(self.0.last_message_ids())
    }

    /// Closes the reader.
    pub fn close(&self) -> Result<(), Error> {
        wait(self.0.close())
    }

    /// The same reader for async code, and for everything that needs no waiting.
    pub fn asynchronous(&self) -> &crate::Reader {
        &self.0
    }
}
