//! The search index, in a file of its own beside the database: `countersign.db-search`.
//!
//! It has a writer and readers of its own, so that it waits for no commit and no commit for it. It is opened when it is
//! first needed; the writer's thread has the priority of whoever does that first. A file that is damaged, or is not of
//! this program's making, is thrown away: what it said can be read from the ledger again. One that cannot be opened for
//! any other reason stays.

mod file;

use crate::{Side, SqliteStore, bounded, is_damage};
use async_trait::async_trait;
use file::{Durability, Opened};
use model::TenantId;
use sqlx::SqliteConnection;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{BlockClaim, IndexedBlock, Posting, SearchIndex, StoreError};
use tokio::sync::Mutex;

/// The index of one database.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    /// Locked while it is opened.
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// It was not needed yet, or was thrown away.
    NotOpened,
    Opened(Arc<Opened>),
    /// For good: whoever opens the file next must not find us at work in it.
    Closed,
}

impl Index {
    /// The index beside a database. Nothing is opened yet.
    pub(crate) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-search");
        Self {
            path: path.into(),
            state: Mutex::new(State::NotOpened),
        }
    }

    pub(crate) async fn close(&self) {
        let state = std::mem::replace(&mut *self.state.lock().await, State::Closed);
        if let State::Opened(opened) = state {
            opened.close().await;
        }
    }

    async fn opened(&self) -> Result<Arc<Opened>, StoreError> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Opened(opened) => return Ok(Arc::clone(opened)),
            State::Closed => return Err(crate::unavailable(sqlx::Error::PoolClosed)),
            State::NotOpened => {}
        }
        let new = Arc::new(Opened::open(&self.path).await.map_err(crate::unavailable)?);
        *state = State::Opened(Arc::clone(&new));
        Ok(new)
    }

    /// What an error means. A damaged file is thrown away, and the next one who needs it finds an empty index.
    async fn failed(&self, broken: &Arc<Opened>, error: sqlx::Error) -> StoreError {
        let mut state = self.state.lock().await;
        // Somebody else may have thrown it away already, and then there is a new one.
        let is_broken = matches!(&*state, State::Opened(opened) if Arc::ptr_eq(opened, broken));
        if is_broken && is_damage(&error) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                path = %self.path.display(),
                "the search index is damaged and is made again"
            );
            *state = State::NotOpened;
            broken.close().await;
            file::remove(&self.path);
        }
        crate::unavailable(error)
    }

    async fn read<T>(
        &self,
        side: Side,
        read: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let opened = self.opened().await?;
        let connection = opened.readers(side).acquire().await;
        let outcome = match connection {
            Ok(mut connection) => read(&mut connection).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(found) => Ok(found),
            Err(error) => Err(self.failed(&opened, error).await),
        }
    }

    /// Runs statements in a transaction. One that is given up is rolled back before the connection is used again.
    async fn write<T>(
        &self,
        durability: Durability,
        write: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let opened = self.opened().await?;
        let mut writer = opened.writer.lock().await;
        if durability == Durability::Synced {
            // Before it is known whether it was written: that may never be known.
            opened.note_taken();
        }
        let outcome = async {
            let writer = writer.as_mut().ok_or(sqlx::Error::PoolClosed)?;
            // One that was given up is open still. Where none is, this fails and changes nothing.
            drop(file::control(writer, "ROLLBACK").await);
            file::set_durability(writer, durability).await?;
            file::control(writer, "BEGIN").await?;
            let done = match write(&mut *writer).await {
                Ok(done) => file::control(writer, "COMMIT").await.map(|()| done),
                Err(error) => Err(error),
            };
            if done.is_err() {
                // It holds no lock until the next one comes. SQLite may have rolled back by itself.
                drop(file::control(writer, "ROLLBACK").await);
            }
            done
        };
        let outcome = outcome.await;
        if outcome.is_ok()
            && let Some(writer) = writer.as_mut()
        {
            opened.empty_log(writer).await;
        }
        drop(writer);
        match outcome {
            Ok(done) => Ok(done),
            Err(error) => Err(self.failed(&opened, error).await),
        }
    }
}

