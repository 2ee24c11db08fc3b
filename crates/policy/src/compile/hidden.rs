//! Parameters that policies in force test for, and that one action goes on declaring where they cannot see them any
//! more: with several types, say. Another action in the scope may have them as before, so validation finds nothing.
//!
//! A parameter that an action does not declare any more is none: it is what the test of a policy about many actions is for.

use super::{Candidate, CompiledPolicy, Registry, digest, parsed};
use crate::diagnostics::Diagnostic;
use crate::facts;
use crate::index::Position;
use crate::json_schema::{Record, Shape};
use crate::parse::Parsed;
use crate::read_set::{Member, ReadSet};
use crate::schema;
use crate::statement::Statement;
use crate::tenant::TenantPolicy;
use crate::validate::TOLD_MAX;
use crate::validate::undeclared::{Span, Test};
use cedar_policy_core::ast::EntityUID;
use model::{Tool, ToolAction};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// What may say more of an object's members than the list of them.
const COMPOSING: [&str; 10] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "patternProperties",
    "dependencies",
    "dependentSchemas",
];

/// An action whose parameters are seen in another way than before.
struct Changed<'r> {
    id: String,
    uid: EntityUID,
    groups: [EntityUID; 3],
    groups_before: [EntityUID; 3],
    input: Record,
    input_before: Record,
    action: &'r ToolAction,
}

/// What these policies, compiled for the candidate, would not see any more that the same ones see in what is in force.
pub(super) fn findings(
    candidate: Candidate<'_>,
    compiled: &[Arc<CompiledPolicy>],
    before: Candidate<'_>,
) -> Vec<Diagnostic> {
    let changed = changed(before.registry, candidate.registry);
    // What has faults of its own is not among those that are compiled, and is refused whatever else there is.
    if changed.is_empty() || compiled.len() != candidate.policies.len() {
        return Vec::new();
    }
    let reads = |statement: &Arc<Statement>| {
        let condition = statement.condition.as_ref();
        condition.is_some_and(|condition| condition.reads.intersects(ReadSet::member(Member::Input)))
            && changed.iter().any(|action| action.is_in_scope(statement))
    };
    let all = candidate.policies.iter().zip(compiled);
    let looking: Vec<_> = all
        .filter(|(_, compiled)| compiled.statements.iter().any(reads))
        .map(|(policy, _)| policy)
        .collect();
    if looking.is_empty() {
        return Vec::new();
    }
    let known: HashSet<_> = before.policies.iter().map(digest).collect();
    let in_force = |policy: &&TenantPolicy| known.contains(&digest(policy));
    let in_force = looking.into_iter().filter(in_force);
    in_force.flat_map(|policy| of_policy(policy, &changed)).collect()
}

/// The actions of both registries whose parameters policies do not see as before.
fn changed<'r>(before: Registry<'_>, after: Registry<'r>) -> Vec<Changed<'r>> {
    let tools = after.tools.iter().filter_map(|(name, tool)| {
        let was = before.tools.get(name)?;
        (!Arc::ptr_eq(was, tool)).then_some((was, tool))
    });
    let actions = tools.flat_map(|(was, tool)| {
        let actions = tool.actions.values();
        actions.filter_map(move |action| Changed::of(was, was.actions.get(&action.name)?, tool, action))
    });
    actions.collect()
}

impl<'r> Changed<'r> {
    fn of(tool_before: &Tool, before: &ToolAction, tool: &Tool, action: &'r ToolAction) -> Option<Self> {
        if before.input_schema == action.input_schema {
            return None;
        }
        let (input_before, input) = (schema::input(before), schema::input(action));
        if input_before == input {
            return None;
        }
        let id = facts::action_id(tool.name.as_str(), action.name.as_str());
        Some(Self {
            uid: facts::action(&id),
            id,
            groups: facts::groups(tool, action, action.mutates_state),
            groups_before: facts::groups(tool_before, before, before.mutates_state),
            input,
            input_before,
            action,
        })
    }

