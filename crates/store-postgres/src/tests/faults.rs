//! Connections that break at the worst moment. The store finds out by itself what became of a commit, and says nothing that
//! is not so.

use super::{CUT_TRIES, PATIENCE, TRIES, database, end_sessions, head, hear, open, open_at, write_three};
use crate::PostgresStore;
use crate::connections::{ABANDONED_MAX, Connections, severity};
use crate::testing::{Cut, Database, Network};
use futures_util::FutureExt;
use model::{Bucket, Timestamp};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgSeverity;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::conformance::sample::{Ask, Chain, decision_id};
use store::conformance::{STALLS_MAX, commit, stood_still, try_commit};
use store::{
    BYTES_AT_ONCE, Batch, BlockClaim, BucketKey, Buckets, Budgets, CommitError, Directories, IndexedBlock,
    Journal, Records, RequestKey, SearchIndex, Store, StoreError, Wanted,
};
use tokio::time::timeout;

/// A store behind a network that breaks when it is told to.
struct Scene {
    store: PostgresStore,
    network: Network,
    database: Database,
    chain: Chain,
    /// The shortest time that a commit took.
    quickest: Duration,
}

async fn scene() -> Scene {
    let database = database().await;
    let network = Network::before(&database.url()).await;
    let store = open_at(&network.url(&database.url())).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    Scene {
        store,
        network,
        database,
        chain,
        quickest: Duration::MAX,
    }
}

/// A scene in which so many commits that were cut like this were settled. Where the machine stands still for longer
/// than the server waits for a client, or the store for an answer, one is not, and there is another scene.
async fn settled(cut: Cut, commits: usize) -> Scene {
    'scenes: for _ in 0..CUT_TRIES {
        let mut scene = scene().await;
        for _ in 0..commits {
            let (outcome, is_there) = scene.commit(cut).await;
            if !is_settled(cut, &outcome, is_there) {
                continue 'scenes;
            }
        }
        return scene;
    }
    panic!("{cut:?}: not all commits were settled");
}

/// Whether a commit that was cut like this has become what the cut makes of it, and the store knows. What it says is so
/// in any case.
fn is_settled(cut: Cut, outcome: &Result<(), CommitError>, is_there: bool) -> bool {
    let arrives = matches!(cut, Cut::AfterCommit | Cut::LateCommit(_));
    assert!(arrives || !is_there, "{cut:?}: {outcome:?}");
    match outcome {
        Ok(()) => assert!(is_there, "{cut:?}: it is not written"),
        Err(CommitError::NotWritten(_)) => assert!(!is_there, "{cut:?}: {outcome:?}"),
        Err(CommitError::Unknown(_)) => return false,
        Err(error) => panic!("{cut:?}: {error:?}"),
    }
    is_there == arrives
}

