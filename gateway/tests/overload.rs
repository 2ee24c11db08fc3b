//! More asks than a gateway can answer: who is sent away, who is not, and when an answer is of no use any more.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what it shares")]
#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use futures_util::future::{Either, FutureExt, join_all, select};
use gateway::admission::Occupancy;
use gateway::changes::{By, Force, Order, Plan};
use gateway::gateway::{FixedBounds, Options};
use model::{Directory, TenantId};
use serde_json::{Value, json};
use stage::{Stage, changing, named, reading};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::faults::{At, Fault};
use support::{Held, Reply, until};
use tokio::task::JoinHandle;

/// How long a slow commit takes. What comes meanwhile has to wait.
const SLOW: Duration = Duration::from_millis(600);
/// Longer than asks may take before there are fewer places.
const LONG: Duration = Duration::from_millis(100);
/// How long asks have to take, as many as tell something, before there are fewer places.
const STOOD_STILL: Duration = Duration::from_millis(380);
/// How many places a tenant alone may have of those that [`few`] leaves.
const PLACES: usize = 8;
/// How many readers nobody lists with.
const READERS_LEFT: usize = 2;
/// How many requests of a tenant wait to read.
const READS_WAITING: usize = 256;
/// How many changes of a tenant alone wait to be recorded, but for those of its directory.
const CHANGES: usize = 128;
/// How many look at once whether a tenant is still what they know.
const LOOKS: usize = 4;
/// Where a ledger has the headers of its first entries.
const BUNDLE: &str = "/v1/ledger/tile/entries/000.p/3";

/// A gateway that is busy with one commit until that is let go, and the ask that is in it.
async fn busy(options: Options) -> (Arc<Stage>, JoinHandle<Reply>) {
    let stage = Arc::new(Stage::set_with(options).await);
    stage.faults.plan([Fault::Hold]);
    let first = ask(&stage, 0);
    until(|| stage.faults.held() == 1).await;
    (stage, first)
}

/// Lets the commit go when it has been slow.
async fn let_go_late(stage: &Stage) {
    tokio::time::sleep(SLOW).await;
    stage.faults.let_go();
}

fn ask(stage: &Arc<Stage>, n: usize) -> JoinHandle<Reply> {
    let stage = Arc::clone(stage);
    tokio::spawn(async move { stage.ask(&named(changing(), &format!("call-{n}"))).await })
}

fn post(stage: &Arc<Stage>, path: &str, body: Value) -> JoinHandle<Reply> {
    let (stage, path) = (Arc::clone(stage), path.to_owned());
    tokio::spawn(async move { stage.post(&path, &stage.agent.token, &body).await })
}

fn post_as(stage: &Arc<Stage>, key: &str, path: &str, body: Value) -> JoinHandle<Reply> {
    let (stage, key, path) = (Arc::clone(stage), key.to_owned(), path.to_owned());
    tokio::spawn(async move { stage.post(&path, &key, &body).await })
}

fn get(stage: &Arc<Stage>, path: &str, token: &str) -> JoinHandle<Reply> {
    let (stage, path, token) = (Arc::clone(stage), path.to_owned(), token.to_owned());
    tokio::spawn(async move { stage.get(&path, &token).await })
}

/// So many asks at once, beside a commit that is held: all places that their tenant may have are taken, and the others
/// were refused.
async fn flood(stage: &Arc<Stage>, count: usize) -> Vec<JoinHandle<Reply>> {
    let taken = || stage.gateway.admission.occupancy().taken;
    let refused = taken() + count - PLACES;
    let asks: Vec<_> = (1..=count).map(|n| ask(stage, n)).collect();
    let finished = || asks.iter().filter(|ask| ask.is_finished()).count();
    until(|| stage.faults.held() == 1 && finished() == refused && taken() == PLACES).await;
    asks
}

fn few() -> Options {
    Options {
        bounds: FixedBounds {
            queue_max: 16,
            batch_max: 4,
            // Bodies are held until a test sends them.
            body_time_max: Duration::from_mins(5),
            ..FixedBounds::default()
        },
        ..Options::default()
    }
}

async fn ask_within(stage: &Stage, millis: &str) -> Reply {
    stage
        .call("POST", "/v1/authorize", &stage.agent.token)
        .header("x-request-timeout-ms", millis)
        .json(&changing())
        .send()
        .await
}

#[tokio::test]
async fn an_answer_that_would_come_too_late_is_refused_and_not_recorded() {
    let (stage, first) = busy(Options::default()).await;
    let (late, ()) = tokio::join!(ask_within(&stage, "50"), let_go_late(&stage));
    late.problem(503, "deadline_exceeded");
    assert_eq!(late.headers["retry-after"], "1");
    first.await.unwrap().expect(200);
    assert_eq!(stage.count("decision").await, 1);
    // The slow commit is what is expected of the next one. Whoever can wait for that is answered.
    ask_within(&stage, "60000").await.expect(200);
    assert_eq!(stage.count("decision").await, 2);
    stage.assert_sound().await;
}

