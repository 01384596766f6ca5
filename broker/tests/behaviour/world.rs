//! A cluster, a clock, and clients that are no more than a link and the frames that came on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use geminga_broker::{Cluster, ClusterConfig, Input, LinkId, NodeId, Now, Output};
use geminga_core::wire::metadata::SendHeader;
use geminga_core::wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_core::wire::proto::{self, ProducerAccessMode, ServerError};
use geminga_core::wire::{
    BatchWriter, Command, Frame, Metadata, Payload, SingleMetadata, encode_send, frame,
};

pub(crate) const TOPIC: &str = "persistent://public/default/t";

/// A message as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) consumer: u64,
    pub(crate) id: (i64, i64),
    pub(crate) redelivery: u32,
    pub(crate) ack_set: Vec<i64>,
    /// Values of the entry's messages, in order.
    pub(crate) texts: Vec<String>,
}

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) now: Now,
    next_link: u64,
    next_request: u64,
    inboxes: BTreeMap<LinkId, (BytesMut, VecDeque<Frame>)>,
    closed: BTreeSet<LinkId>,
    muted: BTreeSet<LinkId>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ClusterConfig)) -> Self {
        let mut config = ClusterConfig::default();
        change(&mut config);
        World {
            cluster: Cluster::new(config, [7; 32]),
            now: Now { unix_ms: 1_000_000, ..Now::default() },
            next_link: 0,
            next_request: 0,
            inboxes: BTreeMap::new(),
            closed: BTreeSet::new(),
            muted: BTreeSet::new(),
        }
    }

    /// A connection to a broker that has said nothing yet.
    pub(crate) fn raw_link(&mut self, node: u32) -> LinkId {
        let link = LinkId(self.next_link);
        self.next_link += 1;
        self.inboxes.insert(link, Default::default());
        self.cluster.handle(self.now, Input::Accepted(NodeId(node), link));
        self.pump();
        link
    }

    /// A connection after its handshake.
    pub(crate) fn link_to(&mut self, node: u32) -> LinkId {
        let link = self.raw_link(node);
        self.send(link, connect(21));
        assert!(matches!(self.next(link), Command::Connected(_)));
        link
    }

    pub(crate) fn link(&mut self) -> LinkId {
        self.link_to(0)
    }

    pub(crate) fn request_id(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    pub(crate) fn send(&mut self, link: LinkId, command: Command) {
        let mut bytes = BytesMut::new();
        command.encode(&mut bytes);
        self.send_bytes(link, bytes);
    }

    pub(crate) fn send_bytes(&mut self, link: LinkId, mut bytes: BytesMut) {
        self.cluster.handle(self.now, Input::Received(link, &mut bytes));
        self.pump();
    }

    pub(crate) fn drop_link(&mut self, link: LinkId) {
        self.cluster.handle(self.now, Input::Closed(link));
        self.closed.insert(link);
        self.pump();
    }

    /// From now on the link does not answer PING, as a client that hangs.
    pub(crate) fn mute(&mut self, link: LinkId) {
        self.muted.insert(link);
    }

    pub(crate) fn is_closed(&self, link: LinkId) -> bool {
        self.closed.contains(&link)
    }

    /// Lets time pass, deadline by deadline.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now.mono + time;
        loop {
            let next = self.cluster.deadline().filter(|at| *at <= end).unwrap_or(end);
            let step = next.since(self.now.mono);
            self.now.mono = self.now.mono.max(next);
            self.now.unix_ms += step.as_millis() as u64;
            if next == end && self.cluster.deadline().is_none_or(|at| at > end) {
                return;
            }
            self.cluster.handle(self.now, Input::Tick);
            self.pump();
        }
    }

    /// Passes outputs on; living links answer PING.
    pub(crate) fn pump(&mut self) {
        while let Some(output) = self.cluster.poll() {
            let (Output::Transmit(link) | Output::Close(link)) = output;
            let mut chunks = Vec::new();
            while self.cluster.transmit(link, 1000, &mut chunks) > 0 {}
            if matches!(output, Output::Close(_)) {
                self.closed.insert(link);
            }
            let (bytes, frames) = self.inboxes.entry(link).or_default();
            chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
            let mut pings = 0;
            while let Some(whole) = frame::split(bytes, usize::MAX).expect("the broker writes good frames") {
                let frame = frame::decode(whole).expect("the broker writes good frames");
                if frame.command == Command::Ping { pings += 1 } else { frames.push_back(frame) }
            }
            if pings > 0 && !self.muted.contains(&link) {
                self.send(link, Command::Pong);
            }
        }
    }

    /// Everything that has arrived.
    pub(crate) fn frames(&mut self, link: LinkId) -> Vec<Frame> {
        self.pump();
        self.inboxes.get_mut(&link).map(|(_, frames)| frames.drain(..).collect()).unwrap_or_default()
    }

    pub(crate) fn commands(&mut self, link: LinkId) -> Vec<Command> {
        self.frames(link).into_iter().map(|f| f.command).collect()
    }

    /// The next command that has arrived.
    pub(crate) fn next(&mut self, link: LinkId) -> Command {
        self.pump();
        let (_, frames) = self.inboxes.get_mut(&link).expect("a link of this world");
        frames.pop_front().unwrap_or_else(|| panic!("nothing arrived on {link:?}")).command
    }

    /// The messages that have arrived; anything else is an error of the test.
    pub(crate) fn messages(&mut self, link: LinkId) -> Vec<Got> {
        self.frames(link).into_iter().map(got).collect()
    }

    pub(crate) fn texts(&mut self, link: LinkId) -> Vec<String> {
        self.messages(link).into_iter().flat_map(|m| m.texts).collect()
    }
}

