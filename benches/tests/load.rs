//! The load harness against a real gateway process: whatever was answered is in the ledger.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::time::Duration;

use benches::load::report::Setting;
use benches::load::{Plan, Profile, Report, run};
use benches::process::{GatewayProcess, Launch};

#[tokio::test]
async fn every_decision_that_was_answered_is_recorded_and_every_verdict_occurs() {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    let report = run(Plan {
        addresses: &[gateway.address()],
        operator_key: gateway.operator_key(),
        gateway: Some(gateway.pid()),
        setting: Setting {
            connections: 4,
            tenants: 2,
            agents: 3,
            distinct: 20,
            ..Setting::default()
        },
        warm_up: Duration::from_millis(100),
        measured: Duration::from_millis(500),
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
    let (address, operator_key) = (gateway.address(), gateway.operator_key().to_owned());
    let killer = async move {
        tokio::time::sleep(Duration::from_millis(600)).await;
        drop(gateway);
    };
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
    };
    let (result, ()) = tokio::join!(run(plan), killer);
    assert!(result.is_err());
}

/// A short run of a profile, with fewer of everything that only takes time.
async fn short(setting: Setting) -> Report {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    run(Plan {
        addresses: &[gateway.address()],
        operator_key: gateway.operator_key(),
        gateway: Some(gateway.pid()),
        setting,
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(800),
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn what_is_sent_again_gets_the_same_bytes_and_no_second_entry() {
    let setting = Setting {
        connections: 4,
        agents: 3,
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
