//! Applying one batch of proposals onto the books: the only place where entries get their place in a chain.
//!
//! It is pure. The sequencer has the turn to write, so it knows where the tenants of the batch stand, and commits what
//! comes out. If the commit fails, the books from before are still there, untouched, and so are the proposals.

use crate::approvals::{ApprovalChange, ApprovalConflict};
use crate::entry_kind::EntryKind;
use crate::proposal::{ApprovalUse, Change, Happening, Proposal, ProposedDecision, ProposedEntry, Replay};
use crate::runs::{self, KnownRuns, Sighting};
use crate::snapshot::{Recompiled, Snapshot, TenantSnapshot};
use bytes::Bytes;
use canon::{Digest, ObjectWriter};
use ledger::Head;
use model::{AgentId, Approval, ApprovalId, DecisionId, Directory, Noun, TenantId, Timestamp, Write};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use store::{Advance, Batch, ContentRow, DecisionRow, EntryRow, FoundRequest, OutcomeRow, Place, RequestKey};

/// Where the tenants of a batch stand, and the directory as it is there.
#[derive(Clone)]
pub struct Books {
    places: HashMap<TenantId, Place>,
    snapshot: Snapshot,
}

/// What storage knew about a batch before it was applied.
#[derive(Default)]
pub struct Found {
    /// Requests that were recorded before.
    pub requests: HashMap<RequestKey, FoundRequest>,
    /// Decisions whose outcome is known.
    pub outcomes: HashSet<DecisionId>,
    /// The runs that the batch is about.
    pub runs: KnownRuns,
    /// The approvals that the batch is about.
    pub approvals: HashMap<(TenantId, ApprovalId), Approval>,
}

/// What became of a proposal.
#[derive(Debug)]
pub enum Settled {
    /// It is in the batch.
    Recorded {
        /// The last of its entries.
        head: Head,
        /// When it was recorded.
        at: Timestamp,
        /// The sealed answer, if it was a decision; empty otherwise.
        answer: Bytes,
    },
    /// The same ask was recorded before; this was the answer.
    Replayed(Bytes),
    /// It is not in the batch.
    Conflict(Conflict),
}

/// Why a proposal was not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// The directory or the base policies have moved on since the proposal was made: make it again, from this revision.
    DirectoryMoved {
        /// Whose directory.
        tenant: TenantId,
        /// Where it is now.
        revision: u64,
    },
    /// The request id was used for another ask.
    RequestReused,
    /// The decision has an outcome already.
    OutcomeReported,
    /// The approval does not change like this.
    Approval(Box<ApprovalConflict>),
    /// The run has seen something since the ask was judged: judge it again.
    RunMoved,
}

/// A batch that is ready to be committed.
pub struct Applied {
    /// The books once the batch is durable.
    pub books: Books,
    /// What to write.
    pub batch: Batch,
    /// What became of each proposal, in order.
    pub settled: Vec<Settled>,
    /// The tenants whose directory changes.
    pub changed: BTreeSet<TenantId>,
}

impl Books {
    /// The books of a batch: a snapshot, and where its tenants stand.
    pub fn new(snapshot: Snapshot, places: HashMap<TenantId, Place>) -> Self {
        Self { places, snapshot }
    }

    /// The directory as it is at the heads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Where a tenant's chain ends.
    pub fn head(&self, tenant: TenantId) -> Head {
        self.place(tenant).head
    }

    /// Where a tenant stands.
    pub fn place(&self, tenant: TenantId) -> Place {
        self.places.get(&tenant).copied().unwrap_or(Place::GENESIS)
    }
}

/// Applies a batch. `now` is the time of all its entries, unless the one before in a chain is later: time in a chain
/// never runs backwards.
pub fn apply(books: &Books, found: Found, proposals: &[Proposal], now: Timestamp) -> Applied {
    let mut pass = Pass {
        books: books.clone(),
        found,
        batch: Batch::default(),
        now,
        scratch: String::new(),
        changed: BTreeSet::new(),
        kept: HashSet::new(),
    };
    let settled = proposals.iter().map(|proposal| pass.settle(proposal)).collect();
    pass.note_advances(books);
    Applied {
        books: pass.books,
        batch: pass.batch,
        settled,
        changed: pass.changed,
    }
}

struct Pass {
    books: Books,
    found: Found,
    batch: Batch,
    now: Timestamp,
    /// Where headers are written before they are hashed.
    scratch: String,
    changed: BTreeSet<TenantId>,
    /// The contents in the batch: decisions of one batch often name the same.
    kept: HashSet<(TenantId, Digest)>,
}

