//! What a stranger can verify with the log's public keys and nothing else: receipts, checkpoints, proofs. It is read with the
//! library for strangers, on what the real router hands out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use gateway::signing::Keyring;
use gateway::signing::history::KeyHistory;
use ledger::merkle::{Frontier, verify_consistency};
use ledger::receipt::SignedAnswer;
use ledger::tlog_proof::TlogProof;
use ledger::{KeySet, SignatureKind, SigningKey, TrustPolicy, TrustedCheckpoint};
use model::{Clock, Role, TenantId};
use serde_json::{Value, json};
use support::tenancy::{Tenancy, ask, injected, reading};
use support::{BEGINNING, World, signing_key};

struct Scene {
    world: World,
    tenancy: Tenancy,
}

impl Scene {
    async fn new() -> Self {
        let world = World::start().await;
        let tenancy = world.tenancy("acme").await;
        Self { world, tenancy }
    }

    /// Records so many decisions, and gives back the bytes of the last answer.
    async fn decide(&self, count: usize) -> Vec<u8> {
        let mut last = Vec::new();
        for number in 0..count {
            let ask = if number % 3 == 0 { injected() } else { reading() };
            let reply = self.world.post("/v1/authorize", &self.tenancy.token, &ask).await;
            reply.expect(200);
            last = reply.text().into_bytes();
        }
        last
    }

    async fn read(&self, path: &str) -> String {
        let reply = self.world.get(path, &self.tenancy.auditor).await;
        assert_eq!(reply.status.as_u16(), 200, "{path}: {}", reply.text());
        reply.text()
    }

    async fn keys(&self) -> KeySet {
        let reply = self.world.get("/.well-known/countersign/keys.json", "").await;
        KeySet::parse(&reply.text()).unwrap()
    }

    async fn checkpoint(&self) -> TrustedCheckpoint {
        let note = self.read("/v1/ledger/checkpoint").await;
        TrustPolicy::in_log(self.keys().await)
            .open(note.as_bytes())
            .unwrap()
    }
}

/// The root of the tree over all entries, computed from the headers that they have.
async fn root(scene: &Scene) -> canon::Digest {
    let entries = scene
        .world
        .store
        .entries(scene.tenancy.id, 1, 10_000)
        .await
        .unwrap();
    let tenant = scene.tenancy.id.to_string();
    let mut tree = Frontier::EMPTY;
    for entry in entries {
        let at = entry.at.to_string();
        let header = ledger::EntryHeader {
            tenant: &tenant,
            seq: entry.seq,
            kind: &entry.kind,
            at: &at,
            prev: entry.prev,
            body: entry
                .erased
                .map_or_else(|| canon::Digest::of(entry.body.as_bytes()), |erased| erased.body),
        };
        tree.extend(header.hash_and_leaf(&mut String::new()).1);
    }
    tree.root()
}

#[tokio::test]
async fn an_answer_verifies_the_moment_it_arrives_and_no_other_does() {
    let scene = Scene::new().await;
    let answer = scene.decide(1).await;
    let keys = scene.keys().await;
    SignedAnswer::read(&answer).unwrap().verify(&keys).unwrap();
    let changed = String::from_utf8(answer)
        .unwrap()
        .replace("\"deny\"", "\"allow\"");
    let changed = SignedAnswer::read(changed.as_bytes()).unwrap();
    assert!(changed.verify(&keys).is_err());
}

#[tokio::test]
async fn a_checkpoint_is_the_root_of_the_entries_signed_for_this_tenant() {
    let scene = Scene::new().await;
    for count in [1, 4, 9] {
        scene.decide(count).await;
        let checkpoint = scene.checkpoint().await;
        let head = scene.world.store.head(scene.tenancy.id).await.unwrap();
        assert_eq!(checkpoint.tenant(), scene.tenancy.id.to_string());
        assert_eq!(checkpoint.checkpoint().size, head.seq);
        assert_eq!(checkpoint.checkpoint().root, root(&scene).await);
    }
}

#[tokio::test]
async fn any_ledger_is_proven_to_be_the_beginning_of_a_later_one() {
    let scene = Scene::new().await;
    let mut earlier = Vec::new();
    for _ in 0..6 {
        scene.decide(3).await;
        earlier.push(scene.checkpoint().await.checkpoint().clone());
    }
    let last = earlier.pop().unwrap();
    for first in earlier {
        let path = format!("/v1/ledger/consistency?from={}&to={}", first.size, last.size);
        let proof: Value = serde_json::from_str(&scene.read(&path).await).unwrap();
        let proof: Vec<_> = proof["proof"].as_array().unwrap().iter().map(hash).collect();
        let (from, to) = ((first.size, &first.root), (last.size, &last.root));
        verify_consistency(from, to, &proof).unwrap();
    }
}

fn hash(text: &Value) -> canon::Digest {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap());
    canon::Digest::from_bytes(bytes.unwrap().try_into().unwrap())
}

