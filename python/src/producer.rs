//! `Producer`. Decides how Python's sends become core's and how their outcomes come back: returned, raised, or by callback.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use geminga::{ErrorKind, MessageRouter, OutgoingMessage, SendReceipt};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::callbacks::Callbacks;
use crate::client::Kept;
use crate::errors::{self, IntoPython};
use crate::executor::Executor;
use crate::fork::ProcessBound;
use crate::message_id::MessageId;
use crate::operation::{self, Operation, Target, none};
use crate::outgoing::{self, Extras};
use crate::waiting::{wait, wait_within};

/// Sends messages to one topic, over all its partitions.
///
/// Made by `Client.create_producer`; safe to use from any thread. `with` closes it at the end of the block. A pause of the
/// connection (broker restart, unload, network) is no error: what has no receipt is sent again, in order.
///
/// >>> with client.create_producer("invoices") as producer:
/// ...     producer.send(b"3 apples", partition_key="alice", properties={"currency": "EUR"}).partition()
/// -1
#[pyclass(frozen, module = "geminga", name = "Producer")]
pub(crate) struct Producer {
    inner: ProcessBound<Arc<Sending>>,
    _client: ProcessBound<Kept>,
    topic: String,
    schema: Option<Py<PyAny>>,
    /// A Python function that picks partitions.
    router: Option<Py<PyAny>>,
}

/// What the client knows of a producer, to flush it at its end.
pub(crate) struct Sending {
    core: geminga::Producer,
    callbacks: Callbacks,
    executor: Arc<Executor>,
    block_if_queue_full: bool,
    operation_timeout: Duration,
}

impl Sending {
    /// Waits until everything sent so far is settled and its callbacks have returned.
    pub(crate) async fn settle(&self) {
        // Failed sends were told to their own callers.
        self.core.flush().await.ok();
        self.told().await;
    }

    /// Waits until the callbacks of what is settled have returned.
    pub(crate) async fn told(&self) {
        self.callbacks.told().await;
    }

    /// Closes the producer, and waits until the callbacks of what had no receipt have returned.
    async fn close(&self) -> Result<(), geminga::Error> {
        let closed = self.core.close().await;
        self.told().await;
        closed
    }

    /// Sends for asyncio, which is not to wait here: once the queue has room, where the producer blocks on a full one.
    fn send_into(
        self: &Arc<Self>,
        py: Python<'_>,
        message: OutgoingMessage,
        target: Py<Target>,
    ) -> PyResult<()> {
        match self.core.try_enqueue(message) {
            Ok(receipt) => self.callbacks.complete(Ok(receipt), target),
            Err(refused) if self.block_if_queue_full && is_full(&refused.error) => {
                let (sending, partition) = (self.clone(), CHOSEN.get());
                // It is not cancelled: its message may be on its way when its caller is.
                let send = async move {
                    let mut enqueue = pin!(sending.core.enqueue(*refused.message));
                    let enqueued = poll_fn(|cx| {
                        // The choice was made on another thread.
                        CHOSEN.set(partition);
                        enqueue.as_mut().poll(cx)
                    });
                    let enqueued = enqueued.await.map_err(|refused| refused.error);
                    sending.callbacks.complete(enqueued, target);
                };
                operation::spawn(py, &self.executor, send);
            }
            Err(refused) => return Err(errors::to_python(&refused.error)),
        }
        Ok(())
    }
}

fn is_full(error: &geminga::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProducerQueueIsFull | ErrorKind::MemoryBufferIsFull)
}

thread_local! {
    /// The partition that a Python router chose for the message that this thread is about to send.
    static CHOSEN: Cell<u32> = const { Cell::new(0) };
}

/// The routing function for producers with a Python router. It runs while the client is locked, so Python can't be called
/// there: the choice was made before, by [`Producer::choose`], on the same thread.
pub(crate) fn chosen_before() -> MessageRouter {
    MessageRouter(Arc::new(|_, _| CHOSEN.get()))
}

