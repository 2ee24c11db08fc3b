//! Several gateways over one database: nobody forks, nobody is lost, everybody hears of changes.

use super::{PATIENCE, TRIES, database, end_sessions, head, hear, open, write_three};
use crate::PostgresStore;
use crate::testing::Database;
use model::{Attributes, Noun, Team, TenantId, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain, agent_id, name};
use store::conformance::{STALLS_MAX, commit, stood_still, try_commit};
use store::{Batch, BucketKey, Buckets, CommitError, Directories, Journal, Records, Turn, Wanted};
use tokio::time::timeout;

/// So many gateways over one database.
async fn gateways(database: &Database, count: usize) -> Vec<Arc<PostgresStore>> {
    let mut stores = Vec::new();
    for _ in 0..count {
        stores.push(Arc::new(open(database).await));
    }
    stores
}

/// One batch for two tenants, from where they stand.
async fn write_for_two(store: &PostgresStore, number: usize, round: usize) -> Result<(), CommitError> {
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    // Named in another order by each: nobody may wait for somebody who waits.
    let mut tenants = [one.tenant, two.tenant];
    tenants.rotate_left(number % 2);
    let turn = store.begin(&tenants).await;
    let turn = turn.map_err(|error| CommitError::NotWritten(error.into()))?;
    for chain in [&mut one, &mut two] {
        if let Some(position) = turn.positions().get(&chain.tenant) {
            chain.tip = position.tip.clone();
        }
    }
    let mut batch = Batch::default();
    one.decision(&mut batch, &Ask::named(&format!("{number}-{round}")));
    two.decision(&mut batch, &Ask::default());
    one.decision(&mut batch, &Ask::default());
    turn.commit(&batch).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_write_one_chain_each_for_two_tenants_without_a_fork() {
    const GATEWAYS: usize = 3;
    const ROUNDS: usize = 40;
    let database = database().await;
    let writers = gateways(&database, GATEWAYS)
        .await
        .into_iter()
        .enumerate()
        .map(|(number, store)| {
            tokio::spawn(async move {
                let (mut written, mut stalls) = (0, 0);
                for round in 0..ROUNDS {
                    match write_for_two(&store, number, round).await {
                        Ok(()) => written += 1,
                        // Until both tenants are there, there is no row to lock.
                        Err(CommitError::HeadMoved { .. }) => assert!(round <= 1 + stalls, "round {round}"),
                        Err(error) if stood_still(&error) && stalls < STALLS_MAX => stalls += 1,
                        Err(error) => panic!("{error:?}"),
                    }
                }
                written
            })
        });
    let mut written = 0;
    for writer in writers.collect::<Vec<_>>() {
        written += writer.await.unwrap();
    }
    assert!(written >= (ROUNDS - 2 - STALLS_MAX) * GATEWAYS, "{written}");
    let store = open(&database).await;
    for (tenant, of_a_batch) in [(Chain::new(1).tenant, 2), (Chain::new(2).tenant, 1)] {
        let entries = store.entries(tenant, 0, 1_000).await.unwrap();
        assert_eq!(entries.len(), of_a_batch * written);
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
    let mut stalls = 0;
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
        let (mut landed, mut late) = (0, Vec::new());
        for maker in makers.collect::<Vec<_>>() {
            match maker.await.unwrap() {
                Ok(()) => landed += 1,
                Err(CommitError::HeadMoved { tenant }) => {
                    assert!([first.tenant, second.tenant].contains(&tenant));
                }
                Err(error) if stood_still(&error) => late.push(error),
                Err(error) => panic!("round {round}: {error:?}"),
            }
        }
        if !late.is_empty() {
            stalls += 1;
            assert!(stalls <= STALLS_MAX, "round {round}: {late:?}");
            if landed == 0 {
                continue;
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
    let tenants = [chain.tenant];
    for _ in 0..TRIES {
        let Ok(first) = stores[0].begin(&tenants).await else {
            continue;
        };
        let second = stores[1].begin(&tenants);
        tokio::pin!(second);
        let waited = timeout(Duration::from_millis(300), &mut second).await.is_err();
        // Another tenant's turn does not.
        if stores[1].begin(&[Chain::new(2).tenant]).await.is_err() {
            continue;
        }
        let mut next = chain.clone();
        match first.commit(&next.decisions(1)).await {
            Ok(()) => assert!(waited, "it did not wait"),
            // For longer than a turn may last.
            Err(error) if stood_still(&error) => continue,
            Err(error) => panic!("{error:?}"),
        }
        chain = next;
        // And it may have stood still for longer than a turn is waited for.
        if let Ok(second) = second.await {
            assert_eq!(second.positions()[&chain.tenant].head(), chain.head());
            return;
        }
    }
    panic!("no turn came after another one");
}

#[tokio::test]
async fn a_turn_that_is_given_back_goes_to_whoever_waits() {
    let database = database().await;
    let stores = gateways(&database, 2).await;
    let mut chain = Chain::new(1);
    write_three(&stores[0], &mut chain).await;
    let mut slow = 0;
    let mut round = 0;
    while round < 10 {
        let turn = stores[round % 2].begin(&[chain.tenant]).await;
        let is_taken = turn.is_ok();
        drop(turn);
        let begin = Instant::now();
        write_three(&stores[1 - round % 2], &mut chain).await;
        // A turn that is not given back ends when the server gives it up. A round in which somebody waited is played again.
        let is_slow = !is_taken || begin.elapsed() > Duration::from_secs(1);
        slow += usize::from(is_slow);
        assert!(slow <= STALLS_MAX, "{slow} waited, the last one in round {round}");
        round += usize::from(!is_slow);
    }
}

#[tokio::test]
async fn a_request_that_another_gateway_recorded_is_found_and_not_recorded_again() {
    let database = database().await;
    let stores = gateways(&database, 2).await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.decision(&mut batch, &Ask::named("call-1"));
    commit(&*stores[0], &batch).await;
    for _ in 0..TRIES {
        // It may stand still for longer than a turn may last.
        let Ok(mut turn) = stores[1].begin(&[chain.tenant]).await else {
            continue;
        };
        let Ok(found) = turn.find_requests(&[chain.key("call-1")]).await else {
            continue;
        };
        assert_eq!(found[0].receipt, batch.decisions[0].receipt);
        let mut again = Batch::default();
        chain.clone().decision(&mut again, &Ask::named("call-1"));
        match turn.commit(&again).await {
            Err(CommitError::AlreadyRecorded) => {}
            Err(error) if stood_still(&error) => continue,
            outcome => panic!("{outcome:?}"),
        }
        // And the turn is given back.
        write_three(&stores[0], &mut chain).await;
        return;
    }
    panic!("no turn came to its end");
}

#[tokio::test]
async fn an_earlier_request_is_found_while_all_turns_are_taken() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.decision(&mut batch, &Ask::named("call-1"));
    try_commit(&store, &batch).await.unwrap();
    let mut turns = Vec::new();
    while store.turns.free() > 0 {
        turns.push(store.turns.lend().await.unwrap());
    }
    let found = store.answered_request(&chain.key("call-1")).await.unwrap();
    assert_eq!(found.unwrap().receipt, batch.decisions[0].receipt);
}

/// What is wrong with who is woken by a change, and when. Where the machine stands still a connection that listens may
/// be made anew, and then it is as if there had been a change.
async fn wake_the_others() -> Result<(), &'static str> {
    let database = database().await;
    let stores = gateways(&database, 3).await;
    for store in &stores {
        // A connection that has just been made may have missed something.
        hear(store).await;
    }
    let waiting = |store: &Arc<PostgresStore>| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.changed().await })
    };
    let (own, mut one, mut other) = (waiting(&stores[0]), waiting(&stores[1]), waiting(&stores[2]));
    let mut chain = Chain::new(1);
    // A decision changes no directory, and what did not commit did not change anything.
    write_three(&stores[0], &mut chain).await;
    let mut batch = Batch::default();
    chain.clone().put_agent(&mut batch, 1, "builder");
    batch.entries[0].seq += 1;
    assert!(try_commit(&*stores[0], &batch).await.is_err());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let is_early = one.is_finished() || other.is_finished();
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    commit(&*stores[0], &batch).await;
    let both = async { tokio::join!(&mut one, &mut other) };
    let woken = timeout(Duration::from_secs(1), both).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let woke_itself = own.is_finished();
    for waiting in [own, one, other] {
        waiting.abort();
    }
    let (Ok(revisions), Ok(loaded)) = (stores[1].revisions().await, stores[2].load(None).await) else {
        return Err("it stood still");
    };
    assert_eq!(revisions, [(chain.tenant, 1)]);
    assert_eq!(loaded[0].nouns.len(), 1);
    match woken {
        _ if is_early => Err("woken without cause"),
        _ if woke_itself => Err("it woke itself"),
        Ok((Ok(Ok(())), Ok(Ok(())))) => Ok(()),
        _ => Err("not woken at once"),
    }
}

