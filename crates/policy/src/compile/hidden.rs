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
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// An action whose parameters are seen in another way than before.
struct Changed {
    id: String,
    uid: EntityUID,
    groups: [EntityUID; 3],
    groups_before: [EntityUID; 3],
    input: Record,
    input_before: Record,
    declared: BTreeSet<String>,
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
fn changed(before: Registry<'_>, after: Registry<'_>) -> Vec<Changed> {
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

impl Changed {
    fn of(tool_before: &Tool, before: &ToolAction, tool: &Tool, action: &ToolAction) -> Option<Self> {
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
            declared: schema::declared_parameters(action),
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

    /// Whether what is on this way was seen, and is still declared, and not seen any more.
    fn hides(&self, way: &[&str]) -> bool {
        let is_declared = way.first().is_some_and(|name| self.declared.contains(*name));
        is_declared && has(&self.input_before, way) && !has(&self.input, way)
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

/// What to tell of this policy, at each place once: links share the text of their template.
fn of_policy(policy: &TenantPolicy, changed: &[Changed]) -> Vec<Diagnostic> {
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

fn finding(parsed: &Parsed, test: &Test<'_>, action: &Changed, way: &[&str]) -> Diagnostic {
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
