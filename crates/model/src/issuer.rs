//! Issuers: who may sign tokens for a tenant, for what, and with which keys. Verifying a token is not done here.

use crate::name::Name;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// For whom tokens are if their issuer was registered without an audience.
pub const DEFAULT_AUDIENCE: &str = "countersign";
/// Which claim names the agent or the person if none was registered.
pub const DEFAULT_CLAIM: &str = "sub";

/// What tokens of an issuer are accepted for, and for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To say where content came from.
    Provenance,
    /// To say which agent calls.
    Agents,
    /// To say which person calls.
    People,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 3] = [Self::Provenance, Self::Agents, Self::People];

    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provenance => "provenance",
            Self::Agents => "agents",
            Self::People => "people",
        }
    }

    /// Whether tokens for it say who calls, so that one of their claims names somebody.
    pub const fn signs_in(self) -> bool {
        matches!(self, Self::Agents | Self::People)
    }
}

/// An issuer of tokens that a tenant has registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issuer {
    /// What people call it.
    pub name: Name,
    /// What its tokens are accepted for.
    pub purpose: Purpose,
    /// Its tokens' `iss`, byte for byte.
    pub issuer: Name,
    /// One of its tokens' `aud`, byte for byte.
    pub audience: Name,
    /// Its public keys: a JWKS (RFC 7517).
    #[serde(deserialize_with = "canon::foreign")]
    pub jwks: Arc<serde_json::Value>,
    /// The claim that names the agent or the person; none where tokens do not say who calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Name>,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// All that an issuer was registered with but its keys, which may take megabytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerTerms {
    /// What people call it.
    pub name: Name,
    /// What its tokens are accepted for.
    pub purpose: Purpose,
    /// Its tokens' `iss`.
    pub issuer: Name,
    /// One of its tokens' `aud`.
    pub audience: Name,
    /// The claim that names the agent or the person, if tokens say who calls.
    pub claim: Option<Name>,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// What stays of an issuer that signed agents or people in and was deleted: its `iss` still counts as this tenant's, so
/// another tenant that registers it is not taken for its only owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerIssuer {
    /// Its tokens' `iss`.
    pub issuer: Name,
    /// When it was deleted.
    pub deleted_at: Timestamp,
}

impl Issuer {
    /// The issuer with other keys: what the keys before have signed is worth nothing any more, unless they are among these.
    #[must_use]
    pub fn with_keys(&self, jwks: Arc<serde_json::Value>) -> Self {
        Self { jwks, ..self.clone() }
    }

    /// What stays the same when it is given other keys.
    pub fn terms(&self) -> IssuerTerms {
        let Self {
            name,
            purpose,
            issuer,
            audience,
            jwks: _,
            claim,
            created_at,
        } = self.clone();
        IssuerTerms {
            name,
            purpose,
            issuer,
            audience,
            claim,
            created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_contract() {
        for purpose in Purpose::ALL {
            let json = serde_json::to_string(&purpose).unwrap();
            assert_eq!(json, format!("\"{}\"", purpose.as_str()));
        }
        assert_eq!(
            Purpose::ALL.map(Purpose::signs_in),
            [false, true, true],
            "provenance says nothing about the caller"
        );
    }
}
