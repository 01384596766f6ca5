//! The application side of one producer: sends in bursts, waits when it is told to, notes what it sent.

use std::time::Duration;

use fastrand::Rng;
use geminga_core::{Batching, Error, ErrorKind, Event, HandleId, Mono, OpId, OutgoingMessage, Routing};

use super::history::{History, Label, SendRecord};
use super::plan::{Plan, ProducerPlan};
use crate::world::{OpAt, ProducerAt, World};

/// A flush that was asked for.
#[derive(Debug)]
struct Flush {
    op: OpAt,
    /// How many messages had been sent before.
    sent: usize,
}

/// A producing application.
#[derive(Debug)]
pub(super) struct Producing {
    index: usize,
    plan: ProducerPlan,
    topic: String,
    at: ProducerAt,
    open: bool,
    next: u32,
    /// When it acts next; `None` while it waits for the client.
    pub(super) wake: Option<Mono>,
    waits_for_room: bool,
    flushes: Vec<Flush>,
    rng: Rng,
}

impl Producing {
    /// Starts to create the producer.
    pub(super) fn start(world: &mut World, plan: &Plan, index: usize, rng: Rng) -> Self {
        let producer = plan.producers[index].clone();
        let topic = plan.topics[producer.topic].name.clone();
        let at = world.create_producer(producer.client, &topic, |c| {
            c.name = producer.named.then(|| format!("producer-{index}"));
            c.batching = match producer.batch {
                0 => Batching::off(),
                n => Batching { max_messages: n, max_publish_delay: producer.delay, ..Batching::default() },
            };
            c.compression = producer.compression;
            c.max_pending_messages = producer.max_pending;
            c.send_timeout = producer.send_timeout;
            if producer.single_partition {
                c.routing = Routing::SinglePartition;
            }
        });
        Producing {
            index,
            plan: producer,
            topic,
            at,
            open: false,
            next: 0,
            wake: None,
            waits_for_room: false,
            flushes: Vec::new(),
            rng,
        }
    }

    /// Whose events it wants.
    pub(super) fn is(&self, client: usize, event: &Event) -> bool {
        let id = match event {
            Event::Opened(HandleId::Producer(id)) | Event::Closed(HandleId::Producer(id), _) => id,
            Event::Writable(id) | Event::State(HandleId::Producer(id), _) => id,
            Event::Completed(op, _) => return self.flush(client, *op).is_some(),
            _ => return false,
        };
        self.at.client == client && self.at.id == *id
    }

    fn flush(&self, client: usize, op: OpId) -> Option<&Flush> {
        self.flushes.iter().find(|flush| flush.op.client == client && flush.op.id == op)
    }

    /// Takes an event of its producer. Errors: the producer ended, or a flush completed too early.
    pub(super) fn on(
        &mut self,
        world: &World,
        history: &History,
        now: Mono,
        event: &Event,
    ) -> Result<(), String> {
        match event {
            Event::Opened(_) => {
                self.open = true;
                self.wake = Some(now);
            }
            Event::Closed(_, error) => {
                self.open = false;
                self.wake = None;
                if let Some(error) = error {
                    return Err(format!("producer {} on {} ended: {error}", self.index, self.topic));
                }
            }
            Event::Completed(op, _) => {
                let sent = self.flush(self.at.client, *op).map_or(0, |flush| flush.sent);
                let open = |record: &&SendRecord| world.outcome(record.sent).is_none();
                if let Some(record) = history.sends[self.index][..sent].iter().find(open) {
                    return Err(format!(
                        "a flush completed before {:?}, which was sent before it",
                        record.label
                    ));
                }
            }
            Event::Writable(_) if self.waits_for_room => {
                self.waits_for_room = false;
                self.wake = Some(now);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends what is due.
    pub(super) fn act(&mut self, world: &mut World, history: &mut History) -> Result<(), String> {
        self.wake = None;
        for _ in 0..self.plan.burst {
            if self.next == self.plan.messages {
                return Ok(());
            }
            let label = Label { producer: self.index as u32, n: self.next };
            let mut message = OutgoingMessage::new(label.payload(self.rng.usize(0..=self.plan.size)));
            if self.plan.keys > 0 {
                message = message.with_key(format!("key-{}", self.rng.u32(0..self.plan.keys)));
            }
            match world.try_send(self.at, message) {
                Ok(sent) => history.sends[self.index].push(SendRecord { sent, label }),
                Err(refused) => match refused.error.kind() {
                    ErrorKind::ProducerQueueIsFull | ErrorKind::MemoryBufferIsFull => {
                        self.waits_for_room = true;
                        return Ok(());
                    }
                    _ => return Err(format!("a send was refused: {}", refused.error)),
                },
            }
            self.next += 1;
        }
        if self.rng.u8(0..8) == 0 {
            let sent = history.sends[self.index].len();
            self.flushes.push(Flush { op: world.flush(self.at), sent });
        }
        let pause = self.rng.u64(0..=self.plan.pause.as_micros() as u64);
        self.wake = Some(world.now().mono + Duration::from_micros(pause));
        Ok(())
    }

    /// Whether everything was sent and every outcome is known.
    pub(super) fn is_done(&self, world: &World, history: &History) -> bool {
        self.next == self.plan.messages
            && history.sends[self.index].iter().all(|record| world.outcome(record.sent).is_some())
            && self.flushes.iter().all(|flush| world.book.completed(flush.op).is_some())
    }

    /// Objects to an outcome that the plan does not explain.
    pub(super) fn check_outcomes(&self, world: &World, history: &History) -> Result<(), String> {
        let allowed = |e: &Error| e.kind() == ErrorKind::Timeout && self.plan.send_timeout.is_some();
        for record in &history.sends[self.index] {
            if let Some(Err(error)) = world.outcome(record.sent)
                && !allowed(&error)
            {
                return Err(format!("{:?} failed: {error}", record.label));
            }
        }
        for flush in &self.flushes {
            if let Some(Err(error)) = world.book.completed(flush.op)
                && !allowed(error)
            {
                return Err(format!("a flush of producer {} failed: {error}", self.index));
            }
        }
        Ok(())
    }

    /// Closes the producer, if it is open.
    pub(super) fn close(&mut self, world: &mut World) {
        if self.open {
            world.close_producer(self.at);
        }
    }

    /// What it is waiting for, in words.
    pub(super) fn status(&self) -> String {
        format!(
            "producer {} on {}: open {}, {} of {} sent, waits for room {}",
            self.index, self.topic, self.open, self.next, self.plan.messages, self.waits_for_room
        )
    }
}
