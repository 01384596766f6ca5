//! What `send` and `send_async` are given, as a message of the core. Decides which Python types are accepted and what a
//! missing value means; the names and units are those of the existing client.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use geminga::OutgoingMessage;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::time::Duration;

/// The cluster list that keeps a message where it was published.
const LOCAL_ONLY: &str = "__local__";

/// Everything that goes with a payload.
#[derive(Default)]
pub(crate) struct Extras<'a, 'py> {
    pub(crate) properties: Option<&'a Bound<'py, PyDict>>,
    pub(crate) partition_key: Option<&'a Bound<'py, PyAny>>,
    pub(crate) ordering_key: Option<&'a Bound<'py, PyAny>>,
    pub(crate) sequence_id: Option<u64>,
    pub(crate) replication_clusters: Option<Vec<String>>,
    pub(crate) disable_replication: bool,
    pub(crate) event_timestamp: Option<u64>,
    pub(crate) deliver_at: Option<i64>,
    pub(crate) deliver_after: Option<&'a Bound<'py, PyAny>>,
}

/// The message for `content`; None is a null value. Errors: TypeError for content that the schema doesn't take, ValueError
/// for extras of a wrong type.
#[inline]
pub(crate) fn message(
    content: &Bound<'_, PyAny>,
    schema: Option<&Py<PyAny>>,
    extras: Extras<'_, '_>,
) -> PyResult<OutgoingMessage> {
    let mut message = match content.is_none() {
        true => OutgoingMessage { null_value: true, ..OutgoingMessage::default() },
        false => OutgoingMessage::new(payload(content, schema)?),
    };
    if let Some(properties) = extras.properties {
        for (name, value) in properties.iter() {
            message.properties.push((text("properties", &name)?, text("properties", &value)?));
        }
    }
    if let Some(key) = extras.partition_key {
        let key = text("partition_key", key)?;
        // An empty key is none, as it is there.
        message.key = Some(key).filter(|key| !key.is_empty());
    }
    if let Some(key) = extras.ordering_key {
        let key = text("ordering_key", key)?;
        message.ordering_key = (!key.is_empty()).then(|| key.into());
    }
    // Zero is "not given" there as well.
    message.sequence_id = extras.sequence_id.filter(|id| *id != 0);
    message.event_time = extras.event_timestamp.filter(|time| *time != 0);
    message.deliver_at_time = extras.deliver_at.filter(|time| *time != 0);
    if let Some(delay) = extras.deliver_after.map(delay).transpose()?.filter(|delay| !delay.is_zero()) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        message.deliver_at_time = i64::try_from((now + delay).as_millis()).ok();
    }
    if let Some(clusters) = extras.replication_clusters {
        message.replicate_to = clusters;
    }
    if extras.disable_replication {
        message.replicate_to = vec![LOCAL_ONLY.to_owned()];
    }
    Ok(message)
}

#[inline]
fn payload(content: &Bound<'_, PyAny>, schema: Option<&Py<PyAny>>) -> PyResult<Bytes> {
    if let Some(schema) = schema {
        let encoded = schema.bind(content.py()).call_method1("encode", (content,))?;
        let Ok(encoded) = encoded.cast::<PyBytes>() else {
            return Err(PyTypeError::new_err("the schema's encode() must return bytes"));
        };
        return Ok(Bytes::copy_from_slice(encoded.as_bytes()));
    }
    match content.cast::<PyBytes>() {
        Ok(content) => Ok(Bytes::copy_from_slice(content.as_bytes())),
        Err(_) => {
            let got = content.get_type().name()?.to_string();
            let hint = match content.is_instance_of::<PyString>() {
                true => "; encode it, or create the producer with schema=StringSchema()",
                false => "",
            };
            Err(PyTypeError::new_err(format!("content must be bytes, not {got}{hint}")))
        }
    }
}

/// A timedelta; one below zero, what is left to a time that has passed, is no delay.
fn delay(given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(delay) = given.extract() {
        return Ok(delay);
    }
    if given.hasattr("total_seconds")? && given.call_method0("total_seconds")?.extract::<f64>()? < 0.0 {
        return Ok(Duration::ZERO);
    }
    Err(PyValueError::new_err(format!(
        "Argument deliver_after is expected to be a 'timedelta' and not '{}'",
        given.get_type().name()?
    )))
}

fn text(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.to_owned()),
        Err(_) => Err(PyValueError::new_err(format!(
            "Argument {argument} is expected to hold 'str' and not '{}'",
            value.get_type().name()?
        ))),
    }
}
