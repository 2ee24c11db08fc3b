//! Which gateway a tool talks to: one it starts for itself, or one that already runs.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::address::{Address, Door};
use crate::process::{GatewayProcess, Launch};

/// The options that say which.
#[derive(Debug, Clone, Args)]
pub struct TargetOptions {
    /// The gateway binary to start [default: the one built beside this program].
    #[arg(long, conflicts_with = "url")]
    binary: Option<PathBuf>,
    /// The database of the gateway that is started [default: a temporary SQLite file].
    #[arg(long, conflicts_with = "url")]
    database_url: Option<String>,
    /// What the gateway that is started listens on.
    #[arg(long, value_enum, default_value_t, conflicts_with = "url")]
    door: Door,
    /// A gateway that already runs, as `ADDRESS:PORT` with or without `http://`, or as `unix:/PATH`.
    #[arg(long, requires = "key")]
    url: Option<Address>,
    /// An operator key of that gateway.
    #[arg(long, requires = "url")]
    key: Option<String>,
}

/// A gateway to talk to, as its operator. If it was started here, it ends with this value.
#[derive(Debug)]
pub struct Target {
    /// Where it listens.
    pub address: Address,
    /// An operator key of it.
    pub operator_key: String,
    started: Option<GatewayProcess>,
}

impl Target {
    /// The gateway, if it was started here.
    pub const fn gateway(&self) -> Option<&GatewayProcess> {
        self.started.as_ref()
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
            door: self.door,
        })
        .await?;
        let (address, operator_key) = (started.address().clone(), started.operator_key().to_owned());
        Ok(Target {
            address,
            operator_key,
            started: Some(started),
        })
    }
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
    async fn a_running_gateway_is_named_by_its_address_or_its_socket() {
        for (url, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("unix:/run/countersign.sock", "unix:/run/countersign.sock"),
        ] {
            let tool = Tool::parse_from(["tool", "--url", url, "--key", "csk_1"]);
            let target = tool.target.reach().await.unwrap();
            assert_eq!(
                (target.address.to_string().as_str(), &*target.operator_key),
                (address, "csk_1")
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
            &["--door", "unix", "--url", "127.0.0.1:1", "--key", "csk_1"],
        ] {
            assert!(
                Tool::try_parse_from(["tool"].iter().chain(options)).is_err(),
                "{options:?}"
            );
        }
    }
}
