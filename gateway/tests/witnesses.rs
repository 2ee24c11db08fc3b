//! Witnesses of the ledgers, over real HTTP: what they cosign is handed out, and what they have seen cannot be unseen.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use canon::Digest;
use gateway::cosigning::{self, WitnessOptions};
use gateway::gateway::Options;
use gateway::signing::Keyring;
use gateway::witness::{Folder, Witness};
use ledger::tlog_proof::TlogProof;
use ledger::witness::AddCheckpoint;
use ledger::{
    Checkpoint, KeySet, SignatureKind, SigningKey, TrustPolicy, TrustedCheckpoint, Untrusted, VerifierKey,
};
use model::time::ManualClock;
use model::{Secret, SecretKind, SystemEntropy, TenantId};
use serde_json::{Value, json};
use stage::Stage;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::faults::Damaged;
use support::hand::Hand;
use support::home::{self, Home};
use support::tenancy::{ENTRIES, Tenancy, injected, merging, reading};
use support::{BEGINNING, World, signing_key, until};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tower::ServiceExt;

/// The tables that hold what was decided.
const TABLES: [&str; 3] = ["audit_events", "decisions", "receipts"];

fn witness_key(seed: u8) -> SigningKey {
    SigningKey::from_seed(
        &format!("w{seed}.example"),
        SignatureKind::Cosignature,
        &[seed; 32],
    )
    .unwrap()
}

/// A witness in a folder, for the log of tests.
fn witness_in(folder: &Path, seed: u8) -> Router {
    let logs = vec![signing_key().verifier().clone()];
    let clock = Arc::new(ManualClock::at(BEGINNING));
    let witness = Witness::new(
        Keyring::of(witness_key(seed)),
        logs,
        clock,
        Folder::open(folder).unwrap(),
    );
    Arc::new(witness).router()
}

/// A witness that can be asked over a socket.
struct Standing {
    address: SocketAddr,
    router: Router,
    key: VerifierKey,
    _folder: TempDir,
}

impl Standing {
    async fn new(seed: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let router = witness_in(folder.path(), seed);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = router.clone();
        tokio::spawn(async move { axum::serve(listener, served).await.unwrap() });
        Self {
            address,
            router,
            key: witness_key(seed).verifier().clone(),
            _folder: folder,
        }
    }

    fn named(&self) -> cosigning::Witness {
        format!("http://{}#{}", self.address, self.key).parse().unwrap()
    }

    /// What somebody else who has the log's key shows it.
    async fn shown(&self, tenant: &str, size: u64, root: Digest) {
        let request = AddCheckpoint {
            old_size: 0,
            proof: Vec::new(),
            checkpoint: signed(tenant, size, root),
        };
        assert_eq!(add(&self.router, &request).await.0, 200);
    }
}

/// A checkpoint that the log's key has signed.
fn signed(tenant: &str, size: u64, root: Digest) -> String {
    let checkpoint = Checkpoint::new(signing_key().verifier().name(), tenant, size, root);
    checkpoint.sign(&[&signing_key()]).unwrap().to_string()
}

/// Asks a witness; its status and its answer.
async fn add(witness: &Router, request: &AddCheckpoint) -> (u16, String) {
    send(witness, request.to_string()).await
}

async fn send(witness: &Router, body: String) -> (u16, String) {
    let request = Request::post("/add-checkpoint").body(Body::from(body)).unwrap();
    call(witness, request).await
}

/// What a witness says that it has cosigned last of a tenant.
async fn last(witness: &Router, tenant: &str) -> (u16, String) {
    let path = format!("/checkpoint?origin={}/{tenant}", signing_key().verifier().name());
    call(witness, Request::get(path).body(Body::empty()).unwrap()).await
}

