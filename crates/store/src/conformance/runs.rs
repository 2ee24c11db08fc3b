//! What is promised of runs: they change with the commit of their entry, and a family has one level.

use super::sample::{Chain, name};
use super::{Fixture, commit, refused};
use crate::{Batch, Store};
use model::{RunTaint, Timestamp, Trust};

/// Adds to a batch how a run is from now on, with its entry.
fn put(chain: &mut Chain, batch: &mut Batch, run: &RunTaint) {
    let body = canon::of(&run.run_id).expect("a name is JSON");
    chain.entry(batch, "run", Timestamp::from_millis(5), body);
    batch.runs.push((chain.tenant, run.clone()));
}

async fn find(store: &dyn Store, chain: &Chain, ids: &[&str]) -> Vec<RunTaint> {
    let asked: Vec<_> = ids.iter().map(|id| (chain.tenant, name(id))).collect();
    let mut turn = store.begin(&[chain.tenant]).await.unwrap();
    let mut found = turn.find_runs(&asked).await.unwrap();
    drop(turn);
    let mut read = store.runs(&asked).await.unwrap();
    found.sort_by_key(|(_, run)| run.run_id.clone());
    read.sort_by_key(|(_, run)| run.run_id.clone());
    assert_eq!(found, read, "the turn and the reader differ");
    assert!(found.iter().all(|(tenant, _)| *tenant == chain.tenant));
    found.into_iter().map(|(_, run)| run).collect()
}

/// When the one that began it gets worse, all of them are.
pub async fn a_family_of_runs_has_the_level_of_the_one_that_began_it(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let root = RunTaint::beginning(name("run \"1\""), Trust::TrustedInternalUnsigned);
    let child = root.child(name("Zoë\u{1F600}"));
    let mut batch = Batch::default();
    put(&mut chain, &mut batch, &root);
    put(&mut chain, &mut batch, &child);
    commit(&*store, &batch).await;
    let ids = ["run \"1\"", "Zoë\u{1F600}", "never"];
    assert_eq!(find(&*store, &chain, &ids).await.len(), 2);
    let worse = root.after(Trust::UntrustedExternal);
    let mut batch = Batch::default();
    put(&mut chain, &mut batch, &root.after(Trust::SemiTrustedCustomer));
    put(&mut chain, &mut batch, &worse);
    commit(&*store, &batch).await;
    let store = fixture.reopen().await;
    let found = find(&*store, &chain, &ids).await;
    assert_eq!(found.len(), 2);
    assert!(
        found
            .iter()
            .all(|run| run.worst == Trust::UntrustedExternal && run.root == root.run_id)
    );
    assert!(find(&*store, &chain, &[]).await.is_empty());
    let first = store.runs_after(chain.tenant, None, 1).await.unwrap();
    let last = first.last().map(|run| &run.run_id);
    let rest = store.runs_after(chain.tenant, last, 9).await.unwrap();
    let listed: Vec<_> = first.iter().chain(&rest).map(|run| run.run_id.as_str()).collect();
    assert_eq!((first.len(), listed), (1, vec!["Zoë\u{1F600}", "run \"1\""]));
    assert!(
        first
            .iter()
            .chain(&rest)
            .all(|run| run.worst == Trust::UntrustedExternal)
    );
}

/// Also where the names are the same, and whatever was not committed.
pub async fn a_run_is_its_tenants_alone(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let run = RunTaint::beginning(name("run-1"), Trust::Unknown);
    let mut batch = two.decisions(1);
    put(&mut one, &mut batch, &run);
    commit(&*store, &batch).await;
    assert_eq!(find(&*store, &one, &["run-1"]).await, std::slice::from_ref(&run));
    assert!(find(&*store, &two, &["run-1"]).await.is_empty());
    let mut batch = Batch::default();
    put(&mut Chain::new(2), &mut batch, &run);
    refused(&*store, &batch).await;
    let mut batch = one.clone().decisions(1);
    batch.runs.push((two.tenant, run));
    refused(&*store, &batch).await;
    assert!(find(&*store, &two, &["run-1"]).await.is_empty());
}
