//! How long `like` can take. Where a pattern does not fit, Cedar goes back to its last wildcard, so that a long pattern and a
//! long text take as many steps as the product of their lengths. Patterns have a bound when they are written. Texts come with
//! asks: what both can take together is bounded before policies are evaluated. Whether a pattern fits is not decided here.

use crate::diagnostics::{Diagnostic, Place};
use crate::parse::Parsed;
use crate::question::{Question, UserFacts};
use crate::read_set::{Member, ReadSet};
use cedar_policy_core::ast::{BinaryOp, Expr, ExprKind, Literal, Pattern, PatternElem};
use model::{NAME_BYTES_MAX, Name};
use std::cell::OnceCell;

/// The longest pattern of a new policy, in characters and wildcards: far more than people write.
pub const PATTERN_LENGTH_MAX: usize = 256;
/// The most steps that the patterns of all policies that an ask is about and that look at its texts may take, each time
/// that it is ruled: for the agent, the user and each in whose name it is asked, with and without what is claimed,
/// which are some fifty at most. 250 characters behind wildcards, and the longest text of an ask, are about as much.
/// Those that look at what is registered may take as many of their own: 65,536 characters, and the longest tag.
pub(crate) const STEPS_MAX: u64 = 1 << 26;
/// The longest tag of an agent, a team or a user, in bytes. All else that is registered is a name.
const TAG_BYTES_MAX: usize = 1 << 10;
/// What comes neither from a caller nor from a tenant, such as a level of trust, is no longer than this.
const WORD_BYTES_MAX: usize = 64;

/// The patterns of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Likes {
    /// How many steps all of them take for each character of a text, at most.
    steps: u32,
    /// The longest text that is written out in the condition, in bytes.
    written_bytes: u32,
    /// Whether they may meet tags, which may be longer than names.
    look_at_tags: bool,
}

/// How long the longest tag of the user of a question and of that user's teams is: looked up once, where a pattern may
/// meet one, whoever asks.
#[derive(Default)]
pub(crate) struct UserTags(OnceCell<usize>);

impl UserTags {
    /// How long that is for this user, in bytes.
    fn longest(&self, user: Option<UserFacts<'_>>) -> usize {
        *self.0.get_or_init(|| {
            let known = user.and_then(|user| Some((user.registered?, user.teams)));
            let Some((user, teams)) = known else {
                return 0;
            };
            let teams = user.teams.iter().filter_map(|name| teams?.get(name));
            let of_teams = teams.map(|team| team.attributes.longest());
            of_teams.fold(user.attributes.longest(), usize::max)
        })
    }
}

