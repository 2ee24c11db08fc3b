//! Decisions are found by what they say, whether the index knows them or not, and whatever becomes of the index.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use engine::search::{BLOCK, version};
use gateway::app::App;
use gateway::gateway::Options;
use gateway::search::page::{Wanted, find};
use gateway::start::{self, Ingredients};
use model::time::{Clock, ManualClock};
use model::{Role, Secret, SecretKind, SystemEntropy};
use policy::BasePolicies;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::faults::FaultyStore;
use store::{BlockClaim, DecisionFilter, IndexedBlock, Posting};
use support::home::{self, Home};
use support::tenancy::{ENTRIES, Tenancy};
use support::{BEGINNING, World, patient, signing_key};

/// Asks in one request.
const ASKS: u64 = 100;
/// How long the index may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_mins(3);

/// What stays when a gateway ends and another one starts in its place.
struct Restarts {
    home: Arc<Home>,
    operator: Secret,
    clock: Arc<ManualClock>,
}

impl Restarts {
    async fn new() -> Self {
        Self {
            home: Arc::new(Home::new().await),
            operator: Secret::mint(SecretKind::ApiKey, &SystemEntropy),
            clock: Arc::new(ManualClock::at(BEGINNING)),
        }
    }

    async fn start(&self) -> World {
        let (home, clock) = (Arc::clone(&self.home), Arc::clone(&self.clock));
        World::join(home, &self.operator, clock, Options::default()).await
    }
}

/// The decision number `n`: each fact has its own rhythm.
fn ask(n: u64) -> Value {
    let action = ["get_file", "create_issue", "merge_pull_request"][usize::try_from(n % 3).unwrap()];
    let trust = ["untrusted_external", "trusted_internal_unsigned"][usize::try_from(n % 2).unwrap()];
    json!({
        "tool_call": {"tool": "github", "action": action, "resource": format!("repo:acme/widgets#{n}"), "parameters": {}},
        "context": {"source_trust": trust},
        "user": {"id": format!("u-{}", n % 100)},
        "trace": {"run_id": format!("run-{}", n / 1_000)},
    })
}

/// Records so many decisions, a second a request.
async fn record(world: &World, tenancy: &Tenancy, from: u64, count: u64) {
    for first in (from..from + count).step_by(usize::try_from(ASKS).unwrap()) {
        let asks: Vec<Value> = (first..(first + ASKS).min(from + count)).map(ask).collect();
        world.clock.advance_millis(1_000);
        let token = if first % 200 == 0 {
            &tenancy.token
        } else {
            &tenancy.other_token
        };
        let answers = world
            .post("/v1/authorize/batch", token, &json!({ "asks": asks }))
            .await;
        answers.expect(200);
    }
}

