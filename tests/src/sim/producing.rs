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
    /// Whether anything goes wrong in its run.
    troubled: bool,
    reopens: Option<Mono>,
    /// The flush after which it closes.
    leaving: Option<OpId>,
    rng: Rng,
}

impl Producing {
    /// Starts to create the producer.
    pub(super) fn start(world: &mut World, plan: &Plan, index: usize, rng: Rng) -> Self {
        let producer = plan.producers[index].clone();
        let topic = plan.topics[producer.topic].name.clone();
        let at = create(world, index, &producer, &topic);
        Producing {
            index,
            reopens: producer.reopens_at.map(|at| world.now().mono + at),
            troubled: !plan.is_calm(),
            leaving: None,
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
            Event::Published { producer, result: Err(_), .. } => producer,
            Event::Completed(op, _) => return self.flush(client, *op).is_some(),
            _ => return false,
        };
        self.at.client == client && self.at.id == *id
    }

    fn flush(&self, client: usize, op: OpId) -> Option<&Flush> {
        self.flushes.iter().find(|flush| flush.op.client == client && flush.op.id == op)
    }

    /// Takes an event of its producer. Errors: the producer ended, or a flush or a send timeout came too early.
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
                // A close of its own may end without the broker's answer.
                let unconfirmed =
                    |e: &Error| self.troubled && self.leaving.is_some() && e.kind() == ErrorKind::Timeout;
                self.open = false;
                self.wake = None;
                if let Some(error) = error.as_ref().filter(|e| !unconfirmed(e)) {
                    return Err(format!("producer {} on {} ended: {error}", self.index, self.topic));
                }
                if self.leaving.take().is_some() {
                    self.wake = Some(now + Duration::from_micros(self.rng.u64(1..1_000_000)));
                }
            }
            Event::Published { batch, result: Err(error), .. } if error.kind() == ErrorKind::Timeout => {
                let timeout = self.plan.send_timeout.unwrap_or(Duration::MAX);
                // A SEND waits as long as its first message.
                let is_first = |r: &&SendRecord| {
                    r.sent.producer == self.at && (r.sent.id.batch, r.sent.id.index) == (*batch, 0)
                };
                if let Some(first) = history.sends[self.index].iter().find(is_first)
                    && now.since(first.at) < timeout
                {
                    let waited = now.since(first.at);
                    return Err(format!("{:?} was given up after {waited:?} of {timeout:?}", first.label));
                }
            }
            Event::Completed(op, _) => {
                if self.leaving == Some(*op) {
                    self.wake = Some(now);
                }
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
                if self.leaving.is_none() {
                    self.wake = Some(now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends what is due.
    pub(super) fn act(&mut self, world: &mut World, history: &mut History) -> Result<(), String> {
        self.wake = None;
        if !self.open {
            self.at = create(world, self.index, &self.plan, &self.topic);
            return Ok(());
        }
        if self.leaving.is_some() {
            let now = world.now();
            if let Ok(mut view) = world.machine(self.at.client).producer(self.at.id) {
                view.close(now);
            }
            return Ok(());
        }
        if self.reopens.take_if(|at| *at <= world.now().mono).is_some() {
            self.waits_for_room = false;
            self.leaving = Some(self.flush_all(world, history));
            return Ok(());
        }
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
                Ok(sent) => history.sends[self.index].push(SendRecord { sent, label, at: world.now().mono }),
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
            self.flush_all(world, history);
        }
        let pause = self.rng.u64(0..=self.plan.pause.as_micros() as u64);
        self.wake = Some(world.now().mono + Duration::from_micros(pause));
        Ok(())
    }

    fn flush_all(&mut self, world: &mut World, history: &History) -> OpId {
        let op = world.flush(self.at);
        self.flushes.push(Flush { op, sent: history.sends[self.index].len() });
        op.id
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

fn create(world: &mut World, index: usize, plan: &ProducerPlan, topic: &str) -> ProducerAt {
    world.create_producer(plan.client, topic, |c| {
        c.name = plan.named.then(|| format!("producer-{index}"));
        c.batching = match plan.batch {
            0 => Batching::off(),
            n => Batching { max_messages: n, max_publish_delay: plan.delay, ..Batching::default() },
        };
        c.compression = plan.compression;
        c.max_pending_messages = plan.max_pending;
        c.send_timeout = plan.send_timeout;
        if plan.single_partition {
            c.routing = Routing::SinglePartition;
        }
    })
}
