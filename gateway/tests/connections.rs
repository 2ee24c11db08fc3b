//! What callers may do on one connection: ask again and again, ask ahead, send slowly, send something else, be refused,
//! and stay when the gateway stops.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what it shares")]
#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use axum::serve::Listener;
use futures_util::FutureExt as _;
use gateway::admission::Occupancy;
use gateway::connections;
use gateway::gateway::{FixedBounds, Options};
use gateway::http::answers::Answers;
use gateway::http::arrivals::Arrivals;
use gateway::listeners::{Address, ReservedAddress};
use serde_json::{Value, json};
use stage::{Stage, changing, named, reading};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::faults::Fault;
use support::{Reply, until};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, Join,
    ReadHalf, SimplexStream, WriteHalf,
};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A gateway that listens.
struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Server {
    async fn of(stage: &Stage) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, told) = oneshot::channel();
        let stopped = async move { told.await.unwrap() };
        let ended = tokio::spawn(connections::serve(listener, stage.app.clone(), stopped));
        Self { address, stop, ended }
    }

    async fn connect(&self) -> Connection {
        Connection(TcpStream::connect(self.address).await.unwrap())
    }
}

struct Connection(TcpStream);

impl Connection {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    async fn exchange(&mut self, text: &str) -> Reply {
        self.send(text).await;
        self.receive().await.unwrap()
    }

    /// The next response; `None` if the connection is over.
    async fn receive(&mut self) -> Option<Reply> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.0.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) if head.is_empty() => return None,
                Err(error) => panic!("{error} in the middle of a head"),
            }
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut reply = Reply {
            status: status[..3].parse().unwrap(),
            headers: headers.collect(),
            bytes: Vec::new(),
        };
        let length = reply.headers["content-length"].to_str().unwrap();
        reply.bytes = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut reply.bytes).await.unwrap();
        Some(reply)
    }
}

/// A request with this ask, and with these lines in its head.
fn written(stage: &Stage, ask: &Value, lines: &str) -> String {
    let (token, body) = (&stage.agent.token, ask.to_string());
    format!(
        "POST /v1/authorize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn ask(number: usize) -> Value {
    named(reading(), &format!("call-{number}"))
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn a_connection_takes_one_ask_after_another() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    for number in 0..3 {
        let reply = connection.exchange(&written(&stage, &ask(number), "")).await;
        assert_eq!(reply.expect(200)["decision"], "allow");
        assert!(reply.headers.contains_key("x-request-id"));
        assert_eq!(reply.headers["content-type"], "application/json");
        assert_eq!(reply.headers["date"], "Sat, 31 Jan 2026 09:30:00 GMT");
    }
    let wrong = connection
        .exchange(&written(&stage, &Value::Null, "X-Request-Id: mine\r\n"))
        .await;
    wrong.problem(400, "invalid_field");
    assert_eq!(wrong.headers["x-request-id"], "mine");
    connection
        .exchange(&written(&stage, &ask(3), ""))
        .await
        .expect(200);
    assert_eq!(stage.count("decision").await, 4);
    stage.assert_sound().await;
}

#[tokio::test]
async fn asks_that_are_sent_ahead_are_answered_in_their_order() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    let asks: Vec<_> = (0..20).map(|number| written(&stage, &ask(number), "")).collect();
    connection.send(&asks.concat()).await;
    let mut ids = Vec::new();
    for _ in &asks {
        let answer = connection.receive().await.unwrap().expect(200);
        ids.push(answer["decision_id"].as_str().unwrap().to_owned());
    }
    // What is asked again has the same answer again.
    for (number, id) in ids.iter().enumerate() {
        let again = connection.exchange(&written(&stage, &ask(number), "")).await;
        assert_eq!(again.expect(200)["decision_id"], *id);
    }
    assert_eq!(stage.count("decision").await, 20);
}

#[tokio::test]
async fn an_ask_may_come_in_pieces() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    let text = written(&stage, &ask(1), "") + &written(&stage, &ask(2), "");
    for piece in text.as_bytes().chunks(97) {
        connection.0.write_all(piece).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for _ in 0..2 {
        connection.receive().await.unwrap().expect(200);
    }
    // No place is taken by what has not come.
    connection.send(&text[..200]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(stage.gateway.admission.occupancy().taken, 0);
}

/// Of a body in chunks the end is read later than the rest, though all of it has come.
#[tokio::test]
async fn bodies_in_chunks_that_have_come_need_no_room() {
    let options = Options {
        arrivals: Arrivals::new(4 << 20),
        body_bytes_max: 4 << 20,
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    let mut connections = Vec::new();
    for _ in 0..16 {
        connections.push(server.connect().await);
    }
    let body = reading().to_string();
    let head = written(&stage, &reading(), "");
    let (head, _) = head.split_once("Content-Length").unwrap();
    let text = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    for connection in &mut connections {
        connection.send(&text).await;
    }
    for connection in &mut connections {
        connection.receive().await.unwrap().expect(200);
    }
}

#[tokio::test]
async fn the_time_of_whoever_waits_begins_with_the_head() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let text = written(&stage, &ask(1), "X-Request-Timeout-Ms: 200\r\n");
    let (head, body) = text.split_at(text.find("\r\n\r\n").unwrap() + 4);
    let mut connection = server.connect().await;
    connection.send(head).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let late = connection.exchange(body).await;
    late.problem(503, "deadline_exceeded");
    assert_eq!(stage.count("decision").await, 0);
}

#[tokio::test]
async fn whatever_else_comes_is_answered_on_the_same_connection_and_so_are_asks_after_it() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    connection
        .exchange(&written(&stage, &ask(1), ""))
        .await
        .expect(200);
    assert_eq!(connection.exchange(HEALTH).await.text(), "ok\n");
    connection
        .exchange(&written(&stage, &ask(2), ""))
        .await
        .expect(200);
    // An ask and something else that are sent at once, in either order.
    let mut connection = server.connect().await;
    let ask_3 = written(&stage, &ask(3), "");
    connection.send(&[&*ask_3, HEALTH, &*ask_3].concat()).await;
    let answers = [
        connection.receive().await,
        connection.receive().await,
        connection.receive().await,
    ];
    let [first, health, again] = answers.map(Option::unwrap);
    assert_eq!(first.expect(200)["decision_id"], again.expect(200)["decision_id"]);
    assert_eq!(health.text(), "ok\n");
    assert_eq!(stage.count("decision").await, 3);
}

#[tokio::test]
async fn a_body_in_chunks_and_a_long_one_are_read_like_any_other() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let (token, body) = (&stage.agent.token, ask(1).to_string());
    let (first, second) = body.split_at(10);
    let chunked = format!(
        "POST /v1/authorize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    let first = server.connect().await.exchange(&chunked).await.expect(200);
    // Space between the parts of a body says nothing.
    let long = format!("{body}{}", " ".repeat(50_000));
    let long = format!(
        "POST /v1/authorize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{long}",
        long.len()
    );
    let mut connection = server.connect().await;
    let second = connection.exchange(&long).await.expect(200);
    assert_eq!(first["decision_id"], second["decision_id"]);
}

