//! The client behind `geminga.Client`. Decides how its settings become core's, and how everything it opened ends.
//!
//! The Python class in `geminga/client.py` checks arguments and names what is not supported; what arrives here is whole.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use geminga::{
    AccessMode, Batching, Compression, ConsumerConfig, DeadLetterPolicy, HashingScheme, InitialPosition,
    KeySharedPolicy, OperationRetries, Pem, ProducerConfig, ReaderConfig, Routing, Runtime, SubscriptionType,
};
use pyo3::prelude::*;

use crate::auth::Credentials;
use crate::consumer::{BatchPolicy, Consumer};
use crate::errors::IntoPython;
use crate::executor::{self, Executor};
use crate::fork::{self, ProcessBound};
use crate::logs;
use crate::message_id::MessageId;
use crate::operation::{self, Operation, Target};
use crate::producer::{self, Options, Producer, Sending};
use crate::reader::Reader;
use crate::receiving::start;
use crate::waiting::{wait, wait_within};

/// How long the end of the interpreter waits for messages on their way, and then for each client to close.
const EXIT_LIMIT: Duration = Duration::from_millis(1000);

/// One Pulsar client, without the checks of `geminga.Client`.
#[pyclass(frozen, module = "geminga._geminga")]
pub(crate) struct ClientCore {
    inner: ProcessBound<Arc<Inner>>,
}

struct Inner {
    core: geminga::Client,
    /// Calls the callbacks of sends.
    callbacks: Arc<Executor>,
    /// Calls the listeners, which may take their time.
    listeners: Arc<Executor>,
    producers: Mutex<Vec<Weak<Sending>>>,
    operation_timeout: Duration,
}

/// What a handle holds so that its client lasts as long, in the list of those to close at exit.
pub(crate) type Kept = Arc<dyn Send + Sync>;

/// Every client and its process generation. Touched only with the interpreter held, so no fork finds it locked.
static CLIENTS: Mutex<Vec<(u32, Weak<Inner>)>> = Mutex::new(Vec::new());

/// Settings of a client; names and units are those of `geminga.Client`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ClientOptions {
    authentication: Option<Credentials>,
    operation_timeout_seconds: f64,
    concurrent_lookup_requests: usize,
    tls_trust_certs_file_path: Option<String>,
    tls_allow_insecure_connection: bool,
    connection_timeout_ms: u64,
    listener_name: Option<String>,
    tls_certificate: Option<(String, String)>,
    /// Who gets the client's records, from which Python level on; the `geminga` logger otherwise.
    logger: Option<(Py<PyAny>, u8)>,
}

/// Settings of a producer; names and units are those of `geminga.Client.create_producer`, enums by value.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ProducerOptions {
    producer_name: Option<String>,
    initial_sequence_id: Option<i64>,
    send_timeout_millis: u64,
    compression_type: u32,
    max_pending_messages: usize,
    block_if_queue_full: bool,
    batching_enabled: bool,
    batching_max_messages: usize,
    batching_max_allowed_size_in_bytes: usize,
    batching_max_publish_delay_ms: u64,
    message_routing_mode: u32,
    properties: HashMap<String, String>,
    access_mode: u32,
    schema: Option<Py<PyAny>>,
    message_router: Option<Py<PyAny>>,
}

/// Settings of a consumer; names and units are those of `geminga.Client.subscribe`, enums by value.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ConsumerOptions {
    consumer_type: u32,
    receiver_queue_size: u32,
    max_total_receiver_queue_size_across_partitions: u32,
    consumer_name: Option<String>,
    negative_ack_redelivery_delay_ms: u64,
    is_read_compacted: bool,
    properties: HashMap<String, String>,
    initial_position: u32,
    start_message_id_inclusive: bool,
    batch_index_ack_enabled: bool,
    sticky_ranges: Option<Vec<(u16, u16)>>,
    dead_letter_policy: Option<(u32, Option<String>, Option<String>)>,
    batch_receive_policy: BatchPolicy,
    schema: Option<Py<PyAny>>,
    message_listener: Option<Py<PyAny>>,
}

/// Settings of a reader; names and units are those of `geminga.Client.create_reader`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ReaderOptions {
    receiver_queue_size: u32,
    reader_name: Option<String>,
    subscription_name: Option<String>,
    is_read_compacted: bool,
    start_message_id_inclusive: bool,
    schema: Option<Py<PyAny>>,
    reader_listener: Option<Py<PyAny>>,
}

