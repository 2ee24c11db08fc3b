//! What becomes of each durable write when the store fails, in every way in which it can fail. The store is a real SQLite
//! file; only the faults are planned.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use engine::EntryKind;
use futures_util::future::join_all;
use gateway::changes::{By, Force, Order, Plan};
use gateway::gateway::{FixedBounds, Options};
use gateway::signing::Keyring;
use ledger::{Head, NewEntry, SignatureKind, SigningKey};
use model::{Directory, Noun, TenantId, Timestamp, Write};
use serde_json::{Value, json};
use stage::{Stage, changing, injected, named, reading, trapped};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::conformance::try_commit;
use store::faults::{At, Fault};
use store::{Advance, Batch, EntryRow};
use support::{Reply, patiently, until};
use tokio::runtime::Handle;

/// The ways in which a commit fails, and whether the batch is on disk all the same.
const FAULTS: [(Fault, bool); 3] = [
    (Fault::Lose, false),
    (Fault::LoseUnknown, false),
    (Fault::KeepButReportUnknown, true),
];

fn assert_unavailable(reply: &Reply) {
    reply.problem(503, "ledger_unavailable");
    assert_eq!(reply.headers["retry-after"], "1");
}

/// Spoils the next commit and makes a call that needs it. Says how far the chain on disk has moved.
async fn spoil(stage: &Stage, fault: Fault, call: impl Future<Output = Reply>) -> u64 {
    let before = stage.head().await.seq;
    stage.faults.plan([fault]);
    assert_unavailable(&call.await);
    stage.head().await.seq - before
}

