//! The schema: keys by tenant, nothing rewritten, nothing guessed.

use super::{database, head, open, open_at, write_three};
use crate::PostgresStore;
use crate::testing::Database;
use sqlx::AssertSqlSafe;
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain};
use store::{Batch, Directories, Records, Store};

#[tokio::test]
async fn every_key_begins_with_the_tenant_so_that_tables_can_be_distributed() {
    let database = database().await;
    PostgresStore::migrate(&database.url()).await.unwrap();
    let mut stranger = database.stranger().await;
    let keys: Vec<(String, String)> = sqlx::query_as(
        "SELECT pg_class.relname::text, pg_attribute.attname::text
         FROM pg_index
         JOIN pg_class ON pg_class.oid = pg_index.indrelid
         JOIN pg_attribute ON pg_attribute.attrelid = pg_class.oid AND pg_attribute.attnum = pg_index.indkey[0]
         WHERE pg_class.relnamespace = 'public'::regnamespace
           AND (pg_index.indisprimary OR pg_index.indisunique)
           AND pg_class.relname <> '_sqlx_migrations'",
    )
    .fetch_all(&mut stranger)
    .await
    .unwrap();
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_sqlx_migrations'",
    )
    .fetch_all(&mut stranger)
    .await
    .unwrap();
    assert!(tables.len() >= 8, "{tables:?}");
    for table in &tables {
        assert!(keys.iter().any(|(of, _)| of == table), "`{table}` has no key");
    }
    for (table, first) in keys {
        assert_eq!(
            first, "tenant_id",
            "a key of `{table}` begins with something else"
        );
    }
}

#[tokio::test]
async fn what_was_recorded_cannot_be_rewritten_by_hand() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(3);
    chain.content(&mut batch, "seen");
    store::conformance::commit(&store, &batch).await;
    let mut stranger = database.stranger().await;
    for statement in [
        "DELETE FROM tenants",
        "UPDATE audit_events SET body = '{}'",
        "DELETE FROM audit_events",
        "UPDATE decisions SET reason = 'policy_permits'",
        "DELETE FROM decisions",
        "UPDATE receipts SET bytes = ''",
        "DELETE FROM receipts",
        "UPDATE contents SET bytes = ''",
        "TRUNCATE tenants",
        "TRUNCATE audit_events",
        "TRUNCATE decisions",
        "TRUNCATE receipts",
    ] {
        let error = sqlx::raw_sql(statement)
            .execute(&mut stranger)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("are not rewritten or deleted"),
            "{statement}: {error}"
        );
    }
}

