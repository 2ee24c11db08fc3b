//! The index of requests: whatever is in memory, in runs, half merged or of an earlier version, a request is answered once.

use super::Folder;
use crate::errands::Errander;
use crate::requests::upkeep::{Rounds, UpkeepError};
use crate::requests::{FAN_OUT, RequestDigest, convert_in_parts};
use crate::{Bounds, SqliteStore};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use store::conformance::sample::{Ask, Chain, agent_id, name};
use store::conformance::{commit, find_requests, refused};
use store::{Batch, CommitError, ErasureRow, Journal, Records, Store};

/// Requests that become a run in these tests.
const RECENT_MAX: usize = 20;

/// A store whose runs are short, with filters in files where they were merged, and whose index is kept up only when a
/// test says so.
struct Small {
    folder: Folder,
    store: SqliteStore,
    chain: Chain,
}

impl Small {
    async fn new() -> Self {
        let folder = Folder::new();
        let store = open(&folder).await;
        Self {
            folder,
            store,
            chain: Chain::new(1),
        }
    }

    /// This store and its chain after the process has ended without a word.
    async fn reopened(self) -> Self {
        drop(self.store);
        Self {
            store: open(&self.folder).await,
            ..self
        }
    }

    async fn ask(&mut self, numbers: std::ops::Range<usize>) {
        let mut batch = Batch::default();
        for number in numbers {
            self.chain.decision(&mut batch, &Ask::named(&id(number)));
        }
        commit(&self.store, &batch).await;
    }

    async fn rounds(&self) -> Rounds {
        let errands = self.store.writer.lock().await.errands();
        Rounds {
            errander: Errander {
                writer: Arc::clone(&self.store.writer),
                errands,
            },
            readers: self.store.readers.clone(),
            stopping: Arc::new(AtomicBool::new(false)),
            committed: Arc::clone(&self.store.committed),
        }
    }

    async fn round(&self) {
        self.rounds().await.round().await.unwrap();
    }

    /// Whoever moves the log next is not held up by the checkpointer, which waits for the disk for as long as that takes.
    async fn stop_checkpoints(&self) {
        self.store.checkpointer.lock().await.stop().await;
    }

    /// Asks in batches of [`RECENT_MAX`], each of which becomes a run.
    async fn ask_in_runs(&mut self, count: usize) {
        self.ask_in_these_runs(0..count).await;
    }

    async fn ask_in_these_runs(&mut self, runs: std::ops::Range<usize>) {
        for run in runs {
            self.ask(run * RECENT_MAX..(run + 1) * RECENT_MAX).await;
            self.round().await;
        }
    }

    /// Which of these requests are found, each with its own answer.
    async fn found(&self, numbers: std::ops::Range<usize>) -> Vec<usize> {
        let ids: BTreeMap<_, _> = numbers.map(|number| (id(number), number)).collect();
        let keys: Vec<_> = ids.keys().map(|id| self.chain.key(id)).collect();
        let found = find_requests(&self.store, &keys).await.into_iter();
        let mut found: Vec<_> = found
            .map(|found| {
                let id = found.key.request_id.as_str();
                assert_eq!(found.ask, Ask::named(id).digest());
                ids[id]
            })
            .collect();
        found.sort_unstable();
        found
    }

    async fn is_refused(&self, number: usize) -> bool {
        let mut batch = Batch::default();
        let mut chain = self.chain.clone();
        chain.decision(&mut batch, &Ask::named(&id(number)));
        matches!(refused(&self.store, &batch).await, CommitError::AlreadyRecorded)
    }

    async fn erase(&mut self, seq: u64, request: usize) {
        let mut batch = Batch::default();
        let body = canon::of(&serde_json::json!({})).unwrap();
        let at = model::Timestamp::from_millis(9);
        self.chain.entry(&mut batch, "bodies_erased", at, body);
        let entry = self
            .store
            .entries(self.chain.tenant, seq, 1)
            .await
            .unwrap()
            .remove(0);
        batch.erasures.push(ErasureRow {
            tenant: self.chain.tenant,
            seq,
            body: canon::Digest::of(entry.body.as_bytes()),
            by: self.chain.head().seq,
            request: Some((agent_id(1), name(&id(request)))),
            outcome: None,
            approval: None,
            reservation: None,
        });
        commit(&self.store, &batch).await;
    }

