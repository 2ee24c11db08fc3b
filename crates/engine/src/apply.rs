//! Applying one batch of proposals onto the books: the only place where entries get their place in a chain.
//!
//! It is pure. The sequencer has the turn to write, so it knows where the tenants of the batch stand, and commits what
//! comes out. If the commit fails, the books from before are still there, untouched, and so are the proposals.
//!
//! It goes over a batch twice: first every entry gets its place, then the answers of the batch are signed together and each
//! gets its receipt.

use crate::approvals::{ApprovalChange, ApprovalConflict};
use crate::budgets::KnownBudgets;
use crate::budgets::moves::{BudgetConflict, BudgetMove, Moved};
use crate::budgets::report::Settling;
use crate::entry_kind::EntryKind;
use crate::proposal::{
    ApprovalUse, Change, ErasedBody, Intent, NamedRequest, Proposal, ProposedDecision, ProposedEntry,
    Records, Wording,
};
use crate::quotas::{self, KnownCounters, QuotaExceeded};
use crate::runs::{self, KnownRuns, Sighting};
use crate::snapshot::{Recompiled, Snapshot, TenantSnapshot};
use bytes::Bytes;
use canon::{Digest, ObjectWriter};
use ledger::receipt::{Receipt, ReceiptBatch};
use ledger::{Appended, Head, NewEntry, SigningKey};
use model::{
    AgentId, Approval, ApprovalId, DecisionId, Directory, Noun, ReasonCode, TenantId, Timestamp, Write,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use store::{
    Advance, Batch, ChainPosition, ContentRow, DecisionRow, EntryRow, ErasureRow, FoundRequest, OutcomeRow,
    RequestKey,
};

/// Where the tenants of a batch stand, and the directory as it is there.
#[derive(Clone)]
pub struct Books {
    positions: HashMap<TenantId, ChainPosition>,
    snapshot: Snapshot,
}

/// What time it is for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchTime {
    /// The time of its entries, unless the one before in a chain is later: what the clock says, or when the signing key
    /// begins, if that is later.
    pub entries: Timestamp,
    /// What the clock says. Approvals go by it: they were asked for and are shown by it.
    pub clock: Timestamp,
}

impl BatchTime {
    /// When the next entry of a chain is recorded that stands here: never before the last one.
    fn at(self, position: &ChainPosition) -> Timestamp {
        position.at.max(self.entries)
    }
}

impl From<Timestamp> for BatchTime {
    /// That of a clock that no signing key is ahead of.
    fn from(now: Timestamp) -> Self {
        Self {
            entries: now,
            clock: now,
        }
    }
}

/// What storage knew about a batch before it was applied.
#[derive(Default)]
pub struct Found {
    /// Requests that were recorded before.
    pub requests: HashMap<RequestKey, FoundRequest>,
    /// Decisions that have an outcome or were erased, of those that the batch reports one of or would erase.
    pub outcomes: HashSet<DecisionId>,
    /// The entries whose bodies are erased, of those that the batch would erase.
    pub erased: HashSet<(TenantId, u64)>,
    /// The runs that the batch is about.
    pub runs: KnownRuns,
    /// What was counted of the quotas that the batch is about.
    pub counters: KnownCounters,
    /// The approvals that the batch is about.
    pub approvals: HashMap<(TenantId, ApprovalId), Approval>,
    /// The budgets and reservations that the batch is about.
    pub budgets: KnownBudgets,
}

/// What became of a proposal.
#[derive(Debug)]
pub enum Disposition {
    /// It is in the batch.
    Recorded {
        /// The last of its entries.
        head: Head,
        /// When it was recorded.
        at: Timestamp,
        /// The sealed answer of a decision, or what moved of budgets; empty otherwise.
        answer: Bytes,
        /// Why a decision became a denial when it was recorded, if it did.
        denied: Option<ReasonCode>,
        /// Whether it is a decision under its request id, and so the answer to that id from now on.
        is_named: bool,
    },
    /// The same ask was recorded before; this was the answer.
    Repeated(Bytes),
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
    /// The decision has an outcome already, or was erased.
    OutcomeReported,
    /// These decisions have outcomes that whoever would erase them does not know of: the erasure is made again with
    /// those.
    OutcomesUnknown(BTreeSet<DecisionId>),
    /// These bodies are erased already: what tells of the others is made again.
    Erased(BTreeSet<u64>),
    /// The approval does not change like this.
    Approval(Box<ApprovalConflict>),
    /// The run has seen something since this was judged, or has another parent than was reckoned with: make it again.
    RunMoved,
    /// There is no room in a quota.
    QuotaExceeded(Box<QuotaExceeded>),
    /// The budgets do not move like this.
    Budget(Box<BudgetConflict>),
}

