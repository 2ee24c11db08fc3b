//! Recording what has ended of all tenants: approvals and reservations whose time is over, the oldest first, so many in
//! a commit, and one commit after the other while there is more.
//!
//! Nothing of one tenant keeps what is of another one from ending: each has a share before it is the turn of all, and a
//! tenant of which something cannot be read is left out for a while. When something is over is not known here.

use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::locks::lock;
use crate::sequencer::{CommitStatus, Fault};
use crate::turns::{Pass, Turns};
use engine::{Proposal, TenantSnapshot};
use model::{TenantId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Mutex;
use store::StoreError;

/// For how long a tenant is left out, in milliseconds: nothing of it gets better by itself, and each look at it is one
/// more commit that fails.
const LEFT_OUT_MILLIS: i64 = 10 * 60_000;

/// What is known of one kind of these between two passes of the job that records them.
#[derive(Debug, Default)]
pub struct Ends {
    pub(crate) turns: Turns,
    pub(crate) left_out: LeftOut,
}

/// The tenants of which something could not be read that was to end.
#[derive(Debug, Default)]
pub struct LeftOut {
    /// Until when each is left out. Locked to look, to add one or to take some away.
    until: Mutex<BTreeMap<TenantId, Timestamp>>,
}

impl LeftOut {
    /// Those that are left out now.
    pub(crate) fn tenants(&self, now: Timestamp) -> Vec<TenantId> {
        let mut until = lock(&self.until);
        // Not for longer where the clock was set back.
        let latest = now.plus_millis(LEFT_OUT_MILLIS);
        until.retain(|_, until| *until > now && *until <= latest);
        until.keys().copied().collect()
    }

    /// Leaves one out from now on.
    fn add(&self, tenant: TenantId, now: Timestamp) {
        lock(&self.until).insert(tenant, now.plus_millis(LEFT_OUT_MILLIS));
    }
}

/// A kind of what can end.
pub(crate) trait Ending {
    /// What names one among those of its tenant.
    type Id: Copy + Send;
    /// What they are called in the log.
    const NAME: &'static str;
    /// How many are ended in one commit.
    const ROUND_MAX: u32;
    /// How many such commits follow each other while as many should have ended and few wait for decisions.
    const ROUNDS_MAX: usize;
    /// How many such commits follow each other while as many should have ended and many wait for decisions.
    const ROUNDS_MAX_UNDER_LOAD: usize;
    /// How many of one tenant are ended before it is the turn of all others.
    const SHARE: usize;

    /// What the gateway knows of them between two passes.
    fn ends(gateway: &Gateway) -> &Ends;

    /// [`ROUND_MAX`](Self::ROUND_MAX) whose time was over by then, the oldest first, of all tenants but these.
    fn overdue(
        gateway: &Gateway,
        except: &[TenantId],
        by: Timestamp,
    ) -> impl Future<Output = Result<Vec<(TenantId, Self::Id)>, StoreError>> + Send;

    /// That one has ended.
    fn end(tenant: &TenantSnapshot, id: Self::Id) -> Proposal;

    /// Tells those who wait for one of these tenants' that some may have ended.
    fn notify(_gateway: &Gateway, _tenants: &BTreeSet<TenantId>) {}
}

impl Gateway {
    /// Ends each whose time was over by then and is over, with an entry. Several gateways may try; one entry comes of
    /// it. What does not work now is tried again in the next pass.
    pub(crate) async fn end_overdue<E: Ending>(&self, by: Timestamp) -> Result<(), Refusal> {
        // Half of the full commits under load may be for those alone who have not had their share.
        let mut pass = E::ends(self).turns.begin(E::SHARE, E::ROUNDS_MAX_UNDER_LOAD / 2);
        for round in 1..=E::ROUNDS_MAX {
            let is_last = round >= E::ROUNDS_MAX_UNDER_LOAD && self.sequencer.is_under_load();
            let found = match self.end_some::<E>(by, &mut pass).await {
                Ok(found) => found,
                Err(refusal) if pass.end_failed_round() => {
                    tracing::warn!(
                        code = refusal.code().as_str(),
                        what = E::NAME,
                        "what has ended of tenants with little of it could not be written down first"
                    );
                    continue;
                }
                Err(refusal) => return Err(refusal),
            };
            if !pass.end_round(found >= E::ROUND_MAX as usize) || (is_last && found > 0) {
                break;
            }
        }
        Ok(())
    }

    /// One round. Returns how many should have ended, if any did: what is not known here yet would be found again.
    async fn end_some<E: Ending>(&self, by: Timestamp, pass: &mut Pass<'_>) -> Result<usize, Refusal> {
        // What is proposed for them would be turned back, and they would be found first again.
        let mut except = self.snapshot.behind();
        except.extend(E::ends(self).left_out.tenants(by));
        except.extend(pass.begin_round());
        let overdue = E::overdue(self, &except, by).await?;
        let found = overdue.len();
        pass.note_found(overdue.iter().map(|(tenant, _)| *tenant));
        let tenants: BTreeSet<_> = overdue.iter().map(|(tenant, _)| *tenant).collect();
        let recorded = self.record_ends::<E>(overdue, by).await;
        // Also where it failed: some may have been recorded.
        E::notify(self, &tenants);
        let is_recorded = |one: &CommitStatus| !matches!(one, CommitStatus::Conflict(_));
        Ok(if recorded?.iter().any(is_recorded) {
            found
        } else {
            0
        })
    }

    /// Records that each of these has ended, in one commit. Where something that they depend on cannot be read, what is
    /// of one tenant is recorded by itself, and a tenant of which that fails again is left out for a while. Returns what
    /// became of the others, as far as their tenants are known here.
    async fn record_ends<E: Ending>(
        &self,
        ended: Vec<(TenantId, E::Id)>,
        now: Timestamp,
    ) -> Result<Vec<CommitStatus>, Refusal> {
        match self.record_known_ends::<E>(&ended).await {
            Err(Fault::Unreadable) => {}
            recorded => return recorded.map_err(Refusal::from),
        }
        let mut by_tenant = BTreeMap::<_, Vec<_>>::new();
        for one in ended {
            by_tenant.entry(one.0).or_default().push(one);
        }
        let mut recorded = Vec::new();
        for (tenant, ended) in by_tenant {
            match self.record_known_ends::<E>(&ended).await {
                Err(Fault::Unreadable) => {
                    E::ends(self).left_out.add(tenant, now);
                    tracing::error!(
                        %tenant,
                        "what has ended of {tenant} is not written down for now: something of it cannot be read"
                    );
                }
                more => recorded.extend(more?),
            }
        }
        Ok(recorded)
    }

    /// Records, in one commit, that those of these have ended whose tenant is known here.
    async fn record_known_ends<E: Ending>(
        &self,
        ended: &[(TenantId, E::Id)],
    ) -> Result<Vec<CommitStatus>, Fault> {
        let proposals = ended.iter().filter_map(|(tenant, id)| {
            let snapshot = self.tenant(*tenant).ok()?;
            Some(E::end(&snapshot, *id))
        });
        let proposals: Vec<_> = proposals.collect();
        if proposals.is_empty() {
            return Ok(Vec::new());
        }
        self.sequencer.record_all_without_following(proposals).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_left_out_for_a_while_and_no_other_one_is() {
        let [one, other] = [1, 2].map(|byte| TenantId::from_bytes([byte; 16]));
        let (left_out, begin) = (LeftOut::default(), Timestamp::from_millis(0));
        left_out.add(one, begin);
        left_out.add(other, begin.plus_millis(1));
        let at = |millis| left_out.tenants(begin.plus_millis(millis));
        assert_eq!(at(LEFT_OUT_MILLIS - 1), [one, other]);
        assert_eq!(at(LEFT_OUT_MILLIS), [other]);
        assert_eq!(at(LEFT_OUT_MILLIS + 1), []);
        left_out.add(one, begin.plus_millis(2 * LEFT_OUT_MILLIS));
        assert_eq!(at(0), []);
    }
}