impl ClientCore {
    fn producer_config(topic: &str, options: &ProducerOptions) -> ProducerConfig {
        ProducerConfig {
            name: options.producer_name.clone(),
            access_mode: match options.access_mode {
                1 => AccessMode::Exclusive,
                2 => AccessMode::WaitForExclusive,
                3 => AccessMode::ExclusiveWithFencing,
                _ => AccessMode::Shared,
            },
            send_timeout: (options.send_timeout_millis > 0)
                .then(|| Duration::from_millis(options.send_timeout_millis)),
            max_pending_messages: options.max_pending_messages,
            block_if_queue_full: options.block_if_queue_full,
            batching: Batching {
                enabled: options.batching_enabled,
                max_messages: options.batching_max_messages,
                max_bytes: options.batching_max_allowed_size_in_bytes,
                max_publish_delay: Duration::from_millis(options.batching_max_publish_delay_ms),
            },
            compression: match options.compression_type {
                1 => Compression::Lz4,
                2 => Compression::Zlib,
                3 => Compression::Zstd,
                4 => Compression::Snappy,
                _ => Compression::None,
            },
            routing: match options.message_routing_mode {
                0 => Routing::SinglePartition,
                2 if options.message_router.is_some() => Routing::Custom(producer::chosen_before()),
                _ => Routing::RoundRobin,
            },
            // Keys go where the existing Python client sends them.
            hashing_scheme: HashingScheme::BoostHash,
            initial_sequence_id: options.initial_sequence_id,
            properties: sorted(&options.properties),
            ..ProducerConfig::new(topic)
        }
    }

    fn consumer_config(topic: &str, subscription: &str, options: &ConsumerOptions) -> ConsumerConfig {
        ConsumerConfig {
            subscription_type: match options.consumer_type {
                1 => SubscriptionType::Shared,
                2 => SubscriptionType::Failover,
                3 => SubscriptionType::KeyShared,
                _ => SubscriptionType::Exclusive,
            },
            initial_position: match options.initial_position {
                1 => InitialPosition::Earliest,
                _ => InitialPosition::Latest,
            },
            consumer_name: options.consumer_name.clone(),
            receiver_queue_size: options.receiver_queue_size,
            max_total_receiver_queue_size: options.max_total_receiver_queue_size_across_partitions,
            negative_ack_redelivery_delay: Duration::from_millis(options.negative_ack_redelivery_delay_ms),
            dead_letter_policy: options.dead_letter_policy.clone().map(
                |(max_redeliver_count, dead_letter_topic, initial_subscription)| DeadLetterPolicy {
                    max_redeliver_count,
                    dead_letter_topic,
                    initial_subscription,
                },
            ),
            read_compacted: options.is_read_compacted,
            properties: sorted(&options.properties),
            start_message_id_inclusive: options.start_message_id_inclusive,
            batch_index_ack: options.batch_index_ack_enabled,
            key_shared_policy: match &options.sticky_ranges {
                Some(ranges) => KeySharedPolicy::Sticky(ranges.iter().map(|(a, b)| *a..=*b).collect()),
                None => KeySharedPolicy::AutoSplit,
            },
            ..ConsumerConfig::new(topic, subscription)
        }
    }
}

impl ClientCore {
    fn reader_config(topic: &str, from: &MessageId, options: &ReaderOptions) -> ReaderConfig {
        ReaderConfig {
            receiver_queue_size: options.receiver_queue_size,
            reader_name: options.reader_name.clone(),
            subscription: options.subscription_name.clone(),
            read_compacted: options.is_read_compacted,
            start_message_id_inclusive: options.start_message_id_inclusive,
            ..ReaderConfig::new(topic, start(from.0))
        }
    }
}

/// A dict's pairs in an order that does not depend on the run.
fn sorted(properties: &HashMap<String, String>) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = properties.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    pairs.sort();
    pairs
}

