//! The statement that a batch is: it moves the heads and, if all of them were where the batch says, inserts every row of
//! every table.
//!
//! Columns travel as arrays, so the text is the same whatever the size of the batch: it is parsed and planned once a
//! connection, and a batch is one round trip. Everything is encoded here, before the task that nobody can cancel begins, so
//! that the task borrows nothing.

use crate::decode::uuid;
use model::{Name, TenantId};
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::QueryScalar;
use sqlx::types::Uuid;
use store::{Batch, CommitError, DecisionRow, EntryRow, OutcomeRow};

/// The statement with its values. It gives the tenants whose heads were where the batch advances from, and are moved.
pub(crate) type Insert = QueryScalar<'static, Postgres, Uuid, PgArguments>;

/// A number that does not fit into the database's integers.
#[derive(Debug, thiserror::Error)]
#[error("the `{field}` of {tenant} is beyond what the database can hold")]
struct TooLarge {
    field: &'static str,
    tenant: TenantId,
}

fn signed(field: &'static str, tenant: TenantId, value: u64) -> Result<i64, CommitError> {
    i64::try_from(value).map_err(|_| CommitError::NotWritten(Box::new(TooLarge { field, tenant })))
}

/// How the heads move, a vector a column.
#[derive(Default)]
struct Steps<'b> {
    tenants: Vec<Uuid>,
    from_seqs: Vec<i64>,
    from_hashes: Vec<&'b [u8]>,
    to_seqs: Vec<i64>,
    to_hashes: Vec<&'b [u8]>,
    to_ats: Vec<i64>,
    revisions: Vec<i64>,
}

impl<'b> Steps<'b> {
    fn of(batch: &'b Batch) -> Result<Self, CommitError> {
        let mut steps = Self::default();
        for advance in &batch.advances {
            let tenant = advance.tenant;
            steps.tenants.push(uuid(tenant));
            steps.from_seqs.push(signed("seq", tenant, advance.from.seq)?);
            steps.from_hashes.push(advance.from.hash.as_bytes());
            steps.to_seqs.push(signed("seq", tenant, advance.to.seq)?);
            steps.to_hashes.push(advance.to.hash.as_bytes());
            steps.to_ats.push(batch.last_at(tenant).millis());
            steps
                .revisions
                .push(signed("revision", tenant, advance.revision)?);
        }
        Ok(steps)
    }
}

/// A column of the rows of one table.
fn column<'b, R, T>(rows: &'b [R], value: impl Fn(&'b R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// A column of `seq`s. A checked batch has none beyond the head that it advances to.
fn seqs<R>(rows: &[R], place: impl Fn(&R) -> (TenantId, u64)) -> Result<Vec<i64>, CommitError> {
    let seq = |row| {
        let (tenant, seq) = place(row);
        signed("seq", tenant, seq)
    };
    rows.iter().map(seq).collect()
}

/// The statement of a batch.
///
/// INVARIANT: no row is inserted unless every head was moved. In a transaction that will roll back otherwise this changes
/// nothing; as a transaction of its own the statement needs it. It also makes sure that the heads are locked before any row is
/// inserted, so that two of these never wait for each other.
pub(crate) fn statement(batch: &Batch) -> Result<Insert, CommitError> {
    let steps = Steps::of(batch)?;
    let entries = &batch.entries[..];
    let decisions = &batch.decisions[..];
    let outcomes = &batch.outcomes[..];
    let of_entry = |row: &EntryRow| (row.tenant, row.seq);
    let of_decision = |row: &DecisionRow| (row.tenant, row.seq);
    let of_outcome = |row: &OutcomeRow| (row.tenant, row.seq);
    Ok(sqlx::query_scalar!(
        r#"WITH moved AS (
               UPDATE tenants
               SET head_seq = step.to_seq,
                   head_hash = step.to_hash,
                   head_at = step.to_at,
                   revision = step.revision
               FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bigint[])
                   AS step (tenant_id, from_seq, from_hash, to_seq, to_hash, to_at, revision)
               WHERE tenants.tenant_id = step.tenant_id
                 AND tenants.head_seq = step.from_seq
                 AND tenants.head_hash = step.from_hash
               RETURNING tenants.tenant_id
           ),
           new_entries AS (
               INSERT INTO audit_events (tenant_id, seq, kind, at, prev, hash, body)
               SELECT *
               FROM unnest($8::uuid[], $9::bigint[], $10::text[], $11::bigint[], $12::bytea[], $13::bytea[], $14::text[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
           ),
           new_decisions AS (
               INSERT INTO decisions (tenant_id, seq, id, agent, tool, action, reason, run_id, ask)
               SELECT *
               FROM unnest(
                   $15::uuid[], $16::bigint[], $17::uuid[], $18::uuid[], $19::text[], $20::text[], $21::text[], $22::text[],
                   $23::bytea[]
               )
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
           ),
           new_receipts AS (
               INSERT INTO receipts (tenant_id, seq, bytes)
               SELECT *
               FROM unnest($15::uuid[], $16::bigint[], $24::bytea[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
           ),
           new_requests AS (
               INSERT INTO requests (tenant_id, seq, agent, request_id)
               SELECT *
               FROM unnest($15::uuid[], $16::bigint[], $18::uuid[], $25::text[])
                   AS request (tenant_id, seq, agent, request_id)
               WHERE request.request_id IS NOT NULL
                 AND (SELECT count(*) FROM moved) = cardinality($1::uuid[])
           ),
           new_outcomes AS (
               INSERT INTO outcomes (tenant_id, decision, seq)
               SELECT *
               FROM unnest($26::uuid[], $27::uuid[], $28::bigint[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
           )
           SELECT tenant_id
           FROM moved"#,
        &steps.tenants,
        &steps.from_seqs,
        &steps.from_hashes as &[&[u8]],
        &steps.to_seqs,
        &steps.to_hashes as &[&[u8]],
        &steps.to_ats,
        &steps.revisions,
        &column(entries, |row| uuid(row.tenant)),
        &seqs(entries, of_entry)?,
        &column(entries, |row| row.kind) as &[&str],
        &column(entries, |row| row.at.millis()),
        &column(entries, |row| &row.prev.as_bytes()[..]) as &[&[u8]],
        &column(entries, |row| &row.hash.as_bytes()[..]) as &[&[u8]],
        &column(entries, |row| row.body.as_str()) as &[&str],
        &column(decisions, |row| uuid(row.tenant)),
        &seqs(decisions, of_decision)?,
        &column(decisions, |row| Uuid::from_bytes(*row.id.as_bytes())),
        &column(decisions, |row| Uuid::from_bytes(*row.agent.as_bytes())),
        &column(decisions, |row| row.tool.as_str()) as &[&str],
        &column(decisions, |row| row.action.as_str()) as &[&str],
        &column(decisions, |row| row.reason.as_str()) as &[&str],
        &column(decisions, |row| row.run_id.as_ref().map(Name::as_str)) as &[Option<&str>],
        &column(decisions, |row| row
            .request
            .as_ref()
            .map(|(_, ask)| &ask.as_bytes()[..])) as &[Option<&[u8]>],
        &column(decisions, |row| &row.receipt[..]) as &[&[u8]],
        &column(decisions, |row| row.request.as_ref().map(|(id, _)| id.as_str())) as &[Option<&str>],
        &column(outcomes, |row| uuid(row.tenant)),
        &column(outcomes, |row| Uuid::from_bytes(*row.decision.as_bytes())),
        &seqs(outcomes, of_outcome)?,
    ))
}
