//! Asks with an estimate: held in every budget or in none, and told in the entry.

use crate::{Scene, balance, costing, observed, tokens};
use futures_util::future::join_all;
use serde_json::{Value, json};

#[tokio::test]
async fn an_allowed_ask_holds_its_estimate_in_every_budget_it_counts_against() {
    let scene = Scene::set().await;
    let agent = scene.stage.agent.id.clone();
    scene
        .budgets(&[
            (json!({}), 1_000),
            (json!({"team": "crew"}), 500),
            (json!({"agent": agent}), 300),
            (json!({"team": "crew", "agent": agent, "tool": "github"}), 100),
            (json!({"agent": scene.stranger.id}), 7),
            (json!({"tool": "vault"}), 7),
        ])
        .await;
    let answer = scene.stage.ask(&costing(40)).await.expect(200);
    assert_eq!(answer["decision"], "allow", "{answer}");
    let held = &answer["reservation"];
    assert_eq!((&held["unit"], &held["amount"]), (&json!("TOKENS"), &json!(40)));
    assert_eq!(held["expires_at"], "2026-01-31T09:31:00.006Z");
    let told: Vec<_> = answer["balances"]
        .as_array()
        .unwrap()
        .iter()
        .map(balance)
        .collect();
    let scopes: Vec<_> = told.iter().map(|(scope, _)| scope.clone()).collect();
    assert_eq!(
        scopes,
        [
            json!({}),
            json!({"team": "crew"}),
            json!({"agent": agent}),
            json!({"team": "crew", "agent": agent, "tool": "github"})
        ]
    );
    assert_eq!(told[3].1, [60, 40, 0, 0, 0]);
    let stored: Vec<_> = scene
        .balances()
        .await
        .into_iter()
        .map(|(_, standing)| standing[1])
        .collect();
    assert_eq!(stored, [40, 40, 40, 40, 0, 0]);
    let body = scene.stage.decisions().await.pop().unwrap();
    assert_eq!(body["reservation"]["id"], held["id"]);
    assert_eq!(body["balances"][3]["reserved"], 40);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_one_budget_lacks_is_held_in_none_and_the_answer_says_which() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 1_000), (json!({"team": "crew"}), 30)])
        .await;
    let answer = scene.stage.ask(&costing(31)).await.expect(200);
    assert_eq!(
        (&answer["decision"], &answer["reason_code"]),
        (&json!("deny"), &json!("budget_exceeded"))
    );
    assert_eq!(
        answer["reason"],
        "the budget of the team `crew` has 30 `TOKENS` left, and 31 are wanted"
    );
    assert!(
        answer["agent_message"]
            .as_str()
            .unwrap()
            .starts_with("Ask for less")
    );
    assert_eq!(answer.get("reservation"), None);
    for (scope, standing) in scene.balances().await {
        assert_eq!(standing[1], 0, "{scope}");
    }
    let body = scene.stage.decisions().await.pop().unwrap();
    assert_eq!(body["reason_code"], "budget_exceeded");
    assert_eq!(body["ruling"]["reason_code"], "policy_permits");
    // What a stranger to the team asks for is not its business.
    let answer = scene
        .stage
        .post("/v1/authorize", &scene.stranger.token, &costing(31))
        .await;
    assert_eq!(answer.expect(200)["decision"], "allow");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_is_to_be_redacted_is_so_in_the_denial_of_a_budget() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 10)]).await;
    let cedar = r#"@id("short") @decision("advise") @obligation("max_tokens:2000")
        permit (principal, action, resource);"#;
    let body = json!({"name": "own", "cedar": cedar});
    scene.stage.admin("POST", "/v1/policies", &body).await.expect(201);
    let mut ask = crate::stage::asking("vault", "store", "trusted_internal_unsigned");
    ask["tool_call"]["parameters"] = json!({"password": "hunter2"});
    ask["estimate"] = tokens(11);
    for path in ["/v1/decide", "/v1/authorize"] {
        let answer = scene.post(path, &ask).await.expect(200);
        assert_eq!(answer["reason_code"], "budget_exceeded", "{path}");
        assert_eq!(
            answer["obligations"],
            json!(["redact:parameters.password"]),
            "{path}"
        );
    }
    let body = scene.stage.decisions().await.pop().unwrap();
    assert_eq!(body["obligations"], json!(["redact:parameters.password"]));
    ask["estimate"] = tokens(10);
    let answer = scene.post("/v1/authorize", &ask).await.expect(200);
    assert_eq!(answer["decision"], "allow", "{answer}");
    assert_eq!(answer["obligations"].as_array().unwrap().len(), 2, "{answer}");
}

