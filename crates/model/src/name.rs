//! Names that tenants give: opaque strings of 1 to 256 bytes, NFC, without control characters.
//!
//! They are compared byte for byte; no case folding, no look-alike detection.

use serde::de::{Deserialize, Deserializer, Error as _};
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use unicode_normalization::UnicodeNormalization;

/// The longest name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 256;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// No bytes at all.
    #[error("a name has at least one byte")]
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("a name has at most {NAME_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// A control character, which logs and terminals would act upon.
    #[error("a name has no control characters, this one has U+{0:04X}")]
    ControlCharacter(u32),
    /// Not in Unicode Normalization Form C, so it could look like another name and differ.
    #[error("a name is in Unicode normalization form C, `{0}` is not")]
    NotNormalized(String),
    /// A segment of a path that clients take out of it, however it is written (RFC 3986, sections 5.2.4 and 6.2.2).
    #[error("`{0}` cannot stand in the path of an address, so nothing new is called that; take another name")]
    DotSegment(String),
    /// A `/` where it would separate two names.
    #[error("`{0}` has a `/`, which separates a tool from its action")]
    Slash(String),
}

fn check(text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(InvalidName::TooLong(text.len()));
    }
    if let Some(control) = text.chars().find(|character| character.is_control()) {
        return Err(InvalidName::ControlCharacter(u32::from(control)));
    }
    if !text.is_ascii() && !text.nfc().eq(text.chars()) {
        return Err(InvalidName::NotNormalized(text.to_owned()));
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name with this text, if it is one.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                let check: fn(&str) -> Result<(), InvalidName> = $check;
                check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name!(
    /// A name of an action, an agent, a team, a user or an environment.
    Name,
    check
);
name!(
    /// A name without `/`: of a tool or a policy, so that `tool/action` and `policy/id` can be told apart again.
    SlashFreeName,
    |text| {
        check(text)?;
        if text.contains('/') { Err(InvalidName::Slash(text.to_owned())) } else { Ok(()) }
    }
);

/// Reads what something is called from now on that is named in the path of an address later.
///
/// # Errors
/// It is no name, or `.` or `..`. What was called so before is a [`Name`] all the same.
pub fn new_segment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    let name = Name::deserialize(deserializer)?;
    check_segment(&name).map_err(D::Error::custom)?;
    Ok(name)
}

/// Reads it where it may be left out, together with `default`.
///
/// # Errors
/// As of [`new_segment`].
pub fn new_segment_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Name>, D::Error> {
    let name = Option::<Name>::deserialize(deserializer)?;
    if let Some(name) = &name {
        check_segment(name).map_err(D::Error::custom)?;
    }
    Ok(name)
}

fn check_segment(name: &Name) -> Result<(), InvalidName> {
    match name.as_str() {
        "." | ".." => Err(InvalidName::DotSegment(name.to_string())),
        _ => Ok(()),
    }
}

/// Every name without a slash is a name.
impl From<SlashFreeName> for Name {
    fn from(name: SlashFreeName) -> Self {
        Self(name.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_byte_for_byte() {
        for text in [
            "a",
            "A",
            "platform leads",
            "Zoë",
            "a/b",
            "\u{1F600}",
            &"x".repeat(256),
        ] {
            assert_eq!(Name::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn two_unicode_forms_of_one_word_cannot_both_be_names() {
        assert!(Name::new("caf\u{e9}").is_ok());
        assert_eq!(
            Name::new("cafe\u{301}"),
            Err(InvalidName::NotNormalized("cafe\u{301}".into()))
        );
    }

    #[test]
    fn empty_long_and_control_characters_are_refused() {
        assert_eq!(Name::new(""), Err(InvalidName::Empty));
        assert_eq!(Name::new(&"x".repeat(257)), Err(InvalidName::TooLong(257)));
        assert_eq!(Name::new("a\nb"), Err(InvalidName::ControlCharacter(10)));
        assert_eq!(Name::new("a\u{85}b"), Err(InvalidName::ControlCharacter(0x85)));
    }

    #[test]
    fn nothing_new_is_called_what_no_path_can_name() {
        for text in [".", ".."] {
            let name = Name::new(text).unwrap();
            assert_eq!(check_segment(&name), Err(InvalidName::DotSegment(text.into())));
        }
        for text in ["...", ".a", "a.", "./."] {
            assert!(check_segment(&Name::new(text).unwrap()).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_tool_has_no_slash_in_its_name() {
        assert!(SlashFreeName::new("github").is_ok());
        assert_eq!(SlashFreeName::new("a/b"), Err(InvalidName::Slash("a/b".into())));
    }
}
