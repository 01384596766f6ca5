//! The bodies of the fuzz targets in `fuzz/`, as functions, so that the tests run them over the committed corpus.
//!
//! Each takes any bytes, and panics only when the core breaks a promise.
mod inputs;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use crate::{
    compression::Compression,
    message_id::{ChunkMessageId, MessageId},
    wire::{
        BatchWriter, Checksum, Command, Metadata, Record, SendHeader, SingleMetadata, encode_send, frame,
        next_record, proto,
    },
};

pub use inputs::inputs;

/// Larger than any input, smaller than what may be allocated in vain.
const MAX_FRAME: usize = 1 << 20;

/// Bytes from a socket: frames come out the same however the bytes are cut, and what decodes encodes again.
pub fn frame(data: &[u8]) {
    let whole = split_all(&[data]);
    let cut = data.first().map_or(0, |&b| usize::from(b) % (data.len() + 1));
    assert_eq!(whole, split_all(&[&data[..cut], &data[cut..]]), "a cut at {cut} changes the frames");
    assert_eq!(whole, split_all(&data.chunks(1).collect::<Vec<_>>()), "single bytes change the frames");

    for bytes in whole {
        let Ok(decoded) = frame::decode(bytes.clone()) else { continue };
        match (&decoded.command, &decoded.payload) {
            (Command::Message(command), Some(payload)) => {
                let (head, raw) = frame::encode_message(command, payload.broker_entry.as_ref(), &payload.raw);
                let again = frame::decode([head, raw].concat().into()).expect("our own frame decodes");
                assert_eq!(again, decoded);
            }
            (Command::Send(_), Some(payload)) => {
                assert!(payload.raw.ends_with(&payload.body));
                assert!(payload.checksum == Checksum::Absent || payload.raw.starts_with(&[0x0e, 0x01]));
            }
            (command, None) => {
                let bytes = encode(command);
                let again = frame::decode(bytes.clone()).expect("our own frame decodes");
                assert_eq!(encode(&again.command), bytes);
            }
            (command, Some(_)) => panic!("{} has a payload", command.name()),
        }
    }
}

/// Metadata, commands and message ids: what decodes encodes again, to the same meaning.
pub fn metadata(data: &[u8]) {
    if let Ok(command) = Command::decode(data) {
        let bytes = encode(&command);
        assert_eq!(bytes.len(), 8 + command.encoded_len());
        let again = Command::decode(&bytes[8..]).expect("our own command decodes");
        assert_eq!(encode(&again), bytes);
    }
    if let Ok(id) = MessageId::from_bytes(data) {
        assert!(ChunkMessageId::from_bytes(data).is_ok());
        // An id with negative parts has no bytes of its own: what is below 0 is left out.
        let again = MessageId::from_bytes(&id.to_bytes()).expect("our own bytes decode");
        assert_eq!((again.ledger_id, again.entry_id), (id.ledger_id, id.entry_id));
        assert_eq!((again.partition, again.batch_index), (id.partition.max(-1), id.batch_index.max(-1)));
    }
    let Ok(theirs) = proto::MessageMetadata::decode(data) else { return };
    let properties: Vec<_> = theirs.properties.iter().map(|p| (p.key.clone(), p.value.clone())).collect();
    let ours = Metadata {
        producer_name: &theirs.producer_name,
        sequence_id: theirs.sequence_id,
        publish_time: theirs.publish_time,
        properties: &properties,
        replicated_from: theirs.replicated_from.as_deref(),
        partition_key: theirs.partition_key.as_deref(),
        replicate_to: &theirs.replicate_to,
        compression: theirs.compression.and_then(|n| Compression::from_number(n).ok()).unwrap_or_default(),
        uncompressed_size: theirs.uncompressed_size,
        num_messages_in_batch: theirs.num_messages_in_batch,
        event_time: theirs.event_time,
        encryption_keys: &theirs.encryption_keys,
        encryption_param: theirs.encryption_param.as_deref(),
        schema_version: theirs.schema_version.as_deref(),
        partition_key_b64_encoded: theirs.partition_key_b64_encoded(),
        ordering_key: theirs.ordering_key.as_deref(),
        deliver_at_time: theirs.deliver_at_time,
        txn_id: theirs.txnid_least_bits.zip(theirs.txnid_most_bits),
        highest_sequence_id: theirs.highest_sequence_id,
        null_value: theirs.null_value(),
        uuid: theirs.uuid.as_deref(),
        num_chunks_from_msg: theirs.num_chunks_from_msg,
        total_chunk_msg_size: theirs.total_chunk_msg_size,
        chunk_id: theirs.chunk_id,
        null_partition_key: theirs.null_partition_key(),
    };
    let mut out = Vec::new();
    ours.write(&mut out);
    assert_eq!(out.len(), ours.encoded_len());
    let again = proto::MessageMetadata::decode(&out[..]).expect("our own metadata decodes");
    assert_eq!(written(again), written(theirs.clone()));

    let header = SendHeader { sequence_id: theirs.sequence_id, ..SendHeader::default() };
    let body = Bytes::copy_from_slice(data);
    let frame = encode_send(&header, &ours, body.clone(), true);
    assert!(frame.recompute_checksum());
    let len = frame.len();
    let bytes: Bytes = [frame.head, frame.body].concat().into();
    assert_eq!(bytes.len(), len);
    let payload = frame::decode(bytes).expect("our own frame decodes").payload.expect("a SEND has one");
    assert_eq!((payload.checksum, payload.metadata, payload.body), (Checksum::Valid, out.into(), body));
}

