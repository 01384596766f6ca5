//! The scripted broker: answers handshakes and lookups by itself and records everything else.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;

use crate::wire::batch::{BatchWriter, SingleMetadata};
use crate::wire::command::Command;
use crate::wire::frame::{self, encode_message};
use crate::wire::proto;
use crate::*;

pub(super) const TOPIC: &str = "persistent://public/default/t";

/// A client, the connection it has, and what both said.
pub(super) struct Script {
    pub(super) client: Client,
    pub(super) now: Now,
    /// The newest connection.
    pub(super) conn: Option<ConnId>,
    pub(super) written: VecDeque<Command>,
    pub(super) events: VecDeque<Event>,
    /// How many partitions every topic has.
    pub(super) partitions: u32,
}

impl Script {
    pub(super) fn new() -> Self {
        Script::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut ClientConfig)) -> Self {
        let now = Now { mono: Mono::from_nanos(1_000_000_000), unix_ms: 1_700_000_000_000 };
        let mut config = ClientConfig::new("pulsar://broker:6650").unwrap();
        change(&mut config);
        let client = Client::new(config, [7; 32], now).unwrap();
        Script { client, now, conn: None, written: VecDeque::new(), events: VecDeque::new(), partitions: 0 }
    }

    /// Does what the client wants until it wants nothing more.
    pub(super) fn pump(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                Output::Connect(id, _) => {
                    self.conn = Some(id);
                    self.client.handle(self.now, Input::Connected(id));
                }
                Output::Transmit(id) => self.read(id),
                Output::Disconnect(_) | Output::Ask(..) => {}
                Output::Event(event) => self.events.push_back(event),
            }
        }
        self.client.check_invariants();
    }

    fn read(&mut self, id: ConnId) {
        let mut chunks = Vec::new();
        while self.client.transmit(id, usize::MAX, &mut chunks) > 0 {}
        let mut buffer = BytesMut::from(&chunks.concat()[..]);
        while let Some(frame) = frame::split(&mut buffer, usize::MAX).unwrap() {
            let command = frame::decode(frame).unwrap().command;
            let answer = match &command {
                Command::Connect(_) => Command::Connected(proto::CommandConnected {
                    server_version: "scripted".into(),
                    protocol_version: Some(21),
                    max_message_size: Some(5 << 20),
                    ..Default::default()
                }),
                Command::PartitionedMetadata(ask) => {
                    Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
                        partitions: Some(self.partitions),
                        request_id: ask.request_id,
                        response: Some(0),
                        ..Default::default()
                    })
                }
                Command::Lookup(ask) => Command::LookupResponse(proto::CommandLookupTopicResponse {
                    broker_service_url: Some("pulsar://broker:6650".into()),
                    response: Some(1),
                    request_id: ask.request_id,
                    authoritative: Some(true),
                    ..Default::default()
                }),
                Command::Ping => Command::Pong,
                _ => {
                    self.written.push_back(command);
                    continue;
                }
            };
            let mut bytes = BytesMut::new();
            answer.encode(&mut bytes);
            self.client.handle(self.now, Input::Received(id, &mut bytes));
        }
        assert!(buffer.is_empty(), "frames are written whole");
    }

    /// The broker sends these bytes in one packet.
    pub(super) fn send(&mut self, frames: &[Bytes]) {
        let mut packet = BytesMut::from(&frames.concat()[..]);
        self.client.handle(self.now, Input::Received(self.conn.expect("connected"), &mut packet));
        self.pump();
    }

    pub(super) fn say(&mut self, command: Command) {
        self.send(&[encoded(&command)]);
    }

    pub(super) fn advance(&mut self, by: Duration) {
        let until = self.now.mono + by;
        while let Some(at) = self.client.deadline().filter(|at| *at <= until) {
            self.now.mono = self.now.mono.max(at);
            self.client.handle(self.now, Input::Tick);
            self.pump();
        }
        self.now.mono = until;
        self.client.handle(self.now, Input::Tick);
        self.pump();
    }

    pub(super) fn ms(&mut self, ms: u64) {
        self.advance(Duration::from_millis(ms));
    }

    /// The link breaks.
    pub(super) fn cut(&mut self) {
        let id = self.conn.take().expect("connected");
        let why = LinkError { kind: LinkErrorKind::Closed, message: "cut".into() };
        self.client.handle(self.now, Input::Disconnected(id, why));
        self.pump();
    }

    pub(super) fn subscribe(&mut self, config: ConsumerConfig) -> ConsumerId {
        let id = self.client.subscribe(self.now, config).unwrap();
        self.pump();
        id
    }

    /// A consumer that is open, with its FLOW taken off. Returns its id and its wire id.
    pub(super) fn open(&mut self, config: ConsumerConfig) -> (ConsumerId, u64) {
        let size = config.receiver_queue_size;
        let id = self.subscribe(config);
        let wire = self.accept();
        if size > 0 {
            assert_eq!(self.flow(), size);
        }
        assert!(matches!(self.events.pop_front(), Some(Event::Opened(HandleId::Consumer(c))) if c == id));
        (id, wire)
    }

    pub(super) fn open_reader(&mut self, config: ReaderConfig) -> (ConsumerId, u64) {
        let id = self.client.create_reader(self.now, config).unwrap();
        self.pump();
        let wire = self.accept();
        (id, wire)
    }

    /// Answers the SUBSCRIBE that must be next. Returns its consumer id.
    pub(super) fn accept(&mut self) -> u64 {
        let subscribe = self.expect_subscribe();
        self.say(success(subscribe.request_id));
        subscribe.consumer_id
    }

    pub(super) fn next(&mut self) -> Command {
        self.written.pop_front().expect("the client wrote something")
    }

    pub(super) fn expect_subscribe(&mut self) -> proto::CommandSubscribe {
        match self.next() {
            Command::Subscribe(subscribe) => *subscribe,
            other => panic!("{other:?} instead of SUBSCRIBE"),
        }
    }

    pub(super) fn flow(&mut self) -> u32 {
        match self.next() {
            Command::Flow(flow) => flow.message_permits,
            other => panic!("{other:?} instead of FLOW"),
        }
    }

    /// The ACK that must be next: whether it is cumulative, and its ids with their sets.
    pub(super) fn ack(&mut self) -> (bool, Vec<(i64, Vec<i64>)>) {
        match self.next() {
            Command::Ack(ack) => {
                assert_eq!(ack.validation_error, None);
                let ids = ack.message_id.iter().map(|id| (id.entry_id as i64, id.ack_set.clone()));
                (ack.ack_type == 1, ids.collect())
            }
            other => panic!("{other:?} instead of ACK"),
        }
    }

    pub(super) fn redeliver(&mut self) -> (Vec<u64>, Option<u64>) {
        match self.next() {
            Command::RedeliverUnacknowledgedMessages(r) => {
                (r.message_ids.iter().map(|id| id.entry_id).collect(), r.consumer_epoch)
            }
            other => panic!("{other:?} instead of REDELIVER"),
        }
    }

    pub(super) fn silent(&mut self) {
        assert!(self.written.is_empty(), "the client wrote {:?}", self.written);
    }

    pub(super) fn receive(&mut self, id: ConsumerId) -> Option<Message> {
        let message = self.client.consumer(id).unwrap().receive(self.now);
        self.pump();
        message
    }

    /// Payloads of everything that is here.
    pub(super) fn drain(&mut self, id: ConsumerId) -> Vec<String> {
        let mut out = Vec::new();
        while let Some(message) = self.receive(id) {
            out.push(text(&message));
        }
        out
    }

    /// Calls a method of the consumer's view with the time.
    pub(super) fn on<R>(&mut self, id: ConsumerId, call: impl FnOnce(Consumer<'_>, Now) -> R) -> R {
        let result = call(self.client.consumer(id).unwrap(), self.now);
        self.pump();
        result
    }

    /// The result of an operation that must have ended.
    pub(super) fn completed(&mut self, op: OpId) -> Result<Reply, Error> {
        let is_it = |e: &Event| matches!(e, Event::Completed(o, _) if *o == op);
        let at = self.events.iter().position(is_it).expect("the operation ended");
        match self.events.remove(at) {
            Some(Event::Completed(_, result)) => result,
            _ => unreachable!("found above"),
        }
    }

    pub(super) fn is_pending(&self, op: OpId) -> bool {
        !self.events.iter().any(|e| matches!(e, Event::Completed(o, _) if *o == op))
    }

    pub(super) fn has_event(&self, is_it: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(is_it)
    }
}

