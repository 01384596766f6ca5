//! One partition's consumer: what it holds, SUBSCRIBE and FLOW, and the way back after a loss.
//!
//! Decides when the queue is cleared (only when a subscription really is created anew). Refuses to know other partitions
//! and the application's operations. What it does beside is in `receiving.rs`, `acknowledging.rs`, `redelivery.rs`,
//! `seek.rs`, `last_id.rs` and `closing.rs`.

use std::sync::Arc;

use super::EntryId;
use super::acks::Acks;
use super::closing::Closing;
use super::dead_letters::DeadLetters;
use super::last_id::LastId;
use super::nacks::Nacks;
use super::permits::Permits;
use super::position::{Filter, Reading};
use super::queue::Queue;
use super::seek::Seek;
use super::suspects::Suspects;
use crate::attach::{Attach, Step};
use crate::config::{ConsumerConfig, InitialPosition};
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner};
use crate::io::{ConnId, ConsumerId, OpId, Position};
use crate::slots::Slot;
use crate::topic_name::{Domain, TopicName};
use crate::wire::command::Command;
use crate::wire::proto;

/// What something led to, for the parent.
#[derive(Debug)]
#[must_use]
pub(crate) struct Outcome {
    pub(crate) step: Step,
    /// The subscription is there and delivery begins.
    pub(crate) serving: bool,
    /// A seek ended.
    pub(crate) op: Option<(OpId, Result<(), Error>)>,
}

impl Default for Outcome {
    fn default() -> Self {
        Outcome { step: Step::Nothing, serving: false, op: None }
    }
}

/// What a part is made from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) parent: ConsumerId,
    pub(crate) topic: TopicName,
    pub(crate) config: Arc<ConsumerConfig>,
    /// A partition that was added while the consumer ran: it is read from its first message.
    pub(crate) late: bool,
    /// Whether each message handed out is acknowledged at once, cumulatively.
    pub(crate) auto_ack: bool,
    pub(crate) queue_size: u32,
}

/// One partition's consumer.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) parent: ConsumerId,
    pub(crate) topic: TopicName,
    /// The partition that ids carry: -1 on a topic without partitions.
    pub(crate) partition: i32,
    pub(crate) attach: Attach,
    pub(crate) closing: Closing,
    /// Whether it has been served once.
    pub(crate) opened: bool,
    /// Whether the application was told that it is not served.
    pub(crate) down: bool,
    /// Whether it is in its parent's list of parts with messages.
    pub(crate) listed: bool,
    pub(crate) unsubscribing: Option<OpId>,
    pub(super) permits: Permits,
    pub(super) queue: Queue,
    pub(super) acks: Acks,
    pub(super) nacks: Nacks,
    /// With a policy only.
    pub(super) dead_letters: Option<Box<DeadLetters>>,
    pub(super) reading: Reading,
    pub(super) filter: Option<Filter>,
    pub(super) seek: Option<Seek>,
    pub(super) next_seek: Option<(OpId, Position)>,
    /// On this connection the broker's cursor was put where `reading.start` says; the next SUBSCRIBE on it finds it there.
    pub(super) placed: Option<ConnId>,
    /// The next attempt to attach waits for the answer to a SEEK.
    pub(super) held: bool,
    /// The attempt in which it was asked where the end of the topic is.
    pub(super) pinning: Option<u32>,
    pub(super) last_id: LastId,
    /// The highest entry of this subscription: one not above it comes again.
    pub(super) newest: Option<EntryId>,
    pub(super) durable: bool,
    pub(super) persistent: bool,
    pub(super) config: Arc<ConsumerConfig>,
    slot: Slot,
    late: bool,
    pub(super) auto_ack: bool,
    /// Counts requests to redeliver everything; deliveries of an older epoch are stale.
    pub(super) epoch: u64,
    pub(super) suspects: Suspects,
    pub(super) ack_timer: bool,
}

impl Part {
    pub(crate) fn new(hub: &Hub, slot: Slot, origin: Origin) -> Self {
        let Origin { parent, topic, config, late, auto_ack, queue_size } = origin;
        let persistent = topic.domain() == Domain::Persistent;
        let durable = persistent && config.durable;
        let start = match (durable, late, config.start_position) {
            (true, _, _) => None,
            (false, _, _) if !persistent => Some(Position::Latest),
            (false, true, _) => Some(Position::Earliest),
            (false, false, Some(start)) => Some(start),
            (false, false, None) => Some(match config.initial_position {
                InitialPosition::Latest => Position::Latest,
                InitialPosition::Earliest => Position::Earliest,
            }),
        };
        // What is not stored is never redelivered.
        let policy = config.dead_letter_policy.as_ref().filter(|_| persistent);
        let mut attach = Attach::new(hub, Owner::ConsumerPart(slot), topic.clone());
        // A partition that joins later is tried for ever: the others work without it.
        attach.tries.succeeded = late;
        Part {
            parent,
            partition: topic.partition_index().map_or(-1, |p| p as i32),
            topic,
            attach,
            closing: Closing::No,
            opened: false,
            down: false,
            listed: false,
            unsubscribing: None,
            permits: Permits::new(queue_size),
            queue: Queue::default(),
            acks: Acks::new(config.batch_index_ack),
            nacks: Nacks::new(config.negative_ack_redelivery_delay),
            dead_letters: policy.map(|policy| Box::new(DeadLetters::new(policy.max_redeliver_count))),
            reading: Reading::new(start, config.start_message_id_inclusive),
            filter: None,
            seek: None,
            next_seek: None,
            placed: None,
            held: false,
            pinning: None,
            last_id: LastId::default(),
            newest: None,
            durable,
            persistent,
            slot,
            config,
            late,
            auto_ack,
            epoch: 0,
            suspects: Suspects::default(),
            ack_timer: false,
        }
    }

