//! The real program as a child process, spoken to over real HTTP. It is stopped by killing it unless a test says otherwise.

#[path = "home.rs"]
#[expect(dead_code, reason = "a place has its own folder")]
mod home;
#[path = "program.rs"]
pub(crate) mod program;

use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store_postgres::testing::Database;
use tempfile::TempDir;

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_countersign");
/// A debug build on a busy machine is ready within a second or two.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// No answer takes longer, or something hangs.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);
/// A program that is to end has ended, or something hangs.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_mins(1);
/// How much longer a sync takes on a slow disk: far longer than everything else that an ask waits for.
pub(crate) const SLOW_SYNC: Duration = Duration::from_millis(200);
/// The operator key that servers of tests are started with.
pub(crate) const OPERATOR: &str = "csk_an-operator-key-of-tests";

/// A folder and a database, which outlive the servers on them.
pub(crate) struct Place {
    folder: TempDir,
    /// Where the store is not a file in the folder.
    database: Option<Elsewhere>,
}

/// A database that is no file.
#[derive(Clone)]
struct Elsewhere {
    url: String,
    /// Gone when the last place on it is gone; none if somebody else looks after it.
    _database: Option<Arc<Database>>,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) bytes: Vec<u8>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, String::from_utf8_lossy(&self.bytes))
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.bytes)))
    }
}

impl Place {
    /// On the store that tests are run on.
    pub(crate) fn new() -> Self {
        if home::is_postgres() {
            Self::on_postgres()
        } else {
            Self::on_file()
        }
    }

    /// On a PostgreSQL database, whatever tests are run on.
    pub(crate) fn on_postgres() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let database = runtime.unwrap().block_on(home::database());
        Self {
            folder: tempfile::tempdir().unwrap(),
            database: Some(Elsewhere {
                url: database.url(),
                _database: Some(Arc::new(database)),
            }),
        }
    }

    /// On a PostgreSQL database that somebody else looks after.
    pub(crate) fn with_url(url: &str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            database: Some(Elsewhere {
                url: url.to_owned(),
                _database: None,
            }),
        }
    }

    /// Another folder on the same PostgreSQL database.
    pub(crate) fn beside(&self) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            database: self.database.clone(),
        }
    }

    /// On a SQLite file, whatever tests are run on: for what only files can do.
    pub(crate) fn on_file() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            database: None,
        }
    }

    /// What a server here keeps everything in.
    pub(crate) fn url(&self) -> String {
        match &self.database {
            Some(elsewhere) => elsewhere.url.clone(),
            None => "sqlite:./countersign.db".to_owned(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("countersign.db")
    }

    /// The command that serves on this place's database, with its words going to files.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").args(["--listen", "127.0.0.1:0"]).args(args);
        self.prepare(&mut command);
        command
    }

    /// No settings but this place's database, this folder, and files for what it says. Those of a test come behind it.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let file = |name| File::create(self.path().join(name)).unwrap();
        program::without_settings(command)
            .env("COUNTERSIGN_DATABASE_URL", self.url())
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"));
    }

    /// Puts a prepared command on a disk on which each sync takes [`SLOW_SYNC`] longer, as `scripts/slow-disk` does.
    pub(crate) fn slow_down(&self, command: &mut Command) {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/slow_disk.c");
        let library = self.path().join("slow_disk.so");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O2", "-fPIC", "-shared", source, "-ldl", "-o"])
            .arg(&library);
        assert!(compiler.status().unwrap().success());
        command
            .env("LD_PRELOAD", library)
            .env("SLOW_DISK_US", SLOW_SYNC.as_micros().to_string());
    }

    /// Serves with the operator key of tests.
    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        let mut command = self.command(args);
        command.env("COUNTERSIGN_OPERATOR_KEY", OPERATOR);
        self.start(&mut command)
    }

    /// Starts a prepared command and waits until it listens.
    pub(crate) fn start(&self, command: &mut Command) -> Server {
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let log = self.stderr();
            if let Some((_, rest)) = log.split_once("listening on ") {
                let address = rest.split(is_behind_address).next().unwrap_or_default();
                if let Ok(address) = address.parse() {
                    return Server {
                        child,
                        folder: self.path().to_owned(),
                        address,
                    };
                }
            }
            assert!(child.try_wait().unwrap().is_none(), "it ended: {log}");
            assert!(Instant::now() < deadline, "it does not listen: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a prepared command and reads its log, which goes to no file, until it listens.
    pub(crate) fn start_heard(&self, command: &mut Command) -> (Server, BufReader<ChildStderr>) {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let address = log.by_ref().lines().find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("listening on ")?;
            rest.split(is_behind_address).next()?.parse().ok()
        });
        let server = Server {
            child,
            folder: self.path().to_owned(),
            address: address.expect("it listens"),
        };
        (server, log)
    }

    /// Runs a command that is expected to end by itself, soon.
    pub(crate) fn fails(&self, command: &mut Command) -> String {
        let mut child = command.spawn().unwrap();
        let status = wait(&mut child);
        assert!(!status.success(), "it should have failed");
        self.stderr()
    }

    pub(crate) fn stdout(&self) -> String {
        std::fs::read_to_string(self.path().join("stdout")).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path().join("stderr")).unwrap()).into_owned()
    }

    /// The part of a line of standard output after these words.
    pub(crate) fn printed(&self, words: &str) -> String {
        let out = self.stdout();
        let line = out
            .lines()
            .find_map(|line| line.strip_prefix(words))
            .unwrap_or_else(|| panic!("no `{words}`: {out}"));
        line.trim().to_owned()
    }
}

