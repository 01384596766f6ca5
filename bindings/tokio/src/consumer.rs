//! The consumer handle. Decides whose turn it is when several tasks receive; everything else about consuming is core's.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use geminga_core::{
    ConsumerConfig, ConsumerId, Error, HandleId, InitialPosition, KeySharedPolicy, Message, MessageId, Mono,
    Now, Position, ReaderConfig, Reply, SubscriptionType,
};
use tokio::task::coop::poll_proceed;

use crate::client::{Client, ClientRef, unexpected};
use crate::events::StateEvents;
use crate::shared::State;
use crate::waiters::AlarmKey;

/// Settings of a [`Consumer`]; [`subscribe`](Self::subscribe) ends it.
#[must_use = "nothing happens before `subscribe`"]
#[derive(Clone, Debug)]
pub struct ConsumerBuilder {
    pub(crate) client: Client,
    pub(crate) config: ConsumerConfig,
}

impl ConsumerBuilder {
    /// How the subscription shares messages among its consumers. Default: Exclusive.
    pub fn subscription_type(mut self, kind: SubscriptionType) -> Self {
        self.config.subscription_type = kind;
        self
    }

    /// Where a subscription that does not exist yet starts. Default: with the next message.
    pub fn initial_position(mut self, position: InitialPosition) -> Self {
        self.config.initial_position = position;
        self
    }

    /// Whether the subscription outlives its consumers. Default true.
    pub fn durable(mut self, durable: bool) -> Self {
        self.config.durable = durable;
        self
    }

    /// Name shown in statistics, and the order of Failover. Default: drawn.
    pub fn consumer_name(mut self, name: impl Into<String>) -> Self {
        self.config.consumer_name = Some(name.into());
        self
    }

    /// Dispatch preference in Shared and Failover, 0, the default, first.
    pub fn priority_level(mut self, level: i32) -> Self {
        self.config.priority_level = level;
        self
    }

    /// Messages asked for ahead of the application; 0 asks for one at each receive. Default 1000.
    pub fn receiver_queue_size(mut self, messages: u32) -> Self {
        self.config.receiver_queue_size = messages;
        self
    }

    /// The same over all partitions. Default 50000.
    pub fn max_total_receiver_queue_size(mut self, messages: u32) -> Self {
        self.config.max_total_receiver_queue_size = messages;
        self
    }

    /// How long and how many acknowledgements are gathered; zero time sends each at once. Default 100 ms, 1000.
    pub fn ack_grouping(mut self, time: Duration, size: usize) -> Self {
        self.config.ack_group_time = time;
        self.config.ack_group_size = size;
        self
    }

    /// Whether the acknowledgement of one message of a batch is told to the broker before the rest. Default false.
    pub fn batch_index_ack(mut self, enabled: bool) -> Self {
        self.config.batch_index_ack = enabled;
        self
    }

    /// Pause before a negatively acknowledged message is asked for again. Default 60 s.
    pub fn negative_ack_redelivery_delay(mut self, delay: Duration) -> Self {
        self.config.negative_ack_redelivery_delay = delay;
        self
    }

    /// Whether the message sought is delivered too. Default false: the one after it comes first.
    pub fn start_message_id_inclusive(mut self, inclusive: bool) -> Self {
        self.config.start_message_id_inclusive = inclusive;
        self
    }

    /// Reads the compacted view (Exclusive and Failover, persistent topics).
    pub fn read_compacted(mut self, compacted: bool) -> Self {
        self.config.read_compacted = compacted;
        self
    }

    /// How Key_Shared divides keys. Default: the broker does.
    pub fn key_shared_policy(mut self, policy: KeySharedPolicy) -> Self {
        self.config.key_shared_policy = policy;
        self
    }

    /// Adds a pair shown in topic statistics.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.properties.push((name.into(), value.into()));
        self
    }

    /// Adds a pair stored with the subscription when it is created.
    pub fn subscription_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.subscription_properties.push((name.into(), value.into()));
        self
    }

    /// Whether the topic is created when it does not exist. Default true.
    pub fn force_topic_creation(mut self, create: bool) -> Self {
        self.config.force_topic_creation = create;
        self
    }

    /// Opens the consumer; ready when the broker has accepted it.
    ///
    /// Errors: what the broker refuses it for; InvalidConfiguration; InvalidTopicName. Dropping the future closes it.
    pub async fn subscribe(self) -> Result<Consumer, Error> {
        self.client.subscribe(self.config).await
    }
}

/// What names a message: the message, or its id.
pub trait AsMessageId {
    /// The id.
    fn as_message_id(&self) -> MessageId;
}

