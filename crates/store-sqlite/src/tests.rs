//! What only SQLite can get wrong: files, locks, settings, a full disk, a COMMIT that fails.
//!
//! Here and not in `tests/`, because a fault has to be put into the writer's own connection. The promises that every
//! backend makes are in [`store::conformance`].

mod bounds;
mod faults;
mod opening;
mod requests;
mod trees;

use crate::{OpenError, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use std::path::PathBuf;
use store::Directories;
use store::conformance::sample::Chain;

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

/// The end of the one chain that is stored.
async fn head(store: &SqliteStore) -> ledger::Head {
    store.load(None).await.unwrap()[0].place.head()
}

/// One commit with three decisions.
async fn write_three(store: &SqliteStore, chain: &mut Chain) {
    store::conformance::commit(store, &chain.decisions(3)).await;
}
