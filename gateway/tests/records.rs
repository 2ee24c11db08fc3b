//! What was decided is read back through the real router: by whom, by what it is searched for, and byte for byte.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use axum::http::header;
use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt};
use gateway::cli;
use model::{Role, TenantId};
use serde_json::{Value, json};
use std::pin::pin;
use support::tenancy::{self, Tenancy, ask, injected, merging, reading};
use support::{World, until};

/// A world with one tenant, whose agents have asked for a read, an injected change, a merge and, the other one, a read.
/// The decisions are the entries 8 to 11.
async fn world() -> (World, Tenancy, Vec<Value>) {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let mut answers = Vec::new();
    for ask in [reading(), injected(), merging()] {
        world.clock.advance_millis(1_000);
        answers.push(world.authorize(&tenancy.token, &ask).await.json());
    }
    world.clock.advance_millis(1_000);
    answers.push(world.authorize(&tenancy.other_token, &reading()).await.json());
    (world, tenancy, answers)
}

/// The seqs of a list.
async fn seqs(world: &World, path: &str, credential: &str) -> Vec<u64> {
    let list = world.get(path, credential).await.expect(200);
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["seq"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn decisions_are_found_by_each_of_their_facts() {
    let (world, tenancy, _) = world().await;
    let (agent, other) = (tenancy.agent, tenancy.other_agent);
    for (filter, found) in [
        (String::new(), vec![11, 10, 9, 8]),
        (format!("agent={agent}"), vec![10, 9, 8]),
        (format!("agent={other}"), vec![11]),
        ("tool=github".to_owned(), vec![11, 10, 9, 8]),
        ("tool=gitlab".to_owned(), vec![]),
        ("action=get_file".to_owned(), vec![11, 8]),
        ("decision=allow".to_owned(), vec![11, 8]),
        ("decision=deny".to_owned(), vec![9]),
        ("decision=require_approval".to_owned(), vec![10]),
        ("reason_code=policy_forbids".to_owned(), vec![9]),
        ("decision=allow&reason_code=policy_forbids".to_owned(), vec![]),
        ("run_id=run-merge_pull_request".to_owned(), vec![10]),
        ("from=2026-01-31T09:30:02.000Z".to_owned(), vec![11, 10, 9]),
        ("to=2026-01-31T09:30:02.000Z".to_owned(), vec![8]),
        (
            "from=2026-01-31T09:30:02Z&to=2026-01-31T10:30:04%2B01:00".to_owned(),
            vec![10, 9],
        ),
        ("q=MUTATION-from-UNTRUSTED".to_owned(), vec![9]),
        (format!("agent={agent}&action=get_file&limit=500"), vec![8]),
    ] {
        assert_eq!(
            seqs(&world, &format!("/v1/decisions?{filter}"), &tenancy.auditor).await,
            found,
            "{filter}"
        );
    }
}

#[tokio::test]
async fn a_wrong_parameter_is_named() {
    let (world, tenancy, _) = world().await;
    for (path, named) in [
        ("/v1/decisions?agnet=x", "`agnet`: unknown parameter"),
        ("/v1/decisions?agent=builder", "`agent`: `builder` is not an id"),
        ("/v1/decisions?decision=perhaps", "`decision`: "),
        ("/v1/decisions?reason_code=because", "`reason_code`: "),
        (
            "/v1/decisions?from=yesterday",
            "`from`: `yesterday` is not an RFC 3339 time",
        ),
        (
            "/v1/decisions?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
            "`from` is not before `to`",
        ),
        ("/v1/decisions?tool=", "`tool`: "),
        ("/v1/decisions?q=", "`q` is a text"),
        ("/v1/decisions?limit=0", "`limit` is a number from 1 to 500"),
        ("/v1/decisions?limit=501", "`limit` is a number from 1 to 500"),
        ("/v1/decisions?limit=65536", "`limit` is a number from 1 to 500"),
        ("/v1/decisions?limit=", "`limit` is a number from 1 to 500"),
        ("/v1/policies?limit=abc", "`limit` is a number from 1 to 500"),
        ("/v1/decisions?cursor=abc", "`cursor` is not the `next_cursor`"),
        ("/v1/decisions?tool=a&tool=b", "`tool`"),
        ("/v1/audit/events?kind=surprise", "`kind`: `surprise` is no kind"),
        ("/v1/audit/events?from_seq=0", "`from_seq`: "),
        ("/v1/audit/events?until=9", "`until`: unknown parameter"),
        ("/v1/ledger/export?from=1", "`from`: unknown parameter"),
        ("/v1/ledger/export?to_seq=-1", "`to_seq`: "),
        ("/v1/decisions?user=%FF", "`user`: the bytes behind `%`"),
        ("/v1/ledger/evidence?run_id=%FF", "`run_id`: the bytes behind `%`"),
        ("/v1/ledger/head?witnessed=true", "`witnessed`: unknown parameter"),
        ("/v1/ledger/tile/0/000?x=1", "`x`: unknown parameter"),
        (
            "/v1/receipts/none?witnessed=true",
            "`witnessed`: unknown parameter",
        ),
        ("/v1/decisions/none?x=1", "`x`: unknown parameter"),
        ("/v1/policies/schema?x=1", "`x`: unknown parameter"),
    ] {
        let detail = world
            .get(path, &tenancy.auditor)
            .await
            .problem(400, "invalid_parameter");
        assert!(detail.contains(named), "{path}: {detail}");
    }
}

#[tokio::test]
async fn a_decision_is_shown_as_its_entry_tells_it_and_without_parameters() {
    let (world, tenancy, answers) = world().await;
    let mut secret = reading();
    secret["tool_call"]["parameters"] = json!({"path": "confidential.txt"});
    let answer = world.authorize(&tenancy.token, &secret).await.json();
    let id = answer["decision_id"].as_str().unwrap();
    let shown = world.get(&format!("/v1/decisions/{id}"), &tenancy.auditor).await;
    assert!(
        !shown.text().contains("confidential") && !shown.text().contains("parameters\":"),
        "{}",
        shown.text()
    );
    let shown = shown.expect(200);
    for member in [
        "decision_id",
        "decision",
        "reason_code",
        "reason",
        "matched_policies",
        "action_hash",
        "trust",
    ] {
        assert_eq!(shown[member], answer[member], "{member}");
    }
    for (member, of_receipt) in [("seq", "seq"), ("at", "at"), ("hash", "hash")] {
        assert_eq!(shown[member], answer["receipt"][of_receipt], "{member}");
    }
    assert_eq!(shown["agent"], json!(tenancy.agent));
    assert_eq!(shown["run_id"], "run-get_file");
    let first = answers[0]["decision_id"].as_str().unwrap();
    let list = world
        .get("/v1/decisions?limit=1&cursor=9", &tenancy.auditor)
        .await
        .expect(200);
    assert_eq!(
        list["items"][0],
        world
            .get(&format!("/v1/decisions/{first}"), &tenancy.auditor)
            .await
            .expect(200)
    );
}

#[tokio::test]
async fn pages_stay_where_they_are_while_decisions_come_in() {
    let (world, tenancy, _) = world().await;
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world
            .get(&format!("/v1/decisions?limit=1{cursor}"), &tenancy.auditor)
            .await
            .expect(200);
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["seq"].as_u64().unwrap()),
        );
        world.authorize(&tenancy.token, &reading()).await;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, [11, 10, 9, 8]);
}

