//! Pages of lists: each begins where the last one ended, and does not read what came before.

use super::Folder;
use crate::budgets::page;
use crate::decode::BEYOND_IDS;
use sqlx::{AssertSqlSafe, Execute as _, Row};
use store::BudgetFilter;
use store::conformance::sample::Chain;

#[tokio::test]
async fn a_page_of_budgets_is_found_by_where_it_begins() {
    let folder = Folder::new();
    let store = folder.open().await;
    let query = page(Chain::new(1).tenant, &BudgetFilter::default(), &BEYOND_IDS, 10).sql();
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", query.as_str()));
    let rows = sqlx::query(explain).fetch_all(&store.readers).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
    let expected = [
        "SEARCH tenants USING COVERING INDEX sqlite_autoindex_tenants_1 (tenant_id=?)",
        "SEARCH budgets USING PRIMARY KEY (tenant_no=? AND id<?)",
    ];
    assert_eq!(plan, expected);
}