impl Scene {
    /// Commits two decisions and an unknown tenant's first one, and returns what was said and whether they are there.
    async fn commit(&mut self, cut: Cut) -> (Result<(), CommitError>, bool) {
        self.network.plan([cut]);
        let mut next = self.chain.clone();
        let mut batch = next.decisions(2);
        let newcomer = u8::try_from(self.chain.head().seq).unwrap() + 100;
        Chain::new(newcomer).decision(&mut batch, &Ask::default());
        let begin = Instant::now();
        let outcome = try_commit(&self.store, &batch).await;
        self.quickest = self.quickest.min(begin.elapsed());
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
    let mut scene = settled(Cut::AfterCommit, 3).await;
    // It does not wait until the server has given up a client that is gone.
    assert!(scene.quickest < Duration::from_secs(2), "{:?}", scene.quickest);
    scene.goes_on().await;
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_known_not_to_be_written() {
    settled(Cut::BeforeCommit, 3).await.goes_on().await;
}

/// So it is made again, in another turn.
#[tokio::test]
async fn a_turn_whose_commit_never_arrived_is_over() {
    let scene = scene().await;
    let mut outcomes = Vec::new();
    for _ in 0..TRIES {
        // Where the machine stands still for too long, no turn is had, or nobody knows what became of it.
        let Ok(turn) = scene.store.begin(&[scene.chain.tenant]).await else {
            continue;
        };
        scene.network.plan([Cut::BeforeCommit]);
        let error = turn.commit(&scene.chain.clone().decisions(1)).await.unwrap_err();
        if error.is_turn_over() {
            let witness = open(&scene.database).await;
            assert_eq!(head(&witness, &scene.chain).await, scene.chain.head());
            return;
        }
        outcomes.push(error);
    }
    panic!("no turn was over: {outcomes:?}");
}

#[tokio::test]
async fn a_commit_that_arrives_late_is_waited_for() {
    let late = Cut::LateCommit(Duration::from_millis(800));
    settled(late, 1).await.goes_on().await;
}

#[tokio::test]
async fn a_commit_that_the_server_goes_on_waiting_for_is_none() {
    settled(Cut::Silence, 1).await.goes_on().await;
}

#[tokio::test]
async fn who_asks_what_became_of_a_commit_does_so_in_the_place_of_the_connection_that_was_lost() {
    let mut scene = scene().await;
    let all = scene.store.turns.free();
    let batch = scene.chain.decisions(2);
    scene.network.plan([Cut::Silence]);
    let commit = try_commit(&scene.store, &batch);
    tokio::pin!(commit);
    // Most of the time the connection is lost, and the server holds the lock for its client.
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut commit => break outcome,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                assert_eq!(scene.store.turns.free(), all - 1);
            }
        }
    };
    // Where the machine stands still for as long as the server may be asked, nobody knows.
    let is_lost = matches!(outcome, Err(CommitError::NotWritten(_) | CommitError::Unknown(_)));
    assert!(is_lost, "{outcome:?}");
}

#[tokio::test]
async fn the_first_batch_of_a_tenant_is_found_again_too() {
    'scenes: for _ in 0..CUT_TRIES {
        let scene = scene().await;
        for (number, cut) in [
            (50, Cut::AfterCommit),
            (51, Cut::BeforeCommit),
            (52, Cut::LateCommit(Duration::from_millis(500))),
        ] {
            let mut newcomer = Chain::new(number);
            let batch = newcomer.decisions(2);
            scene.network.plan([cut]);
            let outcome = try_commit(&scene.store, &batch).await;
            let found = scene.store.entries(newcomer.tenant, 0, 10).await.unwrap().len();
            assert!(found == 0 || found == 2, "{cut:?}: half of the batch is there");
            if !is_settled(cut, &outcome, found == 2) {
                continue 'scenes;
            }
        }
        return;
    }
    panic!("not all commits were settled");
}

/// Whether it is said in time that a commit is not known of which nobody can be asked. It may not be where the machine
/// stands still.
async fn is_not_known_in_time() -> bool {
    let mut scene = scene().await;
    let mut next = scene.chain.clone();
    let batch = next.decisions(2);
    scene.network.plan([Cut::AfterCommit]);
    let Ok(turn) = scene.store.begin(&[next.tenant]).await else {
        return false;
    };
    let begin = Instant::now();
    // From now on nobody gets through any more.
    scene.network.close(true);
    let error = turn.commit(&batch).await.unwrap_err();
    let is_in_time = begin.elapsed() < Duration::from_secs(4);
    let witness = open(&scene.database).await;
    let found = head(&witness, &scene.chain).await;
    if stood_still(&error) && found == scene.chain.head() {
        // The turn was over before it was asked to commit, and what it says is so.
        return false;
    }
    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
    assert_eq!(found, next.head(), "it was written all the same");
    scene.chain = next;
    scene.network.close(false);
    scene.goes_on().await;
    is_in_time
}

#[tokio::test]
async fn when_nobody_can_be_asked_it_is_not_known() {
    let mut late = 0;
    while !is_not_known_in_time().await {
        late += 1;
        assert!(late < 3, "it is late each time");
    }
}