/// A world with a tenant whose agent has asked thirty times with so much in its attributes.
async fn world_of_large_asks() -> (World, Tenancy, Value) {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let mut ask = reading();
    ask["context"]["attributes"] = json!({"text": "x".repeat(200_000), "list": vec![0; 1_000]});
    for _ in 0..30 {
        world.authorize(&tenancy.token, &ask).await;
    }
    (world, tenancy, ask)
}

#[tokio::test]
async fn a_page_of_large_entries_is_shorter_and_the_next_one_goes_on_behind_it() {
    let (world, tenancy, ask) = world_of_large_asks().await;
    let first = tenancy::ENTRIES + 1;
    let up: Vec<u64> = (first..first + 30).collect();
    let down: Vec<u64> = up.iter().rev().copied().collect();
    for (list, expected) in [
        ("decisions?limit=500", &down),
        ("decisions?limit=500&q=github", &down),
        ("audit/events?limit=500&kind=decision", &up),
        ("audit/events?limit=500&from_seq=8", &up),
    ] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = world.get(&format!("/v1/{list}{cursor}"), &tenancy.auditor).await;
            assert!(page.bytes.len() < 5 << 20, "{list}: {} bytes", page.bytes.len());
            let page = page.expect(200);
            let items = page["items"].as_array().unwrap().iter();
            found.extend(items.map(|item| item["seq"].as_u64().unwrap()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(&found, expected, "{list}");
        assert!(!cursor.is_empty(), "{list}: all of them were on one page");
    }
    let newest = world.get("/v1/decisions?limit=1", &tenancy.auditor).await;
    assert_eq!(
        newest.expect(200)["items"][0]["attributes"],
        ask["context"]["attributes"]
    );
}

#[tokio::test]
async fn a_ledger_of_large_entries_is_read_to_its_end_at_every_door() {
    let (world, tenancy, _) = world_of_large_asks().await;
    let size = tenancy::ENTRIES + 30;
    let verification = world
        .post("/v1/ledger/verify", &tenancy.auditor, &json!({}))
        .await
        .expect(200);
    assert_eq!(verification["checked"], size, "{verification}");
    let export = world.get("/v1/ledger/export", &tenancy.auditor).await.text();
    let entries = export.lines().filter(|line| line.starts_with("{\"header\":"));
    assert_eq!(entries.count() as u64, size);
    let events = format!("/v1/events?from_seq=1&limit={size}");
    let events = world.get(&events, &tenancy.auditor).await.text();
    let data = events.lines().filter(|line| line.starts_with("data: "));
    assert_eq!(data.count() as u64, size);
    let tile = format!("/v1/ledger/tile/entries/000.p/{size}");
    assert_eq!(world.get(&tile, &tenancy.auditor).await.status, 200);
    let editor = world.add_key(tenancy.id, Role::PolicyEditor).await;
    let candidate = json!({"candidate": {"policies": []}});
    let replay = world.post("/v1/policies/replay", &editor, &candidate).await;
    assert_eq!(replay.expect(200)["decisions"], 30);
}

#[tokio::test]
async fn a_bundle_of_large_entries_lets_others_read_their_ledgers_in_between() {
    let (world, tenancy, _) = world_of_large_asks().await;
    let line = &world.gateway.ledger_chunks;
    let first = line.acquire_for_part(TenantId::SYSTEM).await;
    let tile = format!("/v1/ledger/tile/entries/000.p/{}", tenancy::ENTRIES + 30);
    let mut bundle = pin!(world.get(&tile, &tenancy.auditor));
    let waits = pin!(until(|| line.waiting_of(tenancy.id) == 1));
    assert!(matches!(select(bundle.as_mut(), waits).await, Either::Right(_)));
    let mut other = pin!(line.acquire_for_part(TenantId::from_bytes([9; 16])));
    assert!(other.as_mut().now_or_never().is_none());
    drop(first);
    let Either::Right((place, _)) = select(bundle.as_mut(), other).await else {
        panic!("all of it was read at once");
    };
    drop(place);
    assert_eq!(bundle.await.status, 200);
}

#[tokio::test]
async fn an_agent_reads_its_own_decisions_and_no_others() {
    let (world, tenancy, answers) = world().await;
    assert_eq!(seqs(&world, "/v1/decisions", &tenancy.token).await, [10, 9, 8]);
    assert_eq!(seqs(&world, "/v1/decisions", &tenancy.other_token).await, [11]);
    let others = format!("/v1/decisions?agent={}", tenancy.other_agent);
    assert_eq!(seqs(&world, &others, &tenancy.token).await, Vec::<u64>::new());
    let (own, foreign) = (&answers[0]["decision_id"], &answers[3]["decision_id"]);
    for door in ["decisions", "receipts"] {
        let path = |id: &Value| format!("/v1/{door}/{}", id.as_str().unwrap());
        world.get(&path(own), &tenancy.token).await.expect(200);
        world
            .get(&path(foreign), &tenancy.token)
            .await
            .problem(404, "not_found");
        world.get(&path(own), &tenancy.auditor).await.expect(200);
        world
            .get(&path(&json!("dec_nonsense")), &tenancy.auditor)
            .await
            .problem(404, "not_found");
        world.get(&path(own), "").await.problem(401, "invalid_token");
    }
}

/// Of a user and an agent whom it names, and of a tool that it was not given, it would learn how they are registered by
/// guessing what is in the records.
#[tokio::test]
async fn an_agent_is_not_shown_the_digests_of_records_nor_what_tells_of_a_trap() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    let agent = format!("/v1/agents/{}", tenancy.agent);
    let peek = json!({"name": "peek", "mutates_state": false, "risk": "low"});
    for (method, path, body, status) in [
        ("PUT", "/v1/teams/leads", json!({}), 201),
        ("PUT", "/v1/users/ann", json!({"teams": ["leads"]}), 201),
        (
            "PUT",
            "/v1/tools/honeypot",
            json!({"canary": true, "actions": [peek]}),
            201,
        ),
        ("PATCH", &*agent, json!({"tools": ["github"]}), 200),
    ] {
        let call = world.call(method, path, &admin).json(&body);
        call.send().await.expect(status);
    }
    let (mut named, mut trapped) = (reading(), reading());
    named["user"] = json!({"id": "ann"});
    named["act"] = json!({"sub": "reviewer"});
    trapped["tool_call"]["tool"] = json!("honeypot");
    trapped["tool_call"]["action"] = json!("peek");
    let named = world.authorize(&tenancy.token, &named).await.json();
    let trapped = world.authorize(&tenancy.token, &trapped).await.json();
    let because = json!({"reason": "a test"});
    let unfreeze = format!("{agent}/unfreeze");
    world.post(&unfreeze, &admin, &because).await.expect(200);

    let list = world.get("/v1/decisions", &tenancy.token).await.expect(200);
    for (answer, listed, hidden) in [
        (&named, &list["items"][1], ["delegators", "facts", "user_teams"]),
        (&trapped, &list["items"][0], ["canary", "facts", "granted"]),
    ] {
        let path = format!("/v1/decisions/{}", answer["decision_id"].as_str().unwrap());
        let mut whole = world.get(&path, &tenancy.auditor).await.expect(200);
        let own = world.get(&path, &tenancy.token).await.expect(200);
        for member in hidden {
            assert!(
                whole.as_object_mut().unwrap().remove(member).is_some(),
                "{member}"
            );
        }
        assert_eq!((&own, listed), (&whole, &whole));
    }
}

