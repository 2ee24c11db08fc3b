//! What an ask counts against, looked up before it is judged: what was counted of quotas, and what is left of budgets.
//!
//! Policies that look at that decide what should be, as of this moment. What may be is decided when it is recorded: what is
//! counted and held in the turn is exact.

use super::costs;
use crate::gateway::Gateway;
use crate::http::Refusal;
use canon::Digest;
use engine::budgets::KnownBudgets;
use engine::budgets::cost::BudgetPart;
use engine::quotas::{self, QuotaExceeded, QuotaUse};
use engine::{Ask, Judgement, Mode, TenantSnapshot};
use model::{Agent, Counter, TenantId, Timestamp, Usage, Verdict};
use std::collections::HashMap;

/// What was found.
#[derive(Default)]
pub(crate) struct Counted {
    counters: HashMap<Digest, Counter>,
    /// Whose, and what there is, if the ask costs something.
    budgets: Option<(TenantId, KnownBudgets)>,
}

impl Counted {
    /// How much is used, as policies see it.
    pub(crate) fn usage(&self, tenant: &TenantSnapshot, agent: &Agent, ask: &Ask, now: Timestamp) -> Usage {
        let mut usage = Usage {
            estimate: ask.estimate.clone(),
            ..Usage::default()
        };
        if let (Some((tenant, budgets)), Some(cost)) = (&self.budgets, costs::cost(agent, ask)) {
            usage.budget = budgets.usage(*tenant, &cost);
        }
        let quotas = quotas::uses(tenant, agent, &ask.into());
        quotas::note_usage(&quotas, |key| self.counters.get(key), now, &mut usage);
        usage
    }

    /// Whether there is room for one more call in these quotas.
    pub(super) fn check(&self, quotas: &[QuotaUse], now: Timestamp) -> Result<(), Box<QuotaExceeded>> {
        quotas::check(quotas, |key| self.counters.get(key), now)
    }

    /// What budgets make of a dry run, and of an ask that is only observed: what was found changes where they have not
    /// enough, and nothing is held.
    pub(super) fn quoted(
        &self,
        agent: &Agent,
        ask: &Ask,
        judgement: Judgement,
    ) -> (Judgement, Option<BudgetPart>) {
        let (Some((tenant, budgets)), Some(cost)) = (&self.budgets, costs::cost(agent, ask)) else {
            return (judgement, None);
        };
        if judgement.enforced_verdict() != Verdict::Allow {
            return (judgement, None);
        }
        let (part, lacking) = budgets.quoted(*tenant, &cost);
        let judgement = match lacking {
            Some(lacking) if ask.mode == Mode::Observe => judgement.observed_lacking(&lacking),
            Some(lacking) => judgement.lacking(&lacking),
            None => judgement,
        };
        (judgement, part)
    }
}

impl Gateway {
    /// Looks up what an ask counts against.
    pub(crate) async fn counted(
        &self,
        tenant: &TenantSnapshot,
        agent: &Agent,
        ask: &Ask,
    ) -> Result<Counted, Refusal> {
        let id = tenant.directory.tenant.id;
        let quotas = quotas::uses(tenant, agent, &ask.into()).into_iter();
        let keys: Vec<_> = quotas.map(|quota| (id, quota.key)).collect();
        let budgets = match costs::cost(agent, ask) {
            Some(cost) => {
                let known = self.budgets_for(id, &cost.subject, &cost.unit);
                Some((id, known.await?))
            }
            None => None,
        };
        Ok(Counted {
            counters: self.counters(&keys).await?,
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
}
