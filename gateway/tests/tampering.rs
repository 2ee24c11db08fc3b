//! Whoever changes the database by hand is found out: `/v1/ledger/verify` says where.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use ledger::{Checkpoint, SignatureKind, SigningKey};
use model::{DecisionId, TenantId};
use serde_json::{Value, json};
use stage::Stage;
use store::faults::Damaged;
use support::World;
use support::hand::Hand;
use support::tenancy::{Tenancy, injected, merging, reading};

/// The tables that hold what was decided.
const TABLES: [&str; 3] = ["audit_events", "decisions", "receipts"];

/// A ledger of twelve entries, of which 8 to 11 are decisions, and a hand on its database.
struct Scene {
    world: World,
    tenancy: Tenancy,
    hand: Hand,
}

impl Scene {
    async fn new() -> Self {
        Self::with(true).await
    }

    /// One in which SQL can read bodies and answers, or one in which they are stored as they are.
    async fn with(is_open: bool) -> Self {
        let world = World::start().await;
        let tenancy = world.tenancy("acme").await;
        let mut last = Value::Null;
        for ask in [reading(), injected(), merging(), reading()] {
            last = world.authorize(&tenancy.token, &ask).await.json();
        }
        let outcome = format!("/v1/decisions/{}/outcome", last["decision_id"].as_str().unwrap());
        let report = json!({"status": "succeeded", "executed_hash": last["action_hash"]});
        world.post(&outcome, &tenancy.token, &report).await.expect(201);
        let mut hand = Hand::on(&world.home, tenancy.id).await;
        hand.disarm().await;
        if is_open {
            hand.lay_open(&*world.store, tenancy.id).await;
        }
        for table in TABLES {
            hand.run(&format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}"))
                .await;
        }
        Self { world, tenancy, hand }
    }

    async fn restore(&mut self) {
        for table in TABLES {
            self.run(&format!("DELETE FROM {table}")).await;
            self.run(&format!("INSERT INTO {table} SELECT * FROM saved_{table}"))
                .await;
        }
    }

    async fn run(&mut self, sql: &str) {
        self.hand.run(sql).await;
    }

    async fn verify(&self, range: Value) -> Value {
        self.world
            .post("/v1/ledger/verify", &self.tenancy.auditor, &range)
            .await
            .expect(200)
    }

    /// What the verification says after this SQL was run.
    async fn after(&mut self, sql: &str) -> Value {
        self.run(sql).await;
        let verification = self.verify(json!({})).await;
        self.restore().await;
        verification
    }

    async fn check(&mut self, cases: &[(&str, u64, &str)]) {
        for (sql, seq, what) in cases {
            let found = self.after(sql).await;
            assert_eq!(found["verified"], false, "{sql}: {found}");
            assert_eq!(found["first_fault"]["seq"], *seq, "{sql}: {found}");
            let said = found["first_fault"]["what"].as_str().unwrap();
            assert!(said.contains(what), "{sql}: {said}");
        }
        let restored = self.verify(json!({})).await;
        assert_eq!(
            (restored["verified"].clone(), restored["checked"].clone()),
            (json!(true), json!(12)),
            "{restored}"
        );
    }
}

/// Swaps two rows of a table.
fn swapped(table: &str) -> String {
    format!(
        "UPDATE {table} SET entry = 0 WHERE entry = #8;
         UPDATE {table} SET entry = #8 WHERE entry = #10;
         UPDATE {table} SET entry = #10 WHERE entry = 0"
    )
}

