//! The ruling: which policies are satisfied, and which of them wins. The strictest does; ids are sorted, so that the
//! answer never depends on the order in which policies were evaluated.

use crate::annotations::{Notes, Role};
use crate::compile::{Compiled, PolicySet};
use crate::context::{Asked, Facts};
use crate::parameters::Parameters;
use crate::question::{Question, Unanswerable};
use crate::ruling::{ApprovalTerms, Obligation, PolicyFault, PolicyId, Ruling};
use crate::slice::Slice;
use cedar_policy::{AuthorizationError, EvaluationError};
use model::ReasonCode;
use std::collections::BTreeSet;

/// A satisfied policy.
type Satisfied<'s> = (&'s PolicyId, &'s Notes);

/// What Cedar found, every list in the order of the ids.
struct Findings<'s> {
    forbids: Vec<Satisfied<'s>>,
    approvals: Vec<Satisfied<'s>>,
    permits: Vec<Satisfied<'s>>,
    advice: Vec<Satisfied<'s>>,
    /// The policies that failed and might have made the ruling stricter.
    strict_faults: Vec<PolicyId>,
    faults: Vec<PolicyFault>,
}

impl PolicySet {
    /// The answer of the policies to this question.
    pub fn rule(&self, question: &Question<'_>) -> Result<Ruling, Unanswerable> {
        let compiled = &*self.compiled;
        let tool = compiled.actions.get(&question.tool.name);
        let Some(action) = tool.and_then(|actions| actions.get(&question.action.name)) else {
            return Ok(denial(
                ReasonCode::UnknownTool,
                "no policy knows the tool's action".into(),
            ));
        };
        let parameters = action.parameters.read(question.parameters)?;
        let mutates = question.mutates || action.mutates;
        let prepared = if mutates {
            &action.mutating
        } else {
            &action.reading
        };
        let asked = Facts::new(question, prepared, &parameters, &compiled.attributes)?.ask();
        Ok(compiled.judge(&prepared.slice, &asked, &parameters))
    }
}

impl Compiled {
    fn judge(&self, slice: &Slice, asked: &Asked, parameters: &Parameters<'_>) -> Ruling {
        let mut findings = Findings {
            forbids: Vec::new(),
            approvals: Vec::new(),
            permits: Vec::new(),
            advice: Vec::new(),
            strict_faults: Vec::new(),
            faults: Vec::new(),
        };
        self.evaluate(&slice.rules, asked, &mut findings);
        if self.might_advise(slice, parameters) {
            self.evaluate(&slice.advice, asked, &mut findings);
        }
        findings.into_ruling(parameters)
    }

    /// Most asks carry nothing that advice is about, and then it is not asked for.
    fn might_advise(&self, slice: &Slice, parameters: &Parameters<'_>) -> bool {
        slice.advice.policies().any(|policy| {
            let (_, notes) = self.known(policy.id().as_ref());
            notes
                .obligations
                .iter()
                .any(|obligation| applies(obligation, parameters))
        })
    }

    fn evaluate<'s>(
        &'s self,
        policies: &cedar_policy::PolicySet,
        asked: &Asked,
        findings: &mut Findings<'s>,
    ) {
        let response = self
            .authorizer
            .is_authorized(&asked.request, policies, &asked.entities);
        let diagnostics = response.diagnostics();
        let reasons: BTreeSet<&str> = diagnostics.reason().map(AsRef::as_ref).collect();
        for id in reasons {
            let satisfied = self.known(id);
            match satisfied.1.role {
                Role::Forbid => findings.forbids.push(satisfied),
                Role::Approval(_) => findings.approvals.push(satisfied),
                Role::Permit => findings.permits.push(satisfied),
                Role::Advice => findings.advice.push(satisfied),
            }
        }
        for AuthorizationError::PolicyEvaluationError(error) in diagnostics.errors() {
            let (id, notes) = self.known(error.policy_id().as_ref());
            if notes.role != Role::Permit {
                findings.strict_faults.push(id.clone());
            }
            findings.faults.push(PolicyFault {
                policy: id.clone(),
                message: said(error.inner()).to_owned(),
            });
        }
    }

    fn known(&self, id: &str) -> Satisfied<'_> {
        self.notes
            .get_key_value(id)
            .expect("Cedar was given only policies with notes")
    }
}

