//! `/v1/agents/{id}/tools/{tool}`: granting one tool and taking it away. Taking the last one away leaves none.

use super::{change, change_at_once, find_agent, find_tool};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::EntryKind;
use model::{Agent, Noun, Write};
use serde_json::json;
use std::sync::Arc;

/// `PUT /v1/agents/{id}/tools/{tool}`
pub async fn grant(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path((id, tool)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    change(&gateway, &caller, |directory, _| {
        let before = find_agent(directory, &id)?;
        let tool = &find_tool(directory, &tool)?.name;
        Ok(if before.tools.includes(tool.as_str()) {
            Plan::nothing(StatusCode::NO_CONTENT)
        } else {
            moved(EntryKind::ToolGranted, before.grant(tool.clone()), tool.as_str())
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
            moved(EntryKind::ToolWithdrawn, after, &tool)
        })
    })
    .await
}

fn moved(kind: EntryKind, agent: Agent, tool: &str) -> Plan<StatusCode> {
    Plan {
        kind,
        facts: json!({"agent": agent.id, "tool": tool}),
        writes: vec![Write::Put(Noun::Agent(Arc::new(agent)))],
        answer: StatusCode::NO_CONTENT,
    }
}