/// Whether the next one has to wait when a turn is dropped so soon after it began to look for these.
async fn is_waited_for(
    stores: [&PostgresStore; 2],
    chain: &mut Chain,
    keys: &[RequestKey],
    micros: u64,
) -> bool {
    // A turn that could not be taken was waited for.
    let Ok(mut turn) = stores[0].begin(&[chain.tenant]).await else {
        return true;
    };
    let looking = turn.find_requests(keys);
    drop(timeout(Duration::from_micros(micros), looking).await);
    drop(turn);
    let begin = Instant::now();
    write_three(stores[1], chain).await;
    begin.elapsed() > Duration::from_secs(1)
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
    let mut slow = 0;
    for micros in (0..3_000).step_by(150) {
        // A lock that is left is held until the server gives the turn up, and is left again. A machine stands still now and then.
        while is_waited_for([&store, &another], &mut chain, &keys, micros).await {
            slow += 1;
            assert!(slow <= STALLS_MAX, "{slow} waited, at last after {micros} µs");
        }
    }
    write_three(&store, &mut chain).await;
}

#[tokio::test]
async fn a_begin_that_is_dropped_while_it_waits_leaves_no_lock() {
    let database = database().await;
    let (store, another) = (open(&database).await, open(&database).await);
    let mut chain = Chain::new(1);
    let tenants = [chain.tenant];
    let (mut quick, mut spoilt) = (0, 0);
    while quick < 3 {
        assert!(spoilt <= STALLS_MAX, "whoever came next had to wait");
        // It has a connection from now on, and waits for nothing else than the turn.
        write_three(&another, &mut chain).await;
        let Ok(turn) = store.begin(&tenants).await else {
            spoilt += 1;
            continue;
        };
        let waiting = timeout(Duration::from_millis(50), another.begin(&tenants)).await;
        let mut next = chain.clone();
        match turn.commit(&next.decisions(1)).await {
            Ok(()) => assert!(waiting.is_err(), "it did not wait"),
            // For longer than a turn may last.
            Err(error) if stood_still(&error) => {
                spoilt += 1;
                continue;
            }
            Err(error) => panic!("{error:?}"),
        }
        chain = next;
        let begin = Instant::now();
        write_three(&store, &mut chain).await;
        let is_quick = begin.elapsed() < Duration::from_secs(1);
        quick += usize::from(is_quick);
        spoilt += usize::from(!is_quick);
    }
}

/// The process that serves what is lent next, once so many can be lent.
async fn process(connections: &Arc<Connections>, free: usize) -> i32 {
    let given_back = async {
        while connections.free() < free {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, given_back)
        .await
        .expect("a permit was not given back");
    let mut lent = connections.lend().await.unwrap();
    let asked = sqlx::query_scalar("SELECT pg_backend_pid()");
    let process = asked.fetch_one(lent.start().unwrap()).await;
    lent.settle_clean(process).unwrap()
}

#[tokio::test]
async fn who_is_dropped_in_the_middle_of_a_statement_takes_no_connection_along() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    write_three(&store, &mut chain).await;
    let tenants = [chain.tenant];
    let free = [&store.turns, &store.readers].map(|connections| connections.free());
    let serving = async || {
        [
            process(&store.turns, free[0]).await,
            process(&store.readers, free[1]).await,
        ]
    };
    let (mut before, mut closed) = (serving().await, 0);
    for round in 0..50 {
        // Each has sent something by then, and its answer is not here yet.
        drop(store.entries(chain.tenant, 0, 10).now_or_never());
        if round % 2 == 0 {
            drop(store.begin(&tenants).now_or_never());
        } else if let Ok(mut turn) = store.begin(&tenants).await {
            drop(turn.find_requests(&[chain.key("call-1")]).now_or_never());
        }
        let after = serving().await;
        // Where the machine stands still for longer than an answer is waited for.
        closed += usize::from(after != before);
        assert!(
            closed <= STALLS_MAX,
            "{closed} were closed, the last in round {round}"
        );
        before = after;
    }
    assert_eq!([store.turns.free(), store.readers.free()], free);
    // And nothing is left open.
    write_three(&open(&database).await, &mut chain).await;
}

#[tokio::test]
async fn a_connection_on_which_very_many_statements_were_dropped_is_made_anew() {
    let database = database().await;
    let store = open(&database).await;
    let chain = Chain::new(1);
    let free = store.readers.free();
    let (mut before, mut abandoned) = (process(&store.readers, free).await, 0);
    for _ in 0..64 * ABANDONED_MAX {
        // On a machine with much to do the answer may be here at once, and then nothing is dropped.
        abandoned += u32::from(store.entries(chain.tenant, 0, 10).now_or_never().is_none());
        let after = process(&store.readers, free).await;
        if after == before {
            continue;
        }
        if abandoned > ABANDONED_MAX {
            return;
        }
        // The machine stood still for longer than an answer is waited for.
        (before, abandoned) = (after, 0);
    }
    panic!("after so many it was never made anew");
}

