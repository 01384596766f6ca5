//! Sends without receipt, in the order in which they were given. Decides which frame is next and whom a receipt means.

use std::collections::VecDeque;

use crate::time::Mono;
use crate::wire::metadata::SendFrame;

/// One SEND: its bytes, fixed for ever, and what it holds.
#[derive(Debug)]
pub(crate) struct Op {
    /// As in `SendId::batch`.
    pub(crate) number: u64,
    pub(crate) first_sequence: u64,
    pub(crate) highest_sequence: u64,
    /// Messages in it.
    pub(crate) count: u32,
    /// Whether it is a batch on the wire.
    pub(crate) batch: bool,
    /// Bytes reserved from the client's memory.
    pub(crate) memory: usize,
    /// When its first message was given.
    pub(crate) created: Mono,
    pub(crate) frame: SendFrame,
}

/// What a receipt means for the queue.
#[derive(Debug)]
pub(crate) enum Receipt {
    /// The oldest SEND is stored.
    Head(Op),
    /// For a SEND that was given up already.
    Late,
    /// For a SEND behind the oldest: our picture is wrong, and only sending everything again mends it.
    Ahead,
}

/// SENDs without receipt; the first `written` were handed to the current connection.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    ops: VecDeque<Op>,
    written: usize,
}

impl Pending {
    pub(crate) fn push(&mut self, op: Op) {
        self.ops.push_back(op);
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn head(&self) -> Option<&Op> {
        self.ops.front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter()
    }

    /// SENDs that the current connection has and has not answered.
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    /// The next SEND that the current connection does not have.
    pub(crate) fn next_frame(&mut self) -> Option<&SendFrame> {
        let op = self.ops.get(self.written)?;
        self.written += 1;
        Some(&op.frame)
    }

    /// Everything is to be written again, on another connection or on the same.
    pub(crate) fn rewind(&mut self) {
        self.written = 0;
    }

    /// Brokers name a batch by its first sequence id; any of its ids means it just as well.
    pub(crate) fn receipt(&mut self, sequence: u64) -> Receipt {
        match self.ops.front() {
            Some(head) if sequence > head.highest_sequence => Receipt::Ahead,
            Some(head) if sequence >= head.first_sequence => {
                Receipt::Head(self.pop().expect("the queue has a head"))
            }
            _ => Receipt::Late,
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Op> {
        self.written = self.written.saturating_sub(1);
        self.ops.pop_front()
    }

    pub(crate) fn take(&mut self) -> VecDeque<Op> {
        self.written = 0;
        std::mem::take(&mut self.ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::metadata::{Metadata, SendHeader, encode_send};

    fn op(sequence: u64) -> Op {
        let header = SendHeader { sequence_id: sequence, ..SendHeader::default() };
        Op {
            number: sequence,
            first_sequence: sequence,
            highest_sequence: sequence + 9,
            count: 10,
            batch: true,
            memory: 0,
            created: Mono::default(),
            frame: encode_send(&header, &Metadata::default(), Default::default(), true),
        }
    }

    fn pending(sequences: &[u64]) -> Pending {
        let mut pending = Pending::default();
        for s in sequences {
            pending.push(op(*s));
        }
        pending
    }

    #[test]
    fn receipts_settle_the_head_and_nothing_else() {
        let mut p = pending(&[10, 20]);
        assert!(matches!(p.receipt(5), Receipt::Late));
        assert!(matches!(p.receipt(20), Receipt::Ahead));
        assert!(matches!(p.receipt(10), Receipt::Head(op) if op.number == 10));
        assert!(matches!(p.receipt(10), Receipt::Late));
        assert!(matches!(p.receipt(29), Receipt::Head(_)), "named by its last message");
        assert!(matches!(p.receipt(20), Receipt::Late));
    }

    #[test]
    fn a_rewound_queue_writes_the_same_frames_in_the_same_order() {
        let mut p = pending(&[0, 10, 20]);
        let first: Vec<_> = std::iter::from_fn(|| p.next_frame().cloned()).collect();
        assert_eq!((first.len(), p.written()), (3, 3));
        p.pop();
        p.rewind();
        let again: Vec<_> = std::iter::from_fn(|| p.next_frame().cloned()).collect();
        assert_eq!(again, first[1..]);
    }
}
