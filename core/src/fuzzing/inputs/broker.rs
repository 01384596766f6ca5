//! What a broker says in a script, right or wrong: answers, receipts, messages, news.

use bytes::{Bytes, BytesMut};

use super::script::Script;
use super::{World, compression};
use crate::MessageId;
use crate::wire::{Command, Metadata, frame, proto};

impl World {
    /// Answers a request that the client waits for: as it should be, or not.
    pub(super) fn answer(&mut self, script: &mut Script<'_>) {
        let which = usize::from(script.number()) % self.asked.len().max(1);
        let Some((link, command)) = self.asked.remove(which) else { return };
        let how = script.number();
        let request = request_id(&command).unwrap_or(u64::from(how));
        let answer = match how % 8 {
            0 => Command::Error(proto::CommandError {
                request_id: request,
                error: i32::from(script.number() % 27),
                message: String::new(),
            }),
            1 => Command::Success(proto::CommandSuccess { request_id: request, ..Default::default() }),
            _ => match right_answer(&command, request, script) {
                Some(answer) => answer,
                None => return,
            },
        };
        self.hear(link, &encode(&answer));
    }

    pub(super) fn receipt(&mut self, script: &mut Script<'_>) {
        let producers = Vec::from_iter(self.wire_producers.iter().copied());
        let Some((link, producer_id)) = script.pick(&producers) else { return };
        let sequence_id = u64::from(script.number() % 16);
        let command = match script.number() % 4 {
            0 => Command::SendError(proto::CommandSendError {
                producer_id,
                sequence_id,
                error: i32::from(script.number() % 27),
                message: String::new(),
            }),
            _ => Command::SendReceipt(proto::CommandSendReceipt {
                producer_id,
                sequence_id,
                message_id: Some(MessageId::new(1, sequence_id as i64, -1).to_proto()),
                ..Default::default()
            }),
        };
        self.hear(link, &encode(&command));
    }

    pub(super) fn closed_by_broker(&mut self, script: &mut Script<'_>) {
        let (consumers, producers) = (&self.wire_consumers, &self.wire_producers);
        let of_consumer = script.number().is_multiple_of(2);
        let ids = if of_consumer { consumers } else { producers };
        let Some((link, id)) = script.pick(&Vec::from_iter(ids.iter().copied())) else { return };
        let url = script.number().is_multiple_of(2).then(|| "pulsar://c:6650".to_owned());
        let command = match of_consumer {
            true => Command::CloseConsumer(proto::CommandCloseConsumer {
                consumer_id: id,
                request_id: u64::MAX,
                assigned_broker_service_url: url,
                ..Default::default()
            }),
            false => Command::CloseProducer(proto::CommandCloseProducer {
                producer_id: id,
                request_id: u64::MAX,
                assigned_broker_service_url: url,
                ..Default::default()
            }),
        };
        self.hear(link, &encode(&command));
    }

    /// What a broker says without being asked.
    pub(super) fn news(&self, script: &mut Script<'_>) -> Command {
        let kind = script.number();
        let consumers: Vec<u64> = self.wire_consumers.iter().map(|(_, id)| *id).collect();
        let producers: Vec<u64> = self.wire_producers.iter().map(|(_, id)| *id).collect();
        let consumer_id = script.pick(&consumers).unwrap_or(0);
        match kind % 6 {
            0 => Command::Ping,
            1 => Command::Pong,
            2 => Command::AuthChallenge(proto::CommandAuthChallenge::default()),
            3 => Command::ActiveConsumerChange(proto::CommandActiveConsumerChange {
                consumer_id,
                is_active: Some(kind >= 128),
            }),
            4 => Command::ReachedEndOfTopic(proto::CommandReachedEndOfTopic { consumer_id }),
            _ => {
                let resource_id =
                    if kind >= 128 { consumer_id } else { script.pick(&producers).unwrap_or(0) };
                Command::TopicMigrated(proto::CommandTopicMigrated {
                    resource_id,
                    resource_type: i32::from(kind >= 128),
                    broker_service_url: Some("pulsar://d:6650".to_owned()),
                    broker_service_url_tls: None,
                })
            }
        }
    }

