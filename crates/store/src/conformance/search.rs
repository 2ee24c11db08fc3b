//! What searching decisions promises: filters, and pages that do not shift.

use super::sample::{Ask, Chain, agent_id, name};
use super::{Fixture, commit};
use crate::{Batch, DecisionFilter, Store};
use model::{ReasonCode, Timestamp, Verdict};

/// The `seq` of what a filter finds.
async fn found(store: &dyn Store, chain: &Chain, filter: &DecisionFilter) -> Vec<u64> {
    let found = store.decisions(chain.tenant, filter, None, 100).await.unwrap();
    found.iter().map(|decision| decision.seq).collect()
}

fn at(seq: i64) -> Timestamp {
    Timestamp::from_millis(1_000 * seq)
}

/// Six decisions that differ in one thing each.
async fn six(store: &dyn Store) -> Chain {
    let mut chain = Chain::new(1);
    let plain = |seq| Ask {
        at: at(seq),
        ..Ask::default()
    };
    let asks = [
        plain(1),
        Ask {
            agent: agent_id(2),
            ..plain(2)
        },
        Ask {
            tool: "shell",
            ..plain(3)
        },
        Ask {
            action: "read",
            ..plain(4)
        },
        Ask {
            reason: ReasonCode::UnknownTool,
            ..plain(5)
        },
        Ask {
            run_id: Some("run-1"),
            reason: ReasonCode::PolicyForbids,
            ..plain(6)
        },
    ];
    let mut batch = Batch::default();
    for ask in &asks {
        chain.decision(&mut batch, ask);
    }
    commit(store, &batch).await;
    chain
}

/// A filter of which one thing is set.
fn only(set: impl FnOnce(&mut DecisionFilter)) -> DecisionFilter {
    let mut filter = DecisionFilter::default();
    set(&mut filter);
    filter
}

/// Each filter alone.
pub async fn every_filter_finds_what_it_names_and_nothing_else(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let chain = six(&*store).await;
    let cases = [
        (DecisionFilter::default(), vec![6, 5, 4, 3, 2, 1]),
        (only(|filter| filter.agent = Some(agent_id(2))), vec![2]),
        (only(|filter| filter.agent = Some(agent_id(3))), vec![]),
        (only(|filter| filter.tool = Some(name("shell"))), vec![3]),
        (only(|filter| filter.tool = Some(name("Shell"))), vec![]),
        (only(|filter| filter.action = Some(name("read"))), vec![4]),
        (only(|filter| filter.verdict = Some(Verdict::Deny)), vec![6, 5]),
        (
            only(|filter| filter.verdict = Some(Verdict::Allow)),
            vec![4, 3, 2, 1],
        ),
        (
            only(|filter| filter.verdict = Some(Verdict::RequireApproval)),
            vec![],
        ),
        (
            only(|filter| filter.reason = Some(ReasonCode::UnknownTool)),
            vec![5],
        ),
        (only(|filter| filter.run_id = Some(name("run-1"))), vec![6]),
        (only(|filter| filter.from = Some(at(4))), vec![6, 5, 4]),
        (only(|filter| filter.to = Some(at(4))), vec![3, 2, 1]),
        (only(|filter| filter.after_seq = Some(4)), vec![6, 5]),
        (only(|filter| filter.after_seq = Some(6)), vec![]),
        (only(|filter| filter.after_seq = Some(u64::MAX)), vec![]),
    ];
    for (filter, expected) in cases {
        assert_eq!(found(&*store, &chain, &filter).await, expected, "{filter:?}");
    }
}

/// Each further filter takes something away.
pub async fn filters_together_narrow_the_search(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let chain = six(&*store).await;
    let mut filter = DecisionFilter {
        from: Some(at(2)),
        to: Some(at(6)),
        ..DecisionFilter::default()
    };
    assert_eq!(found(&*store, &chain, &filter).await, [5, 4, 3, 2]);
    filter.agent = Some(agent_id(1));
    assert_eq!(found(&*store, &chain, &filter).await, [5, 4, 3]);
    filter.tool = Some(name("github"));
    assert_eq!(found(&*store, &chain, &filter).await, [5, 4]);
    filter.verdict = Some(Verdict::Deny);
    assert_eq!(found(&*store, &chain, &filter).await, [5]);
    filter.reason = Some(ReasonCode::PolicyPermits);
    assert!(found(&*store, &chain, &filter).await.is_empty());
}

/// The entries that are named, as far as they are decisions of this tenant.
pub async fn decisions_are_found_at_their_entries(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, mut other) = (Chain::new(1), Chain::new(2));
    let mut batch = chain.decisions(3);
    chain.put_agent(&mut batch, 1, "builder");
    chain.decision(&mut batch, &Ask::default());
    other.decision(&mut batch, &Ask::default());
    commit(&*store, &batch).await;
    for (seqs, expected) in [
        (vec![], vec![]),
        (vec![2, 5, 1], vec![5, 2, 1]),
        (vec![4, 3], vec![3]),
        (vec![0, 6, u64::MAX, (1 << 40) + 1], vec![]),
    ] {
        let found = store.decisions_at(chain.tenant, &seqs).await.unwrap();
        let found: Vec<u64> = found.iter().map(|decision| decision.seq).collect();
        assert_eq!(found, expected, "{seqs:?}");
    }
    let one = &store.decisions_at(chain.tenant, &[2]).await.unwrap()[0];
    assert_eq!(
        Some(one),
        store.decision(chain.tenant, one.id).await.unwrap().as_ref()
    );
}

/// Every decision that was there is seen once, in order, although new ones arrive between the pages.
pub async fn pages_do_not_shift_while_decisions_arrive(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(25);
    chain.put_agent(&mut batch, 1, "builder");
    commit(&*store, &batch).await;
    let filter = DecisionFilter::default();
    let mut before = None;
    let mut seen = Vec::new();
    loop {
        let page = store.decisions(chain.tenant, &filter, before, 10).await.unwrap();
        seen.extend(page.iter().map(|decision| decision.seq));
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        commit(&*store, &chain.decisions(7)).await;
    }
    assert_eq!(seen, (1..=25).rev().collect::<Vec<_>>());
    assert!(
        store
            .decisions(chain.tenant, &filter, Some(0), 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        store
            .decisions(chain.tenant, &filter, None, 0)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        store
            .decisions(chain.tenant, &filter, Some(u64::MAX), 1)
            .await
            .unwrap()[0]
            .seq,
        chain.head().seq
    );
}

/// Further back than any backend looks in one go, and a page that is filled from several goes.
pub async fn a_rare_match_far_back_is_found(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    for _ in 0..3 {
        let mut batch = Batch::default();
        chain.decision(
            &mut batch,
            &Ask {
                tool: "rare",
                ..Ask::default()
            },
        );
        commit(&*store, &batch).await;
        for _ in 0..9 {
            commit(&*store, &chain.decisions(1_000)).await;
        }
    }
    let rare = only(|filter| filter.tool = Some(name("rare")));
    assert_eq!(found(&*store, &chain, &rare).await, [18_003, 9_002, 1]);
    let first = store.decisions(chain.tenant, &rare, None, 2).await.unwrap();
    assert_eq!(
        first.iter().map(|decision| decision.seq).collect::<Vec<_>>(),
        [18_003, 9_002]
    );
}
