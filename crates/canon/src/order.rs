//! Order of keys: by the UTF-16 code units of the unescaped key (RFC 8785 section 3.2.3). Keys are compared in the
//! escaped form in which they stand in the output, without being copied.

use std::cmp::Ordering;

/// Compares two keys written by [`crate::write_string`], without their quotes.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    weights(a).cmp(weights(b))
}

/// Compares two keys as `compare` does. `plain` says that neither has an escape or a byte beyond ASCII, and then bytes
/// are code units.
pub(crate) fn compare_hinted(a: &[u8], b: &[u8], plain: bool) -> Ordering {
    if plain { a.cmp(b) } else { compare(a, b) }
}

/// Whether bytes of this key are its UTF-16 code units.
pub(crate) fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|&byte| byte.is_ascii() && byte != b'\\')
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

    use super::{compare, compare_hinted, is_plain};
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
            prop_assert_eq!(compare_hinted(&a, &b, is_plain(&a) && is_plain(&b)), expected);
        }
    }
}
