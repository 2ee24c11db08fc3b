//! Who may vote, what counts, and what is recorded of it.

use crate::{Scene, key};
use serde_json::json;

#[tokio::test]
async fn a_vote_is_an_entry_that_says_whose_it_is() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let shown = scene.vote(&scene.ann, &id, "approve").await.expect(200);
    assert_eq!(shown["status"], "approved");
    assert_eq!(
        shown["votes"],
        json!([{"user": "ann", "teams": ["leads"], "approves": true, "reason": "a test",
                "at": "2026-01-31T09:30:00.000Z"}])
    );
    scene.vote(&scene.bob, &id, "reject").await.expect(200);
    let approved = scene.entries("approval_approved").await.remove(0);
    assert_eq!(
        (
            &approved["approval"],
            &approved["by"]["user"],
            &approved["status"],
            &approved["reason"]
        ),
        (&json!(id), &json!("ann"), &json!("approved"), &json!("a test"))
    );
    assert_eq!(approved["decision_id"], shown["decision_id"]);
    assert_eq!(approved.get("action_hash"), None, "the decision has it");
    assert_eq!(scene.entries("approval_rejected").await[0]["by"]["user"], "bob");
}

#[tokio::test]
async fn only_people_in_the_group_vote() {
    let scene = Scene::with_terms("@approvers(\"leads\")").await;
    let id = scene.asked().await;
    assert_eq!(scene.shown(&id).await["group"], "leads");
    for verb in ["approve", "reject"] {
        let reply = scene.vote(&scene.carl, &id, verb).await;
        assert!(
            reply
                .problem(403, "not_an_approver")
                .contains("not in the team `leads`")
        );
    }
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
}

#[tokio::test]
async fn a_quorum_counts_people_and_not_keys() {
    let scene = Scene::with_terms("@quorum(\"2\")").await;
    let id = scene.asked().await;
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
    let second_key = key(&scene.stage, "ann", "approver").await;
    let reply = scene.vote(&second_key, &id, "approve").await;
    assert!(reply.problem(409, "conflict").contains("everybody counts once"));
    scene.retry(&id).await.problem(409, "approval_not_usable");
    scene.vote(&scene.bob, &id, "approve").await.expect(200);
    assert_eq!(
        scene.retry(&id).await.expect(200)["reason"],
        "approved by `ann`, `bob`"
    );
}

#[tokio::test]
async fn nobody_votes_on_what_is_done_for_them() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let own = key(&scene.stage, "ursula", "approver").await;
    let reply = scene.vote(&own, &id, "approve").await;
    assert!(
        reply
            .problem(403, "not_an_approver")
            .contains("acts for `ursula`")
    );
}

#[tokio::test]
async fn a_policy_keeps_the_owner_and_the_team_from_voting() {
    let scene = Scene::with_terms("@exclude_owner").await;
    let path = format!("/v1/agents/{}", scene.stage.agent.id);
    let body = json!({"owner": "carl", "team": "leads"});
    scene.stage.admin("PATCH", &path, &body).await.expect(200);
    let id = scene.asked().await;
    for excluded in [&scene.ann, &scene.carl] {
        let reply = scene.vote(excluded, &id, "approve").await;
        assert!(
            reply
                .problem(403, "not_an_approver")
                .contains("answers for the agent")
        );
    }
    let dora = key(&scene.stage, "dora", "approver").await;
    scene.vote(&dora, &id, "approve").await.expect(200);
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn only_a_person_with_the_role_votes() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let path = format!("/v1/approvals/{id}/approve");
    let body = json!({"reason": "a test"});
    scene
        .stage
        .post(&path, &scene.stage.agent.token, &body)
        .await
        .problem(403, "forbidden");
    scene
        .stage
        .post(&path, &scene.auditor, &body)
        .await
        .problem(403, "forbidden");
    scene
        .stage
        .admin("POST", &path, &body)
        .await
        .problem(403, "forbidden");
    let nobody = json!({"name": "robot", "role": "approver"});
    let robot = scene.stage.admin("POST", "/v1/keys", &nobody).await.expect(201);
    let reply = scene
        .stage
        .post(&path, robot["key"].as_str().unwrap(), &body)
        .await;
    assert!(reply.problem(403, "forbidden").contains("who holds it"));
    for reason in ["", &"x".repeat(1_025)] {
        let body = json!({"reason": reason});
        let reply = scene.stage.post(&path, &scene.ann, &body).await;
        reply.problem(400, "invalid_field");
    }
    assert_eq!(scene.status(&id).await, "pending");
}

#[tokio::test]
async fn what_is_over_takes_no_votes() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
    for verb in ["approve", "reject"] {
        let reply = scene.vote(&scene.bob, &id, verb).await;
        assert!(reply.problem(409, "conflict").contains("spent already"));
    }
}

#[tokio::test]
async fn what_has_expired_takes_no_votes() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    scene.stage.clock.advance_millis(3_600_000);
    for verb in ["approve", "reject"] {
        scene.vote(&scene.ann, &id, verb).await.problem(409, "conflict");
    }
    assert_eq!(scene.entries("approval_approved").await.len(), 0);
    assert_eq!(
        scene.retry(&id).await.expect(200)["reason_code"],
        "approval_expired"
    );
}
