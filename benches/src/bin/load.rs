//! `load`: how many authorizations a second, how fast, and whether every one of them is in the ledger.
//!
//! With `--profile budgets` it is how fast money is held and spent, and whether the books say so; with
//! `--profile fairness` and `neighbours`, what a tenant notices of another's flood.
//!
//! Starts a gateway of its own on a temporary SQLite file or on the database it is given, or takes a running one. Exit
//! code 1 means that the run is worth nothing (errors, refusals that it is not about, wrong decisions, or a ledger that
//! disagrees with what was answered), or that it has missed a bound of `--sla`.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use benches::budgets;
use benches::http::Format;
use benches::load::report::Capacity;
use benches::load::{Plan, Profile, Report, Setting, Sla, fairness, run};
use benches::machine::Machine;
use benches::process::GatewayProcess;
use benches::target::{Target, TargetOptions};
use clap::Parser;
use serde::Serialize;
use std::fmt::Display;

/// How long the capacity is measured for, where the rate follows from it.
const CAPACITY_FOR: Duration = Duration::from_secs(10);
/// How many connections ask at once then.
const CAPACITY_CONNECTIONS: usize = 64;

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
    /// Asks that are due in a second, whether the gateway is ready for them or not; without it, each connection asks as
    /// soon as it has its answer.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// The rate as a multiple of the capacity, which is measured first in a closed loop.
    #[arg(long, value_name = "TIMES", conflicts_with = "rate")]
    times_capacity: Option<f64>,
    /// What bodies and answers are written in.
    #[arg(long, value_enum, default_value_t)]
    body: Format,
    /// Seconds that are measured [default: those of the profile, or 10].
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds of a stretch: each whole one is also reported by itself.
    #[arg(long, default_value_t = 60.0)]
    stretch: f64,
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
    /// The name of the bounds in that file, if it is not that of the profile.
    #[arg(long, value_name = "NAME", requires = "sla")]
    bounds: Option<String>,
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
            format: self.body,
            ..named
        }
    }

    fn measured(&self) -> Result<Duration> {
        let named = self.profile.map_or(10.0, Profile::seconds);
        Ok(Duration::try_from_secs_f64(self.seconds.unwrap_or(named))?)
    }

    /// The times of the capacity that are asked for, if the rate is to follow from it.
    fn times_capacity(&self) -> Option<f64> {
        let named = self.profile.and_then(Profile::times_capacity);
        self.times_capacity.or(named.filter(|_| self.rate.is_none()))
    }

    fn plan<'a>(&self, target: &'a Target, setting: Setting) -> Result<Plan<'a>> {
        let warm_up = self
            .warm_up
            .unwrap_or(if setting.asks_max.is_some() { 0.0 } else { 2.0 });
        Ok(Plan {
            addresses: std::slice::from_ref(&target.address),
            operator_key: &target.operator_key,
            gateway: target.gateway(),
            setting,
            warm_up: Duration::try_from_secs_f64(warm_up)?,
            measured: self.measured()?,
            stretch: Duration::try_from_secs_f64(self.stretch)?,
        })
    }

    /// The bounds, read before the run: one that cannot be read is not found out after minutes.
    fn read_sla(&self) -> Result<Option<Sla>> {
        let (Some(file), Some(profile)) = (&self.sla, self.profile) else {
            return Ok(None);
        };
        let name = self.bounds.clone().unwrap_or_else(|| profile.name());
        let text = std::fs::read_to_string(file).with_context(|| format!("reading `{}`", file.display()))?;
        let sla = Sla::parse(&text, &name).with_context(|| format!("in `{}`", file.display()))?;
        Ok(Some(sla))
    }
}

// One thread: the other core, and whatever is left of this one, belong to the gateway.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let sla = options.read_sla()?;
    ensure!(options.stretch > 0.0, "a stretch takes some time");
    let target = options.target.clone().reach().await?;
    match options.profile {
        Some(Profile::Budgets) => {
            let report = budgets::run(budgets::Plan {
                address: &target.address,
                operator_key: &target.operator_key,
                gateway: target.gateway().map(GatewayProcess::pid),
                rounds: options.rounds,
                connections: options.connections.unwrap_or(32),
                measured: options.measured()?,
            })
            .await?;
            tell(&report, &report.faults(), sla.as_ref(), options.json)
        }
        Some(profile @ (Profile::Fairness | Profile::Neighbours)) => {
            let quiet = options.plan(&target, profile.setting())?;
            let flood = Setting {
                connections: options.connections.unwrap_or(profile.flood().connections),
                per_second: options.rate,
                format: options.body,
                ..profile.flood()
            };
            let flood = Plan {
                setting: flood,
                ..quiet
            };
            let report = if profile == Profile::Fairness {
                fairness::run(quiet, flood)?
            } else {
                fairness::run_among_neighbours(quiet, flood)?
            };
            tell(&report, &report.faults(), sla.as_ref(), options.json)
        }
        _ => {
            let report = load(&options, &target).await?;
            tell(&report, &report.faults(), sla.as_ref(), options.json)
        }
    }
}

/// A run of asks; where its rate follows from the capacity, after having measured that.
async fn load(options: &Options, target: &Target) -> Result<Report> {
    let setting = options.setting();
    let Some(times) = options.times_capacity() else {
        return run(options.plan(target, setting)?).await;
    };
    let closed = Setting {
        connections: CAPACITY_CONNECTIONS,
        per_second: None,
        gives_up: false,
        ..setting
    };
    let capacity = run(Plan {
        measured: CAPACITY_FOR.min(options.measured()?),
        ..options.plan(target, closed)?
    });
    let capacity = capacity.await?;
    let faults = capacity.faults();
    ensure!(
        faults.is_empty(),
        "the capacity could not be measured: {}",
        faults.join("; ")
    );
    let open = Setting {
        per_second: Some(capacity.per_second * times),
        gives_up: times >= 1.0,
        ..setting
    };
    let mut report = run(options.plan(target, open)?).await?;
    // Before it was asked anything, not after the capacity was measured.
    report.gateway_idle_mib = capacity.gateway_idle_mib;
    report.capacity = Some(Capacity {
        per_second: capacity.per_second,
        goodput: report.in_time_per_second / capacity.per_second,
        cpu: capacity.cpu,
    });
    Ok(report)
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
