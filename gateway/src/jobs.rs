//! What is done every now and then, whoever asks or not.

use crate::directory::issuers::KeysDue;
use crate::gateway::Gateway;
use crate::guarded_clock::GuardedClock;
use model::{TenantId, Timestamp};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use store::StoreError;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// How often tokens that lie about are given back.
const ROUND: Duration = Duration::from_secs(1);
/// How many rounds there are between two looks at the buckets in the store and in memory. Where many wait for
/// decisions, so many are between two rounds that look at the counters of quotas, too.
const FORGET_EVERY: u32 = 60;

/// How often the files with keys of issuers are looked at.
const READ_ISSUERS_EVERY: Duration = Duration::from_secs(5);

/// In how many tenants issuers are given keys at once: the others read and write meanwhile.
const GIVEN_AT_ONCE: usize = 64;

/// How many rounds there are between the end of a pass over the counters of quotas and the next one: nothing that goes
/// is in a hurry.
const PASS_EVERY: u32 = 3_600;

/// How long nothing was counted in counters that may go, in milliseconds: longer than any month.
const COUNTERS_KEPT_MILLIS: i64 = 40 * 86_400_000;

/// For how long a round forgets answers. With a second between rounds, commits wait for it a twentieth of the time.
const FORGET_REPLIES: Duration = Duration::from_millis(50);

/// Starts the jobs of a gateway. They end with it.
pub fn start(gateway: &Arc<Gateway>) {
    let now = Instant::now();
    let clocks = Clocks {
        idle: GuardedClock::begin(now),
        forgotten: GuardedClock::begin_for(now, gateway.options.replies_kept),
        ended: GuardedClock::begin_with(gateway.clock.now(), now),
    };
    tokio::spawn(run(Arc::downgrade(gateway), clocks));
    if gateway.options.issuer_keys.is_some() {
        tokio::spawn(read_issuer_files(Arc::downgrade(gateway)));
    }
}

/// Reads the files with keys of issuers. Nothing else waits for them, and no gateway is held meanwhile: a network mount
/// may not answer any more. Nor does a tenant wait for another one: it may be long before that is given any.
async fn read_issuer_files(gateway: Weak<Gateway>) {
    let (mut rest, places) = (ROUND, Arc::new(Semaphore::new(GIVEN_AT_ONCE)));
    let mut giving: BTreeMap<TenantId, JoinHandle<()>> = BTreeMap::new();
    loop {
        tokio::time::sleep(rest).await;
        rest = READ_ISSUERS_EVERY;
        let files = match gateway.upgrade() {
            None => return,
            // Whoever finds out which ledger is the true one finds the database as it was.
            Some(gateway) if gateway.cosigning.check().is_err() => None,
            Some(gateway) => gateway.files_of_issuers(),
        };
        let Some(files) = files else { continue };
        let read = files.read().await;
        let Some(gateway) = gateway.upgrade() else { return };
        // Before it is looked at what is due: whoever has ended since then was given something that looks due.
        giving.retain(|_, task| !task.is_finished());
        for (tenant, due) in gateway.issuer_keys_due(read) {
            // An older file that came behind a newer one would give back a key that was taken away.
            giving.entry(tenant).or_insert_with(|| {
                let (gateway, places) = (Arc::clone(&gateway), Arc::clone(&places));
                tokio::spawn(give_issuer_keys(gateway, places, tenant, due))
            });
        }
    }
}

/// Gives issuers of a tenant their keys, when there is a place.
async fn give_issuer_keys(gateway: Arc<Gateway>, places: Arc<Semaphore>, tenant: TenantId, due: KeysDue) {
    let _place = places.acquire().await;
    // What could not be given is told where it was tried, and tried again.
    let _ = gateway.give_issuer_keys_of(tenant, due).await;
}

/// What time it is for what rounds do for good.
struct Clocks {
    /// By which counters are idle.
    idle: GuardedClock,
    /// By which answers are forgotten.
    forgotten: GuardedClock,
    /// By which reservations and approvals have ended.
    ended: GuardedClock,
}

