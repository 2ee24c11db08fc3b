//! What something costs, whether budgets have it, and a decision that holds it in them.
//!
//! A decision that costs something is worded when it is recorded: only then it is known whether there is enough, and
//! what is left.

use super::{KnownBudgets, shown};
use crate::ask::Ask;
use crate::decision::Decided;
use crate::judge::Judgement;
use crate::proposal::Wording;
use crate::salt::Salt;
use crate::snapshot::TenantSnapshot;
use model::budget::{Lack, Subject};
use model::usage::BudgetUsage;
use model::{
    Agent, Amount, AmountOverflow, Budget, BudgetId, DecisionId, ReasonCode, Reservation, ReservationId,
    ReservationStatus, Scope, TenantId, Timestamp, Unit, Verdict,
};
use std::sync::Arc;

/// What something costs, and whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Whom and what it counts against.
    pub subject: Subject,
    /// What it is counted in.
    pub unit: Unit,
    /// How much.
    pub amount: Amount,
}

/// What is held, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// What the reservation is called.
    pub id: ReservationId,
    /// What it costs.
    pub cost: Cost,
    /// How long it is held, in milliseconds.
    pub ttl_ms: u64,
    /// The decision that it is for.
    pub decision_id: Option<DecisionId>,
}

/// A decision that costs something, with everything that its records are made of.
pub struct Costed {
    /// What is held for it.
    pub hold: Hold,
    /// The ask.
    pub ask: Arc<Ask>,
    /// Who asked.
    pub agent: Arc<Agent>,
    /// What was found, before budgets were looked at: an allow.
    pub judgement: Judgement,
    /// The policies and the directory it was found by.
    pub tenant: Arc<TenantSnapshot>,
    /// When it was found.
    pub now: Timestamp,
    /// What keeps the body from being guessed when it is erased.
    pub salt: Salt,
}

/// What the records of a decision say about budgets.
#[derive(Debug)]
pub struct BudgetPart {
    /// What is held; none if there is not enough, or only a quote was asked for.
    pub reservation: Option<Reservation>,
    /// The budgets that it counts against, as they are then.
    pub balances: Vec<Budget>,
}

/// Why budgets do not have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lacking {
    /// There is none of this unit for it.
    NotFound {
        /// The unit.
        unit: Unit,
    },
    /// One of them is frozen.
    Frozen(Box<Where>),
    /// One of them has not enough left.
    Exceeded(Box<Where>),
    /// One of them rejects more than was held.
    MoreThanHeld {
        /// Which.
        place: Box<Where>,
        /// How much was held.
        held: Amount,
        /// The decision that it was held for.
        decision_id: Option<DecisionId>,
    },
    /// A sum would be too large.
    Overflow(AmountOverflow),
}

/// Which budget lacks something, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Where {
    /// Which.
    pub budget: BudgetId,
    /// What it is for.
    pub scope: Scope,
    /// What it is counted in.
    pub unit: Unit,
    /// How much was wanted.
    pub requested: Amount,
    /// How much is left.
    pub remaining: i64,
    /// Whether it begins anew some time.
    pub renews: bool,
}

impl Where {
    pub(super) fn of(budget: &Budget, requested: Amount) -> Self {
        Self {
            budget: budget.id,
            scope: budget.scope.clone(),
            unit: budget.unit.clone(),
            requested,
            remaining: budget.remaining(),
            renews: budget.period.is_some(),
        }
    }
}

