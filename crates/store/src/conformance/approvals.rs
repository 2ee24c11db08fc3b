//! What is promised of approvals: they change with the commit of their entry, and are found by what they are asked for by.

use super::sample::{Chain, approval, approved, decision_id};
use super::{Fixture, commit, refused};
use crate::{ApprovalFilter, BYTES_AT_ONCE, Batch, LOOKED_AT_MAX, Store};
use model::{Approval, ApprovalId, ApprovalStatus, Timestamp};

/// Commits how approvals are from now on.
async fn write(store: &dyn Store, chain: &mut Chain, approvals: &[&Approval]) {
    let mut batch = Batch::default();
    for approval in approvals {
        chain.approval(&mut batch, approval);
    }
    commit(store, &batch).await;
}

async fn find(store: &dyn Store, chain: &Chain, wanted: &Approval) -> Option<Approval> {
    let mut turn = store.begin(&[chain.tenant]).await.unwrap();
    let mut found = turn.find_approvals(&[(chain.tenant, wanted.id)]).await.unwrap();
    let read = store.approval(chain.tenant, wanted.id).await.unwrap();
    let found = found.pop().map(|(tenant, approval)| {
        assert_eq!(tenant, chain.tenant);
        approval
    });
    assert_eq!(found, read, "the turn and the reader differ");
    found
}

/// Asked for, approved, spent; also after reopening.
pub async fn an_approval_is_as_it_was_written_last(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let asked = approval(1, 1_000);
    assert_eq!(find(&*store, &chain, &asked).await, None);
    write(&*store, &mut chain, &[&asked]).await;
    assert_eq!(find(&*store, &chain, &asked).await.as_ref(), Some(&asked));
    let approved = approved(&asked);
    write(&*store, &mut chain, &[&approved]).await;
    assert_eq!(find(&*store, &chain, &asked).await.as_ref(), Some(&approved));
    let spent = approved.spend(decision_id(chain.tenant, 7));
    write(&*store, &mut chain, &[&spent]).await;
    let store = fixture.reopen().await;
    assert_eq!(find(&*store, &chain, &asked).await, Some(spent));
}

/// The last one counts, and the others beside it are all there.
pub async fn an_approval_that_changes_twice_in_a_batch_is_as_at_its_end(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let (one, two) = (approval(1, 1_000), approval(2, 1_000));
    let last = approved(&one);
    write(&*store, &mut chain, &[&one, &two, &last]).await;
    assert_eq!(find(&*store, &chain, &one).await, Some(last));
    assert_eq!(find(&*store, &chain, &two).await, Some(two));
}

/// Whether the head has moved or the batch does not hang together.
pub async fn a_batch_that_is_not_written_changes_no_approval(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let asked = approval(1, 1_000);
    write(&*store, &mut chain, &[&asked]).await;
    let mut batch = Batch::default();
    Chain::new(1).approval(&mut batch, &approved(&asked));
    refused(&*store, &batch).await;
    let mut batch = chain.clone().decisions(1);
    batch.approvals.push((Chain::new(2).tenant, approved(&asked)));
    refused(&*store, &batch).await;
    assert_eq!(find(&*store, &chain, &asked).await, Some(asked));
}

/// By status, by agent, by both, and page by page.
pub async fn approvals_are_listed_newest_first_by_what_is_asked_for(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let all: Vec<_> = (1..=6).map(|number| approval(number, 1_000)).collect();
    write(&*store, &mut chain, &all.iter().collect::<Vec<_>>()).await;
    for number in [2, 5] {
        write(&*store, &mut chain, &[&approved(&all[number - 1])]).await;
    }
    let list = async |status, agent: Option<usize>, before: Option<usize>, limit| {
        let filter = ApprovalFilter {
            status,
            agent: agent.map(|number| all[number - 1].request.agent),
        };
        let before = before.map(|number| all[number - 1].id);
        let found = store
            .approvals(chain.tenant, &filter, before, limit)
            .await
            .unwrap();
        found
            .found
            .iter()
            .map(|approval| approval.id.as_bytes()[0])
            .collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, None, 10).await, [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(None, None, None, 2).await, [6, 5]);
    assert_eq!(list(None, None, Some(5), 2).await, [4, 3]);
    let approved = Some(ApprovalStatus::Approved);
    assert_eq!(list(approved, None, None, 10).await, [5, 2]);
    assert_eq!(list(approved, None, Some(5), 10).await, [2]);
    assert_eq!(list(None, Some(3), None, 10).await, [3]);
    assert_eq!(
        list(Some(ApprovalStatus::Pending), Some(2), None, 10).await,
        [0; 0]
    );
}

