//! A gateway verifies its ledgers without being asked: whoever changes the database under it is found out, and nothing is signed
//! any more for a ledger with a fault.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use gateway::cosigning::{self, WitnessOptions};
use gateway::gateway::Options;
use gateway::signing::Keyring;
use gateway::witness::{Folder, Witness};
use ledger::{NewEntry, SignatureKind, SigningKey};
use model::TenantId;
use model::time::ManualClock;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::World;
use support::hand::Hand;
use support::tenancy::{ENTRIES, Tenancy, reading};
use tokio::net::TcpListener;

/// What was read takes a tick, some looks and a rest to be read again; this is longer than any of that.
const PATIENCE: Duration = Duration::from_mins(3);

struct Scene {
    world: World,
    tenancy: Tenancy,
    hand: Hand,
}

impl Scene {
    /// A ledger of some decisions that the gateway has verified, and a hand on its database.
    async fn new() -> Self {
        Self::with(WitnessOptions::default()).await
    }

    async fn with(witnesses: WitnessOptions) -> Self {
        let options = Options {
            witnesses,
            ..Options::default()
        };
        let world = World::start_with(options).await;
        let tenancy = world.tenancy("acme").await;
        for _ in 0..4 {
            world.authorize(&tenancy.token, &reading()).await;
        }
        let mut hand = Hand::on(&world.home, tenancy.id).await;
        hand.disarm().await;
        hand.lay_open(&*world.store, tenancy.id).await;
        let scene = Self { world, tenancy, hand };
        scene.until("countersign_ledger_unverified_entries 0").await;
        scene.until_counted(ENTRIES + 4).await;
        scene
    }

    async fn metrics(&self) -> String {
        self.world.get("/metrics", "").await.text()
    }

