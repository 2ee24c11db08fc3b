//! Quotas through the real router: what they allow, what counts, what those who are refused are told, and that nothing is counted
//! that was not written.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/stage.rs"]
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use futures_util::future::join_all;
use serde_json::{Value, json};
use stage::{Player, Stage, asking, changing, injected, named, reading};
use store::faults::Fault;
use support::Reply;

/// A tenant whose agent has these quotas.
async fn with_quotas(quotas: Value) -> Stage {
    let stage = Stage::set().await;
    let path = format!("/v1/agents/{}/quota", stage.agent.id);
    put(&stage, &path, quotas).await;
    stage
}

async fn put(stage: &Stage, path: &str, quotas: Value) {
    stage
        .admin("PUT", path, &json!({ "quotas": quotas }))
        .await
        .expect(200);
}

async fn ask_as(stage: &Stage, agent: &Player, ask: &Value) -> Reply {
    stage.post("/v1/authorize", &agent.token, ask).await
}

fn in_run(mut ask: Value, run: &str, parent: Option<&str>) -> Value {
    ask["trace"] = json!({"run_id": run, "parent_run_id": parent});
    ask
}

/// How much of the first quota of the asking agent is used.
async fn used(stage: &Stage) -> u64 {
    let view = stage.get("/v1/quota", &stage.agent.token).await.expect(200);
    view["quotas"][0]["used"].as_u64().unwrap()
}

#[tokio::test]
async fn a_window_allows_its_limit_and_says_when_the_next_one_begins() {
    let stage = with_quotas(json!([{"window": "hour", "limit": 2}])).await;
    for _ in 0..2 {
        assert_eq!(stage.ask(&reading()).await.expect(200)["decision"], "allow");
    }
    let head = stage.head().await;
    let refused = stage.ask(&changing()).await;
    let detail = refused.problem(429, "quota_exceeded");
    assert!(
        detail.starts_with("the agent's quota of 2 calls per hour is used up; it begins anew at "),
        "{detail}"
    );
    let wait: i64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(refused.headers["ratelimit-policy"], "\"agent-hour\";q=2;w=3600");
    assert_eq!(
        refused.headers["ratelimit"],
        format!("\"agent-hour\";r=0;t={wait}").as_str()
    );
    assert_eq!(stage.head().await, head, "a refusal is not recorded");

    stage.clock.advance_millis((wait - 1) * 1_000);
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
    stage.clock.advance_millis(1_000);
    stage.ask(&reading()).await.expect(200);
    assert_eq!(used(&stage).await, 1);
    stage.assert_sound().await;
}

#[tokio::test]
async fn only_what_is_allowed_counts() {
    let stage = with_quotas(json!([{"window": "day", "limit": 1}])).await;
    for _ in 0..3 {
        assert_eq!(stage.ask(&injected()).await.expect(200)["decision"], "deny");
    }
    assert_eq!(used(&stage).await, 0);
    let first = stage.ask(&named(reading(), "call-1")).await;
    first.expect(200);
    assert_eq!(used(&stage).await, 1);
    // What was answered before is answered again, and what would be denied still is.
    let again = stage.ask(&named(reading(), "call-1")).await;
    assert_eq!(again.text(), first.text());
    assert_eq!(stage.ask(&injected()).await.expect(200)["decision"], "deny");
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
    assert_eq!(used(&stage).await, 1);
}

#[tokio::test]
async fn what_is_only_observed_counts_where_it_would_have_been_allowed() {
    let stage = with_quotas(json!([{"window": "day", "limit": 1}])).await;
    let path = format!("/v1/tenants/{}", stage.tenant);
    let call = stage.call("PATCH", &path, &stage.operator);
    let settings = json!({"settings": {"observe": true}});
    call.json(&settings).send().await.expect(200);
    let observed = |mut ask: Value| {
        ask["mode"] = json!("observe");
        ask
    };
    for _ in 0..3 {
        assert_eq!(
            stage.ask(&observed(injected())).await.expect(200)["decision"],
            "allow"
        );
    }
    assert_eq!(used(&stage).await, 0);
    stage.ask(&observed(reading())).await.expect(200);
    assert_eq!(used(&stage).await, 1);
    let full = stage.ask(&observed(reading())).await;
    full.problem(429, "quota_exceeded");
    let denied = stage.ask(&observed(injected())).await.expect(200);
    assert_eq!(denied["would_have"]["decision"], "deny");
    assert_eq!(used(&stage).await, 1);
}

