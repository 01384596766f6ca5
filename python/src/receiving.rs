//! What consumers and readers have in common. Decides how receiving waits and what it returns; which of the two it is for,
//! only [`Source`] knows.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use geminga::{Error, ErrorKind, Message as CoreMessage, MessageId as CoreId, Messages, Position};
use pyo3::exceptions::{PyStopIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::client::Kept;
use crate::errors::{self, IntoPython};
use crate::executor::Executor;
use crate::fork::ProcessBound;
use crate::listener::Listener;
use crate::message::Message;
use crate::message_id::MessageId;
use crate::operation::{self, Operation, Target, none};
use crate::waiting::wait;

/// A handle of the core that gives messages.
pub(crate) trait Source: Clone + Send + Sync + 'static {
    /// What receiving is called in errors.
    const DOING: &str;

    fn topic(&self) -> &str;
    fn name(&self) -> &str;
    fn stream(&self) -> Messages;
    fn try_receive(&self) -> Result<Option<CoreMessage>, Error>;
    fn receive(&self) -> impl Future<Output = Result<CoreMessage, Error>> + Send;
    fn receive_timeout(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<CoreMessage>, Error>> + Send;
    fn put_back(&self, message: CoreMessage);
    fn seek(&self, to: Position) -> impl Future<Output = Result<(), Error>> + Send;
    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A handle of the core as a Python class holds it.
pub(crate) struct Receiving<T> {
    core: ProcessBound<T>,
    _client: ProcessBound<Kept>,
    closed: AtomicBool,
    /// Completes asyncio futures.
    executor: Arc<Executor>,
    schema: Option<Py<PyAny>>,
    /// Gets the messages, if there is one.
    listener: OnceLock<Listener>,
    pub(crate) topic: String,
    pub(crate) name: String,
}

impl<T: Source> Receiving<T> {
    pub(crate) fn new(core: T, schema: Option<Py<PyAny>>, client: Kept, executor: Arc<Executor>) -> Self {
        Receiving {
            topic: core.topic().to_owned(),
            name: core.name().to_owned(),
            core: ProcessBound::new(core),
            _client: ProcessBound::new(client),
            closed: AtomicBool::new(false),
            executor,
            schema,
            listener: OnceLock::new(),
        }
    }

    /// The handle itself. Errors: `ForkedProcess` in a child of the process that made it.
    #[inline]
    pub(crate) fn core(&self) -> PyResult<&T> {
        self.core.get()
    }

    /// A message of the core as one of Python's.
    #[inline]
    pub(crate) fn message(&self, py: Python<'_>, message: CoreMessage) -> Message {
        Message::new(py, message, self.schema.as_ref())
    }

    /// Has `listener` called with `handle` and each message.
    pub(crate) fn listen(
        &self,
        py: Python<'_>,
        executor: &Arc<Executor>,
        handle: Py<PyAny>,
        listener: Py<PyAny>,
    ) -> PyResult<()> {
        let (messages, schema) = (self.core()?.stream(), self.schema(py));
        self.listener.get_or_init(|| Listener::start(executor, messages, handle, listener, schema));
        Ok(())
    }

    /// The listener. Errors: InvalidConfiguration without one.
    pub(crate) fn listener(&self) -> PyResult<&Listener> {
        self.core()?;
        let none = || invalid("pausing a listener", "there is no message listener");
        self.listener.get().ok_or_else(none)
    }

    /// Errors: InvalidConfiguration when a listener gets the messages.
    #[inline]
    pub(crate) fn no_listener(&self) -> PyResult<()> {
        match self.listener.get() {
            None => Ok(()),
            Some(_) => Err(invalid(T::DOING, "the messages go to the message listener")),
        }
    }

    /// The next message; with `timeout_millis`, Timeout when there is none by then.
    #[inline]
    pub(crate) fn receive(&self, py: Python<'_>, timeout_millis: Option<i64>) -> PyResult<Message> {
        let core = self.core()?;
        self.no_listener()?;
        let message = match timeout_millis {
            None => wait(py, core.receive())?.into_python()?,
            Some(millis) => {
                let limit = timeout(millis);
                let received = wait(py, core.receive_timeout(limit))?.into_python()?;
                received.ok_or_else(|| self.timed_out(limit))?
            }
        };
        Ok(self.message(py, message))
    }

    /// The next message of an iteration, which ends when the handle is closed.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Message> {
        let core = self.core()?;
        self.no_listener()?;
        match wait(py, core.receive())? {
            Ok(message) => Ok(self.message(py, message)),
            Err(error) if error.kind() == ErrorKind::AlreadyClosed => Err(PyStopIteration::new_err(())),
            Err(error) => Err(errors::to_python(&error)),
        }
    }

    /// A message if one is there.
    pub(crate) fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let message = self.core()?.try_receive().into_python()?;
        Ok(message.map(|message| self.message(py, message)))
    }

    /// Gives back a message that reached nobody.
    pub(crate) fn put_back(&self, message: &Message) -> PyResult<()> {
        self.core()?.put_back(message.core.clone());
        Ok(())
    }

    pub(crate) fn seek(&self, py: Python<'_>, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let to = position(to)?;
        wait(py, self.core()?.seek(to))?.into_python()
    }

    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core()?;
        self.closed.store(true, Ordering::Relaxed);
        wait(py, core.close())?.into_python()
    }

    /// Whether it was closed by a call: the client need not hold it any longer.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Receives for asyncio: completes `target` with `returnable(message)`.
    pub(crate) fn receive_into(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        returnable: Py<PyAny>,
    ) -> PyResult<Operation> {
        let schema = self.schema(py);
        self.start(
            py,
            target,
            |core| async move { core.receive().await },
            move |py, message| returnable.call1(py, (Message::new(py, message, schema.as_ref()),)),
        )
    }

    pub(crate) fn seek_into(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<Operation> {
        let to = position(to)?;
        self.start(py, target, |core| async move { core.seek(to).await }, none)
    }

    pub(crate) fn close_into(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        self.closed.store(true, Ordering::Relaxed);
        self.start(py, target, |core| async move { core.close().await }, none)
    }

    /// Starts a call whose outcome completes `target`.
    pub(crate) fn start<R: Send + 'static, F>(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        call: impl FnOnce(T) -> F,
        into_python: impl FnOnce(Python<'_>, R) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Operation>
    where
        F: Future<Output = Result<R, Error>> + Send + 'static,
    {
        operation::start(py, &self.executor, target, call(self.core()?.clone()), into_python)
    }

    pub(crate) fn schema(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.schema.as_ref().map(|schema| schema.clone_ref(py))
    }

    fn timed_out(&self, after: Duration) -> PyErr {
        let (doing, detail) = (
            format!("{} from {}", T::DOING, self.topic),
            format!("no message within {} ms", after.as_millis()),
        );
        errors::to_python(&Error::new(ErrorKind::Timeout, doing, detail))
    }
}

/// Where a seek goes: an id, or a publish time in milliseconds since 1970-01-01 UTC.
fn position(to: &Bound<'_, PyAny>) -> PyResult<Position> {
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

/// How long `timeout_millis` is; what is left of a deadline that has passed is no time.
fn timeout(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn invalid(doing: &str, why: &str) -> PyErr {
    errors::to_python(&Error::new(ErrorKind::InvalidConfiguration, doing, why))
}
