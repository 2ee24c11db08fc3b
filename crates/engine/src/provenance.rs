//! What a signed token says about where the content of an ask came from, verified by the issuers of its tenant.
//!
//! A token speaks of the call, or, if it names the digest of some content, of that content only: of all parameters, or
//! of each that has it. It is good for its run and for whom it names. Whoever shows one that is not good is refused;
//! what is not shown is not signed. Where nobody knows the parameters, a token that names content is verified and says
//! nothing.

use crate::ask::Ask;
use crate::judge::LookedUpFacts;
use crate::snapshot::TenantSnapshot;
use canon::Digest;
use model::{Agent, Name, Purpose, Timestamp, Trust, Vouched};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tokens::{ProvenanceClaims, UnverifiedToken};

/// What a token says that was verified, and which token it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// How far the source is trusted.
    pub level: Trust,
    /// The parameters that have the content that it speaks of, in order; it speaks of the call if there are none.
    pub parameters: Vec<String>,
    /// What the tenant calls the issuer.
    pub registered_as: Name,
    /// Who issued it.
    pub issuer: String,
    /// The name of the key that has signed it.
    pub key_id: Option<String>,
    /// SHA-256 of the token.
    pub token: Digest,
    /// For whom it is.
    pub subject: Option<Name>,
    /// From when on it says nothing any more.
    pub expires_at: Timestamp,
}

/// Why a token that came with an ask is not good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    /// The tenant has registered nobody who could have signed it.
    #[error("it cannot be verified, because this tenant has no issuer registered for that; leave it out")]
    NoIssuers,
    /// The tenant has not registered this one.
    #[error(
        "no issuer `{0}` is registered for the purpose `provenance`; register it, or leave the token out"
    )]
    UnknownIssuer(String),
    /// It cannot be read, or its issuer has not signed it for this, or its time is not now.
    #[error(transparent)]
    Token(#[from] tokens::TokenError),
    /// It says something that cannot be read.
    #[error(transparent)]
    Claim(#[from] tokens::ClaimError),
    /// It is for another run.
    #[error("the token is for the run `{0}`, and the ask belongs to another one or to none")]
    OtherRun(Name),
    /// It is for somebody else.
    #[error(
        "the token is for `{0}`, who is neither this agent nor the user of the ask (a name that an agent has or had is no user's)"
    )]
    OtherSubject(Name),
    /// It is about something that is not in the ask.
    #[error(
        "the token is about content with the digest `{0}`, which no parameter has, nor all of them together"
    )]
    OtherContent(Digest),
}

impl Provenance {
    /// What it says of the source of single parameters, if it speaks of any.
    pub fn vouched(&self) -> Option<Vouched<'_>> {
        (!self.parameters.is_empty()).then_some(Vouched {
            parameters: &self.parameters,
            level: self.level,
        })
    }
}

/// What the token of an ask says, if one came along that says anything of what is known.
pub(crate) fn verified(
    tenant: &TenantSnapshot,
    agent: &Agent,
    ask: &Ask,
    facts: &LookedUpFacts<'_>,
    now: Timestamp,
) -> Result<Option<Provenance>, ProvenanceError> {
    let Some(text) = &ask.provenance else {
        return Ok(None);
    };
    if !tenant.issuers.has(Purpose::Provenance) {
        return Err(ProvenanceError::NoIssuers);
    }
    let token = UnverifiedToken::parse(text)?;
    let named = token.issuer().unwrap_or_default();
    let issuer = tenant.issuers.find(Purpose::Provenance, named);
    let issuer = issuer.ok_or_else(|| ProvenanceError::UnknownIssuer(named.chars().take(128).collect()))?;
    let claims = issuer.verify(token, now)?;
    let said = ProvenanceClaims::try_from(&claims)?;
    check_run(ask, said.run.as_ref())?;
    check_subject(tenant, agent, ask, said.subject.as_ref())?;
    // Whether the content is among the parameters will be seen when they are.
    if facts.parameters_unknown && said.content.is_some() {
        return Ok(None);
    }
    Ok(Some(Provenance {
        level: said.level,
        parameters: about(ask, said.content)?,
        registered_as: issuer.noun.name.clone(),
        issuer: said.issuer,
        key_id: claims.key_id().map(str::to_owned),
        token: Digest::of(text.as_bytes()),
        subject: said.subject,
        expires_at: said.expires_at,
    }))
}

/// A token for a run is good in that run, and in one that it started.
fn check_run(ask: &Ask, run: Option<&Name>) -> Result<(), ProvenanceError> {
    match run {
        Some(run) if ![&ask.run_id, &ask.parent_run_id].contains(&&Some(run.clone())) => {
            Err(ProvenanceError::OtherRun(run.clone()))
        }
        _ => Ok(()),
    }
}

/// A token is good for the agent or the user that it names. What an agent is called, or was, is that agent and no user:
/// the user is whom the ask says, and another agent would only have to say this name.
fn check_subject(
    tenant: &TenantSnapshot,
    agent: &Agent,
    ask: &Ask,
    subject: Option<&Name>,
) -> Result<(), ProvenanceError> {
    let Some(subject) = subject else {
        return Ok(());
    };
    let is_the_user =
        || ask.user.as_ref() == Some(subject) && tenant.directory.agent_called(subject).is_none();
    if agent.is_called(subject.as_str()) || is_the_user() {
        return Ok(());
    }
    Err(ProvenanceError::OtherSubject(subject.clone()))
}

/// The parameters that have this digest, under whatever names, in order; none if nothing was said of content, or if it
/// is that of all parameters together.
fn about(ask: &Ask, content: Option<Digest>) -> Result<Vec<String>, ProvenanceError> {
    let parameters = &ask.action.parameters;
    let Some(content) = content.filter(|content| *content != Digest::of(parameters.as_bytes())) else {
        return Ok(Vec::new());
    };
    let members: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(parameters).expect("the parameters of an ask are a JSON object");
    let found = members
        .into_iter()
        .filter(|(_, value)| content_digest(value) == content);
    let found: Vec<String> = found.map(|(name, _)| name.into_owned()).collect();
    if found.is_empty() {
        return Err(ProvenanceError::OtherContent(content));
    }
    Ok(found)
}

/// The digest of a value as content: of a text its bytes, of anything else its canonical JSON.
fn content_digest(value: &RawValue) -> Digest {
    let text: Option<Cow<'_, str>> = serde_json::from_str(value.get()).ok();
    Digest::of(text.as_deref().unwrap_or(value.get()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_that_have_the_content_are_in_the_order_in_which_they_are_looked_up() {
        // In the canonical text they stand the other way round, in that of UTF-16.
        let names = ["a", "\u{ff61}", "\u{10000}"];
        let parameters = json!({names[0]: "x", names[1]: "x", names[2]: "x", "other": "y"});
        let text = canon::of(&json!({
            "tool_call": {"tool": "github", "action": "read", "parameters": parameters},
            "context": {"source_trust": "trusted_internal_unsigned"},
        }));
        let ask = Ask::parse(&text.unwrap()).unwrap();
        let place = |name: &str| ask.action.parameters.find(name).unwrap();
        assert!(place(names[2]) < place(names[1]));
        let found = about(&ask, Some(Digest::of(b"x"))).unwrap();
        assert_eq!(found, names);
        assert!(found.is_sorted());
    }
}
