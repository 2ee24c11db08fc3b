//! Recording what has ended of several tenants at once: approvals and reservations whose time is over.
//!
//! What cannot be read of one tenant keeps nothing of another one from ending. When something is over is not known
//! here.

use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::locks::lock;
use crate::sequencer::{CommitStatus, Fault};
use crate::turns::Turns;
use engine::{Proposal, TenantSnapshot};
use model::{TenantId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Mutex;

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

impl Gateway {
    /// Records that each of these has ended, in one commit. Where something that they depend on cannot be read, what is
    /// of one tenant is recorded by itself, and a tenant of which that fails again is left out for a while. Returns what
    /// became of the others, as far as their tenants are known here.
    pub(crate) async fn record_ends<Id: Copy>(
        &self,
        ended: Vec<(TenantId, Id)>,
        end: fn(&TenantSnapshot, Id) -> Proposal,
        left_out: &LeftOut,
        now: Timestamp,
    ) -> Result<Vec<CommitStatus>, Refusal> {
        match self.record_known_ends(&ended, end).await {
            Err(Fault::Unreadable) => {}
            recorded => return recorded.map_err(Refusal::from),
        }
        let mut by_tenant = BTreeMap::<_, Vec<_>>::new();
        for one in ended {
            by_tenant.entry(one.0).or_default().push(one);
        }
        let mut recorded = Vec::new();
        for (tenant, ended) in by_tenant {
            match self.record_known_ends(&ended, end).await {
                Err(Fault::Unreadable) => {
                    left_out.add(tenant, now);
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
    async fn record_known_ends<Id: Copy>(
        &self,
        ended: &[(TenantId, Id)],
        end: fn(&TenantSnapshot, Id) -> Proposal,
    ) -> Result<Vec<CommitStatus>, Fault> {
        let proposals = ended.iter().filter_map(|(tenant, id)| {
            let snapshot = self.tenant(*tenant).ok()?;
            Some(end(&snapshot, *id))
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