/// A refusal takes no time. With many of them an overload would look like none.
#[tokio::test]
async fn what_is_refused_at_once_is_not_taken_for_asks_that_take_no_time() {
    // More than it takes to say something.
    const REFUSED: usize = 40;
    let stage = Stage::set().await;
    let token = &stage.agent.token;
    let quota = json!({"bucket": {"capacity": 1, "refill_per_second": 0}});
    let path = format!("/v1/agents/{}/quota", stage.agent.id);
    stage.admin("PUT", &path, &quota).await.expect(200);
    stage.ask(&named(changing(), "the-last")).await.expect(200);
    let (limited, wrong) = (named(changing(), "late"), json!({"tool_call": 7}));
    for (path, body, status) in [
        ("/v1/authorize", limited.clone(), 429),
        ("/v1/authorize", wrong.clone(), 400),
        ("/v1/authorize/batch", json!({"asks": [limited, wrong]}), 200),
        ("/v1/decide", wrong, 400),
        ("/access/v1/evaluation", json!({"subject": 7}), 400),
    ] {
        for _ in 0..2 {
            for _ in 0..REFUSED {
                stage.post(path, token, &body).await.expect(status);
            }
            assert_eq!(stage.gateway.admission.usual(), None, "{path}: {status}");
            tokio::time::sleep(LONG).await;
        }
    }
    assert_eq!(stage.gateway.admission.occupancy().taken, 0);
}

