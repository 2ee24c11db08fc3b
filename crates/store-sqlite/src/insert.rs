//! The inserts of the ledger: many rows a statement, a few fixed sizes, texts made once.
//!
//! A statement costs a hop to the writer's thread whatever it holds, so rows travel together. The number of rows is
//! always one of [`SIZES`]: the texts are few, stay prepared, and any number of rows is two or three of them. This is the
//! only SQL here that the compiler does not check, because its length varies; the conformance suite runs each size.

use crate::entry;
use crate::packed::PackedRows;
use crate::purse::Purse;
use crate::requests::RequestDigest;
use crate::work::Move;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr, SqlStr};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use store::{Batch, DecisionRow, EntryRow, OutcomeRow};

/// How many rows a statement may have: the numbers up to 128 of at most three significant bits, so that any other is a sum
/// of at most three. Beyond 128 the time is in the rows, not in the hop (measured).
const SIZES: [usize; 24] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128,
];

/// The numbers that this database gave to tenants.
pub(crate) type TenantNumbers = HashMap<model::TenantId, i64>;

/// A statement with all it needs: it borrows nothing, so it can go to a task that nobody can cancel.
pub(crate) struct Statement {
    pub(crate) sql: SqlStr,
    pub(crate) arguments: SqliteArguments,
    /// Whether it ends with COMMIT.
    pub(crate) closes: bool,
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
    /// The batch has more decisions and outcomes than entries.
    #[error("the batch has more decisions and outcomes than entries")]
    SharedEntry,
    /// A value that cannot be bound.
    #[error("a value could not be bound")]
    Value(#[source] sqlx::error::BoxDynError),
}

/// The texts of one shape.
struct Shape {
    /// One for each of [`SIZES`], in each of the [`Frame`]s.
    texts: [[Arc<str>; SIZES.len()]; Frame::ALL.len()],
    /// How many values a row has, over all its tables.
    columns: usize,
}

/// What else of the transaction a statement carries, to save hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    /// Begins with [`OPENING`].
    opens: bool,
    end: End,
}

/// What a statement ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its rows.
    Rows,
    /// [`CLOSING`].
    Commit,
}

impl Frame {
    const ALL: [Self; 4] = [
        Self::of(false, End::Rows),
        Self::of(false, End::Commit),
        Self::of(true, End::Rows),
        Self::of(true, End::Commit),
    ];

    const fn of(opens: bool, end: End) -> Self {
        Self { opens, end }
    }

    /// Its place in [`ALL`](Self::ALL).
    fn index(self) -> usize {
        usize::from(self.opens) * 2 + self.end as usize
    }
}

/// A table with its columns, and what a row has in them.
type Table = (&'static str, &'static str);

const ENTRY: Table = (
    "audit_events (entry, kind, at, prev, hash, nodes, packed, body)",
    "(?, ?, ?, ?, ?, ?, ?, '')",
);
const DECISION: Table = (
    "decisions (entry, id, agent, tool, action, reason, run_id, ask, request)",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
);
const RECEIPT: Table = ("receipts (entry, bytes)", "(?, ?)");
const OUTCOME: Table = ("outcomes (tenant_no, decision, entry)", "(?, ?, ?)");

/// Decisions with as many entries and receipts: one hop for all three tables.
static DECISIONS: LazyLock<Shape> = LazyLock::new(|| Shape::of(&[ENTRY, DECISION, RECEIPT]));
/// Entries of other kinds.
static ENTRIES: LazyLock<Shape> = LazyLock::new(|| Shape::of(&[ENTRY]));
/// Outcomes with as many entries.
static OUTCOMES: LazyLock<Shape> = LazyLock::new(|| Shape::of(&[ENTRY, OUTCOME]));

/// Begins the transaction and moves the one head there is to move, in the same hop as the first rows. If the head is not
/// where it should be, NULL meets NOT NULL, and that is an error which nothing else in a commit can cause.
const OPENING: &str = "BEGIN IMMEDIATE; \
    UPDATE tenants SET head_seq = CASE WHEN head_seq = ? AND head_hash = ? THEN ? END, head_hash = ?, head_at = ?, edge = ?, revision = ? \
    WHERE tenant_no = ?; ";
const OPENING_VALUES: usize = 8;
/// Ends the transaction in the same hop as the last rows.
const CLOSING: &str = "; COMMIT";

impl Shape {
    fn of(tables: &[Table]) -> Self {
        let text = |rows: usize| {
            let inserts = tables
                .iter()
                .map(|(table, row)| format!("INSERT INTO {table} VALUES {}", vec![*row; rows].join(", ")));
            inserts.collect::<Vec<_>>().join("; ")
        };
        let framed = |frame: Frame, rows| {
            let before = if frame.opens { OPENING } else { "" };
            let after = match frame.end {
                End::Rows => "",
                End::Commit => CLOSING,
            };
            format!("{before}{}{after}", text(rows)).into()
        };
        Self {
            texts: Frame::ALL.map(|frame| SIZES.map(|rows| framed(frame, rows))),
            columns: tables.iter().map(|(_, row)| row.matches('?').count()).sum(),
        }
    }
}