#[tokio::test]
async fn an_entry_that_was_tampered_with_is_named() {
    let mut scene = Scene::new().await;
    let hash = "the header hashes to";
    scene
        .check(&[
            (
                "UPDATE audit_events SET body = replace(body, 'deny', 'allow') WHERE entry = #9",
                9,
                hash,
            ),
            ("UPDATE audit_events SET body = '{}' WHERE entry = #3", 3, hash),
            ("UPDATE audit_events SET at = at + 1 WHERE entry = #9", 9, hash),
            (
                "UPDATE audit_events SET kind = 'tool_deleted' WHERE entry = #3",
                3,
                hash,
            ),
            (
                "UPDATE audit_events SET hash = zeroblob(32) WHERE entry = #9",
                9,
                hash,
            ),
            (
                "UPDATE audit_events SET prev = zeroblob(32) WHERE entry = #9",
                9,
                "prev is",
            ),
            (
                "UPDATE audit_events SET hash = zeroblob(31) WHERE entry = #9",
                9,
                "`hash` of",
            ),
            (
                "UPDATE audit_events SET hash = zeroblob(32) WHERE entry = #12",
                12,
                hash,
            ),
            (
                "DELETE FROM audit_events WHERE entry = #1",
                1,
                "the entry is missing",
            ),
            (
                "DELETE FROM audit_events WHERE entry = #9",
                9,
                "the entry is missing",
            ),
            (
                "DELETE FROM audit_events WHERE entry = #12",
                12,
                "the entry is missing",
            ),
            (
                "DELETE FROM audit_events WHERE entry BETWEEN #10 AND #12",
                10,
                "the entry is missing",
            ),
            (&swapped("audit_events"), 8, "prev is"),
        ])
        .await;
}

/// No driver makes a text of it.
#[tokio::test]
async fn what_is_no_text_is_named() {
    let mut scene = Scene::new().await;
    if support::home::is_postgres() {
        // A server makes one only of what it takes for one already.
        scene.run("CREATE CAST (bytea AS text) WITHOUT FUNCTION").await;
    }
    let spoiled = format!("CAST({} AS text)", scene.hand.bytes(&[0xff]));
    let what = "is not of its type";
    scene
        .check(&[
            (
                &format!("UPDATE audit_events SET kind = {spoiled} WHERE entry = #3"),
                3,
                what,
            ),
            (
                &format!("UPDATE audit_events SET body = {spoiled} WHERE entry = #9"),
                9,
                what,
            ),
            (
                &format!("UPDATE decisions SET tool = {spoiled} WHERE entry = #9"),
                9,
                what,
            ),
        ])
        .await;
}

/// A decision whose outcome was reported.
async fn settled(stage: &Stage) -> DecisionId {
    let answer = stage.ask(&stage::reading()).await.expect(200);
    let id = answer["decision_id"].as_str().unwrap();
    let report = json!({"status": "succeeded", "executed_hash": answer["action_hash"]});
    let path = format!("/v1/decisions/{id}/outcome");
    stage.post(&path, &stage.agent.token, &report).await.expect(201);
    id.parse().unwrap()
}

/// As where the disk has lost a page of another table.
#[tokio::test]
async fn what_cannot_be_read_beside_the_entries_is_named() {
    let stage = Stage::set().await;
    let decided = [settled(&stage).await, settled(&stage).await];
    let head = stage.head().await.seq;
    for (damaged, range, seq) in [
        (Damaged::Endings, json!({}), head),
        (Damaged::OutcomeOf(decided[0]), json!({}), head - 2),
        (Damaged::OutcomeOf(decided[1]), json!({}), head),
        (Damaged::Nodes, json!({"from_seq": head}), head - 1),
    ] {
        stage.faults.damage(Some(damaged));
        let found = stage.admin("POST", "/v1/ledger/verify", &range).await.expect(200);
        let fault = &found["first_fault"];
        assert_eq!(fault["seq"], seq, "{damaged:?}: {found}");
        assert_eq!(fault["what"], "a fault was planned", "{damaged:?}: {found}");
    }
    stage.faults.damage(None);
    let found = stage
        .admin("POST", "/v1/ledger/verify", &json!({}))
        .await
        .expect(200);
    assert_eq!(found["verified"], true, "{found}");
}

