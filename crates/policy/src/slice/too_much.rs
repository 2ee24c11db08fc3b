//! Where two sets may say different things although their conditions do not: of the policies about an ask some fail,
//! whatever they say, if they are too much to be evaluated together. What is claimed is that they never are, and not
//! that they ever are.

use super::{Effect, Ground, Sliceable, Slicer};
use crate::comparison::{self, WrittenBytes};
use crate::condition::{self, Condition};
use crate::like::STEPS_MAX;
use crate::ruling::Obligation;
use crate::statement::Scope;
use cedar_policy_core::ast::Expr;
use std::collections::HashMap;

/// How long the canonical form of a body is at most: `1e20` and a comma have 5 bytes, and 22 in that form. Nothing grows by more.
const CANONICAL_OF: [u64; 2] = [22, 5];

const PATTERNS: &str = "patterns of policies about it could take too long with texts as long as an ask may have, and these policies fail";
const COMPARISONS: &str = "comparisons of lists and texts in policies about it could take too long with an ask as long as it may be, and some of these policies fail";
const PARTS: &str = "the policies about it could be too much to be evaluated together, and some of them fail";

/// What may be too much in one of two sets.
pub struct TooMuch {
    /// The policies that each of them has more often than the other, by their numbers in it.
    differing: [Vec<usize>; 2],
    /// The longest text of an ask.
    text_bytes_max: u64,
}

/// How much there is of some policies at most.
#[derive(Default)]
struct Sums {
    /// The steps of patterns, of those that look at texts of the ask.
    asked: u64,
    /// The steps of all other patterns.
    registered: u64,
    /// The parts of all conditions but the operator's.
    parts: u64,
    /// How many conditions these are.
    conditions: u64,
    /// The parts of the longest of them.
    longest: u32,
    /// How many bytes the comparisons of all conditions but the operator's go through.
    compared_bytes: u64,
    /// How many conditions have such comparisons.
    comparing: u64,
    /// How many bytes those of one of them go through at most.
    compared_bytes_most: u64,
}

impl Slicer<'_> {
    /// What may be too much in this set or the other one, for asks whose bodies have no more bytes than this; `None` if
    /// nothing can be.
    pub fn too_much_beside(&self, other: &Self, body_bytes_max: usize) -> Option<TooMuch> {
        let [longer, shorter] = CANONICAL_OF;
        let text_bytes_max = (body_bytes_max as u64).saturating_mul(longer).div_ceil(shorter);
        let sets = [self, other];
        let may_fail = sets.iter().any(|set| {
            let sums = Sums::of(
                &set.rules,
                |rule| rule.statement.condition.as_ref(),
                text_bytes_max,
            );
            sums.fail_as_a_whole() || sums.fail_in_part_with_long_texts() || sums.fail_with_long_texts()
        });
        may_fail.then(|| TooMuch {
            differing: differing(sets),
            text_bytes_max,
        })
    }
}

impl TooMuch {
    /// Why the conditions of these sets, which this was found of, do not tell whether the second one allows more to the
    /// asks of this side, and whether it allows less; `None` if they do as long as [permits that
    /// fail](super::Part::may_fail_with_long_texts) are looked at as ones that are not there, too.
    pub fn why(&self, sets: [&Slicer<'_>; 2], ground: &Ground<'_>) -> [Option<&'static str>; 2] {
        let own: [Vec<_>; 2] = [0, 1].map(|place: usize| {
            let rules = self.differing[place]
                .iter()
                .map(|number| &sets[place].rules[*number]);
            rules.filter(|rule| rule.admits(ground)).collect()
        });
        if own.iter().all(Vec::is_empty) {
            return [None; 2];
        }
        let sums = self.sums(sets, ground);
        let has_patterns = |rule: &&Sliceable<'_>| {
            let condition = rule.statement.condition.as_ref();
            condition.is_some_and(Condition::has_patterns_for_asks)
        };
        // INVARIANT: what fails never makes an answer better, so more is allowed only by what fails before and does not
        // after, and less by what fails after and did not before. As long as one set has all patterns of the other, its
        // policies fail wherever those of the other do.
        [0, 1].map(|place: usize| {
            if sums[place].fail_as_a_whole() {
                Some(PARTS)
            } else if sums[place].fail_in_part_with_long_texts() {
                Some(COMPARISONS)
            } else if sums[place].fail_with_long_texts() && own[place].iter().any(has_patterns) {
                Some(PATTERNS)
            } else {
                None
            }
        })
    }

