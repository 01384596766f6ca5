//! The machine as its adapter sees it: what goes in and what comes out. What happens to it inside is in `dispatch.rs`.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::config::{ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig};
use crate::consumer::{Consumer, Consumers};
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner, Ticket};
use crate::io::{ConnId, ConsumerId, Event, Input, OpId, Output, ProducerId, Reply, TopicDomain};
use crate::lookup::{Found, Lookups, Query};
use crate::producer::{Producer, Producers};
use crate::time::{Mono, Now, Timer};
use crate::topic_name::{TopicName, check_namespace};
use crate::tries::Tries;

/// One Pulsar client. For more cores, make more clients.
#[derive(Debug)]
pub struct Client {
    pub(crate) hub: Hub,
    pub(crate) lookups: Lookups,
    pub(crate) producers: Producers,
    pub(crate) consumers: Consumers,
    /// Client-level lookups under way.
    pub(crate) operations: BTreeMap<OpId, (Query, Tries)>,
    /// Those who asked for the client's end; all complete together.
    pub(crate) closing: Vec<OpId>,
}

/// How much of everything a client holds, for tests and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ClientStats {
    pub connections: usize,
    pub requests: usize,
    pub lookups: usize,
    pub timers: usize,
    pub producers: usize,
    pub consumers: usize,
    /// Messages without receipt.
    pub pending_messages: usize,
    /// Bytes of messages without receipt.
    pub memory_used: usize,
}

impl Client {
    /// A client that does nothing yet: it connects when something needs a broker.
    ///
    /// `seed` decides about jitter, generated names and first choices; it needs no secrecy. Errors: `InvalidConfiguration`.
    pub fn new(config: ClientConfig, seed: [u8; 32], now: Now) -> Result<Self, Error> {
        config.validate()?;
        let mut hub = Hub::new(config, seed, now);
        let lookups = Lookups::new(&mut hub);
        Ok(Client {
            hub,
            lookups,
            producers: Producers::new(),
            consumers: Consumers::new(),
            operations: BTreeMap::new(),
            closing: Vec::new(),
        })
    }

    /// Takes the world's news. Inputs for ids that are gone are ignored, because sockets race.
    pub fn handle(&mut self, now: Now, input: Input<'_>) {
        self.enter(now);
        match input {
            Input::Connected(id) => self.hub.link_opened(id),
            Input::Received(id, buffer) => self.received(id, buffer),
            Input::Disconnected(id, why) => self.hub.link_closed(id, why),
            Input::Answered(id, answer) => self.hub.answered(id, answer),
            Input::Tick => {}
        }
        self.settle();
        while let Some(timer) = self.hub.timers.pop_due(now.mono) {
            self.fire(timer);
            self.settle();
        }
    }

