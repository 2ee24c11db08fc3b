//! What must hold besides a scope: an expression, what it looks at, its patterns and comparisons, and how much there is
//! of it to evaluate.

use crate::comparison::Comparisons;
use crate::diagnostics::Diagnostic;
use crate::like::{self, Likes};
use crate::parse::Parsed;
use crate::read_set::ReadSet;
use crate::set::{Presence, TenantRule};
use cedar_policy_core::ast::{Expr, ExprKind};
use std::sync::Arc;

/// The most parts that the conditions of all policies of a tenant that an ask is about may have together, each time
/// that it is ruled, if all of them are to be evaluated: some tens of milliseconds. Twenty thousand policies with fifty
/// parts each, or lists with a hundred thousand members, are about as much.
const PARTS_MAX: u64 = 1 << 20;
/// A condition that has no more parts is evaluated all the same: a few comparisons and a list of ten. If all policies
/// that a tenant may have are about one ask and as long, that is two or three times as much.
const PARTS_SHORT: u32 = 128;
/// What Cedar makes anew each time, a member of a list that is written out or what a function makes, takes as long as
/// so many parts more.
const PARTS_MADE_ANEW: usize = 8;
/// Of how many policies of a set is told that they are too much together.
const TOLD_MAX: usize = 64;
/// What counts where nothing on trial is in force, and where all of it is.
pub(crate) const WORLDS: [fn(Presence) -> bool; 2] = [
    |presence| !matches!(presence, Presence::With(_)),
    |presence| !matches!(presence, Presence::Without(_)),
];

/// An expression, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) expression: Arc<Expr>,
    pub(crate) reads: ReadSet,
    pub(crate) likes: Likes,
    /// Those that count: none of what is the operator's.
    pub(crate) comparisons: Comparisons,
    /// How much there is to evaluate, as far as it counts: nothing of what is the operator's.
    pub(crate) parts: u32,
}

impl Condition {
    /// The condition that is this expression.
    pub(crate) fn of(expression: &Expr) -> Self {
        Self::new(Arc::new(without_places(expression)))
    }

    /// The condition that is this part of another one.
    pub(crate) fn new(expression: Arc<Expr>) -> Self {
        Self {
            reads: ReadSet::of(&expression),
            likes: Likes::of(&expression),
            comparisons: Comparisons::of(&expression),
            parts: parts(&expression),
            expression,
        }
    }

    /// This condition as one of the operator's, which is evaluated however much there is of it and of a tenant's.
    pub(crate) fn without_bound(self) -> Self {
        Self {
            parts: 0,
            comparisons: Comparisons::default(),
            ..self
        }
    }

    /// Whether it fails where an ask has texts that are too long for all patterns.
    pub(crate) fn has_patterns_for_asks(&self) -> bool {
        self.likes.are_any() && like::looks_at_the_ask(self.reads)
    }

    /// Whether it is too much to be evaluated with all conditions that count where it does, which are so many and have
    /// so many parts.
    pub(crate) fn is_too_much(&self, conditions: u64, parts: u64) -> bool {
        is_too_much(self.parts, conditions, parts)
    }
}

/// Whether a condition with so many parts of its own is too much to be evaluated with all conditions that count where
/// it does, which are so many and have so many parts. The more there is of any of the three, the sooner it is.
pub(crate) fn is_too_much(own_parts: u32, conditions: u64, parts: u64) -> bool {
    // INVARIANT: those that have no more than an equal part of the bound are within it together, and a tenant has so
    // many policies at most, so the longest fail alone: no list leads around what is short.
    let as_many = || u64::from(own_parts).saturating_mul(conditions);
    parts > PARTS_MAX && own_parts > PARTS_SHORT && as_many() > PARTS_MAX
}

/// How much of this there is to evaluate, in parts.
fn parts(expression: &Expr) -> u32 {
    let parts = expression.subexpressions().map(|part| {
        let made_anew = match part.expr_kind() {
            ExprKind::Set(items) => items.len(),
            ExprKind::Record(members) => members.len(),
            ExprKind::ExtensionFunctionApp { .. } => 1,
            _ => 0,
        };
        1 + PARTS_MADE_ANEW * made_anew
    });
    u32::try_from(parts.sum::<usize>()).unwrap_or(u32::MAX)
}

