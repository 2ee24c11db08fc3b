//! `Idempotency-Key`: what a caller calls a request, so that it can be sent again and happens once.

use super::caller::Holder;
use super::json::CanonicalBody;
use super::refusal::{Code, Refusal};
use crate::gateway::Gateway;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName};
use canon::Digest;
use engine::budgets::moves::Repeat;
use model::{Name, TenantId};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use store::ReplyKey;
use tokens::fields::{self, BareItem, FieldError};

/// By which a caller names a request that may come again.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The most parameters behind a key. They mean nothing here, and are read before any bucket.
const NAMES_MAX: usize = 16;

/// The key of a request: a quoted string (a Structured Field, RFC 9651), or a bare one as it is.
pub fn key(headers: &HeaderMap) -> Result<Option<Name>, Refusal> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| invalid("should be visible ASCII"))?
        .trim();
    let key = if text.starts_with('"') {
        Name::new(&quoted(text)?)
    } else {
        Name::new(text)
    };
    let key = key.map_err(|error| invalid(&error.to_string()))?;
    Ok(Some(key))
}

/// What stands in the quotes. Parameters behind them mean nothing here.
fn quoted(text: &str) -> Result<String, Refusal> {
    let item = fields::item_up_to(NAMES_MAX, text).map_err(|error| match error {
        FieldError::TooManyNames => invalid(&format!(
            "has more than {NAMES_MAX} parameters behind it, which mean nothing here: leave them out"
        )),
        error => invalid(&error.to_string()),
    })?;
    match item.value {
        BareItem::String(text) => Ok(text),
        _ => Err(invalid("should be a string in quotes, or a bare one")),
    }
}

/// The refusal of a key.
pub fn invalid(detail: &str) -> Refusal {
    Refusal::new(Code::InvalidParameter, format!("`Idempotency-Key`: {detail}"))
}

/// A JSON body of a request that may come again. A body whose members may all be left out may be left out itself.
pub struct Repeatable<T> {
    /// What the body says.
    pub body: T,
    key: Option<Name>,
    /// What is asked of which endpoint.
    request: Digest,
}

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for Repeatable<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, Refusal> {
        let key = key(request.headers())?;
        let path = request.uri().path().to_owned();
        let text = CanonicalBody::read_if_any(request, gateway).await?;
        let text = text.map_or_else(|| "{}".to_owned(), |CanonicalBody(text)| text.into_string());
        Ok(Self {
            body: canon::read(&text)?,
            key,
            // No path has a line break, so no two requests look the same.
            request: Digest::of_parts(&[path.as_bytes(), b"\n", text.as_bytes()]),
        })
    }
}

/// By what the requests of one caller are told from those of others: 16 bytes. A person has no id, so it is a digest of the name.
pub fn holder_bytes(holder: &Holder) -> [u8; 16] {
    match holder {
        Holder::Key(key) => *key.id.as_bytes(),
        Holder::Person(person) => {
            let digest = Digest::of(person.user.name.as_str().as_bytes());
            std::array::from_fn(|at| digest.as_bytes()[at])
        }
    }
}

impl<T> Repeatable<T> {
    /// What makes the request the same one again; none if the caller has no name for it.
    pub fn repeat(&self, tenant: TenantId, caller: [u8; 16]) -> Option<Repeat> {
        let key = ReplyKey {
            tenant,
            caller,
            key: self.key.clone()?,
        };
        Some(Repeat {
            key,
            request: self.request,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn read(text: &str) -> Result<String, Code> {
        let value = HeaderValue::from_str(text).unwrap();
        let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, value)]);
        let key = key(&headers).map_err(|refusal| refusal.code())?;
        Ok(key.unwrap().to_string())
    }

    #[test]
    fn a_key_is_the_same_in_quotes_and_without_and_what_is_around_it_does_not_count() {
        for text in [
            "call-1",
            " call-1 ",
            r#""call-1""#,
            r#" "call-1" "#,
            r#""call-1";a=1;b"#,
        ] {
            assert_eq!(read(text).as_deref(), Ok("call-1"), "{text}");
        }
        let escaped = r#""a\"b\\c""#;
        assert_eq!(read(escaped).as_deref(), Ok(r#"a"b\c"#));
        // Only what begins with a quote is a string of structured fields.
        for bare in [r#"a"b"#, r#"a\"b\\c"#, "a;b=1", "?1", ":YQ==:"] {
            assert_eq!(read(bare).as_deref(), Ok(bare));
        }
        let longest = "a".repeat(256);
        assert_eq!(read(&format!("\"{longest}\"")), Ok(longest));
    }

    /// Each name is looked for among those before it.
    #[test]
    fn a_key_with_more_parameters_than_anybody_sends_is_refused() {
        let with = |count: usize| {
            let parameters: Vec<_> = (0..count).map(|number| format!(";p{number}")).collect();
            format!("\"call-1\"{}", parameters.concat())
        };
        assert_eq!(read(&with(16)).as_deref(), Ok("call-1"));
        assert_eq!(read(&with(17)), Err(Code::InvalidParameter));
        let refusal = quoted(&with(17)).unwrap_err();
        assert_eq!(
            refusal.detail(),
            "`Idempotency-Key`: has more than 16 parameters behind it, which mean nothing here: leave them out"
        );
    }

    #[test]
    fn what_begins_with_a_quote_and_is_no_string_is_refused() {
        for text in [
            "\"",
            r#""""#,
            r#""a"#,
            r#""a" b"#,
            r#""a"b"#,
            r#""a", "b""#,
            r#""a\b""#,
            r#""a\""#,
            r#""a";B=1"#,
        ] {
            assert_eq!(read(text), Err(Code::InvalidParameter), "{text}");
        }
    }
}
