//! Balances counted again: what does not follow is named, and what was erased hides nothing else.

use engine::budgets::recount::{Mismatch, Recount, Uncounted};
use model::budget::Terms;
use model::{
    AgentId, Amount, Budget, BudgetId, DecisionId, Overage, Period, Reservation, ReservationId,
    ReservationStatus, Scope, Timestamp, Unit,
};
use serde_json::{Value, json};
use store::BudgetPlace;

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

/// A budget of a hundred a day of which ninety are used, and a decision after that that was erased.
fn used_before_what_was_erased() -> (Recount, Budget) {
    let made = daily();
    let balance =
        json!({"allocated": 100, "budget": made.id, "debt": 0, "reserved": 0, "spent": 90, "uncovered": 0});
    let used = json!({"balances": [balance], "charged": 90, "uncovered": 0});
    let mut recount = Recount::default();
    recount.entry(1, "budget_created", Some(&json!({"budget": made}).to_string()));
    recount.entry(2, "usage_recorded", Some(&used.to_string()));
    recount.entry(3, "decision", None);
    let used = Amount::new(90).unwrap();
    (recount, Budget { used, ..made })
}

#[test]
fn what_was_erased_has_only_added_to_what_was_used() {
    let (mut recount, budget) = used_before_what_was_erased();
    let id = budget.id;
    let stored = |used: i64, uncovered: i64| Budget {
        used: Amount::new(used).unwrap(),
        uncovered: Amount::new(uncovered).unwrap(),
        ..budget.clone()
    };
    for (used, uncovered) in [(90, 0), (95, 0), (90, 5)] {
        assert_eq!(recount.compare(&[stored(used, uncovered)]), []);
    }
    let counted = "allocated 100, reserved 0, used 90, uncovered 0".to_owned();
    let less = Mismatch::Stored { budget: id, counted };
    assert_eq!(recount.compare(&[stored(0, 0)]), [less]);

    let reset = stored(90, 0).reset(None).unwrap();
    recount.entry(4, "budget_reset", Some(&json!({"budget": reset}).to_string()));
    assert_eq!(recount.compare(&[reset]), []);

    let (mut recount, _) = used_before_what_was_erased();
    let told =
        json!([{"allocated": 100, "budget": id, "debt": 0, "reserved": 0, "spent": 94, "uncovered": 0}]);
    let usage = json!({"balances": told, "charged": 5, "uncovered": 0});
    recount.entry(4, "usage_recorded", Some(&usage.to_string()));
    assert_eq!(odd(&recount), [Mismatch::Entry { seq: 4, budget: id }]);
}

