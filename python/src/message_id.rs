//! `MessageId`. Decides how an id looks and behaves in Python; its order and its bytes are core's.

use geminga::MessageId as CoreId;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

/// Where a message is stored: ledger, entry, partition and, within a batch, index.
///
/// Ids are immutable, hashable, can be pickled, and are ordered by ledger, entry, partition and batch index. What has no
/// value is -1. Ids of different topics have no order that means anything.
///
/// >>> MessageId(ledger_id=7, entry_id=2) < MessageId(ledger_id=7, entry_id=3) < MessageId.latest
/// True
/// >>> MessageId.deserialize(MessageId(ledger_id=7, entry_id=2).serialize())
/// MessageId(partition=-1, ledger_id=7, entry_id=2, batch_index=-1)
#[pyclass(frozen, eq, ord, hash, module = "geminga", name = "MessageId", from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MessageId(pub(crate) CoreId);

#[pymethods]
impl MessageId {
    #[new]
    // The text that is generated has no negative numbers in it.
    #[pyo3(signature = (partition=-1, ledger_id=-1, entry_id=-1, batch_index=-1),
        text_signature = "(partition=-1, ledger_id=-1, entry_id=-1, batch_index=-1)")]
    fn new(partition: i32, ledger_id: i64, entry_id: i64, batch_index: i32) -> Self {
        MessageId(CoreId { ledger_id, entry_id, partition, batch_index, batch_size: 0 })
    }

    /// Before the first message of any topic.
    #[classattr]
    fn earliest() -> Self {
        MessageId(CoreId::EARLIEST)
    }

    /// Behind the last message of any topic.
    #[classattr]
    fn latest() -> Self {
        MessageId(CoreId::LATEST)
    }

    /// The ledger.
    fn ledger_id(&self) -> i64 {
        self.0.ledger_id
    }

    /// The entry in the ledger.
    fn entry_id(&self) -> i64 {
        self.0.entry_id
    }

    /// The partition, -1 for a topic without.
    fn partition(&self) -> i32 {
        self.0.partition
    }

    /// The index in the batch, -1 outside a batch.
    fn batch_index(&self) -> i32 {
        self.0.batch_index
    }

    /// The bytes that clients in other languages read.
    fn serialize<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// Reads what `serialize`, or a client in another language, wrote. Ids carry no topic: `topic` is accepted and not used.
    ///
    /// Raises ValueError for other bytes.
    #[staticmethod]
    #[pyo3(signature = (message_id_bytes, topic=None))]
    fn deserialize(message_id_bytes: &[u8], topic: Option<&str>) -> PyResult<Self> {
        let _ = topic;
        CoreId::from_bytes(message_id_bytes).map(MessageId).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// The same id; every id is of this one class.
    #[classmethod]
    fn wrap(_class: &Bound<'_, PyType>, msg_id: Self) -> Self {
        msg_id
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let deserialize = py.get_type::<MessageId>().getattr("deserialize")?;
        Ok((deserialize, PyTuple::new(py, [self.serialize(py)])?))
    }

    fn __str__(&self) -> String {
        self.text()
    }

    fn __repr__(&self) -> String {
        let CoreId { ledger_id, entry_id, partition, batch_index, .. } = self.0;
        if self.0 == CoreId::EARLIEST {
            return "MessageId.earliest".into();
        }
        if self.0 == CoreId::LATEST {
            return "MessageId.latest".into();
        }
        format!(
            "MessageId(partition={partition}, ledger_id={ledger_id}, entry_id={entry_id}, batch_index={batch_index})"
        )
    }
}

impl MessageId {
    /// Ledger, entry, partition and batch index.
    pub(crate) fn text(&self) -> String {
        let CoreId { ledger_id, entry_id, partition, batch_index, .. } = self.0;
        format!("({ledger_id},{entry_id},{partition},{batch_index})")
    }
}