#[tokio::test]
async fn a_change_wakes_the_other_gateways_and_not_its_own() {
    let mut tries = 1;
    while let Err(what) = wake_the_others().await {
        assert!(tries < TRIES, "{what}");
        tries += 1;
    }
}

#[tokio::test]
async fn changes_of_long_ago_or_of_very_many_nouns_are_not_remembered() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    for number in 0..300_u32 {
        let mut batch = Batch::default();
        chain.put_agent(&mut batch, 1, &format!("builder {number}"));
        commit(&store, &batch).await;
    }
    let is_told_since = async |revision| {
        let changed = store.changes(&[(chain.tenant, revision)]).await.unwrap();
        !changed.is_empty()
    };
    for (revision, is_told) in [(0, false), (43, false), (44, true), (299, true), (300, true)] {
        assert_eq!(is_told_since(revision).await, is_told, "{revision}");
    }
    let mut stranger = database.stranger().await;
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM directory_changes")
        .fetch_one(&mut stranger)
        .await
        .unwrap();
    assert_eq!(kept, 256);

    let mut batch = Batch::default();
    for number in 0..257_u16 {
        let [high, low] = number.to_be_bytes();
        let team = Team {
            name: name(&format!("team {high} {low}")),
            attributes: Attributes::default(),
            quotas: Vec::new(),
        };
        chain.write(&mut batch, Write::Put(Noun::Team(Arc::new(team))));
    }
    commit(&store, &batch).await;
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    commit(&store, &batch).await;
    for (revision, nouns) in [(300, None), (557, Some(1))] {
        let changed = store.changes(&[(chain.tenant, revision)]).await.unwrap();
        assert_eq!(
            changed.first().map(|changed| changed.nouns.len()),
            nouns,
            "{revision}"
        );
    }
}

