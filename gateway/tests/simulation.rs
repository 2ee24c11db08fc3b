//! A long day in seconds: agents ask, repeat themselves, are frozen and unfrozen, commits fail, the gateway restarts. What
//! happens is drawn from a seed, which is printed when something does not hold.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/stage.rs"]
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use stage::{Player, Stage, asking, named, verify};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::faults::Fault;

const AGENTS: u64 = 5;
const STEPS: usize = 80;
/// Asks at once in a step.
const ASKS_MAX: u64 = 8;
/// Request ids of an agent: few, so that it repeats itself often.
const REQUEST_IDS: u64 = 60;

/// Random numbers from a seed (`SplitMix64`). The tests need no better ones, only the same ones again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// What the world outside has seen.
struct Simulation {
    dice: Dice,
    stage: Stage,
    agents: Vec<Player>,
    /// Every answer that was handed out, by its decision id.
    answers: BTreeMap<String, Bytes>,
    refused: usize,
    repeated: usize,
}

impl Simulation {
    async fn new(seed: u64) -> Self {
        let stage = Stage::set().await;
        let mut agents = Vec::new();
        for n in 0..AGENTS {
            agents.push(
                stage
                    .hire(json!({"name": format!("agent-{n}"), "tools": "all"}))
                    .await,
            );
        }
        Self {
            dice: Dice(seed),
            stage,
            agents,
            answers: BTreeMap::new(),
            refused: 0,
            repeated: 0,
        }
    }

    async fn run(mut self) -> Self {
        for _ in 0..STEPS {
            match self.dice.below(20) {
                0 => self.stage = self.stage.restart().await,
                1..=3 => self.freeze_or_unfreeze().await,
                4..=7 => self.plan_a_fault(),
                _ => {}
            }
            self.ask_at_once().await;
            self.stage
                .clock
                .advance_millis(i64::try_from(self.dice.below(5_000)).unwrap());
        }
        self
    }

    async fn freeze_or_unfreeze(&mut self) {
        let agent = self.an_agent();
        let verb = if self.dice.one_in(2) { "freeze" } else { "unfreeze" };
        let reply = self.stage.set_standing(&agent, verb).await;
        assert!(reply.status == 200 || reply.status == 503, "{}", reply.text());
    }

    fn plan_a_fault(&mut self) {
        let faults = [
            Fault::Lose,
            Fault::LoseUnknown,
            Fault::KeepButReportUnknown,
            Fault::HeadMoved,
            Fault::Delay(Duration::from_millis(2)),
        ];
        let fault = faults[usize::try_from(self.dice.below(faults.len() as u64)).unwrap()];
        self.stage.faults.plan([fault]);
    }

    fn an_agent(&mut self) -> Player {
        let place = usize::try_from(self.dice.below(AGENTS)).unwrap();
        self.agents[place].clone()
    }

    /// An ask that is the same whenever its number is the same.
    fn an_ask(&mut self) -> Value {
        let number = self.dice.below(REQUEST_IDS);
        let trusts = [
            "trusted_internal_unsigned",
            "semi_trusted_customer",
            "untrusted_external",
        ];
        let trust = trusts[usize::try_from(number % 3).unwrap()];
        let tool = if number == 7 {
            ("honeypot", "peek")
        } else {
            ("github", "create_issue")
        };
        let mut ask = asking(tool.0, tool.1, trust);
        ask["tool_call"]["parameters"] = json!({"title": number});
        if number % 10 == 9 {
            ask
        } else {
            named(ask, &format!("call-{number}"))
        }
    }

    async fn ask_at_once(&mut self) {
        let count = self.dice.below(ASKS_MAX) + 1;
        let calls: Vec<_> = (0..count).map(|_| (self.an_agent(), self.an_ask())).collect();
        let stage = &self.stage;
        let replies = join_all(
            calls
                .iter()
                .map(|(agent, ask)| stage.post("/v1/authorize", &agent.token, ask)),
        )
        .await;
        for reply in replies {
            if reply.status != 200 {
                reply.problem(503, "ledger_unavailable");
                self.refused += 1;
                continue;
            }
            let id = reply.json()["decision_id"].as_str().unwrap().to_owned();
            let bytes = Bytes::from(reply.bytes);
            let before = self.answers.insert(id, bytes.clone());
            self.repeated += usize::from(before.is_some());
            assert!(
                before.is_none_or(|before| before == bytes),
                "one decision, two answers"
            );
        }
    }

