//! What the whole machine costs per message, without sockets: 1000 messages of 100 bytes from `send` to their receipt.
//!
//! `cargo bench -p geminga-core --bench client` reports per message; `codec` is the part of it that is bytes.
#![allow(missing_docs)]
use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use geminga_core::wire::{Command, frame, proto};
use geminga_core::{
    Client, ClientConfig, ConnId, Event, Input, Mono, Now, OutgoingMessage, Output, ProducerConfig,
};

const MESSAGES: u64 = 1000;

fn now(micros: u64) -> Now {
    Now { mono: Mono::from_nanos(micros * 1000), unix_ms: 1_790_000_000_000 + micros / 1000 }
}

/// A client and the least broker that lets a producer open and confirms what it sends.
struct Bench {
    client: Client,
    micros: u64,
    conn: Option<ConnId>,
    inbound: BytesMut,
    events: Vec<Event>,
    entry: u64,
}

impl Bench {
    fn new() -> Self {
        let config = ClientConfig::new("pulsar://localhost").expect("a good URL");
        let client = Client::new(config, [7; 32], now(0)).expect("a good configuration");
        Bench { client, micros: 0, conn: None, inbound: BytesMut::new(), events: Vec::new(), entry: 0 }
    }

    /// Gives each output its effect until nothing is left to do.
    fn pump(&mut self) {
        loop {
            self.micros += 1;
            let now = now(self.micros);
            match self.client.poll() {
                Some(Output::Connect(id, _)) => {
                    self.conn = Some(id);
                    self.client.handle(now, Input::Connected(id));
                }
                Some(Output::Transmit(id)) => {
                    let mut out = Vec::new();
                    self.client.transmit(id, usize::MAX, &mut out);
                    let bytes: Vec<u8> = out.concat();
                    self.answer(&bytes);
                    let mut inbound = std::mem::take(&mut self.inbound);
                    self.client.handle(now, Input::Received(id, &mut inbound));
                }
                Some(Output::Event(event)) => self.events.push(event),
                Some(Output::Disconnect(_) | Output::Ask(..)) => {}
                None => return,
            }
        }
    }

    fn answer(&mut self, bytes: &[u8]) {
        let mut buf = BytesMut::from(bytes);
        while let Ok(Some(bytes)) = frame::split(&mut buf, 16 << 20) {
            let command = frame::decode(bytes).expect("our own frames decode").command;
            if let Command::Send(ref send) = command {
                self.entry += 1;
                let id = proto::MessageIdData { ledger_id: 1, entry_id: self.entry, ..Default::default() };
                let receipt = proto::CommandSendReceipt {
                    producer_id: send.producer_id,
                    sequence_id: send.sequence_id,
                    message_id: Some(id),
                    highest_sequence_id: send.highest_sequence_id,
                };
                Command::SendReceipt(receipt).encode(&mut self.inbound);
                continue;
            }
            let reply = match command {
                Command::Connect(_) => Command::Connected(proto::CommandConnected {
                    server_version: "bench".to_owned(),
                    protocol_version: Some(21),
                    ..Default::default()
                }),
                Command::PartitionedMetadata(ask) => {
                    Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
                        partitions: Some(0),
                        request_id: ask.request_id,
                        ..Default::default()
                    })
                }
                Command::Lookup(ask) => Command::LookupResponse(proto::CommandLookupTopicResponse {
                    broker_service_url: Some("pulsar://localhost:6650".to_owned()),
                    response: Some(1),
                    request_id: ask.request_id,
                    ..Default::default()
                }),
                Command::Producer(ask) => Command::ProducerSuccess(proto::CommandProducerSuccess {
                    request_id: ask.request_id,
                    producer_name: "standalone-0-1".to_owned(),
                    ..Default::default()
                }),
                _ => continue,
            };
            reply.encode(&mut self.inbound);
        }
    }
}

fn produce(c: &mut Criterion) {
    let mut bench = Bench::new();
    let id =
        bench.client.create_producer(now(0), ProducerConfig::new("bench")).expect("a good configuration");
    bench.pump();
    assert!(bench.events.iter().any(|e| matches!(e, Event::Opened(_))), "{:?}", bench.events);
    let payload = Bytes::from(vec![b'x'; 100]);
    let mut group = c.benchmark_group("client_1000x100B");
    group.throughput(Throughput::Elements(MESSAGES));
    group.bench_function("send", |b| {
        b.iter(|| {
            for _ in 0..MESSAGES {
                let mut producer = bench.client.producer(id).expect("it is open");
                let message = OutgoingMessage::new(black_box(&payload).clone());
                black_box(producer.send(now(bench.micros), message).expect("there is room"));
            }
            bench.pump();
            bench.events.clear();
        });
    });
    assert_eq!(bench.client.stats().pending_messages, 0);
    group.finish();
}

criterion_group!(benches, produce);
criterion_main!(benches);