/// Shorthands for requests that must succeed.
impl World {
    /// Makes the link's broker the owner of the topic, whatever the load, unless it has an owner.
    pub(crate) fn own(&mut self, link: LinkId, topic: &str) {
        if self.cluster.owner(topic).is_some() {
            return;
        }
        let request_id = self.request_id();
        self.send(link, lookup(topic, request_id, true));
        assert!(matches!(self.next(link), Command::LookupResponse(r) if r.response == Some(1)));
    }

    pub(crate) fn try_producer(
        &mut self,
        link: LinkId,
        id: u64,
        change: impl FnOnce(&mut proto::CommandProducer),
    ) -> Vec<Command> {
        self.own(link, TOPIC);
        let mut request = proto::CommandProducer {
            topic: TOPIC.to_owned(),
            producer_id: id,
            request_id: self.request_id(),
            ..Default::default()
        };
        change(&mut request);
        self.send(link, Command::Producer(Box::new(request)));
        self.commands(link)
    }

    pub(crate) fn producer(&mut self, link: LinkId, id: u64) -> proto::CommandProducerSuccess {
        self.producer_with(link, id, |_| {})
    }

    pub(crate) fn producer_with(
        &mut self,
        link: LinkId,
        id: u64,
        change: impl FnOnce(&mut proto::CommandProducer),
    ) -> proto::CommandProducerSuccess {
        match self.try_producer(link, id, change).pop() {
            Some(Command::ProducerSuccess(success)) => success,
            other => panic!("no producer but {other:?}"),
        }
    }

    pub(crate) fn try_subscribe(
        &mut self,
        link: LinkId,
        id: u64,
        kind: SubType,
        change: impl FnOnce(&mut proto::CommandSubscribe),
    ) -> Vec<Command> {
        self.own(link, TOPIC);
        let mut request = proto::CommandSubscribe {
            topic: TOPIC.to_owned(),
            subscription: "s".to_owned(),
            sub_type: kind as i32,
            consumer_id: id,
            request_id: self.request_id(),
            ..Default::default()
        };
        change(&mut request);
        self.send(link, Command::Subscribe(Box::new(request)));
        self.commands(link)
    }