impl Lacking {
    /// The reason code of a denial.
    pub const fn reason(&self) -> ReasonCode {
        match self {
            Self::NotFound { .. } => ReasonCode::BudgetNotFound,
            Self::Frozen(_) => ReasonCode::BudgetFrozen,
            Self::Exceeded(_) | Self::MoreThanHeld { .. } | Self::Overflow(_) => ReasonCode::BudgetExceeded,
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::NotFound { unit } => {
                format!("Use a unit that has a budget, or have one made for `{unit}`.")
            }
            Self::Frozen(place) => format!("Have the budget {} unfrozen.", place.budget),
            Self::Exceeded(place) => {
                // Where nothing is left, there is no less to ask for.
                let beginning = match (place.remaining > 0, place.renews) {
                    (true, true) => "Ask for less, wait for its next period, or have",
                    (true, false) => "Ask for less or have",
                    (false, true) => "Wait for its next period, or have",
                    (false, false) => "Have",
                };
                format!("{beginning} the budget {} funded.", place.budget)
            }
            // A commit is final, and usage of more than is left is refused: only an outcome has the rest told as uncovered.
            Self::MoreThanHeld {
                decision_id: Some(id),
                ..
            } => format!(
                "Report what was spent as `actual` with the outcome of {id} instead: as much as is left is charged, and the rest is uncovered."
            ),
            Self::MoreThanHeld { held, .. } => {
                format!("Commit {held}, and report of the rest with `POST /v1/usage` as much as is left.")
            }
            Self::Overflow(_) => "Have the budget reset.".to_owned(),
        }
    }
}

/// The reason in a sentence.
impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound { unit } => write!(f, "there is no budget in `{unit}` for this"),
            Self::Frozen(place) => write!(
                f,
                "the budget of the {} in `{}` is frozen",
                place.scope, place.unit
            ),
            Self::Exceeded(place) if place.remaining < 0 => write!(
                f,
                "the budget of the {} is {} `{}` below zero, and {} are wanted",
                place.scope,
                place.remaining.unsigned_abs(),
                place.unit,
                place.requested
            ),
            Self::Exceeded(place) => write!(
                f,
                "the budget of the {} has {} `{}` left, and {} are wanted",
                place.scope, place.remaining, place.unit, place.requested
            ),
            Self::MoreThanHeld { place, held, .. } => write!(
                f,
                "the budget of the {} rejects more than was held, {held} `{}`",
                place.scope, place.unit
            ),
            Self::Overflow(error) => error.fmt(f),
        }
    }
}

impl KnownBudgets {
    /// The budgets that a cost counts against, if all of them have enough; none if the tenant has no budgets at all.
    pub fn quote(&self, tenant: TenantId, cost: &Cost) -> Result<Vec<&Budget>, Lacking> {
        let budgets = self.budgets_of(tenant, cost);
        if budgets.is_empty() && self.is_budgeted(tenant) {
            return Err(Lacking::NotFound {
                unit: cost.unit.clone(),
            });
        }
        for budget in &budgets {
            budget.check_reserve(cost.amount).map_err(|lack| {
                let place = Box::new(Where::of(budget, cost.amount));
                match lack {
                    Lack::Frozen => Lacking::Frozen(place),
                    Lack::Exceeded => Lacking::Exceeded(place),
                }
            })?;
        }
        Ok(budgets)
    }

    /// What is used of the tightest budget that a cost counts against; none if there is none.
    pub fn usage(&self, tenant: TenantId, cost: &Cost) -> Option<BudgetUsage> {
        BudgetUsage::tightest(self.budgets_of(tenant, cost))
    }

    /// What the answer to a dry run says about budgets, none if it has nothing to do with any, and what they lack: a
    /// quote, and nothing is held.
    pub fn quoted(&self, tenant: TenantId, cost: &Cost) -> (Option<BudgetPart>, Option<Lacking>) {
        let budgets = self.budgets_of(tenant, cost);
        let part = (!budgets.is_empty()).then(|| BudgetPart {
            reservation: None,
            balances: budgets.into_iter().cloned().collect(),
        });
        (part, self.quote(tenant, cost).err())
    }

