//! Frames: where one ends, and what is in it.
//!
//! Knows sizes, magic numbers and checksums. Does not decode message metadata, and does not act on a mismatch.
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::{
    command::Command,
    error::WireError,
    fields::{BYTES, VARINT, field_len, key, put_varint},
    proto,
};

/// The two bytes in front of a CRC-32C.
pub(crate) const MAGIC_CHECKSUM: [u8; 2] = [0x0e, 0x01];
/// The two bytes in front of broker entry metadata.
const MAGIC_BROKER_ENTRY: [u8; 2] = [0x0e, 0x02];

/// A decoded frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The command.
    pub command: Command,
    /// What follows it: in SEND and MESSAGE, and in no other.
    pub payload: Option<Payload>,
}

/// The message in a SEND or MESSAGE frame; every part is a slice of the frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// What the broker adds for clients that asked for it.
    pub broker_entry: Option<proto::BrokerEntryMetadata>,
    /// Whether the checksum is there and right.
    pub checksum: Checksum,
    /// `MessageMetadata`, encoded.
    pub metadata: Bytes,
    /// The value or the batch: compressed, encrypted.
    pub body: Bytes,
    /// All of it as received, for who stores and forwards: checksum magic and checksum, if there, then
    /// metadata size, metadata and body. Without the broker entry metadata.
    pub raw: Bytes,
}

/// The outcome of a payload's CRC-32C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The peer sent none.
    Absent,
    /// It fits.
    Valid,
    /// It doesn't.
    Mismatch {
        /// What the frame says.
        expected: u32,
        /// What its bytes yield.
        actual: u32,
    },
}

/// Splits the first whole frame off `buf`.
///
/// Shape: the frame comes with its 4 size bytes. `Ok(None)` means that bytes are missing; once the size is known, `buf`
/// has room for the rest of the frame, so that its bytes move at most once.
/// Units: `max_frame` is in bytes and includes the size bytes.
/// Errors: a size that leaves no room for a command, or is above `max_frame`; `buf` is left alone.
#[inline]
pub fn split(buf: &mut BytesMut, max_frame: usize) -> Result<Option<Bytes>, WireError> {
    let Some(size) = buf.first_chunk::<4>() else { return Ok(None) };
    let size = u32::from_be_bytes(*size);
    if size < 4 {
        return Err(WireError::Undersized { size });
    }
    let whole = u64::from(size) + 4;
    if whole > max_frame as u64 {
        return Err(WireError::Oversized { size: whole, max: max_frame });
    }
    let whole = whole as usize;
    if buf.len() < whole {
        buf.reserve(whole - buf.len());
        return Ok(None);
    }
    Ok(Some(buf.split_to(whole).freeze()))
}

/// Decodes a frame that [`split`] has found.
///
/// Errors: sizes that don't add up, or a command that does not decode. A wrong checksum is no error here, because what
/// to do about it depends on who asks.
pub fn decode(frame: Bytes) -> Result<Frame, WireError> {
    let mut at = 0;
    let size = take_u32(&frame, &mut at, "frame size")?;
    if u64::from(size) + 4 != frame.len() as u64 {
        return Err(WireError::Truncated { what: "frame" });
    }
    let command_size = take_u32(&frame, &mut at, "command size")?;
    let command = Command::decode(&frame[take(&frame, &mut at, command_size, "command")?])?;
    let payload = match command {
        Command::Send(_) | Command::Message(_) => Some(decode_payload(&frame, at)?),
        _ => None,
    };
    Ok(Frame { command, payload })
}

/// A whole MESSAGE frame, as two chunks: the head, and `raw` as it is.
pub fn encode_message(
    command: &proto::CommandMessage,
    broker_entry: Option<&proto::BrokerEntryMetadata>,
    raw: &Bytes,
) -> (Bytes, Bytes) {
    const MESSAGE: u32 = proto::base_command::Type::Message as u32;
    let body_len = command.encoded_len();
    let command_len = 2 + field_len(MESSAGE, body_len);
    let entry_len = broker_entry.map_or(0, |entry| 6 + entry.encoded_len());
    let mut head = BytesMut::with_capacity(8 + command_len + entry_len);
    head.put_u32((4 + command_len + entry_len + raw.len()) as u32);
    head.put_u32(command_len as u32);
    put_varint(&mut head, key(1, VARINT));
    put_varint(&mut head, u64::from(MESSAGE));
    put_varint(&mut head, key(MESSAGE, BYTES));
    put_varint(&mut head, body_len as u64);
    command.encode(&mut head).expect("a BytesMut grows");
    if let Some(entry) = broker_entry {
        head.put_slice(&MAGIC_BROKER_ENTRY);
        head.put_u32(entry_len as u32 - 6);
        entry.encode(&mut head).expect("a BytesMut grows");
    }
    (head.freeze(), raw.clone())
}

fn decode_payload(frame: &Bytes, mut at: usize) -> Result<Payload, WireError> {
    let mut broker_entry = None;
    if frame[at..].starts_with(&MAGIC_BROKER_ENTRY) {
        at += 2;
        let size = take_u32(frame, &mut at, "broker entry metadata size")?;
        let range = take(frame, &mut at, size, "broker entry metadata")?;
        broker_entry =
            Some(proto::BrokerEntryMetadata::decode(&frame[range]).map_err(WireError::BadMetadata)?);
    }
    let raw = frame.slice(at..);
    let mut checksum = Checksum::Absent;
    if frame[at..].starts_with(&MAGIC_CHECKSUM) {
        at += 2;
        let expected = take_u32(frame, &mut at, "checksum")?;
        let actual = crc32c::crc32c(&frame[at..]);
        checksum = if expected == actual { Checksum::Valid } else { Checksum::Mismatch { expected, actual } };
    }
    let metadata_size = take_u32(frame, &mut at, "metadata size")?;
    let metadata = frame.slice(take(frame, &mut at, metadata_size, "metadata")?);
    let body = frame.slice(at..);
    Ok(Payload { broker_entry, checksum, metadata, body, raw })
}

fn take_u32(frame: &[u8], at: &mut usize, what: &'static str) -> Result<u32, WireError> {
    let Some(bytes) = frame[*at..].first_chunk::<4>() else { return Err(WireError::Truncated { what }) };
    *at += 4;
    Ok(u32::from_be_bytes(*bytes))
}

fn take(
    frame: &[u8],
    at: &mut usize,
    len: u32,
    what: &'static str,
) -> Result<std::ops::Range<usize>, WireError> {
    if len as usize > frame.len() - *at {
        return Err(WireError::Truncated { what });
    }
    let range = *at..*at + len as usize;
    *at = range.end;
    Ok(range)
}
