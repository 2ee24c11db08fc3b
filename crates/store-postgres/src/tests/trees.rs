//! Ledgers that were written before trees were kept.

use super::{database, open, write_three};
use crate::testing::Database;
use crate::{OpenError, PostgresStore};
use store::conformance::sample::Chain;
use store::{Records, Store};

/// Takes the tree away, as if nobody had ever kept one, and does `more` to the entries.
async fn forget_the_tree(database: &Database, more: &'static str) {
    let mut stranger = database.stranger().await;
    for statement in [
        "ALTER TABLE audit_events DISABLE TRIGGER USER",
        "UPDATE tenants SET edge = ''",
        "UPDATE audit_events SET nodes = ''",
        more,
        "ALTER TABLE audit_events ENABLE TRIGGER USER",
    ] {
        sqlx::raw_sql(statement).execute(&mut stranger).await.unwrap();
    }
}

#[tokio::test]
async fn a_ledger_without_a_tree_is_completed_by_whoever_opens_it_first() {
    let database = database().await;
    let store = open(&database).await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    for _ in 0..5 {
        write_three(&store, &mut one).await;
        write_three(&store, &mut two).await;
    }
    let before = store.entries(one.tenant, 1, 100).await.unwrap();
    store.close().await;
    forget_the_tree(&database, "SELECT 1").await;

    let (store, other) = tokio::join!(open(&database), open(&database));
    assert_eq!(other.tip(one.tenant).await.unwrap(), one.tip);
    assert_eq!(store.tip(two.tenant).await.unwrap(), two.tip);
    assert_eq!(store.entries(one.tenant, 1, 100).await.unwrap(), before);
    write_three(&store, &mut one).await;
    let rewrite = sqlx::raw_sql("UPDATE audit_events SET body = '{}'");
    let refused = rewrite.execute(&mut database.stranger().await).await;
    assert!(refused.unwrap_err().to_string().contains("not rewritten"));
}

#[tokio::test]
async fn no_tree_is_made_over_what_somebody_has_changed() {
    let database = database().await;
    let store = open(&database).await;
    write_three(&store, &mut Chain::new(1)).await;
    store.close().await;
    forget_the_tree(&database, "UPDATE audit_events SET kind = 'other' WHERE seq = 2").await;
    let refusal = PostgresStore::open(&database.url()).await.unwrap_err();
    assert!(matches!(refusal, OpenError::Broken { .. }), "{refusal}");
    assert!(refusal.to_string().contains("entry 2 of tnt_"), "{refusal}");
}