#[tokio::test]
async fn one_slow_commit_does_not_send_everybody_away_for_good() {
    let (stage, first) = busy(Options::default()).await;
    let_go_late(&stage).await;
    first.await.unwrap().expect(200);
    let mut refused = 0;
    while ask_within(&stage, "500").await.status != 200 {
        refused += 1;
        assert!(refused < 100, "nobody gets in any more");
    }
    assert!(refused > 0, "the slow commit was not believed");
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_batch_has_one_deadline() {
    let (stage, first) = busy(Options::default()).await;
    let batch = json!({"asks": [changing(), changing()]});
    let late = stage
        .call("POST", "/v1/authorize/batch", &stage.agent.token)
        .header("x-request-timeout-ms", "50")
        .json(&batch)
        .send();
    let (late, ()) = tokio::join!(late, let_go_late(&stage));
    late.problem(503, "deadline_exceeded");
    first.await.unwrap().expect(200);
    assert_eq!(stage.count("decision").await, 1);
}

#[tokio::test]
async fn who_cannot_wait_any_more_when_the_turn_has_come_is_refused_and_the_others_are_answered() {
    let stage = Arc::new(Stage::set().await);
    stage.faults.plan([Fault::Hold, Fault::Hold]);
    let first = ask(&stage, 0);
    until(|| stage.faults.held() == 1).await;
    let patient = ask(&stage, 1);
    // Whether there is a budget for it is looked for in a turn, and that is what is held.
    let mut costly = changing();
    costly["estimate"] = json!({"unit": "TOKENS", "amount": 1});
    let hasty = stage
        .call("POST", "/v1/authorize", &stage.agent.token)
        .header("x-request-timeout-ms", "1000")
        .json(&costly)
        .send();
    let letting_go = async {
        until(|| stage.gateway.sequencer.waiting() == 2).await;
        stage.faults.let_go();
        until(|| stage.gateway.sequencer.waiting() == 0 && stage.faults.held() == 1).await;
        tokio::time::sleep(2 * SLOW).await;
        stage.faults.let_go();
    };
    let (late, ()) = tokio::join!(hasty, letting_go);
    late.problem(503, "deadline_exceeded");
    first.await.unwrap().expect(200);
    patient.await.unwrap().expect(200);
    assert_eq!(stage.count("decision").await, 2);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_deadline_that_is_none_is_refused() {
    let stage = Stage::set().await;
    for millis in ["0", "-5", "soon", "600001"] {
        ask_within(&stage, millis).await.problem(400, "invalid_parameter");
    }
    assert_eq!(stage.count("decision").await, 0);
}

#[tokio::test]
async fn whoever_sends_slowly_has_no_place_and_takes_none_away() {
    let stage = Stage::set_with(few()).await;
    let mut waiting = Vec::new();
    for number in 0..40 {
        let (path, body) = if number % 2 == 0 {
            ("/v1/authorize", named(changing(), &format!("slow-{number}")))
        } else {
            ("/v1/authorize/batch", json!({"asks": [changing()]}))
        };
        let call = stage.call("POST", path, &stage.agent.token).json(&body);
        waiting.push(call.hold().await);
    }
    let all_free = Occupancy { taken: 0, max: 16 };
    assert_eq!(stage.gateway.admission.occupancy(), all_free);
    stage.ask(&changing()).await.expect(200);
    // So long an ask would be a sign of too many places.
    tokio::time::sleep(LONG).await;
    let begin = Instant::now();
    for held in waiting {
        held.finish().await.expect(200);
    }
    let places = stage.gateway.admission.occupancy();
    // Where the machine stands still, asks do take long.
    let may_be_fewer = places.taken == 0 && begin.elapsed() > STOOD_STILL;
    assert!(places == all_free || may_be_fewer, "{places:?}");
}

/// An ask whose body is on its way. Nobody is told how long it is, so it may become as long as any.
async fn slow(stage: &Stage, token: &str, number: usize) -> Held {
    let ask = named(changing(), &format!("slow-{number}"));
    let call = stage.call("POST", "/v1/authorize", token).json(&ask);
    call.hold().await
}

#[tokio::test]
async fn bodies_on_their_way_have_so_much_room_together_and_half_of_it_the_agents_of_a_tenant() {
    let stage = Stage::set_with(few()).await;
    let other = stage.tenancy("quiet").await;
    let token = &stage.agent.token;
    let mut waiting = Vec::new();
    // Half of 64 MiB, 256 KiB each.
    for number in 0..128 {
        waiting.push(slow(&stage, token, number).await);
    }
    let refused = slow(&stage, token, 128).await.refused().await;
    assert_eq!(refused.expect(503)["code"], "overloaded");
    assert_eq!(refused.headers["retry-after"], "1");
    // Whoever has to stop them has room of its own.
    for verb in ["freeze", "unfreeze"] {
        let path = format!("/v1/agents/{}/{verb}", stage.agent.id);
        let call = stage.call("POST", &path, &stage.operator).tenant(stage.tenant);
        let change = call.json(&json!({"reason": "a test"})).hold().await;
        change.finish().await.expect(200);
    }
    // What is there at once needs none, and there is some for others.
    let call = stage.call("POST", "/v1/authorize", token).json(&changing());
    Reply::of(call.respond().await).await.expect(200);
    let beside = slow(&stage, &other.token, 0).await;
    beside.finish().await.expect(200);
    waiting.pop().unwrap().finish().await.expect(200);
    let later = slow(&stage, token, 129).await;
    later.finish().await.expect(200);
    stage.assert_sound().await;
}

/// This ask with a canonical text of 616 kB, which is more than a body may have: in that, numbers are shorter.
fn with_long_text(mut ask: Value) -> Value {
    ask["context"]["attributes"] = json!({"numbers": vec![1e20; 28_000]});
    ask
}

#[tokio::test]
async fn long_asks_that_are_not_answered_have_so_much_room_together_and_half_of_it_the_agents_of_a_tenant() {
    /// How many have half of 64 MiB.
    const KEPT: usize = 54;
    /// How much each of them takes at least.
    const LONG_TEXT: usize = 616_000;
    let stage = Arc::new(Stage::set().await);
    let other = stage.tenancy("quiet").await;
    let mut long = with_long_text(changing());
    // It is looked up before anything is judged, and there it is held.
    long["approval_id"] = json!("apr_00000000000000000000000000");
    stage.faults.hold_at(At::Approvals, true);
    let first = post(&stage, "/v1/authorize", long.clone());
    until(|| stage.faults.held_at(At::Approvals) == 1).await;
    // What the others take: they would wait for the first, and not for as long as this may take.
    let bounds = gateway::http::json::Bounds::of(&stage.gateway.options).of_agents_of(stage.tenant);
    let of_others = bounds.keep((KEPT - 1) * LONG_TEXT).unwrap();
    // Which leaves less than several evaluations take that are short but for their defaults.
    long["context"]["attributes"] = json!({"note": "x".repeat(200_000)});
    let last = post(&stage, "/v1/authorize", long.clone());
    until(|| stage.faults.held_at(At::Approvals) == 2).await;
    let several = json!({
        "subject": {"type": "agent", "id": "builder"},
        "action": {"name": "create_issue", "properties": {"text": "x".repeat(2_000)}},
        "resource": {"type": "tool", "id": "github"},
        "context": {"countersign": {"source_trust": "trusted_internal_unsigned"}},
        "evaluations": vec![json!({}); 100],
    });
    for (path, body) in [
        ("/v1/authorize", long.clone()),
        ("/v1/decide", long.clone()),
        (
            "/v1/authorize/batch",
            json!({"asks": [with_long_text(changing())]}),
        ),
        ("/access/v1/evaluations", several),
    ] {
        let refused = stage.post(path, &stage.agent.token, &body).await;
        refused.problem(503, "overloaded");
        assert_eq!(refused.headers["retry-after"], "1", "{path}");
    }
    // What is short needs none, also where its body has to be waited for, and there is some for others.
    stage.ask(&changing()).await.expect(200);
    let waited_for = slow(&stage, &stage.agent.token, 0).await;
    waited_for.finish().await.expect(200);
    let beside = with_long_text(support::tenancy::reading());
    stage.authorize(&other.token, &beside).await;
    stage.faults.hold_at(At::Approvals, false);
    drop(of_others);
    for asked in [first, last] {
        asked.await.unwrap().problem(409, "approval_not_usable");
    }
    stage.ask(&with_long_text(changing())).await.expect(200);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_tenant_that_floods_leaves_room_for_the_others() {
    let stage = Arc::new(Stage::set_with(few()).await);
    let other = stage.tenancy("quiet").await;
    stage.faults.plan([Fault::Hold]);
    let flood = flood(&stage, 40).await;
    let reading = support::tenancy::reading();
    let quiet = join_all((0..3).map(|_| stage.authorize(&other.token, &reading)));
    let letting_go = async {
        until(|| stage.gateway.admission.occupancy().taken == PLACES + 3).await;
        stage.faults.let_go();
    };
    let (quiet, ()) = tokio::join!(quiet, letting_go);
    for reply in quiet {
        reply.expect(200);
    }
    let mut answered = 0;
    for reply in join_all(flood).await {
        let reply = reply.unwrap();
        match reply.status.as_u16() {
            200 => answered += 1,
            _ => drop(reply.problem(503, "overloaded")),
        }
    }
    assert_eq!(answered, PLACES);
    stage.assert_sound().await;
}

#[tokio::test]
async fn whoever_finds_no_place_is_refused_before_the_body_is_read() {
    let (stage, first) = busy(few()).await;
    let flood = flood(&stage, 40).await;
    let all_taken = Occupancy { taken: 8, max: 16 };
    assert_eq!(stage.gateway.admission.occupancy(), all_taken);
    let refused = stage
        .call("POST", "/v1/authorize", &stage.agent.token)
        .body("no JSON")
        .send()
        .await;
    refused.problem(503, "overloaded");
    assert_eq!(refused.headers["retry-after"], "1");
    stage.faults.let_go();
    first.await.unwrap().expect(200);
    let answers = join_all(flood).await.into_iter().map(Result::unwrap);
    assert_eq!(answers.filter(|reply| reply.status == 200).count(), 7);
    assert_eq!(stage.gateway.admission.occupancy().taken, 0);
    assert_eq!(stage.count("decision").await, 8);
    stage.assert_sound().await;
}

#[tokio::test]
async fn whoever_goes_away_leaves_a_place_and_is_recorded_all_the_same() {
    let (stage, first) = busy(few()).await;
    let asks = flood(&stage, 7).await;
    until(|| stage.gateway.sequencer.waiting() == 7).await;
    for ask in asks {
        ask.abort();
    }
    let taken = || stage.gateway.admission.occupancy().taken;
    until(|| taken() == 1).await;
    let again = ask(&stage, 100);
    until(|| taken() == 2).await;
    stage.faults.let_go();
    first.await.unwrap().expect(200);
    again.await.unwrap().expect(200);
    assert_eq!(stage.count("decision").await, 9);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_flood_of_asks_keeps_nobody_from_freezing_the_agent() {
    let (stage, first) = busy(few()).await;
    let flood = flood(&stage, 40).await;
    let letting_go = async {
        until(|| stage.gateway.sequencer.waiting() == PLACES).await;
        stage.faults.let_go();
    };
    let (frozen, ()) = tokio::join!(stage.set_standing(&stage.agent, "freeze"), letting_go);
    frozen.expect(200);
    first.await.unwrap().expect(200);
    // What waited was judged before the freeze, and is recorded behind it: as denied.
    let answers: Vec<_> = join_all(flood).await.into_iter().map(Result::unwrap).collect();
    let waited: Vec<_> = answers.iter().filter(|reply| reply.status == 200).collect();
    assert_eq!(waited.len(), PLACES - 1);
    for reply in waited {
        assert_eq!(reply.json()["reason_code"], "agent_frozen");
    }
    stage.assert_sound().await;
}

/// Nor anybody of its own.
#[tokio::test]
async fn a_crowd_of_changes_in_one_tenant_keeps_nobody_of_another_from_freezing() {
    const REFUSED: usize = 10;
    let stage = Arc::new(Stage::set().await);
    let other = stage.tenancy("quiet").await;
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 5});
    let budget = stage.admin("POST", "/v1/budgets", &budget).await.expect(201);
    let fund = format!("/v1/budgets/{}/fund", budget["id"].as_str().unwrap());
    stage.faults.plan([Fault::Hold]);
    let first = ask(&stage, 0);
    until(|| stage.faults.held() == 1).await;
    let funding = |_| {
        let (stage, fund) = (Arc::clone(&stage), fund.clone());
        tokio::spawn(async move { stage.admin("POST", &fund, &json!({"amount": 1})).await })
    };
    let funds: Vec<_> = (0..CHANGES + REFUSED).map(funding).collect();
    let finished = || funds.iter().filter(|fund| fund.is_finished()).count();
    let waiting = || stage.gateway.sequencer.waiting();
    until(|| finished() == REFUSED && waiting() == CHANGES).await;

    let path = format!("/v1/agents/{}/freeze", other.agent);
    let why = json!({"reason": "a test"});
    let others = stage.call("POST", &path, &stage.operator).tenant(other.id);
    let letting_go = async {
        until(|| waiting() == CHANGES + 2).await;
        stage.faults.let_go();
    };
    let (own, others, ()) = tokio::join!(
        stage.set_standing(&stage.agent, "freeze"),
        others.json(&why).send(),
        letting_go
    );
    own.expect(200);
    others.expect(200);
    first.await.unwrap().expect(200);
    let mut made = 0;
    for reply in join_all(funds).await {
        let reply = reply.unwrap();
        if reply.status == 200 {
            made += 1;
        } else {
            assert_eq!(reply.expect(503)["code"], "overloaded");
        }
    }
    assert_eq!(made, CHANGES);
    stage.assert_sound().await;
}

#[tokio::test]
async fn lists_of_one_tenant_leave_readers_to_others_and_a_long_line_is_refused() {
    const REFUSED: usize = 10;
    let stage = Arc::new(Stage::set().await);
    let other = stage.tenancy("quiet").await;
    let at_once = stage.store.readers() - READERS_LEFT;
    stage.faults.hold_at(At::Lists, true);
    let count = at_once + READS_WAITING + REFUSED;
    let lists: Vec<_> = (0..count)
        .map(|_| get(&stage, "/v1/approvals", &stage.agent.token))
        .collect();
    let finished = || lists.iter().filter(|list| list.is_finished()).count();
    until(|| finished() >= REFUSED && stage.faults.held_at(At::Lists) == at_once).await;
    let mut ask = support::tenancy::reading();
    ask["approval_id"] = json!("apr_00000000000000000000000000");
    let asked = stage.post("/v1/authorize", &other.token, &ask).await;
    asked.problem(409, "approval_not_usable");
    let ready = stage.get("/readyz", "").await;
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert_eq!(stage.faults.held_at(At::Lists), at_once);
    // Whoever has to stop the agents that do this.
    let of_people = {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            let call = stage.call("GET", "/v1/approvals", &stage.operator);
            call.tenant(stage.tenant).send().await
        })
    };
    tokio::time::sleep(LONG).await;
    assert!(!of_people.is_finished(), "it waits, and is not refused");
    stage.faults.hold_at(At::Lists, false);
    of_people.await.unwrap().expect(200);
    let replies = join_all(lists).await.into_iter().map(Result::unwrap);
    let (listed, refused): (Vec<_>, Vec<_>) = replies.partition(|reply| reply.status == 200);
    for reply in &refused {
        reply.problem(503, "overloaded");
        assert_eq!(reply.headers["retry-after"], "5");
    }
    // On a machine that stands still, those that waited are refused as well.
    assert!(
        refused.len() >= REFUSED && listed.len() >= at_once,
        "{}",
        refused.len()
    );
}

