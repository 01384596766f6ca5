//! Batches: many messages in one payload.
//!
//! Knows how records look. What belongs in one batch, and which of its messages are acknowledged, is for others.
use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    error::WireError,
    fields::{self, Count, Put, Sink, Value},
};

/// `SingleMessageMetadata` as a producer writes it.
///
/// Shape: `None`, an empty slice or `false` leaves the field out; the payload's size is [`BatchWriter::append`]'s to add.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the .proto file documents them, once")]
pub struct SingleMetadata<'a> {
    pub properties: &'a [(String, String)],
    pub partition_key: Option<&'a str>,
    pub partition_key_b64_encoded: bool,
    pub ordering_key: Option<&'a [u8]>,
    /// Milliseconds since the epoch.
    pub event_time: Option<u64>,
    pub sequence_id: Option<u64>,
    pub null_value: bool,
    pub null_partition_key: bool,
}

impl SingleMetadata<'_> {
    /// Whether nothing is set but, perhaps, the sequence id.
    #[inline]
    fn is_plain(&self) -> bool {
        self.properties.is_empty()
            && self.partition_key.is_none()
            && self.ordering_key.is_none()
            && self.event_time.is_none()
            && !(self.partition_key_b64_encoded | self.null_value | self.null_partition_key)
    }

    fn visit(&self, payload_len: usize, sink: &mut impl Sink) {
        for (key, value) in self.properties {
            sink.pair(1, key, value);
        }
        sink.opt_bytes(2, self.partition_key.map(str::as_bytes));
        sink.varint(3, payload_len as u64);
        sink.opt(5, self.event_time);
        sink.flag(6, self.partition_key_b64_encoded);
        sink.opt_bytes(7, self.ordering_key);
        sink.opt(8, self.sequence_id);
        sink.flag(9, self.null_value);
        sink.flag(10, self.null_partition_key);
    }

    /// Bytes that a record takes in a batch: size, metadata and payload.
    pub fn record_len(&self, payload_len: usize) -> usize {
        let mut count = Count::default();
        self.visit(payload_len, &mut count);
        4 + count.0 + payload_len
    }
}

/// Collects the payload of a batch, each message behind its metadata.
#[derive(Debug, Default)]
pub struct BatchWriter {
    buf: BytesMut,
    count: usize,
    /// Bytes of the batch before: what the next one will probably need.
    before: usize,
}

impl BatchWriter {
    /// An empty batch; the first message allocates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a message, copying its payload: the one copy that batching costs.
    ///
    /// Units: the caller keeps payloads below `max_message_size`, which is an `i32`.
    #[inline]
    pub fn append(&mut self, metadata: &SingleMetadata<'_>, payload: &[u8]) {
        if self.count == 0 {
            self.buf.reserve(self.before);
        }
        self.count += 1;
        if !metadata.is_plain() {
            return self.append_full(metadata, payload);
        }
        // Size, payload_size and sequence_id take at most 4 + 6 + 11 bytes: written on the stack, appended at once.
        let mut head = [0u8; 24];
        let mut at = 4;
        head[at] = 3 << 3;
        at = put(&mut head, at + 1, payload.len() as u32 as u64);
        if let Some(sequence_id) = metadata.sequence_id {
            head[at] = 8 << 3;
            at = put(&mut head, at + 1, sequence_id);
        }
        head[..4].copy_from_slice(&(at as u32 - 4).to_be_bytes());
        self.buf.reserve(at + payload.len());
        self.buf.extend_from_slice(&head[..at]);
        self.buf.extend_from_slice(payload);
    }

    /// Messages so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether there is no message yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The payload so far.
    pub fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Hands the payload over; the writer is empty again.
    pub fn take(&mut self) -> Bytes {
        self.count = 0;
        self.before = self.buf.len();
        std::mem::take(&mut self.buf).freeze()
    }

    fn append_full(&mut self, metadata: &SingleMetadata<'_>, payload: &[u8]) {
        let mut count = Count::default();
        metadata.visit(payload.len(), &mut count);
        self.buf.reserve(4 + count.0 + payload.len());
        self.buf.put_u32(count.0 as u32);
        metadata.visit(payload.len(), &mut Put(&mut self.buf));
        self.buf.extend_from_slice(payload);
    }
}

/// Writes a varint into an array that has room for it; returns the position behind.
#[inline]
fn put(head: &mut [u8; 24], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        head[at] = value as u8 | 0x80;
        at += 1;
        value >>= 7;
    }
    head[at] = value as u8;
    at + 1
}

