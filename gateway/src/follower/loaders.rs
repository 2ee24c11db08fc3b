//! Who is loaded next, and by how many loaders at once: no tenant waits for ever, whatever the others do.

use model::TenantId;
use std::time::Instant;

/// How many tenants are loaded at once.
const LOAD_MAX: usize = 64;
/// How many times that at the same time, besides the system tenant: while one waits for the policies of a large tenant, others go on.
const LOADERS_MAX: usize = 3;

/// A tenant that has moved, and that no loader has.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) tenant: TenantId,
    /// Since when it is its turn.
    pub(super) since: Instant,
    /// Whether it is loaded by itself, because the last time it could not be, or took long.
    pub(super) is_apart: bool,
}

/// Who is loaded now, each of these by a loader, where so many have something to do besides that of the system tenant.
///
/// The system tenant waits for nobody: it is small, and without it nobody is let in. Of the others who has waited longest comes first. Those
/// that are loaded by themselves come before the rest, and never have the last loader: so neither waits for ever behind the other.
pub(super) fn next(mut waiting: Vec<Waiting>, busy: usize) -> Vec<Vec<TenantId>> {
    waiting.sort_by_key(|waiting| waiting.since);
    let (system, others): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .partition(|waiting| waiting.tenant == TenantId::SYSTEM);
    let (apart, together): (Vec<_>, Vec<_>) = others.into_iter().partition(|waiting| waiting.is_apart);
    let free = LOADERS_MAX.saturating_sub(busy);
    let apart = &apart[..apart.len().min(free.saturating_sub(1))];
    let together = together.chunks(LOAD_MAX).take(free - apart.len());
    let loads = system.chunks(1).chain(apart.chunks(1)).chain(together);
    loads.map(tenants).collect()
}

fn tenants(waiting: &[Waiting]) -> Vec<TenantId> {
    waiting.iter().map(|waiting| waiting.tenant).collect()
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

    fn numbers(loads: &[Vec<TenantId>]) -> Vec<Vec<u8>> {
        let numbers = |load: &Vec<TenantId>| load.iter().map(|tenant| tenant.as_bytes()[0]).collect();
        loads.iter().map(numbers).collect()
    }

    #[test]
    fn the_system_tenant_is_loaded_whatever_loaders_do() {
        assert_eq!(tenant(0), TenantId::SYSTEM);
        for is_apart in [false, true] {
            for busy in 0..=LOADERS_MAX {
                let loads = next(waiting([1, 2, 0], is_apart), busy);
                assert_eq!(numbers(&loads)[0], [0]);
            }
        }
        assert_eq!(numbers(&next(waiting([1, 0, 2], false), 3)), [[0]]);
        assert_eq!(
            numbers(&next(waiting([1, 0, 2], false), 2)),
            [vec![0], vec![1, 2]]
        );
    }

    #[test]
    fn a_change_does_not_wait_behind_those_that_take_long() {
        let slow = waiting([11, 12, 13, 14], true);
        assert_eq!(numbers(&next(slow.clone(), 0)), [[11], [12]]);
        assert_eq!(numbers(&next(slow.clone(), 1)), [[11]]);
        let both = [slow, waiting([1], false)].concat();
        assert_eq!(numbers(&next(both.clone(), 0)), [[11], [12], [1]]);
        assert_eq!(numbers(&next(both.clone(), 2)), [[1]]);
        assert!(next(both, 3).is_empty());
    }

    #[test]
    fn those_that_take_long_do_not_wait_for_ever_behind_others() {
        let both = [waiting(1..=200, false), waiting([201], true)].concat();
        let loads = numbers(&next(both, 1));
        assert_eq!(loads, [vec![201], (1..=64).collect()]);
    }

    #[test]
    fn who_has_waited_longest_comes_first() {
        let mut others = waiting(1..=200, false);
        others.reverse();
        let loads = numbers(&next(others, 0));
        let expected: Vec<Vec<u8>> = vec![(1..=64).collect(), (65..=128).collect(), (129..=192).collect()];
        assert_eq!(loads, expected);
        let mut apart = waiting([11, 12, 13], true);
        apart.reverse();
        assert_eq!(numbers(&next(apart, 1)), [[11]]);
    }
}
