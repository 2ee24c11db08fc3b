//! The member `tools` of an agent: the word `"all"`, or a list of names.

use model::{SlashFreeName, ToolAccess};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

const ALL: &str = "all";

/// Which tools an agent may use, as the API writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ToolsField(pub(super) ToolAccess);

impl Serialize for ToolsField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            ToolAccess::All => serializer.serialize_str(ALL),
            ToolAccess::Granted(tools) => tools.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ToolsField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ToolsField;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`\"all\"` or a list of names of tools")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ToolsField, E> {
                if text == ALL {
                    Ok(ToolsField(ToolAccess::All))
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ToolsField, A::Error> {
                let mut tools = BTreeSet::new();
                while let Some(tool) = list.next_element::<SlashFreeName>()? {
                    tools.insert(tool);
                }
                Ok(ToolsField(ToolAccess::Granted(tools)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<ToolsField, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms_are_written_as_they_are_read() {
        for json in [r#""all""#, r#"["github","slack"]"#, "[]"] {
            assert_eq!(serde_json::to_string(&parse(json).unwrap()).unwrap(), json);
        }
        assert_eq!(parse("[]").unwrap(), ToolsField::default());
    }

    #[test]
    fn another_word_is_refused_and_never_taken_for_all() {
        for json in [
            r#""ALL""#,
            r#""github""#,
            "true",
            "{}",
            "null",
            r#"["a/b"]"#,
            r#"[""]"#,
        ] {
            assert!(parse(json).is_err(), "{json}");
        }
        assert!(
            parse(r#""everything""#)
                .unwrap_err()
                .contains("`\"all\"` or a list")
        );
    }
}
