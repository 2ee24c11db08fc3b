//! The queue before the sequencer: bounded, and fair between tenants.
//!
//! Every tenant has a lane of its own. It may grow until it is as long as the room that is left, the rule of dynamic
//! thresholds (Choudhury and Hahne, 1998): a tenant that floods the gateway fills half of the queue, two that do fill a third
//! each, and whoever comes rarely finds room. Lanes are served in turn, by how much of a batch they take (deficit round
//! robin, Shreedhar and Varghese, 1995), so nobody waits for more than his share of the others. Room and turns go by
//! weight: what is long takes as much as several that are short. What takes long to record takes more of a turn, and no
//! more room: whoever has much of it waits longer for its own, and is refused no sooner.
//!
//! What people and jobs change has lanes of its own, which are served before those of agents: agents that flood the
//! gateway do not keep anybody from freezing them. The same rule holds there, so the people of one tenant leave room to
//! those of others. What changes a directory, as freezing an agent does, goes before all else: whoever votes or funds
//! budgets without rest keeps nobody of the same tenant from it either. Freezing a budget changes no directory.

use super::busy_poll::BusyPoll;
use crate::locks::lock;
use model::TenantId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::Notify;

/// How much of a batch a tenant gets before the next one has its turn, in short proposals.
const QUANTUM: usize = 32;
/// How many changes of directories may wait, and how many other submissions of people and jobs. Of both there are few.
const CHANGES_MAX: usize = 256;
/// How many ranks there are.
const RANKS: usize = 3;

/// Which lane a submission waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    /// Before and behind whom.
    pub(super) rank: Rank,
    /// Whose it is.
    pub(super) tenant: TenantId,
}

/// Who goes before whom: a lane is served when all of the ranks before its own are empty, those of agents also when no
/// more of people is taken into a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rank {
    /// What changes a directory.
    Directories,
    /// What else people and jobs want.
    People,
    /// What agents want.
    Agents,
}

/// How much something takes, in short proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Weight {
    /// Of the room, while it waits.
    pub(super) room: usize,
    /// Of its tenant's turn, and of a commit.
    pub(super) work: usize,
}

impl Weight {
    /// That of one short proposal.
    const ONE: Self = Self { room: 1, work: 1 };
}

/// Why something does not get into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoEntry {
    /// There is no room in this lane.
    Full,
    /// Nobody will ever take it out.
    Closed,
}

/// Where submissions go in. The queue ends when the last of these is gone.
pub(super) struct Entrance<T>(Arc<Door<T>>);

/// Where they come out.
pub(super) struct Exit<T> {
    inside: Arc<Inside<T>>,
    poll: BusyPoll,
}

/// Closes the queue when it is dropped.
struct Door<T>(Arc<Inside<T>>);

struct Inside<T> {
    waiting: Mutex<Waiting<T>>,
    /// Something came in, or nothing will any more.
    news: Notify,
    /// Whether there may be something: what is looked at without the lock. It says yes before whoever puts something in
    /// lets go of the lock, and no only where somebody has seen with the lock that there is nothing.
    may_have_any: AtomicBool,
}

struct Waiting<T> {
    /// By rank.
    ranks: [Lanes<T>; RANKS],
    is_closed: bool,
}

/// The lanes of one rank.
struct Lanes<T> {
    tenants: HashMap<TenantId, Tenant<T>>,
    /// Whose turn it is, and who comes after. Who has nothing waiting is not here.
    turns: VecDeque<TenantId>,
    /// How much of the room is taken.
    size: usize,
    room: usize,
}

struct Tenant<T> {
    items: VecDeque<(Weight, T)>,
    /// How much of the room it takes.
    size: usize,
    /// How much it may still take in its turn.
    credit: usize,
}

/// A queue with room for so many short proposals of agents.
pub(super) fn queue<T>(room: usize) -> (Entrance<T>, Exit<T>) {
    let waiting = Waiting {
        ranks: [CHANGES_MAX, CHANGES_MAX, room].map(Lanes::with_room),
        is_closed: false,
    };
    let inside = Arc::new(Inside {
        waiting: Mutex::new(waiting),
        news: Notify::new(),
        may_have_any: AtomicBool::new(false),
    });
    let exit = Exit {
        inside: Arc::clone(&inside),
        poll: BusyPoll::new(),
    };
    (Entrance(Arc::new(Door(inside))), exit)
}

