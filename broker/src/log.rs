//! The log of one topic: entries as they were received, and the two ways to name them.
//!
//! Inside the broker an entry has an *offset*, dense from 0 over the topic's whole life; on the wire it has a ledger
//! and an entry id. A new ledger begins whenever a topic is loaded, as in Pulsar. Refuses to know who reads.

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message as _;

/// Position of an entry on the wire. Signed, as −1 means "before the first".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Ledger id.
    pub ledger: i64,
    /// Entry id in the ledger, from 0.
    pub entry: i64,
}

impl Position {
    /// The position before this one in the same ledger; itself when it is before all entries already.
    pub(crate) fn before(self) -> Self {
        Position { entry: self.entry.saturating_sub(1).max(-1), ..self }
    }
}

/// One stored entry: a single message, a batch or a chunk.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) position: Position,
    /// The frame from the checksum on, as the producer sent it.
    pub(crate) raw: Bytes,
    /// Messages in the entry, at least 1.
    pub(crate) messages: u32,
    /// By the producer's clock, milliseconds since the epoch.
    pub(crate) publish_time: u64,
    /// Milliseconds since the epoch; 0 is at once.
    pub(crate) deliver_at: u64,
    /// By the broker's clock, milliseconds since the epoch.
    pub(crate) broker_time: u64,
    /// Index of the entry's last message among all messages of the topic.
    pub(crate) last_index: u64,
}

/// The fields of a message's metadata that a broker looks at. Decoding skips all others without allocating for them.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EntryHeader {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub(crate) producer_name: Bytes,
    #[prost(uint64, required, tag = "2")]
    pub(crate) sequence_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) publish_time: u64,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub(crate) partition_key: Option<Bytes>,
    #[prost(int32, optional, tag = "11")]
    pub(crate) num_messages_in_batch: Option<i32>,
    #[prost(bool, optional, tag = "17")]
    pub(crate) partition_key_b64_encoded: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "18")]
    pub(crate) ordering_key: Option<Bytes>,
    #[prost(int64, optional, tag = "19")]
    pub(crate) deliver_at_time: Option<i64>,
    #[prost(int32, optional, tag = "27")]
    pub(crate) num_chunks_from_msg: Option<i32>,
    #[prost(int32, optional, tag = "29")]
    pub(crate) chunk_id: Option<i32>,
}

impl EntryHeader {
    /// Reads the header of metadata bytes; `None` when they are not a message's metadata.
    pub(crate) fn read(metadata: Bytes) -> Option<Self> {
        EntryHeader::decode(metadata).ok()
    }

    /// Messages in the entry by the metadata, at least 1.
    pub(crate) fn messages(&self) -> u32 {
        self.num_messages_in_batch.and_then(|n| u32::try_from(n).ok()).unwrap_or(1).max(1)
    }

    /// Whether more chunks of the same message follow.
    pub(crate) fn is_leading_chunk(&self) -> bool {
        match (self.num_chunks_from_msg, self.chunk_id) {
            (Some(total), Some(chunk)) => i64::from(chunk) + 1 < i64::from(total),
            _ => false,
        }
    }
}

/// The encoded metadata in the bytes of an entry; `None` when they are cut short.
pub(crate) fn metadata_of(raw: &Bytes) -> Option<Bytes> {
    let at = if raw.starts_with(&[0x0e, 0x01]) { 6 } else { 0 };
    let size = u32::from_be_bytes(*raw.get(at..)?.first_chunk::<4>()?) as usize;
    let start = at + 4;
    (raw.len() - start >= size).then(|| raw.slice(start..start + size))
}

#[derive(Clone, Copy, Debug)]
struct Ledger {
    id: i64,
    first: u64,
}

/// Entries in order of publication.
#[derive(Debug)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    /// Offset of `entries[0]`.
    base: u64,
    ledgers: Vec<Ledger>,
    bytes: usize,
    messages: u64,
    last: Option<(Position, u32, bool)>,
}

impl Log {
    pub(crate) fn new(ledger: i64) -> Self {
        Log {
            entries: VecDeque::new(),
            base: 0,
            ledgers: vec![Ledger { id: ledger, first: 0 }],
            bytes: 0,
            messages: 0,
            last: None,
        }
    }

    /// Begins a new ledger; one that is still empty is replaced.
    pub(crate) fn roll(&mut self, ledger: i64) {
        let end = self.end();
        if self.ledger().first == end {
            self.ledgers.pop();
        }
        self.ledgers.push(Ledger { id: ledger, first: end });
    }

    /// Appends an entry and returns its position.
    pub(crate) fn append(
        &mut self,
        raw: Bytes,
        header: &EntryHeader,
        messages: u32,
        broker_time: u64,
    ) -> Position {
        let ledger = self.ledger();
        let position = Position { ledger: ledger.id, entry: (self.end() - ledger.first) as i64 };
        self.messages += u64::from(messages);
        self.bytes += raw.len();
        self.last = Some((position, messages, header.num_messages_in_batch.is_some()));
        self.entries.push_back(Entry {
            position,
            raw,
            messages,
            publish_time: header.publish_time,
            deliver_at: header.deliver_at_time.and_then(|t| u64::try_from(t).ok()).unwrap_or(0),
            broker_time,
            last_index: self.messages - 1,
        });
        position
    }

    /// Drops the oldest entries below `needed` while more than `keep_bytes` are held.
    pub(crate) fn trim(&mut self, needed: u64, keep_bytes: usize) {
        while self.bytes > keep_bytes && self.base < needed {
            let Some(entry) = self.entries.pop_front() else { break };
            self.bytes -= entry.raw.len();
            self.base += 1;
        }
    }

