//! What somebody wants recorded: entries of one tenant's chain, what they change, and what must hold for them.

use canon::{Canonical, Digest};
use model::{
    AgentId, Approval, ApprovalId, DecisionId, Name, ReasonCode, ReservationId, TenantId, Verdict, Write,
};
use policy::PolicySet;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{ContentRow, RequestKey};

use crate::approvals::ApprovalChange;
use crate::budgets::cost::Costed;
use crate::budgets::moves::BudgetMove;
use crate::budgets::report::Settling;
use crate::decision::UnsealedAnswer;
use crate::entry_kind::EntryKind;
use crate::quotas::QuotaUse;
use crate::runs::Sighting;
use crate::snapshot::{Recompiled, TenantSnapshot};

/// Entries of one tenant that belong together: all are recorded or none.
pub struct Proposal {
    /// Whose chain.
    pub tenant: TenantId,
    /// The revision of the directory that it was made from. If the directory has moved on, it is not recorded.
    pub revision: u64,
    /// The digest of the base policies that it was made under. If others are in force, it is not recorded.
    pub base: Digest,
    /// What is to be recorded.
    pub intent: Intent,
}

impl Proposal {
    /// A proposal in the chain of this tenant, made from its directory and its policies as they are here.
    pub fn of(tenant: &TenantSnapshot, intent: Intent) -> Self {
        Self {
            tenant: tenant.directory.tenant.id,
            revision: tenant.revision,
            base: tenant.policies.base_digest(),
            intent,
        }
    }

    /// Whether it puts other base policies in force.
    pub const fn replaces_base(&self) -> bool {
        matches!(self.intent, Intent::Base { .. })
    }

    /// Whether an agent wants it, and not people or a job of the gateway.
    pub const fn is_of_an_agent(&self) -> bool {
        match &self.intent {
            Intent::Decision(_) | Intent::Observation(..) | Intent::Misuse(_) | Intent::Outcome { .. } => {
                true
            }
            Intent::Budget(moves) => moves.what.is_of_an_agent(),
            Intent::Change(_)
            | Intent::NewTenant { .. }
            | Intent::Base { .. }
            | Intent::Approval(_)
            | Intent::Erasure { .. } => false,
        }
    }

    /// How long it is where that goes by what somebody has sent: the bodies of its entries, its answer, and what people
    /// are shown. What they say of budgets is not counted, see [`Self::tallies`], nor is what a decision names by its
    /// digest: many name the same, and a batch has it once.
    pub fn bytes(&self) -> usize {
        match &self.intent {
            Intent::Decision(decision) => decision.bytes(),
            Intent::Change(change) | Intent::Base { change, .. } => change.entry.bytes(),
            Intent::NewTenant {
                announcement, change, ..
            } => announcement.bytes() + change.entry.bytes(),
            Intent::Observation(entry, _)
            | Intent::Misuse(entry)
            | Intent::Erasure { entry, .. }
            | Intent::Outcome { entry, .. } => entry.bytes(),
            // Both are short, and worded when they are recorded.
            Intent::Approval(_) | Intent::Budget(_) => 0,
        }
    }

    /// What it counts in, where an agent wants it.
    pub fn tallies(&self) -> Tallies {
        match &self.intent {
            Intent::Decision(decision) => decision.tallies(),
            Intent::Budget(moves) => Tallies::of_budgets(moves.what.budgets_max()),
            Intent::Outcome { settling, .. } => {
                Tallies::of_budgets(settling.as_deref().map_or(0, Settling::budgets_max))
            }
            _ => Tallies::default(),
        }
    }
}

/// What a proposal counts in. Each of these is looked up for its commit, named or shown in its records, and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tallies {
    /// In how many counters of quotas.
    pub quotas: usize,
    /// In how many budgets at most. In how many it does is known when it is recorded.
    pub budgets_max: usize,
}