#[tokio::test]
async fn a_decision_that_was_tampered_with_is_named() {
    let mut scene = Scene::new().await;
    let missing = "the decision or its receipt is missing";
    let stray = "a decision or a receipt is stored for an entry of the kind `tool_put`";
    scene
        .check(&[
            (
                "UPDATE decisions SET id = NOBODY WHERE entry = #9",
                9,
                "`decision_id` of the decision",
            ),
            (
                "UPDATE decisions SET agent = NOBODY WHERE entry = #9",
                9,
                "`agent` of the decision",
            ),
            (
                "UPDATE decisions SET tool = 'gitlab' WHERE entry = #9",
                9,
                "`tool` of the decision is `gitlab`",
            ),
            (
                "UPDATE decisions SET action = 'get_file' WHERE entry = #9",
                9,
                "`action` of the decision",
            ),
            (
                "UPDATE decisions SET reason = 'policy_permits' WHERE entry = #9",
                9,
                "`reason_code` of the decision",
            ),
            (
                "UPDATE decisions SET reason = 'because' WHERE entry = #9",
                9,
                "`reason` of",
            ),
            (
                "UPDATE decisions SET run_id = 'another' WHERE entry = #9",
                9,
                "`run_id` of the decision",
            ),
            (
                "UPDATE decisions SET run_id = NULL WHERE entry = #9",
                9,
                "`run_id` of the decision is nothing",
            ),
            (
                "UPDATE decisions SET ask = zeroblob(32) WHERE entry = #9",
                9,
                "`ask` of the decision is there",
            ),
            ("DELETE FROM decisions WHERE entry = #9", 9, missing),
            ("DELETE FROM decisions WHERE entry >= #11", 11, missing),
            ("DELETE FROM decisions", 8, missing),
            (&swapped("decisions"), 8, "of the decision is"),
            (
                "CREATE TABLE stray AS SELECT * FROM saved_decisions WHERE entry = #8;
                 UPDATE stray SET entry = #3, id = NOBODY;
                 INSERT INTO decisions SELECT * FROM stray;
                 DROP TABLE stray",
                3,
                stray,
            ),
            (
                "CREATE TABLE stray AS SELECT * FROM saved_decisions WHERE entry = #8;
                 UPDATE stray SET entry = #3, id = NOBODY;
                 INSERT INTO decisions SELECT * FROM stray;
                 DROP TABLE stray;
                 INSERT INTO receipts SELECT ENTRY #3, bytes FROM saved_receipts WHERE entry = #8",
                3,
                stray,
            ),
            (
                "INSERT INTO receipts SELECT ENTRY #3, bytes FROM saved_receipts WHERE entry = #8",
                3,
                stray,
            ),
        ])
        .await;
}

/// Earlier versions left the run out of such a row.
#[tokio::test]
async fn the_row_of_a_call_that_names_only_who_started_it_names_that_run_or_none() {
    let mut scene = Scene::new().await;
    let mut of_parent = reading();
    of_parent["trace"] = json!({"parent_run_id": "root"});
    scene.world.authorize(&scene.tenancy.token, &of_parent).await;
    let found = scene.verify(json!({})).await;
    assert_eq!(found["verified"], true, "{found}");
    for (run, is_sound) in [("NULL", true), ("'another'", false), ("'root'", true)] {
        let sql = format!("UPDATE decisions SET run_id = {run} WHERE entry = #13");
        scene.run(&sql).await;
        let found = scene.verify(json!({})).await;
        assert_eq!(found["verified"], is_sound, "{run}: {found}");
    }
}

#[tokio::test]
async fn a_receipt_that_was_tampered_with_is_named() {
    let mut scene = Scene::new().await;
    let missing = "the decision or its receipt is missing";
    let answer = "the receipt is not the answer that its entry names";
    let place = "the receipt names another place";
    let layout = "the receipt of the answer is not one";
    let replace = |old: &str, new: &str| {
        format!("UPDATE receipts SET bytes = <<replace([[bytes]], '{old}', '{new}')>> WHERE entry = #9")
    };
    scene
        .check(&[
            (&replace("\"deny\"", "\"allow\""), 9, answer),
            (&replace("\"seq\":9", "\"seq\":10"), 9, place),
            (
                &replace("\"prev_hash\":\"sha256:", "\"prev_hash\":\"sha257:"),
                9,
                layout,
            ),
            (
                &replace("\"body_hash\":\"sha256:", "\"body_hash\":\"sha256: "),
                9,
                layout,
            ),
            (&replace("\"tenant\":\"tnt_", "\"tenant\":\"tnt_0"), 9, place),
            (&replace("T09:30:00.000Z", "T09:30:00.001Z"), 9, place),
            (
                "UPDATE receipts SET bytes = <<[[bytes]] || ' '>> WHERE entry = #9",
                9,
                layout,
            ),
            (
                "UPDATE receipts SET bytes = zeroblob(1) WHERE entry = #9",
                9,
                "the answer is not JSON",
            ),
            ("DELETE FROM receipts WHERE entry = #9", 9, missing),
            ("DELETE FROM receipts WHERE entry >= #11", 11, missing),
            (&swapped("receipts"), 8, answer),
        ])
        .await;
}

