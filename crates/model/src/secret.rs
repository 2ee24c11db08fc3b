//! Secrets that callers carry: agent tokens (`csa_…`) and API keys (`csk_…`).
//!
//! A secret is its prefix, 256 random bits and a CRC-32 of both in base32, so that a mistyped one is told from a
//! revoked one without a look-up. It is shown once; everywhere else only its SHA-256 digest exists.

use crate::entropy::Entropy;
use crate::id::BASE32_DIGITS;
use canon::Digest;
use std::fmt;

const RANDOM_BYTES: usize = 32;
/// 36 bytes (the random ones and the checksum) in base32, five bits a character.
const BODY_CHARS: usize = 58;

/// Whose secret it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// An agent's token, `csa_…`.
    AgentToken,
    /// An API key, `csk_…`.
    ApiKey,
}

impl SecretKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::AgentToken => "csa_",
            Self::ApiKey => "csk_",
        }
    }
}

/// A well-formed secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    kind: SecretKind,
    text: String,
}

/// The text is not a secret: wrong prefix, length, alphabet or checksum. The text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a credential: it should be `csa_` (agent token) or `csk_` (API key), 58 characters, with a valid checksum"
)]
pub struct InvalidSecret;

impl Secret {
    /// A fresh secret.
    pub fn mint(kind: SecretKind, entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; RANDOM_BYTES + 4];
        entropy.fill(&mut bytes[..RANDOM_BYTES]);
        let checksum = checksum(kind, &bytes[..RANDOM_BYTES]);
        bytes[RANDOM_BYTES..].copy_from_slice(&checksum);
        let text = format!("{}{}", kind.prefix(), encode(&bytes));
        Self { kind, text }
    }

    /// The secret with this text, if its form and checksum are right.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let kind = [SecretKind::AgentToken, SecretKind::ApiKey]
            .into_iter()
            .find(|kind| text.starts_with(kind.prefix()))
            .ok_or(InvalidSecret)?;
        let bytes = decode(&text.as_bytes()[kind.prefix().len()..]).ok_or(InvalidSecret)?;
        if bytes[RANDOM_BYTES..] != checksum(kind, &bytes[..RANDOM_BYTES]) {
            return Err(InvalidSecret);
        }
        Ok(Self {
            kind,
            text: text.to_owned(),
        })
    }

    /// Whose it is.
    pub const fn kind(&self) -> SecretKind {
        self.kind
    }

    /// What is stored and looked up in its place.
    pub fn digest(&self) -> Digest {
        Digest::of(self.text.as_bytes())
    }

    /// The secret itself: for the one answer that shows it.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:?}, …)", self.kind)
    }
}

fn checksum(kind: SecretKind, random: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(kind.prefix().as_bytes());
    hasher.update(random);
    hasher.finalize().to_be_bytes()
}

fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(BODY_CHARS);
    let (mut window, mut bits) = (0u32, 0);
    for byte in bytes {
        window = window << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(char::from(BASE32_DIGITS[(window >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        out.push(char::from(BASE32_DIGITS[(window << (5 - bits) & 31) as usize]));
    }
    out
}

fn decode(text: &[u8]) -> Option<[u8; RANDOM_BYTES + 4]> {
    if text.len() != BODY_CHARS {
        return None;
    }
    let mut out = [0; RANDOM_BYTES + 4];
    let (mut window, mut bits, mut filled) = (0u32, 0, 0);
    for character in text {
        let digit = BASE32_DIGITS.iter().position(|letter| letter == character)?;
        window = window << 5 | u32::try_from(digit).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out[filled] = u8::try_from(window >> bits & 0xff).ok()?;
            filled += 1;
        }
    }
    // The last character carries two spare bits. They are zero, or two texts would be one secret.
    (window & ((1 << bits) - 1) == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::{FixedEntropy, SystemEntropy};

    #[test]
    fn a_minted_secret_is_parsed_again() {
        for kind in [SecretKind::AgentToken, SecretKind::ApiKey] {
            let minted = Secret::mint(kind, &SystemEntropy);
            assert_eq!(minted.reveal().len(), 62);
            let parsed = Secret::parse(minted.reveal()).unwrap();
            assert_eq!((parsed.kind(), parsed.digest()), (kind, minted.digest()));
        }
    }

    #[test]
    fn two_secrets_differ() {
        let mint = || Secret::mint(SecretKind::AgentToken, &SystemEntropy);
        assert_ne!(mint(), mint());
    }

    #[test]
    fn one_changed_character_anywhere_is_noticed() {
        let minted = Secret::mint(SecretKind::ApiKey, &FixedEntropy(0x5a));
        for place in 0..minted.reveal().len() {
            let mut text = minted.reveal().as_bytes().to_vec();
            text[place] = if text[place] == b'0' { b'1' } else { b'0' };
            let text = String::from_utf8(text).unwrap();
            assert_eq!(Secret::parse(&text), Err(InvalidSecret), "{place}");
        }
    }

    #[test]
    fn a_token_cannot_be_passed_off_as_a_key() {
        let token = Secret::mint(SecretKind::AgentToken, &SystemEntropy);
        let key = token.reveal().replace("csa_", "csk_");
        assert_eq!(Secret::parse(&key), Err(InvalidSecret));
    }

    #[test]
    fn debug_does_not_show_the_secret() {
        let minted = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
        assert_eq!(format!("{minted:?}"), "Secret(ApiKey, …)");
    }
}
