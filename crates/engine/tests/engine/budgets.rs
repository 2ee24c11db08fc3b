//! The laws of budgets, whatever happens: thousands of moves from a seed, in batches, beside a ledger that is counted again.

use crate::support::{NOW, TENANT, books, signing_key, tenant};
use engine::budgets::cost::{Cost, Hold};
use engine::budgets::moves::{BudgetChange, BudgetMove, Move, Repeat, SettleStep};
use engine::budgets::recount::Recount;
use engine::budgets::report::{Outcome, OutcomeStatus, Settling};
use engine::budgets::{FoundBudgets, KnownBudgets};
use engine::proposal::Intent;
use engine::{Books, Conflict, Disposition, Found, Proposal, apply};
use model::budget::{Subject, Terms};
use model::{
    AgentId, Amount, Budget, BudgetId, DecisionId, Name, Overage, Period, Reservation, ReservationId,
    ReservationStatus, RunLink, Scope, SlashFreeName, TenantId, Timestamp, Unit,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{BudgetRows, EntryRow, ReplyKey, ReplyRow};

/// A source of numbers that a seed fixes (the generator of Marsaglia, "Xorshift RNGs").
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn amount(&mut self) -> Amount {
        let most = if self.roll(50) == 0 { 1 << 53 } else { 200 };
        Amount::clamped(self.roll(most).try_into().unwrap())
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let sides = of.len().try_into().ok().filter(|sides| *sides > 0)?;
        Some(of[usize::try_from(self.roll(sides)).unwrap()].clone())
    }
}

/// What a store would hold.
#[derive(Default)]
struct Stored {
    budgets: BTreeMap<BudgetId, Budget>,
    reservations: BTreeMap<ReservationId, Reservation>,
    links: Vec<(TenantId, RunLink)>,
    replies: Vec<ReplyRow>,
}

impl Stored {
    fn known(&self) -> KnownBudgets {
        let mut known = KnownBudgets::default();
        known.learn_all(FoundBudgets {
            budgets: self
                .budgets
                .values()
                .map(|budget| (TENANT, budget.clone()))
                .collect(),
            reservations: self
                .reservations
                .values()
                .map(|reservation| (TENANT, reservation.clone()))
                .collect(),
            links: self.links.clone(),
            foretold: Vec::new(),
            replies: self.replies.clone(),
            budgeted: Vec::new(),
        });
        known
    }

    fn write(&mut self, rows: BudgetRows) {
        for (_, reservation) in rows.reservations {
            let before = self.reservations.insert(reservation.id, reservation.clone());
            if let Some(before) = before.filter(|before| before.status != ReservationStatus::Active) {
                assert_eq!(before, reservation, "what has ended has moved");
            }
        }
        self.budgets
            .extend(rows.budgets.into_iter().map(|(_, budget)| (budget.id, budget)));
        self.links.extend(rows.links);
        self.replies.extend(rows.replies);
    }
}

