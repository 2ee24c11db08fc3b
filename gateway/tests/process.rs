//! The real program, over real HTTP, on its bad days: killed, full, locked, told to stop.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/process.rs"]
mod process;

use ledger::{SignatureKind, SigningKey};
use process::{Answer, Client, OPERATOR, PROGRAM, Place, SLOW_SYNC, Server, program};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use std::fs::{OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The demo's tenant and the token of its agent.
struct Demo {
    tenant: String,
    token: String,
}

impl Demo {
    fn of(place: &Place) -> Self {
        Self {
            tenant: place.printed("demo tenant: "),
            token: place.printed("demo agent token (shown once): "),
        }
    }
}

fn asking(request_id: &str) -> Value {
    json!({
        "request_id": request_id,
        "tool_call": {"tool": "github", "action": "create_issue", "parameters": {"title": "x".repeat(200)}},
        "context": {"source_trust": "trusted_internal_unsigned"},
    })
}

/// Callers who ask one thing after the other, until they are told to stop or nobody answers.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    answered: AtomicUsize,
}

impl Load {
    /// One of them. Returns what it was answered.
    fn ask(&self, server: &Server, demo: &Demo, name: &str) -> Vec<Answer> {
        let client = server.client();
        let mut answers = Vec::new();
        for n in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let ask = asking(&format!("{name}-{n}"));
            let Ok(answer) = client.post("/v1/authorize", &demo.token, &ask) else {
                break;
            };
            self.answered
                .fetch_add(usize::from(answer.status == 200), Ordering::Relaxed);
            answers.push(answer);
        }
        answers
    }

    /// Waits until all of them together have so many decisions, on a slow machine too: then they are in the middle of it.
    fn wait_for(&self, answers: usize) {
        let patience = Instant::now() + Duration::from_mins(1);
        while self.answered.load(Ordering::Relaxed) < answers {
            if Instant::now() > patience {
                // Whoever asks would go on for ever.
                self.stop();
                panic!("there is no load: {:?}", self.answered);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Fails unless every answer is in the ledger byte for byte, and the ledger verifies without a gap.
fn assert_recorded(client: &Client, demo: &Demo, answers: &[Answer]) {
    for answer in answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        let id = answer.json()["decision_id"].as_str().unwrap().to_owned();
        let receipt = client.read(&demo.tenant, &format!("/v1/receipts/{id}"));
        assert_eq!(receipt.bytes, answer.bytes);
    }
    assert_verifies(client, &demo.tenant);
}

/// Returns how many entries were verified: all there are.
fn assert_verifies(client: &Client, tenant: &str) -> u64 {
    let report = client.operate(tenant, "/v1/ledger/verify", &json!({})).json();
    assert_eq!(report["verified"], true, "{report}");
    assert_eq!(report["checked"], report["head"]["seq"], "{report}");
    report["checked"].as_u64().unwrap()
}

/// The decisions among these answers, at least so many. A gateway whose database stands still for longer than it waits
/// has said so in the others.
fn decisions(answers: Vec<Answer>, least: usize) -> Vec<Answer> {
    let is_decision = |answer: &Answer| answer.status == 200;
    let (decisions, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(is_decision);
    others.iter().for_each(assert_unavailable);
    let (found, others) = (decisions.len(), others.len());
    assert!(found >= least, "{found} decisions, {others} other answers");
    decisions
}

fn assert_unavailable(answer: &Answer) {
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (503, Some("ledger_unavailable")),
        "{answer:?}"
    );
}

/// The decision about an ask, which is made again as long as the ledger is not available.
fn decide(client: &Client, demo: &Demo, request_id: &str) -> Answer {
    let patience = Instant::now() + Duration::from_mins(1);
    loop {
        let answer = client.post("/v1/authorize", &demo.token, &asking(request_id));
        let answer = answer.unwrap();
        if answer.status == 200 {
            return answer;
        }
        assert_unavailable(&answer);
        assert!(Instant::now() < patience, "nothing is decided: {answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What has come on a connection as soon as it is enough.
fn read_until(stream: &mut TcpStream, is_enough: impl Fn(&str) -> bool) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if is_enough(&text) {
            return text;
        }
        let mut part = [0; 1024];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "{text}");
        bytes.extend_from_slice(&part[..length]);
    }
}

/// Whether an answer has come whole.
fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.unwrap().parse::<usize>() == Ok(body.len())
}

/// Asks something new until the answer is a decision again, and fails if that takes too long.
fn wait_for_recovery(client: &Client, demo: &Demo) {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let request_id = format!("after-{}", ASKED.fetch_add(1, Ordering::Relaxed));
        let answer = client
            .post("/v1/authorize", &demo.token, &asking(&request_id))
            .unwrap();
        if answer.status == 200 {
            return;
        }
        assert!(Instant::now() < deadline, "still not recovered: {answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_operator_key_is_printed_once_and_works() {
    let place = Place::new();
    let server = place.start(&mut place.command(&[]));
    let key = place.printed("operator key (shown once, keep it safe): ");
    assert!(key.starts_with("csk_"), "{key}");
    assert_eq!(server.client().get("/v1/whoami", &key).json()["role"], "operator");
    assert!(!place.stderr().contains(&key), "the log is no place for it");
    server.kill();

    let server = place.start(&mut place.command(&[]));
    assert_eq!(place.stdout(), "");
    assert_eq!(server.client().get("/v1/whoami", &key).status, 200);
}

/// Because somebody else listens there, or nobody reads what is shown.
#[test]
fn a_first_start_that_fails_keeps_no_key_that_nobody_knows() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = place.fails(&mut place.command(&["--listen", &address]));
    assert!(message.contains("cannot listen"), "{message}");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let message = place.fails(place.command(&[]).stdout(full));
    assert!(message.contains("could not be shown"), "{message}");

    let server = place.start(&mut place.command(&[]));
    let key = place.printed("operator key (shown once, keep it safe): ");
    assert_eq!(server.client().get("/v1/whoami", &key).status, 200);
}

/// Those that run would go on with it for a minute, and then sign nothing.
#[test]
fn a_start_that_cannot_listen_ends_no_signing_key() {
    let place = Place::new();
    place.serve(&["--signing-key-file", "keys"]).kill();
    let path = |name: &str| place.path().join(name);
    std::fs::copy(path("keys"), path("old")).unwrap();
    let mut command = Command::new(PROGRAM);
    place.prepare(command.args(["rotate-key", "--signing-key-file", "keys"]));
    assert!(command.status().unwrap().success(), "{}", place.stderr());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = place.fails(&mut place.command(&["--signing-key-file", "keys", "--listen", &address]));
    assert!(message.contains("cannot listen on"), "{message}");

    let server = place.serve(&["--signing-key-file", "old"]);
    let client = server.client();
    let published = client.get("/.well-known/countersign/keys.json", OPERATOR).json();
    let keys = published["keys"].as_array().unwrap();
    assert!(keys.len() == 1 && keys[0]["not_after"].is_null(), "{published}");
}

/// An earlier version would refuse a database that was brought up to date, and the next start would take a key that it
/// finds for one that has signed.
#[test]
fn a_start_whose_policies_cannot_be_used_makes_nothing() {
    let place = Place::on_file();
    for (policies, problem) in [
        ("permit(", "base.cedar"),
        (
            "@id(\"all\") permit (principal, action, resource);",
            "the policies in `base.cedar` do not hold",
        ),
    ] {
        std::fs::write(place.path().join("base.cedar"), policies).unwrap();
        let message = place.fails(&mut place.command(&["--policies", "base.cedar"]));
        assert!(message.contains(problem), "{message}");
    }
    let made = std::fs::read_dir(place.path()).unwrap();
    let made = made.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut made: Vec<_> = made.collect();
    made.sort();
    assert_eq!(made, ["base.cedar", "stderr", "stdout"]);
}

#[test]
fn an_operator_key_that_was_brought_along_works_and_is_not_repeated() {
    let place = Place::new();
    let server = place.serve(&[]);
    assert_eq!(
        server.client().get("/v1/whoami", OPERATOR).json()["role"],
        "operator"
    );
    assert!(!place.stdout().contains(OPERATOR) && !place.stderr().contains(OPERATOR));
    server.kill();

    // A secret from a file has the end of its line.
    let brought = "csk_another-key-of-operators";
    let mut command = place.command(&[]);
    let server = place.start(command.env("COUNTERSIGN_OPERATOR_KEY", format!("{brought}\n")));
    assert_eq!(
        server.client().get("/v1/whoami", brought).json()["role"],
        "operator"
    );
    server.kill();

    let place = Place::on_file();
    for flag in [&["--operator-key", "csk_short"][..], &[]] {
        let mut weak = place.command(flag);
        if flag.is_empty() {
            weak.env("COUNTERSIGN_OPERATOR_KEY", "csk_short");
        }
        let message = place.fails(&mut weak);
        assert!(
            message.contains("`--operator-key` or COUNTERSIGN_OPERATOR_KEY should begin with `csk_`"),
            "{message}"
        );
        assert!(!message.contains("csk_short"), "{message}");
        assert!(
            !place.database().exists(),
            "it is looked at before anything is made"
        );
    }
}

/// A gateway that was not told still has it in its environment.
#[test]
fn an_operator_key_that_was_deleted_is_not_installed_again() {
    let place = Place::new();
    let server = place.serve(&[]);
    let old = server.client().get("/v1/whoami", OPERATOR).json();
    server.kill();
    let brought = "csk_another-key-of-operators";
    let mut command = place.command(&[]);
    let server = place.start(command.env("COUNTERSIGN_OPERATOR_KEY", brought));
    let path = format!("/v1/keys/{}", old["key"].as_str().unwrap());
    let deleted = ureq::delete(server.url(&path))
        .header("authorization", format!("Bearer {brought}"))
        .call()
        .unwrap();
    assert_eq!(deleted.status(), 204);
    server.kill();

    let server = place.serve(&[]);
    let said = place.stderr();
    assert!(said.contains("was deleted, and is not installed again"), "{said}");
    let client = server.client();
    assert_eq!(client.get("/v1/whoami", OPERATOR).status, 401);
    assert_eq!(client.get("/v1/whoami", brought).json()["role"], "operator");
}

/// Whoever deletes a key, or starts the gateway with none, hears of it while somebody can still make another one.
#[test]
fn operator_keys_that_all_have_an_end_are_told_of_with_the_way_back_in() {
    let place = Place::new();
    let server = place.serve(&[]);
    let client = server.client();
    let first = client.get("/v1/whoami", OPERATOR).json();
    let end = "2999-12-31T00:00:00.000Z";
    let body = json!({"name": "ends", "role": "operator", "expires_at": end});
    let made = client.post("/v1/keys", OPERATOR, &body).unwrap().json();
    let ending = made["key"].as_str().unwrap();
    let warning = format!("every operator key that works has an end, the last one {end}");
    let said = place.stderr();
    assert!(!said.contains("has an end"), "one that lasts is left: {said}");

    let path = format!("/v1/keys/{}", first["key"].as_str().unwrap());
    let deleted = ureq::delete(server.url(&path))
        .header("authorization", format!("Bearer {ending}"))
        .call()
        .unwrap();
    assert_eq!(deleted.status(), 204);
    let said = place.stderr();
    assert!(said.contains(&warning), "{said}");
    server.kill();

    place.start(&mut place.command(&[])).kill();
    let said = place.stderr();
    assert!(said.contains(&warning), "{said}");
    assert!(said.contains("a new key in COUNTERSIGN_OPERATOR_KEY"), "{said}");

    let brought = "csk_another-key-of-operators";
    let mut command = place.command(&[]);
    let server = place.start(command.env("COUNTERSIGN_OPERATOR_KEY", brought));
    let told = server.client().get("/v1/whoami", brought).json();
    assert_eq!(told["role"], "operator");
    let said = place.stderr();
    assert!(!said.contains("has an end"), "{said}");
}

#[test]
fn what_is_no_signing_key_is_refused_before_anything_is_said_of_a_ledger_that_it_signed() {
    let place = Place::on_file();
    let folder = place.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let told = place.fails(&mut place.command(&["--signing-key-file", "folder"]));
    assert!(told.contains("it is not a regular file"), "{told}");
    assert!(!told.contains("there is a signing key in"), "{told}");

    let told = place.fails(&mut place.command(&["--signing-key", ""]));
    let expected = "what `--signing-key` or COUNTERSIGN_SIGNING_KEY holds is not a signing key: a signing key is `PRIVATE+KEY+";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_file_of_signing_keys_that_is_named_and_not_used_is_told_of() {
    let place = Place::on_file();
    let secret = ledger::SigningKey::encode("log.example", ledger::SignatureKind::Note, &[7; 32]).unwrap();
    let mut command = place.command(&["--signing-key-file", "mine.key"]);
    place.start(command.env("COUNTERSIGN_SIGNING_KEY", secret)).kill();
    let said = place.stderr();
    assert!(
        said.contains("`mine.key` is not used as the file of signing keys"),
        "{said}"
    );
    assert!(!place.path().join("mine.key").exists());
}

/// Each gateway may have a key of its own, so it serves all the same.
#[test]
fn a_signing_key_of_another_name_than_the_log_has_is_told_of_at_its_first_start() {
    let place = Place::new();
    let start = |name: &str, seed: u8| {
        let secret = ledger::SigningKey::encode(name, ledger::SignatureKind::Note, &[seed; 32]).unwrap();
        let mut command = place.command(&[]);
        place.start(command.env("COUNTERSIGN_SIGNING_KEY", secret)).kill();
        place.stderr()
    };
    let told = "the signing key is of the log `other.example`, and the ledgers are signed under `log.example` so far";
    for (name, seed, is_told) in [
        ("log.example", 7, false),
        ("log.example", 8, false),
        ("other.example", 9, true),
        ("other.example", 9, false),
    ] {
        let said = start(name, seed);
        assert_eq!(said.contains("the signing key is of the log"), is_told, "{said}");
        assert_eq!(said.contains(told), is_told, "{said}");
    }
}

#[test]
fn a_switch_in_the_environment_takes_the_words_that_people_write() {
    let place = Place::on_file();
    for (json, demo) in [("on", "0"), ("off", "yes"), ("false", "TRUE")] {
        let mut command = place.command(&[]);
        command
            .env("COUNTERSIGN_LOG_JSON", json)
            .env("COUNTERSIGN_DEMO", demo);
        place.start(&mut command).kill();
        assert_eq!(place.stderr().starts_with('{'), json == "on", "{json}");
        assert_eq!(place.stdout().contains("demo tenant: "), demo != "0", "{demo}");
    }
}

/// That test once more, with a setting around it that the program does not start with.
#[test]
fn what_is_set_around_tests_is_not_meant_for_the_program() {
    let test = "a_switch_in_the_environment_takes_the_words_that_people_write";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", test])
        .env("COUNTERSIGN_SIGNING_KEY", "no key");
    let done = again.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

/// As a file of variables may have it.
#[test]
fn addresses_have_any_white_space_between_them() {
    let place = Place::on_file();
    let mut command = Command::new(PROGRAM);
    place.prepare(command.arg("serve"));
    let server = place.start(command.env("COUNTERSIGN_LISTEN", " 127.0.0.1:0  127.0.0.1:0\n"));
    let said = place.stderr();
    assert!(said.contains("listening on "), "{said}");
    assert_eq!(server.client().get("/readyz", "").status, 200);
}

#[test]
fn the_curl_of_the_demo_returns_a_decision() {
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    for _ in 0..2 {
        let out = place.stdout();
        let curl = &out[out.find("curl ").unwrap()..];
        let ran = Command::new("sh").arg("-c").arg(curl).output().unwrap();
        let answer: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        assert_eq!(answer["decision"], "require_approval", "{answer}");
    }
    assert_verifies(&server.client(), &Demo::of(&place).tenant);
}

#[test]
fn the_demo_can_be_started_again_on_its_database() {
    let place = Place::new();
    place.serve(&["--demo"]).kill();
    let first = Demo::of(&place);
    let server = place.serve(&["--demo"]);
    let second = Demo::of(&place);
    assert_eq!(first.tenant, second.tenant);
    for token in [&first.token, &second.token] {
        assert_eq!(
            server
                .client()
                .post("/v1/authorize", token, &asking("call-1"))
                .unwrap()
                .status,
            200
        );
    }
}

#[test]
fn a_second_process_on_the_same_file_refuses_to_start() {
    let place = Place::on_file();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let other = Place::on_file();
    let url = format!("sqlite:{}", place.database().display());
    let message = other.fails(&mut other.command(&["--database-url", &url]));
    let file = place.database().canonicalize().unwrap();
    assert!(
        message.contains(&file.display().to_string()) && message.contains(&server.pid()),
        "{message}"
    );
    assert!(message.contains("is in use by process"), "{message}");
    wait_for_recovery(&server.client(), &demo);
}

#[test]
fn a_database_that_cannot_be_opened_is_named_and_no_password_is_repeated() {
    let place = Place::new();
    for (url, words) in [
        (
            "mysql://ann:hunter2@db/ledger",
            "`mysql:` is not a store that this version knows; use `sqlite:PATH`",
        ),
        ("hunter2", "use `sqlite:PATH`"),
        ("postgres://ann:hunter2@127.0.0.1:1/ledger", "127.0.0.1:1"),
        (
            "sqlite:/no/such/folder/a.db",
            "the folder of the database `/no/such/folder/a.db` does not exist",
        ),
        ("sqlite:/proc/a.db", "`/proc/a.db"),
        ("sqlite:/dev/null", "/dev/null"),
    ] {
        let message = place.fails(&mut place.command(&["--database-url", url]));
        assert!(message.contains(words), "{url}: {message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

/// The driver would log it.
#[test]
fn a_line_of_a_file_of_passwords_that_cannot_be_read_is_not_repeated() {
    let place = Place::on_file();
    let file = place.path().join("pgpass");
    std::fs::write(&file, "hunter2\n*:*:*:hunter2\n").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let url = "postgres://ann@127.0.0.1:1/ledger";
    for log in ["info", "sqlx_postgres=trace"] {
        let mut command = place.command(&["--database-url", url, "--log", log]);
        let message = place.fails(command.env_remove("PGPASSWORD").env("PGPASSFILE", &file));
        assert!(message.contains("127.0.0.1:1"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

/// The password of the first who connects, whom a server of PostgreSQL asks for it in the clear.
fn password_given(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let read_rest = |stream: &mut TcpStream| {
        // The length counts itself.
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut rest = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - length.len()];
        stream.read_exact(&mut rest).unwrap();
        rest
    };
    read_rest(&mut stream);
    stream.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
    let mut kind = [0];
    stream.read_exact(&mut kind).unwrap();
    assert_eq!(&kind, b"p");
    let password = String::from_utf8(read_rest(&mut stream)).unwrap();
    password.trim_end_matches('\0').to_owned()
}

#[test]
fn the_password_for_an_address_of_ipv6_is_looked_up_without_brackets() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return println!("skipped: this machine has no `::1`");
    };
    let place = Place::on_file();
    let file = place.path().join("pgpass");
    std::fs::write(&file, "[\\:\\:1]:*:*:*:another\n\\:\\:1:*:*:*:hunter2\n").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let server = listener.local_addr().unwrap();
    let url = format!("postgres://ann@{server}/ledger?sslmode=disable");
    let asked = std::thread::spawn(move || password_given(&listener));
    let mut command = place.command(&["--database-url", &url]);
    let message = place.fails(command.env_remove("PGPASSWORD").env("PGPASSFILE", &file));
    // If nobody has connected, nobody is waited for.
    drop(TcpStream::connect(server));
    assert!(message.contains(&server.to_string()), "{message}");
    assert_eq!(asked.join().unwrap(), "hunter2");
}

#[test]
fn a_signing_key_that_can_be_neither_read_nor_made_is_found_out_before_anything_is_made() {
    let place = Place::on_file();
    for (name, target) in [("link", "nowhere"), ("loop", "loop")] {
        std::os::unix::fs::symlink(target, place.path().join(name)).unwrap();
    }
    for file in ["missing/key", "link", "loop/key"] {
        let serving = place.fails(&mut place.command(&["--signing-key-file", file]));
        assert!(serving.contains(&format!("`{file}`")), "{serving}");
        assert!(!place.database().exists());
    }
    for file in ["missing/key", "link", "loop/key", "/dev/null"] {
        let mut checking = Command::new(PROGRAM);
        place.prepare(&mut checking);
        let told = place.fails(checking.args(["check-config", "--signing-key-file", file]));
        assert!(told.contains(&format!("`{file}`")), "{told}");
        assert!(!told.contains("chmod"), "{told}");
        assert!(!place.database().exists());
    }
}

#[test]
fn what_a_client_received_before_kill_9_is_in_the_ledger() {
    let place = Place::new();
    let mut server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let mut received = vec![decide(&server.client(), &demo, "first")];
    for round in 0..3 {
        let load = Load::default();
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..16)
                .map(|caller| {
                    let (server, demo, load) = (&server, &demo, &load);
                    scope.spawn(move || load.ask(server, demo, &format!("{round}-{caller}")))
                })
                .collect();
            load.wait_for(200);
            assert!(
                Command::new("kill")
                    .args(["-9", &server.pid()])
                    .status()
                    .unwrap()
                    .success()
            );
            callers
                .into_iter()
                .flat_map(|caller| caller.join().unwrap())
                .collect()
        });
        received.extend(decisions(answers, 200));
        drop(server);
        server = place.serve(&[]);
        assert_recorded(&server.client(), &demo, &received);
    }
    // A repeated ask is answered with what was recorded before the crash.
    let again = decide(&server.client(), &demo, "first");
    assert_eq!(again.json()["decision_id"], received[0].json()["decision_id"]);
}

#[test]
fn clients_that_hang_up_take_nothing_from_those_who_stay() {
    /// How many more may have hung up than were answered.
    const AHEAD_MAX: usize = 100;
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let stop = AtomicBool::new(false);
    let (hung_up, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        for caller in 0..4 {
            let (server, demo, stop) = (&server, &demo, &stop);
            let (hung_up, answered) = (&hung_up, &answered);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let n = hung_up.fetch_add(1, Ordering::Relaxed);
                    let request = server.raw_ask(&demo.token, &asking(&format!("gone-{n}")).to_string());
                    // One goes in the middle of its body, the next without waiting for the answer.
                    let sent = if (n + caller) % 2 == 0 {
                        request.len() / 2
                    } else {
                        request.len()
                    };
                    server.connect().write_all(&request.as_bytes()[..sent]).unwrap();
                    // Neither connections nor the queue are what this is about: who comes faster than they are taken is
                    // turned away, and so is everybody while the disk stands still.
                    std::thread::sleep(Duration::from_millis(2));
                    while hung_up.load(Ordering::Relaxed) > answered.load(Ordering::Relaxed) + AHEAD_MAX
                        && !stop.load(Ordering::Relaxed)
                    {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
            });
        }
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let (server, demo, stop, answered) = (&server, &demo, &stop, &answered);
                scope.spawn(move || {
                    let client = server.client();
                    let mut answers = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let ask = asking(&format!("stays-{caller}-{}", answers.len()));
                        let answer = client.post("/v1/authorize", &demo.token, &ask).unwrap();
                        answered.fetch_add(usize::from(answer.status == 200), Ordering::Relaxed);
                        answers.push(answer);
                    }
                    answers
                })
            })
            .collect();
        let patience = Instant::now() + Duration::from_mins(1);
        let enough = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 100;
        while !(enough(&hung_up) && enough(&answered)) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect()
    });
    let answers = decisions(answers, 101);
    assert!(hung_up.load(Ordering::Relaxed) > 100);
    assert_recorded(&server.client(), &demo, &answers);
    server.kill();
    let server = place.serve(&[]);
    assert_recorded(&server.client(), &demo, &answers);
}

