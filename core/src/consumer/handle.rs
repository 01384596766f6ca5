//! One consumer over all partitions of its topic: where it stands, which parts have messages, and whose id is whose.

use std::collections::VecDeque;
use std::sync::Arc;

use super::operation::Kind;
use super::post::Post;
use crate::config::ConsumerConfig;
use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::io::{ConsumerId, OpId};
use crate::message_id::MessageId;
use crate::slots::Slot;
use crate::topic_name::TopicName;
use crate::tries::Tries;

/// Where a consumer stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The partition count or the first SUBSCRIBE answers are missing.
    Opening,
    Open,
    /// CLOSE_CONSUMER answers are missing; the error is what ended it, if it was not the application, or else what went
    /// wrong with the close.
    Closing(Option<Error>),
}

/// One consumer or reader.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) id: ConsumerId,
    pub(crate) config: Arc<ConsumerConfig>,
    pub(crate) topic: TopicName,
    /// The partition in the ids of a topic that is not divided further.
    own_partition: i32,
    /// A reader acknowledges what it hands out.
    pub(crate) is_reader: bool,
    pub(crate) stage: Stage,
    pub(crate) tries: Tries,
    /// Parts by partition; a partition that failed later is absent until it is found again.
    pub(crate) parts: Vec<Option<Slot>>,
    /// Whether the parts are partitions, so that there may be more one day.
    pub(crate) partitioned: bool,
    /// Parts with messages, in the order of their turns.
    pub(crate) ready: VecDeque<Slot>,
    /// The application found nothing: the next message is news.
    pub(crate) armed: bool,
    /// A receiver queue of size 0 asked for a message.
    pub(crate) wanted: bool,
    pub(crate) paused: bool,
    /// The seek under way: partitions that have moved already wait for the others.
    pub(crate) seeking: Option<OpId>,
    /// The way of dead letters, with a policy.
    pub(crate) post: Option<Box<Post>>,
    /// Operations that wait for the consumer to be open.
    pub(crate) parked: Vec<(OpId, Kind)>,
}

impl Handle {
    pub(crate) fn new(
        hub: &mut Hub,
        id: ConsumerId,
        mut config: ConsumerConfig,
        topic: TopicName,
        is_reader: bool,
        post: Option<Post>,
    ) -> Self {
        // Failover orders consumers by name, so each has one of its own.
        config.consumer_name.get_or_insert_with(|| hub.rng.name(5));
        Handle {
            id,
            config: Arc::new(config),
            own_partition: topic.partition_index().map_or(-1, |p| p as i32),
            topic,
            is_reader,
            stage: Stage::Opening,
            tries: Tries::new(hub),
            parts: Vec::new(),
            partitioned: false,
            ready: VecDeque::new(),
            armed: true,
            wanted: false,
            paused: false,
            seeking: None,
            post: post.map(Box::new),
            parked: Vec::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether messages may be handed out.
    #[inline]
    pub(crate) fn delivers(&self) -> bool {
        self.is_open() && self.seeking.is_none()
    }

    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing(_))
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.parts.iter().flatten().copied()
    }

    /// The receiver queue of one part: its share of the total, at least 1. A queue of 0 stays one.
    pub(crate) fn queue_size(&self, partitions: u32) -> u32 {
        match self.config.receiver_queue_size {
            0 => 0,
            size => size.min(self.config.max_total_receiver_queue_size / partitions.max(1)).max(1),
        }
    }

    /// The part that a message id belongs to. Errors: `InvalidMessage` for what is no message of this consumer.
    #[inline]
    pub(crate) fn part_of(&self, id: &MessageId) -> Result<Slot, Error> {
        let is_message = id.ledger_id >= 0 && id.entry_id >= 0 && id.ledger_id != i64::MAX;
        let index = match (self.partitioned, id.partition) {
            (true, partition) => usize::try_from(partition).ok(),
            (false, partition) => (partition == self.own_partition).then_some(0),
        };
        match index.and_then(|i| self.parts.get(i).copied().flatten()) {
            Some(slot) if is_message => Ok(slot),
            _ => Err(self.foreign(id, is_message)),
        }
    }

    #[cold]
    fn foreign(&self, id: &MessageId, is_message: bool) -> Error {
        let doing = format!("looking for message {id} on {}", self.topic.as_str());
        let why = match is_message {
            false => "the id is a position, not that of a message".to_owned(),
            true => format!("the consumer has no partition {}", id.partition),
        };
        Error::new(ErrorKind::InvalidMessage, doing, why)
    }
}
