//! Our verdicts as plain Cedar sets.
//!
//! Cedar knows allow and deny, and skips a policy that fails. We know three verdicts, and a policy that fails and could
//! have made it stricter denies. So there are two plain sets for each of ours, and each allows an ask exactly where our
//! verdict is at least that good. A condition that cannot fail is taken as it is; one that can is moved into every
//! permit, as something that must have come out, because there Cedar does not skip it.

use crate::fallible::{can_fail, obstacle};
use crate::shape::{all, straight};
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

impl Level {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::NotDenied, Self::Allowed];

    /// Policies that Cedar allows an ask by exactly where ours give a verdict of this level, among the asks of which this
    /// is known. They were checked.
    pub(crate) fn plain(self, parts: &[Part<'_>], known: &[Expr]) -> cedar_policy::PolicySet {
        let mut plain = Plain::among(known);
        let mut must_come_out = Vec::new();
        for part in parts {
            let condition = part.condition.clone();
            let forbids = self.forbids(part.effect);
            match (can_fail(&condition), part.effect) {
                (false, _) if forbids => plain.add(CedarEffect::Forbid, &condition),
                (true, _) if forbids => must_come_out.push(Expr::not(condition)),
                (true, Effect::RequireApproval) => must_come_out.push(comes_out(condition)),
                // Only what permits here is left, and advice that cannot fail.
                _ => {}
            }
        }
        for part in parts.iter().filter(|part| self.permits(part.effect)) {
            let condition = must_come_out.iter().chain([&part.condition]).cloned();
            plain.add(CedarEffect::Permit, &all(condition.collect::<Vec<_>>()));
        }
        plain.into_set()
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
