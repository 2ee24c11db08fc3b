//! Balances counted again: what does not follow is named, and what was erased hides nothing else.

use engine::budgets::recount::{Mismatch, Recount, Uncounted};
use model::budget::Terms;
use model::{Amount, Budget, BudgetId, Overage, Period, ReservationId, Scope, Timestamp, Unit};
use serde_json::{Value, json};

/// Usage of so much was told, and in each budget this as what is spent.
fn usage(recount: &mut Recount, seq: u64, charged: i64, told: &[(BudgetId, i64)]) {
    let balance = |(budget, debt): &(BudgetId, i64)| json!({"allocated": 0, "budget": budget, "debt": debt, "reserved": 0, "spent": 0, "uncovered": 0});
    let balances: Vec<_> = told.iter().map(balance).collect();
    let body = json!({"balances": balances, "charged": charged, "uncovered": 0});
    recount.entry(seq, "usage_recorded", Some(&body.to_string()));
}

/// An entry moved what is held in a budget, and so much is held there then.
fn moved(
    recount: &mut Recount,
    seq: u64,
    (kind, mut body): (&str, Value),
    (budget, reserved): (BudgetId, i64),
) {
    body["balances"] = json!([{"allocated": 0, "budget": budget, "debt": 0, "reserved": reserved, "spent": 0, "uncovered": 0}]);
    recount.entry(seq, kind, Some(&body.to_string()));
}