#[tokio::test]
async fn the_ledger_is_for_auditors_and_operators() {
    let (world, tenancy, _) = world().await;
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    for path in ["/v1/audit/events", "/v1/ledger/head", "/v1/ledger/export"] {
        for outsider in [&tenancy.token, &admin] {
            world.get(path, outsider).await.problem(403, "forbidden");
        }
        world
            .get(path, &world.operator)
            .await
            .problem(400, "tenant_required");
        let operator = world
            .call("GET", path, &world.operator)
            .tenant(tenancy.id)
            .send()
            .await;
        assert_eq!(operator.status, 200);
    }
    world
        .post("/v1/ledger/verify", &tenancy.token, &json!({}))
        .await
        .problem(403, "forbidden");
    world.get("/v1/decisions", &admin).await.problem(403, "forbidden");
}

#[tokio::test]
async fn one_tenant_is_nothing_to_another() {
    let (world, tenancy, answers) = world().await;
    let stranger = world.tenancy("zenith").await;
    let id = answers[0]["decision_id"].as_str().unwrap();
    for path in [format!("/v1/decisions/{id}"), format!("/v1/receipts/{id}")] {
        world
            .get(&path, &stranger.auditor)
            .await
            .problem(404, "not_found");
        world.get(&path, &stranger.token).await.problem(404, "not_found");
    }
    assert!(seqs(&world, "/v1/decisions", &stranger.auditor).await.is_empty());
    let head = world.get("/v1/ledger/head", &stranger.auditor).await.expect(200);
    assert_eq!(
        (head["tenant"].clone(), head["seq"].clone()),
        (json!(stranger.id), json!(tenancy::ENTRIES))
    );
    let named = world
        .call("GET", "/v1/ledger/head", &stranger.auditor)
        .tenant(tenancy.id)
        .send()
        .await;
    named.problem(404, "not_found");
    assert!(
        !world
            .get("/v1/ledger/export", &stranger.auditor)
            .await
            .text()
            .contains(&tenancy.id.to_string())
    );
}

