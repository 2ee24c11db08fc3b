//! Several asks in one call: one commit, and an answer or a problem for each.

use crate::stage::{Stage, asking, changing, injected, named, reading, trapped};
use crate::support::until;
use serde_json::{Value, json};
use std::time::Duration;
use store::faults::{At, Fault};

#[tokio::test]
async fn a_batch_is_one_commit_and_each_item_has_its_own_answer() {
    let stage = Stage::set().await;
    let other = stage.hire(json!({"name": "reviewer", "tools": "all"})).await;
    let mut stranger = reading();
    stranger["agent"] = json!({"id": other.id});
    let mut dry = changing();
    dry["mode"] = json!("dry_run");
    let twice = named(changing(), "call-1");
    let reused = named(injected(), "call-1");
    let asks =
        json!({"asks": [reading(), injected(), {"tool_call": 1}, stranger, twice, twice, reused, dry]});
    let (commits, head) = (commits(&stage).await, stage.head().await);
    let call = stage
        .call("POST", "/v1/authorize/batch", &stage.agent.token)
        .header("x-request-id", "batch-7");
    let reply = call.json(&asks).send().await;
    let answers = reply.expect(200)["answers"].clone();
    let words: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            item["code"]
                .as_str()
                .unwrap_or_else(|| item["decision"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        words,
        [
            "allow",
            "deny",
            "invalid_field",
            "agent_mismatch",
            "allow",
            "allow",
            "idempotency_key_reused",
            "allow"
        ]
    );
    assert_eq!(answers[4], answers[5]);
    assert_eq!(answers[2]["request_id"], "batch-7");
    assert!(
        answers[2]["detail"].as_str().unwrap().contains("/tool_call"),
        "{}",
        answers[2]
    );
    assert_eq!(stage.head().await.seq, head.seq + 3);
    assert_eq!(self::commits(&stage).await, commits + 1);
    stage.assert_sound().await;
}

#[tokio::test]
async fn asks_that_differ_in_one_parameter_are_two() {
    let stage = Stage::set().await;
    let merge = |base: &str| {
        let mut ask = asking("github", "merge_pull_request", "trusted_internal_unsigned");
        ask["tool_call"]["parameters"] = json!({"base_branch": base, "number": 42});
        ask
    };
    let asks = json!({"asks": [merge("main"), merge("topic"), merge("main")]});
    let answers = stage
        .post("/v1/authorize/batch", &stage.agent.token, &asks)
        .await
        .expect(200);
    let of = |member: &str| {
        let answers = answers["answers"].as_array().unwrap();
        answers
            .iter()
            .map(|answer| answer[member].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("decision"), ["require_approval", "allow", "require_approval"]);
    let hashes = of("action_hash");
    assert_ne!(hashes[0], hashes[1]);
    assert_eq!(hashes[0], hashes[2]);
}

#[tokio::test]
async fn a_batch_is_of_its_requests_trace_and_takes_no_idempotency_key() {
    let stage = Stage::set().await;
    let mut own = reading();
    own["trace"] = json!({"trace_id": "mine"});
    let asks = json!({"asks": [reading(), own]});
    let call = || stage.call("POST", "/v1/authorize/batch", &stage.agent.token);
    let id = "0af7651916cd43dd8448eb211c80319c";
    let with_parent = call().header("traceparent", format!("00-{id}-b7ad6b7169203331-01"));
    with_parent.json(&asks).send().await.expect(200);
    let traces: Vec<_> = stage
        .decisions()
        .await
        .iter()
        .map(|body| body["trace_id"].clone())
        .collect();
    assert_eq!(traces, [id, "mine"]);
    let keyed = call().header("idempotency-key", "\"call-1\"");
    let detail = keyed.json(&asks).send().await.problem(400, "invalid_parameter");
    assert!(detail.contains("`request_id` in each ask"), "{detail}");
    assert_eq!(stage.decisions().await.len(), 2);
}

/// How many commits there have been.
async fn commits(stage: &Stage) -> u64 {
    let metrics = stage.get("/metrics", "").await.text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("countersign_commit_seconds_count "))
        .unwrap();
    line.parse().unwrap()
}

/// How often asks and requests were refused with this code.
async fn refusals(stage: &Stage, code: &str) -> u64 {
    let metrics = stage.get("/metrics", "").await.text();
    let counter = format!("countersign_refusals_total{{code=\"{code}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&counter));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn what_is_refused_in_a_batch_is_counted_like_a_single_ask() {
    let stage = Stage::set().await;
    let twice = named(changing(), "call-1");
    let reused = named(injected(), "call-1");
    let asks = json!({"asks": [{"tool_call": 1}, twice, reused, {"tool_call": 2}]});
    let batch = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
    batch.await.expect(200);
    assert_eq!(refusals(&stage, "invalid_field").await, 2);
    assert_eq!(refusals(&stage, "idempotency_key_reused").await, 1);

    // A dry run is answered though nothing can be recorded, so the request does not fail as a whole.
    let mut dry = changing();
    dry["mode"] = json!("dry_run");
    let asks = json!({"asks": [dry, reading(), reading()]});
    stage.faults.plan([Fault::Lose]);
    let batch = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
    let answers = batch.await.expect(200)["answers"].clone();
    assert_eq!(answers[0]["decision"], "allow");
    assert_eq!(answers[2]["code"], "ledger_unavailable");
    assert_eq!(refusals(&stage, "ledger_unavailable").await, 2);

    stage.ask(&reading()).await.expect(200);
    let asks = json!({"asks": [reading(), reading()]});
    stage.faults.plan([Fault::Lose]);
    let batch = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
    batch.await.problem(503, "ledger_unavailable");
    assert_eq!(refusals(&stage, "ledger_unavailable").await, 3);

    let evaluations = json!({"evaluations": [[], []]});
    let path = "/access/v1/evaluations";
    let evaluated = stage.post(path, &stage.agent.token, &evaluations);
    let evaluated = evaluated.await.expect(200);
    let error = &evaluated["evaluations"][1]["context"]["error"];
    assert_eq!(error["code"], "invalid_field");
    assert_eq!(refusals(&stage, "invalid_field").await, 4);
}

/// What was recorded is answered, whatever becomes of those that had to be judged again.
#[tokio::test]
async fn a_fault_in_a_later_commit_is_that_of_the_asks_in_it() {
    let stage = Stage::set().await;
    stage.settle(json!({"run_taint": "deny"})).await;
    let mut ask = changing();
    ask["trace"] = json!({"run_id": "run-1"});
    let asks = json!({"asks": [ask, ask]});
    stage.faults.plan([Fault::Pass, Fault::Lose]);
    let batch = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
    let answers = batch.await.expect(200)["answers"].clone();
    assert_eq!(answers[0]["decision"], "allow", "{answers}");
    assert_eq!(
        (&answers[1]["code"], &answers[1]["status"]),
        (&json!("ledger_unavailable"), &json!(503))
    );
    assert_eq!(stage.count("decision").await, 1);
    stage.faults.plan([Fault::Lose]);
    let batch = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
    batch.await.problem(503, "ledger_unavailable");
    stage.assert_sound().await;
}

#[tokio::test]
async fn whoever_steps_on_a_canary_in_a_batch_gets_nothing_after_it() {
    let stage = Stage::set().await;
    let asks = json!({"asks": [changing(), trapped(), changing(), reading()]});
    let answers = stage
        .post("/v1/authorize/batch", &stage.agent.token, &asks)
        .await
        .expect(200);
    let reasons: Vec<_> = answers["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["reason_code"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        ["policy_permits", "policy_forbids", "agent_frozen", "agent_frozen"]
    );
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_dry_run_in_a_batch_says_what_is_answered_behind_the_others() {
    let stage = Stage::set().await;
    let mut dry = reading();
    dry["mode"] = json!("dry_run");
    let asks = json!({"asks": [dry, trapped(), reading(), dry]});
    let batch = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
    let answers = batch.await.expect(200)["answers"].clone();
    let items = answers.as_array().unwrap();
    let told: Vec<_> = items
        .iter()
        .map(|item| {
            let is_recorded = item.get("receipt").is_some();
            (item["reason_code"].as_str().unwrap(), is_recorded)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("agent_frozen", false),
            ("policy_forbids", true),
            ("agent_frozen", true),
            ("agent_frozen", false)
        ]
    );
    assert_eq!(stage.ask(&dry).await.expect(200), answers[3]);
    stage.assert_sound().await;
}

/// Of each answer of a batch what was decided, or the code of its problem.
fn words(batch: &Value) -> Vec<&str> {
    let answers = batch["answers"].as_array().unwrap().iter();
    let words = answers.map(|answer| answer["code"].as_str().or_else(|| answer["decision"].as_str()));
    words.map(Option::unwrap).collect()
}

#[tokio::test]
async fn no_dry_run_of_a_batch_is_judged_when_its_caller_does_not_wait_any_more() {
    let stage = Stage::set().await;
    let mut dry = reading();
    dry["mode"] = json!("dry_run");
    let asks = json!({"asks": [dry, reading(), dry]});
    stage.faults.plan([Fault::Hold]);
    let batch = stage
        .call("POST", "/v1/authorize/batch", &stage.agent.token)
        .header("x-request-timeout-ms", "3000")
        .json(&asks)
        .send();
    let letting_go = async {
        until(|| stage.faults.held() == 1).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        stage.faults.let_go();
    };
    let (batch, ()) = tokio::join!(batch, letting_go);
    let told = ["deadline_exceeded", "allow", "deadline_exceeded"];
    assert_eq!(words(&batch.expect(200)), told);
    stage.assert_sound().await;
}

#[tokio::test]
async fn nothing_is_read_for_the_dry_runs_of_a_batch_once_that_has_failed_for_one() {
    let stage = Stage::set().await;
    let mut dry = reading();
    dry["mode"] = json!("dry_run");
    let mut approved = dry.clone();
    approved["approval_id"] = json!("apr_00000000000000000000000001");
    let asks = json!({"asks": [approved, reading(), approved, dry]});
    let reads = stage.faults.approval_reads();
    stage.faults.hold_at(At::Approvals, true);
    let failing = async {
        until(|| stage.faults.held_at(At::Approvals) == 1).await;
        stage.faults.fail_reads(true);
        stage.faults.hold_at(At::Approvals, false);
    };
    let batch = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
    let (batch, ()) = tokio::join!(batch, failing);
    stage.faults.fail_reads(false);
    let fault = "ledger_unavailable";
    assert_eq!(words(&batch.expect(200)), [fault, "allow", fault, fault]);
    assert_eq!(stage.faults.approval_reads() - reads, 1);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_batch_has_one_to_a_hundred_asks() {
    let stage = Stage::set().await;
    let batch = async |count: usize| {
        let asks = json!({"asks": vec![reading(); count]});
        stage.post("/v1/authorize/batch", &stage.agent.token, &asks).await
    };
    assert!(batch(0).await.problem(400, "invalid_field").contains("asks"));
    assert!(batch(101).await.problem(400, "invalid_field").contains("asks"));
    assert_eq!(
        batch(100).await.expect(200)["answers"].as_array().unwrap().len(),
        100
    );
    let odd = stage
        .post(
            "/v1/authorize/batch",
            &stage.agent.token,
            &json!({"asks": [], "ask": 1}),
        )
        .await;
    odd.problem(400, "unknown_field");
    assert_eq!(stage.count("decision").await, 100);
}
