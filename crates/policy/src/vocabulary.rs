//! What the policies of a registry speak of, compiled: its actions and their parameters, and what the base policies leave
//! for each of them. Tenants with equal registries share it.

use crate::base::BasePolicies;
use crate::cache::WeakCache;
use crate::compile::Registry;
use crate::condition::Condition;
use crate::context::{Groups, Side};
use crate::diagnostics::{Diagnostic, Diagnostics, Subject};
use crate::evaluate::Asked;
use crate::guard::{Left, Split};
use crate::index::Index;
use crate::json_schema::Record;
use crate::nobody;
use crate::parameters::{self, ParameterRules};
use crate::schema;
use crate::statement::Statement;
use crate::validate::undeclared::Span;
use crate::validate::{Validated, Validator};
use canon::Digest;
use cedar_policy::Schema;
use model::{Name, SlashFreeName};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How many guards are settled for a registry, at most: one for every base policy with a guard and side of an action.
/// Beyond that they are left to be evaluated with the rest of their policies.
const GUARDS_MAX: usize = 100_000;

/// What the policies of a registry speak of.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) actions: HashMap<SlashFreeName, HashMap<Name, Action>>,
    pub(crate) attributes: Record,
    pub(crate) base: BasePolicies,
    /// What the base policies leave open, by the numbers that `base_index` knows them by.
    pub(crate) base_rules: Vec<Rule>,
    pub(crate) base_index: Index,
    pub(crate) warnings: Vec<Diagnostic>,
    /// The tests of the base policies for members that something has which they are about.
    pub(crate) declared: HashSet<Span>,
}

/// An action of a tool, ready to be asked about.
#[derive(Debug)]
pub(crate) struct Action {
    /// Its place among all actions.
    pub(crate) number: usize,
    pub(crate) parameters: Arc<ParameterRules>,
    /// As one that changes nothing, and as one that changes something.
    pub(crate) sides: [Side; 2],
    /// The numbers in the index of the base policies, for each side.
    pub(crate) base: [Vec<u32>; 2],
    /// What the registry says, which no question can loosen.
    pub(crate) mutates: bool,
}

/// A policy, and what of its condition is still open.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) statement: Arc<Statement>,
    pub(crate) condition: Option<Condition>,
}

impl Rule {
    /// The policy as it was written.
    pub(crate) fn whole(statement: &Arc<Statement>) -> Self {
        Self {
            condition: statement.condition.clone(),
            statement: Arc::clone(statement),
        }
    }
}

impl Vocabulary {
    /// The vocabulary of this registry, which has this schema, under these base policies if they are valid there.
    pub(crate) fn new(
        base: &BasePolicies,
        registry: Registry<'_>,
        schema: &Schema,
        parameter_rules: &WeakCache<Digest, ParameterRules>,
    ) -> Result<Self, Diagnostics> {
        let vocabulary = Self::unvalidated(base, registry, parameter_rules)?;
        let Validated {
            errors,
            warnings,
            declared,
            ..
        } = validate(base, schema);
        if !errors.is_empty() {
            return Err(Diagnostics(errors));
        }
        Ok(Self {
            warnings,
            declared,
            ..vocabulary
        })
    }

    /// The vocabulary of this registry, whether the base policies are valid there or not.
    pub(crate) fn unvalidated(
        base: &BasePolicies,
        registry: Registry<'_>,
        parameter_rules: &WeakCache<Digest, ParameterRules>,
    ) -> Result<Self, Diagnostics> {
        let mut actions = actions(registry, parameter_rules)?;
        let (base_rules, base_index) = settle(base, registry, &mut actions);
        Ok(Self {
            base: base.clone(),
            attributes: schema::attributes(registry),
            actions,
            base_rules,
            base_index,
            warnings: Vec::new(),
            declared: HashSet::new(),
        })
    }

    pub(crate) fn action(&self, tool: &str, action: &str) -> Option<&Action> {
        self.actions.get(tool)?.get(action)
    }

    /// The base policies, and whether what an action decides is cut off from each before anything is asked.
    pub(crate) fn base(&self) -> impl Iterator<Item = (&Arc<Statement>, bool)> {
        let guards = guards(&self.base, sides_of(&self.actions));
        guards.map(|(statement, split)| (statement, split.is_some()))
    }
}

/// What is the same in equal registries: everything that policies or parameters are compiled from.
pub(crate) fn digest(registry: Registry<'_>) -> Digest {
    let tools = registry.tools.values().map(|tool| {
        let actions = tool.actions.values().map(|action| {
            json!([
                action.name,
                action.mutates_state,
                action.risk,
                action.input_schema
            ])
        });
        json!([tool.name, tool.canary, actions.collect::<Vec<_>>()])
    });
    let all = json!([tools.collect::<Vec<_>>(), registry.attributes]);
    Digest::of(all.to_string().as_bytes())
}

