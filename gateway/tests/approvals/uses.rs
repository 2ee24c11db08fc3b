//! Using an approval: once, by whom it was given to, for what was approved, while it lasts.

use crate::stage::named;
use crate::support::hand::Hand;
use crate::support::{BEGINNING, tenancy, until};
use crate::{Scene, ask_as, merging, with};
use futures_util::future::join_all;
use gateway::signing::Keyring;
use ledger::{SignatureKind, SigningKey};
use model::Timestamp;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use store::faults::Fault;
use tokio::join;

#[tokio::test]
async fn what_people_approved_is_allowed_once() {
    let scene = Scene::set().await;
    let asked = scene.stage.ask(&merging()).await.expect(200);
    let id = asked["approval"]["id"].as_str().unwrap();
    assert_eq!(
        asked["approval"],
        json!({"id": id, "status": "pending", "quorum": 1, "expires_at": "2026-01-31T10:30:00.000Z"})
    );
    let shown = scene.shown(id).await;
    assert_eq!(shown["parameters"], json!({"base_branch": "main", "number": 42}));
    assert_eq!(shown["action_hash"], asked["action_hash"]);
    assert_eq!(shown["decision_id"], asked["decision_id"]);
    assert_eq!(shown["reason"], "A merge into main needs approval");

    let early = scene.retry(id).await;
    assert!(
        early
            .problem(409, "approval_not_usable")
            .contains("waits for people")
    );
    scene.vote(&scene.ann, id, "approve").await.expect(200);
    let allowed = scene.retry(id).await.expect(200);
    assert_eq!(
        (&allowed["decision"], &allowed["reason_code"], &allowed["reason"]),
        (
            &json!("allow"),
            &json!("approval_granted"),
            &json!("approved by `ann`")
        )
    );
    assert_eq!(allowed["approval"], json!({"id": id, "status": "spent"}));
    let again = scene.retry(id).await;
    assert!(again.problem(409, "approval_not_usable").contains("used before"));
    let shown = scene.shown(id).await;
    assert_eq!(
        (&shown["status"], &shown["spent_by"]),
        (&json!("spent"), &allowed["decision_id"])
    );
    assert_eq!(shown.get("parameters"), None);
    let decided = scene.entries("decision").await;
    assert_eq!(decided[0]["approval"]["id"], id);
    assert_eq!(decided[1]["approval"], json!({"id": id, "status": "spent"}));
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn the_answer_to_a_retry_can_be_had_again_under_its_request_id() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let retry = named(with(merging(), &id), "call-1");
    let first = scene.stage.ask(&retry).await;
    assert_eq!(first.expect(200)["decision"], "allow");
    assert_eq!(scene.stage.ask(&retry).await.bytes, first.bytes);
    let other = named(with(merging(), &id), "call-2");
    scene.stage.ask(&other).await.problem(409, "approval_not_usable");
}

#[tokio::test]
async fn whether_a_retry_was_answered_before_is_found_without_a_turn() {
    let scene = Scene::set().await;
    let asked = scene.stage.ask(&merging()).await.expect(200);
    let id = asked["approval"]["id"].as_str().unwrap();
    let turns = scene.stage.faults.turns();
    let early = named(with(merging(), id), "call-1");
    scene.stage.ask(&early).await.problem(409, "approval_not_usable");
    assert_eq!(scene.stage.faults.turns(), turns);
}

