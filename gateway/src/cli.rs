//! The commands of the program.

pub mod demo;
pub mod operator_key;
pub mod serve;
pub mod verify;
