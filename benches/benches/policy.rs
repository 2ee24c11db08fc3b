//! A policy decision, request building included: with the base policies, with a tenant's own beside them, with ten and with
//! ten thousand of them, and with one in shadow. And a change to one policy of a thousand.
//!
//! The policies are compiled once, as they are for every revision of a tenant; each ruling is asserted.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use model::{
    Agent, AgentId, AttributeType, Directory, EffectiveTrust, Name, Noun, SlashFreeName, Tenant, TenantId,
    Timestamp, Tool, Trust, Verdict, Write,
};
use policy::{
    BasePolicies, Candidate, Compiler, Mode, PolicySet, Question, Registry, RunFacts, TenantPermits,
    TenantPolicy,
};
use serde_json::json;

/// A tenant with this many tools and two policies for each has a set of a usual size.
const TOOLS: usize = 20;

const PARAMETERS: &str = r#"{"base_branch":"feature","comment":"asked for by the release plan","number":42}"#;

fn directory() -> Directory {
    let tenant: Tenant = serde_json::from_value(json!({
        "id": TenantId::from_bytes([1; 16]), "name": "acme", "settings": {}, "status": "active",
        "created_at": Timestamp::from_millis(0),
    }))
    .expect("a tenant is written like this");
    let mut directory = Directory::new(Arc::new(tenant));
    for number in 0..TOOLS {
        directory.apply(&Write::Put(Noun::Tool(Arc::new(tool(&format!("tool-{number}"))))));
    }
    directory
}

fn tool(name: &str) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "base_branch": { "type": "string" }, "number": { "type": "integer" }, "comment": { "type": "string" },
        },
        "required": ["base_branch", "number"],
    });
    serde_json::from_value(json!({
        "name": name, "status": "active", "created_at": Timestamp::from_millis(0),
        "actions": {
            "get": { "name": "get", "mutates_state": false, "risk": "low", "input_schema": schema },
            "put": { "name": "put", "mutates_state": true, "risk": "high", "input_schema": schema },
        },
    }))
    .expect("a tool is written like this")
}

fn agent() -> Agent {
    serde_json::from_value(json!({
        "id": AgentId::from_bytes([2; 16]), "tenant": TenantId::from_bytes([1; 16]), "name": "bot",
        "environment": "production", "risk_tier": "low", "tools": "all", "attributes": {}, "status": "active",
        "created_at": Timestamp::from_millis(0),
    }))
    .expect("an agent is written like this")
}

/// For every tool a limit and a wish for approval; those of the last tool apply to what is asked below.
fn tenant_policies() -> Vec<TenantPolicy> {
    let policy = |number| {
        let name = SlashFreeName::new(&format!("limits-{number}")).expect("a plain word is a name");
        let cedar = format!(
            r#"@id("no-freeze-branch")
               forbid (principal, action == Action::"tool-{number}/put", resource)
               when {{ context.input.base_branch == "freeze" }};
               @id("ask-for-large-numbers") @decision("require_approval")
               permit (principal, action == Action::"tool-{number}/put", resource)
               when {{ context.input.number > 1000 }};"#
        );
        TenantPolicy::new(name, cedar)
    };
    (0..TOOLS).map(policy).collect()
}

/// A limit for each of this many agents on a resource of its own; the last is for the agent that asks below.
fn policies_by_scope(count: usize) -> Vec<TenantPolicy> {
    let policy = |number: usize| {
        let agent = if number + 1 == count {
            agent().id.to_string()
        } else {
            format!("agt_{number}")
        };
        let cedar = format!(
            r#"@id("limit")
               forbid (principal == Agent::"{agent}", action in Action::"tool:tool-{}", resource)
               when {{ context.input.number > {} }};"#,
            if number + 1 == count {
                TOOLS - 1
            } else {
                number % TOOLS
            },
            number + 1_000,
        );
        let name = SlashFreeName::new(&format!("agent-{number}")).expect("a plain word is a name");
        TenantPolicy::new(name, cedar)
    };
    (0..count).map(policy).collect()
}

fn shadow() -> Vec<TenantPolicy> {
    let name = SlashFreeName::new("stricter").expect("a plain word is a name");
    let cedar = r#"@id("small-numbers-only")
        forbid (principal, action in Action::"mutate", resource) when { context.input.number > 10 };"#;
    vec![TenantPolicy {
        mode: Mode::Shadow,
        ..TenantPolicy::new(name, cedar)
    }]
}

fn compile(compiler: &Compiler, directory: &Directory, tenant: &[TenantPolicy]) -> PolicySet {
    let attributes: BTreeMap<Name, AttributeType> = BTreeMap::new();
    let candidate = Candidate {
        policies: tenant,
        registry: Registry {
            tools: &directory.tools,
            attributes: &attributes,
        },
        permits: TenantPermits::Allowed,
    };
    compiler.compile(candidate).expect("the policies fit the tools")
}

