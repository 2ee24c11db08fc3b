//! The operator's base policies, which are a ceiling for every tenant.

use crate::diagnostics::Diagnostics;
use crate::parse::{self, Parsed};
use crate::ruling::PolicyId;
use crate::set;
use canon::Digest;
use std::sync::Arc;

/// The operator's base policies, parsed. Whether they fit a registry is decided when they are compiled with it.
/// Cloning shares them.
#[derive(Debug, Clone)]
pub struct BasePolicies {
    pub(crate) policies: Arc<[Parsed]>,
    text: Arc<str>,
    digest: Digest,
}

impl BasePolicies {
    /// The base policies that come with the binary.
    pub const SHIPPED: &str = include_str!("../../../policies.cedar");

    /// The base policies in this text.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        let policies = parse::parse(PolicyId::BASE, text, &[])?;
        let statements = policies.iter().map(|parsed| &*parsed.statement);
        Ok(Self {
            digest: set::digest_of(statements.map(|statement| (statement, None))),
            policies: policies.into(),
            text: text.into(),
        })
    }

    /// The base policies that come with the binary, parsed.
    pub fn shipped() -> Self {
        Self::parse(Self::SHIPPED).expect("a test parses the same text")
    }

    /// The text that they were read from.
    pub const fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// What [`crate::PolicySet::digest`] is for a tenant that has no policies of its own.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The ids of all policies, sorted.
    pub fn policy_ids(&self) -> Vec<&PolicyId> {
        self.policies.iter().map(|parsed| &parsed.statement.id).collect()
    }
}
