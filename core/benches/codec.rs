//! What the codec costs per message: batches of 1000 messages of 100 bytes, encoded to a SEND frame and walked again.
//!
//! The work is that of a floor program, hand-written for this one case: 18 ns a message to encode, 10 to parse.
//! `cargo bench -p geminga-core --bench codec` reports per message.
use std::{collections::VecDeque, hint::black_box};

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use geminga_core::wire::{
    BatchWriter, Checksum, Command, Metadata, SendFrame, SendHeader, SingleMetadata, encode_send, frame,
    next_record,
};

const MESSAGES: usize = 1000;
const MAX_FRAME: usize = 5 << 20;

fn encode(batch: &mut BatchWriter, sequence_id: u64, payload: &[u8]) -> SendFrame {
    for _ in 0..MESSAGES {
        batch.append(&SingleMetadata::default(), payload);
    }
    let header =
        SendHeader { producer_id: 1, sequence_id, num_messages: MESSAGES as i32, ..SendHeader::default() };
    let metadata = Metadata {
        producer_name: "standalone-0-1",
        sequence_id,
        publish_time: 1_790_000_000_000,
        num_messages_in_batch: Some(MESSAGES as i32),
        ..Metadata::default()
    };
    encode_send(&header, &metadata, batch.take(), true)
}

/// Splits, checks and walks a frame; returns messages and payload bytes.
fn parse(buf: &mut BytesMut) -> (usize, usize) {
    let bytes = frame::split(buf, MAX_FRAME).expect("a frame").expect("a whole one");
    let frame = frame::decode(bytes).expect("it decodes");
    assert!(matches!(frame.command, Command::Send(_)));
    let payload = frame.payload.expect("a SEND has one");
    assert_eq!(payload.checksum, Checksum::Valid);
    let (mut at, mut messages, mut bytes) = (0, 0, 0);
    while let Some(record) = next_record(&payload.body, &mut at).expect("a good batch") {
        bytes += black_box(record.payload(&payload.body)).len();
        messages += 1;
    }
    (messages, bytes)
}

fn codec(c: &mut Criterion) {
    let payload = [b'x'; 100];
    let mut group = c.benchmark_group("codec_1000x100B");
    group.throughput(Throughput::Elements(MESSAGES as u64));

    // Frames live until their receipt: a few of them are kept, so that their memory is not simply used again.
    let (mut batch, mut sequence_id, mut pending) = (BatchWriter::new(), 0, VecDeque::new());
    group.bench_function("encode", |b| {
        b.iter(|| {
            sequence_id += 1;
            pending.push_back(encode(&mut batch, sequence_id, black_box(&payload)));
            if pending.len() > 16 { pending.pop_front() } else { None }
        });
    });

    let frame = encode(&mut BatchWriter::new(), 1, &payload);
    let whole: Bytes = [frame.head, frame.body].concat().into();
    group.bench_function("decode", |b| {
        b.iter_batched_ref(
            || BytesMut::from(&whole[..]),
            |buf| assert_eq!(parse(black_box(buf)), (MESSAGES, MESSAGES * 100)),
            criterion::BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