/// A budget of a hundred a day, made when the first day of 1970 began.
fn daily() -> Budget {
    let terms = Terms {
        scope: Scope::default(),
        unit: Unit::new("TOKENS").unwrap(),
        allocated: Amount::new(100).unwrap(),
        overage: Overage::AllowWithOverdraft,
        overdraft_limit: Amount::new(50).unwrap(),
        period: Some(Period::Day),
    };
    Budget::new(BudgetId::from_bytes([1; 16]), terms, Timestamp::from_millis(0))
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
    let one = daily();
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

/// Of a hundred, 450 were used, and the third day after that was the next one that anybody asked in.
#[test]
fn each_period_pays_debt_where_the_entry_tells_how_many_began() {
    let one = daily();
    let told = |spent: i64, debt: i64| json!([{"allocated": 100, "budget": one.id, "debt": debt, "reserved": 0, "spent": spent, "uncovered": 0}]);
    for (mut rolled, balances, follows) in [
        (json!({"carried": 150, "periods": 3}), told(100, 50), true),
        (json!({"carried": 350, "periods": 3}), told(100, 250), false),
        (json!({"carried": 50, "periods": 4}), told(50, 0), false),
        (json!({"carried": 350}), told(100, 250), true),
        (json!({"carried": 150}), told(100, 50), false),
    ] {
        rolled["balances"] = balances;
        rolled["period_start"] = json!("1970-01-04T00:00:00.000Z");
        let entries = [
            ("budget_created", json!({"budget": one})),
            (
                "usage_recorded",
                json!({"balances": told(100, 350), "charged": 450, "uncovered": 0}),
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

#[test]
fn what_is_settled_otherwise_than_it_was_held_is_named() {
    let budget = BudgetId::from_bytes([1; 16]);
    let [reservation, other] = [1, 2].map(|number| ReservationId::from_bytes([number; 16]));
    let settlements = |amount: i64| {
        [
            (
                "reservation_committed",
                json!({"amount": amount, "charged": 0, "reservation": reservation, "uncovered": 0}),
            ),
            (
                "reservation_released",
                json!({"amount": amount, "reservation": reservation}),
            ),
            (
                "reservation_expired",
                json!({"amount": amount, "reservation": reservation}),
            ),
            (
                "outcome_reported",
                json!({"settled": {"charged": 0, "held": amount, "reservation": reservation, "uncovered": 0}}),
            ),
        ]
    };
    let held = [
        (
            "decision",
            json!({"reservation": {"amount": 10, "id": reservation}}),
        ),
        (
            "reservation_created",
            json!({"amount": 10, "reservation": reservation}),
        ),
    ];
    let much = (
        "reservation_created",
        json!({"amount": 900, "reservation": other}),
    );
    for hold in held {
        for amount in [10, 900, 1] {
            for settlement in settlements(amount) {
                let mut recount = Recount::default();
                moved(&mut recount, 1, much.clone(), (budget, 900));
                moved(&mut recount, 2, hold.clone(), (budget, 910));
                moved(&mut recount, 3, settlement, (budget, 910 - amount));
                let seq = 3;
                let unlike = Mismatch::Hold {
                    seq,
                    budget,
                    reservation,
                };
                let expected: Vec<_> = (amount != 10).then_some(unlike).into_iter().collect();
                assert_eq!(odd(&recount), expected, "{hold:?}, {amount}");
            }
        }
    }
}

#[test]
fn holds_are_not_compared_with_what_was_erased() {
    let budget = BudgetId::from_bytes([1; 16]);
    let [reservation, unknown] = [1, 2].map(|number| ReservationId::from_bytes([number; 16]));
    let released = |reservation: ReservationId, amount: i64| {
        (
            "reservation_released",
            json!({"amount": amount, "reservation": reservation}),
        )
    };
    let late = json!({"settled": {"charged": 0, "held": 0, "reservation": reservation, "uncovered": 0}});
    let hold = json!({"reservation": {"amount": 10, "id": reservation}});
    let recount = || {
        let mut recount = Recount::default();
        moved(&mut recount, 1, ("decision", hold.clone()), (budget, 10));
        recount
    };
    let unlike = |reservation: ReservationId| {
        vec![Mismatch::Hold {
            seq: 3,
            budget,
            reservation,
        }]
    };

    // What the erased decision held is settled.
    let mut erased = recount();
    erased.entry(2, "decision", None);
    moved(&mut erased, 3, released(unknown, 500), (budget, 10));
    assert_eq!(odd(&erased), []);
    // What is known is compared.
    let mut erased = recount();
    erased.entry(2, "decision", None);
    moved(&mut erased, 3, released(reservation, 9), (budget, 1));
    assert_eq!(odd(&erased), unlike(reservation));
    // The erased outcome has settled it, and there is another one.
    let mut erased = recount();
    erased.entry(2, "outcome_reported", None);
    moved(&mut erased, 3, ("outcome_reported", late.clone()), (budget, 0));
    assert_eq!(odd(&erased), []);

    let mut whole = recount();
    usage(&mut whole, 2, 0, &[]);
    moved(&mut whole, 3, ("outcome_reported", late), (budget, 10));
    assert_eq!(odd(&whole), unlike(reservation));
    let mut whole = recount();
    usage(&mut whole, 2, 0, &[]);
    moved(&mut whole, 3, released(unknown, 5), (budget, 5));
    assert_eq!(odd(&whole), unlike(unknown));
}

#[test]
fn terms_that_no_entry_has_changed_are_named() {
    let made = daily();
    let frozen = made.freeze().unwrap().unwrap();
    let mut recount = Recount::default();
    recount.entry(1, "budget_created", Some(&json!({"budget": made}).to_string()));
    recount.entry(2, "budget_frozen", Some(&json!({"budget": frozen}).to_string()));
    let budget = made.id;
    let stored = |told: &str| {
        let told = told.to_owned();
        [Mismatch::StoredTerms { budget, told }]
    };
    let raised = Budget {
        overdraft_limit: Amount::new(500).unwrap(),
        ..frozen.clone()
    };
    assert_eq!(recount.compare(&[frozen]), []);
    assert_eq!(recount.compare(&[made]), stored(r#"status "frozen""#));
    let without_period = Budget {
        period: None,
        ..raised.clone()
    };
    let both = stored(r#"overdraft_limit 50, period "day""#);
    assert_eq!(recount.compare(&[without_period]), both);

    // A gateway tells what it finds.
    let funded = raised.fund(Amount::new(1).unwrap()).unwrap();
    let body = json!({"amount": 1, "budget": funded});
    recount.entry(3, "budget_funded", Some(&body.to_string()));
    let told = "overdraft_limit 50".to_owned();
    let expected = [Mismatch::Terms { seq: 3, budget, told }];
    assert_eq!(recount.compare(&[funded]), expected);
}
