//! What came of a run: how fast, which outcomes, whether the ledger agrees — as text for people and JSON for programs.
//!
//! It decides what makes a run a failure. It does not decide how fast is fast enough: that differs by machine.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

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
    /// How many different asks are sent in turn.
    pub distinct: usize,
}

/// Percentiles of the time from sending an ask to having its decision.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Half of the asks were answered within this.
    pub p50: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
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

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was asked of it.
    pub setting: Setting,
    /// How long was measured, after the warm-up.
    pub seconds: f64,
    /// Decisions within that time.
    pub measured: u64,
    /// Decisions a second.
    pub per_second: f64,
    /// How long they took, in milliseconds.
    pub latency_ms: Latency,
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
            latency_ms: latency,
            outcomes,
            ledger,
            ..
        } = self;
        writeln!(
            f,
            "load        {} connections, {} tenants, {} agents, {} distinct asks, {:.1} s",
            setting.connections, setting.tenants, setting.agents, setting.distinct, self.seconds
        )?;
        writeln!(f, "throughput  {:.0} decisions/s", self.per_second)?;
        writeln!(
            f,
            "latency     p50 {:.3} ms   p95 {:.3} ms   p99 {:.3} ms   max {:.3} ms",
            latency.p50, latency.p95, latency.p99, latency.max
        )?;
        writeln!(f, "decisions   {}", list(outcomes.decisions.iter()))?;
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
mod tests {
    use super::*;
    use crate::load::tally::Tally;
    use model::Verdict;

    fn report(change: impl FnOnce(&mut Tally, &mut LedgerReport)) -> Report {
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
        tally.report(
            Setting {
                connections: 2,
                tenants: 1,
                agents: 5,
                distinct: 7,
            },
            2.0,
            ledger,
        )
    }

    #[test]
    fn a_run_is_told_as_text() {
        let text = report(|tally, _| tally.refused(429, "rate_limited".to_owned())).to_string();
        assert_eq!(
            text,
            "load        2 connections, 1 tenants, 5 agents, 7 distinct asks, 2.0 s\n\
             throughput  2 decisions/s\n\
             latency     p50 2.000 ms   p95 3.001 ms   p99 3.001 ms   max 3.001 ms\n\
             decisions   allow 2, deny 1\n\
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
            report(|tally, _| tally.failed()).faults(),
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
    fn a_run_that_measured_nothing_is_a_fault() {
        let ledger = LedgerReport {
            verified: true,
            checked: 7,
            recorded: 0,
        };
        let report = Tally::new().report(
            Setting {
                connections: 1,
                tenants: 1,
                agents: 1,
                distinct: 1,
            },
            1.0,
            ledger,
        );
        assert_eq!(report.faults(), ["nothing was measured"]);
    }
}
