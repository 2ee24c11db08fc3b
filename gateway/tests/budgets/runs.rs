//! Budgets of runs: a child spends from its parent's, whether it names it again or not.

use crate::stage::named;
use crate::{Scene, costing, tokens};
use serde_json::{Value, json};

fn in_run(amount: i64, run: &str, parent: Option<&str>) -> Value {
    let mut ask = costing(amount);
    ask["trace"] = json!({"run_id": run});
    if let Some(parent) = parent {
        ask["trace"]["parent_run_id"] = json!(parent);
    }
    ask
}

async fn decision(scene: &Scene, ask: &Value) -> String {
    code(&scene.stage.ask(ask).await.expect(200))
}

/// That it was allowed, or why not.
fn code(answer: &Value) -> String {
    let code = if answer["decision"] == "allow" {
        &answer["decision"]
    } else {
        &answer["reason_code"]
    };
    code.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_child_run_spends_from_what_its_parent_has_left() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({"run": "root"}), 100), (json!({}), 1_000)])
        .await;
    assert_eq!(decision(&scene, &in_run(40, "root", None)).await, "allow");
    assert_eq!(
        decision(&scene, &in_run(30, "child", Some("root"))).await,
        "allow"
    );
    // It belongs to its parent from now on, whatever it says.
    assert_eq!(
        decision(&scene, &in_run(31, "child", None)).await,
        "budget_exceeded"
    );
    assert_eq!(
        decision(&scene, &in_run(31, "child", Some("elsewhere"))).await,
        "budget_exceeded"
    );
    assert_eq!(
        decision(&scene, &in_run(30, "grandchild", Some("child"))).await,
        "allow"
    );
    assert_eq!(
        decision(&scene, &in_run(1, "grandchild", None)).await,
        "budget_exceeded"
    );
    assert_eq!(decision(&scene, &in_run(1, "unrelated", None)).await, "allow");
    assert_eq!(scene.standings().await, [[0, 100, 0, 0, 0], [899, 101, 0, 0, 0]]);
}

/// What the asks of a batch count against is looked up for all of them together, and each counts behind those before it.
#[tokio::test]
async fn a_run_spends_from_those_that_were_named_above_it_in_the_same_batch() {
    let naming = |run, parent| {
        let mut ask = in_run(1, run, Some(parent));
        ask["estimate"]["unit"] = json!("CREDITS");
        ask
    };
    for of_tenant in [Some([990, 10, 0, 0, 0]), None] {
        let scene = Scene::set().await;
        scene.budgets(&[(json!({"run": "root"}), 10)]).await;
        if of_tenant.is_some() {
            scene.budgets(&[(json!({}), 1_000)]).await;
        }
        scene
            .budget(&json!({"scope": {}, "unit": "CREDITS", "allocated": 1_000}))
            .await;
        let batch = json!({"asks": [
            naming("grandchild", "child"),
            naming("child", "root"),
            in_run(11, "grandchild", None),
            in_run(4, "grandchild", None),
            in_run(6, "child", None),
            in_run(1, "child", None),
        ]});
        let answers = scene.post("/v1/authorize/batch", &batch).await.expect(200);
        let codes: Vec<_> = answers["answers"].as_array().unwrap().iter().map(code).collect();
        let (allow, exceeded) = ("allow", "budget_exceeded");
        assert_eq!(codes, [allow, allow, exceeded, allow, allow, exceeded]);
        let standings = scene.standings().await;
        let (root, others) = standings.split_first().unwrap();
        assert_eq!(*root, [0, 10, 0, 0, 0]);
        let expected: Vec<[i64; 5]> = of_tenant.into_iter().chain([[998, 2, 0, 0, 0]]).collect();
        assert_eq!(others, expected);
        let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
        assert_eq!(counted.mismatches, Vec::<String>::new());
        scene.stage.assert_sound().await;
    }
}