#[tokio::test]
async fn a_dry_run_and_a_probe_say_the_same_and_count_nothing() {
    let stage = with_quotas(json!([{"window": "minute", "limit": 1, "group": "read"}])).await;
    let mut dry = reading();
    dry["mode"] = json!("dry_run");
    let (tool, action) = (
        dry["tool_call"]["tool"].clone(),
        dry["tool_call"]["action"].clone(),
    );
    let path = format!(
        "quota/probe?tool={}&action={}",
        tool.as_str().unwrap(),
        action.as_str().unwrap()
    );
    for _ in 0..3 {
        stage.ask(&dry).await.expect(200);
        let probe = stage.get(&format!("/v1/{path}"), &stage.agent.token).await;
        assert_eq!(probe.expect(200), json!({"passes": true}));
    }
    assert_eq!(used(&stage).await, 0);
    stage.ask(&reading()).await.expect(200);
    let refused = stage.ask(&dry).await;
    let detail = refused.problem(429, "quota_exceeded");
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    let told =
        json!({"passes": false, "code": "quota_exceeded", "detail": detail, "retry_after_seconds": wait});
    let probe = stage.get(&format!("/v1/{path}"), &stage.agent.token).await;
    assert_eq!(probe.expect(200), told);
    let as_admin = format!("/v1/agents/{}/{path}", stage.agent.id);
    assert_eq!(
        stage.admin("GET", &as_admin, &Value::Null).await.expect(200),
        told
    );
    // A claim to change something gets nobody out of it, and a tool that nobody knows cannot be asked about.
    let changing = format!("/v1/{path}&mutates_state=true");
    let probe = stage.get(&changing, &stage.agent.token).await.expect(200);
    assert_eq!(probe["passes"], false);
    let unknown = "/v1/quota/probe?tool=nobody&action=knows";
    stage
        .get(unknown, &stage.agent.token)
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn a_probe_tells_of_a_bucket_and_a_quota_the_one_that_opens_last() {
    let stage = Stage::set().await;
    let path = format!("/v1/agents/{}/quota", stage.agent.id);
    let limits = async |refill: f64, window: &str| {
        let bucket = json!({"capacity": 1, "refill_per_second": refill});
        let limits = json!({"bucket": bucket, "quotas": [{"window": window, "limit": 1}]});
        stage.admin("PUT", &path, &limits).await.expect(200);
    };
    let probe = async || {
        let path = "/v1/quota/probe?tool=github&action=get_file";
        stage.get(path, &stage.agent.token).await.expect(200)
    };
    limits(1.0, "day").await;
    stage.ask(&reading()).await.expect(200);
    let told = probe().await;
    assert_eq!(told["code"], "quota_exceeded");
    let wait = told["retry_after_seconds"].as_i64().unwrap();
    stage.clock.advance_millis((wait - 1) * 1_000);
    assert_eq!(probe().await["retry_after_seconds"], 1);
    stage.clock.advance_millis(1_000);
    assert_eq!(probe().await, json!({"passes": true}));

    // A bucket may be the one that opens last, and what never opens opens after everything else.
    limits(0.000_1, "minute").await;
    stage.ask(&reading()).await.expect(200);
    assert_eq!(probe().await["code"], "rate_limited");
    stage.clock.advance_millis(60_000);
    assert_eq!(probe().await["retry_after_seconds"], 9_940);
    limits(0.000_1, "run").await;
    stage.clock.advance_millis(9_940_000);
    stage.ask(&reading()).await.expect(200);
    let told = probe().await;
    assert_eq!(told["code"], "quota_exceeded");
    assert_eq!(told["retry_after_seconds"], Value::Null);
}

#[tokio::test]
async fn whoever_waits_as_told_passes_though_the_chain_is_ahead_of_the_clock() {
    let stage = with_quotas(json!([{"window": "minute", "limit": 1}])).await;
    stage.clock.advance_millis(3_600_000);
    stage.ask(&reading()).await.expect(200);
    stage.clock.advance_millis(-3_600_000);
    let refused = stage.ask(&reading()).await;
    refused.problem(429, "quota_exceeded");
    let wait: i64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    stage.clock.advance_millis((wait - 1) * 1_000);
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
    stage.clock.advance_millis(1_000);
    stage.ask(&reading()).await.expect(200);
}

/// The key that signs is published after what the clock says then, so the chain does not follow the clock.
#[tokio::test]
async fn everybody_is_told_the_same_time_to_wait_after_a_clock_was_set_back() {
    let stage = with_quotas(json!([{"window": "minute", "limit": 1}])).await;
    let mut dry = reading();
    dry["mode"] = json!("dry_run");
    let waits = async || {
        let refused = stage.ask(&reading()).await;
        let detail = refused.problem(429, "quota_exceeded");
        let token = &stage.agent.token;
        let batch = json!({"asks": [reading(), reading()]});
        let batch = stage.post("/v1/authorize/batch", token, &batch).await.expect(200);
        let path = "/v1/quota/probe?tool=github&action=get_file";
        let probe = stage.get(path, token).await.expect(200);
        let view = stage.get("/v1/quota", token).await.expect(200);
        let resets_at = view["quotas"][0]["resets_at"].as_str().unwrap().to_owned();
        assert_eq!(view["quotas"][0]["remaining"], 0);
        assert!(detail.contains(&resets_at), "{detail}: {resets_at}");
        assert_eq!(stage.ask(&dry).await.problem(429, "quota_exceeded"), detail);
        assert_eq!(probe["detail"], detail);
        let told = refused.headers["retry-after"].to_str().unwrap();
        let wait: i64 = told.parse().unwrap();
        let left = format!("\"agent-minute\";r=0;t={wait}");
        assert_eq!(refused.headers["ratelimit"], left);
        assert_eq!(batch["answers"][1]["retry_after_seconds"], wait);
        assert_eq!(probe["retry_after_seconds"], wait);
        wait
    };
    stage.ask(&reading()).await.expect(200);
    let in_time = waits().await;
    stage.clock.advance_millis(-7_200_000);
    assert_eq!(waits().await, in_time + 7_200);
}

#[tokio::test]
async fn filters_count_what_the_registry_says() {
    let stage = with_quotas(json!([
        {"window": "day", "limit": 1, "group": "mutate"},
        {"window": "day", "limit": 3},
    ]))
    .await;
    stage.ask(&changing()).await.expect(200);
    stage.ask(&changing()).await.problem(429, "quota_exceeded");
    // Saying that it changes nothing does not help.
    let mut claim = changing();
    claim["tool_call"]["mutates_state"] = json!(false);
    stage.ask(&claim).await.problem(429, "quota_exceeded");
    // And a read that is said to change something counts as what it is said to be, too.
    let mut claim = reading();
    claim["tool_call"]["mutates_state"] = json!(true);
    claim["context"]["source_trust"] = json!("trusted_internal_unsigned");
    stage.ask(&claim).await.problem(429, "quota_exceeded");
    stage.ask(&reading()).await.expect(200);
    stage.ask(&reading()).await.expect(200);
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
    let view = stage.get("/v1/quota", &stage.agent.token).await.expect(200);
    assert_eq!(view["quotas"][1]["used"], 3);
    assert_eq!(view["quotas"][1]["remaining"], 0);
}

#[tokio::test]
async fn a_team_and_a_tenant_have_quotas_that_their_agents_share() {
    let stage = Stage::set().await;
    stage
        .admin("PUT", "/v1/teams/builders", &json!({}))
        .await
        .expect(201);
    let one = stage
        .hire(json!({"name": "one", "tools": "all", "team": "builders"}))
        .await;
    let two = stage
        .hire(json!({"name": "two", "tools": "all", "team": "builders"}))
        .await;
    put(
        &stage,
        "/v1/teams/builders/quota",
        json!([{"window": "day", "limit": 2}]),
    )
    .await;
    ask_as(&stage, &one, &reading()).await.expect(200);
    ask_as(&stage, &two, &reading()).await.expect(200);
    let refused = ask_as(&stage, &one, &reading()).await;
    assert!(
        refused
            .problem(429, "quota_exceeded")
            .starts_with("the team's quota of 2 calls")
    );
    // Another agent is not in that team; and a team that is put again keeps its quotas.
    stage.ask(&reading()).await.expect(200);
    stage
        .admin("PUT", "/v1/teams/builders", &json!({"attributes": {"floor": 3}}))
        .await
        .expect(200);
    ask_as(&stage, &two, &reading())
        .await
        .problem(429, "quota_exceeded");

    let quota = format!("/v1/tenants/{}/quota", stage.tenant);
    let body = json!({"quotas": [{"window": "month", "limit": 1}]});
    stage
        .call("PUT", &quota, &stage.operator)
        .json(&body)
        .send()
        .await
        .expect(200);
    stage.ask(&reading()).await.expect(200);
    let refused = stage.ask(&reading()).await;
    assert!(
        refused
            .problem(429, "quota_exceeded")
            .starts_with("the tenant's quota of 1 calls")
    );
    let view = stage.get("/v1/quota", &one.token).await.expect(200);
    let holders: Vec<_> = view["inherited"]
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| quota["holder"].clone())
        .collect();
    assert_eq!(holders, ["tenant", "team"]);
}

