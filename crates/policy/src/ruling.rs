//! The answer to a question: a reason code, which is the verdict, and everything that goes with it.

use crate::approvers::Approvers;
use model::{ApprovalTerms, ReasonCode, Verdict};
use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// What is said of a ruling for the action as it is registered, where the one for what its caller claims would be looser.
const AS_REGISTERED: &str = "as a read, which it is registered as";

/// The id of a policy: `base/<id>` or `<policy>/<id>`. It is written in the policy and does not depend on positions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(Arc<str>);

impl PolicyId {
    /// The name of the operator's own policies, which no tenant's policy may have.
    pub const BASE: &str = "base";

    pub(crate) fn new(policy: &str, id: &str) -> Self {
        Self(Arc::from(format!("{policy}/{id}")))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the named policy that it is in, and its id there.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').expect("it was made of two parts")
    }

    /// Whether it is the operator's.
    pub fn is_base(&self) -> bool {
        self.parts().0 == Self::BASE
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::borrow::Borrow<str> for PolicyId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for PolicyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Something that whoever carries the verdict out has to do. An obligation never changes the verdict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obligation {
    /// Keep this out of records and logs: `parameters.api_key`. Only reported where the ask has such a parameter.
    Redact(String),
    /// Freeze the agent together with recording the denial.
    QuarantineAgent,
    /// One that the gateway hands on without knowing it.
    Other(String),
}

impl Obligation {
    const REDACT: &str = "redact:";
    const QUARANTINE_AGENT: &str = "quarantine:agent";

    const PARAMETERS: &str = "parameters.";

    /// The path of the parameter that it is about; none if it is about the ask as a whole.
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Self::Redact(path) => path.strip_prefix(Self::PARAMETERS),
            Self::QuarantineAgent | Self::Other(_) => None,
        }
    }

    /// Whether it keeps something out of records, whatever the verdict is.
    pub const fn is_redaction(&self) -> bool {
        matches!(self, Self::Redact(_))
    }

    /// The obligation with this text.
    pub(crate) fn parse(text: &str) -> Self {
        if text == Self::QUARANTINE_AGENT {
            return Self::QuarantineAgent;
        }
        match text.strip_prefix(Self::REDACT) {
            Some(path) => Self::Redact(path.to_owned()),
            None => Self::Other(text.to_owned()),
        }
    }
}

/// The text of the API, which is the one in the policy.
impl fmt::Display for Obligation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redact(path) => write!(f, "{}{path}", Self::REDACT),
            Self::QuarantineAgent => f.write_str(Self::QUARANTINE_AGENT),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Serialize for Obligation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A policy that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PolicyFault {
    /// Which.
    pub policy: PolicyId,
    /// Why. It never repeats a value of the question, which could be a secret.
    pub message: String,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Why. Its verdict is the verdict.
    pub reason: ReasonCode,
    /// The reason in words, for people.
    pub explanation: String,
    /// What the policy's author wants the agent to be told.
    pub agent_message: Option<String>,
    /// The policies that made the ruling what it is, sorted.
    pub matched: Vec<PolicyId>,
    /// What has to be done, sorted and without repetition.
    pub obligations: Vec<Obligation>,
    /// Who has to approve; present if and only if the verdict is to require approval.
    pub approval: Option<Approvers>,
    /// The policies that could not be evaluated, sorted.
    pub errors: Vec<PolicyFault>,
}

/// The ruling on a question, and its shadow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rulings {
    /// What is in force.
    pub ruling: Ruling,
    /// What it would have been if everything on trial were enforced; `None` if nothing is on trial.
    pub shadow: Option<Ruling>,
}

impl Rulings {
    /// A ruling without a shadow.
    pub const fn plain(ruling: Ruling) -> Self {
        Self { ruling, shadow: None }
    }

    /// Combines the two rulings by `with`, and in the same way the two shadows, if both have one.
    #[must_use]
    pub fn combine(self, others: Self, with: impl Fn(Ruling, Ruling) -> Ruling) -> Self {
        let shadows = self.shadow.zip(others.shadow);
        Self {
            ruling: with(self.ruling, others.ruling),
            shadow: shadows.map(|(own, other)| with(own, other)),
        }
    }
}

impl Ruling {
    /// What is answered.
    pub const fn verdict(&self) -> Verdict {
        self.reason.verdict()
    }

    /// A denial that no policy made.
    pub const fn denial(reason: ReasonCode, explanation: String) -> Self {
        Self {
            reason,
            explanation,
            agent_message: None,
            matched: Vec::new(),
            obligations: Vec::new(),
            approval: None,
            errors: Vec::new(),
        }
    }

