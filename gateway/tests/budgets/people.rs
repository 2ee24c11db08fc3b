//! What people do with budgets: made, funded, emptied, frozen and closed, each with an entry that says who did it.

use crate::support::hand::Hand;
use crate::{Scene, costing, tokens};
use gateway::gateway::{FixedBounds, Options};
use serde_json::{Value, json};

#[tokio::test]
async fn a_budget_is_funded_emptied_and_begun_anew_and_the_ledger_says_by_whom() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 50}))
        .await;
    scene.post("/v1/usage", &tokens(120)).await.expect(201);
    assert_eq!(scene.standing().await, [-20, 0, 100, 20, 0]);
    let funded = scene
        .change(&id, "fund", &json!({"amount": 50, "reason": "more"}))
        .await
        .expect(200);
    assert_eq!((&funded["remaining"], &funded["debt"]), (&json!(30), &json!(0)));
    let refused = scene.change(&id, "debit", &json!({"amount": 31})).await;
    refused.problem(409, "budget_exceeded");
    assert_eq!(refused.json()["remaining"], 30);
    scene
        .change(&id, "debit", &json!({"amount": 30}))
        .await
        .expect(200);
    let reset = scene
        .change(&id, "reset", &json!({"allocated": 10}))
        .await
        .expect(200);
    assert_eq!((&reset["remaining"], &reset["spent"]), (&json!(10), &json!(0)));
    for (kind, amount) in [
        ("budget_funded", 50),
        ("budget_debited", 30),
        ("budget_reset", 10),
    ] {
        let entries = scene.entries(kind).await;
        assert_eq!(entries.len(), 1, "{kind}");
        assert_eq!(entries[0]["amount"], amount);
        assert_eq!(entries[0]["by"]["role"], "operator");
    }
    assert_eq!(scene.entries("budget_funded").await[0]["reason"], "more");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_budget_that_cannot_shrink_says_what_is_in_the_way() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 50}))
        .await;
    scene.reserve(100).await;
    let refused = async |verb: &str, body: Value| {
        let refused = scene.change(&id, verb, &body).await;
        let detail = refused.problem(409, "budget_exceeded");
        let problem = refused.json();
        let members = ["held", "requested", "remaining"].map(|member| problem[member].clone());
        (detail, json!(members))
    };
    let held = |held: i64| {
        format!("{held} is held; reset the budget to at least that, or have what is held settled first")
    };
    assert_eq!(
        refused("reset", json!({"allocated": 10})).await,
        (held(100), json!([100, 10, 0]))
    );
    scene
        .change(&id, "fund", &json!({"amount": 100}))
        .await
        .expect(200);
    scene.reserve(100).await;
    // It would begin with what it was made with.
    assert_eq!(
        refused("reset", json!({})).await,
        (held(200), json!([200, 100, 0]))
    );
    scene.post("/v1/usage", &tokens(20)).await.expect(201);
    let nothing = "nothing is left to take, because all of it is held or used; fund the budget, or have what is held settled first";
    assert_eq!(
        refused("debit", json!({"amount": 0})).await,
        (nothing.to_owned(), json!([null, 0, -20]))
    );
    assert_eq!(scene.standing().await, [-20, 200, 0, 20, 0]);
}

#[tokio::test]
async fn a_reason_is_as_long_as_any_other_reason() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 1}))
        .await;
    let longest = format!("line\nline {}", "é".repeat(507));
    assert_eq!(longest.len(), 1_024);
    for (verb, kind) in [
        ("fund", "budget_funded"),
        ("debit", "budget_debited"),
        ("reset", "budget_reset"),
        ("freeze", "budget_frozen"),
        ("unfreeze", "budget_unfrozen"),
        ("close", "budget_closed"),
    ] {
        let body = |reason: &str| match verb {
            "fund" | "debit" => json!({"amount": 1, "reason": reason}),
            _ => json!({"reason": reason}),
        };
        for wrong in ["", &format!("{longest}.")] {
            let detail = scene
                .change(&id, verb, &body(wrong))
                .await
                .problem(400, "invalid_field");
            assert!(
                detail.starts_with("`/reason`: a reason has 1 to 1024 bytes"),
                "{detail}"
            );
        }
        scene.change(&id, verb, &body(&longest)).await.expect(200);
        assert_eq!(scene.entries(kind).await[0]["reason"], longest, "{kind}");
    }
}