    /// Holds a cost in every budget that it counts against, or in none. Returns the reservation and those budgets as they are
    /// then; no reservation if the tenant has no budgets at all.
    pub(super) fn hold(
        &mut self,
        tenant: TenantId,
        hold: &Hold,
        now: Timestamp,
    ) -> Result<Option<(Reservation, Vec<Budget>)>, Lacking> {
        let cost = &hold.cost;
        let budgets = self.quote(tenant, cost)?;
        if budgets.is_empty() {
            return Ok(None);
        }
        let after = budgets.iter().map(|budget| budget.hold(cost.amount));
        let after: Vec<_> = after.collect::<Result<_, _>>().map_err(Lacking::Overflow)?;
        let reservation = Reservation {
            id: hold.id,
            agent: cost.subject.agent,
            unit: cost.unit.clone(),
            amount: cost.amount,
            budgets: after.iter().map(|budget| budget.id).collect(),
            tool: cost.subject.tool.clone(),
            run_id: cost.subject.run().cloned(),
            decision_id: hold.decision_id,
            status: ReservationStatus::Active,
            charge: None,
            created_at: now,
            expires_at: now.plus_millis(i64::try_from(hold.ttl_ms).unwrap_or(i64::MAX)),
        };
        self.put(tenant, &after);
        self.put_reservation(tenant, reservation.clone());
        self.note_link(tenant, cost);
        Ok(Some((reservation, after)))
    }

    /// The records of a decision that costs something: what was found, with what is held, or a denial. If the tenant has no
    /// budgets, the cost is only told.
    pub(crate) fn word(&mut self, tenant: TenantId, costed: &Costed, now: Timestamp) -> Wording {
        let part = match self.hold(tenant, &costed.hold, now) {
            Ok(None) => return costed.word(&costed.judgement, None),
            Ok(Some((reservation, balances))) => BudgetPart {
                reservation: Some(reservation),
                balances,
            },
            Err(lacking) => {
                // It is recorded whose run it is; otherwise it could say less and have what its parent lacks.
                self.note_link(tenant, &costed.hold.cost);
                let balances = self.budgets_of(tenant, &costed.hold.cost);
                let part = BudgetPart {
                    reservation: None,
                    balances: balances.into_iter().cloned().collect(),
                };
                return costed.word(&costed.judgement.lacking(&lacking), Some(&part));
            }
        };
        costed.word(&costed.judgement, Some(&part))
    }
}

impl Costed {
    fn word(&self, judgement: &Judgement, budget: Option<&BudgetPart>) -> Wording {
        let decided = Decided {
            id: self.hold.decision_id.unwrap_or(DecisionId::from_bytes([0; 16])),
            ask: &self.ask,
            agent: &self.agent,
            judgement,
            tenant: &self.tenant,
            approval: None,
            budget,
            now: self.now,
            salt: self.salt,
        };
        decided.word()
    }
}

impl Judgement {
    /// The denial that an allow becomes where budgets do not have what it costs. An approval is kept for another time,
    /// and what is to be kept out of records is so whatever the verdict is. An allow on trial would cost the same, and
    /// says nothing else.
    #[must_use]
    pub fn lacking(&self, lacking: &Lacking) -> Self {
        let shadow = self.shadow.clone();
        Self {
            shadow: shadow.filter(|shadow| shadow.verdict() != Verdict::Allow),
            reason: lacking.reason(),
            explanation: lacking.to_string(),
            agent_message: Some(lacking.advice()),
            matched: Vec::new(),
            obligations: self.redactions(),
            ruling: Some(Box::new(self.found_first())),
            spends_approval: None,
            ..self.clone()
        }
    }

    /// What becomes of an allow where budgets do not have what it costs and the ask is only observed: it stays one, and
    /// tells that it would have been the denial of [`Self::lacking`].
    #[must_use]
    pub fn observed_lacking(&self, lacking: &Lacking) -> Self {
        let Some(found) = self.would_have.as_deref() else {
            return self.lacking(lacking);
        };
        let enforced = Self {
            reason: found.reason,
            matched: found.matched.clone(),
            ..self.clone()
        };
        // The action will be carried out, so what must be done then stays.
        Self {
            obligations: self.obligations.clone(),
            ..enforced.lacking(lacking)
        }
        .observed()
    }
}

impl BudgetPart {
    /// The members of an answer.
    pub(crate) fn answer_part(&self) -> shown::AnswerPart<'_> {
        shown::AnswerPart::of(self)
    }
}
