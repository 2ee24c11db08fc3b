//! What is answered when two sets are compared.

use canon::Digest;
use model::{Name, SlashFreeName};
use policy::{ActionSide, Ruling};
use serde::Serialize;
use serde_json::Value;

/// How two sets differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The digest of the set in force.
    pub in_force_digest: Digest,
    /// The digest of the candidate.
    pub candidate_digest: Digest,
    /// Which policies differ.
    pub policies: Differences,
    /// How far the rest was proven.
    pub proof: Proof,
    /// Whether the candidate allows anything more: an ask gets an allow in place of anything else, or is no longer denied.
    pub allows_more: Direction,
    /// Whether it allows anything less.
    pub allows_less: Direction,
    /// What is odd about the candidate.
    pub findings: Vec<Finding>,
}

/// Which policies differ, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Only in the candidate.
    pub added: Vec<Policy>,
    /// Only in force.
    pub removed: Vec<Policy>,
    /// In both, with another text, other links or another mode.
    pub changed: Vec<Policy>,
    /// Whether there are more than are listed.
    pub truncated: bool,
}

/// A policy of a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Policy {
    /// Its id.
    pub id: String,
    /// The word of its mode; that of the candidate if it changed.
    pub mode: &'static str,
}

/// How far a comparison was proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Whether there is a solver.
    pub available: bool,
    /// Which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solver: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How many sides of actions the policies that differ are about.
    pub actions: usize,
    /// Whether everything that was asked of the solver was answered.
    pub complete: bool,
}

/// An answer to the question whether there is an ask of some kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// There is one, and it was tried.
    Yes,
    /// There is none: that is proven.
    No,
    /// Nobody knows.
    Unknown,
}

/// Whether a candidate is different in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Direction {
    /// Whether it is.
    pub answer: Answer,
    /// Asks that show it, for each action at most one of each kind.
    pub examples: Vec<Example>,
    /// Whether there are more than are listed.
    pub truncated: bool,
    /// For which actions nobody knows.
    pub unknown: Vec<Unproven>,
}

/// An ask that two sets answer differently.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    /// The actions that it stands for: for each of them it is answered in the same way.
    pub actions: Actions,
    /// The ask.
    pub ask: Value,
    /// What the policies in force say to it.
    pub before: Answered,
    /// What the candidate says.
    pub after: Answered,
}

/// What policies say to an ask.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answered {
    /// The verdict.
    pub decision: &'static str,
    /// Why, as a code.
    pub reason_code: &'static str,
    /// Why, in words.
    pub reason: String,
    /// The policies that made it so.
    pub matched_policies: Vec<String>,
}

/// Actions for which something was not found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unproven {
    /// Which.
    pub actions: Actions,
    /// Why not.
    pub why: String,
}

/// Sides of actions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Actions {
    /// Some of them, sorted.
    pub some: Vec<Side>,
    /// How many there are.
    pub count: usize,
}

/// A side of an action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Side {
    /// The tool.
    pub tool: SlashFreeName,
    /// Its action.
    pub action: Name,
    /// Whether asks count as changing something, by the registry or because they say so.
    pub mutates_state: bool,
}

/// Something odd about a candidate. It is about what the candidate changes, and proven.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// No ask for these actions is allowed, nor let through to somebody who could approve it.
    AlwaysDenies {
        /// Which.
        actions: Actions,
    },
    /// No ask satisfies the policy.
    NeverMatches {
        /// Which.
        policy: String,
    },
    /// Everything that the policy permits is forbidden.
    Shadowed {
        /// Which.
        policy: String,
        /// By which policies together. None of them can be left out.
        by: Vec<String>,
    },
    /// The policy fails for an ask.
    CanError {
        /// Which.
        policy: String,
        /// For this one.
        ask: Value,
    },
}

impl Actions {
    /// How many are listed.
    const LISTED_MAX: usize = 20;

    pub(crate) fn of<'a>(sides: impl IntoIterator<Item = &'a ActionSide>) -> Self {
        let mut all: Vec<_> = sides.into_iter().map(Side::from).collect();
        all.sort();
        let count = all.len();
        all.truncate(Self::LISTED_MAX);
        Self { some: all, count }
    }
}

impl From<&ActionSide> for Side {
    fn from(side: &ActionSide) -> Self {
        Self {
            tool: side.tool.clone(),
            action: side.action.clone(),
            mutates_state: side.mutates,
        }
    }
}

impl From<&Ruling> for Answered {
    fn from(ruling: &Ruling) -> Self {
        Self {
            decision: ruling.verdict().as_str(),
            reason_code: ruling.reason.as_str(),
            reason: ruling.explanation.clone(),
            matched_policies: ruling.matched.iter().map(ToString::to_string).collect(),
        }
    }
}
