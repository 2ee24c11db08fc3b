//! What is looked up for an ask before it is judged: the approval that it names, what its run has seen, where a tenant has that
//! kept, and what it counts against, for a dry run and where policies look at that. Most asks need nothing of that, and then
//! nothing is read.

use super::usage::Counted;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Refusal};
use engine::judge::{Evidence, keeps_runs};
use engine::{Ask, Mode, runs};
use model::{Approval, Name, RunTaint, TenantId, Usage};
use std::sync::Arc;

/// What was found.
#[derive(Default)]
pub(super) struct LookedUp {
    approval: Option<Approval>,
    run: Option<RunTaint>,
    /// How much is used, where policies look at it.
    usage: Option<Arc<Usage>>,
    /// For a dry run: what it counts against.
    pub(super) counted: Counted,
}

impl LookedUp {
    /// The same, as it is judged with.
    pub(super) const fn evidence(&self) -> Evidence<'_> {
        Evidence {
            approval: self.approval.as_ref(),
            run: self.run.as_ref(),
            usage: self.usage.as_ref(),
        }
    }
}

impl Gateway {
    /// Looks up what has to be known. It may be stale by the time the ask is recorded: then that is turned back, or, of what it
    /// counts against, counted exactly.
    pub(super) async fn look_up(&self, caller: &AgentCaller, ask: &Ask) -> Result<LookedUp, Refusal> {
        let approval = match ask.approval_id.as_ref().and_then(|id| id.as_str().parse().ok()) {
            Some(id) => self.store.approval(caller.tenant, id).await?,
            None => None,
        };
        let tenant = self.tenant(caller.tenant)?;
        let run = match ask.run_id.as_ref().filter(|_| keeps_runs(&tenant)) {
            Some(run) => {
                self.family(caller.tenant, run, ask.parent_run_id.as_ref())
                    .await?
            }
            None => None,
        };
        let mut looked_up = LookedUp {
            approval,
            run,
            ..LookedUp::default()
        };
        let looks_at_usage = tenant.policies.looks_at_usage();
        if looks_at_usage || ask.mode == Mode::DryRun {
            let agent = tenant.directory.agents.get(&caller.agent.id);
            let agent = agent.unwrap_or(&caller.agent);
            looked_up.counted = self.counted(&tenant, agent, ask).await?;
            let usage = || looked_up.counted.usage(&tenant, agent, ask, self.clock.now());
            looked_up.usage = looks_at_usage.then(|| Arc::new(usage()));
        }
        Ok(looked_up)
    }

    /// What the family of a run has seen.
    pub(crate) async fn family(
        &self,
        tenant: TenantId,
        run_id: &Name,
        parent: Option<&Name>,
    ) -> Result<Option<RunTaint>, Refusal> {
        let names = [Some(run_id), parent].into_iter().flatten();
        let asked: Vec<_> = names.map(|name| (tenant, name.clone())).collect();
        let found = self.store.runs(&asked).await?;
        let find = |name: &Name| found.iter().map(|(_, run)| run).find(|run| run.run_id == *name);
        Ok(runs::family(run_id, parent, find))
    }
}
