//! How one part of a producer or consumer gets to its broker and back to it: reconnecting as a state.
//!
//! Decides when to look up, connect, ask again or give up. Any number of triggers may say "no longer attached"; there is
//! one attempt at a time, and what comes back for an older one is ignored or undone. Knows nothing of PRODUCER or
//! SUBSCRIBE: the part writes its own request when [`Step::Request`] says so.

use std::time::Duration;

use crate::connection::Address;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner, Ticket};
use crate::io::{ConnId, Endpoint};
use crate::lookup::{Found, Query, broker_endpoint};
use crate::slots::Slot;
use crate::time::{Mono, Timer};
use crate::topic_name::TopicName;
use crate::tries::Tries;
use crate::wire::command::Command;

/// Where a part stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not started.
    Idle,
    LookingUp,
    Connecting,
    /// The part's request waits for its answer.
    Requesting(ConnId, u64),
    Open(ConnId),
    /// Waits before the next attempt.
    Pausing,
    /// Closed or failed; nothing starts any more.
    Ended,
}

/// What a part does next.
#[derive(Debug)]
#[must_use]
pub(crate) enum Step {
    Nothing,
    /// Write the request on this connection, then call [`Attach::requested`].
    Request(ConnId),
    /// Another attempt follows by itself.
    Retrying(Error),
    /// Give up: the handle fails with this.
    Failed(Error),
}

/// A broker as it is named in a command: for clients without TLS and with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Urls<'a> {
    pub(crate) plain: Option<&'a str>,
    pub(crate) tls: Option<&'a str>,
}

impl<'a> Urls<'a> {
    pub(crate) fn new(plain: &'a Option<String>, tls: &'a Option<String>) -> Self {
        Urls { plain: plain.as_deref(), tls: tls.as_deref() }
    }

    /// The one for this client, if it is named and can be understood.
    fn endpoint(self, hub: &Hub) -> Option<Endpoint> {
        let tls = hub.config.service_url.tls();
        let url = if tls { self.tls } else { self.plain };
        broker_endpoint(url.filter(|u| !u.is_empty())?, tls).ok()
    }
}

/// All producers or all consumers, as far as their parts' ways to brokers go: those are the same for both.
pub(crate) trait Attached {
    fn attach_of(&mut self, part: Slot) -> Option<&mut Attach>;

    /// Gives a part's step its effect.
    fn step(&mut self, hub: &mut Hub, part: Slot, step: Step);

    /// Has the broker forget a part that it may know.
    fn undo(&mut self, hub: &mut Hub, part: Slot, id: ConnId);

    fn looked_up(&mut self, hub: &mut Hub, part: Slot, ticket: Ticket, result: Result<Found, Error>) {
        let Some(attach) = self.attach_of(part) else { return };
        let step = attach.looked_up(hub, ticket, result);
        self.step(hub, part, step);
    }

    fn connection(&mut self, hub: &mut Hub, part: Slot, ticket: Ticket, result: Result<ConnId, Error>) {
        let Some(attach) = self.attach_of(part) else { return };
        let step = attach.connected(hub, ticket, result);
        self.step(hub, part, step);
    }

    fn lost(&mut self, hub: &mut Hub, part: Slot, id: ConnId, error: Error) {
        let Some(attach) = self.attach_of(part) else { return };
        let step = attach.lost(hub, id, error);
        self.step(hub, part, step);
    }

    fn opening_timed_out(&mut self, hub: &mut Hub, part: Slot) {
        let Some(attach) = self.attach_of(part) else { return };
        let registered = attach.registered();
        let step = attach.opening_timed_out(hub);
        if let (Some(id), Step::Failed(_)) = (registered, &step) {
            self.undo(hub, part, id);
        }
        self.step(hub, part, step);
    }

    fn migrated(&mut self, hub: &Hub, part: Slot, to: Urls<'_>) {
        if let Some(attach) = self.attach_of(part) {
            attach.migrated(hub, to);
        }
    }
}

/// One part's way to its broker.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) owner: Owner,
    pub(crate) stage: Stage,
    pub(crate) tries: Tries,
    topic: TopicName,
    attempt: u32,
    /// The new owner, named in a close command; used once, without a lookup.
    assigned: Option<Address>,
    /// Where the cluster moved to: all later lookups go there.
    migrated: Option<Address>,
    /// When a broker last closed us in favour of another.
    moved_at: Option<Mono>,
    /// The link of the last attachment, for a new owner behind the same proxy.
    last_address: Option<Address>,
    connecting_since: Mono,
}

