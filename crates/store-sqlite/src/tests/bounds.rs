//! What must not grow: the write-ahead log, whatever is written and read at the same time.

use super::{Folder, write_three};
use crate::{Bounds, SqliteStore};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain};
use store::{Batch, Records, Store};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Bytes that the log may have in these tests: 2 MiB.
const BYTES_MAX: i64 = 2 << 20;

/// How long something is waited for that comes soon, unless the disk stands still.
const PATIENCE: Duration = Duration::from_mins(1);

/// How many write at once.
const WRITERS: u8 = 3;
/// What each of them writes.
const MEGABYTES_EACH: usize = 25;

fn bounds() -> Bounds {
    Bounds {
        log_bytes_max: BYTES_MAX,
        ..Bounds::default()
    }
}

fn one_megabyte(chain: &mut Chain) -> Batch {
    let mut batch = Batch::default();
    for _ in 0..100 {
        let text = "x".repeat(10_000);
        chain.decision(
            &mut batch,
            &Ask {
                text,
                ..Ask::default()
            },
        );
    }
    batch
}

/// So many batches of a chain of its own.
fn batches(number: u8, count: usize) -> Vec<Batch> {
    let mut chain = Chain::new(number);
    (0..count).map(|_| one_megabyte(&mut chain)).collect()
}

async fn keep_committing(store: Arc<SqliteStore>, batches: Vec<Batch>) {
    for batch in &batches {
        store::conformance::commit(&*store, batch).await;
    }
}

/// The most bytes that the log had while everybody wrote and somebody read.
async fn largest_log() -> u64 {
    let folder = Folder::new();
    // Several chains, so that there is always a commit waiting for its turn; made before anything waits for time.
    let chains: Vec<_> = (1..=WRITERS)
        .map(|number| batches(number, MEGABYTES_EACH))
        .collect();
    let store = Arc::new(SqliteStore::open_bounded(&folder.url(), bounds()).await.unwrap());
    let reading = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                store.entries(Chain::new(1).tenant, 0, 20).await.unwrap();
            }
        })
    };
    let mut writing = JoinSet::new();
    for batches in chains {
        writing.spawn(keep_committing(Arc::clone(&store), batches));
    }
    let mut largest = 0;
    while !writing.is_empty() {
        largest = largest.max(folder.log_bytes());
        if let Ok(Some(ended)) = timeout(Duration::from_millis(10), writing.join_next()).await {
            ended.unwrap();
        }
    }
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled(), "the reader failed");
    store.close().await;
    assert_eq!(folder.log_bytes(), 0);
    largest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_bounded_while_commits_never_pause_and_readers_read() {
    // Between two checkpoints commits go on, so the bound is kept to within what is written in a tenth of a second; or
    // in longer, where the disk stands still for the checkpointer only.
    let written = 1_000_000 * u64::from(WRITERS) * MEGABYTES_EACH as u64;
    let mut largest = Vec::new();
    for _ in 0..3 {
        let bytes = largest_log().await;
        if bytes < written / 2 {
            return;
        }
        largest.push(bytes);
    }
    panic!("{largest:?} bytes of log for {written} written");
}

#[tokio::test]
async fn what_was_committed_moves_into_the_database_soon() {
    let folder = Folder::new();
    let store = folder.open().await;
    store::conformance::commit(&store, &one_megabyte(&mut Chain::new(1))).await;
    let begin = Instant::now();
    // Only a checkpoint writes to the file of the database.
    while std::fs::metadata(folder.path()).unwrap().len() < 1_000_000 {
        assert!(begin.elapsed() < PATIENCE, "nothing was moved");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many runs there are in the file itself, whatever stands in its log; none if it was copied while it was written to.
async fn runs_in_the_file(folder: &Folder) -> Option<i64> {
    let copy = Folder::new();
    std::fs::copy(folder.path(), copy.path()).unwrap();
    let runs = sqlx::query_scalar("SELECT count(*) FROM request_runs WHERE is_whole");
    runs.fetch_one(&mut copy.stranger().await).await.ok()
}

#[tokio::test]
async fn what_is_done_behind_the_last_commit_moves_into_the_database_too() {
    let folder = Folder::new();
    let bounds = Bounds {
        recent_requests_max: 1,
        ..Bounds::default()
    };
    let store = SqliteStore::open_bounded(&folder.url(), bounds).await.unwrap();
    // The checkpointer is at rest, so what it moves with the commit is moved before the run is written.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut batch = Batch::default();
    Chain::new(1).decision(&mut batch, &Ask::named("call"));
    store::conformance::commit(&store, &batch).await;
    let begin = Instant::now();
    while runs_in_the_file(&folder).await != Some(1) {
        assert!(begin.elapsed() < PATIENCE, "it was not moved");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_reader_that_never_ends_delays_the_log_but_not_the_commits() {
    let folder = Folder::new();
    let store = SqliteStore::open_bounded(&folder.url(), bounds()).await.unwrap();
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut stranger = folder.stranger().await;
    sqlx::query("BEGIN").execute(&mut stranger).await.unwrap();
    let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM audit_events")
        .fetch_one(&mut stranger)
        .await
        .unwrap();
    assert_eq!(seen, 3);
    let mut slow = 0;
    for _ in 0..10 {
        let begin = Instant::now();
        store::conformance::commit(&store, &one_megabyte(&mut chain)).await;
        slow += usize::from(begin.elapsed() > Duration::from_secs(3));
    }
    // The disk may stand still now and then; whoever waits for the reader or the checkpointer does so each time.
    assert!(slow <= 3, "{slow} of 10 waited");
    sqlx::query("ROLLBACK").execute(&mut stranger).await.unwrap();
    // After the reader has gone the log starts over, instead of growing with every commit.
    let begin = Instant::now();
    loop {
        let before = folder.log_bytes();
        store::conformance::commit(&store, &one_megabyte(&mut chain)).await;
        if folder.log_bytes() <= before {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{before} bytes of log");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
