//! Tells cargo that the migrations are part of this crate: without it a new file among them would not be compiled in.

fn main() {
    println!("cargo::rerun-if-changed=../../migrations/postgres");
}