    pub(crate) fn wire_id(&self) -> u64 {
        self.slot.as_u64()
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.config.subscription_type.allows_cumulative()
    }

    /// Writes SUBSCRIBE.
    pub(crate) fn request(&mut self, hub: &mut Hub, id: ConnId) {
        let (ticket, timeout) = (self.attach.ticket(), self.attach.tries.timeout(hub));
        let subscribe = super::subscribe::command(
            &self.config,
            &super::subscribe::Place {
                topic: self.topic.as_str(),
                consumer_id: self.wire_id(),
                start: (!self.durable).then(|| self.reading.start_message_id()),
                late: self.late,
                epoch: self.epoch,
                persistent: self.persistent,
            },
        );
        let request = hub.request(id, ticket, RequestKind::Subscribe, timeout, |request_id| {
            Command::Subscribe(Box::new(proto::CommandSubscribe { request_id, ..subscribe }))
        });
        self.attach.requested(id, request);
    }

    /// SUBSCRIBE has its answer.
    pub(crate) fn subscribed(
        &mut self,
        hub: &mut Hub,
        id: ConnId,
        result: Result<Command, Error>,
    ) -> Outcome {
        let error = match result {
            Ok(Command::Success(_)) => {
                self.attach.opened(hub, id);
                // The broker starts over: it redelivers what is not acknowledged and has no permits. What the application
                // acknowledged meanwhile reaches it first.
                match self.holds_acks() {
                    true => self.acks.clear(),
                    false => self.flush_acks(hub),
                }
                if self.close_told(hub) {
                    return Outcome::default();
                }
                self.acks.resubscribed();
                self.nacks.clear();
                if let Some(letters) = &mut self.dead_letters {
                    letters.resubscribed();
                }
                self.queue.clear();
                self.permits.reset();
                self.newest = None;
                self.filter = self.first_filter();
                if let Some(op) = self.unsubscribing {
                    self.unsubscribe(hub, op);
                }
                return self.position(hub, id);
            }
            Ok(other) => {
                let why = format!("the broker answered SUBSCRIBE with {}", other.name());
                Error::new(ErrorKind::UnknownError, "", why)
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Timeout {
            // The broker may have subscribed us all the same.
            self.undo(hub, id);
        }
        let error = error.while_doing(format!("subscribing to {}", self.topic.as_str()));
        Outcome { step: self.attach.failed(hub, error), ..Outcome::default() }
    }

    /// What to drop of the first entry that comes. Others may share a subscription that is not read in order: what comes
    /// there is unacknowledged, and so it is for the application.
    pub(super) fn first_filter(&self) -> Option<Filter> {
        self.reading.filter(self.durable || !self.is_ordered())
    }

    /// Takes a new share of the total queue.
    pub(crate) fn resize(&mut self, queue_size: u32) {
        self.permits.resize(queue_size);
    }

    pub(crate) fn set_paused(&mut self, hub: &mut Hub, paused: bool) {
        self.permits.set_paused(paused);
        self.grant(hub);
    }

    /// The application waits for a message, or no longer: a queue of size 0 asks for one.
    pub(crate) fn set_wanted(&mut self, hub: &mut Hub, wanted: bool) {
        self.permits.set_wanted(wanted);
        self.grant(hub);
    }

    /// Writes the FLOW that is due.
    #[inline]
    pub(super) fn grant(&mut self, hub: &mut Hub) {
        if let Some(id) = self.attach.connection()
            && self.seek.is_none()
            && let Some(message_permits) = self.permits.grant()
        {
            let consumer_id = self.wire_id();
            hub.write(id, &Command::Flow(proto::CommandFlow { consumer_id, message_permits }));
        }
    }

    /// Deletes the subscription, now or when there is a connection.
    pub(crate) fn unsubscribe(&mut self, hub: &mut Hub, op: OpId) {
        self.unsubscribing = Some(op);
        let Some(id) = self.attach.connection() else { return };
        let (consumer_id, ticket) = (self.wire_id(), self.attach.ticket());
        hub.request(id, ticket, RequestKind::Unsubscribe, hub.config.operation_timeout, |request_id| {
            Command::Unsubscribe(proto::CommandUnsubscribe {
                consumer_id,
                request_id,
                ..proto::CommandUnsubscribe::default()
            })
        });
    }

    pub(crate) fn check_invariants(&self) {
        self.permits.check(self.queue.permits());
    }
}
