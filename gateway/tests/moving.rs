//! `countersign copy`, `migrate` and `check-config`: the real program, from SQLite to PostgreSQL and back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/process.rs"]
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod process;

use process::{Answer, Client, OPERATOR, PROGRAM, Place, Server, program};
use serde_json::{Value, json};
use std::process::{Command, Output};
use store::conformance::commit;
use store::conformance::sample::Chain;
use store::{Batch, Store as _};
use store_postgres::{Claimant, PostgresStore};

/// What was decided and is known to have been done, and whether the entry that tells it is erased.
const REPORTED: [(&str, bool); 3] = [("done-1", true), ("done-2", false), ("done-3", true)];

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    program::without_settings(&mut command)
        .args(args)
        .output()
        .unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn succeeds(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{}", told(&output));
    told(&output)
}

fn fails(args: &[&str]) -> String {
    let output = run(args);
    assert!(!output.status.success(), "{}", told(&output));
    told(&output)
}

/// A slip in a name is no empty ledger.
#[test]
fn what_is_not_there_is_neither_copied_nor_verified_nor_made() {
    let place = Place::on_file();
    let (missing, target) = (file_of(&place), format!("{}.copy", file_of(&place)));
    for args in [
        &["copy", "--from", &missing, "--to", &target][..],
        &["budgets", "verify", "--database-url", &missing],
    ] {
        let said = fails(args);
        assert!(said.contains("there is no database"), "{said}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    std::fs::write(place.database(), "").unwrap();
    let said = fails(&["budgets", "verify", "--database-url", &missing]);
    assert!(said.contains("there is no database"), "{said}");
    assert_eq!(std::fs::read(place.database()).unwrap(), b"");
    succeeds(&["migrate", "--database-url", &missing]);
    let said = fails(&["copy", "--from", &missing, "--to", &target]);
    assert!(said.contains("there is no ledger"), "{said}");
}

#[test]
fn a_key_is_added_to_a_file_that_is_there_and_a_cause_is_told_once() {
    let place = Place::on_file();
    // What a gateway has in its environment does no harm.
    let said = fails(&[
        "rotate-key",
        "--database-url",
        &file_of(&place),
        "--log-name",
        "log",
    ]);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
    let help = succeeds(&["rotate-key", "--help"]);
    assert!(
        help.contains("--signing-key-file") && !help.contains("--log-name"),
        "{help}"
    );
}

fn file_of(place: &Place) -> String {
    format!("sqlite:{}", place.database().display())
}

fn asking(request_id: &str) -> Value {
    json!({
        "request_id": request_id,
        "tool_call": {"tool": "github", "action": "create_issue", "parameters": {"title": "x"}},
        "context": {"source_trust": "trusted_internal_unsigned"},
    })
}

/// It needs approval.
fn merging() -> Value {
    json!({
        "tool_call": {"tool": "github", "action": "merge_pull_request",
            "parameters": {"base_branch": "main", "number": 1}},
        "context": {"source_trust": "trusted_internal_unsigned"},
    })
}

/// Holds three tokens in a run that names the one that started it, under a key.
fn holding(server: &Server, token: &str) -> Vec<u8> {
    let body = json!({
        "unit": "TOKENS", "amount": 3, "run_id": "child", "parent_run_id": "boss", "ttl_ms": 3_600_000,
    });
    let mut held = ureq::post(server.url("/v1/reservations"))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("idempotency-key", "hold-1")
        .send(body.to_string())
        .unwrap();
    held.body_mut().read_to_vec().unwrap()
}

/// Says what became of what was decided for this request.
fn reporting(client: &Client, token: &str, request_id: &str) -> Answer {
    let decided = client.post("/v1/authorize", token, &asking(request_id)).unwrap();
    let decided = decided.json();
    let path = format!(
        "/v1/decisions/{}/outcome",
        decided["decision_id"].as_str().unwrap()
    );
    let outcome = json!({"status": "succeeded", "executed_hash": decided["action_hash"]});
    client.post(&path, token, &outcome).unwrap()
}

/// Erases one entry.
fn erase(client: &Client, tenant: &str, seq: &Value) {
    let done = client.operate(tenant, "/v1/ledger/erase", &json!({"seq": seq}));
    let done = done.json();
    assert_eq!(done["erased"], 1, "{done}");
}

/// A SQLite file with a demo in it that has decided something, has asked people, has counted, has held something in a
/// budget, and has had a decision and two outcomes erased; the demo's token, what was answered to asks, and what to the
/// request that holds something.
fn lived_in() -> (Place, String, Vec<Vec<u8>>, Vec<u8>) {
    let place = Place::on_file();
    let server = place.serve(&["--demo"]);
    let token = place.printed("demo agent token (shown once): ");
    let client = server.client();
    let erased = client
        .post("/v1/authorize", &token, &asking("call-erased"))
        .unwrap()
        .json();
    let demo = place.printed("demo tenant: ");
    erase(&client, &demo, &erased["receipt"]["seq"]);
    for (request_id, is_erased) in REPORTED {
        let reported = reporting(&client, &token, request_id);
        assert_eq!(reported.status, 201, "{reported:?}");
        if is_erased {
            erase(&client, &demo, &reported.json()["seq"]);
        }
    }
    let tenant = client.get("/v1/tenants", OPERATOR).json()["items"][0]["id"].clone();
    let quota = format!("/v1/tenants/{}/quota", tenant.as_str().unwrap());
    let quotas = json!({"quotas": [{"window": "run", "limit": 100}]});
    ureq::put(server.url(&quota))
        .header("authorization", format!("Bearer {OPERATOR}"))
        .header("content-type", "application/json")
        .send(quotas.to_string())
        .unwrap();
    let budget = json!({"scope": {"run": "boss"}, "unit": "TOKENS", "allocated": 10});
    let made = client.operate(tenant.as_str().unwrap(), "/v1/budgets", &budget);
    assert_eq!(made.status, 201, "{made:?}");
    let held = holding(&server, &token);
    let asked = client.post("/v1/authorize", &token, &merging()).unwrap().json();
    assert_eq!(asked["decision"], "require_approval", "{asked}");
    let answers = (0..20).map(|number| {
        let ask = asking(&format!("call-{number}"));
        server.client().post("/v1/authorize", &token, &ask).unwrap().bytes
    });
    let answers = answers.collect();
    server.kill();
    (place, token, answers, held)
}

#[test]
fn a_ledger_goes_to_postgres_and_back_and_everything_goes_on_working() {
    let (place, token, answers, held) = lived_in();
    let target = Place::on_postgres();
    let copied = succeeds(&["copy", "--from", &file_of(&place), "--to", &target.url()]);
    assert!(copied.contains("of 2 ledgers"), "{copied}");
    let back = Place::on_file();
    succeeds(&["copy", "--from", &target.url(), "--to", &file_of(&back)]);
    for place in [&target, &back] {
        let server = place.serve(&[]);
        let client = server.client();
        // The same token, the same answers under the same request ids, and the chain goes on.
        for (number, answer) in answers.iter().enumerate() {
            let again = client.post("/v1/authorize", &token, &asking(&format!("call-{number}")));
            assert_eq!(again.unwrap().bytes, *answer);
        }
        let tenants = client.get("/v1/tenants", OPERATOR).json();
        assert_eq!(tenants["items"].as_array().unwrap().len(), 1, "{tenants}");
        let tenant = tenants["items"][0]["id"].as_str().unwrap();
        // What people were asked, and what was counted.
        let pending = client.read(tenant, "/v1/approvals?status=pending").json();
        assert_eq!(pending["items"].as_array().unwrap().len(), 1, "{pending}");
        let quota = client.read(tenant, &format!("/v1/tenants/{tenant}/quota")).json();
        assert_eq!(quota["quotas"][0]["used"], 20, "{quota}");
        // What the entries name by its digest has come along.
        let candidate = json!({"candidate": {"policies": []}});
        let replayed = client.operate(tenant, "/v1/policies/replay", &candidate).json();
        assert_eq!(replayed["unchanged"], 23, "{replayed}");
        let last: Value = serde_json::from_slice(&answers[19]).unwrap();
        let next = client
            .post("/v1/authorize", &token, &asking("another"))
            .unwrap()
            .json();
        assert_eq!(next["receipt"]["prev_hash"], last["receipt"]["hash"]);
        // What was done is not done again, although what tells of it is erased.
        for (request_id, _) in REPORTED {
            let again = reporting(&client, &token, request_id);
            assert_eq!(
                (again.status, &again.json()["code"]),
                (409, &json!("outcome_reported"))
            );
        }
        // The same key has the same bytes, and a child spends from its parent's budget also where it does not name it again.
        assert_eq!(holding(&server, &token), held);
        let escaping = json!({"unit": "TOKENS", "amount": 8, "run_id": "child"});
        let refused = client.post("/v1/reservations", &token, &escaping).unwrap().json();
        assert_eq!(
            (&refused["code"], &refused["remaining"]),
            (&json!("budget_exceeded"), &json!(7))
        );
    }
}

#[test]
fn an_outcome_that_was_told_long_after_its_decision_and_erased_is_not_reported_again() {
    let place = Place::on_file();
    let server = place.serve(&["--demo"]);
    let token = place.printed("demo agent token (shown once): ");
    let client = server.client();
    client.post("/v1/authorize", &token, &asking("done")).unwrap();
    // More than is copied in one commit.
    for round in 0..11 {
        let asks = (0..100).map(|number| asking(&format!("call-{round}-{number}")));
        let asks = json!({"asks": asks.collect::<Vec<_>>()});
        let answers = client.post("/v1/authorize/batch", &token, &asks).unwrap();
        assert_eq!(answers.status, 200, "{answers:?}");
    }
    let reported = reporting(&client, &token, "done");
    erase(&client, &place.printed("demo tenant: "), &reported.json()["seq"]);
    server.kill();

    let target = Place::on_file();
    succeeds(&["copy", "--from", &file_of(&place), "--to", &file_of(&target)]);
    let again = reporting(&target.serve(&[]).client(), &token, "done");
    assert_eq!(
        (again.status, &again.json()["code"]),
        (409, &json!("outcome_reported"))
    );
}

#[test]
fn a_target_that_is_not_empty_is_left_alone() {
    let (place, ..) = lived_in();
    let (target, ..) = lived_in();
    let message = fails(&["copy", "--from", &file_of(&place), "--to", &file_of(&target)]);
    assert!(message.contains("the target is not empty"), "{message}");
    let message = fails(&["copy", "--from", &file_of(&place), "--to", &file_of(&place)]);
    assert!(message.contains("name the same database"), "{message}");
    let told = succeeds(&["check-config", "--database-url", &file_of(&target)]);
    assert!(told.contains("1 tenant"), "{told}");
}

/// Neither would notice the other before both have written. Gateways may begin together.
#[test]
fn a_copy_has_its_target_alone_from_its_first_moment_on() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (place, ..) = lived_in();
    for claimant in [Claimant::Copy, Claimant::Gateway] {
        let target = Place::on_postgres();
        succeeds(&["migrate", "--database-url", &target.url()]);
        let claim = runtime.block_on(PostgresStore::claim(&target.url(), claimant));
        let claim = claim.unwrap();
        let said = fails(&["copy", "--from", &file_of(&place), "--to", &target.url()]);
        assert!(said.contains("is going on, or a gateway begins in it"), "{said}");
        assert!(!said.contains("remove"), "{said}");
        if claimant == Claimant::Copy {
            let said = target.fails(&mut target.command(&["--demo"]));
            assert!(said.contains("start the gateway when it is done"), "{said}");
        } else {
            target.serve(&[]).kill();
        }
        runtime.block_on(claim.give_back());
    }
}

/// What has gone over looks like what is left of a copy, and is not to be removed under one that goes on.
#[test]
fn a_copy_beside_one_that_has_committed_something_says_that_it_goes_on() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (place, ..) = lived_in();
    let target = Place::on_postgres();
    let claim = runtime.block_on(async {
        let store = PostgresStore::open(&target.url()).await.unwrap();
        let (mut tenant, mut batch) = (Chain::new(1), Batch::default());
        tenant.put_agent(&mut batch, 1, "builder");
        commit(&store, &batch).await;
        store.close().await;
        PostgresStore::claim(&target.url(), Claimant::Copy).await
    });
    let copying = || fails(&["copy", "--from", &file_of(&place), "--to", &target.url()]);
    let said = copying();
    assert!(said.contains("is going on, or a gateway begins in it"), "{said}");
    assert!(!said.contains("remove"), "{said}");
    runtime.block_on(claim.unwrap().give_back());
    let said = copying();
    assert!(
        said.contains("if it is what is left of a copy, remove it"),
        "{said}"
    );
}

