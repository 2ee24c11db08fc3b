//! Where the API is reached: over TCP, or over a Unix socket by programs on the same machine.
//!
//! A socket is a file. It is opened in a folder that nobody else can enter, gets its mode there, and is moved to its place only
//! then, so that nobody is let in before the mode says who may. Of several programs that want the same place, one gets it.

mod unix;

use crate::app::App;
use crate::connections;
use anyhow::{Context, bail};
use axum::serve::{Listener, ListenerExt};
use futures_util::future::BoxFuture;
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use unix::LocalListener;

/// What stands before the path of a socket.
const UNIX: &str = "unix:";
/// Of the folder that a socket is opened in.
const PRIVATE: u32 = 0o700;
/// Of the file that is locked.
const LOCK_MODE: u32 = 0o600;

/// How long a connection over TCP is silent before the system asks whether the other end is there (RFC 9293 section 3.8.4).
const KEPT_SILENT: Duration = Duration::from_mins(1);
/// How often the system asks then.
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// After how many probes without an answer the other end counts as gone.
const PROBES: u32 = 4;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// On an address and a port.
    Tcp(SocketAddr),
    /// On a socket in the file system.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("listen on an address and a port, such as `127.0.0.1:8080`, or on `unix:/PATH`")]
pub struct MalformedAddress;

impl FromStr for Address {
    type Err = MalformedAddress;

    fn from_str(text: &str) -> Result<Self, MalformedAddress> {
        match text.strip_prefix(UNIX) {
            // A relative path would be another one after a change of the folder.
            Some(path) if path.starts_with('/') && !path.ends_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err(MalformedAddress),
            None => text.parse().map(Self::Tcp).map_err(|_| MalformedAddress),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => fmt::Display::fmt(address, f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// A listener that is bound to its address.
pub enum BoundListener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a socket.
    Unix(UnixListener, SocketFile),
}

impl BoundListener {
    /// Binds it. `socket_mode` are the permissions of a socket.
    pub async fn bind(address: &Address, socket_mode: u32) -> anyhow::Result<Self> {
        let opened = match address {
            Address::Tcp(address) => TcpListener::bind(address)
                .await
                .map(Self::Tcp)
                .map_err(Into::into),
            Address::Unix(path) => {
                open_socket(path, socket_mode).map(|(listener, file)| Self::Unix(listener, file))
            }
        };
        opened.with_context(|| format!("cannot listen on {address}"))
    }

    /// Where it is: with the port that it got, if any would do.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
        }
    }

    /// Serves until it is told to stop and what has begun is answered. Then a socket is gone.
    pub fn serve(self, app: App, stop: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
        match self {
            Self::Tcp(listener) => Box::pin(connections::serve(with_options(listener), app, stop)),
            Self::Unix(listener, file) => Box::pin(async move {
                connections::serve(LocalListener(listener), app, stop).await;
                drop(file);
            }),
        }
    }
}

/// A listener whose connections have the options that are asked of each over TCP.
pub fn with_options(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
    listener.tap_io(|stream| {
        if let Err(error) = set_options(stream) {
            tracing::debug!(%error, "the options of a connection could not be set");
        }
    })
}

/// What is asked of each connection over TCP.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    // An answer is one small write; waiting to fill a packet would only delay it.
    stream.set_nodelay(true)?;
    // A caller whose machine is gone, or that a router has forgotten, would have its place for good.
    let probes = TcpKeepalive::new()
        .with_time(KEPT_SILENT)
        .with_interval(PROBE_EVERY)
        .with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

/// The file of a socket, gone when this is dropped.
pub struct SocketFile {
    path: PathBuf,
    /// Device and number of the file: another program's is left where it is.
    identity: (u64, u64),
    /// Held as long as the socket is open. The file stays, because one that is removed cannot be waited for.
    _lock: File,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "the socket `{}` could not be removed", self.path.display());
        }
    }
}

/// Opens a socket in its place. One that a program has left there which was killed is replaced; anything else is not.
fn open_socket(path: &Path, mode: u32) -> anyhow::Result<(UnixListener, SocketFile)> {
    let lock = lock(path)?;
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => bail!("there is a file that is not a socket"),
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            bail!("another program listens there")
        }
        _ => {}
    }
    let folder = beside(path, &format!(".{}", std::process::id()));
    // What a killed process of the same number has left.
    drop(fs::remove_dir_all(&folder));
    DirBuilder::new().mode(PRIVATE).create(&folder)?;
    let opened = open_in(&folder, path, mode);
    fs::remove_dir_all(&folder)?;
    let listener = opened?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path)?,
        _lock: lock,
    };
    Ok((listener, file))
}

fn open_in(folder: &Path, path: &Path, mode: u32) -> io::Result<UnixListener> {
    let inside = folder.join("s");
    let listener = UnixListener::bind(&inside)?;
    fs::set_permissions(&inside, Permissions::from_mode(mode))?;
    fs::rename(&inside, path)?;
    Ok(listener)
}

fn lock(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).write(true).mode(LOCK_MODE);
    let lock = options.open(beside(path, ".lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!("another gateway listens there"),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Permissions in octal digits, as `chmod` takes them.
///
/// # Errors
/// They are none.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "permissions are three octal digits, such as `660`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_address_is_a_port_or_a_path() {
        for text in ["127.0.0.1:8080", "[::1]:0", "unix:/run/countersign.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "8080",
            "localhost:8080",
            "unix:",
            "unix:countersign.sock",
            "unix:/run/",
            "/run/c.sock",
        ] {
            assert_eq!(text.parse::<Address>(), Err(MalformedAddress), "{text}");
        }
        assert_eq!([parse_mode("600"), parse_mode("0770")], [Ok(0o600), Ok(0o770)]);
        assert!(
            ["", "8", "1000", "rw", "-1"]
                .iter()
                .all(|text| parse_mode(text).is_err())
        );
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_and_is_gone_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let (listener, file) = open_socket(&path, 0o620).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
        let left = fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, ["c.sock", "c.sock.lock"]);
        UnixStream::connect(&path).unwrap();
        drop((listener, file));
        assert!(!path.exists());
        open_socket(&path, 0o600).unwrap();
    }

    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_one_that_is_used_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let refusal = |path: &Path| open_socket(path, 0o600).map(drop).unwrap_err().to_string();
        // What is left after a kill: a socket on which nobody listens.
        drop(UnixListener::bind(&path).unwrap());
        let open = open_socket(&path, 0o600).unwrap();
        assert_eq!(refusal(&path), "another gateway listens there");
        drop(open);
        let stranger = UnixListener::bind(&path).unwrap();
        assert_eq!(refusal(&path), "another program listens there");
        drop(stranger);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert_eq!(refusal(&path), "there is a file that is not a socket");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn the_socket_of_another_is_left_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let (listener, file) = open_socket(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        let stranger = UnixListener::bind(&path).unwrap();
        drop((listener, file));
        assert!(path.exists());
        drop(stranger);
    }
}
