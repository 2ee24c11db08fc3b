//! `…/freeze`, `…/unfreeze` and `…/revoke` of agents, tools and tenants. A revocation is for good.
//!
//! What is so already stays as it is: the call answers 200 with the object and nothing is recorded. Policies are not
//! compiled for it, so it waits for none that are.

use super::agents::AgentView;
use super::tenants::{self, TenantView};
use super::tools::ToolView;
use super::{change_at_once, facts, find_agent, find_tool};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Json, KeyCaller, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use engine::EntryKind;
use model::standing::REASON_BYTES_MAX;
use model::{Noun, Standing, StandingChange, Write};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Why the standing of something changes, in a person's words.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonBody {
    reason: Reason,
}

impl ReasonBody {
    /// The words.
    pub(crate) fn into_reason(self) -> String {
        self.reason.0
    }
}

/// Why somebody does something, in a person's words.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Reason(String);

impl Reason {
    /// The words.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Reason {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.len() {
            1..=REASON_BYTES_MAX => Ok(Self(text)),
            bytes => Err(format!(
                "a reason has 1 to {REASON_BYTES_MAX} bytes, this one has {bytes}"
            )),
        }
    }
}

type ByAdmin = (State<Arc<Gateway>>, Extension<TenantCaller>, Path<String>);
type ByOperator = (State<Arc<Gateway>>, Extension<KeyCaller>, Path<String>);

