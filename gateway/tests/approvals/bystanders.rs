//! Who sees approvals, and how agents wait for them.

use crate::stage::Stage;
use crate::support::tenancy;
use crate::{Scene, ask_as, key, merging};
use futures_util::FutureExt as _;
use gateway::approvals::waiters::{Notification, Waiter};
use gateway::fairness_key::FairnessKey;
use gateway::http::caller::CallerId;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test]
async fn approvals_are_listed_to_people_and_an_agents_own_to_the_agent() {
    let scene = Scene::set().await;
    let first = scene.asked().await;
    scene.stage.clock.advance_millis(1);
    let second = scene.asked().await;
    scene.stage.clock.advance_millis(1);
    let other = scene.stage.hire(json!({"name": "other", "tools": "all"})).await;
    let third = ask_as(&scene, &other, &merging()).await.expect(200);
    let third = third["approval"]["id"].as_str().unwrap().to_owned();
    scene.vote(&scene.ann, &first, "approve").await.expect(200);
    let ids = async |query: &str, credential: &str| -> Vec<String> {
        let list = scene
            .stage
            .get(&format!("/v1/approvals{query}"), credential)
            .await
            .expect(200);
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids("", &scene.ann).await, [&*third, &*second, &*first]);
    assert_eq!(ids("?status=pending", &scene.auditor).await, [&*third, &*second]);
    assert_eq!(ids("?status=approved", &scene.auditor).await, [&*first]);
    assert_eq!(ids(&format!("?agent={}", other.id), &scene.ann).await, [&*third]);
    assert_eq!(ids("", &scene.stage.agent.token).await, [&*second, &*first]);
    assert_eq!(
        ids(&format!("?agent={}", other.id), &scene.stage.agent.token).await,
        [""; 0]
    );
    let page: Value = scene
        .stage
        .get("/v1/approvals?limit=2", &scene.ann)
        .await
        .expect(200);
    let cursor = page["next_cursor"].as_str().unwrap();
    assert_eq!(
        ids(&format!("?limit=2&cursor={cursor}"), &scene.ann).await,
        [&*first]
    );
    let own = format!("/v1/approvals/{first}");
    scene.stage.get(&own, &scene.stage.agent.token).await.expect(200);
    scene
        .stage
        .get(&own, &other.token)
        .await
        .problem(404, "not_found");
    scene
        .stage
        .get("/v1/approvals?status=open", &scene.ann)
        .await
        .problem(400, "invalid_parameter");
}

#[tokio::test]
async fn a_page_of_large_approvals_is_shorter_and_the_next_one_goes_on_behind_it() {
    let scene = Scene::set().await;
    let mut ask = merging();
    ask["tool_call"]["parameters"]["note"] = json!("x".repeat(200_000));
    let mut asked = Vec::new();
    for _ in 0..25 {
        scene.stage.clock.advance_millis(1);
        let answer = scene.stage.ask(&ask).await.expect(200);
        asked.insert(0, answer["approval"]["id"].as_str().unwrap().to_owned());
    }
    for (filter, credential) in [
        ("", &scene.auditor),
        ("&status=pending", &scene.ann),
        ("", &scene.stage.agent.token),
    ] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/approvals?limit=500{filter}{cursor}");
            let page = scene.stage.get(&path, credential).await;
            assert!(page.bytes.len() < 5 << 20, "{} bytes", page.bytes.len());
            let page = page.expect(200);
            let items = page["items"].as_array().unwrap().iter();
            found.extend(items.map(|item| item["id"].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(found, asked, "{filter}");
        assert!(!cursor.is_empty(), "all of them were on one page");
    }
}

#[tokio::test]
async fn another_tenants_approval_is_not_there() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let globex = scene
        .stage
        .post("/v1/tenants", &scene.stage.operator, &json!({"name": "globex"}))
        .await
        .expect(201);
    let tenant: model::TenantId = globex["id"].as_str().unwrap().parse().unwrap();
    let body = json!({"name": "gus", "role": "approver", "user": "gus"});
    let call = scene.stage.call("POST", "/v1/keys", &scene.stage.operator);
    let gus = call.tenant(tenant).json(&body).send().await.expect(201);
    let gus = gus["key"].as_str().unwrap();
    scene
        .stage
        .get(&format!("/v1/approvals/{id}"), gus)
        .await
        .problem(404, "not_found");
    scene.vote(gus, &id, "approve").await.problem(404, "not_found");
    assert_eq!(scene.status(&id).await, "pending");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_waits_is_told_as_soon_as_people_have_voted() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let path = format!("/v1/approvals/{id}?wait=30s");
    let begin = Instant::now();
    let (waited, ()) = tokio::join!(scene.stage.get(&path, &scene.stage.agent.token), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        scene.vote(&scene.ann, &id, "approve").await.expect(200);
    });
    assert_eq!(waited.expect(200)["status"], "approved");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    // What is decided already is told at once.
    assert_eq!(
        scene.stage.get(&path, &scene.auditor).await.expect(200)["status"],
        "approved"
    );
    let other = scene.asked().await;
    let short = format!("/v1/approvals/{other}?wait=1s");
    assert_eq!(
        scene.stage.get(&short, &scene.auditor).await.expect(200)["status"],
        "pending"
    );
    for odd in ["61s", "60", "1.5s", "-1s", "soon"] {
        let path = format!("/v1/approvals/{id}?wait={odd}");
        let refused = scene.stage.get(&path, &scene.auditor).await;
        assert_eq!(
            refused.problem(400, "invalid_parameter"),
            "`wait` is a whole number of seconds up to 60 with an `s` behind it, such as `30s`"
        );
    }
}

