//! What idempotency rests on: a request is recorded once, and found again with the bytes that were answered.

use super::sample::{Ask, Chain, agent_id, name, receipt};
use super::{Fixture, commit, find_outcomes, find_requests, refused};
use crate::{Batch, CommitError, RequestKey};
use model::{DecisionId, ReasonCode};

/// The answer comes back byte for byte, with the digest of the ask and the reason; whatever the request id looks like.
pub async fn a_recorded_request_is_found_with_its_answer(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let ids = [
        "call-1",
        "it's",
        "\"],[\"x",
        "\\u0041",
        "Zoë \u{1F600}",
        "%",
        "call-1 ",
    ];
    let mut batch = Batch::default();
    for id in ids {
        let reason = ReasonCode::PolicyForbids;
        chain.decision(
            &mut batch,
            &Ask {
                reason,
                ..Ask::named(id)
            },
        );
    }
    commit(&*store, &batch).await;
    for (seq, id) in (1..).zip(ids) {
        let found = find_requests(&*store, &[chain.key(id)]).await;
        assert_eq!(found.len(), 1, "{id}");
        assert_eq!(found[0].key, chain.key(id));
        assert_eq!(
            (found[0].ask, found[0].reason),
            (Ask::named(id).digest(), ReasonCode::PolicyForbids)
        );
        assert_eq!(found[0].receipt[..], receipt(chain.tenant, seq));
        let alone = store.answered_request(&chain.key(id)).await.unwrap().unwrap();
        assert_eq!(
            (alone.key, alone.ask, alone.reason, alone.receipt),
            (
                chain.key(id),
                found[0].ask,
                found[0].reason,
                found[0].receipt.clone()
            )
        );
    }
}

/// Neither a similar id, nor another agent's or another tenant's same id, nor a decision without one.
pub async fn a_request_that_was_not_recorded_is_not_found(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut other = Chain::new(2);
    let mut batch = chain.decisions(2);
    chain.decision(&mut batch, &Ask::named("call-1"));
    other.decision(&mut batch, &Ask::default());
    commit(&*store, &batch).await;
    let another_agent = RequestKey {
        agent: agent_id(9),
        ..chain.key("call-1")
    };
    let never_seen = Chain::new(3).key("call-1");
    let keys = [
        chain.key("call-2"),
        chain.key("CALL-1"),
        chain.key("call-1 "),
        another_agent,
        other.key("call-1"),
        never_seen,
    ];
    assert!(find_requests(&*store, &keys).await.is_empty());
    assert!(find_requests(&*store, &[]).await.is_empty());
    for key in keys {
        assert!(store.answered_request(&key).await.unwrap().is_none(), "{key:?}");
    }
}

/// More keys than a backend puts into one statement; found and not found among one another.
pub async fn many_requests_are_found_in_one_call(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    for number in (0..1_500).step_by(2) {
        chain.decision(&mut batch, &Ask::named(&format!("call-{number}")));
    }
    commit(&*store, &batch).await;
    let keys: Vec<_> = (0..1_500)
        .map(|number| chain.key(&format!("call-{number}")))
        .collect();
    let mut found = find_requests(&*store, &keys).await;
    found.sort_by_key(|request| request.receipt.clone());
    let found: Vec<_> = found.into_iter().map(|request| request.key).collect();
    let expected: Vec<_> = keys.into_iter().step_by(2).collect();
    assert_eq!(found, expected);
}

/// A second decision under one request id is refused; the same id of another agent is another request.
pub async fn a_request_id_is_recorded_once_an_agent(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.decision(&mut batch, &Ask::named("call-1"));
    let agent = agent_id(2);
    chain.decision(
        &mut batch,
        &Ask {
            agent,
            ..Ask::named("call-1")
        },
    );
    commit(&*store, &batch).await;

    let mut again = Batch::default();
    chain.clone().decision(&mut again, &Ask::named("call-1"));
    let error = refused(&*store, &again).await;
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error:?}");

    let mut twice = Batch::default();
    let mut next = chain.clone();
    next.decision(&mut twice, &Ask::named("call-2"));
    next.decision(&mut twice, &Ask::named("call-2"));
    refused(&*store, &twice).await;
    assert_eq!(store.entries(chain.tenant, 0, 10).await.unwrap().len(), 2);
    let found = find_requests(&*store, &[chain.key("call-1"), chain.key("call-2")]).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key.request_id, name("call-1"));
}

/// An outcome belongs to one decision of one tenant.
pub async fn an_outcome_is_found_and_recorded_once(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, other) = (Chain::new(1), Chain::new(2));
    let mut batch = Batch::default();
    let reported = chain.decision(&mut batch, &Ask::default());
    let unreported = chain.decision(&mut batch, &Ask::default());
    commit(&*store, &batch).await;
    let mut batch = Batch::default();
    chain.outcome(&mut batch, reported);
    commit(&*store, &batch).await;

    let unknown = DecisionId::from_bytes([9; 16]);
    let asked = [
        (chain.tenant, reported),
        (chain.tenant, unreported),
        (chain.tenant, unknown),
        (other.tenant, reported),
    ];
    assert_eq!(find_outcomes(&*store, &asked).await, [reported]);
    assert!(find_outcomes(&*store, &asked[1..]).await.is_empty());
    let mut batch = Batch::default();
    chain.clone().outcome(&mut batch, reported);
    let error = refused(&*store, &batch).await;
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error:?}");
}
