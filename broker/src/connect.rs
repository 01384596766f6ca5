//! CONNECT, authentication, keep-alive, and the question whether an old connection is still alive.

use bytes::Bytes;
use geminga_core::wire::{Command, proto};
use proto::ServerError;

use crate::LinkId;
use crate::cluster::Cluster;
use crate::session::{NO_REQUEST, Phase};
use crate::time::{Now, Timer};

/// The newest protocol version that the cluster speaks, as Pulsar 4.0 does.
const PROTOCOL_VERSION: i32 = 21;
const SERVER_VERSION: &str = concat!("Geminga embedded broker ", env!("CARGO_PKG_VERSION"));
/// The challenge that asks for fresh credentials.
const AUTH_REFRESH: &[u8] = b"PulsarAuthRefresh";

impl Cluster {
    pub(crate) fn connect(&mut self, now: Now, link: LinkId, connect: proto::CommandConnect) {
        let method = connect.auth_method_name.as_deref();
        if !self.may_connect(method, connect.auth_data.as_ref()) {
            self.links.error(link, NO_REQUEST, ServerError::AuthenticationError, "Unable to authenticate");
            return self.close(now, link);
        }
        let Some(session) = self.links.get_mut(link) else { return };
        session.phase = Phase::Ready;
        session.protocol_version = connect.protocol_version().min(PROTOCOL_VERSION);
        let flags = connect.feature_flags.unwrap_or_default();
        session.entry_metadata = flags.supports_broker_entry_metadata();
        session.client_version = connect.client_version;
        let protocol_version = session.protocol_version;
        let connected = proto::CommandConnected {
            server_version: SERVER_VERSION.to_owned(),
            protocol_version: Some(protocol_version),
            max_message_size: i32::try_from(self.config.max_message_size).ok(),
            feature_flags: Some(proto::FeatureFlags {
                supports_topic_watchers: Some(self.config.topic_watchers),
                supports_get_partitioned_metadata_without_auto_creation: Some(true),
                ..Default::default()
            }),
        };
        self.links.send(link, &Command::Connected(connected));
    }

    /// Asks a client for fresh credentials; it is closed unless they are good.
    pub fn challenge(&mut self, link: LinkId) {
        let challenge = proto::CommandAuthChallenge {
            server_version: Some(SERVER_VERSION.to_owned()),
            challenge: Some(proto::AuthData {
                auth_method_name: Some("token".to_owned()),
                auth_data: Some(Bytes::from_static(AUTH_REFRESH)),
            }),
            protocol_version: Some(PROTOCOL_VERSION),
        };
        self.links.send(link, &Command::AuthChallenge(challenge));
    }

    pub(crate) fn auth_response(&mut self, now: Now, link: LinkId, response: &proto::CommandAuthResponse) {
        let data = response.response.clone().unwrap_or_default();
        if !self.may_connect(data.auth_method_name.as_deref(), data.auth_data.as_ref()) {
            self.close(now, link);
        }
    }

    /// Pings a silent link; closes one that stayed silent.
    pub(crate) fn keep_alive(&mut self, now: Now, link: LinkId) {
        let interval = self.config.keep_alive;
        let Some(session) = self.links.get_mut(link) else { return };
        let connecting = session.phase == Phase::Connecting;
        if now.mono < session.heard + interval {
            let due = session.heard + interval;
            return self.timers.set(Timer::KeepAlive(link), due);
        }
        if connecting || session.pinged.is_some() {
            return self.close(now, link);
        }
        session.pinged = Some(now.mono);
        self.links.send(link, &Command::Ping);
        self.timers.set(Timer::KeepAlive(link), now.mono + interval);
    }

    /// Holds a request back until `holder` has proved to be alive or dead.
    pub(crate) fn ask_if_alive(&mut self, now: Now, holder: LinkId, asking: LinkId, command: Command) {
        let waiting = self.liveness.entry(holder).or_default();
        waiting.push((asking, command));
        if waiting.len() == 1 {
            self.links.send(holder, &Command::Ping);
            self.timers.set(Timer::Liveness(holder), now.mono + self.config.liveness_timeout);
        }
    }

    /// Anything from a link shows that it is alive: those who wanted its place are refused.
    pub(crate) fn proved_alive(&mut self, now: Now, link: LinkId) {
        if self.liveness.is_empty() {
            return;
        }
        let Some(waiting) = self.liveness.remove(&link) else { return };
        self.timers.cancel(Timer::Liveness(link));
        for (asking, command) in waiting {
            match command {
                Command::Producer(request) => self.create_producer(now, asking, *request, true),
                Command::Subscribe(request) => self.subscribe(now, asking, *request, true),
                other => self.command(now, asking, other),
            }
        }
    }

