//! What shared token buckets promise: never more than there is, whoever asks, and what comes back with time.

use super::Fixture;
use crate::{BucketKey, Lease, Store, Wanted};
use model::{Bucket, TenantId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn key(owner: &str) -> BucketKey {
    BucketKey {
        tenant: TenantId::from_bytes([1; 16]),
        owner: owner.to_owned(),
    }
}

fn size(capacity: u32, refill_per_second: f64) -> Bucket {
    Bucket::new(capacity, refill_per_second).expect("samples have good sizes")
}

async fn lease(store: &dyn Store, owner: &str, size: Bucket, least: u32, most: u32) -> Lease {
    store
        .lease(&key(owner), size, Wanted { least, most })
        .await
        .unwrap()
}

/// How many tokens one bucket has.
async fn look(store: &dyn Store, key: BucketKey, size: Bucket) -> f64 {
    let left = store.left(&[(key, size)]).await.unwrap();
    assert_eq!(left.len(), 1);
    left[0]
}

/// Whole tokens, from the least to the most that are wanted, until there are none.
pub async fn a_full_bucket_lends_what_it_holds(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let size = size(10, 0.0);
    let lent = |granted, left| Lease {
        granted,
        left,
        wait: Some(Duration::ZERO),
    };
    assert_eq!(lease(&*store, "a", size, 1, 4).await, lent(4, 6.0));
    assert_eq!(lease(&*store, "a", size, 3, 9).await, lent(6, 0.0));
    let nothing = Lease {
        granted: 0,
        left: 0.0,
        wait: None,
    };
    assert_eq!(lease(&*store, "a", size, 1, 1).await, nothing);
}

/// Less than the least is nothing, and takes nothing; from a bucket that was asked for before and from a new one.
pub async fn fewer_than_the_least_are_not_lent(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let size = size(10, 0.0);
    assert_eq!(lease(&*store, "a", size, 11, 20).await.granted, 0);
    assert_eq!(lease(&*store, "a", size, 1, 7).await.granted, 7);
    let refused = lease(&*store, "a", size, 4, 8).await;
    assert_eq!((refused.granted, refused.left), (0, 3.0));
    assert_eq!(lease(&*store, "a", size, 3, 8).await.granted, 3);
}

/// At the rate of the bucket, never beyond its capacity; and whoever waits as long as it was told gets its tokens.
pub async fn tokens_come_back_with_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let size = size(10, 100.0);
    // Before the bucket's clock starts, which is before a lease is on the disk.
    let begin = Instant::now();
    assert_eq!(lease(&*store, "a", size, 10, 10).await.granted, 10);
    let refused = lease(&*store, "a", size, 8, 10).await;
    if refused.granted == 0 {
        tokio::time::sleep(refused.wait.unwrap() + Duration::from_millis(2)).await;
        assert!(lease(&*store, "a", size, 8, 10).await.granted >= 8);
    }
    assert!(
        begin.elapsed() >= Duration::from_millis(75),
        "tokens came too early"
    );
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(lease(&*store, "a", size, 1, 100).await.granted, 10);
}

