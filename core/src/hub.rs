//! What every part of the machine shares: connections, timers, outputs, the generator, the memory budget.
//!
//! Decides how a connection comes and goes and who hears of it; knows no producer, consumer or lookup beyond its name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::config::{Authentication, ClientConfig};
use crate::connection::keepalive::{KeepAlive, Verdict};
use crate::connection::{
    Address, Connection, DEFAULT_MAX_MESSAGE_SIZE, PROTOCOL_VERSION, Request, RequestKind, Stage,
    feature_flags,
};
use crate::error::{Error, ErrorKind};
use crate::io::{
    Answer, Ask, AskId, ConnId, Event, HandleId, LinkError, LinkErrorKind, OpId, Output, ProducerId, Reply,
};
use crate::memory::Memory;
use crate::rng::Rng;
use crate::slots::{Slot, Slots};
use crate::time::{Now, Timer, Timers};
use crate::wire::command::Command;
use crate::wire::proto;

/// Whoever asked for something. Parts are one partition's share of a producer or consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owner {
    ProducerPart(Slot),
    ConsumerPart(Slot),
    Handle(HandleId),
    Lookup(Slot),
    Operation(OpId),
    /// Nobody is left; the answer only ends the request.
    Nobody,
}

/// An owner and which of its attempts: what comes back for an older attempt is ignored or undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) owner: Owner,
    pub(crate) attempt: u32,
}

/// Something that happened for an owner; told one at a time, so that no owner is called from within another.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A connection asked for with `connect` is ready, or is not to be had.
    Connection(Ticket, Result<ConnId, Error>),
    /// The connection that an owner was attached to is gone.
    Lost(Owner, ConnId, Error),
    /// A request has its answer. For an error the command that refused is no longer needed.
    Answered(Ticket, RequestKind, ConnId, Result<Command, Error>),
    /// A lookup that was asked for with `lookup::ask` has ended.
    LookedUp(Ticket, Result<crate::lookup::Found, Error>),
}

/// The shared services.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) config: ClientConfig,
    pub(crate) rng: Rng,
    pub(crate) now: Now,
    pub(crate) timers: Timers<Timer>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) connections: Slots<Connection>,
    pub(crate) memory: Memory,
    /// Producers that refused a message for want of memory.
    pub(crate) memory_waiters: BTreeSet<ProducerId>,
    /// Whether the service URL was ever reached: before that, an unreachable address is an error in the end.
    pub(crate) ever_connected: bool,
    /// Addresses that connected once; as many as there ever were brokers.
    reached: BTreeSet<Address>,
    /// The client is closed and its connections are gone.
    pub(crate) shut: bool,
    /// The first error that a handle ended with since [`expect_ends`](Self::expect_ends).
    end: Option<Error>,
    pool: BTreeMap<Address, ConnId>,
    asks: BTreeMap<AskId, ConnId>,
    next_ask: Slots<()>,
    next_request: u64,
    next_operation: u64,
}

impl Hub {
    pub(crate) fn new(config: ClientConfig, seed: [u8; 32], now: Now) -> Self {
        let memory = Memory::new(config.memory_limit);
        Hub {
            config,
            rng: Rng::new(seed),
            now,
            timers: Timers::new(),
            outputs: VecDeque::new(),
            notices: VecDeque::new(),
            connections: Slots::new(),
            memory,
            memory_waiters: BTreeSet::new(),
            ever_connected: false,
            reached: BTreeSet::new(),
            shut: false,
            end: None,
            pool: BTreeMap::new(),
            asks: BTreeMap::new(),
            next_ask: Slots::new(),
            next_request: 0,
            next_operation: 0,
        }
    }

    /// Takes the time of a call. Clocks of different threads may disagree by a little; the core's never goes back.
    pub(crate) fn enter(&mut self, now: Now) {
        self.now = Now { mono: self.now.mono.max(now.mono), unix_ms: now.unix_ms };
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// The client closes: from here on it counts how its handles end.
    pub(crate) fn expect_ends(&mut self) {
        self.end = None;
    }

    /// A handle ended.
    pub(crate) fn note_end(&mut self, error: Option<&Error>) {
        if self.end.is_none() {
            self.end = error.cloned();
        }
    }

    /// What the client's close ends with.
    pub(crate) fn end(&mut self) -> Result<Reply, Error> {
        self.end.take().map_or(Ok(Reply::Done), Err)
    }

    pub(crate) fn operation(&mut self) -> OpId {
        self.next_operation += 1;
        OpId(self.next_operation)
    }

    pub(crate) fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.timers.set(timer, self.now.mono + after);
    }

    // Connections.

