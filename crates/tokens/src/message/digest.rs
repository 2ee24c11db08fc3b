//! The digest of a body in a header (RFC 9530).

use canon::Digest;

use super::base;
use super::{MessageError, NAMES_MAX, Request};
use crate::fields::{self, BareItem, Item, Member};

/// Whether the header `Content-Digest` has the SHA-256 of the body.
pub(super) fn check(request: &Request<'_>) -> Result<(), MessageError> {
    let field = base::field(request, "content-digest").ok_or(MessageError::Digest)?;
    let digests = fields::dictionary_up_to(NAMES_MAX, &field).map_err(|source| MessageError::Field {
        field: "Content-Digest",
        source,
    })?;
    let is_that_of_the_body = digests.iter().any(|(algorithm, member)| {
        let Member::Item(Item {
            value: BareItem::Bytes(bytes),
            ..
        }) = member
        else {
            return false;
        };
        algorithm == "sha-256" && bytes == Digest::of(request.body).as_bytes()
    });
    if is_that_of_the_body {
        Ok(())
    } else {
        Err(MessageError::Digest)
    }
}
