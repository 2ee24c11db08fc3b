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
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long asks may take, on average, before places are taken away. The slowest take about twice the average.
/// The places that this leaves are enough to fill commits. With more, what a flood has in the gateway is in no cache, and whoever comes beside it
/// waits behind more of it.
const TARGET: Duration = Duration::from_millis(12);
/// How many commits they may take, where those take longer than that: each ask waits for half of the one before its own, and for its own. With
/// fewer places, a slow disk would do less and be no faster.
const TARGET_COMMITS: u32 = 2;
/// Over which time the average is taken: some commits, on a slow disk too.
const WINDOW: Duration = Duration::from_millis(100);
/// How many asks in a window say something about how long they take. Fewer are no overload, however slow they are.
const TELLING: u32 = 32;
/// How many asks that found no place in a window are a flood, if they are at least as many as found one since. Who keeps to its part is refused a
/// few when they come in a burst, and who asks for little more than there is must not be taken for a flood: the lane for those answers less
/// than the whole gateway, so who is in it would be refused what keeps it there (`docs/decisions/0062-who-floods-is-refused-more-than-it-gets.md`).
const REFUSED_MANY: u32 = 32;
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
    /// Tenants that flooded the gateway in the last window.
    floods: HashSet<TenantId>,
    /// How long asks took in the last window, if there were many, and when it ended.
    usual: Option<(Duration, Instant)>,
}

/// What left since it began.
struct Window {
    began: Instant,
    left: u32,
    took: Duration,
    /// The asks of each tenant since one of them found no place. Who has none of those is not here.
    asks: HashMap<TenantId, Asks>,
}

/// Asks of a tenant.
#[derive(Debug, Default)]
struct Asks {
    let_in: u32,
    refused: u32,
}

impl Asks {
    const fn are_a_flood(&self) -> bool {
        self.refused >= REFUSED_MANY && self.refused >= self.let_in
    }
}

impl Window {
    fn new(began: Instant) -> Self {
        Self {
            began,
            left: 0,
            took: Duration::ZERO,
            asks: HashMap::new(),
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
            floods: HashSet::new(),
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
            if let Some(asks) = self.window.asks.get_mut(&tenant) {
                asks.let_in += 1;
            }
        } else {
            self.window.asks.entry(tenant).or_default().refused += 1;
        }
        has_place
    }

    /// Whether this tenant floods the gateway, as far as the last window tells.
    pub(super) fn is_flooded_by(&self, tenant: TenantId) -> bool {
        self.floods.contains(&tenant)
    }

    /// Whether there may be a tenant that would get no place, or floods the gateway: one that had all that are taken, or one that did so in the last window.
    pub(super) fn is_under_pressure(&self) -> bool {
        self.taken >= self.left() || !self.floods.is_empty()
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
        let target = TARGET.max(TARGET_COMMITS * self.commit);
        self.limit = if took.is_some_and(|took| took > target) {
            let fewer = self.limit - self.limit.div_ceil(GOES);
            fewer.max(self.most.div_ceil(STAYS))
        } else {
            let more = self.limit + self.limit.div_ceil(COMES);
            more.min(self.most)
        };
        self.usual = took.map(|took| (took, now));
        let ended = std::mem::replace(&mut self.window, Window::new(now));
        let floods = ended.asks.into_iter().filter(|(_, asks)| asks.are_a_flood());
        self.floods = floods.map(|(tenant, _)| tenant).collect();
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
        assert!(!room.enter(A, COMMIT) && room.is_under_pressure());
        (0..1_024).for_each(|_| room.leave(A, Duration::ZERO, now));
        (0..512).for_each(|_| room.leave(B, Duration::ZERO, now));
        room.leave(C, Duration::ZERO, now);
        assert_eq!((room.taken(), room.tenants.len()), (0, 0));
        assert!(!room.is_under_pressure());
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
        assert!(!room.enter(B, COMMIT));
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
    fn who_is_refused_often_floods_until_a_window_passes_without() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        assert!(!room.is_under_pressure());
        // The last one finds none.
        fill(&mut room, A);
        fill(&mut room, B);
        (1..REFUSED_MANY).for_each(|_| assert!(!room.enter(A, COMMIT)));
        (2..REFUSED_MANY).for_each(|_| assert!(!room.enter(B, COMMIT)));
        assert!(!room.is_flooded_by(A));
        (0..MOST / 2).for_each(|_| room.leave(A, Duration::ZERO, now));
        for is_flooded in [true, false] {
            now += WINDOW;
            room.leave(B, Duration::ZERO, now);
            assert_eq!(room.is_flooded_by(A), is_flooded);
            assert_eq!(room.is_under_pressure(), is_flooded);
            assert!(!room.is_flooded_by(B));
        }
    }

    #[test]
    fn who_gets_more_than_it_is_refused_is_no_flood() {
        for (let_in, is_flooded) in [(REFUSED_MANY, true), (REFUSED_MANY + 1, false)] {
            let now = Instant::now();
            let mut room = Room::new(MOST, now);
            fill(&mut room, A);
            (1..REFUSED_MANY).for_each(|_| assert!(!room.enter(A, COMMIT)));
            for _ in 0..let_in {
                room.leave(A, Duration::ZERO, now);
                assert!(room.enter(A, COMMIT));
            }
            room.leave(A, Duration::ZERO, now + WINDOW);
            assert_eq!(room.is_flooded_by(A), is_flooded, "{let_in} let in");
        }
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
