//! Canonical bytes of a JSON text (RFC 8785, JCS) and their SHA-256 digest.
//!
//! Two texts that mean the same have the same canonical bytes, so a digest of those bytes names the meaning. Input
//! is I-JSON (RFC 7493): a text whose meaning could be read in two ways (duplicate keys, lone surrogates, numbers
//! that no double can hold) is refused. No clock, no I/O, and no word of the domain: what is hashed, and why, is the
//! caller's business.
//!
//! - [`canonicalize`]: bytes of a text to canonical text, without a tree between them
//! - [`canonicalize_sent`]: the same for a request, in which fewer texts are good
//! - [`canonicalize_messagepack`], [`canonicalize_sent_messagepack`]: the same for MessagePack
//! - [`of`]: the same for a value that serde can serialize
//! - [`ObjectWriter`]: an object whose keys are known when the program is written, built in canonical order
//! - [`read()`]: a shape from a text, with errors that name the place; [`sent`]: a member of one that is not `null`
//! - [`value`], [`object`], [`members`] and [`foreign()`]: a tree from a text of others, in which no key means anything
//! - [`length()`]: how long a text would be, without making one
//! - [`Digest`]: SHA-256, printed as `sha256:<64 hex>`; [`Hasher`] takes it of what comes in parts

mod canonical;
mod digest;
mod error;
mod foreign;
mod length;
mod messagepack;
mod number;
mod order;
mod read;
mod scan;
mod strict;
mod text;
mod writer;

pub use crate::canonical::{Canonical, of};
pub use crate::digest::{Digest, DigestError, Hasher};
pub use crate::error::{Error, ErrorKind};
pub use crate::foreign::{Foreign, foreign, members, object, value};
pub use crate::length::length;
pub use crate::messagepack::{canonicalize_messagepack, canonicalize_sent_messagepack};
pub use crate::read::{ReadError, in_plain_words, read, sent};
pub use crate::scan::{Integers, Limits, canonicalize, canonicalize_sent};
pub use crate::text::write_string;
pub use crate::writer::ObjectWriter;
