//! The promises of storage, asked of SQLite.
#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be set up fails its test"
)]

use async_trait::async_trait;
use std::sync::{Arc, Mutex};
use store::Store;
use store::conformance::Fixture;
use store_sqlite::SqliteStore;

/// A database in a folder of its own.
struct Sqlite {
    folder: tempfile::TempDir,
    open: Mutex<Option<Arc<SqliteStore>>>,
}

fn sqlite() -> Sqlite {
    Sqlite {
        folder: tempfile::tempdir().unwrap(),
        open: Mutex::new(None),
    }
}

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> Arc<dyn Store> {
        let url = format!("sqlite:{}/ledger.db", self.folder.path().display());
        let store = Arc::new(SqliteStore::open(&url).await.unwrap());
        *self.open.lock().unwrap() = Some(Arc::clone(&store));
        store
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let before = self.open.lock().unwrap().take().unwrap();
        before.close().await;
        self.open().await
    }
}

store::conformance_tests!(sqlite);
