//! The shape of conditions, on which it depends how large a formula becomes.
//!
//! Formulas have no names for parts of them. Where something can be missing, what comes of it is written twice: once to ask
//! whether it is there, once to use it. What stands on the left of `&&` is written twice in this way, and doubles with each
//! `&&` to the right of it, but what stands on the right is written once.

use crate::fallible::may_be_action;
use cedar_policy_core::ast::{BinaryOp, Expr, ExprKind, Literal, UnaryOp};

/// All of these, in this order, in the shape of which the smallest formula comes.
pub(crate) fn all(conditions: impl IntoIterator<Item = Expr, IntoIter: DoubleEndedIterator>) -> Expr {
    let last_first = conditions.into_iter().rev();
    let all = last_first.reduce(|rest, one| Expr::and(one, rest));
    all.unwrap_or(Expr::val(true))
}

/// The same condition with every `a && b && c` as `a && (b && c)`, which means the same, and likewise for `||`.
pub(crate) fn straight(condition: &Expr) -> Expr {
    match condition.expr_kind() {
        ExprKind::And { .. } => all(links(condition, and_sides).iter().map(|link| straight(link))),
        ExprKind::Or { .. } => {
            let links = links(condition, or_sides);
            let any = links.iter().rev().map(|link| straight(link));
            let any = any.reduce(|rest, one| Expr::or(one, rest));
            any.expect("there are two sides")
        }
        ExprKind::UnaryApp {
            op: UnaryOp::Not,
            arg,
        } => Expr::not(straight(arg)),
        ExprKind::If {
            test_expr,
            then_expr,
            else_expr,
        } => Expr::ite(straight(test_expr), straight(then_expr), straight(else_expr)),
        _ => condition.clone(),
    }
}

type Sides = fn(&Expr) -> Option<[&Expr; 2]>;

fn and_sides(expression: &Expr) -> Option<[&Expr; 2]> {
    match expression.expr_kind() {
        ExprKind::And { left, right } => Some([left, right]),
        _ => None,
    }
}

fn or_sides(expression: &Expr) -> Option<[&Expr; 2]> {
    match expression.expr_kind() {
        ExprKind::Or { left, right } => Some([left, right]),
        _ => None,
    }
}

/// The links of a chain, from left to right.
fn links(chain: &Expr, sides: Sides) -> Vec<&Expr> {
    let mut links = Vec::new();
    let mut open = vec![chain];
    while let Some(next) = open.pop() {
        match sides(next) {
            Some([left, right]) => open.extend([right, left]),
            None => links.push(next),
        }
    }
    links
}

/// The parts of a condition for every two of which a formula says what follows from their being in each other, but for
/// `context.user` and variables, which are few: the entities that it names, and the members of records that it writes
/// or chooses, of which each may be an entity.
pub(crate) fn entities(condition: &Expr) -> impl Iterator<Item = &Expr> {
    condition.subexpressions().filter(|part| match part.expr_kind() {
        ExprKind::Lit(Literal::EntityUID(_)) => true,
        ExprKind::GetAttr { expr, .. } => expr.subexpressions().any(is_made),
        _ => false,
    })
}

/// Whether it is a record that is written out, or one of two things.
fn is_made(part: &Expr) -> bool {
    matches!(part.expr_kind(), ExprKind::Record(_) | ExprKind::If { .. })
}

/// Whether it writes a record with an action in it. What a member of that is may depend on the ask, and then a formula
/// goes through all actions, again for every other member.
pub(crate) fn puts_actions_into_records(condition: &Expr) -> bool {
    let mut parts = condition.subexpressions();
    parts.any(|part| match part.expr_kind() {
        ExprKind::Record(members) => members.values().any(may_be_action),
        _ => false,
    })
}

/// About how large a formula comes of this, in terms.
pub(crate) fn weight(condition: &Expr) -> u64 {
    Weight::of(condition).terms
}

#[derive(Clone, Copy)]
struct Weight {
    terms: u64,
    /// Whether there may be nothing: something that is optional, or that fails.
    may_lack: bool,
}

impl Weight {
    const LEAF: Self = Self {
        terms: 1,
        may_lack: false,
    };