#[tokio::test]
async fn an_approval_covers_exactly_the_action_that_was_shown() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    for (pointer, value) in [
        ("/tool_call/parameters/number", json!(43)),
        ("/tool_call/resource", json!("repo:acme/gadgets#42")),
        ("/tool_call/parameters/base_branch", json!("heads/main")),
    ] {
        let mut other = with(merging(), &id);
        *other.pointer_mut(pointer).unwrap() = value;
        let reply = scene.stage.ask(&other).await;
        assert!(
            reply
                .problem(409, "approval_not_usable")
                .contains("another action"),
            "{pointer}"
        );
    }
    assert_eq!(scene.entries("approval_refused").await.len(), 3);
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn what_was_approved_for_one_user_is_not_done_for_another() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let mut for_nobody = with(merging(), &id);
    for_nobody.as_object_mut().unwrap().remove("user");
    let mut for_the_voter = with(merging(), &id);
    for_the_voter["user"]["id"] = json!("ann");
    for other in [for_the_voter, for_nobody] {
        let reply = scene.stage.ask(&other).await;
        assert!(reply.problem(409, "approval_not_usable").contains("another user"));
    }
    let refused = scene.entries("approval_refused").await;
    let why: Vec<_> = refused.iter().map(|body| &body["why"]).collect();
    assert_eq!(why, ["other_user", "other_user"]);
    assert_eq!(
        (&refused[0]["user"], refused[1].get("user")),
        (&json!("ann"), None)
    );
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

/// The ask with this trust of the call and of its parameters.
fn from(trust: &str, sources: &Value) -> Value {
    let mut ask = merging();
    ask["context"] = json!({"source_trust": trust, "sources": sources});
    ask
}

