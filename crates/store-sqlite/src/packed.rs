//! How bodies and answers are stored: the same text in half the bytes, because every page that a commit fills is written twice,
//! and every decision is kept for years.
//!
//! What they are full of is known: names of members, digests, ids, times, hashes in base64. Each of these is a token, a
//! byte that no JSON text contains (below 0x20) and what it needs behind it; everything else stands as it is. An answer
//! repeats much of the body of its entry and all that the entry's row says, so what is in there is named by its place
//! ([`Known`]).
//!
//! - byte 0: [`VERBATIM`] and the text follows; [`TOKENS`] and tokens follow; anything else is the first byte of a text that was
//!   stored before there was this.
//! - [`value`]: what a string in JSON is if it is not just a string; [`words`]: the strings that have a number;
//! - [`places`]: what is named by its place, and how that is found;
//! - [`rows`]: the bodies and the answers of a batch, and how they are read again.
//!
//! It knows nothing of JSON but quotes, and nothing of what a text means: whatever is packed is the same bytes when it is read.

mod places;
mod rows;
mod value;
mod words;

use canon::Digest;
use model::{TenantId, Timestamp};
use places::Places;
pub(crate) use rows::{PackedRows, answer, body};
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
/// A string of the body, in an answer; its place follows.
const STRING: u8 = 11;

/// Bytes of the shortest string that is named by its place.
const STRING_BYTES_MIN: usize = 3;

/// What can be named by its place.
#[derive(Debug, Default)]
struct Known<'t> {
    /// Values in the order in which they first came: those of the body, those of the row, and those of the answer so far.
    values: Places<Value>,
    /// The other strings of the body, in their order: those that are no words, and those that were not always.
    strings: Places<&'t [u8]>,
    /// Whether strings are noted, which is while the body is packed; behind it they are named.
    notes_strings: bool,
}

/// What packed bytes are if they are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not what was packed, from byte {at} on")]
struct Unreadable {
    at: usize,
}

/// What an entry's row says that its answer repeats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowValues {
    pub(crate) tenant: TenantId,
    pub(crate) at: Timestamp,
    pub(crate) prev: Digest,
    pub(crate) hash: Digest,
}

impl<'t> Known<'t> {
    /// Nothing; what is packed with it is noted.
    fn of_nothing() -> Self {
        Self {
            notes_strings: true,
            ..Self::default()
        }
    }

    /// What a body makes known: the same as when it is packed.
    fn of_body(text: &'t str) -> Self {
        let (text, mut known) = (text.as_bytes(), Self::of_nothing());
        if is_verbatim(text) {
            return known;
        }
        let mut from = 0;
        while let Some((open, close)) = next_string(text, from) {
            from = close + 1;
            let inner = &text[open + 1..close];
            match Value::of(inner) {
                Some(value) => known.note(value),
                None if words::number(inner).is_none_or(words::has_place) => drop(known.string(inner)),
                None => {}
            }
        }
        known
    }

    /// Adds what the row makes known. What is packed with it from here on is the answer.
    fn extend(&mut self, row: &RowValues, body: &Digest) {
        self.notes_strings = false;
        self.note(Value::tenant(row.tenant));
        self.note(Value::Time(row.at.millis()));
        for digest in [&row.prev, &row.hash, body] {
            self.note(Value::Digest(*digest.as_bytes()));
        }
    }

    /// The place of a value.
    fn place(&mut self, value: &Value) -> Option<u8> {
        if value.can_come_again() {
            self.values.place(value)
        } else {
            None
        }
    }

    /// The place of a string, if it is to be named by it. While strings are noted none is, and once no byte can hold
    /// another place none is looked for.
    fn string(&mut self, inner: &'t [u8]) -> Option<u8> {
        if inner.len() < STRING_BYTES_MIN {
            return None;
        }
        if self.notes_strings {
            self.strings.note(inner);
            return None;
        }
        self.strings.place(&inner)
    }

    /// Remembers a value, unless it has a place or no byte can hold one.
    fn note(&mut self, value: Value) {
        if value.can_come_again() {
            self.values.note(value);
        }
    }

    /// Remembers a value that has no place, unless no byte can hold one.
    fn note_new(&mut self, value: Value) {
        if value.can_come_again() {
            self.values.note_new(value);
        }
    }
}