#[tokio::test]
async fn a_decision_is_proven_to_be_in_the_ledger_whenever_it_was_made() {
    let scene = Scene::new().await;
    let mut answers = Vec::new();
    for _ in 0..9 {
        answers.push(scene.decide(1).await);
    }
    let trust = TrustPolicy::in_log(scene.keys().await);
    for answer in answers {
        let signed = SignedAnswer::read(&answer).unwrap();
        let told: Value = serde_json::from_slice(&answer).unwrap();
        let id = told["decision_id"].as_str().unwrap();
        let proof = scene.read(&format!("/v1/receipts/{id}/proof")).await;
        let proven = TlogProof::parse(proof.as_bytes())
            .unwrap()
            .verify_entry(&trust)
            .unwrap();
        assert_eq!(proven.head.hash, signed.receipt().hash);
        assert_eq!(proven.tenant, scene.tenancy.id.to_string());
    }
}

#[tokio::test]
async fn everything_is_proven_over_bodies_that_were_erased() {
    let scene = Scene::new().await;
    let mut answers = Vec::new();
    for _ in 0..9 {
        answers.push(scene.decide(1).await);
    }
    let first = scene.checkpoint().await.checkpoint().clone();
    let admin = scene.world.add_key(scene.tenancy.id, Role::Admin).await;
    let seqs: Vec<u64> = answers
        .iter()
        .map(|answer| SignedAnswer::read(answer).unwrap().receipt().seq)
        .collect();
    let (erased, kept) = seqs.split_at(4);
    for seq in erased {
        let told = scene
            .world
            .post("/v1/ledger/erase", &admin, &json!({"seq": seq}))
            .await;
        assert_eq!(told.expect(200)["erased"], 1);
    }
    let last = scene.checkpoint().await.checkpoint().clone();
    assert_eq!(
        last.root,
        root(&scene).await,
        "the digests are those of the bodies that are gone"
    );
    let path = format!("/v1/ledger/consistency?from={}&to={}", first.size, last.size);
    let proof: Value = serde_json::from_str(&scene.read(&path).await).unwrap();
    let proof: Vec<_> = proof["proof"].as_array().unwrap().iter().map(hash).collect();
    verify_consistency((first.size, &first.root), (last.size, &last.root), &proof).unwrap();
    let trust = TrustPolicy::in_log(scene.keys().await);
    for answer in &answers {
        let told: Value = serde_json::from_slice(answer).unwrap();
        let path = format!("/v1/receipts/{}/proof", told["decision_id"].as_str().unwrap());
        if erased.contains(&told["receipt"]["seq"].as_u64().unwrap()) {
            let reply = scene.world.get(&path, &scene.tenancy.auditor).await;
            reply.problem(404, "not_found");
            continue;
        }
        let proven = TlogProof::parse(scene.read(&path).await.as_bytes())
            .unwrap()
            .verify_entry(&trust)
            .unwrap();
        assert!(kept.contains(&proven.head.seq), "{path}");
        assert_eq!(
            proven.head.hash,
            SignedAnswer::read(answer).unwrap().receipt().hash
        );
    }
}

#[tokio::test]
async fn an_agent_gets_proofs_of_its_own_decisions_only() {
    let scene = Scene::new().await;
    let told: Value = serde_json::from_slice(&scene.decide(1).await).unwrap();
    let path = format!("/v1/receipts/{}/proof", told["decision_id"].as_str().unwrap());
    let (world, tenancy) = (&scene.world, &scene.tenancy);
    assert_eq!(world.get(&path, &tenancy.token).await.status.as_u16(), 200);
    let stranger = world.tenancy("stranger").await;
    for credential in [&tenancy.other_token, &stranger.token, &stranger.auditor] {
        world.get(&path, credential).await.problem(404, "not_found");
    }
}

#[tokio::test]
async fn a_key_that_was_replaced_is_published_with_its_end_and_what_it_signed_still_verifies() {
    let scene = Scene::new().await;
    let gateway = &scene.world.gateway;
    gateway.publish_keys(&Keyring::of(key(1))).await.unwrap();
    let before = scene.decide(1).await;
    // What a gateway does that starts with a file of two keys.
    let mut rotated = Keyring::of(key(2));
    rotated.replaced.push(key(1));
    gateway.publish_keys(&rotated).await.unwrap();
    gateway.publish_keys(&rotated).await.unwrap();

    let keys = scene.keys().await;
    let times: Vec<_> = keys.keys().iter().map(|key| key.not_after.is_some()).collect();
    assert_eq!(times.iter().filter(|ended| **ended).count(), 1);
    assert_eq!(keys.keys().len(), 2);
    SignedAnswer::read(&before).unwrap().verify(&keys).unwrap();
    let system = scene
        .world
        .store
        .entries(TenantId::SYSTEM, 1, 1_000)
        .await
        .unwrap();
    let kinds: Vec<_> = system
        .iter()
        .filter(|entry| entry.kind.starts_with("log_key"))
        .map(|entry| entry.kind.as_str())
        .collect();
    assert_eq!(kinds, ["log_key_added", "log_key_added", "log_key_ended"]);

    // This gateway still has the key that was replaced: it signs for a minute, and then answers nobody.
    scene.decide(1).await;
    scene.world.clock.advance_millis(61_000);
    let refused = ask("get_file", "unknown");
    let reply = scene
        .world
        .post("/v1/authorize", &scene.tenancy.token, &refused)
        .await;
    reply.problem(503, "ledger_unavailable");
    for path in ["/v1/ledger/checkpoint", "/readyz"] {
        let reply = scene.world.get(path, &scene.tenancy.auditor).await;
        let why = reply.problem(503, "ledger_unavailable");
        assert!(why.contains("has been replaced"), "{why}");
    }
    let refusal = gateway.publish_keys(&Keyring::of(key(1))).await.unwrap_err();
    assert!(refusal.to_problem("start").contains("has been replaced"));
}

