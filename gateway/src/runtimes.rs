//! The runtimes that tasks run on. Each always has a thread for work that blocks.
//!
//! By itself a runtime makes such a thread when it needs one, and lets it go when it is idle. Where it has none and the
//! system refuses one for a moment (`ulimit -u`, `TasksMax=`, `pids.max`), it panics in the task that asked, and nobody
//! starts that task again. Where there is one, the work waits for it.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// How long an idle thread stays: longer than any gateway runs.
const KEPT: Duration = Duration::from_hours(100 * 365 * 24);

/// Makes a runtime, with all that its tasks may need. It starts so many workers, none where its tasks run on a thread
/// that is there already, and one thread for work that blocks.
///
/// # Errors
/// There cannot be as many more threads, or not the descriptors that it needs.
///
/// # Panics
/// There could be as many when that was tried, and others have taken some of them since. With more than one worker it
/// may also wait for ever then.
pub fn build(builder: &mut Builder, workers: usize) -> io::Result<Runtime> {
    build_with(builder, workers, |held| {
        thread::Builder::new().spawn(move || {
            // An error means that it is let go.
            let _ = held.recv();
        })
    })
}

/// What [`build`] does, where `start` starts what [`check_threads`] tries.
fn build_with(
    builder: &mut Builder,
    workers: usize,
    start: impl FnMut(Receiver<()>) -> io::Result<JoinHandle<()>>,
) -> io::Result<Runtime> {
    if workers > 0 {
        builder.worker_threads(workers);
    }
    check_threads(workers + 1, start)?;
    let runtime = builder.enable_all().thread_keep_alive(KEPT).build()?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

/// Starts this thread, on which tasks run: it has the runtime until `work` is done.
///
/// The runtime is made there. Where there can be no such thread, none has to be let go by whoever wanted it: that may
/// be a task, and no task may wait for the end of a runtime.
///
/// # Errors
/// There cannot be as many more threads, or not the descriptors that it needs.
pub fn start(
    thread: thread::Builder,
    mut builder: Builder,
    work: impl FnOnce(Runtime) + Send + 'static,
) -> io::Result<Handle> {
    let (say, told) = channel();
    thread.spawn(move || match build(&mut builder, 0) {
        Ok(runtime) => {
            // INVARIANT: whoever starts it waits until it is told, here or below.
            let _ = say.send(Ok(runtime.handle().clone()));
            work(runtime);
        }
        Err(error) => {
            let _ = say.send(Err(error));
        }
    })?;
    let panicked = "making the runtime of a thread panicked";
    told.recv().unwrap_or_else(|_| Err(io::Error::other(panicked)))
}

/// Does work that takes long where a task of the runtime waits for it and no other one: another thread takes the place of
/// this one among the workers meanwhile. A runtime with one thread has no other to take it.
pub fn in_place_of_a_worker<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Fails where the system does not give so many threads at the same time: a runtime that is refused one of its first
/// panics, and waits in the middle of that for those that it has, which nobody has told to end. What `start` starts
/// ends when nothing can be sent to it any more.
///
/// It is a look and no reservation: they have ended when this returns. Others may take what they have left, and the
/// system may count one for a moment longer.
fn check_threads(
    count: usize,
    mut start: impl FnMut(Receiver<()>) -> io::Result<JoinHandle<()>>,
) -> io::Result<()> {
    let mut started = Vec::new();
    for _ in 0..count {
        let (keep, held) = channel();
        started.push((keep, start(held)?));
    }
    for (keep, thread) in started {
        drop(keep);
        drop(thread.join());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::RecvTimeoutError;

    /// The work waits for a task, which there is only one thread for.
    #[test]
    fn others_go_on_beside_work_in_the_place_of_a_worker() {
        let runtime = build(&mut Builder::new_multi_thread(), 1).unwrap();
        let working = runtime.spawn(async {
            let (tell, told) = channel();
            let other = tokio::spawn(async move { tell.send(7).unwrap() });
            let found = in_place_of_a_worker(|| told.recv().unwrap());
            other.await.unwrap();
            found
        });
        assert_eq!(runtime.block_on(working).unwrap(), 7);
    }

    #[test]
    fn a_runtime_has_a_thread_before_it_needs_one_and_keeps_it() {
        let (tell_start, started) = channel();
        let (tell_stop, stopped) = channel();
        let mut builder = Builder::new_current_thread();
        builder
            .thread_keep_alive(Duration::ZERO)
            .on_thread_start(move || tell_start.send(()).unwrap())
            .on_thread_stop(move || tell_stop.send(()).unwrap_or_default());
        let _runtime = build(&mut builder, 0).unwrap();
        started.recv_timeout(Duration::from_mins(1)).unwrap();
        let stop = stopped.recv_timeout(Duration::from_millis(200));
        assert_eq!(stop, Err(RecvTimeoutError::Timeout));
    }

    #[test]
    fn a_runtime_has_as_many_workers_as_were_tried() {
        let mut tried = 0;
        let start = |held: Receiver<()>| {
            tried += 1;
            thread::Builder::new().spawn(move || {
                let _ = held.recv();
            })
        };
        let runtime = build_with(&mut Builder::new_multi_thread(), 3, start).unwrap();
        assert_eq!(tried, 4, "with the one for work that blocks");
        assert_eq!(runtime.metrics().num_workers(), 3);
    }

    #[test]
    fn a_thread_that_is_started_has_a_runtime_that_others_may_use() {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let work = move |runtime: Runtime| {
            let _ = runtime.block_on(ended);
        };
        let handle = start(thread::Builder::new(), Builder::new_current_thread(), work);
        let (tell, told) = channel();
        handle.unwrap().spawn(async move { tell.send(()).unwrap() });
        told.recv_timeout(Duration::from_mins(1)).unwrap();
        drop(end);
    }

    #[tokio::test]
    async fn a_task_that_is_refused_a_thread_is_told_why() {
        // No memory has room for it.
        let too_large = thread::Builder::new().stack_size(1 << 50);
        let refused = start(too_large, Builder::new_current_thread(), |_| unreachable!());
        assert!(refused.unwrap_err().raw_os_error().is_some());
    }

    #[test]
    fn all_threads_that_a_runtime_starts_are_tried_at_the_same_time() {
        let running = Arc::new(AtomicUsize::new(0));
        let mut before = Vec::new();
        let start = |held: Receiver<()>| {
            before.push(running.fetch_add(1, Ordering::SeqCst));
            let running = Arc::clone(&running);
            thread::Builder::new().spawn(move || {
                let _ = held.recv();
                running.fetch_sub(1, Ordering::SeqCst);
            })
        };
        check_threads(3, start).unwrap();
        assert_eq!(before, [0, 1, 2]);
        assert_eq!(running.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_thread_that_is_refused_is_an_error_and_those_before_it_end() {
        let (tell, ended) = channel();
        let mut left = 2;
        let start = |held: Receiver<()>| {
            if left == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            left -= 1;
            let tell = tell.clone();
            thread::Builder::new().spawn(move || {
                let _ = held.recv();
                tell.send(()).unwrap();
            })
        };
        let refused = check_threads(3, start).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        for _ in 0..2 {
            ended.recv_timeout(Duration::from_mins(1)).unwrap();
        }
    }
}
