//! The transaction of a commit: on the thread of whoever commits, a row at a time, with statements that stay prepared.
//!
//! A thread of its own for the connection would cost a hop there and a hop back for every answer that somebody waits
//! for, and SQLite itself needs less than that for the rows of a decision (measured;
//! docs/decisions/0042-commits-without-a-hop.md).
//!
//! This is the only SQL here that the compiler does not check. Each text stands with its table, and [`prepare_all`]
//! prepares all of them when the database is opened: one that does not fit the schema ends the start.

use crate::entry;
use crate::head_moves::{HeadMove, TenantNumbers};
use crate::packed::PackedRows;
use crate::requests::{RequestDigest, Requests};
use crate::{approvals, budgets, counters, erasures, links, requests, reservations, runs};
use model::{Noun, TenantId, Write};
use rusqlite::{CachedStatement, Connection, ffi, params};
use store::{Batch, ContentRow, DecisionRow, EntryRow, OutcomeRow};

const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

const NEW_TENANT: &str = "INSERT INTO tenants (head_seq, head_hash, head_at, edge, revision, tenant_no, tenant_id) \
    VALUES (?, ?, ?, ?, ?, ?, ?) \
    ON CONFLICT DO NOTHING";
const MOVE_HEAD: &str = "UPDATE tenants \
    SET head_seq = ?, head_hash = ?, head_at = ?, edge = ?, revision = ? \
    WHERE tenant_no = ? AND head_seq = ? AND head_hash = ?";
const ENTRY: &str = "INSERT INTO audit_events (entry, kind, at, prev, hash, nodes, packed, body) \
    VALUES (?, ?, ?, ?, ?, ?, ?, '')";
const DECISION: &str = "INSERT INTO decisions (entry, id, agent, tool, action, reason, run_id, ask, request) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
const RECEIPT: &str = "INSERT INTO receipts (entry, bytes) VALUES (?, ?)";
const OUTCOME: &str = "INSERT INTO outcomes (tenant_no, decision, entry) VALUES (?, ?, ?)";
const PUT_NOUN: &str = "INSERT INTO directory (tenant_no, kind, id, name, value) \
    VALUES (?, ?, ?, ?, ?) \
    ON CONFLICT (tenant_no, kind, id) DO UPDATE SET name = excluded.name, value = excluded.value";
const DELETE_NOUN: &str = "DELETE FROM directory WHERE tenant_no = ? AND kind = ? AND id = ?";
const CONTENT: &str =
    "INSERT INTO contents (tenant_no, digest, bytes) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";

/// All of them, here and in the files of their tables.
const STATEMENTS: [&[&str]; 10] = [
    &[
        BEGIN,
        COMMIT,
        ROLLBACK,
        NEW_TENANT,
        MOVE_HEAD,
        ENTRY,
        DECISION,
        RECEIPT,
        OUTCOME,
        PUT_NOUN,
        DELETE_NOUN,
        CONTENT,
    ],
    &approvals::STATEMENTS,
    &budgets::STATEMENTS,
    &counters::STATEMENTS,
    &erasures::STATEMENTS,
    &links::STATEMENTS,
    &requests::lookup::STATEMENTS,
    &requests::step::STATEMENTS,
    &reservations::STATEMENTS,
    &runs::STATEMENTS,
];

/// Prepares every statement, so that the first commit waits for none, and a text that does not fit the schema is noticed now.
pub(crate) fn prepare_all(connection: &Connection) -> rusqlite::Result<()> {
    let texts = STATEMENTS.iter().copied().flatten();
    connection.set_prepared_statement_cache_capacity(texts.clone().count());
    for text in texts {
        connection.prepare_cached(text)?;
    }
    Ok(())
}

fn is_known(text: &str) -> bool {
    STATEMENTS.iter().any(|some| some.contains(&text))
}

/// Why a row was not written. Nothing is, then, if the transaction is rolled back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotWritten {
    /// SQLite did not do it.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    /// A row's tenant is not among the batch's advances, or an answer is of one that has never written. It cannot
    /// happen with a batch that was checked and made in a turn.
    #[error("a row belongs to {0}, which the batch does not advance")]
    UnknownTenant(TenantId),
    /// A `seq` beyond what a number of the ledger can hold.
    #[error("the ledger of {0} is full")]
    Full(TenantId),
    /// A page of the index of requests cannot be read.
    #[error(transparent)]
    Torn(#[from] requests::Torn),
    /// There is no connection.
    #[error("the database is not open")]
    NotReady,
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A tenant's head is another one.
    HeadMoved(TenantId),
    /// A request id, an outcome or the key of an answer was recorded before.
    AlreadyRecorded,
    /// Nothing was written if the transaction is rolled back.
    BeforeCommit(NotWritten),
    /// COMMIT itself failed: the log may hold the whole transaction, and a crash would bring it to light.
    AtCommit(rusqlite::Error),
}

/// An open transaction, and what it needs to know to write rows.
pub(crate) struct Transaction<'c> {
    connection: &'c Connection,
    numbers: &'c TenantNumbers,
}

