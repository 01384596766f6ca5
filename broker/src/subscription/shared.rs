//! Shared: entries go round the consumers that have permits, whole batches at a time, best priority first.

use super::State;
use crate::context::Context;
use crate::log::Log;
use crate::topic::TopicInfo;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The consumer served last.
    last: u64,
}

impl Shared {
    /// The next consumer in turn: of those available, of the best priority, the next after the last one.
    pub(crate) fn turn(&mut self, state: &State, ctx: &Context<'_>) -> Option<u64> {
        let max = ctx.config.max_unacked_per_consumer;
        let available = || state.consumers.values().filter(|c| c.is_available(max));
        let best = available().map(|c| c.priority).min()?;
        let mut in_turn = available().filter(|c| c.priority == best).map(|c| c.key);
        let first = in_turn.next()?;
        let next = if first > self.last { first } else { in_turn.find(|k| *k > self.last).unwrap_or(first) };
        self.last = next;
        Some(next)
    }

    pub(crate) fn dispatch(
        &mut self,
        state: &mut State,
        topic: &TopicInfo,
        log: &Log,
        ctx: &mut Context<'_>,
    ) {
        let max = ctx.config.max_unacked_per_consumer;
        state.replay.release_due(ctx.now.unix_ms);
        while state.has_more(log)
            && let Some(key) = self.turn(state, ctx)
        {
            for _ in 0..ctx.config.round_robin_entries.max(1) {
                if !state.consumers.get(&key).is_some_and(|c| c.is_available(max)) {
                    break;
                }
                let Some(offset) = next(state, log, ctx.now.unix_ms) else { return };
                state.deliver(key, offset, Some(0), topic, log, ctx);
            }
        }
    }
}

/// The next entry to deliver: a waiting one, else one that was not read yet.
fn next(state: &mut State, log: &Log, now_ms: u64) -> Option<u64> {
    while let Some(offset) = state.replay.pop_first() {
        if !state.cursor.is_acked(offset) {
            return Some(offset);
        }
    }
    state.next_read(log, now_ms)
}