fn actions(
    registry: Registry<'_>,
    parameter_rules: &WeakCache<Digest, ParameterRules>,
) -> Result<HashMap<SlashFreeName, HashMap<Name, Action>>, Diagnostics> {
    let mut ready = HashMap::new();
    let mut faults = Vec::new();
    let mut groups = Groups::default();
    let mut number = 0;
    for (name, tool) in registry.tools {
        let mut actions = HashMap::new();
        for action in tool.actions.values() {
            match parameter_rules.get(parameters::digest(action), || ParameterRules::of(action)) {
                Ok(parameters) => {
                    let prepared = Action {
                        number,
                        parameters,
                        sides: Side::both(tool, action, &mut groups),
                        base: Default::default(),
                        mutates: action.mutates_state,
                    };
                    actions.insert(action.name.clone(), prepared);
                    number += 1;
                }
                Err(fault) => faults.push(of_schema(name, &action.name, fault)),
            }
        }
        ready.insert(name.clone(), actions);
    }
    if faults.is_empty() {
        Ok(ready)
    } else {
        Err(Diagnostics(faults))
    }
}

/// A fault of the schema of this action, as one that names it.
pub(crate) fn of_schema(tool: &SlashFreeName, action: &Name, fault: Diagnostic) -> Diagnostic {
    let message = format!("the input schema of `{tool}/{action}` {}", fault.message);
    Diagnostic {
        message,
        subject: Subject::InputSchema,
        ..fault
    }
}

/// The base policies fit every registry, also one without the actions that they are about: what never matches is odd
/// only, and so is what is wrong for users only, which they may have said for long.
fn validate(base: &BasePolicies, schema: &Schema) -> Validated {
    let validator = Validator::new(schema);
    let mut all = Validated::default();
    for parsed in &*base.policies {
        let found = validator.validate(parsed);
        let unfit = found.unfit.into_iter().map(Diagnostic::into_warning);
        all.errors.extend(found.errors);
        all.warnings.extend(found.warnings);
        all.warnings.extend(unfit);
        all.declared.extend(found.declared);
    }
    all.warnings.extend(nobody::warnings(&base.policies));
    all
}

/// A base policy whose condition is known in part as soon as the action is.
struct Guarded<'b> {
    statement: &'b Arc<Statement>,
    split: Split,
}

/// The base policies, each with its condition in two parts if the first one is settled for so many sides of actions.
fn guards(base: &BasePolicies, sides: usize) -> impl Iterator<Item = (&Arc<Statement>, Option<Split>)> {
    let mut count = 0;
    base.policies.iter().map(move |parsed| {
        let statement = &parsed.statement;
        let split = statement.condition.as_ref().and_then(Split::of);
        let split = split.filter(|_| (count + 1) * sides <= GUARDS_MAX);
        count += usize::from(split.is_some());
        (statement, split)
    })
}

fn sides_of(actions: &HashMap<SlashFreeName, HashMap<Name, Action>>) -> usize {
    actions.values().map(HashMap::len).sum::<usize>() * 2
}

/// Settles what the base policies know as soon as the action is.
fn settle(
    base: &BasePolicies,
    registry: Registry<'_>,
    actions: &mut HashMap<SlashFreeName, HashMap<Name, Action>>,
) -> (Vec<Rule>, Index) {
    let (mut rules, mut index) = (Vec::new(), Index::default());
    let mut guarded = Vec::new();
    for (statement, split) in guards(base, sides_of(actions)) {
        if let Some(split) = split {
            guarded.push(Guarded { statement, split });
        } else {
            let number = add(&mut rules, Rule::whole(statement));
            index.add(number, &statement.scope);
        }
    }
    for tool in registry.tools.values() {
        for action in tool.actions.values() {
            let prepared = actions.get_mut(&tool.name);
            let prepared = prepared.and_then(|actions| actions.get_mut(&action.name));
            let Action { sides, base, .. } = prepared.expect("every action of the registry was prepared");
            for (side, numbers) in sides.iter().zip(base) {
                let own = settle_side(&guarded, side, &side.known(tool, action), &mut rules, &mut index);
                *numbers = index.action(side.position()).as_slice().to_vec();
                numbers.extend(own);
            }
        }
    }
    (rules, index)
}

/// Adds what one side of an action leaves of these policies. Returns the number that it is found under, if anything is.
fn settle_side(
    guarded: &[Guarded<'_>],
    side: &Side,
    known: &Asked,
    rules: &mut Vec<Rule>,
    index: &mut Index,
) -> Option<u32> {
    let mut own = None;
    for Guarded { statement, split } in guarded {
        if !statement.scope.admits_action(side.position()) {
            continue;
        }
        let condition = match split.left(known) {
            Left::Nothing => continue,
            Left::Rest(rest) => rest,
            Left::Whole => statement.condition.clone(),
        };
        let statement = Arc::clone(statement);
        let scope = statement.scope.clone();
        let number = add(rules, Rule { statement, condition });
        let own = *own.get_or_insert_with(|| index.unused_number());
        index.add_under(own, number, &scope);
    }
    own
}

fn add(rules: &mut Vec<Rule>, rule: Rule) -> u32 {
    // No list of a tenant's leads around what the operator forbids, or takes away what the operator permits.
    let condition = rule.condition.map(Condition::without_bound);
    rules.push(Rule { condition, ..rule });
    u32::try_from(rules.len() - 1).expect("guards have a bound, and a text has fewer policies than bytes")
}
