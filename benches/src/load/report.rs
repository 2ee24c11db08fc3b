//! What came of a run: how fast, which outcomes, whether the ledger agrees — as text for people and JSON for programs.
//!
//! It decides what makes a run a failure. It does not decide how fast is fast enough: that differs by machine.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::asks::Mix;
use super::tally::OVERLOADED;
use crate::address::Door;
use crate::http::Format;
use crate::machine::{Cpu, Machine};

/// How an ask is refused whose bucket is empty.
const RATE_LIMITED: &str = "rate_limited";

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
    /// What bodies and answers are written in.
    pub format: Format,
    /// How many asks are due in a second; without it, each connection asks as soon as it has its answer.
    pub per_second: Option<f64>,
    /// Whether asks that are due and not sent at the end are left out, and counted. More are due than anybody can answer.
    pub gives_up: bool,
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
            format: Format::Json,
            per_second: None,
            gives_up: false,
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

    /// Whether refusals with this code are what such a run is about: buckets that are used up, or asks that come
    /// whether there is room or not.
    fn expects(&self, code: &str) -> bool {
        match code {
            RATE_LIMITED => self.bucket.is_some(),
            OVERLOADED => self.per_second.is_some(),
            _ => false,
        }
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

/// A stretch of a run, as one minute of many.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Stretch {
    /// How many asks were answered in it, repeats included.
    pub answers: u64,
    /// How many were refused.
    pub refusals: u64,
    /// How long the answers took, in milliseconds.
    pub latency_ms: Latency,
    /// Mebibytes of memory that the gateway had at its end.
    pub gateway_mib: Option<f64>,
    /// The longest that the write-ahead log was, in mebibytes.
    pub wal_mib_max: Option<f64>,
}

/// How much the stretches of a run differ. The first is what the others are compared with: by then caches are warm.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Steadiness {
    /// Memory at the end of the last as a multiple of that at the end of the first.
    pub memory: Option<f64>,
    /// The 99th percentile of the last as a multiple of that of the first.
    pub p99: f64,
    /// The largest 99th percentile of any, as a multiple of that of the first.
    pub p99_max: f64,
}

impl Steadiness {
    /// That of these stretches, if there are two to compare.
    pub(super) fn of(stretches: &[Stretch]) -> Option<Self> {
        let [first, .., last] = stretches else { return None };
        let p99_max = stretches.iter().map(|stretch| stretch.latency_ms.p99);
        Some(Self {
            memory: last
                .gateway_mib
                .zip(first.gateway_mib)
                .map(|(last, first)| last / first),
            p99: last.latency_ms.p99 / first.latency_ms.p99,
            p99_max: p99_max.fold(0.0, f64::max) / first.latency_ms.p99,
        })
    }
}

/// What there is to have, and what was had of it when more was asked for.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Capacity {
    /// Answers a second in the closed loop before.
    pub per_second: f64,
    /// Answers a second until the end of the run as a share of that.
    pub goodput: f64,
    /// What the generator and the gateway took in the closed loop, and what of the machine they could not have.
    pub cpu: Cpu,
}

