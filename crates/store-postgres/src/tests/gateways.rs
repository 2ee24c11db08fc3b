//! Several gateways over one database: nobody forks, nobody is lost, everybody hears of changes.

use super::{database, head, open, write_three};
use crate::PostgresStore;
use crate::testing::Database;
use model::TenantId;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain, agent_id};
use store::conformance::{load, try_commit};
use store::{Batch, BucketKey, Buckets, CommitError, Directories, Journal, Records, Wanted};
use tokio::time::timeout;

/// So many gateways over one database.
async fn gateways(database: &Database, count: usize) -> Vec<Arc<PostgresStore>> {
    let mut stores = Vec::new();
    for _ in 0..count {
        stores.push(Arc::new(open(database).await));
    }
    stores
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_write_one_chain_each_for_two_tenants_without_a_fork() {
    const GATEWAYS: usize = 3;
    const ROUNDS: u64 = 40;
    let database = database().await;
    let writers = gateways(&database, GATEWAYS)
        .await
        .into_iter()
        .enumerate()
        .map(|(number, store)| {
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
                    // Named in another order by each: nobody may wait for somebody who waits.
                    let mut tenants = [one.tenant, two.tenant];
                    tenants.rotate_left(number % 2);
                    let turn = store.begin(&tenants).await.unwrap();
                    for chain in [&mut one, &mut two] {
                        if let Some(place) = turn.places().get(&chain.tenant) {
                            chain.tip = place.tip.clone();
                        }
                    }
                    let mut batch = Batch::default();
                    one.decision(&mut batch, &Ask::named(&format!("{number}-{round}")));
                    two.decision(&mut batch, &Ask::default());
                    one.decision(&mut batch, &Ask::default());
                    match turn.commit(&batch).await {
                        Ok(()) => {}
                        // Until both tenants are there, there is no row to lock.
                        Err(CommitError::HeadMoved { .. }) => assert!(round <= 1, "round {round}"),
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let store = open(&database).await;
    for (tenant, of_a_batch) in [(Chain::new(1).tenant, 2), (Chain::new(2).tenant, 1)] {
        let entries = store.entries(tenant, 0, 1_000).await.unwrap();
        assert!(entries.len() as u64 >= of_a_batch * (ROUNDS - 2) * GATEWAYS as u64);
        assert!(entries.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
        assert!(entries.windows(2).all(|pair| pair[0].hash == pair[1].prev));
        let end = store.head(tenant).await.unwrap();
        assert_eq!(
            (entries.len() as u64, entries.last().unwrap().hash),
            (end.seq, end.hash)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_gateways_that_make_the_same_tenants_at_once_one_is_first() {
    let database = database().await;
    let stores = gateways(&database, 4).await;
    for round in 0..20u8 {
        let (first, second) = (Chain::new(2 * round + 1), Chain::new(2 * round + 2));
        let makers = stores.iter().enumerate().map(|(number, store)| {
            let mut chains = [first.clone(), second.clone()];
            chains.rotate_left(number % 2);
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut batch = Batch::default();
                for chain in &mut chains {
                    let text = number.to_string();
                    chain.decision(
                        &mut batch,
                        &Ask {
                            text,
                            ..Ask::default()
                        },
                    );
                }
                try_commit(&*store, &batch).await
            })
        });
        let mut landed = 0;
        for maker in makers.collect::<Vec<_>>() {
            match maker.await.unwrap() {
                Ok(()) => landed += 1,
                Err(CommitError::HeadMoved { tenant }) => {
                    assert!([first.tenant, second.tenant].contains(&tenant));
                }
                Err(error) => panic!("round {round}: {error:?}"),
            }
        }
        assert_eq!(landed, 1, "round {round}");
        assert_eq!(stores[0].entries(first.tenant, 0, 10).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_turn_waits_for_the_one_of_another_gateway_and_then_knows_where_it_ended() {
    let database = database().await;
    let stores = gateways(&database, 2).await;
    let mut chain = Chain::new(1);
    write_three(&stores[0], &mut chain).await;
    let first = stores[0].begin(&[chain.tenant]).await.unwrap();
    let tenants = [chain.tenant];
    let second = stores[1].begin(&tenants);
    tokio::pin!(second);
    assert!(
        timeout(Duration::from_millis(300), &mut second).await.is_err(),
        "it did not wait"
    );
    // Another tenant's turn does not.
    drop(stores[1].begin(&[Chain::new(2).tenant]).await.unwrap());
    first.commit(&chain.decisions(1)).await.unwrap();
    assert_eq!(second.await.unwrap().places()[&chain.tenant].head(), chain.head());
}

#[tokio::test]
async fn a_turn_that_is_given_back_goes_to_whoever_waits() {
    let database = database().await;
    let stores = gateways(&database, 2).await;
    let mut chain = Chain::new(1);
    write_three(&stores[0], &mut chain).await;
    for round in 0..10 {
        drop(stores[round % 2].begin(&[chain.tenant]).await.unwrap());
        let begin = Instant::now();
        write_three(&stores[1 - round % 2], &mut chain).await;
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn a_request_that_another_gateway_recorded_is_found_and_not_recorded_again() {
    let database = database().await;
    let stores = gateways(&database, 2).await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.decision(&mut batch, &Ask::named("call-1"));
    try_commit(&*stores[0], &batch).await.unwrap();
    let mut turn = stores[1].begin(&[chain.tenant]).await.unwrap();
    let found = turn.find_requests(&[chain.key("call-1")]).await.unwrap();
    assert_eq!(found[0].receipt, batch.decisions[0].receipt);
    let mut again = Batch::default();
    chain.clone().decision(&mut again, &Ask::named("call-1"));
    let error = turn.commit(&again).await.unwrap_err();
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error:?}");
    // And the turn is given back.
    write_three(&stores[0], &mut chain).await;
}

#[tokio::test]
async fn a_change_wakes_the_other_gateways_and_not_its_own() {
    let database = database().await;
    let stores = gateways(&database, 3).await;
    for store in &stores {
        // A connection that has just been made may have missed something.
        timeout(Duration::from_secs(5), store.changed())
            .await
            .unwrap()
            .unwrap();
    }
    let waiting = |store: &Arc<PostgresStore>| {
        let store = Arc::clone(store);
        tokio::spawn(async move { timeout(Duration::from_millis(1_500), store.changed()).await })
    };
    let (own, one, other) = (waiting(&stores[0]), waiting(&stores[1]), waiting(&stores[2]));
    let mut chain = Chain::new(1);
    // A decision changes no directory, and what did not commit did not change anything.
    write_three(&stores[0], &mut chain).await;
    let mut batch = Batch::default();
    chain.clone().put_agent(&mut batch, 1, "builder");
    batch.entries[0].seq += 1;
    assert!(try_commit(&*stores[0], &batch).await.is_err());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!one.is_finished() && !other.is_finished(), "woken without cause");
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    try_commit(&*stores[0], &batch).await.unwrap();
    let begin = Instant::now();
    one.await.unwrap().unwrap().unwrap();
    other.await.unwrap().unwrap().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(own.await.unwrap().is_err(), "it woke itself");
    assert_eq!(stores[1].revisions().await.unwrap(), [(chain.tenant, 1)]);
    assert_eq!(load(&*stores[2]).await[0].nouns.len(), 1);
}

#[tokio::test]
async fn a_gateway_that_stops_in_its_turn_holds_up_the_others_for_a_moment_only() {
    let database = database().await;
    let stores = gateways(&database, 2).await;
    let mut chain = Chain::new(1);
    write_three(&stores[0], &mut chain).await;
    // It holds the turn and does nothing any more, as after SIGSTOP.
    let stopped = stores[0].begin(&[chain.tenant]).await.unwrap();
    let begin = Instant::now();
    let mut next = chain.clone();
    try_commit(&*stores[1], &next.decisions(1)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    // When it comes back, its turn is over.
    let error = stopped.commit(&chain.clone().decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    assert_eq!(head(&stores[1], &chain).await, next.head());
    // The one after is a turn like any other.
    write_three(&stores[0], &mut next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_together_never_lend_more_than_a_bucket_holds() {
    const CAPACITY: u32 = 40;
    const REFILL: f64 = 300.0;
    let database = database().await;
    let size = model::Bucket::new(CAPACITY, REFILL).unwrap();
    let stores = gateways(&database, 3).await;
    let begin = Instant::now();
    let leasers = stores.into_iter().flat_map(|store| {
        (0..3).map(move |_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let key = BucketKey {
                    tenant: TenantId::from_bytes([1; 16]),
                    owner: format!("agent {}", agent_id(1)),
                };
                let mut granted = 0;
                while begin.elapsed() < Duration::from_secs(1) {
                    granted += store
                        .lease(&key, size, Wanted { least: 1, most: 5 })
                        .await
                        .unwrap()
                        .granted;
                }
                granted
            })
        })
    });
    let mut total = 0;
    for leaser in leasers.collect::<Vec<_>>() {
        total += leaser.await.unwrap();
    }
    let most = f64::from(CAPACITY) + REFILL * (begin.elapsed().as_secs_f64() + 0.001);
    assert!(f64::from(total) <= most, "{total} of {most}");
    assert!(total > CAPACITY, "{total}: nothing was refilled");
}
