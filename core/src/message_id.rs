//! Message ids.
//!
//! Knows their order, their text and their bytes. Which topic an id belongs to is not part of it.
use std::{cmp::Ordering, fmt, hash::Hash, str::FromStr};

use prost::Message as _;

use crate::wire::{WireError, fields, proto};

/// Where a message is stored: ledger, entry, partition and, within a batch, index.
///
/// Shape: 32 bytes, `Copy`. Ids are ordered as in Java: ledger, entry, partition, batch index; the batch size is not
/// part of an id's identity. Ids of different topics have no order that means anything.
/// Source: `MessageIdData`; `MessageIdImpl` and `BatchMessageIdImpl` in the Java client.
#[derive(Clone, Copy, Debug)]
pub struct MessageId {
    /// The ledger. Signed: -1 is before all, although the wire's type is unsigned.
    pub ledger_id: i64,
    /// The entry in the ledger; signed as well.
    pub entry_id: i64,
    /// The partition; -1 for a topic without partitions.
    pub partition: i32,
    /// The index in the batch; -1 for a message outside a batch.
    pub batch_index: i32,
    /// Messages in the batch; 0 when unknown, or outside a batch.
    pub batch_size: i32,
}

/// The id of a message in chunks: the last chunk is where it counts as stored, the first is where to seek to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkMessageId {
    /// The first chunk.
    pub first: MessageId,
    /// The last chunk.
    pub last: MessageId,
}

impl MessageId {
    /// Before the first message of any topic.
    pub const EARLIEST: Self = Self::new(-1, -1, -1);
    /// Behind the last message of any topic.
    pub const LATEST: Self = Self::new(i64::MAX, i64::MAX, -1);

    /// The id of a whole entry.
    pub const fn new(ledger_id: i64, entry_id: i64, partition: i32) -> Self {
        Self { ledger_id, entry_id, partition, batch_index: -1, batch_size: 0 }
    }

    /// The id of message `batch_index` in this entry's batch of `batch_size`.
    pub const fn in_batch(self, batch_index: i32, batch_size: i32) -> Self {
        Self { batch_index, batch_size, ..self }
    }

    /// The id of the entry, without an index in it.
    pub const fn entry(self) -> Self {
        Self::new(self.ledger_id, self.entry_id, self.partition)
    }

    /// The bytes that other clients read: a bare `MessageIdData`, as Java's `toByteArray` has it.
    pub fn to_bytes(self) -> Vec<u8> {
        self.to_serialised(None).encode_to_vec()
    }

    /// Reads what [`to_bytes`](Self::to_bytes), or another client, wrote. Of a chunked message it is the last chunk.
    ///
    /// Errors: bytes that are no `MessageIdData`, or have no ledger or entry.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        Ok(Self::from_proto(&decode(bytes)?))
    }

    /// The id in a command's `MessageIdData`.
    pub fn from_proto(id: &proto::MessageIdData) -> Self {
        Self {
            ledger_id: id.ledger_id as i64,
            entry_id: id.entry_id as i64,
            partition: id.partition(),
            batch_index: id.batch_index(),
            batch_size: id.batch_size(),
        }
    }

    /// The `MessageIdData` for a command: what is -1, or 0 for the batch size, is left out.
    pub fn to_proto(self) -> proto::MessageIdData {
        proto::MessageIdData {
            ledger_id: self.ledger_id as u64,
            entry_id: self.entry_id as u64,
            partition: (self.partition >= 0).then_some(self.partition),
            batch_index: (self.batch_index >= 0).then_some(self.batch_index),
            batch_size: (self.batch_size > 0).then_some(self.batch_size),
            ..Default::default()
        }
    }

    fn to_serialised(self, first_chunk: Option<Self>) -> proto::MessageIdData {
        proto::MessageIdData {
            batch_size: Some(self.batch_size),
            first_chunk_message_id: first_chunk.map(|id| Box::new(id.to_serialised(None))),
            ..self.to_proto()
        }
    }

    fn parts(&self) -> (i64, i64, i32, i32) {
        (self.ledger_id, self.entry_id, self.partition, self.batch_index)
    }
}

impl ChunkMessageId {
    /// The bytes that other clients read: the last chunk with the first one inside.
    pub fn to_bytes(self) -> Vec<u8> {
        self.last.to_serialised(Some(self.first)).encode_to_vec()
    }

