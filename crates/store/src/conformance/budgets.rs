//! What is promised of budgets: they move with the commit of their entry, are found by what they are for, and answers
//! that are given again are there once.

use super::sample::{Ask, Chain, agent_id, name};
use super::{Fixture, commit, refused, settle};
use crate::{
    Batch, BudgetFilter, BudgetPlace, CommitError, LOOKED_AT_MAX, OpenBudgets, ReplyKey, ReplyRow,
    ReservationFilter, Store, WantedBalances, WantedBudgets, WantedReservations,
};
use canon::Digest;
use model::budget::Terms;
use model::{
    Amount, Budget, BudgetId, Overage, Reservation, ReservationId, ReservationStatus, RunLink, Scope,
    TenantId, Timestamp, Unit,
};

fn unit(text: &str) -> Unit {
    Unit::new(text).unwrap()
}

fn scope(json: &str) -> Scope {
    serde_json::from_str(json).unwrap()
}

fn budget(number: u8, of: &str, in_unit: &str) -> Budget {
    let terms = Terms {
        scope: scope(of),
        unit: unit(in_unit),
        allocated: Amount::MAX,
        overage: Overage::AllowIfAvailable,
        overdraft_limit: Amount::ZERO,
        period: None,
    };
    Budget::new(
        BudgetId::from_bytes([number; 16]),
        terms,
        Timestamp::from_millis(1),
    )
}

pub(super) fn reservation(number: u8, expires_at: i64) -> Reservation {
    Reservation {
        id: ReservationId::from_bytes([number; 16]),
        agent: agent_id(number % 2),
        unit: unit("TOKENS"),
        amount: Amount::MAX,
        budgets: vec![BudgetId::from_bytes([1; 16])],
        tool: None,
        run_id: Some(name("run \"1\"")),
        decision_id: None,
        status: ReservationStatus::Active,
        charge: None,
        created_at: Timestamp::from_millis(0),
        expires_at: Timestamp::from_millis(expires_at),
    }
}

/// A batch with one entry, to which rows can be added.
fn batch(chain: &mut Chain) -> Batch {
    let mut batch = Batch::default();
    let body = canon::of("budget").expect("a word is JSON");
    chain.entry(&mut batch, "budget", Timestamp::from_millis(6), body);
    batch
}

async fn put_budgets(store: &dyn Store, chain: &mut Chain, budgets: &[&Budget]) {
    let mut batch = batch(chain);
    batch.budgets.budgets = budgets
        .iter()
        .map(|budget| (chain.tenant, Budget::clone(budget)))
        .collect();
    commit(store, &batch).await;
}

pub(super) async fn put_reservations(store: &dyn Store, chain: &mut Chain, reservations: &[Reservation]) {
    let mut batch = batch(chain);
    batch.budgets.reservations = reservations
        .iter()
        .map(|reservation| (chain.tenant, reservation.clone()))
        .collect();
    commit(store, &batch).await;
}

/// What is found, in a turn and by a reader alike, by id.
async fn find(store: &dyn Store, chain: &Chain, wanted: &WantedBudgets) -> Vec<Budget> {
    let mut turn = store.begin(&[chain.tenant]).await.unwrap();
    let mut found = turn.find_budgets(wanted).await.unwrap();
    drop(turn);
    let of_tenant = WantedBalances {
        tenant: chain.tenant,
        ids: wanted.ids.iter().map(|(_, id)| *id).collect(),
        scopes: wanted
            .scopes
            .iter()
            .map(|(_, scope, unit)| (scope.clone(), unit.clone()))
            .collect(),
        ended_by: Timestamp::from_millis(i64::MAX),
        overdue_max: 10,
    };
    let mut read = store.balances(&of_tenant).await.unwrap().budgets;
    found.sort_by_key(|(_, budget)| budget.id);
    read.sort_by_key(|budget| budget.id);
    assert!(found.iter().all(|(tenant, _)| *tenant == chain.tenant));
    let found: Vec<_> = found.into_iter().map(|(_, budget)| budget).collect();
    assert_eq!(found, read, "the turn and the reader differ");
    found
}

/// What is held beyond its time, and whether there is any budget.
async fn overdue(
    store: &dyn Store,
    tenant: TenantId,
    ended_by: i64,
    most: u32,
) -> (Vec<ReservationId>, bool) {
    let wanted = WantedBalances {
        tenant,
        ids: Vec::new(),
        scopes: Vec::new(),
        ended_by: Timestamp::from_millis(ended_by),
        overdue_max: most,
    };
    let found = store.balances(&wanted).await.unwrap();
    assert_eq!(found.budgets, [], "none was asked for");
    let mut overdue: Vec<_> = found.overdue.iter().map(|held| held.id).collect();
    overdue.sort_unstable();
    (overdue, found.is_budgeted)
}

fn by_id(chain: &Chain, budgets: &[&Budget]) -> WantedBudgets {
    WantedBudgets {
        ids: budgets.iter().map(|budget| (chain.tenant, budget.id)).collect(),
        scopes: Vec::new(),
    }
}

