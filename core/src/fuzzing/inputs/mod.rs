//! Whole input sequences: any bytes are a script of what the world and the application do to one client.
//!
//! What must hold whatever they do: no panic, invariants after each step, one outcome for each send and operation, one end
//! for each handle, and a close that leaves nothing.

mod broker;
mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::BytesMut;

use self::broker::request_id;
use self::script::Script;
use crate::wire::{Command, frame};
use crate::{
    Answer, AskId, Authentication, Batching, Client, ClientConfig, ClientStats, Compression, ConnId,
    ConsumerConfig, ConsumerId, Event, HandleId, Input, LinkError, LinkErrorKind, MessageId, Mono, Now, OpId,
    OperationRetries, OutgoingMessage, Output, Position, ProducerConfig, ProducerId, ReaderConfig,
    SubscriptionType,
};

/// Larger than any frame of the script.
const MAX_FRAME: usize = 16 << 20;
/// Ticks that an end may take; more is a loop.
const MOST_TICKS: u32 = 20_000;

/// Runs a script, whose first byte is the configuration. Panics only when the core breaks a promise.
pub fn inputs(data: &[u8]) {
    let (setup, script) = data.split_first().unwrap_or((&0, &[]));
    let mut world = World::new(*setup);
    world.run(script);
    world.end();
}

struct World {
    client: Client,
    now: Now,
    /// Links asked for and not ended, with what was read of them.
    links: BTreeMap<ConnId, BytesMut>,
    /// Bytes that the client wrote, link by link.
    written: BTreeMap<ConnId, BytesMut>,
    /// Credentials that the client waits for.
    asks: VecDeque<AskId>,
    /// Requests that the client waits for.
    asked: VecDeque<(ConnId, Command)>,
    /// Wire ids with their links.
    wire_consumers: BTreeSet<(ConnId, u64)>,
    wire_producers: BTreeSet<(ConnId, u64)>,
    producers: Vec<ProducerId>,
    consumers: Vec<ConsumerId>,
    received: Vec<MessageId>,
    /// Messages that the broker stored, as the client says.
    stored: u32,
    sends: BTreeSet<(ProducerId, u64, u32)>,
    operations: BTreeSet<OpId>,
    ended: BTreeSet<HandleId>,
    next_entry: i64,
}

impl World {
    fn new(setup: u8) -> Self {
        let is = |bit: u8| setup & 1 << bit != 0;
        let url = if is(0) { "pulsar://a,b" } else { "pulsar://a" };
        let mut config = ClientConfig::new(url).expect("a service URL");
        config.memory_limit = if is(1) { 0 } else { 4096 };
        if is(2) {
            config.authentication = Authentication::Ask { method: "token".to_owned() };
        }
        if is(3) {
            config.operation_retries = OperationRetries::within_operation_timeout();
        }
        if is(4) {
            config.concurrent_lookups = 1;
        }
        let now = Now { mono: Mono::from_nanos(1), unix_ms: 1_750_000_000_000 };
        World {
            client: Client::new(config, [7; 32], now).expect("a configuration"),
            now,
            links: BTreeMap::new(),
            written: BTreeMap::new(),
            asks: VecDeque::new(),
            asked: VecDeque::new(),
            wire_consumers: BTreeSet::new(),
            wire_producers: BTreeSet::new(),
            producers: Vec::new(),
            consumers: Vec::new(),
            received: Vec::new(),
            stored: 0,
            sends: BTreeSet::new(),
            operations: BTreeSet::new(),
            ended: BTreeSet::new(),
            next_entry: 0,
        }
    }

    fn run(&mut self, script: &[u8]) {
        let mut script = Script(script);
        while let Some(step) = script.byte() {
            self.step(step, &mut script);
            self.settle();
        }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let links: Vec<ConnId> = self.links.keys().copied().collect();
        match step % 26 {
            0 => {
                if let Some(link) = script.pick(&links) {
                    self.client.handle(self.now, Input::Connected(link));
                }
            }
            1 => {
                if let Some(link) = script.pick(&links) {
                    let bytes = script.bytes();
                    self.hear(link, &bytes);
                }
            }
            2 | 3 => self.answer(script),
            4 => {
                if let Some(link) = script.pick(&links) {
                    self.links.remove(&link);
                    self.forget(link);
                    let kind = [LinkErrorKind::Closed, LinkErrorKind::Unreachable, LinkErrorKind::Tls];
                    let kind = script.pick(&kind).expect("there are three");
                    let error = LinkError { kind, message: "fuzzed".to_owned() };
                    self.client.handle(self.now, Input::Disconnected(link, error));
                }
            }
            5 | 6 => {
                let ms = u64::from(script.number()).pow(2);
                self.advance(Duration::from_millis(ms));
                self.client.handle(self.now, Input::Tick);
            }
            7 => self.create_producer(script),
            8 => self.subscribe(script),
            9 => {
                let start = [Position::Earliest, Position::Latest, Position::PublishTime(1)];
                let start = script.pick(&start).expect("there are three");
                let reader = self.client.create_reader(self.now, ReaderConfig::new("t", start));
                self.consumers.extend(reader);
            }
            10 | 11 => self.send(script),
            12 => {
                let bytes = self.message(script);
                let consumers = Vec::from_iter(self.wire_consumers.iter().copied());
                if let Some((link, _)) = script.pick(&consumers) {
                    self.hear(link, &bytes);
                }
            }
            13 => self.receipt(script),
            14 => self.closed_by_broker(script),
            15..=21 => self.consume(step % 26, script),
            22 => {
                let Some(id) = script.pick(&self.producers) else { return };
                let flush = script.number().is_multiple_of(2);
                if let Ok(mut producer) = self.client.producer(id) {
                    match flush {
                        true => drop(self.operations.insert(producer.flush(self.now))),
                        false => producer.close(self.now),
                    }
                }
            }
            23 => {
                let asked = match script.number() % 3 {
                    0 => self.client.partitions(self.now, "t"),
                    1 => self.client.lookup_topic(self.now, "t"),
                    _ => self.client.topics_of_namespace(self.now, "public/default", Default::default()),
                };
                self.operations.extend(asked);
            }
            24 => {
                let Some(ask) = self.asks.pop_front() else { return };
                let answer = match script.number() % 4 {
                    0 => Err("fuzzed".to_owned()),
                    _ => Ok(Answer::Credentials(script.bytes())),
                };
                self.client.handle(self.now, Input::Answered(ask, answer));
            }
            _ => {
                if let Some(link) = script.pick(&links) {
                    let news = self.news(script);
                    self.hear(link, &broker::encode(&news));
                }
            }
        }
    }