/// What an approval takes to be read is up to whoever has asked for it, and a batch names a hundred.
#[tokio::test]
async fn asks_that_have_something_looked_up_wait_in_a_line_in_which_tenants_take_turns() {
    let stage = Arc::new(Stage::set().await);
    let other = stage.tenancy("quiet").await;
    let look_ups = &stage.gateway.look_ups;
    let at_once = stage.store.readers() - READERS_LEFT;
    let mut taken = join_all((0..at_once).map(|_| look_ups.acquire(stage.tenant))).await;
    let naming_one = |mut ask: Value| {
        ask["approval_id"] = json!("apr_00000000000000000000000000");
        ask
    };
    let ask = naming_one(reading());
    let looked_up = post(&stage, "/v1/authorize", ask.clone());
    let left = post(&stage, "/v1/authorize", ask.clone());
    let in_batch = post(&stage, "/v1/authorize/batch", json!({"asks": [ask.clone()]}));
    let others = post_as(
        &stage,
        &other.token,
        "/v1/authorize",
        naming_one(support::tenancy::reading()),
    );
    let waiting = || (look_ups.waiting_of(stage.tenant), look_ups.waiting_of(other.id));
    until(|| waiting() == (3, 1)).await;
    // Nobody else waits with them.
    stage.ask(&reading()).await.expect(200);
    stage.ask(&named(changing(), "call-1")).await.expect(200);
    let ready = stage.get("/readyz", "").await;
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert_eq!(waiting(), (3, 1));
    // Whoever does not wait that long is told so.
    let hurried = stage.call("POST", "/v1/authorize", &stage.agent.token);
    let hurried = hurried.header("x-request-timeout-ms", "50").json(&ask);
    hurried.send().await.problem(503, "deadline_exceeded");
    // Who hangs up has no place any more.
    left.abort();
    until(|| waiting() == (2, 1)).await;
    // With one place free, the other tenant goes before what is left of the first.
    stage.faults.hold_at(At::Approvals, true);
    drop(taken.pop());
    until(|| stage.faults.held_at(At::Approvals) == 1).await;
    assert_eq!(waiting(), (2, 0));
    stage.faults.hold_at(At::Approvals, false);
    others.await.unwrap().problem(409, "approval_not_usable");
    looked_up.await.unwrap().problem(409, "approval_not_usable");
    let answers = in_batch.await.unwrap().expect(200);
    assert_eq!(answers["answers"][0]["code"], "approval_not_usable");
    assert_eq!(waiting(), (0, 0));
    drop(taken);
    stage.assert_sound().await;
}

