//! How much of the workers the asks of each tenant take. Each of them takes little, or it is judged elsewhere; but behind
//! many connections that each have such an ask everybody waits for all of these. So a tenant that takes more than half
//! of the cores while others ask has its next ones judged beside the workers, too, but for those that are little work
//! (`docs/decisions/0080-long-asks-beside-the-workers.md`).

use crate::locks::lock;
use model::TenantId;
use policy::Fuel;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How many steps a tenant may take of each core in a second: half of what it can do, about.
const STEPS_A_SECOND: u64 = 1 << 29;
/// How many it may take at once: some sixteen milliseconds.
const BURST_STEPS: u64 = 1 << 24;
/// How long one is held to it at most that takes no more, and while nobody else asks.
const HELD_MAX: Duration = Duration::from_secs(1);

/// What tenants have taken lately.
#[derive(Debug)]
pub struct WorkerSteps {
    a_second: u64,
    /// Whether some tenant may have taken too much. Nobody is looked for where none has.
    is_any_over: AtomicBool,
    accounts: Mutex<Accounts>,
}

/// What is known of tenants with asks that are more than little work, and who has asked while one had taken too much.
#[derive(Debug, Default)]
struct Accounts {
    taken: HashMap<TenantId, Taken>,
    /// Who asked last.
    last: Option<TenantId>,
    /// When somebody else asked than before.
    mixed_at: Option<Instant>,
}

/// What a tenant has taken and is not forgotten, at a moment.
#[derive(Debug, Clone, Copy)]
struct Taken {
    steps: u64,
    at: Instant,
}

impl WorkerSteps {
    /// Of as many workers as there are cores.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            a_second: STEPS_A_SECOND * cores as u64,
            is_any_over: AtomicBool::new(false),
            accounts: Mutex::default(),
        }
    }

    /// The fuel for an ask of this tenant on a worker.
    pub fn fuel(&self, tenant: TenantId, now: Instant) -> Fuel {
        if self.is_any_over.load(Ordering::Relaxed) && self.is_over(tenant, now) {
            Fuel::for_a_short_ask()
        } else {
            Fuel::for_a_worker()
        }
    }

    /// Notes what an ask of this tenant has taken, unless that is little work; all that it was given, if it needs more
    /// and goes on elsewhere, or nowhere.
    pub fn note(&self, tenant: TenantId, fuel: &Fuel, now: Instant) {
        if !fuel.suits_a_short_ask() {
            self.charge(tenant, fuel.charged(), now);
        }
    }

    /// Notes so many steps.
    pub fn charge(&self, tenant: TenantId, steps: u64, now: Instant) {
        let most = BURST_STEPS + self.steps_in(HELD_MAX);
        let mut accounts = lock(&self.accounts);
        let taken = accounts
            .taken
            .entry(tenant)
            .or_insert(Taken { steps: 0, at: now });
        *taken = Taken {
            steps: self.left(*taken, now).saturating_add(steps).min(most),
            // Threads do not come here in the order of their clocks.
            at: taken.at.max(now),
        };
        if taken.steps > BURST_STEPS {
            self.is_any_over.store(true, Ordering::Relaxed);
        }
    }

    /// Whether this tenant, which asks now, has taken too much, and others ask as well.
    fn is_over(&self, tenant: TenantId, now: Instant) -> bool {
        let mut accounts = lock(&self.accounts);
        let Accounts {
            taken,
            last,
            mixed_at,
        } = &mut *accounts;
        if last.replace(tenant).is_some_and(|last| last != tenant) {
            *mixed_at = Some(now);
        }
        let is_too_much = |taken: &Taken| self.left(*taken, now) > BURST_STEPS;
        if taken.get(&tenant).is_some_and(is_too_much) {
            return mixed_at.is_some_and(|at| now.saturating_duration_since(at) < HELD_MAX);
        }
        // As long as some tenant is over, the others look here, and one of them finds that none is any more.
        taken.retain(|_, taken| self.left(*taken, now) > 0);
        let is_any_over = taken.values().any(is_too_much);
        self.is_any_over.store(is_any_over, Ordering::Relaxed);
        false
    }

    /// What is not forgotten by now.
    fn left(&self, taken: Taken, now: Instant) -> u64 {
        let since = now.saturating_duration_since(taken.at);
        taken.steps.saturating_sub(self.steps_in(since))
    }

    fn steps_in(&self, time: Duration) -> u64 {
        // Not in milliseconds: of asks that come sooner one after another nothing would ever be forgotten.
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.a_second.saturating_mul(micros) / 1_000_000
    }
}

