//! One subscription: its cursor, its consumers, and what is on its way between them.
//!
//! [`Subscription`] decides what commands of its consumers mean; the mode (one file each) decides who gets what.
//! Refuses to know producers and other subscriptions.

mod consumer;
mod cursor;
mod key_shared;
mod replay;
mod selector;
mod shared;
mod single_active;
mod state;

use geminga_core::wire::proto::command_subscribe::SubType;
use geminga_core::wire::{AckSet, Command, proto};

pub(crate) use consumer::{Consumer, Pending};
use key_shared::KeyShared;
use selector::Selector;
use shared::Shared;
use single_active::SingleActive;
pub(crate) use state::State;
use state::send;

use crate::LinkId;
use crate::context::Context;
use crate::log::{Entry, Log, Position};
use crate::session::NO_REQUEST;
use crate::time::Timer;
use crate::topic::TopicInfo;

#[derive(Debug)]
enum Mode {
    SingleActive(SingleActive),
    Shared(Shared),
    KeyShared(KeyShared),
}

#[derive(Debug)]
pub(crate) struct Subscription {
    /// Names it in its topic.
    pub(crate) key: u32,
    pub(crate) name: String,
    /// A subscription that is not durable ends with its last consumer.
    pub(crate) durable: bool,
    pub(crate) kind: SubType,
    pub(crate) properties: Vec<(String, String)>,
    mode: Mode,
    state: State,
}

/// How a consumer of a Key_Shared subscription wants the slots divided.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeySharedPolicy {
    pub(crate) sticky: bool,
    pub(crate) out_of_order: bool,
}

/// Why a consumer cannot be added.
#[derive(Debug)]
pub(crate) enum AttachError {
    /// An exclusive consumer on that link is in the way: is it still alive?
    Taken(LinkId),
    Busy(String),
    Ranges(String),
}

impl Subscription {
    pub(crate) fn new(key: u32, name: &str, durable: bool, mark: u64) -> Self {
        Subscription {
            key,
            name: name.to_owned(),
            durable,
            kind: SubType::Exclusive,
            properties: Vec::new(),
            mode: Mode::SingleActive(SingleActive::new(false)),
            state: State::new(mark),
        }
    }

