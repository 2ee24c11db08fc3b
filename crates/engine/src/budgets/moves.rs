//! Everything that moves a budget beside decisions: people make, fund and close budgets, programs reserve and settle, time ends
//! what nobody settled.

use super::KnownBudgets;
use super::cost::{Cost, Hold, Lacking, Where};
use super::entries;
use super::shown::{self, BudgetShown, ReservationShown, UsageShown};
use crate::apply::Conflict;
use crate::entry_kind::EntryKind;
use crate::proposal::ProposedEntry;
use bytes::Bytes;
use canon::Digest;
use model::budget::charge::Refused;
use model::budget::{BudgetError, SCOPES_MAX};
use model::{
    AgentId, Amount, Budget, BudgetId, Charge, Reservation, ReservationId, ReservationStatus, Scope,
    TenantId, Timestamp, Unit,
};
use serde_json::{Value, json};
use store::{ReplyKey, ReplyRow};

/// A move of budgets, and what its caller calls the request.
#[derive(Debug)]
pub struct BudgetMove {
    /// How.
    pub what: Move,
    /// What the caller calls the request, if anything.
    pub repeat: Option<Repeat>,
}

/// What makes a request the same one again.
#[derive(Debug, Clone)]
pub struct Repeat {
    /// Who calls it what.
    pub key: ReplyKey,
    /// The digest of what is asked of which endpoint.
    pub request: Digest,
}

/// How budgets move.
#[derive(Debug)]
pub enum Move {
    /// A budget is made.
    Create {
        /// The budget.
        budget: Box<Budget>,
        /// By whom.
        by: Value,
    },
    /// A budget changes.
    Change {
        /// Which.
        id: BudgetId,
        /// How.
        change: BudgetChange,
        /// Why, if somebody says.
        reason: Option<String>,
        /// By whom.
        by: Value,
    },
    /// Something is held.
    Reserve(Hold),
    /// What is held is settled, or held longer.
    Settle {
        /// Which.
        id: ReservationId,
        /// By the agent whose it has to be.
        agent: AgentId,
        /// How.
        step: SettleStep,
    },
    /// Something was used that had not been reserved.
    Use(Cost),
    /// The time of a reservation is over.
    Expire(ReservationId),
}

impl Move {
    /// Whether an agent makes it, and not people or a job of the gateway.
    pub const fn is_of_an_agent(&self) -> bool {
        match self {
            Self::Reserve(_) | Self::Settle { .. } | Self::Use(_) => true,
            Self::Create { .. } | Self::Change { .. } | Self::Expire(_) => false,
        }
    }

    /// How many budgets it moves at most, where an agent makes it. How much people and jobs do at once has bounds of
    /// its own.
    pub fn budgets_max(&self) -> usize {
        match self {
            Self::Reserve(Hold { cost, .. }) | Self::Use(cost) => cost.subject.scopes_max(),
            // In how many it is held is known when it is settled.
            Self::Settle { .. } => SCOPES_MAX,
            Self::Create { .. } | Self::Change { .. } | Self::Expire(_) => 0,
        }
    }
}

/// How people change a budget.
#[derive(Debug, Clone, Copy)]
pub enum BudgetChange {
    /// More is put in.
    Fund(Amount),
    /// Some is taken out.
    Debit(Amount),
    /// It begins anew, perhaps with another amount.
    Reset(Option<Amount>),
    /// Nothing is reserved in it.
    Freeze,
    /// It is in use again.
    Unfreeze,
    /// It is out of use for good.
    Close,
}

/// How a reservation is settled.
#[derive(Debug, Clone)]
pub enum SettleStep {
    /// This much was spent.
    Commit(Unit, Amount),
    /// Nothing was spent.
    Release,
    /// It is held for so many milliseconds more, from now on.
    Extend(u64),
}