/// As in the operators' directory where a tenant is made.
#[tokio::test]
async fn a_change_without_a_noun_has_the_change_of_long_ago_forgotten_too() {
    let database = database().await;
    let store = open(&database).await;
    let (mut chain, mut new) = (Chain::new(1), Chain::new(2));
    for number in 0..256_u32 {
        let mut batch = Batch::default();
        chain.put_agent(&mut batch, 1, &format!("builder {number}"));
        commit(&store, &batch).await;
    }
    let mut batch = Batch::default();
    chain.revision += 1;
    chain.decision(&mut batch, &Ask::default());
    new.put_agent(&mut batch, 1, "builder");
    commit(&store, &batch).await;
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    commit(&store, &batch).await;
    let mut stranger = database.stranger().await;
    let (first, kept): (i64, i64) = sqlx::query_as(
        "SELECT min(revision), count(*)
         FROM directory_changes
         WHERE tenant_id <> '02020202020202020202020202020202'",
    )
    .fetch_one(&mut stranger)
    .await
    .unwrap();
    assert_eq!((first, kept), (3, 255));
    // And nothing leads past the one without a noun.
    for (revision, is_told) in [(256, false), (257, true), (258, true)] {
        let changed = store.changes(&[(chain.tenant, revision)]).await.unwrap();
        assert_eq!(!changed.is_empty(), is_told, "{revision}");
    }
}

