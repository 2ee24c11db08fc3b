//! Agents that sign their requests: a token alone opens nothing, and a request that was overheard is worth nothing a second time.

use crate::hand::Signer;
use crate::stage::{Player, Stage, changing};
use crate::support::{Held, Reply};
use crate::{NOW, token};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::Digest;
use serde_json::{Value, json};
use std::time::Duration;

/// When most requests are signed: behind the second in which the gateway starts, of which it cannot tell what it has seen.
const SIGNED_AT: i64 = NOW + 1;
const COVERED: &str = r#""@method" "@path" "@query" "content-digest" "authorization""#;

/// A request before it is signed.
#[derive(Clone)]
struct Letter {
    method: &'static str,
    path: String,
    token: String,
    body: Vec<u8>,
    covered: String,
    created: i64,
    nonce: String,
    key: &'static str,
    idempotency_key: Option<&'static str>,
}

/// A request with its signature.
#[derive(Clone)]
struct Signed {
    letter: Letter,
    digest: String,
    input: String,
    signature: String,
}

impl Letter {
    /// An ask by this token.
    fn ask(token: &str, ask: &Value, nonce: &str) -> Self {
        Self {
            method: "POST",
            path: "/v1/authorize".to_owned(),
            token: token.to_owned(),
            body: ask.to_string().into_bytes(),
            covered: COVERED.to_owned(),
            created: SIGNED_AT,
            nonce: nonce.to_owned(),
            key: "a",
            idempotency_key: None,
        }
    }

    /// Signed by this key.
    fn sign(&self, signer: &Signer) -> Signed {
        let digest = format!("sha-256=:{}:", STANDARD.encode(Digest::of(&self.body).as_bytes()));
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let parameters = format!(
            "({});created={};keyid=\"{}\";nonce=\"{}\";alg=\"ed25519\"",
            self.covered, self.created, self.key, self.nonce
        );
        let lines = self.covered.split(' ').map(|name| {
            let value = match name {
                "\"@method\"" => self.method.to_owned(),
                "\"@path\"" => path.to_owned(),
                "\"@query\"" => format!("?{query}"),
                "\"content-digest\"" => digest.clone(),
                "\"authorization\"" => format!("Bearer {}", self.token),
                "\"idempotency-key\"" => self.idempotency_key.unwrap().to_owned(),
                _ => panic!("{name}"),
            };
            format!("{name}: {value}\n")
        });
        let base = format!("{}\"@signature-params\": {parameters}", lines.collect::<String>());
        Signed {
            letter: self.clone(),
            digest,
            input: format!("sig={parameters}"),
            signature: format!("sig=:{}:", STANDARD.encode(signer.sign(base.as_bytes()))),
        }
    }
}

impl Signed {
    /// Sends its body when whoever waits for so long has gone.
    async fn send_late(&self, stage: &Stage, timeout_ms: u64) -> Reply {
        let call = stage
            .call("POST", &self.letter.path, &self.letter.token)
            .header("content-digest", &*self.digest)
            .header("signature-input", &*self.input)
            .header("signature", &*self.signature)
            .header("x-request-timeout-ms", timeout_ms.to_string());
        let held = call.body(self.letter.body.clone()).hold().await;
        tokio::time::sleep(Duration::from_millis(3 * timeout_ms)).await;
        held.finish().await
    }

    /// Sends its head.
    async fn hold(&self, stage: &Stage) -> Held {
        let call = stage
            .call(self.letter.method, &self.letter.path, &self.letter.token)
            .header("content-digest", &*self.digest)
            .header("signature-input", &*self.input)
            .header("signature", &*self.signature);
        call.body(self.letter.body.clone()).hold().await
    }

    async fn send(&self, stage: &Stage) -> Reply {
        let letter = &self.letter;
        let mut call = stage
            .call(letter.method, &letter.path, &letter.token)
            .header("content-digest", &*self.digest)
            .header("signature-input", &*self.input)
            .header("signature", &*self.signature);
        if let Some(key) = letter.idempotency_key {
            call = call.header("idempotency-key", key);
        }
        if letter.body.is_empty() {
            call.send().await
        } else {
            call.body(letter.body.clone()).send().await
        }
    }
}

fn keys(signers: &[(&str, &Signer)]) -> Value {
    let keys = signers.iter().map(|(name, signer)| signer.jwk(name));
    json!({"keys": keys.collect::<Vec<_>>()})
}

/// A stage with an agent that signs its requests by this key.
async fn stage(signer: &Signer) -> (Stage, Player) {
    let stage = Stage::set().await;
    stage.clock.advance_millis(1_000);
    let body = json!({"name": "signer", "tools": "all", "signing_keys": keys(&[("a", signer)])});
    let agent = stage.hire(body).await;
    (stage, agent)
}

