//! `Message` as received. Decides what a message shows to Python; the payload stays in the receive buffer until asked for.

use std::ffi::c_int;

use geminga::Message as CoreMessage;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyString};

use crate::message_id::MessageId;

/// A message received.
///
/// `data()` is the payload as bytes, a copy; `memoryview(message)` is the payload without a copy. Keeping a message keeps
/// the bytes of the whole batch it came in.
///
/// >>> consumer = client.subscribe("readings", "s")
/// >>> sent = client.create_producer("readings").send(b"21.5", partition_key="attic")
/// >>> message = consumer.receive(timeout_millis=5000)
/// >>> message.partition_key(), float(message.data()), len(memoryview(message)), message.message_id() == sent
/// ('attic', 21.5, 4, True)
#[pyclass(frozen, module = "geminga", name = "Message")]
pub(crate) struct Message {
    pub(crate) core: CoreMessage,
    /// Decodes `value()`; none for plain bytes.
    pub(crate) schema: Option<Py<PyAny>>,
}

impl Message {
    pub(crate) fn new(py: Python<'_>, core: CoreMessage, schema: Option<&Py<PyAny>>) -> Self {
        Message { core, schema: schema.map(|schema| schema.clone_ref(py)) }
    }
}

#[pymethods]
impl Message {
    /// The payload, copied.
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.core.payload())
    }

    /// The payload as its schema decodes it; bytes without a schema, None for a null value.
    fn value<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let message = slf.get();
        if message.core.is_null() {
            return Ok(slf.py().None().into_bound(slf.py()));
        }
        let py = slf.py();
        let Some(schema) = message.schema.as_ref().map(|schema| schema.bind(py)) else {
            return Ok(message.data(py).into_any());
        };
        // What is asked first in the existing client; a codec of one's own may have no more than `decode`.
        match schema.hasattr("decode_message")? {
            true => schema.call_method1("decode_message", (slf,)),
            false => schema.call_method1("decode", (message.data(py),)),
        }
    }

    /// The pairs that came with the message.
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        for (name, value) in self.core.properties() {
            properties.set_item(name, value)?;
        }
        Ok(properties)
    }

    /// The key, empty without one. A binary key is in its base64 form.
    fn partition_key(&self) -> String {
        self.core.key().map(|key| key.into_owned()).unwrap_or_default()
    }

    /// The ordering key, empty without one. Bytes that are not UTF-8 are kept by surrogate escapes.
    fn ordering_key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        text(py, self.core.ordering_key().unwrap_or_default())
    }

    /// When the producer sent it, milliseconds since 1970-01-01 UTC.
    fn publish_timestamp(&self) -> u64 {
        self.core.publish_time()
    }

    /// The application's own time, milliseconds since 1970-01-01 UTC, 0 without one.
    fn event_timestamp(&self) -> u64 {
        self.core.event_time().unwrap_or(0)
    }

    /// Where the message is stored.
    fn message_id(&self) -> MessageId {
        MessageId(self.core.message_id())
    }

    /// The full name of the topic or partition it came from.
    fn topic_name(&self) -> &str {
        self.core.topic()
    }

    /// How often it was delivered before; Shared and Key_Shared subscriptions count.
    fn redelivery_count(&self) -> u32 {
        self.core.redelivery_count()
    }

    /// The version of the schema it was written with, as the broker's bytes in a str, empty without one.
    fn schema_version<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        text(py, self.core.schema_version())
    }

    /// The name of its producer.
    fn producer_name(&self) -> &str {
        self.core.producer_name()
    }

    /// Its sequence id at its producer.
    fn sequence_id(&self) -> u64 {
        self.core.sequence_id()
    }

    /// Whether the value is null, which deletes its key on a compacted topic.
    fn has_null_value(&self) -> bool {
        self.core.is_null()
    }

    /// The length of the payload in bytes.
    fn length(&self) -> usize {
        self.core.payload().len()
    }

    /// None: messages that were encrypted are not decrypted by this version, and not delivered.
    fn encryption_context(&self, py: Python<'_>) -> Py<PyAny> {
        py.None()
    }

    /// The payload without a copy, read-only. It keeps the receive buffer as long as it lives.
    fn view<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf)
    }

    fn __repr__(&self) -> String {
        let id = self.core.message_id();
        let key = self.core.key().map(|key| format!(", key={key:?}")).unwrap_or_default();
        let (topic, length) = (self.core.topic(), self.core.payload().len());
        format!("<Message {} of {topic}, {length} bytes{key}>", MessageId(id).text())
    }

    #[expect(unsafe_code, reason = "the buffer protocol speaks in raw pointers")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() || flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("the payload of a message is read-only"));
        }
        let payload = slf.get().core.payload();
        // SAFETY: `view` is the caller's, not null. The bytes are those of the message, which is frozen and which
        // the buffer holds a reference to, so they stay where they are until the buffer is released.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                payload.as_ptr().cast_mut().cast(),
                payload.len() as ffi::Py_ssize_t,
                1,
                flags,
            )
        };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape")),
    }
}
