//! How much there is to check in a JSON Schema once its references are followed: what bounds the time that one ask can cost.
//!
//! Validation walks the same ways and remembers what it found only where a reference leads back, so that is all that may
//! be left out here. Nothing is validated, and what is no schema was refused before.

use crate::diagnostics::Diagnostic;
use jsonschema::{Draft, ReferencingError, Registry, Uri, uri};
use serde_json::Value;

/// The most subschemas, each counted as often as ways lead to it: far more than people write, and few enough to check in time.
const SUBSCHEMAS_MAX: usize = 10_000;
/// The most subschemas inside one another, and the most of those about one and the same value. A schema that refers to itself
/// repeats the latter at each level of the parameters, and validation needs the stack for them.
const DEPTH_MAX: usize = 256;
const LAYERS_MAX: usize = 32;
/// The most errors that may be collected to say what is wrong.
const ERRORS_MAX: usize = 1 << 15;
/// How often validation checks what stands beside `unevaluatedProperties` or `unevaluatedItems`.
const UNEVALUATED: usize = 3;
/// What a schema is known as that gives itself no name.
const BASE: &str = "json-schema:///";

/// How much there is to check.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    subschemas: usize,
    /// Those of them within alternatives: if none of these fits, the errors of all are collected.
    alternatives: usize,
    /// Whether it refers to itself, so that the parameters decide how often it is gone through.
    is_recursive: bool,
}

impl Extent {
    /// The extent of this schema, or why it cannot be checked in a time with a bound.
    pub(crate) fn of(schema: &Value) -> Result<Self, Diagnostic> {
        let draft = Draft::default().detect(schema);
        let registry = Registry::new().draft(draft).add(BASE, schema);
        let registry = registry.and_then(jsonschema::RegistryBuilder::prepare)?;
        let base = uri::from_str(BASE)?;
        let root = registry.resolver(base.clone()).lookup("")?;
        let mut walk = Walk {
            registry: &registry,
            open: Vec::new(),
            extent: Self::default(),
        };
        let start = Stand {
            weight: 1,
            ..Stand::default()
        };
        walk.visit(root.contents(), &base, draft, start)?;
        Ok(walk.extent)
    }

    /// Whether it takes little to say what is wrong with this value.
    pub(crate) fn can_tell(&self, value: &Value) -> bool {
        !self.is_recursive && self.alternatives.saturating_mul(count(value)) <= ERRORS_MAX
    }
}

/// The values in a value. The depth is bounded by that of the request's body.
fn count(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    1 + inner
}

/// Where the walk stands.
#[derive(Clone, Copy, Default)]
struct Stand {
    /// How often validation comes here for each time that it goes this way.
    weight: usize,
    depth: usize,
    /// How many values it has gone into.
    level: usize,
    /// How many subschemas it has gone into since, all about one value.
    layers: usize,
    is_alternative: bool,
}

impl Stand {
    fn into_subschema(self, is_same_value: bool) -> Self {
        Self {
            depth: self.depth + 1,
            level: self.level + usize::from(!is_same_value),
            layers: if is_same_value { self.layers + 1 } else { 0 },
            ..self
        }
    }
}

struct Walk<'s> {
    registry: &'s Registry<'s>,
    /// The subschemas on the way here, and the level at which each was entered.
    open: Vec<(&'s Value, usize)>,
    extent: Extent,
}

impl<'s> Walk<'s> {
    fn visit(
        &mut self,
        schema: &'s Value,
        base: &Uri<String>,
        draft: Draft,
        mut stand: Stand,
    ) -> Result<(), Diagnostic> {
        self.count(stand)?;
        let Some(members) = schema.as_object() else {
            return Ok(());
        };
        let draft = draft.detect(schema);
        let resolver = self.registry.resolver(base.clone());
        let resource = resolver.in_subresource(draft.create_resource_ref(schema));
        let base = resource?.base_uri();
        if members.contains_key("unevaluatedProperties") || members.contains_key("unevaluatedItems") {
            stand.weight = stand.weight.saturating_mul(UNEVALUATED);
        }
        self.open.push((schema, stand.level));
        for (word, value) in members {
            let (is_same_value, subschemas) = subschemas(word, value);
            let mut inside = stand.into_subschema(is_same_value);
            inside.is_alternative |= word == "anyOf" || word == "oneOf";
            for subschema in subschemas {
                self.visit(subschema, &base, draft, inside)?;
            }
        }
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            self.follow(reference, &base, stand)?;
        }
        self.open.pop();
        if members.contains_key("$dynamicRef") || members.contains_key("$recursiveRef") {
            let message =
                "has a reference whose target depends on the way to it, and only `$ref` is followed";
            return Err(Diagnostic::error(message));
        }
        Ok(())
    }

    fn count(&mut self, stand: Stand) -> Result<(), Diagnostic> {
        let Extent {
            subschemas,
            alternatives,
            ..
        } = &mut self.extent;
        *subschemas = subschemas.saturating_add(stand.weight);
        if stand.is_alternative {
            *alternatives = alternatives.saturating_add(stand.weight);
        }
        if *subschemas > SUBSCHEMAS_MAX {
            let message =
                format!("comes to more than {SUBSCHEMAS_MAX} subschemas with its references followed");
            return Err(Diagnostic::error(message));
        }
        if stand.depth > DEPTH_MAX || stand.layers > LAYERS_MAX {
            let message = format!(
                "goes deeper than {DEPTH_MAX} subschemas, or {LAYERS_MAX} about one value, with its references followed"
            );
            return Err(Diagnostic::error(message));
        }
        Ok(())
    }

    fn follow(&mut self, reference: &str, base: &Uri<String>, stand: Stand) -> Result<(), Diagnostic> {
        let resolver = self.registry.resolver(base.clone());
        let (target, resolver, draft) = resolver.lookup(reference)?.into_inner();
        let open = self.open.iter().find(|(open, _)| std::ptr::eq(*open, target));
        match open {
            None => self.visit(target, &resolver.base_uri(), draft, stand.into_subschema(true)),
            Some((_, level)) if *level < stand.level => {
                self.extent.is_recursive = true;
                Ok(())
            }
            Some(_) => {
                let message = format!("refers to itself by `{reference}` without going into a value");
                Err(Diagnostic::error(message))
            }
        }
    }
}

/// The subschemas under this keyword, and whether they are about the same value.
fn subschemas<'s>(word: &str, value: &'s Value) -> (bool, Vec<&'s Value>) {
    let listed = || value.as_array().into_iter().flatten().collect();
    let named = || {
        value
            .as_object()
            .into_iter()
            .flat_map(|named| named.values())
            .collect()
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

impl From<ReferencingError> for Diagnostic {
    fn from(error: ReferencingError) -> Self {
        Self::error(format!("has a reference that cannot be followed: {error}"))
    }
}

#[cfg(test)]
mod tests;
