//! Commits that are lost, or kept and reported lost: budgets move with their entry or not at all.

use crate::{Scene, costing, tokens};
use serde_json::json;
use store::faults::Fault;

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
