//! The lane for asks of tenants that flood the gateway: threads of their own judge them and write their answers.
//!
//! A worker takes what is ready one after the other, and an ask that is judged takes as long as several that are
//! refused. So beside a flood everybody waited behind those of its asks that were let in: whoever was to be refused,
//! and whoever was no part of the flood. The kernel does what the runtime cannot: a thread that reads and refuses takes
//! less than its share of the cores, and gets one soon after it wakes, whatever the lane is busy with
//! (`docs/decisions/0060-a-lane-for-floods.md`).
//!
//! How long the lane may become is not decided here: whoever is in it has a place (`admission`).

use crate::http::Refusal;
use crate::runtimes;
use std::io;
use std::num::NonZero;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// The threads. What is under way when this is dropped is broken off where it waits.
pub struct SlowLane {
    /// There until this is dropped.
    threads: Option<Runtime>,
    handle: Handle,
}

impl SlowLane {
    /// Starts its threads, half as many as there are cores, with nothing to do.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut threads = Builder::new_multi_thread();
        threads.thread_name("slow-lane");
        let threads = runtimes::build(&mut threads, cores.div_ceil(2))?;
        Ok(Self {
            handle: threads.handle().clone(),
            threads: Some(threads),
        })
    }

    /// What comes of this, done in the lane.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.spawn(work).await.map_err(|error| {
            let detail =
                "the answer was not finished: ask again, under the same `request_id` if there was one";
            Refusal::broken_off(&error, "an ask was broken off in the lane for floods", detail)
        })?
    }

    /// Has something done in the lane.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(work)
    }
}

impl Drop for SlowLane {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // Whoever drops it may be a task, and no task may wait for threads to end.
            threads.shutdown_background();
        }
    }
}
