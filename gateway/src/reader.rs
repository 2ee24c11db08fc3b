//! Who reads decisions: an agent its own, the holder of a key all of the tenant's; and the permit that they wait for with
//! all who read the store.

use crate::fair_semaphore::Permit;
use crate::fairness_key::FairnessKey;
use crate::gateway::Gateway;
use crate::http::caller::{ShownCredential, holder_in};
use crate::http::{AgentCaller, Refusal, TenantCaller};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use model::{AgentId, DecisionId, TenantId};
use std::sync::Arc;
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
            return Ok(Self::from(caller));
        }
        holder_in(&parts.extensions).map(Self::from)
    }
}

/// Has a request answered when there is a place for it among those that read the store. It has the place until its
/// answer is there, and not until that is taken. What it leads to takes no place itself.
pub async fn wait_for_read_permit(
    State(gateway): State<Arc<Gateway>>,
    credential: ShownCredential,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let reader = Reader::from(&credential);
    let permit = gateway.reads.acquire(reader.fairness_key()).await?;
    // The line may have taken a while: it is looked at what is in force now.
    credential.check(&gateway)?;
    in_place(permit, next.run(request)).await
}

/// What comes of a read, which keeps its place until it is done: what a caller leaves behind who hangs up goes on in the store.
pub async fn in_place<T: Send + 'static>(
    permit: Permit,
    read: impl Future<Output = T> + Send + 'static,
) -> Result<T, Refusal> {
    let reading = tokio::spawn(async move {
        let found = read.await;
        drop(permit);
        found
    });
    reading
        .await
        .map_err(|error| Refusal::broken_off(&error, "a read broke off", "the read was not finished"))
}

/// What an agent has to have read before it can change something. It waits for that with all who read the store, and
/// has no place any more while the change is made.
pub async fn before_change<T: Send + 'static>(
    gateway: &Gateway,
    caller: &AgentCaller,
    read: impl Future<Output = T> + Send + 'static,
) -> Result<T, Refusal> {
    let permit = gateway.reads.acquire(Reader::from(caller).fairness_key()).await?;
    // The line may have taken a while: it is looked at what is in force now.
    caller.check(gateway)?;
    in_place(permit, read).await
}

impl From<&AgentCaller> for Reader {
    fn from(caller: &AgentCaller) -> Self {
        Self {
            tenant: caller.tenant,
            agent: Some(caller.agent.id),
        }
    }
}

impl From<&TenantCaller> for Reader {
    fn from(caller: &TenantCaller) -> Self {
        Self {
            tenant: caller.tenant(),
            agent: None,
        }
    }
}

impl From<&ShownCredential> for Reader {
    fn from(credential: &ShownCredential) -> Self {
        match credential {
            ShownCredential::Agent(caller) => Self::from(caller),
            ShownCredential::Holder(caller) => Self::from(caller),
        }
    }
}

impl Reader {
    /// Who shares the places for readers.
    pub const fn fairness_key(self) -> FairnessKey {
        match self.agent {
            Some(_) => FairnessKey::agents_of(self.tenant),
            None => FairnessKey::people_of(self.tenant),
        }
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