/// Also behind all that others were asked about; and by status alone on one page, wherever they are.
pub async fn approvals_are_looked_for_among_so_many_at_a_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let numbered = |number: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        ApprovalId::from_bytes(id)
    };
    let mut wanted = approved(&approval(1, 1_000));
    wanted.id = numbered(0);
    write(&*store, &mut chain, &[&wanted]).await;
    let others: Vec<_> = (1..=LOOKED_AT_MAX + 1)
        .map(|number| Approval {
            id: numbered(number),
            ..approval(2, 1_000)
        })
        .collect();
    for some in others.chunks(500) {
        let mut batch = chain.decisions(1);
        let rows = some.iter().map(|approval| (chain.tenant, approval.clone()));
        batch.approvals.extend(rows);
        commit(&*store, &batch).await;
    }
    let list = async |filter: &ApprovalFilter, before| {
        let part = store.approvals(chain.tenant, filter, before, 10).await.unwrap();
        let ids: Vec<_> = part.found.iter().map(|approval| approval.id).collect();
        (ids, part.next)
    };
    let mut filter = ApprovalFilter {
        agent: Some(wanted.request.agent),
        status: None,
    };
    for status in [None, Some(ApprovalStatus::Approved)] {
        filter.status = status;
        let (found, next) = list(&filter, None).await;
        assert_eq!((found, next), (vec![], Some(numbered(2))));
        assert_eq!(list(&filter, next).await, (vec![wanted.id], None));
    }
    filter.agent = None;
    assert_eq!(list(&filter, None).await, (vec![wanted.id], None));
    let pending = ApprovalFilter {
        agent: None,
        status: Some(ApprovalStatus::Pending),
    };
    let (found, next) = list(&pending, Some(numbered(12))).await;
    assert_eq!((found.len(), next), (10, Some(numbered(2))));
    assert_eq!(list(&pending, next).await, (vec![numbered(1)], None));
}

/// A part ends behind the approval with which it is large enough, whatever they are looked for by, and goes on there.
pub async fn large_approvals_are_listed_few_at_a_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let agent = approval(1, 1_000).request.agent;
    let mut all = Vec::new();
    for number in 1..=5 {
        let mut asked = approval(number, 1_000);
        asked.request.agent = agent;
        asked.request.parameters = Some(format!(r#"{{"text":"{}"}}"#, "x".repeat(BYTES_AT_ONCE / 3)));
        write(&*store, &mut chain, &[&asked]).await;
        all.push(asked.id);
    }
    let pending = Some(ApprovalStatus::Pending);
    for (status, agent) in [(None, None), (pending, None), (None, Some(agent))] {
        let filter = ApprovalFilter { status, agent };
        for (before, expected, next) in [
            (None, vec![all[4], all[3], all[2]], Some(all[2])),
            (Some(all[2]), vec![all[1], all[0]], None),
        ] {
            let part = store.approvals(chain.tenant, &filter, before, 100).await.unwrap();
            let found: Vec<_> = part.found.iter().map(|approval| approval.id).collect();
            assert_eq!((found, part.next), (expected, next), "{filter:?}");
        }
    }
}

/// Of all tenants, but not those that are over already.
pub async fn open_approvals_are_found_when_their_time_is_over(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let (early, late, other) = (approval(1, 1_000), approval(2, 2_000), approval(3, 1_500));
    let spent = approved(&approval(4, 500)).spend(decision_id(one.tenant, 1));
    write(&*store, &mut one, &[&early, &approved(&late), &spent]).await;
    write(&*store, &mut two, &[&other]).await;
    let overdue = async |now| {
        let mut found = store
            .overdue_approvals(&[], Timestamp::from_millis(now), 10)
            .await
            .unwrap();
        found.sort();
        found
    };
    assert_eq!(overdue(999).await, []);
    assert_eq!(overdue(1_000).await, [(one.tenant, early.id)]);
    assert_eq!(
        overdue(2_000).await,
        [
            (one.tenant, early.id),
            (one.tenant, late.id),
            (two.tenant, other.id)
        ]
    );
    let few = store
        .overdue_approvals(&[], Timestamp::from_millis(2_000), 2)
        .await
        .unwrap();
    assert_eq!(few, [(one.tenant, early.id), (two.tenant, other.id)]);
    let others = store
        .overdue_approvals(
            &[one.tenant, Chain::new(9).tenant],
            Timestamp::from_millis(2_000),
            1,
        )
        .await
        .unwrap();
    assert_eq!(others, [(two.tenant, other.id)], "as if the rest were not there");
    let expired = early.expire(Timestamp::from_millis(1_000)).unwrap();
    write(&*store, &mut one, &[&expired]).await;
    assert_eq!(overdue(1_000).await, []);
}

/// Also where the ids are the same.
pub async fn an_approval_is_its_tenants_alone(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let asked = approval(1, 1_000);
    write(&*store, &mut one, &[&asked]).await;
    assert_eq!(find(&*store, &two, &asked).await, None);
    let approved = approved(&asked);
    write(&*store, &mut two, &[&approved]).await;
    assert_eq!(find(&*store, &one, &asked).await, Some(asked));
    assert_eq!(find(&*store, &two, &approved).await, Some(approved));
}
