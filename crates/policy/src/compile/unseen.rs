//! Parameters that policies in force test for, and that an action in their scope declares where they cannot see them:
//! with several types, say. For this action such a test fails, whatever is sent, and what stands behind it never
//! counts.
//!
//! A change that brings this about is refused by [`hidden`]. An upgrade has no registry from before to compare with:
//! the version that the policy was written for may have seen what this one does not.

use super::{Candidate, CompiledPolicy, Registry, at_other_places, hidden, parsed};
use crate::diagnostics::Diagnostic;
use crate::facts;
use crate::index::Position;
use crate::json_schema::Record;
use crate::parse::Parsed;
use crate::read_set::{Member, ReadSet};
use crate::schema;
use crate::set::PolicySet;
use crate::statement::Statement;
use crate::validate::undeclared::Test;
use cedar_policy_core::ast::EntityUID;
use model::{Tool, ToolAction};
use std::cell::OnceCell;

/// An action, and what policies see of its parameters, once somebody has asked.
struct Declared<'r> {
    id: String,
    uid: EntityUID,
    /// As it is registered, and as an ask may claim that it is.
    groups: [[EntityUID; 3]; 2],
    action: &'r ToolAction,
    input: OnceCell<Record>,
}

impl PolicySet {
    /// What the policies of the candidate, of which this set is made, test for and never find: each test of the
    /// tenant's for a member that nothing has which the policy is about, and of every policy, the operator's too, the
    /// first test for a parameter that an action declares where policies cannot see it. That may be meant so. It reads
    /// those texts again that look at parameters, so it has no place on a thread that answers asks.
    pub fn tests_in_vain(&self, candidate: Candidate<'_>) -> Vec<Diagnostic> {
        let compiled = &self.contents.policies;
        let undeclared = compiled.iter().flat_map(|policy| &policy.unfit);
        let undeclared = undeclared.filter(|finding| finding.is_of_undeclared).cloned();
        let mut found: Vec<_> = undeclared.map(Diagnostic::into_warning).collect();
        let looking = candidate.policies.iter().zip(compiled);
        let looking = looking.filter(|(_, compiled)| looks_at_parameters(compiled));
        let own: Vec<_> = looking
            .filter_map(|(policy, _)| parsed(policy).ok())
            .flatten()
            .collect();
        let base = &self.contents.vocabulary.base.policies;
        let unseen = findings(base.iter().chain(&own), candidate.registry);
        let unseen = at_other_places(&found, unseen);
        found.extend(unseen);
        found
    }
}

fn looks_at_parameters(compiled: &CompiledPolicy) -> bool {
    let input = ReadSet::member(Member::Input);
    compiled.statements.iter().any(|statement| {
        let condition = statement.condition.as_ref();
        condition.is_some_and(|condition| condition.reads.intersects(input))
    })
}

/// Of each of these policies the first test that fails for one of the actions though it declares what is tested for.
fn findings<'p>(policies: impl Iterator<Item = &'p Parsed>, registry: Registry<'_>) -> Vec<Diagnostic> {
    let tools = registry.tools.values();
    let actions = tools.flat_map(|tool| {
        let actions = tool.actions.values();
        actions.map(move |action| Declared::of(tool, action))
    });
    let actions: Vec<_> = actions.collect();
    let findings = policies.filter_map(|parsed| {
        let conditions = parsed.template.non_scope_constraints()?;
        let tests = conditions.subexpressions().filter_map(Test::of);
        let mut tests = tests.filter_map(|test| Some((test.in_input()?, test))).peekable();
        tests.peek()?;
        let in_scope = actions
            .iter()
            .filter(|action| action.is_in_scope(&parsed.statement));
        let in_scope: Vec<_> = in_scope.collect();
        tests.find_map(|(way, test)| {
            let action = in_scope.iter().find(|action| action.hides(&way))?;
            Some(finding(parsed, &test, action, &way))
        })
    });
    findings.collect()
}

impl<'r> Declared<'r> {
    fn of(tool: &Tool, action: &'r ToolAction) -> Self {
        let id = facts::action_id(tool.name.as_str(), action.name.as_str());
        Self {
            uid: facts::action(&id),
            id,
            groups: [action.mutates_state, true].map(|mutates| facts::groups(tool, action, mutates)),
            action,
            input: OnceCell::new(),
        }
    }

    /// Whether what is on this way is declared, and policies do not see it.
    fn hides(&self, way: &[&str]) -> bool {
        hidden::declares(self.action, way)
            && !hidden::has(self.input.get_or_init(|| schema::input(self.action)), way)
    }

    /// Whether the policy is about it, as it is registered or as an ask may claim that it is.
    fn is_in_scope(&self, statement: &Statement) -> bool {
        self.groups.iter().any(|groups| {
            statement.scope.admits_action(Position {
                entity: &self.uid,
                ancestors: groups,
            })
        })
    }
}

fn finding(parsed: &Parsed, test: &Test<'_>, action: &Declared<'_>, way: &[&str]) -> Diagnostic {
    let message = format!(
        "`{}` declares `{}` so that policies cannot see it",
        action.id,
        way.join(".")
    );
    hidden::about(parsed, test, message).into_warning()
}
