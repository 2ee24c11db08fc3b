//! `countersign budgets verify`: counts every balance again from the ledger, and compares with what is stored.
//!
//! It reads and writes nothing. On PostgreSQL gateways may go on meanwhile: what is compared is the balances at one head.

use crate::config::Database;
use crate::stores;
use anyhow::{Context, bail};
use engine::budgets::recount::Recount;
use model::{Budget, TenantId};
use std::io::Write;
use store::{BudgetFilter, Store};

/// Entries that are read at once.
const PAGE: u32 = 1_024;
/// How often balances are read again because a chain has moved on meanwhile.
const ATTEMPTS_MAX: usize = 20;

/// Verifies the balances of every tenant, and says what was found.
pub async fn run(database: Database) -> anyhow::Result<()> {
    let store = stores::open_known(&database.url).await?;
    let found = verify(&*store).await;
    store.close().await;
    let Found {
        budgets,
        mismatches,
        uncounted,
    } = found?;
    for uncounted in &uncounted {
        writeln!(std::io::stdout(), "{uncounted}")?;
    }
    if mismatches.is_empty() {
        writeln!(
            std::io::stdout(),
            "{budgets} budgets are what their ledgers come to"
        )?;
        return Ok(());
    }
    for mismatch in &mismatches {
        writeln!(std::io::stdout(), "{mismatch}")?;
    }
    bail!("{} of {budgets} budgets do not add up", mismatches.len());
}

/// What was found.
pub struct Found {
    /// How many budgets there are.
    pub budgets: usize,
    /// What does not add up, with the tenant.
    pub mismatches: Vec<String>,
    /// What cannot be counted all the way because bodies were erased or cannot be read, with the tenant.
    pub uncounted: Vec<String>,
}

/// Counts the balances of every tenant again.
pub async fn verify(store: &dyn Store) -> anyhow::Result<Found> {
    let mut found = Found {
        budgets: 0,
        mismatches: Vec::new(),
        uncounted: Vec::new(),
    };
    for (tenant, _) in store.revisions().await? {
        let (stored, last) = at_one_head(store, tenant).await?;
        found.budgets += stored.len();
        let recount = recount(store, tenant, last).await?;
        let mismatches = recount.compare(&stored);
        let told = mismatches.iter().map(|mismatch| format!("{tenant}: {mismatch}"));
        found.mismatches.extend(told);
        let uncounted = recount.uncounted();
        found
            .uncounted
            .extend(uncounted.map(|uncounted| format!("{tenant}: {uncounted}")));
    }
    Ok(found)
}

/// All budgets of a tenant, and the last entry that they follow.
async fn at_one_head(store: &dyn Store, tenant: TenantId) -> anyhow::Result<(Vec<Budget>, u64)> {
    for _ in 0..ATTEMPTS_MAX {
        let before = store.head(tenant).await?;
        let mut budgets = Vec::new();
        loop {
            let last = budgets.last().map(|budget: &Budget| budget.id);
            let page = store
                .list_budgets(tenant, &BudgetFilter::default(), last, PAGE)
                .await?;
            let is_last = page.len() < PAGE as usize;
            budgets.extend(page);
            if is_last {
                break;
            }
        }
        if store.head(tenant).await? == before {
            return Ok((budgets, before.seq));
        }
    }
    bail!("{tenant} is written to all the time; try again when less happens")
}

/// What the entries of a tenant come to, up to the last one.
async fn recount(store: &dyn Store, tenant: TenantId, last: u64) -> anyhow::Result<Recount> {
    let mut recount = Recount::default();
    let mut next = 1;
    while next <= last {
        let entries = store.entries(tenant, next, PAGE).await?;
        let end = entries.last().context("the ledger ends before its head")?.seq;
        for entry in entries.iter().filter(|entry| entry.seq <= last) {
            let body = entry.erased.is_none().then_some(entry.body.as_str());
            recount.entry(entry.seq, &entry.kind, body);
        }
        next = end + 1;
    }
    Ok(recount)
}
