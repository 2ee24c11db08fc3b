//! The Countersign server.
