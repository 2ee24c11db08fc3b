//! What `countersign copy` says of a source that does not stand still, with a store that takes its time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use gateway::cli::copy::copy;
use model::Role;
use store::faults::{Fault, FaultyStore};
use support::home::Home;
use support::{World, until};

/// Each ledger goes over in one commit. While the last one does, somebody writes to the first, or makes a tenant.
#[tokio::test]
async fn a_source_that_somebody_writes_to_meanwhile_is_not_said_to_be_copied() {
    for makes_tenant in [false, true] {
        let world = World::start().await;
        world.tenancy("acme").await;
        let first = world.store.load(None).await.unwrap()[0].tenant;
        let home = Home::new().await;
        let target = FaultyStore::new(home.open().await);
        target.plan([Fault::Pass, Fault::Hold]);
        let (copied, ()) = tokio::join!(copy(&*world.store, &target), async {
            until(|| target.held() == 1).await;
            if makes_tenant {
                world.tenancy("late").await;
            } else {
                world.add_key(first, Role::Auditor).await;
            }
            target.let_go();
        });
        let error = copied.unwrap_err().to_string();
        assert!(
            error.contains("somebody wrote to the source meanwhile"),
            "{error}"
        );
    }
    // Whoever stands still is copied.
    let (world, home) = (World::start().await, Home::new().await);
    world.tenancy("acme").await;
    let target = home.open().await;
    assert_eq!(copy(&*world.store, &*target).await.unwrap().len(), 2);
    assert_eq!(target.revisions().await.unwrap().len(), 2);
}