#[tokio::test]
async fn what_comes_from_somewhere_worse_than_people_were_shown_is_asked_anew() {
    let scene = Scene::set().await;
    let (ours, customer) = ("trusted_internal_unsigned", "semi_trusted_customer");
    // By default the call counts as its worst parameter, whichever that is.
    for worse in [
        from(ours, &json!({"/base_branch": customer})),
        from(customer, &json!({})),
    ] {
        let id = scene
            .approved_as(&from(ours, &json!({"/number": customer})))
            .await;
        let anew = scene.stage.ask(&with(worse.clone(), &id)).await.expect(200);
        assert_eq!(anew["decision"], "require_approval", "{worse}");
    }
    scene.settle(json!({"sources": "parameter"})).await;
    for (shown, worse) in [
        (from(ours, &json!({})), from(customer, &json!({}))),
        (
            from(ours, &json!({})),
            from(ours, &json!({"/number": "malicious_suspected"})),
        ),
        (
            from(ours, &json!({"/number": customer})),
            from(ours, &json!({"": customer})),
        ),
        // What is not named any more has the level of the call.
        (
            from(customer, &json!({"/number": ours})),
            from(customer, &json!({})),
        ),
    ] {
        let id = scene.approved_as(&shown).await;
        let anew = scene.stage.ask(&with(worse.clone(), &id)).await.expect(200);
        assert_eq!(anew["decision"], "require_approval", "{worse}");
        let other = anew["approval"]["id"].as_str().unwrap();
        assert_ne!(other, id);
        assert_eq!(scene.status(&id).await, "approved");
        scene.vote(&scene.ann, other, "approve").await.expect(200);
        for (ask, approval) in [(worse, other), (shown, id.as_str())] {
            let allowed = scene.stage.ask(&with(ask, approval)).await.expect(200);
            assert_eq!(allowed["reason_code"], "approval_granted", "{allowed}");
        }
    }
    let id = scene.approved_as(&from(customer, &json!({}))).await;
    let better = from(ours, &json!({"/number": ours}));
    let allowed = scene.stage.ask(&with(better, &id)).await.expect(200);
    assert_eq!(allowed["reason_code"], "approval_granted");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_a_run_has_seen_since_people_were_asked_has_them_asked_anew() {
    let scene = Scene::set().await;
    scene.settle(json!({"run_taint": "approve"})).await;
    let within = |run: &str| {
        let mut ask = merging();
        ask["trace"] = json!({"run_id": run});
        ask
    };
    let open = [
        scene.approved_as(&within("run-1")).await,
        scene.approved_as(&merging()).await,
    ];
    let seen = json!({"source_trust": "malicious_suspected"});
    let token = &scene.stage.agent.token;
    let reply = scene.stage.post("/v1/runs/run-1/observations", token, &seen);
    reply.await.expect(201);
    for id in &open {
        let anew = scene.stage.ask(&with(within("run-1"), id)).await.expect(200);
        assert_eq!(anew["decision"], "require_approval", "{anew}");
        let other = anew["approval"]["id"].as_str().unwrap();
        assert_eq!(scene.shown(other).await["run_worst"], "malicious_suspected");
        scene.vote(&scene.ann, other, "approve").await.expect(200);
        let allowed = scene.stage.ask(&with(within("run-1"), other)).await.expect(200);
        assert_eq!(allowed["reason_code"], "approval_granted");
    }
    // A run that has seen nothing worse goes on with what people approved before.
    for id in &open {
        let allowed = scene.stage.ask(&with(within("run-2"), id)).await.expect(200);
        assert_eq!(allowed["reason_code"], "approval_granted", "{allowed}");
    }
    scene.stage.assert_sound().await;
}

/// Registers the merge anew, with this member changed.
async fn register(scene: &Scene, member: &str, value: Value) {
    let path = "/v1/tools/github";
    let mut tool = scene.stage.admin("GET", path, &json!({})).await.expect(200);
    let mut actions = tool["actions"].as_array_mut().unwrap().iter_mut();
    let merge = actions.find(|action| action["name"] == "merge_pull_request");
    merge.unwrap()[member] = value;
    let body = json!({"actions": tool["actions"]});
    scene.stage.admin("PUT", path, &body).await.expect(200);
}

/// Fails unless this ask with this approval has people asked anew, and leaves it unused. The new approval, which is approved.
async fn asked_anew(scene: &Scene, ask: &Value, id: &str) -> String {
    let anew = scene.stage.ask(&with(ask.clone(), id)).await.expect(200);
    assert_eq!(anew["decision"], "require_approval", "{anew}");
    let other = anew["approval"]["id"].as_str().unwrap().to_owned();
    assert_ne!(other, id);
    assert_eq!(scene.status(id).await, "approved");
    scene.vote(&scene.ann, &other, "approve").await.expect(200);
    other
}

#[tokio::test]
async fn a_risk_that_is_higher_than_people_were_shown_has_them_asked_anew() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    assert_eq!(scene.shown(&id).await["risk_level"], "high");
    register(&scene, "risk", json!("critical")).await;
    let other = asked_anew(&scene, &merging(), &id).await;
    assert_eq!(scene.shown(&other).await["risk_level"], "critical");
    let allowed = scene.retry(&other).await.expect(200);
    assert_eq!(allowed["reason_code"], "approval_granted", "{allowed}");
    // A lower one is covered.
    register(&scene, "risk", json!("medium")).await;
    let allowed = scene.retry(&id).await.expect(200);
    assert_eq!(allowed["reason_code"], "approval_granted", "{allowed}");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_definition_that_is_another_one_than_when_people_were_asked_has_them_asked_anew() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    register(&scene, "description", json!("Merges and deploys")).await;
    let other = asked_anew(&scene, &merging(), &id).await;
    let [before, after] = [scene.shown(&id).await, scene.shown(&other).await];
    assert_ne!(before["definition"], after["definition"]);
    let allowed = scene.retry(&other).await.expect(200);
    assert_eq!(allowed["reason_code"], "approval_granted", "{allowed}");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_was_approved_before_a_changed_definition_was_accepted_is_asked_anew() {
    let scene = Scene::set().await;
    let import = async |description: &str, status: u16| {
        let schema = json!({"type": "object", "properties": {"amount": {"type": "integer"}}});
        let definition = json!({"name": "send", "description": description, "inputSchema": schema});
        let body = json!({"tools": [definition]});
        let reply = scene.stage.admin("POST", "/v1/tools/bank/import", &body).await;
        reply.expect(status);
        json!(canon::of(&definition).unwrap().digest().to_string())
    };
    let cents = import("Sends an amount in cents", 201).await;
    let ask = json!({
        "tool_call": {"tool": "bank", "action": "send", "parameters": {"amount": 500_000}},
        "context": {"source_trust": "semi_trusted_customer"},
    });
    let id = scene.approved_as(&ask).await;
    assert_eq!(scene.shown(&id).await["definition"], cents);
    let euros = import("Sends an amount in whole euros", 200).await;
    let held = scene.stage.ask(&with(ask.clone(), &id)).await.expect(200);
    assert_eq!(held["reason_code"], "tool_definition_changed");
    let accept = "/v1/tools/bank/actions/send/accept";
    let body = json!({"digest": euros});
    scene.stage.admin("POST", accept, &body).await.expect(200);
    let other = asked_anew(&scene, &ask, &id).await;
    assert_eq!(scene.shown(&other).await["definition"], euros);
    let allowed = scene.stage.ask(&with(ask, &other)).await.expect(200);
    assert_eq!(allowed["reason_code"], "approval_granted", "{allowed}");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn another_agent_cannot_use_it_and_the_attempt_is_recorded() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let thief = scene.stage.hire(json!({"name": "thief", "tools": "all"})).await;
    let reply = ask_as(&scene, &thief, &with(merging(), &id)).await;
    reply.problem(409, "approval_not_usable");
    let refused = scene.entries("approval_refused").await;
    assert_eq!(
        (&refused[0]["agent"], &refused[0]["approval"], &refused[0]["why"]),
        (&json!(thief.id), &json!(id), &json!("foreign"))
    );
    assert_eq!(scene.status(&id).await, "approved");
    let unknown = "apr_00000000000000000000000000";
    scene.retry(unknown).await.problem(409, "approval_not_usable");
    scene.retry("nonsense").await.problem(409, "approval_not_usable");
}

#[tokio::test]
async fn what_was_rejected_is_denied_and_recorded() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    scene.vote(&scene.bob, &id, "reject").await.expect(200);
    let denied = scene.retry(&id).await.expect(200);
    assert_eq!(
        (&denied["decision"], &denied["reason_code"], &denied["reason"]),
        (
            &json!("deny"),
            &json!("approval_rejected"),
            &json!("`bob` rejected it: a test")
        )
    );
    assert_eq!(scene.entries("decision").await.len(), 2);
}

