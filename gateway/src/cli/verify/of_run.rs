//! Whether the entries in an archive are of the run that its manifest names, as far as they tell. It does not prove
//! that all of that run is there: which bodies are left out is the word of whoever made the archive.

use crate::records::evidence::Whose;
use engine::EntryKind;

/// What stands in place of a body that was erased.
const ERASED: &str = "null";

/// Which run the decisions name, and whether the first and the last entry can be of one.
#[derive(Debug)]
pub(super) struct OfRun {
    /// What the first decision names that has its body and names a run.
    run: Option<String>,
    /// Whether a decision with its body names another one, or none.
    has_others: bool,
    /// Whether the first entry is a decision that is not left out; nothing before there is one.
    begins: Option<bool>,
    /// Whether the last entry is not left out, and a decision or about one unless it was erased.
    ends: bool,
}

impl OfRun {
    pub(super) const fn new() -> Self {
        Self {
            run: None,
            has_others: false,
            begins: None,
            ends: false,
        }
    }

    /// Takes in the next entry. It has no body if that is left out.
    pub(super) fn push(&mut self, kind: &str, body: Option<&str>) {
        let is_decision = kind == EntryKind::Decision.as_str();
        let told = body.filter(|body| *body != ERASED);
        let whose: Whose<'_> = told.and_then(|told| canon::read(told).ok()).unwrap_or_default();
        let is_about_one = is_decision || told.is_none() || whose.decision_id.is_some();
        self.ends = body.is_some() && is_about_one;
        self.begins = self.begins.or(Some(is_decision && body.is_some()));
        if is_decision && told.is_some() {
            self.note(whose.run());
        }
    }

    /// Takes in the run that a decision names.
    fn note(&mut self, run: Option<&str>) {
        let Some(run) = run else {
            self.has_others = true;
            return;
        };
        let known = self.run.get_or_insert_with(|| run.to_owned());
        self.has_others |= *known != run;
    }

    /// Why this cannot be evidence of this run, if it cannot. A gateway begins it with a decision of the run, and ends
    /// it with one or with what was said about one.
    pub(super) fn differs_from(&self, run: &str) -> Option<&'static str> {
        if self.has_others || self.run.as_deref().is_some_and(|named| named != run) {
            return Some("it names a run, and a decision is there that is of another one, or of none");
        }
        if self.begins != Some(true) || !self.ends {
            return Some("it names a run, and the first or the last entry is not of that run");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_of_a_run_begins_and_ends_with_it_and_has_decisions_of_no_other() {
        let decision = "decision";
        let [own, child, of_own, none] = [
            r#"{"run_id":"r"}"#,
            r#"{"parent_run_id":"r","run_id":"child"}"#,
            r#"{"parent_run_id":"r"}"#,
            r#"{"run_id":7}"#,
        ]
        .map(|body| (decision, Some(body)));
        let (erased, left_out) = ((decision, Some("null")), (decision, None));
        let outcome = ("outcome_reported", Some(r#"{"decision_id":"dec_1"}"#));
        let other = ("agent_created", Some("{}"));
        for (entries, is_of_it) in [
            (vec![own], true),
            (vec![own, left_out, other, of_own], true),
            (vec![erased, own, outcome], true),
            (vec![own, erased], true),
            (vec![own, child], false),
            (vec![child], false),
            (vec![own, none, own], false),
            (vec![left_out, own], false),
            (vec![own, left_out], false),
            (vec![outcome, own], false),
            (vec![own, other], false),
            (vec![], false),
        ] {
            let mut found = OfRun::new();
            for (kind, body) in &entries {
                found.push(kind, *body);
            }
            assert_eq!(found.differs_from("r").is_none(), is_of_it, "{entries:?}");
        }
    }
}
