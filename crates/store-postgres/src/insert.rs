//! The statement that a batch is: it moves the heads and, if all of them were where the batch says, writes every row of every
//! table but directories and what is erased.
//!
//! Columns travel as arrays, so there are two texts, whatever the size of the batch: each is parsed and planned once a
//! connection, and a batch is one round trip. They are taken apart in the select list, where they run side by side, and not in
//! FROM, where the server would copy each of them into a store of its own first
//! (`docs/decisions/0055-arrays-taken-apart-side-by-side.md`). Everything is encoded here, before the task that nobody can
//! cancel begins, so that the task borrows nothing.

use crate::approvals::ApprovalColumns;
use crate::budgets::BudgetColumns;
use crate::contents::ContentColumns;
use crate::counters::CounterColumns;
use crate::decode::uuid;
use crate::links::{LinkColumns, ReplyColumns};
use crate::reservations::ReservationColumns;
use crate::runs::RunColumns;
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
    to_hashes: Vec<Vec<u8>>,
    to_ats: Vec<i64>,
    to_edges: Vec<Vec<u8>>,
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
            steps.to_seqs.push(signed("seq", tenant, advance.to.head().seq)?);
            steps.to_hashes.push(advance.to.head().hash.as_bytes().to_vec());
            steps.to_ats.push(batch.last_at(tenant).millis());
            steps.to_edges.push(advance.to.tree().to_bytes());
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

