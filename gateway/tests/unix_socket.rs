//! The real program on a Unix socket.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/process.rs"]
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod process;

use process::{ENDS_WITHIN, OPERATOR, Place};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A gateway on a socket, and perhaps elsewhere.
struct Local {
    child: Child,
    place: Place,
    socket: PathBuf,
}

impl Local {
    fn start(place: Place, args: &[&str]) -> Self {
        let socket = place.path().join("c.sock");
        let mut command = Command::new(process::PROGRAM);
        place.prepare(&mut command);
        command
            .arg("serve")
            .args(["--listen", &format!("unix:{}", socket.display())])
            .args(args);
        let child = command.env("COUNTERSIGN_OPERATOR_KEY", OPERATOR).spawn().unwrap();
        let mut local = Self { child, place, socket };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !local.place.stderr().contains("listening on unix:") {
            let log = local.place.stderr();
            assert!(local.child.try_wait().unwrap().is_none(), "it ended: {log}");
            assert!(Instant::now() < deadline, "it does not listen: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
        local
    }

    /// The address that it listens on beside the socket. It says one after the other.
    fn address(&self) -> SocketAddr {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let log = self.place.stderr();
            let mut words = log
                .split("listening on ")
                .filter_map(|rest| rest.split_whitespace().next());
            if let Some(address) = words.find_map(|word| word.parse().ok()) {
                return address;
            }
            assert!(Instant::now() < deadline, "it does not listen elsewhere: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OPERATOR}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn end(mut self, signal: &str) -> Place {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        let deadline = Instant::now() + ENDS_WITHIN;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.place
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_socket_is_for_its_owner_goes_with_the_gateway_and_is_taken_over_after_a_kill() {
    let local = Local::start(Place::on_file(), &[]);
    let socket = local.socket.clone();
    assert_eq!(mode(&socket), 0o600);
    assert!(local.ask("/v1/whoami").starts_with("HTTP/1.1 200"));
    let place = local.end("-TERM");
    assert!(!socket.exists(), "who stops in peace leaves nothing behind");

    let place = Local::start(place, &["--socket-mode", "660"]).end("-KILL");
    assert!(
        socket.exists(),
        "who is killed leaves a socket on which nobody listens"
    );
    assert_eq!(mode(&socket), 0o660);
    let local = Local::start(place, &[]);
    assert_eq!(mode(&socket), 0o600);
    assert!(local.ask("/readyz").contains("ready"));
    local.end("-TERM");
}

#[test]
fn a_gateway_listens_on_all_doors_at_once_and_closes_them_together() {
    let local = Local::start(Place::on_file(), &["--listen", "127.0.0.1:0"]);
    let address = local.address();
    assert!(local.ask("/v1/whoami").starts_with("HTTP/1.1 200"));
    let answer = ureq::get(format!("http://{address}/healthz")).call().unwrap();
    assert_eq!(answer.status(), 200);
    let socket = local.socket.clone();
    local.end("-TERM");
    assert!(!socket.exists());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_place_that_is_taken_is_left_alone() {
    let local = Local::start(Place::on_file(), &[]);
    let other = Place::on_file();
    let mut command = Command::new(process::PROGRAM);
    other.prepare(&mut command);
    command.args(["serve", "--listen", &format!("unix:{}", local.socket.display())]);
    let told = other.fails(&mut command);
    assert!(told.contains("another gateway listens there"), "{told}");
    assert!(local.ask("/healthz").starts_with("HTTP/1.1 200"));
    local.end("-TERM");

    std::fs::write(other.path().join("precious"), "precious").unwrap();
    let mut command = Command::new(process::PROGRAM);
    other.prepare(&mut command);
    command.args([
        "serve",
        "--listen",
        &format!("unix:{}/precious", other.path().display()),
    ]);
    let told = other.fails(&mut command);
    assert!(told.contains("there is a file that is not a socket"), "{told}");
    assert_eq!(
        std::fs::read_to_string(other.path().join("precious")).unwrap(),
        "precious"
    );
}
