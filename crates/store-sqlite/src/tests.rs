//! What only SQLite can get wrong: files, locks, settings, a full disk, a COMMIT that fails.
//!
//! Here and not in `tests/`, because a fault has to be put into the writer's own connection. The promises that every
//! backend makes are in [`store::conformance`].

mod bounds;
mod buckets;
mod counters;
mod errands;
mod faults;
mod lists;
mod opening;
mod requests;
mod trees;

use crate::{OpenError, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use std::path::PathBuf;
use store::conformance::sample::Chain;
use store::{Directories, Records, Store};

/// A folder for one database.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap().join("ledger.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// The size of the write-ahead log's file.
    fn log_bytes(&self) -> u64 {
        let mut path = self.path().into_os_string();
        path.push("-wal");
        std::fs::metadata(path).map_or(0, |file| file.len())
    }

    async fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.url()).await.unwrap()
    }

    async fn refused(&self) -> OpenError {
        SqliteStore::open(&self.url()).await.unwrap_err()
    }

    /// A connection as another program would open it.
    async fn stranger(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.path())
            .create_if_missing(true);
        SqliteConnection::connect_with(&options).await.unwrap()
    }
}

#[tokio::test]
async fn whoever_reads_for_nobody_takes_no_connection_from_the_others_and_has_one_when_they_have_all() {
    let folder = Folder::new();
    let store = folder.open().await;
    let background = store.background();
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut taken = Vec::new();
    for _ in 0..store.readers.options().get_max_connections() {
        taken.push(store.readers.acquire().await.unwrap());
    }
    assert_eq!(background.head(chain.tenant).await.unwrap(), chain.head());
    assert_eq!(store.background_readers.size(), 1);
    drop(taken);
    let _theirs = store.background_readers.acquire().await.unwrap();
    assert_eq!(store.head(chain.tenant).await.unwrap(), chain.head());
    assert_eq!(store.background_readers.size(), 1);
}

/// Makes every COMMIT on a connection fail, as a full disk would, or lets them be again.
pub(crate) async fn fail_commits_of(connection: &mut SqliteConnection, fail: bool) {
    let mut handle = connection.lock_handle().await.unwrap();
    if fail {
        handle.set_commit_hook(|| false);
    } else {
        handle.remove_commit_hook();
    }
}

/// The end of the one chain that is stored.
async fn head(store: &SqliteStore) -> ledger::Head {
    store.load(None).await.unwrap()[0].position.head()
}

/// One commit with three decisions.
async fn write_three(store: &SqliteStore, chain: &mut Chain) {
    store::conformance::commit(store, &chain.decisions(3)).await;
}

/// One statement in a turn of its own.
async fn write(store: &SqliteStore, statement: &'static str) {
    let mut writer = store.writer.lock().await;
    let connection = writer.ready().await.unwrap();
    sqlx::query(statement).execute(connection).await.unwrap();
}
