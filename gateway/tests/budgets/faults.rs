//! Commits that are lost, or kept and reported lost: budgets move with their entry or not at all.

use crate::support::{tenancy, until};
use crate::{Scene, costing, tokens};
use futures_util::future::join_all;
use serde_json::json;
use store::faults::{At, Fault};

#[tokio::test]
async fn what_was_not_written_moved_nothing_and_what_was_moved_once() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    for (fault, held) in [
        (Fault::Lose, 0),
        (Fault::LoseUnknown, 0),
        (Fault::KeepButReportUnknown, 10),
        (Fault::HeadMoved, 20),
    ] {
        let name = format!("call-{fault:?}");
        scene.stage.faults.plan([fault]);
        let ask = crate::stage::named(costing(10), &name);
        let first = scene.stage.ask(&ask).await;
        if fault == Fault::HeadMoved {
            first.expect(200);
        } else {
            first.problem(503, "ledger_unavailable");
        }
        assert_eq!(scene.standing().await[1], held, "{fault:?}");
        if held == 10 {
            // Whoever asks again has the answer that was recorded.
            assert_eq!(scene.stage.ask(&ask).await.expect(200)["decision"], "allow");
            assert_eq!(scene.standing().await[1], held);
        }
    }
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_move_that_nobody_was_told_of_is_not_made_again_under_its_key() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let usage = async || {
        let call = scene.stage.call("POST", "/v1/usage", &scene.stage.agent.token);
        call.header("idempotency-key", "k").json(&tokens(10)).send().await
    };
    scene
        .stage
        .faults
        .plan([Fault::LoseUnknown, Fault::KeepButReportUnknown]);
    usage().await.problem(503, "ledger_unavailable");
    assert_eq!(scene.standing().await[2], 0);
    usage().await.problem(503, "ledger_unavailable");
    assert_eq!(scene.standing().await[2], 10);
    usage().await.expect(201);
    assert_eq!(scene.standing().await[2], 10);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn balances_are_what_the_ledger_comes_to_and_one_that_is_not_is_named() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 100), (json!({"team": "crew"}), 50)])
        .await;
    let answer = scene.stage.ask(&costing(20)).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    let outcome =
        json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": tokens(15)});
    scene.post(&path, &outcome).await.expect(201);
    scene.reserve(10).await;
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!((found.budgets, found.mismatches), (2, Vec::<String>::new()));
    // Somebody with the database gives the tenant more.
    let mut hand = crate::support::hand::Hand::on(&scene.stage.home, scene.stage.tenant).await;
    hand.run(r#"UPDATE budgets SET value = replace(value, '"allocated":100', '"allocated":999') WHERE MINE"#)
        .await;
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    let [mismatch] = &found.mismatches[..] else {
        panic!("{:?}", found.mismatches);
    };
    assert!(
        mismatch.contains("allocated 100, reserved 10, used 15, uncovered 0"),
        "{mismatch}"
    );
}

/// What was read is what it was before the last entry, and is not read again for that: with many budgets and a steady
/// load there would always be another one.
#[tokio::test]
async fn balances_are_verified_while_agents_move_them() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 100), (json!({"team": "crew"}), 50)])
        .await;
    let faults = &scene.stage.faults;
    let before = faults.budgets_listed();
    faults.hold_at(At::Budgets, true);
    let moving = async {
        until(|| faults.held_at(At::Budgets) == 1).await;
        scene.post("/v1/usage", &tokens(1)).await.expect(201);
        faults.hold_at(At::Budgets, false);
    };
    let (found, ()) = tokio::join!(gateway::cli::budgets::verify(&**faults), moving);
    let found = found.unwrap();
    assert_eq!((found.budgets, found.mismatches), (2, Vec::<String>::new()));
    assert_eq!(faults.budgets_listed() - before, 1);
}

