//! Standing: whether an agent, a tool or a tenant may act at all. Frozen can be undone, revoked cannot.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest reason that a person may give, in bytes.
pub const REASON_BYTES_MAX: usize = 1_024;

/// Whether something may act.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Standing {
    /// It may.
    #[default]
    Active,
    /// Not until it is unfrozen.
    Frozen {
        /// Why.
        reason: String,
        /// Since when.
        since: Timestamp,
    },
    /// Never again.
    Revoked {
        /// Why.
        reason: String,
        /// Since when.
        since: Timestamp,
    },
}

/// A change of standing that is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is revoked, and a revocation is for good")]
pub struct RevokedForGood;

/// What can be done to a standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandingChange {
    /// Freeze it.
    Freeze,
    /// Make it active again.
    Unfreeze,
    /// Revoke it for good.
    Revoke,
}

impl Standing {
    /// The standing after a change. What is so already stays as it is, with its first reason and time.
    pub fn after(
        &self,
        change: StandingChange,
        reason: &str,
        now: Timestamp,
    ) -> Result<Self, RevokedForGood> {
        match change {
            StandingChange::Freeze => self.freeze(reason, now),
            StandingChange::Unfreeze => self.unfreeze(),
            StandingChange::Revoke => Ok(self.revoke(reason, now)),
        }
    }

    /// The word of the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Frozen { .. } => "frozen",
            Self::Revoked { .. } => "revoked",
        }
    }

    /// Whether it may act.
    pub const fn is_active(&self) -> bool {
        matches!(self, Self::Active)
    }

    /// Whether it never may again.
    pub const fn is_revoked(&self) -> bool {
        matches!(self, Self::Revoked { .. })
    }

    /// Frozen from now on. What is frozen already keeps its first reason and time.
    pub fn freeze(&self, reason: &str, now: Timestamp) -> Result<Self, RevokedForGood> {
        match self {
            Self::Active => Ok(Self::Frozen {
                reason: reason.to_owned(),
                since: now,
            }),
            Self::Frozen { .. } => Ok(self.clone()),
            Self::Revoked { .. } => Err(RevokedForGood),
        }
    }

    /// Active again.
    pub fn unfreeze(&self) -> Result<Self, RevokedForGood> {
        match self {
            Self::Active | Self::Frozen { .. } => Ok(Self::Active),
            Self::Revoked { .. } => Err(RevokedForGood),
        }
    }

    /// Revoked from now on. What is revoked already keeps its first reason and time.
    #[must_use]
    pub fn revoke(&self, reason: &str, now: Timestamp) -> Self {
        match self {
            Self::Revoked { .. } => self.clone(),
            Self::Active | Self::Frozen { .. } => Self::Revoked {
                reason: reason.to_owned(),
                since: now,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const LATER: Timestamp = Timestamp::from_millis(2_000);

    #[test]
    fn what_is_revoked_stays_so_by_every_route() {
        let revoked = Standing::Active.revoke("stolen", NOW);
        assert_eq!(revoked.unfreeze(), Err(RevokedForGood));
        assert_eq!(revoked.freeze("again", LATER), Err(RevokedForGood));
        assert_eq!(revoked.revoke("another reason", LATER), revoked);
    }

    #[test]
    fn a_change_by_name_is_the_change_itself() {
        let frozen = Standing::Active
            .after(StandingChange::Freeze, "odd", NOW)
            .unwrap();
        assert_eq!(Ok(frozen.clone()), Standing::Active.freeze("odd", NOW));
        assert_eq!(
            frozen.after(StandingChange::Unfreeze, "fine", LATER),
            Ok(Standing::Active)
        );
        let revoked = frozen.after(StandingChange::Revoke, "stolen", LATER).unwrap();
        assert_eq!(revoked, frozen.revoke("stolen", LATER));
        for change in [StandingChange::Freeze, StandingChange::Unfreeze] {
            assert_eq!(revoked.after(change, "please", LATER), Err(RevokedForGood));
        }
    }

    #[test]
    fn what_is_frozen_can_be_unfrozen_and_keeps_its_first_reason() {
        let frozen = Standing::Active.freeze("odd", NOW).unwrap();
        assert!(!frozen.is_active());
        assert_eq!(frozen.freeze("odder", LATER), Ok(frozen.clone()));
        assert_eq!(frozen.unfreeze(), Ok(Standing::Active));
    }
}
