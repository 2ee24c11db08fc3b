//! What a policy asks of an action, an agent or a user that it names. Of these an ask knows only its own: any other one
//! is in nothing and has nothing, so that what is asked never holds, or fails. Types tell otherwise: to them whatever
//! is named is there, and in what the registry says.
//!
//! Whether somebody is the one that is named may always be asked.

use super::TOLD_MAX;
use crate::diagnostics::{Diagnostic, Place};
use crate::facts::TYPES;
use crate::parse::Parsed;
use cedar_policy_core::ast::{BinaryOp, EntityType, Expr, ExprKind, Literal};

/// Whose facts are asked for.
enum Named {
    Action,
    /// An agent or a user.
    Somebody,
}

/// The places where a policy asks for what is not known of what it names.
pub(crate) fn findings(parsed: &Parsed) -> Vec<Diagnostic> {
    let Some(conditions) = parsed.template.non_scope_constraints() else {
        return Vec::new();
    };
    let asked = conditions
        .subexpressions()
        .filter_map(|part| Some((part, Named::asked_by(part)?)));
    let told = asked.take(TOLD_MAX).map(|(part, named)| {
        let (message, help) = named.told();
        let found = Diagnostic::error(message).with_help(help);
        found
            .about(&parsed.statement.id)
            .at(Place::of_loc(part.source_loc()))
    });
    told.collect()
}

impl Named {
    /// What this part of a condition asks for more than who it is.
    fn asked_by(part: &Expr) -> Option<Self> {
        let (of, is_of_groups) = match part.expr_kind() {
            ExprKind::BinaryApp {
                op: BinaryOp::In,
                arg1,
                ..
            } => (arg1, true),
            ExprKind::BinaryApp {
                op: BinaryOp::HasTag | BinaryOp::GetTag,
                arg1,
                ..
            } => (arg1, false),
            ExprKind::GetAttr { expr, .. }
            | ExprKind::HasAttr { expr, .. }
            | ExprKind::ExtHasAttr { expr, .. } => (expr, false),
            _ => return None,
        };
        if is_of_groups && may_be_named(of, &[&TYPES.action]) {
            return Some(Self::Action);
        }
        may_be_named(of, &[&TYPES.agent, &TYPES.user]).then_some(Self::Somebody)
    }

    /// What to tell of it, and what helps.
    const fn told(&self) -> (&'static str, &'static str) {
        match self {
            Self::Action => (
                "the groups of an action are known only of the one that is asked for, and not of one that the policy names",
                "write `action in …`, or leave out the action that is named",
            ),
            Self::Somebody => (
                "teams, members and tags are known only of the agent and the user of the ask, and not of one that the policy names",
                "write `principal` or `context.user`, and ask with `==` whether it is the one that is named",
            ),
        }
    }
}

/// Whether it may be something of these types that the policy names.
fn may_be_named(expression: &Expr, types: &[&EntityType]) -> bool {
    match expression.expr_kind() {
        ExprKind::Lit(Literal::EntityUID(uid)) => types.contains(&uid.entity_type()),
        ExprKind::If {
            then_expr, else_expr, ..
        } => may_be_named(then_expr, types) || may_be_named(else_expr, types),
        // The member of a record that the policy writes out.
        ExprKind::GetAttr { expr, attr } => match expr.expr_kind() {
            ExprKind::Record(members) => members
                .get(attr)
                .is_some_and(|member| may_be_named(member, types)),
            _ => false,
        },
        _ => false,
    }
}
