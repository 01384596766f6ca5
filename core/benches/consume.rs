//! What consuming costs per message in the core alone: MESSAGE frames in, `receive` and an acknowledgement of each, FLOW
//! and ACK bytes out.
//!
//! `cargo bench -p geminga-core --bench consume` reports per message. Batches hold 1000 messages of 100 bytes.
use std::hint::black_box;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use geminga_core::wire::{
    BatchWriter, Command, Metadata, SingleMetadata,
    frame::{self, encode_message},
    proto,
};
use geminga_core::{Client, ClientConfig, ConnId, ConsumerConfig, ConsumerId, Input, Mono, Now, Output};

const MESSAGES: usize = 1000;

/// A client with one open consumer, and a broker that answers what opening it takes.
struct World {
    client: Client,
    now: Now,
    conn: Option<ConnId>,
    consumer: ConsumerId,
    wire_id: u64,
    next_entry: u64,
    chunks: Vec<Bytes>,
}

impl World {
    fn new() -> Self {
        let now = Now { mono: Mono::from_nanos(1), unix_ms: 1 };
        let config = ClientConfig::new("pulsar://broker").expect("a good URL");
        let mut client = Client::new(config, [1; 32], now).expect("a good configuration");
        let config =
            ConsumerConfig { ack_group_time: Duration::from_millis(100), ..ConsumerConfig::new("t", "s") };
        let consumer = client.subscribe(now, config).expect("a good configuration");
        let mut world =
            World { client, now, conn: None, consumer, wire_id: 0, next_entry: 0, chunks: Vec::new() };
        world.pump();
        world
    }

    fn pump(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                Output::Connect(id, _) => {
                    self.conn = Some(id);
                    self.client.handle(self.now, Input::Connected(id));
                }
                Output::Transmit(id) => {
                    while self.client.transmit(id, usize::MAX, &mut self.chunks) > 0 {}
                    if self.wire_id == 0 && self.next_entry == 0 {
                        self.answer(id);
                    }
                    self.chunks.clear();
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, id: ConnId) {
        let mut written = BytesMut::from(&self.chunks.concat()[..]);
        while let Some(bytes) = frame::split(&mut written, 1 << 20).expect("a frame") {
            let answer = match frame::decode(bytes).expect("it decodes").command {
                Command::Connect(_) => Command::Connected(proto::CommandConnected {
                    protocol_version: Some(21),
                    ..Default::default()
                }),
                Command::PartitionedMetadata(ask) => {
                    Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
                        request_id: ask.request_id,
                        partitions: Some(0),
                        ..Default::default()
                    })
                }
                Command::Lookup(ask) => Command::LookupResponse(proto::CommandLookupTopicResponse {
                    request_id: ask.request_id,
                    response: Some(1),
                    broker_service_url: Some("pulsar://broker".into()),
                    ..Default::default()
                }),
                Command::Subscribe(subscribe) => {
                    self.wire_id = subscribe.consumer_id;
                    Command::Success(proto::CommandSuccess { request_id: subscribe.request_id, schema: None })
                }
                _ => continue,
            };
            let mut bytes = BytesMut::new();
            answer.encode(&mut bytes);
            self.client.handle(self.now, Input::Received(id, &mut bytes));
        }
    }

    /// Frames with `MESSAGES` messages in batches of `batch_size`, or one by one for `None`.
    fn frames(&mut self, batch_size: Option<usize>) -> BytesMut {
        let mut out = BytesMut::new();
        let mut batch = BatchWriter::new();
        for _ in 0..MESSAGES / batch_size.unwrap_or(1) {
            let body = match batch_size {
                None => Bytes::from_static(&[b'x'; 100]),
                Some(n) => {
                    for _ in 0..n {
                        batch.append(&SingleMetadata::default(), &[b'x'; 100]);
                    }
                    batch.take()
                }
            };
            let metadata = Metadata {
                producer_name: "standalone-0-1",
                publish_time: 1_790_000_000_000,
                num_messages_in_batch: batch_size.map(|n| n as i32),
                ..Metadata::default()
            };
            let mut rest = BytesMut::new();
            rest.put_u32(metadata.encoded_len() as u32);
            metadata.write(&mut rest);
            rest.put_slice(&body);
            let mut raw = BytesMut::from(&[0x0e, 0x01][..]);
            raw.put_u32(crc32c::crc32c(&rest));
            raw.put_slice(&rest);
            let command = proto::CommandMessage {
                consumer_id: self.wire_id,
                message_id: proto::MessageIdData {
                    ledger_id: 1,
                    entry_id: self.next_entry,
                    ..Default::default()
                },
                ..Default::default()
            };
            self.next_entry += 1;
            let (head, raw) = encode_message(&command, None, &raw.freeze());
            out.put_slice(&head);
            out.put_slice(&raw);
        }
        out
    }

    fn arrive(&mut self, frames: &mut BytesMut) {
        let conn = self.conn.expect("connected");
        self.client.handle(self.now, Input::Received(conn, frames));
    }

    /// Receives everything and tells the broker as `ack` does. Returns how many messages there were.
    fn consume(&mut self, ack: Ack) -> usize {
        let mut messages = 0;
        let mut consumer = self.client.consumer(self.consumer).expect("open");
        while let Some(message) = consumer.receive(self.now) {
            messages += 1;
            black_box(message.payload());
            let id = message.message_id();
            match ack {
                Ack::None => Ok(()),
                Ack::Each => consumer.acknowledge(self.now, &id),
                Ack::Cumulative => consumer.acknowledge_cumulative(self.now, &id),
            }
            .expect("its own id");
        }
        self.pump();
        messages
    }
}

#[derive(Clone, Copy)]
enum Ack {
    None,
    Each,
    Cumulative,
}

fn consume(c: &mut Criterion) {
    let mut group = c.benchmark_group("consume_100B");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    let rows = [
        ("batch_1000/receive", Some(1000), Ack::None),
        ("batch_1000/receive_ack", Some(1000), Ack::Each),
        ("batch_1000/receive_ack_cumulative", Some(1000), Ack::Cumulative),
        ("batch_10/receive_ack", Some(10), Ack::Each),
        ("single/receive_ack", None, Ack::Each),
    ];
    for (name, batch_size, ack) in rows {
        let world = std::cell::RefCell::new(World::new());
        group.bench_function(format!("{name}/after_arrival"), |b| {
            b.iter_batched(
                || {
                    let mut world = world.borrow_mut();
                    let mut frames = world.frames(batch_size);
                    world.arrive(&mut frames);
                },
                |()| assert_eq!(world.borrow_mut().consume(ack), MESSAGES),
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("{name}/with_arrival"), |b| {
            b.iter_batched_ref(
                || world.borrow_mut().frames(batch_size),
                |frames| {
                    let mut world = world.borrow_mut();
                    world.arrive(frames);
                    assert_eq!(world.consume(ack), MESSAGES);
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, consume);
criterion_main!(benches);
