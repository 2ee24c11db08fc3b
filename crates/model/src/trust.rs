//! Trust of the source: six levels that say where the content came from that set the agent going.
//!
//! A level is a claim of the caller's that can only be lowered here; how a signature is checked is not decided here.

use serde::{Deserialize, Serialize};

/// How far the source is trusted, from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Our own systems, and a signature proves it.
    TrustedInternalSigned,
    /// Our own systems, on the caller's word.
    TrustedInternalUnsigned,
    /// A customer we know.
    SemiTrustedCustomer,
    /// Anybody: the web, an e-mail, a document from outside.
    UntrustedExternal,
    /// Something already took it for an attack.
    MaliciousSuspected,
    /// Nobody knows.
    Unknown,
}

impl Trust {
    /// Every level, most trusted first.
    pub const ALL: [Self; 6] = [
        Self::TrustedInternalSigned,
        Self::TrustedInternalUnsigned,
        Self::SemiTrustedCustomer,
        Self::UntrustedExternal,
        Self::MaliciousSuspected,
        Self::Unknown,
    ];

    /// The word of API and policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TrustedInternalSigned => "trusted_internal_signed",
            Self::TrustedInternalUnsigned => "trusted_internal_unsigned",
            Self::SemiTrustedCustomer => "semi_trusted_customer",
            Self::UntrustedExternal => "untrusted_external",
            Self::MaliciousSuspected => "malicious_suspected",
            Self::Unknown => "unknown",
        }
    }

    /// The level with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// 5 for the most trusted level, 0 for the least.
    pub const fn rank(self) -> i64 {
        5 - self as i64
    }

    /// The less trusted of two.
    #[must_use]
    pub fn worse_of(self, other: Self) -> Self {
        self.max(other)
    }
}

/// What a level claimed by a caller counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveTrust {
    /// What the caller said.
    pub claimed: Trust,
    /// What it counts as; never more trusted than what was claimed.
    pub level: Trust,
    /// Whether a signature that the gateway checked stands behind it.
    pub signed: bool,
}

impl EffectiveTrust {
    /// What a claim counts as when no signature stands behind it: at best unsigned, and no better than the worst of
    /// the sources that the caller named for single parameters.
    pub fn without_signature(claimed: Trust, worst_source: Option<Trust>) -> Self {
        let unsigned = claimed.worse_of(Trust::TrustedInternalUnsigned);
        Self {
            claimed,
            level: worst_source.map_or(unsigned, |worst| unsigned.worse_of(worst)),
            signed: false,
        }
    }

    /// What a claim counts as when a signature says of what set the agent going that it is of this level: never better than
    /// either of them, nor than the worst of the sources that the caller named for single parameters.
    pub fn signed(claimed: Trust, vouched: Trust, worst_source: Option<Trust>) -> Self {
        let level = claimed.worse_of(vouched);
        Self {
            claimed,
            level: worst_source.map_or(level, |worst| level.worse_of(worst)),
            signed: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_contract() {
        for level in Trust::ALL {
            let json = serde_json::to_string(&level).unwrap();
            assert_eq!(json, format!("\"{}\"", level.as_str()));
        }
        assert!(serde_json::from_str::<Trust>("\"trusted\"").is_err());
    }

    #[test]
    fn ranks_fall_with_trust() {
        assert_eq!(Trust::ALL.map(Trust::rank), [5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn signed_without_a_signature_counts_as_unsigned() {
        let trust = EffectiveTrust::without_signature(Trust::TrustedInternalSigned, None);
        assert_eq!(
            (trust.level, trust.signed),
            (Trust::TrustedInternalUnsigned, false)
        );
    }

    #[test]
    fn a_signature_never_lifts_a_claim() {
        for claimed in Trust::ALL {
            for vouched in Trust::ALL {
                let trust = EffectiveTrust::signed(claimed, vouched, None);
                assert!(trust.level >= claimed && trust.level >= vouched && trust.signed);
            }
        }
    }

    #[test]
    fn a_source_can_lower_a_level_and_never_lift_it() {
        for claimed in Trust::ALL {
            for source in Trust::ALL {
                let level = EffectiveTrust::without_signature(claimed, Some(source)).level;
                assert!(level >= claimed && level >= source);
            }
        }
    }
}
