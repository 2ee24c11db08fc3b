//! The queue before the sequencer: bounded, and fair between tenants.
//!
//! Every tenant has a lane of its own. It may grow as long as it is shorter than the room that is left, the rule of dynamic
//! thresholds (Choudhury and Hahne, 1998): a tenant that floods the gateway fills half of the queue, two that do fill a third
//! each, and whoever comes rarely finds room. Lanes are served in turn, by how much of a batch they take (deficit round
//! robin, Shreedhar and Varghese, 1995), so nobody waits for more than his share of the others.
//!
//! What people and jobs change has a lane of its own that is served first: agents that flood the gateway do not keep anybody
//! from freezing them.

use super::busy_poll::BusyPoll;
use crate::locks::lock;
use model::TenantId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::Notify;

/// How much of a batch a tenant gets before the next one has its turn, in proposals.
const QUANTUM: usize = 32;
/// How many changes may wait. They are few, and each waits for the one before.
const CHANGES_MAX: usize = 256;

/// Which lane a submission waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Before everybody else: what people and jobs change.
    Changes,
    /// With whatever the agents of this tenant want.
    Tenant(TenantId),
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
    room: usize,
}

struct Waiting<T> {
    changes: VecDeque<T>,
    tenants: HashMap<TenantId, Tenant<T>>,
    /// Whose turn it is, and who comes after. Who has nothing waiting is not here.
    turns: VecDeque<TenantId>,
    /// How many proposals wait in the lanes of tenants.
    size: usize,
    is_closed: bool,
}

struct Tenant<T> {
    items: VecDeque<(usize, T)>,
    size: usize,
    /// How much it may still take in its turn.
    credit: usize,
}

/// A queue with room for so many proposals of tenants.
pub(super) fn queue<T>(room: usize) -> (Entrance<T>, Exit<T>) {
    let waiting = Waiting {
        changes: VecDeque::new(),
        tenants: HashMap::new(),
        turns: VecDeque::new(),
        size: 0,
        is_closed: false,
    };
    let inside = Arc::new(Inside {
        waiting: Mutex::new(waiting),
        news: Notify::new(),
        may_have_any: AtomicBool::new(false),
        room,
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
    /// Puts something at the end of its lane; `size` is how many proposals it has.
    pub(super) fn push(&self, lane: Lane, size: usize, item: T) -> Result<(), NoEntry> {
        let inside = &self.0.0;
        let mut waiting = inside.lock();
        if waiting.is_closed {
            return Err(NoEntry::Closed);
        }
        if !waiting.has_room(lane, size, inside.room) {
            return Err(NoEntry::Full);
        }
        match lane {
            Lane::Changes => waiting.changes.push_back(item),
            Lane::Tenant(tenant) => waiting.queue_up(tenant, size, item),
        }
        inside.may_have_any.store(true, Ordering::Release);
        drop(waiting);
        inside.news.notify_one();
        Ok(())
    }

    /// Whether one more would find room now. By the time it comes that may have changed.
    pub(super) fn has_room(&self, lane: Lane) -> bool {
        let inside = &self.0.0;
        inside.lock().has_room(lane, 1, inside.room)
    }

    /// How many proposals of tenants and how many changes wait.
    pub(super) fn waiting(&self) -> usize {
        let waiting = self.0.0.lock();
        waiting.size + waiting.changes.len()
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
    fn has_room(&self, lane: Lane, size: usize, room: usize) -> bool {
        match lane {
            Lane::Changes => self.changes.len() < CHANGES_MAX,
            Lane::Tenant(tenant) => {
                let left = room.saturating_sub(self.size);
                let before = self.tenants.get(&tenant).map_or(0, |lane| lane.size);
                size <= left && before < left
            }
        }
    }

    fn queue_up(&mut self, tenant: TenantId, size: usize, item: T) {
        let lane = self.tenants.entry(tenant).or_insert_with(|| {
            self.turns.push_back(tenant);
            Tenant {
                items: VecDeque::new(),
                size: 0,
                credit: QUANTUM,
            }
        });
        lane.items.push_back((size, item));
        lane.size += size;
        self.size += size;
    }

    fn take(&mut self) -> Option<T> {
        if let Some(change) = self.changes.pop_front() {
            return Some(change);
        }
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
    /// The first of the lane, if there is credit for it.
    fn take(&mut self, waiting: &mut usize) -> Option<T> {
        let (size, item) = self.items.pop_front_if(|(size, _)| *size <= self.credit)?;
        self.credit -= size;
        self.size -= size;
        *waiting -= size;
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
        waiting.changes.clear();
        waiting.tenants.clear();
        waiting.turns.clear();
        waiting.size = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Lane = Lane::Tenant(TenantId::from_bytes([1; 16]));
    const B: Lane = Lane::Tenant(TenantId::from_bytes([2; 16]));
    const C: Lane = Lane::Tenant(TenantId::from_bytes([3; 16]));

    /// Fills a lane, and says how many went in.
    fn fill(entrance: &Entrance<Lane>, lane: Lane, size: usize) -> usize {
        let mut count = 0;
        while entrance.push(lane, size, lane).is_ok() {
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
        assert_eq!(entrance.push(A, 1, A), Err(NoEntry::Full));
        assert!(!entrance.has_room(A));
        assert_eq!(taken(&exit, usize::MAX).len(), 896);
        assert_eq!(fill(&entrance, A, 1), 512);
    }

    #[test]
    fn whoever_comes_rarely_waits_for_nobodys_flood() {
        let (entrance, exit) = queue(1_024);
        fill(&entrance, A, 1);
        entrance.push(B, 1, B).unwrap();
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
    fn changes_go_before_a_flood_and_find_room_beside_it() {
        let (entrance, exit) = queue(64);
        fill(&entrance, A, 1);
        entrance.push(Lane::Changes, 500, Lane::Changes).unwrap();
        assert_eq!(exit.take(), Some(Lane::Changes));
        assert_eq!(fill(&entrance, Lane::Changes, 1), CHANGES_MAX);
        assert_eq!(entrance.push(Lane::Changes, 1, Lane::Changes), Err(NoEntry::Full));
    }

    #[test]
    fn everything_comes_out_once_in_the_order_of_its_line() {
        let (entrance, exit) = queue(8_192);
        for n in 0..200_usize {
            let lane = [A, B, C][n % 3];
            entrance.push(lane, n % 7 + 1, (lane, n)).unwrap();
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
        entrance.push(A, 1, A).unwrap();
        drop(entrance);
        other.push(B, 1, B).unwrap();
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
        entrance.push(A, 1, A).unwrap();
        assert_eq!(waiter.await.unwrap(), Some(A));
        assert!(entrance.is_closed());
        assert_eq!(entrance.push(A, 1, A), Err(NoEntry::Closed));
    }
}
