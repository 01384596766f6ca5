//! SEND frames: the metadata of an entry, written from borrowed values, and the frame around it.
//!
//! Knows how metadata looks, not where its values come from. Reading is left to prost: once per entry, not per message.
use bytes::{BufMut, Bytes, BytesMut};

use super::{
    fields::{BYTES, Count, Put, Sink, VARINT, field_len, key, put_varint},
    frame::MAGIC_CHECKSUM,
    proto,
};
use crate::compression::Compression;

/// Bodies from this size on, in bytes, are a chunk of their own instead of being copied behind the head.
const SEPARATE_BODY: usize = 4096;

/// `MessageMetadata` as a producer writes it.
///
/// Shape: `None`, an empty slice or `false` leaves the field out. Times are milliseconds since the epoch.
/// Source: `MessageMetadata` in the .proto file, which has the meaning of each field.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the .proto file documents them, once")]
pub struct Metadata<'a> {
    pub producer_name: &'a str,
    pub sequence_id: u64,
    pub publish_time: u64,
    pub properties: &'a [(String, String)],
    pub replicated_from: Option<&'a str>,
    pub partition_key: Option<&'a str>,
    pub replicate_to: &'a [String],
    /// Left out for [`Compression::None`].
    pub compression: Compression,
    pub uncompressed_size: Option<u32>,
    pub num_messages_in_batch: Option<i32>,
    pub event_time: Option<u64>,
    pub encryption_keys: &'a [proto::EncryptionKeys],
    pub encryption_param: Option<&'a [u8]>,
    pub schema_version: Option<&'a [u8]>,
    pub partition_key_b64_encoded: bool,
    pub ordering_key: Option<&'a [u8]>,
    pub deliver_at_time: Option<i64>,
    /// Least and most significant bits of a transaction's id; [`encode_send`] puts them in the command, too.
    pub txn_id: Option<(u64, u64)>,
    pub highest_sequence_id: Option<u64>,
    pub null_value: bool,
    pub uuid: Option<&'a str>,
    pub num_chunks_from_msg: Option<i32>,
    pub total_chunk_msg_size: Option<i32>,
    pub chunk_id: Option<i32>,
    pub null_partition_key: bool,
}

impl Metadata<'_> {
    /// Bytes that [`write`](Self::write) appends.
    pub fn encoded_len(&self) -> usize {
        let mut count = Count::default();
        self.visit(&mut count);
        // The only nested messages that are owned: prost writes them.
        count.0
            + self
                .encryption_keys
                .iter()
                .map(|k| field_len(13, prost::Message::encoded_len(k)))
                .sum::<usize>()
    }

    /// Appends the message, without a length. Panics only as `BufMut` does: when `out` is of a fixed size, and full.
    pub fn write(&self, out: &mut impl BufMut) {
        self.visit(&mut Put(out));
        for keys in self.encryption_keys {
            put_varint(out, key(13, BYTES));
            put_varint(out, prost::Message::encoded_len(keys) as u64);
            prost::Message::encode(keys, out).expect("the caller made room");
        }
    }

    #[inline]
    fn visit(&self, sink: &mut impl Sink) {
        sink.bytes(1, self.producer_name.as_bytes());
        sink.varint(2, self.sequence_id);
        sink.varint(3, self.publish_time);
        for (key, value) in self.properties {
            sink.pair(4, key, value);
        }
        sink.opt_bytes(5, self.replicated_from.map(str::as_bytes));
        sink.opt_bytes(6, self.partition_key.map(str::as_bytes));
        for cluster in self.replicate_to {
            sink.bytes(7, cluster.as_bytes());
        }
        if self.compression != Compression::None {
            sink.varint(8, self.compression.number() as u64);
        }
        sink.opt(9, self.uncompressed_size.map(u64::from));
        sink.opt_i32(11, self.num_messages_in_batch);
        sink.opt(12, self.event_time);
        sink.opt_bytes(15, self.encryption_param);
        sink.opt_bytes(16, self.schema_version);
        sink.flag(17, self.partition_key_b64_encoded);
        sink.opt_bytes(18, self.ordering_key);
        sink.opt(19, self.deliver_at_time.map(|t| t as u64));
        sink.opt(22, self.txn_id.map(|id| id.0));
        sink.opt(23, self.txn_id.map(|id| id.1));
        sink.opt(24, self.highest_sequence_id);
        sink.flag(25, self.null_value);
        sink.opt_bytes(26, self.uuid.map(str::as_bytes));
        sink.opt_i32(27, self.num_chunks_from_msg);
        sink.opt_i32(28, self.total_chunk_msg_size);
        sink.opt_i32(29, self.chunk_id);
        sink.flag(30, self.null_partition_key);
    }
}

/// The SEND command in front of the metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendHeader {
    /// The wire's id of the producer, unique in its connection.
    pub producer_id: u64,
    /// The lowest of a batch.
    pub sequence_id: u64,
    /// The last of a batch.
    pub highest_sequence_id: Option<u64>,
    /// 1 and less is left out.
    pub num_messages: i32,
    /// Whether the entry is a chunk of a message.
    pub is_chunk: bool,
}

