//! What comes of the evaluated policies of a case: the strictest that is satisfied wins, and one that fails denies if
//! it could have made the ruling stricter. Ids are sorted, so that the ruling never depends on the order in which
//! policies were evaluated.

use crate::annotations::{Annotations, PolicyEffect};
use crate::approvers::Approvers;
use crate::case::{Case, Evaluated};
use crate::evaluate::{Excess, Failure};
use crate::parameters::Parameters;
use crate::ruling::{
    ADVISE, FAIL, MATCH, OBLIGATIONS_MAX, Obligation, PolicyFault, PolicyId, Ruling, TOLD_MAX,
};
use crate::set::World;
use cedar_policy_core::evaluator::EvaluationError;
use model::ReasonCode;
use std::collections::BTreeSet;
use std::mem;

/// A satisfied policy.
type Satisfied<'s> = (&'s PolicyId, &'s Annotations);

/// A policy that failed, and why.
type Failed<'s> = (&'s PolicyId, &'static str);

/// What Cedar found.
#[derive(Default)]
struct Findings<'s> {
    forbids: Vec<Satisfied<'s>>,
    approvals: Vec<Satisfied<'s>>,
    permits: Vec<Satisfied<'s>>,
    advice: Vec<Satisfied<'s>>,
    /// The policies that failed and might have made the ruling stricter.
    strict_faults: Vec<Failed<'s>>,
    /// The permits that failed.
    permit_faults: Vec<Failed<'s>>,
}

impl Case<'_> {
    /// What comes of these policies in this world.
    pub(crate) fn ruling(&self, evaluated: &[Evaluated<'_>], world: World<'_>) -> Ruling {
        let mut findings = Findings::default();
        for one in evaluated {
            let statement = one.statement;
            let satisfied = (&statement.id, &*statement.annotations);
            match (one.outcome(world), &statement.annotations.effect) {
                _ if !self.known.contents.counts(one.presence, world) => {}
                (Ok(false), _) => {}
                (Ok(true), PolicyEffect::Forbid) => findings.forbids.push(satisfied),
                (Ok(true), PolicyEffect::Approval(_)) => findings.approvals.push(satisfied),
                (Ok(true), PolicyEffect::Permit) => findings.permits.push(satisfied),
                (Ok(true), PolicyEffect::Advice) => findings.advice.push(satisfied),
                (Err(failure), PolicyEffect::Permit) => {
                    findings.permit_faults.push((&statement.id, said(failure)));
                }
                (Err(failure), _) => findings.strict_faults.push((&statement.id, said(failure))),
            }
        }
        findings.into_ruling(self.known.parameters())
    }
}

/// The answer where no policy can know the action.
pub(crate) fn unknown_action() -> Ruling {
    Ruling::denial(
        ReasonCode::UnknownTool,
        "no policy knows the tool's action".into(),
    )
}

impl<'s> Findings<'s> {
    /// What belongs to every ruling, whatever its verdict, is what the advising policies ask for, because a denial is
    /// recorded, too, and which policies failed. Of many policies only the first are named, and nothing is copied of
    /// the others.
    fn into_ruling(mut self, parameters: &Parameters<'_>) -> Ruling {
        let (reason, deciding) = self.decided();
        self.advice
            .retain(|(_, annotations)| annotations.obligations.about(parameters).next().is_some());
        let mut named = match reason {
            ReasonCode::PolicyError => ids(&self.strict_faults),
            _ => ids(&deciding),
        };
        let more = cut(&mut named, TOLD_MAX);
        // What failed is counted once: those that decide by it are some of all that did.
        let more_matching = if reason == ReasonCode::PolicyError {
            0
        } else {
            more
        };
        let mut advising = ids(&self.advice);
        let more_advising = cut(&mut advising, TOLD_MAX);
        let explanation = match reason {
            ReasonCode::PolicyError => broken(&named),
            ReasonCode::NoPolicyPermits => "no policy permits it".to_owned(),
            _ => explanation(reason, &deciding),
        };
        let obligations = applicable(deciding.iter().chain(&self.advice), parameters);
        let (errors, more_failing) = faults(self.strict_faults, self.permit_faults);
        named.append(&mut advising);
        named.sort_unstable();
        let ruling = Ruling {
            reason,
            explanation,
            agent_message: first_said(&deciding, |annotations| annotations.agent_message.as_ref()),
            matched: named.into_iter().cloned().collect(),
            obligations,
            approval: approvers(&deciding),
            errors,
            more_obligations: false,
        };
        ruling
            .and_more(more_matching, MATCH)
            .and_more(more_advising, ADVISE)
            .and_more(more_failing, FAIL)
            .bounded(false)
    }

    /// What is decided, and the policies that decide it by being satisfied. Cedar skips one that fails: if it might
    /// have made the ruling stricter, it must not open the gate by failing.
    fn decided(&mut self) -> (ReasonCode, Vec<Satisfied<'s>>) {
        if !self.forbids.is_empty() {
            (ReasonCode::PolicyForbids, mem::take(&mut self.forbids))
        } else if !self.strict_faults.is_empty() {
            (ReasonCode::PolicyError, Vec::new())
        } else if !self.approvals.is_empty() {
            (ReasonCode::PolicyRequiresApproval, mem::take(&mut self.approvals))
        } else if !self.permits.is_empty() {
            (ReasonCode::PolicyPermits, mem::take(&mut self.permits))
        } else {
            (ReasonCode::NoPolicyPermits, Vec::new())
        }
    }
}

