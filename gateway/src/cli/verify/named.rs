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
    /// What has not come yet, and whether it is policies that were recorded with what they looked at. Those are about nobody, so nobody
    /// has a reason to take them away.
    awaited: HashMap<Digest, bool>,
    /// Whether there was more than is kept in mind.
    is_too_much: bool,
}

impl Named {
    /// Takes in what the body of a decision names.
    pub(super) fn want(&mut self, body: &str) {
        let policies = engine::facts::named_policies(body);
        for digest in engine::facts::named(body) {
            if self.awaited.len() >= NAMED_MAX {
                self.is_too_much = true;
            } else if !self.there.contains(&digest) {
                *self.awaited.entry(digest).or_default() |= policies == Some(digest);
            }
        }
    }

    /// Takes in what is there.
    pub(super) fn come(&mut self, digest: Digest) {
        self.awaited.remove(&digest);
        if self.there.len() >= NAMED_MAX {
            self.is_too_much = true;
        } else {
            self.there.insert(digest);
        }
    }

    /// How much is missing, which may have been taken away where it was stored.
    pub(super) fn missing(&self) -> Result<u64, BadPack> {
        if self.is_too_much {
            return Err(BadPack::TooMuchNamed);
        }
        let policies = self.awaited.iter().filter(|(_, is_policies)| **is_policies);
        match policies.map(|(digest, _)| *digest).min() {
            Some(digest) => Err(BadPack::NoPolicies(digest)),
            None => Ok(self.awaited.len() as u64),
        }
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
            named.missing().ok()
        };
        assert_eq!(missing(&[policies], &[body, early], &[agent]), Some(0));
        assert_eq!(missing(&[], &[body], &[policies]), Some(1));
        assert_eq!(missing(&[], &[early], &[]), Some(1));
        assert_eq!(missing(&[agent], &[body, early], &[]), None);
        assert_eq!(missing(&[], &[early, body], &[agent]), None);
    }
}
