//! `load`: how many authorizations a second, how fast, and whether every one of them is in the ledger.
//!
//! Starts a gateway of its own on a temporary SQLite file or on the database it is given, or takes a running one. Exit code 1 means that the run is
//! worth nothing: errors, wrong decisions, or a ledger that disagrees with what was answered.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use benches::load::report::Setting;
use benches::load::{Plan, run};
use benches::target::TargetOptions;
use clap::Parser;

/// Closed-loop load on POST /v1/authorize.
#[derive(Debug, Parser)]
struct Options {
    /// Connections that ask at once.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds of asking before that.
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Tenants that the agents are of.
    #[arg(long, default_value_t = 1)]
    tenants: usize,
    /// Agents to ask for.
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Different asks to send in turn.
    #[arg(long, default_value_t = 1_000)]
    distinct: usize,
    #[command(flatten)]
    target: TargetOptions,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

// One thread: the other core, and whatever is left of this one, belong to the gateway.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let target = options.target.reach().await?;
    let report = run(Plan {
        addresses: &[target.address],
        operator_key: &target.operator_key,
        setting: Setting {
            connections: options.connections,
            tenants: options.tenants,
            agents: options.agents,
            distinct: options.distinct,
        },
        warm_up: Duration::try_from_secs_f64(options.warm_up)?,
        measured: Duration::try_from_secs_f64(options.seconds)?,
    })
    .await?;

    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{report}");
    }
    let faults = report.faults();
    for fault in &faults {
        eprintln!("load: {fault}");
    }
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
