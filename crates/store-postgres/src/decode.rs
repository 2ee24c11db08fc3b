//! From columns to the types they were written from. A value that no version of this program wrote is an error that
//! says which row it stands in; nothing is guessed.

use canon::Digest;
use ledger::merkle::Frontier;
use ledger::{Head, Tip};
use model::{Name, ReasonCode, TenantId};
use sqlx::types::Uuid;
use store::StoreError;

/// Comes behind every id: none of them is all ones.
pub(crate) const BEYOND_IDS: Uuid = Uuid::max();

/// Which row a value came from, to name it in an error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowLabel {
    pub(crate) table: &'static str,
    pub(crate) tenant: TenantId,
    /// The `seq` of its entry; none in a table of tenants or nouns.
    pub(crate) seq: Option<i64>,
}

/// A tenant's id, as it stands in a column.
pub(crate) const fn uuid(tenant: TenantId) -> Uuid {
    Uuid::from_bytes(*tenant.as_bytes())
}

impl RowLabel {
    /// The error for a column of this row.
    pub(crate) fn corrupt(self, column: &str, why: &str) -> StoreError {
        let Self { table, tenant, seq } = self;
        let entry = seq.map_or_else(String::new, |seq| format!("entry {seq} of "));
        StoreError::Corrupt {
            what: format!("`{column}` of {entry}{tenant} in `{table}` {why}"),
        }
    }

    /// The error for a value that is not what it should be from this byte on. The parser's own message is left out,
    /// because it could quote the value.
    pub(crate) fn malformed(self, what: &str, at: usize) -> StoreError {
        self.corrupt("value", &format!("is no {what}, at byte {at}"))
    }

    pub(crate) fn digest(self, column: &str, bytes: &[u8]) -> Result<Digest, StoreError> {
        let bytes = bytes
            .try_into()
            .map_err(|_| self.corrupt(column, "is not 32 bytes"))?;
        Ok(Digest::from_bytes(bytes))
    }

    pub(crate) fn name(self, column: &str, text: &str) -> Result<Name, StoreError> {
        Name::new(text).map_err(|error| self.corrupt(column, &format!("is no name: {error}")))
    }

    pub(crate) fn reason(self, text: &str) -> Result<ReasonCode, StoreError> {
        ReasonCode::from_word(text)
            .ok_or_else(|| self.corrupt("reason", "is no reason code that this program knows"))
    }

    /// The end of a ledger, from where its chain ends and the edge of its tree.
    pub(crate) fn tip(self, head: Head, edge: &[u8]) -> Result<Tip, StoreError> {
        let tree = Frontier::from_bytes(head.seq, edge);
        tree.and_then(|tree| Tip::new(head, tree))
            .ok_or_else(|| self.corrupt("edge", "is not that of a tree with as many entries"))
    }

    pub(crate) fn unsigned(self, column: &str, number: i64) -> Result<u64, StoreError> {
        number.try_into().map_err(|_| self.corrupt(column, "is negative"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: RowLabel = RowLabel {
        table: "decisions",
        tenant: TenantId::SYSTEM,
        seq: Some(7),
    };

    #[test]
    fn what_was_written_is_read_again() {
        for code in ReasonCode::ALL {
            assert_eq!(LABEL.reason(code.as_str()).unwrap(), *code);
        }
        assert_eq!(
            LABEL.digest("hash", &[4; 32]).unwrap(),
            Digest::from_bytes([4; 32])
        );
        assert_eq!(LABEL.name("tool", "github").unwrap().as_str(), "github");
        assert_eq!(LABEL.unsigned("seq", 3).unwrap(), 3);
    }

    #[test]
    fn what_was_never_written_is_named_with_its_row() {
        let errors = [
            LABEL.digest("hash", &[]).map(drop),
            LABEL.name("tool", "a\u{0}b").map(drop),
            LABEL.reason("because").map(drop),
            LABEL.unsigned("seq", -1).map(drop),
            LABEL.tip(Head::GENESIS, &[0; 32]).map(drop),
        ];
        for error in errors {
            let message = error.unwrap_err().to_string();
            let place = "of entry 7 of tnt_00000000000000000000000000 in `decisions`";
            assert!(message.contains(place), "{message}");
        }
    }
}
