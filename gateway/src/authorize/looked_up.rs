//! What is looked up for an ask before it is judged: the approval that it names, what its run has seen, where a tenant has that
//! kept, and for a dry run what was counted of quotas. Most asks need nothing of that, and then nothing is read.

use super::costs;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Refusal};
use canon::Digest;
use engine::budgets::KnownBudgets;
use engine::budgets::cost::BudgetPart;
use engine::judge::{Evidence, keeps_runs};
use engine::quotas;
use engine::{Ask, Judgement, Mode, runs};
use model::{Agent, Approval, Counter, Name, RunTaint, TenantId, Verdict};
use std::collections::HashMap;

/// What was found.
#[derive(Default)]
pub(super) struct LookedUp {
    approval: Option<Approval>,
    run: Option<RunTaint>,
    counters: HashMap<Digest, Counter>,
    /// For a dry run of something that costs: for whom, and what there is.
    budgets: Option<(TenantId, KnownBudgets)>,
}

impl LookedUp {
    /// What was counted under a key.
    pub(super) fn counter(&self, key: &Digest) -> Option<&Counter> {
        self.counters.get(key)
    }

    /// The same, as it is judged with.
    pub(super) const fn evidence(&self) -> Evidence<'_> {
        Evidence {
            approval: self.approval.as_ref(),
            run: self.run.as_ref(),
        }
    }

    /// What budgets make of a dry run: what was found changes where they have not enough, and nothing is held.
    pub(super) fn quoted(
        &self,
        agent: &Agent,
        ask: &Ask,
        judgement: Judgement,
    ) -> (Judgement, Option<BudgetPart>) {
        let (Some((tenant, budgets)), Some(cost)) = (&self.budgets, costs::cost(agent, ask)) else {
            return (judgement, None);
        };
        if judgement.verdict() != Verdict::Allow {
            return (judgement, None);
        }
        match budgets.quoted(*tenant, &cost) {
            Ok(part) => (judgement, part),
            Err(lacking) => (judgement.lacking(&lacking), None),
        }
    }
}

impl Gateway {
    /// Looks up what has to be known. It may be stale by the time the ask is recorded: then that is turned back.
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
        let counters = if ask.mode == Mode::DryRun {
            let agent = tenant.directory.agents.get(&caller.agent.id);
            let uses = agent.map(|agent| quotas::uses(&tenant, agent, &ask.into()));
            let uses = uses.unwrap_or_default().into_iter();
            let keys: Vec<_> = uses.map(|quota| (caller.tenant, quota.key)).collect();
            self.counters(&keys).await?
        } else {
            HashMap::new()
        };
        let budgets = match costs::cost(&caller.agent, ask).filter(|_| ask.mode == Mode::DryRun) {
            Some(cost) => Some((caller.tenant, self.budgets_for(caller.tenant, &cost).await?)),
            None => None,
        };
        Ok(LookedUp {
            approval,
            run,
            counters,
            budgets,
        })
    }

    /// What was counted of quotas of one tenant, by key, as of some moment ago.
    pub(crate) async fn counters(
        &self,
        keys: &[(TenantId, Digest)],
    ) -> Result<HashMap<Digest, Counter>, Refusal> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let found = self.store.counters(keys).await?.into_iter();
        Ok(found.map(|(_, counter)| (counter.key, counter)).collect())
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
