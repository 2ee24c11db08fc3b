//! How bodies and answers are stored: the same text in half the bytes, because every page that a commit fills is written twice,
//! and every decision is kept for years.
//!
//! What they are full of is known: names of members, digests, ids, times, hashes in base64. Each of these is a token, a byte that no
//! JSON text contains (below 0x20) and what it needs behind it; everything else stands as it is. An answer repeats much of the body of
//! its entry and all that the entry's row says, so what is in there is named by its place ([`Known`]).
//!
//! - byte 0: [`VERBATIM`] and the text follows; [`TOKENS`] and tokens follow; anything else is the first byte of a text that was
//!   stored before there was this.
//! - [`value`]: what a string in JSON is if it is not just a string; [`words`]: the strings that have a number;
//! - [`rows`]: the bodies and the answers of a batch.
//!
//! It knows nothing of JSON but quotes, and nothing of what a text means: whatever is packed is the same bytes when it is read.

mod rows;
mod value;
mod words;

use canon::Digest;
use model::{TenantId, Timestamp};
pub(crate) use rows::PackedRows;
use value::Value;

/// The text follows as it is.
const VERBATIM: u8 = 0;
/// Tokens follow.
const TOKENS: u8 = 1;

/// A value follows; its kind is the token itself, see [`value`].
const VALUES: std::ops::RangeInclusive<u8> = 1..=6;
/// A value that came before; its place follows.
const AGAIN: u8 = 7;
/// `"word"`; its number follows.
const WORD: u8 = 8;
/// `,"word":`; its number follows.
const MEMBER: u8 = 9;
/// `{"word":`; its number follows.
const FIRST_MEMBER: u8 = 10;

/// Values that can be named by their place: those of a body in the order in which they first come, and then those of the row.
#[derive(Debug, Default)]
pub(crate) struct Known {
    values: Vec<Value>,
}

/// What packed bytes are if they are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not what was packed, from byte {at} on")]
pub(crate) struct Unreadable {
    at: usize,
}

/// The columns of an entry's row that its answer repeats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowValues {
    pub(crate) tenant: TenantId,
    pub(crate) at: Timestamp,
    pub(crate) prev: Digest,
    pub(crate) hash: Digest,
}

impl Known {
    /// Adds what stands in the row, behind what stands in the body.
    pub(crate) fn extend(&mut self, row: &RowValues) {
        self.note(Value::tenant(row.tenant));
        self.note(Value::Time(row.at.millis()));
        self.note(Value::Digest(*row.prev.as_bytes()));
        self.note(Value::Digest(*row.hash.as_bytes()));
    }

    /// The place of a value.
    fn place(&self, value: &Value) -> Option<u8> {
        let place = self.values.iter().position(|known| known == value)?;
        u8::try_from(place).ok()
    }

    /// Remembers a value that has no place yet, while a byte can hold one.
    fn note(&mut self, value: Value) {
        if value.can_come_again() && u8::try_from(self.values.len()).is_ok() {
            self.values.push(value);
        }
    }
}

/// Packs a text. What it notes in `known`, [`unpack`] notes too.
pub(crate) fn pack(text: &[u8], known: &mut Known) -> Vec<u8> {
    let mut packed = Vec::with_capacity(text.len() / 2 + 64);
    // A token would be taken for it.
    if text.iter().any(|byte| *byte < 0x20) {
        packed.push(VERBATIM);
        packed.extend_from_slice(text);
        return packed;
    }
    packed.push(TOKENS);
    let mut written = 0;
    let mut from = 0;
    while let Some((open, close)) = next_string(text, from) {
        from = close + 1;
        let inner = &text[open + 1..close];
        if let Some(value) = Value::of(inner) {
            packed.extend_from_slice(&text[written..open]);
            push_value(&mut packed, value, known);
            written = from;
        } else if let Some(number) = words::number(inner) {
            written = push_word(&mut packed, number, text, (written, open, close));
        }
    }
    packed.extend_from_slice(&text[written..]);
    packed
}

