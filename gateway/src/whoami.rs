//! `GET /v1/whoami`: what this credential is.

use crate::http::{Caller, Json};
use axum::Extension;
use model::{AgentId, KeyId, Name, Role, TenantId};
use serde::Serialize;

/// What a credential is.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Whoami {
    /// An agent's token.
    Agent {
        /// Its tenant.
        tenant: TenantId,
        /// The agent.
        agent: AgentId,
        /// What people call it.
        name: Name,
    },
    /// An API key.
    Key {
        /// Its tenant; absent for an operator's.
        #[serde(skip_serializing_if = "Option::is_none")]
        tenant: Option<TenantId>,
        /// The key.
        key: KeyId,
        /// What people call it.
        name: Name,
        /// What it may do.
        role: Role,
        /// The person who holds it.
        user: Option<Name>,
    },
}

/// Answers with what the credential is.
pub async fn whoami(Extension(caller): Extension<Caller>) -> Json<Whoami> {
    Json(match caller {
        Caller::Agent(caller) => Whoami::Agent {
            tenant: caller.tenant,
            agent: caller.agent.id,
            name: caller.agent.name.clone(),
        },
        Caller::Key(caller) => Whoami::Key {
            tenant: (caller.key.tenant != TenantId::SYSTEM).then_some(caller.key.tenant),
            key: caller.key.id,
            name: caller.key.name.clone(),
            role: caller.key.role,
            user: caller.key.user.clone(),
        },
    })
}
