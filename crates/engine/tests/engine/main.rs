//! The engine from outside: asks, judgements and batches.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod apply;
mod ask;
mod judge;
mod support;
