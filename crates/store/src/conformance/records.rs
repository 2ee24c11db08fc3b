//! What reading back promises: order, limits, exact bytes, and tenants apart.

use super::sample::{Ask, Chain, decision_id, name, receipt};
use super::{Fixture, commit, refused};
use crate::{BYTES_AT_ONCE, Batch, CommitError, DecisionFilter, Ending, Recorded, is_used_up};
use canon::Digest;
use ledger::{Head, Tip};
use model::{ReasonCode, TenantId, Timestamp};
use std::sync::Arc;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

/// Each tenant has its own, and one that nobody knows has the beginning.
pub async fn the_head_is_where_the_last_commit_left_it(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    commit(&*store, &Chain::new(2).decisions(5)).await;
    for _ in 0..2 {
        let batch = chain.decisions(3);
        let expected = batch.advances[0].to.head();
        commit(&*store, &batch).await;
        assert_eq!(store.head(chain.tenant).await.unwrap(), expected);
    }
    assert_eq!(
        store.head(TenantId::from_bytes([9; 16])).await.unwrap(),
        Head::GENESIS
    );
}

/// What tells whether a chain still has an entry.
pub async fn a_chain_still_has_the_heads_that_it_had(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut expected = Vec::new();
    for chain in [&mut one, &mut two] {
        for count in [2, 1] {
            commit(&*store, &chain.decisions(count)).await;
            expected.push((chain.tenant, chain.head()));
        }
    }
    let nobody = TenantId::from_bytes([9; 16]);
    let mut wanted: Vec<_> = expected
        .iter()
        .map(|(tenant, head)| (*tenant, head.seq))
        .collect();
    wanted.extend([(one.tenant, 4), (two.tenant, 0), (nobody, 1)]);
    let mut heads = store.heads_at(&wanted).await.unwrap();
    heads.sort_unstable_by_key(|(tenant, head)| (*tenant, head.seq));
    assert_eq!(heads, expected);
    assert_eq!(store.heads_at(&[]).await.unwrap(), []);
}

/// With each entry stands what it adds to the tree, and beside the head the edge: both lead to the same tree.
pub async fn the_tree_is_kept_with_the_chain(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut expected = Vec::new();
    for count in [1, 2, 6, 13] {
        let batch = chain.decisions(count);
        expected.extend(batch.entries.iter().map(|entry| entry.nodes.as_bytes().to_vec()));
        commit(&*store, &batch).await;
        assert_eq!(store.tip(chain.tenant).await.unwrap(), chain.tip);
        assert_eq!(super::load(&*store).await[0].position.tip, chain.tip);
    }
    let entries = store.entries(chain.tenant, 1, 100).await.unwrap();
    let nodes: Vec<_> = entries.into_iter().map(|entry| entry.nodes).collect();
    assert_eq!(nodes, expected);
    let mut some = store.nodes(chain.tenant, &[16, 3, 99]).await.unwrap();
    some.sort_unstable();
    assert_eq!(some, [(3, expected[2].clone()), (16, expected[15].clone())]);
    let nobody = TenantId::from_bytes([9; 16]);
    assert_eq!(store.tip(nobody).await.unwrap(), Tip::GENESIS);
    assert_eq!(store.nodes(nobody, &[1]).await.unwrap(), []);
}

/// With the time of the last entry beside it, which the entry has too; and no commit leaves anything elsewhere.
pub async fn a_ledger_ends_where_the_last_commit_left_it(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    commit(&*store, &Chain::new(2).decisions(5)).await;
    for millis in [1_700_000_000_000, 1_700_000_000_001] {
        let at = Timestamp::from_millis(millis);
        let mut batch = Batch::default();
        chain.decision(&mut batch, &Ask { at, ..Ask::default() });
        commit(&*store, &batch).await;
        let expected = Ending {
            head: chain.head(),
            head_at: at,
            entry_at: Some(at),
            stray_entry: None,
            stray_answer: None,
        };
        assert_eq!(store.ending(chain.tenant).await.unwrap(), Some(expected));
    }
    // A neighbour on the other side, whose rows are not behind this one's.
    commit(&*store, &Chain::new(3).decisions(5)).await;
    let found = store.ending(chain.tenant).await.unwrap().unwrap();
    assert_eq!((found.stray_entry, found.stray_answer), (None, None));
    assert_eq!(store.ending(TenantId::from_bytes([9; 16])).await.unwrap(), None);
}

