//! The application side of one consumer or reader: takes messages at its own speed, acknowledges as planned, notes all.

use std::time::Duration;

use fastrand::Rng;
use geminga_core::{
    DeadLetterPolicy, Error, ErrorKind, Event, HandleId, Message, MessageId, Mono, OpId, Position,
    SubscriptionType,
};

use super::history::{Consumed, Delivered, History, Label, place};
use super::plan::{ConsumerPlan, Plan, SubscriptionPlan};
use crate::world::{At, ConsumerAt, World};

/// Messages taken before others have their turn.
const AT_ONCE: usize = 8;

/// What a consuming application belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A consumer of this subscription of the plan.
    Subscription(usize),
    /// This reader of the plan.
    Reader(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Opening,
    Open,
    Closing,
}

/// A seek under way or just over.
#[derive(Debug)]
struct Seek {
    op: OpId,
    /// The first place that may come next, where that is known.
    first: Option<(i64, i64, i32)>,
}

/// A consuming application.
#[derive(Debug)]
pub(super) struct Consuming {
    /// Its place among all consumers of the run.
    pub(super) index: usize,
    pub(super) role: Role,
    pub(super) plan: ConsumerPlan,
    subscription: Option<SubscriptionPlan>,
    topic: String,
    at: Option<ConsumerAt>,
    state: State,
    /// When it acts next; `None` while it waits for the client.
    pub(super) wake: Option<Mono>,
    reopens: Option<Mono>,
    redelivers: Option<Mono>,
    pauses: Option<Mono>,
    resumes: Option<Mono>,
    seeks: Vec<Mono>,
    seek: Option<Seek>,
    /// Taken and to be acknowledged.
    to_ack: Vec<(usize, MessageId)>,
    /// Whether it closes at its time, not behind the messages that come next.
    punctual: bool,
    pub(super) calm: bool,
    /// Whether anything goes wrong in its run.
    troubled: bool,
    /// Whether nothing explains that an acknowledged message comes again.
    exact: bool,
    rng: Rng,
}

impl Consuming {
    /// An application that subscribes, or opens its reader, at its time.
    pub(super) fn new(
        world: &World,
        plan: &Plan,
        role: Role,
        number: usize,
        index: usize,
        mut rng: Rng,
    ) -> Self {
        let start = world.now().mono;
        let (subscription, consumer, topic) = match role {
            Role::Subscription(s) => {
                let subscription = plan.subscriptions[s].clone();
                let consumer = subscription.consumers[number].clone();
                let topic = subscription.topic;
                (Some(subscription), consumer, topic)
            }
            Role::Reader(r) => {
                let reader = &plan.readers[r];
                let consumer = ConsumerPlan {
                    client: reader.client,
                    queue: reader.queue,
                    ack_group: Duration::ZERO,
                    think: reader.think,
                    nack_delay: Duration::ZERO,
                    opens_at: reader.opens_at,
                    reopens_at: None,
                    redelivers_at: None,
                    pause: None,
                };
                (None, consumer, reader.topic)
            }
        };
        // A message that is asked for again may be in the queue when its former copy is acknowledged.
        let alone = |s: &SubscriptionPlan| {
            s.consumers.len() == 1
                && s.seeks.is_empty()
                && s.nacked == 0
                && s.poison.is_none()
                && consumer.redelivers_at.is_none()
        };
        let exact = subscription.as_ref().is_some_and(alone);
        let seeks = subscription.iter().flat_map(|s| s.seeks.iter().map(|at| start + *at)).collect();
        Consuming {
            index,
            role,
            wake: Some(start + consumer.opens_at),
            reopens: consumer.reopens_at.map(|at| start + at),
            redelivers: consumer.redelivers_at.map(|at| start + at),
            pauses: consumer.pause.map(|(at, _)| start + at),
            resumes: None,
            plan: consumer,
            subscription,
            topic: plan.topics[topic].name.clone(),
            at: None,
            state: State::Absent,
            seeks,
            seek: None,
            to_ack: Vec::new(),
            punctual: rng.bool(),
            calm: false,
            troubled: !plan.is_calm(),
            exact: exact && plan.is_calm(),
            rng,
        }
    }

    /// The name it has at the broker.
    pub(super) fn name(&self) -> String {
        format!("consumer-{}", self.index)
    }

    /// Whose events it wants.
    pub(super) fn is(&self, client: usize, event: &Event) -> bool {
        let Some(at) = self.at.filter(|at| at.client == client) else { return false };
        match event {
            Event::Opened(HandleId::Consumer(id)) | Event::Closed(HandleId::Consumer(id), _) => at.id == *id,
            Event::Readable(id) | Event::State(HandleId::Consumer(id), _) => at.id == *id,
            Event::Completed(op, _) => self.seek.as_ref().is_some_and(|seek| seek.op == *op),
            _ => false,
        }
    }