/// A part of a token is not lent and not lost.
pub async fn parts_of_tokens_add_up(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    // So large that nothing runs over while the machine is busy with something else.
    let size = size(40, 4.0);
    let begin = Instant::now();
    assert_eq!(lease(&*store, "a", size, 40, 40).await.granted, 40);
    let mut granted = 0;
    // Were a part lost whenever somebody looks, none of them would ever become a token.
    while granted < 4 && begin.elapsed() < Duration::from_secs(30) {
        granted += lease(&*store, "a", size, 1, 2).await.granted;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let most = (4.0 * begin.elapsed().as_secs_f64()).floor();
    assert!(granted >= 4 && f64::from(granted) <= most, "{granted} of {most}");
}

/// What was not used is there again; what does not fit is lost.
pub async fn what_is_given_back_can_be_lent_again(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let size = size(10, 0.0);
    assert_eq!(lease(&*store, "a", size, 1, 8).await.granted, 8);
    store.give_back(&[(key("a"), 3)]).await.unwrap();
    assert_eq!(lease(&*store, "a", size, 1, 8).await.granted, 5);
    store.give_back(&[(key("a"), 30)]).await.unwrap();
    assert_eq!(lease(&*store, "a", size, 1, 80).await.granted, 10);
    store.give_back(&[(key("never asked for"), 30)]).await.unwrap();
    assert_eq!(lease(&*store, "never asked for", size, 1, 80).await.granted, 10);
}

/// Each bucket has its own tokens again, and nobody else's; also among some that are full or were never asked for.
pub async fn what_is_given_back_of_several_buckets_at_once_is_in_each_of_them(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let size = size(10, 0.0);
    for owner in ["a", "it's \"b\"", "full", "other"] {
        assert_eq!(lease(&*store, owner, size, 1, 8).await.granted, 8);
    }
    store.give_back(&[(key("full"), 8)]).await.unwrap();
    let another = BucketKey {
        tenant: TenantId::from_bytes([2; 16]),
        ..key("a")
    };
    let wanted = Wanted { least: 1, most: 10 };
    assert_eq!(store.lease(&another, size, wanted).await.unwrap().granted, 10);
    let tokens = [
        (key("full"), 8),
        (key("it's \"b\""), 1),
        (another.clone(), 4),
        (key("never asked for"), 8),
        (key("a"), 3),
    ];
    store.give_back(&tokens).await.unwrap();
    store.give_back(&[]).await.unwrap();
    let left = async |owner: &str| look(&*store, key(owner), size).await;
    assert_eq!((left("a").await, left("it's \"b\"").await), (5.0, 3.0));
    let of_another = look(&*store, another, size).await;
    assert_eq!((of_another, left("other").await), (4.0, 2.0));
    assert_eq!((left("full").await, left("never asked for").await), (10.0, 10.0));
}

/// However often, and nothing is taken; never more than fits, and also what has come back with time.
pub async fn whoever_looks_at_a_bucket_sees_what_a_lease_would_find(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let never = size(10, 0.0);
    let left = async |owner: &str, size| look(&*store, key(owner), size).await;
    assert_eq!((left("a", never).await, left("a", never).await), (10.0, 10.0));
    assert_eq!(lease(&*store, "a", never, 1, 4).await.granted, 4);
    assert_eq!((left("a", never).await, left("a", never).await), (6.0, 6.0));
    assert_eq!(
        (left("b", never).await, left("a", size(5, 0.0)).await),
        (10.0, 5.0)
    );
    assert_eq!(lease(&*store, "a", never, 1, 10).await.granted, 6);
    assert_eq!((left("a", never).await, left("b", never).await), (0.0, 10.0));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let never_came_back = left("a", size(10, 1_000.0)).await;
    assert_eq!((never_came_back, left("a", never).await), (0.0, 0.0));
    // It has refilled by the size that it was leased with, whatever size somebody looks at.
    let (fast, slow) = (size(10, 1_000.0), size(10, 0.001));
    for (owner, size) in [("fast", fast), ("slow", slow)] {
        assert_eq!(lease(&*store, owner, size, 10, 10).await.granted, 10);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    for size in [never, fast, slow] {
        let (fast, slow) = (left("fast", size).await, left("slow", size).await);
        assert!(fast >= 10.0 && (0.000_04..0.1).contains(&slow), "{fast}, {slow}");
    }
    // The same owner of another tenant.
    let another = BucketKey {
        tenant: TenantId::from_bytes([2; 16]),
        ..key("a")
    };
    let of_another = look(&*store, another, never).await;
    assert_eq!((of_another, left("a", never).await), (10.0, 0.0));
}

/// In the order in which they are named, each in its own size; also those that were never asked for, or none at all.
pub async fn several_buckets_are_looked_at_in_one_call(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let never = size(10, 0.0);
    for (owner, most) in [("a", 4), ("it's \"b\"", 7), ("\u{1F600}", 10)] {
        assert_eq!(lease(&*store, owner, never, 1, most).await.granted, most);
    }
    let another = BucketKey {
        tenant: TenantId::from_bytes([2; 16]),
        ..key("a")
    };
    let asked = [
        (key("\u{1F600}"), never),
        (key("never asked for"), size(7, 0.0)),
        (another, never),
        (key("it's \"b\""), never),
        (key("a"), size(5, 0.0)),
        (key("A"), never),
    ];
    let left = store.left(&asked).await.unwrap();
    let of_none = store.left(&[]).await.unwrap();
    assert_eq!((left, of_none), (vec![0.0, 7.0, 10.0, 3.0, 5.0, 10.0], vec![]));
}

/// Neither another owner of the tenant nor the same owner of another tenant.
pub async fn a_bucket_is_its_owners_alone(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let size = size(10, 0.0);
    assert_eq!(lease(&*store, "a", size, 1, 10).await.granted, 10);
    for owner in ["A", "a ", "", "it's", "\u{1F600}"] {
        assert_eq!(lease(&*store, owner, size, 1, 10).await.granted, 10, "{owner}");
    }
    let another = BucketKey {
        tenant: TenantId::from_bytes([2; 16]),
        ..key("a")
    };
    let wanted = Wanted { least: 1, most: 10 };
    assert_eq!(store.lease(&another, size, wanted).await.unwrap().granted, 10);
}

/// What was in it stays, as far as it fits.
pub async fn another_size_counts_from_now_on(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(lease(&*store, "a", size(10, 0.0), 1, 2).await.granted, 2);
    let smaller = lease(&*store, "a", size(5, 0.0), 1, 1).await;
    assert_eq!((smaller.granted, smaller.left), (1, 4.0));
    let larger = lease(&*store, "a", size(100, 0.0), 1, 1).await;
    assert_eq!((larger.granted, larger.left), (1, 3.0));
}

/// Whoever asks next, after however long: for the time before, the rate is the one before, and no more than it held.
pub async fn until_it_has_another_size_a_bucket_refills_by_the_one_before(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (never, fast) = (size(10, 0.0), size(10, 1_000.0));
    assert_eq!(lease(&*store, "raised", never, 10, 10).await.granted, 10);
    for owner in ["lowered", "larger"] {
        assert_eq!(lease(&*store, owner, fast, 10, 10).await.granted, 10);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let raised = lease(&*store, "raised", fast, 1, 10).await;
    assert_eq!((raised.granted, raised.left), (0, 0.0));
    assert_eq!(lease(&*store, "lowered", never, 1, 10).await.granted, 10);
    assert_eq!(
        lease(&*store, "larger", size(1_000, 0.0), 1, 1_000).await.granted,
        10
    );
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(lease(&*store, "raised", fast, 10, 10).await.granted, 10);
    assert_eq!(lease(&*store, "lowered", never, 1, 10).await.granted, 0);
}

/// As a lease with another size does, and nothing is lent; of buckets that were never asked for, and without any, too.
pub async fn a_bucket_can_have_another_size_before_it_is_asked(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (never, fast) = (size(10, 0.0), size(10, 1_000.0));
    for (owner, size) in [("raised", never), ("lowered", fast), ("other", never)] {
        assert_eq!(lease(&*store, owner, size, 10, 10).await.granted, 10);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let sizes = [
        (key("raised"), size(20, 1_000.0)),
        (key("lowered"), size(4, 0.0)),
        (key("it's \"new\""), size(5, 0.0)),
    ];
    // The second time, they have these sizes already.
    for _ in 0..2 {
        store.resize(&sizes).await.unwrap();
    }
    store.resize(&[]).await.unwrap();
    let left = async |owner: &str, size| look(&*store, key(owner), size).await;
    let lowered = left("lowered", size(4, 0.0)).await;
    let new = left("it's \"new\"", size(5, 0.0)).await;
    assert_eq!((lowered, new, left("other", never).await), (4.0, 5.0, 0.0));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let raised = lease(&*store, "raised", size(20, 1_000.0), 20, 20).await;
    assert_eq!(raised.granted, 20);
    assert_eq!(lease(&*store, "lowered", size(4, 0.0), 1, 10).await.granted, 4);
}

/// Whoever was lent them may know an earlier size.
pub async fn what_is_given_back_fits_into_the_bucket_as_it_is_now(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(lease(&*store, "a", size(10, 0.0), 1, 2).await.granted, 2);
    store.resize(&[(key("a"), size(100, 0.0))]).await.unwrap();
    store.give_back(&[(key("a"), 30)]).await.unwrap();
    let larger = lease(&*store, "a", size(100, 0.0), 1, 1).await;
    assert_eq!((larger.granted, larger.left), (1, 37.0));
    store.resize(&[(key("a"), size(5, 0.0))]).await.unwrap();
    store.give_back(&[(key("a"), 30)]).await.unwrap();
    assert_eq!(lease(&*store, "a", size(5, 0.0), 1, 100).await.granted, 5);
}

/// Opening again refills nothing.
pub async fn a_lease_is_there_after_reopening(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let size = size(10, 0.0);
    assert_eq!(lease(&*store, "a", size, 1, 7).await.granted, 7);
    drop(store);
    let store = fixture.reopen().await;
    assert_eq!(lease(&*store, "a", size, 1, 10).await.granted, 3);
}

/// However many ask at once, all of them together get what the bucket held and what it was refilled with.
pub async fn all_together_never_get_more_than_there_is(fixture: &dyn Fixture) {
    const CAPACITY: u32 = 50;
    const REFILL: f64 = 400.0;
    let store = fixture.open().await;
    let granted = Arc::new(AtomicU32::new(0));
    let begin = Instant::now();
    let leasers = (0..8).map(|number| {
        let (store, granted) = (Arc::clone(&store), Arc::clone(&granted));
        tokio::spawn(async move {
            // For a while and, however slow the store is, until more was granted than the bucket held.
            while begin.elapsed() < Duration::from_millis(500)
                || (granted.load(Ordering::Relaxed) <= CAPACITY && begin.elapsed() < Duration::from_mins(1))
            {
                let most = 1 + number % 4;
                let lent = lease(&*store, "shared", size(CAPACITY, REFILL), 1, most).await;
                granted.fetch_add(lent.granted, Ordering::Relaxed);
                if lent.granted == most && number == 7 {
                    store.give_back(&[(key("shared"), 1)]).await.unwrap();
                    granted.fetch_sub(1, Ordering::Relaxed);
                }
            }
        })
    });
    for leaser in leasers.collect::<Vec<_>>() {
        leaser.await.unwrap();
    }
    let granted = granted.load(Ordering::Relaxed);
    // The clock of a store may count in milliseconds.
    let most = f64::from(CAPACITY) + REFILL * (begin.elapsed().as_secs_f64() + 0.001);
    assert!(f64::from(granted) <= most, "{granted} of {most}");
    assert!(granted > CAPACITY, "{granted}: nothing was refilled");
}

/// A full bucket can go, and is as full as before; one that is not stays.
pub async fn only_full_buckets_are_forgotten(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let slow = size(10, 0.0);
    let fast = size(10, 1_000.0);
    assert_eq!(lease(&*store, "slow", slow, 1, 7).await.granted, 7);
    for owner in ["b", "c", "d"] {
        assert_eq!(lease(&*store, owner, fast, 1, 10).await.granted, 10);
    }
    assert_eq!(lease(&*store, "untouched", slow, 11, 20).await.granted, 0);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(store.forget_full().await.unwrap(), 4);
    assert_eq!(store.forget_full().await.unwrap(), 0);
    assert_eq!(lease(&*store, "slow", slow, 1, 10).await.granted, 3);
    assert_eq!(lease(&*store, "b", fast, 1, 100).await.granted, 10);
}

/// Who has the turn may have it for as long as it likes.
pub async fn nobody_has_to_give_up_a_turn_where_no_bucket_is_full(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(lease(&*store, "a", size(10, 0.0), 1, 7).await.granted, 7);
    let turn = store.begin(&[key("a").tenant]).await.unwrap();
    let looked = tokio::time::timeout(Duration::from_secs(10), store.forget_full()).await;
    assert_eq!(looked.expect("it waits for a turn").unwrap(), 0);
    drop(turn);
}
