//! Which entries are erased.

use crate::http::{Code, Refusal};
use engine::EntryKind;
use ledger::{ERASABLE_KINDS, is_erasable};
use model::{AgentId, DecisionId, Name, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use store::{Store, StoreError, StoredEntry};

/// By what entries are chosen.
pub(super) enum Choice {
    /// The one entry that is looked at.
    Entry,
    /// What this agent has done.
    Agent(AgentId),
    /// What was done for this user.
    User(Name),
    /// What is older than so many days: whatever is looked at.
    OlderThan(u32),
}

/// The members of a body that say whose it is.
#[derive(Default, Deserialize)]
struct Whose<'a> {
    #[serde(borrow)]
    agent: Option<Cow<'a, str>>,
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    /// In whose name it was asked: agents, or whoever was taken for one.
    #[serde(borrow, default)]
    act: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    decision_id: Option<Cow<'a, str>>,
}

impl Whose<'_> {
    fn is_for(&self, user: &Name) -> bool {
        self.user.as_deref() == Some(user.as_str()) || self.act.iter().any(|name| name == user.as_str())
    }
}

/// Refuses an entry of a kind that is not erased.
pub(super) fn check_kind(kind: &str) -> Result<(), Refusal> {
    if is_erasable(kind) {
        return Ok(());
    }
    let kinds = ERASABLE_KINDS.map(|kind| format!("`{kind}`")).join(", ");
    Err(Refusal::new(
        Code::Conflict,
        format!("an entry of the kind `{kind}` is not erased; those of these kinds are: {kinds}"),
    ))
}

impl Choice {
    /// What the ledger says of it. The name of a user would stay there for ever, so it does not stand there.
    pub(super) fn told(&self) -> Value {
        match self {
            Self::Entry => json!("seq"),
            Self::Agent(agent) => json!({"agent": agent}),
            Self::User(_) => json!("user"),
            Self::OlderThan(days) => json!({"older_than_days": days}),
        }
    }

    /// Whether an entry that is looked at is chosen. One that was erased is not, so that erasing twice is erasing once.
    pub(super) async fn takes(
        &self,
        store: &dyn Store,
        tenant: TenantId,
        entry: &StoredEntry,
    ) -> Result<bool, StoreError> {
        if !is_erasable(&entry.kind) || entry.erased.is_some() {
            return Ok(false);
        }
        let whose: Whose<'_> = serde_json::from_str(&entry.body).unwrap_or_default();
        match self {
            Self::Entry | Self::OlderThan(_) => Ok(true),
            Self::Agent(agent) => Ok(whose.agent.as_deref() == Some(&*agent.to_string())),
            Self::User(user) if entry.kind == EntryKind::OutcomeReported.as_str() => {
                let decision = whose.decision_id.and_then(|id| id.parse::<DecisionId>().ok());
                let Some(decision) = decision else {
                    return Ok(false);
                };
                let decision = store.decision(tenant, decision).await?;
                // Without its decision an outcome tells of something that was erased.
                Ok(decision.is_none_or(|decision| {
                    let whose: Whose<'_> = serde_json::from_str(&decision.body).unwrap_or_default();
                    whose.is_for(user)
                }))
            }
            Self::User(user) => Ok(whose.is_for(user)),
        }
    }
}
