//! Bad days: the disk is full, the database is locked, COMMIT fails. Nothing of it is ever taken for success, and when
//! the cause goes the store goes on without being told, unless files are gone or the disk has lost pages.

use super::{Folder, head, write_three};
use crate::SqliteStore;
use crate::file::{Gone, log_index_path, log_path};
use model::Name;
use sqlx::Connection;
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain, decision_id};
use store::conformance::{causes, commit, try_commit};
use store::{Batch, CommitError, Journal, Records, Store, StoreError};

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
        store::conformance::load(&store).await[1].position.head(),
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

/// Overwrites the first page of a table with zeros, as a disk does that has lost it. Nobody has the database open.
async fn lose_page_of(folder: &Folder, table: &str) {
    let mut stranger = folder.stranger().await;
    let place = sqlx::query_as::<_, (i64, i64)>(
        "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?",
    );
    let (number, bytes) = place.bind(table).fetch_one(&mut stranger).await.unwrap();
    stranger.close().await.unwrap();
    let bytes = u64::try_from(bytes).unwrap();
    let begin = bytes * u64::try_from(number - 1).unwrap();
    let mut file = OpenOptions::new().write(true).open(folder.path()).unwrap();
    file.seek(SeekFrom::Start(begin)).unwrap();
    file.write_all(&vec![0; usize::try_from(bytes).unwrap()]).unwrap();
}

#[tokio::test]
async fn a_page_that_the_disk_has_lost_is_damage_and_no_database_that_does_not_answer() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(3);
    let decision = decision_id(chain.tenant, 1);
    chain.outcome(&mut batch, decision);
    commit(&store, &batch).await;
    store.close().await;
    for table in ["receipts", "outcomes", "runs"] {
        lose_page_of(&folder, table).await;
    }
    let store = folder.open().await;
    assert_eq!(store.entries(chain.tenant, 1, 9).await.unwrap().len(), 4);
    for error in [
        store.recorded(chain.tenant, 1, 9).await.map(drop).unwrap_err(),
        store.receipt(chain.tenant, decision).await.map(drop).unwrap_err(),
        store
            .outcomes_of(chain.tenant, &[decision])
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        let is_damage = matches!(error, StoreError::Corrupt { .. });
        assert!(
            is_damage && error.to_string().contains("the file is damaged"),
            "{error:?}"
        );
    }
    // Of whom a turn cannot read something, nobody knows.
    let mut turn = store.begin(&[chain.tenant]).await.unwrap();
    let error = turn
        .find_runs(&[(chain.tenant, Name::new("run").unwrap())])
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

/// Fails unless a commit is refused because of a file.
async fn refused(store: &SqliteStore, chain: &Chain) {
    let error = try_commit(store, &chain.clone().decisions(1)).await.unwrap_err();
    let causes = causes(&error);
    assert!(causes.contains("was deleted, moved away or replaced"), "{causes}");
}

#[tokio::test]
async fn a_database_that_was_deleted_or_moved_away_takes_no_commit_any_more() {
    for is_deleted in [true, false] {
        let folder = Folder::new();
        let store = folder.open().await;
        let mut chain = Chain::new(1);
        write_three(&store, &mut chain).await;
        store.file.look().unwrap();
        if is_deleted {
            std::fs::remove_file(folder.path()).unwrap();
        } else {
            std::fs::rename(folder.path(), folder.0.path().join("away.db")).unwrap();
        }
        assert!(matches!(store.file.look(), Err(Gone::Database(_))));
        store.check().unwrap_err();
        refused(&store, &chain).await;
        // What comes to be there may be another one.
        std::fs::write(folder.path(), "").unwrap();
        store.file.look().unwrap_err();
        refused(&store, &chain).await;
    }
}

/// Nobody has looked since, and the writer would open it.
#[tokio::test]
async fn a_database_that_was_put_in_the_place_of_another_is_not_written_to() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let new = folder.0.path().join("new.db");
    std::fs::write(&new, "another database").unwrap();
    std::fs::rename(&new, folder.path()).unwrap();
    store.writer.lock().await.lose_connections();
    refused(&store, &chain).await;
    store.check().unwrap_err();
    assert_eq!(std::fs::read(folder.path()).unwrap(), b"another database");
}

