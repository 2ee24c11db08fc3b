//! Tests of policies: asks with the verdicts that are expected of them, in files that a security team keeps beside its
//! policies. `docs/policies/README.md` describes the files. Nothing is read from disk here.

mod compare;
mod files;

use crate::compile::{Candidate, Compiler, Registry, TenantPermits};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::question::{Question, RunFacts, Unanswerable, UserFacts};
use crate::rule::findings::unknown_action;
use crate::ruling::{PolicyId, Ruling};
use crate::set::PolicySet;
use crate::tenant::TenantPolicy;
use files::{Cases, Test, Tools};
use model::ReasonCode;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// The texts of a suite.
#[derive(Debug, Clone, Copy)]
pub struct SuiteTexts<'a> {
    /// The policies under test.
    pub policies: &'a [TenantPolicy],
    /// `tools.json`: what policies and asks may speak of.
    pub tools: &'a str,
    /// `tests.json`: who asks, what, and what is expected.
    pub tests: &'a str,
}

/// Why there is nothing to run.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The tools cannot be read.
    #[error("the tools cannot be read: {0}")]
    Tools(String),
    /// The tests cannot be read.
    #[error("the tests cannot be read: {0}")]
    Tests(String),
    /// The policies are not valid for these tools.
    #[error("the policies are not valid: {0}")]
    Policies(#[from] Diagnostics),
}

/// Policies, and the asks that prove them.
#[derive(Debug)]
pub struct Suite {
    set: PolicySet,
    tools: Tools,
    cases: Cases,
    /// The policies under test, without the operator's.
    under_test: BTreeSet<PolicyId>,
}

/// What came of a suite.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What came of each test, in their order.
    pub results: Vec<TestResult>,
    /// The policies under test that decided nothing in any test, sorted.
    pub untested: Vec<PolicyId>,
}

/// What came of one test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestResult {
    /// Its name.
    pub name: String,
    /// What is not as expected, in sentences. Nothing if it passed.
    pub differences: Vec<String>,
    /// The answer; none if the ask would be refused.
    pub ruling: Option<Ruling>,
}

impl Report {
    /// Whether every test passed.
    pub fn passed(&self) -> bool {
        self.results.iter().all(TestResult::passed)
    }
}

impl TestResult {
    /// Whether everything is as expected.
    pub fn passed(&self) -> bool {
        self.differences.is_empty()
    }
}

impl Suite {
    /// The suite in these texts.
    pub fn new(compiler: &Compiler, sources: SuiteTexts<'_>) -> Result<Self, SuiteError> {
        let tools = Tools::read(sources.tools).map_err(SuiteError::Tools)?;
        let cases = Cases::read(sources.tests).map_err(SuiteError::Tests)?;
        let candidate = Candidate {
            policies: sources.policies,
            registry: Registry {
                tools: &tools.registered,
                attributes: &tools.attributes,
            },
            permits: TenantPermits::Allowed,
        };
        let set = compiler.compile_new(candidate, None)?;
        let under_test = set.policy_ids().into_iter().filter(|id| !id.is_base());
        Ok(Self {
            under_test: under_test.cloned().collect(),
            set,
            tools,
            cases,
        })
    }

    /// What whoever writes the policies under test should know of them, although they are valid.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        let is_base = |policy: &str| policy.split('/').next() == Some(PolicyId::BASE);
        let warnings = self.set.warnings().iter();
        warnings.filter(move |warning| !warning.policy.as_deref().is_some_and(is_base))
    }

    /// Asks everything.
    pub fn run(&self) -> Report {
        let results: Vec<_> = self.cases.tests.iter().map(|test| self.try_one(test)).collect();
        let rulings = results.iter().filter_map(|result| result.ruling.as_ref());
        let decided: BTreeSet<_> = rulings.flat_map(|ruling| &ruling.matched).collect();
        let untested = self.under_test.iter().filter(|id| !decided.contains(id));
        Report {
            untested: untested.cloned().collect(),
            results,
        }
    }

    fn try_one(&self, test: &Test) -> TestResult {
        let (ruling, refusal) = match self.ask(test) {
            Ok(ruling) => (Some(ruling), None),
            Err(refusal @ Unanswerable::InvalidParameters { .. }) => {
                let ruling = Ruling::denial(ReasonCode::InvalidParameters, refusal.to_string());
                (Some(ruling), None)
            }
            Err(refusal @ Unanswerable::MistypedAttribute { .. }) => (None, Some(refusal)),
        };
        let differences = ruling
            .as_ref()
            .map(|ruling| compare::differences(&test.expect, ruling));
        let refusal = refusal.map(|refusal| vec![format!("the ask would be refused: {refusal}")]);
        TestResult {
            name: test.name.clone(),
            differences: differences.or(refusal).unwrap_or_default(),
            ruling,
        }
    }

    fn ask(&self, test: &Test) -> Result<Ruling, Unanswerable> {
        let Test { call, context, .. } = test;
        let registered = self.tools.registered.get(test.tool.as_str());
        let registered = registered.and_then(|tool| Some((tool, tool.actions.get(&call.action)?)));
        let Some((tool, action)) = registered else {
            return Ok(unknown_action());
        };
        let agent = &self.cases.agents[&test.agent];
        let team = agent.team.as_ref().and_then(|team| self.cases.teams.get(team));
        let team = team.map(|team| &**team);
        let attributes = context.attributes.as_ref();
        let attributes = attributes.map(|attributes| Value::Object(attributes.clone()).to_string());
        let trust = test.trust(self.tools.sources);
        self.set.rule(&Question {
            agent,
            team,
            user: test.user.as_ref().map(|user| UserFacts {
                id: user.as_str(),
                registered: self.cases.users.get(user),
                teams: Some(&self.cases.teams),
            }),
            tool,
            action,
            mutates: action.mutates_state || call.mutates_state,
            resource: call.resource.as_deref(),
            parameters: &call.parameters,
            trust,
            contains_sensitive_data: context.contains_sensitive_data,
            attributes: attributes.as_deref(),
            run: test.run.as_ref().map(|run| RunFacts {
                id: run.as_str(),
                worst: test.seen(trust),
            }),
            usage: Some(&test.usage),
            sources: Some(&test.sources),
            vouched: None,
            now: test.at,
            fuel: None,
        })
    }
}

#[cfg(test)]
mod tests;
