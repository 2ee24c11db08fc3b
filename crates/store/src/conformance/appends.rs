//! What an append promises: what a commit does, and that it is refused when it was made from the wrong position.

use super::commits::{assert_heads, assert_last_is, assert_written, wait};
use super::sample::{Ask, Chain, approval, approved, name};
use super::{Fixture, STALLS_MAX, commit, load, settle, stood_still};
use crate::{Batch, CommitError, Store};
use canon::Digest;
use model::{Approval, Counter, RunTaint, Timestamp, Trust};
use std::sync::Arc;
use std::time::Duration;

/// Batches of one tenant and of several, of known tenants and of new ones, with and without changes of a directory.
pub async fn what_is_appended_is_written_like_what_is_committed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    store.append(&one.decisions(3)).await.unwrap();
    for size in [1, 2, 3, 63, 64, 65, 300] {
        let before = one.head().seq;
        let mut batch = Batch::default();
        for place in 0..size {
            let request_id = (place % 2 == 0).then(|| format!("{size}-{place}"));
            one.decision(
                &mut batch,
                &Ask {
                    request_id,
                    ..Ask::default()
                },
            );
        }
        store.append(&batch).await.unwrap();
        assert_written(&*store, &one, &batch, before).await;
    }
    let mut batch = one.decisions(1);
    two.put_agent(&mut batch, 1, "builder");
    store.append(&batch).await.unwrap();
    let mut batch = Batch::default();
    two.put_agent(&mut batch, 2, "tester");
    store.append(&batch).await.unwrap();
    assert_eq!(load(&*store).await[1].nouns.len(), 2);
    assert_heads(&*fixture.reopen().await, &[&one, &two]).await;
}

/// Behind the head, before it, and beside it.
pub async fn an_append_from_another_head_writes_nothing(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut behind = chain.clone();
    commit(&*store, &chain.decisions(2)).await;
    let mut beside = behind.clone();
    behind.decisions(1);
    for number in 0..2 {
        beside.decision(
            &mut Batch::default(),
            &Ask {
                text: format!("other {number}"),
                ..Ask::default()
            },
        );
    }
    let mut ahead = chain.clone();
    ahead.decisions(1);
    for (which, chain) in [("behind", behind), ("beside", beside), ("ahead", ahead)] {
        let error = store.append(&chain.clone().decisions(3)).await.unwrap_err();
        assert!(
            matches!(error, CommitError::HeadMoved { tenant } if tenant == chain.tenant),
            "{which}: {error:?}"
        );
    }
    assert_heads(&*store, &[&chain]).await;
    assert!(store.entries(chain.tenant, 3, 10).await.unwrap().is_empty());
    assert!(store.recorded(chain.tenant, 3, 10).await.unwrap().is_empty());
    store.append(&chain.decisions(1)).await.unwrap();
    assert_heads(&*store, &[&chain]).await;
}

/// Approvals, contents, runs and counters, each how it is at the end of its batch.
pub async fn what_changes_with_a_batch_is_appended_with_it_or_not_at_all(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let tenant = chain.tenant;
    commit(&*store, &chain.decisions(1)).await;
    let mut beside = chain.clone();
    let asked = approval(1, 1_000);
    let begun = RunTaint::beginning(name("run"), Trust::TrustedInternalUnsigned);
    let counted = Counter {
        key: Digest::of(b"counter"),
        start: Timestamp::from_millis(60_000),
        count: 1,
        at: Timestamp::from_millis(61_000),
    };
    let add = |chain: &mut Chain, batch: &mut Batch, (approval, run, count): (&Approval, &RunTaint, u64)| {
        chain.approval(batch, approval);
        batch.runs.push((tenant, run.clone()));
        batch.counters.push((tenant, Counter { count, ..counted }));
        chain.content(batch, "kept")
    };
    let mut batch = chain.decisions(1);
    let kept = add(&mut chain, &mut batch, (&asked, &begun, 1));
    let (granted, worse) = (approved(&asked), begun.after(Trust::UntrustedExternal));
    add(&mut chain, &mut batch, (&granted, &worse, 2));
    store.append(&batch).await.unwrap();
    let mut late = beside.decisions(1);
    add(&mut beside, &mut late, (&approval(2, 1_000), &begun, 9));
    let never = beside.content(&mut late, "never");
    let error = store.append(&late).await.unwrap_err();
    assert!(matches!(error, CommitError::HeadMoved { .. }), "{error:?}");
    let store = fixture.reopen().await;
    assert_eq!(store.approval(tenant, asked.id).await.unwrap(), Some(granted));
    assert_eq!(store.approval(tenant, approval(2, 1_000).id).await.unwrap(), None);
    let runs = store.runs(&[(tenant, name("run"))]).await.unwrap();
    assert_eq!(runs, [(tenant, worse)]);
    let counters = store.counters(&[(tenant, counted.key)]).await.unwrap();
    assert_eq!(counters, [(tenant, Counter { count: 2, ..counted })]);
    let contents = store.contents(tenant, &[kept, never]).await.unwrap();
    assert_eq!(contents, [(kept, b"kept".to_vec())]);
}