    /// What comes of this ruling and that for `whose`, where both have to allow the same ask: the stricter one, and of
    /// two that are as strict this one, where whom either wants to be asked is asked. What either wants to be done has
    /// to be done, and what failed in either is told. Where this one denies, that of the other's is left which holds
    /// for the record as well.
    #[must_use]
    pub fn and(self, other: Self, whose: &str) -> Self {
        let errors = union(&self.errors, &other.errors);
        if self.verdict() == Verdict::Deny {
            let redactions = other.obligations.into_iter().filter(Obligation::is_redaction);
            let redactions: Vec<_> = redactions.collect();
            return Self {
                obligations: union(&self.obligations, &redactions),
                errors,
                ..self
            };
        }
        let obligations = union(&self.obligations, &other.obligations);
        let (ours, theirs) = (self.verdict().strictness(), other.verdict().strictness());
        let ruling = match theirs.cmp(&ours) {
            Ordering::Greater => Self {
                explanation: format!("{whose}: {}", other.explanation),
                ..other
            },
            Ordering::Less => self,
            Ordering::Equal => self.beside(other),
        };
        Self {
            obligations,
            errors,
            ..ruling
        }
    }

    /// Combines this ruling, for the action as it is registered, with the one for the action as the caller claims it.
    /// Both have to allow: the stricter wins, and of equals this one. Exception: if this one denies only because
    /// nothing permits, and the other denies by a policy, the other's reason is given, which says more.
    ///
    /// INVARIANT: a claim only takes away. So whom this one wants to be asked is asked, and what either wants to be
    /// done has to be done, also where one of them denies.
    #[must_use]
    pub fn with_claim(self, claimed: Self) -> Self {
        let obligations = union(&self.obligations, &claimed.obligations);
        let errors = union(&self.errors, &claimed.errors);
        let (registered, claims) = (self.verdict().strictness(), claimed.verdict().strictness());
        let ruling = match claims.cmp(&registered) {
            Ordering::Greater => claimed,
            Ordering::Less => Self {
                explanation: format!("{AS_REGISTERED}: {}", self.explanation),
                ..self
            },
            Ordering::Equal if self.lacks_a_permit() && !claimed.lacks_a_permit() => claimed.beside(self),
            Ordering::Equal => self.beside(claimed),
        };
        Self {
            obligations,
            errors,
            ..ruling
        }
    }

    /// Whether it denies only because nothing permits.
    fn lacks_a_permit(&self) -> bool {
        matches!(
            self.reason,
            ReasonCode::NoPolicyPermits | ReasonCode::ToolNotGranted
        )
    }

    /// This ruling together with one that is as strict.
    fn beside(self, other: Self) -> Self {
        let approvals = self.approval.into_iter().chain(other.approval);
        Self {
            matched: union(&self.matched, &other.matched),
            approval: approvals.reduce(Approvers::and),
            agent_message: self.agent_message.or(other.agent_message),
            ..self
        }
    }
}

/// Everything that is in one of them, sorted and without repetition.
fn union<T: Ord + Clone>(one: &[T], other: &[T]) -> Vec<T> {
    let mut all = [one, other].concat();
    all.sort();
    all.dedup();
    all
}

/// In the words of the API.
impl Serialize for Ruling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Words<'a> {
            decision: &'static str,
            reason_code: &'static str,
            reason: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            agent_message: Option<&'a str>,
            matched_policies: &'a [PolicyId],
            obligations: &'a [Obligation],
            #[serde(skip_serializing_if = "Option::is_none")]
            approval: Option<ApprovalTerms>,
            errors: &'a [PolicyFault],
        }
        let words = Words {
            decision: self.verdict().as_str(),
            reason_code: self.reason.as_str(),
            reason: &self.explanation,
            agent_message: self.agent_message.as_deref(),
            matched_policies: &self.matched,
            obligations: &self.obligations,
            approval: self.approval.as_ref().map(Approvers::terms),
            errors: &self.errors,
        };
        words.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obligation_prints_as_it_was_written() {
        for text in [
            "redact:parameters.api_key",
            "quarantine:agent",
            "notify:security",
            "redact:",
        ] {
            assert_eq!(Obligation::parse(text).to_string(), text);
        }
        assert_eq!(Obligation::parse("quarantine:agent"), Obligation::QuarantineAgent);
        assert_eq!(
            Obligation::parse("quarantine:team"),
            Obligation::Other("quarantine:team".into())
        );
    }
}