/// A batch that is ready to be committed.
pub struct Applied {
    /// The books once the batch is durable.
    pub books: Books,
    /// What to write.
    pub batch: Batch,
    /// What became of each proposal, in order.
    pub dispositions: Vec<Disposition>,
    /// The tenants whose directory changes.
    pub changed: BTreeSet<TenantId>,
}

impl Books {
    /// The books of a batch: a snapshot, and where its tenants stand.
    pub fn new(snapshot: Snapshot, positions: HashMap<TenantId, ChainPosition>) -> Self {
        Self { positions, snapshot }
    }

    /// The directory as it is at the heads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Where a tenant's chain ends.
    pub fn head(&self, tenant: TenantId) -> Head {
        self.position(tenant).head()
    }

    /// The position of a tenant's chain.
    pub fn position(&self, tenant: TenantId) -> &ChainPosition {
        const GENESIS: &ChainPosition = &ChainPosition::GENESIS;
        self.positions.get(&tenant).unwrap_or(GENESIS)
    }
}

/// Applies a batch at this time. Time in a chain never runs backwards. `key` signs the answers, once for all of them;
/// it gives the same signature for the same bytes.
pub fn apply(
    books: &Books,
    found: Found,
    proposals: &[Proposal],
    time: BatchTime,
    key: &SigningKey,
) -> Applied {
    let mut pass = Pass {
        books: books.clone(),
        found,
        batch: Batch::default(),
        changed_approvals: Vec::new(),
        time,
        scratch: String::new(),
        changed: BTreeSet::new(),
        kept: HashSet::new(),
        unsealed: Vec::new(),
        receipts: ReceiptBatch::default(),
        requested: HashMap::new(),
    };
    pass.bring_budgets_to_now();
    let placed: Vec<_> = proposals.iter().map(|proposal| pass.place(proposal)).collect();
    pass.write_approvals();
    pass.batch.budgets = std::mem::take(&mut pass.found.budgets).into_rows();
    pass.seal(key);
    pass.note_advances(books);
    let dispositions = placed.into_iter().map(|placed| pass.finish(placed)).collect();
    Applied {
        books: pass.books,
        batch: pass.batch,
        dispositions,
        changed: pass.changed,
    }
}

struct Pass<'p> {
    books: Books,
    found: Found,
    /// INVARIANT: it has as many decisions as there are in `unsealed` and in `receipts`, in the same order.
    batch: Batch,
    /// Which approvals the batch makes or changes, some more than once. As they are now they are in `found`.
    changed_approvals: Vec<(TenantId, ApprovalId)>,
    time: BatchTime,
    /// Where headers are written before they are hashed.
    scratch: String,
    changed: BTreeSet<TenantId>,
    /// The contents in the batch: decisions of one batch often name the same.
    kept: HashSet<(TenantId, Digest)>,
    /// The decisions of the batch, which wait for their receipts.
    unsealed: Vec<Unsealed<'p>>,
    receipts: ReceiptBatch,
    /// The requests that the batch answers: with which ask, how, and which of its decisions it is.
    requested: HashMap<&'p RequestKey, (Digest, ReasonCode, usize)>,
}

/// What becomes of a proposal, as far as it is known before answers are sealed.
enum Placed {
    /// This is known already.
    Known(Disposition),
    /// It is this decision of the batch.
    Decision(usize),
    /// It is answered with this decision of the batch.
    Repetition(usize),
}

/// A decision that has its place in the chain and no receipt.
struct Unsealed<'p> {
    decision: &'p ProposedDecision,
    wording: Worded<'p>,
    linked: Linked,
}

/// What is recorded and answered.
enum Worded<'p> {
    /// It was worded when it was judged.
    Before(&'p Wording),
    /// It was worded now, where budgets were looked at.
    Now(Wording),
}

impl Deref for Worded<'_> {
    type Target = Wording;

    fn deref(&self) -> &Wording {
        match self {
            Self::Before(wording) => wording,
            Self::Now(wording) => wording,
        }
    }
}

impl Unsealed<'_> {
    /// Why it became a denial when it was recorded, if it did.
    fn denied(&self) -> Option<ReasonCode> {
        let reason = self.wording.reason;
        (reason != self.decision.records.reason()).then_some(reason)
    }
}

