//! The inserts of the ledger: many rows a statement, a few fixed sizes, texts made once.
//!
//! A statement costs a hop to the writer's thread whatever it holds, so rows travel together. The number of rows is
//! always a power of two: the texts are few, stay prepared, and any number of rows is a few of them. This is the
//! only SQL here that the compiler does not check, because its length varies; the conformance suite runs each size.

use crate::entry;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr, SqlStr};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use store::{Batch, DecisionRow, EntryRow, OutcomeRow};

/// The most rows a statement: beyond it the time is in the rows, not in the hop (measured).
const ROWS_MAX: usize = 128;
/// One text for each power of two up to [`ROWS_MAX`].
const SIZES: usize = ROWS_MAX.ilog2() as usize + 1;

/// The numbers that this database gave to tenants.
pub(crate) type TenantNumbers = HashMap<model::TenantId, i64>;

/// A statement with all it needs: it borrows nothing, so it can go to a task that nobody can cancel.
pub(crate) struct Statement {
    pub(crate) sql: SqlStr,
    pub(crate) arguments: SqliteArguments,
}

/// Why a statement could not be made. It cannot happen with a batch that was checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unbindable {
    /// A row's tenant is not among the batch's advances.
    #[error("a row belongs to {0}, which the batch does not advance")]
    UnknownTenant(model::TenantId),
    /// A `seq` beyond what a number of the ledger can hold.
    #[error("the ledger of {0} is full")]
    Full(model::TenantId),
    /// A value that cannot be bound.
    #[error("a value could not be bound")]
    Value(#[source] sqlx::error::BoxDynError),
}

/// Texts of one shape, by the power of two.
type Texts = [Arc<str>; SIZES];

/// Decisions with as many entries and receipts: one hop for all three tables.
static DECISIONS: LazyLock<Texts> = LazyLock::new(|| {
    texts(&[
        ("audit_events (entry, kind, at, prev, hash, body)", 6),
        ("decisions (entry, id, agent, tool, action, reason, run_id)", 7),
        ("receipts (entry, bytes)", 2),
    ])
});
/// The same, where every decision has a request id.
static REQUESTED_DECISIONS: LazyLock<Texts> = LazyLock::new(|| {
    texts(&[
        ("audit_events (entry, kind, at, prev, hash, body)", 6),
        ("decisions (entry, id, agent, tool, action, reason, run_id)", 7),
        ("receipts (entry, bytes)", 2),
        ("requests (tenant_no, agent, request_id, entry, ask)", 5),
    ])
});
/// Entries of other kinds.
static ENTRIES: LazyLock<Texts> =
    LazyLock::new(|| texts(&[("audit_events (entry, kind, at, prev, hash, body)", 6)]));
/// Requests, where only some decisions have one.
static REQUESTS: LazyLock<Texts> =
    LazyLock::new(|| texts(&[("requests (tenant_no, agent, request_id, entry, ask)", 5)]));
/// Outcomes.
static OUTCOMES: LazyLock<Texts> = LazyLock::new(|| texts(&[("outcomes (tenant_no, decision, entry)", 3)]));

fn texts(tables: &[(&str, usize)]) -> Texts {
    std::array::from_fn(|power| {
        let rows = 1 << power;
        let inserts = tables.iter().map(|(table, columns)| {
            let row = format!("({})", vec!["?"; *columns].join(", "));
            format!("INSERT INTO {table} VALUES {}", vec![row; rows].join(", "))
        });
        inserts.collect::<Vec<_>>().join("; ").into()
    })
}

/// All statements that insert the ledger rows of a batch.
pub(crate) fn statements(batch: &Batch, numbers: &TenantNumbers) -> Result<Vec<Statement>, Unbindable> {
    let mut made = Vec::new();
    // INVARIANT: every decision has an entry in the batch, so there are at least as many entries. Which of them share a
    // statement does not matter: it is one transaction.
    let (with_decision, others) = batch
        .entries
        .split_at_checked(batch.decisions.len())
        .unwrap_or((&batch.entries, &[]));
    let all_requested = batch.decisions.iter().all(|decision| decision.request.is_some());
    for (at, rows) in chunks(with_decision.len()) {
        let texts = if all_requested {
            &REQUESTED_DECISIONS
        } else {
            &DECISIONS
        };
        let mut statement = Binder::new(texts, rows, 20);
        let decisions = &batch.decisions[at..at + rows];
        statement.entries(&with_decision[at..at + rows], numbers)?;
        statement.decisions(decisions, numbers)?;
        statement.receipts(decisions, numbers)?;
        if all_requested {
            statement.requests(decisions, numbers)?;
        }
        made.push(statement.finish());
    }
    if !all_requested {
        let requested: Vec<&DecisionRow> = batch
            .decisions
            .iter()
            .filter(|row| row.request.is_some())
            .collect();
        for (at, rows) in chunks(requested.len()) {
            let mut statement = Binder::new(&REQUESTS, rows, 5);
            statement.requests(requested[at..at + rows].iter().copied(), numbers)?;
            made.push(statement.finish());
        }
    }
    for (at, rows) in chunks(others.len()) {
        let mut statement = Binder::new(&ENTRIES, rows, 6);
        statement.entries(&others[at..at + rows], numbers)?;
        made.push(statement.finish());
    }
    for (at, rows) in chunks(batch.outcomes.len()) {
        let mut statement = Binder::new(&OUTCOMES, rows, 3);
        statement.outcomes(&batch.outcomes[at..at + rows], numbers)?;
        made.push(statement.finish());
    }
    Ok(made)
}

