//! The Countersign server.
//!
//! Features are folders and an endpoint is a file. Where to begin:
//! - [`router`]: every route in one table;
//! - [`authorize`]: the life of an authorization, top to bottom;
//! - [`admission`]: how many asks are in here at once;
//! - [`sequencer`]: the one task that writes;
//! - [`follower`]: how what other gateways change comes into force here;
//! - [`changes`] and [`directory`]: how tenants, agents, tools and keys change;
//! - [`base`]: how the base policies are read, and read again;
//! - [`policies`]: how a tenant's policies change, and are tried before;
//! - [`budgets`] and [`reservations`]: what may be spent, and what of it is held;
//! - [`records`]: reading back what was decided; [`watch`]: verifying it without being asked;
//! - [`search`]: finding decisions;
//! - [`live`]: following the ledger as it grows;
//! - [`signing`]: the keys that answers and ledgers are signed with;
//! - [`cosigning`]: witnesses, who see where the ledgers end;
//! - [`witness`]: a witness of our own, which is another program in the same binary;
//! - [`doors`]: where all of it is reached;
//! - [`http`]: callers, bodies, refusals and pages;
//! - [`config`] and [`cli`]: how it is started.

pub mod admission;
pub mod approvals;
pub mod authorize;
pub mod base;
pub mod budgets;
pub mod changes;
pub mod cli;
pub mod config;
pub mod containment;
pub mod cosigning;
pub mod directory;
pub mod doors;
pub mod follower;
pub mod gateway;
pub mod http;
pub mod jobs;
pub mod limits;
pub mod live;
pub mod metrics;
pub mod observations;
pub mod operation;
pub mod outcome;
pub mod policies;
pub mod records;
pub mod replays;
pub mod reservations;
pub mod router;
pub mod search;
pub mod sequencer;
pub mod signing;
pub mod snapshot;
pub mod start;
pub mod stores;
pub mod watch;
pub mod whoami;
pub mod witness;
