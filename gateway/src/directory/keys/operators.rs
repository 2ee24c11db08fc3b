//! How long there will be an operator: only operators make keys of operators, and a key may have an end.
//!
//! It refuses nothing: keys that all have an end are a choice, and whoever starts the gateway can always bring a new key along.

use crate::gateway::Gateway;
use model::{Directory, Role, TenantId, Timestamp};

/// Until when some operator key works, the soonest end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Operators {
    /// None does.
    Nobody,
    /// All that work have an end, and this is the last one.
    Until(Timestamp),
    /// One that works has no end.
    Lasting,
}

impl Operators {
    fn of(system: &Directory, now: Timestamp) -> Self {
        let keys = system.keys.values();
        let working = keys.filter(|key| key.role == Role::Operator && !key.has_expired(now));
        working
            .map(|key| key.expires_at.map_or(Self::Lasting, Self::Until))
            .max()
            .unwrap_or(Self::Nobody)
    }
}

/// Says so in the log if no operator key works, or none will one day: nobody could make another one then.
pub(crate) fn tell_of_end(gateway: &Gateway) {
    let Ok(system) = gateway.tenant(TenantId::SYSTEM) else {
        return;
    };
    match Operators::of(&system.directory, gateway.clock.now()) {
        Operators::Lasting => {}
        Operators::Until(end) => tracing::warn!(
            %end,
            "every operator key that works has an end, the last one {end}: make another one before that; after it, only a gateway that is started with a new key in COUNTERSIGN_OPERATOR_KEY has an operator"
        ),
        Operators::Nobody => tracing::warn!(
            "no operator key works, so nobody can make one: start the gateway with a new key in COUNTERSIGN_OPERATOR_KEY"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;
    use model::{ApiKey, KeyId, Name, Noun, Write};
    use serde_json::json;
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp::from_millis(10);
    const LATER: Timestamp = Timestamp::from_millis(20);

    fn operators(keys: &[(Role, Option<Timestamp>)]) -> Operators {
        let tenant = json!({"id": TenantId::SYSTEM, "name": "system", "settings": {}, "bucket": null,
            "status": "active", "created_at": "1970-01-01T00:00:00.000Z"});
        let mut system = Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()));
        for (id, &(role, expires_at)) in (0..).zip(keys) {
            system.apply(&Write::Put(Noun::Key(Arc::new(ApiKey {
                id: KeyId::from_bytes([id; 16]),
                tenant: TenantId::SYSTEM,
                name: Name::new("key").unwrap(),
                role,
                user: None,
                digest: Digest::of(&[id]),
                created_at: Timestamp::from_millis(0),
                expires_at,
            }))));
        }
        Operators::of(&system, NOW)
    }

    #[test]
    fn operators_last_if_one_key_that_works_has_no_end() {
        let keys = [(Role::Operator, Some(LATER)), (Role::Operator, None)];
        assert_eq!(operators(&keys), Operators::Lasting);
    }

    #[test]
    fn operators_end_with_the_last_of_keys_that_all_have_an_end() {
        let sooner = Timestamp::from_millis(11);
        let keys = [sooner, LATER, NOW].map(|end| (Role::Operator, Some(end)));
        assert_eq!(operators(&keys), Operators::Until(LATER));
    }

    #[test]
    fn nobody_is_operator_by_a_key_that_has_expired_or_is_for_something_else() {
        let keys = [(Role::Operator, Some(NOW)), (Role::Auditor, None)];
        assert_eq!(operators(&keys), Operators::Nobody);
        assert_eq!(operators(&[]), Operators::Nobody);
    }
}