/// When all has gone over a copy has still to find out whether that is what it should be.
#[test]
fn no_gateway_starts_on_a_whole_target_before_its_copy_has_ended() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (place, ..) = lived_in();
    let target = Place::on_postgres();
    succeeds(&["copy", "--from", &file_of(&place), "--to", &target.url()]);
    let claim = runtime.block_on(PostgresStore::claim(&target.url(), Claimant::Copy));
    let claim = claim.unwrap();
    let said = target.fails(&mut target.command(&[]));
    assert!(said.contains("start the gateway when it is done"), "{said}");
    // A copy onto it by mistake does not come as far as the claim.
    let said = fails(&["copy", "--from", &file_of(&place), "--to", &target.url()]);
    assert!(said.contains("the target is not empty"), "{said}");
    runtime.block_on(claim.give_back());
    target.serve(&[]).kill();
}

#[tokio::test]
async fn a_source_that_was_tampered_with_is_not_copied() {
    let (place, ..) = tokio::task::spawn_blocking(lived_in).await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(place.database());
    let mut hand = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options)
        .await
        .unwrap();
    sqlx::raw_sql(
        "DROP TRIGGER audit_events_are_not_rewritten;
         UPDATE audit_events SET body = '{}', packed = NULL WHERE kind = 'decision'",
    )
    .execute(&mut hand)
    .await
    .unwrap();
    drop(hand);
    let target = Place::on_file();
    let message = fails(&["copy", "--from", &file_of(&place), "--to", &file_of(&target)]);
    assert!(
        message.contains("does not verify") && message.contains("entry "),
        "{message}"
    );
}