impl Attach {
    pub(crate) fn new(hub: &Hub, owner: Owner, topic: TopicName) -> Self {
        Attach {
            owner,
            stage: Stage::Idle,
            tries: Tries::new(hub),
            topic,
            attempt: 0,
            assigned: None,
            migrated: None,
            moved_at: None,
            last_address: None,
            connecting_since: hub.now.mono,
        }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { owner: self.owner, attempt: self.attempt }
    }

    pub(crate) fn is_current(&self, ticket: Ticket) -> bool {
        ticket.attempt == self.attempt && self.stage != Stage::Ended
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// The connection in use, once the broker accepted us.
    pub(crate) fn connection(&self) -> Option<ConnId> {
        match self.stage {
            Stage::Open(id) => Some(id),
            _ => None,
        }
    }

    /// The connection on which the broker knows us or soon will.
    pub(crate) fn registered(&self) -> Option<ConnId> {
        match self.stage {
            Stage::Open(id) | Stage::Requesting(id, _) => Some(id),
            _ => None,
        }
    }

    /// How often the part attached or tried to, the current one included.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Starts the first attempt, and the clock that bounds a creation.
    pub(crate) fn start(&mut self, hub: &mut Hub, lookups: &mut crate::lookup::Lookups) {
        hub.timers.set(Timer::Opening(self.owner), self.tries.since + hub.config.operation_timeout);
        self.begin(hub, lookups);
    }

    fn begin(&mut self, hub: &mut Hub, lookups: &mut crate::lookup::Lookups) {
        hub.timers.cancel(Timer::Retry(self.owner));
        self.attempt += 1;
        let ticket = self.ticket();
        match self.assigned.take() {
            Some(address) => {
                self.connect(hub, address, ticket);
            }
            None => {
                self.stage = Stage::LookingUp;
                let query = Query::Broker(self.topic.as_str().to_owned(), self.migrated.clone());
                let timeout = self.tries.timeout(hub);
                lookups.ask(hub, ticket, query, timeout);
            }
        }
    }

    fn connect(&mut self, hub: &mut Hub, address: Address, ticket: Ticket) {
        self.stage = Stage::Connecting;
        self.connecting_since = hub.now.mono;
        self.last_address = Some(address.clone());
        hub.connect(address, ticket);
    }

    pub(crate) fn looked_up(&mut self, hub: &mut Hub, ticket: Ticket, result: Result<Found, Error>) -> Step {
        if !self.is_current(ticket) || self.stage != Stage::LookingUp {
            return Step::Nothing;
        }
        match result {
            Ok(Found::Broker(address, _)) => {
                self.connect(hub, address, ticket);
                Step::Nothing
            }
            Ok(_) => Step::Nothing,
            Err(error) => self.failed(hub, error),
        }
    }

    pub(crate) fn connected(&mut self, hub: &mut Hub, ticket: Ticket, result: Result<ConnId, Error>) -> Step {
        if !self.is_current(ticket) || self.stage != Stage::Connecting {
            return Step::Nothing;
        }
        match result {
            Ok(id) => {
                self.tries.unreached_since = None;
                // Before the request is written: what the broker pushes may come in the same packet as its answer.
                hub.attach(id, self.owner);
                Step::Request(id)
            }
            Err(error) => {
                let reached = self.last_address.as_ref().is_none_or(|a| hub.was_reached(a));
                match reached {
                    true => self.tries.unreached_since = None,
                    false => drop(self.tries.unreached_since.get_or_insert(self.connecting_since)),
                }
                self.failed(hub, error)
            }
        }
    }

    pub(crate) fn requested(&mut self, id: ConnId, request: u64) {
        self.stage = Stage::Requesting(id, request);
    }

    /// The broker accepted the request.
    pub(crate) fn opened(&mut self, hub: &mut Hub, id: ConnId) {
        self.stage = Stage::Open(id);
        self.tries.success();
        hub.timers.cancel(Timer::Opening(self.owner));
    }

    /// The creation may take as long as it takes from here: the broker said so.
    pub(crate) fn unbound(&mut self, hub: &mut Hub) {
        self.tries.unbounded = true;
        hub.timers.cancel(Timer::Opening(self.owner));
    }

    /// The attempt failed or the attachment ended: decides about the next one.
    pub(crate) fn failed(&mut self, hub: &mut Hub, error: Error) -> Step {
        if self.is_ended() {
            return Step::Nothing;
        }
        self.release(hub);
        let Some(delay) = self.tries.again(hub, &error) else {
            self.end(hub);
            return Step::Failed(self.tries.verdict(error));
        };
        if let Some(end) = self.tries.end(hub) {
            hub.timers.set(Timer::Opening(self.owner), end);
        }
        self.pause(hub, delay);
        Step::Retrying(error)
    }

    /// The broker moved us away, perhaps to a broker that it names; nothing failed.
    pub(crate) fn moved(&mut self, hub: &mut Hub, to: Urls<'_>, error: Error) -> Step {
        if self.is_ended() {
            return Step::Nothing;
        }
        if let Some(endpoint) = to.endpoint(hub) {
            self.assigned = Some(self.behind_same_proxy(endpoint));
        }
        self.release(hub);
        // The named owner is used at once, but brokers that pass a topic back and forth do not set the pace.
        let settled = self.moved_at.is_none_or(|at| hub.now.mono.since(at) >= hub.config.initial_backoff);
        self.moved_at = Some(hub.now.mono);
        let delay = match self.assigned {
            Some(_) if settled => Duration::ZERO,
            _ => self.tries.backoff.next(&mut hub.rng),
        };
        self.pause(hub, delay);
        self.tries.cause = Some(error.clone());
        Step::Retrying(error)
    }

    /// The cluster moved: lookups go there from now on.
    pub(crate) fn migrated(&mut self, hub: &Hub, to: Urls<'_>) {
        if let Some(endpoint) = to.endpoint(hub) {
            self.migrated = Some(Address { endpoint, proxy_to: None });
        }
    }

    fn behind_same_proxy(&self, endpoint: Endpoint) -> Address {
        match &self.last_address {
            Some(Address { endpoint: proxy, proxy_to: Some(_) }) => Address {
                proxy_to: Some(format!("{}:{}", endpoint.host, endpoint.port)),
                endpoint: proxy.clone(),
            },
            _ => Address { endpoint, proxy_to: None },
        }
    }

    /// The connection is gone. Ignored unless it is the one in use.
    pub(crate) fn lost(&mut self, hub: &mut Hub, id: ConnId, error: Error) -> Step {
        match self.stage {
            Stage::Open(current) | Stage::Requesting(current, _) if current == id => self.failed(hub, error),
            _ => Step::Nothing,
        }
    }

    /// The pause is over.
    pub(crate) fn retry(&mut self, hub: &mut Hub, lookups: &mut crate::lookup::Lookups) {
        // At the end of all tries, `opening_timed_out` has its turn in the same moment.
        if self.stage == Stage::Pausing && self.tries.end(hub).is_none_or(|end| hub.now.mono < end) {
            self.begin(hub, lookups);
        }
    }

    /// Somebody waits for this attachment with a deadline: the next attempt comes soon, however long the pauses have grown.
    pub(crate) fn hurry(&mut self, hub: &mut Hub) {
        self.tries.backoff.reset();
        if self.stage == Stage::Pausing {
            let delay = self.tries.backoff.next(&mut hub.rng);
            hub.timers.set_earlier(Timer::Retry(self.owner), hub.now.mono + delay);
        }
    }

    /// The time for a creation is over: the last error is its outcome, if creations are bounded at all.
    pub(crate) fn opening_timed_out(&mut self, hub: &mut Hub) -> Step {
        if self.is_ended() {
            return Step::Nothing;
        }
        let topic = &self.topic;
        if let Some(error) = self.tries.expired(hub, || format!("opening {}", topic.as_str())) {
            self.end(hub);
            return Step::Failed(error);
        }
        if let Some(end) = self.tries.end(hub) {
            hub.timers.set(Timer::Opening(self.owner), end);
        }
        Step::Nothing
    }

    fn pause(&mut self, hub: &mut Hub, delay: Duration) {
        self.stage = Stage::Pausing;
        hub.set_timer(Timer::Retry(self.owner), delay);
    }

    /// Lets go of the connection. An unanswered request becomes nobody's: its late answer changes nothing here.
    fn release(&mut self, hub: &mut Hub) {
        if let Stage::Requesting(id, request) = self.stage {
            hub.disown_request(id, request);
        }
        if let Some(id) = self.registered() {
            hub.detach(id, self.owner);
        }
    }

    /// Stops for good.
    pub(crate) fn end(&mut self, hub: &mut Hub) {
        self.release(hub);
        hub.timers.cancel(Timer::Retry(self.owner));
        hub.timers.cancel(Timer::Opening(self.owner));
        self.stage = Stage::Ended;
    }
}

/// What the application hears of a close that its broker did not confirm. Nothing after a broken link: the broker has then
/// lost what was to be closed.
pub(crate) fn unconfirmed(result: Result<Command, Error>, doing: impl FnOnce() -> String) -> Option<Error> {
    let error = result.err().filter(|e| !e.is_link())?;
    Some(match error.kind() {
        ErrorKind::Timeout => {
            let why = "the broker did not answer, and it may count this client in until the connection ends";
            Error::new(ErrorKind::Timeout, doing(), why)
        }
        _ => error.while_doing(doing()),
    })
}
