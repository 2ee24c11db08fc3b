//! Order of keys: by the UTF-16 code units of the unescaped key (RFC 8785 section 3.2.3). Keys are compared by
//! a short prefix and else in the escaped form in which they stand in the output, without being copied.

use std::cmp::Ordering;

/// Compares two keys written by [`crate::write_string`], without their quotes.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    weights(a).cmp(weights(b))
}

/// The first eight weights of a key as a number. Where these differ they order two keys as `compare` does: the
/// padding of a short key is no larger than any weight.
pub(crate) fn prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    for (place, weight) in first.iter_mut().zip(weights(key)) {
        *place = weight;
    }
    u64::from_be_bytes(first)
}

/// The prefix of a key without escapes, which is the first `len` bytes of `text`. A key is mostly followed by more
/// text, so eight bytes can be read at once and those behind a short key cleared.
pub(crate) fn prefix_in_text(text: &[u8], len: usize) -> u64 {
    const BEYOND_ASCII: u64 = u64::from_ne_bytes([0x80; 8]);
    let Some(first) = text.first_chunk() else {
        return prefix(&text[..len]);
    };
    let behind = match len {
        0 => u64::MAX,
        1..8 => u64::MAX >> (8 * len),
        _ => 0,
    };
    let first = u64::from_be_bytes(*first) & !behind;
    if first & BEYOND_ASCII == 0 {
        first
    } else {
        prefix(&text[..len])
    }
}

/// One weight per UTF-8 byte of the unescaped key, such that comparing weights compares UTF-16 code units.
///
/// UTF-8 sorts by code point. UTF-16 differs in one place: a character beyond U+FFFF begins with a surrogate
/// (D800–DFFF) and so comes before U+E000–U+FFFF. Those begin with the bytes EE and EF; lifting the two above F4, the
/// highest first byte there is, puts them last. Two keys first differ either in first bytes or in bytes that follow
/// equal ones, so nothing else has to change.
fn weights(key: &[u8]) -> impl Iterator<Item = u8> {
    let mut bytes = key.iter().copied();
    std::iter::from_fn(move || {
        let byte = match bytes.next()? {
            b'\\' => unescape(&mut bytes),
            byte => byte,
        };
        Some(if matches!(byte, 0xEE | 0xEF) {
            byte + 0x10
        } else {
            byte
        })
    })
}

/// The character of a canonical escape, whose backslash has been read. All of them are ASCII.
fn unescape(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    match bytes.next() {
        Some(b'b') => 0x08,
        Some(b't') => b'\t',
        Some(b'n') => b'\n',
        Some(b'f') => 0x0C,
        Some(b'r') => b'\r',
        Some(b'u') => bytes
            .by_ref()
            .take(4)
            .fold(0, |value, digit| value << 4 | nibble(digit)),
        Some(quoted) => quoted,
        None => b'\\',
    }
}

fn nibble(digit: u8) -> u8 {
    if digit.is_ascii_digit() {
        digit - b'0'
    } else {
        digit - b'a' + 10
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{compare, prefix, prefix_in_text};
    use crate::write_string;

    fn escaped(key: &str) -> Vec<u8> {
        let mut text = String::new();
        write_string(&mut text, key);
        text.as_bytes()[1..text.len() - 1].to_vec()
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_utf16_code_units(
            a in "[\u{0}-\u{20}\"\\\\a-cé\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}]{0,4}",
            b in "[\u{0}-\u{20}\"\\\\a-cé\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}]{0,4}",
        ) {
            let expected = a.encode_utf16().cmp(b.encode_utf16());
            let (a, b) = (escaped(&a), escaped(&b));
            prop_assert_eq!(compare(&a, &b), expected);
            let by_prefix = prefix(&a).cmp(&prefix(&b));
            prop_assert!(by_prefix == expected || by_prefix.is_eq());
        }

        #[test]
        fn a_prefix_is_the_same_in_its_text(key in "[a-cé\u{e000}\u{10000}]{0,12}", behind in "[\": a\u{80}]{0,9}") {
            let text = format!("{key}{behind}");
            prop_assert_eq!(prefix_in_text(text.as_bytes(), key.len()), prefix(key.as_bytes()));
        }
    }
}
