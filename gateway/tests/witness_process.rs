//! Two real programs: a gateway and a witness of its ledgers, killed, stopped, and with an old database put back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/process.rs"]
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod process;

use canon::Digest;
use ledger::witness::AddCheckpoint;
use process::{OPERATOR, PROGRAM, Place, SLOW_SYNC, Server};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A gateway that asks every second has asked within this on any machine.
const ASKED_WITHIN: Duration = Duration::from_mins(1);

/// The file of a log's key, whose public half is known before the first start.
fn signing_key(folder: &Path) -> (String, String) {
    let seed = [5; 32];
    let secret = ledger::SigningKey::encode("log.example", ledger::SignatureKind::Note, &seed).unwrap();
    let key: ledger::SigningKey = secret.parse().unwrap();
    let file = folder.join("key");
    fs::write(&file, secret).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    (file.to_str().unwrap().to_owned(), key.verifier().to_string())
}

/// The command that serves as a witness on an address.
fn witness_command(place: &Place, address: &str, log: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    place.prepare(&mut command);
    command.args([
        "witness",
        "--listen",
        address,
        "--folder",
        "state",
        "--log-key",
        log,
    ]);
    command
}

/// Starts a witness on an address, and gives back its verifier key too.
fn witness(place: &Place, address: &str, log: &str) -> (Server, String) {
    let server = place.start(&mut witness_command(place, address, log));
    let key = place.printed("witness key: ");
    (server, key)
}

/// Shows a witness the first entry of a log, whose key is in this file.
fn first_request(log_key: &str) -> String {
    let log_key: ledger::SigningKey = fs::read_to_string(log_key).unwrap().parse().unwrap();
    let checkpoint = ledger::Checkpoint::new("log.example", "tnt_1", 1, Digest::of(b"root"));
    let request = AddCheckpoint {
        old_size: 0,
        proof: Vec::new(),
        checkpoint: checkpoint.sign(&[&log_key]).unwrap().to_string(),
    };
    request.to_string()
}

fn asking(id: &str) -> Value {
    json!({
        "request_id": id,
        "tool_call": {"tool": "github", "action": "create_issue", "parameters": {}},
        "context": {"source_trust": "trusted_internal_unsigned"},
    })
}

