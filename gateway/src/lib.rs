//! The Countersign server.
//!
//! Features are folders and an endpoint is a file. Where to begin:
//! - [`router`]: every route in one table; [`app`]: the application that they make;
//! - [`authorize`]: the life of an authorization, top to bottom; [`authzen`]: the same in the words of a standard;
//! - [`limits`] and [`repeats`]: who asks too often, and who asks the same again; [`approvals`]: whom people let go on;
//! - [`outcome`] and [`observations`]: what agents tell afterwards; [`containment`]: what is done about those of whom
//!   too much is told;
//! - [`admission`]: how many asks are in here at once; [`slow_lane`]: where those of floods are answered;
//!   [`worker_steps`]: how much of the workers each tenant takes; `yielding`: letting others in between many asks;
//! - [`sequencer`]: the one task that writes; [`recording`]: what is made again where the directory has moved on before
//!   it was written;
//! - [`follower`]: how what other gateways change comes into force here; [`uptime`]: a clock that goes on while the
//!   machine sleeps, by which the age of what is known is told;
//! - [`may_answer`]: whether this gateway may answer: what it knows is recent enough, no witness contradicts it, and
//!   its store is still there;
//! - [`changes`] and [`directory`]: how tenants, agents, tools and keys change;
//! - [`base`]: how the base policies are read, and read again;
//! - [`policies`]: how a tenant's policies change, and are tried before; [`compiling`]: how they come into a
//!   form to judge by; [`fair_semaphore`]: who waits for what many want at once;
//! - [`budgets`] and [`reservations`]: what may be spent, and what of it is held;
//! - [`records`]: reading back what was decided; [`reader`]: who reads, and where they wait; [`watch`]: verifying it
//!   without being asked;
//! - [`search`]: finding decisions;
//! - [`fairness_key`]: who has a share together of what tenants share; [`single_flight`]: one read of the store for all
//!   who ask at once; `locks`: taking locks whose holder may have panicked; `generations`: what is known for a while;
//! - [`runtimes`]: what all tasks run on; [`background`]: the thread for what nobody waits for;
//! - [`jobs`]: what is done every now and then; [`ending`]: writing down what has ended of many tenants;
//!   [`turns`]: of whom first; [`guarded_clock`]: what time it is for what they do for good;
//! - [`live`]: following the ledger as it grows; `outgoing`: what else is streamed, and whether it is taken;
//!   [`tenant_places`]: how many of either there are;
//! - [`signing`]: the keys that answers and ledgers are signed with;
//! - [`cosigning`]: witnesses, who see where the ledgers end;
//! - [`witness`]: a witness of our own, which is another program in the same binary;
//! - [`listeners`]: where all of it is reached; [`connections`]: what comes in there;
//! - [`http`]: callers, bodies, refusals and pages;
//! - [`gateway`] and [`snapshot`]: what all handlers share, and what is in force; [`start`] and [`stores`]: how both come to be;
//! - [`operation`], [`metrics`] and [`whoami`]: whether it is well, what it has counted, and who is asking;
//!   [`causes`]: what is told of an error; `seldom`: what is not told each time;
//! - [`config`] and [`cli`]: how it is started.

pub mod admission;
pub mod app;
pub mod approvals;
pub mod authorize;
pub mod authzen;
pub mod background;
pub mod base;
pub mod budgets;
pub mod causes;
pub mod changes;
pub mod cli;
pub mod compiling;
pub mod config;
pub mod connections;
pub mod containment;
pub mod cosigning;
pub mod directory;
pub mod ending;
pub mod fair_semaphore;
pub mod fairness_key;
pub mod follower;
pub mod gateway;
mod generations;
pub mod guarded_clock;
pub mod http;
pub mod jobs;
pub mod limits;
pub mod listeners;
pub mod live;
mod locks;
pub mod may_answer;
pub mod metrics;
pub mod observations;
pub mod operation;
pub mod outcome;
mod outgoing;
pub mod policies;
pub mod reader;
pub mod recording;
pub mod records;
pub mod repeats;
pub mod reservations;
pub mod router;
pub mod runtimes;
pub mod search;
mod seldom;
pub mod sequencer;
pub mod signing;
pub mod single_flight;
pub mod slow_lane;
pub mod snapshot;
pub mod start;
pub mod stores;
pub mod tenant_places;
pub mod turns;
pub mod uptime;
pub mod watch;
pub mod whoami;
pub mod witness;
pub mod worker_steps;
mod yielding;
