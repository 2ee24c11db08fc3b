//! Query parameters, all of which must be known: a misspelt filter that is ignored would answer another question.

use super::page::PageQuery;
use super::refusal::{Code, Refusal};
use axum::extract::{FromRequestParts, Query as Lenient, Request};
use axum::http::Uri;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// What `axum` says before it says what is wrong.
const PREAMBLE: &str = "Failed to deserialize query string: ";
/// What Rust says of a text that is no whole number, and what a person would.
const NO_NUMBER: [(&str, &str); 3] = [
    (
        "invalid digit found in string",
        "should be a whole number in digits",
    ),
    (
        "cannot parse integer from empty string",
        "should be a whole number in digits",
    ),
    ("number too large to fit in target type", "too large a number"),
];

/// The parameters of a request. `T` denies unknown fields.
pub struct Query<T>(pub T);

/// The parameters of a request that has none.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

/// The parameters of a list: what is on the page, and which page it is. `T` knows `limit` and `cursor` and ignores them.
pub struct ListQuery<T> {
    /// What is on the page.
    pub filter: T,
    /// Which page it is.
    pub page: PageQuery,
}

/// Which page it is, beside parameters that `T` knows.
#[derive(serde::Deserialize)]
struct Place {
    limit: Option<String>,
    cursor: Option<String>,
}

impl From<Place> for PageQuery {
    fn from(place: Place) -> Self {
        Self {
            limit: place.limit,
            cursor: place.cursor,
        }
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        read(&parts.uri).map(Self)
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for ListQuery<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self {
            filter: read(&parts.uri)?,
            page: read::<Place>(&parts.uri)?.into(),
        })
    }
}

/// Refuses the parameters of a request that has none: one that is ignored may have been meant to keep something from being done.
pub fn refuse_any(uri: &Uri) -> Result<(), Refusal> {
    match uri.query() {
        Some(_) => read(uri).map(|NoParameters {}| ()),
        None => Ok(()),
    }
}

/// Refuses them before a handler runs that would not look at them.
pub async fn without_any(request: Request, next: Next) -> Result<Response, Refusal> {
    refuse_any(request.uri())?;
    Ok(next.run(request).await)
}

fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    check_text(uri.query().unwrap_or_default())?;
    match Lenient::try_from_uri(uri) {
        Ok(Lenient(value)) => Ok(value),
        Err(rejection) => {
            let text = rejection.body_text();
            let text = text
                .strip_prefix(PREAMBLE)
                .unwrap_or(&text)
                .replace("unknown field", "unknown parameter")
                .replace("there are no fields", "there are none here");
            let text = no_number(canon::in_plain_words(&text));
            Err(invalid(
                text.split_once(": ")
                    .map_or(text.clone(), |(name, detail)| format!("`{name}`: {detail}")),
            ))
        }
    }
}

/// Refuses bytes that are no text. What is read in their place would be the value of somebody else.
fn check_text(query: &str) -> Result<(), Refusal> {
    let mut pairs = query.split('&');
    let Some(pair) = pairs.find(|pair| std::str::from_utf8(&unescaped(pair)).is_err()) else {
        return Ok(());
    };
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    let detail = format!(
        "`{name}`: the bytes behind `%` are not UTF-8; write text as UTF-8 and then each byte as `%XX`"
    );
    Err(invalid(detail))
}

/// The bytes that a part of a query stands for. A `%` without two hexadecimal digits stands for itself.
fn unescaped(part: &str) -> Cow<'_, [u8]> {
    let mut rest = part.as_bytes();
    if !rest.contains(&b'%') {
        return Cow::Borrowed(rest);
    }
    let mut bytes = Vec::with_capacity(rest.len());
    while let [first, behind @ ..] = rest {
        let (byte, behind) = escape(rest).unwrap_or((*first, behind));
        bytes.push(byte);
        rest = behind;
    }
    Cow::Owned(bytes)
}

