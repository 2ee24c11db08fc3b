//! `GET /v1/budgets`, `GET /v1/budgets/{id}` and `GET /v1/balances`: what may be spent, and what is left.
//!
//! - [`create`], [`change`]: people make budgets, and fund, empty, freeze and close them;
//! - [`moving`]: how anything that moves budgets is recorded, and why it may not be;
//! - [`expiry`]: what was not settled in time is given back.
//!
//! How budgets move is in the engine; what they are is in the model.

pub mod change;
pub mod create;
pub mod expiry;
pub mod moving;

use crate::gateway::Gateway;
use crate::http::page::{no_cursor, one_more};
use crate::http::query::{ListQuery, invalid};
use crate::http::{AgentCaller, Page, Refusal, TenantCaller, WrittenJson};
use crate::reader::Reader;
use crate::reservations::may_use;
use crate::sequencer::{END_ROUNDS_MAX, ENDED_AT_ONCE_MAX};
use axum::Extension;
use axum::extract::{Path, State};
use engine::budgets::shown::{Balance, BudgetShown};
use engine::budgets::{FoundBudgets, KnownBudgets};
use model::budget::Subject;
use model::reservation::GRACE_MS;
use model::{Budget, BudgetId, Name, Scope, SlashFreeName, TenantId, Unit};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;
use store::{BudgetFilter, OpenBudgets, Part, WantedBalances};

/// How much of what is held beyond its time a balance leaves out: as much as the job writes down in one pass, and as may
/// be written down before a batch.
const LEFT_OUT_MAX: u32 = END_ROUNDS_MAX * ENDED_AT_ONCE_MAX;

/// Which budgets to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    unit: Option<Unit>,
    open: Option<bool>,
    #[serde(rename = "limit")]
    _limit: Option<IgnoredAny>,
    #[serde(rename = "cursor")]
    _cursor: Option<IgnoredAny>,
}

/// Which balances an agent wants to see besides those that it counts against whatever it does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceFilter {
    unit: Option<Unit>,
    tool: Option<SlashFreeName>,
    run_id: Option<Name>,
    #[serde(rename = "limit")]
    _limit: Option<IgnoredAny>,
    #[serde(rename = "cursor")]
    _cursor: Option<IgnoredAny>,
}

/// Lists budgets, newest first.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    query: ListQuery<Filter>,
) -> Result<WrittenJson, Refusal> {
    let limit = query.page.limit()?;
    let Filter { unit, open, .. } = query.filter;
    let filter = BudgetFilter { unit, is_open: open };
    let page = gateway
        .page(caller.tenant(), &filter, query.page.after()?, limit)
        .await?;
    Ok(WrittenJson::of(&Page {
        items: page.items.iter().map(BudgetShown::of).collect(),
        next_cursor: page.next_cursor,
    }))
}

/// Shows one budget.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
) -> Result<WrittenJson, Refusal> {
    let not_found = || Refusal::not_found("budget", &id);
    let wanted: BudgetId = id.parse().map_err(|_| not_found())?;
    let budget = gateway.as_of_now(caller.tenant(), &[wanted]).await?.pop();
    let budget = budget.ok_or_else(not_found)?;
    Ok(WrittenJson::of(&BudgetShown::of(&budget)))
}

/// What is left: to an agent of the budgets that it counts against, to people of all that are open.
pub async fn balances(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    caller: Option<Extension<AgentCaller>>,
    query: ListQuery<BalanceFilter>,
) -> Result<WrittenJson, Refusal> {
    let limit = query.page.limit()?;
    let cursor = query.page.after()?;
    let page = if let Some(Extension(caller)) = caller {
        gateway.own_page(&caller, query.filter, cursor, limit).await?
    } else if query.filter.tool.is_some() || query.filter.run_id.is_some() {
        return Err(invalid(
            "`tool` and `run_id` are for agents; people see all balances, with `unit` those in one unit",
        ));
    } else {
        let filter = BudgetFilter {
            unit: query.filter.unit,
            is_open: Some(true),
        };
        gateway.page(reader.tenant, &filter, cursor, limit).await?
    };
    Ok(WrittenJson::of(&Page {
        items: page.items.iter().map(Balance::of).collect(),
        next_cursor: page.next_cursor,
    }))
}

