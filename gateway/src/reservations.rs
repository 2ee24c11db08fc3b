//! `GET /v1/reservations` and `GET /v1/reservations/{id}`: what is held, and what has become of it.
//!
//! - [`create`]: something is held;
//! - [`settle`]: what was spent is charged, or it is given back or held longer;
//! - [`usage`]: something was used that had not been held.
//!
//! They are for programs that spend without asking whether they may: model calls, jobs. Whoever asks with an estimate has a
//! reservation with the answer.

pub mod create;
pub mod settle;
pub mod usage;

use crate::gateway::Gateway;
use crate::http::page::one_more;
use crate::http::query::ListQuery;
use crate::http::{AgentCaller, Code, Page, Refusal, WrittenJson};
use crate::reader::Reader;
use axum::extract::{Path, State};
use engine::TenantSnapshot;
use engine::budgets::shown::ReservationShown;
use model::{Agent, AgentId, Reservation, ReservationId, ReservationStatus, SlashFreeName};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;
use store::ReservationFilter;

/// Which reservations to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    status: Option<ReservationStatus>,
    agent: Option<AgentId>,
    #[serde(rename = "limit")]
    _limit: Option<IgnoredAny>,
    #[serde(rename = "cursor")]
    _cursor: Option<IgnoredAny>,
}

/// Lists reservations, newest first: an agent its own.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    query: ListQuery<Filter>,
) -> Result<WrittenJson, Refusal> {
    let limit = query.page.limit()?;
    let before = query.page.after()?;
    let Filter { status, agent, .. } = query.filter;
    if agent.is_some_and(|agent| !reader.may_read(agent)) {
        return Ok(WrittenJson::of(&Page::<ReservationShown<'_>>::empty()));
    }
    let filter = ReservationFilter {
        status,
        agent: reader.agent.or(agent),
    };
    let found = gateway
        .store
        .list_reservations(reader.tenant, &filter, before, one_more(limit))
        .await?;
    let key = |reservation: &Reservation| reservation.id;
    let page = Page::of_part(found, limit, key, |reservation| reservation);
    let now = gateway.clock.now();
    Ok(WrittenJson::of(&Page {
        items: page
            .items
            .iter()
            .map(|reservation| ReservationShown::of(reservation, now))
            .collect(),
        next_cursor: page.next_cursor,
    }))
}

/// Shows one reservation. Another agent's or tenant's does not exist.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<WrittenJson, Refusal> {
    let not_found = || Refusal::not_found("reservation", &id);
    let wanted: ReservationId = id.parse().map_err(|_| not_found())?;
    let found = gateway.store.reservation(reader.tenant, wanted).await?;
    let found = found.filter(|reservation| reader.may_read(reservation.agent));
    let reservation = found.ok_or_else(not_found)?;
    Ok(WrittenJson::of(&ReservationShown::of(
        &reservation,
        gateway.clock.now(),
    )))
}

/// Whoever may not act may not hold anything either, nor does anybody in its name. What was spent may still be reported.
fn check_standing(tenant: &TenantSnapshot, caller: &AgentCaller) -> Result<(), Refusal> {
    let agent = tenant.directory.agents.get(&caller.agent.id);
    let may_act = agent.is_some_and(|agent| agent.standing.is_active());
    if !may_act || !tenant.directory.tenant.standing.is_active() {
        let detail = "the agent or its tenant is frozen or revoked, so nothing is held for it";
        return Err(Refusal::new(Code::Forbidden, detail));
    }
    let mut delegators = delegators(tenant, caller)?.into_iter();
    match delegators.find(|agent| !agent.standing.is_active()) {
        None => Ok(()),
        Some(agent) => {
            let (name, word) = (&agent.name, agent.standing.as_str());
            let detail = format!(
                "the agent `{name}`, in whose name it is asked, is {word}, so nothing is held for it"
            );
            Err(Refusal::new(Code::Forbidden, detail))
        }
    }
}

/// The agents in whose name the caller's token lets it ask. Each of them has to be registered.
fn delegators<'t>(tenant: &'t TenantSnapshot, caller: &AgentCaller) -> Result<Vec<&'t Arc<Agent>>, Refusal> {
    let names = caller.delegation.agents.iter();
    let agents = names.map(|name| {
        let agent = tenant.directory.agent_called(name);
        agent.ok_or_else(|| {
            let detail = format!(
                "`{name}`, in whose name it is asked, is no registered agent, so nothing is held for it"
            );
            Refusal::new(Code::Forbidden, detail)
        })
    });
    agents.collect()
}

/// What is held in the name of others is for what each of them may use.
fn check_granted_to_delegators(
    tenant: &TenantSnapshot,
    caller: &AgentCaller,
    tool: Option<&SlashFreeName>,
) -> Result<(), Refusal> {
    let Some(tool) = tool else { return Ok(()) };
    let mut delegators = delegators(tenant, caller)?.into_iter();
    match delegators.find(|agent| !agent.tools.includes(tool.as_str())) {
        None => Ok(()),
        Some(agent) => {
            let name = &agent.name;
            let detail = format!("the agent `{name}`, in whose name it is asked, has no grant for `{tool}`");
            Err(Refusal::new(Code::Forbidden, detail))
        }
    }
}

/// Whether this is a registered tool that is granted to the agent.
pub(crate) fn may_use(tenant: &TenantSnapshot, agent: &Agent, tool: &SlashFreeName) -> bool {
    tenant.directory.tools.contains_key(tool.as_str()) && agent.tools.includes(tool.as_str())
}

/// What a tool has is for those who may use it, under its own name and no other.
fn check_granted(
    tenant: &TenantSnapshot,
    agent: &Agent,
    tool: Option<&SlashFreeName>,
) -> Result<(), Refusal> {
    let Some(tool) = tool.filter(|tool| !may_use(tenant, agent, tool)) else {
        return Ok(());
    };
    let detail = format!(
        "`{tool}` is no registered tool that is granted to the agent; have it granted, or leave `tool` out"
    );
    Err(Refusal::new(Code::Forbidden, detail))
}
