//! How messages look on stdout: as text, as hexadecimal digits, or as one JSON object a line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, ValueEnum};
use geminga::Message;
use serde::Serialize;
use serde_json::{Map, Value};

/// The flags that choose a format.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// How a payload is written, one a line
    #[arg(long, value_enum, default_value_t = PayloadFormat::Text)]
    pub(crate) format: PayloadFormat,

    /// Write each message as one JSON object a line, with its topic, key, properties, payload, ids and times
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

/// How a payload is written when only payloads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PayloadFormat {
    /// The bytes as they are
    Text,
    /// Two hexadecimal digits a byte
    Hex,
}

/// What is shown of a message. Field names and order are those of the JSON object.
#[derive(Debug, Serialize)]
struct Row<'a> {
    topic: &'a str,
    message_id: String,
    key: Option<Cow<'a, str>>,
    /// Whether `key` is the base64 form of a binary key; left out when it is not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    key_is_base64: bool,
    properties: Map<String, Value>,
    #[serde(flatten)]
    payload: Payload<'a>,
    /// Milliseconds since 1970-01-01 UTC.
    publish_time: u64,
    event_time: Option<u64>,
    redelivery_count: u32,
    producer_name: &'a str,
    sequence_id: u64,
}

/// A payload in JSON: `payload` when it is UTF-8 (`null` for a null value), `payload_base64` otherwise.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Payload<'a> {
    Text { payload: Option<&'a str> },
    Bytes { payload_base64: String },
}

impl<'a> Payload<'a> {
    /// The JSON form of these bytes.
    fn new(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Payload::Text { payload: Some(text) },
            Err(_) => Payload::Bytes { payload_base64: BASE64.encode(bytes) },
        }
    }
}

/// Writes a message in the form that the flags ask for.
pub(crate) fn write_message(out: &mut impl Write, args: OutputArgs, message: &Message) -> io::Result<()> {
    if args.json {
        write_json(out, &Row::from(message))
    } else {
        write_payload(out, args.format, message.payload())
    }
}

impl<'a> From<&'a Message> for Row<'a> {
    fn from(message: &'a Message) -> Self {
        Row {
            topic: message.topic(),
            message_id: message.message_id().to_string(),
            key: message.key(),
            key_is_base64: message.has_base64_key(),
            properties: message.properties().into_iter().map(|(k, v)| (k, Value::from(v))).collect(),
            payload: match message.is_null() {
                true => Payload::Text { payload: None },
                false => Payload::new(message.payload()),
            },
            publish_time: message.publish_time(),
            event_time: message.event_time(),
            redelivery_count: message.redelivery_count(),
            producer_name: message.producer_name(),
            sequence_id: message.sequence_id(),
        }
    }
}

/// Writes one value as a line of JSON.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Writes a payload alone, on a line.
fn write_payload(out: &mut impl Write, format: PayloadFormat, payload: &[u8]) -> io::Result<()> {
    match format {
        PayloadFormat::Text => out.write_all(payload)?,
        PayloadFormat::Hex => out.write_all(hex(payload).as_bytes())?,
    }
    out.write_all(b"\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(payload: &[u8]) -> String {
        let row = Row {
            topic: "persistent://public/default/t",
            message_id: "4:2:-1".to_owned(),
            key: Some("k".into()),
            key_is_base64: false,
            properties: Map::from_iter([("a".to_owned(), Value::from("b"))]),
            payload: Payload::new(payload),
            publish_time: 7,
            event_time: None,
            redelivery_count: 1,
            producer_name: "p",
            sequence_id: 9,
        };
        let mut out = Vec::new();
        write_json(&mut out, &row).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_message_is_one_json_object_on_one_line() {
        let expected = r#"{"topic":"persistent://public/default/t","message_id":"4:2:-1","key":"k","properties":{"a":"b"},"payload":"li\nne","publish_time":7,"event_time":null,"redelivery_count":1,"producer_name":"p","sequence_id":9}"#;
        assert_eq!(row(b"li\nne"), format!("{expected}\n"));
    }

    #[test]
    fn a_payload_that_is_not_text_goes_as_base64() {
        assert!(row(&[0xff, 0x00]).contains(r#""payload_base64":"/wA=""#));
        assert!(!row(&[0xff, 0x00]).contains(r#""payload":"#));
    }

    #[test]
    fn hex_has_two_digits_a_byte() {
        let mut out = Vec::new();
        write_payload(&mut out, PayloadFormat::Hex, &[0, 0xab, 0x0f]).unwrap();
        assert_eq!(out, b"00ab0f\n");
    }
}
