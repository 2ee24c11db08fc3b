//! The load harness against a real gateway process: whatever was answered is in the ledger.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::io;
use std::time::Duration;

use benches::address::Door;
use benches::http::Format;
use benches::load::report::Setting;
use benches::load::{Plan, Prepared, Profile, Report, fairness, run};
use benches::process::{GatewayProcess, Launch};

/// Longer than any run here: none of them is looked at in parts.
const STRETCH: Duration = Duration::from_mins(1);

/// Asks among which there is everything that a run of them can come to, however long they take.
const ASKS: Option<u64> = Some(400);

#[tokio::test]
async fn every_decision_that_was_answered_is_recorded_and_every_verdict_occurs() {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    let report = run(Plan {
        addresses: &[gateway.address().clone()],
        operator_key: gateway.operator_key(),
        gateway: Some(&gateway),
        setting: Setting {
            connections: 4,
            tenants: 2,
            agents: 3,
            distinct: 20,
            asks_max: ASKS,
            ..Setting::default()
        },
        // Shorter than so many asks take on any machine.
        warm_up: Duration::from_millis(1),
        measured: Duration::from_millis(500),
        stretch: STRETCH,
    })
    .await
    .unwrap();

    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert!(report.outcomes.refused.is_empty(), "{report}");
    assert_eq!(report.ledger.recorded, report.outcomes.answered());
    let verdicts: Vec<_> = report.outcomes.decisions.keys().copied().collect();
    assert_eq!(verdicts, ["allow", "deny", "require_approval"]);
}

#[tokio::test]
async fn a_gateway_that_is_killed_under_load_fails_the_run() {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    let (address, operator_key) = (gateway.address().clone(), gateway.operator_key().to_owned());
    let plan = Plan {
        addresses: &[address],
        operator_key: &operator_key,
        gateway: None,
        setting: Setting {
            connections: 2,
            tenants: 1,
            agents: 1,
            distinct: 10,
            ..Setting::default()
        },
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(10),
        stretch: STRETCH,
    };
    let prepared = Prepared::set_up(plan).await.unwrap();
    let killer = async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(gateway);
    };
    let (result, ()) = tokio::join!(prepared.ask(), killer);
    let error = result.unwrap_err();
    let refused = error.downcast_ref::<io::Error>().map(io::Error::kind);
    assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused), "{error:#}");
}

/// A short run of a profile, with fewer of everything that only takes time.
async fn short(setting: Setting) -> Report {
    short_at(Door::Tcp, setting).await
}

async fn short_at(door: Door, setting: Setting) -> Report {
    let launch = Launch {
        door,
        ..Launch::default()
    };
    let gateway = GatewayProcess::start(launch).await.unwrap();
    run(Plan {
        addresses: &[gateway.address().clone()],
        operator_key: gateway.operator_key(),
        gateway: Some(&gateway),
        setting,
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(800),
        stretch: STRETCH,
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn what_is_sent_again_gets_the_same_bytes_and_no_second_entry() {
    let setting = Setting {
        connections: 4,
        agents: 3,
        asks_max: ASKS,
        ..Profile::Light.setting()
    };
    let report = short(setting).await;
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert!(report.outcomes.repeats > 0, "{report}");
    assert_eq!(report.ledger.recorded, report.outcomes.answered());
}

#[tokio::test]
async fn one_agent_is_admitted_exactly_as_often_as_its_bucket_allows() {
    let report = short(Profile::OneAgent.setting()).await;
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert_eq!(report.outcomes.answered(), 400, "{report}");
    assert_eq!(report.outcomes.refused["rate_limited"], 600, "{report}");
}

#[tokio::test]
async fn an_open_loop_asks_as_often_as_it_should_and_counts_what_waits() {
    let setting = Setting {
        connections: 4,
        agents: 3,
        per_second: Some(200.0),
        ..Profile::Mixed.setting()
    };
    let report = short(setting).await;
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    // All that were due in the time, however late they were answered.
    assert_eq!(report.measured, 160, "{report}");
    assert!(
        report.cpu.gateway_cores.is_some() && report.gateway_mib.is_some(),
        "{report}"
    );
}

#[tokio::test]
async fn the_local_door_and_messages_are_asked_like_any_other() {
    let setting = Setting {
        connections: 4,
        agents: 3,
        format: Format::MessagePack,
        asks_max: ASKS,
        ..Profile::Light.setting()
    };
    let report = short_at(Door::Unix, setting).await;
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert_eq!(report.door, Door::Unix);
    assert!(report.outcomes.refused.is_empty(), "{report}");
    assert!(report.outcomes.repeats > 0, "{report}");
    let verdicts: Vec<_> = report.outcomes.decisions.keys().copied().collect();
    assert_eq!(verdicts, ["allow", "deny", "require_approval"]);
}

#[tokio::test]
async fn a_long_run_is_looked_at_in_stretches() {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    let report = run(Plan {
        addresses: std::slice::from_ref(gateway.address()),
        operator_key: gateway.operator_key(),
        gateway: Some(&gateway),
        setting: Setting {
            connections: 4,
            agents: 3,
            per_second: Some(100.0),
            ..Setting::default()
        },
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(1_500),
        stretch: Duration::from_millis(400),
    })
    .await
    .unwrap();
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert!(report.stretches.len() >= 3, "{report}");
    let in_stretches: u64 = report.stretches.iter().map(|stretch| stretch.answers).sum();
    assert!(in_stretches <= report.measured, "{report}");
    assert!(report.steadiness.unwrap().memory.unwrap() > 0.0, "{report}");
    assert!(report.wal_mib_max.unwrap() > 0.0, "{report}");
    assert!(report.gateway_idle_mib < report.gateway_mib, "{report}");
    assert!(report.waited_ms.is_some(), "{report}");
}

#[tokio::test]
async fn asks_beyond_the_capacity_are_left_out_and_counted() {
    let setting = Setting {
        connections: 1,
        agents: 3,
        per_second: Some(50_000.0),
        gives_up: true,
        ..Setting::default()
    };
    let report = short(setting).await;
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert!(report.unsent > 0, "{report}");
    assert_eq!(
        report.measured + report.unsent,
        40_000,
        "every ask that was due is accounted for: {report}"
    );
}

#[tokio::test]
async fn a_quiet_tenant_is_timed_alone_and_beside_a_flood() {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    let plan = |connections, per_second| Plan {
        addresses: std::slice::from_ref(gateway.address()),
        operator_key: gateway.operator_key(),
        gateway: Some(&gateway),
        setting: Setting {
            connections,
            agents: 2,
            per_second: Some(per_second),
            ..Setting::default()
        },
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(500),
        stretch: STRETCH,
    };
    let report = fairness::run(plan(4, 40.0), plan(16, 2_000.0)).unwrap();
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert_eq!(
        (report.alone.measured, report.beside.measured),
        (20, 20),
        "{report}"
    );
    // How long each took is not asked: on a machine without a core to spare the quiet tenant waits for longer than the
    // flood goes on.
    assert!(report.flood.measured > report.beside.measured, "{report}");
    assert!(
        report.capacity_per_second > 0.0 && report.p99_times > 0.0,
        "{report}"
    );
}
