//! What entries tell of a budget beside its balance: what it is for, its terms, its period and its status.

use crate::entry_kind::EntryKind;
use model::Budget;
use model::budget::BudgetStatus;
use store::BudgetPlace;

/// The status of a budget after people did this to it; none if it stays as it was.
pub(super) const fn status_after(kind: EntryKind) -> Option<BudgetStatus> {
    match kind {
        EntryKind::BudgetCreated | EntryKind::BudgetUnfrozen => Some(BudgetStatus::Active),
        EntryKind::BudgetFrozen => Some(BudgetStatus::Frozen),
        EntryKind::BudgetClosed => Some(BudgetStatus::Closed),
        _ => None,
    }
}

/// In what another budget is unlike the one that entries tell of, as they tell it; none if it is like it.
pub(super) fn unlike(told: &Budget, other: &Budget) -> Option<String> {
    let members = [
        ("scope", told.scope != other.scope),
        ("unit", told.unit != other.unit),
        ("overage", told.overage != other.overage),
        ("overdraft_limit", told.overdraft_limit != other.overdraft_limit),
        ("period", told.period != other.period),
        ("period_start", told.period_start != other.period_start),
        ("status", told.status != other.status),
        ("created_at", told.created_at != other.created_at),
    ];
    let mut unlike = members
        .into_iter()
        .filter_map(|(member, is_unlike)| is_unlike.then_some(member))
        .peekable();
    unlike.peek()?;
    let told = serde_json::to_value(told).expect("a budget has only string keys");
    let told: Vec<_> = unlike
        .map(|member| format!("{member} {}", told[member]))
        .collect();
    Some(told.join(", "))
}

/// By what a budget is looked for otherwise than entries tell of it, as they tell it; none if it is looked for by that.
pub(super) fn misplaced(told: &Budget, place: &BudgetPlace) -> Option<String> {
    let told = BudgetPlace::of(told);
    let members = [
        ("id", told.id != place.id, told.id.to_string()),
        ("scope", told.scope != place.scope, told.scope),
        ("unit", told.unit != place.unit, told.unit),
        ("is_open", told.is_open != place.is_open, told.is_open.to_string()),
    ];
    let unlike = members.into_iter().filter(|(_, is_unlike, _)| *is_unlike);
    let unlike = unlike.map(|(member, _, told)| format!("{member} {told}"));
    let unlike: Vec<_> = unlike.collect();
    (!unlike.is_empty()).then(|| unlike.join(", "))
}