/// A part of a batch's payload: `start..end`, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes of this span; none when `body` is not the payload that the span is of.
    #[inline]
    pub fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// A message of a batch: its small values, and where the others are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Where the value begins, in bytes from the start of the payload.
    pub payload_offset: u32,
    /// Bytes of the value.
    pub payload_len: u32,
    /// The message's own sequence id.
    pub sequence_id: Option<u64>,
    /// Milliseconds since the epoch; 0 is none.
    pub event_time: u64,
    /// The message was compacted away: skip it, and count its permit.
    pub compacted_out: bool,
    /// The value is null, not empty.
    pub null_value: bool,
    /// The key of a separated KeyValue is null.
    pub null_partition_key: bool,
    /// The key is the base64 text of bytes.
    pub partition_key_b64_encoded: bool,
    /// Where the key is.
    pub partition_key: Option<Span>,
    /// Where the ordering key is.
    pub ordering_key: Option<Span>,
    /// Where the whole metadata is.
    pub metadata: Span,
}

impl Record {
    /// The value, out of the payload that the record was read from; empty when `body` is another one.
    #[inline]
    pub fn payload<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        self.payload_span().of(body)
    }

    /// The value as a slice that shares `body`'s memory.
    #[inline]
    pub fn payload_bytes(&self, body: &Bytes) -> Bytes {
        body.slice_ref(self.payload(body))
    }

    #[inline]
    fn payload_span(&self) -> Span {
        Span { start: self.payload_offset, end: self.payload_offset.saturating_add(self.payload_len) }
    }

    /// A copy of this record's bytes alone, and the record as it lies in them.
    pub fn detach(&self, body: &[u8]) -> (Bytes, Record) {
        let metadata = self.metadata.of(body);
        let mut bytes = BytesMut::with_capacity(metadata.len() + self.payload_len as usize);
        bytes.extend_from_slice(metadata);
        bytes.extend_from_slice(self.payload(body));
        let back = |span: Span| Span {
            start: span.start - self.metadata.start,
            end: span.end - self.metadata.start,
        };
        let record = Record {
            payload_offset: metadata.len() as u32,
            partition_key: self.partition_key.map(back),
            ordering_key: self.ordering_key.map(back),
            metadata: back(self.metadata),
            ..*self
        };
        (bytes.freeze(), record)
    }

    /// The key; bytes that are no UTF-8 read as U+FFFD, as in the Java client.
    pub fn key<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, str>> {
        self.partition_key.map(|span| String::from_utf8_lossy(span.of(body)))
    }

    /// The ordering key.
    pub fn ordering_key<'a>(&self, body: &'a [u8]) -> Option<&'a [u8]> {
        self.ordering_key.map(|span| span.of(body))
    }

    /// The properties, decoded now and in their order.
    pub fn properties(&self, body: &[u8]) -> Vec<(String, String)> {
        let mut rest = self.metadata.of(body);
        let mut properties = Vec::new();
        // `next_record` has been over these bytes: nothing here can fail any more.
        while let Ok(Some((number, value))) = fields::next(&mut rest) {
            if let (1, Value::Bytes(entry)) = (number, value)
                && let Ok((key, value)) = key_value(entry)
            {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                properties.push((text(key), text(value)));
            }
        }
        properties
    }
}

/// Reads the record at `*at`, and moves `*at` behind its payload. `Ok(None)` at the end of `body`.
///
/// Errors: sizes that point past the end, a missing or negative payload size, bytes that are no protobuf; `*at` stays.
#[inline]
pub fn next_record(body: &[u8], at: &mut usize) -> Result<Option<Record>, WireError> {
    let start = *at;
    if start == body.len() {
        return Ok(None);
    }
    let record = read_record(body, start).map_err(|what| WireError::BadBatch { at: start, what })?;
    *at = record.payload_offset as usize + record.payload_len as usize;
    Ok(Some(record))
}

