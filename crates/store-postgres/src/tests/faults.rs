//! Connections that break at the worst moment. The store finds out by itself what became of a commit, and says nothing that
//! is not so.

use super::{database, head, open, write_three};
use crate::PostgresStore;
use crate::testing::{Cut, Database, Network};
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain};
use store::conformance::try_commit;
use store::{Batch, CommitError, Journal, Records};
use tokio::time::timeout;

/// A store behind a network that breaks when it is told to.
struct Scene {
    store: PostgresStore,
    network: Network,
    database: Database,
    chain: Chain,
}

async fn scene() -> Scene {
    let database = database().await;
    let network = Network::before(&database.url()).await;
    let store = PostgresStore::open(&network.url(&database.url())).await.unwrap();
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    Scene {
        store,
        network,
        database,
        chain,
    }
}

impl Scene {
    /// Commits two decisions and an unknown tenant's first one, and returns what was said and whether they are there.
    async fn commit(&mut self, cut: Cut) -> (Result<(), CommitError>, bool) {
        self.network.plan([cut]);
        let mut next = self.chain.clone();
        let mut batch = next.decisions(2);
        let newcomer = u8::try_from(self.chain.head().seq).unwrap() + 100;
        Chain::new(newcomer).decision(&mut batch, &Ask::default());
        let outcome = try_commit(&self.store, &batch).await;
        // Asked by somebody else, and not right away: what was said has to stay true.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let witness = open(&self.database).await;
        let found = head(&witness, &self.chain).await;
        let newcomers = witness
            .entries(Chain::new(newcomer).tenant, 0, 10)
            .await
            .unwrap()
            .len();
        assert_eq!(newcomers == 1, found == next.head(), "half of the batch is there");
        assert!(found == next.head() || found == self.chain.head());
        if found == next.head() {
            self.chain = next;
            return (outcome, true);
        }
        (outcome, false)
    }