/// The byte that is written as `%XX` at the beginning, and what is behind it.
fn escape(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, behind @ ..] = bytes else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = digit(*high)? * 16 + digit(*low)?;
    Some((u8::try_from(byte).ok()?, behind))
}

/// What is said about a query; where it is about a text that is no whole number, without the words of Rust.
fn no_number(text: String) -> String {
    let mut known = NO_NUMBER.iter();
    let plain = known.find_map(|(rust, plain)| Some(format!("{}{plain}", text.strip_suffix(rust)?)));
    plain.unwrap_or(text)
}

/// A parameter that is wrong.
pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::InvalidParameter, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Parameters {
        agent: Option<model::AgentId>,
        from_seq: Option<u64>,
        to_seq: Option<NonZeroU64>,
    }

    fn refusal(query: &str) -> String {
        let uri = format!("/v1/decisions?{query}").parse().unwrap();
        let refusal = read::<Parameters>(&uri).unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidParameter);
        let problem: serde_json::Value = serde_json::from_str(&refusal.to_problem("r")).unwrap();
        problem["detail"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_parameter_is_named_when_it_is_wrong() {
        assert!(refusal("agent=me").starts_with("`agent`: `me` is not an id of the form `agt_`"));
        for text in ["-1", "abc", "1.5", ""] {
            let query = format!("from_seq={text}");
            assert_eq!(refusal(&query), "`from_seq`: should be a whole number in digits");
        }
        assert_eq!(
            refusal("to_seq=99999999999999999999"),
            "`to_seq`: too large a number"
        );
        assert_eq!(
            refusal("to_seq=0"),
            "`to_seq`: invalid value: integer `0`, expected a whole number from 1 on"
        );
    }

    #[test]
    fn a_parameter_is_named_when_it_is_unknown_or_comes_twice() {
        assert_eq!(
            refusal("agnet=1"),
            "`agnet`: unknown parameter `agnet`, expected one of `agent`, `from_seq`, `to_seq`"
        );
        assert!(refusal("from_seq=1&from_seq=2").contains("`from_seq`"));
    }

    #[test]
    fn where_there_are_no_parameters_all_are_unknown() {
        let none = |path: &str| refuse_any(&path.parse().unwrap());
        for path in ["/v1/authorize", "/v1/authorize?"] {
            none(path).unwrap();
        }
        for query in ["mode=dry_run", "mode", "mode=", "&mode=enforce"] {
            let refusal = none(&format!("/v1/authorize?{query}")).unwrap_err();
            let problem: serde_json::Value = serde_json::from_str(&refusal.to_problem("r")).unwrap();
            assert_eq!(
                problem["detail"], "`mode`: unknown parameter `mode`, there are none here",
                "{query}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_and_not_read_as_something_else() {
        #[derive(Debug, serde::Deserialize)]
        struct Filter {
            user: Option<String>,
        }
        let read = |query: &str| read::<Filter>(&format!("/v1/decisions?{query}").parse().unwrap());
        for query in [
            "user=%FF",
            "user=mail%ff",
            "limit=1&user=%C3%28",
            "user=%C3&%A9=1",
        ] {
            let refusal = read(query).unwrap_err();
            assert_eq!(refusal.code(), Code::InvalidParameter, "{query}");
            assert!(refusal.to_problem("r").contains("`user`: the bytes"), "{query}");
        }
        for (query, user) in [
            ("user=%EF%BF%BD", "\u{fffd}"),
            ("user=%C3%A9", "é"),
            ("user=100%", "100%"),
            ("user=%zz+%2", "%zz %2"),
        ] {
            assert_eq!(read(query).unwrap().user.as_deref(), Some(user), "{query}");
        }
    }

    #[test]
    fn known_parameters_are_read() {
        let uri = "/v1/decisions?from_seq=7".parse().unwrap();
        let parameters: Parameters = read(&uri).unwrap();
        let Parameters {
            agent,
            from_seq,
            to_seq,
        } = parameters;
        assert_eq!((agent, from_seq, to_seq), (None, Some(7), None));
    }
}
