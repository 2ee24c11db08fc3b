//! What erasing promises: the body goes with everything that tells what it told, in the commit that tells of it, and nothing
//! else.

use super::budgets::{put_reservations, reservation};
use super::sample::{Ask, Chain, agent_id, name};
use super::{Fixture, commit, find_outcomes, find_requests, refused};
use crate::{
    Batch, CommitError, DecisionFilter, Erased, ErasureRow, MalformedBatch, RequestKey, Store, StoredEntry,
};
use canon::Digest;
use model::Timestamp;

async fn entry(store: &dyn Store, chain: &Chain, seq: u64) -> StoredEntry {
    store.entries(chain.tenant, seq, 1).await.unwrap().remove(0)
}

/// The erasure of a body as it is stored, told by the entry at `by`.
async fn erasure(store: &dyn Store, chain: &Chain, seq: u64, by: u64) -> ErasureRow {
    ErasureRow {
        tenant: chain.tenant,
        seq,
        body: Digest::of(entry(store, chain, seq).await.body.as_bytes()),
        by,
        request: None,
        outcome: None,
        approval: None,
        reservation: None,
    }
}

/// An entry that tells of erasures.
fn tell(chain: &mut Chain, batch: &mut Batch) -> u64 {
    let body = canon::of(&serde_json::json!({})).expect("samples are JSON");
    chain.entry(batch, "bodies_erased", Timestamp::from_millis(9), body);
    chain.head().seq
}

/// The row of the entry, and nothing of what it told.
pub async fn an_erased_body_is_gone_with_all_that_tells_of_it(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    let first = chain.decision(&mut batch, &Ask::named("call-1"));
    let second = chain.decision(&mut batch, &Ask::named("call-2"));
    chain.outcome(&mut batch, first);
    chain.outcome(&mut batch, second);
    commit(&*store, &batch).await;
    let before = entry(&*store, &chain, 1).await;
    assert_eq!(
        store.outcomes_of(chain.tenant, &[first, second]).await.unwrap(),
        [3, 4]
    );
    let mut batch = Batch::default();
    let by = tell(&mut chain, &mut batch);
    let mut erased = erasure(&*store, &chain, 1, by).await;
    erased.request = Some((agent_id(1), name("call-1")));
    let outcome = ErasureRow {
        outcome: Some(first),
        ..erasure(&*store, &chain, 3, by).await
    };
    batch.erasures = vec![erased.clone(), outcome];
    commit(&*store, &batch).await;
    let after = StoredEntry {
        body: String::new(),
        erased: Some(Erased {
            body: erased.body,
            by,
        }),
        ..before
    };
    assert_eq!(entry(&*store, &chain, 1).await, after);
    assert_eq!(store.decision(chain.tenant, first).await.unwrap(), None);
    assert_eq!(store.receipt(chain.tenant, first).await.unwrap(), None);
    let left = store
        .decisions(chain.tenant, &DecisionFilter::default(), None, 9)
        .await
        .unwrap();
    assert_eq!(
        left.iter().map(|decision| decision.id).collect::<Vec<_>>(),
        [second]
    );
    let key = |request_id| RequestKey {
        tenant: chain.tenant,
        agent: agent_id(1),
        request_id: name(request_id),
    };
    assert!(store.answered_request(&key("call-1")).await.unwrap().is_none());
    let found = find_requests(&*store, &[key("call-1"), key("call-2")]).await;
    assert_eq!(
        found.iter().map(|found| &found.key).collect::<Vec<_>>(),
        [&key("call-2")]
    );
    let both = [(chain.tenant, first), (chain.tenant, second)];
    // Of the first there is none any more, and there can be none.
    assert_eq!(find_outcomes(&*store, &both).await.len(), 2);
    assert_eq!(
        store.outcomes_of(chain.tenant, &[first, second]).await.unwrap(),
        [4, by]
    );
    // The id may come again, because nobody knows any more what it stood for.
    let mut batch = Batch::default();
    chain.decision(&mut batch, &Ask::named("call-1"));
    commit(&*store, &batch).await;
}