/// Whatever stands in a column that only the gateway can read, it is read as something, and that is not what was recorded.
#[tokio::test]
async fn packed_bytes_that_were_tampered_with_are_named() {
    if support::home::is_postgres() {
        // Nothing is packed there.
        return;
    }
    let mut scene = Scene::with(false).await;
    let body = "but the header hashes to";
    let hex = "hex(packed)";
    let flipped = format!(
        "UPDATE audit_events SET packed = unhex(substr({hex}, 1, length({hex}) - 1) || 'E') WHERE entry = #9"
    );
    scene
        .check(&[
            ("UPDATE audit_events SET packed = zeroblob(1) WHERE entry = #9", 9, body),
            ("UPDATE audit_events SET packed = x'01' WHERE entry = #3", 3, body),
            ("UPDATE audit_events SET packed = x'0107ff' WHERE entry = #9", 9, body),
            ("UPDATE audit_events SET packed = NULL WHERE entry = #9", 9, body),
            (
                "UPDATE audit_events SET body = '{}' WHERE entry = #9",
                9,
                "is there beside `packed`",
            ),
            (
                "UPDATE audit_events SET packed = (SELECT packed FROM audit_events WHERE entry = #8) WHERE entry = #9",
                9,
                body,
            ),
            (&flipped, 9, body),
            (
                "UPDATE receipts SET bytes = x'0107ff' WHERE entry = #9",
                9,
                "the answer is not JSON",
            ),
            (
                "UPDATE receipts SET bytes = (SELECT bytes FROM receipts WHERE entry = #8) WHERE entry = #9",
                9,
                "the receipt",
            ),
            (&swapped("receipts"), 8, "the answer"),
        ])
        .await;
}

#[tokio::test]
async fn what_is_stored_of_the_tree_is_compared_and_so_is_who_signed() {
    let mut scene = Scene::new().await;
    let tree = "the hashes of the tree that are stored with the entry";
    scene
        .check(&[
            ("UPDATE audit_events SET nodes = zeroblob(32) WHERE entry = #9", 9, tree),
            ("UPDATE audit_events SET nodes = zeroblob(1) WHERE entry = #10", 10, tree),
            (
                "UPDATE receipts SET bytes = <<replace([[bytes]], 'log.example+', 'log.exampel+')>> WHERE entry = #9",
                9,
                "is not one that is trusted",
            ),
        ])
        .await;
    let found = scene
        .after("UPDATE audit_events SET nodes = zeroblob(1) WHERE entry = #10")
        .await;
    assert_eq!(found["first_fault"]["since"]["seq"], 9, "{found}");
}

/// No signature can be checked then, and all the rest can.
#[tokio::test]
async fn a_key_of_the_log_that_stands_twice_is_named_and_hides_no_fault_of_another_ledger() {
    let Scene {
        world,
        tenancy,
        mut hand,
    } = Scene::new().await;
    world.publish_key().await;
    hand.double_log_key().await;
    let world = world.again().await;
    let mut scene = Scene { world, tenancy, hand };
    let operator = scene.world.operator.clone();
    let call = scene.world.call("POST", "/v1/ledger/verify", &operator);
    let found = call.tenant(TenantId::SYSTEM).send().await.expect(200);
    assert_eq!(found["verified"], false, "{found}");
    let what = found["first_fault"]["what"].as_str().unwrap();
    assert!(what.contains("stands twice"), "{what}");
    let auditor = scene.tenancy.auditor.clone();
    let ask = json!({});
    let refused = scene.world.post("/v1/ledger/verify", &auditor, &ask).await;
    let why = refused.problem(503, "ledger_unavailable");
    assert!(why.contains("stands twice"), "{why}");
    let found = scene
        .after("UPDATE audit_events SET body = '{}' WHERE entry = #3")
        .await;
    assert_eq!(found["verified"], false, "{found}");
    assert_eq!(found["first_fault"]["seq"], 3, "{found}");
}