#[test]
fn a_full_disk_stops_every_allow_until_there_is_room_again() {
    let place = Place::on_file();
    place.serve(&["--demo"]).kill();
    let demo = Demo::of(&place);
    // No file may grow beyond this, which fails like a full disk, and the limit can be lifted while it runs.
    let blocks = (std::fs::metadata(place.database()).unwrap().len() + 200_000) / 512;
    let script = format!("ulimit -S -f {blocks}; exec \"$0\" serve --listen 127.0.0.1:0");
    let mut command = Command::new("sh");
    command.args(["-c", &script, PROGRAM]);
    place.prepare(&mut command);
    command.env("COUNTERSIGN_OPERATOR_KEY", OPERATOR);
    let server = place.start(&mut command);
    let client = server.client();

    // What fails once may fit after a checkpoint; the disk is full when nothing does any more.
    let (mut answers, mut refused) = (Vec::new(), 0);
    for n in 0..20_000 {
        let answer = client
            .post("/v1/authorize", &demo.token, &asking(&format!("call-{n}")))
            .unwrap();
        if answer.status == 200 {
            answers.push(answer);
            refused = 0;
        } else {
            assert_unavailable(&answer);
            refused += 1;
        }
        if refused == 20 {
            break;
        }
    }
    assert_eq!(refused, 20, "the disk was never full: {} answers", answers.len());

    let lifted = Command::new("prlimit")
        .args(["--fsize=unlimited", "--pid", &server.pid()])
        .status()
        .unwrap();
    assert!(lifted.success());
    wait_for_recovery(&client, &demo);
    assert_recorded(&client, &demo, &answers);
    server.kill();
    assert_recorded(&place.serve(&[]).client(), &demo, &answers);
}

