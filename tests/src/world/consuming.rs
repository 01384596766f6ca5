//! Verbs of an application that consumes.

use std::time::Duration;

use geminga_core::{
    Consumer, ConsumerConfig, Error, Event, HandleId, Message, MessageId, Now, OutgoingMessage, Position,
    ReaderConfig, Reply,
};

use super::{At, ConsumerAt, OpAt, PATIENCE, ProducerAt, Sent, World};

impl World {
    /// Subscribes on client 0, from the earliest message unless changed, and waits until it is open.
    pub fn consumer(
        &mut self,
        topic: &str,
        subscription: &str,
        change: impl FnOnce(&mut ConsumerConfig),
    ) -> ConsumerAt {
        self.consumer_of(0, topic, subscription, change)
    }

    /// Subscribes, from the earliest message unless changed, and waits until it is open.
    pub fn consumer_of(
        &mut self,
        client: usize,
        topic: &str,
        subscription: &str,
        change: impl FnOnce(&mut ConsumerConfig),
    ) -> ConsumerAt {
        let consumer = self.create_consumer(client, topic, subscription, change);
        if let Err(error) = self.await_consumer(consumer) {
            self.fail(&format!("a consumer on {topic} did not open: {error}"));
        }
        consumer
    }

    /// Starts to subscribe, from the earliest message unless changed.
    pub fn create_consumer(
        &mut self,
        client: usize,
        topic: &str,
        subscription: &str,
        change: impl FnOnce(&mut ConsumerConfig),
    ) -> ConsumerAt {
        let mut config = ConsumerConfig::new(topic, subscription);
        config.initial_position = geminga_core::InitialPosition::Earliest;
        change(&mut config);
        let now = self.now();
        match self.machine(client).subscribe(now, config) {
            Ok(id) => At { client, id },
            Err(error) => self.fail(&format!("subscribing to {topic}: {error}")),
        }
    }

    /// Creates a reader on client 0 and waits until it is open.
    pub fn reader(
        &mut self,
        topic: &str,
        start: Position,
        change: impl FnOnce(&mut ReaderConfig),
    ) -> ConsumerAt {
        let reader = self.create_reader(0, topic, start, change);
        if let Err(error) = self.await_consumer(reader) {
            self.fail(&format!("a reader on {topic} did not open: {error}"));
        }
        reader
    }

    /// Starts to create a reader.
    pub fn create_reader(
        &mut self,
        client: usize,
        topic: &str,
        start: Position,
        change: impl FnOnce(&mut ReaderConfig),
    ) -> ConsumerAt {
        let mut config = ReaderConfig::new(topic, start);
        change(&mut config);
        let now = self.now();
        match self.machine(client).create_reader(now, config) {
            Ok(id) => At { client, id },
            Err(error) => self.fail(&format!("creating a reader on {topic}: {error}")),
        }
    }

    /// Waits until a consumer is open; its error if it ends instead.
    pub fn await_consumer(&mut self, consumer: ConsumerAt) -> Result<(), Error> {
        self.await_open(consumer.client, HandleId::Consumer(consumer.id))
    }

    /// A message, if one is here.
    pub fn try_receive(&mut self, consumer: ConsumerAt) -> Option<Message> {
        let now = self.now();
        let message = match self.machine(consumer.client).consumer(consumer.id) {
            Ok(mut view) => view.receive(now),
            Err(error) => self.fail(&format!("receiving: {error}")),
        };
        self.machine(consumer.client).check_invariants();
        self.settle();
        if let Some(message) = &message {
            self.trace.note(now.mono, || {
                let (id, text) = (message.message_id(), String::from_utf8_lossy(message.payload()));
                let text: String = text.chars().take(40).collect();
                format!("client {} takes {id} {text:?} from {:?}", consumer.client, consumer.id)
            });
        }
        message
    }

    /// A message, if one comes in time. Asks again only when the client says that there is one, as an adapter does.
    pub fn receive_within(&mut self, consumer: ConsumerAt, limit: Duration) -> Option<Message> {
        let end = self.now().mono + limit;
        loop {
            let mut seen = self.events().len();
            if let Some(message) = self.try_receive(consumer) {
                return Some(message);
            }
            let told = self.run_until(
                |w| {
                    let news = &w.events()[std::mem::replace(&mut seen, w.events().len())..];
                    news.iter().any(|o| {
                        o.client == consumer.client
                            && matches!(o.event, Event::Readable(id) if id == consumer.id)
                    })
                },
                end.since(self.now().mono),
            );
            if !told {
                return None;
            }
        }
    }

    /// Waits for a message.
    pub fn receive(&mut self, consumer: ConsumerAt) -> Message {
        match self.receive_within(consumer, PATIENCE) {
            Some(message) => message,
            None => self.fail(&format!("no message came within {PATIENCE:?}")),
        }
    }

    /// Waits for so many messages, and gives their payloads as text.
    pub fn receive_texts(&mut self, consumer: ConsumerAt, count: usize) -> Vec<String> {
        (0..count).map(|_| text(&self.receive(consumer))).collect()
    }

    /// Acknowledges one message, which must be possible.
    pub fn ack(&mut self, consumer: ConsumerAt, id: MessageId) {
        if let Err(error) = self.try_ack(consumer, id) {
            self.fail(&format!("acknowledging {id}: {error}"));
        }
    }

    /// Acknowledges one message.
    pub fn try_ack(&mut self, consumer: ConsumerAt, id: MessageId) -> Result<(), Error> {
        let now = self.now();
        self.trace.note(now.mono, || format!("client {} acks {id} on {:?}", consumer.client, consumer.id));
        let client = self.machine(consumer.client);
        client.consumer(consumer.id).and_then(|mut view| view.acknowledge(now, &id))
    }

