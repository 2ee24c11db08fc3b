//! A change that policies in force do not fit: refused with what is wrong, or, with force, made together with taking those
//! policies out of use. Force is for operators: what an admin registers does not switch off what a policy editor wrote.

use super::{ChangeLock, compile, invalid_policies};
use crate::http::{Code, Holder, Refusal};
use engine::TenantSnapshot;
use model::{Directory, Noun, Policy, Role, SlashFreeName, Write};
use policy::{Compiler, Diagnostics, PolicySet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many bytes of policies are taken out of use with all of their versions, as are written of a set. Where there are
/// more, their versions that were not in use share as much.
const DEACTIVATED_BYTES_MAX: usize = 4 << 20;

/// Whether policies that do not fit a change are in its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// The change is refused.
    No,
    /// They are taken out of use in the same commit.
    Yes,
}

/// What a request says about force.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForceQuery {
    #[serde(default)]
    force: bool,
}

impl ForceQuery {
    /// The force that this caller asks for.
    pub fn by(&self, holder: &Holder) -> Result<Force, Refusal> {
        match (self.force, holder.has(Role::Operator)) {
            (false, _) => Ok(Force::No),
            (true, true) => Ok(Force::Yes),
            (true, false) => Err(Refusal::new(
                Code::ForceNotPermitted,
                "`force=true` takes an operator's key; without it, the policies that do not fit are listed",
            )),
        }
    }
}

/// How a change fits the policies.
#[derive(Clone, Default)]
pub(super) struct Fitting {
    /// The policies after it, if it makes a difference to them.
    pub(super) policies: Option<Arc<PolicySet>>,
    /// What is written besides.
    pub(super) writes: Vec<Write>,
    /// What is taken out of use.
    pub(super) deactivated: Vec<Deactivated>,
}

/// A policy that is taken out of use, as the ledger tells of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Deactivated {
    name: SlashFreeName,
    /// The version that was enforced and is not any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced: Option<u64>,
    /// The version that was on trial and is not any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<u64>,
}

impl Deactivated {
    fn of(before: &Policy, after: &Policy) -> Self {
        let trial = |policy: &Policy| policy.trial.as_ref().map(|trial| trial.version);
        Self {
            name: before.name.clone(),
            enforced: before.enforced.filter(|_| after.enforced.is_none()),
            trial: trial(before).filter(|_| after.trial.is_none()),
        }
    }
}

/// What a change wants to make of a directory.
pub(super) struct Wanted {
    compiler: Arc<Compiler>,
    pub(super) before: Directory,
    pub(super) after: Directory,
}

impl Wanted {
    /// These writes.
    pub(super) fn of(compiler: &Arc<Compiler>, before: &Directory, writes: &[Write]) -> Self {
        let mut after = before.clone();
        for write in writes {
            after.apply(write);
        }
        Self {
            compiler: Arc::clone(compiler),
            before: before.clone(),
            after,
        }
    }

    /// Whether policies fit both in the same way.
    fn fits_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.compiler, &other.compiler)
            && TenantSnapshot::compile_alike(&self.before, &other.before)
            && TenantSnapshot::compile_alike(&self.after, &other.after)
    }
}

/// How a change fitted in the attempt before. Whoever came in between has changed nothing, as a rule, that policies are
/// compiled from. Then they are not even looked up again, and the next attempt takes no longer than those take that
/// compile nothing and come in between.
#[derive(Default)]
pub(super) struct Fitted(Option<(Wanted, Fitting)>);

impl Fitted {
    /// How this fits, if nothing has to be compiled to know it.
    pub(super) fn find(&self, wanted: &Wanted) -> Option<Fitting> {
        if TenantSnapshot::compile_alike(&wanted.after, &wanted.before) {
            return Some(Fitting::default());
        }
        let (_, fitting) = self.0.as_ref().filter(|(before, _)| before.fits_as(wanted))?;
        Some(fitting.clone())
    }

    /// How this fits, compiled and kept for the next attempt.
    pub(super) async fn fit(
        &mut self,
        wanted: Wanted,
        lock: &ChangeLock<'_>,
        writes: &[Write],
        force: Force,
    ) -> Result<Fitting, Refusal> {
        let fitting = fit(&wanted, lock, writes, force).await?;
        self.0 = Some((wanted, fitting.clone()));
        Ok(fitting)
    }
}

