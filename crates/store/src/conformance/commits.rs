//! What a commit promises: heads, all or nothing, durability, and callers that go away.

use super::sample::{Ask, Chain, decision_id};
use super::{Fixture, STALLS_MAX, commit, find_requests, load, refused, settle, stood_still, try_commit};
use crate::{Batch, CommitError, Store};
use canon::Digest;
use ledger::Head;
use model::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing is in a new store.
pub async fn a_new_store_is_empty(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert!(load(&*store).await.is_empty());
}

/// Heads and revisions are where the batch moved them, and the tenants it does not name stay.
pub async fn a_commit_moves_the_heads_of_its_tenants(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = one.decisions(3);
    two.put_agent(&mut batch, 1, "builder");
    one.decision(&mut batch, &Ask::default());
    commit(&*store, &batch).await;
    assert_heads(&*store, &[&one, &two]).await;
    commit(&*store, &two.decisions(1)).await;
    assert_heads(&*store, &[&one, &two]).await;
}

/// A turn knows the end of each chain, the time of its last entry and the revision; a tenant that never wrote is missing.
pub async fn a_turn_says_where_its_tenants_stand(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two, never) = (Chain::new(1), Chain::new(2), Chain::new(3));
    let mut batch = Batch::default();
    let late = Timestamp::from_millis(1_900_000_000_000);
    one.decision(
        &mut batch,
        &Ask {
            at: late,
            ..Ask::default()
        },
    );
    two.put_agent(&mut batch, 1, "builder");
    commit(&*store, &batch).await;
    assert_positions(&*store, &one, &two, late).await;
    assert!(store.begin(&[never.tenant]).await.unwrap().positions().is_empty());
    assert_positions(&*fixture.reopen().await, &one, &two, late).await;
}

async fn assert_positions(store: &dyn Store, one: &Chain, two: &Chain, late: Timestamp) {
    let turn = store.begin(&[one.tenant, two.tenant]).await.unwrap();
    let position = &turn.positions()[&one.tenant];
    assert_eq!(
        (position.head(), position.at, position.revision),
        (one.head(), late, 0)
    );
    let position = &turn.positions()[&two.tenant];
    assert_eq!((position.head(), position.revision), (two.head(), 1));
}

/// A turn that is dropped leaves nothing behind, also no lock.
pub async fn a_turn_that_is_given_back_wrote_nothing(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    commit(&*store, &chain.decisions(1)).await;
    for _ in 0..20 {
        drop(store.begin(&[chain.tenant]).await.unwrap());
    }
    commit(&*store, &chain.decisions(1)).await;
    assert_heads(&*store, &[&chain]).await;
}

/// One decision of the first tenant, from where it stands.
async fn write_next(store: &dyn Store) -> Result<(), CommitError> {
    let mut chain = Chain::new(1);
    let turn = store.begin(&[chain.tenant]).await;
    let turn = turn.map_err(|error| CommitError::NotWritten(Box::new(error)))?;
    chain.tip = turn.positions()[&chain.tenant].tip.clone();
    turn.commit(&chain.decisions(1)).await
}

