//! What every part of the machine shares: connections, timers, outputs, the generator, the memory budget.
//!
//! Decides how a connection comes and goes and who hears of it; knows no producer, consumer or lookup beyond its name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::config::ClientConfig;
use crate::connection::keepalive::{KeepAlive, Verdict};
use crate::connection::{Address, Connection, Request, RequestKind, Stage};
use crate::error::{Error, ErrorKind};
use crate::io::{
    AskId, ConnId, ConsumerId, Event, HandleId, LinkError, LinkErrorKind, OpId, Output, ProducerId, Reply,
};
use crate::memory::Memory;
use crate::rng::Rng;
use crate::slots::{Slot, Slots};
use crate::time::{Now, Timer, Timers};
use crate::wire::command::Command;

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
    /// A consumer has dead letters to send, or no more use for their producer.
    DeadLetters(ConsumerId),
    /// News of a consumer's own producer.
    OwnProducer(ConsumerId, Event),
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
    /// Producers that consumers have for themselves: their events are not for the application.
    pub(crate) own_producers: BTreeMap<ProducerId, ConsumerId>,
    /// Whether the service URL was ever reached: before that, an unreachable address is an error in the end.
    pub(crate) ever_connected: bool,
    /// Addresses that connected once; as many as there ever were brokers.
    pub(crate) reached: BTreeSet<Address>,
    /// The client is closed and its connections are gone.
    pub(crate) shut: bool,
    /// The first error that a handle ended with since [`expect_ends`](Self::expect_ends).
    end: Option<Error>,
    pool: BTreeMap<Address, ConnId>,
    pub(crate) asks: BTreeMap<AskId, ConnId>,
    pub(crate) next_ask: Slots<()>,
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
            own_producers: BTreeMap::new(),
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
        if !self.own_producers.is_empty()
            && let Some(producer) = event.producer()
            && let Some(consumer) = self.own_producers.get(&producer).copied()
        {
            if let Event::Closed(..) = event {
                self.own_producers.remove(&producer);
            }
            return self.notices.push_back(Notice::OwnProducer(consumer, event));
        }
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

    /// Has the partition count of a handle's topic asked again after the interval.
    pub(crate) fn plan_partitions_update(&mut self, handle: HandleId) {
        let interval = self.config.partitions_update_interval;
        if !interval.is_zero() {
            self.set_timer(Timer::Partitions(handle), interval);
        }
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