async fn call(witness: &Router, request: Request<Body>) -> (u16, String) {
    let response = witness.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
        .await
        .unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// Options with witnesses, which are asked when a test says so. What was found damaged is read once more at once.
fn asking(witnesses: Vec<cosigning::Witness>, quorum: usize) -> Options {
    let witnesses = WitnessOptions {
        witnesses,
        quorum,
        every: Duration::from_hours(24),
        look_again: Duration::ZERO,
    };
    Options {
        witnesses,
        ..Options::default()
    }
}

/// A gateway with witnesses, which asks them when a test says so.
struct Scene {
    world: World,
    tenancy: Tenancy,
}

impl Scene {
    async fn with(witnesses: Vec<cosigning::Witness>, quorum: usize) -> Self {
        let world = World::start_with(asking(witnesses, quorum)).await;
        let tenancy = world.tenancy("acme").await;
        Self { world, tenancy }
    }

    async fn decide(&self, count: usize) -> Value {
        let mut last = Value::Null;
        for number in 0..count {
            let ask = if number % 2 == 0 { injected() } else { reading() };
            last = self.world.authorize(&self.tenancy.token, &ask).await.json();
        }
        last
    }

    async fn ask_witnesses(&self) {
        self.world.gateway.cosigning.ask_all().await;
    }

    async fn read(&self, path: &str) -> String {
        let reply = self.world.get(path, &self.tenancy.auditor).await;
        assert_eq!(reply.status.as_u16(), 200, "{path}: {}", reply.text());
        reply.text()
    }

    /// Trust in the log, and in as many of these witnesses.
    async fn trust(&self, witnesses: &[&Standing], quorum: usize) -> TrustPolicy {
        let reply = self.world.get("/.well-known/countersign/keys.json", "").await;
        TrustPolicy {
            keys: KeySet::parse(&reply.text()).unwrap(),
            witnesses: witnesses.iter().map(|witness| witness.key.clone()).collect(),
            quorum,
        }
    }

    async fn checkpoint(&self, query: &str, trust: &TrustPolicy) -> Result<TrustedCheckpoint, Untrusted> {
        let note = self.read(&format!("/v1/ledger/checkpoint{query}")).await;
        trust.open(note.as_bytes())
    }

    /// Takes everything behind the eighth entry out of the database, as if it had never been there.
    async fn cut_tail(&self) {
        let mut hand = Hand::on(&self.world.home, self.tenancy.id).await;
        hand.disarm().await;
        for table in TABLES {
            hand.run(&format!("DELETE FROM {table} WHERE entry > #8")).await;
        }
        hand.run(
            "UPDATE tenants SET head_seq = 8, head_hash = (SELECT hash FROM audit_events WHERE entry = #8 AND ITS),
             head_at = (SELECT at FROM audit_events WHERE entry = #8 AND ITS),
             edge = (SELECT substr(nodes, 97, 32) FROM audit_events WHERE entry = #8 AND ITS)
             WHERE MINE",
        )
        .await;
    }

    async fn metrics(&self) -> String {
        self.world.get("/metrics", "").await.text()
    }

    /// Fails unless nobody is answered any more, for the reason that a witness has seen another ledger.
    async fn expect_stopped(&self) {
        let (world, tenancy) = (&self.world, &self.tenancy);
        world.get("/readyz", "").await.problem(503, "ledger_forked");
        let reply = world.post("/v1/authorize", &tenancy.token, &reading()).await;
        reply.problem(503, "ledger_forked");
        for path in ["/v1/decisions", "/v1/ledger/checkpoint", "/v1/ledger/export"] {
            world
                .get(path, &tenancy.auditor)
                .await
                .problem(503, "ledger_forked");
        }
        let tenants = world.get("/v1/tenants", &world.operator).await;
        tenants.problem(503, "ledger_forked");
        assert!(self.metrics().await.contains("countersign_witness_fork 1"));
        assert_eq!(world.get("/healthz", "").await.status.as_u16(), 200);
    }

    async fn expect_answering(&self) {
        self.world.get("/readyz", "").await.text();
        self.decide(1).await;
        assert!(self.metrics().await.contains("countersign_witness_fork 0"));
    }
}

#[tokio::test]
async fn a_checkpoint_carries_the_cosignatures_of_those_who_have_seen_it() {
    let witness = Standing::new(11).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    let trust = scene.trust(&[&witness], 1).await;
    let auditor = &scene.tenancy.auditor;
    let none = scene
        .world
        .get("/v1/ledger/checkpoint?witnessed=true", auditor)
        .await;
    none.problem(404, "not_found");

    scene.decide(3).await;
    scene.ask_witnesses().await;
    let newest = scene.checkpoint("", &trust).await.unwrap();
    assert_eq!(newest.witnesses()[0].name, "w11.example");
    assert_eq!(newest.witnesses()[0].time, 1_769_851_800);
    let witnessed = scene.checkpoint("?witnessed=true", &trust).await.unwrap();
    assert_eq!(witnessed.checkpoint(), newest.checkpoint());

    // The ledger goes on: nobody has seen its newest end, and what was seen is handed out still.
    scene.decide(4).await;
    let unseen = scene.checkpoint("", &trust).await.unwrap_err();
    assert_eq!(unseen, Untrusted::TooFewWitnesses { needed: 1, found: 0 });
    let witnessed = scene.checkpoint("?witnessed=true", &trust).await.unwrap();
    assert_eq!(witnessed.checkpoint(), newest.checkpoint());

    scene.ask_witnesses().await;
    let later = scene.checkpoint("", &trust).await.unwrap();
    assert_eq!(later.checkpoint().size, newest.checkpoint().size + 4);
    let metrics = scene.metrics().await;
    let counted = r#"countersign_witness_checkpoints_total{witness="w11.example",outcome="cosigned"} "#;
    let (_, count) = metrics.split_once(counted).unwrap();
    assert!(!count.starts_with('0'), "{metrics}");
}

#[tokio::test]
async fn a_decision_is_proven_to_whoever_believes_only_what_witnesses_have_seen() {
    let witness = Standing::new(12).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    let trust = scene.trust(&[&witness], 1).await;
    let seen = scene.decide(2).await;
    scene.ask_witnesses().await;
    let unseen = scene.decide(1).await;
    let path = |told: &Value| {
        let id = told["decision_id"].as_str().unwrap();
        format!("/v1/receipts/{id}/proof?witnessed=true")
    };
    let proof = scene.read(&path(&seen)).await;
    let proven = TlogProof::parse(proof.as_bytes())
        .unwrap()
        .verify_entry(&trust)
        .unwrap();
    assert_eq!(json!(proven.head.seq), seen["receipt"]["seq"]);
    let refused = scene.world.get(&path(&unseen), &scene.tenancy.token).await;
    refused.problem(404, "not_found");
}

#[tokio::test]
async fn a_checkpoint_is_witnessed_when_as_many_as_the_operator_wants_have_seen_it() {
    let (first, second) = (Standing::new(13).await, Standing::new(14).await);
    let nobody: cosigning::Witness = format!("http://127.0.0.1:1#{}", witness_key(15).verifier())
        .parse()
        .unwrap();
    let scene = Scene::with(vec![first.named(), nobody.clone(), second.named()], 2).await;
    scene.decide(1).await;
    scene.ask_witnesses().await;
    let trust = scene.trust(&[&first, &second], 2).await;
    scene.checkpoint("?witnessed=true", &trust).await.unwrap();
    let metrics = scene.metrics().await;
    let counted = r#"countersign_witness_checkpoints_total{witness="w15.example",outcome="failed"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    // A witness that is not there stops nothing.
    scene.expect_answering().await;

    // Two are not three. (Other witnesses: to the first ones this would be a fork of the same log.)
    let (first, second) = (Standing::new(27).await, Standing::new(28).await);
    let scene = Scene::with(vec![first.named(), nobody, second.named()], 3).await;
    scene.ask_witnesses().await;
    let reply = scene
        .world
        .get("/v1/ledger/checkpoint?witnessed=true", &scene.tenancy.auditor)
        .await;
    reply.problem(404, "not_found");
    let trust = scene.trust(&[&first, &second], 2).await;
    scene.checkpoint("", &trust).await.unwrap();
}

#[tokio::test]
async fn a_witness_that_has_seen_more_entries_than_there_are_stops_the_gateway() {
    let witness = Standing::new(16).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    scene.decide(2).await;
    let tenant = scene.tenancy.id.to_string();
    witness
        .shown(&tenant, 1_000, Digest::of(b"a longer ledger"))
        .await;
    scene.expect_answering().await;
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
    let fork = scene.world.gateway.cosigning.fork().unwrap().to_string();
    assert_eq!(
        fork,
        format!("`w16.example` has seen 1000 entries of {tenant}, and the database has 10")
    );
}

/// Whoever has to find out which of two ledgers is the true one finds this one as it was.
#[tokio::test]
async fn a_gateway_that_a_witness_has_stopped_writes_nothing_by_itself_either() {
    let witness = Standing::new(34).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    let (world, tenant) = (&scene.world, scene.tenancy.id);
    let asked = world.authorize(&scene.tenancy.token, &merging()).await.json();
    assert_eq!(asked["decision"], "require_approval");
    witness
        .shown(&tenant.to_string(), 1_000, Digest::of(b"a longer ledger"))
        .await;
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
    let head = world.store.head(tenant).await.unwrap();
    world.clock.advance_millis(24 * 3_600_000);
    let (gateway, now) = (&world.gateway, world.gateway.clock.now());
    let refused = gateway.expire_approvals(now).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "ledger_forked");
    assert_eq!(world.store.head(tenant).await.unwrap(), head);
}

#[tokio::test]
async fn a_witness_that_has_seen_other_entries_stops_the_gateway() {
    // As many entries as there will be, or fewer.
    for size in [9, 4] {
        let witness = Standing::new(17).await;
        let scene = Scene::with(vec![witness.named()], 1).await;
        scene.decide(2).await;
        let tenant = scene.tenancy.id.to_string();
        witness.shown(&tenant, size, Digest::of(b"another ledger")).await;
        scene.ask_witnesses().await;
        scene.expect_stopped().await;
        let fork = scene.world.gateway.cosigning.fork().unwrap().to_string();
        let expected = format!(
            "the ledger of {tenant} does not begin with the {size} entries that `w17.example` has seen"
        );
        assert_eq!(fork, expected);
    }
}

#[tokio::test]
async fn one_witness_of_several_is_enough_to_stop_the_gateway() {
    let (honest, other) = (Standing::new(18).await, Standing::new(19).await);
    let scene = Scene::with(vec![honest.named(), other.named()], 1).await;
    let tenant = scene.tenancy.id.to_string();
    other.shown(&tenant, 5, Digest::of(b"another ledger")).await;
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
}

#[tokio::test]
async fn a_tail_that_is_cut_together_with_its_head_stops_the_gateway() {
    let witness = Standing::new(20).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    scene.decide(5).await;
    scene.ask_witnesses().await;
    scene.cut_tail().await;
    let report = scene
        .world
        .post("/v1/ledger/verify", &scene.tenancy.auditor, &json!({"to_seq": 8}))
        .await;
    assert_eq!(
        report.expect(200)["verified"],
        true,
        "what is left agrees with itself"
    );
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
}

/// However slow witnesses are, and however many other ledgers come before it.
#[tokio::test]
async fn what_a_witness_is_remembered_to_have_cosigned_stops_the_gateway_before_anybody_is_asked() {
    let witness = Standing::new(35).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    scene.decide(5).await;
    scene.ask_witnesses().await;
    // The ledger that is shown first has moved.
    scene.world.tenancy("other").await;
    scene.cut_tail().await;
    let cosigned = |metrics: String| {
        let counted = r#"countersign_witness_checkpoints_total{witness="w35.example",outcome="cosigned"} "#;
        let line = metrics.lines().find_map(|line| line.strip_prefix(counted));
        line.unwrap().to_owned()
    };
    let before = cosigned(scene.metrics().await);
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
    assert_eq!(cosigned(scene.metrics().await), before, "it was asked");
}

/// Nothing names the tenant any more but the system tenant's ledger, and the gateway that is started has never known it.
#[tokio::test]
async fn a_ledger_that_is_gone_as_a_whole_stops_the_gateway() {
    let witness = Standing::new(33).await;
    let Scene { world, tenancy } = Scene::with(vec![witness.named()], 1).await;
    world.gateway.cosigning.ask_all().await;
    let mut hand = Hand::on(&world.home, tenancy.id).await;
    hand.disarm().await;
    hand.run("DELETE FROM tenants WHERE MINE").await;
    drop(hand);
    let (home, clock) = (Arc::clone(&world.home), Arc::clone(&world.clock));
    let operator = Secret::parse(&world.operator).unwrap();
    let options = world.gateway.options.clone();
    world.store.close().await;
    drop(world);

    let world = World::join(home, &operator, clock, options).await;
    let gateway = &world.gateway;
    assert!(gateway.snapshot.load().tenant(tenancy.id).is_none());
    until(|| gateway.watch.faults() == 1).await;
    gateway.cosigning.ask_all().await;
    let fork = gateway.cosigning.fork().unwrap().to_string();
    assert_eq!(
        fork,
        format!(
            "`w33.example` has seen {ENTRIES} entries of {}, and the database has 0",
            tenancy.id
        )
    );
    let tenants = world.get("/v1/tenants", &world.operator).await;
    tenants.problem(503, "ledger_forked");
}

#[tokio::test]
async fn a_ledger_that_cannot_prove_what_a_witness_has_seen_stops_the_gateway() {
    let witness = Standing::new(21).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    scene.decide(2).await;
    scene.ask_witnesses().await;
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    hand.run("UPDATE audit_events SET nodes = zeroblob(128) WHERE entry = #8")
        .await;
    scene.decide(1).await;
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
}

#[tokio::test]
async fn a_ledger_that_cannot_be_read_keeps_no_other_from_its_witnesses() {
    let witness = Standing::new(31).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    let mut hand = Hand::on(&scene.world.home, TenantId::SYSTEM).await;
    hand.disarm().await;
    hand.run("UPDATE tenants SET edge = zeroblob(1) WHERE MINE").await;
    scene.ask_witnesses().await;
    let cosigning = &scene.world.gateway.cosigning;
    assert!(cosigning.witnessed(TenantId::SYSTEM).is_err());
    assert!(cosigning.witnessed(scene.tenancy.id).is_ok());
    assert_eq!(cosigning.fork(), None);
}

#[tokio::test]
async fn a_ledger_whose_end_cannot_be_read_any_more_stops_the_gateway() {
    let witness = Standing::new(32).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    scene.ask_witnesses().await;
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    hand.run("UPDATE tenants SET edge = zeroblob(1) WHERE MINE").await;
    scene.ask_witnesses().await;
    scene.expect_stopped().await;
}

/// A gateway that has stopped does not go on by itself.
#[tokio::test]
async fn what_one_read_finds_damaged_and_the_next_does_not_stops_no_gateway() {
    let witness = Standing::new(38).await;
    let stage = Stage::set_with(asking(vec![witness.named()], 1)).await;
    let cosigning = &stage.gateway.cosigning;
    cosigning.ask_all().await;
    for damaged in [Damaged::Tips, Damaged::Nodes] {
        stage.ask(&stage::reading()).await.expect(200);
        stage.faults.damage_once(damaged);
        cosigning.ask_all().await;
        assert_eq!(cosigning.fork(), None, "{damaged:?}");
        let shown = cosigning.witnessed(stage.tenant).unwrap();
        assert_eq!(shown.size, stage.head().await.seq, "{damaged:?}");
    }
    stage.ask(&stage::reading()).await.expect(200);
    stage.faults.damage(Some(Damaged::Nodes));
    cosigning.ask_all().await;
    assert!(cosigning.fork().is_some(), "it stays damaged");
}

#[tokio::test]
async fn a_key_whose_time_is_over_shows_witnesses_nothing() {
    let witness = Standing::new(30).await;
    let scene = Scene::with(vec![witness.named()], 1).await;
    let key = |seed| {
        let name = signing_key().verifier().name().to_owned();
        SigningKey::from_seed(&name, SignatureKind::Note, &[seed; 32]).unwrap()
    };
    let gateway = &scene.world.gateway;
    gateway.publish_keys(&Keyring::of(key(1))).await.unwrap();
    let mut rotated = Keyring::of(key(2));
    rotated.replaced.push(key(1));
    gateway.publish_keys(&rotated).await.unwrap();
    scene.world.clock.advance_millis(61_000);
    scene.ask_witnesses().await;
    assert!(gateway.cosigning.witnessed(scene.tenancy.id).is_err());
}

#[tokio::test]
async fn whoever_answers_in_the_place_of_a_witness_is_not_believed() {
    // The same address, another key.
    let witness = Standing::new(22).await;
    let claimed: cosigning::Witness = format!("http://{}#{}", witness.address, witness_key(23).verifier())
        .parse()
        .unwrap();
    let scene = Scene::with(vec![claimed], 1).await;
    // What is worth an alert is there before anybody was asked.
    let failed = |count: &str| {
        let failed = r#"countersign_witness_checkpoints_total{witness="w23.example",outcome="failed"}"#;
        format!("{failed} {count}\n")
    };
    assert!(scene.metrics().await.contains(&failed("0")));
    scene.ask_witnesses().await;
    let trust = scene.trust(&[&witness], 1).await;
    assert!(scene.checkpoint("", &trust).await.is_err());
    let metrics = scene.metrics().await;
    assert!(!metrics.contains(&failed("0")), "{metrics}");
    scene.expect_answering().await;
}

/// The same key, on a folder that is empty: its volume was not mounted, say.
#[tokio::test]
async fn a_witness_that_has_forgotten_what_it_cosigned_is_not_asked_to_begin_anew() {
    let (folder, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let remembering = witness_in(folder.path(), 36);
    let standing = Arc::new(Mutex::new(remembering.clone()));
    let asked = Arc::clone(&standing);
    let router = Router::new().fallback(move |request: Request<Body>| {
        let witness = asked.lock().unwrap().clone();
        async move { witness.oneshot(request).await }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let named: cosigning::Witness = format!("http://{address}#{}", witness_key(36).verifier())
        .parse()
        .unwrap();
    let scene = Scene::with(vec![named], 1).await;
    let witnessed = async || scene.read("/v1/ledger/checkpoint?witnessed=true").await;
    scene.decide(2).await;
    scene.ask_witnesses().await;
    let before = witnessed().await;

    *standing.lock().unwrap() = witness_in(empty.path(), 36);
    scene.decide(1).await;
    for _ in 0..2 {
        scene.ask_witnesses().await;
        assert_eq!(witnessed().await, before);
    }
    let files = std::fs::read_dir(empty.path()).unwrap();
    assert_eq!(files.count(), 1, "it has its lock, and has cosigned nothing");
    let metrics = scene.metrics().await;
    let none = r#"countersign_witness_checkpoints_total{witness="w36.example",outcome="failed"} 0"#;
    assert!(!metrics.contains(none), "{metrics}");
    scene.expect_answering().await;

    // It has its folder back.
    *standing.lock().unwrap() = remembering;
    scene.ask_witnesses().await;
    assert_ne!(witnessed().await, before);
}

#[tokio::test]
async fn a_witness_whose_files_are_deleted_while_it_runs_cosigns_no_other_past() {
    let folder = tempfile::tempdir().unwrap();
    let witness = witness_in(folder.path(), 37);
    let request = |size, name: &str| AddCheckpoint {
        old_size: 0,
        proof: Vec::new(),
        checkpoint: signed("tnt_1", size, Digest::of(name.as_bytes())),
    };
    assert_eq!(add(&witness, &request(5, "a")).await.0, 200);
    let (status, note) = last(&witness, "tnt_1").await;
    assert_eq!((status, note.matches('\u{2014}').count()), (200, 2), "{note}");
    assert_eq!(last(&witness, "tnt_2").await.0, 404);
    let files = std::fs::read_dir(folder.path()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    for file in files.filter(|file| !file.ends_with("lock")) {
        std::fs::remove_file(file).unwrap();
    }
    for size in [3, 5, 9] {
        let (status, answer) = add(&witness, &request(size, "b")).await;
        assert_eq!((status, answer.contains('\u{2014}')), (500, false), "{answer}");
    }
    assert_eq!(last(&witness, "tnt_1").await.0, 500);
    // The lock as well: it is another's by now.
    std::fs::remove_file(folder.path().join("lock")).unwrap();
    let another = witness_in(folder.path(), 37);
    assert_eq!(add(&witness, &request(5, "b")).await.0, 500);
    drop(another);
}

#[tokio::test]
async fn a_witness_cosigns_only_what_continues_what_it_has_cosigned() {
    let folder = tempfile::tempdir().unwrap();
    let witness = witness_in(folder.path(), 24);
    let root = |name: &str| Digest::of(name.as_bytes());
    let request = |old_size, size, name: &str| AddCheckpoint {
        old_size,
        proof: Vec::new(),
        checkpoint: signed("tnt_1", size, root(name)),
    };
    let (status, lines) = add(&witness, &request(0, 5, "a")).await;
    assert_eq!((status, lines.lines().count()), (200, 1), "{lines}");
    assert_eq!(add(&witness, &request(5, 5, "a")).await.0, 200, "the same again");
    let seen = |size: &str| (409, size.to_owned());
    assert_eq!(
        add(&witness, &request(0, 9, "b")).await,
        seen("5\n"),
        "an old size that is too old"
    );
    assert_eq!(
        add(&witness, &request(3, 4, "b")).await,
        seen("5\n"),
        "a rollback"
    );
    assert_eq!(add(&witness, &request(5, 5, "b")).await, seen("5\n"), "a fork");
    assert_eq!(
        add(&witness, &request(5, 9, "b")).await.0,
        422,
        "nothing is proven"
    );
    assert_eq!(add(&witness, &request(6, 5, "a")).await.0, 400);
    let mut unsigned = request(5, 6, "a");
    let stranger = SigningKey::from_seed("log.example", SignatureKind::Note, &[9; 32]).unwrap();
    let checkpoint = Checkpoint::new("log.example", "tnt_1", 6, root("a"));
    unsigned.checkpoint = checkpoint.sign(&[&stranger]).unwrap().to_string();
    assert_eq!(add(&witness, &unsigned).await.0, 403);
    for origin in [
        "other.example/tnt_1",
        "log.example",
        "log.example/",
        "log.example/a/b",
        "log.examplex/a",
    ] {
        let mut foreign = checkpoint.clone();
        origin.clone_into(&mut foreign.origin);
        unsigned.checkpoint = foreign.sign(&[&signing_key()]).unwrap().to_string();
        assert_eq!(add(&witness, &unsigned).await.0, 404, "{origin}");
    }
    assert_eq!(send(&witness, "old 5\n".to_owned()).await.0, 400);
    assert_eq!(send(&witness, "x".repeat(200_000)).await.0, 413);

    // Nothing of this has moved it, also not for the next process.
    drop(witness);
    let witness = witness_in(folder.path(), 24);
    assert_eq!(add(&witness, &request(0, 9, "b")).await, seen("5\n"));
    assert_eq!(
        kept(folder.path(), "forked"),
        [request(5, 5, "b").to_string()],
        "what was signed twice is kept"
    );
    assert_eq!(
        kept(folder.path(), "unproven"),
        [request(5, 9, "b").to_string()],
        "and what may be"
    );
}

/// Whoever has got a checkpoint can repeat the lines below it.
#[tokio::test]
async fn of_a_line_that_is_repeated_a_witness_keeps_one() {
    let folder = tempfile::tempdir().unwrap();
    let witness = witness_in(folder.path(), 38);
    let note = signed("tnt_1", 5, Digest::of(b"a"));
    let (text, line) = note.split_once("\n\n").unwrap();
    let repeated = AddCheckpoint {
        old_size: 0,
        proof: Vec::new(),
        checkpoint: format!("{text}\n\n{}", line.repeat(100)),
    };
    let (status, cosigned) = add(&witness, &repeated).await;
    assert_eq!(status, 200, "{cosigned}");
    assert_eq!(last(&witness, "tnt_1").await, (200, note + &cosigned));
}

/// The requests that a witness has kept in files whose names end like this.
fn kept(folder: &Path, extension: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|found| found == extension));
    files.map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// A witness hands out what it has cosigned, so whoever reaches it has genuine checkpoints, and can write any proof before them.
#[tokio::test]
async fn a_wrong_proof_before_a_genuine_checkpoint_neither_is_evidence_nor_takes_the_place_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let witness = witness_in(folder.path(), 27);
    let request = |old_size, size, root: &str, proof: &[&str]| AddCheckpoint {
        old_size,
        proof: proof.iter().map(|hash| Digest::of(hash.as_bytes())).collect(),
        checkpoint: signed("tnt_1", size, Digest::of(root.as_bytes())),
    };
    let garbage = ["garbage"];
    assert_eq!(add(&witness, &request(0, 5, "a", &garbage)).await.0, 422);
    assert_eq!(add(&witness, &request(0, 5, "a", &[])).await.0, 200);
    assert_eq!(add(&witness, &request(5, 5, "a", &garbage)).await.0, 422);
    for extension in ["forked", "unproven"] {
        assert!(kept(folder.path(), extension).is_empty(), "{extension}");
    }
    // One that is newer than what was cosigned may be evidence, and stands beside the others.
    let (newer, rewritten) = (request(5, 6, "b", &garbage), request(5, 9, "c", &[]));
    assert_eq!(add(&witness, &newer).await.0, 422);
    assert_eq!(add(&witness, &rewritten).await.0, 422);
    let mut unproven = kept(folder.path(), "unproven");
    let mut expected = [newer.to_string(), rewritten.to_string()];
    unproven.sort_unstable();
    expected.sort_unstable();
    assert_eq!(unproven, expected);
    let fork = request(5, 5, "d", &[]);
    assert_eq!(add(&witness, &fork).await.0, 409);
    assert_eq!(kept(folder.path(), "forked"), [fork.to_string()]);
}

#[tokio::test]
async fn of_two_who_show_a_witness_different_ledgers_at_once_one_is_cosigned() {
    let folder = tempfile::tempdir().unwrap();
    let witness = witness_in(folder.path(), 25);
    let shown = (0..16_u64).map(|number| {
        let witness = witness.clone();
        async move {
            let request = AddCheckpoint {
                old_size: 0,
                proof: Vec::new(),
                checkpoint: signed("tnt_1", 5 + number, Digest::of(&number.to_be_bytes())),
            };
            add(&witness, &request).await.0
        }
    });
    let statuses = futures_util::future::join_all(shown).await;
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 409).count(),
        15,
        "{statuses:?}"
    );
}

#[tokio::test]
async fn nothing_is_cosigned_that_cannot_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let witness = witness_in(folder.path(), 26);
    let first = AddCheckpoint {
        old_size: 0,
        proof: Vec::new(),
        checkpoint: signed("tnt_1", 5, Digest::of(b"a")),
    };
    // A folder in the place of the file that is written to.
    std::fs::create_dir(folder.path().join("new")).unwrap();
    let (status, answer) = add(&witness, &first).await;
    assert_eq!((status, answer.contains('\u{2014}')), (500, false), "{answer}");
    std::fs::remove_dir(folder.path().join("new")).unwrap();
    assert_eq!(add(&witness, &first).await.0, 200);
    // A state that cannot be read is not taken for none.
    for file in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::write(file.unwrap().path(), "").unwrap();
    }
    assert_eq!(add(&witness, &first).await.0, 500);
}

