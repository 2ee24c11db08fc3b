//! With which settings it is written: what the server, the role or the URL have as their default does not count.

use super::{PATIENCE, database, open, open_at, write_three};
use crate::connections::Lent;
use crate::testing::Network;
use crate::{OpenError, PostgresStore};
use sqlx::{AssertSqlSafe, Row};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::conformance::sample::Chain;
use store::conformance::{STALLS_MAX, causes, stood_still, try_commit};
use store::{CommitError, Journal, Records, Store, StoreError};

async fn setting(lent: &mut Lent, name: &str) -> String {
    let row = sqlx::raw_sql(AssertSqlSafe(format!("SHOW {name}")))
        .fetch_one(lent.start().unwrap())
        .await;
    lent.settle_clean(row).unwrap().get(0)
}

#[tokio::test]
async fn every_commit_is_synced_whatever_the_defaults_are() {
    let database = database().await;
    let mut stranger = database.stranger().await;
    let weaken = format!(
        "ALTER DATABASE {name} SET synchronous_commit = off;
         ALTER DATABASE {name} SET default_transaction_isolation = 'serializable';
         ALTER DATABASE {name} SET default_transaction_read_only = on;
         ALTER DATABASE {name} SET bytea_output = 'escape';
         ALTER DATABASE {name} SET statement_timeout = 0;
         ALTER DATABASE {name} SET tcp_user_timeout = 0",
        name = database.name()
    );
    sqlx::raw_sql(AssertSqlSafe(weaken))
        .execute(&mut stranger)
        .await
        .unwrap();
    PostgresStore::migrate(&database.url()).await.unwrap();
    let url = format!("{}&options=-c%20synchronous_commit%3Doff", database.url());
    let store = PostgresStore::open(&url).await.unwrap();
    for (connections, plans) in [
        (&store.turns, "force_generic_plan"),
        (&store.leases, "force_generic_plan"),
        (&store.sweeps, "force_custom_plan"),
    ] {
        let mut lent = connections.lend().await.unwrap();
        for (name, value) in [
            ("synchronous_commit", "on"),
            ("statement_timeout", "5s"),
            ("lock_timeout", "3s"),
            ("idle_in_transaction_session_timeout", "2s"),
            ("tcp_keepalives_idle", "5"),
            ("tcp_user_timeout", "5000"),
            ("plan_cache_mode", plans),
            ("application_name", "countersign"),
        ] {
            assert_eq!(setting(&mut lent, name).await, value, "{name}");
        }
    }
    let mut lent = store.loads.lend().await.unwrap();
    assert_eq!(setting(&mut lent, "tcp_user_timeout").await, "15000");
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    // The second turn is told where the tenant stands.
    write_three(&store, &mut chain).await;
}

#[tokio::test]
async fn no_connection_ends_because_it_lasts_longer_than_is_the_default() {
    let database = database().await;
    let mut stranger = database.stranger().await;
    let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
        .fetch_one(&mut stranger)
        .await
        .unwrap();
    let mut timeouts = vec!["idle_session_timeout"];
    // Since version 17.
    if version >= 170_000 {
        timeouts.push("transaction_timeout");
    }
    for name in &timeouts {
        let shorten = format!("ALTER DATABASE {} SET {name} = '1h'", database.name());
        sqlx::raw_sql(AssertSqlSafe(shorten))
            .execute(&mut stranger)
            .await
            .unwrap();
    }
    let store = open(&database).await;
    for connections in [&store.turns, &store.readers, &store.loads, &store.looks] {
        let mut lent = connections.lend().await.unwrap();
        for name in &timeouts {
            assert_eq!(setting(&mut lent, name).await, "0", "{name}");
        }
    }
}

/// One decision, from where the chain stands.
async fn write_one(store: &PostgresStore) -> Result<(), CommitError> {
    let mut chain = Chain::new(1);
    let turn = store.begin(&[chain.tenant]).await;
    let turn = turn.map_err(|error| CommitError::NotWritten(error.into()))?;
    chain.tip = turn.positions()[&chain.tenant].tip.clone();
    turn.commit(&chain.decisions(1)).await
}

