//! The producer handle. Decides how a full queue is waited for; everything else about sending is core's.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use geminga_core::{
    AccessMode, Batching, Compression, Error, ErrorKind, HandleId, HashingScheme, MessageId, MessageRouter,
    Now, OutgoingMessage, ProducerConfig, ProducerId, Routing, SendError,
};
use tokio::task::coop::poll_proceed;

use crate::client::{Client, ClientRef};
use crate::events::StateEvents;
use crate::receipt::SendReceipt;
use crate::state::State;

/// Settings of a [`Producer`]; [`create`](Self::create) ends it.
#[must_use = "nothing happens before `create`"]
#[derive(Clone, Debug)]
pub struct ProducerBuilder {
    pub(crate) client: Client,
    pub(crate) config: ProducerConfig,
}

impl ProducerBuilder {
    /// A name unique on the topic, the key of de-duplication. Default: the broker generates one.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// Whether others may produce beside this one. Default: any number.
    pub fn access_mode(mut self, mode: AccessMode) -> Self {
        self.config.access_mode = mode;
        self
    }

    /// How long a message may wait for its receipt, `None` for ever. Default 30 s.
    pub fn send_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.send_timeout = timeout.into();
        self
    }

    /// Messages without receipt that the producer may hold; 0, the default, for no limit but the client's memory limit.
    pub fn max_pending_messages(mut self, messages: usize) -> Self {
        self.config.max_pending_messages = messages;
        self
    }

    /// Whether a send waits for room when the queue or the memory is full, instead of failing. Default false.
    pub fn block_if_queue_full(mut self, block: bool) -> Self {
        self.config.block_if_queue_full = block;
        self
    }

    /// How messages are gathered into batches. Default: 1000 messages, 128 KiB, 1 ms. Off for Key_Shared subscriptions, which
    /// take a batch for one key.
    pub fn batching(mut self, batching: Batching) -> Self {
        self.config.batching = batching;
        self
    }

    /// Codec for payloads. Default: none.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.config.compression = compression;
        self
    }

    /// How a message without key finds its partition. Default: in turn, a batch at a time.
    ///
    /// A function of your own runs while the client is locked: it must be quick and must not call the client. One that
    /// panics fails the send, as does one that names a partition the topic doesn't have.
    pub fn routing(mut self, routing: Routing) -> Self {
        self.config.routing = routing;
        self
    }

    /// How a key finds its partition. Default: as in Java.
    pub fn hashing_scheme(mut self, scheme: HashingScheme) -> Self {
        self.config.hashing_scheme = scheme;
        self
    }

    /// Last sequence id already used. Default: the broker's value.
    pub fn initial_sequence_id(mut self, id: i64) -> Self {
        self.config.initial_sequence_id = Some(id);
        self
    }

    /// Adds a pair shown in topic statistics.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.properties.push((name.into(), value.into()));
        self
    }

    /// Opens the producer; ready when the broker has accepted it.
    ///
    /// While the broker says "not now" (it is busy, or another producer has the topic for itself), it is asked again without limit by default;
    /// [`OperationRetries`](crate::OperationRetries) of the client sets one. Errors: what the broker refuses it for; Timeout when
    /// no broker was ever reached within the operation timeout; InvalidConfiguration; InvalidTopicName. Dropping the future closes it.
    pub async fn create(self) -> Result<Producer, Error> {
        self.client.create_producer(self.config).await
    }
}

/// Sends messages to one topic, over all its partitions.
///
/// A cheap handle: clone it freely, use it from any task and any thread. It closes with [`close`](Self::close) or when the last clone
/// is dropped; messages without receipt fail then, so [`flush`](Self::flush) or await the receipts before. A pause of the
/// connection (broker restart, unload, network) is no error: what has no receipt is sent again, in order.
#[derive(Clone)]
pub struct Producer {
    inner: Arc<ProducerRef>,
}

struct ProducerRef {
    client: Arc<ClientRef>,
    id: ProducerId,
    topic: String,
    block_if_queue_full: bool,
}

