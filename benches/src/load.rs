//! Closed-loop load: so many connections, each asking again as soon as it has its answer, then a look at the ledger.
//!
//! All connections share one thread with the counting, which leaves as much of a small machine as possible to the
//! gateway. There is no open loop (a fixed rate of arrivals) and no pipelining: an agent waits for its answer.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::task::LocalSet;

use crate::client::{Client, Decision};
use crate::http::{Connection, Request};

mod asks;
pub mod report;
mod tally;

use asks::Ask;
pub use report::{LedgerReport, Report, Setting};
use tally::Tally;

/// How long after the end of the run the last answers may still come. A gateway that is later hangs.
const GRACE: Duration = Duration::from_secs(30);

/// A run: what, how long, against which gateway.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Where the gateways listen, all over one database. Connections are spread over them in turn.
    pub addresses: &'a [SocketAddr],
    /// An operator key of theirs: the run makes tenants of its own.
    pub operator_key: &'a str,
    /// How many of everything.
    pub setting: Setting,
    /// Time before the clock starts; asks are counted but not timed.
    pub warm_up: Duration,
    /// Time that is measured.
    pub measured: Duration,
}

/// Everything the connections share.
struct Course {
    addresses: Vec<SocketAddr>,
    authorizations: Vec<String>,
    asks: Vec<Ask>,
    measured_from: Instant,
    end: Instant,
    tally: RefCell<Tally>,
}

/// Sets a tenant up, asks until the time is over, then compares the ledger with what was answered.
pub async fn run(plan: Plan<'_>) -> Result<Report> {
    let Setting {
        connections,
        tenants,
        agents,
        distinct,
    } = plan.setting;
    ensure!(
        connections > 0 && tenants > 0 && agents > 0 && distinct > 0,
        "a load needs a connection, a tenant, an agent and an ask"
    );
    let first = *plan.addresses.first().context("a load needs a gateway")?;
    let mut operators = Vec::with_capacity(tenants);
    let mut authorizations = vec![String::new(); agents];
    for number in 0..tenants {
        let mut operator = Client::open(first, plan.operator_key).await?;
        operator
            .create_tenant(&format!("load-{}-{number}", std::process::id()))
            .await?;
        operator.put_tool(asks::TOOL, &asks::actions()).await?;
        // Agents in turn are of tenants in turn.
        for agent in (number..agents).step_by(tenants) {
            let token = operator
                .create_agent(&format!("agent-{agent}"), asks::TOOL)
                .await?;
            authorizations[agent] = format!("Bearer {token}");
        }
        operators.push(operator);
    }
    until_known(plan.addresses, &authorizations).await?;
    let mut seq_before = 0;
    for operator in &mut operators {
        seq_before += operator.head().await?.seq;
    }

    let measured_from = Instant::now() + plan.warm_up;
    let course = Rc::new(Course {
        addresses: plan.addresses.to_vec(),
        authorizations,
        asks: asks::asks(distinct),
        measured_from,
        end: measured_from + plan.measured,
        tally: RefCell::default(),
    });
    ask_on_all(&course, connections).await?;
    let seconds = measured_from.elapsed().as_secs_f64();

    let mut ledger = LedgerReport {
        verified: true,
        checked: 0,
        recorded: 0,
    };
    for operator in &mut operators {
        let verification = operator.verify().await?;
        ledger.verified &= verification.verified;
        ledger.checked += verification.checked;
        ledger.recorded += verification.head.seq;
    }
    ledger.recorded -= seq_before;
    let tally = Rc::into_inner(course)
        .context("a connection is still asking")?
        .tally
        .into_inner();
    Ok(tally.report(plan.setting, seconds, ledger))
}

/// Waits until every gateway has heard of every agent.
async fn until_known(addresses: &[SocketAddr], authorizations: &[String]) -> Result<()> {
    let deadline = Instant::now() + GRACE;
    for address in addresses {
        let mut connection = Connection::open(*address).await?;
        for authorization in authorizations {
            let headers = [("Authorization", &**authorization)];
            let request = Request {
                method: "GET",
                path: "/v1/whoami",
                headers: &headers,
                body: b"",
            };
            while connection.send(request).await?.status != 200 {
                ensure!(
                    Instant::now() < deadline,
                    "`{address}` does not learn of the agents"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    Ok(())
}

async fn ask_on_all(course: &Rc<Course>, connections: usize) -> Result<()> {
    let local = LocalSet::new();
    let askers: Vec<_> = (0..connections)
        .map(|number| local.spawn_local(ask_until_end(course.clone(), number)))
        .collect();
    let all = local.run_until(async {
        for asker in askers {
            asker.await.context("a connection panicked")??;
        }
        Ok(())
    });
    let patience = course.end.saturating_duration_since(Instant::now()) + GRACE;
    tokio::time::timeout(patience, all)
        .await
        .context("the gateway does not answer any more")?
}

/// One connection: ask, wait for the answer, count it, ask again. Agents and asks are taken in turn.
async fn ask_until_end(course: Rc<Course>, number: usize) -> Result<()> {
    let address = course.addresses[number % course.addresses.len()];
    let mut connection = Connection::open(address).await?;
    let mut body = Vec::new();
    for turn in 0.. {
        let ask = &course.asks[(number + turn) % course.asks.len()];
        // Another stride than that of the asks, so that every agent comes to send every kind of them.
        let authorization = &*course.authorizations[(2 * number + turn) % course.authorizations.len()];
        ask.write(number, turn, &mut body);
        let headers = [("Authorization", authorization)];
        let request = Request {
            method: "POST",
            path: "/v1/authorize",
            headers: &headers,
            body: &body,
        };

        let began = Instant::now();
        if began >= course.end {
            break;
        }
        let Ok(answer) = connection.send(request).await else {
            course.tally.borrow_mut().failed();
            connection = Connection::open(address).await?;
            continue;
        };
        let took = began.elapsed();
        let mut tally = course.tally.borrow_mut();
        if answer.status != 200 {
            tally.refused(answer.status, refusal_code(answer.status, answer.body));
            continue;
        }
        let decision: Decision = serde_json::from_slice(answer.body).context("reading a decision")?;
        tally.decided(decision.decision, ask.expected);
        if began >= course.measured_from {
            tally.time(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }
    Ok(())
}

/// The stable code of a refusal, or its status where something else than the gateway answered.
fn refusal_code(status: u16, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
    }
    serde_json::from_slice(body).map_or_else(|_| format!("status {status}"), |problem: Problem| problem.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_named_by_its_code_and_by_its_status_without_one() {
        assert_eq!(
            refusal_code(429, br#"{"code":"rate_limited","status":429}"#),
            "rate_limited"
        );
        assert_eq!(refusal_code(502, b"<html>"), "status 502");
    }
}