    pub(crate) fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.state.consumers.values()
    }

    pub(crate) fn consumer(&self, key: u64) -> Option<&Consumer> {
        self.state.consumers.get(&key)
    }

    /// The consumer that gets the messages of an Exclusive or Failover subscription.
    pub(crate) fn active(&self) -> Option<u64> {
        match &self.mode {
            Mode::SingleActive(mode) => mode.active(),
            _ => None,
        }
    }

    pub(crate) fn mark(&self) -> u64 {
        self.state.cursor.mark()
    }

    /// Unacknowledged entries.
    pub(crate) fn backlog(&self, log: &Log) -> u64 {
        self.state.cursor.backlog(log.end())
    }

    /// Unacknowledged entries in order, with the messages that are left of a batch.
    pub(crate) fn unacked<'a>(
        &'a self,
        log: &'a Log,
    ) -> impl Iterator<Item = (&'a Entry, Option<&'a AckSet>)> {
        (self.mark()..log.end())
            .filter(|offset| !self.state.cursor.is_acked(*offset))
            .filter_map(|offset| Some((log.get(offset)?, self.state.cursor.remaining(offset))))
    }

    /// Entries that wait for their delivery time.
    pub(crate) fn delayed(&self) -> usize {
        self.state.replay.delayed()
    }

    /// Adds a consumer; it gets nothing before it has its [`place`](Self::place). `taken_is_alive` says that the consumer in the
    /// way has just proved to be alive.
    pub(crate) fn attach(
        &mut self,
        consumer: Consumer,
        kind: SubType,
        policy: KeySharedPolicy,
        taken_is_alive: bool,
    ) -> Result<(), AttachError> {
        if self.state.consumers.is_empty() {
            self.kind = kind;
            self.mode = match kind {
                SubType::Exclusive => Mode::SingleActive(SingleActive::new(false)),
                SubType::Failover => Mode::SingleActive(SingleActive::new(true)),
                SubType::Shared => Mode::Shared(Shared::default()),
                SubType::KeyShared => Mode::KeyShared(KeyShared::new(policy.sticky, policy.out_of_order)),
            };
            self.state.replay.clear();
            self.state.rewind();
        }
        let same_mode = match &self.mode {
            Mode::KeyShared(mode) => mode.is_like(policy.sticky, policy.out_of_order),
            _ => true,
        };
        if kind != self.kind || !same_mode {
            return Err(AttachError::Busy("Subscription is of different type".to_owned()));
        }
        if kind == SubType::Exclusive
            && let Some(holder) = self.state.consumers.values().next()
        {
            if holder.link == consumer.link || taken_is_alive {
                return Err(AttachError::Busy("Exclusive consumer is already connected".to_owned()));
            }
            return Err(AttachError::Taken(holder.link));
        }
        if let Mode::KeyShared(mode) = &mut self.mode {
            mode.add(consumer.key, &consumer.name, &consumer.ranges).map_err(AttachError::Ranges)?;
        }
        self.state.consumers.insert(consumer.key, consumer);
        Ok(())
    }

    /// Gives an attached consumer its part. Before its SUCCESS is written: as observed, a consumer of a Failover
    /// subscription that does not become active is told so first.
    pub(crate) fn place(&mut self, consumer: u64, topic: &TopicInfo, ctx: &mut Context<'_>) {
        if let Mode::SingleActive(mode) = &mut self.mode {
            mode.elect(&self.state, Some(consumer), self.key, topic, ctx);
        }
    }

    /// Removes a consumer; what it held goes to the others.
    pub(crate) fn detach(&mut self, consumer: u64, topic: &TopicInfo, log: &Log, ctx: &mut Context<'_>) {
        let Some(gone) = self.state.consumers.remove(&consumer) else { return };
        if let Mode::KeyShared(mode) = &mut self.mode {
            mode.remove(consumer);
        }
        if self.state.consumers.is_empty() {
            // With nobody left, the next consumer begins at the mark, and redeliveries count from 0.
            self.state.replay.clear();
            self.state.rewind();
            ctx.timers.cancel(Timer::Delayed(topic.key, self.key));
        } else {
            for (offset, pending) in gone.pending {
                self.state.replay.insert(offset, self.slot(pending));
            }
        }
        if let Mode::SingleActive(mode) = &mut self.mode {
            mode.elect(&self.state, None, self.key, topic, ctx);
        }
        self.dispatch(topic, log, ctx);
    }

    /// Removes all consumers and tells each with CLOSE_CONSUMER; `assigned` is the address of the topic's new owner.
    pub(crate) fn detach_all(&mut self, assigned: Option<&str>, topic: &TopicInfo, ctx: &mut Context<'_>) {
        for (_, consumer) in std::mem::take(&mut self.state.consumers) {
            let Some(session) = ctx.links.get_mut(consumer.link) else { continue };
            session.consumers.remove(&consumer.id);
            let close = proto::CommandCloseConsumer {
                consumer_id: consumer.id,
                request_id: NO_REQUEST,
                assigned_broker_service_url: assigned.map(str::to_owned),
                ..Default::default()
            };
            ctx.links.send(consumer.link, &Command::CloseConsumer(close));
        }
        self.mode = Mode::SingleActive(SingleActive::new(false));
        self.state.replay.clear();
        self.state.rewind();
        ctx.timers.cancel(Timer::Delayed(topic.key, self.key));
        ctx.timers.cancel(Timer::Takeover(topic.key, self.key));
    }

    pub(crate) fn flow(
        &mut self,
        consumer: u64,
        permits: u32,
        topic: &TopicInfo,
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        let Some(consumer) = self.state.consumers.get_mut(&consumer) else { return };
        let had_none = consumer.permits <= 0;
        consumer.permits += i64::from(permits);
        if had_none && let Mode::KeyShared(mode) = &mut self.mode {
            mode.changed();
        }
        self.dispatch(topic, log, ctx);
    }

    /// Acknowledges one entry, or the messages of a batch that `ack_set` leaves out.
    pub(crate) fn ack(
        &mut self,
        consumer: u64,
        position: Position,
        ack_set: &[i64],
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        let Some(offset) = log.offset(position) else { return };
        if ack_set.is_empty() {
            self.state.cursor.ack(offset);
        } else if !ctx.config.batch_index_acks || !self.ack_in_batch(offset, ack_set, log) {
            return;
        }
        self.acked(consumer, offset);
    }

    /// Acknowledges everything up to `position`; ignored on Shared and Key_Shared, as in Pulsar.
    pub(crate) fn ack_cumulative(
        &mut self,
        position: Position,
        ack_set: &[i64],
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        if !matches!(self.mode, Mode::SingleActive(_)) {
            return;
        }
        let Some(offset) = log.offset(position) else {
            // No entry is there, as before the first of a ledger; a position behind the last entry is refused, as in Pulsar.
            if log.last().is_some_and(|(last, ..)| position <= last) {
                self.state.cursor.ack_below(log.offset_at_or_after(position));
            }
            return;
        };
        if ack_set.is_empty() {
            self.state.cursor.ack_below(offset + 1);
        } else {
            self.state.cursor.ack_below(offset);
            if ctx.config.batch_index_acks {
                self.ack_in_batch(offset, ack_set, log);
            }
        }
    }

    /// Delivers again what the consumer holds: the entries in `positions`, or all when there are none.
    pub(crate) fn redeliver(
        &mut self,
        consumer: u64,
        positions: &[Position],
        epoch: Option<u64>,
        topic: &TopicInfo,
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        let Some(asking) = self.state.consumers.get_mut(&consumer) else { return };
        if epoch.is_some() {
            asking.epoch = epoch;
        }
        if let Mode::SingleActive(mode) = &self.mode {
            if mode.active() == Some(consumer) {
                self.state.rewind();
            }
        } else {
            let offsets: Vec<u64> = if positions.is_empty() {
                asking.pending.keys().copied().collect()
            } else {
                positions.iter().filter_map(|p| log.offset(*p)).collect()
            };
            for offset in offsets {
                let Some(pending) = self.state.consumers.get_mut(&consumer).and_then(|c| c.release(offset))
                else {
                    continue;
                };
                self.state.replay.redeliver(offset, self.slot(pending));
                if let Mode::KeyShared(mode) = &mut self.mode {
                    mode.released(pending);
                    mode.changed();
                }
            }
        }
        self.dispatch(topic, log, ctx);
    }

    /// Moves the cursor to `offset`; of a batch there, only `remaining` is unacknowledged. Consumers must be detached.
    pub(crate) fn reset(&mut self, offset: u64, remaining: Option<AckSet>) {
        self.state.cursor.reset(offset);
        if let Some(remaining) = remaining {
            self.state.cursor.set_remaining(offset, remaining);
        }
        self.state.replay.clear();
        self.state.rewind();
    }

    /// Acknowledges everything there is.
    pub(crate) fn skip_all(&mut self, log: &Log) {
        self.state.cursor.ack_below(log.end());
    }

    /// Delivers what can be delivered.
    pub(crate) fn dispatch(&mut self, topic: &TopicInfo, log: &Log, ctx: &mut Context<'_>) {
        if self.state.consumers.is_empty() {
            return;
        }
        match &mut self.mode {
            Mode::SingleActive(mode) => return mode.dispatch(&mut self.state, topic, log, ctx),
            Mode::Shared(mode) => mode.dispatch(&mut self.state, topic, log, ctx),
            Mode::KeyShared(mode) => mode.dispatch(&mut self.state, topic, log, ctx),
        }
        if let Some(due) = self.state.replay.next_due() {
            let wait = std::time::Duration::from_millis(due.saturating_sub(ctx.now.unix_ms));
            // What is due already waits for permits, not for time.
            if !wait.is_zero() {
                ctx.timers.set(Timer::Delayed(topic.key, self.key), ctx.now.mono + wait);
            }
        }
    }

    /// Delivers an entry of a topic that stores nothing; false when nobody could take it.
    pub(crate) fn offer(&mut self, entry: &Entry, topic: &TopicInfo, ctx: &mut Context<'_>) -> bool {
        let picked = match &mut self.mode {
            Mode::SingleActive(mode) => {
                mode.active().filter(|key| self.state.consumers.get(key).is_some_and(|c| c.permits > 0))
            }
            Mode::Shared(mode) => mode.turn(&self.state, ctx),
            Mode::KeyShared(mode) => mode.pick(&self.state, &entry.raw, ctx),
        };
        let Some(consumer) = picked.and_then(|key| self.state.consumers.get_mut(&key)) else { return false };
        consumer.permits -= i64::from(entry.messages);
        consumer.sent_messages += u64::from(entry.messages);
        send(consumer, entry, 0, &[], topic, ctx);
        true
    }

    /// Tells consumers of a terminated topic that there is no more, once all is acknowledged.
    pub(crate) fn tell_end(&mut self, log: &Log, ctx: &mut Context<'_>) {
        if self.backlog(log) > 0 {
            return;
        }
        for consumer in self.state.consumers.values_mut().filter(|c| !c.told_end) {
            consumer.told_end = true;
            let end = proto::CommandReachedEndOfTopic { consumer_id: consumer.id };
            ctx.links.send(consumer.link, &Command::ReachedEndOfTopic(end));
        }
    }

    /// True when the entry is now acknowledged as a whole.
    fn ack_in_batch(&mut self, offset: u64, ack_set: &[i64], log: &Log) -> bool {
        let Some(entry) = log.get(offset) else { return false };
        let remaining = within(ack_set, entry.messages);
        if self.state.cursor.ack_batch(offset, remaining) {
            return true;
        }
        let left = self.state.cursor.remaining(offset).map_or(0, AckSet::len);
        // Whoever holds the entry may not be who acknowledges.
        for consumer in self.state.consumers.values_mut() {
            consumer.shrink(offset, left as u32);
        }
        false
    }

    /// An entry was acknowledged: whoever holds it lets go.
    fn acked(&mut self, consumer: u64, offset: u64) {
        self.state.replay.forget(offset);
        if matches!(self.mode, Mode::SingleActive(_)) {
            return;
        }
        let own = self.state.consumers.get_mut(&consumer).and_then(|c| c.release(offset));
        let released = own.or_else(|| self.state.consumers.values_mut().find_map(|c| c.release(offset)));
        if let (Mode::KeyShared(mode), Some(pending)) = (&mut self.mode, released) {
            mode.released(pending);
        }
    }

    fn slot(&self, pending: Pending) -> Option<u16> {
        matches!(self.mode, Mode::KeyShared(_)).then_some(pending.slot)
    }
}

/// The set that the words are, without what lies behind the batch's end: clients may write anything.
fn within(words: &[i64], messages: u32) -> AckSet {
    let (whole, rest) = (messages as usize / 64, messages % 64);
    let mut words = words[..words.len().min(whole + usize::from(rest > 0))].to_vec();
    if let Some(last) = words.get_mut(whole) {
        *last &= (1 << rest) - 1;
    }
    AckSet::from_words(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_set_ends_where_its_batch_does() {
        assert_eq!(within(&[-1, -1, 7], 70), AckSet::full(70));
        assert_eq!(within(&[-1], 64), AckSet::full(64));
        assert_eq!(within(&[0b1010], 3).words(), [0b10]);
        assert!(within(&[0, 5], 64).is_empty());
    }
}
