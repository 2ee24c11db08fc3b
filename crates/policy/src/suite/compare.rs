//! What is expected of an answer, and how it differs.

use crate::approvers::Approvers;
use crate::ruling::{PolicyId, Ruling};
use model::{ReasonCode, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;

/// What is expected of an answer. What is left out is not looked at, but for errors: none are expected.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectation {
    decision: Verdict,
    reason_code: Option<ReasonCode>,
    reason: Option<String>,
    agent_message: Option<String>,
    /// The ids of the policies that determine the answer, all of them.
    policies: Option<BTreeSet<String>>,
    obligations: Option<BTreeSet<String>>,
    approval: Option<Terms>,
    /// The ids of the policies that fail.
    #[serde(default)]
    errors: BTreeSet<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default = "one")]
    quorum: u32,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    also: BTreeSet<Also>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exclude_owner: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Also {
    group: String,
    #[serde(default = "one")]
    quorum: u32,
}

const fn one() -> u32 {
    1
}

/// What is not as expected, in sentences with the JSON of the file.
pub(super) fn differences(expected: &Expectation, ruling: &Ruling) -> Vec<String> {
    let errors: BTreeSet<&PolicyId> = ruling.errors.iter().map(|fault| &fault.policy).collect();
    let approval = ruling.approval.as_ref().map(Approvers::terms);
    let members = [
        ("decision", json!(expected.decision), json!(ruling.verdict())),
        ("reason_code", json!(expected.reason_code), json!(ruling.reason)),
        ("reason", json!(expected.reason), json!(ruling.explanation)),
        (
            "agent_message",
            json!(expected.agent_message),
            json!(ruling.agent_message),
        ),
        ("policies", json!(expected.policies), json!(ruling.matched)),
        (
            "obligations",
            json!(expected.obligations),
            json!(ruling.obligations),
        ),
        ("approval", json!(expected.approval), json!(approval)),
        ("errors", json!(expected.errors), json!(errors)),
    ];
    let differ = members
        .into_iter()
        .filter(|(_, expected, found)| !expected.is_null() && expected != found);
    differ
        .map(|(what, expected, found)| format!("`{what}` should be {expected} and is {found}"))
        .collect()
}
