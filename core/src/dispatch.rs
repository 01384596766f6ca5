//! Who is told what: frames, timers and notices go to the sub-machine that they concern. Holds no protocol rules.

use bytes::BytesMut;

use crate::attach::{Attached as _, Urls};
use crate::client::Client;
use crate::config::Authentication;
use crate::connection::Stage;
use crate::error::{Error, ErrorKind};
use crate::hub::{Notice, Owner, Ticket};
use crate::io::{ConnId, Event, HandleId};
use crate::slots::Slot;
use crate::time::Timer;
use crate::wire::command::Command;
use crate::wire::frame::{self, Frame};
use crate::wire::proto::command_topic_migrated::ResourceType;

impl Client {
    /// Delivers notices until there are none, then ends a close that has nothing left to wait for.
    pub(crate) fn settle(&mut self) {
        let Client { hub, lookups, producers, consumers, .. } = self;
        while let Some(notice) = hub.notices.pop_front() {
            match notice {
                Notice::Connection(ticket, result) => match ticket.owner {
                    Owner::Lookup(slot) => lookups.connection(hub, slot, result),
                    Owner::ProducerPart(part) => producers.connection(hub, part, ticket, result),
                    Owner::ConsumerPart(part) => consumers.connection(hub, part, ticket, result),
                    Owner::Handle(_) | Owner::Operation(_) | Owner::Nobody => {}
                },
                Notice::Lost(owner, id, error) => match owner {
                    Owner::ProducerPart(part) => producers.lost(hub, part, id, error),
                    Owner::ConsumerPart(part) => consumers.lost(hub, part, id, error),
                    Owner::Handle(_) | Owner::Lookup(_) | Owner::Operation(_) | Owner::Nobody => {}
                },
                Notice::Answered(ticket, kind, id, result) => match ticket.owner {
                    Owner::Lookup(slot) => lookups.answered(hub, slot, result),
                    Owner::ProducerPart(part) => producers.answered(hub, part, ticket, kind, id, result),
                    Owner::ConsumerPart(part) => consumers.answered(hub, part, ticket, kind, id, result),
                    Owner::Handle(_) | Owner::Operation(_) | Owner::Nobody => {}
                },
                Notice::LookedUp(ticket, result) => match ticket.owner {
                    Owner::ProducerPart(part) => producers.looked_up(hub, part, ticket, result),
                    Owner::ConsumerPart(part) => consumers.looked_up(hub, part, ticket, result),
                    Owner::Handle(HandleId::Producer(id)) => {
                        producers.partitions_found(hub, lookups, id, result);
                    }
                    Owner::Handle(HandleId::Consumer(id)) => {
                        consumers.partitions_found(hub, lookups, id, result);
                    }
                    Owner::Operation(op) => {
                        self.operation_looked_up(op, result);
                        return self.settle();
                    }
                    Owner::Lookup(_) | Owner::Nobody => {}
                },
                Notice::DeadLetters(id) => consumers.post(hub, lookups, producers, id),
                Notice::OwnProducer(id, event) => {
                    consumers.own_producer(hub, id, event);
                    consumers.post(hub, lookups, producers, id);
                }
            }
        }
        if !self.closing.is_empty()
            && self.producers.len() == 0
            && self.consumers.len() == 0
            && !self.hub.shut
        {
            self.lookups.close(&mut self.hub);
            self.hub.shut_down();
            // They tell owners that are gone.
            self.hub.notices.clear();
            let end = self.hub.end();
            for op in std::mem::take(&mut self.closing) {
                self.hub.event(Event::Completed(op, end.clone()));
            }
        }
    }