    /// Offset of the oldest entry still held.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Offset of the next entry to come.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages ever published.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    pub(crate) fn get(&self, offset: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(offset.checked_sub(self.base)?).ok()?)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Position and message count of the last entry ever published, and whether it is a batch.
    pub(crate) fn last(&self) -> Option<(Position, u32, bool)> {
        self.last
    }

    /// Offset of the entry at `position`; `None` when there never was one. It may have been trimmed since.
    pub(crate) fn offset(&self, position: Position) -> Option<u64> {
        let at = self.ledgers.iter().position(|l| l.id == position.ledger)?;
        let offset = self.ledgers[at].first.checked_add(u64::try_from(position.entry).ok()?)?;
        let end = self.ledgers.get(at + 1).map_or(self.end(), |next| next.first);
        (offset < end).then_some(offset)
    }

    /// Offset of the first entry at or after `position`; the end when there is none.
    pub(crate) fn offset_at_or_after(&self, position: Position) -> u64 {
        let at = self.ledgers.partition_point(|l| l.id <= position.ledger);
        let end = self.ledgers.get(at).map_or(self.end(), |next| next.first);
        match at.checked_sub(1).map(|i| self.ledgers[i]) {
            Some(ledger) if ledger.id == position.ledger => {
                let entry = u64::try_from(position.entry).unwrap_or(0);
                ledger.first.saturating_add(entry).clamp(self.base, end)
            }
            _ => end.max(self.base),
        }
    }

    /// Offset of the first entry published at or after `publish_time`; the end when there is none.
    pub(crate) fn offset_at_time(&self, publish_time: u64) -> u64 {
        let found = self.entries.iter().position(|e| e.publish_time >= publish_time);
        found.map_or(self.end(), |i| self.base + i as u64)
    }

    /// Position just before `offset`: of the entry before it, or entry −1 of the ledger that it begins.
    pub(crate) fn position_before(&self, offset: u64) -> Position {
        let at = self.ledgers.partition_point(|l| l.first < offset).checked_sub(1);
        match at {
            Some(i) => {
                let ledger = self.ledgers[i];
                Position { ledger: ledger.id, entry: (offset - ledger.first) as i64 - 1 }
            }
            None => Position { ledger: self.ledgers[0].id, entry: -1 },
        }
    }

    fn ledger(&self) -> Ledger {
        *self.ledgers.last().expect("a log begins with a ledger and never loses its last one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(ledgers: &[(i64, u64)]) -> Log {
        let mut log = Log::new(ledgers[0].0);
        for (i, (id, entries)) in ledgers.iter().enumerate() {
            if i > 0 {
                log.roll(*id);
            }
            for _ in 0..*entries {
                let header = EntryHeader { publish_time: log.end() * 10, ..EntryHeader::default() };
                log.append(Bytes::from_static(b"12345"), &header, 2, 0);
            }
        }
        log
    }

    fn at(ledger: i64, entry: i64) -> Position {
        Position { ledger, entry }
    }

    #[test]
    fn positions_and_offsets_name_the_same_entries() {
        let log = log(&[(7, 3), (9, 2)]);
        for offset in 0..5 {
            let position = log.get(offset).unwrap().position;
            assert_eq!(log.offset(position), Some(offset));
            assert_eq!(log.offset_at_or_after(position), offset);
            assert_eq!(log.position_before(offset + 1), position);
        }
        assert_eq!(log.offset(at(7, 3)), None);
        assert_eq!(log.offset(at(8, 0)), None);
        assert_eq!(log.position_before(0), at(7, -1));
        assert_eq!(log.last(), Some((at(9, 1), 2, false)));
    }

    #[test]
    fn a_position_between_entries_means_the_next_one() {
        let log = log(&[(7, 3), (9, 2)]);
        assert_eq!(log.offset_at_or_after(at(-1, -1)), 0);
        assert_eq!(log.offset_at_or_after(at(7, -1)), 0);
        assert_eq!(log.offset_at_or_after(at(7, 50)), 3);
        assert_eq!(log.offset_at_or_after(at(8, 0)), 3);
        assert_eq!(log.offset_at_or_after(at(9, 50)), 5);
        assert_eq!(log.offset_at_or_after(at(i64::MAX, i64::MAX)), 5);
    }

    #[test]
    fn trimming_keeps_what_is_needed_and_what_fits() {
        let mut log = log(&[(7, 4)]);
        log.trim(4, 11);
        assert_eq!((log.base(), log.end(), log.bytes()), (2, 4, 10));
        log.trim(3, 0);
        assert_eq!(log.base(), 3);
        assert_eq!(log.offset_at_or_after(at(7, 0)), 3);
        assert_eq!(log.last(), Some((at(7, 3), 2, false)));
    }

    #[test]
    fn an_empty_ledger_is_replaced_by_the_next() {
        let mut log = Log::new(3);
        log.roll(5);
        assert_eq!(log.position_before(0), at(5, -1));
        assert_eq!(log.append(Bytes::new(), &EntryHeader::default(), 1, 0), at(5, 0));
    }

    #[test]
    fn time_finds_the_first_entry_not_older() {
        let log = log(&[(7, 3)]);
        assert_eq!(log.offset_at_time(0), 0);
        assert_eq!(log.offset_at_time(10), 1);
        assert_eq!(log.offset_at_time(11), 2);
        assert_eq!(log.offset_at_time(21), 3);
    }
}