/// The checkpoint, as soon as somebody has cosigned it.
fn cosigned(server: &Server, tenant: &str) -> String {
    let deadline = Instant::now() + ASKED_WITHIN;
    loop {
        let answer = server.client().read(tenant, "/v1/ledger/checkpoint");
        let note = String::from_utf8(answer.bytes).unwrap();
        if note.matches('\u{2014}').count() == 2 {
            return note;
        }
        assert!(Instant::now() < deadline, "nobody cosigns: {note}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The programs and what they know of each other.
struct Scene {
    gateway: Place,
    witness: Place,
    key_file: String,
    log: String,
}

impl Scene {
    fn new() -> Self {
        let gateway = Place::on_file();
        let (key_file, log) = signing_key(gateway.path());
        Self {
            gateway,
            witness: Place::on_file(),
            key_file,
            log,
        }
    }

    fn serve(&self, witness: &str) -> Server {
        self.gateway.start(&mut self.command(witness))
    }

    fn command(&self, witness: &str) -> Command {
        let options = [
            "--signing-key-file",
            &self.key_file,
            "--witness-seconds",
            "1",
            "--demo",
        ];
        let mut command = self.gateway.command(&options);
        command
            .args(["--witness", witness])
            .env("COUNTERSIGN_OPERATOR_KEY", OPERATOR);
        command
    }

    fn stop(server: Server) {
        server.terminate();
        assert!(server.wait().success());
    }

    /// Puts an old database back and serves on it. A gateway that could not ask the witness at its start, because something stood
    /// still, serves and asks later: then all of it is done once more.
    fn serve_old(&self, witness: &str, database: &[u8]) -> Server {
        for _ in 0..3 {
            fs::write(self.gateway.database(), database).unwrap();
            let server = self.serve(witness);
            let log = self.gateway.stderr();
            let unasked = [
                "has not cosigned",
                "have not seen all ledgers",
                "could not be shown to witnesses",
            ];
            if !unasked.iter().any(|words| log.contains(words)) {
                return server;
            }
            Self::stop(server);
        }
        panic!("the witness was never asked: {}", self.gateway.stderr());
    }
}

#[test]
fn an_old_database_that_is_put_back_is_found_out_before_the_first_answer() {
    let scene = Scene::new();
    let (watching, vkey) = witness(&scene.witness, "127.0.0.1:0", &scene.log);
    let named = format!("http://{}#{vkey}", watching.address);
    let server = scene.serve(&named);
    let tenant = scene.gateway.printed("demo tenant: ");
    let token = scene.gateway.printed("demo agent token (shown once): ");
    let ask = |server: &Server, id: &str| {
        server
            .client()
            .post("/v1/authorize", &token, &asking(id))
            .unwrap()
    };
    assert_eq!(ask(&server, "first").status, 200);
    Scene::stop(server);
    let backup = fs::read(scene.gateway.database()).unwrap();

    let server = scene.serve(&named);
    assert_eq!(ask(&server, "second").status, 200);
    cosigned(&server, &tenant);
    Scene::stop(server);
    // The index of decisions stands in files of its own, and is made again.
    let server = scene.serve_old(&named, &backup);
    for id in ["first", "second", "third"] {
        let answer = ask(&server, id);
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (503, json!("ledger_forked"))
        );
    }
    assert_eq!(server.client().get("/readyz", "none").status, 503);
    assert_eq!(server.client().get("/healthz", "none").status, 200);
    let log = scene.gateway.stderr();
    assert!(
        log.contains("the ledger has forked, and nothing is answered any more"),
        "{log}"
    );
    watching.kill();
}

#[test]
fn a_witness_that_is_killed_forgets_nothing_and_the_gateway_goes_on_without_it() {
    let scene = Scene::new();
    let (watching, vkey) = witness(&scene.witness, "127.0.0.1:0", &scene.log);
    let address = watching.address.to_string();
    let server = scene.serve(&format!("http://{address}#{vkey}"));
    let tenant = scene.gateway.printed("demo tenant: ");
    let token = scene.gateway.printed("demo agent token (shown once): ");
    let first = cosigned(&server, &tenant);
    watching.kill();
    let client = server.client();
    for number in 0..5 {
        let answer = client
            .post("/v1/authorize", &token, &asking(&format!("call-{number}")))
            .unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let (watching, again) = witness(&scene.witness, &address, &scene.log);
    assert_eq!(again, vkey, "it has kept its key");
    let later = cosigned(&server, &tenant);
    assert_ne!(first, later);

    // What it has cosigned, a stranger verifies who has both keys, and nobody who trusts another witness.
    let place = Place::on_file();
    let export = client.read(&tenant, "/v1/ledger/export").bytes;
    fs::write(place.path().join("export"), export).unwrap();
    fs::write(place.path().join("held"), later).unwrap();
    let verify = |witness: &str| {
        let mut command = Command::new(PROGRAM);
        place.prepare(&mut command);
        command.args([
            "verify",
            "export",
            "--held",
            "held",
            "--key",
            &scene.log,
            "--witness",
            witness,
        ]);
        let status = command.status().unwrap();
        (status.success(), place.stdout() + &place.stderr())
    };
    let (verified, told) = verify(&vkey);
    assert!(verified, "{told}");
    assert!(told.contains("cosigned by 1 of 1 witnesses or more"), "{told}");
    let seed = [6; 32];
    let other =
        ledger::SigningKey::from_seed("w.example", ledger::SignatureKind::Cosignature, &seed).unwrap();
    let (verified, told) = verify(&other.verifier().to_string());
    assert!(!verified, "{told}");
    assert!(
        told.contains("0 of the trusted witnesses have cosigned"),
        "{told}"
    );
    watching.kill();
}

#[test]
fn the_password_of_a_witness_is_in_no_log_whatever_is_printed() {
    let scene = Scene::new();
    let (watching, vkey) = witness(&scene.witness, "127.0.0.1:0", &scene.log);
    let named = format!("http://cs:s3cret@{}#{vkey}", watching.address);
    let mut command = scene.command(&named);
    let server = scene.gateway.start(command.args(["--log", "trace"]));
    let tenant = scene.gateway.printed("demo tenant: ");
    cosigned(&server, &tenant);
    Scene::stop(server);
    let log = scene.gateway.stderr();
    // Other lines of what talks to witnesses are there.
    assert!(log.contains(" ureq_proto::client"), "{log}");
    // In these it would be in hexadecimal, cut into rows.
    assert!(!log.contains(" ureq_proto::util"), "{log}");
    assert!(!log.contains("s3cret") && !log.contains("Y3M6czNjcmV0"), "{log}");
    watching.kill();
}

/// Both are a file and its name in the folder, and a sync each.
#[test]
fn neither_a_new_key_nor_what_is_cosigned_is_told_before_it_is_on_the_disk() {
    let place = Place::on_file();
    let (log_key, log) = signing_key(place.path());
    let mut command = witness_command(&place, "127.0.0.1:0", &log);
    place.slow_down(&mut command);
    let started = Instant::now();
    let server = place.start(&mut command);
    let took = started.elapsed();
    assert!(took >= 2 * SLOW_SYNC, "the key: {took:?}");

    let request = first_request(&log_key);
    let asked = Instant::now();
    let answer = ureq::post(server.url("/add-checkpoint")).send(request);
    let took = asked.elapsed();
    assert_eq!(answer.unwrap().status(), 200);
    assert!(took >= 2 * SLOW_SYNC, "the cosignature: {took:?}");
}

#[test]
fn a_witness_whose_key_is_there_and_whose_folder_is_not_says_so_at_its_start() {
    let place = Place::on_file();
    let (log_key, log) = signing_key(place.path());
    let start = || {
        let mut command = witness_command(&place, "127.0.0.1:0", &log);
        let server = place.start(command.args(["--key-file", "key-of-witness"]));
        let log = place.stderr();
        (server, log.contains("`state` holds nothing that it has cosigned"))
    };
    let (server, warns) = start();
    assert!(!warns, "its key is new");
    let answer = ureq::post(server.url("/add-checkpoint")).send(first_request(&log_key));
    assert_eq!(answer.unwrap().status(), 200);
    server.kill();
    let (server, warns) = start();
    assert!(!warns, "it has what it has cosigned");
    server.kill();
    fs::remove_dir_all(place.path().join("state")).unwrap();
    let (server, warns) = start();
    assert!(warns, "{}", place.stderr());
    server.kill();
}

#[test]
fn a_witness_that_may_write_no_file_for_a_while_cosigns_nothing_and_goes_on() {
    let place = Place::on_file();
    let (log_key, log) = signing_key(place.path());
    let (server, _) = witness(&place, "127.0.0.1:0", &log);
    let request = first_request(&log_key);
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = config.build().into();
    let ask_within = |limit: &str| {
        let mut limiting = Command::new("prlimit");
        limiting.args(["--pid", &server.pid(), &format!("--fsize={limit}")]);
        assert!(limiting.status().unwrap().success());
        let answer = agent.post(server.url("/add-checkpoint")).send(&request);
        answer.unwrap().status().as_u16()
    };
    assert_eq!(ask_within("0:unlimited"), 500);
    assert_eq!(server.client().get("/healthz", "").status, 200);
    assert_eq!(ask_within("unlimited"), 200);
}

#[test]
fn a_witness_waits_neither_for_the_rest_of_a_body_nor_for_that_of_a_head_when_it_is_to_stop() {
    let place = Place::on_file();
    let (_, log) = signing_key(place.path());
    let (server, _) = witness(&place, "127.0.0.1:0", &log);
    let mut half_head = server.connect();
    half_head.write_all(b"GET /healthz HTTP/1.1\r\nHost:").unwrap();
    let mut half_body = server.connect();
    let request = "POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: 100\r\n\r\nold 0\n";
    half_body.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 1_024];
    let length = half_body.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(server.client().get("/healthz", "").status, 200);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    let log = place.stderr();
    assert!(log.contains("some requests did not finish"), "{log}");
    drop(half_head);
}

#[test]
fn options_that_cannot_work_are_refused_at_the_start() {
    let place = Place::on_file();
    let (_, log) = signing_key(place.path());
    for (args, expected) in [
        (vec!["--witness", "http://w.example"], "a witness is `URL#KEY`"),
        (vec!["--witness-quorum", "0"], "invalid value"),
        (
            vec!["--witness-quorum", "2"],
            "the quorum of witnesses is 2, but 0 are named",
        ),
    ] {
        let told = place.fails(&mut place.command(&args));
        assert!(told.contains(expected), "{told}");
    }
    let secret = [7; 32];
    let key =
        ledger::SigningKey::from_seed("w.example", ledger::SignatureKind::Cosignature, &secret).unwrap();
    let named = format!("http://w.example#{}", key.verifier());
    // The same witness behind another URL is no second one.
    let again = named.replacen('#', "/#", 1);
    for named in [
        vec!["--witness", &named],
        vec!["--witness", &named, "--witness", &again],
    ] {
        let told = place.fails(&mut place.command(&[&named[..], &["--witness-quorum", "2"]].concat()));
        assert!(
            told.contains("the quorum of witnesses is 2, but 1 are named"),
            "{told}"
        );
    }

    let witness = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        place.prepare(&mut command);
        command
            .arg("witness")
            .args(["--listen", "127.0.0.1:0"])
            .args(args);
        place.fails(&mut command)
    };
    let told = witness(&["--log-key", &key.verifier().to_string()]);
    assert!(
        told.contains("is the key of a witness; name the keys of logs"),
        "{told}"
    );
    // The file of a log's key is not taken for that of a witness.
    let told = witness(&["--log-key", &log, "--key-file", "key"]);
    assert!(
        told.contains("is the key of a log; a witness signs with another"),
        "{told}"
    );
}