#[tokio::test]
async fn a_ledger_that_does_not_continue_a_checkpoint_kept_elsewhere_is_found_out() {
    let scene = Scene::new().await;
    let tip = scene.world.store.tip(scene.tenancy.id).await.unwrap();
    let tenant = scene.tenancy.id.to_string();
    let held = |size: u64, root: Digest, key: &SigningKey| {
        let checkpoint = Checkpoint::new("log.example", &tenant, size, root);
        json!({"held": checkpoint.sign(&[key]).unwrap().to_string()})
    };
    let (key, root) = (support::signing_key(), tip.tree().root());
    let right = scene.verify(held(12, root, &key)).await;
    assert_eq!(right["verified"], true, "{right}");
    for (size, root, said) in [
        (12, Digest::ZERO, "but a checkpoint says"),
        (5, root, "but a checkpoint says"),
        (13, root, "its tail is missing"),
    ] {
        let found = scene.verify(held(size, root, &key)).await;
        let what = found["first_fault"]["what"].as_str().unwrap();
        assert!(found["verified"] == false && what.contains(said), "{found}");
    }
    let stranger = SigningKey::from_seed("log.example", SignatureKind::Note, &[9; 32]).unwrap();
    let auditor = &scene.tenancy.auditor;
    let refused = scene
        .world
        .post("/v1/ledger/verify", auditor, &held(12, root, &stranger))
        .await;
    refused.problem(400, "invalid_field");
}

#[tokio::test]
async fn a_checkpoint_that_ends_before_the_range_is_refused_and_is_no_fault() {
    let scene = Scene::new().await;
    let checkpoint = scene
        .world
        .get("/v1/ledger/checkpoint", &scene.tenancy.auditor)
        .await
        .text();
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    let behind = json!({"held": checkpoint, "from_seq": 13});
    assert_eq!(scene.verify(behind).await["verified"], true);
    let further = json!({"held": checkpoint, "from_seq": 14});
    let auditor = &scene.tenancy.auditor;
    let refused = scene.world.post("/v1/ledger/verify", auditor, &further).await;
    let detail = refused.problem(400, "invalid_field");
    assert!(detail.contains("leave `from_seq` out"), "{detail}");
}

#[tokio::test]
async fn an_entry_behind_the_head_is_named() {
    let mut scene = Scene::new().await;
    let smuggled = "INSERT INTO audit_events (PLACE, kind, at, prev, hash, body, nodes) SELECT ENTRY #13, kind, at, prev, hash, body, nodes FROM saved_audit_events WHERE entry = #12";
    let found = scene.after(smuggled).await;
    assert_eq!(found["first_fault"]["seq"], 13, "{found}");
    assert_eq!(
        found["first_fault"]["what"],
        "the entry stands behind the head, which is at seq 12"
    );
}

/// When the gateway comes to their place, nothing can be written there.
#[tokio::test]
async fn a_decision_or_a_receipt_behind_the_head_is_named_and_so_is_one_before_the_first_entry() {
    let mut scene = Scene::new().await;
    let receipt = |seq: u64| {
        format!(
            "INSERT INTO receipts (PLACE, bytes) SELECT ENTRY #{seq}, bytes FROM saved_receipts WHERE entry = #8"
        )
    };
    let decision = "CREATE TABLE stray AS SELECT * FROM saved_decisions WHERE entry = #8;
         UPDATE stray SET entry = #14, id = NOBODY;
         INSERT INTO decisions SELECT * FROM stray;
         DROP TABLE stray";
    let (behind, before) = (
        "a decision or a receipt stands behind the head, which is at seq 12",
        "a decision or a receipt stands before the first entry",
    );
    scene
        .check(&[
            (decision, 14, behind),
            (&receipt(15), 15, behind),
            (&format!("{decision}; {}", receipt(13)), 13, behind),
            (&receipt(0), 12, before),
            (
                "INSERT INTO audit_events (PLACE, kind, at, prev, hash, body, nodes) SELECT ENTRY #0, kind, at, prev, hash, body, nodes FROM saved_audit_events WHERE entry = #12",
                12,
                "the entry stands before the first entry",
            ),
        ])
        .await;
}

/// Every later entry would have to be as late.
#[tokio::test]
async fn the_time_beside_the_head_is_that_of_the_last_entry() {
    let mut scene = Scene::new().await;
    for change in ["3800000000000", "head_at + 1", "head_at - 1"] {
        scene
            .run(&format!("UPDATE tenants SET head_at = {change} WHERE MINE"))
            .await;
        let found = scene.verify(json!({})).await;
        assert_eq!(found["first_fault"]["seq"], 12, "{found}");
        let what = found["first_fault"]["what"].as_str().unwrap();
        assert!(
            what.starts_with("it was recorded at `20") && what.contains("but the ledger's head has `20"),
            "{what}"
        );
        scene
            .run("UPDATE tenants SET head_at = (SELECT at FROM audit_events WHERE entry = #12 AND ITS) WHERE MINE")
            .await;
    }
    assert_eq!(scene.verify(json!({})).await["verified"], true);
}