#[tokio::test]
async fn of_one_scope_and_unit_there_is_one_budget_until_it_is_closed() {
    let scene = Scene::set().await;
    let body = json!({"scope": {"team": "crew"}, "unit": "TOKENS", "allocated": 100});
    let id = scene.budget(&body).await;
    let taken = scene.stage.admin("POST", "/v1/budgets", &body).await;
    assert!(taken.problem(409, "budget_exists").contains(&id));
    let entries = scene.stage.entries().await.len();
    scene.change(&id, "unfreeze", &json!({})).await.expect(200);
    assert_eq!(scene.stage.entries().await.len(), entries, "nothing has changed");
    let held = scene.reserve(60).await;
    let closed = scene.change(&id, "close", &json!({})).await.expect(200);
    assert_eq!(closed["status"], "closed");
    scene
        .change(&id, "fund", &json!({"amount": 1}))
        .await
        .problem(409, "conflict");
    scene
        .change(&id, "unfreeze", &json!({}))
        .await
        .problem(409, "conflict");
    let other = scene.budget(&body).await;
    assert_ne!(other, id);
    // What was held is settled where it was held.
    scene
        .settle(&held, "commit", &json!({"actual": tokens(50)}))
        .await
        .expect(200);
    let shown = scene
        .stage
        .get(&format!("/v1/budgets/{id}"), &scene.auditor)
        .await
        .expect(200);
    assert_eq!((&shown["spent"], &shown["reserved"]), (&json!(50), &json!(0)));
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_budget_for_nothing_that_is_registered_is_refused() {
    let scene = Scene::set().await;
    let create = async |scope, more: Value| {
        let mut body = json!({"scope": scope, "unit": "TOKENS", "allocated": 1});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        scene.stage.admin("POST", "/v1/budgets", &body).await
    };
    for scope in [
        json!({"team": "crow"}),
        json!({"agent": "agt_00000000000000000000000000"}),
        json!({"tool": "githib"}),
        json!({"run": "r", "team": "crew"}),
    ] {
        create(scope, json!({})).await.problem(400, "invalid_field");
    }
    create(json!({"project": "p"}), json!({}))
        .await
        .problem(400, "unknown_field");
    // Without its value a budget of a team would be one of the tenant, which stops everybody.
    for member in ["team", "agent", "tool", "run"] {
        let refused = create(json!({member: null}), json!({})).await;
        let detail = refused.problem(400, "invalid_field");
        assert!(detail.starts_with(&format!("`/scope/{member}`: ")), "{detail}");
    }
    for more in [
        json!({"allocated": -1}),
        json!({"unit": ""}),
        json!({"period": "year"}),
        json!({"overage": "reject", "overdraft_limit": 5}),
    ] {
        create(json!({}), more).await.problem(400, "invalid_field");
    }
    assert!(scene.balances().await.is_empty());
}

#[tokio::test]
async fn budgets_are_for_admins_and_another_tenants_do_not_exist() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 100}))
        .await;
    let body = json!({"scope": {}, "unit": "CREDITS", "allocated": 1});
    scene.post("/v1/budgets", &body).await.problem(403, "forbidden");
    scene
        .stage
        .post("/v1/budgets", &scene.auditor, &body)
        .await
        .problem(403, "forbidden");
    let other = json!({"name": "globex"});
    let other = scene
        .stage
        .post("/v1/tenants", &scene.stage.operator, &other)
        .await
        .expect(201);
    for (method, path) in [
        ("GET", ""),
        ("POST", "/fund"),
        ("POST", "/freeze"),
        ("POST", "/close"),
    ] {
        let path = format!("/v1/budgets/{id}{path}");
        let call = scene.stage.call(method, &path, &scene.stage.operator);
        let body = if path.ends_with("fund") {
            json!({"amount": 1})
        } else {
            json!({})
        };
        let call = call.tenant(other["id"].as_str().unwrap());
        let call = if method == "GET" { call } else { call.json(&body) };
        call.send().await.problem(404, "not_found");
    }
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_period_begins_anew_by_the_calendar_with_the_debt() {
    let scene = Scene::set().await;
    let body =
        json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 20, "period": "day"});
    let id = scene.budget(&body).await;
    scene.post("/v1/usage", &tokens(110)).await.expect(201);
    let answer = scene.stage.ask(&costing(1)).await.expect(200);
    assert!(answer["agent_message"].as_str().unwrap().contains("next period"));
    // It is half past nine and a millisecond.
    scene.stage.clock.advance_millis(14 * 3_600_000 + 1_800_000 - 2);
    assert_eq!(scene.standing().await, [-10, 0, 100, 10, 0]);
    scene.stage.clock.advance_millis(1);
    assert_eq!(scene.standing().await, [90, 0, 10, 0, 0]);
    assert!(scene.entries("budget_rolled_over").await.is_empty());
    scene.reserve(90).await;
    assert_eq!(scene.standing().await, [0, 90, 10, 0, 0]);
    let rolled = scene.entries("budget_rolled_over").await;
    assert_eq!(rolled.len(), 1);
    assert_eq!(rolled[0]["period_start"], "2026-02-01T00:00:00.000Z");
    let shown = scene
        .stage
        .get(&format!("/v1/budgets/{id}"), &scene.auditor)
        .await
        .expect(200);
    assert_eq!(shown["period_start"], "2026-02-01T00:00:00.000Z");
}

