//! The answer to a question: a reason code, which is the verdict, and everything that goes with it.

use crate::approvers::Approvers;
use model::{ApprovalTerms, ReasonCode, Verdict};
use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// What is said of a ruling for the action as it is registered, where the one for what its caller claims would be looser.
const AS_REGISTERED: &str = "as a read, which it is registered as";

/// How many of the policies that decide are named, how many of those that advise, and how many of those that fail: what
/// is recorded of an ask must not grow with the policies of its tenant. How long it may be what one of them says and
/// asks for has a bound in new policies of tenants (`obligations`).
pub(crate) const TOLD_MAX: usize = 64;
/// How many obligations a ruling may have. They are told whole or not at all: beyond, nothing is allowed.
pub(crate) const OBLIGATIONS_MAX: usize = 64;
/// How many groups may be asked to approve one action.
pub(crate) const GROUPS_MAX: usize = 64;

/// What policies do of which not all are named: they match, they advise, or they fail.
pub(crate) const MATCH: &str = "match";
pub(crate) const ADVISE: &str = "advise";
pub(crate) const FAIL: &str = "fail";

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

    /// How long its text is.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Redact(path) => Self::REDACT.len() + path.len(),
            Self::QuarantineAgent => Self::QUARANTINE_AGENT.len(),
            Self::Other(text) => text.len(),
        }
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
    /// The policies that made the ruling what it is, sorted: of many only the first. The explanation says how many more
    /// there are.
    pub matched: Vec<PolicyId>,
    /// What has to be done, sorted and without repetition.
    pub obligations: Vec<Obligation>,
    /// Who has to approve; present if and only if the verdict is to require approval.
    pub approval: Option<Approvers>,
    /// The policies that could not be evaluated, sorted: of many only the first, as in `matched`.
    pub errors: Vec<PolicyFault>,
    /// Whether there are more obligations than are told. Then it is a denial, and nobody knows all that is to be
    /// redacted.
    pub more_obligations: bool,
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
            more_obligations: false,
        }
    }

    /// What comes of this ruling and that for `whose`, where both have to allow the same ask: the stricter one, and of
    /// two that are as strict this one, where whom either wants to be asked is asked. What either wants to be done has
    /// to be done, and what failed in either is told. Where this one denies, that of the other's is left which holds
    /// for the record as well.
    #[must_use]
    pub fn and(self, other: Self, whose: &str) -> Self {
        let (errors, more_failing) = named(&self.errors, other.errors.clone(), TOLD_MAX);
        let more_obligations = self.more_obligations || other.more_obligations;
        if self.verdict() == Verdict::Deny {
            let redactions = other.obligations.into_iter().filter(Obligation::is_redaction);
            let redactions: Vec<_> = redactions.collect();
            let ruling = Self {
                obligations: union(&self.obligations, &redactions),
                errors,
                ..self
            };
            return ruling.and_more(more_failing, FAIL).bounded(more_obligations);
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
        let ruling = Self {
            obligations,
            errors,
            ..ruling
        };
        ruling.and_more(more_failing, FAIL).bounded(more_obligations)
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
        let (errors, more_failing) = named(&self.errors, claimed.errors.clone(), TOLD_MAX);
        let more_obligations = self.more_obligations || claimed.more_obligations;
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
        let ruling = Self {
            obligations,
            errors,
            ..ruling
        };
        ruling.and_more(more_failing, FAIL).bounded(more_obligations)
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
        let (matched, more) = named(&self.matched, other.matched, 2 * TOLD_MAX);
        let ruling = Self {
            matched,
            approval: approvals.reduce(Approvers::and),
            agent_message: self.agent_message.or(other.agent_message),
            ..self
        };
        ruling.and_more(more, MATCH)
    }

    /// This ruling, with a word about so many policies that are not named.
    pub(crate) fn and_more(mut self, more: usize, what: &str) -> Self {
        if more > 0 {
            let explanation = self.explanation;
            self.explanation = format!("{explanation} … and {more} more of the policies that {what}");
        }
        self
    }

    /// This ruling, if it asks for no more than may be told. `more_obligations` says that there are more of them
    /// elsewhere.
    ///
    /// INVARIANT: what has to be done, and who has to be asked, is never cut with something allowed, but for asks that
    /// are only observed. What would be allowed, or asked of people, is denied; a denial says that there is more, and
    /// keeps the first. Whoever is to be quarantined is.
    pub(crate) fn bounded(mut self, more_obligations: bool) -> Self {
        let was_said = self.more_obligations;
        if let Some(more) = self.obligations.get(OBLIGATIONS_MAX..)
            && !more.is_empty()
        {
            // It stands behind redactions and before all others, so the order stays.
            if more.contains(&Obligation::QuarantineAgent) {
                self.obligations[OBLIGATIONS_MAX - 1] = Obligation::QuarantineAgent;
            }
            self.obligations.truncate(OBLIGATIONS_MAX);
            self.more_obligations = true;
        }
        self.more_obligations |= more_obligations;
        if self.more_obligations && !was_said {
            self = self.denied_because(&format!("more than {OBLIGATIONS_MAX} obligations apply"));
        }
        let groups = self.approval.as_ref().map_or(0, Approvers::group_count);
        if groups > GROUPS_MAX {
            self = self.denied_because(&format!("more than {GROUPS_MAX} groups would have to approve"));
        }
        self
    }

    /// A denial for this reason; one that denies anyway says it as well.
    fn denied_because(self, why: &str) -> Self {
        let explanation = self.explanation.as_str();
        if self.verdict() == Verdict::Deny {
            return Self {
                explanation: format!("{explanation}; {why}"),
                ..self
            };
        }
        Self {
            reason: ReasonCode::PolicyError,
            explanation: format!("{why}: {explanation}"),
            agent_message: None,
            approval: None,
            ..self
        }
    }
}

/// All of ours, which are sorted, with so many of theirs that there are no more than `most`, sorted and without
/// repetition, and how many are left out. Both are short already.
fn named<T: Ord + Clone>(ours: &[T], mut theirs: Vec<T>, most: usize) -> (Vec<T>, usize) {
    theirs.retain(|one| ours.binary_search(one).is_err());
    theirs.sort();
    theirs.dedup();
    let room = most.saturating_sub(ours.len());
    let more = theirs.len().saturating_sub(room);
    theirs.truncate(room);
    (union(ours, &theirs), more)
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