#[test]
fn a_full_disk_is_named_where_a_database_cannot_be_opened_for_it() {
    let place = Place::on_file();
    let server = place.serve(&[]);
    server.terminate();
    assert!(server.wait().success());
    // No file may grow beyond this, and SQLite makes one of 32 KiB beside the database.
    let script = "ulimit -S -f 16; exec \"$0\" serve --listen 127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", script, PROGRAM]);
    place.prepare(&mut command);
    let message = place.fails(&mut command);
    assert!(
        message.contains("there is no room to open the database") && message.contains("the disk is full"),
        "{message}"
    );
}

#[test]
fn a_largest_body_of_no_byte_or_of_too_many_is_refused_before_anything_is_made() {
    let place = Place::on_file();
    for bytes in ["0", "8388609"] {
        let message = place.fails(&mut place.command(&["--body-bytes-max", bytes]));
        assert!(message.contains("--body-bytes-max"), "{message}");
    }
    assert!(!place.database().exists());
}

#[test]
fn a_gateway_starts_with_more_than_a_tenant_may_register_and_answers() {
    let place = Place::new();
    place.serve(&["--demo"]).kill();
    let demo = Demo::of(&place);
    let server = place.serve(&["--directory-bytes-max", "1"]);
    let client = server.client();
    decide(&client, &demo, "call-1");
    // Operators have set the bound, and may go beyond it.
    let made = client.operate(
        &demo.tenant,
        "/v1/keys",
        &json!({"name": "admin", "role": "admin"}),
    );
    let admin = made.json()["key"].as_str().unwrap().to_owned();
    let refused = client
        .post("/v1/agents", &admin, &json!({"name": "another"}))
        .unwrap();
    assert_eq!(refused.status, 409, "{refused:?}");
    let found = client.read(&demo.tenant, "/v1/agents").json();
    let agent = found["items"][0]["id"].as_str().unwrap();
    let freeze = format!("/v1/agents/{agent}/freeze");
    let frozen = client.operate(&demo.tenant, &freeze, &json!({"reason": "odd"}));
    assert_eq!(frozen.status, 200, "{frozen:?}");
}