/// An entry that has its place.
struct Linked {
    tenant: TenantId,
    head: Head,
    prev: Digest,
    at: Timestamp,
}

impl Linked {
    /// What becomes of a proposal that is this entry and nothing that is answered.
    fn recorded(&self) -> Disposition {
        self.recorded_with(Bytes::new())
    }

    /// What becomes of a proposal that is this entry, with something for the caller.
    const fn recorded_with(&self, answer: Bytes) -> Disposition {
        Disposition::Recorded {
            head: self.head,
            at: self.at,
            answer,
            denied: None,
            is_named: false,
        }
    }
}

impl From<Conflict> for Placed {
    fn from(conflict: Conflict) -> Self {
        Self::Known(Disposition::Conflict(conflict))
    }
}

/// An earlier answer to the same request.
enum Earlier {
    /// This one will do.
    Answers(Placed),
    /// It will not: what is decided now is recorded without the id, which keeps standing for the first decision.
    Stands,
}

impl<'p> Pass<'p> {
    /// Gives the entries of a proposal their place in the chain, or says why they have none.
    fn place(&mut self, proposal: &'p Proposal) -> Placed {
        let tenant = proposal.tenant;
        let revision = self.books.position(tenant).revision;
        if revision != proposal.revision || self.books.snapshot.base_digest() != proposal.base {
            return Conflict::DirectoryMoved { tenant, revision }.into();
        }
        let disposition = match &proposal.intent {
            Intent::Decision(decision) => return self.decide(tenant, decision),
            Intent::Change(change) => self.change(tenant, change),
            Intent::NewTenant {
                tenant: new,
                announcement,
                change,
            } => {
                self.announce(tenant, announcement);
                self.change(*new, change)
            }
            Intent::Base { change, recompiled } => self.replace_base(tenant, change, recompiled),
            Intent::Approval(change) => self.change_approval(tenant, change),
            Intent::Budget(change) => self.move_budgets(tenant, change),
            Intent::Misuse(entry) => self.link(tenant, entry).recorded(),
            Intent::Observation(entry, sighting) => {
                if !self.is_current(tenant, Some(sighting)) {
                    return Conflict::RunMoved.into();
                }
                self.note_sighting(tenant, Some(sighting));
                self.link(tenant, entry).recorded()
            }
            Intent::Erasure {
                entry,
                bodies,
                reported,
            } => self.erase(tenant, entry, bodies, reported),
            Intent::Outcome {
                entry,
                decision,
                settling,
                ..
            } => self.report_outcome(tenant, entry, *decision, settling.as_deref()),
        };
        Placed::Known(disposition)
    }

    fn decide(&mut self, tenant: TenantId, decision: &'p ProposedDecision) -> Placed {
        let mut request = None;
        if let Some(named) = &decision.request {
            match self.find_earlier(named) {
                Some(Earlier::Answers(placed)) => return placed,
                // The id keeps standing for the first decision; this one is recorded without it.
                Some(Earlier::Stands) => {}
                None => request = Some(named),
            }
        }
        let costed = decision.records.costed();
        if !self.is_current(tenant, decision.sighting.as_ref())
            || costed.is_some_and(|costed| !self.found.budgets.reckoned_with(tenant, &costed.hold.cost))
        {
            return Conflict::RunMoved.into();
        }
        let at = self.time_of(tenant);
        let find = |key: &Digest| self.found.counters.get(&(tenant, *key));
        if let Err(exceeded) = quotas::check(&decision.quotas, find, at) {
            return Conflict::QuotaExceeded(exceeded).into();
        }
        if let Err(conflict) = self.check_approval(tenant, decision) {
            return Conflict::Approval(Box::new(conflict)).into();
        }
        let wording = self.word(tenant, decision);
        let reason = wording.reason;
        // What is denied for want of money counts nowhere, and what people approved is kept for another time.
        if reason == decision.records.reason() {
            let counted = quotas::count(&mut self.found.counters, tenant, &decision.quotas, at);
            self.batch
                .counters
                .extend(counted.map(|counter| (tenant, counter)));
            self.use_approval(tenant, decision);
        }
        self.note_sighting(tenant, decision.sighting.as_ref());
        let linked = self.link(tenant, &wording.entry);
        let index = self.receipts.push(&linked.head.hash, wording.answer.digest());
        if let Some(named) = request {
            self.requested.insert(&named.key, (named.ask, reason, index));
        }
        self.batch.decisions.push(DecisionRow {
            tenant,
            seq: linked.head.seq,
            id: decision.id,
            agent: decision.agent,
            tool: decision.tool.clone(),
            action: decision.action.clone(),
            reason,
            run_id: decision.run_id.clone(),
            request: request.map(|named| (named.key.request_id.clone(), named.ask)),
            receipt: Bytes::new(),
        });
        self.unsealed.push(Unsealed {
            decision,
            wording,
            linked,
        });
        self.keep(&decision.contents);
        if let Some(reason) = &decision.quarantine {
            self.quarantine(tenant, decision.agent, decision.id, reason);
        }
        Placed::Decision(index)
    }

