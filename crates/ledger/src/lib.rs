//! The log as mathematics: entry, chain, verification.