#[tokio::test]
async fn a_decision_whose_commit_failed_is_never_an_allow() {
    for (fault, kept) in FAULTS {
        let stage = Stage::set().await;
        let ask = named(changing(), "call-1");
        let moved = spoil(&stage, fault, stage.ask(&ask)).await;
        assert_eq!(moved, u64::from(kept), "{fault:?}");

        let again = stage.ask(&ask).await;
        assert_eq!(again.expect(200)["decision"], "allow");
        let id = again.json()["decision_id"].as_str().unwrap().parse().unwrap();
        let recorded = store::Records::receipt(&*stage.store, stage.tenant, id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(again.bytes, recorded, "{fault:?}");
        assert_eq!(stage.ask(&ask).await.bytes, recorded, "{fault:?}");
        assert_eq!(stage.count("decision").await, 1, "{fault:?}");
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn a_change_of_the_directory_whose_commit_failed_can_be_made_again() {
    for (fault, kept) in FAULTS {
        let stage = Stage::set().await;
        let moved = spoil(&stage, fault, stage.set_standing(&stage.agent, "freeze")).await;
        assert_eq!(moved, u64::from(kept), "{fault:?}");

        // What may have been written is read back first.
        let again = patiently(|| stage.set_standing(&stage.agent, "freeze")).await;
        again.expect(200);
        assert_eq!(stage.count("agent_frozen").await, 1, "{fault:?}");
        assert_eq!(
            stage.ask(&reading()).await.expect(200)["reason_code"],
            "agent_frozen"
        );
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn an_outcome_whose_commit_failed_is_recorded_once() {
    for (fault, kept) in FAULTS {
        let stage = Stage::set().await;
        let answer = stage.ask(&changing()).await.expect(200);
        let path = format!(
            "/v1/decisions/{}/outcome",
            answer["decision_id"].as_str().unwrap()
        );
        let report = json!({"status": "succeeded", "executed_hash": answer["action_hash"]});
        let call = || stage.post(&path, &stage.agent.token, &report);
        let moved = spoil(&stage, fault, call()).await;
        assert_eq!(moved, u64::from(kept), "{fault:?}");

        let again = call().await;
        if kept {
            again.problem(409, "outcome_reported");
        } else {
            again.expect(201);
        }
        assert_eq!(stage.count("outcome_reported").await, 1, "{fault:?}");
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn a_batch_whose_commit_failed_is_recorded_whole_or_not_at_all() {
    for (fault, kept) in FAULTS {
        let stage = Stage::set().await;
        let asks: Vec<_> = (1..=3).map(|n| named(changing(), &format!("call-{n}"))).collect();
        let body = json!({ "asks": asks });
        let call = || stage.post("/v1/authorize/batch", &stage.agent.token, &body);
        let moved = spoil(&stage, fault, call()).await;
        assert_eq!(moved, if kept { 3 } else { 0 }, "{fault:?}");

        let answers = call().await;
        assert_eq!(answers.expect(200)["answers"].as_array().unwrap().len(), 3);
        assert_eq!(call().await.bytes, answers.bytes, "{fault:?}");
        assert_eq!(stage.count("decision").await, 3, "{fault:?}");
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn a_quarantine_stands_with_its_decision_or_not_at_all() {
    for (fault, kept) in FAULTS {
        let stage = Stage::set().await;
        let moved = spoil(&stage, fault, stage.ask(&trapped())).await;
        assert_eq!(moved, if kept { 2 } else { 0 }, "{fault:?}");

        let ask = trapped();
        let again = patiently(|| stage.ask(&ask)).await.expect(200);
        assert_eq!(
            again["reason_code"],
            if kept { "agent_frozen" } else { "policy_forbids" },
            "{fault:?}"
        );
        assert_eq!(stage.count("agent_frozen").await, 1, "{fault:?}");
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn a_new_tenant_whose_commit_failed_is_in_both_chains_or_in_none() {
    for (fault, kept) in FAULTS {
        let stage = Stage::set().await;
        stage.faults.plan([fault]);
        assert_unavailable(
            &stage
                .post("/v1/tenants", &stage.operator, &json!({"name": "globex"}))
                .await,
        );
        stage.ask(&reading()).await.expect(200);
        // What may have been written is read back, in the background.
        let deadline = Instant::now() + Duration::from_mins(1);
        while kept && tenants(&stage).await < 2 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(tenants(&stage).await, if kept { 2 } else { 1 }, "{fault:?}");
        let system = store::Records::entries(&*stage.store, TenantId::SYSTEM, 1, 100)
            .await
            .unwrap();
        let announced = system
            .iter()
            .filter(|entry| entry.kind == "tenant_created")
            .count();
        assert_eq!(announced, if kept { 2 } else { 1 }, "{fault:?}");
        stage.assert_sound().await;
    }
}

/// How many tenants the gateway knows.
async fn tenants(stage: &Stage) -> usize {
    let list = stage.get("/v1/tenants", &stage.operator).await.expect(200);
    list["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn another_writers_entry_is_kept_and_the_next_one_follows_it() {
    let stage = Stage::set().await;
    // Whether the gateway asks where the chain ends or thinks that it knows.
    for asks in [1, 4, 0] {
        for _ in 0..asks {
            stage.ask(&reading()).await.expect(200);
        }
        let foreign = write_behind_the_back(&stage, support::BEGINNING).await;
        let answer = stage
            .ask(&named(reading(), &format!("after {asks}")))
            .await
            .expect(200);
        assert_eq!(answer["receipt"]["prev_hash"], foreign.hash.to_string());
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn nothing_follows_an_entry_from_after_the_end_of_the_signing_key() {
    let stage = Stage::set().await;
    let key = |seed| {
        let name = support::signing_key().verifier().name().to_owned();
        SigningKey::from_seed(&name, SignatureKind::Note, &[seed; 32]).unwrap()
    };
    stage.gateway.publish_keys(&Keyring::of(key(1))).await.unwrap();
    let mut rotated = Keyring::of(key(2));
    rotated.replaced.push(key(1));
    stage.gateway.publish_keys(&rotated).await.unwrap();
    stage.ask(&reading()).await.expect(200);
    let checkpoint = || {
        let call = stage.call("GET", "/v1/ledger/checkpoint", &stage.operator);
        call.tenant(stage.tenant).send()
    };
    assert_eq!(checkpoint().await.status, 200);
    // Another gateway has the new key, and a clock that is ahead of the one here.
    write_behind_the_back(&stage, support::BEGINNING.plus_millis(120_000)).await;
    assert_unavailable(&checkpoint().await);
    assert_unavailable(&stage.ask(&reading()).await);
}

/// Commits an entry of the tenant's without the gateway.
async fn write_behind_the_back(stage: &Stage, at: Timestamp) -> Head {
    let revision = stage.gateway.tenant(stage.tenant).unwrap().revision;
    write_with_revision(stage, at, revision).await
}

/// Commits one after which its directory has this revision.
async fn write_with_revision(stage: &Stage, at: Timestamp, revision: u64) -> Head {
    let mut tip = stage.store.tip(stage.tenant).await.unwrap();
    let from = tip.head();
    let body = canon::of(&json!({"who": "somebody else"})).unwrap();
    let tenant = stage.tenant;
    let new = NewEntry {
        tenant: &tenant.to_string(),
        kind: "tenant_updated",
        at: &at.to_string(),
        body: body.digest(),
    };
    let body_digest = body.digest();
    let appended = tip.append(&new, &mut String::new());
    let to = appended.head;
    let entry = EntryRow {
        tenant,
        seq: to.seq,
        kind: "tenant_updated",
        at,
        prev: from.hash,
        hash: to.hash,
        body,
        body_digest,
        nodes: appended.completed,
    };
    let batch = Batch {
        advances: vec![Advance {
            tenant,
            from,
            to: tip,
            revision,
        }],
        entries: vec![entry],
        ..Batch::default()
    };
    try_commit(&*stage.store, &batch).await.unwrap();
    to
}

/// However often others have changed the same directory before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_has_to_follow_another_gateway_keeps_nobody_from_freezing() {
    let stage = &Stage::set().await;
    let gateway = &stage.gateway;
    let (attempts, pause) = (AtomicUsize::new(0), Mutex::new(None));
    // Somebody else is faster than each of the first five attempts, and what has come before the sixth is not put in force here.
    let overtake = |attempt: usize| async move {
        let held = if attempt == 5 {
            Some(gateway.snapshot.hold().await)
        } else {
            None
        };
        let revision = gateway.tenant(stage.tenant).unwrap().revision;
        write_with_revision(stage, support::BEGINNING, revision + 1).await;
        held
    };
    let plan = |directory: &Directory, _: Timestamp| {
        let attempt = attempts.fetch_add(1, Ordering::SeqCst) + 1;
        if attempt <= 5 {
            let held = || Handle::current().block_on(overtake(attempt));
            *pause.lock().unwrap() = tokio::task::block_in_place(held);
        }
        Ok(Plan::Change {
            kind: EntryKind::TenantUpdated,
            facts: json!({}),
            writes: vec![Write::Put(Noun::Tenant(Arc::clone(&directory.tenant)))],
            answer: (),
        })
    };
    let change = gateway.change_in(Order::InTurn, By::Start, Force::No, stage.tenant, plan);
    let freeze = async {
        until(|| pause.lock().unwrap().is_some()).await;
        drop(
            gateway
                .change_locks
                .lock(stage.tenant, Order::AtOnce)
                .await
                .unwrap(),
        );
        drop(pause.lock().unwrap().take());
    };
    let (changed, ()) = tokio::join!(change, freeze);
    changed.unwrap();
    assert_eq!(attempts.load(Ordering::SeqCst), 6);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_batch_whose_head_has_moved_is_made_again_a_few_times() {
    let stage = Stage::set().await;
    stage.faults.plan([Fault::HeadMoved; 3]);
    stage.ask(&reading()).await.expect(200);
    stage.faults.plan([Fault::HeadMoved; 4]);
    assert_unavailable(&stage.ask(&reading()).await);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_batch_that_is_made_again_is_counted_by_its_cause() {
    let stage = Stage::set().await;
    // Of four attempts three are made again: the last is given up.
    stage.faults.plan([Fault::HeadMoved; 4]);
    assert_unavailable(&stage.ask(&reading()).await);
    stage.faults.plan([Fault::LoseTurn]);
    stage.ask(&reading()).await.expect(200);
    let ask = named(changing(), "call-1");
    let kept = spoil(&stage, Fault::KeepButReportUnknown, stage.ask(&ask)).await;
    assert_eq!(kept, 1);
    stage.ask(&ask).await.expect(200);

    let due = [
        r#"{cause="already_recorded"} 1"#,
        r#"{cause="head_moved"} 3"#,
        r#"{cause="turn_over"} 1"#,
    ];
    assert_eq!(retries(&stage).await, due);
    stage.assert_sound().await;
}

/// For which causes batches were made again, and how often for each, in order.
async fn retries(stage: &Stage) -> Vec<String> {
    let metrics = stage.get("/metrics", "").await.text();
    let lines = metrics.lines();
    let mut counted: Vec<_> = lines
        .filter_map(|line| line.strip_prefix("countersign_batch_retries_total"))
        .map(str::to_owned)
        .collect();
    counted.sort_unstable();
    counted
}

/// A gateway that is alone takes no turn, and that a directory has moved is a guess then.
#[tokio::test]
async fn what_a_directory_has_moved_under_is_turned_back_in_a_turn_only() {
    let stage = Stage::set().await;
    for _ in 0..3 {
        stage.ask(&reading()).await.expect(200);
    }
    let turns = stage.faults.turns();
    stage.ask(&reading()).await.expect(200);
    assert_eq!(stage.faults.turns(), turns, "it takes turns though it is alone");
    stage.faults.plan([Fault::Hold]);
    let ask = async {
        until(|| stage.faults.held() == 1).await;
        // Judged by the directory from before the freeze, and recorded behind it.
        stage.ask(&reading()).await
    };
    let letting_go = async {
        // The freeze waited there, too, before it was held.
        until(|| stage.faults.held() == 1 && stage.gateway.sequencer.waiting() == 1).await;
        stage.faults.let_go();
    };
    let freeze = stage.set_standing(&stage.agent, "freeze");
    let (frozen, answer, ()) = tokio::join!(freeze, ask, letting_go);
    frozen.expect(200);
    assert_eq!(answer.expect(200)["reason_code"], "agent_frozen");
    assert_eq!(retries(&stage).await, [r#"{cause="directory_guessed"} 1"#]);
    assert_eq!(stage.faults.turns(), turns + 1);
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    stage.assert_sound().await;
}

/// As of a gateway that stood still in its turn for longer than the server lets it.
#[tokio::test]
async fn a_batch_whose_turn_was_over_is_made_once_more_and_not_again() {
    let stage = Stage::set().await;
    let ask = named(changing(), "call-1");
    stage.faults.plan([Fault::LoseTurn]);
    let answer = stage.ask(&ask).await;
    assert_eq!(answer.expect(200)["decision"], "allow");
    stage.faults.plan([Fault::LoseTurn]);
    stage.set_standing(&stage.agent, "freeze").await.expect(200);
    assert_eq!(stage.ask(&ask).await.expect(200)["reason_code"], "agent_frozen");
    assert_eq!(stage.count("agent_frozen").await, 1);
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    let decisions = stage.count("decision").await;

    stage.faults.plan([Fault::LoseTurn; 2]);
    assert_unavailable(&stage.ask(&reading()).await);
    assert_eq!(stage.count("decision").await, decisions);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_store_that_cannot_be_read_after_a_failure_answers_nothing_until_it_can() {
    let stage = Stage::set().await;
    assert_eq!(spoil(&stage, Fault::LoseUnknown, stage.ask(&reading())).await, 0);
    stage.faults.fail_reads(true);
    for _ in 0..3 {
        assert_unavailable(&stage.ask(&reading()).await);
    }
    assert_unavailable(&stage.get("/readyz", "").await);
    stage.faults.fail_reads(false);
    stage.ask(&reading()).await.expect(200);
    assert_eq!(stage.get("/readyz", "").await.status, 200);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_gateway_whose_store_stands_still_is_not_waited_for_to_be_ready() {
    let stage = Stage::set().await;
    stage.faults.hold_at(At::Entries, true);
    let told = tokio::time::timeout(Duration::from_mins(1), stage.get("/readyz", "")).await;
    assert_unavailable(&told.unwrap());
    stage.faults.hold_at(At::Entries, false);
    assert_eq!(patiently(|| stage.get("/readyz", "")).await.status, 200);
}

#[tokio::test]
async fn metrics_are_told_while_the_store_stands_still() {
    let stage = Stage::set().await;
    stage.faults.hold_at(At::Entries, true);
    // The second one finds a run that has not ended.
    for _ in 0..2 {
        let told = tokio::time::timeout(Duration::from_mins(1), stage.get("/metrics", "")).await;
        let metrics = told.unwrap().text();
        assert!(metrics.contains("countersign_ledger_healthy 1"), "{metrics}");
        assert!(metrics.contains("countersign_database_bytes 0\n"), "{metrics}");
    }
    stage.faults.hold_at(At::Entries, false);
    // What was found out after everybody had gone is known, too.
    let metrics = &stage.gateway.metrics;
    until(|| !metrics.render(0, true).contains("countersign_database_bytes 0\n")).await;
}

/// A moment of it is enough, and whoever starts behind it is told as well.
#[tokio::test]
async fn how_far_a_ledger_is_ahead_of_the_clock_is_told() {
    const AHEAD_MS: i64 = 300 * 24 * 60 * 60 * 1_000;
    let mut stage = Stage::set().await;
    let is_told = async |stage: &Stage, seconds: i64| {
        let metrics = stage.get("/metrics", "").await.text();
        let line = format!("countersign_ledger_ahead_seconds {seconds}");
        assert!(metrics.lines().any(|told| told == line), "{line}\n{metrics}");
    };
    is_told(&stage, 0).await;
    stage.clock.advance_millis(AHEAD_MS);
    stage.ask(&reading()).await.expect(200);
    is_told(&stage, 0).await;
    stage.clock.advance_millis(-AHEAD_MS);
    is_told(&stage, AHEAD_MS / 1_000).await;
    stage = stage.restart().await;
    is_told(&stage, AHEAD_MS / 1_000).await;
    stage.ask(&reading()).await.expect(200);
    stage.clock.advance_millis(AHEAD_MS);
    is_told(&stage, 0).await;
}

#[tokio::test]
async fn a_gateway_that_nobody_asks_becomes_ready_again_by_itself() {
    for fault in [Fault::Lose, Fault::LoseUnknown] {
        let stage = Stage::set().await;
        assert_eq!(stage.get("/readyz", "").await.status, 200);
        spoil(&stage, fault, stage.ask(&reading())).await;
        let deadline = Instant::now() + Duration::from_mins(1);
        while stage.get("/readyz", "").await.status != 200 {
            assert!(Instant::now() < deadline, "still not ready after {fault:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn everybody_in_a_batch_that_failed_gets_the_same_fault() {
    let stage = Stage::set().await;
    // The first commit is held, so the rest gather in the second, which fails.
    stage.faults.plan([Fault::Hold, Fault::LoseUnknown]);
    let asks: Vec<_> = (0..20).map(|n| named(changing(), &format!("call-{n}"))).collect();
    let rest = async {
        until(|| stage.faults.held() == 1).await;
        join_all(asks[1..].iter().map(|ask| stage.ask(ask))).await
    };
    let letting_go = async {
        until(|| stage.gateway.sequencer.waiting() == 19).await;
        stage.faults.let_go();
    };
    let (first, rest, ()) = tokio::join!(stage.ask(&asks[0]), rest, letting_go);
    first.expect(200);
    rest.iter().for_each(assert_unavailable);
    assert_eq!(stage.count("decision").await, 1);
    for ask in &asks {
        stage.ask(ask).await.expect(200);
    }
    assert_eq!(stage.count("decision").await, 20);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_loses_nobody_who_was_let_in() {
    let options = Options {
        bounds: FixedBounds {
            // One tenant gets half of it: one that is being written and two that wait.
            queue_max: 6,
            batch_max: 1,
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let stage = Arc::new(Stage::set_with(options).await);
    stage.faults.plan([Fault::Hold]);
    let ask = |n: usize| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move { stage.ask(&named(changing(), &format!("call-{n}"))).await })
    };
    let first = ask(0);
    until(|| stage.faults.held() == 1).await;
    let waiting = [ask(1), ask(2)];
    until(|| stage.gateway.sequencer.waiting() == 2).await;

    // It is said while the others wait.
    let refused = stage.ask(&named(changing(), "one too many")).await;
    refused.problem(503, "overloaded");
    assert_eq!(refused.headers["retry-after"], "1");
    stage.faults.let_go();
    first.await.unwrap().expect(200);
    for waiter in waiting {
        waiter.await.unwrap().expect(200);
    }
    assert_eq!(stage.count("decision").await, 3);
    stage.ask(&named(changing(), "one too many")).await.expect(200);
    stage.assert_sound().await;
}

/// A server ends a commit that takes too long, and then everybody in it is refused.
#[tokio::test]
async fn asks_that_are_long_fill_commits_and_the_queue_by_their_bytes() {
    /// How many fill the half of the queue that one tenant may have: each counts as 16, and entries may grow by 10 kB
    /// before it weighs 17.
    const LONG: usize = 64;
    let stage = Arc::new(Stage::set().await);
    let other = stage.tenancy("quiet").await;
    stage.faults.plan([Fault::Hold]);
    let ask = |body: Value| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move { stage.ask(&body).await })
    };
    let first = ask(changing());
    until(|| stage.faults.held() == 1).await;
    let mut long = changing();
    long["context"]["attributes"] = json!({"note": "x".repeat(250_000)});
    let all_long: Vec<_> = (0..LONG).map(|_| ask(long.clone())).collect();
    until(|| stage.gateway.sequencer.waiting() == LONG * 16).await;
    let beside = {
        let (stage, token) = (Arc::clone(&stage), other.token.clone());
        tokio::spawn(async move { stage.authorize(&token, &support::tenancy::reading()).await })
    };
    until(|| stage.gateway.sequencer.waiting() == LONG * 16 + 1).await;
    assert!(!stage.gateway.sequencer.has_room(stage.tenant));
    assert!(stage.gateway.sequencer.has_room(other.id));
    stage.faults.let_go();
    first.await.unwrap().expect(200);
    for asked in all_long {
        asked.await.unwrap().expect(200);
    }
    beside.await.unwrap().expect(200);
    // 512 of 16 KiB, and what it takes to come to that.
    let largest = stage.faults.largest_commit();
    assert!(largest <= 9 << 20, "a commit had {largest} bytes");
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_is_recorded_like_any_other() {
    let stage = Arc::new(Stage::set().await);
    stage.faults.plan([Fault::Hold]);
    let gone = {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move { stage.ask(&named(changing(), "call-1")).await })
    };
    until(|| stage.faults.held() == 1).await;
    assert_eq!(stage.count("decision").await, 0, "the commit is still under way");
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    stage.faults.let_go();

    stage.ask(&changing()).await.expect(200);
    assert_eq!(stage.count("decision").await, 2);
    let again = stage.ask(&named(changing(), "call-1")).await;
    let first = &stage.decisions().await[0];
    assert_eq!(again.expect(200)["decision_id"], first["decision_id"]);
    assert_eq!(stage.count("decision").await, 2);
    stage.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_request_at_once_is_one_entry_and_one_answer() {
    let stage = Arc::new(Stage::set().await);
    let callers = (0..16).map(|_| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move { stage.ask(&named(changing(), "call-1")).await })
    });
    let replies = join_all(callers).await;
    let first = replies[0].as_ref().unwrap().bytes.clone();
    assert!(replies.iter().all(|reply| reply.as_ref().unwrap().bytes == first));
    assert_eq!(stage.count("decision").await, 1);
    stage.assert_sound().await;
}

#[tokio::test]
async fn another_ask_under_the_same_request_id_is_refused_and_not_recorded() {
    let stage = Stage::set().await;
    let first = named(changing(), "call-1");
    let other = named(injected(), "call-1");
    let answer = stage.ask(&first).await;
    stage.ask(&other).await.problem(422, "idempotency_key_reused");
    assert_eq!(stage.ask(&first).await.bytes, answer.bytes);

    // After a restart nothing is remembered, and it is found in the ledger.
    let stage = stage.restart().await;
    stage.ask(&other).await.problem(422, "idempotency_key_reused");
    assert_eq!(stage.ask(&first).await.bytes, answer.bytes);

    let (both_at_once, second) = (named(changing(), "call-2"), named(injected(), "call-2"));
    let mut statuses = join_all([stage.ask(&both_at_once), stage.ask(&second)]).await;
    statuses.sort_by_key(|reply| reply.status);
    assert_eq!(statuses[0].status, 200);
    statuses[1].problem(422, "idempotency_key_reused");
    assert_eq!(stage.count("decision").await, 2);
    stage.assert_sound().await;
}

#[tokio::test]
async fn two_agents_may_use_the_same_request_id() {
    let stage = Stage::set().await;
    let other = stage.hire(json!({"name": "reviewer", "tools": "all"})).await;
    let ask = named(changing(), "call-1");
    let mine = stage.ask(&ask).await.expect(200);
    let theirs = stage.post("/v1/authorize", &other.token, &ask).await.expect(200);
    assert_ne!(mine["decision_id"], theirs["decision_id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_allow_stands_behind_a_freeze() {
    let (stage, done) = (Arc::new(Stage::set().await), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let (stage, done) = (Arc::clone(&stage), Arc::clone(&done));
            tokio::spawn(async move {
                let mut asked: usize = 0;
                loop {
                    // The last one is asked when all is done, and so it meets the last freeze.
                    let is_last = asked >= 24 && done.load(Ordering::Relaxed);
                    let ask = named(changing(), &format!("call-{caller}-{asked}"));
                    stage.ask(&ask).await.expect(200);
                    asked += 1;
                    if is_last {
                        return asked;
                    }
                }
            })
        })
        .collect();
    for verb in ["freeze", "unfreeze", "freeze", "unfreeze", "freeze"] {
        tokio::time::sleep(Duration::from_millis(15)).await;
        stage.set_standing(&stage.agent, verb).await.expect(200);
    }
    done.store(true, Ordering::Relaxed);
    let asked: usize = join_all(callers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(stage.count("decision").await, asked);
    assert_no_allow_while_frozen(&stage.entries().await);
    stage.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_sets_quotas_without_rest_keeps_no_policy_out() {
    let stage = Arc::new(Stage::set().await);
    let policy = |name: &str, n: usize| {
        format!(
            "@id(\"{name}-{n}\") forbid (principal, action, resource) when {{ context.trust.rank == {n} }};"
        )
    };
    let many = |name: &str| (0..200).map(|n| policy(name, n)).collect::<Vec<_>>().join("\n");
    let done = Arc::new(AtomicBool::new(false));
    let setters: Vec<_> = (0..4)
        .map(|setter| {
            let (stage, done) = (Arc::clone(&stage), Arc::clone(&done));
            tokio::spawn(async move {
                let path = format!("/v1/agents/{}/quota", stage.agent.id);
                let mut capacity = setter + 1;
                while !done.load(Ordering::Relaxed) {
                    stage.clock.advance_millis(1);
                    capacity += 4;
                    let body = json!({"bucket": {"capacity": capacity, "refill_per_second": 1}});
                    stage.admin("PUT", &path, &body).await.expect(200);
                }
                assert!(capacity > setter + 5, "it has set no more than one");
            })
        })
        .collect();
    for name in ["first", "second", "third"] {
        let body = json!({"cedar": many(name)});
        let path = format!("/v1/policies/{name}");
        stage.admin("PUT", &path, &body).await.expect(201);
    }
    done.store(true, Ordering::Relaxed);
    for setter in setters {
        setter.await.unwrap();
    }
    stage.assert_sound().await;
}

fn assert_no_allow_while_frozen(entries: &[store::StoredEntry]) {
    let (mut frozen, mut denied) = (false, 0);
    for entry in entries {
        let body: Value = serde_json::from_str(&entry.body).unwrap();
        match entry.kind.as_str() {
            "agent_frozen" => frozen = true,
            "agent_unfrozen" => frozen = false,
            "decision" => {
                assert_eq!(
                    frozen,
                    body["reason_code"] == "agent_frozen",
                    "entry {}: {body}",
                    entry.seq
                );
                denied += usize::from(frozen);
            }
            _ => {}
        }
    }
    assert!(denied > 0, "no ask met the freeze");
}
