//! For tests only: databases of their own on a throw-away server, servers of their own that can be stopped, and a network
//! that breaks at the worst moment. Real ones all: nothing here stands in for PostgreSQL.
//!
//! Tests are run with `scripts/with-postgres`, which starts the server that [`Database::make`] makes databases on.
#![expect(clippy::unwrap_used, reason = "a set-up that fails, fails its test")]

mod network;
mod server;

pub use network::{Cut, Network};
pub use server::Server;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::time::Duration;

/// The variable in which tests find the URL of the throw-away server. It is for tests to read it.
pub const SERVER_VARIABLE: &str = "COUNTERSIGN_TEST_POSTGRES_URL";

/// How long the end of a test waits for its database to be gone.
const DROP_WAIT_MAX: Duration = Duration::from_millis(500);

/// An empty database that nobody else uses; gone when this is dropped.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
}

impl Database {
    /// Makes a database on the server with this URL, which is what stands in [`SERVER_VARIABLE`].
    ///
    /// # Panics
    ///
    /// Where there is no server: a test that needs one does not pass without it.
    pub async fn make(server: Option<String>) -> Self {
        Self::make_with(server, "").await
    }

    /// Makes a database as [`Self::make`] does, with something to add to `CREATE DATABASE`.
    pub async fn make_with(server: Option<String>, options: &str) -> Self {
        let server = server.unwrap_or_else(|| {
            panic!(
                "{SERVER_VARIABLE} is not set: run the tests that need PostgreSQL with \
                 `scripts/with-postgres cargo test --package <crate>`"
            )
        });
        let mut connection = PgConnection::connect(&server).await.unwrap();
        let name: String = sqlx::query_scalar("SELECT 'test_' || replace(gen_random_uuid()::text, '-', '')")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        let create = format!("CREATE DATABASE {name} {options}");
        sqlx::raw_sql(AssertSqlSafe(create))
            .execute(&mut connection)
            .await
            .unwrap();
        Self { server, name }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection as another program would open it.
    pub async fn stranger(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let (done, dropped) = std::sync::mpsc::channel::<()>();
        // On a thread of its own, because whoever drops this may be on a runtime already, or on none.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            // The server may be gone already, and goes with all of its databases.
            let _ = runtime.block_on(async {
                let mut connection = PgConnection::connect(&server).await?;
                let text = format!("DROP DATABASE {name} WITH (FORCE)");
                sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await
            });
            drop(done);
        });
        // Not until it is done: the server waits for connections that are being made, and one of them may be waiting for
        // the runtime that this thread keeps from running.
        let _ = dropped.recv_timeout(DROP_WAIT_MAX);
    }
}

/// A URL with another database in it.
fn with_database(url: &str, name: &str) -> String {
    let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
    let (server, _) = place.rsplit_once('/').unwrap();
    format!("{server}/{name}?{parameters}")
}
