//! A condition in two parts: what is known as soon as the action is, and what only a question can tell.
//!
//! The first part is the leading conditions that look at nothing but `context.tool`. It is settled for every action when a
//! registry is compiled, so that a question meets only the second part of the policies that are still open. Conditions
//! behind the first that asks for more stay where they are: they may fail, and failing counts.

use crate::condition::Condition;
use crate::evaluate::{Asked, holds};
use crate::read_set::{Member, ReadSet};
use cedar_policy_core::ast::{Expr, ExprKind};
use std::sync::Arc;

/// A condition in two parts.
#[derive(Debug)]
pub(crate) struct Split {
    guard: Condition,
    rest: Option<Condition>,
}

/// What an action leaves of a condition.
#[derive(Debug)]
pub(crate) enum Left {
    /// It cannot hold.
    Nothing,
    /// The second part; nothing if it holds whatever is asked.
    Rest(Option<Condition>),
    /// All of it, because the first part fails.
    Whole,
}

impl Split {
    /// The two parts, if there is a first one.
    pub(crate) fn of(condition: &Condition) -> Option<Self> {
        let (guard, rest) = take_known(&condition.expression);
        Some(Self {
            guard: Condition::new(guard?),
            rest: rest.map(Condition::new),
        })
    }

    /// The second part; nothing if there is none.
    pub(crate) const fn rest(&self) -> Option<&Condition> {
        self.rest.as_ref()
    }

    /// What is left of it for an action of which this is known.
    pub(crate) fn left(&self, known: &Asked) -> Left {
        match holds(&known.evaluator(), Some(&self.guard)) {
            Ok(true) => Left::Rest(self.rest.clone()),
            Ok(false) => Left::Nothing,
            Err(_) => Left::Whole,
        }
    }
}

/// The known leading part of `a && b && c`, and the rest.
fn take_known(expression: &Arc<Expr>) -> (Option<Arc<Expr>>, Option<Arc<Expr>>) {
    if ReadSet::of(expression).is_subset_of(ReadSet::member(Member::Tool)) {
        return (Some(Arc::clone(expression)), None);
    }
    let ExprKind::And { left, right } = expression.expr_kind() else {
        return (None, Some(Arc::clone(expression)));
    };
    match take_known(left) {
        (None, _) => (None, Some(Arc::clone(expression))),
        (known, Some(open)) => (known, Some(and(&open, right))),
        (Some(known), None) => match take_known(right) {
            (None, _) => (Some(known), Some(Arc::clone(right))),
            (Some(more), rest) => (Some(and(&known, &more)), rest),
        },
    }
}

fn and(left: &Arc<Expr>, right: &Arc<Expr>) -> Arc<Expr> {
    Arc::new(Expr::and((**left).clone(), (**right).clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(conditions: &str) -> (String, String) {
        let text = format!("permit (principal, action, resource) {conditions};");
        let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
        let whole = Arc::new(policy.non_scope_constraints().unwrap().clone());
        let print = |part: Option<Arc<Expr>>| part.map(|part| part.to_string()).unwrap_or_default();
        let (known, rest) = take_known(&whole);
        (print(known), print(rest))
    }

    #[test]
    fn only_what_the_action_decides_is_taken_and_only_from_the_front() {
        for (conditions, known, rest) in [
            (
                "when { context.tool.canary && context.tool.mutates && context.sensitive }",
                "context.tool.canary && context.tool.mutates",
                "context.sensitive",
            ),
            (
                "when { context.sensitive && context.tool.canary }",
                "",
                "context.sensitive && (context.tool.canary)",
            ),
            (
                "when { context.tool.canary } unless { context.tool.mutates } when { context.sensitive }",
                "(context.tool.canary) && (!(context.tool.mutates))",
                "context.sensitive",
            ),
            (
                "unless { context.tool.canary && context.sensitive }",
                "",
                "!(context.tool.canary && context.sensitive)",
            ),
            (
                "when { context.tool.canary } when { context.tool.mutates && context.sensitive }",
                "context.tool.canary && context.tool.mutates",
                "context.sensitive",
            ),
        ] {
            let plain = |text: &str| text.replace(['(', ')'], "");
            let (left, right) = split(conditions);
            assert_eq!(
                (plain(&left), plain(&right)),
                (plain(known), plain(rest)),
                "{conditions}"
            );
        }
        for open in [
            "context.tool.name == principal.name",
            "User::\"bob\" in Team::\"leads\"",
            "resource == Resource::\"\"",
            "action in Action::\"read\"",
            "context == context",
        ] {
            assert_eq!(split(&format!("when {{ {open} }}")).0, "", "{open}");
        }
    }
}
