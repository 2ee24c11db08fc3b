//! Load on budgets: every operation timed at one caller, then lifecycles of reservations at many on one shared budget, and in the
//! end the books.
//!
//! It runs against a gateway on the same machine and decides what makes a run worthless: an error, or books that are
//! not what callers were told. How fast is fast enough it does not decide.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::LocalSet;

use crate::address::Address;
use crate::client::Client;
use crate::http::{Connection, Format, Request};
use crate::load::report::Latency;
use crate::load::{GRACE, HANGS};
use crate::machine::{Cpu, CpuClock};

/// Calls of each operation before it is timed.
const WARM_UP: usize = 50;
/// What there is. No run comes near it.
const ALLOCATED: i64 = 1 << 52;
/// What is held, and what of it is spent.
const HELD: i64 = 5;
const SPENT: i64 = 3;
/// Latencies are kept to three digits up to a minute; a slower answer counts as a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Where the gateway listens.
    pub address: &'a Address,
    /// An operator key of it: the run makes a tenant of its own.
    pub operator_key: &'a str,
    /// The process of the gateway, if it is known.
    pub gateway: Option<u32>,
    /// How often one caller makes each operation, after the warm-up.
    pub rounds: usize,
    /// How many callers there are at once then.
    pub connections: usize,
    /// For how long, the first tenth of which is not timed.
    pub measured: Duration,
}

/// The result of a run. Latencies are in milliseconds.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the generator and the gateway took of all that, and what of the machine they could not have.
    pub cpu: Cpu,
    /// Each operation at one caller.
    pub operations: BTreeMap<&'static str, Latency>,
    /// How much longer an ask with an estimate takes at one caller than one without, by their medians, in percent.
    pub estimate_costs_percent: f64,
    /// Callers at once.
    pub connections: usize,
    /// Reservations made and committed a second.
    pub lifecycles_per_second: f64,
    /// Both together.
    pub lifecycle: Latency,
    /// Whether the ledger verifies.
    pub verified: bool,
    /// What the budget says, and what callers were told.
    pub spent: [i64; 2],
    /// What is still held.
    pub reserved: i64,
}

/// Counts of one caller or of all of them.
struct Timed(Histogram<u64>);

impl Timed {
    fn new() -> Self {
        Self(Histogram::new_with_max(LATENCY_US_MAX, 3).expect("the bounds are constants and fit"))
    }

