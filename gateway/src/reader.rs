//! Who reads decisions: an agent its own, the holder of a key all of the tenant's; and the permit that they wait for with
//! all who read the store.

use crate::fair_semaphore::Permit;
use crate::fairness_key::FairnessKey;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Holder, KeyCaller, Refusal, TenantCaller};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use model::{AgentId, DecisionId, KeyId, Name, TenantId};
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

/// What a reader has shown, to be looked at again where the answer takes long.
#[derive(Debug, Clone)]
pub enum Credential {
    /// An agent's.
    Agent(AgentCaller),
    /// Somebody's who may read all of the tenant's.
    Holder(TenantCaller),
}

/// Who somebody is, where it counts how much one caller has at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerId {
    /// An agent, whichever credential it shows.
    Agent(AgentId),
    /// The holder of a key.
    Key(KeyId),
    /// A person whom a registered issuer has signed in.
    Person(Name),
}

impl<S: Sync> FromRequestParts<S> for Reader {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        if let Some(caller) = parts.extensions.get::<AgentCaller>() {
            return Ok(Self::from(caller));
        }
        holder(parts).map(Self::from)
    }
}

impl<S: Sync> FromRequestParts<S> for Credential {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        if let Some(caller) = parts.extensions.get::<AgentCaller>() {
            return Ok(Self::Agent(caller.clone()));
        }
        Ok(Self::Holder(holder(parts)?.clone()))
    }
}

/// Has a request answered when there is a place for it among those that read the store. It has the place until its
/// answer is there, and not until that is taken. What it leads to takes no place itself.
pub async fn wait_for_read_permit(
    State(gateway): State<Arc<Gateway>>,
    credential: Credential,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let permit = gateway.reads.acquire(credential.reader().fairness_key()).await?;
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

fn holder(parts: &Parts) -> Result<&TenantCaller, Refusal> {
    // INVARIANT: a route that takes a reader lets in agents and keys only, and the layer before it has checked.
    let caller = parts.extensions.get::<TenantCaller>();
    caller.ok_or_else(|| Refusal::new(Code::Forbidden, "this takes an agent's token or a key"))
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

impl Reader {
    /// Who shares the places for readers.
    pub const fn fairness_key(self) -> FairnessKey {
        match self.agent {
            Some(_) => FairnessKey::agents_of(self.tenant),
            None => FairnessKey::people_of(self.tenant),
        }
    }
}

impl Credential {
    /// What has been shown by whoever was let in, to be looked at again; none on a route without credentials, or for
    /// all that work.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        if let Some(caller) = extensions.get::<AgentCaller>() {
            return Some(Self::Agent(caller.clone()));
        }
        let operator = || extensions.get::<KeyCaller>().map(TenantCaller::from);
        let caller = extensions.get::<TenantCaller>().cloned().or_else(operator);
        caller.map(Self::Holder)
    }

    /// Whose it is.
    pub fn reader(&self) -> Reader {
        match self {
            Self::Agent(caller) => Reader::from(caller),
            Self::Holder(caller) => Reader::from(caller),
        }
    }

    /// Who has shown it.
    pub fn caller_id(&self) -> CallerId {
        match self {
            Self::Agent(caller) => CallerId::Agent(caller.agent.id),
            Self::Holder(caller) => match caller.holder() {
                Holder::Key(key) => CallerId::Key(key.id),
                Holder::Person(person) => CallerId::Person(person.user.name.clone()),
            },
        }
    }

    /// Whether it still works, and whether this gateway can tell.
    pub fn check(&self, gateway: &Gateway) -> Result<(), Refusal> {
        match self {
            Self::Agent(caller) => caller.check(gateway),
            Self::Holder(caller) => caller.check(gateway),
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