#[tokio::test]
async fn an_approval_that_came_too_late_is_denied_and_recorded() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    scene.stage.clock.advance_millis(3_600_000);
    let denied = scene.retry(&id).await.expect(200);
    assert_eq!(
        (&denied["decision"], &denied["reason_code"]),
        (&json!("deny"), &json!("approval_expired"))
    );
    // Whether the job has been there or not.
    assert_eq!(scene.status(&id).await, "expired");
    scene
        .vote(&scene.bob, &id, "approve")
        .await
        .problem(409, "conflict");
    let gateway = &scene.stage.gateway;
    gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    assert_eq!(scene.entries("approval_expired").await.len(), 1);
    assert_eq!(scene.status(&id).await, "expired");
    scene.stage.assert_sound().await;
}

/// The job writes down those of all tenants in one commit.
#[tokio::test]
async fn an_approval_that_cannot_be_read_keeps_those_of_no_other_tenant_from_expiring() {
    let scene = Scene::set().await;
    let stage = &scene.stage;
    scene.asked().await;
    stage.clock.advance_millis(1);
    let other = stage.tenancy("globex").await;
    let theirs = stage.authorize(&other.token, &tenancy::merging()).await;
    assert_eq!(theirs.expect(200)["approval"]["status"], "pending");
    let mut hand = Hand::on(&stage.home, stage.tenant).await;
    hand.run("UPDATE approvals SET value = '!' || value WHERE MINE")
        .await;
    stage.clock.advance_millis(3_600_000);
    let gateway = &stage.gateway;
    gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    let overdue = async || {
        let overdue = stage.store.overdue_approvals(&[], gateway.clock.now(), 10);
        let overdue = overdue.await.unwrap().into_iter();
        overdue.map(|(tenant, _)| tenant).collect::<Vec<_>>()
    };
    assert_eq!(overdue().await, [stage.tenant]);
    hand.run("UPDATE approvals SET value = substr(value, 2) WHERE MINE")
        .await;
    stage.clock.advance_millis(600_000);
    gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    assert_eq!(overdue().await, []);
    assert_eq!(scene.entries("approval_expired").await.len(), 1);
    stage.assert_sound().await;
}

