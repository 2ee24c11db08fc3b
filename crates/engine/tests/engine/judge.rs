//! What is found out about an ask, in which order, and what a caller cannot talk itself into.

use crate::support::{AGENT, NOW, agent, ask, tenant, tenant_with, tool};
use engine::{LookedUpFacts, Refusal, TenantSnapshot, judge};
use model::{Agent, AgentId, Name, Noun, ReasonCode, SlashFreeName, SourceRule, Standing, Trust, Write};
use policy::{BasePolicies, PolicySet, Registry, TenantPolicy};
use serde_json::{Value, json};
use std::sync::Arc;

fn reason(agent: &Agent, action: &str, members: Value) -> ReasonCode {
    let tenant = tenant_with(
        agent.clone(),
        [tool("github"), tool("slack"), tool("canary-vault")],
    );
    judge(
        &tenant,
        agent,
        &ask(action, members),
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap()
    .reason
}

#[test]
fn a_read_is_permitted_and_the_reason_says_so() {
    let judgement = judge(
        &tenant(),
        &agent(),
        &ask("read", json!({})),
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap();
    assert_eq!(judgement.reason, ReasonCode::PolicyPermits);
    assert!(
        judgement.matched.iter().all(|id| id.starts_with("base/")),
        "{:?}",
        judgement.matched
    );
    assert_eq!(judgement.risk, Some(model::Risk::Low));
    assert!(!judgement.mutates);
}

#[test]
fn a_claim_that_nothing_mutates_does_not_loosen_what_the_registry_says() {
    let untrusted =
        json!({"tool_call": {"mutates_state": false}, "context": {"source_trust": "malicious_suspected"}});
    assert_eq!(reason(&agent(), "write", untrusted), ReasonCode::PolicyForbids);
}

#[test]
fn a_claim_that_a_read_mutates_tightens() {
    let members =
        json!({"tool_call": {"mutates_state": true}, "context": {"source_trust": "untrusted_external"}});
    assert_eq!(reason(&agent(), "read", members), ReasonCode::PolicyForbids);
}

/// A tenant in which agents may ask in the name of `planner`, with no other policies than these.
fn tenant_with_planner(text: &str) -> TenantSnapshot {
    let planner = Agent {
        id: AgentId::from_bytes([3; 16]),
        name: Name::new("planner").unwrap(),
        ..agent()
    };
    let mut tenant = tenant();
    tenant
        .directory
        .apply(&Write::Put(Noun::Agent(Arc::new(planner))));
    let mine = TenantPolicy::new(SlashFreeName::new("mine").unwrap(), text);
    let registry = Registry {
        tools: &tenant.directory.tools,
        attributes: &tenant.directory.tenant.settings.context_attributes,
    };
    let policies = PolicySet::compile(&BasePolicies::parse("").unwrap(), &[mine], registry).unwrap();
    tenant.policies = Arc::new(policies);
    tenant
}

#[test]
fn a_claim_takes_nothing_from_what_is_asked_for_another_agent() {
    let text = r#"
        @id("reads") permit (principal, action in Action::"read", resource);
        @id("owners") @decision("require_approval") @approvers("data-owners")
        permit (principal, action in Action::"read", resource) when { context.agent.name == "planner" };
        @id("changes") @decision("require_approval") @approvers("team-leads")
        permit (principal, action in Action::"mutate", resource);"#;
    let tenant = tenant_with_planner(text);
    for mutates_state in [false, true] {
        let members = json!({"tool_call": {"mutates_state": mutates_state}, "act": {"sub": "planner"}});
        let judgement = judge(
            &tenant,
            &agent(),
            &ask("read", members),
            &LookedUpFacts::default(),
            NOW,
        )
        .unwrap();
        let group = judgement.approval.unwrap().group;
        assert_eq!(group.as_deref(), Some("data-owners"), "{mutates_state}");
    }
}

#[test]
fn whom_each_agent_of_a_chain_needs_has_to_approve() {
    let text = r#"
        @id("planners") @decision("require_approval") @approvers("leads") @quorum("2")
        permit (principal, action, resource) when { context.agent.name == "planner" };
        @id("builders") @decision("require_approval") @approvers("helpers")
        permit (principal, action, resource) when { context.agent.name == "builder" };"#;
    let tenant = tenant_with_planner(text);
    let asked = |members| {
        let ask = ask("write", members);
        let judgement = judge(&tenant, &agent(), &ask, &LookedUpFacts::default(), NOW).unwrap();
        serde_json::to_value(judgement.approval.unwrap()).unwrap()
    };
    assert_eq!(asked(json!({})), json!({"group": "helpers", "quorum": 1}));
    assert_eq!(
        asked(json!({"act": {"sub": "planner"}})),
        json!({"group": "helpers", "quorum": 1, "also": [{"group": "leads", "quorum": 2}]})
    );
}

#[test]
fn what_a_claim_denies_for_certain_is_denied_whatever_the_parameters_are() {
    let text = r#"
        @id("reads") permit (principal, action in Action::"read", resource)
        when { context.parameters.contains("path") };
        @id("changes") forbid (principal, action in Action::"mutate", resource);"#;
    let tenant = tenant_with_planner(text);
    let unknown = LookedUpFacts {
        parameters_unknown: true,
        ..LookedUpFacts::default()
    };
    for act in [Value::Null, json!({"sub": "planner"})] {
        let reason = |mutates_state: bool| {
            let mut members = json!({"tool_call": {"mutates_state": mutates_state}});
            if !act.is_null() {
                members["act"] = act.clone();
            }
            let judgement = judge(&tenant, &agent(), &ask("read", members), &unknown, NOW).unwrap();
            judgement.reason
        };
        assert_eq!(reason(true), ReasonCode::PolicyForbids, "{act}");
        assert_eq!(reason(false), ReasonCode::InvalidParameters, "{act}");
    }
}

/// What comes of both together is not known, though it is of each.
#[test]
fn without_parameters_what_all_agents_of_a_chain_may_have_redacted_counts_together() {
    let redacting = |name: &str| {
        let paths: Vec<_> = (0..40)
            .map(|number| format!("redact:parameters.{name}-{number}"))
            .collect();
        format!(
            "@id(\"{name}\") @decision(\"advise\") @obligation(\"{}\")
            permit (principal, action, resource) when {{ context.agent.name == \"{name}\" }};",
            paths.join(", ")
        )
    };
    let (ours, theirs) = (redacting("builder"), redacting("planner"));
    let tenant = tenant_with_planner(&format!(
        "@id(\"all\") permit (principal, action, resource); {ours} {theirs}"
    ));
    let unknown = LookedUpFacts {
        parameters_unknown: true,
        ..LookedUpFacts::default()
    };
    let names = ["builder", "planner"]
        .into_iter()
        .flat_map(|name| (0..40).map(move |number| format!("{name}-{number}")));
    let parameters: serde_json::Map<_, _> = names.map(|name| (name, json!(1))).collect();
    for mutates_state in [false, true] {
        let reason = |facts: &LookedUpFacts<'_>, act: Option<&str>, parameters: Value| {
            let mut members =
                json!({"tool_call": {"mutates_state": mutates_state, "parameters": parameters}});
            if let Some(name) = act {
                members["act"] = json!({"sub": name});
            }
            let judgement = judge(&tenant, &agent(), &ask("read", members), facts, NOW);
            judgement.unwrap().reason
        };
        let alone = reason(&unknown, None, json!({}));
        assert_eq!(alone, ReasonCode::PolicyPermits, "{mutates_state}");
        let together = reason(&unknown, Some("planner"), json!({}));
        assert_eq!(together, ReasonCode::InvalidParameters, "{mutates_state}");
        let all = Value::Object(parameters.clone());
        let known = reason(&LookedUpFacts::default(), Some("planner"), all);
        assert_eq!(known, ReasonCode::PolicyError, "{mutates_state}");
    }
}

#[test]
fn signed_without_a_signature_counts_as_unsigned() {
    let members = json!({"context": {"source_trust": "trusted_internal_signed"}});
    let judgement = judge(
        &tenant(),
        &agent(),
        &ask("write", members),
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap();
    assert_eq!(judgement.trust.claimed, Trust::TrustedInternalSigned);
    assert_eq!(judgement.trust.level, Trust::TrustedInternalUnsigned);
    assert_eq!(judgement.reason, ReasonCode::PolicyPermits);
}

#[test]
fn one_untrusted_source_lowers_the_whole_ask() {
    let members = json!({"context": {"sources": {"/body": "untrusted_external"}}});
    assert_eq!(reason(&agent(), "write", members), ReasonCode::PolicyForbids);
}

#[test]
fn standing_comes_before_everything_else() {
    for (standing, code) in [
        (
            Standing::Active.freeze("odd", NOW).unwrap(),
            ReasonCode::AgentFrozen,
        ),
        (Standing::Active.revoke("stolen", NOW), ReasonCode::AgentRevoked),
    ] {
        let agent = Agent { standing, ..agent() };
        assert_eq!(reason(&agent, "no-such-action", json!({})), code);
    }
}

#[test]
fn a_frozen_tenant_denies() {
    let mut tenant = tenant();
    let frozen = tenant.directory.tenant.standing.freeze("unpaid", NOW).unwrap();
    std::sync::Arc::make_mut(&mut tenant.directory.tenant).standing = frozen;
    let judgement = judge(
        &tenant,
        &agent(),
        &ask("read", json!({})),
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap();
    assert_eq!(judgement.reason, ReasonCode::TenantFrozen);
}

#[test]
fn what_is_not_registered_or_not_granted_is_denied() {
    assert_eq!(
        reason(&agent(), "no-such-action", json!({})),
        ReasonCode::UnknownTool
    );
    let unknown = json!({"tool_call": {"tool": "unheard-of"}});
    assert_eq!(reason(&agent(), "read", unknown), ReasonCode::UnknownTool);
    let foreign = json!({"tool_call": {"tool": "slack"}});
    assert_eq!(reason(&agent(), "read", foreign), ReasonCode::ToolNotGranted);
}

#[test]
fn a_frozen_tool_is_quarantined() {
    let mut frozen = tool("github");
    frozen.standing = frozen.standing.freeze("odd", NOW).unwrap();
    let tenant = tenant_with(agent(), [frozen]);
    let judgement = judge(
        &tenant,
        &agent(),
        &ask("read", json!({})),
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap();
    assert_eq!(judgement.reason, ReasonCode::ToolQuarantined);
}

#[test]
fn a_canary_catches_an_agent_that_was_never_granted_it() {
    let members = json!({"tool_call": {"tool": "canary-vault"}});
    let tenant = tenant_with(agent(), [tool("github"), tool("canary-vault")]);
    let judgement = judge(
        &tenant,
        &agent(),
        &ask("read", members),
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap();
    assert_eq!(judgement.reason, ReasonCode::PolicyForbids);
    assert!(judgement.quarantine.unwrap().starts_with("quarantined: "));
}

#[test]
fn parameters_outside_the_schema_are_denied_without_repeating_them() {
    let tenant = tenant();
    let members = json!({"tool_call": {"parameters": {"n": "hunter2"}}});
    let judgement = judge(
        &tenant,
        &agent(),
        &ask("count", members),
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap();
    assert_eq!(judgement.reason, ReasonCode::InvalidParameters);
    assert!(
        judgement.explanation.starts_with("`parameters/n`: "),
        "{}",
        judgement.explanation
    );
    assert!(!judgement.explanation.contains("hunter2"));
}

#[test]
fn where_no_parameters_can_be_checked_an_action_is_denied_whoever_knows_them() {
    let mut unchecked = tool("github");
    let schema = json!({"properties": {"n": {"pattern": r"\s".repeat(1_000)}}});
    let count = unchecked.actions.get_mut("count").unwrap();
    count.input_schema = Some(Arc::new(schema));
    let tenant = tenant_with(agent(), [unchecked]);
    for parameters_unknown in [false, true] {
        let facts = LookedUpFacts {
            parameters_unknown,
            ..LookedUpFacts::default()
        };
        let judgement = judge(&tenant, &agent(), &ask("count", json!({})), &facts, NOW).unwrap();
        assert_eq!(
            (judgement.reason, &*judgement.explanation),
            (
                ReasonCode::InvalidParameters,
                "`parameters`: cannot be checked: the action's schema has patterns with so many classes like `\\s` that they cannot be read in time"
            ),
            "{parameters_unknown}"
        );
    }
}

#[test]
fn a_canary_whose_parameters_cannot_be_checked_catches_all_the_same() {
    let mut trap = tool("canary-vault");
    let schema = json!({"properties": {"n": {"pattern": r"\s".repeat(1_000)}}});
    for action in trap.actions.values_mut() {
        action.input_schema = Some(Arc::new(schema.clone()));
    }
    let tenant = tenant_with(agent(), [trap]);
    for action in ["count", "no_such_action"] {
        for parameters_unknown in [false, true] {
            let facts = LookedUpFacts {
                parameters_unknown,
                ..LookedUpFacts::default()
            };
            let ask = ask(action, json!({"tool_call": {"tool": "canary-vault"}}));
            let judgement = judge(&tenant, &agent(), &ask, &facts, NOW).unwrap();
            assert_eq!(judgement.reason, ReasonCode::PolicyForbids, "{action}");
            assert!(judgement.quarantine.is_some(), "{action}");
        }
    }
}

#[test]
fn claims_that_contradict_the_credential_are_refused() {
    let judge = |members| {
        judge(
            &tenant(),
            &agent(),
            &ask("read", members),
            &LookedUpFacts::default(),
            NOW,
        )
        .unwrap_err()
    };
    let other = model::AgentId::from_bytes([9; 16]);
    assert_eq!(judge(json!({"agent": {"id": other}})), Refusal::AgentMismatch);
    assert_eq!(
        judge(json!({"agent": {"environment": "staging"}})),
        Refusal::EnvironmentNotAllowed {
            registered: "production".into(),
            claimed: "staging".into()
        }
    );
    assert_eq!(judge(json!({"mode": "observe"})), Refusal::ObserveNotPermitted);
    assert_eq!(
        judge(json!({"approval_id": "apr_1"})),
        Refusal::ApprovalNotUsable {
            approval: "apr_1".into(),
            why: None
        }
    );
    assert_eq!(
        judge(json!({"context": {"provenance": "eyJ"}})),
        Refusal::Provenance(engine::ProvenanceError::NoIssuers)
    );
}

#[test]
fn a_tenant_chooses_whether_the_worst_source_counts_for_the_whole_call() {
    let members = json!({"context": {"sources": {"/path": "untrusted_external"}}});
    let ask = ask("read", members);
    let level = |tenant: &TenantSnapshot| {
        let judgement = judge(tenant, &agent(), &ask, &LookedUpFacts::default(), NOW).unwrap();
        judgement.trust.level
    };
    assert_eq!(level(&tenant()), Trust::UntrustedExternal);
    let mut noun = model::Tenant::clone(&tenant().directory.tenant);
    noun.settings.sources = SourceRule::Parameter;
    let mut apart = tenant();
    apart.directory.tenant = std::sync::Arc::new(noun);
    assert_ne!(level(&apart), Trust::UntrustedExternal);
}

#[test]
fn claims_that_agree_with_the_credential_change_nothing() {
    let members = json!({"agent": {"id": AGENT, "environment": "production"}});
    assert_eq!(reason(&agent(), "read", members), ReasonCode::PolicyPermits);
}
