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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ping() -> BytesMut {
        let mut out = BytesMut::new();
        Command::Ping.encode(&mut out);
        out
    }

    #[test]
    fn impossible_sizes_are_refused_before_anything_is_allocated() {
        for size in [0u32, 3] {
            let mut buf = BytesMut::from(&size.to_be_bytes()[..]);
            assert_eq!(split(&mut buf, 100), Err(WireError::Undersized { size }));
        }
        for size in [97, u32::MAX] {
            let mut buf = BytesMut::from(&size.to_be_bytes()[..]);
            let capacity = buf.capacity();
            assert_eq!(
                split(&mut buf, 100),
                Err(WireError::Oversized { size: u64::from(size) + 4, max: 100 })
            );
            assert_eq!(buf.capacity(), capacity);
        }
    }

    #[test]
    fn the_largest_frame_is_as_large_as_the_limit() {
        let whole = ping();
        let mut buf = whole.clone();
        assert!(split(&mut buf, whole.len() - 1).is_err());
        assert_eq!(split(&mut buf, whole.len()), Ok(Some(whole.freeze())));
        assert!(buf.is_empty());
    }

    #[test]
    fn a_partial_frame_gets_room_for_its_rest_and_then_stays_where_it_is() {
        let mut buf = ping();
        buf.put_u32(5000);
        let first = split(&mut buf, 1 << 20).expect("no error").expect("the ping");
        assert_eq!(split(&mut buf, 1 << 20), Ok(None));
        assert!(buf.capacity() >= 5004);
        let place = buf.as_ptr();
        buf.put_bytes(1, 5000);
        let frame = split(&mut buf, 1 << 20).expect("no error").expect("the frame");
        assert_eq!(frame.as_ptr(), place);
        assert_eq!(frame.len(), 5004);
        assert_eq!(first, ping());
    }

    #[test]
    fn sizes_that_do_not_add_up_are_refused() {
        let what = |frame: &[u8]| match decode(Bytes::copy_from_slice(frame)) {
            Err(WireError::Truncated { what }) => what,
            other => panic!("{frame:?} is {other:?}"),
        };
        assert_eq!(what(&[]), "frame size");
        assert_eq!(what(&[0, 0, 0, 9, 0, 0, 0, 0]), "frame");
        assert_eq!(what(&[0, 0, 0, 0]), "command size");
        assert_eq!(what(&[0, 0, 0, 4, 0, 0, 0, 1]), "command");
        let send = [0x08, 0x06, 0x32, 0x04, 0x08, 0x00, 0x10, 0x00];
        let frame = |rest: &[u8]| {
            let size = (4 + send.len() + rest.len()) as u8;
            [&[0, 0, 0, size, 0, 0, 0, send.len() as u8], &send[..], rest].concat()
        };
        assert_eq!(what(&frame(&[])), "metadata size");
        assert_eq!(what(&frame(&[0, 0, 0, 1])), "metadata");
        assert_eq!(what(&frame(&[0x0e, 0x01, 0])), "checksum");
        assert_eq!(what(&frame(&[0x0e, 0x02, 0])), "broker entry metadata size");
        assert_eq!(what(&frame(&[0x0e, 0x02, 0, 0, 0, 1])), "broker entry metadata");
        let empty = decode(frame(&[0, 0, 0, 0]).into()).expect("empty metadata and body").payload;
        assert!(empty.is_some_and(|p| p.body.is_empty() && p.checksum == Checksum::Absent));
    }

    #[test]
    fn payloads_are_slices_of_the_frame() {
        let mut frame = BytesMut::from(&[0, 0, 0, 22, 0, 0, 0, 8, 0x08, 6, 0x32, 4, 0x08, 0, 0x10, 0][..]);
        frame.put_slice(&[0, 0, 0, 2, 0xaa, 0xbb, 1, 2, 3, 4]);
        let frame = frame.freeze();
        let payload = decode(frame.clone()).expect("it decodes").payload.expect("a payload");
        assert_eq!(payload.metadata.as_ptr(), frame[20..].as_ptr());
        assert_eq!(payload.body.as_ptr(), frame[22..].as_ptr());
        assert_eq!(payload.raw.as_ptr(), frame[16..].as_ptr());
        assert_eq!((&payload.body[..], payload.raw.len()), (&[1, 2, 3, 4][..], 10));
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_frames(
            sizes in prop::collection::vec(4..300usize, 1..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut stream = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                stream.extend_from_slice(&(*size as u32).to_be_bytes());
                stream.resize(stream.len() + size, i as u8);
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
            cuts.push(stream.len());
            cuts.sort_unstable();
            let (mut buf, mut from, mut frames) = (BytesMut::new(), 0, Vec::new());
            for cut in cuts {
                buf.put_slice(&stream[from..cut]);
                from = cut;
                while let Some(frame) = split(&mut buf, 304).expect("sizes are fine") {
                    frames.push(frame);
                }
            }
            prop_assert!(buf.is_empty());
            prop_assert_eq!(frames.iter().map(|f| f.len() - 4).collect::<Vec<_>>(), sizes);
            prop_assert_eq!(frames.concat(), stream);
        }
    }
}
