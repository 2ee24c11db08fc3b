//! Whom policies want to be asked before something is done: what one of them wants is never lost beside what another one does.
//!
//! Who is in a group and who has voted is not known here.

use crate::annotations::PolicyEffect;
use crate::diagnostics::Diagnostic;
use crate::set::PolicySet;
use crate::statement::Statement;
use model::ApprovalTerms;
use model::approval::GroupQuorum;
use std::collections::{BTreeMap, BTreeSet};

/// How many policies are named of which nobody can do what they want. A set may have many that want the same.
const TOLD_MAX: usize = 64;

/// Who has to approve. A policy that names a group wants its quorum from that group. One that names none wants its
/// quorum from anybody, and where other policies name groups, from each of those groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approvers {
    /// The largest quorum of the policies that name no group; none if all do.
    anybody: u32,
    /// The largest quorum of those that name this group.
    groups: BTreeMap<String, u32>,
    exclude_owner: bool,
}

impl Approvers {
    /// Whom one policy wants to be asked.
    pub(crate) fn of(terms: &ApprovalTerms) -> Self {
        let (anybody, group) = match &terms.group {
            Some(group) => (0, Some((group.clone(), terms.quorum))),
            None => (terms.quorum, None),
        };
        Self {
            anybody,
            groups: group.into_iter().collect(),
            exclude_owner: terms.exclude_owner,
        }
    }

    /// Those of both.
    ///
    /// INVARIANT: who is enough for both is enough for each. So one policy more takes nobody away, and the order of
    /// policies decides nothing.
    pub(crate) fn and(mut self, other: Self) -> Self {
        for (group, quorum) in other.groups {
            let ours = self.groups.entry(group).or_default();
            *ours = quorum.max(*ours);
        }
        Self {
            anybody: self.anybody.max(other.anybody),
            exclude_owner: self.exclude_owner || other.exclude_owner,
            ..self
        }
    }

    /// How many groups have to approve.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The terms on which people are asked: each group with how many of it have to approve.
    pub fn terms(&self) -> ApprovalTerms {
        let mut groups = self.groups.iter().map(|(group, quorum)| GroupQuorum {
            group: group.clone(),
            quorum: self.anybody.max(*quorum),
        });
        let (group, quorum) = match groups.next() {
            Some(first) => (Some(first.group), first.quorum),
            None => (None, self.anybody),
        };
        ApprovalTerms {
            group,
            quorum,
            also: groups.collect(),
            exclude_owner: self.exclude_owner,
        }
    }
}

impl PolicySet {
    /// The groups that the tenant's policies want to approve.
    pub fn approving_groups(&self) -> BTreeSet<&str> {
        self.wanted().map(|(_, group, _)| group).collect()
    }

    /// Which of the tenant's policies want more people of a group to approve than there are, where so many are in it;
    /// none if there is no such group. People may be registered later, so this stops nothing.
    pub fn short_of_people(&self, people: impl Fn(&str) -> Option<u32>) -> Vec<Diagnostic> {
        let short = self.wanted().filter_map(|(statement, group, quorum)| {
            let message = match people(group) {
                Some(count) if count >= quorum => return None,
                Some(count) => {
                    format!("the policy wants {quorum} of the team `{group}` to approve, which has {count}")
                }
                None => format!("the policy wants the team `{group}` to approve, and there is no such team"),
            };
            let help = "what it asks for cannot be approved until enough users are in the team";
            let found = Diagnostic::error(message).with_help(help).into_warning();
            Some(found.about(&statement.id).at(statement.place()))
        });
        short.take(TOLD_MAX).collect()
    }

    /// The tenant's policies that want a group to approve, and how many of it.
    fn wanted(&self) -> impl Iterator<Item = (&Statement, &str, u32)> {
        let policies = self.contents.policies.iter();
        let statements = policies.flat_map(|policy| &policy.statements);
        statements.filter_map(|statement| match &statement.annotations.effect {
            PolicyEffect::Approval(terms) => Some((&**statement, terms.group.as_deref()?, terms.quorum)),
            PolicyEffect::Forbid | PolicyEffect::Permit | PolicyEffect::Advice => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(group: Option<&str>, quorum: u32) -> Approvers {
        Approvers::of(&ApprovalTerms {
            group: group.map(str::to_owned),
            quorum,
            also: Vec::new(),
            exclude_owner: false,
        })
    }

    /// What people are asked by these policies: each group with how many of it, in words.
    fn asked(policies: &[(Option<&str>, u32)]) -> String {
        let all = policies.iter().map(|(group, quorum)| wanted(*group, *quorum));
        let terms = all.reduce(Approvers::and).unwrap().terms();
        let first = (terms.group.unwrap_or_default(), terms.quorum);
        let also = terms.also.into_iter().map(|also| (also.group, also.quorum));
        let words = std::iter::once(first).chain(also);
        let words: Vec<_> = words.map(|(group, quorum)| format!("{group}:{quorum}")).collect();
        words.join(" ")
    }

    #[test]
    fn of_a_group_as_many_are_asked_as_any_policy_wants_that_names_it_or_none() {
        let (leads, support) = (Some("leads"), Some("support"));
        assert_eq!(asked(&[(None, 1), (None, 2)]), ":2");
        assert_eq!(asked(&[(leads, 2), (leads, 1)]), "leads:2");
        assert_eq!(asked(&[(leads, 1), (None, 3)]), "leads:3");
        assert_eq!(asked(&[(leads, 2), (support, 1)]), "leads:2 support:1");
        assert_eq!(asked(&[(leads, 1), (None, 2), (support, 3)]), "leads:2 support:3");
    }

    #[test]
    fn the_order_of_policies_decides_nothing() {
        let policies = [(None, 2), (Some("support"), 3), (Some("leads"), 1)];
        let all = asked(&policies);
        for [one, two, three] in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(asked(&[policies[one], policies[two], policies[three]]), all);
        }
    }
}
