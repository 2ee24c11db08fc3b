//! Requests that their sender has signed (HTTP Message Signatures, RFC 9421), by Ed25519.
//!
//! A signature covers what its sender names, so it is worth what it covers: method, target, body and credential, and
//! the headers that decide what is done, at a time, once. One that leaves any of it out is refused. Whether a nonce was
//! seen before is for the caller to remember, until [`SignedRequest::forgotten_at`].

mod base;
mod digest;
mod input;

pub use input::RequestSignature;

use model::Timestamp;

use crate::fields::FieldError;
use crate::key::{Algorithm, PublicKey};
use base::Component;

/// How old a signature may be, in seconds: nonces are remembered as long.
pub const SIGNATURE_AGE_SECONDS_MAX: i64 = 300;
/// How far the clocks of sender and receiver may differ, in seconds.
pub const SIGNATURE_LEEWAY_SECONDS: i64 = crate::token::LEEWAY_SECONDS;
/// Headers that decide what is done, or how often. A signature has to cover each of these that the request has;
/// otherwise a proxy could add or remove one unnoticed.
const DECIDING_HEADERS: [&str; 2] = ["countersign-tenant", "idempotency-key"];
/// The most names of members and parameters in each header that is read: those of one signature, which has one label and
/// six parameters, and the digests of a body. Whoever has a token has the headers of a signature read without a key.
const NAMES_MAX: usize = 64;

/// A request as its receiver got it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// `POST`, …, in upper case.
    pub method: &'r str,
    /// `https` or `http`: how the sender reached the first server of the receiver's.
    pub scheme: &'r str,
    /// The host, and the port if there is one.
    pub authority: &'r str,
    /// The path as it came.
    pub path: &'r str,
    /// What comes behind `?`, as it came; none if there is no `?`.
    pub query: Option<&'r str>,
    /// The lines of the header, in order. Names may have any case.
    pub fields: &'r [(&'r str, &'r str)],
    /// The body.
    pub body: &'r [u8],
}

impl Request<'_> {
    fn has_field(&self, name: &str) -> bool {
        self.fields
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

/// A request that was signed: only a verified signature makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    key_id: String,
    nonce: String,
    created: Timestamp,
    forgotten_at: Timestamp,
}

impl SignedRequest {
    /// The name of the key that has signed it.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// What is in no other request of this key's.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// When it was signed.
    pub const fn created(&self) -> Timestamp {
        self.created
    }

    /// From when on the signature is refused whatever its nonce is, so that the nonce can be forgotten.
    pub const fn forgotten_at(&self) -> Timestamp {
        self.forgotten_at
    }
}

/// Why a request does not count as signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A header cannot be read.
    #[error("`{field}`: {source}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        source: FieldError,
    },
    /// The two headers do not hold one signature.
    #[error("`Signature-Input` and `Signature` should hold one signature, under one label")]
    Labels,
    /// A parameter is missing, or wrong.
    #[error("the parameter `{name}` of the signature {fault}")]
    Parameter {
        /// Which.
        name: &'static str,
        /// What it should be.
        fault: &'static str,
    },
    /// The signature covers something that cannot be told from the request.
    #[error("the signature covers `{0}`, which is not supported")]
    Component(String),
    /// The signature covers something twice.
    #[error("the signature covers `{0}` twice")]
    Repeated(String),
    /// The signature covers a header that the request does not have.
    #[error("the signature covers `{0}`, which the request does not have")]
    Absent(String),
    /// The signature leaves something out.
    #[error("the signature does not cover `{0}`")]
    Uncovered(&'static str),
    /// The key is for something else.
    #[error("requests are signed by Ed25519, and this key is for `{0}`")]
    Key(&'static str),
    /// The key has not signed this request.
    #[error("the signature of the request does not verify")]
    Signature,
    /// The body is another one.
    #[error("`Content-Digest` should have a `sha-256`, and it should be that of the body")]
    Digest,
    /// It is too old, or its time is over.
    #[error("the signature was good until {until}; it is {now} now")]
    Expired {
        /// Until when.
        until: Timestamp,
        /// The time now.
        now: Timestamp,
    },
    /// Its time has not come.
    #[error("the signature is of {created}; it is {now} now")]
    NotYet {
        /// When it says that it was made.
        created: Timestamp,
        /// The time now.
        now: Timestamp,
    },
}

impl RequestSignature {
    /// The request as a signed one, if this key has signed it, as far as it has to, and not long ago.
    pub fn verify(
        self,
        request: &Request<'_>,
        key: &PublicKey,
        now: Timestamp,
    ) -> Result<SignedRequest, MessageError> {
        self.check_coverage(request)?;
        let nonce = self.nonce.clone().ok_or_else(|| missing("nonce"))?;
        let created = self.created.ok_or_else(|| missing("created"))?;
        let forgotten_at = self.check_time(created, now)?;
        self.check_signature(request, key)?;
        digest::check(request)?;
        Ok(SignedRequest {
            key_id: self.key_id,
            nonce,
            created,
            forgotten_at,
        })
    }

    /// Whether the key has signed what the signature covers, whatever that is.
    fn check_signature(&self, request: &Request<'_>, key: &PublicKey) -> Result<(), MessageError> {
        let algorithm = key.algorithm();
        if algorithm != Algorithm::Ed25519 {
            return Err(MessageError::Key(algorithm.names()[0]));
        }
        let base = base::signed(request, &self.components, &self.parameters)?;
        if key.has_signed(base.as_bytes(), &self.signature) {
            Ok(())
        } else {
            Err(MessageError::Signature)
        }
    }

    /// Whether it covers what the gateway acts upon.
    fn check_coverage(&self, request: &Request<'_>) -> Result<(), MessageError> {
        let covers = |component| self.components.contains(&component);
        let field = |name: &str| Component::Field(name.to_owned());
        let path_and_query = covers(Component::Path) && covers(Component::Query);
        for (is_covered, name) in [
            (covers(Component::Method), "@method"),
            (covers(Component::TargetUri) || path_and_query, "@target-uri"),
            (covers(field("content-digest")), "content-digest"),
            (covers(field("authorization")), "authorization"),
        ] {
            if !is_covered {
                return Err(MessageError::Uncovered(name));
            }
        }
        let uncovered = DECIDING_HEADERS
            .into_iter()
            .find(|name| request.has_field(name) && !covers(field(name)));
        uncovered.map_or(Ok(()), |name| Err(MessageError::Uncovered(name)))
    }

    /// When this signature stops being accepted, if it is now.
    fn check_time(&self, created: Timestamp, now: Timestamp) -> Result<Timestamp, MessageError> {
        let leeway = SIGNATURE_LEEWAY_SECONDS * 1_000;
        if now.plus_millis(leeway) < created {
            return Err(MessageError::NotYet { created, now });
        }
        let oldest = created.plus_millis(SIGNATURE_AGE_SECONDS_MAX * 1_000);
        let until = self.expires.map_or(oldest, |expires| expires.min(oldest));
        let forgotten_at = until.plus_millis(leeway);
        if now >= forgotten_at {
            return Err(MessageError::Expired { until, now });
        }
        Ok(forgotten_at)
    }
}

fn missing(name: &'static str) -> MessageError {
    MessageError::Parameter {
        name,
        fault: "is missing",
    }
}

#[cfg(test)]
mod tests;
