//! The consumer handle. Decides nothing of consuming, which is core's; how several tasks receive is in `receive`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use geminga_core::{
    ConsumerConfig, ConsumerId, DeadLetterPolicy, Error, HandleId, InitialPosition, KeySharedPolicy, Message,
    MessageId, Now, Position, ReaderConfig, Reply, SubscriptionType,
};

use crate::client::{Client, ClientRef, unexpected};
use crate::events::StateEvents;
use crate::receive::{Messages, Turn};
use crate::state::State;

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

    /// Where messages go that are given back again and again, on Shared and Key_Shared. Default: nowhere, they are redelivered
    /// without limit.
    ///
    /// ```
    /// # async fn doc(client: geminga::Client) -> Result<(), geminga::Error> {
    /// use geminga::{DeadLetterPolicy, SubscriptionType};
    ///
    /// let policy = DeadLetterPolicy { initial_subscription: Some("keep".into()), ..DeadLetterPolicy::new(3) };
    /// let consumer = client
    ///     .consumer("orders", "billing")
    ///     .subscription_type(SubscriptionType::Shared)
    ///     .dead_letter_policy(policy)
    ///     .subscribe()
    ///     .await?;
    /// // A message that is negatively acknowledged four times is then in `orders-billing-DLQ`, acknowledged here, and kept
    /// // there for the subscription "keep".
    /// # drop(consumer); Ok(()) }
    /// ```
    pub fn dead_letter_policy(mut self, policy: DeadLetterPolicy) -> Self {
        self.config.dead_letter_policy = Some(policy);
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
    /// While the broker says "not now" (it is busy, or another consumer has an Exclusive subscription), it is asked again without limit by default;
    /// [`OperationRetries`](crate::OperationRetries) of the client sets one. Errors: what the broker refuses it for; Timeout when
    /// no broker was ever reached within the operation timeout; InvalidConfiguration; InvalidTopicName. Dropping the future closes it.
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
    pub(crate) client: Arc<ClientRef>,
    pub(crate) id: ConsumerId,
    topic: String,
    subscription: String,
    subscription_type: SubscriptionType,
    name: String,
    /// Whether messages come one by one, at request.
    pub(crate) on_demand: bool,
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

    /// Says that a message was not processed: it comes again after `negative_ack_redelivery_delay` (60 s by default), again and
    /// again until it is acknowledged. [`Message::redelivery_count`](crate::Message::redelivery_count) tells how often, on
    /// Shared and Key_Shared subscriptions only.
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

    /// Gives back a message that reached nobody: it is received again, before all others. For adapters whose language can cancel a
    /// call after the message left this crate.
    #[doc(hidden)]
    pub fn put_back(&self, message: Message) {
        self.inner.put_back(message);
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