#[tokio::test]
async fn half_of_what_an_erasure_leaves_is_named() {
    let mut scene = Scene::new().await;
    scene
        .check(&[
            (
                "UPDATE audit_events SET erased_by = 12 WHERE entry = #9",
                9,
                "is there without `erased_body`",
            ),
            (
                "UPDATE audit_events SET erased_body = zeroblob(32) WHERE entry = #9",
                9,
                "is there without `erased_by`",
            ),
        ])
        .await;
}

/// What cannot be read behind it may be another one's doing.
#[tokio::test]
async fn an_outcome_that_is_forgotten_before_one_that_cannot_be_read_is_named() {
    let stage = Stage::set().await;
    let decided = [settled(&stage).await, settled(&stage).await];
    let first = stage.head().await.seq - 2;
    let mut hand = Hand::on(&stage.home, stage.tenant).await;
    hand.disarm().await;
    hand.run(&format!("DELETE FROM outcomes WHERE entry = #{first} AND ITS"))
        .await;
    stage.faults.damage(Some(Damaged::OutcomeOf(decided[1])));
    let found = stage.admin("POST", "/v1/ledger/verify", &json!({})).await;
    let found = found.expect(200);
    assert_eq!(found["first_fault"]["seq"], first, "{found}");
    let what = found["first_fault"]["what"].as_str().unwrap();
    assert!(what.starts_with("no outcome is stored"), "{found}");
}

/// With it the same outcome could be reported again, and what was held settled by another one.
#[tokio::test]
async fn an_outcome_that_its_decision_does_not_lead_to_is_named() {
    let mut scene = Scene::new().await;
    scene
        .run("CREATE TABLE saved_outcomes AS SELECT * FROM outcomes")
        .await;
    for change in [
        "DELETE FROM outcomes",
        "UPDATE outcomes SET entry = #11 WHERE entry = #12",
    ] {
        let found = scene.after(change).await;
        assert_eq!(found["first_fault"]["seq"], 12, "{change}: {found}");
        assert_eq!(found["checked"], 11, "{change}: {found}");
        assert_eq!(found["first_fault"]["since"]["seq"], 11, "{change}: {found}");
        let what = found["first_fault"]["what"].as_str().unwrap();
        assert!(what.starts_with("no outcome is stored"), "{change}: {what}");
        scene.run("DELETE FROM outcomes").await;
        scene
            .run("INSERT INTO outcomes SELECT * FROM saved_outcomes")
            .await;
    }
    assert_eq!(scene.verify(json!({})).await["verified"], true);
}

