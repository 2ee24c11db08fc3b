//! What came of a run: how fast, which outcomes, whether the ledger agrees — as text for people and JSON for programs.
//!
//! It decides what makes a run a failure. It does not decide how fast is fast enough: that differs by machine.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::asks::Mix;
use crate::machine::{Cpu, Machine};

/// How often each outcome came, warm-up included: the ledger does not know of a warm-up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Decisions by their verdict.
    pub decisions: BTreeMap<&'static str, u64>,
    /// Refusals and faults by their code.
    pub refused: BTreeMap<String, u64>,
    /// Asks that got no answer at all.
    pub errors: u64,
    /// Decisions other than the base policies give.
    pub unexpected: u64,
    /// Asks without a decision that may be in the ledger nevertheless: errors, and faults of the gateway.
    pub uncertain: u64,
    /// Asks that were sent again and got the bytes of their first answer.
    pub repeats: u64,
    /// Asks that were sent again and got something else than the bytes of their first answer.
    pub repeats_different: u64,
}

impl Outcomes {
    /// How many asks were answered with a decision.
    pub fn answered(&self) -> u64 {
        self.decisions.values().sum()
    }
}

/// What was asked of the run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Setting {
    /// How many connections ask at once, each one ask at a time.
    pub connections: usize,
    /// How many tenants the agents are of, in turn.
    pub tenants: usize,
    /// How many agents they ask for.
    pub agents: usize,
    /// How many different asks are sent in turn, each time under a request id of its own.
    pub distinct: usize,
    /// What the asks are.
    pub mix: Mix,
    /// How many of 100 requests send again, byte for byte, what was answered already.
    pub repeats_percent: u8,
    /// How many asks are due in a second; without it, each connection asks as soon as it has its answer.
    pub per_second: Option<f64>,
    /// How many asks there are, if not as many as there is time for.
    pub asks_max: Option<u64>,
    /// How many tokens the bucket of each agent holds, which is not filled again; without it, agents have none.
    pub bucket: Option<u32>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            connections: 64,
            tenants: 1,
            agents: 100,
            distinct: 1_000,
            mix: Mix::All,
            repeats_percent: 0,
            per_second: None,
            asks_max: None,
            bucket: None,
        }
    }
}

impl Setting {
    /// Whether there can be such a run.
    pub(super) fn check(&self) -> Result<()> {
        let Self {
            connections,
            tenants,
            agents,
            distinct,
            ..
        } = *self;
        ensure!(
            connections > 0 && tenants > 0 && agents > 0 && distinct > 0,
            "a load needs a connection, a tenant, an agent and an ask"
        );
        ensure!(
            self.repeats_percent < 100,
            "something has to be sent that is no repeat"
        );
        let is_rate = self.per_second.is_none_or(|rate| rate.is_finite() && rate > 0.0);
        ensure!(is_rate, "a rate is a number above 0");
        Ok(())
    }

    /// How many asks the buckets of all agents admit.
    fn admitted(&self) -> Option<u64> {
        let admitted = u64::from(self.bucket?) * self.agents as u64;
        Some(self.asks_max.map_or(admitted, |asks| asks.min(admitted)))
    }
}

/// Percentiles of the time from when an ask was due to having its answer.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Half of the asks were answered within this.
    pub p50: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

/// What the gateway's ledger says about the run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LedgerReport {
    /// Whether the whole ledger verifies.
    pub verified: bool,
    /// How many entries were verified, those of the set-up included.
    pub checked: u64,
    /// How many entries the run added.
    pub recorded: u64,
}

/// What a run was, but for what its asks came to.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) machine: Machine,
    pub(super) setting: Setting,
    pub(super) seconds: f64,
    pub(super) cpu: Cpu,
    pub(super) gateway_mib: Option<f64>,
    pub(super) ledger: LedgerReport,
}

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it was.
    pub machine: Machine,
    /// What was asked of it.
    pub setting: Setting,
    /// How long was measured, after the warm-up.
    pub seconds: f64,
    /// Answers within that time, repeats included.
    pub measured: u64,
    /// Answers a second.
    pub per_second: f64,
    /// How long they took, in milliseconds.
    pub latency_ms: Latency,
    /// How long refusals took, in milliseconds, if there were any.
    pub refusal_ms: Option<Latency>,
    /// What the generator and the gateway took.
    pub cpu: Cpu,
    /// Mebibytes of memory that the gateway had at the end.
    pub gateway_mib: Option<f64>,
    /// What they said.
    pub outcomes: Outcomes,
    /// Whether they are on record.
    pub ledger: LedgerReport,
}

