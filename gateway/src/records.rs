//! Reading back what was decided: decisions, audit events, receipts, and the ledger itself.
//!
//! Everything here but [`erase`] reads, and no read transaction outlives one call of the store. Agents see their
//! own decisions and receipts, auditors everything of their tenant.
//!
//! - [`decisions`], [`events`], [`receipts`]: what was recorded, by what it is searched for;
//! - [`head`], [`export`], [`verify`]: the chain; `audit` is what verifying means, `announced` that no ledger is gone as a whole,
//!   `outcomes` that none of a decision is forgotten, `decision_body` that a decision and its receipt say what its entry says;
//! - [`checkpoint`], [`consistency`], [`proof`], [`tiles`]: the tree over it;
//! - [`evidence`]: one file for an auditor;
//! - [`erase`]: taking bodies out of it; `erasures` is what verifies that somebody has told of it;
//! - `file`: the lines of what strangers verify; `anchor`: what they begin with;
//! - `range`, `times`: what these endpoints share. Who reads is in [`reader`](crate::reader).

mod anchor;
mod announced;
pub(crate) mod audit;
pub mod checkpoint;
pub mod consistency;
mod decision_body;
pub mod decisions;
pub mod erase;
mod erasures;
pub mod events;
pub mod evidence;
pub mod export;
mod file;
pub mod head;
mod line;
mod outcomes;
pub mod proof;
pub mod range;
pub mod receipts;
pub mod tiles;
pub(crate) mod times;
pub(crate) mod tree;
pub mod verify;