#[tokio::test]
async fn an_agent_is_shown_no_quota_of_others_for_a_tool_that_it_may_not_use_and_for_no_trap() {
    let stage = Stage::set().await;
    stage
        .admin("PUT", "/v1/teams/builders", &json!({}))
        .await
        .expect(201);
    let few = json!({"name": "few", "team": "builders", "tools": ["github", "honeypot"]});
    let few = stage.hire(few).await;
    let each = ["github", "vault", "honeypot"].map(|tool| json!({"window": "day", "limit": 9, "tool": tool}));
    let limits = json!([each[0], each[1], each[2], {"window": "hour", "limit": 9}]);
    let of_tenant = format!("/v1/tenants/{}/quota", stage.tenant);
    for path in [of_tenant.as_str(), "/v1/teams/builders/quota"] {
        put(&stage, path, limits.clone()).await;
    }
    let of_few = format!("/v1/agents/{}/quota", few.id);
    let own = json!([{"window": "day", "limit": 9, "tool": "vault"}]);
    put(&stage, &of_few, own).await;

    let tools = |quotas: &Value| -> Vec<Value> {
        let quotas = quotas.as_array().unwrap().iter();
        quotas.map(|quota| quota["tool"].clone()).collect()
    };
    let shown = stage.get("/v1/quota", &few.token).await.expect(200);
    let told = [json!("github"), Value::Null];
    assert_eq!(tools(&shown["inherited"]), [&told[..], &told[..]].concat());
    assert_eq!(tools(&shown["quotas"]), ["vault"], "its own are its own");
    let shown = stage.admin("GET", &of_few, &Value::Null).await.expect(200);
    let all = [json!("github"), json!("vault"), json!("honeypot"), Value::Null];
    assert_eq!(tools(&shown["inherited"]), [&all[..], &all[..]].concat());
    assert_eq!(tools(&shown["quotas"]), ["vault"]);
}

