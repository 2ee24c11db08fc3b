//! Base 64 as RFC 4648 section 4 has it: padded, and with one spelling for each value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::Digest;

/// Appends the text form of `bytes`.
pub(crate) fn encode_to(out: &mut String, bytes: &[u8]) {
    STANDARD.encode_string(bytes, out);
}

/// The text form of `bytes`.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Writes the text form of a hash, which has 44 bytes.
pub(crate) fn encode_hash(hash: &Digest, text: &mut [u8]) {
    let written = STANDARD.encode_slice(hash.as_bytes(), text);
    debug_assert_eq!(written, Ok(44), "a hash in base64 has 44 bytes");
}

/// The bytes of a text; `None` if it has another spelling or is something else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The hash of a text; `None` if it is not one.
pub(crate) fn decode_hash(text: &str) -> Option<Digest> {
    decode_array(text).map(Digest::from_bytes)
}

/// So many bytes of a text, and no other number of them.
pub(crate) fn decode_array<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    // The longest spelling of so many bytes: what is longer is not decoded at all.
    if text.len() != LEN.div_ceil(3) * 4 {
        return None;
    }
    decode(text)?.try_into().ok()
}

/// A number as notes write it: decimal digits without leading zeros.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::{decimal, decode, decode_array};

    #[test]
    fn a_value_has_one_spelling() {
        assert_eq!(decode("AQI="), Some(vec![1, 2]));
        for other in ["AQI", "AQJ=", "AQI=\n", " AQI=", "AQI==", "AQ-_", "AQI=AQI="] {
            assert_eq!(decode(other), None, "{other:?}");
        }
        assert_eq!(decode_array("AQI="), Some([1, 2]));
        assert_eq!(decode_array::<3>("AQI="), None);
        for other in ["", "00", "01", "+1", "-1", "1 ", "18446744073709551616"] {
            assert_eq!(decimal(other), None, "{other:?}");
        }
        assert_eq!((decimal("0"), decimal("10")), (Some(0), Some(10)));
    }
}