#[tokio::test]
async fn a_turn_sees_what_was_committed_before_each_statement() {
    let database = database().await;
    let store = open(&database).await;
    let name = database.name();
    let stricter = format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'");
    let mut stranger = database.stranger().await;
    sqlx::raw_sql(AssertSqlSafe(stricter))
        .execute(&mut stranger)
        .await
        .unwrap();
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let writers = [Arc::new(store), Arc::new(open(&database).await)].map(|store| {
        tokio::spawn(async move {
            let (mut written, mut stalls) = (0, 0);
            while written < 20 {
                match write_one(&store).await {
                    Ok(()) => written += 1,
                    Err(error) if stood_still(&error) && stalls < STALLS_MAX => stalls += 1,
                    Err(error) => panic!("{error:?}"),
                }
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(open(&database).await.head(chain.tenant).await.unwrap().seq, 43);
}

#[tokio::test]
async fn nothing_is_written_through_a_pooler_that_drops_settings() {
    let database = database().await;
    let network = Network::before(&database.url()).await;
    let url = network.url(&database.url());
    let store = open_at(&url).await;
    network.drop_settings();
    let error = try_commit(&store, &Chain::new(1).decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    let cause = causes(&error);
    assert!(
        cause.contains("without the settings of the connection"),
        "{cause}"
    );
    let error = PostgresStore::open(&url).await.unwrap_err();
    assert!(matches!(error, OpenError::SettingsLost { .. }), "{error:?}");
}

#[tokio::test]
async fn readers_cannot_write() {
    let database = database().await;
    let store = open(&database).await;
    let mut lent = store.readers.lend().await.unwrap();
    let delete = sqlx::query("DELETE FROM directory");
    let error = delete.execute(lent.start().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}

/// Whether a commit that cannot have its lock says so in time. It may not where the machine stands still.
async fn is_refused_in_time(store: &PostgresStore, chain: &Chain) -> bool {
    let begin = Instant::now();
    let error = try_commit(store, &chain.clone().decisions(1)).await.unwrap_err();
    let is_in_time = begin.elapsed() < Duration::from_secs(6);
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    let cause = causes(&error);
    assert!(!is_in_time || cause.contains("lock timeout"), "{cause}");
    is_in_time
}

#[tokio::test]
async fn a_lock_held_by_another_program_is_an_error_in_bounded_time() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let mut stranger = database.stranger().await;
    sqlx::raw_sql("BEGIN; SELECT FROM tenants FOR UPDATE")
        .execute(&mut stranger)
        .await
        .unwrap();
    let mut late = 0;
    while !is_refused_in_time(&store, &chain).await {
        late += 1;
        assert!(late < 3, "it is late each time");
    }
    assert_eq!(
        super::head(&store, &chain).await,
        chain.head(),
        "reading goes on meanwhile"
    );
    sqlx::raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    write_three(&store, &mut chain).await;
}

#[tokio::test]
async fn a_closed_store_refuses_everything_and_leaves_no_connection() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    store::Directories::changed(&store).await.unwrap();
    store.size_bytes().await.unwrap();
    store.close().await;
    store.close().await;
    let error = try_commit(&store, &chain.decisions(1)).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    let error = store.size_bytes().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(store::Directories::changed(&store).await.is_err());
    let mut stranger = database.stranger().await;
    let begin = Instant::now();
    loop {
        let left: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_one(&mut stranger)
        .await
        .unwrap();
        if left == 0 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{left} connections are left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_printed_of_a_store_is_not_its_password() {
    let database = database().await;
    let store = open(&database).await;
    let printed = format!("{store:?}");
    assert!(printed.contains(database.name()), "{printed}");
    let (_, rest) = database
        .url()
        .split_once("countersign:")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let password = rest.split_once('@').unwrap().0.to_owned();
    assert!(!printed.contains(&password));
}