#[pymethods]
impl ClientCore {
    #[new]
    fn new(service_url: &str, options: ClientOptions) -> PyResult<Self> {
        let operation_timeout = Duration::try_from_secs_f64(options.operation_timeout_seconds)
            .map_err(|e| pyo3::exceptions::PyValueError::new_err(e.to_string()))?;
        let mut builder = geminga::Client::builder(service_url)
            .runtime(Runtime::Own)
            .operation_timeout(operation_timeout)
            // As there: busy fails at once, all else is tried within the operation timeout.
            .operation_retries(OperationRetries::within_operation_timeout())
            .connection_timeout(Duration::from_millis(options.connection_timeout_ms))
            .concurrent_lookups(options.concurrent_lookup_requests)
            // As there: the queue of each producer is the brake.
            .memory_limit(0)
            .tls_allow_insecure(options.tls_allow_insecure_connection);
        if let Some(path) = options.tls_trust_certs_file_path {
            builder = builder.tls_authorities(Pem::File(path.into()));
        }
        if let Some((certificate, key)) = options.tls_certificate {
            builder = builder.tls_certificate(Pem::File(certificate.into()), Pem::File(key.into()));
        }
        if let Some(name) = options.listener_name {
            builder = builder.listener_name(name);
        }
        if let Some(credentials) = options.authentication {
            builder = credentials.apply(builder);
        }
        let inner = Arc::new(Inner {
            core: logs::of_client(options.logger, || builder.build()).into_python()?,
            callbacks: Executor::new("geminga-callbacks"),
            listeners: Executor::new("geminga-listeners"),
            producers: Mutex::default(),
            operation_timeout,
        });
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|(_, client)| client.strong_count() > 0);
        clients.push((fork::generation(), Arc::downgrade(&inner)));
        Ok(ClientCore { inner: ProcessBound::new(inner) })
    }

    fn create_producer(&self, py: Python<'_>, topic: &str, options: ProducerOptions) -> PyResult<Producer> {
        let inner = self.inner.get()?;
        let config = Self::producer_config(topic, &options);
        let core = wait(py, inner.core.create_producer(config))?.into_python()?;
        Ok(Inner::producer(inner, core, options))
    }

    fn subscribe<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        subscription: &str,
        options: ConsumerOptions,
    ) -> PyResult<Bound<'py, Consumer>> {
        let inner = self.inner.get()?;
        let config = Self::consumer_config(topic, subscription, &options);
        let core = wait(py, inner.core.subscribe(config))?.into_python()?;
        let listener = options.message_listener.as_ref().map(|listener| listener.clone_ref(py));
        let consumer = Bound::new(py, inner.consumer(core, options))?;
        if let Some(listener) = listener {
            Consumer::listen(&consumer, &inner.listeners, listener)?;
        }
        Ok(consumer)
    }

    fn create_reader<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        start_message_id: &MessageId,
        options: ReaderOptions,
    ) -> PyResult<Bound<'py, Reader>> {
        let inner = self.inner.get()?;
        let config = Self::reader_config(topic, start_message_id, &options);
        let core = wait(py, inner.core.create_reader(config))?.into_python()?;
        let reader = Bound::new(py, inner.reader(core, options.schema))?;
        if let Some(listener) = options.reader_listener {
            Reader::listen(&reader, &inner.listeners, listener)?;
        }
        Ok(reader)
    }

    fn partitions(&self, py: Python<'_>, topic: &str) -> PyResult<u32> {
        wait(py, self.inner.get()?.core.partitions(topic))?.into_python()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        wait_within(py, inner.settle(), inner.operation_timeout)?;
        let closed = wait(py, inner.core.close())?.into_python();
        wait_within(py, inner.told(), inner.operation_timeout)?;
        closed
    }

    /// `create_producer` for asyncio.
    fn _create_producer(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        topic: &str,
        options: ProducerOptions,
    ) -> PyResult<Operation> {
        let inner = self.inner.get()?.clone();
        let (executor, client) = (inner.callbacks.clone(), inner.core.clone());
        let config = Self::producer_config(topic, &options);
        let create = async move { client.create_producer(config).await };
        operation::start(py, &executor, target, create, move |py, core| {
            Ok(Py::new(py, Inner::producer(&inner, core, options))?.into_any())
        })
    }

    /// `subscribe` for asyncio.
    fn _subscribe(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        topic: &str,
        subscription: &str,
        options: ConsumerOptions,
    ) -> PyResult<Operation> {
        let inner = self.inner.get()?.clone();
        let (executor, client) = (inner.callbacks.clone(), inner.core.clone());
        let config = Self::consumer_config(topic, subscription, &options);
        let subscribe = async move { client.subscribe(config).await };
        operation::start(py, &executor, target, subscribe, move |py, core| {
            Ok(Py::new(py, inner.consumer(core, options))?.into_any())
        })
    }

    /// `create_reader` for asyncio.
    fn _create_reader(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        topic: &str,
        start_message_id: &MessageId,
        options: ReaderOptions,
    ) -> PyResult<Operation> {
        let inner = self.inner.get()?.clone();
        let (executor, client) = (inner.callbacks.clone(), inner.core.clone());
        let config = Self::reader_config(topic, start_message_id, &options);
        let create = async move { client.create_reader(config).await };
        operation::start(py, &executor, target, create, move |py, core| {
            Ok(Py::new(py, inner.reader(core, options.schema))?.into_any())
        })
    }

    /// `partitions` for asyncio.
    fn _partitions(&self, py: Python<'_>, target: Py<Target>, topic: String) -> PyResult<Operation> {
        let inner = self.inner.get()?;
        let client = inner.core.clone();
        let ask = async move { client.partitions(&topic).await };
        operation::start(py, &inner.callbacks, target, ask, |py, partitions| {
            Ok(partitions.into_pyobject(py)?.into_any().unbind())
        })
    }

    /// Waits for messages on their way, for asyncio.
    fn _settle(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        let inner = self.inner.get()?;
        let settle = inner.settle().map(Ok);
        operation::start(py, &inner.callbacks, target, settle, operation::none)
    }

    /// `close` for asyncio, after `_settle`.
    fn _close(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        let inner = self.inner.get()?.clone();
        let executor = inner.callbacks.clone();
        let close = async move {
            let closed = inner.core.close().await;
            inner.told().await;
            closed
        };
        operation::start(py, &executor, target, close, operation::none)
    }

    /// How long a close waits for messages on their way, in seconds.
    fn _operation_timeout(&self) -> PyResult<f64> {
        Ok(self.inner.get()?.operation_timeout.as_secs_f64())
    }

    /// Begins to close, and doesn't wait.
    fn _shut_down(&self) -> PyResult<()> {
        self.inner.get()?.core.close().now_or_never();
        Ok(())
    }

    fn is_of_this_process(&self) -> bool {
        self.inner.is_of_this_process()
    }
}

