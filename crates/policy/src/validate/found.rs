//! What is wrong with a policy for the asks that it is checked for: at each place once, and no more than somebody
//! reads.
//!
//! Cedar finds the same thing again for every action. With ten thousand of them a slip in each member of a list would
//! be kept millions of times before all but one for each place are thrown away.

use super::undeclared::Span;
use super::{TOLD_MAX, finding, too_deep};
use crate::diagnostics::{Diagnostic, Severity, said};
use crate::parse::Parsed;
use cedar_policy_core::validator::ValidationError;
use cedar_policy_core::validator::typecheck::PolicyCheck;
use std::collections::BTreeMap;

/// For how many asks is told what is wrong. Those behind them seldom add anything, and Cedar looks for what may have
/// been meant by a misspelt member again for each.
pub(super) const ASKS_TOLD_MAX: usize = 64;

/// What has been found for some asks.
#[derive(Default)]
pub(super) struct Found {
    /// By where Cedar says that it is, if it does.
    told: BTreeMap<Option<Span>, Diagnostic>,
    /// For how many asks something is wrong.
    asks: usize,
    /// Whether Cedar gave up without a word.
    is_cut_short: bool,
}

impl Found {
    /// Whether it is enough for whoever mends the policy, so that no more asks need to be looked at.
    pub(super) fn is_enough(&self) -> bool {
        self.told.len() >= TOLD_MAX || self.asks >= ASKS_TOLD_MAX
    }

    /// Adds what is wrong for one more ask. Whether the ask could satisfy the policy, as far as types tell.
    pub(super) fn add(&mut self, parsed: &Parsed, checked: PolicyCheck) -> bool {
        let (errors, is_wrong, is_satisfiable) = match checked {
            PolicyCheck::Success(_) => (Vec::new(), false, true),
            PolicyCheck::Irrelevant(errors, _) => {
                let is_wrong = !errors.is_empty();
                (errors, is_wrong, false)
            }
            PolicyCheck::Fail(errors) => {
                self.is_cut_short |= errors.is_empty();
                (errors, true, true)
            }
        };
        self.asks += usize::from(is_wrong);
        for error in &errors {
            self.tell(parsed, error);
        }
        is_satisfiable
    }

    /// Of several things at one place, the one whose message comes first is told, in whatever order they are found.
    fn tell(&mut self, parsed: &Parsed, error: &ValidationError) {
        let place = place(error);
        let is_news = match self.told.get(&place) {
            Some(told) => said(error) < told.message,
            None => self.told.len() < TOLD_MAX,
        };
        if is_news {
            self.told.insert(place, finding(parsed, Severity::Error, error));
        }
    }

    /// What to tell, where it is told already whether the policy names what is not known.
    pub(super) fn into_diagnostics(self, parsed: &Parsed, names_unknown: bool) -> Vec<Diagnostic> {
        let mut told: Vec<_> = self.told.into_values().collect();
        if self.is_cut_short && !names_unknown {
            // Cedar stops where the stack ends, and calls the rest fine. So it does at an entity that it does not know,
            // which is told.
            told.push(too_deep(parsed));
        }
        told
    }
}

/// Where Cedar says that it is.
fn place(error: &ValidationError) -> Option<Span> {
    let label = miette::Diagnostic::labels(error)?.next()?;
    Some((label.offset(), label.offset() + label.len()))
}
