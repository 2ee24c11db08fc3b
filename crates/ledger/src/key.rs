//! Ed25519 keys with a name, as C2SP signed-note has them. Where a secret comes from and where it is kept, others say.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use canon::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::encoding;

/// Bytes of a public key, and of the secret that it is made of.
const KEY_LEN: usize = 32;
/// The prime of Ed25519, 2^255 − 19, in 32 bytes, little-endian.
const PRIME: [u8; KEY_LEN] = written(0xed, 0xff, 0x7f);
/// The `y` of every point of Ed25519 of which eight make nothing: 0, 1 and −1, and those of order eight.
const SMALL_ORDER: [[u8; KEY_LEN]; 5] = [
    written(0, 0, 0),
    written(1, 0, 0),
    written(0xec, 0xff, 0x7f),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
];
/// What the text of a secret key begins with.
pub const SECRET_PREFIX: &str = "PRIVATE+KEY+";
/// The longest name, so that a signature is a short line.
pub const KEY_NAME_BYTES_MAX: usize = 255;

/// What a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureKind {
    /// The text of a note: signature type 1.
    Note,
    /// A checkpoint and the time at which a witness saw it: signature type 4, C2SP tlog-cosignature.
    Cosignature,
}

impl SignatureKind {
    /// The byte that stands for it in key ids and verifier keys.
    const fn byte(self) -> u8 {
        match self {
            Self::Note => 1,
            Self::Cosignature => 4,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Note, Self::Cosignature]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }
}

/// The first four bytes of a hash of a key and its name: they tell keys apart, and prove nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A public key with its name: `<name>+<key id>+<base64 of type and key>` as text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VerifierKey {
    name: String,
    kind: SignatureKind,
    id: KeyId,
    public: [u8; KEY_LEN],
}

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedKey {
    /// The name could be taken for something else.
    #[error("a key's name has 1 to {KEY_NAME_BYTES_MAX} bytes, without spaces, control characters and `+`")]
    Name,
    /// Not the three parts.
    #[error("a verifier key is `<name>+<key id>+<base64>`, with 8 lowercase hex digits as key id")]
    Layout,
    /// Not the parts of a secret key.
    #[error(
        "a signing key is `{SECRET_PREFIX}<name>+<key id>+<base64>`, with 8 lowercase hex digits as key id"
    )]
    SecretLayout,
    /// Another algorithm, or not a secret key at all.
    #[error("a signing key is Ed25519: a byte 1 or 4 and 32 secret bytes")]
    SecretAlgorithm,
    /// Another algorithm, or not a key at all.
    #[error("a verifier key is Ed25519: a byte 1 or 4 and 32 bytes of the public key")]
    Algorithm,
    /// Everybody can sign for it, or it is not in the one spelling that RFC 8032 takes.
    #[error("the public key is a point for which everybody can sign, or a number of 2^255 - 19 or more")]
    Point,
    /// The id is not that of the name and the key.
    #[error("the key id is `{found}`, but that of this name and key is `{expected}`")]
    Id {
        /// What it must be.
        expected: KeyId,
        /// What the text says.
        found: String,
    },
}

impl VerifierKey {
    /// A public key under a name.
    ///
    /// # Errors
    /// The name is not one, or the key cannot be anybody's.
    pub fn new(name: &str, kind: SignatureKind, public: [u8; KEY_LEN]) -> Result<Self, MalformedKey> {
        if !is_key_name(name) {
            return Err(MalformedKey::Name);
        }
        if !is_point(&public) {
            return Err(MalformedKey::Point);
        }
        let hash = Digest::of_parts(&[name.as_bytes(), b"\n", &[kind.byte()], &public]);
        let [a, b, c, d, ..] = *hash.as_bytes();
        Ok(Self {
            name: name.to_owned(),
            kind,
            id: KeyId([a, b, c, d]),
            public,
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it signs.
    pub const fn kind(&self) -> SignatureKind {
        self.kind
    }

    /// The id.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Name and id: what a signature names its key by.
    pub fn label(&self) -> String {
        format!("{}+{}", self.name, self.id)
    }

    /// Whether this is the signature of these bytes. What the bytes mean is the caller's business.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.public)
            .verify(message, signature)
            .is_ok()
    }
}

/// Whether it can be told apart from what stands around it in a note.
pub(crate) fn is_key_name(name: &str) -> bool {
    let is_foreign = |char: char| char.is_whitespace() || char.is_control() || char == '+';
    (1..=KEY_NAME_BYTES_MAX).contains(&name.len()) && !name.contains(is_foreign)
}

/// A number in 32 bytes, little-endian: the first, thirty that are alike, and the last.
const fn written(first: u8, between: u8, last: u8) -> [u8; KEY_LEN] {
    let mut bytes = [between; KEY_LEN];
    bytes[0] = first;
    bytes[KEY_LEN - 1] = last;
    bytes
}

/// Whether a key can be somebody's: its `y` is less than the prime, and eight times the point is something, so that
/// nobody can sign for it without its secret. Whether it is on the curve only shows when it is used.
fn is_point(key: &[u8; KEY_LEN]) -> bool {
    let mut y = *key;
    // The highest bit is the sign of `x`, and what is mirrored is of the same order.
    y[KEY_LEN - 1] &= 0x7f;
    y.iter().rev().lt(PRIME.iter().rev()) && !SMALL_ORDER.contains(&y)
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![self.kind.byte()];
        bytes.extend_from_slice(&self.public);
        write!(f, "{}+{}+{}", self.name, self.id, encoding::encode(&bytes))
    }
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The three parts of a key's text: name, id, and type with key.
fn parts(text: &str) -> Result<(&str, &str, SignatureKind, [u8; KEY_LEN]), MalformedKey> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(MalformedKey::Layout);
    };
    let is_id = id.len() == 8
        && id
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !is_id {
        return Err(MalformedKey::Layout);
    }
    let key = encoding::decode(key).ok_or(MalformedKey::Layout)?;
    let (kind, key) = key.split_first().ok_or(MalformedKey::Algorithm)?;
    let kind = SignatureKind::of(*kind).ok_or(MalformedKey::Algorithm)?;
    let key = key.try_into().map_err(|_| MalformedKey::Algorithm)?;
    Ok((name, id, kind, key))
}

