//! Who is refused: without a credential that works, with one for another door, in another's name. Nothing of it is recorded.

use crate::stage::{Player, Stage, named, reading};
use model::Trust;
use serde_json::{Value, json};

#[tokio::test]
async fn a_credential_that_does_not_work_is_refused() {
    let stage = Stage::set().await;
    let unknown = "csa_00000000000000000000000000000000000000000000000000000";
    for token in [
        "",
        "nonsense",
        "csa_",
        unknown,
        &format!("{}x", stage.agent.token),
    ] {
        let head = stage.head().await;
        let refused = stage.post("/v1/authorize", token, &reading()).await;
        refused.problem(401, "invalid_token");
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
        assert!(
            token.len() < 5 || !refused.text().contains(token),
            "{}",
            refused.text()
        );
        assert_eq!(stage.head().await, head);
    }
    let basic = stage
        .call("POST", "/v1/authorize", "")
        .header("authorization", "Basic YTpi")
        .json(&reading())
        .send()
        .await;
    basic.problem(401, "invalid_token");
}

#[tokio::test]
async fn a_token_works_until_it_expires_or_is_deleted() {
    let stage = Stage::set().await;
    let tokens = format!("/v1/agents/{}/tokens", stage.agent.id);
    let short = stage
        .admin(
            "POST",
            &tokens,
            &json!({"expires_at": "2026-01-31T09:31:00.000Z"}),
        )
        .await
        .expect(201);
    let short = short["token"].as_str().unwrap();
    stage.clock.advance_millis(59_999);
    stage.post("/v1/authorize", short, &reading()).await.expect(200);
    stage.clock.advance_millis(1);
    stage
        .post("/v1/authorize", short, &reading())
        .await
        .problem(401, "invalid_token");

    let second = stage.admin("POST", &tokens, &json!({})).await.expect(201);
    let (id, token) = (second["id"].as_str().unwrap(), second["token"].as_str().unwrap());
    stage
        .post("/v1/authorize", token, &named(reading(), "call-1"))
        .await
        .expect(200);
    let gone = stage
        .call("DELETE", &format!("{tokens}/{id}"), &stage.operator)
        .tenant(stage.tenant)
        .send()
        .await;
    assert_eq!(gone.status, 204);
    stage
        .post("/v1/authorize", token, &named(reading(), "call-1"))
        .await
        .problem(401, "invalid_token");
    stage.ask(&reading()).await.expect(200);
}

#[tokio::test]
async fn an_agent_asks_in_its_own_tenant_and_in_no_other() {
    let stage = Stage::set().await;
    let other = stage
        .post("/v1/tenants", &stage.operator, &json!({"name": "globex"}))
        .await
        .expect(201);
    let batch = json!({"asks": [reading()]});
    for (path, body) in [
        ("/v1/authorize", &reading()),
        ("/v1/decide", &reading()),
        ("/v1/authorize/batch", &batch),
    ] {
        let ask = |tenant: &str| {
            let call = stage.call("POST", path, &stage.agent.token);
            call.tenant(tenant).json(body).send()
        };
        for foreign in [other["id"].as_str().unwrap(), "tnt_1", "nonsense", ""] {
            ask(foreign).await.problem(404, "not_found");
        }
        ask(&stage.tenant.to_string()).await.expect(200);
    }
    assert_eq!(stage.count("decision").await, 2);
}

#[tokio::test]
async fn only_agents_authorize() {
    let stage = Stage::set().await;
    for role in ["admin", "policy_editor", "approver", "auditor"] {
        let key = stage
            .admin("POST", "/v1/keys", &json!({"name": role, "role": role}))
            .await
            .expect(201);
        let key = key["key"].as_str().unwrap();
        stage
            .post("/v1/authorize", key, &reading())
            .await
            .problem(403, "forbidden");
        stage
            .post("/v1/authorize/batch", key, &json!({"asks": [reading()]}))
            .await
            .problem(403, "forbidden");
    }
    stage
        .post("/v1/authorize", &stage.operator, &reading())
        .await
        .problem(403, "forbidden");
    let disguised = stage
        .call("POST", "/v1/authorize", &stage.operator)
        .tenant(stage.tenant)
        .json(&reading());
    disguised.send().await.problem(403, "forbidden");
    assert_eq!(stage.count("decision").await, 0);
}

#[tokio::test]
async fn what_an_ask_says_about_its_agent_must_agree() {
    let stage = Stage::set().await;
    let production = stage
        .hire(json!({"name": "deployer", "tools": "all", "environment": "production"}))
        .await;
    let ask = |agent: Value| {
        let mut ask = reading();
        ask["agent"] = agent;
        ask
    };
    let post =
        async |player: &Player, agent: Value| stage.post("/v1/authorize", &player.token, &ask(agent)).await;
    post(
        &production,
        json!({"environment": "production", "id": production.id}),
    )
    .await
    .expect(200);
    let head = stage.head().await;
    post(&production, json!({"environment": "staging"}))
        .await
        .problem(403, "environment_not_allowed");
    post(&production, json!({"id": stage.agent.id}))
        .await
        .problem(403, "agent_mismatch");
    let mut approved = reading();
    approved["approval_id"] = json!("apr_00000000000000000000000000");
    stage.ask(&approved).await.problem(409, "approval_not_usable");
    let mut observed = reading();
    observed["mode"] = json!("observe");
    stage.ask(&observed).await.problem(403, "observe_not_permitted");
    let mut proven = reading();
    proven["context"]["provenance"] = json!("eyJ");
    stage.ask(&proven).await.problem(400, "provenance_not_verifiable");
    assert_eq!(stage.head().await, head);
}

