//! Outcomes settle what was reserved: never refused for want of money, and nothing of what was spent is dropped.

use crate::stage::{asking, changing, injected, trapped};
use crate::{Scene, costing, observed, tokens};
use serde_json::{Value, json};

/// Asks, and returns the path of the outcome and the hash of the action.
async fn decided(scene: &Scene, amount: i64) -> (String, Value) {
    let answer = scene.stage.ask(&costing(amount)).await.expect(200);
    assert_eq!(answer["decision"], "allow", "{answer}");
    let id = answer["decision_id"].as_str().unwrap();
    (
        format!("/v1/decisions/{id}/outcome"),
        answer["action_hash"].clone(),
    )
}

/// Where the outcome of a decision is reported.
fn outcome_of(answer: &Value) -> String {
    let id = answer["decision_id"].as_str().unwrap();
    format!("/v1/decisions/{id}/outcome")
}

async fn report(scene: &Scene, (path, hash): &(String, Value), actual: Option<i64>) -> Value {
    let mut body = json!({"status": "succeeded", "executed_hash": hash});
    if let Some(actual) = actual {
        body["actual"] = tokens(actual);
    }
    scene.post(path, &body).await.expect(201)
}

#[tokio::test]
async fn an_outcome_charges_what_was_spent_and_gives_back_the_rest() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 1_000), (json!({"team": "crew"}), 100)])
        .await;
    let decision = decided(&scene, 60).await;
    let told = report(&scene, &decision, Some(45)).await;
    assert_eq!(told["reservation"]["status"], "committed");
    assert_eq!(told["reservation"]["charged"], 45);
    assert_eq!(scene.standings().await, [[955, 0, 45, 0, 0], [55, 0, 45, 0, 0]]);
    let body = scene.entries("outcome_reported").await.pop().unwrap();
    assert_eq!(body["settled"]["charged"], 45);
    assert_eq!(body["balances"].as_array().unwrap().len(), 2);
    // What is not said is what it was to cost.
    let decision = decided(&scene, 20).await;
    report(&scene, &decision, None).await;
    let (path, _) = decided(&scene, 20).await;
    let told = scene
        .post(&path, &json!({"status": "not_executed"}))
        .await
        .expect(201);
    assert_eq!(told["reservation"]["status"], "released");
    assert_eq!(scene.balances().await[1].1, [35, 0, 65, 0, 0]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_an_outcome_spends_beyond_every_budget_is_uncovered_at_every_level() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 1_000)]).await;
    let strict = json!({"scope": {"team": "crew"}, "unit": "TOKENS", "allocated": 100, "overage": "reject"});
    scene.budget(&strict).await;
    let decision = decided(&scene, 60).await;
    report(&scene, &decision, Some(130)).await;
    assert_eq!(
        scene.standings().await,
        [[900, 0, 100, 0, 30], [0, 0, 100, 0, 30]]
    );
}

#[tokio::test]
async fn what_costs_more_than_was_held_fills_a_budget_that_rejects_too() {
    let scene = Scene::set().await;
    let strict = json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overage": "reject"});
    scene.budget(&strict).await;
    for (actual, standing) in [(50, [50, 0, 50, 0, 0]), (60, [0, 0, 100, 0, 10])] {
        let decision = decided(&scene, 0).await;
        report(&scene, &decision, Some(actual)).await;
        assert_eq!(scene.standing().await, standing);
    }
    let answer = scene.stage.ask(&costing(1)).await.expect(200);
    assert_eq!(answer["reason_code"], "budget_exceeded");
    scene.stage.assert_sound().await;
}

