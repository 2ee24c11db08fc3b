//! Load: so many connections that ask, then a look at the ledger. And what one tenant notices of another's flood: [`fairness`].
//!
//! All connections share one thread with the counting, which leaves as much of a small machine as possible to the
//! gateway. There is no pipelining: an agent waits for its answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::task::LocalSet;

use crate::address::Address;
use crate::client::Client;
use crate::http::{Connection, Format, Request};
use crate::machine::{self, Cpu, Machine};
use crate::process::GatewayProcess;

mod asking;
mod asks;
pub mod fairness;
mod message;
mod profile;
pub mod report;
mod sla;
mod tally;
mod watch;

use asking::{Asker, Timetable};
use asks::Ask;
pub use asks::Mix;
pub use profile::Profile;
pub use report::{LedgerReport, Report, Setting};
pub use sla::Sla;
use tally::Tally;

/// How long after the end of the run the last answers may still come, and how long one caller alone waits for what it
/// asks for. A gateway that is later hangs.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
/// What is said of one that hangs.
pub(crate) const HANGS: &str = "the gateway does not answer any more";
/// How long approvals last that asks lead to: a week, which is the longest there is.
const APPROVAL_SECONDS: u32 = 604_800;

/// A run: what, how long, against which gateway.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Where the gateways listen, all over one database. Connections are spread over them in turn.
    pub addresses: &'a [Address],
    /// An operator key of theirs: the run makes tenants of its own.
    pub operator_key: &'a str,
    /// The gateway, if it was started here and there is one: what it takes is reported.
    pub gateway: Option<&'a GatewayProcess>,
    /// How many of everything.
    pub setting: Setting,
    /// Time before the clock starts; asks are counted but not timed.
    pub warm_up: Duration,
    /// Time that is measured.
    pub measured: Duration,
    /// How long the stretches are that are also reported one by one.
    pub stretch: Duration,
}

/// Everything the connections share.
struct Course {
    addresses: Vec<Address>,
    authorizations: Vec<String>,
    asks: Vec<Ask>,
    setting: Setting,
    timetable: Option<Timetable>,
    measured_from: Instant,
    end: Instant,
    /// How many asks have been begun.
    begun: Cell<u64>,
    /// How many were due and were left out.
    unsent: Cell<u64>,
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
            loop {
                let due = timetable.next().await?;
                if !self.setting.gives_up || Instant::now() < self.end {
                    return Some(due);
                }
                self.unsent.set(self.unsent.get() + 1);
            }
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
    Prepared::set_up(plan).await?.ask().await
}

/// A run whose tenants and agents are known to every gateway, and which has not begun.
pub struct Prepared<'a> {
    plan: Plan<'a>,
    operators: Vec<Client>,
    authorizations: Vec<String>,
    /// Entries that are in the ledgers already.
    seq_before: u64,
    idle_mib: Option<f64>,
}

impl<'a> Prepared<'a> {
    /// Sets the tenants of a run up.
    pub async fn set_up(plan: Plan<'a>) -> Result<Self> {
        plan.setting.check()?;
        let idle_mib = plan.gateway.and_then(GatewayProcess::resident_mib);
        let (mut operators, authorizations) = set_up(plan).await?;
        until_known(plan.addresses, &authorizations).await?;
        let mut seq_before = 0;
        for operator in &mut operators {
            seq_before += operator.head().await?.seq;
        }
        Ok(Self {
            plan,
            operators,
            authorizations,
            seq_before,
            idle_mib,
        })
    }

    /// Asks until the time is over, then compares the ledger with what was answered.
    pub async fn ask(mut self) -> Result<Report> {
        let plan = self.plan;
        let begin = Instant::now();
        let course = Rc::new(self.course(begin)?);
        let pid = plan.gateway.map(GatewayProcess::pid);
        let cpu = machine::CpuClock::start(pid);
        ask_on_all(&course, plan).await?;
        let seconds = course.measured_from.elapsed().as_secs_f64();
        let cpu: Cpu = cpu.stop(begin.elapsed());
        let gateway_mib = plan.gateway.and_then(GatewayProcess::resident_mib);

        let first = plan.addresses.first().context("a load needs a gateway")?;
        let ledger = look_at_ledgers(first, &mut self.operators, self.seq_before).await?;
        let course = Rc::into_inner(course).context("a connection is still asking")?;
        Ok(course.tally.into_inner().report(report::Surroundings {
            machine: Machine::here(),
            door: first.door(),
            setting: plan.setting,
            seconds,
            planned_seconds: plan.measured.as_secs_f64(),
            unsent: course.unsent.get(),
            cpu,
            gateway_idle_mib: self.idle_mib,
            gateway_mib,
            ledger,
        }))
    }

