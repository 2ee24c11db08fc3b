//! Where a test keeps everything: a SQLite file, or a database on the throw-away PostgreSQL server, as
//! `COUNTERSIGN_TEST_STORE` says. The same tests are run on both.

use gateway::stores;
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use store::Store;
use store_postgres::testing::{Database, SERVER_VARIABLE};
use tempfile::TempDir;

/// Names the kind of store: `sqlite`, which is meant without it, or `postgres`.
const STORE_VARIABLE: &str = "COUNTERSIGN_TEST_STORE";

/// A place for one store, gone when this is dropped.
pub(crate) enum Home {
    Folder(TempDir),
    Database(Database),
}

/// Whether tests run on PostgreSQL.
#[expect(clippy::disallowed_methods, reason = "the environment says where tests run")]
pub(crate) fn is_postgres() -> bool {
    match env::var(STORE_VARIABLE).as_deref() {
        Ok("postgres") => true,
        Ok("sqlite") | Err(_) => false,
        Ok(other) => panic!("{STORE_VARIABLE} is `{other}`; it can be `sqlite` or `postgres`"),
    }
}

/// An empty database on the throw-away server.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment says where the server is"
)]
pub(crate) async fn database() -> Database {
    Database::make(env::var(SERVER_VARIABLE).ok()).await
}

impl Home {
    /// An empty one.
    pub(crate) async fn new() -> Self {
        if is_postgres() {
            Self::Database(database().await)
        } else {
            Self::Folder(tempfile::tempdir().unwrap())
        }
    }

    /// The URL that a gateway is started with.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Folder(_) => format!("sqlite:{}", self.file().display()),
            Self::Database(database) => database.url(),
        }
    }

    /// The file of a SQLite store.
    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.path().join("countersign.db"),
            Self::Database(_) => panic!("PostgreSQL keeps no file that a test looks into"),
        }
    }

    /// The store in it.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        stores::open(&self.url()).await.unwrap()
    }
}