/// What was answered before it was noticed is lost; nothing is answered afterwards, and nothing new begins in its place
/// without a word.
#[test]
fn a_database_that_is_deleted_under_a_gateway_stops_every_answer() {
    let place = Place::on_file();
    let server = place.serve(&["--demo"]);
    let (demo, client) = (Demo::of(&place), server.client());
    decide(&client, &demo, "before");
    std::fs::remove_file(place.database()).unwrap();
    let patience = Instant::now() + Duration::from_mins(1);
    let mut ready = client.get("/readyz", "");
    while ready.status == 200 {
        assert!(Instant::now() < patience, "nobody notices");
        std::thread::sleep(Duration::from_millis(50));
        ready = client.get("/readyz", "");
    }
    assert_unavailable(&ready);
    let detail = ready.json()["detail"].to_string();
    assert!(detail.contains("deleted or replaced"), "{detail}");
    for request_id in ["before", "after"] {
        let answer = client.post("/v1/authorize", &demo.token, &asking(request_id));
        assert_unavailable(&answer.unwrap());
    }
    let said = place.stderr();
    let is_told = |line: &str| {
        line.contains("ERROR") && line.contains("put the database or a backup of it in its place")
    };
    assert!(said.lines().any(is_told), "{said}");
    server.kill();

    let message = place.fails(&mut place.command(&[]));
    assert!(
        message.contains("is missing or empty, but its write-ahead log"),
        "{message}"
    );
    for file in ["countersign.db-wal", "countersign.db-shm"] {
        std::fs::remove_file(place.path().join(file)).unwrap();
    }
    let _server = place.serve(&[]);
    let said = place.stderr();
    assert!(said.contains("but there is a signing key in"), "{said}");
}