impl Producer {
    pub(crate) fn new(
        core: geminga::Producer,
        executor: &Arc<Executor>,
        options: Options,
        operation_timeout: Duration,
        client: Kept,
    ) -> (Self, Arc<Sending>) {
        let topic = core.topic().to_owned();
        let Options { block_if_queue_full, schema, router } = options;
        let callbacks = Callbacks::new(executor);
        let executor = executor.clone();
        let sending = Arc::new(Sending { core, callbacks, executor, block_if_queue_full, operation_timeout });
        let (inner, _client) = (ProcessBound::new(sending.clone()), ProcessBound::new(client));
        (Producer { inner, _client, topic, schema, router }, sending)
    }

    fn choose(&self, py: Python<'_>, core: &geminga::Producer, message: &OutgoingMessage) -> PyResult<()> {
        let Some(router) = &self.router else { return Ok(()) };
        let shown = py.import("geminga.routing")?.getattr("OutgoingMessage")?.call1((
            message.key.as_deref().unwrap_or_default(),
            PyDict::from_sequence(PyList::new(py, message.properties.iter())?.as_any())?,
            pyo3::types::PyBytes::new(py, &message.payload),
        ))?;
        let partition: u32 = router.bind(py).call1((shown, core.partitions()))?.extract()?;
        CHOSEN.set(partition);
        Ok(())
    }

    /// Starts a call for asyncio.
    fn start<F>(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        call: impl FnOnce(Arc<Sending>) -> F,
    ) -> PyResult<Operation>
    where
        F: Future<Output = Result<(), geminga::Error>> + Send + 'static,
    {
        let sending = self.inner.get()?;
        operation::start(py, &sending.executor, target, call(sending.clone()), none)
    }

    /// Puts the message in the queue; the interpreter is given away only to wait for room.
    #[inline]
    fn enqueue(
        &self,
        py: Python<'_>,
        sending: &Sending,
        message: OutgoingMessage,
    ) -> PyResult<Result<SendReceipt, geminga::Error>> {
        self.choose(py, &sending.core, &message)?;
        match sending.core.try_enqueue(message) {
            Ok(receipt) => Ok(Ok(receipt)),
            Err(refused) => match is_full(&refused.error) && sending.block_if_queue_full {
                true => Ok(wait(py, sending.core.enqueue(*refused.message))?.map_err(|e| e.error)),
                false => Ok(Err(refused.error)),
            },
        }
    }
}

/// What a producer of Python adds to core's.
pub(crate) struct Options {
    pub(crate) block_if_queue_full: bool,
    pub(crate) schema: Option<Py<PyAny>>,
    pub(crate) router: Option<Py<PyAny>>,
}

