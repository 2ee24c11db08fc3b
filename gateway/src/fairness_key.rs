//! The key by which shares are given, where tenants have shares of something: one for the people of a tenant, one for its
//! agents. They have a share each, because it is people who stop an agent that takes all there is. Where what was done
//! does not wait behind what is read, either of them has another one for that.

use model::TenantId;

/// Says who have a share together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FairnessKey {
    tenant: TenantId,
    are_agents: bool,
    is_done: bool,
}

impl FairnessKey {
    /// The agents of this tenant.
    pub const fn agents_of(tenant: TenantId) -> Self {
        Self {
            tenant,
            are_agents: true,
            is_done: false,
        }
    }

    /// Its people, and whoever else has a key.
    pub const fn people_of(tenant: TenantId) -> Self {
        Self {
            tenant,
            are_agents: false,
            is_done: false,
        }
    }

    /// The same, where what they have done does not stand behind what they read.
    #[must_use]
    pub const fn of_what_was_done(self) -> Self {
        Self {
            is_done: true,
            ..self
        }
    }
}

/// Where no agent comes, or nobody who could stop one.
impl From<TenantId> for FairnessKey {
    fn from(tenant: TenantId) -> Self {
        Self::people_of(tenant)
    }
}