pub(super) fn config() -> ConsumerConfig {
    ConsumerConfig::new(TOPIC, "s")
}

pub(super) fn shared() -> ConsumerConfig {
    ConsumerConfig { subscription_type: SubscriptionType::Shared, ..config() }
}

pub(super) fn encoded(command: &Command) -> Bytes {
    let mut bytes = BytesMut::new();
    command.encode(&mut bytes);
    bytes.freeze()
}

pub(super) fn success(request_id: u64) -> Command {
    Command::Success(proto::CommandSuccess { request_id, schema: None })
}

pub(super) fn error(request_id: u64, error: proto::ServerError) -> Command {
    Command::Error(proto::CommandError { request_id, error: error as i32, message: "scripted".into() })
}

pub(super) fn close_consumer(consumer_id: u64) -> Command {
    let request_id = u64::MAX;
    Command::CloseConsumer(proto::CommandCloseConsumer { consumer_id, request_id, ..Default::default() })
}

pub(super) fn last_id(request_id: u64, last: MessageId, mark: Option<MessageId>) -> Command {
    Command::GetLastMessageIdResponse(Box::new(proto::CommandGetLastMessageIdResponse {
        last_message_id: last.to_proto(),
        request_id,
        consumer_mark_delete_position: mark.map(MessageId::to_proto),
    }))
}

