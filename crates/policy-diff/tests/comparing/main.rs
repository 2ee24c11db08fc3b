//! Two sets compared with the real solver. It has to be there: `apt-get install cvc5`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod bounds;
mod desk;
mod directions;
mod findings;
