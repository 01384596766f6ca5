//! What can be wrong with bytes.
use std::fmt;

use prost::DecodeError;

use crate::compression::Compression;

/// Bytes that are not what the protocol says, or values that it has no bytes for.
///
/// `Display` is one sentence without a full stop, fit to stand behind "connection closed: ".
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// A frame is longer than was agreed. Units: bytes, the size field included.
    Oversized {
        /// What the size field announces.
        size: u64,
        /// The largest frame allowed.
        max: usize,
    },
    /// A frame's size field leaves no room for a command.
    Undersized {
        /// What the size field says, in bytes.
        size: u32,
    },
    /// A length points past the end of the frame.
    Truncated {
        /// What should have been there.
        what: &'static str,
    },
    /// A command without type or body, or with bytes that are no protobuf.
    BadCommand(&'static str),
    /// The body of a command does not decode.
    BadCommandBody {
        /// Its name, as in `BaseCommand.Type`.
        name: &'static str,
        /// What prost says.
        source: DecodeError,
    },
    /// Message metadata, or broker entry metadata, does not decode.
    BadMetadata(DecodeError),
    /// The payload of a batch does not decode.
    BadBatch {
        /// Where the broken record begins, in bytes from the start of the payload.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A serialised message id does not decode.
    BadMessageId(&'static str),
    /// A codec number that is not in the protocol.
    UnknownCompression(i32),
    /// A codec that this build has no code for.
    CompressionNotBuilt(Compression),
    /// The codec refuses the bytes.
    Decompression {
        /// The codec.
        codec: Compression,
        /// What it says.
        reason: String,
    },
    /// The codec cannot compress the bytes.
    Compression {
        /// The codec.
        codec: Compression,
        /// What it says.
        reason: String,
    },
    /// The announced size of a value is above the limit. Nothing was allocated.
    UncompressedSize {
        /// What the metadata announces, in bytes.
        size: u32,
        /// The limit, in bytes.
        limit: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oversized { size, max } => {
                write!(f, "a frame of {size} bytes is above the limit of {max}")
            }
            Self::Undersized { size } => {
                write!(f, "a frame of {size} bytes has no room for a command")
            }
            Self::Truncated { what } => write!(f, "the frame ends within the {what}"),
            Self::BadCommand(what) => write!(f, "the command is broken: {what}"),
            Self::BadCommandBody { name, source } => {
                write!(f, "the {name} command does not decode: {source}")
            }
            Self::BadMetadata(source) => write!(f, "the metadata does not decode: {source}"),
            Self::BadBatch { at, what } => {
                write!(f, "the batch is broken in the record at byte {at}: {what}")
            }
            Self::BadMessageId(what) => write!(f, "the message id is broken: {what}"),
            Self::UnknownCompression(number) => write!(f, "compression type {number} is unknown"),
            Self::CompressionNotBuilt(codec) => {
                write!(f, "{codec} compression is not part of this build (feature `{}`)", codec.feature())
            }
            Self::Decompression { codec, reason } => {
                write!(f, "the payload is not valid {codec}: {reason}")
            }
            Self::Compression { codec, reason } => write!(f, "{codec} compression failed: {reason}"),
            Self::UncompressedSize { size, limit } => {
                write!(f, "a value of {size} bytes uncompressed is above the limit of {limit}")
            }
        }
    }
}

impl std::error::Error for WireError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::BadCommandBody { source, .. } | Self::BadMetadata(source) => Some(source),
            _ => None,
        }
    }
}
