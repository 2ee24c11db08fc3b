//! The part of JSON Schema that Cedar's types can say.
//!
//! A schema that allows one kind of value gives one type; whatever allows several kinds, or objects whose members
//! nobody lists, gives none, and a policy cannot see such a value. So does a reference that may not lead where it seems
//! to. Validation against the whole schema is not done here.

use jsonschema::Draft;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How deep types may nest: deeper than schemas that people write, and far from what recursion could not bear.
const DEPTH_MAX: usize = 16;
/// How many types one schema may give. References may multiply what they point to, so the text's length is no bound.
const TYPES_MAX: usize = 2_000;

/// The Cedar type of a JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A string.
    String,
    /// An integer of 64 bits.
    Long,
    /// True or false.
    Bool,
    /// A number with at most four decimal places.
    Decimal,
    /// An array, without order and repetition.
    Set(Box<Shape>),
    /// An object.
    Record(Record),
}

/// The members of an object that have a type.
pub(crate) type Record = BTreeMap<String, Member>;

/// A member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The type of its value.
    pub(crate) shape: Shape,
    /// Whether it is always there. One that may be null counts as absent when it is.
    pub(crate) required: bool,
}

#[cfg(test)]
thread_local! {
    /// How many schemas were read on this thread.
    pub(crate) static SCHEMAS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The members that the parameters of an action with this schema have.
pub(crate) fn record_of(schema: &Value) -> Record {
    #[cfg(test)]
    SCHEMAS_READ.set(SCHEMAS_READ.get() + 1);
    let mut reading = Reading {
        root: schema,
        draft: Draft::default().detect(schema),
        is_embedded: false,
        types_left: TYPES_MAX,
        open: BTreeSet::new(),
        required: HashMap::new(),
        enums: HashMap::new(),
    };
    // Parameters are an object whatever the schema says, so a missing `type` leaves nothing open here.
    let listed = if reading.is_reference_alone(schema) {
        None
    } else {
        reading.object(schema, 0)
    };
    match listed {
        Some(Shape::Record(members)) => members,
        _ => match reading.typed(schema, 0) {
            Some(Typed {
                shape: Shape::Record(members),
                ..
            }) => members,
            _ => Record::new(),
        },
    }
}

struct Typed {
    shape: Shape,
    nullable: bool,
}

impl Typed {
    fn plain(shape: Shape) -> Self {
        Self {
            shape,
            nullable: false,
        }
    }
}

/// The values that a schema's own keywords leave over.
#[derive(Clone, Copy)]
enum Kind<'s> {
    /// Only null.
    Null,
    /// One kind, and perhaps null.
    One { word: &'s str, nullable: bool },
    /// Several, or the keywords do not say.
    Open,
}

struct Reading<'s> {
    root: &'s Value,
    /// The version of JSON Schema that is written here.
    draft: Draft,
    /// Whether this is within a schema that has a name of its own: what its references are relative to is not read.
    is_embedded: bool,
    types_left: usize,
    /// The references that are being followed: one that comes again is a cycle.
    open: BTreeSet<&'s str>,
    /// The names that schemas require, by where these are. References lead to one schema as often as there may be
    /// types, and a list in it may be as long as the text.
    required: HashMap<*const Value, BTreeSet<&'s str>>,
    /// The kinds of what is listed in `enum`, by where the list is.
    enums: HashMap<*const Vec<Value>, Kind<'s>>,
}

impl<'s> Reading<'s> {
    fn typed(&mut self, schema: &'s Value, depth: usize) -> Option<Typed> {
        let outside = (self.draft, self.is_embedded);
        if !std::ptr::eq(schema, self.root) && self.is_a_schema_of_its_own(schema) {
            self.draft = self.draft.detect(schema);
            self.is_embedded |= self.has_a_name(schema);
        }
        let typed = self.typed_here(schema, depth);
        (self.draft, self.is_embedded) = outside;
        typed
    }

    fn typed_here(&mut self, schema: &'s Value, depth: usize) -> Option<Typed> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.types_left = self.types_left.checked_sub(1)?;
        match self.kind_of(schema) {
            Kind::One { word, nullable } => {
                let shape = self.shape(word, schema, depth)?;
                Some(Typed { shape, nullable })
            }
            Kind::Null => None,
            Kind::Open => self.composed(schema, depth),
        }
    }

    fn shape(&mut self, word: &str, schema: &'s Value, depth: usize) -> Option<Shape> {
        match word {
            "string" => Some(Shape::String),
            "integer" => Some(Shape::Long),
            "boolean" => Some(Shape::Bool),
            "number" => Some(Shape::Decimal),
            "array" => self.array(schema, depth),
            "object" => self.object(schema, depth),
            _ => None,
        }
    }

    fn array(&mut self, schema: &'s Value, depth: usize) -> Option<Shape> {
        if schema.get("prefixItems").is_some() {
            return None;
        }
        let items = self.typed(schema.get("items")?, depth + 1)?;
        (!items.nullable).then(|| Shape::Set(Box::new(items.shape)))
    }

    fn object(&mut self, schema: &'s Value, depth: usize) -> Option<Shape> {
        // Nothing within it has a type, and there may be thousands of members.
        if depth >= DEPTH_MAX {
            return None;
        }
        let properties = schema.get("properties")?.as_object()?;
        // In the order of their names, so that two spellings of one schema give one type.
        let properties: BTreeMap<&'s String, &'s Value> = properties.iter().collect();
        let mut members = Record::new();
        for (name, property) in properties {
            if let Some(Typed { shape, nullable }) = self.typed(property, depth + 1) {
                let required = !nullable && self.requires(schema, name);
                members.insert(name.clone(), Member { shape, required });
            }
        }
        (!members.is_empty()).then_some(Shape::Record(members))
    }