    fn create_producer(&mut self, script: &mut Script<'_>) {
        let mut config = ProducerConfig::new(if script.number().is_multiple_of(2) { "t" } else { "u" });
        config.max_pending_messages = usize::from(script.number() % 4);
        let how = script.number();
        if how.is_multiple_of(2) {
            config.batching = Batching::off();
        }
        config.compression = compression(how / 2);
        if how >= 128 {
            config.name = Some("p".to_owned());
            config.send_timeout = None;
        }
        self.producers.extend(self.client.create_producer(self.now, config));
    }

    fn subscribe(&mut self, script: &mut Script<'_>) {
        let mut config = ConsumerConfig::new("t", "s");
        let kinds = [
            SubscriptionType::Exclusive,
            SubscriptionType::Shared,
            SubscriptionType::Failover,
            SubscriptionType::KeyShared,
        ];
        config.subscription_type = script.pick(&kinds).expect("there are four");
        config.receiver_queue_size = u32::from(script.number() % 4);
        let how = script.number();
        config.batch_index_ack = how.is_multiple_of(2);
        config.durable = how & 2 == 0;
        config.start_message_id_inclusive = how & 4 != 0;
        config.ack_group_time = Duration::from_millis(if how & 8 != 0 { 0 } else { 100 });
        config.negative_ack_redelivery_delay = Duration::from_millis(if how & 16 != 0 { 0 } else { 1000 });
        self.consumers.extend(self.client.subscribe(self.now, config));
    }

    fn send(&mut self, script: &mut Script<'_>) {
        let Some(id) = script.pick(&self.producers) else { return };
        let mut message = OutgoingMessage::new(script.bytes());
        message = match script.number() % 6 {
            0 | 3 => message.with_key("k"),
            4 => message.with_property("a", "b").with_ordering_key("o"),
            5 => message.with_sequence_id(u64::from(script.number())),
            _ => message,
        };
        if let Ok(mut producer) = self.client.producer(id)
            && let Ok(sent) = producer.send(self.now, message)
        {
            assert!(self.sends.insert((id, sent.batch, sent.index)), "{sent:?} was given out twice");
        }
    }

    fn consume(&mut self, step: u8, script: &mut Script<'_>) {
        let Some(id) = script.pick(&self.consumers) else { return };
        let message = script.pick(&self.received);
        let how = script.number();
        let Ok(mut consumer) = self.client.consumer(id) else { return };
        match step {
            15 | 16 => self.received.extend(consumer.receive(self.now).map(|m| m.message_id())),
            17 => {
                if let Some(message) = message {
                    // An id may be refused, which is an outcome.
                    drop(match how % 3 {
                        0 => consumer.acknowledge(self.now, &message),
                        1 => consumer.acknowledge_cumulative(self.now, &message),
                        _ => consumer.negative_acknowledge(self.now, &message),
                    });
                }
            }
            18 => {
                let to = message.filter(|_| !how.is_multiple_of(3)).map_or(Position::Earliest, Position::Id);
                self.operations.insert(consumer.seek(self.now, to));
            }
            19 => {
                let op = match how % 3 {
                    0 => consumer.has_message_available(self.now),
                    1 => consumer.last_message_ids(self.now),
                    _ => consumer.unsubscribe(self.now),
                };
                self.operations.insert(op);
            }
            20 => match how % 3 {
                0 => consumer.redeliver_unacknowledged(self.now),
                1 => consumer.pause(self.now),
                _ => consumer.resume(self.now),
            },
            _ => consumer.close(self.now),
        }
    }

