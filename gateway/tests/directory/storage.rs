//! What is on disk is what is in memory: a gateway that starts again knows the same directory.

use crate::Acme;
use gateway::start::load_snapshot;
use model::{Directory, Noun};
use policy::{BasePolicies, Compiler};
use serde_json::{Value, json};
use std::sync::Arc;

/// Every noun as storage keeps it.
fn nouns(directory: &Directory) -> Vec<String> {
    let mut nouns = vec![Noun::Tenant(directory.tenant.clone())];
    nouns.extend(directory.keys.values().cloned().map(Noun::Key));
    nouns.extend(directory.agents.values().cloned().map(Noun::Agent));
    nouns.extend(directory.tokens.values().cloned().map(Noun::Token));
    nouns.extend(directory.tools.values().cloned().map(Noun::Tool));
    nouns.extend(directory.teams.values().cloned().map(Noun::Team));
    nouns.extend(directory.users.values().cloned().map(Noun::User));
    nouns.extend(directory.runs.values().cloned().map(Noun::Run));
    nouns.extend(directory.issuers.values().cloned().map(Noun::Issuer));
    nouns.extend(directory.rules.values().cloned().map(Noun::Rule));
    nouns.extend(directory.former_issuers.values().cloned().map(Noun::FormerIssuer));
    nouns.iter().map(Noun::to_json).collect()
}

/// Something of every kind, some of it changed, renamed, replaced and deleted.
async fn live(acme: &Acme) {
    let tenant = format!("/v1/tenants/{}", acme.tenant.id);
    let settings = json!({"settings": {"context_attributes": {"region": "String"}}});
    acme.call("PATCH", &tenant, &acme.operator)
        .json(&settings)
        .send()
        .await
        .expect(200);
    let bucket = json!({"bucket": {"capacity": 3, "refill_per_second": 0.1}});
    acme.call("PUT", &format!("{tenant}/quota"), &acme.operator)
        .json(&bucket)
        .send()
        .await
        .expect(200);
    for team in ["a", "b"] {
        acme.admin(
            "PUT",
            &format!("/v1/teams/{team}"),
            json!({"attributes": {"x": 1}}),
        )
        .await
        .expect(201);
    }
    acme.admin("DELETE", "/v1/teams/b", Value::Null).await.expect(204);
    acme.admin("PUT", "/v1/users/ada", json!({"teams": ["a"]}))
        .await
        .expect(201);
    let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    let issuer = json!({"name": "idp", "purpose": "agents", "issuer": "https://idp.example.com", "jwks": {"keys": [key]}});
    acme.admin("POST", "/v1/issuers", issuer).await.expect(201);
    acme.admin("DELETE", "/v1/issuers/idp", Value::Null)
        .await
        .expect(204);
    acme.put_mail().await;
    for description in ["one", "two"] {
        let list = json!({"tools": [{"name": "search", "description": description, "inputSchema": {}}]});
        acme.admin("POST", "/v1/tools/hub/import", list).await;
    }
    let agent = acme
        .hire(json!({"name": "builder", "team": "a", "tools": ["mail", "hub"]}))
        .await;
    acme.token(&agent).await;
    let path = format!("/v1/agents/{agent}");
    acme.admin(
        "PATCH",
        &path,
        json!({"name": "baker", "attributes": {"y": true}}),
    )
    .await
    .expect(200);
    acme.admin("PUT", &format!("{path}/quota"), bucket)
        .await
        .expect(200);
    acme.admin("POST", &format!("{path}/freeze"), json!({"reason": "odd"}))
        .await
        .expect(200);
    acme.hire(json!({"name": "cook", "tools": "all"})).await;
    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .expect(204);
}

#[tokio::test]
async fn a_gateway_that_starts_again_knows_the_same_directory() {
    let acme = Acme::open().await;
    live(&acme).await;
    let id = acme.tenant.id.parse().unwrap();
    let again = load_snapshot(&*acme.store, Arc::new(Compiler::new(BasePolicies::shipped())))
        .await
        .unwrap()
        .snapshot;
    let (before, after) = (acme.gateway.tenant(id).unwrap(), again.tenant(id).unwrap());
    let known = nouns(&before.directory);
    assert_eq!(known.len(), 9, "{known:#?}");
    assert_eq!(nouns(&after.directory), known);
    assert_eq!(after.directory.bytes(), before.directory.bytes());
    assert_eq!(after.revision, before.revision);
    for name in ["builder", "baker", "cook"] {
        let ids = [&before, after].map(|tenant| tenant.directory.agent_named(name).map(|agent| agent.id));
        assert!(ids[0].is_some() && ids[0] == ids[1], "{name}: {ids:?}");
    }
}
