//! A real gateway as a child process: on a free port of the loopback interface or on a socket, with a database in a
//! temporary folder.
//!
//! It is stopped by killing it. That is deliberate: whatever the gateway answered has to be on disk by then, so
//! nothing here may depend on a polite end. It does not build the binary and does not talk to the API.

use std::fs;
use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use model::{Entropy as _, Secret, SecretKind, SystemEntropy};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout_at};

use crate::address::{Address, Door};
use crate::http::{Connection, Format, Request};
use crate::machine;

/// Migrating an empty database and compiling the base policies takes far less, in a debug build too.
const READY_WITHIN: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(10);

/// Where a free port is looked for: below those that the system gives to whoever connects, who might have it before the
/// gateway does.
const PORTS: Range<u16> = 20_000..32_000;
/// How many of them are tried. Hardly any is taken.
const PORTS_TRIED_MAX: usize = 100;

/// What the names of all settings of the gateway begin with.
const SETTINGS: &str = "COUNTERSIGN_";

/// How much of the end of the gateway's log goes into an error.
const LOG_TAIL_BYTES: usize = 2_000;

/// A running gateway whose operator key we know. Dropping it kills the process and removes its folder.
#[derive(Debug)]
pub struct GatewayProcess {
    child: Child,
    folder: TempDir,
    address: Address,
    /// The file of its database, if that is SQLite.
    database: Option<PathBuf>,
    operator_key: String,
}

/// How to start a gateway.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launch<'a> {
    /// The binary [default: the one built beside this program].
    pub binary: Option<&'a Path>,
    /// The database [default: a temporary SQLite file].
    pub database_url: Option<&'a str>,
    /// An operator key to install [default: a new one].
    pub operator_key: Option<&'a str>,
    /// What to listen on: a free port of the loopback interface, or a socket in its folder.
    pub door: Door,
}

impl GatewayProcess {
    /// Starts a gateway and waits until it is ready.
    pub async fn start(launch: Launch<'_>) -> Result<Self> {
        let Launch {
            binary,
            database_url,
            operator_key,
            door,
        } = launch;
        let binary = binary.map_or_else(binary_beside_us, |binary| Ok(binary.to_owned()))?;
        ensure!(
            binary.is_file(),
            "there is no gateway at `{}`: build it first, in the same profile (`cargo build --release -p gateway`)",
            binary.display()
        );
        let folder = tempfile::tempdir()?;
        let address = match door {
            Door::Tcp => Address::Tcp(free_address()?),
            Door::Unix => Address::Unix(folder.path().join("socket")),
        };
        let operator_key = operator_key.map_or_else(
            || {
                Secret::mint(SecretKind::ApiKey, &SystemEntropy)
                    .reveal()
                    .to_owned()
            },
            str::to_owned,
        );
        let file = format!("sqlite:{}", folder.path().join("countersign.db").display());
        let database_url = database_url.unwrap_or(&file);
        let log = File::create(log_path(folder.path()))?;
        // The gateway is started in another folder, where a relative path would name something else.
        let binary = binary
            .canonicalize()
            .with_context(|| format!("there is no `{}`", binary.display()))?;
        let child = without_settings(&binary)
            .arg("serve")
            .args(["--listen", &address.to_string()])
            .env("COUNTERSIGN_DATABASE_URL", database_url)
            .env("COUNTERSIGN_OPERATOR_KEY", &operator_key)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting `{}`", binary.display()))?;
        let mut gateway = Self {
            child,
            folder,
            address,
            database: database_url.strip_prefix("sqlite:").map(PathBuf::from),
            operator_key,
        };
        gateway.wait_until_ready().await?;
        Ok(gateway)
    }

    /// Where it listens.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Mebibytes of memory that it has now.
    pub fn resident_mib(&self) -> Option<f64> {
        machine::resident_mib(self.pid())
    }

    /// Mebibytes of its write-ahead log now, if its database is SQLite.
    pub fn wal_mib(&self) -> Option<f64> {
        let mut path = self.database.clone()?.into_os_string();
        path.push("-wal");
        Some(machine::mib(fs::metadata(path).ok()?.len()))
    }

    /// The operator key it was started with.
    pub fn operator_key(&self) -> &str {
        &self.operator_key
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while !timeout_at(deadline, is_ready(&self.address))
            .await
            .unwrap_or(false)
        {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended with {status}: {}", self.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "the gateway is not ready: {}",
                self.log_tail()
            );
            sleep(READY_POLL).await;
        }
        Ok(())
    }

    fn log_tail(&self) -> String {
        let mut log = Vec::new();
        // Only makes an error more telling; the error itself stands without it.
        if let Ok(mut file) = File::open(log_path(self.folder.path())) {
            file.read_to_end(&mut log).ok();
        }
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // Both fail only where the process has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn is_ready(address: &Address) -> bool {
    let request = Request {
        method: "GET",
        path: "/readyz",
        headers: &[],
        format: Format::Json,
        body: b"",
    };
    let Ok(mut connection) = Connection::open(address).await else {
        return false;
    };
    connection
        .send(request)
        .await
        .is_ok_and(|answer| answer.status == 200)
}

/// The command that runs the gateway. What is set around us is not meant for it, and would be in every number unsaid.
fn without_settings(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(SETTINGS) {
            command.env_remove(name);
        }
    }
    command
}

/// A port that was free a moment ago. Another process can take it before the gateway does; then the start fails.
fn free_address() -> Result<SocketAddr> {
    let try_one = |_| {
        let mut drawn = [0; 2];
        SystemEntropy.fill(&mut drawn);
        let port = PORTS.start + u16::from_be_bytes(drawn) % (PORTS.end - PORTS.start);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
    };
    let free = (0..PORTS_TRIED_MAX).find_map(try_one);
    Ok(free.context("no port is free")?.local_addr()?)
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("gateway.log")
}

/// `countersign` of the build that this program or test belongs to.
fn binary_beside_us() -> Result<PathBuf> {
    let ours = std::env::current_exe()?;
    let folder = ours.parent().context("this program is not in a folder")?;
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    Ok(folder.join("countersign"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_binary_that_is_not_there_is_named() {
        let error = GatewayProcess::start(Launch {
            binary: Some(Path::new("no/such/gateway")),
            ..Launch::default()
        })
        .await
        .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("there is no gateway at `no/such/gateway`"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_gateway_that_ends_at_once_is_not_waited_for() {
        let error = GatewayProcess::start(Launch {
            binary: Some(Path::new("/bin/false")),
            ..Launch::default()
        })
        .await
        .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the gateway ended with exit status: 1"),
            "{error}"
        );
    }
}
