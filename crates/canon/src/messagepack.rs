//! MessagePack to canonical text. A text that is JSON and a message that says the same have the same canonical bytes, so nobody
//! behind this has to know which of them was sent.
//!
//! What JSON has no word for is refused, and so is whatever JSON is refused for: keys that are no strings or stand twice, numbers
//! that are not finite, binary and extension types, bytes behind the value. The format is that of
//! <https://github.com/msgpack/msgpack/blob/master/spec.md>.

use crate::scan::{DEPTH_CEILING, Integers, canonicalize_with};
use crate::text::write_string;
use crate::{Canonical, Error, ErrorKind, Limits, number};

/// Longest text of an integer of 64 bits.
const INTEGER_LEN_MAX: usize = 20;

/// The canonical form of a MessagePack value.
///
/// # Errors
/// It is not MessagePack, JSON has no word for something in it, its text would be refused, or it exceeds a limit. The limit of
/// bytes is that of the message and of its text. A fault of the text has its offset in the text.
pub fn canonicalize_messagepack(message: &[u8], limits: Limits) -> Result<Canonical, Error> {
    canonicalize_messagepack_with(message, limits, Integers::Rounded)
}

/// The same where it is said what becomes of integers.
///
/// # Errors
/// Those of [`canonicalize_messagepack`]; and an integer would be written as another one, where that is refused.
pub fn canonicalize_messagepack_with(
    message: &[u8],
    limits: Limits,
    integers: Integers,
) -> Result<Canonical, Error> {
    let bytes_max = limits.bytes_max;
    if message.len() > bytes_max {
        return Err(error(ErrorKind::TooLarge { bytes_max }, bytes_max));
    }
    let mut reader = Reader {
        message,
        at: 0,
        json: String::with_capacity(message.len() * 2),
        depth_max: limits.depth_max.min(DEPTH_CEILING),
    };
    reader.value(0)?;
    if reader.at < message.len() {
        return Err(reader.error(ErrorKind::TrailingCharacters));
    }
    canonicalize_with(reader.json.as_bytes(), limits, integers)
}

const fn error(kind: ErrorKind, offset: usize) -> Error {
    Error {
        kind,
        offset,
        pointer: String::new(),
    }
}

/// Reads a message, and writes what it says as JSON.
struct Reader<'m> {
    message: &'m [u8],
    at: usize,
    json: String,
    depth_max: usize,
}

