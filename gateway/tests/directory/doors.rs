//! Whom each route lets in, for all routes of the table; and that nobody reaches into another tenant.

use crate::support::World;
use crate::{Acme, Tenant, text};
use gateway::http::Access;
use gateway::router::{Route, routes};
use model::Role;
use serde_json::{Value, json};

const ROLES: [Role; 5] = [
    Role::Operator,
    Role::Admin,
    Role::PolicyEditor,
    Role::Approver,
    Role::Auditor,
];

/// Whether a key of this role may pass.
fn lets_in(access: Access, role: Role) -> bool {
    match access {
        Access::Public | Access::Anybody => true,
        Access::Agent => false,
        Access::Operator => role == Role::Operator,
        Access::Roles(roles) | Access::RolesOrOperator(roles) | Access::AgentOrRoles(roles) => {
            role == Role::Operator || roles.contains(&role)
        }
    }
}

fn lets_agents_in(access: Access) -> bool {
    matches!(
        access,
        Access::Public | Access::Anybody | Access::Agent | Access::AgentOrRoles(_)
    )
}

/// The path with something in place of its parameters that is not there.
fn filled(path: &str, with: &str) -> String {
    let parts = path
        .split('/')
        .map(|part| if part.starts_with('{') { with } else { part });
    parts.collect::<Vec<_>>().join("/")
}

async fn assert_door(world: &World, route: &Route, credential: &str, tenant: Option<&str>, opens: bool) {
    let path = filled(route.path, "x");
    let mut call = world.call(route.method, &path, credential);
    if let Some(tenant) = tenant {
        call = call.tenant(tenant);
    }
    let door = format!("{} {}", route.method, route.path);
    if opens {
        // The body is left where it is: a stream has no end.
        let status = call.respond().await.status();
        assert!(![401, 403].contains(&status.as_u16()), "{door}: {status}");
    } else {
        let reply = call.send().await;
        let door = format!("{door}: {}", reply.text());
        assert_eq!(reply.status.as_u16(), 403, "{door}");
        assert_eq!(reply.json()["code"], "forbidden", "{door}");
    }
}

#[tokio::test]
async fn every_route_refuses_everybody_whom_it_does_not_let_in() {
    let acme = Acme::open().await;
    let token = acme.token(&acme.hire(json!({"name": "builder"})).await).await;
    let mut keys = Vec::new();
    for role in ROLES {
        let key = match role {
            Role::Operator => acme.operator.clone(),
            role => acme.make_key(&acme.tenant.id, role.as_str()).await,
        };
        keys.push((role, key));
    }
    let table = routes();
    assert!(table.len() > 50, "the table has {} routes", table.len());
    for route in &table {
        for (role, key) in &keys {
            let tenant = (*role == Role::Operator).then_some(acme.tenant.id.as_str());
            assert_door(&acme, route, key, tenant, lets_in(route.access, *role)).await;
        }
        assert_door(&acme, route, &token, None, lets_agents_in(route.access)).await;
    }
}

#[tokio::test]
async fn a_tenant_that_is_not_the_callers_is_not_there_for_agents_either() {
    let acme = Acme::open().await;
    let other = acme.found("globex").await;
    let token = acme.token(&acme.hire(json!({"name": "builder"})).await).await;
    let mut tried = 0;
    for route in routes() {
        if !matches!(route.access, Access::Agent | Access::AgentOrRoles(_)) {
            continue;
        }
        tried += 1;
        let path = filled(route.path, "x");
        for foreign in [&*other.id, "tnt_1", "", "nonsense"] {
            let call = acme.call(route.method, &path, &token).tenant(foreign);
            let detail = call.send().await.problem(404, "not_found");
            assert_eq!(detail, format!("there is no tenant `{foreign}`"), "{path}");
        }
        let call = acme.call(route.method, &path, &token).tenant(&acme.tenant.id);
        let reply = call.send().await;
        assert!(
            !reply.text().contains("there is no tenant"),
            "{path}: {}",
            reply.text()
        );
    }
    assert!(tried > 15, "only {tried} routes let agents in");
}

#[tokio::test]
async fn every_route_that_is_not_public_refuses_a_request_without_a_credential_that_works() {
    let world = World::start().await;
    let unknown = model::Secret::mint(model::SecretKind::ApiKey, &model::SystemEntropy);
    for route in routes() {
        for credential in ["", "csk_mistyped", unknown.reveal()] {
            let reply = world
                .call(route.method, &filled(route.path, "x"), credential)
                .send()
                .await;
            if route.access == Access::Public {
                assert_ne!(reply.status.as_u16(), 401, "{}", route.path);
            } else {
                reply.problem(401, "invalid_token");
                assert_eq!(reply.headers["www-authenticate"], "Bearer", "{}", route.path);
            }
        }
    }
}

