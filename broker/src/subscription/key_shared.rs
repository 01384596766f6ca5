//! Key_Shared: each slot of the key hash belongs to one consumer, and a slot's entries are delivered in order.
//!
//! While another consumer still holds unacknowledged entries of a slot (it had the slot before), the slot waits: the
//! rule of Pulsar 4.0. Entries that cannot go out are passed over, up to a limit, and everything behind them of the
//! same slot queues up after them.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use bytes::Bytes;

use super::{Pending, Selector, State};
use crate::context::Context;
use crate::log::{EntryHeader, Log, metadata_of};
use crate::topic::TopicInfo;

#[derive(Debug)]
pub(crate) struct KeyShared {
    selector: Selector,
    /// Order is not asked for: slots never wait.
    out_of_order: bool,
    /// Who holds unacknowledged entries of a slot, and how many.
    holders: BTreeMap<u16, (u64, u32)>,
    /// Something has changed for entries that were passed over.
    rescan: bool,
}

impl KeyShared {
    pub(crate) fn new(sticky: bool, out_of_order: bool) -> Self {
        let selector = if sticky { Selector::ranges() } else { Selector::ring() };
        KeyShared { selector, out_of_order, holders: BTreeMap::new(), rescan: false }
    }

    pub(crate) fn is_like(&self, sticky: bool, out_of_order: bool) -> bool {
        self.selector.is_sticky() == sticky && self.out_of_order == out_of_order
    }

    pub(crate) fn add(&mut self, key: u64, name: &str, ranges: &[(u16, u16)]) -> Result<(), String> {
        self.selector.add(key, name, ranges)?;
        self.rescan = true;
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: u64) {
        self.selector.remove(key);
        self.holders.retain(|_, (holder, _)| *holder != key);
        self.rescan = true;
    }

    /// Permits or redeliveries came: look again at what was passed over.
    pub(crate) fn changed(&mut self) {
        self.rescan = true;
    }

    /// A consumer let go of an entry.
    pub(crate) fn released(&mut self, pending: Pending) {
        if let Some((_, count)) = self.holders.get_mut(&pending.slot) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&pending.slot);
                self.rescan = true;
            }
        }
    }

    /// The consumer that an entry without storage goes to.
    pub(crate) fn pick(&self, state: &State, raw: &Bytes, ctx: &Context<'_>) -> Option<u64> {
        let key = self.selector.select(self.selector.slot(&sticky_key(raw)))?;
        state
            .consumers
            .get(&key)
            .filter(|c| c.is_available(ctx.config.max_unacked_per_consumer))
            .map(|c| c.key)
    }

    pub(crate) fn dispatch(
        &mut self,
        state: &mut State,
        topic: &TopicInfo,
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        self.rescan |= state.replay.release_due(ctx.now.unix_ms);
        if std::mem::take(&mut self.rescan) {
            self.dispatch_waiting(state, topic, log, ctx);
        }
        let limit = ctx.config.look_ahead.saturating_mul(state.consumers.len());
        while anybody_available(state, ctx) && state.replay.len() < limit {
            let Some(offset) = state.next_read(log, ctx.now.unix_ms) else { return };
            let Some(entry) = log.get(offset) else { return };
            let slot = self.selector.slot(&sticky_key(&entry.raw));
            match self.target(state, slot, ctx) {
                Some(key) if !state.replay.has_slot(slot) => {
                    self.deliver(key, offset, slot, state, topic, log, ctx);
                }
                _ => state.replay.insert(offset, Some(slot)),
            }
        }
    }

    fn dispatch_waiting(&mut self, state: &mut State, topic: &TopicInfo, log: &Log, ctx: &mut Context<'_>) {
        let mut passed = BTreeSet::new();
        let mut from = 0;
        while let Some((offset, slot)) = state.replay.next_from(from) {
            if !anybody_available(state, ctx) {
                self.rescan = true;
                return;
            }
            from = offset + 1;
            let Some(entry) = log.get(offset).filter(|_| !state.cursor.is_acked(offset)) else {
                state.replay.remove(offset);
                continue;
            };
            let slot = slot.unwrap_or_else(|| self.selector.slot(&sticky_key(&entry.raw)));
            match self.target(state, slot, ctx) {
                Some(key) if !passed.contains(&slot) => {
                    state.replay.remove(offset);
                    self.deliver(key, offset, slot, state, topic, log, ctx);
                }
                _ => {
                    passed.insert(slot);
                    state.replay.insert(offset, Some(slot));
                }
            }
        }
    }

    /// The consumer that may have an entry of this slot now.
    fn target(&self, state: &State, slot: u16, ctx: &Context<'_>) -> Option<u64> {
        let key = self.selector.select(slot)?;
        let waits = self.holders.get(&slot).is_some_and(|(holder, _)| *holder != key);
        let consumer = state.consumers.get(&key)?;
        (!waits && consumer.is_available(ctx.config.max_unacked_per_consumer)).then_some(key)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a topic are borrowed apart")]
    fn deliver(
        &mut self,
        key: u64,
        offset: u64,
        slot: u16,
        state: &mut State,
        topic: &TopicInfo,
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        if !self.out_of_order {
            self.holders.entry(slot).or_insert((key, 0)).1 += 1;
        }
        state.deliver(key, offset, Some(slot), topic, log, ctx);
    }
}

fn anybody_available(state: &State, ctx: &Context<'_>) -> bool {
    state.consumers.values().any(|c| c.is_available(ctx.config.max_unacked_per_consumer))
}

/// The sticky key of an entry: its ordering key, else its key, else its producer's name and sequence id.
pub(crate) fn sticky_key(raw: &Bytes) -> Bytes {
    let header = metadata_of(raw).and_then(EntryHeader::read).unwrap_or_default();
    if let Some(key) = header.ordering_key {
        return key;
    }
    match (header.partition_key, header.partition_key_b64_encoded) {
        (Some(key), Some(true)) => {
            base64::engine::general_purpose::STANDARD.decode(&key).map_or(key, Bytes::from)
        }
        (Some(key), _) => key,
        (None, _) => {
            let name = String::from_utf8_lossy(&header.producer_name);
            Bytes::from(format!("{name}-{}", header.sequence_id))
        }
    }
}
