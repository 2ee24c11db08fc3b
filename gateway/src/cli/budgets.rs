//! `countersign budgets verify`: counts every balance again from the ledger, and compares with what is stored.
//!
//! It changes nothing. On PostgreSQL gateways may go on meanwhile: a budget has to be what it was at one of the entries
//! that came while all of them were read, and what is held is compared as far as nothing has moved it meanwhile.

use crate::config::Database;
use crate::stores;
use anyhow::{Context, bail};
use engine::budgets::recount::Recount;
use model::{Budget, BudgetId, Reservation, ReservationStatus, TenantId};
use std::io::Write;
use store::{BudgetFilter, BudgetPlace, ReservationFilter, Store};

/// Entries that are read at once.
const PAGE: u32 = 1_024;
/// How often a page of budgets is read, the first time included: people may make or close some meanwhile.
const ATTEMPTS_MAX: usize = 20;

/// Verifies the balances of every tenant, and says what was found.
pub async fn run(database: Database) -> anyhow::Result<()> {
    let store = stores::open_known(&database.url).await?;
    let found = verify(&*store).await;
    store.close().await;
    let found = found?;
    for told in found.uncounted.iter().chain(&found.mismatches) {
        writeln!(std::io::stdout(), "{told}")?;
    }
    if !found.mismatches.is_empty() {
        let (budgets, mismatches) = (found.budgets, found.mismatches.len());
        bail!("in {budgets} budgets and what they hold, {mismatches} things do not add up");
    }
    writeln!(std::io::stdout(), "{}", found.sum())?;
    Ok(())
}

/// What was found.
pub struct Found {
    /// How many budgets there are.
    pub budgets: usize,
    /// What does not add up, with the tenant.
    pub mismatches: Vec<String>,
    /// What cannot be counted all the way because bodies were erased or cannot be read, with the tenant.
    pub uncounted: Vec<String>,
    /// How many of the budgets are not counted to the end because of that.
    pub unfinished: usize,
}

impl Found {
    /// What all of it comes to, where everything adds up.
    pub fn sum(&self) -> String {
        let (budgets, unfinished) = (self.budgets, self.unfinished);
        if unfinished == 0 {
            return format!("{budgets} budgets are what their ledgers come to");
        }
        let finished = budgets.saturating_sub(unfinished);
        format!(
            "{finished} of {budgets} budgets are what their ledgers come to; {unfinished} could not be counted to the end"
        )
    }
}

/// Counts the balances of every tenant again.
pub async fn verify(store: &dyn Store) -> anyhow::Result<Found> {
    let mut found = Found {
        budgets: 0,
        mismatches: Vec::new(),
        uncounted: Vec::new(),
        unfinished: 0,
    };
    for (tenant, _) in store.revisions().await? {
        // What is stored may be much, and to read it at one head would take longer than the head stays.
        let began = store.head(tenant).await?.seq;
        let held = held(store, tenant).await?;
        let held_by = store.head(tenant).await?.seq;
        let (budgets, places) = budgets(store, tenant).await?;
        let last = store.head(tenant).await?.seq;
        found.budgets += budgets.len();
        // What is held takes long to read, and a budget has not been read before that.
        let recount = Recount::of_what_was_read_after(began, held_by);
        let recount = count(store, tenant, recount, last).await?;
        let mut mismatches = recount.compare(&budgets);
        mismatches.extend(recount.compare_places(&budgets, &places));
        mismatches.extend(recount.compare_holds(&held));
        let told = mismatches.iter().map(|mismatch| format!("{tenant}: {mismatch}"));
        found.mismatches.extend(told);
        for uncounted in recount.uncounted() {
            found.unfinished += usize::from(uncounted.from.is_none());
            found.uncounted.push(format!("{tenant}: {uncounted}"));
        }
    }
    Ok(found)
}

/// All budgets of a tenant, and by what each is looked for: what stands in one row has one place in both.
async fn budgets(store: &dyn Store, tenant: TenantId) -> anyhow::Result<(Vec<Budget>, Vec<BudgetPlace>)> {
    let (mut budgets, mut places): (Vec<Budget>, Vec<BudgetPlace>) = (Vec::new(), Vec::new());
    loop {
        // By the column: by what a budget says of itself, which may have been changed, the list might never end.
        let last = places.last().map(|place| place.id);
        let (page, of_page) = page(store, tenant, last).await?;
        let is_last = of_page.len() < PAGE as usize;
        budgets.extend(page);
        places.extend(of_page);
        if is_last {
            return Ok((budgets, places));
        }
    }
}

/// The budgets behind this one, and by what each is looked for. Agents move what is in them all the time; which there
/// are and by what they are looked for only people change, and then both are read again, so that they are of one
/// moment.
async fn page(
    store: &dyn Store,
    tenant: TenantId,
    last: Option<BudgetId>,
) -> anyhow::Result<(Vec<Budget>, Vec<BudgetPlace>)> {
    let filter = BudgetFilter::default();
    let mut before = store.budget_places(tenant, last, PAGE).await?;
    for _ in 0..ATTEMPTS_MAX {
        let budgets = store.list_budgets(tenant, &filter, last, PAGE).await?;
        let after = store.budget_places(tenant, last, PAGE).await?;
        if after == before {
            return Ok((budgets.found, after));
        }
        before = after;
    }
    bail!("budgets of {tenant} are made or closed all the time; try again when that is over")
}

/// Everything that a tenant's agents hold.
async fn held(store: &dyn Store, tenant: TenantId) -> anyhow::Result<Vec<Reservation>> {
    let filter = ReservationFilter {
        status: Some(ReservationStatus::Active),
        agent: None,
    };
    let (mut held, mut before) = (Vec::new(), None);
    loop {
        let page = store.list_reservations(tenant, &filter, before, PAGE).await?;
        held.extend(page.found);
        let Some(next) = page.next else {
            return Ok(held);
        };
        // By what a reservation says of itself, which may have been changed: the list might never end.
        if before.is_some_and(|before| next >= before) {
            bail!(
                "what {tenant} holds cannot be read to its end: {next} stands in the row of another reservation"
            );
        }
        before = Some(next);
    }
}

/// Counts the entries of a tenant, from the first to the last one.
async fn count(
    store: &dyn Store,
    tenant: TenantId,
    mut recount: Recount,
    last: u64,
) -> anyhow::Result<Recount> {
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