    fn note(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros);
    }

    fn latency(&self) -> Latency {
        let milliseconds = |percentile| ms(self.0.value_at_percentile(percentile));
        Latency {
            p50: milliseconds(50.0),
            p95: milliseconds(95.0),
            p99: milliseconds(99.0),
            p999: milliseconds(99.9),
            max: ms(self.0.max()),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a minute of microseconds is far below 2^52"
)]
fn ms(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

/// An agent on a connection of its own.
struct Agent {
    connection: Connection,
    authorization: String,
}

/// What is read of an answer.
#[derive(Deserialize)]
struct Told {
    id: Option<String>,
    decision: Option<String>,
    decision_id: Option<String>,
    action_hash: Option<String>,
}

impl Agent {
    async fn open(address: &Address, token: &str) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(address).await?,
            authorization: format!("Bearer {token}"),
        })
    }

    /// Sends one request, which has to succeed. Returns its answer and how long that took.
    async fn send(&mut self, method: &str, path: &str, body: &Value) -> Result<(Told, Duration)> {
        let headers = [("Authorization", &*self.authorization)];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let began = Instant::now();
        let request = Request {
            method,
            path,
            headers: &headers,
            format: Format::Json,
            body: body.as_bytes(),
        };
        let answer = self.connection.send(request).await?;
        let took = began.elapsed();
        ensure!(
            (200..300).contains(&answer.status),
            "{method} {path} was answered {}: {}",
            answer.status,
            String::from_utf8_lossy(answer.body)
        );
        let told = serde_json::from_slice(answer.body);
        Ok((
            told.with_context(|| format!("reading the answer of {method} {path}"))?,
            took,
        ))
    }

    async fn reserve(&mut self) -> Result<(String, Duration)> {
        let body = json!({"unit": "TOKENS", "amount": HELD});
        let (told, took) = self.send("POST", "/v1/reservations", &body).await?;
        Ok((told.id.context("a reservation has an id")?, took))
    }

    async fn settle(&mut self, id: &str, verb: &str, body: &Value) -> Result<Duration> {
        let path = format!("/v1/reservations/{id}/{verb}");
        Ok(self.send("POST", &path, body).await?.1)
    }

    async fn commit(&mut self, id: &str) -> Result<Duration> {
        self.settle(
            id,
            "commit",
            &json!({"actual": {"unit": "TOKENS", "amount": SPENT}}),
        )
        .await
    }

    async fn ask(&mut self, ask: &Value) -> Result<(Told, Duration)> {
        let (told, took) = self.send("POST", "/v1/authorize", ask).await?;
        ensure!(
            told.decision.as_deref() == Some("allow"),
            "an ask was not allowed"
        );
        Ok((told, took))
    }

    /// Every operation once, what each took, and what was spent by them. Operations take turns, so that whatever else the machine
    /// does meets all of them.
    async fn round(&mut self, number: usize) -> Result<(Vec<(&'static str, Duration)>, i64)> {
        let mut took = Vec::with_capacity(10);
        let (id, time) = self.reserve().await?;
        took.push(("reserve", time));
        took.push((
            "extend",
            self.settle(&id, "extend", &json!({"ttl_ms": 60_000})).await?,
        ));
        took.push(("commit", self.commit(&id).await?));
        let (id, _) = self.reserve().await?;
        took.push(("release", self.settle(&id, "release", &json!({})).await?));
        let usage = json!({"unit": "TOKENS", "amount": 1});
        took.push(("usage", self.send("POST", "/v1/usage", &usage).await?.1));
        took.push((
            "balances",
            self.send("GET", "/v1/balances", &Value::Null).await?.1,
        ));
        let plain = json!({
            "tool_call": {"tool": TOOL, "action": "read", "parameters": {"number": number}},
            "context": {"source_trust": "trusted_internal_unsigned"},
        });
        let mut costing = plain.clone();
        costing["estimate"] = json!({"unit": "TOKENS", "amount": HELD});
        took.push(("decide", self.send("POST", "/v1/decide", &costing).await?.1));
        // Which of the two comes first alternates.
        let mut told = None;
        let costing_first = number.is_multiple_of(2);
        for is_costing in [costing_first, !costing_first] {
            if is_costing {
                let (answer, time) = self.ask(&costing).await?;
                took.push(("ask with an estimate", time));
                told = Some(answer);
            } else {
                took.push(("ask", self.ask(&plain).await?.1));
            }
        }
        let told = told.context("one of both has an estimate")?;
        let id = told.decision_id.context("a decision has an id")?;
        let outcome = json!({
            "status": "succeeded", "executed_hash": told.action_hash, "actual": {"unit": "TOKENS", "amount": SPENT},
        });
        let path = format!("/v1/decisions/{id}/outcome");
        took.push(("outcome", self.send("POST", &path, &outcome).await?.1));
        Ok((took, SPENT + 1 + SPENT))
    }
}

/// The tool of the asks.
const TOOL: &str = "files";