#[tokio::test]
async fn what_budgets_lack_an_allow_on_trial_lacks_as_well() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 10)]).await;
    let cedar = r#"@id("other") permit (principal, action, resource);"#;
    let body = json!({"name": "own", "cedar": cedar, "mode": "shadow"});
    scene.stage.admin("POST", "/v1/policies", &body).await.expect(201);
    for (amount, reason, shadow) in [
        (1, "policy_permits", json!("allow")),
        (11, "budget_exceeded", json!(null)),
    ] {
        let answer = scene.stage.ask(&costing(amount)).await.expect(200);
        assert_eq!(answer["reason_code"], reason, "{answer}");
        let body = scene.stage.decisions().await.pop().unwrap();
        assert_eq!(body["shadow"]["decision"], shadow, "{body}");
    }
    let metrics = scene.stage.get("/metrics", "").await.text();
    let counted = |labels: &str| metrics.contains(&format!("shadow_differences_total{{{labels}}} 1"));
    assert!(counted(r#"decision="allow",shadow="allow""#), "{metrics}");
    assert!(!counted(r#"decision="deny",shadow="allow""#), "{metrics}");
}

#[tokio::test]
async fn no_word_of_the_caller_leads_around_a_budget() {
    let scene = Scene::set().await;
    let agent = scene.stage.agent.id.clone();
    scene.budgets(&[(json!({"agent": agent}), 10)]).await;
    let mut asks = vec![costing(11); 5];
    asks[1]["agent"] = json!({"environment": "elsewhere"});
    asks[2]["user"] = json!({"id": "somebody"});
    asks[3]["trace"] = json!({"run_id": "fresh", "parent_run_id": "other"});
    asks[4]["estimate"] = json!({"unit": "tokens", "amount": 11});
    for (ask, reason) in asks.iter().zip([
        "budget_exceeded",
        "budget_exceeded",
        "budget_exceeded",
        "budget_exceeded",
        "budget_not_found",
    ]) {
        let answer = scene.stage.ask(ask).await.expect(200);
        assert_eq!(answer["reason_code"], reason, "{ask}");
    }
    let unknown = json!({"unit": "TOKENS", "amount": 1, "agent": "somebody"});
    scene
        .post("/v1/reservations", &unknown)
        .await
        .problem(400, "unknown_field");
}

#[tokio::test]
async fn an_estimate_is_only_told_where_a_tenant_has_no_budgets() {
    let scene = Scene::set().await;
    let answer = scene.stage.ask(&costing(40)).await.expect(200);
    assert_eq!(answer["decision"], "allow");
    assert_eq!((answer.get("reservation"), answer.get("balances")), (None, None));
    let id = scene
        .budget(&json!({"scope": {}, "unit": "CREDITS", "allocated": 1}))
        .await;
    let answer = scene.stage.ask(&costing(40)).await.expect(200);
    assert_eq!(answer["reason_code"], "budget_not_found");
    scene.change(&id, "close", &json!({})).await.expect(200);
    let answer = scene.stage.ask(&costing(40)).await.expect(200);
    assert_eq!(answer["decision"], "allow");
}

#[tokio::test]
async fn a_repeated_ask_has_the_same_bytes_and_holds_nothing_more() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let ask = crate::stage::named(costing(60), "call-1");
    let first = scene.stage.ask(&ask).await;
    assert_eq!(first.expect(200)["decision"], "allow");
    let again = scene.stage.ask(&ask).await;
    assert_eq!(first.bytes, again.bytes);
    let denied = crate::stage::named(costing(60), "call-2");
    let first = scene.stage.ask(&denied).await;
    assert_eq!(first.expect(200)["reason_code"], "budget_exceeded");
    let again = scene.stage.ask(&denied).await;
    assert_eq!(first.bytes, again.bytes);
    assert_eq!(scene.standing().await, [40, 60, 0, 0, 0]);
    // The earlier answer is in the ledger, and not only in memory.
    let scene = Scene {
        stage: scene.stage.restart().await,
        ..scene
    };
    assert_eq!(scene.stage.ask(&denied).await.bytes, first.bytes);
    assert_eq!(scene.standing().await, [40, 60, 0, 0, 0]);
}

#[tokio::test]
async fn a_dry_run_and_a_decide_quote_and_hold_nothing() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let entries = scene.stage.entries().await.len();
    for (amount, decision) in [(100, "allow"), (101, "deny")] {
        let mut dry = costing(amount);
        dry["mode"] = json!("dry_run");
        let ran = scene.stage.ask(&dry).await.expect(200);
        let decided = scene.post("/v1/decide", &costing(amount)).await.expect(200);
        assert_eq!(ran, decided);
        assert_eq!(ran["decision"], decision);
        assert_eq!(ran.get("reservation"), None);
        assert_eq!(balance(&ran["balances"][0]).1, [100, 0, 0, 0, 0]);
    }
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    assert_eq!(scene.stage.entries().await.len(), entries);
}

#[tokio::test]
async fn an_observed_ask_tells_what_budgets_would_have_lacked_and_holds_nothing() {
    let scene = Scene::set().await;
    scene.permit_observing().await;
    let body = json!({"scope": {}, "unit": "TOKENS", "allocated": 100});
    let id = scene.budget(&body).await;
    let answer = scene.stage.ask(&observed(101)).await.expect(200);
    assert_eq!(
        (&answer["decision"], &answer["reason_code"]),
        (&json!("allow"), &json!("observed"))
    );
    let would_have = json!({
        "decision": "deny", "reason_code": "budget_exceeded",
        "reason": "the budget of the tenant has 100 `TOKENS` left, and 101 are wanted",
        "agent_message": format!("Ask for less or have the budget {id} funded."),
        "matched_policies": [],
    });
    assert_eq!(answer["would_have"], would_have);
    let body = scene.stage.decisions().await.pop().unwrap();
    assert_eq!(body["would_have"]["reason_code"], "budget_exceeded");
    assert_eq!(body["ruling"]["reason_code"], "policy_permits");

    let answer = scene.stage.ask(&observed(100)).await.expect(200);
    let told = [&answer["reason_code"], &answer["would_have"]["reason_code"]];
    assert_eq!(told, ["policy_permits", "policy_permits"]);
    assert_eq!(answer.get("reservation"), None);
    let mut denied = crate::stage::injected();
    (denied["mode"], denied["estimate"]) = (json!("observe"), tokens(101));
    let answer = scene.stage.ask(&denied).await.expect(200);
    assert_eq!(answer["would_have"]["reason_code"], "policy_forbids");
    let reason = json!({"reason": "a test"});
    scene.change(&id, "freeze", &reason).await.expect(200);
    let answer = scene.stage.ask(&observed(1)).await.expect(200);
    assert_eq!(answer["would_have"]["reason_code"], "budget_frozen");
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn only_what_is_allowed_holds_anything() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let mut denied = crate::stage::injected();
    denied["estimate"] = tokens(10);
    let mut asking = crate::stage::asking("github", "create_issue", "semi_trusted_customer");
    asking["estimate"] = tokens(10);
    for (ask, decision) in [(denied, "deny"), (asking, "require_approval")] {
        let answer = scene.stage.ask(&ask).await.expect(200);
        assert_eq!(answer["decision"], decision, "{answer}");
        assert_eq!(answer.get("reservation"), None);
    }
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
}

/// What was decided of each ask of a batch.
fn decisions(answers: &Value) -> Vec<Value> {
    let answers = answers["answers"].as_array().unwrap().iter();
    answers.map(|answer| answer["decision"].clone()).collect()
}

#[tokio::test]
async fn asks_of_one_batch_see_what_those_before_them_hold() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let asks = json!({"asks": [costing(60), costing(60), costing(40), costing(1)]});
    let answers = scene.post("/v1/authorize/batch", &asks).await.expect(200);
    assert_eq!(decisions(&answers), ["allow", "deny", "allow", "deny"]);
    assert_eq!(scene.standing().await, [0, 100, 0, 0, 0]);
}

