//! The obligations of one policy, and which of them an ask has anything to do with.

use crate::parameters::Parameters;
use crate::ruling::Obligation;
use std::collections::BTreeSet;

/// The obligations of one policy, sorted and without repetition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Obligations {
    all: Vec<Obligation>,
    /// Whether one of them is about every ask.
    always: bool,
    /// The names of parameters under which there can be anything to redact, sorted. A list of all names of credentials has
    /// two dozen, and most asks have none of them.
    heads: Vec<Box<str>>,
}

impl Obligations {
    pub(crate) fn new(mut all: Vec<Obligation>) -> Self {
        all.sort();
        all.dedup();
        let mut heads = BTreeSet::new();
        let mut always = false;
        for obligation in &all {
            match obligation.parameter() {
                Some(path) => {
                    heads.extend(path.match_indices('.').map(|(dot, _)| path[..dot].into()));
                    heads.insert(path.into());
                }
                None => always = true,
            }
        }
        Self {
            all,
            always,
            heads: heads.into_iter().collect(),
        }
    }

    pub(crate) fn as_slice(&self) -> &[Obligation] {
        &self.all
    }

    /// Those that have something to do: nothing can be redacted that is not there.
    pub(crate) fn about<'o>(
        &'o self,
        parameters: &'o Parameters<'_>,
    ) -> impl Iterator<Item = &'o Obligation> {
        let all = if self.may_concern(parameters) {
            &self.all[..]
        } else {
            &[]
        };
        all.iter().filter(|obligation| match obligation.parameter() {
            Some(path) => parameters.has(path),
            None => true,
        })
    }

    fn may_concern(&self, parameters: &Parameters<'_>) -> bool {
        let is_head = |name: &str| self.heads.binary_search_by(|head| (**head).cmp(name)).is_ok();
        self.always || parameters.keys().any(is_head)
    }
}
