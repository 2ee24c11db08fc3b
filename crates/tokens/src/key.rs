//! Public keys. A key knows the one algorithm that it is for; what a token says about algorithms chooses nothing.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use std::fmt;

use crate::jwk::{self, KeyError};

/// The longest RSA modulus that is registered, in bits. Verifying takes four times as long with twice as many, and
/// whoever shows a token that nobody signed makes that work.
const NEW_RSA_BITS_MAX: usize = 4_096;
/// The largest RSA exponent that is registered, which is nearly everybody's. The library takes those of 33 bits, too,
/// and needs up to four times as long with them.
const NEW_RSA_EXPONENT_MAX: u64 = 65_537;
/// The `y` of every point of Ed25519 of which eight make nothing, in each way in which it can be written: 0, 1 and −1,
/// the first two also with the prime added, and those of order eight.
const SMALL_ORDER: [[u8; 32]; 7] = [
    written(0, 0, 0),
    written(1, 0, 0),
    written(0xec, 0xff, 0x7f),
    written(0xed, 0xff, 0x7f),
    written(0xee, 0xff, 0x7f),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
];

/// A number in 32 bytes, little-endian: the first, thirty that are alike, and the last.
const fn written(first: u8, between: u8, last: u8) -> [u8; 32] {
    let mut bytes = [between; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Ed25519 (RFC 8037).
    Ed25519,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// RSASSA-PKCS1-v1_5 with SHA-256, and 2048 to 4096 bits; 8192 where an earlier version has registered the key.
    Rs256,
}

impl Algorithm {
    /// What tokens call it; the first is the usual name.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            // RFC 9864 gives the second name, which says which curve is meant.
            Self::Ed25519 => &["EdDSA", "Ed25519"],
            Self::Es256 => &["ES256"],
            Self::Rs256 => &["RS256"],
        }
    }
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(Material);

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Ed25519([u8; 32]),
    /// The point, uncompressed.
    P256([u8; 65]),
    /// Modulus and exponent, big-endian, without leading zeros.
    Rsa(Box<[u8]>, Box<[u8]>),
}

impl PublicKey {
    /// The key in a JWK (RFC 7517, RFC 8037, RFC 7518).
    pub fn from_jwk(bytes: &[u8]) -> Result<Self, KeyError> {
        jwk::read(bytes)
    }

    /// An Ed25519 key (RFC 8032).
    pub const fn ed25519(bytes: [u8; 32]) -> Self {
        Self(Material::Ed25519(bytes))
    }

    /// The key with this point on P-256. Whether the point is on the curve shows when it is checked, or used.
    pub(crate) fn p256(x: &[u8; 32], y: &[u8; 32]) -> Self {
        let mut point = [4; 65];
        point[1..33].copy_from_slice(x);
        point[33..].copy_from_slice(y);
        Self(Material::P256(point))
    }

    /// An RSA key. Whoever makes it has looked at the length of its modulus.
    pub(crate) fn rsa(modulus: &[u8], exponent: &[u8]) -> Self {
        Self(Material::Rsa(modulus.into(), exponent.into()))
    }

    /// What it is for.
    pub const fn algorithm(&self) -> Algorithm {
        match self.0 {
            Material::Ed25519(_) => Algorithm::Ed25519,
            Material::P256(_) => Algorithm::Es256,
            Material::Rsa(..) => Algorithm::Rs256,
        }
    }

    /// How much work an RSA key makes, about: the bytes of its modulus times those of its exponent. The others make
    /// little.
    pub(crate) fn rsa_work(&self) -> usize {
        match &self.0 {
            Material::Rsa(n, e) => n.len() * e.len(),
            Material::Ed25519(_) | Material::P256(_) => 0,
        }
    }

    /// Refuses what is no key, because nobody can sign for it or everybody can, and what makes too much work. Whether
    /// an Ed25519 key is on its curve only shows when it is used.
    pub(crate) fn check(&self) -> Result<(), KeyError> {
        let wrong = |member, fault| Err(KeyError::Member { member, fault });
        match &self.0 {
            Material::Ed25519(key) if is_of_small_order(key) => {
                wrong("x", "is a point for which everybody can sign")
            }
            Material::P256(point) if ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).is_err() => {
                wrong("y", "should make a point of P-256 with `x`")
            }
            Material::Rsa(n, _) if bits(n) > NEW_RSA_BITS_MAX => Err(KeyError::RsaBits(bits(n))),
            Material::Rsa(n, _) if !is_odd(n) => wrong("n", "should be odd"),
            Material::Rsa(_, e) if !is_exponent(e) => wrong(
                "e",
                "should be odd, at least 3 and at most 65537; sign with a key that has 65537, as nearly all have",
            ),
            _ => Ok(()),
        }
    }

    /// Whether this is the key's signature of the message.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.0 {
            Material::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            Material::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Material::Rsa(n, e) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
        };
        verified.is_ok()
    }
}

/// Whether eight times the point is nothing, so that what its key has signed can be made without one.
fn is_of_small_order(key: &[u8; 32]) -> bool {
    let mut y = *key;
    // The highest bit is the sign of `x`, and what is mirrored is of the same order.
    y[31] &= 0x7f;
    SMALL_ORDER.contains(&y)
}

/// How many bits a number has, of which these are the bytes, big-endian and without leading zeros.
pub(crate) fn bits(number: &[u8]) -> usize {
    let unused = number.first().map_or(0, |first| first.leading_zeros() as usize);
    number.len() * 8 - unused
}

fn is_odd(number: &[u8]) -> bool {
    number.last().is_some_and(|last| last % 2 == 1)
}

/// Whether a new RSA key can have this exponent: with 1 everything is its own signature.
fn is_exponent(bytes: &[u8]) -> bool {
    if !is_odd(bytes) || bytes.len() > size_of::<u64>() {
        return false;
    }
    let exponent = bytes
        .iter()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    (3..=NEW_RSA_EXPONENT_MAX).contains(&exponent)
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.algorithm().names()[0])
    }
}