    fn digest(&self, request: usize) -> RequestDigest {
        let key = self.chain.key(&id(request));
        RequestDigest::of(
            key.tenant.as_bytes(),
            key.agent.as_bytes(),
            key.request_id.as_str(),
        )
    }

    /// Whether any page still has the key of a request.
    async fn is_in_pages(&self, request: usize) -> bool {
        let digest = self.digest(request);
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM request_pages WHERE instr(bytes, ?1) > 0")
            .bind(digest.as_bytes()[..8].to_vec())
            .fetch_one(&self.store.readers)
            .await
            .unwrap();
        count > 0
    }

    /// As somebody does who has the file open in another program.
    async fn change_by_hand(&self, statements: &[&'static str]) {
        let mut stranger = self.folder.stranger().await;
        for statement in statements {
            sqlx::query(*statement).execute(&mut stranger).await.unwrap();
        }
    }

    async fn number(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(&self.store.readers)
            .await
            .unwrap()
    }
}

async fn open(folder: &Folder) -> SqliteStore {
    let bounds = Bounds {
        recent_requests_max: RECENT_MAX,
        files_from_level: 1,
        ..Bounds::default()
    };
    let store = SqliteStore::open_bounded(&folder.url(), bounds).await.unwrap();
    store.upkeep.lock().await.stop().await;
    store
}

fn all(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    numbers.collect()
}

fn id(number: usize) -> String {
    format!("call-{number}")
}

#[tokio::test]
async fn a_request_is_found_and_refused_again_wherever_it_stands() {
    const RUNS: usize = FAN_OUT + 2;
    const ASKED: usize = RUNS * RECENT_MAX + 7;
    let mut small = Small::new().await;
    small.ask_in_runs(RUNS).await;
    small.ask(RUNS * RECENT_MAX..ASKED).await;
    let levels =
        "SELECT group_concat(level || ':' || is_whole, ' ') FROM (SELECT * FROM request_runs ORDER BY level)";
    let found: String = sqlx::query_scalar(levels)
        .fetch_one(&small.store.readers)
        .await
        .unwrap();
    assert_eq!(found, "0:1 0:1 1:1");
    for _ in 0..2 {
        assert_eq!(small.found(0..ASKED + 100).await, all(0..ASKED));
        for number in [0, RECENT_MAX, FAN_OUT * RECENT_MAX, RUNS * RECENT_MAX, ASKED - 1] {
            assert!(small.is_refused(number).await, "{number}");
        }
        small = small.reopened().await;
    }
    small.ask(ASKED..ASKED + 1).await;
}

#[tokio::test]
async fn a_merge_leaves_nothing_of_the_runs_that_it_replaces() {
    let mut small = Small::new().await;
    small.ask_in_runs(FAN_OUT * FAN_OUT).await;
    let slots = "SELECT sum(length(bytes)) / 16 FROM request_pages";
    let expected = i64::try_from(FAN_OUT * FAN_OUT * RECENT_MAX).unwrap();
    assert_eq!(small.number(slots).await, expected);
    assert_eq!(small.number("SELECT count(*) FROM request_runs").await, 1);
    assert_eq!(small.number("SELECT level FROM request_runs").await, 2);
    assert_eq!(small.number("SELECT sorted_seq = head_seq FROM tenants").await, 1);
}

#[tokio::test]
async fn two_requests_with_one_id_in_a_batch_are_refused() {
    let small = Small::new().await;
    let mut batch = Batch::default();
    let mut chain = small.chain.clone();
    for _ in 0..2 {
        chain.decision(&mut batch, &Ask::named("call-1"));
    }
    let error = refused(&small.store, &batch).await;
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error:?}");
    assert!(small.found(0..9).await.is_empty());
}

#[tokio::test]
async fn what_a_refused_batch_asked_for_is_not_taken_for_answered() {
    let mut small = Small::new().await;
    small.ask(0..1).await;
    let mut batch = Batch::default();
    let mut chain = small.chain.clone();
    for number in [1, 0, 2] {
        chain.decision(&mut batch, &Ask::named(&id(number)));
    }
    refused(&small.store, &batch).await;
    assert_eq!(small.found(0..9).await, [0]);
    small.ask(1..3).await;
    assert_eq!(small.found(0..9).await, [0, 1, 2]);
}

