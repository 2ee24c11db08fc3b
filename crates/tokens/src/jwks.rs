//! The keys of an issuer (RFC 7517, section 5): parsed once when they are registered, and looked up by the token's `kid`.
//!
//! Rotation needs nothing but both keys in the set: tokens name the one that they are signed with, or none, and then
//! the keys have no names either.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::json;
use crate::jwk::{self, KeyError};
use crate::key::PublicKey;
use crate::token::UNNAMED_KEYS_MAX;

/// The longest set, in bytes.
pub const KEY_SET_BYTES_MAX: usize = 64 << 10;
/// The most keys of a set, usable or not. Issuers have two or three.
pub const KEYS_MAX: usize = 32;
/// The longest name of a key, in bytes.
const KEY_ID_BYTES_MAX: usize = 256;
/// How much work RSA keys make, together, that a token is verified with that names none: what as many do as it is
/// verified with, if each is the longest that is registered, with a modulus of 512 bytes and an exponent of three
/// bytes. An earlier version may have registered longer ones, of which two have room here if their exponent has no more.
const UNNAMED_WORK_MAX: usize = UNNAMED_KEYS_MAX * 512 * 3;

/// Why a set cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It is not an object, or one that can be read in two ways.
    #[error("the key set is not valid JSON: {0}")]
    Json(String),
    /// There are no keys in it.
    #[error("a key set is an object with an array `keys` of objects")]
    Shape,
    /// There are too many.
    #[error("a key set has at most {KEYS_MAX} keys, this one has {0}")]
    TooMany(usize),
    /// None of them verifies anything here.
    #[error("no key of the set is for signatures by Ed25519, ES256 or RS256")]
    NoneUsable,
    /// A name is not one.
    #[error("`/keys/{place}/kid` should be a string of 1 to {KEY_ID_BYTES_MAX} bytes")]
    KeyId {
        /// Which key, from 0.
        place: usize,
    },
    /// A name stands for two keys.
    #[error("`/keys/{place}/kid`: there is a key `{id}` already")]
    Duplicate {
        /// Which key, from 0.
        place: usize,
        /// Its name.
        id: String,
    },
    /// A key is wrong.
    #[error("`/keys/{place}`: {source}")]
    Key {
        /// Which key, from 0.
        place: usize,
        /// What is wrong with it.
        source: KeyError,
    },
}

/// Keys by name. Cloning shares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet {
    keys: Arc<[(Option<String>, PublicKey)]>,
}

impl KeySet {
    /// The keys in a JWKS that comes to be registered. Keys for something else are left out, as the specification has
    /// it; a key that is wrong, or a secret, makes the set wrong.
    pub fn parse_new(bytes: &[u8]) -> Result<Self, KeySetError> {
        Self::parse_by(bytes, jwk::of_new_members)
    }

    /// The keys in a JWKS that was registered, maybe by an earlier version, which did not know all secrets, nor all
    /// that is no key or makes much work.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        Self::parse_by(bytes, jwk::of_members)
    }

    fn parse_by(
        bytes: &[u8],
        read: fn(&Map<String, Value>) -> Result<PublicKey, KeyError>,
    ) -> Result<Self, KeySetError> {
        let mut set = json::object(bytes, KEY_SET_BYTES_MAX).map_err(KeySetError::Json)?;
        let Some(Value::Array(entries)) = set.remove("keys") else {
            return Err(KeySetError::Shape);
        };
        if entries.len() > KEYS_MAX {
            return Err(KeySetError::TooMany(entries.len()));
        }
        let (mut keys, mut ids) = (Vec::new(), BTreeSet::new());
        for (place, entry) in entries.into_iter().enumerate() {
            let Value::Object(members) = entry else {
                return Err(KeySetError::Shape);
            };
            let key = match read(&members) {
                Ok(key) => key,
                Err(KeyError::Unsuited(_)) => continue,
                Err(source) => return Err(KeySetError::Key { place, source }),
            };
            let id = key_id(&members, place)?;
            if let Some(id) = id.clone().filter(|id| !ids.insert(id.clone())) {
                return Err(KeySetError::Duplicate { place, id });
            }
            keys.push((id, key));
        }
        if keys.is_empty() {
            return Err(KeySetError::NoneUsable);
        }
        Ok(Self { keys: keys.into() })
    }

    /// The key with this name.
    pub fn named(&self, id: &str) -> Option<&PublicKey> {
        let mut keys = self.keys.iter();
        let named = keys.find(|(key, _)| key.as_deref() == Some(id));
        named.map(|(_, key)| key)
    }

    /// The key, if there is only one.
    pub(crate) fn only(&self) -> Option<&PublicKey> {
        match &*self.keys {
            [(_, only)] => Some(only),
            _ => None,
        }
    }

    /// The keys that a token is verified with that names none, if there are several: the first of those without a name
    /// that could have signed it. One that makes too much work beside those before it is passed over.
    pub(crate) fn unnamed(
        &self,
        could_sign: impl Fn(&PublicKey) -> bool,
    ) -> impl Iterator<Item = &PublicKey> {
        let unnamed = self.keys.iter().filter(|(id, _)| id.is_none());
        let fitting = unnamed.map(|(_, key)| key).filter(move |key| could_sign(key));
        let mut work_left = UNNAMED_WORK_MAX;
        let affordable = fitting.filter(move |key| {
            let left = work_left.checked_sub(key.rsa_work());
            work_left = left.unwrap_or(work_left);
            left.is_some()
        });
        affordable.take(UNNAMED_KEYS_MAX)
    }

    /// Whether a token that this key has signed, and that calls it so or by no name, is verified by these keys.
    pub fn verifies_by(&self, id: Option<&str>, key: &PublicKey) -> bool {
        if let Some(id) = id {
            return self.named(id) == Some(key);
        }
        if let Some(only) = self.only() {
            return only == key;
        }
        let mut tried = self.unnamed(|known| known.algorithm() == key.algorithm());
        tried.any(|known| known == key)
    }

    /// Every key, with its name if it has one.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &PublicKey)> {
        self.keys.iter().map(|(id, key)| (id.as_deref(), key))
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

fn key_id(members: &Map<String, Value>, place: usize) -> Result<Option<String>, KeySetError> {
    match members.get("kid") {
        None => Ok(None),
        Some(Value::String(id)) if (1..=KEY_ID_BYTES_MAX).contains(&id.len()) => Ok(Some(id.clone())),
        Some(_) => Err(KeySetError::KeyId { place }),
    }
}
