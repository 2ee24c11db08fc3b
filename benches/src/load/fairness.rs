//! What tenants notice of another's flood, which is ten times its share. What there is to share is measured first.
//!
//! Either one tenant at a low rate, alone and then beside another one; the share of each is half of what there is, so
//! that the flood is five times of that. Or nine tenants that keep to their shares, beside a tenth that does and then
//! does not; the shares are a tenth each of seven tenths of what there is, so that all of them together ask for a third
//! more than there is.
//!
//! The flood comes from a thread of its own, so that nobody else waits for a generator that is busy with it. All of
//! them share the machine.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;
use tokio::runtime;

use super::report::Setting;
use super::{Plan, Prepared, Report};
use crate::machine::Cpu;

/// Tenants that have a share where one of them is quiet.
const TENANTS: f64 = 2.0;
/// Tenants that keep to their shares where many do.
const NEIGHBOURS: u8 = 9;
/// What part of what there is they ask for together, with the one that will flood.
const LOAD: f64 = 0.7;
/// How many ask at once when it is measured what there is for all of them.
const CAPACITY_CONNECTIONS: usize = 64;
/// How many times its share the flood asks for.
const TIMES_SHARE: f64 = 10.0;
/// The flood begins so much earlier, and ends so much later.
const AROUND: Duration = Duration::from_secs(1);

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Fairness {
    /// Answers a second that there are to have.
    pub capacity_per_second: f64,
    /// What was taken of the machine while that was measured, and what could not be had.
    pub capacity_cpu: Cpu,
    /// Asks a second that are the share of the tenant that floods.
    pub share_per_second: f64,
    /// The quiet tenants without the flood.
    pub alone: Report,
    /// The quiet tenants beside the flood.
    pub beside: Report,
    /// The tenant that floods.
    pub flood: Report,
    /// The 99th percentile of the quiet tenants beside the flood as a multiple of that without it.
    pub p99_times: f64,
    /// How many of the quiet tenants' asks were refused beside the flood.
    pub quiet_refused: u64,
}

/// Measures the capacity with a few connections, then the quiet tenant alone, then both. The rate of the flood
/// follows from the capacity, unless its setting has one.
///
/// # Errors
/// The gateway cannot be reached or does not answer any more.
pub fn run(quiet: Plan<'_>, flood: Plan<'_>) -> Result<Fairness> {
    let closed = Setting {
        connections: CAPACITY_CONNECTIONS,
        per_second: None,
        gives_up: false,
        ..flood.setting
    };
    let capacity = capacity(with(flood, closed))?;
    let share = capacity.per_second / TENANTS;
    let quiet_alone = alone(quiet)?;
    let rate = flood.setting.per_second.unwrap_or(share * TIMES_SHARE);
    let (beside, flood) = both(quiet, at(flood, rate))?;
    Ok(Fairness::of(&capacity, share, quiet_alone, beside, flood))
}

/// Measures the capacity with a few connections, then tenants that keep to their shares beside one that does, then
/// beside the same one when it floods. All rates follow from the capacity.
///
/// # Errors
/// The gateway cannot be reached or does not answer any more.
pub fn run_among_neighbours(neighbours: Plan<'_>, flood: Plan<'_>) -> Result<Fairness> {
    let closed = Setting {
        connections: CAPACITY_CONNECTIONS,
        tenants: usize::from(NEIGHBOURS) + 1,
        per_second: None,
        ..neighbours.setting
    };
    let capacity = capacity(with(neighbours, closed))?;
    let share = capacity.per_second * LOAD / f64::from(NEIGHBOURS + 1);
    let neighbours = at(
        with(
            neighbours,
            Setting {
                tenants: NEIGHBOURS.into(),
                ..neighbours.setting
            },
        ),
        share * f64::from(NEIGHBOURS),
    );
    let (without, _) = both(neighbours, at(flood, share))?;
    let (beside, flood) = both(neighbours, at(flood, share * TIMES_SHARE))?;
    Ok(Fairness::of(&capacity, share, without, beside, flood))
}

