//! How far ledgers are ahead of the clock.
//!
//! Time in a chain never runs backwards, so an entry that was recorded while a clock was ahead, however shortly, gives
//! its time to all that follow until the clock has caught up. Quotas, budgets and what is erased by its age go by that
//! time and wait as long, so whoever runs the gateway is told.

use model::{TenantId, Timestamp};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// How many milliseconds a ledger may be ahead before the log says so: clocks of gateways differ by less. It is said
/// again only after none was ahead by more than half of it, so that clocks which differ by about as much are not told
/// of again and again.
const TOLD_FROM_MILLIS: i64 = 60_000;

/// The latest time of an entry that this gateway knows of, in whichever ledger.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    latest: AtomicI64,
    /// Whether the log has said that a ledger is ahead, and one still is, if by less.
    is_told: AtomicBool,
}

impl Ahead {
    /// With the latest entry of all ledgers, if there is one: whose it is, and its time. It is said at once when that
    /// is far ahead of the clock.
    pub(super) fn begin(latest: Option<(TenantId, Timestamp)>, clock: Timestamp) -> Self {
        let ahead = Self::default();
        if let Some((tenant, at)) = latest {
            ahead.note(tenant, at, clock);
        }
        ahead
    }

    /// How far the ledger that is furthest ahead is ahead of this clock.
    pub(super) fn of(&self, clock: Timestamp) -> Duration {
        let millis = self.latest.load(Ordering::Relaxed) - clock.millis();
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }

    /// Notes that an entry of this time was recorded, and says it once when that is far ahead of the clock.
    pub(super) fn note(&self, tenant: TenantId, at: Timestamp, clock: Timestamp) {
        if self.has_to_be_told(at, clock) {
            let seconds = (at.millis() - clock.millis()) / 1_000;
            tracing::warn!(
                %tenant,
                seconds,
                "the ledger of {tenant} is {seconds} s ahead of the clock"
            );
        }
    }

    /// Notes the time of an entry. Returns whether it is the first that is far ahead, since none was ahead by much.
    fn has_to_be_told(&self, at: Timestamp, clock: Timestamp) -> bool {
        let (at, clock) = (at.millis(), clock.millis());
        let before = self.latest.fetch_max(at, Ordering::Relaxed);
        if before - clock <= TOLD_FROM_MILLIS / 2 {
            self.is_told.store(false, Ordering::Relaxed);
        }
        at - clock > TOLD_FROM_MILLIS && !self.is_told.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    #[test]
    fn a_ledger_that_is_far_ahead_is_told_once_until_none_is() {
        let ahead = Ahead::default();
        let note = |at: i64, clock: i64| {
            ahead.has_to_be_told(Timestamp::from_millis(at), Timestamp::from_millis(clock))
        };
        let behind = |clock: i64| ahead.of(Timestamp::from_millis(clock));
        assert!(!note(5 * MINUTE, 5 * MINUTE));
        assert_eq!(behind(6 * MINUTE), Duration::ZERO);
        assert_eq!(behind(4 * MINUTE), Duration::from_mins(1));
        assert!(!note(5 * MINUTE, 4 * MINUTE));
        assert!(note(5 * MINUTE, 3 * MINUTE));
        assert!(!note(9 * MINUTE, 3 * MINUTE));
        assert_eq!(behind(3 * MINUTE), Duration::from_mins(6));
        // One that goes by the clock says nothing about the other one.
        assert!(!note(4 * MINUTE, 4 * MINUTE));
        assert!(!note(9 * MINUTE, 4 * MINUTE));
        // Where it is about a minute, now more and now less, that is not said again and again.
        assert!(!note(9 * MINUTE, 8 * MINUTE));
        assert!(!note(10 * MINUTE, 8 * MINUTE));
        assert!(!note(10 * MINUTE, 9 * MINUTE + MINUTE / 2));
        assert!(note(20 * MINUTE, 10 * MINUTE));
        // The clock caught up while nothing was noted.
        assert!(note(90 * MINUTE, 40 * MINUTE));
    }

    #[test]
    fn it_is_told_at_a_start() {
        let (at, clock) = (Timestamp::from_millis(9 * MINUTE), Timestamp::from_millis(MINUTE));
        let ahead = Ahead::begin(Some((TenantId::SYSTEM, at)), clock);
        assert_eq!(ahead.of(clock), Duration::from_mins(8));
        assert!(!ahead.has_to_be_told(at, clock), "it was told already");
        assert_eq!(Ahead::begin(None, clock).of(clock), Duration::ZERO);
    }
}
