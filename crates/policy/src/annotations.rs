//! What the annotations of a policy ask for, read once and checked, so that a misspelt one is an error and not a rule
//! that silently does something else.

use crate::obligations::Obligations;
use crate::ruling::Obligation;
use cedar_policy_core::ast::Effect;
use model::{ApprovalTerms, Name};
use std::collections::BTreeMap;

/// What a policy does when it is satisfied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PolicyEffect {
    /// `forbid`: deny.
    Forbid,
    /// `permit`: allow.
    Permit,
    /// `permit` with `@decision("require_approval")`: not before somebody has approved.
    Approval(ApprovalTerms),
    /// `permit` with `@decision("advise")`: add obligations; it permits nothing.
    Advice,
}

/// Everything that the annotations of one policy say, beside its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Annotations {
    pub(crate) effect: PolicyEffect,
    pub(crate) reason: Option<String>,
    pub(crate) agent_message: Option<String>,
    pub(crate) obligations: Obligations,
    pub(crate) description: Option<String>,
}

impl Annotations {
    /// Their texts, but for the id's, as they were written but for their order.
    pub(crate) fn to_texts(&self) -> BTreeMap<&'static str, String> {
        let (decision, terms) = match &self.effect {
            PolicyEffect::Forbid | PolicyEffect::Permit => (None, None),
            PolicyEffect::Approval(terms) => (Some("require_approval"), Some(terms)),
            PolicyEffect::Advice => (Some("advise"), None),
        };
        let obligations: Vec<_> = self
            .obligations
            .as_slice()
            .iter()
            .map(ToString::to_string)
            .collect();
        let quorum = terms.filter(|terms| terms.quorum > 1);
        let all = [
            ("agent_message", self.agent_message.clone()),
            ("approvers", terms.and_then(|terms| terms.group.clone())),
            ("decision", decision.map(str::to_owned)),
            ("description", self.description.clone()),
            (
                "exclude_owner",
                terms.filter(|terms| terms.exclude_owner).map(|_| String::new()),
            ),
            (
                "obligation",
                (!obligations.is_empty()).then(|| obligations.join(", ")),
            ),
            ("quorum", quorum.map(|terms| terms.quorum.to_string())),
            ("reason", self.reason.clone()),
        ];
        let given = all.into_iter().filter_map(|(key, text)| Some((key, text?)));
        given.collect()
    }
}

/// What is wrong with an annotation, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) help: String,
}

const KEYS: &str = "the annotations are `@id`, `@decision`, `@approvers`, `@quorum`, `@exclude_owner`, `@reason`, \
                    `@agent_message`, `@obligation` and `@description`";
const DECISIONS: &str = "the decisions are `require_approval` and `advise`; without one, a permit allows";

fn fault<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Fault> {
    Err(Fault {
        message: message.into(),
        help: help.into(),
    })
}

/// The raw texts of the annotations, by name.
#[derive(Default)]
struct Texts<'a> {
    id: Option<&'a str>,
    decision: Option<&'a str>,
    approvers: Option<&'a str>,
    quorum: Option<&'a str>,
    exclude_owner: Option<&'a str>,
    reason: Option<&'a str>,
    agent_message: Option<&'a str>,
    obligation: Option<&'a str>,
    description: Option<&'a str>,
}

impl<'a> Texts<'a> {
    fn read(annotations: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, Fault> {
        let mut texts = Self::default();
        for (key, text) in annotations {
            let place = match key {
                "id" => &mut texts.id,
                "decision" => &mut texts.decision,
                "approvers" => &mut texts.approvers,
                "quorum" => &mut texts.quorum,
                "exclude_owner" => {
                    texts.exclude_owner = Some(text);
                    continue;
                }
                "reason" => &mut texts.reason,
                "agent_message" => &mut texts.agent_message,
                "obligation" => &mut texts.obligation,
                "description" => &mut texts.description,
                _ => return fault(format!("there is no annotation `@{key}`"), KEYS),
            };
            if text.trim().is_empty() {
                return fault(
                    format!("the annotation `@{key}` is empty"),
                    format!("write `@{key}(\"…\")`"),
                );
            }
            *place = Some(text);
        }
        Ok(texts)
    }

    fn id(&self) -> Result<&'a str, Fault> {
        let Some(id) = self.id else {
            return fault(
                "the policy has no `@id`",
                "write `@id(\"a-name-that-stays\")` before it, so that records of its decisions keep their meaning",
            );
        };
        match Name::new(id) {
            Ok(_) => Ok(id),
            Err(error) => fault(format!("`{id}` is not an id: {error}"), "an id is a short name"),
        }
    }

