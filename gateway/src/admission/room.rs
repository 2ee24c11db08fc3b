//! The places for asks: how many there are, and whose.
//!
//! How many there are follows from how long asks take, from entering to being answered. While that is long, every tenth
//! of a second takes places away, down to an eighth; while it is not, they come back. A burst finds all of them, and an
//! overload that lasts finds few enough that those who are let in are answered soon, on a slow machine too.
//!
//! A tenant may take places as long as it has fewer than are left, like the lines of the queue before the sequencer:
//! one that floods the gateway has half of them, and whoever comes rarely finds one. Beside a flood few are left at
//! some moments and many at others, and the flood is there first when they come back; so a tenant may also take them up
//! to its part, whoever has the others (`docs/decisions/0057-a-part-for-sure.md`). Whoever asks for much more than its
//! share and is refused often is *greedy*, and has an equal part and no more, of places that go sooner: already when
//! asks of the others take longer than they need to (`docs/decisions/0064-an-equal-part-for-who-asks-for-more.md`).

use model::TenantId;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long asks may take, on average, before places are taken away. The slowest take about twice the average. The
/// places that this leaves are enough to fill commits. With more, what a flood has in the gateway is in no cache, and
/// whoever comes beside it waits behind more of it.
const ASK_TIME_TARGET: Duration = Duration::from_millis(12);
/// How long asks of everybody else may take, on average, before places are taken from the greedy. The cores have a rest
/// now and then if it is kept.
const ASK_TIME_TARGET_BESIDE_GREEDY: Duration = Duration::from_millis(4);
/// How many commits they may take, where those take longer than that: each ask waits for half of the one before its
/// own, and for its own. With fewer places, a slow disk would do less and be no faster.
const ASK_TIME_TARGET_COMMITS: u32 = 2;
/// Over which time the average is taken: some commits, on a slow disk too.
pub(super) const WINDOW: Duration = Duration::from_millis(100);
/// How many asks in a window say something about how long they take. Fewer are no overload, however slow they are.
const WINDOW_ASKS_MIN: u32 = 32;
/// How many asks that find no place in a window are many. Who keeps to its part is refused a few when they come in a burst.
const WINDOW_REFUSALS_MIN: usize = 32;
/// How long what was seen is believed.
const USUAL_VALID_FOR: Duration = Duration::from_millis(250);
/// One in so many of the places there are goes at the end of a window in which asks took long.
const SHRINK_DIVISOR: usize = 8;
/// One in so many comes back at the end of any other.
const GROW_DIVISOR: usize = 16;
/// One in so many of all places is always there: 256 of 2,048, of which one tenant may have 128. So many callers fill
/// every commit, and with fewer less would be answered.
const LIMIT_MIN_DIVISOR: usize = 8;
/// One in so many of all places is always there for the greedy, who share it: 64 of 2,048.
const GREEDY_LIMIT_MIN_DIVISOR: usize = 32;
/// Each of the greedy may have so many, however many tenants there are.
const GREEDY_PLACES_MIN: usize = 4;
/// How many times an equal share of what is let in is much more than that. Bursts are less.
const GREEDY_SHARES_MIN: usize = 2;
/// How many times an equal part of the places a tenant has for sure. What it asks comes in bursts: with no more than an
/// equal part it would be refused although it asks for less.
const SURE_PARTS_MAX: usize = 2;

/// The places, and who has them.
pub(super) struct Room {
    taken: usize,
    /// How many each tenant has. Who has none is not here.
    tenants: HashMap<TenantId, usize>,
    /// How many there may be now, and at most.
    limit: usize,
    limit_max: usize,
    /// Of how many the greedy have an equal part.
    greedy_limit: usize,
    /// How long commits took when they took least, in the last window in which anybody came: that is what the disk
    /// needs, and not what the cores do besides.
    commit_min: Duration,
    window: Window,
    /// Tenants that flooded the gateway in the last window.
    floods: HashSet<TenantId>,
    /// Tenants that asked for much more than their shares in the last window, and were refused often.
    greedy: HashSet<TenantId>,
    /// How long asks took in the last window, if there were many, and when it ended.
    usual: Option<(Duration, Instant)>,
}

