//! `Consumer`. Decides how receiving waits and what it returns; positions, permits and redelivery are core's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use geminga::{AsMessageId, Error, ErrorKind, MessageId as CoreId, Position};
use pyo3::exceptions::{PyStopIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::client::Kept;
use crate::errors::{self, IntoPython};
use crate::executor::Executor;
use crate::fork::ProcessBound;
use crate::listener::Listener;
use crate::message::Message;
use crate::message_id::MessageId;
use crate::operation::{self, Operation, Target, none};
use crate::waiting::wait;

/// Receives the messages of a topic, over all its partitions, in one subscription.
///
/// Made by `Client.subscribe`; safe to use from any thread. `with` closes it at the end of the block, and it can be iterated
/// over: `for message in consumer` ends when the consumer is closed.
#[pyclass(frozen, module = "geminga", name = "Consumer")]
pub(crate) struct Consumer {
    inner: ProcessBound<geminga::Consumer>,
    _client: ProcessBound<Kept>,
    closed: AtomicBool,
    /// Completes asyncio futures.
    executor: Arc<Executor>,
    schema: Option<Py<PyAny>>,
    batch: BatchPolicy,
    listener: Mutex<Option<Listener>>,
    topic: String,
    subscription: String,
    name: String,
}

/// When `batch_receive` returns: at the first limit that is reached.
#[derive(Clone, Copy, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BatchPolicy {
    pub(crate) max_num_message: i64,
    pub(crate) max_num_bytes: i64,
    pub(crate) timeout_ms: i64,
}

impl Consumer {
    pub(crate) fn new(
        core: geminga::Consumer,
        schema: Option<Py<PyAny>>,
        batch: BatchPolicy,
        client: Kept,
        executor: Arc<Executor>,
    ) -> Self {
        Consumer {
            topic: core.topic().to_owned(),
            subscription: core.subscription().to_owned(),
            name: core.name().to_owned(),
            inner: ProcessBound::new(core),
            _client: ProcessBound::new(client),
            closed: AtomicBool::new(false),
            executor,
            schema,
            batch,
            listener: Mutex::new(None),
        }
    }

    /// Has `listener` called for each message.
    pub(crate) fn listen(
        slf: &Bound<'_, Self>,
        executor: &Arc<Executor>,
        listener: Py<PyAny>,
    ) -> PyResult<()> {
        let this = slf.get();
        let messages = this.inner.get()?.stream();
        let schema = this.schema.as_ref().map(|schema| schema.clone_ref(slf.py()));
        let handle = slf.clone().unbind().into_any();
        let started = Listener::start(executor, messages, handle, listener, schema);
        *this.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(())
    }

    fn no_listener(&self, doing: &str) -> PyResult<()> {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        match listener.is_some() {
            true => {
                let why = "a consumer with a message listener gives its messages to that";
                Err(errors::to_python(&Error::new(ErrorKind::InvalidConfiguration, doing, why)))
            }
            false => Ok(()),
        }
    }

    fn with_listener(&self, act: impl FnOnce(&Listener)) -> PyResult<()> {
        self.inner.get()?;
        match &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(listener) => act(listener),
            None => {
                let error = Error::new(
                    ErrorKind::InvalidConfiguration,
                    "pausing a listener",
                    "the consumer has no message listener",
                );
                return Err(errors::to_python(&error));
            }
        }
        Ok(())
    }
}

/// A message or an id, whatever an acknowledgement was given.
pub(crate) struct Acknowledged(CoreId);

impl AsMessageId for Acknowledged {
    fn as_message_id(&self) -> CoreId {
        self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Acknowledged {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(message) = object.cast::<Message>() {
            return Ok(Acknowledged(message.get().core.message_id()));
        }
        match object.cast::<MessageId>() {
            Ok(id) => Ok(Acknowledged(id.get().0)),
            Err(_) => Err(PyTypeError::new_err(format!(
                "expected a Message or a MessageId, not {}",
                object.get_type().name()?
            ))),
        }
    }
}

/// Where a seek goes: an id, or a publish time in milliseconds since 1970-01-01 UTC.
pub(crate) fn position(to: &Bound<'_, PyAny>) -> PyResult<Position> {
    if let Ok(id) = to.cast::<MessageId>() {
        return Ok(start(id.get().0));
    }
    if let Ok(message) = to.cast::<Message>() {
        return Ok(start(message.get().core.message_id()));
    }
    if to.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("a seek needs a MessageId or a time, not bool"));
    }
    if let Ok(timestamp) = to.extract::<i64>() {
        let time = u64::try_from(timestamp)
            .map_err(|_| PyValueError::new_err("a time to seek to must not be negative"))?;
        return Ok(Position::PublishTime(time));
    }
    // A datetime: aware, or in local time.
    if to.hasattr("timestamp")? {
        let seconds: f64 = to.call_method0("timestamp")?.extract()?;
        return Ok(Position::PublishTime((seconds * 1000.0).max(0.0) as u64));
    }
    Err(PyTypeError::new_err(format!(
        "expected a MessageId, milliseconds since 1970 as int, or a datetime, not {}",
        to.get_type().name()?
    )))
}