/// A proxy writes it so where it learns of the end of a body after its head.
#[tokio::test]
async fn a_body_that_may_be_left_out_may_be_left_out_in_chunks() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let budget = json!({"scope": {}, "unit": "CREDITS", "allocated": 100});
    let budget = stage.admin("POST", "/v1/budgets", &budget).await.expect(201);
    let budget = format!("/v1/budgets/{}", budget["id"].as_str().unwrap());
    let send = async |path: &str, lines: &str, body: &str| {
        let (operator, tenant) = (&stage.operator, stage.tenant);
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {operator}\r\nCountersign-Tenant: {tenant}\r\n{lines}Transfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n"
        );
        server.connect().await.exchange(&text).await
    };
    let (freeze, unfreeze) = (format!("{budget}/freeze"), format!("{budget}/unfreeze"));
    let tokens = format!("/v1/agents/{}/tokens", stage.agent.id);
    let json = "Content-Type: application/json\r\n";
    send(&freeze, "", "").await.expect(200);
    send(&unfreeze, json, "").await.expect(200);
    send(&tokens, "", "").await.expect(201);
    send(&tokens, json, "").await.expect(201);
    // What is not left out says what it is.
    for path in [&freeze, &tokens] {
        let refused = send(path, "", "2\r\n{}\r\n").await;
        refused.problem(415, "unsupported_media_type");
    }
}

/// The head of a request whose body comes in chunks, or never.
fn begun(request: &str, credential: &str) -> String {
    format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {credential}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let options = Options {
        bounds: FixedBounds {
            body_time_max: Duration::from_millis(100),
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    for (request, credential) in [
        ("POST /v1/authorize", &stage.agent.token),
        ("POST /v1/authorize/batch", &stage.agent.token),
        ("POST /v1/tenants", &stage.operator),
    ] {
        let mut connection = server.connect().await;
        connection.send(&begun(request, credential)).await;
        let late = connection.receive().await.unwrap();
        late.problem(408, "request_timeout");
        assert_eq!(late.headers["connection"], "close", "{request}");
        assert!(connection.receive().await.is_none(), "{request}");
    }
}

#[tokio::test]
async fn a_body_with_policies_has_sixteen_times_as_long_however_long_others_may_be() {
    for body_bytes_max in [64 << 10, 8 << 20] {
        let options = Options {
            body_bytes_max,
            bounds: FixedBounds {
                body_time_max: Duration::from_millis(63),
                ..FixedBounds::default()
            },
            ..Options::default()
        };
        let stage = Stage::set_with(options).await;
        let server = Server::of(&stage).await;
        let mut connection = server.connect().await;
        let credential = format!("{}\r\nCountersign-Tenant: {}", stage.operator, stage.tenant);
        connection
            .send(&begun("POST /v1/policies/validate", &credential))
            .await;
        let late = connection.receive().await.unwrap();
        let detail = late.problem(408, "request_timeout");
        assert_eq!(detail, "a body comes within 1 seconds", "{body_bytes_max}");
    }
}

/// The head of a request whose body has so many bytes.
fn announced(request: &str, credential: &str, length: usize) -> String {
    format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {credential}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn who_is_refused_before_its_body_has_come_is_told_that_the_connection_ends() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let (agent, operator) = (&*stage.agent.token, &*stage.operator);
    for (request, credential, length, status, code) in [
        ("POST /v1/authorize", "nobody", 100_000, 401, "invalid_token"),
        ("POST /v1/authorize", operator, 100_000, 403, "forbidden"),
        ("POST /v1/authorize", agent, 300_000, 413, "body_too_large"),
        ("POST /v1/nowhere", agent, 10, 404, "no_such_route"),
    ] {
        let mut connection = server.connect().await;
        let head = announced(request, credential, length);
        let refused = connection.exchange(&(head + "{")).await;
        refused.problem(status, code);
        assert_eq!(refused.headers["connection"], "close", "{code}");
        assert!(connection.receive().await.is_none(), "{code}");
    }
    // A body that breaks off was read as far as it came, and is not over either.
    let mut connection = server.connect().await;
    let broken = begun("POST /v1/authorize", agent) + "zz\r\n";
    let refused = connection.exchange(&broken).await;
    refused.problem(400, "malformed_json");
    assert_eq!(refused.headers["connection"], "close");
    assert_eq!(stage.count("decision").await, 0);
}

/// Whether a caller that was refused while it sends its body, in pieces, can send all of it and then has the refusal.
async fn is_told_after_sending(server: &Server) -> bool {
    const PIECES: usize = 10;
    let piece = " ".repeat(20_000);
    let mut connection = server.connect().await;
    let head = announced("POST /v1/authorize", "nobody", PIECES * piece.len());
    connection.send(&head).await;
    connection.0.readable().await.unwrap();
    for _ in 0..PIECES {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if connection.0.write_all(piece.as_bytes()).await.is_err() {
            return false;
        }
    }
    let Some(refused) = connection.receive().await else {
        return false;
    };
    refused.problem(401, "invalid_token");
    assert_eq!(refused.headers["connection"], "close");
    assert!(connection.receive().await.is_none());
    true
}

#[tokio::test]
async fn who_is_refused_while_it_sends_its_body_can_send_the_rest_and_is_told() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    // A machine that stands still takes longer than the gateway reads on, and not every time.
    for _ in 0..3 {
        if is_told_after_sending(&server).await {
            return;
        }
    }
    panic!("the connection was reset before the refusal could be read");
}

#[tokio::test]
async fn who_is_refused_before_its_body_has_come_and_stays_loses_its_place_all_the_same() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    let head = announced("POST /v1/authorize", "nobody", 100_000);
    connection.exchange(&head).await.problem(401, "invalid_token");
    // All but the one that waits for whoever comes next.
    let free = stage.gateway.options.bounds.connections_max - 1;
    until(|| stage.gateway.connections.available_permits() == free).await;
}

#[tokio::test]
async fn who_is_refused_when_its_body_has_come_goes_on_on_the_same_connection() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    for (request, status) in [("POST /v1/tenants", 401), ("POST /v1/nowhere", 404)] {
        let in_chunks = begun(request, "nobody") + "2\r\n{}\r\n0\r\n\r\n";
        for whole in [announced(request, "nobody", 2) + "{}", in_chunks] {
            let refused = connection.exchange(&whole).await;
            assert_eq!(refused.status, status, "{whole}");
            assert!(!refused.headers.contains_key("connection"), "{whole}");
        }
    }
    connection
        .exchange(&written(&stage, &ask(0), ""))
        .await
        .expect(200);
    // One that is read in several pieces.
    let (mut requests, answers) = pipe(&stage, 1 << 20, 4096);
    let long = announced("POST /v1/tenants", "nobody", 40_000) + &" ".repeat(40_000);
    requests.write_all((long + HEALTH).as_bytes()).await.unwrap();
    let mut lines = BufReader::new(answers).lines();
    while lines.next_line().await.unwrap().unwrap() != "ok" {}
}