impl Report {
    /// Everything that makes the run a failure; empty when it is none.
    pub fn faults(&self) -> Vec<String> {
        let (outcomes, ledger) = (&self.outcomes, self.ledger);
        let answered = outcomes.answered();
        let accounted = answered..=answered + outcomes.uncertain;
        let mut faults = Vec::new();
        if !ledger.verified {
            faults.push("the ledger does not verify".to_owned());
        }
        if !accounted.contains(&ledger.recorded) {
            faults.push(format!(
                "{answered} decisions were answered ({} more asks are uncertain) and {} are recorded",
                outcomes.uncertain, ledger.recorded
            ));
        }
        if self.measured == 0 {
            faults.push("nothing was measured".to_owned());
        }
        if outcomes.errors > 0 {
            faults.push(format!("{} asks got no answer", outcomes.errors));
        }
        if outcomes.repeats_different > 0 {
            faults.push(format!(
                "{} asks that were sent again did not get the bytes of their first answer",
                outcomes.repeats_different
            ));
        }
        if let Some(admitted) = self.setting.admitted().filter(|admitted| *admitted != answered) {
            faults.push(format!(
                "{answered} asks were admitted, and the buckets hold {admitted}"
            ));
        }
        if outcomes.unexpected > 0 {
            faults.push(format!(
                "{} decisions are not those of the base policies",
                outcomes.unexpected
            ));
        }
        faults
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            machine,
            latency_ms: latency,
            outcomes,
            ledger,
            ..
        } = self;
        writeln!(f, "machine     {machine}")?;
        writeln!(
            f,
            "load        {} connections, {} tenants, {} agents, {} distinct asks, {:.1} s",
            setting.connections, setting.tenants, setting.agents, setting.distinct, self.seconds
        )?;
        if let Some(rate) = setting.per_second {
            writeln!(f, "due         {rate} asks/s")?;
        }
        writeln!(f, "throughput  {:.0} answers/s", self.per_second)?;
        writeln!(
            f,
            "latency     p50 {:.3} ms   p95 {:.3} ms   p99 {:.3} ms   p99.9 {:.3} ms   max {:.3} ms",
            latency.p50, latency.p95, latency.p99, latency.p999, latency.max
        )?;
        let cores = |cores: Option<f64>| {
            cores.map_or_else(|| "unknown".to_owned(), |cores| format!("{cores:.2} cores"))
        };
        writeln!(
            f,
            "processor   generator {}, gateway {}",
            cores(self.cpu.generator_cores),
            cores(self.cpu.gateway_cores)
        )?;
        if let Some(mib) = self.gateway_mib {
            writeln!(f, "memory      gateway {mib:.0} MiB")?;
        }
        writeln!(f, "decisions   {}", list(outcomes.decisions.iter()))?;
        writeln!(
            f,
            "repeats     {}, {} of them answered otherwise",
            outcomes.repeats + outcomes.repeats_different,
            outcomes.repeats_different
        )?;
        writeln!(f, "refused     {}", list(outcomes.refused.iter()))?;
        writeln!(
            f,
            "errors      {} without an answer, {} unexpected decisions",
            outcomes.errors, outcomes.unexpected
        )?;
        write!(
            f,
            "ledger      {}, {} entries checked; {} decisions answered, {} recorded",
            if ledger.verified {
                "verified"
            } else {
                "NOT VERIFIED"
            },
            ledger.checked,
            outcomes.answered(),
            ledger.recorded
        )
    }
}

