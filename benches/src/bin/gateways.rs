//! `gateways`: what one, two and three gateways over one PostgreSQL database come to, for one tenant that all write to and
//! for many.
//!
//! Gateways, server and load share the machine, so more gateways do not make it faster: what this shows is the price of
//! sharing a chain, and that it holds. Exit code 1 means that a run is worth nothing.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use benches::address::Door;
use benches::load::report::Setting;
use benches::load::{Plan, run};
use benches::process::{GatewayProcess, Launch};
use clap::Parser;

/// Closed-loop load on several gateways over one database.
#[derive(Debug, Parser)]
struct Options {
    /// The database, `postgres://…`. Each run makes tenants of its own in it.
    #[arg(long)]
    database_url: String,
    /// The gateway binary to start [default: the one built beside this program].
    #[arg(long)]
    binary: Option<PathBuf>,
    /// As many gateways as this at most.
    #[arg(long, default_value_t = 3)]
    gateways: usize,
    /// As many tenants as this where there are many.
    #[arg(long, default_value_t = 30)]
    tenants: usize,
    /// Connections that ask at once.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Seconds that each run is measured.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let mut gateways: Vec<GatewayProcess> = Vec::new();
    let mut sound = true;
    println!("gateways  tenants  decisions/s  p50 ms  p99 ms");
    for count in 1..=options.gateways {
        let key = gateways.first().map(|first| first.operator_key().to_owned());
        let started = GatewayProcess::start(Launch {
            binary: options.binary.as_deref(),
            database_url: Some(&options.database_url),
            operator_key: key.as_deref(),
            door: Door::Tcp,
        });
        gateways.push(started.await?);
        let addresses: Vec<_> = gateways.iter().map(|gateway| gateway.address().clone()).collect();
        for tenants in [1, options.tenants] {
            let report = run(Plan {
                addresses: &addresses,
                operator_key: gateways[0].operator_key(),
                gateway: None,
                setting: Setting {
                    connections: options.connections,
                    tenants,
                    agents: 100.max(tenants),
                    ..Setting::default()
                },
                warm_up: Duration::from_secs(1),
                measured: Duration::try_from_secs_f64(options.seconds)?,
                stretch: Duration::from_mins(1),
            })
            .await?;
            let latency = report.latency_ms;
            println!(
                "{count:8}  {tenants:7}  {:11.0}  {:6.2}  {:6.2}",
                report.per_second, latency.p50, latency.p99
            );
            for fault in report.faults() {
                sound = false;
                eprintln!("gateways: {fault}");
            }
        }
    }
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
