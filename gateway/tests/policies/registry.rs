//! Tools and settings that would break a policy in force.

use crate::stage::Stage;
use crate::support::BEGINNING;
use crate::{Desk, NO_ISSUES, diagnostics};
use engine::EntryKind;
use gateway::changes::{By, Force, Plan};
use model::{Directory, Noun, Policy, PolicyMode, PolicyText, SlashFreeName, Timestamp, Write};
use serde_json::{Value, json};
use std::sync::Arc;

const MAY_READ: &str = r#"@id("all") permit (principal, action in Action::"read", resource);"#;

async fn settings(stage: &Stage, may_permit: bool) -> crate::support::Reply {
    let body = json!({"settings": {"policies": {"may_permit": may_permit}}});
    let path = format!("/v1/tenants/{}", stage.tenant);
    stage
        .call("PATCH", &path, &stage.operator)
        .json(&body)
        .send()
        .await
}

#[tokio::test]
async fn a_tool_that_a_policy_in_force_speaks_of_does_not_change_under_it() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.put(
        "merges",
        r#"@id("first") forbid (principal, action == Action::"github/merge_pull_request", resource)
        when { context.input.number == 1 };"#,
    )
    .await
    .expect(201);
    let head = desk.head().await;
    let before = desk
        .admin("GET", "/v1/tools/github", &Value::Null)
        .await
        .expect(200);
    let reader = json!({"actions": [{"name": "get_file", "mutates_state": false, "risk": "low"}]});
    let found = diagnostics(&desk.admin("PUT", "/v1/tools/github", &reader).await);
    let named: Vec<_> = found.iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert!(
        named.contains(&"issues/none") && named.contains(&"merges/first"),
        "{found:?}"
    );
    let deleted = desk.admin("DELETE", "/v1/tools/github", &Value::Null).await;
    diagnostics(&deleted);
    assert_eq!(desk.head().await, head, "nothing was recorded");
    let after = desk
        .admin("GET", "/v1/tools/github", &Value::Null)
        .await
        .expect(200);
    assert_eq!(after, before);
    assert_eq!(desk.decision().await, "deny");

    for name in ["issues", "merges"] {
        let path = format!("/{name}");
        desk.edit("DELETE", &path, &Value::Null).await.expect(204);
    }
    desk.admin("PUT", "/v1/tools/github", &reader).await.expect(200);
}

#[tokio::test]
async fn an_attribute_that_a_policy_in_force_looks_at_stays_declared() {
    let desk = Desk::open().await;
    let path = format!("/v1/tenants/{}", desk.tenant);
    let declare = |value: Value| {
        let body = json!({"settings": {"context_attributes": value}});
        let call = desk.call("PATCH", &path, &desk.operator).json(&body);
        async move { call.send().await }
    };
    declare(json!({"ticket": "String"})).await.expect(200);
    let blocked = r#"@id("ticket") forbid (principal, action == Action::"github/create_issue", resource)
        when { context.attributes has ticket && context.attributes.ticket == "blocked" };"#;
    desk.put("tickets", blocked).await.expect(201);
    let mut ask = crate::stage::changing();
    for (ticket, decision) in [("T-1", "allow"), ("blocked", "deny")] {
        ask["context"]["attributes"] = json!({"ticket": ticket});
        assert_eq!(desk.ask(&ask).await.expect(200)["decision"], decision);
    }
    let found = diagnostics(&declare(Value::Null).await);
    assert_eq!(found[0]["policy"], "tickets/ticket");
    assert_eq!(desk.ask(&ask).await.expect(200)["decision"], "deny");
}

/// The other condition can be satisfied all the same, so the policy has something to do.
#[tokio::test]
async fn a_parameter_that_one_of_two_conditions_tests_for_stays_visible_unless_an_operator_forces_it() {
    let desk = Desk::open().await;
    let listing = |kind: Value| {
        json!({"tools": [{"name": "send", "inputSchema": {
            "type": "object", "properties": {"to": {"type": kind}, "n": {"type": "integer"}},
        }}]})
    };
    let import = "/v1/tools/mail/import";
    desk.admin("POST", import, &listing(json!("string")))
        .await
        .expect(201);
    let evil = r#"@id("evil") forbid (principal, action == Action::"mail/send", resource)
        when { context.input has to && context.input.to like "*evil*" || context.input has n && context.input.n > 100 };"#;
    desk.put("mail", evil).await.expect(201);
    desk.admin("POST", import, &listing(json!(["string", "array"])))
        .await
        .expect(200);
    let accept = "/v1/tools/mail/actions/send/accept";
    let found = diagnostics(&desk.admin("POST", accept, &json!({})).await);
    assert_eq!(
        (&found[0]["policy"], &found[0]["message"]),
        (
            &json!("mail/evil"),
            &json!("nothing that the policy is about has a member `to`")
        )
    );
    assert_eq!(in_use(&desk, "mail").await.0, 1);
    let forced = format!("{accept}?force=true");
    desk.admin("POST", &forced, &json!({})).await.expect(200);
    assert_eq!(in_use(&desk, "mail").await.0, Value::Null);
}