/// The statement of a batch: of one that has what asks leave behind, a shorter one, because the server prepares every
/// part anew for every batch, also those that have nothing to write.
///
/// INVARIANT: no row is inserted unless every head was moved. In a transaction that will roll back otherwise this changes
/// nothing; as a transaction of its own the statement needs it. It also makes sure that the heads are locked before any row is
/// inserted, so that two of these never wait for each other.
#[expect(
    clippy::too_many_lines,
    reason = "it is one SQL statement and its values, in the same order"
)]
pub(crate) fn statement(batch: &Batch) -> Result<Insert, CommitError> {
    let steps = Steps::of(batch)?;
    let entries = &batch.entries[..];
    let decisions = &batch.decisions[..];
    let of_entry = |row: &EntryRow| (row.tenant, row.seq);
    let of_decision = |row: &DecisionRow| (row.tenant, row.seq);
    let approvals = ApprovalColumns::of(batch);
    let contents = ContentColumns::of(batch);
    // What both have in common is written once: their text is checked when this is compiled, so it has to be literal.
    macro_rules! statement {
        ($($more:literal, $($values:tt)*)?) => {
            sqlx::query_scalar!(
                r#"WITH moved AS (
                       UPDATE tenants
                       SET head_seq = step.to_seq,
                           head_hash = step.to_hash,
                           head_at = step.to_at,
                           edge = step.to_edge,
                           revision = step.revision
                       FROM (
                           SELECT
                               unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::bytea[]), unnest($4::bigint[]),
                               unnest($5::bytea[]), unnest($6::bigint[]), unnest($7::bytea[]), unnest($8::bigint[])
                       ) AS step (tenant_id, from_seq, from_hash, to_seq, to_hash, to_at, to_edge, revision)
                       WHERE tenants.tenant_id = step.tenant_id
                         AND tenants.head_seq = step.from_seq
                         AND tenants.head_hash = step.from_hash
                       RETURNING tenants.tenant_id
                   ),
                   new_entries AS (
                       INSERT INTO audit_events (tenant_id, seq, kind, at, prev, hash, body, nodes)
                       SELECT
                           unnest($9::uuid[]), unnest($10::bigint[]), unnest($11::text[]), unnest($12::bigint[]),
                           unnest($13::bytea[]), unnest($14::bytea[]), unnest($15::text[]), unnest($16::bytea[])
                       WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
                   ),
                   new_decisions AS (
                       INSERT INTO decisions (tenant_id, seq, id, agent, tool, action, reason, run_id, ask)
                       SELECT
                           unnest($17::uuid[]), unnest($18::bigint[]), unnest($19::uuid[]), unnest($20::uuid[]),
                           unnest($21::text[]), unnest($22::text[]), unnest($23::text[]), unnest($24::text[]),
                           unnest($25::bytea[])
                       WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
                   ),
                   new_receipts AS (
                       INSERT INTO receipts (tenant_id, seq, bytes)
                       SELECT unnest($17::uuid[]), unnest($18::bigint[]), unnest($26::bytea[])
                       WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
                   ),
                   new_requests AS (
                       INSERT INTO requests (tenant_id, seq, agent, request_id)
                       SELECT *
                       FROM (
                           SELECT unnest($17::uuid[]), unnest($18::bigint[]), unnest($20::uuid[]), unnest($27::text[])
                       ) AS request (tenant_id, seq, agent, request_id)
                       WHERE request.request_id IS NOT NULL
                         AND (SELECT count(*) FROM moved) = cardinality($1::uuid[])
                   ),
                   put_approvals AS (
                       INSERT INTO approvals (tenant_id, id, agent, status, expires_at, value)
                       SELECT
                           unnest($28::uuid[]), unnest($29::uuid[]), unnest($30::uuid[]), unnest($31::text[]),
                           unnest($32::bigint[]), unnest($33::text[])
                       WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
                       ON CONFLICT (tenant_id, id) DO UPDATE
                       SET status = excluded.status,
                           value = excluded.value
                   ),
                   new_contents AS (
                       INSERT INTO contents (tenant_id, digest, bytes)
                       SELECT unnest($34::uuid[]), unnest($35::bytea[]), unnest($36::bytea[])
                       WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
                       ON CONFLICT DO NOTHING
                   )"#
                $(+ $more)?
                + r#"
                   SELECT tenant_id
                   FROM moved"#,
                &steps.tenants,
                &steps.from_seqs,
                &steps.from_hashes as &[&[u8]],
                &steps.to_seqs,
                &steps.to_hashes,
                &steps.to_ats,
                &steps.to_edges,
                &steps.revisions,
                &column(entries, |row| uuid(row.tenant)),
                &seqs(entries, of_entry)?,
                &column(entries, |row| row.kind) as &[&str],
                &column(entries, |row| row.at.millis()),
                &column(entries, |row| &row.prev.as_bytes()[..]) as &[&[u8]],
                &column(entries, |row| &row.hash.as_bytes()[..]) as &[&[u8]],
                &column(entries, |row| row.body.as_str()) as &[&str],
                &column(entries, |row| row.nodes.as_bytes()) as &[&[u8]],
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
                &approvals.tenants,
                &approvals.ids,
                &approvals.agents,
                &approvals.statuses as &[&str],
                &approvals.expire_at,
                &approvals.values,
                &contents.tenants,
                &contents.digests,
                &contents.bytes,
                $($($values)*)?
            )
        };
    }
    if is_of_asks(batch) {
        return Ok(statement!());
    }
    let outcomes = &batch.outcomes[..];
    let of_outcome = |row: &OutcomeRow| (row.tenant, row.seq);
    let budgets = BudgetColumns::of(batch);
    let reservations = ReservationColumns::of(batch);
    let links = LinkColumns::of(batch);
    let replies = ReplyColumns::of(batch);
    let runs = RunColumns::of(batch);
    let counters = CounterColumns::of(batch);
    Ok(statement!(
        r#",
           new_outcomes AS (
               INSERT INTO outcomes (tenant_id, decision, seq)
               SELECT unnest($37::uuid[]), unnest($38::uuid[]), unnest($39::bigint[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
           ),
           put_budgets AS (
               INSERT INTO budgets (tenant_id, id, scope, unit, is_open, value)
               SELECT
                   unnest($40::uuid[]), unnest($41::uuid[]), unnest($42::text[]), unnest($43::text[]),
                   unnest($44::boolean[]), unnest($45::text[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
               ON CONFLICT (tenant_id, id) DO UPDATE
               SET is_open = excluded.is_open,
                   value = excluded.value
           ),
           put_reservations AS (
               INSERT INTO reservations (tenant_id, id, agent, status, expires_at, value)
               SELECT
                   unnest($46::uuid[]), unnest($47::uuid[]), unnest($48::uuid[]), unnest($49::text[]),
                   unnest($50::bigint[]), unnest($51::text[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
               ON CONFLICT (tenant_id, id) DO UPDATE
               SET status = excluded.status,
                   expires_at = excluded.expires_at,
                   value = excluded.value
           ),
           new_links AS (
               INSERT INTO run_links (tenant_id, run_id, parent)
               SELECT unnest($52::uuid[]), unnest($53::text[]), unnest($54::text[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
               ON CONFLICT DO NOTHING
           ),
           new_replies AS (
               INSERT INTO replies (tenant_id, caller, key, request, bytes, at)
               SELECT
                   unnest($55::uuid[]), unnest($56::uuid[]), unnest($57::text[]), unnest($58::bytea[]),
                   unnest($59::bytea[]), unnest($60::bigint[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
           ),
           put_runs AS (
               INSERT INTO runs (tenant_id, run_id, root, worst)
               SELECT unnest($61::uuid[]), unnest($62::text[]), unnest($63::text[]), unnest($64::text[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
               ON CONFLICT (tenant_id, run_id) DO UPDATE
               SET root = excluded.root,
                   worst = excluded.worst
           ),
           put_counters AS (
               INSERT INTO quota_counters (tenant_id, key, start, count, at)
               SELECT
                   unnest($65::uuid[]), unnest($66::bytea[]), unnest($67::bigint[]), unnest($68::bigint[]),
                   unnest($69::bigint[])
               WHERE (SELECT count(*) FROM moved) = cardinality($1::uuid[])
               ON CONFLICT (tenant_id, key) DO UPDATE
               SET start = excluded.start,
                   count = excluded.count,
                   at = excluded.at
           )"#,
        &column(outcomes, |row| uuid(row.tenant)),
        &column(outcomes, |row| Uuid::from_bytes(*row.decision.as_bytes())),
        &seqs(outcomes, of_outcome)?,
        &budgets.tenants,
        &budgets.ids,
        &budgets.scopes,
        &budgets.units,
        &budgets.are_open,
        &budgets.values,
        &reservations.tenants,
        &reservations.ids,
        &reservations.agents,
        &reservations.statuses as &[&str],
        &reservations.expire_at,
        &reservations.values,
        &links.tenants,
        &links.runs,
        &links.parents,
        &replies.tenants,
        &replies.callers,
        &replies.keys,
        &replies.requests,
        &replies.bytes,
        &replies.at,
        &runs.tenants,
        &runs.ids,
        &runs.roots,
        &runs.worst as &[&str],
        &counters.tenants,
        &counters.keys,
        &counters.starts,
        &counters.counts,
        &counters.ats,
    ))
}

/// Whether a batch has nothing but what asks leave behind that hold no money and count against no quota.
fn is_of_asks(batch: &Batch) -> bool {
    batch.outcomes.is_empty()
        && batch.budgets.is_empty()
        && batch.runs.is_empty()
        && batch.counters.is_empty()
}
