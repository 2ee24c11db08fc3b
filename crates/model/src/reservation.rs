//! Reservations: an amount that is held in every budget it counts against, until it is settled or its time is over.
//!
//! A reservation is open until it is committed, released or expired, and never moves again after that. How its budgets change
//! with it is not decided here.

use crate::amount::{Amount, Unit};
use crate::budget::Charge;
use crate::id::{AgentId, BudgetId, DecisionId, ReservationId};
use crate::name::{Name, SlashFreeName};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How long after its end a reservation can still be settled, in milliseconds: a report that is on its way when it ends counts.
pub const GRACE_MS: i64 = 5_000;
/// The shortest and longest life of a reservation, in milliseconds: one second to one day.
pub const TTL_MS: std::ops::RangeInclusive<u64> = 1_000..=86_400_000;
/// The life of a reservation when nobody says, in milliseconds.
pub const TTL_MS_DEFAULT: u64 = 60_000;

/// How far a reservation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationStatus {
    /// It is held.
    Active,
    /// What was spent is charged.
    Committed,
    /// Nothing was spent.
    Released,
    /// Nobody settled it in time.
    Expired,
}

impl ReservationStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Active, Self::Committed, Self::Released, Self::Expired];

    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Committed => "committed",
            Self::Released => "released",
            Self::Expired => "expired",
        }
    }

    /// The status with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Its id.
    pub id: ReservationId,
    /// Whose it is.
    pub agent: AgentId,
    /// What it is counted in.
    pub unit: Unit,
    /// How much is held.
    pub amount: Amount,
    /// Where, the widest scope first.
    pub budgets: Vec<BudgetId>,
    /// For which tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<SlashFreeName>,
    /// In which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Name>,
    /// For which decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_id: Option<DecisionId>,
    /// How far it has come. One that nobody has looked at since its end may still say otherwise: [`Self::status_at`].
    pub status: ReservationStatus,
    /// What was charged, if it was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Charge>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it is to be settled.
    pub expires_at: Timestamp,
}

impl Reservation {
    /// The reservation as storage keeps it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a reservation has only string keys")
    }

    /// The reservation that was kept so.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// How far it has come at a time: what was not settled in time has expired, whether that was written down or not.
    pub fn status_at(&self, now: Timestamp) -> ReservationStatus {
        if self.status == ReservationStatus::Active && self.expires_at.plus_millis(GRACE_MS) <= now {
            ReservationStatus::Expired
        } else {
            self.status
        }
    }

    /// After what was spent is charged.
    #[must_use]
    pub fn commit(&self, charge: Charge) -> Self {
        Self {
            status: ReservationStatus::Committed,
            charge: Some(charge),
            ..self.clone()
        }
    }

    /// After nothing was spent.
    #[must_use]
    pub fn release(&self) -> Self {
        Self {
            status: ReservationStatus::Released,
            ..self.clone()
        }
    }

    /// Whether its time is over, and nothing has become of it.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.status == ReservationStatus::Active && self.status_at(now) == ReservationStatus::Expired
    }

    /// After its time; none if that is not over, or something has become of it.
    pub fn expire(&self, now: Timestamp) -> Option<Self> {
        self.is_overdue(now).then(|| Self {
            status: ReservationStatus::Expired,
            ..self.clone()
        })
    }

    /// With another end.
    #[must_use]
    pub fn until(&self, expires_at: Timestamp) -> Self {
        Self {
            expires_at,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation() -> Reservation {
        Reservation {
            id: ReservationId::from_bytes([1; 16]),
            agent: AgentId::from_bytes([2; 16]),
            unit: Unit::new("TOKENS").unwrap(),
            amount: Amount::clamped(10),
            budgets: vec![BudgetId::from_bytes([3; 16])],
            tool: None,
            run_id: None,
            decision_id: None,
            status: ReservationStatus::Active,
            charge: None,
            created_at: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(1_000),
        }
    }

    #[test]
    fn what_is_not_settled_within_the_grace_has_expired() {
        let end = |millis| Timestamp::from_millis(1_000 + millis);
        let held = reservation();
        assert_eq!(held.status_at(end(GRACE_MS - 1)), ReservationStatus::Active);
        assert_eq!(held.expire(end(GRACE_MS - 1)), None);
        assert_eq!(held.status_at(end(GRACE_MS)), ReservationStatus::Expired);
        let expired = held.expire(end(GRACE_MS)).unwrap();
        assert_eq!(expired.status, ReservationStatus::Expired);
        assert_eq!(
            held.until(end(1)).status_at(end(GRACE_MS)),
            ReservationStatus::Active
        );
    }

    #[test]
    fn what_is_settled_does_not_expire_any_more() {
        let late = Timestamp::from_millis(i64::MAX);
        for settled in [reservation().commit(Charge::NOTHING), reservation().release()] {
            assert_eq!(settled.expire(late), None);
            assert_ne!(settled.status_at(late), ReservationStatus::Expired);
        }
    }

    #[test]
    fn it_is_read_as_it_was_kept() {
        let held = reservation().commit(Charge {
            actual: Amount::clamped(12),
            charged: Amount::clamped(10),
        });
        assert_eq!(Reservation::from_json(&held.to_json()).unwrap(), held);
    }
}
