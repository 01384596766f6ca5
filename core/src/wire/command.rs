//! Commands: one enum, one line per command, and no detour over the 80-field `BaseCommand`.
//!
//! Knows the numbers of the commands, not what they ask for.
use bytes::{BufMut, BytesMut};
use prost::Message;

use super::{
    error::WireError,
    fields::{self, BYTES, VARINT, Value, key, put_varint, varint_len},
    proto,
};

/// Writes the enum and its two directions from a table. The number of a command is both its `BaseCommand.Type` and
/// the field of `BaseCommand` with its body.
macro_rules! commands {
    ($( $(#[$doc:meta])* $variant:ident($body:ty) = $number:literal $name:literal; )*) => {
        /// A command, without the message that may follow it in the frame.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Command {
            $( $(#[$doc])* $variant($body), )*
            /// Are you there?
            Ping,
            /// Answer to [`Ping`](Self::Ping).
            Pong,
            /// A type that this version does not know; its body was not looked at.
            Unknown(i32),
        }

        impl Command {
            /// The command's `BaseCommand.Type`.
            pub const fn number(&self) -> i32 {
                match self {
                    $( Self::$variant(_) => $number, )*
                    Self::Ping => PING,
                    Self::Pong => PONG,
                    Self::Unknown(number) => *number,
                }
            }

            /// The command's name in the protocol, for messages to people.
            pub const fn name(&self) -> &'static str {
                match self {
                    $( Self::$variant(_) => $name, )*
                    Self::Ping => "PING",
                    Self::Pong => "PONG",
                    Self::Unknown(_) => "UNKNOWN",
                }
            }

            /// Bytes of the body, without key and length.
            fn body_len(&self) -> usize {
                match self {
                    $( Self::$variant(body) => body.encoded_len(), )*
                    Self::Ping | Self::Pong | Self::Unknown(_) => 0,
                }
            }

            fn encode_body(&self, out: &mut BytesMut) {
                match self {
                    $( Self::$variant(body) => body.encode(out).expect("a BytesMut grows"), )*
                    Self::Ping | Self::Pong | Self::Unknown(_) => {}
                }
            }

            fn decode_body(number: i32, command: &[u8]) -> Result<Self, WireError> {
                match number {
                    $( $number => merge_body($number, $name, command).map(Self::$variant), )*
                    PING => Ok(Self::Ping),
                    PONG => Ok(Self::Pong),
                    unknown => Ok(Self::Unknown(unknown)),
                }
            }
        }

        #[cfg(test)]
        const ALL: &[(i32, &str)] = &[$( ($number, $name), )* (PING, "PING"), (PONG, "PONG")];
    };
}

const PING: i32 = 18;
const PONG: i32 = 19;

// Large and rare bodies are boxed, so that the frequent ones move cheaply.
commands! {
    /// The first frame of a connection, from the client.
    Connect(Box<proto::CommandConnect>) = 2 "CONNECT";
    /// The connection may be used.
    Connected(proto::CommandConnected) = 3 "CONNECTED";
    /// Adds a consumer.
    Subscribe(Box<proto::CommandSubscribe>) = 4 "SUBSCRIBE";
    /// Creates a producer.
    Producer(Box<proto::CommandProducer>) = 5 "PRODUCER";
    /// Publishes the entry behind it.
    Send(proto::CommandSend) = 6 "SEND";
    /// The entry is stored.
    SendReceipt(proto::CommandSendReceipt) = 7 "SEND_RECEIPT";
    /// The entry was refused.
    SendError(proto::CommandSendError) = 8 "SEND_ERROR";
    /// Delivers the entry behind it.
    Message(proto::CommandMessage) = 9 "MESSAGE";
    /// Acknowledges messages.
    Ack(proto::CommandAck) = 10 "ACK";
    /// Grants permits.
    Flow(proto::CommandFlow) = 11 "FLOW";
    /// Deletes a subscription.
    Unsubscribe(proto::CommandUnsubscribe) = 12 "UNSUBSCRIBE";
    /// A request succeeded.
    Success(proto::CommandSuccess) = 13 "SUCCESS";
    /// A request failed.
    Error(proto::CommandError) = 14 "ERROR";
    /// Closes a producer.
    CloseProducer(proto::CommandCloseProducer) = 15 "CLOSE_PRODUCER";
    /// Closes a consumer.
    CloseConsumer(proto::CommandCloseConsumer) = 16 "CLOSE_CONSUMER";
    /// A producer was created, or waits for its turn.
    ProducerSuccess(proto::CommandProducerSuccess) = 17 "PRODUCER_SUCCESS";
    /// Asks for unacknowledged messages again.
    RedeliverUnacknowledgedMessages(proto::CommandRedeliverUnacknowledgedMessages) = 20
        "REDELIVER_UNACKNOWLEDGED_MESSAGES";
    /// Asks for the number of partitions.
    PartitionedMetadata(proto::CommandPartitionedTopicMetadata) = 21 "PARTITIONED_METADATA";
    /// The number of partitions.
    PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse) = 22
        "PARTITIONED_METADATA_RESPONSE";
    /// Asks for the broker of a topic.
    Lookup(proto::CommandLookupTopic) = 23 "LOOKUP";
    /// The broker of a topic.
    LookupResponse(proto::CommandLookupTopicResponse) = 24 "LOOKUP_RESPONSE";
    /// Asks for figures about a consumer.
    ConsumerStats(proto::CommandConsumerStats) = 25 "CONSUMER_STATS";
    /// Figures about a consumer.
    ConsumerStatsResponse(Box<proto::CommandConsumerStatsResponse>) = 26 "CONSUMER_STATS_RESPONSE";
    /// A terminated topic has no more messages.
    ReachedEndOfTopic(proto::CommandReachedEndOfTopic) = 27 "REACHED_END_OF_TOPIC";
    /// Moves a subscription's cursor.
    Seek(proto::CommandSeek) = 28 "SEEK";
    /// Asks for the last message id.
    GetLastMessageId(proto::CommandGetLastMessageId) = 29 "GET_LAST_MESSAGE_ID";
    /// The last message id.
    GetLastMessageIdResponse(Box<proto::CommandGetLastMessageIdResponse>) = 30
        "GET_LAST_MESSAGE_ID_RESPONSE";
    /// A Failover subscription has another active consumer.
    ActiveConsumerChange(proto::CommandActiveConsumerChange) = 31 "ACTIVE_CONSUMER_CHANGE";
    /// Lists topics.
    GetTopicsOfNamespace(Box<proto::CommandGetTopicsOfNamespace>) = 32 "GET_TOPICS_OF_NAMESPACE";
    /// A list of topics.
    GetTopicsOfNamespaceResponse(proto::CommandGetTopicsOfNamespaceResponse) = 33
        "GET_TOPICS_OF_NAMESPACE_RESPONSE";
    /// Asks for a schema.
    GetSchema(proto::CommandGetSchema) = 34 "GET_SCHEMA";
    /// A schema.
    GetSchemaResponse(Box<proto::CommandGetSchemaResponse>) = 35 "GET_SCHEMA_RESPONSE";
    /// Asks for fresh credentials.
    AuthChallenge(proto::CommandAuthChallenge) = 36 "AUTH_CHALLENGE";
    /// Fresh credentials.
    AuthResponse(proto::CommandAuthResponse) = 37 "AUTH_RESPONSE";
    /// An acknowledgement was taken, or not.
    AckResponse(proto::CommandAckResponse) = 38 "ACK_RESPONSE";
    /// Registers a schema.
    GetOrCreateSchema(Box<proto::CommandGetOrCreateSchema>) = 39 "GET_OR_CREATE_SCHEMA";
    /// The version of a registered schema.
    GetOrCreateSchemaResponse(Box<proto::CommandGetOrCreateSchemaResponse>) = 40
        "GET_OR_CREATE_SCHEMA_RESPONSE";
    /// Begins a transaction.
    NewTxn(proto::CommandNewTxn) = 50 "NEW_TXN";
    /// The id of a transaction.
    NewTxnResponse(proto::CommandNewTxnResponse) = 51 "NEW_TXN_RESPONSE";
    /// Names partitions that a transaction publishes to.
    AddPartitionToTxn(proto::CommandAddPartitionToTxn) = 52 "ADD_PARTITION_TO_TXN";
    /// The partitions were added, or not.
    AddPartitionToTxnResponse(proto::CommandAddPartitionToTxnResponse) = 53 "ADD_PARTITION_TO_TXN_RESPONSE";
    /// Names subscriptions that a transaction acknowledges on.
    AddSubscriptionToTxn(proto::CommandAddSubscriptionToTxn) = 54 "ADD_SUBSCRIPTION_TO_TXN";
    /// The subscriptions were added, or not.
    AddSubscriptionToTxnResponse(proto::CommandAddSubscriptionToTxnResponse) = 55
        "ADD_SUBSCRIPTION_TO_TXN_RESPONSE";
    /// Commits or aborts a transaction.
    EndTxn(proto::CommandEndTxn) = 56 "END_TXN";
    /// The transaction has ended, or not.
    EndTxnResponse(proto::CommandEndTxnResponse) = 57 "END_TXN_RESPONSE";
    /// Between brokers.
    EndTxnOnPartition(Box<proto::CommandEndTxnOnPartition>) = 58 "END_TXN_ON_PARTITION";
    /// Between brokers.
    EndTxnOnPartitionResponse(proto::CommandEndTxnOnPartitionResponse) = 59 "END_TXN_ON_PARTITION_RESPONSE";
    /// Between brokers.
    EndTxnOnSubscription(Box<proto::CommandEndTxnOnSubscription>) = 60 "END_TXN_ON_SUBSCRIPTION";
    /// Between brokers.
    EndTxnOnSubscriptionResponse(proto::CommandEndTxnOnSubscriptionResponse) = 61
        "END_TXN_ON_SUBSCRIPTION_RESPONSE";
    /// Opens a transaction coordinator.
    TcClientConnectRequest(proto::CommandTcClientConnectRequest) = 62 "TC_CLIENT_CONNECT_REQUEST";
    /// The coordinator is open, or not.
    TcClientConnectResponse(proto::CommandTcClientConnectResponse) = 63 "TC_CLIENT_CONNECT_RESPONSE";
    /// Watches the topics of a namespace.
    WatchTopicList(Box<proto::CommandWatchTopicList>) = 64 "WATCH_TOPIC_LIST";
    /// The watch has begun, with these topics.
    WatchTopicListSuccess(proto::CommandWatchTopicListSuccess) = 65 "WATCH_TOPIC_LIST_SUCCESS";
    /// Topics came or went.
    WatchTopicUpdate(proto::CommandWatchTopicUpdate) = 66 "WATCH_TOPIC_UPDATE";
    /// Ends a watch.
    WatchTopicListClose(proto::CommandWatchTopicListClose) = 67 "WATCH_TOPIC_LIST_CLOSE";
    /// The topic lives elsewhere now.
    TopicMigrated(proto::CommandTopicMigrated) = 68 "TOPIC_MIGRATED";
}

impl Command {
    /// Reads a `BaseCommand`.
    ///
    /// Shape: fields in any order, unknown ones skipped, repeated ones merged, all as protobuf has it. A type that is
    /// not in the table is [`Command::Unknown`], not an error. Errors: no type, no body, or bytes that don't decode.
    pub fn decode(command: &[u8]) -> Result<Self, WireError> {
        let mut rest = command;
        let mut number = None;
        while let Some((field, value)) = fields::next(&mut rest).map_err(WireError::BadCommand)? {
            if let (1, Value::Varint(value)) = (field, value) {
                number = Some(value as i32); // enums are int32s: the low half counts
            }
        }
        Self::decode_body(number.ok_or(WireError::BadCommand("it has no type"))?, command)
    }

    /// Appends a whole frame: total size, command size, `BaseCommand`.
    ///
    /// SEND and MESSAGE have more behind the command; for those see [`encode_send`](super::encode_send) and
    /// [`encode_message`](super::frame::encode_message).
    pub fn encode(&self, out: &mut BytesMut) {
        let command_len = self.encoded_len();
        out.reserve(8 + command_len);
        out.put_u32(4 + command_len as u32);
        out.put_u32(command_len as u32);
        put_varint(out, key(1, VARINT));
        put_varint(out, i64::from(self.number()) as u64);
        if !matches!(self, Self::Unknown(_)) {
            put_varint(out, self.body_key());
            put_varint(out, self.body_len() as u64);
            self.encode_body(out);
        }
    }

    /// Bytes of the `BaseCommand` alone; a frame has 8 more.
    pub fn encoded_len(&self) -> usize {
        let type_len = 1 + varint_len(i64::from(self.number()) as u64);
        if matches!(self, Self::Unknown(_)) {
            return type_len;
        }
        let body_len = self.body_len();
        type_len + varint_len(self.body_key()) + varint_len(body_len as u64) + body_len
    }

    fn body_key(&self) -> u64 {
        key(self.number() as u32, BYTES)
    }
}

/// Decodes the body of a command, merging should it be there twice.
fn merge_body<M: Message + Default>(number: u32, name: &'static str, command: &[u8]) -> Result<M, WireError> {
    let mut body = M::default();
    let mut seen = false;
    let mut rest = command;
    while let Some((field, value)) = fields::next(&mut rest).map_err(WireError::BadCommand)? {
        if let Value::Bytes(bytes) = value
            && field == number
        {
            body.merge(bytes).map_err(|source| WireError::BadCommandBody { name, source })?;
            seen = true;
        }
    }
    if seen { Ok(body) } else { Err(WireError::BadCommand("its body is missing")) }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// A `BaseCommand` of this type with these bytes as its body.
    fn base(number: i32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, key(1, VARINT));
        put_varint(&mut out, number as u64);
        put_varint(&mut out, key(number as u32, BYTES));
        put_varint(&mut out, body.len() as u64);
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn every_command_is_what_prost_makes_of_base_command() {
        // Fields 1 to 6 as numbers or as nested bytes: whatever a body makes of them, both decoders must agree.
        let bodies: [&[u8]; 3] = [&[], &[8, 7, 16, 9, 24, 1, 32, 0, 0x58, 1], &[10, 1, 97, 18, 1, 98]];
        for &(number, name) in ALL {
            let mut decoded = 0;
            for body in bodies {
                let Ok(theirs) = proto::BaseCommand::decode(&base(number, body)[..]) else {
                    assert!(Command::decode(&base(number, body)).is_err(), "{name}");
                    continue;
                };
                let ours = Command::decode(&base(number, body)).expect(name);
                assert_eq!((ours.number(), ours.name()), (number, theirs.r#type().as_str_name()));
                let mut out = BytesMut::new();
                ours.encode(&mut out);
                assert_eq!(out.len(), 8 + ours.encoded_len(), "{name}");
                assert_eq!(out[..4], (out.len() as u32 - 4).to_be_bytes(), "{name}");
                assert_eq!(out[4..8], (out.len() as u32 - 8).to_be_bytes(), "{name}");
                assert_eq!(out[8..], theirs.encode_to_vec(), "{name}");
                decoded += 1;
            }
            assert!(decoded > 0, "{name}");
        }
    }

    #[test]
    fn the_type_may_come_last_and_a_body_may_come_in_parts() {
        let mut bytes = vec![0x32, 2, 0x08, 5]; // SEND { producer_id: 5 }
        bytes.extend([0x92, 0x01, 0]); // a ping that nobody asked for
        bytes.extend([0x32, 2, 0x10, 6]); // SEND { sequence_id: 6 }
        bytes.extend([0x08, 0x03, 0x08, 0x06]); // the last type counts
        let send = proto::CommandSend { producer_id: 5, sequence_id: 6, ..Default::default() };
        assert_eq!(Command::decode(&bytes), Ok(Command::Send(send)));
    }

    #[test]
    fn an_unknown_type_is_no_error_and_a_missing_type_or_body_is() {
        assert_eq!(Command::decode(&base(79, &[8, 1])), Ok(Command::Unknown(79)));
        assert_eq!(Command::decode(&[0x08, 0x4f]), Ok(Command::Unknown(79)));
        assert!(Command::decode(&[]).is_err());
        assert!(Command::decode(&[0x32, 0]).is_err());
        assert!(Command::decode(&[0x08, 0x06]).is_err());
        assert_eq!(Command::decode(&[0x08, 0x12]), Ok(Command::Ping));
    }

    #[test]
    fn an_unknown_command_encodes_as_its_type() {
        let mut out = BytesMut::new();
        Command::Unknown(-1).encode(&mut out);
        assert_eq!(Command::decode(&out[8..]), Ok(Command::Unknown(-1)));
    }
}
