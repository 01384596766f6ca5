//! `Reader`. Decides nothing that `Consumer` doesn't; it has no acknowledgements.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use geminga::ErrorKind;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::client::Kept;
use crate::consumer::{position, timed_out, timeout};
use crate::errors::{self, IntoPython};
use crate::executor::Executor;
use crate::fork::ProcessBound;
use crate::listener::Listener;
use crate::message::Message;
use crate::operation::{self, Operation, Target, none};
use crate::waiting::wait;

/// Reads a topic, over all its partitions, from a place of its own choice; nothing to acknowledge.
///
/// Made by `Client.create_reader`; safe to use from any thread. `with` closes it at the end of the block. Iterating over it
/// waits for new messages and ends when the reader is closed; to stop at the end of the topic, ask `has_message_available`.
#[pyclass(frozen, module = "geminga", name = "Reader")]
pub(crate) struct Reader {
    inner: ProcessBound<geminga::Reader>,
    _client: ProcessBound<Kept>,
    closed: AtomicBool,
    /// Completes asyncio futures.
    executor: Arc<Executor>,
    schema: Option<Py<PyAny>>,
    listener: Mutex<Option<Listener>>,
    topic: String,
    name: String,
}

impl Reader {
    pub(crate) fn new(
        core: geminga::Reader,
        schema: Option<Py<PyAny>>,
        client: Kept,
        executor: Arc<Executor>,
    ) -> Self {
        Reader {
            topic: core.topic().to_owned(),
            name: core.name().to_owned(),
            inner: ProcessBound::new(core),
            _client: ProcessBound::new(client),
            closed: AtomicBool::new(false),
            executor,
            schema,
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
}

#[pymethods]
impl Reader {
    /// The next message, waiting for it.
    ///
    /// With `timeout_millis` it raises Timeout when there is none by then. Ctrl-C ends the waiting; no message is lost by it.
    /// Raises AlreadyClosed, or what ended the reader.
    #[pyo3(signature = (timeout_millis=None))]
    fn read_next(&self, py: Python<'_>, timeout_millis: Option<i64>) -> PyResult<Message> {
        let core = self.inner.get()?;
        let message = match timeout_millis {
            None => wait(py, core.next())?.into_python()?,
            Some(millis) => {
                let limit = timeout(millis)?;
                let received = wait(py, core.next_timeout(limit))?.into_python()?;
                received.ok_or_else(|| timed_out("reading", &self.topic, limit))?
            }
        };
        Ok(Message::new(py, message, self.schema.as_ref()))
    }

    /// Whether there is a message that this reader has not returned yet, asked of the broker where needed.
    fn has_message_available(&self, py: Python<'_>) -> PyResult<bool> {
        wait(py, self.inner.get()?.has_message_available())?.into_python()
    }

    /// Moves the reader: to a MessageId, or to the first message published at or after a time, given as milliseconds since
    /// 1970-01-01 UTC or as a datetime.
    fn seek(&self, py: Python<'_>, messageid: &Bound<'_, PyAny>) -> PyResult<()> {
        let to = position(messageid)?;
        wait(py, self.inner.get()?.seek(to))?.into_python()
    }

    /// Closes the reader. Closing twice is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.inner.get()?;
        self.closed.store(true, Ordering::Relaxed);
        wait(py, core.close())?.into_python()
    }

    /// Whether `close` was called: the client need not hold it any longer.
    fn _is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The full name of the topic.
    fn topic(&self) -> &str {
        &self.topic
    }

    /// Whether every partition has its connection.
    fn is_connected(&self) -> PyResult<bool> {
        Ok(self.inner.get()?.is_connected())
    }

    /// A message if one is there. For asyncio.
    fn _try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let message = self.inner.get()?.try_next().into_python()?;
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
        let receive = async move { core.next().await };
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

    fn _has_message_available(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        future: Py<PyAny>,
    ) -> PyResult<Operation> {
        let core = self.inner.get()?.clone();
        let ask = async move { core.has_message_available().await };
        operation::start(py, &self.executor, Target { event_loop, future }, ask, |py, there| {
            Ok(there.into_pyobject(py)?.to_owned().into_any().unbind())
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
        match wait(py, self.inner.get()?.next())? {
            Ok(message) => Ok(Message::new(py, message, self.schema.as_ref())),
            Err(error) if error.kind() == ErrorKind::AlreadyClosed => Err(PyStopIteration::new_err(())),
            Err(error) => Err(errors::to_python(&error)),
        }
    }

    fn __repr__(&self) -> String {
        let state = match self.inner.get() {
            Err(_) => "of another process",
            Ok(core) if core.is_connected() => "connected",
            Ok(_) => "not connected",
        };
        format!("<Reader {:?} on {}, {state}>", self.name, self.topic)
    }
}
