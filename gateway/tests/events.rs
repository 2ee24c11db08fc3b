//! The ledger is followed as it grows, through the real router: from any entry, without a gap, and for as long as one may.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use axum::body::BodyDataStream;
use axum::http::header;
use futures_util::StreamExt;
use model::{Role, TenantId};
use serde_json::{Value, json};
use std::time::Duration;
use support::tenancy::{ENTRIES, Tenancy, injected, reading};
use support::{World, until};

/// How long a test waits for something that should come at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a stream gives a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A stream that is being read.
struct Events {
    body: BodyDataStream,
    /// What came and was not looked at yet.
    rest: String,
}

/// One event.
#[derive(Debug)]
struct Event {
    name: String,
    id: String,
    data: String,
}

impl Events {
    async fn open(world: &World, path: &str, key: &str, last: Option<u64>) -> Self {
        let mut call = world.call("GET", path, key);
        if let Some(last) = last {
            call = call.header("last-event-id", last.to_string());
        }
        let response = call.respond().await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        Self {
            body: response.into_body().into_data_stream(),
            rest: String::new(),
        }
    }

    /// The next event, with data or without; none at the end.
    async fn any(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.rest.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = block.lines().filter_map(|line| line.strip_prefix(name));
                    lines.collect::<Vec<_>>().join("\n")
                };
                let event = Event {
                    name: field("event: "),
                    id: field("id: "),
                    data: field("data: "),
                };
                self.rest = String::from(rest);
                return Some(event);
            }
            let part = tokio::time::timeout(PATIENCE, self.body.next()).await.unwrap()?;
            self.rest.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
        }
    }

    /// The next event that has data; none at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.any().await?;
            if !event.data.is_empty() {
                return Some(event);
            }
        }
    }

    /// The seqs of the next events.
    async fn seqs(&mut self, count: usize) -> Vec<u64> {
        let mut seqs = Vec::new();
        for _ in 0..count {
            let event = self.next().await.unwrap();
            let data: Value = serde_json::from_str(&event.data).unwrap();
            assert_eq!(event.id, data["seq"].to_string());
            seqs.push(data["seq"].as_u64().unwrap());
        }
        seqs
    }

    /// The code with which the stream ends now.
    async fn end(mut self) -> Value {
        let event = self.next().await.unwrap();
        assert_eq!(event.name, "closed", "{event:?}");
        assert!(self.next().await.is_none());
        serde_json::from_str::<Value>(&event.data).unwrap()["code"].clone()
    }
}

async fn world() -> (World, Tenancy) {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    (world, tenancy)
}

#[tokio::test]
async fn what_is_recorded_is_seen_at_once_and_as_it_is_listed() {
    let (world, tenancy) = world().await;
    let mut events = Events::open(&world, "/v1/events", &tenancy.auditor, None).await;
    for ask in [reading(), injected()] {
        world.authorize(&tenancy.token, &ask).await;
        let seen: Value = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
        let path = format!("/v1/audit/events?limit=1&from_seq={}", seen["seq"]);
        let listed = world.get(&path, &tenancy.auditor).await.expect(200);
        assert_eq!(seen, listed["items"][0]);
    }
}

#[tokio::test]
async fn a_stream_goes_on_where_it_broke_off() {
    let (world, tenancy) = world().await;
    let mut events = Events::open(&world, "/v1/events?from_seq=3", &tenancy.auditor, None).await;
    assert_eq!(events.seqs(2).await, [3, 4]);
    drop(events);
    world.authorize(&tenancy.token, &reading()).await;
    let mut events = Events::open(&world, "/v1/events?from_seq=3", &tenancy.auditor, Some(4)).await;
    assert_eq!(events.seqs(4).await, [5, 6, 7, ENTRIES + 1]);
    world.authorize(&tenancy.token, &reading()).await;
    assert_eq!(events.seqs(1).await, [ENTRIES + 2]);
}

#[tokio::test]
async fn a_stream_that_breaks_before_its_first_event_goes_on_where_it_began() {
    let (world, tenancy) = world().await;
    let mut events = Events::open(&world, "/v1/events", &tenancy.auditor, None).await;
    let beginning = events.any().await.unwrap();
    assert_eq!(
        (beginning.id, beginning.data),
        (ENTRIES.to_string(), String::new())
    );
    drop(events);
    world.authorize(&tenancy.token, &reading()).await;
    let mut events = Events::open(&world, "/v1/events", &tenancy.auditor, Some(ENTRIES)).await;
    assert_eq!(events.seqs(1).await, [ENTRIES + 1]);
    for (from_seq, began) in [(1, 0), (ENTRIES + 2, ENTRIES + 1)] {
        let path = format!("/v1/events?from_seq={from_seq}");
        let mut events = Events::open(&world, &path, &tenancy.auditor, None).await;
        assert_eq!(events.any().await.unwrap().id, began.to_string());
    }
    let mut events = Events::open(&world, "/v1/events", &tenancy.auditor, Some(0)).await;
    assert_eq!(events.seqs(2).await, [1, 2]);
}

