//! A batch: all that one commit writes.

use crate::BudgetRows;
use canon::{Canonical, Digest};
use ledger::merkle::Completed;
use ledger::{Head, Tip};
use model::{
    AgentId, Approval, ApprovalId, Counter, DecisionId, Name, ReasonCode, ReservationId, RunTaint, TenantId,
    Timestamp, Write,
};

/// Everything that one commit writes, all or none.
#[derive(Debug, Default)]
pub struct Batch {
    /// Each tenant that moves, once.
    pub advances: Vec<Advance>,
    /// The new entries, in order; those of one tenant follow its head without a gap.
    pub entries: Vec<EntryRow>,
    /// What to search decisions by, and their receipts. Each has an entry above, and they stand in the order of those.
    pub decisions: Vec<DecisionRow>,
    /// Outcomes that were reported. Each has an entry above.
    pub outcomes: Vec<OutcomeRow>,
    /// Changes of directories, in order.
    pub writes: Vec<(TenantId, Write)>,
    /// Runs as they are from now on, in order.
    pub runs: Vec<(TenantId, RunTaint)>,
    /// What was counted of quotas, in order: of each the last one holds.
    pub counters: Vec<(TenantId, Counter)>,
    /// Approvals as they are from now on, in order.
    pub approvals: Vec<(TenantId, Approval)>,
    /// Budgets and what goes with them, as they are from now on.
    pub budgets: BudgetRows,
    /// Contents that entries name by their digest. One that is there already is left as it is.
    pub contents: Vec<ContentRow>,
    /// Bodies that are erased. Each is told of by an entry above.
    pub erasures: Vec<ErasureRow>,
}

/// How far one tenant moves.
#[derive(Debug, Clone)]
pub struct Advance {
    /// Which tenant.
    pub tenant: TenantId,
    /// Where its chain must end now; [`Head::GENESIS`] if the tenant is new.
    pub from: Head,
    /// Where its ledger ends afterwards, chain and tree.
    pub to: Tip,
    /// The revision of its directory afterwards.
    pub revision: u64,
}

/// One entry of a chain.
#[derive(Debug)]
pub struct EntryRow {
    /// Whose chain.
    pub tenant: TenantId,
    /// Its place in the chain, from 1.
    pub seq: u64,
    /// What kind of thing happened.
    pub kind: &'static str,
    /// When it was recorded.
    pub at: Timestamp,
    /// The hash of the entry before.
    pub prev: Digest,
    /// The hash of this entry.
    pub hash: Digest,
    /// What happened.
    pub body: Canonical,
    /// SHA-256 of the body, as the header has it.
    pub body_digest: Digest,
    /// What the entry adds to the tree: the hashes of the subtrees that it completes.
    pub nodes: Completed,
}

/// A decision as it is searched for, and its receipt.
#[derive(Debug)]
pub struct DecisionRow {
    /// Its tenant.
    pub tenant: TenantId,
    /// The `seq` of its entry.
    pub seq: u64,
    /// Its id.
    pub id: DecisionId,
    /// Who asked.
    pub agent: AgentId,
    /// For which tool.
    pub tool: Name,
    /// For which action of it.
    pub action: Name,
    /// What was decided, and why.
    pub reason: ReasonCode,
    /// The run it was part of.
    pub run_id: Option<Name>,
    /// What makes the ask the same ask again; absent where the caller gave no request id.
    pub request: Option<(Name, Digest)>,
    /// The exact bytes of the answer.
    pub receipt: bytes::Bytes,
}

/// What an agent said became of a decision.
#[derive(Debug, Clone, Copy)]
pub struct OutcomeRow {
    /// The tenant.
    pub tenant: TenantId,
    /// The decision.
    pub decision: DecisionId,
    /// The `seq` of the entry that tells the outcome.
    pub seq: u64,
}

/// Bytes that entries name by their digest. Many entries name the same, and it is there once a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentRow {
    /// The tenant.
    pub tenant: TenantId,
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// The bytes.
    pub bytes: bytes::Bytes,
}

