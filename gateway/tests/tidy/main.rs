//! Facts about the shape of this repository that a compiler does not hold up. Each failure names the file and what to do.
//!
//! It reads files as text, and of the program only the table of routes and the reason codes. What rustfmt and clippy
//! check is not checked here.

mod documents;
mod packages;
mod sources;
mod tree;
mod upkeep;