    /// Takes an event of its consumer. Errors: the consumer ended, or a seek failed without a reason.
    pub(super) fn on(&mut self, now: Mono, event: &Event) -> Result<(), String> {
        match event {
            Event::Opened(_) => {
                self.state = State::Open;
                self.wake = Some(now);
            }
            Event::Closed(_, error) => {
                // A close of its own may end without the broker's answer.
                let unconfirmed = |e: &Error| {
                    self.troubled && self.state == State::Closing && e.kind() == ErrorKind::Timeout
                };
                let error = error.as_ref().filter(|e| !unconfirmed(e));
                self.state = State::Absent;
                self.at = None;
                self.to_ack.clear();
                let pause = if self.calm { 1 } else { self.rng.u64(1..2_000_000) };
                self.wake = Some(now + Duration::from_micros(pause));
                if let Some(error) = error {
                    return Err(format!("{} on {} ended: {error}", self.name(), self.topic));
                }
            }
            Event::Readable(_) => {
                let think = self.rng.u64(0..=self.plan.think.as_micros() as u64);
                let at = now + Duration::from_micros(think);
                self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
            }
            Event::Completed(_, result) => {
                if result.is_err() {
                    // Where it stands is unknown now.
                    self.seek = None;
                }
                self.wake = Some(now);
            }
            _ => {}
        }
        Ok(())
    }

    /// Does what is due.
    pub(super) fn act(&mut self, world: &mut World, history: &mut History) -> Result<(), String> {
        self.wake = None;
        let now = world.now().mono;
        match self.state {
            State::Absent => {
                self.open(world);
                return Ok(());
            }
            State::Opening | State::Closing => return Ok(()),
            State::Open => {}
        }
        let leaves = self.reopens.take_if(|at| *at <= now).is_some();
        if leaves && self.punctual {
            return self.leave(world, history);
        }
        self.follow_whims(world);
        if self.seeks.iter().any(|at| *at <= now) && self.seek.is_none() {
            self.seeks.retain(|at| *at > now);
            self.start_seek(world, history);
        }
        let at = self.at.expect("it is open");
        for _ in 0..AT_ONCE {
            let Some(message) = world.try_receive(at) else {
                self.send_acks(world, history, usize::MAX)?;
                if leaves {
                    return self.leave(world, history);
                }
                self.wake_for_plans(now);
                return Ok(());
            };
            self.take(world, history, &message)?;
        }
        if leaves {
            return self.leave(world, history);
        }
        let think = self.rng.u64(0..=self.plan.think.as_micros() as u64);
        self.wake = Some(now + Duration::from_micros(think));
        Ok(())
    }

    /// From now on nothing is left unacknowledged, closed or sought.
    pub(super) fn calm_down(&mut self, now: Mono) {
        self.calm = true;
        self.seeks.clear();
        self.reopens = None;
        self.redelivers = None;
        self.pauses = None;
        self.resumes = self.resumes.map(|_| now);
        if self.wake.is_some() || self.state == State::Absent {
            self.wake = Some(now);
        }
    }

    /// Acknowledges what it held until now.
    pub(super) fn let_go(&mut self, world: &mut World, history: &mut History) -> Result<(), String> {
        let Some(at) = self.at.filter(|_| self.state == State::Open) else { return Ok(()) };
        let index = self.index;
        let consumed = self.consumed(history);
        let mine = consumed.held.iter().filter(|((_, holder), _)| *holder == index);
        let mine: Vec<_> = mine.map(|((place, _), id)| (*place, *id)).collect();
        for (place, id) in mine {
            world.try_ack(at, id).map_err(|e| format!("acknowledging {id} at last: {e}"))?;
            let consumed = self.consumed(history);
            consumed.held.remove(&(place, index));
            consumed.acked.insert(place);
        }
        Ok(())
    }

    /// Whether the client says that there is more to read.
    pub(super) fn has_more(&self, world: &mut World) -> bool {
        self.at.is_some_and(|at| world.has_message_available(at))
    }

    /// Closes the consumer, if it is open.
    pub(super) fn close(&mut self, world: &mut World) {
        if let Some(at) = self.at.filter(|_| self.state == State::Open) {
            world.close_consumer(at);
        }
    }

    /// What it is waiting for, in words.
    pub(super) fn status(&self) -> String {
        format!(
            "{} ({:?}) on {}: {:?}, client {}, queue {}",
            self.name(),
            self.role,
            self.topic,
            self.state,
            self.plan.client,
            self.plan.queue
        )
    }