/// What came and left since it began.
struct Window {
    began: Instant,
    /// What left, and what of it was of tenants that are not greedy.
    all: Answered,
    others: Answered,
    /// How many found a place.
    let_in: usize,
    /// The tenants whose last place was given back by an ask that was answered.
    gone: HashSet<TenantId>,
    /// How long commits took when they took least. None before anybody has come.
    commit_min: Option<Duration>,
    /// The asks of each tenant since one of them found no place. Who has none of those is not here.
    asks: HashMap<TenantId, Asks>,
}

/// Asks that were answered.
#[derive(Debug, Default)]
struct Answered {
    count: u32,
    took: Duration,
}

impl Answered {
    fn note(&mut self, took: Duration) {
        self.count += 1;
        self.took += took;
    }

    /// How long they took on average, if they are so many.
    fn average_of(&self, count_min: u32) -> Option<Duration> {
        (self.count >= count_min).then(|| self.took / self.count)
    }
}

/// Asks of a tenant.
#[derive(Debug, Default)]
struct Asks {
    let_in: usize,
    refused: usize,
}

impl Asks {
    /// Whether many were refused, and at least as many as found a place. A tenant that asks for a little more than
    /// there is room for is no flood: the lane for floods answers less than the whole gateway, so a tenant in it is
    /// refused more, and this one would never leave it
    /// (`docs/decisions/0062-who-floods-is-refused-more-than-it-gets.md`).
    const fn are_a_flood(&self) -> bool {
        self.refused >= WINDOW_REFUSALS_MIN && self.refused >= self.let_in
    }

    /// Whether many were refused, and all of them are much more than a share. Who is refused although it keeps to its
    /// share is not kept at it.
    const fn are_greedy(&self, share: usize) -> bool {
        self.refused >= WINDOW_REFUSALS_MIN && self.let_in + self.refused >= GREEDY_SHARES_MIN * share
    }
}

impl Window {
    fn new(began: Instant) -> Self {
        Self {
            began,
            all: Answered::default(),
            others: Answered::default(),
            let_in: 0,
            gone: HashSet::new(),
            commit_min: None,
            asks: HashMap::new(),
        }
    }
}

impl Room {
    pub(super) fn new(places_max: usize, now: Instant) -> Self {
        Self {
            taken: 0,
            tenants: HashMap::new(),
            limit: places_max,
            limit_max: places_max,
            greedy_limit: places_max,
            commit_min: Duration::ZERO,
            window: Window::new(now),
            floods: HashSet::new(),
            greedy: HashSet::new(),
            usual: None,
        }
    }

    /// Takes a place, if there is one for this tenant, while commits take so long.
    pub(super) fn enter(&mut self, tenant: TenantId, commit: Duration) -> bool {
        self.window.commit_min = Some(self.window.commit_min.map_or(commit, |least| least.min(commit)));
        if self.refuse_if_full(tenant) {
            return false;
        }
        *self.tenants.entry(tenant).or_default() += 1;
        self.taken += 1;
        self.window.let_in += 1;
        if let Some(asks) = self.window.asks.get_mut(&tenant) {
            asks.let_in += 1;
        }
        true
    }

    /// Refuses this tenant, which is counted, if there is no place for it. Returns whether it did.
    pub(super) fn refuse_if_full(&mut self, tenant: TenantId) -> bool {
        let is_refused = !self.has_place(tenant);
        if is_refused {
            self.window.asks.entry(tenant).or_default().refused += 1;
        }
        is_refused
    }

    /// Whether this tenant floods the gateway, as far as the last window tells.
    pub(super) fn is_flooded_by(&self, tenant: TenantId) -> bool {
        self.floods.contains(&tenant)
    }