#[tokio::test]
async fn operators_read_what_happened_to_tenants() {
    let (world, tenancy, _) = world().await;
    let system = TenantId::SYSTEM;
    let events = world
        .call("GET", "/v1/audit/events?kind=tenant_created", &world.operator)
        .tenant(system);
    let events = events.send().await.expect(200);
    assert_eq!(events["items"][0]["body"]["id"], json!(tenancy.id));
    let verify = world
        .call("POST", "/v1/ledger/verify", &world.operator)
        .tenant(system)
        .json(&json!({}));
    assert_eq!(verify.send().await.expect(200)["verified"], true);
}

#[tokio::test]
async fn events_are_the_whole_chain_oldest_first() {
    let (world, tenancy, _) = world().await;
    let all = world.get("/v1/audit/events", &tenancy.auditor).await.expect(200);
    assert_eq!(all["next_cursor"], Value::Null);
    let all = all["items"].as_array().unwrap();
    assert_eq!(all.len(), 11);
    for (before, after) in all.iter().zip(&all[1..]) {
        assert_eq!(after["prev_hash"], before["hash"]);
        assert_eq!(after["seq"].as_u64(), before["seq"].as_u64().map(|seq| seq + 1));
    }
    assert_eq!(all[0]["prev_hash"], json!(canon::Digest::ZERO));
    let last = world
        .get("/v1/audit/events?from_seq=11", &tenancy.auditor)
        .await
        .expect(200);
    assert_eq!(last["items"].as_array().unwrap(), &all[10..]);
    let head = world.get("/v1/ledger/head", &tenancy.auditor).await.expect(200);
    assert_eq!(
        head,
        json!({"tenant": tenancy.id, "seq": 11, "hash": all[10]["hash"]})
    );
}