/// Reads the record at `start`; its payload is sure to be within `body`.
#[inline]
fn read_record(body: &[u8], start: usize) -> Result<Record, &'static str> {
    if body.len() > u32::MAX as usize {
        return Err("a batch is larger than 4 GiB");
    }
    let Some((size, rest)) = body.get(start..).and_then(<[u8]>::split_first_chunk::<4>) else {
        return Err("the metadata size is cut short");
    };
    let Some((metadata, rest)) = rest.split_at_checked(u32::from_be_bytes(*size) as usize) else {
        return Err("the metadata size points past the end");
    };
    let span = Span { start: start as u32 + 4, end: start as u32 + 4 + metadata.len() as u32 };
    let record = match read_plain(metadata) {
        Some((payload_len, sequence_id)) => {
            Record { payload_offset: span.end, payload_len, sequence_id, metadata: span, ..Record::default() }
        }
        None => read_full(metadata, span)?,
    };
    if record.payload_len as usize > rest.len() {
        return Err("the payload size points past the end");
    }
    Ok(record)
}

/// Reads metadata with a payload size below 2 MiB and at most a sequence id, which is what most messages have; `None`
/// is for [`read_full`] to look at.
#[inline]
fn read_plain(metadata: &[u8]) -> Option<(u32, Option<u64>)> {
    let (len, rest) = match *metadata {
        [0x18, a, ref rest @ ..] if a < 0x80 => (u32::from(a), rest),
        [0x18, a, b, ref rest @ ..] if b < 0x80 => (u32::from(a & 0x7f) | u32::from(b) << 7, rest),
        [0x18, a, b, c, ref rest @ ..] if c < 0x80 => {
            (u32::from(a & 0x7f) | u32::from(b & 0x7f) << 7 | u32::from(c) << 14, rest)
        }
        _ => return None,
    };
    match rest.split_first() {
        None => Some((len, None)),
        Some((0x40, mut rest)) => {
            let sequence_id = fields::varint(&mut rest).ok()?;
            rest.is_empty().then_some((len, Some(sequence_id)))
        }
        Some(_) => None,
    }
}

/// Reads any metadata, which is at `span` of the payload.
fn read_full(metadata: &[u8], span: Span) -> Result<Record, &'static str> {
    let mut record = Record { payload_offset: span.end, metadata: span, ..Record::default() };
    let mut payload_size = None;
    let mut rest = metadata;
    while let Some((number, value)) = fields::next(&mut rest)? {
        let end = span.end - rest.len() as u32;
        let here = |bytes: &[u8]| Some(Span { start: end - bytes.len() as u32, end });
        match (number, value) {
            (1, Value::Bytes(entry)) => {
                key_value(entry)?; // so that `properties` can't fail later
            }
            (2, Value::Bytes(bytes)) => record.partition_key = here(bytes),
            (3, Value::Varint(v)) => payload_size = Some(v as i32),
            (4, Value::Varint(v)) => record.compacted_out = v != 0,
            (5, Value::Varint(v)) => record.event_time = v,
            (6, Value::Varint(v)) => record.partition_key_b64_encoded = v != 0,
            (7, Value::Bytes(bytes)) => record.ordering_key = here(bytes),
            (8, Value::Varint(v)) => record.sequence_id = Some(v),
            (9, Value::Varint(v)) => record.null_value = v != 0,
            (10, Value::Varint(v)) => record.null_partition_key = v != 0,
            _ => {}
        }
    }
    let payload_size = payload_size.ok_or("the payload size is missing")?;
    record.payload_len = u32::try_from(payload_size).map_err(|_| "the payload size is negative")?;
    Ok(record)
}