impl Inner {
    fn consumer(self: &Arc<Self>, core: geminga::Consumer, options: ConsumerOptions) -> Consumer {
        let (batch, executor) = (options.batch_receive_policy, self.callbacks.clone());
        Consumer::new(core, options.schema, batch, self.clone(), executor)
    }

    fn reader(self: &Arc<Self>, core: geminga::Reader, schema: Option<Py<PyAny>>) -> Reader {
        Reader::new(core, schema, self.clone(), self.callbacks.clone())
    }

    fn producer(self: &Arc<Self>, core: geminga::Producer, options: ProducerOptions) -> Producer {
        let options = Options {
            block_if_queue_full: options.block_if_queue_full,
            schema: options.schema,
            router: options.message_router.filter(|_| options.message_routing_mode == 2),
        };
        let (producer, sending) =
            Producer::new(core, &self.callbacks, options, self.operation_timeout, self.clone());
        let mut producers = self.producers.lock().unwrap_or_else(PoisonError::into_inner);
        producers.retain(|producer| producer.strong_count() > 0);
        producers.push(Arc::downgrade(&sending));
        producer
    }

    fn producers(&self) -> Vec<Arc<Sending>> {
        let producers = self.producers.lock().unwrap_or_else(PoisonError::into_inner);
        producers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Ready when everything sent so far is settled and told.
    fn settle(&self) -> impl Future<Output = ()> + Send + use<> {
        let producers = self.producers();
        async move {
            join_all(producers.iter().map(|producer| producer.settle())).await;
        }
    }

    /// Ready when every callback due has returned.
    fn told(&self) -> impl Future<Output = ()> + Send + use<> {
        let producers = self.producers();
        async move {
            join_all(producers.iter().map(|producer| producer.told())).await;
        }
    }
}

/// Runs before the interpreter ends: messages on their way get a second to be stored, clients close, callback threads end.
#[pyfunction]
pub(crate) fn _at_exit(py: Python<'_>) -> PyResult<()> {
    let clients: Vec<Arc<Inner>> = {
        let clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = clients.iter().filter(|(generation, _)| *generation == fork::generation());
        ours.filter_map(|(_, client)| client.upgrade()).collect()
    };
    wait_within(py, join_all(clients.iter().map(|client| client.settle())), EXIT_LIMIT)?;
    wait_within(py, join_all(clients.iter().map(|client| client.core.close())), EXIT_LIMIT)?;
    executor::stop_all(py, EXIT_LIMIT);
    Ok(())
}