#[async_trait]
impl SearchIndex for SqliteStore {
    async fn indexed(
        &self,
        tenant: TenantId,
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<IndexedBlock>, StoreError> {
        let read = self.index.read(self.side, async |connection| {
            file::indexed(connection, tenant, &blocks).await
        });
        bounded(read).await
    }

    async fn postings(
        &self,
        tenant: TenantId,
        terms: &[u64],
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<(u64, Posting)>, StoreError> {
        let read = self.index.read(self.side, async |connection| {
            file::postings(connection, tenant, terms, &blocks).await
        });
        bounded(read).await
    }

    async fn claim_block(
        &self,
        tenant: TenantId,
        block: u64,
        claim: &BlockClaim,
    ) -> Result<bool, StoreError> {
        let write = self.index.write(Durability::Loose, async |connection| {
            file::claim(connection, tenant, block, claim).await
        });
        bounded(write).await
    }

    async fn take_blocks(
        &self,
        tenant: TenantId,
        blocks: &BTreeSet<u64>,
        claim: &BlockClaim,
    ) -> Result<(), StoreError> {
        for &block in blocks {
            // Each by itself, because all of them at once may be more than a transaction has time for. The last one
            // has all of them synced.
            let durability = if blocks.last() == Some(&block) {
                Durability::Synced
            } else {
                Durability::Loose
            };
            let write = self.index.write(durability, async |connection| {
                file::claim(connection, tenant, block, claim).await
            });
            bounded(write).await?;
        }
        Ok(())
    }

    async fn put_block(
        &self,
        tenant: TenantId,
        block: &IndexedBlock,
        postings: &[Posting],
    ) -> Result<bool, StoreError> {
        let write = self.index.write(Durability::Loose, async |connection| {
            file::put(connection, tenant, block, postings).await
        });
        bounded(write).await
    }

    async fn release_block(&self, tenant: TenantId, block: u64, token: i64) -> Result<(), StoreError> {
        let write = self.index.write(Durability::Loose, async |connection| {
            file::release(connection, tenant, block, token).await
        });
        bounded(write).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use sqlx::Connection;
    use sqlx::sqlite::SqliteConnectOptions;
    use tokio::sync::Notify;

    /// By force.
    fn claim() -> BlockClaim {
        BlockClaim {
            token: 1,
            now: Timestamp::from_millis(0),
            until: Timestamp::from_millis(20),
            by_force: true,
        }
    }

    /// What is put under that claim.
    fn first_block() -> IndexedBlock {
        IndexedBlock {
            block: 0,
            end: canon::Digest::ZERO,
            token: 1,
            made_at: Some(ledger::Head::GENESIS),
        }
    }

    /// Makes every COMMIT of the index fail, or lets them be again.
    async fn fail_commits(store: &SqliteStore, fail: bool) {
        let opened = store.index.opened().await.unwrap();
        let mut writer = opened.writer.lock().await;
        crate::tests::fail_commits_of(writer.as_mut().unwrap(), fail).await;
    }

    /// How the last transaction was synced: 1 is NORMAL, 2 is FULL.
    async fn synchronous(store: &SqliteStore) -> i64 {
        let opened = store.index.opened().await.unwrap();
        let mut writer = opened.writer.lock().await;
        // SQLite answers while it prepares it, so one that was prepared before says what was so then.
        let query = sqlx::query_scalar("PRAGMA synchronous").persistent(false);
        query.fetch_one(writer.as_mut().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_taken_out_is_synced_and_what_is_made_again_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let tenant = TenantId::from_bytes([1; 16]);
        let blocks = BTreeSet::from([0, 1]);
        for _ in 0..2 {
            store.take_blocks(tenant, &blocks, &claim()).await.unwrap();
            assert_eq!(synchronous(&store).await, 2);
            store.release_block(tenant, 0, 1).await.unwrap();
            assert_eq!(synchronous(&store).await, 1);
        }
    }

    /// Whether the log of the index has these bytes.
    fn log_has(folder: &Path, wanted: &[u8]) -> bool {
        let log = std::fs::read(folder.join("ledger.db-search-wal")).unwrap();
        log.windows(wanted.len()).any(|bytes| bytes == wanted)
    }

    #[tokio::test]
    async fn what_is_taken_out_does_not_stay_in_the_log_of_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let tenant = TenantId::from_bytes([1; 16]);
        let places = b"places of an erased word";
        let posting = Posting {
            term: 1,
            places: places.to_vec(),
        };
        let blocks = BTreeSet::from([0]);
        let options = SqliteConnectOptions::new().filename(folder.path().join("ledger.db-search"));
        for has_reader in [false, true] {
            assert!(store.claim_block(tenant, 0, &claim()).await.unwrap());
            let put = first_block();
            let posting = std::slice::from_ref(&posting);
            assert!(store.put_block(tenant, &put, posting).await.unwrap());
            assert!(log_has(folder.path(), places));
            let mut reader = SqliteConnection::connect_with(&options).await.unwrap();
            if has_reader {
                for statement in ["BEGIN", "SELECT count(*) FROM search_blocks"] {
                    sqlx::query(statement).execute(&mut reader).await.unwrap();
                }
            }
            store.take_blocks(tenant, &blocks, &claim()).await.unwrap();
            assert_eq!(log_has(folder.path(), places), has_reader);
            reader.close().await.unwrap();
            store.release_block(tenant, 0, 1).await.unwrap();
            assert!(!log_has(folder.path(), places));
        }
    }

    #[tokio::test]
    async fn writes_go_on_after_several_that_could_not_be_committed() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let tenant = TenantId::from_bytes([1; 16]);
        fail_commits(&store, true).await;
        for _ in 0..3 {
            store.claim_block(tenant, 0, &claim()).await.unwrap_err();
        }
        fail_commits(&store, false).await;
        let blocks = BTreeSet::from([0]);
        store.take_blocks(tenant, &blocks, &claim()).await.unwrap();
        assert!(store.put_block(tenant, &first_block(), &[]).await.unwrap());
        // Another connection reads it.
        assert_eq!(store.indexed(tenant, 0..=9).await.unwrap(), [first_block()]);
    }

    #[tokio::test]
    async fn a_write_that_was_given_up_is_undone_before_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let tenant = TenantId::from_bytes([1; 16]);
        let written = Notify::new();
        let write = store.index.write(Durability::Loose, async |connection| {
            file::claim(connection, tenant, 0, &claim()).await?;
            written.notify_one();
            std::future::pending::<Result<(), sqlx::Error>>().await
        });
        tokio::select! {
            _ = write => unreachable!("it never ends"),
            () = written.notified() => {}
        }
        let gentle = BlockClaim {
            by_force: false,
            ..claim()
        };
        assert!(store.claim_block(tenant, 0, &gentle).await.unwrap());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_for_a_while_is_kept_and_a_damaged_one_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let tenant = TenantId::from_bytes([1; 16]);
        let put = first_block();
        let store = SqliteStore::open(&url).await.unwrap();
        assert!(store.claim_block(tenant, 0, &claim()).await.unwrap());
        assert!(store.put_block(tenant, &put, &[]).await.unwrap());
        store::Store::close(&store).await;

        // Where its log is to be: SQLITE_CANTOPEN.
        let in_the_way = folder.path().join("ledger.db-search-wal");
        std::fs::create_dir(&in_the_way).unwrap();
        let store = SqliteStore::open(&url).await.unwrap();
        for _ in 0..2 {
            store.indexed(tenant, 0..=9).await.unwrap_err();
        }
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(store.indexed(tenant, 0..=9).await.unwrap(), [put]);
        store::Store::close(&store).await;

        std::fs::write(folder.path().join("ledger.db-search"), [b'x'; 8_192]).unwrap();
        let store = SqliteStore::open(&url).await.unwrap();
        assert_eq!(store.indexed(tenant, 0..=9).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_file_of_another_schema_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let tenant = TenantId::from_bytes([1; 16]);
        let put = first_block();
        for _ in 0..2 {
            let store = SqliteStore::open(&url).await.unwrap();
            assert_eq!(store.indexed(tenant, 0..=9).await.unwrap(), []);
            assert!(store.claim_block(tenant, 0, &claim()).await.unwrap());
            assert!(store.put_block(tenant, &put, &[]).await.unwrap());
            assert_eq!(store.indexed(tenant, 0..=9).await.unwrap(), [put]);
            store::Store::close(&store).await;
            let options = SqliteConnectOptions::new().filename(folder.path().join("ledger.db-search"));
            let mut other = SqliteConnection::connect_with(&options).await.unwrap();
            let change = sqlx::query("UPDATE _sqlx_migrations SET checksum = x'00'");
            change.execute(&mut other).await.unwrap();
            other.close().await.unwrap();
        }
    }
}
