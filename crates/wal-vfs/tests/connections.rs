//! SQLite itself on the VFS, and beside it connections that know nothing of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use rusqlite::{Connection, OpenFlags};
use std::path::PathBuf;
use tempfile::TempDir;

/// A database in a folder of its own, with one table.
struct Database {
    folder: TempDir,
}

impl Database {
    fn new() -> Self {
        let database = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let connection = database.strange();
        let mode: String = connection
            .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
        connection
            .execute_batch("CREATE TABLE things (id INTEGER PRIMARY KEY, filling BLOB NOT NULL)")
            .unwrap();
        database
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.folder.path().join("things.db-wal")).map_or(0, |log| log.len())
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("things.db")
    }

    /// A connection with the VFS, of which the log is written by nobody but who calls.
    fn gathering(&self, synchronous: &str) -> Connection {
        let connection = wal_vfs::open(&self.file(), OpenFlags::default()).unwrap();
        connection
            .pragma_update(None, "synchronous", synchronous)
            .unwrap();
        connection.pragma_update(None, "wal_autocheckpoint", "0").unwrap();
        connection
    }

    /// What a crash would leave: the files as the system has them, without what this process has in memory.
    fn after_a_crash(&self) -> Self {
        let crashed = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for name in ["things.db", "things.db-wal"] {
            std::fs::copy(self.folder.path().join(name), crashed.folder.path().join(name)).unwrap();
        }
        crashed
    }

    /// One without.
    fn strange(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }
}

fn insert(connection: &Connection, things: std::ops::Range<i64>) {
    let mut insert = connection
        .prepare_cached("INSERT INTO things VALUES (?, zeroblob(?))")
        .unwrap();
    for id in things {
        insert.execute([id, id * 37 % 9_000]).unwrap();
    }
}

/// How many there are; each has to be whole.
fn count(connection: &Connection) -> i64 {
    let (count, whole): (i64, i64) = connection
        .query_row(
            "SELECT count(*), count(*) FILTER (WHERE length(filling) = id * 37 % 9000) FROM things",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(count, whole);
    count
}

fn checkpoint(connection: &Connection, how: &str) {
    let busy: i64 = connection
        .query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| row.get(0))
        .unwrap();
    assert_eq!(busy, 0);
}

fn is_intact(connection: &Connection) -> bool {
    let verdict: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    verdict == "ok"
}

#[test]
fn every_commit_is_seen_by_others_however_it_is_synced() {
    for synchronous in ["OFF", "NORMAL", "FULL", "EXTRA"] {
        let database = Database::new();
        let (writer, reader) = (database.gathering(synchronous), database.strange());
        for round in 0..100 {
            let begin = round * 20;
            writer.execute_batch("BEGIN IMMEDIATE").unwrap();
            insert(&writer, begin..begin + 20);
            assert_eq!(count(&reader), begin, "{synchronous}");
            writer.execute_batch("COMMIT").unwrap();
            assert_eq!(count(&reader), begin + 20, "{synchronous}");
            match round % 10 {
                3 => checkpoint(&reader, "PASSIVE"),
                6 => checkpoint(&writer, "RESTART"),
                9 => checkpoint(&reader, "TRUNCATE"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_commit_is_in_the_files_when_it_has_returned() {
    let database = Database::new();
    let writer = database.gathering("FULL");
    for round in 0..10 {
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        insert(&writer, round * 50..(round + 1) * 50);
        writer.execute_batch("COMMIT").unwrap();
        let crashed = database.after_a_crash();
        let found = crashed.strange();
        assert_eq!(count(&found), (round + 1) * 50);
        assert!(is_intact(&found));
    }
}

/// With a cache of a few pages SQLite would write pages of a transaction before it ends, read them again and write them anew.
#[test]
fn a_transaction_that_does_not_fit_the_cache_is_not_in_the_log_before_it_ends() {
    let database = Database::new();
    let (writer, reader) = (database.gathering("FULL"), database.strange());
    writer.pragma_update(None, "cache_size", 10).unwrap();
    let mut there = 0;
    for round in 0..20 {
        let log_bytes = database.log_bytes();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        insert(&writer, there..there + 300);
        assert_eq!(count(&writer), there + 300);
        writer
            .execute("UPDATE things SET filling = zeroblob(id * 37 % 9000)", [])
            .unwrap();
        assert_eq!(count(&writer), there + 300);
        assert_eq!(database.log_bytes(), log_bytes);
        if round % 2 == 0 {
            writer.execute_batch("ROLLBACK").unwrap();
        } else {
            writer.execute_batch("COMMIT").unwrap();
            there += 300;
        }
        assert_eq!((count(&writer), count(&reader)), (there, there));
        if round % 5 == 4 {
            checkpoint(&reader, "RESTART");
        }
    }
    assert!(is_intact(&reader));
}

/// Where all of a log is in the database, whoever writes next begins it anew: the transaction that is rolled back, and
/// then another connection.
#[test]
fn what_was_rolled_back_is_never_written_over_what_others_commit() {
    for things in 1..40 {
        let database = Database::new();
        let (writer, stranger) = (database.gathering("FULL"), database.strange());
        stranger
            .execute_batch("CREATE TABLE others (id INTEGER PRIMARY KEY)")
            .unwrap();
        writer.pragma_update(None, "cache_size", 10).unwrap();
        insert(&writer, 0..2);
        checkpoint(&stranger, "PASSIVE");
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        insert(&writer, 100..100 + things);
        writer.execute_batch("ROLLBACK").unwrap();
        stranger.execute("INSERT INTO others VALUES (1)", []).unwrap();
        insert(&writer, 2..3);
        let reader = database.strange();
        let others: i64 = reader
            .query_row("SELECT count(*) FROM others", [], |row| row.get(0))
            .unwrap();
        assert_eq!(
            (is_intact(&reader), count(&reader), others),
            (true, 3, 1),
            "{things}"
        );
    }
}

#[test]
fn a_log_that_others_have_left_is_read_and_goes_on() {
    let database = Database::new();
    let stranger = database.strange();
    insert(&stranger, 0..100);
    let crashed = database.after_a_crash();
    let writer = crashed.gathering("FULL");
    assert_eq!(count(&writer), 100);
    insert(&writer, 100..200);
    assert_eq!(count(&crashed.strange()), 200);
    writer.close().unwrap();
    let reader = crashed.strange();
    assert_eq!(count(&reader), 200);
    assert!(is_intact(&reader));
}