#[tokio::test]
async fn a_dry_run_in_a_batch_finds_what_the_others_have_left() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let dry = |amount| {
        let mut dry = costing(amount);
        dry["mode"] = json!("dry_run");
        dry
    };
    let asks = json!({"asks": [dry(41), costing(60), dry(60), dry(40)]});
    let answers = scene.post("/v1/authorize/batch", &asks).await.expect(200);
    assert_eq!(decisions(&answers), ["deny", "allow", "deny", "allow"]);
    assert_eq!(scene.standing().await, [40, 60, 0, 0, 0]);
}

#[tokio::test]
async fn a_frozen_budget_denies_and_keeps_the_approval_for_later() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 100}))
        .await;
    scene
        .change(&id, "freeze", &json!({"reason": "a test"}))
        .await
        .expect(200);
    let answer = scene.stage.ask(&costing(1)).await.expect(200);
    assert_eq!(answer["reason_code"], "budget_frozen", "{answer}");
    let mut asking = crate::stage::asking("github", "create_issue", "semi_trusted_customer");
    asking["estimate"] = tokens(10);
    let answer = scene.stage.ask(&asking).await.expect(200);
    let approval = answer["approval"]["id"].as_str().unwrap().to_owned();
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let key = scene.stage.admin("POST", "/v1/keys", &key).await.expect(201);
    let path = format!("/v1/approvals/{approval}/approve");
    let (ann, vote) = (key["key"].as_str().unwrap(), json!({"reason": "fine"}));
    scene.stage.post(&path, ann, &vote).await.expect(200);
    asking["approval_id"] = json!(approval);
    let answer = scene.stage.ask(&asking).await.expect(200);
    assert_eq!(answer["reason_code"], "budget_frozen", "{answer}");
    scene.change(&id, "unfreeze", &json!({})).await.expect(200);
    let answer = scene.stage.ask(&asking).await.expect(200);
    assert_eq!(answer["reason_code"], "approval_granted", "{answer}");
    assert_eq!(scene.standing().await, [90, 10, 0, 0, 0]);
}