    pub(crate) fn subscribe(&mut self, link: LinkId, id: u64, kind: SubType) {
        self.subscribe_with(link, id, kind, |_| {});
    }

    pub(crate) fn subscribe_with(
        &mut self,
        link: LinkId,
        id: u64,
        kind: SubType,
        change: impl FnOnce(&mut proto::CommandSubscribe),
    ) {
        let answer = self.try_subscribe(link, id, kind, change);
        assert!(answer.iter().any(|c| matches!(c, Command::Success(_))), "not subscribed: {answer:?}");
    }

    pub(crate) fn flow(&mut self, link: LinkId, consumer_id: u64, message_permits: u32) {
        self.send(link, Command::Flow(proto::CommandFlow { consumer_id, message_permits }));
    }

    pub(crate) fn publish(&mut self, link: LinkId, id: u64, sequence_id: u64, text: &str) {
        self.publish_with(link, id, sequence_id, text, |_| {});
    }

    pub(crate) fn publish_with<'a>(
        &mut self,
        link: LinkId,
        id: u64,
        sequence_id: u64,
        text: &str,
        change: impl FnOnce(&mut Metadata<'a>),
    ) {
        let header = SendHeader { producer_id: id, sequence_id, ..Default::default() };
        let mut metadata = Metadata {
            producer_name: "p",
            sequence_id,
            publish_time: self.now.unix_ms,
            ..Default::default()
        };
        change(&mut metadata);
        let frame = encode_send(&header, &metadata, Bytes::copy_from_slice(text.as_bytes()), true);
        self.send_bytes(link, BytesMut::from(&[&frame.head[..], &frame.body[..]].concat()[..]));
    }

    pub(crate) fn publish_batch(&mut self, link: LinkId, id: u64, sequence_id: u64, texts: &[&str]) {
        let mut batch = BatchWriter::new();
        for text in texts {
            batch.append(&SingleMetadata::default(), text.as_bytes());
        }
        let last = sequence_id + texts.len() as u64 - 1;
        let header = SendHeader {
            producer_id: id,
            sequence_id,
            highest_sequence_id: Some(last),
            num_messages: texts.len() as i32,
            is_chunk: false,
        };
        let metadata = Metadata {
            producer_name: "p",
            sequence_id,
            publish_time: self.now.unix_ms,
            num_messages_in_batch: Some(texts.len() as i32),
            highest_sequence_id: Some(last),
            ..Default::default()
        };
        let frame = encode_send(&header, &metadata, batch.take(), true);
        self.send_bytes(link, BytesMut::from(&[&frame.head[..], &frame.body[..]].concat()[..]));
    }

    /// The next thing that arrived, which must be a receipt.
    pub(crate) fn receipt(&mut self, link: LinkId) -> proto::CommandSendReceipt {
        match self.next(link) {
            Command::SendReceipt(receipt) => receipt,
            other => panic!("no receipt but {other:?}"),
        }
    }

    pub(crate) fn ack(&mut self, link: LinkId, consumer_id: u64, id: (i64, i64)) {
        self.ack_with(link, consumer_id, id, |_| {});
    }

    pub(crate) fn ack_with(
        &mut self,
        link: LinkId,
        consumer_id: u64,
        id: (i64, i64),
        change: impl FnOnce(&mut proto::CommandAck),
    ) {
        let mut ack =
            proto::CommandAck { consumer_id, message_id: vec![message_id(id)], ..Default::default() };
        change(&mut ack);
        self.send(link, Command::Ack(ack));
    }

    pub(crate) fn redeliver(&mut self, link: LinkId, consumer_id: u64, ids: &[(i64, i64)]) {
        let request = proto::CommandRedeliverUnacknowledgedMessages {
            consumer_id,
            message_ids: ids.iter().copied().map(message_id).collect(),
            ..Default::default()
        };
        self.send(link, Command::RedeliverUnacknowledgedMessages(request));
    }

