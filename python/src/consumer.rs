//! `Consumer`. Decides what an acknowledgement may be given; receiving is in `receiving`, positions, permits and redelivery are
//! core's.

use std::sync::Arc;
use std::time::Duration;

use geminga::{AsMessageId, Error, Message as CoreMessage, MessageId as CoreId, Messages, Position};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::client::Kept;
use crate::errors::IntoPython;
use crate::executor::Executor;
use crate::listener::Listener;
use crate::message::Message;
use crate::message_id::MessageId;
use crate::operation::{Operation, Target, none};
use crate::receiving::{Receiving, Source};
use crate::waiting::wait;

/// Receives the messages of a topic, over all its partitions, in one subscription.
///
/// Made by `Client.subscribe`; safe to use from any thread. `with` closes it at the end of the block, and it can be iterated
/// over: `for message in consumer` ends when the consumer is closed.
///
/// >>> consumer = client.subscribe("jobs", "workers", consumer_type=ConsumerType.Shared)
/// >>> sent = client.create_producer("jobs").send(b"dig")
/// >>> message = consumer.receive(timeout_millis=5000)
/// >>> consumer.acknowledge(message)
/// >>> message.data()
/// b'dig'
#[pyclass(frozen, module = "geminga", name = "Consumer")]
pub(crate) struct Consumer {
    receiving: Receiving<geminga::Consumer>,
    batch: BatchPolicy,
    subscription: String,
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
        let subscription = core.subscription().to_owned();
        Consumer { receiving: Receiving::new(core, schema, client, executor), batch, subscription }
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

impl Source for geminga::Consumer {
    const DOING: &str = "receiving";

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
        self.try_receive()
    }

    fn receive(&self) -> impl Future<Output = Result<CoreMessage, Error>> + Send {
        self.receive()
    }

    fn receive_timeout(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<CoreMessage>, Error>> + Send {
        self.receive_timeout(limit)
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

/// The greatest of the last ids of all partitions.
fn last(ids: Vec<CoreId>) -> MessageId {
    MessageId(ids.into_iter().max().unwrap_or(CoreId::EARLIEST))
}

#[pymethods]
impl Consumer {
    /// The next message, waiting for it.
    ///
    /// With `timeout_millis` it raises Timeout when there is none by then. Ctrl-C ends the waiting; no message is lost by it.
    /// Raises AlreadyClosed, or what ended the consumer.
    #[pyo3(signature = (timeout_millis=None))]
    fn receive(&self, py: Python<'_>, timeout_millis: Option<i64>) -> PyResult<Message> {
        self.receiving.receive(py, timeout_millis)
    }

    /// Several messages in a list: as many as the consumer's `batch_receive_policy` asks for, or those that came within its
    /// time, which may be none.
    fn batch_receive(&self, py: Python<'_>) -> PyResult<Vec<Message>> {
        let core = self.receiving.core()?;
        self.receiving.no_listener()?;
        let messages = wait(py, crate::batch_receive::run(core, self.batch))?.into_python()?;
        Ok(messages.into_iter().map(|message| self.receiving.message(py, message)).collect())
    }

    /// Acknowledges a Message or MessageId: it will not come again. Returns at once; acknowledgements are sent together.
    ///
    /// Raises InvalidMessage for an id that is not of this topic, AlreadyClosed.
    fn acknowledge(&self, message: Acknowledged) -> PyResult<()> {
        self.receiving.core()?.acknowledge(&message).into_python()
    }

    /// Acknowledges a Message or MessageId and all before it in its partition.
    ///
    /// Raises CumulativeAcknowledgementNotAllowedError on Shared and Key_Shared subscriptions; else as `acknowledge`.
    fn acknowledge_cumulative(&self, message: Acknowledged) -> PyResult<()> {
        self.receiving.core()?.acknowledge_cumulative(&message).into_python()
    }

    /// Says that a Message or MessageId was not processed: it comes again after the consumer's redelivery delay.
    fn negative_acknowledge(&self, message: Acknowledged) -> PyResult<()> {
        self.receiving.core()?.negative_acknowledge(&message).into_python()
    }

    /// Has everything that is not acknowledged delivered again, at once.
    fn redeliver_unacknowledged_messages(&self) -> PyResult<()> {
        self.receiving.core()?.redeliver_unacknowledged().into_python()
    }

    /// Moves the subscription: to a MessageId, or to the first message published at or after a time, given as milliseconds
    /// since 1970-01-01 UTC or as a datetime.
    fn seek(&self, py: Python<'_>, messageid: &Bound<'_, PyAny>) -> PyResult<()> {
        self.receiving.seek(py, messageid)
    }

    /// Removes the subscription at the broker and closes the consumer. Raises the broker's refusal, with other consumers on it.
    fn unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, self.receiving.core()?.unsubscribe())?.into_python()
    }

    /// Closes the consumer, its acknowledgements sent. Closing twice is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.receiving.close(py)
    }

    /// Whether `close` was called: the client need not hold it any longer.
    fn _is_closed(&self) -> bool {
        self.receiving.is_closed()
    }

    /// Stops calling the message listener after the message it is at. What is queued stays queued.
    fn pause_message_listener(&self) -> PyResult<()> {
        self.receiving.listener().map(Listener::pause)
    }

    /// Calls the message listener again.
    fn resume_message_listener(&self) -> PyResult<()> {
        self.receiving.listener().map(Listener::resume)
    }

    /// The id of the last message of the topic; of a partitioned topic, the greatest among its partitions.
    fn get_last_message_id(&self, py: Python<'_>) -> PyResult<MessageId> {
        let ids = wait(py, self.receiving.core()?.last_message_ids())?.into_python()?;
        Ok(last(ids))
    }

    /// The full name of the topic.
    fn topic(&self) -> &str {
        &self.receiving.topic
    }

    /// The name of the subscription.
    fn subscription_name(&self) -> &str {
        &self.subscription
    }

    /// The consumer's name, drawn if none was given.
    fn consumer_name(&self) -> &str {
        &self.receiving.name
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

    fn _batch_receive(
        &self,
        py: Python<'_>,
        target: Py<Target>,
        returnable: Py<PyAny>,
    ) -> PyResult<Operation> {
        let (policy, schema) = (self.batch, self.receiving.schema(py));
        let receive =
            move |core: geminga::Consumer| async move { crate::batch_receive::run(&core, policy).await };
        self.receiving.start(py, target, receive, move |py, messages| {
            let messages = messages.into_iter().map(|message| Message::new(py, message, schema.as_ref()));
            returnable.call1(py, (messages.collect::<Vec<_>>(),))
        })
    }

    fn _unsubscribe(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        self.receiving.start(py, target, |core| async move { core.unsubscribe().await }, none)
    }

    fn _last_message_id(&self, py: Python<'_>, target: Py<Target>) -> PyResult<Operation> {
        let ask = |core: geminga::Consumer| async move { core.last_message_ids().await };
        self.receiving.start(py, target, ask, |py, ids| Ok(Py::new(py, last(ids))?.into_any()))
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
            Err(_) => "of another process".to_owned(),
            Ok(core) => match core.is_connected() {
                true => format!("{} queued", core.queued_messages()),
                false => "not connected".to_owned(),
            },
        };
        format!(
            "<Consumer {:?} of {} on {}, {state}>",
            self.receiving.name, self.subscription, self.receiving.topic
        )
    }
}
