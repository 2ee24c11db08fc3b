//! A gateway on a store of its own, spoken to through its real router. Nothing is faked but the clock and the network.
//!
//! [`World`] is a running gateway and nothing else. `stage.rs` (`Stage`) is a `World` with a tenant, three tools, an
//! agent and a store that fails on command: begin with that. [`tenancy`] writes a tenant straight into the directory.
//! [`home`] is where the store is, [`hand`] changes it behind the gateway's back, and [`door`] is how requests come in.
//! `process.rs` starts the real program.

pub(crate) mod door;
pub(crate) mod hand;
pub(crate) mod home;
pub(crate) mod tenancy;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::Response;
use door::{Door, Sent};
use gateway::app::App;
use gateway::cli::operator_key;
use gateway::gateway::{Gateway, Options};
use gateway::signing::Keyring;
use gateway::start::{self, Ingredients};
use home::Home;
use ledger::{SignatureKind, SigningKey};
use model::time::ManualClock;
use model::{Secret, SecretKind, SystemEntropy, Timestamp};
use policy::BasePolicies;
use serde_json::Value;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// The key that answers are signed with.
pub(crate) fn signing_key() -> Arc<SigningKey> {
    Arc::new(SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32]).unwrap())
}

/// When every test begins: 2026-01-31T09:30:00.000Z.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_millis(1_769_851_800_000);

/// What gateways of tests read when they are told to reload: the shipped policies, which are in force where a test has no others.
pub(crate) const BASE_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies.cedar");

/// How long a test waits for what has to come, on a machine that may stand still for seconds.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a gateway of most tests answers without having looked whether others have changed anything.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_mins(5);
/// What a gateway refuses after so long, it refuses because something stands still: nothing else takes it longer.
const STANDS_STILL: Duration = Duration::from_secs(2);

