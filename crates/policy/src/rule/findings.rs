//! What comes of the evaluated policies of a case: the strictest that is satisfied wins, and one that fails denies if
//! it could have made the ruling stricter. Ids are sorted, so that the ruling never depends on the order in which
//! policies were evaluated.

use crate::annotations::{Annotations, PolicyEffect};
use crate::approvers::Approvers;
use crate::case::{Case, Evaluated};
use crate::evaluate::{Excess, Failure};
use crate::parameters::Parameters;
use crate::ruling::{Obligation, PolicyFault, PolicyId, Ruling};
use crate::set::World;
use cedar_policy_core::evaluator::EvaluationError;
use model::ReasonCode;

/// A satisfied policy.
type Satisfied<'s> = (&'s PolicyId, &'s Annotations);

/// What Cedar found.
#[derive(Default)]
struct Findings<'s> {
    forbids: Vec<Satisfied<'s>>,
    approvals: Vec<Satisfied<'s>>,
    permits: Vec<Satisfied<'s>>,
    advice: Vec<Satisfied<'s>>,
    /// The policies that failed and might have made the ruling stricter.
    strict_faults: Vec<PolicyId>,
    faults: Vec<PolicyFault>,
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
                (Err(failure), effect) => {
                    if *effect != PolicyEffect::Permit {
                        findings.strict_faults.push(statement.id.clone());
                    }
                    findings.faults.push(PolicyFault {
                        policy: statement.id.clone(),
                        message: said(failure).to_owned(),
                    });
                }
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

impl Findings<'_> {
    fn into_ruling(mut self, parameters: &Parameters<'_>) -> Ruling {
        for satisfied in [
            &mut self.forbids,
            &mut self.approvals,
            &mut self.permits,
            &mut self.advice,
        ] {
            satisfied.sort_unstable_by_key(|(id, _)| *id);
        }
        self.faults.sort();
        self.strict_faults.sort();
        let (reason, deciding) = if !self.forbids.is_empty() {
            (ReasonCode::PolicyForbids, &self.forbids)
        } else if !self.strict_faults.is_empty() {
            return self.broken(parameters);
        } else if !self.approvals.is_empty() {
            (ReasonCode::PolicyRequiresApproval, &self.approvals)
        } else if !self.permits.is_empty() {
            (ReasonCode::PolicyPermits, &self.permits)
        } else {
            let ruling = Ruling::denial(ReasonCode::NoPolicyPermits, "no policy permits it".into());
            return self.complete(ruling, parameters);
        };
        let ruling = Ruling {
            reason,
            explanation: explanation(reason, deciding),
            agent_message: deciding
                .iter()
                .find_map(|(_, annotations)| annotations.agent_message.clone()),
            matched: deciding.iter().map(|(id, _)| (*id).clone()).collect(),
            obligations: applicable(deciding, parameters),
            approval: approvers(deciding),
            errors: Vec::new(),
        };
        self.complete(ruling, parameters)
    }

    /// Cedar skips a policy that fails. One that might have made the ruling stricter must not open the gate by failing.
    fn broken(self, parameters: &Parameters<'_>) -> Ruling {
        let ids = self
            .strict_faults
            .iter()
            .map(|id| format!("`{id}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let mut ruling = Ruling::denial(ReasonCode::PolicyError, format!("could not be evaluated: {ids}"));
        ruling.matched.clone_from(&self.strict_faults);
        self.complete(ruling, parameters)
    }

    /// The ruling with what belongs to every one, whatever its verdict: what the advising policies ask for, because a
    /// denial is recorded, too, and which policies failed. Its lists are sorted.
    fn complete(self, mut ruling: Ruling, parameters: &Parameters<'_>) -> Ruling {
        for satisfied in &self.advice {
            let obligations = applicable(std::slice::from_ref(satisfied), parameters);
            if !obligations.is_empty() {
                ruling.matched.push(satisfied.0.clone());
                ruling.obligations.extend(obligations);
            }
        }
        ruling.matched.sort();
        ruling.obligations.sort();
        ruling.obligations.dedup();
        ruling.errors = self.faults;
        ruling
    }
}

/// What the first policy that gives a reason says; a plain sentence if none does.
fn explanation(reason: ReasonCode, deciding: &[Satisfied<'_>]) -> String {
    let said = deciding
        .iter()
        .find_map(|(_, annotations)| annotations.reason.clone());
    said.unwrap_or_else(|| {
        let id = deciding.first().map_or("", |(id, _)| id.as_str());
        match reason {
            ReasonCode::PolicyForbids => format!("the policy `{id}` forbids it"),
            ReasonCode::PolicyRequiresApproval => format!("the policy `{id}` requires approval"),
            _ => format!("the policy `{id}` permits it"),
        }
    })
}

fn applicable(policies: &[Satisfied<'_>], parameters: &Parameters<'_>) -> Vec<Obligation> {
    let all = policies
        .iter()
        .flat_map(|(_, annotations)| annotations.obligations.about(parameters));
    all.cloned().collect()
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
            return "its patterns could take too long with texts as long as those of the ask";
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
