//! The load on budgets against a real gateway process: every operation works, and the books say what callers were told.

use std::time::Duration;

use benches::budgets::{Plan, run};
use benches::process::{GatewayProcess, Launch};

#[tokio::test]
async fn what_callers_were_told_of_budgets_is_what_the_books_say() {
    let gateway = GatewayProcess::start(Launch::default()).await.unwrap();
    let report = run(Plan {
        address: gateway.address(),
        operator_key: gateway.operator_key(),
        gateway: Some(gateway.pid()),
        rounds: 5,
        connections: 4,
        measured: Duration::from_millis(500),
    })
    .await
    .unwrap();
    assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
    assert_eq!(report.operations.len(), 10, "{report}");
    assert!(report.lifecycles_per_second > 0.0, "{report}");
}