/// `POST /v1/agents/{id}/freeze`
pub async fn freeze_agent(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<AgentView>, Refusal> {
    change_agent(by, StandingChange::Freeze, EntryKind::AgentFrozen, body).await
}

/// `POST /v1/agents/{id}/unfreeze`
pub async fn unfreeze_agent(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<AgentView>, Refusal> {
    change_agent(by, StandingChange::Unfreeze, EntryKind::AgentUnfrozen, body).await
}

/// `POST /v1/agents/{id}/revoke`
pub async fn revoke_agent(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<AgentView>, Refusal> {
    change_agent(by, StandingChange::Revoke, EntryKind::AgentRevoked, body).await
}

/// `POST /v1/tools/{tool}/freeze`
pub async fn freeze_tool(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<ToolView>, Refusal> {
    change_tool(by, StandingChange::Freeze, EntryKind::ToolFrozen, body).await
}

/// `POST /v1/tools/{tool}/unfreeze`
pub async fn unfreeze_tool(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<ToolView>, Refusal> {
    change_tool(by, StandingChange::Unfreeze, EntryKind::ToolUnfrozen, body).await
}

/// `POST /v1/tools/{tool}/revoke`
pub async fn revoke_tool(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<ToolView>, Refusal> {
    change_tool(by, StandingChange::Revoke, EntryKind::ToolRevoked, body).await
}

/// `POST /v1/tenants/{id}/freeze`
pub async fn freeze_tenant(by: ByOperator, body: Json<ReasonBody>) -> Result<Json<TenantView>, Refusal> {
    change_tenant(by, StandingChange::Freeze, EntryKind::TenantFrozen, body).await
}

/// `POST /v1/tenants/{id}/unfreeze`
pub async fn unfreeze_tenant(by: ByOperator, body: Json<ReasonBody>) -> Result<Json<TenantView>, Refusal> {
    change_tenant(by, StandingChange::Unfreeze, EntryKind::TenantUnfrozen, body).await
}

/// `POST /v1/tenants/{id}/revoke`
pub async fn revoke_tenant(by: ByOperator, body: Json<ReasonBody>) -> Result<Json<TenantView>, Refusal> {
    change_tenant(by, StandingChange::Revoke, EntryKind::TenantRevoked, body).await
}

async fn change_agent(
    (State(gateway), Extension(caller), Path(id)): ByAdmin,
    how: StandingChange,
    kind: EntryKind,
    Json(ReasonBody {
        reason: Reason(reason),
    }): Json<ReasonBody>,
) -> Result<Json<AgentView>, Refusal> {
    let changed = change_at_once(&gateway, &caller, |directory, now| {
        let before = find_agent(directory, &id)?;
        let standing = before.standing.after(how, &reason, now)?;
        if standing == before.standing {
            return Ok(Plan::nothing(AgentView::from(&**before)));
        }
        let after = Arc::new(before.with_standing(standing));
        Ok(Plan::Change {
            kind,
            facts: facts_of(
                json!({"id": after.id, "name": after.name}),
                &after.standing,
                &reason,
            ),
            answer: AgentView::from(&*after),
            writes: vec![Write::Put(Noun::Agent(after))],
        })
    });
    changed.await.map(Json)
}

async fn change_tool(
    (State(gateway), Extension(caller), Path(name)): ByAdmin,
    how: StandingChange,
    kind: EntryKind,
    Json(ReasonBody {
        reason: Reason(reason),
    }): Json<ReasonBody>,
) -> Result<Json<ToolView>, Refusal> {
    let changed = change_at_once(&gateway, &caller, |directory, now| {
        let before = find_tool(directory, &name)?;
        let standing = before.standing.after(how, &reason, now)?;
        if standing == before.standing {
            return Ok(Plan::nothing(ToolView::from(&**before)));
        }
        let after = Arc::new(before.with_standing(standing));
        Ok(Plan::Change {
            kind,
            facts: facts_of(json!({"name": after.name}), &after.standing, &reason),
            answer: ToolView::from(&*after),
            writes: vec![Write::Put(Noun::Tool(after))],
        })
    });
    changed.await.map(Json)
}

async fn change_tenant(
    (State(gateway), Extension(caller), Path(id)): ByOperator,
    how: StandingChange,
    kind: EntryKind,
    Json(ReasonBody {
        reason: Reason(reason),
    }): Json<ReasonBody>,
) -> Result<Json<TenantView>, Refusal> {
    let changed = tenants::change_one_at_once(&gateway, &caller, &id, |directory, now| {
        let before = &directory.tenant;
        let standing = before.standing.after(how, &reason, now)?;
        if standing == before.standing {
            return Ok(Plan::nothing(TenantView::from(&**before)));
        }
        let after = Arc::new(before.with_standing(standing));
        Ok(Plan::Change {
            kind,
            facts: facts_of(
                json!({"id": after.id, "name": after.name}),
                &after.standing,
                &reason,
            ),
            answer: TenantView::from(&*after),
            writes: vec![Write::Put(Noun::Tenant(after))],
        })
    });
    changed.await.map(Json)
}

/// What the ledger says: which noun, its standing now, and the reason that was given.
pub(super) fn facts_of(which: Value, standing: &Standing, reason: &str) -> Value {
    let mut facts = facts(standing);
    if let (Value::Object(facts), Value::Object(which)) = (&mut facts, which) {
        facts.extend(which);
        facts.insert("reason".to_owned(), json!(reason));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    fn parse(reason: &str) -> Result<ReasonBody, serde_json::Error> {
        serde_json::from_value(json!({"reason": reason}))
    }

    #[test]
    fn a_reason_is_neither_empty_nor_endless() {
        assert!(parse("x").is_ok());
        assert!(parse(&"x".repeat(REASON_BYTES_MAX)).is_ok());
        for reason in [String::new(), "x".repeat(REASON_BYTES_MAX + 1)] {
            let error = parse(&reason).unwrap_err().to_string();
            assert!(error.starts_with("a reason has 1 to 1024 bytes"), "{error}");
        }
        assert!(serde_json::from_str::<ReasonBody>("{}").is_err());
    }

    #[test]
    fn the_ledger_is_told_who_how_and_why() {
        let now = Timestamp::from_millis(0);
        let frozen = Standing::Active.freeze("odd", now).unwrap();
        let expected =
            json!({"id": 7, "status": "frozen", "reason": "odd", "since": "1970-01-01T00:00:00.000Z"});
        assert_eq!(facts_of(json!({"id": 7}), &frozen, "odd"), expected);
        let expected = json!({"id": 7, "status": "active", "reason": "fine"});
        assert_eq!(facts_of(json!({"id": 7}), &Standing::Active, "fine"), expected);
    }
}
