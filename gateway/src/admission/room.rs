//! The places for asks: how many there are, and whose.
//!
//! How many there are follows from how long asks take, from entering to being answered. While that is long, every tenth of a second takes
//! places away, down to an eighth; while it is not, they come back. A burst finds all of them, and an overload that lasts finds few enough that those
//! who are let in are answered soon, on a slow machine too.
//!
//! A tenant may take places as long as it has fewer than are left, like the lines of the queue before the sequencer: one that floods
//! the gateway has half of them, and whoever comes rarely finds one. Beside a flood few are left at some moments and many at others, and the flood is there
//! first when they come back; so a tenant may also take them up to its part, whoever has the others
//! (`docs/decisions/0057-a-part-for-sure.md`).

use model::TenantId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long asks may take, on average, before places are taken away. The slowest take about twice the average.
/// The places that this leaves are enough to fill commits. With more, what a flood has in the gateway is in no cache, and whoever comes beside it
/// waits behind more of it.
const TARGET: Duration = Duration::from_millis(12);
/// The same while many are refused. Those who are let in have less to wait for then, and so have those who are not.
const TARGET_REFUSING: Duration = Duration::from_millis(8);
/// Many are refused where it is more than one for so many who left.
const MANY: u32 = 8;
/// How many commits they may take, where those take longer than that: each ask waits for half of the one before its own, and for its own. With
/// fewer places, a slow disk would do less and be no faster.
const TARGET_COMMITS: u32 = 2;
/// Over which time the average is taken: some commits, on a slow disk too.
const WINDOW: Duration = Duration::from_millis(100);
/// How many asks in a window say something about how long they take. Fewer are no overload, however slow they are.
const TELLING: u32 = 32;
/// How long what was seen is believed.
const BELIEVED: Duration = Duration::from_millis(250);
/// Which part of the places there are goes at the end of a window in which asks took long: one in so many.
const GOES: usize = 8;
/// Which part comes back at the end of any other.
const COMES: usize = 16;
/// Which part of all places is always there: 256 of 2,048, of which one tenant may have 128. So many callers fill every commit, and with fewer
/// less would be answered.
const STAYS: usize = 8;
/// How many times an equal part of the places a tenant has for sure. What it asks comes in bursts: with no more than an equal part it would be
/// refused although it asks for less.
const EQUAL_PARTS: usize = 2;

/// The places, and who has them.
pub(super) struct Room {
    taken: usize,
    /// How many each tenant has. Who has none is not here.
    tenants: HashMap<TenantId, usize>,
    /// How many there may be now, and at most.
    limit: usize,
    most: usize,
    /// How long commits take.
    commit: Duration,
    window: Window,
    /// How long asks took in the last window, if there were many, and when it ended.
    usual: Option<(Duration, Instant)>,
}

/// What left since it began.
struct Window {
    began: Instant,
    left: u32,
    took: Duration,
    /// How many found no place.
    refused: u32,
}

impl Window {
    const fn new(began: Instant) -> Self {
        Self {
            began,
            left: 0,
            took: Duration::ZERO,
            refused: 0,
        }
    }

    /// How long asks may take, as far as nothing else than time counts.
    const fn target(&self) -> Duration {
        if self.refused.saturating_mul(MANY) > self.left {
            TARGET_REFUSING
        } else {
            TARGET
        }
    }
}

impl Room {
    pub(super) fn new(most: usize, now: Instant) -> Self {
        Self {
            taken: 0,
            tenants: HashMap::new(),
            limit: most,
            most,
            commit: Duration::ZERO,
            window: Window::new(now),
            usual: None,
        }
    }

    /// Takes a place, if there is one for this tenant, while commits take so long.
    pub(super) fn enter(&mut self, tenant: TenantId, commit: Duration) -> bool {
        self.commit = commit;
        let has_place = self.has_place(tenant);
        if has_place {
            *self.tenants.entry(tenant).or_default() += 1;
            self.taken += 1;
        } else {
            self.window.refused += 1;
        }
        has_place
    }