    fn course(&mut self, begin: Instant) -> Result<Course> {
        let Plan {
            setting,
            warm_up,
            measured,
            ..
        } = self.plan;
        let measured_from = begin + warm_up;
        let end = measured_from + measured;
        let timetable = setting
            .per_second
            .map(|rate| Timetable::start(rate, begin, end))
            .transpose()?;
        Ok(Course {
            addresses: self.plan.addresses.to_vec(),
            authorizations: std::mem::take(&mut self.authorizations),
            asks: asks::asks(setting.distinct, setting.mix, setting.format),
            setting,
            timetable,
            measured_from,
            end,
            begun: Cell::new(0),
            unsent: Cell::new(0),
            tally: RefCell::default(),
        })
    }
}

/// Makes the tenants and the agents: operators of each, and what each agent signs in with.
async fn set_up(plan: Plan<'_>) -> Result<(Vec<Client>, Vec<String>)> {
    let Setting {
        tenants,
        agents,
        bucket,
        ..
    } = plan.setting;
    let first = plan.addresses.first().context("a load needs a gateway")?;
    let mut operators = Vec::with_capacity(tenants);
    let mut authorizations = vec![String::new(); agents];
    for number in 0..tenants {
        let mut operator = Client::open(first, plan.operator_key).await?;
        operator
            .create_tenant(&format!("load-{}-{}", std::process::id(), next_tenant()))
            .await?;
        // What expires has an entry of its own, and the ledger is to grow by decisions only.
        let lasting = json!({ "approvals": { "expire_after_seconds": APPROVAL_SECONDS } });
        operator.set(&lasting).await?;
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

/// The number of a tenant, another one each time: several runs of one program may be about one gateway.
fn next_tenant() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

async fn look_at_ledgers(
    address: &Address,
    operators: &mut [Client],
    seq_before: u64,
) -> Result<LedgerReport> {
    let mut ledger = LedgerReport {
        verified: true,
        checked: 0,
        recorded: 0,
    };
    for operator in operators {
        // It was silent for as long as the run took, and while those before it were verified.
        operator.reconnect(address).await?;
        let verification = operator.verify().await?;
        ledger.verified &= verification.verified;
        ledger.checked += verification.checked;
        ledger.recorded += verification.head.seq;
    }
    ledger.recorded -= seq_before;
    Ok(ledger)
}

/// Waits until every gateway has heard of every agent.
async fn until_known(addresses: &[Address], authorizations: &[String]) -> Result<()> {
    let deadline = Instant::now() + GRACE;
    for address in addresses {
        let mut connection = Connection::open(address).await?;
        for authorization in authorizations {
            let headers = [("Authorization", &**authorization)];
            let request = Request {
                method: "GET",
                path: "/v1/whoami",
                headers: &headers,
                format: Format::Json,
                body: b"",
            };
            loop {
                let answer = tokio::time::timeout(GRACE, connection.send(request)).await;
                if answer.context(HANGS)??.status == 200 {
                    break;
                }
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

async fn ask_on_all(course: &Rc<Course>, plan: Plan<'_>) -> Result<()> {
    let local = LocalSet::new();
    let askers: Vec<_> = (0..plan.setting.connections)
        .map(|number| local.spawn_local(Asker::new(Rc::clone(course), number).run()))
        .collect();
    let all = local.run_until(async {
        for asker in askers {
            asker.await.context("a connection panicked")??;
        }
        Ok(())
    });
    let all = async {
        tokio::select! {
            asked = all => asked,
            never = watch::watch(course, plan.gateway, plan.stretch) => match never {},
        }
    };
    let patience = course.end.saturating_duration_since(Instant::now()) + GRACE;
    tokio::time::timeout(patience, all).await.context(HANGS)?
}
