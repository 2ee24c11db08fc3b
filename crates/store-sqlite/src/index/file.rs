//! The file of the search index: how it is opened, and the statements that are run on it.

use crate::{Side, connect, is_damage, primary_code};
use canon::Digest;
use ledger::Head;
use model::TenantId;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection, SqlitePool};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{BlockClaim, IndexedBlock, Posting};
use tokio::sync::Mutex;

/// The schema.
static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite-search");
/// Searches at once.
const READERS_MAX: u32 = 2;
/// Postings that one statement puts: a megabyte or two of JSON.
const POSTINGS_AT_ONCE: usize = 32_768;
/// How long a statement waits for somebody else's lock. There is one writer, so this only meets other programs.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// What of a transaction the loss of power may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// All of it: it is made again.
    Loose,
    /// Nothing of it, nor of those before it: they stand before it in the log, which is synced.
    Synced,
}

/// An open index.
#[derive(Debug)]
pub(super) struct Opened {
    /// Held for a transaction. None when closed.
    pub(super) writer: Mutex<Option<SqliteConnection>>,
    /// Whether the log may have what was taken out. Written by whoever has the writer.
    log_has_taken: AtomicBool,
    readers: SqlitePool,
    /// For what nobody waits for.
    background_readers: SqlitePool,
}

impl Opened {
    /// Opens the file, making it if it is not there. One that is of no use is thrown away. Any other failure says
    /// nothing against it, such as a disk that is full just now: it stays, and whoever needs it next tries again.
    pub(super) async fn open(path: &Path) -> Result<Self, sqlx::Error> {
        match Self::try_open(path).await {
            Err(error) if is_useless(&error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    path = %path.display(),
                    "the search index cannot be used and is made again"
                );
                remove(path);
                Self::try_open(path).await
            }
            tried => tried,
        }
    }

    async fn try_open(path: &Path) -> Result<Self, sqlx::Error> {
        // A pool of one and not a connection, because the future of migrating a connection is not `Send`.
        let one = SqlitePoolOptions::new().max_connections(1);
        let one = one.connect_with(options(path)).await?;
        if let Err(error) = migrate(&one).await {
            // It is waited for, as at the end: its log has the name that the one of the next file has.
            one.close().await;
            return Err(error);
        }
        let writer = one.acquire().await?.detach();
        Ok(Self {
            writer: Mutex::new(Some(writer)),
            // Nobody knows what the last process has left in it.
            log_has_taken: AtomicBool::new(true),
            readers: connect::pool(READERS_MAX, options(path)),
            background_readers: connect::pool(1, options(path)),
        })
    }

    /// Those that read for one or the other.
    pub(super) const fn readers(&self, side: Side) -> &SqlitePool {
        match side {
            Side::Front => &self.readers,
            Side::Background => &self.background_readers,
        }
    }

    /// Notes that something was taken out that the log may have.
    pub(super) fn note_taken(&self) {
        self.log_has_taken.store(true, Ordering::Relaxed);
    }

    /// Empties the log's file if it may have what was taken out: SQLite writes it over from its begin, and what it has
    /// further behind would stay. With a reader in the way it is done behind a later transaction.
    pub(super) async fn empty_log(&self, writer: &mut SqliteConnection) {
        if !self.log_has_taken.load(Ordering::Relaxed) {
            return;
        }
        // The first column: whether somebody was in the way.
        let query = sqlx::query_scalar::<_, i64>("PRAGMA wal_checkpoint(TRUNCATE)");
        match query.fetch_one(writer).await {
            Ok(0) => self.log_has_taken.store(false, Ordering::Relaxed),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the log of the search index was not emptied"),
        }
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.background_readers.close().await;
        // The last connection: SQLite moves its log into the file. It is waited for, because it also removes the log by
        // its name, which may be that of somebody else's in a moment.
        if let Some(writer) = self.writer.lock().await.take()
            && let Err(error) = writer.close().await
        {
            tracing::debug!(%error, "the search index was not closed as it should be");
        }
    }
}

/// Brings a new file to the schema, and sees that another one can be read by it.
async fn migrate(one: &SqlitePool) -> Result<(), sqlx::Error> {
    MIGRATIONS.run(one).await?;
    sqlx::query!("SELECT count(*) AS blocks FROM search_blocks")
        .fetch_one(one)
        .await
        .map(drop)
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Wal)
        // The loss of power may take the last blocks, which are made again. What it may not is `Durability::Synced`.
        .synchronous(SqliteSynchronous::Normal)
        .pragma("temp_store", "MEMORY")
        // As in the ledger: what is erased does not stay in free pages.
        .pragma("secure_delete", "ON")
        .disable_statement_logging()
        .thread_name(|id| format!("sqlite-search-{id}"))
}