    /// Waits until the metrics have this line.
    async fn until(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.metrics().await.lines().any(|found| found == line) {
            assert!(Instant::now() < deadline, "{line}\n{}", self.metrics().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until so many entries were verified.
    async fn until_counted(&self, entries: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.metrics().await;
            let count = metrics
                .lines()
                .find_map(|line| line.strip_prefix("countersign_ledger_verified_entries_total "));
            if count.unwrap().parse::<u64>().unwrap() >= entries {
                return;
            }
            assert!(Instant::now() < deadline, "{metrics}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for the fault, and asks for a checkpoint; what it says.
    async fn refusal(&self) -> String {
        self.until("countersign_ledger_faults 1").await;
        self.world.get("/readyz", "").await.problem(503, "ledger_fault");
        self.checkpoint().await.problem(503, "ledger_fault")
    }

    async fn verify(&self, range: &Value) -> Value {
        let auditor = &self.tenancy.auditor;
        let verified = self.world.post("/v1/ledger/verify", auditor, range).await;
        verified.expect(200)
    }

    /// What an operator is told of the system tenant's ledger.
    async fn of_system(&self, method: &str, path: &str) -> support::Reply {
        let call = self.world.call(method, path, &self.world.operator);
        call.tenant(TenantId::SYSTEM).send().await
    }

    async fn checkpoint(&self) -> support::Reply {
        self.world
            .get("/v1/ledger/checkpoint", &self.tenancy.auditor)
            .await
    }
}

#[tokio::test]
async fn an_entry_that_is_changed_under_a_running_gateway_is_found_and_nothing_is_signed_until_it_is_back() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.checkpoint().await.status, 200);
    assert_eq!(scene.world.get("/readyz", "").await.status, 200);
    scene
        .hand
        .run("UPDATE audit_events SET body = replace(body, 'allow', 'denyy') WHERE entry = #9")
        .await;
    let why = scene.refusal().await;
    assert!(
        why.contains("entry 9: ") && why.contains("nothing is signed"),
        "{why}"
    );
    // Decisions go on, and other tenants' ledgers are signed.
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    let other = scene.world.tenancy("other").await;
    let theirs = scene.world.get("/v1/ledger/checkpoint", &other.auditor).await;
    assert_eq!(theirs.status, 200);
    let export = scene
        .world
        .call("GET", "/v1/ledger/export", &scene.tenancy.auditor)
        .respond()
        .await;
    let read = axum::body::to_bytes(export.into_body(), usize::MAX).await;
    assert!(read.is_err(), "without a checkpoint an export has no end");
    scene
        .hand
        .run("UPDATE audit_events SET body = replace(body, 'denyy', 'allow') WHERE entry = #9")
        .await;
    // A fault that is known and was put right is not told any more.
    let found = scene.verify(&json!({})).await;
    assert_eq!(found["verified"], true, "{found}");
    assert_eq!(scene.checkpoint().await.status, 200);
    scene.until("countersign_ledger_faults 0").await;
    assert_eq!(scene.world.get("/readyz", "").await.status, 200);
}

/// Also while a ledger rests, and then it is read for what it tells of keys.
#[tokio::test]
async fn an_entry_that_cannot_be_read_any_more_is_found() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    for _ in 0..3 {
        let nothing = json!({"seqs": []});
        world.append(TenantId::SYSTEM, "bodies_erased", &nothing).await;
    }
    let mut hand = Hand::on(&world.home, TenantId::SYSTEM).await;
    hand.disarm().await;
    let mut scene = Scene { world, tenancy, hand };
    scene.until_counted(ENTRIES + 3).await;
    scene.until("countersign_ledger_unverified_entries 0").await;
    scene
        .hand
        .run("UPDATE audit_events SET prev = zeroblob(1) WHERE entry = #1 AND ITS")
        .await;
    scene.until("countersign_ledger_faults 1").await;
    let why = scene.of_system("GET", "/v1/ledger/checkpoint").await;
    let why = why.problem(503, "ledger_fault");
    assert!(why.contains("entry 1: `prev` of"), "{why}");
    // What it may have told of keys is missing to whoever asks about later entries alone.
    let operator = scene.world.operator.clone();
    let call = scene.world.call("POST", "/v1/ledger/verify", &operator);
    let later = call.tenant(TenantId::SYSTEM).json(&json!({"from_seq": 3}));
    let found = later.send().await.expect(200);
    let what = found["first_fault"]["what"].as_str().unwrap();
    assert!(what.contains("`prev` of"), "{found}");
}

/// It does not pass, and whoever verifies is not told to try again for ever.
#[tokio::test]
async fn a_ledger_of_which_nobody_can_read_where_it_ends_is_no_store_that_does_not_answer() {
    let mut scene = Scene::new().await;
    scene
        .hand
        .run("UPDATE tenants SET head_hash = zeroblob(1) WHERE MINE")
        .await;
    let auditor = scene.tenancy.auditor.clone();
    let deadline = Instant::now() + PATIENCE;
    // Until the watch has looked at it often enough.
    let why = loop {
        let verified = scene.world.post("/v1/ledger/verify", &auditor, &json!({})).await;
        if verified.expect(503)["code"] == "ledger_fault" {
            break verified.problem(503, "ledger_fault");
        }
        let why = verified.problem(503, "ledger_unavailable");
        assert!(why.contains("cannot be read"), "{why}");
        assert!(Instant::now() < deadline, "nobody has looked at it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(why.contains("`head_hash` of"), "{why}");
    scene
        .hand
        .run("UPDATE tenants SET head_hash = (SELECT hash FROM audit_events WHERE entry = #11 AND ITS) WHERE MINE")
        .await;
    let found = scene.verify(&json!({})).await;
    assert_eq!(found["verified"], true, "{found}");
}

#[tokio::test]
async fn a_range_beyond_the_ledger_makes_no_suspect() {
    let scene = Scene::new().await;
    let (watch, tenant) = (Arc::clone(&scene.world.gateway.watch), scene.tenancy.id);
    for range in [json!({"to_seq": 99}), json!({"from_seq": 98, "to_seq": 99})] {
        let beyond = scene.verify(&range).await;
        assert_eq!(
            (&beyond["verified"], &beyond["first_fault"]["seq"]),
            (&json!(false), &json!(ENTRIES + 5))
        );
        assert_eq!(watch.suspected(tenant), None);
    }
}

#[tokio::test]
async fn a_fault_that_an_auditor_found_is_verified_next_until_it_is_mended() {
    let mut scene = Scene::new().await;
    let (watch, tenant) = (Arc::clone(&scene.world.gateway.watch), scene.tenancy.id);
    scene
        .hand
        .run("UPDATE audit_events SET body = replace(body, 'allow', 'denyy') WHERE entry = #9")
        .await;
    let found = scene.verify(&json!({})).await;
    assert_eq!(found["first_fault"]["seq"], 9, "{found}");
    assert_eq!(watch.suspected(tenant), Some(9));
    scene.refusal().await;
    assert_eq!(watch.suspected(tenant), Some(9));
    scene
        .hand
        .run("UPDATE audit_events SET body = replace(body, 'denyy', 'allow') WHERE entry = #9")
        .await;
    scene.until("countersign_ledger_faults 0").await;
    assert_eq!(watch.suspected(tenant), None);
    assert_eq!(scene.checkpoint().await.status, 200);
}

#[tokio::test]
async fn a_tail_that_is_cut_together_with_the_head_is_found_by_whoever_has_seen_it() {
    let mut scene = Scene::new().await;
    for table in ["audit_events", "decisions", "receipts"] {
        scene
            .hand
            .run(&format!("DELETE FROM {table} WHERE entry > #8"))
            .await;
    }
    scene
        .hand
        .run(
            "UPDATE tenants SET head_seq = 8, head_hash = (SELECT hash FROM audit_events WHERE entry = #8 AND ITS),
             head_at = (SELECT at FROM audit_events WHERE entry = #8 AND ITS),
             edge = (SELECT substr(nodes, 97, 32) FROM audit_events WHERE entry = #8 AND ITS) WHERE MINE",
        )
        .await;
    let why = scene.refusal().await;
    assert!(
        why.contains("entry 9: the entry is missing: the ledger ended at seq 11"),
        "{why}"
    );
    // What is left agrees with itself, and the gateway says no other thing to an auditor.
    for (from, checked) in [(1, 8), (7, 2)] {
        let found = scene.verify(&json!({"from_seq": from})).await;
        assert_eq!(
            (&found["verified"], &found["checked"]),
            (&json!(false), &json!(checked)),
            "{found}"
        );
        assert_eq!(
            found["first_fault"],
            json!({"seq": 9, "what": "the entry is missing: the ledger ended at seq 11 when it was verified"})
        );
    }
    let before = scene.verify(&json!({"to_seq": 8})).await;
    assert_eq!(before["verified"], true, "{before}");
}

/// Nothing else misses it once the gateway is started again.
#[tokio::test]
async fn a_ledger_that_is_gone_as_a_whole_is_a_fault_of_the_one_that_tells_of_it() {
    let mut scene = Scene::new().await;
    let created = scene
        .of_system("GET", "/v1/audit/events?kind=tenant_created")
        .await
        .expect(200);
    let seq = &created["items"][0]["seq"];
    let what = format!(
        "it tells of the ledger of {}, and there is none",
        scene.tenancy.id
    );
    scene
        .hand
        .run("CREATE TABLE saved_tenants AS SELECT * FROM tenants WHERE MINE")
        .await;
    scene.hand.run("DELETE FROM tenants WHERE MINE").await;
    // The watch finds it by itself, and whoever asks does.
    scene.until("countersign_ledger_faults 2").await;
    let why = scene.of_system("GET", "/v1/ledger/checkpoint").await;
    let why = why.problem(503, "ledger_fault");
    assert!(why.contains(&format!("entry {seq}: {what}")), "{why}");
    let found = scene.of_system("POST", "/v1/ledger/verify").await.expect(200);
    assert_eq!(found["verified"], false, "{found}");
    assert_eq!(found["first_fault"]["seq"], *seq, "{found}");
    assert_eq!(found["first_fault"]["what"], what, "{found}");
    scene
        .hand
        .run("INSERT INTO tenants SELECT * FROM saved_tenants")
        .await;
    scene.until("countersign_ledger_faults 0").await;
    let found = scene.of_system("POST", "/v1/ledger/verify").await.expect(200);
    assert_eq!(found["verified"], true, "{found}");
}

/// Everything fits, so witnesses would cosign the entry that says so.
#[tokio::test]
async fn a_ledger_that_is_gone_is_missed_though_an_entry_says_that_what_told_of_it_was_erased() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let entries = world.store.entries(TenantId::SYSTEM, 1, 100).await.unwrap();
    let told = entries.iter().find(|entry| entry.kind == "tenant_created");
    let (seq, digest) = told
        .map(|entry| (entry.seq, Digest::of(entry.body.as_bytes())))
        .unwrap();
    let erasure = json!({"seqs": [[seq, seq]]});
    let by = world.append(TenantId::SYSTEM, "bodies_erased", &erasure).await;
    let mut hand = Hand::on(&world.home, TenantId::SYSTEM).await;
    hand.disarm().await;
    hand.lay_open(&*world.store, TenantId::SYSTEM).await;
    let digest = hand.bytes(digest.as_bytes());
    hand.run(&format!(
        "UPDATE audit_events SET body = '', erased_by = {by}, erased_body = {digest} WHERE entry = #{seq} AND ITS"
    ))
    .await;
    hand.run("DELETE FROM tenants WHERE NOT (MINE)").await;
    let world = world.again().await;
    let scene = Scene { world, tenancy, hand };
    scene.until("countersign_ledger_faults 1").await;
    scene.world.get("/readyz", "").await.problem(503, "ledger_fault");
    let what = "the body is gone, and an entry of the kind `tenant_created` is never erased";
    let why = scene.of_system("GET", "/v1/ledger/checkpoint").await;
    let why = why.problem(503, "ledger_fault");
    assert!(why.contains(&format!("entry {seq}: {what}")), "{why}");
    let found = scene.of_system("POST", "/v1/ledger/verify").await.expect(200);
    assert_eq!(found["verified"], false, "{found}");
    assert_eq!(found["first_fault"]["seq"], seq, "{found}");
    assert_eq!(found["first_fault"]["what"], what, "{found}");
}

/// It would be missed only until somebody is answered.
#[tokio::test]
async fn a_ledger_that_was_begun_anew_is_not_the_one_that_was_told_of() {
    let Scene {
        world,
        tenancy,
        mut hand,
    } = Scene::new().await;
    for table in ["receipts", "decisions", "audit_events"] {
        let all = format!("DELETE FROM {table} WHERE entry BETWEEN #1 AND #99 AND ITS");
        hand.run(&all).await;
    }
    hand.run("UPDATE tenants SET head_seq = 0, head_hash = zeroblob(32), head_at = 0, edge = zeroblob(0) WHERE MINE")
        .await;
    let world = world.again().await;
    let scene = Scene { world, tenancy, hand };
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    let what = format!(
        "it tells of the ledger of {}, and there is another one that begins otherwise",
        scene.tenancy.id
    );
    let found = scene.of_system("POST", "/v1/ledger/verify").await.expect(200);
    assert_eq!(found["first_fault"]["what"], what, "{found}");
    let why = scene.refusal().await;
    assert!(
        why.contains("another ledger was begun in place of this one"),
        "{why}"
    );
}

/// No start refuses it, and without keys no signature can be checked.
#[tokio::test]
async fn a_key_of_the_log_that_stands_twice_is_a_fault_of_the_ledger_that_tells_of_keys_and_hides_no_other() {
    let Scene {
        world,
        tenancy,
        mut hand,
    } = Scene::new().await;
    world.publish_key().await;
    hand.double_log_key().await;
    let world = world.again().await;
    let mut scene = Scene { world, tenancy, hand };
    scene.until("countersign_ledger_faults 1").await;
    scene.world.get("/readyz", "").await.problem(503, "ledger_fault");
    let why = scene.of_system("GET", "/v1/ledger/checkpoint").await;
    let why = why.problem(503, "ledger_fault");
    assert!(why.contains("stands twice"), "{why}");
    assert_eq!(scene.checkpoint().await.status, 200);
    scene
        .hand
        .run("UPDATE audit_events SET body = replace(body, 'allow', 'denyy') WHERE entry = #9")
        .await;
    scene.until("countersign_ledger_faults 2").await;
    let why = scene.checkpoint().await.problem(503, "ledger_fault");
    assert!(why.contains("entry 9: "), "{why}");
}

/// Somebody who has stolen it would have it sign again.
#[tokio::test]
async fn a_key_that_an_entry_brings_back_after_its_end_is_a_fault_of_the_ledger_that_tells_of_keys() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    world.gateway.publish_keys(&Keyring::of(old_key())).await.unwrap();
    world.gateway.publish_keys(&rotated()).await.unwrap();
    let end = ends(&world).remove(0);
    // It is published as the last entry has it.
    let hand = name_late_end(&world, &format!("\"{end}\"")).await;
    let world = world.again().await;
    assert_eq!(ends(&world), [LATE]);
    let scene = Scene { world, tenancy, hand };
    scene.until("countersign_ledger_faults 1").await;
    let why = scene.of_system("GET", "/v1/ledger/checkpoint").await;
    let why = why.problem(503, "ledger_fault");
    assert!(why.contains("than an earlier one"), "{why}");
    let found = scene.of_system("POST", "/v1/ledger/verify").await.expect(200);
    assert_eq!(found["verified"], false, "{found}");
}

/// Somebody who has stolen it writes that down while it still signs, and then everything fits.
#[tokio::test]
async fn a_key_for_which_somebody_has_named_a_late_end_ends_when_it_is_replaced_and_the_ledger_has_a_fault() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    world.gateway.publish_keys(&Keyring::of(old_key())).await.unwrap();
    let hand = name_late_end(&world, "null").await;
    let world = world.again().await;
    assert_eq!(ends(&world), [LATE]);
    world.gateway.publish_keys(&rotated()).await.unwrap();
    let end = world.gateway.clock.now().plus_millis(60_000).to_string();
    assert_eq!(ends(&world), [&*end]);
    let scene = Scene { world, tenancy, hand };
    scene.until("countersign_ledger_faults 1").await;
    let why = scene.of_system("GET", "/v1/ledger/checkpoint").await;
    let why = why.problem(503, "ledger_fault");
    assert!(why.contains("than an earlier one"), "{why}");
    // Nor does another start of the gateway end it again.
    scene.world.gateway.publish_keys(&rotated()).await.unwrap();
    let entries = scene.world.store.entries(TenantId::SYSTEM, 1, 100).await.unwrap();
    let ended = entries.iter().filter(|entry| entry.kind == "log_key_ended");
    assert_eq!(ended.count(), 2);
}

/// An end that a key has only from somebody who has stolen it.
const LATE: &str = "2126-01-31T09:30:00.000Z";

fn old_key() -> SigningKey {
    SigningKey::from_seed("log.example", SignatureKind::Note, &[2; 32]).unwrap()
}

/// What a gateway has that starts with a file of two keys.
fn rotated() -> Keyring {
    Keyring {
        signing: support::signing_key(),
        replaced: vec![old_key()],
    }
}

/// The ends of the keys that are published.
fn ends(world: &World) -> Vec<String> {
    let keys = world.gateway.log_keys().unwrap();
    let ends = keys.keys().iter().filter_map(|key| key.not_after);
    ends.map(|end| end.to_string()).collect()
}

/// Writes down that the old key ends late, as whoever can write the database can: in an entry, and in place of the end
/// that the directory has, this piece of JSON. Gateways read that when they start.
async fn name_late_end(world: &World, end: &str) -> Hand {
    let told = json!({"vkey": old_key().verifier().to_string(), "not_after": LATE});
    world.append(TenantId::SYSTEM, "log_key_ended", &told).await;
    let mut hand = Hand::on(&world.home, TenantId::SYSTEM).await;
    hand.disarm().await;
    hand.run(&format!(
        r#"UPDATE directory
           SET value = replace(value, '"not_after":{end}', '"not_after":"{LATE}"')
           WHERE kind = 'log_key'"#
    ))
    .await;
    hand
}

/// It begins where the last one has ended, and what an auditor has found it begins with.
#[tokio::test]
async fn time_that_runs_backwards_at_the_first_entry_of_a_look_is_found_and_not_acquitted() {
    let mut scene = Scene::new().await;
    let (watch, tenant) = (Arc::clone(&scene.world.gateway.watch), scene.tenancy.id);
    let mut tip = scene.world.store.tip(tenant).await.unwrap();
    let earlier = support::BEGINNING.plus_millis(-1);
    let (text, at) = (tenant.to_string(), earlier.to_string());
    let entry = NewEntry {
        tenant: &text,
        kind: "tool_put",
        at: &at,
        body: Digest::of(b"{}"),
    };
    let appended = tip.append(&entry, &mut String::new());
    let hand = &mut scene.hand;
    let (prev, hash) = (
        hand.bytes(appended.prev.as_bytes()),
        hand.bytes(appended.head.hash.as_bytes()),
    );
    let (nodes, edge) = (
        hand.bytes(appended.completed.as_bytes()),
        hand.bytes(&tip.tree().to_bytes()),
    );
    let at = earlier.millis();
    hand.run(&format!(
        "INSERT INTO audit_events (PLACE, kind, at, prev, hash, body, nodes)
         SELECT ENTRY #12, 'tool_put', {at}, {prev}, {hash}, '{{}}', {nodes};
         UPDATE tenants SET head_seq = 12, head_hash = {hash}, head_at = {at}, edge = {edge} WHERE MINE"
    ))
    .await;
    let found = scene.verify(&json!({})).await;
    assert_eq!(found["first_fault"]["seq"], 12, "{found}");
    assert_eq!(found["checked"], 11, "{found}");
    let why = scene.refusal().await;
    assert!(why.contains("entry 12: "), "{why}");
    assert_eq!(watch.suspected(tenant), Some(12));
}

#[tokio::test]
async fn witnesses_are_not_shown_a_ledger_with_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let witness = witness(folder.path()).await;
    let mut scene = Scene::with(WitnessOptions {
        witnesses: vec![witness],
        quorum: 1,
        every: Duration::from_hours(24),
        ..WitnessOptions::default()
    })
    .await;
    let gateway = Arc::clone(&scene.world.gateway);
    gateway.cosigning.ask_all().await;
    let before = gateway.cosigning.witnessed(scene.tenancy.id).unwrap();
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    scene
        .hand
        .run("UPDATE audit_events SET body = replace(body, 'allow', 'denyy') WHERE entry = #9")
        .await;
    scene.refusal().await;
    gateway.cosigning.ask_all().await;
    let after = gateway.cosigning.witnessed(scene.tenancy.id).unwrap();
    assert_eq!(after, before);
    assert_eq!(gateway.cosigning.fork(), None);
    scene
        .hand
        .run("UPDATE audit_events SET body = replace(body, 'denyy', 'allow') WHERE entry = #9")
        .await;
    scene.until("countersign_ledger_faults 0").await;
    gateway.cosigning.ask_all().await;
    let healed = gateway.cosigning.witnessed(scene.tenancy.id).unwrap();
    assert_eq!(healed.size, before.size + 1);
}

/// A witness that can be asked over a socket.
async fn witness(folder: &Path) -> cosigning::Witness {
    let key = SigningKey::from_seed("w.example", SignatureKind::Cosignature, &[40; 32]).unwrap();
    let vkey = key.verifier().clone();
    let logs = vec![support::signing_key().verifier().clone()];
    let clock = Arc::new(ManualClock::at(support::BEGINNING));
    let witness = Witness::new(Keyring::of(key), logs, clock, Folder::open(folder).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Arc::new(witness).router()).await.unwrap() });
    format!("http://{address}#{vkey}").parse().unwrap()
}

