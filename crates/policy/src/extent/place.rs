//! A subschema, where it stands, and what is under its keywords.

use jsonschema::{Draft, ReferencingError, Registry, Uri};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// The scheme of what is a name of ours only, and that the validator does not write out.
const UNNAMED_SCHEME: &str = "json-schema";
/// How many bytes one of a pointer may be in a URI.
const ENCODED_BYTES: usize = 3;
/// The keywords by which a schema may be named without the way to it.
const ANCHORS: [&str; 4] = ["$anchor", "$dynamicAnchor", "$id", "id"];

/// A subschema and what its references are to be read with.
#[derive(Clone)]
pub(super) struct Place<'s> {
    pub(super) schema: &'s Value,
    base: Arc<Uri<String>>,
    draft: Draft,
    /// As what it was referred to, if it was.
    reference: Option<Arc<Uri<String>>>,
}

impl<'s> Place<'s> {
    pub(super) const fn new(schema: &'s Value, base: Arc<Uri<String>>, draft: Draft) -> Self {
        Self {
            schema,
            base,
            draft,
            reference: None,
        }
    }

    /// What references here are relative to.
    pub(super) fn base(&self) -> Arc<Uri<String>> {
        Arc::clone(&self.base)
    }

    /// How many bytes the name has that the validator gives what is at a pointer of so many bytes here, if it gives it one.
    pub(super) fn name_bytes(&self, pointer: usize) -> usize {
        if self.base.scheme().as_str() == UNNAMED_SCHEME {
            return 0;
        }
        self.base.as_str().len() + 1 + pointer.saturating_mul(ENCODED_BYTES)
    }

    /// The version of JSON Schema that is written here.
    pub(super) const fn draft(&self) -> Draft {
        self.draft
    }

    /// Whether its references are relative to what those of the other are relative to.
    pub(super) fn has_base_of(&self, other: &Self) -> bool {
        self.base == other.base
    }

    /// Whether this is the same subschema once more, in the same version of JSON Schema.
    pub(super) fn is_again(&self, other: &Self) -> bool {
        std::ptr::eq(self.schema, other.schema) && self.draft == other.draft
    }

    /// Whether it was referred to as the other was.
    pub(super) fn is_referred_to_as(&self, other: &Self) -> bool {
        self.reference.is_some() && self.reference == other.reference
    }

    /// Whether validation keeps a copy of this value under this keyword: as what there is to compare with, or because it
    /// may be asked for what was said beside. What its version of JSON Schema has no keyword for, it copies whole.
    pub(super) fn is_copied(&self, word: &str, value: &Value) -> bool {
        if !self.draft.is_known_keyword(word) {
            return true;
        }
        match word {
            "contentSchema" => true,
            "$defs" | "definitions" => false,
            // Those of the names that list others.
            "dependencies" => value
                .as_object()
                .is_some_and(|named| named.values().any(Value::is_array)),
            _ => parts(word, value).1.is_empty(),
        }
    }

    /// As what it was referred to, if it was, with the name before it.
    pub(super) fn reference(&self) -> Option<Arc<Uri<String>>> {
        self.reference.clone()
    }

    /// The name that the schema gives itself, without a fragment, if it does. This has to be the place inside.
    pub(super) fn name(&self) -> Option<&str> {
        self.draft.create_resource_ref(self.schema).id()?;
        Some(without_fragment(self.base.as_str()))
    }

    /// This place as it is inside: by the version of JSON Schema and the name that the schema gives itself, if it does.
    /// What is referred to is read as validation reads it: the reference has led inside already, or past the name.
    pub(super) fn entered(&self, registry: &Registry<'s>) -> Result<Self, ReferencingError> {
        if self.reference.is_some() {
            return Ok(self.clone());
        }
        let draft = self.draft.detect(self.schema);
        let resolver = registry.resolver((*self.base).clone());
        let resource = resolver.in_subresource(draft.create_resource_ref(self.schema))?;
        Ok(Self::new(self.schema, resource.base_uri(), draft))
    }

    /// A subschema of this one.
    pub(super) fn at(&self, schema: &'s Value) -> Self {
        Self::new(schema, Arc::clone(&self.base), self.draft)
    }

    /// The whole of this reference, with the name before it.
    pub(super) fn resolved(
        &self,
        reference: &str,
        registry: &Registry<'_>,
    ) -> Result<Arc<Uri<String>>, ReferencingError> {
        registry.resolve_uri(&self.base.borrow(), reference)
    }

    /// What this reference names.
    pub(super) fn target<'r: 's>(
        &self,
        reference: &str,
        registry: &'r Registry<'s>,
    ) -> Result<Self, ReferencingError> {
        let resolver = registry.resolver((*self.base).clone());
        let (schema, resolver, draft) = resolver.lookup(reference)?.into_inner();
        Ok(Self {
            reference: Some(self.resolved(reference, registry)?),
            ..Self::new(schema, resolver.base_uri(), draft)
        })
    }

    /// The schema with the name that references here are relative to.
    pub(super) fn resource<'r: 's>(&self, registry: &'r Registry<'s>) -> Result<&'s Value, ReferencingError> {
        let resolver = registry.resolver((*self.base).clone());
        Ok(resolver.lookup("")?.contents())
    }
}

