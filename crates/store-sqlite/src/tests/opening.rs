//! Who may open what, and with which settings.

use super::{Folder, head, write, write_three};
use crate::OpenError;
use crate::file::log_path;
use crate::open;
use crate::writer::Writer;
use canon::Digest;
use model::{ApprovalStatus, Timestamp};
use sqlx::migrate::Migrate;
use sqlx::{Connection, Row, SqliteConnection};
use std::error::Error;
use store::conformance::sample::{Chain, approval, approved, name};
use store::conformance::{commit, try_commit};
use store::{
    ApprovalFilter, Approvals, Batch, Budgets, CommitError, Journal, Records, ReplyKey, ReplyRow, Store,
    StoreError,
};

async fn pragma(connection: &mut SqliteConnection, name: &'static str) -> String {
    let row = sqlx::query(name).fetch_one(connection).await.unwrap();
    // Unchecked: some are numbers, and SQLite writes those as text too.
    row.try_get_unchecked(0).unwrap()
}

fn pragma_of_commits(writer: &Writer, name: &str) -> String {
    use rusqlite::types::Value;
    let connection = writer.committing().unwrap();
    match connection.query_row(name, [], |row| row.get(0)).unwrap() {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text,
        other => panic!("{name}: {other:?}"),
    }
}

#[tokio::test]
async fn the_writer_syncs_every_commit_and_never_checkpoints() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut writer = store.writer.lock().await;
    for (name, value) in [
        ("PRAGMA synchronous", "2"),
        ("PRAGMA journal_mode", "wal"),
        ("PRAGMA wal_autocheckpoint", "0"),
        ("PRAGMA foreign_keys", "0"),
        ("PRAGMA page_size", "2048"),
        ("PRAGMA journal_size_limit", "67108864"),
        ("PRAGMA busy_timeout", "500"),
    ] {
        assert_eq!(pragma_of_commits(&writer, name), value, "{name}");
        let aside = pragma(writer.ready().await.unwrap(), name).await;
        assert_eq!(aside, value, "{name}, beside commits");
    }
}

#[tokio::test]
async fn a_writer_that_had_to_be_opened_anew_syncs_too() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    store.writer.lock().await.lose_connections();
    write_three(&store, &mut chain).await;
    let mut writer = store.writer.lock().await;
    assert_eq!(pragma_of_commits(&writer, "PRAGMA synchronous"), "2");
    let aside = pragma(writer.ready().await.unwrap(), "PRAGMA synchronous").await;
    assert_eq!(aside, "2");
}

#[tokio::test]
async fn a_database_with_pages_of_an_earlier_version_keeps_them() {
    let folder = Folder::new();
    let mut chain = Chain::new(1);
    let store = folder.open().await;
    write_three(&store, &mut chain).await;
    store.close().await;
    let mut stranger = folder.stranger().await;
    for change in [
        "PRAGMA journal_mode = DELETE",
        "PRAGMA page_size = 4096",
        "VACUUM",
    ] {
        sqlx::query(change).execute(&mut stranger).await.unwrap();
    }
    stranger.close().await.unwrap();
    let store = folder.open().await;
    write_three(&store, &mut chain).await;
    assert_eq!(head(&store).await, chain.head());
    let mut writer = store.writer.lock().await;
    assert_eq!(
        pragma(writer.ready().await.unwrap(), "PRAGMA page_size").await,
        "4096"
    );
    drop(writer);
    let bytes = store.size_bytes().await.unwrap();
    store.close().await;
    assert_eq!(std::fs::metadata(folder.path()).unwrap().len(), bytes);
    // A frame is a page and 24 bytes.
    for (database, frame_bytes) in [(&folder, 4_096 + 24), (&Folder::new(), 2_048 + 24)] {
        let (connection, frames) = open::migrated(&database.path(), 100 * frame_bytes).await.unwrap();
        assert_eq!(frames, 100);
        connection.close().await.unwrap();
    }
}

#[tokio::test]
async fn readers_cannot_write() {
    let folder = Folder::new();
    let store = folder.open().await;
    let error = sqlx::query("DELETE FROM tenants")
        .execute(&store.readers)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("readonly"), "{error}");
}

#[tokio::test]
async fn a_second_store_on_the_same_file_is_refused_until_the_first_is_closed() {
    let folder = Folder::new();
    let store = folder.open().await;
    let error = folder.refused().await;
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(
        error.to_string().contains("ledger.db` is in use by process"),
        "{error}"
    );
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    store.close().await;
    assert_eq!(head(&folder.open().await).await, chain.head());
}

#[tokio::test]
async fn a_store_that_was_dropped_gives_the_file_back() {
    let folder = Folder::new();
    drop(folder.open().await);
    folder.open().await;
}