#[tokio::test]
async fn another_request_with_the_same_key_is_another_request() {
    let mut small = Small::new().await;
    small.ask(0..3).await;
    // As if two of them had the same first half of their digests: the row of the decision tells them apart.
    small.change_by_hand(&[
        "DROP TRIGGER decisions_are_not_rewritten",
        "UPDATE decisions SET request = CAST(substr(request, 1, 8) || zeroblob(8) AS BLOB) WHERE entry & 1099511627775 = 2",
    ])
    .await;
    assert_eq!(small.found(0..3).await, [0, 2]);
    small.ask(1..2).await;
    assert_eq!(small.found(0..3).await, [0, 1, 2]);
}

#[tokio::test]
async fn what_is_erased_is_gone_from_memory_and_from_runs() {
    let mut small = Small::new().await;
    small.ask_in_runs(2).await;
    small.ask(40..41).await;
    assert!(small.is_in_pages(3).await);
    small.erase(4, 3).await;
    small.erase(41, 40).await;
    small.round().await;
    for _ in 0..2 {
        assert!(!small.is_in_pages(3).await);
        assert_eq!(
            small.found(0..50).await,
            all((0..40).filter(|number| *number != 3))
        );
        small = small.reopened().await;
    }
    // The ids can come again, and again are refused.
    small.ask(3..4).await;
    small.ask(40..41).await;
    assert!(small.is_refused(3).await && small.is_refused(40).await);
}

#[tokio::test]
async fn what_is_erased_is_not_in_the_file_any_more() {
    let mut small = Small::new().await;
    let mut batch = Batch::default();
    let secret = Ask {
        text: "the patient of room 42".to_owned(),
        ..Ask::named("call-0")
    };
    small.chain.decision(&mut batch, &secret);
    commit(&small.store, &batch).await;
    small.ask(1..RECENT_MAX).await;
    small.round().await;
    small.erase(1, 0).await;
    small.store.close().await;
    let file = std::fs::read(small.folder.path()).unwrap();
    let key = small.digest(0);
    for gone in [secret.text.as_bytes(), &key.as_bytes()[..8]] {
        assert!(!file.windows(gone.len()).any(|bytes| bytes == gone));
    }
    let left = small.digest(1);
    assert!(file.windows(16).any(|bytes| bytes == left.as_bytes()));
}

#[tokio::test]
async fn what_is_erased_while_runs_are_merged_is_not_in_the_new_one() {
    let mut small = Small::new().await;
    for run in 0..FAN_OUT {
        small.ask(run * RECENT_MAX..(run + 1) * RECENT_MAX).await;
        small.rounds().await.sort_recent().await.unwrap();
    }
    let inputs = small.store.writer.lock().await.requests().mergeable().unwrap();
    let rounds = small.rounds().await;
    let merging = rounds.begin(inputs).await.unwrap();
    small.erase(6, 5).await;
    rounds.end(merging).await.unwrap();
    assert_eq!(small.number("SELECT count(*) FROM request_runs").await, 1);
    assert!(!small.is_in_pages(5).await);
    assert!(small.is_in_pages(6).await);
}

#[tokio::test]
async fn a_merge_is_given_up_when_the_index_was_read_anew_meanwhile_and_done_again() {
    let mut small = Small::new().await;
    for run in 0..FAN_OUT {
        small.ask(run * RECENT_MAX..(run + 1) * RECENT_MAX).await;
        small.rounds().await.sort_recent().await.unwrap();
    }
    let inputs = small.store.writer.lock().await.requests().mergeable().unwrap();
    let rounds = small.rounds().await;
    let merging = rounds.begin(inputs).await.unwrap();
    small.store.writer.lock().await.lose_connections();
    small.ask(1_000..1_001).await;
    let error = rounds.end(merging).await.unwrap_err();
    assert!(matches!(error, UpkeepError::Reread), "{error}");
    small.round().await;
    assert_eq!(small.number("SELECT count(*) FROM request_runs").await, 1);
    assert_eq!(small.found(0..1_001).await.len(), FAN_OUT * RECENT_MAX + 1);
}

