//! One consumer of a subscription: its permits and what it holds unacknowledged. Knows no log and no other consumer.

use std::collections::BTreeMap;

use crate::LinkId;

/// An entry that was delivered and not acknowledged. Kept for Shared and Key_Shared only, as in Pulsar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Messages that were charged for it.
    pub(crate) messages: u32,
    /// Its Key_Shared slot.
    pub(crate) slot: u16,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    /// Unique in the cluster; rises with time of arrival.
    pub(crate) key: u64,
    pub(crate) link: LinkId,
    /// The client's number for it.
    pub(crate) id: u64,
    pub(crate) name: String,
    /// 0 is served first.
    pub(crate) priority: i32,
    /// Messages it may be sent; below zero after a batch that was larger. Units: messages, not entries.
    pub(crate) permits: i64,
    /// Echoed in MESSAGE when the client gave one.
    pub(crate) epoch: Option<u64>,
    /// Key_Shared slots of a sticky consumer, inclusive.
    pub(crate) ranges: Vec<(u16, u16)>,
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// Messages in `pending`.
    pub(crate) unacked: u64,
    /// It has been told that a terminated topic has ended.
    pub(crate) told_end: bool,
    pub(crate) connected_ms: u64,
    /// Messages sent to it.
    pub(crate) sent_messages: u64,
    pub(crate) properties: Vec<(String, String)>,
}

impl Consumer {
    /// Whether dispatch may give it an entry; `max_unacked` 0 is no limit.
    pub(crate) fn is_available(&self, max_unacked: u32) -> bool {
        self.permits > 0 && (max_unacked == 0 || self.unacked < u64::from(max_unacked))
    }

    pub(crate) fn hold(&mut self, offset: u64, pending: Pending) {
        self.unacked += u64::from(pending.messages);
        if let Some(old) = self.pending.insert(offset, pending) {
            self.unacked -= u64::from(old.messages);
        }
    }

    pub(crate) fn release(&mut self, offset: u64) -> Option<Pending> {
        let pending = self.pending.remove(&offset)?;
        self.unacked -= u64::from(pending.messages);
        Some(pending)
    }

    /// After acknowledgements within a batch: only `remaining` messages of an entry are still held.
    pub(crate) fn shrink(&mut self, offset: u64, remaining: u32) {
        if let Some(pending) = self.pending.get_mut(&offset) {
            self.unacked -= u64::from(pending.messages.saturating_sub(remaining));
            pending.messages = pending.messages.min(remaining);
        }
    }
}
