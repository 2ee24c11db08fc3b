//! Ledgers that were written before trees were kept.

use super::{Folder, write_three};
use crate::OpenError;
use sqlx::Connection;
use store::conformance::sample::Chain;
use store::{Records, Store};

/// Takes the tree away, as if nobody had ever kept one, and does `more` to the entries.
async fn forget_the_tree(folder: &Folder, more: &'static str) {
    let mut stranger = folder.stranger().await;
    let guard: String =
        sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE name = 'audit_events_are_not_rewritten'")
            .fetch_one(&mut stranger)
            .await
            .unwrap();
    for statement in [
        "DROP TRIGGER audit_events_are_not_rewritten",
        "UPDATE tenants SET edge = x''",
        "UPDATE audit_events SET nodes = x''",
        more,
    ] {
        sqlx::raw_sql(statement).execute(&mut stranger).await.unwrap();
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(guard))
        .execute(&mut stranger)
        .await
        .unwrap();
    stranger.close().await.unwrap();
}

#[tokio::test]
async fn a_ledger_without_a_tree_is_completed_when_it_is_opened() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    for _ in 0..5 {
        write_three(&store, &mut one).await;
        write_three(&store, &mut two).await;
    }
    let before = store.entries(one.tenant, 1, 100).await.unwrap();
    store.close().await;
    forget_the_tree(&folder, "SELECT 1").await;

    let store = folder.open().await;
    assert_eq!(store.tip(one.tenant).await.unwrap(), one.tip);
    assert_eq!(store.tip(two.tenant).await.unwrap(), two.tip);
    assert_eq!(store.entries(one.tenant, 1, 100).await.unwrap(), before);
    write_three(&store, &mut one).await;
    store.close().await;
    let rewrite = sqlx::raw_sql("UPDATE audit_events SET body = '{}'");
    let refused = rewrite.execute(&mut folder.stranger().await).await;
    assert!(refused.unwrap_err().to_string().contains("not rewritten"));
}

#[tokio::test]
async fn no_tree_is_made_over_what_somebody_has_changed() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    store.close().await;
    forget_the_tree(
        &folder,
        "UPDATE audit_events SET kind = 'other' WHERE entry & 3 = 2",
    )
    .await;
    let refusal = folder.refused().await;
    assert!(matches!(refusal, OpenError::Broken { .. }), "{refusal}");
    assert!(refusal.to_string().contains("entry 2 of tnt_"), "{refusal}");
}
