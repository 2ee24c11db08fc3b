//! How much Cedar looks through to tell the type of an `in`: all actions that are in the groups on its right, each as
//! often as they are named, or all that are registered. With thousands of actions that takes longer than all the rest.

use super::Validator;
use crate::facts::TYPES;
use cedar_policy_core::ast::{BinaryOp, EntityType, Expr, ExprKind, Literal, Var};

/// As many asks' actions are looked at in the time that it takes to check another part of a condition.
pub(super) const LOOKED_AT_PER_PART: usize = 64;

impl Validator<'_> {
    /// How much is looked at beside this part of a policy to check it for one ask, in asks: an action has one of an
    /// agent and one for a user.
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
