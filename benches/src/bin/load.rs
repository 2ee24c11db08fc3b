//! `load`: how many authorizations a second, how fast, and whether every one of them is in the ledger.
//!
//! With `--profile budgets` it is how fast money is held and spent, and whether the books say so.
//!
//! Starts a gateway of its own on a temporary SQLite file or on the database it is given, or takes a running one. Exit code 1 means that the run is
//! worth nothing: errors, wrong decisions, or a ledger that disagrees with what was answered.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use benches::budgets;
use benches::load::report::Setting;
use benches::load::{Plan, run};
use benches::target::TargetOptions;
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::fmt::Display;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Asks of all kinds.
    Asks,
    /// Each operation on budgets at one caller, then reservations made and committed on one budget.
    Budgets,
}

/// Closed-loop load on a gateway.
#[derive(Debug, Parser)]
struct Options {
    /// What is timed.
    #[arg(long, value_enum, default_value_t = Profile::Asks)]
    profile: Profile,
    /// Connections that ask at once [default: 64, of budgets 32].
    #[arg(long)]
    connections: Option<usize>,
    /// Calls of each operation at one caller, for budgets.
    #[arg(long, default_value_t = 1_000)]
    rounds: usize,
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
    if options.profile == Profile::Budgets {
        let report = budgets::run(budgets::Plan {
            address: target.address,
            operator_key: &target.operator_key,
            rounds: options.rounds,
            connections: options.connections.unwrap_or(32),
            measured: Duration::try_from_secs_f64(options.seconds)?,
        })
        .await?;
        let faults = report.faults();
        return tell(&report, &faults, options.json);
    }
    let report = run(Plan {
        addresses: &[target.address],
        operator_key: &target.operator_key,
        setting: Setting {
            connections: options.connections.unwrap_or(64),
            tenants: options.tenants,
            agents: options.agents,
            distinct: options.distinct,
        },
        warm_up: Duration::try_from_secs_f64(options.warm_up)?,
        measured: Duration::try_from_secs_f64(options.seconds)?,
    })
    .await?;

    let faults = report.faults();
    tell(&report, &faults, options.json)
}

/// Prints a report and what is wrong with it.
fn tell(report: &(impl Serialize + Display), faults: &[String], as_json: bool) -> Result<ExitCode> {
    if as_json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        println!("{report}");
    }
    for fault in faults {
        eprintln!("load: {fault}");
    }
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
