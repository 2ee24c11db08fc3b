//! A text with a signature in the compact form (RFC 7515, section 7.1), and what its header may say.
//!
//! The header is the attacker's until the signature is verified, so it chooses nothing but the name of a registered key. The
//! key knows its algorithm, and a header that names another one is refused (RFC 8725, sections 3.1 and 3.2).

use serde_json::{Map, Value};

use crate::encoding;
use crate::json;
use crate::key::PublicKey;
use crate::token::TokenError;

/// Members by which a header brings its own key. They are never followed, and a token that has one expects that they are.
const BROUGHT_KEYS: [&str; 4] = ["jwk", "jku", "x5u", "x5c"];

/// A signed text that has been taken apart and not verified.
#[derive(Debug)]
pub(crate) struct Jws<'t> {
    /// What is signed: header, dot, payload, as they came.
    signed: &'t str,
    signature: Vec<u8>,
    header: Header,
    /// What is in the payload.
    pub(crate) payload: Vec<u8>,
}

/// What a header may say.
#[derive(Debug)]
struct Header {
    algorithm: String,
    key_id: Option<String>,
    media_type: Option<String>,
}

impl<'t> Jws<'t> {
    /// The parts of a text of at most `bytes_max` bytes.
    pub(crate) fn parse(text: &'t str, bytes_max: usize) -> Result<Self, TokenError> {
        if text.len() > bytes_max {
            return Err(TokenError::TooLong(text.len()));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Layout)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::Layout)?;
        let decode = |part: &str| encoding::base64url(part).ok_or(TokenError::Layout);
        Ok(Self {
            signed,
            signature: decode(signature)?,
            header: Header::read(&decode(header)?, bytes_max)?,
            payload: decode(payload)?,
        })
    }

    /// The name of the key that it says it is signed with.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.header.key_id.as_deref()
    }

    /// What kind of thing it says that it is, without `application/` (RFC 7515, section 4.1.9).
    pub(crate) fn media_type(&self) -> Option<&str> {
        self.header.media_type.as_deref()
    }

    /// Whether it names the algorithm that the key is for.
    pub(crate) fn is_for(&self, key: &PublicKey) -> bool {
        key.algorithm().names().contains(&self.header.algorithm.as_str())
    }

    /// Whether the key has signed it, in the one way that the key is for.
    pub(crate) fn verify(&self, key: &PublicKey) -> Result<(), TokenError> {
        if !self.is_for(key) {
            return Err(TokenError::Algorithm {
                named: clipped(&self.header.algorithm),
                wanted: key.algorithm().names()[0],
            });
        }
        if key.has_signed(self.signed.as_bytes(), &self.signature) {
            Ok(())
        } else {
            Err(TokenError::Signature)
        }
    }
}

impl Header {
    fn read(bytes: &[u8], bytes_max: usize) -> Result<Self, TokenError> {
        let members = json::object_of_token(bytes, bytes_max).map_err(TokenError::Header)?;
        if let Some(brought) = BROUGHT_KEYS.into_iter().find(|name| members.contains_key(*name)) {
            return Err(TokenError::BroughtKey(brought));
        }
        // Nothing that has to be understood is understood here (RFC 7515, section 4.1.11); `b64` comes with it (RFC 7797).
        if members.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        let text = |member| text(&members, member);
        Ok(Self {
            algorithm: text("alg")?.ok_or_else(|| TokenError::Header("`alg` is missing".to_owned()))?,
            key_id: text("kid")?,
            media_type: text("typ")?.map(|word| plain_media_type(&word)),
        })
    }
}

fn text(members: &Map<String, Value>, member: &str) -> Result<Option<String>, TokenError> {
    match members.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(TokenError::Header(format!("`{member}` should be a string"))),
    }
}

fn plain_media_type(word: &str) -> String {
    let word = word.to_ascii_lowercase();
    word.strip_prefix("application/").unwrap_or(&word).to_owned()
}

/// A word of the sender's, short enough to be repeated.
pub(crate) fn clipped(word: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 64;
    word.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