#[tokio::test]
async fn a_schema_may_have_a_name_that_has_to_be_quoted() {
    let database = database().await;
    let mut stranger = database.stranger().await;
    sqlx::raw_sql(r#"CREATE SCHEMA "A.B""#)
        .execute(&mut stranger)
        .await
        .unwrap();
    let url = format!("{}&options=-csearch_path%3D%22A.B%22", database.url());
    let mut chain = Chain::new(1);
    write_three(&open_at(&url).await, &mut chain).await;
    let again = open_at(&url).await;
    assert_eq!(head(&again, &chain).await, chain.head());
}

#[tokio::test]
async fn a_row_that_no_program_wrote_is_an_error_that_names_it() {
    let database = database().await;
    let store = open(&database).await;
    write_three(&store, &mut Chain::new(1)).await;
    let mut stranger = database.stranger().await;
    let change = sqlx::query("UPDATE tenants SET head_hash = '\\x00'");
    change.execute(&mut stranger).await.unwrap();
    let error = store.load(None).await.unwrap_err();
    let tenant = Chain::new(1).tenant;
    let expected = format!(
        "the database holds something unreadable: `head_hash` of {tenant} in `tenants` is not 32 bytes"
    );
    assert_eq!(error.to_string(), expected);
}

/// How many updates the heads have seen, and how many of them touched no index.
async fn updates(database: &Database) -> (i64, i64) {
    let mut stranger = database.stranger().await;
    sqlx::query_as("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tenants'")
        .fetch_one(&mut stranger)
        .await
        .unwrap()
}

/// How many updates the heads have seen in a new database in which all were moved some times, and how many of them
/// touched no index.
async fn updates_of_moving_heads() -> (i64, i64) {
    const TENANTS: u8 = 150;
    const ROUNDS: i64 = 8;
    let database = database().await;
    let store = open(&database).await;
    let mut chains: Vec<_> = (1..=TENANTS).map(Chain::new).collect();
    for _ in 0..ROUNDS {
        let mut batch = Batch::default();
        for chain in &mut chains {
            chain.decision(&mut batch, &Ask::default());
        }
        store::conformance::commit(&store, &batch).await;
    }
    store.close().await;
    let begin = Instant::now();
    loop {
        let found = updates(&database).await;
        if found.0 >= ROUNDS * i64::from(TENANTS) {
            return found;
        }
        // The server counts with a delay.
        assert!(begin.elapsed() < Duration::from_secs(10), "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn heads_that_move_touch_no_index() {
    let mut found = Vec::new();
    // While somebody has a snapshot, and be it the server for its statistics, old rows stay in their pages and new ones
    // find no room there: of 1,200 updates 100 touch an index then. In a table that leaves no room 800 do.
    for _ in 0..4 {
        let (updates, without_index) = updates_of_moving_heads().await;
        if without_index * 10 >= updates * 8 {
            return;
        }
        found.push((without_index, updates));
    }
    panic!("too few updates touch no index: {found:?}");
}

/// How many rows of entries, and of what stands at their places, were fetched through an index so far.
async fn fetched_rows(database: &Database) -> i64 {
    let mut stranger = database.stranger().await;
    sqlx::query_scalar(
        "SELECT sum(idx_tup_fetch)::bigint
         FROM pg_stat_user_tables
         WHERE relname IN ('audit_events', 'decisions', 'receipts')",
    )
    .fetch_one(&mut stranger)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_ledger_that_the_planner_does_not_know_is_read_once() {
    const DECISIONS: u32 = 2_000;
    const PAGE: u32 = 100;
    let database = database().await;
    let store = open(&database).await;
    let (mut known, mut unknown) = (Chain::new(1), Chain::new(2));
    store::conformance::commit(&store, &known.decisions(500)).await;
    let mut stranger = database.stranger().await;
    sqlx::query("ANALYZE").execute(&mut stranger).await.unwrap();
    // In parts, because a turn has to go on while the rest of a batch is prepared.
    for _ in 0..4 {
        store::conformance::commit(&store, &unknown.decisions(DECISIONS as usize / 4)).await;
    }
    let mut from = 0;
    let mut read = 0;
    loop {
        let page = store.recorded(unknown.tenant, from, PAGE).await.unwrap();
        let Some(last) = page.last() else { break };
        from = last.entry.seq + 1;
        read += page.len();
    }
    assert_eq!(read, DECISIONS as usize);
    store.close().await;
    // The server counts with a delay.
    let begin = Instant::now();
    while fetched_rows(&database).await < i64::from(3 * DECISIONS) {
        assert!(begin.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let fetched = fetched_rows(&database).await;
    assert!(fetched < i64::from(4 * DECISIONS), "{fetched}");
}

#[tokio::test]
async fn what_is_looked_up_in_a_turn_is_looked_up_by_key() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    for number in 0..500 {
        chain.decision(&mut batch, &Ask::named(&format!("call-{number}")));
    }
    store::conformance::commit(&store, &batch).await;
    let mut lent = store.turns.lend().await.unwrap();
    for statement in [
        "SELECT FROM tenants WHERE tenant_id IN (gen_random_uuid(), gen_random_uuid()) ORDER BY tenant_id FOR UPDATE",
        "SELECT FROM unnest(ARRAY[gen_random_uuid()]) AS asked (tenant_id) JOIN requests USING (tenant_id)",
        "SELECT FROM unnest(ARRAY[gen_random_uuid()]) AS asked (tenant_id) JOIN outcomes USING (tenant_id)",
    ] {
        let explain = AssertSqlSafe(format!("EXPLAIN {statement}"));
        let plan = sqlx::query_scalar::<_, String>(explain)
            .fetch_all(lent.start().unwrap())
            .await;
        let plan = lent.settle_clean(plan).unwrap().join("\n");
        assert!(!plan.contains("Seq Scan"), "{statement}:\n{plan}");
    }
}

#[tokio::test]
async fn approvals_that_have_expired_are_found_in_the_order_in_which_they_did() {
    let database = database().await;
    let store = open(&database).await;
    let mut stranger = database.stranger().await;
    for statement in [
        "INSERT INTO approvals (tenant_id, id, agent, status, expires_at, value)
         SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'pending', number, ''
         FROM generate_series(1, 5000) AS number",
        "ANALYZE approvals",
    ] {
        sqlx::raw_sql(statement).execute(&mut stranger).await.unwrap();
    }
    let explain = "EXPLAIN SELECT tenant_id, id FROM approvals
         WHERE status IN ('pending', 'approved') AND expires_at <= 4000 ORDER BY expires_at LIMIT 200";
    let mut lent = store.readers.lend().await.unwrap();
    let plan = sqlx::query_scalar::<_, String>(explain)
        .fetch_all(lent.start().unwrap())
        .await;
    let plan = lent.settle_clean(plan).unwrap().join("\n");
    assert!(plan.contains("Index Scan using approvals_open"), "{plan}");
    assert!(!plan.contains("Sort"), "{plan}");
}

#[tokio::test]
async fn reservations_that_should_have_ended_are_found_in_the_order_in_which_they_should_have() {
    let database = database().await;
    let store = open(&database).await;
    let mut stranger = database.stranger().await;
    for statement in [
        "INSERT INTO reservations (tenant_id, id, agent, status, expires_at, value)
         SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'active', number, ''
         FROM generate_series(1, 5000) AS number",
        "ANALYZE reservations",
    ] {
        sqlx::raw_sql(statement).execute(&mut stranger).await.unwrap();
    }
    let explain = "EXPLAIN SELECT tenant_id, id FROM reservations
         WHERE status = 'active' AND expires_at + 0 <= 4000 ORDER BY expires_at + 0 LIMIT 200";
    let mut lent = store.readers.lend().await.unwrap();
    let plan = sqlx::query_scalar::<_, String>(explain)
        .fetch_all(lent.start().unwrap())
        .await;
    let plan = lent.settle_clean(plan).unwrap().join("\n");
    assert!(plan.contains("Index Scan using reservations_ending"), "{plan}");
    assert!(!plan.contains("Sort"), "{plan}");
}

#[tokio::test]
async fn open_budgets_are_listed_by_an_index_of_their_own() {
    // The plan that the server makes for whatever parameters come.
    const PREPARE: &str = "PREPARE open_ones (uuid, uuid, uuid, text, bigint) AS SELECT value
         FROM budgets
         WHERE tenant_id = $1
           AND id >= $2
           AND id < $3
           AND is_open
           AND ($4::text IS NULL OR unit = $4)
         ORDER BY id DESC
         LIMIT $5";
    let (_, text) = PREPARE.split_once(" AS ").unwrap();
    assert!(include_str!("../budgets.rs").contains(text));
    let database = database().await;
    let store = open(&database).await;
    let mut stranger = database.stranger().await;
    for statement in [
        "INSERT INTO budgets (tenant_id, id, scope, unit, is_open, value)
         SELECT md5('')::uuid, gen_random_uuid(), number::text, 'TOKENS', number % 50 = 0, ''
         FROM generate_series(1, 20000) AS number",
        "ANALYZE budgets",
    ] {
        sqlx::raw_sql(statement).execute(&mut stranger).await.unwrap();
    }
    let explain = "EXPLAIN EXECUTE open_ones (md5('')::uuid, '00000000-0000-0000-0000-000000000000',
         'ffffffff-ffff-ffff-ffff-ffffffffffff', NULL, 50)";
    let mut lent = store.readers.lend().await.unwrap();
    let connection = lent.start().unwrap();
    for statement in ["SET plan_cache_mode = force_generic_plan", PREPARE] {
        sqlx::raw_sql(statement).execute(&mut *connection).await.unwrap();
    }
    let plan = sqlx::query_scalar::<_, String>(explain)
        .fetch_all(connection)
        .await;
    let plan = lent.settle_clean(plan).unwrap().join("\n");
    assert!(
        plan.contains("Index Scan Backward using budgets_open_in_order"),
        "{plan}"
    );
    assert!(!plan.contains("Sort"), "{plan}");
}

#[tokio::test]
async fn a_look_does_not_read_what_a_long_transaction_has_left() {
    const LOOK: &str = "SELECT tenant_id, revision FROM tenants ORDER BY tenant_id";
    assert!(include_str!("../directories.rs").contains(LOOK));
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let (mut long, mut stranger) = (database.stranger().await, database.stranger().await);
    // Until it ends, nothing is cleared away that it could still see, nor anything later.
    sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM tenants")
        .execute(&mut long)
        .await
        .unwrap();
    // An ANALYZE of the server's own at the moment of VACUUM would keep versions, too. Each commit replaces the row of
    // its tenant.
    for statement in [
        "ALTER TABLE tenants SET (autovacuum_enabled = off)",
        "SET synchronous_commit = off",
        "DO $$
         BEGIN
             FOR number IN 1..5000 LOOP
                 UPDATE tenants SET revision = revision;
                 COMMIT;
             END LOOP;
         END
         $$",
    ] {
        sqlx::raw_sql(statement).execute(&mut stranger).await.unwrap();
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut long).await.unwrap();
    sqlx::raw_sql("VACUUM tenants")
        .execute(&mut stranger)
        .await
        .unwrap();
    let pages: i64 =
        sqlx::query_scalar("SELECT pg_relation_size('tenants') / current_setting('block_size')::bigint")
            .fetch_one(&mut stranger)
            .await
            .unwrap();
    assert!(pages > 20, "{pages} pages: nothing was left");
    let mut lent = store.looks.lend().await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {LOOK}"));
    let plan = sqlx::query_scalar::<_, String>(explain)
        .fetch_all(lent.start().unwrap())
        .await;
    let plan = lent.settle_clean(plan).unwrap().join("\n");
    // Of the topmost node, which has read what those below it have.
    let buffers = plan
        .lines()
        .find_map(|line| line.trim().strip_prefix("Buffers: shared "));
    let read: i64 = buffers
        .expect(&plan)
        .split(' ')
        .filter_map(|part| part.split_once('='))
        .filter(|(what, _)| matches!(*what, "hit" | "read"))
        .map(|(_, buffers)| buffers.parse::<i64>().unwrap())
        .sum();
    assert!(read < pages / 2, "{read} of {pages} pages:\n{plan}");
}