#[tokio::test]
async fn a_locked_database_stops_every_allow_until_the_lock_is_gone() {
    let place = Place::on_file();
    let server = place.serve(&["--demo"]);
    let (demo, client) = (Demo::of(&place), server.client());
    let options = SqliteConnectOptions::new().filename(place.database());
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    for _ in 0..2 {
        sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
        let began = Instant::now();
        assert_unavailable(
            &client
                .post("/v1/authorize", &demo.token, &asking("call-1"))
                .unwrap(),
        );
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        assert_eq!(client.get("/readyz", "").status, 503);
        sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
        wait_for_recovery(&client, &demo);
        assert_eq!(client.get("/readyz", "").status, 200);
    }
    assert_verifies(&client, &demo.tenant);
}

/// As where a part of the file is gone: it can be read, and takes nothing.
#[tokio::test]
async fn a_start_that_cannot_record_names_the_database_and_what_to_do() {
    let place = Place::on_file();
    place.serve(&["--demo"]).kill();
    let options = SqliteConnectOptions::new().filename(place.database());
    let mut hand = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::raw_sql(
        "CREATE TRIGGER nothing_is_taken BEFORE INSERT ON audit_events
         BEGIN SELECT RAISE(ABORT, 'nothing is taken'); END",
    )
    .execute(&mut hand)
    .await
    .unwrap();
    hand.close().await.unwrap();
    let said = place.fails(&mut place.command(&["--demo"]));
    assert!(said.contains("a batch failed"), "{said}");
    let (_, told) = said.rsplit_once("countersign: ").unwrap();
    for words in [
        "the database `./countersign.db` cannot be used",
        "PRAGMA integrity_check",
        "put a backup in its place",
        "nothing can be recorded or read now",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

/// In the steps of the section "Backup" of `docs/operations.md`.
#[tokio::test]
async fn a_backup_that_is_put_back_after_a_kill_ends_where_it_was_made() {
    let place = Place::on_file();
    let server = place.serve(&["--demo"]);
    let (demo, client) = (Demo::of(&place), server.client());
    decide(&client, &demo, "kept");
    let head = client.read(&demo.tenant, "/v1/ledger/head").json();
    let backup = place.path().join("backup.db");
    let options = SqliteConnectOptions::new().filename(place.database());
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    let copying = sqlx::query("VACUUM INTO ?").bind(backup.to_str().unwrap());
    copying.execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    for n in 0..20 {
        decide(&client, &demo, &format!("lost-{n}"));
    }
    server.kill();

    let away = place.path().join("away");
    std::fs::create_dir(&away).unwrap();
    for file in ["countersign.db", "countersign.db-wal", "countersign.db-shm"] {
        std::fs::rename(place.path().join(file), away.join(file)).unwrap();
    }
    std::fs::copy(&backup, place.database()).unwrap();
    let server = place.serve(&[]);
    let client = server.client();
    let report = client
        .operate(&demo.tenant, "/v1/ledger/verify", &json!({}))
        .json();
    assert_eq!(report["verified"], true, "{report}");
    assert_eq!(report["head"]["seq"], head["seq"], "{report}");
    assert_eq!(report["head"]["hash"], head["hash"], "{report}");
    decide(&client, &demo, "later");
    assert_verifies(&client, &demo.tenant);
}

/// What is only written survives a kill, and not the loss of power. The log that is synced is a file, whatever tests are run on.
#[test]
fn no_answer_is_given_before_its_entry_is_on_the_disk() {
    let place = Place::on_file();
    place.serve(&["--demo"]).kill();
    let demo = Demo::of(&place);
    let mut command = place.command(&[]);
    place.slow_down(&mut command);
    let server = place.start(command.env("COUNTERSIGN_OPERATOR_KEY", OPERATOR));
    let client = server.client();
    for n in 0..3 {
        let asked = Instant::now();
        decide(&client, &demo, &format!("call-{n}"));
        let took = asked.elapsed();
        assert!(took >= SLOW_SYNC, "call-{n}: {took:?}");
    }
}

#[test]
fn a_gateway_that_is_killed_holds_nobody_up() {
    let place = Place::on_postgres();
    let mut first = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let beside = place.beside();
    let second = beside.serve(&[]);
    wait_for_recovery(&second.client(), &demo);
    let (mut answers, mut held_up) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let load = Load::default();
        std::thread::scope(|scope| {
            let ask = |server, name: String| {
                let (demo, load) = (&demo, &load);
                scope.spawn(move || load.ask(server, demo, &name))
            };
            let dying = ask(&first, format!("dying-{round}"));
            let living = ask(&second, format!("living-{round}"));
            load.wait_for(30);
            Command::new("kill").args(["-9", &first.pid()]).status().unwrap();
            let killed = Instant::now();
            answers.extend(dying.join().unwrap());
            let client = second.client();
            client
                .post("/v1/authorize", &demo.token, &asking(&format!("next-{round}")))
                .unwrap();
            held_up.push(killed.elapsed());
            std::thread::sleep(Duration::from_millis(100));
            load.stop();
            answers.extend(living.join().unwrap());
        });
        first.wait();
        first = place.serve(&[]);
    }
    // A machine that stands still holds up somebody now and then, and not every time.
    let is_short = |time: &Duration| *time < Duration::from_secs(2);
    let short = held_up.iter().filter(|time| is_short(time)).count();
    assert!(short >= 2, "{held_up:?}");
    let longest = held_up.iter().max().unwrap();
    assert!(*longest < Duration::from_mins(1), "{held_up:?}");
    assert_recorded(&second.client(), &demo, &decisions(answers, 90));
}

#[test]
fn a_database_server_that_crashes_under_load_loses_no_answer_and_is_waited_for() {
    let database = store_postgres::testing::Server::start();
    let place = Place::with_url(&database.url());
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let (mut answers, load) = (Vec::new(), Load::default());
    let (mut away, client) = (0, server.client());
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| load.ask(&server, &demo, "call"));
        load.wait_for(20);
        database.crash();
        let began = Instant::now();
        let answer = client
            .post("/v1/authorize", &demo.token, &self::asking("while-away"))
            .unwrap();
        assert_unavailable(&answer);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        assert_eq!(client.get("/readyz", "").status, 503);
        database.start_again();
        wait_for_recovery(&client, &demo);
        load.stop();
        for answer in asking.join().unwrap() {
            if answer.status == 200 {
                answers.push(answer);
            } else {
                assert_unavailable(&answer);
                away += 1;
            }
        }
    });
    assert!(
        answers.len() > 10 && away > 0,
        "{} answers, {away} times away",
        answers.len()
    );
    assert_recorded(&client, &demo, &answers);
    assert_eq!(client.get("/readyz", "").status, 200);
}

