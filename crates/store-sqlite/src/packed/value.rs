//! What a string in JSON is, if it is not just a string: something of a known form that takes fewer bytes without it.
//!
//! A string is a value only if it is written exactly as [`Value::write_text`] writes it; otherwise it is left a string.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::Digest;
use model::id::BASE32_DIGITS;
use model::{TenantId, Timestamp};
use std::io::Write as _;

/// Digits of a hexadecimal number that is a value: salts have 24, trace ids 32.
const HEX: [usize; 2] = [24, 32];
/// What stands before the `_` of an id. What is stored names one by its place.
const PREFIXES: [&[u8; 3]; 8] = [b"tnt", b"agt", b"tok", b"key", b"dec", b"apr", b"bgt", b"rsv"];
/// What a byte that is no digit of [`BASE32_DIGITS`] stands for.
const NOT_A_DIGIT: u8 = u8::MAX;
/// The value of each digit of [`BASE32_DIGITS`].
const DIGITS: [u8; 256] = {
    let mut table = [NOT_A_DIGIT; 256];
    let mut value = 0;
    while value < 32 {
        table[BASE32_DIGITS[value as usize] as usize] = value;
        value += 1;
    }
    table
};

/// A value.
///
/// INVARIANT: answers that are stored name values and strings of their bodies by place. A string that becomes a value
/// moves the places of both. So there is never another kind, nor another of [`PREFIXES`] or of [`HEX`], unless
/// answers that are packed with it begin with another byte than [`TOKENS`](super::TOKENS), and what a body makes
/// known goes by that byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// `sha256:` and 64 digits.
    Digest([u8; 32]),
    /// An id, with the place of its prefix.
    Id(u8, [u8; 16]),
    /// A time, in milliseconds since 1970.
    Time(i64),
    /// A hash in base64.
    Hash([u8; 32]),
    /// A signature in base64.
    Signature([u8; 64]),
    /// So many bytes as hexadecimal digits.
    Hex(u8, [u8; 16]),
}

impl Value {
    /// The id of a tenant.
    pub(super) const fn tenant(id: TenantId) -> Self {
        Self::Id(0, *id.as_bytes())
    }

    /// The value that a string is, if it is one.
    pub(super) fn of(inner: &[u8]) -> Option<Self> {
        match inner.len() {
            71 => digest(inner).map(Self::Digest),
            30 => id(inner).map(|(prefix, bytes)| Self::Id(prefix, bytes)),
            24 if inner[10] == b'T' => time(inner).map(Self::Time),
            44 if inner[43] == b'=' => decoded(inner).map(Self::Hash),
            88 if inner[87] == b'=' => decoded(inner).map(Self::Signature),
            digits if HEX.contains(&digits) => hex(inner),
            _ => None,
        }
    }

    /// Whether it is worth remembering: hashes in paths and signatures come once.
    pub(super) const fn can_come_again(&self) -> bool {
        matches!(self, Self::Digest(_) | Self::Id(..) | Self::Time(_))
    }

    /// Its token, and what the token needs.
    pub(super) fn write_to(&self, packed: &mut Vec<u8>) {
        match self {
            Self::Digest(bytes) => {
                packed.push(1);
                packed.extend_from_slice(bytes);
            }
            Self::Id(prefix, bytes) => {
                packed.extend_from_slice(&[2, *prefix]);
                packed.extend_from_slice(bytes);
            }
            Self::Time(millis) => {
                packed.push(3);
                packed.extend_from_slice(&millis.to_be_bytes());
            }
            Self::Hash(bytes) => {
                packed.push(4);
                packed.extend_from_slice(bytes);
            }
            Self::Signature(bytes) => {
                packed.push(5);
                packed.extend_from_slice(bytes);
            }
            Self::Hex(length, bytes) => {
                packed.extend_from_slice(&[6, *length]);
                packed.extend_from_slice(&bytes[..usize::from(*length)]);
            }
        }
    }

    /// The value of a token from what follows it, and what follows the value.
    pub(super) fn read(token: u8, packed: &[u8]) -> Option<(Self, &[u8])> {
        match token {
            1 => take(packed).map(|(bytes, rest)| (Self::Digest(bytes), rest)),
            2 => {
                let (prefix, rest) = packed.split_first()?;
                let (bytes, rest) = take(rest)?;
                let is_known = usize::from(*prefix) < PREFIXES.len();
                is_known.then_some((Self::Id(*prefix, bytes), rest))
            }
            3 => take(packed).map(|(bytes, rest)| (Self::Time(i64::from_be_bytes(bytes)), rest)),
            4 => take(packed).map(|(bytes, rest)| (Self::Hash(bytes), rest)),
            5 => take(packed).map(|(bytes, rest)| (Self::Signature(bytes), rest)),
            6 => {
                let (length, rest) = packed.split_first()?;
                let (bytes, rest) = rest.split_at_checked(usize::from(*length))?;
                let mut padded = [0; 16];
                padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some((Self::Hex(*length, padded), rest))
            }
            _ => None,
        }
    }