impl Tallies {
    fn of_budgets(budgets_max: usize) -> Self {
        Self {
            budgets_max,
            ..Self::default()
        }
    }
}

/// What a proposal is to record, and what it changes.
pub enum Intent {
    /// An ask was judged.
    Decision(Box<ProposedDecision>),
    /// The directory changes.
    Change(Change),
    /// A tenant is made: the change begins its own chain, and the chain of the proposal tells of it.
    NewTenant {
        /// The new tenant.
        tenant: TenantId,
        /// The entry in the chain of the proposal.
        announcement: ProposedEntry,
        /// The first entry of the new chain, and what is written.
        change: Change,
    },
    /// Other base policies are put in force for all tenants. The chain of the proposal, the system tenant's, tells of it.
    Base {
        /// The entry, and what is written.
        change: Change,
        /// The policies of all tenants under the new ones. If anything that they are compiled from has changed since, nothing is
        /// recorded.
        recompiled: Arc<Recompiled>,
    },
    /// People vote on an approval, or its time is over.
    Approval(ApprovalChange),
    /// Budgets move.
    Budget(Box<BudgetMove>),
    /// Somebody says what a run has seen.
    Observation(ProposedEntry, Sighting),
    /// An agent has tried to use an approval that is not its own, or not for this. Nothing else changes.
    Misuse(ProposedEntry),
    /// Bodies are erased.
    Erasure {
        /// The entry that tells of it.
        entry: ProposedEntry,
        /// Which.
        bodies: Vec<ErasedBody>,
        /// Decisions of which it is known that they have an outcome: it is among the bodies, or gone.
        reported: BTreeSet<DecisionId>,
    },
    /// An agent said what became of a decision.
    Outcome {
        /// The entry.
        entry: ProposedEntry,
        /// The decision it is about.
        decision: DecisionId,
        /// Whether something else was done than what was decided.
        mismatch: bool,
        /// What it may settle. The entry is written anew if it does.
        settling: Option<Box<Settling>>,
    },
}

/// An entry that waits for its place in the chain.
pub struct ProposedEntry {
    /// What kind of thing happened.
    pub kind: EntryKind,
    /// What happened.
    pub body: Canonical,
    /// SHA-256 of the body, taken off the sequencer.
    pub body_digest: Digest,
}

impl ProposedEntry {
    /// An entry with this body.
    pub fn new(kind: EntryKind, body: Canonical) -> Self {
        Self {
            kind,
            body_digest: body.digest(),
            body,
        }
    }

    fn bytes(&self) -> usize {
        self.body.as_bytes().len()
    }
}

/// A body that is to be erased, and by what the rest of what it told is found.
#[derive(Debug, Clone)]
pub struct ErasedBody {
    /// Whose.
    pub seq: u64,
    /// Its digest.
    pub body: Digest,
    /// What the agent called the ask.
    pub request: Option<(AgentId, Name)>,
    /// The decision that it told, of which nobody can report an outcome any more.
    pub outcome: Option<DecisionId>,
    /// What people were asked.
    pub approval: Option<ApprovalId>,
    /// What was held for it, and is not any more.
    pub reservation: Option<ReservationId>,
}

/// A change of the directory.
pub struct Change {
    /// The entry that tells of it.
    pub entry: ProposedEntry,
    /// What is written.
    pub writes: Vec<Write>,
    /// The policies compiled against the directory after the change, where it makes a difference to them; for a new
    /// tenant always.
    pub policies: Option<Arc<PolicySet>>,
}

/// Which earlier answers to the same request may be given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatRule {
    /// Any.
    Any,
    /// Only denials: where somebody or something was taken out of service or taken away, or a definition is held,
    /// nobody gets yesterday's allow.
    DenialsOnly,
}

impl RepeatRule {
    /// Whether an earlier answer with this verdict may be given again.
    pub fn permits(self, earlier: Verdict) -> bool {
        self == Self::Any || earlier == Verdict::Deny
    }
}

