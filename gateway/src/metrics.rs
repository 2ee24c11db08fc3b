//! What is counted. Every metric name of the gateway is in this file.

use crate::admission::Occupancy;
use crate::http::Code;
use model::{ReasonCode, Verdict};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    decision: &'static str,
    reason_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShadowLabels {
    decision: &'static str,
    shadow: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WitnessLabels {
    witness: String,
    outcome: &'static str,
}

impl WitnessLabels {
    /// Those of a witness with this name, which may be anything that its key is called.
    fn new(witness: &str, outcome: &'static str) -> Self {
        let witness = escaped(witness);
        Self { witness, outcome }
    }
}

/// A value of a label as it stands between its quotes: the library writes it there as it is, and with a quote in it
/// nothing of what is rendered could be read.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', r#"\""#);
    value.replace('\n', r"\n")
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetryLabels {
    cause: &'static str,
}

/// All metrics, and the registry that prints them.
pub struct Metrics {
    registry: Registry,
    decisions: Family<DecisionLabels, Counter>,
    shadow_differences: Family<ShadowLabels, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    repeats: Counter,
    slow_lane_asks: Counter,
    long_asks: Counter,
    mismatches: Counter,
    witness_checkpoints: Family<WitnessLabels, Counter>,
    witness_fork: Gauge,
    commit_seconds: Histogram,
    commit_entries: Histogram,
    batch_retries: Family<RetryLabels, Counter>,
    waiting: Gauge,
    asks: Gauge,
    asks_max: Gauge,
    event_streams: Gauge,
    search_behind: Gauge,
    erasure_behind: Gauge,
    healthy: Gauge,
    verified: Counter,
    unverified: Gauge,
    ledger_faults: Gauge,
    ledger_ahead: Gauge,
    database_bytes: Gauge,
    base_differs: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero, those of refusals for every code: whoever watches how a counter rises does not see it rise by the
    /// count with which it first appears.
    pub fn new() -> Self {
        // 64 µs to about 2 s: from a fast disk to one that is in trouble.
        let seconds = std::iter::successors(Some(0.000_064), |bound| Some(bound * 2.0)).take(16);
        let entries = std::iter::successors(Some(1.0), |bound| Some(bound * 2.0)).take(11);
        let mut metrics = Self {
            registry: Registry::with_prefix("countersign"),
            decisions: Family::default(),
            shadow_differences: Family::default(),
            refusals: Family::default(),
            repeats: Counter::default(),
            slow_lane_asks: Counter::default(),
            long_asks: Counter::default(),
            mismatches: Counter::default(),
            witness_checkpoints: Family::default(),
            witness_fork: Gauge::default(),
            commit_seconds: Histogram::new(seconds),
            commit_entries: Histogram::new(entries),
            batch_retries: Family::default(),
            waiting: Gauge::default(),
            asks: Gauge::default(),
            asks_max: Gauge::default(),
            event_streams: Gauge::default(),
            search_behind: Gauge::default(),
            erasure_behind: Gauge::default(),
            healthy: Gauge::default(),
            verified: Counter::default(),
            unverified: Gauge::default(),
            ledger_faults: Gauge::default(),
            ledger_ahead: Gauge::default(),
            database_bytes: Gauge::default(),
            base_differs: Gauge::default(),
        };
        metrics.register();
        for code in Code::ALL {
            let labels = RefusalLabels { code: code.as_str() };
            drop(metrics.refusals.get_or_create(&labels));
        }
        metrics
    }

    #[rustfmt::skip]
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("decisions", "Decisions that were recorded", self.decisions.clone());
        registry.register("shadow_differences", "Decisions that policies on trial would have made otherwise", self.shadow_differences.clone());
        registry.register("refusals", "Requests that were refused or failed", self.refusals.clone());
        registry.register("replays", "Asks that were answered with the bytes of an earlier answer", self.repeats.clone());
        registry.register("slow_lane_asks", "Asks that were let in, a batch once, of tenants that are refused at least as often as they are let in", self.slow_lane_asks.clone());
        registry.register("long_asks", "Times that an ask took long to be judged, because of its policies or parameters, and was judged on a thread that nobody else waits for", self.long_asks.clone());
        registry.register("outcome_mismatches", "Outcomes that differ from what was decided", self.mismatches.clone());
        registry.register("witness_checkpoints", "Checkpoints that were shown to witnesses, by what came of it", self.witness_checkpoints.clone());
        registry.register("witness_fork", "1 from when a witness has seen another ledger than the database has, 0 otherwise", self.witness_fork.clone());
        registry.register("commit_seconds", "Time to make a batch durable", self.commit_seconds.clone());
        registry.register("commit_entries", "Ledger entries in a batch", self.commit_entries.clone());
        registry.register("batch_retries", "Batches that were made again, each time they were, by why", self.batch_retries.clone());
        registry.register("sequencer_waiting", "Asks and other things of agents, long ones counted as several, and changes, that wait to be recorded", self.waiting.clone());
        registry.register("asks", "Asks that are being answered", self.asks.clone());
        registry.register("asks_max", "How many asks may be answered at once, at the pace of the last tenth of a second", self.asks_max.clone());
        registry.register("event_streams", "Streams of events that are open", self.event_streams.clone());
        registry.register("search_behind_entries", "Entries of finished blocks that were not in the search index when it was last looked at, or only as an earlier version had put them", self.search_behind.clone());
        registry.register("erasure_behind_seconds", "How long what is still to be erased by a setting has been old, of the ledger where that is longest", self.erasure_behind.clone());
        registry.register("database_bytes", "Size of the database", self.database_bytes.clone());
        registry.register("base_policies_differ", "1 while another gateway was the last to put base policies in force, and they are others", self.base_differs.clone());
        registry.register("ledger_verified_entries", "Entries that were verified without being asked, each time they were", self.verified.clone());
        registry.register("ledger_unverified_entries", "Entries that were never verified since the start", self.unverified.clone());
        registry.register("ledger_faults", "Ledgers that are not what was recorded", self.ledger_faults.clone());
        registry.register("ledger_ahead_seconds", "How far the ledger that is furthest ahead is ahead of the clock", self.ledger_ahead.clone());
        registry.register("ledger_healthy", "1 while the ledger can be written, 0 otherwise", self.healthy.clone());
    }

    /// Counts a decision.
    pub fn count_decision(&self, reason: ReasonCode) {
        let labels = DecisionLabels {
            decision: reason.verdict().as_str(),
            reason_code: reason.as_str(),
        };
        self.decisions.get_or_create(&labels).inc();
    }

    /// Counts a decision that policies on trial would have made otherwise.
    pub fn count_shadow_difference(&self, decision: Verdict, shadow: Verdict) {
        let labels = ShadowLabels {
            decision: decision.as_str(),
            shadow: shadow.as_str(),
        };
        self.shadow_differences.get_or_create(&labels).inc();
    }

    /// Counts a refusal or a fault.
    pub fn count_refusal(&self, code: Code) {
        self.refusals
            .get_or_create(&RefusalLabels { code: code.as_str() })
            .inc();
    }

    /// Counts an ask that was answered with the bytes of an earlier answer.
    pub fn count_repeat(&self) {
        self.repeats.inc();
    }

    /// Counts an ask of a tenant that floods the gateway, which was let in all the same.
    pub fn count_slow_lane(&self) {
        self.slow_lane_asks.inc();
    }

    /// An ask takes long to be judged.
    pub fn count_long_ask(&self) {
        self.long_asks.inc();
    }

    /// Counts an outcome that differs from what was decided.
    pub fn count_mismatch(&self) {
        self.mismatches.inc();
    }

    /// Shows what may come of checkpoints that are shown to this witness, all at zero.
    pub fn show_witness(&self, witness: &str) {
        for outcome in ["cosigned", "failed", "forked"] {
            let labels = WitnessLabels::new(witness, outcome);
            drop(self.witness_checkpoints.get_or_create(&labels));
        }
    }

    /// Counts a checkpoint that was shown to a witness.
    pub fn count_witness(&self, witness: &str, outcome: &'static str) {
        let labels = WitnessLabels::new(witness, outcome);
        self.witness_checkpoints.get_or_create(&labels).inc();
    }

    /// Notes that a witness has seen another ledger.
    pub fn set_witness_fork(&self) {
        self.witness_fork.set(1);
    }

    /// Notes how long a commit took and how much was in it.
    pub fn observe_commit(&self, entries: usize, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.commit_entries
            .observe(f64::from(u32::try_from(entries).unwrap_or(u32::MAX)));
    }

    /// Counts a batch that is made again, by why it is.
    pub fn count_batch_retry(&self, cause: &'static str) {
        self.batch_retries.get_or_create(&RetryLabels { cause }).inc();
    }

    /// Counts entries that were verified.
    pub fn count_verified(&self, entries: u64) {
        self.verified.inc_by(entries);
    }

    /// Notes how many entries were never verified.
    pub fn set_unverified(&self, entries: u64) {
        self.unverified.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// Notes how many ledgers have a fault.
    pub fn set_ledger_faults(&self, ledgers: usize) {
        self.ledger_faults.set(i64::try_from(ledgers).unwrap_or(i64::MAX));
    }

    /// Notes how far the ledger that is furthest ahead is ahead of the clock.
    pub fn set_ledger_ahead(&self, ahead: Duration) {
        self.ledger_ahead
            .set(i64::try_from(ahead.as_secs()).unwrap_or(i64::MAX));
    }

    /// Notes how large the database is.
    pub fn set_database_bytes(&self, bytes: u64) {
        self.database_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Notes how many asks are being answered, and how many may be.
    pub fn set_asks(&self, places: Occupancy) {
        self.asks.set(i64::try_from(places.taken).unwrap_or(i64::MAX));
        self.asks_max.set(i64::try_from(places.max).unwrap_or(i64::MAX));
    }

    /// Notes how many streams of events are open.
    pub fn set_event_streams(&self, streams: usize) {
        self.event_streams.set(i64::try_from(streams).unwrap_or(i64::MAX));
    }

    /// Notes how many entries are not in the search index that could be.
    pub fn set_search_behind(&self, entries: u64) {
        self.search_behind.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// Notes for how long something has been old that is still to be erased.
    pub fn set_erasure_behind(&self, behind: Duration) {
        self.erasure_behind
            .set(i64::try_from(behind.as_secs()).unwrap_or(i64::MAX));
    }

    /// Notes whether other base policies are in force here than were put in force last.
    pub fn set_base_differs(&self, differs: bool) {
        self.base_differs.set(i64::from(differs));
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn render(&self, waiting: usize, healthy: bool) -> String {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.healthy.set(i64::from(healthy));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worth_an_alert_is_there_before_it_is_counted() {
        let metrics = Metrics::new();
        metrics.show_witness("witness.example");
        let text = metrics.render(0, true);
        for line in [
            r#"countersign_refusals_total{code="ledger_unavailable"} 0"#,
            r#"countersign_refusals_total{code="internal"} 0"#,
            r#"countersign_witness_checkpoints_total{witness="witness.example",outcome="cosigned"} 0"#,
            r#"countersign_witness_checkpoints_total{witness="witness.example",outcome="failed"} 0"#,
            r#"countersign_witness_checkpoints_total{witness="witness.example",outcome="forked"} 0"#,
            "countersign_outcome_mismatches_total 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_witness_can_be_called_by_what_ends_a_label() {
        let metrics = Metrics::new();
        metrics.show_witness("a\"b\\c\nd");
        metrics.count_witness("a\"b\\c\nd", "forked");
        let text = metrics.render(0, true);
        for line in [
            r#"countersign_witness_checkpoints_total{witness="a\"b\\c\nd",outcome="cosigned"} 0"#,
            r#"countersign_witness_checkpoints_total{witness="a\"b\\c\nd",outcome="forked"} 1"#,
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line}\n{text}");
        }
    }

    #[test]
    fn metrics_that_were_counted_are_rendered() {
        let metrics = Metrics::new();
        metrics.count_decision(ReasonCode::PolicyForbids);
        metrics.count_refusal(Code::RateLimited);
        metrics.observe_commit(3, Duration::from_millis(1));
        metrics.count_batch_retry("head_moved");
        let text = metrics.render(7, true);
        for line in [
            r#"countersign_decisions_total{decision="deny",reason_code="policy_forbids"} 1"#,
            r#"countersign_refusals_total{code="rate_limited"} 1"#,
            "countersign_commit_entries_sum 3.0",
            r#"countersign_batch_retries_total{cause="head_moved"} 1"#,
            "countersign_sequencer_waiting 7",
            "countersign_ledger_healthy 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
