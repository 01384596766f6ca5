//! Lookups: which broker owns a topic, how many partitions it has, which topics a namespace has.
//!
//! Decides which host of the service URL is asked, follows redirects, shares identical questions and bounds how many are
//! in flight. One pass only: whoever asked decides about another try.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::connection::{Address, RequestKind};
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Notice, Owner, Ticket};
use crate::io::{ConnId, Endpoint, HandleId, TopicDomain};
use crate::service_url::ServiceUrl;
use crate::slots::{Slot, Slots};
use crate::time::Timer;
use crate::topic_name::TopicName;
use crate::tries::Tries;
use crate::wire::command::Command;
use crate::wire::proto;
use proto::command_get_topics_of_namespace::Mode;
use proto::command_lookup_topic_response::LookupType;

/// A question; equal ones in flight are asked once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Query {
    /// Who owns the topic; asked at this address instead of the service URL after a cluster migration.
    Broker(String, Option<Address>),
    Partitions(String),
    Topics(String, u8),
}

impl Query {
    pub(crate) fn topics(namespace: &str, domain: TopicDomain) -> Self {
        let mode = match domain {
            TopicDomain::Persistent => Mode::Persistent,
            TopicDomain::NonPersistent => Mode::NonPersistent,
            TopicDomain::All => Mode::All,
        };
        Query::Topics(namespace.to_owned(), mode as u8)
    }

