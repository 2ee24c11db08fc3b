//! The operator's base policies, which are a ceiling for every tenant.

use crate::diagnostics::Diagnostics;
use crate::parse::{self, Parsed};
use crate::ruling::PolicyId;
use std::sync::Arc;

/// The operator's base policies, parsed. Whether they fit a registry is decided when they are compiled with it.
/// Cloning shares them.
#[derive(Debug, Clone)]
pub struct BasePolicies {
    pub(crate) policies: Arc<[Parsed]>,
}

impl BasePolicies {
    /// The base policies that come with the binary.
    pub const SHIPPED: &str = include_str!("../../../policies.cedar");

    /// The base policies in this text.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        let policies = parse::parse(PolicyId::BASE, text, &[])?;
        Ok(Self {
            policies: policies.into(),
        })
    }

    /// The base policies that come with the binary, parsed.
    pub fn shipped() -> Self {
        Self::parse(Self::SHIPPED).expect("a test parses the same text")
    }
}