/// The position of an id; its two ends have names of their own.
pub(crate) fn start(id: CoreId) -> Position {
    match id {
        id if id == CoreId::EARLIEST => Position::Earliest,
        id if id == CoreId::LATEST => Position::Latest,
        id => Position::Id(id),
    }
}

/// The greatest of the last ids of all partitions.
fn last(ids: Vec<CoreId>) -> MessageId {
    MessageId(ids.into_iter().max().unwrap_or(CoreId::EARLIEST))
}

/// How long `timeout_millis` is. Errors: ValueError below zero.
pub(crate) fn timeout(millis: i64) -> PyResult<Duration> {
    let millis =
        u64::try_from(millis).map_err(|_| PyValueError::new_err("timeout_millis must not be negative"))?;
    Ok(Duration::from_millis(millis))
}

pub(crate) fn timed_out(doing: &str, topic: &str, after: Duration) -> PyErr {
    let detail = format!("no message within {} ms", after.as_millis());
    errors::to_python(&Error::new(ErrorKind::Timeout, format!("{doing} from {topic}"), detail))
}

#[pymethods]
impl Consumer {
    /// The next message, waiting for it.
    ///
    /// With `timeout_millis` it raises Timeout when there is none by then. Ctrl-C ends the waiting; no message is lost by it.
    /// Raises AlreadyClosed, or what ended the consumer.
    #[pyo3(signature = (timeout_millis=None))]
    fn receive(&self, py: Python<'_>, timeout_millis: Option<i64>) -> PyResult<Message> {
        let core = self.inner.get()?;
        self.no_listener("receiving")?;
        let message = match timeout_millis {
            None => wait(py, core.receive())?.into_python()?,
            Some(millis) => {
                let limit = timeout(millis)?;
                let received = wait(py, core.receive_timeout(limit))?.into_python()?;
                received.ok_or_else(|| timed_out("receiving", &self.topic, limit))?
            }
        };
        Ok(Message::new(py, message, self.schema.as_ref()))
    }

    /// Several messages in a list: as many as the consumer's `batch_receive_policy` asks for, or those that came within its
    /// time, which may be none.
    fn batch_receive(&self, py: Python<'_>) -> PyResult<Vec<Message>> {
        let core = self.inner.get()?;
        self.no_listener("receiving a batch")?;
        let messages = wait(py, crate::batch_receive::run(core, self.batch))?.into_python()?;
        Ok(messages.into_iter().map(|message| Message::new(py, message, self.schema.as_ref())).collect())
    }

    /// Acknowledges a Message or MessageId: it will not come again. Returns at once; acknowledgements are sent together.
    ///
    /// Raises InvalidMessage for an id that is not of this topic, AlreadyClosed.
    fn acknowledge(&self, message: Acknowledged) -> PyResult<()> {
        self.inner.get()?.acknowledge(&message).into_python()
    }

    /// Acknowledges a Message or MessageId and all before it in its partition.
    ///
    /// Raises CumulativeAcknowledgementNotAllowedError on Shared and Key_Shared subscriptions; else as `acknowledge`.
    fn acknowledge_cumulative(&self, message: Acknowledged) -> PyResult<()> {
        self.inner.get()?.acknowledge_cumulative(&message).into_python()
    }

    /// Says that a Message or MessageId was not processed: it comes again after the consumer's redelivery delay.
    fn negative_acknowledge(&self, message: Acknowledged) -> PyResult<()> {
        self.inner.get()?.negative_acknowledge(&message).into_python()
    }

    /// Has everything that is not acknowledged delivered again, at once.
    fn redeliver_unacknowledged_messages(&self) -> PyResult<()> {
        self.inner.get()?.redeliver_unacknowledged().into_python()
    }

    /// Moves the subscription: to a MessageId, or to the first message published at or after a time, given as milliseconds
    /// since 1970-01-01 UTC or as a datetime.
    fn seek(&self, py: Python<'_>, messageid: &Bound<'_, PyAny>) -> PyResult<()> {
        let to = position(messageid)?;
        wait(py, self.inner.get()?.seek(to))?.into_python()
    }