#[tokio::test]
async fn a_stolen_token_opens_nothing_without_the_key() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    for (method, path) in [
        ("POST", "/v1/authorize"),
        ("POST", "/v1/authorize/batch"),
        ("POST", "/v1/reservations"),
        ("GET", "/v1/whoami"),
        ("GET", "/v1/quota"),
        ("GET", "/v1/approvals/apr_00000000000000000000000000"),
        // Doors that no agent may open: a stolen token does not show there that it works.
        ("GET", "/v1/agents"),
        ("POST", "/v1/tenants"),
        ("POST", "/v1/keys"),
        ("GET", "/v1/events"),
    ] {
        let reply = stage
            .call(method, path, &agent.token)
            .json(&changing())
            .send()
            .await;
        assert_eq!(reply.headers["www-authenticate"], "Bearer", "{path}");
        assert!(reply.headers.contains_key("accept-signature"), "{path}");
        reply.problem(401, "signature_required");
    }
    let asked = |sent: Signed| {
        let stage = &stage;
        async move { sent.send(stage).await }
    };
    let letter = Letter::ask(&agent.token, &changing(), "n-1");
    let answer = asked(letter.sign(&signer)).await.expect(200);
    assert_eq!(answer["decision"], "allow");
    asked(letter.sign(&Signer::ed25519(2)))
        .await
        .problem(401, "signature_invalid");
    let looking = Letter {
        method: "GET",
        path: "/v1/quota?run_id=run-1".to_owned(),
        body: Vec::new(),
        nonce: "n-2".to_owned(),
        ..letter
    };
    asked(looking.sign(&signer)).await.expect(200);
    // Who has no keys signs nothing.
    assert_eq!(stage.ask(&changing()).await.expect(200)["decision"], "allow");
    stage.assert_sound().await;
}

#[tokio::test]
async fn the_time_of_whoever_waits_for_a_signed_ask_begins_with_its_head() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let letter = Letter::ask(&agent.token, &changing(), "n-1");
    let late = letter.sign(&signer).send_late(&stage, 100).await;
    // By the router, whatever the door, so it is JSON.
    assert_eq!(late.expect(503)["code"], "deadline_exceeded");
    assert_eq!(stage.count("decision").await, 0);
}

#[tokio::test]
async fn a_signature_is_of_one_request_and_nothing_else() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let letter = Letter::ask(&agent.token, &changing(), "n-1");
    let good = letter.sign(&signer);
    let other_body = changing()
        .to_string()
        .replace("create_issue", "merge_pull_request");
    let second = stage
        .admin("POST", &format!("/v1/agents/{}/tokens", agent.id), &json!({}))
        .await
        .expect(201);
    let with = |change: &dyn Fn(&mut Signed)| {
        let mut sent = good.clone();
        change(&mut sent);
        sent
    };
    let other_digest = format!(
        "sha-256=:{}:",
        STANDARD.encode(Digest::of(other_body.as_bytes()).as_bytes())
    );
    for (what, sent) in [
        (
            "another body",
            with(&|sent| sent.letter.body = other_body.clone().into()),
        ),
        (
            "another body and its digest",
            with(&|sent| {
                sent.letter.body = other_body.clone().into();
                sent.digest.clone_from(&other_digest);
            }),
        ),
        (
            "another door",
            with(&|sent| sent.letter.path = "/v1/decide".to_owned()),
        ),
        ("a query", with(&|sent| sent.letter.path += "?a=1")),
        (
            "another token of the same agent",
            with(&|sent| sent.letter.token = second["token"].as_str().unwrap().to_owned()),
        ),
        (
            "another nonce",
            with(&|sent| sent.input = sent.input.replace("n-1", "n-2")),
        ),
        (
            "another label",
            with(&|sent| sent.signature = sent.signature.replace("sig=", "gis=")),
        ),
        ("no bytes", with(&|sent| sent.signature = "sig=::".to_owned())),
        ("nonsense", with(&|sent| sent.input = "sig".to_owned())),
    ] {
        let reply = sent.send(&stage).await;
        assert_eq!(reply.json()["code"], "signature_invalid", "{what}");
        assert_eq!(reply.status, 401, "{what}");
    }
    for left_out in ["@method", "@path", "@query", "content-digest", "authorization"] {
        let covered = COVERED.replace(&format!("\"{left_out}\""), "").replace("  ", " ");
        let covered = covered.trim().to_owned();
        let letter = Letter {
            covered,
            ..letter.clone()
        };
        letter
            .sign(&signer)
            .send(&stage)
            .await
            .problem(401, "signature_invalid");
    }
    let unknown = Letter {
        key: "b",
        ..letter.clone()
    };
    unknown
        .sign(&signer)
        .send(&stage)
        .await
        .problem(401, "signature_invalid");
    assert_eq!(stage.decisions().await.len(), 0);
    good.send(&stage).await.expect(200);
}