impl FromStr for VerifierKey {
    type Err = MalformedKey;

    fn from_str(text: &str) -> Result<Self, MalformedKey> {
        let (name, id, kind, public) = parts(text)?;
        Self::new(name, kind, public)?.checked(id)
    }
}

impl VerifierKey {
    fn checked(self, id: &str) -> Result<Self, MalformedKey> {
        if self.id.to_string() == id {
            return Ok(self);
        }
        Err(MalformedKey::Id {
            expected: self.id,
            found: id.to_owned(),
        })
    }
}

impl Serialize for VerifierKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VerifierKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A secret key with its name. It can sign, and it cannot be shown.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    verifier: VerifierKey,
}

impl SigningKey {
    /// The key of 32 secret random bytes (the seed of RFC 8032).
    ///
    /// # Errors
    /// The name is not one.
    pub fn from_seed(name: &str, kind: SignatureKind, seed: &[u8; KEY_LEN]) -> Result<Self, MalformedKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| MalformedKey::Algorithm)?;
        let public = pair.public_key().as_ref().try_into();
        let verifier = VerifierKey::new(name, kind, public.map_err(|_| MalformedKey::Algorithm)?)?;
        Ok(Self { pair, verifier })
    }

    /// The text of a secret key, as Go's `sumdb/note` has it: `PRIVATE+KEY+<name>+<key id>+<base64 of type and seed>`.
    ///
    /// # Errors
    /// The name is not one.
    pub fn encode(name: &str, kind: SignatureKind, seed: &[u8; KEY_LEN]) -> Result<String, MalformedKey> {
        let key = Self::from_seed(name, kind, seed)?;
        let mut bytes = vec![kind.byte()];
        bytes.extend_from_slice(seed);
        Ok(format!(
            "{SECRET_PREFIX}{}+{}",
            key.verifier.label(),
            encoding::encode(&bytes)
        ))
    }

    /// Its public half.
    pub const fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Signs bytes. Whoever calls sees to it that they cannot be taken for something else that the key signs.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature = self.pair.sign(message);
        signature
            .as_ref()
            .try_into()
            .expect("an Ed25519 signature has 64 bytes")
    }
}

impl FromStr for SigningKey {
    type Err = MalformedKey;

    /// Reads what `encode` writes.
    fn from_str(text: &str) -> Result<Self, MalformedKey> {
        let text = text
            .strip_prefix(SECRET_PREFIX)
            .ok_or(MalformedKey::SecretLayout)?;
        let (name, id, kind, seed) = parts(text).map_err(|malformed| match malformed {
            MalformedKey::Layout => MalformedKey::SecretLayout,
            MalformedKey::Algorithm => MalformedKey::SecretAlgorithm,
            other => other,
        })?;
        let key = Self::from_seed(name, kind, &seed)?;
        let verifier = key.verifier.checked(id)?;
        Ok(Self {
            pair: key.pair,
            verifier,
        })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.verifier.label()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{KEY_LEN, MalformedKey, PRIME, SMALL_ORDER, SignatureKind, SigningKey, VerifierKey};

    /// Published in C2SP signed-note.
    const PUBLISHED: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
    /// Published in the documentation of Go's `sumdb/note`.
    const GO_SECRET: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const GO_PUBLIC: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

    #[test]
    fn published_keys_are_read_and_written() {
        let key: VerifierKey = PUBLISHED.parse().unwrap();
        assert_eq!((key.name(), key.kind()), ("example.com/foo", SignatureKind::Note));
        assert_eq!(key.label(), "example.com/foo+530d903a");
        assert_eq!(key.to_string(), PUBLISHED);
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<VerifierKey>(&json).unwrap(), key);

        let secret: SigningKey = GO_SECRET.parse().unwrap();
        assert_eq!(secret.verifier().to_string(), GO_PUBLIC);
        assert_eq!(format!("{secret:?}"), "SigningKey(\"PeterNeumann+c74f20a3\")");
    }

