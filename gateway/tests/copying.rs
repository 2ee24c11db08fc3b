//! What `countersign copy` says of a source that does not stand still, with a store that takes its time; and how it
//! goes over in parts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use gateway::cli::copy::copy;
use gateway::start::{StartError, is_unfinished_copy, load_snapshot};
use model::{Approval, Noun, Role, TenantId, Timestamp, Write};
use policy::{BasePolicies, Compiler};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::sync::Arc;
use store::conformance::commit;
use store::conformance::sample::{Chain, agent, approval, name};
use store::faults::{At, Fault, FaultyStore};
use store::{
    ApprovalFilter, Approvals, Batch, Budgets, Directories, ErasureRow, Records, ReplyKey, ReplyRow, Store,
};
use support::hand::Hand;
use support::home::Home;
use support::tenancy::reading;
use support::{World, until};

/// What somebody writes to a source while it goes over.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Entry,
    Tenant,
    Answer,
}

/// Answers to what was so already, from this number on.
fn answers(tenant: TenantId, from: usize, count: usize) -> Batch {
    let mut batch = Batch::default();
    batch.budgets.replies = (from..from + count)
        .map(|number| ReplyRow {
            key: ReplyKey {
                tenant,
                caller: [1; 16],
                key: name(&format!("call-{number:06}")),
            },
            request: Digest::of(b"release"),
            bytes: b"{}".to_vec().into(),
            at: Timestamp::from_millis(1_700_000_000_000),
        })
        .collect();
    batch
}

/// Each ledger goes over in one commit. While the last one does, somebody writes to the first, or makes a tenant.
#[tokio::test]
async fn a_source_that_somebody_writes_to_meanwhile_is_not_said_to_be_copied() {
    for meanwhile in [Meanwhile::Entry, Meanwhile::Tenant, Meanwhile::Answer] {
        let world = World::start().await;
        world.tenancy("acme").await;
        let first = world.store.load(None).await.unwrap()[0].tenant;
        let home = Home::new().await;
        let target = FaultyStore::new(home.open().await);
        target.plan([Fault::Pass, Fault::Hold]);
        let (copied, ()) = tokio::join!(copy(&*world.store, &target), async {
            until(|| target.held() == 1).await;
            match meanwhile {
                Meanwhile::Entry => _ = world.add_key(first, Role::Auditor).await,
                Meanwhile::Tenant => _ = world.tenancy("late").await,
                Meanwhile::Answer => commit(&*world.store, &answers(first, 0, 1)).await,
            }
            target.let_go();
        });
        let error = format!("{:#}", copied.unwrap_err());
        assert!(
            error.contains("somebody wrote to the source meanwhile"),
            "{meanwhile:?}: {error}"
        );
        // All had gone over by then, so a gateway may start on it as soon as the copy has ended.
        assert!(
            error.contains("if one has begun there since, keep it for what it has answered"),
            "{meanwhile:?}: {error}"
        );
        assert!(!is_unfinished_copy(target.revisions().await.unwrap()));
    }
    // Whoever stands still is copied.
    let (world, home) = (World::start().await, Home::new().await);
    world.tenancy("acme").await;
    let target = home.open().await;
    assert_eq!(copy(&*world.store, &*target).await.unwrap().len(), 2);
    assert_eq!(target.revisions().await.unwrap().len(), 2);
}

/// It would be gone for good, and the copy would verify.
#[tokio::test]
async fn a_source_that_tells_of_a_ledger_that_is_gone_is_not_copied() {
    let (world, home) = (World::start().await, Home::new().await);
    let tenancy = world.tenancy("acme").await;
    let mut hand = Hand::on(&world.home, tenancy.id).await;
    hand.disarm().await;
    hand.run("DELETE FROM tenants WHERE MINE").await;
    let target = home.open().await;
    let error = copy(&*world.store, &*target).await.unwrap_err();
    let said = format!("{error:#}");
    let what = format!("it tells of the ledger of {}, and there is none", tenancy.id);
    assert!(
        said.contains("the source does not verify") && said.contains(&what),
        "{said}"
    );
    assert!(target.revisions().await.unwrap().is_empty());
}

