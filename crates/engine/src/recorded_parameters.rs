//! What a decision's entry records of the parameters, as the tenant has set it.

use crate::ask::Ask;
use crate::judge::Judgement;
use model::parameter_recording::escaped;
use model::{ParameterRecording, Pointer, Settings};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// In an object with fewer members each of them is compared with a path, which takes no longer than to look for the
/// dots of a long one.
const LOOKED_UP_MIN: usize = 64;

/// Parameters as they are recorded.
pub(crate) struct RecordedParameters<'a> {
    /// A canonical object.
    pub(crate) parameters: Cow<'a, str>,
    /// RFC 6901 pointers to what was taken out, sorted; `null` stands in its place.
    pub(crate) redacted: Vec<String>,
}

/// What is recorded of an ask's parameters; `None` if it is their digest only.
pub(crate) fn recorded_parameters<'a>(
    settings: &Settings,
    ask: &'a Ask,
    judgement: &Judgement,
) -> Option<RecordedParameters<'a>> {
    match settings.parameters {
        ParameterRecording::Digest => None,
        ParameterRecording::Clear => Some(RecordedParameters {
            parameters: Cow::Borrowed(&ask.action.parameters),
            redacted: Vec::new(),
        }),
        // What no policy has looked at, or what some could not, may hold more than anybody has named.
        ParameterRecording::Redacted => redacted(
            &ask.action.parameters,
            &settings.redact,
            judgement.redact.as_ref()?,
        ),
    }
}

/// Canonical parameters without what these pointers and these paths of obligations name.
fn redacted<'a>(text: &'a str, pointers: &[Pointer], paths: &[String]) -> Option<RecordedParameters<'a>> {
    let mut parameters = canon::value(text).ok()?;
    let mut taking = Taking::default();
    for pointer in pointers {
        if pointer.take_out_of(&mut parameters) {
            taking.redacted.push(pointer.as_str().to_owned());
        }
    }
    if let Value::Object(members) = &mut parameters {
        for path in paths {
            taking.take_out(members, path);
        }
    }
    let mut redacted = taking.redacted;
    redacted.sort_unstable();
    redacted.dedup();
    let parameters = if redacted.is_empty() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(canon::of(&parameters).ok()?.into_string())
    };
    Some(RecordedParameters { parameters, redacted })
}

/// What is taken out of parameters.
#[derive(Default)]
struct Taking {
    /// The pointer to the object that is looked at.
    place: String,
    redacted: Vec<String>,
}

impl Taking {
    /// Takes out whatever an obligation's path may mean: a dot descends into an object, and may be part of a name, too.
    /// Every member is gone to once at most, however many dots there are; where there are many members, those that the
    /// path may mean are looked up.
    fn take_out(&mut self, members: &mut Map<String, Value>, path: &str) {
        if members.len() < LOOKED_UP_MIN || path.match_indices('.').nth(members.len()).is_some() {
            for (name, value) in members {
                if let Some(rest) = path.strip_prefix(name.as_str()) {
                    self.go_to(name, value, rest);
                }
            }
            return;
        }
        let dots = path.match_indices('.').map(|(at, _)| at);
        for end in dots.chain([path.len()]) {
            let (name, rest) = path.split_at(end);
            if let Some(value) = members.get_mut(name) {
                self.go_to(name, value, rest);
            }
        }
    }

    /// Takes out a member whose name a path begins with, or what the rest of the path may mean in it.
    fn go_to(&mut self, name: &str, value: &mut Value, rest: &str) {
        let outside = self.place.len();
        self.place.push('/');
        self.place.push_str(&escaped(name));
        if rest.is_empty() {
            value.take();
            self.redacted.push(self.place.clone());
        } else if let (Some(rest), Value::Object(inner)) = (rest.strip_prefix('.'), value) {
            self.take_out(inner, rest);
        }
        self.place.truncate(outside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str, pointers: &[&str], paths: &[&str]) -> (String, Vec<String>) {
        let pointers: Vec<_> = pointers.iter().map(|text| Pointer::new(*text).unwrap()).collect();
        let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
        let recorded = redacted(text, &pointers, &paths).unwrap();
        (recorded.parameters.into_owned(), recorded.redacted)
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

    /// Under that name `serde_json` would read what is in its text.
    #[test]
    fn what_is_recorded_is_what_was_sent_whatever_its_members_are_called() {
        let (text, redacted) = left(
            r#"{"$serde_json::private::RawValue":"{\"pin\":3}","pin":4}"#,
            &["/pin"],
            &[],
        );
        assert_eq!(
            text,
            r#"{"$serde_json::private::RawValue":"{\"pin\":3}","pin":null}"#
        );
        assert_eq!(redacted, ["/pin"]);
    }

    /// Objects that a path of many `a` leads into in many ways.
    fn ways(depth: usize) -> String {
        if depth == 0 {
            return r#"{"a":{"b":1}}"#.to_owned();
        }
        let inner = ways(depth - 1);
        format!(r#"{{"a":{inner},"a.a":{inner}}}"#)
    }

    /// To look up each part of the path in each object would take for ever.
    #[test]
    fn a_path_is_followed_along_what_is_there() {
        let text = ways(10);
        let absent = "a.".repeat(100_000) + "b";
        assert_eq!(left(&text, &[], &[&absent]), (text.clone(), Vec::new()));
        let (_, redacted) = left(&text, &[], &[&("a.".repeat(12) + "b")]);
        assert_eq!(redacted.len(), 10);
        assert_eq!(redacted[0], format!("/a.a{}/b", "/a".repeat(10)));
    }

    /// To compare each path with each member would take as many times as long.
    #[test]
    fn a_path_is_looked_up_where_there_are_many_members() {
        let names: Vec<_> = (0..30_000).map(|number| format!("name{number}")).collect();
        let paths: Vec<_> = names.iter().map(String::as_str).collect();
        let members: Map<_, _> = names.iter().map(|name| (name.clone(), Value::from(1))).collect();
        let (_, redacted) = left(&Value::Object(members).to_string(), &[], &paths);
        assert_eq!(redacted.len(), names.len());
    }

    #[test]
    fn a_path_means_the_same_among_many_members() {
        let others: Vec<_> = (0..100).map(|number| format!(r#""{number}":0"#)).collect();
        let text = format!(
            r#"{{"":{{"a":1}},"a":{{"b":{{"c":2}},"b.c":3}},"a.b":{{"c":4}},"a.b.c":{{"d":5}},{}}}"#,
            others.join(",")
        );
        let (_, redacted) = left(&text, &[], &["a.b.c", ".a", "7", "7.x"]);
        assert_eq!(redacted, ["//a", "/7", "/a.b.c", "/a.b/c", "/a/b.c", "/a/b/c"]);
    }

    #[test]
    fn parameters_that_have_nothing_of_it_stay_byte_for_byte() {
        let text = r#"{"n":1e+21,"x":9007199254740993}"#;
        assert_eq!(left(text, &["/y"], &["z"]), (text.to_owned(), Vec::new()));
    }
}
