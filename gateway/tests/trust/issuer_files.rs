//! Keys of issuers that the operator keeps in files.

use crate::hand::Signer;
use crate::stage::Stage;
use crate::{issuer, jwks, token};
use gateway::changes::Order;
use gateway::gateway::Options;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::faults::Fault;

/// A stage with an issuer for agents whose keys are in a file.
struct Kept {
    stage: Stage,
    folder: tempfile::TempDir,
}

impl Kept {
    async fn set(signer: &Signer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            issuer_keys: Some(folder.path().to_owned()),
            ..Options::default()
        };
        let stage = Stage::set_with(options).await;
        stage.trust("agents", signer).await;
        fs::create_dir(folder.path().join(stage.tenant.to_string())).unwrap();
        Self { stage, folder }
    }

    fn file(&self) -> PathBuf {
        let tenant = self.folder.path().join(self.stage.tenant.to_string());
        tenant.join("agents.json")
    }

    async fn keep(&self, text: impl AsRef<[u8]>) {
        fs::write(self.file(), text).unwrap();
        self.stage.gateway.read_issuer_files().await.unwrap();
    }

    /// Another tenant that has an issuer with the keys of this signer, and its folder. It is gone through behind the
    /// first one.
    async fn other(&self, signer: &Signer) -> (String, PathBuf) {
        let stage = &self.stage;
        // Tenants are gone through by their age.
        stage.clock.advance_millis(1);
        let body = json!({"name": "other"});
        let other = stage.post("/v1/tenants", &stage.operator, &body).await;
        let other = other.expect(201)["id"].as_str().unwrap().to_owned();
        let mut registered = issuer("agents", &jwks(signer));
        // With the same one, tokens would have to name their tenant.
        registered["issuer"] = json!("https://id.other.example");
        let call = stage.call("POST", "/v1/issuers", &stage.operator);
        call.tenant(&other).json(&registered).send().await.expect(201);
        let folder = self.folder.path().join(&other);
        fs::create_dir(&folder).unwrap();
        (other, folder)
    }

    async fn lets_in(&self, signer: &Signer) -> bool {
        let token = token(signer, &json!({"sub": "builder"}));
        self.stage.get("/v1/whoami", &token).await.status == 200
    }
}

#[tokio::test]
async fn keys_in_a_file_take_the_place_of_those_that_were_registered_and_the_ledger_has_them() {
    let (old, new) = (Signer::ed25519(1), Signer::p256());
    let kept = Kept::set(&old).await;
    kept.stage.gateway.read_issuer_files().await.unwrap();
    assert!(kept.lets_in(&old).await, "without a file nothing changes");
    kept.keep(jwks(&new).to_string()).await;
    assert!(kept.lets_in(&new).await && !kept.lets_in(&old).await);
    let entries = kept.stage.entries().await;
    let last = entries.last().unwrap();
    let body: Value = serde_json::from_str(&last.body).unwrap();
    assert_eq!(last.kind, "issuer_updated");
    assert_eq!(body["by"], json!({"file": "agents.json"}));
    assert_eq!(body["jwks"], jwks(&new));
    kept.keep(jwks(&new).to_string()).await;
    assert_eq!(
        kept.stage.entries().await.len(),
        entries.len(),
        "the same is no news"
    );
    fs::remove_file(kept.file()).unwrap();
    kept.stage.gateway.read_issuer_files().await.unwrap();
    assert!(kept.lets_in(&new).await);
    kept.stage.assert_sound().await;
}

/// Another gateway whose copy of the file is a newer one, say.
#[tokio::test]
async fn keys_that_somebody_has_put_since_a_file_was_read_stay_until_it_changes() {
    let (old, new, last) = (Signer::ed25519(1), Signer::p256(), Signer::ed25519(2));
    let kept = Kept::set(&new).await;
    kept.keep(jwks(&old).to_string()).await;
    assert!(kept.lets_in(&old).await && !kept.lets_in(&new).await);
    let (path, put) = ("/v1/issuers/agents", json!({"jwks": jwks(&new)}));
    kept.stage.admin("PATCH", path, &put).await.expect(200);
    let before = kept.stage.entries().await.len();
    for _ in 0..2 {
        kept.keep(jwks(&old).to_string()).await;
    }
    assert!(kept.lets_in(&new).await && !kept.lets_in(&old).await);
    assert_eq!(kept.stage.entries().await.len(), before);
    kept.keep(jwks(&last).to_string()).await;
    assert!(kept.lets_in(&last).await && !kept.lets_in(&new).await);

    // An issuer that is registered anew was given nothing.
    kept.stage.admin("DELETE", path, &Value::Null).await.expect(204);
    kept.stage.clock.advance_millis(1);
    kept.stage.trust("agents", &old).await;
    kept.keep(jwks(&last).to_string()).await;
    assert!(kept.lets_in(&last).await && !kept.lets_in(&old).await);
}

#[tokio::test]
async fn keys_that_could_not_be_given_are_given_the_next_time() {
    let (old, new) = (Signer::ed25519(1), Signer::p256());
    let kept = Kept::set(&old).await;
    fs::write(kept.file(), jwks(&new).to_string()).unwrap();
    kept.stage.faults.plan([Fault::Lose]);
    // The job may have come first, and then it was told.
    while kept.stage.gateway.read_issuer_files().await.is_err() {}
    assert!(kept.lets_in(&new).await && !kept.lets_in(&old).await);
}

