//! What must hold besides a scope: an expression, what it looks at, and its patterns.

use crate::like::Likes;
use crate::looks::Looks;
use cedar_policy_core::ast::{Expr, ExprKind};
use std::sync::Arc;

/// An expression, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) expression: Arc<Expr>,
    pub(crate) looks: Looks,
    pub(crate) likes: Likes,
}

impl Condition {
    /// The condition that is this expression.
    pub(crate) fn of(expression: &Expr) -> Self {
        Self::new(Arc::new(without_places(expression)))
    }

    /// The condition that is this part of another one.
    pub(crate) fn new(expression: Arc<Expr>) -> Self {
        Self {
            looks: Looks::of(&expression),
            likes: Likes::of(&expression),
            expression,
        }
    }
}

/// The same expression without its places in a text. Cedar counts a reference to the text at every step of an evaluation,
/// and all threads would count the same ones.
fn without_places(expression: &Expr) -> Expr {
    let plain = |part: &Arc<Expr>| without_places(part);
    match expression.expr_kind() {
        ExprKind::Lit(literal) => Expr::val(literal.clone()),
        ExprKind::Var(variable) => Expr::var(*variable),
        ExprKind::Slot(slot) => Expr::slot(*slot),
        ExprKind::Unknown(unknown) => Expr::unknown(unknown.clone()),
        ExprKind::If {
            test_expr,
            then_expr,
            else_expr,
        } => Expr::ite(plain(test_expr), plain(then_expr), plain(else_expr)),
        ExprKind::And { left, right } => Expr::and(plain(left), plain(right)),
        ExprKind::Or { left, right } => Expr::or(plain(left), plain(right)),
        ExprKind::UnaryApp { op, arg } => Expr::unary_app(*op, plain(arg)),
        ExprKind::BinaryApp { op, arg1, arg2 } => Expr::binary_app(*op, plain(arg1), plain(arg2)),
        ExprKind::ExtensionFunctionApp { fn_name, args } => {
            Expr::call_extension_fn(fn_name.clone(), args.iter().map(without_places).collect())
        }
        ExprKind::GetAttr { expr, attr } => Expr::get_attr(plain(expr), attr.clone()),
        ExprKind::HasAttr { expr, attr } => Expr::has_attr(plain(expr), attr.clone()),
        ExprKind::ExtHasAttr { expr, attrs } => Expr::extended_has_attr(plain(expr), attrs.clone()),
        ExprKind::Like { expr, pattern } => Expr::like(plain(expr), pattern.clone()),
        ExprKind::Is { expr, entity_type } => Expr::is_entity_type(plain(expr), entity_type.clone()),
        ExprKind::Set(items) => Expr::set(items.iter().map(without_places)),
        ExprKind::Record(members) => {
            let members = members
                .iter()
                .map(|(name, member)| (name.clone(), without_places(member)));
            Expr::record(members).expect("the names of a map are distinct")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_without_its_places_is_the_same() {
        for condition in [
            "if context.sensitive then !(1 + 2 < 3) else -4 == 5 || principal has owner",
            "principal.hasTag(\"a\") && principal.getTag(\"a\") like \"x*\\*y\" && context has run.id",
            "[1, 2].containsAll([2]) && {a: \"b\", \"c d\": [true]}.a == \"b\" && resource is Resource",
            "decimal(\"1.5\").lessThan(decimal(\"2.0\")) && context.now.toTime() < duration(\"1h\")",
            "action in [Action::\"read\", Action::\"mutate\"] && [].isEmpty()",
        ] {
            let text = format!("permit (principal, action, resource) when {{ {condition} }};");
            let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
            let expression = policy.non_scope_constraints().unwrap();
            let plain = without_places(expression);
            assert!(plain.eq_shape(expression), "{plain}");
            assert_eq!(plain.to_string(), expression.to_string());
            assert!(plain.subexpressions().all(|part| part.source_loc().is_none()));
        }
    }
}