#[tokio::test]
async fn a_probe_tells_an_agent_of_no_quota_of_others_for_a_tool_that_it_may_not_use_and_for_no_trap() {
    let stage = Stage::set().await;
    stage
        .admin("PUT", "/v1/teams/builders", &json!({}))
        .await
        .expect(201);
    let hire = async |name: &str, tools: Value| {
        let agent = json!({"name": name, "team": "builders", "tools": tools});
        stage.hire(agent).await
    };
    let few = hire("few", json!(["github"])).await;
    let all = hire("all", json!("all")).await;
    let attic = json!({"actions": [{"name": "look", "mutates_state": false, "risk": "low"}]});
    stage.admin("PUT", "/v1/tools/attic", &attic).await.expect(201);
    let calls = [("github", "get_file"), ("vault", "store"), ("attic", "look")];
    let once = calls.map(|(tool, _)| json!({"window": "day", "limit": 1, "tool": tool}));
    let of_tenant = format!("/v1/tenants/{}/quota", stage.tenant);
    for path in [of_tenant.as_str(), "/v1/teams/builders/quota"] {
        put(&stage, path, json!(once)).await;
    }
    for (tool, action) in calls {
        let ask = asking(tool, action, "trusted_internal_unsigned");
        assert_eq!(ask_as(&stage, &all, &ask).await.expect(200)["decision"], "allow");
    }
    // It becomes a trap when its quotas are used up: nothing that traps are asked is allowed and counted.
    let trap = json!({"canary": true, "actions": attic["actions"]});
    stage.admin("PUT", "/v1/tools/attic", &trap).await.expect(200);

    let probe = |(tool, action): (&str, &str)| format!("quota/probe?tool={tool}&action={action}");
    let code = |told: Reply| told.expect(200)["code"].clone();
    let (over, nothing) = (json!("quota_exceeded"), Value::Null);
    for (agent, of_vault) in [(&few, &nothing), (&all, &over)] {
        for (call, expected) in calls.into_iter().zip([&over, of_vault, &nothing]) {
            let own = format!("/v1/{}", probe(call));
            assert_eq!(code(stage.get(&own, &agent.token).await), *expected, "{own}");
            let of_agent = format!("/v1/agents/{}/{}", agent.id, probe(call));
            let told = stage.admin("GET", &of_agent, &Value::Null).await;
            assert_eq!(code(told), over, "{of_agent}");
        }
    }
}

