//! The crate that compiles Cedar (policy-diff is the only other one that knows it): it makes a schema from the tool registry,
//! validates and compiles policies against it, and rules on questions.
//!
//! A map of the crate, in the order in which a policy travels:
//! - [`base`], [`tenant`]: the texts that policies come from;
//! - `text`: how long and how deep a text may be;
//! - `parse`, `link`, `statement`, `condition`, `annotations`: single policies, each with its id and what its
//!   annotations ask for;
//! - `json_schema`, [`schema`], `validate`, `nobody`: the Cedar schema of a registry, and validation against it;
//! - `read_set`, `like`, `comparison`, `guard`, `index`: what policies read, how long their patterns and comparisons can
//!   take, and which of them can be about an ask;
//! - `entry`: a policy as it stands in the text that the digest of a set is of;
//! - `vocabulary`, `cache`, [`compile`], [`set`], `together`: everything together, as an immutable [`PolicySet`], and
//!   what there is too much of in it;
//! - [`question`], `extent`, `parameters`, `input`, `facts`, `members`, `context`: what is asked, in Cedar's terms;
//! - `fuel`: how much work a question may be, counted before it is done;
//! - `evaluate`, `case`, `obligations`, `approvers`, `rule`, [`read`], [`ruling`]: the answer;
//! - [`explain`]: the answer with everything that led to it;
//! - [`mod@slice`], [`asks`], [`listing`]: a set cut up for whoever compares sets: what policies say about an action, what
//!   holds for every ask, and which policies there are;
//! - [`diagnostics`]: what is wrong with a text, and where; [`format()`]: a text laid out;
//! - [`suite`]: asks with the verdicts that are expected of them, from plain files;
//! - [`probe()`]: the question that must be denied before anything is served.
//!
//! It does no I/O and reads no clock. Of budgets and quotas it knows only how much is used (`Usage`), of approvals only that
//! they are asked for, and of whom.

pub mod asks;
pub mod base;
pub mod compile;
pub mod diagnostics;
pub mod explain;
pub mod listing;
pub mod probe;
pub mod question;
pub mod read;
pub mod ruling;
pub mod schema;
pub mod set;
pub mod slice;
pub mod suite;
pub mod tenant;

mod annotations;
mod approvers;
mod cache;
mod case;
mod comparison;
mod condition;
mod context;
mod entry;
mod evaluate;
mod extent;
mod facts;
mod format;
mod fuel;
mod guard;
mod index;
mod input;
mod json_schema;
mod like;
mod link;
mod members;
mod nobody;
mod obligations;
mod parameters;
mod parse;
mod read_set;
mod rule;
mod statement;
mod text;
mod together;
mod validate;
mod vocabulary;

pub use approvers::Approvers;
pub use base::BasePolicies;
pub use compile::{Candidate, Compiler, Registry, TenantPermits};
pub use diagnostics::{Diagnostic, Diagnostics, Place, Severity};
pub use explain::{Explanation, Outcome, PolicyOutcome, Request};
pub use format::{FORMAT_BYTES_MAX, FORMAT_STACK_BYTES, format};
pub use fuel::Fuel;
pub use like::PATTERN_LENGTH_MAX;
pub use listing::{Listed, Listing};
pub use probe::{ProbeFailure, probe};
pub use question::{Fact, Question, RunFacts, Unanswerable, UserFacts};
pub use read::ReadQuestion;
pub use rule::Blind;
pub use ruling::{Obligation, PolicyFault, PolicyId, Ruling, Rulings};
pub use schema::{SchemaError, SchemaTexts};
pub use set::PolicySet;
pub use slice::{ActionSide, Effect, Ground, Part, Principals, Slice, Slicer, TooMuch};
pub use suite::{Report, Suite, SuiteError, SuiteTexts, TestResult};
pub use tenant::{
    CANARY_AGENTS_MAX, GROUPS_BYTES_MAX, IDS_BYTES_MAX, IN_FORCE_BYTES_MAX, LINKED_BYTES_MAX, LINKS_MAX,
    Link, Mode, NAMED_MAX, STATEMENTS_MAX, SlotValues, TenantPolicy,
};
pub use text::{DEPTH_MAX, NESTING_MAX, POLICY_BYTES_MAX};

// Unit tests share a fixture with the tests outside, which call the crate by its name.
#[cfg(test)]
extern crate self as policy;
#[cfg(test)]
#[path = "../tests/world/world.rs"]
mod world;
