//! The engine from outside: asks, judgements and batches.

mod apply;
mod ask;
mod judge;
mod support;
