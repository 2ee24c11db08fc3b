//! What the keywords of a schema take for a value, in steps.
//!
//! A step is a small part of a nanosecond: what it takes to count a byte of a text. What is here was measured with the
//! validator, whose ways to check things it follows, for the worst that can come.

use super::pattern;
use serde_json::{Map, Value};

/// A keyword, whatever it is about.
const KEYWORD: usize = 16;
/// A name that is looked up in an object, and a text that is looked up among many.
const LOOK_UP: usize = 96;
/// One more value among those that a number or a text is compared with.
const COMPARISON: usize = 16;
/// A state of a pattern for one byte of a text.
const STATE: usize = 16;
/// What a match of a pattern takes before the first byte.
const MATCH: usize = 256;
/// A byte of a pattern that is no more than a list of texts.
const LISTED_BYTE: usize = 4;
/// A byte of a text whose characters are counted.
const COUNTED_BYTE: usize = 2;
/// A byte of a text that is looked up.
const HASHED_BYTE: usize = 1;
/// A byte of a text that is decoded.
const DECODED_BYTE: usize = 16;
/// A byte of a text that is read as JSON.
const JSON_BYTE: usize = 256;
/// A division of a number by a whole one.
const DIVISION: usize = 256;
/// A division of a number by one that is not whole, and may be too far from it for anything but big fractions.
const FRACTION: usize = 12_800;
/// A member for which it is looked up what is said of it.
const MEMBER: usize = 96;
/// A member that is noted as looked at.
const NOTED: usize = 96;
/// The most properties that are looked up in an object one by one; more are a table, in which the members are looked up.
const PROPERTIES_MAX: usize = 14;
/// How many bytes of two texts that are equal are compared in one step.
const COMPARED_BYTES: usize = 8;
/// A value that is hashed, to find its like among others.
const HASHED_VALUE: usize = 64;
/// The most items that are compared one with the other. More are put into a table, where only what has the same place
/// is compared.
const PAIRED_ITEMS_MAX: usize = 15;
/// How many times a value is compared in the time that it takes to hash it.
const COMPARISONS_PER_HASH: usize = 8;
/// From here on a double stands for several whole numbers, which then have the same place in such a table.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// What steps are counted for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Per {
    Value,
    Number,
    /// A number that is not written as a whole one of 64 bits.
    Float,
    Text,
    TextByte,
    Object,
    Member,
    NameByte,
    Item,
    /// What it takes to find two equal items.
    Distinct,
}

const KINDS: usize = Per::Distinct as usize + 1;

/// How many steps a schema takes for each of what there is in a value, without what is inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost([usize; KINDS]);

impl Cost {
    pub(super) const fn of(&self, per: Per) -> usize {
        self.0[per as usize]
    }

    pub(super) fn add(&mut self, per: Per, steps: usize) {
        let sum = &mut self.0[per as usize];
        *sum = sum.saturating_add(steps);
    }

