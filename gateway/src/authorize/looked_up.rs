//! What is looked up for an ask before it is judged: the approval that it names, what its run has seen, where a tenant
//! has that kept, and what it counts against, for a dry run, for an estimate that is only observed, and where policies
//! look at that. Most asks need nothing of that, and then nothing is read. The others wait in a line for it, in which
//! tenants take turns: what one looks up may be large, and all tenants have the same readers.

use super::usage::Counted;
use super::{asking, request_key};
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Refusal};
use crate::limits::Tokens;
use crate::snapshot::AsOf;
use engine::TenantSnapshot;
use engine::judge::{LookedUpFacts, keeps_runs, run_and_parent};
use engine::{Ask, Mode, runs};
use model::{Approval, ApprovalId, Name, RunTaint, TenantId, Usage};
use policy::Fuel;
use std::sync::Arc;
use std::time::Instant;

/// What was found.
pub(super) struct LookedUp {
    /// As of when the tenant was known before anything was looked up, for what is answered and not recorded.
    pub(super) as_of: AsOf,
    approval: Option<Approval>,
    run: Option<RunTaint>,
    /// The revision by which it was found out what the ask counts against, if it was.
    counted_at: Option<u64>,
    /// How much is used, where policies look at it.
    usage: Option<Arc<Usage>>,
    /// For a dry run, and for an estimate that is only observed: what it counts against.
    pub(super) counted: Counted,
}

impl LookedUp {
    /// Nothing, by what was known then.
    fn nothing(as_of: AsOf) -> Self {
        Self {
            as_of,
            approval: None,
            run: None,
            counted_at: None,
            usage: None,
            counted: Counted::default(),
        }
    }

    /// What was found, as it is judged with.
    pub(super) const fn facts<'a>(&'a self, fuel: Option<&'a Fuel>) -> LookedUpFacts<'a> {
        LookedUpFacts {
            approval: self.approval.as_ref(),
            run: self.run.as_ref(),
            usage: self.usage.as_ref(),
            fuel,
            parameters_unknown: false,
        }
    }

    /// Whether it was found out what the ask counts against, and by another revision of the tenant than this one: then
    /// it may be something else.
    pub(super) fn counts_by_another(&self, tenant: &TenantSnapshot) -> bool {
        self.counted_at
            .is_some_and(|revision| revision != tenant.revision)
    }
}

impl Gateway {
    /// Looks up what has to be known. It may be stale by the time the ask is recorded: then that is turned back, or, of
    /// how much is used, counted exactly. What it counts against is that of one revision, by which it has to be judged.
    /// `tokens_taken` says whether the buckets were taken from already: whom they refuse is not worth a read. Nobody waits
    /// for a turn beyond `deadline`.
    pub(super) async fn look_up(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        tokens_taken: bool,
        deadline: Option<Instant>,
    ) -> Result<LookedUp, Refusal> {
        let as_of = self.snapshot.as_of(caller.tenant);
        let tenant = self.tenant(caller.tenant)?;
        let is_in_run = ask.run().is_some() && keeps_runs(&tenant);
        if named_approval(ask).is_none() && !is_in_run && !self.counts(caller, ask, &tenant) {
            return Ok(LookedUp::nothing(as_of));
        }
        if !tokens_taken {
            self.check_buckets(caller, ask, &tenant).await?;
        }
        drop(tenant);
        let _permit = self.look_ups.acquire_until(caller.tenant, deadline).await?;
        self.look_up_with_permit(caller, ask).await
    }

    /// Looks up what has to be known by what is in force now, for whoever has a permit: the line for it may have taken
    /// a while.
    pub(super) async fn look_up_with_permit(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
    ) -> Result<LookedUp, Refusal> {
        let as_of = self.snapshot.as_of(caller.tenant);
        let tenant = self.tenant(caller.tenant)?;
        caller.refresh(&tenant, self.clock.now())?;
        let approval = self.approval_of(caller.tenant, ask).await?;
        let run = self.run_of(&tenant, ask).await?;
        let mut looked_up = LookedUp {
            approval,
            run,
            ..LookedUp::nothing(as_of)
        };
        if self.counts(caller, ask, &tenant) {
            let looks_at_usage = tenant.policies.looks_at_usage();
            looked_up.counted_at = Some(tenant.revision);
            let agent = tenant.directory.agents.get(&caller.agent.id);
            let agent = agent.unwrap_or(&caller.agent);
            looked_up.counted = self.counted(&tenant, agent, ask).await?;
            let usage = || looked_up.counted.usage(&tenant, agent, ask, self.clock.now());
            looked_up.usage = looks_at_usage.then(|| Arc::new(usage()));
        }
        Ok(looked_up)
    }

    /// Whether it has to be found out what an ask counts against.
    fn counts(&self, caller: &AgentCaller, ask: &Ask, tenant: &TenantSnapshot) -> bool {
        let is_quoted = match ask.mode {
            Mode::Enforce => false,
            // One that was answered before has that answer again, and nothing is quoted.
            Mode::Observe => ask.estimate.is_some() && !self.was_answered(caller, ask),
            Mode::DryRun => true,
        };
        is_quoted || tenant.policies.looks_at_usage()
    }

    /// Refuses an ask that the buckets refuse, unless it was answered before. Of those that gateways share, tokens are
    /// lent now, if they have to be, but for a dry run, which takes none.
    async fn check_buckets(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        tenant: &TenantSnapshot,
    ) -> Result<(), Refusal> {
        if ask.mode != Mode::DryRun && self.was_answered(caller, ask) {
            return Ok(());
        }
        let now = self.clock.now();
        let agent = caller.refresh(tenant, now)?;
        match self.limits.peek(&asking(tenant, &agent, ask), now)? {
            Tokens::Enough => Ok(()),
            Tokens::Short(short) if ask.mode == Mode::DryRun => self.limits.check(&short).await,
            // Others may take them before this ask does, and then it has some lent once more.
            Tokens::Short(short) => self.limits.fill(&short).await,
        }
    }

    /// Whether the answer to an ask is remembered.
    fn was_answered(&self, caller: &AgentCaller, ask: &Ask) -> bool {
        let key = request_key(caller, ask);
        key.is_some_and(|key| self.repeats.find(&key).is_some())
    }

    /// The approval that an ask names, if the tenant has it.
    pub(crate) async fn approval_of(&self, tenant: TenantId, ask: &Ask) -> Result<Option<Approval>, Refusal> {
        match named_approval(ask) {
            Some(id) => Ok(self.store.approval(tenant, id).await?),
            None => Ok(None),
        }
    }

    /// What the run of an ask has seen, where a tenant has that kept.
    pub(crate) async fn run_of(
        &self,
        tenant: &TenantSnapshot,
        ask: &Ask,
    ) -> Result<Option<RunTaint>, Refusal> {
        match run_and_parent(ask).filter(|_| keeps_runs(tenant)) {
            Some((run, parent)) => self.family(tenant.directory.tenant.id, run, parent).await,
            None => Ok(None),
        }
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

/// Which approval an ask names. What is no id names none.
fn named_approval(ask: &Ask) -> Option<ApprovalId> {
    ask.approval_id.as_ref()?.as_str().parse().ok()
}