    /// Whether this policy is about it, and was.
    fn is_in_scope(&self, statement: &Statement) -> bool {
        [&self.groups, &self.groups_before].into_iter().all(|groups| {
            statement.scope.admits_action(Position {
                entity: &self.uid,
                ancestors: groups,
            })
        })
    }

    /// Whether what is on this way was seen, and the first member on it that is not seen any more may still be there. It
    /// is not if it is a parameter that is not declared, or if an object lists its members and it is none of them.
    fn hides(&self, way: &[&str]) -> bool {
        let mut beginnings = (1..=way.len()).map(|length| &way[..length]);
        let unseen = beginnings.find(|beginning| !has(&self.input, beginning));
        has(&self.input_before, way)
            && unseen.is_some_and(|unseen| match unseen {
                [_] => declares(self.action, unseen),
                _ => !lacks(self.action, unseen),
            })
    }
}

/// Whether there is a member at the end of this way.
pub(super) fn has(record: &Record, way: &[&str]) -> bool {
    let Some((name, rest)) = way.split_first() else {
        return true;
    };
    match record.get(*name).map(|member| &member.shape) {
        Some(_) if rest.is_empty() => true,
        Some(Shape::Record(inner)) => has(inner, rest),
        _ => false,
    }
}

/// Whether an action declares what is at the end of this way, seen by policies or not.
pub(super) fn declares(action: &ToolAction, way: &[&str]) -> bool {
    let schema = action.input_schema.as_deref();
    schema.is_some_and(|schema| way.iter().copied().try_fold(schema, listed).is_some())
}

/// Whether the object that the last member on this way would be in lists its members, and this one is not among them.
/// Where there is a reference or a choice on the way, nobody can tell.
fn lacks(action: &ToolAction, way: &[&str]) -> bool {
    let (Some((name, outer)), Some(schema)) = (way.split_last(), action.input_schema.as_deref()) else {
        return false;
    };
    let plain = |schema: &'_ Value| !COMPOSING.iter().any(|keyword| schema.get(*keyword).is_some());
    let mut outer = outer.iter().copied();
    let object = outer.try_fold(schema, |schema, name| {
        plain(schema).then(|| listed(schema, name)).flatten()
    });
    object.is_some_and(|object| {
        let members = object.get("properties").and_then(Value::as_object);
        members.is_some_and(|members| !members.contains_key(*name)) && plain(object)
    })
}

/// The schema of the member with this name, if it is listed in this one.
fn listed<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    schema.get("properties")?.get(name)
}

/// What to tell of this policy, at each place once: links share the text of their template.
fn of_policy(policy: &TenantPolicy, changed: &[Changed<'_>]) -> Vec<Diagnostic> {
    let mut told: HashSet<Option<Span>> = HashSet::new();
    let mut findings = Vec::new();
    for parsed in parsed(policy).into_iter().flatten() {
        let changed = changed
            .iter()
            .filter(|action| action.is_in_scope(&parsed.statement));
        let changed: Vec<_> = changed.collect();
        let Some(conditions) = parsed.template.non_scope_constraints() else {
            continue;
        };
        for test in conditions.subexpressions().filter_map(Test::of) {
            let Some(way) = test.in_input() else { continue };
            let Some(action) = changed.iter().find(|action| action.hides(&way)) else {
                continue;
            };
            if findings.len() < TOLD_MAX && told.insert(test.span()) {
                findings.push(finding(&parsed, &test, action, &way));
            }
        }
    }
    findings
}

fn finding(parsed: &Parsed, test: &Test<'_>, action: &Changed<'_>, way: &[&str]) -> Diagnostic {
    let message = format!(
        "`{}` would not let policies see `{}` any more",
        action.id,
        way.join(".")
    );
    about(parsed, test, message)
}

/// What is wrong with this test of a policy for a parameter that is out of its sight, and what helps.
pub(super) fn about(parsed: &Parsed, test: &Test<'_>, message: String) -> Diagnostic {
    Diagnostic::error(message)
        .with_help("declare it with one type, or name the other actions in the scope of the policy")
        .about(&parsed.statement.id)
        .at(test.place(parsed))
}
