//! Verbs of an application that produces.

use geminga_core::{
    Error, Event, HandleId, MessageId, OutgoingMessage, ProducerConfig, SendError, StateChange,
};

use super::{At, OpAt, PATIENCE, ProducerAt, Sent, World};

impl World {
    /// Creates a producer on client 0 and waits until it is open.
    pub fn producer(&mut self, topic: &str, change: impl FnOnce(&mut ProducerConfig)) -> ProducerAt {
        self.producer_of(0, topic, change)
    }

    /// Creates a producer and waits until it is open.
    pub fn producer_of(
        &mut self,
        client: usize,
        topic: &str,
        change: impl FnOnce(&mut ProducerConfig),
    ) -> ProducerAt {
        let producer = self.create_producer(client, topic, change);
        if let Err(error) = self.await_producer(producer) {
            self.fail(&format!("a producer on {topic} did not open: {error}"));
        }
        producer
    }

    /// Starts to create a producer.
    pub fn create_producer(
        &mut self,
        client: usize,
        topic: &str,
        change: impl FnOnce(&mut ProducerConfig),
    ) -> ProducerAt {
        let mut config = ProducerConfig::new(topic);
        change(&mut config);
        let now = self.now();
        match self.machine(client).create_producer(now, config) {
            Ok(id) => At { client, id },
            Err(error) => self.fail(&format!("creating a producer on {topic}: {error}")),
        }
    }

    /// Waits until a producer is open; its error if it ends instead.
    pub fn await_producer(&mut self, producer: ProducerAt) -> Result<(), Error> {
        self.await_open(producer.client, HandleId::Producer(producer.id))
    }

    /// Hands a message to a producer, which must take it.
    pub fn send(&mut self, producer: ProducerAt, message: impl Into<OutgoingMessage>) -> Sent {
        match self.try_send(producer, message) {
            Ok(sent) => sent,
            Err(refused) => self.fail(&format!("the producer refused a message: {}", refused.error)),
        }
    }

    /// Hands a message to a producer.
    pub fn try_send(
        &mut self,
        producer: ProducerAt,
        message: impl Into<OutgoingMessage>,
    ) -> Result<Sent, SendError> {
        let (now, message) = (self.now(), message.into());
        let id = match self.machine(producer.client).producer(producer.id) {
            Ok(mut view) => view.send(now, message)?,
            Err(error) => return Err(SendError { error, message: Box::new(message) }),
        };
        self.machine(producer.client).check_invariants();
        self.trace.note(now.mono, || format!("client {} sends {id:?} on {:?}", producer.client, producer.id));
        Ok(Sent { producer, id })
    }

    /// Starts a flush.
    pub fn flush(&mut self, producer: ProducerAt) -> OpAt {
        let now = self.now();
        match self.machine(producer.client).producer(producer.id) {
            Ok(mut view) => At { client: producer.client, id: view.flush(now) },
            Err(error) => self.fail(&format!("flushing a producer: {error}")),
        }
    }

    /// What became of a message, once it is known.
    pub fn outcome(&self, sent: Sent) -> Option<Result<MessageId, Error>> {
        self.book.outcome(sent)
    }

    /// Waits for what becomes of a message.
    pub fn await_outcome(&mut self, sent: Sent) -> Result<MessageId, Error> {
        if !self.run_until(|w| w.outcome(sent).is_some(), PATIENCE) {
            self.fail(&format!("{sent:?} has no outcome after {PATIENCE:?}"));
        }
        self.outcome(sent).expect("just seen")
    }

    /// Waits until a message is stored, and says where.
    pub fn expect_published(&mut self, sent: Sent) -> MessageId {
        match self.await_outcome(sent) {
            Ok(id) => id,
            Err(error) => self.fail(&format!("{sent:?} was not published: {error}")),
        }
    }

    /// Waits until all of these are stored.
    pub fn expect_all_published(&mut self, sent: impl IntoIterator<Item = Sent>) {
        for sent in sent {
            self.expect_published(sent);
        }
    }

    /// Closes a producer and waits until it is gone.
    pub fn close_producer(&mut self, producer: ProducerAt) {
        let now = self.now();
        match self.machine(producer.client).producer(producer.id) {
            Ok(mut view) => view.close(now),
            Err(error) => self.fail(&format!("closing a producer: {error}")),
        }
        if let Some(error) = self.await_closed(producer.client, HandleId::Producer(producer.id)) {
            self.fail(&format!("the close of a producer gave {error}"));
        }
    }

    /// The payloads that a topic holds, as text, in order; partitions follow each other.
    pub fn stored(&self, topic: &str) -> Vec<String> {
        match self.broker.stored(topic) {
            Ok(messages) => {
                messages.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect()
            }
            Err(error) => self.fail(&format!("{topic} holds what does not decode: {error}")),
        }
    }

    /// How a handle's standing with its brokers changed, oldest first.
    pub fn state_changes(&self, client: usize, handle: HandleId) -> Vec<StateChange> {
        let of_handle = |event: &Event| match event {
            Event::State(h, change) if *h == handle => Some(change.clone()),
            _ => None,
        };
        let events = self.events().iter().filter(|o| o.client == client);
        events.filter_map(|o| of_handle(&o.event)).collect()
    }
}