    /// Whether there may be a tenant that would get no place, or floods the gateway: one that had all that are taken,
    /// or one that did so or was greedy in the last window.
    pub(super) fn is_under_pressure(&self) -> bool {
        self.taken >= self.left() || !self.floods.is_empty() || !self.greedy.is_empty()
    }

    /// Whether there is a place for this tenant: fewer than are left, or fewer than its part. Who is greedy needs both.
    fn has_place(&self, tenant: TenantId) -> bool {
        let of_tenant = self.tenants.get(&tenant).copied().unwrap_or_default();
        // Who has none is one more.
        let tenants = self.tenants.len() + usize::from(of_tenant == 0);
        if self.greedy.contains(&tenant) {
            return of_tenant < self.left() && of_tenant < self.greedy_part(tenants);
        }
        let sure = self.limit * tenants.min(SURE_PARTS_MAX) / parts(tenants);
        of_tenant < self.left() || of_tenant < sure && of_tenant < self.limit_max - self.taken
    }

    /// How many places who is greedy may have.
    fn greedy_part(&self, tenants: usize) -> usize {
        let part = self.limit.min(self.greedy_limit) / parts(tenants);
        part.max(GREEDY_PLACES_MIN)
    }

    const fn left(&self) -> usize {
        self.limit.saturating_sub(self.taken)
    }

    /// Gives a place back, after so long.
    pub(super) fn leave(&mut self, tenant: TenantId, took: Duration, now: Instant) {
        if self.give_back(tenant) {
            self.window.gone.insert(tenant);
        }
        self.window.all.note(took);
        if !self.greedy.contains(&tenant) {
            self.window.others.note(took);
        }
        if now.duration_since(self.window.began) >= WINDOW {
            self.end_window(now);
        }
    }

    /// Gives the place back of an ask that nobody has looked at, or that was refused at once, as if it had taken none.
    /// It ends no window: where nothing is answered, one after the other would bring places back.
    pub(super) fn decline(&mut self, tenant: TenantId, since: Instant) {
        self.give_back(tenant);
        if since < self.window.began {
            // The window in which it was let in is over.
            return;
        }
        self.window.let_in = self.window.let_in.saturating_sub(1);
        if let Some(asks) = self.window.asks.get_mut(&tenant) {
            asks.let_in = asks.let_in.saturating_sub(1);
        }
    }

    /// Gives a place back. Returns whether it was the last one of its tenant.
    fn give_back(&mut self, tenant: TenantId) -> bool {
        let Some(of_tenant) = self.tenants.get_mut(&tenant) else {
            return false;
        };
        *of_tenant -= 1;
        self.taken -= 1;
        if *of_tenant > 0 {
            return false;
        }
        self.tenants.remove(&tenant);
        true
    }

    /// How long asks take, if it was seen lately.
    pub(super) fn usual(&self, now: Instant) -> Option<Duration> {
        let (took, at) = self.usual?;
        (now.duration_since(at) < USUAL_VALID_FOR).then_some(took)
    }