/// What the contract says about roles, not what the table says.
#[test]
fn only_those_whom_the_contract_names_change_the_directory() {
    let families = [
        "/v1/tenants",
        "/v1/keys",
        "/v1/teams",
        "/v1/users",
        "/v1/agents",
        "/v1/tools",
    ];
    let mut changing = 0;
    for route in routes() {
        let Some(family) = families.iter().find(|family| route.path.starts_with(**family)) else {
            continue;
        };
        assert!(!lets_agents_in(route.access), "{}", route.path);
        if route.method == "GET" {
            continue;
        }
        changing += 1;
        for role in [Role::PolicyEditor, Role::Approver, Role::Auditor] {
            assert!(
                !lets_in(route.access, role),
                "{} {} lets {role:?} in",
                route.method,
                route.path
            );
        }
        assert_eq!(
            lets_in(route.access, Role::Admin),
            *family != "/v1/tenants",
            "{}",
            route.path
        );
    }
    assert!(changing > 25, "only {changing} routes change the directory");
}

#[test]
fn nothing_is_public_but_how_the_gateway_is() {
    let public: Vec<_> = routes()
        .iter()
        .filter(|route| route.access == Access::Public)
        .map(|route| route.path)
        .collect();
    let (authzen, keys) = (
        "/.well-known/authzen-configuration",
        "/.well-known/countersign/keys.json",
    );
    assert_eq!(
        public,
        [authzen, keys, "/healthz", "/readyz", "/metrics", "/openapi.json"]
    );
}

/// One of everything.
struct Goods {
    agent: String,
    token: String,
    key: String,
}

async fn furnish(world: &World, tenant: &Tenant) -> Goods {
    let put = |path, body: Value| world.call("PUT", path, &tenant.admin).json(&body).send();
    put("/v1/teams/goods", json!({})).await.expect(201);
    put("/v1/users/goods", json!({})).await.expect(201);
    put("/v1/tools/goods", json!({"actions": []})).await.expect(201);
    let agent = world
        .post(
            "/v1/agents",
            &tenant.admin,
            &json!({"name": "goods", "tools": ["goods"]}),
        )
        .await
        .expect(201);
    let agent = text(&agent["id"]);
    let token = world
        .post(&format!("/v1/agents/{agent}/tokens"), &tenant.admin, &json!({}))
        .await
        .expect(201);
    let key = world
        .post(
            "/v1/keys",
            &tenant.admin,
            &json!({"name": "goods", "role": "auditor"}),
        )
        .await
        .expect(201);
    world.news_of(tenant).await;
    Goods {
        agent,
        token: text(&token["id"]),
        key: text(&key["id"]),
    }
}

impl Goods {
    /// The path of a route that names something of these, if it is one whose answer depends on that being there.
    fn path(&self, route: &Route) -> Option<String> {
        let creates =
            route.method == "PUT" && !route.path.starts_with("/v1/agents") || route.path.ends_with("/import");
        if creates || !route.path.contains('{') {
            return None;
        }
        let path = route
            .path
            .replace("{token_id}", &self.token)
            .replace("{action}", "goods");
        let path = path
            .replace("{tool}", "goods")
            .replace("{team}", "goods")
            .replace("{user}", "goods");
        let asks = if path.ends_with("/probe") {
            "?tool=goods&action=goods"
        } else {
            ""
        };
        let known = [
            "/v1/agents/",
            "/v1/keys/",
            "/v1/tools/",
            "/v1/teams/",
            "/v1/users/",
        ];
        let id = if path.starts_with("/v1/keys/") {
            &self.key
        } else {
            &self.agent
        };
        known
            .iter()
            .any(|family| path.starts_with(family))
            .then(|| path.replace("{id}", id) + asks)
    }
}

#[tokio::test]
async fn another_tenants_objects_are_not_there() {
    let acme = Acme::open().await;
    let other = acme.found("globex").await;
    let goods = furnish(&acme, &other).await;
    let mut tried = 0;
    for route in routes() {
        let Some(path) = goods.path(&route) else { continue };
        tried += 1;
        let changes_standing = ["/freeze", "/unfreeze", "/revoke"]
            .iter()
            .any(|verb| path.ends_with(verb));
        let body = if changes_standing {
            json!({"reason": "mine now"})
        } else {
            json!({})
        };
        let by_admin = acme
            .call(route.method, &path, &acme.tenant.admin)
            .json(&body)
            .send()
            .await;
        let by_operator = acme
            .call(route.method, &path, &acme.operator)
            .tenant(&acme.tenant.id)
            .json(&body)
            .send()
            .await;
        for reply in [by_admin, by_operator] {
            let problem = reply.expect(404);
            assert_eq!(problem["code"], "not_found", "{} {path}", route.method);
        }
        let intruder = acme
            .call(route.method, &path, &acme.tenant.admin)
            .tenant(&other.id)
            .json(&body)
            .send()
            .await;
        intruder.problem(404, "not_found");
    }
    assert!(tried > 20, "only {tried} routes were tried");
    assert!(acme.news_of(&other).await.is_empty() && acme.kinds().await.is_empty());
    acme.get(&format!("/v1/agents/{}", goods.agent), &other.admin)
        .await
        .expect(200);
}

