//! Old counters of quotas: whoever looks for them holds up nobody, however many there are.

use super::{PATIENCE, database, lend_all, open, write_three};
use crate::PostgresStore;
use model::Timestamp;
use store::Counters as _;
use store::conformance::sample::Chain;
use tokio::time::timeout;

/// So many counters of one tenant, of which every thousandth is old.
const FILL: &str = "INSERT INTO quota_counters (tenant_id, key, start, count, at)
    SELECT tenant_id, sha256(number::text::bytea), 0, 1, CASE WHEN number % 1000 = 0 THEN 1000 ELSE 2000 END
    FROM tenants, generate_series(1, 20000) AS number";

/// More counters of one tenant than are looked at in one go, in the order of their keys, of which the last is old.
const FILL_IN_ORDER: &str = "INSERT INTO quota_counters (tenant_id, key, start, count, at)
    SELECT tenant_id, int4send(number), 0, 1, CASE WHEN number = 110000 THEN 1000 ELSE 2000 END
    FROM tenants, generate_series(1, 110000) AS number";

/// Looks through all counters. Returns how many were old, and how many rounds it took.
async fn sweep(store: &PostgresStore) -> (u64, u32) {
    let before = Timestamp::from_millis(2_000);
    let (mut gone, mut rounds) = (0, 0);
    loop {
        let swept = store.forget_counters(before).await.unwrap();
        (gone, rounds) = (gone + swept.gone, rounds + 1);
        if swept.is_through {
            return (gone, rounds);
        }
    }
}

#[tokio::test]
async fn whoever_forgets_counters_takes_no_connection_that_others_wait_for() {
    let database = database().await;
    let store = open(&database).await;
    write_three(&store, &mut Chain::new(1)).await;
    let mut stranger = database.stranger().await;
    sqlx::query(FILL).execute(&mut stranger).await.unwrap();
    let lent = lend_all(&store).await;
    let forgotten = timeout(PATIENCE, sweep(&store)).await;
    assert_eq!(forgotten.expect("it waits for a connection").0, 20);
    drop(lent);
}

#[tokio::test]
async fn an_old_counter_that_somebody_counts_in_is_passed_over() {
    let database = database().await;
    let store = open(&database).await;
    write_three(&store, &mut Chain::new(1)).await;
    let mut stranger = database.stranger().await;
    sqlx::query(FILL).execute(&mut stranger).await.unwrap();
    let count = "BEGIN; SELECT FROM quota_counters WHERE key = sha256('1000') FOR UPDATE";
    sqlx::raw_sql(count).execute(&mut stranger).await.unwrap();
    assert_eq!(sweep(&store).await.0, 19);
    sqlx::raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    assert_eq!(sweep(&store).await.0, 1);
}

#[tokio::test]
async fn so_many_counters_are_looked_at_in_one_go_and_the_next_ones_in_the_next() {
    let database = database().await;
    let store = open(&database).await;
    write_three(&store, &mut Chain::new(1)).await;
    let mut stranger = database.stranger().await;
    sqlx::query(FILL_IN_ORDER).execute(&mut stranger).await.unwrap();
    let (gone, rounds) = sweep(&store).await;
    assert!(gone == 1 && rounds > 1, "{gone} in {rounds}");
    let age = sqlx::query("UPDATE quota_counters SET at = 1000 WHERE key = int4send(1)");
    age.execute(&mut stranger).await.unwrap();
    assert_eq!(sweep(&store).await.0, 1, "it does not begin anew");
}
