//! Erases by itself what tenants do not want to keep: what agents did before so many days (`settings.erase_after_days`).
//!
//! It goes on where it stopped, a fraction of a second and at most one commit at a time, a ledger after the other, and rests longer than it
//! works. The setting is read anew before each of these slices: whoever takes a mistake back keeps the rest. What people are still asked
//! about is looked at again, once an hour, because everything behind it is read with it. Where it stopped is kept in memory: after a restart it reads the old entries once more, and erases none of them twice.

use super::choose::Choice;
use super::taking::Taking;
use super::{days_ago, take};
use crate::changes::By;
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::records::times::first_since;
use crate::steady::Steady;
use model::{TenantId, Timestamp};
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How often it looks whether something has become old.
const ROUND: Duration = Duration::from_mins(1);
/// How long it works before it rests.
const WORK: Duration = Duration::from_millis(200);
/// How much longer it rests than it has worked.
const RESTS_LONGER: u32 = 3;
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
}

/// Where it has come to in one ledger.
struct Place {
    /// The first entry that has not been looked at.
    next: u64,
    /// The first entry that was left, since it last went back, because people are still asked about it or something is held for it.
    first_waiting: Option<u64>,
    /// When it last went back to that one.
    went_back: Timestamp,
    /// Whether there is more that is old than it has looked at.
    is_underway: bool,
}

impl Place {
    const START: Self = Self {
        next: 1,
        first_waiting: None,
        went_back: Timestamp::from_millis(0),
        is_underway: false,
    };

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
    let (mut is_all, mut steady) = (true, Steady::begin(Instant::now()));
    loop {
        if is_all {
            tokio::time::sleep(ROUND).await;
        }
        let Some(gateway) = gateway.upgrade() else { return };
        let now = steady.now(gateway.clock.now(), Instant::now());
        // A database in which a ledger has forked is left as it is.
        if gateway.cosigning.check().is_err() {
            is_all = true;
            continue;
        }
        is_all = gateway.erase_old(now).await.is_all;
    }
}

impl Gateway {
    /// Erases a slice of what their tenants do not want to keep any longer at this time in each ledger, or in each of those in which the
    /// round before has left something.
    pub async fn erase_old(&self, now: Timestamp) -> Done {
        let mut progress = self.retention.0.lock().await;
        let Progress { places, unfinished } = &mut *progress;
        if unfinished.is_empty() {
            *unfinished = self.forgetful();
        }
        let mut erased = 0;
        for tenant in mem::take(unfinished) {
            if self.is_stopping() {
                break;
            }
            let began = Instant::now();
            let place = places.entry(tenant).or_insert(Place::START);
            match self.erase_slice(tenant, place, now).await {
                Ok(slice) => {
                    erased += slice.erased;
                    if !slice.is_all {
                        unfinished.push(tenant);
                        tokio::time::sleep(began.elapsed() * RESTS_LONGER).await;
                    }
                }
                Err(refusal) => tracing::warn!(
                    %tenant,
                    code = refusal.code().as_str(),
                    "what is old in the ledger of {tenant} could not be erased"
                ),
            }
        }
        let is_all = unfinished.is_empty();
        Done { erased, is_all }
    }

    /// The tenants that do not want to keep everything.
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
        now: Timestamp,
    ) -> Result<Done, Refusal> {
        let days = self.tenant(tenant)?.directory.tenant.settings.erase_after_days;
        let Some(days) = days else {
            return Ok(Done {
                erased: 0,
                is_all: true,
            });
        };
        let head = self.store.head(tenant).await?.seq;
        let end = first_since(&*self.store, tenant, head, days_ago(now, days)).await?;
        let choice = Choice::OlderThan(days.get());
        let mut taking = Taking::new(self, tenant, By::Setting(SETTING), &choice);
        place.go_back(now);
        let began = Instant::now();
        let is_enough = |taking: &Taking<'_>| taking.erased > 0 || began.elapsed() >= WORK;
        let next = take(self, &mut taking, &choice, place.next..=end - 1, is_enough).await?;
        place.first_waiting = place.first_waiting.or(taking.first_waiting);
        let is_all = next >= end || next == place.next;
        (place.next, place.is_underway) = (next, !is_all);
        Ok(Done {
            erased: taking.erased,
            is_all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