impl<T> Clone for Entrance<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Entrance<T> {
    /// Puts something at the end of its lane; `weight` is how much it takes. What people and jobs want takes one place,
    /// whatever it weighs, and nothing takes more room than a tenant may have.
    pub(super) fn push(&self, lane: Lane, weight: Weight, item: T) -> Result<(), NoEntry> {
        let inside = &self.0.0;
        let mut waiting = inside.lock();
        if waiting.is_closed {
            return Err(NoEntry::Closed);
        }
        let lanes = waiting.lanes(lane.rank);
        let weight = if lane.rank == Rank::Agents {
            let room = weight.room.min(lanes.share());
            Weight { room, ..weight }
        } else {
            Weight::ONE
        };
        if !lanes.has_room(lane.tenant, weight.room) {
            return Err(NoEntry::Full);
        }
        lanes.queue_up(lane.tenant, weight, item);
        inside.may_have_any.store(true, Ordering::Release);
        drop(waiting);
        inside.news.notify_one();
        Ok(())
    }

    /// Whether one more that is short would find room now. By the time it comes that may have changed.
    pub(super) fn has_room(&self, lane: Lane) -> bool {
        self.0.0.lock().lanes(lane.rank).has_room(lane.tenant, 1)
    }

    /// What the proposals of agents weigh that wait, and how many submissions of people and jobs do.
    pub(super) fn waiting(&self) -> usize {
        self.0.0.lock().ranks.iter().map(|lanes| lanes.size).sum()
    }

    /// Whether nobody takes anything out any more.
    pub(super) fn is_closed(&self) -> bool {
        self.0.0.lock().is_closed
    }
}

impl<T> Exit<T> {
    /// What comes next, as soon as there is something; none when nothing will come any more.
    pub(super) async fn next(&mut self) -> Option<T> {
        if let Some(item) = self.take() {
            return Some(item);
        }
        let began = Instant::now();
        self.poll
            .look(|| self.inside.may_have_any.load(Ordering::Acquire));
        let next = self.wait().await;
        self.poll.note(began.elapsed());
        next
    }

    async fn wait(&self) -> Option<T> {
        loop {
            {
                let mut waiting = self.inside.lock();
                if let Some(item) = waiting.take() {
                    return Some(item);
                }
                if waiting.is_closed {
                    return None;
                }
            }
            // Whoever comes in between has left a permit.
            self.inside.news.notified().await;
        }
    }

    /// What comes next of what changes a directory or is wanted by agents, if it is there. What else people want stays.
    pub(super) fn take_beside_people(&self) -> Option<T> {
        self.inside.lock().take_beside_people()
    }

    /// What comes next, if it is there.
    pub(super) fn take(&self) -> Option<T> {
        let mut waiting = self.inside.lock();
        let item = waiting.take();
        if item.is_none() {
            self.inside.may_have_any.store(false, Ordering::Release);
        }
        item
    }
}

impl<T> Inside<T> {
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        lock(&self.waiting)
    }
}

impl<T> Waiting<T> {
    fn lanes(&mut self, rank: Rank) -> &mut Lanes<T> {
        &mut self.ranks[rank as usize]
    }

    fn take(&mut self) -> Option<T> {
        self.ranks.iter_mut().find_map(Lanes::take)
    }

    fn take_beside_people(&mut self) -> Option<T> {
        let mut ranks = [Rank::Directories, Rank::Agents].into_iter();
        ranks.find_map(|rank| self.lanes(rank).take())
    }
}

impl<T> Lanes<T> {
    fn with_room(room: usize) -> Self {
        Self {
            tenants: HashMap::new(),
            turns: VecDeque::new(),
            size: 0,
            room,
        }
    }

    /// How much of the room one tenant alone gets.
    fn share(&self) -> usize {
        (self.room / 2).max(1)
    }

    fn has_room(&self, tenant: TenantId, size: usize) -> bool {
        let left = self.room.saturating_sub(self.size);
        let before = self.tenants.get(&tenant).map_or(0, |lane| lane.size);
        // Who has much already gets nothing that leaves less than that to the others.
        size <= left.saturating_sub(before)
    }

    fn queue_up(&mut self, tenant: TenantId, weight: Weight, item: T) {
        let lane = self.tenants.entry(tenant).or_insert_with(|| {
            self.turns.push_back(tenant);
            Tenant {
                items: VecDeque::new(),
                size: 0,
                credit: QUANTUM,
            }
        });
        lane.items.push_back((weight, item));
        lane.size += weight.room;
        self.size += weight.room;
    }

    fn take(&mut self) -> Option<T> {
        loop {
            let tenant = *self.turns.front()?;
            let lane = self.tenants.get_mut(&tenant);
            let lane = lane.expect("whoever has a turn has a lane");
            if let Some(item) = lane.take(&mut self.size) {
                if lane.items.is_empty() {
                    // Credit is not saved up: whoever comes rarely does not get to flood.
                    self.tenants.remove(&tenant);
                    self.turns.pop_front();
                }
                return Some(item);
            }
            lane.credit += QUANTUM;
            self.turns.rotate_left(1);
        }
    }
}