/// Has the gateway forget what it remembers, so that it reads what somebody has written.
async fn forget(scene: &Scene) {
    scene.stage.faults.plan([Fault::Lose]);
    let lost = scene.post("/v1/usage", &tokens(1)).await;
    lost.problem(503, "ledger_unavailable");
}

/// A batch reads the budgets of all its tenants at once.
#[tokio::test]
async fn a_budget_that_cannot_be_read_costs_its_tenant_what_depends_on_it_and_nobody_else_anything() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let (stage, faults) = (&scene.stage, &scene.stage.faults);
    let other = stage.tenancy("globex").await;
    forget(&scene).await;
    let mut hand = crate::support::hand::Hand::on(&stage.home, stage.tenant).await;
    hand.run("UPDATE budgets SET value = '!' || value WHERE MINE")
        .await;
    let theirs = tenancy::reading();
    let ask_for_them = || stage.post("/v1/authorize", &other.token, &theirs);
    // What was lost before has left the gateway in trouble, which it is out of with this.
    ask_for_them().await.expect(200);
    // The first commit is held, so the rest gather in the second.
    faults.plan([Fault::Hold]);
    let costs = costing(10);
    let rest = async {
        until(|| faults.held() == 1).await;
        let others = join_all((0..3).map(|_| ask_for_them()));
        tokio::join!(stage.ask(&costs), others)
    };
    let letting_go = async {
        until(|| stage.gateway.sequencer.waiting() == 4).await;
        faults.let_go();
    };
    let (first, (unread, others), ()) = tokio::join!(ask_for_them(), rest, letting_go);
    assert_eq!(first.expect(200)["decision"], "allow");
    assert_eq!(unread.expect(503)["code"], "ledger_unavailable");
    for answer in others {
        assert_eq!(answer.expect(200)["decision"], "allow");
    }
    assert_eq!(stage.ask(&costs).await.expect(503)["code"], "ledger_unavailable");
    assert!(stage.gateway.sequencer.is_healthy(), "the ledger can be written");
    hand.run("UPDATE budgets SET value = substr(value, 2) WHERE MINE")
        .await;
    assert_eq!(stage.ask(&costs).await.expect(200)["decision"], "allow");
    assert_eq!(scene.standing().await, [90, 10, 0, 0, 0]);
    stage.assert_sound().await;
}

/// The only mismatch there is.
async fn mismatch(scene: &Scene) -> String {
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    let [mismatch] = &found.mismatches[..] else {
        panic!("{:?}", found.mismatches);
    };
    mismatch.clone()
}