impl Likes {
    /// Those of this expression.
    pub(crate) fn of(expression: &Expr) -> Self {
        let (mut steps, mut written_bytes, mut look_at_tags) = (0_usize, 0_usize, false);
        for part in expression.subexpressions() {
            match part.expr_kind() {
                ExprKind::Like { pattern, .. } => steps = steps.saturating_add(steps_of(pattern)),
                ExprKind::Lit(Literal::String(text)) => written_bytes = written_bytes.max(text.len()),
                ExprKind::BinaryApp {
                    op: BinaryOp::GetTag, ..
                } => look_at_tags = true,
                _ => {}
            }
        }
        let bounded = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            steps: bounded(steps),
            written_bytes: bounded(written_bytes),
            look_at_tags,
        }
    }

    /// Whether there are any.
    pub(crate) const fn are_any(self) -> bool {
        self.steps > 0
    }

    /// How many steps they take at most, in a condition that looks at this.
    pub(crate) fn steps(self, reads: ReadSet, question: &Question<'_>, user_tags: &UserTags) -> u64 {
        let texts = [
            (ReadSet::PARAMETERS, question.parameters.len()),
            (
                ReadSet::member(Member::Attributes),
                question.attributes.map_or(0, str::len),
            ),
            (
                ReadSet::member(Member::Run),
                question.run.map_or(0, |run| run.id.len()),
            ),
        ];
        // A text in JSON is no shorter than what it stands for.
        let seen = texts.into_iter().filter(|(member, _)| reads.intersects(*member));
        let asked_bytes = seen.map(|(_, bytes)| bytes).max().unwrap_or(0);
        self.steps_with(asked_bytes.max(self.registered_bytes(question, user_tags)) as u64)
    }

    /// The longest text that they may meet and that does not come with the ask, in bytes.
    fn registered_bytes(self, question: &Question<'_>, user_tags: &UserTags) -> usize {
        let agent = question.agent;
        let names = [
            Some(&agent.name),
            agent.owner.as_ref(),
            agent.environment.as_ref(),
            agent.team.as_ref(),
            Some(&question.action.name),
        ];
        let names = names.into_iter().flatten().map(Name::as_str).map(str::len);
        let name = names.fold(question.tool.name.as_str().len(), usize::max);
        let known = name.max(WORD_BYTES_MAX);
        if !self.look_at_tags {
            return known;
        }
        let of_team = question.team.map_or(0, |team| team.attributes.longest());
        let tags = [
            agent.attributes.longest(),
            of_team,
            user_tags.longest(question.user),
        ];
        tags.into_iter().fold(known, usize::max)
    }

    /// How many steps they take at most for any ask whose texts are no longer than this, in a condition that looks at this.
    pub(crate) fn steps_at_most(self, reads: ReadSet, text_bytes_max: u64) -> u64 {
        // The id of a run is a name, too.
        let written = ReadSet::PARAMETERS.union(ReadSet::member(Member::Attributes));
        let asked_bytes = if reads.intersects(written) {
            text_bytes_max
        } else {
            0
        };
        let registered_bytes = if self.look_at_tags {
            TAG_BYTES_MAX
        } else {
            NAME_BYTES_MAX
        };
        self.steps_with(asked_bytes.max(registered_bytes as u64))
    }

    /// How many steps they take, where the longest text is this long that is not written out in the condition.
    fn steps_with(self, bytes: u64) -> u64 {
        let longest = bytes.max(u64::from(self.written_bytes));
        u64::from(self.steps).saturating_mul(longest)
    }
}

/// Whether a condition that looks at this may meet a text that comes with the ask.
pub(crate) fn looks_at_the_ask(reads: ReadSet) -> bool {
    let texts = [
        ReadSet::PARAMETERS,
        ReadSet::member(Member::Attributes),
        ReadSet::member(Member::Run),
    ];
    texts.into_iter().any(|text| reads.intersects(text))
}

/// How many steps a pattern takes for each character of a text, at most: one, and those that are taken anew from the next
/// character because what stands behind a wildcard did not fit.
fn steps_of(pattern: &Pattern) -> usize {
    let parts = pattern
        .get_elems()
        .split(|element| *element == PatternElem::Wildcard);
    1 + parts.skip(1).map(<[_]>::len).max().unwrap_or(0)
}

/// What is wrong with the patterns of a new policy.
pub(crate) fn fault(parsed: &Parsed) -> Option<Diagnostic> {
    let expression = parsed.template.non_scope_constraints()?;
    let (part, length) = expression
        .subexpressions()
        .find_map(|part| match part.expr_kind() {
            ExprKind::Like { pattern, .. } if pattern.len() > PATTERN_LENGTH_MAX => {
                Some((part, pattern.len()))
            }
            _ => None,
        })?;
    let message =
        format!("a pattern has {length} characters and wildcards, and may have {PATTERN_LENGTH_MAX}");
    let found = Diagnostic::error(message)
        .with_help("compare long texts with `==`, or look for less of them")
        .about(&parsed.statement.id);
    Some(found.at(Place::of_loc(part.source_loc())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_a_wildcard_is_compared_anew_at_each_character() {
        for (condition, steps) in [
            ("context.sensitive", 0),
            ("principal.name like \"\"", 1),
            ("principal.name like \"agent-*\"", 1),
            ("principal.name like \"\\*\"", 1),
            ("principal.name like \"*.example.com\"", 13),
            ("principal.name like \"a*bc*d\"", 3),
            ("principal.name like \"*a\" || !(\"x\" like \"*bc\")", 5),
        ] {
            let text = format!("permit (principal, action, resource) when {{ {condition} }};");
            let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
            let likes = Likes::of(policy.non_scope_constraints().unwrap());
            assert_eq!(likes.steps, steps, "{condition}");
            assert_eq!(likes.are_any(), steps > 0, "{condition}");
        }
    }
}
