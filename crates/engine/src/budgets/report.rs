//! An outcome, and what it settles: the reservation of its decision, or what was spent without one.
//!
//! An outcome tells what has happened, so budgets never refuse it: what they do not cover is uncovered. One that comes after the
//! end of its reservation leaves that as it is, and what was spent counts as used in the budgets that it was held in.

use super::KnownBudgets;
use super::cost::Cost;
use super::entries;
use super::moves::BudgetConflict;
use super::shown::{self, Balance, ReservationShown};
use crate::entry_kind::EntryKind;
use crate::proposal::ProposedEntry;
use crate::salt::Salt;
use bytes::Bytes;
use canon::{Digest, ObjectWriter};
use model::budget::SCOPES_MAX;
use model::{
    AgentId, Amount, Budget, BudgetId, Charge, DecisionId, ReservationId, ReservationStatus, TenantId,
    Timestamp, Unit,
};
use serde::{Deserialize, Serialize};

/// What an agent says became of a decision.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The decision.
    pub decision_id: DecisionId,
    /// Who says so.
    pub agent: AgentId,
    /// What was spent, and in which unit.
    pub actual: Option<(Unit, Amount)>,
    /// The digest of what was carried out.
    pub executed_hash: Option<Digest>,
    /// Whether that is not what was decided.
    pub mismatch: bool,
    /// The digest of what came of it.
    pub output_hash: Option<Digest>,
    /// What became of the action.
    pub status: OutcomeStatus,
    /// What keeps the body from being guessed when it is erased.
    pub salt: Salt,
}

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    /// It was done.
    Succeeded,
    /// It was tried.
    Failed,
    /// It was not even tried.
    NotExecuted,
}

/// What an outcome has to do with budgets.
#[derive(Debug, Clone)]
pub struct Settling {
    /// The outcome.
    pub outcome: Outcome,
    /// What was held for the decision.
    pub reservation: Option<ReservationId>,
    /// What was spent, if nothing was held for it.
    pub cost: Option<Cost>,
}

impl Settling {
    /// How many budgets it is charged to at most. In how many a reservation is held is known when it is settled.
    pub fn budgets_max(&self) -> usize {
        let cost = self.cost.as_ref();
        cost.map_or(SCOPES_MAX, |cost| cost.subject.scopes_max())
    }
}

/// What an outcome settled.
pub(crate) struct Settled {
    pub(crate) entry: ProposedEntry,
    pub(crate) thresholds: Vec<ProposedEntry>,
    pub(crate) answer: Bytes,
}

/// A charge, and against what.
struct DueCharge {
    unit: Unit,
    ids: Vec<BudgetId>,
    held: Amount,
    charge: Charge,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<ReservationShown<'a>>,
    balances: Vec<Balance<'a>>,
}

impl OutcomeStatus {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::NotExecuted => "not_executed",
        }
    }

    /// Whether anything was carried out.
    pub const fn was_executed(self) -> bool {
        !matches!(self, Self::NotExecuted)
    }
}

impl Outcome {
    /// The entry that tells of it, if it settles nothing.
    pub fn entry(&self) -> ProposedEntry {
        self.write(&[], |_| {})
    }

    /// The members stand in canonical order; `settled` writes the one of that name.
    fn write(&self, budgets: &[Budget], settled: impl FnOnce(&mut ObjectWriter)) -> ProposedEntry {
        let mut body = ObjectWriter::new();
        if let Some((unit, amount)) = &self.actual {
            body.object("actual", |member| {
                member.string("amount", &amount.to_string());
                member.string("unit", unit.as_str());
            });
        }
        body.string("agent", &self.agent.to_string());
        entries::balances(&mut body, budgets);
        body.string("decision_id", &self.decision_id.to_string());
        if let Some(executed) = &self.executed_hash {
            body.digest("executed_hash", executed);
        }
        body.boolean("mismatch", self.mismatch);
        if let Some(output) = &self.output_hash {
            body.digest("output_hash", output);
        }
        self.salt.write(&mut body);
        settled(&mut body);
        body.string("status", self.status.as_str());
        ProposedEntry::new(EntryKind::OutcomeReported, body.finish())
    }
}

