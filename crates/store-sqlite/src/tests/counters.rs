//! Old counters of quotas: looked for beside the commits, some at a time.

use super::{Folder, write};
use crate::SqliteStore;
use model::Timestamp;
use store::Counters as _;

/// More counters of one tenant than are looked at in one go, in the order of their keys, of which the last is old.
const FILL: &str =
    "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers LIMIT 110000)
    INSERT INTO quota_counters (tenant_no, key, start, count, at)
    SELECT 1, unhex(printf('%08x', number)), 0, 1, iif(number = 110000, 1000, 2000)
    FROM numbers";

/// Looks through all counters. Returns how many were old, and how many rounds it took.
async fn sweep(store: &SqliteStore) -> (u64, u32) {
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
async fn so_many_counters_are_looked_at_in_one_go_and_the_next_ones_in_the_next() {
    let folder = Folder::new();
    let store = folder.open().await;
    write(&store, FILL).await;
    let (gone, rounds) = sweep(&store).await;
    assert!(gone == 1 && rounds > 1, "{gone} in {rounds}");
    let age = "UPDATE quota_counters SET at = 1000 WHERE key = x'00000001'";
    write(&store, age).await;
    assert_eq!(sweep(&store).await.0, 1, "it does not begin anew");
}

#[tokio::test]
async fn what_is_too_much_for_a_round_goes_in_the_next_ones() {
    let folder = Folder::new();
    let store = folder.open().await;
    write(&store, FILL).await;
    // The first 20,000, and the last one is old anyway.
    let age = "UPDATE quota_counters SET at = 1000 WHERE key < x'00004e21'";
    write(&store, age).await;
    assert_eq!(sweep(&store).await.0, 20_001);
    assert_eq!(sweep(&store).await.0, 0);
}
