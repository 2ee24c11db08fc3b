//! Counting while a run goes on: one tally for all connections, which share a thread.
//!
//! It knows what an outcome is, and leaves what makes a run good or bad to the report.

use hdrhistogram::Histogram;
use model::Verdict;

use super::report::{Latency, LedgerReport, Outcomes, Report, Setting};

/// Latencies are kept to three digits up to a minute; a slower answer counts as a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Counts while the run goes on. One for all connections: they share a thread.
#[derive(Debug)]
pub(super) struct Tally {
    latency_us: Histogram<u64>,
    outcomes: Outcomes,
}

impl Tally {
    /// Nothing counted yet.
    pub(super) fn new() -> Self {
        let latency_us =
            Histogram::new_with_max(LATENCY_US_MAX, 3).expect("the bounds are constants and fit");
        Self {
            latency_us,
            outcomes: Outcomes::default(),
        }
    }

    /// Counts the time that a decision took.
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

    /// Counts an ask whose answer did not arrive.
    pub(super) fn failed(&mut self) {
        self.outcomes.errors += 1;
        self.outcomes.uncertain += 1;
    }

    /// The result, once the ledger has been looked at.
    pub(super) fn report(self, setting: Setting, seconds: f64, ledger: LedgerReport) -> Report {
        let milliseconds = |percentile| micros_to_ms(self.latency_us.value_at_percentile(percentile));
        let latency_ms = Latency {
            p50: milliseconds(50.0),
            p95: milliseconds(95.0),
            p99: milliseconds(99.0),
            max: micros_to_ms(self.latency_us.max()),
        };
        let measured = self.latency_us.len();
        Report {
            setting,
            seconds,
            measured,
            per_second: per_second(measured, seconds),
            latency_ms,
            outcomes: self.outcomes,
            ledger,
        }
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
