//! Where the API is reached: over TCP, or over a Unix socket by programs on the same machine.
//!
//! An address is reserved first, so that a start that cannot listen finds that out before it has changed anything. It
//! is listened on when everything is ready.
//!
//! A socket is a file. It is opened in a folder that nobody else can enter, gets its mode there, and is moved to its place only
//! then, so that nobody is let in before the mode says who may. Of several programs that want the same place, one gets it.

mod unix;

use crate::app::App;
use crate::connections;
use anyhow::{Context, bail, ensure};
use axum::serve::{Listener, ListenerExt};
use futures_util::future::BoxFuture;
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use unix::LocalListener;

/// What stands before the path of a socket.
const UNIX: &str = "unix:";
/// What stands behind the path of a socket in the name of the folder that it is opened in.
const FOLDER_SUFFIX: &str = ".~";
/// What a socket is called in that folder.
const INSIDE: &str = "s";
/// The longest path of a socket, in bytes. The system takes 107 (unix(7)), of which the folder needs four.
const PATH_BYTES_MAX: usize = 103;
/// Of the folder that a socket is opened in.
const PRIVATE: u32 = 0o700;
/// Of the file that is locked.
const LOCK_MODE: u32 = 0o600;

/// How many connections over TCP wait in the system until they are taken: where a gateway comes back, all its callers
/// connect at once, and one for which there is no room tries again after a second (RFC 6298 section 2).
const BACKLOG: u32 = 1_024;

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
pub enum MalformedAddress {
    /// Neither kind.
    #[error("listen on an address and a port, such as `127.0.0.1:8080`, or on `unix:/PATH`")]
    Layout,
    /// A path at which the system opens no socket.
    #[error("the path of a socket has at most {PATH_BYTES_MAX} bytes, and this one has {0}")]
    LongPath(usize),
}

impl FromStr for Address {
    type Err = MalformedAddress;

    fn from_str(text: &str) -> Result<Self, MalformedAddress> {
        match text.strip_prefix(UNIX) {
            // A relative path would be another one after a change of the folder.
            Some(path) if !path.starts_with('/') || path.ends_with('/') => Err(MalformedAddress::Layout),
            Some(path) if path.len() > PATH_BYTES_MAX => Err(MalformedAddress::LongPath(path.len())),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| MalformedAddress::Layout),
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

/// An address that could be listened on when it was reserved, and at which nobody is let in yet.
pub enum ReservedAddress {
    /// Over TCP: it is bound, and whoever connects is refused. Another program could bind it, too, and listen first.
    Tcp(SocketAddr, TcpSocket),
    /// Over a socket: its lock is held, so no other gateway gets it, and there is no file yet.
    Unix(PathBuf, File),
}

impl ReservedAddress {
    /// Reserves all of them.
    ///
    /// # Errors
    /// One cannot be listened on, or two are the same.
    pub fn take_all(addresses: &[Address]) -> anyhow::Result<Vec<Self>> {
        for (place, address) in addresses.iter().enumerate() {
            // Only when both are listened on does the system say so of two on one port.
            if let Some(other) = addresses[..place].iter().find(|other| overlap(other, address)) {
                bail!("cannot listen on {address} and on {other} as well");
            }
        }
        addresses.iter().map(Self::take).collect()
    }

    /// Reserves it.
    ///
    /// # Errors
    /// It cannot be listened on.
    pub fn take(address: &Address) -> anyhow::Result<Self> {
        let taken = match address {
            Address::Tcp(address) => bind(*address)
                .map(|socket| Self::Tcp(*address, socket))
                .map_err(Into::into),
            Address::Unix(path) => lock(path).and_then(|lock| {
                check_free(path)?;
                // Only by making it is found out whether it can be made.
                remove(&make_folder(path)?);
                Ok(Self::Unix(path.clone(), lock))
            }),
        };
        taken.with_context(|| format!("cannot listen on {address}"))
    }

    /// Listens on it. `socket_mode` are the permissions of a socket.
    ///
    /// # Errors
    /// Somebody else has taken it meanwhile.
    pub fn listen(self, socket_mode: u32) -> anyhow::Result<BoundListener> {
        match self {
            Self::Tcp(address, socket) => socket
                .listen(BACKLOG)
                .map(BoundListener::Tcp)
                .with_context(|| format!("cannot listen on {address}")),
            Self::Unix(path, lock) => open_socket(&path, lock, socket_mode)
                .map(|(listener, file)| BoundListener::Unix(listener, file))
                .with_context(|| format!("cannot listen on {UNIX}{}", path.display())),
        }
    }
}

/// Whether no program could listen on both.
fn overlap(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Unix(one), Address::Unix(other)) => one == other,
        (Address::Tcp(one), Address::Tcp(other)) => {
            let is_one_port = one.port() != 0 && one.port() == other.port();
            let is_one_link = scope(one) == scope(other);
            let (one, other) = (one.ip().to_canonical(), other.ip().to_canonical());
            is_one_port && (one == other && is_one_link || covers(one, other) || covers(other, one))
        }
        _ => false,
    }
}