impl Reader<'_> {
    /// A value, within so many arrays and objects. It recurses no deeper than the limit of depth.
    fn value(&mut self, depth: usize) -> Result<(), Error> {
        let begin = self.at;
        match self.byte()? {
            small @ 0x00..=0x7f => self.integer(small),
            0xc0 => self.json.push_str("null"),
            0xc2 => self.json.push_str("false"),
            0xc3 => self.json.push_str("true"),
            0xca => {
                let single = f32::from_be_bytes(self.array()?);
                self.double(f64::from(single), begin)?;
            }
            0xcb => {
                let double = f64::from_be_bytes(self.array()?);
                self.double(double, begin)?;
            }
            kind @ 0xcc..=0xcf => {
                let number = self.unsigned(kind - 0xcc)?;
                self.integer(number);
            }
            0xd0 => {
                let number = i8::from_be_bytes(self.array()?);
                self.integer(number);
            }
            0xd1 => {
                let number = i16::from_be_bytes(self.array()?);
                self.integer(number);
            }
            0xd2 => {
                let number = i32::from_be_bytes(self.array()?);
                self.integer(number);
            }
            0xd3 => {
                let number = i64::from_be_bytes(self.array()?);
                self.integer(number);
            }
            negative @ 0xe0..=0xff => self.integer(i8::from_be_bytes([negative])),
            kind @ (0x90..=0x9f | 0xdc | 0xdd) => self.elements(kind, depth)?,
            kind @ (0x80..=0x8f | 0xde | 0xdf) => self.members(kind, depth)?,
            kind @ (0xa0..=0xbf | 0xd9..=0xdb) => self.string(kind)?,
            0xc4..=0xc9 | 0xd4..=0xd8 => return Err(error(ErrorKind::NoJson("bytes and extensions"), begin)),
            0xc1 => return Err(error(ErrorKind::NoJson("the byte 0xc1"), begin)),
        }
        Ok(())
    }

    fn elements(&mut self, kind: u8, depth: usize) -> Result<(), Error> {
        let count = match kind {
            0x90..=0x9f => u64::from(kind & 0x0f),
            _ => self.unsigned(kind - 0xdc + 1)?,
        };
        self.enter(depth)?;
        self.json.push('[');
        for place in 0..count {
            if place > 0 {
                self.json.push(',');
            }
            self.value(depth + 1)?;
        }
        self.json.push(']');
        Ok(())
    }

    fn members(&mut self, kind: u8, depth: usize) -> Result<(), Error> {
        let count = match kind {
            0x80..=0x8f => u64::from(kind & 0x0f),
            _ => self.unsigned(kind - 0xde + 1)?,
        };
        self.enter(depth)?;
        self.json.push('{');
        for place in 0..count {
            if place > 0 {
                self.json.push(',');
            }
            let begin = self.at;
            match self.byte()? {
                kind @ (0xa0..=0xbf | 0xd9..=0xdb) => self.string(kind)?,
                _ => return Err(error(ErrorKind::NoJson("a key that is no string"), begin)),
            }
            self.json.push(':');
            self.value(depth + 1)?;
        }
        self.json.push('}');
        Ok(())
    }

    /// Whether there may be an array or an object here.
    fn enter(&self, depth: usize) -> Result<(), Error> {
        let depth_max = self.depth_max;
        if depth < depth_max {
            return Ok(());
        }
        Err(error(ErrorKind::TooDeep { depth_max }, self.at - 1))
    }

    fn string(&mut self, kind: u8) -> Result<(), Error> {
        let len = match kind {
            0xa0..=0xbf => u64::from(kind & 0x1f),
            _ => self.unsigned(kind - 0xd9)?,
        };
        let begin = self.at;
        let len = usize::try_from(len).map_err(|_| self.error(ErrorKind::UnexpectedEnd))?;
        let bytes = self.take(len)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                write_string(&mut self.json, text);
                Ok(())
            }
            Err(found) => Err(error(ErrorKind::InvalidUtf8, begin + found.valid_up_to())),
        }
    }

    fn integer(&mut self, number: impl std::fmt::Display) {
        use std::fmt::Write as _;
        self.json.reserve(INTEGER_LEN_MAX);
        write!(self.json, "{number}").expect("writing to a string does not fail");
    }

    fn double(&mut self, number: f64, begin: usize) -> Result<(), Error> {
        if !number.is_finite() {
            return Err(error(ErrorKind::NumberOutOfRange, begin));
        }
        let mut digits = Vec::with_capacity(INTEGER_LEN_MAX);
        number::write_double(&mut digits, number);
        self.json
            .push_str(std::str::from_utf8(&digits).expect("digits are ASCII"));
        Ok(())
    }

    /// An unsigned number of 2^`log` bytes.
    fn unsigned(&mut self, log: u8) -> Result<u64, Error> {
        Ok(match log {
            0 => u64::from(self.byte()?),
            1 => u64::from(u16::from_be_bytes(self.array()?)),
            2 => u64::from(u32::from_be_bytes(self.array()?)),
            _ => u64::from_be_bytes(self.array()?),
        })
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("so many were taken"))
    }
}

