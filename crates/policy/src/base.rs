//! The texts that policies come from: the operator's base policies, which are a ceiling, and a tenant's own.

use crate::diagnostics::Diagnostics;
use crate::ruling::PolicyId;
use crate::statement::{self, Statement};
use model::SlashFreeName;

/// The operator's base policies, parsed. Whether they fit a registry is decided when they are compiled with it.
#[derive(Debug, Clone)]
pub struct BasePolicies {
    pub(crate) statements: Vec<Statement>,
}

impl BasePolicies {
    /// The base policies that come with the binary.
    pub const SHIPPED: &str = include_str!("../../../policies.cedar");

    /// The base policies in this text.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        let statements = statement::parse(PolicyId::BASE, text)?;
        Ok(Self { statements })
    }

    /// The base policies that come with the binary, parsed.
    pub fn shipped() -> Self {
        Self::parse(Self::SHIPPED).expect("a test parses the same text")
    }
}

/// A policy of a tenant's: a name, and a text with any number of Cedar policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPolicy {
    /// Its name. `base` is the operator's.
    pub name: SlashFreeName,
    /// Its text.
    pub cedar: String,
}