#[tokio::test]
async fn an_idempotency_key_is_signed_with_its_request() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let bare = Letter::ask(&agent.token, &changing(), "n-1");
    let keyed = Letter {
        covered: format!("{COVERED} \"idempotency-key\""),
        idempotency_key: Some("one"),
        ..bare.clone()
    };
    for (what, signed, key) in [
        ("added", &bare, Some("one")),
        ("changed", &keyed, Some("two")),
        ("taken away", &keyed, None),
    ] {
        let mut sent = signed.sign(&signer);
        sent.letter.idempotency_key = key;
        let reply = sent.send(&stage).await;
        assert_eq!(reply.json()["code"], "signature_invalid", "{what}");
    }
    assert_eq!(stage.decisions().await.len(), 0);
    keyed.sign(&signer).send(&stage).await.expect(200);
}

#[tokio::test]
async fn what_was_sent_once_is_not_sent_again_and_what_is_old_is_not_sent_at_all() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let letter = |nonce: &str, created: i64| {
        let letter = Letter::ask(&agent.token, &changing(), nonce);
        Letter { created, ..letter }.sign(&signer)
    };
    let first = letter("n-1", SIGNED_AT);
    first.send(&stage).await.expect(200);
    first.send(&stage).await.problem(401, "signature_replayed");
    letter("n-1", SIGNED_AT + 1)
        .send(&stage)
        .await
        .problem(401, "signature_replayed");
    letter("n-2", SIGNED_AT + 61)
        .send(&stage)
        .await
        .problem(401, "signature_invalid");
    letter("n-2", SIGNED_AT + 60).send(&stage).await.expect(200);
    stage.clock.advance_millis(359_999);
    first.send(&stage).await.problem(401, "signature_replayed");
    letter("n-3", SIGNED_AT).send(&stage).await.expect(200);
    stage.clock.advance_millis(1);
    letter("n-4", SIGNED_AT)
        .send(&stage)
        .await
        .problem(401, "signature_invalid");
    first.send(&stage).await.problem(401, "signature_invalid");
    stage.clock.advance_millis(600_000);
    letter("n-1", SIGNED_AT + 960).send(&stage).await.expect(200);
}

#[tokio::test]
async fn of_the_same_request_sent_at_once_one_is_let_in() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let sent = Letter::ask(&agent.token, &changing(), "n-1").sign(&signer);
    let replies = futures_util::future::join_all((0..16).map(|_| sent.send(&stage))).await;
    let let_in = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!((let_in, stage.decisions().await.len()), (1, 1));
}

#[tokio::test]
async fn a_restart_does_not_let_the_same_request_in_again() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let sent = Letter::ask(&agent.token, &changing(), "n-1").sign(&signer);
    sent.send(&stage).await.expect(200);
    stage.clock.advance_millis(5_000);
    let stage = stage.restart().await;
    let detail = sent.send(&stage).await.problem(401, "signature_invalid");
    assert!(detail.contains("sign it anew"), "{detail}");
    let anew = |created: i64| {
        let letter = Letter::ask(&agent.token, &changing(), "n-2");
        Letter { created, ..letter }.sign(&signer)
    };
    // The gateway before it may have seen this in the same second.
    let detail = anew(SIGNED_AT + 5)
        .send(&stage)
        .await
        .problem(401, "signature_invalid");
    assert!(detail.contains("sign it anew"), "{detail}");
    stage.clock.advance_millis(1_000);
    anew(SIGNED_AT + 6).send(&stage).await.expect(200);
}

#[tokio::test]
async fn a_clock_that_was_ahead_keeps_nobody_out_and_lets_no_request_in_again() {
    const AHEAD_MS: i64 = 2 * 60 * 60 * 1_000;
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let letter = |nonce: &str, created: i64| {
        let letter = Letter::ask(&agent.token, &changing(), nonce);
        Letter { created, ..letter }.sign(&signer)
    };
    let sent = letter("n-1", SIGNED_AT);
    sent.send(&stage).await.expect(200);
    stage.clock.advance_millis(AHEAD_MS);
    // With this the nonces are forgotten of what is too old by now.
    let ahead = letter("n-2", SIGNED_AT + AHEAD_MS / 1_000);
    ahead.send(&stage).await.expect(200);
    stage.clock.advance_millis(-AHEAD_MS);
    let detail = sent.send(&stage).await.problem(401, "signature_invalid");
    assert!(detail.contains("sign it anew"), "{detail}");
    stage.clock.advance_millis(1_000);
    letter("n-3", SIGNED_AT + 1).send(&stage).await.expect(200);

    // A gateway that begins while the clock is ahead does not wait until it is that time.
    stage.clock.advance_millis(AHEAD_MS);
    let stage = stage.restart().await;
    stage.clock.advance_millis(-AHEAD_MS);
    let early = letter("n-4", SIGNED_AT + 1).send(&stage).await;
    early.problem(401, "signature_invalid");
    stage.clock.advance_millis(1_000);
    letter("n-5", SIGNED_AT + 2).send(&stage).await.expect(200);
}

