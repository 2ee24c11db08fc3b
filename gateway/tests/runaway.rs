//! The demo of an agent that runs away, with a clock of its own: where it is stopped, and that every cent is in the books.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "support/mod.rs"]
mod support;

use gateway::cli::budgets;
use gateway::cli::demo::runaway::{self, Act, CALL_MICROCENTS, CALL_TAKES};
use support::World;

#[tokio::test]
async fn a_runaway_agent_is_stopped_exactly_where_it_has_to_be() {
    let world = World::start().await;
    let takes = i64::try_from(CALL_TAKES.as_millis()).unwrap();
    let work = async || {
        world.clock.advance_millis(takes);
    };
    let mut told = Vec::new();
    let acts = runaway::play(&world.gateway, work, |act| {
        told.push(act.clone());
        Ok(())
    });
    let acts = acts.await.unwrap();
    assert_eq!(acts, told);
    let act = |guard, calls: i64, stopped_by: &str| Act {
        guard,
        calls,
        spent: calls * CALL_MICROCENTS,
        took_ms: calls * 50,
        stopped_by: (!stopped_by.is_empty()).then(|| stopped_by.to_owned()),
    };
    assert_eq!(
        acts,
        [
            act("none", 600, ""),
            act("budget of $1.00", 100, "budget_exceeded"),
            // Twenty that are there, and one that came in the second that they took.
            act("rate of 20 at once, 1 a second", 21, "rate_limited"),
            act("quota of 50 calls a run", 50, "quota_exceeded"),
            act("policy: ask when $0.30 are spent", 30, "policy_requires_approval"),
        ]
    );
    assert_eq!(acts[1].spent, 100_000_000, "a dollar, to the microcent");
    let found = budgets::verify(&*world.store).await.unwrap();
    assert_eq!((found.budgets, found.mismatches), (2, Vec::new()));
}