/// The payload of a batch: records lie within it, agree with prost, and can be written again.
pub fn batch(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let (mut at, mut writer, mut records) = (0, BatchWriter::new(), Vec::new());
    loop {
        let before = at;
        match next_record(data, &mut at) {
            Ok(Some(record)) => {
                assert!(at > before && at <= data.len());
                assert_eq!(record.payload_bytes(&body), record.payload(data));
                rewrite(&record, data, &mut writer);
                records.push(record);
            }
            Ok(None) => break assert_eq!(before, data.len()),
            Err(_) => break assert_eq!(before, at, "an error leaves the position alone"),
        }
    }
    assert_eq!(writer.count(), records.len());
    let copy = writer.take();
    let mut at = 0;
    for record in records {
        let again = next_record(&copy, &mut at).expect("our own batch decodes").expect("it is as long");
        assert_eq!(meaning(&again, &copy), meaning(&record, data));
    }
    assert_eq!(next_record(&copy, &mut at), Ok(None));
}

/// A command's frame. To be compared instead of the command, where a NaN is not itself.
fn encode(command: &Command) -> Bytes {
    let mut out = BytesMut::new();
    command.encode(&mut out);
    out.freeze()
}

/// The frames in bytes that arrive piece by piece.
fn split_all(pieces: &[&[u8]]) -> Vec<Bytes> {
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    for piece in pieces {
        buf.put_slice(piece);
        while let Ok(Some(frame)) = frame::split(&mut buf, MAX_FRAME) {
            frames.push(frame);
        }
    }
    frames
}

/// Metadata as far as we write it: defaults spelled out or not mean the same.
fn written(m: proto::MessageMetadata) -> proto::MessageMetadata {
    let txn = m.txnid_least_bits.zip(m.txnid_most_bits);
    proto::MessageMetadata {
        compression: m.compression.filter(|&n| n != 0 && Compression::from_number(n).is_ok()),
        partition_key_b64_encoded: m.partition_key_b64_encoded.filter(|&b| b),
        null_value: m.null_value.filter(|&b| b),
        null_partition_key: m.null_partition_key.filter(|&b| b),
        txnid_least_bits: txn.map(|t| t.0),
        txnid_most_bits: txn.map(|t| t.1),
        encryption_algo: None,
        marker_type: None,
        compacted_batch_indexes: Vec::new(),
        schema_id: None,
        entry_hash_min: None,
        entry_hash_max: None,
        ..m
    }
}

fn rewrite(record: &Record, body: &[u8], writer: &mut BatchWriter) {
    let (key, properties) = (record.key(body), record.properties(body));
    if let Ok(theirs) = proto::SingleMessageMetadata::decode(record.metadata.of(body)) {
        assert_eq!(theirs.payload_size as u32, record.payload_len);
        assert_eq!(theirs.sequence_id, record.sequence_id);
        assert_eq!(theirs.event_time(), record.event_time);
        assert_eq!(theirs.compacted_out(), record.compacted_out);
        assert_eq!(theirs.null_value(), record.null_value);
        assert_eq!(theirs.null_partition_key(), record.null_partition_key);
        assert_eq!(theirs.partition_key_b64_encoded(), record.partition_key_b64_encoded);
        assert_eq!(theirs.partition_key.as_deref(), key.as_deref());
        assert_eq!(theirs.ordering_key.as_deref(), record.ordering_key(body));
        let theirs: Vec<_> = theirs.properties.into_iter().map(|p| (p.key, p.value)).collect();
        assert_eq!(theirs, properties);
    }
    let metadata = SingleMetadata {
        properties: &properties,
        partition_key: key.as_deref(),
        partition_key_b64_encoded: record.partition_key_b64_encoded,
        ordering_key: record.ordering_key(body),
        event_time: (record.event_time > 0).then_some(record.event_time),
        sequence_id: record.sequence_id,
        null_value: record.null_value,
        null_partition_key: record.null_partition_key,
    };
    let before = writer.len();
    writer.append(&metadata, record.payload(body));
    assert_eq!(writer.len() - before, metadata.record_len(record.payload(body).len()));
}

/// A record without its places, but for `compacted_out`, which no producer writes.
fn meaning(record: &Record, body: &[u8]) -> (Record, Vec<u8>, Option<String>, Option<Vec<u8>>) {
    let values = Record {
        payload_offset: 0,
        metadata: Default::default(),
        partition_key: None,
        ordering_key: None,
        compacted_out: false,
        ..*record
    };
    let key = record.key(body).map(|key| key.into_owned());
    (values, record.payload(body).to_vec(), key, record.ordering_key(body).map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::prelude::*;

    use super::*;

    type Target = (&'static str, fn(&[u8]));

    const TARGETS: [Target; 4] =
        [("frame", frame), ("metadata", metadata), ("batch", batch), ("inputs", inputs)];

    #[test]
    fn the_corpus_breaks_no_promise() {
        for (name, target) in TARGETS {
            let mut seeds = 0;
            for seed in corpus(name) {
                target(&seed);
                for len in 0..seed.len() {
                    target(&seed[..len]);
                }
                seeds += 1;
            }
            assert!(seeds > 0, "fuzz/corpus/{name} has seeds");
        }
    }

    #[test]
    fn flipped_bits_break_no_promise() {
        for (name, target) in TARGETS {
            for seed in corpus(name) {
                let mut bytes = seed;
                for bit in 0..8 * bytes.len() {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    target(&bytes);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn random_bytes_break_no_promise(data in prop::collection::vec(any::<u8>(), 0..200)) {
            for (_, target) in TARGETS {
                target(&data);
            }
        }
    }

    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
        let entries = fs::read_dir(&path).expect("the corpus is committed");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).expect("readable")).collect()
    }
}