#[tokio::test]
async fn a_key_that_was_replaced_ends_nobody() {
    let scene = Scene::new().await;
    let gateway = &scene.world.gateway;
    gateway.publish_keys(&Keyring::of(key(1))).await.unwrap();
    let mut rotated = Keyring::of(key(2));
    rotated.replaced.push(key(1));
    gateway.publish_keys(&rotated).await.unwrap();

    // The lines of the file in another order, within the minute that the first key has left.
    for others in [vec![key(2)], vec![key(1), key(2)]] {
        let mut taken_back = Keyring::of(key(1));
        taken_back.replaced = others;
        let checked = taken_back.check_unended(&gateway.snapshot.load(), scene.world.clock.now());
        let started = gateway.publish_keys(&taken_back).await;
        for refusal in [checked.unwrap_err(), started.unwrap_err()] {
            let said = refusal.detail();
            let other = format!("`{}` of the same file has not", key(2).verifier().label());
            assert!(said.contains(&other), "{said}");
        }
    }
    // Where there is no other key, it signs until it ends. A line that stands twice ends nothing.
    gateway.publish_keys(&Keyring::of(key(1))).await.unwrap();
    rotated.replaced.push(key(2));
    gateway.publish_keys(&rotated).await.unwrap();
    let keys = scene.keys().await;
    let ended = keys.keys().iter().filter(|key| key.not_after.is_some());
    let ended: Vec<_> = ended.map(|key| key.vkey.label()).collect();
    assert_eq!(ended, [key(1).verifier().label()]);

    scene.world.clock.advance_millis(61_000);
    let refusal = gateway.publish_keys(&Keyring::of(key(1))).await.unwrap_err();
    let said = refusal.detail();
    assert!(said.contains("by `countersign rotate-key`"), "{said}");
}

#[tokio::test]
async fn a_key_ends_after_what_it_signed_while_a_clock_was_ahead() {
    let scene = Scene::new().await;
    let gateway = &scene.world.gateway;
    gateway.publish_keys(&Keyring::of(key(1))).await.unwrap();
    scene.world.clock.advance_millis(600_000);
    let ahead = scene.decide(1).await;
    scene.world.clock.advance_millis(-600_000);
    let mut rotated = Keyring::of(key(2));
    rotated.replaced.push(key(1));
    gateway.publish_keys(&rotated).await.unwrap();
    let behind = scene.decide(2).await;
    let keys = scene.keys().await;
    for answer in [ahead, behind] {
        SignedAnswer::read(&answer).unwrap().verify(&keys).unwrap();
    }
}

/// Of which the newest entry is by the clock of another gateway, which was ahead of the one that adds the key.
#[tokio::test]
async fn a_ledger_that_was_exported_before_a_key_was_added_is_not_blamed_for_not_telling_of_it() {
    let scene = Scene::new().await;
    let gateway = &scene.world.gateway;
    gateway.publish_keys(&Keyring::of(key(1))).await.unwrap();
    scene.world.clock.advance_millis(30_000);
    scene.world.tenancy("ahead").await;
    scene.world.clock.advance_millis(-30_000);
    let exported = scene
        .world
        .store
        .entries(TenantId::SYSTEM, 1, 1_000)
        .await
        .unwrap();
    let newest = exported.last().unwrap().at;
    assert_eq!(newest, BEGINNING.plus_millis(30_000));
    gateway.publish_keys(&Keyring::of(key(2))).await.unwrap();

    let keys = scene.keys().await;
    let added = keys.find(&key(2).verifier().label()).unwrap();
    let begins = added.not_before.unwrap().to_string();
    assert_eq!(begins, newest.plus_millis(1).to_string());
    let mut history = KeyHistory::default();
    for entry in &exported {
        history.push(&entry.kind, &entry.body);
    }
    let differ = history.differs_from(keys.keys(), Some(&newest.to_string()));
    assert_eq!(differ, None);
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(signing_key().verifier().name(), SignatureKind::Note, &[seed; 32]).unwrap()
}
