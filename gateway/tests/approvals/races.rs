//! Two at once, and commits that fail: an approval is spent once, or not at all.

use crate::support::patiently;
use crate::{Scene, key, merging, with};
use futures_util::future::join_all;
use serde_json::json;
use store::faults::Fault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_retries_at_once_one_is_allowed() {
    let scene = Scene::set().await;
    for _ in 0..5 {
        let id = scene.approved().await;
        let replies = join_all((0..16).map(|_| scene.retry(&id))).await;
        let allowed = replies.iter().filter(|reply| reply.status == 200).count();
        assert_eq!(allowed, 1);
        for reply in replies.iter().filter(|reply| reply.status != 200) {
            reply.problem(409, "approval_not_usable");
        }
    }
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn of_two_retries_in_one_batch_one_is_allowed() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let asks = json!({"asks": [with(merging(), &id), with(merging(), &id)]});
    let answers = scene
        .stage
        .post("/v1/authorize/batch", &scene.stage.agent.token, &asks)
        .await
        .expect(200);
    assert_eq!(answers["answers"][0]["decision"], "allow");
    assert_eq!(answers["answers"][1]["code"], "approval_not_usable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_opposite_votes_at_once_the_rejection_stands() {
    let scene = Scene::set().await;
    for _ in 0..5 {
        let id = scene.asked().await;
        let (_, rejected) = tokio::join!(
            scene.vote(&scene.ann, &id, "approve"),
            scene.vote(&scene.bob, &id, "reject")
        );
        rejected.expect(200);
        assert_eq!(scene.status(&id).await, "rejected");
        assert_eq!(
            scene.retry(&id).await.expect(200)["reason_code"],
            "approval_rejected"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_votes_of_one_person_at_once_one_counts() {
    let scene = Scene::with_terms("@quorum(\"2\")").await;
    let id = scene.asked().await;
    let other_key = key(&scene.stage, "ann", "approver").await;
    let keys = [&scene.ann, &other_key];
    let votes = (0..16).map(|number| scene.vote(keys[number % 2], &id, "approve"));
    let replies = join_all(votes).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 1);
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        reply.problem(409, "conflict");
    }
    assert_eq!(scene.entries("approval_approved").await.len(), 1);
    assert_eq!(scene.status(&id).await, "pending");
    scene.stage.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_tried_with_an_approval_while_the_directory_changes_is_recorded() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    let mut misuse = with(merging(), &id);
    misuse["tool_call"]["parameters"]["number"] = json!(43);
    let change = async |round: u32| {
        let body = json!({"attributes": {"round": round.to_string()}});
        let reply = scene.stage.admin("PUT", "/v1/users/carl", &body).await;
        reply.expect(200);
    };
    let mut refused = 0;
    for round in 0..5 {
        let changes = join_all((0..8).map(|number| change(8 * round + number)));
        let (replies, _) = tokio::join!(join_all((0..8).map(|_| scene.stage.ask(&misuse))), changes);
        refused += replies.iter().filter(|reply| reply.status == 409).count();
    }
    assert!(refused > 0);
    assert_eq!(scene.entries("approval_refused").await.len(), refused);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_spending_whose_commit_failed_is_made_once() {
    for (fault, kept) in [
        (Fault::Lose, false),
        (Fault::LoseUnknown, false),
        (Fault::KeepButReportUnknown, true),
    ] {
        let scene = Scene::set().await;
        let id = scene.approved().await;
        scene.stage.faults.plan([fault]);
        scene.retry(&id).await.problem(503, "ledger_unavailable");
        let again = patiently(|| scene.retry(&id)).await;
        if kept {
            again.problem(409, "approval_not_usable");
        } else {
            assert_eq!(again.expect(200)["decision"], "allow", "{fault:?}");
        }
        assert_eq!(scene.status(&id).await, "spent", "{fault:?}");
        scene.stage.assert_sound().await;
    }
}

#[tokio::test]
async fn a_vote_whose_commit_failed_counts_once() {
    for (fault, kept) in [(Fault::Lose, false), (Fault::KeepButReportUnknown, true)] {
        let scene = Scene::set().await;
        let id = scene.asked().await;
        scene.stage.faults.plan([fault]);
        scene
            .vote(&scene.ann, &id, "approve")
            .await
            .problem(503, "ledger_unavailable");
        let again = patiently(|| scene.vote(&scene.ann, &id, "approve")).await;
        if kept {
            again.problem(409, "conflict");
        } else {
            again.expect(200);
        }
        assert_eq!(scene.entries("approval_approved").await.len(), 1, "{fault:?}");
        assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
    }
}