/// Whether a refused ask was answered before may be asked as often as one likes, and so may what a run has seen.
#[tokio::test]
async fn what_was_answered_before_and_the_run_of_an_observation_are_looked_up_in_line() {
    let stage = Arc::new(Stage::set().await);
    let mut ask = named(reading(), "call-1");
    ask["agent"] = json!({"id": "agt_00000000000000000000000000"});
    let look_ups = &stage.gateway.look_ups;
    let at_once = stage.store.readers() - READERS_LEFT;
    let taken = join_all((0..at_once).map(|_| look_ups.acquire(stage.tenant))).await;
    let refused = post(&stage, "/v1/authorize", ask);
    let seen = json!({"source_trust": "trusted_internal_unsigned"});
    let observed = post(&stage, "/v1/runs/run-1/observations", seen);
    until(|| look_ups.waiting_of(stage.tenant) == 2).await;
    drop(taken);
    refused.await.unwrap().problem(403, "agent_mismatch");
    observed.await.unwrap().expect(201);
    stage.assert_sound().await;
}

/// It takes a reader from those who ask as a list does.
#[tokio::test]
async fn what_is_read_before_an_outcome_or_an_extension_waits_in_line() {
    let stage = Arc::new(Stage::set().await);
    let decided = stage.ask(&reading()).await.expect(200);
    let at_once = stage.store.readers() - READERS_LEFT;
    stage.faults.hold_at(At::Lists, true);
    let lists: Vec<_> = (0..at_once)
        .map(|_| get(&stage, "/v1/approvals", &stage.agent.token))
        .collect();
    until(|| stage.faults.held_at(At::Lists) == at_once).await;
    let decision = decided["decision_id"].as_str().unwrap();
    let outcome = format!("/v1/decisions/{decision}/outcome");
    let reported = post(&stage, &outcome, json!({"status": "not_executed"}));
    let extend = "/v1/reservations/rsv_00000000000000000000000000/extend";
    let extended = post(&stage, extend, json!({"ttl_ms": 60_000}));
    tokio::time::sleep(LONG).await;
    assert!(!reported.is_finished() && !extended.is_finished());
    stage.faults.hold_at(At::Lists, false);
    reported.await.unwrap().expect(201);
    assert_eq!(extended.await.unwrap().expect(404)["code"], "not_found");
    for list in lists {
        list.await.unwrap().expect(200);
    }
}

