//! What needs the writer's turn although nobody waits for it: the next commit does it, since it has the turn and is awake.
//!
//! Somebody else would have to be woken to take the turn, and while both cores are used that takes milliseconds, in
//! which commits wait for a turn that nobody uses (measured; docs/decisions/0059-errands-of-commits.md).

use crate::writer::{NotReady, Writer};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinError;

/// How long a commit is waited for, and how long ago the last one may be for another to be expected at all. Under load
/// there is one every millisecond or two.
const PATIENCE: Duration = Duration::from_millis(20);

type Errand = Box<dyn FnOnce(&mut Writer) + Send>;

/// What is to be done in the writer's turn.
#[derive(Debug, Default)]
pub(crate) struct Errands(SyncMutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// In the order in which they came.
    errands: VecDeque<Errand>,
    /// When a commit last asked for one.
    asked: Option<Instant>,
}

/// Why an errand was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDone {
    /// There is no connection.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The thread that did it broke down, or the process ends.
    #[error(transparent)]
    Thread(#[from] JoinError),
    /// It broke down in a commit.
    #[error("what was to be done in the writer's turn broke down")]
    Lost,
}

impl Errands {
    /// The next one, for somebody who has the turn to commit.
    pub(crate) fn take_to_commit(&self) -> Option<Errand> {
        let mut waiting = self.waiting();
        waiting.asked = Some(Instant::now());
        waiting.errands.pop_front()
    }

    /// The next one, for somebody who has taken the turn for nothing else.
    fn take(&self) -> Option<Errand> {
        self.waiting().errands.pop_front()
    }

    /// Takes one in, and says whether a commit is expected soon.
    fn push(&self, errand: Errand) -> bool {
        let mut waiting = self.waiting();
        waiting.errands.push_back(errand);
        waiting.asked.is_some_and(|asked| asked.elapsed() < PATIENCE)
    }

    /// Locked for a moment, and never while an errand is done.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("errands", &self.errands.len())
            .field("asked", &self.asked)
            .finish()
    }
}

/// Somebody who has errands.
#[derive(Debug, Clone)]
pub(crate) struct Errander {
    pub(crate) writer: Arc<Mutex<Writer>>,
    pub(crate) errands: Arc<Errands>,
}

impl Errander {
    /// Does something in the writer's turn, with its connections there: in that of the next commit or, if none comes,
    /// in one of its own. That waits for the disk, so it is then done on a thread that nobody else needs.
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (tell, mut told) = oneshot::channel();
        let is_commit_expected = self.errands.push(Box::new(move |writer| {
            // Whoever has given up does something else by now, and this must not come in between.
            if !tell.is_closed() {
                drop(tell.send(work(writer)));
            }
        }));
        if is_commit_expected && let Ok(told) = tokio::time::timeout(PATIENCE, &mut told).await {
            return told.map_err(|_| NotDone::Lost);
        }
        // Where the system refuses another thread, this waits for one that is busy, and commits must not wait with it.
        tokio::task::spawn_blocking(|| ()).await?;
        let mut writer = Arc::clone(&self.writer).lock_owned().await;
        writer.ready().await?;
        let errands = Arc::clone(&self.errands);
        tokio::task::spawn_blocking(move || {
            while let Some(errand) = errands.take() {
                errand(&mut writer);
            }
        })
        .await?;
        told.await.map_err(|_| NotDone::Lost)
    }
}
