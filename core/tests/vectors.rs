//! The codec against bytes of the Java client and a 4.0.7 broker; `tests/vectors/README.md` says how they were made.
use std::{fs, path::PathBuf};

use bytes::{Bytes, BytesMut};
use geminga_core::{
    compression::{Compression, decompress},
    hash::{HashingScheme, sticky_slot},
    message_id::{ChunkMessageId, MessageId},
    wire::{
        AckSet, BatchWriter, Checksum, Command, Frame, Metadata, Payload, Record, SendHeader, SingleMetadata,
        encode_send, frame, next_record, proto,
    },
};
use prost::Message;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors").join(name)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hex digits");
        u8::from_str_radix(pair, 16).expect("hex digits")
    };
    digits.chunks(2).map(byte).collect()
}

fn bytes(name: &str) -> Bytes {
    unhex(&fs::read_to_string(path(name)).expect("the vector is there")).into()
}

/// Every frame whose name begins with `prefix`.
fn frames(prefix: &str) -> Vec<(String, Bytes)> {
    let mut names: Vec<String> = fs::read_dir(path(""))
        .expect("the vectors are there")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .filter(|name| name.starts_with(prefix) && name.ends_with(".hex"))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    names.into_iter().map(|name| (name.clone(), bytes(&name))).collect()
}

/// The rows of a table, without its comments.
fn rows(name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path(name)).expect("the table is there");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<_> = lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    assert!(!rows.is_empty());
    rows
}

fn decode(name: &str) -> (Frame, Payload, proto::MessageMetadata) {
    let frame = frame::decode(bytes(name)).expect("the frame decodes");
    let payload = frame.payload.clone().expect("a message has a payload");
    let metadata = proto::MessageMetadata::decode(&payload.metadata[..]).expect("the metadata decodes");
    (frame, payload, metadata)
}

fn plain(payload: &Payload, metadata: &proto::MessageMetadata) -> Bytes {
    let codec = Compression::from_number(metadata.compression.unwrap_or(0)).expect("a known codec");
    decompress(codec, &payload.body, metadata.uncompressed_size(), 1 << 20).expect("it decompresses")
}

fn records(body: &[u8]) -> Vec<Record> {
    let mut at = 0;
    std::iter::from_fn(|| next_record(body, &mut at).expect("the batch is well formed")).collect()
}

