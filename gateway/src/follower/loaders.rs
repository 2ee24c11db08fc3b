//! Who is loaded next, and by how many loaders at once: no tenant waits for ever, whatever the others do.

use model::TenantId;
use std::time::Instant;

/// How many tenants are loaded at once.
const LOAD_MAX: usize = 64;
/// How many times that at the same time, besides the system tenant: while one waits for the policies of a large tenant,
/// others go on.
const LOADERS_MAX: usize = 3;
/// How many of them load a tenant by itself, at most: one is left for changes that do not take long.
const APART_MAX: usize = LOADERS_MAX - 1;

/// A tenant that has moved, and that no loader has.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) tenant: TenantId,
    /// Since when it is its turn.
    pub(super) since: Instant,
    /// Whether it is loaded by itself, because the last time it could not be, or took long.
    pub(super) is_apart: bool,
}

/// How many loaders have something to do, besides that of the system tenant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy {
    /// All of them.
    pub(super) all: usize,
    /// Those among them that load a tenant by itself.
    pub(super) apart: usize,
}

/// What one loader loads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) tenants: Vec<TenantId>,
    /// Whether that is one tenant that is loaded by itself.
    pub(super) is_apart: bool,
}

/// What is loaded now, where so many loaders are busy.
///
/// The system tenant waits for nobody: it is small, and without it nobody is let in. Of the others who has waited
/// longest comes first. Those that are loaded by themselves come before the rest, and never have all loaders: so
/// neither waits for ever behind the other, also where whoever is loaded together is always busy with one before
/// another ends.
pub(super) fn next(mut waiting: Vec<Waiting>, busy: Busy) -> Vec<Load> {
    waiting.sort_by_key(|waiting| waiting.since);
    let (system, others): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .partition(|waiting| waiting.tenant == TenantId::SYSTEM);
    let (apart, together): (Vec<_>, Vec<_>) = others.into_iter().partition(|waiting| waiting.is_apart);
    let free = LOADERS_MAX.saturating_sub(busy.all);
    let free_for_apart = free.min(APART_MAX.saturating_sub(busy.apart));
    let apart = &apart[..apart.len().min(free_for_apart)];
    let together = together.chunks(LOAD_MAX).take(free - apart.len());
    let together = together.map(|waiting| load(waiting, false));
    let apart = apart.chunks(1).map(|waiting| load(waiting, true));
    let system = system.chunks(1).map(|waiting| load(waiting, false));
    system.chain(apart).chain(together).collect()
}

fn load(waiting: &[Waiting], is_apart: bool) -> Load {
    Load {
        tenants: waiting.iter().map(|waiting| waiting.tenant).collect(),
        is_apart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tenant(number: u8) -> TenantId {
        TenantId::from_bytes([number; 16])
    }

    /// Tenants with these numbers, of which each has waited less than the one before.
    fn waiting(numbers: impl IntoIterator<Item = u8>, is_apart: bool) -> Vec<Waiting> {
        let now = Instant::now();
        let numbers = numbers.into_iter().enumerate();
        let waiting = numbers.map(|(place, number)| Waiting {
            tenant: tenant(number),
            since: now + Duration::from_secs(place as u64),
            is_apart,
        });
        waiting.collect()
    }

    /// So many loaders with something to do, and so many of them with a tenant by itself.
    const fn busy(all: usize, apart: usize) -> Busy {
        Busy { all, apart }
    }

    fn numbers(loads: &[Load]) -> Vec<Vec<u8>> {
        let number = |tenant: &TenantId| tenant.as_bytes()[0];
        let numbers = |load: &Load| load.tenants.iter().map(number).collect();
        loads.iter().map(numbers).collect()
    }

    #[test]
    fn the_system_tenant_is_loaded_whatever_loaders_do() {
        assert_eq!(tenant(0), TenantId::SYSTEM);
        for is_apart in [false, true] {
            for all in 0..=LOADERS_MAX {
                for apart in 0..=all.min(APART_MAX) {
                    let loads = next(waiting([1, 2, 0], is_apart), busy(all, apart));
                    assert_eq!(numbers(&loads)[0], [0]);
                    assert!(!loads[0].is_apart, "it takes no loader from the others");
                }
            }
        }
        assert_eq!(numbers(&next(waiting([1, 0, 2], false), busy(3, 0))), [[0]]);
        assert_eq!(
            numbers(&next(waiting([1, 0, 2], false), busy(2, 0))),
            [vec![0], vec![1, 2]]
        );
    }

    #[test]
    fn a_change_does_not_wait_behind_those_that_take_long() {
        let slow = waiting([11, 12, 13, 14], true);
        assert_eq!(numbers(&next(slow.clone(), busy(0, 0))), [[11], [12]]);
        assert_eq!(numbers(&next(slow.clone(), busy(1, 1))), [[11]]);
        assert!(next(slow.clone(), busy(2, 2)).is_empty());
        let both = [slow, waiting([1], false)].concat();
        assert_eq!(numbers(&next(both.clone(), busy(0, 0))), [[11], [12], [1]]);
        assert_eq!(numbers(&next(both.clone(), busy(1, 1))), [[11], [1]]);
        assert_eq!(numbers(&next(both.clone(), busy(2, 2))), [[1]]);
        assert!(next(both, busy(3, 2)).is_empty());
    }

    #[test]
    fn those_that_take_long_do_not_wait_for_ever_behind_others() {
        let both = [waiting(1..=200, false), waiting([201, 202], true)].concat();
        let loads = next(both.clone(), busy(1, 1));
        assert_eq!(numbers(&loads), [vec![201], (1..=64).collect()]);
        assert_eq!([loads[0].is_apart, loads[1].is_apart], [true, false]);
        // Whoever is loaded together may never leave two loaders free.
        assert_eq!(numbers(&next(both.clone(), busy(2, 0))), [[201]]);
        assert_eq!(numbers(&next(both.clone(), busy(2, 1))), [[201]]);
        let others: Vec<u8> = (1..=64).collect();
        assert_eq!(numbers(&next(both, busy(2, 2))), [others]);
    }

    #[test]
    fn the_tenants_that_waited_longest_are_loaded_first() {
        let mut others = waiting(1..=200, false);
        others.reverse();
        let loads = numbers(&next(others, busy(0, 0)));
        let expected: Vec<Vec<u8>> = vec![(1..=64).collect(), (65..=128).collect(), (129..=192).collect()];
        assert_eq!(loads, expected);
        let mut apart = waiting([11, 12, 13], true);
        apart.reverse();
        assert_eq!(numbers(&next(apart, busy(1, 1))), [[11]]);
    }
}