#[tokio::test]
async fn a_log_that_was_deleted_takes_no_commit_any_more_and_what_is_in_it_is_kept_by_closing() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    std::fs::remove_file(log_path(&folder.path())).unwrap();
    assert!(matches!(store.file.look(), Err(Gone::Log(_))));
    refused(&store, &chain).await;
    store.close().await;
    assert_eq!(head(&folder.open().await).await, chain.head());
}

/// Another program that opens the database makes a file of its own, and has no lock in common with this one.
#[tokio::test]
async fn a_database_whose_log_has_lost_its_index_takes_no_commit_any_more() {
    for is_replaced in [false, true] {
        let folder = Folder::new();
        let store = folder.open().await;
        let mut chain = Chain::new(1);
        write_three(&store, &mut chain).await;
        store.file.look().unwrap();
        std::fs::remove_file(log_index_path(&folder.path())).unwrap();
        if is_replaced {
            std::fs::write(log_index_path(&folder.path()), "").unwrap();
        }
        assert!(matches!(store.file.look(), Err(Gone::LogIndex(_))));
        store.check().unwrap_err();
        refused(&store, &chain).await;
        store.close().await;
        assert_eq!(head(&folder.open().await).await, chain.head());
    }
}

/// Another gateway can have claimed the database by then.
#[tokio::test]
async fn a_database_whose_lock_file_was_deleted_or_replaced_takes_no_commit_any_more() {
    for is_replaced in [false, true] {
        let folder = Folder::new();
        let store = folder.open().await;
        let mut chain = Chain::new(1);
        write_three(&store, &mut chain).await;
        let mut lock = folder.path().into_os_string();
        lock.push(".lock");
        std::fs::remove_file(&lock).unwrap();
        if is_replaced {
            std::fs::write(&lock, "").unwrap();
        }
        assert!(matches!(store.file.look(), Err(Gone::Lock(_))));
        store.check().unwrap_err();
        refused(&store, &chain).await;
        store.close().await;
        assert_eq!(head(&folder.open().await).await, chain.head());
    }
}

/// Without any, SQLite deletes the log, and makes another with the next one.
#[tokio::test]
async fn connections_that_are_opened_anew_are_not_taken_for_a_file_that_is_gone() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    for _ in 0..3 {
        write_three(&store, &mut chain).await;
        store.file.look().unwrap();
        store.writer.lock().await.lose_connections();
        store.file.look().unwrap();
    }
    write_three(&store, &mut chain).await;
    store.check().unwrap();
}

/// The writer would make another one by that name, beside readers that have the old one.
#[tokio::test]
async fn a_log_that_is_deleted_while_the_writer_has_no_connections_is_not_made_anew() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    fail_commits(store.writer.lock().await.committing().unwrap());
    let error = try_commit(&store, &chain.clone().decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    assert!(store.writer.lock().await.committing().is_none());
    std::fs::remove_file(log_path(&folder.path())).unwrap();
    refused(&store, &chain).await;
    assert!(matches!(store.file.check(), Err(Gone::Log(_))));
    store.close().await;
    assert!(!log_path(&folder.path()).exists());
    assert_eq!(head(&folder.open().await).await, chain.head());
}

/// SQLite counts as moved what it has copied, and the system forgets what it could not write.
#[tokio::test]
async fn a_database_that_could_not_be_synced_takes_no_commit_any_more_and_keeps_its_log() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    // With a reader in it the log does not start over, as under load.
    let mut stranger = folder.stranger().await;
    for statement in ["BEGIN", "SELECT count(*) FROM tenants"] {
        sqlx::query(statement).execute(&mut stranger).await.unwrap();
    }
    let lost = std::fs::read(folder.path()).unwrap();
    store.file.fail_syncs();
    let begin = Instant::now();
    while store.check().is_ok() {
        assert!(begin.elapsed() < Duration::from_mins(1), "nobody has noticed");
        let mut next = chain.clone();
        if try_commit(&store, &next.decisions(1)).await.is_ok() {
            chain = next;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(matches!(store.file.look(), Err(Gone::Unsynced { .. })));
    let error = try_commit(&store, &chain.clone().decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    assert!(
        causes(&error).contains("could not be synced"),
        "{}",
        causes(&error)
    );
    stranger.close().await.unwrap();
    store.close().await;
    // Nothing that was copied since has come to the disk.
    std::fs::write(folder.path(), lost).unwrap();
    let store = folder.open().await;
    assert_eq!(head(&store).await, chain.head());
    write_three(&store, &mut chain).await;
    store.close().await;
    assert_eq!(folder.log_bytes(), 0);
}
