//! What time it is in the chains of a batch.
//!
//! Time in a chain never runs backwards. So where the clock was set back, or that of another gateway is ahead, a chain
//! has a time of its own, and nothing of another tenant's goes by that.

use model::{TenantId, Timestamp};
use std::collections::HashMap;
use store::ChainPosition;

/// The times of the chains of a batch.
#[derive(Clone, Copy)]
pub(super) struct Times<'a> {
    clock: Timestamp,
    positions: &'a HashMap<TenantId, ChainPosition>,
}

impl<'a> Times<'a> {
    /// By this clock, of chains that stand here.
    pub(super) const fn new(clock: Timestamp, positions: &'a HashMap<TenantId, ChainPosition>) -> Self {
        Self { clock, positions }
    }

    /// When the next entry of this chain is recorded.
    pub(super) fn of(self, tenant: TenantId) -> Timestamp {
        let position = self.positions.get(&tenant);
        position.map_or(self.clock, |position| position.at.max(self.clock))
    }

    /// The earliest of these.
    pub(super) fn earliest(self, tenants: &[TenantId]) -> Timestamp {
        let times = tenants.iter().map(|tenant| self.of(*tenant));
        times.min().unwrap_or(self.clock)
    }

    /// The latest of these.
    pub(super) fn latest(self, tenants: &[TenantId]) -> Timestamp {
        let times = tenants.iter().map(|tenant| self.of(*tenant));
        times.max().unwrap_or(self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chain_has_its_own_time_and_that_is_never_before_the_clock() {
        let at = Timestamp::from_millis;
        let [behind, ahead, new] = [1, 2, 3].map(|number| TenantId::from_bytes([number; 16]));
        let position = |millis| ChainPosition {
            at: at(millis),
            ..ChainPosition::GENESIS
        };
        let positions = HashMap::from([(behind, position(5)), (ahead, position(15))]);
        let times = Times::new(at(10), &positions);
        assert_eq!(
            [behind, ahead, new].map(|tenant| times.of(tenant)),
            [10, 15, 10].map(at)
        );
        assert_eq!(times.earliest(&[ahead, new]), at(10));
        assert_eq!(times.earliest(&[ahead]), at(15));
        assert_eq!(times.latest(&[behind, ahead, new]), at(15));
        assert_eq!(times.latest(&[]), at(10));
    }
}