#[tokio::test]
async fn what_is_no_word_of_the_contract_is_told_which_there_are() {
    let stage = Stage::set().await;
    let head = stage.head().await;
    let levels = Trust::ALL.map(|level| format!("`{}`", level.as_str()));
    let levels = levels.join(", ");
    for (member, place, value, found) in [
        ("source_trust", "source_trust", json!(null), "null"),
        ("source_trust", "source_trust", json!(1), "integer `1`"),
        ("source_trust", "source_trust", json!([]), "array"),
        (
            "source_trust",
            "source_trust",
            json!({"trusted_internal_unsigned": null}),
            "object",
        ),
        ("sources", "sources/~1x", json!({"/x": null}), "null"),
    ] {
        let mut ask = reading();
        ask["context"][member] = value;
        let detail = stage.ask(&ask).await.problem(400, "invalid_field");
        let expected = format!("`/context/{place}`: invalid type: {found}, expected one of {levels}");
        assert_eq!(detail, expected);
    }
    for (value, found) in [
        (json!(1), "integer `1`"),
        (json!({"dry_run": null}), "object"),
        (json!({"enforce": {}}), "object"),
    ] {
        let mut ask = reading();
        ask["mode"] = value;
        assert_eq!(
            stage.ask(&ask).await.problem(400, "invalid_field"),
            format!("`/mode`: invalid type: {found}, expected one of `enforce`, `observe`, `dry_run`")
        );
    }
    assert_eq!(stage.head().await, head);
    let key = json!({"name": "second", "role": {"admin": null}});
    let refused = stage.admin("POST", "/v1/keys", &key).await;
    let detail = refused.problem(400, "invalid_field");
    let expected = "`/role`: invalid type: object, expected one of ";
    assert!(detail.starts_with(expected), "{detail}");
}

#[tokio::test]
async fn of_a_long_word_that_is_wrong_little_is_sent_back() {
    let stage = Stage::set().await;
    let long = "x".repeat(200_000);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut ask = reading();
        change(&mut ask);
        ask
    };
    for (ask, code) in [
        (with(&|ask| ask[&long] = json!(1)), "unknown_field"),
        (with(&|ask| ask["context"][&long] = json!(1)), "unknown_field"),
        (
            with(&|ask| ask["context"]["source_trust"] = json!(long)),
            "invalid_field",
        ),
        (
            with(&|ask| ask["context"]["sources"] = json!({ "/x": long })),
            "invalid_field",
        ),
        (
            with(&|ask| ask["tool_call"]["mutates_state"] = json!(long)),
            "invalid_field",
        ),
    ] {
        let detail = stage.ask(&ask).await.problem(400, code);
        assert!(detail.len() < 3_000, "{detail}");
        assert!(detail.contains("expected"), "{detail}");
    }
    let pointer = format!("/{long}~");
    let odd = with(&|ask| ask["context"]["sources"] = json!({ &pointer: "unknown" }));
    let detail = stage.ask(&odd).await.problem(400, "invalid_field");
    assert!(detail.len() < 3_000, "{detail}");
}

#[tokio::test]
async fn a_parameter_that_no_ask_has_is_refused_and_nothing_is_decided() {
    let stage = Stage::set().await;
    let batch = json!({"asks": [reading()]});
    for (path, body) in [
        ("/v1/authorize", &reading()),
        ("/v1/authorize/batch", &batch),
        ("/v1/decide", &reading()),
    ] {
        let odd = format!("{path}?mode=dry_run");
        let refused = stage.post(&odd, &stage.agent.token, body).await;
        let detail = refused.problem(400, "invalid_parameter");
        assert!(
            detail.starts_with("`mode`: unknown parameter"),
            "{path}: {detail}"
        );
        let unknown = stage.post(&odd, "", body).await;
        unknown.problem(401, "invalid_token");
        assert_eq!(stage.count("decision").await, 0, "{path}");
    }
    let odd = stage.get("/v1/whoami?mode=dry_run", &stage.agent.token).await;
    odd.problem(400, "invalid_parameter");
    for path in ["/v1/authorize?", "/v1/decide?"] {
        stage.post(path, &stage.agent.token, &reading()).await.expect(200);
    }
    stage.get("/v1/whoami?", &stage.agent.token).await.expect(200);
}

#[tokio::test]
async fn a_route_or_a_method_that_is_not_there_is_a_problem_too() {
    let stage = Stage::set().await;
    stage
        .post("/v1/authorise", &stage.agent.token, &reading())
        .await
        .problem(404, "no_such_route");
    stage.get("/", "").await.problem(404, "no_such_route");
    let wrong = stage.get("/v1/authorize", &stage.agent.token).await;
    wrong.problem(405, "method_not_allowed");
    assert_eq!(wrong.headers["allow"], "POST");
}