/// All from the same position, at the same time.
pub async fn of_many_appends_from_one_head_only_one_lands(fixture: &dyn Fixture) {
    const WRITERS: usize = 8;
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    commit(&*store, &chain.decisions(1)).await;
    let mut stalls = 0;
    while chain.head().seq < 21 {
        let round = chain.head().seq;
        let writers = (0..WRITERS).map(|number| {
            let (store, mut next) = (Arc::clone(&store), chain.clone());
            tokio::spawn(async move {
                let mut batch = Batch::default();
                next.decision(
                    &mut batch,
                    &Ask {
                        text: number.to_string(),
                        ..Ask::named(&format!("{round}-{number}"))
                    },
                );
                (store.append(&batch).await, next)
            })
        });
        let (mut landed, mut late) = (Vec::new(), Vec::new());
        for writer in writers.collect::<Vec<_>>() {
            match writer.await.unwrap() {
                (Ok(()), next) => landed.push(next),
                (Err(CommitError::HeadMoved { .. }), _) => {}
                (Err(error), _) if stood_still(&error) => late.push(error),
                (Err(error), _) => panic!("round {round}: {error:?}"),
            }
        }
        if !late.is_empty() {
            stalls += 1;
            assert!(stalls <= STALLS_MAX, "round {round}: {late:?}");
            if landed.is_empty() {
                continue;
            }
        }
        assert_eq!(landed.len(), 1, "round {round}");
        chain = landed.remove(0);
        assert_heads(&*store, &[&chain]).await;
        assert_last_is(&*store, &chain).await;
    }
}

/// The whole batch is refused, and the next one is not.
pub async fn a_request_that_was_recorded_is_not_appended_again(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = chain.decisions(1);
    chain.decision(&mut batch, &Ask::named("call-1"));
    commit(&*store, &batch).await;
    let mut again = chain.clone();
    let mut batch = again.decisions(2);
    again.decision(&mut batch, &Ask::named("call-1"));
    let error = store.append(&batch).await.unwrap_err();
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error:?}");
    assert_heads(&*store, &[&chain]).await;
    store.append(&chain.decisions(1)).await.unwrap();
    assert_heads(&*store, &[&chain]).await;
}

/// The caller is dropped at any moment; afterwards the batch is there whole or not at all, and the next one goes through.
pub async fn an_append_whose_caller_goes_away_is_there_whole_or_not_at_all(fixture: &dyn Fixture) {
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
            let store: Arc<dyn Store> = Arc::clone(&store);
            tokio::spawn(async move { store.append(&batch).await.map_err(|error| error.to_string()) })
        };
        wait(Duration::from_micros(round * round)).await;
        going.abort();
        drop(going.await);
        // It may still be running, and whoever comes next is before or behind it.
        let mut other = settled.clone();
        let mut own = Batch::default();
        other.decision(
            &mut own,
            &Ask {
                tool: "other",
                ..Ask::default()
            },
        );
        settled = match settle(|| store.append(&own)).await {
            Ok(()) => other,
            Err(CommitError::HeadMoved { .. }) => {
                landed += 1;
                next
            }
            Err(error) => panic!("round {round}: {error:?}"),
        };
        assert_heads(&*store, &[&settled]).await;
        assert_last_is(&*store, &settled).await;
    }
    assert!(
        landed > 0,
        "every append was cancelled before it began, so nothing was tried"
    );
}