    /// What was answered to this request before, in this batch or an earlier one.
    fn find_earlier(&self, named: &NamedRequest) -> Option<Earlier> {
        let key = &named.key;
        let (recorded, reason, placed) = match (self.found.requests.get(key), self.requested.get(key)) {
            (Some(found), _) => {
                let repeated = Disposition::Repeated(found.receipt.clone());
                (&found.ask, found.reason, Placed::Known(repeated))
            }
            (None, Some((recorded, reason, index))) => (recorded, *reason, Placed::Repetition(*index)),
            (None, None) => return None,
        };
        if *recorded != named.ask {
            return Some(Earlier::Answers(Conflict::RequestReused.into()));
        }
        Some(if named.repeat.permits(reason.verdict()) {
            Earlier::Answers(placed)
        } else {
            Earlier::Stands
        })
    }

    /// Signs the answers of the batch together, and gives each its receipt.
    fn seal(&mut self, key: &SigningKey) {
        let receipts = std::mem::take(&mut self.receipts);
        let Some(sealed) = receipts.seal(key) else { return };
        let rows = self.batch.decisions.iter_mut().zip(&self.unsealed);
        for (index, (row, unsealed)) in rows.enumerate() {
            let linked = &unsealed.linked;
            let (tenant, at) = (linked.tenant.to_string(), linked.at.to_string());
            let receipt = Receipt {
                tenant: &tenant,
                seq: linked.head.seq,
                at: &at,
                hash: linked.head.hash,
                prev: linked.prev,
                body: unsealed.wording.entry.body_digest,
            };
            row.receipt = unsealed.wording.answer.seal(&sealed, index, &receipt);
        }
    }

    /// What became of a proposal, once answers are sealed.
    fn finish(&self, placed: Placed) -> Disposition {
        match placed {
            Placed::Known(disposition) => disposition,
            Placed::Decision(index) => {
                let unsealed = &self.unsealed[index];
                let Linked { head, at, .. } = unsealed.linked;
                let row = &self.batch.decisions[index];
                Disposition::Recorded {
                    head,
                    at,
                    answer: row.receipt.clone(),
                    denied: unsealed.denied(),
                    is_named: row.request.is_some(),
                }
            }
            Placed::Repetition(index) => Disposition::Repeated(self.batch.decisions[index].receipt.clone()),
        }
    }

    /// When the next entry of a tenant's chain is recorded.
    fn time_of(&self, tenant: TenantId) -> Timestamp {
        self.time.at(self.books.position(tenant))
    }

    /// Whether the run is what it was when this was judged.
    fn is_current(&self, tenant: TenantId, sighting: Option<&Sighting>) -> bool {
        sighting.is_none_or(|sighting| runs::is_current(&self.found.runs, tenant, sighting))
    }

    /// Writes down what was shown to a run.
    fn note_sighting(&mut self, tenant: TenantId, sighting: Option<&Sighting>) {
        let Some(sighting) = sighting else { return };
        let changed = runs::note(&mut self.found.runs, tenant, sighting).into_iter();
        self.batch.runs.extend(changed.map(|run| (tenant, run)));
    }

    /// Whether a decision can use up what it wants to.
    fn check_approval(&self, tenant: TenantId, decision: &ProposedDecision) -> Result<(), ApprovalConflict> {
        let Some(ApprovalUse::Spends { id, user, action }) = &decision.approval else {
            return Ok(());
        };
        let found = self.found.approvals.get(&(tenant, *id));
        let approval = found.ok_or(ApprovalConflict::Missing)?;
        // INVARIANT: it is the approval as of the head that this batch follows, so it is spent once.
        let usable = approval.check_use(decision.agent, user.as_ref(), action, self.time.clock);
        usable.map_err(|_| ApprovalConflict::Moved)
    }