    async fn goes_on(&mut self) {
        write_three(&self.store, &mut self.chain).await;
        assert_eq!(head(&self.store, &self.chain).await, self.chain.head());
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_found_again() {
    let mut scene = scene().await;
    for _ in 0..3 {
        let begin = Instant::now();
        let (outcome, is_there) = scene.commit(Cut::AfterCommit).await;
        assert!(is_there);
        outcome.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    }
    scene.goes_on().await;
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_known_not_to_be_written() {
    let mut scene = scene().await;
    for _ in 0..3 {
        let (outcome, is_there) = scene.commit(Cut::BeforeCommit).await;
        assert!(!is_there);
        assert!(matches!(outcome, Err(CommitError::NotWritten(_))), "{outcome:?}");
    }
    scene.goes_on().await;
}

#[tokio::test]
async fn a_commit_that_arrives_late_is_waited_for() {
    let mut scene = scene().await;
    let (outcome, is_there) = scene.commit(Cut::LateCommit(Duration::from_millis(800))).await;
    assert!(is_there);
    outcome.unwrap();
    scene.goes_on().await;
}

#[tokio::test]
async fn a_commit_that_the_server_goes_on_waiting_for_is_none() {
    let mut scene = scene().await;
    let (outcome, is_there) = scene.commit(Cut::Silence).await;
    assert!(!is_there);
    assert!(matches!(outcome, Err(CommitError::NotWritten(_))), "{outcome:?}");
    scene.goes_on().await;
}

/// How many turns can be taken at this moment.
async fn free_turns(store: &PostgresStore) -> usize {
    let mut lent = Vec::new();
    while let Ok(Ok(another)) = timeout(Duration::from_millis(500), store.turns.lend()).await {
        lent.push(another);
    }
    lent.len()
}

#[tokio::test]
async fn who_asks_what_became_of_a_commit_does_so_in_the_place_of_the_connection_that_was_lost() {
    let mut scene = scene().await;
    let all = free_turns(&scene.store).await;
    let batch = scene.chain.decisions(2);
    scene.network.plan([Cut::Silence]);
    let beside = async {
        // By then the connection is lost, and the server holds the lock for its client for longer than counting takes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        free_turns(&scene.store).await
    };
    let (outcome, beside) = tokio::join!(try_commit(&scene.store, &batch), beside);
    assert!(matches!(outcome, Err(CommitError::NotWritten(_))), "{outcome:?}");
    assert_eq!(beside, all - 1);
}

#[tokio::test]
async fn the_first_batch_of_a_tenant_is_found_again_too() {
    let scene = scene().await;
    for (number, cut, is_there) in [
        (50, Cut::AfterCommit, true),
        (51, Cut::BeforeCommit, false),
        (52, Cut::LateCommit(Duration::from_millis(500)), true),
    ] {
        let mut newcomer = Chain::new(number);
        let batch = newcomer.decisions(2);
        scene.network.plan([cut]);
        let outcome = try_commit(&scene.store, &batch).await;
        assert_eq!(outcome.is_ok(), is_there, "{cut:?}: {outcome:?}");
        let found = scene.store.entries(newcomer.tenant, 0, 10).await.unwrap().len();
        assert_eq!(found, if is_there { 2 } else { 0 }, "{cut:?}");
    }
}

#[tokio::test]
async fn when_nobody_can_be_asked_it_is_not_known() {
    let mut scene = scene().await;
    let mut next = scene.chain.clone();
    let batch = next.decisions(2);
    scene.network.plan([Cut::AfterCommit]);
    let turn = scene.store.begin(&[next.tenant]).await.unwrap();
    let begin = Instant::now();
    // From now on nobody gets through any more.
    scene.network.close(true);
    let error = turn.commit(&batch).await.unwrap_err();
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    let witness = open(&scene.database).await;
    assert_eq!(
        head(&witness, &scene.chain).await,
        next.head(),
        "it was written all the same"
    );
    scene.chain = next;
    scene.network.close(false);
    scene.goes_on().await;
}

#[tokio::test]
async fn a_turn_that_is_dropped_in_the_middle_of_a_statement_leaves_no_lock() {
    let database = database().await;
    let (store, another) = (open(&database).await, open(&database).await);
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let keys: Vec<_> = (0..2_000)
        .map(|number| chain.key(&format!("call-{number}")))
        .collect();
    for micros in (0..3_000).step_by(150) {
        let mut turn = store.begin(&[chain.tenant]).await.unwrap();
        let looking = turn.find_requests(&keys);
        drop(timeout(Duration::from_micros(micros), looking).await);
        drop(turn);
        let begin = Instant::now();
        write_three(&another, &mut chain).await;
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    }
    write_three(&store, &mut chain).await;
}

#[tokio::test]
async fn a_begin_that_is_dropped_while_it_waits_leaves_no_lock() {
    let database = database().await;
    let (store, another) = (open(&database).await, open(&database).await);
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let turn = store.begin(&[chain.tenant]).await.unwrap();
    for _ in 0..3 {
        let tenants = [chain.tenant];
        let waiting = another.begin(&tenants);
        assert!(timeout(Duration::from_millis(100), waiting).await.is_err());
    }
    turn.commit(&chain.decisions(1)).await.unwrap();
    let begin = Instant::now();
    write_three(&store, &mut chain).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_is_replaced_without_an_error() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    let mut stranger = database.stranger().await;
    for _ in 0..3 {
        write_three(&store, &mut chain).await;
        store.head(chain.tenant).await.unwrap();
        sqlx::query(
            "SELECT pg_terminate_backend(pid)
             FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .execute(&mut stranger)
        .await
        .unwrap();
    }
    write_three(&store, &mut chain).await;
    assert_eq!(head(&store, &chain).await, chain.head());
}

#[tokio::test]
async fn a_batch_for_a_tenant_whose_turn_was_not_taken_is_not_written() {
    let database = database().await;
    let store = open(&database).await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = Batch::default();
    one.decision(&mut batch, &Ask::default());
    two.decision(&mut batch, &Ask::default());
    let turn = store.begin(&[one.tenant]).await.unwrap();
    let error = turn.commit(&batch).await.unwrap_err();
    assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    assert!(store.entries(one.tenant, 0, 10).await.unwrap().is_empty());
}
