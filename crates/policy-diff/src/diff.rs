//! Everything together: two sets and a solver, or none, make a report.

use crate::directions::{Prepared, Search, Way, of_users};
use crate::findings::{self, Crowd};
use crate::prover::{Open, Turn};
use crate::question::{Kinds, Pair};
use crate::report::{Proof, Report};
use crate::structure;
use imbl::OrdMap;
use model::{AttributeType, Name, SlashFreeName, SourceRule, Timestamp, Tool};
use policy::{ActionSide, PolicySet, Principals, Registry};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::{io, thread};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The stack of the thread that makes formulas and reads models, in bytes. Both are walked by recursion, and they are as
/// deep as there are policies, or links in those that are joined. It is address space, and becomes memory where it is used.
const STACK_BYTES: usize = 256 << 20;

/// Two sets for one registry.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// What is in force.
    pub before: PolicySet,
    /// What would be in its place.
    pub after: PolicySet,
    /// The tools that both were compiled for.
    pub tools: OrdMap<SlashFreeName, Arc<Tool>>,
    /// The attributes that both were compiled for.
    pub attributes: BTreeMap<Name, AttributeType>,
    /// What the tenant makes of the sources of single parameters.
    pub sources: SourceRule,
    /// The most bytes of the body of an ask.
    pub body_bytes_max: usize,
    /// When examples are asked, where it does not matter.
    pub now: Timestamp,
}

/// What a [`Comparison`] compares, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sets<'a> {
    pub(crate) before: &'a PolicySet,
    pub(crate) after: &'a PolicySet,
    pub(crate) registry: Registry<'a>,
    pub(crate) sources: SourceRule,
    pub(crate) body_bytes_max: usize,
    pub(crate) now: Timestamp,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// No thread could be started.
    #[error("a thread to compare on could not be started")]
    Thread(#[source] io::Error),
    /// A bug.
    #[error("comparing broke off")]
    Panicked,
}

/// How two sets differ. Without a solver it says what can be said without one.
///
/// The work is done on a thread of its own, and needs a runtime with I/O and time. Dropping it stops the solver, and the
/// thread as soon as it waits for one, or has made the formula that it makes.
pub async fn diff(comparison: Comparison, turn: Turn) -> Result<Report, Broken> {
    let (answer, answered) = oneshot::channel();
    let (_waiting, left) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let work = move || {
        let report = runtime.block_on(async {
            tokio::select! {
                // Each time before it goes on.
                biased;
                _ = left => None,
                report = comparison.report(&turn) => Some(report),
            }
        });
        // The next one may begin when it has been told.
        drop(turn);
        if let Some(report) = report {
            // Nobody may be there any more to read it.
            drop(answer.send(Box::new(report)));
        }
    };
    let thread = thread::Builder::new().name("policy-diff".to_owned());
    let thread = thread.stack_size(STACK_BYTES).spawn(work);
    thread.map_err(Broken::Thread)?;
    let report = answered.await.map_err(|_| Broken::Panicked)?;
    Ok(*report)
}

impl Comparison {
    async fn report(&self, turn: &Turn) -> Report {
        let registry = Registry {
            tools: &self.tools,
            attributes: &self.attributes,
        };
        let sets = Sets {
            before: &self.before,
            after: &self.after,
            registry,
            sources: self.sources,
            body_bytes_max: self.body_bytes_max,
            now: self.now,
        };
        report(sets, turn).await
    }
}

async fn report(sets: Sets<'_>, turn: &Turn) -> Report {
    let mut session = turn.session();
    let pairs = [Principals::Agents, Principals::Users].map(|who| {
        let (before, after) = (sets.before.slicer(who), sets.after.slicer(who));
        (who, Pair::new(before, after, sets.body_bytes_max))
    });
    let solver = turn.version().await;
    let mut more = Search::new(Way::More);
    let mut less = Search::new(Way::Less);
    let mut asked: BTreeSet<ActionSide> = BTreeSet::new();
    let kinds = pairs.each_ref().map(|(_, pair)| {
        if pair.is_equal() {
            return Kinds::default();
        }
        pair.kinds(sets.registry, turn.bounds().kinds_max, || session.check().is_ok())
    });
    let mut crowds = pairs.each_ref().map(|(_, pair)| Crowd {
        pair,
        kinds: Vec::new(),
        is_whole: true,
    });
    for (((who, pair), crowd), Kinds { kinds, left }) in pairs.iter().zip(&mut crowds).zip(&kinds) {
        for kind in kinds {
            asked.extend(kind.sides.iter().cloned());
            let ready = match &solver {
                Err(absent) => Err(Open::Beyond(absent.to_string())),
                Ok(_) if *who == Principals::Users && has_canaries(&sets) => Err(of_users()),
                Ok(_) => Prepared::new(&sets, pair, (kind, *who), &session).await,
            };
            match (ready, who) {
                (Ok(ready), Principals::Agents) => {
                    more.look(&sets, &mut session, kind, &ready).await;
                    less.look(&sets, &mut session, kind, &ready).await;
                    crowd.kinds.push((kind, ready));
                }
                (Ok(ready), Principals::Users) => {
                    more.look_at_users(&mut session, kind, &ready).await;
                    less.look_at_users(&mut session, kind, &ready).await;
                    crowd.kinds.push((kind, ready));
                }
                (Err(why), _) => {
                    crowd.is_whole = false;
                    more.leave_open(&kind.sides, &why);
                    less.leave_open(&kind.sides, &why);
                }
            }
        }
        if !left.is_empty() {
            asked.extend(left.iter().cloned());
            crowd.is_whole = false;
            more.leave_open(left, &Open::NoTimeLeft);
            less.leave_open(left, &Open::NoTimeLeft);
        }
        let too_much = pair.too_much(sets.registry, || session.check().is_ok());
        for (search, open) in [&mut more, &mut less].into_iter().zip(too_much) {
            for (why, sides) in open {
                search.leave_open(&sides, &why);
                asked.extend(sides);
            }
        }
    }
    let [agents, users] = &crowds;
    let found = findings::find(&sets, agents, users, &mut session).await;
    session.end().await;
    Report {
        in_force_digest: sets.before.digest(),
        candidate_digest: sets.after.digest(),
        policies: structure::differences(sets.before, sets.after),
        proof: Proof {
            available: solver.is_ok(),
            why: solver.as_ref().err().map(ToString::to_string),
            solver: solver.ok(),
            actions: asked.len(),
            complete: more.is_complete() && less.is_complete() && found.are_complete,
        },
        allows_more: more.into_direction(),
        allows_less: less.into_direction(),
        findings: found.all,
    }
}

/// Whether a policy of either counts for some agents only. For whom an agent acts does not tell which one it is.
fn has_canaries(sets: &Sets<'_>) -> bool {
    sets.before.has_canaries() || sets.after.has_canaries()
}

#[cfg(test)]
mod tests;