/// How many calls of the day are counted for the agent.
async fn counted(scene: &Scene) -> u64 {
    let view = scene.stage.get("/v1/quota", &scene.stage.agent.token).await;
    view.expect(200)["quotas"][0]["used"].as_u64().unwrap()
}

#[tokio::test]
async fn a_quota_and_a_budget_have_an_ask_both_or_neither() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let path = format!("/v1/agents/{}/quota", scene.stage.agent.id);
    let limits = json!({"quotas": [{"window": "day", "limit": 3}]});
    scene.stage.admin("PUT", &path, &limits).await.expect(200);
    assert_eq!(
        scene.stage.ask(&costing(40)).await.expect(200)["decision"],
        "allow"
    );
    assert_eq!((counted(&scene).await, scene.standing().await[1]), (1, 40));
    // What budgets do not have is no call, so no quota counts it.
    let denied = scene.stage.ask(&costing(61)).await.expect(200);
    assert_eq!(denied["reason_code"], "budget_exceeded");
    assert_eq!((counted(&scene).await, scene.standing().await[1]), (1, 40));
    // At once: two calls are left of the quota, and what these two cost is there.
    let asks: Vec<_> = (0..6).map(|_| costing(5)).collect();
    let answers = join_all(asks.iter().map(|ask| scene.stage.ask(ask))).await;
    let allowed = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(allowed, 2);
    // What quotas do not have is not held.
    scene.stage.ask(&costing(5)).await.problem(429, "quota_exceeded");
    assert_eq!((counted(&scene).await, scene.standing().await[1]), (3, 50));
}
