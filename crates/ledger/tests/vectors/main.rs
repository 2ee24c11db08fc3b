//! The vectors of `docs/receipt-format.md`: what is in `crates/ledger/vectors`, made anew and compared byte for byte, and
//! every case of it verified. Each case that must fail names what must be found; a verifier that finds something else is
//! wrong, also if it fails.
//!
//! `UPDATE_VECTORS=1` writes the files. They are public: a change of them is a change of the format.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod exports;
mod log;
mod merkle;
mod notes;
mod proofs;
mod receipts;
mod tiles;
mod witness;

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// A file of vectors.
#[derive(Serialize)]
struct File<T> {
    about: &'static str,
    cases: Vec<T>,
}

/// Compares a file with what it must hold, or writes it.
fn agrees<T: Serialize>(name: &str, about: &'static str, cases: Vec<T>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name);
    let text = serde_json::to_string_pretty(&File { about, cases }).unwrap() + "\n";
    if std::env::vars().any(|(name, value)| name == "UPDATE_VECTORS" && value == "1") {
        fs::write(&path, &text).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "{}: it is not what this makes; if the format is to change, run with UPDATE_VECTORS=1",
        path.display()
    );
}

/// What was found, in one word; `None` if everything was right.
type Found = Option<&'static str>;

/// Checks that exactly this was found.
fn finds(name: &str, expected: Found, found: Result<(), &'static str>) {
    assert_eq!(found.err(), expected, "{name}");
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn hashes(hashes: &[canon::Digest]) -> Vec<String> {
    hashes.iter().map(|hash| base64(hash.as_bytes())).collect()
}
