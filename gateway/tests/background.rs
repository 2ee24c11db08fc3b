//! What nobody waits for is done on a background thread, behind everybody else: nobody waits for it, whatever becomes
//! of it, and it ends with its gateway.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use model::TenantId;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::World;
use support::tenancy::{ENTRIES, Tenancy, reading};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longer than anything here takes. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_mins(3);
/// Longer than verification rests where it has found nothing to do.
const LONGER_THAN_A_TICK: Duration = Duration::from_millis(1_500);

/// How many entries were verified without being asked.
async fn verified(world: &World) -> u64 {
    let metrics = world.get("/metrics", "").await.text();
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("countersign_ledger_verified_entries_total "));
    count.unwrap().parse().unwrap()
}

/// Waits until so many entries were verified.
async fn until_verified(world: &World, entries: u64) {
    let deadline = Instant::now() + PATIENCE;
    while verified(world).await < entries {
        assert!(Instant::now() < deadline, "{entries} were not verified");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Has the thread do nothing until the sender is used or dropped.
async fn hold_up(world: &World) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel();
    let (tell, told) = oneshot::channel();
    world.gateway.background.spawn(async move {
        tell.send(()).unwrap();
        // An error means that the test has ended.
        let _ = wait.recv();
    });
    timeout(PATIENCE, told).await.unwrap().unwrap();
    go_on
}

async fn answer_everything(world: &World, tenancy: &Tenancy) {
    for _ in 0..20 {
        world.authorize(&tenancy.token, &reading()).await;
    }
    let search = world.get("/v1/decisions?tool=github", &tenancy.auditor).await;
    assert_eq!(search.status, 200);
    let checkpoint = world.get("/v1/ledger/checkpoint", &tenancy.auditor).await;
    assert_eq!(checkpoint.status, 200);
    let verify = world
        .post("/v1/ledger/verify", &tenancy.auditor, &serde_json::json!({}))
        .await;
    assert_eq!(verify.expect(200)["verified"], true);
}

#[tokio::test]
async fn everybody_is_answered_while_the_background_thread_does_nothing() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    until_verified(&world, ENTRIES).await;
    let go_on = hold_up(&world).await;
    let before = verified(&world).await;
    timeout(PATIENCE, answer_everything(&world, &tenancy))
        .await
        .unwrap();
    tokio::time::sleep(LONGER_THAN_A_TICK).await;
    assert_eq!(verified(&world).await, before, "somebody else verifies");
    go_on.send(()).unwrap();
    until_verified(&world, before + 20).await;
}

#[tokio::test]
async fn ledgers_are_read_a_chunk_at_a_time_and_nobody_who_asks_waits_for_that() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    for (method, path, status) in [
        ("POST", "/v1/ledger/verify", 200),
        ("GET", "/v1/ledger/export", 200),
        ("GET", "/v1/ledger/evidence", 200),
        ("GET", "/v1/ledger/evidence?run_id=nobody", 404),
    ] {
        // A chunk of another tenant's ledger is being read.
        let place = world
            .gateway
            .ledger_chunks
            .acquire_for_part(TenantId::SYSTEM)
            .await;
        let call = world.call(method, path, &tenancy.auditor);
        let call = if method == "POST" {
            call.json(&serde_json::json!({}))
        } else {
            call
        };
        let mut reading_all = pin!(call.send());
        let early = timeout(Duration::from_millis(500), reading_all.as_mut()).await;
        assert!(early.is_err(), "{path}: it did not wait for its turn");
        timeout(PATIENCE, world.authorize(&tenancy.token, &reading()))
            .await
            .unwrap();
        drop(place);
        let whole = timeout(PATIENCE, reading_all).await.unwrap();
        assert_eq!(whole.status, status, "{path}");
    }
}

#[tokio::test]
async fn the_thread_ends_with_its_gateway() {
    let world = World::start().await;
    let (held, ended) = oneshot::channel::<()>();
    world.gateway.background.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    let World {
        gateway, app, store, ..
    } = world;
    drop((app, gateway));
    timeout(PATIENCE, ended)
        .await
        .unwrap()
        .expect_err("nobody has sent");
    timeout(PATIENCE, store.close()).await.unwrap();
}

#[tokio::test]
async fn a_thread_that_is_stopped_in_the_middle_holds_nobody_up() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let (store, tenant) = (Arc::clone(&world.gateway.background.store), tenancy.id);
    world.gateway.background.spawn(async move {
        loop {
            store.entries(tenant, 1, 100).await.unwrap();
        }
    });
    until_verified(&world, ENTRIES).await;
    world.gateway.background.stop();
    timeout(PATIENCE, world.gateway.background.ended()).await.unwrap();
    timeout(PATIENCE, answer_everything(&world, &tenancy))
        .await
        .unwrap();
    timeout(PATIENCE, world.store.close()).await.unwrap();
}

/// The threads of this process with this name, and how nice each is.
#[cfg(target_os = "linux")]
fn niceness(name: &str) -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread of another test may have ended in between.
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    stats.filter_map(|stat| nice_of(&stat, name)).collect()
}

/// How nice a thread is, if it has this name.
#[cfg(target_os = "linux")]
fn nice_of(stat: &str, name: &str) -> Option<i32> {
    let (_, named) = stat.split_once('(')?;
    let (found, fields) = named.rsplit_once(')')?;
    let nice = fields.split_whitespace().nth(16)?;
    (found == name).then(|| nice.parse().unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_nobody_waits_for_has_the_lowest_priority_and_nothing_else_has() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    world.authorize(&tenancy.token, &reading()).await;
    let ours = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (tell, told) = oneshot::channel();
    let (store, tenant) = (Arc::clone(&world.gateway.background.store), tenancy.id);
    world.gateway.background.spawn(async move {
        store.head(tenant).await.unwrap();
        tell.send(std::fs::read_to_string("/proc/thread-self/stat").unwrap())
            .unwrap();
    });
    let theirs = timeout(PATIENCE, told).await.unwrap().unwrap();
    assert_eq!(nice_of(&theirs, "background"), Some(19), "{theirs}");
    // Connections to PostgreSQL have no threads.
    let readers = niceness("sqlite-bg");
    assert!(readers.iter().all(|nice| *nice == 19), "{readers:?}");
    let writers = niceness("sqlite-aside");
    assert_eq!(readers.is_empty(), writers.is_empty());
    let (_, ours) = ours.rsplit_once(')').unwrap();
    let ours: i32 = ours.split_whitespace().nth(16).unwrap().parse().unwrap();
    for name in ["sqlite-aside", "sequencer"] {
        let others = niceness(name);
        assert!(others.iter().all(|nice| *nice == ours), "{name}: {others:?}");
    }
    assert!(!niceness("sequencer").is_empty());
}
