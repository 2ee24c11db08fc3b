//! `/v1/agents/{id}/tools/{tool}`: granting one tool and taking it away. Taking the last one away leaves none.

use super::{Upserted, change, change_at_once, facts, find_agent, find_tool, put};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Empty, OptionalJson, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::EntryKind;
use model::{Agent, AgentId, Noun};
use serde::Serialize;
use std::sync::Arc;

/// A grant as callers see it, and what the ledger tells of it.
#[derive(Debug, Serialize)]
pub struct GrantView {
    agent: AgentId,
    tool: String,
}

/// `PUT /v1/agents/{id}/tools/{tool}`
pub async fn grant(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path((id, tool)): Path<(String, String)>,
    _: OptionalJson<Empty>,
) -> Result<Upserted<GrantView>, Refusal> {
    change(&gateway, &caller, |directory, _| {
        let before = find_agent(directory, &id)?;
        let tool = &find_tool(directory, &tool)?.name;
        let view = GrantView::of(before, tool.as_str());
        Ok(if before.tools.includes(tool.as_str()) {
            Plan::nothing(Upserted::Known(view))
        } else {
            let facts = facts(&view);
            let after = Noun::Agent(Arc::new(before.grant(tool.clone())));
            put(EntryKind::ToolGranted, after, facts, Upserted::New(view))
        })
    })
    .await
}

/// `DELETE /v1/agents/{id}/tools/{tool}`
pub async fn withdraw(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path((id, tool)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    change_at_once(&gateway, &caller, |directory, _| {
        let before = find_agent(directory, &id)?;
        let after = before.withdraw(&tool).ok_or_else(|| {
            let detail = "this agent has all tools; PATCH it with the list of `tools` it is to keep";
            Refusal::new(Code::Conflict, detail)
        })?;
        Ok(if after == **before {
            Plan::nothing(StatusCode::NO_CONTENT)
        } else {
            let facts = facts(&GrantView::of(&after, &tool));
            put(
                EntryKind::ToolWithdrawn,
                Noun::Agent(Arc::new(after)),
                facts,
                StatusCode::NO_CONTENT,
            )
        })
    })
    .await
}

impl GrantView {
    fn of(agent: &Agent, tool: &str) -> Self {
        Self {
            agent: agent.id,
            tool: tool.to_owned(),
        }
    }
}
