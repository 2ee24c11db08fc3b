//! Everything together: two sets and a solver, or none, make a report.

use crate::directions::{Prepared, Search, Way};
use crate::findings;
use crate::prover::{Open, Turn};
use crate::question::{Kinds, Pair};
use crate::report::{Proof, Report};
use crate::structure;
use model::Timestamp;
use policy::{PolicySet, Registry};

/// Two sets for one registry.
#[derive(Debug, Clone, Copy)]
pub struct Sets<'a> {
    /// What is in force.
    pub before: &'a PolicySet,
    /// What would be in its place.
    pub after: &'a PolicySet,
    /// What both were compiled for.
    pub registry: Registry<'a>,
    /// When examples are asked, where it does not matter.
    pub now: Timestamp,
}

/// How two sets differ. Without a solver it says what can be said without one.
///
/// It computes between its questions, so it has no place on a thread that answers asks. Dropping it stops the solver.
pub async fn diff(sets: Sets<'_>, turn: &Turn) -> Report {
    let mut session = turn.session();
    let pair = Pair::new(sets.before.slicer(), sets.after.slicer());
    let Kinds { kinds, left } = if pair.is_equal() {
        Kinds::default()
    } else {
        pair.kinds(sets.registry, turn.bounds().kinds_max, || session.check().is_ok())
    };
    let solver = turn.version().await;
    let mut more = Search::new(Way::More);
    let mut less = Search::new(Way::Less);
    let mut prepared = Vec::new();
    for kind in &kinds {
        let ready = match &solver {
            Err(absent) => Err(Open::Beyond(absent.to_string())),
            Ok(_) => session
                .check()
                .and_then(|()| Prepared::new(&sets, &pair, kind, turn.bounds().policies_max)),
        };
        match ready {
            Ok(ready) => {
                more.look(&sets, &mut session, kind, &ready).await;
                less.look(&sets, &mut session, kind, &ready).await;
                prepared.push((kind, ready));
            }
            Err(why) => {
                more.leave_open(&kind.sides, &why);
                less.leave_open(&kind.sides, &why);
            }
        }
    }
    if !left.is_empty() {
        more.leave_open(&left, &Open::NoTimeLeft);
        less.leave_open(&left, &Open::NoTimeLeft);
    }
    let is_whole = left.is_empty() && prepared.len() == kinds.len();
    let found = findings::find(&sets, &pair, &mut session, &prepared, is_whole).await;
    Report {
        in_force_digest: sets.before.digest(),
        candidate_digest: sets.after.digest(),
        policies: structure::differences(sets.before, sets.after),
        proof: Proof {
            available: solver.is_ok(),
            why: solver.as_ref().err().map(ToString::to_string),
            solver: solver.ok(),
            actions: kinds.iter().map(|kind| kind.sides.len()).sum::<usize>() + left.len(),
            complete: more.is_complete() && less.is_complete() && found.are_complete,
        },
        allows_more: more.into_direction(),
        allows_less: less.into_direction(),
        findings: found.all,
    }
}

#[cfg(test)]
mod tests;