#[test]
fn a_server_that_is_told_to_stop_answers_what_it_accepted() {
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let mut late = server.connect();
    // Whoever has an answer was let in.
    let request = server.raw_ask(&demo.token, &asking("first").to_string());
    late.write_all(request.as_bytes()).unwrap();
    read_until(&mut late, is_whole);
    let request = server.raw_ask(&demo.token, &asking("last").to_string());
    let (begin, rest) = request.as_bytes().split_at(request.len() - 20);
    late.write_all(begin).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    server.terminate();
    std::thread::sleep(Duration::from_millis(200));
    late.write_all(rest).unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let answer = Answer {
        status: 200,
        bytes: body.as_bytes().to_vec(),
    };
    assert_eq!(server.wait().code(), Some(0));
    assert!(place.stderr().contains("stopped"));
    assert_recorded(&place.serve(&[]).client(), &demo, &[answer]);
}

#[test]
fn a_server_that_is_told_to_stop_ends_streams_of_events() {
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let mut stream = server.connect();
    let request = format!(
        "GET /v1/events?from_seq=1 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OPERATOR}\r\ncountersign-tenant: {}\r\n\r\n",
        demo.tenant
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = read_until(&mut stream, |text| text.contains("id: 1\n"));
    server.terminate();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("event: closed\n"), "{answer}");
    assert_eq!(server.wait().code(), Some(0));
}

/// Here it waits for a witness that says nothing.
#[test]
fn a_server_that_is_told_to_stop_before_it_listens_stops() {
    let place = Place::new();
    let witness = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = witness.local_addr().unwrap();
    let seed = [6; 32];
    let secret = ledger::SigningKey::encode("witness.example", ledger::SignatureKind::Cosignature, &seed);
    let key: ledger::SigningKey = secret.unwrap().parse().unwrap();
    let named = format!("http://{address}#{}", key.verifier());
    let mut server = place.command(&["--witness", &named]).spawn().unwrap();
    // It asks once it has a ledger, and before it listens.
    let _asked = witness.accept().unwrap();
    process::terminate(&server);
    let status = process::wait(&mut server);
    let said = place.stderr();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("stopped before it listened"), "{said}");
    assert!(!said.contains("listening on"), "{said}");
    assert_eq!(place.stdout(), "", "nobody was shown a key that nobody could use");
    place.serve(&["--demo"]);
    Demo::of(&place);
}

/// Here it waits to record its operator key, because nobody can write to a ledger.
#[test]
fn a_server_that_is_told_to_stop_while_it_installs_keys_stops() {
    let place = Place::on_postgres();
    place.serve(&[]).kill();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let status = runtime.unwrap().block_on(async {
        let mut other = PgConnection::connect(&place.url()).await.unwrap();
        let lock = "BEGIN; LOCK TABLE audit_events IN SHARE MODE";
        sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
        let mut command = place.command(&[]);
        command.env("COUNTERSIGN_OPERATOR_KEY", "csk_another-operator-key");
        let mut server = command.spawn().unwrap();
        let waits = "SELECT EXISTS (
            SELECT FROM pg_locks
            JOIN pg_database ON pg_database.oid = pg_locks.database
            WHERE datname = current_database() AND relation = 'audit_events'::regclass AND NOT granted
        )";
        while !sqlx::query_scalar::<_, bool>(waits)
            .fetch_one(&mut other)
            .await
            .unwrap()
        {
            assert!(
                server.try_wait().unwrap().is_none(),
                "it ended: {}",
                place.stderr()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        process::terminate(&server);
        process::wait(&mut server)
    });
    let said = place.stderr();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("stopped before it let anybody in"), "{said}");
    assert!(!said.contains("listening on"), "{said}");
    place.serve(&[]);
}

