//! What a batch writes of budgets, as one text for all of its tables.
//!
//! A statement costs a hop to the writer's thread, so the tables travel together, and behind the rows of the ledger where
//! nothing else is written. Each statement in the text costs a message back, so those that have nothing to write are left out.
//!
//! - A few rows have values of their own: what one caller moves, which is what a caller waits for.
//! - Many rows are one value for each table, a JSON text: so the text is always the same and stays prepared, whatever the number of
//!   rows. To read a row out of JSON takes longer than to write it, and is nothing beside the commit that many share.
//!
//! The compiler does not check these texts, because they are put together with others; the conformance suite runs all of them.

use crate::insert::{Statement, TenantNumbers, Unbindable};
use crate::{budgets, links, reservations};
use model::budget::BudgetStatus;
use model::{Budget, TenantId};
use sqlx::error::BoxDynError;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr};
use std::borrow::Cow;
use std::sync::LazyLock;
use store::{Batch, BudgetRows};

/// What one move touches at most where no runs have budgets: one for each choice of team, agent and tool. The texts differ by the
/// number of rows, and those that are used stay prepared.
const BUDGETS_FEW: usize = 8;
const RESERVATIONS_FEW: usize = 2;
const REPLIES_FEW: usize = 1;

/// What became of binding a value.
pub(crate) type Bound = Result<(), BoxDynError>;

/// A statement whose rows have values of their own: how it begins, each row, and how it ends.
pub(crate) struct Rows {
    pub(crate) begin: &'static str,
    pub(crate) row: &'static str,
    pub(crate) end: &'static str,
}

impl Rows {
    /// The statement with so many rows; none if there is none.
    fn text(&self, rows: usize) -> Option<String> {
        let Self { begin, row, end } = self;
        (rows > 0).then(|| format!("{begin}{}{end}", vec![*row; rows].join(", ")))
    }
}

/// Writes any number of rows to each table.
static WRITE_MANY: LazyLock<String> = LazyLock::new(|| {
    // What is closed comes first, so that another one can take its place in the same batch.
    let tables = [
        budgets::WRITE_CLOSED,
        budgets::WRITE_OPEN,
        reservations::WRITE,
        links::WRITE,
        links::WRITE_REPLIES,
    ];
    tables.join("; ")
});

/// What is written of budgets.
pub(crate) struct Purse<'b> {
    batch: &'b Batch,
    numbers: &'b TenantNumbers,
    /// Whether each row has values of its own.
    is_few: bool,
}

impl<'b> Purse<'b> {
    /// What a batch writes of budgets; none if that is nothing.
    pub(crate) fn of(batch: &'b Batch, numbers: &'b TenantNumbers) -> Option<Self> {
        (!batch.budgets.is_empty()).then(|| Self {
            batch,
            numbers,
            is_few: is_few(&batch.budgets),
        })
    }

    /// The statements that write it.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        if !self.is_few {
            return Cow::Borrowed(&WRITE_MANY);
        }
        let rows = &self.batch.budgets;
        let tables = [
            budgets::FEW_OPEN.text(rows.budgets.len()),
            reservations::FEW.text(rows.reservations.len()),
            links::FEW_REPLIES.text(rows.replies.len()),
        ];
        let tables: Vec<_> = tables.into_iter().flatten().collect();
        Cow::Owned(tables.join("; "))
    }

    /// Adds its values to those of the statement that it travels with.
    pub(crate) fn bind(&self, arguments: &mut SqliteArguments) -> Result<(), Unbindable> {
        if self.is_few {
            return self.bind_few(arguments);
        }
        let (batch, numbers) = (self.batch, self.numbers);
        let tables = [
            budgets::rows(batch, numbers, true),
            budgets::rows(batch, numbers, false),
            reservations::rows(batch, numbers),
            links::rows(batch, numbers),
            links::replies(batch, numbers),
        ];
        for rows in tables {
            arguments.add(rows).map_err(Unbindable::Value)?;
        }
        Ok(())
    }

    fn bind_few(&self, arguments: &mut SqliteArguments) -> Result<(), Unbindable> {
        let rows = &self.batch.budgets;
        for (tenant, budget) in &rows.budgets {
            let bound = budgets::bind(budget, self.number(*tenant)?, arguments);
            bound.map_err(Unbindable::Value)?;
        }
        for (tenant, reservation) in &rows.reservations {
            let bound = reservations::bind(reservation, self.number(*tenant)?, arguments);
            bound.map_err(Unbindable::Value)?;
        }
        for reply in &rows.replies {
            let bound = links::bind_reply(reply, self.number(reply.key.tenant)?, arguments);
            bound.map_err(Unbindable::Value)?;
        }
        Ok(())
    }

    /// A statement of its own.
    pub(crate) fn statement(&self) -> Result<Statement, Unbindable> {
        let mut arguments = SqliteArguments::default();
        self.bind(&mut arguments)?;
        Ok(Statement {
            sql: AssertSqlSafe(self.text().into_owned()).into_sql_str(),
            arguments,
            closes: false,
        })
    }

    fn number(&self, tenant: TenantId) -> Result<i64, Unbindable> {
        let number = self.numbers.get(&tenant).copied();
        number.ok_or(Unbindable::UnknownTenant(tenant))
    }
}

/// Whether there are so few rows that each has values of its own. What is rare is never few: a budget that is closed, a run that
/// started another.
fn is_few(rows: &BudgetRows) -> bool {
    let is_open = |(_, budget): &(TenantId, Budget)| budget.status != BudgetStatus::Closed;
    rows.links.is_empty()
        && rows.budgets.len() <= BUDGETS_FEW
        && rows.reservations.len() <= RESERVATIONS_FEW
        && rows.replies.len() <= REPLIES_FEW
        && rows.budgets.iter().all(is_open)
}