    fn effect(&self, word: Effect) -> Result<PolicyEffect, Fault> {
        let effect = match (self.decision, word) {
            (None, Effect::Forbid) => PolicyEffect::Forbid,
            (None, Effect::Permit) => PolicyEffect::Permit,
            (Some("require_approval"), Effect::Permit) => PolicyEffect::Approval(self.terms()?),
            (Some("advise"), Effect::Permit) => PolicyEffect::Advice,
            (Some("require_approval" | "advise"), Effect::Forbid) => {
                return fault("a forbid denies and can have no `@decision`", "make it a permit");
            }
            (Some(other), _) => return fault(format!("there is no decision `{other}`"), DECISIONS),
        };
        let terms = self.approvers.is_some() || self.quorum.is_some() || self.exclude_owner.is_some();
        if terms && !matches!(effect, PolicyEffect::Approval(_)) {
            return fault(
                "`@approvers`, `@quorum` and `@exclude_owner` say who approves, and this policy asks for no approval",
                "add `@decision(\"require_approval\")` to a permit, or take them away",
            );
        }
        Ok(effect)
    }

    fn terms(&self) -> Result<ApprovalTerms, Fault> {
        if !matches!(self.exclude_owner, None | Some("" | "true")) {
            return fault(
                "`@exclude_owner` has another value than `true`",
                "write `@exclude_owner`, or leave it out",
            );
        }
        let quorum = self.quorum.map_or(Some(1), |text| text.parse().ok());
        match quorum {
            Some(quorum @ 1..) => Ok(ApprovalTerms {
                group: self.approvers.map(str::to_owned),
                quorum,
                also: Vec::new(),
                exclude_owner: self.exclude_owner.is_some(),
            }),
            _ => fault(
                format!("`{}` is not a quorum", self.quorum.unwrap_or_default()),
                "a quorum is the number of different people who have to approve, at least 1",
            ),
        }
    }

    fn obligations(&self, effect: &PolicyEffect) -> Result<Obligations, Fault> {
        let texts = self.obligation.into_iter().flat_map(|list| list.split(','));
        let obligations = texts
            .map(|text| obligation(text.trim(), effect))
            .collect::<Result<Vec<_>, _>>()?;
        if obligations.is_empty() && *effect == PolicyEffect::Advice {
            return fault(
                "a policy that advises has no `@obligation`",
                "say what it advises, or delete it",
            );
        }
        Ok(Obligations::new(obligations))
    }
}

fn obligation(text: &str, effect: &PolicyEffect) -> Result<Obligation, Fault> {
    let obligation = Obligation::parse(text);
    match &obligation {
        Obligation::QuarantineAgent if *effect != PolicyEffect::Forbid => fault(
            "only a forbid can quarantine the agent",
            "an agent that was allowed something stays in service",
        ),
        Obligation::Redact(_) if obligation.parameter().is_none_or(str::is_empty) => fault(
            format!("`{text}` does not say which parameter"),
            "write `redact:parameters.<name>`",
        ),
        Obligation::Other(text) if text.is_empty() => fault(
            "an obligation is empty",
            "obligations are separated by single commas",
        ),
        _ => Ok(obligation),
    }
}

/// What the annotations of a policy that begins with this word say, and its id.
pub(crate) fn read<'a>(
    word: Effect,
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(&'a str, Annotations), Fault> {
    let texts = Texts::read(annotations)?;
    let id = texts.id()?;
    let effect = texts.effect(word)?;
    let obligations = texts.obligations(&effect)?;
    let annotations = Annotations {
        effect,
        reason: texts.reason.map(str::to_owned),
        agent_message: texts.agent_message.map(str::to_owned),
        obligations,
        description: texts.description.map(str::to_owned),
    };
    Ok((id, annotations))
}

