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
/// The most steps that the check of one ask's parameters may take: some tens of milliseconds.
const STEPS_MAX: usize = 1 << 22;
/// What it takes to find a text or a whole number among many that are all of that kind.
const LOOK_UP: usize = 8;
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
    /// What it takes to check one value at each depth of the parameters.
    steps: Steps,
    /// The same for all depths together.
    steps_in_all: usize,
}

/// What it takes at most to check one value, for each depth below the one where it begins: at 0 the value itself, at 1 a value in it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Steps(Vec<usize>);

impl Steps {
    /// What is checked besides, so many levels below.
    fn add(&mut self, below: usize, other: &Self) {
        self.merge(below, other, usize::saturating_add);
    }

    /// What is checked instead: a value has one name only.
    fn or(&mut self, below: usize, other: &Self) {
        self.merge(below, other, usize::max);
    }

    fn merge(&mut self, below: usize, other: &Self, merge: impl Fn(usize, usize) -> usize) {
        let length = self.0.len().max(other.0.len() + below);
        self.0.resize(length, 0);
        for (mine, others) in self.0[below..].iter_mut().zip(&other.0) {
            *mine = merge(*mine, *others);
        }
    }
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
        let steps = walk.visit(root.contents(), &base, draft, start)?;
        Ok(Self { steps, ..walk.extent })
    }

    /// Whether this value can be checked in time: those at each depth against what is for that depth, or where the schema refers to itself,
    /// against all there is, because validation comes to each once.
    pub(crate) fn can_check(&self, value: &Value) -> bool {
        let mut counts = Vec::new();
        count_levels(value, 0, &mut counts);
        let steps = if self.is_recursive {
            let values: usize = counts.iter().sum();
            self.steps_in_all.saturating_mul(values)
        } else {
            let pairs = self.steps.0.iter().zip(&counts);
            pairs.fold(0, |sum: usize, (steps, values)| {
                sum.saturating_add(steps.saturating_mul(*values))
            })
        };
        steps <= STEPS_MAX
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

/// How many values there are at each depth of a value.
fn count_levels(value: &Value, depth: usize, counts: &mut Vec<usize>) {
    if counts.len() <= depth {
        counts.push(0);
    }
    counts[depth] += 1;
    match value {
        Value::Array(values) => values
            .iter()
            .for_each(|value| count_levels(value, depth + 1, counts)),
        Value::Object(members) => members
            .values()
            .for_each(|value| count_levels(value, depth + 1, counts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What a schema takes for the value that it is about, without its subschemas.
fn own_steps(schema: &Value) -> usize {
    let of_word = |word: &str, value: &Value| match (word, value) {
        ("enum", Value::Array(values)) if are_looked_up(values) => LOOK_UP,
        ("enum" | "const", value) => count(value),
        ("required", Value::Array(names)) => names.len(),
        _ => 1,
    };
    let members = schema.as_object().into_iter().flatten();
    members.map(|(word, value)| of_word(word, value)).sum::<usize>() + 1
}

/// Whether a validator looks a value up among these, and does not compare it with one after the other.
fn are_looked_up(values: &[Value]) -> bool {
    values.iter().all(|value| value.is_string() || value.is_null()) || values.iter().all(Value::is_i64)
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
    ) -> Result<Steps, Diagnostic> {
        self.count(stand)?;
        let own = own_steps(schema);
        let mut steps = Steps(vec![own]);
        let Some(members) = schema.as_object() else {
            self.count_steps(own, stand);
            return Ok(steps);
        };
        let draft = draft.detect(schema);
        let resolver = self.registry.resolver(base.clone());
        let resource = resolver.in_subresource(draft.create_resource_ref(schema));
        let base = resource?.base_uri();
        let times =
            if members.contains_key("unevaluatedProperties") || members.contains_key("unevaluatedItems") {
                UNEVALUATED
            } else {
                1
            };
        stand.weight = stand.weight.saturating_mul(times);
        self.count_steps(own, stand);
        self.open.push((schema, stand.level));
        for (word, value) in members {
            let (is_same_value, subschemas) = subschemas(word, value);
            let mut inside = stand.into_subschema(is_same_value);
            inside.is_alternative |= word == "anyOf" || word == "oneOf";
            let below = usize::from(!is_same_value);
            let mut of_word = Steps::default();
            for subschema in subschemas {
                let of_subschema = self.visit(subschema, &base, draft, inside)?;
                if is_one_of(word, value) {
                    of_word.or(below, &of_subschema);
                } else {
                    of_word.add(below, &of_subschema);
                }
            }
            steps.add(0, &of_word);
        }
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            steps.add(0, &self.follow(reference, &base, stand)?);
        }
        self.open.pop();
        for steps in &mut steps.0 {
            *steps = steps.saturating_mul(times);
        }
        if members.contains_key("$dynamicRef") || members.contains_key("$recursiveRef") {
            let message =
                "has a reference whose target depends on the way to it, and only `$ref` is followed";
            return Err(Diagnostic::error(message));
        }
        Ok(steps)
    }

    fn count_steps(&mut self, own: usize, stand: Stand) {
        let steps = own.saturating_mul(stand.weight);
        self.extent.steps_in_all = self.extent.steps_in_all.saturating_add(steps);
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

    fn follow(&mut self, reference: &str, base: &Uri<String>, stand: Stand) -> Result<Steps, Diagnostic> {
        let resolver = self.registry.resolver(base.clone());
        let (target, resolver, draft) = resolver.lookup(reference)?.into_inner();
        let open = self.open.iter().find(|(open, _)| std::ptr::eq(*open, target));
        match open {
            None => self.visit(target, &resolver.base_uri(), draft, stand.into_subschema(true)),
            Some((_, level)) if *level < stand.level => {
                self.extent.is_recursive = true;
                Ok(Steps::default())
            }
            Some(_) => {
                let message = format!("refers to itself by `{reference}` without going into a value");
                Err(Diagnostic::error(message))
            }
        }
    }
}

/// Whether a value in the one that is checked meets only one of the subschemas under this keyword.
fn is_one_of(word: &str, value: &Value) -> bool {
    matches!(word, "properties" | "prefixItems") || word == "items" && value.is_array()
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