    /// Whether in each of these sets policies about this side may fail for the patterns of all of them.
    pub fn may_fail(&self, sets: [&Slicer<'_>; 2], ground: &Ground<'_>) -> [bool; 2] {
        self.sums(sets, ground).map(|sums| sums.fail_with_long_texts())
    }

    fn sums(&self, sets: [&Slicer<'_>; 2], ground: &Ground<'_>) -> [Sums; 2] {
        sets.map(|set| Sums::of(&set.rules, |rule| rule.counted(ground), self.text_bytes_max))
    }
}

impl Sums {
    /// How much there is of what counts of these policies.
    fn of<'r, 's>(
        rules: &'r [Sliceable<'s>],
        counted: impl Fn(&'r Sliceable<'s>) -> Option<&'r Condition>,
        text_bytes_max: u64,
    ) -> Self {
        let mut sums = Self::default();
        for rule in rules {
            if let Some(condition) = counted(rule) {
                sums.add(condition, rule.statement.id.is_base(), text_bytes_max);
            }
        }
        sums
    }

    fn add(&mut self, condition: &Condition, is_base: bool, text_bytes_max: u64) {
        if !is_base {
            self.parts = self.parts.saturating_add(u64::from(condition.parts));
            self.conditions += 1;
            self.longest = self.longest.max(condition.parts);
            self.add_comparisons(condition, text_bytes_max);
        }
        let steps = condition.likes.steps_at_most(condition.reads, text_bytes_max);
        let sum = if condition.has_patterns_for_asks() {
            &mut self.asked
        } else {
            &mut self.registered
        };
        *sum = sum.saturating_add(steps);
    }

    fn add_comparisons(&mut self, condition: &Condition, text_bytes_max: u64) {
        if !condition.comparisons.are_any() {
            return;
        }
        let written = WrittenBytes::at_most(text_bytes_max);
        let bytes = condition.comparisons.bytes(condition.reads, written);
        self.compared_bytes = self.compared_bytes.saturating_add(bytes);
        self.comparing += 1;
        self.compared_bytes_most = self.compared_bytes_most.max(bytes);
    }

    const fn fail_with_long_texts(&self) -> bool {
        self.asked > STEPS_MAX
    }

    /// Whether those with the most comparisons fail for the longest asks. Which these are differs with the length of an
    /// ask, so that no two worlds stand for all.
    const fn fail_in_part_with_long_texts(&self) -> bool {
        comparison::is_too_much(self.compared_bytes_most, self.comparing, self.compared_bytes)
    }

    /// Whether some may fail however short the ask is: for their parts, or for patterns about names and tags that are as
    /// long as they may be.
    fn fail_as_a_whole(&self) -> bool {
        let is_too_much = condition::is_too_much(self.longest, self.conditions, self.parts);
        is_too_much || self.registered > STEPS_MAX
    }
}

/// The policies that each of these sets has more often than the other.
fn differing(sets: [&Slicer<'_>; 2]) -> [Vec<usize>; 2] {
    let mut counts: HashMap<_, [usize; 2]> = HashMap::new();
    for (place, set) in sets.iter().enumerate() {
        for rule in &set.rules {
            counts.entry(meaning(rule)).or_default()[place] += 1;
        }
    }
    [0, 1].map(|place: usize| {
        let set = sets[place];
        let is_more = |number: &usize| {
            let counts = counts[&meaning(&set.rules[*number])];
            counts[place] > counts[1 - place]
        };
        set.all().filter(is_more).collect()
    })
}

/// What a policy does, and when it is evaluated and holds. A policy is evaluated, or fails, only for whom its scope and
/// its canary are about, so what they say is not the same as a condition that says it.
#[derive(PartialEq, Eq, Hash)]
struct Meaning<'r> {
    effect: Effect,
    scope: &'r Scope,
    canary: Option<&'r Expr>,
    condition: Option<&'r Expr>,
    /// Of advice: it is evaluated only for asks that it has something to add to.
    obligations: &'r [Obligation],
}

fn meaning<'r>(rule: &'r Sliceable<'_>) -> Meaning<'r> {
    let statement = rule.statement;
    let effect = super::effect(&statement.annotations.effect);
    let condition = statement.condition.as_ref();
    Meaning {
        effect,
        scope: &statement.scope,
        canary: rule.canary.as_ref(),
        condition: condition.map(|condition| &*condition.expression),
        obligations: match effect {
            Effect::Advise => statement.annotations.obligations.as_slice(),
            Effect::Forbid | Effect::RequireApproval | Effect::Permit => &[],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn however_many_short_conditions_are_not_too_much() {
        let condition = Condition::new(Arc::new(Expr::val(true)));
        for (count, parts, is_base, expected) in [
            (20_000, 128, false, false),
            (8_128, 129, false, false),
            (8_129, 129, false, true),
            (8_129, 129, true, false),
        ] {
            let one = Condition {
                parts,
                ..condition.clone()
            };
            let mut sums = Sums::default();
            for _ in 0..count {
                sums.add(&one, is_base, 0);
            }
            assert_eq!(sums.fail_as_a_whole(), expected, "{count} of {parts}");
        }
    }
}