    /// A MESSAGE for one of the consumers, sound or not.
    pub(super) fn message(&mut self, script: &mut Script<'_>) -> Vec<u8> {
        let ids: Vec<u64> = self.wire_consumers.iter().map(|(_, id)| *id).collect();
        let consumer_id = script.pick(&ids).unwrap_or(0);
        let (count, codec) = (script.number(), script.number());
        let (count, own) = (count % 4, count >= 128);
        let mut body = Vec::new();
        for _ in 0..count {
            // An empty metadata with a payload of one byte: its size field, 3, is all of it.
            body.extend_from_slice(&[0, 0, 0, 2, 0x18, 1, b'x']);
        }
        body.extend_from_slice(&script.bytes());
        let compression = compression(codec);
        // A codec that is not built leaves the body as it is, which is not what the metadata says.
        let packed = compression.compress(&body).unwrap_or_else(|_| body.clone().into());
        let metadata = Metadata {
            producer_name: "p",
            publish_time: 1,
            num_messages_in_batch: (count > 0).then_some(i32::from(count)),
            compression,
            uncompressed_size: Some(body.len() as u32).filter(|_| codec > 0),
            ..Metadata::default()
        };
        let mut head = Vec::new();
        match own {
            // The script's own: chunks, encryption, compaction.
            true => head = script.bytes(),
            false => metadata.write(&mut head),
        }
        let mut rest = (head.len() as u32).to_be_bytes().to_vec();
        rest.extend_from_slice(&head);
        rest.extend_from_slice(&packed);
        let checksum = crc32c::crc32c(&rest) ^ u32::from(script.number() == 1);
        let raw = [&[0x0e, 0x01][..], &checksum.to_be_bytes(), &rest].concat();
        // Sometimes an entry comes again.
        self.next_entry += i64::from(!script.number().is_multiple_of(4));
        let id = MessageId::new(1, self.next_entry, -1);
        let ack_set = if script.number() % 4 == 1 { vec![i64::from(script.number())] } else { Vec::new() };
        let command =
            proto::CommandMessage { consumer_id, message_id: id.to_proto(), ack_set, ..Default::default() };
        let (head, raw) = frame::encode_message(&command, None, &Bytes::from(raw));
        [head, raw].concat()
    }
}

pub(super) fn encode(command: &Command) -> Vec<u8> {
    let mut out = BytesMut::new();
    command.encode(&mut out);
    out.to_vec()
}

pub(super) fn request_id(command: &Command) -> Option<u64> {
    match command {
        Command::Lookup(c) => Some(c.request_id),
        Command::PartitionedMetadata(c) => Some(c.request_id),
        Command::GetTopicsOfNamespace(c) => Some(c.request_id),
        Command::Producer(c) => Some(c.request_id),
        Command::Subscribe(c) => Some(c.request_id),
        Command::CloseProducer(c) => Some(c.request_id),
        Command::CloseConsumer(c) => Some(c.request_id),
        Command::Unsubscribe(c) => Some(c.request_id),
        Command::Seek(c) => Some(c.request_id),
        Command::GetLastMessageId(c) => Some(c.request_id),
        _ => None,
    }
}

/// What a broker says to a request, with the details from the script.
fn right_answer(command: &Command, request_id: u64, script: &mut Script<'_>) -> Option<Command> {
    use proto::command_lookup_topic_response::LookupType;
    Some(match command {
        Command::Connect(_) => Command::Connected(proto::CommandConnected {
            server_version: String::new(),
            protocol_version: Some(i32::from(script.number() % 22)),
            max_message_size: Some(1 << 20),
            ..Default::default()
        }),
        Command::Ping => Command::Pong,
        Command::PartitionedMetadata(_) => {
            Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
                partitions: Some(u32::from(script.number() % 4)),
                request_id,
                response: Some(0),
                ..Default::default()
            })
        }
        Command::Lookup(_) => {
            let kinds = [LookupType::Connect, LookupType::Connect, LookupType::Redirect, LookupType::Failed];
            let response = script.pick(&kinds).expect("there are four");
            let failed = response == LookupType::Failed;
            let urls = ["pulsar://a:6650", "pulsar://b:6650", "pulsar+ssl://a:6651", ""];
            let url = script.pick(&urls).expect("there are four");
            Command::LookupResponse(proto::CommandLookupTopicResponse {
                broker_service_url: Some(url.to_owned()),
                proxy_through_service_url: Some(script.number() % 4 == 1),
                response: Some(response as i32),
                request_id,
                authoritative: Some(true),
                error: failed.then(|| i32::from(script.number() % 27)),
                ..Default::default()
            })
        }
        Command::Producer(_) => Command::ProducerSuccess(proto::CommandProducerSuccess {
            request_id,
            producer_name: "p".to_owned(),
            last_sequence_id: Some(i64::from(script.number() % 8) - 1),
            producer_ready: Some(!script.number().is_multiple_of(8)),
            ..Default::default()
        }),
        Command::GetLastMessageId(_) => {
            let id = MessageId::new(1, i64::from(script.number()) - 1, -1).to_proto();
            Command::GetLastMessageIdResponse(Box::new(proto::CommandGetLastMessageIdResponse {
                last_message_id: id,
                request_id,
                ..Default::default()
            }))
        }
        Command::GetTopicsOfNamespace(_) => {
            Command::GetTopicsOfNamespaceResponse(proto::CommandGetTopicsOfNamespaceResponse {
                request_id,
                topics: vec!["persistent://public/default/t".to_owned()],
                ..Default::default()
            })
        }
        _ => Command::Success(proto::CommandSuccess { request_id, ..Default::default() }),
    })
}
