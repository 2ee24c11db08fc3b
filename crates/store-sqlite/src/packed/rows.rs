//! The bodies and the answers of a batch, packed.

use super::{Known, RowValues, pack};
use store::{Batch, EntryRow};

/// What is bound instead of texts.
pub(crate) struct PackedRows {
    /// As many as there are entries.
    pub(crate) bodies: Vec<Vec<u8>>,
    /// As many as there are decisions.
    pub(crate) answers: Vec<Vec<u8>>,
}

impl PackedRows {
    /// Packs each body, and behind it the answer that is recorded in it, which names what it has in common with it.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut bodies = Vec::with_capacity(batch.entries.len());
        let mut answers = Vec::with_capacity(batch.decisions.len());
        // INVARIANT: the decisions of a checked batch stand in the order of their entries.
        let mut decisions = batch.decisions.iter().peekable();
        for entry in &batch.entries {
            let mut known = Known::default();
            bodies.push(pack(entry.body.as_str().as_bytes(), &mut known));
            let its =
                |decision: &&store::DecisionRow| (decision.tenant, decision.seq) == (entry.tenant, entry.seq);
            if let Some(decision) = decisions.next_if(its) {
                known.extend(&row_values(entry));
                answers.push(pack(&decision.receipt, &mut known));
            }
        }
        Self { bodies, answers }
    }
}

fn row_values(entry: &EntryRow) -> RowValues {
    RowValues {
        tenant: entry.tenant,
        at: entry.at,
        prev: entry.prev,
        hash: entry.hash,
    }
}
