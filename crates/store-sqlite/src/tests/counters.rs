//! Old counters of quotas: looked for beside the commits, some at a time.

use super::{Folder, write};
use model::Timestamp;
use store::{Counters as _, Swept};

/// More counters of one tenant than are looked at in one go, in the order of their keys, of which the last is old.
const FILL: &str =
    "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers LIMIT 110000)
    INSERT INTO quota_counters (tenant_no, key, start, count, at)
    SELECT 1, unhex(printf('%08x', number)), 0, 1, iif(number = 110000, 1000, 2000)
    FROM numbers";

#[tokio::test]
async fn so_many_counters_are_looked_at_in_one_go_and_the_next_ones_in_the_next() {
    let folder = Folder::new();
    let store = folder.open().await;
    write(&store, FILL).await;
    let before = Timestamp::from_millis(2_000);
    let swept = |gone, is_through| Swept { gone, is_through };
    assert_eq!(store.forget_counters(before).await.unwrap(), swept(0, false));
    assert_eq!(store.forget_counters(before).await.unwrap(), swept(1, true));
    let age = "UPDATE quota_counters SET at = 1000 WHERE key = x'00000001'";
    write(&store, age).await;
    let anew = store.forget_counters(before).await.unwrap();
    assert_eq!(anew.gone, 1, "it does not begin anew");
}
