//! Batches that are written without a turn: one chain whoever writes, and the truth about those whose answer is lost.

use super::addresses::{drop_role, make_role};
use super::{CUT_TRIES, PATIENCE, database, head, open, open_at, write_three};
use crate::PostgresStore;
use crate::append::Append;
use crate::connections::Session;
use crate::landed::{self, Mark};
use crate::testing::{Cut, Network};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::sync::Arc;
use std::time::Duration;
use store::conformance::sample::{Ask, Chain, approval};
use store::conformance::{STALLS_MAX, stood_still};
use store::{Batch, CommitError, Journal, Records, Store};
use tokio::time::timeout;

/// A store that has appended before, through a network.
async fn append_once(network: &Network, url: &str) -> (PostgresStore, Chain) {
    let store = open_at(&network.url(url)).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    store.append(&chain.decisions(1)).await.unwrap();
    (store, chain)
}

/// Whether an append that was cut like this is written, once. It may not be where the machine stands still for longer
/// than the store waits, and then what it says is so.
async fn is_written_once(cut: Cut) -> bool {
    let database = database().await;
    let network = Network::before(&database.url()).await;
    let (store, mut chain) = append_once(&network, &database.url()).await;
    let before = chain.head();
    network.plan_appends([cut]);
    let outcome = store.append(&chain.decisions(2)).await;
    // What arrives late finds nobody who listens.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let witness = open(&database).await;
    let found = head(&witness, &chain).await;
    match outcome {
        Ok(()) => assert_eq!(found, chain.head(), "{cut:?}"),
        Err(CommitError::NotWritten(error)) => {
            assert_eq!(found, before, "{cut:?}: {error:?}");
            return false;
        }
        Err(CommitError::Unknown(_)) => return false,
        Err(error) => panic!("{cut:?}: {error:?}"),
    }
    let entries = witness.entries(chain.tenant, 0, 10).await.unwrap();
    assert_eq!(entries.len(), 6, "{cut:?}");
    store.append(&chain.decisions(1)).await.unwrap();
    assert_eq!(head(&witness, &chain).await, chain.head(), "{cut:?}");
    true
}

#[tokio::test]
async fn an_append_whose_answer_is_lost_is_written_once_whatever_became_of_it() {
    for cut in [
        Cut::AfterCommit,
        Cut::BeforeCommit,
        Cut::LateCommit(Duration::from_millis(700)),
        Cut::Silence,
    ] {
        let mut tries = 1;
        while !is_written_once(cut).await {
            assert!(tries < CUT_TRIES, "{cut:?}: it is not written");
            tries += 1;
        }
    }
}

#[test]
fn what_agents_ask_for_needs_no_turn_and_what_changes_a_directory_does() {
    let mut chain = Chain::new(1);
    chain.decisions(1);
    let mut batch = chain.decisions(2);
    chain.approval(&mut batch, &approval(1, 1_000));
    chain.content(&mut batch, "kept");
    assert!(Append::of(&batch).unwrap().is_some());
    chain.put_agent(&mut batch, 1, "builder");
    assert!(Append::of(&batch).unwrap().is_none());
}

#[tokio::test]
async fn an_append_of_which_nobody_can_be_asked_is_not_known() {
    let database = database().await;
    let network = Network::before(&database.url()).await;
    let (store, chain) = append_once(&network, &database.url()).await;
    let mut next = chain.clone();
    network.plan_appends([Cut::AfterCommit]);
    network.close(true);
    let error = store.append(&next.decisions(2)).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    assert_eq!(head(&open(&database).await, &chain).await, next.head());
    network.close(false);
    store.append(&next.decisions(1)).await.unwrap();
}

#[tokio::test]
async fn an_append_on_a_connection_that_the_server_has_closed_is_written() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    let mut stranger = database.stranger().await;
    write_three(&store, &mut chain).await;
    for _ in 0..3 {
        store.append(&chain.decisions(1)).await.unwrap();
        sqlx::query(
            "SELECT pg_terminate_backend(pid)
             FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .execute(&mut stranger)
        .await
        .unwrap();
    }
    store.append(&chain.decisions(1)).await.unwrap();
    assert_eq!(head(&store, &chain).await, chain.head());
}

/// Has new sessions of a role act as another one, which may do the same and is no member of it. Returns its name.
async fn act_as_another(role: &str, stranger: &mut PgConnection) -> String {
    let other = format!("{role}_other");
    let act = format!(
        "CREATE ROLE {other};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {other};
         GRANT {other} TO {role};
         ALTER ROLE {role} SET role = {other}"
    );
    sqlx::raw_sql(AssertSqlSafe(act)).execute(stranger).await.unwrap();
    other
}