/// An approval has all parameters of its ask, and budgets are counted one by one.
#[tokio::test]
async fn what_is_read_for_a_trial_a_new_budget_and_the_answer_to_a_vote_waits_in_line() {
    let stage = Arc::new(Stage::set().await);
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let ann = stage.admin("POST", "/v1/keys", &key).await.expect(201);
    let ann = ann["key"].as_str().unwrap().to_owned();
    let mut ask = json!({
        "tool_call": {"tool": "github", "action": "merge_pull_request", "resource": "repo:acme/widgets#42",
                      "parameters": {"number": 42, "base_branch": "main"}},
        "context": {"source_trust": "trusted_internal_unsigned"},
    });
    let asked = stage.ask(&ask).await.expect(200);
    let approval = asked["approval"]["id"].as_str().unwrap().to_owned();
    ask["approval_id"] = json!(approval);
    ask["agent"] = json!({"id": stage.agent.id});
    let at_once = stage.store.readers() - READERS_LEFT;
    stage.faults.hold_at(At::Lists, true);
    let list = || get(&stage, "/v1/approvals", &ann);
    let lists: Vec<_> = (0..at_once).map(|_| list()).collect();
    until(|| stage.faults.held_at(At::Lists) == at_once).await;
    let vote = format!("/v1/approvals/{approval}/approve");
    let voted = post_as(&stage, &ann, &vote, json!({"reason": "looked at it"}));
    let (editor, admin) = (role(&stage, "policy_editor").await, role(&stage, "admin").await);
    let tried = post_as(&stage, &editor, "/v1/policies/try", json!({"asks": [ask]}));
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 100});
    let made = post_as(&stage, &admin, "/v1/budgets", budget);
    // A vote itself waits for nothing.
    let recorded = async {
        while stage.count("approval_approved").await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), recorded)
        .await
        .unwrap();
    tokio::time::sleep(LONG).await;
    assert!(!voted.is_finished(), "it was answered beside them");
    assert!(!tried.is_finished(), "it was tried beside them");
    assert!(!made.is_finished(), "it was made beside them");
    stage.faults.hold_at(At::Lists, false);
    assert_eq!(voted.await.unwrap().expect(200)["id"], approval);
    let tried = tried.await.unwrap().expect(200);
    assert_eq!(tried["results"][0]["decision"], "allow");
    made.await.unwrap().expect(201);
    for list in lists {
        list.await.unwrap().expect(200);
    }
}

/// A new key of the tenant's with this role.
async fn role(stage: &Stage, role: &str) -> String {
    let key = json!({"name": role, "role": role});
    let key = stage.admin("POST", "/v1/keys", &key).await.expect(201);
    key["key"].as_str().unwrap().to_owned()
}

/// Its caller would send it again, and one more core would compile beside the one before.
#[tokio::test]
async fn a_reload_that_nobody_waits_for_any_more_is_finished() {
    let stage = Stage::set().await;
    let body = json!({});
    let reload = || stage.post("/v1/policies/reload", &stage.operator, &body);
    // From here on a reload of the same looks, in a turn, whether they are still the last.
    reload().await.expect(200);
    let turns = stage.faults.turns();
    stage.faults.plan([Fault::Hold]);
    {
        let (left, held) = (pin!(reload()), pin!(until(|| stage.faults.held() == 1)));
        assert!(matches!(select(left, held).await, Either::Right(_)));
    }
    stage.faults.let_go();
    until(|| stage.faults.turns() > turns).await;
}

/// A change that changes nothing.
fn change_nothing(stage: &Stage) -> JoinHandle<()> {
    let (gateway, tenant) = (Arc::clone(&stage.gateway), stage.tenant);
    tokio::spawn(async move {
        let plan = |_: &Directory, _| Ok(Plan::nothing(()));
        let changed = gateway.change_in(Order::AtOnce, By::Start, Force::No, tenant, plan);
        changed.await.unwrap();
    })
}