async fn run(gateway: Weak<Gateway>, mut clocks: Clocks) {
    let mut passes = Passes::default();
    for round in 0_u32.. {
        tokio::time::sleep(ROUND).await;
        let Some(gateway) = gateway.upgrade() else { return };
        if gateway.cosigning.check().is_err() {
            // Whoever finds out which ledger is the true one finds the database as it was.
            continue;
        }
        let mut done = gateway.limits.give_back_idle().await;
        if round % FORGET_EVERY == 0 && done.is_ok() {
            done = gateway.store.forget_full().await.map(drop);
        }
        if round % FORGET_EVERY == 0 {
            gateway.limits.forget_full(gateway.clock.now());
        }
        if let Err(error) = done {
            // What could not be given back is refilled with time.
            tracing::warn!(
                error = &error as &dyn Error,
                "shared buckets could not be tidied up: {error}"
            );
        }
        let (clock, instant) = (gateway.clock.now(), Instant::now());
        let now = clocks.idle.now(clock, instant);
        if passes.is_due(round, gateway.sequencer.is_under_load()) {
            passes.looked(round, &forget_counters(&gateway, now).await);
        }
        if let Err(error) = gateway.forget_replies(clocks.forgotten.now(clock, instant)).await {
            tracing::warn!(
                error = &error as &dyn Error,
                "old answers could not be forgotten: {error}"
            );
        }
        let by = clocks.ended.now(gateway.clock.now(), Instant::now());
        write_down_what_has_ended(&gateway, by).await;
    }
}

/// Ends reservations and approvals whose time was over by then.
async fn write_down_what_has_ended(gateway: &Gateway, by: Timestamp) {
    if let Err(refusal) = gateway.expire_reservations(by).await {
        tracing::warn!(
            code = refusal.code().as_str(),
            "expired reservations could not be given back"
        );
    }
    // Whoever uses one looks at its time, so a round that fails makes nothing worse.
    if let Err(refusal) = gateway.expire_approvals(by).await {
        tracing::warn!(
            code = refusal.code().as_str(),
            "expired approvals could not be written down"
        );
    }
}

/// When counters of quotas are looked at.
#[derive(Debug, Default)]
struct Passes {
    /// The round from which on they are.
    due: u32,
}

impl Passes {
    /// Whether this round looks at some. Where there are more than one round looks at, the next one goes on, so that
    /// they go faster than they can come, while few wait for decisions.
    const fn is_due(&self, round: u32, is_under_load: bool) -> bool {
        round >= self.due && (!is_under_load || round.is_multiple_of(FORGET_EVERY))
    }

    /// Notes that this round did, and whether there is nothing more to look at for now. One that has failed is no end:
    /// the pass goes on a minute later.
    const fn looked(&mut self, round: u32, is_through: &Result<bool, StoreError>) {
        self.due = match is_through {
            Ok(true) => round.saturating_add(PASS_EVERY),
            Ok(false) => round,
            Err(_) => round.saturating_add(FORGET_EVERY),
        };
    }
}

impl Gateway {
    /// Forgets answers that nobody asks for again at this time, a batch at a time for a while, and none while many wait
    /// for decisions: what goes later takes room and does no harm. Returns how many have gone.
    pub async fn forget_replies(&self, now: Timestamp) -> Result<u64, StoreError> {
        let kept = i64::try_from(self.options.replies_kept.as_millis()).unwrap_or(i64::MAX);
        let before = now.plus_millis(-kept);
        let (began, mut forgotten) = (Instant::now(), 0);
        while !self.sequencer.is_under_load() && began.elapsed() < FORGET_REPLIES {
            match self.store.forget_replies(before).await? {
                0 => break,
                some => forgotten += some,
            }
        }
        Ok(forgotten)
    }
}

/// Forgets counters of quotas that nothing was counted in for long, as many as are found in a round. Returns whether
/// there is nothing more to look at for now.
async fn forget_counters(gateway: &Gateway, now: Timestamp) -> Result<bool, StoreError> {
    let before = now.plus_millis(-COUNTERS_KEPT_MILLIS);
    let swept = gateway.store.forget_counters(before).await;
    if let Err(error) = &swept {
        tracing::warn!(
            error = error as &dyn Error,
            "counters of quotas could not be tidied up: {error}"
        );
    }
    swept.map(|swept| swept.is_through)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_over_counters_goes_on_every_round_and_the_next_one_begins_an_hour_after_its_end() {
        let mut passes = Passes::default();
        for round in 0..10 {
            assert!(passes.is_due(round, false), "{round}");
            passes.looked(round, &Ok(round == 9));
        }
        let due: Vec<_> = (10..4_000).filter(|round| passes.is_due(*round, false)).collect();
        assert_eq!((due.first(), due.len()), (Some(&3_609), 391));
        let due: Vec<_> = (10..3_700).filter(|round| passes.is_due(*round, true)).collect();
        assert_eq!(due, [3_660], "few rounds look while many wait for decisions");
    }

    #[test]
    fn a_pass_that_a_failure_breaks_off_goes_on_a_minute_later() {
        let mut passes = Passes::default();
        passes.looked(7, &Err(StoreError::Unavailable("away".into())));
        let due: Vec<_> = (8..100).filter(|round| passes.is_due(*round, false)).collect();
        assert_eq!((due.first(), due.len()), (Some(&67), 33));
    }
}