/// The interface that an address is of, where it is the same on several (RFC 4007 section 6).
const fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// Whether the first is any address, and the other is among those.
fn covers(any: IpAddr, other: IpAddr) -> bool {
    any.is_unspecified() && (any.is_ipv4() == other.is_ipv4() || any.is_ipv6() && takes_ipv4())
}

/// Whether any address of IPv6 is any of IPv4 as well, as it is unless `net.ipv6.bindv6only` is set (ipv6(7)).
fn takes_ipv4() -> bool {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None);
    socket
        .and_then(|socket| socket.only_v6())
        .is_ok_and(|is_only| !is_only)
}

/// A socket that is bound and does not listen. Connections of an earlier process, which the system remembers for a
/// while, are in nobody's way.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A listener that is bound to its address.
pub enum BoundListener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a socket.
    Unix(UnixListener, SocketFile),
}

impl BoundListener {
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
fn open_socket(path: &Path, lock: File, mode: u32) -> anyhow::Result<(UnixListener, SocketFile)> {
    check_free(path)?;
    let folder = make_folder(path)?;
    let opened = open_in(&folder, path, mode);
    remove(&folder);
    let listener = opened?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path)?,
        _lock: lock,
    };
    Ok((listener, file))
}

/// Fails if there is something else than a socket that a killed program has left.
fn check_free(path: &Path) -> anyhow::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    ensure!(
        found.file_type().is_socket(),
        "there is a file that is not a socket"
    );
    let is_used = is_listened_on(path).context("cannot find out whether a program listens there")?;
    ensure!(!is_used, "another program listens there");
    Ok(())
}

/// Whether a program listens on a socket. Where its line is full, because it takes nobody, nobody waits for it: the
/// start would hang without a word.
fn is_listened_on(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => Ok(true),
            // What a killed gateway has left may have a mode that keeps its owner from writing, and so from connecting.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                Ok(false)
            }
            // Such as a socket for datagrams that a program has open.
            _ => Err(error),
        },
    }
}

fn open_in(folder: &Path, path: &Path, mode: u32) -> io::Result<UnixListener> {
    let inside = folder.join(INSIDE);
    let listener = UnixListener::bind(&inside)?;
    fs::set_permissions(&inside, Permissions::from_mode(mode))?;
    fs::rename(&inside, path)?;
    Ok(listener)
}

/// Removes the folder that a socket is opened in, also one that a killed process has left. A folder with anything else
/// in it is not one, and stays.
fn remove(folder: &Path) {
    // Nothing is removed where a link leads.
    if fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()) {
        drop(fs::remove_file(folder.join(INSIDE)));
        drop(fs::remove_dir(folder));
    }
}

