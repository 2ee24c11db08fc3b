//! Salt for the bodies of entries that can be erased.

use canon::ObjectWriter;
use model::Entropy;
use std::fmt::Write as _;

/// 96 random bits that stand in one body and nowhere else. The digest of a body stays when it is erased, and without
/// them somebody who knows most of what it told could guess the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Salt([u8; 12]);

impl Salt {
    /// A salt that nobody has.
    pub fn new(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; 12];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// These bits.
    pub const fn from_bytes(bytes: [u8; 12]) -> Self {
        Self(bytes)
    }

    /// Writes it as the member `salt`. The members of a body stand in the order of their names.
    pub fn write(&self, body: &mut ObjectWriter) {
        let mut text = String::with_capacity(24);
        for byte in self.0 {
            write!(text, "{byte:02x}").expect("writing to a string does not fail");
        }
        body.string("salt", &text);
    }
}
