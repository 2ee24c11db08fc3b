//! Three ways to hold the source of an ask against it, side by side on the same calls: the level of the call, what the
//! run has read, and where each parameter came from.
//!
//! The calls are labelled as a runtime would that follows values: what stands in the user's own words is the user's,
//! everything else was read somewhere, and of what injected text wants nothing is the user's. Labels of the data's own
//! are not used. Whether a value stands in the user's words is a comparison of texts, so a date that was said as
//! "tomorrow" counts as read: what passes is a lower bound.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::{Call, Counts, Kind, SUITES, ToolCall, Trace, create_agents, read, read_calls};
use crate::address::Address;
use crate::client::Client;

/// Where the user's words come from.
const SAID: &str = "trusted_internal_unsigned";
/// Where everything else comes from.
const READ: &str = "untrusted_external";

/// What a source is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The least trusted parameter counts for the whole call.
    Call,
    /// Once a run has read anything, it changes nothing.
    Run,
    /// Policies say which parameter may come from where.
    Parameter,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Call, Self::Run, Self::Parameter];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Run => "run",
            Self::Parameter => "parameter",
        }
    }

    fn settings(self) -> Value {
        match self {
            Self::Call => json!({ "sources": "call" }),
            Self::Run => json!({ "run_taint": "deny" }),
            Self::Parameter => json!({ "sources": "parameter" }),
        }
    }
}

/// What became of the calls of one suite that change something, under one rule.
#[derive(Debug)]
pub struct Outcome {
    /// The suite.
    pub suite: &'static str,
    /// The rule.
    pub rule: Rule,
    /// What the user wanted.
    pub user: Counts,
    /// What injected text wanted.
    pub injected: Counts,
}

#[derive(Serialize)]
struct Labelled<'a> {
    request_id: String,
    tool_call: ToolCall<'a>,
    context: Labels,
    trace: Trace<'a>,
}

#[derive(Serialize)]
struct Labels {
    source_trust: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sources: BTreeMap<String, &'static str>,
}

/// Plays every suite under every rule. `policies` is the folder with those for the rule about parameters, a folder a suite.
pub async fn compare(
    address: &Address,
    operator_key: &str,
    data: &Path,
    policies: &Path,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for suite in SUITES {
        let cedar = read(&policies.join(suite).join("policy.cedar"))?;
        for rule in Rule::ALL {
            let outcome = play_under(address, operator_key, data, (suite, rule), &cedar).await;
            outcomes.push(outcome.with_context(|| format!("playing `{suite}` by {}", rule.as_str()))?);
        }
    }
    Ok(outcomes)
}