    /// Whether a schema requires this member. Its names are collected only if there is one that has a type.
    fn requires(&mut self, schema: &'s Value, name: &str) -> bool {
        let required = self.required.entry(std::ptr::from_ref(schema));
        let required = required.or_insert_with(|| {
            let names = schema.get("required").and_then(Value::as_array);
            names.into_iter().flatten().filter_map(Value::as_str).collect()
        });
        required.contains(name)
    }

    fn composed(&mut self, schema: &'s Value, depth: usize) -> Option<Typed> {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.referenced(reference, depth);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(alternatives) = schema.get(keyword).and_then(Value::as_array) {
                return self.common(alternatives, depth);
            }
        }
        match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) => self.typed(only, depth + 1),
            _ => None,
        }
    }

    fn referenced(&mut self, reference: &'s str, depth: usize) -> Option<Typed> {
        let pointer = reference.strip_prefix('#')?;
        // What is escaped in a URI would have to be read first.
        if self.is_embedded || pointer.contains('%') {
            return None;
        }
        let target = self.root.pointer(pointer)?;
        if !self.open.insert(reference) {
            return None;
        }
        let outside = self.draft;
        // What a reference leads to is of the version of the whole, whatever it says of itself.
        self.draft = Draft::default().detect(self.root);
        // From there on references are relative to the name that was passed, or that it has.
        let passes_a_name = self.passes_a_name(pointer);
        self.is_embedded = passes_a_name || (!std::ptr::eq(target, self.root) && self.has_a_name(target));
        let typed = self.typed_here(target, depth + 1);
        (self.draft, self.is_embedded) = (outside, false);
        self.open.remove(reference);
        typed
    }

    /// The type that all alternatives share, null aside.
    fn common(&mut self, alternatives: &'s [Value], depth: usize) -> Option<Typed> {
        let mut common: Option<Typed> = None;
        let mut nullable = false;
        for alternative in alternatives {
            if matches!(self.kind_of(alternative), Kind::Null) {
                // One is usual, and thousands take as long as other types.
                if std::mem::replace(&mut nullable, true) {
                    self.types_left = self.types_left.checked_sub(1)?;
                }
                continue;
            }
            let typed = self.typed(alternative, depth + 1)?;
            nullable |= typed.nullable;
            match &common {
                Some(first) if first.shape != typed.shape => return None,
                Some(_) => {}
                None => common = Some(Typed::plain(typed.shape)),
            }
        }
        common.map(|Typed { shape, .. }| Typed { shape, nullable })
    }

    fn kind_of(&mut self, schema: &'s Value) -> Kind<'s> {
        if self.is_reference_alone(schema) {
            return Kind::Open;
        }
        let constant = schema.get("const").filter(|_| self.draft != Draft::Draft4);
        match schema.get("type") {
            Some(Value::String(word)) => kind_of_words(std::iter::once(word.as_str())),
            Some(Value::Array(words)) => kind_of_words(words.iter().filter_map(Value::as_str)),
            _ => match (constant, schema.get("enum").and_then(Value::as_array)) {
                (Some(value), _) => kind_of_words(std::iter::once(word_of(value))),
                (None, Some(values)) => {
                    let kind = self.enums.entry(std::ptr::from_ref(values));
                    *kind.or_insert_with(|| kind_of_words(values.iter().map(word_of)))
                }
                (None, None) => Kind::Open,
            },
        }
    }

    /// Whether all that counts of a schema is its reference: up to draft 7, what stands beside one does not.
    fn is_reference_alone(&self, schema: &Value) -> bool {
        matches!(self.draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
            && schema.get("$ref").is_some_and(Value::is_string)
    }

    /// Whether a schema has a version or a name.
    fn is_a_schema_of_its_own(&self, schema: &Value) -> bool {
        self.has_a_name(schema) || has_a_version(schema)
    }

    /// Whether a schema has a name that is more than a mark within the one around it. References in it are relative to that.
    fn has_a_name(&self, schema: &Value) -> bool {
        let name = schema.get(self.draft.id_keyword()).and_then(Value::as_str);
        name.is_some_and(|name| !name.starts_with('#'))
    }

    /// Whether a schema that has a name is passed on the way to what a pointer names.
    fn passes_a_name(&self, pointer: &str) -> bool {
        let (mut passed, mut begin) = (self.root, 0);
        for (end, _) in pointer.match_indices('/').skip(1) {
            // A step at a time: each from the root on, a long way would be walked as often as it has steps.
            let Some(next) = passed.pointer(&pointer[begin..end]) else {
                return false;
            };
            if self.has_a_name(next) {
                return true;
            }
            (passed, begin) = (next, end);
        }
        false
    }
}

/// Whether a schema says which version of JSON Schema it is of.
fn has_a_version(schema: &Value) -> bool {
    schema.get("$schema").is_some_and(Value::is_string)
}

fn kind_of_words<'s>(words: impl Iterator<Item = &'s str>) -> Kind<'s> {
    let mut words: BTreeSet<&str> = words.collect();
    let nullable = words.remove("null");
    if words.contains("number") {
        words.remove("integer");
    }
    match (words.pop_first(), words.is_empty()) {
        (None, _) if nullable => Kind::Null,
        (Some(word), true) => Kind::One { word, nullable },
        _ => Kind::Open,
    }
}

fn word_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