/// Whether a byte of a text would be taken for a token. To look at all of them, many at once, is faster than to stop at
/// the first: there hardly ever is one.
fn is_verbatim(text: &[u8]) -> bool {
    text.iter().copied().fold(u8::MAX, u8::min) < 0x20
}

/// Packs a text. What it notes in `known`, [`unpack`] notes too.
fn pack<'t>(text: &'t [u8], known: &mut Known<'t>) -> Vec<u8> {
    let mut packed = Vec::with_capacity(text.len() / 2 + 64);
    if is_verbatim(text) {
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
            push_text(&mut packed, &text[written..open]);
            push_value(&mut packed, value, known);
            written = from;
        } else if let Some(number) = words::number(inner) {
            if words::has_place(number) && known.notes_strings {
                known.string(inner);
            }
            written = push_word(&mut packed, number, text, (written, open, close));
        } else if let Some(place) = known.string(inner) {
            push_text(&mut packed, &text[written..open]);
            packed.extend_from_slice(&[STRING, place]);
            written = from;
        }
    }
    packed.extend_from_slice(&text[written..]);
    packed
}

/// Where the next string opens and closes.
fn next_string(text: &[u8], from: usize) -> Option<(usize, usize)> {
    let open = next_quote(text, from)?;
    let mut close = open;
    loop {
        close = next_quote(text, close + 1)?;
        // Should the backslash have been one itself, this is another string than JSON sees. It comes out the same.
        if text[close - 1] != b'\\' {
            return Some((open, close));
        }
    }
}

/// Where the next quote stands. It is mostly a few bytes away, so eight at once are fewer instructions than what looks at more.
fn next_quote(text: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let text = text.get(from..)?;
    let (eights, rest) = text.as_chunks();
    for (eight, bytes) in eights.iter().enumerate() {
        // A quote becomes zero, and a byte that is zero borrows from its highest bit. So may those behind it, and no one before.
        let zeroed = u64::from_le_bytes(*bytes) ^ (ONES * u64::from(b'"'));
        let quotes = zeroed.wrapping_sub(ONES) & !zeroed & (ONES << 7);
        if quotes != 0 {
            return Some(from + eight * 8 + quotes.trailing_zeros() as usize / 8);
        }
    }
    let place = rest.iter().position(|byte| *byte == b'"')?;
    Some(from + eights.len() * 8 + place)
}

/// Packs what stands between strings: mostly nothing, since words take their punctuation with them.
fn push_text(packed: &mut Vec<u8>, text: &[u8]) {
    if !text.is_empty() {
        packed.extend_from_slice(text);
    }
}

fn push_value(packed: &mut Vec<u8>, value: Value, known: &mut Known<'_>) {
    if let Some(place) = known.place(&value) {
        packed.extend_from_slice(&[AGAIN, place]);
    } else {
        value.write_to(packed);
        known.note_new(value);
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
    push_text(packed, &text[written..start]);
    packed.extend_from_slice(&[token, number]);
    end
}

/// The text that was packed.
fn unpack(packed: &[u8], known: &mut Known<'_>) -> Result<Vec<u8>, Unreadable> {
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
fn unpack_token<'p>(packed: &'p [u8], text: &mut Vec<u8>, known: &mut Known<'_>) -> Option<&'p [u8]> {
    let (token, rest) = packed.split_first()?;
    if VALUES.contains(token) {
        let (value, rest) = Value::read(*token, rest)?;
        value.write_text(text);
        known.note(value);
        return Some(rest);
    }
    let (&number, rest) = rest.split_first()?;
    let word = || words::word(number).map(str::as_bytes);
    let (before, inner, after) = match *token {
        AGAIN => {
            known.values.listed().get(usize::from(number))?.write_text(text);
            return Some(rest);
        }
        WORD => ("\"", word()?, "\""),
        MEMBER => (",\"", word()?, "\":"),
        FIRST_MEMBER => ("{\"", word()?, "\":"),
        STRING => ("\"", *known.strings.listed().get(usize::from(number))?, "\""),
        _ => return None,
    };
    text.extend_from_slice(before.as_bytes());
    text.extend_from_slice(inner);
    text.extend_from_slice(after.as_bytes());
    Some(rest)
}

#[cfg(test)]
mod tests;