/// Waits until so many blocks are in the index.
async fn until_indexed(world: &World, tenancy: &Tenancy, blocks: usize) {
    let deadline = Instant::now() + PATIENCE;
    while world.store.indexed(tenancy.id, 0..=100).await.unwrap().len() != blocks {
        assert!(Instant::now() < deadline, "not indexed within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The hash of an entry of another ledger.
fn elsewhere() -> Digest {
    Digest::of(b"another ledger")
}

/// Puts a block of another ledger into the index.
async fn put_foreign(world: &World, tenancy: &Tenancy, block: u64, postings: &[Posting]) {
    let foreign = IndexedBlock {
        block,
        end: elsewhere(),
        token: version::token(7),
        made_at: None,
    };
    put(world, tenancy, &foreign, postings).await;
}

/// Puts a block into the index, over the one that is there.
async fn put(world: &World, tenancy: &Tenancy, block: &IndexedBlock, postings: &[Posting]) {
    let claim = BlockClaim {
        token: block.token,
        now: BEGINNING,
        until: BEGINNING,
        by_force: true,
    };
    let (store, tenant) = (&world.store, tenancy.id);
    assert!(store.claim_block(tenant, block.block, &claim).await.unwrap());
    assert!(store.put_block(tenant, block, postings).await.unwrap());
}

/// Everything that a search finds, page by page.
async fn all(world: &World, filter: &str, limit: u64, key: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/decisions?limit={limit}{filter}{cursor}");
        let mut page = world.get(&path, key).await.expect(200);
        found.append(page["items"].as_array_mut().unwrap());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

fn seqs(decisions: &[Value]) -> Vec<u64> {
    decisions
        .iter()
        .map(|decision| decision["seq"].as_u64().unwrap())
        .collect()
}

/// A search, and what it has to find.
type Case = (&'static str, fn(&Value) -> bool);

const CASES: &[Case] = &[
    ("&action=get_file", |one| one["action"] == "get_file"),
    ("&decision=deny", |one| one["decision"] == "deny"),
    ("&decision=allow&action=create_issue", |one| {
        one["decision"] == "allow" && one["action"] == "create_issue"
    }),
    ("&reason_code=policy_forbids&user=u-4", |one| {
        one["reason_code"] == "policy_forbids" && one["user"] == "u-4"
    }),
    ("&user=u-7", |one| one["user"] == "u-7"),
    ("&user=u-70000", |_| false),
    ("&run_id=run-2", |one| one["run_id"] == "run-2"),
    ("&tool=gitlab", |_| false),
    ("&q=widgets", |_| true),
    ("&q=ACME+issue", |one| one["action"] == "create_issue"),
    ("&q=repo:acme/widgets%2342", |one| {
        one["resource"].as_str().unwrap().contains("#42")
    }),
    ("&q=merge&run_id=run-1", |one| {
        one["action"] == "merge_pull_request" && one["run_id"] == "run-1"
    }),
    (
        "&from=2026-01-31T09:30:10.000Z&to=2026-01-31T09:30:20.000Z&user=u-7",
        |one| {
            let at = one["at"].as_str().unwrap();
            one["user"] == "u-7" && ("2026-01-31T09:30:10.000Z".."2026-01-31T09:30:20.000Z").contains(&at)
        },
    ),
];

/// Every search finds what it has to, in pages of every size, newest first.
async fn assert_finds(world: &World, tenancy: &Tenancy) {
    let everything = all(world, "", 500, &tenancy.auditor).await;
    for (filter, is_wanted) in CASES {
        let expected: Vec<Value> = everything.iter().filter(|one| is_wanted(one)).cloned().collect();
        let found = all(world, filter, 500, &tenancy.auditor).await;
        assert_eq!(seqs(&found), seqs(&expected), "{filter}");
    }
    let by_seven = all(world, "&user=u-7", 500, &tenancy.auditor).await;
    assert_eq!(all(world, "&user=u-7", 7, &tenancy.auditor).await, by_seven);
    let of_agent = all(world, "&user=u-7", 500, &tenancy.token).await;
    assert!(!of_agent.is_empty() && of_agent.len() < by_seven.len());
    assert!(
        of_agent
            .iter()
            .all(|one| one["agent"] == tenancy.agent.to_string())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_finds_the_same_before_and_after_it_is_indexed() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    record(&world, &tenancy, 0, 2 * BLOCK + 300).await;
    let everything = all(&world, "", 500, &tenancy.auditor).await;
    assert_eq!(everything.len() as u64, 2 * BLOCK + 300);
    until_indexed(&world, &tenancy, 2).await;
    assert_finds(&world, &tenancy).await;
    // In neither of these is anything known of the first block.
    let claim = BlockClaim {
        token: 7,
        now: BEGINNING,
        until: world.clock.now().plus_millis(60_000),
        by_force: true,
    };
    assert!(world.store.claim_block(tenancy.id, 0, &claim).await.unwrap());
    assert_finds(&world, &tenancy).await;
    let other = world.tenancy("other").await;
    assert!(all(&world, "&q=widgets", 500, &other.auditor).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_large_or_has_the_term_of_another_is_found_alike_before_and_after_it_is_indexed() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let mut large = ask(0);
    large["user"]["id"] = json!("u-large");
    large["context"]["attributes"] = json!({"text": "x".repeat(200_000)});
    for _ in 0..25 {
        world.authorize(&tenancy.token, &large).await;
    }
    // An index knows the two by one number.
    let runs = ["run-30-YTXR7Go-JUP", "run-30-IKOPBEJ5Kci"];
    for run in runs {
        let mut of_run = ask(0);
        of_run["trace"]["run_id"] = json!(run);
        world.authorize(&tenancy.token, &of_run).await;
    }
    let search = async |filter: &str| seqs(&all(&world, filter, 500, &tenancy.auditor).await);
    let found = async || {
        [
            search("&user=u-large").await,
            search(&format!("&run_id={}", runs[0])).await,
            search(&format!("&run_id={}", runs[1])).await,
        ]
    };
    let first = ENTRIES + 1;
    let expected = [
        (first..first + 25).rev().collect(),
        vec![first + 25],
        vec![first + 26],
    ];
    assert_eq!(found().await, expected);
    record(&world, &tenancy, 0, BLOCK).await;
    until_indexed(&world, &tenancy, 1).await;
    assert_eq!(found().await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_search_do_not_shift_while_decisions_arrive() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    record(&world, &tenancy, 0, BLOCK + 100).await;
    until_indexed(&world, &tenancy, 1).await;
    let before = seqs(&all(&world, "&user=u-7", 500, &tenancy.auditor).await);
    let mut cursor = String::new();
    let mut seen = Vec::new();
    loop {
        let path = format!("/v1/decisions?user=u-7&limit=2{cursor}");
        let page = world.get(&path, &tenancy.auditor).await.expect(200);
        seen.extend(seqs(page["items"].as_array().unwrap()));
        record(&world, &tenancy, 7, 1).await;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_lies_is_not_believed_and_one_of_another_ledger_is_made_again() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    // It proposes everything, stands for a ledger that ends otherwise, and has more blocks than are taken out in a turn.
    let user = model::Name::new("u-7").unwrap();
    let query = engine::search::Query::new(&DecisionFilter::default(), Some(&user), &[]);
    let posting = Posting {
        term: query.terms()[0],
        places: vec![0xff; 256],
    };
    for block in 0..40 {
        put_foreign(&world, &tenancy, block, std::slice::from_ref(&posting)).await;
    }
    record(&world, &tenancy, 0, BLOCK - 100).await;
    // Of the other user it knows nothing.
    for user in ["u-7", "u-8"] {
        let found = all(&world, &format!("&user={user}"), 500, &tenancy.auditor).await;
        assert_eq!(found.len(), 20);
        assert!(found.iter().all(|one| one["user"] == user));
    }
    // Now the block is finished, and the index is compared with the ledger.
    record(&world, &tenancy, BLOCK - 100, 200).await;
    let deadline = Instant::now() + PATIENCE;
    while world
        .store
        .indexed(tenancy.id, 0..=9)
        .await
        .unwrap()
        .first()
        .map(|block| block.end)
        == Some(elsewhere())
    {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_indexed(&world, &tenancy, 1).await;
    assert_finds(&world, &tenancy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_block_of_another_ledger_is_not_believed() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    record(&world, &tenancy, 0, BLOCK).await;
    until_indexed(&world, &tenancy, 1).await;
    // As if a ledger that was put back had grown over it, and the job had not looked at it since.
    put_foreign(&world, &tenancy, 0, &[]).await;
    assert_finds(&world, &tenancy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_of_an_earlier_version_is_read_from_the_ledger_until_it_is_made_again() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    record(&world, &tenancy, 0, 2 * BLOCK).await;
    until_indexed(&world, &tenancy, 2).await;
    let indexed = async || world.store.indexed(tenancy.id, 0..=9).await.unwrap();
    let before = indexed().await;
    assert!(before.iter().all(|block| version::is_current(block.token)));
    // It is of this ledger, and knows no word of it.
    let earlier = IndexedBlock {
        token: 7,
        ..before[0]
    };
    put(&world, &tenancy, &earlier, &[]).await;
    let everything = all(&world, "", 500, &tenancy.auditor).await;
    let found = all(&world, "&q=widgets", 500, &tenancy.auditor).await;
    assert_eq!(seqs(&found), seqs(&everything));
    world.gateway.indexing.look_at_all_of(tenancy.id);
    let deadline = Instant::now() + PATIENCE;
    while !indexed()
        .await
        .first()
        .is_some_and(|block| version::is_current(block.token) && block.block == 0)
    {
        assert!(Instant::now() < deadline, "not made again within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let after = indexed().await;
    assert_eq!(
        (after.len(), after[1]),
        (2, before[1]),
        "what is of this version stays"
    );
    assert_finds(&world, &tenancy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_looks_so_much_up_and_says_where_to_go_on() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    record(&world, &tenancy, 0, 2 * BLOCK).await;
    until_indexed(&world, &tenancy, 2).await;
    // So many words that one block takes all that a call may look up.
    let words: Vec<String> = (0..70_000).map(|n| format!("w{n}")).collect();
    let mut next = Some(2 * BLOCK + ENTRIES + 1);
    let mut pages = Vec::new();
    while let Some(end) = next {
        let wanted = Wanted {
            filter: DecisionFilter::default(),
            user: None,
            words: words.clone(),
            seqs: 1..end,
            limit: 10,
        };
        let found = find(&*world.store, tenancy.id, wanted).await.unwrap();
        assert!(found.decisions.is_empty());
        next = found.next;
        pages.push(next);
    }
    assert_eq!(pages, [Some(BLOCK + 1), None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_compares_so_much_in_vain_and_says_where_to_go_on() {
    const LARGE: u64 = 200;
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let mut large = ask(0);
    large["context"]["attributes"] = json!({"text": "x".repeat(200_000)});
    for n in 0..LARGE {
        large["user"]["id"] = json!(if n == 0 { "u-first" } else { "u-other" });
        world.authorize(&tenancy.token, &large).await;
    }
    let first = ENTRIES + 1;
    let user = model::Name::new("u-first").unwrap();
    // Where the pages end that do not come to the one that is wanted.
    let search = async || {
        let mut next = Some(world.store.head(tenancy.id).await.unwrap().seq + 1);
        let (mut seqs, mut ends) = (Vec::new(), Vec::new());
        while let Some(end) = next {
            let wanted = Wanted {
                filter: DecisionFilter::default(),
                user: Some(user.clone()),
                words: Vec::new(),
                seqs: 1..end,
                limit: 10,
            };
            let found = find(&*world.store, tenancy.id, wanted).await.unwrap();
            seqs.extend(found.decisions.iter().map(|decision| decision.seq));
            ends.extend(found.next);
            next = found.next;
        }
        assert_eq!(seqs, [first]);
        ends
    };
    let is_large = |end: &u64| (first + 1..first + LARGE).contains(end);
    let read = search().await;
    assert!(read.first().is_some_and(is_large), "{read:?}");
    record(&world, &tenancy, 0, BLOCK).await;
    until_indexed(&world, &tenancy, 1).await;
    // It proposes everything, as one does of which all else has the term of what is wanted.
    let query = engine::search::Query::new(&DecisionFilter::default(), Some(&user), &[]);
    let posting = Posting {
        term: query.terms()[0],
        places: vec![0xff; 256],
    };
    let block = IndexedBlock {
        token: version::token(7),
        ..world.store.indexed(tenancy.id, 0..=0).await.unwrap()[0]
    };
    put(&world, &tenancy, &block, &[posting]).await;
    let proposed = search().await;
    assert!(proposed.first().is_some_and(is_large), "{proposed:?}");
    assert!(proposed[0] > read[0], "small ones count, too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_cannot_be_indexed_keeps_no_other_from_it() {
    let home = Arc::new(Home::new().await);
    let faults = Arc::new(FaultyStore::new(home.open().await));
    let clock = Arc::new(ManualClock::at(BEGINNING));
    let ingredients = Ingredients {
        store: faults.clone(),
        clock: clock.clone(),
        entropy: Arc::new(SystemEntropy),
        signing_key: signing_key(),
        base_policies: BasePolicies::shipped(),
        base_file: None,
        options: patient(Options::default()),
    };
    let (gateway, _) = start::start(ingredients).await.unwrap();
    let world = World {
        app: App::new(&gateway),
        gateway,
        store: faults.clone(),
        clock,
        operator: String::new(),
        home,
    };
    let mut tenancies = [world.tenancy("acme").await, world.tenancy("other").await];
    tenancies.sort_by_key(|tenancy| tenancy.id);
    let [first, second] = tenancies;
    faults.fail_index_of(Some(first.id));
    for tenancy in [&first, &second] {
        record(&world, tenancy, 0, BLOCK).await;
    }
    until_indexed(&world, &second, 1).await;
    faults.fail_index_of(None);
    until_indexed(&world, &first, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_there_after_a_restart_and_made_again_when_it_is_damaged() {
    if home::is_postgres() {
        return; // There it is tables, whose damage the server sees to.
    }
    let restarts = Restarts::new().await;
    let (home, start) = (&restarts.home, || restarts.start());
    let world = start().await;
    let tenancy = world.tenancy("acme").await;
    record(&world, &tenancy, 0, BLOCK + 100).await;
    until_indexed(&world, &tenancy, 1).await;
    world.store.close().await;
    drop(world);
    let index = home.url().replace("sqlite:", "") + "-search";
    let world = start().await;
    assert_eq!(world.store.indexed(tenancy.id, 0..=9).await.unwrap().len(), 1);
    world.store.close().await;
    drop(world);
    let mut half = std::fs::read(&index).unwrap();
    half[8_192..].fill(0xff);
    for damage in [&half[..], b"no database", &[7; 10_000]] {
        std::fs::write(&index, damage).unwrap();
        let world = start().await;
        until_indexed(&world, &tenancy, 1).await;
        assert_finds(&world, &tenancy).await;
        world.store.close().await;
        drop(world);
    }
    std::fs::remove_file(&index).unwrap();
    let world = start().await;
    until_indexed(&world, &tenancy, 1).await;
    assert_finds(&world, &tenancy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_erased_and_came_back_with_a_backup_is_found_again() {
    if home::is_postgres() {
        return; // There the index is a part of the database, and comes back with it.
    }
    let restarts = Restarts::new().await;
    let (home, start) = (&restarts.home, || restarts.start());
    let world = start().await;
    let tenancy = world.tenancy("acme").await;
    record(&world, &tenancy, 0, BLOCK + 100).await;
    until_indexed(&world, &tenancy, 1).await;
    let before = seqs(&all(&world, "&user=u-7", 500, &tenancy.auditor).await);
    let backup = home.file().with_extension("backup");
    let options = SqliteConnectOptions::new().filename(home.file());
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    let copying = sqlx::query("VACUUM INTO ?").bind(backup.to_str().unwrap());
    copying.execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    let what = json!({"user": "u-7"});
    let erased = world.post("/v1/ledger/erase", &admin, &what).await.expect(200);
    // What people are asked about waits until they have answered.
    let counts = ["erased", "waiting"].map(|count| usize::try_from(erased[count].as_u64().unwrap()).unwrap());
    assert_eq!(counts.iter().sum::<usize>(), before.len());
    let after = all(&world, "&user=u-7", 500, &tenancy.auditor).await;
    assert_eq!(after.len(), counts[1]);
    assert!(counts[0] > 0);
    until_indexed(&world, &tenancy, 1).await;
    let without = world.store.indexed(tenancy.id, 0..=0).await.unwrap();
    world.store.close().await;
    drop(world);
    for ending in ["", "-wal", "-shm"] {
        let mut file = home.file().into_os_string();
        file.push(ending);
        let _ = std::fs::remove_file(file);
    }
    std::fs::copy(&backup, home.file()).unwrap();
    let world = start().await;
    // Whether the index was looked at by then or not.
    let found = seqs(&all(&world, "&user=u-7", 500, &tenancy.auditor).await);
    assert_eq!(found, before);
    let deadline = Instant::now() + PATIENCE;
    while world.store.indexed(tenancy.id, 0..=0).await.unwrap() == without {
        assert!(Instant::now() < deadline, "not made again within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_indexed(&world, &tenancy, 1).await;
    assert_finds(&world, &tenancy).await;
}