/// Both at once: the second begins earlier and ends later.
fn both(quiet: Plan<'_>, other: Plan<'_>) -> Result<(Report, Report)> {
    let other = Plan {
        warm_up: Duration::ZERO,
        measured: quiet.warm_up + quiet.measured + 2 * AROUND,
        ..with(
            other,
            Setting {
                gives_up: true,
                ..other.setting
            },
        )
    };
    let both_ready = Barrier::new(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| in_a_runtime(prepared(other, &both_ready, Duration::ZERO)));
        let quiet = scope.spawn(|| in_a_runtime(prepared(quiet, &both_ready, AROUND)));
        let ended = |_| anyhow!("a generator panicked");
        Ok((quiet.join().map_err(ended)??, other.join().map_err(ended)??))
    })
}

const fn at(plan: Plan<'_>, per_second: f64) -> Plan<'_> {
    with(
        plan,
        Setting {
            per_second: Some(per_second),
            ..plan.setting
        },
    )
}

const fn with(plan: Plan<'_>, setting: Setting) -> Plan<'_> {
    Plan { setting, ..plan }
}

/// How much is answered in a closed loop. All rates follow from it, so it has to be one in which nothing went wrong.
fn capacity(plan: Plan<'_>) -> Result<Report> {
    let report = alone(plan)?;
    let faults = report.faults();
    ensure!(
        faults.is_empty(),
        "the capacity could not be measured: {}",
        faults.join("; ")
    );
    Ok(report)
}

fn alone(plan: Plan<'_>) -> Result<Report> {
    thread::scope(|scope| {
        let report = scope.spawn(|| in_a_runtime(super::run(plan)));
        report.join().map_err(|_| anyhow!("a generator panicked"))?
    })
}

fn in_a_runtime(run: impl Future<Output = Result<Report>>) -> Result<Report> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run)
}

/// Sets a run up, waits for the other one, and lets it go ahead for so long.
async fn prepared(plan: Plan<'_>, both_ready: &Barrier, ahead: Duration) -> Result<Report> {
    let prepared = Prepared::set_up(plan).await;
    // Waited for whatever has become of it: the other one would wait for ever. Nothing else is done in this runtime.
    both_ready.wait();
    let prepared = prepared?;
    tokio::time::sleep(ahead).await;
    prepared.ask().await
}

impl Fairness {
    pub(super) fn of(capacity: &Report, share: f64, alone: Report, beside: Report, flood: Report) -> Self {
        Self {
            capacity_per_second: capacity.per_second,
            capacity_cpu: capacity.cpu,
            share_per_second: share,
            p99_times: beside.latency_ms.p99 / alone.latency_ms.p99,
            quiet_refused: beside.outcomes.refused.values().sum(),
            alone,
            beside,
            flood,
        }
    }

    /// Everything that makes the run a failure; empty when it is none.
    pub fn faults(&self) -> Vec<String> {
        let named = |name, report: &Report| {
            let faults = report.faults().into_iter();
            faults.map(|fault| format!("{name}: {fault}")).collect::<Vec<_>>()
        };
        let mut faults = named("alone", &self.alone);
        faults.extend(named("beside the flood", &self.beside));
        faults.extend(named("the flood", &self.flood));
        faults
    }
}

impl fmt::Display for Fairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.flood.setting.per_second.unwrap_or_default();
        for (title, report) in [
            ("alone", &self.alone),
            ("beside the flood", &self.beside),
            ("the flood", &self.flood),
        ] {
            writeln!(f, "-- {title}\n{report}\n")?;
        }
        writeln!(
            f,
            "capacity    {:.0} answers/s; the flood asks for {:.1} times its share",
            self.capacity_per_second,
            asked / self.share_per_second
        )?;
        writeln!(f, "  meanwhile {}", self.capacity_cpu)?;
        write!(
            f,
            "fairness    p99 of the others {:.3} ms without the flood, {:.3} ms beside it: {:.2} times; {} of their asks refused",
            self.alone.latency_ms.p99, self.beside.latency_ms.p99, self.p99_times, self.quiet_refused
        )
    }
}
