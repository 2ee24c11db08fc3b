//! Counting while a run goes on: one tally for all connections, which share a thread.
//!
//! It knows what an outcome is, and leaves what makes a run good or bad to the report.

use std::time::Instant;

use hdrhistogram::Histogram;
use model::Verdict;

use super::report::{Latency, Outcomes, Report, Steadiness, Stretch, Surroundings};

/// Latencies are kept to three digits up to a minute; a slower answer counts as a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// What a gateway answers that has no room.
const UNAVAILABLE: u16 = 503;
/// How it is told that the queue is full.
pub(super) const OVERLOADED: &str = "overloaded";

/// Counts while the run goes on. One for all connections: they share a thread.
#[derive(Debug)]
pub(super) struct Tally {
    latency_us: Histogram<u64>,
    refusal_us: Histogram<u64>,
    shed_us: Histogram<u64>,
    /// From when an ask was due to sending it.
    waited_us: Histogram<u64>,
    /// How many of the answers came before the end.
    in_time: u64,
    wal_mib_max: Option<f64>,
    /// What was answered since the last stretch, and how many asks were not.
    stretch_us: Histogram<u64>,
    stretch_refusals: u64,
    stretch_wal_mib: Option<f64>,
    stretches: Vec<Stretch>,
    outcomes: Outcomes,
}

impl Tally {
    /// Nothing counted yet.
    pub(super) fn new() -> Self {
        let times = || Histogram::new_with_max(LATENCY_US_MAX, 3).expect("the bounds are constants and fit");
        Self {
            latency_us: times(),
            refusal_us: times(),
            shed_us: times(),
            waited_us: times(),
            in_time: 0,
            wal_mib_max: None,
            stretch_us: times(),
            stretch_refusals: 0,
            stretch_wal_mib: None,
            stretches: Vec::new(),
            outcomes: Outcomes::default(),
        }
    }

    /// Counts the time that a refusal took.
    pub(super) fn time_refusal(&mut self, status: u16, micros: u64) {
        let times = if status == UNAVAILABLE {
            &mut self.shed_us
        } else {
            &mut self.refusal_us
        };
        times.saturating_record(micros);
        self.stretch_refusals += 1;
    }

    /// Counts the time that an answer took, and whether it came before the end.
    pub(super) fn time(&mut self, micros: u64, is_in_time: bool) {
        self.latency_us.saturating_record(micros);
        self.stretch_us.saturating_record(micros);
        self.in_time += u64::from(is_in_time);
    }

    /// Counts the time that an ask which was due has waited until it was sent: for a free connection, or for the generator.
    pub(super) fn waited(&mut self, due: Instant, measured_from: Instant) {
        if due >= measured_from {
            let micros = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.waited_us.saturating_record(micros);
        }
    }

    /// Notes how long the write-ahead log is.
    pub(super) fn note_wal(&mut self, mib: Option<f64>) {
        for max in [&mut self.wal_mib_max, &mut self.stretch_wal_mib] {
            *max = [*max, mib].into_iter().flatten().reduce(f64::max);
        }
    }

    /// Ends a stretch of the run, after which the gateway has so much memory. Returns how many there are now, and this one.
    pub(super) fn end_stretch(&mut self, gateway_mib: Option<f64>) -> (usize, Stretch) {
        let stretch = Stretch {
            answers: self.stretch_us.len(),
            refusals: std::mem::take(&mut self.stretch_refusals),
            latency_ms: latency(&self.stretch_us),
            gateway_mib,
            wal_mib_max: self.stretch_wal_mib.take(),
        };
        self.stretch_us.reset();
        self.stretches.push(stretch);
        (self.stretches.len(), stretch)
    }

    /// Counts a decision.
    pub(super) fn decided(&mut self, verdict: Verdict, expected: Verdict) {
        *self.outcomes.decisions.entry(verdict.as_str()).or_default() += 1;
        self.outcomes.unexpected += u64::from(verdict != expected);
    }

    /// Counts a refusal (4xx) or a fault (5xx). A fault may have been recorded before it was told, but what found no
    /// room was not.
    pub(super) fn refused(&mut self, status: u16, code: String) {
        self.outcomes.uncertain += u64::from(status >= 500 && code != OVERLOADED);
        *self.outcomes.refused.entry(code).or_default() += 1;
    }

    /// Counts an ask that was sent again, and whether it got the same bytes again.
    pub(super) fn repeated(&mut self, is_same: bool) {
        self.outcomes.repeats += u64::from(is_same);
        self.outcomes.repeats_different += u64::from(!is_same);
    }

    /// Counts a refusal of an ask that was answered before: what it has in the ledger is known.
    pub(super) fn refused_again(&mut self, code: String) {
        *self.outcomes.refused.entry(code).or_default() += 1;
    }

    /// Counts an ask whose answer did not arrive; `again` if it had been answered before.
    pub(super) fn failed(&mut self, again: bool) {
        self.outcomes.errors += 1;
        self.outcomes.uncertain += u64::from(!again);
    }

    /// The result, once the ledger has been looked at.
    pub(super) fn report(self, surroundings: Surroundings) -> Report {
        let Surroundings {
            machine,
            door,
            setting,
            seconds,
            planned_seconds,
            unsent,
            cpu,
            gateway_idle_mib,
            gateway_mib,
            ledger,
        } = surroundings;
        let measured = self.latency_us.len();
        Report {
            machine,
            door,
            setting,
            seconds,
            measured,
            per_second: per_second(measured, seconds),
            in_time_per_second: per_second(self.in_time, planned_seconds),
            capacity: None,
            latency_ms: latency(&self.latency_us),
            refusal_ms: latency_of_any(&self.refusal_us),
            shed: self.shed_us.len(),
            shed_ms: latency_of_any(&self.shed_us),
            waited_ms: setting.per_second.and_then(|_| latency_of_any(&self.waited_us)),
            unsent,
            cpu,
            gateway_idle_mib,
            gateway_mib,
            wal_mib_max: self.wal_mib_max,
            steadiness: Steadiness::of(&self.stretches),
            stretches: self.stretches,
            outcomes: self.outcomes,
            ledger,
        }
    }
}

fn latency(micros: &Histogram<u64>) -> Latency {
    let milliseconds = |percentile| micros_to_ms(micros.value_at_percentile(percentile));
    Latency {
        p50: milliseconds(50.0),
        p95: milliseconds(95.0),
        p99: milliseconds(99.0),
        p999: milliseconds(99.9),
        max: micros_to_ms(micros.max()),
    }
}

fn latency_of_any(micros: &Histogram<u64>) -> Option<Latency> {
    (!micros.is_empty()).then(|| latency(micros))
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of asks is far below 2^52")]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a minute of microseconds is far below 2^52"
)]
fn micros_to_ms(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}
