//! Ledgers that were written before trees were kept.

use super::{Folder, write_three};
use crate::{Bounds, OpenError, SqliteStore};
use sqlx::Connection;
use store::conformance::sample::{Ask, Chain};
use store::{Batch, Records, Store};

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

#[tokio::test]
async fn a_ledger_that_was_completed_half_way_is_completed_by_the_next_start() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    store::conformance::commit(&store, &chain.decisions(1_100)).await;
    let before = store.entries(chain.tenant, 1, 2_000).await.unwrap();
    store.close().await;
    // The second part cannot be completed, as if the process had ended in it.
    forget_the_tree(
        &folder,
        "UPDATE audit_events SET kind = 'other ' || kind WHERE entry & 4095 = 1050",
    )
    .await;
    let refusal = folder.refused().await;
    assert!(refusal.to_string().contains("entry 1050 of tnt_"), "{refusal}");
    let mut stranger = folder.stranger().await;
    let done = "SELECT count(*), (SELECT length(edge) FROM tenants) FROM audit_events WHERE nodes <> x''";
    let done: (i64, i64) = sqlx::query_as(done).fetch_one(&mut stranger).await.unwrap();
    assert_eq!(done, (1_000, 0));
    // What was changed is put right. So is what somebody has done to a part that was written.
    let mend = "UPDATE audit_events SET kind = substr(kind, 7) WHERE entry & 4095 = 1050";
    let guard = "DROP TRIGGER audit_events_are_not_rewritten";
    let spoil = "UPDATE audit_events SET nodes = zeroblob(32) WHERE entry & 4095 = 7";
    let guarded: String = sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE name = ?1")
        .bind("audit_events_are_not_rewritten")
        .fetch_one(&mut stranger)
        .await
        .unwrap();
    for statement in [guard, mend, spoil] {
        sqlx::raw_sql(statement).execute(&mut stranger).await.unwrap();
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(guarded))
        .execute(&mut stranger)
        .await
        .unwrap();
    stranger.close().await.unwrap();

    let store = folder.open().await;
    assert_eq!(store.tip(chain.tenant).await.unwrap(), chain.tip);
    let after = store.entries(chain.tenant, 1, 2_000).await.unwrap();
    assert!(after == before, "what was completed is not what was recorded");
}

#[tokio::test]
async fn what_went_wrong_is_said_where_the_transaction_is_over_already() {
    let folder = Folder::new();
    let store = folder.open().await;
    write_three(&store, &mut Chain::new(1)).await;
    store.close().await;
    // As SQLite does by itself on a full disk.
    forget_the_tree(
        &folder,
        "CREATE TRIGGER no_room BEFORE UPDATE ON audit_events
         BEGIN SELECT RAISE(ROLLBACK, 'there is no room'); END",
    )
    .await;
    let refusal = folder.refused().await;
    let source = std::error::Error::source(&refusal).unwrap().to_string();
    assert!(source.contains("there is no room"), "{refusal}: {source}");
}

#[tokio::test]
async fn the_log_stays_bounded_while_a_large_ledger_is_completed() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut chain = Chain::new(1);
    let text = "x".repeat(2_000);
    for _ in 0..8 {
        let mut batch = Batch::default();
        for _ in 0..1_000 {
            let text = text.clone();
            chain.decision(
                &mut batch,
                &Ask {
                    text,
                    ..Ask::default()
                },
            );
        }
        store::conformance::commit(&store, &batch).await;
    }
    store.close().await;
    forget_the_tree(&folder, "SELECT 1").await;
    let bounds = Bounds {
        log_bytes_max: 2 << 20,
        ..Bounds::default()
    };
    let store = SqliteStore::open_bounded(&folder.url(), bounds).await.unwrap();
    assert_eq!(store.tip(chain.tenant).await.unwrap(), chain.tip);
    let log = folder.log_bytes();
    let database = std::fs::metadata(folder.path()).unwrap().len();
    assert!(
        log < database / 3,
        "{log} bytes of log for {database} of database"
    );
}
