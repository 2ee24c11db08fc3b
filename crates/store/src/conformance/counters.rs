//! What is promised of counters: they change with the commit of what they count.

use super::sample::{Chain, name};
use super::{Fixture, commit, refused};
use crate::{Batch, LOOKED_AT_MAX, Store};
use canon::Digest;
use model::{Counter, Timestamp};
use std::time::Duration;

fn counter(key: &str, count: u64) -> Counter {
    Counter {
        key: Digest::of(key.as_bytes()),
        start: Timestamp::from_millis(60_000),
        count,
        at: Timestamp::from_millis(61_000),
    }
}

/// Adds to a batch how a counter is from now on, with an entry.
fn put(chain: &mut Chain, batch: &mut Batch, counter: Counter) {
    let body = canon::of(&name("counted")).expect("a name is JSON");
    chain.entry(batch, "counted", Timestamp::from_millis(5), body);
    batch.counters.push((chain.tenant, counter));
}

async fn find(store: &dyn Store, chain: &Chain, keys: &[&str]) -> Vec<Counter> {
    let asked: Vec<_> = keys
        .iter()
        .map(|key| (chain.tenant, Digest::of(key.as_bytes())))
        .collect();
    let mut turn = store.begin(&[chain.tenant]).await.unwrap();
    let mut found = turn.find_counters(&asked).await.unwrap();
    drop(turn);
    let mut read = store.counters(&asked).await.unwrap();
    found.sort_by_key(|(_, counter)| *counter.key.as_bytes());
    read.sort_by_key(|(_, counter)| *counter.key.as_bytes());
    assert_eq!(found, read, "the turn and the reader differ");
    assert!(found.iter().all(|(tenant, _)| *tenant == chain.tenant));
    found.into_iter().map(|(_, counter)| counter).collect()
}

/// Of two in one batch the last one; and it is there after reopening.
pub async fn a_counter_is_what_was_written_last(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    put(&mut chain, &mut batch, counter("a", 1));
    put(&mut chain, &mut batch, counter("a", 2));
    put(&mut chain, &mut batch, counter("b", 7));
    commit(&*store, &batch).await;
    assert_eq!(find(&*store, &chain, &["a", "never"]).await, [counter("a", 2)]);
    let mut batch = Batch::default();
    put(&mut chain, &mut batch, counter("a", 3));
    commit(&*store, &batch).await;
    let store = fixture.reopen().await;
    assert_eq!(find(&*store, &chain, &["a"]).await, [counter("a", 3)]);
    assert_eq!(find(&*store, &chain, &["b"]).await, [counter("b", 7)]);
    assert!(find(&*store, &chain, &[]).await.is_empty());
}

/// Also where the keys are the same, and whatever was not committed.
pub async fn a_counter_is_its_tenants_alone(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = two.decisions(1);
    put(&mut one, &mut batch, counter("a", 1));
    commit(&*store, &batch).await;
    assert_eq!(find(&*store, &one, &["a"]).await, [counter("a", 1)]);
    assert!(find(&*store, &two, &["a"]).await.is_empty());
    let mut batch = Batch::default();
    put(&mut Chain::new(2), &mut batch, counter("a", 9));
    refused(&*store, &batch).await;
    let mut batch = one.clone().decisions(1);
    batch.counters.push((two.tenant, counter("a", 9)));
    refused(&*store, &batch).await;
    assert!(find(&*store, &two, &["a"]).await.is_empty());
}

/// So that all of them can be moved elsewhere.
pub async fn counters_are_listed_in_the_order_of_their_keys(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = two.decisions(1);
    put(&mut two, &mut batch, counter("foreign", 1));
    for key in ["a", "b", "c"] {
        put(&mut one, &mut batch, counter(key, 1));
    }
    commit(&*store, &batch).await;
    let first = store.counters_after(one.tenant, None, 2).await.unwrap();
    let rest = store
        .counters_after(one.tenant, first.last().map(|counter| counter.key), 2)
        .await
        .unwrap();
    let keys: Vec<_> = first
        .iter()
        .chain(&rest)
        .map(|counter| *counter.key.as_bytes())
        .collect();
    assert_eq!((first.len(), rest.len()), (2, 1));
    assert!(keys.is_sorted() && keys.len() == 3);
}

/// And only they.
pub async fn counters_that_nothing_was_counted_in_for_long_are_forgotten(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    let at = |key, millis| Counter {
        at: Timestamp::from_millis(millis),
        ..counter(key, 1)
    };
    put(&mut chain, &mut batch, at("old", 1_000));
    put(&mut chain, &mut batch, at("new", 2_000));
    commit(&*store, &batch).await;
    let before = Timestamp::from_millis(2_000);
    assert_eq!(store.forget_counters(before).await.unwrap().gone, 1);
    assert_eq!(store.forget_counters(before).await.unwrap().gone, 0);
    assert_eq!(find(&*store, &chain, &["old", "new"]).await, [at("new", 2_000)]);
}

/// However many there are between them that stay, and of which tenant they are.
pub async fn old_counters_are_forgotten_wherever_they_are(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = two.decisions(1);
    put(&mut one, &mut batch, counter("first", 1));
    let every = |number: u32| Counter {
        at: Timestamp::from_millis(if number.is_multiple_of(3) { 1_000 } else { 2_000 }),
        ..counter(&number.to_string(), 1)
    };
    let numbers = 0..LOOKED_AT_MAX + 900;
    for chain in [&one, &two] {
        let rows = numbers.clone().map(|number| (chain.tenant, every(number)));
        batch.counters.extend(rows);
    }
    commit(&*store, &batch).await;
    let (before, mut forgotten) = (Timestamp::from_millis(2_000), 0);
    loop {
        let swept = store.forget_counters(before).await.unwrap();
        forgotten += swept.gone;
        if swept.is_through {
            break;
        }
    }
    let of_one = numbers.clone().filter(|number| number.is_multiple_of(3)).count();
    assert_eq!(forgotten, 2 * of_one as u64);
    for (chain, more) in [(&one, 1), (&two, 0)] {
        let left = store.counters_after(chain.tenant, None, u32::MAX).await.unwrap();
        assert!(left.iter().all(|counter| counter.at >= before));
        assert_eq!(left.len(), numbers.len() - of_one + more);
    }
}

/// Who has the turn may have it for as long as it likes.
pub async fn nobody_has_to_give_up_a_turn_where_no_counter_is_old(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    put(&mut chain, &mut batch, counter("a", 1));
    commit(&*store, &batch).await;
    let turn = store.begin(&[chain.tenant]).await.unwrap();
    let looked = store.forget_counters(counter("a", 1).at);
    let looked = tokio::time::timeout(Duration::from_secs(10), looked).await;
    assert_eq!(looked.expect("it waits for a turn").unwrap().gone, 0);
    drop(turn);
}