#[tokio::test]
async fn what_is_carried_into_a_period_reaches_thresholds_like_what_is_spent_in_it() {
    let scene = Scene::set().await;
    let body =
        json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 100, "period": "day"});
    scene.budget(&body).await;
    let told = async || {
        let entries = scene.entries("budget_threshold_reached").await;
        let percent = entries.iter().map(|entry| entry["percent"].as_i64().unwrap());
        percent.collect::<Vec<_>>()
    };
    scene.post("/v1/usage", &tokens(160)).await.expect(201);
    assert_eq!(told().await, [50, 80, 100]);
    scene.stage.clock.advance_millis(24 * 3_600_000);
    scene.reserve(1).await;
    assert_eq!(scene.standing().await, [39, 1, 60, 0, 0]);
    assert_eq!(told().await, [50, 80, 100, 50]);
    scene.post("/v1/usage", &tokens(20)).await.expect(201);
    assert_eq!(told().await, [50, 80, 100, 50, 80]);
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_is_held_when_a_period_ends_is_not_charged_to_the_next_one() {
    let scene = Scene::set().await;
    let body =
        json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 50, "period": "day"});
    scene.budget(&body).await;
    let most = json!({"unit": "TOKENS", "amount": 80, "ttl_ms": 86_400_000});
    let held = scene.post("/v1/reservations", &most).await.expect(201);
    scene.post("/v1/usage", &tokens(50)).await.expect(201);
    assert_eq!(scene.standing().await, [-30, 80, 20, 30, 0]);
    scene.stage.clock.advance_millis(15 * 3_600_000);
    assert_eq!(scene.standing().await, [20, 80, 0, 0, 0]);
    let id = held["id"].as_str().unwrap();
    scene.settle(id, "release", &json!({})).await.expect(200);
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    let rolled = scene.entries("budget_rolled_over").await;
    assert_eq!((rolled.len(), &rolled[0]["carried"]), (1, &json!(0)));
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
}