    /// Reads an id of a chunked message; `Ok(None)` when the bytes are an ordinary id.
    pub fn from_bytes(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let id = decode(bytes)?;
        let first = id.first_chunk_message_id.as_deref().map(MessageId::from_proto);
        Ok(first.map(|first| Self { first, last: MessageId::from_proto(&id) }))
    }
}

impl From<&proto::MessageIdData> for MessageId {
    fn from(id: &proto::MessageIdData) -> Self {
        Self::from_proto(id)
    }
}

impl From<MessageId> for proto::MessageIdData {
    fn from(id: MessageId) -> Self {
        id.to_proto()
    }
}

impl PartialEq for MessageId {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for MessageId {}

impl PartialOrd for MessageId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MessageId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl Hash for MessageId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.ledger_id, self.entry_id, self.partition)?;
        if self.batch_index >= 0 { write!(f, ":{}", self.batch_index) } else { Ok(()) }
    }
}

impl fmt::Display for ChunkMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};{}", self.first, self.last)
    }
}

impl FromStr for MessageId {
    type Err = ParseMessageIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseMessageIdError(text.to_owned()))
    }
}

/// A text that is no message id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseMessageIdError(String);

impl fmt::Display for ParseMessageIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no message id; write ledger:entry:partition, or ledger:entry:partition:batch_index",
            self.0
        )
    }
}

impl std::error::Error for ParseMessageIdError {}

fn parse(text: &str) -> Option<MessageId> {
    let mut parts = text.split(':');
    let mut id =
        MessageId::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    if let Some(index) = parts.next() {
        id.batch_index = index.parse().ok()?;
    }
    parts.next().is_none().then_some(id)
}

fn decode(mut bytes: &[u8]) -> Result<proto::MessageIdData, WireError> {
    let id =
        proto::MessageIdData::decode(bytes).map_err(|_| WireError::BadMessageId("it is no MessageIdData"))?;
    // Both are required, which prost does not check; without them, half of all bytes would be some id.
    let (mut ledger, mut entry) = (false, false);
    while let Some((number, _)) = fields::next(&mut bytes).map_err(WireError::BadMessageId)? {
        ledger |= number == 1;
        entry |= number == 2;
    }
    if ledger && entry { Ok(id) } else { Err(WireError::BadMessageId("it has no ledger or no entry")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_ordered_by_ledger_entry_partition_and_index() {
        let id = MessageId::new(1, 2, 3);
        let ordered = [
            MessageId::EARLIEST,
            MessageId::new(0, 9, 9),
            MessageId::new(1, 1, 9),
            MessageId::new(1, 2, 2).in_batch(9, 10),
            id,
            id.in_batch(0, 10),
            id.in_batch(1, 10),
            MessageId::new(1, 3, 0),
            MessageId::LATEST,
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b));
        assert_eq!(id.in_batch(1, 10).entry(), id);
    }

    #[test]
    fn the_batch_size_is_no_part_of_the_identity() {
        assert_eq!(MessageId::new(1, 2, 3).in_batch(4, 5), MessageId::new(1, 2, 3).in_batch(4, 0));
    }

    #[test]
    fn an_id_is_small() {
        assert!(size_of::<MessageId>() <= 32);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "1", "1:2", "1:2:3:4:5", "a:2:3", "1:2:3:", " 1:2:3", "9223372036854775808:1:1"] {
            assert!(text.parse::<MessageId>().is_err(), "{text:?}");
        }
        for bytes in [&[][..], &[0x08, 1], &[0x10, 1], &[0x08], &[0xff; 20]] {
            assert!(MessageId::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }

    prop_compose! {
        fn ids()(ledger in any::<i64>(), entry in any::<i64>(), partition in -1..5, index in -1..5, size in 0..9)
        -> MessageId {
            MessageId::new(ledger, entry, partition).in_batch(index, size)
        }
    }

    proptest! {
        #[test]
        fn text_and_bytes_give_the_id_back(id in ids(), first in ids()) {
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let again = MessageId::from_bytes(&id.to_bytes()).expect("our own bytes");
            prop_assert_eq!((again, again.batch_size), (id, id.batch_size));
            prop_assert_eq!(MessageId::from_proto(&id.to_proto()), id);
            let chunked = ChunkMessageId { first, last: id };
            prop_assert_eq!(ChunkMessageId::from_bytes(&chunked.to_bytes()), Ok(Some(chunked)));
            prop_assert_eq!(MessageId::from_bytes(&chunked.to_bytes()), Ok(id));
        }
    }
}