/// Because the chain of that tenant is spoiled, say.
#[tokio::test]
async fn keys_that_cannot_be_given_in_one_tenant_keep_no_other_waiting() {
    let (old, new) = (Signer::ed25519(1), Signer::p256());
    let kept = Kept::set(&old).await;
    let stage = &kept.stage;
    let (other, folder) = kept.other(&old).await;
    let keys = |tenant: String| async move {
        let call = stage.call("GET", "/v1/issuers/agents", &stage.operator);
        call.tenant(tenant).send().await.expect(200)["jwks"].clone()
    };
    // The job may read them as they come: the first one takes the fault, whoever gives its keys.
    stage.faults.plan([Fault::Lose]);
    fs::write(kept.file(), jwks(&new).to_string()).unwrap();
    fs::write(folder.join("agents.json"), jwks(&new).to_string()).unwrap();
    let _ = stage.gateway.read_issuer_files().await;
    assert_eq!(keys(other).await, jwks(&new));
    while stage.gateway.read_issuer_files().await.is_err() {}
    assert_eq!(keys(stage.tenant.to_string()).await, jwks(&new));
}

/// Because changes of that tenant come without end, say.
#[tokio::test]
async fn keys_that_wait_for_what_else_is_changed_in_their_tenant_keep_no_other_one_waiting() {
    let (old, new, last) = (Signer::ed25519(1), Signer::p256(), Signer::ed25519(2));
    let kept = Kept::set(&old).await;
    let stage = &kept.stage;
    let (other, folder) = kept.other(&old).await;
    let locks = &stage.gateway.change_locks;
    let changing = locks.lock(stage.tenant, Order::AtOnce).await.unwrap();
    fs::write(kept.file(), jwks(&new).to_string()).unwrap();
    for keys in [jwks(&new), jwks(&last)] {
        fs::write(folder.join("agents.json"), keys.to_string()).unwrap();
        let patience = Instant::now() + Duration::from_mins(1);
        let given = async || {
            let call = stage.call("GET", "/v1/issuers/agents", &stage.operator);
            call.tenant(&other).send().await.expect(200)["jwks"] == keys
        };
        while !given().await {
            assert!(Instant::now() < patience, "the job does not give them");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(kept.lets_in(&old).await);
    drop(changing);
    kept.stage.gateway.read_issuer_files().await.unwrap();
    assert!(kept.lets_in(&new).await && !kept.lets_in(&old).await);
}

/// As long as the tenant's policies are being compiled, say.
#[tokio::test]
async fn keys_are_taken_away_whatever_else_is_changed_in_the_tenant() {
    let (old, new) = (Signer::ed25519(1), Signer::p256());
    let kept = Kept::set(&old).await;
    let gateway = &kept.stage.gateway;
    let turn = gateway
        .change_locks
        .lock(kept.stage.tenant, Order::InTurn)
        .await
        .unwrap();
    kept.keep(jwks(&new).to_string()).await;
    assert!(kept.lets_in(&new).await && !kept.lets_in(&old).await);
    let path = "/v1/issuers/agents";
    let deleted = kept.stage.admin("DELETE", path, &Value::Null).await;
    deleted.expect(204);
    assert!(!kept.lets_in(&new).await);
    drop(turn);
}

#[tokio::test]
async fn a_file_that_is_not_good_leaves_the_keys_as_they_are() {
    let signer = Signer::ed25519(1);
    let kept = Kept::set(&signer).await;
    let mut secret = jwks(&signer);
    secret["keys"][0]["d"] = json!("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A");
    let other = jwks(&Signer::p256());
    let twice = format!(
        "{{\"keys\":{},\"keys\":{}}}",
        jwks(&signer)["keys"],
        other["keys"]
    );
    let before = kept.stage.entries().await.len();
    for bad in [
        Vec::new(),
        b"{\"keys\":[".to_vec(),
        b"{\"keys\":[]}".to_vec(),
        b"\xff".to_vec(),
        secret.to_string().into_bytes(),
        twice.into_bytes(),
        vec![b' '; 70_000],
    ] {
        kept.keep(bad).await;
        assert!(kept.lets_in(&signer).await);
    }
    fs::remove_file(kept.file()).unwrap();
    fs::create_dir(kept.file()).unwrap();
    kept.stage.gateway.read_issuer_files().await.unwrap();
    assert!(kept.lets_in(&signer).await);
    assert_eq!(kept.stage.entries().await.len(), before);
}

#[tokio::test]
async fn a_tenant_gets_no_file_but_its_own_whatever_it_calls_its_issuers() {
    let (own, others) = (Signer::ed25519(1), Signer::p256());
    let kept = Kept::set(&own).await;
    fs::write(kept.folder.path().join("agents.json"), jwks(&others).to_string()).unwrap();
    let other = kept.folder.path().join("tnt_00000000000000000000000001");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("agents.json"), jwks(&others).to_string()).unwrap();
    for (number, name) in ["../agents", "../tnt_00000000000000000000000001/agents", "/agents"]
        .into_iter()
        .enumerate()
    {
        let mut body = issuer("provenance", &jwks(&own));
        body["name"] = json!(name);
        body["issuer"] = json!(format!("https://{number}.example.com"));
        kept.stage.admin("POST", "/v1/issuers", &body).await.expect(201);
    }
    let before = kept.stage.entries().await.len();
    kept.stage.gateway.read_issuer_files().await.unwrap();
    assert_eq!(kept.stage.entries().await.len(), before);
}