#[test]
fn every_command_decodes_and_encodes_to_the_same_bytes() {
    for (name, bytes) in frames("cmd-") {
        let frame = frame::decode(bytes.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        if frame.payload.is_none() {
            let mut out = BytesMut::new();
            frame.command.encode(&mut out);
            assert_eq!(out, bytes, "{name}: {:?}", frame.command);
        }
    }
}

#[test]
fn a_wrong_checksum_is_reported_and_a_right_one_is_not() {
    let checksum = |name| frame::decode(bytes(name)).expect("it decodes").payload.expect("a SEND").checksum;
    assert_eq!(checksum("cmd-send.hex"), Checksum::Valid);
    assert!(matches!(checksum("cmd-send-badcrc.hex"), Checksum::Mismatch { .. }));
}

#[test]
fn every_message_decodes_and_is_forwarded_as_the_same_bytes() {
    for (name, bytes) in frames("msg-") {
        let (frame, payload, metadata) = decode(&name);
        assert_eq!(payload.checksum, Checksum::Valid, "{name}");
        assert!(!metadata.producer_name.is_empty(), "{name}");
        let Command::Message(command) = frame.command else { panic!("{name} is no MESSAGE") };
        let (head, raw) = frame::encode_message(&command, payload.broker_entry.as_ref(), &payload.raw);
        assert_eq!([head, raw].concat(), bytes, "{name}");
    }
}

#[test]
fn broker_entry_metadata_goes_around_the_stored_bytes() {
    let (frame, payload, _) = decode("msg-misc-0.hex");
    let Command::Message(command) = frame.command else { panic!("no MESSAGE") };
    let entry = proto::BrokerEntryMetadata { broker_timestamp: Some(1), index: Some(300) };
    let (head, raw) = frame::encode_message(&command, Some(&entry), &payload.raw);
    let again = frame::decode([head, raw].concat().into()).expect("it decodes").payload.expect("a payload");
    assert_eq!(again, Payload { broker_entry: Some(entry), ..payload });
}

#[test]
fn a_send_is_written_as_another_client_wrote_it() {
    let (frame, payload, metadata) = decode("cmd-send.hex");
    let Command::Send(send) = frame.command else { panic!("no SEND") };
    let header = SendHeader {
        producer_id: send.producer_id,
        sequence_id: send.sequence_id,
        highest_sequence_id: send.highest_sequence_id,
        num_messages: send.num_messages(),
        is_chunk: send.is_chunk(),
    };
    let metadata = Metadata {
        producer_name: &metadata.producer_name,
        sequence_id: metadata.sequence_id,
        publish_time: metadata.publish_time,
        ..Metadata::default()
    };
    let ours = encode_send(&header, &metadata, payload.body, true);
    assert_eq!([ours.head, ours.body].concat(), bytes("cmd-send.hex"));
}

#[test]
fn every_codec_yields_what_no_codec_yields() {
    let (_, payload, _) = decode("msg-single-none.hex");
    let (_, batch, _) = decode("msg-batch3-none.hex");
    for codec in ["lz4", "zlib", "zstd", "snappy"] {
        let (_, compressed, metadata) = decode(&format!("msg-single-{codec}.hex"));
        assert_ne!(compressed.body, payload.body);
        assert_eq!(plain(&compressed, &metadata), payload.body, "{codec}");
        let (_, compressed, metadata) = decode(&format!("msg-batch3-{codec}.hex"));
        assert_eq!(plain(&compressed, &metadata), batch.body, "{codec}");
    }
}

#[test]
fn a_batch_has_its_messages() {
    let (_, payload, _) = decode("msg-batch3-none.hex");
    let body = &payload.body[..];
    let records = records(body);
    assert_eq!(records.len(), 3);
    let values: Vec<_> = records.iter().map(|r| r.payload(body)).collect();
    assert_eq!(values, [&b"one"[..], b"two", b""]);
    let keys: Vec<_> = records.iter().map(|r| r.key(body).expect("a key").into_owned()).collect();
    assert_eq!(keys, ["k1", "AAH/", "k3"]);
    assert_eq!(records[0].properties(body), [("a".to_owned(), "1".to_owned())]);
    assert_eq!(records[0].event_time, 1_700_000_000_000);
    assert!(records[1].partition_key_b64_encoded);
    assert_eq!(records[1].ordering_key(body), Some(&b"ok"[..]));
    assert!(records[2].null_value && !records[1].null_value);
    assert_eq!(records.iter().map(|r| r.sequence_id).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    assert_eq!(records[1].payload_bytes(&payload.body), "two");
}

#[test]
fn a_batch_decodes_to_what_its_writer_was_given() {
    let (_, payload, _) = decode("msg-batch3-none.hex");
    let mut writer = BatchWriter::new();
    let properties = ["a", "1"].map(str::to_owned);
    let [key, value] = properties;
    let properties = [(key, value)];
    let one = SingleMetadata {
        properties: &properties,
        partition_key: Some("k1"),
        event_time: Some(1_700_000_000_000),
        sequence_id: Some(0),
        ..SingleMetadata::default()
    };
    let two = SingleMetadata {
        partition_key: Some("AAH/"),
        partition_key_b64_encoded: true,
        ordering_key: Some(b"ok"),
        sequence_id: Some(1),
        ..SingleMetadata::default()
    };
    let three = SingleMetadata {
        partition_key: Some("k3"),
        null_value: true,
        sequence_id: Some(2),
        ..SingleMetadata::default()
    };
    for (metadata, value) in [(one, &b"one"[..]), (two, b"two"), (three, b"")] {
        let before = writer.len();
        writer.append(&metadata, value);
        assert_eq!(writer.len() - before, metadata.record_len(value.len()));
    }
    // Java also writes flags that are false, so the bytes differ and the meaning doesn't.
    let body = writer.take();
    let meaning = |body: &Bytes| -> Vec<_> {
        records(body)
            .iter()
            .map(|r| Record { metadata: Default::default(), payload_offset: 0, ..*r })
            .map(|r| Record { partition_key: None, ordering_key: None, ..r })
            .collect()
    };
    assert_eq!(meaning(&body), meaning(&payload.body));
    for (ours, theirs) in records(&body).iter().zip(records(&payload.body)) {
        assert_eq!(ours.payload(&body), theirs.payload(&payload.body));
        assert_eq!(ours.key(&body), theirs.key(&payload.body));
        assert_eq!(ours.ordering_key(&body), theirs.ordering_key(&payload.body));
        assert_eq!(ours.properties(&body), theirs.properties(&payload.body));
    }
}

#[test]
fn java_sends_a_batch_of_one_as_a_plain_message() {
    let (_, payload, metadata) = decode("msg-batch-of-one.hex");
    assert_eq!(metadata.num_messages_in_batch, None);
    assert_eq!(payload.body.len(), metadata.uncompressed_size() as usize);
}

#[test]
fn compacted_records_are_marked() {
    let (_, payload, metadata) = decode("msg-compacted-0.hex");
    let body = plain(&payload, &metadata);
    let records = records(&body);
    assert_eq!(records.len(), 4);
    assert!(records.iter().any(|r| r.compacted_out && r.payload_len == 0));
    assert!(records.iter().any(|r| !r.compacted_out));
}

#[test]
fn chunks_add_up_to_the_announced_size() {
    let mut whole = Vec::new();
    let mut total = None;
    for i in 0..5 {
        let (_, payload, metadata) = decode(&format!("msg-chunk-{i}.hex"));
        assert_eq!(metadata.chunk_id, Some(i));
        assert_eq!(metadata.num_chunks_from_msg, Some(5));
        total = metadata.total_chunk_msg_size;
        whole.extend_from_slice(&payload.body);
    }
    assert_eq!(total, Some(whole.len() as i32));
}

#[test]
fn encrypted_messages_name_their_keys() {
    for name in ["msg-encrypted-rsa.hex", "msg-encrypted-ecies.hex"] {
        let (_, payload, metadata) = decode(name);
        assert_eq!(metadata.encryption_keys.len(), 1, "{name}");
        assert_eq!(metadata.encryption_param().len(), 12, "{name}");
        assert!(payload.body.len() > 16, "{name}: at least the tag");
    }
}

#[test]
fn checksums_are_castagnoli() {
    for row in rows("crc32c.tsv") {
        let (kind, text) = row[0].split_once(':').expect("kind:text");
        let data = match (kind, text) {
            ("ascii", "(empty)") => Vec::new(),
            ("ascii", text) => text.as_bytes().to_vec(),
            ("hex", text) => {
                let (byte, times) = text.split_once('x').expect("byte x times");
                vec![unhex(byte)[0]; times.parse().expect("a number")]
            }
            _ => panic!("unknown row {row:?}"),
        };
        assert_eq!(format!("{:08x}", crc32c::crc32c(&data)), row[1], "{row:?}");
    }
}

#[test]
fn keys_hash_as_in_the_java_client() {
    for row in rows("hash.tsv") {
        let key = String::from_utf8(unhex(&row[1])).expect("UTF-8");
        let number = |column: usize| -> u32 { row[column].parse().expect("a number") };
        let (java, murmur) = (HashingScheme::JavaStringHash, HashingScheme::Murmur3_32Hash);
        assert_eq!(murmur.hash(&key), number(3), "{row:?}");
        assert_eq!(java.hash(&key), number(4), "{row:?}");
        assert_eq!(murmur.partition(&key, 5), number(7), "{row:?}");
        assert_eq!(java.partition(&key, 5), number(8), "{row:?}");
        assert_eq!(sticky_slot(key.as_bytes()), number(9), "{row:?}");
    }
}

#[test]
fn keys_hash_as_in_the_cpp_client() {
    for row in rows("hash-boost.tsv") {
        let key = String::from_utf8(unhex(&row[1])).expect("UTF-8");
        assert_eq!(HashingScheme::BoostHash.hash(&key).to_string(), row[2], "{row:?}");
    }
}

#[test]
fn message_ids_serialise_as_in_the_java_client() {
    for row in rows("message-ids.tsv") {
        let (meaning, bytes) = (&row[0], unhex(&row[1]));
        let id = MessageId::from_bytes(&bytes).expect("it decodes");
        let expected = match &meaning[..] {
            m if m.contains("earliest") => MessageId::EARLIEST,
            m if m.contains("latest") => MessageId::LATEST,
            m if m.contains("producer-returned") => {
                let text = m.split(" = ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an id");
                text.parse().expect("an id")
            }
            m if m.contains("non-batch") => MessageId::new(15155, 0, -1),
            m if m.contains("chunked") => MessageId::new(15157, 4, -1),
            m if m.contains("batch_size 8") => MessageId::new(10, 5, 2).in_batch(3, 8),
            m if m.contains("only") => MessageId::new(10, 5, -1),
            m if m.contains("partition 0") => MessageId::new(10, 5, 0),
            m => panic!("unknown row {m}"),
        };
        assert_eq!(id, expected, "{meaning}");
        assert_eq!(id.batch_size, expected.batch_size, "{meaning}");
        if meaning.contains("chunked") {
            let chunk = ChunkMessageId::from_bytes(&bytes).expect("it decodes").expect("a chunk id");
            assert_eq!(chunk.to_string(), "15157:0:-1;15157:4:-1");
            assert_eq!(chunk.to_bytes(), bytes);
        } else {
            assert_eq!(ChunkMessageId::from_bytes(&bytes), Ok(None));
            // The last rows are as short as others write them; Java adds the batch size.
            let written = id.to_bytes();
            assert!(written == bytes || written == [&bytes[..], &[0x30, 0]].concat(), "{meaning}");
        }
    }
}

#[test]
fn ack_sets_have_javas_words() {
    for row in rows("acksets.tsv") {
        let size: u32 = row[0].parse().expect("a number");
        let mut set = AckSet::full(size);
        match &row[1][..] {
            "all" => (0..size).for_each(|i| assert!(set.clear(i))),
            text if text.starts_with("cumulative up to ") => {
                set.clear_through(text["cumulative up to ".len()..].parse().expect("a number"));
            }
            text => {
                for part in text.split(',') {
                    let (from, to) = part.split_once("..").unwrap_or((part, part));
                    for i in from.parse().expect("a number")..=to.parse().expect("a number") {
                        assert!(set.clear(i));
                    }
                }
            }
        }
        let words: Vec<i64> = row[2].split(',').map_while(|word| word.parse().ok()).collect();
        assert_eq!(set.words(), words, "{row:?}");
        assert_eq!(AckSet::from_words(&[&words[..], &[0, 0]].concat()), set);
    }
}
