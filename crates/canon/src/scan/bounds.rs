//! Which integers of a text with JSON Schemas may be written as other ones: the bounds in them. A schema is not validated here.

use super::Scanner;

/// The keywords whose values are bounds of numbers and of lengths. Where there is none, generators write the largest
/// integer of 64 bits.
const BOUNDS: [&str; 13] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];
/// The members that hold values, which are sent or told apart whatever the names in them.
const VALUES: [&str; 5] = ["const", "enum", "default", "examples", "_meta"];
/// The keywords under which names are no keywords.
const NAMES: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

impl Scanner<'_> {
    /// Whether the integer that begins at `start` is a bound.
    #[cold]
    pub(super) fn is_bound(&self, start: usize) -> bool {
        // Behind a colon is the value of the member that was opened last.
        if !self.text[..start].trim_end().ends_with(':') {
            return false;
        }
        let (mut is_name, mut is_bound) = (false, false);
        for key in self.open_keys() {
            if !is_name && is_one_of(key, &VALUES) {
                return false;
            }
            is_bound = !is_name && is_one_of(key, &BOUNDS);
            is_name = !is_name && is_one_of(key, &NAMES);
        }
        is_bound
    }
}

fn is_one_of(key: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| word.as_bytes() == key)
}