    /// Whether there is no place for an ask of this tenant, which is refused then.
    pub(super) fn refuses(&mut self, tenant: TenantId) -> bool {
        let has_place = self.has_place(tenant);
        self.window.refused += u32::from(!has_place);
        !has_place
    }

    /// Whether there is a place for this tenant: fewer than are left, or fewer than its part.
    fn has_place(&self, tenant: TenantId) -> bool {
        let of_tenant = self.tenants.get(&tenant).copied().unwrap_or_default();
        of_tenant < self.left() || of_tenant < self.part(of_tenant) && of_tenant < self.most - self.taken
    }

    /// How many places a tenant that has so many may have whatever the others do, as long as there are any at all. Somebody else may come, so
    /// the parts are one more than those who have places.
    fn part(&self, of_tenant: usize) -> usize {
        let tenants = self.tenants.len() + usize::from(of_tenant == 0);
        self.limit * tenants.min(EQUAL_PARTS) / (tenants + 1)
    }

    /// Whether there is a tenant that would not get a place: one that had all that are taken.
    pub(super) const fn may_refuse(&self) -> bool {
        self.taken >= self.left()
    }

    const fn left(&self) -> usize {
        self.limit.saturating_sub(self.taken)
    }

    /// Gives a place back, after so long.
    pub(super) fn leave(&mut self, tenant: TenantId, took: Duration, now: Instant) {
        if let Some(of_tenant) = self.tenants.get_mut(&tenant) {
            *of_tenant -= 1;
            self.taken -= 1;
            if *of_tenant == 0 {
                self.tenants.remove(&tenant);
            }
        }
        self.window.left += 1;
        self.window.took += took;
        if now.duration_since(self.window.began) >= WINDOW {
            self.end_window(now);
        }
    }

    /// How long asks take, if it was seen lately.
    pub(super) fn usual(&self, now: Instant) -> Option<Duration> {
        let (took, at) = self.usual?;
        (now.duration_since(at) < BELIEVED).then_some(took)
    }