/// What ends an address in a line of the log, which may be JSON.
fn is_behind_address(character: char) -> bool {
    character.is_whitespace() || character == '"'
}

/// Waits for the end of a process, but not for ever.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + ENDS_WITHIN;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= deadline {
            child.kill().ok();
            panic!("it did not end within {ENDS_WITHIN:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has a handler for SIGTERM, as the kernel says.
pub(crate) fn catches_sigterm(child: &Child) -> bool {
    const SIGTERM: u64 = 1 << (15 - 1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & SIGTERM != 0
}

/// SIGTERM.
pub(crate) fn terminate(child: &Child) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
}

impl Server {
    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; the exit status follows.
    pub(crate) fn terminate(&self) {
        terminate(&self.child);
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn client(&self) -> Client {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_WITHIN));
        Client {
            agent: config.build().into(),
            base: self.url(""),
        }
    }

    /// A bare connection, for those who misbehave.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        stream
    }

    /// The bytes of a request to authorize.
    pub(crate) fn raw_ask(&self, token: &str, body: &str) -> String {
        format!(
            "POST /v1/authorize HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        // What it said helps to understand a test that fails.
        if std::thread::panicking() {
            let log = std::fs::read(self.folder.join("stderr")).unwrap_or_default();
            let tail = &log[log.len().saturating_sub(4_000)..];
            std::io::stderr().write_all(tail).ok();
        }
    }
}

/// A keep-alive client.
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
}

impl Client {
    pub(crate) fn post(&self, path: &str, token: &str, body: &Value) -> Result<Answer, ureq::Error> {
        let request = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {token}"));
        read(
            request
                .header("content-type", "application/json")
                .send(body.to_string()),
        )
    }

    /// What the operator posts in the name of a tenant.
    pub(crate) fn operate(&self, tenant: &str, path: &str, body: &Value) -> Answer {
        let request = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("countersign-tenant", tenant);
        let request = request.header("authorization", format!("Bearer {OPERATOR}"));
        read(
            request
                .header("content-type", "application/json")
                .send(body.to_string()),
        )
        .unwrap()
    }

    /// What the operator reads in the name of a tenant.
    pub(crate) fn read(&self, tenant: &str, path: &str) -> Answer {
        let request = self
            .agent
            .get(format!("{}{path}", self.base))
            .header("countersign-tenant", tenant);
        read(
            request
                .header("authorization", format!("Bearer {OPERATOR}"))
                .call(),
        )
        .unwrap()
    }

    pub(crate) fn get(&self, path: &str, token: &str) -> Answer {
        let request = self.agent.get(format!("{}{path}", self.base));
        read(request.header("authorization", format!("Bearer {token}")).call()).unwrap()
    }
}

fn read(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Answer, ureq::Error> {
    let mut response = response?;
    // An answer counts as received only when all of it has arrived.
    let bytes = response
        .body_mut()
        .with_config()
        .limit(64 * 1024 * 1024)
        .read_to_vec()?;
    Ok(Answer {
        status: response.status().as_u16(),
        bytes,
    })
}
