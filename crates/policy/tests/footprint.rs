//! What tenants take in memory. A test binary of its own, because it measures the whole process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use model::{SlashFreeName, Tool};
use policy::{BasePolicies, Candidate, Compiler, PolicySet, Registry, TenantPermits, TenantPolicy};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use world::{action, tool};

/// A fifth of what has to fit, because nothing here is optimised.
const TENANTS: usize = 200;
const POLICIES: usize = 20;
const TOOLS: usize = 4;
/// 300 MB for a thousand tenants.
const KILOBYTES_PER_TENANT_MAX: usize = 300;

/// The memory that this process has in use, in kilobytes; `None` where the system does not tell.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The tools of a tenant, called like those of no other.
fn tools(tenant: usize) -> Vec<Tool> {
    let schema = json!({"type": "object", "properties": {
        "number": {"type": "integer"}, "title": {"type": "string", "maxLength": 100},
        "labels": {"type": "array", "items": {"type": "string"}},
    }, "required": ["number"]});
    let actions = [("get", false), ("list", false), ("put", true), ("delete", true)];
    let actions = actions.map(|(name, mutates)| action(name, mutates, Some(schema.clone())));
    (0..TOOLS)
        .map(|number| tool(&format!("tool-{tenant}-{number}"), actions.clone()))
        .collect()
}

fn policy(tenant: usize, number: usize) -> TenantPolicy {
    let cedar = format!(
        r#"@id("limit") @reason("number {number} of tenant {tenant} is limited") @agent_message("ask somebody who may")
        forbid (principal in Team::"team-{number}", action == Action::"tool-{tenant}-{}/put", resource)
        when {{
          context.input.number > {number} && context.trust.rank < 4 &&
          !(context has user && context.user in Team::"owners")
        }};"#,
        number % TOOLS
    );
    TenantPolicy::new(SlashFreeName::new(&format!("policy-{number}")).unwrap(), cedar)
}

fn compile(compiler: &Compiler, tenant: usize) -> PolicySet {
    let tools = tools(tenant).into_iter();
    let tools = tools.map(|tool| (tool.name.clone(), Arc::new(tool))).collect();
    let policies: Vec<_> = (0..POLICIES).map(|number| policy(tenant, number)).collect();
    let candidate = Candidate {
        policies: &policies,
        registry: Registry {
            tools: &tools,
            attributes: &BTreeMap::new(),
        },
        permits: TenantPermits::Allowed,
    };
    compiler.compile(candidate).unwrap()
}

#[test]
fn a_thousand_tenants_with_tools_and_policies_of_their_own_fit_in_300_megabytes() {
    let compiler = Compiler::new(BasePolicies::shipped());
    let Some(before) = resident() else {
        eprintln!("skipped: this system does not tell how much memory is in use");
        return;
    };
    let sets: Vec<_> = (0..TENANTS).map(|tenant| compile(&compiler, tenant)).collect();
    let each = resident().unwrap().saturating_sub(before) / sets.len();
    assert!(each <= KILOBYTES_PER_TENANT_MAX, "{each} kB for each tenant");
    assert!(
        each > POLICIES / 2,
        "{each} kB for each tenant is too little to be true"
    );
}
