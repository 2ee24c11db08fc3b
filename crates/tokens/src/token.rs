//! Tokens (JWT, RFC 7519), verified as RFC 8725 advises: for one issuer, one audience and one purpose, at a time.

pub use model::Purpose;

use model::Timestamp;
use serde_json::{Map, Value};

use crate::claims::{self, Claims};
use crate::json;
use crate::jwks::KeySet;
use crate::jws::{Jws, clipped};
use crate::key::PublicKey;

/// The longest token, in bytes. Those of large identity providers have 2 to 4 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// How far the clocks of issuer and verifier may differ, in seconds.
pub const LEEWAY_SECONDS: i64 = 60;
/// With how many keys of a set a token is verified that names none: whoever shows one that nobody signed makes no more
/// work than this. RSA keys that make more work than those that are registered now count for more.
pub const UNNAMED_KEYS_MAX: usize = 4;

/// The values of `typ` that go with a purpose, beside none: a token that was made for something else is not one for this, whoever
/// signed it (RFC 8725, section 3.11).
const fn media_types(purpose: Purpose) -> &'static [&'static str] {
    match purpose {
        Purpose::Provenance => &["jwt", "provenance+jwt"],
        Purpose::Agents | Purpose::People => &["jwt", "at+jwt"],
    }
}

/// What a token has to be.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'e> {
    /// What it is accepted for.
    pub purpose: Purpose,
    /// Who issued it: `iss`, byte for byte.
    pub issuer: &'e str,
    /// For whom: one of `aud`, byte for byte.
    pub audience: &'e str,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It has too many bytes.
    #[error("a token has at most {TOKEN_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// It is not header, payload and signature.
    #[error("a token is three parts of base64url without padding, with dots between them")]
    Layout,
    /// Its header is not as it has to be.
    #[error("the header of the token is not valid: {0}")]
    Header(String),
    /// Its header brings a key.
    #[error("the token brings a key (`{0}`); only registered keys count")]
    BroughtKey(&'static str),
    /// Its header demands something.
    #[error("the token has the header `crit`, and nothing that it could name is supported")]
    Critical,
    /// It was made for something else.
    #[error("the token is a `{found}` by its `typ`, which is none for {purpose}")]
    MediaType {
        /// What it says that it is.
        found: String,
        /// What it was shown for.
        purpose: &'static str,
    },
    /// Its key is not registered.
    #[error("no key `{0}` is registered for this issuer")]
    UnknownKey(String),
    /// It names no key, and of several that there are none is for such a token.
    #[error(
        "the token names no key (`kid`), and of the several that the issuer has none is without a name and for its \
         algorithm"
    )]
    UnnamedKey,
    /// It names another algorithm than the key is for.
    #[error("the token says `{named}`, and its key is for `{wanted}`")]
    Algorithm {
        /// What it says.
        named: String,
        /// What the key is for.
        wanted: &'static str,
    },
    /// The key has not signed this.
    #[error("the signature of the token does not verify")]
    Signature,
    /// Its payload is not as it has to be.
    #[error("the payload of the token is not valid: {0}")]
    Payload(String),
    /// Somebody else issued it.
    #[error("the token was issued by `{0}`, which is not the registered issuer")]
    Issuer(String),
    /// It is for somebody else.
    #[error("the token is not for the registered audience")]
    Audience,
    /// Its time is over.
    #[error("the token has expired at {at}; it is {now} now")]
    Expired {
        /// When.
        at: Timestamp,
        /// The time now.
        now: Timestamp,
    },
    /// Its time has not come.
    #[error("the token is valid from {from} on (`{claim}`); it is {now} now")]
    NotYet {
        /// The claim that says so.
        claim: &'static str,
        /// From when on.
        from: Timestamp,
        /// The time now.
        now: Timestamp,
    },
}

impl TokenError {
    /// Whether a registered key has signed the token with which [`UnverifiedToken::verify`] finds this wrong: it looks
    /// at the signature first.
    pub const fn is_of_signed_token(&self) -> bool {
        match self {
            Self::TooLong(_)
            | Self::Layout
            | Self::Header(_)
            | Self::BroughtKey(_)
            | Self::Critical
            | Self::UnknownKey(_)
            | Self::UnnamedKey
            | Self::Algorithm { .. }
            | Self::Signature => false,
            Self::MediaType { .. }
            | Self::Payload(_)
            | Self::Issuer(_)
            | Self::Audience
            | Self::Expired { .. }
            | Self::NotYet { .. } => true,
        }
    }
}

/// A token that was read and proves nothing.
#[derive(Debug)]
pub struct UnverifiedToken<'t> {
    jws: Jws<'t>,
    members: Map<String, Value>,
}

impl<'t> UnverifiedToken<'t> {
    /// The token in this text.
    pub fn parse(text: &'t str) -> Result<Self, TokenError> {
        let jws = Jws::parse(text, TOKEN_BYTES_MAX)?;
        let members = json::object_of_token(&jws.payload, TOKEN_BYTES_MAX).map_err(TokenError::Payload)?;
        Ok(Self { jws, members })
    }

    /// Who says that they issued it: good for finding the keys to verify it with, and for nothing else.
    pub fn issuer(&self) -> Option<&str> {
        self.members.get("iss").and_then(Value::as_str)
    }

    /// What it says, if one of these keys has signed it and it is what is expected now.
    pub fn verify(self, keys: &KeySet, expected: Expected<'_>, now: Timestamp) -> Result<Claims, TokenError> {
        let key = self.signed_by(keys)?;
        if let Some(found) = self.jws.media_type()
            && !media_types(expected.purpose).contains(&found)
        {
            return Err(TokenError::MediaType {
                found: clipped(found),
                purpose: expected.purpose.as_str(),
            });
        }
        claims::check(self.members, (self.jws.key_id(), key), expected, now)
    }

    /// Which of these keys has signed it: the one that it names. If it names none, the only one, or one of the first without a
    /// name that are for its algorithm. [`KeySet::verifies_by`] chooses alike.
    fn signed_by<'k>(&self, keys: &'k KeySet) -> Result<&'k PublicKey, TokenError> {
        let has_signed = |key: &'k PublicKey| self.jws.verify(key).map(|()| key);
        if let Some(id) = self.jws.key_id() {
            let named = keys.named(id);
            let key = named.ok_or_else(|| TokenError::UnknownKey(clipped(id)))?;
            return has_signed(key);
        }
        if let Some(only) = keys.only() {
            return has_signed(only);
        }
        let mut verdict = Err(TokenError::UnnamedKey);
        for key in keys.unnamed(|key| self.jws.is_for(key)) {
            verdict = has_signed(key);
            if verdict.is_ok() {
                break;
            }
        }
        verdict
    }
}
