//! Compression: the five codecs of the protocol, in the formats that the other clients write.
//!
//! Knows bytes and sizes. When to compress, and what a size limit is, is for the caller.
use std::fmt;

use bytes::Bytes;

use crate::wire::WireError;

/// How a payload is compressed. Source: `CompressionType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// As it is.
    #[default]
    None,
    /// A raw LZ4 block. Feature `lz4`.
    Lz4,
    /// A zlib stream (RFC 1950). Feature `zlib`.
    Zlib,
    /// A zstd frame, level 3. Feature `zstd`.
    Zstd,
    /// A raw snappy block. Feature `snappy`.
    Snappy,
}

impl Compression {
    /// The codec's number in the protocol.
    pub const fn number(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
            Self::Snappy => 4,
        }
    }

    /// The codec with this number.
    pub const fn from_number(number: i32) -> Result<Self, WireError> {
        Ok(match number {
            0 => Self::None,
            1 => Self::Lz4,
            2 => Self::Zlib,
            3 => Self::Zstd,
            4 => Self::Snappy,
            _ => return Err(WireError::UnknownCompression(number)),
        })
    }

    /// Whether this build has the codec.
    pub const fn is_built(self) -> bool {
        match self {
            Self::None => true,
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zlib => cfg!(feature = "zlib"),
            Self::Zstd => cfg!(feature = "zstd"),
            Self::Snappy => cfg!(feature = "snappy"),
        }
    }

    /// The Cargo feature with the codec's code.
    pub(crate) const fn feature(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Lz4 => "lz4",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
            Self::Snappy => "snappy",
        }
    }

    /// Compresses `data`, copying it for [`Compression::None`].
    ///
    /// Errors: the codec is not in this build, or refuses.
    pub fn compress(self, data: &[u8]) -> Result<Bytes, WireError> {
        match self {
            Self::None => Ok(Bytes::copy_from_slice(data)),
            #[cfg(feature = "lz4")]
            Self::Lz4 => Ok(lz4_flex::block::compress(data).into()),
            #[cfg(feature = "zlib")]
            Self::Zlib => zlib::compress(data).map_err(|reason| self.refused(reason)),
            #[cfg(feature = "zstd")]
            Self::Zstd => match zstd::bulk::compress(data, ZSTD_LEVEL) {
                Ok(out) => Ok(out.into()),
                Err(error) => Err(self.refused(error.to_string())),
            },
            #[cfg(feature = "snappy")]
            Self::Snappy => match snap::raw::Encoder::new().compress_vec(data) {
                Ok(out) => Ok(out.into()),
                Err(error) => Err(self.refused(error.to_string())),
            },
            #[allow(unreachable_patterns, reason = "reachable only without some feature")]
            _ => Err(WireError::CompressionNotBuilt(self)),
        }
    }

    #[allow(dead_code, reason = "unused without zlib, zstd and snappy")]
    fn refused(self, reason: String) -> WireError {
        WireError::Compression { codec: self, reason }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "NONE",
            Self::Lz4 => "LZ4",
            Self::Zlib => "ZLIB",
            Self::Zstd => "ZSTD",
            Self::Snappy => "SNAPPY",
        })
    }
}

/// Decompresses a payload.
///
/// Shape: `data` itself for [`Compression::None`], whatever the size says; else exactly `uncompressed_size` bytes, and
/// for 0 an empty value without a look at `data`, because the Java client writes empty values in many ways.
/// Units: bytes. `limit` is compared before anything is allocated.
/// Errors: a size above the limit, a codec that is not in this build, bytes that the codec refuses, or another size.
pub fn decompress(
    codec: Compression,
    data: &Bytes,
    uncompressed_size: u32,
    limit: usize,
) -> Result<Bytes, WireError> {
    if codec == Compression::None {
        return Ok(data.clone());
    }
    if uncompressed_size == 0 {
        return Ok(Bytes::new());
    }
    if !codec.is_built() {
        return Err(WireError::CompressionNotBuilt(codec));
    }
    if uncompressed_size as u64 > limit as u64 {
        return Err(WireError::UncompressedSize { size: uncompressed_size, limit });
    }
    let size = uncompressed_size as usize;
    let out: Result<Vec<u8>, String> = match codec {
        #[cfg(feature = "lz4")]
        Compression::Lz4 => lz4_flex::block::decompress(data, size).map_err(|e| e.to_string()),
        #[cfg(feature = "zlib")]
        Compression::Zlib => zlib::decompress(data, size),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::bulk::decompress(data, size).map_err(|e| e.to_string()),
        #[cfg(feature = "snappy")]
        Compression::Snappy => snappy(data, size),
        _ => Err("not built".to_owned()),
    };
    let out = out.map_err(|reason| WireError::Decompression { codec, reason })?;
    if out.len() != size {
        let reason = format!("it holds {} bytes, not the announced {size}", out.len());
        return Err(WireError::Decompression { codec, reason });
    }
    Ok(out.into())
}

/// What the Java and the C++ client use.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// The block says its own size: compared before it is believed.
#[cfg(feature = "snappy")]
fn snappy(data: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let announced = snap::raw::decompress_len(data).map_err(|e| e.to_string())?;
    if announced != size {
        return Err(format!("it announces {announced} bytes, the metadata {size}"));
    }
    snap::raw::Decoder::new().decompress_vec(data).map_err(|e| e.to_string())
}

#[cfg(feature = "zlib")]
mod zlib {
    use bytes::Bytes;
    use flate2::{Compress, Compression as Level, Decompress, FlushCompress, FlushDecompress, Status};

    /// A complete stream, with its last block and checksum.
    pub(super) fn compress(data: &[u8]) -> Result<Bytes, String> {
        let mut codec = Compress::new(Level::default(), true);
        // Room for bytes that don't compress: 5 a block, and the ends.
        let mut out = Vec::with_capacity(data.len() / 1000 + data.len() + 64);
        loop {
            let read = codec.total_in() as usize;
            let status = codec
                .compress_vec(&data[read..], &mut out, FlushCompress::Finish)
                .map_err(|e| e.to_string())?;
            match status {
                Status::StreamEnd => return Ok(out.into()),
                _ => out.reserve(out.capacity() / 2 + 64),
            }
        }
    }

    /// Exactly `size` bytes, from a stream that may have no end: the Java client only flushes.
    pub(super) fn decompress(data: &[u8], size: usize) -> Result<Vec<u8>, String> {
        let mut codec = Decompress::new(true);
        // One more byte than announced, to notice a stream that holds more.
        let mut out = Vec::with_capacity(size + 1);
        loop {
            let (read, had) = (codec.total_in(), out.len());
            let status = codec
                .decompress_vec(&data[read as usize..], &mut out, FlushDecompress::Sync)
                .map_err(|e| e.to_string())?;
            let stuck = codec.total_in() == read && out.len() == had;
            if status == Status::StreamEnd || out.len() > size || stuck {
                return Ok(out);
            }
        }
    }
}
