//! One key as JSON (RFC 7517), of the three kinds that are verified here.

use serde_json::{Map, Value};

use crate::encoding;
use crate::json;
use crate::key::{self, PublicKey};

/// The longest JWK, in bytes: an RSA key of 8192 bits has 1.4 KiB, and some bring a chain of certificates.
const KEY_BYTES_MAX: usize = 16 << 10;
/// The shortest RSA modulus that is not broken, and the longest that earlier versions have registered, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Members that only a private key has, or one that is shared.
const SECRETS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// The member that only a private key of the type AKP has, such as one of ML-DSA, of which none is verified here.
const SECRET_OF_AKP: &str = "priv";

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not an object, or one that can be read in two ways.
    #[error("the key is not valid JSON: {0}")]
    Json(String),
    /// It holds a secret.
    #[error(
        "the key has the member `{0}`, which is a secret; register the public key only, and replace this one"
    )]
    Secret(&'static str),
    /// It is for something else, such as another algorithm or encryption.
    #[error("`{0}` is not for signatures by Ed25519, ES256 or RS256")]
    Unsuited(&'static str),
    /// A member is missing or wrong.
    #[error("`{member}` {fault}")]
    Member {
        /// Which.
        member: &'static str,
        /// What it should be.
        fault: &'static str,
    },
    /// The RSA modulus has too few bits, or too many.
    #[error(
        "an RSA key has from 2048 to 4096 bits, this one has {0}; leave it out, and sign with another one"
    )]
    RsaBits(usize),
}

/// The key in these bytes.
pub(crate) fn read(bytes: &[u8]) -> Result<PublicKey, KeyError> {
    let members = json::object(bytes, KEY_BYTES_MAX).map_err(KeyError::Json)?;
    of_members(&members)
}

/// The key with these members, which come to be registered. Earlier versions took the private key of a type that they
/// did not know for one that is for others, numbers that are no key for one, and RSA keys that make much work, and what
/// they have registered is read all the same.
pub(crate) fn of_new_members(members: &Map<String, Value>) -> Result<PublicKey, KeyError> {
    if members.contains_key(SECRET_OF_AKP) {
        return Err(KeyError::Secret(SECRET_OF_AKP));
    }
    let key = of_members(members)?;
    key.check().map(|()| key)
}

/// The key with these members. [`KeyError::Unsuited`] says that it may be a good key for others.
pub(crate) fn of_members(members: &Map<String, Value>) -> Result<PublicKey, KeyError> {
    if let Some(secret) = SECRETS.into_iter().find(|name| members.contains_key(*name)) {
        return Err(KeyError::Secret(secret));
    }
    check_use(members)?;
    let key = match (text(members, "kty")?, optional_text(members, "crv")?) {
        ("OKP", Some("Ed25519")) => PublicKey::ed25519(coordinate(members, "x")?),
        ("EC", Some("P-256")) => PublicKey::p256(&coordinate(members, "x")?, &coordinate(members, "y")?),
        ("RSA", None) => rsa(members)?,
        (_, Some(_)) => return Err(KeyError::Unsuited("crv")),
        _ => return Err(KeyError::Unsuited("kty")),
    };
    match optional_text(members, "alg")? {
        Some(named) if !key.algorithm().names().contains(&named) => Err(KeyError::Unsuited("alg")),
        _ => Ok(key),
    }
}

/// Whether the key says that it is for verifying signatures, or nothing (RFC 7517, sections 4.2 and 4.3).
fn check_use(members: &Map<String, Value>) -> Result<(), KeyError> {
    if optional_text(members, "use")?.is_some_and(|word| word != "sig") {
        return Err(KeyError::Unsuited("use"));
    }
    match members.get("key_ops") {
        None => Ok(()),
        Some(Value::Array(words)) if words.iter().any(|word| word == "verify") => Ok(()),
        Some(Value::Array(_)) => Err(KeyError::Unsuited("key_ops")),
        Some(_) => Err(wrong("key_ops", "should be an array of words")),
    }
}

fn rsa(members: &Map<String, Value>) -> Result<PublicKey, KeyError> {
    let (modulus, exponent) = (integer(members, "n")?, integer(members, "e")?);
    let bits = key::bits(&modulus);
    if !RSA_BITS.contains(&bits) {
        return Err(KeyError::RsaBits(bits));
    }
    Ok(PublicKey::rsa(&modulus, &exponent))
}

/// A coordinate of a point: base64url of exactly 32 bytes.
fn coordinate(members: &Map<String, Value>, member: &'static str) -> Result<[u8; 32], KeyError> {
    let bytes = encoding::base64url(text(members, member)?);
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| wrong(member, "should be base64url of 32 bytes"))
}

/// A number: base64url of its big-endian bytes, without leading zeros, which some write all the same.
fn integer(members: &Map<String, Value>, member: &'static str) -> Result<Vec<u8>, KeyError> {
    let bytes = encoding::base64url(text(members, member)?)
        .ok_or_else(|| wrong(member, "should be base64url of a number"))?;
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    Ok(bytes[start..].to_vec())
}

fn text<'m>(members: &'m Map<String, Value>, member: &'static str) -> Result<&'m str, KeyError> {
    optional_text(members, member)?.ok_or_else(|| wrong(member, "is missing"))
}

pub(crate) fn optional_text<'m>(
    members: &'m Map<String, Value>,
    member: &'static str,
) -> Result<Option<&'m str>, KeyError> {
    match members.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(member, "should be a string")),
    }
}

fn wrong(member: &'static str, fault: &'static str) -> KeyError {
    KeyError::Member { member, fault }
}