    /// Writes down what a decision has to do with an approval. Whether it can was checked.
    fn use_approval(&mut self, tenant: TenantId, decision: &ProposedDecision) {
        let after = match &decision.approval {
            None => return,
            Some(ApprovalUse::Asks(approval)) => Approval::clone(approval),
            Some(ApprovalUse::Spends { id, .. }) => match self.found.approvals.get(&(tenant, *id)) {
                Some(approval) => approval.spend(decision.id),
                None => return,
            },
        };
        self.put_approval(tenant, after);
    }

    /// What a decision says. What it costs is held.
    fn word(&mut self, tenant: TenantId, decision: &'p ProposedDecision) -> Worded<'p> {
        let at = self.time_of(tenant);
        match &decision.records {
            Records::Worded(wording) => Worded::Before(wording),
            Records::Costed(costed) => Worded::Now(self.found.budgets.word(tenant, costed, at)),
        }
    }

    /// Lets new periods of budgets begin and reservations end whose time is over: by the time of their chain, which is the same
    /// whichever gateway writes to it.
    fn bring_budgets_to_now(&mut self) {
        let (books, time) = (&self.books, self.time);
        let entries = self
            .found
            .budgets
            .bring_to(|tenant| time.at(books.position(tenant)));
        for (tenant, entry) in entries {
            self.link(tenant, &entry);
        }
    }

    fn move_budgets(&mut self, tenant: TenantId, change: &BudgetMove) -> Disposition {
        let at = self.time_of(tenant);
        match self.found.budgets.make_move(tenant, change, at) {
            Err(conflict) => Disposition::Conflict(conflict),
            Ok(Moved::Before(answer)) => Disposition::Repeated(answer),
            Ok(Moved::Now {
                entry,
                thresholds,
                answer,
            }) => {
                let linked = self.link(tenant, &entry);
                self.link_each(tenant, &thresholds);
                linked.recorded_with(answer)
            }
        }
    }

    fn link_each(&mut self, tenant: TenantId, entries: &[ProposedEntry]) {
        for entry in entries {
            self.link(tenant, entry);
        }
    }

    fn change_approval(&mut self, tenant: TenantId, change: &ApprovalChange) -> Disposition {
        let approval = self.found.approvals.get(&(tenant, change.id));
        let changed = approval
            .ok_or(ApprovalConflict::Missing)
            .and_then(|approval| change.apply_to(approval, self.time.clock));
        match changed {
            Ok((after, entry)) => {
                self.put_approval(tenant, after);
                self.link(tenant, &entry).recorded()
            }
            Err(conflict) => Disposition::Conflict(Conflict::Approval(Box::new(conflict))),
        }
    }

    fn put_approval(&mut self, tenant: TenantId, approval: Approval) {
        let key = (tenant, approval.id);
        self.found.approvals.insert(key, approval);
        self.changed_approvals.push(key);
    }

    /// Puts the approvals that were changed into the batch: each once, as it is at the end.
    fn write_approvals(&mut self) {
        for key in std::mem::take(&mut self.changed_approvals) {
            let last = self.found.approvals.remove(&key);
            let written = last.map(|approval| (key.0, approval));
            self.batch.approvals.extend(written);
        }
    }

    /// Erases bodies, each once. Whoever proposes it has seen them in the chain, and there they stay what they were.
    ///
    /// What became of a decision has a digest of it, so it goes in the same commit, also if it was told after the
    /// decision was chosen; and none is told behind that.
    fn erase(
        &mut self,
        tenant: TenantId,
        entry: &ProposedEntry,
        bodies: &[ErasedBody],
        reported: &BTreeSet<DecisionId>,
    ) -> Disposition {
        let erased = self.erased_before(tenant, bodies);
        if !erased.is_empty() {
            return Disposition::Conflict(Conflict::Erased(erased));
        }
        let decisions = || bodies.iter().filter_map(|body| body.outcome);
        let is_unknown = |id: &DecisionId| self.found.outcomes.contains(id) && !reported.contains(id);
        let unknown: BTreeSet<_> = decisions().filter(is_unknown).collect();
        if !unknown.is_empty() {
            return Disposition::Conflict(Conflict::OutcomesUnknown(unknown));
        }
        self.found.outcomes.extend(decisions());
        let linked = self.link(tenant, entry);
        let by = linked.head.seq;
        self.batch.erasures.extend(bodies.iter().map(|body| ErasureRow {
            tenant,
            seq: body.seq,
            body: body.body,
            by,
            request: body.request.clone(),
            outcome: body.outcome,
            approval: body.approval,
            reservation: body.reservation,
        }));
        linked.recorded()
    }

    /// Those of these bodies that were erased before, by this batch or an earlier one.
    fn erased_before(&self, tenant: TenantId, bodies: &[ErasedBody]) -> BTreeSet<u64> {
        let rows = self.batch.erasures.iter().filter(|row| row.tenant == tenant);
        let here: BTreeSet<_> = rows.map(|row| row.seq).collect();
        let is_erased = |seq: &u64| here.contains(seq) || self.found.erased.contains(&(tenant, *seq));
        bodies.iter().map(|body| body.seq).filter(is_erased).collect()
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
        let Some(Ok(frozen)) = found.map(|agent| agent.freeze(reason, self.time.entries)) else {
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

    fn change(&mut self, tenant: TenantId, change: &Change) -> Disposition {
        let linked = self.link(tenant, &change.entry);
        self.write(tenant, &change.writes, change.policies.clone());
        linked.recorded()
    }

    /// Tells of a new tenant in another's chain. That directory counts as changed, so two cannot be announced from one
    /// revision.
    fn announce(&mut self, tenant: TenantId, announcement: &ProposedEntry) {
        self.link(tenant, announcement);
        self.write(tenant, &[], None);
    }

    /// Puts other base policies in force for all tenants, or for none.
    fn replace_base(&mut self, tenant: TenantId, change: &Change, recompiled: &Recompiled) -> Disposition {
        if let Some(behind) = recompiled.missing(&self.books.snapshot).next() {
            return Disposition::Conflict(Conflict::DirectoryMoved {
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
        self.books
            .positions
            .entry(tenant)
            .or_insert(ChainPosition::GENESIS)
            .revision += 1;
        self.batch
            .writes
            .extend(writes.iter().map(|write| (tenant, write.clone())));
        self.changed.insert(tenant);
    }

    fn report_outcome(
        &mut self,
        tenant: TenantId,
        entry: &ProposedEntry,
        decision: DecisionId,
        settling: Option<&Settling>,
    ) -> Disposition {
        if self.found.outcomes.contains(&decision) {
            return Disposition::Conflict(Conflict::OutcomeReported);
        }
        let cost = settling.and_then(|settling| settling.cost.as_ref());
        if cost.is_some_and(|cost| !self.found.budgets.reckoned_with(tenant, cost)) {
            return Disposition::Conflict(Conflict::RunMoved);
        }
        let at = self.time_of(tenant);
        let budgets = &mut self.found.budgets;
        let settled = settling.map(|settling| budgets.settle_outcome(tenant, settling, at));
        let settled = match settled.transpose() {
            Ok(settled) => settled.flatten(),
            Err(conflict) => return Disposition::Conflict(Conflict::Budget(Box::new(conflict))),
        };
        self.found.outcomes.insert(decision);
        let linked = self.link(tenant, settled.as_ref().map_or(entry, |settled| &settled.entry));
        self.batch.outcomes.push(OutcomeRow {
            tenant,
            decision,
            seq: linked.head.seq,
        });
        let Some(settled) = settled else {
            return linked.recorded();
        };
        self.link_each(tenant, &settled.thresholds);
        linked.recorded_with(settled.answer)
    }

    /// Gives an entry its place in the chain and in the tree.
    fn link(&mut self, tenant: TenantId, entry: &ProposedEntry) -> Linked {
        let position = self
            .books
            .positions
            .entry(tenant)
            .or_insert(ChainPosition::GENESIS);
        let at = self.time.at(position);
        let new = NewEntry {
            tenant: &tenant.to_string(),
            kind: entry.kind.as_str(),
            at: &at.to_string(),
            body: entry.body_digest,
        };
        let Appended {
            head,
            prev,
            completed,
        } = position.tip.append(&new, &mut self.scratch);
        position.at = at;
        self.batch.entries.push(EntryRow {
            tenant,
            seq: head.seq,
            kind: entry.kind.as_str(),
            at,
            prev,
            hash: head.hash,
            body: entry.body.clone(),
            body_digest: entry.body_digest,
            nodes: completed,
        });
        Linked {
            tenant,
            head,
            prev,
            at,
        }
    }

    /// Notes how far each tenant has moved since the books from before.
    fn note_advances(&mut self, before: &Books) {
        let moved: BTreeSet<_> = self.batch.entries.iter().map(|entry| entry.tenant).collect();
        self.batch.advances = moved
            .into_iter()
            .map(|tenant| Advance {
                tenant,
                from: before.head(tenant),
                to: self.books.position(tenant).tip.clone(),
                revision: self.books.position(tenant).revision,
            })
            .collect();
    }
}