/// What was copied before would be in the way of a good copy.
#[tokio::test]
async fn all_ledgers_are_verified_before_the_first_one_is_copied() {
    let (world, home) = (World::start().await, Home::new().await);
    world.tenancy("acme").await;
    let last = world.tenancy("late").await;
    let mut hand = Hand::on(&world.home, last.id).await;
    hand.disarm().await;
    hand.run("DELETE FROM audit_events WHERE entry = #1 AND ITS")
        .await;
    let target = home.open().await;
    let said = format!("{:#}", copy(&*world.store, &*target).await.unwrap_err());
    assert!(
        said.contains("the source does not verify, so nothing of it was copied"),
        "{said}"
    );
    assert!(target.revisions().await.unwrap().is_empty());
}

/// The head is set back with it, and the edge of the tree is not: nobody writes, however often it is tried.
#[tokio::test]
async fn a_ledger_whose_end_was_cut_off_is_not_said_to_have_been_written_to() {
    let (world, home) = (World::start().await, Home::new().await);
    let tenancy = world.tenancy("acme").await;
    let mut end = world.store.head(tenancy.id).await.unwrap().seq;
    // Then the edge has as many nodes as that of one entry less.
    while end % 4 != 2 {
        world.add_key(tenancy.id, Role::Auditor).await;
        end = world.store.head(tenancy.id).await.unwrap().seq;
    }
    let mut hand = Hand::on(&world.home, tenancy.id).await;
    hand.disarm().await;
    hand.run(&format!("DELETE FROM audit_events WHERE entry = #{end} AND ITS"))
        .await;
    let before = end - 1;
    hand.run(&format!(
        "UPDATE tenants SET head_seq = {before}, \
         head_hash = (SELECT hash FROM audit_events WHERE entry = #{before} AND ITS) WHERE MINE"
    ))
    .await;
    let target = home.open().await;
    let said = format!("{:#}", copy(&*world.store, &*target).await.unwrap_err());
    assert!(
        said.contains("the source does not verify") && said.contains("the edge of the tree"),
        "{said}"
    );
    assert!(target.revisions().await.unwrap().is_empty());
}

/// Whichever ledgers have gone over by then.
#[tokio::test]
async fn a_copy_that_was_not_finished_is_neither_served_nor_copied_to_or_taken_for_whole() {
    for finished in 1..=2 {
        let (world, home) = (World::start().await, Home::new().await);
        world.tenancy("acme").await;
        world.tenancy("late").await;
        let target = FaultyStore::new(home.open().await);
        target.plan((0..finished).map(|_| Fault::Pass).chain([Fault::Lose]));
        let said = format!("{:#}", copy(&*world.store, &target).await.unwrap_err());
        assert!(
            said.contains("the copy was not finished: remove what is in the target"),
            "{said}"
        );
        assert_eq!(target.revisions().await.unwrap().len(), finished);
        let compiler = Arc::new(Compiler::new(BasePolicies::shipped()));
        let refused = load_snapshot(&target, compiler).await.err().unwrap();
        assert!(matches!(refused, StartError::CopyUnfinished), "{refused}");
        assert!(refused.to_string().contains("copy again"), "{refused}");
        let said = copy(&*world.store, &target).await.unwrap_err().to_string();
        assert!(
            said.contains("if it is what is left of a copy, remove it"),
            "{said}"
        );
    }
}

/// Nothing of it is to be removed, and a gateway may have been started on it since.
#[tokio::test]
async fn a_copy_of_which_nothing_has_gone_over_says_that_the_target_is_empty() {
    let (world, home) = (World::start().await, Home::new().await);
    world.tenancy("acme").await;
    let target = FaultyStore::new(home.open().await);
    target.plan([Fault::Lose]);
    let said = format!("{:#}", copy(&*world.store, &target).await.unwrap_err());
    assert!(
        said.contains("nothing was copied, and the target is empty"),
        "{said}"
    );
    assert!(!said.contains("remove"), "{said}");
    assert!(target.revisions().await.unwrap().is_empty());

    // What nobody knows of may still come.
    target.plan([Fault::LoseUnknown]);
    let said = format!("{:#}", copy(&*world.store, &target).await.unwrap_err());
    assert!(said.contains("may not be all of the source"), "{said}");
    assert!(!said.contains("the target is empty"), "{said}");
}

