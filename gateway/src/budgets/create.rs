//! `POST /v1/budgets`: makes a budget.

use super::moving::Answer;
use crate::gateway::Gateway;
use crate::http::idempotency::{Repeatable, holder_bytes};
use crate::http::{Code, Location, Refusal, TenantCaller};
use crate::reader::{Reader, in_place};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use engine::budgets::moves::Move;
use model::budget::Terms;
use model::{Amount, Budget, BudgetId, Directory, Overage, Period, Scope, Unit};
use serde::Deserialize;
use std::sync::Arc;

/// What a budget is made of.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    scope: Scope,
    unit: Unit,
    allocated: Amount,
    overage: Option<Overage>,
    overdraft_limit: Option<Amount>,
    period: Option<Period>,
}

/// Makes a budget.
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    request: Repeatable<Body>,
) -> Result<(Option<Location>, Answer), Refusal> {
    let terms = request.body.terms()?;
    let budgets_max = gateway.options.bounds.budgets_max;
    let is_full = gateway.count_in_line(&caller).await? >= budgets_max;
    let repeat = request.repeat(caller.tenant(), holder_bytes(caller.holder()));
    let by = caller.holder().by();
    let made = gateway.move_budgets(Some(by), caller.tenant(), repeat.clone(), |tenant| {
        if is_full {
            let detail = format!("there are {budgets_max} budgets that are not closed; close some first");
            return Err(Refusal::new(Code::Conflict, detail));
        }
        check_scope(&tenant.directory, &terms.scope)?;
        let now = gateway.clock.now();
        let id = BudgetId::new(now, &*gateway.entropy);
        Ok(Move::Create {
            budget: Box::new(Budget::new(id, terms.clone(), now)),
            by: by.to_json(),
        })
    });
    let answer = match made.await {
        Ok(answer) => answer,
        // The same request may have made one when there was room for it, and a team that is not there any more.
        Err(refusal) => {
            caller.check(&gateway)?;
            gateway.answered_before(repeat.as_ref()).await?.ok_or(refusal)?
        }
    };
    let location = Location::of_answer("/v1/budgets", &answer);
    Ok((location, Answer(StatusCode::CREATED, answer)))
}

impl Gateway {
    /// How many budgets there are that are not closed, counted when there is a place for that among those that read the
    /// store.
    async fn count_in_line(&self, caller: &TenantCaller) -> Result<u64, Refusal> {
        let permit = self.reads.acquire(Reader::from(caller).fairness_key()).await?;
        // The line may have taken a while: it is looked at what is in force now.
        caller.check(self)?;
        let (store, tenant) = (Arc::clone(&self.store), caller.tenant());
        let count = async move { store.count_budgets(tenant).await };
        Ok(in_place(permit, count).await??)
    }
}

impl Body {
    /// What nobody has said about overage follows from the overdraft limit.
    fn terms(&self) -> Result<Terms, Refusal> {
        let overdraft_limit = self.overdraft_limit.unwrap_or_default();
        let has_overdraft = overdraft_limit > Amount::ZERO;
        let overage = self.overage.unwrap_or(if has_overdraft {
            Overage::AllowWithOverdraft
        } else {
            Overage::AllowIfAvailable
        });
        if has_overdraft && overage != Overage::AllowWithOverdraft {
            let detail =
                "`overdraft_limit` counts only with `overage` `allow_with_overdraft`; leave one of them out";
            return Err(Refusal::new(Code::InvalidField, detail));
        }
        Ok(Terms {
            scope: self.scope.clone(),
            unit: self.unit.clone(),
            allocated: self.allocated,
            overage,
            overdraft_limit,
            period: self.period,
        })
    }
}

/// A budget for something that is not registered would never be looked at: a misspelt name must not pass for a limit.
fn check_scope(directory: &Directory, scope: &Scope) -> Result<(), Refusal> {
    let missing = |member: &str, name: &dyn std::fmt::Display| {
        let detail = format!("`scope.{member}`: there is no {member} `{name}`");
        Err(Refusal::new(Code::InvalidField, detail))
    };
    if let Some(team) = scope.team()
        && !directory.teams.contains_key(team.as_str())
    {
        return missing("team", team);
    }
    if let Some(agent) = scope.agent()
        && !directory.agents.contains_key(&agent)
    {
        return missing("agent", &agent);
    }
    if let Some(tool) = scope.tool()
        && !directory.tools.contains_key(tool.as_str())
    {
        return missing("tool", tool);
    }
    Ok(())
}
