//! Counting while a run goes on: one tally for all connections, which share a thread.
//!
//! It knows what an outcome is, and leaves what makes a run good or bad to the report.

use hdrhistogram::Histogram;
use model::Verdict;

use super::report::{Latency, Outcomes, Report, Surroundings};

/// Latencies are kept to three digits up to a minute; a slower answer counts as a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Counts while the run goes on. One for all connections: they share a thread.
#[derive(Debug)]
pub(super) struct Tally {
    latency_us: Histogram<u64>,
    refusal_us: Histogram<u64>,
    outcomes: Outcomes,
}

impl Tally {
    /// Nothing counted yet.
    pub(super) fn new() -> Self {
        let times = || Histogram::new_with_max(LATENCY_US_MAX, 3).expect("the bounds are constants and fit");
        Self {
            latency_us: times(),
            refusal_us: times(),
            outcomes: Outcomes::default(),
        }
    }

    /// Counts the time that a refusal took.
    pub(super) fn time_refusal(&mut self, micros: u64) {
        self.refusal_us.saturating_record(micros);
    }

    /// Counts the time that an answer took.
    pub(super) fn time(&mut self, micros: u64) {
        self.latency_us.saturating_record(micros);
    }

    /// Counts a decision.
    pub(super) fn decided(&mut self, verdict: Verdict, expected: Verdict) {
        *self.outcomes.decisions.entry(verdict.as_str()).or_default() += 1;
        self.outcomes.unexpected += u64::from(verdict != expected);
    }

    /// Counts a refusal (4xx) or a fault (5xx). A fault may have been recorded before it was told.
    pub(super) fn refused(&mut self, status: u16, code: String) {
        *self.outcomes.refused.entry(code).or_default() += 1;
        self.outcomes.uncertain += u64::from(status >= 500);
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
            setting,
            seconds,
            cpu,
            gateway_mib,
            ledger,
        } = surroundings;
        let measured = self.latency_us.len();
        Report {
            machine,
            setting,
            seconds,
            measured,
            per_second: per_second(measured, seconds),
            latency_ms: latency(&self.latency_us),
            refusal_ms: (!self.refusal_us.is_empty()).then(|| latency(&self.refusal_us)),
            cpu,
            gateway_mib,
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