impl KnownBudgets {
    /// Settles what an outcome settles; none if nothing was reserved for it, and nothing of it counts against a budget.
    pub(crate) fn settle_outcome(
        &mut self,
        tenant: TenantId,
        settling: &Settling,
        now: Timestamp,
    ) -> Result<Option<Settled>, BudgetConflict> {
        let Some(due) = self.due(tenant, settling)? else {
            return Ok(self.ended_before(tenant, settling, now));
        };
        let budgets = self.settled(tenant, &due.ids, due.held, due.charge);
        let reservation = self.end(tenant, settling, &due);
        let entry = settling.outcome.write(&budgets, |body| {
            entries::settled(body, due.charge, due.held, settling.reservation, &due.unit);
        });
        let answer = Answer {
            reservation: reservation.as_ref().map(|held| ReservationShown::of(held, now)),
            balances: budgets.iter().map(Balance::of).collect(),
        };
        let answer = shown::json(&answer);
        let thresholds = self.put(tenant, &budgets);
        if let Some(cost) = &settling.cost {
            self.note_link(tenant, cost);
        }
        Ok(Some(Settled {
            entry,
            thresholds,
            answer,
        }))
    }

    /// What is told of a reservation that came to its end before, where nothing of the outcome is left to charge. Its
    /// entry is that of an outcome that settles nothing.
    fn ended_before(&self, tenant: TenantId, settling: &Settling, now: Timestamp) -> Option<Settled> {
        let reservation = self.reservations.get(&(tenant, settling.reservation?))?;
        let budgets = self.with_ids(tenant, &reservation.budgets).into_iter();
        let answer = Answer {
            reservation: Some(ReservationShown::of(reservation, now)),
            balances: budgets.map(Balance::of).collect(),
        };
        Some(Settled {
            entry: settling.outcome.entry(),
            thresholds: Vec::new(),
            answer: shown::json(&answer),
        })
    }

    /// The reservation as it is afterwards, if there was one; written down if it was active.
    fn end(&mut self, tenant: TenantId, settling: &Settling, due: &DueCharge) -> Option<model::Reservation> {
        let reservation = self.reservations.get(&(tenant, settling.reservation?))?;
        if reservation.status != ReservationStatus::Active {
            return Some(reservation.clone());
        }
        let outcome = &settling.outcome;
        let after = if outcome.status.was_executed() || outcome.actual.is_some() {
            reservation.commit(due.charge)
        } else {
            reservation.release()
        };
        self.put_reservation(tenant, after.clone());
        Some(after)
    }

    /// What has to be charged, or given back.
    fn due(&self, tenant: TenantId, settling: &Settling) -> Result<Option<DueCharge>, BudgetConflict> {
        let actual = settling.outcome.actual.as_ref();
        let was_executed = settling.outcome.status.was_executed();
        let Some(id) = settling.reservation else {
            let cost = settling.cost.as_ref();
            return Ok(cost.and_then(|cost| self.due_unreserved(tenant, cost)));
        };
        // It goes with its decision when that is erased, which may have happened since the decision was read.
        let reservation = self.reservations.get(&(tenant, id));
        let reservation = reservation.ok_or(BudgetConflict::NoReservation)?;
        if let Some((unit, _)) = actual
            && *unit != reservation.unit
        {
            return Err(BudgetConflict::OtherUnit(reservation.unit.clone()));
        }
        // Whoever did it and does not say what it cost is charged what it was to cost.
        let spent = match actual {
            Some((_, actual)) => *actual,
            None if was_executed => reservation.amount,
            None => Amount::ZERO,
        };
        let held = match (reservation.status, actual) {
            (ReservationStatus::Active, _) => Some(reservation.amount),
            (ReservationStatus::Committed, _) => {
                let before = reservation.charge.unwrap_or_default().actual;
                return match actual {
                    Some((_, actual)) if *actual != before => Err(BudgetConflict::OtherAmount(before)),
                    _ => Ok(None),
                };
            }
            // It was given back, and nothing was done with it.
            (ReservationStatus::Released, None) if !was_executed => return Ok(None),
            (ReservationStatus::Released | ReservationStatus::Expired, _) => None,
        };
        let ids = reservation.budgets.clone();
        let charge = Charge::reported(self.with_ids(tenant, &ids), held, spent);
        let unit = reservation.unit.clone();
        Ok(Some(DueCharge {
            unit,
            ids,
            held: held.unwrap_or_default(),
            charge,
        }))
    }

    fn due_unreserved(&self, tenant: TenantId, cost: &Cost) -> Option<DueCharge> {
        let budgets = self.budgets_of(tenant, cost);
        if budgets.is_empty() {
            return None;
        }
        Some(DueCharge {
            unit: cost.unit.clone(),
            ids: budgets.iter().map(|budget| budget.id).collect(),
            held: Amount::ZERO,
            charge: Charge::reported(budgets, None, cost.amount),
        })
    }
}
