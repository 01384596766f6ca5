//! What waits to be written to one link: chunks in order, small frames joined, large payloads as they were received.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use geminga_core::wire::{Command, frame, proto};

/// Payloads up to this size are copied behind their header; above it they are a chunk of their own.
const COPY_BELOW: usize = 1024;
/// Joined frames are cut into a chunk at this size, so that one write does not wait for all of them.
const CHUNK: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn command(&mut self, command: &Command) {
        let before = self.tail.len();
        command.encode(&mut self.tail);
        self.bytes += self.tail.len() - before;
        self.cut_at(CHUNK);
    }

    pub(crate) fn message(
        &mut self,
        command: &proto::CommandMessage,
        entry: Option<&proto::BrokerEntryMetadata>,
        raw: &Bytes,
    ) {
        let (head, raw) = frame::encode_message(command, entry, raw);
        self.bytes += head.len() + raw.len();
        self.tail.put_slice(&head);
        if raw.len() <= COPY_BELOW {
            self.tail.put_slice(&raw);
            self.cut_at(CHUNK);
        } else {
            self.cut_at(0);
            self.chunks.push_back(raw);
        }
    }

    /// Moves up to `budget` bytes to `out` and returns how many.
    pub(crate) fn pull(&mut self, budget: usize, out: &mut Vec<Bytes>) -> usize {
        self.cut_at(0);
        let mut left = budget;
        while left > 0 {
            let Some(mut chunk) = self.chunks.pop_front() else { break };
            if chunk.len() > left {
                self.chunks.push_front(chunk.split_off(left));
            }
            left -= chunk.len();
            out.push(chunk);
        }
        let pulled = budget - left;
        self.bytes -= pulled;
        pulled
    }

    fn cut_at(&mut self, size: usize) {
        if self.tail.len() > size {
            self.chunks.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulling_in_any_portions_gives_the_same_bytes() {
        let whole = |budget: usize| {
            let mut outbox = Outbox::default();
            outbox.command(&Command::Ping);
            let id = proto::MessageIdData { ledger_id: 1, entry_id: 2, ..Default::default() };
            let message = proto::CommandMessage { consumer_id: 3, message_id: id, ..Default::default() };
            outbox.message(&message, None, &Bytes::from(vec![7; 10]));
            outbox.message(&message, None, &Bytes::from(vec![8; 5000]));
            outbox.command(&Command::Pong);
            let mut out = Vec::new();
            while outbox.pull(budget, &mut out) > 0 {}
            assert!(outbox.is_empty());
            out.concat()
        };
        assert!(whole(usize::MAX).len() > 5010);
        assert_eq!(whole(usize::MAX), whole(7));
    }
}
