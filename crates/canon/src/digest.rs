//! A SHA-256 digest and its one text form, `sha256:<64 lowercase hex>`. It does not say what was hashed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const HEX_LEN: usize = 64;
/// What every byte but a lowercase hex digit stands for: or-ing it to anything leaves it as it is.
const NOT_A_DIGIT: u8 = u8::MAX;

/// The value of each hex digit. A verifier reads four digests an entry, and looking them up takes a quarter of the time.
const DIGITS: [u8; 256] = {
    let mut table = [NOT_A_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    table
};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Thirty-two zero bytes: what stands before the first entry of a chain. No known input hashes to it.
    pub const ZERO: Self = Self([0; 32]);

    /// The SHA-256 of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The SHA-256 of all parts, one after the other, without putting them together first.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// A digest computed elsewhere, as a database column holds it.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Appends the text form, `sha256:` and 64 hex digits, without the formatting machinery.
    pub fn write_to(&self, out: &mut String) {
        let mut text = [0; HEX_LEN];
        out.push_str(PREFIX);
        out.push_str(self.hex_in(&mut text));
    }

    /// Reads the one text form; none if it is anything else.
    pub fn read(text: &[u8]) -> Option<Self> {
        let digits: &[u8; HEX_LEN] = text.strip_prefix(PREFIX.as_bytes())?.try_into().ok()?;
        let mut bytes = [0; 32];
        let mut seen = 0;
        for (byte, [high, low]) in bytes.iter_mut().zip(digits.as_chunks().0) {
            let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
            seen |= high | low;
            *byte = high << 4 | low & 0xF;
        }
        (seen != NOT_A_DIGIT).then_some(Self(bytes))
    }

    fn hex_in<'t>(&self, text: &'t mut [u8; HEX_LEN]) -> &'t str {
        hex::encode_to_slice(self.0, text).expect("the buffer is twice the digest");
        std::str::from_utf8(text).expect("hex digits are ASCII")
    }
}

/// The digest of what comes in parts, none of which has to stay in memory.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes in what comes next.
    pub fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// The SHA-256 of all parts, one after the other.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        f.write_str(self.hex_in(&mut [0; HEX_LEN]))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is `sha256:` and {HEX_LEN} lowercase hex digits, not {len} bytes of something else")]
pub struct DigestError {
    /// Length of what was given; the text itself is not repeated, because it may be long or secret.
    pub len: usize,
}

impl FromStr for Digest {
    type Err = DigestError;

    /// Reads the one text form. Upper-case digits are refused: a digest that is compared as text has one spelling.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        Self::read(text.as_bytes()).ok_or(DigestError { len: text.len() })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Digest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`sha256:` and 64 lowercase hex digits")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest, Hasher};

    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn the_published_digest_of_abc_is_printed() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string(), ABC);
        let mut text = String::from("> ");
        digest.write_to(&mut text);
        assert_eq!(text, format!("> {ABC}"));
    }

    #[test]
    fn parts_are_hashed_as_one() {
        let whole = Digest::of(b"abc");
        for parts in [
            &[b"abc" as &[u8]] as &[&[u8]],
            &[b"", b"a", b"bc"],
            &[b"ab", b"c", b""],
        ] {
            assert_eq!(Digest::of_parts(parts), whole);
            let mut hasher = Hasher::default();
            for part in parts {
                hasher.update(part);
            }
            assert_eq!(hasher.finish(), whole);
        }
        assert_eq!(Digest::of_parts(&[]), Digest::of(b""));
    }

    #[test]
    fn text_and_json_are_read_back() {
        let digest = Digest::of(b"abc");
        assert_eq!(ABC.parse(), Ok(digest));
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(json, format!("\"{ABC}\""));
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);
    }

    #[test]
    fn only_one_spelling_is_a_digest() {
        let upper = ABC.replace("ba78", "BA78");
        let not_hex = ABC.replace("ba78", "zz78");
        for text in [
            "",
            "sha256:",
            &ABC[7..],
            &ABC[..70],
            &upper,
            &not_hex,
            &format!("{ABC}0"),
            "sha256:é",
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
        let message = "sha256:00".parse::<Digest>().unwrap_err().to_string();
        assert_eq!(
            message,
            "a digest is `sha256:` and 64 lowercase hex digits, not 9 bytes of something else"
        );
    }

    #[test]
    fn zero_is_thirty_two_zero_bytes() {
        assert_eq!(Digest::ZERO.to_string(), format!("sha256:{}", "0".repeat(64)));
    }
}