/// What is wrong with a new policy whose condition would be too much alone.
pub(crate) fn fault(parsed: &Parsed) -> Option<Diagnostic> {
    let statement = &parsed.statement;
    let parts = statement.condition.as_ref()?.parts;
    if u64::from(parts) <= PARTS_MAX {
        return None;
    }
    let message = format!("the conditions have {parts} parts to evaluate, and may have {PARTS_MAX}");
    let found = Diagnostic::error(message)
        .with_help("shorten the lists, or say what is in them by a team or an attribute")
        .about(&statement.id);
    Some(found.at(statement.place()))
}

/// What to tell of those of a tenant's policies that fail for an ask that all of them are about, because they are too
/// much together. Their scopes may see to it that there is no such ask, so this stops nothing.
pub(crate) fn warnings(rules: &[TenantRule]) -> Vec<Diagnostic> {
    let sums = WORLDS.map(|counts| {
        let counted = rules.iter().filter(|rule| counts(rule.presence));
        let conditions = counted.filter_map(|rule| rule.rule.condition.as_ref());
        conditions.fold((0_u64, 0_u64), |(conditions, parts), condition| {
            (conditions + 1, parts + u64::from(condition.parts))
        })
    });
    let too_much = rules.iter().filter_map(|TenantRule { rule, presence }| {
        let condition = rule.condition.as_ref()?;
        let mut worlds = WORLDS.into_iter().zip(sums);
        let (_, (_, parts)) = worlds.find(|(counts, (conditions, parts))| {
            counts(*presence) && condition.is_too_much(*conditions, *parts)
        })?;
        let message = format!(
            "the conditions of all policies have {parts} parts to evaluate, and those of an ask may have {PARTS_MAX}: where it is about all of them, this one fails"
        );
        let help = "shorten the lists, say what is in them by a team or an attribute, or keep the policies apart by their scopes";
        let found = Diagnostic::error(message).with_help(help).together().into_warning();
        Some(found.about(&rule.statement.id).at(rule.statement.place()))
    });
    too_much.take(TOLD_MAX).collect()
}

/// The expression without its places in a text. Cedar counts a reference to the text at every step of an evaluation,
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
    fn what_is_made_anew_counts_more_than_what_is_there() {
        for (condition, expected) in [
            ("context.sensitive", 2),
            ("context.sensitive && context.trust.rank == 1", 8),
            ("[1, 1, 2].contains(context.trust.rank)", 1 + 4 + 24 + 3),
            ("{a: 1}.a == 1", 1 + 1 + 2 + 8 + 1),
            ("context.now < datetime(\"2024-01-01\")", 1 + 2 + 2 + 8),
        ] {
            let text = format!("permit (principal, action, resource) when {{ {condition} }};");
            let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
            let found = Condition::of(policy.non_scope_constraints().unwrap());
            assert_eq!(found.parts, expected, "{condition}");
        }
    }

    #[test]
    fn what_is_short_is_evaluated_among_as_many_as_a_tenant_may_have() {
        let condition = Condition::new(Arc::new(Expr::val(true)));
        for (conditions, parts, expected) in [
            (1, 1 << 20, false),
            (1, (1 << 20) + 1, true),
            (8_128, 129, false),
            (8_129, 129, true),
            (20_000, 129, true),
            (20_000, 128, false),
        ] {
            let one = Condition {
                parts,
                ..condition.clone()
            };
            let all = conditions * u64::from(parts);
            assert_eq!(
                one.is_too_much(conditions, all),
                expected,
                "{conditions} of {parts}"
            );
            assert!(!one.without_bound().is_too_much(conditions, u64::MAX));
        }
    }

    #[test]
    fn comparisons_of_the_operators_are_not_counted() {
        let text = "permit (principal, action, resource) when { context.input.a == context.input.b };";
        let policy = cedar_policy_core::parser::parse_policy(None, text).unwrap();
        let condition = Condition::of(policy.non_scope_constraints().unwrap());
        assert!(condition.comparisons.are_any());
        assert!(!condition.without_bound().comparisons.are_any());
    }

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