impl AsMessageId for MessageId {
    fn as_message_id(&self) -> MessageId {
        *self
    }
}

impl AsMessageId for Message {
    fn as_message_id(&self) -> MessageId {
        self.message_id()
    }
}

/// Receives the messages of one topic, over all its partitions, in one subscription.
///
/// A cheap handle: clone it freely, receive in several tasks at once. It closes with [`close`](Self::close) or when the last clone is
/// dropped; acknowledgements are sent before. Every future is cancel-safe: a message is taken out of the queue only by the poll that
/// returns it.
#[derive(Clone)]
pub struct Consumer {
    pub(crate) inner: Arc<ConsumerRef>,
}

/// What consumers and readers have in common.
pub(crate) struct ConsumerRef {
    client: Arc<ClientRef>,
    id: ConsumerId,
    topic: String,
    subscription: String,
    subscription_type: SubscriptionType,
    name: String,
    /// Whether messages come one by one, at request.
    on_demand: bool,
}

impl Drop for ConsumerRef {
    fn drop(&mut self) {
        self.client.shared.with(|state, now| state.abandon(HandleId::Consumer(self.id), now));
    }
}

impl Consumer {
    /// The next message. Errors: AlreadyClosed, or what ended the consumer.
    pub async fn receive(&self) -> Result<Message, Error> {
        self.inner.receive().await
    }

    /// The next message within `timeout`, `None` when there is none by then.
    pub async fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        self.inner.receive_timeout(timeout).await
    }

    /// `max` messages, or those that came within `timeout`, which may be none. A cancelled call gives back what it had.
    pub async fn receive_batch(&self, max: usize, timeout: Duration) -> Result<Vec<Message>, Error> {
        self.inner.receive_batch(max, timeout).await
    }

    /// The messages that are there, at least one, for which it waits, and at most `max`: the way to take many at little cost.
    pub async fn receive_many(&self, max: usize) -> Result<Vec<Message>, Error> {
        self.inner.receive_many(max).await
    }

    /// A message if one is there.
    pub fn try_receive(&self) -> Result<Option<Message>, Error> {
        self.inner.try_receive()
    }

    /// The messages as a stream, which ends when the consumer is closed, and after an error.
    pub fn stream(&self) -> Messages {
        Messages { consumer: self.inner.clone(), turn: Turn::default(), done: false }
    }

    /// Acknowledges one message: it will not come again. Sent with others, see
    /// [`ack_grouping`](ConsumerBuilder::ack_grouping).
    ///
    /// Errors: InvalidMessage for an id that is not of this topic; AlreadyClosed.
    pub fn acknowledge(&self, message: &impl AsMessageId) -> Result<(), Error> {
        let id = message.as_message_id();
        self.inner.call(|core, now| core.acknowledge(now, &id))?
    }

    /// Acknowledges a message and all before it in its partition.
    ///
    /// Errors: CumulativeAcknowledgementNotAllowedError on Shared and Key_Shared; else as for
    /// [`acknowledge`](Self::acknowledge).
    pub fn acknowledge_cumulative(&self, message: &impl AsMessageId) -> Result<(), Error> {
        let id = message.as_message_id();
        self.inner.call(|core, now| core.acknowledge_cumulative(now, &id))?
    }

    /// Says that a message was not processed: it comes again after the redelivery delay.
    pub fn negative_acknowledge(&self, message: &impl AsMessageId) -> Result<(), Error> {
        let id = message.as_message_id();
        self.inner.call(|core, now| core.negative_acknowledge(now, &id))?
    }

    /// Has everything that is not acknowledged delivered again, at once.
    pub fn redeliver_unacknowledged(&self) -> Result<(), Error> {
        self.inner.start_afresh();
        self.inner.call(|core, now| core.redeliver_unacknowledged(now))
    }

    /// Moves the subscription to a position; the next message received is from there.
    pub async fn seek(&self, to: Position) -> Result<(), Error> {
        self.inner.seek(to).await
    }

    /// Removes the subscription at the broker and closes the consumer. Errors: the broker's, with other consumers on it.
    pub async fn unsubscribe(&self) -> Result<(), Error> {
        let id = self.inner.id;
        let op = self.inner.client.shared.op(|state, now| Ok(state.consumer(id)?.unsubscribe(now)))?;
        op.await.map(drop)
    }

    /// Closes the consumer, its acknowledgements sent, and waits until the broker knows. Closing twice is fine.
    /// Cancel-safe: it closes all the same. With acknowledgements of a time without connection it waits for the connection,
    /// for the operation timeout at most. Errors: Timeout, when the connection was not back (it says how many
    /// acknowledgements are lost: those messages come again) or the broker did not answer.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.close().await
    }

    /// The last message id of each partition.
    pub async fn last_message_ids(&self) -> Result<Vec<MessageId>, Error> {
        self.inner.last_message_ids().await
    }

    /// Stops asking the broker for messages; what is queued can still be received.
    pub fn pause(&self) -> Result<(), Error> {
        self.inner.call(|core, now| core.pause(now))
    }

    /// Asks for messages again.
    pub fn resume(&self) -> Result<(), Error> {
        self.inner.call(|core, now| core.resume(now))
    }

    /// The topic's full name.
    pub fn topic(&self) -> &str {
        &self.inner.topic
    }

    /// The subscription's name.
    pub fn subscription(&self) -> &str {
        &self.inner.subscription
    }

    /// The consumer's name, drawn if none was given.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// How its subscription shares messages among its consumers.
    pub fn subscription_type(&self) -> SubscriptionType {
        self.inner.subscription_type
    }

    /// Whether every partition has its connection.
    pub fn is_connected(&self) -> bool {
        self.inner.call(|core, _| core.is_connected()).unwrap_or(false)
    }

    /// Messages that wait to be received.
    pub fn queued_messages(&self) -> usize {
        self.inner.call(|core, _| core.queued_messages()).unwrap_or(0) + self.inner.returned()
    }

    /// What becomes of its connections, from now on.
    pub fn events(&self) -> StateEvents {
        self.inner.events()
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("topic", &self.topic())
            .field("subscription", &self.subscription())
            .finish_non_exhaustive()
    }
}

