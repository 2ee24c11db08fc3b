//! Load: so many connections that ask, then a look at the ledger.
//!
//! All connections share one thread with the counting, which leaves as much of a small machine as possible to the
//! gateway. There is no pipelining: an agent waits for its answer.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::LocalSet;

use crate::client::Client;
use crate::http::{Connection, Request};
use crate::machine::{self, Cpu, Machine};

mod asking;
mod asks;
mod profile;
pub mod report;
mod sla;
mod tally;

use asking::{Asker, Timetable};
use asks::Ask;
pub use asks::Mix;
pub use profile::Profile;
pub use report::{LedgerReport, Report, Setting};
pub use sla::Sla;
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
    /// The process of the gateway, if it is on this machine and there is one: what it takes is reported.
    pub gateway: Option<u32>,
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
    setting: Setting,
    timetable: Option<Timetable>,
    measured_from: Instant,
    end: Instant,
    /// How many asks have been begun.
    begun: Cell<u64>,
    tally: RefCell<Tally>,
}

impl Course {
    /// When the next ask is due; `None` if there is none.
    async fn next(&self) -> Option<Instant> {
        let begun = self.begun.get();
        if self.setting.asks_max.is_some_and(|max| begun >= max) {
            return None;
        }
        self.begun.set(begun + 1);
        if let Some(timetable) = &self.timetable {
            return timetable.next().await;
        }
        let now = Instant::now();
        // A run of so many asks ends with them, however long they take.
        let is_due = self.setting.asks_max.is_some() || now < self.end;
        is_due.then_some(now)
    }

    /// Takes the time since an ask was due, if that is measured.
    fn time(&self, due: Instant, take: impl FnOnce(u64)) {
        if due >= self.measured_from {
            take(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
    }
}

/// Sets a tenant up, asks until the time is over, then compares the ledger with what was answered.
pub async fn run(plan: Plan<'_>) -> Result<Report> {
    let setting = plan.setting;
    setting.check()?;
    let (mut operators, authorizations) = set_up(plan).await?;
    until_known(plan.addresses, &authorizations).await?;
    let mut seq_before = 0;
    for operator in &mut operators {
        seq_before += operator.head().await?.seq;
    }

    let asks = asks::asks(setting.distinct, setting.mix);
    let begin = Instant::now();
    let measured_from = begin + plan.warm_up;
    let end = measured_from + plan.measured;
    let course = Rc::new(Course {
        addresses: plan.addresses.to_vec(),
        authorizations,
        asks,
        setting,
        timetable: setting
            .per_second
            .map(|rate| Timetable::start(rate, begin, end))
            .transpose()?,
        measured_from,
        end,
        begun: Cell::new(0),
        tally: RefCell::default(),
    });
    let cpu = machine::CpuClock::start(plan.gateway);
    ask_on_all(&course, setting.connections).await?;
    let seconds = measured_from.elapsed().as_secs_f64();
    let cpu: Cpu = cpu.stop(begin.elapsed());
    let memory = plan.gateway.and_then(machine::resident_mib);

    let ledger = look_at_ledgers(&mut operators, seq_before).await?;
    let tally = Rc::into_inner(course)
        .context("a connection is still asking")?
        .tally
        .into_inner();
    Ok(tally.report(report::Surroundings {
        machine: Machine::here(),
        setting,
        seconds,
        cpu,
        gateway_mib: memory,
        ledger,
    }))
}

/// Makes the tenants and the agents: operators of each, and what each agent signs in with.
async fn set_up(plan: Plan<'_>) -> Result<(Vec<Client>, Vec<String>)> {
    let Setting {
        tenants,
        agents,
        bucket,
        ..
    } = plan.setting;
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
        for place in (number..agents).step_by(tenants) {
            let agent = operator
                .register_agent(&format!("agent-{place}"), asks::TOOL)
                .await?;
            if let Some(capacity) = bucket {
                operator.put_bucket(&agent.id, capacity).await?;
            }
            authorizations[place] = format!("Bearer {}", agent.token);
        }
        operators.push(operator);
    }
    Ok((operators, authorizations))
}

async fn look_at_ledgers(operators: &mut [Client], seq_before: u64) -> Result<LedgerReport> {
    let mut ledger = LedgerReport {
        verified: true,
        checked: 0,
        recorded: 0,
    };
    for operator in operators {
        let verification = operator.verify().await?;
        ledger.verified &= verification.verified;
        ledger.checked += verification.checked;
        ledger.recorded += verification.head.seq;
    }
    ledger.recorded -= seq_before;
    Ok(ledger)
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
        .map(|number| local.spawn_local(Asker::new(Rc::clone(course), number).run()))
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