/// Waits until it is so.
#[track_caller]
pub(crate) fn until(so: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = Location::caller();
    async move {
        let patience = Instant::now() + PATIENCE;
        while !so() {
            assert!(Instant::now() < patience, "it is still not so: {place}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The answer to a call. One that was refused because something stood still is made again.
pub(crate) async fn patiently<F: Future<Output = Reply>>(call: impl Fn() -> F) -> Reply {
    let patience = Instant::now() + PATIENCE;
    loop {
        let began = Instant::now();
        let reply = call().await;
        let stood_still = reply.status == 503 && began.elapsed() >= STANDS_STILL;
        if !stood_still || Instant::now() >= patience {
            return reply;
        }
    }
}

/// The same options for a gateway that goes on answering while the machine stands still.
pub(crate) fn patient(mut options: Options) -> Options {
    let bounds = &mut options.bounds;
    bounds.snapshot_age_max = bounds.snapshot_age_max.max(SNAPSHOT_AGE_MAX);
    options
}

/// A running gateway.
pub(crate) struct World {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
    /// The operator's key.
    pub(crate) operator: String,
    pub(crate) app: App,
    pub(crate) home: Arc<Home>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

/// A request that is being put together.
pub(crate) struct Call<'a> {
    world: &'a World,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl World {
    /// A gateway on a new, empty store.
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// A gateway with these options on a new, empty store.
    pub(crate) async fn start_with(options: Options) -> Self {
        let home = Arc::new(Home::new().await);
        let operator = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
        let clock = Arc::new(ManualClock::at(BEGINNING));
        Self::join(home, &operator, clock, options).await
    }

    /// A gateway on a store that others may have opened too.
    pub(crate) async fn join(
        home: Arc<Home>,
        operator: &Secret,
        clock: Arc<ManualClock>,
        options: Options,
    ) -> Self {
        Self::join_as_told(home, operator, clock, patient(options)).await
    }

    /// A gateway on a store that others may have opened too, with no more patience than the options have.
    pub(crate) async fn join_as_told(
        home: Arc<Home>,
        operator: &Secret,
        clock: Arc<ManualClock>,
        options: Options,
    ) -> Self {
        let store = home.open().await;
        let ingredients = Ingredients {
            store: store.clone(),
            clock: clock.clone(),
            entropy: Arc::new(SystemEntropy),
            signing_key: signing_key(),
            base_policies: BasePolicies::shipped(),
            base_file: Some(BASE_FILE.into()),
            options,
        };
        let (gateway, _) = start::start(ingredients).await.unwrap();
        if gateway.snapshot.load().credential(&operator.digest()).is_none() {
            operator_key::install(&gateway, operator.digest(), "test")
                .await
                .unwrap();
        }
        Self {
            app: App::new(&gateway),
            gateway,
            store,
            clock,
            operator: operator.reveal().to_owned(),
            home,
        }
    }

    /// Publishes the key that answers are signed with, as the program does when it starts.
    pub(crate) async fn publish_key(&self) {
        let keys = Keyring {
            signing: signing_key(),
            replaced: Vec::new(),
        };
        self.gateway.publish_keys(&keys).await.unwrap();
    }

    /// A gateway on the same store, started when this one has ended.
    pub(crate) async fn again(self) -> Self {
        let (home, clock) = (Arc::clone(&self.home), Arc::clone(&self.clock));
        let operator = Secret::parse(&self.operator).unwrap();
        self.store.close().await;
        drop(self);
        Self::join(home, &operator, clock, Options::default()).await
    }

    /// A request of whoever has this credential; of nobody if it is empty.
    pub(crate) fn call(&self, method: &str, path: &str, credential: &str) -> Call<'_> {
        let call = Call {
            world: self,
            method: method.parse().unwrap(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
        };
        if credential.is_empty() {
            call
        } else {
            call.header("authorization", format!("Bearer {credential}"))
        }
    }

    /// A GET.
    pub(crate) async fn get(&self, path: &str, credential: &str) -> Reply {
        self.call("GET", path, credential).send().await
    }

    /// A POST of JSON.
    pub(crate) async fn post(&self, path: &str, credential: &str, body: &Value) -> Reply {
        self.call("POST", path, credential).json(body).send().await
    }
}

impl Call<'_> {
    /// With one more header.
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// In this tenant: for operators.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an id or its text, whichever a test has"
    )]
    pub(crate) fn tenant(self, tenant: impl ToString) -> Self {
        self.header("countersign-tenant", tenant.to_string())
    }

    /// With a JSON body.
    pub(crate) fn json(self, body: &Value) -> Self {
        let (body, media_type) = Door::used().body(body);
        self.body_of(body, media_type)
    }

    /// With these bytes for a JSON body.
    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        self.body_of(body, "application/json")
    }

    /// With these bytes for a body of this type.
    pub(crate) fn body_of(mut self, body: impl Into<Vec<u8>>, media_type: &str) -> Self {
        self.body = Some(body.into());
        self.header("content-type", media_type)
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn send(self) -> Reply {
        if Door::used() != Door::Router {
            let Self {
                world,
                method,
                path,
                headers,
                body,
            } = self;
            let sent = Sent {
                method,
                path,
                headers,
                body,
            };
            return door::over_socket(world.app.clone(), sent).await;
        }
        Reply::of(self.respond().await).await
    }

    /// Sends its head by the router, whatever the door, and returns when the gateway waits for its body.
    pub(crate) async fn hold(mut self) -> Held {
        let (waits, waiting) = oneshot::channel();
        let (go, told) = oneshot::channel();
        let bytes = self.body.take().unwrap();
        let body = Body::from_stream(futures_util::stream::once(async move {
            waits.send(()).unwrap();
            told.await.map(|()| bytes)
        }));
        let (app, request) = (self.world.app.clone(), self.request(body));
        let reply = tokio::spawn(async move { Reply::of(app.oneshot(request).await.unwrap()).await });
        waiting.await.unwrap();
        Held { go, reply }
    }

    /// Sends it and leaves the body to be read.
    pub(crate) async fn respond(mut self) -> Response {
        let body = self.body.take().map_or_else(Body::empty, Body::from);
        let app = self.world.app.clone();
        app.oneshot(self.request(body)).await.unwrap()
    }

    fn request(self, body: Body) -> Request<Body> {
        let mut request = Request::builder().method(self.method).uri(&self.path);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(body).unwrap()
    }
}

/// A request whose caller was let in, and whose body has not come.
pub(crate) struct Held {
    go: oneshot::Sender<()>,
    reply: JoinHandle<Reply>,
}

impl Held {
    /// Sends the body.
    pub(crate) async fn finish(self) -> Reply {
        self.go.send(()).unwrap();
        self.reply.await.unwrap()
    }

    /// What it is told without its body.
    pub(crate) async fn refused(self) -> Reply {
        let Self { go: _not_told, reply } = self;
        reply.await.unwrap()
    }
}

impl Reply {
    pub(crate) async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status,
            headers: parts.headers,
            bytes: axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec(),
        }
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).unwrap()
    }

    /// The body as JSON, if the status is this one.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        if self.bytes.is_empty() {
            Value::Null
        } else {
            self.json()
        }
    }

    /// The `detail` of a problem with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> String {
        let problem_type = match Door::used() {
            Door::Messages => "application/msgpack",
            Door::Router | Door::Socket => "application/problem+json",
        };
        assert_eq!(
            self.headers[header::CONTENT_TYPE],
            problem_type,
            "{}",
            self.text()
        );
        let problem = self.expect(status);
        assert_eq!(problem["code"], code, "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}
