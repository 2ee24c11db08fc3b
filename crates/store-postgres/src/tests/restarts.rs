//! A server that stops and starts again, under load: what was answered is there, and nobody has to open the store again.

use super::{PATIENCE, TRIES, hear, open_at, write_three};
use crate::testing::Server;
use crate::{OpenError, PostgresStore};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain};
use store::conformance::{commit, load, try_commit};
use store::{Batch, CommitError, Directories, Journal, Records, commit_in_turn};
use tokio::time::timeout;

/// Writes one chain until it is told to stop, and returns its end and how many commits failed.
async fn keep_writing(store: Arc<PostgresStore>, number: u8, stop: Arc<AtomicBool>) -> (Chain, usize) {
    let mut chain = Chain::new(number);
    let mut failed = 0;
    while !stop.load(Ordering::SeqCst) {
        let mut next = chain.clone();
        let batch = next.decisions(3);
        // Every other one goes without a turn.
        let outcome = match chain.head().seq % 2 {
            0 => commit_in_turn(&*store, &batch).await,
            _ => store.append(&batch).await,
        };
        match outcome {
            Ok(()) => chain = next,
            Err(CommitError::NotWritten(_)) => {
                failed += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(CommitError::Unknown(_)) => {
                failed += 1;
                let landed = loop {
                    if let Ok(head) = store.head(chain.tenant).await {
                        break head == next.head();
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                };
                chain = if landed { next } else { chain };
            }
            // INVARIANT of the test: what was said to be written, and only that, is there.
            Err(error) => panic!("{error:?}"),
        }
    }
    (chain, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_under_load_loses_nothing_that_was_answered() {
    let server = Arc::new(Server::start());
    let store = Arc::new(open_at(&server.url()).await);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (1..=3)
        .map(|number| tokio::spawn(keep_writing(Arc::clone(&store), number, Arc::clone(&stop))))
        .collect();
    for restart in [Server::stop, Server::crash, Server::stop] {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || {
            restart(&server);
            server.start_again();
        })
        .await
        .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::SeqCst);
    let mut failed = 0;
    for writer in writers {
        let (chain, failed_here) = writer.await.unwrap();
        failed += failed_here;
        let entries = store.entries(chain.tenant, 0, 1_000_000).await.unwrap();
        assert_eq!(entries.len() as u64, chain.head().seq);
        assert_eq!(entries.last().unwrap().hash, chain.head().hash);
        assert!(entries.windows(2).all(|pair| pair[0].hash == pair[1].prev));
    }
    assert!(failed > 0, "the server was never missed");
}

/// Whether a store hears of a change of another one at once, on the connection that it has. Where the machine stands
/// still that may be made anew, and then it is as if there had been a change.
async fn is_heard_at_once(store: &Arc<PostgresStore>, another: &PostgresStore, chain: &mut Chain) -> bool {
    let listening = tokio::spawn({
        let store = Arc::clone(store);
        async move { store.changed().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let is_early = listening.is_finished();
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 2, "tester");
    chain.decision(&mut batch, &Ask::default());
    commit(another, &batch).await;
    let begin = Instant::now();
    let heard = timeout(PATIENCE, listening).await.expect("nothing was heard");
    if is_early {
        // So that the next change is not taken for this one.
        hear(store).await;
        return false;
    }
    heard.unwrap().is_ok() && begin.elapsed() < Duration::from_secs(1)
}

/// Writes a batch as soon as that is possible.
async fn write_within_patience(store: &PostgresStore, batch: &Batch) {
    let begin = Instant::now();
    while let Err(error) = try_commit(store, batch).await {
        let may_go_on = matches!(error, CommitError::NotWritten(_)) && begin.elapsed() < PATIENCE;
        assert!(may_go_on, "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_away_everything_fails_soon_and_afterwards_everything_works() {
    let server = Server::start();
    let store = Arc::new(open_at(&server.url()).await);
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    try_commit(&*store, &batch).await.unwrap();
    hear(&store).await;
    server.stop();
    let mut slow = 0;
    for _ in 0..5 {
        let begin = Instant::now();
        let error = try_commit(&*store, &chain.clone().decisions(1))
            .await
            .unwrap_err();
        assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
        assert!(store.load(None).await.is_err() && store.head(chain.tenant).await.is_err());
        slow += usize::from(begin.elapsed() > Duration::from_secs(1));
    }
    assert!(slow <= 2, "{slow} of 5 waited");
    for _ in 0..2 {
        let changed = timeout(PATIENCE, store.changed()).await;
        assert!(changed.unwrap().is_err());
    }
    server.start_again();
    write_within_patience(&store, &chain.decisions(1)).await;
    assert_eq!(load(&*store).await[0].position.head(), chain.head());
    // The connection that listens is new, so something may have been missed.
    hear(&store).await;
    let another = open_at(&server.url()).await;
    let mut tries = 1;
    while !is_heard_at_once(&store, &another, &mut chain).await {
        assert!(tries < TRIES, "no change was heard at once");
        tries += 1;
    }
}

/// Has the server wait at each commit for the standby of this name; for none where there is no name.
async fn wait_for_standby(server: &Server, name: &str) {
    let mut stranger = PgConnection::connect(&server.url()).await.unwrap();
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
    for statement in [set, "SELECT pg_reload_conf()".to_owned()] {
        let statement = sqlx::raw_sql(AssertSqlSafe(statement));
        statement.execute(&mut stranger).await.unwrap();
    }
}

/// Ends the session whose commit waits for a standby, as soon as there is one.
async fn end_waiting(server: &Server) {
    let begin = Instant::now();
    let end = "SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity \
               WHERE wait_event = 'SyncRep' AND application_name = 'countersign'";
    while asked(server, end).await == "0" {
        assert!(begin.elapsed() < PATIENCE, "no commit waits for the standby");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_wait_for_a_standby_was_broken_off_is_not_known_until_the_standby_has_it() {
    let server = Server::start();
    let store = open_at(&server.url()).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    for is_appended in [false, true] {
        wait_for_standby(&server, "gone").await;
        let is_ended = AtomicBool::new(false);
        let committing = async {
            // The server may not have heard of the standby at once.
            loop {
                let mut next = chain.clone();
                let batch = next.decisions(1);
                let outcome = if is_appended {
                    store.append(&batch).await
                } else {
                    commit_in_turn(&store, &batch).await
                };
                let was_ended = is_ended.load(Ordering::SeqCst);
                chain = next;
                match outcome {
                    Ok(()) => assert!(!was_ended, "told as written, and it is on one disk only"),
                    Err(error) => break error,
                }
            }
        };
        let ending = async {
            end_waiting(&server).await;
            is_ended.store(true, Ordering::SeqCst);
        };
        let (error, ()) = tokio::join!(committing, ending);
        assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
        wait_for_standby(&server, "").await;
        assert_eq!(load(&store).await[0].position.head(), chain.head());
        write_within_patience(&store, &chain.decisions(1)).await;
    }
}

/// What the server answers to somebody who is no gateway.
async fn asked(server: &Server, question: &'static str) -> String {
    let mut stranger = PgConnection::connect(&server.url()).await.unwrap();
    sqlx::query_scalar(question)
        .fetch_one(&mut stranger)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_neither_read_nor_held_on_to() {
    let server = Server::start();
    let store = open_at(&server.url()).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    store.head(chain.tenant).await.unwrap();
    server.stop();
    server.start_as_standby();
    for _ in 0..2 {
        let batch = chain.clone().decisions(1);
        // The turn first: it finds out that its connection is dead before anything is sent that could have been written.
        for outcome in [commit_in_turn(&store, &batch).await, store.append(&batch).await] {
            let error = outcome.unwrap_err();
            assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
        }
        assert!(store.load(None).await.is_err() && store.head(chain.tenant).await.is_err());
    }
    let begin = Instant::now();
    let left = "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'countersign'";
    while asked(&server, left).await != "0" {
        assert!(begin.elapsed() < PATIENCE, "a connection to a standby is kept");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let error = loop {
        match PostgresStore::open(&server.url()).await {
            Err(OpenError::TimedOut { .. }) if begin.elapsed() < PATIENCE => {}
            opened => break opened.unwrap_err(),
        }
    };
    assert!(matches!(error, OpenError::Standby { .. }), "{error:?}");
    assert!(timeout(PATIENCE, store.changed()).await.unwrap().is_err());
    assert_eq!(asked(&server, "SELECT pg_promote()::text").await, "true");
    write_within_patience(&store, &chain.decisions(1)).await;
    hear(&store).await;
}
