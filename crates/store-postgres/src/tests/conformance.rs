//! The promises of storage, asked of PostgreSQL.

use super::server;
use crate::PostgresStore;
use crate::testing::Database;
use async_trait::async_trait;
use std::sync::Arc;
use store::Store;
use store::conformance::Fixture;
use tokio::sync::Mutex;

/// A database of its own, made when it is opened.
#[derive(Default)]
struct Postgres {
    open: Mutex<Option<(Arc<PostgresStore>, Database)>>,
}

fn postgres() -> Postgres {
    Postgres::default()
}

#[async_trait]
impl Fixture for Postgres {
    async fn open(&self) -> Arc<dyn Store> {
        let database = Database::make(server()).await;
        let store = Arc::new(super::open(&database).await);
        *self.open.lock().await = Some((Arc::clone(&store), database));
        store
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let mut open = self.open.lock().await;
        let (store, database) = open.as_mut().unwrap();
        store.close().await;
        *store = Arc::new(super::open(database).await);
        Arc::clone(store) as Arc<dyn Store>
    }
}

store::conformance_tests!(postgres);