#[tokio::test]
async fn a_budget_that_nobody_asks_of_pays_its_debt_in_every_period() {
    let scene = Scene::set().await;
    let body =
        json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 300, "period": "day"});
    scene.budget(&body).await;
    scene.post("/v1/usage", &tokens(370)).await.expect(201);
    assert_eq!(scene.standing().await, [-270, 0, 100, 270, 0]);
    scene.stage.clock.advance_millis(3 * 24 * 3_600_000);
    assert_eq!(scene.standing().await, [30, 0, 70, 0, 0]);
    scene.reserve(30).await;
    assert_eq!(scene.standing().await, [0, 30, 70, 0, 0]);
    let rolled = scene.entries("budget_rolled_over").await;
    assert_eq!(rolled.len(), 1);
    assert_eq!(
        (&rolled[0]["carried"], &rolled[0]["periods"]),
        (&json!(70), &json!(3))
    );
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
}

#[tokio::test]
async fn an_agent_sees_the_balances_that_it_counts_against() {
    let scene = Scene::set().await;
    let agent = scene.stage.agent.id.clone();
    scene
        .budgets(&[
            (json!({}), 1),
            (json!({"agent": agent}), 2),
            (json!({"agent": scene.stranger.id}), 3),
            (json!({"tool": "github"}), 4),
            (json!({"run": "r"}), 5),
        ])
        .await;
    let seen = async |query: &str| {
        let page = scene
            .stage
            .get(&format!("/v1/balances{query}"), &scene.stage.agent.token)
            .await
            .expect(200);
        let items = page["items"].as_array().unwrap().clone();
        items
            .iter()
            .map(|item| item["allocated"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(seen("").await, [1, 2]);
    assert_eq!(seen("?tool=github&run_id=r&unit=TOKENS").await, [1, 2, 4, 5]);
    assert_eq!(seen("?unit=CREDITS").await, [0_i64; 0]);
    assert_eq!(seen("?tool=unregistered").await, [1, 2]);
    let only = json!({"tools": ["vault"]});
    let path = format!("/v1/agents/{agent}");
    scene.stage.admin("PATCH", &path, &only).await.expect(200);
    assert_eq!(
        seen("?tool=github").await,
        [1, 2],
        "of a tool that it may not use it sees nothing"
    );
}

#[tokio::test]
async fn people_do_not_see_all_balances_where_they_wanted_those_of_a_tool_or_a_run() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 1), (json!({"tool": "github"}), 2)])
        .await;
    for query in ["tool=github", "run_id=r", "unit=TOKENS&tool=github"] {
        let path = format!("/v1/balances?{query}");
        let refused = scene.stage.get(&path, &scene.auditor).await;
        assert_eq!(
            refused.problem(400, "invalid_parameter"),
            "`tool` and `run_id` are for agents; people see all balances, with `unit` those in one unit"
        );
    }
    let path = "/v1/balances?unit=TOKENS";
    let page = scene.stage.get(path, &scene.auditor).await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
}

/// However many there ever were that do not match, a call looks at so many of them. What is open is found at once.
#[tokio::test]
async fn a_page_that_is_empty_says_where_the_list_of_budgets_goes_on() {
    let scene = Scene::set().await;
    let body = |unit: &str| json!({"scope": {}, "unit": unit, "allocated": 1});
    let wanted = scene.budget(&body("CREDITS")).await;
    let other = scene.budget(&body("TOKENS")).await;
    scene.change(&other, "close", &json!({})).await.expect(200);
    let mut hand = Hand::on(&scene.stage.home, scene.stage.tenant).await;
    let other = other.parse().unwrap();
    hand.multiply_budget(other, "TOKENS", store::LOOKED_AT_MAX).await;
    let read = async |path: &str| {
        let page = scene.stage.get(path, &scene.auditor).await.expect(200);
        let ids = page["items"].as_array().unwrap().iter().map(|item| {
            let id = item.get("budget_id").unwrap_or(&item["id"]);
            id.as_str().unwrap().to_owned()
        });
        let next = page["next_cursor"].as_str().map(str::to_owned);
        (ids.collect::<Vec<_>>(), next)
    };
    let path = "/v1/budgets?unit=CREDITS";
    let (found, next) = read(path).await;
    assert_eq!(found, [""; 0]);
    let next = next.expect("there is more to look at");
    let all = (vec![wanted], None);
    assert_eq!(read(&format!("{path}&cursor={next}")).await, all);
    for path in [
        "/v1/budgets?open=true",
        "/v1/budgets?open=true&unit=CREDITS",
        "/v1/balances",
        "/v1/balances?unit=CREDITS",
    ] {
        assert_eq!(read(path).await, all, "{path}");
    }
}