#[tokio::test]
async fn a_gateway_that_stops_in_its_turn_holds_up_the_others_for_a_moment_only() {
    let database = database().await;
    let stores = gateways(&database, 2).await;
    let mut chain = Chain::new(1);
    write_three(&stores[0], &mut chain).await;
    for _ in 0..TRIES {
        // It holds the turn and does nothing any more, as after SIGSTOP.
        let Ok(stopped) = stores[0].begin(&[chain.tenant]).await else {
            continue;
        };
        let begin = Instant::now();
        let mut next = chain.clone();
        match try_commit(&*stores[1], &next.decisions(1)).await {
            Ok(()) => {}
            // For longer than a turn is waited for.
            Err(error) if stood_still(&error) => continue,
            Err(error) => panic!("{error:?}"),
        }
        let is_held_up = begin.elapsed() > Duration::from_secs(3);
        // When it comes back, its turn is over.
        let error = stopped.commit(&chain.clone().decisions(1)).await.unwrap_err();
        assert!(error.is_turn_over(), "{error:?}");
        assert_eq!(head(&stores[1], &chain).await, next.head());
        // The one after is a turn like any other.
        write_three(&stores[0], &mut next).await;
        if !is_held_up {
            return;
        }
        chain = next;
    }
    panic!("the others were held up each time");
}

/// A turn of this chain's tenant.
async fn turn(store: &PostgresStore, chain: &Chain) -> Box<dyn Turn> {
    for _ in 0..TRIES {
        // A machine that stands still fails this for nothing.
        if let Ok(turn) = store.begin(&[chain.tenant]).await {
            return turn;
        }
    }
    panic!("no turn can be had");
}

/// Whatever it does first when it goes on: it asks for something, or it commits.
#[tokio::test]
async fn a_turn_that_the_server_has_ended_says_so_to_whoever_asks_in_it() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut turn = turn(&store, &chain).await;
    // Longer than a turn may stand idle.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let error = turn.find_requests(&[chain.key("call-1")]).await.unwrap_err();
    assert!(error.is_turn_over(), "{error:?}");
    drop(turn);
    write_three(&store, &mut chain).await;
}

/// Nothing was written, so it can be made again, whoever has ended it.
#[tokio::test]
async fn a_turn_whose_session_was_ended_is_over_for_whoever_asks_or_commits_in_it() {
    let database = database().await;
    let store = open(&database).await;
    let mut stranger = database.stranger().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut asked = turn(&store, &chain).await;
    end_sessions(&mut stranger).await;
    let error = asked.find_requests(&[chain.key("call-1")]).await.unwrap_err();
    assert!(error.is_turn_over(), "{error:?}");
    drop(asked);
    let committed = turn(&store, &chain).await;
    end_sessions(&mut stranger).await;
    let error = committed.commit(&chain.clone().decisions(1)).await.unwrap_err();
    assert!(error.is_turn_over(), "{error:?}");
    assert_eq!(head(&store, &chain).await, chain.head());
    write_three(&store, &mut chain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_together_never_lend_more_than_a_bucket_holds() {
    const CAPACITY: u32 = 40;
    const REFILL: f64 = 300.0;
    let database = database().await;
    let size = model::Bucket::new(CAPACITY, REFILL).unwrap();
    let stores = gateways(&database, 3).await;
    let total = Arc::new(AtomicU32::new(0));
    let begin = Instant::now();
    let leasers = stores.into_iter().flat_map(|store| {
        let total = &total;
        (0..3).map(move |_| {
            let (store, total) = (Arc::clone(&store), Arc::clone(total));
            tokio::spawn(async move {
                let key = BucketKey {
                    tenant: TenantId::from_bytes([1; 16]),
                    owner: format!("agent {}", agent_id(1)),
                };
                // For a second and, however slow the server is, until more was lent than the bucket held.
                while begin.elapsed() < Duration::from_secs(1)
                    || (total.load(Ordering::Relaxed) <= CAPACITY && begin.elapsed() < PATIENCE)
                {
                    let wanted = Wanted { least: 1, most: 5 };
                    let lease = store.lease(&key, size, wanted).await.unwrap();
                    total.fetch_add(lease.granted, Ordering::Relaxed);
                }
            })
        })
    });
    for leaser in leasers.collect::<Vec<_>>() {
        leaser.await.unwrap();
    }
    let total = total.load(Ordering::Relaxed);
    let most = f64::from(CAPACITY) + REFILL * (begin.elapsed().as_secs_f64() + 0.001);
    assert!(f64::from(total) <= most, "{total} of {most}");
    assert!(total > CAPACITY, "{total}: nothing was refilled");
}