/// What was recorded just before it stopped was not sent, and is when the client has connected again.
#[tokio::test]
async fn a_stream_that_is_closed_says_how_far_it_has_come() {
    let (world, tenancy) = world().await;
    let mut events = Events::open(&world, "/v1/events", &tenancy.auditor, None).await;
    world.authorize(&tenancy.token, &reading()).await;
    assert_eq!(events.seqs(1).await, [ENTRIES + 1]);
    world.authorize(&tenancy.token, &reading()).await;
    world.gateway.live.close();
    let closed = events.next().await.unwrap();
    assert_eq!(
        (closed.name.as_str(), closed.id),
        ("closed", (ENTRIES + 1).to_string())
    );
}

#[tokio::test]
async fn only_the_kinds_that_are_wanted_come_and_as_many() {
    let (world, tenancy) = world().await;
    for _ in 0..100 {
        world.authorize(&tenancy.token, &reading()).await;
    }
    let path = "/v1/events?from_seq=1&kind=key_created,decision&limit=3";
    let mut events = Events::open(&world, path, &tenancy.auditor, None).await;
    assert_eq!(events.seqs(3).await, [2, ENTRIES + 1, ENTRIES + 2]);
    assert!(events.next().await.is_none());
}

/// Whoever is cut off before anything was found would look through the same entries for ever.
#[tokio::test]
async fn a_stream_that_finds_nothing_says_how_far_it_has_looked_and_goes_on_behind_that() {
    let (world, tenancy) = world().await;
    for _ in 0..100 {
        world.authorize(&tenancy.token, &reading()).await;
    }
    let path = "/v1/events?from_seq=1&kind=agent_frozen";
    let mut events = Events::open(&world, path, &tenancy.auditor, None).await;
    assert_eq!(events.any().await.unwrap().id, "0", "that is its beginning");
    // Nothing is read before it is taken, so all of the ledger is still to be looked through.
    tokio::time::sleep(HEARTBEAT).await;
    let looked_through: u64 = events.any().await.unwrap().id.parse().unwrap();
    assert!((1..ENTRIES + 100).contains(&looked_through), "{looked_through}");
    drop(events);
    let mut events = Events::open(&world, path, &tenancy.auditor, Some(looked_through)).await;
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    let freeze = format!("/v1/agents/{}/freeze", tenancy.agent);
    let reason = json!({"reason": "a test"});
    world.post(&freeze, &admin, &reason).await.expect(200);
    assert_eq!(events.seqs(1).await, [ENTRIES + 102]);
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_deleted() {
    let (world, tenancy) = world().await;
    let path = format!("/v1/events?from_seq={ENTRIES}");
    let mut events = Events::open(&world, &path, &tenancy.auditor, None).await;
    assert_eq!(events.seqs(1).await, [ENTRIES]);
    let whoami = world.get("/v1/whoami", &tenancy.auditor).await.expect(200);
    let key = whoami["key"].as_str().unwrap();
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    assert_eq!(events.seqs(1).await, [ENTRIES + 1]);
    world
        .call("DELETE", &format!("/v1/keys/{key}"), &admin)
        .send()
        .await
        .expect(204);
    assert_eq!(events.end().await, "invalid_token");
}

#[tokio::test]
async fn a_stream_that_nobody_reads_loses_its_place_when_its_key_is_deleted() {
    let (world, tenancy) = world().await;
    let unread = Events::open(&world, "/v1/events?from_seq=1", &tenancy.auditor, None).await;
    assert_eq!(world.gateway.live.streams(), 1);
    let whoami = world.get("/v1/whoami", &tenancy.auditor).await.expect(200);
    let path = format!("/v1/keys/{}", whoami["key"].as_str().unwrap());
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    world.call("DELETE", &path, &admin).send().await.expect(204);
    until(|| world.gateway.live.streams() == 0).await;
    // It says why, should somebody read on.
    assert_eq!(unread.end().await, "invalid_token");
}

#[tokio::test]
async fn a_stream_takes_turns_with_all_who_read_ledgers() {
    let (world, tenancy) = world().await;
    // A chunk of another tenant's ledger is being read.
    let place = world
        .gateway
        .ledger_chunks
        .acquire_for_part(TenantId::SYSTEM)
        .await;
    let mut events = Events::open(&world, "/v1/events?from_seq=3", &tenancy.auditor, None).await;
    let early = tokio::time::timeout(Duration::from_millis(300), events.next()).await;
    assert!(early.is_err(), "it did not wait for its turn");
    world.authorize(&tenancy.token, &reading()).await;
    drop(place);
    assert_eq!(events.seqs(2).await, [3, 4]);
}

#[tokio::test]
async fn a_stream_whose_key_is_deleted_in_line_reads_nothing() {
    let (world, tenancy) = world().await;
    let whoami = world.get("/v1/whoami", &tenancy.auditor).await.expect(200);
    let path = format!("/v1/keys/{}", whoami["key"].as_str().unwrap());
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    let place = world
        .gateway
        .ledger_chunks
        .acquire_for_part(TenantId::SYSTEM)
        .await;
    let mut events = Events::open(&world, "/v1/events?from_seq=1", &tenancy.auditor, None).await;
    let early = tokio::time::timeout(Duration::from_millis(300), events.next()).await;
    assert!(early.is_err(), "it did not wait for its turn");
    world.call("DELETE", &path, &admin).send().await.expect(204);
    drop(place);
    assert_eq!(events.end().await, "invalid_token");
}

#[tokio::test]
async fn a_stream_ends_when_the_gateway_stops_and_none_begins() {
    let (world, tenancy) = world().await;
    let mut events = Events::open(&world, "/v1/events?from_seq=1", &tenancy.auditor, None).await;
    assert_eq!(events.seqs(7).await.len(), 7);
    world.gateway.live.close();
    assert_eq!(events.end().await, "overloaded");
    let refused = world.get("/v1/events", &tenancy.auditor).await;
    refused.problem(503, "overloaded");
}

#[tokio::test]
async fn one_tenant_does_not_take_all_places_and_nobody_waits_for_its_readers() {
    let (world, tenancy) = world().await;
    let mut unread = Vec::new();
    for _ in 0..32 {
        unread.push(Events::open(&world, "/v1/events?from_seq=1", &tenancy.auditor, None).await);
    }
    let refused = world.get("/v1/events", &tenancy.auditor).await;
    refused.problem(429, "too_many_streams");
    assert!(refused.headers.contains_key(header::RETRY_AFTER));
    // None of them reads, and everything is decided all the same.
    for _ in 0..100 {
        world.authorize(&tenancy.token, &reading()).await;
    }
    unread.pop();
    let mut last = Events::open(&world, "/v1/events?from_seq=1", &tenancy.auditor, None).await;
    let all: Vec<u64> = (1..=ENTRIES + 100).collect();
    assert_eq!(last.seqs(all.len()).await, all);
    assert_eq!(unread[0].seqs(all.len()).await, all);
}

/// That page may have four megabytes, and its caller does not have to take it.
#[tokio::test]
async fn a_stream_has_its_place_until_its_last_page_is_taken() {
    let (world, tenancy) = world().await;
    let path = "/v1/events?from_seq=1&limit=1";
    let mut streams = Vec::new();
    for _ in 0..32 {
        let mut events = Events::open(&world, path, &tenancy.auditor, None).await;
        assert_eq!(events.seqs(1).await, [1]);
        streams.push(events);
    }
    let refused = world.get(path, &tenancy.auditor).await;
    refused.problem(429, "too_many_streams");
    assert!(streams[0].any().await.is_none());
    assert_eq!(world.gateway.live.streams(), 31);
    Events::open(&world, path, &tenancy.auditor, None).await;
}

/// A page is what a stream keeps that nobody takes.
#[tokio::test]
async fn a_page_of_long_entries_has_few_of_them_and_none_is_missed() {
    const LONG: usize = 100 << 10;
    let (world, tenancy) = world().await;
    let long = json!({"seqs": [], "text": "x".repeat(LONG)});
    let mut end = 0;
    for body in [&long, &json!({"seqs": []})].into_iter().cycle().take(20) {
        end = world.append(tenancy.id, "bodies_erased", body).await;
    }
    let mut events = Events::open(&world, "/v1/events?from_seq=1", &tenancy.auditor, None).await;
    let (mut longest, last) = (0, format!("\"seq\":{end},"));
    while !events.rest.contains(&last) {
        let page = tokio::time::timeout(PATIENCE, events.body.next()).await.unwrap();
        let page = page.unwrap().unwrap();
        longest = longest.max(page.len());
        events.rest.push_str(std::str::from_utf8(&page).unwrap());
    }
    assert!(longest < (256 << 10) + 2 * LONG, "{longest}");
    let all: Vec<u64> = (1..=end).collect();
    assert_eq!(events.seqs(all.len()).await, all);
}

#[tokio::test]
async fn one_tenants_entries_are_not_another_ones() {
    let (world, tenancy) = world().await;
    let other = world.tenancy("other").await;
    let mut events = Events::open(&world, "/v1/events", &other.auditor, None).await;
    world.authorize(&tenancy.token, &reading()).await;
    world.authorize(&other.token, &reading()).await;
    let seen: Value = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
    assert_eq!(seen["body"]["agent"], other.agent.to_string());
    world
        .get("/v1/events", &tenancy.token)
        .await
        .problem(403, "forbidden");
}