#[test]
fn a_schema_is_made_without_serving_and_a_good_configuration_is_said_to_be_good() {
    let (file, database) = (Place::on_file(), Place::on_postgres());
    for url in [file_of(&file), database.url()] {
        let told = succeeds(&["migrate", "--database-url", &url]);
        assert!(told.contains("up to date"), "{told}");
        let told = succeeds(&["check-config", "--database-url", &url]);
        assert!(told.contains("0 tenants"), "{told}");
    }
}

#[test]
fn a_configuration_is_checked_as_serving_takes_it_and_makes_no_key() {
    let place = Place::on_file();
    let key = place.path().join("signing.key");
    let (url, key_file) = (file_of(&place), key.to_str().unwrap());
    let check = [
        "check-config",
        "--database-url",
        &url,
        "--signing-key-file",
        key_file,
    ];
    let told = succeeds(&[&check[..], &["--operator-key", "csk_0123456789abcdef"]].concat());
    assert!(told.contains("the configuration is good"), "{told}");
    assert!(!key.exists());

    std::fs::write(&key, "no key\n").unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let message = fails(&check);
    assert!(message.contains("is not a signing key"), "{message}");
}

/// As it is when a gateway has started with a newer one a minute ago.
#[tokio::test]
async fn a_signing_key_that_was_replaced_is_no_good_configuration() {
    let place = Place::on_file();
    place.serve(&[]).kill();
    let url = file_of(&place);
    let check = ["check-config", "--database-url", &url];
    succeeds(&check);
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(place.database());
    let mut hand = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options)
        .await
        .unwrap();
    sqlx::raw_sql(
        "UPDATE directory SET value = json_set(value, '$.not_after', '2020-01-01T00:00:00.000Z')
         WHERE kind = 'log_key'",
    )
    .execute(&mut hand)
    .await
    .unwrap();
    sqlx::Connection::close(hand).await.unwrap();
    let serves = place.fails(&mut place.command(&[]));
    for said in [serves, fails(&check)] {
        assert!(said.contains("has been replaced: start with the one"), "{said}");
        assert!(!said.contains("/problems/"), "it is a sentence: {said}");
    }
}