/// A gateway begins in a target, past what is planned for that. Returns its ledger.
async fn begin_in(target: &FaultyStore<dyn Store>) -> Chain {
    let mut begun = Chain {
        tenant: TenantId::SYSTEM,
        ..Chain::new(1)
    };
    let mut batch = Batch::default();
    tell(&mut begun, &mut batch, "tenant_updated", &json!({}));
    commit(&**target.inner(), &batch).await;
    begun
}

/// Copies into a target that holds one commit, and in which a gateway begins meanwhile. Returns what the copy says, and
/// the ledger of that gateway.
async fn copy_while_somebody_begins(world: &World, target: &FaultyStore<dyn Store>) -> (String, Chain) {
    let (copied, begun) = tokio::join!(copy(&*world.store, target), async {
        until(|| target.held() == 1).await;
        let begun = begin_in(target).await;
        target.let_go();
        begun
    });
    (format!("{:#}", copied.unwrap_err()), begun)
}

/// As one that was started on the target before it had anything in it: what it answers is in there from then on.
#[tokio::test]
async fn a_target_that_somebody_else_writes_to_is_not_to_be_removed() {
    for begins_late in [false, true] {
        let (world, home) = (World::start().await, Home::new().await);
        world.tenancy("acme").await;
        let target = FaultyStore::new(home.open().await);
        // The tenant's ledger goes over in one commit, and then the system's.
        target.plan(repeat_n(Fault::Pass, usize::from(begins_late)));
        target.plan([Fault::Hold]);
        let (said, begun) = copy_while_somebody_begins(&world, &target).await;
        assert!(
            said.contains("another gateway or copy has written to the target meanwhile"),
            "{begins_late}: {said}"
        );
        assert!(!said.contains("remove what is in the target"), "{said}");
        assert_eq!(target.head(TenantId::SYSTEM).await.unwrap(), begun.head());
    }
}

/// Not even what is not in the way of it: it would have to be told from what is served.
#[tokio::test]
async fn no_further_ledger_goes_into_a_target_that_somebody_has_begun_in() {
    let (world, home) = (World::start().await, Home::new().await);
    world.tenancy("acme").await;
    world.tenancy("late").await;
    let target = FaultyStore::new(home.open().await);
    target.plan([Fault::Hold]);
    let (said, _) = copy_while_somebody_begins(&world, &target).await;
    assert!(
        said.contains("keep the target for what it has answered"),
        "{said}"
    );
    // The one that was on its way, and what somebody has begun.
    assert_eq!(target.revisions().await.unwrap().len(), 2);
}

/// It takes its time, and nothing keeps a gateway of an earlier version out of the target.
#[tokio::test]
async fn a_target_that_somebody_begins_in_while_the_source_is_verified_is_left_alone() {
    let (world, home) = (World::start().await, Home::new().await);
    world.tenancy("acme").await;
    let source = FaultyStore::new(Arc::clone(&world.store));
    let target = FaultyStore::new(home.open().await);
    source.hold_at(At::Loads, true);
    let (copied, _) = tokio::join!(copy(&source, &target), async {
        until(|| source.held_at(At::Loads) == 1).await;
        let begun = begin_in(&target).await;
        source.hold_at(At::Loads, false);
        begun
    });
    let said = format!("{:#}", copied.unwrap_err());
    assert!(
        said.contains("keep the target for what it has answered"),
        "{said}"
    );
    assert_eq!(target.revisions().await.unwrap().len(), 1);
    assert_eq!(target.turns(), 0);
}

/// It looks like a copy that was not finished, and whoever removed it would lose every ledger.
#[tokio::test]
async fn a_store_that_has_lost_the_row_of_the_system_tenant_is_kept() {
    let world = World::start().await;
    world.tenancy("acme").await;
    let mut hand = Hand::on(&world.home, TenantId::SYSTEM).await;
    hand.disarm().await;
    hand.run("DELETE FROM tenants WHERE MINE").await;
    let compiler = Arc::new(Compiler::new(BasePolicies::shipped()));
    let refused = load_snapshot(&*world.store, compiler).await.err().unwrap();
    assert!(matches!(refused, StartError::CopyUnfinished), "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("otherwise keep it, and put a backup in its place"),
        "{said}"
    );
}

