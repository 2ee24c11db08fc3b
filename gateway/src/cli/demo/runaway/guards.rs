//! What stands in the way of an agent that runs away, and how many calls it makes until then.

use super::{Act, CALL_MICROCENTS};
use anyhow::ensure;
use serde_json::{Value, json};
use std::ops::RangeInclusive;

/// Something that stops an agent, or nothing.
pub struct Guard {
    /// What it is, for people.
    pub name: &'static str,
    /// The requests that put it up, for the agent with this id.
    pub(super) requests: fn(&str) -> Vec<(&'static str, String, Value)>,
    /// The reason code of the denial or refusal.
    pub stopped_by: Option<&'static str>,
    /// How many calls there can be.
    pub calls: RangeInclusive<i64>,
}

/// A dollar for the agent.
fn budget(agent: &str) -> (&'static str, String, Value) {
    let body =
        json!({"scope": {"agent": agent}, "unit": "USD_MICROCENTS", "allocated": 100 * CALL_MICROCENTS});
    ("POST", "/v1/budgets".to_owned(), body)
}

fn quota(agent: &str, limits: Value) -> (&'static str, String, Value) {
    ("PUT", format!("/v1/agents/{agent}/quota"), limits)
}

/// Asks a person when three tenths are spent.
const PAUSE: &str = r#"@id("pause") @decision("require_approval") @reason("Three tenths of the budget are spent")
permit (principal, action, resource)
when { context.usage has budget && context.usage.budget.spent * 10 >= context.usage.budget.allocated * 3 };"#;

/// One after the other. A bucket refills while the agent goes on, so how many calls it lets through depends on how fast that is.
pub const GUARDS: [Guard; 5] = [
    Guard {
        name: "none",
        requests: |_| Vec::new(),
        stopped_by: None,
        calls: 1..=i64::MAX,
    },
    Guard {
        name: "budget of $1.00",
        requests: |agent| vec![budget(agent)],
        stopped_by: Some("budget_exceeded"),
        calls: 100..=100,
    },
    Guard {
        name: "rate of 20 at once, 1 a second",
        requests: |agent| {
            let bucket = json!({"bucket": {"capacity": 20, "refill_per_second": 1}});
            vec![quota(agent, bucket)]
        },
        stopped_by: Some("rate_limited"),
        calls: 20..=i64::MAX,
    },
    Guard {
        name: "quota of 50 calls a run",
        requests: |agent| {
            let run = json!({"quotas": [{"window": "run", "limit": 50}]});
            vec![quota(agent, run)]
        },
        stopped_by: Some("quota_exceeded"),
        calls: 50..=50,
    },
    Guard {
        name: "policy: ask when $0.30 are spent",
        requests: |agent| {
            let policy = json!({"cedar": PAUSE});
            vec![budget(agent), ("PUT", "/v1/policies/thrift".to_owned(), policy)]
        },
        stopped_by: Some("policy_requires_approval"),
        calls: 30..=30,
    },
];

impl Guard {
    /// Fails unless this is where it stops an agent.
    pub(super) fn check(&self, act: &Act) -> anyhow::Result<()> {
        ensure!(
            act.stopped_by.as_deref() == self.stopped_by && self.calls.contains(&act.calls),
            "`{}` should stop an agent by {:?} after {:?} calls",
            self.name,
            self.stopped_by,
            self.calls
        );
        ensure!(
            act.spent == act.calls * CALL_MICROCENTS,
            "{} calls should have cost {} microcents and not {}",
            act.calls,
            act.calls * CALL_MICROCENTS,
            act.spent
        );
        Ok(())
    }
}