/// Nothing else is done on the thread that reads the key. With one thread beside it, as on one core, that must not be
/// the one that hears.
#[test]
fn a_server_that_is_told_to_stop_while_its_key_does_not_come_stops() {
    let place = Place::new();
    let mut command = place.command(&["--signing-key-file", "/dev/stdin"]);
    command.env("TOKIO_WORKER_THREADS", "1");
    let mut server = command.stdin(Stdio::piped()).spawn().unwrap();
    let pipe = server.stdin.take().unwrap();
    let deadline = Instant::now() + process::ENDS_WITHIN;
    while !process::catches_sigterm(&server) {
        assert!(Instant::now() < deadline, "it listens for no signal");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Nothing tells that it has come to the key. Where this is too short, it stops before that.
    std::thread::sleep(Duration::from_secs(2));
    assert!(server.try_wait().unwrap().is_none(), "{}", place.stderr());
    process::terminate(&server);
    assert_eq!(process::wait(&mut server).code(), Some(0), "{}", place.stderr());
    assert!(place.stderr().contains("stopped before it listened"));
    drop(pipe);
}

/// Sooner than it would cut anybody off.
#[test]
fn a_server_that_is_told_to_stop_answers_who_waits_for_people() {
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let ask = json!({
        "tool_call": {"tool": "github", "action": "merge_pull_request",
            "parameters": {"base_branch": "main", "number": 1}},
        "context": {"source_trust": "trusted_internal_unsigned"},
    });
    let asked = server.client().post("/v1/authorize", &demo.token, &ask).unwrap();
    let asked = asked.json();
    let mut waiting = server.connect();
    // What is asked ahead of it on one connection is answered first, and nothing comes between that answer and the wait.
    let requests = format!(
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n\
         GET /v1/approvals/{}?wait=60s HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        asked["approval"]["id"].as_str().unwrap(),
        demo.token
    );
    waiting.write_all(requests.as_bytes()).unwrap();
    let mut answers = read_until(&mut waiting, |text| text.contains("\r\n\r\n"));
    server.terminate();
    waiting.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
    assert!(answers.contains("\"status\":\"pending\""), "{answers}");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_server_that_is_told_to_stop_under_load_loses_no_answer() {
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let load = Load::default();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let (server, demo, load) = (&server, &demo, &load);
                scope.spawn(move || load.ask(server, demo, &format!("caller-{caller}")))
            })
            .collect();
        load.wait_for(40);
        server.terminate();
        callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect()
    });
    assert_eq!(server.wait().code(), Some(0));
    assert_recorded(&place.serve(&[]).client(), &demo, &decisions(answers, 40));
}

#[test]
fn a_client_that_never_finishes_does_not_keep_the_server_from_stopping() {
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let request = server.raw_ask(&demo.token, &asking("never").to_string());
    let mut stuck = server.connect();
    stuck
        .write_all(&request.as_bytes()[..request.len() - 20])
        .unwrap();
    let idle = server.connect();
    std::thread::sleep(Duration::from_millis(100));
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    drop((stuck, idle));
}

#[test]
fn an_export_is_verified_offline_and_a_changed_one_is_not() {
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    for n in 0..20 {
        server
            .client()
            .post("/v1/authorize", &demo.token, &asking(&format!("call-{n}")))
            .unwrap();
    }
    let export = server.client().read(&demo.tenant, "/v1/ledger/export");
    assert_eq!(export.status, 200);
    let keys = server.client().get("/.well-known/countersign/keys.json", "");
    std::fs::write(place.path().join("keys.json"), keys.bytes).unwrap();
    server.kill();
    let text = String::from_utf8(export.bytes).unwrap();
    let verify = |text: &str| {
        let file = place.path().join("export.ndjson");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(PROGRAM);
        let command = program::without_settings(&mut command).current_dir(place.path());
        command.arg("verify").arg(&file).args(["--keys", "keys.json"]);
        command.output().unwrap()
    };
    let whole = verify(&text);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    assert!(
        String::from_utf8(whole.stdout)
            .unwrap()
            .contains("anchored at seq 1")
    );

    let last_allow = text.rfind("\"allow\"").unwrap();
    let changed = format!("{}\"denyy\"{}", &text[..last_allow], &text[last_allow + 7..]);
    let lines = text.split_inclusive('\n').enumerate();
    let without_a_line: String = lines.filter(|(n, _)| *n != 3).map(|(_, line)| line).collect();
    for tampered in [changed, without_a_line] {
        let verdict = verify(&tampered);
        assert_eq!(verdict.status.code(), Some(1), "{verdict:?}");
        assert!(
            String::from_utf8(verdict.stderr)
                .unwrap()
                .contains("NOT VERIFIED")
        );
    }
}

#[test]
fn the_keys_of_the_log_may_come_through_a_pipe() {
    let vectors = include_str!("../../crates/ledger/vectors/exports.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let mut cases = vectors["cases"].as_array().unwrap().iter();
    let case = cases.find(|case| case["name"] == "all entries and a checkpoint");
    let case = case.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.ndjson");
    std::fs::write(&file, case["file"].as_str().unwrap()).unwrap();
    let mut command = Command::new(PROGRAM);
    let command = program::without_settings(&mut command);
    command.arg("verify").arg(&file).args(["--keys", "/dev/stdin"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut verifying = command.spawn().unwrap();
    let keys = json!({"keys": case["trust"]["keys"]}).to_string();
    verifying
        .stdin
        .take()
        .unwrap()
        .write_all(keys.as_bytes())
        .unwrap();
    let verdict = verifying.wait_with_output().unwrap();
    assert_eq!(verdict.status.code(), Some(0), "{verdict:?}");
}

#[test]
fn a_key_is_replaced_without_a_gap_and_verify_holds_keys_against_the_entries_that_tell_of_them() {
    const SYSTEM: &str = "tnt_00000000000000000000000000";
    let place = Place::new();
    let server = place.serve(&["--demo"]);
    let demo = Demo::of(&place);
    let ask = |server: &Server, name: &str| {
        let answer = server.client().post("/v1/authorize", &demo.token, &asking(name));
        assert_eq!(answer.unwrap().status, 200);
    };
    let run = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let command = program::without_settings(&mut command).current_dir(place.path());
        command.args(args).env("COUNTERSIGN_DATABASE_URL", place.url());
        let done = command.output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let fetch = |server: &Server, path: &str, file: &str| {
        let answer = server.client().read(SYSTEM, path);
        assert_eq!(answer.status, 200, "{answer:?}");
        std::fs::write(place.path().join(file), answer.bytes).unwrap();
    };
    let keys = "/.well-known/countersign/keys.json";
    ask(&server, "before");
    fetch(&server, keys, "old.json");
    server.kill();

    let (code, said) = run(&["rotate-key"]);
    assert_eq!(code, 0, "{said}");
    let (_, added) = said.split_once("added ").unwrap();
    let added = added.split(';').next().unwrap().to_owned();
    let server = place.serve(&[]);
    ask(&server, "after");
    fetch(&server, keys, "keys.json");
    fetch(&server, "/v1/ledger/export", "system.ndjson");
    let export = server.client().read(&demo.tenant, "/v1/ledger/export");
    std::fs::write(place.path().join("tenant.ndjson"), export.bytes).unwrap();
    let verified = server
        .client()
        .operate(SYSTEM, "/v1/ledger/verify", &json!({}))
        .json();
    assert_eq!(verified["verified"], true, "{verified}");
    server.kill();
    let published = std::fs::read_to_string(place.path().join("keys.json")).unwrap();
    assert!(published.contains(&added), "{published}");

    for file in ["tenant.ndjson", "system.ndjson"] {
        let (code, said) = run(&["verify", file, "--keys", "keys.json"]);
        assert!(code == 0 && said.contains("signed by the log"), "{said}");
        assert!(!said.contains("published keys"), "{said}");
        // Nobody who has only the old key believes what the new one has signed.
        let (code, said) = run(&["verify", file, "--keys", "old.json"]);
        assert!(code == 1 && said.contains("NOT VERIFIED"), "{said}");
    }
    let endless = published.replace("\"not_after\":\"", "\"ended\":\"");
    assert_ne!(endless, published);
    std::fs::write(place.path().join("endless.json"), endless).unwrap();
    let (code, said) = run(&["verify", "system.ndjson", "--keys", "endless.json"]);
    assert!(
        code == 1 && said.contains("other times than the entries tell"),
        "{said}"
    );
    let (code, said) = run(&["verify", "tenant.ndjson", "--keys", "endless.json"]);
    assert_eq!(code, 0, "only the ledger that tells of keys can say so: {said}");

    // As if somebody had put a key into the database that begins behind the last entry.
    let foreign = SigningKey::from_seed("log.example", SignatureKind::Note, &[66; 32]).unwrap();
    let foreign = foreign.verifier().to_string();
    let mut more: Value = serde_json::from_str(&published).unwrap();
    let keys = more["keys"].as_array_mut().unwrap();
    keys.push(json!({"vkey": foreign, "not_before": "9999-12-31T23:59:59.999Z"}));
    std::fs::write(place.path().join("more.json"), more.to_string()).unwrap();
    let (code, said) = run(&["verify", "system.ndjson", "--keys", "more.json"]);
    let counted = ", 1 of the published keys without a word about it in this file, signed by the log";
    assert!(code == 0 && said.contains(counted), "{said}");
}

/// What of a place lies on a disk, by the names of its files and, where its database is none, of the tables.
fn on_disk(place: &Place) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(place.path()).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        found.push((name, std::fs::read(file.path()).unwrap()));
    }
    if place.url().starts_with("postgres") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        found.extend(runtime.unwrap().block_on(rows(&place.url())));
    }
    found
}

