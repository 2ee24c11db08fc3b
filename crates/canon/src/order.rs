//! Order of keys: by the UTF-16 code units of the unescaped key (RFC 8785 section 3.2.3). Keys are compared in the
//! escaped form in which they stand in the output, without being copied.

use std::cmp::Ordering;

/// Compares two keys written by [`crate::write_string`], without their quotes.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    weights(a).cmp(weights(b))
}

/// The first eight bytes of a key as a number, or `None` if bytes of the key are not its UTF-16 code units (it has
/// an escape or a character beyond ASCII). Numbers that differ order their keys; a key has no zero byte, so the
/// padding of a short one comes first.
pub(crate) fn prefix(key: &[u8], escaped: bool) -> Option<u64> {
    if escaped || !key.is_ascii() {
        return None;
    }
    let mut first = [0; 8];
    let len = key.len().min(8);
    first[..len].copy_from_slice(&key[..len]);
    Some(u64::from_be_bytes(first))
}

/// Compares two keys as `compare` does, by their prefixes if that is enough.
pub(crate) fn compare_prefixed(a: (Option<u64>, &[u8]), b: (Option<u64>, &[u8])) -> Ordering {
    match (a.0, b.0) {
        (Some(first), Some(second)) => first.cmp(&second).then_with(|| a.1.cmp(b.1)),
        _ => compare(a.1, b.1),
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

    use super::{compare, compare_prefixed, prefix};
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
            let prefixed = |key: &[u8]| prefix(key, key.contains(&b'\\'));
            prop_assert_eq!(compare_prefixed((prefixed(&a), &a), (prefixed(&b), &b)), expected);
        }

        #[test]
        fn long_plain_keys_are_ordered_beyond_their_prefix(a in "a{6,9}[ab~]{0,2}", b in "a{6,9}[ab~]{0,2}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            prop_assert_eq!(compare_prefixed((prefix(a, false), a), (prefix(b, false), b)), a.cmp(b));
        }
    }
}