    pub(super) const fn taken(&self) -> usize {
        self.taken
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    fn end_window(&mut self, now: Instant) {
        let ended = std::mem::replace(&mut self.window, Window::new(now));
        self.commit_min = ended.commit_min.unwrap_or(self.commit_min);
        let took = ended.all.average_of(WINDOW_ASKS_MIN);
        self.move_limits(took, ended.others.average_of(1));
        self.usual = took.map(|took| (took, now));
        let share = ended.let_in / self.tenants_of(&ended).max(1);
        let tenants = |is_meant: &dyn Fn(&Asks) -> bool| {
            let meant = ended.asks.iter().filter(|(_, asks)| is_meant(asks));
            meant.map(|(tenant, _)| *tenant).collect()
        };
        self.floods = tenants(&Asks::are_a_flood);
        self.greedy = tenants(&|asks| asks.are_greedy(share));
    }

    /// Takes places away or brings some back, after a window in which asks took so long: all of them, and those of
    /// tenants that are not greedy.
    fn move_limits(&mut self, took: Option<Duration>, took_others: Option<Duration>) {
        let commits = ASK_TIME_TARGET_COMMITS * self.commit_min;
        let is_long = took.is_some_and(|took| took > ASK_TIME_TARGET.max(commits));
        let limit_min = self.limit_max.div_ceil(LIMIT_MIN_DIVISOR);
        self.limit = moved(self.limit, is_long, limit_min, self.limit_max);
        let is_long = took_others.is_some_and(|took| took > ASK_TIME_TARGET_BESIDE_GREEDY.max(commits));
        let is_taken_away = is_long && !self.greedy.is_empty();
        let greedy_limit = self.greedy_limit.min(self.limit);
        let greedy_limit_min = self.limit_max.div_ceil(GREEDY_LIMIT_MIN_DIVISOR);
        self.greedy_limit = moved(greedy_limit, is_taken_away, greedy_limit_min, self.limit_max);
    }

    /// How many tenants had places in a window that has just ended, but for those whose last ask was not answered.
    fn tenants_of(&self, ended: &Window) -> usize {
        let gone = ended
            .gone
            .iter()
            .filter(|tenant| !self.tenants.contains_key(tenant));
        self.tenants.len() + gone.count()
    }
}

/// How many equal parts there are. Somebody else may come, so they are one more than the tenants that have places.
const fn parts(tenants: usize) -> usize {
    tenants + 1
}

/// A limit at the end of a window in which asks took too long, or not.
fn moved(limit: usize, is_long: bool, least: usize, most: usize) -> usize {
    if is_long {
        (limit - limit.div_ceil(SHRINK_DIVISOR)).max(least)
    } else {
        (limit + limit.div_ceil(GROW_DIVISOR)).min(most)
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
            for ask in 1..=WINDOW_ASKS_MIN {
                if ask == WINDOW_ASKS_MIN {
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
        room.limit = MOST / LIMIT_MIN_DIVISOR;
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
        (1..WINDOW_REFUSALS_MIN).for_each(|_| assert!(!room.enter(A, COMMIT)));
        (2..WINDOW_REFUSALS_MIN).for_each(|_| assert!(!room.enter(B, COMMIT)));
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

    /// Lets a tenant ask for all places it can get and for twice as many more, and ends the window. They are free afterwards.
    fn ask_for_all(room: &mut Room, tenant: TenantId, commit: Duration, now: Instant) {
        let places = std::iter::from_fn(|| room.enter(tenant, commit).then_some(())).count();
        (0..2 * places.max(WINDOW_REFUSALS_MIN)).for_each(|_| assert!(!room.enter(tenant, commit)));
        (0..places).for_each(|_| room.leave(tenant, Duration::ZERO, now));
    }

    #[test]
    fn who_asks_for_much_more_than_its_share_has_an_equal_part_until_a_window_passes_without() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        assert!(room.enter(B, COMMIT) && room.enter(C, COMMIT));
        now += WINDOW;
        ask_for_all(&mut room, A, COMMIT, now);
        assert!(room.is_under_pressure());
        assert_eq!(fill(&mut room, A), MOST / 4);
        (0..MOST / 4).for_each(|_| room.leave(A, Duration::ZERO, now));
        assert_eq!(fill(&mut room, B), MOST / 2 - 1);
        (0..MOST / 2 - 1).for_each(|_| room.leave(B, Duration::ZERO, now));
        room.leave(C, Duration::ZERO, now + WINDOW);
        assert!(fill(&mut room, A) > MOST / 4);
    }

    #[test]
    fn who_is_refused_within_its_share_is_not_kept_at_it() {
        for (of_others, is_kept) in [(MOST / 4, true), (2 * MOST, false)] {
            let now = Instant::now();
            let mut room = Room::new(MOST, now);
            // Others who come and go.
            for _ in 0..of_others {
                for tenant in [B, C] {
                    assert!(room.enter(tenant, COMMIT));
                    room.leave(tenant, Duration::ZERO, now);
                }
            }
            ask_for_all(&mut room, A, COMMIT, now + WINDOW);
            assert_eq!(
                room.greedy.contains(&A),
                is_kept,
                "{of_others} each of the others"
            );
        }
    }

    /// So many windows in which one tenant is greedy and asks of another one take so long; what the former may have then.
    fn greedy_part(windows: u32, took: Duration, commit: Duration) -> usize {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        for _ in 0..windows {
            now += WINDOW;
            ask_for_all(&mut room, A, commit, now);
            assert!(room.enter(B, commit));
            room.leave(B, took, now);
        }
        ask_for_all(&mut room, A, commit, now + WINDOW);
        assert_eq!(room.limit(), MOST);
        fill(&mut room, A)
    }

    #[test]
    fn who_is_greedy_has_fewer_places_while_asks_of_others_take_long() {
        assert_eq!(greedy_part(3, ASK_TIME_TARGET_BESIDE_GREEDY, COMMIT), MOST / 2);
        let long = 2 * ASK_TIME_TARGET_BESIDE_GREEDY;
        assert!((MOST / LIMIT_MIN_DIVISOR / 2..MOST / 2).contains(&greedy_part(3, long, COMMIT)));
        assert_eq!(
            greedy_part(100, long, COMMIT),
            MOST / GREEDY_LIMIT_MIN_DIVISOR / 2
        );
    }

    #[test]
    fn beside_a_slow_disk_who_is_greedy_has_as_many_as_before() {
        let commit = 4 * ASK_TIME_TARGET_BESIDE_GREEDY;
        assert_eq!(greedy_part(100, commit * 3 / 2, commit), MOST / 2);
    }

    #[test]
    fn there_are_a_few_places_for_who_is_greedy_among_many() {
        let now = Instant::now();
        let mut room = Room::new(64, now);
        ask_for_all(&mut room, A, COMMIT, now + WINDOW);
        for tenant in 2..32 {
            assert!(room.enter(TenantId::from_bytes([tenant; 16]), COMMIT));
        }
        assert_eq!(fill(&mut room, A), GREEDY_PLACES_MIN);
    }

    #[test]
    fn who_gets_more_than_it_is_refused_is_no_flood() {
        for (let_in, is_flooded) in [(WINDOW_REFUSALS_MIN, true), (WINDOW_REFUSALS_MIN + 1, false)] {
            let now = Instant::now();
            let mut room = Room::new(MOST, now);
            fill(&mut room, A);
            (1..WINDOW_REFUSALS_MIN).for_each(|_| assert!(!room.enter(A, COMMIT)));
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
        windows(&mut room, &mut now, 3, 2 * ASK_TIME_TARGET);
        assert!((MOST / LIMIT_MIN_DIVISOR + 1..MOST).contains(&room.limit()));
        windows(&mut room, &mut now, 100, 2 * ASK_TIME_TARGET);
        assert_eq!((room.limit(), fill(&mut room, A)), (256, 128));
        (0..128).for_each(|_| room.leave(A, Duration::ZERO, now));
        windows(&mut room, &mut now, 100, ASK_TIME_TARGET / 2);
        assert_eq!(room.limit(), MOST);
    }

    #[test]
    fn asks_that_nobody_has_looked_at_bring_no_place_back() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        for _ in 0..3 {
            let before = room.limit();
            for _ in 0..10 * WINDOW_ASKS_MIN {
                assert!(room.enter(A, COMMIT));
                room.decline(A, now);
            }
            windows(&mut room, &mut now, 1, 2 * ASK_TIME_TARGET);
            assert!(room.limit() < before);
            assert_eq!((room.usual(now), room.taken()), (Some(2 * ASK_TIME_TARGET), 0));
        }
    }

    #[test]
    fn a_tenant_whose_asks_nobody_has_looked_at_makes_nobody_greedy() {
        let now = Instant::now();
        let mut room = Room::new(MOST, now);
        let refused = fill(&mut room, A) / 10;
        (0..refused).for_each(|_| assert!(!room.enter(A, COMMIT)));
        room.leave(A, Duration::ZERO, now);
        for _ in 0..WINDOW_ASKS_MIN {
            assert!(room.enter(B, COMMIT));
            room.decline(B, now);
        }
        room.leave(A, Duration::ZERO, now + WINDOW);
        assert!(!room.greedy.contains(&A));
    }

    #[test]
    fn asks_that_nobody_has_looked_at_make_a_flood_no_smaller() {
        let now = Instant::now();
        let mut room = Room::new(MOST, now);
        fill(&mut room, A);
        (1..WINDOW_REFUSALS_MIN).for_each(|_| assert!(!room.enter(A, COMMIT)));
        room.leave(A, Duration::ZERO, now);
        for _ in 0..2 * WINDOW_REFUSALS_MIN {
            assert!(room.enter(A, COMMIT));
            room.decline(A, now);
        }
        room.leave(A, Duration::ZERO, now + WINDOW);
        assert!(room.is_flooded_by(A));
    }

    #[test]
    fn a_slow_disk_takes_no_place_away() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        let commit = 4 * ASK_TIME_TARGET;
        for ask in 1..=10 * WINDOW_ASKS_MIN {
            if ask % WINDOW_ASKS_MIN == 0 {
                now += WINDOW;
            }
            assert!(room.enter(A, commit));
            room.leave(A, commit * 3 / 2, now);
        }
        assert_eq!(room.limit(), MOST);
        assert_eq!(room.usual(now), Some(commit * 3 / 2));
    }

    #[test]
    fn a_slow_disk_takes_no_place_away_when_nobody_comes_while_asks_are_answered() {
        let now = Instant::now();
        let mut room = Room::new(MOST, now);
        let commit = 4 * ASK_TIME_TARGET;
        (0..=2 * WINDOW_ASKS_MIN).for_each(|_| assert!(room.enter(A, commit)));
        room.leave(A, commit, now + WINDOW);
        for ask in 1..=2 * WINDOW_ASKS_MIN {
            let windows = if ask == 2 * WINDOW_ASKS_MIN { 2 } else { 1 };
            room.leave(A, commit, now + windows * WINDOW);
        }
        assert_eq!((room.limit(), room.usual(now + 2 * WINDOW)), (MOST, Some(commit)));
    }

    #[test]
    fn one_slow_ask_among_many_takes_no_place_away() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        (0..200).for_each(|_| assert!(room.enter(A, COMMIT)));
        (0..198).for_each(|_| room.leave(A, ASK_TIME_TARGET / 5, now));
        room.leave(A, 40 * ASK_TIME_TARGET, now);
        now += WINDOW;
        room.leave(A, ASK_TIME_TARGET / 5, now);
        assert_eq!(room.limit(), MOST);
    }

    #[test]
    fn a_few_slow_asks_are_no_overload() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        for _ in 0..10 * WINDOW_ASKS_MIN {
            now += WINDOW;
            assert!(room.enter(A, COMMIT));
            room.leave(A, 40 * ASK_TIME_TARGET, now);
        }
        assert_eq!((room.limit(), room.usual(now)), (MOST, None));
    }

    #[test]
    fn the_usual_time_of_asks_is_unknown_when_the_last_one_is_long_ago() {
        let mut now = Instant::now();
        let mut room = Room::new(MOST, now);
        assert_eq!(room.usual(now), None);
        windows(&mut room, &mut now, 1, ASK_TIME_TARGET);
        assert_eq!(room.usual(now), Some(ASK_TIME_TARGET));
        assert_eq!(room.usual(now + USUAL_VALID_FOR), None);
    }

    #[test]
    fn there_is_a_place_in_the_smallest_room() {
        let mut now = Instant::now();
        let mut room = Room::new(2, now);
        windows(&mut room, &mut now, 10, 2 * ASK_TIME_TARGET);
        assert!(room.enter(A, COMMIT));
    }
}
