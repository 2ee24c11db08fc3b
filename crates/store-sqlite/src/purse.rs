//! What a batch writes of budgets, as one text for all of its tables.
//!
//! A statement costs a hop to the writer's thread, so the four tables travel together, and behind the rows of the ledger where
//! nothing else is written. Each statement takes one value, a JSON text with all its rows: so the text is always the same, stays
//! prepared, and one that has no rows costs next to nothing. The compiler does not check it, because it is put together
//! with others; the conformance suite runs it in both ways.

use crate::insert::{Statement, TenantNumbers, Unbindable};
use crate::{budgets, links, reservations};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr};
use std::sync::{Arc, LazyLock};
use store::Batch;

/// How many values it takes.
pub(crate) const VALUES: usize = 5;

/// Writes all of it.
pub(crate) static WRITE: LazyLock<Arc<str>> = LazyLock::new(|| {
    // What is closed comes first, so that another one can take its place in the same batch.
    let tables = [
        budgets::WRITE_CLOSED,
        budgets::WRITE_OPEN,
        reservations::WRITE,
        links::WRITE,
        links::WRITE_REPLIES,
    ];
    tables.join("; ").into()
});

/// What is written of budgets, with nothing borrowed from the batch.
pub(crate) struct Purse([String; VALUES]);

impl Purse {
    /// What a batch writes of budgets; none if that is nothing.
    pub(crate) fn of(batch: &Batch, numbers: &TenantNumbers) -> Option<Self> {
        if batch.budgets.is_empty() {
            return None;
        }
        Some(Self([
            budgets::rows(batch, numbers, true),
            budgets::rows(batch, numbers, false),
            reservations::rows(batch, numbers),
            links::rows(batch, numbers),
            links::replies(batch, numbers),
        ]))
    }

    /// Adds its values to those of the statement that it travels with.
    pub(crate) fn bind(self, arguments: &mut SqliteArguments) -> Result<(), Unbindable> {
        for rows in self.0 {
            arguments.add(rows).map_err(Unbindable::Value)?;
        }
        Ok(())
    }

    /// A statement of its own.
    pub(crate) fn statement(self) -> Result<Statement, Unbindable> {
        let mut arguments = SqliteArguments::default();
        self.bind(&mut arguments)?;
        Ok(Statement {
            sql: AssertSqlSafe(Arc::clone(&WRITE)).into_sql_str(),
            arguments,
            closes: false,
        })
    }
}
