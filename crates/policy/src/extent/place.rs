//! A subschema, where it stands, and what is under its keywords.

use jsonschema::{Draft, ReferencingError, Registry, Uri};
use serde_json::{Map, Value};
use std::sync::Arc;

/// A subschema and what its references are to be read with.
#[derive(Clone)]
pub(super) struct Place<'s> {
    pub(super) schema: &'s Value,
    base: Arc<Uri<String>>,
    draft: Draft,
}

impl<'s> Place<'s> {
    pub(super) const fn new(schema: &'s Value, base: Arc<Uri<String>>, draft: Draft) -> Self {
        Self { schema, base, draft }
    }

    /// What references here are relative to.
    pub(super) fn base(&self) -> Arc<Uri<String>> {
        Arc::clone(&self.base)
    }

    /// The version of JSON Schema that is written here.
    pub(super) const fn draft(&self) -> Draft {
        self.draft
    }

    /// This place as it is inside: by the version of JSON Schema and the name that the schema gives itself, if it does.
    pub(super) fn entered(&self, registry: &Registry<'s>) -> Result<Self, ReferencingError> {
        let draft = self.draft.detect(self.schema);
        let resolver = registry.resolver((*self.base).clone());
        let resource = resolver.in_subresource(draft.create_resource_ref(self.schema))?;
        Ok(Self::new(self.schema, resource.base_uri(), draft))
    }

    /// A subschema of this one.
    pub(super) fn at(&self, schema: &'s Value) -> Self {
        Self::new(schema, Arc::clone(&self.base), self.draft)
    }

    /// What this reference names.
    pub(super) fn target<'r: 's>(
        &self,
        reference: &str,
        registry: &'r Registry<'s>,
    ) -> Result<Self, ReferencingError> {
        let resolver = registry.resolver((*self.base).clone());
        let (schema, resolver, draft) = resolver.lookup(reference)?.into_inner();
        Ok(Self::new(schema, resolver.base_uri(), draft))
    }
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
    let listed = || value.as_array().into_iter().flatten().collect();
    let named = || -> Vec<&'s Value> {
        let named = value.as_object().into_iter().flat_map(|named| named.values());
        // Under `dependencies`, a list is one of names.
        named.filter(|subschema| !subschema.is_array()).collect()
    };
    match word {
        "allOf" | "anyOf" | "oneOf" => (true, listed()),
        "dependencies" | "dependentSchemas" => (true, named()),
        "not" | "if" | "then" | "else" => (true, vec![value]),
        "properties" | "patternProperties" => (false, named()),
        "items" | "prefixItems" if value.is_array() => (false, listed()),
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "contains"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties" => (false, vec![value]),
        _ => (true, Vec::new()),
    }
}
