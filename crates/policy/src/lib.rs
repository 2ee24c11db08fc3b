//! The only crate that knows Cedar.