/// The ids of these policies.
fn ids<'s, T>(policies: &[(&'s PolicyId, T)]) -> Vec<&'s PolicyId> {
    policies.iter().map(|(id, _)| *id).collect()
}

/// Leaves the first of these, sorted, and says how many more there were.
fn cut<T: Ord>(all: &mut Vec<T>, most: usize) -> usize {
    let more = all.len().saturating_sub(most);
    if more > 0 {
        all.select_nth_unstable(most);
        all.truncate(most);
    }
    all.sort_unstable();
    more
}

/// What is told of the policies that failed, of those first that might have made the ruling stricter, and how many more
/// did.
fn faults(mut strict: Vec<Failed<'_>>, mut permits: Vec<Failed<'_>>) -> (Vec<PolicyFault>, usize) {
    let more = cut(&mut strict, TOLD_MAX);
    let more = more + cut(&mut permits, TOLD_MAX - strict.len());
    let mut told = [strict, permits].concat();
    told.sort_unstable();
    let told = told.into_iter().map(|(id, message)| PolicyFault {
        policy: id.clone(),
        message: message.to_owned(),
    });
    (told.collect(), more)
}

/// What is said where these policies failed that might have made the ruling stricter.
fn broken(ids: &[&PolicyId]) -> String {
    let ids: Vec<_> = ids.iter().map(|id| format!("`{id}`")).collect();
    format!("could not be evaluated: {}", ids.join(", "))
}

/// What the first policy says that gives a reason; a plain sentence if none does.
fn explanation(reason: ReasonCode, deciding: &[Satisfied<'_>]) -> String {
    first_said(deciding, |annotations| annotations.reason.as_ref()).unwrap_or_else(|| {
        let ids = deciding.iter().map(|(id, _)| id.as_str());
        let id = ids.min().unwrap_or_default();
        match reason {
            ReasonCode::PolicyForbids => format!("the policy `{id}` forbids it"),
            ReasonCode::PolicyRequiresApproval => format!("the policy `{id}` requires approval"),
            _ => format!("the policy `{id}` permits it"),
        }
    })
}

/// What the first of these policies says, by their ids, that says anything.
fn first_said<'s>(
    policies: &[Satisfied<'s>],
    said: impl Fn(&'s Annotations) -> Option<&'s String>,
) -> Option<String> {
    let all = policies.iter().copied();
    let saying = all.filter_map(|(id, annotations)| Some((id, said(annotations)?)));
    saying.min_by_key(|(id, _)| *id).map(|(_, text)| text.clone())
}

/// What these policies want to be done, sorted and without repetition. Of more than a ruling may ask for there are some
/// more than that, and always whether the agent is to be quarantined.
fn applicable<'a, 's: 'a>(
    policies: impl Iterator<Item = &'a Satisfied<'s>>,
    parameters: &'a Parameters<'_>,
) -> Vec<Obligation> {
    let (mut all, mut quarantine) = (BTreeSet::new(), None);
    for obligation in policies.flat_map(|(_, annotations)| annotations.obligations.about(parameters)) {
        if *obligation == Obligation::QuarantineAgent {
            quarantine = Some(obligation);
        }
        all.insert(obligation);
        if all.len() > OBLIGATIONS_MAX + 1 {
            all.pop_last();
        }
    }
    all.extend(quarantine);
    all.into_iter().cloned().collect()
}

/// Whom these policies want to be asked, all of them.
fn approvers(deciding: &[Satisfied<'_>]) -> Option<Approvers> {
    let all = deciding
        .iter()
        .filter_map(|(_, annotations)| match &annotations.effect {
            PolicyEffect::Approval(terms) => Some(Approvers::of(terms)),
            PolicyEffect::Forbid | PolicyEffect::Permit | PolicyEffect::Advice => None,
        });
    all.reduce(Approvers::and)
}

/// What went wrong, without the values that it went wrong with.
pub(crate) fn said(failure: Failure<'_>) -> &'static str {
    let error = match failure {
        Failure::Cedar(error) => error,
        Failure::Excess(Excess::Patterns) => {
            return "its patterns could take too long with texts as long as those that they may meet";
        }
        Failure::Excess(Excess::Comparisons) => {
            return "its comparisons of lists and texts could take too long with an ask as long as this one";
        }
        Failure::Excess(Excess::Parts) => {
            return "it has too many parts to be evaluated with all others about the ask";
        }
    };
    match error {
        EvaluationError::EntityDoesNotExist(_) => "an entity that it looks at does not exist",
        EvaluationError::EntityAttrDoesNotExist(_) => "an attribute or tag that it looks at does not exist",
        EvaluationError::RecordAttrDoesNotExist(_) => "a member that it looks at does not exist",
        EvaluationError::TypeError(_) => "a value does not have the type that it needs",
        EvaluationError::IntegerOverflow(_) => "an integer overflows",
        EvaluationError::FailedExtensionFunctionExecution(_) => "a function refuses its argument",
        EvaluationError::RecursionLimit(_) => "it is nested too deeply",
        _ => "it cannot be evaluated",
    }
}
