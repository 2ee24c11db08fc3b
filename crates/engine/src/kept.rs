//! What a decision's entry keeps of the parameters, as the tenant has set it.

use crate::ask::Ask;
use crate::judge::Judgement;
use model::keeping::escaped;
use model::{Keeping, Settings};
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
        Keeping::Redacted if !judgement.is_ruled() || !judgement.errors.is_empty() => None,
        Keeping::Redacted => redacted(settings, ask, judgement),
    }
}

fn redacted<'a>(settings: &Settings, ask: &'a Ask, judgement: &Judgement) -> Option<Kept<'a>> {
    let mut parameters: Value = serde_json::from_str(&ask.action.parameters).ok()?;
    let mut redacted = Vec::new();
    for pointer in &settings.redact {
        if pointer.take_out_of(&mut parameters) {
            redacted.push(pointer.as_str().to_owned());
        }
    }
    if let Value::Object(members) = &mut parameters {
        for path in &judgement.redact {
            take_out(members, path, "", &mut redacted);
        }
    }
    redacted.sort_unstable();
    redacted.dedup();
    let parameters = if redacted.is_empty() {
        Cow::Borrowed(ask.action.parameters.as_str())
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