    fn open(&mut self, world: &mut World) {
        self.state = State::Opening;
        let (name, plan) = (self.name(), &self.plan);
        self.at = Some(match &self.subscription {
            Some(subscription) => world.create_consumer(plan.client, &self.topic, &subscription.name, |c| {
                c.subscription_type = subscription.kind;
                c.batch_index_ack = subscription.batch_index_ack;
                c.receiver_queue_size = plan.queue;
                c.ack_group_time = plan.ack_group;
                c.negative_ack_redelivery_delay = plan.nack_delay;
                c.consumer_name = Some(name);
                c.dead_letter_policy =
                    subscription.poison.map(|poison| DeadLetterPolicy::new(poison.max_redeliver_count));
            }),
            None => world.create_reader(plan.client, &self.topic, Position::Earliest, |c| {
                c.receiver_queue_size = plan.queue;
                c.reader_name = Some(name);
            }),
        });
    }

    /// Pauses, resumes and asks for redelivery at its times.
    fn follow_whims(&mut self, world: &mut World) {
        let at = self.at.expect("it is open");
        let now = world.now();
        let is_due = |time: &mut Option<Mono>| time.take_if(|time| *time <= now.mono).is_some();
        let (pauses, resumes, redelivers) =
            (is_due(&mut self.pauses), is_due(&mut self.resumes), is_due(&mut self.redelivers));
        if pauses {
            let time = self.plan.pause.map_or(Duration::ZERO, |(_, time)| time);
            self.resumes = Some(now.mono + time);
        }
        if redelivers {
            // What it has and did not acknowledge comes again.
            self.to_ack.clear();
        }
        if let Ok(mut view) = world.machine(at.client).consumer(at.id) {
            if pauses {
                view.pause(now);
            }
            if resumes {
                view.resume(now);
            }
            if redelivers {
                view.redeliver_unacknowledged(now);
            }
        }
    }

    /// Closes, to come back later. What was not acknowledged is somebody else's now.
    fn leave(&mut self, world: &mut World, history: &mut History) -> Result<(), String> {
        if self.rng.bool() {
            self.send_acks(world, history, usize::MAX)?;
        }
        self.to_ack.clear();
        let at = self.at.expect("it is open");
        let now = world.now();
        if let Ok(view) = world.machine(at.client).consumer(at.id) {
            view.close(now);
        }
        self.seek = None;
        self.resumes = None;
        self.state = State::Closing;
        Ok(())
    }

    fn start_seek(&mut self, world: &mut World, history: &mut History) {
        let at = self.at.expect("it is open");
        let pick = self.rng.usize(..);
        let topic_is_whole = world.broker.partitions(&self.topic).unwrap_or(0) == 0;
        let consumed = self.consumed(history);
        let target = match consumed.delivered.len() {
            0 => None,
            n if topic_is_whole => {
                Some(consumed.delivered[pick % n].place).filter(|_| !pick.is_multiple_of(3))
            }
            _ => None,
        };
        let (to, first) = match target {
            Some((_, ledger, entry, index)) => {
                let id = MessageId { batch_index: index, ..MessageId::new(ledger, entry, -1) };
                (Position::Id(id), Some((ledger, entry, index)))
            }
            None => (Position::Earliest, None),
        };
        self.to_ack.clear();
        let op = world.start_seek(at, to).id;
        if let Some((ledger, entry, index)) = first {
            // What lies before the new position counts as acknowledged from now on, itself included.
            let partition = target.expect("it has a place").0;
            let id = MessageId { batch_index: index, ..MessageId::new(ledger, entry, -1) };
            self.consumed(history).ack_up_to(partition, id);
        }
        self.seek = Some(Seek { op, first });
    }

    fn take(&mut self, world: &mut World, history: &mut History, message: &Message) -> Result<(), String> {
        let delivered = history.delivered(message)?;
        let (at_place, label) = (delivered.place, delivered.label);
        self.check_seek(world, &delivered)?;
        let calm = self.calm;
        let Some(plan) = self.subscription.clone() else {
            let consumed = self.consumed(history);
            consumed.seen.insert((at_place.0, label));
            consumed.delivered.push(delivered);
            return Ok(());
        };
        // Without index acknowledgements a batch comes again whole.
        let told = at_place.3 < 0 || plan.batch_index_ack;
        if self.exact && told && self.consumed(history).is_acked(at_place) {
            return Err(format!("{label:?} was acknowledged and came to {} again", self.name()));
        }
        let index = self.index;
        // What was given back for the last time is poison to the client, whatever it is.
        let may_nack = plan.poison.is_none() || message.redelivery_count() == 0;
        let nack = !calm && self.rng.u8(0..100) < plan.nacked && may_nack;
        let consumed = self.consumed(history);
        let first_time = consumed.seen.insert((at_place.0, label));
        consumed.delivered.push(delivered);
        if is_poison(label, &plan) {
            world.nack(self.at.expect("it is open"), message.message_id());
        } else if is_held(label, &plan) {
            consumed.held.insert((at_place, index), message.message_id());
        } else if nack && first_time {
            world.nack(self.at.expect("it is open"), message.message_id());
        } else {
            self.to_ack.push((at_place.0, message.message_id()));
            if self.rng.u8(0..3) == 0 {
                let some = self.rng.usize(1..=self.to_ack.len());
                self.send_acks(world, history, some)?;
            }
        }
        Ok(())
    }

