//! Who is worked on: a few at once for each thread, and tenants in turn.
//!
//! A thread of the runtime takes what is ready in the order in which it came. If hundreds of asks are ready to be judged there, whatever comes
//! next stands behind all of them: a refusal, an answer that is finished, somebody else's ask. So they stand in line here instead, and the runtime
//! sees only those whose turn it is.

use model::TenantId;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tokio::sync::oneshot;

/// The turns there are, and who waits for one.
pub(super) struct Turns(Mutex<Line>);

/// A turn. When it is dropped, it is the next one's.
#[must_use = "a turn is over when it is dropped"]
pub struct Turn(Option<Arc<Turns>>);

struct Line {
    /// INVARIANT: none are free while somebody waits.
    free: usize,
    waiting: HashMap<TenantId, VecDeque<oneshot::Sender<Turn>>>,
    /// Which tenant is next, and who comes after. Who has nobody waiting is not here.
    order: VecDeque<TenantId>,
}

impl Turns {
    pub(super) fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Line {
            free: turns.max(1),
            waiting: HashMap::new(),
            order: VecDeque::new(),
        })))
    }

    pub(super) async fn take(self: &Arc<Self>, tenant: TenantId) -> Turn {
        let turn = {
            let mut line = self.lock();
            if line.free > 0 {
                line.free -= 1;
                return Turn(Some(Arc::clone(self)));
            }
            line.join(tenant)
        };
        let turn = turn.await.expect("whoever stands in line is not forgotten");
        step_back().await;
        turn
    }

    /// Gives a turn to whoever is next and still wants it.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let Some(next) = self.lock().next_or_free() else {
                return;
            };
            match next.send(Turn(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // It would be passed on from here once more, and so on, one call within the other.
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Goes behind everybody else who is ready on this thread: the runtime lets go first whoever was woken last, and the others have less to do.
/// The runtime's own way to do this waits until nobody else is ready at all, which under a flood is never.
async fn step_back() {
    let mut has_stepped = false;
    poll_fn(|context| {
        if has_stepped {
            return Poll::Ready(());
        }
        has_stepped = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Line {
    fn join(&mut self, tenant: TenantId) -> oneshot::Receiver<Turn> {
        let (sender, receiver) = oneshot::channel();
        let of_tenant = self.waiting.entry(tenant).or_insert_with(|| {
            self.order.push_back(tenant);
            VecDeque::new()
        });
        of_tenant.push_back(sender);
        receiver
    }

    /// Whoever is next. If there is nobody, the turn is free.
    fn next_or_free(&mut self) -> Option<oneshot::Sender<Turn>> {
        let Some(tenant) = self.order.pop_front() else {
            self.free += 1;
            return None;
        };
        let of_tenant = self.waiting.get_mut(&tenant);
        let of_tenant = of_tenant.expect("whoever has a place in the order waits");
        let next = of_tenant.pop_front();
        if of_tenant.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.order.push_back(tenant);
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const A: TenantId = TenantId::from_bytes([1; 16]);
    const B: TenantId = TenantId::from_bytes([2; 16]);

    fn free(turns: &Turns) -> usize {
        let line = turns.lock();
        assert!(line.free == 0 || line.order.is_empty());
        line.free
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_are_worked_on_at_once_than_there_are_turns() {
        let turns = Turns::new(3);
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..400_usize).map(|number| {
            let (turns, at_once, most) = (Arc::clone(&turns), Arc::clone(&at_once), Arc::clone(&most));
            tokio::spawn(async move {
                let _turn = turns.take(if number % 3 == 0 { A } else { B }).await;
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                at_once.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(free(&turns), 3);
    }

    #[tokio::test]
    async fn tenants_come_in_turn_however_many_of_one_wait() {
        let turns = Turns::new(1);
        let first = turns.take(A).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let wait = |tenant| {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            async move {
                let _turn = turns.take(tenant).await;
                order.lock().unwrap().push(tenant);
            }
        };
        let mut all: Vec<_> = (0..5).map(|_| Box::pin(wait(A))).collect();
        all.push(Box::pin(wait(B)));
        let mut all = pin!(join_all(all));
        assert!(all.as_mut().now_or_never().is_none());
        drop(first);
        all.await;
        assert_eq!(*order.lock().unwrap(), [A, B, A, A, A, A]);
    }

    #[tokio::test]
    async fn a_turn_of_one_who_has_gone_is_the_next_ones() {
        let turns = Turns::new(1);
        let first = turns.take(A).await;
        // Gone before its turn came, and gone after.
        let mut gone: Vec<_> = (0..1_000).map(|_| Box::pin(turns.take(A))).collect();
        let mut late = Box::pin(turns.take(B));
        let mut last = pin!(turns.take(A));
        for waiter in &mut gone {
            assert!(waiter.now_or_never().is_none());
        }
        assert!(late.as_mut().now_or_never().is_none());
        assert!(last.as_mut().now_or_never().is_none());
        drop(gone);
        drop(first);
        drop(late);
        drop(last.await);
        assert_eq!(free(&turns), 1);
    }
}