/// The rows of each table of a PostgreSQL database. Bytes that are letters stand there as letters.
async fn rows(url: &str) -> Vec<(String, Vec<u8>)> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let letters = sqlx::query("SET bytea_output = 'escape'");
    letters.execute(&mut connection).await.unwrap();
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()";
    let tables = sqlx::query_scalar(tables).fetch_all(&mut connection).await;
    let tables: Vec<String> = tables.unwrap();
    let mut found = Vec::new();
    for table in tables {
        let text = format!("SELECT string_agg(whole::text, ' ') FROM {table} AS whole");
        let text = sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut connection);
        let text: Option<String> = text.await.unwrap();
        found.push((table, text.unwrap_or_default().into_bytes()));
    }
    found
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn neither_parameters_nor_tokens_reach_the_disk_or_the_log() {
    let place = Place::new();
    let server = place.serve(&["--demo", "--log", "debug"]);
    let demo = Demo::of(&place);
    let client = server.client();
    let mut ask = asking("call-1");
    ask["trace"] = json!({"run_id": "run-that-is-kept"});
    ask["tool_call"]["parameters"]["password"] = json!("correct-horse-battery");
    let allowed = client.post("/v1/authorize", &demo.token, &ask).unwrap();
    assert_eq!(allowed.json()["decision"], "allow", "{allowed:?}");
    ask["tool_call"]["parameters"]["title"] = json!(["correct-horse-battery"]);
    ask["request_id"] = json!("call-2");
    let denied = client.post("/v1/authorize", &demo.token, &ask).unwrap();
    assert_eq!(denied.json()["reason_code"], "invalid_parameters", "{denied:?}");
    let refused = client
        .post("/v1/authorize", "csa_wrong-horse-battery", &ask)
        .unwrap();
    assert_eq!(refused.status, 401, "{refused:?}");
    server.kill();
    let found = on_disk(&place);
    for (name, bytes) in &found {
        assert!(!holds(bytes, "horse-battery"), "{name}");
        assert!(name == "stdout" || !holds(bytes, &demo.token), "{name}");
    }
    // What is stored of these asks is among what was looked through.
    let mut stored = found.iter().filter(|(name, _)| name != "stderr");
    assert!(stored.any(|(_, bytes)| holds(bytes, "run-that-is-kept")));
}

#[test]
fn a_log_that_goes_to_a_file_has_no_colours() {
    let place = Place::new();
    let server = place.serve(&[]);
    server.client().get("/readyz", "");
    assert!(!place.stderr().contains('\u{1b}'), "{}", place.stderr());
}

#[tokio::test]
async fn a_line_of_json_tells_what_caused_an_error() {
    let place = Place::on_file();
    let server = place.serve(&["--demo", "--log-json"]);
    let (demo, client) = (Demo::of(&place), server.client());
    let options = SqliteConnectOptions::new().filename(place.database());
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    let answer = client.post("/v1/authorize", &demo.token, &asking("call-1"));
    assert_unavailable(&answer.unwrap());
    let patience = Instant::now() + Duration::from_mins(1);
    while !place.stderr().contains("error.sources") {
        assert!(Instant::now() < patience, "no cause is told: {}", place.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
    server.kill();
    let log = place.stderr();
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let mut errors = lines.iter().filter(|line| line["level"] == "ERROR");
    let is_told = |line: &Value| {
        let causes = line["fields"]["error.sources"].as_array();
        causes.is_some_and(|causes| !causes.is_empty())
    };
    assert!(errors.any(is_told), "{log}");
}

/// Whoever collects the log has gone, or its disk is full.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let place = Place::new();
    let mut command = place.command(&["--demo"]);
    command.env("COUNTERSIGN_OPERATOR_KEY", OPERATOR);
    let (server, log) = place.start_heard(&mut command);
    let demo = Demo::of(&place);
    drop(log);
    // Without a file of policies there is nothing to read again, which is a line in the log.
    let hung_up = Command::new("kill").args(["-HUP", &server.pid()]).status();
    assert!(hung_up.unwrap().success());
    decide(&server.client(), &demo, "unheard");
    assert_verifies(&server.client(), &demo.tenant);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));

    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut failing = place.command(&["--policies", "/no/such/file"]);
    assert_eq!(failing.stderr(full).status().unwrap().code(), Some(1));
}
