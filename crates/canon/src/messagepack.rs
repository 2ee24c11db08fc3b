//! MessagePack to canonical text. A text that is JSON and a message that says the same have the same canonical bytes, so nobody
//! behind this has to know which of them was sent.
//!
//! What JSON has no word for is refused, and so is whatever JSON is refused for: keys that are no strings or stand twice, numbers
//! that are not finite, binary and extension types, bytes behind the value. The format is that of
//! <https://github.com/msgpack/msgpack/blob/master/spec.md>.

use crate::error::Fault;
use crate::scan::{DEPTH_CEILING, Integers, canonicalize, canonicalize_sent};
use crate::text::write_string;
use crate::{Canonical, Error, ErrorKind, Limits, number};

/// Longest text of an integer of 64 bits.
const INTEGER_LEN_MAX: usize = 20;

/// The canonical form of a MessagePack value.
///
/// # Errors
/// It is not MessagePack, JSON has no word for something in it, its text would be refused, or it exceeds a limit. The limit of
/// bytes is that of the message and of its text. A fault of the text has no offset: its sender never saw it.
pub fn canonicalize_messagepack(message: &[u8], limits: Limits) -> Result<Canonical, Error> {
    canonicalize(text(message, limits)?.as_bytes(), limits).map_err(of_text)
}

/// [`canonicalize_messagepack`] for what is sent, as [`canonicalize_sent`] has it.
///
/// # Errors
/// Those of [`canonicalize_messagepack`], and those by which [`canonicalize_sent`] refuses more.
pub fn canonicalize_sent_messagepack(
    message: &[u8],
    limits: Limits,
    integers: Integers,
) -> Result<Canonical, Error> {
    canonicalize_sent(text(message, limits)?.as_bytes(), limits, integers).map_err(of_text)
}

/// What a message says, as JSON that is not canonical.
fn text(message: &[u8], limits: Limits) -> Result<String, Error> {
    let bytes_max = limits.bytes_max;
    if message.len() > bytes_max {
        return Err(Fault::new(ErrorKind::TooLarge { bytes_max }, bytes_max).into());
    }
    let mut reader = Reader {
        message,
        at: 0,
        json: String::with_capacity(message.len() * 2),
        depth_max: limits.depth_max.min(DEPTH_CEILING),
    };
    reader.value(0)?;
    if reader.at < message.len() {
        return Err(reader.fault(ErrorKind::TrailingCharacters).into());
    }
    Ok(reader.json)
}

/// What is wrong with a message whose text is refused for this.
fn of_text(error: Error) -> Error {
    let kind = match error.kind {
        ErrorKind::TooLarge { bytes_max } => ErrorKind::SaysTooMuch { bytes_max },
        kind => kind,
    };
    Error {
        kind,
        offset: None,
        pointer: error.pointer,
    }
}

type Step<T> = Result<T, Fault>;

/// Reads a message, and writes what it says as JSON.
struct Reader<'m> {
    message: &'m [u8],
    at: usize,
    json: String,
    depth_max: usize,
}

impl Reader<'_> {
    /// A value, within so many arrays and objects. It recurses no deeper than the limit of depth.
    fn value(&mut self, depth: usize) -> Step<()> {
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
            kind @ (0xa0..=0xbf | 0xd9..=0xdb) => {
                self.string(kind)?;
            }
            0xc4..=0xc9 | 0xd4..=0xd8 => {
                return Err(Fault::new(ErrorKind::NoJson("bytes and extensions"), begin));
            }
            0xc1 => return Err(Fault::new(ErrorKind::NoJson("the byte 0xc1"), begin)),
        }
        Ok(())
    }

    fn elements(&mut self, kind: u8, depth: usize) -> Step<()> {
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
            self.value(depth + 1)
                .map_err(|fault| fault.inside(place.to_string()))?;
        }
        self.json.push(']');
        Ok(())
    }

    fn members(&mut self, kind: u8, depth: usize) -> Step<()> {
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
            let key = match self.byte()? {
                kind @ (0xa0..=0xbf | 0xd9..=0xdb) => self.string(kind)?,
                _ => return Err(Fault::new(ErrorKind::NoJson("a key that is no string"), begin)),
            };
            self.json.push(':');
            self.value(depth + 1)
                .map_err(|fault| fault.inside(key.to_owned()))?;
        }
        self.json.push('}');
        Ok(())
    }

    /// Whether there may be an array or an object here.
    fn enter(&self, depth: usize) -> Step<()> {
        let depth_max = self.depth_max;
        if depth < depth_max {
            return Ok(());
        }
        Err(Fault::new(ErrorKind::TooDeep { depth_max }, self.at - 1))
    }

    fn integer(&mut self, number: impl std::fmt::Display) {
        use std::fmt::Write as _;
        self.json.reserve(INTEGER_LEN_MAX);
        write!(self.json, "{number}").expect("writing to a string does not fail");
    }

    fn double(&mut self, number: f64, begin: usize) -> Step<()> {
        if !number.is_finite() {
            return Err(Fault::new(ErrorKind::NumberOutOfRange, begin));
        }
        let mut digits = Vec::with_capacity(INTEGER_LEN_MAX);
        number::write_double(&mut digits, number);
        self.json
            .push_str(std::str::from_utf8(&digits).expect("digits are ASCII"));
        Ok(())
    }

    /// An unsigned number of 2^`log` bytes.
    fn unsigned(&mut self, log: u8) -> Step<u64> {
        Ok(match log {
            0 => u64::from(self.byte()?),
            1 => u64::from(u16::from_be_bytes(self.array()?)),
            2 => u64::from(u32::from_be_bytes(self.array()?)),
            _ => u64::from_be_bytes(self.array()?),
        })
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("so many were taken"))
    }
}