#[tokio::test]
async fn what_an_agent_sees_comes_in_pages() {
    let scene = Scene::set().await;
    let agent = scene.stage.agent.id.clone();
    let mut ids = Vec::new();
    for (scope, unit) in [
        (json!({"run": "r"}), "TOKENS"),
        (json!({"agent": agent}), "A"),
        (json!({"tool": "github"}), "TOKENS"),
        (json!({}), "b"),
        (json!({"team": "crew"}), "TOKENS"),
        (json!({"agent": agent}), "TOKENS"),
        (json!({}), "TOKENS"),
        (json!({}), "C D"),
        (json!({"agent": scene.stranger.id}), "TOKENS"),
    ] {
        let body = json!({"scope": scope, "unit": unit, "allocated": 1});
        ids.push(scene.budget(&body).await);
    }
    let read = async |query: &str| {
        let path = format!("/v1/balances?{query}");
        scene.stage.get(&path, &scene.stage.agent.token).await
    };
    let pages = async |query: &str, limit: usize| {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = read(&format!("{query}limit={limit}{cursor}")).await.expect(200);
            let items = page["items"].as_array().unwrap();
            let places = items
                .iter()
                .map(|item| ids.iter().position(|id| item["budget_id"] == **id).unwrap());
            seen.push(places.collect::<Vec<_>>());
            let Some(next) = page["next_cursor"].as_str() else {
                return seen;
            };
            cursor = format!("&cursor={next}");
        }
    };
    // The widest first, and those for the same by unit.
    assert_eq!(pages("", 50).await, [[7, 6, 3, 4, 1, 5]]);
    assert_eq!(pages("", 2).await, [[7, 6], [3, 4], [1, 5]]);
    assert_eq!(
        pages("tool=github&run_id=r&", 5).await,
        [vec![7, 6, 3, 4, 1], vec![5, 2, 0]]
    );
    assert_eq!(pages("unit=TOKENS&", 1).await, [[6], [4], [5]]);
    // Whatever becomes of where a page ended, and not of another list.
    let first = read("limit=2").await.expect(200);
    let next = first["next_cursor"].as_str().unwrap();
    scene.change(next, "close", &json!({})).await.expect(200);
    let second = read(&format!("limit=1&cursor={next}")).await.expect(200);
    assert_eq!(second["items"][0]["budget_id"], ids[3]);
    for wrong in [
        "cursor=garbage",
        "cursor=",
        "cursor=bgt_00000000000000000000000000",
        &format!("cursor={}", ids[8]),
        &format!("cursor={}", ids[0]),
        "limit=0",
        "limit=501",
    ] {
        read(wrong).await.problem(400, "invalid_parameter");
    }
}

#[tokio::test]
async fn a_tenant_has_no_more_open_budgets_than_the_bound() {
    let few = Options {
        bounds: FixedBounds {
            budgets_max: 3,
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let scene = Scene::set_with(few).await;
    let make = async |unit: &str| {
        let body = json!({"scope": {}, "unit": unit, "allocated": 5});
        scene.stage.admin("POST", "/v1/budgets", &body).await
    };
    let first = make("A").await.expect(201)["id"].as_str().unwrap().to_owned();
    make("B").await.expect(201);
    make("C").await.expect(201);
    let detail = make("D").await.problem(409, "conflict");
    assert!(detail.contains("3 budgets"), "{detail}");
    assert_eq!(scene.entries("budget_created").await.len(), 3);
    // What is closed does not count.
    scene.change(&first, "close", &json!({})).await.expect(200);
    make("D").await.expect(201);
    make("A").await.problem(409, "conflict");
}