/// Whoever reports it has seen the decision before that was erased. Whether there was an outcome before makes no
/// difference.
pub async fn an_outcome_behind_the_erasure_of_its_decision_is_not_recorded(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, mut other) = (Chain::new(1), Chain::new(2));
    let mut batch = Batch::default();
    let silent = chain.decision(&mut batch, &Ask::default());
    let told = chain.decision(&mut batch, &Ask::default());
    chain.outcome(&mut batch, told);
    commit(&*store, &batch).await;
    let mut batch = Batch::default();
    let by = tell(&mut chain, &mut batch);
    for (seq, decision) in [(1, silent), (2, told)] {
        batch.erasures.push(ErasureRow {
            outcome: Some(decision),
            ..erasure(&*store, &chain, seq, by).await
        });
    }
    batch.erasures.push(erasure(&*store, &chain, 3, by).await);
    commit(&*store, &batch).await;
    for decision in [silent, told] {
        let mut batch = Batch::default();
        chain.clone().outcome(&mut batch, decision);
        let errors = [
            refused(&*store, &batch).await,
            store.append(&batch).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, CommitError::AlreadyRecorded), "{error:?}");
        }
    }
    let mut batch = Batch::default();
    other.outcome(&mut batch, silent);
    commit(&*store, &batch).await;
}

/// And what is still held stays until it is settled.
pub async fn what_was_held_is_gone_with_the_body_that_told_of_it(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, mut other) = (Chain::new(1), Chain::new(2));
    commit(&*store, &chain.decisions(3)).await;
    let (one, two, three) = (
        reservation(1, 1_000),
        reservation(2, 1_000),
        reservation(3, 1_000),
    );
    let rows = [one.release(), two.clone(), three.release()];
    put_reservations(&*store, &mut chain, &rows).await;
    put_reservations(&*store, &mut other, &[one.release()]).await;
    let mut batch = Batch::default();
    let by = tell(&mut chain, &mut batch);
    for (seq, held) in [(1, &one), (2, &two)] {
        batch.erasures.push(ErasureRow {
            reservation: Some(held.id),
            ..erasure(&*store, &chain, seq, by).await
        });
    }
    batch.erasures.push(erasure(&*store, &chain, 3, by).await);
    commit(&*store, &batch).await;
    let find = async |chain: &Chain, id| store.reservation(chain.tenant, id).await.unwrap();
    assert_eq!(find(&chain, one.id).await, None);
    assert_eq!(find(&chain, two.id).await, Some(two));
    assert_eq!(find(&chain, three.id).await, Some(three.release()));
    assert_eq!(find(&other, one.id).await, Some(one.release()));
}

/// Twice is once, and the first entry that told of it stays the one.
pub async fn a_body_is_erased_once(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    commit(&*store, &chain.decisions(2)).await;
    let mut batch = Batch::default();
    let by = tell(&mut chain, &mut batch);
    batch.erasures = vec![erasure(&*store, &chain, 1, by).await];
    commit(&*store, &batch).await;
    let erased = entry(&*store, &chain, 1).await;
    let mut turn = store.begin(&[chain.tenant]).await.unwrap();
    let asked = [(chain.tenant, 2), (chain.tenant, 1), (Chain::new(2).tenant, 1)];
    assert_eq!(turn.find_erased(&asked).await.unwrap(), [(chain.tenant, 1)]);
    drop(turn);
    let mut batch = Batch::default();
    let again = tell(&mut chain, &mut batch);
    batch.erasures = vec![erasure(&*store, &chain, 1, again).await];
    commit(&*store, &batch).await;
    assert_eq!(entry(&*store, &chain, 1).await, erased);
}

/// An erasure without the entry that tells of it, of what is not there, or of somebody else's.
pub async fn an_erasure_that_nothing_tells_of_is_not_written(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, mut other) = (Chain::new(1), Chain::new(2));
    commit(&*store, &chain.decisions(2)).await;
    commit(&*store, &other.decisions(2)).await;
    let row = erasure(&*store, &chain, 1, 3).await;
    let of_other = ErasureRow {
        tenant: other.tenant,
        ..row.clone()
    };
    let earlier = ErasureRow { by: 2, ..row.clone() };
    let itself = ErasureRow {
        seq: 3,
        ..row.clone()
    };
    for wrong in [of_other, earlier, itself] {
        let mut chain = chain.clone();
        let mut batch = Batch::default();
        tell(&mut chain, &mut batch);
        batch.erasures = vec![wrong];
        let error = refused(&*store, &batch).await;
        let CommitError::NotWritten(source) = error else {
            panic!("{error}")
        };
        assert!(source.is::<MalformedBatch>(), "{source}");
    }
    // The entry is there and is of another kind: the database itself refuses it.
    let mut batch = chain.clone().decisions(1);
    batch.erasures = vec![row];
    assert!(matches!(
        refused(&*store, &batch).await,
        CommitError::NotWritten(_)
    ));
    assert_eq!(entry(&*store, &chain, 1).await.erased, None);
}
