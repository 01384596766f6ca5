//! The batch that is being filled: when it is full, and the SEND it becomes.

use bytes::Bytes;

use super::part::Identity;
use super::pending::Op;
use crate::compression::Compression;
use crate::config::Batching;
use crate::error::{Error, ErrorKind};
use crate::message::OutgoingMessage;
use crate::time::Now;
use crate::wire::batch::{BatchWriter, SingleMetadata};
use crate::wire::metadata::{Metadata, SendHeader, encode_send};

/// What the largest outer metadata of a batch takes, its names not counted: room kept below the maximum message size.
const METADATA_ROOM: usize = 512;

/// Messages of one SEND to be, encoded as they come.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    writer: BatchWriter,
    /// As in `SendId::batch`.
    number: u64,
    first_sequence: u64,
    last_sequence: u64,
    payload_bytes: usize,
    memory: usize,
    opened: Now,
    /// The first message's keys, which the outer metadata repeats because brokers route the entry by them.
    key: Option<(String, bool)>,
    ordering_key: Option<Bytes>,
    replicate_to: Vec<String>,
}

impl OpenBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.writer.count()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn opened(&self) -> Now {
        self.opened
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Whether `message` can join without breaking a limit, the broker's on the finished frame included.
    #[inline]
    pub(crate) fn has_room(
        &self,
        message: &OutgoingMessage,
        sequence: u64,
        limits: &Batching,
        identity: &Identity,
    ) -> bool {
        if self.is_empty() {
            return true;
        }
        let bytes = self.payload_bytes + message.payload.len();
        bytes <= limits.max_bytes
            && sequence > self.last_sequence
            && message.replicate_to == self.replicate_to
            && self.writer.len() + record_len(message, sequence) <= room(identity, self.key.as_ref())
    }

    /// Whether it must leave now.
    #[inline]
    pub(crate) fn is_full(&self, limits: &Batching) -> bool {
        self.count() >= limits.max_messages || self.payload_bytes >= limits.max_bytes
    }

    /// Adds a message. The first one opens the batch and gives it its number.
    #[inline]
    pub(crate) fn push(
        &mut self,
        message: &OutgoingMessage,
        sequence: u64,
        memory: usize,
        now: Now,
        next_number: &mut u64,
    ) {
        if self.is_empty() {
            self.number = *next_number;
            *next_number += 1;
            self.first_sequence = sequence;
            self.opened = now;
            self.key = message.key.clone().map(|key| (key, message.key_is_base64));
            self.ordering_key = message.ordering_key.clone();
            self.replicate_to.clone_from(&message.replicate_to);
        }
        self.last_sequence = sequence;
        self.payload_bytes += message.payload.len();
        self.memory += memory;
        self.writer.append(&single(message, sequence), &message.payload);
    }

    /// Gives the batch up.
    pub(crate) fn discard(&mut self) -> Closed {
        let batch = std::mem::take(self);
        Closed { number: batch.number, count: batch.count() as u32, memory: batch.memory }
    }

    /// Makes the SEND. The batch is empty afterwards, whatever the outcome; its SEND's number and count come with an error.
    pub(crate) fn close(&mut self, identity: &Identity, codec: Compression) -> Result<Op, (Closed, Error)> {
        let count = self.count() as u32;
        let body = self.writer.take();
        let batch = std::mem::take(self);
        self.writer = batch.writer;
        let closed = Closed { number: batch.number, count, memory: batch.memory };
        let size = body.len();
        let body = match compress(codec, body, &identity.topic) {
            Ok(body) => body,
            Err(error) => return Err((closed, error)),
        };
        let metadata = Metadata {
            producer_name: &identity.name,
            sequence_id: batch.first_sequence,
            highest_sequence_id: (count > 1).then_some(batch.last_sequence),
            publish_time: batch.opened.unix_ms,
            num_messages_in_batch: Some(count as i32),
            partition_key: batch.key.as_ref().map(|(key, _)| key.as_str()),
            partition_key_b64_encoded: batch.key.as_ref().is_some_and(|(_, b64)| *b64),
            ordering_key: batch.ordering_key.as_deref(),
            replicate_to: &batch.replicate_to,
            compression: codec,
            uncompressed_size: (codec != Compression::None).then_some(size as u32),
            schema_version: identity.schema_version(),
            ..Metadata::default()
        };
        if let Err(error) = identity.check_size(metadata.encoded_len() + body.len()) {
            return Err((closed, error));
        }
        let header = SendHeader {
            producer_id: identity.wire_id,
            sequence_id: batch.first_sequence,
            highest_sequence_id: (count > 1).then_some(batch.last_sequence),
            num_messages: count as i32,
            is_chunk: false,
        };
        Ok(Op {
            number: batch.number,
            first_sequence: batch.first_sequence,
            highest_sequence: batch.last_sequence,
            count,
            batch: true,
            memory: batch.memory,
            created: batch.opened.mono,
            frame: encode_send(&header, &metadata, body, identity.checksums),
        })
    }
}