/// By the rule of entries that do not say what was carried, what is held makes debt, and what an erased outcome has
/// settled is not held.
#[test]
fn what_was_held_when_a_period_began_may_have_been_settled_by_what_was_erased() {
    let made = daily();
    let told = |reserved: i64, spent: i64, debt: i64| json!([{"allocated": 100, "budget": made.id, "debt": debt, "reserved": reserved, "spent": spent, "uncovered": 0}]);
    let mut recount = Recount::default();
    let held = json!({"amount": 80, "balances": told(80, 0, 0)});
    let used = json!({"balances": told(80, 20, 30), "charged": 50, "uncovered": 0});
    let rolled = json!({"balances": told(0, 0, 0)});
    recount.entry(1, "budget_created", Some(&json!({"budget": made}).to_string()));
    recount.entry(2, "reservation_created", Some(&held.to_string()));
    recount.entry(3, "usage_recorded", Some(&used.to_string()));
    recount.entry(4, "outcome_reported", None);
    recount.entry(5, "budget_rolled_over", Some(&rolled.to_string()));
    assert_eq!(odd(&recount), []);
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

/// The count would go on from whatever the next entry tells.
#[test]
fn a_body_that_is_gone_and_never_erased_is_named_as_one_that_cannot_be_read() {
    let one = BudgetId::from_bytes([1; 16]);
    for kind in ["budget_debited", "reservation_committed", "usage_recorded"] {
        let mut recount = Recount::default();
        usage(&mut recount, 1, 3, &[(one, 3)]);
        recount.entry(2, kind, None);
        usage(&mut recount, 3, 1, &[(one, 9)]);
        assert_eq!(odd(&recount), [Mismatch::Unreadable(2)], "{kind}");
    }
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

#[test]
fn by_what_budgets_are_looked_for_is_compared() {
    let made = daily();
    let mut recount = Recount::default();
    recount.entry(1, "budget_created", Some(&json!({"budget": made}).to_string()));
    let place = BudgetPlace::of(&made);
    let misplaced = |told: &str| {
        let (budget, told) = (made.id, told.to_owned());
        [Mismatch::Misplaced { budget, told }]
    };
    let compare = |place: &BudgetPlace| {
        let (stored, place) = (std::slice::from_ref(&made), std::slice::from_ref(place));
        recount.compare_places(stored, place)
    };
    assert_eq!(compare(&place), []);
    let closed = BudgetPlace {
        is_open: false,
        ..place.clone()
    };
    assert_eq!(compare(&closed), misplaced("is_open true"));
    let elsewhere = BudgetPlace {
        scope: r#"{"tool":"github"}"#.to_owned(),
        unit: "CALLS".to_owned(),
        ..place
    };
    let both = misplaced("scope {}, unit TOKENS");
    assert_eq!(compare(&elsewhere), both);
    // What stands in the row of another budget is found by what that one is looked for.
    let strange = BudgetPlace {
        id: BudgetId::from_bytes([9; 16]),
        ..BudgetPlace::of(&made)
    };
    assert_eq!(compare(&strange), misplaced(&format!("id {}", made.id)));
}

/// What is stored is read page by page, and the ledger goes on meanwhile.
#[test]
fn a_budget_that_moves_while_it_is_read_is_what_it_was_at_one_of_the_entries() {
    let made = daily();
    let used = |used: i64| Budget {
        used: Amount::new(used).unwrap(),
        ..made.clone()
    };
    // What is held was read before that.
    let mut recount = Recount::of_what_was_read_after(1, 2);
    recount.entry(1, "budget_created", Some(&json!({"budget": made}).to_string()));
    for (seq, spent) in [(2, 10), (3, 20), (4, 30)] {
        let balance = json!({"allocated": 100, "budget": made.id, "debt": 0, "reserved": 0, "spent": spent, "uncovered": 0});
        let body = json!({"balances": [balance], "charged": 10, "uncovered": 0});
        recount.entry(seq, "usage_recorded", Some(&body.to_string()));
    }
    let frozen = used(30).freeze().unwrap().unwrap();
    recount.entry(5, "budget_frozen", Some(&json!({"budget": frozen}).to_string()));
    for (stored, fits) in [(0, false), (10, true), (20, true), (25, false), (30, true)] {
        let mismatches = recount.compare(&[used(stored)]);
        assert_eq!(mismatches.is_empty(), fits, "{stored}: {mismatches:?}");
    }
    // It was frozen when more was used.
    let at_no_entry = Budget {
        used: Amount::new(20).unwrap(),
        ..frozen.clone()
    };
    assert_ne!(recount.compare(&[at_no_entry]), []);
    assert_eq!(recount.compare(std::slice::from_ref(&frozen)), []);
    // One that is made behind what was read is not missed.
    let late = Budget {
        id: BudgetId::from_bytes([2; 16]),
        ..made.clone()
    };
    recount.entry(6, "budget_created", Some(&json!({"budget": late}).to_string()));
    assert_eq!(recount.compare(std::slice::from_ref(&frozen)), []);
    assert_eq!(recount.compare(&[late]), [Mismatch::NotStored(made.id)]);
}

#[test]
fn by_what_a_budget_is_looked_for_may_change_while_it_is_read() {
    let made = daily();
    let closed = made.close().unwrap();
    let mut recount = Recount::of_what_was_read_after(1, 1);
    recount.entry(1, "budget_created", Some(&json!({"budget": made}).to_string()));
    recount.entry(2, "budget_closed", Some(&json!({"budget": closed}).to_string()));
    let compare = |place: BudgetPlace| recount.compare_places(std::slice::from_ref(&made), &[place]);
    assert_eq!(compare(BudgetPlace::of(&made)), []);
    assert_eq!(compare(BudgetPlace::of(&closed)), []);
    let elsewhere = BudgetPlace {
        unit: "CALLS".to_owned(),
        ..BudgetPlace::of(&closed)
    };
    assert_ne!(compare(elsewhere), []);
}

#[test]
fn what_is_moved_while_it_is_read_what_is_held_is_not_compared() {
    let budget = BudgetId::from_bytes([1; 16]);
    let [before, after] = [1, 2].map(held);
    let mut recount = Recount::of_what_was_read_after(1, 2);
    for (seq, held, reserved) in [(1, &before, 10), (2, &after, 20)] {
        let body = json!({"agent": held.agent, "reservation": {"amount": held.amount, "id": held.id}});
        moved(&mut recount, seq, ("decision", body), (budget, reserved));
    }
    let both = [before.clone(), after.clone()];
    assert_eq!(recount.compare_holds(&both), []);
    assert_eq!(recount.compare_holds(&both[..1]), []);
    let missed = recount.compare_holds(&both[1..]);
    let told = before.amount;
    assert_eq!(
        missed,
        [Mismatch::StoredHold {
            reservation: before.id,
            told
        }]
    );
}

/// Ten that are held for a decision.
fn held(number: u8) -> Reservation {
    Reservation {
        id: ReservationId::from_bytes([number; 16]),
        agent: AgentId::from_bytes([7; 16]),
        unit: Unit::new("TOKENS").unwrap(),
        amount: Amount::new(10).unwrap(),
        budgets: vec![BudgetId::from_bytes([1; 16])],
        tool: None,
        run_id: None,
        decision_id: Some(DecisionId::from_bytes([number; 16])),
        status: ReservationStatus::Active,
        charge: None,
        created_at: Timestamp::from_millis(0),
        expires_at: Timestamp::from_millis(60_000),
    }
}

#[test]
fn what_is_stored_as_held_is_compared_but_for_what_was_erased() {
    let budget = BudgetId::from_bytes([1; 16]);
    let hold = |recount: &mut Recount, seq: u64, held: &Reservation, reserved: i64| {
        let body = json!({"agent": held.agent, "reservation": {"amount": held.amount, "id": held.id}});
        moved(recount, seq, ("decision", body), (budget, reserved));
    };
    let [one, two] = [1, 2].map(held);
    let unlike = |held: &Reservation, told: i64| Mismatch::StoredHold {
        reservation: held.id,
        told: Amount::new(told).unwrap(),
    };
    let mut recount = Recount::default();
    hold(&mut recount, 1, &one, 10);
    assert_eq!(recount.compare_holds(std::slice::from_ref(&one)), []);
    assert_eq!(recount.compare_holds(&[]), [unlike(&one, 10)]);
    let both = [one.clone(), two.clone()];
    assert_eq!(recount.compare_holds(&both), [unlike(&two, 0)]);
    let others = [
        Reservation {
            amount: Amount::new(9).unwrap(),
            ..one.clone()
        },
        Reservation {
            budgets: Vec::new(),
            ..one.clone()
        },
        Reservation {
            agent: AgentId::from_bytes([8; 16]),
            ..one.clone()
        },
        one.release(),
    ];
    for other in others {
        let found = recount.compare_holds(std::slice::from_ref(&other));
        assert_eq!(found, [unlike(&one, 10)], "{other:?}");
    }

    // An outcome may have settled what was held before it was erased, a decision may have held something, and what was
    // held later is known.
    recount.entry(2, "outcome_reported", None);
    assert_eq!(recount.compare_holds(&[]), []);
    assert_eq!(recount.compare_holds(&both), []);
    let unasked = Reservation {
        decision_id: None,
        ..two.clone()
    };
    assert_eq!(recount.compare_holds(&[unasked]), [unlike(&two, 0)]);
    hold(&mut recount, 3, &two, 20);
    assert_eq!(recount.compare_holds(&[one]), [unlike(&two, 10)]);
}