impl SendHeader {
    #[inline]
    fn visit(&self, metadata: &Metadata<'_>, sink: &mut impl Sink) {
        sink.varint(1, self.producer_id);
        sink.varint(2, self.sequence_id);
        if self.num_messages > 1 {
            sink.varint(3, self.num_messages as u64);
        }
        sink.opt(4, metadata.txn_id.map(|id| id.0));
        sink.opt(5, metadata.txn_id.map(|id| id.1));
        sink.opt(6, self.highest_sequence_id);
        sink.flag(7, self.is_chunk);
    }
}

/// An encoded SEND frame, in at most two chunks. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendFrame {
    /// Everything up to the body, and a small body too.
    pub head: Bytes,
    /// A large body, as the caller gave it; else empty.
    pub body: Bytes,
}

impl SendFrame {
    /// Bytes of the whole frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Whether the bytes still fit the checksum that was written with them; true when there is none.
    ///
    /// For a broker's ChecksumError: intact bytes were broken on the way and can be sent again, others must not be.
    pub fn recompute_checksum(&self) -> bool {
        let Some(at) = self.checksum_at() else { return true };
        let Some(expected) = self.head.get(at..).and_then(|b| b.first_chunk::<4>()) else { return false };
        u32::from_be_bytes(*expected) == crc(&self.head[at + 4..], &self.body)
    }

    /// Where the CRC-32C is in the head.
    fn checksum_at(&self) -> Option<usize> {
        let command_size = u32::from_be_bytes(*self.head.get(4..)?.first_chunk()?);
        let at = 8 + command_size as usize;
        self.head.get(at..)?.starts_with(&MAGIC_CHECKSUM).then_some(at + 2)
    }
}

/// Encodes a SEND frame.
///
/// Shape: bodies below 4 KiB are copied behind the head, so that small frames are one chunk; larger ones stay as they
/// are. `checksum` is for peers of protocol version 6 and later.
/// Errors: none; the caller has compared metadata and body with the broker's `max_message_size`.
pub fn encode_send(header: &SendHeader, metadata: &Metadata<'_>, body: Bytes, checksum: bool) -> SendFrame {
    const SEND: u32 = proto::base_command::Type::Send as u32;
    let mut count = Count::default();
    header.visit(metadata, &mut count);
    let header_len = count.0;
    let command_len = 2 + field_len(SEND, header_len);
    let metadata_len = metadata.encoded_len();
    let checksum_len = if checksum { 6 } else { 0 };
    let head_len = 8 + command_len + checksum_len + 4 + metadata_len;
    let separate = body.len() >= SEPARATE_BODY;
    let mut head = BytesMut::with_capacity(head_len + if separate { 0 } else { body.len() });

    head.put_u32((head_len - 4 + body.len()) as u32);
    head.put_u32(command_len as u32);
    put_varint(&mut head, key(1, VARINT));
    put_varint(&mut head, u64::from(SEND));
    put_varint(&mut head, key(SEND, BYTES));
    put_varint(&mut head, header_len as u64);
    header.visit(metadata, &mut Put(&mut head));
    if checksum {
        head.put_slice(&MAGIC_CHECKSUM);
        head.put_u32(0); // known below
    }
    let covered = head.len();
    head.put_u32(metadata_len as u32);
    metadata.write(&mut head);
    let body = if separate {
        body
    } else {
        head.put_slice(&body);
        Bytes::new()
    };
    if checksum {
        let crc = crc(&head[covered..], &body);
        head[covered - 4..covered].copy_from_slice(&crc.to_be_bytes());
    }
    SendFrame { head: head.freeze(), body }
}