#[tokio::test]
async fn events_of_a_kind_come_in_pages() {
    let (world, tenancy, _) = world().await;
    let of_kind = "/v1/audit/events?kind=decision&limit=2";
    let first = world.get(of_kind, &tenancy.auditor).await.expect(200);
    assert_eq!(first["next_cursor"], "9");
    world.authorize(&tenancy.token, &reading()).await;
    let rest = format!("{of_kind}&cursor=9");
    assert_eq!(seqs(&world, &rest, &tenancy.auditor).await, [10, 11]);
    assert_eq!(
        seqs(
            &world,
            "/v1/audit/events?kind=decision&cursor=11",
            &tenancy.auditor
        )
        .await,
        [12]
    );
    assert_eq!(
        seqs(
            &world,
            "/v1/audit/events?limit=3&cursor=2&from_seq=5",
            &tenancy.auditor
        )
        .await,
        [5, 6, 7]
    );
}

#[tokio::test]
async fn a_receipt_is_what_was_answered_byte_for_byte() {
    let (world, tenancy, _) = world().await;
    for ask in [reading(), injected(), merging(), ask("no_such_action", "unknown")] {
        let answer = world.authorize(&tenancy.token, &ask).await;
        let id = answer.json()["decision_id"].as_str().unwrap().to_owned();
        let receipt = world.get(&format!("/v1/receipts/{id}"), &tenancy.token).await;
        receipt.expect(200);
        assert_eq!(receipt.bytes, answer.bytes);
        assert_eq!(receipt.headers[header::CONTENT_TYPE], "application/json");
    }
}

