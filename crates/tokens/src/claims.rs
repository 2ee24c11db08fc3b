//! What a verified token says. Only verifying makes [`Claims`], so holding them is proof.

use model::Timestamp;
use serde_json::{Map, Value};

use crate::jws::clipped;
use crate::key::PublicKey;
use crate::token::{Expected, LEEWAY_SECONDS, TokenError};

/// The last second that a time can have: the end of the year 9999.
const SECONDS_MAX: f64 = 253_402_300_799.0;
const LEEWAY_MILLIS: i64 = LEEWAY_SECONDS * 1_000;
/// The claim that is an address.
const EMAIL: &str = "email";

/// What a token says that was verified.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    issuer: String,
    key_id: Option<String>,
    key: PublicKey,
    expires_at: Timestamp,
    issued_at: Option<Timestamp>,
    valid_from: Option<Timestamp>,
    members: Map<String, Value>,
}

/// Why a claim is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The token does not have it.
    #[error("the token has no claim `{0}`")]
    Missing(String),
    /// It is something else than a text, or an empty one.
    #[error("the claim `{0}` should be a string that is not empty")]
    NotText(String),
    /// It is an address that anybody may have entered, by what the token itself says.
    #[error("the token says that its `email` is not verified (`email_verified`), so that names nobody")]
    Unverified,
    /// It does not mean what it should.
    #[error("the claim `{claim}` is not valid: {fault}")]
    Invalid {
        /// Which.
        claim: String,
        /// What is wrong.
        fault: String,
    },
}

impl Claims {
    /// Who issued it.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The name of the key that has signed it; none if the token names none.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// The key that has signed it.
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// From when on it is not accepted any more, but for [`LEEWAY_SECONDS`].
    pub const fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// When it was issued, if it says so.
    pub const fn issued_at(&self) -> Option<Timestamp> {
        self.issued_at
    }

    /// From when on it is accepted, but for [`LEEWAY_SECONDS`]: the later of `nbf` and `iat`, if it has either.
    pub const fn valid_from(&self) -> Option<Timestamp> {
        self.valid_from
    }

    /// Whom the token is about, by the claim that names agents or people. An address that the token itself says is not
    /// verified names nobody.
    pub fn name(&self, claim: &str) -> Result<&str, ClaimError> {
        if is_unverified(&self.members, claim) {
            return Err(ClaimError::Unverified);
        }
        self.text(claim)
    }

    /// A claim that is a text.
    pub fn text(&self, claim: &str) -> Result<&str, ClaimError> {
        self.optional_text(claim)?
            .ok_or_else(|| ClaimError::Missing(clipped(claim)))
    }

    /// Who acts for whom the token names (RFC 8693, section 4.1), by this claim: the one who shows it, then those in whose name
    /// that one acts, the nearest first. Nobody, if the token has no `act`.
    ///
    /// Names are those of the token's issuer, so an actor of another issuer's is an error.
    pub fn actors(&self, claim: &str) -> Result<Vec<&str>, ClaimError> {
        let mut actors = Vec::new();
        let mut next = self.members.get("act");
        while let Some(act) = next {
            let wrong = |fault: &str| ClaimError::Invalid {
                claim: "act".to_owned(),
                fault: fault.to_owned(),
            };
            let Value::Object(act) = act else {
                return Err(wrong("it should be an object"));
            };
            if act
                .get("iss")
                .is_some_and(|issuer| issuer.as_str() != Some(&self.issuer))
            {
                return Err(wrong("it names somebody of another issuer"));
            }
            if is_unverified(act, claim) {
                return Err(wrong("it names somebody by an `email` that is not verified"));
            }
            actors.push(match act.get(claim) {
                Some(Value::String(name)) if !name.is_empty() => name.as_str(),
                _ => {
                    let member = format!("{}{claim}", "act.".repeat(actors.len() + 1));
                    let fault = format!(
                        "it does not say who acts: `{}` should be a string that is not empty",
                        clipped(&member)
                    );
                    return Err(wrong(&fault));
                }
            });
            next = act.get("act");
        }
        Ok(actors)
    }

    /// The text of a claim that may be missing, as [`Self::text`] has it.
    pub fn optional_text(&self, claim: &str) -> Result<Option<&str>, ClaimError> {
        match self.members.get(claim) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(ClaimError::NotText(clipped(claim))),
        }
    }
}

/// Whether these members say that the address which this claim would name somebody by is not verified. Nothing is said
/// where `email_verified` is missing (OpenID Connect Core 1.0, section 5.1).
fn is_unverified(members: &Map<String, Value>, claim: &str) -> bool {
    let verified = members.get("email_verified").filter(|_| claim == EMAIL);
    // Some providers send a text.
    verified.is_some_and(|verified| verified.as_bool() != Some(true) && verified.as_str() != Some("true"))
}

/// The claims with these members, signed by this key, which the token names so or not at all, if they are what is expected now.
pub(crate) fn check(
    members: Map<String, Value>,
    (key_id, key): (Option<&str>, &PublicKey),
    expected: Expected<'_>,
    now: Timestamp,
) -> Result<Claims, TokenError> {
    let issuer = match members.get("iss") {
        Some(Value::String(issuer)) if issuer == expected.issuer => issuer.clone(),
        Some(Value::String(issuer)) => return Err(TokenError::Issuer(clipped(issuer))),
        _ => return Err(wrong("`iss` should be a string")),
    };
    check_audience(&members, expected.audience)?;
    let expires_at = time(&members, "exp")?.ok_or_else(|| wrong("`exp` is missing"))?;
    if now >= expires_at.plus_millis(LEEWAY_MILLIS) {
        return Err(TokenError::Expired { at: expires_at, now });
    }
    let issued_at = time(&members, "iat")?;
    let not_before = time(&members, "nbf")?;
    for (claim, from) in [("nbf", not_before), ("iat", issued_at)] {
        if let Some(from) = from
            && now.plus_millis(LEEWAY_MILLIS) < from
        {
            return Err(TokenError::NotYet { claim, from, now });
        }
    }
    Ok(Claims {
        issuer,
        key_id: key_id.map(str::to_owned),
        key: key.clone(),
        expires_at,
        issued_at,
        valid_from: not_before.max(issued_at),
        members,
    })
}

/// `aud` is one text or an array of them.
fn check_audience(members: &Map<String, Value>, audience: &str) -> Result<(), TokenError> {
    let is_meant = match members.get("aud") {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(several)) if several.iter().all(Value::is_string) => {
            several.iter().any(|one| one == audience)
        }
        _ => return Err(wrong("`aud` should be a string or an array of strings")),
    };
    if is_meant {
        Ok(())
    } else {
        Err(TokenError::Audience)
    }
}

/// A `NumericDate`: seconds since 1970, perhaps with a fraction (RFC 7519, section 2).
fn time(members: &Map<String, Value>, claim: &str) -> Result<Option<Timestamp>, TokenError> {
    let Some(value) = members.get(claim) else {
        return Ok(None);
    };
    let seconds = value
        .as_f64()
        .filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    let seconds = seconds
        .ok_or_else(|| TokenError::Payload(format!("`{claim}` should be a number of seconds since 1970")))?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the year 9999 in milliseconds fits"
    )]
    let millis = (seconds * 1_000.0).floor() as i64;
    Ok(Some(Timestamp::from_millis(millis)))
}

fn wrong(what: &str) -> TokenError {
    TokenError::Payload(what.to_owned())
}
