//! The runtimes that tasks run on. Each always has a thread for work that blocks.
//!
//! By itself a runtime makes such a thread when it needs one, and lets it go when it is idle. Where it has none and the
//! system refuses one for a moment (`ulimit -u`, `TasksMax=`, `pids.max`), it panics in the task that asked, and nobody
//! starts that task again. Where there is one, the work waits for it.

use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long an idle thread stays: longer than any gateway runs.
const KEPT: Duration = Duration::from_hours(100 * 365 * 24);

/// Makes a runtime, with all that its tasks may need.
///
/// # Errors
/// There can be no more threads.
///
/// # Panics
/// There can be some more, but not enough.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    // The runtime would panic.
    drop(std::thread::Builder::new().spawn(|| ())?.join());
    let runtime = builder.enable_all().thread_keep_alive(KEPT).build()?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    #[test]
    fn a_runtime_has_a_thread_before_it_needs_one_and_keeps_it() {
        let (tell_start, started) = channel();
        let (tell_stop, stopped) = channel();
        let mut builder = Builder::new_current_thread();
        builder
            .thread_keep_alive(Duration::ZERO)
            .on_thread_start(move || tell_start.send(()).unwrap())
            .on_thread_stop(move || tell_stop.send(()).unwrap_or_default());
        let _runtime = build(&mut builder).unwrap();
        started.recv_timeout(Duration::from_mins(1)).unwrap();
        let stop = stopped.recv_timeout(Duration::from_millis(200));
        assert_eq!(stop, Err(RecvTimeoutError::Timeout));
    }
}
