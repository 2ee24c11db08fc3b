//! The engine from outside: asks, judgements and batches.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "a JSON literal reads better where it is used without a `&`"
)]

mod apply;
mod ask;
mod budgets;
mod judge;
mod provenance;
mod recount;
mod support;
