//! Giving back what was not settled in time. Whoever reserves sees to it as well; this is for when nobody does.

use super::moving::proposal;
use crate::ending::{Ending, Ends};
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::sequencer::{END_ROUNDS_MAX, END_ROUNDS_MAX_UNDER_LOAD, ENDED_AT_ONCE_MAX};
use engine::budgets::moves::Move;
use engine::{Proposal, TenantSnapshot};
use model::reservation::GRACE_MS;
use model::{ReservationId, TenantId, Timestamp};
use store::StoreError;

/// Reservations that nobody has settled in time.
struct Unsettled;

impl Gateway {
    /// Ends each reservation whose time was over by then and is over, with an entry.
    pub async fn expire_reservations(&self, by: Timestamp) -> Result<(), Refusal> {
        self.end_overdue::<Unsettled>(by).await
    }
}

impl Ending for Unsettled {
    type Id = ReservationId;
    const NAME: &'static str = "reservations";
    const ROUND_MAX: u32 = ENDED_AT_ONCE_MAX;
    const ROUNDS_MAX: usize = END_ROUNDS_MAX as usize;
    const ROUNDS_MAX_UNDER_LOAD: usize = END_ROUNDS_MAX_UNDER_LOAD as usize;
    const SHARE: usize = Self::ROUND_MAX as usize;

    fn ends(gateway: &Gateway) -> &Ends {
        &gateway.reservation_ends
    }

    async fn overdue(
        gateway: &Gateway,
        except: &[TenantId],
        by: Timestamp,
    ) -> Result<Vec<(TenantId, ReservationId)>, StoreError> {
        let ended_by = by.plus_millis(-GRACE_MS);
        gateway
            .store
            .overdue_reservations(except, ended_by, Self::ROUND_MAX)
            .await
    }

    fn end(tenant: &TenantSnapshot, id: ReservationId) -> Proposal {
        proposal(tenant, Move::Expire(id), None)
    }
}