impl<T> Tenant<T> {
    /// The first of the lane, if there is credit for it; `waiting` is how much of the room is taken.
    fn take(&mut self, waiting: &mut usize) -> Option<T> {
        let (weight, item) = self
            .items
            .pop_front_if(|(weight, _)| weight.work <= self.credit)?;
        self.credit -= weight.work;
        self.size -= weight.room;
        *waiting -= weight.room;
        Some(item)
    }
}

impl<T> Drop for Door<T> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.news.notify_one();
    }
}

/// Whoever takes things out is gone, perhaps in a panic: those who wait must hear of it.
impl<T> Drop for Exit<T> {
    fn drop(&mut self) {
        let mut waiting = self.inside.lock();
        waiting.is_closed = true;
        for lanes in &mut waiting.ranks {
            *lanes = Lanes::with_room(lanes.room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Lane = lane(Rank::Agents, 1);
    const B: Lane = lane(Rank::Agents, 2);
    const C: Lane = lane(Rank::Agents, 3);
    const VOTES_OF_A: Lane = lane(Rank::People, 1);
    const VOTES_OF_B: Lane = lane(Rank::People, 2);
    const FREEZES_OF_A: Lane = lane(Rank::Directories, 1);

    const fn lane(rank: Rank, tenant: u8) -> Lane {
        Lane {
            rank,
            tenant: TenantId::from_bytes([tenant; 16]),
        }
    }

    /// What takes as much of a turn as of the room.
    const fn of(weight: usize) -> Weight {
        Weight {
            room: weight,
            work: weight,
        }
    }

    /// Fills a lane, and says how many went in.
    fn fill(entrance: &Entrance<Lane>, lane: Lane, size: usize) -> usize {
        let mut count = 0;
        while entrance.push(lane, of(size), lane).is_ok() {
            count += 1;
        }
        count
    }

    fn taken(exit: &Exit<Lane>, most: usize) -> Vec<Lane> {
        std::iter::from_fn(|| exit.take()).take(most).collect()
    }

    #[test]
    fn one_tenant_fills_half_of_the_queue_and_the_next_ones_find_room() {
        let (entrance, exit) = queue(1_024);
        assert_eq!(fill(&entrance, A, 1), 512);
        assert_eq!(fill(&entrance, B, 1), 256);
        assert_eq!(fill(&entrance, C, 1), 128);
        assert_eq!(entrance.push(A, of(1), A), Err(NoEntry::Full));
        assert!(!entrance.has_room(A));
        assert_eq!(taken(&exit, usize::MAX).len(), 896);
        assert_eq!(fill(&entrance, A, 1), 512);
    }

    #[test]
    fn whoever_comes_rarely_waits_for_nobodys_flood() {
        let (entrance, exit) = queue(1_024);
        fill(&entrance, A, 1);
        entrance.push(B, of(1), B).unwrap();
        assert!(taken(&exit, QUANTUM + 1).contains(&B));
    }

    #[test]
    fn tenants_get_the_same_share_whatever_the_size_of_what_they_send() {
        let (entrance, exit) = queue(4_096);
        fill(&entrance, A, 100);
        fill(&entrance, B, 1);
        let first = taken(&exit, 800);
        let of_a = first.iter().filter(|lane| **lane == A).count() * 100;
        let of_b = first.iter().filter(|lane| **lane == B).count();
        assert!(of_a.abs_diff(of_b) <= 100 + QUANTUM, "{of_a} and {of_b}");
    }

    #[test]
    fn what_is_heavy_takes_its_weight_of_the_room_and_of_a_turn() {
        let (entrance, exit) = queue(1_024);
        assert_eq!(fill(&entrance, A, 16), 512 / 16);
        assert!(!entrance.has_room(A) && entrance.has_room(B));
        assert_eq!(entrance.waiting(), 512);
        assert_eq!(taken(&exit, usize::MAX).len(), 32);
        entrance.push(A, of(2 * QUANTUM), A).unwrap();
        entrance.push(A, of(1), A).unwrap();
        entrance.push(B, of(1), B).unwrap();
        assert_eq!(taken(&exit, 3), [B, A, A]);
    }

    #[test]
    fn what_takes_long_takes_more_of_a_turn_and_no_more_room() {
        let (entrance, exit) = queue(1_024);
        let slow = Weight {
            room: 1,
            work: 2 * QUANTUM,
        };
        let mut count = 0;
        while entrance.push(A, slow, A).is_ok() {
            count += 1;
        }
        assert_eq!(count, 512);
        for _ in 0..QUANTUM {
            entrance.push(B, of(1), B).unwrap();
        }
        // The first of them is paid for in the second turn of its tenant.
        assert_eq!(taken(&exit, QUANTUM), [B; QUANTUM]);
        assert_eq!(taken(&exit, usize::MAX), [A; 512]);
        assert_eq!(entrance.waiting(), 0);
    }

    #[test]
    fn what_is_heavier_than_all_room_gets_in_alone() {
        let (entrance, exit) = queue(64);
        entrance.push(A, of(65), A).unwrap();
        assert_eq!(entrance.push(A, of(1), A), Err(NoEntry::Full));
        // Whoever comes beside it finds room.
        entrance.push(B, of(1), B).unwrap();
        assert_eq!(entrance.push(C, of(65), C), Err(NoEntry::Full));
        assert_eq!(taken(&exit, usize::MAX).len(), 2);
        entrance.push(C, of(65), C).unwrap();
        assert_eq!(taken(&exit, usize::MAX), [C]);
        assert_eq!(entrance.waiting(), 0);
        // Nor does it beside what its tenant has already: the two would leave next to nothing to others.
        let (entrance, _exit) = queue(64);
        for _ in 0..31 {
            entrance.push(A, of(1), A).unwrap();
        }
        assert_eq!(entrance.push(A, of(32), A), Err(NoEntry::Full));
        entrance.push(B, of(32), B).unwrap();
    }

    #[test]
    fn changes_go_before_a_flood_and_find_room_beside_it() {
        let (entrance, exit) = queue(64);
        fill(&entrance, A, 1);
        entrance.push(VOTES_OF_A, of(500), VOTES_OF_A).unwrap();
        entrance.push(FREEZES_OF_A, of(500), FREEZES_OF_A).unwrap();
        assert_eq!(taken(&exit, 3), [FREEZES_OF_A, VOTES_OF_A, A]);
    }

    #[test]
    fn the_people_of_one_tenant_leave_room_to_those_of_others_and_turns() {
        let (entrance, exit) = queue(64);
        assert_eq!(fill(&entrance, VOTES_OF_A, 1), CHANGES_MAX / 2);
        assert_eq!(entrance.push(VOTES_OF_A, of(1), VOTES_OF_A), Err(NoEntry::Full));
        assert_eq!(fill(&entrance, VOTES_OF_B, 1), CHANGES_MAX / 4);
        assert!(taken(&exit, QUANTUM + 1).contains(&VOTES_OF_B));
        // Nor do they keep anybody of their own from freezing an agent.
        fill(&entrance, VOTES_OF_A, 1);
        assert_eq!(fill(&entrance, FREEZES_OF_A, 1), CHANGES_MAX / 2);
        assert_eq!(exit.take(), Some(FREEZES_OF_A));
    }

    #[test]
    fn beside_people_who_wait_on_directories_and_agents_are_served() {
        let (entrance, exit) = queue(64);
        for lane in [A, VOTES_OF_A, VOTES_OF_B, FREEZES_OF_A] {
            entrance.push(lane, of(1), lane).unwrap();
        }
        let beside: Vec<_> = std::iter::from_fn(|| exit.take_beside_people()).collect();
        assert_eq!(beside, [FREEZES_OF_A, A]);
        assert_eq!(taken(&exit, 3), [VOTES_OF_A, VOTES_OF_B]);
    }

    #[test]
    fn everything_comes_out_once_in_the_order_of_its_line() {
        let (entrance, exit) = queue(8_192);
        for n in 0..200_usize {
            let lane = [A, B, C][n % 3];
            entrance.push(lane, of(n % 7 + 1), (lane, n)).unwrap();
        }
        let all: Vec<_> = std::iter::from_fn(|| exit.take()).collect();
        assert_eq!(all.len(), 200);
        for lane in [A, B, C] {
            let of_lane: Vec<_> = all
                .iter()
                .filter(|item| item.0 == lane)
                .map(|item| item.1)
                .collect();
            assert!(of_lane.is_sorted());
        }
        assert_eq!(entrance.waiting(), 0);
    }

    #[tokio::test]
    async fn it_ends_when_nobody_can_put_anything_in_and_what_waits_still_comes_out() {
        let (entrance, mut exit) = queue(8);
        let other = entrance.clone();
        entrance.push(A, of(1), A).unwrap();
        drop(entrance);
        other.push(B, of(1), B).unwrap();
        drop(other);
        assert_eq!(exit.next().await, Some(A));
        assert_eq!(exit.next().await, Some(B));
        assert_eq!(exit.next().await, None);
    }

    #[tokio::test]
    async fn a_waiting_sequencer_is_woken_by_a_push_and_its_end_closes_the_queue() {
        let (entrance, mut exit) = queue(8);
        let waiter = tokio::spawn(async move { exit.next().await });
        tokio::task::yield_now().await;
        entrance.push(A, of(1), A).unwrap();
        assert_eq!(waiter.await.unwrap(), Some(A));
        assert!(entrance.is_closed());
        assert_eq!(entrance.push(A, of(1), A), Err(NoEntry::Closed));
    }
}
