//! A JSON Schema with its patterns in the engine's words, and what they were before, for whoever is told about them.
//!
//! Only patterns differ: what a schema says of types, and how it is shown, is read from the one that was sent.

use super::ecma;
use crate::diagnostics::Diagnostic;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The keyword whose members are named by patterns.
const NAMED_BY_PATTERNS: &str = "patternProperties";
/// What stands in the place of a pattern that there are no words for: the engine refuses it where anything depends on it.
const REFUSED: &str = "(";

/// A schema in the engine's words.
pub(super) struct Translated {
    pub(super) schema: Value,
    pub(super) originals: Originals,
    /// What is said of the first pattern that there are no words for.
    pub(super) refused: Option<Diagnostic>,
}

/// The patterns that were sent, by those of them in the engine's words that are other texts.
#[derive(Debug, Default)]
pub(super) struct Originals(HashMap<String, String>);

/// This schema with its patterns in the engine's words.
pub(super) fn translated(schema: &Value) -> Translated {
    let mut translation = Translation::default();
    let schema = translation.schema(schema);
    Translated {
        schema,
        originals: translation.originals,
        refused: translation.refused,
    }
}

impl Originals {
    /// The pattern that was sent.
    pub(super) fn of<'p>(&'p self, pattern: &'p str) -> &'p str {
        self.0.get(pattern).map_or(pattern, String::as_str)
    }

    /// This pointer into the schema, as one into the schema that was sent.
    pub(super) fn in_pointer(&self, pointer: &str) -> String {
        let mut before = "";
        let segments = pointer.split('/').map(|segment| {
            let is_pattern = before == NAMED_BY_PATTERNS;
            before = segment;
            let name = segment.replace("~1", "/").replace("~0", "~");
            match self.0.get(&name).filter(|_| is_pattern) {
                Some(pattern) => pattern.replace('~', "~0").replace('/', "~1"),
                None => segment.to_owned(),
            }
        });
        let segments: Vec<String> = segments.collect();
        segments.join("/")
    }
}

#[derive(Default)]
struct Translation {
    originals: Originals,
    refused: Option<Diagnostic>,
}

impl Translation {
    /// What is under a keyword that is not known is translated as well, because a reference may lead there.
    /// The depth is bounded by that of the request's body.
    fn schema(&mut self, schema: &Value) -> Value {
        match schema {
            Value::Object(members) => {
                let members = members
                    .iter()
                    .map(|(word, value)| (word.clone(), self.under(word, value)));
                Value::Object(members.collect())
            }
            Value::Array(schemas) => schemas.iter().map(|schema| self.schema(schema)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
        }
    }

    /// What is under this keyword.
    fn under(&mut self, word: &str, value: &Value) -> Value {
        match (word, value) {
            ("pattern", Value::String(pattern)) => Value::String(self.pattern(pattern)),
            (NAMED_BY_PATTERNS, Value::Object(named)) => Value::Object(self.named_by_patterns(named)),
            // Their names are no keywords.
            (
                "properties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies",
                Value::Object(named),
            ) => {
                let named = named
                    .iter()
                    .map(|(name, schema)| (name.clone(), self.schema(schema)));
                Value::Object(named.collect())
            }
            // These are values that parameters may have, and no schemas.
            ("const" | "enum" | "default" | "examples", _) => value.clone(),
            _ => self.schema(value),
        }
    }

    fn named_by_patterns(&mut self, named: &Map<String, Value>) -> Map<String, Value> {
        let mut translated = Map::new();
        for (place, (pattern, schema)) in named.iter().enumerate() {
            let mut words = self.pattern(pattern);
            // Two patterns may come to the same words, and the schemas of both count. A comment that says which one it
            // is keeps them apart at once, however many there are. No pattern that was sent comes to words with one.
            if translated.contains_key(&words) {
                words = format!("(?x: # {place}\n)(?:{words})");
                self.originals.0.insert(words.clone(), pattern.clone());
            }
            translated.insert(words, self.schema(schema));
        }
        translated
    }

    fn pattern(&mut self, pattern: &str) -> String {
        match ecma::translated(pattern) {
            Ok(words) => {
                if words != pattern {
                    self.originals.0.insert(words.clone(), pattern.to_owned());
                }
                words
            }
            Err(fault) => {
                self.refused.get_or_insert_with(|| {
                    let message = format!("has the pattern {} with {fault}", json!(pattern));
                    Diagnostic::error(message).with_help(ecma::HELP)
                });
                REFUSED.to_owned()
            }
        }
    }
}