/// A commit is final, and usage of more than is left is refused.
#[tokio::test]
async fn whoever_does_as_a_refused_commit_says_loses_nothing_of_what_was_spent() {
    let scene = Scene::set().await;
    let strict = json!({"scope": {}, "unit": "TOKENS", "allocated": 20, "overage": "reject"});
    scene.budget(&strict).await;
    let answer = scene.stage.ask(&costing(10)).await.expect(200);
    let hold = answer["reservation"]["id"].as_str().unwrap();
    let commit = json!({"actual": tokens(35)});
    let refused = scene.settle(hold, "commit", &commit).await.expect(409);
    let id = answer["decision_id"].as_str().unwrap();
    let detail = format!(
        "the budget of the tenant rejects more than was held, 10 `TOKENS`. Report what was spent as `actual` with the outcome of {id} instead: as much as is left is charged, and the rest is uncovered."
    );
    assert_eq!(
        (&refused["code"], &refused["detail"], &refused["held"]),
        (&json!("budget_exceeded"), &json!(detail), &json!(10))
    );
    assert_eq!(scene.standing().await, [10, 10, 0, 0, 0]);
    let decision = (outcome_of(&answer), answer["action_hash"].clone());
    report(&scene, &decision, Some(35)).await;
    assert_eq!(scene.standing().await, [0, 0, 20, 0, 15]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_is_reported_is_charged_however_much_is_uncovered_already() {
    let most = 9_007_199_254_740_991_i64;
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let held = decided(&scene, 10).await;
    let mut unreserved = costing(0);
    unreserved.as_object_mut().unwrap().remove("estimate");
    let answer = scene.stage.ask(&unreserved).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    report(&scene, &(path, answer["action_hash"].clone()), Some(most)).await;
    assert_eq!(scene.standing().await, [0, 10, 90, 0, most - 90]);
    for _ in 0..2 {
        let usage = json!({"unit": "TOKENS", "amount": 80});
        scene.post("/v1/usage", &usage).await.expect(201);
    }
    report(&scene, &held, Some(12)).await;
    assert_eq!(scene.standing().await, [0, 0, 100, 0, most]);
    let body = scene.entries("outcome_reported").await.pop().unwrap();
    assert_eq!(
        (&body["settled"]["charged"], &body["settled"]["uncovered"]),
        (&json!(10), &json!(2))
    );
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_was_done_is_charged_even_if_its_hold_was_released() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let answer = scene.stage.ask(&costing(60)).await.expect(200);
    let hold = answer["reservation"]["id"].as_str().unwrap().to_owned();
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    scene.settle(&hold, "release", &json!({})).await.expect(200);
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    report(&scene, &(path, answer["action_hash"].clone()), None).await;
    assert_eq!(scene.standing().await, [40, 0, 60, 0, 0]);
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());

    let answer = scene.stage.ask(&costing(40)).await.expect(200);
    let hold = answer["reservation"]["id"].as_str().unwrap().to_owned();
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    scene.settle(&hold, "release", &json!({})).await.expect(200);
    let not_done = json!({"status": "not_executed"});
    scene.post(&path, &not_done).await.expect(201);
    assert_eq!(scene.standing().await, [40, 0, 60, 0, 0]);
}

#[tokio::test]
async fn an_outcome_that_comes_late_counts_all_the_same() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let late = decided(&scene, 60).await;
    scene.stage.clock.advance_millis(65_000);
    let told = report(&scene, &late, Some(50)).await;
    assert_eq!(told["reservation"]["status"], "expired");
    assert_eq!(scene.standing().await, [50, 0, 50, 0, 0]);
    assert_eq!(scene.entries("reservation_expired").await.len(), 1);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_was_spent_without_an_estimate_is_charged_too() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({"tool": "github"}), 100)]).await;
    let answer = scene.stage.ask(&crate::stage::changing()).await.expect(200);
    let id = answer["decision_id"].as_str().unwrap();
    let path = format!("/v1/decisions/{id}/outcome");
    let body = json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": tokens(30)});
    let told = scene.post(&path, &body).await.expect(201);
    assert_eq!(told["balances"][0]["spent"], 30);
    assert_eq!(scene.standing().await, [70, 0, 30, 0, 0]);
    scene.post(&path, &body).await.problem(409, "outcome_reported");
    assert_eq!(scene.standing().await, [70, 0, 30, 0, 0]);
}