/// Makes the folder that a socket is opened in. The lock is of this path, so nobody else opens a socket in it.
fn make_folder(path: &Path) -> anyhow::Result<PathBuf> {
    let folder = beside(path, FOLDER_SUFFIX);
    remove(&folder);
    let made = DirBuilder::new().mode(PRIVATE).create(&folder);
    made.with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    Ok(folder)
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
    use std::os::unix::net::{UnixDatagram, UnixStream};

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
            assert_eq!(text.parse::<Address>(), Err(MalformedAddress::Layout), "{text}");
        }
        assert_eq!([parse_mode("600"), parse_mode("0770")], [Ok(0o600), Ok(0o770)]);
        assert!(
            ["", "8", "1000", "rw", "-1"]
                .iter()
                .all(|text| parse_mode(text).is_err())
        );
    }

    fn open(path: &Path, mode: u32) -> anyhow::Result<(UnixListener, SocketFile)> {
        open_socket(path, lock(path)?, mode)
    }

    #[tokio::test]
    async fn an_address_that_is_taken_cannot_be_reserved_and_one_that_is_reserved_lets_nobody_in() {
        let listen = |reserved: ReservedAddress| reserved.listen(0o600).unwrap();
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let reserved = ReservedAddress::take(&any).unwrap();
        let ReservedAddress::Tcp(_, socket) = &reserved else {
            panic!("{any}")
        };
        let taken = socket.local_addr().unwrap();
        assert!(std::net::TcpStream::connect(taken).is_err());
        let listener = listen(reserved);
        assert_eq!(listener.address().unwrap(), Address::Tcp(taken));
        std::net::TcpStream::connect(taken).unwrap();
        let refused = ReservedAddress::take(&Address::Tcp(taken)).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), format!("cannot listen on {taken}"));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let local = Address::Unix(path.clone());
        let reserved = ReservedAddress::take(&local).unwrap();
        assert!(!path.exists());
        let refused = ReservedAddress::take(&local).map(drop).unwrap_err();
        assert_eq!(refused.root_cause().to_string(), "another gateway listens there");
        let _listener = listen(reserved);
        UnixStream::connect(&path).unwrap();
        let in_the_way = folder.path().join("d.sock");
        fs::write(beside(&in_the_way, FOLDER_SUFFIX), "").unwrap();
        assert!(ReservedAddress::take(&Address::Unix(in_the_way)).is_err());
    }

    #[test]
    fn two_addresses_that_are_one_are_told_of_before_either_is_taken() {
        for (one, other, do_overlap) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "0.0.0.0:8080", true),
            ("[::]:8080", "[::1]:8080", true),
            ("[::]:8080", "0.0.0.0:8080", takes_ipv4()),
            ("127.0.0.1:8080", "[::]:8080", takes_ipv4()),
            ("[::1]:8080", "0.0.0.0:8080", false),
            ("[fe80::1%2]:8080", "[fe80::1%3]:8080", false),
            ("[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "127.0.0.1:8081", false),
            ("127.0.0.1:8080", "[::1]:8080", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("unix:/run/c.sock", "unix:/run/c.sock", true),
            ("unix:/run/c.sock", "127.0.0.1:8080", false),
        ] {
            let addresses: [Address; 2] = [one.parse().unwrap(), other.parse().unwrap()];
            assert_eq!(overlap(&addresses[0], &addresses[1]), do_overlap, "{one} {other}");
        }
        let twice = ["127.0.0.1:8080".parse().unwrap(), "0.0.0.0:8080".parse().unwrap()];
        let refused = ReservedAddress::take_all(&twice).map(drop).unwrap_err();
        let expected = "cannot listen on 0.0.0.0:8080 and on 127.0.0.1:8080 as well";
        assert_eq!(refused.to_string(), expected);
    }

    #[tokio::test]
    async fn every_path_that_is_no_longer_than_it_may_be_can_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |bytes: usize| {
            let name = "s".repeat(bytes - folder.path().as_os_str().len() - 1);
            format!("{UNIX}{}/{name}", folder.path().display()).parse::<Address>()
        };
        let longest = path(PATH_BYTES_MAX).unwrap();
        let listener = ReservedAddress::take(&longest).unwrap().listen(0o600).unwrap();
        assert_eq!(listener.address().unwrap(), longest);
        let refused = path(PATH_BYTES_MAX + 1).unwrap_err();
        assert_eq!(refused, MalformedAddress::LongPath(104));
        assert_eq!(
            refused.to_string(),
            "the path of a socket has at most 103 bytes, and this one has 104"
        );
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_and_is_gone_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let (listener, file) = open(&path, 0o620).unwrap();
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
        // What is left of a process that was killed while it opened its socket.
        let left = beside(&path, FOLDER_SUFFIX);
        fs::create_dir(&left).unwrap();
        drop(UnixListener::bind(left.join(INSIDE)).unwrap());
        open(&path, 0o600).unwrap();
        assert!(!left.exists());
    }

    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_one_that_is_used_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let refusal = |path: &Path| open(path, 0o600).map(drop).unwrap_err().to_string();
        // What is left after a kill: a socket on which nobody listens.
        drop(UnixListener::bind(&path).unwrap());
        let open = open(&path, 0o600).unwrap();
        assert_eq!(refusal(&path), "another gateway listens there");
        drop(open);
        let stranger = UnixListener::bind(&path).unwrap();
        assert_eq!(refusal(&path), "another program listens there");
        drop(stranger);
        fs::remove_file(&path).unwrap();
        let stranger = UnixDatagram::bind(&path).unwrap();
        assert_eq!(refusal(&path), "cannot find out whether a program listens there");
        UnixDatagram::unbound().unwrap().send_to(b"hello", &path).unwrap();
        drop(stranger);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert_eq!(refusal(&path), "there is a file that is not a socket");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_socket_whose_program_takes_nobody_is_told_of_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let stranger = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        stranger.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        // There is room for one in its line.
        stranger.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        let reserved = ReservedAddress::take(&Address::Unix(path.clone())).map(drop);
        for refused in [reserved, open(&path, 0o600).map(drop)] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.root_cause().to_string(), "another program listens there");
        }
        assert!(path.exists());
        drop(stranger);
        open(&path, 0o600).unwrap();
    }

    #[tokio::test]
    async fn the_socket_of_another_is_left_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let (listener, file) = open(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        let stranger = UnixListener::bind(&path).unwrap();
        drop((listener, file));
        assert!(path.exists());
        drop(stranger);
    }
}
