//! What entries say about budgets.
//!
//! An entry that moves budgets names each of them with its balances afterwards, so that balances can be counted again from the
//! ledger, and every step of that checked. Bodies are written in canonical order.

use crate::entry_kind::EntryKind;
use crate::proposal::ProposedEntry;
use canon::ObjectWriter;
use model::{Amount, Budget, Charge, Name, Reservation, ReservationId, Unit};

/// An amount as a member. It is within what JSON keeps exact.
fn amount(body: &mut ObjectWriter, key: &str, amount: Amount) {
    body.integer(key, amount.get());
}

/// One balance in an entry.
fn balance(body: &mut ObjectWriter, budget: &Budget) {
    amount(body, "allocated", budget.allocated);
    body.string("budget", &budget.id.to_string());
    amount(body, "debt", budget.debt());
    amount(body, "reserved", budget.reserved);
    amount(body, "spent", budget.spent());
    amount(body, "uncovered", budget.uncovered);
}

/// The balances in an entry; left out if there are none.
pub(crate) fn balances<'b>(body: &mut ObjectWriter, budgets: impl IntoIterator<Item = &'b Budget>) {
    let mut budgets = budgets.into_iter().peekable();
    if budgets.peek().is_some() {
        body.objects("balances", budgets, balance);
    }
}

/// The reservation in the entry of a decision.
pub(crate) fn reservation(body: &mut ObjectWriter, reservation: &Reservation) {
    body.object("reservation", |held| {
        amount(held, "amount", reservation.amount);
        held.string("expires_at", &reservation.expires_at.to_string());
        held.string("id", &reservation.id.to_string());
        held.string("unit", reservation.unit.as_str());
    });
}

/// A threshold was reached.
pub(super) fn threshold(budget: &Budget, percent: u8) -> ProposedEntry {
    let mut body = ObjectWriter::new();
    balances(&mut body, [budget]);
    body.unsigned("percent", u64::from(percent));
    body.string("scope", &budget.scope.key());
    body.string("unit", budget.unit.as_str());
    ProposedEntry::new(EntryKind::BudgetThresholdReached, body.finish())
}

/// A new period began, with what was carried into it; so many have begun since the one that the budget was in.
pub(super) fn rolled_over(budget: &Budget, periods: i64) -> ProposedEntry {
    let mut body = ObjectWriter::new();
    balances(&mut body, [budget]);
    amount(&mut body, "carried", budget.used);
    body.string("period_start", &budget.period_start.to_string());
    body.integer("periods", periods);
    body.string("unit", budget.unit.as_str());
    ProposedEntry::new(EntryKind::BudgetRolledOver, body.finish())
}

/// Something became of a reservation. `parent` is the run that started its own, where that is named now.
pub(super) fn reservation_moved(
    kind: EntryKind,
    reservation: &Reservation,
    parent: Option<&Name>,
    budgets: &[Budget],
) -> ProposedEntry {
    let charge = reservation.charge;
    let mut body = ObjectWriter::with_capacity(512);
    if let Some(charge) = charge {
        amount(&mut body, "actual", charge.actual);
    }
    body.string("agent", &reservation.agent.to_string());
    amount(&mut body, "amount", reservation.amount);
    balances(&mut body, budgets);
    if let Some(charge) = charge {
        amount(&mut body, "charged", charge.charged);
    }
    body.string("expires_at", &reservation.expires_at.to_string());
    if let Some(parent) = parent {
        body.string("parent_run_id", parent.as_str());
    }
    body.string("reservation", &reservation.id.to_string());
    if let Some(run_id) = &reservation.run_id {
        body.string("run_id", run_id.as_str());
    }
    if let Some(tool) = &reservation.tool {
        body.string("tool", tool.as_str());
    }
    if let Some(charge) = charge {
        amount(&mut body, "uncovered", charge.uncovered());
    }
    body.string("unit", reservation.unit.as_str());
    ProposedEntry::new(kind, body.finish())
}

/// Something was used that had not been reserved.
pub(super) fn used(cost: &super::cost::Cost, charge: Charge, budgets: &[Budget]) -> ProposedEntry {
    let subject = &cost.subject;
    let mut body = ObjectWriter::with_capacity(512);
    amount(&mut body, "actual", charge.actual);
    body.string("agent", &subject.agent.to_string());
    balances(&mut body, budgets);
    amount(&mut body, "charged", charge.charged);
    if let Some(parent) = subject.parent() {
        body.string("parent_run_id", parent.as_str());
    }
    if let Some(run_id) = subject.run() {
        body.string("run_id", run_id.as_str());
    }
    if let Some(tool) = &subject.tool {
        body.string("tool", tool.as_str());
    }
    amount(&mut body, "uncovered", charge.uncovered());
    body.string("unit", cost.unit.as_str());
    ProposedEntry::new(EntryKind::UsageRecorded, body.finish())
}

/// What an outcome settled.
pub(super) fn settled(
    body: &mut ObjectWriter,
    charge: Charge,
    held: Amount,
    id: Option<ReservationId>,
    unit: &Unit,
) {
    body.object("settled", |settled| {
        amount(settled, "actual", charge.actual);
        amount(settled, "charged", charge.charged);
        amount(settled, "held", held);
        if let Some(id) = id {
            settled.string("reservation", &id.to_string());
        }
        amount(settled, "uncovered", charge.uncovered());
        settled.string("unit", unit.as_str());
    });
}