#[tokio::test]
async fn a_run_that_was_not_finished_does_not_count_and_is_removed() {
    let mut small = Small::new().await;
    small.ask_in_runs(1).await;
    small
        .change_by_hand(&[
            "INSERT INTO request_runs VALUES (9, 1, 0)",
            "INSERT INTO request_pages SELECT (9 << 32) + page % 1000, bytes FROM request_pages",
        ])
        .await;
    small = small.reopened().await;
    assert_eq!(small.found(0..50).await, all(0..RECENT_MAX));
    small.round().await;
    assert_eq!(small.number("SELECT count(*) FROM request_runs").await, 1);
    assert_eq!(small.number("SELECT count(*) FROM request_pages").await, 1);
    small.ask_in_these_runs(1..2).await;
    assert_eq!(small.number("SELECT max(run) FROM request_runs").await, 10);
}

#[tokio::test]
async fn the_index_can_be_made_again_from_the_decisions() {
    let mut small = Small::new().await;
    small.ask_in_runs(3).await;
    small
        .change_by_hand(&[
            "DELETE FROM request_pages",
            "DELETE FROM request_runs",
            "UPDATE tenants SET sorted_seq = 0",
        ])
        .await;
    small = small.reopened().await;
    assert_eq!(small.found(0..100).await, all(0..60));
    small.round().await;
    assert_eq!(small.found(0..100).await, all(0..60));
}

/// Fifty requests, as a version wrote them that had a table of them.
async fn of_an_earlier_version() -> Small {
    let mut small = Small::new().await;
    small.ask(0..50).await;
    let mut stranger = small.folder.stranger().await;
    let guard: String =
        sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE name = 'decisions_are_not_rewritten'")
            .fetch_one(&mut stranger)
            .await
            .unwrap();
    for number in 0..50 {
        sqlx::query("INSERT INTO requests VALUES (1, ?1, ?2, (1 << 40) + ?3)")
            .bind(agent_id(1).as_bytes().to_vec())
            .bind(id(number))
            .bind(i64::try_from(number).unwrap() + 1)
            .execute(&mut stranger)
            .await
            .unwrap();
    }
    for statement in [
        "DROP TRIGGER decisions_are_not_rewritten".to_owned(),
        "UPDATE decisions SET request = NULL".to_owned(),
        guard,
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
            .execute(&mut stranger)
            .await
            .unwrap();
    }
    small
}

#[tokio::test]
async fn requests_of_an_earlier_version_are_found_and_refused() {
    let mut small = of_an_earlier_version().await;
    let mut stranger = small.folder.stranger().await;
    small = small.reopened().await;
    assert_eq!(small.number("SELECT count(*) FROM requests").await, 0);
    assert_eq!(small.found(0..60).await, all(0..50));
    assert!(small.is_refused(7).await);
    small.ask(50..51).await;
    let error = sqlx::query("UPDATE decisions SET request = NULL")
        .execute(&mut stranger)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not rewritten"), "{error}");
}

#[tokio::test]
async fn the_last_part_that_is_converted_says_that_all_is_in_runs() {
    for rows in [10, 49, 50, 51] {
        let small = of_an_earlier_version().await;
        let mut stranger = small.folder.stranger().await;
        small.stop_checkpoints().await;
        convert_in_parts(&mut stranger, rows).await.unwrap();
        let runs = i64::try_from(50_usize.div_ceil(rows)).unwrap();
        assert_eq!(
            small.number("SELECT count(*) FROM request_runs").await,
            runs,
            "{rows}"
        );
        assert_eq!(
            small.number("SELECT sorted_seq = head_seq FROM tenants").await,
            1,
            "{rows}"
        );
        assert_eq!(small.number("SELECT count(*) FROM requests").await, 0, "{rows}");
        assert_eq!(small.reopened().await.found(0..60).await, all(0..50), "{rows}");
    }
}