/// A batch that could not become a SEND.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) number: u64,
    pub(crate) count: u32,
    pub(crate) memory: usize,
}

/// Makes the SEND of a message that travels by itself. Errors: `MessageTooBig`, or what the codec says.
pub(crate) fn single_send(
    message: &OutgoingMessage,
    sequence: u64,
    memory: usize,
    now: Now,
    number: u64,
    identity: &Identity,
    codec: Compression,
) -> Result<Op, Error> {
    let size = message.payload.len();
    let body = compress(codec, message.payload.clone(), &identity.topic)?;
    let metadata = Metadata {
        producer_name: &identity.name,
        sequence_id: sequence,
        publish_time: now.unix_ms,
        properties: &message.properties,
        partition_key: message.key.as_deref(),
        partition_key_b64_encoded: message.key_is_base64,
        ordering_key: message.ordering_key.as_deref(),
        replicate_to: &message.replicate_to,
        event_time: message.event_time,
        deliver_at_time: message.deliver_at_time,
        null_value: message.null_value,
        compression: codec,
        uncompressed_size: (codec != Compression::None).then_some(size as u32),
        schema_version: message.schema_version.as_deref().or(identity.schema_version()),
        ..Metadata::default()
    };
    identity.check_size(metadata.encoded_len() + body.len())?;
    let header = SendHeader {
        producer_id: identity.wire_id,
        sequence_id: sequence,
        num_messages: 1,
        ..SendHeader::default()
    };
    Ok(Op {
        number,
        first_sequence: sequence,
        highest_sequence: sequence,
        count: 1,
        batch: false,
        memory,
        created: now.mono,
        frame: encode_send(&header, &metadata, body, identity.checksums),
    })
}

/// Whether a message could be a batch of its own below the broker's limit, before compression.
pub(crate) fn fits_batch(message: &OutgoingMessage, sequence: u64, identity: &Identity) -> bool {
    let key =
        message.key.as_ref().map_or(0, String::len) + message.ordering_key.as_ref().map_or(0, Bytes::len);
    let used = record_len(message, sequence) + key + identity.name.len() + METADATA_ROOM;
    used <= identity.max_message_size
}

fn room(identity: &Identity, key: Option<&(String, bool)>) -> usize {
    let names = identity.name.len() + key.map_or(0, |(key, _)| key.len());
    identity.max_message_size.saturating_sub(METADATA_ROOM + names)
}

#[inline]
fn record_len(message: &OutgoingMessage, sequence: u64) -> usize {
    single(message, sequence).record_len(message.payload.len())
}

#[inline]
fn single(message: &OutgoingMessage, sequence: u64) -> SingleMetadata<'_> {
    SingleMetadata {
        properties: &message.properties,
        partition_key: message.key.as_deref(),
        partition_key_b64_encoded: message.key_is_base64,
        ordering_key: message.ordering_key.as_deref(),
        event_time: message.event_time,
        sequence_id: Some(sequence),
        null_value: message.null_value,
        null_partition_key: false,
    }
}

fn compress(codec: Compression, body: Bytes, topic: &str) -> Result<Bytes, Error> {
    match codec {
        Compression::None => Ok(body),
        codec => codec
            .compress(&body)
            .map_err(|e| Error::new(ErrorKind::InvalidMessage, format!("sending to {topic}"), e.to_string())),
    }
}
