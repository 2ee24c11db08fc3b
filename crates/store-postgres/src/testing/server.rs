//! A throw-away server of a test's own: for what cannot be done to one that others use, such as stopping it.

use std::path::Path;
use std::process::Command;

/// Makes, starts and stops servers.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");

/// A server; stopped and deleted when this is dropped.
#[derive(Debug)]
pub struct Server {
    folder: tempfile::TempDir,
    url: String,
}

impl Server {
    /// Makes and starts a server. It takes some seconds.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = run("start", folder.path());
        Self { folder, url }
    }

    /// Its URL: of the database that every server has.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Stops it, as for maintenance: transactions are broken off.
    pub fn stop(&self) {
        run("stop", self.folder.path());
    }

    /// Stops it as a crash would: what is left is in the write-ahead log.
    pub fn crash(&self) {
        run("crash", self.folder.path());
    }

    /// Starts it again, where it was.
    pub fn start_again(&self) {
        run("start", self.folder.path());
    }

    /// Starts it, after it was stopped, as a standby: it follows nobody, can be read and takes no commits.
    pub fn start_as_standby(&self) {
        std::fs::write(self.folder.path().join("data/standby.signal"), "").unwrap();
        self.start_again();
    }

    /// The certificate of the authority that has signed its own.
    pub fn authority(&self) -> std::path::PathBuf {
        self.folder.path().join("authority.pem")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = Command::new(SCRIPT).arg("crash").arg(self.folder.path()).output();
        // It may be stopped already.
        drop(stopped);
    }
}

fn run(what: &str, folder: &Path) -> String {
    let output = Command::new(SCRIPT).arg(what).arg(folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/postgres {what}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