/// As it is after an upgrade to a version for whose policies a parameter has no type any more.
#[tokio::test]
async fn a_policy_that_does_not_see_its_parameter_any_more_is_named_by_a_check_and_a_start() {
    let place = Place::on_file();
    let server = place.serve(&[]);
    let client = server.client();
    let made = client.post("/v1/tenants", OPERATOR, &json!({"name": "acme"}));
    let made = made.unwrap().json();
    let tenant = made["id"].as_str().unwrap();
    let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}});
    let tools = json!({"tools": [{"name": "send", "inputSchema": schema}]});
    let imported = client.operate(tenant, "/v1/tools/mail/import", &tools);
    assert_eq!(imported.status, 201, "{imported:?}");
    let cedar = r#"@id("no-outside") forbid (principal, action == Action::"mail/send", resource)
        when { context.input has to && context.input.to like "*@evil.example" };"#;
    let policy = json!({"name": "mail", "cedar": cedar});
    let put = client.operate(tenant, "/v1/policies", &policy);
    assert_eq!(put.status, 201, "{put:?}");
    server.kill();
    let said = format!("the policy mail/no-outside of {tenant} tests for what it does not see");
    let url = file_of(&place);
    let check = ["check-config", "--database-url", &url];
    let told = succeeds(&check);
    assert!(!told.contains(&said), "{told}");

    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(place.database());
    let mut hand = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options)
        .await
        .unwrap();
    let change = sqlx::query(
        r#"UPDATE directory SET value = replace(value, '"to":{"type":"string"}', '"to":{"type":["string","array"]}')
         WHERE kind = 'tool' AND value LIKE '%"to":{"type":"string"}%'"#,
    );
    let changed = change.execute(&mut hand).await.unwrap();
    assert_eq!(changed.rows_affected(), 1);
    sqlx::Connection::close(hand).await.unwrap();
    let told = succeeds(&check);
    assert!(
        told.contains(&said) && told.contains("the configuration is good"),
        "{told}"
    );
    let _server = place.serve(&[]);
    assert!(place.stderr().contains(&said), "{}", place.stderr());
}

