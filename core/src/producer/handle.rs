//! One producer over all partitions of its topic: opening, room for messages, flushes, and the end.

use std::sync::Arc;

use super::routing::Router;
use crate::config::{ProducerConfig, Routing};
use crate::error::Error;
use crate::hub::Hub;
use crate::io::{Event, OpId, ProducerId, Reply};
use crate::slots::Slot;
use crate::topic_name::TopicName;
use crate::tries::Tries;

/// Where a producer stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The partition count or the first PRODUCER answers are missing.
    Opening,
    Open,
    /// CLOSE_PRODUCER answers are missing; the error is what ended it, if it was not the application.
    Closing(Option<Error>),
}

/// A flush that waits.
#[derive(Debug)]
struct Flush {
    op: OpId,
    /// SENDs with lower numbers are waited for.
    below: u64,
    error: Option<Error>,
}

/// One producer.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) id: ProducerId,
    pub(crate) config: Arc<ProducerConfig>,
    pub(crate) topic: TopicName,
    pub(crate) stage: Stage,
    /// Parts by partition.
    pub(crate) parts: Vec<Slot>,
    /// Partitions that messages are routed to: new ones join when all of them are open.
    pub(crate) usable: u32,
    pub(crate) router: Router,
    pub(crate) tries: Tries,
    /// Messages without outcome.
    pub(crate) pending: usize,
    /// The number of the next SEND.
    pub(crate) next_number: u64,
    /// A message was refused for want of room.
    pub(crate) refused: bool,
    flushes: Vec<Flush>,
}

impl Handle {
    pub(crate) fn new(hub: &mut Hub, id: ProducerId, config: ProducerConfig, topic: TopicName) -> Self {
        let start = hub.rng.next() as u32;
        // A name that says its partition is not partitioned again.
        let routing =
            if topic.partition_index().is_some() { Routing::SinglePartition } else { config.routing.clone() };
        Handle {
            id,
            router: Router::new(routing, config.hashing_scheme, start),
            config: Arc::new(config),
            topic,
            stage: Stage::Opening,
            parts: Vec::new(),
            usable: 0,
            tries: Tries::new(hub),
            pending: 0,
            next_number: 0,
            refused: false,
            flushes: Vec::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing(_))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.config.max_pending_messages == 0 || self.pending < self.config.max_pending_messages
    }

    /// Waits for every SEND given so far.
    pub(crate) fn flush(&mut self, hub: &mut Hub, oldest: Option<u64>) -> OpId {
        let op = hub.operation();
        self.flushes.push(Flush { op, below: self.next_number, error: None });
        self.settle_flushes(hub, oldest);
        op
    }

    /// A SEND failed: the flushes that wait for it report it, the first failure only.
    pub(crate) fn note_failure(&mut self, number: u64, error: &Error) {
        for flush in self.flushes.iter_mut().filter(|f| number < f.below && f.error.is_none()) {
            flush.error = Some(error.clone());
        }
    }

    pub(crate) fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// Completes the flushes that nothing older is left for; `oldest` is the lowest number without outcome.
    pub(crate) fn settle_flushes(&mut self, hub: &mut Hub, oldest: Option<u64>) {
        self.flushes.retain_mut(|flush| {
            if oldest.is_some_and(|number| number < flush.below) {
                return true;
            }
            let result = flush.error.take().map_or(Ok(Reply::Done), Err);
            hub.event(Event::Completed(flush.op, result));
            false
        });
    }
}