    #[test]
    fn one_seed_makes_two_keys_that_are_told_apart() {
        let text = |kind| SigningKey::encode("example.com/w", kind, &[7; 32]).unwrap();
        let (note, witness) = (text(SignatureKind::Note), text(SignatureKind::Cosignature));
        assert_ne!(note, witness);
        for text in [note, witness] {
            let key: SigningKey = text.parse().unwrap();
            let read: VerifierKey = key.verifier().to_string().parse().unwrap();
            assert_eq!(&read, key.verifier());
            assert!(read.has_signed(b"message", &key.sign(b"message")));
            assert!(!read.has_signed(b"massage", &key.sign(b"message")));
        }
    }

    #[test]
    fn what_everybody_can_sign_for_and_what_is_spelt_in_another_way_is_not_a_key() {
        let key = |bytes| VerifierKey::new("example.com/foo", SignatureKind::Note, bytes);
        let mirrored = |mut bytes: [u8; KEY_LEN]| {
            bytes[KEY_LEN - 1] |= 0x80;
            bytes
        };
        let beyond = |more: u8| {
            let mut bytes = PRIME;
            bytes[0] += more;
            bytes
        };
        for bytes in SMALL_ORDER.into_iter().chain([0, 1, 3, 18].map(beyond)) {
            assert_eq!(key(bytes), Err(MalformedKey::Point), "{bytes:?}");
            assert_eq!(key(mirrored(bytes)), Err(MalformedKey::Point), "{bytes:?}");
        }
        let mut before = PRIME;
        before[0] -= 2;
        assert!(key(before).is_ok() && key(mirrored(before)).is_ok());
    }

    #[test]
    fn anything_else_is_not_a_key() {
        for (text, refusal) in [
            ("", MalformedKey::Layout),
            ("example.com/foo+530d903a", MalformedKey::Layout),
            (&PUBLISHED.replace("530d903a", "530D903A"), MalformedKey::Layout),
            (&PUBLISHED.replace("530d903a", "30d903a"), MalformedKey::Layout),
            (&PUBLISHED.replace("U2k", "U2l="), MalformedKey::Layout),
            (&PUBLISHED.replace("+Aek", "+Bek"), MalformedKey::Algorithm),
            (&PUBLISHED.replace("3U2k", ""), MalformedKey::Algorithm),
            (&PUBLISHED.replace("example.com/foo", ""), MalformedKey::Name),
            (&PUBLISHED.replace("example.com/foo", "a b"), MalformedKey::Name),
            (
                &PUBLISHED.replace("example.com/foo", "a\u{a0}b"),
                MalformedKey::Name,
            ),
            (
                &PUBLISHED.replace("example.com/foo", &"a".repeat(256)),
                MalformedKey::Name,
            ),
        ] {
            assert_eq!(text.parse::<VerifierKey>(), Err(refusal), "{text}");
        }
        let other = PUBLISHED.replace("530d903a", "530d903b").parse::<VerifierKey>();
        assert_eq!(
            other.unwrap_err().to_string(),
            "the key id is `530d903b`, but that of this name and key is `530d903a`"
        );
    }

    #[test]
    fn what_is_no_signing_key_is_told_how_one_looks_and_not_how_a_verifier_key_does() {
        for text in ["", PUBLISHED, "PRIVATE+KEY+foo", "PRIVATE+KEY+foo+bar+"] {
            let refusal = text.parse::<SigningKey>().unwrap_err();
            assert_eq!(refusal, MalformedKey::SecretLayout, "{text}");
            let told = refusal.to_string();
            assert!(
                told.starts_with("a signing key is `PRIVATE+KEY+<name>+"),
                "{told}"
            );
        }
        // Its end was cut off.
        let cut = "PRIVATE+KEY+foo+0123abcd+AQ==".parse::<SigningKey>().unwrap_err();
        assert_eq!(cut, MalformedKey::SecretAlgorithm);
    }
}