    fn hear(&mut self, link: ConnId, bytes: &[u8]) {
        let Some(buffer) = self.links.get_mut(&link) else { return };
        buffer.extend_from_slice(bytes);
        self.client.handle(self.now, Input::Received(link, buffer));
    }

    fn advance(&mut self, time: Duration) {
        self.now.mono = self.now.mono + time;
        self.now.unix_ms += time.as_millis() as u64;
    }

    /// Takes all outputs and bytes, and checks what was said.
    fn settle(&mut self) {
        self.client.check_invariants();
        while let Some(output) = self.client.poll() {
            match output {
                Output::Connect(link, _) => drop(self.links.insert(link, BytesMut::new())),
                Output::Disconnect(link) => {
                    self.links.remove(&link);
                    self.forget(link);
                }
                Output::Transmit(link) => self.read(link),
                Output::Ask(ask, _) => self.asks.push_back(ask),
                Output::Event(event) => self.note(event),
            }
        }
        self.client.check_invariants();
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Published { producer, batch, count, result } => {
                self.stored += if result.is_ok() { count } else { 0 };
                for index in 0..count {
                    let known = self.sends.remove(&(producer, batch, index));
                    assert!(known, "an outcome for {batch}.{index}, which is settled or was never sent");
                }
            }
            Event::Completed(op, _) => assert!(self.operations.remove(&op), "{op:?} completed twice"),
            Event::Closed(handle, _) => assert!(self.ended.insert(handle), "{handle:?} ended twice"),
            Event::Opened(handle) => {
                assert!(!self.ended.contains(&handle), "{handle:?} opened after its end")
            }
            Event::Writable(_) | Event::Readable(_) | Event::State(..) => {}
        }
    }

    /// Reads what the client writes, and notes what it waits for.
    fn read(&mut self, link: ConnId) {
        let mut out = Vec::new();
        while self.client.transmit(link, 4096, &mut out) >= 4096 {}
        let buffer = self.written.entry(link).or_default();
        out.iter().for_each(|bytes| buffer.extend_from_slice(bytes));
        while let Some(whole) = frame::split(buffer, MAX_FRAME).expect("the client writes frames") {
            let command = frame::decode(whole).expect("the client writes decodable frames").command;
            match &command {
                Command::Subscribe(c) => drop(self.wire_consumers.insert((link, c.consumer_id))),
                Command::Producer(c) => drop(self.wire_producers.insert((link, c.producer_id))),
                _ => {}
            }
            if matches!(command, Command::Connect(_) | Command::Ping) || request_id(&command).is_some() {
                self.asked.push_back((link, command));
            }
        }
    }

    fn forget(&mut self, link: ConnId) {
        self.written.remove(&link);
        self.asked.retain(|(l, _)| *l != link);
        self.wire_consumers.retain(|(l, _)| *l != link);
        self.wire_producers.retain(|(l, _)| *l != link);
    }

    /// Closes the client, lets time do the rest, and looks for what is left.
    fn end(&mut self) {
        let close = self.client.close(self.now);
        self.operations.insert(close);
        self.settle();
        for _ in 0..MOST_TICKS {
            let Some(at) = self.client.deadline() else { break };
            self.advance(at.since(self.now.mono));
            self.client.handle(self.now, Input::Tick);
            self.settle();
        }
        assert_eq!(self.client.stats(), ClientStats::default(), "a closed client holds nothing");
        assert!(self.sends.is_empty(), "sends without outcome: {:?}", self.sends);
        assert!(self.operations.is_empty(), "operations without end: {:?}", self.operations);
        assert!(self.links.is_empty(), "links left open: {:?}", self.links.keys());
    }
}

fn compression(number: u8) -> Compression {
    Compression::from_number(i32::from(number % 5)).expect("there are five")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far a script gets is what makes it worth mutating.
    #[test]
    fn the_corpus_reaches_what_it_is_named_after() {
        let rows = [
            // name, messages received at least, messages stored at least
            ("producer", 0, 2),
            ("batches", 0, 3),
            ("compressed-batches", 0, 10),
            ("partitions", 3, 3),
            ("consumer", 3, 0),
            ("batch-index", 5, 0),
            ("reader", 3, 0),
            ("reader-at-time", 1, 0),
            ("reader-at-end", 1, 0),
            ("codecs", 9, 0),
            ("corrupt", 3, 0),
            ("redirects", 0, 1),
            ("proxy", 0, 1),
            ("refusals", 0, 1),
            ("refused-consumer", 1, 0),
            ("credentials", 0, 1),
            ("keep-alive", 0, 1),
            ("memory", 0, 2),
            ("pause", 2, 0),
            ("zero-queue", 3, 0),
        ];
        for (name, received, stored) in rows {
            let path = format!("{}/../fuzz/corpus/inputs/{name}", env!("CARGO_MANIFEST_DIR"));
            let script = std::fs::read(path).expect("the corpus is committed");
            let mut world = World::new(script[0]);
            world.run(&script[1..]);
            let reached = (world.received.len() >= received, world.stored >= stored);
            assert_eq!(
                reached,
                (true, true),
                "{name}: {} received, {} stored",
                world.received.len(),
                world.stored
            );
            world.end();
        }
    }
}
