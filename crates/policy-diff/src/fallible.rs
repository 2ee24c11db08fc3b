//! Which conditions can fail, read off their syntax.
//!
//! Strict validation leaves few ways to fail: integers that overflow, times that leave their range, and entities that are
//! not there. Only the last is out of a solver's sight: to Cedar's formulas an agent that a policy names always exists,
//! and to an ask of another agent it does not. So it is with the groups of an action that a policy names. For one that
//! it chooses, formulas would go through all actions.

use cedar_policy_core::ast::{BinaryOp, EntityUID, Expr, ExprKind, Literal, UnaryOp, Var};
use policy::Effect;

/// The functions that fail for nothing that strict validation lets through: they make a value of a literal that was
/// checked, or only look at one.
const SAFE_FUNCTIONS: [&str; 19] = [
    "datetime",
    "decimal",
    "duration",
    "greaterThan",
    "greaterThanOrEqual",
    "ip",
    "isInRange",
    "isIpv4",
    "isIpv6",
    "isLoopback",
    "isMulticast",
    "lessThan",
    "lessThanOrEqual",
    "toDays",
    "toHours",
    "toMilliseconds",
    "toMinutes",
    "toSeconds",
    "toTime",
];

/// Whether evaluating it can fail.
pub(crate) fn can_fail(condition: &Expr) -> bool {
    condition.subexpressions().any(|part| match part.expr_kind() {
        ExprKind::BinaryApp { op, .. } => matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
        ExprKind::UnaryApp { op, .. } => matches!(op, UnaryOp::Neg),
        ExprKind::ExtensionFunctionApp { fn_name, .. } => {
            !SAFE_FUNCTIONS.contains(&fn_name.to_string().as_str())
        }
        _ => false,
    })
}

/// Why a solver cannot be asked about this condition, if it cannot.
pub(crate) fn obstacle(effect: Effect, condition: &Expr) -> Option<&'static str> {
    if condition.subexpressions().any(looks_into_a_named_agent) {
        return Some("looks at facts of an agent that it names, who is not there when another one asks");
    }
    if condition.subexpressions().any(looks_at_groups_of_another_action) {
        return Some(
            "asks for the groups of an action that it names or chooses, which are known only of the one that is asked for",
        );
    }
    if effect == Effect::Advise && can_fail(condition) {
        return Some("is advice that can fail, which depends on the parameters of an ask in full");
    }
    None
}

fn looks_into_a_named_agent(part: &Expr) -> bool {
    let (ExprKind::GetAttr { expr, .. } | ExprKind::HasAttr { expr, .. } | ExprKind::ExtHasAttr { expr, .. }) =
        part.expr_kind()
    else {
        return false;
    };
    expr.subexpressions().any(|inner| match inner.expr_kind() {
        ExprKind::Lit(Literal::EntityUID(uid)) => is_agent(uid),
        _ => false,
    })
}

fn looks_at_groups_of_another_action(part: &Expr) -> bool {
    let ExprKind::BinaryApp {
        op: BinaryOp::In,
        arg1,
        ..
    } = part.expr_kind()
    else {
        return false;
    };
    !matches!(arg1.expr_kind(), ExprKind::Var(Var::Action)) && may_be_action(arg1)
}

/// Whether it may be an action. One that only the test of an `if` has is none.
pub(crate) fn may_be_action(expression: &Expr) -> bool {
    if let ExprKind::If {
        then_expr, else_expr, ..
    } = expression.expr_kind()
    {
        return may_be_action(then_expr) || may_be_action(else_expr);
    }
    expression.subexpressions().any(is_action)
}

/// Whether it is the action of the ask, or one that it names.
fn is_action(part: &Expr) -> bool {
    match part.expr_kind() {
        ExprKind::Var(variable) => *variable == Var::Action,
        ExprKind::Lit(Literal::EntityUID(uid)) => uid.entity_type().is_action(),
        _ => false,
    }
}

fn is_agent(uid: &EntityUID) -> bool {
    uid.entity_type().to_string() == "Agent"
}