impl Default for WorkerSteps {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    #[test]
    fn who_takes_too_much_is_held_to_short_asks_until_it_has_taken_less_for_a_while() {
        let (steps, mut now) = (WorkerSteps::new(), Instant::now());
        let is_held = |tenant, now| steps.fuel(tenant, now).is_for_a_short_ask();
        steps.charge(ONE, BURST_STEPS, now);
        assert!(!is_held(ONE, now));
        steps.charge(ONE, u64::MAX, now);
        steps.charge(OTHER, 1 << 20, now);
        assert!(!is_held(OTHER, now) && is_held(ONE, now));
        now += HELD_MAX / 2;
        assert!(is_held(ONE, now) && !is_held(OTHER, now));
        now += HELD_MAX / 2;
        assert!(!is_held(ONE, now));
        assert!(!steps.is_any_over.load(Ordering::Relaxed));
        assert!(lock(&steps.accounts).taken.len() == 1);
    }

    #[test]
    fn who_is_alone_is_not_held() {
        let (steps, mut now) = (WorkerSteps::new(), Instant::now());
        let is_held = |tenant, now| steps.fuel(tenant, now).is_for_a_short_ask();
        steps.charge(ONE, u64::MAX, now);
        assert!(!is_held(ONE, now) && !is_held(ONE, now));
        assert!(!is_held(OTHER, now) && is_held(ONE, now));
        now += HELD_MAX;
        steps.charge(ONE, u64::MAX, now);
        assert!(!is_held(ONE, now));
    }

    #[test]
    fn who_takes_less_than_its_part_is_not_held_however_often_it_asks() {
        let (steps, mut now) = (WorkerSteps::new(), Instant::now());
        for _ in 0..8_000 {
            steps.charge(ONE, steps.a_second / 8_000, now);
            // An earlier clock changes nothing.
            steps.charge(ONE, 0, now.checked_sub(HELD_MAX).unwrap_or(now));
            now += Duration::from_micros(250);
            assert!(!steps.fuel(OTHER, now).is_for_a_short_ask());
            assert!(!steps.fuel(ONE, now).is_for_a_short_ask());
        }
    }

    #[test]
    fn an_ask_that_needs_more_than_it_was_given_is_noted_as_all_of_that() {
        let (steps, now) = (WorkerSteps::new(), Instant::now());
        let ask_for_much = || {
            let fuel = steps.fuel(ONE, now);
            assert!(!fuel.take(u64::MAX));
            steps.note(ONE, &fuel, now);
            fuel
        };
        let noted = || lock(&steps.accounts).taken[&ONE].steps;
        for asks in 1..=9 {
            let fuel = ask_for_much();
            assert!(!fuel.is_for_a_short_ask());
            assert_eq!(noted(), asks * fuel.charged());
        }
        assert!(noted() > BURST_STEPS);
        assert!(!steps.fuel(OTHER, now).is_for_a_short_ask());
        let before = noted();
        let fuel = ask_for_much();
        assert!(fuel.is_for_a_short_ask());
        assert_eq!(noted() - before, fuel.charged());
    }

    #[test]
    fn what_is_little_work_is_not_noted() {
        let (steps, now) = (WorkerSteps::new(), Instant::now());
        steps.note(ONE, &steps.fuel(ONE, now), now);
        assert!(lock(&steps.accounts).taken.is_empty());
    }
}