/// The id of an entry on the topic without partitions.
pub(super) fn id(entry: i64) -> MessageId {
    MessageId::new(1, entry, -1)
}

pub(super) fn text(message: &Message) -> String {
    String::from_utf8(message.payload().to_vec()).unwrap()
}

/// A MESSAGE frame in the making.
pub(super) struct Delivery {
    command: proto::CommandMessage,
    metadata: proto::MessageMetadata,
    body: Bytes,
    corrupt: bool,
}

impl Delivery {
    pub(super) fn new(wire: u64, entry: i64, payload: &str) -> Self {
        Delivery {
            command: proto::CommandMessage {
                consumer_id: wire,
                message_id: id(entry).to_proto(),
                ..Default::default()
            },
            metadata: proto::MessageMetadata { producer_name: "p".into(), ..Default::default() },
            body: Bytes::copy_from_slice(payload.as_bytes()),
            corrupt: false,
        }
    }

    pub(super) fn batch(wire: u64, entry: i64, payloads: &[&str]) -> Self {
        let mut writer = BatchWriter::new();
        for payload in payloads {
            writer.append(&SingleMetadata::default(), payload.as_bytes());
        }
        let mut delivery = Delivery::new(wire, entry, "");
        delivery.metadata.num_messages_in_batch = Some(payloads.len() as i32);
        delivery.body = writer.take();
        delivery
    }

    pub(super) fn partition(mut self, partition: i32) -> Self {
        self.command.message_id.partition = Some(partition);
        self
    }

    pub(super) fn epoch(mut self, epoch: u64) -> Self {
        self.command.consumer_epoch = Some(epoch);
        self
    }

    pub(super) fn ack_set(mut self, words: &[i64]) -> Self {
        self.command.ack_set = words.to_vec();
        self
    }

    /// A batch that says it has `n` members, whatever it has.
    pub(super) fn claims(mut self, n: i32) -> Self {
        self.metadata.num_messages_in_batch = Some(n);
        self
    }

    pub(super) fn body(mut self, body: &'static [u8]) -> Self {
        self.body = Bytes::from_static(body);
        self
    }

    pub(super) fn corrupt(mut self) -> Self {
        self.corrupt = true;
        self
    }

    pub(super) fn frame(&self) -> Bytes {
        let metadata = self.metadata.encode_to_vec();
        let mut rest = BytesMut::new();
        rest.put_u32(metadata.len() as u32);
        rest.put_slice(&metadata);
        rest.put_slice(&self.body);
        let mut raw = BytesMut::from(&[0x0e, 0x01][..]);
        raw.put_u32(crc32c::crc32c(&rest) ^ u32::from(self.corrupt));
        raw.put_slice(&rest);
        let (head, raw) = encode_message(&self.command, None, &raw.freeze());
        [head, raw].concat().into()
    }
}