/// From anywhere, never more than asked for, and nothing beyond the end.
pub async fn entries_come_in_order_and_within_the_limit(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    // A neighbour on either side, whose entries must not come along.
    commit(&*store, &Chain::new(2).decisions(5)).await;
    commit(&*store, &chain.decisions(20)).await;
    commit(&*store, &Chain::new(3).decisions(5)).await;
    for (from, limit, expected) in [
        (0, 100, 1..=20),
        (1, 100, 1..=20),
        (1, 7, 1..=7),
        (8, 7, 8..=14),
        (20, 7, 20..=20),
    ] {
        let entries = store.entries(chain.tenant, from, limit).await.unwrap();
        let seqs: Vec<_> = entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(seqs, expected.collect::<Vec<u64>>(), "from {from}, limit {limit}");
        assert!(entries.windows(2).all(|pair| pair[0].hash == pair[1].prev));
    }
    for from in [21, 1 << 40, u64::MAX] {
        assert!(
            store.entries(chain.tenant, from, 7).await.unwrap().is_empty(),
            "from {from}"
        );
    }
    assert!(store.entries(chain.tenant, 1, 0).await.unwrap().is_empty());
}

/// A call ends behind the row with which it has read enough, whichever call it is, and the next one goes on there.
pub async fn large_bodies_are_read_few_at_a_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    for _ in 0..5 {
        let ask = Ask {
            text: "x".repeat(BYTES_AT_ONCE / 3),
            ..Ask::default()
        };
        let mut batch = Batch::default();
        chain.decision(&mut batch, &ask);
        commit(&*store, &batch).await;
    }
    for (from, expected, is_cut) in [(1, vec![1, 2, 3], true), (4, vec![4, 5], false)] {
        let entries = store.entries(chain.tenant, from, 100).await.unwrap();
        let seqs: Vec<u64> = entries.iter().map(|entry| entry.seq).collect();
        assert_eq!((seqs, is_used_up(&entries)), (expected, is_cut), "from {from}");
    }
    let filter = DecisionFilter::default();
    for (before, expected) in [(None, vec![5, 4, 3]), (Some(3), vec![2, 1])] {
        let decisions = store.decisions(chain.tenant, &filter, before, 100).await.unwrap();
        let seqs: Vec<u64> = decisions.iter().map(|decision| decision.seq).collect();
        assert_eq!(seqs, expected, "before {before:?}");
    }
    let decisions = store.decisions_at(chain.tenant, &[1, 2, 3, 4, 5]).await.unwrap();
    let seqs: Vec<u64> = decisions.iter().map(|decision| decision.seq).collect();
    assert_eq!((seqs, is_used_up(&decisions)), (vec![5, 4, 3], true));
    // The body is in there twice.
    let recorded = store.recorded(chain.tenant, 1, 100).await.unwrap();
    let seqs: Vec<u64> = recorded.iter().map(|recorded| recorded.entry.seq).collect();
    assert_eq!((seqs, is_used_up(&recorded)), (vec![1, 2], true));
}

/// Everything that was recorded about a decision, and exactly the bytes that were answered.
pub async fn a_decision_and_its_receipt_are_found_by_id(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(1);
    let ask = Ask {
        tool: "git'hub",
        action: "a/b",
        reason: ReasonCode::PolicyRequiresApproval,
        run_id: Some("run \u{1F680}"),
        at: Timestamp::from_millis(1_234_567_890_123),
        text: "Zoë".into(),
        ..Ask::named("r-1")
    };
    let id = chain.decision(&mut batch, &ask);
    chain.decision(&mut batch, &Ask::default());
    commit(&*store, &batch).await;
    let found = store.decision(chain.tenant, id).await.unwrap().unwrap();
    assert_eq!((found.seq, found.id, found.at), (2, id, ask.at));
    assert_eq!((found.agent, found.reason), (ask.agent, ask.reason));
    assert_eq!((found.tool, found.action), (name("git'hub"), name("a/b")));
    assert_eq!(
        (found.run_id, found.ask),
        (ask.run_id.map(name), Some(ask.digest()))
    );
    assert_eq!(
        (found.hash, &*found.body),
        (batch.entries[1].hash, batch.entries[1].body.as_str())
    );
    assert_eq!(
        store.receipt(chain.tenant, id).await.unwrap(),
        Some(receipt(chain.tenant, 2))
    );
    let unnamed = decision_id(chain.tenant, 1);
    assert_eq!(
        store.decision(chain.tenant, unnamed).await.unwrap().unwrap().ask,
        None
    );
    let unknown = decision_id(chain.tenant, 4);
    assert_eq!(store.decision(chain.tenant, unknown).await.unwrap(), None);
    assert_eq!(store.receipt(chain.tenant, unknown).await.unwrap(), None);
}

