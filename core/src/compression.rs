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

    /// Compresses one payload; see [`Compressor`] for many.
    pub fn compress(self, data: &[u8]) -> Result<Bytes, WireError> {
        Compressor::new(self)?.compress(data)
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

/// Compresses payloads with one codec, whose memory is allocated once.
pub struct Compressor {
    codec: Compression,
    context: Context,
}

enum Context {
    None,
    #[cfg(feature = "lz4")]
    Lz4(lz4_flex::block::CompressTable),
    #[cfg(feature = "zlib")]
    Zlib(flate2::Compress),
    #[cfg(feature = "zstd")]
    Zstd(zstd::bulk::Compressor<'static>),
    #[cfg(feature = "snappy")]
    Snappy(Box<snap::raw::Encoder>),
}

impl Compressor {
    /// A compressor for `codec`. Errors: the codec is not in this build.
    pub fn new(codec: Compression) -> Result<Self, WireError> {
        let context = match codec {
            Compression::None => Context::None,
            #[cfg(feature = "lz4")]
            Compression::Lz4 => Context::Lz4(lz4_flex::block::CompressTable::default()),
            #[cfg(feature = "zlib")]
            Compression::Zlib => Context::Zlib(flate2::Compress::new(flate2::Compression::default(), true)),
            #[cfg(feature = "zstd")]
            Compression::Zstd => match zstd::bulk::Compressor::new(ZSTD_LEVEL) {
                Ok(context) => Context::Zstd(context),
                Err(error) => return Err(WireError::Compression { codec, reason: error.to_string() }),
            },
            #[cfg(feature = "snappy")]
            Compression::Snappy => Context::Snappy(Box::new(snap::raw::Encoder::new())),
            #[allow(unreachable_patterns, reason = "reachable only without some feature")]
            _ => return Err(WireError::CompressionNotBuilt(codec)),
        };
        Ok(Self { codec, context })
    }

    /// The codec.
    pub fn codec(&self) -> Compression {
        self.codec
    }

    /// Compresses `data`; copies it for [`Compression::None`], which a caller that has `Bytes` can do without.
    ///
    /// Errors: the codec refuses, for want of memory or because the data is too large for it.
    pub fn compress(&mut self, data: &[u8]) -> Result<Bytes, WireError> {
        let out: Result<Vec<u8>, String> = match &mut self.context {
            Context::None => Ok(data.to_vec()),
            #[cfg(feature = "lz4")]
            Context::Lz4(table) => lz4(data, table),
            #[cfg(feature = "zlib")]
            Context::Zlib(context) => zlib::compress(data, context),
            #[cfg(feature = "zstd")]
            Context::Zstd(context) => context.compress(data).map_err(|e| e.to_string()),
            #[cfg(feature = "snappy")]
            Context::Snappy(context) => context.compress_vec(data).map_err(|e| e.to_string()),
        };
        out.map(Bytes::from).map_err(|reason| WireError::Compression { codec: self.codec, reason })
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("codec", &self.codec).finish_non_exhaustive()
    }
}

/// Decompresses payloads of any codec; memory of the codecs that occur is allocated once.
#[derive(Default)]
pub struct Decompressor {
    #[cfg(feature = "zlib")]
    zlib: Option<flate2::Decompress>,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// A decompressor without any memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decompresses a payload.
    ///
    /// Shape: `data` itself for [`Compression::None`], whatever the size says; else exactly `uncompressed_size` bytes,
    /// and for 0 an empty value without a look at `data`, because empty values are written in many ways.
    /// Units: bytes. `limit` is compared before anything is allocated.
    /// Errors: a size above the limit, a codec that is not in this build, bytes that the codec refuses, another size.
    pub fn decompress(
        &mut self,
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
        if uncompressed_size as usize > limit {
            return Err(WireError::UncompressedSize { size: uncompressed_size, limit });
        }
        let size = uncompressed_size as usize;
        let out = self.run(codec, data, size).map_err(|reason| WireError::Decompression { codec, reason })?;
        if out.len() != size {
            let reason = format!("it holds {} bytes, not the announced {size}", out.len());
            return Err(WireError::Decompression { codec, reason });
        }
        Ok(out.into())
    }

    #[allow(unused_variables, reason = "unused without codecs")]
    fn run(&mut self, codec: Compression, data: &[u8], size: usize) -> Result<Vec<u8>, String> {
        match codec {
            #[cfg(feature = "lz4")]
            Compression::Lz4 => lz4_flex::block::decompress(data, size).map_err(|e| e.to_string()),
            #[cfg(feature = "zlib")]
            Compression::Zlib => {
                zlib::decompress(data, size, self.zlib.get_or_insert_with(|| flate2::Decompress::new(true)))
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = Some(zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?);
                }
                let context = self.zstd.as_mut().expect("it was made above");
                context.decompress(data, size).map_err(|e| e.to_string())
            }
            #[cfg(feature = "snappy")]
            Compression::Snappy => snappy(data, size),
            _ => Err("the codec is not part of this build".to_owned()),
        }
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

/// Decompresses one payload; see [`Decompressor::decompress`], and the type for many.
pub fn decompress(
    codec: Compression,
    data: &Bytes,
    uncompressed_size: u32,
    limit: usize,
) -> Result<Bytes, WireError> {
    Decompressor::new().decompress(codec, data, uncompressed_size, limit)
}

/// What the Java and the C++ client use.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

#[cfg(feature = "lz4")]
fn lz4(data: &[u8], table: &mut lz4_flex::block::CompressTable) -> Result<Vec<u8>, String> {
    use lz4_flex::block::{compress_into_with_table, get_maximum_output_size};
    let mut out = vec![0; get_maximum_output_size(data.len())];
    let len = compress_into_with_table(data, &mut out, table).map_err(|e| e.to_string())?;
    out.truncate(len);
    Ok(out)
}

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
    use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

    /// A complete stream, with its last block and checksum.
    pub(super) fn compress(data: &[u8], context: &mut Compress) -> Result<Vec<u8>, String> {
        context.reset();
        // Enough for bytes that don't compress, so that the loop rarely runs twice.
        let mut out = Vec::with_capacity(data.len() + data.len() / 1000 + 64);
        loop {
            let read = context.total_in() as usize;
            match context.compress_vec(&data[read..], &mut out, FlushCompress::Finish) {
                Ok(Status::StreamEnd) => return Ok(out),
                Ok(_) => out.reserve(out.capacity() / 2 + 64),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Exactly `size` bytes, from a stream that may have no end: the Java client only flushes.
    pub(super) fn decompress(data: &[u8], size: usize, context: &mut Decompress) -> Result<Vec<u8>, String> {
        context.reset(true);
        // One more byte than announced, to notice a stream that holds more.
        let mut out = Vec::with_capacity(size + 1);
        loop {
            let (read, had) = (context.total_in(), out.len());
            let status = context
                .decompress_vec(&data[read as usize..], &mut out, FlushDecompress::Sync)
                .map_err(|e| e.to_string())?;
            let stuck = context.total_in() == read && out.len() == had;
            if status == Status::StreamEnd || out.len() > size || stuck {
                return Ok(out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Compression; 5] =
        [Compression::None, Compression::Lz4, Compression::Zlib, Compression::Zstd, Compression::Snappy];

    fn built() -> impl Iterator<Item = Compression> {
        ALL.into_iter().filter(|codec| codec.is_built())
    }

    #[test]
    fn numbers_are_those_of_the_protocol() {
        for codec in ALL {
            assert_eq!(Compression::from_number(codec.number()), Ok(codec));
        }
        assert_eq!(Compression::from_number(5), Err(WireError::UnknownCompression(5)));
        assert_eq!(Compression::from_number(-1), Err(WireError::UnknownCompression(-1)));
    }

    #[test]
    fn a_codec_that_is_not_built_is_named() {
        for codec in ALL.into_iter().filter(|codec| !codec.is_built()) {
            assert_eq!(codec.compress(b"a"), Err(WireError::CompressionNotBuilt(codec)));
            let error = decompress(codec, &Bytes::from_static(b"a"), 1, 1).expect_err("not built");
            assert!(error.to_string().contains(codec.feature()));
        }
    }

    #[test]
    fn a_size_of_zero_is_an_empty_value_whatever_the_bytes() {
        for codec in built().filter(|&codec| codec != Compression::None) {
            assert_eq!(decompress(codec, &Bytes::from_static(b"\xff\xff"), 0, 0), Ok(Bytes::new()));
        }
    }

    #[test]
    fn an_announced_size_above_the_limit_allocates_nothing() {
        for codec in built().filter(|&codec| codec != Compression::None) {
            let error = decompress(codec, &Bytes::from_static(b"\0"), u32::MAX, 1000);
            assert_eq!(error, Err(WireError::UncompressedSize { size: u32::MAX, limit: 1000 }));
        }
    }

    #[cfg(feature = "zlib")]
    #[test]
    fn a_zlib_stream_without_an_end_is_enough_and_half_of_one_is_not() {
        let whole = Compression::Zlib.compress(&[7; 100]).expect("it compresses");
        let unfinished = whole.slice(..whole.len() - 4); // without the checksum
        assert_eq!(decompress(Compression::Zlib, &unfinished, 100, 100), Ok(Bytes::from(vec![7; 100])));
        assert!(decompress(Compression::Zlib, &whole.slice(..4), 100, 100).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn decompressing_gives_back_what_was_compressed(data in prop::collection::vec(0..4u8, 0..3000)) {
            let mut decompressor = Decompressor::new();
            for codec in built() {
                let mut compressor = Compressor::new(codec).expect("it is built");
                for data in [&data[..], &[], &data[..data.len() / 2]] {
                    let packed = compressor.compress(data).expect("it compresses");
                    let plain = decompressor.decompress(codec, &packed, data.len() as u32, 3000);
                    prop_assert_eq!(plain.expect("it decompresses"), data);
                }
            }
        }

        #[test]
        fn a_wrong_size_or_broken_bytes_are_an_error_or_another_value_of_that_size(
            data in prop::collection::vec(0..4u8, 1..300),
            size in 0..400u32,
            flip in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut decompressor = Decompressor::new();
            for codec in built().filter(|&codec| codec != Compression::None) {
                let packed = codec.compress(&data).expect("it compresses");
                let other = decompressor.decompress(codec, &packed, size, 400);
                prop_assert!(size == 0 || other.is_ok() == (size as usize == data.len()));
                let mut broken = packed.to_vec();
                broken[flip.index(packed.len())] ^= 1 << (size % 8);
                broken.truncate(cut.index(packed.len()) + 1);
                if let Ok(value) = decompressor.decompress(codec, &broken.into(), size, 400) {
                    prop_assert_eq!(value.len(), size as usize);
                }
            }
        }

        #[test]
        fn random_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..100), size in 0..5000u32) {
            for codec in built() {
                if let Ok(value) = decompress(codec, &data.clone().into(), size, 5000) {
                    prop_assert!(codec == Compression::None || value.len() == size as usize);
                }
            }
        }
    }
}
