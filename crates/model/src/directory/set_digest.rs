//! The digest of a directory's policies, which whoever lists or replaces them asks for. To make it takes milliseconds
//! where there are very many, so it is made once for as long as they are the same.

use crate::name::SlashFreeName;
use crate::policy::{Policy, digest_of_set};
use canon::Digest;
use imbl::OrdMap;
use std::sync::{Arc, OnceLock};

/// Policies by name.
type Policies = OrdMap<SlashFreeName, Arc<Policy>>;

/// A digest of policies, once somebody has asked for it. Copies of a directory share it.
#[derive(Debug, Clone, Default)]
pub(super) struct SetDigest(Arc<OnceLock<(Policies, Digest)>>);

impl SetDigest {
    /// The digest of these policies. INVARIANT: those that it was made of are held with it, so a map that shares its
    /// root with them is the same, and any other one has its digest made anew.
    pub(super) fn of(&self, policies: &Policies) -> Digest {
        let make = || digest_of_set(policies.values());
        let (made_of, digest) = self.0.get_or_init(|| (policies.clone(), make()));
        if made_of.ptr_eq(policies) { *digest } else { make() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{PolicyMode, PolicyText};
    use crate::time::Timestamp;

    fn put(policies: &mut Policies, name: &str) {
        let name = SlashFreeName::new(name).unwrap();
        let now = Timestamp::from_millis(1);
        let policy = Policy::new(name.clone(), PolicyText::default(), PolicyMode::Enforced, now);
        policies.insert(name, Arc::new(policy));
    }

    #[test]
    fn a_digest_is_made_once_and_one_of_other_policies_is_not_taken_for_theirs() {
        let mut policies = Policies::new();
        put(&mut policies, "a");
        let before = policies.clone();
        let made = Digest::of(b"made before");
        let known = SetDigest(Arc::new(OnceLock::from((before.clone(), made))));
        assert_eq!(known.clone().of(&policies), made);
        put(&mut policies, "b");
        let after = known.of(&policies);
        assert_eq!(after, digest_of_set(policies.values()));
        policies.remove("b");
        let again = known.of(&policies);
        assert_eq!(again, digest_of_set(policies.values()));
        assert!(again != after && again != made);
        assert_eq!(known.of(&before), made);
    }
}
