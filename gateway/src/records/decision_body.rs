//! What the entry of a decision tells, and whether its row and its receipt tell the same.

use canon::Digest;
use engine::EntryKind;
use ledger::receipt::{Receipt, SignedAnswer};
use serde::Deserialize;
use std::borrow::Cow;
use store::{StoredDecision, StoredEntry};

/// The members of a decision's body that stand somewhere else too.
#[derive(Debug, Deserialize)]
pub(super) struct DecisionBody<'a> {
    #[serde(borrow)]
    decision_id: Cow<'a, str>,
    #[serde(borrow)]
    agent: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    action: Cow<'a, str>,
    #[serde(borrow)]
    reason_code: Cow<'a, str>,
    #[serde(borrow)]
    run_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    parent_run_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    request_id: Option<Cow<'a, str>>,
    answer_hash: Digest,
}

/// Whether entries of this kind tell of a decision.
pub(super) fn is_decision(kind: &str) -> bool {
    kind == EntryKind::Decision.as_str()
}

impl<'a> DecisionBody<'a> {
    /// Reads the body of a decision's entry.
    pub(super) fn read(body: &'a str) -> Result<Self, String> {
        // What is wrong with it in the words of the parser could quote what is in it.
        serde_json::from_str(body).map_err(|error| {
            let at = error.column();
            format!("the entry does not tell of a decision as decisions are told of, at byte {at}")
        })
    }

    /// Whether the row says the same.
    pub(super) fn agrees_with(&self, row: &StoredDecision) -> Result<(), String> {
        let (id, agent) = (row.id.to_string(), row.agent.to_string());
        let run_id = row.run_id.as_ref().map(model::Name::as_str);
        for (column, stored, told) in [
            ("decision_id", Some(id.as_str()), Some(&*self.decision_id)),
            ("agent", Some(agent.as_str()), Some(&*self.agent)),
            ("tool", Some(row.tool.as_str()), Some(&*self.tool)),
            ("action", Some(row.action.as_str()), Some(&*self.action)),
            ("reason_code", Some(row.reason.as_str()), Some(&*self.reason_code)),
            ("run_id", run_id, self.run(run_id.is_some())),
        ] {
            if stored != told {
                let quoted =
                    |value: Option<&str>| value.map_or("nothing".to_owned(), |value| format!("`{value}`"));
                return Err(format!(
                    "`{column}` of the decision is {}, but its entry says {}",
                    quoted(stored),
                    quoted(told)
                ));
            }
        }
        // The other way round it is right where the id keeps standing for an earlier decision.
        if row.ask.is_some() && self.request_id.is_none() {
            return Err("`ask` of the decision is there, but its entry names no `request_id`".to_owned());
        }
        Ok(())
    }

    /// The run that the row should name: that of the ask, see [`engine::Ask::run`]. `is_named` says whether the row
    /// names one. If the ask has only `parent_run_id`, it need not, because earlier versions left it out.
    fn run(&self, is_named: bool) -> Option<&str> {
        let parent = self.parent_run_id.as_deref().filter(|_| is_named);
        self.run_id.as_deref().or(parent)
    }

    /// Whether the receipt is the answer that the entry names, and says of the entry what it is. Who has signed it is not
    /// looked at here.
    pub(super) fn is_answered_by(
        &self,
        receipt: &[u8],
        tenant: &str,
        entry: &StoredEntry,
    ) -> Result<SignedAnswer, String> {
        let signed = SignedAnswer::read(receipt).map_err(|fault| fault.to_string())?;
        if signed.answer_hash() != self.answer_hash {
            return Err("the receipt is not the answer that its entry names".to_owned());
        }
        let at = entry.at.to_string();
        let place = Receipt {
            tenant,
            seq: entry.seq,
            at: &at,
            hash: entry.hash,
            prev: entry.prev,
            body: Digest::of(entry.body.as_bytes()),
        };
        if signed.receipt() != place {
            return Err("the receipt names another place in the ledger than its entry has".to_owned());
        }
        signed.check_path().map_err(|fault| fault.to_string())?;
        Ok(signed)
    }
}