/// A name without what comes after `#`.
pub(super) fn without_fragment(name: &str) -> &str {
    name.split_once('#').map_or(name, |(name, _)| name)
}

/// The anchor by which a reference names what it is to, if it does so by one.
pub(super) fn anchor(reference: &str) -> Option<&str> {
    let local = reference.strip_prefix('#');
    let fragment = local.or_else(|| Some(reference.rsplit_once('#')?.1))?;
    (!fragment.is_empty() && !fragment.starts_with('/')).then_some(fragment)
}

/// The keywords for which validation goes through what stands beside them again, to know what was looked at.
pub(super) const MARKING: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

/// Whether validation goes through what stands here again, to know what was looked at.
pub(super) fn is_marking(members: &Map<String, Value>) -> bool {
    MARKING.iter().any(|word| members.contains_key(*word))
}

/// Whether what is under this keyword is compiled as a whole to know what a schema looks at, and whether it is gone
/// through for that itself.
pub(super) fn marks(word: &str) -> (bool, bool) {
    match word {
        "allOf" | "anyOf" | "oneOf" | "if" => (true, true),
        "then" | "else" | "dependentSchemas" => (false, true),
        "additionalProperties"
        | "contains"
        | "patternProperties"
        | "unevaluatedItems"
        | "unevaluatedProperties" => (true, false),
        _ => (false, false),
    }
}

/// The subschemas under this keyword, and whether they are about the same value.
pub(super) fn subschemas<'s>(word: &str, value: &'s Value) -> (bool, Vec<&'s Value>) {
    let (is_same_value, parts) = parts(word, value);
    let subschemas = parts.into_iter().map(|(_, subschema)| subschema);
    (is_same_value, subschemas.collect())
}

/// The subschemas under this keyword, each with how many bytes longer the pointer to it is, and whether they are about
/// the same value.
pub(super) fn parts<'s>(word: &str, value: &'s Value) -> (bool, Vec<(usize, &'s Value)>) {
    let here = segment_bytes(word);
    let listed = || -> Vec<(usize, &'s Value)> {
        let listed = value.as_array().into_iter().flatten().enumerate();
        let listed = listed.map(|(place, subschema)| (here + 1 + place.to_string().len(), subschema));
        listed.collect()
    };
    let named = || -> Vec<(usize, &'s Value)> {
        let named = value.as_object().into_iter().flatten();
        // Under `dependencies`, a list is one of names.
        let named = named.filter(|(_, subschema)| !subschema.is_array());
        let named = named.map(|(name, subschema)| (here + segment_bytes(name), subschema));
        named.collect()
    };
    match word {
        "allOf" | "anyOf" | "oneOf" => (true, listed()),
        "dependencies" | "dependentSchemas" => (true, named()),
        "not" | "if" | "then" | "else" => (true, vec![(here, value)]),
        "properties" | "patternProperties" => (false, named()),
        "items" | "prefixItems" if value.is_array() => (false, listed()),
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "contains"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties" => (false, vec![(here, value)]),
        _ => (true, Vec::new()),
    }
}

/// How many names there are in these members for each of which others are listed: validation keeps a pointer for each
/// such name, as for a keyword.
pub(super) fn listed(members: &Map<String, Value>) -> usize {
    let words = ["dependentRequired", "dependencies"];
    let named = words.iter().filter_map(|word| members.get(*word)?.as_object());
    named
        .flat_map(Map::values)
        .filter(|names| names.is_array())
        .count()
}

/// How many bytes longer a pointer is with this name in it.
fn segment_bytes(name: &str) -> usize {
    1 + name.len() + name.matches(['~', '/']).count()
}

/// How many bytes the pointer has from which those go on behind this reference to this schema.
pub(super) fn pointer_bytes(
    reference: &str,
    target: &Value,
    anchors: &HashMap<*const Value, usize>,
) -> usize {
    match reference.split_once('#') {
        None => 0,
        Some((_, fragment)) if fragment.is_empty() || fragment.starts_with('/') => fragment.len(),
        Some(_) => anchors
            .get(&std::ptr::from_ref(target))
            .copied()
            .unwrap_or_default(),
    }
}

/// How many bytes the pointers have to all in this schema that may be named without the way to it.
pub(super) fn anchors(schema: &Value) -> HashMap<*const Value, usize> {
    let mut anchors = HashMap::new();
    collect_anchors(schema, 0, &mut anchors);
    anchors
}

/// The depth is bounded by that of the request's body.
fn collect_anchors(schema: &Value, pointer: usize, anchors: &mut HashMap<*const Value, usize>) {
    match schema {
        Value::Object(members) => {
            if ANCHORS.iter().any(|word| members.contains_key(*word)) {
                anchors.insert(schema, pointer);
            }
            for (name, value) in members {
                collect_anchors(value, pointer + segment_bytes(name), anchors);
            }
        }
        Value::Array(values) => {
            for (place, value) in values.iter().enumerate() {
                collect_anchors(value, pointer + 1 + place.to_string().len(), anchors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The subschemas under this keyword, and those that are there only to be referred to.
pub(super) fn all_subschemas<'s>(word: &str, value: &'s Value) -> Vec<&'s Value> {
    match word {
        "$defs" | "definitions" => value.as_object().into_iter().flat_map(Map::values).collect(),
        "contentSchema" => vec![value],
        _ => subschemas(word, value).1,
    }
}