/// Each entry comes with what stands at its place, from anywhere and never more than asked for; an entry of another kind alone.
pub async fn entries_come_with_their_decisions_and_receipts(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(3);
    chain.put_agent(&mut batch, 1, "builder");
    chain.decision(&mut batch, &Ask::named("r-1"));
    commit(&*store, &batch).await;
    commit(&*store, &Chain::new(2).decisions(2)).await;
    for (from, limit, expected) in [
        (0, 10, vec![1, 2, 3, 4, 5]),
        (2, 2, vec![2, 3]),
        (4, 10, vec![4, 5]),
        (6, 10, vec![]),
        (1, 0, vec![]),
        (u64::MAX, 1, vec![]),
    ] {
        let found = store.recorded(chain.tenant, from, limit).await.unwrap();
        let seqs: Vec<_> = found.iter().map(|place| place.entry.seq).collect();
        assert_eq!(seqs, expected, "from {from}");
        let entries = store.entries(chain.tenant, from, limit).await.unwrap();
        assert!(found.iter().map(|place| &place.entry).eq(&entries));
        for Recorded {
            entry,
            decision,
            receipt: bytes,
        } in found
        {
            let is_decision = entry.seq != 4;
            let id = decision_id(chain.tenant, entry.seq);
            let alone = store.decision(chain.tenant, id).await.unwrap();
            assert_eq!(alone.is_some(), is_decision);
            assert_eq!(decision, alone);
            assert_eq!(bytes, is_decision.then(|| receipt(chain.tenant, entry.seq)));
        }
    }
}