struct Asked {
    name: &'static str,
    action: &'static str,
    trust: Trust,
    parameters: &'static str,
    expected: Verdict,
}

const BASE: [Asked; 3] = [
    Asked {
        name: "base_allow",
        action: "put",
        trust: Trust::TrustedInternalUnsigned,
        parameters: PARAMETERS,
        expected: Verdict::Allow,
    },
    Asked {
        name: "base_require_approval",
        action: "put",
        trust: Trust::SemiTrustedCustomer,
        parameters: PARAMETERS,
        expected: Verdict::RequireApproval,
    },
    Asked {
        name: "base_deny",
        action: "put",
        trust: Trust::UntrustedExternal,
        parameters: PARAMETERS,
        expected: Verdict::Deny,
    },
];

const TENANT: [Asked; 2] = [
    Asked {
        name: "tenant_allow",
        ..BASE[0]
    },
    Asked {
        name: "tenant_deny",
        parameters: r#"{"base_branch":"freeze","comment":"asked for by the release plan","number":42}"#,
        expected: Verdict::Deny,
        ..BASE[0]
    },
];

fn time_rulings(criterion: &mut Criterion) {
    let (directory, agent) = (directory(), agent());
    let compiler = Compiler::new(BasePolicies::shipped());
    let mut group = criterion.benchmark_group("policy");
    for (policies, asks) in [
        (vec![], &BASE[..]),
        (tenant_policies(), &TENANT[..]),
        (
            policies_by_scope(10),
            &[Asked {
                name: "scoped_10",
                ..BASE[0]
            }],
        ),
        (
            policies_by_scope(10_000),
            &[Asked {
                name: "scoped_10000",
                ..BASE[0]
            }],
        ),
    ] {
        let policies = compile(&compiler, &directory, &policies);
        for asked in asks {
            let question = question(&agent, last_tool(&directory), asked);
            let ruling = policies.rule(&question).expect("the parameters fit the schema");
            assert_eq!(ruling.verdict(), asked.expected, "{}: {ruling:?}", asked.name);
            group.bench_function(asked.name, |bencher| {
                bencher.iter(|| {
                    let ruling = policies
                        .rule(black_box(&question))
                        .expect("they fitted a moment ago");
                    assert!(ruling.verdict() == asked.expected);
                    ruling
                });
            });
        }
    }
    group.finish();
}

fn last_tool(directory: &Directory) -> &Tool {
    directory.tools.values().next_back().expect("there are tools")
}

fn time_shadows(criterion: &mut Criterion) {
    let (directory, agent) = (directory(), agent());
    let policies = compile(&Compiler::new(BasePolicies::shipped()), &directory, &shadow());
    let question = question(&agent, last_tool(&directory), &BASE[0]);
    criterion.bench_function("policy/beside_a_shadow", |bencher| {
        bencher.iter(|| {
            let rulings = policies
                .rule_with_shadow(black_box(&question))
                .expect("the parameters fit the schema");
            let shadow = rulings.shadow.as_ref().expect("something is in shadow");
            assert!(rulings.ruling.verdict() == Verdict::Allow && shadow.verdict() == Verdict::Deny);
            rulings
        });
    });
}

/// Another version of one policy each time, as an editor would send it.
fn time_changes(criterion: &mut Criterion) {
    let directory = directory();
    let compiler = Compiler::new(BasePolicies::shipped());
    let mut policies = policies_by_scope(1_000);
    let mut in_force = compile(&compiler, &directory, &policies);
    let mut version = 0_u64;
    criterion.bench_function("policy/change_one_of_1000", |bencher| {
        bencher.iter(|| {
            version += 1;
            policies[500].cedar = format!(
                r#"@id("limit") forbid (principal, action == Action::"tool-1/put", resource)
                   when {{ context.input.number > {version} }};"#
            )
            .into();
            let changed = compile(&compiler, &directory, &policies);
            assert!(changed.digest() != in_force.digest());
            in_force = changed;
        });
    });
}

fn question<'a>(agent: &'a Agent, tool: &'a Tool, asked: &'a Asked) -> Question<'a> {
    Question {
        agent,
        team: None,
        user: None,
        tool,
        action: &tool.actions[asked.action],
        mutates: false,
        resource: Some("repo:acme/widgets#42"),
        parameters: asked.parameters,
        trust: EffectiveTrust::without_signature(asked.trust, None),
        contains_sensitive_data: false,
        attributes: None,
        run: Some(RunFacts {
            id: "run-1",
            worst: Trust::TrustedInternalUnsigned,
        }),
        usage: None,
        sources: None,
        vouched: None,
        now: Timestamp::from_millis(1_760_000_000_000),
        fuel: None,
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(40)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = time_rulings, time_shadows, time_changes
}
criterion_main!(benches);
