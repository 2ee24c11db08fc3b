//! `GET /v1/whoami`: what this credential is.

use crate::http::{Caller, Json};
use axum::Extension;
use model::{AgentId, KeyId, Name, Role, TenantId};
use serde::Serialize;
use std::collections::BTreeSet;

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
        /// The issuer whose token was shown; absent for a token that the gateway has made.
        #[serde(skip_serializing_if = "Option::is_none")]
        issuer: Option<Name>,
        /// The agents in whose name its token lets it ask.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        act: Vec<Name>,
        /// The user for whom its token lets it ask.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<Name>,
    },
    /// A person with a token of a registered issuer.
    Person {
        /// The tenant.
        tenant: TenantId,
        /// The person.
        user: Name,
        /// What the person may do.
        roles: BTreeSet<Role>,
        /// The issuer whose token was shown.
        issuer: Name,
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
            issuer: caller.issuer().cloned(),
            act: caller.delegation.agents,
            user: caller.delegation.user,
        },
        Caller::Person(person) => Whoami::Person {
            tenant: person.tenant(),
            user: person.user.name.clone(),
            roles: person.user.roles.clone(),
            issuer: person.signed_in.issued_by().clone(),
        },
        Caller::Key(caller) => {
            let key = caller.key();
            Whoami::Key {
                tenant: (key.tenant != TenantId::SYSTEM).then_some(key.tenant),
                key: key.id,
                name: key.name.clone(),
                role: key.role,
                user: key.user.clone(),
            }
        }
    })
}