#[tokio::test]
async fn terms_that_are_not_those_of_the_ledger_are_named() {
    let scene = Scene::set().await;
    let terms = json!({"scope": {"team": "crew"}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 50, "period": "day"});
    let id = scene.budget(&terms).await;
    scene.change(&id, "freeze", &json!({})).await.expect(200);
    let mut hand = crate::support::hand::Hand::on(&scene.stage.home, scene.stage.tenant).await;
    let put = |from: &str, to: &str| {
        format!("UPDATE budgets SET value = replace(value, '\"{from}', '\"{to}') WHERE MINE")
    };
    for (told, other) in [
        (r#"overdraft_limit":50"#, r#"overdraft_limit":500"#),
        (r#"overage":"allow_with_overdraft""#, r#"overage":"reject""#),
        (r#"period":"day""#, r#"period":"hour""#),
        (r#"scope":{"team":"crew"}"#, r#"scope":{}"#),
        (r#"unit":"TOKENS""#, r#"unit":"CALLS""#),
        (r#"status":"frozen""#, r#"status":"active""#),
    ] {
        hand.run(&put(told, other)).await;
        let named = told.replacen("\":", " ", 1);
        let mismatch = mismatch(&scene).await;
        assert!(mismatch.contains("stored terms"), "{mismatch}");
        assert!(
            mismatch.contains(&id) && mismatch.ends_with(&named),
            "{mismatch}: {named}"
        );
        hand.run(&put(other, told)).await;
    }
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(found.mismatches, Vec::<String>::new());
    // The gateway tells what it finds, and that does not follow from what was told before.
    hand.run(&put(r#"overdraft_limit":50"#, r#"overdraft_limit":500"#))
        .await;
    forget(&scene).await;
    scene.change(&id, "unfreeze", &json!({})).await.expect(200);
    let mismatch = mismatch(&scene).await;
    assert!(mismatch.contains("tells other terms"), "{mismatch}");
    assert!(mismatch.ends_with("overdraft_limit 50"), "{mismatch}");
}

/// The gateway looks for budgets by their columns, and not by what they say of themselves.
#[tokio::test]
async fn columns_that_are_not_what_the_ledger_comes_to_are_named() {
    let scene = Scene::set().await;
    let body = json!({"scope": {"team": "crew"}, "unit": "TOKENS", "allocated": 100});
    let id = scene.budget(&body).await;
    let mut hand = crate::support::hand::Hand::on(&scene.stage.home, scene.stage.tenant).await;
    for (other, again, told) in [
        (
            "scope = '{}'",
            r#"scope = '{"team":"crew"}'"#,
            r#"scope {"team":"crew"}"#,
        ),
        ("unit = 'CALLS'", "unit = 'TOKENS'", "unit TOKENS"),
        ("is_open = NOT is_open", "is_open = NOT is_open", "is_open true"),
    ] {
        hand.run(&format!("UPDATE budgets SET {other} WHERE MINE")).await;
        let mismatch = mismatch(&scene).await;
        assert!(
            mismatch.contains(&format!("the columns of {id} are not")),
            "{mismatch}"
        );
        assert!(mismatch.ends_with(told), "{mismatch}: {told}");
        hand.run(&format!("UPDATE budgets SET {again} WHERE MINE")).await;
    }
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(found.mismatches, Vec::<String>::new());
}

#[tokio::test]
async fn holds_that_are_not_those_of_the_ledger_are_named() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 1_000)]).await;
    let answer = scene.stage.ask(&costing(70)).await.expect(200);
    let held = answer["reservation"]["id"].as_str().unwrap();
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(found.mismatches, Vec::<String>::new());
    let named = async |what: &str| {
        let mismatch = mismatch(&scene).await;
        let told = format!("what is stored of {held} is not what the entries come to: {what} held");
        assert!(mismatch.ends_with(&told), "{mismatch}: {told}");
    };
    let mut hand = crate::support::hand::Hand::on(&scene.stage.home, scene.stage.tenant).await;
    // On SQLite the amount stands behind the unit, on PostgreSQL behind its name.
    let put = |from: i64, to: i64| {
        format!(
            r#"UPDATE reservations SET value =
               replace(replace(value, '"TOKENS",{from},', '"TOKENS",{to},'), '"amount":{from},', '"amount":{to},') WHERE MINE"#
        )
    };
    hand.run(&put(70, 7)).await;
    named("70").await;
    hand.run(&put(7, 70)).await;
    hand.run("UPDATE reservations SET status = 'released' WHERE MINE")
        .await;
    named("70").await;
    hand.run("UPDATE reservations SET status = 'active' WHERE MINE")
        .await;
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(found.mismatches, Vec::<String>::new());

    scene.settle(held, "release", &json!({})).await.expect(200);
    hand.run("UPDATE reservations SET status = 'active' WHERE MINE")
        .await;
    named("0").await;
    hand.run("DELETE FROM reservations WHERE MINE").await;
    let other = scene.reserve(30).await;
    hand.run("DELETE FROM reservations WHERE MINE").await;
    let mismatch = mismatch(&scene).await;
    assert!(
        mismatch.contains(&other) && mismatch.ends_with("30 held"),
        "{mismatch}"
    );
}

#[tokio::test]
async fn what_is_not_settled_as_it_was_held_is_named() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 1_000)]).await;
    scene.reserve(500).await;
    let held = scene.reserve(70).await;
    // On SQLite the amount stands behind the unit, on PostgreSQL behind its name.
    let mut hand = crate::support::hand::Hand::on(&scene.stage.home, scene.stage.tenant).await;
    hand.run(
        r#"UPDATE reservations SET value =
           replace(replace(value, '"TOKENS",70,', '"TOKENS",400,'), '"amount":70,', '"amount":400,') WHERE MINE"#,
    )
    .await;
    forget(&scene).await;
    scene.settle(&held, "release", &json!({})).await.expect(200);
    assert_eq!(scene.standing().await, [830, 170, 0, 0, 0]);
    let mismatch = mismatch(&scene).await;
    assert!(
        mismatch.contains(&format!("settles {held} otherwise than it was held in")),
        "{mismatch}"
    );
}

