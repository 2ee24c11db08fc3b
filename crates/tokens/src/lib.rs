//! What others have signed, verified: tokens of registered issuers (JWS and JWT) and requests (HTTP Message Signatures).
//!
//! A map of the crate, in the order in which a token travels:
//! - `json`, `encoding`: JSON that can be read in one way only, and base64;
//! - [`key`], [`jwks`]: public keys, and the set of an issuer's (RFC 7517);
//! - `jws`: a text with a signature (RFC 7515), of which the key decides the algorithm;
//! - [`token`]: from a text that proves nothing to [`Claims`], which only a verified token makes (RFC 7519, RFC 8725);
//! - [`claims`], [`provenance`]: what a token says;
//! - [`fields`]: structured fields of HTTP (RFC 9651);
//! - [`message`]: a request whose sender has signed it (RFC 9421), and the digest of its body (RFC 9530).
//!
//! It verifies and never signs, does no I/O, and has no clock: the time is an argument. Whom a token stands for, whether it was
//! seen before, and where keys come from is the caller's business.

pub mod claims;
pub mod fields;
pub mod jwks;
pub mod key;
pub mod message;
pub mod provenance;
pub mod token;

mod encoding;
mod json;
mod jwk;
mod jws;

pub use claims::{ClaimError, Claims};
pub use jwk::KeyError;
pub use jwks::{KEY_SET_BYTES_MAX, KEYS_MAX, KeySet, KeySetError};
pub use key::{Algorithm, PublicKey};
pub use message::{MessageError, Request, RequestSignature, SignedRequest};
pub use provenance::ProvenanceClaims;
pub use token::{Expected, LEEWAY_SECONDS, Purpose, TOKEN_BYTES_MAX, TokenError, UnverifiedToken};
