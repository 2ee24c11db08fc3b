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

use crate::connections::Lent;
use crate::testing::{Database, SERVER_VARIABLE};
use crate::{OpenError, PostgresStore};
use ledger::Head;
use sqlx::PgConnection;
use std::time::Duration;
use store::conformance::sample::Chain;
use store::{Directories, Records};
use tokio::time::timeout;

/// How long something is waited for that comes at once unless the machine stands still.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a test begins anew whose machine has stood still for longer than the server or the store waits. Elsewhere
/// it passes the first time.
const TRIES: usize = 5;
/// How often a test begins anew that cuts connections: a store that does not find out what became of a commit looks
/// like such a machine.
const CUT_TRIES: usize = 2;

/// A database of a test's own.
async fn database() -> Database {
    Database::make(server()).await
}

/// The URL of the throw-away server.
fn server() -> Option<String> {
    std::env::var_os(SERVER_VARIABLE).map(|url| url.into_string().unwrap())
}

async fn open(database: &Database) -> PostgresStore {
    open_at(&database.url()).await
}

/// A store of the database with this URL, and another attempt where its first connection was not made in time.
async fn open_at(url: &str) -> PostgresStore {
    let mut tries = 1;
    loop {
        match PostgresStore::open(url).await {
            Ok(store) => return store,
            Err(OpenError::TimedOut { .. }) if tries < TRIES => tries += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The end of a chain, as it is stored.
async fn head(store: &PostgresStore, chain: &Chain) -> Head {
    store.head(chain.tenant).await.unwrap()
}

/// One commit with three decisions.
async fn write_three(store: &PostgresStore, chain: &mut Chain) {
    store::conformance::commit(store, &chain.decisions(3)).await;
}

/// Waits until there may have been a change, and again where the connection that listens could not be made.
async fn hear(store: &PostgresStore) {
    let heard = async {
        while store.changed().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, heard).await.expect("nothing was heard");
}

/// Ends all sessions in the database of this one, and waits until they have ended.
async fn end_sessions(stranger: &mut PgConnection) {
    let end = sqlx::query(
        "SELECT pg_terminate_backend(pid, $1)
         FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    let time_max = i64::try_from(PATIENCE.as_millis()).unwrap();
    end.bind(time_max).execute(stranger).await.unwrap();
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