#[tokio::test]
async fn an_operator_can_forbid_that_a_tenant_permits() {
    let desk = Desk::open().await;
    assert_eq!(
        settings(&desk, false).await.expect(200)["settings"]["policies"]["may_permit"],
        false
    );
    let found = diagnostics(&desk.put("readers", MAY_READ).await);
    assert_eq!(found[0]["policy"], "readers/all");
    desk.put("issues", NO_ISSUES).await.expect(201);
    assert_eq!(desk.decision().await, "deny", "forbidding is not forbidden");

    settings(&desk, true).await.expect(200);
    desk.put("readers", MAY_READ).await.expect(201);
    let found = diagnostics(&settings(&desk, false).await);
    assert_eq!(found[0]["policy"], "readers/all");
}

const READER: &str = r#"{"actions": [{"name": "get_file", "mutates_state": false, "risk": "low"}]}"#;

/// A tool without the actions that the policies of these tests are about.
fn reader() -> Value {
    serde_json::from_str(READER).unwrap()
}

/// Which versions of a policy are in use: what is enforced, and what is on trial.
async fn in_use(desk: &Desk, name: &str) -> (Value, Value) {
    let shown = desk
        .edit("GET", &format!("/{name}"), &Value::Null)
        .await
        .expect(200);
    (shown["enforced"].clone(), shown["trial"]["version"].clone())
}

#[tokio::test]
async fn an_operator_changes_a_tool_by_force_and_what_does_not_fit_is_out_of_use_in_the_same_commit() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.put("readers", MAY_READ).await.expect(201);
    desk.shadow("merges", &NO_ISSUES.replace("create_issue", "merge_pull_request"))
        .await;
    let path = "/v1/tools/github?force=true";
    let tool = desk.admin("GET", "/v1/tools/github", &Value::Null).await;
    let head = desk.head().await;
    desk.admin("PUT", path, &reader()).await.expect(200);
    assert_eq!(desk.head().await.seq, head.seq + 1, "one entry tells all of it");
    let told = desk.told("tool_put").await.pop().unwrap();
    assert_eq!(
        told["deactivated_policies"],
        json!([{"name": "issues", "enforced": 1}, {"name": "merges", "trial": 1}])
    );
    assert_ne!(told["policy_digests"]["before"], told["policy_digests"]["after"]);
    assert_eq!(in_use(&desk, "issues").await, (Value::Null, Value::Null));
    assert_eq!(in_use(&desk, "merges").await, (Value::Null, Value::Null));
    assert_eq!(in_use(&desk, "readers").await.0, 1, "it fits");

    // What is out of use stays so after a restart, and can be enforced again once it fits.
    let desk = desk.restart().await;
    assert_eq!(in_use(&desk, "issues").await, (Value::Null, Value::Null));
    let mut before = tool.expect(200);
    let actions = json!({"actions": before["actions"].take()});
    desk.admin("PUT", "/v1/tools/github", &actions).await.expect(200);
    assert_eq!(desk.decision().await, "allow");
    desk.edit("POST", "/issues/rollback", &json!({"version": 1}))
        .await
        .expect(200);
    assert_eq!(desk.decision().await, "deny");
    desk.assert_sound().await;
}

/// A policy that is enforced in its eighteenth version and has sixteen long ones before that, written without what an
/// editor's request goes through.
async fn write_with_long_history(desk: &Desk, name: &str) {
    let text = |cedar: &str| PolicyText {
        cedar: cedar.into(),
        ..PolicyText::default()
    };
    let (name, now) = (SlashFreeName::new(name).unwrap(), BEGINNING);
    let long = "x".repeat(60_000);
    let first = Policy::new(name, text(NO_ISSUES), PolicyMode::Enforced, now);
    let many = (0..16).fold(first, |policy, _| {
        policy.with_version(text(&long), PolicyMode::Enforced, now)
    });
    let policy = Arc::new(many.with_version(text(NO_ISSUES), PolicyMode::Enforced, now));
    let plan = |_: &Directory, _: Timestamp| {
        Ok(Plan::Change {
            kind: EntryKind::PolicyPut,
            facts: json!({}),
            writes: vec![Write::Put(Noun::Policy(Arc::clone(&policy)))],
            answer: (),
        })
    };
    let change = desk.gateway.change_by(By::Start, Force::No, desk.tenant, plan);
    change.await.unwrap();
}

