//! Conditions of requests by entity tags (RFC 9110, section 13.1) where what is changed has none.
//!
//! A condition that nobody looks at would be taken for one that holds, so a PUT, PATCH or DELETE with one is refused. A
//! POST goes on: it replaces nothing that somebody has seen, and a freeze must not fail for a header. Policies have
//! tags, and look at theirs themselves.

use super::refusal::{Code, Refusal};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

/// Refuses any condition before a handler runs that would look at none.
pub async fn without_any(request: Request, next: Next) -> Result<Response, Refusal> {
    let headers = request.headers();
    refuse_if_match(headers)?;
    if headers.contains_key(header::IF_NONE_MATCH) {
        let detail =
            "`If-None-Match` goes with a PUT of a team, a user, a tool, a rule or a policy; leave it out";
        return Err(Refusal::new(Code::InvalidParameter, detail));
    }
    Ok(next.run(request).await)
}

/// Refuses whoever wants to make what is there (`If-None-Match: *`), and every other condition.
pub fn check_new(headers: &HeaderMap, is_there: bool) -> Result<(), Refusal> {
    refuse_if_match(headers)?;
    check_none_match(headers, is_there, "send that or leave it out")
}

/// Refuses whoever wants to make what is there (`If-None-Match: *`), and whatever else that header says, with what to
/// do instead.
pub fn check_none_match(headers: &HeaderMap, is_there: bool, instead: &str) -> Result<(), Refusal> {
    let conditions = headers.get_all(header::IF_NONE_MATCH).iter();
    let conditions: Vec<&[u8]> = conditions.map(HeaderValue::as_bytes).collect();
    match conditions[..] {
        [b"*"] if is_there => {
            let detail = "`If-None-Match: *` is for what is not there yet, and it is there; read it";
            Err(Refusal::new(Code::PreconditionFailed, detail))
        }
        [] | [b"*"] => Ok(()),
        // A condition that nobody looks at would be taken for one that holds.
        _ => {
            let detail = format!("`If-None-Match` is `*` where something is changed; {instead}");
            Err(Refusal::new(Code::InvalidParameter, detail))
        }
    }
}

fn refuse_if_match(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(header::IF_MATCH) {
        let detail = "`If-Match` is for policies: nothing else has an `ETag`; leave it out";
        return Err(Refusal::new(Code::InvalidParameter, detail));
    }
    Ok(())
}
