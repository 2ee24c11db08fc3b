//! What is kept of a tenant's policies: of what changes at once and of all of them, as many versions that are not in
//! use as there is room for.
//!
//! All that is kept of a policy is written whenever it changes, while nobody is answered, and all that is kept is in
//! memory. What is in use is never forgotten, nor is the newest other version of a policy that is there; the texts of
//! all versions are in the ledger.

use crate::http::{Code, Refusal};
use model::{Directory, Noun, Policy, SlashFreeName, Timestamp, Write};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many bytes of policies are written at once with all of their versions: a set of the usual length with its
/// history. Where there are more, their versions that are not in use share as much.
const WRITTEN_BYTES_MAX: usize = 4 << 20;

/// The most bytes that are kept of a tenant's policies, those that were deleted among them: the largest set in each of
/// some fifteen versions. Policies that were deleted are forgotten first.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Policies that change at once.
pub(super) struct Changing<'d> {
    /// What they are changed in.
    pub(super) directory: &'d Directory,
    /// Those that are put, as they are to be.
    pub(super) put: Vec<Policy>,
    /// Those that are deleted, as they are now, and when that is.
    pub(super) gone: Vec<(Policy, Timestamp)>,
}

impl Changing<'_> {
    /// What is written: these policies, with as many versions as there is room for, and what is forgotten for them.
    /// Refuses if there is no room for them, unless they need no more than before.
    pub(super) fn writes(mut self) -> Result<Vec<Write>, Refusal> {
        if self.bytes() > WRITTEN_BYTES_MAX {
            self.remember(WRITTEN_BYTES_MAX / (self.put.len() + self.gone.len()));
        }
        let policies = self.directory.policies.values();
        let kept: usize = policies.map(|policy| policy.bytes()).sum();
        let mut others = kept.saturating_sub(self.bytes_before());
        let forgotten = self.forgotten(&mut others);
        if others + self.bytes() > KEPT_BYTES_MAX {
            self.remember(0);
        }
        let after = others + self.bytes();
        if after > KEPT_BYTES_MAX && after > kept {
            return Err(no_room(after));
        }
        let gone = self.gone.into_iter().map(|(policy, at)| policy.deleted(at));
        let put = self.put.into_iter().chain(gone).map(Arc::new);
        let put = put.map(|policy| Write::Put(Noun::Policy(policy)));
        let forgotten = forgotten.into_iter().map(Noun::Policy).map(Write::Delete);
        Ok(put.chain(forgotten).collect())
    }

    /// Those that were deleted longest ago, until there is room; `others` is what is kept beside these, without what is
    /// forgotten.
    fn forgotten(&self, others: &mut usize) -> Vec<Arc<Policy>> {
        let written = self.bytes();
        if *others + written <= KEPT_BYTES_MAX {
            return Vec::new();
        }
        let names: BTreeSet<_> = self.names().collect();
        let policies = self.directory.policies.values();
        let deleted = policies.filter(|policy| policy.deleted_at.is_some() && !names.contains(&policy.name));
        let mut deleted: Vec<_> = deleted.cloned().collect();
        deleted.sort_by_key(|policy| policy.deleted_at);
        let mut forgotten = Vec::new();
        for policy in deleted {
            if *others + written <= KEPT_BYTES_MAX {
                break;
            }
            *others -= policy.bytes();
            forgotten.push(policy);
        }
        forgotten
    }

    fn remember(&mut self, others_bytes_max: usize) {
        let gone = self.gone.iter_mut().map(|(policy, _)| policy);
        for policy in self.put.iter_mut().chain(gone) {
            *policy = policy.remembering(others_bytes_max);
        }
    }

    fn names(&self) -> impl Iterator<Item = &SlashFreeName> {
        let gone = self.gone.iter().map(|(policy, _)| policy);
        self.put.iter().chain(gone).map(|policy| &policy.name)
    }

    /// What is kept of them.
    fn bytes(&self) -> usize {
        let gone = self.gone.iter().map(|(policy, _)| policy);
        self.put.iter().chain(gone).map(Policy::bytes).sum()
    }

    /// What was kept of them until now.
    fn bytes_before(&self) -> usize {
        let before = self.names().filter_map(|name| self.directory.policies.get(name));
        before.map(|policy| policy.bytes()).sum()
    }
}

