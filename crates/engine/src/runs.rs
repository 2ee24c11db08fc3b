//! What runs have seen, in the course of an ask and in a batch.

use model::{Name, RunTaint, TenantId, Trust};
use std::collections::HashMap;

/// The runs of a batch as they are at the heads that it follows.
pub type KnownRuns = HashMap<(TenantId, Name), RunTaint>;

/// What an ask or an observation shows to a run.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// The run.
    pub run_id: Name,
    /// The run that it says started it.
    pub parent: Option<Name>,
    /// The least trusted source in it.
    pub seen: Trust,
    /// The level of the family as it was judged with, if there was one.
    pub judged_with: Option<Trust>,
}

impl Sighting {
    /// The names that have to be looked up.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        [Some(&self.run_id), self.parent.as_ref()].into_iter().flatten()
    }
}

/// The family of a run; none if nothing is known of it or of the run that it says started it. A run that was known before it
/// named a parent keeps its own family, and that takes over what the parent's has seen.
pub fn family<'k>(
    run_id: &Name,
    parent: Option<&Name>,
    find: impl Fn(&Name) -> Option<&'k RunTaint>,
) -> Option<RunTaint> {
    let parent = parent.and_then(&find);
    match (find(run_id), parent) {
        (Some(run), Some(parent)) => Some(run.after(parent.worst)),
        (Some(run), None) => Some(run.clone()),
        (None, Some(parent)) => Some(parent.child(run_id.clone())),
        (None, None) => None,
    }
}

fn known_family(known: &KnownRuns, tenant: TenantId, sighting: &Sighting) -> Option<RunTaint> {
    let find = |name: &Name| known.get(&(tenant, name.clone()));
    family(&sighting.run_id, sighting.parent.as_ref(), find)
}

/// Whether the family is what the sighting was judged with.
pub(crate) fn is_current(known: &KnownRuns, tenant: TenantId, sighting: &Sighting) -> bool {
    known_family(known, tenant, sighting).map(|run| run.worst) == sighting.judged_with
}

/// Notes what was shown to a run, and returns the rows that change.
pub(crate) fn note(known: &mut KnownRuns, tenant: TenantId, sighting: &Sighting) -> Vec<RunTaint> {
    let Sighting { run_id, parent, .. } = sighting;
    let find = |name: &Name| known.get(&(tenant, name.clone()));
    let before = known_family(known, tenant, sighting);
    let after = match (&before, parent) {
        (Some(run), _) => run.after(sighting.seen),
        (None, None) => RunTaint::beginning(run_id.clone(), sighting.seen),
        (None, Some(parent)) => RunTaint::beginning(parent.clone(), sighting.seen).child(run_id.clone()),
    };
    let mut changed = Vec::new();
    let root = RunTaint {
        run_id: after.root.clone(),
        ..after.clone()
    };
    // The level stands in the row of the root, the family in each run's own.
    if find(&root.run_id) != Some(&root) {
        changed.push(root.clone());
    }
    if after.run_id != root.run_id && find(run_id).is_none() {
        changed.push(after);
    }
    // The batch may know runs of other tenants by the same name.
    let of_tenant = known.iter_mut().filter(|((of, _), _)| *of == tenant);
    for (_, run) in of_tenant.filter(|(_, run)| run.root == root.run_id) {
        run.worst = root.worst;
    }
    for run in &changed {
        known.insert((tenant, run.run_id.clone()), run.clone());
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::SYSTEM;
    const OTHER: TenantId = TenantId::from_bytes([9; 16]);

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// Notes a sighting that was judged with what is known, and returns the names of the rows that change.
    fn see(known: &mut KnownRuns, run: &str, parent: Option<&str>, seen: Trust) -> Vec<String> {
        let (run_id, parent) = (name(run), parent.map(name));
        let find = |name: &Name| known.get(&(TENANT, name.clone()));
        let judged_with = family(&run_id, parent.as_ref(), find).map(|run| run.worst);
        let sighting = Sighting {
            run_id,
            parent,
            seen,
            judged_with,
        };
        assert!(is_current(known, TENANT, &sighting));
        note(known, TENANT, &sighting)
            .into_iter()
            .map(|run| run.run_id.to_string())
            .collect()
    }

    fn worst(known: &KnownRuns, run: &str) -> Trust {
        known[&(TENANT, name(run))].worst
    }

    #[test]
    fn what_one_run_has_seen_its_family_has() {
        let mut known = KnownRuns::new();
        assert_eq!(see(&mut known, "a", None, Trust::TrustedInternalUnsigned), ["a"]);
        assert_eq!(
            see(&mut known, "b", Some("a"), Trust::TrustedInternalUnsigned),
            ["b"]
        );
        assert_eq!(
            see(&mut known, "c", Some("b"), Trust::UntrustedExternal),
            ["a", "c"]
        );
        for run in ["a", "b", "c"] {
            assert_eq!(worst(&known, run), Trust::UntrustedExternal, "{run}");
        }
        // What it has seen already changes nothing, and nothing makes it better.
        assert!(see(&mut known, "a", None, Trust::TrustedInternalUnsigned).is_empty());
        assert!(see(&mut known, "b", Some("a"), Trust::SemiTrustedCustomer).is_empty());
    }

    #[test]
    fn a_child_that_comes_before_its_parent_is_of_its_family() {
        let mut known = KnownRuns::new();
        assert_eq!(
            see(&mut known, "b", Some("a"), Trust::UntrustedExternal),
            ["a", "b"]
        );
        assert!(see(&mut known, "a", None, Trust::TrustedInternalUnsigned).is_empty());
        assert_eq!(worst(&known, "a"), Trust::UntrustedExternal);
    }

    #[test]
    fn a_run_that_names_a_parent_late_takes_over_what_that_has_seen() {
        let mut known = KnownRuns::new();
        see(&mut known, "a", None, Trust::Unknown);
        see(&mut known, "b", None, Trust::TrustedInternalUnsigned);
        assert_eq!(
            see(&mut known, "b", Some("a"), Trust::TrustedInternalUnsigned),
            ["b"]
        );
        assert_eq!(worst(&known, "b"), Trust::Unknown);
    }

    #[test]
    fn a_run_of_another_tenant_by_the_same_name_stays_what_it_is() {
        let run = |seen| RunTaint::beginning(name("a"), seen);
        let mut known = KnownRuns::from([((OTHER, name("a")), run(Trust::UntrustedExternal))]);
        see(&mut known, "a", None, Trust::TrustedInternalUnsigned);
        assert_eq!(known[&(OTHER, name("a"))], run(Trust::UntrustedExternal));
        see(&mut known, "a", None, Trust::Unknown);
        assert_eq!(known[&(OTHER, name("a"))], run(Trust::UntrustedExternal));
    }

    #[test]
    fn what_was_judged_with_another_level_is_judged_again() {
        let mut known = KnownRuns::new();
        see(&mut known, "a", None, Trust::UntrustedExternal);
        for judged_with in [None, Some(Trust::TrustedInternalUnsigned)] {
            let sighting = Sighting {
                run_id: name("a"),
                parent: None,
                seen: Trust::TrustedInternalUnsigned,
                judged_with,
            };
            assert!(!is_current(&known, TENANT, &sighting));
        }
    }
}
