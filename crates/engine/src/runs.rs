//! What runs have seen, in the course of an ask and in a batch.

use model::{Name, RunTaint, TenantId, Trust};
use std::collections::HashMap;

/// The runs of a batch as they are at the heads that it follows. All of one family have its level.
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
    let after = match (known_family(known, tenant, sighting), parent) {
        (Some(run), _) => run.after(sighting.seen),
        (None, None) => RunTaint::beginning(run_id.clone(), sighting.seen),
        (None, Some(parent)) => RunTaint::beginning(parent.clone(), sighting.seen).child(run_id.clone()),
    };
    // Each known run has the level of its family as it is written, also where the one that began it is not known.
    let known_one = sighting
        .names()
        .find_map(|name| known.get(&(tenant, name.clone())));
    let written = known_one.map(|run| run.worst);
    let mut changed = Vec::new();
    if written != Some(after.worst) {
        changed.push(note_family(known, tenant, &after));
    }
    // The level stands in the row of the root, the family in each run's own.
    let place = (tenant, run_id.clone());
    if after.run_id != after.root && !known.contains_key(&place) {
        known.insert(place, after.clone());
        changed.push(after.clone());
    }
    if let Some(parent) = parent {
        changed.extend(note_parent(known, tenant, &after, parent));
    }
    changed
}

/// Has the parent of a run seen what the run has, and returns the row that changes: that of its family, if the run was known
/// before it named a parent and is of another one, or its own, if it is named for the first time.
fn note_parent(known: &mut KnownRuns, tenant: TenantId, run: &RunTaint, parent: &Name) -> Option<RunTaint> {
    let place = (tenant, parent.clone());
    if let Some(parent) = known.get(&place) {
        let after = parent.after(run.worst);
        return (after != *parent).then(|| note_family(known, tenant, &after));
    }
    let parent = run.child(parent.clone());
    known.insert(place, parent.clone());
    Some(parent)
}

/// Gives the family of this run a level that it did not have, and returns the row in which it stands.
fn note_family(known: &mut KnownRuns, tenant: TenantId, run: &RunTaint) -> RunTaint {
    let root = RunTaint {
        run_id: run.root.clone(),
        ..run.clone()
    };
    known.insert((tenant, root.run_id.clone()), root.clone());
    // The batch may know runs of other tenants by the same name.
    let of_tenant = known.iter_mut().filter(|((of, _), _)| *of == tenant);
    for (_, run) in of_tenant.filter(|(_, run)| run.root == root.run_id) {
        run.worst = root.worst;
    }
    root
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

    /// Runs that were read without the ones that began their families, which nobody has named.
    fn read_alone<const N: usize>(runs: [(&str, &str, Trust); N]) -> KnownRuns {
        let runs = runs.map(|(run, root, worst)| {
            let run = RunTaint::beginning(name(root), worst).child(name(run));
            ((TENANT, run.run_id.clone()), run)
        });
        KnownRuns::from(runs)
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
    fn a_run_that_names_a_parent_late_shows_it_what_it_has_seen() {
        let mut known = KnownRuns::new();
        for run in ["a", "c"] {
            see(&mut known, run, None, Trust::TrustedInternalUnsigned);
        }
        see(&mut known, "b", Some("a"), Trust::TrustedInternalUnsigned);
        assert_eq!(
            see(&mut known, "c", Some("b"), Trust::UntrustedExternal),
            ["c", "a"]
        );
        for run in ["a", "b", "c"] {
            assert_eq!(worst(&known, run), Trust::UntrustedExternal, "{run}");
        }
        assert_eq!(known[&(TENANT, name("c"))].root.as_str(), "c");
        // Nobody has heard of this one, so it is of the same family from now on.
        assert_eq!(see(&mut known, "c", Some("d"), Trust::UntrustedExternal), ["d"]);
        see(&mut known, "d", None, Trust::Unknown);
        assert_eq!(worst(&known, "c"), Trust::Unknown);
    }

    #[test]
    fn the_row_of_a_family_is_written_only_where_its_level_changes() {
        let level = Trust::SemiTrustedCustomer;
        let mut known = read_alone([("b", "a", level), ("c", "a", level)]);
        assert!(see(&mut known, "b", None, Trust::TrustedInternalUnsigned).is_empty());
        assert!(see(&mut known, "c", Some("b"), level).is_empty());
        assert_eq!(see(&mut known, "d", Some("c"), level), ["d"]);
        // This one is heard of as a parent.
        assert_eq!(see(&mut known, "d", Some("e"), level), ["e"]);
        assert_eq!(
            see(&mut known, "f", Some("d"), Trust::UntrustedExternal),
            ["a", "f"]
        );
        for run in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(worst(&known, run), Trust::UntrustedExternal, "{run}");
        }
        assert!(see(&mut known, "b", None, level).is_empty());
        assert_eq!(see(&mut known, "b", None, Trust::Unknown), ["a"]);
        assert_eq!(worst(&known, "f"), Trust::Unknown);
    }

    #[test]
    fn of_two_families_that_meet_the_one_that_has_seen_less_is_written() {
        let (good, bad) = (Trust::TrustedInternalUnsigned, Trust::UntrustedExternal);
        for (of_run, of_parent, written) in [(good, bad, "c"), (bad, good, "a")] {
            let mut known = read_alone([("d", "c", of_run), ("b", "a", of_parent)]);
            assert_eq!(see(&mut known, "d", Some("b"), good), [written]);
            assert_eq!((worst(&known, "d"), worst(&known, "b")), (bad, bad));
            assert!(see(&mut known, "d", Some("b"), good).is_empty());
        }
        let mut known = read_alone([("d", "c", good), ("b", "a", good)]);
        assert!(see(&mut known, "d", Some("b"), good).is_empty());
        assert_eq!(see(&mut known, "d", Some("b"), bad), ["c", "a"]);
        assert_eq!(see(&mut known, "d", Some("b"), Trust::Unknown), ["c", "a"]);
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
