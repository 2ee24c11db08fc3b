//! The only crate that knows Cedar: it makes a schema from the tool registry, validates and compiles policies against
//! it, and rules on questions.
//!
//! A map of the crate, in the order in which a policy travels:
//! - [`base`] and [`TenantPolicy`]: the texts that policies come from;
//! - `statement`, `annotations`: one policy each, with its id and what its annotations ask for;
//! - `json_schema`, `schema`: the Cedar schema that policies are validated against;
//! - `members`, `split`, `slice`: the policies that one action can meet, and what they look at;
//! - [`compile`]: everything together, as an immutable [`PolicySet`];
//! - [`question`], `parameters`, `input`, `facts`, `context`: what is asked, turned into a Cedar request;
//! - `rule`, [`ruling`]: the answer;
//! - [`diagnostics`]: what is wrong with a text, and where;
//! - [`probe()`]: the question that must be denied before anything is served.
//!
//! It does no I/O, reads no clock, and knows neither budgets nor approvals beyond asking for them.

pub mod base;
pub mod compile;
pub mod diagnostics;
pub mod probe;
pub mod question;
pub mod ruling;

mod annotations;
mod context;
mod facts;
mod input;
mod json_schema;
mod members;
mod parameters;
mod rule;
mod schema;
mod slice;
mod split;
mod statement;

pub use base::{BasePolicies, TenantPolicy};
pub use compile::{PolicySet, Registry};
pub use diagnostics::{Diagnostic, Diagnostics, Place, Severity};
pub use probe::{ProbeFailure, probe};
pub use question::{Question, Unanswerable, UserFacts};
pub use ruling::{ApprovalTerms, Obligation, PolicyFault, PolicyId, Ruling};

// Unit tests share a fixture with the tests outside, which call the crate by its name.
#[cfg(test)]
extern crate self as policy;
