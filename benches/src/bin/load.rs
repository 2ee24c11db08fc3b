//! `load`: how many authorizations a second, how fast, and whether every one of them is in the ledger.
//!
//! With `--profile budgets` it is how fast money is held and spent, and whether the books say so.
//!
//! Starts a gateway of its own on a temporary SQLite file or on the database it is given, or takes a running one. Exit code 1 means that the run is
//! worth nothing (errors, wrong decisions, or a ledger that disagrees with what was answered), or that it has missed a bound of `--sla`.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use benches::budgets;
use benches::load::{Plan, Profile, Setting, Sla, run};
use benches::machine::Machine;
use benches::target::TargetOptions;
use clap::Parser;
use serde::Serialize;
use std::fmt::Display;

/// Load on a gateway: as fast as it answers, or at a rate.
#[derive(Debug, Parser)]
struct Options {
    /// A run with a name; the options below change it.
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// Connections that ask at once [default: 64, of budgets 32].
    #[arg(long)]
    connections: Option<usize>,
    /// Calls of each operation at one caller, for budgets.
    #[arg(long, default_value_t = 1_000)]
    rounds: usize,
    /// Asks that are due in a second, whether the gateway is ready for them or not; without it, each connection asks as soon as it has
    /// its answer.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds of asking before that [default: 2, and none for a run of so many asks].
    #[arg(long)]
    warm_up: Option<f64>,
    /// Tenants that the agents are of [default: 1].
    #[arg(long)]
    tenants: Option<usize>,
    /// Agents to ask for [default: 100].
    #[arg(long)]
    agents: Option<usize>,
    /// Different asks to send in turn [default: 1000].
    #[arg(long)]
    distinct: Option<usize>,
    #[command(flatten)]
    target: TargetOptions,
    /// A file with bounds for the profile, all of which have to hold.
    #[arg(long, value_name = "FILE", requires = "profile")]
    sla: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Options {
    fn setting(&self) -> Setting {
        let named = self.profile.map_or_else(Setting::default, Profile::setting);
        Setting {
            connections: self.connections.unwrap_or(named.connections),
            tenants: self.tenants.unwrap_or(named.tenants),
            agents: self.agents.unwrap_or(named.agents),
            distinct: self.distinct.unwrap_or(named.distinct),
            per_second: self.rate.or(named.per_second),
            ..named
        }
    }
}

// One thread: the other core, and whatever is left of this one, belong to the gateway.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    // Before the run: a bound that cannot be read is not found out after minutes.
    let sla = match (&options.sla, options.profile) {
        (Some(file), Some(profile)) => Some(read_sla(file, profile)?),
        _ => None,
    };
    let setting = options.setting();
    let warm_up = options
        .warm_up
        .unwrap_or(if setting.asks_max.is_some() { 0.0 } else { 2.0 });
    let target = options.target.reach().await?;
    if options.profile == Some(Profile::Budgets) {
        let report = budgets::run(budgets::Plan {
            address: target.address,
            operator_key: &target.operator_key,
            rounds: options.rounds,
            connections: options.connections.unwrap_or(32),
            measured: Duration::try_from_secs_f64(options.seconds)?,
        })
        .await?;
        return tell(&report, &report.faults(), sla.as_ref(), options.json);
    }
    let report = run(Plan {
        addresses: &[target.address],
        operator_key: &target.operator_key,
        gateway: target.gateway(),
        setting,
        warm_up: Duration::try_from_secs_f64(warm_up)?,
        measured: Duration::try_from_secs_f64(options.seconds)?,
    })
    .await?;

    tell(&report, &report.faults(), sla.as_ref(), options.json)
}

fn read_sla(file: &Path, profile: Profile) -> Result<Sla> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading `{}`", file.display()))?;
    Sla::parse(&text, &profile.name()).with_context(|| format!("in `{}`", file.display()))
}

/// Prints a report, says what was wrong, and on which machine, and exits accordingly.
fn tell(
    report: &(impl Serialize + Display),
    faults: &[String],
    sla: Option<&Sla>,
    as_json: bool,
) -> Result<ExitCode> {
    if as_json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        println!("{report}");
    }
    for fault in faults {
        eprintln!("load: {fault}");
    }
    let misses = sla.map_or_else(|| Ok(Vec::new()), |sla| sla.misses(report))?;
    for miss in &misses {
        eprintln!("load: missed on {}: {miss}", Machine::here());
    }
    Ok(if faults.is_empty() && misses.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
