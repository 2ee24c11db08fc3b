//! How many connections there may be: fewer than the process may have files open, so that the ledger, and whoever is
//! connected, never go without.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Files that are not for connections: databases with their logs, indexes, sockets of the listeners, and connections to
/// PostgreSQL and witnesses.
const KEPT: usize = 128;
/// Where nobody can tell how many files may be open.
const USUAL_LIMIT: usize = 1_024;
/// No more than this, however many files may be open: each connection is some hundred bytes, and what its caller has
/// begun to send.
const MOST: usize = 65_536;
/// How long nobody may be let in before it is said.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for a place, of which there are so many. Whoever has it counts as open until it is dropped.
pub(super) async fn take(places: &Arc<Semaphore>, connections: usize) -> OwnedSemaphorePermit {
    let place = Arc::clone(places).acquire_owned();
    let mut place = pin!(place);
    let taken = if let Ok(taken) = tokio::time::timeout(PATIENCE, &mut place).await {
        taken
    } else {
        tracing::warn!(
            connections,
            "all places for connections are taken, so nobody new is let in: raise the limit of open files, or find out who keeps them"
        );
        place.await
    };
    // INVARIANT: nobody closes it.
    taken.expect("there are places for connections as long as anybody is let in")
}

/// How many there are, from how many files this process may have open.
pub fn places_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits");
    let files = limits.ok().and_then(|limits| open_files(&limits));
    let files = files.unwrap_or(USUAL_LIMIT);
    files.saturating_sub(KEPT).max(files / 2).clamp(1, MOST)
}

/// The soft limit of open files in this text of `proc_pid_limits(5)`. Without a limit there is no number.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(usize::MAX),
        soft => soft.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_read_as_the_system_writes_it() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max core file size        0                    unlimited            bytes     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1_024));
        assert_eq!(
            open_files(&limits.replace("1024  ", "unlimited")),
            Some(usize::MAX)
        );
        assert_eq!(open_files("Max open files"), None);
        assert!((1..=MOST).contains(&places_max()));
    }
}