/// Says how durable the next transactions of a connection are.
pub(super) async fn set_durability(
    connection: &mut SqliteConnection,
    durability: Durability,
) -> Result<(), sqlx::Error> {
    let pragma = match durability {
        Durability::Loose => "PRAGMA synchronous = NORMAL",
        Durability::Synced => "PRAGMA synchronous = FULL",
    };
    // SQLite does what it says while it prepares it, so one that was prepared before does nothing.
    let query = sqlx::query(pragma).persistent(false);
    query.execute(connection).await.map(drop)
}

/// Begins or ends a transaction. The driver has no part in it: it counts transactions, and loses count where SQLite has
/// rolled back by itself, as it does when a COMMIT finds no room.
pub(super) async fn control(
    connection: &mut SqliteConnection,
    statement: &'static str,
) -> Result<(), sqlx::Error> {
    sqlx::query(statement).execute(connection).await.map(drop)
}

/// Whether an error of opening the file says that it is damaged, or that it is not of this program's making: another
/// version has made its tables, or what is done to them is an `SQLITE_ERROR`, as where one is missing.
fn is_useless(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Migrate(error) => match &**error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => is_useless(error),
            MigrateError::VersionMissing(_) | MigrateError::VersionMismatch(_) | MigrateError::Dirty(_) => {
                true
            }
            _ => false,
        },
        sqlx::Error::ColumnDecode { .. } => true,
        error => is_damage(error) || primary_code(error) == Some(1),
    }
}

/// Throws the file away, with what SQLite has put beside it.
pub(super) fn remove(path: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(ending);
        if let Err(error) = std::fs::remove_file(&file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "the search index could not be thrown away");
        }
    }
}

pub(super) async fn indexed(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    blocks: &RangeInclusive<u64>,
) -> Result<Vec<IndexedBlock>, sqlx::Error> {
    let tenant_id = &tenant.as_bytes()[..];
    let (first, last) = (number(*blocks.start()), number(*blocks.end()));
    let rows = sqlx::query!(
        r#"SELECT
               search_blocks.block,
               search_blocks.end_hash AS "end_hash!",
               search_blocks.token,
               search_blocks.made_at_seq AS "made_at_seq?",
               search_blocks.made_at_hash AS "made_at_hash?"
           FROM search_tenants
           CROSS JOIN search_blocks
               ON search_blocks.tenant = search_tenants.tenant
              AND search_blocks.block BETWEEN ?2 AND ?3
           WHERE search_tenants.tenant_id = ?1
             AND search_blocks.end_hash IS NOT NULL
           ORDER BY search_blocks.block"#,
        tenant_id,
        first,
        last,
    )
    .fetch_all(connection)
    .await?;
    // A hash that is none matches no entry, so its block is made again.
    let digest = |hash: Vec<u8>| Digest::from_bytes(hash.try_into().unwrap_or([0; 32]));
    let blocks = rows.into_iter().map(|row| IndexedBlock {
        block: row.block.cast_unsigned(),
        end: digest(row.end_hash),
        token: row.token,
        made_at: row.made_at_seq.map(|seq| Head {
            seq: seq.cast_unsigned(),
            hash: digest(row.made_at_hash.unwrap_or_default()),
        }),
    });
    Ok(blocks.collect())
}

pub(super) async fn postings(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    terms: &[u64],
    blocks: &RangeInclusive<u64>,
) -> Result<Vec<(u64, Posting)>, sqlx::Error> {
    let tenant_id = &tenant.as_bytes()[..];
    let (first, last) = (number(*blocks.start()), number(*blocks.end()));
    let terms: Vec<String> = terms.iter().map(|term| term.cast_signed().to_string()).collect();
    let terms = format!("[{}]", terms.join(","));
    // CROSS JOIN keeps the order: from each block and each term to its row, by the primary key.
    let rows = sqlx::query!(
        r#"SELECT
             search_postings.block AS "block!",
             search_postings.term AS "term!",
             search_postings.places AS "places!"
         FROM search_tenants
         CROSS JOIN search_blocks
             ON search_blocks.tenant = search_tenants.tenant
            AND search_blocks.block BETWEEN ?3 AND ?4
         CROSS JOIN json_each(?2) AS wanted
         CROSS JOIN search_postings
             ON search_postings.tenant = search_tenants.tenant
            AND search_postings.block = search_blocks.block
            AND search_postings.term = wanted.value
         WHERE search_tenants.tenant_id = ?1
           AND search_blocks.end_hash IS NOT NULL"#,
        tenant_id,
        terms,
        first,
        last,
    )
    .fetch_all(connection)
    .await?;
    let found = rows.into_iter().map(|row| {
        let posting = Posting {
            term: row.term.cast_unsigned(),
            places: row.places,
        };
        (row.block.cast_unsigned(), posting)
    });
    Ok(found.collect())
}

