//! Tests of how a budget changes.

use super::charge::Refused;
use super::*;

fn amount(number: i64) -> Amount {
    Amount::new(number).unwrap()
}

fn budget(allocated: i64, overage: Overage, overdraft_limit: i64) -> Budget {
    let terms = Terms {
        scope: Scope::default(),
        unit: Unit::new("TOKENS").unwrap(),
        allocated: amount(allocated),
        overage,
        overdraft_limit: amount(overdraft_limit),
        period: None,
    };
    Budget::new(BudgetId::from_bytes([1; 16]), terms, Timestamp::from_millis(0))
}

/// Remaining, reserved, spent, debt and uncovered.
fn standing(budget: &Budget) -> [i64; 5] {
    let [reserved, spent, debt, uncovered] =
        [budget.reserved, budget.spent(), budget.debt(), budget.uncovered].map(Amount::get);
    assert_eq!(
        budget.remaining(),
        budget.allocated.get() - reserved - spent - debt
    );
    [budget.remaining(), reserved, spent, debt, uncovered]
}

/// After `held` was reserved and `actual` was spent.
fn after(budget: &Budget, held: i64, actual: i64) -> Result<[i64; 5], [i64; 5]> {
    let held_there = budget.hold(amount(held)).unwrap();
    let charge = Charge::of([&held_there], Some(amount(held)), amount(actual));
    let charge = charge.map_err(|Refused(budget)| standing(budget))?;
    Ok(standing(&held_there.settle(amount(held), charge)))
}

#[test]
fn less_than_was_held_is_charged_and_the_rest_comes_back() {
    for overage in [
        Overage::Reject,
        Overage::AllowIfAvailable,
        Overage::AllowWithOverdraft,
    ] {
        assert_eq!(after(&budget(100, overage, 0), 60, 45), Ok([55, 0, 45, 0, 0]));
        assert_eq!(after(&budget(100, overage, 0), 60, 0), Ok([100, 0, 0, 0, 0]));
    }
}

#[test]
fn more_than_was_held_is_charged_by_the_rule_for_overage() {
    assert_eq!(
        after(&budget(100, Overage::Reject, 0), 60, 61),
        Err([40, 60, 0, 0, 0])
    );
    assert_eq!(
        after(&budget(100, Overage::Reject, 0), 0, 1),
        Err([100, 0, 0, 0, 0])
    );
    let available = budget(100, Overage::AllowIfAvailable, 0);
    assert_eq!(after(&available, 60, 100), Ok([0, 0, 100, 0, 0]));
    assert_eq!(after(&available, 60, 130), Ok([0, 0, 100, 0, 30]));
    let overdraft = budget(100, Overage::AllowWithOverdraft, 20);
    assert_eq!(after(&overdraft, 60, 110), Ok([-10, 0, 100, 10, 0]));
    assert_eq!(after(&overdraft, 60, 130), Ok([-20, 0, 100, 20, 10]));
}

#[test]
fn what_the_tightest_cannot_cover_is_uncovered_everywhere() {
    let (wide, tight) = (
        budget(1_000, Overage::AllowWithOverdraft, 50),
        budget(100, Overage::AllowIfAvailable, 0),
    );
    let charge = Charge::of([&wide, &tight], None, amount(130)).unwrap();
    assert_eq!((charge.charged, charge.uncovered()), (amount(100), amount(30)));
    assert_eq!(standing(&wide.settle(Amount::ZERO, charge)), [900, 0, 100, 0, 30]);
    assert_eq!(standing(&tight.settle(Amount::ZERO, charge)), [0, 0, 100, 0, 30]);
}

#[test]
fn a_report_is_never_refused() {
    let strict = budget(100, Overage::Reject, 0).hold(amount(60)).unwrap();
    let charge = Charge::reported([&strict], Some(amount(60)), amount(80));
    assert_eq!((charge.charged, charge.uncovered()), (amount(80), Amount::ZERO));
    let charge = Charge::reported([&strict], Some(amount(60)), amount(130));
    assert_eq!((charge.charged, charge.uncovered()), (amount(100), amount(30)));
    let charge = Charge::reported([&strict], None, amount(80));
    assert_eq!((charge.charged, charge.uncovered()), (amount(40), amount(40)));
    let charge = Charge::reported([&strict], Some(Amount::ZERO), amount(50));
    assert_eq!((charge.charged, charge.uncovered()), (amount(40), amount(10)));
}

