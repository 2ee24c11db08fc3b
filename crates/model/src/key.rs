//! API keys: what people and their tools sign in with, and the roles that say which doors open.

use crate::id::{KeyId, TenantId};
use crate::name::Name;
use crate::time::Timestamp;
use canon::Digest;
use serde::{Deserialize, Serialize};

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Tenants, base policies, and everything in every tenant.
    Operator,
    /// Agents, tools, keys and budgets of one tenant.
    Admin,
    /// Policies of one tenant.
    PolicyEditor,
    /// Approvals of one tenant.
    Approver,
    /// Reads everything in one tenant, changes nothing.
    Auditor,
}

impl Role {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::PolicyEditor => "policy_editor",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
        }
    }
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// The tenant it belongs to; [`TenantId::SYSTEM`] for an operator's.
    pub tenant: TenantId,
    /// What people call it.
    pub name: Name,
    /// What it may do.
    pub role: Role,
    /// The person who holds it.
    pub user: Option<Name>,
    /// SHA-256 of the secret.
    pub digest: Digest,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
}

/// What stays of an operator's key that was deleted: whoever starts a gateway with it brings it along again, and it is
/// known by this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedKey {
    /// SHA-256 of the secret.
    pub digest: Digest,
    /// When it was deleted.
    pub deleted_at: Timestamp,
}

impl ApiKey {
    /// Whether it has stopped working.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}
