//! The AuthZEN door (OpenID Authorization API 1.0): asks in the words that policy enforcement points of any make use, answered by
//! the same path as `POST /v1/authorize`, limits, ledger and all. What stands for what is in `docs/authzen.md`.

pub mod configuration;
mod entities;
pub mod evaluation;
pub mod search;