    pub(crate) fn doing(&self) -> String {
        match self {
            Query::Broker(topic, _) => format!("lookup of {topic}"),
            Query::Partitions(topic) => format!("asking for the partitions of {topic}"),
            Query::Topics(namespace, _) => format!("listing the topics of {namespace}"),
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// The owner's address, and its service URL.
    Broker(Address, String),
    Partitions(u32),
    Topics(Vec<String>),
}

#[derive(Debug)]
struct Lookup {
    query: Query,
    waiters: Vec<Ticket>,
    timeout: Duration,
    started: bool,
    /// Hosts of the service URL not tried yet, the current one included.
    hosts_left: usize,
    redirects: u32,
    authoritative: bool,
    /// Where it is being asked.
    address: Address,
    redirected: bool,
    request: Option<(ConnId, u64)>,
}

/// All lookups of a client.
#[derive(Debug)]
pub(crate) struct Lookups {
    table: Slots<Lookup>,
    by_query: BTreeMap<Query, Slot>,
    queue: VecDeque<Slot>,
    in_flight: usize,
    /// The host of the service URL in use; moves on when it fails.
    host: usize,
}

impl Lookups {
    pub(crate) fn new(hub: &mut Hub) -> Self {
        let hosts = hub.config.service_url.hosts().len() as u64;
        let host = hub.rng.below(hosts) as usize;
        Lookups { table: Slots::new(), by_query: BTreeMap::new(), queue: VecDeque::new(), in_flight: 0, host }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Asks how many partitions a handle's topic has. Returns what is known without asking: the answer, or that the time for
    /// it is over.
    pub(crate) fn ask_partitions(
        &mut self,
        hub: &mut Hub,
        handle: HandleId,
        topic: &TopicName,
        tries: &Tries,
    ) -> Option<Result<Found, Error>> {
        let query = Query::Partitions(topic.as_str().to_owned());
        if let Some(error) = tries.expired(hub, || query.doing()) {
            return Some(Err(error));
        }
        if topic.partition_index().is_some() {
            return Some(Ok(Found::Partitions(0)));
        }
        let ticket = Ticket { owner: Owner::Handle(handle), attempt: 0 };
        self.ask(hub, ticket, query, tries.timeout(hub));
        None
    }

    /// Asks, or joins an equal question in flight. A `Notice::LookedUp` answers within about `timeout`.
    pub(crate) fn ask(&mut self, hub: &mut Hub, ticket: Ticket, query: Query, timeout: Duration) {
        if let Some(slot) = self.by_query.get(&query).copied()
            && let Some(lookup) = self.table.get_mut(slot)
        {
            lookup.waiters.push(ticket);
            // Nobody waits longer than it would alone: who asked first may have more patience.
            lookup.timeout = lookup.timeout.min(timeout);
            if lookup.started {
                hub.timers.set_earlier(Timer::Lookup(slot.as_u64()), hub.now.mono + timeout);
            }
            return;
        }
        let address = self.service_address(hub);
        let slot = self.table.insert(Lookup {
            query: query.clone(),
            waiters: vec![ticket],
            timeout,
            started: false,
            hosts_left: hub.config.service_url.hosts().len(),
            redirects: 0,
            authoritative: false,
            address,
            redirected: false,
            request: None,
        });
        self.by_query.insert(query, slot);
        match self.in_flight < hub.config.concurrent_lookups {
            true => self.start(hub, slot),
            false => self.queue.push_back(slot),
        }
    }

    pub(crate) fn connection(&mut self, hub: &mut Hub, slot: Slot, result: Result<ConnId, Error>) {
        let host_of_url = |l: &Lookup| !l.redirected && !matches!(l.query, Query::Broker(_, Some(_)));
        let Some(lookup) = self.table.get_mut(slot) else { return };
        match result {
            Ok(id) => self.send(hub, slot, id),
            Err(error) => {
                let on_service_url = host_of_url(lookup);
                if on_service_url {
                    // The next lookup starts elsewhere too, unless another one has moved on already.
                    if lookup.address == service_address(&hub.config.service_url, self.host) {
                        self.host = (self.host + 1) % hub.config.service_url.hosts().len();
                    }
                    lookup.hosts_left -= 1;
                    if lookup.hosts_left > 0 && error.is_retryable() {
                        lookup.address = service_address(&hub.config.service_url, self.host);
                        let address = lookup.address.clone();
                        hub.connect(address, Ticket { owner: Owner::Lookup(slot), attempt: 0 });
                        return;
                    }
                }
                self.end(hub, slot, Err(error));
            }
        }
    }

    pub(crate) fn answered(&mut self, hub: &mut Hub, slot: Slot, result: Result<Command, Error>) {
        let Some(lookup) = self.table.get_mut(slot) else { return };
        lookup.request = None;
        match result {
            Ok(Command::LookupResponse(response)) => self.located(hub, slot, response),
            Ok(Command::PartitionedMetadataResponse(r)) => {
                let failed = r.response == Some(1) || r.error.is_some();
                let result = match failed {
                    true => Err(Error::from_server(r.error.unwrap_or(0), r.message.as_deref(), "")),
                    false => Ok(Found::Partitions(r.partitions.unwrap_or(0))),
                };
                self.end(hub, slot, result);
            }
            Ok(Command::GetTopicsOfNamespaceResponse(r)) => self.end(hub, slot, Ok(Found::Topics(r.topics))),
            Ok(other) => {
                let why = format!("the broker answered {}", other.name());
                self.end(hub, slot, Err(Error::new(ErrorKind::LookupError, "", why)));
            }
            Err(error) => self.end(hub, slot, Err(error)),
        }
    }

    pub(crate) fn timed_out(&mut self, hub: &mut Hub, slot: Slot) {
        let Some(lookup) = self.table.get(slot) else { return };
        let why = match lookup.request {
            Some((id, request)) => {
                hub.disown_request(id, request);
                hub.rejected(id);
                format!("no answer within {:?}", lookup.timeout)
            }
            None => format!("no connection to {} within {:?}", lookup.address.endpoint, lookup.timeout),
        };
        self.end(hub, slot, Err(Error::new(ErrorKind::Timeout, "", why)));
    }

    /// Gives all questions up: nobody is left to hear the answers.
    pub(crate) fn close(&mut self, hub: &mut Hub) {
        for slot in self.table.keys() {
            hub.timers.cancel(Timer::Lookup(slot.as_u64()));
            self.table.remove(slot);
        }
        self.by_query.clear();
        self.queue.clear();
        self.in_flight = 0;
    }

    fn service_address(&self, hub: &Hub) -> Address {
        service_address(&hub.config.service_url, self.host)
    }

    fn start(&mut self, hub: &mut Hub, slot: Slot) {
        let current = self.service_address(hub);
        let Some(lookup) = self.table.get_mut(slot) else { return };
        self.in_flight += 1;
        lookup.started = true;
        lookup.address = match &lookup.query {
            Query::Broker(_, Some(at)) => at.clone(),
            _ => current,
        };
        let (address, timeout) = (lookup.address.clone(), lookup.timeout);
        hub.set_timer(Timer::Lookup(slot.as_u64()), timeout);
        hub.connect(address, Ticket { owner: Owner::Lookup(slot), attempt: 0 });
    }

    fn send(&mut self, hub: &mut Hub, slot: Slot, id: ConnId) {
        let Some(lookup) = self.table.get_mut(slot) else { return };
        let ticket = Ticket { owner: Owner::Lookup(slot), attempt: 0 };
        let listener = hub.config.listener_name.clone();
        let (query, authoritative, timeout) = (lookup.query.clone(), lookup.authoritative, lookup.timeout);
        let kind = match query {
            Query::Broker(..) => RequestKind::Lookup,
            Query::Partitions(_) => RequestKind::Partitions,
            Query::Topics(..) => RequestKind::Topics,
        };
        let request = hub.request(id, ticket, kind, timeout, |request_id| match query {
            Query::Broker(topic, _) => Command::Lookup(proto::CommandLookupTopic {
                topic,
                request_id,
                authoritative: Some(authoritative),
                advertised_listener_name: listener,
                ..proto::CommandLookupTopic::default()
            }),
            Query::Partitions(topic) => {
                Command::PartitionedMetadata(proto::CommandPartitionedTopicMetadata {
                    topic,
                    request_id,
                    ..proto::CommandPartitionedTopicMetadata::default()
                })
            }
            Query::Topics(namespace, mode) => {
                Command::GetTopicsOfNamespace(Box::new(proto::CommandGetTopicsOfNamespace {
                    request_id,
                    namespace,
                    mode: Some(i32::from(mode)),
                    ..proto::CommandGetTopicsOfNamespace::default()
                }))
            }
        });
        if let Some(lookup) = self.table.get_mut(slot) {
            lookup.request = Some((id, request));
        }
    }

    fn located(&mut self, hub: &mut Hub, slot: Slot, response: proto::CommandLookupTopicResponse) {
        let Some(lookup) = self.table.get_mut(slot) else { return };
        let kind = response.response.and_then(|r| LookupType::try_from(r).ok());
        if kind == Some(LookupType::Failed) || kind.is_none() || response.error.is_some() {
            let error = Error::from_server(response.error.unwrap_or(0), response.message.as_deref(), "");
            let error = match hub.config.listener_name.as_deref() {
                // The text is all that tells this mistake from a broker that is starting.
                Some(name) if response.message.as_deref().is_some_and(|m| m.contains("listener")) => {
                    Error::new(
                        ErrorKind::InvalidConfiguration,
                        "",
                        format!("the broker has no advertised listener named {name}"),
                    )
                }
                _ => error,
            };
            return self.end(hub, slot, Err(error));
        }
        let tls = hub.config.service_url.tls();
        let url = if tls { &response.broker_service_url_tls } else { &response.broker_service_url };
        let Some(url) = url.clone().filter(|u| !u.is_empty()) else {
            let why = match tls {
                true => {
                    "the broker advertises no TLS address: use a pulsar:// URL or give the broker a TLS port"
                }
                false => "the broker advertises no plain address: use a pulsar+ssl:// URL",
            };
            return self.end(hub, slot, Err(Error::new(ErrorKind::InvalidUrl, "", why)));
        };
        let endpoint = match broker_endpoint(&url, tls) {
            Ok(endpoint) => endpoint,
            Err(error) => return self.end(hub, slot, Err(error)),
        };
        let through = response.proxy_through_service_url.unwrap_or(false);
        let address = match through {
            true if endpoint != lookup.address.endpoint => {
                let proxy_to = match endpoint.host.contains(':') {
                    true => format!("[{}]:{}", endpoint.host, endpoint.port),
                    false => format!("{}:{}", endpoint.host, endpoint.port),
                };
                Address { endpoint: lookup.address.endpoint.clone(), proxy_to: Some(proxy_to) }
            }
            _ => Address { endpoint, proxy_to: None },
        };
        if kind == Some(LookupType::Connect) {
            return self.end(hub, slot, Ok(Found::Broker(address, url)));
        }
        lookup.redirects += 1;
        if lookup.redirects > hub.config.max_lookup_redirects {
            let why =
                format!("redirected more than {} times, last to {url}", hub.config.max_lookup_redirects);
            return self.end(hub, slot, Err(Error::new(ErrorKind::LookupError, "", why)));
        }
        lookup.authoritative = response.authoritative.unwrap_or(false);
        lookup.redirected = true;
        lookup.address = address.clone();
        hub.connect(address, Ticket { owner: Owner::Lookup(slot), attempt: 0 });
    }

    fn end(&mut self, hub: &mut Hub, slot: Slot, result: Result<Found, Error>) {
        let Some(lookup) = self.table.remove(slot) else { return };
        self.by_query.remove(&lookup.query);
        hub.timers.cancel(Timer::Lookup(slot.as_u64()));
        let result = result.map_err(|e| e.while_doing(lookup.query.doing()));
        for ticket in lookup.waiters {
            hub.notices.push_back(Notice::LookedUp(ticket, result.clone()));
        }
        if lookup.started {
            self.in_flight -= 1;
            if let Some(next) = self.queue.pop_front() {
                self.start(hub, next);
            }
        }
    }
}

fn service_address(url: &ServiceUrl, host: usize) -> Address {
    let host = &url.hosts()[host % url.hosts().len()];
    Address {
        endpoint: Endpoint { host: host.name.clone(), port: host.port, tls: url.tls() },
        proxy_to: None,
    }
}

/// The endpoint behind a broker's service URL. Errors: it is none, or would change whether the client speaks TLS.
pub(crate) fn broker_endpoint(url: &str, tls: bool) -> Result<Endpoint, Error> {
    let wrong = |why: String| Error::new(ErrorKind::InvalidUrl, "", why);
    let parsed =
        ServiceUrl::parse(url).map_err(|e| wrong(format!("the broker gave the address {url:?}: {e}")))?;
    if parsed.tls() != tls {
        let speaks = if tls { "TLS" } else { "plain text" };
        return Err(wrong(format!("the client speaks {speaks}, and the broker gave the address {url:?}")));
    }
    Ok(service_address(&parsed, 0).endpoint)
}
