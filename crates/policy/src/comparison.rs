//! How long comparisons of sets and texts can take. Cedar keeps no hash of a text and looks up each member of a set
//! anew, so that a comparison goes through all that it is given. What a policy writes out is counted by its parts. What
//! the caller has written is as long as the ask: what all comparisons take with it is bounded before policies are
//! evaluated. What comes of one is not decided here.

use crate::parameters::Parameters;
use crate::question::Question;
use crate::read_set::{Member, ReadSet, is_context};
use cedar_policy_core::ast::{BinaryOp, Expr, ExprKind, Var};

/// The most bytes that the comparisons of all policies that an ask is about may go through, each time that it is ruled,
/// which takes about as long as patterns may. Texts of the longest ask can be looked up in five hundred lists that are
/// written out, or its sets be held against each other thirty times.
const COMPARED_BYTES_MAX: u64 = 1 << 27;
/// To look up all members of a set in another one takes as long as to go through what they were made of so many times.
const LOOK_UP: u32 = 16;
/// To compare the source of one parameter takes as long as to go through a text of so many bytes.
const SOURCE_BYTES: u64 = 16;
/// All sources take no longer: a schema has no room for more parameters.
const SOURCES_BYTES_MAX: u64 = 1 << 17;
/// The members of the context that are as long as the caller, or the schema of the action, makes them.
const WRITTEN: [Member; 5] = [
    Member::Input,
    Member::Parameters,
    Member::Targets,
    Member::Attributes,
    Member::Sources,
];

/// The comparisons of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Comparisons {
    /// How often all of them go through what the caller has written, at most.
    passes: u32,
}

/// How long what the caller of an ask has written is, in bytes, and the sources of what its action declares.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WrittenBytes {
    parameters: u64,
    attributes: u64,
    sources: u64,
}

/// How long what comes of an expression can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Length {
    /// As a number, or a text that is written out or registered.
    Short,
    /// As a list that is written out.
    Listed,
    /// As what the caller has written.
    Written,
}

impl Comparisons {
    /// Those of this expression.
    pub(crate) fn of(expression: &Expr) -> Self {
        let mut passes = 0;
        length(expression, &mut passes);
        Self { passes }
    }

    /// Whether there are any that take longer the longer an ask is.
    pub(crate) const fn are_any(self) -> bool {
        self.passes > 0
    }

    /// How many bytes they go through at most, in a condition that looks at this.
    pub(crate) fn bytes(self, reads: ReadSet, written: WrittenBytes) -> u64 {
        u64::from(self.passes).saturating_mul(written.longest(reads))
    }
}

impl WrittenBytes {
    /// What the caller of this question, which has these parameters, has written.
    pub(crate) fn of(question: &Question<'_>, parameters: &Parameters<'_>) -> Self {
        let sources = SOURCE_BYTES.saturating_mul(parameters.declared_count() as u64);
        Self {
            parameters: question.parameters.len() as u64,
            attributes: question.attributes.map_or(0, str::len) as u64,
            sources: sources.min(SOURCES_BYTES_MAX),
        }
    }

    /// As much as this of everything.
    pub(crate) const fn at_most(bytes: u64) -> Self {
        Self {
            parameters: bytes,
            attributes: bytes,
            sources: SOURCES_BYTES_MAX,
        }
    }

    /// The longest of it that this looks at.
    fn longest(self, reads: ReadSet) -> u64 {
        let seen = |part: ReadSet, bytes: u64| if reads.intersects(part) { bytes } else { 0 };
        let parameters = seen(ReadSet::PARAMETERS, self.parameters);
        let attributes = seen(ReadSet::member(Member::Attributes), self.attributes);
        let sources = seen(ReadSet::member(Member::Sources), self.sources);
        parameters.max(attributes).max(sources)
    }
}

/// Whether a condition whose comparisons go through so many bytes is too much to be evaluated with all that have any
/// and count where it does, which are so many and go through so many bytes. The more there is of any of the three, the
/// sooner it is.
pub(crate) const fn is_too_much(own_bytes: u64, conditions: u64, bytes: u64) -> bool {
    // INVARIANT: those that go through no more than an equal part are within the bound together, so the longest fail
    // alone.
    bytes > COMPARED_BYTES_MAX && own_bytes.saturating_mul(conditions) > COMPARED_BYTES_MAX
}

/// How long what comes of this can be. How often it goes through what the caller has written is added to `passes`.
fn length(expression: &Expr, passes: &mut u32) -> Length {
    match expression.expr_kind() {
        ExprKind::Var(Var::Context) | ExprKind::Unknown(_) => Length::Written,
        ExprKind::Lit(_) | ExprKind::Var(_) | ExprKind::Slot(_) => Length::Short,
        ExprKind::If {
            test_expr,
            then_expr,
            else_expr,
        } => {
            length(test_expr, passes);
            length(then_expr, passes).max(length(else_expr, passes))
        }
        ExprKind::And { left, right } | ExprKind::Or { left, right } => {
            length(left, passes);
            length(right, passes);
            Length::Short
        }
        ExprKind::BinaryApp { op, arg1, arg2 } => {
            let sides = [length(arg1, passes), length(arg2, passes)];
            *passes = passes.saturating_add(passes_of(*op, sides));
            Length::Short
        }
        ExprKind::GetAttr { expr, attr } => {
            let is_written = || WRITTEN.iter().any(|member| member.as_str() == attr.as_str());
            if (is_context(expr) && !is_written()) || is_sources(expr) {
                Length::Short
            } else {
                length(expr, passes)
            }
        }
        ExprKind::UnaryApp { arg: expr, .. }
        | ExprKind::HasAttr { expr, .. }
        | ExprKind::ExtHasAttr { expr, .. }
        | ExprKind::Like { expr, .. }
        | ExprKind::Is { expr, .. } => {
            length(expr, passes);
            Length::Short
        }
        ExprKind::ExtensionFunctionApp { args, .. } => {
            for argument in args.iter() {
                length(argument, passes);
            }
            Length::Short
        }
        ExprKind::Set(items) => items.iter().fold(Length::Listed, |longest, item| {
            let item = length(item, passes);
            if item == Length::Written {
                // It is hashed and held against the others when the list is made.
                *passes = passes.saturating_add(LOOK_UP);
            }
            longest.max(item)
        }),
        ExprKind::Record(members) => members.values().fold(Length::Short, |longest, member| {
            longest.max(length(member, passes))
        }),
    }
}