async fn drop_roles(role: &str, other: &str, mut stranger: PgConnection) {
    let gone = format!("DROP OWNED BY {other}; DROP ROLE {other}");
    sqlx::raw_sql(AssertSqlSafe(gone))
        .execute(&mut stranger)
        .await
        .unwrap();
    drop_role(role, stranger).await;
}

/// The process that serves the connection that is used next.
async fn process(store: &PostgresStore) -> i32 {
    let mut lent = store.turns.lend().await.unwrap();
    let asked = sqlx::query_scalar("SELECT pg_backend_pid()");
    let process = asked.fetch_one(lent.start().unwrap()).await;
    lent.settle_clean(process).unwrap()
}

#[tokio::test]
async fn batches_are_written_on_one_connection_by_a_role_that_may_not_see_its_sessions() {
    let database = database().await;
    let mut chain = Chain::new(1);
    write_three(&open(&database).await, &mut chain).await;
    let mut stranger = database.stranger().await;
    let (role, url) = make_role(&database, &mut stranger).await;
    let other = act_as_another(&role, &mut stranger).await;
    let store = open_at(&url).await;
    // On a connection that is made for it.
    store.append(&chain.decisions(1)).await.unwrap();
    let first = process(&store).await;
    for _ in 0..3 {
        store.append(&chain.decisions(1)).await.unwrap();
        assert_eq!(process(&store).await, first);
    }
    assert_eq!(head(&store, &chain).await, chain.head());
    store.close().await;
    drop_roles(&role, &other, stranger).await;
}

#[tokio::test]
async fn a_session_that_may_not_be_seen_any_more_has_not_ended() {
    let database = database().await;
    PostgresStore::migrate(&database.url()).await.unwrap();
    let mut stranger = database.stranger().await;
    let (role, url) = make_role(&database, &mut stranger).await;
    let mut sender = PgConnection::connect(&url).await.unwrap();
    let (process, since): (i32, i64) = sqlx::query_as(
        "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint
         FROM pg_stat_activity
         WHERE pid = pg_backend_pid()",
    )
    .fetch_one(&mut sender)
    .await
    .unwrap();
    let session = Some(Session { process, since });
    let mark = Mark::of(&Chain::new(1).decisions(1));
    let other = act_as_another(&role, &mut stranger).await;
    let store = open_at(&url).await;
    assert_eq!(landed::look(&store.turns, mark, session).await, None);
    sender.close().await.unwrap();
    let ended = async { while landed::look(&store.turns, mark, session).await != Some(false) {} };
    timeout(PATIENCE, ended).await.expect("it has not ended");
    store.close().await;
    drop_roles(&role, &other, stranger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_append_and_take_turns_write_one_chain_without_a_fork() {
    const ROUNDS: usize = 60;
    let database = database().await;
    let mut chain = Chain::new(1);
    write_three(&open(&database).await, &mut chain).await;
    let mut writers = Vec::new();
    for number in 0..3 {
        let store = Arc::new(open(&database).await);
        writers.push(tokio::spawn(async move {
            let (mut written, mut stalls, mut round) = (0, 0, 0);
            while round < ROUNDS {
                let mut chain = Chain::new(1);
                chain.tip = store.tip(chain.tenant).await.unwrap();
                let mut batch = Batch::default();
                for part in 0..5 {
                    chain.decision(&mut batch, &Ask::named(&format!("{number}-{round}-{part}")));
                }
                let outcome = match (round + number) % 4 {
                    0 => store::commit_in_turn(&*store, &batch).await,
                    _ => store.append(&batch).await,
                };
                match outcome {
                    Ok(()) => written += 5,
                    Err(CommitError::HeadMoved { .. }) => {}
                    Err(error) if stood_still(&error) && stalls < STALLS_MAX => {
                        stalls += 1;
                        continue;
                    }
                    Err(error) => panic!("{error:?}"),
                }
                round += 1;
            }
            written
        }));
    }
    let mut written = 3;
    for writer in writers {
        written += writer.await.unwrap();
    }
    let entries = open(&database)
        .await
        .entries(chain.tenant, 0, 1_000)
        .await
        .unwrap();
    assert_eq!(entries.len(), written);
    assert!(
        written >= 3 + 5 * ROUNDS,
        "{written}: somebody has to be first each time"
    );
    assert!(entries.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
    assert!(entries.windows(2).all(|pair| pair[0].hash == pair[1].prev));
}
