//! Teams and users, and the attributes that they and agents carry.

use crate::key::Role;
use crate::name::Name;
use crate::quota::Quota;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most attributes that one noun may have.
const ATTRIBUTES_MAX: usize = 64;
/// The longest value of an attribute, in bytes.
const VALUE_BYTES_MAX: usize = 1_024;

/// Named facts about an agent, a team or a user. Policies see them as Cedar tags, which are strings: numbers and
/// booleans are written as JSON writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(into = "BTreeMap<Name, serde_json::Value>")]
pub struct Attributes {
    values: BTreeMap<Name, serde_json::Value>,
    /// How long the longest of them is as policies see it, in bytes. It is kept because asks have what they may take
    /// counted by it.
    longest: usize,
}

/// Why values are not attributes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAttributes {
    /// More than a noun may have.
    #[error("there are at most {ATTRIBUTES_MAX} attributes, these are {0}")]
    TooMany(usize),
    /// Not a string, an integer or a boolean.
    #[error(
        "the attribute `{0}` is not a string of at most {VALUE_BYTES_MAX} bytes, an integer or a boolean"
    )]
    NotAScalar(Name),
}

impl Attributes {
    /// The attributes as policies see them, by name.
    pub fn tags(&self) -> impl Iterator<Item = (&Name, String)> {
        self.values.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name, text)
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// How long the longest of them is as policies see it, in bytes.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl TryFrom<BTreeMap<Name, serde_json::Value>> for Attributes {
    type Error = InvalidAttributes;
    fn try_from(values: BTreeMap<Name, serde_json::Value>) -> Result<Self, InvalidAttributes> {
        if values.len() > ATTRIBUTES_MAX {
            return Err(InvalidAttributes::TooMany(values.len()));
        }
        let odd = values.iter().find(|(_, value)| match value {
            serde_json::Value::String(text) => text.len() > VALUE_BYTES_MAX,
            serde_json::Value::Number(number) => !number.is_i64(),
            serde_json::Value::Bool(_) => false,
            _ => true,
        });
        match odd {
            Some((name, _)) => Err(InvalidAttributes::NotAScalar(name.clone())),
            None => Ok(Self {
                longest: values.values().map(tag_bytes).max().unwrap_or(0),
                values,
            }),
        }
    }
}

/// How long a value is as policies see it.
fn tag_bytes(value: &serde_json::Value) -> usize {
    value.as_str().map_or_else(|| value.to_string().len(), str::len)
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values: BTreeMap<Name, serde_json::Value> = canon::foreign(deserializer)?;
        values.try_into().map_err(D::Error::custom)
    }
}

impl From<Attributes> for BTreeMap<Name, serde_json::Value> {
    fn from(attributes: Attributes) -> Self {
        attributes.values
    }
}

/// A team: agents and users belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    /// The tenant's own id for it.
    pub name: Name,
    /// Facts about it.
    pub attributes: Attributes,
    /// How often its agents together are allowed to act.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Quota>,
}

/// A person on whose behalf agents act, or who approves what they do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The tenant's own id for the person.
    pub name: Name,
    /// The teams the person is in.
    pub teams: BTreeSet<Name>,
    /// Facts about the person.
    pub attributes: Attributes,
    /// What the person may do when signed in with a token of a registered issuer. Policies do not see it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<Role>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_become_tags() {
        let attributes: Attributes = serde_json::from_str(r#"{"tier":"gold","level":3,"vip":true}"#).unwrap();
        let tags: Vec<_> = attributes
            .tags()
            .map(|(name, tag)| format!("{name}={tag}"))
            .collect();
        assert_eq!(tags, ["level=3", "tier=gold", "vip=true"]);
    }

    #[test]
    fn the_longest_is_told_as_policies_see_it() {
        for (json, longest) in [
            ("{}", 0),
            (r#"{"a":"x","b":false}"#, 5),
            (r#"{"a":-1234567}"#, 8),
            (r#"{"a":"\u00e4\n","b":"x"}"#, 3),
        ] {
            let attributes: Attributes = serde_json::from_str(json).unwrap();
            assert_eq!(attributes.longest(), longest, "{json}");
        }
    }

    #[test]
    fn what_a_tag_cannot_hold_is_refused_by_name() {
        let wrapped = r#"{"$serde_json::private::RawValue":"1"}"#;
        for value in ["null", "1.5", "[1]", "{}", "18446744073709551615", wrapped] {
            let error = serde_json::from_str::<Attributes>(&format!("{{\"x\":{value}}}")).unwrap_err();
            assert!(
                error.to_string().contains("the attribute `x`"),
                "{value}: {error}"
            );
        }
    }
}
