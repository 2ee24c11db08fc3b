//! The id of a request: taken from `X-Request-Id` or made, sent back as it came, and named in every problem. The log
//! has it where the gateway has made a mistake.
//!
//! It is the outermost of what is done for a request, so it is also the one place where refusals are rendered and
//! requests are counted.

use super::answers::Recipient;
use super::json::readable;
use super::messagepack;
use super::refusal::{Code, Refusal};
use super::writing::Unwritten;
use crate::gateway::Gateway;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use model::Entropy;
use std::io::Write;
use std::sync::Arc;

/// By which a caller names a request, and the gateway does in its response.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id of a caller's that is taken over.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// What says that there is another format at the same address (RFC 9110, section 12.5.5).
const BY_FORMAT: HeaderValue = HeaderValue::from_static("Accept");
/// How long an id is that was made here.
pub const MADE_LEN: usize = 20;

/// The id of the request that is being answered.
#[derive(Debug, Clone)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Counts what has kept the gateway from doing what this request asks for, or answering one of its asks. If it was
    /// a mistake of the gateway, the log has it.
    pub fn note(&self, gateway: &Gateway, refusal: &Refusal) {
        gateway.metrics.count_refusal(refusal.code());
        if refusal.code() == Code::Internal {
            let (request_id, detail) = (self.as_str(), refusal.detail());
            tracing::error!(
                request_id,
                "a request, or an ask of it, has ended with a mistake of the gateway: {detail}"
            );
        }
    }

    /// Counts what has kept the gateway from doing one of several things that this request asks for, if it was a
    /// mistake of the gateway.
    pub fn note_part(&self, gateway: &Gateway, refusal: &Refusal) {
        if refusal.code() == Code::Internal {
            self.note(gateway, refusal);
        }
    }

    /// The id of a request with this head: its caller's, or a new one.
    pub(crate) fn of(headers: &HeaderMap, gateway: &Gateway) -> Self {
        Self(given(headers).cloned().unwrap_or_else(|| {
            HeaderValue::from_bytes(&make(&*gateway.entropy)).expect("hexadecimal digits are visible ASCII")
        }))
    }
}

/// The id that a caller gives, if it can be sent back as it came and read everywhere: printable ASCII. Spaces are
/// inside only, because those around a value are no part of it (RFC 9110, section 5.5).
fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID).filter(|value| {
        let bytes = value.as_bytes();
        let is_printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
        let fits = (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len());
        is_printable && fits && bytes.trim_ascii() == bytes
    })
}

/// An id for a request that has none: 64 random bits.
pub fn make(entropy: &dyn Entropy) -> [u8; MADE_LEN] {
    let mut random = [0; 8];
    entropy.fill(&mut random);
    let mut id = [0; MADE_LEN];
    write!(&mut id[..], "req_{:016x}", u64::from_be_bytes(random)).expect("sixteen digits fit");
    id
}

/// What the response to a request has to be like, whatever comes of it.
pub struct Reception {
    id: RequestId,
    /// The name of MessagePack by which it is asked for.
    message: Option<&'static str>,
    /// Whether somebody on the way may keep it and give it to others. Answers to a POST are not kept, so that of an ask
    /// is not a byte longer.
    may_be_kept: bool,
}

impl Reception {
    /// What is wanted of the response to a request with this head.
    pub fn of(request: &Request, gateway: &Gateway) -> Self {
        let headers = request.headers();
        Self {
            id: RequestId::of(headers, gateway),
            message: messagepack::asked(headers),
            may_be_kept: matches!(*request.method(), Method::GET | Method::HEAD),
        }
    }

    /// The response that the caller gets.
    pub async fn respond(self, gateway: &Gateway, outcome: Result<Response, Refusal>) -> Response {
        let outcome = match outcome {
            Ok(response) => self.let_out(gateway, response).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = match outcome {
            Ok(response) => response,
            Err(refusal) => {
                self.id.note(gateway, &refusal);
                self.worded(refusal.render(self.id.as_str())).await
            }
        };
        response.headers_mut().insert(X_REQUEST_ID, self.id.0);
        response
    }

    /// A response as it leaves, whole and in the format that the caller wants.
    async fn let_out(&self, gateway: &Gateway, mut response: Response) -> Result<Response, Refusal> {
        let unwritten = match response.extensions_mut().remove::<Unwritten>() {
            None if self.message.is_some() && Unwritten::is_due(&response) => {
                Some(Box::pin(Unwritten::of(&gateway.options.answers, &mut response)).await?)
            }
            unwritten => unwritten,
        };
        let response = match unwritten {
            Some(unwritten) => {
                self.note_format(&mut response);
                // Boxed, because no ask has one, and each would have the room for it.
                Box::pin(unwritten.write(gateway, response, self.message)).await?
            }
            None => self.worded(response).await,
        };
        // Only as it leaves is it known how long it is.
        gateway.options.answers.let_out(response).await
    }

    /// Says that there is another format, where there is one and that is worth saying.
    fn note_format(&self, response: &mut Response) {
        if self.may_be_kept && messagepack::has_two_forms(response) {
            response.headers_mut().append(header::VARY, BY_FORMAT);
        }
    }

    /// A response in the format that the caller wants.
    async fn worded(&self, mut response: Response) -> Response {
        self.note_format(&mut response);
        match self.message {
            Some(name) => messagepack::answer(response, name).await,
            None => response,
        }
    }
}

/// Gives the request its id, and the response too.
pub async fn layer(State(gateway): State<Arc<Gateway>>, mut request: Request, next: Next) -> Response {
    let reception = Reception::of(&request, &gateway);
    request.extensions_mut().insert(reception.id.clone());
    let mut response = readable(next.run(request).await).await;
    let outcome = match response.extensions_mut().remove::<Refusal>() {
        Some(refusal) if refusal.may_be_long() => {
            reception.id.note(&gateway, &refusal);
            let recipient = response.extensions_mut().remove::<Recipient>();
            let mut refused = refusal.render_in_turn(reception.id.as_str());
            refused
                .extensions_mut()
                .insert(recipient.unwrap_or_default().told());
            Ok(refused)
        }
        Some(refusal) => Err(refusal),
        None => Ok(response),
    };
    reception.respond(&gateway, outcome).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is taken over of such a header.
    fn taken(value: &[u8]) -> Option<Vec<u8>> {
        let value = HeaderValue::from_bytes(value).unwrap();
        let headers = HeaderMap::from_iter([(X_REQUEST_ID, value)]);
        given(&headers).map(|given| given.as_bytes().to_vec())
    }

    #[test]
    fn an_id_is_printable_ascii_and_spaces_inside_are_part_of_it() {
        let longest = "x".repeat(REQUEST_ID_BYTES_MAX);
        for id in ["a", "req 42/=;x", "a  b", "!~", &longest] {
            assert_eq!(taken(id.as_bytes()).as_deref(), Some(id.as_bytes()), "{id}");
        }
        let too_long = "x".repeat(REQUEST_ID_BYTES_MAX + 1);
        for other in ["", " ", " a", "a ", "a\tb", "größe", &too_long] {
            assert_eq!(taken(other.as_bytes()), None, "{other}");
        }
        assert_eq!(given(&HeaderMap::new()), None);
    }
}