/// Compiles the policies as they are after a change that makes a difference to them. With force, whatever does not fit
/// is taken out of use until the rest does.
async fn fit(
    wanted: &Wanted,
    lock: &ChangeLock<'_>,
    writes: &[Write],
    force: Force,
) -> Result<Fitting, Refusal> {
    let Wanted { compiler, before, .. } = wanted;
    let mut after = wanted.after.clone();
    let mut idle: BTreeMap<SlashFreeName, Arc<Policy>> = BTreeMap::new();
    loop {
        match compile(compiler, after.clone(), Some(before.clone()), lock.kept()).await? {
            Ok(policies) => {
                let unbounded = unbounded(compiler, before, writes);
                if !unbounded.0.is_empty() {
                    return Err(invalid_policies(&unbounded));
                }
                return Ok(fitting(policies, before, idle));
            }
            Err(diagnostics) => {
                let less = less(&after, &diagnostics, force);
                // Every round takes something out of use, so there is a last one.
                if less.is_empty() {
                    return Err(invalid_policies(&diagnostics));
                }
                for policy in less {
                    after.apply(&Write::Put(Noun::Policy(Arc::clone(&policy))));
                    idle.insert(policy.name.clone(), policy);
                }
            }
        }
    }
}

/// The schemas that these writes bring in and that no parameters can be checked against.
fn unbounded(compiler: &Compiler, before: &Directory, writes: &[Write]) -> Diagnostics {
    let tools = writes.iter().filter_map(|write| match write {
        Write::Put(Noun::Tool(tool)) => Some(tool),
        _ => None,
    });
    let actions = tools.flat_map(|tool| tool.actions.values().map(move |action| (tool, action)));
    let new = actions.filter(|(tool, action)| {
        let known = before.tools.get(&tool.name);
        let known = known.and_then(|known| known.actions.get(&action.name));
        known.is_none_or(|known| known.input_schema != action.input_schema)
    });
    // They are in the cache since the policies were compiled, so this looks them up.
    Diagnostics(
        new.filter_map(|(tool, action)| compiler.unbounded(&tool.name, action))
            .collect(),
    )
}

fn fitting(
    policies: Arc<PolicySet>,
    before: &Directory,
    idle: BTreeMap<SlashFreeName, Arc<Policy>>,
) -> Fitting {
    let known = |policy: &Policy| before.policies.get(&policy.name).cloned();
    let bytes: usize = idle.values().map(|policy| policy.bytes()).sum();
    let share = DEACTIVATED_BYTES_MAX / idle.len().max(1);
    let written = |after: Arc<Policy>| match known(&after) {
        Some(before) if bytes > DEACTIVATED_BYTES_MAX => Arc::new(shortened(&before, &after, share)),
        _ => after,
    };
    let pairs = idle
        .values()
        .filter_map(|after| known(after).map(|before| (before, after)));
    Fitting {
        policies: Some(policies),
        deactivated: pairs
            .map(|(before, after)| Deactivated::of(&before, after))
            .collect(),
        writes: idle
            .into_values()
            .map(|policy| Write::Put(Noun::Policy(written(policy))))
            .collect(),
    }
}

/// A policy that is taken out of use, with the versions that were in use before and so many bytes of others.
fn shortened(before: &Policy, after: &Policy, others_bytes_max: usize) -> Policy {
    Policy {
        versions: before.remembering(others_bytes_max).versions,
        ..after.clone()
    }
}

/// The policies that these findings are about, with less of them in use: first only without what is on trial, which may be
/// all that does not fit.
fn less(directory: &Directory, diagnostics: &Diagnostics, force: Force) -> Vec<Arc<Policy>> {
    if force == Force::No {
        return Vec::new();
    }
    let named = diagnostics.policies().into_iter();
    let policies = named.filter_map(|name| directory.policies.get(name));
    let in_use = policies.filter(|policy| policy.enforced.is_some() || policy.trial.is_some());
    in_use
        .map(|policy| match (&policy.enforced, &policy.trial) {
            (Some(_), Some(_)) => Arc::new(policy.reverted()),
            _ => Arc::new(policy.deactivated()),
        })
        .collect()
}
