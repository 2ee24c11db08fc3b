//! Ids: `TypeID`s (a prefix, `_`, and a `UUIDv7` in Crockford's base32), one Rust type a kind.
//!
//! An id of one kind cannot be passed for another, and its text names its kind. Ids are not secrets.

use crate::entropy::Entropy;
use crate::time::Timestamp;
use std::fmt;

/// The digits of ids and of secrets, by their values: Crockford's base32, in lower case.
pub const BASE32_DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of a 128-bit number in base32.
const SUFFIX_CHARS: usize = 26;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id of the form `{prefix}_` and 26 characters of base32")]
pub struct InvalidId {
    text: String,
    prefix: &'static str,
}

/// A `UUIDv7` (RFC 9562, section 5.7): 48 bits of Unix milliseconds, then 74 random bits.
fn uuid_v7(now: Timestamp, entropy: &dyn Entropy) -> [u8; 16] {
    let mut random = [0; 10];
    entropy.fill(&mut random);
    let millis = u64::try_from(now.millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random)
        .into_uuid()
        .into_bytes()
}

/// Characters that are made of one machine word. Shifting all 128 bits for each takes three times as long.
const WORD_CHARS: usize = 12;

fn encode(bytes: [u8; 16], out: &mut [u8; SUFFIX_CHARS]) {
    let mut number = u128::from_be_bytes(bytes);
    for places in out.rchunks_mut(WORD_CHARS) {
        let mut word = u64::try_from(number & (u128::MAX >> (128 - 5 * WORD_CHARS))).expect("60 bits fit");
        for place in places.iter_mut().rev() {
            *place = BASE32_DIGITS[(word & 31) as usize];
            word >>= 5;
        }
        number >>= 5 * WORD_CHARS;
    }
}

fn decode(suffix: &[u8]) -> Option<[u8; 16]> {
    // The first character carries only three bits: anything above `7` would overflow 128.
    if suffix.len() != SUFFIX_CHARS || !(b'0'..=b'7').contains(&suffix[0]) {
        return None;
    }
    let mut number = 0u128;
    for character in suffix {
        let digit = BASE32_DIGITS.iter().position(|letter| letter == character)?;
        number = number << 5 | digit as u128;
    }
    Some(number.to_be_bytes())
}

fn parse(text: &str, prefix: &'static str) -> Result<[u8; 16], InvalidId> {
    text.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .and_then(|suffix| decode(suffix.as_bytes()))
        .ok_or_else(|| InvalidId {
            text: text.chars().take(64).collect(),
            prefix,
        })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// What stands before the `_`.
            pub const PREFIX: &str = $prefix;

            /// A fresh id, ordered by `now`.
            pub fn new(now: Timestamp, entropy: &dyn Entropy) -> Self {
                Self(uuid_v7(now, entropy))
            }

            /// The id with these bytes, as storage keeps it.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes of the UUID, big-endian.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut suffix = [0; SUFFIX_CHARS];
                encode(self.0, &mut suffix);
                f.write_str(concat!($prefix, "_"))?;
                f.write_str(std::str::from_utf8(&suffix).expect("the alphabet is ASCII"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse(text, $prefix).map(Self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A tenant.
    TenantId,
    "tnt"
);
id!(
    /// An agent.
    AgentId,
    "agt"
);
id!(
    /// A token of an agent.
    TokenId,
    "tok"
);
id!(
    /// An API key.
    KeyId,
    "key"
);
id!(
    /// A decision.
    DecisionId,
    "dec"
);
id!(
    /// An approval.
    ApprovalId,
    "apr"
);
id!(
    /// A budget.
    BudgetId,
    "bgt"
);
id!(
    /// A reservation.
    ReservationId,
    "rsv"
);

impl TenantId {
    /// The tenant that holds what belongs to no tenant: operator keys and the creation of tenants.
    pub const SYSTEM: Self = Self([0; 16]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::FixedEntropy;

    #[test]
    fn the_specification_of_typeid_gives_these_texts() {
        let uuid = [
            0x01, 0x89, 0x0a, 0x5d, 0xac, 0x96, 0x77, 0x4b, 0xbc, 0xce, 0xb3, 0x02, 0x09, 0x9a, 0x80, 0x57,
        ];
        let id = AgentId::from_bytes(uuid);
        assert_eq!(id.to_string(), "agt_01h455vb4pex5vsknk084sn02q");
        assert_eq!("agt_01h455vb4pex5vsknk084sn02q".parse(), Ok(id));
        assert_eq!(TenantId::SYSTEM.to_string(), "tnt_00000000000000000000000000");
    }

    #[test]
    fn an_id_of_another_kind_is_refused() {
        assert!("tnt_01h455vb4pex5vsknk084sn02q".parse::<AgentId>().is_err());
    }

    #[test]
    fn a_text_that_overflows_or_leaves_the_alphabet_is_refused() {
        for text in [
            "agt_8zzzzzzzzzzzzzzzzzzzzzzzzz",
            "agt_01h455vb4pex5vsknk084sn02u",
            "agt_01H455VB4PEX5VSKNK084SN02Q",
            "agt_01h455vb4pex5vsknk084sn02",
            "agt01h455vb4pex5vsknk084sn02q",
            "",
        ] {
            assert!(text.parse::<AgentId>().is_err(), "{text}");
        }
    }

    #[test]
    fn ids_of_a_later_time_sort_later() {
        let early = DecisionId::new(Timestamp::from_millis(1_000), &FixedEntropy(0xff));
        let late = DecisionId::new(Timestamp::from_millis(1_001), &FixedEntropy(0));
        assert!(early < late);
        assert!(early.to_string() < late.to_string());
    }
}
