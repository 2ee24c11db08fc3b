//! Balances counted again: what does not follow is named, and what was erased hides nothing else.

use engine::budgets::recount::{Mismatch, Recount, Uncounted};
use model::budget::Terms;
use model::{Amount, Budget, BudgetId, Overage, Period, Scope, Timestamp, Unit};
use serde_json::json;

/// Usage of so much was told, and in each budget this as what is spent.
fn usage(recount: &mut Recount, seq: u64, charged: i64, told: &[(BudgetId, i64)]) {
    let balance = |(budget, debt): &(BudgetId, i64)| json!({"allocated": 0, "budget": budget, "debt": debt, "reserved": 0, "spent": 0, "uncovered": 0});
    let balances: Vec<_> = told.iter().map(balance).collect();
    let body = json!({"balances": balances, "charged": charged, "uncovered": 0});
    recount.entry(seq, "usage_recorded", Some(&body.to_string()));
}

fn odd(recount: &Recount) -> Vec<Mismatch> {
    let mut mismatches = recount.compare(&[]);
    mismatches.retain(|mismatch| !matches!(mismatch, Mismatch::NotStored(_)));
    mismatches
}

#[test]
fn of_each_budget_the_first_entry_is_named_that_does_not_follow() {
    let (one, other) = (BudgetId::from_bytes([1; 16]), BudgetId::from_bytes([2; 16]));
    let mut recount = Recount::default();
    usage(&mut recount, 1, 3, &[(one, 3), (other, 4)]);
    usage(&mut recount, 2, 2, &[(one, 5), (other, 9)]);
    usage(&mut recount, 3, 1, &[(one, 7)]);
    let mismatch = |seq, budget| Mismatch::Entry { seq, budget };
    assert_eq!(odd(&recount), [mismatch(3, one), mismatch(1, other)]);
    assert_eq!(recount.uncounted().count(), 0);
}

#[test]
fn a_count_goes_on_from_what_is_told_after_bodies_were_erased() {
    let (one, other) = (BudgetId::from_bytes([1; 16]), BudgetId::from_bytes([2; 16]));
    let uncounted = |budget, from| Uncounted { budget, from };
    let mut recount = Recount::default();
    usage(&mut recount, 1, 3, &[(one, 3), (other, 3)]);
    recount.entry(2, "decision", None);
    recount.entry(3, "outcome_reported", None);
    usage(&mut recount, 4, 2, &[(one, 9)]);
    assert_eq!(odd(&recount), []);
    let expected = [uncounted(one, Some(4)), uncounted(other, None)];
    assert_eq!(recount.uncounted().collect::<Vec<_>>(), expected);

    usage(&mut recount, 5, 2, &[(one, 12)]);
    assert_eq!(odd(&recount), [Mismatch::Entry { seq: 5, budget: one }]);
}

#[test]
fn what_is_erased_and_moves_no_money_does_not_matter() {
    let one = BudgetId::from_bytes([1; 16]);
    let mut recount = Recount::default();
    usage(&mut recount, 1, 3, &[(one, 3)]);
    recount.entry(2, "run_observed", None);
    assert_eq!(recount.uncounted().count(), 0);
}

#[test]
fn an_entry_that_cannot_be_read_is_named_and_the_count_goes_on() {
    let one = BudgetId::from_bytes([1; 16]);
    let mut recount = Recount::default();
    usage(&mut recount, 1, 3, &[(one, 3)]);
    recount.entry(2, "usage_recorded", Some("{}"));
    usage(&mut recount, 3, 1, &[(one, 5)]);
    usage(&mut recount, 4, 1, &[(one, 7)]);
    let expected = [Mismatch::Unreadable(2), Mismatch::Entry { seq: 4, budget: one }];
    assert_eq!(odd(&recount), expected);
}

/// Of a hundred, eighty were held and fifty used when the period ended.
#[test]
fn what_a_new_period_begins_with_is_counted_by_the_rule_of_its_entry() {
    let terms = Terms {
        scope: Scope::default(),
        unit: Unit::new("TOKENS").unwrap(),
        allocated: Amount::new(100).unwrap(),
        overage: Overage::AllowWithOverdraft,
        overdraft_limit: Amount::new(50).unwrap(),
        period: Some(Period::Day),
    };
    let one = Budget::new(BudgetId::from_bytes([1; 16]), terms, Timestamp::from_millis(0));
    let told = |spent: i64, debt: i64| json!([{"allocated": 100, "budget": one.id, "debt": debt, "reserved": 80, "spent": spent, "uncovered": 0}]);
    for (carried, spent, follows) in [
        (json!({"carried": 0}), 0, true),
        (json!({"carried": 30}), 30, false),
        (json!({}), 30, true),
        (json!({}), 0, false),
    ] {
        let mut rolled = carried;
        rolled["balances"] = told(spent, 0);
        let entries = [
            ("budget_created", json!({"budget": one})),
            (
                "reservation_created",
                json!({"amount": 80, "balances": told(0, 0)}),
            ),
            (
                "usage_recorded",
                json!({"balances": told(20, 30), "charged": 50, "uncovered": 0}),
            ),
            ("budget_rolled_over", rolled),
        ];
        let mut recount = Recount::default();
        for (seq, (kind, body)) in (1..).zip(&entries) {
            recount.entry(seq, kind, Some(&body.to_string()));
        }
        assert_eq!(odd(&recount).is_empty(), follows, "{entries:?}");
    }
}