/// Nobody reads the rest of what was asked for, however much that is.
#[tokio::test]
async fn a_connection_on_which_a_read_ended_by_its_bytes_is_not_lent_again() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    for _ in 0..4 {
        let ask = Ask {
            text: "x".repeat(BYTES_AT_ONCE / 3),
            ..Ask::default()
        };
        let mut batch = Batch::default();
        chain.decision(&mut batch, &ask);
        store::conformance::commit(&store, &batch).await;
    }
    let free = store.readers.free();
    let before = process(&store.readers, free).await;
    let entries = store.entries(chain.tenant, 0, 10).await.unwrap();
    assert_eq!(entries.len(), 3);
    assert_ne!(process(&store.readers, free).await, before, "it was lent again");
}

/// Whatever else a statement fails with may pass.
#[tokio::test]
async fn what_the_server_has_found_damaged_is_damage_and_no_server_that_does_not_answer() {
    let database = database().await;
    let store = open(&database).await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(3);
    let decision = decision_id(chain.tenant, 1);
    chain.outcome(&mut batch, decision);
    commit(&store, &batch).await;
    let mut stranger = database.stranger().await;
    let put_before = sqlx::raw_sql(
        "CREATE FUNCTION failing() RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
         ALTER TABLE audit_events RENAME TO sound;
         CREATE VIEW audit_events AS
             SELECT tenant_id, seq, failing() AS kind, at, prev, hash, body, nodes, erased_body, erased_by
             FROM sound;
         ALTER TABLE outcomes RENAME TO sound_outcomes;
         CREATE VIEW outcomes AS
             SELECT tenant_id, decision, seq, failing() AS failed FROM sound_outcomes",
    );
    put_before.execute(&mut stranger).await.unwrap();
    for (code, is_damage) in [
        ("data_corrupted", true),
        ("index_corrupted", true),
        ("lock_not_available", false),
    ] {
        let failing = format!(
            "CREATE OR REPLACE FUNCTION failing() RETURNS text LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'invalid page' USING ERRCODE = '{code}'; END $$"
        );
        let failing = sqlx::raw_sql(AssertSqlSafe(failing));
        failing.execute(&mut stranger).await.unwrap();
        let error = store.entries(chain.tenant, 1, 9).await.map(drop).unwrap_err();
        let is_said = matches!(error, StoreError::Corrupt { .. });
        assert_eq!(is_said, is_damage, "{code}: {error:?}");
        // Of whom a turn cannot read something, nobody knows.
        let mut turn = store.begin(&[chain.tenant]).await.unwrap();
        let asked = [(chain.tenant, decision)];
        let error = turn.find_outcomes(&asked).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{code}: {error:?}");
    }
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
        end_sessions(&mut stranger).await;
    }
    write_three(&store, &mut chain).await;
    assert_eq!(head(&store, &chain).await, chain.head());
}

#[tokio::test]
async fn what_may_be_done_twice_is_done_where_the_server_has_closed_the_connection() {
    let database = database().await;
    let store = open(&database).await;
    let mut stranger = database.stranger().await;
    let tenant = Chain::new(1).tenant;
    let key = BucketKey {
        tenant,
        owner: "agent:1".to_owned(),
    };
    let [small, large] = [5, 10].map(|capacity| Bucket::new(capacity, 0.0).unwrap());
    let wanted = |most| Wanted { least: 1, most };
    assert_eq!(store.lease(&key, large, wanted(4)).await.unwrap().granted, 4);
    end_sessions(&mut stranger).await;
    store.resize(&[(key.clone(), small)]).await.unwrap();
    // Of the six that were left it has kept what fits.
    assert_eq!(store.lease(&key, large, wanted(10)).await.unwrap().granted, 5);

    let now = Timestamp::from_millis(0);
    let claim = BlockClaim {
        token: 1,
        now,
        until: Timestamp::from_millis(20),
        by_force: false,
    };
    end_sessions(&mut stranger).await;
    assert!(store.claim_block(tenant, 0, &claim).await.unwrap());
    let block = IndexedBlock {
        block: 0,
        end: Chain::new(1).head().hash,
        token: 1,
        made_at: None,
    };
    end_sessions(&mut stranger).await;
    assert!(store.put_block(tenant, &block, &[]).await.unwrap());
    end_sessions(&mut stranger).await;
    store.release_block(tenant, 0, 1).await.unwrap();

    for _ in 0..2 {
        assert_eq!(store.forget_replies(now).await.unwrap(), 0);
        end_sessions(&mut stranger).await;
    }
}

