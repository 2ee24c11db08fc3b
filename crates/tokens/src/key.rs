//! Public keys. A key knows the one algorithm that it is for; what a token says about algorithms chooses nothing.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use std::fmt;

use crate::jwk::{self, KeyError};

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Ed25519 (RFC 8037).
    Ed25519,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// RSASSA-PKCS1-v1_5 with SHA-256, and 2048 to 8192 bits.
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

    /// The key with this point on P-256. Whether the point is on the curve shows when it is used.
    pub(crate) fn p256(x: &[u8; 32], y: &[u8; 32]) -> Self {
        let mut point = [4; 65];
        point[1..33].copy_from_slice(x);
        point[33..].copy_from_slice(y);
        Self(Material::P256(point))
    }

    /// An RSA key. Whoever makes it has looked at its length.
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

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.algorithm().names()[0])
    }
}