impl Pass {
    fn settle(&mut self, proposal: &Proposal) -> Settled {
        let tenant = proposal.tenant;
        let revision = self.books.place(tenant).revision;
        if revision != proposal.revision || self.books.snapshot.base_digest() != proposal.base {
            return Settled::Conflict(Conflict::DirectoryMoved { tenant, revision });
        }
        match &proposal.what {
            Happening::Decision(decision) => self.decide(tenant, decision),
            Happening::Change(change) => self.change(tenant, change),
            Happening::NewTenant {
                tenant: new,
                announcement,
                change,
            } => {
                self.announce(tenant, announcement);
                self.change(*new, change)
            }
            Happening::Base { change, recompiled } => self.replace_base(tenant, change, recompiled),
            Happening::Approval(change) => self.change_approval(tenant, change),
            Happening::Note(entry) => self.note(tenant, entry),
            Happening::Observation(entry, sighting) => {
                if !self.is_current(tenant, Some(sighting)) {
                    return Settled::Conflict(Conflict::RunMoved);
                }
                self.show(tenant, Some(sighting));
                self.note(tenant, entry)
            }
            Happening::Outcome { entry, decision } => self.report_outcome(tenant, entry, *decision),
        }
    }

    fn decide(&mut self, tenant: TenantId, decision: &ProposedDecision) -> Settled {
        let mut request = None;
        if let Some((key, ask, replay)) = &decision.request {
            match self.found.requests.get(key) {
                Some(found) if found.ask != *ask => return Settled::Conflict(Conflict::RequestReused),
                Some(found)
                    if *replay == Replay::Always || found.reason.verdict() == model::Verdict::Deny =>
                {
                    return Settled::Replayed(found.receipt.clone());
                }
                // The id keeps standing for the first decision; this one is recorded without it.
                Some(_) => {}
                None => request = Some((key, *ask)),
            }
        }
        if !self.is_current(tenant, decision.sighting.as_ref()) {
            return Settled::Conflict(Conflict::RunMoved);
        }
        if let Err(conflict) = self.use_approval(tenant, decision) {
            return Settled::Conflict(Conflict::Approval(Box::new(conflict)));
        }
        self.show(tenant, decision.sighting.as_ref());
        let (head, prev, at) = self.link(tenant, &decision.entry);
        let answer = decision.answer.seal(tenant, &head, &prev, at);
        if let Some((key, ask)) = request {
            let found = FoundRequest {
                key: key.clone(),
                ask,
                reason: decision.reason,
                receipt: answer.clone(),
            };
            self.found.requests.insert(key.clone(), found);
        }
        self.batch.decisions.push(DecisionRow {
            tenant,
            seq: head.seq,
            id: decision.id,
            agent: decision.agent,
            tool: decision.tool.clone(),
            action: decision.action.clone(),
            reason: decision.reason,
            run_id: decision.run_id.clone(),
            request: request.map(|(key, ask)| (key.request_id.clone(), ask)),
            receipt: answer.clone(),
        });
        self.keep(&decision.contents);
        if let Some(reason) = &decision.quarantine {
            self.quarantine(tenant, decision.agent, decision.id, reason);
        }
        Settled::Recorded { head, at, answer }
    }

    /// Whether the run is what it was when this was judged.
    fn is_current(&self, tenant: TenantId, sighting: Option<&Sighting>) -> bool {
        sighting.is_none_or(|sighting| runs::is_current(&self.found.runs, tenant, sighting))
    }

    /// Writes down what was shown to a run.
    fn show(&mut self, tenant: TenantId, sighting: Option<&Sighting>) {
        let Some(sighting) = sighting else { return };
        let changed = runs::note(&mut self.found.runs, tenant, sighting).into_iter();
        self.batch.runs.extend(changed.map(|run| (tenant, run)));
    }

    /// Writes down what a decision has to do with an approval.
    fn use_approval(
        &mut self,
        tenant: TenantId,
        decision: &ProposedDecision,
    ) -> Result<(), ApprovalConflict> {
        let after = match &decision.approval {
            None => return Ok(()),
            Some(ApprovalUse::Asks(approval)) => Approval::clone(approval),
            Some(ApprovalUse::Spends(id, action_hash)) => {
                let found = self.found.approvals.get(&(tenant, *id));
                let approval = found.ok_or(ApprovalConflict::Missing)?;
                // INVARIANT: it is the approval as of the head that this batch follows, so it is spent once.
                let usable = approval.check_use(decision.agent, action_hash, self.now);
                usable.map_err(|_| ApprovalConflict::Moved)?;
                approval.spend(decision.id)
            }
        };
        self.put_approval(tenant, after);
        Ok(())
    }

    fn change_approval(&mut self, tenant: TenantId, change: &ApprovalChange) -> Settled {
        let found = self.found.approvals.get(&(tenant, change.id));
        let settled = found.ok_or(ApprovalConflict::Missing);
        match settled.and_then(|approval| change.settle(approval, self.now)) {
            Ok((after, entry)) => {
                self.put_approval(tenant, after);
                self.note(tenant, &entry)
            }
            Err(conflict) => Settled::Conflict(Conflict::Approval(Box::new(conflict))),
        }
    }

    fn put_approval(&mut self, tenant: TenantId, approval: Approval) {
        self.found
            .approvals
            .insert((tenant, approval.id), approval.clone());
        self.batch.approvals.push((tenant, approval));
    }

