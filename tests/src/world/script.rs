//! A broker played by the test: commands come in decoded, any command goes out. What the test does not play itself is
//! answered in the ordinary way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use geminga_broker::LinkId;
use geminga_core::wire::proto::{self, ServerError};
use geminga_core::wire::{Command, Frame, Metadata, Payload, frame};
use geminga_core::{MessageId, Mono};

const LARGEST_FRAME: usize = 64 << 20;

/// A command that the client sent, with its circumstances.
#[derive(Clone, Debug)]
pub struct Heard {
    /// When it arrived.
    pub at: Mono,
    /// On which link.
    pub link: LinkId,
    /// What the client dialled, as `host:port`.
    pub endpoint: String,
    /// The command.
    pub command: Command,
    /// What followed a SEND.
    pub payload: Option<Payload>,
}

/// The test's side of all links that lead to it.
#[derive(Debug, Default)]
pub struct Script {
    links: BTreeMap<LinkId, Ear>,
    by_hand: BTreeSet<&'static str>,
    waiting: VecDeque<Heard>,
    log: Vec<Heard>,
    out: VecDeque<(LinkId, Bytes)>,
    producers: u64,
}

#[derive(Debug)]
struct Ear {
    endpoint: String,
    buffer: BytesMut,
}

impl Script {
    /// The test plays these commands itself, by their protocol names; all others are answered by themselves.
    ///
    /// SEND, FLOW, ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES are never answered by themselves, only logged.
    pub fn by_hand(&mut self, names: &[&'static str]) {
        self.by_hand = names.iter().copied().collect();
    }

    /// Everything the client ever sent, in order of arrival.
    pub fn log(&self) -> &[Heard] {
        &self.log
    }

    /// How often a command was sent.
    pub fn count(&self, name: &str) -> usize {
        self.log.iter().filter(|heard| heard.command.name() == name).count()
    }

    /// The links that are open, oldest first.
    pub fn open_links(&self) -> Vec<LinkId> {
        self.links.keys().copied().collect()
    }

    /// Takes the oldest command of that name that the test plays itself and has not taken yet.
    pub(super) fn take(&mut self, name: &str) -> Option<Heard> {
        let at = self.waiting.iter().position(|heard| heard.command.name() == name)?;
        self.waiting.remove(at)
    }

    pub(super) fn write(&mut self, link: LinkId, bytes: Bytes) {
        if self.links.contains_key(&link) {
            self.out.push_back((link, bytes));
        }
    }

    pub(super) fn next_write(&mut self) -> Option<(LinkId, Bytes)> {
        self.out.pop_front()
    }

    pub(super) fn opened(&mut self, link: LinkId, endpoint: String) {
        self.links.insert(link, Ear { endpoint, buffer: BytesMut::new() });
    }

    pub(super) fn closed(&mut self, link: LinkId) {
        self.links.remove(&link);
    }

    /// Takes bytes of the client. Panics on what is no frame: that is the client's fault.
    pub(super) fn received(&mut self, now: Mono, link: LinkId, bytes: &Bytes) {
        let Some(ear) = self.links.get_mut(&link) else { return };
        ear.buffer.extend_from_slice(bytes);
        loop {
            let Some(ear) = self.links.get_mut(&link) else { return };
            let whole = frame::split(&mut ear.buffer, LARGEST_FRAME).expect("a client writes frames");
            let Some(whole) = whole else { return };
            let endpoint = ear.endpoint.clone();
            let Frame { command, payload } = frame::decode(whole).expect("a client writes decodable frames");
            let heard = Heard { at: now, link, endpoint, command, payload };
            self.log.push(heard.clone());
            match self.by_hand.contains(heard.command.name()) {
                true => self.waiting.push_back(heard),
                false => {
                    if let Some(answer) = self.ordinary_answer(&heard) {
                        self.write(link, encode(&answer));
                    }
                }
            }
        }
    }

    /// What a healthy broker with empty topics says to a command.
    pub fn ordinary_answer(&mut self, heard: &Heard) -> Option<Command> {
        let success =
            |request_id| Some(Command::Success(proto::CommandSuccess { request_id, ..Default::default() }));
        match &heard.command {
            Command::Connect(c) => Some(connected(c.protocol_version())),
            Command::Ping => Some(Command::Pong),
            Command::PartitionedMetadata(c) => Some(partitions(c.request_id, 0)),
            Command::Lookup(c) => Some(connect_to(c.request_id, &format!("pulsar://{}", heard.endpoint))),
            Command::Producer(c) => {
                self.producers += 1;
                let name = c.producer_name.clone().unwrap_or_else(|| format!("script-{}", self.producers));
                Some(producer_success(c.request_id, &name, -1))
            }
            Command::Subscribe(c) => success(c.request_id),
            Command::CloseProducer(c) => success(c.request_id),
            Command::CloseConsumer(c) => success(c.request_id),
            Command::Unsubscribe(c) => success(c.request_id),
            Command::Seek(c) => success(c.request_id),
            Command::GetLastMessageId(c) => {
                let none =
                    proto::MessageIdData { ledger_id: u64::MAX, entry_id: u64::MAX, ..Default::default() };
                Some(Command::GetLastMessageIdResponse(Box::new(proto::CommandGetLastMessageIdResponse {
                    last_message_id: none,
                    request_id: c.request_id,
                    ..Default::default()
                })))
            }
            _ => None,
        }
    }
}

/// The bytes of a command.
pub fn encode(command: &Command) -> Bytes {
    let mut bytes = BytesMut::new();
    command.encode(&mut bytes);
    bytes.freeze()
}

/// The bytes of a MESSAGE with one unbatched message.
pub fn encode_message(consumer_id: u64, id: MessageId, sequence_id: u64, payload: &[u8]) -> Bytes {
    let metadata = Metadata { producer_name: "script", sequence_id, publish_time: 1, ..Metadata::default() };
    encode_entry(consumer_id, id, &metadata, payload)
}

/// The bytes of a MESSAGE with any metadata and body, under a right checksum.
pub fn encode_entry(consumer_id: u64, id: MessageId, metadata: &Metadata<'_>, body: &[u8]) -> Bytes {
    let mut rest = BytesMut::new();
    rest.extend_from_slice(&(metadata.encoded_len() as u32).to_be_bytes());
    metadata.write(&mut rest);
    rest.extend_from_slice(body);
    let mut raw = BytesMut::new();
    raw.extend_from_slice(&[0x0e, 0x01]);
    raw.extend_from_slice(&crc32c::crc32c(&rest).to_be_bytes());
    raw.extend_from_slice(&rest);
    let command = proto::CommandMessage { consumer_id, message_id: id.to_proto(), ..Default::default() };
    let (head, raw) = frame::encode_message(&command, None, &raw.freeze());
    [head, raw].concat().into()
}

/// CONNECTED.
pub fn connected(protocol_version: i32) -> Command {
    Command::Connected(proto::CommandConnected {
        server_version: "script".to_owned(),
        protocol_version: Some(protocol_version),
        max_message_size: Some(5 << 20),
        ..Default::default()
    })
}

/// PARTITIONED_METADATA_RESPONSE with a number of partitions, 0 for a topic without.
pub fn partitions(request_id: u64, partitions: u32) -> Command {
    use proto::command_partitioned_topic_metadata_response::LookupType;
    Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
        partitions: Some(partitions),
        request_id,
        response: Some(LookupType::Success as i32),
        ..Default::default()
    })
}

