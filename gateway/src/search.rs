//! Finding decisions by what they say, without a commit having paid for it.
//!
//! - [`job`]: puts finished blocks of ledgers into the index, afterwards;
//! - [`page`]: a page of what is looked for: from the index where a block is in it, otherwise from the ledger.

pub mod job;
pub mod page;