    /// Adds an entry that changes nothing else.
    fn note(&mut self, tenant: TenantId, entry: &ProposedEntry) -> Settled {
        let (head, _, at) = self.link(tenant, entry);
        Settled::Recorded {
            head,
            at,
            answer: Bytes::new(),
        }
    }

    /// Adds what a decision names by its digest and is not known to be stored.
    fn keep(&mut self, contents: &[ContentRow]) {
        for content in contents {
            if self.kept.insert((content.tenant, content.digest)) {
                self.batch.contents.push(content.clone());
            }
        }
    }

    /// Freezes an agent in the commit of the decision that caught it.
    fn quarantine(&mut self, tenant: TenantId, agent: AgentId, decision: DecisionId, reason: &str) {
        let found = self
            .books
            .snapshot
            .tenant(tenant)
            .and_then(|tenant| tenant.directory.agents.get(&agent));
        let Some(Ok(frozen)) = found.map(|agent| agent.freeze(reason, self.now)) else {
            return;
        };
        let mut body = ObjectWriter::new();
        body.object("by", |by| {
            by.string("decision", &decision.to_string());
        });
        body.string("id", &agent.to_string());
        body.string("reason", reason);
        self.link(tenant, &ProposedEntry::new(EntryKind::AgentFrozen, body.finish()));
        self.write(tenant, &[Write::Put(Noun::Agent(Arc::new(frozen)))], None);
    }

    fn change(&mut self, tenant: TenantId, change: &Change) -> Settled {
        let (head, _, at) = self.link(tenant, &change.entry);
        self.write(tenant, &change.writes, change.policies.clone());
        Settled::Recorded {
            head,
            at,
            answer: Bytes::new(),
        }
    }

    /// Tells of a new tenant in another's chain. That directory counts as changed, so two cannot be announced from one
    /// revision.
    fn announce(&mut self, tenant: TenantId, announcement: &ProposedEntry) {
        self.link(tenant, announcement);
        self.write(tenant, &[], None);
    }

    /// Puts other base policies in force for all tenants, or for none.
    fn replace_base(&mut self, tenant: TenantId, change: &Change, recompiled: &Recompiled) -> Settled {
        if let Some(behind) = recompiled.missing(&self.books.snapshot).next() {
            return Settled::Conflict(Conflict::DirectoryMoved {
                tenant: behind.directory.tenant.id,
                revision: behind.revision,
            });
        }
        self.books.snapshot.recompile(recompiled);
        self.changed
            .extend(self.books.snapshot.tenants().map(|(id, _)| *id));
        self.change(tenant, change)
    }

    fn write(&mut self, tenant: TenantId, writes: &[Write], policies: Option<Arc<policy::PolicySet>>) {
        if self.books.snapshot.tenant(tenant).is_none()
            && let (Some(Write::Put(Noun::Tenant(new))), Some(policies)) = (writes.first(), &policies)
        {
            let directory = Directory::new(Arc::clone(new));
            let tenant = TenantSnapshot::new(directory, Arc::clone(policies), 0);
            self.books.snapshot.insert(tenant);
        }
        self.books.snapshot.advance(tenant, writes, policies);
        self.books.places.entry(tenant).or_insert(Place::GENESIS).revision += 1;
        self.batch
            .writes
            .extend(writes.iter().map(|write| (tenant, write.clone())));
        self.changed.insert(tenant);
    }

    fn report_outcome(&mut self, tenant: TenantId, entry: &ProposedEntry, decision: DecisionId) -> Settled {
        if !self.found.outcomes.insert(decision) {
            return Settled::Conflict(Conflict::OutcomeReported);
        }
        let (head, _, at) = self.link(tenant, entry);
        self.batch.outcomes.push(OutcomeRow {
            tenant,
            decision,
            seq: head.seq,
        });
        Settled::Recorded {
            head,
            at,
            answer: Bytes::new(),
        }
    }

    /// Gives an entry its place. Returns the new head, the hash of the entry before, and the time.
    fn link(&mut self, tenant: TenantId, entry: &ProposedEntry) -> (Head, Digest, Timestamp) {
        let place = self.books.places.entry(tenant).or_insert(Place::GENESIS);
        let before = place.head;
        let at = self.now.max(place.at);
        let head = ledger::link(
            &before,
            &tenant.to_string(),
            entry.kind.as_str(),
            &at.to_string(),
            &entry.body_digest,
            &mut self.scratch,
        );
        (place.head, place.at) = (head, at);
        self.batch.entries.push(EntryRow {
            tenant,
            seq: head.seq,
            kind: entry.kind.as_str(),
            at,
            prev: before.hash,
            hash: head.hash,
            body: entry.body.clone(),
        });
        (head, before.hash, at)
    }

    /// Notes how far each tenant has moved since the books from before.
    fn note_advances(&mut self, before: &Books) {
        let moved: BTreeSet<_> = self.batch.entries.iter().map(|entry| entry.tenant).collect();
        self.batch.advances = moved
            .into_iter()
            .map(|tenant| Advance {
                tenant,
                from: before.head(tenant),
                to: self.books.head(tenant),
                revision: self.books.place(tenant).revision,
            })
            .collect();
    }
}