struct Game {
    dice: Dice,
    stored: Stored,
    books: Books,
    recount: Recount,
    now: Timestamp,
    ids: u128,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn agent(number: u8) -> AgentId {
    AgentId::from_bytes([number; 16])
}

impl Game {
    fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            stored: Stored::default(),
            books: books(tenant()),
            recount: Recount::default(),
            now: "2026-01-31T22:00:00.000Z".parse().unwrap(),
            ids: 0,
        }
    }

    fn id(&mut self) -> [u8; 16] {
        self.ids += 1;
        self.ids.to_be_bytes()
    }

    fn cost(&mut self) -> Cost {
        let runs = ["root", "child", "grandchild", "alone"];
        let run = self
            .dice
            .pick(&runs)
            .filter(|_| self.dice.0.is_multiple_of(2))
            .map(name);
        Cost {
            subject: Subject {
                team: self.dice.pick(&[None, Some(name("crew"))]).flatten(),
                agent: agent(u8::from(self.dice.roll(2) == 0)),
                tool: self
                    .dice
                    .pick(&[None, Some(SlashFreeName::new("github").unwrap())])
                    .flatten(),
                parent_run_id: run.as_ref().and_then(|_| self.dice.pick(&runs).map(name)),
                run_id: run,
            },
            unit: self
                .dice
                .pick(&["TOKENS", "CREDITS"])
                .map(|unit| Unit::new(unit).unwrap())
                .unwrap(),
            amount: self.dice.amount(),
        }
    }

    fn terms(&mut self) -> Terms {
        let scopes = [
            json!({}),
            json!({"team": "crew"}),
            json!({"agent": agent(0)}),
            json!({"agent": agent(1), "tool": "github"}),
            json!({"run": "root"}),
            json!({"run": "child"}),
        ];
        let scope: Scope = serde_json::from_value(self.dice.pick(&scopes).unwrap()).unwrap();
        let kinds = [
            Overage::Reject,
            Overage::AllowIfAvailable,
            Overage::AllowWithOverdraft,
        ];
        let overage = self.dice.pick(&kinds).unwrap();
        Terms {
            scope,
            unit: Unit::new("TOKENS").unwrap(),
            allocated: Amount::clamped(self.dice.roll(1_000).try_into().unwrap()),
            overage,
            overdraft_limit: if overage == Overage::AllowWithOverdraft {
                Amount::clamped(100)
            } else {
                Amount::ZERO
            },
            period: self
                .dice
                .pick(&[None, Some(Period::Hour), Some(Period::Day)])
                .flatten(),
        }
    }

    fn change(&mut self) -> BudgetChange {
        let amount = self.dice.amount();
        match self.dice.roll(8) {
            0..=2 => BudgetChange::Fund(amount),
            3 => BudgetChange::Debit(amount),
            4 => BudgetChange::Reset(Some(amount).filter(|amount| amount.get() % 2 == 0)),
            5 => BudgetChange::Freeze,
            6 => BudgetChange::Unfreeze,
            _ => BudgetChange::Close,
        }
    }

    fn settling(&mut self, reservation: &Reservation) -> Intent {
        let decision = DecisionId::from_bytes(self.id());
        let actual = (self.dice.roll(3) > 0).then(|| (reservation.unit.clone(), self.dice.amount()));
        let status = if self.dice.roll(2) == 0 {
            OutcomeStatus::Succeeded
        } else {
            OutcomeStatus::NotExecuted
        };
        let outcome = Outcome {
            decision_id: decision,
            agent: reservation.agent,
            actual,
            executed_hash: None,
            mismatch: false,
            output_hash: None,
            status,
            salt: engine::Salt::from_bytes([7; 12]),
        };
        Intent::Outcome {
            entry: outcome.entry(),
            decision,
            mismatch: outcome.mismatch,
            settling: Some(Box::new(Settling {
                outcome,
                reservation: Some(reservation.id),
                cost: None,
            })),
        }
    }

    fn intent(&mut self) -> Intent {
        let reservations: Vec<_> = self.stored.reservations.values().cloned().collect();
        let budgets: Vec<_> = self.stored.budgets.keys().copied().collect();
        let what = match (
            self.dice.roll(20),
            self.dice.pick(&reservations),
            self.dice.pick(&budgets),
        ) {
            (0, ..) => {
                let (id, terms) = (BudgetId::from_bytes(self.id()), self.terms());
                Move::Create {
                    budget: Box::new(Budget::new(id, terms, self.now)),
                    by: Value::Null,
                }
            }
            (1..=3, _, Some(id)) => Move::Change {
                id,
                change: self.change(),
                reason: None,
                by: Value::Null,
            },
            (4..=6, ..) => Move::Use(self.cost()),
            (7..=9, Some(reservation), _) => {
                let amount = self.dice.amount();
                Move::Settle {
                    id: reservation.id,
                    agent: agent(u8::from(self.dice.roll(8) == 0) ^ reservation.agent.as_bytes()[0]),
                    step: SettleStep::Commit(reservation.unit, amount),
                }
            }
            (10, Some(reservation), _) => Move::Settle {
                id: reservation.id,
                agent: reservation.agent,
                step: SettleStep::Release,
            },
            (11, Some(reservation), _) => Move::Settle {
                id: reservation.id,
                agent: reservation.agent,
                step: SettleStep::Extend(60_000),
            },
            (12 | 13, Some(reservation), _) => return self.settling(&reservation),
            _ => Move::Reserve(Hold {
                id: ReservationId::from_bytes(self.id()),
                cost: self.cost(),
                ttl_ms: 30_000,
                decision_id: None,
            }),
        };
        let repeat = (self.dice.roll(4) == 0).then(|| Repeat {
            key: ReplyKey {
                tenant: TENANT,
                caller: [1; 16],
                key: name(&format!("key-{}", self.dice.roll(40))),
            },
            request: canon::Digest::of(&[u8::from(self.dice.roll(2) == 0)]),
        });
        Intent::Budget(Box::new(BudgetMove { what, repeat }))
    }

    fn round(&mut self) {
        let size = 1 + self.dice.roll(8);
        let tenant = self.books.snapshot().tenant(TENANT).unwrap();
        let (revision, base) = (tenant.revision, tenant.policies.base_digest());
        let proposals: Vec<_> = (0..size)
            .map(|_| Proposal {
                tenant: TENANT,
                revision,
                base,
                intent: self.intent(),
            })
            .collect();
        let found = || Found {
            budgets: self.stored.known(),
            ..Found::default()
        };
        let applied = apply(&self.books, found(), &proposals, self.now.into(), &signing_key());
        let again = apply(&self.books, found(), &proposals, self.now.into(), &signing_key());
        let bytes = |entries: &[EntryRow]| entries.iter().map(|entry| entry.body.clone()).collect::<Vec<_>>();
        assert_eq!(
            bytes(&applied.batch.entries),
            bytes(&again.batch.entries),
            "the same inputs"
        );
        self.check_refusals(&proposals, &applied.dispositions);
        if self.dice.roll(10) == 0 {
            // The commit was lost: nothing has happened.
            return;
        }
        for entry in &applied.batch.entries {
            self.recount
                .entry(entry.seq, entry.kind, Some(entry.body.as_str()));
        }
        self.books = applied.books;
        self.stored.write(applied.batch.budgets);
        let budgets: Vec<_> = self.stored.budgets.values().cloned().collect();
        assert_eq!(self.recount.compare(&budgets), []);
        assert_eq!(self.recount.uncounted().count(), 0);
        self.check_budgets();
        let step = self.dice.roll(20_000) * (1 + 100 * u64::from(self.dice.roll(30) == 0));
        self.now = self.now.plus_millis(step.try_into().unwrap());
    }

    /// A reservation that was not made holds nothing anywhere.
    fn check_refusals(&self, proposals: &[Proposal], dispositions: &[Disposition]) {
        for (proposal, disposition) in proposals.iter().zip(dispositions) {
            if let (Intent::Budget(change), Disposition::Conflict(_)) = (&proposal.intent, disposition)
                && let Move::Reserve(hold) = &change.what
            {
                assert!(!self.stored.reservations.contains_key(&hold.id));
            }
        }
    }

    fn check_budgets(&self) {
        for budget in self.stored.budgets.values() {
            let held = self.stored.reservations.values();
            let held = held.filter(|held| held.status == ReservationStatus::Active);
            let held = held.filter(|held| held.budgets.contains(&budget.id));
            let held: i64 = held.map(|held| held.amount.get()).sum();
            assert_eq!(
                budget.reserved.get(),
                held,
                "what is held is what reservations hold"
            );
            let parts = [budget.reserved, budget.spent(), budget.debt()].map(Amount::get);
            let left = budget.allocated.get() - parts.iter().sum::<i64>();
            assert_eq!(budget.remaining(), left);
            if budget.period.is_none() {
                let limit = match budget.overage {
                    Overage::AllowWithOverdraft => budget.overdraft_limit.get(),
                    _ => 0,
                };
                assert!(budget.remaining() >= -limit, "{budget:?}");
            }
        }
    }
}

