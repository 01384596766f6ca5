//! From a MESSAGE frame to an entry: checks, decoding, decompression.
//!
//! A leaf: decides whether an entry can be read and what it cost; knows no queue, permits or acknowledgements.

use bytes::Bytes;

use crate::compression::{Compression, decompress};
use crate::message::Entry;
use crate::topic_name::TopicName;
use crate::wire::frame::{Checksum, Payload};
use crate::wire::proto::command_ack::ValidationError;
use crate::wire::{AckSet, WireError, proto};
use prost::Message as _;

/// An entry that can be read.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) entry: Entry,
    /// Whether it is a batch, perhaps of one.
    pub(crate) is_batch: bool,
    /// The members that the broker considers open, when those are not all.
    pub(crate) open: Option<AckSet>,
    /// What the broker charged: messages, less those acknowledged before.
    pub(crate) permits: u32,
}

/// An entry that cannot be read.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) permits: u32,
    /// Messages in it, 0 for a single one or when unknown.
    pub(crate) batch_size: u32,
    pub(crate) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is damaged for every reader: discard it, as every client does.
    Corrupt(ValidationError),
    /// It is encrypted, or a piece of a message in chunks, which this client does not read: it stays with the broker.
    NotSupported,
}

/// Bytes that a batch member takes at least: its metadata's size, and a payload size in it.
const MIN_RECORD: usize = 6;
/// Members that a compacted batch may claim, since its bytes do not bound them.
const MAX_COMPACTED_BATCH: u32 = 1 << 20;

/// Reads what a MESSAGE frame brought.
pub(crate) fn read(
    message: &proto::CommandMessage,
    payload: Payload,
    topic: &TopicName,
    partition: i32,
    max_uncompressed_size: usize,
) -> Result<Arrival, Refused> {
    let metadata = match proto::MessageMetadata::decode(&payload.metadata[..]) {
        Ok(metadata) => metadata,
        Err(_) => {
            let why = match payload.checksum {
                Checksum::Mismatch { .. } => ValidationError::ChecksumMismatch,
                _ => ValidationError::BatchDeSerializeError,
            };
            return Err(Refused { permits: 1, batch_size: 0, why: Why::Corrupt(why) });
        }
    };
    // Presence tells a batch from a single message: other clients write batches of one.
    let batch_size = match metadata.num_messages_in_batch {
        None => 0,
        Some(n) => u32::try_from(n).unwrap_or(0),
    };
    let is_batch = metadata.num_messages_in_batch.is_some();
    let open = match is_batch && !message.ack_set.is_empty() {
        // The size limits what is allocated here to what a frame can hold.
        true => Some(open_members(batch_size, &message.ack_set)),
        false => None,
    };
    let permits = match (&open, is_batch) {
        (Some(set), _) => set.len() as u32,
        (None, true) => batch_size.max(1),
        (None, false) => 1,
    };
    let refuse = |why| Err(Refused { permits, batch_size, why });
    let corrupt = |why| refuse(Why::Corrupt(why));
    if let Checksum::Mismatch { .. } = payload.checksum {
        return corrupt(ValidationError::ChecksumMismatch);
    }
    if !metadata.encryption_keys.is_empty() || metadata.num_chunks_from_msg.unwrap_or(1) > 1 {
        return refuse(Why::NotSupported);
    }
    let body = match uncompress(&metadata, &payload.body, max_uncompressed_size) {
        Ok(body) => body,
        Err(WireError::UncompressedSize { .. }) => {
            return corrupt(ValidationError::UncompressedSizeCorruption);
        }
        Err(_) => return corrupt(ValidationError::DecompressionError),
    };
    let (records, largest) = match metadata.compacted_batch_indexes.len() {
        0 => (batch_size as usize, u32::MAX),
        listed => (listed, MAX_COMPACTED_BATCH),
    };
    if is_batch && (batch_size == 0 || batch_size > largest || body.len() / MIN_RECORD < records) {
        return corrupt(ValidationError::BatchDeSerializeError);
    }
    let id = &message.message_id;
    Ok(Arrival {
        entry: Entry {
            topic: topic.clone(),
            ledger_id: id.ledger_id as i64,
            entry_id: id.entry_id as i64,
            partition,
            redelivery_count: message.redelivery_count.unwrap_or(0),
            metadata,
            body,
            batch_size,
            last_index: payload.broker_entry.and_then(|entry| entry.index),
        },
        is_batch,
        open,
        permits,
    })
}

