//! Which policies differ, by id: what can be told without a solver.

use crate::report::{Differences, Policy};
use policy::{Listed, PolicyId, PolicySet};
use std::collections::BTreeMap;

/// How many policies are listed, of each kind. A set can have ten thousand.
const LISTED_MAX: usize = 500;

/// Which policies differ.
pub(crate) fn differences(before: &PolicySet, after: &PolicySet) -> Differences {
    let (before, after) = (before.listing(), after.listing());
    let mut differences = Differences {
        added: without(&after, &before),
        removed: without(&before, &after),
        changed: changed(&before, &after),
        truncated: false,
    };
    for list in [
        &mut differences.added,
        &mut differences.removed,
        &mut differences.changed,
    ] {
        differences.truncated |= list.len() > LISTED_MAX;
        list.truncate(LISTED_MAX);
    }
    differences
}

type Listing<'s> = BTreeMap<(&'s PolicyId, bool), Listed>;

fn policy((id, _): &(&PolicyId, bool), listed: &Listed) -> Policy {
    Policy {
        id: id.to_string(),
        mode: listed.mode.as_str(),
    }
}

fn without(all: &Listing<'_>, others: &Listing<'_>) -> Vec<Policy> {
    let missing = all.iter().filter(|(key, _)| !others.contains_key(key));
    missing.map(|(key, listed)| policy(key, listed)).collect()
}

fn changed(before: &Listing<'_>, after: &Listing<'_>) -> Vec<Policy> {
    let changed = after.iter().filter(|(key, listed)| {
        let was = before.get(key);
        was.is_some_and(|was| was != *listed)
    });
    changed.map(|(key, listed)| policy(key, listed)).collect()
}
