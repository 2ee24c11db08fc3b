//! What whoever changes policies has seen of them, by entity tags (RFC 9110, section 13.1): over anything else nothing
//! is written.
//!
//! It is looked at in the turn of the change. Reading is not conditional: a list is always sent.

use crate::http::{Code, Refusal, conditions};
use axum::http::{HeaderMap, HeaderValue, header};
use canon::Digest;
use model::{Directory, Policy};

/// What is there while somebody changes it.
struct There {
    /// Its entity tag, if it has one.
    tag: Option<String>,
    /// Whether `*` stands for it.
    is_any: bool,
    /// What a tag names that is not its own.
    otherwise: String,
}

/// What `If-Match` names.
enum Seen<'h> {
    /// `*`: whatever is there.
    Any,
    /// One of these entity tags, with their quotes.
    Tags(Vec<&'h str>),
}

/// The entity tag of a version.
pub(super) fn tag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The entity tag of the set of policies with this digest.
pub(super) fn tag_of_set(digest: Digest) -> String {
    format!("\"{digest}\"")
}

/// Refuses whoever has seen another version of a policy than there is, or wants to make it and it is there.
pub(super) fn check(headers: &HeaderMap, policy: Option<&Policy>) -> Result<(), Refusal> {
    let version = policy.filter(|policy| is_there(policy)).map(Policy::version);
    let there = version.map_or("there is none".to_owned(), |version| {
        format!("it is at version {version}")
    });
    let there = There {
        tag: version.map(tag),
        is_any: version.is_some(),
        otherwise: format!("another version of the policy: {there}"),
    };
    there.check(headers)
}

/// Refuses whoever has seen another set of policies than the tenant has. The set has a tag also where it is empty, and
/// then `*` does not stand for it.
pub(super) fn check_set(headers: &HeaderMap, directory: &Directory) -> Result<(), Refusal> {
    let there = There {
        tag: Some(tag_of_set(directory.digest_of_policies())),
        is_any: directory.policies.values().any(|policy| is_there(policy)),
        otherwise: "another set of policies than there is".to_owned(),
    };
    there.check(headers)
}

/// Refuses conditions by entity tags: a POST makes what is not there, and looks at nothing that somebody has seen.
pub(super) fn check_none(headers: &HeaderMap) -> Result<(), Refusal> {
    let conditions = [
        (header::IF_MATCH, "If-Match"),
        (header::IF_NONE_MATCH, "If-None-Match"),
    ];
    // A condition that nobody looks at would be taken for one that holds.
    match conditions.iter().find(|(name, _)| headers.contains_key(name)) {
        Some((_, name)) => {
            let detail = format!(
                "`{name}` does not go with a POST: leave it out, or make the policy by a PUT with `If-None-Match: *`"
            );
            Err(Refusal::new(Code::InvalidParameter, detail))
        }
        None => Ok(()),
    }
}

fn is_there(policy: &Policy) -> bool {
    policy.deleted_at.is_none()
}

impl There {
    fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if let Some(seen) = Seen::of(headers)?
            && !self.is_named_by(&seen)
        {
            let detail = format!("`If-Match` names {}; read it again", self.otherwise);
            return Err(Refusal::new(Code::PreconditionFailed, detail));
        }
        let instead = "a tag of what was seen goes into `If-Match`";
        conditions::check_none_match(headers, self.is_any, instead)
    }

    /// Whether this is what whoever changes it has seen.
    fn is_named_by(&self, seen: &Seen<'_>) -> bool {
        match seen {
            Seen::Any => self.is_any,
            Seen::Tags(tags) => self.tag.as_deref().is_some_and(|own| tags.contains(&own)),
        }
    }
}

impl<'h> Seen<'h> {
    /// What all lines of the header say together; none if there is no such header.
    fn of(headers: &'h HeaderMap) -> Result<Option<Self>, Refusal> {
        let lines = headers.get_all(header::IF_MATCH).iter();
        let lines: Result<Vec<&str>, _> = lines.map(HeaderValue::to_str).collect();
        let lines = lines.map_err(|_| no_tags())?;
        match lines[..] {
            [] => return Ok(None),
            ["*"] => return Ok(Some(Self::Any)),
            _ => {}
        }
        let mut all = Vec::new();
        for line in lines {
            all.extend(tags(line).ok_or_else(no_tags)?);
        }
        if all.is_empty() {
            return Err(no_tags());
        }
        Ok(Some(Self::Tags(all)))
    }
}

/// The entity tags of a list, with their quotes. None if it is no such list.
fn tags(list: &str) -> Option<Vec<&str>> {
    let (mut tags, mut rest) = (Vec::new(), list);
    loop {
        // A list may have empty members.
        rest = rest.trim_start_matches([',', ' ', '\t']);
        if rest.is_empty() {
            return Some(tags);
        }
        let opaque = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"')?;
        let (_, behind) = opaque.split_once('"')?;
        tags.push(&rest[..rest.len() - behind.len()]);
        rest = behind.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

fn no_tags() -> Refusal {
    let detail =
        "`If-Match` is `*` alone, or entity tags in quotes with commas between them, such as `\"3\"`";
    Refusal::new(Code::InvalidParameter, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tags_is_read_whole_or_not_at_all() {
        assert_eq!(tags("\"1\""), Some(vec!["\"1\""]));
        let many = tags(" ,\"a,b\" ,, W/\"2\",\"\" ");
        assert_eq!(many, Some(vec!["\"a,b\"", "W/\"2\"", "\"\""]));
        assert_eq!(tags(" , "), Some(vec![]));
        for wrong in [
            "1",
            "*",
            "\"1\", *",
            "*, \"1\"",
            "\"1\" \"2\"",
            "\"1",
            "w/\"1\"",
            "\"1\"x",
        ] {
            assert_eq!(tags(wrong), None, "{wrong}");
        }
    }
}