fn list<K: fmt::Display, V: fmt::Display>(counts: impl Iterator<Item = (K, V)>) -> String {
    let parts: Vec<_> = counts.map(|(what, count)| format!("{what} {count}")).collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::load::tally::Tally;
    use model::Verdict;

    fn surroundings(ledger: LedgerReport) -> Surroundings {
        Surroundings {
            machine: Machine {
                processor: "a processor".to_owned(),
                cores: 2,
                kernel: "a kernel".to_owned(),
            },
            setting: Setting {
                connections: 2,
                agents: 5,
                distinct: 7,
                ..Setting::default()
            },
            seconds: 2.0,
            cpu: Cpu {
                generator_cores: Some(0.25),
                gateway_cores: None,
            },
            gateway_mib: Some(27.6),
            ledger,
        }
    }

    /// The report of a run of three decisions.
    pub(in crate::load) fn report(change: impl FnOnce(&mut Tally, &mut LedgerReport)) -> Report {
        let mut tally = Tally::new();
        for (micros, verdict) in [
            (1_000, Verdict::Allow),
            (2_000, Verdict::Deny),
            (3_000, Verdict::Allow),
        ] {
            tally.time(micros);
            tally.decided(verdict, verdict);
        }
        let mut ledger = LedgerReport {
            verified: true,
            checked: 10,
            recorded: 3,
        };
        change(&mut tally, &mut ledger);
        tally.report(surroundings(ledger))
    }

    #[test]
    fn a_run_is_told_as_text() {
        let text = report(|tally, _| tally.refused(429, "rate_limited".to_owned())).to_string();
        assert_eq!(
            text,
            "machine     a processor, 2 cores, a kernel\n\
             load        2 connections, 1 tenants, 5 agents, 7 distinct asks, 2.0 s\n\
             throughput  2 answers/s\n\
             latency     p50 2.000 ms   p95 3.001 ms   p99 3.001 ms   p99.9 3.001 ms   max 3.001 ms\n\
             processor   generator 0.25 cores, gateway unknown\n\
             memory      gateway 28 MiB\n\
             decisions   allow 2, deny 1\n\
             repeats     0, 0 of them answered otherwise\n\
             refused     rate_limited 1\n\
             errors      0 without an answer, 0 unexpected decisions\n\
             ledger      verified, 10 entries checked; 3 decisions answered, 3 recorded"
        );
    }

    #[test]
    fn a_good_run_has_no_faults_and_refusals_are_none() {
        assert!(report(|_, _| ()).faults().is_empty());
        assert!(
            report(|tally, _| tally.refused(429, "rate_limited".to_owned()))
                .faults()
                .is_empty()
        );
    }

    #[test]
    fn a_decision_too_few_or_too_many_in_the_ledger_is_a_fault() {
        for recorded in [2, 4] {
            let faults = report(|_, ledger| ledger.recorded = recorded).faults();
            assert_eq!(
                faults,
                [format!(
                    "3 decisions were answered (0 more asks are uncertain) and {recorded} are recorded"
                )]
            );
        }
    }

    #[test]
    fn an_ask_whose_fate_is_unknown_may_be_recorded_or_not() {
        for recorded in [3, 4] {
            let faults = report(|tally, ledger| {
                tally.refused(503, "ledger_unavailable".to_owned());
                ledger.recorded = recorded;
            });
            assert!(faults.faults().is_empty());
        }
    }

    #[test]
    fn an_unverified_ledger_an_error_and_a_wrong_decision_are_faults() {
        assert_eq!(
            report(|_, ledger| ledger.verified = false).faults(),
            ["the ledger does not verify"]
        );
        assert_eq!(
            report(|tally, _| tally.failed(false)).faults(),
            ["1 asks got no answer"]
        );
        let faults = report(|tally, ledger| {
            tally.decided(Verdict::Allow, Verdict::Deny);
            ledger.recorded = 4;
        });
        assert_eq!(
            faults.faults(),
            ["1 decisions are not those of the base policies"]
        );
    }

    #[test]
    fn repeats_are_answers_and_no_entries_and_have_to_be_the_same() {
        let good = report(|tally, _| tally.repeated(true));
        assert_eq!((good.faults(), good.outcomes.repeats), (Vec::new(), 1));
        assert_eq!(
            report(|tally, _| tally.repeated(false)).faults(),
            ["1 asks that were sent again did not get the bytes of their first answer"]
        );
        assert_eq!(
            report(|tally, _| tally.failed(true)).outcomes.uncertain,
            0,
            "its entry is there already"
        );
    }

    #[test]
    fn a_bucket_admits_as_many_as_it_holds() {
        let with = |bucket| {
            let mut report = report(|_, _| ());
            report.setting = Setting {
                agents: 1,
                bucket: Some(bucket),
                ..report.setting
            };
            report.faults()
        };
        assert!(with(3).is_empty());
        assert_eq!(with(2), ["3 asks were admitted, and the buckets hold 2"]);
        assert_eq!(with(4), ["3 asks were admitted, and the buckets hold 4"]);
    }

    #[test]
    fn a_setting_that_cannot_be_is_refused() {
        assert!(Setting::default().check().is_ok());
        for setting in [
            Setting {
                agents: 0,
                ..Setting::default()
            },
            Setting {
                repeats_percent: 100,
                ..Setting::default()
            },
            Setting {
                per_second: Some(0.0),
                ..Setting::default()
            },
            Setting {
                per_second: Some(f64::NAN),
                ..Setting::default()
            },
        ] {
            assert!(setting.check().is_err(), "{setting:?}");
        }
    }

    #[test]
    fn a_run_that_measured_nothing_is_a_fault() {
        let ledger = LedgerReport {
            verified: true,
            checked: 7,
            recorded: 0,
        };
        let report = Tally::new().report(surroundings(ledger));
        assert_eq!(report.faults(), ["nothing was measured"]);
    }
}
