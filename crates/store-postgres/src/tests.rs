//! What only PostgreSQL can get wrong: several gateways, connections that die, servers that stop, settings, addresses.
//!
//! Here and not in `tests/`, because some look behind the promises. The promises themselves are in [`store::conformance`],
//! and run first.

mod addresses;
mod appends;
mod buckets;
mod conformance;
mod counters;
mod faults;
mod gateways;
mod restarts;
mod schema;
mod settings;
mod trees;

use crate::PostgresStore;
use crate::connections::Lent;
use crate::testing::{Database, SERVER_VARIABLE};
use ledger::Head;
use std::error::Error;
use std::time::Duration;
use store::Records;
use store::conformance::sample::Chain;
use tokio::time::timeout;

/// A database of a test's own.
async fn database() -> Database {
    Database::make(server()).await
}

/// The URL of the throw-away server.
fn server() -> Option<String> {
    std::env::var_os(SERVER_VARIABLE).map(|url| url.into_string().unwrap())
}

async fn open(database: &Database) -> PostgresStore {
    PostgresStore::open(&database.url()).await.unwrap()
}

/// The end of a chain, as it is stored.
async fn head(store: &PostgresStore, chain: &Chain) -> Head {
    store.head(chain.tenant).await.unwrap()
}

/// One commit with three decisions.
async fn write_three(store: &PostgresStore, chain: &mut Chain) {
    store::conformance::commit(store, &chain.decisions(3)).await;
}

/// All connections that asks wait for.
async fn lend_all(store: &PostgresStore) -> Vec<Lent> {
    let mut all = Vec::new();
    for connections in [&store.turns, &store.leases, &store.readers] {
        while let Ok(Ok(another)) = timeout(Duration::from_secs(1), connections.lend()).await {
            all.push(another);
        }
    }
    all
}

/// An error with all that caused it.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
