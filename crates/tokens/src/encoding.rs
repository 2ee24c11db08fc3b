//! Base64 in the two forms that signatures come in. Whatever could be written in a second way is refused, so that a text
//! stands for its bytes and nobody can change one without the other.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// The bytes of base64url without padding (RFC 7515, section 2).
pub(crate) fn base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// The bytes of base64 with padding, as structured fields have it.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Appends base64 with padding.
pub(crate) fn write_base64(bytes: &[u8], out: &mut String) {
    STANDARD.encode_string(bytes, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_spelling_is_refused() {
        assert_eq!(base64url("iQ").as_deref(), Some(&[0x89][..]));
        for other in ["iQ==", "iR", "i", "i Q", "iQ\n", "+/", "iQ="] {
            assert_eq!(base64url(other), None, "{other:?}");
        }
        assert_eq!(base64("iQ==").as_deref(), Some(&[0x89][..]));
        for other in ["iQ", "iR==", "iQ=", "-_=="] {
            assert_eq!(base64(other), None, "{other:?}");
        }
    }
}
