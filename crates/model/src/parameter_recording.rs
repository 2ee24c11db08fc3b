//! What is recorded of an ask's parameters, beside their digest.

use crate::tenant::Settings;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// The longest pointer, in bytes.
const POINTER_BYTES_MAX: usize = 512;
/// The most parameters that a tenant can name.
pub(crate) const POINTERS_MAX: usize = 256;

/// What a tenant's ledger records of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterRecording {
    /// The digest of the action that they are part of.
    #[default]
    Digest,
    /// The parameters, but for those that the tenant or an obligation names.
    Redacted,
    /// All of them, as they were sent.
    Clear,
}

impl ParameterRecording {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An RFC 6901 pointer to a part of the parameters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer(String);

/// Why a text is not a pointer to a part of something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPointer {
    /// It does not begin with `/`.
    #[error("`{0}` is not a JSON Pointer into the parameters, such as `/card/number`")]
    NotAPointer(String),
    /// A `~` that is neither `~0` nor `~1`.
    #[error("in `{0}` a `~` is not written `~0`, nor a `/` within a name `~1`")]
    Escape(String),
    /// More than it may have.
    #[error("a pointer has at most {POINTER_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
}

impl Pointer {
    /// The pointer with this text, if it is one.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidPointer> {
        let text = text.into();
        if text.len() > POINTER_BYTES_MAX {
            return Err(InvalidPointer::TooLong(text.len()));
        }
        if !text.starts_with('/') {
            return Err(InvalidPointer::NotAPointer(text));
        }
        if text.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
            return Err(InvalidPointer::Escape(text));
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes what it points to out of a value and leaves `null` in its place. Whether there was anything.
    pub fn take_out_of(&self, value: &mut Value) -> bool {
        value.pointer_mut(&self.0).map(Value::take).is_some()
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl TryFrom<String> for Pointer {
    type Error = InvalidPointer;
    fn try_from(text: String) -> Result<Self, InvalidPointer> {
        Self::new(text)
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.0
    }
}

/// A name as a part of a pointer.
pub fn escaped(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) {
        Cow::Owned(name.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(name)
    }
}

impl Settings {
    /// What of the settings contradicts the rest, in words.
    pub fn contradiction(&self) -> Option<String> {
        if !self.redact.is_empty() && self.parameters != ParameterRecording::Redacted {
            let detail = "names parameters, which goes with `parameters` `redacted` only: with `digest` none are kept, and with `clear` all";
            return Some(detail.to_owned());
        }
        (self.redact.len() > POINTERS_MAX).then(|| format!("has at most {POINTERS_MAX} pointers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn without(pointer: &str, mut value: Value) -> (bool, Value) {
        let found = Pointer::new(pointer).unwrap().take_out_of(&mut value);
        (found, value)
    }

    #[test]
    fn what_a_pointer_points_to_is_taken_out_and_the_rest_stays_where_it_is() {
        let value = json!({"a/b~": {"c": [1, {"d": 2}]}, "e": 3});
        assert_eq!(
            without("/a~1b~0/c/1/d", value.clone()),
            (true, json!({"a/b~": {"c": [1, {"d": null}]}, "e": 3}))
        );
        assert_eq!(
            without("/a~1b~0/c/0", value.clone()),
            (true, json!({"a/b~": {"c": [null, {"d": 2}]}, "e": 3}))
        );
        for nothing in ["/c", "/e/x", "/a~1b~0/c/2", "/"] {
            assert_eq!(
                without(nothing, value.clone()),
                (false, value.clone()),
                "{nothing}"
            );
        }
    }

    #[test]
    fn a_text_that_points_nowhere_is_refused() {
        for text in ["", "card", "card/number", "#/card"] {
            assert_eq!(Pointer::new(text), Err(InvalidPointer::NotAPointer(text.into())));
        }
        for text in ["/~", "/a~2b", "/~~0"] {
            assert_eq!(Pointer::new(text), Err(InvalidPointer::Escape(text.into())));
        }
        let long = format!("/{}", "x".repeat(POINTER_BYTES_MAX));
        assert_eq!(
            Pointer::new(long),
            Err(InvalidPointer::TooLong(POINTER_BYTES_MAX + 1))
        );
    }

    #[test]
    fn an_escaped_name_is_found_under_it() {
        for name in ["plain", "a/b", "a~b", "~1", ""] {
            let value = json!({name: 1});
            assert_eq!(
                without(&format!("/{}", escaped(name)), value),
                (true, json!({name: null}))
            );
        }
    }

    #[test]
    fn parameters_are_named_only_where_that_means_something() {
        let settings = |json: Value| serde_json::from_value::<Settings>(json).unwrap();
        for recording in ["digest", "clear"] {
            let settings = settings(json!({"parameters": recording, "redact": ["/x"]}));
            assert!(settings.contradiction().is_some(), "{recording}");
        }
        let fine = settings(json!({"parameters": "redacted", "redact": ["/x"]}));
        assert_eq!(fine.contradiction(), None);
        assert_eq!(Settings::default().contradiction(), None);
    }
}
