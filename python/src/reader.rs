//! `Reader`. Decides nothing that receiving doesn't; it has no acknowledgements.

use std::sync::Arc;
use std::time::Duration;

use geminga::{Error, Message as CoreMessage, Messages, Position};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::client::Kept;
use crate::errors::IntoPython;
use crate::executor::Executor;
use crate::message::Message;
use crate::operation::{Operation, Target};
use crate::receiving::{Receiving, Source};
use crate::waiting::wait;

/// Reads a topic, over all its partitions, from a place of its own choice; nothing to acknowledge.
///
/// Made by `Client.create_reader`; safe to use from any thread. `with` closes it at the end of the block. Iterating over it
/// waits for new messages and ends when the reader is closed; to stop at the end of the topic, ask `has_message_available`.
///
/// >>> sent = client.create_producer("diary").send(b"once")
/// >>> with client.create_reader("diary", MessageId.earliest) as reader:
/// ...     while reader.has_message_available():
/// ...         print(reader.read_next().data())
/// b'once'
#[pyclass(frozen, module = "geminga", name = "Reader")]
pub(crate) struct Reader {
    receiving: Receiving<geminga::Reader>,
}

impl Reader {
    pub(crate) fn new(
        core: geminga::Reader,
        schema: Option<Py<PyAny>>,
        client: Kept,
        executor: Arc<Executor>,
    ) -> Self {
        Reader { receiving: Receiving::new(core, schema, client, executor) }
    }

    /// Has `listener` called for each message.
    pub(crate) fn listen(
        slf: &Bound<'_, Self>,
        executor: &Arc<Executor>,
        listener: Py<PyAny>,
    ) -> PyResult<()> {
        let handle = slf.clone().into_any().unbind();
        slf.get().receiving.listen(slf.py(), executor, handle, listener)
    }
}

impl Source for geminga::Reader {
    const DOING: &str = "reading";

    fn topic(&self) -> &str {
        self.topic()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn stream(&self) -> Messages {
        self.stream()
    }

    fn try_receive(&self) -> Result<Option<CoreMessage>, Error> {
        self.try_next()
    }

    fn receive(&self) -> impl Future<Output = Result<CoreMessage, Error>> + Send {
        self.next()
    }

    fn receive_timeout(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<CoreMessage>, Error>> + Send {
        self.next_timeout(limit)
    }

    fn put_back(&self, message: CoreMessage) {
        self.put_back(message);
    }

    fn seek(&self, to: Position) -> impl Future<Output = Result<(), Error>> + Send {
        self.seek(to)
    }

    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send {
        self.close()
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
        self.receiving.receive(py, timeout_millis)
    }

    /// Whether there is a message that this reader has not returned yet, asked of the broker where needed.
    fn has_message_available(&self, py: Python<'_>) -> PyResult<bool> {
        wait(py, self.receiving.core()?.has_message_available())?.into_python()
    }

    /// Moves the reader: to a MessageId, or to the first message published at or after a time, given as milliseconds since
    /// 1970-01-01 UTC or as a datetime.
    fn seek(&self, py: Python<'_>, messageid: &Bound<'_, PyAny>) -> PyResult<()> {
        self.receiving.seek(py, messageid)
    }

    /// Closes the reader. Closing twice is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.receiving.close(py)
    }

    /// Whether `close` was called: the client need not hold it any longer.
    fn _is_closed(&self) -> bool {
        self.receiving.is_closed()
    }

    /// The full name of the topic.
    fn topic(&self) -> &str {
        &self.receiving.topic
    }

    /// Whether every partition has its connection.
    fn is_connected(&self) -> PyResult<bool> {
        Ok(self.receiving.core()?.is_connected())
    }

    /// A message if one is there. For asyncio.
    fn _try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        self.receiving.try_receive(py)
    }

    /// Receives for asyncio: completes `future` with `returnable(message)`.
    fn _receive(&self, py: Python<'_>, target: Py<Target>, returnable: Py<PyAny>) -> PyResult<Operation> {
        self.receiving.receive_into(py, target, returnable)
    }

    /// Gives back a message that reached nobody.
    fn _put_back(&self, message: &Message) -> PyResult<()> {
        self.receiving.put_back(message)
    }

    fn _seek(&self, py: Python<'_>, target: Py<Target>, to: &Bound<'_, PyAny>) -> PyResult<Operation> {
        self.receiving.seek_into(py, target, to)
    }

    fn _close(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        self.receiving.close_into(py, target)
    }

    fn _has_message_available(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        let ask = |core: geminga::Reader| async move { core.has_message_available().await };
        self.receiving
            .start(py, target, ask, |py, there| Ok(there.into_pyobject(py)?.to_owned().into_any().unbind()))
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
        self.receiving.next(py)
    }

    fn __repr__(&self) -> String {
        let state = match self.receiving.core() {
            Err(_) => "of another process",
            Ok(core) if core.is_connected() => "connected",
            Ok(_) => "not connected",
        };
        format!("<Reader {:?} on {}, {state}>", self.receiving.name, self.receiving.topic)
    }
}
