//! Which gateway a tool talks to: one it starts for itself, or one that already runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::process::{GatewayProcess, Launch};

/// The options that say which.
#[derive(Debug, Args)]
pub struct TargetOptions {
    /// The gateway binary to start [default: the one built beside this program].
    #[arg(long, conflicts_with = "url")]
    binary: Option<PathBuf>,
    /// The database of the gateway that is started [default: a temporary SQLite file].
    #[arg(long, conflicts_with = "url")]
    database_url: Option<String>,
    /// A gateway that already runs, as `ADDRESS:PORT` with or without `http://`.
    #[arg(long, requires = "key", value_parser = parse_url)]
    url: Option<SocketAddr>,
    /// An operator key of that gateway.
    #[arg(long, requires = "url")]
    key: Option<String>,
}

/// A gateway to talk to, as its operator. If it was started here, it ends with this value.
#[derive(Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// An operator key of it.
    pub operator_key: String,
    started: Option<GatewayProcess>,
}

impl Target {
    /// The process of the gateway, if it was started here.
    pub fn gateway(&self) -> Option<u32> {
        self.started.as_ref().map(GatewayProcess::pid)
    }
}

impl TargetOptions {
    /// Starts a gateway, unless a running one was named.
    pub async fn reach(self) -> Result<Target> {
        if let (Some(address), Some(operator_key)) = (self.url, self.key) {
            return Ok(Target {
                address,
                operator_key,
                started: None,
            });
        }
        let started = GatewayProcess::start(Launch {
            binary: self.binary.as_deref(),
            database_url: self.database_url.as_deref(),
            operator_key: None,
        })
        .await?;
        let (address, operator_key) = (started.address(), started.operator_key().to_owned());
        Ok(Target {
            address,
            operator_key,
            started: Some(started),
        })
    }
}

fn parse_url(url: &str) -> Result<SocketAddr> {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    address
        .parse()
        .with_context(|| format!("`{url}` is not `ADDRESS:PORT`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Tool {
        #[command(flatten)]
        target: TargetOptions,
    }

    #[tokio::test]
    async fn a_running_gateway_is_named_with_and_without_the_scheme() {
        for url in [
            "127.0.0.1:8080",
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/",
        ] {
            let tool = Tool::parse_from(["tool", "--url", url, "--key", "csk_1"]);
            let target = tool.target.reach().await.unwrap();
            assert_eq!(
                (target.address.to_string().as_str(), &*target.operator_key),
                ("127.0.0.1:8080", "csk_1")
            );
        }
    }

    #[test]
    fn half_a_running_gateway_and_both_kinds_at_once_are_refused() {
        for options in [
            &["--url", "127.0.0.1:1"][..],
            &["--key", "csk_1"],
            &["--url", "here", "--key", "csk_1"],
            &["--binary", "b", "--url", "127.0.0.1:1", "--key", "csk_1"],
        ] {
            assert!(
                Tool::try_parse_from(["tool"].iter().chain(options)).is_err(),
                "{options:?}"
            );
        }
    }
}