/// Knowing another tenant's ids gives nothing.
pub async fn what_one_tenant_recorded_is_not_seen_by_another(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = Batch::default();
    let mine = one.decision(&mut batch, &Ask::named("r-1"));
    let theirs = two.decision(
        &mut batch,
        &Ask {
            tool: "secret",
            ..Ask::default()
        },
    );
    commit(&*store, &batch).await;
    assert!(store.decision(one.tenant, mine).await.unwrap().is_some());
    assert_eq!(store.decision(one.tenant, theirs).await.unwrap(), None);
    assert_eq!(store.receipt(one.tenant, theirs).await.unwrap(), None);
    let all = store
        .decisions(one.tenant, &DecisionFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(all.iter().map(|found| found.id).collect::<Vec<_>>(), [mine]);
    let secret = DecisionFilter {
        tool: Some(name("secret")),
        ..DecisionFilter::default()
    };
    assert!(
        store
            .decisions(one.tenant, &secret, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

/// A tenant that never committed is empty, not an error.
pub async fn an_unknown_tenant_has_recorded_nothing(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    commit(&*store, &Chain::new(1).decisions(2)).await;
    for tenant in [Chain::new(2).tenant, TenantId::SYSTEM] {
        let id = decision_id(Chain::new(1).tenant, 1);
        assert!(store.entries(tenant, 0, 10).await.unwrap().is_empty());
        assert!(store.recorded(tenant, 0, 10).await.unwrap().is_empty());
        assert!(
            store
                .decisions(tenant, &DecisionFilter::default(), None, 10)
                .await
                .unwrap()
                .is_empty()
        );
        assert_eq!(store.decision(tenant, id).await.unwrap(), None);
        assert_eq!(store.receipt(tenant, id).await.unwrap(), None);
    }
}

/// While others read without pause, whoever commits finds its own entry at once.
pub async fn a_read_sees_every_commit_that_returned_before_it(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let tenant = chain.tenant;
    let noise: Vec<_> = (0..3)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                loop {
                    store.entries(tenant, 0, 50).await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..100 {
        commit(&*store, &chain.decisions(1)).await;
        let last = store.entries(tenant, chain.head().seq, 2).await.unwrap();
        assert_eq!(
            last.iter().map(|entry| entry.hash).collect::<Vec<_>>(),
            [chain.head().hash]
        );
    }
    for task in noise {
        task.abort();
        let ended = task.await.expect_err("it reads for ever");
        assert!(ended.is_cancelled(), "a reader failed: {ended}");
    }
}

/// Whoever reads in the background sees what the others see, also on another thread's runtime, and is sent away with them.
pub async fn what_is_read_behind_is_what_was_recorded_and_ends_with_the_store(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let tenant = chain.tenant;
    let (ask, mut asked) = mpsc::channel::<()>(1);
    let (answer, mut answered) = mpsc::channel(1);
    let background = store.background();
    assert!(store.indexed(tenant, 0..=9).await.unwrap().is_empty());
    let reading = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while asked.recv().await.is_some() {
                let head = background.head(tenant).await;
                answer
                    .send(head.map_err(|error| error.to_string()))
                    .await
                    .unwrap();
            }
        });
    });
    for _ in 0..3 {
        commit(&*store, &chain.decisions(2)).await;
        ask.send(()).await.unwrap();
        assert_eq!(answered.recv().await.unwrap(), Ok(chain.head()));
        assert_eq!(store.head(tenant).await.unwrap(), chain.head());
    }
    store.close().await;
    ask.send(()).await.unwrap();
    answered.recv().await.unwrap().expect_err("the store is closed");
    let indexed = store.indexed(tenant, 0..=9).await;
    indexed.expect_err("what it keeps beside the ledger is closed too");
    drop(ask);
    reading.join().unwrap();
}

/// The size is of the right order and does not shrink.
pub async fn the_size_grows_with_what_is_recorded(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let before = store.size_bytes().await.unwrap();
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    for _ in 0..100 {
        chain.decision(
            &mut batch,
            &Ask {
                text: "x".repeat(1_000),
                ..Ask::default()
            },
        );
    }
    commit(&*store, &batch).await;
    let after = store.size_bytes().await.unwrap();
    // The server may give back some pages of its own in between.
    assert!(after >= before + 50_000, "{before} to {after}");
}

/// Written once, whatever writes them again, and each tenant has its own.
pub async fn contents_are_found_by_their_digest_once_they_are_written(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    for _ in 0..2 {
        let mut batch = one.decisions(1);
        two.decision(&mut batch, &Ask::default());
        for (chain, text) in [(&one, "a"), (&one, "b"), (&one, "b"), (&two, "c"), (&two, "a")] {
            chain.content(&mut batch, text);
        }
        // Not only text, and not only a little.
        let bytes = a_megabyte();
        batch.contents.push(crate::ContentRow {
            tenant: one.tenant,
            digest: Digest::of(&bytes),
            bytes: bytes.into(),
        });
        commit(&*store, &batch).await;
    }
    let store = fixture.reopen().await;
    let digests = ["a", "b", "c", "d"].map(|text| Digest::of(text.as_bytes()));
    for (chain, expected) in [
        (&one, vec!["a", "b"]),
        (&two, vec!["a", "c"]),
        (&Chain::new(9), vec![]),
    ] {
        let mut found = store.contents(chain.tenant, &digests).await.unwrap();
        found.sort_by(|one, other| one.1.cmp(&other.1));
        let expected = expected
            .into_iter()
            .map(|text| (Digest::of(text.as_bytes()), text.as_bytes().to_vec()));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
    let large = a_megabyte();
    let found = store.contents(one.tenant, &[Digest::of(&large)]).await.unwrap();
    assert!(found[0].1 == large, "a megabyte comes back as it went in");
    assert_eq!(store.contents(one.tenant, &[]).await.unwrap(), []);
}

/// With bytes of every sort.
fn a_megabyte() -> Vec<u8> {
    (0..=u8::MAX).cycle().take(1 << 20).collect()
}

/// A batch that is not written leaves none of its contents, and one that is writes them also without any change of a
/// directory, and also when it is appended.
pub async fn contents_are_there_with_their_batch_or_not_at_all(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let lost = chain.clone();
    commit(&*store, &chain.decisions(1)).await;
    let mut batch = lost.clone().decisions(1);
    let never = lost.content(&mut batch, "never");
    assert!(matches!(
        refused(&*store, &batch).await,
        CommitError::HeadMoved { .. }
    ));
    let mut batch = chain.decisions(2);
    let appended = chain.content(&mut batch, "appended");
    store.append(&batch).await.unwrap();
    let found = store.contents(chain.tenant, &[never, appended]).await.unwrap();
    assert_eq!(found, [(appended, b"appended".to_vec())]);
}
