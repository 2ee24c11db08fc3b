//! What the decisions in an archive name by a digest, and what of that is there. It does not look at what the bytes say.

use super::pack::BadPack;
use canon::Digest;
use std::collections::{HashMap, HashSet};

/// Digests that are kept in mind: some hundred megabytes.
pub(super) const NAMED_MAX: usize = 1_000_000;

/// What is named, and what is there, in whichever order they come.
#[derive(Default)]
pub(super) struct Named {
    there: HashSet<Digest>,
    /// What decisions name, and whether it is policies that were recorded with what they looked at. Those are about
    /// nobody, so nobody has a reason to take them away.
    wanted: HashMap<Digest, bool>,
    /// Whether there was more than is kept in mind.
    is_too_much: bool,
}

/// How many different files there are, and are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Those that decisions name.
    pub(super) named: u64,
    /// Those that no decision names, which say nothing of any.
    pub(super) unnamed: u64,
    /// Those that decisions name and that are not there. They may have been taken away where they were stored.
    pub(super) missing: u64,
}

impl Named {
    /// Takes in what the body of a decision names.
    pub(super) fn want(&mut self, body: &str) {
        let policies = engine::facts::named_policies(body);
        for digest in engine::facts::named(body) {
            if self.wanted.len() >= NAMED_MAX && !self.wanted.contains_key(&digest) {
                self.is_too_much = true;
            } else {
                *self.wanted.entry(digest).or_default() |= policies == Some(digest);
            }
        }
    }

    /// Takes in what is there.
    pub(super) fn come(&mut self, digest: Digest) {
        if self.there.len() >= NAMED_MAX && !self.there.contains(&digest) {
            self.is_too_much = true;
        } else {
            self.there.insert(digest);
        }
    }

    /// How much is there and how much is not, unless that is policies.
    pub(super) fn count(&self) -> Result<Count, BadPack> {
        if self.is_too_much {
            return Err(BadPack::TooMuchNamed);
        }
        let missing = self.wanted.iter();
        let missing = missing.filter(|(digest, _)| !self.there.contains(*digest));
        let policies = missing.clone().filter(|(_, is_policies)| **is_policies);
        if let Some(digest) = policies.map(|(digest, _)| *digest).min() {
            return Err(BadPack::NoPolicies(digest));
        }
        let missing = missing.count();
        let named = self.wanted.len() - missing;
        Ok(Count {
            named: named as u64,
            unnamed: (self.there.len() - named) as u64,
            missing: missing as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_comes_first_policies_have_to_be_there_and_the_rest_is_counted() {
        let [policies, agent] = ["policies", "agent"].map(|of| Digest::of(of.as_bytes()));
        let body = format!(r#"{{"facts":{{"agent":"{agent}"}},"policy_digest":"{policies}"}}"#);
        let early = format!(r#"{{"policy_digest":"{policies}"}}"#);
        let (body, early) = (body.as_str(), early.as_str());
        let missing = |before: &[Digest], bodies: &[&str], behind: &[Digest]| {
            let mut named = Named::default();
            for digest in before {
                named.come(*digest);
            }
            for body in bodies {
                named.want(body);
            }
            for digest in behind {
                named.come(*digest);
            }
            named.count().ok().map(|count| count.missing)
        };
        assert_eq!(missing(&[policies], &[body, early], &[agent]), Some(0));
        assert_eq!(missing(&[], &[body], &[policies]), Some(1));
        assert_eq!(missing(&[], &[early], &[]), Some(1));
        assert_eq!(missing(&[agent], &[body, early], &[]), None);
        assert_eq!(missing(&[], &[early, body], &[agent]), None);
    }

    #[test]
    fn files_are_counted_once_and_those_that_no_decision_names_by_themselves() {
        let [policies, agent, stray] = ["policies", "agent", "stray"].map(|of| Digest::of(of.as_bytes()));
        let body = format!(r#"{{"facts":{{"agent":"{agent}"}},"policy_digest":"{policies}"}}"#);
        let mut named = Named::default();
        for digest in [stray, policies] {
            named.come(digest);
        }
        for _ in 0..2 {
            named.want(&body);
            named.come(policies);
        }
        let count = Count {
            named: 1,
            unnamed: 1,
            missing: 1,
        };
        assert_eq!(named.count().ok(), Some(count));
    }
}