#[test]
fn new_money_pays_debt() {
    let indebted = budget(100, Overage::AllowWithOverdraft, 50);
    let charge = Charge::of([&indebted], None, amount(130)).unwrap();
    let indebted = indebted.settle(Amount::ZERO, charge);
    assert_eq!(standing(&indebted), [-30, 0, 100, 30, 0]);
    assert_eq!(indebted.check_reserve(Amount::ZERO), Err(Lack::Exceeded));
    assert_eq!(
        standing(&indebted.fund(amount(20)).unwrap()),
        [-10, 0, 120, 10, 0]
    );
    assert_eq!(standing(&indebted.fund(amount(70)).unwrap()), [40, 0, 130, 0, 0]);
}

#[test]
fn only_what_is_left_is_taken_out() {
    let held = budget(100, Overage::Reject, 0).hold(amount(60)).unwrap();
    assert_eq!(
        held.debit(amount(41)),
        Err(BudgetError::Exceeded { remaining: 40 })
    );
    let empty = held.debit(amount(40)).unwrap();
    assert_eq!(standing(&empty), [0, 60, 0, 0, 0]);
    assert_eq!(empty.debit(amount(1)), Err(BudgetError::NothingLeft));
    assert_eq!(
        held.reset(Some(amount(59))),
        Err(BudgetError::Held { held: amount(60) })
    );
    assert_eq!(standing(&held.reset(None).unwrap()), [40, 60, 0, 0, 0]);
}

#[test]
fn a_frozen_budget_reserves_nothing_and_a_closed_one_stays_so() {
    let active = budget(100, Overage::Reject, 0);
    let frozen = active.freeze().unwrap().unwrap();
    assert_eq!(frozen.check_reserve(amount(1)), Err(Lack::Frozen));
    assert_eq!(frozen.freeze(), Ok(None));
    assert_eq!(frozen.unfreeze().unwrap().unwrap(), active);
    let closed = frozen.close().unwrap();
    assert_eq!(closed.close(), None);
    assert_eq!(closed.unfreeze(), Err(BudgetError::Closed));
    assert_eq!(closed.fund(amount(1)), Err(BudgetError::Closed));
    assert_eq!(closed.reset(None), Err(BudgetError::Closed));
}

#[test]
fn sums_beyond_the_range_change_nothing() {
    let full = budget(crate::amount::AMOUNT_MAX, Overage::Reject, 0);
    assert_eq!(full.fund(amount(1)), Err(BudgetError::Overflow(AmountOverflow)));
    let held = full.hold(Amount::MAX).unwrap();
    assert_eq!(held.hold(amount(1)), Err(AmountOverflow));
}

#[test]
fn what_has_happened_is_settled_however_much_it_is() {
    let mut small = budget(100, Overage::Reject, 0).hold(amount(10)).unwrap();
    for _ in 0..2 {
        let most = Charge::reported([&small], None, Amount::MAX);
        small = small.settle(Amount::ZERO, most);
    }
    let once_more = Charge::reported([&small], Some(amount(10)), amount(12));
    let small = small.settle(amount(10), once_more);
    assert_eq!(once_more.uncovered(), amount(2));
    assert_eq!(standing(&small), [0, 0, 100, 0, crate::amount::AMOUNT_MAX]);
    let overdrawn = budget(crate::amount::AMOUNT_MAX, Overage::AllowWithOverdraft, 100);
    let all = Charge::reported([&overdrawn], None, Amount::MAX);
    let overdrawn = overdrawn.settle(Amount::ZERO, all);
    let beyond = Charge::reported([&overdrawn], None, amount(30));
    assert_eq!((beyond.charged, beyond.uncovered()), (Amount::ZERO, amount(30)));
    assert_eq!(
        standing(&overdrawn.settle(Amount::ZERO, beyond)),
        [0, 0, crate::amount::AMOUNT_MAX, 0, 30]
    );
}

