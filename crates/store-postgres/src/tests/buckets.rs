//! Buckets that are full again: whoever looks for them holds up nobody, however many there are.

use super::{PATIENCE, database, lend_all, open, write_three};
use crate::PostgresStore;
use crate::testing::Database;
use sqlx::PgConnection;
use store::Buckets as _;
use store::conformance::sample::Chain;
use tokio::time::timeout;

/// So many buckets of one tenant, of which some are full and the others never will be.
const FILL: &str = "INSERT INTO buckets (tenant_id, owner, capacity, refill_per_second, level, at, lent)
    SELECT tenant_id, 'agent:' || number, 10, 0, CASE WHEN number % $1 = 0 THEN 10 ELSE 9 END, 0, 0
    FROM tenants, generate_series(1, $2) AS number";

/// A store with so many buckets, of which one in so many is full.
async fn one_full_in(number: i32, of: i32) -> (Database, PostgresStore, PgConnection) {
    let database = database().await;
    let store = open(&database).await;
    write_three(&store, &mut Chain::new(1)).await;
    let mut stranger = database.stranger().await;
    let fill = sqlx::query(FILL).bind(number).bind(of);
    fill.execute(&mut stranger).await.unwrap();
    (database, store, stranger)
}

#[tokio::test]
async fn whoever_forgets_buckets_takes_no_connection_that_others_wait_for() {
    let (_database, store, _) = one_full_in(1_000, 30_000).await;
    let lent = lend_all(&store).await;
    let forgotten = timeout(PATIENCE, store.forget_full()).await;
    assert_eq!(forgotten.expect("it waits for a connection").unwrap(), 30);
    drop(lent);
}

#[tokio::test]
async fn full_buckets_are_forgotten_wherever_they_are_and_some_at_a_time() {
    let (_database, store, mut stranger) = one_full_in(2, 30_000).await;
    let mut forgotten = 0;
    loop {
        let some = store.forget_full().await.unwrap();
        assert!(some <= 11_000, "{some} at once");
        forgotten += some;
        if some == 0 {
            break;
        }
    }
    assert_eq!(forgotten, 15_000);
    let left = sqlx::query_as("SELECT count(*), max(level) FROM buckets");
    let left: (i64, f64) = left.fetch_one(&mut stranger).await.unwrap();
    assert_eq!(left, (15_000, 9.0));
}

#[tokio::test]
async fn so_many_buckets_are_looked_at_in_one_go_and_the_next_ones_in_the_next() {
    // The one that is full is the last in the order of their owners.
    let (_database, store, mut stranger) = one_full_in(99_999, 110_000).await;
    assert_eq!(store.forget_full().await.unwrap(), 0);
    assert_eq!(store.forget_full().await.unwrap(), 1);
    let fill = sqlx::query("UPDATE buckets SET level = 10 WHERE owner = 'agent:1'");
    fill.execute(&mut stranger).await.unwrap();
    assert_eq!(store.forget_full().await.unwrap(), 1, "it does not begin anew");
}

#[tokio::test]
async fn a_full_bucket_that_somebody_leases_from_is_passed_over() {
    let (_database, store, mut stranger) = one_full_in(1_000, 30_000).await;
    let lease = "BEGIN; SELECT FROM buckets WHERE owner = 'agent:1000' FOR UPDATE";
    sqlx::raw_sql(lease).execute(&mut stranger).await.unwrap();
    assert_eq!(store.forget_full().await.unwrap(), 29);
    sqlx::raw_sql("ROLLBACK").execute(&mut stranger).await.unwrap();
    assert_eq!(store.forget_full().await.unwrap(), 1);
}
