//! The commands of the program.

pub mod budgets;
pub mod check_config;
mod clock;
pub mod copy;
pub mod demo;
pub mod json_lines;
pub mod migrate;
pub mod operator_key;
pub mod policy_test;
pub mod rotate_key;
pub mod serve;
mod stopping;
pub mod verify;
pub mod witness;