/// What a run was, but for what its asks came to.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) machine: Machine,
    pub(super) door: Door,
    pub(super) setting: Setting,
    /// Until the last answer.
    pub(super) seconds: f64,
    /// Until no more asks were due.
    pub(super) planned_seconds: f64,
    pub(super) unsent: u64,
    pub(super) cpu: Cpu,
    pub(super) gateway_idle_mib: Option<f64>,
    pub(super) gateway_mib: Option<f64>,
    pub(super) ledger: LedgerReport,
}

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it was.
    pub machine: Machine,
    /// Which way asks came in.
    pub door: Door,
    /// What was asked of it.
    pub setting: Setting,
    /// How long was measured, after the warm-up.
    pub seconds: f64,
    /// Answers within that time, repeats included.
    pub measured: u64,
    /// Answers a second.
    pub per_second: f64,
    /// Answers a second that came before no more asks were due: what is late does not count.
    pub in_time_per_second: f64,
    /// What there is to have, if that was measured before.
    pub capacity: Option<Capacity>,
    /// How long they took, in milliseconds.
    pub latency_ms: Latency,
    /// How long refusals took, in milliseconds, if there were any. Those for want of room are apart.
    pub refusal_ms: Option<Latency>,
    /// How many asks were refused with 503, because there was no room or no time for them.
    pub shed: u64,
    /// How long that took, in milliseconds, if there were any.
    pub shed_ms: Option<Latency>,
    /// How long asks waited from when they were due until they were sent, in milliseconds: for a free connection or for
    /// the generator. Only where asks are due at fixed times; it is part of all other times.
    pub waited_ms: Option<Latency>,
    /// How many asks were due and not sent, because there was no connection free for them until the end.
    pub unsent: u64,
    /// What the generator and the gateway took, and what of the machine they could not have.
    pub cpu: Cpu,
    /// Mebibytes of memory that the gateway had before it was asked anything.
    pub gateway_idle_mib: Option<f64>,
    /// Mebibytes of memory that the gateway had at the end.
    pub gateway_mib: Option<f64>,
    /// The longest that its write-ahead log was, in mebibytes, if its database is SQLite.
    pub wal_mib_max: Option<f64>,
    /// The stretches of the run, if it had any that was whole.
    pub stretches: Vec<Stretch>,
    /// How much they differ, if there are two.
    pub steadiness: Option<Steadiness>,
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
        let refused = outcomes.refused.iter();
        faults.extend(
            refused
                .filter(|(code, _)| !self.setting.expects(code))
                .map(|(code, count)| format!("{count} asks were refused with `{code}`")),
        );
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

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.3} ms   p95 {:.3} ms   p99 {:.3} ms   p99.9 {:.3} ms   max {:.3} ms",
            self.p50, self.p95, self.p99, self.p999, self.max
        )
    }
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers, {} refusals", self.answers, self.refusals)?;
        write!(f, "{}", told(self.gateway_mib, ", ", " MiB"))?;
        write!(f, "{}", told(self.wal_mib_max, ", log ahead ", " MiB"))?;
        write!(f, "; {}", self.latency_ms)
    }
}