    /// What is to be done next; call until `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.hub.outputs.pop_front()
    }

    /// When to call `handle` with a tick at the latest.
    pub fn deadline(&self) -> Option<Mono> {
        // News that a call on a handle left behind is delivered by the next `handle`.
        if !self.hub.notices.is_empty() {
            return Some(self.hub.now.mono);
        }
        self.hub.timers.next().map(|(at, _)| at)
    }

    /// What the next deadline is for.
    pub fn deadline_reason(&self) -> Option<String> {
        self.hub.timers.next().map(|(_, timer)| format!("{timer:?}"))
    }

    /// Appends bytes that wait for a connection to `out`, stopping after about `budget` of them. Returns how many.
    ///
    /// Call it when the socket can take more, not before: what was not taken can still be re-aimed after a failover. When
    /// it returns less than `budget`, everything is taken and an `Output::Transmit` announces the next.
    pub fn transmit(&mut self, id: ConnId, budget: usize, out: &mut Vec<Bytes>) -> usize {
        let mut taken = 0;
        loop {
            let Some(connection) = self.hub.connections.get_mut(id.0) else { return taken };
            if taken >= budget {
                if !connection.has_output() {
                    connection.drained();
                }
                return taken;
            }
            if let Some(control) = connection.take_control() {
                taken += control.len();
                out.push(control);
                continue;
            }
            let Some(part) = connection.next_send() else {
                connection.drained();
                return taken;
            };
            if let Some((head, body)) = self.producers.next_send(id, part) {
                connection.send_written();
                taken += head.len() + body.len();
                out.push(head);
                if !body.is_empty() {
                    out.push(body);
                }
                self.hub.became_busy(id);
            }
        }
    }

    /// Starts a producer; an `Event::Opened` or `Event::Closed` follows. Errors: what is wrong with the configuration.
    pub fn create_producer(&mut self, now: Now, config: ProducerConfig) -> Result<ProducerId, Error> {
        self.enter_open(now, "creating a producer")?;
        let id = self.producers.create(&mut self.hub, &mut self.lookups, config)?;
        self.settle();
        Ok(id)
    }

    /// Starts a consumer; an `Event::Opened` or `Event::Closed` follows. Errors: what is wrong with the configuration.
    pub fn subscribe(&mut self, now: Now, config: ConsumerConfig) -> Result<ConsumerId, Error> {
        self.enter_open(now, "subscribing")?;
        let id = self.consumers.subscribe(&mut self.hub, &mut self.lookups, config)?;
        self.settle();
        Ok(id)
    }

    /// Starts a reader: a consumer without a lasting subscription. As [`subscribe`](Self::subscribe).
    pub fn create_reader(&mut self, now: Now, config: ReaderConfig) -> Result<ConsumerId, Error> {
        self.enter_open(now, "creating a reader")?;
        let id = self.consumers.create_reader(&mut self.hub, &mut self.lookups, config)?;
        self.settle();
        Ok(id)
    }

    /// A producer to work with. Errors: `AlreadyClosed`.
    pub fn producer(&mut self, id: ProducerId) -> Result<Producer<'_>, Error> {
        match self.producers.contains(id) {
            true => Ok(Producer { producers: &mut self.producers, hub: &mut self.hub, id }),
            false => Err(Error::new(ErrorKind::AlreadyClosed, "using a producer", "")),
        }
    }

    /// A consumer or reader to work with. Errors: `AlreadyClosed`.
    pub fn consumer(&mut self, id: ConsumerId) -> Result<Consumer<'_>, Error> {
        match self.consumers.contains(id) {
            true => Ok(Consumer { consumers: &mut self.consumers, hub: &mut self.hub, id }),
            false => Err(Error::new(ErrorKind::AlreadyClosed, "using a consumer", "")),
        }
    }

    /// Asks how many partitions a topic has; ends in [`Reply::Partitions`].
    pub fn partitions(&mut self, now: Now, topic: &str) -> Result<OpId, Error> {
        let topic = topic_name(topic, "asking for partitions")?;
        self.ask(now, Query::Partitions(topic.as_str().to_owned()))
    }

    /// Lists the topics of `tenant/namespace`; ends in [`Reply::Topics`]. Errors: InvalidTopicName for no such name.
    pub fn topics_of_namespace(
        &mut self,
        now: Now,
        namespace: &str,
        domain: TopicDomain,
    ) -> Result<OpId, Error> {
        check_namespace(namespace).map_err(|why| {
            Error::new(ErrorKind::InvalidTopicName, format!("listing the topics of {namespace:?}"), why)
        })?;
        self.ask(now, Query::topics(namespace, domain))
    }

    /// Asks which broker owns a topic; ends in [`Reply::Broker`].
    pub fn lookup_topic(&mut self, now: Now, topic: &str) -> Result<OpId, Error> {
        let topic = topic_name(topic, "lookup")?;
        self.ask(now, Query::Broker(topic.as_str().to_owned(), None))
    }

    /// Closes every handle, then every connection; the operation completes when all are gone, within twice the operation
    /// timeout. Errors: the first one that a handle ended with; the client is closed all the same.
    pub fn close(&mut self, now: Now) -> OpId {
        self.enter(now);
        let op = self.hub.operation();
        if self.hub.shut {
            self.hub.event(Event::Completed(op, Ok(Reply::Done)));
            return op;
        }
        self.closing.push(op);
        if self.closing.len() == 1 {
            let error = Error::new(ErrorKind::AlreadyClosed, "", "the client was closed");
            for (op, (_, _)) in std::mem::take(&mut self.operations) {
                self.hub.timers.cancel(Timer::Retry(Owner::Operation(op)));
                self.hub.event(Event::Completed(op, Err(error.clone())));
            }
            self.hub.expect_ends();
            self.producers.close_all(&mut self.hub);
            self.consumers.close_all(&mut self.hub);
            self.settle();
        }
        op
    }

    /// How much of everything there is.
    pub fn stats(&self) -> ClientStats {
        ClientStats {
            connections: self.hub.connections.len(),
            requests: self.hub.connections.iter().map(|(_, c)| c.requests.len()).sum(),
            lookups: self.lookups.len(),
            timers: self.hub.timers.len(),
            producers: self.producers.len(),
            consumers: self.consumers.len(),
            pending_messages: self.producers.pending_messages(),
            memory_used: self.hub.memory.used(),
        }
    }

    /// Asserts what must hold between any two calls; for tests and the simulation.
    ///
    /// # Panics
    /// When permits are not conserved or the memory account does not match the messages held.
    pub fn check_invariants(&self) {
        self.producers.check_invariants(&self.hub);
        self.consumers.check_invariants();
    }

    fn enter(&mut self, now: Now) {
        self.hub.enter(now);
    }

    fn enter_open(&mut self, now: Now, doing: &str) -> Result<(), Error> {
        self.enter(now);
        match self.closing.is_empty() && !self.hub.shut {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::AlreadyClosed, doing, "the client is closed")),
        }
    }

    fn ask(&mut self, now: Now, query: Query) -> Result<OpId, Error> {
        self.enter_open(now, "lookup")?;
        let op = self.hub.operation();
        let tries = Tries::new(&self.hub);
        let timeout = tries.timeout(&self.hub);
        self.operations.insert(op, (query.clone(), tries));
        let ticket = Ticket { owner: Owner::Operation(op), attempt: 0 };
        self.lookups.ask(&mut self.hub, ticket, query, timeout);
        self.settle();
        Ok(op)
    }

    pub(crate) fn operation_looked_up(&mut self, op: OpId, result: Result<Found, Error>) {
        let Some((_, tries)) = self.operations.get_mut(&op) else { return };
        let result = match result {
            Ok(Found::Broker(_, url)) => Ok(Reply::Broker(url)),
            Ok(Found::Partitions(n)) => Ok(Reply::Partitions(n)),
            Ok(Found::Topics(topics)) => Ok(Reply::Topics(topics)),
            Err(error) => match tries.again(&mut self.hub, &error) {
                Some(delay) => return self.hub.set_timer(Timer::Retry(Owner::Operation(op)), delay),
                None => Err(tries.verdict(error)),
            },
        };
        self.operations.remove(&op);
        self.hub.event(Event::Completed(op, result));
    }
}

pub(crate) fn topic_name(topic: &str, doing: &str) -> Result<TopicName, Error> {
    TopicName::parse(topic).map_err(|e| Error::new(ErrorKind::InvalidTopicName, doing, e.to_string()))
}
