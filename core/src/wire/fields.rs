//! The least of protobuf: varints, keys, and a walk over the fields of a message.
//!
//! Knows wire types and no message. Groups, which no Pulsar message has, count as broken.
use bytes::BufMut;

/// The wire types in use.
pub(crate) const VARINT: u8 = 0;
const FIXED64: u8 = 1;
pub(crate) const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// A field's value, as far as its wire type tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed32 or fixed64, which nobody here reads.
    Fixed,
}

/// Takes the next field off `buf`: its number and value. `Ok(None)` at the end.
#[inline]
pub(crate) fn next<'a>(buf: &mut &'a [u8]) -> Result<Option<(u32, Value<'a>)>, &'static str> {
    if buf.is_empty() {
        return Ok(None);
    }
    let key = varint(buf)?;
    let Ok(key) = u32::try_from(key) else { return Err("a field number is out of range") };
    let number = key >> 3;
    if number == 0 {
        return Err("a field has number 0");
    }
    let value = match (key & 7) as u8 {
        VARINT => Value::Varint(varint(buf)?),
        BYTES => {
            let len = varint(buf)?;
            if len > buf.len() as u64 {
                return Err("a length points past the end");
            }
            Value::Bytes(take(buf, len as usize)?)
        }
        FIXED64 => {
            take(buf, 8)?;
            Value::Fixed
        }
        FIXED32 => {
            take(buf, 4)?;
            Value::Fixed
        }
        _ => return Err("a field has an unknown wire type"),
    };
    Ok(Some((number, value)))
}

/// Takes a varint off `buf`.
#[inline]
pub(crate) fn varint(buf: &mut &[u8]) -> Result<u64, &'static str> {
    if let Some((&first, rest)) = buf.split_first()
        && first < 0x80
    {
        *buf = rest;
        return Ok(u64::from(first));
    }
    long_varint(buf)
}

fn long_varint(buf: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for (i, &byte) in buf.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            // The tenth byte has room for the 64th bit and no more.
            if i == 9 && byte > 1 {
                return Err("a varint is too long");
            }
            *buf = &buf[i + 1..];
            return Ok(value);
        }
    }
    Err(if buf.len() < 10 { "a varint has no end" } else { "a varint is too long" })
}

#[inline]
fn take<'a>(buf: &mut &'a [u8], len: usize) -> Result<&'a [u8], &'static str> {
    let Some((head, tail)) = buf.split_at_checked(len) else { return Err("a field is cut short") };
    *buf = tail;
    Ok(head)
}

/// Bytes that `value` takes as a varint, 1 to 10.
#[inline]
pub(crate) const fn varint_len(value: u64) -> usize {
    // Seven bits a byte: ceil(bits / 7), in a form without division by 7.
    (((value | 1).ilog2() * 9 + 73) / 64) as usize
}

/// Appends `value` as a varint.
#[inline]
pub(crate) fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// The key in front of a field.
#[inline]
pub(crate) const fn key(number: u32, wire_type: u8) -> u64 {
    ((number as u64) << 3) | wire_type as u64
}

/// A place that fields are written to, or counted in. One description of a message serves both.
pub(crate) trait Sink {
    fn varint(&mut self, number: u32, value: u64);
    fn bytes(&mut self, number: u32, value: &[u8]);
    /// A nested map entry: `key` and `value` as fields 1 and 2 of a message.
    fn pair(&mut self, number: u32, key: &str, value: &str);

    fn flag(&mut self, number: u32, value: bool) {
        if value {
            self.varint(number, 1);
        }
    }
    fn opt(&mut self, number: u32, value: Option<u64>) {
        if let Some(value) = value {
            self.varint(number, value);
        }
    }
    /// An int32 or int64: negative values travel as ten bytes.
    fn opt_i32(&mut self, number: u32, value: Option<i32>) {
        self.opt(number, value.map(|v| i64::from(v) as u64));
    }
    fn opt_bytes(&mut self, number: u32, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.bytes(number, value);
        }
    }
}

/// Counts the bytes that a `Put` of the same fields would write.
#[derive(Default)]
pub(crate) struct Count(pub(crate) usize);

impl Sink for Count {
    #[inline]
    fn varint(&mut self, number: u32, value: u64) {
        self.0 += varint_len(key(number, VARINT)) + varint_len(value);
    }
    #[inline]
    fn bytes(&mut self, number: u32, value: &[u8]) {
        self.0 += field_len(number, value.len());
    }
    #[inline]
    fn pair(&mut self, number: u32, k: &str, v: &str) {
        self.0 += field_len(number, field_len(1, k.len()) + field_len(2, v.len()));
    }
}

/// Writes fields.
pub(crate) struct Put<'a, B>(pub(crate) &'a mut B);

impl<B: BufMut> Sink for Put<'_, B> {
    #[inline]
    fn varint(&mut self, number: u32, value: u64) {
        put_varint(self.0, key(number, VARINT));
        put_varint(self.0, value);
    }
    #[inline]
    fn bytes(&mut self, number: u32, value: &[u8]) {
        put_varint(self.0, key(number, BYTES));
        put_varint(self.0, value.len() as u64);
        self.0.put_slice(value);
    }
    #[inline]
    fn pair(&mut self, number: u32, k: &str, v: &str) {
        put_varint(self.0, key(number, BYTES));
        put_varint(self.0, (field_len(1, k.len()) + field_len(2, v.len())) as u64);
        self.bytes(1, k.as_bytes());
        self.bytes(2, v.as_bytes());
    }
}

/// Bytes of a length-delimited field with `len` bytes in it.
#[inline]
pub(crate) const fn field_len(number: u32, len: usize) -> usize {
    varint_len(key(number, BYTES)) + varint_len(len as u64) + len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_is_as_long_as_its_count_says() {
        for bits in 0..64 {
            for value in [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut rest = &out[..];
                assert_eq!(varint(&mut rest), Ok(value));
                assert!(rest.is_empty());
            }
        }
    }

    #[test]
    fn a_varint_without_end_or_with_too_many_bits_is_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0xff; 11]] {
            assert!(varint(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
        let mut too_much = [0xff; 10];
        too_much[9] = 2;
        assert!(varint(&mut &too_much[..]).is_err());
    }

    #[test]
    fn fixed_fields_are_stepped_over() {
        let bytes = [0x0d, 1, 2, 3, 4, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x18, 5];
        let mut rest = &bytes[..];
        assert_eq!(next(&mut rest), Ok(Some((1, Value::Fixed))));
        assert_eq!(next(&mut rest), Ok(Some((2, Value::Fixed))));
        assert_eq!(next(&mut rest), Ok(Some((3, Value::Varint(5)))));
        assert_eq!(next(&mut rest), Ok(None));
    }

    #[test]
    fn groups_and_field_zero_are_refused() {
        for bytes in [&[0x0b, 0x0c][..], &[0x00, 0x01], &[0x0a, 0x05, 0x00], &[0x0d, 0x01]] {
            assert!(next(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
