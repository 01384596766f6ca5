//! A consumer as the application sees it.

use super::Consumers;
use super::handle::Handle;
use super::operation::Kind;
use super::part::Part;
use super::position::normal;
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::hub::Hub;
use crate::io::{ConsumerId, OpId, Position};
use crate::message::Message;
use crate::message_id::MessageId;
use crate::slots::Slot;
use crate::time::Now;

/// A consumer or reader to work with, borrowed from its client.
#[derive(Debug)]
pub struct Consumer<'a> {
    pub(crate) consumers: &'a mut Consumers,
    pub(crate) hub: &'a mut Hub,
    pub(crate) id: ConsumerId,
}

impl Consumer<'_> {
    /// The next message, if one is here. After `None` an `Event::Readable` says when there is one.
    ///
    /// Shape: partitions take turns, entry by entry; the order within each is the topic's. With a receiver queue of 0 the
    /// call asks the brokers for one message per partition. Nothing comes while the consumer opens or seeks.
    #[inline]
    pub fn receive(&mut self, now: Now) -> Option<Message> {
        self.hub.enter(now);
        self.consumers.receive(self.hub, self.id)
    }

    /// Appends up to `max` messages that are here to `out`. Returns how many; fewer than `max` is as `receive`'s `None`.
    pub fn receive_batch(&mut self, now: Now, max: usize, out: &mut Vec<Message>) -> usize {
        self.hub.enter(now);
        let before = out.len();
        while out.len() - before < max
            && let Some(message) = self.consumers.receive(self.hub, self.id)
        {
            out.push(message);
        }
        out.len() - before
    }

    /// Acknowledges one message. It is told to the broker with others, after `ack_group_time` at the latest.
    ///
    /// A member of a batch never acknowledges the others: without `batch_index_ack` the broker hears of the batch when
    /// its last member is acknowledged. Ids may come from an earlier run.
    /// Errors: `InvalidMessage` for an id that is none of this consumer's messages, at once.
    #[inline]
    pub fn acknowledge(&mut self, now: Now, id: &MessageId) -> Result<(), Error> {
        self.hub.enter(now);
        self.consumers.acknowledge(self.hub, self.id, id)
    }

    /// Acknowledges a message and everything before it in its partition.
    ///
    /// Errors: `CumulativeAcknowledgementNotAllowedError` on Shared and Key_Shared, `InvalidMessage`; both at once.
    #[inline]
    pub fn acknowledge_cumulative(&mut self, now: Now, id: &MessageId) -> Result<(), Error> {
        self.hub.enter(now);
        self.consumers.acknowledge_cumulative(self.hub, self.id, id)
    }

    /// Has a message delivered again after `negative_ack_redelivery_delay`.
    ///
    /// On Exclusive and Failover everything that is not acknowledged comes again with it, and of a batch all members, as
    /// the broker knows entries only. With a dead letter policy only what was received counts, once for each time: a copy
    /// from before a redelivery or a reconnection comes again by itself. Errors: `InvalidMessage`, at once.
    pub fn negative_acknowledge(&mut self, now: Now, id: &MessageId) -> Result<(), Error> {
        self.hub.enter(now);
        self.consumers.negative_acknowledge(self.hub, self.id, id)
    }

    /// Has everything that is not acknowledged delivered again, now. What is queued here is dropped and comes again.
    ///
    /// With a dead letter policy, messages whose last delivery it was go to the dead letter topic, and what is queued stays.
    pub fn redeliver_unacknowledged(&mut self, now: Now) {
        self.hub.enter(now);
        self.consumers.redeliver_unacknowledged(self.hub, self.id);
    }

    /// Moves the subscription. `receive` gives nothing until it is done; then the first message is the one at `to`, or for
    /// an id without `start_message_id_inclusive` the one behind it.
    ///
    /// Times and the two ends move every partition, an id its own. While disconnected it waits.
    /// Completes with `Reply::Done`. Errors: `NotAllowedError` while another seek is under way, `InvalidMessage`,
    /// `Timeout`, or what the broker says; a partition that was refused is where it was, the others have moved (after
    /// `Timeout` it is unknown which).
    pub fn seek(&mut self, now: Now, to: Position) -> OpId {
        self.hub.enter(now);
        self.consumers.operate(self.hub, self.id, Kind::Seek(normal(to)))
    }

    /// Deletes the subscription and ends the consumer: `Completed`, then `Closed`. Errors leave it open.
    pub fn unsubscribe(&mut self, now: Now) -> OpId {
        self.hub.enter(now);
        self.consumers.operate(self.hub, self.id, Kind::Unsubscribe)
    }

    /// Whether a message is there to read, here or with the broker; completes with `Reply::Available`.
    ///
    /// Brokers are asked only when neither the queue nor the last answer says so.
    pub fn has_message_available(&mut self, now: Now) -> OpId {
        self.hub.enter(now);
        self.consumers.operate(self.hub, self.id, Kind::Available)
    }

    /// The id of the last message of each partition; completes with `Reply::LastMessageIds`. Entry -1: the topic is empty.
    pub fn last_message_ids(&mut self, now: Now) -> OpId {
        self.hub.enter(now);
        self.consumers.operate(self.hub, self.id, Kind::LastMessageIds)
    }

    /// Writes the acknowledgements that wait and ends the consumer: `Event::Closed` follows, within the operation timeout.
    ///
    /// Dead letters that have no receipt yet are waited for first, for half of that time; what is then without one, and what
    /// was not sent, is not acknowledged and goes to the next consumer.
    /// A durable subscription whose acknowledgements wait for a lost connection reconnects first. Errors, in the event:
    /// `Timeout` when the connection was not back in time, with how many acknowledgements are lost, or when the broker did
    /// not answer; what is final, such as `TopicNotFound`.
    pub fn close(self, now: Now) {
        self.hub.enter(now);
        self.consumers.close(self.hub, self.id, None);
    }

    /// Asks for no more messages. Those that were asked for still come.
    pub fn pause(&mut self, now: Now) {
        self.hub.enter(now);
        self.consumers.set_paused(self.hub, self.id, true);
    }

    /// The opposite of [`pause`](Self::pause).
    pub fn resume(&mut self, now: Now) {
        self.hub.enter(now);
        self.consumers.set_paused(self.hub, self.id, false);
    }

    fn handle(&self) -> &Handle {
        let handle = self.consumers.handles.get(self.id.0);
        handle
            .expect("a view exists only of a live consumer, and only `close` ends one, which takes the view")
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.handle().slots().filter_map(|slot| self.consumers.parts.get(slot))
    }

    /// The topic's full name.
    pub fn topic(&self) -> &str {
        self.handle().topic.as_str()
    }

    /// The subscription's name; a reader's is drawn.
    pub fn subscription(&self) -> &str {
        &self.handle().config.subscription
    }

    /// The configuration it was made with, what was drawn filled in.
    pub fn config(&self) -> &ConsumerConfig {
        &self.handle().config
    }

    /// Whether every partition is served by its broker.
    pub fn is_connected(&self) -> bool {
        let handle = self.handle();
        let served =
            |slot: Slot| self.consumers.parts.get(slot).is_some_and(|p| p.attach.connection().is_some());
        handle.is_open() && handle.parts.iter().all(|slot| slot.is_some_and(served))
    }

    /// How many partitions it reads; 1 for a topic without.
    pub fn partitions(&self) -> u32 {
        self.handle().parts.len() as u32
    }

    /// Messages that wait here for `receive`.
    pub fn queued_messages(&self) -> usize {
        self.parts().map(|p| p.queued() as usize).sum()
    }
}
