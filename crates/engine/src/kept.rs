//! What a decision's entry keeps of the parameters, as the tenant has set it.

use crate::ask::Ask;
use crate::judge::Judgement;
use model::keeping::escaped;
use model::{Keeping, Pointer, Settings};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Parameters as they are kept.
pub(crate) struct Kept<'a> {
    /// A canonical object.
    pub(crate) parameters: Cow<'a, str>,
    /// RFC 6901 pointers to what was taken out, sorted; `null` stands in its place.
    pub(crate) redacted: Vec<String>,
}

/// What is kept of an ask's parameters; `None` if it is their digest only.
pub(crate) fn kept<'a>(settings: &Settings, ask: &'a Ask, judgement: &Judgement) -> Option<Kept<'a>> {
    match settings.parameters {
        Keeping::Digest => None,
        Keeping::Clear => Some(Kept {
            parameters: Cow::Borrowed(&ask.action.parameters),
            redacted: Vec::new(),
        }),
        // What no policy has looked at, or what some could not, may hold more than anybody has named.
        Keeping::Redacted => redacted(
            &ask.action.parameters,
            &settings.redact,
            judgement.redact.as_ref()?,
        ),
    }
}

/// Canonical parameters without what these pointers and these paths of obligations name.
fn redacted<'a>(text: &'a str, pointers: &[Pointer], paths: &[String]) -> Option<Kept<'a>> {
    let mut parameters: Value = serde_json::from_str(text).ok()?;
    let mut redacted = Vec::new();
    for pointer in pointers {
        if pointer.take_out_of(&mut parameters) {
            redacted.push(pointer.as_str().to_owned());
        }
    }
    if let Value::Object(members) = &mut parameters {
        for path in paths {
            take_out(members, path, "", &mut redacted);
        }
    }
    redacted.sort_unstable();
    redacted.dedup();
    let parameters = if redacted.is_empty() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(canon::of(&parameters).ok()?.into_string())
    };
    Some(Kept { parameters, redacted })
}

/// Takes out whatever an obligation's path may mean: a dot descends into an object, and may be part of a name, too.
fn take_out(members: &mut Map<String, Value>, path: &str, place: &str, redacted: &mut Vec<String>) {
    if let Some(value) = members.get_mut(path) {
        value.take();
        redacted.push(format!("{place}/{}", escaped(path)));
    }
    for (dot, _) in path.match_indices('.') {
        let (name, rest) = (&path[..dot], &path[dot + 1..]);
        if let Some(Value::Object(inner)) = members.get_mut(name) {
            take_out(inner, rest, &format!("{place}/{}", escaped(name)), redacted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str, pointers: &[&str], paths: &[&str]) -> (String, Vec<String>) {
        let pointers: Vec<_> = pointers.iter().map(|text| Pointer::new(*text).unwrap()).collect();
        let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
        let kept = redacted(text, &pointers, &paths).unwrap();
        (kept.parameters.into_owned(), kept.redacted)
    }

    #[test]
    fn what_is_named_is_taken_out_and_said_to_be() {
        let (text, redacted) = left(
            r#"{"auth":{"password":"x","user":"u"},"card":[{"no":1},{"no":2}],"pin":3}"#,
            &["/card/1/no", "/absent", "/pin"],
            &["auth.password", "pin", "card.no"],
        );
        assert_eq!(
            text,
            r#"{"auth":{"password":null,"user":"u"},"card":[{"no":1},{"no":null}],"pin":null}"#
        );
        assert_eq!(redacted, ["/auth/password", "/card/1/no", "/pin"]);
    }

    #[test]
    fn a_path_names_everything_that_it_may_mean() {
        let (text, redacted) = left(
            r#"{"a":{"b":{"c":1},"b.c":2},"a.b":{"c":3},"a.b.c":4,"a/b":5}"#,
            &[],
            &["a.b.c", "a/b"],
        );
        assert_eq!(
            text,
            r#"{"a":{"b":{"c":null},"b.c":null},"a.b":{"c":null},"a.b.c":null,"a/b":null}"#
        );
        assert_eq!(redacted, ["/a.b.c", "/a.b/c", "/a/b.c", "/a/b/c", "/a~1b"]);
    }

    #[test]
    fn parameters_that_have_nothing_of_it_stay_byte_for_byte() {
        let text = r#"{"n":1e+21,"x":9007199254740993}"#;
        assert_eq!(left(text, &["/y"], &["z"]), (text.to_owned(), Vec::new()));
    }
}
