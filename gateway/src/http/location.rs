//! Where something is that a POST has just made: `Location` of a 201 (RFC 9110, section 15.3.2).
//!
//! Only what can be read alone is somewhere. For keys and tokens there is no such `GET`, and a PUT was sent there.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponseParts, ResponseParts};
use serde::Deserialize;
use std::convert::Infallible;
use std::fmt::{Display, Write};

/// The path of it, which stands beside the answer.
pub struct Location(HeaderValue);

/// What an answer says that is written already.
#[derive(Deserialize)]
struct Made<'a> {
    id: &'a str,
}

impl Location {
    /// Under the path of all of its kind, by its id or its name.
    pub(crate) fn of(folder: &str, name: impl Display) -> Self {
        let mut path = format!("{folder}/");
        for byte in name.to_string().bytes() {
            // Everything else may mean something in a path (RFC 3986, section 2.3).
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                write!(path, "%{byte:02X}").expect("a String takes everything");
            }
        }
        Self(path.try_into().expect("a percent-encoded path is visible ASCII"))
    }

    /// By the `id` in the answer.
    pub(crate) fn of_answer(folder: &str, answer: &[u8]) -> Option<Self> {
        let made: Made<'_> = serde_json::from_slice(answer).ok()?;
        Some(Self::of(folder, made.id))
    }
}

impl IntoResponseParts for Location {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.headers_mut().insert(header::LOCATION, self.0);
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_the_path_whatever_is_in_it() {
        for (name, expected) in [
            ("okta-2_a.b~", "/v1/issuers/okta-2_a.b~"),
            ("a/b c", "/v1/issuers/a%2Fb%20c"),
            ("50%?#", "/v1/issuers/50%25%3F%23"),
            ("é", "/v1/issuers/%C3%A9"),
        ] {
            assert_eq!(Location::of("/v1/issuers", name).0, expected);
        }
    }

    #[test]
    fn an_answer_that_is_written_says_where_it_is() {
        let answer = br#"{"allocated":1,"id":"bud_1","scope":{}}"#;
        let location = Location::of_answer("/v1/budgets", answer).unwrap();
        assert_eq!(location.0, "/v1/budgets/bud_1");
        assert!(Location::of_answer("/v1/budgets", b"{}").is_none());
    }
}