    /// What is checked besides.
    pub(super) fn add_all(&mut self, other: &Self) {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(others);
        }
    }

    /// What is checked for each name of a member, which is a text.
    pub(super) fn add_for_names(&mut self, of_text: &Self) {
        let each = of_text.of(Per::Value).saturating_add(of_text.of(Per::Text));
        self.add(Per::Member, each);
        self.add(Per::NameByte, of_text.of(Per::TextByte));
    }

    /// What a schema takes for the value that it is about, without its subschemas.
    pub(super) fn of_schema(schema: &Value) -> Self {
        let mut cost = Self::default();
        cost.add(Per::Value, KEYWORD);
        for (word, value) in schema.as_object().into_iter().flatten() {
            cost.add(Per::Value, KEYWORD);
            cost.add_keyword(word, value);
        }
        cost
    }

    fn add_keyword(&mut self, word: &str, value: &Value) {
        match (word, value) {
            ("const", value) => self.add(Per::Value, equality(value)),
            ("enum", Value::Array(values)) => self.add_enum(values),
            ("pattern", Value::String(pattern)) => self.add_pattern(pattern, Per::Text, Per::TextByte),
            ("minLength" | "maxLength", _) => self.add(Per::TextByte, COUNTED_BYTE),
            ("contentEncoding", _) => self.add(Per::TextByte, DECODED_BYTE),
            ("contentMediaType", _) => self.add(Per::TextByte, JSON_BYTE),
            ("multipleOf", Value::Number(number)) => {
                let is_whole = number.as_f64().is_some_and(|number| number.fract() == 0.0);
                self.add(Per::Number, if is_whole { DIVISION } else { FRACTION });
            }
            ("uniqueItems", Value::Bool(true)) => self.add(Per::Distinct, 1),
            ("required", Value::Array(names)) => self.add(Per::Object, look_ups(names)),
            ("dependentRequired" | "dependentSchemas" | "dependencies", Value::Object(of_names)) => {
                for (name, listed) in of_names {
                    self.add(Per::Object, LOOK_UP + name.len());
                    self.add(Per::Object, listed.as_array().map_or(0, |names| look_ups(names)));
                }
            }
            ("properties", Value::Object(named)) => {
                self.add(Per::Object, LOOK_UP * named.len().min(PROPERTIES_MAX));
                self.add_members();
            }
            ("patternProperties", Value::Object(named)) => self.add_named_patterns(named),
            ("additionalProperties" | "propertyNames" | "unevaluatedProperties", _) => self.add_members(),
            _ => {}
        }
    }

    fn add_members(&mut self) {
        self.add(Per::Member, MEMBER);
        self.add(Per::NameByte, HASHED_BYTE);
    }

    fn add_enum(&mut self, values: &[Value]) {
        let all_are = |are: fn(&Value) -> bool| values.len() > 1 && values.iter().all(are);
        if all_are(|value| value.is_string() || value.is_null()) {
            self.add(Per::Value, LOOK_UP);
            self.add(Per::TextByte, HASHED_BYTE);
        } else if all_are(|value| value.is_i64() || value.is_null()) {
            self.add(Per::Value, LOOK_UP);
            self.add(Per::Float, values.len() * COMPARISON);
        } else {
            self.add(
                Per::Value,
                values.iter().map(equality).fold(0, usize::saturating_add),
            );
        }
    }

    fn add_pattern(&mut self, pattern: &str, per_text: Per, per_byte: Per) {
        // Some patterns are lists of texts, and compared one by one.
        self.add(per_text, MATCH + pattern.len() * LISTED_BYTE);
        self.add(per_byte, pattern::states(pattern).saturating_mul(STATE));
    }

    fn add_named_patterns(&mut self, named: &Map<String, Value>) {
        for pattern in named.keys() {
            self.add_pattern(pattern, Per::Member, Per::NameByte);
        }
    }

    /// What it takes to note which members and items this schema looks at, without its subschemas.
    pub(super) fn of_marking(schema: &Map<String, Value>) -> Self {
        let mut cost = Self::default();
        cost.add(Per::Value, KEYWORD);
        cost.add(Per::Member, COMPARISON);
        cost.add(Per::Item, COMPARISON);
        let notes = ["properties", "additionalProperties", "unevaluatedProperties"];
        if notes.iter().any(|word| schema.contains_key(*word)) {
            cost.add(Per::Member, NOTED);
            cost.add(Per::NameByte, HASHED_BYTE);
        }
        if let Some(Value::Object(named)) = schema.get("patternProperties") {
            cost.add(Per::Member, NOTED);
            cost.add_named_patterns(named);
        }
        if let Some(Value::Object(named)) = schema.get("dependentSchemas") {
            cost.add(Per::Object, LOOK_UP * named.len());
        }
        cost
    }

    /// The steps for this value, without what is inside.
    pub(super) fn for_value(&self, value: &Value) -> usize {
        let mut steps = self.of(Per::Value);
        let mut add = |per: Per, count: usize| {
            steps = steps.saturating_add(self.of(per).saturating_mul(count));
        };
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                add(Per::Number, 1);
                add(Per::Float, usize::from(!number.is_i64()));
            }
            Value::String(text) => {
                add(Per::Text, 1);
                add(Per::TextByte, text.len());
            }
            Value::Array(items) => {
                add(Per::Item, items.len());
                if self.of(Per::Distinct) > 0 {
                    add(Per::Distinct, distinction(items));
                }
            }
            Value::Object(members) => {
                add(Per::Object, 1);
                add(Per::Member, members.len());
                if self.of(Per::NameByte) > 0 {
                    add(Per::NameByte, members.keys().map(String::len).sum());
                }
            }
        }
        steps
    }
}

/// What it takes to look for these names in an object.
fn look_ups(names: &[Value]) -> usize {
    let of_name = |name: &Value| LOOK_UP + name.as_str().map_or(0, str::len);
    names.iter().map(of_name).sum()
}

/// What it takes to find that a value is equal to this one. Members in another order are compared twice, those inside
/// them four times.
fn equality(value: &Value) -> usize {
    let sum = |sum: usize, steps: usize| sum.saturating_add(steps);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => COMPARISON,
        Value::String(text) => COMPARISON + text.len() / COMPARED_BYTES,
        Value::Array(values) => values.iter().map(equality).fold(KEYWORD, sum),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (LOOK_UP + name.len()).saturating_add(equality(value).saturating_mul(2)))
            .fold(KEYWORD, sum),
    }
}

/// What it takes to find that no two of these are equal: all are hashed, and those that somebody may have made to have
/// the same hash are compared with one another. Arrays and objects can be made so, and whole numbers that are the same
/// double.
fn distinction(items: &[Value]) -> usize {
    let may_collide = |item: &&Value| match item {
        Value::Array(_) | Value::Object(_) => true,
        Value::Number(number) => number.as_f64().is_none_or(|number| number.abs() >= EXACT_MAX),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    };
    let size: usize = items.iter().map(size_of).sum();
    let paired = items.len().min(PAIRED_ITEMS_MAX);
    let colliding = items.iter().filter(may_collide).count().max(paired);
    let compared = size.saturating_mul(colliding) / COMPARISONS_PER_HASH;
    size.saturating_mul(2).saturating_add(compared)
}

/// What there is to hash in a value, or to compare. The depth is bounded by that of the request's body.
fn size_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => HASHED_VALUE,
        Value::String(text) => HASHED_VALUE + text.len() / COMPARED_BYTES,
        Value::Array(values) => values
            .iter()
            .map(size_of)
            .fold(HASHED_VALUE, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| name.len() / COMPARED_BYTES + size_of(value))
            .fold(HASHED_VALUE, usize::saturating_add),
    }
}