/// Whether this is the record of all sources: each of them is short.
fn is_sources(expression: &Expr) -> bool {
    match expression.expr_kind() {
        ExprKind::GetAttr { expr, attr } => is_context(expr) && attr.as_str() == Member::Sources.as_str(),
        _ => false,
    }
}

/// How often this goes through what the caller has written, at most, if its sides can be so long.
const fn passes_of(op: BinaryOp, sides: [Length; 2]) -> u32 {
    use Length::{Listed, Written};
    match (op, sides) {
        (
            BinaryOp::Eq | BinaryOp::Contains | BinaryOp::ContainsAll | BinaryOp::ContainsAny,
            [Written, Written],
        ) => LOOK_UP,
        // A text is hashed once. Of a set no more members are looked up than are written out, which are counted as parts.
        (BinaryOp::Eq, [Listed, Written] | [Written, Listed])
        | (BinaryOp::ContainsAny, [Written, _] | [_, Written])
        | (BinaryOp::Contains | BinaryOp::ContainsAll | BinaryOp::HasTag | BinaryOp::GetTag, [_, Written]) => {
            1
        }
        // Only what is short or written out is gone through: texts of two lengths are told apart at once.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(condition: &str) -> (Comparisons, ReadSet) {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
        let expression = policy.non_scope_constraints().unwrap();
        (Comparisons::of(expression), ReadSet::of(expression))
    }

    #[test]
    fn only_what_the_caller_has_written_is_gone_through() {
        for condition in [
            "context.sensitive && context.trust.rank < 3",
            "context.input.branch == \"main\" || context.input.amount > 100",
            "context.input.branch != principal.name",
            "context.input.labels.contains(\"safe\")",
            "context.input.labels.containsAll([\"safe\", \"small\"])",
            "[\"low\", \"medium\"].contains(context.tool.risk)",
            "[principal.name, \"a\"].containsAny([context.agent.name])",
            "context.input.text like \"*a*\"",
            "principal.hasTag(\"a\") && principal.getTag(\"a\") == context.input.text",
            "context.input has text && context.parameters.isEmpty()",
            "context.target_stated == context.sensitive",
            "[context.sources.a.level, context.sources.b.level].contains(\"external\")",
            "resource == Resource::\"a\" && principal in [Team::\"a\", Team::\"b\"]",
        ] {
            let (comparisons, _) = found(condition);
            assert!(!comparisons.are_any(), "{condition}: {comparisons:?}");
        }
        for (condition, passes) in [
            ("[\"main\", \"master\"].contains(context.input.branch)", 1),
            ("context.targets.containsAny([\"main\"])", 1),
            ("[\"main\"].containsAny(context.targets)", 1),
            ("[\"number\", \"text\"].containsAll(context.parameters)", 1),
            ("context.input.labels == [\"safe\"]", 1),
            ("principal.hasTag(context.attributes.region)", 1),
            ("context.input.from == context.input.to", 16),
            ("context.parameters.contains(context.input.text)", 16),
            ("context.parameters.containsAll(context.parameters)", 16),
            ("context.parameters.containsAny(context.targets)", 16),
            ("context == context", 16),
            ("[context.sources, context.sources].isEmpty()", 32),
            ("{a: context.input.from}.a == {a: context.input.to}.a", 16),
            ("[context.input.from, \"a\"].contains(\"a\")", 16),
            (
                "!(if context.parameters.containsAll(context.targets) then [\"a\"] else context.targets)\
                 .containsAny(context.targets) && [\"a\"].contains(context.input.text)",
                33,
            ),
        ] {
            assert_eq!(found(condition).0.passes, passes, "{condition}");
        }
    }

    #[test]
    fn each_part_of_an_ask_takes_its_own_time() {
        let written = WrittenBytes {
            parameters: 1_000,
            attributes: 10,
            sources: 100,
        };
        for (condition, bytes) in [
            ("[\"a\"].contains(context.attributes.region)", 10),
            ("[\"a\"].contains(context.input.text)", 1_000),
            ("context.input.text == context.attributes.region", 16_000),
            ("[\"a\"].contains(context.tool.name)", 0),
            ("[context.sources].isEmpty()", 1_600),
        ] {
            let (comparisons, reads) = found(condition);
            assert_eq!(comparisons.bytes(reads, written), bytes, "{condition}");
        }
    }

    #[test]
    fn those_that_go_through_an_equal_part_are_never_too_much() {
        for (own, conditions, bytes, expected) in [
            (1 << 27, 1, 1 << 27, false),
            ((1 << 27) + 1, 1, (1 << 27) + 1, true),
            (1 << 20, 128, 1 << 40, false),
            ((1 << 20) + 1, 128, 1 << 40, true),
            (1 << 27, 2, 1 << 27, false),
            (1 << 27, 2, u64::MAX, true),
        ] {
            assert_eq!(
                is_too_much(own, conditions, bytes),
                expected,
                "{own} of {bytes} in {conditions}"
            );
        }
    }
}