/// Whoever has the turn knows where its tenants stand until it commits, however many others wait.
pub async fn turns_for_the_same_tenant_wait_for_each_other(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let first = Chain::new(1);
    commit(&*store, &first.clone().decisions(1)).await;
    let writers = (0..8).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..10 {
                settle(|| write_next(&*store)).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(store.entries(first.tenant, 0, 100).await.unwrap().len(), 81);
}

/// A batch that advances from another seq, from another hash, from nothing or from too much is refused by name.
pub async fn a_commit_from_another_head_writes_nothing(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    commit(&*store, &chain.decisions(2)).await;
    let Head { seq, hash } = chain.head();
    let ahead = chain.believed_at(Head { seq: seq + 1, hash });
    let forked = chain.believed_at(Head {
        seq,
        hash: Digest::of(b"another history"),
    });
    let behind = Chain::new(1);
    let unknown = Chain::new(2).believed_at(Head {
        seq: 1,
        ..Head::GENESIS
    });
    for mut stale in [ahead, forked, behind, unknown] {
        let tenant = stale.tenant;
        let error = refused(&*store, &stale.decisions(1)).await;
        assert!(
            matches!(error, CommitError::HeadMoved { tenant: named } if named == tenant),
            "{error:?}"
        );
    }
    assert_heads(&*store, &[&chain]).await;
    assert_eq!(store.entries(chain.tenant, 0, 10).await.unwrap().len(), 2);
    commit(&*store, &chain.decisions(1)).await;
}

/// One moved tenant keeps the whole batch out.
pub(super) async fn assert_heads(store: &dyn Store, chains: &[&Chain]) {
    let found = load(store)
        .await
        .into_iter()
        .map(|tenant| (tenant.tenant, tenant.position.head(), tenant.position.revision));
    let expected = chains
        .iter()
        .map(|chain| (chain.tenant, chain.head(), chain.revision));
    assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// Two writers that start from the same head cannot both be right.
pub async fn of_two_commits_from_one_head_only_one_lands(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut base = Chain::new(1);
    commit(&*store, &base.decisions(1)).await;
    let mut stalls = 0;
    while base.head().seq < 21 {
        let (mut left, mut right) = (base.clone(), base.clone());
        let (mut left_batch, mut right_batch) = (Batch::default(), Batch::default());
        left.decision(
            &mut left_batch,
            &Ask {
                text: "left".into(),
                ..Ask::default()
            },
        );
        right.decision(
            &mut right_batch,
            &Ask {
                text: "right".into(),
                ..Ask::default()
            },
        );
        let (l, r) = tokio::join!(
            try_commit(&*store, &left_batch),
            try_commit(&*store, &right_batch)
        );
        let is_late = |outcome: &Result<(), CommitError>| outcome.as_ref().is_err_and(stood_still);
        if is_late(&l) && is_late(&r) && stalls < STALLS_MAX {
            stalls += 1;
            continue;
        }
        assert!(l.is_ok() != r.is_ok(), "at {}: {l:?}, {r:?}", base.head().seq);
        base = if l.is_ok() { left } else { right };
        assert_heads(&*store, &[&base]).await;
    }
    assert_eq!(store.entries(base.tenant, 0, 100).await.unwrap().len(), 21);
}

/// A gap, a wrong end, a row without its entry: none of them reaches the disk.
pub async fn a_batch_that_does_not_hang_together_is_not_written(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let whole = || Chain::new(1).decisions(3);
    let mut gap = whole();
    gap.entries.remove(1);
    let mut wrong_end = whole();
    let elsewhere = Head {
        seq: 3,
        hash: Digest::of(b"elsewhere"),
    };
    wrong_end.advances[0].to = Chain::new(1).believed_at(elsewhere).tip;
    let mut no_entry = whole();
    no_entry.decisions[2].seq = 4;
    let mut nobodys = whole();
    nobodys.advances.clear();
    let mut twice = whole();
    twice.advances.push(twice.advances[0].clone());
    for batch in [gap, wrong_end, no_entry, nobodys, twice] {
        let error = refused(&*store, &batch).await;
        assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    }
    assert!(load(&*store).await.is_empty());
}

/// Whatever the last row runs into, nothing of the rows before it stays.
pub async fn a_batch_whose_last_row_cannot_be_written_leaves_nothing(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    let decided = chain.decision(&mut batch, &Ask::named("taken"));
    chain.put_agent(&mut batch, 1, "builder");
    chain.outcome(&mut batch, decided);
    commit(&*store, &batch).await;

    let with = |last: &dyn Fn(&mut Chain, &mut Batch)| {
        let mut next = chain.clone();
        let mut batch = next.decisions(40);
        next.put_agent(&mut batch, 7, "another");
        last(&mut next, &mut batch);
        batch
    };
    let batches = [
        with(&|next, batch| {
            next.decision(batch, &Ask::default());
            batch.decisions.last_mut().expect("just added").id = decided;
        }),
        with(&|next, batch| {
            next.decision(batch, &Ask::named("taken"));
        }),
        with(&|next, batch| next.put_agent(batch, 2, "builder")),
        with(&|next, batch| next.outcome(batch, decided)),
    ];
    for batch in batches {
        let error = refused(&*store, &batch).await;
        let nothing = matches!(error, CommitError::NotWritten(_) | CommitError::AlreadyRecorded);
        assert!(nothing, "{error:?}");
        assert_heads(&*store, &[&chain]).await;
        assert_eq!(load(&*store).await[0].nouns.len(), 1);
        assert_eq!(store.entries(chain.tenant, 0, 100).await.unwrap().len(), 3);
    }
    commit(&*store, &chain.decisions(40)).await;
    assert_heads(&*store, &[&chain]).await;
}

/// Sizes around every power of two, with and without request ids, with entries of other kinds between.
pub async fn batches_of_every_size_are_written_whole(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    for size in (1..=33).chain([63, 64, 65, 127, 128, 129, 255, 256, 257, 300]) {
        let mut batch = Batch::default();
        let before = chain.head().seq;
        for place in 0..size {
            // A third of the sizes has a request id everywhere, a third nowhere, a third now and then.
            let has_request = size % 3 == 0 || (size % 3 == 1 && place % 2 == 0);
            let request_id = has_request.then(|| format!("{size}-{place}"));
            chain.decision(
                &mut batch,
                &Ask {
                    request_id,
                    ..Ask::default()
                },
            );
            if place % 5 == 4 {
                let body = canon::of(&place).expect("a number is JSON");
                chain.entry(&mut batch, "note", Timestamp::from_millis(place), body);
            }
        }
        commit(&*store, &batch).await;
        assert_written(&*store, &chain, &batch, before).await;
    }
}

/// Compares what a batch said with what can be read back.
pub(super) async fn assert_written(store: &dyn Store, chain: &Chain, batch: &Batch, before: u64) {
    let entries = store.entries(chain.tenant, before + 1, 1_000).await.unwrap();
    assert_eq!(entries.len(), batch.entries.len());
    for (found, row) in entries.iter().zip(&batch.entries) {
        assert_eq!((found.seq, &*found.kind, found.at), (row.seq, row.kind, row.at));
        assert_eq!(
            (found.prev, found.hash, &*found.body),
            (row.prev, row.hash, row.body.as_str())
        );
    }
    let recorded = store.recorded(chain.tenant, before + 1, 1_000).await.unwrap();
    let places = recorded.iter().map(|place| &place.entry);
    assert!(places.eq(&entries), "both are read from the same rows");
    let decided = recorded
        .iter()
        .filter_map(|place| Some((place.decision.as_ref()?, place.receipt.as_ref()?)));
    let decided: Vec<_> = decided.collect();
    assert_eq!(decided.len(), batch.decisions.len());
    for ((found, receipt), row) in decided.into_iter().zip(&batch.decisions) {
        assert_eq!(
            (found.seq, found.id, found.agent, found.reason),
            (row.seq, row.id, row.agent, row.reason)
        );
        assert_eq!(
            (&found.tool, &found.action, &found.run_id),
            (&row.tool, &row.action, &row.run_id)
        );
        assert_eq!(receipt[..], row.receipt[..]);
    }
    let keys: Vec<_> = batch
        .decisions
        .iter()
        .filter_map(|row| row.request.as_ref().map(|(id, _)| chain.key(id.as_str())))
        .collect();
    assert_eq!(find_requests(store, &keys).await.len(), keys.len());
}

/// More than any statement of a backend takes at once.
pub async fn a_thousand_decisions_fit_in_one_batch(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    for number in 0..1_000 {
        chain.decision(&mut batch, &Ask::named(&format!("request {number}")));
    }
    commit(&*store, &batch).await;
    assert_heads(&*store, &[&chain]).await;
    assert_written(&*store, &chain, &batch, 0).await;
}

/// Closing and opening changes nothing, and the chain goes on from where it was.
pub async fn what_was_committed_is_there_after_reopening(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = one.decisions(5);
    let noun = two.noun();
    two.write(&mut batch, model::Write::Put(noun.clone()));
    one.decision(&mut batch, &Ask::named("r-1"));
    commit(&*store, &batch).await;
    drop(store);

    let store = fixture.reopen().await;
    assert_heads(&*store, &[&one, &two]).await;
    assert_eq!(load(&*store).await[1].nouns[0].to_json(), noun.to_json());
    assert_eq!(store.entries(one.tenant, 0, 100).await.unwrap().len(), 6);
    assert_eq!(find_requests(&*store, &[one.key("r-1")]).await.len(), 1);
    let mut three = Chain::new(3);
    let mut batch = one.decisions(1);
    three.put_agent(&mut batch, 1, "newcomer");
    commit(&*store, &batch).await;
    assert_heads(&*store, &[&one, &two, &three]).await;
}

/// The caller is dropped at any moment of a commit; afterwards the batch is there whole or not at all, and the next one
/// goes through.
pub async fn a_commit_whose_caller_goes_away_is_there_whole_or_not_at_all(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut settled = Chain::new(1);
    commit(&*store, &settled.decisions(1)).await;
    let mut landed = 0;
    for round in 0..240u64 {
        // The later ones are for a store that is so slow that none of these gets through.
        if round >= 60 && landed > 0 {
            break;
        }
        let mut next = settled.clone();
        let batch = next.decisions(200);
        let going = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                try_commit(&*store, &batch)
                    .await
                    .map_err(|error| error.to_string())
            })
        };
        wait(Duration::from_micros(round * round)).await;
        going.abort();
        // Whatever became of it, the first attempt to go on waits for it; the second knows where it ended.
        let mut other = settled.clone();
        let mut own = Batch::default();
        other.decision(
            &mut own,
            &Ask {
                tool: "other",
                ..Ask::default()
            },
        );
        settled = match settle(|| try_commit(&*store, &own)).await {
            Ok(()) => other,
            Err(CommitError::HeadMoved { .. }) => {
                landed += 1;
                next
            }
            Err(error) => panic!("round {round}: {error:?}"),
        };
        drop(going.await);
        assert_heads(&*store, &[&settled]).await;
        assert_last_is(&*store, &settled).await;
    }
    assert!(
        landed > 0,
        "every commit was cancelled before it began, so nothing was tried"
    );
}

/// Waits by looking at the clock, because timers count in milliseconds and a commit is over by then.
pub(super) async fn wait(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn assert_last_is(store: &dyn Store, chain: &Chain) {
    let last = store.entries(chain.tenant, chain.head().seq, 10).await.unwrap();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].hash, chain.head().hash);
    let id = decision_id(chain.tenant, chain.head().seq);
    assert_eq!(
        store
            .decision(chain.tenant, id)
            .await
            .unwrap()
            .map(|found| found.hash),
        Some(chain.head().hash)
    );
    assert!(store.receipt(chain.tenant, id).await.unwrap().is_some());
}