/// A large ledger of the system goes over in several commits, and its revision with the last one.
#[test]
fn a_part_of_the_system_tenants_ledger_is_no_whole_copy() {
    let tenant = Chain::new(1).tenant;
    for (revisions, is_unfinished) in [
        (vec![], false),
        (vec![(TenantId::SYSTEM, 3)], false),
        (vec![(TenantId::SYSTEM, 3), (tenant, 1)], false),
        (vec![(tenant, 1)], true),
        (vec![(TenantId::SYSTEM, 0), (tenant, 1)], true),
    ] {
        let found = is_unfinished_copy(revisions.clone());
        assert_eq!(found, is_unfinished, "{revisions:?}");
    }
}

/// Bodies that one entry erases.
const ERASED_AT_ONCE: u64 = 200;

/// Adds an entry to a batch.
fn tell(chain: &mut Chain, batch: &mut Batch, kind: &'static str, body: &Value) {
    let body = canon::of(body).unwrap();
    chain.entry(batch, kind, Timestamp::from_millis(1_700_000_000_000), body);
}

/// A ledger of 6,000 entries, with 30 behind them by which they are all erased, and a directory.
async fn erased_ledger(source: &dyn Store) -> Chain {
    let mut chain = Chain::new(1);
    for part in 0..5 {
        let mut batch = Batch::default();
        for _ in 0..1_200 {
            tell(&mut chain, &mut batch, "approval_refused", &json!({}));
        }
        if part == 0 {
            let nouns = [chain.noun(), agent(chain.tenant, 1, "builder")];
            let writes = nouns.map(|noun| (chain.tenant, Write::Put(noun)));
            batch.writes.extend(writes);
        }
        commit(source, &batch).await;
    }
    for first in (1..=30).map(|number| (number - 1) * ERASED_AT_ONCE + 1) {
        let mut batch = Batch::default();
        let last = first + ERASED_AT_ONCE - 1;
        tell(
            &mut chain,
            &mut batch,
            "bodies_erased",
            &json!({"seqs": [[first, last]]}),
        );
        batch.erasures.extend((first..=last).map(|seq| ErasureRow {
            tenant: chain.tenant,
            seq,
            body: Digest::of(b"{}"),
            by: chain.head().seq,
            request: None,
            outcome: None,
            approval: None,
            reservation: None,
        }));
        commit(source, &batch).await;
    }
    chain
}

/// How many agents the only tenant has, and whether it is there itself.
async fn directory(store: &dyn Store) -> (usize, bool) {
    let tenants = store.load(None).await.unwrap();
    let nouns = &tenants[0].nouns;
    let agents = nouns.iter().filter(|noun| matches!(noun, Noun::Agent(_)));
    let is_there = nouns.iter().any(|noun| matches!(noun, Noun::Tenant(_)));
    (agents.count(), is_there)
}

/// Six parts have room for the entries, and one more is needed for what they erase.
#[tokio::test]
async fn a_commit_of_a_copy_has_no_more_erasures_than_a_server_has_time_for() {
    let (home, other) = (Home::new().await, Home::new().await);
    let source = home.open().await;
    let chain = erased_ledger(&*source).await;
    let target = FaultyStore::new(other.open().await);
    target.plan([Fault::Pass, Fault::Hold]);
    let (copied, ()) = tokio::join!(copy(&*source, &target), async {
        until(|| target.held() == 1).await;
        // The directory is on its way, without the tenant that nobody can serve without.
        assert_eq!(directory(&target).await, (1, false));
        target.let_go();
    });
    assert_eq!(copied.unwrap(), [chain.head()]);
    assert_eq!(target.turns(), 7);
    assert_eq!(directory(&target).await, (1, true));
    let erased = target.entries(chain.tenant, 1, 6_000).await.unwrap();
    assert_eq!(erased.len(), 6_000);
    assert!(erased.iter().all(|entry| entry.erased.is_some()));
}

