//! What one set of policies allows that another one does not, proven by a solver, or shown by an ask.
//!
//! A map of the crate, in the order in which a comparison travels:
//! - [`report`]: what is answered;
//! - `structure`: which policies differ, for which no solver is needed;
//! - `question`: the sides of actions about which the sets say different things, and those that are alike taken together;
//! - `level`: our verdicts as plain Cedar sets, and where that is not possible (`fallible`); in which shape the formulas are
//!   small (`shape`);
//! - `stage`: a schema with nothing in it but what a question is about;
//! - `prover`, `process`, `script`: the solver, the bounds that it works within, and what it is told;
//! - `ask`, `model`, `plainer`: a solver's model as an ask, put to both sets, and made easier to read;
//! - [`diff()`], `directions`, `findings`: everything together.
//!
//! What is told of asks is about policies only: whether parameters fit the action's JSON Schema, grants, limits and the
//! standing of agents and tools is not looked at. Which translation is made, and why it is sound, is decision 9.

mod ask;
mod diff;
mod directions;
mod fallible;
mod findings;
mod level;
mod model;
mod plainer;
mod process;
mod prover;
mod question;
pub mod report;
mod script;
mod shape;
mod stage;
mod structure;

pub use diff::{Broken, Comparison, diff};
pub use prover::{Bounds, Prover, Turn};
pub use report::Report;

// Unit tests share a fixture with the tests outside, which call the crate by its name.
#[cfg(test)]
extern crate self as policy_diff;
#[cfg(test)]
#[path = "../tests/comparing/desk.rs"]
mod desk;
#[cfg(test)]
mod random;