    pub(crate) fn fire(&mut self, timer: Timer) {
        let Client { hub, lookups, producers, consumers, .. } = self;
        match timer {
            Timer::Connecting(id) => hub.connecting_timed_out(id),
            Timer::KeepAlive(id) => hub.check_keep_alive(id),
            Timer::Request(id, request) => hub.request_timed_out(id, request),
            Timer::Lookup(slot) => lookups.timed_out(hub, Slot::from_u64(slot)),
            Timer::Retry(Owner::ProducerPart(part)) => producers.retry(hub, lookups, part),
            Timer::Retry(Owner::ConsumerPart(part)) => consumers.retry(hub, lookups, part),
            Timer::Retry(Owner::Handle(HandleId::Producer(id))) => {
                producers.ask_partitions(hub, lookups, id);
            }
            Timer::Retry(Owner::Handle(HandleId::Consumer(id))) => {
                consumers.ask_partitions(hub, lookups, id);
            }
            Timer::Retry(Owner::Operation(op)) => {
                if let Some((query, tries)) = self.operations.get_mut(&op) {
                    if let Some(error) = tries.expired(hub, || query.doing()) {
                        self.operations.remove(&op);
                        return hub.event(Event::Completed(op, Err(error)));
                    }
                    let ticket = Ticket { owner: Owner::Operation(op), attempt: 0 };
                    lookups.ask(hub, ticket, query.clone(), tries.timeout(hub));
                }
            }
            Timer::Opening(Owner::ProducerPart(part)) => producers.opening_timed_out(hub, part),
            Timer::Opening(Owner::ConsumerPart(part)) => consumers.opening_timed_out(hub, part),
            Timer::Partitions(HandleId::Producer(id)) => producers.ask_partitions(hub, lookups, id),
            Timer::Partitions(HandleId::Consumer(id)) => consumers.ask_partitions(hub, lookups, id),
            Timer::BatchDelay(part) => producers.batch_delay(hub, Slot::from_u64(part)),
            Timer::SendTimeout(part) => producers.send_timeout(hub, Slot::from_u64(part)),
            Timer::AckGroup(part) => consumers.ack_group(hub, Slot::from_u64(part)),
            Timer::NegativeAck(part) => consumers.negative_ack(hub, Slot::from_u64(part)),
            Timer::DeadLetters(id) => consumers.dead_letters_timed_out(hub, producers, id),
            Timer::Closing(part) => consumers.close_timed_out(hub, Slot::from_u64(part)),
            Timer::Operation(op) => consumers.operation_timed_out(hub, op),
            Timer::Retry(_) | Timer::Opening(_) => {}
        }
    }

