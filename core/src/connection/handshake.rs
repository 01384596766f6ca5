//! The beginning of a connection: CONNECT with who we are, CONNECTED with what the broker is, and credentials whenever it
//! asks for them.

use bytes::Bytes;

use super::{DEFAULT_MAX_MESSAGE_SIZE, PROTOCOL_VERSION, Stage, feature_flags};
use crate::config::Authentication;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Notice};
use crate::io::{Answer, Ask, AskId, ConnId, Output};
use crate::time::Timer;
use crate::wire::command::Command;
use crate::wire::proto;

impl Hub {
    pub(crate) fn link_opened(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        if connection.stage != Stage::Linking {
            return;
        }
        match &self.config.authentication {
            Authentication::None => self.greet(id, None, None),
            Authentication::Token(token) => {
                let data = Bytes::copy_from_slice(token.expose().as_bytes());
                self.greet(id, Some("token".to_owned()), Some(data));
            }
            Authentication::Tls => self.greet(id, Some("tls".to_owned()), None),
            Authentication::Ask { .. } => {
                let ask = self.ask(id);
                if let Some(connection) = self.connections.get_mut(id.0) {
                    connection.stage = Stage::Asking(ask);
                }
            }
        }
    }

    fn ask(&mut self, id: ConnId) -> AskId {
        let ask = AskId(self.next_ask.insert(()));
        self.asks.insert(ask, id);
        self.outputs.push_back(Output::Ask(ask, Ask::Credentials));
        ask
    }

    pub(crate) fn forget_ask(&mut self, ask: AskId) {
        self.asks.remove(&ask);
        self.next_ask.remove(ask.0);
    }

    pub(crate) fn answered(&mut self, ask: AskId, answer: Result<Answer, String>) {
        let Some(id) = self.asks.remove(&ask) else { return };
        self.next_ask.remove(ask.0);
        let method = match &self.config.authentication {
            Authentication::Ask { method } => method.clone(),
            _ => "token".to_owned(),
        };
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        match answer {
            Ok(Answer::Credentials(data)) if connection.stage == Stage::Asking(ask) => {
                self.greet(id, Some(method), Some(data.into()));
            }
            Ok(Answer::Credentials(data)) => {
                connection.refresh = None;
                self.respond(id, method, data.into());
            }
            Err(why) => {
                let doing = format!("authentication with {}", connection.address.endpoint);
                let error = Error::new(ErrorKind::ErrorGettingAuthenticationData, doing, why);
                self.close_connection(id, &error, true);
            }
        }
    }

    fn greet(&mut self, id: ConnId, method: Option<String>, data: Option<Bytes>) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        connection.stage = Stage::Greeting;
        let connect = proto::CommandConnect {
            client_version: self.client_version(),
            auth_method_name: method,
            auth_data: data,
            protocol_version: Some(PROTOCOL_VERSION),
            proxy_to_broker_url: self.connections.get(id.0).and_then(|c| c.address.proxy_to.clone()),
            feature_flags: Some(feature_flags()),
            ..proto::CommandConnect::default()
        };
        self.write(id, &Command::Connect(Box::new(connect)));
    }

    fn respond(&mut self, id: ConnId, method: String, data: Bytes) {
        let response = proto::CommandAuthResponse {
            client_version: Some(self.client_version()),
            response: Some(proto::AuthData { auth_method_name: Some(method), auth_data: Some(data) }),
            protocol_version: Some(PROTOCOL_VERSION),
        };
        self.write(id, &Command::AuthResponse(response));
    }

    /// The broker wants to see credentials again, during the handshake or later.
    pub(crate) fn challenged(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id.0) else { return };
        if connection.refresh.is_some() {
            return;
        }
        match &self.config.authentication {
            Authentication::Token(token) => {
                let data = Bytes::copy_from_slice(token.expose().as_bytes());
                self.respond(id, "token".to_owned(), data);
            }
            Authentication::Ask { .. } => {
                let ask = self.ask(id);
                if let Some(connection) = self.connections.get_mut(id.0) {
                    connection.refresh = Some(ask);
                }
            }
            // Empty, not absent: brokers drop the connection for absent data.
            Authentication::Tls => self.respond(id, "tls".to_owned(), Bytes::new()),
            Authentication::None => self.respond(id, "none".to_owned(), Bytes::new()),
        }
    }

    pub(crate) fn connected(&mut self, id: ConnId, connected: &proto::CommandConnected) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        connection.stage = Stage::Ready;
        connection.version = connected.protocol_version.unwrap_or(0).min(PROTOCOL_VERSION);
        connection.max_message_size = match connected.max_message_size {
            Some(size) if size > 0 => size as usize,
            _ => DEFAULT_MAX_MESSAGE_SIZE,
        };
        connection.keep_alive.life(self.now.mono);
        self.ever_connected = true;
        if !self.reached.contains(&connection.address) {
            self.reached.insert(connection.address.clone());
        }
        let waiting = std::mem::take(&mut connection.waiting);
        self.timers.cancel(Timer::Connecting(id));
        self.set_timer(Timer::KeepAlive(id), self.config.keep_alive_interval);
        self.notices.extend(waiting.into_iter().map(|ticket| Notice::Connection(ticket, Ok(id))));
    }

    fn client_version(&self) -> String {
        match &self.config.description {
            Some(text) => format!("Geminga-v{}-{text}", env!("CARGO_PKG_VERSION")),
            None => format!("Geminga-v{}", env!("CARGO_PKG_VERSION")),
        }
    }
}