    fn of(expression: &Expr) -> Self {
        match expression.expr_kind() {
            ExprKind::And { left, right } | ExprKind::Or { left, right } => {
                Self::of(left).used(1).with(Self::of(right))
            }
            ExprKind::If {
                test_expr,
                then_expr,
                else_expr,
            } => {
                let test = Self::of(test_expr).used(1);
                test.with(Self::of(then_expr)).with(Self::of(else_expr))
            }
            ExprKind::UnaryApp { op, arg } => match op {
                UnaryOp::Neg => Self::of(arg).used(2).lacking(),
                UnaryOp::Not | UnaryOp::IsEmpty => Self::of(arg).used(1),
            },
            ExprKind::BinaryApp { op, arg1, arg2 } => {
                let both = |times| Self::of(arg1).used(times).with(Self::of(arg2).used(times));
                match op {
                    BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::GetTag => both(2).lacking(),
                    BinaryOp::ContainsAny | BinaryOp::ContainsAll | BinaryOp::In => both(2),
                    BinaryOp::Eq
                    | BinaryOp::Less
                    | BinaryOp::LessEq
                    | BinaryOp::Contains
                    | BinaryOp::HasTag => both(1),
                }
            }
            ExprKind::ExtensionFunctionApp { args, .. } => Self::all(args.iter(), 2).lacking(),
            ExprKind::GetAttr { expr, .. } => Self::of(expr).used(1).lacking(),
            ExprKind::HasAttr { expr, .. } | ExprKind::Like { expr, .. } | ExprKind::Is { expr, .. } => {
                Self::of(expr).used(1)
            }
            ExprKind::ExtHasAttr { expr, attrs } => {
                let steps = attrs
                    .iter()
                    .fold(Self::of(expr), |inner, _| inner.used(2).lacking());
                steps.used(1)
            }
            ExprKind::Set(items) => Self::all(items.iter(), 1),
            ExprKind::Record(members) => Self::all(members.values(), 1),
            ExprKind::Lit(_) | ExprKind::Var(_) | ExprKind::Slot(_) | ExprKind::Unknown(_) => Self::LEAF,
        }
    }

    fn all<'e>(parts: impl Iterator<Item = &'e Expr>, times: u64) -> Self {
        parts.fold(Self::LEAF, |all, part| all.with(Self::of(part).used(times)))
    }

    /// As the operand of something that writes it so often.
    fn used(self, times: u64) -> Self {
        let times = times * (1 + u64::from(self.may_lack));
        Self {
            terms: self.terms.saturating_mul(times).saturating_add(1),
            may_lack: self.may_lack,
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            terms: self.terms.saturating_add(other.terms),
            may_lack: self.may_lack || other.may_lack,
        }
    }

    fn lacking(self) -> Self {
        Self {
            may_lack: true,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> Expr {
        let text = format!("permit (principal, action, resource) when {{ {text} }};");
        let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
        policy.non_scope_constraints().unwrap().clone()
    }

    #[test]
    fn chains_lean_to_the_right_and_keep_their_order() {
        for (text, straightened) in [
            ("a && b && c && d", "a && (b && (c && d))"),
            ("(a || b) || c", "a || (b || c)"),
            ("!((a && b) && c)", "!(a && (b && c))"),
            ("(a && b && c) || (d || a)", "(a && (b && c)) || (d || a)"),
            (
                "if a && b && c then a || b || c else d",
                "if a && (b && c) then a || (b || c) else d",
            ),
        ] {
            let members = |text: &str| {
                let named = text
                    .split(' ')
                    .map(|word| match word.trim_matches(['(', ')', '!']) {
                        name @ ("a" | "b" | "c" | "d") => word.replace(name, &format!("context.{name}")),
                        _ => word.to_owned(),
                    });
                condition(&named.collect::<Vec<_>>().join(" "))
            };
            let straight = straight(&members(text));
            assert!(straight.eq_shape(&members(straightened)), "{text}: {straight}");
        }
    }

    #[test]
    fn what_is_taken_out_of_records_and_choices_may_be_an_entity() {
        for (text, count) in [
            (
                "context.user in Team::\"a\" || principal.name == context.agent.name",
                1,
            ),
            ("{a: principal}.a == principal", 1),
            (
                "principal in {a: if context.sensitive then Team::\"a\" else Team::\"b\"}.a",
                3,
            ),
            (
                "(if context.sensitive then context else context).user == User::\"a\"",
                2,
            ),
            (
                "(if context.sensitive then {a: principal} else {a: principal}).a == principal",
                1,
            ),
            // Both are counted, though one is a record.
            ("{a: {b: principal}}.a.b == principal", 2),
            ("{a: 1} == {a: 2} && (if context.sensitive then 1 else 2) == 1", 0),
        ] {
            assert_eq!(entities(&condition(text)).count(), count, "{text}");
        }
    }

    #[test]
    fn an_action_is_found_in_a_record_however_deep_it_is() {
        for (text, is_there) in [
            ("{a: action}.a == action", true),
            ("{a: {b: [Action::\"c\"]}} == context.d", true),
            (
                "{a: if context.b then action else Action::\"c\"}.a == action",
                true,
            ),
            ("{a: if action == Action::\"c\" then 1 else 2}.a == 1", false),
            (
                "action in [Action::\"a\"] && {a: principal}.a == principal",
                false,
            ),
            (
                "(if action == Action::\"a\" then principal else context.b) == principal",
                false,
            ),
        ] {
            assert_eq!(puts_actions_into_records(&condition(text)), is_there, "{text}");
        }
    }

    #[test]
    fn a_chain_is_as_heavy_as_its_links_and_what_is_used_again_and_again_is_heavier() {
        let chain = |count: usize| vec!["context.a == 1"; count].join(" && ");
        let straight = |count| weight(&straight(&condition(&chain(count))));
        assert!(straight(40) < 5 * straight(10));
        assert!(weight(&condition(&chain(40))) > 1 << 40);
        let sum = |count: usize| format!("0 == {}", vec!["context.a"; count].join(" + "));
        assert!(weight(&condition(&sum(40))) > 1 << 40);
        assert!(weight(&condition(&sum(4))) < 10_000);
    }
}