#[tokio::test]
async fn a_connection_that_falls_silent_keeps_nobody_from_looking_for_changes() {
    let scene = scene().await;
    let look = async || {
        loop {
            // A connection may not be made in time either.
            match scene.store.revisions().await {
                Ok(revisions) => break revisions,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let seen = look().await;
    scene.network.fall_silent();
    let again = timeout(PATIENCE, look()).await;
    assert_eq!(again.expect("nobody looked on another connection"), seen);
}

#[tokio::test]
async fn where_all_connections_have_fallen_silent_one_read_waits_and_the_next_does_not() {
    let scene = scene().await;
    let readers = &scene.store.readers;
    let kept = [readers.lend().await.unwrap(), readers.lend().await.unwrap()];
    drop(kept);
    scene.network.fall_silent();
    for _ in 0..2 {
        // What is made anew may come too late for the first one.
        drop(scene.store.entries(scene.chain.tenant, 0, 10).await);
    }
    assert_eq!(scene.network.unheard(), 1);
}

#[tokio::test]
async fn a_statement_that_was_refused_has_no_other_connection_forgotten() {
    let database = database().await;
    let store = open(&database).await;
    let mut refused = store.turns.lend().await.unwrap();
    let before = process(&store.turns, store.turns.free()).await;
    // As a COMMIT is that fails with a constraint which is looked at last.
    let statement = sqlx::raw_sql("SELECT 1 / 0");
    let answer = statement.execute(refused.start().unwrap()).await;
    let error = refused.settle_clean(answer).unwrap_err();
    assert_eq!(severity(&error), Some(PgSeverity::Error));
    refused.roll_back().await;
    assert_eq!(process(&store.turns, store.turns.free()).await, before);
}

/// How many connections are waited for in vain until a batch is written, where all that are kept have fallen silent
/// before an append, or in a turn. None where the machine stands still for too long.
async fn waited_for_in_vain(is_appended: bool) -> Option<usize> {
    let mut scene = scene().await;
    scene.store.turns = scene.store.turns.with_time_max(Duration::from_secs(1));
    let turns = &scene.store.turns;
    let kept = [turns.lend().await.ok()?, turns.lend().await.ok()?];
    drop(kept);
    // So that it is known which session the one is that is lent next.
    scene.store.append(&scene.chain.decisions(1)).await.ok()?;
    let outcome = if is_appended {
        scene.network.fall_silent();
        scene.store.append(&scene.chain.decisions(1)).await
    } else {
        let turn = scene.store.begin(&[scene.chain.tenant]).await.ok()?;
        scene.network.fall_silent();
        let error = turn.commit(&scene.chain.decisions(1)).await.unwrap_err();
        assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
        // Of another tenant, because the server has not heard yet that the turn is over.
        try_commit(&scene.store, &Chain::new(2).decisions(1)).await
    };
    outcome.ok()?;
    let unheard = scene.network.unheard();
    (unheard > 0).then_some(unheard)
}

#[tokio::test]
async fn where_all_connections_have_fallen_silent_one_is_waited_for_and_no_other() {
    for is_appended in [true, false] {
        let mut tries = 1;
        let unheard = loop {
            if let Some(unheard) = waited_for_in_vain(is_appended).await {
                break unheard;
            }
            assert!(tries < TRIES, "no batch was written");
            tries += 1;
        };
        assert_eq!(unheard, 1, "appended: {is_appended}");
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_keeps_no_store_from_closing() {
    let scene = scene().await;
    // Now one connection listens, and takes leave of what it has listened to.
    hear(&scene.store).await;
    scene.network.fall_silent();
    let closed = timeout(PATIENCE, scene.store.close()).await;
    closed.expect("the server was waited for");
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