impl<'m> Reader<'m> {
    /// A string, which is written and handed on.
    fn string(&mut self, kind: u8) -> Step<&'m str> {
        let len = match kind {
            0xa0..=0xbf => u64::from(kind & 0x1f),
            _ => self.unsigned(kind - 0xd9)?,
        };
        let begin = self.at;
        let len = usize::try_from(len).map_err(|_| self.fault(ErrorKind::UnexpectedEnd))?;
        let text = std::str::from_utf8(self.take(len)?)
            .map_err(|found| Fault::new(ErrorKind::InvalidUtf8, begin + found.valid_up_to()))?;
        write_string(&mut self.json, text);
        Ok(text)
    }

    fn take(&mut self, len: usize) -> Step<&'m [u8]> {
        let rest = &self.message[self.at..];
        let taken = rest
            .get(..len)
            .ok_or_else(|| Fault::new(ErrorKind::UnexpectedEnd, self.message.len()))?;
        self.at += len;
        Ok(taken)
    }

    fn fault(&self, kind: ErrorKind) -> Fault {
        Fault::new(kind, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::{canonicalize_messagepack, canonicalize_sent_messagepack};
    use crate::{ErrorKind, Integers, Limits, canonicalize};

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
    fn a_refusal_names_the_place_and_no_byte_that_was_not_sent() {
        let within = |value: &[u8]| [&b"\x81\xa1t\x81\xa3p/~\x92\x00"[..], value].concat();
        for (value, expected) in [
            (
                &b"\xca\x7f\xc0\x00\x00"[..],
                "number out of range of a double at `/t/p~1~0/1` (byte 10)",
            ),
            (
                b"\xc4\x01a",
                "JSON has no word for bytes and extensions at `/t/p~1~0/1` (byte 10)",
            ),
            (b"\xa2a\xff", "invalid UTF-8 at `/t/p~1~0/1` (byte 12)"),
            (
                b"\x81\x01\x01",
                "JSON has no word for a key that is no string at `/t/p~1~0/1` (byte 11)",
            ),
            (b"\xa2a", "unexpected end at `/t/p~1~0/1` (byte 12)"),
            (
                b"\x00\x00",
                "trailing characters after the value at the top level (byte 11)",
            ),
            (b"\x82\xa1a\x01\xa1a\x01", "duplicate key `a` at `/t/p~1~0/1`"),
            (
                b"\xcf\x00\x20\x00\x00\x00\x00\x00\x01",
                "integer that canonical JSON writes with other digits; send it as text at `/t/p~1~0/1`",
            ),
            (
                b"\x81\xb6$serde_json::private::\x01",
                "key `$serde_json::private::` that some programs read as something else; give it another name at \
                 `/t/p~1~0/1`",
            ),
        ] {
            let message = within(value);
            let error = canonicalize_sent_messagepack(&message, LIMITS, Integers::Exact).unwrap_err();
            assert_eq!(error.to_string(), expected, "{message:x?}");
        }
        let deep = within(&[0x91; 100]);
        let error = canonicalize_messagepack(&deep, LIMITS).unwrap_err().to_string();
        let place = "/0".repeat(61);
        let expected = format!("nesting deeper than 64 at `/t/p~1~0/1{place}` (byte 71)");
        assert_eq!(error, expected);
        let small = Limits {
            bytes_max: 10,
            ..LIMITS
        };
        let error = canonicalize_messagepack(b"\xa4\x01\x01\x01\x01", small).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a message that says more than 10 bytes of JSON at the top level"
        );
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
            ErrorKind::SaysTooMuch { bytes_max: 10 }
        );
    }
}