/// There are no steps in which that could be done.
#[tokio::test]
async fn policies_with_long_histories_are_taken_out_of_use_at_once_and_keep_the_newest_versions() {
    let desk = Desk::open().await;
    let names: Vec<_> = (0..18).map(|number| format!("p{number:02}")).collect();
    for name in &names {
        write_with_long_history(&desk, name).await;
    }
    let kept = || {
        let tenant = desk.gateway.tenant(desk.tenant).unwrap();
        let policies = tenant.directory.policies.values();
        let versions = policies.map(|policy| policy.versions.iter().map(|kept| kept.version));
        versions.map(Iterator::collect).collect::<Vec<Vec<_>>>()
    };
    assert_eq!(kept(), vec![(1_u64..=18).collect::<Vec<_>>(); 18]);
    desk.admin("PUT", "/v1/tools/github?force=true", &reader())
        .await
        .expect(200);
    let told = desk.told("tool_put").await.pop().unwrap();
    let all = names.iter().map(|name| json!({"name": name, "enforced": 18}));
    assert_eq!(told["deactivated_policies"], all.collect::<Value>());
    assert_eq!(kept(), vec![vec![15_u64, 16, 17, 18]; 18]);
    assert_eq!(in_use(&desk, "p00").await, (Value::Null, Value::Null));
    desk.edit("POST", "/p00/rollback", &json!({"version": 18}))
        .await
        .problem(422, "policy_invalid");
    desk.assert_sound().await;
}

#[tokio::test]
async fn what_is_enforced_and_fits_stays_so_where_only_its_trial_does_not() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.shadow("issues", &NO_ISSUES.replace("github/create_issue", "vault/store"))
        .await;
    let path = "/v1/tools/vault?force=true";
    desk.admin("DELETE", "/v1/tools/vault", &Value::Null)
        .await
        .problem(422, "policy_invalid");
    desk.admin("DELETE", path, &Value::Null).await.expect(204);
    let told = desk.told("tool_deleted").await.pop().unwrap();
    assert_eq!(
        told["deactivated_policies"],
        json!([{"name": "issues", "trial": 2}])
    );
    assert_eq!(in_use(&desk, "issues").await, (json!(1), Value::Null));
    assert_eq!(desk.decision().await, "deny");
}

#[tokio::test]
async fn settings_and_imports_can_be_forced_too() {
    let desk = Desk::open().await;
    desk.put("readers", MAY_READ).await.expect(201);
    let settings = json!({"settings": {"policies": {"may_permit": false}}});
    let path = format!("/v1/tenants/{}?force=true", desk.tenant);
    let call = desk.call("PATCH", &path, &desk.operator).json(&settings);
    call.send().await.expect(200);
    let told = desk.told("tenant_updated").await.pop().unwrap();
    assert_eq!(
        told["deactivated_policies"],
        json!([{"name": "readers", "enforced": 1}])
    );

    let listing = |kind: &str| {
        json!({"tools": [{"name": "run", "inputSchema": {
            "type": "object", "properties": {"number": {"type": kind}}, "required": ["number"],
        }}]})
    };
    desk.admin("POST", "/v1/tools/shell/import", &listing("integer"))
        .await
        .expect(201);
    let numbers = r#"@id("many") forbid (principal, action == Action::"shell/run", resource)
        when { context.input.number > 7 };"#;
    desk.put("numbers", numbers).await.expect(201);
    desk.admin("POST", "/v1/tools/shell/import", &listing("string"))
        .await
        .expect(200);
    let accept = "/v1/tools/shell/actions/run/accept";
    diagnostics(&desk.admin("POST", accept, &json!({})).await);
    let forced = format!("{accept}?force=true");
    desk.admin("POST", &forced, &json!({})).await.expect(200);
    assert_eq!(in_use(&desk, "numbers").await.0, Value::Null);
}

#[tokio::test]
async fn force_takes_an_operators_key_and_changes_nothing_without_one() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let admin = crate::key(&desk, &desk.tenant.to_string(), "admin").await;
    let head = desk.head().await;
    for (method, path, body) in [
        ("PUT", "/v1/tools/github", reader()),
        ("DELETE", "/v1/tools/github", json!({})),
        ("POST", "/v1/tools/github/import", json!({"tools": []})),
        ("POST", "/v1/tools/github/actions/create_issue/accept", json!({})),
    ] {
        let call = desk.call(method, &format!("{path}?force=true"), &admin);
        let reply = call.json(&body).send().await;
        reply.problem(403, "force_not_permitted");
    }
    let unforced = desk.call("PUT", "/v1/tools/github?force=false", &admin);
    diagnostics(&unforced.json(&reader()).send().await);
    let misspelt = desk.call("PUT", "/v1/tools/github?forced=true", &desk.operator);
    let reply = misspelt.tenant(desk.tenant).json(&reader()).send().await;
    reply.problem(400, "invalid_parameter");
    assert_eq!(desk.head().await, head);
    assert_eq!(desk.decision().await, "deny");
}

#[tokio::test]
async fn force_does_not_make_a_registry_out_of_what_is_none() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let head = desk.head().await;
    let broken = json!({"actions": [{"name": "run", "mutates_state": true, "risk": "low",
        "input_schema": {"type": "nonsense"}}]});
    diagnostics(&desk.admin("PUT", "/v1/tools/shell?force=true", &broken).await);
    assert_eq!(desk.head().await, head);
    assert_eq!(in_use(&desk, "issues").await.0, 1);
}
