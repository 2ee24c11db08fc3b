//! The bodies and the answers of a batch, packed; and how they are read again.
//!
//! Nothing that is read here has been verified, and somebody may have changed it by hand. What cannot be unpacked is given as it
//! stands, so that whoever verifies says that it is not what was recorded, and where.

use super::{Known, RowValues, pack, unpack};
use canon::Digest;
use store::{Batch, DecisionRow, EntryRow};

/// What is bound instead of texts.
pub(crate) struct PackedRows {
    /// As many as there are entries.
    pub(crate) bodies: Vec<Vec<u8>>,
    /// As many as there are decisions.
    pub(crate) answers: Vec<Vec<u8>>,
}

impl PackedRows {
    /// Packs each body, and behind it the answer that is recorded in it.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut bodies = Vec::with_capacity(batch.entries.len());
        let mut answers = Vec::with_capacity(batch.decisions.len());
        // INVARIANT: the decisions of a checked batch stand in the order of their entries.
        let mut decisions = batch.decisions.iter().peekable();
        for entry in &batch.entries {
            let its = |row: &&DecisionRow| (row.tenant, row.seq) == (entry.tenant, entry.seq);
            let Some(decision) = decisions.next_if(its) else {
                bodies.push(pack(entry.body.as_str().as_bytes(), &mut Known::default()));
                continue;
            };
            let mut known = Known::of_nothing();
            bodies.push(pack(entry.body.as_str().as_bytes(), &mut known));
            known.extend(&row_values(entry), &entry.body_digest);
            answers.push(pack(&decision.receipt, &mut known));
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

/// A body, from the two columns of which one has it.
pub(crate) fn body(text: String, packed: Option<&[u8]>) -> String {
    let Some(packed) = packed else { return text };
    let text = unpack(packed, &mut Known::default()).unwrap_or_else(|_| packed.to_vec());
    String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// An answer, given the body and the row of its entry.
pub(crate) fn answer(packed: Vec<u8>, body: &str, row: &RowValues) -> Vec<u8> {
    let mut known = Known::of_body(body);
    known.extend(row, &Digest::of(body.as_bytes()));
    unpack(&packed, &mut known).unwrap_or(packed)
}