/// The ask that would have told of the first parent is refused, because its id was used for another ask.
#[tokio::test]
async fn a_run_spends_from_its_parent_where_another_one_was_named_in_vain_in_the_same_batch() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({"run": "root"}), 10), (json!({}), 1_000)])
        .await;
    scene
        .budget(&json!({"scope": {}, "unit": "CREDITS", "allocated": 1_000}))
        .await;
    let used = named(in_run(1, "another", None), "call-1");
    assert_eq!(decision(&scene, &used).await, "allow");
    // Nobody remembers the id, so that it is found to be used where the batch is recorded.
    let scene = Scene {
        stage: scene.stage.restart().await,
        ..scene
    };
    let naming = |parent| {
        let mut ask = in_run(1, "child", Some(parent));
        ask["estimate"]["unit"] = json!("CREDITS");
        ask
    };
    let batch = json!({"asks": [
        named(naming("elsewhere"), "call-1"),
        naming("root"),
        in_run(11, "child", None),
        in_run(10, "child", None),
    ]});
    let answers = scene.post("/v1/authorize/batch", &batch).await.expect(200);
    let answers = answers["answers"].as_array().unwrap();
    assert_eq!(answers[0]["status"], 422, "{answers:?}");
    let codes: Vec<_> = answers[1..].iter().map(code).collect();
    assert_eq!(codes, ["allow", "budget_exceeded", "allow"]);
    assert_eq!(scene.standings().await[0], [0, 10, 0, 0, 0]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_child_that_was_refused_what_its_parent_lacks_belongs_to_it_all_the_same() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({"run": "root"}), 100), (json!({}), 1_000)])
        .await;
    assert_eq!(
        decision(&scene, &in_run(500, "child", Some("root"))).await,
        "budget_exceeded"
    );
    assert_eq!(
        decision(&scene, &in_run(500, "child", None)).await,
        "budget_exceeded"
    );
    let scene = Scene {
        stage: scene.stage.restart().await,
        ..scene
    };
    assert_eq!(
        decision(&scene, &in_run(500, "child", None)).await,
        "budget_exceeded"
    );
    assert_eq!(decision(&scene, &in_run(100, "child", None)).await, "allow");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_child_whose_outcome_was_charged_to_its_parent_belongs_to_it() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({"run": "root"}), 100), (json!({}), 1_000)])
        .await;
    let mut ask = in_run(1, "child", Some("root"));
    ask.as_object_mut().unwrap().remove("estimate");
    let answer = scene.stage.ask(&ask).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    let body = json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": tokens(60)});
    scene.post(&path, &body).await.expect(201);
    assert_eq!(
        decision(&scene, &in_run(41, "child", None)).await,
        "budget_exceeded"
    );
    assert_eq!(decision(&scene, &in_run(40, "child", None)).await, "allow");
}

#[tokio::test]
async fn a_child_has_its_own_limit_and_its_parents() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({"run": "root"}), 100), (json!({"run": "child"}), 20)])
        .await;
    assert_eq!(
        decision(&scene, &in_run(21, "child", Some("root"))).await,
        "budget_exceeded"
    );
    assert_eq!(
        decision(&scene, &in_run(20, "child", Some("root"))).await,
        "allow"
    );
    let usage = json!({"unit": "TOKENS", "amount": 70, "run_id": "other", "parent_run_id": "root"});
    scene.post("/v1/usage", &usage).await.expect(201);
    let reserve = json!({"unit": "TOKENS", "amount": 11, "run_id": "other"});
    scene
        .post("/v1/reservations", &reserve)
        .await
        .problem(409, "budget_exceeded");
    assert_eq!(scene.standings().await, [[10, 20, 70, 0, 0], [0, 20, 0, 0, 0]]);
}