/// Everything that is only observed is carried out, whatever would have been said.
#[tokio::test]
async fn what_was_only_observed_is_charged_its_estimate_when_it_was_done() {
    let scene = Scene::set().await;
    scene.permit_observing().await;
    scene.budgets(&[(json!({}), 100)]).await;
    for (ask, actual, spent, uncovered) in [
        (observed(60), None, 60, 0),
        (observed(60), Some(10), 70, 0),
        (observed(60), None, 100, 30),
    ] {
        let answer = scene.stage.ask(&ask).await.expect(200);
        let path = format!(
            "/v1/decisions/{}/outcome",
            answer["decision_id"].as_str().unwrap()
        );
        report(&scene, &(path, answer["action_hash"].clone()), actual).await;
        assert_eq!(scene.standing().await, [100 - spent, 0, spent, 0, uncovered]);
    }
    let answer = scene.stage.ask(&observed(60)).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    let not_done = json!({"status": "not_executed"});
    scene.post(&path, &not_done).await.expect(201);
    assert_eq!(scene.standing().await, [0, 0, 100, 0, 30]);
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn an_outcome_in_another_unit_or_with_another_amount_moves_nothing() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let answer = scene.stage.ask(&costing(60)).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    let mut body = json!({"status": "succeeded", "executed_hash": answer["action_hash"],
                          "actual": {"unit": "CREDITS", "amount": 1}});
    scene.post(&path, &body).await.problem(422, "unit_mismatch");
    let reservation = answer["reservation"]["id"].as_str().unwrap();
    scene
        .settle(reservation, "commit", &json!({"actual": tokens(50)}))
        .await
        .expect(200);
    body["actual"] = tokens(51);
    scene.post(&path, &body).await.problem(422, "amount_mismatch");
    body["actual"] = tokens(50);
    scene.post(&path, &body).await.expect(201);
    assert_eq!(scene.standing().await, [50, 0, 50, 0, 0]);
}

#[tokio::test]
async fn an_outcome_tells_what_became_of_its_reservation_before_it() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    for (verb, step, status) in [
        ("commit", json!({"actual": tokens(50)}), "committed"),
        ("release", json!({}), "released"),
    ] {
        let answer = scene.stage.ask(&costing(20)).await.expect(200);
        let reservation = answer["reservation"]["id"].as_str().unwrap();
        scene.settle(reservation, verb, &step).await.expect(200);
        let report = match verb {
            "commit" => json!({"status": "succeeded", "executed_hash": answer["action_hash"]}),
            _ => json!({"status": "not_executed"}),
        };
        let told = scene.post(&outcome_of(&answer), &report).await.expect(201);
        assert_eq!(told["reservation"]["id"], reservation);
        assert_eq!(told["reservation"]["status"], status);
        assert_eq!(told["balances"][0]["remaining"], 50);
        assert_eq!(scene.standing().await, [50, 0, 50, 0, 0]);
        let body = scene.entries("outcome_reported").await.pop().unwrap();
        assert_eq!(body["settled"], Value::Null, "nothing was left to settle");
    }
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_second_outcome_is_one_too_many_whatever_amount_or_unit_it_names() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let answer = scene.stage.ask(&costing(60)).await.expect(200);
    let hold = answer["reservation"]["id"].as_str().unwrap();
    let commit = json!({"actual": tokens(50)});
    scene.settle(hold, "commit", &commit).await.expect(200);
    let path = outcome_of(&answer);
    let mut report =
        json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": tokens(50)});
    scene.post(&path, &report).await.expect(201);
    for actual in [tokens(51), json!({"unit": "CREDITS", "amount": 50}), tokens(50)] {
        report["actual"] = actual;
        let again = scene.post(&path, &report).await;
        again.problem(409, "outcome_reported");
    }
    assert_eq!(scene.standing().await, [50, 0, 50, 0, 0]);
    scene.stage.assert_sound().await;
}

/// What a tool has is for those who may use it, and an ask that is denied makes nobody one of them.
#[tokio::test]
async fn an_outcome_reaches_no_budget_of_a_tool_that_the_agent_has_no_grant_for() {
    let scene = Scene::set().await;
    scene.permit_observing().await;
    let [vault, honeypot] = ["vault", "honeypot"].map(|tool| json!({"tool": tool}));
    scene
        .budgets(&[(json!({}), 100), (vault, 100), (honeypot, 100)])
        .await;
    let other = json!({"name": "other", "tools": ["github"]});
    let other = scene.stage.hire(other).await;
    let storing = || asking("vault", "store", "trusted_internal_unsigned");
    let mut for_nobody = storing();
    for_nobody["act"] = json!({"sub": "nobody"});
    let mut observed = storing();
    observed["mode"] = json!("observe");
    let asks = [
        (storing(), "tool_not_granted"),
        (
            asking("vault", "no_such_action", "trusted_internal_unsigned"),
            "unknown_tool",
        ),
        (for_nobody, "unknown_principal"),
        (observed, "observed"),
        (trapped(), "policy_forbids"),
        (storing(), "agent_frozen"),
    ];
    let mut spent = 0;
    for (ask, reason) in asks {
        let answer = scene.stage.post("/v1/authorize", &other.token, &ask).await;
        let answer = answer.expect(200);
        assert_eq!(answer["reason_code"], reason);
        let report = json!({"status": "not_executed", "actual": tokens(7)});
        let told = scene
            .stage
            .post(&outcome_of(&answer), &other.token, &report)
            .await
            .expect(201);
        spent += 7;
        let balances = told["balances"].as_array().unwrap().iter();
        let scopes: Vec<_> = balances.map(|balance| balance["scope"].clone()).collect();
        assert_eq!(scopes, [json!({})], "{reason}");
        let untouched = [100, 0, 0, 0, 0];
        assert_eq!(
            scene.standings().await,
            [[100 - spent, 0, spent, 0, 0], untouched, untouched],
            "{reason}"
        );
    }
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
}

