//! How much the schemas of a tenant's actions take, before they are compiled.
//!
//! Once they are compiled they take memory, each that is the same once. They are compiled again at each start, so what is
//! too much would end the gateway, and with it all other tenants, again and again.
//!
//! In the schema that policies are validated against, each action has the types of its parameters for itself, with what
//! they refer to written out. That is made again with each change of a tool, and whenever somebody wants to read it.

use super::{Compiler, Registry};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::schema::TYPES_MAX;
use crate::{parameters, schema, vocabulary};
use model::{Name, SlashFreeName, ToolAction};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The most bytes that they may take, as they are estimated: those of ten thousand actions fit that each have patterns
/// for a mail address, an identifier and a date, and twenty with the largest pattern that there may be.
pub(super) const WEIGHT_MAX: usize = 128 << 20;

/// What the schemas of a registry take.
#[derive(Default)]
struct Weight<'r> {
    /// Bytes once compiled, each that is the same once.
    bytes: Sum<'r>,
    /// Types that policies may look at, of each action.
    types: Sum<'r>,
}

/// What all of them take.
#[derive(Default)]
struct Sum<'r> {
    all: usize,
    largest: Option<Largest<'r>>,
}

/// The action whose schema takes the most.
struct Largest<'r> {
    amount: usize,
    tool: &'r SlashFreeName,
    action: &'r Name,
}

impl<'r> Sum<'r> {
    fn add(&mut self, amount: usize, tool: &'r SlashFreeName, action: &'r Name) {
        self.all = self.all.saturating_add(amount);
        if self
            .largest
            .as_ref()
            .is_none_or(|largest| largest.amount < amount)
        {
            self.largest = Some(Largest { amount, tool, action });
        }
    }

    /// Says so, in these words for the largest and for all, if it is more than it may be and than it was before.
    fn fault(
        &self,
        most: usize,
        before: usize,
        words: impl FnOnce(usize, usize) -> String,
    ) -> Option<Diagnostic> {
        let largest = self.largest.as_ref()?;
        (self.all > most.max(before)).then(|| {
            let fault = Diagnostic::error(words(largest.amount, self.all));
            vocabulary::of_schema(largest.tool, largest.action, fault)
        })
    }
}

impl Compiler {
    /// Refuses a registry whose schemas take too much, unless those that were there before took as much. Nothing is
    /// compiled for that.
    pub(super) fn check_weight(
        &self,
        registry: Registry<'_>,
        before: Option<Registry<'_>>,
    ) -> Result<(), Diagnostics> {
        if before.is_some_and(|before| before.tools.ptr_eq(registry.tools)) {
            return Ok(());
        }
        let Weight { bytes, types } = self.weight(registry);
        if bytes.all <= WEIGHT_MAX && types.all <= TYPES_MAX {
            return Ok(());
        }
        let before = before.map(|before| self.weight(before)).unwrap_or_default();
        let faults = [
            bytes.fault(WEIGHT_MAX, before.bytes.all, too_heavy),
            types.fault(TYPES_MAX, before.types.all, too_many_types),
        ];
        let faults: Vec<_> = faults.into_iter().flatten().collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Diagnostics(faults))
        }
    }

    /// How many bytes the schema of this action takes once compiled, about. Nothing is compiled to know it.
    pub fn schema_weight(&self, action: &ToolAction) -> usize {
        let known = self.parameter_rules.find(&parameters::digest(action));
        known.map_or_else(|| parameters::weight(action), |rules| rules.weight())
    }

    /// What the schemas of this registry take. Those in force are known, and others are measured.
    fn weight<'r>(&self, registry: Registry<'r>) -> Weight<'r> {
        let mut types_by_digest = HashMap::new();
        let mut weight = Weight::default();
        for tool in registry.tools.values() {
            for action in tool.actions.values() {
                let types = match types_by_digest.entry(parameters::digest(action)) {
                    Entry::Occupied(types) => *types.get(),
                    Entry::Vacant(new) => {
                        let known = self.parameter_rules.find(new.key());
                        let (bytes, types) = known.map_or_else(
                            || (parameters::weight(action), schema::types(action)),
                            |rules| (rules.weight(), rules.types()),
                        );
                        weight.bytes.add(bytes, &tool.name, &action.name);
                        *new.insert(types)
                    }
                };
                weight.types.add(types, &tool.name, &action.name);
            }
        }
        weight
    }
}

/// What is said where they take too many bytes.
fn too_heavy(largest: usize, all: usize) -> String {
    format!(
        "takes {largest} bytes once compiled, those of all actions together take {all}, and may take {WEIGHT_MAX}: repeat less by count in patterns, as in `a{{5000}}`, and have fewer groups in them, shorten `$id`s and names around many subschemas, refer less often to what has long lists, or delete tools that are not needed any more"
    )
}

/// What is said where they give policies too many types to look at.
fn too_many_types(largest: usize, all: usize) -> String {
    format!(
        "gives policies {largest} types to look at, those of all actions together come to {all}, and may come to {TYPES_MAX}: list fewer properties, refer less often to what has many, shorten names, or delete tools that are not needed any more"
    )
}
