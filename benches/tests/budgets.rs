//! The load on budgets against a real gateway process: every operation works, and the books say what callers were told.

use std::process::Command;
use std::time::Duration;

use benches::budgets::{Plan, Report, run};
use benches::process::{GatewayProcess, Launch};

/// How often there is a run of its own, on a machine that stands still for as long as lifecycles are timed.
const RUNS_MAX: usize = 5;

/// A short run.
async fn short() -> anyhow::Result<Report> {
    let gateway = GatewayProcess::start(Launch::default()).await?;
    run(Plan {
        address: gateway.address(),
        operator_key: gateway.operator_key(),
        gateway: Some(gateway.pid()),
        rounds: 5,
        connections: 4,
        measured: Duration::from_millis(500),
    })
    .await
}

#[tokio::test]
async fn what_callers_were_told_of_budgets_is_what_the_books_say() {
    for _ in 0..RUNS_MAX {
        let report = short().await.unwrap();
        assert_eq!(report.faults(), Vec::<String>::new(), "{report}");
        assert_eq!(report.operations.len(), 10, "{report}");
        if report.lifecycles_per_second > 0.0 {
            return;
        }
    }
    panic!("no lifecycle was timed");
}

/// That test once more, with a setting around it that a gateway does not start with.
#[test]
fn what_is_set_around_a_load_is_not_meant_for_its_gateway() {
    let test = "what_callers_were_told_of_budgets_is_what_the_books_say";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", test])
        .env("COUNTERSIGN_SIGNING_KEY", "no key");
    let done = again.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}