#[tokio::test]
async fn keys_are_registered_replaced_and_taken_away() {
    let (old, new) = (Signer::ed25519(1), Signer::ed25519(2));
    let (stage, agent) = stage(&old).await;
    let itself = format!("/v1/agents/{}", agent.id);
    let set = |keys: Value| {
        let (stage, itself) = (&stage, &itself);
        async move {
            stage
                .admin("PATCH", itself, &json!({ "signing_keys": keys }))
                .await
        }
    };
    let mut number = 0;
    let mut letter = |signer: &Signer, key: &'static str| {
        number += 1;
        let letter = Letter::ask(&agent.token, &changing(), &format!("n-{number}"));
        Letter { key, ..letter }.sign(signer)
    };
    let both = set(keys(&[("a", &old), ("b", &new)])).await.expect(200);
    assert_eq!(both["signing_keys"]["keys"][1]["kid"], "b");
    letter(&old, "a").send(&stage).await.expect(200);
    letter(&new, "b").send(&stage).await.expect(200);
    letter(&new, "a")
        .send(&stage)
        .await
        .problem(401, "signature_invalid");
    set(keys(&[("b", &new)])).await.expect(200);
    letter(&old, "a")
        .send(&stage)
        .await
        .problem(401, "signature_invalid");
    for odd in [
        keys(&[]),
        keys(&[("a", &Signer::p256())]),
        keys(&[("a", &old), ("a", &new)]),
        json!("ed25519"),
    ] {
        set(odd).await.problem(400, "invalid_field");
    }
    set(Value::Null).await.expect(200);
    let plain = stage.post("/v1/authorize", &agent.token, &changing()).await;
    assert_eq!(plain.expect(200)["decision"], "allow");
}

/// Of a request whose head has come, the body may come seconds later.
#[tokio::test]
async fn what_is_still_on_its_way_is_signed_by_a_key_that_the_agent_has_when_it_is_there() {
    let (old, new) = (Signer::ed25519(1), Signer::ed25519(2));
    let (stage, agent) = stage(&old).await;
    let itself = format!("/v1/agents/{}", agent.id);
    let set = |keys: Value| {
        let (stage, itself) = (&stage, &itself);
        async move {
            let change = json!({ "signing_keys": keys });
            stage.admin("PATCH", itself, &change).await.expect(200)
        }
    };
    let letter = |nonce: &str| Letter::ask(&agent.token, &changing(), nonce).sign(&old);
    let held = letter("n-1").hold(&stage).await;
    set(keys(&[("a", &old), ("b", &new)])).await;
    held.finish().await.expect(200);
    // A route that records nothing, and answers by what was found when the head was there.
    let whoami = Letter {
        method: "GET",
        path: "/v1/whoami".to_owned(),
        ..Letter::ask(&agent.token, &changing(), "n-3")
    };
    let asked = letter("n-2").hold(&stage).await;
    let told = whoami.sign(&old).hold(&stage).await;
    set(keys(&[("a", &new)])).await;
    // What is held comes by the router, however others ask.
    for held in [asked, told] {
        assert_eq!(held.finish().await.expect(401)["code"], "signature_invalid");
    }
    set(Value::Null).await;
    let unsigned = stage
        .call("POST", "/v1/authorize", &agent.token)
        .body(changing().to_string());
    let held = unsigned.hold().await;
    set(keys(&[("a", &new)])).await;
    let refused = held.finish().await;
    assert!(refused.headers.contains_key("accept-signature"));
    assert_eq!(refused.expect(401)["code"], "signature_required");
    assert_eq!(stage.decisions().await.len(), 1);
}

#[tokio::test]
async fn an_agent_that_signs_in_with_a_token_of_an_issuer_signs_its_requests_too() {
    let (signer, issuer) = (Signer::ed25519(1), Signer::p256());
    let (stage, _) = stage(&signer).await;
    stage.trust("agents", &issuer).await;
    let token = token(&issuer, &json!({"sub": "signer"}));
    stage
        .post("/v1/authorize", &token, &changing())
        .await
        .problem(401, "signature_required");
    let letter = Letter::ask(&token, &changing(), "n-1");
    letter.sign(&signer).send(&stage).await.expect(200);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read_to_be_verified() {
    let signer = Signer::ed25519(1);
    let (stage, agent) = stage(&signer).await;
    let mut ask = changing();
    ask["tool_call"]["parameters"] = json!({"note": "x".repeat(300_000)});
    let sent = Letter::ask(&agent.token, &ask, "n-1").sign(&signer);
    sent.send(&stage).await.problem(413, "body_too_large");
}