/// Times everything, then compares the books with what was told.
pub async fn run(plan: Plan<'_>) -> Result<Report> {
    ensure!(
        plan.rounds > 0 && plan.connections > 0,
        "a load needs a round and a connection"
    );
    let mut operator = Client::open(plan.address, plan.operator_key).await?;
    operator
        .create_tenant(&format!("budgets-{}", std::process::id()))
        .await?;
    let actions = json!([{ "name": "read", "mutates_state": false, "risk": "low" }]);
    operator.put_tool(TOOL, &actions).await?;
    let token = operator.create_agent("spender", TOOL).await?;
    operator
        .create_budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": ALLOCATED}))
        .await?;

    let (began, cpu) = (Instant::now(), CpuClock::start(plan.gateway));
    let mut agent = Agent::open(plan.address, &token).await?;
    let mut timed: BTreeMap<&'static str, Timed> = BTreeMap::new();
    let mut told = 0;
    for number in 0..WARM_UP + plan.rounds {
        let round = tokio::time::timeout(GRACE, agent.round(number)).await;
        let (took, spent) = round.context(HANGS)??;
        told += spent;
        if number >= WARM_UP {
            for (operation, time) in took {
                timed.entry(operation).or_insert_with(Timed::new).note(time);
            }
        }
    }
    let operations: BTreeMap<_, _> = timed
        .iter()
        .map(|(name, timed)| (*name, timed.latency()))
        .collect();
    let estimate_costs_percent =
        (operations["ask with an estimate"].p50 / operations["ask"].p50 - 1.0) * 100.0;

    let lifecycles = Rc::new(RefCell::new((Timed::new(), 0)));
    let seconds = spend_on_all(plan, &token, &lifecycles).await?;
    let cpu = cpu.stop(began.elapsed());
    let (timed, many) = Rc::into_inner(lifecycles)
        .context("a caller is still spending")?
        .into_inner();
    told += many * SPENT;

    // It was silent for as long as all that took.
    operator.reconnect(plan.address).await?;
    let balance = operator.balance().await?;
    Ok(Report {
        cpu,
        operations,
        estimate_costs_percent,
        connections: plan.connections,
        lifecycles_per_second: per_second(timed.0.len(), seconds),
        lifecycle: timed.latency(),
        verified: operator.verify().await?.verified,
        spent: [balance.spent, told],
        reserved: balance.reserved,
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of lifecycles is far below 2^52"
)]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// Lets all callers spend until the time is over. Returns how long was timed, in seconds: until the last one was told.
async fn spend_on_all(plan: Plan<'_>, token: &str, lifecycles: &Rc<RefCell<(Timed, i64)>>) -> Result<f64> {
    let timed_from = Instant::now() + plan.measured / 10;
    let end = timed_from + plan.measured;
    let local = LocalSet::new();
    let mut callers = Vec::with_capacity(plan.connections);
    for _ in 0..plan.connections {
        let mut agent = Agent::open(plan.address, token).await?;
        let lifecycles = Rc::clone(lifecycles);
        callers.push(local.spawn_local(async move {
            loop {
                let began = Instant::now();
                if began >= end {
                    break;
                }
                let (id, reserved) = agent.reserve().await?;
                let committed = agent.commit(&id).await?;
                let (timed, many) = &mut *lifecycles.borrow_mut();
                *many += 1;
                // Also the last one of each caller, which ends later than that: it may be the slowest.
                if began >= timed_from {
                    timed.note(reserved + committed);
                }
            }
            anyhow::Ok(())
        }));
    }
    let all = local.run_until(async {
        for caller in callers {
            caller.await.context("a caller panicked")??;
        }
        anyhow::Ok(())
    });
    let patience = end.saturating_duration_since(Instant::now()) + GRACE;
    tokio::time::timeout(patience, all).await.context(HANGS)??;
    Ok(timed_from.elapsed().as_secs_f64())
}

impl Report {
    /// Everything that makes the run a failure; empty when it is none. An answer that is no success has ended it already.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.verified {
            faults.push("the ledger does not verify".to_owned());
        }
        let [spent, told] = self.spent;
        if spent != told || self.reserved != 0 {
            faults.push(format!(
                "callers were told of {told} spent, and the budget says {spent} with {} held",
                self.reserved
            ));
        }
        faults
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, latency: &Latency| {
            let Latency {
                p50, p95, p99, max, ..
            } = latency;
            writeln!(
                f,
                "{name:<22} p50 {p50:.3} ms   p95 {p95:.3} ms   p99 {p99:.3} ms   max {max:.3} ms"
            )
        };
        writeln!(f, "processor              {}", self.cpu)?;
        for (name, latency) in &self.operations {
            row(f, name, latency)?;
        }
        writeln!(
            f,
            "an estimate costs      {:.1} % of an ask without one",
            self.estimate_costs_percent
        )?;
        writeln!(
            f,
            "lifecycles             {:.0}/s at {} connections",
            self.lifecycles_per_second, self.connections
        )?;
        row(f, "lifecycle", &self.lifecycle)?;
        let [spent, told] = self.spent;
        let ledger = if self.verified { "verified" } else { "NOT VERIFIED" };
        write!(
            f,
            "books                  {ledger}; {spent} spent, {told} told, {} held",
            self.reserved
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(spent: [i64; 2], reserved: i64, verified: bool) -> Report {
        Report {
            cpu: CpuClock::start(None).stop(Duration::from_secs(1)),
            operations: BTreeMap::new(),
            estimate_costs_percent: 0.0,
            connections: 1,
            lifecycles_per_second: 1.0,
            lifecycle: Timed::new().latency(),
            verified,
            spent,
            reserved,
        }
    }

    #[test]
    fn books_that_are_not_what_was_told_make_a_run_worthless() {
        assert!(report([7, 7], 0, true).faults().is_empty());
        for broken in [
            report([6, 7], 0, true),
            report([7, 7], 1, true),
            report([7, 7], 0, false),
        ] {
            assert_eq!(broken.faults().len(), 1, "{broken}");
        }
    }
}