#[test]
fn a_base_policy_that_asks_for_what_is_never_known_is_named_by_a_check() {
    let place = Place::on_file();
    let file = place.path().join("base.cedar");
    let cedar = r#"@id("ada") forbid (principal, action, resource)
        when { context has user && context.user == User::"ada" && User::"ada" in Team::"oncall" };"#;
    std::fs::write(&file, cedar).unwrap();
    let (url, file) = (file_of(&place), file.to_str().unwrap());
    let told = succeeds(&["check-config", "--database-url", &url, "--policies", file]);
    let said = "asks for what is not known of what it names";
    assert!(told.contains("the operator's policy base/ada:2:"), "{told}");
    assert!(
        told.contains(said) && told.contains("the configuration is good"),
        "{told}"
    );
}

#[test]
fn a_bad_configuration_is_named() {
    let place = Place::on_file();
    let policies = place.path().join("base.cedar");
    std::fs::write(&policies, "permit (principal, action, resource);").unwrap();
    let file = policies.to_str().unwrap();
    let url = file_of(&place);
    for (args, words) in [
        (&["--policies", file][..], "@id"),
        (&["--operator-key", "hunter2"], "csk_"),
        (&["--operator-key", "csk_hunter2"], "csk_"),
        (&["--operator-key", "csk_hunter2\tand more"], "printable ASCII"),
        (&["--log", "a=b=c"], "a=b=c"),
        (&["--log", "warning"], "`warning` is neither a level"),
        (&["--log-name", "two words"], "two words"),
        (&["--policies", "/no/such/file"], "/no/such/file"),
        (&["--issuer-keys", "/no/such/keys"], "/no/such/keys"),
    ] {
        let mut all = vec!["check-config", "--database-url", &url];
        all.extend(args);
        let message = fails(&all);
        assert!(message.contains(words), "{args:?}: {message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}