impl Findings<'_> {
    fn into_ruling(mut self, parameters: &Parameters<'_>) -> Ruling {
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
            let mut ruling = denial(ReasonCode::NoPolicyPermits, "no policy permits it".into());
            self.advise(&mut ruling, parameters);
            return ruling;
        };
        let mut ruling = Ruling {
            reason,
            explanation: explanation(reason, deciding),
            agent_message: deciding.iter().find_map(|(_, notes)| notes.agent_message.clone()),
            matched: deciding.iter().map(|(id, _)| (*id).clone()).collect(),
            obligations: applicable(deciding, parameters),
            approval: terms(deciding),
            errors: Vec::new(),
        };
        self.advise(&mut ruling, parameters);
        ruling
    }

    /// Cedar skips a policy that fails. One that might have made the ruling stricter must not open the gate by failing.
    fn broken(self, parameters: &Parameters<'_>) -> Ruling {
        let ids = self
            .strict_faults
            .iter()
            .map(|id| format!("`{id}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let mut ruling = denial(ReasonCode::PolicyError, format!("could not be evaluated: {ids}"));
        ruling.matched.clone_from(&self.strict_faults);
        self.advise(&mut ruling, parameters);
        ruling
    }

    /// Adds what the advising policies ask for, whatever the verdict: a denial is recorded, too.
    fn advise(self, ruling: &mut Ruling, parameters: &Parameters<'_>) {
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
    }
}

fn denial(reason: ReasonCode, explanation: String) -> Ruling {
    Ruling {
        reason,
        explanation,
        agent_message: None,
        matched: Vec::new(),
        obligations: Vec::new(),
        approval: None,
        errors: Vec::new(),
    }
}

/// What the first policy that gives a reason says; a plain sentence if none does.
fn explanation(reason: ReasonCode, deciding: &[Satisfied<'_>]) -> String {
    let said = deciding.iter().find_map(|(_, notes)| notes.reason.clone());
    said.unwrap_or_else(|| {
        let id = deciding.first().map_or("", |(id, _)| id.as_str());
        match reason {
            ReasonCode::PolicyForbids => format!("the policy `{id}` forbids it"),
            ReasonCode::PolicyRequiresApproval => format!("the policy `{id}` requires approval"),
            _ => format!("the policy `{id}` permits it"),
        }
    })
}

/// The obligations of these policies that have something to do: nothing can be redacted that is not there.
fn applicable(policies: &[Satisfied<'_>], parameters: &Parameters<'_>) -> Vec<Obligation> {
    let all = policies.iter().flat_map(|(_, notes)| &notes.obligations);
    all.filter(|obligation| applies(obligation, parameters))
        .cloned()
        .collect()
}

fn applies(obligation: &Obligation, parameters: &Parameters<'_>) -> bool {
    match obligation {
        Obligation::Redact(path) => parameters.has(path),
        Obligation::QuarantineAgent | Obligation::Other(_) => true,
    }
}

/// The strictest terms: the largest quorum, and the group that the first policy with one names.
fn terms(deciding: &[Satisfied<'_>]) -> Option<ApprovalTerms> {
    let all = deciding.iter().filter_map(|(_, notes)| match &notes.role {
        Role::Approval(terms) => Some(terms),
        Role::Forbid | Role::Permit | Role::Advice => None,
    });
    all.cloned().reduce(|one, other| ApprovalTerms {
        group: one.group.or(other.group),
        quorum: one.quorum.max(other.quorum),
    })
}

/// What went wrong, without the values that it went wrong with.
fn said(error: &EvaluationError) -> &'static str {
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

#[cfg(test)]
mod tests;