    pub(crate) fn received(&mut self, id: ConnId, buffer: &mut BytesMut) {
        while let Some(connection) = self.hub.connections.get(id.0) {
            let frame = match frame::split(buffer, connection.max_frame()) {
                Ok(Some(bytes)) => frame::decode(bytes),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            match frame {
                Ok(frame) => self.frame(id, frame),
                Err(error) => {
                    let doing = format!("talking to {}", connection.address.endpoint);
                    let error = Error::new(ErrorKind::ReadError, doing, error.to_string());
                    self.hub.close_connection(id, &error, true);
                }
            }
            self.settle();
        }
        // The connection is gone: what is left in the buffer is nobody's.
        buffer.clear();
    }

    fn frame(&mut self, id: ConnId, frame: Frame) {
        let Client { hub, producers, consumers, .. } = self;
        let Some(connection) = hub.connections.get(id.0) else { return };
        if !connection.is_ready() {
            return self.handshake(id, frame.command);
        }
        if !matches!(frame.command, Command::Ping) {
            hub.life(id);
        }
        match frame.command {
            Command::SendReceipt(receipt) => producers.receipt(hub, id, &receipt),
            Command::Message(message) => match frame.payload {
                Some(payload) => consumers.message(hub, id, message, payload),
                None => self.protocol_error(id, "a MESSAGE without payload"),
            },
            Command::Ping => hub.write(id, &Command::Pong),
            Command::Pong | Command::Unknown(_) => {}
            Command::Error(e) => {
                let error = Error::from_server(e.error, Some(&e.message), "");
                hub.answer(id, e.request_id, Err(error));
            }
            Command::ProducerSuccess(ref success) if success.producer_ready == Some(false) => {
                match hub.request_owner(id, success.request_id) {
                    Some(Owner::ProducerPart(part)) => {
                        producers.queued(hub, part);
                        hub.wait_for_ever(id, success.request_id);
                    }
                    // Nobody waits for that turn any more.
                    _ => hub.answer(id, success.request_id, Ok(frame.command)),
                }
            }
            Command::AckResponse(ref r) => match r.error {
                Some(code) => {
                    let error = Error::from_server(code, r.message.as_deref(), "");
                    hub.answer(id, r.request_id.unwrap_or(0), Err(error));
                }
                None => hub.answer(id, r.request_id.unwrap_or(0), Ok(frame.command)),
            },
            Command::Success(ref r) => hub.answer(id, r.request_id, Ok(frame.command)),
            Command::ProducerSuccess(ref r) => hub.answer(id, r.request_id, Ok(frame.command)),
            Command::LookupResponse(ref r) => hub.answer(id, r.request_id, Ok(frame.command)),
            Command::PartitionedMetadataResponse(ref r) => hub.answer(id, r.request_id, Ok(frame.command)),
            Command::GetTopicsOfNamespaceResponse(ref r) => hub.answer(id, r.request_id, Ok(frame.command)),
            Command::GetLastMessageIdResponse(ref r) => hub.answer(id, r.request_id, Ok(frame.command)),
            Command::SendError(e) => producers.send_error(hub, id, &e),
            Command::CloseProducer(close) => producers.closed_by_broker(hub, id, &close),
            Command::CloseConsumer(close) => consumers.closed_by_broker(hub, id, &close),
            Command::ActiveConsumerChange(c) => consumers.active_change(hub, id, &c),
            Command::ReachedEndOfTopic(r) => consumers.end_of_topic(hub, id, &r),
            Command::AuthChallenge(_) => hub.challenged(id),
            Command::TopicMigrated(m) => {
                let to = Urls::new(&m.broker_service_url, &m.broker_service_url_tls);
                let part = Slot::from_u64(m.resource_id);
                match m.resource_type == ResourceType::Producer as i32 {
                    true => producers.migrated(hub, part, to),
                    false => consumers.migrated(hub, part, to),
                }
            }
            other => {
                let what = format!("a {} command, which is not for clients", other.name());
                self.protocol_error(id, &what);
            }
        }
    }

    /// Before CONNECTED only these may come.
    fn handshake(&mut self, id: ConnId, command: Command) {
        let Some(connection) = self.hub.connections.get(id.0) else { return };
        let doing = format!("connecting to {}", connection.address.endpoint);
        match command {
            Command::Connected(connected) if connection.stage == Stage::Greeting => {
                self.hub.connected(id, &connected)
            }
            Command::AuthChallenge(_) if connection.stage == Stage::Greeting => self.hub.challenged(id),
            Command::Error(e) => {
                let mut error = Error::from_server(e.error, Some(&e.message), doing);
                let nothing_given = matches!(self.hub.config.authentication, Authentication::None);
                if nothing_given && error.kind() == ErrorKind::AuthenticationError {
                    error = error.adding("the client was given no token or other credentials");
                }
                self.hub.close_connection(id, &error, true);
            }
            Command::Ping => self.hub.write(id, &Command::Pong),
            other => {
                let why = format!("the peer answered CONNECT with {}; is it a Pulsar broker?", other.name());
                self.hub.close_connection(id, &Error::new(ErrorKind::ConnectError, doing, why), true);
            }
        }
    }

    fn protocol_error(&mut self, id: ConnId, what: &str) {
        let Some(connection) = self.hub.connections.get(id.0) else { return };
        let doing = format!("talking to {}", connection.address.endpoint);
        let error = Error::new(ErrorKind::ReadError, doing, format!("it sent {what}"));
        self.hub.close_connection(id, &error, true);
    }
}