#[tokio::test]
async fn who_has_put_a_run_under_another_one_is_told_by_the_ledger() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 1_000)]).await;
    let naming = |amount, run: &str, parent: &str| {
        let mut body = tokens(amount);
        body["run_id"] = json!(run);
        body["parent_run_id"] = json!(parent);
        body
    };
    let used = naming(0, "child", "root");
    scene.post("/v1/usage", &used).await.expect(201);
    scene
        .post("/v1/usage", &naming(1, "root", "root"))
        .await
        .expect(201);
    let held = naming(2, "grandchild", "child");
    let held = scene.post("/v1/reservations", &held).await.expect(201);
    let id = held["id"].as_str().unwrap();
    scene.settle(id, "release", &json!({})).await.expect(200);
    let told = async |kind: &str| -> Vec<[Value; 3]> {
        let entries = scene.entries(kind).await.into_iter();
        let members = ["agent", "run_id", "parent_run_id"];
        entries
            .map(|entry| members.map(|member| entry[member].clone()))
            .collect()
    };
    let by = json!(scene.stage.agent.id);
    let [root, child, grandchild] = ["root", "child", "grandchild"].map(|run| json!(run));
    assert_eq!(
        told("usage_recorded").await,
        [
            [by.clone(), child.clone(), root.clone()],
            [by.clone(), root, Value::Null]
        ]
    );
    assert_eq!(
        told("reservation_created").await,
        [[by.clone(), grandchild.clone(), child]]
    );
    // Which run started it does not change any more.
    assert_eq!(
        told("reservation_released").await,
        [[by, grandchild, Value::Null]]
    );
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_call_that_names_only_its_parent_spends_from_it() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({"run": "root"}), 100), (json!({}), 1_000_000)])
        .await;
    let of_parent = |amount, parent: &str| {
        let mut ask = costing(amount);
        ask["trace"] = json!({"parent_run_id": parent});
        ask
    };
    assert_eq!(decision(&scene, &of_parent(500, "root")).await, "budget_exceeded");
    assert_eq!(decision(&scene, &of_parent(40, "root")).await, "allow");
    assert_eq!(
        decision(&scene, &in_run(20, "child", Some("root"))).await,
        "allow"
    );
    let scene = Scene {
        stage: scene.stage.restart().await,
        ..scene
    };
    // The child's own is its parent's, too.
    let mut tried = of_parent(41, "child");
    assert_eq!(decision(&scene, &tried).await, "budget_exceeded");
    tried["mode"] = json!("dry_run");
    assert_eq!(decision(&scene, &tried).await, "budget_exceeded");
    assert_eq!(decision(&scene, &of_parent(30, "child")).await, "allow");
    let usage = json!({"unit": "TOKENS", "amount": 5, "parent_run_id": "root"});
    scene.post("/v1/usage", &usage).await.expect(201);
    let reserve = json!({"unit": "TOKENS", "amount": 6, "parent_run_id": "root"});
    scene
        .post("/v1/reservations", &reserve)
        .await
        .problem(409, "budget_exceeded");
    assert_eq!(
        scene.standings().await,
        [[5, 90, 5, 0, 0], [999_905, 90, 5, 0, 0]]
    );
    // What has spent from a run is found by it.
    let path = "/v1/decisions?run_id=root";
    let found = scene.stage.get(path, &scene.auditor).await.expect(200);
    let found = found["items"].as_array().unwrap().iter();
    let found: Vec<_> = found
        .map(|one| (&one["reason_code"], &one["parent_run_id"]))
        .collect();
    let root = &json!("root");
    assert_eq!(
        found,
        [
            (&json!("policy_permits"), root),
            (&json!("budget_exceeded"), root)
        ]
    );
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn the_budget_of_a_run_is_found_by_whoever_names_it_as_the_parent() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({"run": "root"}), 100)]).await;
    let mut ask = costing(60);
    ask["trace"] = json!({"parent_run_id": "root"});
    assert_eq!(decision(&scene, &ask).await, "allow");
    assert_eq!(decision(&scene, &ask).await, "budget_exceeded");
    assert_eq!(scene.standing().await, [40, 60, 0, 0, 0]);
}