/// Which members are open, of a set that may be too long.
fn open_members(batch_size: u32, words: &[i64]) -> AckSet {
    let longest = (words.len() as u64 * 64).min(u64::from(batch_size)) as u32;
    let mut set = AckSet::full(longest);
    set.merge(&AckSet::from_words(words));
    set
}

fn uncompress(metadata: &proto::MessageMetadata, body: &Bytes, limit: usize) -> Result<Bytes, WireError> {
    let codec = Compression::from_number(metadata.compression.unwrap_or(0))?;
    decompress(codec, body, metadata.uncompressed_size.unwrap_or(0), limit)
}

#[cfg(test)]
mod tests {
    use super::super::queue::tests::batch_body;
    use super::*;

    const NONE: Checksum = Checksum::Absent;

    fn read_one(
        metadata: proto::MessageMetadata,
        body: Bytes,
        checksum: Checksum,
        ack_set: Vec<i64>,
    ) -> Result<Arrival, Refused> {
        let payload = Payload {
            broker_entry: None,
            checksum,
            metadata: metadata.encode_to_vec().into(),
            body,
            raw: Bytes::new(),
        };
        let message = proto::CommandMessage { ack_set, ..proto::CommandMessage::default() };
        read(&message, payload, &TopicName::parse("t").unwrap(), -1, 1000)
    }

    fn batch_of(n: i32) -> proto::MessageMetadata {
        proto::MessageMetadata { num_messages_in_batch: Some(n), ..proto::MessageMetadata::default() }
    }

    #[test]
    fn a_batch_costs_its_open_members() {
        let body = batch_body(&["a", "b", "c"]);
        assert_eq!(read_one(batch_of(3), body.clone(), NONE, vec![]).unwrap().permits, 3);
        let arrival = read_one(batch_of(3), body.clone(), NONE, vec![0b1101]).unwrap();
        assert_eq!(arrival.permits, 2, "bits beyond the batch count nothing");
        let one = read_one(batch_of(1), batch_body(&["a"]), NONE, vec![]).unwrap();
        assert!(one.is_batch);
        assert_eq!((one.permits, one.entry.batch_size), (1, 1));
    }

    #[test]
    fn a_corrupt_entry_costs_what_it_says_it_holds() {
        let mismatch = Checksum::Mismatch { expected: 1, actual: 2 };
        let rows = [
            (batch_of(3), mismatch, 0, 3, ValidationError::ChecksumMismatch),
            (batch_of(3), NONE, 0, 3, ValidationError::BatchDeSerializeError),
            (batch_of(0), NONE, 0, 1, ValidationError::BatchDeSerializeError),
            (batch_of(-1), NONE, 0, 1, ValidationError::BatchDeSerializeError),
            (batch_of(3), NONE, 9, 3, ValidationError::DecompressionError),
            (batch_of(3), NONE, 1, 3, ValidationError::UncompressedSizeCorruption),
        ];
        for (mut metadata, checksum, codec, permits, expected) in rows {
            metadata.compression = Some(codec);
            metadata.uncompressed_size = Some(if codec == 1 { 1001 } else { 10 });
            let refused = read_one(metadata, Bytes::from("short"), checksum, vec![]).unwrap_err();
            assert_eq!((refused.permits, refused.why), (permits, Why::Corrupt(expected)));
        }
    }

    #[test]
    fn what_this_client_cannot_read_is_not_corrupt() {
        let chunk = proto::MessageMetadata { num_chunks_from_msg: Some(3), ..Default::default() };
        assert_eq!(read_one(chunk, Bytes::new(), NONE, vec![]).unwrap_err().why, Why::NotSupported);
        let encrypted = proto::MessageMetadata { encryption_keys: vec![Default::default()], ..batch_of(40) };
        let refused = read_one(encrypted, Bytes::new(), NONE, vec![]).unwrap_err();
        assert_eq!((refused.why, refused.permits), (Why::NotSupported, 40));
    }

    #[test]
    fn an_empty_value_is_a_value_in_any_codec() {
        for codec in 0..5 {
            let metadata = proto::MessageMetadata { compression: Some(codec), ..Default::default() };
            let arrival = read_one(metadata, Bytes::new(), NONE, vec![]).unwrap();
            assert!(arrival.entry.body.is_empty() && !arrival.is_batch);
        }
    }
}