/// All statements that insert the ledger rows of a batch, whose decisions answer these requests. Given the only head that moves, the first of them opens the
/// transaction and moves it. If nothing comes after them, the last one takes along what is written of budgets, and commits.
pub(crate) fn statements(
    batch: &Batch,
    requests: &[Option<RequestDigest>],
    numbers: &TenantNumbers,
    only: Option<&Move>,
    purse: Option<&Purse<'_>>,
) -> Result<Vec<Statement>, Unbindable> {
    let PackedRows {
        mut bodies,
        mut answers,
    } = PackedRows::of(batch);
    let mut making = Making {
        numbers,
        opening: only,
        last: None,
        made: Vec::new(),
    };
    // INVARIANT: every decision and every outcome has an entry of its own, so there are at least as many entries. Which of them
    // share a statement does not matter: it is one transaction.
    let with_decision = batch.decisions.len().min(batch.entries.len());
    let (with_decision, others) = batch.entries.split_at(with_decision);
    let (decision_bodies, other_bodies) = bodies.split_at_mut(with_decision.len());
    making.each(&DECISIONS, with_decision.len(), |binder, rows| {
        let decisions = &batch.decisions[rows.clone()];
        binder.entries(&with_decision[rows.clone()], &mut decision_bodies[rows.clone()])?;
        binder.decisions(decisions, &requests[rows.clone()])?;
        binder.receipts(decisions, &mut answers[rows])
    })?;
    if batch.outcomes.len() > others.len() {
        return Err(Unbindable::SharedEntry);
    }
    let (with_outcome, others) = others.split_at(batch.outcomes.len());
    let (outcome_bodies, other_bodies) = other_bodies.split_at_mut(with_outcome.len());
    making.each(&OUTCOMES, with_outcome.len(), |binder, rows| {
        binder.entries(&with_outcome[rows.clone()], &mut outcome_bodies[rows.clone()])?;
        binder.outcomes(&batch.outcomes[rows])
    })?;
    making.each(&ENTRIES, others.len(), |binder, rows| {
        binder.entries(&others[rows.clone()], &mut other_bodies[rows])
    })?;
    making.finish(batch.is_rows_only(), purse)
}

/// The statements of a batch while they are made.
struct Making<'a> {
    numbers: &'a TenantNumbers,
    /// Until a statement has taken it.
    opening: Option<&'a Move>,
    /// The last one, whose text depends on whether another follows.
    last: Option<Bound>,
    made: Vec<Statement>,
}

/// A statement whose values are bound, before it has its text.
struct Bound {
    shape: &'static Shape,
    /// Which of [`SIZES`].
    size: usize,
    opens: bool,
    arguments: SqliteArguments,
}

impl Bound {
    fn text(&self, end: End) -> &'static Arc<str> {
        &self.shape.texts[Frame::of(self.opens, end).index()][self.size]
    }

    fn with_text(self, end: End) -> Statement {
        Statement {
            sql: AssertSqlSafe(Arc::clone(self.text(end))).into_sql_str(),
            arguments: self.arguments,
            closes: end == End::Commit,
        }
    }

    /// The last one, which takes along what is written of budgets, and commits.
    fn with_purse(mut self, purse: &Purse<'_>) -> Result<Statement, Unbindable> {
        purse.bind(&mut self.arguments)?;
        let text = format!("{}; {}{CLOSING}", self.text(End::Rows), purse.text());
        Ok(Statement {
            sql: AssertSqlSafe(text).into_sql_str(),
            arguments: self.arguments,
            closes: true,
        })
    }
}

impl Making<'_> {
    /// Makes the statements for so many rows; `bind` gives a range of them to one.
    fn each(
        &mut self,
        shape: &'static Shape,
        rows: usize,
        mut bind: impl FnMut(&mut Binder<'_>, Range<usize>) -> Result<(), Unbindable>,
    ) -> Result<(), Unbindable> {
        for (at, size) in chunks(rows) {
            let mut binder = Binder {
                numbers: self.numbers,
                arguments: SqliteArguments::default(),
            };
            binder
                .arguments
                .reserve(OPENING_VALUES + SIZES[size] * shape.columns, 0);
            let opening = self.opening.take();
            if let Some(step) = opening {
                binder.opening(step)?;
            }
            bind(&mut binder, at..at + SIZES[size])?;
            let next = Bound {
                shape,
                size,
                opens: opening.is_some(),
                arguments: binder.arguments,
            };
            let before = self.last.replace(next);
            self.made.extend(before.map(|before| before.with_text(End::Rows)));
        }
        Ok(())
    }

    /// All of them.
    fn finish(mut self, commits: bool, purse: Option<&Purse<'_>>) -> Result<Vec<Statement>, Unbindable> {
        if let Some(last) = self.last.take() {
            self.made.push(match purse {
                Some(purse) => last.with_purse(purse)?,
                None if commits => last.with_text(End::Commit),
                None => last.with_text(End::Rows),
            });
        }
        Ok(self.made)
    }
}

