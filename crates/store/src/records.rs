//! What is read back.

use crate::lists::Bulk;
use canon::Digest;
use ledger::Head;
use model::{AgentId, DecisionId, Name, ReasonCode, Timestamp, Verdict};

/// An entry as it was stored. Nothing about it has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its place in the chain.
    pub seq: u64,
    /// What kind of thing happened.
    pub kind: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// The hash of the entry before.
    pub prev: Digest,
    /// The hash of this entry.
    pub hash: Digest,
    /// What happened: canonical JSON; empty if it was erased.
    pub body: String,
    /// The hashes of the subtrees of the ledger's tree that the entry completes, one after the other.
    pub nodes: Vec<u8>,
    /// What is left of a body that was erased.
    pub erased: Option<Erased>,
}

/// What is left of a body that was erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    /// SHA-256 of the body.
    pub body: Digest,
    /// The `seq` of the entry that tells of it.
    pub by: u64,
}

/// A decision as it is searched for, with the body of its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDecision {
    /// The `seq` of its entry.
    pub seq: u64,
    /// Its id.
    pub id: DecisionId,
    /// When it was recorded.
    pub at: Timestamp,
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
    /// The digest of the ask, where the caller gave a request id under which it can come again.
    pub ask: Option<Digest>,
    /// The hash of its entry.
    pub hash: Digest,
    /// The body of its entry: canonical JSON.
    pub body: String,
}

/// An entry with all that stands at its place, as it was at one moment. Nothing about it has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The entry.
    pub entry: StoredEntry,
    /// The decision that is stored at its place.
    pub decision: Option<StoredDecision>,
    /// The bytes that are stored there as those that were handed to the caller.
    pub receipt: Option<Vec<u8>>,
}

/// Where a tenant's ledger ends, with what is stored where no commit can have put it, as it was at one moment. Nothing
/// about it has been verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Where the chain ends, as the last commit wrote it down beside the chain.
    pub head: Head,
    /// When the last entry was recorded, as the last commit wrote it down beside the chain.
    pub head_at: Timestamp,
    /// When the last entry was recorded, as it says itself; none if it is not there.
    pub entry_at: Option<Timestamp>,
    /// The `seq` of the first entry behind the last one, or of one before the first: that is 0.
    pub stray_entry: Option<u64>,
    /// The `seq` of the first decision or receipt there.
    pub stray_answer: Option<u64>,
}

impl Bulk for StoredEntry {
    fn bytes(&self) -> usize {
        self.body.len()
    }
}

impl Bulk for StoredDecision {
    fn bytes(&self) -> usize {
        self.body.len()
    }
}

/// The body is in there twice.
impl Bulk for Recorded {
    fn bytes(&self) -> usize {
        let decision = self.decision.as_ref().map_or(0, Bulk::bytes);
        let receipt = self.receipt.as_ref().map_or(0, Vec::len);
        self.entry.bytes() + decision + receipt
    }
}

/// Which decisions to list. What is absent matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecisionFilter {
    /// Asked by this agent.
    pub agent: Option<AgentId>,
    /// For this tool.
    pub tool: Option<Name>,
    /// For this action.
    pub action: Option<Name>,
    /// With this verdict.
    pub verdict: Option<Verdict>,
    /// For this reason.
    pub reason: Option<ReasonCode>,
    /// In this run.
    pub run_id: Option<Name>,
    /// Recorded at this time or later.
    pub from: Option<Timestamp>,
    /// Recorded before this time.
    pub to: Option<Timestamp>,
    /// Recorded after this entry.
    pub after_seq: Option<u64>,
}