#[tokio::test]
async fn a_body_that_is_only_taken_away_is_found() {
    let mut scene = Scene::new().await;
    let bytes = if support::home::is_postgres() {
        "decode(repeat('00', 32), 'hex')"
    } else {
        "zeroblob(32)"
    };
    scene
        .hand
        .run(&format!(
            "UPDATE audit_events SET body = '', erased_by = 11, erased_body = {bytes} WHERE entry = #10"
        ))
        .await;
    let why = scene.refusal().await;
    assert!(why.contains("entry 10: "), "{why}");
}

#[tokio::test]
async fn what_is_erased_while_it_is_verified_is_no_fault() {
    let scene = Scene::new().await;
    let admin = scene.world.add_key(scene.tenancy.id, model::Role::Admin).await;
    for _ in 0..20 {
        scene.world.authorize(&scene.tenancy.token, &reading()).await;
        let what = json!({"agent": scene.tenancy.agent});
        scene
            .world
            .post("/v1/ledger/erase", &admin, &what)
            .await
            .expect(200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let head = scene.world.store.head(scene.tenancy.id).await.unwrap().seq;
    scene.until("countersign_ledger_unverified_entries 0").await;
    scene.until_counted(2 * head).await;
    assert_eq!(scene.world.get("/readyz", "").await.status, 200);
}