/// A body that is erased, with everything that tells what it told: the row of its decision and its receipt, and what is
/// named here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureRow {
    /// The tenant.
    pub tenant: TenantId,
    /// Whose body: an entry before [`by`](Self::by).
    pub seq: u64,
    /// SHA-256 of the body, which stays in its place.
    pub body: Digest,
    /// The entry of this batch that tells of it.
    pub by: u64,
    /// What the agent called the ask. The id can be used again.
    pub request: Option<(AgentId, Name)>,
    /// The decision that the entry told. What led to its outcome leads to [`by`](Self::by) from now on: there can be
    /// none behind that.
    pub outcome: Option<DecisionId>,
    /// What people were asked.
    pub approval: Option<ApprovalId>,
    /// What was held for it. While it is held it is left as it is, because a budget holds it.
    pub reservation: Option<ReservationId>,
}

/// What one agent calls one of its asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// The agent's own id for the ask.
    pub request_id: Name,
}

/// A request that was recorded before.
#[derive(Debug, Clone)]
pub struct FoundRequest {
    /// Which.
    pub key: RequestKey,
    /// The digest of the ask that was recorded under it.
    pub ask: Digest,
    /// What was decided.
    pub reason: ReasonCode,
    /// The exact bytes that were answered.
    pub receipt: bytes::Bytes,
}