/// What is named again does not go over again, and takes no room.
#[tokio::test]
async fn a_commit_of_a_copy_ends_where_what_its_decisions_name_comes_to_megabytes() {
    let (world, home) = (World::start().await, Home::new().await);
    let tenancy = world.tenancy("acme").await;
    for letter in ["a", "b", "c", "a", "b", "c"] {
        world.describe(tenancy.id, &letter.repeat(2 << 20)).await;
        world.authorize(&tenancy.token, &reading()).await;
    }
    let target = FaultyStore::new(home.open().await);
    copy(&*world.store, &target).await.unwrap();
    // One for the system's ledger, one with two of the descriptions, and one with the third.
    assert_eq!(target.turns(), 3);
    let entries = target.entries(tenancy.id, 1, 100).await.unwrap();
    let decisions = entries.iter().filter(|entry| entry.kind == "decision");
    let named: BTreeSet<_> = decisions
        .flat_map(|entry| engine::facts::named(&entry.body))
        .collect();
    let named: Vec<_> = named.into_iter().collect();
    let copied = target.contents(tenancy.id, &named).await.unwrap();
    assert_eq!(copied.len(), named.len());
}

/// Approvals of a ledger, of which seventeen are a page.
const LARGE_APPROVALS: u8 = 40;

/// A ledger with an entry for each of its approvals.
async fn ledger_of_large_approvals(source: &dyn Store) -> Chain {
    let mut chain = Chain::new(1);
    for number in 1..=LARGE_APPROVALS {
        let mut batch = Batch::default();
        tell(&mut chain, &mut batch, "approval_refused", &json!({}));
        let mut large = approval(number, 1_800_000_000_000);
        large.request.parameters = Some(json!({"text": "x".repeat(250_000)}).to_string());
        batch.approvals.push((chain.tenant, large));
        if number == 1 {
            batch.writes.push((chain.tenant, Write::Put(chain.noun())));
        }
        commit(source, &batch).await;
    }
    chain
}

/// A page of them goes over with one entry, so that there are entries left for the last ones.
#[tokio::test]
async fn a_commit_of_a_copy_has_one_page_of_approvals() {
    let (home, other) = (Home::new().await, Home::new().await);
    let source = home.open().await;
    let chain = ledger_of_large_approvals(&*source).await;
    let target = FaultyStore::new(other.open().await);
    assert_eq!(copy(&*source, &target).await.unwrap(), [chain.head()]);
    assert_eq!(target.turns(), 3);
    let (mut copied, mut before): (Vec<Approval>, _) = (Vec::new(), None);
    loop {
        let filter = ApprovalFilter::default();
        let page = target
            .approvals(chain.tenant, &filter, before, 100)
            .await
            .unwrap();
        copied.extend(page.found);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(copied.len(), usize::from(LARGE_APPROVALS));
}

/// Of answers that nothing was written for there are more than entries have room for, and they go over in commits of their own.
#[tokio::test]
async fn a_commit_of_a_copy_has_one_page_of_answers() {
    let (home, other) = (Home::new().await, Home::new().await);
    let source = home.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    batch.writes.push((chain.tenant, Write::Put(chain.noun())));
    for _ in 0..3 {
        tell(&mut chain, &mut batch, "approval_refused", &json!({}));
    }
    commit(&*source, &batch).await;
    for part in 0..5 {
        commit(&*source, &answers(chain.tenant, part * 1_000, 1_000)).await;
    }
    let target = FaultyStore::new(other.open().await);
    assert_eq!(copy(&*source, &target).await.unwrap(), [chain.head()]);
    // Two with an entry each, two of answers alone, and one with the last entry and the last answers.
    assert_eq!(target.turns(), 5);
    let (mut copied, mut last): (usize, Option<ReplyKey>) = (0, None);
    loop {
        let page = target
            .replies_after(chain.tenant, last.as_ref(), 1_000)
            .await
            .unwrap();
        copied += page.len();
        match page.last() {
            Some(reply) => last = Some(reply.key.clone()),
            None => break,
        }
    }
    assert_eq!(copied, 5_000);
}
