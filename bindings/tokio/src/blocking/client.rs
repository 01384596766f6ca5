//! The client handle without async.

use geminga_core::{ConsumerConfig, Error, ProducerConfig, ReaderConfig, TopicDomain};

use super::{Consumer, Producer, Reader, wait};

/// [`Client`](crate::Client), each call returning when it is done.
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

impl Client {
    pub(crate) fn new(client: crate::Client) -> Self {
        Client(client)
    }

    /// A client with the defaults; for others see
    /// [`ClientBuilder::build_blocking`](crate::ClientBuilder::build_blocking). Nothing is connected yet.
    pub fn connect(service_url: &str) -> Result<Client, Error> {
        crate::Client::builder(service_url).build_blocking()
    }

    /// Opens a producer.
    pub fn create_producer(&self, config: ProducerConfig) -> Result<Producer, Error> {
        wait(self.0.create_producer(config)).map(Producer)
    }

    /// Opens a consumer.
    pub fn subscribe(&self, config: ConsumerConfig) -> Result<Consumer, Error> {
        wait(self.0.subscribe(config)).map(Consumer)
    }

    /// Opens a reader.
    pub fn create_reader(&self, config: ReaderConfig) -> Result<Reader, Error> {
        wait(self.0.create_reader(config)).map(Reader)
    }

    /// How many partitions the topic has, 0 when it is not partitioned.
    pub fn partitions(&self, topic: &str) -> Result<u32, Error> {
        wait(self.0.partitions(topic))
    }

    /// The topics of a namespace, full names, partitions one by one.
    pub fn topics_of_namespace(&self, namespace: &str, domain: TopicDomain) -> Result<Vec<String>, Error> {
        wait(self.0.topics_of_namespace(namespace, domain))
    }

    /// The service URL of the broker that owns the topic.
    pub fn lookup_topic(&self, topic: &str) -> Result<String, Error> {
        wait(self.0.lookup_topic(topic))
    }

    /// Closes every handle of this client, then its connections. Closing twice is fine.
    pub fn close(&self) -> Result<(), Error> {
        wait(self.0.close())
    }

    /// The same client for async code.
    pub fn asynchronous(&self) -> &crate::Client {
        &self.0
    }
}