    /// Acknowledges a message and all before it, which must be possible.
    pub fn ack_cumulative(&mut self, consumer: ConsumerAt, id: MessageId) {
        if let Err(error) = self.try_ack_cumulative(consumer, id) {
            self.fail(&format!("acknowledging up to {id}: {error}"));
        }
    }

    /// Acknowledges a message and all before it.
    pub fn try_ack_cumulative(&mut self, consumer: ConsumerAt, id: MessageId) -> Result<(), Error> {
        let now = self.now();
        self.trace
            .note(now.mono, || format!("client {} acks up to {id} on {:?}", consumer.client, consumer.id));
        let client = self.machine(consumer.client);
        client.consumer(consumer.id).and_then(|mut view| view.acknowledge_cumulative(now, &id))
    }

    /// Acknowledges a message negatively, which must be possible.
    pub fn nack(&mut self, consumer: ConsumerAt, id: MessageId) {
        let now = self.now();
        self.trace.note(now.mono, || format!("client {} nacks {id} on {:?}", consumer.client, consumer.id));
        let client = self.machine(consumer.client);
        let done = client.consumer(consumer.id).and_then(|mut view| view.negative_acknowledge(now, &id));
        if let Err(error) = done {
            self.fail(&format!("acknowledging {id} negatively: {error}"));
        }
    }

    /// Starts a seek.
    pub fn start_seek(&mut self, consumer: ConsumerAt, to: Position) -> OpAt {
        let now = self.now();
        match self.machine(consumer.client).consumer(consumer.id) {
            Ok(mut view) => At { client: consumer.client, id: view.seek(now, to) },
            Err(error) => self.fail(&format!("seeking: {error}")),
        }
    }

    /// Seeks, and waits until it is done.
    pub fn seek(&mut self, consumer: ConsumerAt, to: Position) {
        let op = self.start_seek(consumer, to);
        if let Err(error) = self.complete(op) {
            self.fail(&format!("seeking to {to:?}: {error}"));
        }
    }

    /// Whether there is more to read, as the client says.
    pub fn has_message_available(&mut self, consumer: ConsumerAt) -> bool {
        let now = self.now();
        let id = match self.machine(consumer.client).consumer(consumer.id) {
            Ok(mut view) => view.has_message_available(now),
            Err(error) => self.fail(&format!("asking for more: {error}")),
        };
        match self.complete(At { client: consumer.client, id }) {
            Ok(Reply::Available(yes)) => yes,
            other => self.fail(&format!("asking for more gave {other:?}")),
        }
    }

    /// The last message id of each partition, as the client says.
    pub fn last_message_ids(&mut self, consumer: ConsumerAt) -> Vec<MessageId> {
        let id = self.on(consumer, |mut c, now| c.last_message_ids(now));
        match self.complete(At { client: consumer.client, id }) {
            Ok(Reply::LastMessageIds(ids)) => ids,
            other => self.fail(&format!("asking for the last messages gave {other:?}")),
        }
    }

    /// Calls a consumer that must be there, with the time.
    pub fn on<R>(&mut self, consumer: ConsumerAt, call: impl FnOnce(Consumer<'_>, Now) -> R) -> R {
        let now = self.now();
        let result = match self.machine(consumer.client).consumer(consumer.id) {
            Ok(view) => call(view, now),
            Err(error) => self.fail(&format!("calling a consumer: {error}")),
        };
        self.machine(consumer.client).check_invariants();
        self.settle();
        result
    }

    /// Sends messages and waits until all are stored. What is sent with batching on is one batch.
    pub fn publish<M: Into<OutgoingMessage>>(
        &mut self,
        producer: ProducerAt,
        messages: impl IntoIterator<Item = M>,
    ) -> Vec<MessageId> {
        let sent: Vec<Sent> = messages.into_iter().map(|message| self.send(producer, message)).collect();
        sent.into_iter().map(|sent| self.expect_published(sent)).collect()
    }

    /// Unsubscribes, and waits until the subscription and the consumer are gone.
    pub fn unsubscribe(&mut self, consumer: ConsumerAt) {
        let now = self.now();
        let id = match self.machine(consumer.client).consumer(consumer.id) {
            Ok(mut view) => view.unsubscribe(now),
            Err(error) => self.fail(&format!("unsubscribing: {error}")),
        };
        if let Err(error) = self.complete(At { client: consumer.client, id }) {
            self.fail(&format!("unsubscribing: {error}"));
        }
        if let Some(error) = self.await_closed(consumer.client, HandleId::Consumer(consumer.id)) {
            self.fail(&format!("the end of a consumer after unsubscribe gave {error}"));
        }
    }

    /// Closes a consumer and waits until it is gone.
    pub fn close_consumer(&mut self, consumer: ConsumerAt) {
        let now = self.now();
        match self.machine(consumer.client).consumer(consumer.id) {
            Ok(view) => view.close(now),
            Err(error) => self.fail(&format!("closing a consumer: {error}")),
        }
        if let Some(error) = self.await_closed(consumer.client, HandleId::Consumer(consumer.id)) {
            self.fail(&format!("the close of a consumer gave {error}"));
        }
    }

    /// The payloads that a subscription has not acknowledged at the broker, as text, in order.
    pub fn unacked(&self, topic: &str, subscription: &str) -> Vec<String> {
        match self.broker.unacked(topic, subscription) {
            Ok(messages) => {
                messages.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect()
            }
            Err(error) => self.fail(&format!("{topic} holds what does not decode: {error}")),
        }
    }
}

/// A message's payload as text.
pub fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.payload()).into_owned()
}