    /// A request about a consumer, and all that arrives after it.
    pub(crate) fn close_consumer(&mut self, link: LinkId, consumer_id: u64) -> Vec<Command> {
        let request_id = self.request_id();
        let close = proto::CommandCloseConsumer { consumer_id, request_id, ..Default::default() };
        self.send(link, Command::CloseConsumer(close));
        self.commands(link)
    }
}

pub(crate) fn connect(protocol_version: i32) -> Command {
    Command::Connect(Box::new(proto::CommandConnect {
        client_version: "test".to_owned(),
        protocol_version: Some(protocol_version),
        ..Default::default()
    }))
}

pub(crate) fn lookup(topic: &str, request_id: u64, authoritative: bool) -> Command {
    Command::Lookup(proto::CommandLookupTopic {
        topic: topic.to_owned(),
        request_id,
        authoritative: Some(authoritative),
        ..Default::default()
    })
}

pub(crate) fn message_id((ledger, entry): (i64, i64)) -> proto::MessageIdData {
    proto::MessageIdData { ledger_id: ledger as u64, entry_id: entry as u64, ..Default::default() }
}

pub(crate) fn access(mode: ProducerAccessMode) -> impl FnOnce(&mut proto::CommandProducer) {
    move |request| request.producer_access_mode = Some(mode as i32)
}

pub(crate) fn error_of(commands: &[Command]) -> ServerError {
    match commands {
        [Command::Error(error)] => error.error(),
        other => panic!("no error but {other:?}"),
    }
}

pub(crate) fn got(frame: Frame) -> Got {
    let (Command::Message(message), Some(payload)) = (frame.command, frame.payload) else {
        panic!("not a message");
    };
    Got {
        consumer: message.consumer_id,
        id: (message.message_id.ledger_id as i64, message.message_id.entry_id as i64),
        redelivery: message.redelivery_count(),
        ack_set: message.ack_set,
        texts: texts_of(&payload),
    }
}

fn texts_of(payload: &Payload) -> Vec<String> {
    use prost::Message as _;
    let metadata = proto::MessageMetadata::decode(payload.metadata.clone()).expect("good metadata");
    if metadata.num_messages_in_batch.is_none() {
        return vec![String::from_utf8_lossy(&payload.body).into_owned()];
    }
    let (mut at, mut texts) = (0, Vec::new());
    while let Some(record) = geminga_core::wire::next_record(&payload.body, &mut at).expect("a good batch") {
        texts.push(String::from_utf8_lossy(record.payload(&payload.body)).into_owned());
    }
    texts
}

/// A link with producer 1, and `texts` published before anybody subscribes.
pub(crate) fn published(w: &mut World, texts: &[&str]) -> LinkId {
    let link = w.link();
    w.producer(link, 1);
    for (sequence_id, text) in texts.iter().enumerate() {
        w.publish(link, 1, sequence_id as u64, text);
    }
    w.commands(link);
    link
}

pub(crate) fn earliest(request: &mut proto::CommandSubscribe) {
    request.initial_position = Some(InitialPosition::Earliest as i32);
}

pub(crate) fn all_texts(messages: &[Got]) -> Vec<&str> {
    messages.iter().flat_map(|m| m.texts.iter().map(String::as_str)).collect()
}

pub(crate) fn permits(w: &World, subscription: &str) -> Vec<i64> {
    w.cluster.subscription(TOPIC, subscription).unwrap().consumers.iter().map(|c| c.permits).collect()
}

pub(crate) fn publish_keys(w: &mut World, link: LinkId, from: u64, keys: impl Iterator<Item = u32>) {
    for (i, key) in keys.enumerate() {
        let key = format!("key-{key}");
        w.publish_with(link, 1, from + i as u64, &key, |m| m.partition_key = Some(&key));
    }
    w.commands(link);
}
