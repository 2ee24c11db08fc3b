//! Who reads decisions: an agent its own, the holder of a key all of the tenant's.

use crate::http::{AgentCaller, Code, Refusal, TenantCaller};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use model::{AgentId, DecisionId, TenantId};
use store::{Store, StoredDecision};

/// Somebody who may read decisions of a tenant.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent whose decisions these are; `None` if they may be anybody's.
    pub agent: Option<AgentId>,
}

impl<S: Sync> FromRequestParts<S> for Reader {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        if let Some(caller) = parts.extensions.get::<AgentCaller>() {
            return Ok(Self {
                tenant: caller.tenant,
                agent: Some(caller.agent.id),
            });
        }
        // INVARIANT: a route that takes a reader lets in agents and keys only, and the layer before it has checked.
        let caller = parts.extensions.get::<TenantCaller>();
        let caller =
            caller.ok_or_else(|| Refusal::new(Code::Forbidden, "this takes an agent's token or a key"))?;
        Ok(Self {
            tenant: caller.tenant,
            agent: None,
        })
    }
}

impl Reader {
    /// One decision. Somebody else's does not exist for this reader.
    pub async fn decision(self, store: &dyn Store, id: &str) -> Result<StoredDecision, Refusal> {
        let not_found = || Refusal::not_found("decision", id);
        let id: DecisionId = id.parse().map_err(|_| not_found())?;
        let decision = store.decision(self.tenant, id).await?;
        decision
            .filter(|decision| self.may_read(decision.agent))
            .ok_or_else(not_found)
    }

    /// Whether the decisions of this agent may be read.
    pub fn may_read(self, agent: AgentId) -> bool {
        self.agent.is_none_or(|own| own == agent)
    }
}
