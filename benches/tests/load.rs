//! The load harness against a real gateway process: whatever was answered is in the ledger.

use std::time::Duration;

use benches::load::report::Setting;
use benches::load::{Plan, run};
use benches::process::{GatewayProcess, Launch};

#[tokio::test]
async fn every_decision_that_was_answered_is_recorded_and_every_verdict_occurs() {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    let report = run(Plan {
        addresses: &[gateway.address()],
        operator_key: gateway.operator_key(),
        setting: Setting {
            connections: 4,
            tenants: 2,
            agents: 3,
            distinct: 20,
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
        setting: Setting {
            connections: 2,
            tenants: 1,
            agents: 1,
            distinct: 10,
        },
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(10),
    };
    let (result, ()) = tokio::join!(run(plan), killer);
    assert!(result.is_err());
}