/// Where the next string opens and closes.
fn next_string(text: &[u8], from: usize) -> Option<(usize, usize)> {
    let open = from + memchr::memchr(b'"', &text[from..])?;
    let mut close = open;
    loop {
        close += 1 + memchr::memchr(b'"', &text[close + 1..])?;
        // Should the backslash have been one itself, this is another string than JSON sees. It comes out the same.
        if text[close - 1] != b'\\' {
            return Some((open, close));
        }
    }
}

fn push_value(packed: &mut Vec<u8>, value: Value, known: &mut Known) {
    if let Some(place) = known.place(&value) {
        packed.extend_from_slice(&[AGAIN, place]);
    } else {
        value.write_to(packed);
        known.note(value);
    }
}

/// Packs a word, and with it the punctuation of a member where it is the name of one. Returns up to where the text is written.
fn push_word(
    packed: &mut Vec<u8>,
    number: u8,
    text: &[u8],
    (written, open, close): (usize, usize, usize),
) -> usize {
    let before = (open > written).then(|| text[open - 1]);
    let (token, start, end) = match (before, text.get(close + 1)) {
        (Some(b','), Some(b':')) => (MEMBER, open - 1, close + 2),
        (Some(b'{'), Some(b':')) => (FIRST_MEMBER, open - 1, close + 2),
        _ => (WORD, open, close + 1),
    };
    packed.extend_from_slice(&text[written..start]);
    packed.extend_from_slice(&[token, number]);
    end
}

/// The text that was packed.
pub(crate) fn unpack(packed: &[u8], known: &mut Known) -> Result<Vec<u8>, Unreadable> {
    let tokens = match packed.split_first() {
        Some((&VERBATIM, text)) => return Ok(text.to_vec()),
        Some((&TOKENS, tokens)) => tokens,
        _ => return Ok(packed.to_vec()),
    };
    let mut text = Vec::with_capacity(tokens.len() * 3);
    let mut rest = tokens;
    while let Some(literal) = rest.iter().position(|byte| *byte < 0x20) {
        let unreadable = Unreadable {
            at: packed.len() - rest.len() + literal,
        };
        text.extend_from_slice(&rest[..literal]);
        rest = unpack_token(&rest[literal..], &mut text, known).ok_or(unreadable)?;
    }
    text.extend_from_slice(rest);
    Ok(text)
}

/// Appends what the token at the beginning stands for. Returns what follows it.
fn unpack_token<'p>(packed: &'p [u8], text: &mut Vec<u8>, known: &mut Known) -> Option<&'p [u8]> {
    let (token, rest) = packed.split_first()?;
    if VALUES.contains(token) {
        let (value, rest) = Value::read(*token, rest)?;
        value.write_text(text);
        known.note(value);
        return Some(rest);
    }
    let (&number, rest) = rest.split_first()?;
    let (before, after) = match *token {
        AGAIN => {
            known.values.get(usize::from(number))?.write_text(text);
            return Some(rest);
        }
        WORD => ("\"", "\""),
        MEMBER => (",\"", "\":"),
        FIRST_MEMBER => ("{\"", "\":"),
        _ => return None,
    };
    text.extend_from_slice(before.as_bytes());
    text.extend_from_slice(words::word(number)?.as_bytes());
    text.extend_from_slice(after.as_bytes());
    Some(rest)
}

/// A body as it was packed; and what its row's answer may name.
///
/// Nothing that is read here has been verified, and somebody may have changed it by hand. What cannot be unpacked is given as it
/// stands, so that whoever verifies says that it is not what was recorded, and where.
pub(crate) fn read_body(body: String, packed: Option<&[u8]>) -> (String, Known) {
    let mut known = Known::default();
    let Some(packed) = packed else {
        return (body, known);
    };
    let text = unpack(packed, &mut known).unwrap_or_else(|_| packed.to_vec());
    let text = String::from_utf8(text);
    let text = text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    (text, known)
}

/// An answer as it was packed, given what its entry's row names. As with [`read_body`], what cannot be unpacked is given as it stands.
pub(crate) fn read_answer(packed: Vec<u8>, mut known: Known, row: &RowValues) -> Vec<u8> {
    known.extend(row);
    unpack(&packed, &mut known).unwrap_or(packed)
}

#[cfg(test)]
mod tests;
