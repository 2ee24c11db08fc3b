//! What the load harness and the benchmark player are made of.
//!
//! - [`http`]: a keep-alive HTTP/1.1 client that costs next to nothing;
//!
//! The criterion benches beside this crate time pieces in process and use none of it.

pub mod http;