#[test]
fn the_laws_of_budgets_hold_whatever_happens() {
    let mut kinds = BTreeMap::<String, usize>::new();
    for seed in 1..=8 {
        let mut game = Game::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        for _ in 0..400 {
            game.round();
        }
        for reservation in game.stored.reservations.values() {
            *kinds.entry(reservation.status.as_str().to_owned()).or_default() += 1;
        }
        *kinds.entry("budgets".to_owned()).or_default() += game.recount.len();
        *kinds.entry("indebted".to_owned()).or_default() += game
            .stored
            .budgets
            .values()
            .filter(|budget| budget.debt() > Amount::ZERO)
            .count();
        *kinds.entry("uncovered".to_owned()).or_default() += game
            .stored
            .budgets
            .values()
            .filter(|budget| budget.uncovered > Amount::ZERO)
            .count();
        *kinds.entry("replies".to_owned()).or_default() += game.stored.replies.len();
    }
    // A game in which something never happens proves nothing about it.
    for kind in [
        "committed",
        "released",
        "expired",
        "budgets",
        "indebted",
        "uncovered",
        "replies",
    ] {
        assert!(
            kinds.get(kind).is_some_and(|count| *count > 10),
            "{kind}: {kinds:?}"
        );
    }
}

#[test]
fn parents_are_the_sum_of_their_children_and_their_own() {
    let mut game = Game::new(42);
    let scopes = [
        (json!({}), 2_000),
        (json!({"agent": agent(0)}), 700),
        (json!({"agent": agent(1)}), 900),
    ];
    for (scope, allocated) in scopes {
        let terms = Terms {
            scope: serde_json::from_value(scope).unwrap(),
            unit: Unit::new("TOKENS").unwrap(),
            allocated: Amount::clamped(allocated),
            overage: Overage::AllowIfAvailable,
            overdraft_limit: Amount::ZERO,
            period: None,
        };
        let budget = Budget::new(BudgetId::from_bytes(game.id()), terms, game.now);
        game.stored.budgets.insert(budget.id, budget);
    }
    for _ in 0..200 {
        let reservations: Vec<_> = game.stored.reservations.values().cloned().collect();
        let mut cost = game.cost();
        cost.unit = Unit::new("TOKENS").unwrap();
        let what = match (game.dice.roll(3), game.dice.pick(&reservations)) {
            (0, Some(held)) => Move::Settle {
                id: held.id,
                agent: held.agent,
                step: SettleStep::Commit(held.unit, game.dice.amount()),
            },
            (1, _) => Move::Use(cost),
            _ => Move::Reserve(Hold {
                id: ReservationId::from_bytes(game.id()),
                cost,
                ttl_ms: 30_000,
                decision_id: None,
            }),
        };
        let tenant = game.books.snapshot().tenant(TENANT).unwrap();
        let proposal = Proposal {
            tenant: TENANT,
            revision: tenant.revision,
            base: tenant.policies.base_digest(),
            intent: Intent::Budget(Box::new(BudgetMove { what, repeat: None })),
        };
        let found = Found {
            budgets: game.stored.known(),
            ..Found::default()
        };
        let applied = apply(&game.books, found, &[proposal], game.now.into(), &signing_key());
        game.books = applied.books;
        game.stored.write(applied.batch.budgets);
        let [parent, children @ ..] = &game.stored.budgets.values().collect::<Vec<_>>()[..] else {
            panic!("three budgets");
        };
        let sum = |of: fn(&Budget) -> Amount| children.iter().map(|child| of(child).get()).sum::<i64>();
        assert_eq!(parent.reserved.get(), sum(|budget| budget.reserved));
        assert_eq!(parent.used.get(), sum(|budget| budget.used));
        // An amount tells of no more than the largest.
        let uncovered = Amount::clamped(sum(|budget| budget.uncovered));
        assert_eq!(parent.uncovered, uncovered);
    }
}