/// CRC-32C of two chunks as if they were one.
fn crc(head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::wire::{Checksum, Command, frame};

    fn decode(frame: SendFrame) -> (proto::CommandSend, frame::Payload) {
        let frame = frame::decode([frame.head, frame.body].concat().into()).expect("it decodes");
        let Command::Send(send) = frame.command else { panic!("no SEND") };
        (send, frame.payload.expect("a SEND has one"))
    }

    #[test]
    fn every_field_is_where_prost_reads_it() {
        let properties = [("k".to_owned(), "v".to_owned()), (String::new(), "ü".repeat(100))];
        let clusters = ["a".to_owned(), "b".to_owned()];
        let keys =
            [proto::EncryptionKeys { key: "key".into(), value: vec![1; 300].into(), metadata: Vec::new() }];
        let metadata = Metadata {
            producer_name: "p",
            sequence_id: u64::MAX,
            publish_time: 1_790_000_000_000,
            properties: &properties,
            replicated_from: Some("c"),
            partition_key: Some("key"),
            replicate_to: &clusters,
            compression: Compression::Snappy,
            uncompressed_size: Some(u32::MAX),
            num_messages_in_batch: Some(i32::MAX),
            event_time: Some(12),
            encryption_keys: &keys,
            encryption_param: Some(&[1; 12]),
            schema_version: Some(&[0; 8]),
            partition_key_b64_encoded: true,
            ordering_key: Some(b"o"),
            deliver_at_time: Some(-1),
            txn_id: Some((1, 2)),
            highest_sequence_id: Some(9),
            null_value: true,
            uuid: Some("u"),
            num_chunks_from_msg: Some(-2),
            total_chunk_msg_size: Some(5),
            chunk_id: Some(0),
            null_partition_key: true,
        };
        let mut out = Vec::new();
        metadata.write(&mut out);
        assert_eq!(out.len(), metadata.encoded_len());
        let pairs = properties.iter().map(|(k, v)| proto::KeyValue { key: k.clone(), value: v.clone() });
        let expected = proto::MessageMetadata {
            producer_name: "p".into(),
            sequence_id: u64::MAX,
            publish_time: 1_790_000_000_000,
            properties: pairs.collect(),
            replicated_from: Some("c".into()),
            partition_key: Some("key".into()),
            replicate_to: clusters.to_vec(),
            compression: Some(4),
            uncompressed_size: Some(u32::MAX),
            num_messages_in_batch: Some(i32::MAX),
            event_time: Some(12),
            encryption_keys: keys.to_vec(),
            encryption_param: Some(vec![1; 12].into()),
            schema_version: Some(vec![0; 8].into()),
            partition_key_b64_encoded: Some(true),
            ordering_key: Some("o".into()),
            deliver_at_time: Some(-1),
            txnid_least_bits: Some(1),
            txnid_most_bits: Some(2),
            highest_sequence_id: Some(9),
            null_value: Some(true),
            uuid: Some("u".into()),
            num_chunks_from_msg: Some(-2),
            total_chunk_msg_size: Some(5),
            chunk_id: Some(0),
            null_partition_key: Some(true),
            ..Default::default()
        };
        assert_eq!(proto::MessageMetadata::decode(&out[..]), Ok(expected));
    }

    #[test]
    fn a_send_has_the_transaction_of_its_metadata() {
        let header = SendHeader {
            producer_id: 300,
            sequence_id: 5,
            highest_sequence_id: Some(7),
            num_messages: 3,
            is_chunk: true,
        };
        let metadata = Metadata { txn_id: Some((1, 2)), ..Metadata::default() };
        let (send, _) = decode(encode_send(&header, &metadata, Bytes::new(), true));
        let expected = proto::CommandSend {
            producer_id: 300,
            sequence_id: 5,
            num_messages: Some(3),
            txnid_least_bits: Some(1),
            txnid_most_bits: Some(2),
            highest_sequence_id: Some(7),
            is_chunk: Some(true),
            ..Default::default()
        };
        assert_eq!(send, expected);
        let (send, _) = decode(encode_send(&SendHeader::default(), &Metadata::default(), Bytes::new(), true));
        assert_eq!(send, proto::CommandSend::default());
    }

    #[test]
    fn a_large_body_is_not_copied() {
        let body = Bytes::from(vec![1; SEPARATE_BODY]);
        let frame = encode_send(&SendHeader::default(), &Metadata::default(), body.clone(), true);
        assert_eq!(frame.body.as_ptr(), body.as_ptr());
        let small = body.slice(1..);
        let frame = encode_send(&SendHeader::default(), &Metadata::default(), small.clone(), true);
        assert!(frame.body.is_empty() && frame.head.ends_with(&small));
    }

    #[test]
    fn a_frame_whose_bytes_changed_no_longer_fits_its_checksum() {
        for len in [10, 5000] {
            let body = Bytes::from(vec![1; len]);
            let frame = encode_send(&SendHeader::default(), &Metadata::default(), body.clone(), true);
            assert!(frame.recompute_checksum());
            let flip = |bytes: &Bytes| {
                let mut bytes = bytes.to_vec();
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                Bytes::from(bytes)
            };
            let broken = SendFrame { head: flip(&frame.head), body: flip(&frame.body) };
            assert!(!broken.recompute_checksum());
            let without = encode_send(&SendHeader::default(), &Metadata::default(), body, false);
            let broken = SendFrame { head: flip(&without.head), ..without };
            assert!(broken.recompute_checksum(), "there is nothing to compare with");
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_is_what_is_received(
            sequence_id in any::<u64>(),
            len in prop_oneof![0..100usize, 4090..4100usize],
            checksum in any::<bool>(),
            key in prop::option::of(".{0,200}"),
        ) {
            let header = SendHeader { sequence_id, ..SendHeader::default() };
            let metadata = Metadata { sequence_id, partition_key: key.as_deref(), ..Metadata::default() };
            let frame = encode_send(&header, &metadata, vec![7; len].into(), checksum);
            let whole = frame.len();
            prop_assert_eq!(frame.head[..4].to_vec(), (whole as u32 - 4).to_be_bytes());
            let (send, payload) = decode(frame);
            prop_assert_eq!(send.sequence_id, sequence_id);
            prop_assert_eq!(payload.checksum, if checksum { Checksum::Valid } else { Checksum::Absent });
            prop_assert_eq!(&payload.body[..], &vec![7; len][..]);
            let metadata = proto::MessageMetadata::decode(payload.metadata).expect("it decodes");
            prop_assert_eq!((metadata.sequence_id, metadata.partition_key), (sequence_id, key));
        }
    }
}
