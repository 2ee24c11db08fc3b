//! Bodies on their way out: collected, and erased some hundreds in a commit.

use super::choose::Choice;
use crate::changes::{self, By};
use crate::gateway::{self, Gateway};
use crate::http::Refusal;
use crate::recording::ATTEMPTS_MAX;
use crate::search::job::{after, token};
use crate::sequencer::CommitStatus;
use canon::Digest;
use engine::proposal::{ErasedBody, Intent};
use engine::search::block_of;
use engine::{Conflict, EntryKind, Proposal, Snapshot};
use model::{AgentId, Approval, ApprovalId, DecisionId, Name, ReservationId, ReservationStatus, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use store::{BlockClaim, RequestKey, StoreError, StoredEntry};

/// How long blocks of the search index are held. Many times what a commit takes: a gateway that stops in the middle
/// gives them back like this.
const HOLD: Duration = Duration::from_mins(2);

/// The members of a body by which the rest of what it tells is found.
#[derive(Default, Deserialize)]
struct References {
    agent: Option<AgentId>,
    request_id: Option<Name>,
    decision_id: Option<DecisionId>,
    #[serde(default)]
    approval: Asked,
    #[serde(default)]
    reservation: Held,
    #[serde(default)]
    settled: Settled,
}

#[derive(Default, Deserialize)]
struct Asked {
    id: Option<ApprovalId>,
}

#[derive(Default, Deserialize)]
struct Held {
    id: Option<ReservationId>,
}

/// What an outcome has settled.
#[derive(Default, Deserialize)]
struct Settled {
    reservation: Option<ReservationId>,
}

/// Bodies on their way out.
pub(super) struct Taking<'g> {
    gateway: &'g Gateway,
    pub(super) tenant: TenantId,
    by: By<'g>,
    choice: &'g Choice,
    /// By `seq`.
    bodies: BTreeMap<u64, ErasedBody>,
    /// The decisions among them.
    decisions: Vec<DecisionId>,
    /// Decisions whose outcome is among the bodies, or gone.
    reported: BTreeSet<DecisionId>,
    /// How many were erased.
    pub(super) erased: u64,
    /// How many were left, because people are still asked about them or something is held for them.
    pub(super) waiting: u64,
    /// The first of those.
    pub(super) first_waiting: Option<u64>,
    /// How far it has come by what it has erased; none if it has erased nothing.
    pub(super) reached: Option<Reached>,
}

/// How far everything is in the ledger that was chosen.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    /// The entry to go on with.
    pub(super) next: u64,
    /// How many were left before it.
    pub(super) waiting: u64,
}

impl<'g> Taking<'g> {
    pub(super) const fn new(gateway: &'g Gateway, tenant: TenantId, by: By<'g>, choice: &'g Choice) -> Self {
        Self {
            gateway,
            tenant,
            by,
            choice,
            bodies: BTreeMap::new(),
            decisions: Vec::new(),
            reported: BTreeSet::new(),
            erased: 0,
            waiting: 0,
            first_waiting: None,
            reached: None,
        }
    }