/// So a clock that was ahead for a moment ends nothing for good.
#[tokio::test]
async fn what_has_expired_only_by_a_clock_that_was_ahead_stays_open() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let gateway = &scene.stage.gateway;
    scene.stage.clock.advance_millis(3_600_000);
    gateway
        .expire_approvals(BEGINNING.plus_millis(3_599_999))
        .await
        .unwrap();
    // Nor does the job, which comes by every second.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    scene.stage.clock.advance_millis(-3_600_000);
    // Nor does it end what has not expired by the clock.
    gateway
        .expire_approvals(BEGINNING.plus_millis(3_600_000))
        .await
        .unwrap();
    assert_eq!(scene.entries("approval_expired").await.len(), 0);
    assert_eq!(scene.status(&id).await, "approved");
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
    scene.stage.assert_sound().await;
}

/// As where the first start was with a clock that was ahead, or the key was replaced by a gateway whose clock is.
#[tokio::test]
async fn approvals_go_by_the_clock_though_the_signing_key_begins_later() {
    const AHEAD: i64 = 2 * 3_600_000;
    let scene = Scene::set().await;
    let (gateway, clock) = (&scene.stage.gateway, &scene.stage.clock);
    clock.advance_millis(AHEAD);
    let key = SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32]).unwrap();
    gateway.publish_keys(&Keyring::of(key)).await.unwrap();
    clock.advance_millis(-AHEAD);

    let id = scene.approved().await;
    assert_eq!(scene.status(&id).await, "approved");
    let allowed = scene.retry(&id).await.expect(200);
    assert_eq!(
        (&allowed["decision"], &allowed["reason_code"]),
        (&json!("allow"), &json!("approval_granted"))
    );
    let later = scene.approved().await;
    clock.advance_millis(3_600_000);
    let denied = scene.retry(&later).await.expect(200);
    assert_eq!(denied["reason_code"], "approval_expired");
    // What is signed is not from before the key all the same.
    let entries = scene.stage.entries().await;
    assert_eq!(entries.last().unwrap().at, BEGINNING.plus_millis(AHEAD));
    scene.stage.assert_sound().await;
}

/// More than are written down at once.
#[tokio::test]
async fn approvals_expire_however_many_there_are() {
    let scene = Scene::set().await;
    let asks: Vec<_> = (0..450).map(|_| scene.asked()).collect();
    join_all(asks).await;
    scene.stage.clock.advance_millis(3_600_000);
    let gateway = &scene.stage.gateway;
    let patience = Instant::now() + Duration::from_mins(1);
    // The job may have begun with them, and then it goes on with them.
    while scene.entries("approval_expired").await.len() < 450 {
        assert!(Instant::now() < patience);
        gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    }
    scene.stage.assert_sound().await;
}