/// Cuts so many rows into [`SIZES`], the largest first: where each begins, and which of the sizes it has.
fn chunks(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let which = SIZES.partition_point(|size| *size <= rows - at).checked_sub(1)?;
        at += SIZES[which];
        Some((at - SIZES[which], which))
    })
}

/// Binds rows to one statement, table after table.
struct Binder<'a> {
    numbers: &'a TenantNumbers,
    arguments: SqliteArguments,
}

impl Binder<'_> {
    fn opening(&mut self, step: &Move) -> Result<(), Unbindable> {
        self.bind(step.from_seq)?;
        self.bind(&step.from_hash[..])?;
        self.bind(step.to_seq)?;
        self.bind(&step.to_hash[..])?;
        self.bind(step.to_at)?;
        self.bind(&step.to_edge[..])?;
        self.bind(step.revision)?;
        self.bind(step.tenant_no)
    }

    fn entries(&mut self, rows: &[EntryRow], bodies: &mut [Vec<u8>]) -> Result<(), Unbindable> {
        for (row, body) in rows.iter().zip(bodies) {
            self.bind(self.number(row.tenant, row.seq)?)?;
            self.bind(row.kind)?;
            self.bind(row.at.millis())?;
            self.bind(&row.prev.as_bytes()[..])?;
            self.bind(&row.hash.as_bytes()[..])?;
            self.bind(row.nodes.as_bytes())?;
            self.bind(std::mem::take(body))?;
        }
        Ok(())
    }

    fn decisions(
        &mut self,
        rows: &[DecisionRow],
        requests: &[Option<RequestDigest>],
    ) -> Result<(), Unbindable> {
        for (row, request) in rows.iter().zip(requests) {
            self.bind(self.number(row.tenant, row.seq)?)?;
            self.bind(&row.id.as_bytes()[..])?;
            self.bind(&row.agent.as_bytes()[..])?;
            self.bind(row.tool.as_str())?;
            self.bind(row.action.as_str())?;
            self.bind(row.reason.as_str())?;
            self.bind(row.run_id.as_ref().map(model::Name::as_str))?;
            self.bind(row.request.as_ref().map(|(_, ask)| &ask.as_bytes()[..]))?;
            self.bind(request.as_ref().map(|digest| &digest.as_bytes()[..]))?;
        }
        Ok(())
    }

    fn receipts(&mut self, rows: &[DecisionRow], answers: &mut [Vec<u8>]) -> Result<(), Unbindable> {
        for (row, answer) in rows.iter().zip(answers) {
            self.bind(self.number(row.tenant, row.seq)?)?;
            self.bind(std::mem::take(answer))?;
        }
        Ok(())
    }

    fn outcomes(&mut self, rows: &[OutcomeRow]) -> Result<(), Unbindable> {
        for row in rows {
            let entry = self.number(row.tenant, row.seq)?;
            self.bind(entry::tenant_no(entry))?;
            self.bind(&row.decision.as_bytes()[..])?;
            self.bind(entry)?;
        }
        Ok(())
    }

    /// The number of an entry.
    fn number(&self, tenant: model::TenantId, seq: u64) -> Result<i64, Unbindable> {
        let tenant_no = self
            .numbers
            .get(&tenant)
            .ok_or(Unbindable::UnknownTenant(tenant))?;
        entry::number(*tenant_no, seq).ok_or(Unbindable::Full(tenant))
    }

    fn bind<'q, T>(&mut self, value: T) -> Result<(), Unbindable>
    where
        T: sqlx::Encode<'q, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        self.arguments.add(value).map_err(Unbindable::Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_rows_is_cut_without_gap_or_overlap() {
        for rows in 0..1_000 {
            let mut next = 0;
            for (at, which) in chunks(rows) {
                assert_eq!(at, next);
                next = at + SIZES[which];
            }
            assert_eq!(next, rows);
        }
    }

    #[test]
    fn few_statements_carry_many_rows() {
        assert_eq!(chunks(1).count(), 1);
        assert_eq!(chunks(128).count(), 1);
        assert!((1..128).all(|rows| chunks(rows).count() <= 3));
        assert_eq!(chunks(1_000).count(), 7 + 2);
    }

    fn shapes() -> [&'static Shape; 3] {
        [&DECISIONS, &ENTRIES, &OUTCOMES]
    }

    #[test]
    fn no_statement_has_more_parameters_than_sqlite_takes() {
        for shape in shapes() {
            let most = shape.texts[0].last().unwrap().split("; ");
            assert!(most.map(|statement| statement.matches('?').count()).max() <= Some(32_766));
        }
    }

    #[test]
    fn a_text_has_a_place_for_every_value() {
        for shape in shapes() {
            for frame in Frame::ALL {
                for (text, rows) in shape.texts[frame.index()].iter().zip(SIZES) {
                    let opening = if frame.opens { OPENING_VALUES } else { 0 };
                    assert_eq!(text.matches('?').count(), opening + shape.columns * rows);
                    assert_eq!(text.starts_with("BEGIN"), frame.opens);
                    assert_eq!(text.ends_with("COMMIT"), frame.end == End::Commit);
                }
            }
        }
    }
}