/// Cuts so many rows into powers of two, the largest first: where each begins, and its size.
fn chunks(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = rows - at;
        let size = 1 << left.min(ROWS_MAX).checked_ilog2()?;
        at += size;
        Some((at - size, size))
    })
}

/// Binds rows to one statement, table after table.
struct Binder {
    sql: SqlStr,
    arguments: SqliteArguments,
}

impl Binder {
    fn new(texts: &Texts, rows: usize, columns: usize) -> Self {
        let text = &texts[rows.ilog2() as usize];
        let mut arguments = SqliteArguments::default();
        arguments.reserve(rows * columns, 0);
        Self {
            sql: AssertSqlSafe(Arc::clone(text)).into_sql_str(),
            arguments,
        }
    }

    fn finish(self) -> Statement {
        Statement {
            sql: self.sql,
            arguments: self.arguments,
        }
    }

    fn entries(&mut self, rows: &[EntryRow], numbers: &TenantNumbers) -> Result<(), Unbindable> {
        for row in rows {
            self.bind(number(numbers, row.tenant, row.seq)?)?;
            self.bind(row.kind)?;
            self.bind(row.at.millis())?;
            self.bind(&row.prev.as_bytes()[..])?;
            self.bind(&row.hash.as_bytes()[..])?;
            self.bind(row.body.as_str())?;
        }
        Ok(())
    }

    fn decisions(&mut self, rows: &[DecisionRow], numbers: &TenantNumbers) -> Result<(), Unbindable> {
        for row in rows {
            self.bind(number(numbers, row.tenant, row.seq)?)?;
            self.bind(&row.id.as_bytes()[..])?;
            self.bind(&row.agent.as_bytes()[..])?;
            self.bind(row.tool.as_str())?;
            self.bind(row.action.as_str())?;
            self.bind(row.reason.as_str())?;
            self.bind(row.run_id.as_ref().map(model::Name::as_str))?;
        }
        Ok(())
    }

    fn receipts(&mut self, rows: &[DecisionRow], numbers: &TenantNumbers) -> Result<(), Unbindable> {
        for row in rows {
            self.bind(number(numbers, row.tenant, row.seq)?)?;
            self.bind(&row.receipt[..])?;
        }
        Ok(())
    }

    fn requests<'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a DecisionRow>,
        numbers: &TenantNumbers,
    ) -> Result<(), Unbindable> {
        for row in rows {
            let Some((request_id, ask)) = &row.request else {
                continue;
            };
            let entry = number(numbers, row.tenant, row.seq)?;
            self.bind(entry::tenant_no(entry))?;
            self.bind(&row.agent.as_bytes()[..])?;
            self.bind(request_id.as_str())?;
            self.bind(entry)?;
            self.bind(&ask.as_bytes()[..])?;
        }
        Ok(())
    }

    fn outcomes(&mut self, rows: &[OutcomeRow], numbers: &TenantNumbers) -> Result<(), Unbindable> {
        for row in rows {
            let entry = number(numbers, row.tenant, row.seq)?;
            self.bind(entry::tenant_no(entry))?;
            self.bind(&row.decision.as_bytes()[..])?;
            self.bind(entry)?;
        }
        Ok(())
    }

    fn bind<'q, T>(&mut self, value: T) -> Result<(), Unbindable>
    where
        T: sqlx::Encode<'q, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        self.arguments.add(value).map_err(Unbindable::Value)
    }
}

/// The number of an entry.
fn number(numbers: &TenantNumbers, tenant: model::TenantId, seq: u64) -> Result<i64, Unbindable> {
    let tenant_no = numbers.get(&tenant).ok_or(Unbindable::UnknownTenant(tenant))?;
    entry::number(*tenant_no, seq).ok_or(Unbindable::Full(tenant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_rows_is_cut_into_powers_of_two_without_gap_or_overlap() {
        for rows in 0..1_000 {
            let mut next = 0;
            for (at, size) in chunks(rows) {
                assert_eq!(at, next);
                assert!(size.is_power_of_two() && size <= ROWS_MAX);
                next = at + size;
            }
            assert_eq!(next, rows);
        }
    }

    #[test]
    fn few_statements_carry_many_rows() {
        assert_eq!(chunks(1).count(), 1);
        assert_eq!(chunks(128).count(), 1);
        assert_eq!(chunks(127).count(), 7);
        assert_eq!(chunks(1_000).count(), 7 + 3);
    }

    #[test]
    fn no_statement_has_more_parameters_than_sqlite_takes() {
        for texts in [&DECISIONS, &REQUESTED_DECISIONS, &ENTRIES, &REQUESTS, &OUTCOMES] {
            for statement in texts.last().unwrap().split("; ") {
                assert!(statement.matches('?').count() <= 32_766);
            }
        }
    }
}
