//! Erases by itself what tenants do not want to keep: what agents did before so many days (`settings.erase_after_days`).
//!
//! It goes on where it stopped, a fraction of a second at a time, and rests longer than it works. What people are still asked about is looked
//! at again. Where it stopped is kept in memory: after a restart it reads the old entries once more, and erases none of them twice.

use super::choose::Choice;
use super::taking::Taking;
use super::{end_of_old, take};
use crate::changes::By;
use crate::gateway::Gateway;
use crate::http::Refusal;
use model::TenantId;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How often it looks whether something has become old.
const ROUND: Duration = Duration::from_mins(1);
/// How long it works before it rests.
const WORK: Duration = Duration::from_millis(200);
/// How much longer it rests than it has worked.
const RESTS_LONGER: u32 = 3;
/// The setting, as the ledger names it.
const SETTING: &str = "erase_after_days";

/// Where the job has come to.
#[derive(Default)]
pub struct Retention {
    /// The first entry of each ledger that has not been looked at. Held for a whole round: there is one at a time.
    places: Mutex<BTreeMap<TenantId, u64>>,
}

/// Starts the job of a gateway. It ends with it.
pub fn start(gateway: &Arc<Gateway>) {
    tokio::spawn(run(Arc::downgrade(gateway)));
}

async fn run(gateway: Weak<Gateway>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.erase_old().await;
    }
}

impl Gateway {
    /// Erases in all ledgers what their tenants do not want to keep any longer. Returns how many bodies it has erased.
    pub async fn erase_old(&self) -> u64 {
        let mut places = self.retention.places.lock().await;
        let snapshot = self.snapshot.load();
        let mut erased = 0;
        for (tenant, found) in snapshot.tenants() {
            let Some(days) = found.directory.tenant.settings.erase_after_days else {
                continue;
            };
            let place = places.entry(*tenant).or_insert(1);
            match self.erase_older(*tenant, days, place).await {
                Ok(count) => erased += count,
                Err(refusal) => tracing::warn!(
                    %tenant,
                    code = refusal.code().as_str(),
                    "what is old in the ledger of {tenant} could not be erased"
                ),
            }
        }
        erased
    }

    async fn erase_older(&self, tenant: TenantId, days: NonZeroU32, place: &mut u64) -> Result<u64, Refusal> {
        let head = self.store.head(tenant).await?.seq;
        let end = end_of_old(self, tenant, head, days).await?;
        let choice = Choice::OlderThan(days.get());
        let mut erased = 0;
        let mut first_waiting = None;
        while *place < end {
            let began = Instant::now();
            let mut taking = Taking::new(self, tenant, By::Setting(SETTING), &choice);
            let next = take(self, &mut taking, &choice, *place..=end - 1, WORK).await;
            erased += taking.erased;
            first_waiting = first_waiting.or(taking.first_waiting);
            let next = next?;
            if next <= *place {
                break;
            }
            *place = next;
            if next < end {
                tokio::time::sleep(began.elapsed() * RESTS_LONGER).await;
            }
        }
        *place = first_waiting.map_or(*place, |waiting| waiting.min(*place));
        Ok(erased)
    }
}