/// Why a batch does not hang together. No backend writes such a batch: it would be a fork, or a row without its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedBatch {
    /// Two advances for one tenant.
    #[error("{0} advances twice in one batch")]
    AdvancesTwice(TenantId),
    /// A row of a tenant that does not advance, and no answer.
    #[error("a row belongs to {0}, which the batch does not advance")]
    DoesNotAdvance(TenantId),
    /// An entry that is not the next one of its chain.
    #[error("entry {seq} of {tenant} does not follow the one before")]
    Gap {
        /// Whose.
        tenant: TenantId,
        /// Which.
        seq: u64,
    },
    /// The entries of a tenant do not end where its advance says.
    #[error("the entries of {0} do not end at its new head")]
    EndsElsewhere(TenantId),
    /// More decisions than entries, so that two of them share one.
    #[error("the batch has more decisions than entries")]
    SharedEntry,
    /// An erasure that no entry of this batch tells of, or of an entry that does not come before it.
    #[error("the body of entry {seq} of {tenant} is erased without an entry that tells of it")]
    ErasedUntold {
        /// Whose.
        tenant: TenantId,
        /// Which entry.
        seq: u64,
    },
    /// A decision or an outcome whose `seq` is not of this batch, or a decision that does not stand in the order of the entries.
    #[error("a row of {tenant} belongs to entry {seq}, which is not in the batch")]
    WithoutEntry {
        /// Whose.
        tenant: TenantId,
        /// Which entry.
        seq: u64,
    },
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.budgets.replies.is_empty()
    }

    /// Whether the batch hangs together: the entries of each tenant lead from the head it advances from to the one it
    /// advances to, at least one of them, and every other row has its entry among them, but for answers to what was so
    /// already. Every backend checks before it writes.
    pub fn check(&self) -> Result<(), MalformedBatch> {
        let mut heads: Vec<(&Advance, Head)> = Vec::with_capacity(self.advances.len());
        for advance in &self.advances {
            if heads.iter().any(|(other, _)| other.tenant == advance.tenant) {
                return Err(MalformedBatch::AdvancesTwice(advance.tenant));
            }
            heads.push((advance, advance.from));
        }
        for entry in &self.entries {
            let found = heads
                .iter_mut()
                .find(|(advance, _)| advance.tenant == entry.tenant);
            let (_, head) = found.ok_or(MalformedBatch::DoesNotAdvance(entry.tenant))?;
            if head.seq.checked_add(1) != Some(entry.seq) || head.hash != entry.prev {
                return Err(MalformedBatch::Gap {
                    tenant: entry.tenant,
                    seq: entry.seq,
                });
            }
            *head = Head {
                seq: entry.seq,
                hash: entry.hash,
            };
        }
        let ends_elsewhere =
            |(advance, head): &&(&Advance, Head)| advance.to.head() != *head || advance.from == *head;
        match heads.iter().find(ends_elsewhere) {
            Some((advance, _)) => Err(MalformedBatch::EndsElsewhere(advance.tenant)),
            None => self.check_rows(),
        }
    }

    /// When the last entry of a tenant in this batch was recorded. A batch that hangs together has one for each tenant
    /// that advances.
    pub fn last_at(&self, tenant: TenantId) -> Timestamp {
        let last = self.entries.iter().rev().find(|entry| entry.tenant == tenant);
        last.map_or(Timestamp::from_millis(0), |entry| entry.at)
    }

    fn check_rows(&self) -> Result<(), MalformedBatch> {
        if self.decisions.len() > self.entries.len() {
            return Err(MalformedBatch::SharedEntry);
        }
        let advance_of = |tenant| {
            let found = self.advances.iter().find(|advance| advance.tenant == tenant);
            found.ok_or(MalformedBatch::DoesNotAdvance(tenant))
        };
        let mut entries = self.entries.iter();
        for DecisionRow { tenant, seq, .. } in &self.decisions {
            let (tenant, seq) = (*tenant, *seq);
            if !entries.any(|entry| (entry.tenant, entry.seq) == (tenant, seq)) {
                return Err(MalformedBatch::WithoutEntry { tenant, seq });
            }
        }
        for OutcomeRow { tenant, seq, .. } in &self.outcomes {
            let (tenant, seq) = (*tenant, *seq);
            let advance = advance_of(tenant)?;
            if seq <= advance.from.seq || seq > advance.to.head().seq {
                return Err(MalformedBatch::WithoutEntry { tenant, seq });
            }
        }
        for row in &self.erasures {
            let (advance, tenant) = (advance_of(row.tenant)?, row.tenant);
            let is_told = row.by > advance.from.seq && row.by <= advance.to.head().seq && row.seq < row.by;
            if !is_told {
                return Err(MalformedBatch::ErasedUntold { tenant, seq: row.seq });
            }
        }
        let others = self.writes.iter().map(|(tenant, _)| *tenant);
        let others = others.chain(self.runs.iter().map(|(tenant, _)| *tenant));
        let others = others.chain(self.counters.iter().map(|(tenant, _)| *tenant));
        let others = others.chain(self.approvals.iter().map(|(tenant, _)| *tenant));
        let others = others.chain(self.budgets.tenants());
        for tenant in others.chain(self.contents.iter().map(|content| content.tenant)) {
            advance_of(tenant)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample::{Ask, Chain, name};
    use crate::{ReplyKey, ReplyRow};
    use model::RunLink;

    /// Two tenants that take turns: decisions, an outcome, a write and a content.
    fn whole() -> Batch {
        let (mut one, mut two) = (Chain::new(1), Chain::new(2));
        let mut batch = Batch::default();
        let decided = one.decision(&mut batch, &Ask::default());
        two.decision(&mut batch, &Ask::default());
        one.outcome(&mut batch, decided);
        two.put_agent(&mut batch, 1, "builder");
        two.content(&mut batch, "seen");
        batch
    }

    fn spoilt(spoil: impl FnOnce(&mut Batch)) -> MalformedBatch {
        let mut batch = whole();
        spoil(&mut batch);
        batch.check().unwrap_err()
    }

    #[test]
    fn chains_that_take_turns_hang_together() {
        assert_eq!(whole().check(), Ok(()));
        assert_eq!(Batch::default().check(), Ok(()));
        assert!(Batch::default().is_empty() && !whole().is_empty());
    }

    #[test]
    fn an_answer_alone_needs_no_entry_and_a_budget_does() {
        let tenant = Chain::new(1).tenant;
        let mut batch = Batch::default();
        batch.budgets.replies.push(ReplyRow {
            key: ReplyKey {
                tenant,
                caller: [1; 16],
                key: name("k"),
            },
            request: Digest::ZERO,
            bytes: b"{}".to_vec().into(),
            at: Timestamp::from_millis(1),
        });
        assert_eq!((batch.check(), batch.is_empty()), (Ok(()), false));
        let link = RunLink {
            run_id: name("child"),
            parent: name("root"),
        };
        batch.budgets.links.push((tenant, link));
        assert_eq!(batch.check(), Err(MalformedBatch::DoesNotAdvance(tenant)));
    }

    #[test]
    fn entries_out_of_order_missing_or_of_another_history_are_a_gap() {
        let (one, two) = (Chain::new(1).tenant, Chain::new(2).tenant);
        let gap = |tenant, seq| MalformedBatch::Gap { tenant, seq };
        assert_eq!(spoilt(|batch| batch.entries.swap(0, 2)), gap(one, 2));
        assert_eq!(spoilt(|batch| drop(batch.entries.remove(1))), gap(two, 2));
        assert_eq!(
            spoilt(|batch| batch.entries[3].prev = Digest::of(b"other")),
            gap(two, 2)
        );
        assert_eq!(spoilt(|batch| batch.advances[0].from.seq = u64::MAX), gap(one, 1));
    }

    #[test]
    fn an_end_that_no_entry_reaches_is_noticed() {
        let two = Chain::new(2).tenant;
        let elsewhere = MalformedBatch::EndsElsewhere(two);
        let believe = |batch: &mut Batch, head| {
            batch.advances[1].to = Chain::new(2).believed_at(head).tip;
        };
        let end = |batch: &Batch| batch.advances[1].to.head();
        let further = spoilt(|batch| {
            let Head { seq, hash } = end(batch);
            believe(batch, Head { seq: seq + 1, hash });
        });
        let forked = spoilt(|batch| {
            let hash = Digest::ZERO;
            believe(batch, Head { hash, ..end(batch) });
        });
        assert_eq!((further, forked), (elsewhere, elsewhere));
        assert_eq!(spoilt(|batch| drop(batch.entries.pop())), elsewhere);
        let nowhere = spoilt(|batch| {
            batch.entries.retain(|entry| entry.tenant != two);
            believe(batch, batch.advances[1].from);
        });
        assert_eq!(nowhere, elsewhere);
    }

    #[test]
    fn every_row_needs_an_advance_and_an_entry_of_its_own() {
        let (one, two) = (Chain::new(1).tenant, Chain::new(2).tenant);
        let without = |tenant, seq| MalformedBatch::WithoutEntry { tenant, seq };
        assert_eq!(spoilt(|batch| batch.decisions[0].seq = 3), without(one, 3));
        assert_eq!(spoilt(|batch| batch.decisions[1].seq = 0), without(two, 0));
        assert_eq!(spoilt(|batch| batch.decisions.swap(0, 1)), without(one, 1));
        assert_eq!(spoilt(|batch| batch.outcomes[0].seq = 9), without(one, 9));
        let twice = spoilt(|batch| batch.advances.push(batch.advances[0].clone()));
        assert_eq!(twice, MalformedBatch::AdvancesTwice(one));
        let nobody = Chain::new(3).tenant;
        assert_eq!(
            spoilt(|batch| batch.writes[0].0 = nobody),
            MalformedBatch::DoesNotAdvance(nobody)
        );
        assert_eq!(
            spoilt(|batch| batch.contents[0].tenant = nobody),
            MalformedBatch::DoesNotAdvance(nobody)
        );
        assert_eq!(
            spoilt(|batch| batch.entries[0].tenant = nobody),
            MalformedBatch::DoesNotAdvance(nobody)
        );
    }

    #[test]
    fn two_decisions_cannot_share_an_entry() {
        let mut chain = Chain::new(1);
        let mut batch = chain.decisions(1);
        batch.decisions.push(chain.decision_row(&Ask::default()));
        assert_eq!(batch.check(), Err(MalformedBatch::SharedEntry));
    }
}
