//! Bad days: the disk is full, the database is locked, COMMIT fails. Nothing of it is ever taken for success, and when
//! the cause goes the store goes on without being told.

use super::{Folder, head, write_three};
use crate::SqliteStore;
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain};
use store::conformance::{causes, try_commit};
use store::{Batch, CommitError, Records};

/// A batch that needs many new pages.
fn large(chain: &mut Chain) -> Batch {
    let mut batch = Batch::default();
    for _ in 0..200 {
        let text = "x".repeat(2_000);
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

async fn on_writer(store: &SqliteStore, statement: &'static str) {
    let writer = store.writer.lock().await;
    writer.committing().unwrap().execute_batch(statement).unwrap();
}

#[tokio::test]
async fn a_full_disk_is_not_written_and_passes_when_there_is_room_again() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    // The smallest limit that SQLite accepts is the size that the database has.
    on_writer(&store, "PRAGMA max_page_count = 1").await;
    let error = try_commit(&store, &large(&mut chain.clone())).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    assert!(causes(&error).contains("full"), "{}", causes(&error));
    assert_eq!(head(&store).await, chain.head());
    assert_eq!(store.entries(chain.tenant, 0, 500).await.unwrap().len(), 3);

    if store.writer.lock().await.committing().is_some() {
        on_writer(&store, "PRAGMA max_page_count = 4294967294").await;
    }
    let batch = large(&mut chain);
    try_commit(&store, &batch).await.unwrap();
    assert_eq!(head(&store).await, chain.head());
}

#[tokio::test]
async fn a_lock_held_by_another_program_is_an_error_in_bounded_time() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut stranger = folder.stranger().await;
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut stranger)
        .await
        .unwrap();
    let mut quickest = Duration::MAX;
    for _ in 0..2 {
        let begin = Instant::now();
        let error = try_commit(&store, &chain.clone().decisions(1)).await.unwrap_err();
        assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
        assert!(causes(&error).contains("locked"), "{}", causes(&error));
        quickest = quickest.min(begin.elapsed());
    }
    assert!(quickest < Duration::from_secs(3), "{quickest:?}");
    assert_eq!(head(&store).await, chain.head(), "reading goes on meanwhile");
    sqlx::query("ROLLBACK").execute(&mut stranger).await.unwrap();
    write_three(&store, &mut chain).await;
    assert_eq!(head(&store).await, chain.head());
}

/// Makes every COMMIT on this connection fail, as a disk would that refuses to sync.
fn fail_commits(connection: &rusqlite::Connection) {
    connection.commit_hook(Some(|| true)).unwrap();
}

#[tokio::test]
async fn a_commit_that_fails_is_unknown_and_reading_back_tells() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    fail_commits(store.writer.lock().await.committing().unwrap());
    let mut newcomer = Chain::new(2);
    let mut batch = chain.clone().decisions(1);
    newcomer.put_agent(&mut batch, 1, "builder");
    let error = try_commit(&store, &batch).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    assert_eq!(head(&store).await, chain.head());
    // The next commit has a connection of its own: on the one before it would fail as well.
    try_commit(&store, &batch).await.unwrap();
    assert_eq!(
        store::conformance::load(&store).await[1].place.head(),
        newcomer.head()
    );
}

#[tokio::test]
async fn a_transaction_that_was_left_open_is_closed_by_the_next_commit() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    on_writer(&store, "BEGIN IMMEDIATE").await;
    let error = try_commit(&store, &chain.clone().decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    write_three(&store, &mut chain).await;
    assert_eq!(head(&store).await, chain.head());
}

#[tokio::test]
async fn a_lost_connection_is_replaced() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    for _ in 0..3 {
        write_three(&store, &mut chain).await;
        store.writer.lock().await.lose_connections();
    }
    write_three(&store, &mut chain).await;
    assert_eq!(head(&store).await, chain.head());
}

#[tokio::test]
async fn a_head_that_another_program_moved_is_noticed() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut stranger = folder.stranger().await;
    let change = sqlx::query("UPDATE tenants SET head_hash = zeroblob(32)");
    change.execute(&mut stranger).await.unwrap();
    let error = try_commit(&store, &chain.clone().decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::HeadMoved { .. }), "{error:?}");
    assert_eq!(store.entries(chain.tenant, 0, 10).await.unwrap().len(), 3);
}