/// LOOKUP_RESPONSE that names the owner.
pub fn connect_to(request_id: u64, url: &str) -> Command {
    lookup_response(request_id, url, proto::command_lookup_topic_response::LookupType::Connect)
}

/// LOOKUP_RESPONSE that names a broker to ask instead.
pub fn redirect_to(request_id: u64, url: &str) -> Command {
    lookup_response(request_id, url, proto::command_lookup_topic_response::LookupType::Redirect)
}

fn lookup_response(
    request_id: u64,
    url: &str,
    response: proto::command_lookup_topic_response::LookupType,
) -> Command {
    Command::LookupResponse(proto::CommandLookupTopicResponse {
        broker_service_url: Some(url.to_owned()),
        response: Some(response as i32),
        request_id,
        authoritative: Some(true),
        ..Default::default()
    })
}

/// LOOKUP_RESPONSE that refuses.
pub fn lookup_failed(request_id: u64, error: ServerError, message: &str) -> Command {
    Command::LookupResponse(proto::CommandLookupTopicResponse {
        response: Some(proto::command_lookup_topic_response::LookupType::Failed as i32),
        request_id,
        error: Some(error as i32),
        message: Some(message.to_owned()),
        ..Default::default()
    })
}

/// ERROR.
pub fn error(request_id: u64, error: ServerError, message: &str) -> Command {
    Command::Error(proto::CommandError { request_id, error: error as i32, message: message.to_owned() })
}

/// SUCCESS.
pub fn success(request_id: u64) -> Command {
    Command::Success(proto::CommandSuccess { request_id, ..Default::default() })
}

/// PRODUCER_SUCCESS.
pub fn producer_success(request_id: u64, name: &str, last_sequence_id: i64) -> Command {
    Command::ProducerSuccess(proto::CommandProducerSuccess {
        request_id,
        producer_name: name.to_owned(),
        last_sequence_id: Some(last_sequence_id),
        producer_ready: Some(true),
        ..Default::default()
    })
}

/// SEND_RECEIPT.
pub fn receipt(producer_id: u64, sequence_id: u64, id: MessageId) -> Command {
    Command::SendReceipt(proto::CommandSendReceipt {
        producer_id,
        sequence_id,
        message_id: Some(id.to_proto()),
        ..Default::default()
    })
}

/// CLOSE_CONSUMER from the broker, without a new owner.
pub fn close_consumer(consumer_id: u64) -> Command {
    Command::CloseConsumer(proto::CommandCloseConsumer {
        consumer_id,
        request_id: u64::MAX,
        ..Default::default()
    })
}

/// CLOSE_PRODUCER from the broker, without a new owner.
pub fn close_producer(producer_id: u64) -> Command {
    Command::CloseProducer(proto::CommandCloseProducer {
        producer_id,
        request_id: u64::MAX,
        ..Default::default()
    })
}
