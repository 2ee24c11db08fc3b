//! How much Cedar looks through to tell the type of an `in`: all actions that are in the groups on its right, each as
//! often as they are named, or all that are registered. With thousands of actions that takes longer than all the rest,
//! and what it takes of memory is gigabytes where a list names a large group again and again.

use super::{TOLD_MAX, Validator};
use crate::diagnostics::{Diagnostic, Place};
use crate::facts::TYPES;
use crate::parse::Parsed;
use cedar_policy_core::ast::{BinaryOp, EntityType, Expr, ExprKind, Literal, Var};

/// As many asks' actions are looked at in the time that it takes to check another part of a condition.
pub(super) const LOOKED_AT_PER_PART: usize = 64;
/// How many may be looked at for one `in`, in asks: Cedar has all of their actions in one list, for each ask again. It
/// is two hundred times what ten thousand actions have.
pub(super) const LOOKED_AT_MAX: usize = 1 << 22;
/// An action has an ask of an agent and one for a user.
const ASKS_PER_ACTION: usize = 2;

impl Validator<'_> {
    /// The places where a policy asks whether something is in more than can be looked at.
    pub(super) fn too_wide(&self, parsed: &Parsed) -> Vec<Diagnostic> {
        let Some(conditions) = parsed.template.non_scope_constraints() else {
            return Vec::new();
        };
        let is_too_wide = |part: &&Expr| self.looked_at(part) > self.looked_at_max;
        let told = conditions.subexpressions().filter(is_too_wide).take(TOLD_MAX);
        let told = told.map(|part| {
            let message = format!(
                "an `in` goes through more than {} actions, each as often as a group of it is named",
                self.looked_at_max / ASKS_PER_ACTION
            );
            let found = Diagnostic::error(message)
                .with_help("name each group once")
                .about(&parsed.statement.id);
            found.at(Place::of_loc(part.source_loc()))
        });
        told.collect()
    }

    /// How much is looked at beside this part of a policy to check it for one ask, in asks.
    pub(super) fn looked_at(&self, part: &Expr) -> usize {
        let ExprKind::BinaryApp {
            op: BinaryOp::In,
            arg1: member,
            arg2: groups,
        } = part.expr_kind()
        else {
            return 0;
        };
        let groups = match groups.expr_kind() {
            ExprKind::Set(groups) => groups.as_slice(),
            _ => std::slice::from_ref(&**groups),
        };
        if is_an_action(member) {
            groups.iter().map(|group| self.within(group)).sum()
        } else if is_plain(member, groups) {
            0
        } else {
            self.asks.len()
        }
    }

    /// How many asks are for an action in this group.
    fn within(&self, group: &Expr) -> usize {
        match group.expr_kind() {
            ExprKind::Lit(Literal::EntityUID(group)) => self.members.get(&**group).map_or(0, Vec::len),
            ExprKind::Var(Var::Action) => 1,
            _ => self.asks.len(),
        }
    }
}

/// Whether it is the action of the ask, or one that the policy names.
fn is_an_action(expression: &Expr) -> bool {
    match expression.expr_kind() {
        ExprKind::Var(Var::Action) => true,
        ExprKind::Lit(Literal::EntityUID(uid)) => uid.is_action(),
        _ => false,
    }
}

/// Whether their types alone say that one can be in the other. Where they do not, Cedar goes through the actions.
fn is_plain(member: &Expr, groups: &[Expr]) -> bool {
    let are_all = |kind: &EntityType| {
        groups.iter().all(|group| match group.expr_kind() {
            ExprKind::Lit(Literal::EntityUID(uid)) => uid.entity_type() == kind,
            _ => false,
        })
    };
    match member.expr_kind() {
        ExprKind::Var(Var::Principal) => are_all(&TYPES.team),
        ExprKind::Var(Var::Resource) => are_all(&TYPES.resource),
        // The only entity in the context is the user. What a policy writes out may have any.
        ExprKind::GetAttr { expr, .. } if matches!(expr.expr_kind(), ExprKind::Var(Var::Context)) => {
            are_all(&TYPES.team) || are_all(&TYPES.user)
        }
        ExprKind::Lit(Literal::EntityUID(uid)) => {
            let is_in_teams = [&TYPES.agent, &TYPES.user].contains(&uid.entity_type());
            is_in_teams && are_all(&TYPES.team)
        }
        _ => false,
    }
}
