//! The whole of `POST /v1/authorize` in process: router, credential, canonical bytes, policy, commit to an SQLite file.
//!
//! One caller at a time among 100 agents and 1,000 earlier decisions, so a commit each; then 64 at once, which share
//! commits. Every answer is asserted. What is not here is the socket: `load` measures that.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::ServiceExt as _;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use benches::address::Address;
use benches::client::{Client, Decision};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gateway::app::App;
use gateway::cli::operator_key;
use gateway::gateway::Options;
use gateway::start::{Ingredients, start};
use ledger::{SignatureKind, SigningKey};
use model::{Secret, SecretKind, SystemClock, SystemEntropy, Trust, Verdict};
use policy::BasePolicies;
use serde_json::json;
use store_sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

const AGENTS: usize = 100;
const EARLIER_DECISIONS: usize = 1_000;
const AT_ONCE: u64 = 64;
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A gateway with its callers. The folder goes when the value does.
struct Scene {
    app: App,
    tokens: Vec<String>,
    asked: usize,
    _folder: TempDir,
}

/// An ask of the bench, and what the base policies say to it.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    source: Trust,
    expected: Verdict,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "allow",
        source: Trust::TrustedInternalUnsigned,
        expected: Verdict::Allow,
    },
    Kind {
        name: "require_approval",
        source: Trust::SemiTrustedCustomer,
        expected: Verdict::RequireApproval,
    },
    Kind {
        name: "deny",
        source: Trust::UntrustedExternal,
        expected: Verdict::Deny,
    },
];

impl Scene {
    async fn set_up() -> Self {
        // On the disk that is built on, not in memory: the commit is what this bench is about.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the folder was made by cargo");
        let key = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
        let app = serve_in_process(&folder, &key).await;
        let tokens = register(&app, &key).await;
        let mut scene = Self {
            app,
            tokens,
            asked: 0,
            _folder: folder,
        };
        for number in 0..EARLIER_DECISIONS {
            scene.ask(KINDS[number % KINDS.len()]).await;
        }
        scene
    }

    /// The next ask of this kind: another agent, another request id.
    fn next(&mut self, kind: Kind) -> Request<Body> {
        self.asked += 1;
        let body = json!({
            "request_id": format!("call-{}", self.asked),
            "tool_call": {
                "tool": "github", "action": "merge_pull_request", "resource": "repo:acme/widgets#42",
                "parameters": { "base_branch": "feature", "number": 42, "comment": "asked for by the release plan" },
            },
            "context": { "source_trust": kind.source },
            "trace": { "run_id": "run-1" },
        });
        Request::post("/v1/authorize")
            .header(
                "authorization",
                format!("Bearer {}", self.tokens[self.asked % self.tokens.len()]),
            )
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .expect("the parts of the request are valid")
    }

    async fn ask(&mut self, kind: Kind) {
        let request = self.next(kind);
        answer(self.app.clone(), request, kind).await;
    }
}

/// Sends a request and asserts the decision.
async fn answer(app: App, request: Request<Body>, kind: Kind) {
    let response = app.oneshot(request).await.expect("the router does not fail");
    let status = response.status();
    let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX)
        .await
        .expect("an answer is short");
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    let answer: Decision = serde_json::from_slice(&body).expect("an answer is a decision");
    assert_eq!(answer.decision, kind.expected, "{}", answer.reason_code);
}

/// The key that answers are signed with.
fn signing_key() -> Arc<SigningKey> {
    Arc::new(
        SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32]).expect("a plain word is a name"),
    )
}

async fn serve_in_process(folder: &TempDir, key: &Secret) -> App {
    let url = format!("sqlite:{}", folder.path().join("countersign.db").display());
    let store = SqliteStore::open(&url).await.expect("the folder is ours");
    let ingredients = Ingredients {
        store: Arc::new(store),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        signing_key: signing_key(),
        base_policies: BasePolicies::shipped(),
        base_file: None,
        options: Options::default(),
    };
    let (gateway, _sequencer) = start(ingredients)
        .await
        .expect("the store is empty and the policies hold");
    operator_key::install(&gateway, key.digest(), "bench")
        .await
        .expect("the store takes a key");
    App::new(&gateway)
}

/// Sets the tenant up through the public API, on a socket; a token of each agent.
async fn register(app: &App, key: &Secret) -> Vec<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let app = app.clone();
    let server = tokio::spawn(async move { axum::serve(listener, app.into_make_service()).await });
    let mut operator = Client::open(&Address::Tcp(address), key.reveal())
        .await
        .expect("the server listens");
    operator
        .create_tenant("acme")
        .await
        .expect("the operator makes tenants");
    let schema = json!({
        "type": "object",
        "properties": {
            "base_branch": { "type": "string" }, "number": { "type": "integer" }, "comment": { "type": "string" },
        },
        "required": ["base_branch", "number"],
    });
    let actions = json!([
        { "name": "merge_pull_request", "mutates_state": true, "risk": "high", "input_schema": schema },
    ]);
    operator
        .put_tool("github", &actions)
        .await
        .expect("the operator registers tools");
    let mut tokens = Vec::new();
    for number in 0..AGENTS {
        let token = operator.create_agent(&format!("agent-{number}"), "github").await;
        tokens.push(token.expect("the operator makes agents"));
    }
    server.abort();
    tokens
}

fn time_authorize(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    let mut scene = runtime.block_on(Scene::set_up());
    let mut group = criterion.benchmark_group("authorize");
    for kind in KINDS {
        group.bench_function(kind.name, |bencher| {
            bencher.iter(|| runtime.block_on(scene.ask(black_box(kind))));
        });
    }
    group.throughput(Throughput::Elements(AT_ONCE));
    group.bench_function("allow_64_at_once", |bencher| {
        bencher.iter(|| {
            let mut callers = JoinSet::new();
            for _ in 0..AT_ONCE {
                let request = scene.next(KINDS[0]);
                callers.spawn_on(answer(scene.app.clone(), request, KINDS[0]), runtime.handle());
            }
            runtime.block_on(callers.join_all());
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(40)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = time_authorize
}
criterion_main!(benches);
