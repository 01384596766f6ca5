//! The way of dead letters: the producer that a consumer has for itself, and what its outcomes mean for the messages.
//!
//! Decides when the producer is made and when it ends, and that no message is acknowledged before the receipt of its copy.
//! Which messages are dead letters is decided in `dead_letters.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::dead_letters::{Fate, Key, copy_of};
use super::handle::Handle;
use super::part::Part;
use super::{Consumers, EntryId};
use crate::compression::Compression;
use crate::config::{Batching, ProducerConfig};
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Notice};
use crate::io::{ConsumerId, Event, HandleId, ProducerId, StateChange};
use crate::lookup::Lookups;
use crate::message_id::MessageId;
use crate::producer::Producers;
use crate::slots::Slot;
use crate::time::Timer;
use crate::topic_name::TopicName;

/// Pause at least before a dead letter is tried again, so that a topic that refuses is not asked in a loop.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the producer may take to open before what waits for it counts as not sent: as long as a send may take.
const OPENING: Duration = Duration::from_secs(30);

/// The producer of a consumer's dead letters, made when the first one is there.
#[derive(Debug)]
pub(crate) struct Post {
    topic: TopicName,
    initial_subscription: Option<String>,
    producer: Option<ProducerId>,
    open: bool,
    /// Dead letters without receipt, by SEND: the part and the message.
    under_way: BTreeMap<u64, (Slot, Key)>,
}

impl Post {
    pub(crate) fn new(topic: TopicName, initial_subscription: Option<String>) -> Self {
        Post { topic, initial_subscription, producer: None, open: false, under_way: BTreeMap::new() }
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    pub(crate) fn has_producer(&self) -> bool {
        self.producer.is_some()
    }

    fn config(&self, compression: Compression) -> ProducerConfig {
        ProducerConfig {
            batching: Batching::off(),
            initial_subscription: self.initial_subscription.clone(),
            compression,
            ..ProducerConfig::new(self.topic.as_str())
        }
    }
}

impl Part {
    /// Brings a message to the front of the queue that the application gets, past those that it does not.
    #[cold]
    pub(super) fn divert(&mut self, hub: &mut Hub) {
        loop {
            while let Some(skipped) = self.queue.prepare() {
                self.pass(hub, skipped);
            }
            let (Some(letters), Some((entry, index))) = (&mut self.dead_letters, self.queue.front()) else {
                return;
            };
            let next = ((entry.ledger_id, entry.entry_id), index);
            let fate = letters.fate(&next, entry.redelivery_count);
            if fate == Fate::Deliver {
                return;
            }
            let Some(taken) = self.queue.take() else { return };
            self.permits.settled(1);
            self.reading.advance(taken.message.message_id());
            match fate {
                Fate::Bury => {
                    letters.bury(taken.message);
                    hub.notices.push_back(Notice::DeadLetters(self.parent));
                }
                Fate::Acknowledge => self.tell_done(hub, taken.message.message_id()),
                Fate::PutOff => {
                    letters.put_off(next);
                    self.try_again(hub, next);
                }
                Fate::Drop | Fate::Deliver => {}
            }
        }
    }

    /// The application gave messages back: returns the entries that are to come again.
    pub(super) fn sort_given_back(&mut self, hub: &mut Hub, keys: BTreeSet<Key>) -> BTreeSet<EntryId> {
        let Some(letters) = &mut self.dead_letters else {
            return keys.into_iter().map(|key| key.0).collect();
        };
        let again = letters.given_back(keys);
        for entry in &again {
            self.nacks.remove_entry(*entry);
        }
        if letters.next().is_some() {
            hub.notices.push_back(Notice::DeadLetters(self.parent));
        }
        again
    }

    /// A dead letter has its receipt.
    fn dead_letter_stored(&mut self, hub: &mut Hub, key: Key, number: u64, dead_letter: MessageId) {
        let Some(letters) = &mut self.dead_letters else { return };
        let Some(message) = letters.stored(key, number) else { return };
        let id = message.message_id();
        self.tell_done(hub, id);
        let topic = self.topic.as_str().to_owned();
        let change = StateChange::DeadLettered { topic, id, dead_letter };
        hub.event(Event::State(HandleId::Consumer(self.parent), change));
    }

    /// A dead letter could not be sent.
    fn dead_letter_failed(&mut self, hub: &mut Hub, key: Key, number: Option<u64>, reason: Error) {
        let Some(letters) = &mut self.dead_letters else { return };
        if !letters.failed(key, number) {
            return;
        }
        self.try_again(hub, key);
        let ((ledger, entry), index) = key;
        let id = MessageId { batch_index: index, ..MessageId::new(ledger, entry, self.partition) };
        let topic = self.topic.as_str().to_owned();
        let change = StateChange::DeadLetterFailed { topic, id, reason };
        hub.event(Event::State(HandleId::Consumer(self.parent), change));
    }

    fn try_again(&mut self, hub: &mut Hub, (entry, index): Key) {
        let delay = self.config.negative_ack_redelivery_delay.max(PAUSE);
        self.nacks.add_after(entry, index, hub.now.mono, delay);
        self.arm_nacks(hub);
    }