/// Nobody can tell from the inside; a seq that somebody saw on a receipt can.
#[tokio::test]
async fn a_tail_that_was_cut_together_with_the_head_is_missed_by_whoever_saw_it() {
    let mut scene = Scene::new().await;
    let auditor = scene.tenancy.auditor.clone();
    let checkpoint = scene.world.get("/v1/ledger/checkpoint", &auditor).await.text();
    for table in TABLES {
        scene.run(&format!("DELETE FROM {table} WHERE entry > #8")).await;
    }
    scene
        .run(
            "UPDATE tenants SET head_seq = 8, head_hash = (SELECT hash FROM audit_events WHERE entry = #8 AND ITS),
             head_at = (SELECT at FROM audit_events WHERE entry = #8 AND ITS)
             WHERE MINE",
        )
        .await;
    let found = scene.verify(json!({})).await;
    assert_eq!(found["verified"], false, "the edge of the tree is still there");
    scene
        .run(
            "UPDATE tenants SET edge = (SELECT substr(nodes, 97, 32) FROM audit_events WHERE entry = #8 AND ITS)
             WHERE MINE",
        )
        .await;
    // A gateway that runs may know of more already.
    assert_eq!(scene.verify(json!({"to_seq": 8})).await["verified"], true);
    let found = scene.verify(json!({"to_seq": 12})).await;
    assert_eq!(found["first_fault"]["seq"], 9, "{found}");
    assert_eq!(found["checked"], 8);
    let found = scene.verify(json!({"from_seq": 10, "to_seq": 12})).await;
    assert_eq!(found["first_fault"]["seq"], 9, "{found}");
    assert_eq!(found["checked"], 0);
    for from in [9, 13] {
        let found = scene.verify(json!({"held": checkpoint, "from_seq": from})).await;
        assert_eq!(found["first_fault"]["seq"], 9, "{found}");
        assert_eq!(found["verified"], false);
    }
}

/// None is empty: the first entry of each tells of its tenant.
#[tokio::test]
async fn a_ledger_that_is_gone_as_a_whole_is_missed_from_its_first_entry_on() {
    let mut scene = Scene::new().await;
    scene.run("DELETE FROM tenants WHERE MINE").await;
    for range in [json!({}), json!({"from_seq": 3}), json!({"to_seq": 5})] {
        let found = scene.verify(range).await;
        assert_eq!(found["verified"], false, "{found}");
        assert_eq!(
            found["first_fault"],
            json!({"seq": 1, "what": "the entry is missing"})
        );
    }
}

#[tokio::test]
async fn whoever_follows_a_ledger_sees_what_comes_before_an_entry_that_cannot_be_read() {
    let mut scene = Scene::new().await;
    for spoiled in ["body = 'spoiled'", "hash = zeroblob(1)"] {
        scene
            .run(&format!("UPDATE audit_events SET {spoiled} WHERE entry = #9"))
            .await;
        let auditor = &scene.tenancy.auditor;
        let followed = scene.world.get("/v1/events?from_seq=1", auditor).await.text();
        let (before, end) = followed.split_once("event: closed").unwrap();
        assert_eq!(before.matches("data: {\"seq\":").count(), 8, "{followed}");
        assert!(
            before.ends_with("\n\nid: 8\n") || end.contains("\nid: 8\n"),
            "{followed}"
        );
        scene.restore().await;
    }
}

#[tokio::test]
async fn a_range_is_held_against_the_entry_before_it() {
    let mut scene = Scene::new().await;
    assert_eq!(
        scene.verify(json!({"from_seq": 9, "to_seq": 10})).await["verified"],
        true
    );
    scene
        .run("UPDATE audit_events SET hash = zeroblob(32) WHERE entry = #8")
        .await;
    let found = scene.verify(json!({"from_seq": 9, "to_seq": 10})).await;
    assert_eq!(found["first_fault"]["seq"], 9, "{found}");
    scene.run("DELETE FROM audit_events WHERE entry = #8").await;
    let found = scene.verify(json!({"from_seq": 9, "to_seq": 10})).await;
    assert_eq!(
        found["first_fault"],
        json!({"seq": 8, "what": "the entry is missing"})
    );
    // Its part of the tree is gone too, and what comes later cannot be compared without.
    let found = scene.verify(json!({"from_seq": 10})).await;
    assert_eq!(found["first_fault"]["seq"], 9, "{found}");
}

/// Behind the head of an answer there is no status any more that could say so.
#[tokio::test]
async fn a_file_that_begins_with_what_cannot_be_read_is_refused() {
    let mut scene = Scene::new().await;
    let auditor = scene.tenancy.auditor.clone();
    let export = scene.world.get("/v1/ledger/export?from_seq=9", &auditor).await;
    let export = export.text();
    let entries = export.lines().filter(|line| line.starts_with("{\"header\":"));
    assert_eq!(entries.count(), 4, "each is there once: {export}");
    for spoiled in [
        "UPDATE audit_events SET hash = zeroblob(1) WHERE entry = #9",
        "DELETE FROM audit_events WHERE entry >= #9",
    ] {
        scene.run(spoiled).await;
        for path in ["/v1/ledger/export", "/v1/ledger/evidence"] {
            let path = format!("{path}?from_seq=9");
            let refused = scene.world.get(&path, &auditor).await;
            refused.problem(503, "ledger_unavailable");
        }
        scene.restore().await;
    }
}

#[tokio::test]
async fn an_export_of_a_ledger_whose_tail_is_cut_breaks_off() {
    let mut scene = Scene::new().await;
    scene.run("DELETE FROM audit_events WHERE entry > #10").await;
    let response = scene
        .world
        .call("GET", "/v1/ledger/export", &scene.tenancy.auditor)
        .respond()
        .await;
    assert!(
        axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .is_err()
    );
}
