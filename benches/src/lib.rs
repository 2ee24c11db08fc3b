//! What the load harness and the benchmark player are made of.
//!
//! - [`address`]: where a gateway listens;
//! - [`http`]: a keep-alive HTTP/1.1 client that costs next to nothing;
//! - [`process`]: a real gateway as a child process;
//! - [`target`]: that one, or one that already runs;
//! - [`client`]: the calls of the public API that set a tenant up and look at its ledger;
//! - [`budgets`]: operations on budgets, and what they come to (`--bin load -- --profile budgets`);
//! - [`load`]: asks as fast as the gateway answers or as are due, and what came of it (`--bin load`);
//! - [`machine`]: where that was, and what it took;
//! - [`play`]: the tool calls of a public agent benchmark, played as their agents would (`--bin play`).
//!
//! The criterion benches beside this crate time pieces in process and use none of it.

pub mod address;
pub mod budgets;
pub mod client;
pub mod http;
pub mod load;
pub mod machine;
pub mod play;
pub mod process;
pub mod target;
