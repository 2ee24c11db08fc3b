//! What a caller has shown, to be looked at again where the answer takes long; and who it is, where it counts how much
//! one caller has at once. Whether a route lets it in was found out before.

use super::{AgentCaller, Holder, KeyCaller, TenantCaller};
use crate::gateway::Gateway;
use crate::http::refusal::{Code, Refusal};
use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use model::{AgentId, KeyId, Name};

/// The credential that somebody has shown who was let in.
#[derive(Debug, Clone)]
pub enum ShownCredential {
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

impl<S: Sync> FromRequestParts<S> for ShownCredential {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        if let Some(caller) = parts.extensions.get::<AgentCaller>() {
            return Ok(Self::Agent(caller.clone()));
        }
        Ok(Self::Holder(holder_in(&parts.extensions)?.clone()))
    }
}

/// Whoever was let in and is no agent.
pub(crate) fn holder_in(extensions: &Extensions) -> Result<&TenantCaller, Refusal> {
    // INVARIANT: a route that takes this lets in agents and holders in a tenant only, and the layer before it has
    // checked.
    let caller = extensions.get::<TenantCaller>();
    caller.ok_or_else(|| Refusal::new(Code::Forbidden, "this takes an agent's token or a key"))
}

impl ShownCredential {
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

    /// Who has shown it.
    pub fn caller_id(&self) -> CallerId {
        match self {
            Self::Agent(caller) => CallerId::Agent(caller.agent.id),
            Self::Holder(caller) => match &caller.holder {
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