/// The fourth commit is one that waits, and theirs was the third one.
#[tokio::test]
async fn a_tenant_whose_many_approvals_have_expired_keeps_those_of_no_other_one_from_it() {
    let scene = Scene::set().await;
    let stage = &scene.stage;
    join_all((0..150).map(|_| scene.asked())).await;
    stage.clock.advance_millis(1);
    let other = stage.tenancy("globex").await;
    let theirs = stage.authorize(&other.token, &tenancy::merging()).await;
    assert_eq!(theirs.expect(200)["approval"]["status"], "pending");
    stage.clock.advance_millis(3_600_000);
    let (gateway, faults) = (&stage.gateway, &stage.faults);
    faults.plan([Fault::Pass, Fault::Pass, Fault::Pass, Fault::Hold]);
    let looking = async {
        until(|| faults.held() == 1).await;
        let theirs = stage.store.entries(other.id, 1, 100).await.unwrap();
        let own = scene.entries("approval_expired").await.len();
        faults.let_go();
        let theirs = theirs.iter().filter(|entry| entry.kind == "approval_expired");
        assert_eq!((theirs.count(), own), (1, 64));
    };
    let (ended, ()) = join!(gateway.expire_approvals(gateway.clock.now()), looking);
    ended.unwrap();
    assert_eq!(scene.entries("approval_expired").await.len(), 150);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_tenant_says_how_long_approvals_last() {
    let scene = Scene::set().await;
    let path = format!("/v1/tenants/{}", scene.stage.tenant);
    let set = async |seconds: u64| {
        let body = json!({"settings": {"approvals": {"expire_after_seconds": seconds}}});
        let call = scene.stage.call("PATCH", &path, &scene.stage.operator);
        call.json(&body).send().await
    };
    set(120).await.expect(200);
    let id = scene.asked().await;
    let expires_at = scene.shown(&id).await["expires_at"].as_str().unwrap().to_owned();
    let expires_at: Timestamp = expires_at.parse().unwrap();
    assert_eq!(expires_at.millis() - crate::support::BEGINNING.millis(), 120_000);
    for odd in [0, 59, 604_801] {
        set(odd).await.problem(400, "invalid_field");
    }
}

#[tokio::test]
async fn policy_is_asked_again_when_an_approval_is_used() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let forbid =
        "@id(\"none\") forbid (principal, action == Action::\"github/merge_pull_request\", resource);";
    let body = json!({"name": "freeze", "cedar": forbid});
    scene.stage.admin("POST", "/v1/policies", &body).await.expect(201);
    let denied = scene.retry(&id).await.expect(200);
    assert_eq!(
        (&denied["decision"], &denied["reason_code"]),
        (&json!("deny"), &json!("policy_forbids"))
    );
    assert_eq!(scene.status(&id).await, "approved");
    scene
        .stage
        .call("DELETE", "/v1/policies/freeze", &scene.stage.operator)
        .tenant(scene.stage.tenant)
        .send()
        .await
        .expect(204);
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn terms_that_became_stricter_ask_people_again() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let cedar = "@id(\"two\") @decision(\"require_approval\") @quorum(\"2\")
                 permit (principal, action == Action::\"github/merge_pull_request\", resource);";
    let body = json!({"name": "two", "cedar": cedar});
    scene.stage.admin("POST", "/v1/policies", &body).await.expect(201);
    let answer = scene.retry(&id).await.expect(200);
    assert_eq!(answer["decision"], "require_approval");
    assert_ne!(answer["approval"]["id"], json!(id));
    assert_eq!(answer["approval"]["quorum"], 2);
    assert_eq!(scene.status(&id).await, "approved");
}

#[tokio::test]
async fn a_frozen_agent_cannot_use_what_was_approved_before() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    scene
        .stage
        .set_standing(&scene.stage.agent, "freeze")
        .await
        .expect(200);
    assert_eq!(scene.retry(&id).await.expect(200)["reason_code"], "agent_frozen");
    scene
        .stage
        .set_standing(&scene.stage.agent, "unfreeze")
        .await
        .expect(200);
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn a_dry_run_tells_what_would_happen_and_spends_nothing() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let mut dry = with(merging(), &id);
    dry["mode"] = json!("dry_run");
    for _ in 0..2 {
        let answer = scene.stage.ask(&dry).await.expect(200);
        assert_eq!(
            (&answer["decision"], &answer["reason_code"]),
            (&json!("allow"), &json!("approval_granted"))
        );
        assert_eq!(answer["approval"], json!({"id": id, "status": "approved"}));
        assert_eq!(scene.status(&id).await, "approved");
    }
    let mut asking = merging();
    asking["mode"] = json!("dry_run");
    let answer = scene.stage.ask(&asking).await.expect(200);
    assert_eq!(answer["decision"], "require_approval");
    assert_eq!(
        answer["approval"],
        json!({"quorum": 1}),
        "nothing was asked of anybody"
    );
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn an_approval_outlives_a_restart() {
    let mut scene = Scene::set().await;
    let id = scene.approved().await;
    scene.stage = scene.stage.restart().await;
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
    scene.stage = scene.stage.restart().await;
    scene.retry(&id).await.problem(409, "approval_not_usable");
}
