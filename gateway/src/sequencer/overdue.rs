//! The overdue reservations of the tenants of a batch: some of each, however many there are of one.
//!
//! Those of all tenants are read together, up to the time of the chain that is furthest ahead; which of them should
//! have ended, each chain says by its own time. Only where they are more than are read at once, more of them are looked
//! for. What is done about them is not known here.

use super::ENDED_AT_ONCE_MAX;
use super::times::Times;
use model::reservation::GRACE_MS;
use model::{Reservation, ReservationStatus, TenantId, Timestamp};
use std::collections::HashMap;
use store::{StoreError, Turn, WantedReservations};

/// When overdue reservations are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// With the batch: all of it was found.
    WithBatch,
    /// In a commit before it: there may be more than was found, and what that holds would be missing.
    First,
}

/// The latest end of a reservation that is overdue now: its grace is over.
pub(super) fn ended_by(now: Timestamp) -> Timestamp {
    now.plus_millis(-GRACE_MS)
}

/// Reads these reservations, and some more of each tenant where those of one may have left no room for those of another.
pub(super) async fn read(
    turn: &mut dyn Turn,
    wanted: &WantedReservations,
    times: Times<'_>,
) -> Result<(Vec<(TenantId, Reservation)>, Ends), StoreError> {
    let mut found = turn.find_reservations(wanted).await?;
    let ends = if is_used_up(wanted, &found) {
        read_of_each(turn, &wanted.tenants, times, &mut found).await?
    } else {
        Ends::WithBatch
    };
    Ok((found, ends))
}

/// Whether as many that should have ended were found as were asked for. What was asked for by its id may be there besides.
fn is_used_up(wanted: &WantedReservations, found: &[(TenantId, Reservation)]) -> bool {
    let limit = wanted.limit as usize;
    let has_ended = |(tenant, reservation): &&(TenantId, Reservation)| {
        reservation.status == ReservationStatus::Active
            && reservation.expires_at <= wanted.ended_by
            && wanted.tenants.contains(tenant)
    };
    found.len() >= limit && found.iter().filter(has_ended).count() >= limit
}

/// Reads more for the tenants of which less than a share was found. A tenant that has got its share is left out of the
/// next read, so one with many overdue reservations costs two more reads at most, and not one for each other tenant.
async fn read_of_each(
    turn: &mut dyn Turn,
    tenants: &[TenantId],
    times: Times<'_>,
    found: &mut Vec<(TenantId, Reservation)>,
) -> Result<Ends, StoreError> {
    let share = (ENDED_AT_ONCE_MAX as usize / tenants.len().max(1)).max(1);
    let rest = without_share(tenants, found, share, times);
    let mut ends = if rest.len() < tenants.len() {
        Ends::First
    } else {
        Ends::WithBatch
    };
    let mut groups = by_time(rest, times);
    while let Some(tenants) = groups.pop() {
        let limit = share * tenants.len();
        let wanted = WantedReservations {
            ids: Vec::new(),
            ended_by: ended_by(times.latest(&tenants)),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            tenants,
        };
        let more = turn.find_reservations(&wanted).await?;
        if more.len() >= limit {
            ends = Ends::First;
            // INVARIANT: at least one of them has had its share, so this ends.
            let rest = without_share(&wanted.tenants, &more, share, times);
            let (one, other) = rest.split_at(rest.len() / 2);
            let halves = [one, other].into_iter().filter(|half| !half.is_empty());
            groups.extend(halves.map(<[TenantId]>::to_vec));
        }
        found.extend(more);
    }
    Ok(ends)
}

/// Those of these tenants of which less than a share was found that should have ended by the time of its chain.
fn without_share(
    tenants: &[TenantId],
    found: &[(TenantId, Reservation)],
    share: usize,
    times: Times<'_>,
) -> Vec<TenantId> {
    let mut counts: HashMap<TenantId, usize> = HashMap::new();
    for (tenant, reservation) in found {
        if reservation.is_overdue(times.of(*tenant)) {
            *counts.entry(*tenant).or_default() += 1;
        }
    }
    let mut rest = tenants.to_vec();
    rest.retain(|tenant| counts.get(tenant).is_none_or(|count| *count < share));
    rest
}

/// These tenants, those together whose chains have the same time: nearly always all of them.
fn by_time(mut tenants: Vec<TenantId>, times: Times<'_>) -> Vec<Vec<TenantId>> {
    tenants.sort_by_key(|tenant| times.of(*tenant));
    let groups = tenants.chunk_by(|one, other| times.of(*one) == times.of(*other));
    groups.map(<[TenantId]>::to_vec).collect()
}