#[pymethods]
impl Producer {
    /// Sends a message and waits until the broker has stored it; returns its MessageId.
    ///
    /// - `content`: bytes, or what the producer's schema encodes; None is a null value, which deletes its key on a compacted topic.
    /// - `properties`: dict of str to str. `partition_key`, `ordering_key`: str.
    /// - `sequence_id`: the producer counts when it is None. `event_timestamp`, `deliver_at`: milliseconds since 1970-01-01 UTC.
    /// - `deliver_after`: timedelta. `replication_clusters`: list of str, or `disable_replication`.
    ///
    /// Raises ProducerQueueIsFull and MemoryBufferIsFull unless `block_if_queue_full`, Timeout after the send timeout,
    /// MessageTooBig, AlreadyClosed.
    #[pyo3(signature = (content, properties=None, partition_key=None, ordering_key=None, sequence_id=None,
        replication_clusters=None, disable_replication=false, event_timestamp=None, deliver_at=None, deliver_after=None))]
    #[expect(clippy::too_many_arguments, reason = "the keywords are those of the existing client")]
    fn send(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        properties: Option<&Bound<'_, PyDict>>,
        partition_key: Option<&Bound<'_, PyAny>>,
        ordering_key: Option<&Bound<'_, PyAny>>,
        sequence_id: Option<u64>,
        replication_clusters: Option<Vec<String>>,
        disable_replication: bool,
        event_timestamp: Option<u64>,
        deliver_at: Option<i64>,
        deliver_after: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<MessageId> {
        let sending = self.inner.get()?;
        let extras = Extras {
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        };
        let message = outgoing::message(content, self.schema.as_ref(), extras)?;
        let receipt = self.enqueue(py, sending, message)?.into_python()?;
        wait(py, receipt)?.into_python().map(MessageId)
    }

    /// Sends a message and returns at once; `callback(result, message_id)` tells how it went.
    ///
    /// The arguments are those of `send`. Callbacks run on one thread per client, in the order of the sends; `result` is a
    /// `Result`. What a callback raises goes to `sys.unraisablehook`. It may send and receive itself. A message that can't be
    /// queued is told to the callback too; without a callback (None) it is raised here.
    //
    // For asyncio, `callback` is a `Target`, whose future is completed instead.
    #[pyo3(signature = (content, callback, properties=None, partition_key=None, ordering_key=None, sequence_id=None,
        replication_clusters=None, disable_replication=false, event_timestamp=None, deliver_at=None, deliver_after=None))]
    #[expect(clippy::too_many_arguments, reason = "the keywords are those of the existing client")]
    fn send_async(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        callback: Option<Bound<'_, PyAny>>,
        properties: Option<&Bound<'_, PyDict>>,
        partition_key: Option<&Bound<'_, PyAny>>,
        ordering_key: Option<&Bound<'_, PyAny>>,
        sequence_id: Option<u64>,
        replication_clusters: Option<Vec<String>>,
        disable_replication: bool,
        event_timestamp: Option<u64>,
        deliver_at: Option<i64>,
        deliver_after: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let sending = self.inner.get()?;
        let extras = Extras {
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        };
        let message = outgoing::message(content, self.schema.as_ref(), extras)?;
        let callback = match callback.map(|callback| callback.cast_into::<Target>()) {
            Some(Ok(target)) => {
                self.choose(py, &sending.core, &message)?;
                return sending.send_into(py, message, target.unbind());
            }
            Some(Err(other)) => Some(other.into_inner().unbind()),
            None => None,
        };
        match (self.enqueue(py, sending, message)?, callback) {
            (Ok(receipt), Some(callback)) => sending.callbacks.when_stored(receipt, callback),
            (Err(error), Some(callback)) => sending.callbacks.refused(error, callback),
            (Ok(_), None) => {}
            (Err(error), None) => return Err(errors::to_python(&error)),
        }
        Ok(())
    }

    /// `flush` for asyncio.
    fn _flush(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        self.start(py, target, |sending| async move { sending.core.flush().await })
    }

    /// Waits for messages on their way, for asyncio.
    fn _settle(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        self.start(py, target, |sending| async move {
            sending.settle().await;
            Ok(())
        })
    }

    /// `close` for asyncio, after `_settle`.
    fn _close(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        self.start(py, target, |sending| async move { sending.close().await })
    }

    /// How long a close waits for messages on their way, in seconds.
    fn _operation_timeout(&self) -> PyResult<f64> {
        Ok(self.inner.get()?.operation_timeout.as_secs_f64())
    }

    /// Sends what waits for its batch, and waits until everything sent before is settled and its callbacks have returned.
    ///
    /// Raises the first failure among them. In a callback it doesn't wait for callbacks.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let sending = self.inner.get()?;
        let flushed = wait(py, sending.core.flush())?.into_python();
        wait(py, sending.told())?;
        flushed
    }

    /// Flushes, for no longer than the operation timeout, and closes the producer. Closing twice is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let sending = self.inner.get()?;
        wait_within(py, sending.settle(), sending.operation_timeout)?;
        wait(py, sending.close())?.into_python()
    }

    /// The full name of the topic.
    fn topic(&self) -> &str {
        &self.topic
    }

    /// The producer's name, generated by the broker unless given. Raises AlreadyClosed.
    fn producer_name(&self) -> PyResult<String> {
        let closed = || geminga::Error::new(ErrorKind::AlreadyClosed, "asking for the producer's name", "");
        self.inner.get()?.core.name().ok_or_else(closed).into_python()
    }

    /// The highest sequence id that the broker has confirmed, -1 for none.
    fn last_sequence_id(&self) -> PyResult<i64> {
        Ok(self.inner.get()?.core.last_sequence_id())
    }

    /// Whether every partition has its connection.
    fn is_connected(&self) -> PyResult<bool> {
        Ok(self.inner.get()?.core.is_connected())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let state = match self.inner.get() {
            Err(_) => "of another process".to_owned(),
            Ok(sending) => match sending.core.name() {
                Some(name) => format!("{name:?}, {} pending", sending.core.pending_messages()),
                None => "closed".to_owned(),
            },
        };
        format!("<Producer on {}, {state}>", self.topic)
    }
}
