//! Erases by itself what tenants do not want to keep: what agents did before so many days (`settings.erase_after_days`).
//!
//! It goes on where it stopped, a fraction of a second at a time, a ledger after the other, and rests as long as it
//! works. While many wait for decisions it is one commit at a time, and it rests longer. The setting is read anew
//! before each commit: whoever takes a mistake back keeps the rest. What people are still asked about is looked at
//! again, once an hour, because everything behind it is read with it. Where it stopped is kept in memory: after a
//! restart, and where another database may have taken over, in which what was erased may be there again, it reads the
//! old entries once more, and erases only what is there.

use super::choose::Choice;
use super::taking::Taking;
use super::{days_ago, take};
use crate::changes::By;
use crate::gateway::Gateway;
use crate::guarded_clock::GuardedClock;
use crate::http::Refusal;
use crate::records::times::first_since_in;
use crate::snapshot::Continuity;
use model::{TenantId, Timestamp};
use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use store::StoreError;
use tokio::sync::{Mutex, watch};

/// How often it looks whether something has become old.
const ROUND: Duration = Duration::from_mins(1);
/// How long it works before it rests.
const WORK: Duration = Duration::from_millis(200);
/// How much longer it rests than it has worked while many wait for decisions.
const RESTS_LONGER_UNDER_LOAD: u32 = 3;
/// How often it goes back to what was left because people were still asked about it, in milliseconds.
const BACK_EVERY_MS: i64 = 60 * 60 * 1_000;
/// The setting, as the ledger names it.
const SETTING: &str = "erase_after_days";

/// Where the job has come to. Held for a whole round: there is one at a time.
#[derive(Default)]
pub struct Retention(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    places: BTreeMap<TenantId, Place>,
    /// Whose ledgers have more that is old than the last round came to.
    unfinished: Vec<TenantId>,
    /// Hears of databases that take the place of another one; none before the first round.
    databases: Option<watch::Receiver<()>>,
}

impl Progress {
    /// Forgets where it has come to, if another database has taken over since the last round: what was erased may be
    /// there again.
    fn forget_other_database(&mut self, continuity: &Continuity) {
        let databases = self.databases.get_or_insert_with(|| continuity.databases());
        if databases.has_changed().unwrap_or(false) {
            databases.mark_unchanged();
            self.places.clear();
            self.unfinished.clear();
        }
    }
}

/// Where it has come to in one ledger.
struct Place {
    /// The first entry that has not been looked at.
    next: u64,
    /// Everything before this one has been looked at once: what is left of it is only what waited.
    looked_at: u64,
    /// The first entry that was left, since it last went back, because people are still asked about it or something is
    /// held for it.
    first_waiting: Option<u64>,
    /// When it last went back to that one.
    went_back: Timestamp,
    /// Whether there is more that is old than it has looked at.
    is_underway: bool,
    /// For how long the next one has been old that is still to be erased, as far as that is known.
    behind: Duration,
}

impl Place {
    const START: Self = Self {
        next: 1,
        looked_at: 1,
        first_waiting: None,
        went_back: Timestamp::from_millis(0),
        is_underway: false,
        behind: Duration::ZERO,
    };

    /// Begins anew in a ledger that ends here, if it has lost some of what was looked at.
    fn keep_within(&mut self, head: u64) {
        if self.next > head.saturating_add(1) {
            *self = Self::START;
        }
    }

    /// Goes back to what was left, if it is time and everything else was looked at.
    fn go_back(&mut self, now: Timestamp) {
        // A time that is behind that of the last time was set back since.
        let since = now.millis() - self.went_back.millis();
        if self.is_underway || (0..BACK_EVERY_MS).contains(&since) {
            return;
        }
        if let Some(waiting) = self.first_waiting.take() {
            self.next = waiting;
            self.went_back = now;
        }
    }
}

/// What a round, or a slice of it, has come to.
pub struct Done {
    /// How many bodies it has erased.
    pub erased: u64,
    /// Whether it has looked at everything that is old.
    pub is_all: bool,
}

/// Starts the job of a gateway. It ends with it.
pub fn start(gateway: &Arc<Gateway>) {
    tokio::spawn(run(Arc::downgrade(gateway)));
}

async fn run(gateway: Weak<Gateway>) {
    let (mut is_all, mut guarded) = (true, GuardedClock::begin(Instant::now()));
    loop {
        if is_all {
            tokio::time::sleep(ROUND).await;
        }
        let Some(gateway) = gateway.upgrade() else { return };
        let now = guarded.now(gateway.clock.now(), Instant::now());
        // A database in which a ledger has forked is left as it is.
        if gateway.cosigning.check().is_err() {
            is_all = true;
            continue;
        }
        is_all = gateway.erase_old(now).await.is_all;
    }
}

impl Gateway {
    /// Erases a slice of what their tenants do not want to keep any longer at this time in each ledger, or in each of
    /// those in which the round before has left something.
    pub async fn erase_old(&self, now: Timestamp) -> Done {
        self.erase_old_for(now, WORK).await
    }