impl Drop for ProducerRef {
    fn drop(&mut self) {
        self.client.shared.with(|state, now| state.abandon(HandleId::Producer(self.id), now));
    }
}

impl Producer {
    pub(crate) async fn open(client: Arc<ClientRef>, mut config: ProducerConfig) -> Result<Producer, Error> {
        if let Routing::Custom(router) = config.routing {
            config.routing = Routing::Custom(contained(router));
        }
        let (topic, block_if_queue_full) = (config.topic.clone(), config.block_if_queue_full);
        let id = client.shared.with(|state, now| {
            state.alive()?;
            let id = state.core.create_producer(now, config)?;
            state.producers.entry(id.as_u64()).or_default();
            Ok::<_, Error>(id)
        })?;
        // From here on a dropped future closes what it began.
        let mut inner = ProducerRef { client, id, topic, block_if_queue_full };
        inner.client.opened(HandleId::Producer(id)).await?;
        if let Ok(full_name) =
            inner.client.shared.with(|state, _| Ok::<_, Error>(state.producer(id)?.topic().to_owned()))
        {
            inner.topic = full_name;
        }
        Ok(Producer { inner: Arc::new(inner) })
    }

    /// Sends a message and waits until it is stored.
    ///
    /// Errors: ProducerQueueIsFull and MemoryBufferIsFull unless `block_if_queue_full`; Timeout after the send timeout;
    /// MessageTooBig; AlreadyClosed. A dropped future that had begun to wait for the receipt has sent its message.
    pub async fn send(&self, message: impl Into<OutgoingMessage>) -> Result<MessageId, Error> {
        self.enqueue(message).await?.await
    }

    /// Puts a message in the queue, waiting for room with `block_if_queue_full`; gives the future of its receipt.
    ///
    /// Messages leave in the order of these calls, of those that wait for room in the order of their first polls. Errors: as for [`send`](Self::send), with the message handed back.
    /// A future dropped before it is ready has sent nothing.
    pub fn enqueue(
        &self,
        message: impl Into<OutgoingMessage>,
    ) -> impl Future<Output = Result<SendReceipt, SendError>> + Send + '_ {
        Enqueue { producer: &self.inner, message: Some(message.into()), turn: None }
    }

    /// Puts a message in the queue if there is room that nobody waits for, without waiting in any case.
    pub fn try_enqueue(&self, message: impl Into<OutgoingMessage>) -> Result<SendReceipt, SendError> {
        let message = message.into();
        self.inner.client.shared.with(|state, now| state.send(&self.inner, now, message, None))
    }

    /// Sends what waits for its batch and waits until everything sent before is settled. Errors: the first failure
    /// among them.
    pub async fn flush(&self) -> Result<(), Error> {
        let id = self.inner.id;
        self.inner.client.shared.op(|state, now| Ok(state.producer(id)?.flush(now)))?.await.map(drop)
    }

    /// Closes the producer and waits until the broker knows. Messages without receipt fail with AlreadyClosed.
    /// Closing twice is fine. Cancel-safe: it closes all the same. Errors: Timeout, when the broker did not answer.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.client.close_handle(HandleId::Producer(self.inner.id)).await
    }

    /// The topic's full name.
    pub fn topic(&self) -> &str {
        &self.inner.topic
    }

    /// The producer's name, `None` once it is closed.
    pub fn name(&self) -> Option<String> {
        self.look(|p| p.name().map(str::to_owned)).flatten()
    }

    /// The highest sequence id that the broker has confirmed, -1 for none, and once it is closed.
    pub fn last_sequence_id(&self) -> i64 {
        self.look(|p| p.last_sequence_id()).unwrap_or(-1)
    }

    /// Whether every partition has its connection.
    pub fn is_connected(&self) -> bool {
        self.look(|p| p.is_connected()).unwrap_or(false)
    }

    /// How many partitions it sends to, 1 for a topic without, 0 once it is closed.
    pub fn partitions(&self) -> u32 {
        self.look(|p| p.partitions()).unwrap_or(0)
    }

    /// Messages without receipt.
    pub fn pending_messages(&self) -> usize {
        self.look(|p| p.pending_messages()).unwrap_or(0)
    }

    /// What becomes of its connections, from now on.
    pub fn events(&self) -> StateEvents {
        self.inner.client.events(Some(HandleId::Producer(self.inner.id)))
    }

    fn look<R>(&self, look: impl FnOnce(&mut geminga_core::Producer<'_>) -> R) -> Option<R> {
        self.inner.client.shared.with(|state, _| state.producer(self.inner.id).ok().map(|mut p| look(&mut p)))
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("topic", &self.topic()).finish_non_exhaustive()
    }
}