#[tokio::test]
async fn a_run_answers_for_what_it_starts_and_asks_without_one_are_one_run() {
    let stage = with_quotas(json!([{"window": "run", "limit": 2}])).await;
    stage.ask(&in_run(reading(), "a", None)).await.expect(200);
    stage.ask(&in_run(reading(), "b", Some("a"))).await.expect(200);
    let refused = stage.ask(&in_run(reading(), "c", Some("a"))).await;
    let detail = refused.problem(429, "quota_exceeded");
    assert!(detail.contains("a run does not begin anew"), "{detail}");
    stage
        .ask(&in_run(reading(), "a", None))
        .await
        .problem(429, "quota_exceeded");
    // A run of its own has its own calls, and so have all asks that name none, together.
    stage.ask(&in_run(reading(), "c", None)).await.expect(200);
    for _ in 0..2 {
        stage.ask(&reading()).await.expect(200);
    }
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
    let view = stage
        .get("/v1/quota?run_id=a", &stage.agent.token)
        .await
        .expect(200);
    assert_eq!(view["quotas"][0]["used"], 2);
    assert_eq!(view["quotas"][0]["resets_at"], Value::Null);
}

#[tokio::test]
async fn a_call_that_names_only_who_started_it_is_of_that_run_and_of_no_other() {
    let stage = with_quotas(json!([{"window": "run", "limit": 2}])).await;
    let started_by = |parent: &str| {
        let mut ask = reading();
        ask["trace"] = json!({"parent_run_id": parent});
        ask
    };
    for parent in ["a", "b", "c"] {
        for _ in 0..2 {
            stage.ask(&started_by(parent)).await.expect(200);
        }
        stage
            .ask(&started_by(parent))
            .await
            .problem(429, "quota_exceeded");
    }
    stage
        .ask(&in_run(reading(), "a", None))
        .await
        .problem(429, "quota_exceeded");
    // Those that name no run at all have lost nothing by that.
    for _ in 0..2 {
        stage.ask(&reading()).await.expect(200);
    }
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_exactly_the_limit_is_allowed_and_a_restart_forgets_nothing() {
    let stage = with_quotas(json!([
        {"window": "month", "limit": 20},
        {"window": "day", "limit": 25, "group": "read"},
    ]))
    .await;
    let replies = join_all((0..60).map(|_| async { stage.ask(&reading()).await })).await;
    let allowed = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(allowed, 20);
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        reply.problem(429, "quota_exceeded");
    }
    let stage = stage.restart().await;
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
    let view = stage.get("/v1/quota", &stage.agent.token).await.expect(200);
    assert_eq!(view["quotas"][0]["used"], 20);
    assert_eq!(
        view["quotas"][1]["used"], 20,
        "what was refused was counted nowhere"
    );
    // The limit is no part of what is counted.
    let path = format!("/v1/agents/{}/quota", stage.agent.id);
    put(&stage, &path, json!([{"window": "month", "limit": 21}])).await;
    stage.ask(&reading()).await.expect(200);
    stage.ask(&reading()).await.problem(429, "quota_exceeded");
}

