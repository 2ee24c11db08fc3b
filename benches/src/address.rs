//! Where a gateway listens: over TCP, or over a Unix socket on the same machine.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;

/// What stands before the path of a socket, for the gateway too.
const UNIX: &str = "unix:";

/// Where a gateway listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// On an address and a port.
    Tcp(SocketAddr),
    /// On a socket in the file system.
    Unix(PathBuf),
}

/// The kinds of address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// An address and a port.
    #[default]
    Tcp,
    /// A socket in the file system.
    Unix,
}

impl Address {
    /// Which kind it is.
    pub const fn door(&self) -> Door {
        match self {
            Self::Tcp(_) => Door::Tcp,
            Self::Unix(_) => Door::Unix,
        }
    }

    /// What a request names in `Host`.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return Ok(Self::Unix(path.into()));
        }
        let address = text.trim_start_matches("http://").trim_end_matches('/');
        let address = address.parse().map(Self::Tcp);
        address.map_err(|_| format!("`{text}` is neither `ADDRESS:PORT` nor `unix:/PATH`"))
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

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Unix => "a Unix socket",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_the_gateway_reads_it_and_as_a_url() {
        for (text, door, shown) in [
            ("127.0.0.1:8080", Door::Tcp, "127.0.0.1:8080"),
            ("http://127.0.0.1:8080", Door::Tcp, "127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", Door::Tcp, "127.0.0.1:8080"),
            (
                "unix:/run/countersign.sock",
                Door::Unix,
                "unix:/run/countersign.sock",
            ),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.door(), &*address.to_string()), (door, shown), "{text}");
        }
        assert_eq!(
            "here".parse::<Address>().unwrap_err(),
            "`here` is neither `ADDRESS:PORT` nor `unix:/PATH`"
        );
    }
}