#[tokio::test]
async fn several_gateways_on_one_database_show_a_witness_one_ledger() {
    let witness = Standing::new(29).await;
    let home = Arc::new(Home::Database(home::database().await));
    let operator = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
    let options = asking(vec![witness.named()], 1);
    let clock = Arc::new(ManualClock::at(BEGINNING));
    let mut worlds = Vec::new();
    for _ in 0..2 {
        let home = Arc::clone(&home);
        worlds.push(World::join(home, &operator, clock.clone(), options.clone()).await);
    }
    let tenancy = worlds[0].tenancy("acme").await;
    let revision = worlds[0].gateway.snapshot.load().revision(tenancy.id);
    for world in &worlds {
        let known = world
            .gateway
            .snapshot
            .reaches(tenancy.id, revision, Duration::from_secs(20));
        assert!(known.await, "a gateway does not hear of the tenant");
    }
    for _ in 0..10 {
        // Each writes and shows what there is, and the witness has always seen what the other has shown.
        let rounds = worlds.iter().map(async |world| {
            world.authorize(&tenancy.token, &reading()).await;
            world.gateway.cosigning.ask_all().await;
        });
        futures_util::future::join_all(rounds).await;
    }
    for world in &worlds {
        assert_eq!(world.gateway.cosigning.fork(), None);
    }
}