#[tokio::test]
async fn each_ask_of_a_batch_counts() {
    let stage = with_quotas(json!([{"window": "day", "limit": 2}])).await;
    let batch = json!({"asks": [reading(), injected(), reading(), reading()]});
    let answers = stage
        .post("/v1/authorize/batch", &stage.agent.token, &batch)
        .await
        .expect(200);
    assert_eq!(answers["answers"][1]["decision"], "deny");
    assert_eq!(answers["answers"][2]["decision"], "allow");
    assert_eq!(answers["answers"][3]["code"], "quota_exceeded");
    let wait = answers["answers"][3]["retry_after_seconds"].as_u64().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    assert_eq!(stage.count("decision").await, 3);
}

#[tokio::test]
async fn what_was_not_written_was_not_counted_and_what_was_written_was() {
    for (fault, counted) in [
        (Fault::Lose, 0),
        (Fault::LoseUnknown, 0),
        (Fault::KeepButReportUnknown, 1),
    ] {
        let stage = with_quotas(json!([{"window": "day", "limit": 5}])).await;
        stage.faults.plan([fault]);
        stage.ask(&reading()).await.problem(503, "ledger_unavailable");
        assert_eq!(used(&stage).await, counted, "{fault:?}");
        stage.ask(&reading()).await.expect(200);
        assert_eq!(used(&stage).await, counted + 1, "{fault:?}");
    }
}

#[tokio::test]
async fn what_took_the_last_of_a_quota_is_answered_again_to_whoever_never_heard_of_it() {
    let stage = with_quotas(json!([{"window": "day", "limit": 1}])).await;
    let ask = named(reading(), "call-1");
    stage.faults.plan([Fault::KeepButReportUnknown]);
    stage.ask(&ask).await.problem(503, "ledger_unavailable");
    let told = stage.ask(&ask).await.expect(200);
    assert_eq!(told["decision"], "allow");
    assert_eq!(used(&stage).await, 1);
    // Whoever goes on asking costs others nothing that one without an id would not.
    let before = stage.faults.turns();
    stage
        .ask(&named(reading(), "call-2"))
        .await
        .problem(429, "quota_exceeded");
    assert_eq!(stage.faults.turns(), before + 1);
    stage
        .ask(&named(changing(), "call-1"))
        .await
        .problem(422, "idempotency_key_reused");
    stage.clock.advance_millis(86_400_000);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_tool_has_a_bucket_of_its_own_and_an_ask_may_cost_more_than_one() {
    let stage = Stage::set().await;
    let path = format!("/v1/agents/{}/quota", stage.agent.id);
    let tool = reading()["tool_call"]["tool"].as_str().unwrap().to_owned();
    let body = json!({
        "bucket": {"capacity": 100, "refill_per_second": 1},
        "tools": {tool.as_str(): {"capacity": 5, "refill_per_second": 0.5, "cost": 2}},
    });
    stage.admin("PUT", &path, &body).await.expect(200);
    for _ in 0..2 {
        stage.ask(&reading()).await.expect(200);
    }
    let refused = stage.ask(&reading()).await;
    assert_eq!(
        refused.problem(429, "rate_limited"),
        format!(
            "the agent's bucket for `{tool}` of 5 tokens has fewer than the 2 that an ask takes; ask again in 2 s"
        )
    );
    assert_eq!(refused.headers["ratelimit-policy"], "\"agent-tool\";q=5;w=10");
    let view = stage.get("/v1/quota", &stage.agent.token).await.expect(200);
    assert_eq!(view["tools"][&tool]["remaining"]["tokens"], 1);
    assert_eq!(
        view["remaining"]["tokens"], 98,
        "the refused ask took from neither"
    );
    stage.clock.advance_millis(2_000);
    stage.ask(&reading()).await.expect(200);
}
