//! Tokens that say where content came from. What such a statement is worth in a decision is not decided here.

use canon::Digest;
use model::{Name, Timestamp, Trust};

use crate::claims::{ClaimError, Claims};

/// What a token of the purpose `provenance` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenanceClaims {
    /// Who says so: `iss`.
    pub issuer: String,
    /// How far the source of the content is trusted: `source_trust`, in the words of an ask.
    pub level: Trust,
    /// For whom it is, an agent or the user that it acts for: `sub`.
    pub subject: Option<Name>,
    /// The run that it is for: `run_id`.
    pub run: Option<Name>,
    /// The digest of the content: `content_hash`.
    pub content: Option<Digest>,
    /// From when on it says nothing any more: `exp`.
    pub expires_at: Timestamp,
    /// The name of the token: `jti`.
    pub id: Option<Name>,
}

impl TryFrom<&Claims> for ProvenanceClaims {
    type Error = ClaimError;

    fn try_from(claims: &Claims) -> Result<Self, ClaimError> {
        Ok(Self {
            issuer: claims.issuer().to_owned(),
            level: level(claims.text("source_trust")?)?,
            subject: name(claims, "sub")?,
            run: name(claims, "run_id")?,
            content: parsed(claims, "content_hash", |text| {
                text.parse()
                    .map_err(|error: canon::DigestError| error.to_string())
            })?,
            expires_at: claims.expires_at(),
            id: name(claims, "jti")?,
        })
    }
}

fn level(word: &str) -> Result<Trust, ClaimError> {
    Trust::from_word(word).ok_or_else(|| {
        let words: Vec<_> = Trust::ALL
            .iter()
            .map(|level| format!("`{}`", level.as_str()))
            .collect();
        ClaimError::Invalid {
            claim: "source_trust".to_owned(),
            fault: format!("it should be one of {}", words.join(", ")),
        }
    })
}

fn name(claims: &Claims, claim: &str) -> Result<Option<Name>, ClaimError> {
    parsed(claims, claim, |text| {
        Name::new(text).map_err(|error| error.to_string())
    })
}

fn parsed<T>(
    claims: &Claims,
    claim: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, ClaimError> {
    let text = claims.optional_text(claim)?;
    let value = text.map(|text| {
        parse(text).map_err(|fault| ClaimError::Invalid {
            claim: claim.to_owned(),
            fault,
        })
    });
    value.transpose()
}
