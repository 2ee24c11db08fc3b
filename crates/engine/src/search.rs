//! What decisions are searched by, as an index of them sees it.
//!
//! A decision becomes a handful of [terms], and a stretch of the ledger, a [block], becomes a list for each term
//! that says which of its decisions have it. What a search wants becomes terms too, and what has all of them is found. Such an
//! index only proposes: what it proposes is read from the ledger and compared with what is wanted, so an index that is wrong can
//! miss a decision and never invent one.
//!
//! - [`terms`]: the terms of a decision and of a search;
//! - [`block`]: blocks of the ledger, and the lists of a block;
//! - [`places`]: sets of places in a block;
//! - [`version`]: which version of all this a block is of.

pub mod block;
pub mod places;
pub mod terms;
pub mod version;

pub use block::{BLOCK, Lists, block_of, seqs_of};
pub use places::Places;
pub use terms::{Query, words};