    /// Acknowledges what is in the dead letter topic, at once: until the broker knows, others may get it and send it again.
    fn tell_done(&mut self, hub: &mut Hub, id: MessageId) {
        let entry = (id.ledger_id, id.entry_id);
        match id.batch_index {
            index @ 0.. => {
                let told = self.acks.member(entry, index as u32, id.batch_size.max(0) as u32);
                debug_assert!(told.is_ok(), "a message that came in a batch says how large it is");
            }
            _ => self.acks.whole(entry),
        }
        self.flush_acks(hub);
    }
}

impl Consumers {
    /// Hands dead letters to their producer as far as it takes them; makes it first, and ends it with the consumer.
    pub(crate) fn post(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        producers: &mut Producers,
        id: ConsumerId,
    ) {
        let Consumers { handles, parts, .. } = self;
        let Some(handle) = handles.get_mut(id.0) else { return };
        let (closing, slots) = (handle.is_closing(), handle.slots().collect::<Vec<_>>());
        let Some(post) = &mut handle.post else { return };
        if closing {
            if !post.is_busy()
                && let Some(producer) = post.producer
            {
                producers.close(hub, producer, None);
            }
            return;
        }
        for slot in slots {
            let Some(part) = parts.get_mut(slot) else { continue };
            while let Some((key, message)) = part.dead_letters.as_mut().and_then(|letters| letters.next()) {
                let Some(producer) = post.producer else {
                    // What was sent compressed may be too large as it is.
                    let codec = message.entry.metadata.compression.unwrap_or(0);
                    let config = post.config(Compression::from_number(codec).unwrap_or_default());
                    match producers.create_for(hub, lookups, config, Some(id)) {
                        Ok(producer) => {
                            post.producer = Some(producer);
                            hub.set_timer(Timer::DeadLetters(id), OPENING);
                        }
                        Err(error) => {
                            part.dead_letter_failed(hub, key, None, error);
                            continue;
                        }
                    }
                    return;
                };
                // Until the news of its end is here, a producer may be gone already.
                if !post.open || !producers.contains(producer) {
                    return;
                }
                let copy = copy_of(message);
                match producers.send(hub, producer, copy).map_err(Error::from) {
                    Ok(sent) => {
                        post.under_way.insert(sent.batch, (slot, key));
                        if let Some(letters) = &mut part.dead_letters {
                            letters.sent(key, sent.batch);
                        }
                    }
                    // It says when there is room.
                    Err(error) if error.kind() == ErrorKind::MemoryBufferIsFull => return,
                    // Its end is on its way here.
                    Err(error) if error.kind() == ErrorKind::AlreadyClosed => return,
                    Err(error) => part.dead_letter_failed(hub, key, None, error),
                }
            }
        }
    }

    /// What happened to a consumer's own producer.
    pub(crate) fn own_producer(&mut self, hub: &mut Hub, id: ConsumerId, event: Event) {
        let Consumers { handles, parts, .. } = self;
        let Some(handle) = handles.get_mut(id.0) else { return };
        let (closing, slots) = (handle.is_closing(), handle.slots().collect::<Vec<_>>());
        let Some(post) = &mut handle.post else { return };
        match event {
            Event::Opened(_) => {
                post.open = true;
                hub.timers.cancel(Timer::DeadLetters(id));
            }
            Event::Published { batch, result, .. } => {
                let Some((slot, key)) = post.under_way.remove(&batch) else { return };
                if let Some(part) = parts.get_mut(slot) {
                    match result {
                        Ok(published) => part.dead_letter_stored(hub, key, batch, published.id),
                        Err(reason) => part.dead_letter_failed(hub, key, Some(batch), reason),
                    }
                }
            }
            Event::Closed(_, error) => {
                (post.producer, post.open) = (None, false);
                hub.timers.cancel(Timer::DeadLetters(id));
                // Without an error it was the consumer that closed it.
                let Some(error) = error.filter(|_| !closing) else {
                    return self.dead_letters_settled(hub, id);
                };
                let reason = error.while_doing(format!("sending to the dead letter topic {}", post.topic));
                for slot in slots {
                    let Some(part) = parts.get_mut(slot) else { continue };
                    while let Some(key) =
                        part.dead_letters.as_mut().and_then(|l| l.next().map(|(key, _)| key))
                    {
                        part.dead_letter_failed(hub, key, None, reason.clone());
                    }
                }
            }
            _ => {}
        }
        self.dead_letters_settled(hub, id);
    }

    /// Whether a close has to wait: dead letters that are under way are stored or not, and it is better to know.
    pub(super) fn waits_for_dead_letters(&mut self, hub: &mut Hub, id: ConsumerId) -> bool {
        let Some(post) = self.handles.get(id.0).and_then(|handle| handle.post.as_ref()) else { return false };
        if post.is_busy() {
            hub.set_timer(Timer::DeadLetters(id), hub.config.operation_timeout / 2);
        }
        hub.notices.push_back(Notice::DeadLetters(id));
        post.is_busy()
    }

    /// A close that waited for dead letters goes on when none is left.
    fn dead_letters_settled(&mut self, hub: &mut Hub, id: ConsumerId) {
        let done = |h: &Handle| h.is_closing() && h.post.as_ref().is_none_or(|post| !post.is_busy());
        if self.handles.get(id.0).is_some_and(done) {
            hub.timers.cancel(Timer::DeadLetters(id));
            self.close_parts(hub, id);
        }
    }

    /// A close waited long enough: the messages whose copies have no receipt are not acknowledged. Or else the producer
    /// takes too long to open.
    pub(crate) fn dead_letters_timed_out(
        &mut self,
        hub: &mut Hub,
        producers: &mut Producers,
        id: ConsumerId,
    ) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        let closing = handle.is_closing();
        let Some(post) = &mut handle.post else { return };
        if !closing {
            if let Some(producer) = post.producer {
                let doing = format!("opening a producer on {}", post.topic);
                let error = Error::new(ErrorKind::Timeout, doing, format!("not done within {OPENING:?}"));
                producers.give_up(hub, producer, error);
            }
            return;
        }
        post.under_way.clear();
        hub.notices.push_back(Notice::DeadLetters(id));
        self.dead_letters_settled(hub, id);
    }
}