    /// Appends the string, in its quotes.
    pub(super) fn write_text(&self, text: &mut Vec<u8>) {
        text.push(b'"');
        let written = match self {
            Self::Digest(bytes) => write!(text, "{}", Digest::from_bytes(*bytes)),
            Self::Id(prefix, bytes) => {
                text.extend_from_slice(PREFIXES[usize::from(*prefix)]);
                text.push(b'_');
                text.extend_from_slice(&base32(*bytes));
                Ok(())
            }
            Self::Time(millis) => write!(text, "{}", Timestamp::from_millis(*millis)),
            Self::Hash(bytes) => write!(text, "{}", STANDARD.encode(bytes)),
            Self::Signature(bytes) => write!(text, "{}", STANDARD.encode(bytes)),
            Self::Hex(length, bytes) => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                let bytes = &bytes[..usize::from(*length)];
                text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
                Ok(())
            }
        };
        written.expect("writing to a vector does not fail");
        text.push(b'"');
    }
}

/// So many bytes, and the rest.
fn take<const LEN: usize>(packed: &[u8]) -> Option<([u8; LEN], &[u8])> {
    let (bytes, rest) = packed.split_first_chunk()?;
    Some((*bytes, rest))
}

fn digest(inner: &[u8]) -> Option<[u8; 32]> {
    Digest::read(inner).map(|digest| *digest.as_bytes())
}

fn id(inner: &[u8]) -> Option<(u8, [u8; 16])> {
    let (prefix, suffix) = inner.split_at_checked(4)?;
    let prefix = prefix.strip_suffix(b"_")?;
    let place = PREFIXES.iter().position(|known| known[..] == *prefix)?;
    // The first digit carries only three bits: anything above `7` would overflow 128.
    if suffix.first()? > &b'7' {
        return None;
    }
    let (mut number, mut seen) = (0_u128, 0);
    for digit in suffix {
        let digit = DIGITS[usize::from(*digit)];
        seen |= digit;
        number = number << 5 | u128::from(digit & 31);
    }
    let is_number = seen != NOT_A_DIGIT;
    is_number.then_some((u8::try_from(place).ok()?, number.to_be_bytes()))
}

fn base32(bytes: [u8; 16]) -> [u8; 26] {
    let mut number = u128::from_be_bytes(bytes);
    let mut digits = [0; 26];
    for place in digits.iter_mut().rev() {
        *place = BASE32_DIGITS[(number & 31) as usize];
        number >>= 5;
    }
    digits
}

/// A time in the one layout that is written. Days and leap years are left to whoever writes it: a date that does not exist is
/// written differently, and so is no value.
fn time(inner: &[u8]) -> Option<i64> {
    let mut fields = [0_i64; 7];
    for (field, places) in fields
        .iter_mut()
        .zip([0..4, 5..7, 8..10, 11..13, 14..16, 17..19, 20..23])
    {
        for digit in inner.get(places)? {
            *field = *field * 10 + i64::from(digit.wrapping_sub(b'0'));
        }
    }
    let [year, month, day, hours, minutes, seconds, millis] = fields;
    // Days since 1970 in the proleptic Gregorian calendar, from years that begin in March.
    let (years, months) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, in_era) = (years.div_euclid(400), years.rem_euclid(400));
    let days =
        era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + (153 * months + 2) / 5 + day - 719_469;
    let millis = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000 + millis;
    let mut written = [0; 24];
    write!(&mut written[..], "{}", Timestamp::from_millis(millis)).ok()?;
    (written == *inner).then_some(millis)
}

/// So many bytes in base64, in the one spelling that there is.
fn decoded<const LEN: usize>(inner: &[u8]) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    let written = STANDARD.decode_slice(inner, &mut bytes).ok()?;
    (written == LEN).then_some(bytes)
}

fn hex(inner: &[u8]) -> Option<Value> {
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(inner.chunks_exact(2)) {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(Value::Hex(u8::try_from(inner.len() / 2).ok()?, bytes))
}
