//! Errands: the next commit does them or, if none comes, somebody else, and in any case commits go on.

use super::Folder;
use crate::SqliteStore;
use crate::errands::{Errander, NotDone};
use crate::writer::Writer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use store::Store as _;
use store::conformance::commit;
use store::conformance::sample::Chain;

/// A store, its ledger and somebody with errands for it.
struct Open {
    _folder: Folder,
    store: SqliteStore,
    chain: Chain,
    errander: Errander,
}

impl Open {
    async fn new() -> Self {
        let folder = Folder::new();
        let store = folder.open().await;
        let errands = store.writer.lock().await.errands();
        Self {
            errander: Errander {
                writer: Arc::clone(&store.writer),
                errands,
            },
            _folder: folder,
            store,
            chain: Chain::new(1),
        }
    }

    async fn commit(&mut self) {
        let batch = self.chain.decisions(1);
        commit(&self.store, &batch).await;
    }
}

#[tokio::test]
async fn an_errand_is_done_by_the_next_commit() {
    let mut open = Open::new().await;
    let errander = open.errander.clone();
    // A machine that is busy elsewhere can take so long in between that no commit is expected any more.
    for _ in 0..20 {
        // As a commit does when it begins: by its end that may be too long ago, where the disk is slow.
        drop(errander.errands.take_to_commit());
        let (done_by, ()) = tokio::join!(errander.in_turn(|_| thread::current().id()), open.commit());
        if done_by.unwrap() == thread::current().id() {
            return;
        }
    }
    panic!("no commit did an errand");
}

#[tokio::test]
async fn an_errand_is_done_without_a_commit_after_a_while() {
    let mut open = Open::new().await;
    for _ in 0..2 {
        let done_by = open.errander.in_turn(|_| thread::current().id()).await.unwrap();
        assert_ne!(done_by, thread::current().id());
        // Now one is expected, and does not come.
        open.commit().await;
    }
}

#[tokio::test]
async fn an_errand_whose_owner_gave_up_is_not_done() {
    let mut open = Open::new().await;
    let is_done = Arc::new(AtomicBool::new(false));
    let mark = Arc::clone(&is_done);
    let given_up = open
        .errander
        .in_turn(move |_| mark.store(true, Ordering::Relaxed));
    let turn = open.store.writer.lock().await;
    tokio::select! {
        biased;
        _ = given_up => unreachable!("the turn is taken"),
        () = tokio::task::yield_now() => {}
    }
    drop(turn);
    open.commit().await;
    assert!(!is_done.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_commit_goes_on_where_an_errand_has_lost_the_connections() {
    let mut open = Open::new().await;
    open.commit().await;
    let errander = open.errander.clone();
    let (done, ()) = tokio::join!(errander.in_turn(Writer::lose_connections), open.commit());
    done.unwrap();
    open.commit().await;
}

#[tokio::test]
async fn an_errand_for_a_closed_store_says_that_it_is_closed() {
    let open = Open::new().await;
    open.store.close().await;
    let error = open.errander.in_turn(|_| ()).await.unwrap_err();
    assert!(matches!(error, NotDone::NotReady(_)), "{error:?}");
    assert_eq!(error.to_string(), "the store is closed");
}
