//! Buckets that are full again: whoever looks for them holds up nobody, however many there are. And those that were
//! asked while the clock of the server was ahead.

use super::{PATIENCE, database, lend_all, open, write_three};
use crate::PostgresStore;
use crate::testing::Database;
use model::{Bucket, TenantId};
use sqlx::PgConnection;
use std::time::Duration;
use store::conformance::sample::Chain;
use store::{BucketKey, Buckets as _, Wanted};
use tokio::time::{sleep, timeout};

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

/// Not from when the clock has caught up. What it was refilled with while the clock was ahead is not taken from it.
#[tokio::test]
async fn a_bucket_that_was_asked_while_the_clock_was_far_ahead_refills_from_the_next_time_on() {
    let database = database().await;
    let store = open(&database).await;
    let mut stranger = database.stranger().await;
    let key = |owner: &str| BucketKey {
        tenant: TenantId::from_bytes([1; 16]),
        owner: owner.to_owned(),
    };
    let (fast, other) = (
        Bucket::new(10, 1_000.0).unwrap(),
        Bucket::new(9, 1_000.0).unwrap(),
    );
    let lease = async |owner: &str, least| {
        let wanted = Wanted { least, most: 10 };
        store.lease(&key(owner), fast, wanted).await.unwrap()
    };
    for owner in ["leased", "resized", "set again", "slewed"] {
        assert_eq!(lease(owner, 10).await.granted, 10);
    }
    let jump = sqlx::raw_sql("UPDATE buckets SET at = at + 172800000 WHERE owner <> 'slewed'");
    jump.execute(&mut stranger).await.unwrap();
    let refused = lease("leased", 1).await;
    assert_eq!((refused.granted, refused.left), (0, 0.0));
    let sizes = [(key("resized"), other), (key("set again"), fast)];
    store.resize(&sizes).await.unwrap();
    let ahead = sqlx::query_scalar(
        "SELECT count(*) FROM buckets WHERE at > 1000 * extract(epoch FROM clock_timestamp()) + 5000",
    );
    let ahead: i64 = ahead.fetch_one(&mut stranger).await.unwrap();
    assert_eq!(ahead, 0);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(lease("leased", 10).await.granted, 10);
    assert_eq!(lease("resized", 9).await.granted, 9);
    assert_eq!(lease("set again", 10).await.granted, 10);

    // One that is a little behind is waited for.
    let slew = sqlx::raw_sql("UPDATE buckets SET at = at + 4000 WHERE owner = 'slewed'");
    slew.execute(&mut stranger).await.unwrap();
    let at = "SELECT at FROM buckets WHERE owner = 'slewed'";
    let before: i64 = sqlx::query_scalar(at).fetch_one(&mut stranger).await.unwrap();
    lease("slewed", 1).await;
    let after: i64 = sqlx::query_scalar(at).fetch_one(&mut stranger).await.unwrap();
    assert!(after >= before, "{after} {before}");
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
