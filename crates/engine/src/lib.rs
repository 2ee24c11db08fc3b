//! The pure decisions: judge one ask, apply one batch.