#[test]
fn a_new_period_begins_with_the_allotment_and_the_debt() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let mut daily = budget(100, Overage::AllowWithOverdraft, 50);
    daily.period = Some(Period::Day);
    daily.period_start = at("2026-01-31T00:00:00.000Z");
    let daily = daily.fund(amount(10)).unwrap().hold(amount(5)).unwrap();
    let charge = Charge::of([&daily], None, amount(120)).unwrap();
    let daily = daily.settle(Amount::ZERO, charge);
    assert_eq!(standing(&daily), [-15, 5, 105, 15, 0]);
    assert_eq!(daily.roll_over(at("2026-01-31T23:59:59.999Z")), None);
    let next = daily.roll_over(at("2026-02-01T00:00:00.000Z")).unwrap();
    assert_eq!(standing(&next), [85, 5, 10, 0, 0]);
    assert_eq!(next.allocated, amount(100));
    assert_eq!(next.roll_over(at("2026-02-01T12:00:00.000Z")), None);
}

#[test]
fn a_budget_that_rests_pays_as_much_debt_as_one_that_begins_every_period() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    for (period, first, next) in [
        (
            Period::Hour,
            "2026-01-31T22:00:00.000Z",
            [
                "2026-01-31T23:30:00.000Z",
                "2026-02-01T00:00:00.000Z",
                "2026-02-01T01:59:59.999Z",
            ],
        ),
        (
            Period::Day,
            "2024-02-28T00:00:00.000Z",
            [
                "2024-02-29T00:00:00.000Z",
                "2024-03-01T23:59:59.999Z",
                "2024-03-02T12:00:00.000Z",
            ],
        ),
        (
            Period::Week,
            "2025-12-22T00:00:00.000Z",
            [
                "2025-12-31T00:00:00.000Z",
                "2026-01-11T23:59:59.999Z",
                "2026-01-12T00:00:00.000Z",
            ],
        ),
        (
            Period::Month,
            "2025-11-01T00:00:00.000Z",
            [
                "2025-12-31T23:59:59.999Z",
                "2026-01-01T00:00:00.000Z",
                "2026-02-28T12:00:00.000Z",
            ],
        ),
    ] {
        let rested = Budget {
            period: Some(period),
            period_start: at(first),
            reserved: amount(7),
            used: amount(470),
            ..budget(100, Overage::AllowWithOverdraft, 400)
        };
        let rested = rested.fund(amount(20)).unwrap();
        let mut looked_at = rested.clone();
        for (now, used) in next.into_iter().zip([350, 250, 150]) {
            looked_at = looked_at.roll_over(at(now)).unwrap();
            assert_eq!(looked_at.used, amount(used), "{period:?}, {now}");
            assert_eq!(rested.roll_over(at(now)), Some(looked_at.clone()), "{now}");
        }
        let long_after = rested.roll_over(at("9999-12-31T23:59:59.999Z")).unwrap();
        assert_eq!(standing(&long_after), [93, 7, 0, 0, 0]);
    }
}

#[test]
fn what_is_held_is_no_debt_in_a_new_period() {
    let mut daily = budget(100, Overage::AllowWithOverdraft, 50);
    daily.period = Some(Period::Day);
    let held = daily.hold(amount(80)).unwrap();
    let charge = Charge::of([&held], None, amount(50)).unwrap();
    let used = held.settle(Amount::ZERO, charge);
    assert_eq!(standing(&used), [-30, 80, 20, 30, 0]);
    let next = used.roll_over("1970-01-02T00:00:00.000Z".parse().unwrap());
    let next = next.unwrap();
    assert_eq!(standing(&next), [20, 80, 0, 0, 0]);
    let released = next.settle(amount(80), Charge::NOTHING);
    assert_eq!(standing(&released), [100, 0, 0, 0, 0]);
}

#[test]
fn thresholds_are_reached_once() {
    let reached = |used: [i64; 2]| {
        let [before, after] = used.map(|used| Budget {
            used: amount(used),
            ..budget(1_000, Overage::AllowWithOverdraft, 1_000)
        });
        after.reached_since(&before).collect::<Vec<_>>()
    };
    assert_eq!(reached([0, 499]), [0; 0]);
    assert_eq!(reached([499, 500]), [50]);
    assert_eq!(reached([500, 799]), [0; 0]);
    assert_eq!(reached([0, 2_000]), [50, 80, 100]);
    assert_eq!(reached([999, 1_000]), [100]);
    let carried = Budget {
        used: amount(800),
        ..budget(1_000, Overage::AllowWithOverdraft, 1_000)
    };
    assert_eq!(carried.reached().collect::<Vec<_>>(), [50, 80]);
    let of_nothing = budget(0, Overage::AllowWithOverdraft, 1_000);
    assert_eq!(of_nothing.reached().count(), 0);
}