    /// Asks for a connection to `address`; a `Notice::Connection` answers, also when it is ready already.
    pub(crate) fn connect(&mut self, address: Address, ticket: Ticket) {
        if let Some(&id) = self.pool.get(&address) {
            let connection = self.connections.get_mut(id.0).expect("the pool holds live connections");
            match connection.is_ready() {
                true => self.notices.push_back(Notice::Connection(ticket, Ok(id))),
                false => connection.waiting.push(ticket),
            }
            return;
        }
        let config = &self.config;
        let keep_alive = KeepAlive::new(
            config.keep_alive_interval,
            config.busy_keep_alive_interval,
            config.ping_timeout,
            self.now.mono,
        );
        let mut connection = Connection::new(address.clone(), keep_alive);
        connection.waiting.push(ticket);
        let id = ConnId(self.connections.insert(connection));
        self.pool.insert(address.clone(), id);
        self.set_timer(Timer::Connecting(id), self.config.connection_timeout);
        self.outputs.push_back(Output::Connect(id, address.endpoint));
    }

    /// Whether a connection to `address` was ever ready.
    pub(crate) fn was_reached(&self, address: &Address) -> bool {
        self.reached.contains(address)
    }

    /// Makes `owner` hear of the end of this connection.
    pub(crate) fn attach(&mut self, id: ConnId, owner: Owner) {
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.owners.insert(owner);
        }
    }

    /// The opposite of [`attach`](Self::attach).
    pub(crate) fn detach(&mut self, id: ConnId, owner: Owner) {
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.owners.remove(&owner);
        }
    }

    pub(crate) fn write(&mut self, id: ConnId, command: &Command) {
        if let Some(connection) = self.connections.get_mut(id.0)
            && connection.write(command)
        {
            self.outputs.push_back(Output::Transmit(id));
        }
    }

    /// Queues one SEND of a producer part behind those already queued.
    pub(crate) fn write_send(&mut self, id: ConnId, part: Slot) {
        if let Some(connection) = self.connections.get_mut(id.0)
            && connection.write_send(part)
        {
            self.outputs.push_back(Output::Transmit(id));
        }
    }

    /// Writes a request and enters it into the table first. Returns its id.
    pub(crate) fn request(
        &mut self,
        id: ConnId,
        ticket: Ticket,
        kind: RequestKind,
        timeout: Duration,
        command: impl FnOnce(u64) -> Command,
    ) -> u64 {
        self.next_request += 1;
        let request_id = self.next_request;
        let Some(connection) = self.connections.get_mut(id.0) else {
            let error = Error::new(ErrorKind::NotConnected, "", "");
            self.notices.push_back(Notice::Answered(ticket, kind, id, Err(error)));
            return request_id;
        };
        connection.requests.insert(request_id, Request { ticket, kind, open_ended: false });
        self.set_timer(Timer::Request(id, request_id), timeout);
        self.write(id, &command(request_id));
        self.became_busy(id);
        request_id
    }

    /// The connection owes us something from now on.
    pub(crate) fn became_busy(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id.0)
            && let Some(at) = connection.keep_alive.busy(self.now.mono)
            && connection.is_ready()
        {
            self.timers.set_earlier(Timer::KeepAlive(id), at);
        }
    }

    fn settled(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id.0)
            && !connection.is_busy()
        {
            connection.keep_alive.idle();
        }
    }

    /// A SEND was answered by a receipt or an error.
    pub(crate) fn send_answered(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.send_answered();
            self.settled(id);
        }
    }

    /// Takes what waits of a part's SENDs off a connection.
    pub(crate) fn forget_sends(&mut self, id: ConnId, part: Slot, unanswered: u64) {
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.forget_sends(part, unanswered);
            self.settled(id);
        }
    }

    /// The broker announced that this answer has no deadline.
    pub(crate) fn wait_for_ever(&mut self, id: ConnId, request_id: u64) {
        self.timers.cancel(Timer::Request(id, request_id));
        if let Some(connection) = self.connections.get_mut(id.0)
            && let Some(request) = connection.requests.get_mut(request_id)
        {
            request.open_ended = true;
        }
        self.settled(id);
    }

    pub(crate) fn request_owner(&self, id: ConnId, request_id: u64) -> Option<Owner> {
        self.connections.get(id.0)?.requests.get(request_id).map(|r| r.ticket.owner)
    }

    /// Whoever asked is gone: the answer, when it comes, is for nobody.
    pub(crate) fn disown_request(&mut self, id: ConnId, request_id: u64) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        match connection.requests.get_mut(request_id) {
            // It has no deadline, and the broker that is told to forget it does not answer it any more.
            Some(request) if request.open_ended => drop(connection.requests.remove(request_id)),
            Some(request) => request.ticket = Ticket { owner: Owner::Nobody, attempt: 0 },
            None => {}
        }
    }

    /// Ends a connection: everything that waits on it hears `error`, which must be one to try again after unless the
    /// peer's identity or ours was refused.
    pub(crate) fn close_connection(&mut self, id: ConnId, error: &Error, link_is_open: bool) {
        let Some(mut connection) = self.connections.remove(id.0) else { return };
        self.pool.remove(&connection.address);
        self.timers.cancel(Timer::Connecting(id));
        self.timers.cancel(Timer::KeepAlive(id));
        if let Stage::Asking(ask) = connection.stage {
            self.forget_ask(ask);
        }
        if let Some(ask) = connection.refresh {
            self.forget_ask(ask);
        }
        if link_is_open {
            self.outputs.push_back(Output::Disconnect(id));
        }
        for ticket in connection.waiting.drain(..) {
            self.notices.push_back(Notice::Connection(ticket, Err(error.clone())));
        }
        for (request_id, request) in connection.requests.take() {
            self.timers.cancel(Timer::Request(id, request_id));
            self.notices.push_back(Notice::Answered(request.ticket, request.kind, id, Err(error.clone())));
        }
        for owner in std::mem::take(&mut connection.owners) {
            self.notices.push_back(Notice::Lost(owner, id, error.clone()));
        }
    }

    /// Closes every connection for good.
    pub(crate) fn shut_down(&mut self) {
        self.shut = true;
        let error = Error::new(ErrorKind::AlreadyClosed, "", "the client was closed");
        for slot in self.connections.keys() {
            self.close_connection(ConnId(slot), &error, true);
        }
    }

    // What the world says about connections.

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

    pub(crate) fn link_closed(&mut self, id: ConnId, why: LinkError) {
        let Some(connection) = self.connections.get(id.0) else { return };
        let kind = match (why.kind, connection.is_ready()) {
            (LinkErrorKind::Closed, true) => ErrorKind::Disconnected,
            _ => ErrorKind::ConnectError,
        };
        let doing = match kind {
            ErrorKind::Disconnected => format!("talking to {}", connection.address.endpoint),
            _ => format!("connecting to {}", connection.address.endpoint),
        };
        self.close_connection(id, &Error::new(kind, doing, why.message), false);
    }

    fn ask(&mut self, id: ConnId) -> AskId {
        let ask = AskId(self.next_ask.insert(()));
        self.asks.insert(ask, id);
        self.outputs.push_back(Output::Ask(ask, Ask::Credentials));
        ask
    }

    fn forget_ask(&mut self, ask: AskId) {
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

    fn client_version(&self) -> String {
        match &self.config.description {
            Some(text) => format!("Geminga-v{}-{text}", env!("CARGO_PKG_VERSION")),
            None => format!("Geminga-v{}", env!("CARGO_PKG_VERSION")),
        }
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

    /// Ends the request `request_id` with this answer; unknown ids are late answers and mean nothing.
    pub(crate) fn answer(&mut self, id: ConnId, request_id: u64, answer: Result<Command, Error>) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        let Some(request) = connection.requests.remove(request_id) else { return };
        self.timers.cancel(Timer::Request(id, request_id));
        self.settled(id);
        let refused = is_too_many_requests(&answer);
        self.notices.push_back(Notice::Answered(request.ticket, request.kind, id, answer));
        if refused {
            self.rejected(id);
        }
    }

    /// A request was refused as one too many, or a lookup was not answered in time: many of them end the connection.
    pub(crate) fn rejected(&mut self, id: ConnId) {
        let now = self.now.mono;
        if let Some(connection) = self.connections.get_mut(id.0)
            && connection.rejected(now)
        {
            let doing = format!("talking to {}", connection.address.endpoint);
            let error = Error::new(
                ErrorKind::Disconnected,
                doing,
                "it refused too many requests, so the connection was closed",
            );
            self.close_connection(id, &error, true);
        }
    }

    // Timers of connections.

    pub(crate) fn connecting_timed_out(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id.0) else { return };
        let doing = format!("connecting to {}", connection.address.endpoint);
        let error = Error::new(
            ErrorKind::ConnectError,
            doing,
            format!("no answer within {:?}", self.config.connection_timeout),
        );
        self.close_connection(id, &error, true);
    }

    pub(crate) fn request_timed_out(&mut self, id: ConnId, request_id: u64) {
        self.answer(id, request_id, Err(Error::new(ErrorKind::Timeout, "", "the broker did not answer")));
    }

    pub(crate) fn check_keep_alive(&mut self, id: ConnId) {
        let now = self.now.mono;
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        if connection.is_busy() {
            // A SEND may have been written since: it counts from now at the latest.
            connection.keep_alive.busy(now);
        } else {
            connection.keep_alive.idle();
        }
        match connection.keep_alive.check(now) {
            Verdict::Wait(at) => self.timers.set(Timer::KeepAlive(id), at),
            Verdict::Ping(at) => {
                self.write(id, &Command::Ping);
                self.timers.set(Timer::KeepAlive(id), at);
            }
            Verdict::Dead => {
                let doing = format!("talking to {}", connection.address.endpoint);
                let error = Error::new(ErrorKind::Disconnected, doing, "it did not answer a PING");
                self.close_connection(id, &error, true);
            }
        }
    }

    /// The peer reacted to us.
    pub(crate) fn life(&mut self, id: ConnId) {
        let now = self.now.mono;
        if let Some(connection) = self.connections.get_mut(id.0) {
            connection.keep_alive.life(now);
        }
    }
}

fn is_too_many_requests(answer: &Result<Command, Error>) -> bool {
    let code = match answer {
        Err(error) => return error.kind() == ErrorKind::TooManyLookupRequestException,
        Ok(Command::LookupResponse(r)) => r.error,
        Ok(Command::PartitionedMetadataResponse(r)) => r.error,
        Ok(_) => None,
    };
    code.is_some_and(|code| ErrorKind::from_server(code) == ErrorKind::TooManyLookupRequestException)
}