    /// The same, for so long in each ledger, but a page of entries at least.
    pub async fn erase_old_for(&self, now: Timestamp, work: Duration) -> Done {
        let mut progress = self.retention.0.lock().await;
        progress.forget_other_database(&self.snapshot.continuity);
        let progress = &mut *progress;
        let (places, unfinished) = (&mut progress.places, &mut progress.unfinished);
        if unfinished.is_empty() {
            *unfinished = self.forgetful();
            // The others want to keep everything now.
            for (tenant, place) in places.iter_mut() {
                if unfinished.binary_search(tenant).is_err() {
                    place.behind = Duration::ZERO;
                }
            }
        }
        let mut erased = 0;
        for tenant in mem::take(unfinished) {
            if self.is_stopping() {
                break;
            }
            let began = Instant::now();
            let place = places.entry(tenant).or_insert(Place::START);
            let slice = self.erase_slice(tenant, place, (now, work)).await;
            match slice {
                Ok(slice) => {
                    erased += slice.erased;
                    if !slice.is_all {
                        unfinished.push(tenant);
                        self.tell_behind(places);
                    }
                    if !slice.is_all || slice.erased > 0 {
                        self.rest(began.elapsed()).await;
                    }
                }
                Err(refusal) => tracing::warn!(
                    %tenant,
                    code = refusal.code().as_str(),
                    "what is old in the ledger of {tenant} could not be erased"
                ),
            }
        }
        self.tell_behind(places);
        let is_all = unfinished.is_empty();
        Done { erased, is_all }
    }

    /// Tells how far it is behind where it is furthest.
    fn tell_behind(&self, places: &BTreeMap<TenantId, Place>) {
        let behind = places.values().map(|place| place.behind).max();
        self.metrics.set_erasure_behind(behind.unwrap_or_default());
    }

    /// Rests after it has worked for so long.
    async fn rest(&self, worked: Duration) {
        let longer = if self.sequencer.is_under_load() {
            RESTS_LONGER_UNDER_LOAD
        } else {
            1
        };
        tokio::time::sleep(worked * longer).await;
    }

    /// The tenants that do not want to keep everything, in order.
    fn forgetful(&self) -> Vec<TenantId> {
        let snapshot = self.snapshot.load();
        let forgetful = snapshot
            .tenants()
            .filter(|(_, found)| found.directory.tenant.settings.erase_after_days.is_some());
        forgetful.map(|(tenant, _)| *tenant).collect()
    }

    async fn erase_slice(
        &self,
        tenant: TenantId,
        place: &mut Place,
        (now, work): (Timestamp, Duration),
    ) -> Result<Done, Refusal> {
        let mut slice = Done {
            erased: 0,
            is_all: true,
        };
        let Some(days) = self.erase_after(tenant)? else {
            place.behind = Duration::ZERO;
            return Ok(slice);
        };
        let (head, old) = (self.store.head(tenant).await?.seq, days_ago(now, days));
        place.keep_within(head);
        place.go_back(now);
        let end = first_since_in(&*self.store, tenant, place.next..=head, old).await?;
        let choice = Choice::OlderThan(days.get());
        let began = Instant::now();
        loop {
            let mut taking = Taking::new(self, tenant, By::Setting(SETTING), &choice);
            let is_enough = |taking: &Taking<'_>| taking.erased > 0 || began.elapsed() >= work;
            let next = take(self, &mut taking, &choice, place.next..=end - 1, is_enough).await?;
            place.first_waiting = place.first_waiting.or(taking.first_waiting);
            slice.erased += taking.erased;
            slice.is_all = next >= end || next == place.next;
            (place.next, place.is_underway) = (next, !slice.is_all);
            let is_over = slice.is_all || began.elapsed() >= work || self.sequencer.is_under_load();
            if is_over || !self.may_go_on(tenant, days)? {
                break;
            }
        }
        if slice.is_all {
            place.behind = Duration::ZERO;
        } else if slice.erased > 0 && place.next >= place.looked_at {
            // Where nothing was, it may still be among what was erased before a restart; and behind what has waited,
            // all was looked at before.
            place.behind = self.old_since(tenant, place.next, old).await?;
        }
        place.looked_at = place.looked_at.max(place.next);
        Ok(slice)
    }

    /// Whether a slice that has begun with this setting goes on after a commit.
    fn may_go_on(&self, tenant: TenantId, days: NonZeroU32) -> Result<bool, Refusal> {
        let is_left = self.is_stopping() || self.cosigning.check().is_err();
        Ok(!is_left && self.erase_after(tenant)? == Some(days))
    }

    /// After how many days the tenant does not want to keep what agents did.
    fn erase_after(&self, tenant: TenantId) -> Result<Option<NonZeroU32>, Refusal> {
        Ok(self.tenant(tenant)?.directory.tenant.settings.erase_after_days)
    }

    /// For how long an entry has been old, where everything before this time is.
    async fn old_since(&self, tenant: TenantId, seq: u64, old: Timestamp) -> Result<Duration, StoreError> {
        let entries = self.store.entries(tenant, seq, 1).await?;
        let millis = entries
            .first()
            .map_or(0, |entry| old.millis() - entry.at.millis());
        Ok(Duration::from_millis(u64::try_from(millis).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_has_lost_what_was_looked_at_is_looked_at_anew() {
        for (head, next) in [(9, 9), (8, 9), (7, 1), (0, 1)] {
            let mut place = Place::START;
            (place.next, place.looked_at) = (9, 9);
            place.keep_within(head);
            assert_eq!((place.next, place.looked_at), (next, next), "{head}");
        }
    }

    #[test]
    fn what_was_left_is_looked_at_again_after_an_hour_or_when_the_clock_was_set_back() {
        const NOW: i64 = 1_000 * BACK_EVERY_MS;
        let goes_back = |place: &mut Place, now| {
            (place.next, place.first_waiting) = (9, Some(3));
            place.go_back(Timestamp::from_millis(now));
            place.next == 3
        };
        let mut place = Place::START;
        assert!(goes_back(&mut place, NOW));
        assert!(!goes_back(&mut place, NOW));
        assert!(!goes_back(&mut place, NOW + BACK_EVERY_MS - 1));
        assert!(goes_back(&mut place, NOW + BACK_EVERY_MS));
        assert!(goes_back(&mut place, NOW));
        assert!(!goes_back(&mut place, NOW + 1));
        place.is_underway = true;
        assert!(!goes_back(&mut place, 2 * NOW));
    }
}