/// A send that may wait for room.
struct Enqueue<'a> {
    producer: &'a ProducerRef,
    message: Option<OutgoingMessage>,
    /// Its place among those who wait.
    turn: Option<u64>,
}

impl Future for Enqueue<'_> {
    type Output = Result<SendReceipt, SendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A loop of sends must not keep the driver, which may share its thread, from running.
        let coop = ready!(poll_proceed(cx));
        let this = &mut *self;
        let producer = this.producer;
        let message = this.message.take().expect("a future is not polled after it was ready");
        let sent =
            producer.client.shared.with(|state, now| match state.send(producer, now, message, this.turn) {
                Err(refused) if producer.block_if_queue_full && is_full(&refused.error) => {
                    this.message = Some(*refused.message);
                    state.wait_for_room(producer.id, &mut this.turn, cx);
                    Poll::Pending
                }
                result => {
                    state.leave_room(producer.id, this.turn.take());
                    Poll::Ready(result)
                }
            });
        if sent.is_ready() {
            coop.made_progress();
        }
        sent
    }
}

impl Drop for Enqueue<'_> {
    fn drop(&mut self) {
        if let Some(turn) = self.turn {
            self.producer.client.shared.with(|state, _| state.leave_room(self.producer.id, Some(turn)));
        }
    }
}

/// A function whose panics stay with the send that they happen in: under the lock they would end the client.
fn contained(router: MessageRouter) -> MessageRouter {
    let MessageRouter(route) = router;
    MessageRouter(Arc::new(move |message, partitions| {
        // No topic has such a partition, which core says; the panic itself was told by its hook.
        catch_unwind(AssertUnwindSafe(|| route(message, partitions))).unwrap_or(u32::MAX)
    }))
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ProducerQueueIsFull | ErrorKind::MemoryBufferIsFull)
}

impl State {
    /// Gives a message to core, and its receipt to the sender, whose `turn` it must be.
    #[inline]
    fn send(
        &mut self,
        sender: &ProducerRef,
        now: Now,
        message: OutgoingMessage,
        turn: Option<u64>,
    ) -> Result<SendReceipt, SendError> {
        let waiting = self.producers.entry(sender.id.as_u64()).or_default();
        if !waiting.room.has_turn(turn) {
            let (doing, detail) = (format!("sending to {}", sender.topic), "others wait for room");
            let error = Error::new(ErrorKind::ProducerQueueIsFull, doing, detail);
            return Err(SendError { error, message: Box::new(message) });
        }
        let mut producer = match self.producer(sender.id) {
            Ok(producer) => producer,
            Err(error) => return Err(SendError { error, message: Box::new(message) }),
        };
        let sent = producer.send(now, message)?;
        Ok(self.producers.entry(sender.id.as_u64()).or_default().receipts.receipt(sent))
    }

    fn wait_for_room(&mut self, id: ProducerId, turn: &mut Option<u64>, cx: &mut Context<'_>) {
        self.producers.entry(id.as_u64()).or_default().room.wait(turn, cx.waker());
    }

    /// Leaves the line, and has the next one try.
    fn leave_room(&mut self, id: ProducerId, turn: Option<u64>) {
        let (Some(state), Some(turn)) = (self.producers.get_mut(&id.as_u64()), turn) else { return };
        let next = state.room.leave(turn);
        self.wakes.extend(next);
    }
}