#[tokio::test]
async fn a_closed_store_refuses_everything_and_leaves_one_file_and_its_lock() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    store.close().await;
    store.close().await;
    let error = try_commit(&store, &chain.decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    let error = store.size_bytes().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let left = std::fs::read_dir(folder.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["ledger.db", "ledger.db.lock"]);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_with_both_versions() {
    let folder = Folder::new();
    folder.open().await.close().await;
    let mut stranger = folder.stranger().await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', TRUE, x'00', 0)",
    )
    .execute(&mut stranger)
    .await
    .unwrap();
    stranger.close().await.unwrap();
    let error = folder.refused().await;
    assert!(matches!(error, OpenError::Newer { found: 9999, .. }), "{error}");
    assert!(error.to_string().contains("start a newer version"), "{error}");
    // Refusing gave the claim back: the reason stays the same.
    assert!(matches!(folder.refused().await, OpenError::Newer { .. }));
}

#[tokio::test]
async fn a_migration_that_was_changed_afterwards_is_refused() {
    let folder = Folder::new();
    folder.open().await.close().await;
    let mut stranger = folder.stranger().await;
    let change = sqlx::query("UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1");
    change.execute(&mut stranger).await.unwrap();
    stranger.close().await.unwrap();
    let error = folder.refused().await;
    assert!(matches!(error, OpenError::Migrate { .. }), "{error}");
    assert!(
        error.source().unwrap().to_string().contains("migration 1"),
        "{error:?}"
    );
}

/// Makes the tables of approvals and answers what they were before step 21, with the rows that they have.
const BEFORE_VALUES_APART: [&str; 7] = [
    "DROP INDEX approvals_status; DROP INDEX approvals_open; DROP INDEX replies_at;
     ALTER TABLE approvals RENAME TO kept_approvals;
     ALTER TABLE replies RENAME TO kept_replies",
    include_str!("../../../../migrations/sqlite/0005_approvals.sql"),
    "CREATE TABLE replies (
         tenant_no INTEGER NOT NULL,
         caller    BLOB    NOT NULL,
         key       TEXT    NOT NULL,
         request   BLOB    NOT NULL,
         bytes     BLOB    NOT NULL,
         PRIMARY KEY (tenant_no, caller, key)
     ) STRICT, WITHOUT ROWID",
    include_str!("../../../../migrations/sqlite/0014_replies_at.sql"),
    "INSERT INTO approvals (tenant_no, id, agent, status, expires_at, value)
     SELECT tenant_no, id, agent, status, expires_at, value FROM kept_approvals",
    "INSERT INTO replies (tenant_no, caller, key, request, bytes, at)
     SELECT tenant_no, caller, key, request, bytes, at FROM kept_replies",
    "DROP TABLE kept_approvals; DROP TABLE kept_replies;
     DELETE FROM _sqlx_migrations WHERE version = 21",
];

/// Everything that is in the schema of a database, in words.
async fn schema(folder: &Folder) -> Vec<(String, String, Option<String>)> {
    let mut stranger = folder.stranger().await;
    let rows = sqlx::query_as("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name");
    let rows = rows.fetch_all(&mut stranger).await.unwrap();
    stranger.close().await.unwrap();
    rows
}