#[cfg(test)]
impl Annotations {
    /// What a policy without any annotation would say, if it were one.
    pub(crate) fn plain(effect: Effect) -> Self {
        read(effect, [("id", "plain")].into_iter())
            .expect("it has an id")
            .1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(effect: Effect, annotations: &[(&'static str, &'static str)]) -> Result<Annotations, String> {
        read(effect, annotations.iter().copied())
            .map(|(_, annotations)| annotations)
            .map_err(|fault| fault.message)
    }

    const ID: (&str, &str) = ("id", "a");

    #[test]
    fn without_a_decision_the_effect_decides() {
        assert_eq!(
            read_one(Effect::Permit, &[ID]).unwrap().effect,
            PolicyEffect::Permit
        );
        assert_eq!(
            read_one(Effect::Forbid, &[ID]).unwrap().effect,
            PolicyEffect::Forbid
        );
    }

    #[test]
    fn an_approval_says_who_approves() {
        let terms = |annotations: &[(&'static str, &'static str)]| {
            let all = [&[ID, ("decision", "require_approval")], annotations].concat();
            read_one(Effect::Permit, &all).map(|annotations| annotations.effect)
        };
        let approval = |group: Option<&str>, quorum| {
            Ok(PolicyEffect::Approval(ApprovalTerms {
                group: group.map(str::to_owned),
                quorum,
                also: Vec::new(),
                exclude_owner: false,
            }))
        };
        assert_eq!(terms(&[]), approval(None, 1));
        assert_eq!(
            terms(&[("approvers", "leads"), ("quorum", "2")]),
            approval(Some("leads"), 2)
        );
        for value in ["", "true"] {
            let Ok(PolicyEffect::Approval(terms)) = terms(&[("exclude_owner", value)]) else {
                panic!("`{value}` is refused");
            };
            assert!(terms.exclude_owner);
        }
        assert!(terms(&[("exclude_owner", "false")]).is_err());
        for quorum in ["0", "-1", "two", "1.5", "4294967296"] {
            assert_eq!(
                terms(&[("quorum", quorum)]),
                Err(format!("`{quorum}` is not a quorum"))
            );
        }
    }

    #[test]
    fn obligations_are_separated_by_commas_and_sorted() {
        let list = "redact:parameters.b, notify:security,redact:parameters.a,redact:parameters.a";
        let annotations = read_one(
            Effect::Permit,
            &[ID, ("decision", "advise"), ("obligation", list)],
        )
        .unwrap();
        let texts: Vec<_> = annotations
            .obligations
            .as_slice()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            ["redact:parameters.a", "redact:parameters.b", "notify:security"]
        );
    }

    #[test]
    fn every_slip_is_an_error_that_names_it() {
        use Effect::{Forbid, Permit};
        type Case = (Effect, &'static [(&'static str, &'static str)], &'static str);
        let cases: &[Case] = &[
            (Permit, &[], "the policy has no `@id`"),
            (Permit, &[("id", "")], "the annotation `@id` is empty"),
            (
                Permit,
                &[ID, ("desicion", "require_approval")],
                "there is no annotation `@desicion`",
            ),
            (
                Permit,
                &[ID, ("decision", "require_aproval")],
                "there is no decision `require_aproval`",
            ),
            (
                Forbid,
                &[ID, ("decision", "require_approval")],
                "a forbid denies and can have no `@decision`",
            ),
            (
                Permit,
                &[ID, ("decision", "advise")],
                "a policy that advises has no `@obligation`",
            ),
            (
                Permit,
                &[ID, ("obligation", "quarantine:agent")],
                "only a forbid can quarantine the agent",
            ),
            (
                Permit,
                &[ID, ("obligation", "redact:api_key")],
                "`redact:api_key` does not say which parameter",
            ),
            (
                Permit,
                &[ID, ("obligation", "notify:a,,notify:b")],
                "an obligation is empty",
            ),
        ];
        for (effect, annotations, message) in cases {
            assert_eq!(read_one(*effect, annotations), Err((*message).to_owned()));
        }
        for key in ["id", "reason"] {
            let annotations = [ID, (key, " ")].into_iter();
            let help = read(Permit, annotations).unwrap_err().help;
            assert_eq!(help, format!("write `@{key}(\"…\")`"));
        }
        for (key, text) in [("approvers", "leads"), ("quorum", "2")] {
            let message = read_one(Permit, &[ID, (key, text)]).unwrap_err();
            assert!(message.ends_with("asks for no approval"), "{message}");
        }
        assert!(
            read_one(Permit, &[("id", "a\nb")])
                .unwrap_err()
                .contains("is not an id")
        );
    }
}
