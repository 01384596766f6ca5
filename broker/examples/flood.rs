//! How much the embedded broker moves, whatever the client: raw frames over TCP in 1000-message batches of 100 bytes,
//! published by one thread and consumed by another.
//!
//! `cargo run --release -p geminga-broker --example flood -- 5000`: so many batches; prints messages a second.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_core::wire::metadata::SendHeader;
use geminga_core::wire::{BatchWriter, Command, Metadata, SingleMetadata, encode_send, frame, proto};

const TOPIC: &str = "persistent://public/default/flood";
const MESSAGES: i32 = 1000;
/// Batches that may wait for their receipt, and be granted ahead.
const WINDOW: u64 = 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let batches: u64 = std::env::args().nth(1).map_or(Ok(5000), |n| n.parse())?;
    let broker = EmbeddedBroker::start_blocking(Config::default())?;
    let address = broker.service_url().trim_start_matches("pulsar://").to_owned();
    let mut consumer = Client::connect(&address)?;
    consumer.send(&Command::Subscribe(Box::new(proto::CommandSubscribe {
        topic: TOPIC.to_owned(),
        subscription: "s".to_owned(),
        request_id: 2,
        ..Default::default()
    })))?;
    consumer.next()?;
    let started = Instant::now();
    let consuming = std::thread::spawn(move || consume(consumer, batches));
    publish(Client::connect(&address)?, batches)?;
    consuming.join().expect("the consumer does not panic")?;
    let rate = (batches as f64 * f64::from(MESSAGES)) / started.elapsed().as_secs_f64();
    #[expect(clippy::print_stdout, reason = "the figure is this program's output")]
    {
        println!("{rate:.0} messages a second in and out");
    }
    broker.stop();
    Ok(())
}

fn publish(mut client: Client, batches: u64) -> Outcome<()> {
    let producer = proto::CommandProducer { topic: TOPIC.to_owned(), request_id: 2, ..Default::default() };
    client.send(&Command::Producer(Box::new(producer)))?;
    client.next()?;
    let mut batch = BatchWriter::new();
    for _ in 0..MESSAGES {
        batch.append(&SingleMetadata::default(), &[7; 100]);
    }
    let metadata =
        Metadata { producer_name: "p", num_messages_in_batch: Some(MESSAGES), ..Default::default() };
    let header = SendHeader { num_messages: MESSAGES, ..Default::default() };
    let send = encode_send(&header, &metadata, batch.take(), true);
    let whole = [&send.head[..], &send.body[..]].concat();
    let mut receipts = 0;
    for sent in 0..batches {
        client.socket.write_all(&whole)?;
        while sent + 1 - receipts >= WINDOW {
            client.next()?;
            receipts += 1;
        }
    }
    while receipts < batches {
        client.next()?;
        receipts += 1;
    }
    Ok(())
}

fn consume(mut client: Client, batches: u64) -> Outcome<()> {
    let message_permits = WINDOW as u32 * MESSAGES as u32;
    client.send(&Command::Flow(proto::CommandFlow { consumer_id: 0, message_permits }))?;
    for got in 1..=batches {
        let message = client.next()?;
        if got % (WINDOW / 2) == 0 {
            let Command::Message(message) = Command::decode(command_of(&message)?)? else {
                return Err("not a message".into());
            };
            let mut ack = proto::CommandAck { message_id: vec![message.message_id], ..Default::default() };
            ack.set_ack_type(proto::command_ack::AckType::Cumulative);
            client.send(&Command::Ack(ack))?;
            let flow = proto::CommandFlow { consumer_id: 0, message_permits: message_permits / 2 };
            client.send(&Command::Flow(flow))?;
        }
    }
    Ok(())
}

/// The command's bytes in a frame.
fn command_of(frame: &[u8]) -> Outcome<&[u8]> {
    let size = frame.get(4..).and_then(|f| f.first_chunk::<4>()).ok_or("a frame without a command")?;
    Ok(frame.get(8..8 + u32::from_be_bytes(*size) as usize).ok_or("a frame cut short")?)
}

struct Client {
    socket: TcpStream,
    read: BytesMut,
}

impl Client {
    /// Connects, shakes hands and looks the topic up, so that it has an owner.
    fn connect(address: &str) -> Outcome<Self> {
        let mut client = Client { socket: TcpStream::connect(address)?, read: BytesMut::new() };
        client.socket.set_nodelay(true)?;
        client.send(&Command::Connect(Box::default()))?;
        client.next()?;
        client.send(&Command::Lookup(proto::CommandLookupTopic {
            topic: TOPIC.to_owned(),
            request_id: 1,
            ..Default::default()
        }))?;
        client.next()?;
        Ok(client)
    }

    fn send(&mut self, command: &Command) -> Outcome<()> {
        let mut bytes = BytesMut::new();
        command.encode(&mut bytes);
        Ok(self.socket.write_all(&bytes)?)
    }

    fn next(&mut self) -> Outcome<Bytes> {
        loop {
            if let Some(frame) = frame::split(&mut self.read, usize::MAX)? {
                return Ok(frame);
            }
            let filled = self.read.len();
            self.read.resize((filled + 64 * 1024).max(self.read.capacity()), 0);
            let read = self.socket.read(&mut self.read[filled..])?;
            self.read.truncate(filled + read);
            if read == 0 {
                return Err("the broker closed the connection".into());
            }
        }
    }
}