impl Gateway {
    /// A page of a tenant's budgets as they are now.
    async fn page(
        &self,
        tenant: TenantId,
        filter: &BudgetFilter,
        before: Option<BudgetId>,
        limit: usize,
    ) -> Result<Page<Budget>, Refusal> {
        let part = self.store.list_budgets(tenant, filter, before, one_more(limit));
        let part = part.await?;
        self.page_of(tenant, part, limit).await
    }

    /// A page of the budgets that an agent counts against as they are now: the widest first, and those for the same by unit.
    async fn own_page(
        &self,
        caller: &AgentCaller,
        filter: BalanceFilter,
        last: Option<BudgetId>,
        limit: usize,
    ) -> Result<Page<Budget>, Refusal> {
        let tenant = caller.tenant;
        let known = self.tenant(tenant)?;
        // What others spend with a tool that the agent may not use is none of its business: nothing of its own counts
        // against that.
        let tool = filter.tool.filter(|tool| may_use(&known, &caller.agent, tool));
        let subject = Subject {
            tool,
            run_id: filter.run_id,
            ..Subject::of_agent(&caller.agent)
        };
        let ancestry = self
            .ancestry_of(tenant, &subject)
            .await?
            .ancestry(tenant, &subject);
        let mut wanted = OpenBudgets {
            tenant,
            scopes: subject.scopes(&ancestry),
            unit: filter.unit,
            after: None,
            limit: one_more(limit),
        };
        if let Some(last) = last {
            // It may have been closed since it was shown; where it stood is known all the same.
            let last = self.as_of_now(tenant, &[last]).await?.pop();
            let last = last.ok_or_else(no_cursor)?;
            let place = wanted.scopes.iter().position(|scope| *scope == last.scope);
            wanted.scopes.drain(..place.ok_or_else(no_cursor)?);
            wanted.after = Some(last.unit);
        }
        let found = self.store.open_budgets(&wanted).await?;
        self.page_of(tenant, Part { found, next: None }, limit).await
    }

    /// The page that a part of a list begins, as these budgets are now.
    async fn page_of(
        &self,
        tenant: TenantId,
        part: Part<Budget, BudgetId>,
        limit: usize,
    ) -> Result<Page<Budget>, Refusal> {
        let ids: Vec<_> = part.found.iter().map(|budget| budget.id).collect();
        let part = Part {
            found: self.as_of_now(tenant, &ids).await?,
            ..part
        };
        Ok(Page::of_part(part, limit, |budget| budget.id, |budget| budget))
    }

    /// Those of these budgets that are there, as they are now and in this order.
    async fn as_of_now(&self, tenant: TenantId, ids: &[BudgetId]) -> Result<Vec<Budget>, Refusal> {
        let mut known = KnownBudgets::default();
        self.look_at(tenant, (ids.to_vec(), Vec::new()), &mut known)
            .await?;
        let found = ids.iter().filter_map(|id| known.budget(tenant, *id).cloned());
        Ok(found.collect())
    }

    /// Makes these budgets of a tenant known as they are now: in the period that it is, and without what is held beyond its time
    /// because nobody has written down yet that it has ended.
    pub(crate) async fn look_at(
        &self,
        tenant: TenantId,
        (ids, scopes): (Vec<BudgetId>, Vec<(Scope, Option<Unit>)>),
        known: &mut KnownBudgets,
    ) -> Result<(), Refusal> {
        let now = self.clock.now();
        let wanted = WantedBalances {
            tenant,
            ids,
            scopes,
            ended_by: now.plus_millis(-GRACE_MS),
            overdue_max: LEFT_OUT_MAX,
        };
        let found = self.store.balances(&wanted).await?;
        let (budgets, overdue) = (found.budgets.into_iter(), found.overdue.into_iter());
        known.learn_all(FoundBudgets {
            budgets: budgets.map(|budget| (tenant, budget)).collect(),
            reservations: overdue.map(|held| (tenant, held)).collect(),
            budgeted: found.is_budgeted.then_some(tenant).into_iter().collect(),
            ..FoundBudgets::default()
        });
        known.bring_to(|_| now);
        Ok(())
    }
}