#[tokio::test]
async fn what_went_wrong_is_said_where_the_transaction_is_over_already() {
    let small = of_an_earlier_version().await;
    let mut stranger = small.folder.stranger().await;
    small.stop_checkpoints().await;
    // As SQLite does by itself on a full disk.
    let trigger = "CREATE TRIGGER no_room BEFORE INSERT ON request_pages
                   BEGIN SELECT RAISE(ROLLBACK, 'there is no room'); END";
    sqlx::raw_sql(trigger).execute(&mut stranger).await.unwrap();
    let error = convert_in_parts(&mut stranger, 50).await.unwrap_err();
    assert!(error.to_string().contains("there is no room"), "{error}");
    sqlx::raw_sql("DROP TRIGGER no_room")
        .execute(&mut stranger)
        .await
        .unwrap();
    convert_in_parts(&mut stranger, 50).await.unwrap();
    assert_eq!(small.reopened().await.found(0..60).await, all(0..50));
}

#[tokio::test]
async fn what_a_start_left_in_the_log_is_moved_before_more_is_written() {
    let small = of_an_earlier_version().await;
    let mut stranger = small.folder.stranger().await;
    small.stop_checkpoints().await;
    for statement in [
        "PRAGMA wal_autocheckpoint = 0",
        "CREATE TABLE left_behind (bytes)",
        "INSERT INTO left_behind VALUES (zeroblob(8000000))",
    ] {
        sqlx::query(statement).execute(&mut stranger).await.unwrap();
    }
    assert!(small.folder.log_bytes() > 8_000_000);
    convert_in_parts(&mut stranger, 50).await.unwrap();
    assert!(
        small.folder.log_bytes() < 1_000_000,
        "{}",
        small.folder.log_bytes()
    );
}

#[tokio::test]
async fn a_page_that_was_torn_is_named_and_nothing_is_opened() {
    let mut small = Small::new().await;
    small.ask_in_runs(1).await;
    let mut stranger = small.folder.stranger().await;
    let tear = sqlx::query("UPDATE request_pages SET bytes = x'00'");
    tear.execute(&mut stranger).await.unwrap();
    drop(small.store);
    let error = small.folder.refused().await;
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("`request_pages` is 1 bytes"), "{source}");
}

/// Commits and the upkeep at the same time, as in a gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_answered_once_while_runs_are_made_behind_the_commits() {
    const BATCHES: usize = 120;
    let folder = Folder::new();
    let bounds = Bounds {
        recent_requests_max: RECENT_MAX,
        files_from_level: 1,
        ..Bounds::default()
    };
    let store = SqliteStore::open_bounded(&folder.url(), bounds).await.unwrap();
    let mut chain = Chain::new(1);
    for number in 0..BATCHES {
        let mut batch = Batch::default();
        for ask in 0..7 {
            chain.decision(&mut batch, &Ask::named(&id(7 * number + ask)));
        }
        commit(&store, &batch).await;
        // One that was asked in any of the batches before.
        let mut batch = Batch::default();
        let again = 7 * (number * 31 % (number + 1)) + number % 7;
        chain.clone().decision(&mut batch, &Ask::named(&id(again)));
        let error = refused(&store, &batch).await;
        assert!(
            matches!(error, CommitError::AlreadyRecorded),
            "{again} at {number}: {error:?}"
        );
    }
    store.close().await;
    let store = folder.open().await;
    let keys: Vec<_> = (0..7 * BATCHES).map(|number| chain.key(&id(number))).collect();
    assert_eq!(find_requests(&store, &keys).await.len(), keys.len());
}

/// On one thread, so that everybody goes as far as the turn and no further.
#[tokio::test]
async fn a_commit_waits_for_one_of_those_who_look_for_requests() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let mut chain = Chain::new(1);
    let turn = store.begin(&[chain.tenant]).await.unwrap();
    let looked = Arc::new(AtomicUsize::new(0));
    let looking: Vec<_> = (0..100)
        .map(|number| {
            let (store, looked, key) = (Arc::clone(&store), Arc::clone(&looked), chain.key(&id(number)));
            tokio::spawn(async move {
                assert!(store.answered_request(&key).await.unwrap().is_none());
                looked.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let committing = tokio::spawn({
        let (store, looked, batch) = (Arc::clone(&store), Arc::clone(&looked), chain.decisions(1));
        async move {
            commit(&*store, &batch).await;
            looked.load(Ordering::SeqCst)
        }
    });
    tokio::task::yield_now().await;
    drop(turn);
    assert!(committing.await.unwrap() <= 1);
    for one in looking {
        one.await.unwrap();
    }
    assert_eq!(looked.load(Ordering::SeqCst), 100);
}