pub(super) async fn claim(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    block: u64,
    claim: &BlockClaim,
) -> Result<bool, sqlx::Error> {
    let tenant_id = &tenant.as_bytes()[..];
    let (block, now, until) = (number(block), claim.now.millis(), claim.until.millis());
    let believed_until = claim.believed_until().millis();
    sqlx::query!(
        "INSERT OR IGNORE INTO search_tenants (tenant_id) VALUES (?1)",
        tenant_id
    )
    .execute(&mut *connection)
    .await?;
    let claimed = sqlx::query!(
        "INSERT INTO search_blocks (tenant, block, token, claimed_until)
         SELECT tenant, ?2, ?3, ?4
         FROM search_tenants
         WHERE tenant_id = ?1
         ON CONFLICT (tenant, block) DO UPDATE
         SET token = excluded.token,
             claimed_until = excluded.claimed_until,
             end_hash = NULL
         WHERE ?5
            OR (
                search_blocks.end_hash IS NULL
                AND (search_blocks.claimed_until <= ?6 OR search_blocks.claimed_until > ?7)
            )",
        tenant_id,
        block,
        claim.token,
        until,
        claim.by_force,
        now,
        believed_until,
    )
    .execute(&mut *connection)
    .await?;
    if claimed.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query!(
        "DELETE FROM search_postings
         WHERE tenant = (SELECT tenant FROM search_tenants WHERE tenant_id = ?1)
           AND block = ?2",
        tenant_id,
        block,
    )
    .execute(connection)
    .await?;
    Ok(true)
}

pub(super) async fn put(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    put: &IndexedBlock,
    postings: &[Posting],
) -> Result<bool, sqlx::Error> {
    let (tenant_id, block) = (&tenant.as_bytes()[..], number(put.block));
    let end_hash = &put.end.as_bytes()[..];
    let made_at_seq = put.made_at.map(|head| number(head.seq));
    let made_at_hash = put.made_at.as_ref().map(|head| &head.hash.as_bytes()[..]);
    let updated = sqlx::query!(
        "UPDATE search_blocks
         SET end_hash = ?4,
             made_at_seq = ?5,
             made_at_hash = ?6
         WHERE tenant = (SELECT tenant FROM search_tenants WHERE tenant_id = ?1)
           AND block = ?2
           AND token = ?3
           AND end_hash IS NULL",
        tenant_id,
        block,
        put.token,
        end_hash,
        made_at_seq,
        made_at_hash,
    )
    .execute(&mut *connection)
    .await?;
    if updated.rows_affected() == 0 {
        return Ok(false);
    }
    for some in postings.chunks(POSTINGS_AT_ONCE) {
        let json = postings_json(some);
        sqlx::query!(
            "INSERT INTO search_postings (tenant, block, term, places)
         SELECT search_tenants.tenant, ?2, posting.value ->> 0, unhex(posting.value ->> 1)
         FROM search_tenants
         CROSS JOIN json_each(?3) AS posting
         WHERE search_tenants.tenant_id = ?1",
            tenant_id,
            block,
            json,
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(true)
}

pub(super) async fn release(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    block: u64,
    token: i64,
) -> Result<(), sqlx::Error> {
    let (tenant_id, block) = (&tenant.as_bytes()[..], number(block));
    sqlx::query!(
        "DELETE FROM search_blocks
         WHERE tenant = (SELECT tenant FROM search_tenants WHERE tenant_id = ?1)
           AND block = ?2
           AND token = ?3
           AND end_hash IS NULL",
        tenant_id,
        block,
        token,
    )
    .execute(connection)
    .await
    .map(drop)
}

/// A number as SQLite has them. There are fewer blocks than entries, and those fit.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// `[[term,"hexadecimal"],…]`.
fn postings_json(postings: &[Posting]) -> String {
    let mut json = String::with_capacity(postings.len() * 32 + 2);
    json.push('[');
    for (at, posting) in postings.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(json, "{comma}[{},\"", posting.term.cast_signed()).expect("writing to a string does not fail");
        for byte in &posting.places {
            write!(json, "{byte:02x}").expect("writing to a string does not fail");
        }
        json.push_str("\"]");
    }
    json.push(']');
    json
}