impl ConsumerRef {
    pub(crate) async fn subscribe(
        client: Arc<ClientRef>,
        config: ConsumerConfig,
    ) -> Result<Arc<Self>, Error> {
        Self::open(client, |state, now| state.core.subscribe(now, config)).await
    }

    pub(crate) async fn create_reader(
        client: Arc<ClientRef>,
        config: ReaderConfig,
    ) -> Result<Arc<Self>, Error> {
        Self::open(client, |state, now| state.core.create_reader(now, config)).await
    }

    async fn open(
        client: Arc<ClientRef>,
        create: impl FnOnce(&mut State, Now) -> Result<ConsumerId, Error>,
    ) -> Result<Arc<Self>, Error> {
        let id = client.shared.with(|state, now| {
            state.alive()?;
            let id = create(state, now)?;
            state.consumers.entry(id.as_u64()).or_default();
            Ok::<_, Error>(id)
        })?;
        // From here on a dropped future closes what it began.
        let mut inner = ConsumerRef {
            client,
            id,
            topic: String::new(),
            subscription: String::new(),
            subscription_type: SubscriptionType::Exclusive,
            name: String::new(),
            on_demand: false,
        };
        inner.client.opened(HandleId::Consumer(id)).await?;
        let (topic, config) = inner.call(|core, _| (core.topic().to_owned(), core.config().clone()))?;
        inner.topic = topic;
        inner.on_demand = config.receiver_queue_size == 0;
        inner.subscription = config.subscription;
        inner.subscription_type = config.subscription_type;
        inner.name = config.consumer_name.unwrap_or_default();
        Ok(Arc::new(inner))
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    pub(crate) fn subscription(&self) -> &str {
        &self.subscription
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs a command on the consumer in core.
    #[inline]
    pub(crate) fn call<R>(
        &self,
        command: impl FnOnce(&mut geminga_core::Consumer<'_>, Now) -> R,
    ) -> Result<R, Error> {
        self.client.shared.with(|state, now| Ok(command(&mut state.consumer(self.id)?, now)))
    }

    pub(crate) async fn receive(&self) -> Result<Message, Error> {
        let mut receive = Receive::new(self, Turn::default());
        poll_fn(|cx| receive.turn.poll_message(self, cx)).await
    }

    pub(crate) async fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        let mut receive = Receive::new(self, Turn::within(timeout));
        poll_fn(|cx| receive.turn.poll(self, cx, State::receive)).await
    }

    pub(crate) async fn receive_batch(&self, max: usize, timeout: Duration) -> Result<Vec<Message>, Error> {
        let mut receive = Receive::new(self, Turn::within(timeout));
        poll_fn(|cx| {
            let Receive { turn, batch, .. } = &mut receive;
            turn.poll(self, cx, |state, id, now| {
                batch.fill(state, id, now, max)?;
                Ok((batch.messages.len() >= max).then_some(()))
            })
        })
        .await?;
        Ok(mem::take(&mut receive.batch.messages))
    }

    pub(crate) async fn receive_many(&self, max: usize) -> Result<Vec<Message>, Error> {
        let mut receive = Receive::new(self, Turn::default());
        poll_fn(|cx| {
            let Receive { turn, batch, .. } = &mut receive;
            turn.poll(self, cx, |state, id, now| {
                batch.fill(state, id, now, max)?;
                Ok((!batch.messages.is_empty() || max == 0).then_some(()))
            })
        })
        .await?;
        Ok(mem::take(&mut receive.batch.messages))
    }

    pub(crate) fn try_receive(&self) -> Result<Option<Message>, Error> {
        self.client.shared.with(|state, now| state.receive(self.id, now))
    }

    /// How many messages a cancelled call gave back.
    fn returned(&self) -> usize {
        self.client
            .shared
            .with(|state, _| state.consumers.get(&self.id.as_u64()).map_or(0, |c| c.returned.len()))
    }

    /// Messages taken and not yet returned will come again, or are not wanted any more.
    fn start_afresh(&self) {
        self.client.shared.with(|state, _| {
            if let Some(consumer) = state.consumers.get_mut(&self.id.as_u64()) {
                consumer.returned.clear();
                consumer.fresh_starts += 1;
            }
        });
    }

    pub(crate) async fn seek(&self, to: Position) -> Result<(), Error> {
        let id = self.id;
        self.start_afresh();
        self.client.shared.op(|state, now| Ok(state.consumer(id)?.seek(now, to)))?.await.map(drop)
    }

    pub(crate) async fn close(&self) -> Result<(), Error> {
        self.client.close_handle(HandleId::Consumer(self.id)).await
    }

    pub(crate) async fn last_message_ids(&self) -> Result<Vec<MessageId>, Error> {
        let id = self.id;
        match self.client.shared.op(|state, now| Ok(state.consumer(id)?.last_message_ids(now)))?.await? {
            Reply::LastMessageIds(ids) => Ok(ids),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn has_message_available(&self) -> Result<bool, Error> {
        if self.returned() > 0 {
            return Ok(true);
        }
        let id = self.id;
        match self.client.shared.op(|state, now| Ok(state.consumer(id)?.has_message_available(now)))?.await? {
            Reply::Available(there) => Ok(there),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn events(&self) -> StateEvents {
        self.client.events(Some(HandleId::Consumer(self.id)))
    }
}

/// One who receives: its place in line, and how long it waits.
///
/// Shape: core says once that a queue has messages; the first in line is woken, and whoever takes a message wakes the next while there
/// are more. One who was woken and leaves without taking passes it on.
#[derive(Default)]
pub(crate) struct Turn {
    place: Option<u64>,
    limit: Limit,
    alarm: Option<AlarmKey>,
}

#[derive(Clone, Copy, Default)]
enum Limit {
    #[default]
    None,
    /// Counted from the first poll.
    For(Duration),
    At(Mono),
}

impl Turn {
    fn within(timeout: Duration) -> Self {
        Turn { limit: Limit::For(timeout), ..Turn::default() }
    }

    /// Something received, `None` when the time is up.
    fn poll<T>(
        &mut self,
        consumer: &ConsumerRef,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut State, ConsumerId, Now) -> Result<Option<T>, Error>,
    ) -> Poll<Result<Option<T>, Error>> {
        // A loop of receives must not keep the driver, which may share its thread, from running.
        let coop = ready!(poll_proceed(cx));
        let received = consumer.client.shared.with(|state, now| {
            let taken = match take(state, consumer.id, now) {
                Ok(taken) => taken,
                Err(error) => return Poll::Ready(Err(error)),
            };
            if taken.is_some() {
                self.done(consumer, state, true);
                return Poll::Ready(Ok(taken));
            }
            if let Limit::For(timeout) = self.limit {
                self.limit = Limit::At(now.mono + timeout);
            }
            match self.limit {
                Limit::At(end) if end <= now.mono => {
                    self.done(consumer, state, false);
                    return Poll::Ready(Ok(None));
                }
                Limit::At(end) => state.alarms.set(&mut self.alarm, end, cx.waker()),
                _ => {}
            }
            let line = &mut state.consumers.entry(consumer.id.as_u64()).or_default().receivers;
            line.wait(&mut self.place, cx.waker());
            Poll::Pending
        });
        if received.is_ready() {
            coop.made_progress();
        }
        received
    }

    /// A message; there is no end to the waiting.
    pub(crate) fn poll_message(
        &mut self,
        consumer: &ConsumerRef,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Message, Error>> {
        match ready!(self.poll(consumer, cx, State::receive)) {
            Ok(Some(message)) => Poll::Ready(Ok(message)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Leaves the line, and wakes the next one when there is something for it.
    fn done(&mut self, consumer: &ConsumerRef, state: &mut State, took: bool) {
        if let Some(alarm) = self.alarm.take() {
            state.alarms.cancel(alarm);
        }
        let Some(waiting) = state.consumers.get_mut(&consumer.id.as_u64()) else { return };
        let line = &mut waiting.receivers;
        let woken = self.place.take().is_some_and(|place| line.leave(place));
        if line.is_empty() || !(took || woken) {
            return;
        }
        // At request, the next one has to ask for its message itself.
        let more =
            consumer.on_demand || state.consumer(consumer.id).is_ok_and(|core| core.queued_messages() > 0);
        if more
            && let Some(waker) =
                state.consumers.get_mut(&consumer.id.as_u64()).and_then(|w| w.receivers.first())
        {
            state.wake(waker);
        }
    }

    pub(crate) fn leave(&mut self, consumer: &ConsumerRef) {
        if self.place.is_some() || self.alarm.is_some() {
            consumer.client.shared.with(|state, _| self.done(consumer, state, false));
        }
    }
}

/// A turn that is left when its future is dropped, what it had taken given back.
struct Receive<'a> {
    consumer: &'a ConsumerRef,
    turn: Turn,
    batch: Batch,
}

/// What one call has taken so far, all of it since the same fresh start.
#[derive(Default)]
struct Batch {
    messages: Vec<Message>,
    fresh_starts: u64,
}

impl<'a> Receive<'a> {
    fn new(consumer: &'a ConsumerRef, turn: Turn) -> Self {
        Receive { consumer, turn, batch: Batch::default() }
    }
}

impl Batch {
    /// Adds the messages that are there, up to `max` in all.
    fn fill(&mut self, state: &mut State, id: ConsumerId, now: Now, max: usize) -> Result<(), Error> {
        if let Some(consumer) = state.consumers.get_mut(&id.as_u64()) {
            if self.fresh_starts != consumer.fresh_starts {
                self.fresh_starts = consumer.fresh_starts;
                self.messages.clear();
            }
            let wanted = max.saturating_sub(self.messages.len()).min(consumer.returned.len());
            self.messages.extend(consumer.returned.drain(..wanted));
        }
        let wanted = max.saturating_sub(self.messages.len());
        state.consumer(id)?.receive_batch(now, wanted, &mut self.messages);
        Ok(())
    }
}

impl Drop for Receive<'_> {
    fn drop(&mut self) {
        if !self.batch.messages.is_empty() {
            let (id, batch) = (self.consumer.id.as_u64(), &mut self.batch);
            self.consumer.client.shared.with(|state, _| {
                let Some(consumer) = state.consumers.get_mut(&id) else { return };
                if batch.fresh_starts != consumer.fresh_starts {
                    return;
                }
                for message in batch.messages.drain(..).rev() {
                    consumer.returned.push_front(message);
                }
                if let Some(waker) = consumer.receivers.first() {
                    state.wake(waker);
                }
            });
        }
        self.turn.leave(self.consumer);
    }
}

impl State {
    /// A message if one is there.
    #[inline]
    fn receive(&mut self, id: ConsumerId, now: Now) -> Result<Option<Message>, Error> {
        let received = self.consumer(id)?.receive(now);
        match self.consumers.get_mut(&id.as_u64()).filter(|c| !c.returned.is_empty()) {
            None => Ok(received),
            // What was given back is older: it goes first, and what core gave last.
            Some(consumer) => {
                consumer.returned.extend(received);
                Ok(consumer.returned.pop_front())
            }
        }
    }
}

/// The messages of a consumer or a reader as a stream. It holds the handle open.
#[must_use = "streams do nothing unless polled"]
pub struct Messages {
    pub(crate) consumer: Arc<ConsumerRef>,
    pub(crate) turn: Turn,
    pub(crate) done: bool,
}

impl Stream for Messages {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        match ready!(this.turn.poll_message(&this.consumer, cx)) {
            Ok(message) => Poll::Ready(Some(Ok(message))),
            Err(error) => {
                this.done = true;
                // A close by the application is the stream's end, not an error.
                match error.kind() {
                    geminga_core::ErrorKind::AlreadyClosed => Poll::Ready(None),
                    _ => Poll::Ready(Some(Err(error))),
                }
            }
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.turn.leave(&self.consumer);
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("topic", &self.consumer.topic()).finish_non_exhaustive()
    }
}