/// Has somebody hang up whose change of nothing looks at the store, which is slow to answer.
async fn hang_up_in_a_look(stage: &Stage) {
    stage.faults.plan([Fault::Hold]);
    let gone = change_nothing(stage);
    until(|| stage.faults.held() == 1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
}

/// It waits in the server whoever hangs up.
#[tokio::test]
async fn a_look_that_nobody_waits_for_any_more_keeps_its_place_until_it_is_over() {
    let stage = Stage::set().await;
    let locks = &stage.gateway.change_locks;
    hang_up_in_a_look(&stage).await;
    let others = join_all((1..LOOKS).map(|_| locks.look())).await;
    let mut next = pin!(locks.look());
    assert!(next.as_mut().now_or_never().is_none(), "it was given away");
    stage.faults.let_go();
    drop((next.await, others));
}

/// It would have the places of all tenants one after the other.
#[tokio::test]
async fn a_tenant_whose_callers_hang_up_has_one_look_at_a_time() {
    let stage = Stage::set().await;
    let locks = &stage.gateway.change_locks;
    hang_up_in_a_look(&stage).await;
    let mut next = pin!(locks.lock(stage.tenant, Order::AtOnce));
    assert!(next.as_mut().now_or_never().is_none(), "it looks beside it");
    stage.faults.let_go();
    drop(next.await.unwrap());
}

/// Each takes a turn, and may wait in it for another gateway that stands still.
#[tokio::test]
async fn changes_that_change_nothing_leave_turns_to_commits() {
    let stage = Arc::new(Stage::set().await);
    let taken = join_all((0..LOOKS).map(|_| stage.gateway.change_locks.look())).await;
    let nothing = change_nothing(&stage);
    tokio::time::sleep(LONG).await;
    assert!(!nothing.is_finished(), "it took a turn beside so many");
    ask(&stage, 0).await.unwrap().expect(200);
    drop(taken);
    nothing.await.unwrap();
}

#[tokio::test]
async fn a_list_that_nobody_waits_for_any_more_keeps_its_place_until_it_is_read() {
    let stage = Arc::new(Stage::set().await);
    let at_once = stage.store.readers() - READERS_LEFT;
    let list = || get(&stage, "/v1/approvals", &stage.agent.token);
    stage.faults.hold_at(At::Lists, true);
    let left: Vec<_> = (0..at_once).map(|_| list()).collect();
    until(|| stage.faults.held_at(At::Lists) == at_once).await;
    for list in left {
        list.abort();
    }
    let later = list();
    tokio::time::sleep(LONG).await;
    assert_eq!(stage.faults.held_at(At::Lists), at_once);
    stage.faults.hold_at(At::Lists, false);
    later.await.unwrap().expect(200);
}

/// Of what is read for it only headers are wanted, and the bodies may have megabytes each.
#[tokio::test]
async fn a_bundle_of_entries_takes_no_place_of_a_list_and_is_left_with_its_caller() {
    let stage = Arc::new(Stage::set().await);
    let auditor = role(&stage, "auditor").await;
    let at_once = stage.store.readers() - READERS_LEFT;
    let line = &stage.gateway.ledger_chunks;
    let is_taken = || {
        let place = line.acquire_for_part(TenantId::SYSTEM);
        place.now_or_never().is_none()
    };
    stage.faults.hold_at(At::Entries, true);
    let bundles: Vec<_> = (0..=at_once).map(|_| get(&stage, BUNDLE, &auditor)).collect();
    let is_read = || stage.faults.held_at(At::Entries) == 1;
    until(|| line.waiting_of(stage.tenant) == at_once && is_read()).await;
    let list = stage.get("/v1/approvals", &stage.agent.token).await;
    list.expect(200);
    for bundle in bundles {
        bundle.abort();
    }
    until(|| line.waiting_of(stage.tenant) == 0).await;
    // What has begun in the store goes on there.
    assert!(is_taken(), "it was given away");
    stage.faults.hold_at(At::Entries, false);
    until(|| !is_taken()).await;
}

#[tokio::test]
async fn a_bundle_of_entries_whose_key_is_deleted_in_line_is_not_read() {
    let stage = Arc::new(Stage::set().await);
    let auditor = hire_auditor(&stage).await;
    let line = &stage.gateway.ledger_chunks;
    let place = line.acquire_for_part(TenantId::SYSTEM).await;
    let late = get(&stage, BUNDLE, auditor["key"].as_str().unwrap());
    until(|| line.waiting_of(stage.tenant) == 1).await;
    let path = format!("/v1/keys/{}", auditor["id"].as_str().unwrap());
    let delete = stage.call("DELETE", &path, &stage.operator).tenant(stage.tenant);
    delete.send().await.expect(204);
    drop(place);
    late.await.unwrap().problem(401, "invalid_token");
}

#[tokio::test]
async fn whoever_waits_for_people_or_takes_a_list_slowly_keeps_nobody_from_reading() {
    let stage = Arc::new(Stage::set().await);
    let other = stage.tenancy("waiting").await;
    let merging = support::tenancy::merging();
    let asked = stage.authorize(&other.token, &merging).await.json();
    let approval = asked["approval"]["id"].as_str().unwrap();
    let path = format!("/v1/approvals/{approval}?wait=60s");
    let waiting: Vec<_> = (0..stage.store.readers())
        .map(|_| get(&stage, &path, &other.token))
        .collect();
    let mut untaken = Vec::new();
    for _ in 0..20 {
        let list = stage.call("GET", "/v1/approvals", &other.token).respond().await;
        assert_eq!(list.status(), 200);
        untaken.push(list);
    }
    for waits in waiting {
        waits.abort();
    }
}

/// A tool that makes a long answer, as it was answered when it was put.
async fn put_long_tool(stage: &Stage) -> Value {
    let schema = json!({"type": "object", "default": vec![0; 20_000]});
    let action = json!({"name": "read", "mutates_state": false, "risk": "low", "input_schema": schema});
    let tool = json!({"actions": [action]});
    let put = stage.admin("PUT", "/v1/tools/long", &tool).await;
    put.expect(201)
}

/// A new key of an auditor of the tenant.
async fn hire_auditor(stage: &Stage) -> Value {
    let body = json!({"name": "auditor", "role": "auditor", "tenant": stage.tenant.to_string()});
    stage.post("/v1/keys", &stage.operator, &body).await.expect(201)
}

/// To write one takes a core for a while, also where its caller hangs up at once.
#[tokio::test]
async fn a_long_answer_is_written_when_its_turn_has_come_and_short_ones_wait_for_none() {
    let stage = Arc::new(Stage::set().await);
    let tool = put_long_tool(&stage).await;
    let auditor = hire_auditor(&stage).await;
    let key = auditor["key"].as_str().unwrap();
    let line = &stage.gateway.long_answers;
    let turn = line.acquire(stage.tenant).await.unwrap();
    let one = get(&stage, "/v1/tools/long", key);
    let list = get(&stage, "/v1/tools", key);
    let message = {
        let (stage, key) = (Arc::clone(&stage), key.to_owned());
        tokio::spawn(async move {
            let call = stage.call("GET", "/v1/tools/long", &key);
            // Straight from the router, whatever door the tests go through.
            Reply::of(call.header("accept", "application/msgpack").respond().await).await
        })
    };
    until(|| line.waiting_of(stage.tenant) == 3).await;
    stage.get("/v1/tools/github", key).await.expect(200);
    stage.get("/v1/tools?limit=0", key).await.expect(400);
    assert!(!one.is_finished() && !list.is_finished() && !message.is_finished());
    drop(turn);

    let one = one.await.unwrap();
    assert_eq!(one.expect(200), tool);
    assert_eq!(one.headers["vary"], "Accept");
    let list = list.await.unwrap().expect(200);
    assert!(list["items"].as_array().unwrap().contains(&tool));
    assert_eq!(list["next_cursor"], Value::Null);
    let message = message.await.unwrap();
    assert_eq!(message.status, 200);
    assert_eq!(message.headers["content-type"], "application/msgpack");
    let limits = canon::Limits {
        bytes_max: 1 << 20,
        depth_max: 64,
    };
    let said = canon::canonicalize_messagepack(&message.bytes, limits).unwrap();
    assert_eq!(serde_json::from_str::<Value>(said.as_str()).unwrap(), tool);

    let mut lengths = Vec::new();
    for method in ["GET", "HEAD"] {
        let answer = stage.call(method, "/v1/tools/long", key).respond().await;
        lengths.push(answer.headers()["content-length"].clone());
    }
    assert_eq!(lengths[0], lengths[1]);
}

#[tokio::test]
async fn whose_key_is_deleted_while_a_long_answer_waits_reads_nothing() {
    let stage = Arc::new(Stage::set().await);
    put_long_tool(&stage).await;
    let auditor = hire_auditor(&stage).await;
    let line = &stage.gateway.long_answers;
    let turn = line.acquire(stage.tenant).await.unwrap();
    let late = get(&stage, "/v1/tools/long", auditor["key"].as_str().unwrap());
    until(|| line.waiting_of(stage.tenant) == 1).await;
    let path = format!("/v1/keys/{}", auditor["id"].as_str().unwrap());
    let delete = stage.call("DELETE", &path, &stage.operator).tenant(stage.tenant);
    delete.send().await.expect(204);
    drop(turn);
    late.await.unwrap().problem(401, "invalid_token");
}

#[tokio::test]
async fn whose_token_is_deleted_in_line_reads_nothing() {
    let stage = Arc::new(Stage::set().await);
    let leaving = stage.hire(json!({"name": "leaving"})).await;
    let at_once = stage.store.readers() - READERS_LEFT;
    stage.faults.hold_at(At::Lists, true);
    let lists: Vec<_> = (0..at_once)
        .map(|_| get(&stage, "/v1/approvals", &stage.agent.token))
        .collect();
    until(|| stage.faults.held_at(At::Lists) == at_once).await;
    let late = get(&stage, "/v1/approvals", &leaving.token);
    tokio::time::sleep(LONG).await;
    let tokens = format!("/v1/agents/{}/tokens", leaving.id);
    let shown = stage.call("GET", &tokens, &stage.operator).tenant(stage.tenant);
    let shown = shown.send().await.expect(200);
    let token = format!("{tokens}/{}", shown["items"][0]["id"].as_str().unwrap());
    let delete = stage.call("DELETE", &token, &stage.operator).tenant(stage.tenant);
    delete.send().await.expect(204);
    stage.faults.hold_at(At::Lists, false);
    late.await.unwrap().problem(401, "invalid_token");
    for list in lists {
        list.await.unwrap().expect(200);
    }
}