    /// Acknowledges up to so many of the messages taken.
    fn send_acks(&mut self, world: &mut World, history: &mut History, most: usize) -> Result<(), String> {
        let (Some(plan), Some(at)) = (&self.subscription, self.at) else { return Ok(()) };
        let taken: Vec<_> = self.to_ack.drain(..most.min(self.to_ack.len())).collect();
        if plan.cumulative {
            // The last of each partition says it all.
            let mut last: Vec<(usize, MessageId)> = Vec::new();
            for (partition, id) in taken {
                match last.iter_mut().find(|(p, _)| *p == partition) {
                    Some((_, known)) => *known = id,
                    None => last.push((partition, id)),
                }
            }
            for (partition, id) in last {
                self.consumed(history).ack_up_to(partition, id);
                world.try_ack_cumulative(at, id).map_err(|e| format!("acknowledging up to {id}: {e}"))?;
            }
            return Ok(());
        }
        let mut taken = taken;
        self.rng.shuffle(&mut taken);
        for (partition, id) in taken {
            self.consumed(history).acked.insert(place(partition, id));
            world.try_ack(at, id).map_err(|e| format!("acknowledging {id}: {e}"))?;
        }
        Ok(())
    }

    /// The first message after a seek is the one sought, or the next there is.
    fn check_seek(&mut self, world: &World, delivered: &Delivered) -> Result<(), String> {
        let (Some(seek), Some(at)) = (&self.seek, self.at) else { return Ok(()) };
        match world.book.completed(At { client: at.client, id: seek.op }) {
            Some(Ok(_)) => {}
            Some(Err(_)) => return Ok(()),
            None => return Err(format!("{} got a message while a seek was under way", self.name())),
        }
        // Of partitions any may be first.
        if world.broker.partitions(&self.topic) != Some(0) {
            self.seek = None;
            return Ok(());
        }
        let place = (delivered.place.1, delivered.place.2, delivered.place.3);
        let stored = world.broker.stored(&self.topic).map_err(|e| e.to_string())?;
        let mut places = stored
            .iter()
            .map(|m| (m.position.ledger, m.position.entry, m.batch_index.map_or(-1, |index| index as i32)));
        let expected = match seek.first {
            Some(target) => places.find(|p| *p > target),
            None => places.next(),
        };
        if expected != Some(place) {
            return Err(format!("after a seek to {:?} came {place:?}, not {expected:?}", seek.first));
        }
        self.seek = None;
        Ok(())
    }

    /// Plans of its own wake it, too.
    fn wake_for_plans(&mut self, now: Mono) {
        let whims = [self.redelivers, self.pauses, self.resumes];
        let reopens = self.reopens.filter(|_| self.punctual);
        let plans = whims.iter().flatten().chain(&reopens).chain(&self.seeks).min().copied();
        self.wake = plans.map(|at| if at <= now { now + Duration::from_millis(1) } else { at });
    }

    fn consumed<'a>(&self, history: &'a mut History) -> &'a mut Consumed {
        match self.role {
            Role::Subscription(s) => &mut history.subscriptions[s],
            Role::Reader(r) => &mut history.readers[r],
        }
    }
}

/// Whether the applications of a subscription keep a message to the end. All copies of it, and for ever the same answer.
pub fn is_held(label: Label, plan: &SubscriptionPlan) -> bool {
    mixed(label, 40) < u64::from(plan.held) && !is_poison(label, plan)
}

/// Whether the applications of a subscription give a message back whenever it comes.
pub fn is_poison(label: Label, plan: &SubscriptionPlan) -> bool {
    plan.poison.is_some_and(|poison| mixed(label, 24) < u64::from(poison.share))
}

/// A number below 100, always the same for a message.
fn mixed(label: Label, shift: u32) -> u64 {
    let mixed = (u64::from(label.producer) << 32 | u64::from(label.n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> shift) % 100
}

/// Whether deliveries of a type come in order.
pub fn is_ordered(kind: SubscriptionType) -> bool {
    kind != SubscriptionType::Shared
}