/// What a transaction writes.
pub(crate) struct Writing<'b> {
    pub(crate) batch: &'b Batch,
    pub(crate) moves: &'b [HeadMove],
    /// The integer key (`tenant_no`) of every tenant in this database.
    pub(crate) numbers: &'b TenantNumbers,
    /// What each decision's request is known by.
    pub(crate) digests: &'b [Option<RequestDigest>],
    /// Which entries answered which requests, before.
    pub(crate) requests: &'b Requests,
}

impl Writing<'_> {
    /// The integer keys of the tenants of the batch: of those that move, and of those that have only an answer in it.
    fn tenant_numbers(&self) -> TenantNumbers {
        let replies = self.batch.budgets.replies.iter();
        let answered = replies.filter_map(|reply| {
            let tenant = reply.key.tenant;
            Some((tenant, *self.numbers.get(&tenant)?))
        });
        let moved = self
            .moves
            .iter()
            .map(|head_move| (head_move.tenant, head_move.tenant_no));
        answered.chain(moved).collect()
    }
}

/// Writes a batch in one transaction: requests are looked up, heads are moved, rows are inserted, and `COMMIT` makes it
/// durable. On a failure the transaction may still be open: call [`roll_back`].
pub(crate) fn commit(connection: &Connection, writing: &Writing<'_>) -> Result<(), Failure> {
    let packed = PackedRows::of(writing.batch);
    let transaction = Transaction {
        connection,
        numbers: &writing.tenant_numbers(),
    };
    execute(connection, BEGIN)?;
    if writing.requests.repeat(connection, writing.digests)? {
        return Err(Failure::AlreadyRecorded);
    }
    for head_move in writing.moves {
        if !transaction.move_head(head_move)? {
            return Err(Failure::HeadMoved(head_move.tenant));
        }
    }
    transaction.write(writing, &packed)?;
    execute(connection, COMMIT).map_err(Failure::of_commit)
}

/// Undoes what a failed transaction has done so far.
pub(crate) fn roll_back(connection: &Connection) -> rusqlite::Result<()> {
    execute(connection, ROLLBACK)
}

