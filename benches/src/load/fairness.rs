//! What one tenant notices of another's flood: its asks at a low rate, alone and then beside a tenant that asks for ten times its share.
//!
//! The share of each of two tenants is half of what there is to have, which is measured first. The two ask from threads of their
//! own, so that the quiet one does not wait for a generator that is busy with the flood. All three share the machine.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;
use tokio::runtime;

use super::report::Setting;
use super::{Plan, Prepared, Report};

/// Tenants that have a share.
const TENANTS: f64 = 2.0;
/// How many times its share the flood asks for.
const TIMES_SHARE: f64 = 10.0;
/// The flood begins so much earlier, and ends so much later.
const AROUND: Duration = Duration::from_secs(1);

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Fairness {
    /// Answers a second that there are to have.
    pub capacity_per_second: f64,
    /// The quiet tenant alone.
    pub alone: Report,
    /// The quiet tenant beside the flood.
    pub beside: Report,
    /// The tenant that floods.
    pub flood: Report,
    /// The 99th percentile of the quiet tenant beside the flood as a multiple of that alone.
    pub p99_times: f64,
    /// How many of the quiet tenant's asks were refused beside the flood.
    pub quiet_refused: u64,
}

/// Measures the capacity with the connections of the flood's setting, then the quiet tenant alone, then both. The rate of the flood
/// follows from the capacity, unless its setting has one.
///
/// # Errors
/// The gateway cannot be reached or does not answer any more.
pub fn run(quiet: Plan<'_>, flood: Plan<'_>) -> Result<Fairness> {
    let closed = Setting {
        per_second: None,
        ..flood.setting
    };
    let capacity = alone(with(flood, closed))?.per_second;
    let quiet_alone = alone(quiet)?;
    let flood = Plan {
        warm_up: Duration::ZERO,
        measured: quiet.warm_up + quiet.measured + 2 * AROUND,
        ..with(
            flood,
            Setting {
                per_second: flood
                    .setting
                    .per_second
                    .or(Some(capacity / TENANTS * TIMES_SHARE)),
                gives_up: true,
                ..flood.setting
            },
        )
    };
    let both_ready = Barrier::new(2);
    let (beside, flood) = thread::scope(|scope| {
        let flood = scope.spawn(|| in_a_runtime(prepared(flood, &both_ready, Duration::ZERO)));
        let beside = scope.spawn(|| in_a_runtime(prepared(quiet, &both_ready, AROUND)));
        let ended = |_| anyhow!("a generator panicked");
        Ok::<_, anyhow::Error>((beside.join().map_err(ended)??, flood.join().map_err(ended)??))
    })?;
    Ok(Fairness {
        capacity_per_second: capacity,
        p99_times: beside.latency_ms.p99 / quiet_alone.latency_ms.p99,
        quiet_refused: beside.outcomes.refused.values().sum(),
        alone: quiet_alone,
        beside,
        flood,
    })
}

const fn with(plan: Plan<'_>, setting: Setting) -> Plan<'_> {
    Plan { setting, ..plan }
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
        let share = self.capacity_per_second / TENANTS;
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
            asked / share
        )?;
        write!(
            f,
            "fairness    p99 of the quiet tenant {:.3} ms alone, {:.3} ms beside the flood: {:.2} times; {} of its asks refused",
            self.alone.latency_ms.p99, self.beside.latency_ms.p99, self.p99_times, self.quiet_refused
        )
    }
}