/// Why nothing moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetConflict {
    /// There is no such budget.
    NoBudget,
    /// There is no such reservation, or it is another agent's.
    NoReservation,
    /// There is an open one for this scope and unit.
    ScopeTaken(BudgetId, Scope),
    /// Budgets do not have it.
    Lacking(Lacking),
    /// The budget does not change like this.
    Budget(Box<Where>, BudgetError),
    /// It comes too late.
    Expired(Timestamp),
    /// Something else has become of the reservation.
    Settled(ReservationStatus),
    /// It was committed with another amount.
    OtherAmount(Amount),
    /// The amount is in another unit than the reservation.
    OtherUnit(Unit),
    /// The time of the reservation is not over.
    NotOverdue,
}

/// What came of a move.
pub(crate) enum Moved {
    /// This entry tells of it.
    Now {
        /// What happened.
        entry: ProposedEntry,
        /// Which thresholds were reached by it.
        thresholds: Vec<ProposedEntry>,
        /// What the caller gets.
        answer: Bytes,
    },
    /// It is so already, or was asked for before: this is the answer.
    Before(Bytes),
}

impl Moved {
    /// Now, and no threshold was reached.
    const fn quietly(entry: ProposedEntry, answer: Bytes) -> Self {
        Self::Now {
            entry,
            thresholds: Vec::new(),
            answer,
        }
    }
}

impl KnownBudgets {
    /// Makes a move, or none: also where the key of its request stands for another one.
    pub(crate) fn make_move(
        &mut self,
        tenant: TenantId,
        change: &BudgetMove,
        now: Timestamp,
    ) -> Result<Moved, Conflict> {
        if let Some(repeat) = &change.repeat
            && let Some(reply) = self.replies.get(&repeat.key)
        {
            return if reply.request == repeat.request {
                Ok(Moved::Before(reply.bytes.clone()))
            } else {
                Err(Conflict::RequestReused)
            };
        }
        if let Move::Reserve(Hold { cost, .. }) | Move::Use(cost) = &change.what
            && !self.reckoned_with(tenant, cost)
        {
            return Err(Conflict::RunMoved);
        }
        let moved = self.make_unrepeated(tenant, &change.what, now);
        // Also where nothing had to be done: done now, it would be another thing than it was then.
        if let (Ok(Moved::Now { answer, .. } | Moved::Before(answer)), Some(repeat)) =
            (&moved, &change.repeat)
        {
            let reply = ReplyRow {
                key: repeat.key.clone(),
                request: repeat.request,
                bytes: answer.clone(),
                at: now,
            };
            self.replies.insert(repeat.key.clone(), reply.clone());
            self.new_replies.push(reply);
        }
        moved.map_err(|conflict| Conflict::Budget(Box::new(conflict)))
    }

    /// Makes a move whose request was not answered before.
    fn make_unrepeated(
        &mut self,
        tenant: TenantId,
        what: &Move,
        now: Timestamp,
    ) -> Result<Moved, BudgetConflict> {
        match what {
            Move::Create { budget, by } => self.create(tenant, budget, by),
            Move::Change {
                id,
                change,
                reason,
                by,
            } => self.change(tenant, *id, *change, (reason.as_deref(), by)),
            Move::Reserve(hold) => self.reserve(tenant, hold, now),
            Move::Settle { id, agent, step } => self.settle(tenant, (*id, *agent), step, now),
            Move::Use(cost) => self.use_unreserved(tenant, cost),
            // It has happened already, when what is known was brought to now.
            Move::Expire(id) => match self.reservations.get(&(tenant, *id)) {
                Some(reservation) if reservation.status == ReservationStatus::Expired => {
                    Ok(Moved::Before(Bytes::new()))
                }
                _ => Err(BudgetConflict::NotOverdue),
            },
        }
    }

    fn create(&mut self, tenant: TenantId, budget: &Budget, by: &Value) -> Result<Moved, BudgetConflict> {
        let place = (tenant, budget.scope.clone(), budget.unit.clone());
        if let Some(id) = self.open.get(&place) {
            return Err(BudgetConflict::ScopeTaken(*id, budget.scope.clone()));
        }
        self.put(tenant, std::slice::from_ref(budget));
        let body = json!({"budget": budget, "by": by});
        let entry = told_by_people(EntryKind::BudgetCreated, &body);
        Ok(Moved::quietly(entry, shown::json(&BudgetShown::of(budget))))
    }