/// Writes a step of upkeep in one transaction.
pub(crate) fn upkeep_step(
    connection: &Connection,
    write: impl FnOnce(&Transaction<'_>) -> Result<(), NotWritten>,
) -> Result<(), NotWritten> {
    execute(connection, BEGIN)?;
    write(&Transaction {
        connection,
        numbers: &TenantNumbers::new(),
    })?;
    Ok(execute(connection, COMMIT)?)
}

fn execute(connection: &Connection, text: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(text)?.execute([]).map(drop)
}

impl Transaction<'_> {
    /// Where it is open, to read in it.
    pub(crate) const fn connection(&self) -> &Connection {
        self.connection
    }

    /// A statement, which is prepared already.
    pub(crate) fn statement(&self, text: &str) -> rusqlite::Result<CachedStatement<'_>> {
        debug_assert!(is_known(text), "`prepare_all` does not know of {text}");
        self.connection.prepare_cached(text)
    }

    /// The integer key of a tenant of the batch.
    pub(crate) fn tenant_no(&self, tenant: TenantId) -> Result<i64, NotWritten> {
        let number = self.numbers.get(&tenant).copied();
        number.ok_or(NotWritten::UnknownTenant(tenant))
    }

    /// The number of an entry.
    pub(crate) fn entry(&self, tenant: TenantId, seq: u64) -> Result<i64, NotWritten> {
        entry::number(self.tenant_no(tenant)?, seq).ok_or(NotWritten::Full(tenant))
    }

    /// Everything behind the heads.
    fn write(&self, writing: &Writing<'_>, packed: &PackedRows) -> Result<(), NotWritten> {
        let batch = writing.batch;
        self.write_entries(&batch.entries, &packed.bodies)?;
        self.write_decisions(&batch.decisions, writing.digests)?;
        self.write_receipts(&batch.decisions, &packed.answers)?;
        self.write_outcomes(&batch.outcomes)?;
        self.write_nouns(&batch.writes)?;
        self.write_contents(&batch.contents)?;
        runs::write(self, &batch.runs)?;
        counters::write(self, &batch.counters)?;
        approvals::write(self, &batch.approvals)?;
        budgets::write(self, &batch.budgets.budgets)?;
        reservations::write(self, &batch.budgets.reservations)?;
        links::write(self, &batch.budgets.links)?;
        links::write_replies(self, &batch.budgets.replies)?;
        erasures::write(self, &batch.erasures, writing.requests)
    }

    /// Moves one tenant's head; false if it is not where the batch advances from.
    fn move_head(&self, head_move: &HeadMove) -> rusqlite::Result<bool> {
        let (head, at) = (head_move.to.tip.head(), head_move.to.at.millis());
        let (hash, edge) = (head.hash.as_bytes(), head_move.to.tip.tree().to_bytes());
        let moved = if head_move.is_new {
            let id = head_move.tenant.as_bytes();
            self.statement(NEW_TENANT)?.execute(params![
                head_move.to_seq,
                hash,
                at,
                edge,
                head_move.revision,
                head_move.tenant_no,
                id
            ])?
        } else {
            self.statement(MOVE_HEAD)?.execute(params![
                head_move.to_seq,
                hash,
                at,
                edge,
                head_move.revision,
                head_move.tenant_no,
                head_move.from_seq,
                head_move.from_hash,
            ])?
        };
        Ok(moved == 1)
    }

    fn write_entries(&self, rows: &[EntryRow], bodies: &[Vec<u8>]) -> Result<(), NotWritten> {
        let mut insert = self.statement(ENTRY)?;
        for (row, body) in rows.iter().zip(bodies) {
            insert.execute(params![
                self.entry(row.tenant, row.seq)?,
                row.kind,
                row.at.millis(),
                row.prev.as_bytes(),
                row.hash.as_bytes(),
                row.nodes.as_bytes(),
                body,
            ])?;
        }
        Ok(())
    }

    fn write_decisions(
        &self,
        rows: &[DecisionRow],
        digests: &[Option<RequestDigest>],
    ) -> Result<(), NotWritten> {
        let mut insert = self.statement(DECISION)?;
        for (row, digest) in rows.iter().zip(digests) {
            insert.execute(params![
                self.entry(row.tenant, row.seq)?,
                row.id.as_bytes(),
                row.agent.as_bytes(),
                row.tool.as_str(),
                row.action.as_str(),
                row.reason.as_str(),
                row.run_id.as_ref().map(model::Name::as_str),
                row.request.as_ref().map(|(_, ask)| ask.as_bytes()),
                digest.as_ref().map(RequestDigest::as_bytes),
            ])?;
        }
        Ok(())
    }

    fn write_receipts(&self, rows: &[DecisionRow], answers: &[Vec<u8>]) -> Result<(), NotWritten> {
        let mut insert = self.statement(RECEIPT)?;
        for (row, answer) in rows.iter().zip(answers) {
            insert.execute(params![self.entry(row.tenant, row.seq)?, answer])?;
        }
        Ok(())
    }

    fn write_outcomes(&self, rows: &[OutcomeRow]) -> Result<(), NotWritten> {
        let mut insert = self.statement(OUTCOME)?;
        for row in rows {
            let entry = self.entry(row.tenant, row.seq)?;
            insert.execute(params![entry::tenant_no(entry), row.decision.as_bytes(), entry])?;
        }
        Ok(())
    }

    fn write_nouns(&self, writes: &[(TenantId, Write)]) -> Result<(), NotWritten> {
        for (tenant, write) in writes {
            let (Write::Put(noun) | Write::Delete(noun)) = write;
            let (tenant_no, kind, id) = (self.tenant_no(*tenant)?, noun.kind().as_str(), noun.id());
            match write {
                Write::Put(noun) => {
                    let (name, value) = (noun.unique_name(), noun.to_json());
                    let mut put = self.statement(PUT_NOUN)?;
                    put.execute(params![tenant_no, kind, id, name, value])?;
                }
                // A tenant is never taken out of its own directory: memory keeps it, so storage does.
                Write::Delete(Noun::Tenant(_)) => {}
                Write::Delete(_) => {
                    self.statement(DELETE_NOUN)?
                        .execute(params![tenant_no, kind, id])?;
                }
            }
        }
        Ok(())
    }

    fn write_contents(&self, rows: &[ContentRow]) -> Result<(), NotWritten> {
        let mut insert = self.statement(CONTENT)?;
        for row in rows {
            let tenant_no = self.tenant_no(row.tenant)?;
            insert.execute(params![tenant_no, row.digest.as_bytes(), &row.bytes[..]])?;
        }
        Ok(())
    }
}

impl Failure {
    /// What an error of COMMIT means. In WAL mode it does not wait for anybody's lock: the transaction has had it from
    /// the beginning.
    fn of_commit(error: rusqlite::Error) -> Self {
        // The low byte of an extended code is the primary one.
        let code = error.sqlite_error().map(|error| error.extended_code & 0xff);
        // SQLITE_ERROR: COMMIT was refused as a statement. SQLITE_BUSY: somebody else holds a lock. Either way it has
        // not begun to write.
        if let Some(ffi::SQLITE_ERROR | ffi::SQLITE_BUSY) = code {
            return Self::BeforeCommit(error.into());
        }
        Self::AtCommit(error)
    }
}

impl From<NotWritten> for Failure {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::Database(error) if names_a_repetition(&error) => Self::AlreadyRecorded,
            other => Self::BeforeCommit(other),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        NotWritten::from(error).into()
    }
}

/// Whether it was an outcome or a key of an answer that was there already. SQLite names the columns of the key.
fn names_a_repetition(error: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(code, Some(message)) = error else {
        return false;
    };
    let unique = [ffi::SQLITE_CONSTRAINT_UNIQUE, ffi::SQLITE_CONSTRAINT_PRIMARYKEY];
    unique.contains(&code.extended_code)
        && [": outcomes.", ": replies."]
            .iter()
            .any(|table| message.contains(table))
}
