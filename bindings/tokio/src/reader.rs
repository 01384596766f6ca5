//! The reader handle: a consumer without acknowledgements. Decides nothing of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use geminga_core::{Error, Message, MessageId, Position, ReaderConfig};

use crate::client::Client;
use crate::consumer::ConsumerRef;
use crate::events::StateEvents;
use crate::receive::{Messages, Turn};

/// Settings of a [`Reader`]; [`create`](Self::create) ends it.
#[must_use = "nothing happens before `create`"]
#[derive(Clone, Debug)]
pub struct ReaderBuilder {
    pub(crate) client: Client,
    pub(crate) config: ReaderConfig,
}

impl ReaderBuilder {
    /// Whether the start id is delivered too. Default false.
    pub fn start_message_id_inclusive(mut self, inclusive: bool) -> Self {
        self.config.start_message_id_inclusive = inclusive;
        self
    }

    /// Messages asked for ahead of the application. Default 1000.
    pub fn receiver_queue_size(mut self, messages: u32) -> Self {
        self.config.receiver_queue_size = messages;
        self
    }

    /// Name shown in statistics. Default: drawn.
    pub fn reader_name(mut self, name: impl Into<String>) -> Self {
        self.config.reader_name = Some(name.into());
        self
    }

    /// Name of the reader's subscription. Default: `reader-` and ten characters.
    pub fn subscription(mut self, name: impl Into<String>) -> Self {
        self.config.subscription = Some(name.into());
        self
    }

    /// Reads the compacted view.
    pub fn read_compacted(mut self, compacted: bool) -> Self {
        self.config.read_compacted = compacted;
        self
    }

    /// Opens the reader; ready when the broker has accepted it.
    ///
    /// While the broker says "not now" (it restarts, it is busy), it is asked again without limit by default;
    /// [`OperationRetries`](crate::OperationRetries) of the client sets one. Errors: what the broker refuses it for; Timeout when
    /// no broker was ever reached within the operation timeout; InvalidConfiguration; InvalidTopicName. Dropping the future closes it.
    pub async fn create(self) -> Result<Reader, Error> {
        self.client.create_reader(self.config).await
    }
}

/// Reads the messages of one topic, over all its partitions, from a place of its own choice; nothing to acknowledge.
///
/// A cheap handle: clone it freely, read in several tasks at once. It closes with [`close`](Self::close) or when the last clone is
/// dropped. Every future is cancel-safe: a message is taken out of the queue only by the poll that returns it.
#[derive(Clone)]
pub struct Reader {
    pub(crate) inner: Arc<ConsumerRef>,
}

impl Reader {
    /// The next message. Errors: AlreadyClosed, or what ended the reader.
    pub async fn next(&self) -> Result<Message, Error> {
        self.inner.receive().await
    }

    /// The next message within `timeout`, `None` when there is none by then.
    pub async fn next_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        self.inner.receive_timeout(timeout).await
    }

    /// `max` messages, or those that came within `timeout`, which may be none. A cancelled call gives back what it had.
    pub async fn next_batch(&self, max: usize, timeout: Duration) -> Result<Vec<Message>, Error> {
        self.inner.receive_batch(max, timeout).await
    }

    /// A message if one is there.
    pub fn try_next(&self) -> Result<Option<Message>, Error> {
        self.inner.try_receive()
    }

    /// Whether there is a message that this reader has not returned yet, asked of the broker where needed.
    pub async fn has_message_available(&self) -> Result<bool, Error> {
        self.inner.has_message_available().await
    }

    /// The messages as a stream, which ends when the reader is closed, and after an error.
    pub fn stream(&self) -> Messages {
        Messages { consumer: self.inner.clone(), turn: Turn::default(), done: false }
    }

    /// Moves to a position; the next message is from there.
    pub async fn seek(&self, to: Position) -> Result<(), Error> {
        self.inner.seek(to).await
    }

    /// The last message id of each partition.
    pub async fn last_message_ids(&self) -> Result<Vec<MessageId>, Error> {
        self.inner.last_message_ids().await
    }

    /// Closes the reader and waits until the broker knows. Closing twice is fine. Cancel-safe: it closes all the same.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.close().await
    }

    /// The topic's full name.
    pub fn topic(&self) -> &str {
        self.inner.topic()
    }

    /// The name of its subscription.
    pub fn subscription(&self) -> &str {
        self.inner.subscription()
    }

    /// The reader's name, drawn if none was given.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Whether every partition has its connection.
    pub fn is_connected(&self) -> bool {
        self.inner.call(|core, _| core.is_connected()).unwrap_or(false)
    }

    /// What becomes of its connections, from now on.
    pub fn events(&self) -> StateEvents {
        self.inner.events()
    }

    /// As for a consumer. For adapters.
    #[doc(hidden)]
    pub fn put_back(&self, message: Message) {
        self.inner.put_back(message);
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("topic", &self.topic()).finish_non_exhaustive()
    }
}