/// A use, a reservation and the outcome of a decision for which nothing was held, which come to this.
fn ways_to_spend(cost: &Cost) -> [Intent; 3] {
    let moving = |what| Intent::Budget(Box::new(BudgetMove { what, repeat: None }));
    let decision = DecisionId::from_bytes([5; 16]);
    let outcome = Outcome {
        decision_id: decision,
        agent: cost.subject.agent,
        actual: Some((cost.unit.clone(), cost.amount)),
        executed_hash: None,
        mismatch: false,
        output_hash: None,
        status: OutcomeStatus::Succeeded,
        salt: engine::Salt::from_bytes([7; 12]),
    };
    [
        moving(Move::Use(cost.clone())),
        moving(Move::Reserve(Hold {
            id: ReservationId::from_bytes([6; 16]),
            cost: cost.clone(),
            ttl_ms: 30_000,
            decision_id: None,
        })),
        Intent::Outcome {
            entry: outcome.entry(),
            decision,
            mismatch: outcome.mismatch,
            settling: Some(Box::new(Settling {
                outcome,
                reservation: None,
                cost: Some(cost.clone()),
            })),
        },
    ]
}

/// What named the parent first, and had the budgets looked up by it, is not among the proposals: nothing came of it.
#[test]
fn what_names_another_parent_than_was_reckoned_with_is_made_again_with_what_is_behind_it() {
    let books = books(tenant());
    let snapshot = books.snapshot().tenant(TENANT).unwrap();
    let unit = Unit::new("TOKENS").unwrap();
    let terms = Terms {
        scope: Scope::default(),
        unit: unit.clone(),
        allocated: Amount::clamped(1_000),
        overage: Overage::Reject,
        overdraft_limit: Amount::ZERO,
        period: None,
    };
    let budget = Budget::new(BudgetId::from_bytes([4; 16]), terms, NOW);
    let found = || {
        let mut budgets = KnownBudgets::default();
        let (run_id, parent) = (name("child"), name("elsewhere"));
        budgets.learn_all(FoundBudgets {
            budgets: vec![(TENANT, budget.clone())],
            foretold: vec![(TENANT, RunLink { run_id, parent })],
            ..FoundBudgets::default()
        });
        Found {
            budgets,
            ..Found::default()
        }
    };
    let cost = |run: &str, parent: &str| Cost {
        subject: Subject {
            team: None,
            agent: agent(1),
            tool: None,
            run_id: Some(name(run)),
            parent_run_id: Some(name(parent)),
        },
        unit: unit.clone(),
        amount: Amount::clamped(1),
    };
    for (parent, is_made_again) in [("root", true), ("elsewhere", false)] {
        for intent in ways_to_spend(&cost("child", parent)) {
            let [behind, ..] = ways_to_spend(&cost("grandchild", "child"));
            let proposals = [intent, behind].map(|intent| Proposal::of(snapshot, intent));
            let applied = apply(&books, found(), &proposals, NOW.into(), &signing_key());
            let entries = if is_made_again { 0 } else { 2 };
            assert_eq!(applied.batch.entries.len(), entries, "{parent}");
            for disposition in &applied.dispositions {
                let is_refused = matches!(disposition, Disposition::Conflict(Conflict::RunMoved));
                assert_eq!(is_refused, is_made_again, "{parent}: {disposition:?}");
            }
        }
    }
}