    fn change(
        &mut self,
        tenant: TenantId,
        id: BudgetId,
        change: BudgetChange,
        (reason, by): (Option<&str>, &Value),
    ) -> Result<Moved, BudgetConflict> {
        let before = self.budgets.get(&(tenant, id)).ok_or(BudgetConflict::NoBudget)?;
        let (kind, amount, after) = match change {
            BudgetChange::Fund(amount) => (
                EntryKind::BudgetFunded,
                Some(amount),
                before.fund(amount).map(Some),
            ),
            BudgetChange::Debit(amount) => (
                EntryKind::BudgetDebited,
                Some(amount),
                before.debit(amount).map(Some),
            ),
            BudgetChange::Reset(amount) => (EntryKind::BudgetReset, amount, before.reset(amount).map(Some)),
            BudgetChange::Freeze => (EntryKind::BudgetFrozen, None, before.freeze()),
            BudgetChange::Unfreeze => (EntryKind::BudgetUnfrozen, None, before.unfreeze()),
            BudgetChange::Close => (EntryKind::BudgetClosed, None, Ok(before.close())),
        };
        let after = after.map_err(|error| {
            let requested = match change {
                BudgetChange::Reset(None) => before.allotment,
                _ => amount.unwrap_or_default(),
            };
            BudgetConflict::Budget(Box::new(Where::of(before, requested)), error)
        })?;
        let Some(after) = after else {
            return Ok(Moved::Before(shown::json(&BudgetShown::of(before))));
        };
        let mut body = json!({"budget": after, "by": by});
        if let Some(amount) = amount {
            body["amount"] = json!(amount);
        }
        if let Some(reason) = reason {
            body["reason"] = json!(reason);
        }
        // Thresholds tell of spending; a budget that shrinks until it is used up is somebody's will.
        self.moved_budgets.insert((tenant, id));
        let answer = shown::json(&BudgetShown::of(&after));
        self.learn(tenant, after);
        Ok(Moved::quietly(told_by_people(kind, &body), answer))
    }

    fn reserve(&mut self, tenant: TenantId, hold: &Hold, now: Timestamp) -> Result<Moved, BudgetConflict> {
        let reserved = self.hold(tenant, hold, now).map_err(BudgetConflict::Lacking)?;
        let Some((reservation, budgets)) = reserved else {
            let unit = hold.cost.unit.clone();
            return Err(BudgetConflict::Lacking(Lacking::NotFound { unit }));
        };
        let (kind, parent) = (EntryKind::ReservationCreated, hold.cost.subject.parent());
        let entry = entries::reservation_moved(kind, &reservation, parent, &budgets);
        let shown = ReservationShown::of(&reservation, now).with(&budgets);
        Ok(Moved::quietly(entry, shown::json(&shown)))
    }

    fn settle(
        &mut self,
        tenant: TenantId,
        (id, agent): (ReservationId, AgentId),
        step: &SettleStep,
        now: Timestamp,
    ) -> Result<Moved, BudgetConflict> {
        let reservation = self.reservations.get(&(tenant, id));
        let reservation = reservation.filter(|reservation| reservation.agent == agent);
        let reservation = reservation.ok_or(BudgetConflict::NoReservation)?.clone();
        if let SettleStep::Commit(unit, _) = step
            && *unit != reservation.unit
        {
            return Err(BudgetConflict::OtherUnit(reservation.unit));
        }
        if reservation.status != ReservationStatus::Active {
            return self.settle_again(tenant, &reservation, step, now);
        }
        let (kind, after, charge) = match step {
            SettleStep::Commit(_, actual) => {
                let charge = self.charge(tenant, &reservation.budgets, Some(&reservation), *actual)?;
                (
                    EntryKind::ReservationCommitted,
                    reservation.commit(charge),
                    charge,
                )
            }
            SettleStep::Release => (
                EntryKind::ReservationReleased,
                reservation.release(),
                Charge::NOTHING,
            ),
            SettleStep::Extend(ttl_ms) => {
                let ttl_ms = i64::try_from(*ttl_ms).unwrap_or(i64::MAX);
                let after = reservation.until(now.plus_millis(ttl_ms));
                return Ok(self.extend(tenant, after, now));
            }
        };
        let budgets = self.settled(tenant, &reservation.budgets, reservation.amount, charge);
        let entry = entries::reservation_moved(kind, &after, None, &budgets);
        let thresholds = self.put(tenant, &budgets);
        let answer = shown::json(&ReservationShown::of(&after, now).with(&budgets));
        self.put_reservation(tenant, after);
        Ok(Moved::Now {
            entry,
            thresholds,
            answer,
        })
    }