#[tokio::test]
async fn approvals_and_answers_of_an_earlier_version_are_all_there_and_found_as_new_ones() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut pending = approval(1, 1_000);
    pending.request.parameters = Some(format!(r#"{{"text":"{}"}}"#, "a".repeat(10_000)));
    let agreed = approved(&approval(2, 2_000));
    let reply = ReplyRow {
        key: ReplyKey {
            tenant: one.tenant,
            caller: [1; 16],
            key: name("k"),
        },
        request: Digest::ZERO,
        bytes: vec![7; 10_000].into(),
        at: Timestamp::from_millis(7),
    };
    let mut batch = Batch::default();
    one.approval(&mut batch, &pending);
    one.approval(&mut batch, &agreed);
    two.approval(&mut batch, &pending);
    batch.budgets.replies.push(reply.clone());
    commit(&store, &batch).await;
    store.close().await;
    let as_new = schema(&folder).await;
    let mut stranger = folder.stranger().await;
    for statements in BEFORE_VALUES_APART {
        sqlx::raw_sql(statements).execute(&mut stranger).await.unwrap();
    }
    stranger.close().await.unwrap();
    assert_ne!(schema(&folder).await, as_new);

    let store = folder.open().await;
    let filter = |status| ApprovalFilter { agent: None, status };
    for (tenant, status, expected) in [
        (one.tenant, None, vec![agreed.clone(), pending.clone()]),
        (one.tenant, Some(ApprovalStatus::Approved), vec![agreed]),
        (two.tenant, None, vec![pending.clone()]),
    ] {
        let found = store.approvals(tenant, &filter(status), None, 10).await;
        assert_eq!(found.unwrap().found, expected);
    }
    assert_eq!(store.replies_after(one.tenant, None, 10).await.unwrap(), [reply]);
    let agreed = approved(&pending);
    let mut batch = Batch::default();
    two.approval(&mut batch, &agreed);
    commit(&store, &batch).await;
    let found = store.approval(two.tenant, agreed.id).await;
    assert_eq!(found.unwrap(), Some(agreed));
    store.close().await;
    assert_eq!(schema(&folder).await, as_new);
}

/// In a table without rowids a row is its key, and SQLite reads all of it to compare it with another one. What is in
/// these has a bound of some kB, and is seldom longer than what stands within the page.
#[tokio::test]
async fn no_long_value_is_read_to_find_another_row() {
    let folder = Folder::new();
    let store = folder.open().await;
    let names = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND wr = 1 ORDER BY name";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&store.readers).await.unwrap();
    let expected = [
        "buckets",
        "budgets",
        "outcomes",
        "quota_counters",
        "requests",
        "reservations",
        "run_links",
        "runs",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_not_touched() {
    let folder = Folder::new();
    let mut stranger = folder.stranger().await;
    sqlx::query("CREATE TABLE theirs (a)")
        .execute(&mut stranger)
        .await
        .unwrap();
    stranger.close().await.unwrap();
    let before = std::fs::read(folder.path()).unwrap();
    let error = folder.refused().await;
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read(folder.path()).unwrap(), before);
}

/// The table of migrations is made before the first of them says whose file it is.
#[tokio::test]
async fn a_first_start_that_died_before_the_first_migration_is_begun_anew() {
    let folder = Folder::new();
    let mut stranger = folder.stranger().await;
    stranger
        .ensure_migrations_table("_sqlx_migrations")
        .await
        .unwrap();
    stranger.close().await.unwrap();
    folder.open().await.close().await;

    let mut stranger = folder.stranger().await;
    for statement in ["PRAGMA application_id = 0", "CREATE TABLE theirs (a)"] {
        sqlx::query(statement).execute(&mut stranger).await.unwrap();
    }
    stranger.close().await.unwrap();
    let error = folder.refused().await;
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_by_name() {
    let folder = Folder::new();
    std::fs::write(folder.path(), "notes, and not a database at all. ".repeat(100)).unwrap();
    let error = folder.refused().await;
    assert!(matches!(error, OpenError::Database { .. }), "{error}");
    assert!(error.to_string().contains("ledger.db"), "{error}");
    assert!(
        error.source().unwrap().to_string().contains("not a database"),
        "{error:?}"
    );
}

/// SQLite would delete it, and with it the last that is left of a ledger.
#[tokio::test]
async fn a_log_without_its_database_is_refused_and_kept() {
    let folder = Folder::new();
    let log = log_path(&folder.path());
    std::fs::write(&log, "the last commits").unwrap();
    for _ in 0..2 {
        let error = folder.refused().await;
        assert!(matches!(error, OpenError::LogAlone { .. }), "{error}");
        assert!(error.to_string().contains("ledger.db-wal"), "{error}");
        assert_eq!(std::fs::read(&log).unwrap(), b"the last commits");
        std::fs::write(folder.path(), "").unwrap();
    }
    // In an empty one is nothing.
    std::fs::write(&log, "").unwrap();
    folder.open().await.close().await;
}

#[tokio::test]
async fn what_was_recorded_cannot_be_rewritten_by_hand() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(3);
    chain.content(&mut batch, "seen");
    store::conformance::commit(&store, &batch).await;
    let mut stranger = folder.stranger().await;
    for statement in [
        "DELETE FROM tenants",
        "UPDATE audit_events SET body = '{}'",
        "DELETE FROM audit_events",
        "UPDATE decisions SET reason = 'policy_permits'",
        "DELETE FROM decisions",
        "UPDATE receipts SET bytes = x''",
        "DELETE FROM receipts",
        "UPDATE contents SET bytes = x''",
    ] {
        let error = sqlx::query(statement)
            .execute(&mut stranger)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("not rewritten") || error.contains("not deleted"),
            "{statement}: {error}"
        );
    }
}

#[tokio::test]
async fn a_row_that_no_program_wrote_is_an_error_that_names_it() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut stranger = folder.stranger().await;
    let change = sqlx::query("UPDATE tenants SET head_hash = x'00'");
    change.execute(&mut stranger).await.unwrap();
    let error = store::Directories::load(&store, None).await.unwrap_err();
    let expected =
        "the database holds something unreadable: `head_hash` of row 1 of `tenants` is not 32 bytes";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn time_goes_on_from_the_last_entry_whatever_stands_beside_the_head() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let last = store.ending(chain.tenant).await.unwrap().unwrap().entry_at;
    write(&store, "UPDATE tenants SET head_at = 3800000000000").await;
    store.close().await;
    let store = folder.open().await;
    let turn = store.begin(&[chain.tenant]).await.unwrap();
    assert_eq!(Some(turn.positions()[&chain.tenant].at), last);
}

/// How often this process has a file open.
#[cfg(target_os = "linux")]
fn descriptors(path: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target == path).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_store_that_was_closed_has_no_file_open_any_more() {
    let folder = Folder::new();
    let store = folder.open().await;
    write_three(&store, &mut Chain::new(1)).await;
    let path = store.path().to_owned();
    assert!(descriptors(&path) > 1, "SQLite's, and ours");
    store.close().await;
    assert_eq!(descriptors(&path), 0);
    store.file.sync().unwrap();
}