fn by_scope(chain: &Chain, scopes: &[(&str, Option<&str>)]) -> WantedBudgets {
    let wanted = scopes
        .iter()
        .map(|(of, in_unit)| (chain.tenant, scope(of), in_unit.map(unit)));
    WantedBudgets {
        ids: Vec::new(),
        scopes: wanted.collect(),
    }
}

/// By id and by what it is for; also after reopening.
pub async fn a_budget_is_as_it_was_written_last(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let (one, two) = (
        budget(1, "{}", "TOKENS"),
        budget(2, r#"{"team":"a \"b\" Zoë"}"#, "TOKENS"),
    );
    put_budgets(&*store, &mut chain, &[&one, &two]).await;
    let one = one.hold(Amount::MAX).unwrap();
    put_budgets(&*store, &mut chain, &[&one]).await;
    let store = fixture.reopen().await;
    assert_eq!(
        find(&*store, &chain, &by_id(&chain, &[&one, &two])).await,
        [one.clone(), two.clone()]
    );
    let scopes = [
        ("{}", Some("TOKENS")),
        (r#"{"team":"a \"b\" Zoë"}"#, Some("TOKENS")),
    ];
    assert_eq!(
        find(&*store, &chain, &by_scope(&chain, &scopes)).await,
        [one.clone(), two]
    );
    // Each once, however it was asked for.
    let mut wanted = by_scope(&chain, &scopes[..1]);
    wanted.ids.push((chain.tenant, one.id));
    wanted.ids.push((chain.tenant, one.id));
    assert_eq!(find(&*store, &chain, &wanted).await, [one]);
    assert!(find(&*store, &chain, &WantedBudgets::default()).await.is_empty());
}

/// Whatever else looks like it, and in one unit or in all.
pub async fn a_budget_is_found_by_exactly_what_it_is_for(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let all = [
        budget(1, "{}", "TOKENS"),
        budget(2, "{}", "tokens"),
        budget(3, r#"{"run":"{}"}"#, "TOKENS"),
        budget(4, r#"{"team":"t"}"#, "TOKENS"),
        budget(5, r#"{"tool":"t"}"#, "TOKENS"),
    ];
    put_budgets(&*store, &mut chain, &all.iter().collect::<Vec<_>>()).await;
    let find = async |of: &str, in_unit: Option<&str>| {
        let found = find(&*store, &chain, &by_scope(&chain, &[(of, in_unit)])).await;
        found
            .iter()
            .map(|budget| budget.id.as_bytes()[0])
            .collect::<Vec<_>>()
    };
    assert_eq!(find("{}", Some("TOKENS")).await, [1]);
    assert_eq!(find("{}", None).await, [1, 2]);
    assert_eq!(find(r#"{"run":"{}"}"#, None).await, [3]);
    assert_eq!(find(r#"{"team":"t"}"#, None).await, [4]);
    assert_eq!(
        find(r#"{"agent":"agt_01h455vb4pex5vsknk084sn02q"}"#, None).await,
        [0; 0]
    );
}

/// In the same batch, too; and a second open one is not written.
pub async fn of_one_scope_and_unit_one_budget_is_open(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let (one, two) = (budget(2, "{}", "TOKENS"), budget(1, "{}", "TOKENS"));
    put_budgets(&*store, &mut chain, &[&one]).await;
    let mut doomed = chain.clone();
    let mut second = batch(&mut doomed);
    second.budgets.budgets.push((chain.tenant, two.clone()));
    refused(&*store, &second).await;
    let closed = one.close().unwrap();
    put_budgets(&*store, &mut chain, &[&two, &closed]).await;
    let open = by_scope(&chain, &[("{}", None)]);
    assert_eq!(find(&*store, &chain, &open).await, std::slice::from_ref(&two));
    assert_eq!(find(&*store, &chain, &by_id(&chain, &[&one])).await, [closed]);
    let have = async |chain: &Chain| {
        let mut turn = store.begin(&[]).await.unwrap();
        let found = turn.have_budgets(&[chain.tenant]).await.unwrap();
        drop(turn);
        assert_eq!(
            overdue(&*store, chain.tenant, 0, 1).await,
            (Vec::new(), !found.is_empty())
        );
        found
    };
    assert_eq!(have(&chain).await, [chain.tenant]);
    put_budgets(&*store, &mut chain, &[&two.close().unwrap()]).await;
    assert_eq!(have(&chain).await, []);
    assert_eq!(have(&Chain::new(9)).await, []);
}

/// Newest first, page by page.
pub async fn budgets_are_listed_by_unit_and_whether_they_are_open(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut all = [
        budget(1, "{}", "TOKENS"),
        budget(2, "{}", "CREDITS"),
        budget(3, r#"{"tool":"t"}"#, "TOKENS"),
        budget(4, r#"{"tool":"u"}"#, "TOKENS"),
    ];
    all[2] = all[2].close().unwrap();
    put_budgets(&*store, &mut chain, &all.iter().collect::<Vec<_>>()).await;
    let list = async |in_unit: Option<&str>, is_open, before: Option<usize>, limit| {
        let filter = BudgetFilter {
            unit: in_unit.map(unit),
            is_open,
        };
        let before = before.map(|number| all[number - 1].id);
        let found = store
            .list_budgets(chain.tenant, &filter, before, limit)
            .await
            .unwrap();
        found
            .found
            .iter()
            .map(|budget| budget.id.as_bytes()[0])
            .collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, None, 10).await, [4, 3, 2, 1]);
    assert_eq!(list(None, None, Some(4), 2).await, [3, 2]);
    assert_eq!(list(Some("TOKENS"), Some(true), None, 10).await, [4, 1]);
    assert_eq!(list(None, Some(false), None, 10).await, [3]);
    // What is looked at to find them is what they say of themselves.
    let places: Vec<_> = all.iter().rev().map(BudgetPlace::of).collect();
    for (before, limit, expected) in [(None, 10, &places[..]), (Some(all[3].id), 2, &places[1..3])] {
        let found = store.budget_places(chain.tenant, before, limit);
        assert_eq!(found.await.unwrap(), expected);
    }
    assert_eq!(store.count_budgets(chain.tenant).await.unwrap(), 3);
}

/// Also behind all that there ever were; and what is open on one page, wherever it is, unless it is in one unit.
pub async fn budgets_are_looked_for_among_so_many_at_a_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let numbered = |number: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        BudgetId::from_bytes(id)
    };
    let wanted = Budget {
        id: numbered(0),
        ..budget(1, "{}", "CREDITS")
    };
    let others = (1..=LOOKED_AT_MAX + 1).map(|number| Budget {
        id: numbered(number),
        ..budget(1, &format!(r#"{{"run":"r{number}"}}"#), "TOKENS")
    });
    let others: Vec<_> = others.collect();
    put_budgets(&*store, &mut chain, &[&wanted]).await;
    put_budgets(&*store, &mut chain, &others.iter().collect::<Vec<_>>()).await;
    let tenant = chain.tenant;
    let list = async |in_unit: Option<&str>, is_open, before| {
        let filter = BudgetFilter {
            unit: in_unit.map(unit),
            is_open,
        };
        let part = store.list_budgets(tenant, &filter, before, 10).await.unwrap();
        let ids: Vec<_> = part.found.iter().map(|budget| budget.id).collect();
        (ids, part.next)
    };
    let credits = Some("CREDITS");
    for is_open in [None, Some(true)] {
        let (found, next) = list(credits, is_open, None).await;
        assert_eq!((found, next), (vec![], Some(numbered(2))));
        assert_eq!(list(credits, is_open, next).await, (vec![wanted.id], None));
    }
    let (found, next) = list(None, Some(false), None).await;
    assert_eq!((found, next), (vec![], Some(numbered(2))));
    assert_eq!(list(None, Some(false), next).await, (vec![], None));
    let closed: Vec<_> = others.iter().map(|other| other.close().unwrap()).collect();
    put_budgets(&*store, &mut chain, &closed.iter().collect::<Vec<_>>()).await;
    for in_unit in [None, credits] {
        assert_eq!(list(in_unit, Some(true), None).await, (vec![wanted.id], None));
    }
    let (found, next) = list(credits, None, None).await;
    assert_eq!((found, next), (vec![], Some(numbered(2))));
    assert_eq!(list(credits, None, next).await, (vec![wanted.id], None));
    let (found, next) = list(None, Some(false), Some(numbered(12))).await;
    assert_eq!((found.len(), next), (10, Some(numbered(2))));
    assert_eq!(list(None, Some(false), next).await, (vec![numbered(1)], None));
}

/// In the order of the scopes, and each of them by the bytes of its units, page by page.
pub async fn open_budgets_are_listed_by_what_they_are_for(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, mut other) = (Chain::new(1), Chain::new(2));
    let tool = r#"{"tool":"a \"b\" Zoë"}"#;
    let mut all = [
        budget(5, "{}", "B"),
        budget(4, "{}", "a"),
        budget(3, "{}", "A"),
        budget(2, tool, "A"),
        budget(1, tool, "é"),
        budget(6, tool, "C"),
        budget(7, r#"{"tool":"u"}"#, "A"),
    ];
    all[5] = all[5].close().unwrap();
    put_budgets(&*store, &mut chain, &all.iter().collect::<Vec<_>>()).await;
    put_budgets(&*store, &mut other, &[&budget(8, "{}", "A")]).await;
    let list = async |scopes: &[&str], in_unit: Option<&str>, after: Option<&str>, limit| {
        let wanted = OpenBudgets {
            tenant: chain.tenant,
            scopes: scopes.iter().map(|of| scope(of)).collect(),
            unit: in_unit.map(unit),
            after: after.map(unit),
            limit,
        };
        let found = store.open_budgets(&wanted).await.unwrap();
        let numbers = found.iter().map(|budget| budget.id.as_bytes()[0]);
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(list(&["{}", tool], None, None, 10).await, [3, 5, 4, 2, 1]);
    assert_eq!(list(&[tool, "{}"], None, None, 4).await, [2, 1, 3, 5]);
    // Behind a unit in the first scope, whether it is there or not, and from the beginning in the next one.
    assert_eq!(list(&["{}", tool], None, Some("B"), 2).await, [4, 2]);
    assert_eq!(list(&["{}", tool], None, Some("AA"), 2).await, [5, 4]);
    assert_eq!(list(&["{}", tool], None, Some("a"), 10).await, [2, 1]);
    assert_eq!(list(&["{}", tool], Some("A"), None, 10).await, [3, 2]);
    assert_eq!(list(&["{}", tool], Some("A"), None, 1).await, [3]);
    assert_eq!(list(&["{}", tool], Some("A"), Some("A"), 10).await, [2]);
    assert_eq!(list(&["{}", tool], Some("AA"), None, 10).await, [0; 0]);
    assert_eq!(list(&[], None, None, 10).await, [0; 0]);
    let there = find(&*store, &chain, &by_id(&chain, &[&all[0]])).await;
    assert_eq!(there, [all[0].clone()], "as it was written");
}

/// Held, settled, in lists, and by what should have ended.
pub async fn reservations_are_as_they_were_written_last(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let all: Vec<_> = (1..=4)
        .map(|number| reservation(number, 1_000 * i64::from(number)))
        .collect();
    put_reservations(&*store, &mut one, &all).await;
    put_reservations(&*store, &mut two, &all[..1]).await;
    let settled = all[1].release();
    put_reservations(&*store, &mut one, std::slice::from_ref(&settled)).await;
    let store = fixture.reopen().await;
    assert_eq!(
        store.reservation(one.tenant, all[1].id).await.unwrap(),
        Some(settled.clone())
    );
    assert_eq!(store.reservation(two.tenant, all[1].id).await.unwrap(), None);
    let find = async |ids: &[usize], ended_by: i64, limit| {
        let wanted = WantedReservations {
            ids: ids
                .iter()
                .map(|number| (one.tenant, all[number - 1].id))
                .collect(),
            tenants: vec![one.tenant],
            ended_by: Timestamp::from_millis(ended_by),
            limit,
        };
        let mut turn = store.begin(&[one.tenant]).await.unwrap();
        let mut found = turn.find_reservations(&wanted).await.unwrap();
        found.sort_by_key(|(_, reservation)| reservation.id);
        assert!(found.iter().all(|(tenant, _)| *tenant == one.tenant));
        found
            .into_iter()
            .map(|(_, reservation)| reservation)
            .collect::<Vec<_>>()
    };
    assert_eq!(find(&[2], 999, 10).await, std::slice::from_ref(&settled));
    assert_eq!(
        find(&[1, 2], 3_000, 10).await,
        [all[0].clone(), settled, all[2].clone()]
    );
    assert_eq!(find(&[], 4_000, 2).await.len(), 2);
    let ended = store
        .overdue_reservations(&[], Timestamp::from_millis(1_000), 10)
        .await
        .unwrap();
    assert_eq!(ended.len(), 2, "one of each tenant");
    for (tenant, id) in &ended {
        let found = overdue(&*store, *tenant, 1_000, 10).await;
        assert_eq!(found, (vec![*id], false), "of one tenant");
    }
    let found = overdue(&*store, one.tenant, 3_999, 10).await;
    assert_eq!(found, (vec![all[0].id, all[2].id], false), "not what is settled");
    assert_eq!(overdue(&*store, one.tenant, 4_000, 2).await.0.len(), 2);
    let list = async |status, agent, before: Option<usize>, limit| {
        let filter = ReservationFilter { status, agent };
        let before = before.map(|number| all[number - 1].id);
        let found = store
            .list_reservations(one.tenant, &filter, before, limit)
            .await
            .unwrap();
        found
            .found
            .iter()
            .map(|reservation| reservation.id.as_bytes()[0])
            .collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, None, 10).await, [4, 3, 2, 1]);
    assert_eq!(list(None, None, Some(4), 2).await, [3, 2]);
    assert_eq!(
        list(Some(ReservationStatus::Active), Some(agent_id(0)), None, 10).await,
        [4]
    );
}

/// Of all tenants, whoever has more of them.
pub async fn reservations_that_should_have_ended_first_are_found_first(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let ending = |number: u8| reservation(number, 1_000 * i64::from(number));
    put_reservations(&*store, &mut one, &[6, 4, 2, 5].map(ending)).await;
    put_reservations(&*store, &mut two, &[3, 1, 7].map(ending)).await;
    put_reservations(&*store, &mut one, &[ending(2).release()]).await;
    let (first, second) = (one.tenant, two.tenant);
    let found_but = async |except: &[TenantId], ended_by, limit| {
        let found = store
            .overdue_reservations(except, Timestamp::from_millis(ended_by), limit)
            .await
            .unwrap();
        let found = found.into_iter().map(|(tenant, id)| (tenant, id.as_bytes()[0]));
        found.collect::<Vec<_>>()
    };
    let found = async |ended_by, limit| found_but(&[], ended_by, limit).await;
    let (one, two) = (first, second);
    let all = [(two, 1), (two, 3), (one, 4), (one, 5), (one, 6), (two, 7)];
    assert_eq!(found(7_000, 10).await, all);
    assert_eq!(found(7_000, 3).await, all[..3]);
    assert_eq!(found(4_999, 10).await, all[..3]);
    assert_eq!(found(999, 10).await, []);
    assert_eq!(found_but(&[two], 7_000, 2).await, all[2..4]);
    assert_eq!(found_but(&[one, two], 7_000, 2).await, []);
}

/// Also behind all that others have held; and what is held on one page, wherever it is, unless it is as much itself.
pub async fn reservations_are_looked_for_among_so_many_at_a_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let numbered = |number: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        ReservationId::from_bytes(id)
    };
    let many = |held: &Reservation| {
        let rows = (1..=LOOKED_AT_MAX + 1).map(|number| Reservation {
            id: numbered(number),
            ..held.clone()
        });
        rows.collect::<Vec<_>>()
    };
    let mut wanted = reservation(1, 1_000);
    wanted.id = numbered(0);
    put_reservations(&*store, &mut chain, &[wanted.clone()]).await;
    put_reservations(&*store, &mut chain, &many(&reservation(2, 2_000).release())).await;
    let tenant = chain.tenant;
    let list = async |status, agent, before| {
        let filter = ReservationFilter { status, agent };
        let part = store
            .list_reservations(tenant, &filter, before, 10)
            .await
            .unwrap();
        let ids: Vec<_> = part.found.iter().map(|held| held.id).collect();
        (ids, part.next)
    };
    let active = Some(ReservationStatus::Active);
    for agent in [None, Some(wanted.agent)] {
        assert_eq!(list(active, agent, None).await, (vec![wanted.id], None));
    }
    let (found, next) = list(None, Some(wanted.agent), None).await;
    assert_eq!((found, next), (vec![], Some(numbered(2))));
    assert_eq!(
        list(None, Some(wanted.agent), next).await,
        (vec![wanted.id], None)
    );
    let expired = Some(ReservationStatus::Expired);
    let (found, next) = list(expired, None, None).await;
    assert_eq!((found, next), (vec![], Some(numbered(2))));
    assert_eq!(list(expired, None, next).await, (vec![], None));
    put_reservations(&*store, &mut chain, &many(&reservation(2, 2_000))).await;
    let (found, next) = list(active, Some(wanted.agent), None).await;
    assert_eq!((found, next), (vec![], Some(numbered(2))));
    assert_eq!(
        list(active, Some(wanted.agent), next).await,
        (vec![wanted.id], None)
    );
}

/// Of those that are held, and by each tenant for itself.
pub async fn the_first_end_is_that_of_what_is_held(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two, mut three) = (Chain::new(1), Chain::new(2), Chain::new(3));
    let all: Vec<_> = (1..=3)
        .map(|number| reservation(number, 1_000 * i64::from(number)))
        .collect();
    put_reservations(&*store, &mut one, &all).await;
    put_reservations(&*store, &mut one, &[all[1].release()]).await;
    put_reservations(&*store, &mut two, &all[1..2]).await;
    put_reservations(&*store, &mut three, &[all[0].release()]).await;
    let tenants = [one.tenant, two.tenant, three.tenant];
    let first_ends = async |after: i64| {
        let mut turn = store.begin(&tenants).await.unwrap();
        let after = Timestamp::from_millis(after);
        let mut found = turn.find_first_ends(&tenants, after).await.unwrap();
        found.sort_unstable();
        found
    };
    let at = |chain: &Chain, millis| (chain.tenant, Timestamp::from_millis(millis));
    assert_eq!(first_ends(999).await, [at(&one, 1_000), at(&two, 2_000)]);
    assert_eq!(first_ends(1_000).await, [at(&one, 3_000), at(&two, 2_000)]);
    assert_eq!(first_ends(2_000).await, [at(&one, 3_000)]);
    assert_eq!(first_ends(3_000).await, []);
}

/// The first word about a run counts, and ancestries are found whole.
pub async fn an_ancestry_of_runs_is_found_upwards_and_never_changed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let link = |run: &str, parent: &str| {
        let link = RunLink {
            run_id: name(run),
            parent: name(parent),
        };
        (Chain::new(1).tenant, link)
    };
    let mut rows = batch(&mut chain);
    rows.budgets.links = vec![link("c", "b"), link("b", "a"), link("x", "y"), link("r", "r")];
    commit(&*store, &rows).await;
    let mut rows = batch(&mut chain);
    rows.budgets.links = vec![link("c", "z")];
    commit(&*store, &rows).await;
    let find = async |runs: &[&str]| {
        let runs: Vec<_> = runs.iter().map(|run| (chain.tenant, name(run))).collect();
        let mut turn = store.begin(&[chain.tenant]).await.unwrap();
        let mut found = turn.find_run_links(&runs).await.unwrap();
        drop(turn);
        let mut read = store.run_links(&runs).await.unwrap();
        found.sort_by_key(|(_, link)| link.run_id.clone());
        read.sort_by_key(|(_, link)| link.run_id.clone());
        assert_eq!(found, read, "the turn and the reader differ");
        found
    };
    assert_eq!(find(&["c"]).await, [link("b", "a"), link("c", "b")]);
    assert_eq!(find(&["r", "a"]).await, [link("r", "r")]);
    assert_eq!(find(&[]).await, []);
    let list = async |after: Option<&str>, limit| {
        let after = after.map(name);
        let links = store.run_links_after(chain.tenant, after.as_ref(), limit).await;
        let links = links.unwrap().into_iter();
        links.map(|link| link.run_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 3).await, ["b", "c", "r"]);
    assert_eq!(list(Some("c"), 3).await, ["r", "x"]);
}

/// To whom they were given, and to nobody else.
pub async fn an_answer_is_found_by_who_asked_and_under_which_key(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let key = |caller: u8, key: &str| ReplyKey {
        tenant: Chain::new(1).tenant,
        caller: [caller; 16],
        key: name(key),
    };
    let reply = |key: ReplyKey, bytes: &[u8]| ReplyRow {
        request: Digest::of(bytes),
        bytes: bytes.to_vec().into(),
        at: Timestamp::from_millis(7),
        key,
    };
    let mut rows = batch(&mut chain);
    let given = [
        reply(key(1, "a \"b\""), b"\x00\xff"),
        reply(key(2, "a \"b\""), b"{}"),
    ];
    rows.budgets.replies = given.to_vec();
    commit(&*store, &rows).await;
    let mut again = batch(&mut chain.clone());
    again.budgets.replies = vec![reply(key(1, "a \"b\""), b"other")];
    let error = refused(&*store, &again).await;
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error}");
    let find = async |keys: &[ReplyKey]| {
        let mut turn = store.begin(&[chain.tenant]).await.unwrap();
        turn.find_replies(keys).await.unwrap()
    };
    assert_eq!(find(&[key(1, "a \"b\"")]).await, given[..1]);
    let first = store.reply(&given[0].key).await.unwrap();
    assert_eq!(first.as_ref(), Some(&given[0]));
    assert_eq!(store.reply(&key(3, "a \"b\"")).await.unwrap(), None);
    assert_eq!(
        find(&[key(1, "a"), key(2, "a \"b\""), key(3, "a \"b\"")]).await,
        given[1..]
    );
    assert_eq!(find(&[]).await, []);
    let list = async |after: Option<&ReplyKey>, limit| {
        let replies = store.replies_after(chain.tenant, after, limit).await;
        replies.unwrap()
    };
    assert_eq!(list(None, 5).await, given);
    assert_eq!(list(None, 1).await, given[..1]);
    assert_eq!(list(Some(&given[0].key), 5).await, given[1..]);
    assert_eq!(
        store.replies_after(Chain::new(2).tenant, None, 5).await.unwrap(),
        []
    );
}

async fn write_in_turn(store: &dyn Store, tenants: &[TenantId], batch: &Batch) -> Result<(), CommitError> {
    let turn = store.begin(tenants).await;
    let turn = turn.map_err(|error| CommitError::NotWritten(Box::new(error)))?;
    turn.commit(batch).await
}

/// What was asked for may have been so already: then there is an answer and no entry, and the chain goes on as if
/// nothing had been written.
pub async fn an_answer_is_kept_where_nothing_moves(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, mut other) = (Chain::new(1), Chain::new(2));
    put_budgets(&*store, &mut chain, &[]).await;
    let reply = |key: &str| ReplyRow {
        key: ReplyKey {
            tenant: Chain::new(1).tenant,
            caller: [1; 16],
            key: name(key),
        },
        request: Digest::ZERO,
        bytes: b"{}".to_vec().into(),
        at: Timestamp::from_millis(7),
    };
    let tenants = [chain.tenant, other.tenant];
    let mut alone = Batch::default();
    alone.budgets.replies.push(reply("alone"));
    let written = settle(|| write_in_turn(&*store, &tenants, &alone)).await;
    written.unwrap();
    let again = settle(|| write_in_turn(&*store, &tenants, &alone)).await;
    let again = again.unwrap_err();
    assert!(matches!(again, CommitError::AlreadyRecorded), "{again}");
    let mut beside = batch(&mut other);
    beside.budgets.replies.push(reply("beside"));
    let written = settle(|| write_in_turn(&*store, &tenants, &beside)).await;
    written.unwrap();
    put_budgets(&*store, &mut chain, &[]).await;
    let store = fixture.reopen().await;
    let kept = store.replies_after(chain.tenant, None, 5).await.unwrap();
    assert_eq!(kept, [reply("alone"), reply("beside")]);
}

/// Those that were given before, of all tenants and some at a time; then the key is free.
pub async fn answers_are_forgotten_that_were_given_long_ago(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let reply = |chain: &Chain, at: i64| ReplyRow {
        key: ReplyKey {
            tenant: chain.tenant,
            caller: [1; 16],
            key: name(&format!("{at:06}")),
        },
        request: Digest::ZERO,
        bytes: b"{}".to_vec().into(),
        at: Timestamp::from_millis(at),
    };
    // More than are forgotten at once.
    let many = 2_500;
    let mut rows = batch(&mut one);
    rows.budgets.replies = (0..many).map(|at| reply(&one, at)).collect();
    commit(&*store, &rows).await;
    let mut rows = batch(&mut two);
    rows.budgets.replies = vec![reply(&two, 5), reply(&two, many)];
    commit(&*store, &rows).await;
    assert_eq!(store.forget_replies(Timestamp::from_millis(0)).await.unwrap(), 0);
    let (before, mut forgotten, mut times) = (Timestamp::from_millis(many - 1), 0, 0);
    loop {
        match store.forget_replies(before).await.unwrap() {
            0 => break,
            some => forgotten += some,
        }
        times += 1;
    }
    assert_eq!(i64::try_from(forgotten).unwrap(), many);
    assert!(times > 1, "all at once");
    let store = fixture.reopen().await;
    let left = async |chain: &Chain| store.replies_after(chain.tenant, None, 10).await.unwrap();
    assert_eq!(left(&one).await, [reply(&one, many - 1)]);
    assert_eq!(left(&two).await, [reply(&two, many)]);
    let mut rows = batch(&mut one);
    rows.budgets.replies = vec![reply(&one, 5)];
    commit(&*store, &rows).await;
}

/// Together or not at all, as everything in a batch.
pub async fn budgets_are_written_beside_whatever_else_a_batch_changes(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let (one, held) = (budget(1, "{}", "TOKENS"), reservation(1, 1_000));
    let reply = ReplyRow {
        key: ReplyKey {
            tenant: chain.tenant,
            caller: [1; 16],
            key: name("k"),
        },
        request: Digest::ZERO,
        bytes: b"{}".to_vec().into(),
        at: Timestamp::from_millis(1),
    };
    let mut rows = batch(&mut chain);
    chain.put_agent(&mut rows, 1, "builder");
    rows.budgets.budgets.push((chain.tenant, one.clone()));
    rows.budgets.reservations.push((chain.tenant, held.clone()));
    rows.budgets.replies.push(reply.clone());
    commit(&*store, &rows).await;
    let mut again = chain.clone();
    let mut rows = batch(&mut again);
    again.put_agent(&mut rows, 2, "tester");
    let closed = one.close().unwrap();
    rows.budgets.budgets.push((chain.tenant, closed));
    rows.budgets.replies.push(reply);
    let error = refused(&*store, &rows).await;
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error}");
    assert_eq!(find(&*store, &chain, &by_id(&chain, &[&one])).await, [one]);
    assert_eq!(
        store.reservation(chain.tenant, held.id).await.unwrap(),
        Some(held)
    );
    let nouns = &super::load(&*store).await[0].nouns;
    assert_eq!(nouns.len(), 1, "{nouns:?}");
}

/// Backends write a few rows in another way than many.
pub async fn any_number_of_budgets_is_written_at_once(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    for number in [1, 2, 3, 8, 9, 40] {
        let budgets = (0..number).map(|of| budget(of, &format!(r#"{{"run":"r{of}"}}"#), "TOKENS"));
        // Each of them moves with every batch, and is new in one.
        let budgets: Vec<_> = budgets
            .map(|budget| budget.hold(Amount::clamped(number.into())).unwrap())
            .collect();
        let held: Vec<_> = (0..number).map(|of| reservation(of, number.into())).collect();
        let replies = (0..number).map(|of| ReplyRow {
            key: ReplyKey {
                tenant: chain.tenant,
                caller: [number; 16],
                key: name(&of.to_string()),
            },
            request: Digest::of(&[of]),
            bytes: vec![of; 3].into(),
            at: Timestamp::from_millis(of.into()),
        });
        let replies: Vec<_> = replies.collect();
        let tenant = chain.tenant;
        let mut rows = batch(&mut chain);
        rows.budgets.budgets = budgets.iter().map(|budget| (tenant, budget.clone())).collect();
        rows.budgets.reservations = held.iter().map(|held| (tenant, held.clone())).collect();
        rows.budgets.replies.clone_from(&replies);
        commit(&*store, &rows).await;
        let all = budgets.iter().collect::<Vec<_>>();
        assert_eq!(find(&*store, &chain, &by_id(&chain, &all)).await, budgets);
        for held in held {
            assert_eq!(store.reservation(tenant, held.id).await.unwrap(), Some(held));
        }
        let keys: Vec<_> = replies.iter().map(|reply| reply.key.clone()).collect();
        let mut turn = store.begin(&[tenant]).await.unwrap();
        let mut found = turn.find_replies(&keys).await.unwrap();
        found.sort_by_key(|reply| reply.bytes.clone());
        assert_eq!(found, replies);
    }
}

/// Backends write reservations beside entries: of decisions, outcomes and others, of which some move one and others none.
pub async fn reservations_move_with_any_mix_of_entries(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let (mut written, mut moved) = (Vec::new(), 0);
    for (decisions, outcomes, others) in [(1, 0, 0), (11, 0, 0), (5, 3, 0), (5, 3, 2), (0, 0, 7), (9, 0, 1)] {
        let entries = u8::try_from(decisions + outcomes + others).unwrap();
        for held in [1, entries / 2, entries, entries + 3] {
            let mut rows = Batch::default();
            let ids: Vec<_> = (0..decisions)
                .map(|_| chain.decision(&mut rows, &Ask::default()))
                .collect();
            for id in &ids[..outcomes] {
                chain.outcome(&mut rows, *id);
            }
            for number in 0..others {
                let body = canon::of(&number).expect("a number is JSON");
                chain.entry(&mut rows, "budget", Timestamp::from_millis(6), body);
            }
            // Whether a reservation is as it was moved last is told by its end.
            moved += 1;
            let held = (0..held).map(|number| (chain.tenant, reservation(number, moved)));
            rows.budgets.reservations = held.collect();
            commit(&*store, &rows).await;
            for (tenant, held) in &rows.budgets.reservations {
                let found = store.reservation(*tenant, held.id).await.unwrap();
                assert_eq!(found.as_ref(), Some(held));
            }
            written.extend(rows.entries);
        }
    }
    let limit = u32::try_from(written.len() + 1).unwrap();
    let found = store.entries(chain.tenant, 0, limit).await.unwrap();
    let found = found.iter().map(|entry| (entry.seq, entry.hash, &*entry.body));
    let written = written
        .iter()
        .map(|entry| (entry.seq, entry.hash, entry.body.as_str()));
    assert_eq!(found.collect::<Vec<_>>(), written.collect::<Vec<_>>());
}

/// Whether the head has moved or the batch does not hang together.
pub async fn a_batch_that_is_not_written_moves_no_budget(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let one = budget(1, "{}", "TOKENS");
    put_budgets(&*store, &mut chain, &[&one]).await;
    let moved = one.hold(Amount::MAX).unwrap();
    let mut late = batch(&mut Chain::new(1));
    late.budgets.budgets.push((chain.tenant, moved.clone()));
    refused(&*store, &late).await;
    let mut foreign = chain.clone().decisions(1);
    foreign.budgets.budgets.push((Chain::new(2).tenant, moved));
    refused(&*store, &foreign).await;
    assert_eq!(find(&*store, &chain, &by_id(&chain, &[&one])).await, [one]);
}

/// As a gateway writes that was alone with its tenants lately.
pub async fn budgets_are_appended_with_their_batch_or_not_at_all(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let tenant = chain.tenant;
    let one = budget(1, "{}", "TOKENS");
    put_budgets(&*store, &mut chain, &[&one]).await;
    let moving = |chain: &mut Chain, budget: &Budget, held: &Reservation| {
        let mut rows = batch(chain);
        let link = RunLink {
            run_id: name("child"),
            parent: name("parent"),
        };
        let reply = ReplyRow {
            key: ReplyKey {
                tenant,
                caller: *held.id.as_bytes(),
                key: name("k"),
            },
            request: Digest::ZERO,
            bytes: b"{}".to_vec().into(),
            at: Timestamp::from_millis(1),
        };
        rows.budgets.budgets.push((tenant, budget.clone()));
        rows.budgets.reservations.push((tenant, held.clone()));
        rows.budgets.links.push((tenant, link));
        rows.budgets.replies.push(reply);
        rows
    };
    let moved = one.hold(Amount::MAX).unwrap();
    let (held, never) = (reservation(1, 1_000), reservation(2, 1_000));
    let mut beside = chain.clone();
    let rows = moving(&mut chain, &moved, &held);
    store.append(&rows).await.unwrap();
    // From where the head was, and under a key that has its answer.
    let late = moving(&mut beside, &one, &never);
    let error = store.append(&late).await.unwrap_err();
    assert!(matches!(error, CommitError::HeadMoved { .. }), "{error}");
    let again = moving(&mut chain.clone(), &one, &held);
    let error = store.append(&again).await.unwrap_err();
    assert!(matches!(error, CommitError::AlreadyRecorded), "{error}");
    assert_eq!(find(&*store, &chain, &by_id(&chain, &[&one])).await, [moved]);
    let found = store.reservation(tenant, held.id).await.unwrap();
    assert_eq!(found, Some(held));
    assert_eq!(store.reservation(tenant, never.id).await.unwrap(), None);
    let replies = store.replies_after(tenant, None, 5).await.unwrap();
    assert_eq!(replies, rows.budgets.replies);
    let links = store.run_links_after(tenant, None, 5).await.unwrap();
    assert_eq!(links, [rows.budgets.links[0].1.clone()]);
}