    /// The link did not answer: it is dropped, and those who wanted its place get it.
    pub(crate) fn proved_dead(&mut self, now: Now, link: LinkId) {
        self.cut(now, link);
    }

    /// Answers a request with an error, in the form that its kind of answer has.
    pub(crate) fn refuse(&mut self, link: LinkId, command: &Command, error: ServerError, message: &str) {
        let text = Some(message.to_owned());
        let code = Some(error as i32);
        let answer = match command {
            Command::Lookup(c) => return self.lookup_failed(link, c.request_id, error, message),
            Command::PartitionedMetadata(c) => {
                return self.partitions_failed(link, c.request_id, error, message);
            }
            Command::ConsumerStats(c) => {
                Command::ConsumerStatsResponse(Box::new(proto::CommandConsumerStatsResponse {
                    request_id: c.request_id,
                    error_code: code,
                    error_message: text,
                    ..Default::default()
                }))
            }
            Command::GetSchema(c) => Command::GetSchemaResponse(Box::new(proto::CommandGetSchemaResponse {
                request_id: c.request_id,
                error_code: code,
                error_message: text,
                ..Default::default()
            })),
            Command::GetOrCreateSchema(c) => {
                Command::GetOrCreateSchemaResponse(Box::new(proto::CommandGetOrCreateSchemaResponse {
                    request_id: c.request_id,
                    error_code: code,
                    error_message: text,
                    ..Default::default()
                }))
            }
            Command::Ack(c) => Command::AckResponse(proto::CommandAckResponse {
                consumer_id: c.consumer_id,
                error: code,
                message: text,
                request_id: c.request_id,
                ..Default::default()
            }),
            _ => {
                let request_id = request_id(command).unwrap_or(NO_REQUEST);
                return self.links.error(link, request_id, error, message);
            }
        };
        self.links.send(link, &answer);
    }

    pub(crate) fn no_transactions(&mut self, link: LinkId, command: &Command) {
        let error = Some(ServerError::NotAllowedError as i32);
        let message = Some("Transactions are not supported by the embedded broker".to_owned());
        let answer = match command {
            Command::TcClientConnectRequest(c) => {
                Command::TcClientConnectResponse(proto::CommandTcClientConnectResponse {
                    request_id: c.request_id,
                    error,
                    message,
                })
            }
            Command::NewTxn(c) => Command::NewTxnResponse(proto::CommandNewTxnResponse {
                request_id: c.request_id,
                error,
                message,
                ..Default::default()
            }),
            Command::AddPartitionToTxn(c) => {
                Command::AddPartitionToTxnResponse(proto::CommandAddPartitionToTxnResponse {
                    request_id: c.request_id,
                    error,
                    message,
                    ..Default::default()
                })
            }
            Command::AddSubscriptionToTxn(c) => {
                Command::AddSubscriptionToTxnResponse(proto::CommandAddSubscriptionToTxnResponse {
                    request_id: c.request_id,
                    error,
                    message,
                    ..Default::default()
                })
            }
            Command::EndTxn(c) => Command::EndTxnResponse(proto::CommandEndTxnResponse {
                request_id: c.request_id,
                error,
                message,
                ..Default::default()
            }),
            _ => return,
        };
        self.links.send(link, &answer);
    }

    fn may_connect(&self, method: Option<&str>, data: Option<&Bytes>) -> bool {
        let good = |t: &String| data.is_some_and(|d| d[..] == *t.as_bytes());
        self.config.tokens.is_empty() || (method == Some("token") && self.config.tokens.iter().any(good))
    }
}

fn request_id(command: &Command) -> Option<u64> {
    Some(match command {
        Command::Producer(c) => c.request_id,
        Command::Subscribe(c) => c.request_id,
        Command::CloseProducer(c) => c.request_id,
        Command::CloseConsumer(c) => c.request_id,
        Command::Unsubscribe(c) => c.request_id,
        Command::Seek(c) => c.request_id,
        Command::GetLastMessageId(c) => c.request_id,
        Command::GetTopicsOfNamespace(c) => c.request_id,
        Command::WatchTopicList(c) => c.request_id,
        _ => return None,
    })
}