#[tokio::test]
async fn erased_decisions_and_outcomes_hide_nothing_but_themselves() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let answer = scene.stage.ask(&costing(10)).await.expect(200);
    scene.stage.ask(&costing(10)).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    let outcome = json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": tokens(7)});
    scene.post(&path, &outcome).await.expect(201);
    scene.post("/v1/usage", &tokens(3)).await.expect(201);
    let all = json!({"agent": scene.stage.agent.id});
    scene
        .stage
        .admin("POST", "/v1/ledger/erase", &all)
        .await
        .expect(200);

    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(found.mismatches, Vec::<String>::new());
    let [uncounted] = &found.uncounted[..] else {
        panic!("{:?}", found.uncounted);
    };
    assert!(uncounted.contains("is counted from entry"), "{uncounted}");

    let mut hand = crate::support::hand::Hand::on(&scene.stage.home, scene.stage.tenant).await;
    hand.run(r#"UPDATE budgets SET value = replace(value, '"used":10', '"used":9') WHERE MINE"#)
        .await;
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    let [mismatch] = &found.mismatches[..] else {
        panic!("{:?}", found.mismatches);
    };
    assert!(
        mismatch.contains("allocated 100, reserved 10, used 10, uncovered 0"),
        "{mismatch}"
    );
}

#[tokio::test]
async fn a_budget_that_is_not_counted_to_the_end_is_not_called_right_and_never_has_less_used() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 1_000)]).await;
    scene.post("/v1/usage", &tokens(900)).await.expect(201);
    let sum = async || {
        let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
        assert_eq!(found.mismatches, Vec::<String>::new());
        found.sum()
    };
    assert_eq!(sum().await, "1 budgets are what their ledgers come to");
    let ask = crate::stage::changing();
    assert_eq!(scene.stage.ask(&ask).await.expect(200)["decision"], "allow");
    let all = json!({"agent": scene.stage.agent.id});
    let erased = scene.stage.admin("POST", "/v1/ledger/erase", &all).await;
    assert_eq!(erased.expect(200)["erased"], 1);
    assert_eq!(
        sum().await,
        "0 of 1 budgets are what their ledgers come to; 1 could not be counted to the end"
    );
    let mut hand = crate::support::hand::Hand::on(&scene.stage.home, scene.stage.tenant).await;
    hand.run(r#"UPDATE budgets SET value = replace(value, '"used":900', '"used":0') WHERE MINE"#)
        .await;
    let mismatch = mismatch(&scene).await;
    assert!(
        mismatch.contains("allocated 1000, reserved 0, used 900, uncovered 0"),
        "{mismatch}"
    );
}

#[tokio::test]
async fn what_an_agent_says_of_itself_is_no_reservation() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let mut ask = crate::stage::changing();
    ask["context"]["attributes"] = json!({"reservation": {}, "settled": {}});
    assert_eq!(scene.stage.ask(&ask).await.expect(200)["decision"], "allow");
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!((found.mismatches, found.uncounted), (vec![], vec![]));
}