    fn extend(&mut self, tenant: TenantId, after: Reservation, now: Timestamp) -> Moved {
        let entry = entries::reservation_moved(EntryKind::ReservationExtended, &after, None, &[]);
        let budgets = self.with_ids(tenant, &after.budgets);
        let answer = shown::json(&ReservationShown::of(&after, now).with(budgets));
        self.put_reservation(tenant, after);
        Moved::quietly(entry, answer)
    }

    /// What has come to an end never moves again: the same once more is no news, anything else is refused.
    fn settle_again(
        &self,
        tenant: TenantId,
        reservation: &Reservation,
        step: &SettleStep,
        now: Timestamp,
    ) -> Result<Moved, BudgetConflict> {
        match (reservation.status, step) {
            (ReservationStatus::Expired, _) => return Err(BudgetConflict::Expired(reservation.expires_at)),
            (ReservationStatus::Committed, SettleStep::Commit(_, actual)) => {
                let before = reservation.charge.unwrap_or_default().actual;
                if before != *actual {
                    return Err(BudgetConflict::OtherAmount(before));
                }
            }
            (ReservationStatus::Released, SettleStep::Release) => {}
            (status, _) => return Err(BudgetConflict::Settled(status)),
        }
        let budgets = self.with_ids(tenant, &reservation.budgets);
        let shown = ReservationShown::of(reservation, now).with(budgets);
        Ok(Moved::Before(shown::json(&shown)))
    }

    fn use_unreserved(&mut self, tenant: TenantId, cost: &Cost) -> Result<Moved, BudgetConflict> {
        let ids: Vec<_> = self
            .budgets_of(tenant, cost)
            .iter()
            .map(|budget| budget.id)
            .collect();
        if ids.is_empty() {
            let unit = cost.unit.clone();
            return Err(BudgetConflict::Lacking(Lacking::NotFound { unit }));
        }
        let charge = self.charge(tenant, &ids, None, cost.amount)?;
        let budgets = self.settled(tenant, &ids, Amount::ZERO, charge);
        let thresholds = self.put(tenant, &budgets);
        self.note_link(tenant, cost);
        Ok(Moved::Now {
            entry: entries::used(cost, charge, &budgets),
            thresholds,
            answer: shown::json(&UsageShown::of(&cost.unit, charge, &budgets)),
        })
    }

    /// What these budgets make of an amount that was really spent; `held` is none if nothing was reserved for it.
    fn charge(
        &self,
        tenant: TenantId,
        ids: &[BudgetId],
        held: Option<&Reservation>,
        actual: Amount,
    ) -> Result<Charge, BudgetConflict> {
        let amount = held.map(|reservation| reservation.amount);
        let charge = Charge::of(self.with_ids(tenant, ids), amount, actual);
        charge.map_err(|Refused(budget)| {
            let beyond = actual.minus_or_zero(amount.unwrap_or_default());
            let place = Box::new(Where::of(budget, beyond));
            BudgetConflict::Lacking(match held {
                Some(reservation) => Lacking::MoreThanHeld {
                    place,
                    held: reservation.amount,
                    decision_id: reservation.decision_id,
                },
                None => Lacking::Exceeded(place),
            })
        })
    }
}

/// An entry about what people did to a budget.
fn told_by_people(kind: EntryKind, body: &Value) -> ProposedEntry {
    let body = canon::of(body).expect("amounts are exact in JSON, and everything else is text");
    ProposedEntry::new(kind, body)
}