#[tokio::test]
async fn the_same_names_in_two_tenants_are_two_things() {
    let acme = Acme::open().await;
    let other = acme.found("globex").await;
    furnish(&acme, &other).await;
    acme.admin("PUT", "/v1/tools/goods", json!({"actions": [], "canary": true}))
        .await
        .expect(201);
    acme.hire(json!({"name": "goods"})).await;
    assert!(acme.news_of(&other).await.is_empty());
    assert_eq!(
        acme.get("/v1/tools/goods", &other.admin).await.expect(200)["canary"],
        false
    );
}

#[tokio::test]
async fn an_operator_says_which_tenant_is_meant() {
    let acme = Acme::open().await;
    acme.get("/v1/agents", &acme.operator)
        .await
        .problem(400, "tenant_required");
    for unknown in ["tnt_1", "", "tnt_7zzzzzzzzzzzzzzzzzzzzzzzzz"] {
        let call = acme.call("GET", "/v1/agents", &acme.operator).tenant(unknown);
        call.send().await.problem(404, "not_found");
    }
    acme.call("GET", "/v1/agents", &acme.operator)
        .tenant(&acme.tenant.id)
        .send()
        .await
        .expect(200);
}

#[tokio::test]
async fn what_is_made_and_can_be_read_alone_is_where_its_answer_says() {
    let acme = Acme::open().await;
    let read = async |path: &str| {
        let call = acme.call("GET", path, &acme.operator);
        call.tenant(&acme.tenant.id).send().await.expect(200)
    };
    let jwks = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]});
    for (folder, body) in [
        ("/v1/agents", json!({"name": "helper", "tools": "all"})),
        (
            "/v1/issuers",
            json!({"name": "crm/50% é", "purpose": "provenance", "issuer": "https://crm.example.com", "jwks": jwks}),
        ),
        (
            "/v1/policies",
            json!({"name": "of our own", "cedar": "@id(\"ours\")\npermit (principal, action, resource);"}),
        ),
        (
            "/v1/budgets",
            json!({"scope": {}, "unit": "TOKENS", "allocated": 5}),
        ),
    ] {
        let call = acme.call("POST", folder, &acme.operator).tenant(&acme.tenant.id);
        let made = call.json(&body).send().await;
        let object = made.expect(201);
        let location = made.headers["location"].to_str().unwrap();
        assert!(location.starts_with(&format!("{folder}/")), "{location}");
        let called = if object["id"].is_string() { "id" } else { "name" };
        assert_eq!(read(location).await[called], object[called], "{location}");
    }
    let made = acme
        .post("/v1/tenants", &acme.operator, &json!({"name": "globex"}))
        .await;
    let object = made.expect(201);
    let found = acme
        .get(made.headers["location"].to_str().unwrap(), &acme.operator)
        .await;
    assert_eq!(found.expect(200)["id"], object["id"]);

    let token = acme
        .token(&acme.hire(json!({"name": "builder", "tools": "all"})).await)
        .await;
    let hold = || {
        let call = acme.call("POST", "/v1/reservations", &token);
        call.header("idempotency-key", "once")
            .json(&json!({"unit": "TOKENS", "amount": 1}))
            .send()
    };
    let (made, again) = (hold().await, hold().await);
    let location = made.headers["location"].to_str().unwrap();
    assert_eq!(read(location).await["id"], made.expect(201)["id"]);
    assert_eq!(again.headers["location"], location);
    // There is no way to read one key, or one token.
    let key = acme
        .admin("POST", "/v1/keys", json!({"name": "k", "role": "auditor"}))
        .await;
    key.expect(201);
    assert!(!key.headers.contains_key("location"));
}

#[tokio::test]
async fn nothing_is_made_that_no_path_can_name() {
    let acme = Acme::open().await;
    let jwks = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]});
    for name in [".", ".."] {
        for (folder, body) in [
            (
                "/v1/issuers",
                json!({"name": name, "purpose": "provenance", "issuer": "https://crm.example.com", "jwks": jwks}),
            ),
            (
                "/v1/policies",
                json!({"name": name, "cedar": "permit (principal, action, resource);"}),
            ),
        ] {
            let call = acme.call("POST", folder, &acme.operator).tenant(&acme.tenant.id);
            let detail = call.json(&body).send().await.problem(400, "invalid_field");
            assert!(detail.contains("cannot stand in the path"), "{detail}");
        }
    }
}