    /// Removes the subscription at the broker and closes the consumer. Raises the broker's refusal, with other consumers on it.
    fn unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, self.inner.get()?.unsubscribe())?.into_python()
    }

    /// Closes the consumer, its acknowledgements sent. Closing twice is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.inner.get()?;
        self.closed.store(true, Ordering::Relaxed);
        wait(py, core.close())?.into_python()
    }

    /// Whether `close` was called: the client need not hold it any longer.
    fn _is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Stops calling the message listener after the message it is at. What is queued stays queued.
    fn pause_message_listener(&self) -> PyResult<()> {
        self.with_listener(Listener::pause)
    }

    /// Calls the message listener again.
    fn resume_message_listener(&self) -> PyResult<()> {
        self.with_listener(Listener::resume)
    }

    /// The id of the last message of the topic; of a partitioned topic, the greatest among its partitions.
    fn get_last_message_id(&self, py: Python<'_>) -> PyResult<MessageId> {
        let ids = wait(py, self.inner.get()?.last_message_ids())?.into_python()?;
        Ok(last(ids))
    }

    /// The full name of the topic.
    fn topic(&self) -> &str {
        &self.topic
    }

    /// The name of the subscription.
    fn subscription_name(&self) -> &str {
        &self.subscription
    }

    /// The consumer's name, drawn if none was given.
    fn consumer_name(&self) -> &str {
        &self.name
    }

    /// Whether every partition has its connection.
    fn is_connected(&self) -> PyResult<bool> {
        Ok(self.inner.get()?.is_connected())
    }

    /// A message if one is there. For asyncio.
    fn _try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let message = self.inner.get()?.try_receive().into_python()?;
        Ok(message.map(|message| Message::new(py, message, self.schema.as_ref())))
    }

    /// Receives for asyncio: completes `future` with `returnable(message)`.
    fn _receive(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        future: Py<PyAny>,
        returnable: Py<PyAny>,
    ) -> PyResult<Operation> {
        let core = self.inner.get()?.clone();
        let schema = self.schema.as_ref().map(|schema| schema.clone_ref(py));
        let receive = async move { core.receive().await };
        operation::start(py, &self.executor, Target { event_loop, future }, receive, move |py, message| {
            returnable.call1(py, (Message::new(py, message, schema.as_ref()),))
        })
    }

    /// Gives back a message that reached nobody.
    fn _put_back(&self, message: &Message) -> PyResult<()> {
        self.inner.get()?.put_back(message.core.clone());
        Ok(())
    }

    fn _seek(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        future: Py<PyAny>,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<Operation> {
        let (core, to) = (self.inner.get()?.clone(), position(to)?);
        let seek = async move { core.seek(to).await };
        operation::start(py, &self.executor, Target { event_loop, future }, seek, none)
    }

    fn _close(&self, py: Python<'_>, event_loop: Py<PyAny>, future: Py<PyAny>) -> PyResult<Operation> {
        let core = self.inner.get()?.clone();
        self.closed.store(true, Ordering::Relaxed);
        let close = async move { core.close().await };
        operation::start(py, &self.executor, Target { event_loop, future }, close, none)
    }

    fn _batch_receive(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        future: Py<PyAny>,
        returnable: Py<PyAny>,
    ) -> PyResult<Operation> {
        let (core, policy) = (self.inner.get()?.clone(), self.batch);
        let schema = self.schema.as_ref().map(|schema| schema.clone_ref(py));
        let receive = async move { crate::batch_receive::run(&core, policy).await };
        operation::start(py, &self.executor, Target { event_loop, future }, receive, move |py, messages| {
            let messages = messages.into_iter().map(|message| Message::new(py, message, schema.as_ref()));
            returnable.call1(py, (messages.collect::<Vec<_>>(),))
        })
    }

    fn _unsubscribe(&self, py: Python<'_>, event_loop: Py<PyAny>, future: Py<PyAny>) -> PyResult<Operation> {
        let core = self.inner.get()?.clone();
        let unsubscribe = async move { core.unsubscribe().await };
        operation::start(py, &self.executor, Target { event_loop, future }, unsubscribe, none)
    }

    fn _last_message_id(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        future: Py<PyAny>,
    ) -> PyResult<Operation> {
        let core = self.inner.get()?.clone();
        let ask = async move { core.last_message_ids().await };
        operation::start(py, &self.executor, Target { event_loop, future }, ask, |py, ids| {
            Ok(Py::new(py, last(ids))?.into_any())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Message> {
        self.no_listener("receiving")?;
        match wait(py, self.inner.get()?.receive())? {
            Ok(message) => Ok(Message::new(py, message, self.schema.as_ref())),
            Err(error) if error.kind() == ErrorKind::AlreadyClosed => Err(PyStopIteration::new_err(())),
            Err(error) => Err(errors::to_python(&error)),
        }
    }

    fn __repr__(&self) -> String {
        let state = match self.inner.get() {
            Err(_) => "of another process".to_owned(),
            Ok(core) => match core.is_connected() {
                true => format!("{} queued", core.queued_messages()),
                false => "not connected".to_owned(),
            },
        };
        format!("<Consumer {:?} of {} on {}, {state}>", self.name, self.subscription, self.topic)
    }
}