/// A number between its words, if it is known.
fn told(number: Option<f64>, before: &str, behind: &str) -> String {
    number.map_or_else(String::new, |number| format!("{before}{number:.0}{behind}"))
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
        writeln!(f, "door        {}, {}", self.door, setting.format)?;
        if let Some(rate) = setting.per_second {
            writeln!(f, "due         {rate} asks/s")?;
        }
        writeln!(f, "throughput  {:.0} answers/s", self.per_second)?;
        if let Some(Capacity {
            per_second,
            goodput,
            cpu,
        }) = self.capacity
        {
            writeln!(
                f,
                "capacity    {per_second:.0} answers/s in a closed loop; in time {:.0}/s, which is {goodput:.3} of it",
                self.in_time_per_second
            )?;
            writeln!(f, "  meanwhile {cpu}")?;
        }
        writeln!(f, "latency     {latency}")?;
        if let Some(refusals) = self.refusal_ms {
            writeln!(f, "refusals    {refusals}")?;
        }
        if let Some(shed) = self.shed_ms {
            writeln!(f, "shed        {shed}   ({} asks)", self.shed)?;
        }
        if let Some(waited) = self.waited_ms {
            writeln!(f, "waited      {waited}   ({} asks never sent)", self.unsent)?;
        }
        writeln!(f, "processor   {}", self.cpu)?;
        if let Some(mib) = self.gateway_mib {
            write!(f, "memory      gateway {mib:.0} MiB")?;
            writeln!(f, "{}", told(self.gateway_idle_mib, ", idle ", " MiB"))?;
        }
        for (number, stretch) in (1..).zip(&self.stretches) {
            writeln!(f, "stretch {number:<3} {stretch}")?;
        }
        if let Some(mib) = self.wal_mib_max {
            writeln!(f, "log ahead   {mib:.1} MiB at most")?;
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
            door: Door::Tcp,
            setting: Setting {
                connections: 2,
                agents: 5,
                distinct: 7,
                ..Setting::default()
            },
            seconds: 2.0,
            planned_seconds: 1.5,
            unsent: 0,
            cpu: Cpu {
                generator_cores: Some(0.25),
                gateway_cores: None,
                stolen_cores: Some(0.291),
                idle_cores: Some(0.4),
            },
            gateway_idle_mib: Some(12.2),
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
            tally.time(micros, micros < 3_000);
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
             door        TCP, JSON\n\
             throughput  2 answers/s\n\
             latency     p50 2.000 ms   p95 3.001 ms   p99 3.001 ms   p99.9 3.001 ms   max 3.001 ms\n\
             processor   generator 0.25 cores, gateway unknown; stolen 0.29 cores, idle 0.40 cores\n\
             memory      gateway 28 MiB, idle 12 MiB\n\
             decisions   allow 2, deny 1\n\
             repeats     0, 0 of them answered otherwise\n\
             refused     rate_limited 1\n\
             errors      0 without an answer, 0 unexpected decisions\n\
             ledger      verified, 10 entries checked; 3 decisions answered, 3 recorded"
        );
    }

    /// A run at a rate beyond the capacity, in two stretches.
    pub(in crate::load) fn overloaded() -> Report {
        let mut report = report(|tally, ledger| {
            tally.refused(503, "overloaded".to_owned());
            tally.time_refusal(503, 500);
            tally.note_wal(Some(1.0));
            tally.note_wal(Some(4.0));
            tally.end_stretch(Some(20.0));
            tally.time(6_000, true);
            tally.decided(Verdict::Allow, Verdict::Allow);
            tally.note_wal(Some(2.0));
            tally.end_stretch(Some(25.0));
            ledger.recorded = 4;
        });
        report.setting.per_second = Some(8.0);
        report.capacity = Some(Capacity {
            per_second: 4.0,
            goodput: report.in_time_per_second / 4.0,
            cpu: report.cpu,
        });
        report
    }

    #[test]
    fn what_is_shed_is_timed_apart_and_stretches_are_told_one_by_one() {
        let report = overloaded();
        assert_eq!(report.faults(), Vec::<String>::new());
        let text = report.to_string();
        for line in [
            "capacity    4 answers/s in a closed loop; in time 2/s, which is 0.500 of it",
            "  meanwhile generator 0.25 cores, gateway unknown; stolen 0.29 cores, idle 0.40 cores",
            "shed        p50 0.500 ms   p95 0.500 ms   p99 0.500 ms   p99.9 0.500 ms   max 0.500 ms   (1 asks)",
            "stretch 1   3 answers, 1 refusals, 20 MiB, log ahead 4 MiB; p50 2.000 ms   p95 3.001 ms   p99 3.001 ms   \
             p99.9 3.001 ms   max 3.001 ms",
            "stretch 2   1 answers, 0 refusals, 25 MiB, log ahead 2 MiB; p50 6.003 ms   p95 6.003 ms   p99 6.003 ms   \
             p99.9 6.003 ms   max 6.003 ms",
            "log ahead   4.0 MiB at most",
        ] {
            assert!(
                text.lines().any(|told| told == line),
                "`{line}` is not in\n{text}"
            );
        }
        assert!(!text.contains("refusals    p50"), "{text}");
    }

    #[test]
    fn stretches_are_compared_with_the_first() {
        let steadiness = overloaded().steadiness.unwrap();
        assert_eq!(steadiness.memory, Some(1.25));
        for p99 in [steadiness.p99, steadiness.p99_max] {
            assert!((1.99..2.01).contains(&p99), "{steadiness:?}");
        }
        assert!(report(|_, _| ()).steadiness.is_none());
    }

    #[test]
    fn what_found_no_room_is_not_recorded() {
        let mut report = report(|tally, ledger| {
            tally.refused(503, "overloaded".to_owned());
            ledger.recorded = 4;
        });
        report.setting.per_second = Some(8.0);
        assert_eq!(
            report.faults(),
            ["3 decisions were answered (0 more asks are uncertain) and 4 are recorded"]
        );
    }

    #[test]
    fn a_good_run_has_no_faults_and_refuses_nobody_but_whom_it_is_about() {
        assert!(report(|_, _| ()).faults().is_empty());
        let closed = Setting::default();
        let open = Setting {
            per_second: Some(8.0),
            ..closed
        };
        let limited = Setting {
            agents: 1,
            bucket: Some(3),
            ..closed
        };
        for (status, code, about) in [
            (429, "rate_limited", Some(limited)),
            (503, "overloaded", Some(open)),
            (401, "invalid_token", None),
        ] {
            for setting in [closed, open, limited] {
                let mut report = report(|tally, _| tally.refused(status, code.to_owned()));
                report.setting = setting;
                let is_about = about.is_some_and(|about| {
                    (about.bucket, about.per_second) == (setting.bucket, setting.per_second)
                });
                let expected = format!("1 asks were refused with `{code}`");
                let expected = if is_about { Vec::new() } else { vec![expected] };
                assert_eq!(report.faults(), expected, "{setting:?}");
            }
        }
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
            assert_eq!(faults.faults(), ["1 asks were refused with `ledger_unavailable`"]);
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