/// The two fields of a `KeyValue`.
fn key_value(mut entry: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let (mut key, mut value) = (&[][..], &[][..]);
    while let Some(field) = fields::next(&mut entry)? {
        match field {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(body: &[u8]) -> Result<Option<Record>, WireError> {
        next_record(body, &mut 0)
    }

    fn what(body: &[u8]) -> &'static str {
        match record(body) {
            Err(WireError::BadBatch { at: 0, what }) => what,
            other => panic!("{body:?} is {other:?}"),
        }
    }

    #[test]
    fn the_end_is_no_record_and_a_position_past_it_is_an_error() {
        assert_eq!(record(&[]), Ok(None));
        assert!(next_record(&[], &mut 1).is_err());
        assert!(next_record(&[0; 3], &mut { usize::MAX }).is_err());
    }

    #[test]
    fn broken_records_are_refused_and_the_position_stays() {
        assert!(what(&[0, 0, 0]).contains("cut short"));
        assert!(what(&[0, 0, 0, 1]).contains("metadata size"));
        assert!(what(&[0xff; 8]).contains("metadata size"));
        assert!(what(&[0, 0, 0, 0]).contains("missing"));
        assert!(what(&[0, 0, 0, 2, 0x18, 1]).contains("payload size"));
        assert!(
            what(&[0, 0, 0, 11, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).contains("negative")
        );
        assert!(what(&[0, 0, 0, 4, 0x0a, 2, 0x0a, 9]).contains("past the end"));
        let mut at = 4;
        assert!(next_record(&[0, 0, 0, 2, 0x18, 0, 9], &mut at).is_err());
        assert_eq!(at, 4);
    }

    #[test]
    fn bytes_that_are_no_text_read_as_replacement_characters() {
        let body = [0, 0, 0, 5, 0x12, 1, 0xff, 0x18, 0];
        let record = record(&body).expect("it decodes").expect("a record");
        assert_eq!(record.key(&body).as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn a_record_and_a_payload_that_do_not_belong_together_do_not_panic() {
        let mut writer = BatchWriter::new();
        writer.append(&SingleMetadata { partition_key: Some("key"), ..Default::default() }, b"value");
        let body = writer.take();
        let record = record(&body).expect("it decodes").expect("a record");
        assert_eq!(record.payload(b""), b"");
        assert_eq!(record.key(b"").as_deref(), Some(""));
        assert!(record.properties(b"").is_empty());
    }

    #[test]
    fn a_taken_batch_leaves_an_empty_one() {
        let mut writer = BatchWriter::new();
        assert!(writer.is_empty());
        for round in 0..3u8 {
            writer.append(&SingleMetadata::default(), &[round]);
            writer.append(&SingleMetadata::default(), &[round]);
            assert_eq!((writer.count(), writer.len()), (2, 14));
            assert_eq!(writer.bytes(), &[0, 0, 0, 2, 0x18, 1, round].repeat(2));
            assert_eq!(writer.take().len(), 14);
            assert_eq!((writer.count(), writer.len(), writer.is_empty()), (0, 0, true));
        }
    }

    #[derive(Clone, Debug)]
    struct Owned {
        properties: Vec<(String, String)>,
        key: Option<String>,
        ordering_key: Option<Vec<u8>>,
        event_time: Option<u64>,
        sequence_id: Option<u64>,
        flags: (bool, bool, bool),
        payload: Vec<u8>,
    }

    prop_compose! {
        fn messages()(
            properties in prop::collection::vec((".{0,5}", ".{0,5}"), 0..3),
            key in prop::option::of(".{0,9}"),
            ordering_key in prop::option::of(prop::collection::vec(any::<u8>(), 0..5)),
            event_time in prop::option::of(1..u64::MAX),
            sequence_id in prop::option::of(any::<u64>()),
            flags in any::<(bool, bool, bool)>(),
            payload in prop::collection::vec(any::<u8>(), 0..300),
        ) -> Owned {
            Owned { properties, key, ordering_key, event_time, sequence_id, flags, payload }
        }
    }

    proptest! {
        #[test]
        fn a_batch_reads_as_it_was_written(messages in prop::collection::vec(messages(), 0..10), plain: bool) {
            let mut writer = BatchWriter::new();
            for m in &messages {
                let metadata = SingleMetadata {
                    properties: &m.properties,
                    partition_key: m.key.as_deref(),
                    partition_key_b64_encoded: m.flags.0,
                    ordering_key: m.ordering_key.as_deref(),
                    event_time: m.event_time,
                    sequence_id: m.sequence_id,
                    null_value: m.flags.1,
                    null_partition_key: m.flags.2,
                };
                let plain_metadata = SingleMetadata { sequence_id: m.sequence_id, ..Default::default() };
                writer.append(if plain { &plain_metadata } else { &metadata }, &m.payload);
            }
            let body = writer.take();
            let mut at = 0;
            for m in &messages {
                let r = next_record(&body, &mut at).expect("it decodes").expect("a record");
                prop_assert_eq!(r.payload(&body), &m.payload[..]);
                prop_assert_eq!(r.sequence_id, m.sequence_id);
                prop_assert!(!r.compacted_out);
                if plain {
                    continue;
                }
                prop_assert_eq!(r.properties(&body), m.properties.clone());
                prop_assert_eq!(r.key(&body).map(Cow::into_owned), m.key.clone());
                prop_assert_eq!(r.ordering_key(&body), m.ordering_key.as_deref());
                prop_assert_eq!(r.event_time, m.event_time.unwrap_or(0));
                prop_assert_eq!((r.partition_key_b64_encoded, r.null_value, r.null_partition_key), m.flags);
            }
            prop_assert_eq!(next_record(&body, &mut at), Ok(None));
        }
    }
}