#[tokio::test]
async fn a_request_that_does_not_go_on_is_not_waited_for() {
    let options = Options {
        bounds: FixedBounds {
            ask_time_max: Duration::from_millis(50),
            head_time_max: Duration::from_millis(50),
            body_time_max: Duration::from_millis(50),
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    let whole = written(&stage, &ask(0), "");
    let head_end = whole.find("\r\n\r\n").unwrap() + 4;
    for begun in [
        "POST /v1/autho",
        "GET /healthz HTTP/1.1\r\nHo",
        &whole[..head_end - 2],
    ] {
        let mut connection = server.connect().await;
        connection.send(begun).await;
        assert!(connection.receive().await.is_none(), "{begun}");
    }
    let mut connection = server.connect().await;
    connection.send(&whole[..=head_end]).await;
    let late = connection.receive().await.unwrap();
    late.problem(408, "request_timeout");
    assert!(connection.receive().await.is_none());
    assert_eq!(stage.count("decision").await, 0);
}

/// Options by which a head may take so long.
fn with_head_time(millis: u64) -> Options {
    Options {
        bounds: FixedBounds {
            head_time_max: Duration::from_millis(millis),
            ..FixedBounds::default()
        },
        ..Options::default()
    }
}

#[tokio::test]
async fn who_is_silent_is_kept_for_longer_than_a_head_may_take_and_not_for_ever() {
    let stage = Stage::set_with(with_head_time(50)).await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    for number in 0..3 {
        assert_eq!(connection.exchange(HEALTH).await.status, 200);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let asked = connection.exchange(&written(&stage, &ask(number), "")).await;
        assert_eq!(asked.status, 200);
    }
    let options = Options {
        bounds: FixedBounds {
            silence_max: Duration::from_millis(100),
            ..with_head_time(50).bounds
        },
        ..with_head_time(50)
    };
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    assert_eq!(connection.exchange(HEALTH).await.status, 200);
    assert!(connection.receive().await.is_none());
}

#[tokio::test]
async fn a_head_that_begins_behind_another_request_is_not_waited_for_either() {
    let stage = Stage::set_with(with_head_time(50)).await;
    let server = Server::of(&stage).await;
    let begun = &HEALTH[..HEALTH.len() - 2];
    let mut connection = server.connect().await;
    // At once, so that hyper has read it before it waits for it.
    connection.send(&format!("{HEALTH}{begun}")).await;
    assert_eq!(connection.receive().await.unwrap().status, 200);
    assert!(connection.receive().await.is_none());
    // When nobody expects it any more.
    let mut connection = server.connect().await;
    assert_eq!(connection.exchange(HEALTH).await.status, 200);
    tokio::time::sleep(Duration::from_millis(200)).await;
    connection.send(begun).await;
    assert!(connection.receive().await.is_none());
}

/// Some clients send one behind a body, and none of them has begun to ask with it.
#[tokio::test]
async fn who_sends_an_empty_line_behind_a_request_is_silent() {
    let stage = Stage::set_with(with_head_time(50)).await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    // At once, and when nobody expects it any more.
    let ahead = format!("{HEALTH}\r\n");
    assert_eq!(connection.exchange(&ahead).await.status, 200);
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        connection.send("\r\n").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(connection.exchange(HEALTH).await.status, 200);
    }
}

#[tokio::test]
async fn a_head_has_its_time_however_late_it_has_begun() {
    let stage = Stage::set_with(with_head_time(5_000)).await;
    let server = Server::of(&stage).await;
    let (begun, rest) = HEALTH.split_at(HEALTH.len() - 2);
    let mut connection = server.connect().await;
    connection.send(&format!("{HEALTH}{begun}")).await;
    assert_eq!(connection.receive().await.unwrap().status, 200);
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    assert_eq!(connection.exchange(rest).await.status, 200);
}

/// Hyper is not left with all that it has read into then, so the connection is given to another one.
#[tokio::test]
async fn who_goes_on_more_than_a_second_after_a_long_head_is_answered() {
    const LONGER: Duration = Duration::from_millis(1_500);
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let long = padded(HEALTH, 31 * 1024);
    let (begun, rest) = HEALTH.split_at(HEALTH.len() - 2);
    let mut connection = server.connect().await;
    assert_eq!(connection.exchange(&long).await.status, 200);
    tokio::time::sleep(LONGER).await;
    assert_eq!(connection.exchange(&format!("{long}{begun}")).await.status, 200);
    tokio::time::sleep(LONGER).await;
    assert_eq!(connection.exchange(rest).await.status, 200);
}

#[tokio::test]
async fn who_takes_an_answer_slowly_has_all_of_it_and_is_answered_further() {
    let stage = Stage::set_with(with_head_time(50)).await;
    let (mut requests, answers) = pipe(&stage, 4096, 1024);
    let long = HEALTH.replace("/healthz", "/openapi.json");
    requests.write_all(long.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    requests.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(answers).lines();
    while lines.next_line().await.unwrap().unwrap() != "ok" {}
}

#[tokio::test]
async fn a_head_that_is_too_long_is_not_kept() {
    // Longer than a machine that stands still takes to read it.
    let options = Options {
        bounds: FixedBounds {
            ask_time_max: Duration::from_secs(20),
            head_time_max: Duration::from_secs(20),
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    let many: Vec<_> = (0..64)
        .map(|number| format!("X-{number}: {}\r\n", "a".repeat(120)))
        .collect();
    let asked = written(&stage, &ask(0), "");
    for request in [HEALTH, &*asked] {
        let (first, rest) = request.split_once("\r\n").unwrap();
        let mut connection = server.connect().await;
        let long = format!("{first}\r\n{}{rest}", many.concat());
        for _ in 0..2 {
            assert_eq!(connection.exchange(&long).await.status, 200, "{first}");
        }
        // No more than is read of it: what is left unread when a connection ends may take the answer with it.
        let mut endless = format!("{first}\r\nX-A: ");
        endless.push_str(&"a".repeat(32 * 1024 - endless.len()));
        let mut connection = server.connect().await;
        assert_eq!(connection.exchange(&endless).await.status, 431, "{first}");
        assert!(connection.receive().await.is_none(), "{first}");
    }
    assert_eq!(stage.count("decision").await, 1);
}

/// How long after the head of an ask its body was given up. The gateway has the head first, and then, while it waits,
/// `pause` later its end.
async fn given_up_after(options: Options, pause: Duration) -> Duration {
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    let whole = written(&stage, &ask(0), "");
    let head_end = whole.find("\r\n\r\n").unwrap() + 4;
    let mut connection = server.connect().await;
    connection.send(&whole[..head_end - 2]).await;
    tokio::time::sleep(pause).await;
    connection.send(&whole[head_end - 2..=head_end]).await;
    let begin = Instant::now();
    let late = connection.receive().await.unwrap();
    late.problem(408, "request_timeout");
    assert_eq!(late.headers["connection"], "close");
    assert!(connection.receive().await.is_none());
    begin.elapsed()
}

/// Fails unless it is given up when it should be. A machine that stands still makes it later, and not every time;
/// whatever is wrong is wrong by a second or more each time.
async fn assert_given_up_after(ask_time_max: u64, pause: u64, expected: u64) {
    let options = Options {
        bounds: FixedBounds {
            ask_time_max: Duration::from_millis(ask_time_max),
            body_time_max: Duration::from_secs(2),
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let least = Duration::from_millis(expected - 100);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let after = given_up_after(options.clone(), Duration::from_millis(pause)).await;
        assert!(after >= least, "{expected}: {after:?}");
        if after < least + Duration::from_millis(900) {
            return;
        }
        seen.push(after);
    }
    panic!("{expected}: {seen:?}");
}

#[tokio::test]
async fn a_body_has_the_same_time_wherever_it_is_waited_for() {
    // Nearly all of it, half of it, and less than nothing is left for hyper. Then half of what is waited for here was
    // for the head.
    let cases = [
        (1, 0, 2_000),
        (1_000, 0, 2_000),
        (3_000, 0, 3_000),
        (2_000, 1_000, 2_000),
    ];
    let waits = cases.map(|(ask_time_max, pause, expected)| {
        tokio::spawn(assert_given_up_after(ask_time_max, pause, expected))
    });
    for wait in waits {
        wait.await.unwrap();
    }
}

#[tokio::test]
async fn a_body_that_comes_after_all_is_answered_wherever_it_was_waited_for() {
    let options = Options {
        bounds: FixedBounds {
            ask_time_max: Duration::from_millis(50),
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    let whole = written(&stage, &ask(0), "");
    let head_end = whole.find("\r\n\r\n").unwrap() + 4;
    let mut connection = server.connect().await;
    // The second one is waited for by the same as the first, and has its own time.
    for _ in 0..2 {
        connection.send(&whole[..=head_end]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        connection.exchange(&whole[head_end + 1..]).await.expect(200);
    }
    assert_eq!(stage.count("decision").await, 1);
}

#[tokio::test]
async fn a_header_that_decides_is_refused_if_it_comes_twice() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let (token, tenant) = (&stage.agent.token, &stage.tenant);
    for again in [
        format!("Authorization: Bearer {token}"),
        "authorization: Bearer nobody".to_owned(),
        "host: elsewhere".to_owned(),
        format!("Countersign-Tenant: {tenant}\r\nCountersign-Tenant: tnt_1"),
        "Idempotency-Key: a\r\nidempotency-key: b".to_owned(),
        "X-Request-Timeout-Ms: 500\r\nX-Request-Timeout-Ms: 501".to_owned(),
    ] {
        let plain = written(&stage, &ask(0), &format!("{again}\r\n"));
        // What begins so is read by somebody else.
        let handed_on = plain.replacen(
            "Host: localhost\r\n",
            "Host: localhost\r\nExpect: 100-continue\r\n",
            1,
        );
        let batch = plain.replacen("/v1/authorize ", "/v1/authorize/batch ", 1);
        let read = format!(
            "GET /v1/balances HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{again}\r\n\r\n"
        );
        for request in [plain, handed_on, batch, read] {
            let reply = server.connect().await.exchange(&request).await;
            let detail = reply.problem(400, "invalid_parameter");
            assert!(detail.ends_with("is there more than once; send one"), "{detail}");
        }
    }
    let configuration =
        "GET /.well-known/authzen-configuration HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n";
    let reply = server.connect().await.exchange(configuration).await;
    reply.problem(400, "invalid_parameter");
    assert_eq!(stage.count("decision").await, 0);
}

#[tokio::test]
async fn there_are_no_more_connections_than_places_and_whoever_comes_waits_for_one() {
    let options = Options {
        bounds: FixedBounds {
            connections_max: 2,
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let server = Server::of(&stage).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for connection in [&mut first, &mut second] {
        connection
            .exchange(&written(&stage, &ask(0), ""))
            .await
            .expect(200);
    }
    let mut third = server.connect().await;
    third.send(&written(&stage, &ask(1), "")).await;
    let early = tokio::time::timeout(Duration::from_millis(100), third.receive());
    assert!(early.await.is_err());
    drop(first);
    third.receive().await.unwrap().expect(200);
}

#[tokio::test]
async fn what_is_no_http_is_told_so() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    for text in [
        "POST /v1/authorize HTTP/1.1\r\nno colon\r\n\r\n",
        "\u{16}\u{3}\u{1} is TLS\r\n\r\n",
        "POST /v1/authorize HTTP/1.1\r\nHost: a\r\nContent-Length: two\r\n\r\n{}",
    ] {
        let mut connection = server.connect().await;
        assert_eq!(connection.exchange(text).await.status, 400, "{text}");
        assert!(connection.receive().await.is_none());
    }
    assert_eq!(stage.count("decision").await, 0);
}

/// It would be read as what it was packed into, and what stands before the gateway may see its end elsewhere.
#[tokio::test]
async fn a_body_in_another_transfer_coding_than_chunks_is_refused_and_the_connection_ends() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let in_chunks = in_a_chunk(&written(&stage, &ask(1), ""));
    let coded = |coding: &str| in_chunks.replace("Encoding: chunked", &format!("Encoding: {coding}"));
    for coding in [
        "gzip, chunked",
        "identity, chunked",
        "Chunked, chunked",
        "gzip\r\nTransfer-Encoding: chunked",
        "chunked\r\nTransfer-Encoding: chunked",
    ] {
        let mut connection = server.connect().await;
        let refused = connection.exchange(&coded(coding)).await;
        assert_eq!(refused.status, 501, "{coding}");
        assert_eq!(refused.headers["connection"], "close", "{coding}");
        assert!(connection.receive().await.is_none(), "{coding}");
    }
    // Nobody knows where the body ends, so that this is no HTTP.
    for coding in ["gzip", "identity", "chunked, gzip"] {
        let mut connection = server.connect().await;
        let refused = connection.exchange(&coded(coding)).await;
        assert_eq!(refused.status, 400, "{coding}");
        assert!(connection.receive().await.is_none(), "{coding}");
    }
    assert_eq!(stage.count("decision").await, 0);
    let mut connection = server.connect().await;
    connection.exchange(&coded("\t Chunked ")).await.expect(200);
}

#[tokio::test]
async fn a_caller_that_wants_no_more_is_sent_away_with_its_answer() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    let last = connection
        .exchange(&written(&stage, &ask(1), "Connection: close\r\n"))
        .await;
    last.expect(200);
    assert_eq!(last.headers["connection"], "close");
    assert!(connection.receive().await.is_none());
}

#[tokio::test]
async fn who_is_silent_is_let_go_when_the_gateway_stops_and_what_has_begun_is_answered() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let (mut silent, mut handed_on, mut waiting, mut half) = (
        server.connect().await,
        server.connect().await,
        server.connect().await,
        server.connect().await,
    );
    silent.exchange(&written(&stage, &ask(1), "")).await.expect(200);
    assert_eq!(handed_on.exchange(HEALTH).await.text(), "ok\n");
    stage.faults.plan([Fault::Hold]);
    waiting.send(&written(&stage, &ask(2), "")).await;
    let text = written(&stage, &ask(3), "");
    half.send(&text[..100]).await;
    // All four were let in, and a place waits for whoever comes next.
    let left = stage.gateway.options.bounds.connections_max - 5;
    until(|| stage.faults.held() == 1 && stage.gateway.connections.available_permits() == left).await;
    // What has come of the half is read soon.
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop.send(()).unwrap();
    assert!(silent.receive().await.is_none());
    assert!(handed_on.receive().await.is_none());
    assert!(!server.ended.is_finished());
    stage.faults.let_go();
    half.send(&text[100..]).await;
    for connection in [&mut waiting, &mut half] {
        let answer = connection.receive().await.unwrap();
        answer.expect(200);
        assert_eq!(answer.headers["connection"], "close");
        assert!(connection.receive().await.is_none());
    }
    server.ended.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(stage.count("decision").await, 3);
}

#[tokio::test]
async fn who_is_refused_while_the_gateway_stops_is_told_that_the_connection_ends() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let flood = flood(&stage).await;
    let (mut half, mut silent) = (server.connect().await, server.connect().await);
    let text = written(&stage, &ask(1), "");
    for connection in [&mut half, &mut silent] {
        let refused = connection.exchange(&text).await;
        refused.problem(503, "overloaded");
        assert!(!refused.headers.contains_key("connection"));
    }
    half.send(&text[..100]).await;
    // What has come of the half is read soon.
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop.send(()).unwrap();
    // Whoever is silent is let go when the gateway has heard it.
    assert!(silent.receive().await.is_none());
    half.send(&text[100..]).await;
    let refused = half.receive().await.unwrap();
    refused.problem(503, "overloaded");
    assert_eq!(refused.headers["connection"], "close");
    assert!(half.receive().await.is_none());
    stage.faults.let_go();
    for ask in flood {
        ask.await.unwrap();
    }
    server.ended.await.unwrap();
}

/// A gateway with 16 places, of which its one tenant may have half.
async fn narrow() -> Arc<Stage> {
    let options = Options {
        bounds: FixedBounds {
            queue_max: 16,
            batch_max: 4,
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    Arc::new(Stage::set_with(options).await)
}

/// More asks than there are places, while a commit is held: some have one, and the others were refused. None was asked
/// before: what was answered waits for no commit.
async fn flood(stage: &Arc<Stage>) -> Vec<JoinHandle<Reply>> {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    stage.faults.plan([Fault::Hold]);
    let asks: Vec<_> = (0..64)
        .map(|_| {
            let number = ASKED.fetch_add(1, Ordering::Relaxed);
            let stage = Arc::clone(stage);
            tokio::spawn(async move { stage.ask(&named(changing(), &format!("flood-{number}"))).await })
        })
        .collect();
    let refused = || asks.iter().filter(|ask| ask.is_finished()).count();
    let taken = || stage.gateway.admission.occupancy().taken;
    until(|| stage.faults.held() == 1 && refused() + taken() == asks.len()).await;
    asks
}

/// A flood that is over. It was there for as long as it takes to be seen as one.
async fn be_flooded(stage: &Arc<Stage>) {
    let asks = flood(stage).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    stage.faults.let_go();
    for ask in asks {
        ask.await.unwrap();
    }
}

/// What this metric says; 0 before it says anything.
fn counted(stage: &Stage, metric: &str) -> u64 {
    let metrics = stage.gateway.metrics.render(0, true);
    let value = metrics.lines().find_map(|line| line.strip_prefix(metric));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

/// How many asks were answered in the lane for floods.
fn answered_aside(stage: &Stage) -> u64 {
    counted(stage, "countersign_slow_lane_asks_total ")
}

/// A connection of a tenant that asked for more than there was for it a moment ago, and what it takes to be answered aside.
async fn of_flood(stage: &Arc<Stage>, server: &Server) -> Connection {
    of_flood_with(stage, server, "").await
}

/// A connection as of `of_flood`, with these lines in the head of each ask.
async fn of_flood_with(stage: &Arc<Stage>, server: &Server, lines: &str) -> Connection {
    let mut connection = server.connect().await;
    let text = written(stage, &ask(100), lines);
    for _ in 0..100 {
        be_flooded(stage).await;
        assert_eq!(connection.exchange(&text).await.status, 200);
        if answered_aside(stage) > 0 {
            return connection;
        }
    }
    panic!("nobody is answered aside");
}

#[tokio::test]
async fn asks_of_a_flood_are_answered_aside_one_after_another_and_then_whatever_else_comes() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let mut connection = of_flood(&stage, &server).await;
    let ahead: String = (0..10).map(|number| written(&stage, &ask(number), "")).collect();
    connection.send(&(ahead + HEALTH)).await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        let answer = connection.receive().await.unwrap().expect(200);
        ids.push(answer["decision_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(connection.receive().await.unwrap().text(), "ok\n");
    for (number, id) in ids.iter().enumerate() {
        let again = connection.exchange(&written(&stage, &ask(number), "")).await;
        assert_eq!(again.expect(200)["decision_id"], *id);
    }
    assert_eq!(stage.gateway.admission.occupancy().taken, 0);
    stage.assert_sound().await;
}

/// Most clients say what they accept, and many name their requests.
#[tokio::test]
async fn asks_of_a_flood_are_answered_aside_whatever_their_heads_say() {
    for lines in [
        "Accept: */*\r\n",
        "X-Request-Id: mine\r\n",
        "Accept: application/msgpack, */*\r\n",
        "X-Request-Timeout-Ms: 60000\r\n",
    ] {
        let stage = narrow().await;
        let server = Server::of(&stage).await;
        of_flood_with(&stage, &server, lines).await;
        stage.assert_sound().await;
    }
}

/// A connection on which something else came before is read by another server.
#[tokio::test]
async fn asks_of_a_flood_are_answered_aside_on_connections_of_other_requests_too() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    assert_eq!(connection.exchange(HEALTH).await.text(), "ok\n");
    let text = written(&stage, &ask(100), "");
    let mut rounds = 0;
    while answered_aside(&stage) == 0 {
        assert!(rounds < 100, "nobody is answered aside");
        rounds += 1;
        be_flooded(&stage).await;
        connection.exchange(&text).await.expect(200);
    }
    stage.assert_sound().await;
}

/// On a connection on which something else came before, too: beside it others have turns.
#[tokio::test]
async fn who_is_refused_again_and_again_waits_for_its_turn_on_every_connection() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let flood = flood(&stage).await;
    let mut connection = server.connect().await;
    assert_eq!(connection.exchange(HEALTH).await.text(), "ok\n");
    let text = written(&stage, &ask(1), "");
    assert_refused_in_turn(&stage, connection, &text, (503, "overloaded")).await;
    stage.faults.let_go();
    for ask in flood {
        ask.await.unwrap();
    }
}

/// Asserts that others have turns between asks like this one, of which many are sent ahead and refused so.
async fn assert_refused_in_turn(
    stage: &Stage,
    mut connection: Connection,
    ask: &str,
    (status, code): (u16, &'static str),
) {
    const ASKS: u64 = 100;
    let metric = format!("countersign_refusals_total{{code=\"{code}\"}}");
    let refused = || counted(stage, &metric);
    let before = refused();
    connection.send(&ask.repeat(ASKS.try_into().unwrap())).await;
    let taking = tokio::spawn(async move {
        for _ in 0..ASKS {
            connection.receive().await.unwrap().problem(status, code);
        }
    });
    let (mut last, mut most) = (before, 0);
    while last < before + ASKS {
        tokio::task::yield_now().await;
        let now = refused();
        most = most.max(now - last);
        last = now;
    }
    assert!(most <= 4, "{most} asks were {code} while nobody else had a turn");
    taking.await.unwrap();
}

/// It keeps others waiting as much as who finds no place.
#[tokio::test]
async fn who_is_refused_for_what_it_asks_or_how_often_waits_for_its_turn_too() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let quota = json!({"bucket": {"capacity": 1, "refill_per_second": 0}});
    let path = format!("/v1/agents/{}/quota", stage.agent.id);
    stage.admin("PUT", &path, &quota).await.expect(200);
    stage.ask(&ask(0)).await.expect(200);
    let limited = written(&stage, &ask(1), "");
    let wrong = written(&stage, &Value::Null, "");
    let nobodys = limited.replace(&stage.agent.token, "nobody");
    for (text, told) in [
        (limited, (429, "rate_limited")),
        (wrong, (400, "invalid_field")),
        (nobodys, (401, "invalid_token")),
    ] {
        let asks_only = server.connect().await;
        assert_refused_in_turn(&stage, asks_only, &text, told).await;
        let mut handed_on = server.connect().await;
        assert_eq!(handed_on.exchange(HEALTH).await.text(), "ok\n");
        assert_refused_in_turn(&stage, handed_on, &text, told).await;
    }
}

#[tokio::test]
async fn who_accepts_anything_is_refused_in_the_usual_words() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let flood = flood(&stage).await;
    let mut connection = server.connect().await;
    for lines in [
        "",
        "Accept: */*\r\n",
        "X-Request-Id: mine\r\n",
        "X-Request-Timeout-Ms: 60000\r\n",
    ] {
        for _ in 0..4 {
            let reply = connection.exchange(&written(&stage, &ask(1), lines)).await;
            reply.problem(503, "overloaded");
            let id = reply.headers["x-request-id"].to_str().unwrap();
            assert_eq!(id == "mine", lines.starts_with("X-Request-Id"), "{id}");
        }
    }
    let wrong = written(&stage, &ask(1), "X-Request-Timeout-Ms: soon\r\n");
    connection
        .exchange(&wrong)
        .await
        .problem(400, "invalid_parameter");
    stage.faults.let_go();
    for ask in flood {
        ask.await.unwrap();
    }
}

#[tokio::test]
async fn whoever_asks_ahead_at_the_local_door_lets_others_go_on() {
    const ASKS: u64 = 300;
    let stage = Stage::set().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.sock");
    let reserved = ReservedAddress::take(&Address::Unix(path.clone())).unwrap();
    let listener = reserved.listen(0o600).unwrap();
    let serving = tokio::spawn(listener.serve(stage.app.clone(), std::future::pending()));
    let (mut answers, mut asks) = UnixStream::connect(&path).await.unwrap().into_split();
    let taking = tokio::spawn(async move { tokio::io::copy(&mut answers, &mut tokio::io::sink()).await });
    let nobodys = "POST /v1/authorize HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    asks.write_all(nobodys.repeat(300).as_bytes()).await.unwrap();
    let refused = || counted(&stage, r#"countersign_refusals_total{code="invalid_token"}"#);
    let (mut before, mut most) = (0, 0);
    while before < ASKS {
        tokio::task::yield_now().await;
        let now = refused();
        most = most.max(now - before);
        before = now;
    }
    // What the runtime lets a task do before it lets others go on.
    assert!(
        most <= 130,
        "{most} asks were answered while nobody else had a turn"
    );
    serving.abort();
    taking.abort();
}

/// A dry run that takes two milliseconds for each policy, some more or less: the text is looked through again and again
/// for what is not in it.
async fn laborious(stage: &Stage, policies: u32) -> Value {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let action = json!({"name": "grind", "mutates_state": false, "risk": "low", "input_schema": schema});
    stage
        .admin("PUT", "/v1/tools/mill", &json!({"actions": [action]}))
        .await
        .expect(201);
    let policies = (0..policies).map(|number| {
        let looked_for = format!("{}{number}", "a".repeat(200));
        format!(
            r#"@id("p{number}") forbid (principal, action == Action::"mill/grind", resource)
                when {{ context.input has text && context.input.text like "*{looked_for}*" }};"#
        )
    });
    let policies = json!({"name": "mill", "cedar": policies.collect::<String>()});
    stage.admin("POST", "/v1/policies", &policies).await.expect(201);
    let mut ask = stage::asking("mill", "grind", "trusted_internal_unsigned");
    ask["tool_call"]["parameters"] = json!({"text": "a".repeat(9_000)});
    ask["mode"] = json!("dry_run");
    ask
}

/// The same request with its body in one chunk, which is not plainly an ask.
fn in_a_chunk(request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let (head, _) = head.rsplit_once("\r\n").unwrap();
    format!(
        "{head}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    )
}

#[tokio::test]
async fn whoever_asks_ahead_for_much_work_lets_others_go_on_after_each_ask() {
    const ASKS: usize = 12;
    let stage = Stage::set().await;
    let plain = written(&stage, &laborious(&stage, 1).await, "");
    for request in [plain.clone(), in_a_chunk(&plain)] {
        let (mut requests, mut answers) = pipe(&stage, 1 << 20, 1 << 20);
        let ahead = request.repeat(ASKS);
        // The first ask is waited for, and all others are there behind it.
        requests.write_all(&ahead.as_bytes()[..1]).await.unwrap();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        requests.write_all(&ahead.as_bytes()[1..]).await.unwrap();
        let (mut come, mut before, mut most) = (String::new(), 0, 0);
        while before < ASKS {
            tokio::task::yield_now().await;
            let mut buffer = vec![0; 1 << 20];
            let read = answers.read(&mut buffer).now_or_never().map_or(0, Result::unwrap);
            come += std::str::from_utf8(&buffer[..read]).unwrap();
            let now = come.matches("HTTP/1.1 200").count();
            most = most.max(now - before);
            before = now;
        }
        // Hyper sends an answer with the next one.
        assert!(
            most <= 2,
            "{most} asks were answered while nobody else had a turn"
        );
    }
}

#[tokio::test]
async fn who_asks_for_what_takes_long_waits_for_others_who_do_and_nobody_else_waits() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let (long, short) = (laborious(&stage, 4).await, ask(1));
    let taking_turns = stage.gateway.long_asks.acquire(stage.tenant).await.unwrap();
    let mut waiting = server.connect().await;
    waiting.send(&written(&stage, &long, "")).await;
    let batch = json!({"asks": [long, short]});
    let asked = Arc::new(stage);
    let in_batch = tokio::spawn({
        let stage = Arc::clone(&asked);
        async move {
            stage
                .post("/v1/authorize/batch", &stage.agent.token, &batch)
                .await
        }
    });
    let stage = asked;
    let mut other = server.connect().await;
    for _ in 0..10 {
        other.exchange(&written(&stage, &short, "")).await.expect(200);
    }
    assert!(waiting.receive().now_or_never().is_none());
    assert_eq!(counted(&stage, "countersign_long_asks_total "), 0);
    // Whoever does not wait that long is told so.
    let hurried = written(&stage, &long, "X-Request-Timeout-Ms: 50\r\n");
    let refused = server.connect().await.exchange(&hurried).await;
    refused.problem(503, "deadline_exceeded");
    drop(taking_turns);
    let answer = waiting.receive().await.unwrap().expect(200);
    assert_eq!(
        (&answer["decision"], &answer["reason_code"]),
        (&json!("allow"), &json!("policy_permits"))
    );
    let results = in_batch.await.unwrap().expect(200);
    assert_eq!(results["answers"][0]["decision"], "allow");
    assert_eq!(counted(&stage, "countersign_long_asks_total "), 2);
}

#[tokio::test]
async fn an_ask_takes_long_also_for_many_plain_policies_in_many_cases() {
    let stage = Stage::set().await;
    let policies = (0..200).map(|number| {
        format!(
            r#"@id("p{number}") forbid (principal, action == Action::"github/get_file", resource)
                when {{ context.trust.rank > 9 }};"#
        )
    });
    let policies = json!({"name": "many", "cedar": policies.collect::<String>()});
    stage.admin("POST", "/v1/policies", &policies).await.expect(201);
    let mut act = Value::Null;
    for number in 0..8 {
        let name = format!("delegator-{number}");
        stage.hire(json!({"name": name, "tools": "all"})).await;
        act = if act.is_null() {
            json!({"sub": name})
        } else {
            json!({"sub": name, "act": act})
        };
    }
    let counted = || counted(&stage, "countersign_long_asks_total ");
    stage.ask(&ask(1)).await.expect(200);
    assert_eq!(counted(), 0);
    let mut in_many_names = ask(2);
    in_many_names["act"] = act;
    in_many_names["user"] = json!({"id": "ada"});
    in_many_names["tool_call"]["mutates_state"] = json!(true);
    stage.ask(&in_many_names).await.expect(200);
    assert_eq!(counted(), 1);
}

#[tokio::test]
async fn a_tenant_that_takes_too_much_of_the_workers_is_held_to_short_asks_there() {
    let stage = Stage::set().await;
    let other = stage.tenancy("quiet").await;
    let server = Server::of(&stage).await;
    let mut connection = server.connect().await;
    let counted = || counted(&stage, "countersign_long_asks_total ");
    let work = written(&stage, &laborious(&stage, 1).await, "");
    connection.exchange(&work).await.expect(200);
    assert_eq!(counted(), 0);
    let take_much = || async {
        let steps = &stage.gateway.worker_steps;
        steps.charge(stage.tenant, u64::MAX, Instant::now());
        let others = support::tenancy::reading();
        let answer = stage.post("/v1/authorize", &other.token, &others).await;
        answer.expect(200);
    };
    // It is held for a second, which may be over when its ask has come.
    while counted() == 0 {
        take_much().await;
        connection.exchange(&work).await.expect(200);
    }
    let before = counted();
    take_much().await;
    let short = written(&stage, &ask(1), "");
    connection.exchange(&short).await.expect(200);
    assert_eq!(counted(), before);
}

/// Where there is another thread to take the place of the one that judges.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_takes_long_is_answered_like_everything_else_where_others_go_on_meanwhile() {
    let stage = Stage::set().await;
    let server = Server::of(&stage).await;
    let (long, short) = (laborious(&stage, 4).await, ask(1));
    let ahead = written(&stage, &long, "") + &written(&stage, &short, "");
    let mut asking = server.connect().await;
    asking.send(&ahead.repeat(3)).await;
    for _ in 0..3 {
        for is_recorded in [false, true] {
            let answer = asking.receive().await.unwrap().expect(200);
            assert_eq!(
                (&answer["decision"], answer["receipt"].is_object()),
                (&json!("allow"), is_recorded)
            );
        }
    }
    assert_eq!(counted(&stage, "countersign_long_asks_total "), 3);
    stage.assert_sound().await;
}

/// The gateway's end of a connection of which both ways hold a known number of bytes.
type Pipe = Join<ReadHalf<SimplexStream>, WriteHalf<SimplexStream>>;

/// A door through which one caller comes.
struct OneCaller<S>(Option<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Listener for OneCaller<S> {
    type Io = S;
    type Addr = ();

    async fn accept(&mut self) -> (S, ()) {
        match self.0.take() {
            Some(pipe) => (pipe, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The caller's end: so many bytes of requests are on their way at most, and so many of answers.
fn pipe(
    stage: &Stage,
    requests_max: usize,
    answers_max: usize,
) -> (WriteHalf<SimplexStream>, ReadHalf<SimplexStream>) {
    let (asked, requests) = tokio::io::simplex(requests_max);
    let (answers, answered) = tokio::io::simplex(answers_max);
    let gateways_end: Pipe = tokio::io::join(asked, answered);
    let door = OneCaller(Some(gateways_end));
    let stop = std::future::pending();
    tokio::spawn(connections::serve(door, stage.app.clone(), stop));
    (requests, answers)
}

/// The same request, of so many bytes.
fn padded(request: &str, length: usize) -> String {
    let padding = "a".repeat(length - request.len() - "X-Pad: \r\n".len());
    request.replacen("\r\n", &format!("\r\nX-Pad: {padding}\r\n"), 1)
}

/// Answers without a body are made before the ones before them have left.
#[tokio::test]
async fn whoever_takes_no_answers_is_not_read_on_until_it_does() {
    const REQUESTS: usize = 5_000;
    // Nobody reads the body, whose end is a piece of its own.
    const HEAD: &str =
        "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let stage = Stage::set().await;
    let (mut requests, answers) = pipe(&stage, 4096, 4096);
    // None is read in two parts: of a body that nobody reads the rest is not waited for, and the connection ends.
    let ahead = padded(HEAD, 128).repeat(REQUESTS).into_bytes();
    let mut sent = 0;
    let patience = Duration::from_secs(1);
    while let Ok(more) = tokio::time::timeout(patience, requests.write(&ahead[sent..])).await {
        sent += more.unwrap();
        assert!(sent < 256 * 1024, "{sent} bytes are read and no answer is taken");
    }
    let rest = requests.write_all(&ahead[sent..]);
    let taking = async {
        let (mut lines, mut taken) = (BufReader::new(answers).lines(), 0);
        while taken < REQUESTS {
            let line = lines.next_line().await.unwrap().unwrap();
            taken += usize::from(line.starts_with("HTTP/1.1 200 "));
        }
    };
    let all = async { tokio::join!(rest, taking) };
    let (rest, ()) = tokio::time::timeout(Duration::from_mins(1), all).await.unwrap();
    rest.unwrap();
}

#[tokio::test]
async fn not_much_is_read_at_once_of_what_is_sent_ahead() {
    const REQUESTS: usize = 3_000;
    const LENGTH: usize = 1024;
    const ON_THE_WAY: usize = 1024 * 1024;
    let stage = Stage::set().await;
    let (mut requests, answers) = pipe(&stage, ON_THE_WAY, LENGTH);
    let sent = Arc::new(AtomicUsize::new(0));
    let sending = tokio::spawn({
        let sent = Arc::clone(&sent);
        async move {
            let ahead = padded(HEALTH, LENGTH).repeat(REQUESTS);
            let mut rest = ahead.as_bytes();
            while !rest.is_empty() {
                let more = requests.write(rest).await.unwrap();
                sent.fetch_add(more, Ordering::Relaxed);
                rest = &rest[more..];
            }
        }
    });
    let mut lines = BufReader::new(answers).lines();
    let (mut answered, mut most) = (0, 0);
    while answered < REQUESTS {
        if lines.next_line().await.unwrap().unwrap() == "ok" {
            answered += 1;
            most = most.max(sent.load(Ordering::Relaxed) - answered * LENGTH);
        }
    }
    sending.await.unwrap();
    // As much as a head may have, in a buffer that may be twice as long, and what is on its way back.
    assert!(most < ON_THE_WAY + 128 * 1024, "{most} bytes are not answered");
}

/// A caller that asks this and reads no more of the answer than its first line, and that line.
async fn first_line(stage: &Stage, request: &str) -> (String, BufReader<DuplexStream>) {
    let (mut caller, gateways_end) = tokio::io::duplex(1024);
    let door = OneCaller(Some(gateways_end));
    let stop = std::future::pending();
    tokio::spawn(connections::serve(door, stage.app.clone(), stop));
    caller.write_all(request.as_bytes()).await.unwrap();
    let (mut line, mut caller) = (String::new(), BufReader::new(caller));
    caller.read_line(&mut line).await.unwrap();
    (line, caller)
}

#[tokio::test]
async fn answers_that_nobody_takes_have_room_together_and_who_takes_or_goes_gives_it_back() {
    const ASKS: usize = 100;
    const OK: &str = "HTTP/1.1 200 ";
    let stage = Stage::set_with(Options {
        answers: Answers::new(1 << 20),
        ..Options::default()
    })
    .await;
    let other = stage.tenancy("quiet").await;
    let asks = |ask: Value| -> Value {
        let named = |number: usize| named(ask.clone(), &format!("call-{number}"));
        json!({"asks": (0..ASKS).map(named).collect::<Vec<_>>()})
    };
    let batch = async |token: &str, ask: Value| {
        let reply = stage.post("/v1/authorize/batch", token, &asks(ask)).await;
        reply.expect(200);
    };
    batch(&stage.agent.token, reading()).await;
    batch(&other.token, support::tenancy::reading()).await;
    let list = |credential: &str| {
        format!(
            "GET /v1/decisions?limit={ASKS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {credential}\r\n\r\n"
        )
    };
    let own = list(&stage.agent.token);
    let mut held = Vec::new();
    let refused = loop {
        let (line, caller) = first_line(&stage, &own).await;
        if !line.starts_with(OK) {
            break line;
        }
        held.push(caller);
        assert!(held.len() < 32, "so many pages have room");
    };
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(held.len() > 1, "one page has half of the room");
    // Others have theirs, and the agent has answers that are short.
    let people = format!("{}\r\nCountersign-Tenant: {}", stage.operator, stage.tenant);
    for credential in [&people, &other.token] {
        let (line, _) = first_line(&stage, &list(credential)).await;
        assert!(line.starts_with(OK), "{line}");
    }
    stage.ask(&ask(1)).await.expect(200);
    // Whoever takes its answer makes room for one.
    let mut taken = held.pop().unwrap();
    let mut heading = String::new();
    while !heading.ends_with("\r\n\r\n") {
        taken.read_line(&mut heading).await.unwrap();
    }
    let lines = heading.lines().map(str::to_ascii_lowercase);
    let mut lengths = lines.filter_map(|line| Some(line.strip_prefix("content-length: ")?.parse().unwrap()));
    let mut page = vec![0; lengths.next().unwrap()];
    taken.read_exact(&mut page).await.unwrap();
    assert!(page.len() > 64 * 1024, "{} bytes are not much", page.len());
    let patience = Instant::now() + Duration::from_mins(1);
    loop {
        let (line, caller) = first_line(&stage, &own).await;
        if line.starts_with(OK) {
            held.push(caller);
            break;
        }
        assert!(Instant::now() < patience, "what was taken has its room still");
    }
    let (line, _) = first_line(&stage, &own).await;
    assert!(line.starts_with("HTTP/1.1 503 "), "{line}");
    // And so does whoever goes.
    drop(held);
    loop {
        let (line, _) = first_line(&stage, &own).await;
        if line.starts_with(OK) {
            break;
        }
        assert!(Instant::now() < patience, "who has gone has room still");
    }
}

#[tokio::test]
async fn another_tenant_is_not_answered_aside() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let other = stage.tenancy("quiet").await;
    let _flooding = of_flood(&stage, &server).await;
    let aside = answered_aside(&stage);
    let text = written(&stage, &support::tenancy::reading(), "").replace(&stage.agent.token, &other.token);
    server.connect().await.exchange(&text).await.expect(200);
    assert_eq!(answered_aside(&stage), aside);
}

#[tokio::test]
async fn what_is_answered_aside_when_the_gateway_stops_is_answered() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let mut connection = of_flood(&stage, &server).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        assert!(Instant::now() < deadline, "nobody is answered aside");
        be_flooded(&stage).await;
        let before = answered_aside(&stage);
        stage.faults.plan([Fault::Hold]);
        connection.send(&written(&stage, &changing(), "")).await;
        until(|| stage.faults.held() == 1).await;
        if answered_aside(&stage) > before {
            break;
        }
        stage.faults.let_go();
        connection.receive().await.unwrap().expect(200);
    }
    let mut silent = server.connect().await;
    server.stop.send(()).unwrap();
    // Whoever is silent is let go when the gateway has heard it.
    assert!(silent.receive().await.is_none());
    stage.faults.let_go();
    let answer = connection.receive().await.unwrap();
    answer.expect(200);
    assert_eq!(answer.headers["connection"], "close");
    assert!(connection.receive().await.is_none());
    server.ended.await.unwrap();
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_full_gateway_says_the_same_by_the_short_way_and_by_the_long_one() {
    let stage = narrow().await;
    let server = Server::of(&stage).await;
    let flood = flood(&stage).await;
    let all_taken = Occupancy { taken: 8, max: 16 };
    assert_eq!(stage.gateway.admission.occupancy(), all_taken);
    let mut connection = server.connect().await;
    // With an id of its own an ask goes the long way.
    let long = connection
        .exchange(&written(
            &stage,
            &ask(1),
            "X-Request-Id: req_0123456789abcdef\r\n",
        ))
        .await;
    // The short way, twice at once.
    let text = written(&stage, &ask(1), "");
    let first = connection.exchange(&text.repeat(2)).await;
    let second = connection.receive().await.unwrap();
    let problems = [long, first, second].map(|reply| {
        reply.problem(503, "overloaded");
        assert_eq!(reply.headers["retry-after"], "1");
        let id = reply.headers["x-request-id"].to_str().unwrap().to_owned();
        let text = reply.text();
        assert!(text.contains(&id), "{text}");
        let mut headers: Vec<_> = reply
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        headers.retain(|(name, _)| name != "x-request-id");
        headers.sort_by(|a, b| a.0.cmp(&b.0));
        (headers, text.replace(&id, "…"), id)
    });
    let [long, first, second] = &problems;
    assert_eq!((&long.0, &long.1), (&first.0, &first.1));
    assert_eq!((&long.0, &long.1), (&second.0, &second.1));
    assert_ne!(first.2, second.2);
    // Who may not ask is told that, and whoever is refused finds a place later.
    let stranger = text.replace(&stage.agent.token, "nobody");
    connection.exchange(&stranger).await.problem(401, "invalid_token");
    stage.faults.let_go();
    for ask in flood {
        ask.await.unwrap();
    }
    connection.exchange(&text).await.expect(200);
    stage.assert_sound().await;
}
