//! Pages of lists: each begins where the last one ended, and does not read what came before.

use super::Folder;
use crate::SqliteStore;
use crate::budgets::{open, open_stretch, stretch};
use crate::decode::BEYOND_IDS;
use sqlx::{AssertSqlSafe, Execute as _, Row};
use store::conformance::sample::Chain;
use store::{BudgetFilter, OpenBudgets};

/// How a statement finds what it reads.
async fn plan(store: &SqliteStore, statement: &str) -> Vec<String> {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let rows = sqlx::query(explain).fetch_all(&store.readers).await.unwrap();
    rows.iter().map(|row| row.get("detail")).collect()
}

#[tokio::test]
async fn a_page_of_budgets_is_found_by_where_it_begins() {
    let folder = Folder::new();
    let store = folder.open().await;
    let tenant = Chain::new(1).tenant;
    let ids: (&[u8], _) = (&[], &BEYOND_IDS);
    let tenants = "SEARCH tenants USING COVERING INDEX sqlite_autoindex_tenants_1 (tenant_id=?)";
    let query = stretch(tenant, &BudgetFilter::default(), ids, 10).sql();
    let budgets = "SEARCH budgets USING PRIMARY KEY (tenant_no=? AND id>? AND id<?)";
    assert_eq!(plan(&store, query.as_str()).await, [tenants, budgets]);
    let query = open_stretch(tenant, None, ids, 10).sql();
    let budgets = "SEARCH budgets USING INDEX budgets_open_in_order (tenant_no=? AND id>? AND id<?)";
    assert_eq!(plan(&store, query.as_str()).await, [tenants, budgets]);
}

#[tokio::test]
async fn open_budgets_of_a_scope_are_found_by_where_they_begin() {
    let folder = Folder::new();
    let store = folder.open().await;
    let wanted = OpenBudgets {
        tenant: Chain::new(1).tenant,
        scopes: Vec::new(),
        unit: None,
        after: None,
        limit: 10,
    };
    let query = open(&wanted).sql();
    let plan = plan(&store, query.as_str()).await;
    let found = "SEARCH of_scope USING COVERING INDEX budgets_open (tenant_no=? AND scope=? AND unit>?)";
    assert!(plan.iter().any(|step| step == found), "{plan:?}");
    assert!(
        !plan.iter().any(|step| step.starts_with("SCAN budgets")),
        "{plan:?}"
    );
}
