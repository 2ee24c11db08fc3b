//! Tokens and requests that are signed here and verified by the crate.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod flips;
mod hand;
mod issuers;
mod keys;
mod provenance;
mod requests;
mod times;