    /// Whose turn it is when it reads the ledger. What nobody has called for has one of its own: behind a crowd of this
    /// tenant, what is old in the ledgers of all others would wait, too.
    pub(super) const fn turn(&self) -> TenantId {
        match self.by {
            By::Setting(_) => TenantId::SYSTEM,
            _ => self.tenant,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bodies.len()
    }

    /// Adds an entry, unless people are still asked about it: what they approve has to be in the ledger. Or something
    /// is still held for it, which is settled by its decision.
    pub(super) async fn add(&mut self, entry: StoredEntry) -> Result<(), Refusal> {
        let is_decision = entry.kind == EntryKind::Decision.as_str();
        let references: References = serde_json::from_str(&entry.body).unwrap_or_default();
        let decision = references.decision_id.filter(|_| is_decision);
        let approval = self.asked(references.approval.id, decision).await?;
        let is_open = approval.as_ref().is_some_and(|asked| asked.status.is_open());
        let reservation = references.reservation.id.or(references.settled.reservation);
        if is_open || self.is_held(reservation).await? {
            self.waiting += 1;
            self.first_waiting.get_or_insert(entry.seq);
            return Ok(());
        }
        self.decisions.extend(decision);
        if entry.kind == EntryKind::OutcomeReported.as_str() {
            self.reported.extend(references.decision_id);
        }
        let body = ErasedBody {
            seq: entry.seq,
            body: Digest::of(entry.body.as_bytes()),
            request: references
                .agent
                .filter(|_| is_decision)
                .zip(references.request_id),
            // As long as its decision is there, that an outcome was reported is not forgotten, nor what was held: there
            // is one for each.
            outcome: decision,
            approval: approval.map(|approval| approval.id),
            reservation: references.reservation.id.filter(|_| is_decision),
        };
        self.bodies.insert(entry.seq, body);
        Ok(())
    }

    /// What people were asked by this decision. One that has used an approval names it too.
    async fn asked(
        &self,
        approval: Option<ApprovalId>,
        decision: Option<DecisionId>,
    ) -> Result<Option<Approval>, Refusal> {
        let (Some(approval), Some(decision)) = (approval, decision) else {
            return Ok(None);
        };
        let asked = self.gateway.store.approval(self.tenant, approval).await?;
        Ok(asked.filter(|asked| asked.request.decision_id == decision))
    }

    /// Whether it is still held, as far as that was written down.
    async fn is_held(&self, reservation: Option<ReservationId>) -> Result<bool, Refusal> {
        let Some(id) = reservation else {
            return Ok(false);
        };
        let held = self.gateway.store.reservation(self.tenant, id).await?;
        Ok(held.is_some_and(|held| held.status == ReservationStatus::Active))
    }

    /// Erases what was collected of the entries before `next`, and what agents said became of it.
    pub(super) async fn commit(&mut self, next: u64) -> Result<(), Refusal> {
        self.add_outcomes().await?;
        if self.bodies.is_empty() {
            return Ok(());
        }
        let (mut blocks, mut hold) = (BTreeSet::new(), None);
        let outcome = self.record(&mut blocks, &mut hold).await;
        let Some(hold) = hold else {
            return outcome;
        };
        // Also if nobody knows whether it was erased: what is put into the index now is read now. Another erasure may
        // have taken a block over and let it go before this one was recorded, and then it was put again with what is
        // erased only now: it is taken once more.
        let hold = self.hold(&blocks).await.unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn Error,
                "what was just erased may be in the search index until its block is made again"
            );
            hold
        });
        self.release(&blocks, hold).await;
        outcome?;
        if !self.bodies.is_empty() {
            self.erased += self.bodies.len() as u64;
            self.reached = Some(Reached {
                next,
                waiting: self.waiting,
            });
        }
        self.bodies.clear();
        self.decisions.clear();
        self.reported.clear();
        Ok(())
    }

    /// What became of a decision tells of it, and names it by its id. What is told meanwhile is found when the erasure
    /// is recorded, and added then.
    async fn add_outcomes(&mut self) -> Result<(), Refusal> {
        if self.decisions.is_empty() {
            return Ok(());
        }
        let (store, tenant) = (&self.gateway.store, self.tenant);
        // In the line in which the decisions were read: there may be as many again.
        let _permit = self.gateway.ledger_chunks.acquire_for_part(self.turn()).await;
        for seq in store.outcomes_of(tenant, &self.decisions).await? {
            if self.bodies.contains_key(&seq) {
                continue;
            }
            let entries = store.entries(tenant, seq, 1).await?;
            let entry = entries
                .into_iter()
                .find(|entry| entry.seq == seq && entry.erased.is_none());
            if let Some(entry) = entry.filter(|entry| self.is_outcome(entry)) {
                self.add(entry).await?;
            }
        }
        Ok(())
    }

    /// Whether an entry tells what became of one of the decisions. What led to it is a row beside the ledger, which
    /// proves nothing.
    fn is_outcome(&self, entry: &StoredEntry) -> bool {
        let references: References = serde_json::from_str(&entry.body).unwrap_or_default();
        let is_ours = |decision| self.decisions.contains(&decision);
        entry.kind == EntryKind::OutcomeReported.as_str() && references.decision_id.is_some_and(is_ours)
    }

    /// Takes blocks out of the search index, for good even if the machine loses power, and keeps everybody from putting
    /// them there until they are released: what was read before the erasure is not put after it.
    async fn hold(&self, blocks: &BTreeSet<u64>) -> Result<i64, StoreError> {
        let now = self.gateway.clock.now();
        let claim = BlockClaim {
            token: token(self.gateway),
            now,
            until: after(now, HOLD),
            by_force: true,
        };
        self.gateway
            .store
            .take_blocks(self.tenant, blocks, &claim)
            .await?;
        Ok(claim.token)
    }

    async fn release(&self, blocks: &BTreeSet<u64>, hold: i64) {
        for block in blocks {
            let released = self.gateway.store.release_block(self.tenant, *block, hold).await;
            if let Err(error) = released {
                tracing::warn!(
                    error = &error as &dyn Error,
                    block,
                    "a block of the search index is free again only in some minutes"
                );
            }
        }
        self.gateway.indexing.note_taken(self.tenant, blocks);
    }

    /// Whether it may still be erased, by the directories as they are.
    fn check(&self) -> Result<Arc<Snapshot>, Refusal> {
        let snapshot = self.gateway.current_for(self.by)?;
        self.gateway.check_has_all(self.tenant)?;
        Ok(snapshot)
    }

    /// Erases what somebody else has not erased meanwhile: only that is left. Before that it takes the blocks out of
    /// the search index: these, and `hold` is the token by which they are held since then.
    async fn record(&mut self, blocks: &mut BTreeSet<u64>, hold: &mut Option<i64>) -> Result<(), Refusal> {
        // Only how often the directory moves has no end of its own: each body is found erased once, and of each decision
        // one outcome comes.
        let mut moved = 0;
        while moved < ATTEMPTS_MAX {
            // Taken before anything is looked at that may change while others are before this, and before the blocks
            // are held: how long those others take has no bound, and a hold has one.
            let alone = self.gateway.erasing.lock().await;
            // Before anything is taken out of the index for what would be refused.
            self.check()?;
            blocks.extend(self.bodies.keys().map(|seq| block_of(*seq)));
            *hold = Some(self.hold(blocks).await?);
            let snapshot = self.check()?;
            let tenant = gateway::tenant(&snapshot, self.tenant)?;
            let facts = json!({"chosen_by": self.choice.told(), "seqs": self.ranges()});
            let erasure = Intent::Erasure {
                entry: changes::entry(EntryKind::BodiesErased, self.by, facts)?,
                bodies: self.bodies.values().cloned().collect(),
                reported: self.reported.clone(),
            };
            let proposal = Proposal::of(tenant, erasure);
            let recorded = self.gateway.sequencer.record_without_following(proposal).await;
            // At once: what is still done with the index may take long. Also if nobody knows whether it was erased:
            // erasing it again finds nothing to erase then. What is still there is looked up.
            self.forget();
            let recorded = recorded?;
            drop(alone);
            self.gateway.sequencer.follow(&recorded).await?;
            match recorded {
                CommitStatus::Recorded(_) => return Ok(()),
                CommitStatus::Conflict(Conflict::DirectoryMoved { .. }) => moved += 1,
                // Another gateway may have the same to do.
                CommitStatus::Conflict(Conflict::Erased(erased)) => {
                    self.bodies.retain(|seq, _| !erased.contains(seq));
                    if self.bodies.is_empty() {
                        return Ok(());
                    }
                }
                CommitStatus::Conflict(Conflict::OutcomesUnknown(decisions)) => {
                    self.add_outcomes().await?;
                    // One that was erased before is not added, and there is none behind it.
                    self.reported.extend(decisions);
                }
                CommitStatus::Repeated(_) | CommitStatus::Conflict(_) => return Err(changes::unexpected()),
            }
        }
        Err(Refusal::contended())
    }

    /// The entries as the ledger names them: the first and the last of each row of them.
    fn ranges(&self) -> Value {
        let mut ranges: Vec<[u64; 2]> = Vec::new();
        for seq in self.bodies.keys() {
            match ranges.last_mut() {
                Some([_, last]) if *last + 1 == *seq => *last = *seq,
                _ => ranges.push([*seq, *seq]),
            }
        }
        json!(ranges)
    }

    /// Answers that were erased are not given again from memory.
    fn forget(&self) {
        let keys = self.bodies.values().filter_map(|body| {
            let (agent, request_id) = body.request.clone()?;
            Some(RequestKey {
                tenant: self.tenant,
                agent,
                request_id,
            })
        });
        let is_old = matches!(self.choice, Choice::OlderThan(_));
        for key in keys {
            if is_old {
                self.gateway.repeats.forget_old(&key);
            } else {
                self.gateway.repeats.forget(&key);
            }
        }
    }
}
