//! The operator's base policies, which are a ceiling for every tenant.

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::nobody;
use crate::parse::{self, Parsed};
use crate::ruling::PolicyId;
use crate::set::{self, PolicySet};
use crate::validate::named;
use crate::validate::undeclared::Span;
use canon::Digest;
use std::collections::{BTreeMap, HashSet};
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

    /// What they name that nobody can ever be, whatever tenants have registered.
    pub fn naming_nobody(&self) -> Vec<Diagnostic> {
        nobody::warnings(&self.policies)
    }

    /// Where they ask for what is not known of what they name, whatever tenants have registered.
    pub fn asking_in_vain(&self) -> Vec<Diagnostic> {
        let found = self.policies.iter().flat_map(named::findings);
        found.map(Diagnostic::into_warning).collect()
    }

    /// Their tests for members that nothing has which they are about, whichever tenant it is of, if these are the sets
    /// of all tenants that are compiled under them. What one tenant registers and another one does not is what they
    /// are for.
    pub fn tests_in_vain<'s>(&self, sets: impl Iterator<Item = &'s PolicySet>) -> Vec<&'s Diagnostic> {
        let (mut undeclared, mut declared) = (BTreeMap::new(), HashSet::<Span>::new());
        for set in sets {
            let vocabulary = &set.contents.vocabulary;
            debug_assert_eq!(vocabulary.base.digest, self.digest);
            let found = vocabulary.warnings.iter();
            let found = found.filter(|warning| warning.is_of_undeclared);
            undeclared.extend(found.filter_map(|warning| Some((warning.place?.span(), warning))));
            declared.extend(&vocabulary.declared);
        }
        undeclared.retain(|span, _| !declared.contains(span));
        undeclared.into_values().collect()
    }
}
