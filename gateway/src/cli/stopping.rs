//! How a server is told to stop, and how long it takes over it.

use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How long requests that have begun may take to finish once the server is told to stop. A client that never sends the
/// rest of its body would otherwise keep it from stopping.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// SIGINT and SIGTERM. Once somebody listens for them, neither ends the process, and one that came early is not lost.
pub(super) struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    /// To be called before it is said that anything listens.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Ends when one comes, or at once if one has come since it was listened for.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ends that long after this was told.
pub(super) async fn out_of_patience(mut told: watch::Receiver<bool>) {
    // An error means that the server has ended, and then nobody waits for this.
    let _ = told.wait_for(|stop| *stop).await;
    tokio::time::sleep(GRACE).await;
}
