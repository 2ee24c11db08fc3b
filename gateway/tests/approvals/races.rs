//! Two at once, and commits that fail: an approval is spent once, or not at all.

use crate::support::{patiently, until};
use crate::{Scene, key, merging, with};
use futures_util::future::join_all;
use serde_json::{Value, json};
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

#[tokio::test]
async fn a_commit_takes_so_many_votes_and_no_ask_waits_for_the_others() {
    let scene = Scene::set().await;
    let asks = json!({"asks": vec![merging(); 40]});
    let token = &scene.stage.agent.token;
    let answers = scene.stage.post("/v1/authorize/batch", token, &asks).await;
    let answers = answers.expect(200);
    let id = |answer: &Value| answer["approval"]["id"].as_str().unwrap().to_owned();
    let ids: Vec<_> = answers["answers"].as_array().unwrap().iter().map(id).collect();
    let (faults, sequencer) = (&scene.stage.faults, &scene.stage.gateway.sequencer);
    let waiting = |count: usize| until(move || faults.held() == 1 && sequencer.waiting() == count);
    faults.plan([Fault::Hold, Fault::Hold]);
    let votes = async {
        waiting(0).await;
        join_all(ids.iter().map(|id| scene.vote(&scene.ann, id, "approve"))).await
    };
    let ask = async {
        waiting(40).await;
        scene.asked().await
    };
    let letting_go = async {
        waiting(41).await;
        faults.let_go();
        // The ask is in the next commit, and 32 votes.
        waiting(8).await;
        faults.let_go();
    };
    let (_, votes, _, ()) = tokio::join!(scene.asked(), votes, ask, letting_go);
    for vote in votes {
        assert_eq!(vote.expect(200)["status"], "approved");
    }
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_commit_takes_so_many_asks_that_use_approvals() {
    let scene = Scene::set().await;
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(scene.approved().await);
    }
    let (faults, sequencer) = (&scene.stage.faults, &scene.stage.gateway.sequencer);
    let waiting = |count: usize| until(move || faults.held() == 1 && sequencer.waiting() == count);
    faults.plan([Fault::Hold, Fault::Hold]);
    let retries = async {
        waiting(0).await;
        join_all(ids.iter().map(|id| scene.retry(id))).await
    };
    let letting_go = async {
        waiting(40).await;
        faults.let_go();
        waiting(8).await;
        faults.let_go();
    };
    let (_, retries, ()) = tokio::join!(scene.asked(), retries, letting_go);
    for retry in retries {
        assert_eq!(retry.expect(200)["decision"], "allow");
    }
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
