//! The client handle: what it opens and what it can be asked. Decides when a client ends: with its last handle.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use geminga_core::{
    ClientStats, ConsumerConfig, Error, ErrorKind, HandleId, Position, ProducerConfig, ReaderConfig, Reply,
    TopicDomain,
};

use crate::builder::ClientBuilder;
use crate::consumer::{Consumer, ConsumerBuilder, ConsumerRef};
use crate::events::StateEvents;
use crate::producer::{Producer, ProducerBuilder};
use crate::reader::{Reader, ReaderBuilder};
use crate::shared::Shared;

/// One Pulsar client: it opens producers, consumers and readers, which share its connections.
///
/// A cheap handle: clone it freely, use it from any task and any thread. The client closes with [`close`](Self::close), or
/// when the last of its handles (clones of it, producers, consumers, readers) is dropped.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<ClientRef>,
}

/// What every handle of a client holds.
pub(crate) struct ClientRef {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for ClientRef {
    fn drop(&mut self) {
        self.shared.with(|state, now| state.close(now));
    }
}

impl Client {
    /// A client with the defaults. The URL is `pulsar://host:6650` or `pulsar+ssl://host:6651`, several hosts between commas.
    ///
    /// Nothing is connected yet. Errors: InvalidUrl, InvalidConfiguration.
    pub fn new(service_url: &str) -> Result<Client, Error> {
        Client::builder(service_url).build()
    }

    /// A client with settings of your own.
    pub fn builder(service_url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(service_url.into())
    }

    /// A producer on `topic`, to be set up.
    pub fn producer(&self, topic: impl Into<String>) -> ProducerBuilder {
        ProducerBuilder { client: self.clone(), config: ProducerConfig::new(topic) }
    }

    /// A consumer of `topic` in `subscription`, to be set up.
    pub fn consumer(&self, topic: impl Into<String>, subscription: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder { client: self.clone(), config: ConsumerConfig::new(topic, subscription) }
    }

    /// A reader of `topic` from `start`, to be set up.
    pub fn reader(&self, topic: impl Into<String>, start: Position) -> ReaderBuilder {
        ReaderBuilder { client: self.clone(), config: ReaderConfig::new(topic, start) }
    }

    /// Opens a producer. Errors: what the broker refuses it for; InvalidConfiguration; InvalidTopicName.
    pub async fn create_producer(&self, config: ProducerConfig) -> Result<Producer, Error> {
        Producer::open(self.inner.clone(), config).await
    }

    /// Opens a consumer. Errors as for [`create_producer`](Self::create_producer).
    pub async fn subscribe(&self, config: ConsumerConfig) -> Result<Consumer, Error> {
        Ok(Consumer { inner: ConsumerRef::subscribe(self.inner.clone(), config).await? })
    }

    /// Opens a reader. Errors as for [`create_producer`](Self::create_producer).
    pub async fn create_reader(&self, config: ReaderConfig) -> Result<Reader, Error> {
        Ok(Reader { inner: ConsumerRef::create_reader(self.inner.clone(), config).await? })
    }

    /// How many partitions the topic has, 0 when it is not partitioned.
    pub async fn partitions(&self, topic: &str) -> Result<u32, Error> {
        match self.inner.shared.op(|state, now| state.core.partitions(now, topic))?.await? {
            Reply::Partitions(n) => Ok(n),
            other => Err(unexpected(&other)),
        }
    }

    /// The topics of a namespace such as `public/default`, full names, partitions one by one.
    pub async fn topics_of_namespace(
        &self,
        namespace: &str,
        domain: TopicDomain,
    ) -> Result<Vec<String>, Error> {
        let shared = &self.inner.shared;
        match shared.op(|state, now| state.core.topics_of_namespace(now, namespace, domain))?.await? {
            Reply::Topics(topics) => Ok(topics),
            other => Err(unexpected(&other)),
        }
    }

    /// The service URL of the broker that owns the topic.
    pub async fn lookup_topic(&self, topic: &str) -> Result<String, Error> {
        match self.inner.shared.op(|state, now| state.core.lookup_topic(now, topic))?.await? {
            Reply::Broker(url) => Ok(url),
            other => Err(unexpected(&other)),
        }
    }

    /// Closes every producer, consumer and reader of this client, then its connections; ready when all are gone.
    ///
    /// Acknowledgements are sent before, as by [`Consumer::close`](crate::Consumer::close); messages without receipt fail with
    /// AlreadyClosed, so flush first. Closing twice is fine. Cancel-safe: the client closes all the same.
    /// Errors: the first one of a handle's close; the client is closed then too.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.shared.with(|state, now| state.close(now));
        poll_fn(|cx| self.inner.shared.with(|state, _| state.poll_ended(cx))).await
    }

    /// What becomes of the connections of all handles, from now on.
    pub fn events(&self) -> StateEvents {
        self.inner.events(None)
    }

    /// How much this client holds at this moment.
    pub fn stats(&self) -> ClientStats {
        self.inner.shared.with(|state, _| state.core.stats())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl ClientRef {
    pub(crate) fn events(&self, only: Option<HandleId>) -> StateEvents {
        StateEvents::new(self.shared.events.subscribe(), only)
    }

    /// Waits until the handle is open.
    pub(crate) async fn opened(&self, handle: HandleId) -> Result<(), Error> {
        poll_fn(|cx| self.shared.with(|state, _| state.poll_opened(handle, cx))).await
    }

    /// Closes the handle and waits until it has ended. Errors: what went wrong with that, but not what ended it before.
    pub(crate) async fn close_handle(&self, handle: HandleId) -> Result<(), Error> {
        if !self.shared.with(|state, now| state.close_handle(handle, now)) {
            return Ok(());
        }
        poll_fn(|cx| self.shared.with(|state, _| state.poll_closed(handle, cx))).await
    }
}

/// A reply of another kind than the question's: an error rather than a panic, should it ever be.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::new(ErrorKind::UnknownError, "", format!("unexpected reply {reply:?}"))
}
