//! Whom a share is given to, where tenants have shares of something: the people of a tenant, or its agents.
//!
//! They have one each, because it is people who stop an agent that takes all there is.

use model::TenantId;

/// Those who have a share together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Party {
    tenant: TenantId,
    are_agents: bool,
}

impl Party {
    /// The agents of this tenant.
    pub const fn agents_of(tenant: TenantId) -> Self {
        Self {
            tenant,
            are_agents: true,
        }
    }

    /// Its people, and whoever else has a key.
    pub const fn people_of(tenant: TenantId) -> Self {
        Self {
            tenant,
            are_agents: false,
        }
    }
}

/// Where no agent comes, or nobody who could stop one.
impl From<TenantId> for Party {
    fn from(tenant: TenantId) -> Self {
        Self::people_of(tenant)
    }
}