    pub(super) const fn taken(&self) -> usize {
        self.taken
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    fn end_window(&mut self, now: Instant) {
        let took = (self.window.left >= TELLING).then(|| self.window.took / self.window.left);
        let target = self.window.target().max(TARGET_COMMITS * self.commit);
        self.limit = if took.is_some_and(|took| took > target) {
            let fewer = self.limit - self.limit.div_ceil(GOES);
            fewer.max(self.most.div_ceil(STAYS))
        } else {
            let more = self.limit + self.limit.div_ceil(COMES);
            more.min(self.most)
        };
        self.usual = took.map(|took| (took, now));
        self.window = Window::new(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TenantId = TenantId::from_bytes([1; 16]);
    const B: TenantId = TenantId::from_bytes([2; 16]);
    const C: TenantId = TenantId::from_bytes([3; 16]);
    const MOST: usize = 2_048;
    const COMMIT: Duration = Duration::from_millis(1);

    /// Takes all places that this tenant gets, and says how many.
    fn fill(room: &mut Room, tenant: TenantId) -> usize {
        std::iter::from_fn(|| room.enter(tenant, COMMIT).then_some(())).count()
    }

    /// So many windows in which asks take so long.
    fn windows(room: &mut Room, now: &mut Instant, count: u32, took: Duration) {
        for _ in 0..count {
            for ask in 1..=TELLING {
                if ask == TELLING {
                    *now += WINDOW;
                }
                assert!(room.enter(A, COMMIT));
                room.leave(A, took, *now);
            }
        }
    }

    #[test]
    fn a_tenant_that_floods_has_half_of_the_places_and_leaves_some_to_the_others() {
        let now = Instant::now();
        let mut room = Room::new(MOST, now);
        assert_eq!(fill(&mut room, A), 1_024);
        assert_eq!(fill(&mut room, B), 512);
        assert!(room.enter(C, COMMIT));
        assert!(!room.enter(A, COMMIT));
        assert!(!room.refuses(C) && room.refuses(A) && room.may_refuse());
        (0..1_024).for_each(|_| room.leave(A, Duration::ZERO, now));
        (0..512).for_each(|_| room.leave(B, Duration::ZERO, now));
        room.leave(C, Duration::ZERO, now);
        assert_eq!((room.taken(), room.tenants.len()), (0, 0));
        assert!(!room.may_refuse());
        assert_eq!(fill(&mut room, B), 1_024);
    }

    #[test]
    fn a_tenant_has_its_part_whatever_another_one_has_taken() {
        let mut room = Room::new(MOST, Instant::now());
        room.limit = MOST / STAYS;
        assert_eq!(fill(&mut room, A), 128);
        assert_eq!(room.left(), 128);
        assert_eq!(fill(&mut room, B), 170);
        assert_eq!(room.left(), 0);
        assert!(room.refuses(B) && !room.refuses(C));
        assert_eq!(fill(&mut room, C), 128);
    }

    #[test]
    fn several_who_come_after_one_another_find_places() {
        let mut room = Room::new(64, Instant::now());
        for tenant in 0..7 {
            let tenant = TenantId::from_bytes([tenant; 16]);
            assert!(fill(&mut room, tenant) > 0);
        }
        assert!(room.taken() <= 64);
    }

    #[test]
    fn while_many_are_refused_asks_may_take_less_time() {
        let took = (TARGET_REFUSING + TARGET) / 2;
        let limit_after = |refused| {
            let mut now = Instant::now();
            let mut room = Room::new(MOST, now);
            room.limit = MOST / 2;
            assert_eq!(fill(&mut room, A), MOST / 4);
            // It is full because the last one was refused.
            for _ in 1..refused {
                assert!(room.refuses(A));
            }
            for _ in 0..TELLING {
                now += WINDOW / (TELLING - 1);
                room.leave(A, took, now);
            }
            room.limit()
        };
        assert!(limit_after(TELLING / MANY) > MOST / 2);
        assert!(limit_after(TELLING / MANY + 1) < MOST / 2);
    }

    #[test]
    fn places_go_while_asks_take_long_and_come_back_when_they_do_not() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        windows(&mut room, &mut now, 3, 2 * TARGET);
        assert!((MOST / STAYS + 1..MOST).contains(&room.limit()));
        windows(&mut room, &mut now, 100, 2 * TARGET);
        assert_eq!((room.limit(), fill(&mut room, A)), (256, 128));
        (0..128).for_each(|_| room.leave(A, Duration::ZERO, now));
        windows(&mut room, &mut now, 100, TARGET / 2);
        assert_eq!(room.limit(), MOST);
    }

    #[test]
    fn a_slow_disk_takes_no_place_away() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        let commit = 4 * TARGET;
        for ask in 1..=10 * TELLING {
            if ask % TELLING == 0 {
                now += WINDOW;
            }
            assert!(room.enter(A, commit));
            room.leave(A, commit * 3 / 2, now);
        }
        assert_eq!(room.limit(), MOST);
        assert_eq!(room.usual(now), Some(commit * 3 / 2));
    }

    #[test]
    fn one_slow_ask_among_many_takes_no_place_away() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        (0..200).for_each(|_| assert!(room.enter(A, COMMIT)));
        (0..198).for_each(|_| room.leave(A, TARGET / 5, now));
        room.leave(A, 40 * TARGET, now);
        now += WINDOW;
        room.leave(A, TARGET / 5, now);
        assert_eq!(room.limit(), MOST);
    }

    #[test]
    fn a_few_slow_asks_are_no_overload() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        for _ in 0..10 * TELLING {
            now += WINDOW;
            assert!(room.enter(A, COMMIT));
            room.leave(A, 40 * TARGET, now);
        }
        assert_eq!((room.limit(), room.usual(now)), (MOST, None));
    }

    #[test]
    fn what_was_seen_is_forgotten() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        assert_eq!(room.usual(now), None);
        windows(&mut room, &mut now, 1, TARGET);
        assert_eq!(room.usual(now), Some(TARGET));
        assert_eq!(room.usual(now + BELIEVED), None);
    }

    #[test]
    fn there_is_a_place_in_the_smallest_room() {
        let mut now = Instant::now();
        let mut room = Room::new(2, now);
        windows(&mut room, &mut now, 10, 2 * TARGET);
        assert!(room.enter(A, COMMIT));
    }
}
