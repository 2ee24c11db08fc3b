//! The store that fails on command, around a real one: it has to fail exactly as planned, or what is tested with it is
//! not what it says.
#![expect(clippy::unwrap_used, reason = "a set-up that fails, fails its test")]

use std::sync::Arc;
use std::time::{Duration, Instant};
use store::conformance::sample::Chain;
use store::conformance::{load, try_commit};
use store::faults::{Fault, FaultyStore};
use store::{CommitError, Journal, Store, StoreError};
use store_sqlite::SqliteStore;

struct Scene {
    store: FaultyStore<dyn Store>,
    chain: Chain,
    _folder: tempfile::TempDir,
}

async fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/ledger.db", folder.path().display());
    let mut chain = Chain::new(1);
    let real: Arc<dyn Store> = Arc::new(SqliteStore::open(&url).await.unwrap());
    try_commit(&*real, &chain.decisions(1)).await.unwrap();
    Scene {
        store: FaultyStore::new(real),
        chain,
        _folder: folder,
    }
}

impl Scene {
    /// What one commit reports, and whether it is there.
    async fn commit(&mut self, by: By) -> (Result<(), CommitError>, bool) {
        let mut next = self.chain.clone();
        let batch = next.decisions(2);
        let outcome = match by {
            By::Turn => try_commit(&self.store, &batch).await,
            By::Append => self.store.append(&batch).await,
        };
        let head = load(&**self.store.inner()).await[0].position.head();
        assert!(head == next.head() || head == self.chain.head());
        if head == next.head() {
            self.chain = next;
            return (outcome, true);
        }
        (outcome, false)
    }
}

/// How a commit is made.
#[derive(Debug, Clone, Copy)]
enum By {
    Turn,
    Append,
}

#[tokio::test]
async fn each_fault_does_what_it_is_called() {
    for by in [By::Turn, By::Append] {
        let mut scene = scene().await;
        scene.store.plan([
            Fault::Lose,
            Fault::LoseTurn,
            Fault::LoseUnknown,
            Fault::KeepButReportUnknown,
            Fault::HeadMoved,
            Fault::Pass,
        ]);
        let (outcome, kept) = scene.commit(by).await;
        assert!(matches!(&outcome, Err(CommitError::NotWritten(_))), "{outcome:?}");
        assert!(!kept && !outcome.unwrap_err().is_turn_over());
        let (outcome, kept) = scene.commit(by).await;
        assert!(!kept && outcome.unwrap_err().is_turn_over());
        let told = scene.commit(by).await;
        assert!(matches!(told, (Err(CommitError::Unknown(_)), false)), "{told:?}");
        let told = scene.commit(by).await;
        assert!(matches!(told, (Err(CommitError::Unknown(_)), true)), "{told:?}");
        let tenant = scene.chain.tenant;
        let (outcome, kept) = scene.commit(by).await;
        assert!(matches!(outcome, Err(CommitError::HeadMoved { tenant: named }) if named == tenant));
        assert!(!kept);
        assert!(matches!(scene.commit(by).await, (Ok(()), true)));
        let told = scene.commit(by).await;
        assert!(
            matches!(told, (Ok(()), true)),
            "after the plan everything passes: {told:?}"
        );
    }
}

#[tokio::test]
async fn a_delayed_commit_comes_later_and_lands() {
    let mut scene = scene().await;
    scene.store.plan([Fault::Delay(Duration::from_millis(50))]);
    let begin = Instant::now();
    assert!(matches!(scene.commit(By::Turn).await, (Ok(()), true)));
    assert!(begin.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn reads_fail_until_they_are_allowed_again() {
    let scene = scene().await;
    scene.store.fail_reads(true);
    let keys = [scene.chain.key("r-1")];
    let unavailable = |error: &StoreError| matches!(error, StoreError::Unavailable(_));
    assert!(
        scene
            .store
            .begin(&[])
            .await
            .is_err_and(|error| unavailable(&error))
    );
    scene.store.fail_reads(false);
    let mut turn = scene.store.begin(&[]).await.unwrap();
    assert!(turn.find_requests(&keys).await.unwrap().is_empty());
    scene.store.fail_reads(true);
    let error = turn.find_requests(&keys).await.unwrap_err();
    assert!(unavailable(&error), "{error:?}");
}