/// One more who waits as the agent.
fn waiter(stage: &Stage) -> Waiter {
    let agent = CallerId::Agent(stage.agent.id.parse().unwrap());
    let waiters = &stage.gateway.approval_waiters;
    waiters.register(FairnessKey::agents_of(stage.tenant), agent)
}

/// So many as the agent that it finds no place any more.
fn crowd(stage: &Stage) -> Vec<Waiter> {
    (0..100).map(|_| waiter(stage)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_finds_no_place_waits_all_the_same_and_sees_what_has_changed() {
    let scene = Scene::set().await;
    let (stage, id) = (&scene.stage, scene.asked().await);
    let _crowd = crowd(stage);
    let (begin, token) = (Instant::now(), &stage.agent.token);
    let short = format!("/v1/approvals/{id}?wait=1s");
    assert_eq!(stage.get(&short, token).await.expect(200)["status"], "pending");
    let waited = begin.elapsed();
    assert!(
        waited >= Duration::from_secs(1),
        "it was answered after {waited:?}"
    );
    let long = format!("/v1/approvals/{id}?wait=60s");
    let (waited, ()) = tokio::join!(stage.get(&long, token), async {
        scene.vote(&scene.ann, &id, "approve").await.expect(200);
        stage.gateway.approval_waiters.close();
    });
    assert_eq!(waited.expect(200)["status"], "approved");
}

#[tokio::test]
async fn whoever_waits_looks_again_when_something_became_of_an_approval_of_the_tenant_and_not_before() {
    let scene = Scene::set().await;
    let stage = &scene.stage;
    let other = stage.tenancy("globex").await;
    let id = scene.asked().await;
    let waiter = waiter(stage);
    let end = tokio::time::Instant::now() + Duration::from_mins(1);
    let is_woken = |notification: Notification<'_>| notification.until(end).now_or_never().is_some();

    let notification = waiter.notified();
    let theirs = stage.authorize(&other.token, &tenancy::merging()).await.json();
    assert_eq!(theirs["approval"]["status"], "pending");
    scene.asked().await;
    assert!(!is_woken(notification), "what others are asked");

    let notification = waiter.notified();
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
    assert!(is_woken(notification), "a vote");
    let notification = waiter.notified();
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
    assert!(is_woken(notification), "its use");
    let notification = waiter.notified();
    stage.clock.advance_millis(3_600_000);
    let gateway = &stage.gateway;
    gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    assert!(is_woken(notification), "its end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_refused_when_the_credential_is_deleted_meanwhile() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let path = format!("/v1/approvals/{id}?wait=30s");
    let stage = &scene.stage;
    let tokens = format!("/v1/agents/{}/tokens", stage.agent.id);
    let listed = stage.call("GET", &tokens, &stage.operator).tenant(stage.tenant);
    let listed = listed.send().await.expect(200);
    let token = listed["items"][0]["id"].as_str().unwrap();
    let whoami = stage.get("/v1/whoami", &scene.auditor).await.expect(200);
    let key = whoami["key"].as_str().unwrap();
    for (credential, itself) in [
        (&stage.agent.token, format!("{tokens}/{token}")),
        (&scene.auditor, format!("/v1/keys/{key}")),
    ] {
        let begin = Instant::now();
        let (waited, ()) = tokio::join!(stage.get(&path, credential), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let deleted = stage
                .call("DELETE", &itself, &stage.operator)
                .tenant(stage.tenant);
            deleted.send().await.expect(204);
        });
        waited.problem(401, "invalid_token");
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_without_a_place_is_refused_when_the_credential_is_deleted_meanwhile() {
    let scene = Scene::set().await;
    let (stage, id) = (&scene.stage, scene.asked().await);
    let _crowd = crowd(stage);
    let tokens = format!("/v1/agents/{}/tokens", stage.agent.id);
    let operate = |method, path: &str| stage.call(method, path, &stage.operator).tenant(stage.tenant);
    let listed = operate("GET", &tokens).send().await.expect(200);
    let itself = format!("{tokens}/{}", listed["items"][0]["id"].as_str().unwrap());
    let path = format!("/v1/approvals/{id}?wait=60s");
    let (waited, ()) = tokio::join!(stage.get(&path, &stage.agent.token), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        operate("DELETE", &itself).send().await.expect(204);
        stage.gateway.approval_waiters.close();
    });
    waited.problem(401, "invalid_token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_when_the_gateway_stops_is_told_how_it_stands() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let path = format!("/v1/approvals/{id}?wait=30s");
    let (begin, token) = (Instant::now(), &scene.stage.agent.token);
    let (waited, ()) = tokio::join!(scene.stage.get(&path, token), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        scene.stage.gateway.approval_waiters.close();
    });
    assert_eq!(waited.expect(200)["status"], "pending");
    let late = scene.stage.get(&path, token).await;
    assert_eq!(late.expect(200)["status"], "pending");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn parameters_are_kept_no_longer_than_the_approval_is_open() {
    let scene = Scene::set().await;
    let mut ask = merging();
    ask["tool_call"]["parameters"]["base_branch"] = json!("main");
    ask["tool_call"]["parameters"]["number"] = json!(987_654_321);
    let answer = scene.stage.ask(&ask).await.expect(200);
    let id: model::ApprovalId = answer["approval"]["id"].as_str().unwrap().parse().unwrap();
    let stored = async || {
        let approval = scene.stage.store.approval(scene.stage.tenant, id).await.unwrap();
        approval.unwrap().to_json().contains("987654321")
    };
    assert!(stored().await);
    let dora = key(&scene.stage, "dora", "approver").await;
    scene.vote(&dora, &id.to_string(), "reject").await.expect(200);
    assert!(!stored().await);
    let told = scene.stage.entries().await;
    assert!(told.iter().all(|entry| !entry.body.contains("987654321")));
}