fn no_room(bytes: usize) -> Refusal {
    let detail = format!(
        "the policies of a tenant have at most {KEPT_BYTES_MAX} bytes with the versions that are kept, these would have {bytes}; delete what is not needed any more"
    );
    Refusal::new(Code::Conflict, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{LimitTerms, Name, PolicyMode, PolicyText, Settings, Standing, Tenant, TenantId};

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn directory(policies: impl IntoIterator<Item = Policy>) -> Directory {
        let mut directory = Directory::new(Arc::new(Tenant {
            id: TenantId::from_bytes([1; 16]),
            name: Name::new("acme").unwrap(),
            settings: Settings::default(),
            standing: Standing::Active,
            limits: LimitTerms::default(),
            created_at: NOW,
            deleted_at: None,
        }));
        for policy in policies {
            directory.apply(&Write::Put(Noun::Policy(Arc::new(policy))));
        }
        directory
    }

    /// A policy with so many versions of this text.
    fn policy(name: &str, text: &Arc<str>, versions: usize) -> Policy {
        let text = PolicyText {
            cedar: Arc::clone(text),
            ..PolicyText::default()
        };
        let name = SlashFreeName::new(name).unwrap();
        let mut policy = Policy::new(name, text.clone(), PolicyMode::Enforced, NOW);
        for _ in 1..versions {
            policy = policy.with_version(text.clone(), PolicyMode::Enforced, NOW);
        }
        policy
    }

    fn text(bytes: usize) -> Arc<str> {
        "x".repeat(bytes).into()
    }

    /// The policies that are put, with how many versions, and the names of those that are forgotten.
    fn told(writes: &[Write]) -> (Vec<(&str, usize)>, Vec<&str>) {
        let (mut put, mut forgotten) = (Vec::new(), Vec::new());
        for write in writes {
            match write {
                Write::Put(Noun::Policy(policy)) => put.push((policy.name.as_str(), policy.versions.len())),
                Write::Delete(Noun::Policy(policy)) => forgotten.push(policy.name.as_str()),
                other => panic!("{other:?}"),
            }
        }
        (put, forgotten)
    }

    fn put(directory: &Directory, policy: Policy) -> Result<Vec<Write>, Refusal> {
        let changing = Changing {
            directory,
            put: vec![policy],
            gone: Vec::new(),
        };
        changing.writes()
    }

    #[test]
    fn of_one_policy_all_that_is_kept_is_written() {
        let directory = directory([]);
        let writes = put(&directory, policy("one", &text(64 << 10), 16)).unwrap();
        assert_eq!(told(&writes), (vec![("one", 16)], vec![]));
    }

    #[test]
    fn of_many_that_are_deleted_at_once_some_versions_are_kept_and_the_last_one_in_use_among_them() {
        let long = text(256 << 10);
        let names: Vec<_> = (0..32).map(|number| format!("p{number:02}")).collect();
        let policies = names.iter().map(|name| policy(name, &long, 4));
        let directory = directory(policies);
        let gone = directory.policies.values();
        let gone: Vec<_> = gone.map(|policy| (Policy::clone(policy), NOW)).collect();
        let changing = Changing {
            directory: &directory,
            put: Vec::new(),
            gone,
        };
        let writes = changing.writes().unwrap();
        assert_eq!(writes.len(), 32);
        for write in &writes {
            let Write::Put(Noun::Policy(policy)) = write else {
                panic!("{write:?}")
            };
            let kept: Vec<_> = policy.versions.iter().map(|kept| kept.version).collect();
            assert_eq!((kept, policy.deleted_at), (vec![3, 4], Some(NOW)));
        }
    }

    #[test]
    fn what_was_deleted_longest_ago_is_forgotten_where_there_is_no_room() {
        let quarter = text(KEPT_BYTES_MAX / 4);
        let gone = |name, at| policy(name, &quarter, 1).deleted(Timestamp::from_millis(at));
        let directory = directory([gone("a", 2), gone("b", 1), gone("c", 3), policy("d", &text(1), 3)]);
        let writes = put(&directory, policy("e", &text(1), 3)).unwrap();
        assert_eq!(told(&writes), (vec![("e", 3)], vec![]));
        let writes = put(&directory, policy("e", &quarter, 1)).unwrap();
        assert_eq!(told(&writes), (vec![("e", 1)], vec!["b"]));
        let writes = put(&directory, policy("b", &quarter, 2)).unwrap();
        assert_eq!(
            told(&writes),
            (vec![("b", 2)], vec!["a"]),
            "it is not deleted any more"
        );
    }

    #[test]
    fn without_room_a_policy_keeps_one_version_to_go_back_to_and_what_needs_more_is_refused() {
        let a = policy("a", &text(KEPT_BYTES_MAX - (1 << 20)), 1);
        let directory = directory([a, policy("b", &text(256 << 10), 4)]);
        let refusal = put(&directory, policy("c", &text(1), 1)).unwrap_err();
        assert_eq!(refusal.code(), Code::Conflict);
        let before = directory.policies.get("b").unwrap();
        let after = before.with_version(PolicyText::default(), PolicyMode::Enforced, NOW);
        assert_eq!(after.versions.len(), 5);
        let writes = put(&directory, after).unwrap();
        assert_eq!(told(&writes), (vec![("b", 2)], vec![]));
    }
}