/// What an agent calls an ask, so that it has one answer.
pub struct NamedRequest {
    /// Its request id, and whose it is.
    pub key: RequestKey,
    /// The digest of the ask: another ask under this id is refused.
    pub ask: Digest,
    /// Which earlier answers will do.
    pub repeat: RepeatRule,
}

/// What a decision has to do with an approval.
pub enum ApprovalUse {
    /// It asks people for this one.
    Asks(Box<Approval>),
    /// It uses one up.
    Spends {
        /// Which.
        id: ApprovalId,
        /// For which user.
        user: Option<Name>,
        /// The digest of the action.
        action: Digest,
    },
}

/// What the records of a decision say.
pub struct Wording {
    /// Its entry.
    pub entry: ProposedEntry,
    /// The answer up to its receipt, which only the sequencer can write.
    pub answer: UnsealedAnswer,
    /// What was decided, and why.
    pub reason: ReasonCode,
}

/// The records of a decision, as far as they can be known before it has its place.
pub enum Records {
    /// This is what they say.
    Worded(Wording),
    /// It costs something: what they say depends on what budgets have left when it is recorded.
    Costed(Box<Costed>),
}

impl Records {
    /// What it costs, if what they say depends on that.
    pub const fn costed(&self) -> Option<&Costed> {
        match self {
            Self::Worded(_) => None,
            Self::Costed(costed) => Some(costed),
        }
    }

    /// What was decided when it was judged, and why.
    pub const fn reason(&self) -> ReasonCode {
        match self {
            Self::Worded(wording) => wording.reason,
            Self::Costed(costed) => costed.judgement.reason,
        }
    }

    /// How long they are. What is not worded yet says as much as its ask, about, what was found, once in its entry and
    /// once in its answer, and what budgets have left, which is not counted here.
    fn bytes(&self) -> usize {
        match self {
            Self::Worded(wording) => wording.entry.bytes() + wording.answer.bytes(),
            Self::Costed(costed) => costed.ask.bytes + 2 * costed.judgement.bytes(),
        }
    }
}

/// A decision that waits for its place in the chain.
pub struct ProposedDecision {
    /// What is recorded and answered.
    pub records: Records,
    /// Its id.
    pub id: DecisionId,
    /// Who asked.
    pub agent: AgentId,
    /// For which tool.
    pub tool: Name,
    /// For which action.
    pub action: Name,
    /// The run it was part of: of an ask that names only who started it, that one.
    pub run_id: Option<Name>,
    /// What the agent calls the ask, if it names it.
    pub request: Option<NamedRequest>,
    /// What it has to do with an approval.
    pub approval: Option<ApprovalUse>,
    /// What it shows to its run, if that is kept.
    pub sighting: Option<Sighting>,
    /// The quotas that it counts towards.
    pub quotas: Vec<QuotaUse>,
    /// Why the agent is to be frozen in the same commit, if it is.
    pub quarantine: Option<String>,
    /// What policies on trial would have said, where they would have said something else: it is counted once it is recorded.
    pub shadow: Option<Verdict>,
    /// What the entry names by its digest, as far as it is not known to be stored.
    pub contents: Vec<ContentRow>,
}

impl ProposedDecision {
    fn tallies(&self) -> Tallies {
        let costed = self.records.costed();
        Tallies {
            quotas: self.quotas.len(),
            budgets_max: costed.map_or(0, |costed| costed.hold.cost.subject.scopes_max()),
        }
    }

    fn bytes(&self) -> usize {
        let shown = match &self.approval {
            Some(ApprovalUse::Asks(approval)) => {
                let request = &approval.request;
                let sources = request.sources.iter();
                let sources = sources.map(|(pointer, level)| pointer.len() + level.as_str().len());
                request.parameters.as_ref().map_or(0, String::len) + sources.sum::<usize>()
            }
            _ => 0,
        };
        self.records.bytes() + shown
    }
}
