//! The storage promises kept on PostgreSQL, for any number of gateways over one database.
//!
//! - `address`, `open`, `connect`: from a URL to connections that are set up right;
//! - `claim`: keeps copies and gateways apart in a database that has no ledger yet;
//! - `tree`: completes ledgers that were written before their trees were kept;
//! - `connections`: how they are lent and come back;
//! - `turn`, `commit`, `append`, `insert`, `changes`, `erasures`, `landed`: a commit, from the lock to what became of it;
//! - `requests`: which requests were answered;
//! - `listener`, `remembered`: that other gateways have changed something, and what;
//! - `directories`, `records`, `search`, `index`, `buckets`, `counters`, `budgets`: the other promises of [`store`], a file each;
//! - `approvals`, `reservations`, `runs`, `links`, `contents`: what is written in the commit of its entry;
//! - `balances`, `recorded`, `ending`: budgets as they are now, entries with what stands at their places, and where a
//!   ledger ends;
//! - `decode`: what stands in the columns.
//!
//! The schema is in `migrations/postgres`, with its reasons; why it is made like this is in
//! `docs/decisions/0005-postgresql.md`. There is no leader here, no cache, no retry of a commit and no decision: whoever
//! commits is told what happened and decides what to do about it.

mod address;
mod append;
mod approvals;
mod balances;
mod buckets;
mod budgets;
mod changes;
mod claim;
mod commit;
mod connect;
mod connections;
mod contents;
mod counters;
mod decode;
mod directories;
mod ending;
mod erasures;
mod index;
mod insert;
mod landed;
mod links;
mod listener;
mod open;
mod recorded;
mod records;
mod remembered;
mod requests;
mod reservations;
mod runs;
mod search;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tree;
mod turn;

pub use claim::{Claim, Claimant};
pub use open::OpenError;

use address::Address;
use async_trait::async_trait;
use connections::{Connections, is_damage};
use futures_util::future::{join, join_all};
use listener::Listener;
use sqlx::types::Uuid;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use store::{Store, StoreError, Sweep};

/// A ledger in a PostgreSQL database, which other gateways may be writing to at the same time. Clones are handles on
/// the same store.
#[derive(Clone)]
pub struct PostgresStore {
    address: Address,
    /// Which store this is: so that it knows its own announcements from those of others.
    id: Uuid,
    /// Transactions that hold the turn, and batches that are appended.
    turns: Arc<Connections>,
    /// Short writes outside of a turn: leases of shared token buckets, blocks of the search index.
    leases: Arc<Connections>,
    /// Reads for somebody who waits.
    readers: Arc<Connections>,
    /// Loading directories: long reads.
    loads: Arc<Connections>,
    /// Comparing revisions and heads, which must not wait behind `loads`.
    looks: Arc<Connections>,
    /// Deleting what is no longer wanted, some rows at a time.
    sweeps: Arc<Connections>,
    /// What the handle for work that nobody waits for has in place of `leases`, `sweeps` and `readers`.
    background_writer: Arc<Connections>,
    background_readers: Arc<Connections>,
    listener: Arc<Listener>,
    /// How far buckets were looked at that may be full, by whichever handle.
    full_buckets: Arc<Sweep<buckets::Key>>,
    /// How far counters were looked at that may be old, by whichever handle.
    old_counters: Arc<Sweep<counters::Key>>,
}

impl PostgresStore {
    /// Opens the database that a URL such as `postgres://user:password@host:5432/countersign` names, and brings its
    /// schema up to date. The database itself has to be there.
    ///
    /// `sslmode` behind the `?` says how the server is reached. `prefer`, which is what is meant without it, uses TLS where
    /// the server has it and believes any certificate; `require` insists on TLS and believes any certificate; `verify-full`
    /// insists on a certificate for that host from a known authority, or from the one in the file that `sslrootcert` names.
    /// Over a network that others share only `verify-full` is safe: a password can be read or asked for by whoever stands in
    /// between. A pooler between the two has to keep a connection for a session, because settings and announcements are a
    /// session's, and to hand on `options`, in which the settings travel.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let id = open::prepare(&address).await?;
        open::check_rights(&address).await?;
        Ok(Self::at(address, id))
    }

    /// Opens a database as [`Self::open`] does, for who only reads it: the role need not be allowed to change anything.
    pub async fn open_to_read(url: &str) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let id = open::prepare(&address).await?;
        Ok(Self::at(address, id))
    }

    fn at(address: Address, id: Uuid) -> Self {
        let options = &address.options;
        Self {
            id,
            turns: connect::turns(options),
            leases: connect::leases(options),
            readers: connect::readers(options),
            loads: connect::loads(options),
            looks: connect::looks(options),
            sweeps: connect::sweeps(options),
            background_writer: connect::background_writer(options),
            background_readers: connect::background_readers(options),
            listener: Arc::new(Listener::new(connect::listener(options), id)),
            full_buckets: Arc::default(),
            old_counters: Arc::default(),
            address,
        }
    }

    /// Keeps others out of a database that was opened before, until this is given back: a copy keeps out everybody, a
    /// gateway that starts keeps out copies.
    pub async fn claim(url: &str, claimant: Claimant) -> Result<Claim, OpenError> {
        claim::take(&Address::parse(url)?, claimant).await
    }

    /// Brings the schema of the database that a URL names up to date and closes it again, so that gateways can be run by a
    /// role that may not change the schema.
    pub async fn migrate(url: &str) -> Result<(), OpenError> {
        open::prepare(&Address::parse(url)?).await.map(drop)
    }
}

#[async_trait]
impl Store for PostgresStore {
    /// A connection is driven by the runtime that has made it, so what is lent there is never lent here.
    fn background(&self) -> Arc<dyn Store> {
        Arc::new(Self {
            leases: Arc::clone(&self.background_writer),
            readers: Arc::clone(&self.background_readers),
            sweeps: Arc::clone(&self.background_writer),
            ..self.clone()
        })
    }

    fn readers(&self) -> usize {
        connect::READERS_MAX
    }

    /// Closes all kinds of connections together: where the server is silent, each takes as long as it may.
    async fn close(&self) {
        let kinds = [
            &self.turns,
            &self.leases,
            &self.readers,
            &self.loads,
            &self.looks,
            &self.sweeps,
            &self.background_writer,
            &self.background_readers,
        ];
        let closing = join_all(kinds.map(|connections| connections.close()));
        join(self.listener.close(), closing).await;
    }
}

/// The server and the database, and never the password.
impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.address)
    }
}

/// Runs a read, but not for ever, even if the server is out of reach.
async fn bounded<T>(read: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
    match tokio::time::timeout(connect::READ_WAIT_MAX, read).await {
        Ok(outcome) => outcome,
        Err(elapsed) => Err(StoreError::Unavailable(Box::new(elapsed))),
    }
}

/// What could not be read outside of a turn. All that is not damaged may pass, also where the disk does not give a
/// page.
fn unread(error: sqlx::Error) -> StoreError {
    if is_damage(&error) {
        let what = format!("the server has found damage: {error}");
        return StoreError::Corrupt { what };
    }
    mistyped(&error).unwrap_or_else(|| unavailable(error))
}

/// What is damaged, where a value that is not of its type is why something could not be read.
fn mistyped(error: &sqlx::Error) -> Option<StoreError> {
    let sqlx::Error::ColumnDecode { index, .. } = error else {
        return None;
    };
    let what = format!("column {index} of a row is not of its type");
    Some(StoreError::Corrupt { what })
}

/// The database did not answer.
fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