async fn play_under(
    address: &Address,
    operator_key: &str,
    data: &Path,
    (suite, rule): (&'static str, Rule),
    cedar: &str,
) -> Result<Outcome> {
    let calls = read_calls(data, suite)?;
    let listing = read(&data.join("tools").join(format!("{suite}.json")))?;
    let mut operator = Client::open(address, operator_key).await?;
    operator
        .create_tenant(&format!("{suite}-{}-{}", rule.as_str(), std::process::id()))
        .await?;
    operator.import_tool(suite, &listing).await?;
    operator.set(&rule.settings()).await?;
    if rule == Rule::Parameter {
        operator.put_policy(suite, cedar).await?;
    }
    let mutating: BTreeSet<_> = operator.mutating_actions(suite).await?.into_iter().collect();
    let mut agents = create_agents(&mut operator, address, suite, &calls).await?;
    let mut outcome = Outcome {
        suite,
        rule,
        user: Counts::default(),
        injected: Counts::default(),
    };
    for call in &calls {
        let agent = agents
            .get_mut(&call.task_id)
            .expect("an agent was made for every task");
        if rule == Rule::Run && call.kind == Kind::Injection {
            agent.observe(&call.task_id, READ).await?;
        }
        let decision = agent.authorize(&call.labelled(rule)?).await;
        let decision = decision.with_context(|| format!("playing {call}"))?.decision;
        if mutating.contains(&call.action) {
            match call.kind {
                Kind::User => outcome.user.count(decision),
                Kind::Injection => outcome.injected.count(decision),
            }
        } else if rule == Rule::Run {
            agent.observe(&call.task_id, READ).await?;
        }
    }
    Ok(outcome)
}

impl Call {
    /// The ask that the call becomes. A run that is watched as a whole tells nothing of its parameters.
    fn labelled(&self, rule: Rule) -> Result<Box<RawValue>> {
        let ask = Labelled {
            request_id: format!("{}-{}", self.task_id, self.step),
            tool_call: ToolCall {
                tool: &self.tool,
                action: &self.action,
                mutates_state: self.mutates_state,
                parameters: &self.parameters,
            },
            context: Labels {
                source_trust: SAID,
                sources: if rule == Rule::Run {
                    BTreeMap::new()
                } else {
                    self.sources()?
                },
            },
            trace: Trace {
                run_id: &self.task_id,
            },
        };
        Ok(to_raw_value(&ask)?)
    }

    /// Where each parameter that the user did not say came from, by JSON Pointer (RFC 6901).
    fn sources(&self) -> Result<BTreeMap<String, &'static str>> {
        let parameters: Map<String, Value> = serde_json::from_str(self.parameters.get())?;
        let was_read = |value: &Value| self.kind == Kind::Injection || !is_said(value, &self.goal);
        let read = parameters.iter().filter(|(_, value)| was_read(value));
        Ok(read
            .map(|(name, _)| {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                (format!("/{escaped}"), READ)
            })
            .collect())
    }
}

/// Whether a value stands in the user's words.
fn is_said(value: &Value, words: &str) -> bool {
    match value {
        Value::String(text) => words.to_lowercase().contains(text.trim().to_lowercase().as_str()),
        Value::Number(number) => {
            let text = number.to_string();
            words.contains(text.strip_suffix(".0").unwrap_or(&text))
        }
        Value::Array(items) => items.iter().all(|item| is_said(item, words)),
        Value::Object(members) => members.values().all(|member| is_said(member, words)),
        Value::Bool(_) | Value::Null => false,
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stopped = |counts: Counts| counts.denied + counts.needs_approval;
        let (user, injected) = (self.user, self.injected);
        write!(
            f,
            "{:<11}{:<11}{:>4} of {:<4}{:>9}{:>10}{:>13} of {}",
            self.suite,
            self.rule.as_str(),
            user.allowed,
            user.total(),
            user.needs_approval,
            user.denied,
            stopped(injected),
            injected.total()
        )
    }
}

/// What stands above a column of [`Outcome`]s.
pub const HEADING: &str = "suite      rule       user passes  asks first  denied  injected stopped";

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: &str, goal: &str) -> Call {
        let text = json!({
            "suite": "bank", "task_id": "task_1", "kind": kind, "step": 1, "tool": "bank", "action": "send",
            "parameters": { "recipient": "Ana", "amount": 4.0, "a/b": ["x"] }, "mutates_state": true,
            "source_trust": "unknown", "goal": goal,
        });
        serde_json::from_str(&text.to_string()).unwrap()
    }

    #[test]
    fn what_the_user_said_is_the_users_and_the_rest_was_read() {
        let sources = call("user", "Send ana 4 of it").sources().unwrap();
        assert_eq!(
            sources.into_iter().collect::<Vec<_>>(),
            [("/a~1b".to_owned(), READ)]
        );
    }

    #[test]
    fn of_what_injected_text_wants_nothing_is_the_users() {
        let sources = call("injection", "Send Ana 4 of x").sources().unwrap();
        assert_eq!(sources.len(), 3);
    }

    #[test]
    fn a_run_that_is_watched_as_a_whole_tells_nothing_of_parameters() {
        let ask = call("user", "").labelled(Rule::Run).unwrap();
        assert!(
            ask.get()
                .contains(r#""context":{"source_trust":"trusted_internal_unsigned"}"#),
            "{ask}"
        );
    }
}