    /// Holds what is on disk against what was seen.
    async fn check(&self) {
        let stage = &self.stage;
        stage.faults.forget_plan();
        let head = stage.head().await;
        let entries = stage.entries().await;
        verify(stage.tenant, &entries, &head);
        stage.assert_sound().await;
        for (id, bytes) in &self.answers {
            let receipt = stage
                .store
                .receipt(stage.tenant, id.parse().unwrap())
                .await
                .unwrap();
            assert_eq!(receipt.as_deref(), Some(&bytes[..]), "{id}");
        }
        assert_each_request_has_one_answer(stage, &entries).await;
        assert_no_allow_while_frozen(&entries);
        self.assert_the_directory_is_what_the_ledger_tells(&entries).await;
    }

    async fn assert_the_directory_is_what_the_ledger_tells(&self, entries: &[store::StoredEntry]) {
        let frozen = frozen_at_the_end(entries);
        for agent in &self.agents {
            let path = format!("/v1/agents/{}", agent.id);
            let call = self
                .stage
                .call("GET", &path, &self.stage.operator)
                .tenant(self.stage.tenant);
            let status = call.send().await.expect(200)["status"].clone();
            assert_eq!(status == "frozen", frozen.contains(&agent.id), "{}", agent.id);
        }
        let stored = self.stage.store.load(None).await.unwrap();
        let stored = stored
            .into_iter()
            .find(|stored| stored.tenant == self.stage.tenant)
            .unwrap();
        assert_eq!(
            stored.position.revision,
            self.stage.gateway.tenant(self.stage.tenant).unwrap().revision
        );
    }
}

/// No allow or approval is recorded twice under one id: what follows it is denied, to a frozen agent.
async fn assert_each_request_has_one_answer(stage: &Stage, entries: &[store::StoredEntry]) {
    let mut seen = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.kind == "decision") {
        let body: Value = serde_json::from_str(&entry.body).unwrap();
        let Some(request_id) = body["request_id"].as_str() else {
            continue;
        };
        let first = seen.insert((body["agent"].to_string(), request_id.to_owned()));
        assert!(
            first || body["reason_code"] == "agent_frozen",
            "entry {} repeats {request_id}",
            entry.seq
        );
    }
    let mut next = 1;
    loop {
        let page = stage.store.recorded(stage.tenant, next, 100_000).await.unwrap();
        let Some(last) = page.last() else { break };
        next = last.entry.seq + 1;
        for recorded in &page {
            let is_decision = recorded.entry.kind == "decision";
            let is_complete = recorded.decision.is_some() && recorded.receipt.is_some();
            assert!(is_complete || !is_decision, "a decision has no receipt");
        }
    }
}

fn frozen_at_the_end(entries: &[store::StoredEntry]) -> BTreeSet<String> {
    let mut frozen = BTreeSet::new();
    for entry in entries {
        walk(&mut frozen, entry);
    }
    frozen
}

/// Follows who is frozen from one entry to the next.
fn walk(frozen: &mut BTreeSet<String>, entry: &store::StoredEntry) {
    let body: Value = serde_json::from_str(&entry.body).unwrap();
    let id = body["id"].as_str().unwrap_or_default().to_owned();
    match entry.kind.as_str() {
        "agent_frozen" => _ = frozen.insert(id),
        "agent_unfrozen" => _ = frozen.remove(&id),
        _ => {}
    }
}

fn assert_no_allow_while_frozen(entries: &[store::StoredEntry]) {
    let mut frozen = BTreeSet::new();
    for entry in entries {
        if entry.kind == "decision" {
            let body: Value = serde_json::from_str(&entry.body).unwrap();
            let is_frozen = frozen.contains(body["agent"].as_str().unwrap());
            assert_eq!(
                body["reason_code"] == "agent_frozen",
                is_frozen,
                "entry {}",
                entry.seq
            );
        }
        walk(&mut frozen, entry);
    }
}

/// Says which seed it was if the test does not get to its end.
struct Telling(u64);

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

async fn simulate(seed: u64) {
    let _telling = Telling(seed);
    let simulation = Simulation::new(seed).await.run().await;
    assert!(
        simulation.refused > 0 && simulation.repeated > 0,
        "nothing happened"
    );
    simulation.check().await;
}

#[tokio::test]
async fn whatever_happens_the_ledger_tells_what_was_answered() {
    for seed in 1..=4 {
        simulate(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_on_two_cores_the_ledger_tells_what_was_answered() {
    for seed in 101..=104 {
        simulate(seed).await;
    }
}
