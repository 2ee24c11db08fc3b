//! Buckets: nothing is lent that was not written; those that are full again are looked for beside the commits, and
//! forgotten a few at a time.

use super::{Folder, fail_commits_of, write};
use crate::SqliteStore;
use model::{Bucket, TenantId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::{BucketKey, Buckets as _, Journal as _, Lease, Wanted};
use tokio::time::sleep;

/// More than are looked at in one go, and full ones for more than one turn of two tenants.
const BUCKETS_EACH: i64 = 3_000;

/// Two tenants with so many buckets each, of which every third is full.
async fn of_many(folder: &Folder) -> SqliteStore {
    let store = folder.open().await;
    let fill = sqlx::query(
        "WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers LIMIT ?1)
         INSERT INTO buckets (tenant_id, owner, capacity, refill_per_second, level, at, lent)
         SELECT tenant.column1, 'agent:' || number, 10, 0, iif(number % 3 = 0, 10, 9), 0, 0
         FROM numbers, (VALUES (zeroblob(16)), (unhex(?2))) AS tenant",
    );
    let fill = fill.bind(BUCKETS_EACH).bind("ab".repeat(16));
    fill.execute(&mut folder.stranger().await).await.unwrap();
    store
}

async fn number(folder: &Folder, query: &'static str) -> i64 {
    let number = sqlx::query_scalar(query);
    number.fetch_one(&mut folder.stranger().await).await.unwrap()
}

#[tokio::test]
async fn nothing_is_lent_that_could_not_be_committed() {
    let folder = Folder::new();
    let store = folder.open().await;
    let key = BucketKey {
        tenant: TenantId::from_bytes([1; 16]),
        owner: "agent".to_owned(),
    };
    let size = Bucket::new(10, 0.0).unwrap();
    let wanted = Wanted { least: 1, most: 4 };
    fail_commits_of(store.writer.lock().await.ready().await.unwrap(), true).await;
    store.lease(&key, size, wanted).await.unwrap_err();
    fail_commits_of(store.writer.lock().await.ready().await.unwrap(), false).await;
    let lease = store.lease(&key, size, wanted).await.unwrap();
    assert_eq!(lease, Lease::new(size, wanted, 4, 6.0));
}

/// On one thread, so that everybody goes as far as the turn and no further.
#[tokio::test]
async fn a_commit_waits_for_one_of_those_who_have_tokens_lent() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let tenant = TenantId::from_bytes([1; 16]);
    let turn = store.begin(&[tenant]).await.unwrap();
    let (asking, lent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let leases: Vec<_> = (0..64)
        .map(|number| {
            let (store, asking, lent) = (Arc::clone(&store), Arc::clone(&asking), Arc::clone(&lent));
            let owner = format!("agent/{number}");
            let (key, size) = (BucketKey { tenant, owner }, Bucket::new(10, 0.0).unwrap());
            tokio::spawn(async move {
                asking.fetch_add(1, Ordering::SeqCst);
                store
                    .lease(&key, size, Wanted { least: 1, most: 1 })
                    .await
                    .unwrap();
                lent.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    while asking.load(Ordering::SeqCst) < leases.len() {
        tokio::task::yield_now().await;
    }
    let committing = tokio::spawn({
        let (store, asking, lent) = (Arc::clone(&store), Arc::clone(&asking), Arc::clone(&lent));
        async move {
            asking.fetch_add(1, Ordering::SeqCst);
            let _turn = store.begin(&[tenant]).await.unwrap();
            lent.load(Ordering::SeqCst)
        }
    });
    while asking.load(Ordering::SeqCst) <= leases.len() {
        tokio::task::yield_now().await;
    }
    drop(turn);
    assert!(committing.await.unwrap() <= 1);
    for lease in leases {
        lease.await.unwrap();
    }
    assert_eq!(lent.load(Ordering::SeqCst), 64);
}

/// Not from when the clock has caught up. What it was refilled with while the clock was ahead is not taken from it.
#[tokio::test]
async fn a_bucket_that_was_asked_while_the_clock_was_far_ahead_refills_from_the_next_time_on() {
    let folder = Folder::new();
    let store = folder.open().await;
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
    write(
        &store,
        "UPDATE buckets SET at = at + 172800000 WHERE owner <> 'slewed'",
    )
    .await;
    let refused = lease("leased", 1).await;
    assert_eq!((refused.granted, refused.left), (0, 0.0));
    let sizes = [(key("resized"), other), (key("set again"), fast)];
    store.resize(&sizes).await.unwrap();
    let ahead = "SELECT count(*) FROM buckets WHERE at > 1000 * unixepoch('subsec') + 5000";
    assert_eq!(number(&folder, ahead).await, 0);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(lease("leased", 10).await.granted, 10);
    assert_eq!(lease("resized", 9).await.granted, 9);
    assert_eq!(lease("set again", 10).await.granted, 10);

    // One that is a little behind is waited for.
    write(&store, "UPDATE buckets SET at = at + 4000 WHERE owner = 'slewed'").await;
    let at = "SELECT at FROM buckets WHERE owner = 'slewed'";
    let before = number(&folder, at).await;
    lease("slewed", 1).await;
    assert!(number(&folder, at).await >= before);
}

#[tokio::test]
async fn full_buckets_are_forgotten_wherever_they_are() {
    let folder = Folder::new();
    let store = of_many(&folder).await;
    let full = BUCKETS_EACH / 3 * 2;
    assert_eq!(store.forget_full().await.unwrap(), full.unsigned_abs());
    assert_eq!(store.forget_full().await.unwrap(), 0);
    assert_eq!(
        number(&folder, "SELECT count(*) FROM buckets").await,
        2 * BUCKETS_EACH - full
    );
    assert_eq!(
        number(&folder, "SELECT count(*) FROM buckets WHERE level = 10").await,
        0
    );
}

#[tokio::test]
async fn so_many_buckets_are_looked_at_in_one_go_and_the_next_ones_in_the_next() {
    let folder = Folder::new();
    let store = folder.open().await;
    // The one that is full is the last in the order of their owners.
    let fill =
        "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers LIMIT 110000)
        INSERT INTO buckets (tenant_id, owner, capacity, refill_per_second, level, at, lent)
        SELECT zeroblob(16), 'agent:' || number, 10, 0, iif(number = 99999, 10, 9), 0, 0
        FROM numbers";
    write(&store, fill).await;
    assert_eq!(store.forget_full().await.unwrap(), 0);
    assert_eq!(store.forget_full().await.unwrap(), 1);
    write(&store, "UPDATE buckets SET level = 10 WHERE owner = 'agent:1'").await;
    assert_eq!(store.forget_full().await.unwrap(), 1, "it does not begin anew");
}

#[tokio::test]
async fn a_bucket_of_any_owner_is_forgotten() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut stranger = folder.stranger().await;
    for owner in ["", "it's \"quoted\"", "\u{1F600}", "nothing\0behind"] {
        let put = sqlx::query("INSERT INTO buckets VALUES (zeroblob(16), ?1, 10, 0, 10, 0, 0)");
        put.bind(owner).execute(&mut stranger).await.unwrap();
    }
    assert_eq!(store.forget_full().await.unwrap(), 4);
}

#[tokio::test]
async fn a_bucket_that_was_lent_of_meanwhile_is_not_forgotten() {
    let folder = Folder::new();
    let store = of_many(&folder).await;
    let mut writer = store.writer.lock().await;
    let lend = async {
        // By then it has found some of those that are full, and waits for its turn.
        sleep(Duration::from_millis(300)).await;
        let lend = sqlx::query("UPDATE buckets SET level = 3 WHERE tenant_id = zeroblob(16)");
        lend.execute(writer.ready().await.unwrap()).await.unwrap();
        drop(writer);
    };
    let (forgotten, ()) = tokio::join!(store.forget_full(), lend);
    assert_eq!(forgotten.unwrap(), (BUCKETS_EACH / 3).unsigned_abs());
    let left = number(&folder, "SELECT count(*) FROM buckets WHERE level = 3").await;
    assert_eq!(left, BUCKETS_EACH);
}