/// Makes so many decisions, in few commits.
async fn decide_many(world: &World, tenancy: &Tenancy, count: usize) {
    for _ in 0..count / 100 {
        let asks = vec![reading(); 100];
        world
            .post("/v1/authorize/batch", &tenancy.token, &json!({"asks": asks}))
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn an_export_of_several_chunks_verifies_offline() {
    let (world, tenancy, _) = world().await;
    decide_many(&world, &tenancy, 600).await;
    let export = world.get("/v1/ledger/export", &tenancy.auditor).await;
    assert_eq!(export.headers[header::CONTENT_TYPE], "application/x-ndjson");
    let report = cli::verify::verify(&mut export.bytes.as_slice()).unwrap();
    assert_eq!((report.checked, report.tenant), (611, tenancy.id.to_string()));
    assert_eq!(report.anchor, ledger::Anchor::Genesis);
    let head = world.get("/v1/ledger/head", &tenancy.auditor).await.expect(200);
    assert_eq!(
        json!(report.head),
        json!({"seq": head["seq"], "hash": head["hash"]})
    );
    let part = world
        .get("/v1/ledger/export?from_seq=5&to_seq=9", &tenancy.auditor)
        .await;
    let report = cli::verify::verify(&mut part.bytes.as_slice()).unwrap();
    assert_eq!((report.first, report.checked, report.head.seq), (5, 5, 9));
    let beyond = world
        .get("/v1/ledger/export?from_seq=600&to_seq=9999", &tenancy.auditor)
        .await;
    let lines = beyond.text();
    let entries = lines.lines().filter(|line| line.starts_with("{\"header\":"));
    assert_eq!(entries.count(), 12);
}

#[tokio::test]
async fn an_export_with_any_entry_changed_or_lost_does_not_pass() {
    let (world, tenancy, _) = world().await;
    let export = world.get("/v1/ledger/export", &tenancy.auditor).await.text();
    let lines = export.lines().filter(|line| line.starts_with("{\"header\":"));
    let lines: Vec<&str> = lines.collect();
    let verify = |lines: &[&str]| cli::verify::verify(&mut lines.join("\n").as_bytes());
    assert_eq!(verify(&lines).unwrap().checked, 11);
    for at in 0..lines.len() {
        let changed = lines[at].replace(",\"body\":{", ",\"body\":{\"!\":1,");
        let mut with_changed = lines.clone();
        with_changed[at] = &changed;
        let fault = verify(&with_changed).unwrap_err().to_string();
        assert!(fault.starts_with(&format!("entry {}: ", at + 1)), "{fault}");
        let mut without = lines.clone();
        without.remove(at);
        match verify(&without) {
            Err(fault) => assert!(
                fault.to_string().contains(&format!("{} is due", at + 1)),
                "{fault}"
            ),
            // The ends of a file are not between two lines: what is lost there shows in what the report says.
            Ok(report) if at == 0 => assert_ne!(report.anchor, ledger::Anchor::Genesis),
            Ok(report) => assert_eq!((at, report.head.seq), (10, 10)),
        }
    }
}

#[tokio::test]
async fn an_export_ends_at_the_head_that_it_began_with() {
    let (world, tenancy, _) = world().await;
    let response = world
        .call("GET", "/v1/ledger/export", &tenancy.auditor)
        .respond()
        .await;
    world.authorize(&tenancy.token, &reading()).await;
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
        .await
        .unwrap();
    assert_eq!(cli::verify::verify(&mut &bytes[..]).unwrap().head.seq, 11);
}

#[tokio::test]
async fn an_export_that_cannot_be_read_on_breaks_off() {
    let (world, tenancy, _) = world().await;
    decide_many(&world, &tenancy, 600).await;
    let response = world
        .call("GET", "/v1/ledger/export", &tenancy.auditor)
        .respond()
        .await;
    let mut chunks = response.into_body().into_data_stream();
    // The line before the entries, and the beginning of the first of these, which were read before the answer began.
    for _ in 0..2 {
        assert!(chunks.next().await.unwrap().is_ok());
    }
    world.store.close().await;
    while let Some(chunk) = chunks.next().await {
        if chunk.is_err() {
            return;
        }
    }
    panic!("it looks whole");
}

#[tokio::test]
async fn what_is_read_in_chunks_breaks_off_when_its_key_is_deleted() {
    let (world, tenancy, _) = world().await;
    decide_many(&world, &tenancy, 600).await;
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    for path in ["/v1/ledger/export", "/v1/ledger/evidence"] {
        let auditor = world.add_key(tenancy.id, Role::Auditor).await;
        let id = world.get("/v1/whoami", &auditor).await.expect(200)["key"].clone();
        let response = world.call("GET", path, &auditor).respond().await;
        let mut chunks = response.into_body().into_data_stream();
        assert!(chunks.next().await.unwrap().is_ok());
        let id = format!("/v1/keys/{}", id.as_str().unwrap());
        world.call("DELETE", &id, &admin).send().await.expect(204);
        assert!(chunks.next().await.unwrap().is_err(), "{path}");
    }
}

/// What is streamed of a ledger in a file.
const FILES: [&str; 2] = ["/v1/ledger/export", "/v1/ledger/evidence"];

#[tokio::test]
async fn one_tenant_does_not_take_all_places_for_files_and_gives_its_own_back() {
    let (world, tenancy, _) = world().await;
    let other = world.tenancy("other").await;
    let mut untaken = Vec::new();
    for path in FILES.into_iter().cycle().take(8) {
        let response = world.call("GET", path, &tenancy.auditor).respond().await;
        assert_eq!(response.status(), 200);
        untaken.push(response);
    }
    for path in FILES {
        let refused = world.get(path, &tenancy.auditor).await;
        refused.problem(429, "too_many_streams");
        assert!(refused.headers.contains_key(header::RETRY_AFTER));
        assert_eq!(world.get(path, &other.auditor).await.status, 200);
    }
    untaken.pop();
    until(|| world.gateway.outgoing.taken() == 7).await;
    for path in FILES {
        assert_eq!(world.get(path, &tenancy.auditor).await.status, 200);
    }
    until(|| world.gateway.outgoing.taken() == 7).await;
    drop(untaken);
    until(|| world.gateway.outgoing.taken() == 0).await;
}

#[tokio::test]
async fn a_file_that_is_refused_takes_no_place() {
    let (world, tenancy, _) = world().await;
    for path in FILES {
        let refused = world
            .get(&format!("{path}?from_seq=9999"), &tenancy.auditor)
            .await;
        refused.problem(422, "empty_range");
        assert_eq!(world.gateway.outgoing.taken(), 0);
    }
}

#[tokio::test]
async fn files_that_nobody_takes_lose_their_places_when_their_key_is_deleted() {
    let (world, tenancy, _) = world().await;
    decide_many(&world, &tenancy, 600).await;
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    for path in FILES {
        let auditor = world.add_key(tenancy.id, Role::Auditor).await;
        let id = world.get("/v1/whoami", &auditor).await.expect(200)["key"].clone();
        let response = world.call("GET", path, &auditor).respond().await;
        let mut pieces = response.into_body().into_data_stream();
        assert!(pieces.next().await.unwrap().is_ok());
        assert_eq!(world.gateway.outgoing.taken(), 1);
        let id = format!("/v1/keys/{}", id.as_str().unwrap());
        world.call("DELETE", &id, &admin).send().await.expect(204);
        until(|| world.gateway.outgoing.taken() == 0).await;
        // It looks broken off, should somebody go on.
        assert!(pieces.next().await.unwrap().is_err(), "{path}");
        assert!(pieces.next().await.is_none());
    }
}

/// The largest whole number that I-JSON carries.
const SEQ_MAX: u64 = (1 << 53) - 1;

#[tokio::test]
async fn a_range_without_entries_is_refused() {
    let (world, tenancy, _) = world().await;
    for (from, to) in [(5, 4), (12, 12), (12, 20), (SEQ_MAX, SEQ_MAX)] {
        let path = format!("/v1/ledger/export?from_seq={from}&to_seq={to}");
        world
            .get(&path, &tenancy.auditor)
            .await
            .problem(422, "empty_range");
    }
    for range in [json!({"from_seq": 5, "to_seq": 4}), json!({"from_seq": 12})] {
        world
            .post("/v1/ledger/verify", &tenancy.auditor, &range)
            .await
            .problem(422, "empty_range");
    }
    let typo = world
        .post("/v1/ledger/verify", &tenancy.auditor, &json!({"form_seq": 1}))
        .await;
    assert!(typo.problem(400, "unknown_field").contains("form_seq"));
}

/// Whoever names an end has seen it.
#[tokio::test]
async fn a_range_behind_the_end_of_the_ledger_does_not_verify() {
    let (world, tenancy, _) = world().await;
    for (from, to) in [(12, 12), (12, 20), (SEQ_MAX, SEQ_MAX)] {
        let range = json!({"from_seq": from, "to_seq": to});
        let found = world
            .post("/v1/ledger/verify", &tenancy.auditor, &range)
            .await
            .expect(200);
        assert_eq!(
            (&found["verified"], &found["checked"]),
            (&json!(false), &json!(0))
        );
        let what = format!("the entry is missing: the ledger ends at seq 11, and `to_seq` is {to}");
        assert_eq!(found["first_fault"], json!({"seq": 12, "what": what}));
    }
}

#[tokio::test]
async fn a_ledger_verifies_while_it_grows() {
    let (world, tenancy, _) = world().await;
    decide_many(&world, &tenancy, 600).await;
    let deciding = async {
        for _ in 0..20 {
            world.authorize(&tenancy.token, &reading()).await;
        }
    };
    let empty = json!({});
    let (verification, ()) = tokio::join!(
        world.post("/v1/ledger/verify", &tenancy.auditor, &empty),
        deciding
    );
    let verification = verification.expect(200);
    assert_eq!(verification["verified"], true, "{verification}");
    assert!(verification["checked"].as_u64() >= Some(611), "{verification}");
    assert_eq!(verification["checked"], verification["head"]["seq"]);
    let part = json!({"from_seq": 300, "to_seq": 309});
    let part = world
        .post("/v1/ledger/verify", &tenancy.auditor, &part)
        .await
        .expect(200);
    assert_eq!(
        (part["verified"].clone(), part["checked"].clone()),
        (json!(true), json!(10))
    );
}
