//! Our verdicts as plain Cedar sets.
//!
//! Cedar knows allow and deny, and skips a policy that fails. We know three verdicts, and a policy that fails and could
//! have made it stricter denies. So there are two plain sets for each of ours, and each allows an ask exactly where our
//! verdict is at least that good. A condition that cannot fail is taken as it is; one that can is moved into every
//! permit, as something that must have come out, because there Cedar does not skip it. Permits that cannot fail are
//! joined then, and have it once for many.

use crate::fallible::{can_fail, obstacle};
use crate::shape::{all, straight, weight};
use cedar_policy_core::ast::{
    ActionConstraint, Annotations, Effect as CedarEffect, Expr, PolicyID, PolicySet, PrincipalConstraint,
    ResourceConstraint, StaticPolicy,
};
use policy::{Effect, Part};

/// A verdict that is at least this good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Allow, or require approval.
    NotDenied,
    /// Allow.
    Allowed,
}

/// Why there is no plain set for a slice: one of its policies cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{policy}` {why}")]
pub(crate) struct Untranslatable {
    policy: String,
    why: &'static str,
}

/// Whether these policies can be translated.
pub(crate) fn check(parts: &[Part<'_>]) -> Result<(), Untranslatable> {
    let found = parts.iter().find_map(|part| {
        let why = obstacle(part.effect, &part.condition)?;
        let policy = part.id.to_string();
        Some(Untranslatable { policy, why })
    });
    found.map_or(Ok(()), Err)
}

/// How many permits are made one: formulas are walked by recursion, and one is as deep as all conditions in it have links.
const JOINED_MAX: usize = 32;

impl Level {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::NotDenied, Self::Allowed];

    /// Policies that Cedar allows an ask by exactly where ours give a verdict of this level, among the asks of which this
    /// is known. They were checked.
    pub(crate) fn plain(self, parts: &[Part<'_>], known: &[Expr]) -> cedar_policy::PolicySet {
        let mut plain = Plain::among(known);
        for condition in self.forbidden(parts) {
            plain.add(CedarEffect::Forbid, condition);
        }
        let must_come_out = self.must_come_out(parts);
        for permitted in self.permitted(parts, &must_come_out) {
            let condition = must_come_out.iter().chain([&permitted]).cloned();
            plain.add(CedarEffect::Permit, &all(condition.collect::<Vec<_>>()));
        }
        plain.into_set()
    }

    /// About how large a formula comes of the plain set, in terms, without what is known. The set is not written for
    /// that: it has what must come out again in each permit.
    pub(crate) fn weight(self, parts: &[Part<'_>]) -> u64 {
        let must_come_out = self.must_come_out(parts);
        let permitted = self.permitted(parts, &must_come_out);
        let permits = u64::try_from(permitted.len()).unwrap_or(u64::MAX);
        // As it weighs with something behind it, and without that.
        let behind = Expr::val(true);
        let in_each = must_come_out.iter().chain([&behind]).cloned();
        let in_each = weight(&straight(&all(in_each.collect::<Vec<_>>()))) - weight(&behind);
        let single = self.forbidden(parts).chain(&permitted);
        let single = single.map(|condition| weight(&straight(condition)));
        single.fold(in_each.saturating_mul(permits), u64::saturating_add)
    }

    /// The conditions of the plain forbids.
    fn forbidden<'p>(self, parts: &'p [Part<'_>]) -> impl Iterator<Item = &'p Expr> {
        let forbids = parts.iter().filter(move |part| self.forbids(part.effect));
        let conditions = forbids.map(|part| &part.condition);
        conditions.filter(|condition| !can_fail(condition))
    }

    /// What must have come out wherever anything is permitted: whatever can fail and could have made the verdict worse.
    fn must_come_out(self, parts: &[Part<'_>]) -> Vec<Expr> {
        let fallible = parts.iter().filter(|part| can_fail(&part.condition));
        let must_come_out = fallible.filter_map(|part| {
            let condition = part.condition.clone();
            match part.effect {
                effect if self.forbids(effect) => Some(Expr::not(condition)),
                Effect::RequireApproval => Some(comes_out(condition)),
                // A permit that fails permits nothing, here as in Cedar, and advice was checked.
                _ => None,
            }
        });
        must_come_out.collect()
    }

    /// The conditions of the plain permits, behind what must come out. Where there is such a thing, of those that
    /// cannot fail behind it [`JOINED_MAX`] at a time are one: an approval that can fail is itself among what must come out.
    fn permitted(self, parts: &[Part<'_>], must_come_out: &[Expr]) -> Vec<Expr> {
        let permits = parts.iter().filter(|part| self.permits(part.effect));
        let (alone, together): (Vec<_>, Vec<_>) = permits.partition(|part| {
            must_come_out.is_empty() || (part.effect == Effect::Permit && can_fail(&part.condition))
        });
        let together = together.chunks(JOINED_MAX).filter_map(|some| {
            let conditions = some.iter().map(|part| part.condition.clone());
            conditions.reduce(Expr::or)
        });
        let alone = alone.into_iter().map(|part| part.condition.clone());
        alone.chain(together).collect()
    }

    const fn forbids(self, effect: Effect) -> bool {
        matches!(
            (self, effect),
            (_, Effect::Forbid) | (Self::Allowed, Effect::RequireApproval)
        )
    }

    const fn permits(self, effect: Effect) -> bool {
        matches!(
            (self, effect),
            (_, Effect::Permit) | (Self::NotDenied, Effect::RequireApproval)
        )
    }
}

/// Holds where this holds or does not, and fails where it fails.
fn comes_out(condition: Expr) -> Expr {
    Expr::or(condition.clone(), Expr::not(condition))
}

/// Allows the asks that satisfy a condition, among those of which this is known.
pub(crate) fn satisfying(condition: &Expr, known: &[Expr]) -> cedar_policy::PolicySet {
    let mut plain = Plain::among(known);
    plain.add(CedarEffect::Permit, condition);
    plain.into_set()
}

/// Allows whatever a condition does not fail for.
pub(crate) fn not_failing(condition: &Expr) -> cedar_policy::PolicySet {
    satisfying(&comes_out(condition.clone()), &[])
}

#[derive(Default)]
struct Plain(Vec<StaticPolicy>);

impl Plain {
    /// Nothing but what is known.
    fn among(known: &[Expr]) -> Self {
        let mut plain = Self::default();
        for one in known {
            plain.add(CedarEffect::Forbid, &Expr::not(one.clone()));
        }
        plain
    }

    fn add(&mut self, effect: CedarEffect, condition: &Expr) {
        let policy = policy(self.0.len(), effect, straight(condition));
        self.0.push(policy);
    }

    fn into_set(self) -> cedar_policy::PolicySet {
        let mut set = PolicySet::new();
        for policy in self.0 {
            set.add_static(policy).expect("their numbers differ");
        }
        set.into()
    }
}

fn policy(number: usize, effect: CedarEffect, condition: Expr) -> StaticPolicy {
    StaticPolicy::new(
        PolicyID::from_string(number.to_string()),
        None,
        Annotations::new(),
        effect,
        PrincipalConstraint::any(),
        ActionConstraint::Any,
        ResourceConstraint::any(),
        Some(condition),
    )
    .expect("links were written out, so there are no slots")
}

#[cfg(test)]
mod tests;