#[tokio::test]
async fn an_outcome_counts_for_its_tool_if_the_agent_had_it_then_or_has_it_now() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({"tool": "github"}), 100)]).await;
    let narrow = json!({"name": "narrow", "tools": ["vault"]});
    scene.stage.hire(narrow).await;
    let grant = async |tools: Value| {
        let path = format!("/v1/agents/{}", scene.stage.agent.id);
        let tools = json!({ "tools": tools });
        scene.stage.admin("PATCH", &path, &tools).await.expect(200);
    };
    let ask = async |ask: &Value, reason: &str| {
        let answer = scene.stage.ask(ask).await.expect(200);
        assert_eq!(answer["reason_code"], reason);
        (outcome_of(&answer), answer["action_hash"].clone())
    };
    let allowed = ask(&changing(), "policy_permits").await;
    grant(json!([])).await;
    report(&scene, &allowed, Some(1)).await;
    assert_eq!(scene.standing().await, [99, 0, 1, 0, 0]);

    // Usage could tell the same from now on.
    let denied = ask(&changing(), "tool_not_granted").await;
    grant(json!("all")).await;
    report(&scene, &denied, Some(2)).await;
    assert_eq!(scene.standing().await, [97, 0, 3, 0, 0]);

    // It is granted to the agent, and not to the one in whose name it asks.
    let mut in_its_name = changing();
    in_its_name["act"] = json!({"sub": "narrow"});
    let denied = ask(&in_its_name, "tool_not_granted").await;
    report(&scene, &denied, Some(3)).await;
    assert_eq!(scene.standing().await, [94, 0, 6, 0, 0]);

    let freeze = scene.stage.set_standing(&scene.stage.agent, "freeze").await;
    freeze.expect(200);
    let denied = ask(&changing(), "agent_frozen").await;
    report(&scene, &denied, Some(4)).await;
    assert_eq!(scene.standing().await, [90, 0, 10, 0, 0]);
}

/// The worst mismatch of all is not the one that costs nothing.
#[tokio::test]
async fn what_was_not_allowed_and_was_done_is_charged_its_estimate() {
    let scene = Scene::set().await;
    let ask = async |mut ask: Value, amount: i64| {
        ask["estimate"] = tokens(amount);
        scene.stage.ask(&ask).await.expect(200)
    };
    // There was no budget yet, so nothing was held for it.
    let unbudgeted = ask(changing(), 7).await;
    assert_eq!(unbudgeted["decision"], "allow");
    scene.budgets(&[(json!({}), 100)]).await;
    let exceeding = ask(changing(), 101).await;
    assert_eq!(exceeding["reason_code"], "budget_exceeded");
    let forbidden = ask(injected(), 20).await;
    assert_eq!(forbidden["decision"], "deny");
    let mut merge = asking("github", "merge_pull_request", "trusted_internal_unsigned");
    merge["tool_call"]["parameters"] = json!({"base_branch": "main", "number": 42});
    let unapproved = ask(merge, 30).await;
    assert_eq!(unapproved["decision"], "require_approval");
    for (answer, spent, uncovered) in [
        (&unbudgeted, 7, 0),
        (&forbidden, 27, 0),
        (&unapproved, 57, 0),
        (&exceeding, 100, 58),
    ] {
        let decision = (outcome_of(answer), answer["action_hash"].clone());
        report(&scene, &decision, None).await;
        assert_eq!(scene.standing().await, [100 - spent, 0, spent, 0, uncovered]);
    }
    let not_done = ask(changing(), 1).await;
    assert_eq!(not_done["reason_code"], "budget_exceeded");
    let report = json!({"status": "not_executed"});
    scene.post(&outcome_of(&not_done), &report).await.expect(201);
    assert_eq!(scene.standing().await, [0, 0, 100, 0, 58]);
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
    scene.stage.assert_sound().await;
}