impl<'m> Reader<'m> {
    fn take(&mut self, len: usize) -> Result<&'m [u8], Error> {
        let rest = &self.message[self.at..];
        let taken = rest
            .get(..len)
            .ok_or_else(|| error(ErrorKind::UnexpectedEnd, self.message.len()))?;
        self.at += len;
        Ok(taken)
    }

    const fn error(&self, kind: ErrorKind) -> Error {
        error(kind, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::canonicalize_messagepack;
    use crate::{ErrorKind, Limits, canonicalize};

    const LIMITS: Limits = Limits {
        bytes_max: 1 << 20,
        depth_max: 64,
    };

    fn text(message: &[u8]) -> String {
        canonicalize_messagepack(message, LIMITS)
            .unwrap()
            .as_str()
            .to_owned()
    }

    fn refusal(message: &[u8]) -> ErrorKind {
        canonicalize_messagepack(message, LIMITS).unwrap_err().kind
    }

    #[test]
    fn every_type_that_json_knows_is_read() {
        for (message, expected) in [
            (&b"\x00"[..], "0"),
            (b"\x7f", "127"),
            (b"\xe0", "-32"),
            (b"\xff", "-1"),
            (b"\xc0", "null"),
            (b"\xc2", "false"),
            (b"\xc3", "true"),
            (b"\xcc\xff", "255"),
            (b"\xcd\x01\x00", "256"),
            (b"\xce\xff\xff\xff\xff", "4294967295"),
            (b"\xcf\x00\x1f\xff\xff\xff\xff\xff\xff", "9007199254740991"),
            (b"\xd0\x80", "-128"),
            (b"\xd1\x80\x00", "-32768"),
            (b"\xd2\x80\x00\x00\x00", "-2147483648"),
            (b"\xd3\xff\xe0\x00\x00\x00\x00\x00\x01", "-9007199254740991"),
            (b"\xca\x3f\xc0\x00\x00", "1.5"),
            (b"\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a", "0.1"),
            (b"\xcb\x80\x00\x00\x00\x00\x00\x00\x00", "0"),
            (b"\xcb\x54\xb2\x49\xad\x25\x94\xc3\x7d", "1e+100"),
            (b"\xa0", "\"\""),
            (b"\xa3a\"\x01", "\"a\\\"\\u0001\""),
            (b"\xd9\x02\xc3\xa9", "\"é\""),
            (b"\xda\x00\x01x", "\"x\""),
            (b"\xdb\x00\x00\x00\x01x", "\"x\""),
            (b"\x90", "[]"),
            (b"\x93\x01\x90\xc0", "[1,[],null]"),
            (b"\xdc\x00\x01\x01", "[1]"),
            (b"\xdd\x00\x00\x00\x01\x01", "[1]"),
            (b"\x80", "{}"),
            (b"\x82\xa1b\x01\xa1a\x02", "{\"a\":2,\"b\":1}"),
            (b"\xde\x00\x01\xa1a\xc0", "{\"a\":null}"),
            (b"\xdf\x00\x00\x00\x01\xa1a\xc0", "{\"a\":null}"),
        ] {
            assert_eq!(text(message), expected, "{message:x?}");
        }
    }

    #[test]
    fn what_json_is_refused_for_is_refused() {
        let key_twice = ErrorKind::DuplicateKey("a".to_owned());
        for (message, expected) in [
            (&b""[..], ErrorKind::UnexpectedEnd),
            (b"\xa5abc", ErrorKind::UnexpectedEnd),
            (b"\xdd\xff\xff\xff\xff\x01", ErrorKind::UnexpectedEnd),
            (b"\xdf\xff\xff\xff\xff", ErrorKind::UnexpectedEnd),
            (b"\xdb\xff\xff\xff\xffa", ErrorKind::UnexpectedEnd),
            (b"\x01\x01", ErrorKind::TrailingCharacters),
            (b"\x82\xa1a\x01\xa1a\x01", key_twice.clone()),
            (b"\x82\xa1a\x01\xd9\x01a\x02", key_twice),
            (b"\x81\x01\x01", ErrorKind::NoJson("a key that is no string")),
            (b"\x81\xc0\x01", ErrorKind::NoJson("a key that is no string")),
            (b"\xca\x7f\xc0\x00\x00", ErrorKind::NumberOutOfRange),
            (
                b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
                ErrorKind::NumberOutOfRange,
            ),
            (
                b"\xcb\xff\xf0\x00\x00\x00\x00\x00\x00",
                ErrorKind::NumberOutOfRange,
            ),
            (b"\xa1\xff", ErrorKind::InvalidUtf8),
            (b"\xa3\xed\xa0\x80", ErrorKind::InvalidUtf8),
            (b"\xc4\x01a", ErrorKind::NoJson("bytes and extensions")),
            (
                b"\xd6\xff\x00\x00\x00\x00",
                ErrorKind::NoJson("bytes and extensions"),
            ),
            (b"\xc1", ErrorKind::NoJson("the byte 0xc1")),
        ] {
            assert_eq!(refusal(message), expected, "{message:x?}");
        }
    }

    #[test]
    fn the_bounds_are_those_of_json() {
        let nested = |depth: usize| {
            (
                [vec![0x91; depth], vec![0xc0]].concat(),
                "[".repeat(depth) + "null" + &"]".repeat(depth),
            )
        };
        for depth in [0, 1, 63, 64, 65, 200, 10_000] {
            let (message, json) = nested(depth);
            let expected = canonicalize(json.as_bytes(), LIMITS).map_err(|error| error.kind);
            let found = canonicalize_messagepack(&message, LIMITS).map_err(|error| error.kind);
            assert_eq!(found, expected, "{depth}");
        }
        let small = Limits {
            bytes_max: 10,
            ..LIMITS
        };
        assert_eq!(
            canonicalize_messagepack(&[0xc0; 11], small).unwrap_err().kind,
            ErrorKind::TooLarge { bytes_max: 10 }
        );
        // Five bytes whose text has twenty-six.
        let controls = b"\xa4\x01\x01\x01\x01";
        assert_eq!(
            canonicalize_messagepack(controls, small).unwrap_err().kind,
            ErrorKind::TooLarge { bytes_max: 10 }
        );
    }
}
